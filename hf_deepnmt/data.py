"""Parallel text in: reading, checking, cleaning, splitting and tokenising sentence pairs.

A data set of pairs is a `datasets.Dataset` with one column `translation` holding `{source language: ..., target
language: ...}`. Each step streams through an Arrow file in bounded batches, so memory does not grow with the corpus
(removing duplicates needs 8 bytes per pair, about 25 while sorting). Nothing disappears silently: pass a `DataReport`
as `report=` to any step and it counts what was dropped, what was changed and in which rows.

Rows are numbered from 1: by line for text files, by position for data sets.
"""

from __future__ import annotations

import codecs
import csv
import functools
import gzip
import itertools
import json
import pickle
import re
import tempfile
import unicodedata
import uuid
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, KeysView, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from datasets import Dataset, DatasetDict, Features, List, Translation, Value
from transformers.utils import logging

from .alignment import LinkFormat, check_word_rule, format_links, word_spans
from .target_order import NO_POSITION, TARGET_POSITIONS, TargetOrder, target_positions


if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

logger = logging.get_logger(__name__)

Pair = tuple[str, str]

_BLOCK_BYTES = 1 << 20
_BATCH_ROWS = 2_000
_ROWS_SHOWN = 5
_RECORD_ROWS = 20_000
_MAPPED_ROWS = 100_000
_FORMATS = {".tsv": "tsv", ".tab": "tsv", ".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}
ALIGNMENT = "alignment"
_SOURCE_NAMES = ("source", "src")
_TARGET_NAMES = ("target", "tgt", "trg")
_LINE_BREAKS = re.compile("[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_LANGUAGE_CODE = re.compile("[a-z]{2,3}([-_][A-Za-z]{2,4})?")
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


@dataclass
class DataReport:
    """What happened to the pairs: `read` always equals `kept` plus everything in `dropped`.

    Args:
        kept: pairs that are left.
        dropped: reason to number of pairs removed.
        noticed: reason to number of pairs kept that were changed or are remarkable.
        rows: reason to its first few row numbers, in the input of the step that gave the reason.
        counts: token counts of `tokenize_pairs`.
        notes: remarks on whole files, such as a byte-order mark.
    """

    kept: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    noticed: dict[str, int] = field(default_factory=dict)
    rows: dict[str, list[int]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def read(self) -> int:
        return self.kept + sum(self.dropped.values())

    def drop(self, reason: str, row: int) -> None:
        self._count(self.dropped, reason, row)

    def notice(self, reason: str, row: int) -> None:
        self._count(self.noticed, reason, row)

    def _count(self, table: dict[str, int], reason: str, row: int) -> None:
        table[reason] = table.get(reason, 0) + 1
        rows = self.rows.setdefault(reason, [])
        if len(rows) < _ROWS_SHOWN:
            rows.append(row)

    def merge(self, other: DataReport) -> DataReport:
        """Adds the report of other pairs (another file, another batch) and returns self."""
        self.kept += other.kept
        return self._add(other)

    def then(self, step: DataReport) -> DataReport:
        """Adds the report of a later step over the pairs this one kept and returns self.

        Raises:
            ValueError: the step did not read as many pairs as this report kept.
        """
        if self.read and step.read != self.kept:
            raise ValueError(
                f"this report ends with {self.kept} pairs but the next step read {step.read}: it belongs to another "
                "data set; pass a new DataReport()"
            )
        self.kept = step.kept
        return self._add(step)

    def _add(self, other: DataReport) -> DataReport:
        for name in ("dropped", "noticed", "counts"):
            table = getattr(self, name)
            for reason, count in getattr(other, name).items():
                table[reason] = table.get(reason, 0) + count
        for reason, rows in other.rows.items():
            self.rows[reason] = (self.rows.get(reason, []) + rows)[:_ROWS_SHOWN]
        self.notes += [note for note in other.notes if note not in self.notes]
        return self

    def share_unknown(self, side: str) -> float:
        """Share of `<unk>` among the tokens of one side ("source" or "target"), 0 before tokenising."""
        return self.counts.get(f"unknown {side} tokens", 0) / max(1, self.counts.get(f"{side} tokens", 0))

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready fields, `read` included."""
        return {"read": self.read, **asdict(self)}

    def summary(self) -> str:
        """One paragraph for people."""

        def listing(table: dict[str, int]) -> str:
            items = []
            for reason, count in table.items():
                rows = ", ".join(map(str, self.rows.get(reason, [])))
                more = ", ..." if count > len(self.rows.get(reason, [])) else ""
                items.append(f"{count} {reason} (rows {rows}{more})" if rows else f"{count} {reason}")
            return "; ".join(items)

        parts = [f"{self.read} pairs read, {self.kept} kept, {sum(self.dropped.values())} dropped"]
        parts += [f"Dropped: {listing(self.dropped)}"] if self.dropped else []
        parts += [f"Kept but noticed: {listing(self.noticed)}"] if self.noticed else []
        if self.counts:
            parts.append(
                f"Tokens: {self.counts.get('source tokens', 0)} source ({self.share_unknown('source'):.4%} unknown), "
                f"{self.counts.get('target tokens', 0)} target ({self.share_unknown('target'):.4%} unknown)"
            )
        return ". ".join(parts + self.notes) + "."


def _finish(what: str, step: DataReport, report: DataReport | None) -> None:
    if report is not None:
        report.then(step)
    if not step.kept:
        raise ValueError(f"{what}: no pair is left. {step.summary()}")
    log = logger.warning if step.dropped or step.noticed or step.notes else logger.info
    log(f"{what}: {step.summary()}")


# Bytes and lines


def _open_binary(path: Path) -> BinaryIO:
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file")
    if not path.is_file():
        raise IsADirectoryError(f"{path}: a directory or device, not a regular file; give the path of a text file")
    with path.open("rb") as stream:
        magic = stream.read(2)
    if not magic:
        raise ValueError(f"{path}: the file is empty")
    if magic == b"\x1f\x8b":
        return gzip.open(path, "rb")
    if path.suffix == ".gz":
        raise ValueError(f"{path}: named .gz but not compressed with gzip; rename it or compress it")
    return path.open("rb")


def _byte_blocks(path: Path) -> Iterator[bytes]:
    """The file's bytes, decompressed, without a UTF-8 byte-order mark."""
    with _open_binary(path) as stream:
        first = True
        while True:
            try:
                block = stream.read(_BLOCK_BYTES)
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise ValueError(f"{path}: truncated or damaged gzip data ({error}); fetch it again") from error
            if not block:
                return
            yield block.removeprefix(codecs.BOM_UTF8) if first else block
            first = False


def _has_byte_order_mark(path: Path) -> bool:
    with _open_binary(path) as stream:
        try:
            return stream.read(3) == codecs.BOM_UTF8
        except (EOFError, zlib.error, gzip.BadGzipFile):
            # reading the text reports the damage
            return False


def count_lines(path: str | Path) -> int:
    """Number of lines, where `\\n` alone ends a line and an unfinished last line counts."""
    lines, last = 0, b"\n"
    for block in _byte_blocks(Path(path)):
        lines += block.count(b"\n")
        last = block[-1:] or last
    return lines + (last != b"\n")


def iter_lines(path: str | Path) -> Iterator[str]:
    """Lines of a UTF-8 file, plain or gzip, without their ends; errors as in `read_parallel`."""
    return _lines(Path(path), DataReport())


def _text_blocks(path: Path, report: DataReport) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    line, offset = 1, 0
    if _has_byte_order_mark(path):
        report.notes.append(f"{path}: byte-order mark stripped")
        offset = len(codecs.BOM_UTF8)
    for block in itertools.chain(_byte_blocks(path), [b""]):
        pending = len(decoder.getstate()[0])
        try:
            text = decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            line += error.object[: error.start].count(b"\n")
            raise ValueError(
                f"{path}, line {line}, byte offset {offset - pending + error.start}: not UTF-8 ({error.reason}); "
                f"convert the file, for example with: iconv -f LATIN1 -t UTF-8 (or -f UTF-16)"
            ) from None
        if "\0" in text:
            line += text[: text.index("\0")].count("\n")
            raise ValueError(
                f"{path}, line {line}: contains a NUL byte, so it is UTF-16 or not text; "
                "convert the file, for example with: iconv -f UTF-16 -t UTF-8"
            )
        line += text.count("\n")
        offset += len(block)
        yield text


def _lines(path: Path, report: DataReport, keep_ends: bool = False) -> Iterator[str]:
    rest = ""
    for text in _text_blocks(path, report):
        lines = (rest + text).split("\n")
        rest = lines.pop()
        if keep_ends:
            yield from (line + "\n" for line in lines)
        else:
            yield from (line.removesuffix("\r") for line in lines)
    if rest:
        yield rest if keep_ends else rest.removesuffix("\r")


# Rows of each file format: (row number, [source, target, *extra columns])


@dataclass(frozen=True)
class _Options:
    source_lang: str | None = None
    target_lang: str | None = None
    delimiter: str | None = None
    header: bool | None = None
    columns: tuple[str | int, str | int] | None = None
    extra_columns: tuple[str, ...] = ()
    alignment: Path | None = None
    link_format: LinkFormat = LinkFormat()
    on_blank: str = "drop"
    on_incomplete: str = "error"

    def __post_init__(self) -> None:
        _check_choice("on_blank", self.on_blank, ("drop", "keep", "error"))
        _check_choice("on_incomplete", self.on_incomplete, ("error", "skip"))
        if self.source_lang is not None and self.source_lang == self.target_lang:
            raise ValueError(f"source_lang and target_lang are both {self.source_lang!r}: they name two columns")

    def languages(self, source: str = "source", target: str = "target") -> Pair:
        languages = self.source_lang or source, self.target_lang or target
        if languages[0] == languages[1]:
            raise ValueError(f"both sides are named {languages[0]!r}; pass different source_lang and target_lang")
        return languages


@dataclass(frozen=True)
class _Reading:
    languages: Pair
    rows: Iterator[tuple[int, Sequence[str]]]


def _check_choice(name: str, value: Any, choices: Sequence[Any]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")


def _language_suffix(path: Path) -> str:
    suffix = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    return "" if suffix == ".txt" else suffix.removeprefix(".")


def _open_lines(paths: Sequence[Path], options: _Options, report: DataReport) -> _Reading:
    source, target = _language_suffix(paths[0]), _language_suffix(paths[1])
    languages = options.languages(source, target) if source and target else options.languages()
    paths = [*paths, options.alignment] if options.alignment else list(paths)
    counts = [count_lines(path) for path in paths]
    if len(set(counts)) > 1:
        listing = ", ".join(f"{path} has {count} lines" for path, count in zip(paths, counts, strict=True))
        raise ValueError(f"line-aligned files differ in length: {listing}; line n of each must be one pair")
    rows = enumerate(zip(*(_lines(path, report) for path in paths), strict=True), start=1)
    return _Reading(languages, _checked_links(rows, options) if options.alignment else rows)


def _checked_links(rows: Iterable[tuple[int, Sequence[str]]], options: _Options) -> Iterator[tuple[int, list[str]]]:
    for number, (source, target, line) in rows:
        links = options.link_format.read(line, source, target, f"{options.alignment}, row {number}")
        yield number, [source, target, format_links(links)]


def _table_rows(path: Path, delimiter: str, quoted: bool, report: DataReport) -> Iterator[tuple[int, list[str]]]:
    if not quoted:
        yield from ((n, line.split(delimiter)) for n, line in enumerate(_lines(path, report), start=1))
        return
    reader = csv.reader(_lines(path, report, keep_ends=True), delimiter=delimiter, strict=True)
    try:
        for cells in reader:
            yield reader.line_num, cells
    except csv.Error as error:
        problem = "carriage return in an unquoted cell" if "new-line" in str(error) else str(error)
        raise ValueError(
            f"{path}, row at line {reader.line_num}: not valid CSV ({problem}); quote the cell and double its quotes"
        ) from error


def _is_header(names: Sequence[str], options: _Options) -> bool:
    sources = {name.casefold() for name in (options.source_lang, *_SOURCE_NAMES) if name}
    targets = {name.casefold() for name in (options.target_lang, *_TARGET_NAMES) if name}
    folded = [name.strip().casefold() for name in names]
    return any(name in sources for name in folded) and any(name in targets for name in folded)


def _find_column(path: Path, names: Sequence[str], wanted: str | None, generic: Sequence[str]) -> int:
    folded = [name.strip().casefold() for name in names]
    for name in (wanted, *generic):
        if name and folded.count(name.casefold()) > 1:
            raise ValueError(f"{path}: several columns are named {name!r}; pass columns= with positions")
        if name and name.casefold() in folded:
            return folded.index(name.casefold())
    raise ValueError(f"{path}: no column {wanted or generic[0]!r} in the header {list(names)}; pass columns=")


def _choose_columns(path: Path, cells: Sequence[str], header: bool, options: _Options) -> tuple[int, int]:
    """Positions of the two sides in a row; `cells` is the first row."""
    if options.columns is not None:
        if not header and any(isinstance(column, str) for column in options.columns):
            raise ValueError(f"{path}: columns={options.columns} are names but the file has no header; use positions")
        chosen = [_find_column(path, cells, c, ()) if isinstance(c, str) else c for c in options.columns]
        if not all(0 <= column < len(cells) for column in chosen) or chosen[0] == chosen[1]:
            raise ValueError(f"{path}: columns={options.columns} do not name two of the {len(cells)} columns")
        return chosen[0], chosen[1]
    if header and (_is_header(cells, options) or len(cells) != 2 or options.source_lang or options.target_lang):
        source = _find_column(path, cells, options.source_lang, _SOURCE_NAMES)
        return source, _find_column(path, cells, options.target_lang, _TARGET_NAMES)
    if len(cells) != 2:
        raise ValueError(
            f"{path}, row 1: {len(cells)} columns and no header that names the two sides; "
            "expected 2 columns, or pass columns=(0, 1) or header=True, or delimiter="
        )
    return 0, 1


def _open_table(path: Path, options: _Options, report: DataReport, quoted: bool) -> _Reading:
    rows = _table_rows(path, options.delimiter or ("," if quoted else "\t"), quoted, report)
    number, cells = next(rows, (0, []))
    if not number:
        raise ValueError(f"{path}: the file holds no row")
    header = _is_header(cells, options) if options.header is None else options.header
    chosen = list(_choose_columns(path, cells, header, options))
    languages = options.languages(*(cells[column].strip() for column in chosen)) if header else options.languages()
    if options.extra_columns and not header:
        raise ValueError(f"{path}: extra_columns={list(options.extra_columns)} need a header line")
    chosen += [_find_column(path, cells, name, ()) for name in options.extra_columns]
    unread = [cells[i] if header else f"number {i}" for i in range(len(cells)) if i not in chosen]
    if unread:
        report.notes.append(f"{path}: columns not read: {', '.join(unread)}")
    if not header:
        if options.header is None and all(_LANGUAGE_CODE.fullmatch(cell) for cell in cells):
            report.notes.append(f"{path}: row 1, {cells}, is read as a pair; pass header=True if it is a header")
        rows = itertools.chain([(number, cells)], rows)
    return _Reading(languages, _pick_cells(path, rows, chosen, len(cells), quoted))


def _pick_cells(
    path: Path, rows: Iterable[tuple[int, list[str]]], chosen: Sequence[int], width: int, quoted: bool
) -> Iterator[tuple[int, list[str]]]:
    blank = [""] * len(chosen)
    remedy = "quote cells that contain the delimiter" if quoted else "remove tabs inside sentences"
    for number, cells in rows:
        if len(cells) == width:
            yield number, [cells[column] for column in chosen]
        elif not any(cells) and len(cells) < 2:
            yield number, blank
        else:
            raise ValueError(f"{path}, row at line {number}: {len(cells)} columns, expected {width}; {remedy}")


def _unique_keys(items: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(items)
    if len(row) < len(items):
        names = [name for name, _ in items]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} stands twice in one object")
    return row


def _json_array(path: Path, blocks: Iterator[str]) -> Iterator[tuple[int, Any]]:
    """Items of a JSON array without holding the file; gives up on an item above 16 MiB."""
    decode, space = json.JSONDecoder(object_pairs_hook=_unique_keys).raw_decode, re.compile(r"[\s,]*")
    buffer, position, number = next(blocks).lstrip(), 1, 1
    while True:
        position = space.match(buffer, position).end()
        if buffer.startswith("]", position):
            if any(text.strip() for text in itertools.chain([buffer[position + 1 :]], blocks)):
                raise ValueError(f"{path}: text after the end of the array, behind item {number - 1}; keep one array")
            return
        try:
            value, position = decode(buffer, position)
        except (json.JSONDecodeError, RecursionError) as error:
            more = next(blocks, "")
            if not more or len(buffer) - position > 16 * _BLOCK_BYTES:
                raise ValueError(f"{path}, item {number}: not valid JSON ({error})") from error
            buffer, position = buffer[position:] + more, 0
            continue
        except ValueError as error:
            raise ValueError(f"{path}, item {number}: {error}; keep one") from None
        yield number, value
        number += 1


def _json_values(path: Path, report: DataReport) -> Iterator[tuple[int, Any]]:
    if next(_text_blocks(path, DataReport()), "").lstrip().startswith("["):
        yield from _json_array(path, _text_blocks(path, report))
        return
    for number, line in enumerate(_lines(path, report), start=1):
        if not line.strip():
            continue
        try:
            yield number, json.loads(line, object_pairs_hook=_unique_keys)
        except (json.JSONDecodeError, RecursionError) as error:
            raise ValueError(
                f"{path}, line {number}: not valid JSON ({error}); expected one object per line or one array"
            ) from error
        except ValueError as error:
            raise ValueError(f"{path}, row {number}: {error}; keep one") from None


def _side_keys(path: Path, row: dict[str, Any], options: _Options) -> Pair:
    """Names under which the first row holds source and target."""
    sides = row.get("translation", row) or {}
    languages = options.source_lang, options.target_lang
    found = [
        next((name for name in (language, *generic) if name and name in sides), language)
        for language, generic in zip(languages, (_SOURCE_NAMES, _TARGET_NAMES), strict=True)
    ]
    if None in found and len(sides) == 2 and languages == (None, None):
        found = list(sides)
    if None in found:
        raise ValueError(f"{path}, row 1: cannot tell the sides among {list(sides)}; pass source_lang, target_lang")
    return found[0], found[1]


def _open_json(path: Path, options: _Options, report: DataReport) -> _Reading:
    values = _json_values(path, report)
    first = next(values, None)
    if first is None:
        raise ValueError(f"{path}: the file holds no row")
    if not isinstance(first[1], dict):
        raise ValueError(f"{path}, row {first[0]}: expected an object, got {type(first[1]).__name__}")
    keys = _side_keys(path, first[1], options)
    sides = first[1].get("translation") or first[1]
    read = {*keys, *options.extra_columns, "translation"}
    unread = [key for key in dict.fromkeys([*sides, *first[1]]) if key not in read]
    if unread:
        report.notes.append(f"{path}: columns not read: {', '.join(unread)}")
    rows = _json_rows(path, itertools.chain([first], values), keys, options, report)
    return _Reading(options.languages(*keys), rows)


def _json_rows(
    path: Path, values: Iterable[tuple[int, Any]], keys: Pair, options: _Options, report: DataReport
) -> Iterator[tuple[int, list[str]]]:
    for number, value in values:
        cells, problem = [], "" if isinstance(value, dict) else "row is not an object"
        if not problem:
            sides = value.get("translation", value)
            sides = sides if isinstance(sides, dict) else {}
            cells = [sides.get(key) for key in keys] + [value.get(name) for name in options.extra_columns]
            names = itertools.chain(keys, options.extra_columns)
            problem = next(filter(None, map(_json_problem, names, cells)), "")
        if not problem:
            yield number, cells
        elif options.on_incomplete == "skip":
            report.drop(problem, number)
        else:
            raise ValueError(f'{path}, row {number}: {problem}; complete it or pass on_incomplete="skip"')


def _json_problem(name: str, cell: Any) -> str:
    if isinstance(cell, str):
        return ""
    return f"{name!r} is missing or null" if cell is None else f"{name!r} is not a string"


def _open_reading(paths: Sequence[Path], kind: str, options: _Options, report: DataReport) -> _Reading:
    if kind == "lines":
        return _open_lines(paths, options, report)
    if kind == "json":
        return _open_json(paths[0], options, report)
    return _open_table(paths[0], options, report, quoted=kind == "csv")


def _plan(paths: Sequence[str | Path], kind: str | None) -> list[tuple[list[Path], str]]:
    """Groups of files that are read together, with their format."""
    files = [Path(path) for path in paths]
    if kind is not None:
        _check_choice("format", kind, ("lines", "tsv", "csv", "json"))
    kinds = [kind or _FORMATS.get("." + _language_suffix(path)) for path in files]
    if files and all(k in ("tsv", "csv", "json") for k in kinds):
        return [([path], k) for path, k in zip(files, kinds, strict=True)]
    if len(files) == 2 and kinds in (["lines"] * 2, [None] * 2):
        return [(files, "lines")]
    for path in files:
        _open_binary(path).close()
    raise ValueError(
        f"cannot tell how to read {', '.join(map(str, files)) or 'no file'}: give two line-aligned files, or files "
        f"ending in {', '.join(_FORMATS)} (each also with .gz), or pass format="
    )


Row = tuple[int, Sequence[str]]


def _screened(reading: _Reading, where: str, options: _Options, report: DataReport) -> Iterator[Row]:
    """Rows without blank sides, counted."""
    for number, cells in reading.rows:
        source, target = cells[0], cells[1]
        if not source.strip() or not target.strip():
            reason = "blank source" if target.strip() else "blank target" if source.strip() else "blank pair"
            if options.on_blank == "error":
                raise ValueError(f'{where}, row {number}: {reason}; fill it or pass on_blank="drop"')
            if options.on_blank == "drop":
                report.drop(reason, number)
                continue
            report.notice(reason, number)
        if _LINE_BREAKS.search(source) or _LINE_BREAKS.search(target):
            report.notice("line-break character inside a sentence", number)
        report.kept += 1
        yield number, cells


def iter_pairs(
    *paths: str | Path, format: str | None = None, report: DataReport | None = None, **options: Any
) -> Iterator[Pair]:
    """Streams `(source, target)` from files; arguments and errors as in `read_parallel`.

    Files are opened and line counts compared at once; `report` is complete when the iterator is exhausted.
    """
    options = _Options(**options)
    report = DataReport() if report is None else report
    readings = [(files, _open_reading(files, kind, options, report)) for files, kind in _plan(paths, format)]
    return (
        (cells[0], cells[1])
        for files, reading in readings
        for _, cells in _screened(reading, str(files[0]), options, report)
    )


def read_parallel(
    *paths: str | Path,
    source_lang: str | None = None,
    target_lang: str | None = None,
    format: str | None = None,
    alignment: str | Path | None = None,
    link_format: LinkFormat | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    columns: tuple[str | int, str | int] | None = None,
    extra_columns: Sequence[str] = (),
    on_blank: str = "drop",
    on_incomplete: str = "error",
    cache_dir: str | Path | None = None,
    report: DataReport | None = None,
) -> Dataset:
    """Reads sentence pairs from text files, plain or gzip, into an Arrow file.

    Two files are line-aligned; a `.tsv`, `.csv`, `.json`, `.jsonl` or `.ndjson` file holds both sides, and several
    such files are read one after the other. Only `\\n` and `\\r\\n` end a line. Text is kept character for character.

    Args:
        paths: `train.de train.en`, or table files.
        source_lang: Name of the source column; by default the file ending, the header or the first JSON row tells.
        target_lang: Likewise for the target.
        format: "lines", "tsv" (no quoting), "csv" (CSV quoting) or "json" when the file names do not tell.
        alignment: A third line-aligned file of word links, checked against the words of its pair and kept as Pharaoh
            format in the string column `alignment`.
        link_format: How that file counts words and writes links.
        delimiter: Column separator of TSV and CSV files.
        header: Whether TSV and CSV files start with column names; by default they do when the first row names the
            two languages or source/src and target/tgt/trg.
        columns: Names or positions (from 0) of source and target in TSV and CSV files.
        extra_columns: Further named columns to keep as strings.
        on_blank: What to do with a pair that has a blank side: "drop" (both sides), "keep" or "error".
        on_incomplete: What to do with a JSON row that lacks a side: "error" or "skip".
        cache_dir: Folder of the Arrow file; by default a temporary one that lives as long as the process.
        report: Filled with what was read and dropped.

    Raises:
        FileNotFoundError, IsADirectoryError: a path is not a file.
        ValueError: unequal line counts, text that is not UTF-8, damaged gzip, malformed rows, links outside their pair,
            nothing left.

    Example:
        >>> report = DataReport()
        >>> pairs = read_parallel("train.de.gz", "train.en.gz", report=report)  # doctest: +SKIP
        >>> pairs[0]["translation"]  # doctest: +SKIP
        {'de': 'Guten Tag .', 'en': 'Good day .'}
    """
    options = _Options(
        source_lang=source_lang,
        target_lang=target_lang,
        delimiter=delimiter,
        header=header,
        columns=columns,
        extra_columns=tuple(extra_columns),
        alignment=Path(alignment) if alignment else None,
        link_format=link_format or LinkFormat(),
        on_blank=on_blank,
        on_incomplete=on_incomplete,
    )
    plan, step = _plan(paths, format), DataReport()
    if alignment and plan[0][1] != "lines":
        raise ValueError("alignment= goes with two line-aligned files; use extra_columns= for tables")
    readings = [(str(files[0]), _open_reading(files, kind, options, step)) for files, kind in plan]
    found = {reading.languages for _, reading in readings}
    if len(found) > 1:
        raise ValueError(f"the files differ in languages: {sorted(found)}; pass source_lang and target_lang")
    extras = [ALIGNMENT] if alignment else list(extra_columns)
    result = _write_readings(readings, extras, options, cache_dir, step)
    _finish(", ".join(map(str, paths)), step, report)
    return result


def write_pairs(
    pairs: Iterable[Pair],
    source_lang: str,
    target_lang: str,
    *,
    name: str = "pairs",
    on_blank: str = "drop",
    cache_dir: str | Path | None = None,
    report: DataReport | None = None,
) -> Dataset:
    """Streams `(source, target)` pairs into a data set; the counterpart of `iter_pairs`.

    Args:
        name: What the pairs are called in errors and logs.
        on_blank, cache_dir, report: As in `read_parallel`.
    """
    options, step = _Options(source_lang, target_lang, on_blank=on_blank), DataReport()
    reading = _Reading(options.languages(), enumerate(pairs, start=1))
    result = _write_readings([(name, reading)], [], options, cache_dir, step)
    _finish(name, step, report)
    return result


def _write_readings(
    readings: Sequence[tuple[str, _Reading]],
    extras: list[str],
    options: _Options,
    cache_dir: str | Path | None,
    step: DataReport,
) -> Dataset:
    languages = readings[0][1].languages
    features = Features({"translation": Translation(languages), **{name: Value("string") for name in extras}})
    with _ArrowFile(features, cache_dir, "pairs") as out:
        for where, reading in readings:
            for batch in _batched(_screened(reading, where, options, step), _BATCH_ROWS):
                out.write(_pair_table(batch, languages, extras, where))
    return out.dataset()


def _batched(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    iterator = iter(items)
    while batch := list(itertools.islice(iterator, size)):
        yield batch


def _pair_table(rows: Sequence[tuple[int, Sequence[str]]], languages: Pair, extras: list[str], where: str) -> pa.Table:
    columns = zip(*(cells for _, cells in rows), strict=True)
    try:
        source, target, *others = (pa.array(column, pa.string()) for column in columns)
    except UnicodeEncodeError:
        number = next(n for n, cells in rows if any("\ud800" <= c <= "\udfff" for cell in cells for c in cell))
        raise ValueError(f"{where}, row {number}: half of a surrogate pair is not text; repair it") from None
    translation = _translation_array(dict(zip(languages, (source, target), strict=True)))
    return pa.table([translation, *others], names=["translation", *extras])


def _translation_array(sides: dict[str, pa.Array]) -> pa.StructArray:
    # the Translation feature stores its languages in sorted order
    names = sorted(sides)
    return pa.StructArray.from_arrays([sides[name] for name in names], names=names)


# Arrow files


@functools.lru_cache(maxsize=1)
def _scratch() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(prefix="hf_deepnmt_data_")


class _ArrowFile:
    """A new Arrow stream file, removed again when writing fails."""

    def __init__(self, features: Features, cache_dir: str | Path | None, name: str) -> None:
        folder = Path(cache_dir or _scratch().name)
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{name}-{uuid.uuid4().hex}.arrow"
        self.schema = features.arrow_schema

    def __enter__(self) -> _ArrowFile:
        self.writer = pa.ipc.new_stream(str(self.path), self.schema)
        self.waiting: list[pa.Table] = []
        return self

    def write(self, table: pa.Table) -> None:
        self.waiting.append(table.select(self.schema.names).cast(self.schema))
        # opening the file touches a page per record, so records must not be small
        if sum(part.num_rows for part in self.waiting) >= _RECORD_ROWS:
            self._flush()

    def _flush(self) -> None:
        if self.waiting:
            self.writer.write_table(pa.concat_tables(self.waiting).combine_chunks())
        self.waiting = []

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._flush()
        self.writer.close()
        if kind is not None:
            self.path.unlink(missing_ok=True)

    def dataset(self) -> Dataset:
        return Dataset.from_file(str(self.path))


def _tables(dataset: Dataset) -> Iterator[tuple[int, pa.Table]]:
    """Batches with the number of their first row."""
    for start in range(0, len(dataset), _MAPPED_ROWS):
        part = dataset.select(range(start, min(start + _MAPPED_ROWS, len(dataset)))).with_format("arrow")
        if dataset.cache_files:
            # a copy maps the file anew, so the pages it touched are given back once it is dropped
            part = _remapped(part)
        row = start + 1
        for table in part.iter(batch_size=_BATCH_ROWS):
            yield row, table
            row += table.num_rows


def _remapped(dataset: Dataset) -> Dataset:
    return pickle.loads(pickle.dumps(dataset))


Transformed = tuple[pa.Table, DataReport]
Transform = Callable[[int, pa.Table], Transformed]
_worker_transform: Transform | None = None


def _start_worker(transform: Transform) -> None:
    global _worker_transform
    _worker_transform = transform


def _work(row: int, table: pa.Table) -> tuple[pa.Table, DataReport]:
    return _worker_transform(row, table)


def _transformed(dataset: Dataset, transform: Transform, num_proc: int | None) -> Iterator[Transformed]:
    if not num_proc or num_proc == 1:
        yield from (transform(row, table) for row, table in _tables(dataset))
        return
    with ProcessPoolExecutor(num_proc, initializer=_start_worker, initargs=(transform,)) as pool:
        window: deque[Any] = deque()
        for row, table in _tables(dataset):
            window.append(pool.submit(_work, row, table))
            if len(window) > 2 * num_proc:
                yield window.popleft().result()
        while window:
            yield window.popleft().result()


def _rewrite(
    dataset: Dataset,
    transform: Transform,
    features: Features,
    cache_dir: str | Path | None,
    name: str,
    num_proc: int | None = None,
) -> tuple[Dataset, DataReport]:
    step = DataReport()
    with _ArrowFile(features, cache_dir, name) as out:
        for table, part in _transformed(dataset, transform, num_proc):
            out.write(table)
            step.merge(part)
    return out.dataset(), step


def _feature_languages(dataset: Dataset) -> KeysView[str]:
    feature = dataset.features["translation"]
    return dict.fromkeys(feature.languages if isinstance(feature, Translation) else feature).keys()


def pair_languages(dataset: Dataset, source_lang: str | None = None, target_lang: str | None = None) -> Pair:
    """The languages of a data set of pairs: those given, checked, or the two of its `translation` column in order.

    Raises:
        ValueError: no such column, no such language, or more than two and none given.
    """
    if "translation" not in dataset.column_names:
        raise ValueError(f"no column 'translation' among {dataset.column_names}; load the data with load_pairs()")
    feature = dataset.features["translation"]
    if not isinstance(feature, (Translation, dict)):
        raise ValueError(f"column 'translation' is {feature}, expected one string per language")
    found = list(_feature_languages(dataset))
    if len(found) == 2 and None in (source_lang, target_lang):
        given = source_lang or target_lang
        ordered = found if given in (None, found[0] if source_lang else found[1]) else found[::-1]
        source_lang, target_lang = source_lang or ordered[0], target_lang or ordered[1]
    if source_lang not in found or target_lang not in found or source_lang == target_lang:
        raise ValueError(f"source_lang={source_lang!r}, target_lang={target_lang!r} must be two of {found}")
    return source_lang, target_lang


def _sides(table: pa.Table, languages: Pair, row: int) -> tuple[list[str], list[str]]:
    source, target = (pc.struct_field(table["translation"], [name]).to_pylist() for name in languages)
    for name, texts in zip(languages, (source, target), strict=True):
        if None in texts:
            raise ValueError(f"row {row + texts.index(None)}: {name!r} is null; load the data with load_pairs()")
    return source, target


# Data sets of the datasets library


def load_pairs(
    spec: Dataset | DatasetDict | str | Path | Sequence[str | Path],
    *,
    source_lang: str,
    target_lang: str,
    split: str | None = None,
    config: str | None = None,
    revision: str | None = None,
    alignment: str | Path | None = None,
    link_format: LinkFormat | None = None,
    on_blank: str = "drop",
    on_incomplete: str = "error",
    cache_dir: str | Path | None = None,
    report: DataReport | dict[str, DataReport] | None = None,
) -> Dataset | DatasetDict:
    """Brings any data set of pairs into the standard form.

    Args:
        spec: A `Dataset` or `DatasetDict`, a folder written by `save_to_disk`, the path(s) of text files as for
            `read_parallel`, or the name of a data set on the Hugging Face Hub. Data sets hold either a `translation`
            column or one string column per side, named by language or source/src and target/tgt/trg.
        split: Which split to take; all by default.
        config, revision: Passed on to `datasets.load_dataset`.
        alignment, link_format: As in `read_parallel`; for a data set, line n of the file is its row n.
        report: Filled with counts; for several splits a dict that receives one report per split.

    Raises:
        ValueError: a language is not in the data, a row is incomplete, or the Hub cannot be reached.
    """
    options = _Options(
        source_lang,
        target_lang,
        alignment=Path(alignment) if alignment else None,
        link_format=link_format or LinkFormat(),
        on_blank=on_blank,
        on_incomplete=on_incomplete,
    )
    if isinstance(spec, (str, Path)) and Path(spec).is_file() or isinstance(spec, (list, tuple)):
        if split or config or revision:
            raise ValueError("split=, config= and revision= go with data sets, not with text files")
        paths = [spec] if isinstance(spec, (str, Path)) else spec
        names = {"source_lang": source_lang, "target_lang": target_lang}
        names |= {"alignment": alignment, "link_format": link_format}
        return read_parallel(
            *paths, **names, on_blank=on_blank, on_incomplete=on_incomplete, cache_dir=cache_dir, report=report
        )
    data = _load_dataset(spec, split, config, revision)
    if isinstance(data, Dataset):
        return _standard_form(data, split or "data set", options, cache_dir, report)
    if alignment is not None:
        raise ValueError(f"alignment= goes with one split: pass split=, one of {list(data)}")
    if not isinstance(data, DatasetDict):
        raise TypeError(f"expected a Dataset, a DatasetDict, a folder, files or a name, got {type(data).__name__}")
    result, steps = DatasetDict(), {} if report is None else report
    if isinstance(steps, DataReport):
        raise TypeError(f"the data has several splits, {list(data)}: pass a dict as report=, or split=")
    for name, part in data.items():
        steps[name] = DataReport()
        result[name] = _standard_form(part, name, options, cache_dir, steps[name])
    return result


def attach_links(
    dataset: Dataset,
    path: str | Path,
    link_format: LinkFormat | None = None,
    source_lang: str | None = None,
    target_lang: str | None = None,
    *,
    cache_dir: str | Path | None = None,
) -> Dataset:
    """Adds the string column `alignment`: line n of a file of word links for row n, checked, source first and from 0.

    Raises:
        ValueError: the file has more or fewer lines than the data set has rows, or a link is outside its pair.
    """
    languages = pair_languages(dataset, source_lang, target_lang)
    options = _Options(*languages, alignment=Path(path), link_format=link_format or LinkFormat(), on_blank="keep")
    return _standard_form(dataset, "data set", options, cache_dir, None)


def read_links(
    dataset: Dataset,
    link_format: LinkFormat,
    source_lang: str | None = None,
    target_lang: str | None = None,
    *,
    cache_dir: str | Path | None = None,
) -> Dataset:
    """The data set with its own string column `alignment` checked and written source first, from 0.

    Raises:
        ValueError: there is no such column, or a link is outside its pair.
    """
    languages = pair_languages(dataset, source_lang, target_lang)
    check_link_column(dataset)

    def transform(row: int, table: pa.Table) -> Transformed:
        column, pairs = table.column_names.index(ALIGNMENT), zip(*_sides(table, languages, row), strict=True)
        lines = zip(table[ALIGNMENT].to_pylist(), pairs, strict=True)
        links = [
            format_links(link_format.read(line or "", *pair, f"row {n}, column {ALIGNMENT!r}"))
            for n, (line, pair) in enumerate(lines, start=row)
        ]
        table = table.set_column(column, ALIGNMENT, pa.array(links, pa.string()))
        return table, DataReport(kept=table.num_rows)

    features = Features({**dataset.features, ALIGNMENT: Value("string")})
    return _rewrite(dataset, transform, features, cache_dir, "links")[0]


def check_link_column(dataset: Dataset):
    """
    Raises:
        ValueError: there is no string column `alignment`.
    """
    if ALIGNMENT not in dataset.column_names:
        raise ValueError(
            f"word links are needed, but there is no column {ALIGNMENT!r} among {', '.join(dataset.column_names)}: add "
            "it with attach_links(), or read the pairs with a file of links"
        )
    if getattr(dataset.features[ALIGNMENT], "dtype", None) not in ("string", "large_string"):
        raise ValueError(f"column {ALIGNMENT!r} is {dataset.features[ALIGNMENT]}, expected a string such as '0-0 1-2'")


def _load_dataset(spec: Any, split: str | None, config: str | None, revision: str | None) -> Any:
    if isinstance(spec, (str, Path)):
        if Path(spec).is_dir():
            try:
                spec = datasets.load_from_disk(str(spec))
            except FileNotFoundError as error:
                raise ValueError(
                    f"{spec}: not written by save_to_disk(); load text files with load_folder()"
                ) from error
        elif (
            isinstance(spec, Path)
            or spec.startswith((".", "/", "~"))
            or Path(spec).suffix in (*_FORMATS, ".gz", ".txt")
        ):
            raise FileNotFoundError(f"{spec}: no such file or folder")
        else:
            return load_from_hub(spec, split, config, revision)
    if split is not None and isinstance(spec, DatasetDict):
        if split not in spec:
            raise ValueError(f"no split {split!r} among {list(spec)}")
        return spec[split]
    return spec


def load_from_hub(
    name: str, split: str | None = None, config: str | None = None, revision: str | None = None
) -> Dataset | DatasetDict:
    """`datasets.load_dataset` with one clear error when the data set or the connection is not there."""
    try:
        return datasets.load_dataset(name, config, split=split, revision=revision)
    except Exception as error:
        raise ValueError(
            f"could not load {name!r} from the Hugging Face Hub ({type(error).__name__}: {error}); "
            "check the name and the connection, or load local files through path="
        ) from error


def _side_columns(dataset: Dataset, languages: Pair) -> list[str]:
    """Columns of source and target in a data set without `translation`."""
    found = [
        next((name for name in (language, *generic) if name in dataset.column_names), None)
        for language, generic in zip(languages, (_SOURCE_NAMES, _TARGET_NAMES), strict=True)
    ]
    if None in found:
        raise ValueError(f"languages {languages} not found in columns {dataset.column_names}")
    for name in found:
        if getattr(dataset.features[name], "dtype", None) not in ("string", "large_string"):
            raise ValueError(f"column {name!r} is {dataset.features[name]}, expected string")
    return found


def _standard_form(
    dataset: Dataset, name: str, options: _Options, cache_dir: str | Path | None, report: DataReport | None
) -> Dataset:
    languages = options.languages()
    nested = "translation" in dataset.column_names
    if nested:
        pair_languages(dataset, *languages)
    used = ["translation"] if nested else _side_columns(dataset, languages)
    others = sorted(_feature_languages(dataset) - {*languages}) if nested else []
    extras = [column for column in dataset.column_names if column not in used]
    lines: Iterator[str] = iter(())
    if options.alignment:
        lines = _lines_of_links(options.alignment, len(dataset))
        extras = [column for column in extras if column != ALIGNMENT]
    features = Features({"translation": Translation(languages), **{c: dataset.features[c] for c in extras}})
    stored = Features({**features, ALIGNMENT: Value("string")}) if options.alignment else features

    def transform(row: int, table: pa.Table) -> tuple[pa.Table, DataReport]:
        part = DataReport()
        columns = [pc.struct_field(table["translation"], [language]) for language in languages] if nested else None
        sides = [column.to_pylist() for column in columns or map(table.column, used)]
        reading = _Reading(languages, _complete_rows(row, sides, languages, name, options, part))
        kept = list(_screened(reading, name, options, part))
        pairs = [(number, cells[:2]) for number, cells in kept]
        result = _pair_table(pairs, languages, [], name) if pairs else features.arrow_schema.empty_table().select([0])
        rows = table.take(pa.array([number - row for number, _ in kept], pa.int64()))
        for column in extras:
            result = result.append_column(column, rows[column])
        if options.alignment:
            given = dict(enumerate(itertools.islice(lines, table.num_rows), start=row))
            result = result.append_column(ALIGNMENT, _links_array(kept, given, options))
        return result, part

    result, step = _rewrite(dataset, transform, stored, cache_dir, "pairs")
    step.notes += [f"{name}: languages not read: {', '.join(others)}"] if others else []
    _finish(name, step, report)
    return result


def _lines_of_links(path: Path, rows: int) -> Iterator[str]:
    lines = count_lines(path)
    if lines != rows:
        raise ValueError(f"{path} has {lines} lines but the data has {rows} pairs; line n must be pair n")
    return iter_lines(path)


def _links_array(rows: Iterable[Row], lines: dict[int, str], options: _Options) -> pa.Array:
    where = f"{options.alignment}, row"
    links = (options.link_format.read(lines[n], cells[0], cells[1], f"{where} {n}") for n, cells in rows)
    return pa.array(map(format_links, links), pa.string())


def _complete_rows(
    row: int, sides: list[list[str | None]], languages: Pair, name: str, options: _Options, report: DataReport
) -> Iterator[tuple[int, Sequence[str]]]:
    for number, cells in enumerate(zip(*sides, strict=True), start=row):
        if None not in cells:
            yield number, cells
            continue
        problem = _json_problem(languages[cells.index(None)], None)
        if options.on_incomplete == "error":
            raise ValueError(f'{name}, row {number}: {problem}; complete it or pass on_incomplete="skip"')
        report.drop(problem, number)


# Cleaning


@functools.lru_cache(maxsize=1)
def _ignorable() -> re.Pattern[str]:
    # re looks up a class in constant time only within the basic plane
    characters = (chr(code) for code in range(0x10000))
    categories = tuple("PSZ") + ("Cc", "Cf")
    ignored = "".join(c for c in characters if unicodedata.category(c).startswith(categories))
    return re.compile(f"[{re.escape(ignored)}]+")


def light_normalise(text: str) -> str:
    """Letters, marks and digits only, NFKC and case-folded: the form in which leakage is looked for."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return _ignorable().sub("", folded) or folded.strip()


def _hash(*texts: str) -> int:
    value = 0
    for text in texts:
        value = xxhash.xxh3_64_intdigest(text.encode(), seed=value)
    return value


def _side_of_pair(choice: str) -> Callable[[str, str], tuple[str, ...]]:
    return {"pairs": lambda s, t: (s, t), "source": lambda s, t: (s,), "target": lambda s, t: (t,)}[choice]


Rule = Callable[[str, str], str | None]


def _length_rule(
    min_length: int, max_length: int | None, max_ratio: float | None, length_unit: str | tuple[str, str]
) -> Rule:
    units = (length_unit, length_unit) if isinstance(length_unit, str) else tuple(length_unit)
    for unit in units:
        _check_choice("length_unit", unit, ("words", "characters"))
    if units[0] != units[1] and max_ratio is not None:
        raise ValueError(f"a length ratio between {units[0]} and {units[1]} means nothing; pass max_ratio=None")
    if max_ratio is not None and max_ratio < 1:
        raise ValueError(f"max_ratio is longer side over shorter side, so at least 1; got {max_ratio}")
    if max_length is not None and max_length < min_length:
        raise ValueError(f"max_length={max_length} is below min_length={min_length}")
    measures = [(lambda text: len(text.split())) if unit == "words" else (lambda text: len(text)) for unit in units]

    def rule(source: str, target: str) -> str | None:
        shorter, longer = sorted((measures[0](source), measures[1](target)))
        if shorter < min_length:
            return f"shorter than {min_length}"
        if max_length is not None and longer > max_length:
            return f"longer than {max_length}"
        if max_ratio is not None and longer > max_ratio * shorter:
            return f"length ratio above {max_ratio}"
        return None

    return rule


def _exclusion_rule(exclude: Any, exclude_by: str, languages: Pair) -> Rule:
    _check_choice("exclude_by", exclude_by, ("either", "source", "target", "pairs"))
    parts = [exclude] if isinstance(exclude, Dataset) else exclude
    parts = parts.values() if isinstance(parts, DatasetDict) else parts
    sources, targets, both = set(), set(), set()
    for part in parts:
        for row, table in _tables(part):
            for source, target in zip(*_sides(table, pair_languages(part, *languages), row), strict=True):
                source, target = light_normalise(source), light_normalise(target)
                sources.add(_hash(source))
                targets.add(_hash(target))
                both.add(_hash(source, target))

    def rule(source: str, target: str) -> str | None:
        source, target = light_normalise(source), light_normalise(target)
        if exclude_by == "pairs":
            return "pair is in held-out data" if _hash(source, target) in both else None
        if exclude_by in ("either", "source") and _hash(source) in sources:
            return "source is in held-out data"
        if exclude_by in ("either", "target") and _hash(target) in targets:
            return "target is in held-out data"
        return None

    return rule


def _text_changes(normalization: str | None, control: str, collapse: bool) -> Callable[[str], str]:
    if normalization is not None:
        _check_choice("normalization", normalization, ("NFC", "NFKC"))
    _check_choice("control", control, ("space", "drop", "keep"))

    def change(text: str) -> str:
        if normalization:
            text = unicodedata.normalize(normalization, text)
        if control == "space":
            text = _CONTROLS.sub(" ", text)
        return " ".join(text.split()) if collapse else text

    return change


def clean_pairs(
    dataset: Dataset,
    *,
    min_length: int = 1,
    max_length: int | None = 175,
    max_ratio: float | None = 1.5,
    length_unit: str | tuple[str, str] = "words",
    drop_identical: bool = False,
    drop_replacement: bool = True,
    deduplicate: str | None = "pairs",
    exclude: Dataset | DatasetDict | Sequence[Dataset] | None = None,
    exclude_by: str = "either",
    normalization: str | None = None,
    control: str = "space",
    collapse_whitespace: bool = False,
    link_words: str = "spaces",
    source_lang: str | None = None,
    target_lang: str | None = None,
    cache_dir: str | Path | None = None,
    report: DataReport | None = None,
) -> Dataset:
    """Removes pairs that should not be trained on, each for the first reason that applies.

    Text is changed first (`normalization`, `control`, `collapse_whitespace`), then judged: lengths, control and
    replacement characters, held-out data, and last repetition. Duplicates and held-out sentences are found by 64-bit
    hashes: for ten million pairs the chance of one wrong match is about 3 in a million.

    Args:
        min_length, max_length: Bounds for both sides.
        max_ratio: Largest length of the longer side over the length of the shorter side.
        length_unit: "words" (split at white space) or "characters", for languages without spaces; a tuple gives
            source and target apart and then needs `max_ratio=None`.
        drop_identical: Drops pairs whose sides are the same.
        drop_replacement: Drops pairs with U+FFFD, the trace of a wrong decoding.
        deduplicate: "pairs" keeps the first of equal pairs; "source" or "target" the first with an equal side.
        exclude: Validation and test data that must not be met in training.
        exclude_by: A pair goes when its "source", its "target", "either" or the whole pair ("pairs") is in `exclude`,
            compared as `light_normalise` gives it.
        normalization: None, "NFC" or "NFKC".
        control: Control characters and Unicode line separators become a "space", or the pair is dropped ("drop").
        collapse_whitespace: Joins runs of white space to one space and strips the ends.
        link_words: The rule by which the column `alignment`, where there is one, counts words. Where a change of the
            text changes their number, the row loses its links, which is noticed.
        report: Filled with the number and first rows of every reason.

    Raises:
        ValueError: an unknown choice, languages that are not in the data, nothing left.
    """
    languages = pair_languages(dataset, source_lang, target_lang)
    if deduplicate is not None:
        _check_choice("deduplicate", deduplicate, ("pairs", "source", "target"))
    rules: list[Rule] = [_length_rule(min_length, max_length, max_ratio, length_unit)]
    if control == "drop":
        rules.append(lambda s, t: "control character" if _CONTROLS.search(s) or _CONTROLS.search(t) else None)
    if drop_identical:
        rules.append(lambda s, t: "source equals target" if s.strip() == t.strip() else None)
    if drop_replacement:
        rules.append(lambda s, t: "replacement character U+FFFD" if "\ufffd" in s or "\ufffd" in t else None)
    if exclude is not None:
        rules.append(_exclusion_rule(exclude, exclude_by, languages))
    change = _text_changes(normalization, control, collapse_whitespace)
    check_word_rule(link_words)
    hashes = np.empty(len(dataset) if deduplicate else 0, dtype=np.uint64)
    rows = np.empty(len(hashes), dtype=np.uint32)
    key = _side_of_pair(deduplicate or "pairs")
    filled = 0

    def transform(row: int, table: pa.Table) -> tuple[pa.Table, DataReport]:
        nonlocal filled
        table, pairs, numbers, part = _clean_batch(row, table, languages, change, rules, link_words)
        if deduplicate:
            hashes[filled : filled + len(pairs)] = [_hash(*key(*pair)) for pair in pairs]
            rows[filled : filled + len(pairs)] = numbers
            filled += len(pairs)
        return table, part

    result, step = _rewrite(dataset, transform, dataset.features, cache_dir, "clean")
    if deduplicate:
        unit = "pair" if deduplicate == "pairs" else deduplicate
        result = _without_repeats(result, hashes[:filled], rows[:filled], f"repeated {unit}", cache_dir, step)
    _finish("cleaning", step, report)
    return result


def _clean_batch(
    row: int,
    table: pa.Table,
    languages: Pair,
    change: Callable[[str], str],
    rules: Sequence[Rule],
    link_words: str,
) -> tuple[pa.Table, list[Pair], list[int], DataReport]:
    part, kept, numbers, changed = DataReport(), [], [], False
    aligned = ALIGNMENT in table.column_names and pa.types.is_string(table[ALIGNMENT].type)
    links = table[ALIGNMENT].to_pylist() if aligned else None
    for number, pair in enumerate(zip(*_sides(table, languages, row), strict=True), start=row):
        source, target = change(pair[0]), change(pair[1])
        reason = next(filter(None, (rule(source, target) for rule in rules)), None)
        if reason:
            part.drop(reason, number)
            continue
        kept.append((source, target))
        numbers.append(number)
        if kept[-1] != pair:
            changed = True
            part.notice("text changed by cleaning", number)
            if links and links[number - row] and _word_counts(pair, link_words) != _word_counts(kept[-1], link_words):
                links[number - row] = ""
                part.notice("links lost, as cleaning changed the number of words", number)
    part.kept = len(kept)
    if links is not None and changed:
        table = table.set_column(table.column_names.index(ALIGNMENT), ALIGNMENT, pa.array(links, pa.string()))
    if part.dropped:
        table = table.take(pa.array([number - row for number in numbers], pa.int64()))
    if changed:
        table = _with_sides(table, dict(zip(languages, zip(*kept, strict=True), strict=True)))
    return table, kept, numbers, part


def _word_counts(texts: Iterable[str], rule: str) -> list[int]:
    return [len(word_spans(text, rule)) for text in texts]


def _with_sides(table: pa.Table, sides: dict[str, Sequence[str]]) -> pa.Table:
    """The table with some languages of `translation` replaced."""
    column = table["translation"].combine_chunks()
    names = [column.type.field(i).name for i in range(column.type.num_fields)]
    arrays = [pa.array(sides[n], pa.string()) if n in sides else pc.struct_field(column, [n]) for n in names]
    translation = pa.StructArray.from_arrays(arrays, names=names)
    return table.set_column(table.column_names.index("translation"), "translation", translation)


def _without_repeats(
    dataset: Dataset, hashes: np.ndarray, rows: np.ndarray, reason: str, cache_dir: str | Path | None, step: DataReport
) -> Dataset:
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    repeated = np.zeros(len(hashes), dtype=bool)
    repeated[order[1:][ordered[1:] == ordered[:-1]]] = True
    positions = np.flatnonzero(repeated)
    if not len(positions):
        return dataset

    def transform(row: int, table: pa.Table) -> tuple[pa.Table, DataReport]:
        return table.filter(pa.array(~repeated[row - 1 : row - 1 + table.num_rows])), DataReport()

    old = dataset.cache_files[0]["filename"]
    dataset, _ = _rewrite(dataset, transform, dataset.features, cache_dir, "clean")
    Path(old).unlink(missing_ok=True)
    step.kept -= len(positions)
    step.dropped[reason] = len(positions)
    step.rows[reason] = rows[positions[:_ROWS_SHOWN]].tolist()
    return dataset


# Text preprocessing and splits


def preprocess_pairs(
    dataset: Dataset,
    *,
    preprocess: str | None = "moses",
    lowercase: bool = False,
    source_lang: str | None = None,
    target_lang: str | None = None,
    cache_dir: str | Path | None = None,
) -> Dataset:
    """Moses tokenisation and/or lower-casing of both sides, as many papers prepared their text.

    Raises:
        ValueError: an unknown choice, or Moses would change the words that a column `alignment` counts.
    """
    languages = pair_languages(dataset, source_lang, target_lang)
    if preprocess is not None:
        _check_choice("preprocess", preprocess, ("moses",))
        if ALIGNMENT in dataset.column_names:
            raise ValueError(
                "the data has word links already, and tokenisation would change the words that they count: tokenise "
                "first and align the result"
            )
    if preprocess is None and not lowercase:
        return dataset
    if preprocess == "moses":
        from .tokenization import moses_tokenize

    def transform(row: int, table: pa.Table) -> tuple[pa.Table, DataReport]:
        sides = {}
        for language, texts in zip(languages, _sides(table, languages, row), strict=True):
            if preprocess == "moses":
                sides[language] = list(moses_tokenize(texts, language, lowercase=lowercase))
            else:
                sides[language] = [text.lower() for text in texts]
        return _with_sides(table, sides), DataReport(kept=table.num_rows)

    return _rewrite(dataset, transform, dataset.features, cache_dir, "preprocessed")[0]


def split_pairs(
    dataset: Dataset,
    *,
    valid: int | float,
    test: int | float = 0,
    seed: int = 0,
    cache_dir: str | Path | None = None,
) -> DatasetDict:
    """Random train, validation and test parts; the same seed gives the same parts, each in the original order.

    Args:
        valid, test: Number of pairs (int) or share of all pairs (float below 1).
        cache_dir: Folder of the training part, which is written anew so that memory stays flat.

    Equal sentences may fall on both sides of the cut: clean with `exclude=` afterwards.
    """
    sizes = [round(size * len(dataset)) if isinstance(size, float) else size for size in (valid, test)]
    if min(sizes) < 0 or sum(sizes) >= len(dataset):
        raise ValueError(f"valid={valid} and test={test} leave no training pair of {len(dataset)}")
    order = np.random.default_rng(seed).permutation(len(dataset))
    held_out = dict(zip(("validation", "test"), np.split(order[: sum(sizes)], sizes[:1]), strict=True))
    parts = {name: dataset.select(np.sort(rows)) for name, rows in held_out.items() if len(rows)}
    return DatasetDict({"train": _without(dataset, order[: sum(sizes)], cache_dir), **parts})


def every_nth(dataset: Dataset, n: int = 23, *, cache_dir: str | Path | None = None) -> DatasetDict:
    """Rows n, 2n, 3n, ... (counted from 1) become `validation`, the others `train`, as for IWSLT14."""
    if not 2 <= n <= len(dataset):
        raise ValueError(f"n={n} must lie between 2 and the number of pairs, {len(dataset)}")
    held_out = np.arange(n - 1, len(dataset), n)
    return DatasetDict({"train": _without(dataset, held_out, cache_dir), "validation": dataset.select(held_out)})


def _without(dataset: Dataset, rows: np.ndarray, cache_dir: str | Path | None) -> Dataset:
    """A copy on disk, as select() would build a list of all the row numbers that stay."""
    stays = np.ones(len(dataset), dtype=bool)
    stays[rows] = False

    def transform(row: int, table: pa.Table) -> tuple[pa.Table, DataReport]:
        return table.filter(pa.array(stays[row - 1 : row - 1 + table.num_rows])), DataReport()

    return _rewrite(dataset, transform, dataset.features, cache_dir, "train")[0]


# Token ids


@dataclass
class _Tokenization:
    """Batch function of `tokenize_pairs`; a class so that it can be sent to worker processes."""

    tokenizer: PreTrainedTokenizerBase
    languages: Pair
    limits: tuple[int | None, int | None]
    on_too_long: Pair
    columns: list[str]
    order: TargetOrder | None = None

    def __call__(self, row: int, table: pa.Table) -> tuple[pa.Table, DataReport]:
        source, target = _sides(table, self.languages, row)
        spans = {"return_offsets_mapping": True, "return_special_tokens_mask": True} if self.order else {}
        encoded = self.tokenizer(text=source, text_target=target, return_attention_mask=False, **spans)
        part, kept = DataReport(), []
        inputs, labels = encoded["input_ids"], encoded["labels"]
        for index, sides in enumerate(zip(inputs, labels, strict=True)):
            if self._fits(row + index, sides, part):
                kept.append(index)
        part.kept = len(kept)
        positions = None
        if self.order:
            lines = table[ALIGNMENT].to_pylist()
            positions = [self._positions(row + i, lines[i], (source[i], target[i]), encoded, i, part) for i in kept]
        if part.dropped:
            table = table.take(pa.array(kept, pa.int64()))
        table = table.select(self.columns)
        for name, length, ids in (("input_ids", "source_length", inputs), ("labels", "target_length", labels)):
            ids = [self._cut(name, ids[index]) for index in kept]
            array = pa.array(ids, pa.list_(pa.int32()))
            table = table.append_column(name, array)
            table = table.append_column(length, pa.array([len(x) for x in ids], pa.int32()))
            self._count(length.removesuffix("_length"), array, part)
        if positions is not None:
            table = table.append_column(TARGET_POSITIONS, pa.array(positions, pa.list_(pa.float32())))
        return table, part

    def _positions(
        self, row: int, line: str | None, pair: Pair, encoded: Any, index: int, part: DataReport
    ) -> list[float]:
        """Target positions of the source tokens that are kept; all without supervision where there is no link."""
        spans, special = (self._cut("input_ids", encoded[n][index]) for n in ("offset_mapping", "special_tokens_mask"))
        link_format, words = LinkFormat(self.order.words), [word_spans(text, self.order.words) for text in pair]
        links, positions = link_format.read(line or "", *pair, f"row {row}, column {ALIGNMENT!r}"), None
        if links:
            kept = self._kept_words(pair[1], words[1], len(encoded["labels"][index]))
            positions = target_positions(links, words[0], spans, special, len(words[1]), self.order, kept)
        if positions is None:
            part.notice("no word links, so no target order", row)
            return [NO_POSITION] * len(spans)
        return positions

    def _kept_words(self, text: str, words: list[tuple[int, int]], length: int) -> int:
        """How many words of a target are left where it is cut."""
        most = self.limits[1]
        if most is None or length <= most:
            return len(words)
        spans = self.tokenizer(text_target=[text], return_offsets_mapping=True)["offset_mapping"][0]
        end = max(end for _, end in spans[:most])
        return sum(start < end for start, _ in words)

    def _fits(self, row: int, sides: tuple[list[int], list[int]], part: DataReport) -> bool:
        names = ("source", "target")
        long = [n for n, ids, most in zip(names, sides, self.limits, strict=True) if most and len(ids) > most]
        for name, ids in zip(names, sides, strict=True):
            if len(ids) == 1:
                part.notice(f"{name} has no token but the end of sentence", row)
        if not long:
            return True
        found = {name: self.on_too_long[names.index(name)] for name in long}
        for name, choice in found.items():
            side = names.index(name)
            if choice == "error":
                raise ValueError(
                    f"row {row}: the {name} has {len(sides[side])} tokens, more than max_{name}_length="
                    f'{self.limits[side]}; shorten it or pass on_too_long="skip" or "truncate"'
                )
            if choice == "skip":
                part.drop(f"{name} longer than {self.limits[side]} tokens", row)
                return False
        for name in long:
            side = names.index(name)
            part.notice(f"{name} truncated to {self.limits[side]} tokens", row)
            cut = f"cut {name} tokens"
            part.counts[cut] = part.counts.get(cut, 0) + len(sides[side]) - self.limits[side]
        return True

    def _cut(self, name: str, ids: list[int]) -> list[int]:
        most = self.limits[name == "labels"]
        if most is None or len(ids) <= most:
            return ids
        # a cut target goes on, so an end of sentence there would teach the model to stop early
        return ids[:most] if name == "labels" else ids[: most - 1] + ids[-1:]

    def _count(self, side: str, array: pa.Array, part: DataReport) -> None:
        ids = array.flatten().to_numpy()
        part.counts[f"{side} tokens"] = len(ids)
        part.counts[f"unknown {side} tokens"] = int((ids == self.tokenizer.unk_token_id).sum())


def _check_end_of_sentence(tokenizer: PreTrainedTokenizerBase) -> None:
    eos = tokenizer.eos_token_id
    probe = tokenizer(text=["a"], text_target=["a"])
    for name, side in (("input_ids", "source"), ("labels", "target")):
        ids = probe[name][0]
        if eos is None or not ids or ids[-1] != eos:
            raise ValueError(
                f"the tokenizer does not end the {side} with its end-of-sentence token ({tokenizer.eos_token!r}), so "
                "the model would never learn to stop; give it a post-processor that adds the token"
            )


def _check_target_order(dataset: Dataset, tokenizer: PreTrainedTokenizerBase) -> None:
    check_link_column(dataset)
    if not tokenizer.is_fast:
        raise ValueError(
            f"a target order needs the characters of each token, which {type(tokenizer).__name__} does not tell: use a "
            "fast tokenizer, such as train_tokenizer() makes"
        )


def tokenize_pairs(
    dataset: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    source_lang: str | None = None,
    target_lang: str | None = None,
    *,
    max_source_length: int | None = None,
    max_target_length: int | None = None,
    on_too_long: str | Pair = "skip",
    remove_columns: Sequence[str] = (),
    target_order: TargetOrder | None = None,
    num_proc: int | None = None,
    cache_dir: str | Path | None = None,
    report: DataReport | None = None,
) -> Dataset:
    """Adds `input_ids`, `labels` (int32 lists ending in the end-of-sentence token), `source_length`, `target_length`.

    With `target_order` also `target_positions`, a float32 list as long as `input_ids`.

    Args:
        max_source_length, max_target_length: Most tokens per side, the end-of-sentence token included.
        on_too_long: "skip" drops the pair, "error" stops at it, "truncate" cuts; or two of these, for source and target. A
            cut source still ends in the end-of-sentence token, a cut target does not, as the sentence goes on. The column
            `alignment` is left as it is; target positions drop links to what was cut.
        remove_columns: Columns to leave out; all others, `translation` included, stay.
        target_order: How the links of the column `alignment` give the source tokens their supervised positions, see
            `hf_deepnmt.target_order`. A pair without links gets `NO_POSITION` throughout, which is noticed.
        num_proc: Worker processes; a fast tokenizer already uses all cores in one.
        report: Filled with pairs skipped or truncated, token counts and unknown tokens.

    Raises:
        ValueError: the tokenizer adds no end of sentence, a pair is too long under "error", a column is in the way, or
            there are no links or no character offsets for `target_order`.
    """
    languages = pair_languages(dataset, source_lang, target_lang)
    choices = (on_too_long, on_too_long) if isinstance(on_too_long, str) else tuple(on_too_long)
    if len(choices) != 2:
        raise ValueError(f"on_too_long={on_too_long!r} must be one choice, or two for source and target")
    for choice in choices:
        _check_choice("on_too_long", choice, ("skip", "error", "truncate"))
    for name, most in (("max_source_length", max_source_length), ("max_target_length", max_target_length)):
        if most is not None and most < 2:
            raise ValueError(f"{name}={most} leaves no room for a token and the end of sentence; use at least 2")
    added = {"input_ids": List(Value("int32")), "source_length": Value("int32")}
    added |= {"labels": List(Value("int32")), "target_length": Value("int32")}
    if target_order is not None:
        _check_target_order(dataset, tokenizer)
        added |= {TARGET_POSITIONS: List(Value("float32"))}
    missing = [name for name in remove_columns if name not in dataset.column_names]
    columns = [name for name in dataset.column_names if name not in remove_columns]
    if missing or added.keys() & set(columns):
        raise ValueError(
            f"columns {missing or sorted(added.keys() & set(columns))} are "
            f"{'not in the data set' if missing else 'there already; name them in remove_columns='}"
        )
    _check_end_of_sentence(tokenizer)
    limits = (max_source_length, max_target_length)
    transform = _Tokenization(tokenizer, languages, limits, choices, columns, target_order)
    features = Features({**{name: dataset.features[name] for name in columns}, **added})
    result, step = _rewrite(dataset, transform, features, cache_dir, "tokens", num_proc)
    _finish("tokenising", step, report)
    return result


__all__ = [
    "ALIGNMENT",
    "DataReport",
    "attach_links",
    "check_link_column",
    "clean_pairs",
    "count_lines",
    "every_nth",
    "iter_lines",
    "iter_pairs",
    "light_normalise",
    "load_from_hub",
    "load_pairs",
    "pair_languages",
    "preprocess_pairs",
    "read_links",
    "read_parallel",
    "split_pairs",
    "tokenize_pairs",
    "write_pairs",
]
