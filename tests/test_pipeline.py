"""The translation pipeline, on tiny models with random weights large enough that their outputs differ."""

import copy
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import datasets
import pytest
import torch
import transformers
from tiny_pipelines import (
    SIZES,
    SPECIALS,
    WORDS,
    end_after,
    make_deepnmt,
    make_forcing_marian,
    make_loud,
    make_marian,
    make_t5,
    make_tokenizer,
)
from tokenizers import processors
from transformers import (
    BertConfig,
    BertLMHeadModel,
    GenerationConfig,
    M2M100Config,
    M2M100ForConditionalGeneration,
    MBartConfig,
    MBartForConditionalGeneration,
    NllbTokenizer,
    PreTrainedTokenizerFast,
    pipeline,
)
from transformers.pipelines.pt_utils import KeyDataset

from hf_deepnmt import pipelines as package_pipelines
from hf_deepnmt.models.configuration_deepnmt import DeepNMTConfig
from hf_deepnmt.models.modeling_deepnmt import DeepNMTForConditionalGeneration
from hf_deepnmt.models.pipeline_seq2seq import position_tables
from hf_deepnmt.models.pipeline_translation import TranslationPipeline
from hf_deepnmt.pipelines import register_pipelines


torch.set_num_threads(1)

SENTENCES = ["w1 w2", "w3", "w4 w5 w6 w7 w8 w9 w10", "w11 w12 w13 w14", "w15 w16 w17 w18 w19 w20 w21 w22 w23"]


@pytest.fixture(scope="module", autouse=True)
def registered():
    register_pipelines()


def make_pipeline(model=None, tokenizer=None, **kwargs):
    return TranslationPipeline(
        model=model or make_marian(),
        tokenizer=tokenizer or make_tokenizer(),
        task="translation",
        device="cpu",
        **kwargs,
    )


@pytest.fixture(scope="module")
def translate():
    return make_pipeline()


def texts(results):
    return [result["translation_text"] for result in results]


class TestFormats:
    def test_one_string_gives_one_list_of_one_dict(self, translate):
        result = translate("w1 w2")
        assert [set(item) for item in result] == [{"translation_text"}]
        assert isinstance(result[0]["translation_text"], str)
        assert result[0]["translation_text"]

    @pytest.mark.parametrize("container", [list, tuple, lambda x: datasets.Dataset.from_dict({"text": x})["text"]])
    def test_sequences_give_a_flat_list_in_order(self, translate, container):
        expected = [translate(sentence)[0] for sentence in SENTENCES]
        assert translate(container(SENTENCES)) == expected
        assert len(set(texts(expected))) == len(SENTENCES), "outputs too alike to show the order"

    def test_an_empty_list_gives_an_empty_list(self, translate):
        assert translate([]) == []

    @pytest.mark.parametrize("stream", [lambda x: (item for item in x), iter, lambda x: map(str, x)])
    def test_iterators_are_streamed(self, translate, stream):
        result = translate(stream(SENTENCES), batch_size=2)
        assert not isinstance(result, list)
        assert list(result) == [translate(sentence) for sentence in SENTENCES]

    def test_a_generator_is_not_consumed_before_its_results_are_asked_for(self, translate):
        seen = []
        stream = translate(seen.append(sentence) or sentence for sentence in SENTENCES)
        next(iter(stream))
        assert len(seen) < len(SENTENCES)

    def test_key_dataset_and_rows_give_one_list_for_each_row(self, translate):
        expected = [translate(sentence) for sentence in SENTENCES]
        rows = datasets.Dataset.from_dict({"text": SENTENCES, "id": list(range(len(SENTENCES)))})
        result = translate(KeyDataset(rows, "text"), batch_size=2)
        assert len(translate(rows)) == len(SENTENCES)
        assert list(result) == expected
        assert list(translate(rows)) == expected
        assert list(translate(rows.to_iterable_dataset(), batch_size=3)) == expected

    def test_translation_rows_are_read_in_the_source_language(self):
        pairs = datasets.Dataset.from_dict({"translation": [{"de": text, "en": "w0"} for text in SENTENCES]})
        translate = make_pipeline(src_lang="de")
        assert list(translate(pairs)) == [translate(sentence) for sentence in SENTENCES]
        assert list(translate(pairs, src_lang="en"))[0] == translate("w0")
        with pytest.raises(ValueError, match="Row 0 holds de, en, and `src_lang` is 'fr'"):
            list(translate(pairs, src_lang="fr"))

    def test_rows_with_no_clear_source_name_the_columns(self, translate):
        rows = datasets.Dataset.from_dict({"a": ["w1"], "b": ["w2"]})
        with pytest.raises(ValueError, match="columns a, b.*KeyDataset"):
            list(translate(rows))

    @pytest.mark.parametrize("batch_size", [1, 2])
    def test_several_hypotheses_give_a_list_of_lists(self, translate, batch_size):
        results = translate(SENTENCES, num_beams=3, num_return_sequences=3, batch_size=batch_size)
        assert [len(result) for result in results] == [3] * len(SENTENCES)
        assert all(len(set(texts(result))) == 3 for result in results)
        assert len(translate("w1", num_beams=3, num_return_sequences=3)) == 3

    def test_token_ids_replace_or_accompany_the_text(self, translate):
        (ids,) = translate("w1 w2", return_tensors=True)
        assert set(ids) == {"translation_token_ids"}
        (both,) = translate("w1 w2", return_tensors=True, return_text=True)
        assert set(both) == {"translation_token_ids", "translation_text"}
        assert torch.equal(ids["translation_token_ids"], both["translation_token_ids"])
        assert translate.tokenizer.decode(ids["translation_token_ids"], skip_special_tokens=True) == texts([both])[0]

    def test_token_ids_have_no_padding(self, translate):
        ending = end_after(4)
        ids = translate(SENTENCES, return_tensors=True, batch_size=5, logits_processor=ending)
        assert all(item["translation_token_ids"].tolist()[-1] == 2 for item in ids)
        assert all(len(item["translation_token_ids"]) == 5 for item in ids)

    def test_returning_nothing_is_refused(self, translate):
        with pytest.raises(ValueError, match="return_tensors=True"):
            translate("w1", return_text=False)

    def test_cleaning_of_spaces_reaches_the_tokenizer(self, monkeypatch):
        translate, seen = make_pipeline(), []
        decode = type(translate.tokenizer).decode
        monkeypatch.setattr(
            type(translate.tokenizer), "decode", lambda *args, **kwargs: seen.append(kwargs) or decode(*args, **kwargs)
        )
        translate("w1", clean_up_tokenization_spaces=False)
        translate("w1")
        assert [call.get("clean_up_tokenization_spaces") for call in seen] == [False, None]


