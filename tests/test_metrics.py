import math

import evaluate
import numpy as np
import pytest
from datasets import Dataset
from sacrebleu.metrics import BLEU
from transformers import EvalPrediction

from hf_deepnmt import metrics
from hf_deepnmt.evaluator import DeepNMTSummarizationEvaluator, DeepNMTTranslationEvaluator, register_evaluator
from hf_deepnmt.metrics import (
    ChrF,
    SacreBLEU,
    TokenizedBLEU,
    TranslationEditRate,
    bleu,
    bleu_tokenizer,
    chrf,
    compute_metrics_factory,
    ter,
    tokenized_bleu,
)
from hf_deepnmt.pipelines import register_pipelines
from hf_deepnmt.tokenization import train_tokenizer


HYPOTHESES = ["The cat sat on the mat .", "A dog barks at night", ""]
REFERENCES = ["The cat sat on a mat .", "The dog barked all night", "Something was here"]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(REFERENCES * 3, HYPOTHESES * 3, vocab_size=300, show_progress=False)


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setattr(evaluate.config, "HF_METRICS_CACHE", str(tmp_path))


# --- functions ---


def test_bleu_is_that_of_sacrebleu():
    expected = BLEU().corpus_score(HYPOTHESES, [REFERENCES])
    result = bleu(HYPOTHESES, REFERENCES)
    assert result["score"] == expected.score > 0
    assert (result["counts"], result["totals"], result["bp"]) == (expected.counts, expected.totals, expected.bp)
    assert result["signature"].startswith("nrefs:1|case:mixed|eff:no|tok:13a")


def test_flat_and_nested_references_give_the_same_score():
    nested = [[text] for text in REFERENCES]
    for metric in (bleu, chrf, ter, tokenized_bleu):
        assert metric(HYPOTHESES, REFERENCES) == metric(HYPOTHESES, nested)


def test_one_wrong_sentence_of_two_lowers_the_score_in_both_forms():
    hypotheses, references = ["a b c d e", "x y z w v"], ["a b c d e", "1 2 3 4 5"]
    assert bleu(hypotheses, references)["score"] < 80
    assert bleu(hypotheses, [[text] for text in references])["score"] < 80


def test_several_references_are_one_list_for_each_sentence():
    hypotheses = ["a b c d", "e f g h"]
    result = bleu(hypotheses, [["x y z w", "a b c d"], ["e f g h", "1 2 3 4"]])
    assert result["score"] == pytest.approx(100)
    assert result["signature"].startswith("nrefs:2|")


def test_numbers_of_references_may_differ():
    result = bleu(["a b c d", "e f g h"], [["a b c d"], ["x y z w", "e f g h"]])
    assert result["score"] == pytest.approx(100)
    assert result["signature"].startswith("nrefs:var|")


@pytest.mark.parametrize("metric", [bleu, chrf, ter, tokenized_bleu])
def test_unequal_counts_are_refused_with_both_counts(metric):
    with pytest.raises(ValueError, match="2 hypotheses but 1 references"):
        metric(["a b c d", "e f g h"], ["a b c d"])
    with pytest.raises(ValueError, match="1 hypotheses but 2 references"):
        metric(["a b c d"], ["a b c d", "e f g h"])


def test_reference_sets_are_named_and_not_transposed():
    with pytest.raises(ValueError, match="3 hypotheses but 2 references.*zip"):
        bleu(HYPOTHESES, [REFERENCES, REFERENCES])


def test_blank_hypotheses_count():
    assert bleu(["", "a b c d"], ["x y z w", "a b c d"])["score"] < 100
    assert bleu(["", ""], REFERENCES[:2])["score"] == 0 == chrf(["", ""], REFERENCES[:2])["score"]


@pytest.mark.parametrize(
    "hypotheses,references,message",
    [
        (["a", None], ["a", "b"], "Hypothesis 1 is no string but NoneType"),
        (["a", 3], ["a", "b"], "Hypothesis 1 is no string but int"),
        (["a", "b"], ["a", None], "Reference 1 is no string"),
        (["a", "b"], [None, "b"], "Reference 0 is no string"),
        (["a", "b"], ["a", ["b"]], "Reference 1 is no string but list"),
        (["a", "b"], [["a"], "b"], "Reference 1 is a string, but reference 0 is a list"),
        (["a", "b"], [["a"], ["b", None]], "Reference 1 of hypothesis 1 is no string"),
        ("a b", ["a", "b"], "Hypotheses must be a sequence"),
        (["a"], "a", "References must be a sequence"),
        (["a"], None, "References must be a sequence"),
    ],
)
def test_items_that_are_no_strings_are_named(hypotheses, references, message):
    with pytest.raises(TypeError, match=message):
        bleu(hypotheses, references)


