"""MSC: counts of the paper, its equations, gradients to every layer, both memories in the cache, very deep stacks."""

import pytest
import torch
from tiny import labels, sentences, tiny_config, tiny_model
from transformers.cache_utils import DynamicCache, EncoderDecoderCache, StaticCache
from transformers.modeling_outputs import BaseModelOutput

from hf_deepnmt.models import DeepNMTForConditionalGeneration, DeepNMTModel, MSCConfig, MSCForConditionalGeneration
from hf_deepnmt.models.modeling_deepnmt import DeepNMTDecoder, DeepNMTEncoder


TYPE = "msc"
PLAIN = 10_507_264


def model(**fields):
    return tiny_model(TYPE, **{"encoder_layers": 3, "decoder_layers": 2, **fields}).double()


def batch(*lengths):
    return {**sentences(*lengths), "labels": labels(*(length - 1 for length in lengths))}


def parameters(config):
    with torch.device("meta"):
        return MSCForConditionalGeneration(config).num_parameters()


# --- counts ---


def printed_count(layers, d=256, f=512):
    """Parameters of the equations: the plain model, deeper, with A_c, gate and one cell."""
    attention, norm = 4 * d * d + 4 * d, 2 * d
    extra = attention + 2 * d * d + d
    plain_layer = attention + 2 * d * f + f + d + 2 * norm
    cell = 6 * d * d + 6 * d
    return PLAIN + (layers - 6) * plain_layer + (layers + 6) * extra + cell


@pytest.mark.parametrize("layers", [6, 36, 54, 72])
def test_parameter_counts_are_those_of_table_2(layers):
    fields = {"vocab_size": 10152, "memory_norm": "shared", "gru_input_norm": False}
    count = parameters(MSCConfig.from_preset(f"small-{layers}", **fields))
    assert count == printed_count(layers)
    assert round(count / 1e6, 1) == {6: 15.6, 36: 43.3, 54: 59.9, 72: 76.5}[layers]
    with_norms = parameters(MSCConfig.from_preset(f"small-{layers}", **fields, extra_context_norms=True))
    assert with_norms == {6: 15_645_184, 36: 43_339_264, 54: 59_955_712, 72: 76_572_160}[layers]
    assert round(with_norms / 1e6, 1) == {6: 15.6, 36: 43.3, 54: 60.0, 72: 76.6}[layers]


def test_presets_differ_from_the_72_layers_as_table_5_says():
    full = parameters(MSCConfig.from_preset("small-72", vocab_size=10152))
    attention, gate, cell, norm = 263_168, 131_328, 394_752, 512
    difference = {
        "small-72-add": -78 * gate,
        "small-72-ffn": 2 * 256 * 512 + 512 + 512 * 256 + 256 - cell,
        "small-72-no-encoder-context": -72 * (attention + gate),
        "small-72-no-context": -78 * (attention + gate) - cell - norm,
    }
    for name, expected in difference.items():
        assert parameters(MSCConfig.from_preset(name, vocab_size=10152)) - full == expected
    for name, millions in (("wide-18", 101), ("wide-36", 168)):
        assert round(parameters(MSCConfig.from_preset(name, vocab_size=10152)) / 1e6) == millions
    assert set(MSCConfig.presets) >= {f"small-{layers}" for layers in (6, 36, 54, 72)} | set(difference)


# --- the equations ---


def attention(module, query, memory, mask):
    def heads(states):
        return states.unflatten(-1, (-1, module.head_dim)).transpose(1, 2)

    q, k, v = heads(module.q_proj(query)), heads(module.k_proj(memory)), heads(module.v_proj(memory))
    logits = (q @ k.transpose(-1, -2) / module.head_dim**0.5).masked_fill(~mask, float("-inf"))
    return module.out_proj((logits.softmax(-1) @ v).transpose(1, 2).flatten(-2))