class TestBadInput:
    @pytest.mark.parametrize(
        ("bad", "index"), [(["a", None], 1), (["a", 3], 1), ([["a"]], 0), (("a", "b", b"c"), 2), ([{"text": "a"}], 0)]
    )
    def test_items_that_are_no_strings_are_named_by_index(self, translate, bad, index):
        with pytest.raises(TypeError, match=f"Input {index} is no string"):
            translate(bad)

    @pytest.mark.parametrize("bad", [{"text": "a"}, {"a"}, None, 3, b"a"])
    def test_inputs_that_hold_no_sentences_are_refused(self, translate, bad):
        with pytest.raises(TypeError, match=f"Cannot translate {type(bad).__name__}"):
            translate(bad)

    def test_streams_name_the_index_too(self, translate):
        with pytest.raises(TypeError, match="Input 2 is no string"):
            list(translate(item for item in ["w1", "w2", None]))

    def test_a_list_is_checked_before_anything_is_translated(self, translate, monkeypatch):
        monkeypatch.setattr(translate, "forward", lambda *args, **kwargs: pytest.fail("translation started"))
        with pytest.raises(TypeError, match="Input 1"):
            translate(["w1", 3])
        with pytest.raises(ValueError, match="Sentence 1 has 71 tokens"):
            translate(["w1", "w1 " * 70])

    def test_decoder_only_models_are_refused(self):
        bert = BertLMHeadModel(
            BertConfig(
                vocab_size=48,
                hidden_size=16,
                num_hidden_layers=1,
                num_attention_heads=2,
                intermediate_size=16,
                is_decoder=True,
            )
        )
        with pytest.raises(ValueError, match="encoder-decoder"):
            make_pipeline(bert)

    def test_a_missing_tokenizer_is_named(self):
        with pytest.raises(ValueError, match="pass `tokenizer=`"):
            TranslationPipeline(model=make_marian(), device="cpu")


class TestEmptySentences:
    @pytest.mark.parametrize("batch_size", [1, 2, 7])
    def test_they_give_empty_translations_in_their_places(self, translate, batch_size):
        mixed = ["", SENTENCES[0], " \t\n", "\u00a0", SENTENCES[2], SENTENCES[1], ""]
        expected = [texts(translate(text))[0] if text.strip() else "" for text in mixed]
        assert texts(translate(mixed, batch_size=batch_size)) == expected
        assert texts(translate(mixed, batch_size=batch_size, num_beams=2))[::6] == ["", ""]

    def test_they_never_reach_the_model(self, translate, monkeypatch):
        monkeypatch.setattr(translate.model, "generate", lambda *args, **kwargs: pytest.fail("generate called"))
        assert texts(translate(["", " "], batch_size=2)) == ["", ""]
        assert translate("", return_scores=True) == [{"translation_text": "", "score": 0.0}]

    def test_they_have_as_many_hypotheses_as_the_others(self, translate):
        for inputs in (["", "w1"], ["", ""]):
            results = translate(inputs, num_beams=2, num_return_sequences=2, batch_size=2)
            assert [len(result) for result in results] == [2, 2]
            assert texts(results[0]) == ["", ""]


