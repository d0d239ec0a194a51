"""ROUGE: values worked out by hand, words of other scripts, several references, and what is refused."""

import math

import pytest

from hf_deepnmt import metrics
from hf_deepnmt.metrics import METRICS, Rouge, rouge, rouge_tokenizer


SUMMARIES = ["the cat sat", "a dog barks loudly at night", ""]
REFERENCES = ["The cat sat down.", "A dog barked at night", "something was here"]


def scores(*arguments, **options):
    return {kind: values["score"] for kind, values in rouge(*arguments, **options).items()}


def test_scores_are_those_worked_out_by_hand():
    result = rouge(["police shot the gunman dead today"], ["the gunman police shot dead"], stem=False)
    # all 5 words of the reference among 6; of its 4 bigrams two, of 5; `police shot dead` is the longest subsequence
    expected = {"rouge1": (5 / 6, 1), "rouge2": (2 / 5, 2 / 4), "rougeL": (3 / 6, 3 / 5)}
    for kind, (precision, recall) in expected.items():
        f1 = 2 * precision * recall / (precision + recall)
        assert result[kind]["precision"] == pytest.approx(100 * precision)
        assert result[kind]["recall"] == pytest.approx(100 * recall)
        assert result[kind]["score"] == pytest.approx(100 * f1)


def test_scores_are_averaged_over_summaries_and_blank_ones_count():
    together = scores(SUMMARIES, REFERENCES)
    alone = [scores([summary], [reference]) for summary, reference in zip(SUMMARIES, REFERENCES, strict=True)]
    assert alone[2] == {"rouge1": 0, "rouge2": 0, "rougeL": 0}
    for kind, value in together.items():
        assert value == pytest.approx(math.fsum(score[kind] for score in alone) / 3)


def test_case_and_punctuation_do_not_count_and_stems_do():
    assert scores(["The CAT, sat: down!"], ["the cat sat down"], stem=False)["rouge2"] == pytest.approx(100)
    assert scores(["dogs barking"], ["dog barks"], stem=True)["rouge1"] == pytest.approx(100)
    assert scores(["dogs barking"], ["dog barks"], stem=False)["rouge1"] == 0


def test_of_several_references_the_best_one_counts():
    nested = [["something else", "a cat sat"], ["a dog barked at night"], ["x", "something was here"]]
    best = scores(SUMMARIES, ["a cat sat", "a dog barked at night", "x"])
    assert scores(SUMMARIES, nested) == pytest.approx(best)
    assert "nrefs:var" in rouge(SUMMARIES, nested)["rouge1"]["signature"]


@pytest.mark.parametrize(
    ("language", "rule"),
    [(None, "english"), ("en-GB", "english"), ("summary", "english"), ("de", "words"), ("zh", "characters")],
)
def test_words_follow_the_language(language, rule):
    assert rouge_tokenizer(language) == rule
    signature = rouge(SUMMARIES, REFERENCES, target_lang=language)["rougeL"]["signature"]
    stem = "porter" if rule == "english" else "no"
    assert signature.startswith(f"nrefs:1|case:lc|tok:{rule}|stem:{stem}|score:f1|version:rouge-score-")


def test_letters_of_other_scripts_are_no_gaps():
    assert scores(["müde Bären"], ["mude Baren"], target_lang="de")["rouge1"] == 0
    assert scores(["привет мир"], ["привет мир"], target_lang="ru")["rouge2"] == pytest.approx(100)
    assert scores(["привет мир"], ["привет мир"], tokenize="english")["rouge2"] == 0
    assert scores(["你好吗"], ["你好"], target_lang="zh")["rouge1"] == pytest.approx(80)


def test_sentences_on_lines_of_their_own_can_be_matched_each():
    summary, reference = "it rained today\nthe game was lost", "the game was lost\nit rained today"
    result = scores([summary], [reference], kinds=["rougeL", "rougeLsum"])
    assert result["rougeLsum"] == pytest.approx(100) and result["rougeL"] == pytest.approx(400 / 7)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokenize": "13a"}, "must be one of english, words, characters, got '13a'"),
        ({"target_lang": "de", "stem": True}, "`stem` is for English"),
        ({"kinds": ["rougeX"]}, "rougeLsum, got 'rougeX'"),
    ],
)
def test_options_that_cannot_be_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        rouge(SUMMARIES, REFERENCES, **options)


def test_input_is_checked_as_for_the_other_metrics():
    with pytest.raises(ValueError, match="3 hypotheses but 2 references"):
        rouge(SUMMARIES, REFERENCES[:2])
    with pytest.raises(TypeError, match="Hypothesis 1 is no string"):
        rouge(["a", None], ["a", "b"])


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(metrics, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"hf-deepnmt\[summarization\]"):
        rouge(SUMMARIES, REFERENCES)


def test_it_is_a_metric_of_the_evaluate_library():
    assert METRICS["rouge"] is Rouge
    result = Rouge(stem=False).compute(predictions=SUMMARIES, references=REFERENCES)
    assert {kind: result[kind] for kind in ("rouge1", "rouge2", "rougeL")} == scores(SUMMARIES, REFERENCES, stem=False)
    assert "stem:no" in result["signature"]
