"""Summarization from recipe to results: data with counted truncation, ROUGE, options of decoding, comparisons."""

import functools
import json

import numpy as np
import pytest
from tiny import RECIPE_FOLDER, SMALL, tiny_model
from transformers import AutoTokenizer, pipeline

from hf_deepnmt import metrics
from hf_deepnmt.evaluation import evaluate_hypotheses, evaluate_model, translate_lines
from hf_deepnmt.metrics import bleu, rouge
from hf_deepnmt.significance import paired_bootstrap_rouge
from hf_deepnmt.tasks import TASKS, evaluate_summaries, evaluate_translations, task_named
from hf_deepnmt.tokenization import train_tokenizer
from hf_deepnmt.toy_summaries import generate_documents, toy_summaries
from hf_deepnmt.trainer import DeepNMTTrainingArguments, plot_learning_curve
from hf_deepnmt.training import load_recipe, prepare, train


RECIPE = RECIPE_FOLDER / "msc_generated-summaries_tiny.yaml"
OPTIONS = [*SMALL, "data.corpus=generated-summaries"]
DOCUMENTS, SUMMARIES = map(list, zip(*generate_documents(24, seed=9), strict=True))
# half of them right, and half of the others nearly
GOOD = [text if number % 2 else DOCUMENTS[number].split(". ")[0] for number, text in enumerate(SUMMARIES)]
BAD = [text if number % 4 == 0 else "Nothing has happened." for number, text in enumerate(SUMMARIES)]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(DOCUMENTS, SUMMARIES, vocab_size=500, show_progress=False)


@pytest.fixture(scope="module")
def model(tokenizer):
    return tiny_model(vocab_size=len(tokenizer), tie="none", max_position_embeddings=300)


@pytest.fixture(scope="module")
def folder(model, tokenizer, tmp_path_factory):
    path = tmp_path_factory.mktemp("checkpoints") / "tiny-summaries"
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


@pytest.fixture
def files(tmp_path):
    def write(name, lines):
        path = tmp_path / name
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return path

    return write


def held_out():
    """The six test pairs of a run with the default seed."""
    seed = DeepNMTTrainingArguments(output_dir="unused").seed
    return toy_summaries(train=0, validation=0, test=6, seed=seed)["test"]["translation"][:]


