"""Which layers each hop reads: weights of a sentence, their means over a text, and the command with its picture."""

import json

import pytest
import torch
from tiny import save_translator
from typer.testing import CliRunner

from hf_deepnmt.cli import app
from hf_deepnmt.evaluation import load_model
from hf_deepnmt.fusion_weights import hop_statistics, layer_names, report_fusion, sentence_fusion


BOTH = {"encoder_fusion": "sa", "decoder_fusion": "sa"}


@pytest.fixture(scope="module", params=[True, False], ids=["joint", "separate"])
def folder(request, tmp_path_factory):
    return save_translator(tmp_path_factory.mktemp("fusion") / "model", "mlrf", joint=request.param, **BOTH)


def test_statistics_of_known_weights():
    first = torch.tensor([[[1.0, 0.5], [0.0, 0.5]]], dtype=torch.float64)
    second = torch.tensor([[[0.0, 0.5], [1.0, 0.5]], [[0.0, 0.5], [1.0, 0.5]]], dtype=torch.float64)
    hops = hop_statistics([first, second], ["embedding", "1"])
    assert hops[0]["mean"] == pytest.approx({"embedding": 1 / 3, "1": 2 / 3})
    assert hops[0]["deviation"]["1"] == pytest.approx((2 / 9) ** 0.5)
    assert hops[1] == {"hop": 2, "mean": {"embedding": 0.5, "1": 0.5}, "deviation": {"embedding": 0.0, "1": 0.0}}


def test_weights_are_those_of_the_given_pair(folder):
    model, tokenizer = load_model(folder, device="cpu")
    found = sentence_fusion(model, tokenizer, "ein Hund", "a dog")
    inputs = tokenizer("ein Hund", text_target="a dog", return_tensors="pt")
    expected = model(input_ids=inputs["input_ids"], labels=inputs["labels"], output_fusion_attentions=True)
    torch.testing.assert_close(found.weights["encoder"], expected.encoder_fusion_attentions[0][0].double())
    torch.testing.assert_close(found.weights["decoder"], expected.decoder_fusion_attentions[0][0].double())
    assert found.weights["encoder"].shape == (len(found.words["encoder"]), 4, 3)
    assert found.weights["decoder"].shape == (len(found.words["decoder"]), 3, 3)
    assert "".join(found.words["decoder"][1:]).replace(" ", "") == "adog"
    assert layer_names(model.config, "decoder") == ["embedding", "1", "2"]


def test_command_writes_a_picture_and_its_figures(folder, tmp_path):
    (tmp_path / "in.de").write_text("ein Hund\n\neine Katze und ein Hund\n")
    arguments = ["analyse", "fusion", str(folder), "--text", str(tmp_path / "in.de")]
    result = CliRunner().invoke(app, [*arguments, "--output", str(tmp_path / "f.png"), "--sentence", "3"])
    assert result.exit_code == 0, result.output
    assert result.output.count("hop") == 3 + 3
    figures = json.loads((tmp_path / "f.json").read_text())
    assert (figures["lines"], figures["blank_lines"], figures["drawn_line"]["number"]) == (3, 1, 3)
    for hops in figures["all_lines"].values():
        assert all(sum(hop["mean"].values()) == pytest.approx(1) for hop in hops)
    imread = pytest.importorskip("matplotlib.image", reason="the extra `demo` brings matplotlib").imread
    pixels = imread(tmp_path / "f.png")
    assert pixels.shape[0] > 300 and pixels.shape[1] > 600 and pixels[..., :3].std() > 0.05


def test_models_without_layer_attention_are_refused(tmp_path):
    for name, fields in (("mlrf", {"encoder_fusion": "avg", "decoder_fusion": "fnn"}), ("deepnmt", {})):
        folder = save_translator(tmp_path / name, name, **fields)
        with pytest.raises(ValueError, match=f"type '{name}' has no layer attention"):
            report_fusion(folder, ["ein Hund"], tmp_path / "f.png")
    assert not list(tmp_path.glob("f.*"))
