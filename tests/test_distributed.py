"""Two processes do what one process with twice the accumulation does; this file is also the script they run."""

import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from hf_deepnmt.models import ARCHITECTURES


# in one test process: two launches at a time could choose the same port, and each process would train it all anew
pytestmark = pytest.mark.xdist_group("distributed")
TESTS = Path(__file__).parent
KINDS = ["whole", "whole, checkpointing", "sharded"]


def work(folder):
    """Train, evaluate and predict; the main process leaves its weights and numbers in `folder`."""
    import torch
    from test_trainer import deepnmt, pairs, tiny_tokenizer, trainer_for, weights, with_text

    torch.set_num_threads(1)
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    data, held_out = pairs(60), pairs(15, 7)
    trainer = trainer_for(
        folder,
        deepnmt(),
        data,
        eval_dataset=with_text(held_out, ["w5 w6 w7 w8"] * len(held_out)),
        processing_class=tiny_tokenizer(),
        gradient_accumulation_steps=4 // processes,
        num_train_epochs=2,
        learning_rate=0.05,
        optim="sgd",
        predict_with_generate=True,
        save_strategy="steps",
        save_steps=2,
        average_last=2,
        **({"ddp_backend": "gloo"} if processes > 1 else {}),
    )
    trainer.train()
    metrics = trainer.evaluate()
    predictions = trainer.predict(held_out).predictions.tolist()
    few = trainer.predict(held_out.select([3])).predictions.tolist()
    if trainer.is_world_process_zero():
        torch.save(weights(trainer.model), folder / "weights.pt")
        history = [(row["step"], row["loss"], row["nll_loss"]) for row in trainer.state.log_history if "loss" in row]
        found = {"history": history, "metrics": metrics, "predictions": predictions, "few": few}
        (folder / "found.json").write_text(json.dumps(found))


def gradients(folder):
    """Gradients of each architecture on sentences shared out to the processes: whole models (DDP) and sharded ones."""
    import torch
    from tiny import labels, sentences, tiny_model
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    from hf_deepnmt.gradient_norms import layer_norms

    torch.set_num_threads(1)
    processes, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    if processes > 1:
        torch.distributed.init_process_group("gloo")
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (processes,))
    data = {**sentences(6, 9, 4, 7), "labels": labels(5, 3, 8, 4)}
    tokens = data["labels"].ne(-100).sum()
    own = {name: value[rank::processes] for name, value in data.items()}
    norms = {}
    for model_type, kind in product(ARCHITECTURES, KINDS):
        model = tiny_model(model_type, dropout=0.0).train()
        if "checkpointing" in kind:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        called = model
        if processes > 1 and "sharded" in kind:
            for module in model.modules():
                if type(module).__name__ in model._no_split_modules:
                    fully_shard(module, mesh=mesh)
            fully_shard(model, mesh=mesh)
            assert type(model).__name__.startswith("FSDP")
        elif processes > 1:
            called = DistributedDataParallel(model)
        # gradients are averaged over processes
        (called(**own, num_items_in_batch=tokens).loss * processes).backward()
        norms[f"{model_type}, {kind}"] = layer_norms(model)
        whole = {
            name: parameter.grad.full_tensor() if hasattr(parameter.grad, "full_tensor") else parameter.grad
            for name, parameter in model.named_parameters()
        }
        if rank == 0:
            torch.save(whole, folder / f"{model_type}, {kind}.pt")
    if rank == 0:
        (folder / "found.json").write_text(json.dumps(norms))


def run(folder, processes, task="work"):
    folder.mkdir()
    launcher = (
        ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"] if processes > 1 else []
    )
    paths = os.pathsep.join([str(TESTS.parent), str(TESTS), os.environ.get("PYTHONPATH", "")])
    environment = {
        **os.environ,
        "PYTHONPATH": paths,
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    command = [sys.executable, *launcher, __file__, task, str(folder)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert result.returncode == 0, result.stderr[-4000:]
    return json.loads((folder / "found.json").read_text())


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return folder, run(folder / "one", 1), run(folder / "two", 2)


def test_two_processes_train_as_one_with_twice_the_accumulation(runs):
    import torch

    folder, one, two = runs
    trained = [torch.load(folder / name / "weights.pt") for name in ("one", "two")]
    torch.testing.assert_close(trained[1], trained[0], atol=1e-6, rtol=1e-5)
    assert len(one["history"]) == len(two["history"]) > 4
    for first, second in zip(one["history"], two["history"], strict=True):
        assert second == pytest.approx(first, rel=1e-5)


def test_two_processes_evaluate_each_sentence_once_and_in_order(runs):
    _, one, two = runs
    for name in ("eval_loss", "eval_ppl", "eval_bleu", "eval_chrf", "eval_tokens", "eval_sentences_translated"):
        assert two["metrics"][name] == pytest.approx(one["metrics"][name], rel=1e-5), name
    assert two["metrics"]["eval_sentences_translated"] == 15
    assert two["predictions"] == one["predictions"]


def test_a_process_may_have_no_sentence(runs):
    _, one, two = runs
    assert two["few"] == one["few"]
    assert len(one["few"]) == 1


def test_checkpoints_are_averaged_once(runs):
    from safetensors.torch import load_file

    folder, _, _ = runs
    first, second = (load_file(folder / name / "averaged" / "model.safetensors") for name in ("one", "two"))
    for key, value in first.items():
        assert (second[key] - value).abs().max() < 1e-6, key


@pytest.fixture(scope="module")
def shared_out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gradients")
    return folder, run(folder / "one", 1, "gradients"), run(folder / "two", 2, "gradients")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("model_type", ARCHITECTURES)
def test_gradients_of_two_processes_are_those_of_one(shared_out, model_type, kind):
    import torch

    folder, one, two = shared_out
    name = f"{model_type}, {kind}"
    alone, together = (torch.load(folder / part / f"{name}.pt") for part in ("one", "two"))
    assert alone.keys() == together.keys()
    for key, gradient in alone.items():
        torch.testing.assert_close(together[key], gradient, atol=1e-6, rtol=1e-5)
    for side, norms in one[name].items():
        assert two[name][side] == pytest.approx(norms, rel=1e-4)


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]))