class TestScores:
    def test_beam_scores_are_those_of_generate_in_falling_order(self, translate):
        settings = {"num_beams": 4, "num_return_sequences": 3, "length_penalty": 0.6, "max_new_tokens": 9}
        inputs = translate.tokenizer(SENTENCES[0], return_tensors="pt")
        outputs = translate.model.generate(
            input_ids=inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            output_scores=True,
            return_dict_in_generate=True,
            **settings,
        )
        scores = [item["score"] for item in translate(SENTENCES[0], return_scores=True, **settings)]
        assert scores == pytest.approx(outputs.sequences_scores.tolist(), abs=1e-5)
        assert scores == sorted(scores, reverse=True)

    @pytest.mark.parametrize("tokens", [4, 60])
    def test_greedy_score_is_the_mean_log_probability(self, translate, tokens):
        options = {"max_new_tokens": 6, "return_scores": True, "return_tensors": True, "batch_size": 3}
        if tokens == 4:
            options["logits_processor"] = end_after(tokens)
        for sentence, result in zip(SENTENCES[:3], translate(SENTENCES[:3], **options), strict=True):
            ids = result["translation_token_ids"][None]
            inputs = translate.tokenizer(sentence, return_tensors="pt")
            with torch.no_grad():
                logits = translate.model(inputs["input_ids"], decoder_input_ids=ids[:, :-1]).logits
            if tokens == 4:
                steps = [options["logits_processor"][0](ids[:, : n + 1], logits[:, n]) for n in range(logits.shape[1])]
                logits = torch.stack(steps, dim=1)
            log_probs = logits.log_softmax(-1).gather(2, ids[:, 1:, None])
            assert result["score"] == pytest.approx(log_probs.mean().item(), abs=1e-4)

    def test_no_score_unless_asked_for(self, translate):
        assert "score" not in translate("w1", num_beams=2)[0]


class TestBatches:
    @pytest.mark.parametrize(
        ("make_model", "side", "options"),
        [
            (make_marian, "right", {"num_beams": 3}),
            (make_marian, "left", {}),
            (make_forcing_marian, "right", {}),
            (make_forcing_marian, "left", {"num_beams": 3, "early_stopping": True}),
            (make_deepnmt, "right", {}),
            (make_deepnmt, "left", {"num_beams": 2}),
        ],
    )
    def test_a_sentence_is_translated_alike_alone_and_in_a_batch(self, make_model, side, options):
        translate = make_pipeline(make_model(), make_tokenizer(padding_side=side))
        alone = [translate(sentence, **options)[0] for sentence in SENTENCES]
        assert translate(SENTENCES, batch_size=5, **options) == alone
        assert len(set(texts(alone))) == len(SENTENCES)

    def test_batch_size_of_the_pipeline_is_used(self, monkeypatch):
        translate, sizes = make_pipeline(batch_size=3), []
        generate = translate.model.generate
        monkeypatch.setattr(
            translate.model, "generate", lambda **kwargs: sizes.append(len(kwargs["input_ids"])) or generate(**kwargs)
        )
        translate(SENTENCES)
        assert sizes == [3, 2]


class TestSourceLength:
    def test_fixed_tables_refuse_longer_sentences_with_index_and_remedy(self, translate):
        with pytest.raises(ValueError, match=r"Sentence 2 has 71 tokens.* 64 positions.*truncation=True"):
            translate(["w1", "w2", "w1 " * 70])
        with pytest.raises(ValueError, match="Sentence 1 has 71 tokens"):
            list(translate(text for text in ["w1", "w1 " * 70]))
        assert translate("w1 " * 63)[0]["translation_text"]

    def test_truncation_cuts_to_the_table_keeps_the_end_and_counts(self, translate, caplog):
        long = " ".join(f"w{number % 40}" for number in range(70))
        result = translate(["w1", long, long], truncation=True)
        assert "Truncation cut 14 tokens off 2 of 3 sentences" in caplog.text
        assert result[1] == translate(" ".join(long.split()[:63]))[0]

    def test_nothing_is_said_when_nothing_is_cut(self, translate, caplog):
        translate(["w1"], truncation=True, logits_processor=end_after(3))
        assert not caplog.records

    def test_unknown_truncation_is_refused(self, translate):
        with pytest.raises(ValueError, match="`truncation` must be True or False"):
            translate("w1", truncation="middle")

    def test_models_whose_positions_extend_take_any_length(self):
        translate = make_pipeline(make_deepnmt())
        scores = [translate("w1 " * 40 + end, return_scores=True)[0]["score"] for end in ("w8", "w9")]
        assert scores[0] != pytest.approx(scores[1], abs=1e-4)
        assert translate.position_limits == {"encoder": None, "decoder": None}

    def test_truncation_of_extending_models_takes_the_smallest_known_length(self, caplog):
        model, long = make_deepnmt(), " ".join(WORDS[:30])
        translate = make_pipeline(model)
        assert translate(long, truncation=True) == translate(" ".join(WORDS[:15]))
        assert "Truncation cut 15 tokens off 1 of 1" in caplog.text
        shorter = make_pipeline(model, make_tokenizer(model_max_length=9))
        assert shorter(long, truncation=True) == translate(" ".join(WORDS[:8]))

    def test_relative_and_growing_positions_have_no_limit(self):
        assert position_tables(make_t5().get_encoder()) == []
        assert position_tables(make_m2m100().get_encoder()) == []

    @pytest.mark.parametrize("offset", [None, 2])
    def test_rows_before_the_first_position_are_not_counted(self, offset):
        config = MBartConfig(vocab_size=48, max_position_embeddings=20, **SIZES, **SPECIALS)
        model = MBartForConditionalGeneration(config) if offset else make_marian(max_position_embeddings=20)
        assert position_tables(model.get_encoder()) == [20]


