"""
The supervised order of source tokens: from word alignments to a target position for each subword.

Each source word gets a key, where its translation stands in the target sentence. Sorting the words by their keys puts the
source into the order of the target, and the place of a token in that order is its target position, from 0 to J - 1 for a
sentence of J tokens. The positions of a sentence are therefore a permutation of its own. The pieces of a word follow each
other in the word's order; the end of sentence, like every special token, keeps its place.

"Explicit Reordering for Neural Machine Translation" (Chen et al. 2020) supervises with such positions. Its text leaves open
how unlinked words and words with several links are placed, so those rules are readings, and fields of `TargetOrder`.

Links count words, models read subwords. The two meet in the characters of the text: a token belongs to the word with
which it shares a character. Tokenizers tell the characters of each token exactly, whereas their word numbers follow their
own pre-tokenisation, which splits off punctuation and numbers and so is not what an aligner counted. A token that reaches
over several words, as in text without spaces, makes them one unit with all their links. Tokens of white space alone go
with the word behind them, as these tokenizers write spaces in front.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from .alignment import Links, Span, check_word_rule


TARGET_POSITIONS = "target_positions"
NO_POSITION = -100.0
_SEVERAL: dict[str, Callable[[list[int]], float]] = {
    "mean": fmean,
    "min": min,
    "median": median,
    "first": lambda targets: targets[0],
}
_UNALIGNED = ("left", "right", "interpolate", "keep")


@dataclass(frozen=True)
class TargetOrder:
    """
    How links become an order.

    Args:
        multi: the key of a word with several links, of the target words' indices: `mean`, `min`, `median`, or `first`,
            the link written first.
        unaligned: the key of a word without links: that of the nearest linked word to the `left` (or, before all of
            those, to the right), to the `right` (or, behind all, to the left), a straight line between the two
            (`interpolate`), or its own place scaled to the target's length (`keep`).
        words: the rule by which the links count words, of `alignment.WORD_RULES`.
    """

    multi: str = "mean"
    unaligned: str = "left"
    words: str = "spaces"

    def __post_init__(self):
        check_word_rule(self.words)
        for name, choices in (("multi", tuple(_SEVERAL)), ("unaligned", _UNALIGNED)):
            if getattr(self, name) not in choices:
                raise ValueError(f"`{name}` is one of {', '.join(choices)}, not {getattr(self, name)!r}")

    def keys(self, targets: Sequence[list[int]], places: Sequence[float], scale: float = 1.0) -> list[float] | None:
        """
        Sort keys of units (words) in source order; None where no unit has a link.

        Args:
            targets: the linked target words of each unit.
            places: the source place of each unit, in words.
            scale: target words a source word.
        """
        keys = [_SEVERAL[self.multi](linked) if linked else None for linked in targets]
        linked = [unit for unit, key in enumerate(keys) if key is not None]
        if not linked:
            return None
        for unit, key in enumerate(keys):
            if key is None:
                # the linked units before and behind it, each standing in for the other at the ends of the sentence
                behind = bisect_right(linked, unit)
                left, right = linked[max(behind - 1, 0)], linked[min(behind, len(linked) - 1)]
                keys[unit] = self._between(unit, left, right, keys, places, scale)
        return keys

    def _between(
        self, unit: int, left: int, right: int, keys: list[float], places: Sequence[float], scale: float
    ) -> float:
        if self.unaligned == "keep":
            return places[unit] * scale
        if self.unaligned == "interpolate" and left != right:
            share = (places[unit] - places[left]) / (places[right] - places[left])
            return keys[left] + share * (keys[right] - keys[left])
        return keys[right] if self.unaligned == "right" else keys[left]


def target_ranks(links: Links, source_words: int, target_words: int, order: TargetOrder | None = None) -> list[int]:
    """
    The place of each source word in the order of the target, a permutation of 0 to `source_words` - 1; empty without links.

    >>> target_ranks([(0, 2), (1, 0), (3, 1)], 4, 3)
    [3, 0, 1, 2]
    """
    spans = [(word, word + 1) for word in range(source_words)]
    places = target_positions(links, spans, spans, [False] * source_words, target_words, order)
    return [] if places is None else [int(place) for place in places]


def target_positions(
    links: Links,
    source_spans: Sequence[Span],
    token_spans: Sequence[Span],
    special: Sequence[bool],
    target_words: int,
    order: TargetOrder | None = None,
    kept_target_words: int | None = None,
) -> list[float] | None:
    """
    The target position of each source token, or None where no link is left.

    Args:
        links: checked links between words.
        source_spans: start and end of each source word, in characters; `alignment.word_spans`.
        token_spans: start and end of each token, in characters of the same text: a tokenizer's `offset_mapping`, cut
            where the tokens are. Links of words that no token is left of are dropped.
        special: which tokens are special and keep their place.
        target_words: words of the target.
        kept_target_words: how many of them the target tokens still show; links to others are dropped.

    Returns:
        A permutation of 0.0 to `len(token_spans)` - 1.0.
    """
    order = order or TargetOrder()
    kept = target_words if kept_target_words is None else kept_target_words
    unit_of_word, unit_of_token = word_units(source_spans, token_spans, special)
    shown = sorted({unit for unit in unit_of_token if unit is not None})
    words: dict[int, list[int]] = {unit: [] for unit in shown}
    linked: dict[int, list[int]] = {unit: [] for unit in shown}
    for word, unit in enumerate(unit_of_word):
        if unit in words:
            words[unit].append(word)
    for i, j in links:
        if unit_of_word[i] in linked and j < kept:
            linked[unit_of_word[i]].append(j)
    scale = target_words / max(1, len(source_spans))
    keys = order.keys([linked[unit] for unit in shown], [fmean(words[unit]) for unit in shown], scale)
    if keys is None:
        return None
    rank = {unit: place for place, (_, unit) in enumerate(sorted(zip(keys, shown, strict=True)))}
    tokens = [token for token, unit in enumerate(unit_of_token) if unit is not None]
    positions = [float(place) for place in range(len(token_spans))]
    # places of special tokens stay taken
    for place, token in zip(tokens, sorted(tokens, key=lambda token: rank[unit_of_token[token]]), strict=True):
        positions[token] = float(place)
    return positions


def word_units(
    words: Sequence[Span], tokens: Sequence[Span], special: Sequence[bool]
) -> tuple[list[int], list[int | None]]:
    """
    The unit of each word and of each token, numbered from left to right; None for special tokens.

    A unit is a word, or neighbouring words that a token ties together.

    >>> word_units([(0, 3), (4, 8)], [(0, 3), (3, 6), (6, 8), (0, 0)], [False, False, False, True])
    ([0, 1], [0, 1, 1, None])
    """
    if not words:
        return [], [None] * len(tokens)
    starts, ends = [start for start, _ in words], [end for _, end in words]
    first_word, tied = [], [False] * len(words)
    for (start, end), is_special in zip(tokens, special, strict=True):
        if is_special:
            first_word.append(None)
            continue
        # words first to last - 1 share a character with the token
        first, last = bisect_right(ends, start), bisect_left(starts, end)
        first_word.append(min(first, len(words) - 1))
        for word in range(first + 1, last):
            tied[word] = True
    unit_of_word, unit = [], -1
    for is_tied in tied:
        unit += not is_tied
        unit_of_word.append(unit)
    return unit_of_word, [None if word is None else unit_of_word[word] for word in first_word]


__all__ = ["NO_POSITION", "TARGET_POSITIONS", "TargetOrder", "target_positions", "target_ranks", "word_units"]
