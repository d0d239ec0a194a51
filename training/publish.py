"""
Publish the results of a training run: `python training/publish.py RUN_FOLDER NAME [RECIPE.yaml]`.

Copies `results.json` to `benchmarks/results/NAME.json` and writes `model_cards/NAME.md` from it. The card's words (not its
numbers) come from `card` of the recipe, where one is given. `results_table.py` then renews the table of the README.
"""

import json
import sys
from pathlib import Path


# evaluate.py in this folder would hide the library of that name
sys.path = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]

from hf_deepnmt.model_card import write_model_card  # noqa: E402
from hf_deepnmt.provenance import write_results  # noqa: E402
from hf_deepnmt.training import load_recipe, without_folders  # noqa: E402


ROOT = Path(__file__).resolve().parents[1]


def main(run: str, name: str, recipe: str | None = None):
    results = without_folders(json.loads((Path(run) / "results.json").read_text(encoding="utf-8")))
    if recipe is not None:
        results["card"] = load_recipe(recipe).card
    write_results(ROOT / "benchmarks" / "results" / f"{name}.json", results)
    write_model_card(ROOT / "model_cards" / f"{name}.md", results)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
