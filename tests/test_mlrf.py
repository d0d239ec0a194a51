"""Multi-layer representation fusion: printed counts, every fusion against a direct computation, weights on request."""

import itertools

import pytest
import torch
from tiny import labels, sentences, tiny_model

from hf_deepnmt.models import ARCHITECTURES, MLRFConfig, MLRFForConditionalGeneration


IWSLT = {"vocab_size": 8389, "decoder_vocab_size": 6428}
COUNTS = {
    "base": (10_974_748, "10.97"),
    "base-4": (12_817_948, "12.82"),
    "base-6": (16_504_348, "16.50"),
    "enc-avg": (10_974_748, "10.97"),
    "enc-fnn": (11_631_644, "11.63"),
    "enc-sa": (11_897_884, "11.90"),
    "enc-sa-6": (12_162_076, "12.16"),
    "dec-avg": (10_974_748, "10.97"),
    "dec-fnn": (11_631_644, "11.63"),
    "dec-sa": (11_897_884, "11.90"),
    "dec-sa-6": (12_162_076, "12.16"),
    "dec-sa-6-w1-per-hop": (13_472_796, "13.47"),
    "both-fnn": (12_287_516, "12.29"),
    "both-sa": (12_819_996, "12.82"),
    "both-fnn-sa": (12_553_756, "12.55"),
}
SWITCHES = [
    {},
    {"independent_w1": True},
    {"w1_per_hop": True},
    {"independent_w1": True, "w1_per_hop": True},
    {"featurewise": True},
    {"featurewise": True, "w1_per_hop": True},
    {"fuse_word_embedding": False},
    {"layer_embedding": False},
    {"share_layer_embedding": False},
    {"fusion_bias": True, "w1_per_hop": True},
    {"sa_activation": "relu", "n_hop": 1},
    {"fusion_layernorm": False},
    {"norm_style": "pre"},
]


def fused(seed=0, **fields):
    return tiny_model("mlrf", seed=seed, **fields).double()


@pytest.mark.parametrize("preset", COUNTS)
def test_parameters_are_those_of_table_2(preset):
    with torch.device("meta"):
        model = MLRFForConditionalGeneration(MLRFConfig.from_preset(preset, **IWSLT))
    count = sum(parameter.numel() for parameter in model.parameters())
    assert count == COUNTS[preset][0]
    assert f"{count / 1e6:.2f}" == COUNTS[preset][1]


def test_presets_name_every_row_of_tables_2_and_3():
    assert set(COUNTS) == {name for name in MLRFConfig.presets if not name.startswith("zh-")}
    rows = {"base", "enc-avg", "enc-fnn", "enc-sa", "dec-avg", "dec-fnn", "dec-sa", "dec-sa-indep-w1", "both-avg-sa"}
    assert {f"zh-{row}" for row in rows} == {name for name in MLRFConfig.presets if name.startswith("zh-")}


def direct(stack, states, config, kind, side):
    """Equations 4 to 7 for one position at a time."""
    fusion = stack.fusion
    states = states if config.fuse_word_embedding else states[1:]
    batch, length, width = states[0].shape
    output = torch.empty_like(states[0])
    weights = []
    for row, place in itertools.product(range(batch), range(length)):
        z = [state[row, place] for state in states]
        if kind == "avg":
            output[row, place] = sum(z) / len(z)
            continue
        if config.layer_embedding:
            z = [state + fusion.layer_embedding.weight[index] for index, state in enumerate(z)]
        parts = z
        if kind == "sa":
            attention = fusion.attention
            act = {"tanh": torch.tanh, "relu": torch.relu, "sigmoid": torch.sigmoid}[config.sa_activation]
            parts = []
            for hop in range(config.n_hop):
                energies = []
                for index, state in enumerate(z):
                    w1 = attention.w1[index if config.independent_w1 else 0]
                    hidden = act(w1(state))
                    if config.w1_per_hop:
                        hidden = hidden[hop * config.d_a : (hop + 1) * config.d_a]
                    rows = width if config.featurewise else 1
                    w2 = attention.w2.weight[hop * rows : (hop + 1) * rows]
                    energy = w2 @ hidden
                    if config.fusion_bias:
                        energy = energy + attention.w2.bias[hop * rows : (hop + 1) * rows]
                    energies.append(energy)
                a = torch.stack(energies).softmax(0)
                weights.append(a)
                parts.append(sum(weight * state for weight, state in zip(a, z, strict=True)))
        network = fusion.network
        output[row, place] = network.fc2(torch.relu(network.fc1(torch.cat(parts))))
    return (output if stack.layer_norm is None else stack.layer_norm(output)), weights


@pytest.mark.parametrize("side", ["encoder", "decoder"])
@pytest.mark.parametrize(("kind", "switches"), [("avg", {}), ("fnn", {}), *(("sa", fields) for fields in SWITCHES)])
def test_fusion_is_the_equations(kind, switches, side):
    model = fused(encoder_fusion=kind, decoder_fusion=kind, **switches)
    stack = getattr(model.model, side)
    torch.manual_seed(0)
    states = [torch.randn(2, 3, 16).double() for _ in range(getattr(model.config, f"{side}_layers") + 1)]
    expected, _ = direct(stack, states, model.config, kind, side)
    torch.testing.assert_close(stack.finish(states), expected, rtol=1e-9, atol=1e-12)


