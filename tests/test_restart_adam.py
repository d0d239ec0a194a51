"""The second phase of RestartAdam: new moments, a fixed rate, its own batches, and exact continuation in both phases."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny import RECIPES, SMALL

from hf_deepnmt.checkpoints import last_checkpoints
from hf_deepnmt.training import load_recipe, restart_arguments, train, training_arguments


RATE = 5e-4
COMMON = [
    str(RECIPES[0]), *SMALL, "model.dropout=0.1", "training.max_steps=4", "training.average_last=null",
    "training.keep_last=null", "training.eval_strategy=no",
]  # fmt: skip


def restart(**fields):
    return f"restart_adam={json.dumps({'learning_rate': RATE, 'max_steps': 3, 'max_tokens': 300, **fields})}"


def weights(folder):
    return load_file(Path(folder) / "model.safetensors")


@pytest.fixture
def whole(tmp_path, few_held_out):
    folder = tmp_path / "whole"
    return folder, train([*COMMON, restart(), f"training.output_dir={folder}"])


def test_adam_starts_anew_at_a_fixed_rate_in_smaller_batches(whole):
    folder, results = whole
    assert results["training"]["steps"] == 7 and results["training"]["first_phase_steps"] == 4
    history = [entry for entry in results["training"]["history"] if "loss" in entry]
    assert [entry["step"] for entry in history] == [1, 2, 3, 4, 5, 6, 7]
    assert [entry["learning_rate"] for entry in history[4:]] == [RATE] * 3
    first, second = (
        torch.load(point / "optimizer.pt", weights_only=True)
        for point in (last_checkpoints(folder, 1)[0], folder / "second_phase" / "checkpoint-1")
    )
    assert {float(state["step"]) for state in first["state"].values()} == {4.0}
    # after one update of new moments, m = (1 - beta1) g and v = (1 - beta2) g^2
    group = second["param_groups"][0]
    for state in second["state"].values():
        assert float(state["step"]) == 1
        gradient = state["exp_avg"] / (1 - group["betas"][0])
        torch.testing.assert_close(state["exp_avg_sq"], (1 - group["betas"][1]) * gradient**2)
    state = json.loads((folder / "second_phase" / "checkpoint-3" / "trainer_state.json").read_text())
    order = state["stateful_callbacks"]["DataOrderCallback"]["args"]["order"]
    assert order["max_tokens"] == 300


def test_first_update_is_a_step_of_the_rate_along_the_signs(whole):
    folder, _ = whole
    before, after = weights(folder / "first_phase"), weights(folder / "second_phase" / "checkpoint-1")
    assert before.keys() == after.keys()
    largest = max(float((after[name] - before[name]).abs().max()) for name in before)
    # bias correction makes Adam's first step the learning rate wherever the gradient is not tiny
    assert largest == pytest.approx(RATE, rel=1e-3)


@pytest.mark.parametrize("stop", ["first", "second"])
def test_interrupted_run_gives_the_same_weights(whole, tmp_path, stop):
    folder = tmp_path / "stopped"
    output = f"training.output_dir={folder}"
    if stop == "first":
        train([*COMMON, "training.max_steps=2", output])
    else:
        train([*COMMON, restart(max_steps=1), output])
    (folder / "results.json").unlink()
    results = train([*COMMON, restart(), output])
    expected, found = weights(whole[0] / "model"), weights(folder / "model")
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    losses = [
        [entry["loss"] for entry in run["training"]["history"] if "loss" in entry] for run in (whole[1], results)
    ]
    assert losses[0] == losses[1]


def test_last_phase_alone_is_averaged(tmp_path, few_held_out):
    output = tmp_path / "run"
    train([*COMMON, restart(), "training.average_last=2", f"training.output_dir={output}"])
    points = [weights(output / "second_phase" / f"checkpoint-{step}") for step in (2, 3)]
    averaged = weights(output / "model")
    assert not (output / "averaged").exists()
    for name, tensor in averaged.items():
        torch.testing.assert_close(tensor, (points[0][name] + points[1][name]) / 2)


def test_second_phase_may_have_a_schedule_and_draws_its_own_batches(tmp_path):
    recipe = load_recipe(RECIPES[0], SMALL)
    args = training_arguments(recipe, tmp_path)
    second = restart_arguments(args, {"learning_rate": 1e-4, "num_train_epochs": 2, "lr_scheduler_type": "linear"})
    assert (second.lr_scheduler_type, second.max_steps, second.num_train_epochs) == ("linear", -1, 2)
    assert second.seed == args.seed + 1 and second.max_tokens == args.max_tokens
    assert restart_arguments(args, {"learning_rate": 1e-4, "max_steps": 9}).lr_scheduler_type == "constant"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_steps": 3}, "needs `learning_rate`"),
        ({"learning_rate": 1e-4}, "needs `max_steps` or `num_train_epochs`"),
        ({"learning_rate": 1e-4, "max_steps": 3, "seed": 2}, "`seed`, which is for both phases"),
        ({"learning_rat": 1e-4}, "did you mean `learning_rate`"),
        ({"learning_rate": 1e-4, "max_steps": 3, "max_tokens": 0}, "`max_tokens` must be at least 1"),
    ],
)
def test_wrong_second_phases_are_refused_before_anything_is_trained(fields, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        train([*COMMON, f"restart_adam={json.dumps(fields)}", f"training.output_dir={tmp_path}/run"])
    assert not (tmp_path / "run").exists()
