"""Both forms of the length penalty, against all hypotheses of a tiny vocabulary and a beam search in plain Python."""

import copy
import itertools
import json

import pytest
import torch
from tiny import EOS, sentences, tiny_model
from transformers import AutoModelForSeq2SeqLM, GenerationConfig, GenerationMixin

from hf_deepnmt.models.generation_deepnmt import GNMTLengthPenalty
from hf_deepnmt.training import recipe_from_dict


START, VOCAB = 0, 8
RETURNED = {"output_scores": True, "return_dict_in_generate": True}


def penalty(form, exponent, length):
    return ((5 + length) / 6) ** exponent if form == "gnmt" else length**exponent


@pytest.fixture(scope="module")
def model():
    made = tiny_model(vocab_size=VOCAB, output_bias=True)
    # so that hypotheses end at various lengths
    made.lm_head.bias.data[EOS] = 2.0
    return made


def decode(model, source, width, beams, **options):
    options = {"num_beams": beams, "num_return_sequences": beams, "max_length": width + 1, **options}
    found = model.generate(**source, **RETURNED, **options)
    rows = [tuple(ids[1 : ids.index(EOS, 1) + 1] if EOS in ids[1:] else ids[1:]) for ids in found.sequences.tolist()]
    return list(zip(rows, found.sequences_scores.tolist(), strict=True))


def log_probabilities(model, source, prefixes):
    """Of every next token after each of the equally long `prefixes`: (prefixes, vocabulary)."""
    inputs = {name: value.expand(len(prefixes), -1) for name, value in source.items()}
    with torch.no_grad():
        logits = model(**inputs, decoder_input_ids=torch.tensor(prefixes), use_cache=False).logits
    return logits[:, -1].float().log_softmax(-1)


def all_hypotheses(model, source, longest):
    """Every hypothesis of at most `longest` tokens, with its log-probability."""
    found, running = {}, {(START,): 0.0}
    for length in range(1, longest + 1):
        steps = log_probabilities(model, source, list(running)).tolist()
        grown = {
            (*prefix, token): score + step[token]
            for (prefix, score), step in zip(running.items(), steps, strict=True)
            for token in range(VOCAB)
        }
        ended = {prefix for prefix in grown if prefix[-1] == EOS or length == longest}
        found |= {prefix[1:]: grown[prefix] for prefix in ended}
        running = {prefix: score for prefix, score in grown.items() if prefix not in ended}
    return found


def beam_search(model, source, longest, beams, divide, early_stopping, exponent):
    """Hypotheses and scores, best first, by Transformers' rules: `divide(score, length)` is what they are ranked by."""
    running, finished = [((START,), 0.0)], []
    for length in itertools.count(1):
        steps = log_probabilities(model, source, [prefix for prefix, _ in running]).tolist()
        grown = [
            ((*prefix, token), score + step[token])
            for (prefix, score), step in zip(running, steps, strict=True)
            for token in range(VOCAB)
        ]
        grown = sorted(grown, key=lambda pair: -pair[1])[: 2 * beams]
        ended = [pair for pair in grown[:beams] if pair[0][-1] == EOS or length == longest]
        finished += [(prefix[1:], divide(score, length)) for prefix, score in ended]
        finished = sorted(finished, key=lambda pair: -pair[1])[:beams]
        running = [pair for pair in grown if pair[0][-1] != EOS][:beams]
        hoped = divide(running[0][1], longest if early_stopping == "never" and exponent > 0 else length)
        full = len(finished) == beams
        if length == longest or (full and (early_stopping is True or hoped <= finished[-1][1])):
            return finished


@pytest.mark.parametrize("form", ["fairseq", "gnmt"])
@pytest.mark.parametrize("exponent", [1.6, 0.6, -0.5])
def test_ranking_is_that_of_all_hypotheses(model, form, exponent):
    source, longest = sentences(5, vocab=VOCAB), 3
    hypotheses = all_hypotheses(model, source, longest)
    scores = {ids: score / penalty(form, exponent, len(ids)) for ids, score in hypotheses.items()}
    best = sorted(scores, key=scores.get, reverse=True)
    options = {"length_penalty": exponent, "length_penalty_form": form, "early_stopping": "never"}
    found = decode(model, source, longest, len(hypotheses), **options)
    assert [ids for ids, _ in found] == best
    assert [score for _, score in found] == pytest.approx([scores[ids] for ids in best], rel=1e-5)