class TestTargetLength:
    def test_default_limit_grows_with_the_source(self):
        translate = make_pipeline(make_deepnmt())
        for sentence in SENTENCES:
            (result,) = translate(sentence, return_tensors=True, logits_processor=end_after(10**6))
            assert len(result["translation_token_ids"]) == 1 + 2 * (len(sentence.split()) + 1) + 50

    def test_default_limit_stays_inside_a_fixed_table(self, translate):
        (result,) = translate("w1 " * 60, return_tensors=True, logits_processor=end_after(10**6))
        assert len(result["translation_token_ids"]) == 65

    def test_stated_limits_beyond_a_fixed_table_end_at_it(self, translate, caplog):
        for stated in ({"max_new_tokens": 90}, {"generation_config": GenerationConfig(max_length=90)}):
            (result,) = translate("w1", return_tensors=True, logits_processor=end_after(10**6), **stated)
            assert len(result["translation_token_ids"]) == 65
        assert "1 of 1 translations stopped at the length limit" in caplog.text

    @pytest.mark.parametrize("stated", [{"max_new_tokens": 5}, {"max_length": 6}])
    def test_stated_limits_are_kept(self, translate, stated):
        for options in (stated, {"generation_config": GenerationConfig(**stated)}):
            (result,) = translate("w1", return_tensors=True, logits_processor=end_after(10**6), **options)
            assert len(result["translation_token_ids"]) == 6

    def test_limits_of_the_model_and_of_the_pipeline_are_kept(self):
        model = make_marian()
        model.generation_config.max_length = 8
        endless = end_after(10**6)
        (result,) = make_pipeline(model)("w1", return_tensors=True, logits_processor=endless)
        assert len(result["translation_token_ids"]) == 8
        model.generation_config.max_length = None
        (result,) = make_pipeline(model, max_new_tokens=4)("w1", return_tensors=True, logits_processor=endless)
        assert len(result["translation_token_ids"]) == 5

    def test_minimum_lengths_fit_under_the_default_limit(self):
        translate = make_pipeline(make_deepnmt())
        (result,) = translate("w1", min_new_tokens=90, return_tensors=True, logits_processor=end_after(99))
        assert len(result["translation_token_ids"]) > 90

    def test_unfinished_translations_are_counted_once_per_call(self, translate, caplog):
        translate(SENTENCES, max_new_tokens=3, logits_processor=end_after(10**6))
        assert caplog.text.count("5 of 5 translations stopped at the length limit") == 1

    def test_unfinished_translations_of_a_stream_are_reported_at_the_first(self, translate, caplog):
        list(translate(iter(SENTENCES), max_new_tokens=3, logits_processor=end_after(10**6)))
        assert caplog.text.count("stopped at the length limit") == 1
        assert "1 of 1 translations stopped" in caplog.text

    def test_an_end_that_was_forced_at_the_limit_is_no_end(self, caplog):
        translate = make_pipeline(make_forcing_marian())
        results = translate(["w1", "w2 w3 w4"], max_new_tokens=6, return_tensors=True)
        assert [result["translation_token_ids"].tolist()[6:] for result in results] == [[2], [2]]
        assert "2 of 2 translations stopped at the length limit" in caplog.text

    def test_a_length_that_only_repeats_the_position_table_is_no_statement(self):
        model = make_deepnmt(max_position_embeddings=64)
        assert model.generation_config.max_length == 64
        (result,) = make_pipeline(model)("w1 w2 w3", return_tensors=True, logits_processor=end_after(10**6))
        assert len(result["translation_token_ids"]) == 1 + 2 * 4 + 50

    def test_finished_translations_raise_no_warning(self, translate, caplog):
        translate(SENTENCES, logits_processor=end_after(5), batch_size=2)
        assert not caplog.records

    def test_own_stopping_criteria_are_kept_and_not_called_unfinished(self, translate, caplog):
        class Stop(transformers.StoppingCriteria):
            def __call__(self, input_ids, scores, **kwargs):
                return torch.full((len(input_ids),), input_ids.shape[1] >= 4)

        options = {"stopping_criteria": [Stop()], "logits_processor": end_after(10**6)}
        results = translate(SENTENCES, return_tensors=True, batch_size=5, **options)
        assert {len(result["translation_token_ids"]) for result in results} == {4}
        assert not caplog.records