class TestRecipe:
    @pytest.fixture(scope="class")
    @classmethod
    def run(cls, tmp_path_factory):
        with pytest.MonkeyPatch.context() as patch:
            few = functools.partial(toy_summaries, validation=6, test=6)
            patch.setattr("hf_deepnmt.toy_summaries.toy_summaries", few)
            output = tmp_path_factory.mktemp("run")
            limits = ["data.max_source_length=70", "evaluation.max_new_tokens=12", "evaluation.min_new_tokens=12"]
            results = train([str(RECIPE), *OPTIONS, *limits, f"training.output_dir={output}"])
        return output, results

    def test_results_hold_rouge_with_its_settings(self, run):
        output, results = run
        scores = results["scores"]["test"]
        assert "bleu" not in scores and scores["sentences"] == 6
        for kind in ("rouge1", "rouge2", "rougeL"):
            assert 0 <= scores[kind]["score"] <= 100
            assert "tok:english|stem:porter" in scores[kind]["signature"]
        stored = json.loads((output / "results.json").read_text())
        assert stored["recipe"]["task"] == "summarization" and stored["scores"] == results["scores"]
        summaries = (output / "test.hyp").read_text().splitlines()
        references = [pair["summary"] for pair in held_out()]
        assert scores["rougeL"] == rouge(summaries, references)["rougeL"]

    def test_decoding_is_that_of_the_recipe_and_of_the_pipeline(self, run):
        output, results = run
        decoding = results["decoding"]
        assert decoding == {
            "num_beams": 1, "length_penalty": 1.0, "length_penalty_form": "fairseq", "max_tokens": 4096,
            "min_new_tokens": 12, "max_new_tokens": 12, "no_repeat_ngram_size": 3, "truncation": True,
        }  # fmt: skip
        summarize = pipeline("summarization", model=str(output / "model"))
        options = {name: value for name, value in decoding.items() if name != "max_tokens"}
        made = summarize([pair["document"] for pair in held_out()], **options)
        assert [item["summary_text"] for item in made] == (output / "test.hyp").read_text().splitlines()

    def test_truncated_documents_are_counted_in_every_split(self, run):
        output, results = run
        report = json.loads((output / "data_report.json").read_text())
        tokenizer = AutoTokenizer.from_pretrained(output / "model")
        lengths = [len(ids) for ids in tokenizer([pair["document"] for pair in held_out()])["input_ids"]]
        cut = [length - 70 for length in lengths if length > 70]
        assert cut and report["test"]["noticed"] == {"source truncated to 70 tokens": len(cut)}
        assert report["test"]["counts"]["cut source tokens"] == sum(cut)
        for split in ("train", "validation"):
            assert report[split]["noticed"]["source truncated to 70 tokens"] > 0 and not report[split]["dropped"]
        assert tokenizer.model_max_length == 70

    def test_evaluations_while_training_give_rouge(self, run, tmp_path):
        history = run[1]["training"]["history"]
        (entry,) = [entry for entry in history if "eval_loss" in entry]
        assert {"eval_rouge1", "eval_rouge2", "eval_rougeL", "eval_rougeL_signature"} <= set(entry)
        assert not any(name.startswith("eval_bleu") for name in entry)
        assert plot_learning_curve(history, tmp_path / "curve.png").stat().st_size > 0

    def test_without_the_option_long_documents_are_left_out_of_training_only(self, tmp_path, few_held_out):
        recipe = load_recipe(RECIPE, [*OPTIONS, "data.truncate_source=false", "data.max_source_length=180"])
        _, encoded, tokenizer = prepare(recipe, tmp_path, 1)
        report = json.loads((tmp_path / "data_report.json").read_text())
        assert report["train"]["dropped"]["source longer than 180 tokens"] == 60 - len(encoded["train"]) > 0
        assert len(encoded["test"]) == 6 and max(encoded["test"]["source_length"]) > 180
        assert not report["test"]["noticed"] and tokenizer.model_max_length > 10**9

    @pytest.mark.parametrize(
        ("override", "message"),
        [
            ("task=summarisation", "`task` is 'summarisation': choose one of translation, summarization"),
            ("training.task=summarization", "set it at the top"),
            ("data.source_lang=de", "columns document and summary: set `data.source_lang`"),
            ("model.max_position_embeddings=64", "set `model.max_position_embeddings` to 96 or more"),
            ("evaluation.min_new_tokens=60", r"`evaluation.min_new_tokens` \(60\) is above .* \(50\)"),
            ("evaluation.no_repeat_ngram_size=0", "must be at least 1 or unset, got 0"),
            ("evaluation.scoring={lowercase: true}", "`evaluation.scoring` of .* has no field `lowercase`"),
            ("evaluation.scoring={tokenize: 13a}", "must be one of english, words, characters"),
        ],
    )
    def test_wrong_settings_are_refused_with_a_remedy(self, override, message, tmp_path):
        with pytest.raises(ValueError, match=message):
            train([str(RECIPE), *OPTIONS, f"training.output_dir={tmp_path}", override])

    def test_a_missing_package_is_found_before_the_data_is_read(self, tmp_path, monkeypatch):
        monkeypatch.setattr(metrics, "find_spec", lambda name: None)
        with pytest.raises(ImportError, match="rouge-score"):
            train([str(RECIPE), *OPTIONS, f"training.output_dir={tmp_path}/run"])
        assert not (tmp_path / "run").exists()

    def test_options_of_scores_reach_them(self, tmp_path, few_held_out):
        scoring = "evaluation.scoring={tokenize: words, stem: false}"
        results = train(
            [str(RECIPE), *OPTIONS, scoring, f"training.output_dir={tmp_path}", "evaluation.max_new_tokens=9"]
        )
        assert "tok:words|stem:no" in results["scores"]["test"]["rouge1"]["signature"]

    def test_translation_recipes_decode_and_score_as_before(self):
        recipe = load_recipe(RECIPE_FOLDER / "deepnmt_generated-de-en_tiny.yaml")
        settings = {"num_beams": 5, "length_penalty": 1.0, "length_penalty_form": "fairseq", "max_tokens": 4096}
        assert (recipe.task, recipe.evaluation.decoding()) == ("translation", settings)