def test_nothing_to_score_is_refused():
    with pytest.raises(ValueError, match="no hypotheses"):
        bleu([], [])
    with pytest.raises(ValueError, match="Hypothesis 1 has no reference"):
        bleu(["a", "b"], [["a"], []])


def test_columns_of_datasets_are_sequences():
    data = Dataset.from_dict({"hypothesis": HYPOTHESES, "reference": REFERENCES})
    assert bleu(data["hypothesis"], data["reference"]) == bleu(HYPOTHESES, REFERENCES)


# --- tokenisers ---


def test_tokeniser_follows_the_target_language():
    assert {bleu_tokenizer(code) for code in ("zh", "zh-CN", "zh_TW", "zho_Hans")} == {"zh"}
    assert {bleu_tokenizer(code) for code in (None, "en", "de_DE", "pt-BR")} == {"13a"}
    assert bleu_tokenizer("zh", "char") == "char"
    assert "tok:zh" in bleu(["你好世界"], ["你好世界"], target_lang="zh")["signature"]


def test_chinese_is_split_into_words():
    assert bleu(["我喜欢吃苹果。"], ["我喜欢吃梨。"], target_lang="zh")["score"] > 30
    assert bleu(["我喜欢吃苹果。"], ["我喜欢吃梨。"])["score"] < 30


def test_missing_segmenters_are_an_error_for_japanese_and_13a_for_korean(monkeypatch):
    monkeypatch.setattr(metrics, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"sacrebleu\[ja\].*char"):
        bleu(["こんにちは"], ["こんにちは"], target_lang="ja")
    assert "tok:char" in bleu(["こんにちは"], ["こんにちは"], target_lang="ja", tokenize="char")["signature"]
    assert bleu_tokenizer("ko") == "13a"
    monkeypatch.setattr(metrics, "find_spec", lambda name: object())
    assert (bleu_tokenizer("ja_JP"), bleu_tokenizer("ko")) == ("ja-mecab", "ko-mecab")


def test_unknown_tokeniser_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="13a.*got '13b'"):
        bleu(["a"], ["a"], tokenize="13b")


# --- tokenised BLEU ---


def test_tokenized_bleu_tokenises_and_lower_cases_both_sides():
    result = tokenized_bleu(['He said: "It\'s a Test."'], ['he said: "it\'s a test (really)."'])
    words = ['he said : " it \'s a test . "'], ['he said : " it \'s a test ( really ) . "']
    assert result["score"] == tokenized_bleu(*words, tokenized=True)["score"] > 50
    assert (result["sys_len"], result["ref_len"]) == (10, 13)
    assert "case:lc" in result["signature"]
    assert "tok:moses-en[sacremoses-" in result["signature"]
    assert tokenized_bleu(["The Cat sat here"], ["the cat sat here"], lowercase=False)["score"] < 100


def test_tokenized_input_is_left_as_it_is():
    words = ["do n't split-this , please ."]
    result = tokenized_bleu(words, words, tokenized=True)
    assert (result["sys_len"], result["signature"].count("tok:none")) == (6, 1)


def test_compounds_are_split_only_when_asked_for():
    arguments = (["a well-known state-of-the-art thing"],) * 2
    assert tokenized_bleu(*arguments)["sys_len"] == 4
    split = tokenized_bleu(*arguments, compound_split=True)
    assert split["sys_len"] == 4 + 2 * (1 + 3)
    assert "compound:split" in split["signature"]


def test_tokenized_bleu_is_not_smoothed():
    assert tokenized_bleu(["a b c x"], ["a b c d"])["score"] == 0 < bleu(["a b c x"], ["a b c d"])["score"]


def test_languages_without_spaces_need_segmented_text():
    with pytest.raises(ValueError, match="tokenized=True"):
        tokenized_bleu(["你好"], ["你好"], target_lang="zh")
    assert tokenized_bleu(["你 好 世 界"], ["你 好 世 界"], target_lang="zh", tokenized=True)["score"] > 99


# --- evaluate metrics ---


@pytest.mark.parametrize(
    "metric,function",
    [(SacreBLEU, bleu), (ChrF, chrf), (TranslationEditRate, ter), (TokenizedBLEU, tokenized_bleu)],
)
def test_metric_class_gives_what_its_function_gives(metric, function):
    nested = [[text, "another one"] for text in REFERENCES]
    assert metric().compute(predictions=HYPOTHESES, references=REFERENCES) == function(HYPOTHESES, REFERENCES)
    assert metric().compute(predictions=HYPOTHESES, references=nested) == function(HYPOTHESES, nested)


def test_metric_adds_up_batches_and_can_be_used_again():
    metric = SacreBLEU()
    for _ in range(2):
        metric.add_batch(predictions=HYPOTHESES[:2], references=REFERENCES[:2])
        metric.add(prediction=HYPOTHESES[2], reference=REFERENCES[2])
        assert metric.compute() == bleu(HYPOTHESES, REFERENCES)


