"""A saved folder carries its code: a process without the package loads it and gives the same results."""

import json
import os
import subprocess
import sys

import pytest
import torch
from filelock import FileLock
from tiny import save_translator
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, pipeline

from hf_deepnmt.export import check_loads_alone, export_folder
from hf_deepnmt.models import ARCHITECTURES


TEXTS = ["ein Hund", "", "eine Katze und ein Hund"]
OPTIONS = {"num_beams": 3, "min_new_tokens": 5, "length_penalty": 1.6, "length_penalty_form": "gnmt"}
SIDES = {"joint": True, "separate": False}
PROGRAM = """
import json, sys
sys.modules["hf_deepnmt"] = None
import torch
from pathlib import Path
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, pipeline
folders, texts, options = map(json.loads, sys.argv[1:])
for folder in map(Path, folders):
    again, results = folder.with_name(folder.name + "-again"), []
    for round in (folder, folder, again):
        model = AutoModelForSeq2SeqLM.from_pretrained(round, trust_remote_code=True).eval()
        tokenizer = AutoTokenizer.from_pretrained(round, trust_remote_code=True)
        inputs = tokenizer(texts, return_tensors="pt", padding=True)
        inputs.pop("token_type_ids", None)
        with torch.no_grad():
            logits = model(**inputs, labels=inputs["input_ids"].clamp(max=250)).logits
        translator = pipeline("translation", model=str(round), trust_remote_code=True)
        results.append([model.generate(**inputs, **options).tolist(), translator(texts, **options), logits.tolist()])
        if round == folder:
            model.save_pretrained(again)
            tokenizer.save_pretrained(again)
    assert type(model).__module__.startswith("transformers_modules"), type(model)
    folder.with_name(folder.name + ".json").write_text(json.dumps(results))
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """
    Folders of every architecture and kind of vocabulary, what one process without the package made of them, and its errors.

    Processes of the same test run share them: the first one makes them, the others wait.
    """
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    place = tmp_path_factory.getbasetemp().parent / f"exported-{run}" if run else tmp_path_factory.mktemp("exported")
    folders = {(name, sides): place / f"{name}-{sides}" for name in ARCHITECTURES for sides in SIDES}
    errors = place / "stderr.txt"
    place.mkdir(exist_ok=True)
    with FileLock(place / "lock"):
        if not errors.is_file():
            for (name, sides), folder in folders.items():
                save_translator(folder, name, SIDES[sides])
            arguments = [json.dumps(value) for value in ([str(folder) for folder in folders.values()], TEXTS, OPTIONS)]
            command = [sys.executable, "-c", PROGRAM, *arguments]
            done = subprocess.run(command, stderr=subprocess.PIPE, text=True, cwd=place, check=False)
            errors.write_text(done.stderr)
    return folders, errors


@pytest.fixture(params=SIDES)
def folder(request, model_type, exported):
    return exported[0][model_type, request.param]


@pytest.mark.timeout(900)  # the first test of the module waits for the other process
def test_folder_gives_equal_results_without_the_package(folder, exported):
    outcome = folder.with_name(folder.name + ".json")
    assert outcome.is_file(), exported[1].read_text()[-3000:]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    inputs = tokenizer(TEXTS, return_tensors="pt", padding=True)
    inputs.pop("token_type_ids", None)
    with torch.no_grad():
        logits = model(**inputs, labels=inputs["input_ids"].clamp(max=250)).logits
    expected = [
        model.generate(**inputs, **OPTIONS).tolist(),
        pipeline("translation", model=str(folder))(TEXTS, **OPTIONS),
        logits.tolist(),
    ]
    assert json.loads(outcome.read_text()) == [expected] * 3
    assert expected[1][1] == {"translation_text": ""}
    assert logits.std() > 0.1


@pytest.mark.timeout(900)
def test_saving_again_keeps_all_code(folder, tmp_path):
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    model.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path)
    again = folder.with_name(folder.name + "-again")
    for place in (tmp_path, again):
        assert {p.name for p in place.iterdir()} == {p.name for p in folder.iterdir()}
        config = json.loads((place / "config.json").read_text())
        assert set(config["custom_pipelines"]) == {"translation", "summarization"}


def test_export_writes_a_folder_that_loads_alone(tmp_path):
    folder = save_translator(tmp_path / "model", "deepnmt")
    output = export_folder(folder, tmp_path / "exported")
    assert (output / "pipeline_translation.py").is_file()
    with pytest.raises(ValueError, match="not empty"):
        export_folder(folder, output)
    (output / "pipeline_translation.py").unlink()
    with pytest.raises(RuntimeError, match="does not load"):
        check_loads_alone(output)