@pytest.mark.parametrize("early_stopping", [False, True, "never"])
def test_beam_search_ranks_and_stops_by_the_form(model, early_stopping):
    stopped_early, differs = 0, 0
    for form, exponent, length in itertools.product(("fairseq", "gnmt"), (2.0, 0.8, -1.0), (3, 9)):
        source, options = (
            sentences(length, vocab=VOCAB),
            {"length_penalty": exponent, "early_stopping": early_stopping},
        )

        def divide(score, length, form=form, exponent=exponent):
            return score / penalty(form, exponent, length)

        expected = beam_search(model, source, 12, 3, divide, early_stopping, exponent)
        found = decode(model, source, 12, 3, **options, length_penalty_form=form)
        assert [ids for ids, _ in found] == [ids for ids, _ in expected]
        assert [score for _, score in found] == pytest.approx([score for _, score in expected], rel=1e-5)
        stopped_early += max(len(ids) for ids, _ in found) < 12
        other = decode(model, source, 12, 3, **options, length_penalty_form={"gnmt": "fairseq"}.get(form, "gnmt"))
        differs += [ids for ids, _ in other] != [ids for ids, _ in found]
    assert stopped_early and differs


def test_default_is_bit_equal_to_transformers(model):
    source, options = sentences(7, 4, 9, vocab=VOCAB), {"num_beams": 3, "max_length": 12, "length_penalty": 1.3}
    plain = copy.copy(model)
    plain.__class__ = type(
        "Plain", (type(model),), {"_prepare_generation_config": GenerationMixin._prepare_generation_config}
    )
    expected = plain.generate(**source, **options, **RETURNED)
    for form in ({}, {"length_penalty_form": "fairseq"}, {"length_penalty_form": None}):
        found = model.generate(**source, **options, **RETURNED, **form)
        assert torch.equal(found.sequences, expected.sequences)
        assert torch.equal(found.sequences_scores, expected.sequences_scores)
    gnmt = model.generate(**source, **options, **RETURNED, length_penalty_form="gnmt")
    assert not torch.equal(gnmt.sequences_scores, expected.sequences_scores)


def test_form_is_stored_and_a_call_goes_before_it(model, tmp_path):
    source = sentences(6, vocab=VOCAB)
    fairseq, gnmt = (
        decode(model, source, 9, 3, length_penalty=0.7, length_penalty_form=form) for form in ("fairseq", "gnmt")
    )
    settings = {"num_beams": 3, "length_penalty": 0.7, "length_penalty_form": "gnmt"}
    stored = copy.deepcopy(model)
    stored.generation_config.update(**settings, allow_custom_entries=True)
    stored.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "generation_config.json").read_text())["length_penalty_form"] == "gnmt"
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path).eval()
    assert decode(loaded, source, 9, 3) == gnmt
    assert decode(loaded, source, 9, 3, length_penalty_form="fairseq") == fairseq
    assert decode(model, source, 9, 3, generation_config=GenerationConfig(**settings)) == gnmt != fairseq
    assert type(loaded.generation_config.length_penalty) is float


def test_the_start_of_the_target_does_not_count(model):
    source, start = sentences(6, vocab=VOCAB), torch.tensor([[START, 5, 6]])
    options = {"num_beams": 2, "max_length": 9, "length_penalty": 1.5, "decoder_input_ids": start, **RETURNED}
    found = model.generate(**source, **options, length_penalty_form="gnmt")
    ids = found.sequences[0]
    ids = ids[: ids[3:].eq(EOS).int().argmax() + 4] if EOS in ids[3:] else ids
    with torch.no_grad():
        steps = model(**source, decoder_input_ids=ids[None, :-1]).logits[0].log_softmax(-1)
    total = steps.gather(1, ids[1:, None])[2:].sum()
    assert float(found.sequences_scores[0]) == pytest.approx(float(total) / ((5 + len(ids) - 3) / 6) ** 1.5, rel=1e-5)


def test_any_model_takes_the_number(model):
    source = sentences(6, vocab=VOCAB)
    assert decode(model, source, 9, 3, length_penalty=GNMTLengthPenalty(0.7)) == decode(
        model, source, 9, 3, length_penalty=0.7, length_penalty_form="gnmt"
    )


def test_an_unknown_form_is_refused(model):
    with pytest.raises(ValueError, match="`length_penalty_form` is 'wu': choose one of fairseq, gnmt"):
        model.generate(**sentences(5, vocab=VOCAB), num_beams=2, length_penalty_form="wu")
    with pytest.raises(ValueError, match="`length_penalty_form` is 'wu'"):
        recipe_from_dict({"evaluation": {"length_penalty_form": "wu"}})