def fused(layer, own, context):
    if layer.config.block_fusion == "add":
        return own + context
    first, second = layer.gate.weight.chunk(2, dim=1)
    gate = torch.sigmoid(own @ first.T + context @ second.T + layer.gate.bias)
    return gate * own + (1 - gate) * context


def gru(cell, inputs, state):
    def parts(weight, bias, x):
        return (x @ weight.T + bias).chunk(3, dim=-1)

    r_x, z_x, n_x = parts(cell.weight_ih, cell.bias_ih, inputs)
    r_h, z_h, n_h = parts(cell.weight_hh, cell.bias_hh, state)
    new = torch.tanh(n_x + torch.sigmoid(r_x + r_h) * n_h)
    update = torch.sigmoid(z_x + z_h)
    return (1 - update) * new + update * state


def next_context(encoder, block, context):
    config = encoder.config
    block = encoder.cell_norm(block) if config.gru_input_norm else block
    if config.context_cell == "gru":
        return gru(encoder.cell, block, context)
    inputs = {"concat": torch.cat([context, block], -1), "sum": context + block, "b_only": block}[
        config.ffn_cell_input
    ]
    return encoder.cell.fc2(encoder.cell.fc1(inputs).relu())


def expected_states(made, data, target):
    """The last decoder state by equations 5 to 13, pre-norm."""
    encoder, decoder, config = made.model.encoder, made.model.decoder, made.config
    source_mask = data["attention_mask"].bool()[:, None, None]
    tokens = encoder.embed_tokens(data["input_ids"]) * encoder.embed_scale
    states = tokens + encoder.embed_positions(torch.arange(tokens.shape[1])[None], tokens.shape[1])
    context, layer_index, memories = (tokens if config.context_init == "tokens" else states), 0, []
    for index, size in enumerate(config.blocks):
        for layer in list(encoder.layers)[layer_index : layer_index + size]:
            normed = layer.self_attn_layer_norm(states)
            result = attention(layer.self_attn, normed, normed, source_mask)
            if config.contextual and config.encoder_context:
                query, memory = normed, encoder.context_norm(context) if config.context_norm else context
                if config.extra_context_norms:
                    query, memory = layer.context_norms["query"](states), layer.context_norms["memory"](memory)
                other = attention(layer.context_attn, query, memory, source_mask)
                other = layer.context_norms["output"](other) if config.extra_context_norms else other
                result = fused(layer, result, other)
            states = states + result
            states = states + layer.fc2(layer.fc1(layer.final_layer_norm(states)).relu())
        layer_index += size
        norms = {"none": [torch.nn.Identity()] * 2, "shared": [encoder.layer_norm] * 2}
        norms["per_block"] = [*(encoder.block_norms or []), encoder.layer_norm]
        if config.contextual:
            context = next_context(encoder, states, context)
        memories.append(
            (
                norms[config.memory_norm][index](states),
                encoder.context_norm(context) if config.context_norm else context,
            )
        )
    states = decoder.embed_tokens(target) * decoder.embed_scale
    states = states + decoder.embed_positions(torch.arange(target.shape[1])[None], target.shape[1])
    causal = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).tril()
    for layer, (block, context) in zip(decoder.layers, memories, strict=True):
        normed = layer.self_attn_layer_norm(states)
        states = states + attention(layer.self_attn, normed, normed, causal)
        normed = layer.encoder_attn_layer_norm(states)
        result = attention(layer.encoder_attn, normed, block, source_mask)
        if config.contextual:
            result = fused(layer, result, attention(layer.context_attn, normed, context, source_mask))
        states = states + result
        states = states + layer.fc2(layer.fc1(layer.final_layer_norm(states)).relu())
    return decoder.layer_norm(states)


SWITCHES = [
    {},
    {"block_fusion": "add"},
    *({"context_cell": "ffn", "ffn_cell_input": inputs} for inputs in ("concat", "sum", "b_only")),
    {"encoder_context": False},
    {"contextual": False},
    {"context_init": "tokens", "gru_input_norm": False},
    {"memory_norm": "shared", "context_norm": True},
    {"memory_norm": "none", "extra_context_norms": True},
]


