"""Predicted against reference order: measures of known positions, words of a sentence, and the command with its picture."""

import json

import pytest
import torch
from tiny import save_translator, tiny_model
from typer.testing import CliRunner

from hf_deepnmt.alignment import LinkFormat
from hf_deepnmt.cli import app
from hf_deepnmt.evaluation import load_model
from hf_deepnmt.reordering_analysis import (
    encode_with_order,
    fonts_for,
    order_measures,
    report_reordering,
    sentence_order,
)
from hf_deepnmt.target_order import NO_POSITION, TargetOrder


SOURCES = ["ein Hund und eine Katze", "", "eine Katze", "ein Hund"]
TARGETS = ["a cat and a dog", "", "a cat", "a dog"]
LINKS = ["0-3 1-4 2-2 3-0 4-1", "", "0-0 1-1", ""]


@pytest.fixture(scope="module", params=[True, False], ids=["joint", "separate"])
def folder(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("order") / "model"
    return save_translator(path, "reordering", joint=request.param, window="full", window_size=2.0)


def test_measures_are_those_of_their_formulas():
    """Padding, sentences of other lengths and batches change nothing: each sentence counts once, by its own tokens."""
    model = tiny_model("reordering", window="full", window_size=2.0, fusion="gate")
    lengths, generator = (5, 9, 3), torch.Generator().manual_seed(0)
    rows = [
        {
            "input_ids": [*torch.randint(5, 60, (length - 1,), generator=generator).tolist(), 2],
            "target_positions": torch.randperm(length, generator=generator).float().tolist(),
        }
        for length in lengths
    ]
    rows.insert(1, {"input_ids": [7, 8, 2], "target_positions": [NO_POSITION] * 3})
    found = order_measures(model, rows, batch_size=2)
    assert (found["sentences"], found["tokens"], found["sentences_without_order"]) == (3, 17, 1)
    table = model.get_encoder().embed_positions(torch.arange(9)[None], bound=9)[0].double()
    expected = torch.zeros(4, 3, dtype=torch.float64)
    for row in (rows[0], *rows[2:]):
        places = torch.arange(len(row["input_ids"]))
        positions = model.get_encoder()(torch.tensor([row["input_ids"]])).reordered_positions[0].double()
        weights = torch.exp(-0.5 * (places - positions[..., None]) ** 2)
        embedded = torch.cat([weights @ table[: len(places)], table[None, : len(places)]])
        wanted = torch.tensor(row["target_positions"], dtype=torch.float64)
        similarity = torch.cosine_similarity(embedded, table[wanted.long()].expand_as(embedded), dim=-1)
        error = (torch.cat([positions, places[None]]) - wanted).abs().mean(-1)
        expected += torch.stack([similarity.mean(-1), error, error / len(places)], dim=1) / 3
    measured = torch.tensor([list(row.values())[-3:] for row in (*found["layers"], found["source_order"])])
    torch.testing.assert_close(measured.double(), expected, atol=1e-5, rtol=1e-5)
    assert [row["layer"] for row in found["layers"]] == [1, 2, 3]
    assert order_measures(model, rows[1:2]) is None


def test_words_of_a_sentence_have_the_mean_of_their_tokens(folder):
    model, tokenizer = load_model(folder, device="cpu")
    rows = encode_with_order(SOURCES, TARGETS, LINKS, tokenizer)
    found = sentence_order(model, tokenizer, SOURCES[0], rows[0]["target_positions"])
    assert found.words == SOURCES[0].split()
    assert [found.words[word] for word in found.sorted_words(found.reference)] == [
        "eine",
        "Katze",
        "und",
        "ein",
        "Hund",
    ]
    ids = torch.tensor([rows[0]["input_ids"]])
    positions = model.get_encoder()(ids).reordered_positions[0].double()
    offsets = tokenizer(SOURCES[0], return_offsets_mapping=True)["offset_mapping"][:-1]
    tokens = [token for token, (start, end) in enumerate(offsets) if end > 9 and start < 12]
    torch.testing.assert_close(found.predicted[:, 2], positions[:, tokens].mean(1))
    assert found.own[2] == sum(tokens) / len(tokens) and found.predicted.shape == (3, 5)
    # the rules of the order are followed, the words of the links always
    turned = encode_with_order(
        ["ein Hund"], ["a dog"], ["2-1 1-2"], tokenizer, LinkFormat(one_based=True), TargetOrder(words="text")
    )
    assert sentence_order(model, tokenizer, "ein Hund", turned[0]["target_positions"]).reference.diff() < 0


def write_files(folder):
    for name, lines in (("in.de", SOURCES), ("in.en", TARGETS), ("in.links", LINKS)):
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
    return ["--text", str(folder / "in.de")], ["--target", str(folder / "in.en"), "--links", str(folder / "in.links")]


def test_command_writes_a_picture_and_its_figures(folder, tmp_path):
    text, reference = write_files(tmp_path)
    output = ["--output", str(tmp_path / "o.png")]
    result = CliRunner().invoke(app, ["analyse", "reordering", str(folder), *text, *output, *reference])
    assert result.exit_code == 0, result.output
    assert "reference     eine Katze und ein Hund" in result.output
    assert result.output.count("cosine similarity") == 1 + 3 and "2 sentences; 2 without links" in result.output
    figures = json.loads((tmp_path / "o.json").read_text())
    assert (figures["lines"], figures["blank_lines"], figures["all_lines"]["sentences"]) == (4, 1, 2)
    assert figures["drawn_line"]["reference_order"] == [3, 4, 2, 0, 1]
    assert sorted(figures["drawn_line"]["predicted_order"]) == [0, 1, 2, 3, 4]
    assert list(figures["drawn_line"]["predicted_positions"]) == ["1", "2", "3"]
    imread = pytest.importorskip("matplotlib.image", reason="the extra `demo` brings matplotlib").imread
    pixels = imread(tmp_path / "o.png")
    assert pixels.shape[0] > 300 and pixels.shape[1] > 600 and pixels[..., :3].std() > 0.05
    # without links the sentence alone
    result = CliRunner().invoke(app, ["analyse", "reordering", str(folder), *text, *output, "--sentence", "3"])
    assert result.exit_code == 0, result.output
    figures = json.loads((tmp_path / "o.json").read_text())
    assert figures["drawn_line"]["reference_order"] is None and "all_lines" not in figures


def test_wrong_input_is_refused_with_its_place(folder, tmp_path):
    text, reference = write_files(tmp_path)
    output = ["--output", str(tmp_path / "o.png")]
    (tmp_path / "in.links").write_text("0-3\n\n0-0 1-2\n\n")
    result = CliRunner().invoke(app, ["analyse", "reordering", str(folder), *text, *output, *reference])
    assert result.exit_code == 2 and "in.links, row 3: link 1-2" in result.output
    (tmp_path / "in.links").write_text("\n" * 4)
    result = CliRunner().invoke(app, ["analyse", "reordering", str(folder), *text, *output, *reference])
    assert result.exit_code == 2 and "in.links: no line has links" in result.output
    (tmp_path / "in.links").write_text("\n" * 3)
    with pytest.raises(ValueError, match="Line counts differ"):
        report_reordering(folder, SOURCES, tmp_path / "o.png", targets=TARGETS, links=[""] * 3)
    with pytest.raises(ValueError, match="needs both `targets` and `links`"):
        report_reordering(folder, SOURCES, tmp_path / "o.png", targets=TARGETS)
    assert not list(tmp_path.glob("o.*"))


def test_models_without_an_order_are_refused(tmp_path):
    for name, fields in (("reordering", {"reorder_layers": [], "fusion": "none"}), ("deepnmt", {})):
        folder = save_translator(tmp_path / name, name, **fields)
        with pytest.raises(ValueError, match=f"type '{name}' predicts no order"):
            report_reordering(folder, ["ein Hund"], tmp_path / "o.png")


def test_a_font_is_looked_for_only_where_characters_are_missing(monkeypatch, caplog):
    matplotlib = pytest.importorskip("matplotlib", reason="the extra `demo` brings matplotlib")
    usual = list(matplotlib.rcParams["font.family"])
    assert fonts_for("ein Hund für Ödön") == usual
    # of the fonts that come with matplotlib, only those of mathematics have this letter
    assert fonts_for("a \u24b6") != usual
    warned = []
    monkeypatch.setattr("hf_deepnmt.reordering_analysis.logger.warning", warned.append)
    assert fonts_for("\U000e0b0e") == usual and "No installed font has 1 of the characters" in warned[0]
