"""The reordering embedding and recurrent positional embeddings: their formulas, counts and decoding state."""

import pytest
import torch
from tiny import labels, sentences, tiny_config, tiny_model
from transformers import DynamicCache, EncoderDecoderCache

from hf_deepnmt.models import ARCHITECTURES


def batch(*lengths, **kwargs):
    return {**sentences(*lengths, **kwargs), "labels": labels(*(max(2, length - 1) for length in lengths))}


def added(model_type, **fields):
    """Parameters beyond the neutral setting, at base size."""
    architecture = ARCHITECTURES[model_type]
    with torch.device("meta"):
        count = architecture.head(architecture.config(**fields)).num_parameters()
        return count - architecture.head(architecture.config(**architecture.neutral)).num_parameters()


# --- the reordering embedding ---


def test_reordering_embedding_has_three_square_maps_and_a_norm_a_layer():
    layer = 3 * 512 * 512
    assert added("reordering_embedding") == 12 * (layer + 2 * 512)
    assert added("reordering_embedding", reorder_decoder=False) == 6 * (layer + 2 * 512)
    norms = 2 * 2 * 512  # a pre-norm stack has one at its top
    assert added("reordering_embedding", norm_style="pre") == 12 * layer + norms


def test_layer_adds_the_scaled_embedding_of_each_position():
    model = tiny_model("reordering_embedding")
    layer, table = model.model.encoder.layers[0], model.model.encoder.embed_positions.table
    below, length = torch.randn(1, 6, 16), 6
    reordering = layer.reordering
    attended = layer.self_attn_layer_norm(below + layer.self_attn(below)[0])
    penalty = torch.tanh(below @ reordering.below.weight.T + attended @ reordering.own.weight.T)
    penalty = torch.sigmoid(penalty @ reordering.out.weight.T)
    expected = torch.nn.functional.layer_norm(
        attended + penalty * table[:length], (16,), reordering.norm.weight, reordering.norm.bias
    )
    expected = layer.final_layer_norm(expected + layer.feed_forward(expected))
    found = layer(below, None, position_states=table[None, :length])
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("switch", ["reorder_encoder", "reorder_decoder"])
def test_each_side_is_switched_by_itself(switch):
    both = tiny_model("reordering_embedding")
    one = tiny_model("reordering_embedding", **{switch: False})
    missing, unexpected = one.load_state_dict(both.state_dict(), strict=False)
    side = switch.removeprefix("reorder_")
    assert not missing and unexpected and all(f"{side}.layers" in key for key in unexpected)
    assert not torch.allclose(one(**batch(6, 4)).logits, both(**batch(6, 4)).logits, atol=1e-3)


def test_decoder_counts_positions_from_the_start_of_a_padded_prompt():
    model = tiny_model("reordering_embedding").double()
    source = sentences(5, 5)
    words = torch.tensor([[0, 9, 11, 13]])
    alone = model(**{name: value[:1] for name, value in source.items()}, decoder_input_ids=words).logits
    prompt = torch.tensor([[1, 1, 0, 9], [0, 7, 8, 9]])
    mask = prompt.ne(1)
    out = model(**source, decoder_input_ids=prompt, decoder_attention_mask=mask, use_cache=True)
    steps = [out.logits[0, 2:]]
    for token in (11, 13):
        mask = torch.cat([mask, torch.ones(2, 1, dtype=torch.bool)], dim=1)
        out = model(
            **source, decoder_input_ids=torch.tensor([[token]] * 2), decoder_attention_mask=mask, cache=out.cache
        )
        steps.append(out.logits[0])
    torch.testing.assert_close(torch.cat(steps), alone[0], atol=1e-9, rtol=1e-9)


# --- recurrent positional embeddings ---


def test_recurrence_adds_its_network_and_wider_maps():
    network = {cell: gates * (512 * 64 + 64 * 64 + 2 * 64) for cell, gates in (("gru", 3), ("rnn", 1))}
    for cell, own in network.items():
        assert added("recurrent_positions", recurrent_cell=cell) == 2 * own + 12 * 3 * 512 * 64
    taken = 2 * 64
    heads = {"recurrent_mode": "heads", "recurrent_heads": 2}
    assert added("recurrent_positions", **heads) == 2 * network["gru"] + 12 * 3 * taken * (64 - 512)
    assert added("recurrent_positions", recurrent_encoder=False) == network["gru"] + 6 * 3 * 512 * 64


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("cell", ["gru", "rnn"])
def test_states_follow_the_words_from_the_first_one(cell, side):
    model = tiny_model("recurrent_positions", recurrent_cell=cell, recurrent_size=5)
    encoder = model.model.encoder
    step = {"gru": torch.nn.GRUCell, "rnn": torch.nn.RNNCell}[cell](16, 5)
    step.load_state_dict({name.removesuffix("_l0"): value for name, value in encoder.recurrence.state_dict().items()})
    lengths = (6, 3)
    data = sentences(*lengths, width=8, side=side)
    words = encoder.embed_tokens(data["input_ids"])
    found = encoder.layer_inputs(words, data["attention_mask"], 0, 8, None)["recurrent"]
    for row, length in enumerate(lengths):
        first = 0 if side == "right" else 8 - length
        state = torch.zeros(1, 5)
        assert (found[row, :first] == 0).all()
        for place in range(first, first + length):
            state = step(words[row : row + 1, place] * encoder.embed_scale, state)
            torch.testing.assert_close(found[row, place], state[0])


