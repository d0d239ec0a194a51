"""Relative positions: the formula pair by pair, parameter counts, and distances under caches and padding."""

import pytest
import torch
from huggingface_hub.errors import StrictDataclassClassValidationError
from tiny import labels, sentences, tiny_config, tiny_model

from hf_deepnmt.models import RelativePositionsConfig, RelativePositionsForConditionalGeneration
from hf_deepnmt.models.modeling_relative_positions import RelativeSelfAttention


TYPE = "relative_positions"


def batch(*lengths, **kwargs):
    return {**sentences(*lengths, **kwargs), "labels": labels(*(max(2, length - 1) for length in lengths))}


def count(**fields):
    with torch.device("meta"):
        return RelativePositionsForConditionalGeneration(RelativePositionsConfig(**fields)).num_parameters()


def test_tables_are_all_that_is_added():
    none = count(relative_encoder=False, relative_decoder=False, absolute_positions=True)
    table = (2 * 16 + 1) * 64
    assert count() - none == 12 * 2 * table
    assert count(relative_values=False) - none == 12 * table
    assert count(relative_heads_shared=False, relative_keys=False) - none == 12 * 8 * table
    assert count(relative_decoder=False, absolute_positions=True, max_relative_position=8) - none == 6 * 2 * 17 * 64


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("fields", [{}, {"relative_values": False}, {"relative_keys": False}])
def test_attention_is_the_formula_pair_by_pair(shared, fields):
    config = tiny_config(TYPE, max_relative_position=2, relative_heads_shared=shared, **fields)
    attention = RelativeSelfAttention(config, 4, 0).double().eval()
    for table in (attention.relative_k, attention.relative_v):
        if table is not None:
            torch.nn.init.normal_(table.weight)
    query, key, value = torch.randn(3, 1, 4, 6, 4, dtype=torch.float64)
    places = torch.arange(6)
    distances = (places - places[:, None]).clamp(-2, 2) + 2
    found, weights = attention.attend(query, key, value, None, "eager", distances=distances)
    for head in range(4):
        table_k, table_v = (
            torch.zeros(5, 4, dtype=torch.float64) if table is None else table.weight[0 if shared else head]
            for table in (attention.relative_k, attention.relative_v)
        )
        for i in range(6):
            at = [max(-2, min(2, j - i)) + 2 for j in range(6)]
            logits = torch.stack([query[0, head, i] @ (key[0, head, j] + table_k[at[j]]) / 2 for j in range(6)])
            expected = logits.softmax(-1)
            torch.testing.assert_close(weights[0, head, i], expected)
            output = sum(expected[j] * (value[0, head, j] + table_v[at[j]]) for j in range(6))
            torch.testing.assert_close(found[0, i, head], output)


def test_order_is_known_without_sinusoids():
    model = tiny_model(TYPE, absolute_positions=False)
    data = batch(6)
    swapped = {**data, "input_ids": data["input_ids"][:, [1, 0, 2, 3, 4, 5]]}
    assert not torch.allclose(model(**data).logits, model(**swapped).logits, atol=1e-3)
    for layer in (*model.model.encoder.layers, *model.model.decoder.layers):
        for table in (layer.self_attn.relative_k, layer.self_attn.relative_v):
            torch.nn.init.zeros_(table.weight)
    torch.testing.assert_close(model(**data).logits, model(**swapped).logits, atol=1e-5, rtol=1e-5)


def test_a_switched_off_stack_is_the_baseline_and_keeps_its_kernel():
    model = tiny_model(TYPE, relative_encoder=False, absolute_positions=True)
    assert not hasattr(model.model.encoder.layers[0].self_attn, "relative_k")
    model.set_attn_implementation("sdpa")
    words = model.model.encoder.embed_tokens(sentences(4)["input_ids"])
    assert model.model.encoder.attention_config(words, None)._attn_implementation == "sdpa"
    assert model.model.decoder.attention_config(words, None)._attn_implementation == "eager"
    baseline = tiny_model().model.encoder
    baseline.set_attn_implementation("sdpa")
    baseline.load_state_dict(model.model.encoder.state_dict())
    data = sentences(6, 4)
    assert torch.equal(model.model.encoder(**data).last_hidden_state, baseline(**data).last_hidden_state)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("num_beams", [1, 3])
def test_distances_under_a_cache_are_those_of_the_whole_sentence(cache, num_beams):
    # longer than the table reaches, where a step that counts from its own start is furthest off
    model = tiny_model(TYPE, max_relative_position=3).double()
    options = {"num_beams": num_beams, "min_new_tokens": 12, "max_new_tokens": 12, "output_scores": True}
    options |= {**sentences(7, 4, 9), "return_dict_in_generate": True}
    plain = model.generate(**options, use_cache=False)
    cached = model.generate(**options, cache_implementation=None if cache == "dynamic" else "static")
    assert torch.equal(plain.sequences, cached.sequences)
    for one, other in zip(plain.scores, cached.scores, strict=True):
        torch.testing.assert_close(one, other, atol=1e-9, rtol=1e-9)


def test_padded_prompts_count_from_their_own_place():
    model = tiny_model(TYPE).double()
    source = sentences(5, 5)
    words = torch.tensor([[0, 9, 11, 13]])
    alone = model(**{name: value[:1] for name, value in source.items()}, decoder_input_ids=words).logits
    prompt = torch.tensor([[1, 1, 0, 9, 11, 13], [0, 7, 8, 9, 5, 6]])
    out = model(**source, decoder_input_ids=prompt, decoder_attention_mask=prompt.ne(1)).logits
    torch.testing.assert_close(out[0, 2:], alone[0], atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_relative_position": 0}, "at least 1"),
        ({"relative_keys": False, "relative_values": False}, "both off"),
        ({"relative_encoder": False}, "absolute_positions=True"),
    ],
)
def test_settings_without_sense_are_refused(fields, message):
    with pytest.raises(StrictDataclassClassValidationError, match=message):
        tiny_config(TYPE, **fields)
