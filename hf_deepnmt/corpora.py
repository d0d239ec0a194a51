"""Known parallel corpora and how to load them from a local folder or from the Hugging Face Hub.

A local folder holds line-aligned files, plain or gzip: `train.de` and `train.en`, `valid.*` (also `validation`, `val`
or `dev`), and one or more files whose name begins with `test`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datasets import Dataset, DatasetDict
from transformers.utils import logging

from .alignment import LinkFormat
from .data import (
    DataReport,
    clean_pairs,
    every_nth,
    iter_lines,
    load_from_hub,
    load_pairs,
    preprocess_pairs,
    read_parallel,
    write_pairs,
)


logger = logging.get_logger(__name__)

_VALIDATION_NAMES = ("validation", "valid", "val", "dev")
_DROPPED_TAGS = ("<url>", "<talkid>", "<keywords>")
_HEADING_TAGS = re.compile("</?(?:title|description)>")
_UNSPACED = frozenset({"ja", "zh", "th", "lo", "km", "my"})
_SEGMENT = re.compile(r'<seg id="\d+">(.*?)</seg>')


@dataclass(frozen=True)
class Vocabulary:
    """The vocabulary the literature uses with a corpus, as arguments of `train_tokenizer`."""

    vocab_size: int
    joint: bool = True
    algorithm: str = "bpe"


@dataclass(frozen=True)
class Corpus:
    """A recipe: where a corpus comes from, how it is split, prepared and encoded.

    Args:
        pairs: Language pairs; each may be used in both directions. Empty means any pair the publisher offers.
        hub_id: Name on the Hugging Face Hub, or None for corpora that are only loaded from local files.
        hub_config: Name of the configuration with `{source}` and `{target}`, written in the order of `pairs`.
        preprocess: Arguments of `preprocess_pairs` as in the literature.
        clean: Arguments of `clean_pairs` for the training part as in the literature.
        default_test: Which of several local test files is called `test`.
        local_files: What a local folder holds besides the layout every corpus shares.
    """

    name: str
    pairs: tuple[tuple[str, str], ...]
    licence: str
    source: str
    vocabulary: Vocabulary
    hub_id: str | None = None
    hub_config: str | None = None
    hub_revision: str | None = None
    preprocess: dict[str, Any] = field(default_factory=dict)
    clean: dict[str, Any] = field(default_factory=dict)
    default_test: str | None = None
    local_files: str = ""

    def pair_in_order(self, source_lang: str, target_lang: str) -> tuple[str, str]:
        """The pair as the publisher writes it.

        Raises:
            ValueError: the corpus has no such pair.
        """
        for pair in self.pairs:
            if {source_lang, target_lang} == set(pair):
                return pair
        if not self.pairs and source_lang != target_lang:
            return tuple(sorted((source_lang, target_lang)))
        known = ", ".join("-".join(pair) for pair in self.pairs) or "any two different languages"
        raise ValueError(f"{self.name} has no pair {source_lang}-{target_lang}; it has: {known}")


_MOSES = {"preprocess": "moses"}
_IWSLT_CLEAN = {"min_length": 1, "max_length": 175, "max_ratio": 1.5, "deduplicate": None, "drop_replacement": False}

CORPORA: dict[str, Corpus] = {
    corpus.name: corpus
    for corpus in (
        Corpus(
            name="iwslt14",
            pairs=(("de", "en"),),
            licence="CC BY-NC-ND 4.0 (TED talks)",
            source="WIT3, release 2014-01; validation every 23rd training pair, test dev2010, dev2012, tst2010-2012",
            vocabulary=Vocabulary(10_000),
            preprocess={**_MOSES, "lowercase": True},
            clean=_IWSLT_CLEAN,
            local_files="or the unpacked archive: train.tags.de-en.{de,en} and IWSLT14.TED*.de-en.{de,en}.xml",
        ),
        Corpus(
            name="iwslt17",
            pairs=tuple(("en", other) for other in ("fr", "de", "it", "nl", "ro", "ar", "ja", "ko", "zh")),
            licence="CC BY-NC-ND 4.0 (TED talks)",
            source="WIT3, release 2017-01",
            vocabulary=Vocabulary(10_000),
            hub_id="IWSLT/iwslt2017",
            hub_config="iwslt2017-{source}-{target}",
            # the main branch holds a loading script, which datasets no longer runs
            hub_revision="refs/convert/parquet",
            preprocess={**_MOSES, "lowercase": True},
            clean=_IWSLT_CLEAN,
        ),
        Corpus(
            name="wmt14",
            pairs=(("de", "en"), ("fr", "en"), ("cs", "en"), ("hi", "en"), ("ru", "en")),
            licence="per part: Europarl, Common Crawl, News Commentary; research use",
            source="WMT 2014 news translation; validation newstest2013, test newstest2014",
            vocabulary=Vocabulary(32_000),
            hub_id="wmt/wmt14",
            hub_config="{source}-{target}",
            preprocess=_MOSES,
            clean={"max_length": 250, "max_ratio": 1.5},
        ),
        Corpus(
            name="wmt17",
            pairs=(("zh", "en"), ("de", "en"), ("cs", "en"), ("fi", "en"), ("lv", "en"), ("ru", "en"), ("tr", "en")),
            licence="per part: United Nations corpus, CWMT, News Commentary; research use",
            source="WMT 2017 news translation; validation newsdev2017, test newstest2017",
            vocabulary=Vocabulary(40_000, joint=False),
            hub_id="wmt/wmt17",
            hub_config="{source}-{target}",
            clean={"max_length": 1000, "max_ratio": None, "length_unit": "characters"},
        ),
        Corpus(
            name="multi30k",
            pairs=(("en", "de"), ("en", "fr"), ("en", "cs"), ("de", "fr"), ("de", "cs"), ("fr", "cs")),
            licence="research use (Flickr30K captions)",
            source="multi30k task 1, 29,000 training pairs; test sets of 2016, 2017 and 2018",
            vocabulary=Vocabulary(8_000),
            hub_id="bentrevett/multi30k",
            clean={"max_ratio": None},
            default_test="test_2016_flickr",
            local_files="val.{de,en}, test_2016_flickr.{de,en}, test_2017_flickr.{de,en}, ...",
        ),
        Corpus(
            name="opus-100",
            pairs=(),
            licence="per part of OPUS; see the publisher's page",
            source="OPUS-100, English and 99 other languages, up to one million pairs each",
            vocabulary=Vocabulary(32_000),
            hub_id="Helsinki-NLP/opus-100",
            hub_config="{source}-{target}",
            clean={"max_length": 250, "max_ratio": 3.0},
        ),
    )
}


def _side_file(stem: Path, language: str) -> Path | None:
    names = (Path(f"{stem}.{language}"), Path(f"{stem}.{language}.gz"))
    found = [path for path in names if path.exists()]
    if len(found) > 1:
        raise ValueError(f"both {found[0]} and {found[1]} exist; remove one")
    return found[0] if found else None


def _stems(folder: Path, source_lang: str, target_lang: str) -> list[str]:
    endings = [f".{language}{packed}" for language in (source_lang, target_lang) for packed in ("", ".gz")]
    names = (
        path.name.removesuffix(ending) for path in folder.iterdir() for ending in endings if path.name.endswith(ending)
    )
    return sorted(set(names))


def _split_stems(folder: Path, stems: Sequence[str], default_test: str | None) -> dict[str, str]:
    """Split name to file stem."""
    valid = [name for name in _VALIDATION_NAMES if name in stems]
    if len(valid) > 1:
        raise ValueError(f"{folder}: several validation sets, {valid}; keep one")
    tests = [stem for stem in stems if stem.startswith("test")]
    splits = {"train": "train"} if "train" in stems else {}
    splits |= {"validation": valid[0]} if valid else {}
    first = tests[0] if len(tests) == 1 else "test" if "test" in tests else default_test
    splits |= {"test": first} if first in tests else {}
    return splits | {stem: stem for stem in tests if stem != first}


def load_folder(
    path: str | Path,
    source_lang: str,
    target_lang: str,
    *,
    default_test: str | None = None,
    links: Mapping[str, str | Path] | None = None,
    link_format: LinkFormat | None = None,
    cache_dir: str | Path | None = None,
    reports: dict[str, DataReport] | None = None,
) -> DatasetDict:
    """Reads the line-aligned files of a folder into `train`, `validation`, `test` and further `test...` splits.

    A single test set is called `test`; of several, the one named `test` or `default_test` is, and the others keep the
    names of their files. Blank lines are dropped from the training part only, so that scores stay comparable.

    Args:
        links: For splits, the file of word links whose line n belongs to line n of the text, as `alignment` of
            `read_parallel`.
        reports: Filled with one `DataReport` per split.

    Raises:
        ValueError: links for a split that is not there, and as `read_parallel`.
        FileNotFoundError: no such folder, no split in it, or one side of a training or validation set is missing.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder")
    stems = _stems(folder, source_lang, target_lang)
    data, splits = DatasetDict(), _split_stems(folder, stems, default_test)
    links = check_links_of_splits(links, splits)
    for split, stem in splits.items():
        files = [_side_file(folder / stem, language) for language in (source_lang, target_lang)]
        if None in files:
            missing = (source_lang, target_lang)[files.index(None)]
            if stem.startswith("test"):
                logger.warning(f"{folder}: {stem} has no file for {missing!r} and is not loaded")
                continue
            raise FileNotFoundError(f"{folder / stem}.{missing}: no such file (nor with .gz)")
        report = DataReport()
        data[split] = read_parallel(
            *files,
            source_lang=source_lang,
            target_lang=target_lang,
            format="lines",
            alignment=links.get(split),
            link_format=link_format,
            on_blank="drop" if split == "train" else "keep",
            cache_dir=cache_dir,
            report=report,
        )
        if reports is not None:
            reports[split] = report
    if not data:
        raise FileNotFoundError(
            f"{folder}: found no train, valid or test files for {source_lang}-{target_lang}, "
            f"such as train.{source_lang} and train.{target_lang} (or .gz)"
        )
    return data


