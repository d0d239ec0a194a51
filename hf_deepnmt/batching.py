"""Batches by token budget, bucketed by length on both sides, and the collator that pads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import Sampler


# Row counts beyond which a batch is not searched for its end at once; only speed depends on it.
SEARCH_WINDOW = 4096


class TokenBudgetBatchSampler(Sampler[list[int]]):
    """
    Batches of similar length whose padded size stays within a budget.

    The cost of a batch is its number of sentences times its longest side. Which rows stand together changes per epoch
    only among pairs of equal lengths, so every epoch has the same number of batches. The list of batches depends on
    `(seed, epoch, group_size)` alone: two processes see the same ones as one process that accumulates two.

    Args:
        source_lengths, target_lengths: tokens of each row.
        max_tokens: the budget.
        max_sentences: at most this many rows a batch.
        group_size: processes times accumulation steps. Batches of one optimizer step are of similar length, and the
            number of batches is a multiple of it, reached by splitting batches: no row is left out or repeated.
        rank, world_size: yield every `world_size`-th batch from `rank` on.

    Raises:
        ValueError: a row is longer than the budget, or there are fewer rows than `group_size`.
    """

    def __init__(
        self,
        source_lengths: Sequence[int],
        target_lengths: Sequence[int],
        max_tokens: int,
        *,
        max_sentences: int | None = None,
        seed: int = 0,
        shuffle: bool = True,
        group_size: int = 1,
        rank: int = 0,
        world_size: int = 1,
    ):
        self.source = np.asarray(source_lengths, dtype=np.int64)
        self.target = np.asarray(target_lengths, dtype=np.int64)
        self.max_tokens, self.max_sentences = max_tokens, max_sentences or len(self.source)
        self.seed, self.shuffle, self.group_size = seed, shuffle, group_size
        self.rank, self.world_size = rank, world_size
        self.epoch = 0
        self.check(group_size)
        self.primary, self.secondary = self.sort_keys()
        self.ends = self.split(self.find_ends(), group_size)

    def check(self, group_size: int):
        if len(self.source) != len(self.target):
            raise ValueError(f"{len(self.source)} source lengths but {len(self.target)} target lengths")
        if len(self.source) < group_size:
            raise ValueError(
                f"{len(self.source)} rows are fewer than processes x accumulation steps ({group_size}): use fewer of those"
            )
        longest = np.maximum(self.source, self.target)
        if len(longest) and longest.max() > self.max_tokens:
            row = int(longest.argmax())
            raise ValueError(
                f"row {row} has {longest[row]} tokens, more than a whole batch may have ({self.max_tokens}): "
                "raise `max_tokens`, or leave long pairs out with `max_source_length` and `max_target_length`"
            )

    def sort_keys(self) -> tuple[np.ndarray, np.ndarray]:
        """Coarse classes of the longer side, and within one the shorter side, running back and forth."""
        return self.target, self.source

    def order(self) -> np.ndarray:
        """Rows by length; rows of equal lengths in an order drawn from (seed, epoch)."""
        ties = np.arange(len(self.source))
        if self.shuffle:
            ties = np.random.default_rng((self.seed, self.epoch)).permutation(len(self.source))
        return np.lexsort((ties, self.secondary, self.primary))

    def find_ends(self) -> list[int]:
        """Greedy ends of batches in the sorted order, the same in every epoch."""
        longest = np.maximum(self.source, self.target)[np.lexsort((self.secondary, self.primary))]
        counts = np.arange(1, SEARCH_WINDOW + 1)
        ends, start = [], 0
        while start < len(longest):
            size, running = 0, 0
            while True:
                window = longest[start + size : start + size + SEARCH_WINDOW]
                peaks = np.maximum(np.maximum.accumulate(window), running) if len(window) else window
                fits = (size + counts[: len(window)]) * peaks <= self.max_tokens
                fits &= size + counts[: len(window)] <= self.max_sentences
                taken = len(window) if fits.all() else int(fits.argmin())
                size += taken
                if taken < SEARCH_WINDOW:
                    break
                running = peaks[-1]
            start += size
            ends.append(start)
        return ends

    def split(self, ends: list[int], group_size: int) -> list[int]:
        """Halve the batches with most rows until their number is a multiple of `group_size`."""
        while len(ends) % group_size:
            sizes = np.diff([0, *ends])
            largest = int(sizes.argmax())
            ends.insert(largest, ends[largest] - int(sizes[largest]) // 2)
        return ends

    def batches(self) -> list[np.ndarray]:
        """All batches of the epoch, for all processes, in the order of training."""
        parts = np.split(self.order(), self.ends[:-1])
        if not self.shuffle:
            return parts
        groups = np.random.default_rng((self.seed, self.epoch, 1)).permutation(len(parts) // self.group_size)
        return [parts[group * self.group_size + index] for group in groups for index in range(self.group_size)]

    def set_epoch(self, epoch: int):
        self.epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        for batch in self.batches()[self.rank :: self.world_size]:
            yield batch.tolist()

    def __len__(self) -> int:
        return len(range(self.rank, len(self.ends), self.world_size))

    def padding_share(self) -> float:
        """Share of padding among all tokens of an epoch, source and target together."""
        padded = sum(len(rows) * (self.source[rows].max() + self.target[rows].max()) for rows in self.batches())
        return 1 - (self.source.sum() + self.target.sum()) / padded


class Seq2SeqCollator:
    """
    Pads `input_ids` and `labels` on the right and makes the attention mask; the model makes the decoder input itself.

    Args:
        pad_token_id: padding of `input_ids`.
        columns: further columns of integer lists, each with its padding value.
        pad_to_multiple_of: round lengths up, for kernels that want it.
    """

    def __init__(self, pad_token_id: int, columns: dict[str, int] | None = None, pad_to_multiple_of: int | None = None):
        self.padding = {"input_ids": pad_token_id, "labels": -100, "attention_mask": 0, **(columns or {})}
        self.multiple = pad_to_multiple_of or 1

    def pad(self, rows: list[Sequence[int]], value: int) -> torch.Tensor:
        width = max(len(row) for row in rows)
        width = -(-width // self.multiple) * self.multiple
        padded = np.full((len(rows), width), value, dtype=np.int64)
        for index, row in enumerate(rows):
            padded[index, : len(row)] = row
        return torch.from_numpy(padded)

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """
        Raises:
            ValueError: a column has no padding value; names it.
        """
        unknown = sorted(set(rows[0]) - set(self.padding))
        if unknown:
            raise ValueError(f"no padding value for column {unknown[0]!r}: give it in `columns`, or remove the column")
        batch = {name: self.pad([row[name] for row in rows], self.padding[name]) for name in rows[0]}
        if "attention_mask" not in batch:
            lengths = torch.tensor([len(row["input_ids"]) for row in rows])
            batch["attention_mask"] = (torch.arange(batch["input_ids"].shape[1]) < lengths[:, None]).long()
        return batch


__all__ = ["Seq2SeqCollator", "TokenBudgetBatchSampler"]
