"""Renew the tables of the README from `benchmarks/results/*.json`; `--check` only says whether they are current."""

import json
import sys
from functools import partial
from pathlib import Path


# evaluate.py in this folder would hide the library of that name
sys.path = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]

from hf_deepnmt.model_card import known_size  # noqa: E402


ROOT = Path(__file__).resolve().parents[1]
SYMMETRISATIONS = ("forward", "reverse", "intersect", "grow-diag-final-and")
SYMMETRISED = ("AER forward", *SYMMETRISATIONS[1:])
TRAINED = ("training", "hardware")


def rows(path: Path, metrics: tuple[str, ...]) -> list[str]:
    """One line for each test set of a results file that holds these scores of a trained model."""
    results = json.loads(path.read_text(encoding="utf-8"))
    if "scores" not in results or "training" not in results:
        return []
    minutes = results["training"]["train_runtime"] / 60
    lines = []
    for name, scores in sorted(results["scores"].items()):
        if not scores.keys() >= set(metrics):
            continue
        values = [f"{scores[metric]['score']:.1f}" for metric in metrics]
        size = f"{known_size(results['config'])['parameters'] / 1e6:.1f}M"
        cells = [path.stem, size, name, *values, f"{minutes:.0f} min", machine_of(results)]
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


def machine_of(results: dict) -> str:
    machine = results["run"]["hardware"]
    return f"{machine['cores']} cores, {machine['cpu']}"


def speed_rows(path: Path) -> list[str]:
    """One line for each system of a results file of benchmarks/training.py speed."""
    results = json.loads(path.read_text(encoding="utf-8"))
    if results.get("benchmark") != "training speed":
        return []
    machine = f"{machine_of(results)}, {'with' if results['precision'] == 'bf16' else 'without'} fast bf16"
    return [
        f"| {name} | {found['tokens_per_second']:,.0f} | {found['ratio']:.2f} | {machine} |\n"
        for name, found in results["systems"].items()
    ]


def cost_rows(path: Path) -> list[str]:
    """One line for each architecture of a results file of benchmarks/training.py architectures."""
    results = json.loads(path.read_text(encoding="utf-8"))
    if results.get("benchmark") != "training architectures":
        return []
    shape = results["shape"]
    about = f"d {shape['d_model']}, {shape['encoder_layers']}+{shape['decoder_layers']} layers, {results['precision']}"
    return [
        f"| {name} | {results['parameters'][name] / 1e6:.1f}M | {ratio:.2f} | {about} |\n"
        for name, ratio in results["ratio"].items()
    ]


def depth_rows(path: Path) -> list[str]:
    """One line for each encoder depth and model of a results file of benchmarks/depth.py: training."""
    results = json.loads(path.read_text(encoding="utf-8"))
    if results.get("benchmark") != "depth" or not results["training"]["models"]:
        return []
    lines, found = [], {}
    for row in results["training"]["models"]:
        found.setdefault((row["layers"], row["model"]), {})[row["checkpointing"]] = row
    for (layers, model), row in found.items():
        cells = [layers, model, f"{row[False]['parameters'] / 1e6:.1f}M"]
        cells += [f"{row[kept]['milliseconds'] / 1000:.2f} s" for kept in (False, True)]
        cells += [f"{row[kept]['peak_mib'] / 1024:.2f} GiB" for kept in (False, True)]
        lines.append("| " + " | ".join([*map(str, cells), results["training"]["dtype"]]) + " |\n")
    return lines


def depth_decoding_rows(path: Path) -> list[str]:
    """One line for each model of a results file of benchmarks/depth.py: decoding."""
    results = json.loads(path.read_text(encoding="utf-8"))
    if results.get("benchmark") != "depth" or not results["decoding"]:
        return []
    lines = []
    for name, row in results["decoding"]["models"].items():
        paper = "" if row["paper_change"] is None else f"{row['paper_change']:+.0%}"
        change = f"{row['tokens_per_second_change']:+.0%}"
        lines.append(f"| {name} | {row['tokens_per_second']:,.0f} | {change} | {paper} | {machine_of(results)} |\n")
    return lines


def head(*columns: str) -> str:
    return f"| {' | '.join(columns)} |\n" + "| --- " * len(columns) + "|\n"


TABLES = {
    "speed": (head("system", "target tokens a second", "ratio", "machine"), speed_rows),
    "costs": (head("architecture", "parameters", "time of a training step", "shape"), cost_rows),
    "depth": (
        head(
            "encoder layers", "model", "parameters", "step", "checkpointed", "peak memory", "checkpointed", "precision"
        ),
        depth_rows,
    ),
    "depth-decoding": (head("model", "tokens a second", "change", "paper", "machine"), depth_decoding_rows),
    "results": (
        head("model", "parameters", "test set", "sacreBLEU", "tokenised, lower-cased", "chrF", *TRAINED),
        partial(rows, metrics=("bleu", "tokenized_bleu", "chrf")),
    ),
    "summaries": (
        head("model", "parameters", "test set", "ROUGE-1", "ROUGE-2", "ROUGE-L", *TRAINED),
        partial(rows, metrics=("rouge1", "rouge2", "rougeL")),
    ),
    "alignment": (head("pair", "sentences", "training pairs", "aligner", *SYMMETRISED), alignment_rows),
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
