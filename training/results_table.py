"""Renew the results table of the README from `benchmarks/results/*.json`; `--check` only says whether it is current."""

import json
import sys
from pathlib import Path


# evaluate.py in this folder would hide the library of that name
sys.path = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]

from hf_deepnmt.model_card import known_size  # noqa: E402


ROOT = Path(__file__).resolve().parents[1]
START, END = "<!-- results: ", "<!-- end of results -->"
HEAD = (
    "| model | parameters | test set | sacreBLEU | tokenised, lower-cased | chrF | training | hardware |\n"
    + "| --- " * 8
    + "|\n"
)


def rows(path: Path) -> list[str]:
    """One line for each test set of a results file that holds scores of a trained model."""
    results = json.loads(path.read_text(encoding="utf-8"))
    if "scores" not in results or "training" not in results:
        return []
    minutes = results["training"]["train_runtime"] / 60
    machine = results["run"]["hardware"]
    lines = []
    for name, scores in sorted(results["scores"].items()):
        values = [f"{scores[metric]['score']:.1f}" for metric in ("bleu", "tokenized_bleu", "chrf")]
        size = f"{known_size(results['config'])['parameters'] / 1e6:.1f}M"
        cells = [path.stem, size, name, *values, f"{minutes:.0f} min", f"{machine['cores']} cores, {machine['cpu']}"]
        lines.append("| " + " | ".join(cells) + " |\n")
    return lines


def table() -> str:
    found = [line for path in sorted((ROOT / "benchmarks" / "results").glob("*.json")) for line in rows(path)]
    return HEAD + "".join(found) if found else ""


def main(arguments: list[str]) -> int:
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    before, _, rest = text.partition(START)
    opening, _, rest = rest.partition("\n")
    updated = f"{before}{START}{opening}\n{table()}{END}{rest.partition(END)[2]}"
    if "--check" in arguments:
        return int(updated != text)
    readme.write_text(updated, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