def check_links_of_splits(links: Mapping[str, Any] | None, splits: Iterable[str]) -> Mapping[str, Any]:
    """
    Raises:
        ValueError: links are given for a split that the data does not have.
    """
    unknown = [split for split in links or {} if split not in splits]
    if unknown:
        raise ValueError(f"links are given for {unknown[0]!r}, but the data has the splits {', '.join(splits)}")
    return links or {}


# Raw IWSLT14


def strip_training_tags(lines: Iterable[str]) -> Iterator[str]:
    """Text of an IWSLT `train.tags` file: no address, id and keyword lines, no title and description tags."""
    for line in lines:
        if not any(tag in line for tag in _DROPPED_TAGS):
            yield _HEADING_TAGS.sub("", line).strip()


def segments(lines: Iterable[str]) -> Iterator[str]:
    """Text of the `<seg>` elements of an IWSLT evaluation file; typographic apostrophes become straight ones."""
    for line in lines:
        match = _SEGMENT.search(line)
        if match:
            yield match[1].strip().replace("\u2019", "'")
        elif "<seg" in line:
            raise ValueError(f"a <seg> that does not end on its line: {line.strip()[:80]!r}")


def _raw_pairs(
    files: Sequence[tuple[Path, Path]],
    strip: Callable[[Iterable[str]], Iterator[str]],
    languages: tuple[str, str],
    on_blank: str,
    cache_dir: str | Path | None,
    report: DataReport,
) -> Dataset:
    for paths in files:
        counts = [sum(1 for _ in strip(iter_lines(path))) for path in paths]
        if counts[0] != counts[1]:
            raise ValueError(
                f"{paths[0]} has {counts[0]} sentences but {paths[1]} has {counts[1]}; they must be parallel"
            )
    pairs = (pair for paths in files for pair in zip(*(strip(iter_lines(path)) for path in paths), strict=True))
    name = ", ".join(str(paths[0]) for paths in files)
    return write_pairs(pairs, *languages, name=name, on_blank=on_blank, cache_dir=cache_dir, report=report)


