# Copyright 2026 The hf_deepnmt authors. Apache-2.0 licence.
"""Loss and dropout with the values of the plain formulas, in less time and memory."""

from collections.abc import Callable

import torch
from torch import nn


# Logits of one chunk of rows: enough for matrix products at full speed, and few enough for the caches of a CPU.
CHUNK_ELEMENTS = {"cpu": 2**22, "cuda": 2**26}
# Random bits that decide about one element: the rate of dropout is a multiple of 2^-16.
DROPOUT_STEPS = 2**16


def compute_dtype(states: torch.Tensor) -> torch.dtype:
    """What a linear layer would compute in: the autocast dtype where autocast is on."""
    device = states.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states.dtype


def cross_entropy(
    logits: torch.Tensor, targets: torch.Tensor, smoothing: float = 0.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """What `linear_cross_entropy` returns, from logits (rows, vocabulary)."""
    log_probs = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(dim=-1)
    nll = -log_probs.gather(-1, targets[:, None])[:, 0]
    loss = (1 - smoothing) * nll.sum() - smoothing * log_probs.mean(dim=-1).sum() if smoothing else nll.sum()
    return loss, nll.detach()


class ChunkedProjection(torch.autograd.Function):
    """
    A loss over logits that are made for a few rows at a time.

    Its gradients are made in the forward pass, chunk by chunk, and kept instead of the logits.
    """

    @staticmethod
    def forward(ctx, states, weight, bias, row_loss, needs_gradients):
        dtype, exact = compute_dtype(states), torch.promote_types(states.dtype, torch.float32)
        inputs, matrix, offset = (None if tensor is None else tensor.to(dtype) for tensor in (states, weight, bias))
        wanted = [needs_gradients and needed for needed in ctx.needs_input_grad[:3]]
        gradients = [
            torch.zeros_like(tensor, dtype=exact) if needed else None
            for tensor, needed in zip((states, weight, bias), wanted, strict=True)
        ]
        total = torch.zeros((), dtype=exact, device=states.device)
        elements = CHUNK_ELEMENTS.get(states.device.type, max(CHUNK_ELEMENTS.values()))
        size = max(1, elements // (len(weight) * states[0].numel() // states.shape[-1])) if len(states) else 1
        for start in range(0, len(states), size):
            rows = slice(start, start + size)
            logits = nn.functional.linear(inputs[rows], matrix, offset).to(exact)
            loss, slope = row_loss(logits, rows, any(wanted))
            total += loss
            if not any(wanted):
                continue
            if wanted[2]:
                gradients[2] += slope.flatten(0, -2).sum(dim=0)
            slope = slope.to(dtype)
            if wanted[0]:
                gradients[0][rows] = (slope @ matrix).to(exact)
            if wanted[1]:
                gradients[1] += slope.flatten(0, -2).t() @ inputs[rows].flatten(0, -2)
        ctx.save_for_backward(*gradients)
        ctx.dtypes = [None if tensor is None else tensor.dtype for tensor in (states, weight, bias)]
        return total

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, slope):
        scaled = [
            None if gradient is None else (gradient * slope).to(dtype)
            for gradient, dtype in zip(ctx.saved_tensors, ctx.dtypes, strict=True)
        ]
        return *scaled, None, None


# Dynamo would trace the loop over chunks, whose number depends on the data.
@torch.compiler.disable
def chunked_projection(
    states: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    row_loss: Callable[[torch.Tensor, slice, bool], tuple[torch.Tensor, torch.Tensor | None]],
) -> torch.Tensor:
    """
    Sum of a loss over rows of logits `states weight^T + bias`, which are never whole in memory.

    Products are made in the autocast dtype, everything behind them in fp32 (or fp64 for such states).

    Args:
        states: (rows, ..., width), only rows that count.
        weight, bias: (vocabulary, width) and (vocabulary) of the output projection.
        row_loss: called with the logits (chunk, ..., vocabulary) of some rows, the slice of these rows, and whether
            gradients are wanted. Returns the sum of their loss, and its derivative by the logits where wanted.
    """
    return ChunkedProjection.apply(states, weight, bias, row_loss, torch.is_grad_enabled())


def linear_cross_entropy(
    states: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    targets: torch.Tensor,
    smoothing: float = 0.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """
    Cross-entropy of `softmax(states weight^T + bias)` by `chunked_projection`.

    Args:
        states: (rows, width).
        targets: (rows), int64.
        smoothing: share of the expected distribution that is uniform over the vocabulary.

    Returns:
        The sum over rows of (1 - smoothing) nll + smoothing * mean over the vocabulary of -log p, in nats; and the
        unsmoothed negative log-likelihoods (rows), without gradient.
    """
    vocabulary = len(weight)
    nll = torch.zeros(len(states), dtype=torch.promote_types(states.dtype, torch.float32), device=states.device)

    def row_loss(logits, rows, wanted):
        expected = targets[rows, None]
        slope = logits.softmax(dim=-1)
        # log-sum-exp from the two maxima: log-softmax and exp are the slow ones on a CPU
        normalizer = logits.amax(dim=-1) - slope.amax(dim=-1).log()
        nll[rows] = normalizer - logits.gather(1, expected)[:, 0]
        loss = (1 - smoothing) * nll[rows].sum()
        if smoothing:
            loss = loss + smoothing * (normalizer.sum() - logits.sum() / vocabulary)
        # by the logits: softmax - smoothing / vocabulary - (1 - smoothing) at the expected word
        if wanted and smoothing:
            slope -= smoothing / vocabulary
        if wanted:
            slope.scatter_add_(1, expected, slope.new_full(expected.shape, smoothing - 1))
        return loss, slope

    return chunked_projection(states, weight, bias, row_loss), nll


class BitDropout(torch.autograd.Function):
    """Dropout from 16 random bits per element."""

    @staticmethod
    def forward(ctx, states, dropped):
        bits = torch.empty(-(-states.numel() // 4), dtype=torch.int64, device=states.device)
        bits = bits.random_(-(2**63), None).view(torch.int16)[: states.numel()].view(states.shape)
        keep = torch.empty_like(states, memory_format=torch.contiguous_format)
        torch.ge(bits, dropped - DROPOUT_STEPS // 2, out=keep)
        keep.mul_(DROPOUT_STEPS / (DROPOUT_STEPS - dropped))
        ctx.save_for_backward(keep)
        return states * keep

    @staticmethod
    def backward(ctx, slope):
        (keep,) = ctx.saved_tensors
        return slope * keep, None


def drop_out(states: torch.Tensor, p: float, training: bool) -> torch.Tensor:
    """
    Dropout whose masks are several times cheaper on a CPU; elsewhere and under `torch.compile` it is PyTorch's own.

    The rate is `p` rounded to a multiple of 2^-16, and kept elements are scaled by the inverse of exactly that rate.
    """
    dropped = round(p * DROPOUT_STEPS)
    if not training or dropped in (0, DROPOUT_STEPS) or states.device.type != "cpu" or torch.compiler.is_compiling():
        return nn.functional.dropout(states, p, training)
    return BitDropout.apply(states, dropped)


__all__ = ["chunked_projection", "cross_entropy", "drop_out", "linear_cross_entropy"]
