"""Gradient norms by layer: what is measured, clipping, resuming, the command and its picture."""

import json

import pytest
import torch
from datasets import Dataset
from tiny import sentences, tiny_model
from torch import nn
from typer.testing import CliRunner

from hf_deepnmt.cli import app
from hf_deepnmt.gradient_norms import FILE_NAME, layer_norms, read_lines, report_gradients, summary
from hf_deepnmt.trainer import DeepNMTTrainer, DeepNMTTrainingArguments


def trainer_for(folder, model=None, **overrides):
    rows = [
        {"input_ids": sentences(length)["input_ids"][0].tolist(), "labels": sentences(4)["input_ids"][0].tolist()}
        for length in (4, 6, 5, 8)
    ]
    defaults = {
        "output_dir": str(folder), "max_tokens": 8, "learning_rate": 0.01, "lr_scheduler_type": "constant",
        "warmup_steps": 0, "use_cpu": True, "disable_tqdm": True, "save_strategy": "no", "report_to": [],
        "predict_with_generate": False, "max_steps": 4, "gradient_norms": 1, "gradient_accumulation_steps": 2,
    }  # fmt: skip
    arguments = DeepNMTTrainingArguments(**{**defaults, **overrides})
    model = tiny_model("msc", dropout=0.0) if model is None else model
    return DeepNMTTrainer(model, arguments, train_dataset=Dataset.from_list(rows))


def test_norms_are_over_all_parameters_of_a_layer():
    model = tiny_model(dropout=0.0)
    model(**sentences(6, 4), labels=sentences(4, 5)["input_ids"]).loss.backward()
    model.model.encoder.layers[1].zero_grad()
    norms = layer_norms(model)
    assert (len(norms["encoder"]), len(norms["decoder"])) == (3, 2) and norms["encoder"][1] == 0
    expected = torch.cat([p.grad.flatten() for p in model.model.decoder.layers[1].parameters()]).norm()
    assert norms["decoder"][1] == pytest.approx(expected.item())
    with pytest.raises(ValueError, match="Linear has no encoder"):
        layer_norms(nn.Linear(2, 2))


def test_lines_hold_the_gradients_of_whole_updates_before_clipping(tmp_path):
    def lines(folder, **overrides):
        trainer_for(tmp_path / folder, **overrides).train()
        return read_lines(tmp_path / folder)

    free = lines("free", max_grad_norm=0)
    assert [line["step"] for line in free] == [1, 2, 3, 4]
    clipped = lines("clipped", max_grad_norm=1e-3, max_steps=1)
    accumulated = lines("accumulated", max_steps=1, gradient_accumulation_steps=4)
    whole = lines("whole", max_steps=1, max_tokens=100, gradient_accumulation_steps=1)
    for side in ("encoder", "decoder"):
        assert clipped[0][side] == pytest.approx(free[0][side], rel=1e-3)
        assert accumulated[0][side] == pytest.approx(whole[0][side], rel=1e-3) != free[0][side]


def test_measuring_changes_nothing_and_follows_its_interval(tmp_path):
    measured, plain = trainer_for(tmp_path / "a", gradient_norms=3), trainer_for(tmp_path / "b", gradient_norms=None)
    measured.train(), plain.train()
    assert [line["step"] for line in read_lines(tmp_path / "a")] == [1, 4]
    assert not (tmp_path / "b" / FILE_NAME).exists()
    for got, expected in zip(measured.model.parameters(), plain.model.parameters(), strict=True):
        assert torch.equal(got, expected)
    with pytest.raises(ValueError, match="`gradient_norms` must be at least 1"):
        trainer_for(tmp_path, gradient_norms=0)


def test_a_resumed_run_goes_on_behind_its_checkpoint(tmp_path):
    saving = {"save_strategy": "steps", "save_steps": 2}
    trainer_for(tmp_path, **saving).train()
    whole = read_lines(tmp_path)
    trainer_for(tmp_path, **saving).train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert read_lines(tmp_path) == whole
    trainer_for(tmp_path, max_steps=1).train()
    assert [line["step"] for line in read_lines(tmp_path)] == [1]


def run_folder(folder, layers=8, factor=0.5, steps=(1, 11, 21)):
    folder.mkdir(parents=True)
    norms = [factor**layer for layer in range(layers)]
    lines = [{"step": step, "encoder": [norm / step for norm in norms], "decoder": [1.0]} for step in steps]
    (folder / FILE_NAME).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_summary_compares_bottom_and_top(tmp_path):
    found = summary(read_lines(run_folder(tmp_path / "run")))
    means = found["norm_by_layer"]
    assert means[0] == pytest.approx((1 / 11 / 21) ** (1 / 3)) and means[3] == pytest.approx(means[0] / 8)
    assert found["bottom_to_top"] == pytest.approx((1 + 0.5) / (0.5**6 + 0.5**7))
    assert (found["updates_measured"], found["first_step"], found["last_step"]) == (3, 1, 21)


def test_command_draws_runs_side_by_side(tmp_path):
    runs = [run_folder(tmp_path / "plain", 36, 1.1), run_folder(tmp_path / "msc", 36, 1.01, steps=(1,))]
    arguments = ["analyse", "gradients", *map(str, runs), "--output", str(tmp_path / "g.png"), "--last-step", "11"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "plain: 36 layers" in result.output and "msc: 36 layers" in result.output
    figures = json.loads((tmp_path / "g.json").read_text())
    assert figures["gradient_norms"]["plain"]["updates_measured"] == 2
    assert str(tmp_path) not in json.dumps(figures)
    imread = pytest.importorskip("matplotlib.image", reason="the extra `demo` brings matplotlib").imread
    pixels = imread(tmp_path / "g.png")
    assert pixels.shape[0] > 600 and pixels.shape[1] > 900 and pixels[..., :3].std() > 0.03


def test_runs_that_cannot_be_drawn_are_refused(tmp_path):
    run = run_folder(tmp_path / "a" / "run")
    for runs, options, message in (
        ([run, run_folder(tmp_path / "b" / "run")], {}, "two runs are called run"),
        ([run], {"last_step": 0}, "no measurements"),
    ):
        with pytest.raises(ValueError, match=message):
            report_gradients(runs, tmp_path / "g.png", **options)
    with pytest.raises(FileNotFoundError, match="training.gradient_norms"):
        report_gradients([tmp_path], tmp_path / "g.png")
    (run / FILE_NAME).write_text('{"step": 1}\n')
    with pytest.raises(ValueError, match="line 1: no measurement"):
        report_gradients([run], tmp_path / "g.png")