class TestGeneration:
    def test_arguments_reach_generate_and_do_not_stay(self, monkeypatch):
        translate, seen = make_pipeline(num_beams=2), []
        generate = translate.model.generate
        monkeypatch.setattr(translate.model, "generate", lambda **kwargs: seen.append(kwargs) or generate(**kwargs))
        translate("w1", num_beams=3, length_penalty=0.5, early_stopping=True)
        translate("w1")
        assert [seen[0][key] for key in ("num_beams", "length_penalty", "early_stopping")] == [3, 0.5, True]
        assert seen[1]["num_beams"] == 2
        assert "length_penalty" not in seen[1]

    def test_a_generation_config_is_used_and_left_as_it_was(self, translate):
        config = GenerationConfig(num_beams=3, num_return_sequences=2, max_new_tokens=7)
        before = copy.deepcopy(config)
        assert len(translate("w1", generation_config=config, return_scores=True)) == 2
        assert config.to_dict() == before.to_dict()

    def test_unknown_arguments_are_refused(self, translate):
        with pytest.raises(ValueError, match="nonsense"):
            translate("w1", nonsense=1)

    def test_half_precision_and_device_are_those_of_the_base_class(self):
        translate = pipeline(
            "translation", model=make_deepnmt().to(torch.bfloat16), tokenizer=make_tokenizer(), device="cpu"
        )
        assert translate.dtype == torch.bfloat16
        assert translate.device.type == "cpu"
        assert isinstance(translate("w1", return_scores=True)[0]["score"], float)


def make_m2m100():
    config = M2M100Config(
        vocab_size=60, max_position_embeddings=32, **SIZES, **{**SPECIALS, "decoder_start_token_id": 2}
    )
    return make_loud(M2M100ForConditionalGeneration(config))


CODES = ["eng_Latn", "deu_Latn", "fra_Latn"]


def make_nllb_tokenizer(**kwargs):
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "▁", "w", *"0123456789"]
    return NllbTokenizer(
        vocab={piece: index for index, piece in enumerate(pieces)}, merges=[], extra_special_tokens=CODES, **kwargs
    )


class AttributeTokenizer(PreTrainedTokenizerFast):
    """Language codes as attributes only, in the manner of older multilingual tokenizers."""

    @property
    def lang_code_to_id(self):
        return {"xx": self.convert_tokens_to_ids("__xx__"), "yy": self.convert_tokens_to_ids("__yy__")}

    @property
    def src_lang(self):
        return getattr(self, "_source", "xx")

    @src_lang.setter
    def src_lang(self, code):
        self._source = code
        token = f"__{code}__"
        self.backend_tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{token} $A </s>", special_tokens=[("</s>", 2), (token, self.lang_code_to_id[code])]
        )


