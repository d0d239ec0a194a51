"""A saved folder carries its code: a process without the package loads it and gives the same results."""

import json
import subprocess
import sys

import pytest
import torch
from tiny import spread, tiny_config
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, pipeline

from hf_deepnmt.export import check_loads_alone, export_folder
from hf_deepnmt.models import ARCHITECTURES
from hf_deepnmt.tokenization import train_tokenizer


TEXTS = ["der Hund schläft", "", "die Katze"]
PROGRAM = """
import json, sys
sys.modules["hf_deepnmt"] = None
import torch
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer, pipeline
folder, again, texts = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
results = []
for round in (folder, folder, again):
    model = AutoModelForSeq2SeqLM.from_pretrained(round, trust_remote_code=True).eval()
    tokenizer = AutoTokenizer.from_pretrained(round, trust_remote_code=True)
    inputs = tokenizer(texts, return_tensors="pt", padding=True)
    inputs.pop("token_type_ids", None)
    torch.save(model(**inputs, labels=inputs["input_ids"].clamp(max=250)).logits, f"{round}/logits.pt")
    translator = pipeline("translation", model=round, trust_remote_code=True)
    options = {"num_beams": 3, "length_penalty": 1.6, "length_penalty_form": "gnmt"}
    results.append([model.generate(**inputs, **options).tolist(), translator(texts, **options)])
    if round == folder:
        model.save_pretrained(again)
        tokenizer.save_pretrained(again)
assert type(model).__module__.startswith("transformers_modules"), type(model)
print(json.dumps(results))
"""


def saved(model_type, joint, path):
    tokenizer = train_tokenizer(
        ["der Hund schläft die Katze"] * 9, ["the dog sleeps cat"] * 9, joint=joint, vocab_size=300,
        target_vocab_size=None if joint else 290, show_progress=False,
    )  # fmt: skip
    sizes = {"vocab_size": len(tokenizer), "decoder_vocab_size": getattr(tokenizer, "target_vocab_size", None)}
    tie = {} if joint else {"tie": "decoder"}
    model = spread(ARCHITECTURES[model_type].head(tiny_config(model_type, **sizes, **tie))).eval()
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


@pytest.fixture(params=[True, False], ids=["joint", "separate"])
def folder(request, model_type, tmp_path):
    return saved(model_type, request.param, tmp_path / "model")


def test_folder_gives_equal_results_without_the_package(folder, tmp_path):
    again = tmp_path / "again"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), str(again), json.dumps(TEXTS)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    results = json.loads(done.stdout.splitlines()[-1])
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    inputs = tokenizer(TEXTS, return_tensors="pt", padding=True)
    inputs.pop("token_type_ids", None)
    logits = model(**inputs, labels=inputs["input_ids"].clamp(max=250)).logits
    for place in (folder, again):
        assert torch.equal(torch.load(place / "logits.pt"), logits)
    options = {"num_beams": 3, "length_penalty": 1.6, "length_penalty_form": "gnmt"}
    expected = [
        model.generate(**inputs, **options).tolist(),
        pipeline("translation", model=str(folder))(TEXTS, **options),
    ]
    assert results == [expected] * 3
    assert expected[1][1] == {"translation_text": ""} and expected[1][0]["translation_text"]


def test_saving_again_keeps_all_code(folder, tmp_path):
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    model.save_pretrained(tmp_path / "b")
    AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path / "b")
    assert {p.name for p in (tmp_path / "b").iterdir()} == {p.name for p in folder.iterdir()}
    config = json.loads((tmp_path / "b" / "config.json").read_text())
    assert set(config["custom_pipelines"]) == {"translation", "summarization"}


def test_export_writes_a_folder_that_loads_alone(tmp_path):
    folder = saved("deepnmt", True, tmp_path / "model")
    output = export_folder(folder, tmp_path / "exported")
    assert (output / "pipeline_translation.py").is_file()
    with pytest.raises(ValueError, match="not empty"):
        export_folder(folder, output)
    (output / "pipeline_translation.py").unlink()
    with pytest.raises(RuntimeError, match="does not load"):
        check_loads_alone(output)
