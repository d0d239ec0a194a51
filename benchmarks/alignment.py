"""
Alignment error rate of both aligners against gold alignments: forward, reverse and every symmetrisation.

The gold folder holds `src-tgt` (`source ||| target`, tokenised) and `gold` (from 1, `1-2` sure, `3p4` possible). The
aligners learn from the gold text and the training text together, without the gold links. With `--words text` (the rule that
recipes with an aligner use) both texts are split further, and words of the gold text are linked where any of their parts
are; with `--words spaces` the training text must be tokenised like the gold text, for which there is `--moses`.

Run: python benchmarks/alignment.py de-en --gold FOLDER --source train.de.gz --target train.en.gz
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

from hf_deepnmt.aligners import ALIGNERS, write_links
from hf_deepnmt.alignment import (
    SYMMETRISATIONS,
    WORD_RULES,
    Links,
    alignment_error_rate,
    parse_gold,
    parse_links,
    symmetrise,
    word_spans,
)
from hf_deepnmt.data import iter_lines, iter_pairs
from hf_deepnmt.provenance import run_info, write_results
from hf_deepnmt.tokenization import moses_tokenize


Pair = tuple[str, str]
PACKAGES = {"eflomal": "eflomal", "fast_align": "systran-align"}


def read_gold(folder: Path) -> tuple[list[Pair], list[Links], list[Links]]:
    pairs = [tuple(line.split(" ||| ", 1)) for line in iter_lines(folder / "src-tgt")]
    links = [parse_gold(line) for line in iter_lines(folder / "gold")]
    if len(pairs) != len(links):
        raise ValueError(f"{folder}: src-tgt has {len(pairs)} lines, gold {len(links)}")
    return pairs, [sure for sure, _ in links], [possible for _, possible in links]


def training_pairs(options: argparse.Namespace) -> Iterator[Pair]:
    read = {"format": "lines", "source_lang": "source", "target_lang": "target"}
    files = zip(options.source, options.target, strict=True)
    pairs = islice((pair for paths in files for pair in iter_pairs(*paths, **read)), options.pairs)
    if not options.moses:
        yield from pairs
        return
    for pair in pairs:
        yield tuple(
            next(moses_tokenize([text], lang)) for text, lang in zip(pair, options.name.split("-"), strict=True)
        )


def whole_words(text: str, rule: str) -> list[int]:
    """For each word by `rule` the white-space word that holds it."""
    words, place, owners = word_spans(text, "spaces"), 0, []
    for start, _ in word_spans(text, rule):
        while words[place][1] <= start:
            place += 1
        owners.append(place)
    return owners


def read_rows(path: Path, pairs: list[Pair], rule: str) -> list[Links]:
    rows = []
    for line, pair in zip(iter_lines(path), pairs, strict=False):
        source, target = (whole_words(text, rule) for text in pair)
        rows.append(sorted({(source[i], target[j]) for i, j in parse_links(line)}))
    return rows


def measure(aligner: str, rule: str, options: argparse.Namespace) -> dict[str, Any]:
    pairs, sure, possible = read_gold(options.gold)

    def texts() -> Iterator[Pair]:
        yield from pairs
        yield from training_pairs(options)

    with tempfile.TemporaryDirectory() as folder:
        links, start = Path(folder, "links"), time.perf_counter()
        arguments = {"aligner": aligner, "words": rule, "directions": True, "progress": options.progress}
        counts = write_links({"text": texts()}, {"text": links}, **arguments)["text"]
        seconds = time.perf_counter() - start
        forward, reverse = (read_rows(Path(f"{links}.{end}"), pairs, rule) for end in ("forward", "reverse"))
        scores = {}
        for method in SYMMETRISATIONS:
            both = [symmetrise(*row, method) for row in zip(forward, reverse, strict=True)]
            scores[method] = asdict(alignment_error_rate(both, sure, possible))
        # what the package itself gives: symmetrised in the words that the aligner saw
        given = read_rows(links, pairs, rule)
        scores["written"] = asdict(alignment_error_rate(given, sure, possible))
    return {
        "aligner": aligner,
        "package": f"{PACKAGES[aligner]} {version(PACKAGES[aligner])}",
        "words": rule,
        "seconds": round(seconds, 1),
        "rows": counts.as_dict(),
        "scores": scores,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("name", help="language pair, source first, such as de-en")
    parser.add_argument("--gold", type=Path, required=True, help="folder with src-tgt and gold")
    parser.add_argument("--source", type=Path, action="append", required=True, help="training text; may be repeated")
    parser.add_argument("--target", type=Path, action="append", required=True, help="its translation; as often")
    parser.add_argument("--pairs", type=int, help="use so many training pairs, the first ones")
    parser.add_argument("--words", choices=WORD_RULES, action="append", help="rules to measure (text)")
    parser.add_argument("--aligner", choices=list(ALIGNERS), action="append", help="aligners to measure (all)")
    parser.add_argument("--moses", action="store_true", help="tokenise the training text by the rules of Moses")
    parser.add_argument("--note", default="", help="a remark for the results, such as what the training text is")
    parser.add_argument("--progress", action="store_true")
    parser.add_argument("--output", type=Path, help="benchmarks/results/alignment_NAME.json without it")
    options = parser.parse_args()
    runs = [
        measure(aligner, rule, options)
        for rule in options.words or ["text"]
        for aligner in options.aligner or list(ALIGNERS)
    ]
    output = options.output or Path(__file__).parent / "results" / f"alignment_{options.name}.json"
    training = {"files": [[path.name for path in files] for files in zip(options.source, options.target, strict=True)]}
    training |= {"pairs": runs[0]["rows"]["rows"] - len(read_gold(options.gold)[0]), "moses": options.moses}
    record = {"benchmark": "alignment", "pair": options.name, "gold": options.gold.name, "training": training}
    write_results(output, {**record, "note": options.note, "runs": runs, "run": run_info()})
    for run in runs:
        rates = ", ".join(f"{name} {score['aer']:.3f}" for name, score in run["scores"].items())
        print(f"{run['aligner']} ({run['words']}, {run['seconds']:.0f} s): {rates}")


if __name__ == "__main__":
    main()
