"""Attention Link: the linked logits by their formula, three implementations, caches, checkpointing, layer drop."""

import itertools

import pytest
import torch
from tiny import labels, sentences, tiny_config, tiny_model
from transformers import AutoModelForSeq2SeqLM

from hf_deepnmt.models import AttentionLinkForConditionalGeneration
from hf_deepnmt.models.modeling_attention_link import (
    QUERIES_ELSEWHERE,
    QUERIES_IN_HALF_PRECISION,
    QUERIES_ON_A_CPU,
    AttentionLinkAttention,
    Link,
    logits_are_faster,
)


TYPE = "attention_link"
MODES = ("adjacent", "cumulative", "weights_only")
SWITCHES = ("link_encoder_self", "link_decoder_self", "link_cross")
OFF = dict.fromkeys(SWITCHES, False)


def model(dtype=torch.float64, **fields):
    made = tiny_model(TYPE, **{"encoder_layers": 3, "decoder_layers": 3, **fields}).to(dtype)
    made.set_attn_implementation("sdpa")
    return made


def batch(*lengths):
    return {**sentences(*lengths), "labels": labels(*(length - 1 for length in lengths))}


def all_gradients(made):
    return torch.cat([p.grad.flatten() for p in made.parameters() if p.grad is not None])


# --- the formula ---


def attentions_of(stack, place):
    return [getattr(layer, place) for layer in stack.layers]


def inputs_of(attentions, run):
    """What each attention reads during `run`."""
    states, hooks = [], []
    for attention in attentions:
        hooks.append(attention.register_forward_pre_hook(lambda module, args: states.append(args[0].detach())))
    run()
    for hook in hooks:
        hook.remove()
    return states


def heads(states):
    return states.view(*states.shape[:2], 4, 4).transpose(1, 2)


def expected_weights(
    attentions, queries_from, keys_from, mask, linked, mode="adjacent", scale="head_dim", combine="sum"
):
    """softmax of the sum of products, straight from the definition; a list with one tensor a layer."""
    weights = []
    for n in range(len(attentions)):
        first = {"adjacent": max(n - 1, 0), "weights_only": max(n - 1, 0), "cumulative": 0}[mode] if linked else n
        products = []
        for m in range(first, n + 1):
            read = n if mode == "weights_only" else m
            query, key = attentions[m].q_proj(queries_from[read]), attentions[m].k_proj(keys_from[read])
            products.append(heads(query) @ heads(key).transpose(-1, -2))
        scaled = sum(products) / (4 * len(products) if scale == "summed_dims" else 4) ** 0.5
        scaled = scaled / len(products) if combine == "mean" else scaled
        weights.append(scaled.masked_fill(~mask, float("-inf")).softmax(-1))
    return weights


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ({}, {}),
        ({"link_mode": "cumulative"}, {"mode": "cumulative"}),
        ({"link_mode": "weights_only"}, {"mode": "weights_only"}),
        ({"link_scale": "summed_dims"}, {"scale": "summed_dims"}),
        (
            {"link_mode": "cumulative", "link_combine": "mean", "link_scale": "summed_dims"},
            {"mode": "cumulative", "combine": "mean", "scale": "summed_dims"},
        ),
        *(({**OFF, switch: True}, {}) for switch in SWITCHES),
        ({"link_encoder_self": False, "link_mode": "weights_only"}, {"mode": "weights_only"}),
    ],
    ids=str,
)
@torch.no_grad()
def test_weights_are_those_of_the_summed_products(fields, options):
    made = model(**fields)
    data = batch(6, 4)
    outputs = []

    def run():
        outputs.append(made(**data, output_attentions=True))

    source_mask = data["attention_mask"].bool()[:, None, None]
    causal = torch.ones(5, 5, dtype=torch.bool).tril()[None, None]
    for stack, place, switch, mask, name in (
        (made.model.encoder, "self_attn", "link_encoder_self", source_mask, "encoder_attentions"),
        (made.model.decoder, "self_attn", "link_decoder_self", causal, "decoder_attentions"),
        (made.model.decoder, "encoder_attn", "link_cross", source_mask, "cross_attentions"),
    ):
        attentions = attentions_of(stack, place)
        read = inputs_of(attentions, run)
        memory = [outputs[-1].encoder_last_hidden_state] * 3 if place == "encoder_attn" else read
        expected = expected_weights(attentions, read, memory, mask, getattr(made.config, switch), **options)
        for got, wanted in zip(outputs[-1][name], expected, strict=True):
            torch.testing.assert_close(got, wanted, atol=1e-12, rtol=1e-12)


