"""Every recipe of the tree is read, checked and run for two updates; wrong recipes are refused with a remedy."""

import importlib
import json
from pathlib import Path

import pytest
from tiny import RECIPE_FOLDER, RECIPES, SMALL
from transformers import pipeline

from hf_deepnmt.models import ARCHITECTURES
from hf_deepnmt.tasks import TASKS
from hf_deepnmt.training import load_recipe, train, training_arguments


def small(path):
    """Overrides that make the recipe small; links from an aligner or files become those of the generated corpus."""
    recipe = load_recipe(path)
    links = ["data.links=gold", "data.link_format=null"] if recipe.data.links else []
    summaries = ["data.corpus=generated-summaries"] if recipe.task == "summarization" else []
    return [*SMALL, *links, *summaries]


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_recipe_runs(path, tmp_path, few_held_out):
    results, task = train([str(path), *small(path), f"training.output_dir={tmp_path}/run"]), load_recipe(path).task
    assert results["training"]["steps"] == 2
    score = results["scores"]["test"][TASKS[task].best]
    assert results["scores"]["test"]["sentences"] == 6 and "tok:" in score["signature"]
    stored = json.loads((tmp_path / "run" / "results.json").read_text())
    assert stored["run"]["versions"]["transformers"] and str(tmp_path) not in json.dumps(stored)
    assert len((tmp_path / "run" / "test.hyp").read_text().splitlines()) == 6
    # with word links also how close the predicted order is to theirs
    linked = {"test": 6} if load_recipe(path).data.links else {}
    assert {name: order["sentences"] for name, order in results.get("order", {}).items()} == linked
    made = pipeline(task, model=str(tmp_path / "run" / "model"))
    assert isinstance(made("Ich schlafe.", max_new_tokens=3)[0][TASKS[task].text_key], str)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_recipe_holds_only_what_differs_from_the_defaults(path):
    recipe = load_recipe(path)
    defaults = training_arguments(load_recipe(path, ["training={}"]), Path("unused"))
    for name, value in recipe.training.items():
        assert getattr(defaults, name) != value, f"training.{name} is the default"


def test_every_architecture_has_its_recipe():
    for model_type, architecture in ARCHITECTURES.items():
        assert load_recipe(RECIPE_FOLDER / architecture.recipe).model.get("model_type", "deepnmt") == model_type


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.max_stepz=3", "did you mean `max_steps`"),
        ("data.corpora=multi30k", "did you mean `corpus`"),
        ("model.dmodel=3", "did you mean `d_model`"),
        ("modle.d_model=3", "did you mean `model`"),
        ("model.model_type=deepnnt", "did you mean `deepnmt`"),
        ("training.max_steps", "write section.field=value"),
        ("training.label_smoothing_factor=0.1", "`label_smoothing` in the model's config"),
    ],
)
def test_wrong_recipes_are_refused_with_a_remedy(override, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        train([str(RECIPES[0]), *SMALL, f"training.output_dir={tmp_path}", override])


def test_data_without_a_source_is_refused(tmp_path):
    (tmp_path / "r.yaml").write_text("model: {d_model: 16}\n")
    with pytest.raises(ValueError, match="generated, iwslt14"):
        train([str(tmp_path / "r.yaml"), f"training.output_dir={tmp_path}/run"])


def test_files_as_data_keep_blank_test_lines_and_report_what_is_left_out(tmp_path, few_held_out):
    texts = {
        "train": (["ein Hund", "zwei Hunde", "", "lang " * 90] * 9, ["a dog", "two dogs", "x", "long " * 90] * 9),
        "valid": (["ein Hund"] * 3, ["a dog"] * 3),
        "test": (["ein Hund", "", "zwei"], ["a dog", "", "two"]),
    }
    for name, sides in texts.items():
        for language, lines in zip(("de", "en"), sides, strict=True):
            (tmp_path / f"{name}.{language}").write_text("".join(f"{line}\n" for line in lines))
    files = {name: [f"{tmp_path}/{part}.{side}" for side in ("de", "en")] for name, part in
             (("train", "train"), ("validation", "valid"), ("test", "test"))}  # fmt: skip
    data = [f"data.{name}={json.dumps(paths)}" for name, paths in files.items()]
    options = ["data.corpus=null", "data.max_source_length=40", "tokenizer.vocab_size=300", *data]
    results = train([str(RECIPES[0]), *SMALL, *options, f"training.output_dir={tmp_path}/run"])
    assert results["data"]["train"]["read"] == 36 and results["data"]["train"]["kept"] == 18
    assert sum(results["data"]["train"]["dropped"].values()) == 18
    assert results["scores"]["test"]["sentences"] == 3
    assert (tmp_path / "run" / "test.hyp").read_text().split("\n")[1] == ""


def test_a_run_continues_where_it_stopped(tmp_path, few_held_out):
    common = [str(RECIPES[0]), *SMALL, "training.save_steps=2", "training.max_steps=4"]
    whole = train([*common, f"training.output_dir={tmp_path}/whole"])
    half = [*common, f"training.output_dir={tmp_path}/half"]
    train([*half, "training.max_steps=2"])
    continued = train(half)
    losses = [
        [entry["loss"] for entry in results["training"]["history"] if "loss" in entry]
        for results in (whole, continued)
    ]
    assert len(losses[0]) == 4 and losses[0] == losses[1]


def test_a_finished_run_is_not_trained_further(tmp_path, few_held_out):
    run = [str(RECIPES[0]), *SMALL, f"training.output_dir={tmp_path}/run"]
    first = train(run)
    weights = (tmp_path / "run" / "model" / "model.safetensors").read_bytes()
    assert train(run) == json.loads((tmp_path / "run" / "results.json").read_text())
    (tmp_path / "run" / "results.json").unlink()
    again = train(run)
    assert again["training"]["steps"] == first["training"]["steps"] == 2 and again["scores"] == first["scores"]
    assert (tmp_path / "run" / "model" / "model.safetensors").read_bytes() == weights
    assert not (tmp_path / "run" / "checkpoint-3").exists()


def test_a_bare_no_is_the_name_of_a_strategy(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text("training:\n  eval_strategy: no\n  save_strategy: no\n")
    arguments = training_arguments(load_recipe(path), tmp_path)
    assert arguments.eval_strategy == "no" and arguments.save_strategy == "no"


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize(("stated", "warned"), [("auto", "training in"), (True, "no fast bf16"), (False, None)])
def test_bf16_auto_is_what_the_machine_is_fast_in(tmp_path, monkeypatch, caplog, stated, warned, fast):
    module = importlib.import_module("hf_deepnmt.training")
    monkeypatch.setattr(module, "fast_bf16", lambda: fast)
    monkeypatch.setattr(module.logger, "propagate", True)
    arguments = training_arguments(load_recipe(RECIPES[0], [f"training.bf16={json.dumps(stated)}"]), tmp_path)
    assert arguments.bf16 == (fast if stated == "auto" else stated)
    expected = warned if stated == "auto" or not fast else None
    assert (expected in caplog.text) if expected else not caplog.text
