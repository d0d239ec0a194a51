"""Renew the tables of the README from `benchmarks/results/*.json`; `--check` only says whether they are current."""

import json
import sys
from functools import partial
from pathlib import Path


# evaluate.py in this folder would hide the library of that name
sys.path = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]

from hf_deepnmt.model_card import known_size  # noqa: E402


ROOT = Path(__file__).resolve().parents[1]
HEAD = (
    "| model | parameters | test set | sacreBLEU | tokenised, lower-cased | chrF | training | hardware |\n"
    + "| --- " * 8
    + "|\n"
)
SUMMARY_HEAD = (
    "| model | parameters | test set | ROUGE-1 | ROUGE-2 | ROUGE-L | training | hardware |\n" + "| --- " * 8 + "|\n"
)

SYMMETRISATIONS = ("forward", "reverse", "intersect", "grow-diag-final-and")
ALIGNMENT_HEAD = (
    "| pair | sentences | training pairs | aligner | AER forward | reverse | intersect | grow-diag-final-and |\n"
    + "| --- " * 8
    + "|\n"
)


def rows(path: Path, metrics: tuple[str, ...]) -> list[str]:
    """One line for each test set of a results file that holds these scores of a trained model."""
    results = json.loads(path.read_text(encoding="utf-8"))
    if "scores" not in results or "training" not in results:
        return []
    minutes = results["training"]["train_runtime"] / 60
    machine = results["run"]["hardware"]
    lines = []
    for name, scores in sorted(results["scores"].items()):
        if not scores.keys() >= set(metrics):
            continue
        values = [f"{scores[metric]['score']:.1f}" for metric in metrics]
        size = f"{known_size(results['config'])['parameters'] / 1e6:.1f}M"
        cells = [path.stem, size, name, *values, f"{minutes:.0f} min", f"{machine['cores']} cores, {machine['cpu']}"]
        lines.append("| " + " | ".join(cells) + " |\n")
    return lines


def alignment_rows(path: Path) -> list[str]:
    """One line for each aligner of a results file of benchmarks/alignment.py, the best symmetrisation in bold."""
    results = json.loads(path.read_text(encoding="utf-8"))
    if results.get("benchmark") != "alignment":
        return []
    lines = []
    for run in results["runs"]:
        rates = {name: run["scores"][name]["aer"] for name in SYMMETRISATIONS}
        lowest = min(rates.values())
        cells = [results["pair"], run["scores"]["forward"]["sentences"], f"{results['training']['pairs']:,}"]
        cells += [run["aligner"], *(f"**{rate:.3f}**" if rate == lowest else f"{rate:.3f}" for rate in rates.values())]
        lines.append("| " + " | ".join(map(str, cells)) + " |\n")
    return lines


TABLES = {
    "results": (HEAD, partial(rows, metrics=("bleu", "tokenized_bleu", "chrf"))),
    "summaries": (SUMMARY_HEAD, partial(rows, metrics=("rouge1", "rouge2", "rougeL"))),
    "alignment": (ALIGNMENT_HEAD, alignment_rows),
}


def table(name: str) -> str:
    head, lines_of = TABLES[name]
    found = [line for path in sorted((ROOT / "benchmarks" / "results").glob("*.json")) for line in lines_of(path)]
    return head + "".join(found) if found else ""


def main(arguments: list[str]) -> int:
    readme = ROOT / "README.md"
    text = updated = readme.read_text(encoding="utf-8")
    for name in TABLES:
        start, end = f"<!-- {name}: ", f"<!-- end of {name} -->"
        before, _, rest = updated.partition(start)
        opening, _, rest = rest.partition("\n")
        updated = f"{before}{start}{opening}\n{table(name)}{end}{rest.partition(end)[2]}"
    if "--check" in arguments:
        return int(updated != text)
    readme.write_text(updated, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