def test_decoder_reads_fused_memory_in_every_layer_and_projects_fused_states():
    model = fused(encoder_fusion="fnn", decoder_fusion="sa")
    batch = sentences(5, 3)
    memories, seen = [], {}
    for layer in model.model.decoder.layers:
        layer.encoder_attn.register_forward_pre_hook(
            lambda module, args, kwargs: memories.append(kwargs["memory"]), with_kwargs=True
        )
    for side in ("encoder", "decoder"):
        getattr(model.model, side).fusion.register_forward_hook(
            lambda _, args, output, s=side: seen.update({s: output})
        )
    output = model(**batch, labels=labels(4, 2), output_logits=True)
    encoder_norm, decoder_norm = model.model.encoder.layer_norm, model.model.decoder.layer_norm
    assert len(memories) == 2 and all(torch.equal(memory, encoder_norm(seen["encoder"])) for memory in memories)
    assert torch.equal(output.logits, model.lm_head(decoder_norm(seen["decoder"])))


def test_layer_table_is_one_where_it_is_shared():
    shared = fused(encoder_fusion="fnn", decoder_fusion="sa")
    tables = [stack.fusion.layer_embedding.weight for stack in (shared.model.encoder, shared.model.decoder)]
    # three encoder layers, two decoder layers: one table of four rows
    assert tables[0] is tables[1] and tables[0].shape == (4, 16)
    own = fused(encoder_fusion="fnn", decoder_fusion="sa", share_layer_embedding=False)
    tables = [stack.fusion.layer_embedding.weight for stack in (own.model.encoder, own.model.decoder)]
    assert [len(table) for table in tables] == [4, 3]


def test_sharing_survives_saving(tmp_path):
    model = fused(encoder_fusion="fnn", decoder_fusion="sa")
    model.save_pretrained(tmp_path)
    loaded = MLRFForConditionalGeneration.from_pretrained(tmp_path, dtype=torch.float64)
    tables = [stack.fusion.layer_embedding.weight for stack in (loaded.model.encoder, loaded.model.decoder)]
    assert tables[0] is tables[1]
    batch = {**sentences(5, 3), "labels": labels(4, 2)}
    assert torch.equal(loaded(**batch).logits, model(**batch).logits)


@pytest.mark.parametrize("featurewise", [False, True])
def test_fusion_attentions_on_request(featurewise):
    model = fused(encoder_fusion="sa", decoder_fusion="sa", featurewise=featurewise)
    batch = {**sentences(5, 3), "labels": labels(4, 2)}
    plain = model(**batch)
    assert plain.encoder_fusion_attentions is None and plain.decoder_fusion_attentions is None
    output = model(**batch, output_fusion_attentions=True)
    assert torch.equal(output.logits, plain.logits)
    (encoder,), (decoder,) = output.encoder_fusion_attentions, output.decoder_fusion_attentions
    assert encoder.shape == (2, 5, 4, 3) + (16,) * featurewise and decoder.shape == (2, 4, 3, 3) + (16,) * featurewise
    torch.testing.assert_close(encoder.sum(2), torch.ones_like(encoder.sum(2)))
    states = model.model.encoder.run_layers(
        model.model.encoder.embed_source(model.model.encoder.embed_tokens(batch["input_ids"][:1]), None), None
    )
    _, weights = direct(model.model.encoder, states, model.config, "sa", "encoder")
    expected = torch.stack(weights).unflatten(0, (1, 5, 3)).transpose(2, 3)
    torch.testing.assert_close(encoder[:1], expected if featurewise else expected.squeeze(-1))
    # only `sa` has hops
    half = fused(encoder_fusion="fnn", decoder_fusion="sa")(**batch, output_fusion_attentions=True)
    assert half.encoder_fusion_attentions == () and len(half.decoder_fusion_attentions) == 1


def test_initialisation_is_the_papers():
    config = MLRFConfig.from_preset("both-fnn-sa", vocab_size=200, n_hop=4)
    torch.manual_seed(0)
    model = MLRFForConditionalGeneration(config)
    table = model.model.encoder.fusion.layer_embedding.weight
    assert table.abs().max() <= 0.1 and table.std().item() == pytest.approx(0.2 / 12**0.5, rel=0.1)
    fusion = model.model.decoder.fusion
    for module in (fusion.network.fc1, fusion.network.fc2, fusion.attention.w1[0], fusion.attention.w2):
        bound = module.in_features**-0.5
        assert module.weight.abs().max() <= bound and module.weight.std().item() == pytest.approx(
            bound / 3**0.5, rel=0.05
        )
    embedding = model.model.decoder.embed_tokens.weight
    assert embedding.std().item() == pytest.approx(256**-0.5, rel=0.05)


def test_every_fused_state_gets_gradient():
    model = fused(encoder_fusion="sa", decoder_fusion="fnn").train()
    states = [torch.randn(2, 3, 16).double().requires_grad_() for _ in range(4)]
    (model.model.encoder.finish(states).square()).sum().backward()
    assert all(state.grad.abs().sum() > 0 for state in states)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"encoder_fusion": "sum"}, "`encoder_fusion` must be one of none, avg, fnn, sa"),
        ({"sa_activation": "gelu"}, "`sa_activation` must be one of tanh, relu, sigmoid"),
        ({"n_hop": 0}, "`n_hop` must be at least 1"),
    ],
)
def test_wrong_fields_are_refused(fields, message):
    with pytest.raises(Exception, match=message):
        ARCHITECTURES["mlrf"].config(**fields)
