"""The learning rate schedule of Vaswani et al. (2017, section 5.3); all others are Transformers' own."""

from __future__ import annotations

from functools import partial

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR


def noam_peak(d_model: int, warmup_steps: int, factor: float = 1.0) -> float:
    """The highest rate of `factor * d_model^-0.5 * min(t^-0.5, t * warmup_steps^-1.5)`, that at t = warmup_steps."""
    return factor * (d_model * max(1, warmup_steps)) ** -0.5


def inverse_sqrt_share(step: int, warmup_steps: int) -> float:
    """Share of the peak rate after `step` updates: the next one is number t = step + 1 of the paper's formula."""
    warmup_steps = max(1, warmup_steps)
    update = step + 1
    return min(update / warmup_steps, (warmup_steps / update) ** 0.5)


def inverse_sqrt_schedule(optimizer: Optimizer, warmup_steps: int, last_epoch: int = -1) -> LambdaLR:
    """
    Linear warm-up to the optimizer's rate, then decay with the inverse square root of the number of updates.

    The first update already has rate peak / warmup_steps; Transformers' `inverse_sqrt` makes it with rate 0.
    """
    return LambdaLR(optimizer, partial(inverse_sqrt_share, warmup_steps=warmup_steps), last_epoch)


__all__ = ["inverse_sqrt_schedule", "inverse_sqrt_share", "noam_peak"]