@pytest.mark.parametrize("fields", SWITCHES, ids=str)
@torch.no_grad()
def test_states_follow_the_equations(fields):
    made = model(**fields)
    for parameter in made.parameters():
        if parameter.dim() == 1:
            parameter.add_(torch.randn_like(parameter) * 0.1)
    data, target = sentences(7, 4), torch.randint(5, 60, (2, 5))
    got = made.model(**data, decoder_input_ids=target).last_hidden_state
    torch.testing.assert_close(got, expected_states(made, data, target), atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("fields", SWITCHES, ids=str)
def test_no_gradient_is_cut(fields):
    made, (data, target) = model(**fields), (sentences(7, 4), torch.randint(5, 60, (2, 5)))
    weights = [parameter for parameter in made.model.parameters() if parameter.requires_grad]
    direction = torch.randn(2, 5, made.config.d_model, dtype=torch.double)
    states = made.model(**data, decoder_input_ids=target).last_hidden_state, expected_states(made, data, target)
    got, expected = (torch.autograd.grad((state * direction).sum(), weights, allow_unused=True) for state in states)
    for parameter, own, other in zip(weights, got, expected, strict=True):
        zero = torch.zeros_like(parameter)
        torch.testing.assert_close(
            zero if own is None else own, zero if other is None else other, atol=1e-9, rtol=1e-9
        )


@torch.no_grad()
def test_without_context_and_with_blocks_of_one_layer_decoder_layers_read_encoder_layers():
    class LayerEncoder(DeepNMTEncoder):
        fuses_layers = True

        def make_output(self, states):
            output = super().make_output(states)
            output["layers"] = torch.stack([self.layer_norm(state) for state in states[1:]], dim=1)
            return output

    class LayerDecoder(DeepNMTDecoder):
        def memory_for(self, layer_idx, encoder_hidden_states, memories):
            return (memories[0][:, layer_idx],)

    class LayerModel(DeepNMTModel):
        encoder_class, decoder_class = LayerEncoder, LayerDecoder

        def decoder_memories(self, encoder_outputs):
            return (encoder_outputs["layers"],)

    class LayerTranslation(DeepNMTForConditionalGeneration):
        model_class = LayerModel

    made = model(encoder_layers=3, decoder_layers=3, contextual=False, memory_norm="shared")
    reference = LayerTranslation(tiny_config(encoder_layers=3, decoder_layers=3, norm_style="pre")).double().eval()
    reference.load_state_dict(made.state_dict())
    assert torch.equal(made(**batch(6, 4)).logits, reference(**batch(6, 4)).logits)


@torch.no_grad()
def test_one_block_without_context_is_the_baseline():
    for style in ("pre", "post"):
        made = model(decoder_layers=1, contextual=False, norm_style=style)
        baseline = tiny_model(encoder_layers=3, decoder_layers=1, norm_style=style).double()
        baseline.load_state_dict(made.state_dict())
        assert torch.equal(made(**batch(6, 4)).logits, baseline(**batch(6, 4)).logits)


# --- gradients ---


@pytest.mark.parametrize("contextual", [True, False])
@pytest.mark.parametrize("reader", [0, 1, 2])
def test_each_block_gets_gradients_from_its_own_decoder_layer(contextual, reader):
    """With all other decoder layers cut, gradients reach every encoder layer up to the block that the layer reads."""
    made = model(encoder_layers=None, decoder_layers=None, blocks=[2, 1, 3], contextual=contextual)
    for index, layer in enumerate(made.model.decoder.layers):
        if index != reader:
            layer.forward = lambda states, *args, **kwargs: states
    made(**batch(6, 4)).loss.backward()
    norms = [
        None if layer.fc1.weight.grad is None else layer.fc1.weight.grad.norm().item()
        for layer in made.model.encoder.layers
    ]
    reached = sum(made.config.blocks[: reader + 1])
    assert all(norms[:reached]) and not any(norms[reached:])


def test_every_parameter_is_trained():
    for fields in SWITCHES:
        made = model(**fields).train()
        made(**batch(6, 4)).loss.backward()
        unused = [name for name, p in made.named_parameters() if p.grad is None or not p.grad.abs().max() > 0]
        # a bias of keys shifts all logits of a query alike
        assert not [name for name in unused if not name.endswith("k_proj.bias")], fields


# --- caches ---


@pytest.mark.parametrize("fields", [*SWITCHES, {"norm_style": "post"}], ids=str)
def test_cached_decoding_equals_uncached_under_every_switch(fields):
    made = model(**fields)
    options = {**sentences(7, 4), "num_beams": 2, "max_new_tokens": 6, "min_new_tokens": 6}
    plain = made.generate(**options, use_cache=False)
    assert torch.equal(made.generate(**options), plain)
    assert torch.equal(made.generate(**options, cache_implementation="static"), plain)


def own_cache(kind, made):
    if kind == "growing":
        return EncoderDecoderCache(DynamicCache(), DynamicCache())
    config = made.config.get_text_config(decoder=True)
    return EncoderDecoderCache(StaticCache(config, max_cache_len=9), StaticCache(config, max_cache_len=7))


@pytest.mark.parametrize("kind", ["growing", "static"])
@torch.no_grad()
def test_a_cache_holds_the_keys_of_blocks_and_contexts_and_can_be_used_again(kind):
    made = model()
    cache = own_cache(kind, made)
    for source in (sentences(7, 4), {key: value.flip(0) for key, value in sentences(7, 4).items()}):
        out = made(**source, decoder_input_ids=torch.tensor([[0, 9], [0, 8]]), cache=cache, use_cache=True)
        encoded = made.get_encoder()(**source)
        assert len(cache) == len(cache.cross_attention_cache) == 2
        for index, layer in enumerate(made.model.decoder.layers):
            kept = cache.cross_attention_cache.layers[index]
            for place, attention, memory in (
                (kept, layer.encoder_attn, encoded.block_states),
                (kept.context, layer.context_attn, encoded.context_states),
            ):
                key, value = attention.project(memory[:, index])
                torch.testing.assert_close(place.keys, key, atol=1e-12, rtol=1e-12)
                torch.testing.assert_close(place.values, value, atol=1e-12, rtol=1e-12)
        again = made(**source, decoder_input_ids=torch.tensor([[10], [11]]), cache=cache).logits
        whole = made(**source, decoder_input_ids=torch.tensor([[0, 9, 10], [0, 8, 11]]))
        torch.testing.assert_close(torch.cat([out.logits, again], 1), whole.logits, atol=1e-9, rtol=1e-9)
        if kind == "growing":
            break
        cache.reset()


def test_keys_of_both_memories_are_projected_once_a_sentence():
    made = model()
    calls = []
    for layer in made.model.decoder.layers:
        for attention in (layer.encoder_attn, layer.context_attn):
            attention.k_proj.register_forward_hook(lambda *_: calls.append(1))
    made.generate(**sentences(7, 4), num_beams=3, max_new_tokens=8, min_new_tokens=8)
    assert len(calls) == 4


@torch.no_grad()
def test_beams_repeat_both_memories():
    made = model()
    encoded = made.get_encoder()(**sentences(7, 4))
    assert encoded.block_states.shape == encoded.context_states.shape == (2, 2, 7, 16)
    assert torch.equal(encoded.block_states[:, -1], encoded.last_hidden_state)
    options = {"num_beams": 3, "max_new_tokens": 5, "min_new_tokens": 5}
    mask = sentences(7, 4)["attention_mask"]
    expected = made.generate(**sentences(7, 4), **options)
    assert torch.equal(made.generate(encoder_outputs=encoded, attention_mask=mask, **options), expected)
    states = encoded.last_hidden_state
    with pytest.raises(ValueError, match="whole output of this model's encoder"):
        made(encoder_outputs=BaseModelOutput(states), attention_mask=mask, decoder_input_ids=torch.tensor([[0], [0]]))
    with pytest.raises(ValueError, match="reads each block"):
        made.get_decoder()(torch.tensor([[0], [0]]), encoder_hidden_states=states)


# --- depth ---


@pytest.mark.parametrize("autocast", [True, False])
def test_72_layers_train_in_half_precision(autocast):
    made = tiny_model(TYPE, encoder_layers=72, decoder_layers=6, dropout=0.1).train()
    if not autocast:
        made = made.bfloat16()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        out = made(**batch(6, 4))
    out.loss.backward()
    assert out.loss.dtype == torch.float32 and out.loss.isfinite()
    norms = [layer.fc1.weight.grad.float().norm().item() for layer in made.model.encoder.layers]
    assert all(0 < norm < float("inf") for norm in norms)


def test_contexts_stay_within_the_start_and_one():
    """A gated unit gives means of its old state and of values between -1 and 1."""
    encoded = model(blocks=None, encoder_layers=12, decoder_layers=6)
    data = sentences(7, 4)
    start = encoded.model.encoder.embed_source(encoded.model.encoder.embed_tokens(data["input_ids"]), None)
    contexts = encoded.get_encoder()(**data).context_states
    assert contexts.abs().max() <= max(1.0, start.abs().max())


# --- configuration ---


def test_blocks_follow_from_layers_and_layers_from_blocks():
    assert MSCConfig().blocks == [1] * 6
    assert MSCConfig(encoder_layers=36, decoder_layers=6).blocks == [6] * 6
    assert MSCConfig(encoder_layers=8, decoder_layers=3).blocks == [3, 3, 2]
    given = MSCConfig(blocks=[2, 1, 4])
    assert (given.encoder_layers, given.decoder_layers) == (7, 3)
    assert MSCConfig(**given.to_dict()).blocks == [2, 1, 4]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"blocks": [2, 2], "encoder_layers": 5}, "leave `encoder_layers` or `blocks` out"),
        ({"blocks": [2, 2], "decoder_layers": 3}, "leave `decoder_layers` or `blocks` out"),
        ({"blocks": [2, 0]}, "each of at least 1 layer"),
        ({"blocks": []}, "at least one block"),
        ({"encoder_layers": 2, "decoder_layers": 3}, "raise `encoder_layers` or lower `decoder_layers`"),
        ({"decoder_layers": 0}, "at least 1"),
        ({"block_fusion": "sum"}, "gate, add"),
        ({"context_cell": "lstm"}, "gru, ffn"),
        ({"ffn_cell_input": "both"}, "concat, sum, b_only"),
        ({"context_init": "zero"}, "embedding, tokens"),
        ({"memory_norm": "all"}, "per_block, shared, none"),
        ({"memory_norm": "shared", "final_norm": False}, "set `final_norm=True`"),
    ],
)
def test_contradictions_are_refused_with_a_remedy(fields, message):
    with pytest.raises(Exception, match=message):
        MSCConfig(**fields)


def test_post_norm_adds_no_norms_unless_told_otherwise():
    post, pre = MSCConfig(norm_style="post"), MSCConfig()
    assert (post.memory_norm, post.gru_input_norm) == ("none", False)
    assert (pre.memory_norm, pre.gru_input_norm) == ("per_block", True)


def test_cells_are_initialised_like_square_matrices():
    bounds = {"xavier": (3 / 64) ** 0.5, "fan_in": 64**-0.5}
    for scheme, bound in bounds.items():
        made = MSCForConditionalGeneration(tiny_config(TYPE, d_model=64, init_scheme=scheme))
        for weight in (made.model.encoder.cell.weight_ih, made.model.encoder.cell.weight_hh):
            assert weight.abs().max().item() == pytest.approx(bound, rel=0.02)
        assert (made.model.encoder.cell.bias_ih.abs().max() > 0) == (scheme == "fan_in")