class TestLanguages:
    @pytest.fixture
    def nllb(self):
        return make_pipeline(make_m2m100(), make_nllb_tokenizer())

    def first_tokens(self, translate, text="w1 w2", **kwargs):
        source = []
        hook = translate.model.get_encoder().register_forward_pre_hook(
            lambda module, args, kwargs: source.append(kwargs["input_ids"]), with_kwargs=True
        )
        (result,) = translate(text, return_tensors=True, max_new_tokens=5, **kwargs)
        hook.remove()
        ids = [int(source[0][0, 0]), int(result["translation_token_ids"][1])]
        return translate.tokenizer.convert_ids_to_tokens(ids)

    def test_codes_of_a_call_mark_source_and_target_and_do_not_stay(self, nllb):
        assert self.first_tokens(nllb, src_lang="deu_Latn", tgt_lang="eng_Latn") == ["deu_Latn", "eng_Latn"]
        assert (nllb.tokenizer.src_lang, nllb.tokenizer.tgt_lang) == ("eng_Latn", None)
        assert self.first_tokens(nllb, tgt_lang="fra_Latn") == ["eng_Latn", "fra_Latn"]
        assert nllb.tokenizer("w1")["input_ids"][0] == nllb.tokenizer.convert_tokens_to_ids("eng_Latn")
        with pytest.raises(ValueError, match="pass `tgt_lang=`"):
            nllb("w1")

    def test_codes_of_the_pipeline_are_defaults(self):
        translate = make_pipeline(
            make_m2m100(), make_nllb_tokenizer(), src_lang="fra_Latn", tgt_lang="deu_Latn", num_beams=2
        )
        assert self.first_tokens(translate) == ["fra_Latn", "deu_Latn"]
        assert self.first_tokens(translate, tgt_lang="eng_Latn") == ["fra_Latn", "eng_Latn"]
        assert self.first_tokens(translate) == ["fra_Latn", "deu_Latn"]

    def test_codes_may_come_from_the_task_name(self):
        translate = pipeline(
            "translation_deu_Latn_to_fra_Latn", model=make_m2m100(), tokenizer=make_nllb_tokenizer(), device="cpu"
        )
        assert self.first_tokens(translate) == ["deu_Latn", "fra_Latn"]
        assert self.first_tokens(translate, src_lang="eng_Latn") == ["eng_Latn", "fra_Latn"]

    def test_a_target_fixed_by_the_model_need_not_be_given(self, nllb):
        nllb.model.generation_config.forced_bos_token_id = nllb.tokenizer.convert_tokens_to_ids("deu_Latn")
        assert self.first_tokens(nllb) == ["eng_Latn", "deu_Latn"]

    def test_languages_hold_for_batches_with_empty_sentences(self, nllb):
        options = {"src_lang": "deu_Latn", "tgt_lang": "fra_Latn", "max_new_tokens": 8}
        alone = [nllb(text, **options)[0] for text in ("w1", "w2 w3 w4")]
        assert nllb(["", "w1", "w2 w3 w4"], batch_size=3, **options) == [{"translation_text": ""}, *alone]

    def test_languages_go_with_a_generation_config(self, nllb):
        config = GenerationConfig(num_beams=2, max_new_tokens=5)
        assert self.first_tokens(nllb, tgt_lang="deu_Latn", generation_config=config)[1] == "deu_Latn"

    @pytest.mark.parametrize("wrong", [{"tgt_lang": "xxx"}, {"src_lang": "xxx", "tgt_lang": "deu_Latn"}])
    def test_unknown_codes_are_named_and_do_not_stay(self, nllb, wrong):
        with pytest.raises(ValueError, match="'xxx' is no language of this tokenizer"):
            nllb("w1", **wrong)
        assert nllb.tokenizer.src_lang == "eng_Latn"
        assert nllb.tokenizer("w1")["input_ids"][0] == nllb.tokenizer.convert_tokens_to_ids("eng_Latn")

    def test_unknown_words_are_no_unknown_language(self, nllb):
        assert nllb("é", tgt_lang="deu_Latn")[0]["translation_text"] is not None

    def test_tokenizers_with_attributes_only_work_too(self):
        template = make_tokenizer(extra=["__xx__", "__yy__"])
        names = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
        tokenizer = AttributeTokenizer(tokenizer_object=template.backend_tokenizer, **names)
        translate = make_pipeline(make_m2m100(), tokenizer)
        assert self.first_tokens(translate, src_lang="yy", tgt_lang="xx") == ["__yy__", "__xx__"]
        assert tokenizer.src_lang == "xx"
        with pytest.raises(ValueError, match="'zz' is no language.*xx, yy"):
            translate("w1", tgt_lang="zz")

    def test_target_tokens_of_marian_are_put_before_the_sentence(self):
        tokenizer = make_tokenizer(extra=[">>fr<<"])
        tokenizer.supported_language_codes = [">>fr<<"]
        translate = make_pipeline(make_marian(vocab_size=49), tokenizer)
        assert translate("w1", tgt_lang="fr") == translate(">>fr<< w1")
        assert translate("w1", tgt_lang="fr") != translate("w1")
        with pytest.raises(ValueError, match="'es' is no target language of this tokenizer, which has >>fr<<"):
            translate("w1", tgt_lang="es")

    def test_a_target_language_that_changes_nothing_is_reported(self, translate, caplog):
        translate("w1", tgt_lang="no-such-choice")
        assert "`tgt_lang='no-such-choice'` is ignored" in caplog.text


