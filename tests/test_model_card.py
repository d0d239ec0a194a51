import copy
import json
import re
from pathlib import Path

import pytest
import yaml
from huggingface_hub import ModelCard
from tiny import tiny_config

from hf_deepnmt.evaluation import evaluate_hypotheses
from hf_deepnmt.model_card import check_card, render_model_card, write_model_card
from hf_deepnmt.models import ARCHITECTURES
from hf_deepnmt.provenance import run_info, write_results


ROOT = Path(__file__).parents[1]
TRAINED = {
    "card": {
        "name": "deepnmt-de-en-small",
        "datasets": ["someone/multi30k"],
        "license": "mit",
        "limitations": ["Captions of pictures only."],
        "citation": "@article{key, title={A | B}}",
    },
    "recipe": {
        "description": "A small baseline.",
        "data": {"corpus": "multi30k", "source_lang": "de", "target_lang": "en", "path": "/data/secret/multi30k"},
        "tokenizer": {"vocab_size": 8123, "path": None},
        "model": {"model_type": "deepnmt", "d_model": 272},
        "training": {"learning_rate": 0.00217, "max_tokens": 4097, "output_dir": "/data/secret/run"},
        "evaluation": {"num_beams": 7},
    },
    "model": {"parameters": 7654321, "model_type": "deepnmt"},
    "data": {"train": {"read": 29001, "kept": 28903, "dropped": {"repeated pair": 98}, "rows": {}}},
    "training": {
        "train_runtime": 1234.4,
        "steps": 3001,
        "history": [{"eval_bleu": 31.234, "step": 2500}, {"eval_bleu": 30.1, "step": 3000}, {"loss": 1.0}],
    },
    "decoding": {"num_beams": 7, "length_penalty": 0.61, "max_new_tokens": "2n+50"},
    "scores": {
        "test2016": {
            "bleu": {"score": 37.4567, "signature": "nrefs:1|case:mixed|tok:13a|version:2.6.0"},
            "chrf": {"score": 58.9123, "signature": "nrefs:1|nc:6|version:2.6.0"},
            "tokenized_bleu": {"score": 39.8765, "signature": "nrefs:1|case:lc|tok:moses-en"},
            "sentences": 1003,
            "length_ratio": 0.98765,
        }
    },
}


@pytest.fixture
def results():
    return {**copy.deepcopy(TRAINED), "run": run_info(seed=4321)}


@pytest.fixture
def scored():
    texts = ["a man walks a dog in a park", "two children play with a ball", "a woman reads a book"]
    wrong = [text.replace("a ", "the ") for text in texts]
    options = {"source_lang": "de", "target_lang": "en", "name": "test2017", "n_bootstrap": 17}
    return evaluate_hypotheses(texts[:2] + wrong[2:], texts, baseline=wrong, **options)


def parts(card):
    _, front, text = card.split("---\n", 2)
    return yaml.safe_load(front), text


def test_every_number_of_the_results_is_in_the_card(results):
    _, text = parts(render_model_card(results))
    expected = ["7,654,321", "272", "8123", "0.00217", "4097", "3,001", "31.23", "2,500", "1234", "7", "0.61", "2n+50"]
    expected += ["37.46", "58.91", "39.88", "1,003", "0.988"]
    expected += ["29,001", "28,903", "98 repeated pair", "4321", *results["run"]["versions"].values()]
    missing = [number for number in expected if not re.search(rf"(?<![\d.]){re.escape(number)}(?!\d)", text)]
    assert missing == []
    for score in ("bleu", "chrf", "tokenized_bleu"):
        assert results["scores"]["test2016"][score]["signature"] in text


def test_no_score_is_in_the_card_that_is_not_in_the_results(results):
    before = render_model_card(results)
    results["scores"]["test2016"]["bleu"]["score"] = 11.1149
    after = render_model_card(results)
    assert "37.46" not in after
    assert after.count("11.11") == before.count("37.46") == 2


def test_front_matter_is_what_the_hub_reads(results):
    front, _ = parts(render_model_card(results))
    assert (front["library_name"], front["pipeline_tag"], front["license"]) == ("transformers", "translation", "mit")
    assert (front["language"], front["datasets"]) == (["de", "en"], ["someone/multi30k"])
    assert {"translation", "deepnmt", "de-en"} <= set(front["tags"])
    (index,) = front["model-index"]
    assert index["name"] == "deepnmt-de-en-small"
    metrics = {entry["type"]: entry["value"] for result in index["results"] for entry in result["metrics"]}
    assert metrics == {"sacrebleu": 37.46, "chrf": 58.91, "bleu": 39.88}
    loaded = ModelCard(render_model_card(results))
    assert [result.metric_value for result in loaded.data.eval_results] == [37.46, 58.91, 39.88]


