"""
Train, evaluate and translate in about three minutes on two cores, offline, on the generated German-English corpus.

Writes `demo_output/`: the model, the learning curve as a picture, and results with sacreBLEU signature.
"""

import sys
from pathlib import Path


# evaluate.py in this folder would hide the library of that name
sys.path = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]

from transformers import pipeline  # noqa: E402

from hf_deepnmt.trainer import plot_learning_curve  # noqa: E402
from hf_deepnmt.training import train  # noqa: E402


RECIPE = Path(__file__).parent / "recipes" / "deepnmt_generated-de-en_tiny.yaml"
OUTPUT = Path("demo_output")
SENTENCES = [
    "Gestern habe ich meinen Bruder angerufen.",
    "Der alte Mann kauft heute ein, weil seine Frau krank ist.",
    "Wir haben einundzwanzig kleine Hunde gesehen.",
]


def main(arguments: list[str]):
    results = train([str(RECIPE), f"training.output_dir={OUTPUT}", *arguments])
    picture = OUTPUT / "learning_curve.png"
    plot_learning_curve(results["training"]["history"], picture)
    scores = results["scores"]["test"]
    print(
        f"\nBLEU on {scores['sentences']} held-out sentences: {scores['bleu']['score']:.1f}  ({scores['bleu']['signature']})"
    )
    print(f"Learning curve: {picture}\n\nTranslations by pipeline('translation', model='{OUTPUT}/model'):")
    translator = pipeline("translation", model=str(OUTPUT / "model"))
    for source, translated in zip(SENTENCES, translator(SENTENCES, num_beams=5), strict=True):
        print(f"  {source}\n    {translated['translation_text']}")


if __name__ == "__main__":
    main(sys.argv[1:])