def prepare_iwslt14(
    path: str | Path,
    source_lang: str = "de",
    target_lang: str = "en",
    *,
    cache_dir: str | Path | None = None,
    reports: dict[str, DataReport] | None = None,
) -> DatasetDict:
    """Train, validation and test of the unpacked IWSLT14 archive, untokenised.

    Tags are stripped, every 23rd training pair becomes validation, and all `IWSLT14.TED*` evaluation files together,
    in the order of their names, become test. `load_corpus(..., preprocess=True)` adds tokenisation, lower-casing and
    cleaning of the training part. Validation is taken before cleaning, so its size does not depend on the filters.
    """
    folder, languages = Path(path), (source_lang, target_lang)
    prefix = _raw_prefix(folder, languages)
    if prefix is None:
        raise FileNotFoundError(
            f"{folder}: no train.tags.{source_lang}-{target_lang}.{source_lang} (or the reverse pair)"
        )
    train = tuple(folder / f"train.tags.{prefix}.{language}" for language in languages)
    names = [path.name for path in sorted(folder.glob(f"IWSLT14.TED*.{prefix}.{source_lang}.xml"))]
    tests = [(folder / name, folder / name.replace(f".{source_lang}.xml", f".{target_lang}.xml")) for name in names]
    report = DataReport()
    data = every_nth(_raw_pairs([train], strip_training_tags, languages, "drop", cache_dir, report), 23)
    held_out = len(data["validation"])
    reports = {} if reports is None else reports
    reports |= {"train": report, "validation": DataReport(kept=held_out)}
    report.kept -= held_out
    report.dropped["taken for validation"] = held_out
    if tests:
        reports |= {"test": DataReport()}
        data["test"] = _raw_pairs(tests, segments, languages, "keep", cache_dir, reports["test"])
    return data


def _raw_prefix(folder: Path, languages: tuple[str, str]) -> str | None:
    prefixes = ("-".join(languages), "-".join(languages[::-1]))
    return next((p for p in prefixes if (folder / f"train.tags.{p}.{languages[0]}").exists()), None)


