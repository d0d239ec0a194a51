"""Train a model: `python training/train.py RECIPE.yaml [section.field=value ...]`, also behind `accelerate launch`."""

import sys
from pathlib import Path


# evaluate.py in this folder would hide the library of that name
sys.path = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]

from hf_deepnmt.training import train  # noqa: E402


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        raise SystemExit(__doc__)
    train(sys.argv[1:])
