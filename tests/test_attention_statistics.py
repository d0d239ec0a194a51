"""Entropy and sparsity of attention: known distributions, the rows that count, and the command with its picture."""

import json
import math
import sys

import pytest
import torch
from tiny import save_translator
from typer.testing import CliRunner

from hf_deepnmt.attention_statistics import (
    SentenceAttention,
    layer_statistics,
    report_attention,
    sentence_attention,
    sentence_measures,
    spread_of,
)
from hf_deepnmt.cli import app


@pytest.fixture(scope="module", params=[True, False], ids=["joint", "separate"])
def folder(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("statistics") / "model"
    return save_translator(path, "attention_link", joint=request.param)


def test_measures_of_known_distributions():
    rows = torch.tensor([[0.25, 0.25, 0.25, 0.25], [0, 1, 0, 0], [0.5, 0.5, 0, 0]], dtype=torch.float64)
    measures = spread_of(rows, torch.tensor([4.0, 4.0, 2.0], dtype=torch.float64))
    expected = {
        "entropy": [math.log(4), 0, math.log(2)],
        "relative_entropy": [1, 0, 1],
        "sparsity": [0, 1, 0],
    }
    for name, values in expected.items():
        torch.testing.assert_close(measures[name], torch.tensor(values, dtype=torch.float64), atol=1e-12, rtol=0)


def test_queries_without_a_choice_do_not_count():
    causal = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
    weights = {"encoder_self": causal, "decoder_self": causal, "cross": torch.ones(3, 1, dtype=torch.float64)}
    weights = {kind: rows.expand(2, 4, -1, -1) for kind, rows in weights.items()}
    measures = sentence_measures(SentenceAttention([], [], weights))
    statistics = layer_statistics([measures, measures])
    assert [row["layer"] for row in statistics["decoder_self"]] == [1, 2]
    assert statistics["decoder_self"][1]["entropy"] == pytest.approx(math.log(2) / 2)
    assert statistics["decoder_self"][1]["relative_entropy"] == pytest.approx(0.5)
    assert statistics["encoder_self"][0]["entropy"] == pytest.approx(math.log(2) / 3)
    assert statistics["cross"] == []


def test_attention_is_that_of_the_given_pair(folder):
    from hf_deepnmt.evaluation import load_model

    model, tokenizer = load_model(folder, device="cpu")
    found = sentence_attention(model.train(), tokenizer, "ein Hund", "a dog")
    assert model.training
    assert found.weights["cross"].shape == (2, 4, len(found.target), len(found.source))
    assert "".join(found.source).replace(" ", "").startswith("einHund")
    assert "".join(found.target[1:]).replace(" ", "") == "adog"
    model.eval()
    inputs = tokenizer("ein Hund", text_target="a dog", return_tensors="pt")
    expected = model(input_ids=inputs["input_ids"], labels=inputs["labels"], output_attentions=True).cross_attentions
    torch.testing.assert_close(found.weights["cross"], torch.cat(expected).double())


def test_missing_matplotlib_is_said_before_work_starts(folder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'hf-deepnmt\[demo\]'"):
        report_attention(folder, ["ein Hund"], tmp_path / "a.png")


def test_command_writes_a_picture_and_its_figures(folder, tmp_path):
    (tmp_path / "in.de").write_text("ein Hund\n\neine Katze und ein Hund\n")
    arguments = ["analyse", "attention", str(folder), "--text", str(tmp_path / "in.de")]
    result = CliRunner().invoke(app, [*arguments, "--output", str(tmp_path / "a.png"), "--sentence", "3"])
    assert result.exit_code == 0, result.output
    assert result.output.count("layer") == 3 + 2 + 2
    figures = json.loads((tmp_path / "a.json").read_text())
    assert (figures["lines"], figures["blank_lines"], figures["drawn_line"]["number"]) == (3, 1, 3)
    assert len(figures["all_lines"]["encoder_self"]) == 3
    assert str(tmp_path) not in json.dumps(figures)
    imread = pytest.importorskip("matplotlib.image", reason="the extra `demo` brings matplotlib").imread
    pixels = imread(tmp_path / "a.png")
    assert pixels.shape[0] > 300 and pixels.shape[1] > 600 and pixels[..., :3].std() > 0.05


def test_wrong_lines_are_refused(folder, tmp_path):
    lines = ["ein Hund", "", "eine Katze"]
    for number in (0, 2, 4):
        with pytest.raises(ValueError, match=f"Line {number} of 3 is blank or not there"):
            report_attention(folder, lines, tmp_path / "a.png", sentence=number)
    with pytest.raises(ValueError, match="Line counts differ: source has 3, target has 1"):
        report_attention(folder, lines, tmp_path / "a.png", targets=["a dog"])
    assert not list(tmp_path.iterdir())
