"""Self-contained model folders: weights, tokenizer, and the code that loads them without this package."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from .models import ARCHITECTURES


LOADS_ALONE = """
import sys
sys.modules["hf_deepnmt"] = None
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, pipeline
folder, text = sys.argv[1:]
model = AutoModelForSeq2SeqLM.from_pretrained(folder, trust_remote_code=True)
AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
results = {task: pipeline(task, model=folder, trust_remote_code=True)(text) for task in model.config.custom_pipelines}
print(results["translation"][0]["translation_text"])
"""


def export_folder(source: str | Path, output: str | Path, check: bool = True) -> Path:
    """
    Copy a trained model into a folder that loads anywhere with `trust_remote_code=True`.

    Args:
        source: a folder that `save_pretrained` of one of this package's models wrote, with its tokenizer.
        check: load the result in a fresh process that cannot import this package, and translate one sentence.

    Raises:
        ValueError: the model is not one of this package's, or `output` is not empty.
        RuntimeError: the check failed; the message holds the process's error.
    """
    output = Path(output)
    if output.exists() and any(output.iterdir()):
        raise ValueError(f"{output} is not empty: choose another folder")
    model = AutoModelForSeq2SeqLM.from_pretrained(source)
    if model.config.model_type not in ARCHITECTURES:
        raise ValueError(
            f"{source} holds a {model.config.model_type!r} model; this exports {', '.join(ARCHITECTURES)}"
        )
    model.save_pretrained(output)
    AutoTokenizer.from_pretrained(source).save_pretrained(output)
    card = Path(source) / "README.md"
    if card.is_file():
        shutil.copy(card, output)
    if check:
        check_loads_alone(output)
    return output


def check_loads_alone(folder: str | Path, text: str = "Das ist ein Test.") -> str:
    """The translation of `text` by a fresh process that cannot import this package; RuntimeError where it fails."""
    with tempfile.TemporaryDirectory() as elsewhere:
        command = [sys.executable, "-c", LOADS_ALONE, str(Path(folder).resolve()), text]
        done = subprocess.run(command, capture_output=True, text=True, cwd=elsewhere)
    if done.returncode:
        raise RuntimeError(f"{folder} does not load without this package:\n{done.stderr[-2000:]}")
    return done.stdout.rstrip("\n")


__all__ = ["check_loads_alone", "export_folder"]
