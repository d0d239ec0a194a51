"""The summarization pipeline: what is its own, and that the shared base serves it as it serves translation."""

import json
import subprocess
import sys

import datasets
import pytest
import torch
from tiny_pipelines import WORDS, end_after, make_deepnmt, make_marian, make_t5, make_tokenizer
from transformers import BertConfig, BertLMHeadModel, GenerationConfig, pipeline
from transformers.pipelines.pt_utils import KeyDataset

from hf_deepnmt.models import SummarizationPipeline


DOCUMENTS = ["w1 w2 w3 w4", "w3 w8", "w4 w5 w6 w7 w8 w9 w10", "w11 w12 w13 w14 w15", "w15 w16 w17 w18 w19 w20 w21"]
ENDLESS = end_after(10**6)


def make_pipeline(model=None, tokenizer=None, **kwargs):
    return SummarizationPipeline(
        model=model or make_marian(),
        tokenizer=tokenizer or make_tokenizer(),
        task="summarization",
        device="cpu",
        **kwargs,
    )


@pytest.fixture(scope="module")
def summarize():
    return make_pipeline()


def texts(results):
    return [result["summary_text"] for result in results]


def lengths(results):
    """New tokens of each summary."""
    return [len(result["summary_token_ids"]) - 1 for result in results]


class TestInputs:
    def test_one_string_gives_one_list_of_one_dict(self, summarize):
        (result,) = summarize(DOCUMENTS[0])
        assert set(result) == {"summary_text"} and result["summary_text"]

    @pytest.mark.parametrize("container", [list, tuple, lambda x: datasets.Dataset.from_dict({"text": x})["text"]])
    def test_sequences_give_a_flat_list_in_order(self, summarize, container):
        expected = [summarize(document)[0] for document in DOCUMENTS]
        assert summarize(container(DOCUMENTS)) == expected
        assert len(set(texts(expected))) == len(DOCUMENTS), "outputs too alike to show the order"

    def test_an_empty_list_gives_an_empty_list(self, summarize):
        assert summarize([]) == []

    def test_streams_give_one_list_for_each_document(self, summarize):
        expected = [summarize(document) for document in DOCUMENTS]
        result = summarize(iter(DOCUMENTS), batch_size=2)
        assert not isinstance(result, list) and list(result) == expected
        rows = datasets.Dataset.from_dict({"body": DOCUMENTS})
        assert list(summarize(KeyDataset(rows, "body"))) == list(summarize(rows)) == expected

    @pytest.mark.parametrize("column", ["text", "document", "article", "dialogue"])
    def test_rows_are_read_in_the_column_of_the_document(self, summarize, column):
        rows = datasets.Dataset.from_dict({"summary": ["w1"] * len(DOCUMENTS), column: DOCUMENTS})
        assert list(summarize(rows)) == [summarize(document) for document in DOCUMENTS]

    def test_rows_with_no_clear_document_name_the_columns(self, summarize):
        with pytest.raises(ValueError, match="columns a, summary.*KeyDataset"):
            list(summarize(datasets.Dataset.from_dict({"a": ["w1"], "summary": ["w2"]})))

    def test_empty_documents_give_empty_summaries_in_their_places(self, summarize):
        mixed = ["", DOCUMENTS[0], " \t\n", DOCUMENTS[2], ""]
        expected = [texts(summarize(text))[0] if text.strip() else "" for text in mixed]
        assert texts(summarize(mixed, batch_size=3)) == expected
        assert summarize("", return_scores=True) == [{"summary_text": "", "score": 0.0}]

    def test_several_summaries_and_token_ids(self, summarize):
        results = summarize(DOCUMENTS[:2], num_beams=3, num_return_sequences=2, return_tensors=True, batch_size=2)
        assert [len(result) for result in results] == [2, 2]
        assert set(results[0][0]) == {"summary_token_ids"}


class TestBatches:
    @pytest.mark.parametrize(
        ("make_model", "side", "options"),
        [
            (make_marian, "right", {"num_beams": 3, "no_repeat_ngram_size": 3}),
            (make_marian, "left", {}),
            (make_deepnmt, "left", {"num_beams": 2, "min_new_tokens": 4}),
        ],
    )
    def test_a_document_is_summarised_alike_alone_and_in_a_batch(self, make_model, side, options):
        summarize = make_pipeline(make_model(), make_tokenizer(padding_side=side))
        alone = [summarize(document, **options)[0] for document in DOCUMENTS]
        assert summarize(DOCUMENTS, batch_size=5, **options) == alone
        assert len(set(texts(alone))) == len(DOCUMENTS)