def test_implementations_agree_in_outputs_and_gradients():
    for mode, (scale, combine) in itertools.product(MODES, (("head_dim", "sum"), ("summed_dims", "mean"))):
        results = []
        for implementation in ("eager", "concat", "padded"):
            made = model(link_mode=mode, link_scale=scale, link_combine=combine, link_implementation=implementation)
            out = made(**batch(6, 4))
            out.loss.backward()
            results.append((out.logits.detach(), all_gradients(made)))
        for logits, gradient in results[1:]:
            torch.testing.assert_close(logits, results[0][0], atol=1e-11, rtol=0)
            torch.testing.assert_close(gradient, results[0][1], atol=1e-11, rtol=0)


@torch.no_grad()
def test_kernels_are_given_the_scale_of_one_head():
    attention = AttentionLinkAttention(tiny_config(TYPE, link_implementation="concat"), 4, 0).eval()
    query, key, value, earlier_query, earlier_key = torch.randn(5, 2, 4, 6, 4)
    link = Link((earlier_query, earlier_key), 2)
    got, _ = attention.attend(query, key, value, None, "sdpa", link=link, linked_states=None)
    logits = query @ key.transpose(-1, -2) + earlier_query @ earlier_key.transpose(-1, -2)
    torch.testing.assert_close(got.transpose(1, 2), (logits / 2).softmax(-1) @ value)
    assert link.current[0] is query and link.current[1] is key


@pytest.mark.slow
@pytest.mark.parametrize("link", ["concat", "padded"])
def test_flex_attention_agrees(link):
    made = model(torch.float32, d_model=64, link_implementation=link)
    with torch.no_grad():
        expected = made(**batch(6, 4)).logits
        made.set_attn_implementation("flex_attention")
        torch.testing.assert_close(made(**batch(6, 4)).logits, expected, atol=1e-3, rtol=1e-3)


# --- relation to the baseline ---


@pytest.mark.parametrize("mode", MODES)
def test_parameters_are_those_of_the_baseline(mode):
    baseline, linked = tiny_model().state_dict(), tiny_model(TYPE, link_mode=mode).state_dict()
    assert {name: value.shape for name, value in linked.items()} == {name: v.shape for name, v in baseline.items()}


def test_checkpoint_of_the_baseline_loads(tmp_path):
    baseline = tiny_model()
    baseline.save_pretrained(tmp_path)
    loaded, report = AttentionLinkForConditionalGeneration.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    for name, value in baseline.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value)
    logits = loaded(**batch(6, 4)).logits
    assert not torch.equal(logits, baseline(**batch(6, 4)).logits)
    loaded.save_pretrained(tmp_path / "linked")
    again = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "linked")
    assert type(again) is AttentionLinkForConditionalGeneration and torch.equal(again(**batch(6, 4)).logits, logits)


@pytest.mark.parametrize("mode", ["adjacent", "cumulative"])
def test_without_queries_below_the_last_layer_it_is_the_baseline(mode):
    baseline = tiny_model()
    with torch.no_grad():
        for name, parameter in baseline.named_parameters():
            below = "encoder.layers.0" in name or "encoder.layers.1" in name or "decoder.layers.0" in name
            if below and "q_proj" in name:
                parameter.zero_()
    baseline.set_attn_implementation("eager")
    expected = baseline(**batch(6, 4)).logits
    for link in ("eager", "concat", "padded"):
        linked = tiny_model(TYPE, link_mode=mode, link_implementation=link)
        linked.load_state_dict(baseline.state_dict())
        logits = linked(**batch(6, 4)).logits
        if link == "eager":
            assert torch.equal(logits, expected)
        torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("switch", SWITCHES)
