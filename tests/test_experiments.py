"""Experiments resume where they stopped, report what is there, and refuse tables that the results do not support."""

import gzip
import importlib.util
import json
from pathlib import Path

import pytest
import yaml


ROOT = Path(__file__).parents[1]
EXPERIMENTS = sorted((ROOT / "training" / "experiments").glob("*.yaml"))
SIMPLE = {
    "title": "Two systems",
    "description": "A test.",
    "recipe": "deepnmt_tatoeba-de-en_tiny.yaml",
    "seeds": [1, 2],
    "overrides": {"data.corpus": "generated"},
    "rows": [{"name": "plain"}, {"name": "wide", "baseline": "plain", "overrides": {"model.d_model": 32}}],
}


@pytest.fixture
def module(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("experiments", ROOT / "training" / "experiments.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(module, "TABLE", tmp_path / "EXPERIMENTS.md")
    return module


@pytest.fixture
def experiment(tmp_path):
    path = tmp_path / "simple.yaml"
    path.write_text(yaml.safe_dump(SIMPLE))
    return path


def finish(module, row, seed, bleu):
    """What a finished run leaves, with given scores."""
    folder = module.RESULTS / "simple"
    folder.mkdir(parents=True, exist_ok=True)
    result = {
        "scores": {"test": {"bleu": {"score": bleu}, "chrf": {"score": 2 * bleu}}},
        "training_loss": [{"step": 1, "loss": 4.0}, {"step": 2, "loss": 3.5}],
        "validation": [{"step": 1, "eval_loss": 3.0}, {"step": 2, "eval_loss": 2.5}],
        "seconds": 90.0,
    }
    (folder / f"{row}.{seed}.json").write_text(json.dumps(result))


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_experiment_files_are_whole(module, path):
    from hf_deepnmt.training import load_recipe

    experiment = module.load_experiment(path)
    assert experiment["title"] and experiment["description"]
    for row in experiment["rows"]:
        overrides = module.recipe_overrides(experiment, row, 1, Path("folder"), [])
        load_recipe(ROOT / "training" / "recipes" / experiment["recipe"], overrides)


def test_only_what_is_missing_is_trained(module, experiment, monkeypatch, tmp_path):
    finish(module, "plain", 1, 10.0)
    trained = []

    class Done:
        returncode = 0

    def train(command, **options):
        trained.append(command)
        return Done()

    monkeypatch.setattr(module.subprocess, "run", train)
    monkeypatch.setattr(module, "keep", lambda folder, target: finish(module, *target.name.split(".")[:2], 11.0))
    module.main(["run", str(experiment), "--work", str(tmp_path / "work"), "data.size=50"])
    assert ["training.seed=1" in command for command in trained] == [True, False, False]
    assert "model.d_model=32" in trained[0] and "data.size=50" in trained[0]
    assert 'data.corpus="generated"' in trained[1]
    module.main(["run", str(experiment), "--work", str(tmp_path / "work")])
    assert len(trained) == 3


def test_a_failed_run_stops_with_its_log(module, experiment, monkeypatch, tmp_path):
    class Failed:
        returncode = 3

    monkeypatch.setattr(module.subprocess, "run", lambda *args, **options: Failed())
    with pytest.raises(SystemExit, match=r"plain.1/log.txt: training failed with exit status 3"):
        module.main(["run", str(experiment), "--work", str(tmp_path / "work")])
    assert not (module.RESULTS / "simple" / "plain.1.json").exists()


def test_table_has_means_differences_and_what_is_missing(module, experiment):
    for seed, plain, wide in ((1, 10.0, 12.0), (2, 11.0, 12.0)):
        finish(module, "plain", seed, plain)
        finish(module, "wide", seed, wide)
    table = module.table_of(experiment)
    assert "| plain | 2 of 2 | 10.5 ± 0.7 | 21.0 ± 1.4 | 2.500 |" in table
    assert "| +1.50 ± 0.50 (plain) |" in table
    (module.RESULTS / "simple" / "many_curves.png").touch()
    assert ": many curves](results/experiments/simple/many_curves.png)" in module.table_of(experiment)
    (module.RESULTS / "simple" / "wide.1.json").unlink()
    assert "| +1.00 (plain) |" in module.table_of(experiment)
    (module.RESULTS / "simple" / "wide.2.json").unlink()
    assert "| wide | 0 of 2 | not run yet |" in module.table_of(experiment)


def test_table_has_the_order_where_models_have_one(module, experiment):
    finish(module, "plain", 1, 10.0)
    finish(module, "wide", 1, 11.0)
    assert "cosine" not in module.table_of(experiment)
    path = module.RESULTS / "simple" / "wide.1.json"
    layers = [{"layer": 1, "cosine_similarity": 0.5}, {"layer": 2, "cosine_similarity": 0.91234}]
    order = {"test": {"layers": layers, "source_order": {"cosine_similarity": 0.8}}}
    path.write_text(json.dumps({**json.loads(path.read_text()), "order": order}))
    heading, _, plain, wide = module.table_of(experiment).splitlines()[-4:]
    assert heading.endswith("| bootstrap p < 0.05 | cosine similarity (source order) | minutes |")
    assert plain.endswith("|  | 1.5 |") and wide.endswith("| 0.912 (0.800) | 1.5 |")
    assert {line.count("|") for line in (heading, plain, wide)} == {10}


def test_rows_with_the_same_data_share_the_links_of_an_aligner(module, tmp_path, monkeypatch):
    """eflomal never gives the same links twice, and rows are compared on one reference order."""
    linked = {"model.model_type": "reordering", "data.links": "eflomal"}
    rows = [
        {"name": "plain"},
        {"name": "paper", "overrides": linked},
        {"name": "gate", "overrides": {**linked, "model.fusion": "gate"}},
        {"name": "small", "overrides": {**linked, "data.size": 9}},
    ]
    files = {"data.corpus": None, "data.train": ["a.de", "a.en"]}
    path = tmp_path / "linked.yaml"
    path.write_text(yaml.safe_dump({**SIMPLE, "seeds": [1, 2], "overrides": files, "rows": rows}))
    seen = []

    class Done:
        returncode = 0

    def train(command, **options):
        folder = Path(next(part for part in command if "output_dir" in part).partition("=")[2].strip('"')) / "links"
        if any("eflomal" in part for part in command):
            seen.append(folder.is_dir())
            folder.mkdir(exist_ok=True)
            (folder / "train").write_text("0-0" if not seen[-1] else (folder / "train").read_text())
        return Done()

    monkeypatch.setattr(module.subprocess, "run", train)
    monkeypatch.setattr(module, "keep", lambda folder, target: None)
    module.main(["run", str(path), "--work", str(tmp_path / "work")])
    # by seed: paper, gate, small
    assert seen == [False, True, False, True, True, True]


def test_bootstrap_is_per_seed_and_counted_in_the_table(module, experiment, monkeypatch):
    import hf_deepnmt.training as training

    words = ["the cat sat on the mat today", "a dog ran over the green hill", "we all saw the old house there"] * 20
    data = {"test": {"translation": [{"de": "x", "en": line} for line in words]}}
    monkeypatch.setattr(training, "load_data", lambda settings, seed, reports: data)
    for row, text in (("plain", [line.replace("the", "no") for line in words]), ("wide", words)):
        finish(module, row, 1, 10.0)
        with gzip.open(module.RESULTS / "simple" / f"{row}.1.test.gz", "wt") as file:
            file.write("\n".join(text) + "\n")
    module.main(["compare", str(experiment)])
    outcome = json.loads((module.RESULTS / "simple" / "bootstrap.json").read_text())["comparisons"]["wide"]["test"]
    assert list(outcome) == ["1"]
    assert outcome["1"]["bleu"]["delta"] > 0 and outcome["1"]["bleu"]["p_value"] < 0.05
    assert "| 1 of 1 |" in module.table_of(experiment)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"name": "one"}, {"name": "one"}], "two rows are named 'one'"),
        ([{"name": "one", "baseline": "other"}], "compares with 'other', which is no row"),
    ],
)
def test_wrong_rows_are_named(module, tmp_path, rows, message):
    path = tmp_path / "wrong.yaml"
    path.write_text(yaml.safe_dump({**SIMPLE, "rows": rows}))
    with pytest.raises(ValueError, match=message):
        module.load_experiment(path)


def test_published_table_is_what_the_results_say(module, monkeypatch):
    monkeypatch.undo()
    spec = importlib.util.spec_from_file_location("published", ROOT / "training" / "experiments.py")
    published = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(published)
    if not published.TABLE.is_file():
        pytest.skip("no experiment is published yet")
    published.main(["table", "--check"])


def test_curves_of_all_rows(module, experiment, tmp_path):
    picture = tmp_path / "curves.png"
    with pytest.raises(SystemExit, match="no results yet"):
        module.main(["curves", str(experiment), "--output", str(picture)])
    finish(module, "plain", 1, 10.0)
    finish(module, "plain", 2, 11.0)
    finish(module, "wide", 1, 12.0)
    module.main(["curves", str(experiment), "--output", str(picture)])
    assert picture.read_bytes().startswith(b"\x89PNG")