class TestArguments:
    def test_the_best_checkpoint_is_by_the_score_of_the_task(self, tmp_path):
        options = {"output_dir": str(tmp_path), "average_best": 2, "eval_strategy": "steps", "save_strategy": "steps"}
        assert DeepNMTTrainingArguments(**options).metric_for_best_model == "eval_bleu"
        chosen = DeepNMTTrainingArguments(**options, task="summarization")
        assert chosen.metric_for_best_model == "eval_rougeL"
        with pytest.raises(ValueError, match="predict_with_generate=True"):
            DeepNMTTrainingArguments(**options, metric_for_best_model="rouge2", predict_with_generate=False)

    def test_unknown_tasks_are_refused(self, tmp_path):
        with pytest.raises(ValueError, match="choose one of translation, summarization"):
            DeepNMTTrainingArguments(output_dir=str(tmp_path), task="chat")
        with pytest.raises(ValueError, match="choose one of translation, summarization"):
            task_named("chat")


class TestLines:
    def test_summaries_of_lines_are_those_of_the_pipeline(self, model, tokenizer):
        lines = [*DOCUMENTS[:5], "", "w"]
        summarize = TASKS["summarization"].pipeline(model=model, tokenizer=tokenizer, device="cpu")
        options = {"num_beams": 2, "no_repeat_ngram_size": 3, "max_new_tokens": 15}
        expected = [result["summary_text"] for result in summarize(lines, **options)]
        made = list(translate_lines(model, tokenizer, lines, task="summarization", progress=False, **options))
        assert made == expected and made[5] == "" and len(set(made)) > 4

    def test_hypotheses_and_scores_have_the_names_of_the_task(self, model, tokenizer):
        options = {"num_beams": 2, "num_return_sequences": 2, "max_new_tokens": 5, "progress": False}
        first, blank = translate_lines(model, tokenizer, [DOCUMENTS[0], ""], task="summarization", **options)
        assert [set(record) for record in first] == [{"summary_text"}] * 2
        assert blank == [{"summary_text": ""}] * 2

    def test_unknown_tasks_are_refused(self, model, tokenizer):
        with pytest.raises(ValueError, match="choose one of translation, summarization"):
            list(translate_lines(model, tokenizer, ["a"], task="chat"))


class TestScores:
    def test_results_hold_rouge_and_sizes(self):
        result = evaluate_summaries(GOOD, SUMMARIES, DOCUMENTS)
        assert {kind: result[kind] for kind in ("rouge1", "rouge2", "rougeL")} == rouge(GOOD, SUMMARIES)
        words = [sum(len(text.split()) for text in texts) for texts in (GOOD, SUMMARIES, DOCUMENTS)]
        sizes = [result[f"{name}_words"] for name in ("hypothesis", "reference", "source")]
        assert sizes == words and result["length_ratio"] == words[0] / words[1]
        assert result["copied_lines"] == 0 and result["sentences"] == 24
        with pytest.raises(ValueError, match="23 source sentences but 24 hypotheses"):
            evaluate_summaries(GOOD, SUMMARIES, DOCUMENTS[1:])

    def test_bootstrap_tells_a_clear_difference_from_none(self):
        result = paired_bootstrap_rouge(GOOD, BAD, SUMMARIES, n=200)
        better = result["metrics"]["rougeL"]
        good, bad = (rouge(texts, SUMMARIES)["rougeL"]["score"] for texts in (GOOD, BAD))
        assert better["delta"] == pytest.approx(good - bad) and better["delta"] > 0 and better["p_value"] < 0.05
        swapped = paired_bootstrap_rouge(BAD, GOOD, SUMMARIES, n=200)["metrics"]["rougeL"]
        assert swapped["delta"] == -better["delta"]
        system = better["system"]
        assert system["low"] < system["mean"] < system["high"] and "bs:200|seed:12345" in better["signature"]
        close = [f"{GOOD[0]} Yes.", *GOOD[1:]]
        assert paired_bootstrap_rouge(GOOD, close, SUMMARIES, n=200)["metrics"]["rougeL"]["p_value"] > 0.05

    def test_the_spread_of_resamples_is_that_of_the_mean(self):
        interval = paired_bootstrap_rouge(GOOD, BAD, SUMMARIES, n=2000)["metrics"]["rouge1"]["system"]
        single = [
            rouge([text], [reference])["rouge1"]["score"] for text, reference in zip(GOOD, SUMMARIES, strict=True)
        ]
        error = np.std(single) / len(single) ** 0.5
        assert interval["high"] - interval["low"] == pytest.approx(2 * 1.96 * error, rel=0.1)

    def test_equal_summaries_do_not_differ_and_the_seed_decides(self):
        equal = paired_bootstrap_rouge(GOOD, list(GOOD), SUMMARIES, n=20)["metrics"]
        assert {(row["delta"], row["p_value"]) for row in equal.values()} == {(0.0, 1.0)}
        runs = [paired_bootstrap_rouge(GOOD, BAD, SUMMARIES, n=20, seed=seed) for seed in (1, 1, 2)]
        means = [run["metrics"]["rouge1"]["system"]["mean"] for run in runs]
        assert means[0] == means[1] != means[2]
        with pytest.raises(ValueError, match="seed"):
            paired_bootstrap_rouge(GOOD, BAD, SUMMARIES, seed=0)