MODES = [{"recurrent_mode": "parts", "recurrent_cell": "rnn"}, {"recurrent_mode": "heads", "recurrent_heads": 2}]


@pytest.mark.parametrize("fields", MODES)
@pytest.mark.parametrize("num_beams", [1, 3])
def test_cached_decoding_equals_uncached_in_each_mode(fields, num_beams):
    model = tiny_model("recurrent_positions", **fields).double()
    options = {"num_beams": num_beams, "max_new_tokens": 10, "output_scores": True, "return_dict_in_generate": True}
    options |= {**sentences(7, 4, 9), "min_new_tokens": 10}
    plain = model.generate(**options, use_cache=False)
    for implementation in ("dynamic", "static"):
        out = model.generate(**options, cache_implementation=implementation)
        assert torch.equal(out.sequences, plain.sequences)
        torch.testing.assert_close(torch.stack(out.scores), torch.stack(plain.scores), atol=1e-8, rtol=1e-8)


@pytest.mark.parametrize("fields", MODES)
def test_padding_changes_nothing_in_each_mode(fields):
    model = tiny_model("recurrent_positions", **fields)
    alone = model(**batch(5)).logits
    for side in ("right", "left"):
        data = batch(5, 9, width=11, side=side)
        torch.testing.assert_close(model(**data).logits[:1, :4], alone, atol=1e-4, rtol=1e-4)


def test_last_heads_read_the_recurrence_alone():
    model = tiny_model("recurrent_positions", recurrent_mode="heads", recurrent_heads=1)
    attention = model.model.encoder.layers[0].self_attn
    states, recurrent = torch.randn(1, 5, 16), torch.randn(1, 5, 4)
    queries = attention.split_heads(attention.q_proj(torch.cat([states, recurrent], -1)))
    others = attention.split_heads(attention.q_proj(torch.cat([2 * states, recurrent], -1)))
    assert torch.equal(queries[:, 3], others[:, 3])
    assert not any(torch.allclose(queries[:, head], others[:, head]) for head in range(3))


def test_state_depends_on_the_order_of_the_words_before():
    model = tiny_model("recurrent_positions")
    decoder = model.model.decoder
    words = decoder.embed_tokens(torch.tensor([[5, 6, 7], [6, 5, 7]]))
    first, second = decoder.layer_inputs(words, None, 0, 3, None)["recurrent"][:, -1]
    assert (first - second).abs().max() > 1e-3


def cached(model, source, cache, words):
    return model(**source, decoder_input_ids=torch.tensor([words]), cache=cache, use_cache=True)


def test_a_cropped_cache_goes_on_from_the_words_that_are_left():
    model = tiny_model("recurrent_positions").double()
    source = sentences(6)
    out = cached(model, source, EncoderDecoderCache(DynamicCache(), DynamicCache()), [0, 9, 8, 7])
    out.cache.crop(-2)
    resumed = cached(model, source, out.cache, [11]).logits
    whole = model(**source, decoder_input_ids=torch.tensor([[0, 9, 11]])).logits[:, -1:]
    torch.testing.assert_close(resumed, whole, atol=1e-9, rtol=1e-9)


def test_state_moves_with_the_rows_of_the_cache():
    model = tiny_model("recurrent_positions").double()
    source = sentences(6, 6)
    prompt = torch.tensor([[0, 9], [0, 8]])
    cache = model(**source, decoder_input_ids=prompt, use_cache=True).cache
    own = cache.self_attention_cache
    before = own.layers[0].recurrent
    own.batch_repeat_interleave(2)
    own.batch_select_indices(torch.tensor([3, 0]))
    assert torch.equal(own.layers[0].recurrent, before[[1, 0]])
    own.reorder_cache(torch.tensor([1, 1]))
    assert torch.equal(own.layers[0].recurrent, before[[0, 0]])
    own.reset()
    assert own.layers[0].recurrent is None


def test_a_cache_filled_by_another_model_is_refused():
    cache = tiny_model()(**sentences(6), decoder_input_ids=torch.tensor([[0, 9]]), use_cache=True).cache
    with pytest.raises(ValueError, match="DynamicLayer of 2 tokens .* pass an empty cache"):
        cached(tiny_model("recurrent_positions"), sentences(6), cache, [10])


def test_recurrence_works_in_low_precision():
    data = batch(6, 4)
    model = tiny_model("recurrent_positions")
    expected = model(**data).loss
    with torch.autocast("cpu", torch.bfloat16):
        cast = model(**data).loss
    for loss in (cast, model.bfloat16()(**data).loss):
        torch.testing.assert_close(loss.float(), expected, atol=0.2, rtol=0.1)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"recurrent_cell": "lstm"}, "gru, rnn"),
        ({"recurrent_mode": "sum"}, "parts, heads"),
        ({"recurrent_mode": "heads", "recurrent_heads": 4}, "make it 1 to 3"),
        ({"recurrent_size": 0}, "at least 1"),
    ],
)
def test_contradictions_are_refused(fields, message):
    with pytest.raises(Exception, match=message):
        tiny_config("recurrent_positions", **fields)