def test_cards_of_summarizers_speak_of_summaries(results):
    results["recipe"]["task"] = "summarization"
    results["recipe"]["data"].update(source_lang="document", target_lang="summary", corpus="generated-summaries")
    results["card"] = {"name": "msc-news", "language": "en"}
    signature = "nrefs:1|case:lc|tok:english"
    rouge = {
        f"rouge{kind}": {"score": 10.011 * number, "signature": signature} for number, kind in enumerate("12L", 1)
    }
    results["scores"] = {"news": {**rouge, "sentences": 11, "length_ratio": 1.2345}}
    results["training"]["history"] = [{"eval_rougeL": 41.5, "step": 2000}]
    front, text = parts(render_model_card(results))
    assert (front["pipeline_tag"], front["language"], front["metrics"]) == ("summarization", ["en"], ["rouge"])
    assert "document-summary" not in render_model_card(results)
    (entry,) = front["model-index"][0]["results"]
    assert (entry["task"]["type"], entry["task"]["name"]) == ("summarization", "Summarization")
    assert {metric["name"]: metric["value"] for metric in entry["metrics"]} == {
        "ROUGE-1": 10.01, "ROUGE-2": 20.02, "ROUGE-L": 30.03
    }  # fmt: skip
    assert 'summarize = pipeline("summarization", model="msc-news", trust_remote_code=True)' in text
    assert "Best validation ROUGE-L while training: 41.50, at step 2,000." in text
    assert "names and numbers may be mixed up" in text and "Translations" not in text


def test_languages_stay_strings(results):
    results["recipe"]["data"].update(source_lang="no", target_lang="en")
    front, _ = parts(render_model_card(results))
    assert front["language"] == ["no", "en"]


def test_text_says_how_to_use_it_and_where_it_comes_from(results):
    _, text = parts(render_model_card(results, model_id="me/model"))
    assert text.count('pipeline("translation", model="me/model"') == 2
    assert 'model="me/model", trust_remote_code=True' in text
    assert "Vaswani et al. 2017" in text
    assert "Captions of pictures only." in text
    assert "@article{key, title={A | B}}" in text
    assert "/data/secret" not in text
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert headings[:4] == ["Architecture", "How to use", "Results", "Decoding"]
    assert set(headings) >= {"Data", "Training", "Hardware and time", "Limitations", "Provenance", "Citation"}


def test_tables_keep_their_columns(results):
    results["run"]["command"] = "train.py a|b"
    _, text = parts(render_model_card(results))
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        columns = {len(re.split(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(columns) == 1, block
    assert "train.py a\\|b" in text


def test_config_of_the_model_fills_the_architecture(results):
    config = tiny_config(label_smoothing=0.125)
    _, text = parts(render_model_card(results, config))
    assert "| Label smoothing | 0.125 |" in text
    assert "| Encoder layers | 3 |" in text
    assert render_model_card({**results, "config": config.to_dict()}) == render_model_card(results, config)


@pytest.mark.parametrize("model_type", ARCHITECTURES)
def test_readings_are_fields_and_stand_in_the_card(results, model_type):
    architecture = ARCHITECTURES[model_type]
    config = architecture.config()
    _, text = parts(render_model_card(results, config))
    assert ("These are readings" in text) == bool(architecture.readings)
    for name, why in architecture.readings.items():
        assert re.search(rf"^\| `{name}` \| [^|]+ \| {re.escape(why)} \|$", text, re.MULTILINE), name


def test_several_results_add_test_sets_and_comparisons(results, scored):
    _, text = parts(render_model_card([results, scored]))
    scores = scored["scores"]["test2017"]
    assert f"| test2017 | BLEU | {scores['bleu']['score']:.2f} | 3 |" in text
    assert "| test2016 | BLEU | 37.46 | 1,003 |" in text
    comparison = scored["significance"]["test2017"]["metrics"]["bleu"]
    assert f"{comparison['delta']:+.2f} | {comparison['p_value']:.4f} |" in text
    assert "n = 17" in text


def test_results_of_an_evaluation_alone_make_a_card(scored):
    front, text = parts(render_model_card(scored, name="other"))
    assert front["model-index"][0]["name"] == "other"
    assert "## Training" not in text
    assert "datasets" not in front


def test_results_without_scores_or_languages_are_refused(results, scored):
    with pytest.raises(ValueError, match="`scores`"):
        render_model_card({**results, "scores": {}})
    scored["data"]["test2017"].update(source_lang=None)
    with pytest.raises(ValueError, match="source_lang"):
        render_model_card(scored)


def test_written_card_agrees_with_its_results_until_one_changes(results, scored, tmp_path):
    paths = [tmp_path / "trained.json", tmp_path / "scored.json"]
    write_results(paths[0], results)
    write_results(paths[1], scored)
    card = tmp_path / "card.md"
    write_model_card(card, [results, scored])
    assert check_card(card, paths) == ""
    assert "test2017" in check_card(card, paths[0])
    results["scores"]["test2016"]["bleu"]["score"] += 1
    write_results(paths[0], results)
    difference = check_card(card, paths)
    assert "-| test2016 | BLEU | 37.46 |" in difference
    assert "+| test2016 | BLEU | 38.46 |" in difference


@pytest.mark.parametrize("card", sorted((ROOT / "model_cards").glob("*.md")), ids=lambda path: path.stem)
def test_cards_of_the_repository_are_what_their_results_give(card):
    assert check_card(card, ROOT / "benchmarks" / "results" / f"{card.stem}.json") == ""


def test_results_survive_json(results):
    assert render_model_card(json.loads(json.dumps(results))) == render_model_card(results)