def test_each_switch_links_something_else(switch):
    data = batch(6, 4)
    linked, plain = model(**{**OFF, switch: True}), model(**OFF)
    out, baseline = linked(**data), plain(**data)
    same_memory = torch.equal(out.encoder_last_hidden_state, baseline.encoder_last_hidden_state)
    assert same_memory == (switch != "link_encoder_self")
    assert (out.logits - baseline.logits).abs().max() > 0.01


# --- caches ---


@pytest.mark.parametrize(
    ("mode", "link"),
    [("adjacent", "concat"), ("adjacent", "padded"), ("cumulative", "auto"), ("cumulative", "concat"),
     ("weights_only", "auto"), ("weights_only", "padded")],
)  # fmt: skip
def test_cached_beams_equal_uncached_ones(mode, link):
    made = model(link_mode=mode, link_implementation=link)
    options = {**sentences(7, 4), "num_beams": 3, "max_new_tokens": 7, "min_new_tokens": 7}
    plain = made.generate(**options, use_cache=False)
    assert torch.equal(made.generate(**options), plain)
    assert torch.equal(made.generate(**options, cache_implementation="static"), plain)


def stepwise(made, source, target):
    cache, logits = None, []
    for token in target.split(1, dim=1):
        out = made(**source, decoder_input_ids=token, cache=cache, use_cache=True)
        cache = out.cache
        logits.append(out.logits)
    return torch.cat(logits, dim=1)


@pytest.mark.parametrize("place", ["self_attn", "encoder_attn"])
@torch.no_grad()
def test_a_link_that_is_dropped_in_cached_steps_would_show(place, monkeypatch):
    made = model()
    source, target = sentences(7, 4), torch.randint(5, 60, (2, 6))
    whole = made(**source, decoder_input_ids=target).logits
    torch.testing.assert_close(stepwise(made, source, target), whole, atol=1e-10, rtol=0)
    attend = AttentionLinkAttention.attend

    def forgetful(self, query, *args, link, **kwargs):
        if self.place == place and query.shape[-2] == 1:
            link.previous = ()
        return attend(self, query, *args, link=link, **kwargs)

    monkeypatch.setattr(AttentionLinkAttention, "attend", forgetful)
    assert (stepwise(made, source, target) - whole).abs().max() > 0.01


@torch.no_grad()
def test_earlier_keys_are_linked_too_not_only_those_of_the_step():
    made = model(**{**OFF, "link_decoder_self": True}, decoder_layers=2)
    first, second = attentions_of(made.model.decoder, "self_attn")
    seen = []
    attend = second.attend
    second.attend = lambda *args, link, **kwargs: seen.append(link.previous[0]) or attend(*args, link=link, **kwargs)
    target = torch.randint(5, 60, (2, 5))
    read = inputs_of([first], lambda: made(**sentences(7, 4), decoder_input_ids=target))[0]
    stepwise(made, sentences(7, 4), target)
    expected = heads(first.q_proj(read)) @ heads(first.k_proj(read)).transpose(-1, -2) / 2
    assert seen[-1].shape == (2, 4, 1, 5)
    torch.testing.assert_close(seen[-1], expected[:, :, -1:])


def test_wide_keys_of_weights_only_are_cached_once():
    made = model(link_mode="weights_only")
    cache = made(**sentences(7, 4), decoder_input_ids=torch.tensor([[0, 9], [0, 8]]), use_cache=True).cache
    widths = [layer.keys.shape[-1] for layer in cache.self_attention_cache.layers]
    assert widths == [4, 8, 8] and {layer.values.shape[-1] for layer in cache.self_attention_cache.layers} == {4}


# --- what travels between layers ---


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize(
    ("mode", "link"), [("adjacent", "concat"), ("cumulative", "eager"), ("weights_only", "eager")]
)
def test_gradient_checkpointing_follows_links(mode, link, reentrant):
    results = []
    for checkpointing in (False, True):
        made = model(link_mode=mode, link_implementation=link, dropout=0.0).train()
        if checkpointing:
            made.gradient_checkpointing_enable({"use_reentrant": reentrant})
            made.enable_input_require_grads()
        out = made(**batch(6, 4), output_hidden_states=True)
        out.loss.backward()
        assert [states.shape for states in out.decoder_hidden_states] == [(2, 5, 16)] * 4
        results.append((out.encoder_hidden_states[1].detach(), all_gradients(made)))
    for got, expected in zip(*results, strict=True):
        torch.testing.assert_close(got, expected, atol=1e-12, rtol=1e-12)


