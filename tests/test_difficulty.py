"""How hard sentences are for the checkpoints of a run, and systems compared part by part."""

import json
import shutil

import pytest
import torch
from tiny import save_translator, spread
from typer.testing import CliRunner

from hf_deepnmt.cli import app
from hf_deepnmt.difficulty import difficulty_scores, equal_parts, part_names, report_difficulty, sentence_losses
from hf_deepnmt.evaluation import load_model


SOURCES = ["ein Hund", "eine Katze", "", "ein Hund und eine Katze", "und", "Katze und Hund", "Hund", "eine Katze und"]
TARGETS = ["a dog", "a cat", "x", "a dog and a cat", "and", "cat and dog", "dog", ""]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of two checkpoints with different weights."""
    run = tmp_path_factory.mktemp("run")
    for step in (1, 2):
        folder = save_translator(run / f"checkpoint-{step}", "deepnmt")
        model, _ = load_model(folder, device="cpu")
        spread(model, std=0.1 * step).save_pretrained(folder)
        (folder / "trainer_state.json").write_text("{}")
    return run


def test_losses_are_those_of_single_pairs(run):
    model, tokenizer = load_model(run / "checkpoint-1", device="cpu")
    pairs = [(x, y) for x, y in zip(SOURCES, TARGETS, strict=True) if x and y]
    losses = sentence_losses(model, tokenizer, *zip(*pairs, strict=True), max_tokens=30)
    means = sentence_losses(model, tokenizer, *zip(*pairs, strict=True), per_token=True)
    for loss, mean, (source, target) in zip(losses, means, pairs, strict=True):
        inputs = tokenizer(source, text_target=target, return_tensors="pt")
        expected = model(input_ids=inputs["input_ids"], labels=inputs["labels"]).nll_loss.item()
        assert mean.item() == pytest.approx(expected, rel=1e-4)
        assert loss.item() == pytest.approx(expected * inputs["labels"].shape[1], rel=1e-4)


def test_score_is_mean_plus_deviation_over_checkpoints():
    losses = torch.tensor([[1.0, 5.0, 3.0], [3.0, 5.0, 9.0]], dtype=torch.float64)
    assert difficulty_scores(losses).tolist() == [2 + 1, 5, 6 + 3]


def test_parts_have_equal_sizes_and_go_from_easy_to_hard():
    assert equal_parts([5.0, 1.0, 1.0, 9.0, 3.0], 2) == [[1, 2, 4], [0, 3]]
    assert part_names(4)[0] == "simple" and part_names(3) == ["part 1", "part 2", "part 3"]
    with pytest.raises(ValueError, match="2 sentences cannot be split into 3 parts"):
        equal_parts([1.0, 2.0], 3)


def test_command_scores_every_part(run, tmp_path):
    (tmp_path / "test.de").write_text("\n".join(SOURCES) + "\n")
    (tmp_path / "test.en").write_text("\n".join(TARGETS) + "\n")
    (tmp_path / "perfect.hyp").write_text("\n".join(TARGETS) + "\n")
    arguments = ["analyse", "difficulty", str(run), "--source", str(tmp_path / "test.de"), "--parts", "2"]
    arguments += ["--reference", str(tmp_path / "test.en"), "--output", str(tmp_path / "d.png")]
    systems = [f"--system=plain={run / 'checkpoint-1'}", f"--system=perfect={tmp_path / 'perfect.hyp'}"]
    result = CliRunner().invoke(app, [*arguments, *systems])
    assert result.exit_code == 0, result.output
    assert "2 of 8 lines have a blank side" in result.output
    figures = json.loads((tmp_path / "d.json").read_text())
    assert figures["checkpoints"] == ["checkpoint-1", "checkpoint-2"] and figures["lines_left_out"] == 2
    easy, hard = figures["parts"]
    assert easy["sentences"] == hard["sentences"] == 3 and easy["mean_difficulty"] < hard["mean_difficulty"]
    assert easy["mean_reference_words"] < hard["mean_reference_words"]  # losses are sums over the sentence
    assert hard["bleu"]["perfect"]["score"] == pytest.approx(100) and hard["bleu"]["plain"]["score"] < 50
    imread = pytest.importorskip("matplotlib.image", reason="the extra `demo` brings matplotlib").imread
    assert imread(tmp_path / "d.png")[..., :3].std() > 0.05
    result = CliRunner().invoke(app, [*arguments, systems[0], systems[0]])
    assert result.exit_code == 2 and "two systems have one name" in result.output


def test_unusable_requests_are_refused(run, tmp_path):
    systems = {"a": TARGETS, "b": TARGETS}
    with pytest.raises(ValueError, match="at least two systems"):
        report_difficulty(run, SOURCES, TARGETS, {"a": TARGETS}, tmp_path / "d.png")
    with pytest.raises(ValueError, match="Line counts differ.*b has 7"):
        report_difficulty(run, SOURCES, TARGETS, {**systems, "b": TARGETS[1:]}, tmp_path / "d.png")
    shutil.copytree(run, tmp_path / "none", ignore=shutil.ignore_patterns("checkpoint-*"))
    with pytest.raises(ValueError, match="holds no checkpoint"):
        report_difficulty(tmp_path / "none", SOURCES, TARGETS, systems, tmp_path / "d.png")