def test_options_of_the_instance_give_way_to_those_of_the_call():
    metric = SacreBLEU(lowercase=True, tokenize="char")
    assert "case:lc|eff:no|tok:char" in metric.compute(predictions=["A"], references=["a"])["signature"]
    called = metric.compute(predictions=["A"], references=["a"], lowercase=False)
    assert "case:mixed|eff:no|tok:char" in called["signature"]
    with pytest.raises(TypeError):
        metric.compute(predictions=["A"], references=["a"], unknown=1)


def test_metric_checks_its_input():
    with pytest.raises(ValueError, match="2 hypotheses but 1 references"):
        SacreBLEU().compute(predictions=["a", "b"], references=["a"])
    with pytest.raises(TypeError, match="Hypothesis 1"):
        SacreBLEU().compute(predictions=["a", None], references=["a", "b"])
    with pytest.raises(TypeError, match="References"):
        SacreBLEU().compute(predictions=["a"])
    with pytest.raises(ValueError, match="no hypotheses"):
        SacreBLEU().compute(predictions=[], references=[])


def test_combined_metrics_keep_all_scores_apart():
    combined = evaluate.combine([SacreBLEU(), ChrF(), TranslationEditRate(), TokenizedBLEU()])
    results = combined.compute(predictions=HYPOTHESES, references=REFERENCES)
    expected = {"sacrebleu": bleu, "chrf": chrf, "ter": ter, "tokenized_bleu": tokenized_bleu}
    for name, function in expected.items():
        score = function(HYPOTHESES, REFERENCES)
        assert results[f"{name}_score"] == score["score"]
        assert results[f"{name}_signature"] == score["signature"]


# --- compute_metrics ---


def test_compute_metrics_scores_the_raw_text(tokenizer):
    raw = ["go 🦙 １２ ok now", "The dog barked"]
    ids = padded(tokenizer(text_target=raw)["input_ids"])
    decoded = tokenizer.batch_decode(np.where(ids < 0, tokenizer.pad_token_id, ids), skip_special_tokens=True)
    result = compute_metrics_factory(tokenizer, raw)(EvalPrediction(ids, ids))
    assert result["bleu"] == bleu(decoded, raw)["score"]
    assert result["chrf"] == chrf(decoded, raw)["score"]


def test_compute_metrics_scores_cut_labels_lower_than_decoded_labels_would(tokenizer):
    raw = ["The dog barked all night here", "Something was here"]
    cut = padded([ids[:3] for ids in tokenizer(text_target=raw)["input_ids"]])
    assert compute_metrics_factory(tokenizer)((cut, cut))["chrf"] == pytest.approx(100)
    assert compute_metrics_factory(tokenizer, raw)((cut, cut))["chrf"] < 90


def test_ignored_positions_are_padding_on_both_sides(tokenizer):
    ids = padded(tokenizer(text_target=["The dog", "Something was here"])["input_ids"])
    assert (ids == -100).any()
    result = compute_metrics_factory(tokenizer)((ids, ids.copy()))
    assert all(math.isfinite(value) for value in result.values())
    assert result["chrf"] == pytest.approx(100)


def test_target_ids_of_two_vocabularies_are_decoded_as_targets():
    separate = train_tokenizer(["der hund"] * 5, ["the dog"] * 5, joint=False, vocab_size=300, show_progress=False)
    ids = padded(separate(text_target=["the dog", "dog"])["input_ids"])
    assert compute_metrics_factory(separate, ["the dog", "dog"])((ids, ids))["chrf"] == pytest.approx(100)


def test_generated_length_counts_no_start_end_or_padding(tokenizer):
    start, pad, end = tokenizer.bos_token_id, tokenizer.pad_token_id, tokenizer.eos_token_id
    ids = np.array([[start, 50, 51, 52, end, -100], [start, 50, end, pad, pad, pad]])
    assert compute_metrics_factory(tokenizer, ["a", "b"])((ids, ids))["gen_len"] == 2.0


def test_compute_metrics_refuses_logits_and_other_counts(tokenizer):
    ids = np.array([[5, 6, 2]])
    with pytest.raises(ValueError, match="predict_with_generate"):
        compute_metrics_factory(tokenizer, ["a"])((np.zeros((1, 3, 7), dtype=np.float32), ids))
    with pytest.raises(ValueError, match="1 hypotheses but 2 references"):
        compute_metrics_factory(tokenizer, ["a", "b"])((ids, ids))


def padded(rows):
    width = max(map(len, rows))
    return np.array([row + [-100] * (width - len(row)) for row in rows])


# --- evaluate.evaluator ---


class FakePipeline:
    task = "translation"

    def __init__(self):
        self.calls = []

    def __call__(self, texts, **kwargs):
        self.calls.append(kwargs)
        return [{"translation_text": text.upper()} for text in texts]