class TestPrefix:
    PARAMETERS = {
        "translation_en_to_de": {"prefix": "translate English to German: ", "num_beams": 3, "max_length": 7},
        "summarization": {"prefix": "summarize: "},
    }

    def make(self, task="translation", tokenizer=None, **kwargs):
        extra = ["translate", "to", "English", "German:", "Romanian:"]
        return TranslationPipeline(
            model=make_t5(**kwargs), tokenizer=tokenizer or make_tokenizer(extra=extra), task=task, device="cpu"
        )

    def source(self, translate, **kwargs):
        ids = translate.preprocess("w1", **kwargs)["input_ids"][0]
        return translate.tokenizer.decode(ids, skip_special_tokens=True)

    def test_it_is_that_of_the_task_in_the_config(self):
        translate = self.make("translation_en_to_de", task_specific_params=self.PARAMETERS)
        assert self.source(translate) == "translate English to German: w1"

    def test_generation_parameters_of_the_task_are_defaults(self, monkeypatch):
        translate, seen = self.make("translation_en_to_de", task_specific_params=self.PARAMETERS), []
        generate = translate.model.generate
        monkeypatch.setattr(translate.model, "generate", lambda **kwargs: seen.append(kwargs) or generate(**kwargs))
        translate("w1")
        translate("w1", num_beams=2, max_length=9)
        translate("w1", generation_config=GenerationConfig(num_beams=4))
        assert [(call["num_beams"], call["max_length"]) for call in seen[:2]] == [(3, 7), (2, 9)]
        assert (seen[2]["generation_config"].num_beams, seen[2]["generation_config"].max_length) == (4, 7)

    def test_it_is_made_from_languages(self):
        translate = self.make()
        assert self.source(translate, src_lang="en", tgt_lang="ro") == "translate English to Romanian: w1"
        assert self.source(translate, src_lang="English", tgt_lang="German") == "translate English to German: w1"
        assert self.source(translate) == "w1"

    def test_an_unknown_language_names_the_remedy(self):
        with pytest.raises(ValueError, match="'zu'.*prefix="):
            self.make()("w1", src_lang="en", tgt_lang="zu")

    def test_the_given_one_wins(self):
        translate = self.make("translation_en_to_de", task_specific_params=self.PARAMETERS)
        assert self.source(translate, prefix="w3 ") == "w3 w1"
        assert self.source(translate, prefix="") == "w1"

    def test_that_of_the_config_is_used(self):
        assert self.source(self.make(prefix="w5 ")) == "w5 w1"

    def test_it_changes_the_translation_and_not_empty_sentences(self):
        translate = self.make()
        options = {"src_lang": "en", "tgt_lang": "de", "max_new_tokens": 6, "return_scores": True}
        assert translate("w1", **options) != translate("w1", max_new_tokens=6, return_scores=True)
        assert texts(translate(["", "w1"], batch_size=2, **options))[0] == ""


class TestRegistration:
    def test_the_task_works_with_a_model_object(self):
        translate = pipeline("translation", model=make_marian(), tokenizer=make_tokenizer(), device="cpu")
        assert type(translate) is TranslationPipeline
        assert translate("w1") == make_pipeline()("w1")

    @pytest.mark.parametrize("task", ["translation", "translation_de_to_en"])
    def test_the_task_works_with_a_folder_of_another_library_model(self, task, tmp_path):
        saved = pipeline("translation", model=make_marian(), tokenizer=make_tokenizer(), device="cpu")
        saved.save_pretrained(tmp_path)
        loaded = pipeline(task, model=str(tmp_path), device="cpu")
        assert type(loaded) is TranslationPipeline
        assert loaded.task == task
        assert loaded("w1") == saved("w1")

    def test_other_removed_and_unknown_tasks_are_refused_as_before(self):
        with pytest.raises(KeyError, match="The task text2text-generation has been removed"):
            pipeline("text2text-generation", model=make_marian(), tokenizer=make_tokenizer())
        for task in ("translation_nonsense", "no-such-task"):
            with pytest.raises(KeyError, match=f"Unknown task {task}"):
                pipeline(task, model=make_marian(), tokenizer=make_tokenizer())

    def test_aliases_of_the_library_stay(self):
        assert transformers.pipelines.check_task("ner")[0] == "token-classification"
        assert "ner" in transformers.pipelines.get_supported_tasks()

    def test_registering_again_changes_nothing_and_says_nothing(self, caplog):
        before = dict(transformers.pipelines.PIPELINE_REGISTRY.supported_tasks)
        assert register_pipelines() == ("translation", "summarization")
        assert transformers.pipelines.PIPELINE_REGISTRY.supported_tasks == before
        assert not caplog.records

    def test_an_unknown_mechanism_of_a_later_library_is_reported(self, monkeypatch, caplog):
        def refuse(task):
            raise KeyError(f"{task} is gone")

        monkeypatch.setattr(transformers.pipelines, "check_task", refuse)
        assert register_pipelines() == ()
        assert "call TranslationPipeline, SummarizationPipeline from `hf_deepnmt.models`" in caplog.text

    def test_further_tasks_need_only_a_row(self, monkeypatch):
        class Any(TranslationPipeline):
            pass

        removed = dict(transformers.pipelines.REMOVED_TASKS)
        supported = dict(transformers.pipelines.PIPELINE_REGISTRY.supported_tasks)
        monkeypatch.setattr(transformers.pipelines, "REMOVED_TASKS", removed)
        monkeypatch.setattr(transformers.pipelines.PIPELINE_REGISTRY, "supported_tasks", supported)
        monkeypatch.setitem(package_pipelines.TASKS, "text2text-generation", Any)
        assert register_pipelines() == ("translation", "summarization", "text2text-generation")
        made = pipeline("text2text-generation", model=make_marian(), tokenizer=make_tokenizer(), device="cpu")
        assert type(made) is Any