def _corpus(name: str) -> Corpus:
    if name not in CORPORA:
        raise ValueError(
            f"unknown corpus {name!r}; known: {', '.join(CORPORA)}; load other folders with load_folder()"
        )
    return CORPORA[name]


def load_corpus(
    name: str,
    source_lang: str,
    target_lang: str,
    *,
    path: str | Path | None = None,
    preprocess: bool = False,
    links: Mapping[str, str | Path] | None = None,
    link_format: LinkFormat | None = None,
    cache_dir: str | Path | None = None,
    reports: dict[str, DataReport] | None = None,
) -> DatasetDict:
    """Loads a corpus of `CORPORA` as raw text from the folder `path`, or from the Hub without it.

    Args:
        preprocess: Applies what the literature does with the corpus: `Corpus.preprocess` to every split and then
            `Corpus.clean` to the training split.
        links, link_format: Word links of splits, as in `load_folder`.
        reports: Filled with one `DataReport` per split.

    Raises:
        ValueError: unknown corpus or pair, or the Hub cannot be reached (then pass `path=`).
        FileNotFoundError: `path` does not hold the files.
    """
    corpus = _corpus(name)
    ordered = corpus.pair_in_order(source_lang, target_lang)
    reports = {} if reports is None else reports
    aligned = {"links": links, "link_format": link_format}
    if path is None:
        data = _from_hub(corpus, ordered, (source_lang, target_lang), **aligned, cache_dir=cache_dir, reports=reports)
    elif name == "iwslt14" and _raw_prefix(Path(path), (source_lang, target_lang)):
        if links:
            raise ValueError(
                f"{path}: the raw archive is cleaned and split while it is read, so no file of links has its lines; "
                "align the pairs that come out of it"
            )
        data = prepare_iwslt14(path, source_lang, target_lang, cache_dir=cache_dir, reports=reports)
    else:
        options = {"default_test": corpus.default_test, **aligned, "cache_dir": cache_dir, "reports": reports}
        data = load_folder(path, source_lang, target_lang, **options)
    if not preprocess:
        return data
    words = (link_format or LinkFormat()).words
    return _prepared(data, corpus, (source_lang, target_lang), words, cache_dir, reports)


def _from_hub(
    corpus: Corpus,
    ordered: tuple[str, str],
    languages: tuple[str, str],
    *,
    links: Mapping[str, str | Path] | None,
    link_format: LinkFormat | None,
    cache_dir: str | Path | None,
    reports: dict[str, DataReport],
) -> DatasetDict:
    if corpus.hub_id is None:
        raise ValueError(
            f"{corpus.name} is not on the Hub in a form that can be loaded; pass path= with train.{languages[0]}, "
            f"train.{languages[1]}, valid.*, test.* {corpus.local_files}"
        )
    config = corpus.hub_config and corpus.hub_config.format(source=ordered[0], target=ordered[1])
    data, parts = DatasetDict(), load_from_hub(corpus.hub_id, config=config, revision=corpus.hub_revision)
    links = check_links_of_splits(links, parts)
    for split, part in parts.items():
        reports[split] = DataReport()
        data[split] = load_pairs(
            part,
            source_lang=languages[0],
            target_lang=languages[1],
            alignment=links.get(split),
            link_format=link_format,
            on_blank="drop" if split == "train" else "keep",
            cache_dir=cache_dir,
            report=reports[split],
        )
    return data


def _cleaning(corpus: Corpus, languages: tuple[str, str]) -> dict[str, Any]:
    """`Corpus.clean`, in characters where a language has no spaces to count words by."""
    if not corpus.clean or _UNSPACED.isdisjoint(languages):
        return corpus.clean
    return {**corpus.clean, "length_unit": "characters", "max_length": 1000, "max_ratio": None}


def _prepared(
    data: DatasetDict,
    corpus: Corpus,
    languages: tuple[str, str],
    link_words: str,
    cache_dir: str | Path | None,
    reports: dict[str, DataReport],
) -> DatasetDict:
    data = DatasetDict(data)
    for split in data if corpus.preprocess else ():
        data[split] = preprocess_pairs(data[split], **corpus.preprocess, cache_dir=cache_dir)
    if corpus.clean and "train" in data:
        options = {"link_words": link_words, "cache_dir": cache_dir, "report": reports["train"]}
        data["train"] = clean_pairs(data["train"], **_cleaning(corpus, languages), **options)
    return data


__all__ = [
    "CORPORA",
    "Corpus",
    "Vocabulary",
    "load_corpus",
    "load_folder",
    "prepare_iwslt14",
    "segments",
    "strip_training_tags",
]