def test_checkpointing_with_dropout_repeats_its_masks():
    results = []
    for checkpointing in (False, True):
        made = model(dropout=0.2, attention_dropout=0.2).train()
        if checkpointing:
            made.gradient_checkpointing_enable({"use_reentrant": False})
        torch.manual_seed(3)
        made(**batch(6, 4)).loss.backward()
        results.append(all_gradients(made))
    torch.testing.assert_close(results[1], results[0])


@pytest.mark.parametrize("mode", MODES[:2])
def test_after_a_dropped_layer_the_last_executed_one_is_linked(mode, monkeypatch):
    made = model(link_mode=mode, encoder_layers=4, encoder_layerdrop=0.5)
    shorter = model(link_mode=mode, encoder_layers=3)
    for target, source in enumerate((0, 2, 3)):
        shorter.model.encoder.layers[target].load_state_dict(made.model.encoder.layers[source].state_dict())
    skipped = iter([False, True, False, False])
    monkeypatch.setattr(made.model.encoder, "skips_layer", lambda: next(skipped))
    source = sentences(6, 4)
    got, expected = made.model.encoder(**source)[0], shorter.model.encoder(**source)[0]
    assert torch.equal(got, expected) and next(skipped, None) is None


@pytest.mark.parametrize("link", ["auto", "concat"])
def test_compiled_model_is_one_graph_with_equal_results(link):
    made = model(link_implementation=link, encoder_layers=2, decoder_layers=2)
    data = batch(6, 4)
    torch._dynamo.reset()
    compiled = torch.compile(made, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(**data).logits, made(**data).logits)


# --- the choice of an implementation ---


def implementations_used(made, data):
    used = set()
    for attention in made.modules():
        if isinstance(attention, AttentionLinkAttention):
            attention.register_forward_pre_hook(
                lambda module, args, kwargs: used.add(kwargs["attn_implementation"]), with_kwargs=True
            )
    made(**data)
    return used


LONG = QUERIES_ON_A_CPU[torch.float64] + 2


def test_logits_are_kept_for_few_queries_and_with_dropout_on_a_cpu():
    for device, dtype, queries in (
        ("cpu", torch.float32, QUERIES_ON_A_CPU[torch.float32]),
        ("cpu", torch.bfloat16, QUERIES_IN_HALF_PRECISION),
        ("cuda", torch.bfloat16, QUERIES_ELSEWHERE),
    ):
        assert logits_are_faster(device, dtype, queries, 0.0)
        assert not logits_are_faster(device, dtype, queries + 1, 0.0)
        assert logits_are_faster(device, dtype, queries + 1, 0.1) == (device == "cpu")


def test_rule_is_applied_to_each_pass():
    long = batch(LONG)
    assert implementations_used(model(), batch(6, 4)) == {"eager"}
    assert implementations_used(model(), long) == {"sdpa"}
    assert implementations_used(model(torch.bfloat16), long) == {"eager"}
    assert implementations_used(model(attention_dropout=0.1).train(), long) == {"eager"}
    assert implementations_used(model(link_mode="cumulative"), long) == {"eager"}
    assert implementations_used(model(**OFF), batch(6, 4)) == {"sdpa"}
    with torch.autocast("cpu", torch.bfloat16):
        assert implementations_used(model(torch.float32), long) == {"eager"}


def test_long_and_short_sentences_agree_across_the_choice():
    data = batch(LONG, 5)
    with torch.no_grad():
        expected = model(link_implementation="eager")(**data).logits
        torch.testing.assert_close(model()(**data).logits, expected, atol=1e-10, rtol=0)


@pytest.mark.parametrize("field", ["link_mode", "link_scale", "link_combine", "link_implementation"])
def test_wrong_values_are_refused_with_the_right_ones(field):
    with pytest.raises(Exception, match=rf"`{field}` must be one of \w+, \w+.*'sometimes'"):
        tiny_config(TYPE, **{field: "sometimes"})
