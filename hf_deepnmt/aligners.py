"""
Word aligners: eflomal and fast_align, both ways, over any number of sentence pairs.

Both are optional: `pip install "hf-deepnmt[align]"`. Words are lower-cased for them; rows with an empty side never reach
them and come back as empty rows. Links of a held-out text come from what was learned on the first one, never the other way
round.

- `eflomal` (Östling and Tiedemann 2016) samples, so two runs differ a little; it links nothing in sentences of 1024 words
  or more. Its package needs a C compiler to install, and is licensed under the GPL 3; it runs as a program of its own.
- `fast_align` (Dyer et al. 2013), in the package systran-align, gives the same links each time.
"""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, Any

import numpy as np
from tqdm import tqdm
from transformers.utils import logging

from .alignment import (
    LinkFormat,
    Links,
    check_word_rule,
    format_links,
    iter_links,
    parse_links,
    split_words,
    symmetrise,
    word_spans,
)
from .data import iter_lines, iter_pairs


logger = logging.get_logger(__name__)

Pair = tuple[str, str]
Directions = tuple[Links, Links]
_BATCH_ROWS = 1_000
_LONG_WORD = 12


def _package(module: str, package: str, aligner: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        others = ", ".join(name for name in ALIGNERS if name != aligner)
        raise ValueError(
            f"the aligner {aligner} needs the package {package}, which does not load ({error}): run "
            f"pip install {package}, or use {others} or a file of links made elsewhere"
        ) from error


def _open(path: Path, mode: str = "r") -> IO[str]:
    # only a line feed ends a line
    return path.open(mode, encoding="utf-8", newline="\n")


def _count_lines(path: Path) -> int:
    if not path.is_file():
        return 0
    with _open(path) as lines:
        return sum(1 for _ in lines)


@dataclass
class LinkCounts:
    """Rows of a text by what became of them: `rows` = `linked` + `empty` + `unlinked`; `links` in all."""

    rows: int = 0
    linked: int = 0
    empty: int = 0
    unlinked: int = 0
    links: int = 0

    def add(self, links: Links | None):
        """Counts a row, None for one with an empty side."""
        self.rows += 1
        self.empty += links is None
        self.unlinked += links == []
        self.linked += bool(links)
        self.links += len(links or ())

    def summary(self) -> str:
        return (
            f"{self.rows} rows: {self.linked} with {self.links} links, {self.unlinked} without a link, {self.empty} "
            "with an empty side"
        )

    def as_dict(self) -> dict[str, int]:
        return asdict(self)


class _Words:
    """A text in two files for the aligners: words joined by spaces, lower-cased; no rows with an empty side."""

    def __init__(self, pairs: Iterable[Pair], rule: str, stem: Path, name: str, progress: bool):
        self.name, self.stem = name, stem
        self.source, self.target = Path(f"{stem}.source"), Path(f"{stem}.target")
        # which rows of the text have words on both sides
        self.full = bytearray()
        sizes = {"source": [0, 0], "target": [0, 0]}
        with _open(self.source, "w") as source_file, _open(self.target, "w") as target_file:
            for pair in tqdm(pairs, desc=f"words of {name}", unit=" rows", disable=not progress):
                # the tools take ||| for the border between the sides
                source, target = (" ".join(split_words(text, rule)).lower().replace("|||", "|") for text in pair)
                self.full.append(bool(source and target))
                if self.full[-1]:
                    for size, text in zip(sizes.values(), (source, target), strict=True):
                        size[0] += text.count(" ") + 1
                        size[1] += len(text)
                    source_file.write(f"{source}\n")
                    target_file.write(f"{target}\n")
        for side, (words, characters) in sizes.items():
            if characters > _LONG_WORD * max(1, words):
                logger.warning(
                    f"the {side} side of {name} has words of more than {_LONG_WORD} characters on average: for text "
                    "without spaces use the rule `text`"
                )

    def __len__(self) -> int:
        return sum(self.full)

    def pairs(self) -> Iterator[Pair]:
        with _open(self.source) as source, _open(self.target) as target:
            for sides in zip(source, target, strict=True):
                yield sides[0].removesuffix("\n"), sides[1].removesuffix("\n")

    def with_empty_rows(self, rows: Iterator[Directions]) -> Iterator[Directions | None]:
        """A row for each of the text, None for those that were left out."""
        for is_full in self.full:
            yield next(rows) if is_full else None


class Eflomal:
    """eflomal with its default model and number of iterations, three samplers."""

    def __init__(self, folder: Path, progress: bool):
        self.folder, self.progress = folder, progress
        self.eflomal = _package("eflomal", "eflomal", "eflomal")

    def train(self, words: _Words):
        self.trained = words
        self._run(words, None)

    def links(self, words: _Words) -> Iterator[Directions]:
        if words is not self.trained:
            self._run(words, self._priors())
        with _open(self._output(words, "forward")) as forward, _open(self._output(words, "reverse")) as reverse:
            for lines in zip(forward, reverse, strict=True):
                yield parse_links(lines[0]), parse_links(lines[1])

    def _output(self, words: _Words, direction: str) -> Path:
        return Path(f"{words.stem}.{direction}")

    def _run(self, words: _Words, priors: Path | None):
        outputs = [self._output(words, direction) for direction in ("forward", "reverse")]
        files = {"links_filename_fwd": str(outputs[0]), "links_filename_rev": str(outputs[1])}
        with (
            _open(words.source) as source,
            _open(words.target) as target,
            _open(priors) if priors else nullcontext() as given,
        ):
            try:
                self.eflomal.Aligner().align(source, target, priors_input=given, quiet=not self.progress, **files)
            except SystemExit:
                raise FileNotFoundError(
                    "eflomal's program is missing: pip install --force-reinstall eflomal"
                ) from None
        # its binding does not look at what the program returns
        counts = [_count_lines(output) for output in outputs]
        if counts != [len(words), len(words)]:
            raise ChildProcessError(
                f"eflomal stopped early on {words.name}: {counts[0]} and {counts[1]} rows of {len(words)}; is there "
                "enough memory?"
            )

    def _priors(self) -> Path:
        """What the training text says of words, fertilities and jumps, as a file."""
        path, words = self.folder / "priors", self.trained
        if not path.is_file():
            outputs = [_open(self._output(words, direction)) for direction in ("forward", "reverse")]
            with _open(words.source) as source, _open(words.target) as target, outputs[0], outputs[1]:
                priors = self.eflomal.calculate_priors(source, target, *outputs)
            with _open(path, "w") as file:
                self.eflomal.write_priors(file, *priors)
        return path


class FastAlign:
    """
    fast_align with its recommended options (favouring the diagonal, tuning how much, variational Bayes).

    The package only gives both directions in one, so each is decoded here from the tables that it writes.
    """

    def __init__(self, folder: Path, progress: bool):
        self.folder, self.progress = folder, progress
        self.package = _package("systran_align", "systran-align", "fast_align")

    def train(self, words: _Words):
        text, *tables = (self.folder / name for name in ("text", "forward.table", "reverse.table"))
        with _open(text, "w") as file:
            file.writelines(f"{source} ||| {target}\n" for source, target in words.pairs())
        options = {"favor_diagonal": True, "optimize_tension": True, "variational_bayes": True}
        self.package.generate_alignment_probabilities(str(text), *map(str, tables), verbose=self.progress, **options)
        self.tables = [WordTable(table) for table in tables]

    def links(self, words: _Words) -> Iterator[Directions]:
        forward, reverse = self.tables
        pairs = ((source.split(), target.split()) for source, target in words.pairs())
        bar = tqdm(pairs, desc=f"links of {words.name}", unit=" rows", total=len(words), disable=not self.progress)
        for batch in _batches(bar, _BATCH_ROWS):
            backward = reverse.best_links([(target, source) for source, target in batch])
            for links, turned in zip(forward.best_links(batch), backward, strict=True):
                yield links, [(i, j) for j, i in turned]


def _batches(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    batch = []
    for item in items:
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


class WordTable:
    """
    Translation probabilities of fast_align, as systran-align writes them, and the best links under its model.

    p(target word j comes from source word i) is `NOT_NULL` x table[source word, target word] x d(i, j), with d
    proportional to exp(-`TENSION` x |i / I - j / J|) over the source words; from no word, 1 - `NOT_NULL` x table[<eps>,
    target word] (Dyer et al. 2013, equations 1 to 3).
    """

    VERSION = 2
    NULL_WORD = "<eps>"
    NOT_NULL = 0.92
    TENSION = 4.0
    UNSEEN = 1e-9

    def __init__(self, path: Path):
        data = path.read_bytes()
        version, size = np.frombuffer(data, "<i4", count=2).tolist()
        if version != self.VERSION:
            raise ValueError(
                f"systran-align writes tables of version {version}, this package reads version {self.VERSION}: pip "
                "install systran-align==3.5.0"
            )
        *words, rest = data[8:].split(b"\0", size)
        # ids count from 1
        self.ids = {word.decode(): number for number, word in enumerate(words, start=1)}
        self.width = size + 1
        numbers = np.frombuffer(rest, "<i4", offset=4, count=len(rest) // 4 - 1)
        keys, chances, place = [], [], 0
        while place < len(numbers):
            source, count = numbers[place : place + 2].tolist()
            entries = numbers[place + 2 : place + 2 + 2 * count].reshape(-1, 2)
            keys.append(source * self.width + entries[:, 0].astype(np.int64))
            chances.append(np.ascontiguousarray(entries[:, 1]).view("<f4"))
            place += 2 + 2 * count
        keys, chances = np.concatenate(keys), np.concatenate(chances)
        order = np.argsort(keys)
        self.keys, self.chances = keys[order], chances[order].astype(np.float64)

    def _lookup(self, keys: np.ndarray) -> np.ndarray:
        places = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[places] == keys, self.chances[places], self.UNSEEN)

    def best_links(self, pairs: list[tuple[list[str], list[str]]]) -> Iterator[Links]:
        """For each pair of word lists the links (i, j), at most one for each target word."""
        null, numbers = self.ids.get(self.NULL_WORD, 0), []
        for source, target in pairs:
            # a row of the table for each source word, the null word first
            rows = np.array([null, *(self.ids.get(word, 0) for word in source)], dtype=np.int64)
            columns = np.array([self.ids.get(word, 0) for word in target], dtype=np.int64)
            numbers.append((rows[:, None] * self.width + columns).ravel())
        chances = self._lookup(np.concatenate(numbers))
        place = 0
        for source, target in pairs:
            size = (len(source) + 1) * len(target)
            grid = chances[place : place + size].reshape(len(source) + 1, len(target))
            place += size
            scores = grid * self._weights(len(source), len(target))
            best = scores.argmax(axis=0).tolist()
            yield [(i - 1, j) for j, i in enumerate(best) if i]

    @classmethod
    @functools.lru_cache(maxsize=4096)
    def _weights(cls, source: int, target: int) -> np.ndarray:
        """(source + 1, target): the chance of no word first, then of each source word."""
        places = np.arange(1, source + 1)[:, None] / source - np.arange(1, target + 1) / target
        diagonal = np.exp(-cls.TENSION * np.abs(places))
        diagonal *= cls.NOT_NULL / diagonal.sum(axis=0)
        return np.concatenate([np.full((1, target), 1 - cls.NOT_NULL), diagonal])


ALIGNERS = {"eflomal": Eflomal, "fast_align": FastAlign}


def check_aligner(name: str):
    """
    Raises:
        ValueError: there is no such aligner, or its package is not installed.
    """
    if name not in ALIGNERS:
        raise ValueError(f"the aligner is one of {', '.join(ALIGNERS)}, not {name!r}")
    with tempfile.TemporaryDirectory() as folder:
        ALIGNERS[name](Path(folder), False)


def write_links(
    texts: Mapping[str, Iterable[Pair]],
    outputs: Mapping[str, str | Path],
    *,
    aligner: str = "eflomal",
    words: str = "spaces",
    symmetrisation: str = "grow-diag-final-and",
    directions: bool = False,
    progress: bool = False,
) -> dict[str, LinkCounts]:
    """
    Align texts and write their links, a line for each pair, in Pharaoh format.

    Args:
        texts: sentence pairs by name, read once. The aligner learns from the first text; the others are aligned with
            what it learned.
        outputs: the file for each text.
        words: the rule that gives the words, of `alignment.WORD_RULES`.
        symmetrisation: of `alignment.SYMMETRISATIONS`.
        directions: also write `OUTPUT.forward` and `OUTPUT.reverse`, what the aligner gives before symmetrisation.
        progress: the tool's messages and a bar on standard error.

    Returns:
        The counts of each text. Files are whole or not there.

    Raises:
        ValueError: an option has no such value, the aligner is not installed, an output ends in `.gz`, or no pair of the
            first text has words on both sides.
        OSError: the aligner failed.
    """
    check_word_rule(words)
    check_aligner(aligner)
    # refuses an unknown method before the work
    symmetrise((), (), symmetrisation)
    files = {name: _link_files(output, directions) for name, output in outputs.items()}
    counts = {}
    with tempfile.TemporaryDirectory() as folder:
        tool = None
        for name, pairs in texts.items():
            text = _Words(pairs, words, Path(folder, str(len(counts))), name, progress)
            if tool is None:
                if not len(text):
                    raise ValueError(f"no pair of {name} has words on both sides: there is nothing to align")
                tool = ALIGNERS[aligner](Path(folder), progress)
                tool.train(text)
            rows = text.with_empty_rows(iter(tool.links(text) if len(text) else ()))
            counts[name] = _write(rows, files[name], symmetrisation)
    return counts


def refuse_overwriting(inputs: Iterable[str | Path], output: str | Path, directions: bool = False):
    """
    Raise where links would be written over a file that they are made from.

    Raises:
        ValueError: `output`, or with `directions` one of the files beside it, is among `inputs`; names it.
    """
    written = [file.resolve() for file in _link_files(output, directions)]
    for path in inputs:
        if Path(path).resolve() in written:
            raise ValueError(f"{path} is read, and the links would overwrite it: give another output")


def convert_links(
    source: str | Path,
    target: str | Path,
    links: Sequence[str | Path],
    output: str | Path,
    link_format: LinkFormat | None = None,
    *,
    symmetrisation: str = "grow-diag-final-and",
) -> LinkCounts:
    """
    Check files of links made elsewhere against their text and write them source first, from 0 and sorted.

    Args:
        source, target: line-aligned text files.
        links: one file of links, or two, the forward and the reverse direction, which are symmetrised.
        link_format: how the files are written.

    Raises:
        ValueError: a file has more or fewer lines than the text, or a link is outside its pair; names file and row. The
            output is one of the files that are read, or ends in `.gz`.
    """
    if len(links) not in (1, 2):
        raise ValueError(f"{len(links)} files of links: give one, or the forward and the reverse direction")
    link_format = link_format or LinkFormat()

    def pairs() -> Iterator[Pair]:
        names = {"source_lang": "source", "target_lang": "target"}
        return iter_pairs(source, target, format="lines", on_blank="keep", **names)

    def rows() -> Iterator[Directions | None]:
        files = [iter_links(iter_lines(path), pairs(), link_format, str(path)) for path in links]
        for pair, *found in zip(pairs(), *files, strict=True):
            yield (found[0], found[-1]) if all(word_spans(text, link_format.words) for text in pair) else None

    refuse_overwriting((source, target, *links), output)
    return _write(rows(), _link_files(output, directions=False), symmetrisation if len(links) == 2 else "union")


def _link_files(output: str | Path, directions: bool) -> list[Path]:
    """The files of links: symmetrised and, with `directions`, forward and reverse."""
    if Path(output).suffix == ".gz":
        raise ValueError(f"{output}: links are written as plain text; give a name without .gz")
    return [Path(f"{output}{ending}") for ending in ("", ".forward", ".reverse")[: 3 if directions else 1]]


def _write(rows: Iterable[Directions | None], finals: list[Path], symmetrisation: str) -> LinkCounts:
    counts = LinkCounts()
    finals[0].parent.mkdir(parents=True, exist_ok=True)
    parts = [path.with_name(f"{path.name}.part") for path in finals]
    files = [_open(part, "w") for part in parts]
    try:
        for row in rows:
            links = None if row is None else symmetrise(*row, symmetrisation)
            counts.add(links)
            for file, kept in zip(files, (links or [], *(row or ([], []))), strict=False):
                file.write(f"{format_links(kept)}\n")
        for file in files:
            file.close()
        for part, path in zip(parts, finals, strict=True):
            os.replace(part, path)
    finally:
        for file, part in zip(files, parts, strict=True):
            file.close()
            part.unlink(missing_ok=True)
    return counts


__all__ = [
    "ALIGNERS",
    "LinkCounts",
    "WordTable",
    "check_aligner",
    "convert_links",
    "refuse_overwriting",
    "write_links",
]
