"""Finding the checkpoints of a run and averaging them."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from transformers.trainer_callback import TrainerState
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME, logging


logger = logging.get_logger(__name__)

PROVENANCE = "averaged_from.json"
_STATE = "trainer_state.json"
_STEP = re.compile(r"checkpoint-(\d+)")
_COPIED = {".bpe", ".codes", ".jinja", ".json", ".model", ".py", ".spm", ".txt", ".vocab"}
_NOT_COPIED = {_STATE, SAFE_WEIGHTS_INDEX_NAME, PROVENANCE}
# What a model computes at test time does not depend on these, so the averaged models may differ in them.
_FREE_CONFIG = re.compile(r"dropout|layerdrop|label_smoothing|^_|transformers_version|use_cache|auto_map")


def _step(folder: Path) -> int:
    return int(_STEP.fullmatch(folder.name)[1])


def _is_model(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_INDEX_NAME))


def _checkpoints(run_dir: str | Path) -> list[Path]:
    """Checkpoint folders with weights and the Trainer's state, which is written last; by step."""
    folders = [folder for folder in Path(run_dir).glob("checkpoint-*") if _STEP.fullmatch(folder.name)]
    return sorted((f for f in folders if _is_model(f) and (f / _STATE).is_file()), key=_step)


def last_checkpoints(run_dir: str | Path, k: int) -> list[Path]:
    """The last `k` complete checkpoints of a run, oldest first; fewer where it has fewer."""
    if k < 1:
        raise ValueError(f"the number of checkpoints must be at least 1, got {k}")
    return _checkpoints(run_dir)[-k:]


def best_checkpoints(
    run_dir: str | Path, k: int, metric: str = "eval_bleu", greater_is_better: bool | None = None
) -> list[Path]:
    """
    The `k` checkpoints of a run that evaluated best, best first; fewer where it has fewer, the later one of equals.

    Args:
        metric: a name in the logs of `trainer_state.json`.
        greater_is_better: unset, smaller is better for names that end in `loss` or `ppl`.

    Raises:
        ValueError: no checkpoint was evaluated with that metric.
    """
    if k < 1:
        raise ValueError(f"the number of checkpoints must be at least 1, got {k}")
    folders = _checkpoints(run_dir)
    if not folders:
        return []
    values = _logged(run_dir, folders, metric)
    scored = [folder for folder in folders if math.isfinite(values.get(_step(folder), math.nan))]
    if not scored:
        raise ValueError(
            f"no checkpoint in {run_dir} has a logged {metric!r}: evaluate and save at the same steps, or choose a "
            "metric that the run logs"
        )
    greater = not metric.endswith(("loss", "ppl")) if greater_is_better is None else greater_is_better
    sign = 1 if greater else -1
    return sorted(scored, key=lambda folder: (sign * values[_step(folder)], _step(folder)), reverse=True)[:k]


def _logged(run_dir: str | Path, folders: Sequence[Path], metric: str) -> dict[int, float]:
    """Step to value, from the state of the last checkpoint and, where there is one, of the finished run."""
    values: dict[int, float] = {}
    for path in (folders[-1] / _STATE, Path(run_dir) / _STATE):
        if path.is_file():
            for entry in TrainerState.load_from_json(str(path)).log_history:
                if metric in entry:
                    values[entry["step"]] = float(entry[metric])
    return values


def average_checkpoints(
    folders: Sequence[str | Path], output: str | Path, *, weights: Sequence[float] | None = None
) -> Path:
    """
    Average the models of several `save_pretrained` folders into a new one that loads like them.

    Each stored tensor is averaged once, in float64, and keeps its dtype; a tied weight is stored once. Integer tensors
    must agree. Config, tokenizer and model code are the last folder's; `averaged_from.json` says what went in.

    Args:
        weights: one per folder, scaled to sum 1; unset, all are equal.

    Raises:
        ValueError: names, shapes, dtypes or configs differ, or `output` holds a model that is no average.
    """
    paths = [Path(folder) for folder in folders]
    shares = _shares(paths, weights)
    _check_output(paths, Path(output))
    _check_configs(paths)
    maps = [_weight_map(path) for path in paths]
    _check_names(paths, maps)
    target = Path(output)
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    _copy_others(paths[-1], partial)
    _write_weights(paths, maps, shares, partial)
    note = {"folders": [path.name for path in paths], "weights": shares, "dtype_of_sums": "float64"}
    (partial / PROVENANCE).write_text(json.dumps(note, indent=2) + "\n", encoding="utf-8")
    if target.exists():
        shutil.rmtree(target)
    partial.rename(target)
    logger.info(f"Averaged {len(paths)} checkpoints ({', '.join(note['folders'])}) into {target}")
    return target


def _shares(paths: Sequence[Path], weights: Sequence[float] | None) -> list[float]:
    if not paths:
        raise ValueError("there is no checkpoint to average")
    numbers = [1.0] * len(paths) if weights is None else [float(weight) for weight in weights]
    if len(numbers) != len(paths):
        raise ValueError(f"{len(numbers)} weights for {len(paths)} checkpoints: give one each")
    if not all(math.isfinite(number) and number >= 0 for number in numbers) or not sum(numbers):
        raise ValueError(f"weights must be at least 0 and not all 0, got {numbers}")
    return [number / sum(numbers) for number in numbers]