class TestDocumentLength:
    LONG = " ".join(f"w{number % 40}" for number in range(70))

    def test_longer_documents_are_refused_before_anything_is_summarised(self, summarize, monkeypatch):
        monkeypatch.setattr(summarize, "forward", lambda *args, **kwargs: pytest.fail("summarization started"))
        with pytest.raises(ValueError, match=r"Document 1 has 71 tokens.* 64 positions.*truncation=True"):
            summarize(["w1", self.LONG])

    def test_truncation_keeps_the_beginning_and_counts(self, summarize, caplog):
        result = summarize(["w1", self.LONG, self.LONG], truncation=True, logits_processor=end_after(3))
        assert "Truncation cut 14 tokens off 2 of 3 documents." in caplog.text
        assert result[1] == summarize(" ".join(self.LONG.split()[:63]), logits_processor=end_after(3))[0]

    def test_truncation_of_extending_models_takes_the_length_of_the_tokenizer(self, caplog):
        summarize = make_pipeline(make_deepnmt(), make_tokenizer(model_max_length=9))
        assert summarize(self.LONG, truncation=True) == summarize(" ".join(self.LONG.split()[:8]))
        assert "Truncation cut 62 tokens off 1 of 1 documents" in caplog.text


class TestSummaryLength:
    def test_an_unstated_limit_is_the_length_of_the_document(self, caplog):
        summarize = make_pipeline(make_deepnmt())
        results = summarize(DOCUMENTS, return_tensors=True, logits_processor=ENDLESS, batch_size=3)
        assert lengths(results) == [len(document.split()) + 1 for document in DOCUMENTS]
        assert "5 of 5 summaries stopped at the length limit" in caplog.text
        assert "no more themselves" not in caplog.text

    @pytest.mark.parametrize("stated", [{"max_new_tokens": 3}, {"max_length": 4}])
    def test_stated_limits_are_kept(self, summarize, stated):
        for options in (stated, {"generation_config": GenerationConfig(**stated)}):
            assert lengths(summarize(DOCUMENTS[:2], return_tensors=True, logits_processor=ENDLESS, **options)) == [
                3,
                3,
            ]

    def test_least_lengths_are_kept(self, summarize):
        def favour_end(ids, scores):
            scores = scores.clone()
            scores[:, 2] = torch.where(scores[:, 2].isinf(), scores[:, 2], 1e4)
            return scores

        options = {"logits_processor": [favour_end], "return_tensors": True}
        # a list of processors comes after those of `generate` itself, and so does not undo the least length
        assert lengths(summarize(DOCUMENTS, **options)) == [1] * 5
        assert lengths(summarize(DOCUMENTS, min_new_tokens=6, **options)) == [7] * 5

    def test_limits_that_contradict_each_other_are_refused(self, summarize):
        with pytest.raises(ValueError, match=r"`min_new_tokens` \(9\) is above `max_new_tokens` \(5\)"):
            summarize("w1 w2", min_new_tokens=9, max_new_tokens=5)
        with pytest.raises(ValueError, match=r"`min_length` \(9\) is above `max_length` \(5\)"):
            summarize("w1 w2", min_length=9, max_length=5)

    def test_limits_above_the_length_of_a_document_are_counted(self, summarize, caplog):
        summarize([*DOCUMENTS, ""], max_new_tokens=6, logits_processor=end_after(2), batch_size=2)
        assert "Summaries may have 6 tokens, but 3 of 6 documents have no more themselves" in caplog.text
        assert "stopped at the length limit" not in caplog.text

    def test_a_limit_below_every_document_raises_no_warning(self, summarize, caplog):
        summarize(DOCUMENTS, max_new_tokens=2, logits_processor=end_after(2))
        assert not caplog.records

    def test_streams_report_at_the_first(self, summarize, caplog):
        list(summarize(iter(DOCUMENTS), max_new_tokens=6, logits_processor=ENDLESS))
        assert caplog.text.count("so far; the following ones are not reported") == 2


class TestTrigramBlocking:
    @staticmethod
    def trigrams(ids):
        tokens = ids.tolist()
        return [tuple(tokens[i : i + 3]) for i in range(len(tokens) - 2)]

    @pytest.mark.parametrize("beams", [1, 3])
    def test_no_trigram_of_tokens_comes_twice(self, beams):
        def three_words(ids, scores):
            allowed = torch.full_like(scores, float("-inf"))
            allowed[:, 4:7] = scores[:, 4:7]
            return allowed

        summarize = make_pipeline(make_deepnmt())
        options = {"num_beams": beams, "max_new_tokens": 20, "logits_processor": [three_words], "return_tensors": True}
        for blocked in (False, True):
            size = {"no_repeat_ngram_size": 3} if blocked else {}
            for result in summarize([" ".join(WORDS[:30]), " ".join(WORDS[10:40])], batch_size=2, **options, **size):
                found = self.trigrams(result["summary_token_ids"])
                assert len(found) == 19
                assert (len(set(found)) == 19) is blocked


