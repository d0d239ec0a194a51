"""
Translate a test set and score it, or score a file of translations.

    python training/evaluate.py MODEL_DIR --source test.de --reference test.en --output results.json
    python training/evaluate.py --hypotheses system.en --baseline other.en --reference test.en --output results.json
"""

import importlib
import sys
from pathlib import Path


# `import evaluate` means the library of that name, in the package and in the scripts beside this one.
FOLDER = Path(__file__).resolve().parent
sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != FOLDER]

if __name__ == "__main__":
    from hf_deepnmt.evaluation import main

    raise SystemExit(main())

del sys.modules[__name__]
sys.modules[__name__] = importlib.import_module(__name__)
