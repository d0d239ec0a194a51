"""Learning-rate schedules that Transformers lacks."""

from __future__ import annotations

import torch
from torch.optim.lr_scheduler import LambdaLR


def noam_peak(d_model: int, warmup_steps: int, factor: float = 1.0) -> float:
    """The highest rate of lr = factor * d_model^-0.5 * min(t^-0.5, t * warmup^-1.5), reached at t = warmup."""
    return factor * (d_model * max(warmup_steps, 1)) ** -0.5


def inverse_sqrt_schedule(optimizer: torch.optim.Optimizer, warmup_steps: int) -> LambdaLR:
    """
    The schedule of Vaswani et al. (2017), section 5.3, in terms of its peak: the optimizer's rate times
    min(t / warmup, (warmup / t)^0.5), with t = 1 at the first update.

    The schedule of the same name in Transformers starts at t = 0, so that the first update changes nothing.
    """
    warmup = max(warmup_steps, 1)
    return LambdaLR(optimizer, lambda step: min((step + 1) / warmup, (warmup / (step + 1)) ** 0.5))


__all__ = ["inverse_sqrt_schedule", "noam_peak"]
