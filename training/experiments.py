"""
Run and report experiments that compare systems over several seeds: rows that differ in a few recipe fields.

    python training/experiments.py run training/experiments/NAME.yaml --work FOLDER [data.path=... ...]
    python training/experiments.py compare training/experiments/NAME.yaml data.path=...
    python training/experiments.py table [--check]
    python training/experiments.py curves training/experiments/NAME.yaml --output NAME.png

`run` trains what has no result yet, one row and seed after the other, so that it can be stopped at any time and started
again. Each result goes to benchmarks/results/experiments/NAME/, with the translations of the test set. `table` writes
benchmarks/EXPERIMENTS.md from them: means over seeds, differences to the row's baseline, and the paired bootstrap that
`compare` adds. `curves` draws the losses of all rows.
"""

import argparse
import dataclasses
import gzip
import hashlib
import json
import math
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import yaml


HERE = Path(__file__).resolve().parent
# this folder holds a module named like the library `evaluate`
sys.path[:] = [folder for folder in sys.path if Path(folder or ".").resolve() != HERE]
RESULTS = HERE.parent / "benchmarks" / "results" / "experiments"
TABLE = HERE.parent / "benchmarks" / "EXPERIMENTS.md"
BOOTSTRAP = "bootstrap.json"
LINKS_FOLDER = "links"
LINES = ["-", "--", ":", "-."]


def load_experiment(path: Path) -> dict:
    """
    The experiment file: `title`, `recipe` (file beside the recipes), `seeds`, `overrides` for all rows, and `rows`.

    Each row has a `name`, `overrides`, and where it is compared with another row, that one's name as `baseline`.

    Raises:
        ValueError: a row is named twice or compares with a row that is not there.
    """
    experiment = yaml.safe_load(path.read_text(encoding="utf-8"))
    names = [row["name"] for row in experiment["rows"]]
    for row in experiment["rows"]:
        if names.count(row["name"]) > 1:
            raise ValueError(f"{path.name}: two rows are named {row['name']!r}")
        if row.get("baseline", names[0]) not in names:
            raise ValueError(f"{path.name}: row {row['name']!r} compares with {row['baseline']!r}, which is no row")
    return experiment


def recipe_overrides(experiment: dict, row: dict, seed: int, folder: Path, given: list[str]) -> list[str]:
    settings = {**experiment.get("overrides", {}), **row.get("overrides", {})}
    settings |= {"training.seed": seed, "training.output_dir": str(folder)}
    return [f"{name}={json.dumps(value)}" for name, value in settings.items()] + given


def run(arguments: argparse.Namespace):
    """Train every row and seed without a result; rounds over seeds, so that early stops leave whole comparisons."""
    path = Path(arguments.experiment)
    experiment = load_experiment(path)
    rows = [row for row in experiment["rows"] if not arguments.rows or row["name"] in arguments.rows.split(",")]
    seeds = [seed for seed in experiment["seeds"] if not arguments.seeds or str(seed) in arguments.seeds.split(",")]
    if not rows or not seeds:
        raise SystemExit(f"{path.name} has no row named {arguments.rows!r} or no seed {arguments.seeds!r}")
    for seed in seeds:
        for row in rows:
            target = RESULTS / path.stem / f"{row['name']}.{seed}.json"
            if target.is_file():
                continue
            folder = Path(arguments.work) / path.stem / f"{row['name']}.{seed}"
            recipe = HERE / "recipes" / experiment["recipe"]
            command = [sys.executable, str(HERE / "train.py"), str(recipe)]
            command += recipe_overrides(experiment, row, seed, folder, arguments.overrides)
            print(f"{path.stem}: {row['name']}, seed {seed}", flush=True)
            folder.mkdir(parents=True, exist_ok=True)
            links = shared_links(folder, recipe, command[3:])
            if links is not None and links.is_dir() and not (folder / LINKS_FOLDER).is_dir():
                shutil.copytree(links, folder / LINKS_FOLDER)
            with open(folder / "log.txt", "a", encoding="utf-8") as log:
                code = subprocess.run(command, stdout=log, stderr=log, check=False).returncode
            if code:
                raise SystemExit(
                    f"{folder / 'log.txt'}: training failed with exit status {code}; fix it and run again"
                )
            if links is not None and not links.is_dir():
                shutil.copytree(folder / LINKS_FOLDER, links)
            keep(folder, target)


