"""
Word alignments: the words of a text, links between the words of a sentence pair, and how good links are.

A link (i, j) joins source word i to target word j, both counted from 0. A file of links has one line per sentence pair,
in Pharaoh format: `0-0 1-2 2-1`, source first. A pair without links is an empty line.

What a word is follows from a rule, and links mean nothing without theirs:

- `spaces`: what stands between white space, as `str.split` sees it. For tokenised text, and for links made elsewhere.
- `text`: letters with their marks, numbers, and every other character alone, so that punctuation is split off. Of scripts
  that are written without spaces (Han, Hiragana, Thai, Lao, Khmer, Burmese) every character is a word; Katakana stays
  together. For raw text.

`hf_deepnmt.aligners` makes links, `hf_deepnmt.target_order` makes the supervised target order of them.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from bisect import insort
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from tokenizers import Regex, pre_tokenizers


Link = tuple[int, int]
Links = list[Link]
Span = tuple[int, int]

WORD_RULES = ("spaces", "text")
SYMMETRISATIONS = ("forward", "reverse", "intersect", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and")
_NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))
_WORD = re.compile(r"\S+")
_LINK = re.compile("([0-9]+)-([0-9]+)")
_GOLD_LINK = re.compile("([0-9]+)([-p])([0-9]+)")
_UNSPACED = r"\p{Han}\p{Hiragana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_LETTER = rf"(?![{_UNSPACED}\p{{Katakana}}])"
_TEXT_WORD = "|".join(
    (
        rf"[{_UNSPACED}]\p{{M}}*",
        r"[\p{Katakana}ー]+",
        rf"{_LETTER}\p{{L}}(?:{_LETTER}[\p{{L}}\p{{M}}])*",
        r"\p{N}+(?:[.,]\p{N}+)*",
        r"\s+",
        r"\S",
    )
)


# --- words ---


@functools.lru_cache(maxsize=1)
def _text_splitter() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Split(Regex(_TEXT_WORD), behavior="isolated")


def check_word_rule(rule: str):
    """
    Raises:
        ValueError: there is no such rule.
    """
    if rule not in WORD_RULES:
        raise ValueError(f"the words of a text are split by one of {', '.join(WORD_RULES)}, not by {rule!r}")


def word_spans(text: str, rule: str = "spaces") -> list[Span]:
    """
    Start and end of each word, in characters of `text`.

    >>> word_spans("Don't go!", "text")
    [(0, 3), (3, 4), (4, 5), (6, 8), (8, 9)]
    """
    check_word_rule(rule)
    if rule == "spaces":
        return [match.span() for match in _WORD.finditer(text)]
    return [span for piece, span in _text_splitter().pre_tokenize_str(text) if not piece.isspace()]


def split_words(text: str, rule: str = "spaces") -> list[str]:
    """
    The words of a text, the ones that links count.

    >>> split_words("我在2019年来过。", "text")
    ['我', '在', '2019', '年', '来', '过', '。']
    """
    return [text[start:end] for start, end in word_spans(text, rule)]


# --- links as text ---


def parse_links(line: str) -> Links:
    """
    The links of one line, in its order, numbers as they stand.

    Raises:
        ValueError: an item is not `number-number`, for instance because it carries a probability.
    """
    links = []
    for item in line.split():
        match = _LINK.fullmatch(item)
        if match is None:
            raise ValueError(f"{item!r} is no link: write source-target, for instance 0-2")
        links.append((int(match[1]), int(match[2])))
    return links


def format_links(links: Iterable[Link]) -> str:
    """Pharaoh format, in the order given."""
    return " ".join(f"{i}-{j}" for i, j in links)


@dataclass(frozen=True)
class LinkFormat:
    """
    How a file of links is to be read.

    Args:
        words: the rule by which it counts words, of `WORD_RULES`.
        one_based: words are counted from 1.
        reverse: links are written target-source.
    """

    words: str = "spaces"
    one_based: bool = False
    reverse: bool = False

    def __post_init__(self):
        check_word_rule(self.words)

    def read(self, line: str, source: str, target: str, where: str = "the links") -> Links:
        """
        The links of a line, source first and from 0, checked against the pair.

        Args:
            where: what errors call the line, such as file and row.

        Raises:
            ValueError: an item is no link, or names a word that the pair does not have.
        """
        try:
            links = parse_links(line)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
        if not links:
            return []
        sizes = len(word_spans(source, self.words)), len(word_spans(target, self.words))
        ordered = self._ordered(links)
        for written, (i, j) in zip(links, ordered, strict=True):
            if not (0 <= i < sizes[0] and 0 <= j < sizes[1]):
                raise ValueError(f"{where}: {self._outside(written, links, sizes)}")
        return ordered

    def _ordered(self, links: Links) -> Links:
        first = int(self.one_based)
        return [(j - first, i - first) if self.reverse else (i - first, j - first) for i, j in links]

    def _outside(self, link: Link, links: Links, sizes: tuple[int, int]) -> str:
        hint = "is it the text that was aligned?"
        for name in ("one_based", "reverse"):
            other = dataclasses.replace(self, **{name: not getattr(self, name)})
            if all(0 <= i < sizes[0] and 0 <= j < sizes[1] for i, j in other._ordered(links)):
                hint = f"the links of this row would fit with {name}={getattr(other, name)}"
        return (
            f"link {link[0]}-{link[1]}, read as {'target-source' if self.reverse else 'source-target'} counted from "
            f"{int(self.one_based)}, is outside the pair of {sizes[0]} source and {sizes[1]} target words (words by "
            f"{self.words!r}); {hint}"
        )


def iter_links(
    lines: Iterable[str],
    pairs: Iterable[tuple[str, str]],
    link_format: LinkFormat | None = None,
    name: str = "the links",
) -> Iterator[Links]:
    """
    Links of each pair, checked; rows are counted from 1.

    Args:
        lines: one line of links for each pair.
        name: what errors call the lines, such as the file's name.

    Raises:
        ValueError: a line does not fit its pair, or there are more lines than pairs or the other way round.
    """
    link_format = link_format or LinkFormat()
    lines, row = iter(lines), 0
    for row, (source, target) in enumerate(pairs, start=1):
        line = next(lines, None)
        if line is None:
            raise ValueError(f"{name} has {row - 1} lines, fewer than the text has pairs: line n must be pair n")
        yield link_format.read(line, source, target, f"{name}, row {row}")
    if next(lines, None) is not None:
        raise ValueError(f"{name} has more lines than the text, which has {row} pairs: line n must be pair n")


# --- two directions into one ---


def symmetrise(forward: Iterable[Link], reverse: Iterable[Link], method: str = "grow-diag-final-and") -> Links:
    """
    One sorted set of links from those of the two directions.

    `forward` links every target word to at most one source word, `reverse` every source word to at most one target
    word; both are written source first. `grow-diag` (Koehn et al. 2003) starts from the links that both have and adds
    those of either that touch an accepted one, diagonals included, and link a word that has none yet. `-final` then
    adds what links such a word, `-final-and` what links two, first from `forward`, then from `reverse`. Links are
    visited by source word, then target word.

    Raises:
        ValueError: there is no such method.
    """
    if method not in SYMMETRISATIONS:
        raise ValueError(f"symmetrisation is one of {', '.join(SYMMETRISATIONS)}, not {method!r}")
    forward, reverse = sorted(set(forward)), sorted(set(reverse))
    simple = {"forward": set(forward), "reverse": set(reverse), "union": {*forward, *reverse}}
    if method in simple:
        return sorted(simple[method])
    links = set(forward) & set(reverse)
    if method == "intersect":
        return sorted(links)
    sources, targets = {i for i, _ in links}, {j for _, j in links}
    _grow_diagonally(links, simple["union"], sources, targets)
    if method == "grow-diag":
        return sorted(links)
    for i, j in (*forward, *reverse):
        new = i not in sources, j not in targets
        if all(new) if method == "grow-diag-final-and" else any(new):
            links.add((i, j))
            sources.add(i)
            targets.add(j)
    return sorted(links)


def _grow_diagonally(links: set[Link], union: set[Link], sources: set[int], targets: set[int]):
    """Adds to `links`, and their words to `sources` and `targets`, until a whole pass adds nothing."""
    ordered, growing = sorted(links), True
    while growing:
        growing, place = False, 0
        while place < len(ordered):
            here = ordered[place]
            for down, right in _NEIGHBOURS:
                new = here[0] + down, here[1] + right
                if new in union and new not in links and (new[0] not in sources or new[1] not in targets):
                    links.add(new)
                    sources.add(new[0])
                    targets.add(new[1])
                    insort(ordered, new)
                    # what comes in further on is visited in this pass, what comes in before in the next
                    place += new < here
                    growing = True
            place += 1


# --- quality ---


@dataclass(frozen=True)
class AlignmentScore:
    """
    Links against gold links, counted over all sentences (Och and Ney 2003).

    Args:
        precision: share of the links that are possible ones; 0 where there is no link.
        recall: share of the sure links that were found; 0 where there is none.
        aer: alignment error rate, 1 - (found sure + found possible) / (links + sure links); 0 is best.
    """

    sentences: int
    links: int
    sure: int
    possible: int
    precision: float
    recall: float
    aer: float


def alignment_error_rate(
    predicted: Iterable[Collection[Link]],
    sure: Iterable[Collection[Link]],
    possible: Iterable[Collection[Link]] | None = None,
) -> AlignmentScore:
    """
    Precision, recall and alignment error rate, one item for each sentence in each argument.

    Args:
        possible: further links that are no error; sure ones are always possible, and without it only they are.

    Raises:
        ValueError: the arguments differ in their number of sentences, or there is no link on either side to count.

    >>> alignment_error_rate([[(0, 0), (1, 1)]], [[(0, 0)]], [[(1, 1), (2, 2)]]).aer
    0.0
    """
    predicted, sure = list(predicted), list(sure)
    possible = [()] * len(sure) if possible is None else list(possible)
    if not len(predicted) == len(sure) == len(possible):
        raise ValueError(
            f"{len(predicted)} predicted sentences, {len(sure)} with sure and {len(possible)} with possible links: "
            "give one of each per sentence"
        )
    links = sures = possibles = found_sure = found_possible = 0
    for given, certain, allowed in zip(map(set, predicted), map(set, sure), map(set, possible), strict=True):
        allowed |= certain
        links, sures, possibles = links + len(given), sures + len(certain), possibles + len(allowed)
        found_sure += len(given & certain)
        found_possible += len(given & allowed)
    if not links + sures:
        raise ValueError("neither predicted nor sure links: there is no error rate of nothing")
    return AlignmentScore(
        sentences=len(sure),
        links=links,
        sure=sures,
        possible=possibles,
        precision=found_possible / max(1, links),
        recall=found_sure / max(1, sures),
        aer=1 - (found_sure + found_possible) / (links + sures),
    )


def parse_gold(line: str, one_based: bool = True) -> tuple[Links, Links]:
    """
    Sure and possible links of a line of gold alignments: `1-2` is sure, `3p4` possible.

    Raises:
        ValueError: an item is neither, or counts from 0 where words are counted from 1.
    """
    sure, possible, first = [], [], int(one_based)
    for item in line.split():
        match = _GOLD_LINK.fullmatch(item)
        if match is None or min(int(match[1]), int(match[3])) < first:
            raise ValueError(f"{item!r} is no gold link counted from {first}: write 1-2 (sure) or 3p4 (possible)")
        (sure if match[2] == "-" else possible).append((int(match[1]) - first, int(match[3]) - first))
    return sure, possible


__all__ = [
    "SYMMETRISATIONS",
    "WORD_RULES",
    "AlignmentScore",
    "LinkFormat",
    "alignment_error_rate",
    "check_word_rule",
    "format_links",
    "iter_links",
    "parse_gold",
    "parse_links",
    "split_words",
    "symmetrise",
    "word_spans",
]
