"""
Gradient norms of every layer while training, and the picture of Wei et al. (2020, Figure 5): does depth stop them?

`GradientNormCallback` writes one JSON line for each measured update. `report_gradients` draws one or more runs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import TrainerCallback
from transformers.utils import logging

from .provenance import run_info, write_results


logger = logging.get_logger(__name__)

FILE_NAME = "gradient_norms.jsonl"
CURVES = 7


def layer_norms(model: nn.Module) -> dict[str, list[float]]:
    """
    L2 norms of the gradients of each encoder and each decoder layer, over all its parameters; 0 without gradients.

    Raises:
        ValueError: the model has no encoder and decoder with `layers`.
    """
    norms = {}
    for side in ("encoder", "decoder"):
        stack = getattr(model, f"get_{side}", lambda: None)()
        if not hasattr(stack, "layers"):
            raise ValueError(
                f"{type(model).__name__} has no {side} with `layers`: its gradients cannot be told by layer"
            )
        of_layers = []
        for layer in stack.layers:
            gradients = [p.grad for p in layer.parameters() if p.grad is not None]
            norm = nn.utils.get_total_norm(gradients) if gradients else torch.zeros(())
            # of sharded gradients every process knows a part
            of_layers.append(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)
        device = of_layers[0].device
        norms[side] = torch.stack([norm.float().to(device) for norm in of_layers]).tolist()
    return norms


class GradientNormCallback(TrainerCallback):
    """
    Writes `gradient_norms.jsonl` into the output folder: `{"step": 1, "encoder": [...], "decoder": [...]}`.

    Norms are those of a whole update, over accumulation and processes. `DeepNMTTrainer` says what the norm was before
    gradients were clipped, and the lines hold norms before clipping; under any other Trainer they hold what the optimizer
    gets. A resumed run goes on behind the lines up to its checkpoint.

    Args:
        every: updates from one measurement to the next; the first update is measured.
    """

    def __init__(self, every: int):
        if every < 1:
            raise ValueError(f"`every` must be at least 1, got {every}")
        self.every = every
        self.norm_before_clipping: float | torch.Tensor | None = None

    def on_train_begin(self, args, state, control, **kwargs):
        if not state.is_world_process_zero:
            return
        path = Path(args.output_dir, FILE_NAME)
        kept = [line for line in read_lines(path) if line["step"] <= state.global_step] if path.is_file() else []
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{json.dumps(line)}\n" for line in kept), encoding="utf-8")

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        if state.global_step % self.every:
            return
        factor = clipping_undone(self.norm_before_clipping, args.max_grad_norm)
        # by all processes, which sharded gradients are gathered from
        norms = {side: [factor * norm for norm in values] for side, values in layer_norms(model).items()}
        if not state.is_world_process_zero:
            return
        with Path(args.output_dir, FILE_NAME).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": state.global_step + 1, **norms}) + "\n")


def clipping_undone(norm: float | torch.Tensor | None, limit: float) -> float:
    """What clipped gradients are multiplied by to be as they were; `torch.nn.utils.clip_grad_norm_` adds the 1e-6."""
    return max(1.0, (float(norm) + 1e-6) / limit) if norm is not None and limit > 0 else 1.0


def read_lines(path: str | Path) -> list[dict[str, Any]]:
    """
    The measurements of a file, or of a folder with `gradient_norms.jsonl`.

    Raises:
        ValueError: a line is no measurement; says which.
        FileNotFoundError: there is no such file; says how to make one.
    """
    path = Path(path) / FILE_NAME if Path(path).is_dir() else Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist: train with `training.gradient_norms` set, for instance to 10")
    measurements = []
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            line = json.loads(text)
            measurements.append({"step": int(line["step"]), **{side: line[side] for side in ("encoder", "decoder")}})
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}, line {number}: no measurement of gradient norms; remove the line") from error
    return measurements


def summary(measurements: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """
    Geometric means over the measured updates for each encoder layer, since norms spread over magnitudes.

    `bottom_to_top` is the mean norm of the lowest quarter of the layers by that of the highest: 1 is balanced.
    """
    count = len(measurements)
    means = [
        math.exp(sum(math.log(max(line["encoder"][layer], 1e-30)) for line in measurements) / count)
        for layer in range(len(measurements[0]["encoder"]))
    ]
    quarter = max(1, len(means) // 4)
    return {
        "updates_measured": count,
        "first_step": measurements[0]["step"],
        "last_step": measurements[-1]["step"],
        "encoder_layers": len(means),
        "norm_by_layer": means,
        "bottom_to_top": (sum(means[:quarter]) / quarter) / (sum(means[-quarter:]) / quarter),
    }


def plot_gradients(runs: dict[str, list[dict[str, Any]]], path: str | Path) -> Path:
    """
    Draw for each run the norms of some encoder layers over the updates, from dark (bottom) to light (top), all on one scale;
    below, the mean norm by layer, the runs side by side.
    """
    # not through pyplot, whose backend belongs to the caller
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    colors = matplotlib.colormaps["viridis"]
    figure = Figure(figsize=(max(7, 4.5 * len(runs)), 7.5), layout="constrained")
    above, below = figure.subfigures(2, 1)
    panels = above.subplots(1, len(runs), squeeze=False, sharey=True)[0]
    for axis, (name, measurements) in zip(panels, runs.items(), strict=True):
        layers = len(measurements[0]["encoder"])
        shown = sorted({round(index * (layers - 1) / (CURVES - 1)) for index in range(CURVES)})
        steps = [line["step"] for line in measurements]
        for layer in shown:
            values = [line["encoder"][layer] for line in measurements]
            color = colors(0.92 * layer / max(1, layers - 1))
            axis.plot(
                steps, values, label=f"L{layer + 1}", color=color, linewidth=1.2, marker="." if len(steps) < 3 else ""
            )
        axis.set(title=name, xlabel="updates", yscale="log")
        axis.legend(fontsize=7, ncols=2)
    panels[0].set_ylabel("gradient norm of an encoder layer")
    axis = below.subplots()
    for name, measurements in runs.items():
        means = summary(measurements)["norm_by_layer"]
        axis.plot(range(1, len(means) + 1), means, label=name, marker="o", markersize=3)
    axis.set(xlabel="encoder layer, from the bottom", ylabel="mean over the updates (geometric)", yscale="log")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.legend()
    figure.savefig(path, dpi=150)
    return Path(path)


def report_gradients(
    runs: Sequence[str | Path], picture: str | Path, *, last_step: int | None = None
) -> dict[str, dict[str, Any]]:
    """
    Draw the gradient norms of runs and write their means as JSON beside the picture.

    Args:
        runs: output folders of training runs, or their files; each is named by its folder, and so are the curves.
        picture: an image file; the figures go beside it, with the ending .json.
        last_step: leave out later updates.

    Raises:
        ValueError: a run has no measurements, or two runs have one name.
        FileNotFoundError: a run was trained without measuring.
        ImportError: matplotlib is missing.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError("pictures need matplotlib: pip install 'hf-deepnmt[demo]'") from error
    found: dict[str, list[dict[str, Any]]] = {}
    for run in map(Path, runs):
        name = run.resolve().name if run.is_dir() else run.stem
        measurements = [line for line in read_lines(run) if last_step is None or line["step"] <= last_step]
        if not measurements:
            raise ValueError(f"{run} has no measurements" + (f" up to update {last_step}" if last_step else ""))
        if name in found:
            raise ValueError(
                f"two runs are called {name}: rename one folder, or they cannot be told apart in the picture"
            )
        found[name] = measurements
    results = {name: summary(measurements) for name, measurements in found.items()}
    plot_gradients(found, picture)
    write_results(Path(picture).with_suffix(".json"), {"run": run_info(), "gradient_norms": results})
    return results


__all__ = [
    "GradientNormCallback",
    "layer_norms",
    "plot_gradients",
    "read_lines",
    "report_gradients",
    "summary",
]