@pytest.fixture
def evaluator():
    register_pipelines()
    register_evaluator()
    return evaluate.evaluator("translation")


@pytest.fixture
def pairs():
    return Dataset.from_dict({"source": ["ab cd ef gh", "xy"], "target": ["AB CD EF GH", "XZ"]})


def test_evaluator_of_evaluate_is_ours(evaluator):
    assert type(evaluator) is DeepNMTTranslationEvaluator


def test_evaluator_scores_a_pipeline(evaluator, pairs):
    columns = {"input_column": "source", "label_column": "target"}
    result = evaluator.compute(model_or_pipeline=FakePipeline(), data=pairs, metric=SacreBLEU(), **columns)
    expected = bleu(["AB CD EF GH", "XY"], pairs["target"])
    assert {key: result[key] for key in expected} == expected
    assert result["samples_per_second"] > 0
    assert evaluator.compute(FakePipeline(), pairs, **columns)["score"] == expected["score"]
    assert evaluator.compute(FakePipeline(), pairs, metric="chrf", **columns)["signature"].startswith("nrefs:1")


def test_evaluator_takes_combined_metrics_and_plain_functions(evaluator, pairs):
    def translate(texts):
        return [[{"translation_text": text.upper()}] for text in texts]

    metric = evaluate.combine([SacreBLEU(), ChrF()])
    result = evaluator.compute(translate, pairs, metric=metric, input_column="source", label_column="target")
    assert result["chrf_score"] == chrf(["AB CD EF GH", "XY"], pairs["target"])["score"]


def test_evaluator_reads_the_translation_column(evaluator):
    pairs = Dataset.from_dict({"translation": [{"de": "ab", "en": "AB"}, {"de": "cd", "en": "CD"}]})
    result = evaluator.compute(FakePipeline(), pairs, metric=ChrF(), input_column="de", label_column="en")
    assert result["score"] == pytest.approx(100)
    with pytest.raises(ValueError, match="fr"):
        evaluator.compute(FakePipeline(), pairs, metric=ChrF(), input_column="fr", label_column="en")


def test_generation_arguments_last_one_call_and_nothing_is_truncated(evaluator, pairs):
    pipe, columns = FakePipeline(), {"input_column": "source", "label_column": "target"}
    evaluator.compute(pipe, pairs, generation_kwargs={"num_beams": 3}, **columns)
    evaluator.compute(pipe, pairs, **columns)
    evaluate.evaluator("translation").compute(pipe, pairs, **columns)
    assert pipe.calls == [{"num_beams": 3}, {}, {}]


def test_evaluator_refuses_other_pipelines_and_n_best(evaluator, pairs):
    columns = {"input_column": "source", "label_column": "target"}
    other = FakePipeline()
    other.task = "fill-mask"
    with pytest.raises(ValueError, match="fill-mask"):
        evaluator.compute(other, pairs, **columns)
    with pytest.raises(ValueError, match="no default translation model"):
        evaluator.compute(None, pairs, **columns)
    with pytest.raises(ValueError, match="num_return_sequences"):
        evaluator.compute(lambda texts: [[{"translation_text": ""}] * 2 for _ in texts], pairs, **columns)


def test_evaluator_of_summaries_scores_by_rouge():
    register_evaluator()
    evaluator = evaluate.evaluator("summarization")
    assert type(evaluator) is DeepNMTSummarizationEvaluator

    def summarize(texts, **kwargs):
        return [{"summary_text": text[:5]} for text in texts]

    data = Dataset.from_dict({"text": ["ab cd ef gh", "xy"], "label": ["ab cd", "xz"]})
    result = evaluator.compute(summarize, data)
    assert result["rouge2"] == pytest.approx(50) and "rouge-score" in result["signature"]
    with pytest.raises(ValueError, match="no default summarization model"):
        evaluator.compute(None, data)


def test_bootstrap_strategy_resamples_numbers_only(evaluator, pairs):
    pytest.importorskip("scipy", reason="only `strategy='bootstrap'` needs SciPy")
    options = {"strategy": "bootstrap", "n_resamples": 20, "random_state": 0}
    columns = {"input_column": "source", "label_column": "target"}
    result = evaluator.compute(FakePipeline(), pairs, metric=ChrF(), **columns, **options)
    assert set(result["score"]) == {"confidence_interval", "standard_error", "score"}
    assert isinstance(result["signature"], str)


def test_bootstrap_strategy_without_scipy_says_what_to_install(evaluator, pairs, monkeypatch):
    monkeypatch.setattr("hf_deepnmt.evaluator.find_spec", lambda name: None)
    with pytest.raises(ImportError, match="scipy"):
        evaluator.compute(FakePipeline(), pairs, input_column="source", label_column="target", strategy="bootstrap")