class TestCheckpoints:
    @pytest.fixture(scope="class")
    @classmethod
    def folder(cls, tmp_path_factory):
        folder = tmp_path_factory.mktemp("checkpoint")
        make_deepnmt().save_pretrained(folder)
        make_tokenizer().save_pretrained(folder)
        return folder

    def test_they_name_and_carry_the_pipeline(self, folder):
        named = json.loads((folder / "config.json").read_text())["custom_pipelines"]["translation"]
        assert named == {"impl": "pipeline_translation.TranslationPipeline", "pt": ["AutoModelForSeq2SeqLM"]}
        assert (folder / "pipeline_translation.py").exists()

    @pytest.mark.parametrize("task", ["translation", "translation_de_to_en"])
    def test_the_installed_package_serves_them_without_asking_for_trust(self, folder, task, monkeypatch):
        monkeypatch.setattr("builtins.input", lambda *args: pytest.fail("asked for trust"))
        translate = pipeline(task, model=str(folder), device="cpu")
        assert type(translate) is TranslationPipeline
        assert type(translate.model) is DeepNMTForConditionalGeneration
        assert translate("w1") == make_pipeline(make_deepnmt())("w1")

    def test_saving_again_keeps_the_entry_of_the_pipeline(self, folder, tmp_path):
        translate = pipeline("translation", model=str(folder), device="cpu")
        translate.save_pretrained(tmp_path)
        translate.save_pretrained(tmp_path)
        read = [json.loads((path / "config.json").read_text()) for path in (folder, tmp_path)]
        assert read[0]["custom_pipelines"] == read[1]["custom_pipelines"]
        assert {path.name for path in folder.glob("*.py")} == {path.name for path in tmp_path.glob("*.py")}

    def test_pipelines_of_others_in_the_config_are_still_seen_and_saved(self):
        entries = {"translation": {"impl": "a.B"}, "captions": {"impl": "c.D"}}
        config = DeepNMTConfig(vocab_size=48, custom_pipelines=entries)
        assert config.custom_pipelines == {"captions": {"impl": "c.D"}}
        assert config.to_diff_dict()["custom_pipelines"] == entries
        assert not hasattr(DeepNMTConfig(vocab_size=48), "custom_pipelines")

    def test_without_the_package_trusted_code_serves_them_and_saves_whole_folders(self, folder, tmp_path):
        script = textwrap.dedent(
            """
            import sys, torch
            sys.modules["hf_deepnmt"] = None
            from transformers import pipeline
            folder, copy = sys.argv[1:]
            first = pipeline("translation", model=folder, trust_remote_code=True, device="cpu")
            first.save_pretrained(copy)
            second = pipeline("translation", model=copy, trust_remote_code=True, device="cpu")
            for translate in (first, second):
                assert type(translate).__module__.startswith("transformers_modules")
                result = translate(["w1 w2", "", "w3"], num_beams=2, batch_size=2)
                assert [set(item) for item in result] == [{"translation_text"}] * 3, result
                print("RESULT", [item["translation_text"] for item in result])
            """
        )
        environment = {**os.environ, "HF_MODULES_CACHE": str(tmp_path / "modules"), "HF_HUB_OFFLINE": "1"}
        environment.pop("PYTHONPATH", None)
        run = subprocess.run(
            [sys.executable, "-c", script, str(folder), str(tmp_path / "copy")],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=environment,
        )
        assert run.returncode == 0, run.stderr
        lines = [line for line in run.stdout.splitlines() if line.startswith("RESULT")]
        expected = make_pipeline(make_deepnmt())(["w1 w2", "", "w3"], num_beams=2)
        assert lines == [f"RESULT {texts(expected)}"] * 2
        assert {path.name for path in Path(folder).iterdir()} == {path.name for path in (tmp_path / "copy").iterdir()}

    def test_a_folder_whose_config_names_the_pipeline_gets_its_file(self, tmp_path):
        model = make_marian()
        model.config.custom_pipelines = {"translation": {"impl": "pipeline_translation.TranslationPipeline"}}
        make_pipeline(model).save_pretrained(tmp_path)
        assert {path.name for path in tmp_path.glob("*.py")} == {"pipeline_seq2seq.py", "pipeline_translation.py"}
