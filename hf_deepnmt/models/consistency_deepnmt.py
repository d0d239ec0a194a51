# Copyright 2026 The hf_deepnmt authors. Apache-2.0 licence.
"""
Two copies of each sentence that must agree: R-Drop (Liang et al., 2021) and cutoff (Shen et al., 2020).

Both are part of the training loss of every architecture and are switched on by fields of its config.
"""

import torch

from .functional_deepnmt import chunked_projection


def symmetric_divergence(log_p: torch.Tensor, log_q: torch.Tensor) -> torch.Tensor:
    """R-Drop: (KL(p||q) + KL(q||p)) / 2 over the last dimension."""
    return ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(dim=-1) / 2


def jensen_shannon(log_p: torch.Tensor, log_q: torch.Tensor) -> torch.Tensor:
    """Cutoff as its paper has it: (KL(p||m) + KL(q||m)) / 2 with m the mean of the probabilities."""
    p, q = log_p.exp(), log_q.exp()
    log_mean = ((p + q) / 2).clamp(min=torch.finfo(p.dtype).tiny).log()
    return (p * (log_p - log_mean) + q * (log_q - log_mean)).sum(dim=-1) / 2


def mean_logits_divergence(log_p: torch.Tensor, log_q: torch.Tensor) -> torch.Tensor:
    """Cutoff as its released code has it: (KL(m||p) + KL(m||q)) / 2 with m the softmax of the mean logits."""
    middle = (log_p + log_q) / 2
    log_mean = middle.log_softmax(dim=-1)
    return (log_mean.exp() * (log_mean - middle)).sum(dim=-1)


DIVERGENCES = {"paper": jensen_shannon, "official": mean_logits_divergence}


def pair_loss(
    logits: torch.Tensor, targets: torch.Tensor, smoothing: float, divergences: list[tuple]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """
    Loss of both copies.

    Args:
        logits: (rows, 2, vocabulary).
        targets: (rows).
        divergences: pairs of a weight and a function of two log-distributions.

    Returns:
        Sums over rows: cross-entropy of both copies plus the weighted divergences; the weighted divergences; the
        unsmoothed negative log-likelihood, mean of both copies.
    """
    log_probs = logits.log_softmax(dim=-1)
    nll = -log_probs.gather(-1, targets[:, None, None].expand(-1, 2, 1)).sum()
    loss = (1 - smoothing) * nll - smoothing * log_probs.mean(dim=-1).sum() if smoothing else nll
    log_p, log_q = log_probs.unbind(dim=1)
    consistency = sum((weight * function(log_p, log_q).sum() for weight, function in divergences), loss.new_zeros(()))
    return loss + consistency, consistency.detach(), nll.detach() / 2


def linear_pair_loss(
    states: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    targets: torch.Tensor,
    smoothing: float,
    divergences: list[tuple],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`pair_loss` of `states weight^T + bias` for states (rows, 2, width), by `chunked_projection`."""
    parts = torch.zeros(2, dtype=torch.promote_types(states.dtype, torch.float32), device=states.device)

    def row_loss(logits, rows, wanted):
        with torch.set_grad_enabled(wanted):
            logits.requires_grad_(wanted)
            loss, consistency, nll = pair_loss(logits, targets[rows], smoothing, divergences)
        parts.add_(torch.stack([consistency, nll]))
        return loss.detach(), torch.autograd.grad(loss, logits)[0] if wanted else None

    loss = chunked_projection(states, weight, bias, row_loss)
    return loss, *parts


def cut_tokens(ids: torch.Tensor, special: list[int], share: float, token: int, span: bool) -> torch.Tensor:
    """
    `ids` (batch, length) with a share of the words replaced by `token`.

    Args:
        special: ids that are no words and stay.
        span: one run of ceil(share * words) words in each sentence, instead of each word by itself.
    """
    words = ~torch.isin(ids, torch.tensor(special, device=ids.device))
    if not span:
        return ids.masked_fill(words & (torch.rand(ids.shape, device=ids.device) < share), token)
    counts = words.sum(dim=1, keepdim=True)
    length = (counts * share).ceil()
    start = (torch.rand(counts.shape, device=ids.device) * (counts - length + 1)).floor()
    place = words.cumsum(dim=1) - 1
    return ids.masked_fill(words & (place >= start) & (place < start + length), token)


def cut_features(embeddings: torch.Tensor, share: float) -> torch.Tensor:
    """`embeddings` (batch, length, width) with a share of the columns zero, the same for all words of a sentence."""
    batch, _, width = embeddings.shape
    return embeddings * (torch.rand(batch, 1, width, device=embeddings.device) >= share)


__all__ = [
    "DIVERGENCES",
    "cut_features",
    "cut_tokens",
    "linear_pair_loss",
    "pair_loss",
    "symmetric_divergence",
]