def _check_output(paths: Sequence[Path], output: Path) -> None:
    for path in paths:
        if not path.is_dir():
            raise ValueError(f"{path} is not a folder: give folders written by `save_pretrained`")
        if path.resolve() == output.resolve():
            raise ValueError(f"{output} is one of the checkpoints to average: choose another output folder")
    if output.exists() and not output.is_dir():
        raise ValueError(f"{output} is a file: choose another output folder")
    if output.is_dir() and any(output.iterdir()) and not (output / PROVENANCE).is_file():
        raise ValueError(f"{output} is not empty and holds no average made before: choose another output folder")


def _check_configs(paths: Sequence[Path]) -> None:
    first, *others = [_read_json(path, "config.json") for path in paths]
    for path, config in zip(paths[1:], others, strict=True):
        fields = {name for name in {*first, *config} if not _FREE_CONFIG.search(name)}
        for name in sorted(fields):
            if first.get(name) != config.get(name):
                raise ValueError(
                    f"config field {name!r} is {config.get(name)!r} in {path} but {first.get(name)!r} in {paths[0]}: "
                    "only checkpoints of one model can be averaged"
                )


def _read_json(folder: Path, name: str) -> dict[str, Any]:
    path = folder / name
    if not path.is_file():
        raise ValueError(f"{folder} has no {name}: give folders written by `save_pretrained`")
    return json.loads(path.read_text(encoding="utf-8"))


def _weight_map(folder: Path) -> dict[str, str]:
    """Tensor name to file name."""
    if (folder / SAFE_WEIGHTS_INDEX_NAME).is_file():
        return _read_json(folder, SAFE_WEIGHTS_INDEX_NAME)["weight_map"]
    if not (folder / SAFE_WEIGHTS_NAME).is_file():
        raise ValueError(f"{folder} has no {SAFE_WEIGHTS_NAME}: save the model with `save_pretrained` first")
    try:
        with safe_open(folder / SAFE_WEIGHTS_NAME, framework="pt") as file:
            return dict.fromkeys(file.keys(), SAFE_WEIGHTS_NAME)
    except SafetensorError as error:
        raise ValueError(f"{folder / SAFE_WEIGHTS_NAME} is damaged ({error}): leave this checkpoint out") from error


def _check_names(paths: Sequence[Path], maps: Sequence[Mapping[str, str]]) -> None:
    for path, names in zip(paths, maps, strict=True):
        odd = sorted(set(names) ^ set(maps[0]))
        if odd:
            place = path if odd[0] in maps[0] else paths[0]
            raise ValueError(f"tensor {odd[0]!r} is missing in {place}: only checkpoints of one model can be averaged")


def _write_weights(
    paths: Sequence[Path], maps: Sequence[Mapping[str, str]], shares: Sequence[float], output: Path
) -> None:
    """Shard by shard as in the last folder, so that one shard and one tensor of each folder are in memory."""
    layout = maps[-1]
    with ExitStack() as stack:
        files = [
            {name: stack.enter_context(safe_open(path / name, framework="pt")) for name in set(weight_map.values())}
            for path, weight_map in zip(paths, maps, strict=True)
        ]
        for shard in sorted(set(layout.values())):
            averaged = {}
            for key in sorted(key for key, name in layout.items() if name == shard):
                tensors = [folder[names[key]].get_tensor(key) for folder, names in zip(files, maps, strict=True)]
                averaged[key] = _average(key, tensors, shares, paths)
            save_file(averaged, output / shard, metadata={"format": "pt"})
    if (paths[-1] / SAFE_WEIGHTS_INDEX_NAME).is_file():
        shutil.copyfile(paths[-1] / SAFE_WEIGHTS_INDEX_NAME, output / SAFE_WEIGHTS_INDEX_NAME)


def _average(
    key: str, tensors: Sequence[torch.Tensor], shares: Sequence[float], paths: Sequence[Path]
) -> torch.Tensor:
    first = tensors[0]
    for path, tensor in zip(paths, tensors, strict=True):
        if tensor.shape != first.shape or tensor.dtype != first.dtype:
            raise ValueError(
                f"tensor {key!r} is {tensor.dtype} {tuple(tensor.shape)} in {path} but {first.dtype} "
                f"{tuple(first.shape)} in {paths[0]}: only checkpoints of one model can be averaged"
            )
        if not first.is_floating_point() and not torch.equal(tensor, first):
            raise ValueError(f"integer tensor {key!r} differs between {path} and {paths[0]}: it cannot be averaged")
    if not first.is_floating_point():
        return first
    total = torch.zeros(first.shape, dtype=torch.float64)
    for tensor, share in zip(tensors, shares, strict=True):
        total.add_(tensor.double(), alpha=share)
    return total.to(first.dtype)


def _copy_others(source: Path, output: Path) -> None:
    """Config, generation config, tokenizer and model code; no weights and nothing of the training state."""
    for path in sorted(source.rglob("*")):
        inner = path.relative_to(source)
        wanted = path.suffix in _COPIED and path.name not in _NOT_COPIED
        hidden = any(part.startswith((".", "__", "global_step", "checkpoint-")) for part in inner.parts[:-1])
        if path.is_file() and wanted and not hidden:
            (output / inner).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, output / inner)


__all__ = ["PROVENANCE", "average_checkpoints", "best_checkpoints", "last_checkpoints"]
