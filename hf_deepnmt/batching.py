"""Batches of sentence pairs under a token budget, and the collator that pads them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow.compute as pc
import torch
from datasets import Dataset
from torch.utils.data import Sampler


_BATCH_ROWS = 10_000
# What one batch more counts for when batches are laid out, as a share of the budget: padding against half-empty batches.
_BATCH_COST = 0.1


class TokenBudgetBatchSampler(Sampler[list[int]]):
    """
    Batches of similar length whose padded size, sentences x longest side, stays within a budget.

    The borders between batches depend on the lengths alone, so every epoch has the same number of batches. Which of
    several equally long pairs falls into which batch, and the order of the batches, follow from `(seed, epoch)`.
    Each pair comes exactly once per epoch.

    Consecutive runs of `group_size` batches are neighbours in length and make one optimizer step. Batches are split
    until they fill the last run; none is dropped or repeated. Process `rank` takes `batches()[rank::world_size]`, so
    any division of `group_size` into processes and accumulation steps makes the same updates.

    Args:
        source_lengths, target_lengths: tokens of each pair, end token included.
        max_tokens: budget of one batch on one device.
        max_sentences: most pairs in a batch.
        shuffle: False gives the same batches in the order of length in every epoch.
        group_size: processes x gradient accumulation steps.
        pad_to_multiple_of: what the collator pads to; the budget counts lengths rounded up.

    Raises:
        ValueError: a pair is longer than the budget, there are fewer pairs than `group_size`, or the arguments
            contradict each other.
    """

    def __init__(
        self,
        source_lengths: Sequence[int] | np.ndarray,
        target_lengths: Sequence[int] | np.ndarray,
        max_tokens: int,
        *,
        max_sentences: int | None = None,
        seed: int = 0,
        shuffle: bool = True,
        group_size: int = 1,
        rank: int = 0,
        world_size: int = 1,
        pad_to_multiple_of: int | None = None,
    ) -> None:
        self.source_lengths = np.asarray(source_lengths, dtype=np.int64)
        self.target_lengths = np.asarray(target_lengths, dtype=np.int64)
        self.max_tokens, self.max_sentences = max_tokens, max_sentences
        self.seed, self.shuffle, self.epoch = seed, shuffle, 0
        self.group_size, self.rank, self.world_size = group_size, rank, world_size
        self._check_arguments()
        step = pad_to_multiple_of or 1
        self._source, self._target = (-(-side // step) * step for side in (self.source_lengths, self.target_lengths))
        self._check_lengths()
        self._cells, self._places, starts = self._lay_out()
        self._sorted = self._order(np.arange(len(self._cells)))
        self._starts = self._fill_last_group(starts)
        self._ends = np.append(self._starts[1:], len(self._cells))

    def _check_arguments(self) -> None:
        pairs = len(self.source_lengths)
        if pairs != len(self.target_lengths):
            raise ValueError(
                f"{pairs} source lengths but {len(self.target_lengths)} target lengths: give one of each per pair"
            )
        numbers = {"max_tokens": self.max_tokens, "group_size": self.group_size, "world_size": self.world_size}
        for name, value in {
            **numbers,
            "max_sentences": 1 if self.max_sentences is None else self.max_sentences,
        }.items():
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if not 0 <= self.rank < self.world_size or self.group_size % self.world_size:
            raise ValueError(
                f"rank {self.rank} of {self.world_size} processes does not fit group_size={self.group_size}: make it "
                "processes x gradient accumulation steps"
            )
        if pairs < self.group_size:
            raise ValueError(
                f"{pairs} sentence pairs cannot fill {self.group_size} batches (processes x gradient accumulation "
                "steps): give more data, lower gradient_accumulation_steps or start fewer processes"
            )

    def _check_lengths(self) -> None:
        longest = np.maximum(self._source, self._target)
        too_long = np.flatnonzero(longest > self.max_tokens)
        if len(too_long):
            row = int(too_long[0])
            side = "source" if self._source[row] >= self._target[row] else "target"
            raise ValueError(
                f"{len(too_long)} sentence pairs do not fit a batch of max_tokens={self.max_tokens}, the first in row "
                f"{row} (counted from 0) with {int(longest[row])} {side} tokens: drop or cut long pairs when "
                f"tokenising, or set max_tokens to at least {int(longest.max())}"
            )

    def _lay_out(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """
        Cell of each pair, place of each pair when sorted by cell, and start of each batch among the places.

        A cell is all pairs of one source and one target length. Cells are halved along one of the lengths, and the halves
        again, until each part fits into a batch: so both sides of a batch are of similar length.
        """
        height = int(self._target.max()) + 1
        keys, cells, counts = np.unique(self._source * height + self._target, return_inverse=True, return_counts=True)
        lengths = np.stack([keys // height, keys % height])
        parts, waiting = [], [(np.arange(len(keys)), counts)]
        while waiting:
            part = waiting.pop()
            longest, pairs = int(lengths[:, part[0]].max()), int(part[1].sum())
            if longest * pairs <= self.max_tokens and pairs <= (self.max_sentences or pairs):
                parts.append(part)
            elif len(part[0]) == 1:
                batches = -(-pairs // min(self.max_tokens // max(1, longest), self.max_sentences or pairs))
                parts.extend((part[0], np.array([(pairs + index) // batches])) for index in range(batches))
            else:
                waiting.extend(self._halves(lengths, *part))
        # neighbours make one optimizer step: of similar cost, wherever they are computed
        parts.sort(key=lambda part: lengths[:, part[0]].max(axis=1).sum())
        taken = np.concatenate([np.repeat(*part) for part in parts])
        sizes = np.asarray([numbers.sum() for _, numbers in parts])
        return cells, np.argsort(taken, kind="stable"), np.cumsum(sizes) - sizes

    def _halves(self, lengths: np.ndarray, cells: np.ndarray, numbers: np.ndarray) -> list[tuple]:
        """The upper and the lower half of `numbers` pairs of `cells`, where the cut leaves the least padding."""
        best = None
        longest = lengths[:, cells].max(axis=0)
        needed = math.ceil((longest * numbers).sum() / self.max_tokens)
        if self.max_sentences:
            needed = max(needed, math.ceil(numbers.sum() / self.max_sentences))
        needed = max(2, needed)
        low, high = needed // 2 / needed, -(-needed // 2) / needed
        window = 0.5 / needed if needed > 3 else 0.0
        for axis in (0, 1):
            order = np.lexsort((lengths[1 - axis, cells], lengths[axis, cells]))
            sides, pairs = lengths[:, cells[order]], numbers[order]
            until = np.cumsum(pairs)
            share = np.cumsum(longest[order] * pairs) / (longest * numbers).sum()
            # cuts at those shares, inside a cell if need be, and where the length changes close to them
            cuts = [int(np.interp(middle, np.append(0, share), np.append(0, until))) for middle in (low, high)]
            changes = np.flatnonzero(np.diff(sides[axis]))
            near = (share[changes] >= low - window) & (share[changes] <= high + window)
            cuts = np.unique(np.clip(np.append(cuts, until[changes[near]]), 1, until[-1] - 1))
            below, above = np.searchsorted(until, cuts), np.searchsorted(until, cuts, side="right")
            peaks = np.maximum.accumulate(sides, axis=1)[:, below]
            tails = np.maximum.accumulate(sides[:, ::-1], axis=1)[:, ::-1][:, above]
            cost = 0.0
            for widths, size in ((peaks, cuts), (tails, until[-1] - cuts)):
                batches = np.ceil(widths.max(axis=0) * size / self.max_tokens)
                cost = cost + widths.sum(axis=0) * size + batches * self.max_tokens * _BATCH_COST
            choice = int(cost.argmin())
            if best is None or cost[choice] < best[0]:
                lower = np.clip(cuts[choice] - (until - pairs), 0, pairs)
                best = cost[choice], order, lower, pairs - lower
        _, order, lower, upper = best
        return [(cells[order[part > 0]], part[part > 0]) for part in (upper, lower)]

    def _order(self, pairs: np.ndarray) -> np.ndarray:
        """Row numbers in the order of the batches; of equally long pairs, those that come first in `pairs` come first."""
        order = np.empty_like(pairs)
        order[self._places] = pairs[np.argsort(self._cells[pairs], kind="stable")]
        return order

    def _fill_last_group(self, starts: np.ndarray) -> np.ndarray:
        """Halve the batches with most pairs until the number of batches is a multiple of the group size."""
        while missing := -len(starts) % self.group_size:
            sizes = np.diff(starts, append=len(self._cells))
            largest = np.argsort(-sizes, kind="stable")[:missing]
            largest = largest[sizes[largest] > 1]
            starts = np.sort(np.concatenate([starts, starts[largest] + sizes[largest] // 2]))
        return starts

    def _padded_size(self, rows: np.ndarray, starts: np.ndarray) -> int:
        sizes = np.diff(starts, append=len(rows))
        return sum(int((sizes * np.maximum.reduceat(s[rows], starts)).sum()) for s in (self._source, self._target))

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        """Batches of this process in each epoch."""
        return len(self._starts) // self.world_size

    def batches(self) -> list[np.ndarray]:
        """The row numbers of all batches of the epoch, over all processes, in the order of training."""
        return list(self._select(0, 1))

    def __iter__(self) -> Iterator[list[int]]:
        for rows in self._select(self.rank, self.world_size):
            yield rows.tolist()

    def _select(self, rank: int, world_size: int) -> Iterator[np.ndarray]:
        order, batches = self._sorted, np.arange(len(self._starts))
        if self.shuffle:
            generator = np.random.default_rng([self.seed, self.epoch])
            order = self._order(generator.permutation(len(self._cells)))
            groups = generator.permuted(batches.reshape(-1, self.group_size), axis=1)
            batches = generator.permutation(groups, axis=0).reshape(-1)
        for batch in batches[rank::world_size]:
            yield order[self._starts[batch] : self._ends[batch]]

    def padding_share(self) -> float:
        """Share of padding, from 0 to 1, among the positions of both sides in one epoch."""
        real = int(self.source_lengths.sum() + self.target_lengths.sum())
        return 1.0 - real / self._padded_size(self._sorted, self._starts)


def column_lengths(dataset: Any, column: str) -> np.ndarray:
    """
    Length of each row's list, without loading a `datasets.Dataset` into memory.

    Raises:
        ValueError: the column is missing.
    """
    if isinstance(dataset, Dataset):
        if column not in dataset.column_names:
            raise ValueError(f"the data set has no column {column!r}, only {dataset.column_names}: tokenise it first")
        arrow = dataset.select_columns([column]).with_format("arrow")
        parts = [pc.list_value_length(part[column]).to_numpy() for part in arrow.iter(_BATCH_ROWS)]
        return np.concatenate(parts).astype(np.int64) if parts else np.zeros(0, dtype=np.int64)
    lengths = np.zeros(len(dataset), dtype=np.int64)
    for index in range(len(dataset)):
        row = dataset[index]
        if column not in row:
            raise ValueError(f"row {index} has no {column!r}, only {list(row)}: tokenise the data set first")
        lengths[index] = len(row[column])
    return lengths


Padder = int | float | Callable[[list[Any], dict[str, torch.Tensor]], torch.Tensor]


class Seq2SeqCollator:
    """
    Pads tokenised pairs on the right into `input_ids`, `attention_mask` and `labels`, int64 of shape (batch, longest).

    Args:
        pad_token_id: fills `input_ids`.
        label_pad: fills `labels`; the loss skips it.
        pad_to_multiple_of: widths are rounded up to it.
        extra_columns: further training columns by name. A number pads ragged lists of any depth; a function is
            called with the column's values and the batch so far, and returns the tensor.
        ignored_columns: columns that may be there and are left out, such as the raw text.

    Raises:
        ValueError: a row has a column that is neither padded nor ignored, or lacks one that others have.
    """

    def __init__(
        self,
        pad_token_id: int,
        label_pad: int = -100,
        pad_to_multiple_of: int | None = None,
        extra_columns: Mapping[str, Padder] | None = None,
        ignored_columns: Iterable[str] = (),
    ) -> None:
        self.pad_token_id, self.label_pad, self.pad_to_multiple_of = pad_token_id, label_pad, pad_to_multiple_of
        self.extra_columns = dict(extra_columns or {})
        self.ignored_columns = frozenset(ignored_columns)

    @property
    def columns(self) -> list[str]:
        """Columns that become tensors."""
        return ["input_ids", "attention_mask", "labels", *self.extra_columns]

    def __call__(self, features: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        self._check(features)
        ids = [row["input_ids"] for row in features]
        masks = [row.get("attention_mask", np.ones(len(row["input_ids"]), dtype=np.int64)) for row in features]
        batch = {"input_ids": self.pad(ids, self.pad_token_id), "attention_mask": self.pad(masks, 0)}
        if "labels" in features[0]:
            batch["labels"] = self.pad([row["labels"] for row in features], self.label_pad)
        for name, padder in self.extra_columns.items():
            if name in features[0]:
                values = [row[name] for row in features]
                batch[name] = padder(values, batch) if callable(padder) else self.pad(values, padder, name)
        return batch

    def _check(self, features: Sequence[Mapping[str, Any]]) -> None:
        names = set(features[0]) - self.ignored_columns
        unknown = sorted(names - set(self.columns))
        if unknown:
            raise ValueError(
                f"column {unknown[0]!r} is not known to the collator: give it a pad value in `extra_columns`, name it "
                "in `ignored_columns`, or remove it from the data set"
            )
        for row in features:
            other = sorted((set(row) - self.ignored_columns) ^ names)
            if other:
                raise ValueError(
                    f"column {other[0]!r} is in some rows of a batch only: give it to all rows or to none"
                )

    def pad(self, values: Sequence[Any], fill: int | float, name: str = "input_ids or labels") -> torch.Tensor:
        """One tensor for ragged lists of one depth: int64, or float32 where there are fractions."""
        arrays = [_as_array(value, name) for value in values]
        depth = max(array.ndim for array in arrays)
        shape = [max(array.shape[axis] for array in arrays if array.ndim == depth) for axis in range(depth)]
        if shape and self.pad_to_multiple_of:
            shape[0] = -(-shape[0] // self.pad_to_multiple_of) * self.pad_to_multiple_of
        floating = isinstance(fill, float) or any(array.dtype.kind == "f" for array in arrays if array.size)
        padded = np.full((len(arrays), *shape), fill, dtype=np.float32 if floating else np.int64)
        for row, array in enumerate(arrays):
            if array.size:
                padded[(row, *(slice(length) for length in array.shape))] = array
        return torch.from_numpy(padded)


def _as_array(value: Any, name: str) -> np.ndarray:
    if isinstance(value, torch.Tensor):
        return value.cpu().numpy()
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(
            f"column {name!r}: the lists inside one row differ in length, so one pad value does not do; give a "
            "padding function in `extra_columns`"
        ) from error
    if array.dtype.kind not in "iufb":
        raise ValueError(f"column {name!r} holds {array.dtype}, not numbers: name it in `ignored_columns`")
    return array


__all__ = ["Seq2SeqCollator", "TokenBudgetBatchSampler", "column_lengths"]