class TestSettings:
    def test_prefix_and_generation_parameters_of_the_task_come_from_the_config(self, monkeypatch):
        parameters = {
            "summarization": {"prefix": "summarize: ", "num_beams": 3, "max_length": 7},
            "translation": {"prefix": "translate: "},
        }
        summarize = make_pipeline(make_t5(task_specific_params=parameters), make_tokenizer(extra=["summarize:"]))
        seen = []
        generate = summarize.model.generate
        monkeypatch.setattr(summarize.model, "generate", lambda **kwargs: seen.append(kwargs) or generate(**kwargs))
        summarize("w1 w2 w3")
        summarize("w1 w2 w3", num_beams=2, prefix="w9 ")
        assert [(call["num_beams"], call["max_length"]) for call in seen] == [(3, 7), (2, 7)]
        decoded = [summarize.tokenizer.decode(call["input_ids"][0]) for call in seen]
        assert decoded == ["summarize: w1 w2 w3 </s>", "w9 w1 w2 w3 </s>"]

    def test_unknown_arguments_are_refused(self, summarize):
        with pytest.raises(ValueError, match="src_lang"):
            summarize("w1", src_lang="de")

    @pytest.mark.parametrize("bad", [{"text": "a"}, None, 3, b"a"])
    def test_inputs_that_hold_no_documents_are_refused(self, summarize, bad):
        with pytest.raises(TypeError, match=f"Cannot summarize {type(bad).__name__}"):
            summarize(bad)

    def test_items_that_are_no_strings_are_named_by_index(self, summarize):
        with pytest.raises(TypeError, match="Input 1 is no string but NoneType.*one `str` a document"):
            summarize(["w1", None])

    def test_decoder_only_models_and_missing_tokenizers_are_refused(self):
        sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
        bert = BertLMHeadModel(BertConfig(vocab_size=48, is_decoder=True, **sizes))
        with pytest.raises(ValueError, match="Summarization needs an encoder-decoder model"):
            make_pipeline(bert)
        with pytest.raises(ValueError, match="Summarization needs a tokenizer: pass `tokenizer=`"):
            SummarizationPipeline(model=make_marian(), device="cpu")


class TestRegistration:
    def test_the_task_works_with_models_of_the_library_and_their_folders(self, summarize, tmp_path):
        made = pipeline("summarization", model=make_marian(), tokenizer=make_tokenizer(), device="cpu")
        made.save_pretrained(tmp_path)
        loaded = pipeline("summarization", model=str(tmp_path), device="cpu")
        assert type(made) is type(loaded) is SummarizationPipeline
        assert made(DOCUMENTS) == loaded(DOCUMENTS) == summarize(DOCUMENTS)

    @pytest.fixture(scope="class")
    @classmethod
    def folder(cls, tmp_path_factory):
        folder = tmp_path_factory.mktemp("checkpoint")
        make_deepnmt().save_pretrained(folder)
        make_tokenizer().save_pretrained(folder)
        return folder

    def test_checkpoints_name_and_carry_the_pipeline(self, folder, tmp_path):
        named = json.loads((folder / "config.json").read_text())["custom_pipelines"]["summarization"]
        assert named == {"impl": "pipeline_summarization.SummarizationPipeline", "pt": ["AutoModelForSeq2SeqLM"]}
        pipeline("summarization", model=str(folder), device="cpu").save_pretrained(tmp_path)
        assert json.loads((tmp_path / "config.json").read_text())["custom_pipelines"]["summarization"] == named
        assert {path.name for path in folder.glob("*.py")} == {path.name for path in tmp_path.glob("*.py")}

    def test_the_installed_package_serves_them_without_asking_for_trust(self, folder, monkeypatch):
        monkeypatch.setattr("builtins.input", lambda *args: pytest.fail("asked for trust"))
        summarize = pipeline("summarization", model=str(folder), device="cpu")
        assert type(summarize) is SummarizationPipeline
        assert summarize(DOCUMENTS) == make_pipeline(make_deepnmt())(DOCUMENTS)

    def test_without_the_package_trusted_code_serves_them(self, folder, tmp_path):
        program = """
import json, sys
sys.modules["hf_deepnmt"] = None
from transformers import pipeline
folder, again, documents = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
first = pipeline("summarization", model=folder, trust_remote_code=True, device="cpu")
first.save_pretrained(again)
second = pipeline("summarization", model=again, trust_remote_code=True, device="cpu")
assert type(second).__module__.startswith("transformers_modules"), type(second)
print(json.dumps([summarize(documents, num_beams=2, no_repeat_ngram_size=3) for summarize in (first, second)]))
"""
        documents = [*DOCUMENTS, ""]
        done = subprocess.run(
            [sys.executable, "-c", program, str(folder), str(tmp_path / "again"), json.dumps(documents)],
            capture_output=True,
            text=True,
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        expected = make_pipeline(make_deepnmt())(documents, num_beams=2, no_repeat_ngram_size=3)
        assert json.loads(done.stdout.splitlines()[-1]) == [expected] * 2
