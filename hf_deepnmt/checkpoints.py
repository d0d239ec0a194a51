"""Averaging checkpoints, and finding the ones to average."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file


WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
OPTIMIZER_STATE = ("optimizer.pt", "scheduler.pt", "rng_state", "trainer_state.json", "training_args.bin", "scaler.pt")


def weight_files(folder: Path) -> dict[str, Path]:
    """Tensor name to file of a `save_pretrained` folder, one file or several."""
    if (folder / INDEX).is_file():
        table = json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"]
        return {name: folder / file for name, file in table.items()}
    if not (folder / WEIGHTS).is_file():
        raise FileNotFoundError(f"{folder} holds no {WEIGHTS}: give folders that `save_pretrained` wrote")
    with safe_open(folder / WEIGHTS, framework="pt") as file:
        return dict.fromkeys(file.keys(), folder / WEIGHTS)


def read_tensor(path: Path, name: str) -> torch.Tensor:
    with safe_open(path, framework="pt") as file:
        return file.get_tensor(name)


def mean_tensor(name: str, tables: list[dict[str, Path]], folders: list[Path], weights: list[float]) -> torch.Tensor:
    first = read_tensor(tables[0][name], name)
    total = torch.zeros(first.shape, dtype=torch.float64)
    for table, folder, weight in zip(tables, folders, weights, strict=True):
        tensor = read_tensor(table[name], name)
        if tensor.shape != first.shape:
            raise ValueError(f"{name} is {tuple(tensor.shape)} in {folder} but {tuple(first.shape)} in {folders[0]}")
        if not first.is_floating_point() and not torch.equal(tensor, first):
            raise ValueError(f"{name} holds whole numbers that differ between {folders[0]} and {folder}: no mean exists")
        total += weight * tensor.double()
    return total.to(first.dtype) if first.is_floating_point() else first


def average_checkpoints(folders: Sequence[str | Path], output: str | Path, *, weights: Sequence[float] | None = None) -> Path:
    """
    Write the weighted mean of several `save_pretrained` folders, summed in fp64, with the other files of the first.

    Tied weights are stored once, so they count once. `averaged_from.json` names the folders and weights.

    Raises:
        ValueError: the folders hold different tensors; names tensor and folder.
        FileNotFoundError: a folder holds no weights.
    """
    folders, output = [Path(folder) for folder in folders], Path(output)
    if not folders:
        raise ValueError("there are no checkpoints to average")
    weights = [1.0] * len(folders) if weights is None else list(weights)
    if len(weights) != len(folders) or sum(weights) <= 0:
        raise ValueError(f"{len(folders)} folders need as many weights with a positive sum, got {weights}")
    shares = [weight / sum(weights) for weight in weights]
    tables = [weight_files(folder) for folder in folders]
    for folder, table in zip(folders, tables, strict=True):
        for name in sorted(set(table) ^ set(tables[0])):
            raise ValueError(f"{name} is not in both {folders[0]} and {folder}: average checkpoints of one model")
    mean = {name: mean_tensor(name, tables, folders, shares) for name in tables[0]}
    output.mkdir(parents=True, exist_ok=True)
    for file in folders[0].iterdir():
        skipped = file.name.startswith(OPTIMIZER_STATE) or ".safetensors" in file.name
        if file.is_file() and not skipped:
            shutil.copy(file, output)
    save_file(mean, output / WEIGHTS, metadata={"format": "pt"})
    origin = [{"folder": folder.name, "weight": share} for folder, share in zip(folders, shares, strict=True)]
    (output / "averaged_from.json").write_text(json.dumps(origin, indent=2) + "\n", encoding="utf-8")
    return output


def run_checkpoints(run: Path) -> list[Path]:
    """Checkpoints of a training run in the order of their steps."""
    found = [path for path in run.glob("checkpoint-*") if path.name.rpartition("-")[2].isdigit()]
    return sorted(found, key=step_of)


def step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])


def last_checkpoints(run: str | Path, count: int) -> list[Path]:
    """The last `count` checkpoints of a run, oldest first."""
    return run_checkpoints(Path(run))[-count:] if count else []


def best_checkpoints(run: str | Path, count: int, metric: str = "eval_bleu") -> list[Path]:
    """
    The `count` checkpoints of a run with the highest `metric` at their step, best first.

    Raises:
        ValueError: the metric was not measured at any checkpoint that is still there.
    """
    checkpoints = {step_of(path): path for path in run_checkpoints(Path(run))}
    if not checkpoints:
        raise ValueError(f"{run} holds no checkpoints")
    state = json.loads((checkpoints[max(checkpoints)] / "trainer_state.json").read_text(encoding="utf-8"))
    scores = {entry["step"]: entry[metric] for entry in state["log_history"] if metric in entry}
    measured = [step for step in checkpoints if step in scores]
    if not measured:
        raise ValueError(f"{run} has no {metric} at the step of any checkpoint: save and evaluate at the same steps")
    ranked = sorted(measured, key=lambda step: (-scores[step], step))
    return [checkpoints[step] for step in ranked[:count]]


__all__ = ["average_checkpoints", "best_checkpoints", "last_checkpoints"]