def shared_links(folder: Path, recipe: Path, overrides: list[str]) -> Path | None:
    """
    Where an aligner's links for a run's data are kept for other runs, so that all rows have one reference order.

    None where no aligner makes links, or each seed has pairs of its own.
    """
    from hf_deepnmt.training import GENERATED_CORPUS, load_recipe

    data = load_recipe(recipe, overrides).data
    if data.aligner is None or data.corpus == GENERATED_CORPUS:
        return None
    # rows may differ in their data
    settings = json.dumps(dataclasses.asdict(data), sort_keys=True)
    return folder.parent / f"{LINKS_FOLDER}-{hashlib.sha256(settings.encode()).hexdigest()[:12]}"


def keep(folder: Path, target: Path):
    """The figures of a finished run, and its translations beside them."""
    from hf_deepnmt.model_card import known_size
    from hf_deepnmt.provenance import write_results

    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    history = results["training"]["history"]
    kept = {name: results[name] for name in ("recipe", "decoding", "scores", "run")}
    if "order" in results:
        kept["order"] = results["order"]
    kept["parameters"] = known_size(results["config"])["parameters"]
    kept["seconds"] = results["training"]["train_runtime"]
    kept["validation"] = [
        {name: row[name] for name in ("step", "eval_loss", "eval_bleu", "eval_chrf") if name in row}
        for row in history
        if "eval_loss" in row
    ]
    kept["training_loss"] = [{"step": row["step"], "loss": row["loss"]} for row in history if "loss" in row]
    write_results(target, kept)
    for name in results["scores"]:
        # without a time stamp, so that the same translations are the same file
        with open(target.with_suffix(f".{name}.gz"), "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed:
            packed.write((folder / f"{name}.hyp").read_bytes())
    for checkpoint in folder.glob("checkpoint-*"):
        shutil.rmtree(checkpoint)


def results_of(name: str, row: str) -> dict[int, dict]:
    files = sorted((RESULTS / name).glob(f"{row}.*.json"))
    return {int(file.name.split(".")[-2]): json.loads(file.read_text(encoding="utf-8")) for file in files}


def compare(arguments: argparse.Namespace):
    """Paired bootstrap of each row against its baseline, seed by seed, into bootstrap.json of the experiment."""
    from hf_deepnmt.evaluation import paired_bootstrap
    from hf_deepnmt.provenance import run_info, write_results
    from hf_deepnmt.training import load_data, load_recipe, side

    path = Path(arguments.experiment)
    experiment = load_experiment(path)
    found = {}
    for row in experiment["rows"]:
        if "baseline" not in row:
            continue
        recipe = load_recipe(
            HERE / "recipes" / experiment["recipe"],
            recipe_overrides(experiment, row, 1, Path("unused"), arguments.overrides),
        )
        data = load_data(recipe.data, 1, {})
        for split in [split for split in data if split.startswith("test")]:
            references = side(data[split], recipe.data.target_lang)
            for seed in experiment["seeds"]:
                files = [RESULTS / path.stem / f"{name}.{seed}.{split}.gz" for name in (row["name"], row["baseline"])]
                if not all(file.is_file() for file in files):
                    continue
                systems = [gzip.decompress(file.read_bytes()).decode().splitlines() for file in files]
                outcome = paired_bootstrap(*systems, references, target_lang=recipe.data.target_lang)
                found.setdefault(row["name"], {}).setdefault(split, {})[str(seed)] = outcome["metrics"]
    write_results(RESULTS / path.stem / BOOTSTRAP, {"comparisons": found, "run": run_info()})


def mean_and_spread(values: list[float]) -> str:
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{spread}"


def table_of(path: Path) -> str:
    """
    The Markdown table of one experiment: BLEU and chrF of the first test set, over the seeds that are there.

    Pictures that lie beside the results follow. Where models order the source, the table also says how close they come to
    the order of word links, and the unmoved source with it.
    """
    experiment = load_experiment(path)
    file = RESULTS / path.stem / BOOTSTRAP
    bootstrap = json.loads(file.read_text(encoding="utf-8"))["comparisons"] if file.is_file() else {}
    found = {row["name"]: results_of(path.stem, row["name"]) for row in experiment["rows"]}
    orders = any("order" in result for results in found.values() for result in results.values())
    columns = ["system", "seeds", "BLEU", "chrF", "validation loss", "BLEU minus baseline", "bootstrap p < 0.05"]
    columns += [*(["cosine similarity (source order)"] if orders else []), "minutes"]
    lines = [f"## {experiment['title']}", "", experiment["description"].strip(), ""]
    lines += [f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}"]
    for row in experiment["rows"]:
        results = found[row["name"]]
        if not results:
            empty = " |" * (len(columns) - 3)
            lines.append(f"| {row['name']} | 0 of {len(experiment['seeds'])} | not run yet |{empty}")
            continue
        split = next(iter(next(iter(results.values()))["scores"]))
        scores = {seed: result["scores"][split] for seed, result in results.items()}
        cells = [row["name"], f"{len(results)} of {len(experiment['seeds'])}"]
        cells += [
            mean_and_spread([score[metric]["score"] for score in scores.values()]) for metric in ("bleu", "chrf")
        ]
        losses = [min(point["eval_loss"] for point in result["validation"]) for result in results.values()]
        cells.append(f"{statistics.mean(losses):.3f}")
        cells += difference(path.stem, row, scores, split, bootstrap)
        cells += [similarity(results, split)] if orders else []
        cells.append(f"{statistics.mean(result['seconds'] for result in results.values()) / 60:.1f}")
        lines.append(f"| {' | '.join(cells)} |")
    for picture in sorted((RESULTS / path.stem).glob("*.png")):
        name = picture.stem.replace("_", " ")
        lines += ["", f"![{experiment['title']}: {name}](results/experiments/{path.stem}/{picture.name})"]
    return "\n".join(lines)


def similarity(results: dict[int, dict], split: str) -> str:
    """Mean cosine similarity of the supervised layer's positions to those of word links (Chen et al. 2020, Figure 5)."""
    orders = [result["order"][split] for result in results.values() if "order" in result]
    if not orders:
        return ""
    predicted = statistics.mean(order["layers"][-1]["cosine_similarity"] for order in orders)
    own = statistics.mean(order["source_order"]["cosine_similarity"] for order in orders)
    return f"{predicted:.3f} ({own:.3f})"


def difference(name: str, row: dict, scores: dict[int, dict], split: str, bootstrap: dict) -> list[str]:
    """Mean difference to the baseline over the seeds that both have, and in how many it is significant."""
    if "baseline" not in row:
        return ["", ""]
    others = results_of(name, row["baseline"])
    seeds = sorted(set(scores) & set(others))
    if not seeds:
        return ["", ""]
    deltas = [scores[seed]["bleu"]["score"] - others[seed]["scores"][split]["bleu"]["score"] for seed in seeds]
    error = f" ± {statistics.stdev(deltas) / math.sqrt(len(deltas)):.2f}" if len(deltas) > 1 else ""
    tests = bootstrap.get(row["name"], {}).get(split, {})
    significant = [test["bleu"]["p_value"] < 0.05 for test in tests.values()]
    return [
        f"{statistics.mean(deltas):+.2f}{error} ({row['baseline']})",
        f"{sum(significant)} of {len(significant)}" if significant else "",
    ]


def table(arguments: argparse.Namespace):
    files = sorted((HERE / "experiments").glob("*.yaml"))
    started = [file for file in files if (RESULTS / file.stem).is_dir()]
    text = "\n\n".join(
        [
            "# Experiments",
            "Written by `python training/experiments.py table` from the results beside it. Means and standard deviations "
            "are over seeds; the error of a difference is its standard error over seeds with the same seed on both "
            "sides; the bootstrap (Koehn, 2004; 1000 resamples) is per seed, two-sided.",
            *map(table_of, started),
        ]
    )
    if arguments.check:
        if not TABLE.is_file() or TABLE.read_text(encoding="utf-8") != text + "\n":
            raise SystemExit(f"{TABLE.name} is not what the results say: run `python training/experiments.py table`")
        return
    TABLE.write_text(text + "\n", encoding="utf-8")


def curves(arguments: argparse.Namespace):
    """Draw training loss, validation loss and validation BLEU of every row over the updates, as means over its seeds."""
    # not through pyplot, whose backend belongs to the caller
    from matplotlib.figure import Figure

    path = Path(arguments.experiment)
    experiment = load_experiment(path)
    series = {"training_loss": ("loss", "training loss"), "validation": ("eval_loss", "validation loss")}
    panels = [(key, field, label) for key, (field, label) in series.items()]
    panels.append(("validation", "eval_bleu", "validation BLEU"))
    figure = Figure(figsize=(5 * len(panels), 4.5), layout="constrained")
    axes = figure.subplots(1, len(panels))
    # rows of one system share a colour: they are named SYSTEM-SETTING
    found = {row["name"]: results_of(path.stem, row["name"]) for row in experiment["rows"]}
    found = {name: results for name, results in found.items() if results}
    if not found:
        raise SystemExit(f"{path.name} has no results yet: start `python training/experiments.py run`")
    systems = list(dict.fromkeys(name.rpartition("-")[0] for name in found))
    settings = list(dict.fromkeys(name.rpartition("-")[2] for name in found))
    for name, results in found.items():
        system, _, setting = name.rpartition("-")
        style = {"color": f"C{systems.index(system) % 10}", "linestyle": LINES[settings.index(setting) % len(LINES)]}
        for axis, (key, field, label) in zip(axes, panels, strict=True):
            points: dict[int, list[float]] = {}
            for result in results.values():
                for point in result[key]:
                    if field in point:
                        points.setdefault(point["step"], []).append(point[field])
            steps = sorted(points)
            axis.plot(steps, [statistics.mean(points[step]) for step in steps], label=name, **style)
            axis.set(xlabel="updates", title=label)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=6)
    figure.savefig(arguments.output, dpi=110)
    print(f"Losses of {len(found)} rows: {arguments.output}")


def main(arguments: list[str] | None = None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0].strip())
    commands = parser.add_subparsers(required=True)
    for name, function in (("run", run), ("compare", compare), ("curves", curves)):
        command = commands.add_parser(name, help=function.__doc__)
        command.add_argument("experiment", help="file in training/experiments/")
        if name == "run":
            command.add_argument("--work", default="runs/experiments", help="folder for the training runs")
            command.add_argument("--rows", default="", help="only these rows, separated by commas")
            command.add_argument("--seeds", default="", help="only these seeds, so that processes can share the work")
        if name == "curves":
            command.add_argument("--output", required=True, help="image file")
        command.set_defaults(function=function)
    command = commands.add_parser("table", help="write benchmarks/EXPERIMENTS.md")
    command.add_argument("--check", action="store_true", help="only compare")
    command.set_defaults(function=table)
    options, options.overrides = parser.parse_known_args(arguments)
    for argument in options.overrides:
        if argument.startswith("-") or "=" not in argument:
            parser.error(f"{argument!r} is neither an option nor a recipe field such as data.path=FOLDER")
    options.function(options)


if __name__ == "__main__":
    main()
