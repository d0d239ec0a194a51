"""
Translate a test set and score it, or score a file of translations.

    python training/evaluate.py MODEL_DIR --source test.de --reference test.en --output results.json
    python training/evaluate.py --hypotheses system.en --baseline other.en --reference test.en --output results.json
"""

from hf_deepnmt.evaluation import main


if __name__ == "__main__":
    raise SystemExit(main())