class TestFiles:
    def test_a_model_is_evaluated_on_files(self, folder, files, tmp_path, monkeypatch):
        documents, summaries = files("news.document", DOCUMENTS), files("news.summary", SUMMARIES)
        options = {"num_beams": 2, "max_new_tokens": 10, "no_repeat_ngram_size": 3, "device": "cpu", "progress": False}
        options |= {"hypotheses_path": tmp_path / "h", "results_path": tmp_path / "r.json", "stem": False}
        result = evaluate_model(folder, documents, summaries, task="summarization", **options)
        made = (tmp_path / "h").read_text().splitlines()
        assert result["scores"]["news"] == evaluate_summaries(made, SUMMARIES, DOCUMENTS, stem=False)
        assert result == json.loads((tmp_path / "r.json").read_text())
        decoding = result["decoding"]
        assert (result["task"], decoding["no_repeat_ngram_size"], decoding["max_new_tokens"]) == (
            "summarization",
            3,
            10,
        )
        assert decoding["unfinished_summaries"] == 24 and decoding["cut_documents"] == 0
        assert "task" not in decoding

    def test_the_default_limit_is_named(self, model, tokenizer):
        options = {"tokenizer": tokenizer, "task": "summarization", "num_beams": 1, "progress": False}
        result = evaluate_model(model, DOCUMENTS[:2], SUMMARIES[:2], **options)
        assert result["decoding"]["max_new_tokens"] == "n"

    def test_existing_summaries_are_scored_and_compared(self, files):
        paths = [files(name, lines) for name, lines in (("good", GOOD), ("ref", SUMMARIES), ("bad", BAD))]
        options = {"task": "summarization", "baseline": paths[2], "n_bootstrap": 10}
        result = evaluate_hypotheses(*paths[:2], **options)
        assert result["scores"]["ref"]["rouge2"] == rouge(GOOD, SUMMARIES)["rouge2"]
        assert result["significance"]["ref"]["metrics"]["rouge2"]["delta"] > 0

    @pytest.mark.parametrize(
        ("task", "option", "message"),
        [
            ("summarization", {"compound_split": True}, "`compound_split` says nothing for summarization"),
            ("translation", {"stem": True}, "`stem` says nothing for translation"),
            ("chat", {}, "choose one of translation, summarization"),
            ("summarization", {"tokenize": "13a"}, "must be one of english"),
        ],
    )
    def test_options_of_another_task_are_refused_before_the_model_is_loaded(self, task, option, message, tmp_path):
        with pytest.raises(ValueError, match=message):
            evaluate_model(tmp_path / "no_model_here", DOCUMENTS, SUMMARIES, task=task, **option)

    def test_translations_are_scored_as_before(self):
        result = evaluate_hypotheses(GOOD, SUMMARIES, target_lang="en")
        assert result["task"] == "translation"
        assert result["scores"]["test"] == evaluate_translations(GOOD, SUMMARIES, target_lang="en")
        assert result["scores"]["test"]["bleu"] == bleu(GOOD, SUMMARIES)
