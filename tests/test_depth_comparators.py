"""What deep encoders are compared with: DLCL, transparent attention."""

import pytest
import torch
from tiny import labels, sentences, tiny_config, tiny_model
from torch import nn

from hf_deepnmt.models import ARCHITECTURES


def batch(*lengths):
    return {**sentences(*lengths), "labels": labels(*(length - 1 for length in lengths))}


def loaded_from(baseline, model_type, **fields):
    """A model of another type with the weights of `baseline`, its own ones as they are initially."""
    model = ARCHITECTURES[model_type].head(tiny_config(model_type, **fields)).eval()
    model.load_state_dict(baseline.state_dict(), strict=False)
    return model.to(next(baseline.parameters()).dtype)


def added_parameters(model_type, **fields):
    with torch.device("meta"):
        baseline = ARCHITECTURES["deepnmt"].head(tiny_config(**{k: v for k, v in fields.items() if k in SHARED}))
        return ARCHITECTURES[model_type].head(tiny_config(model_type, **fields)).num_parameters() - (
            baseline.num_parameters()
        )


SHARED = {"norm_style", "encoder_layers", "decoder_layers"}


def record_states(model):
    """What the layers of each stack read and give, per stack: a list of (input, output)."""
    seen = {"encoder": [], "decoder": []}
    for name, stack in (("encoder", model.model.encoder), ("decoder", model.model.decoder)):
        for layer in stack.layers:
            layer.register_forward_hook(lambda _, args, out, name=name: seen[name].append((args[0], out)))
    return seen


# --- DLCL ---


@pytest.mark.parametrize("norm_style", ["pre", "post"])
@torch.no_grad()
def test_dlcl_layers_read_the_combination_of_all_states_below(norm_style):
    model = tiny_model("dlcl", norm_style=norm_style, decoder_layers=3).double()
    for name, parameter in model.named_parameters():
        if "norm" in name:
            parameter.copy_(1 + 0.3 * torch.randn(parameter.shape))
    seen, out = record_states(model), model(**batch(6, 4), output_hidden_states=True)
    tops = {"encoder": out.encoder_last_hidden_state, "decoder": out.decoder_hidden_states[-1]}
    for name, stack in (("encoder", model.model.encoder), ("decoder", model.model.decoder)):
        (first, _), *_ = pairs = seen[name]
        weight = stack.combination.weight
        history = [first / weight[0, 0], *(output for _, output in pairs)]
        for row in range(1, 4):
            mixed = sum(weight[row, column] * history[column] for column in range(row + 1))
            expected = mixed if norm_style == "pre" else stack.combination.norms[row - 1](mixed)
            if row == 3:
                got, expected = tops[name], expected if stack.layer_norm is None else stack.layer_norm(expected)
            else:
                got = pairs[row][0]
            torch.testing.assert_close(got, expected, atol=1e-10, rtol=1e-10)


@torch.no_grad()
def test_dlcl_normalises_the_output_of_pre_norm_layers_but_not_the_embedding():
    model = tiny_model("dlcl", norm_style="pre").double()
    seen = record_states(model)["encoder"]
    model(**batch(6, 4))
    for _, output in seen:
        torch.testing.assert_close(output.mean(-1), torch.zeros_like(output[..., 0]), atol=1e-9, rtol=0)
        torch.testing.assert_close(output.var(-1, unbiased=False), torch.ones_like(output[..., 0]), atol=1e-2, rtol=0)
    assert seen[0][0].var(-1, unbiased=False).sub(1).abs().max() > 0.05


@pytest.mark.parametrize("norm_style", ["pre", "post"])
@torch.no_grad()
def test_dlcl_with_the_last_weight_alone_is_the_baseline(norm_style):
    baseline = tiny_model(norm_style=norm_style)
    model = loaded_from(baseline, "dlcl", norm_style=norm_style, history_norm=False)
    expected = baseline(**batch(6, 4)).logits
    assert not torch.allclose(model(**batch(6, 4)).logits, expected, atol=1e-2)
    for stack in (model.model.encoder, model.model.decoder):
        stack.combination.weight.copy_(torch.eye(len(stack.combination.weight)))
    assert torch.equal(model(**batch(6, 4)).logits, expected)


def test_dlcl_post_norm_with_the_last_weight_alone_is_the_baseline_up_to_a_second_norm():
    baseline = tiny_model(norm_style="post").double()
    model = loaded_from(baseline, "dlcl", norm_style="post")
    with torch.no_grad():
        for stack in (model.model.encoder, model.model.decoder):
            stack.combination.weight.copy_(torch.eye(len(stack.combination.weight)))
    torch.testing.assert_close(model(**batch(6, 4)).logits, baseline(**batch(6, 4)).logits, atol=1e-3, rtol=0)


@pytest.mark.parametrize("norm_style", ["pre", "post"])
def test_dlcl_starts_from_means_and_counts_as_in_the_paper(norm_style):
    weight = ARCHITECTURES["dlcl"].head(tiny_config("dlcl")).model.encoder.combination.weight
    assert weight.shape == (4, 4) and torch.equal(weight.sum(1), torch.ones(4))
    assert torch.equal(weight[2], torch.tensor([1, 1, 1, 0]) / 3)
    # a matrix for each stack, and a norm for each layer
    assert added_parameters("dlcl", norm_style=norm_style, encoder_layers=5, decoder_layers=2) == 36 + 9 + 7 * 32


def test_dlcl_trains_every_weight_of_the_lower_triangle_and_no_other():
    model = tiny_model("dlcl", norm_style="pre")
    model(**batch(6, 4)).loss.backward()
    for stack in (model.model.encoder, model.model.decoder):
        gradient = stack.combination.weight.grad
        assert torch.equal(gradient != 0, torch.ones_like(gradient).tril().bool())


@pytest.mark.parametrize("dlcl", [{"encoder_dlcl": False}, {"decoder_dlcl": False}])
def test_dlcl_of_one_stack_leaves_the_other_plain(dlcl):
    model = tiny_model("dlcl", norm_style="pre", **dlcl)
    plain, combined = model.model.encoder, model.model.decoder
    if "decoder_dlcl" in dlcl:
        plain, combined = combined, plain
    assert plain.combination is None and isinstance(combined.combination, nn.Module)
    assert model(**batch(6, 4)).loss.isfinite()


# --- transparent attention ---


def mixtures_of(model, states):
    weight = model.model.encoder.mixtures.weight.softmax(-1)
    return [sum(share * state for share, state in zip(row, states, strict=True)) for row in weight]


@torch.no_grad()
def test_transparent_decoder_layers_read_their_own_mixture_with_the_embedding():
    model = tiny_model("transparent", norm_style="pre", decoder_layers=3).double()
    read = []
    for layer in model.model.decoder.layers:
        layer.encoder_attn.register_forward_pre_hook(
            lambda _, args, kwargs: read.append(kwargs["memory"]), with_kwargs=True
        )
    seen = record_states(model)["encoder"]
    model(**batch(6, 4))
    states = [seen[0][0], *(output for _, output in seen)]
    for got, expected in zip(read, mixtures_of(model, states), strict=True):
        torch.testing.assert_close(got, expected, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("fields", [{"norm_style": "post"}, {"norm_style": "pre", "mixture_norm": True}], ids=str)
@torch.no_grad()
def test_transparent_with_the_last_layer_alone_is_the_baseline(fields):
    baseline = tiny_model(norm_style=fields["norm_style"])
    model = loaded_from(baseline, "transparent", **fields)
    expected = baseline(**batch(6, 4)).logits
    assert torch.equal(model.model.encoder.mixtures.weight, torch.zeros(2, 4))
    assert not torch.allclose(model(**batch(6, 4)).logits, expected, atol=1e-2)
    model.model.encoder.mixtures.weight[:, -1] = 1e4
    assert torch.equal(model(**batch(6, 4)).logits, expected)


def test_transparent_adds_one_weight_for_each_pair_of_layers():
    assert added_parameters("transparent", norm_style="post", encoder_layers=5, decoder_layers=2) == 12
    # without its norm at the top, which nothing would read
    assert added_parameters("transparent", norm_style="pre", encoder_layers=5, decoder_layers=2) == 12 - 32


def test_transparent_reaches_every_encoder_layer_through_every_decoder_layer():
    model = tiny_model("transparent", norm_style="pre").double()
    model(**batch(6, 4)).loss.backward()
    assert (model.model.encoder.mixtures.weight.grad != 0).all()
    for layer in model.model.encoder.layers:
        assert all(parameter.grad.abs().max() > 0 for parameter in layer.parameters())


def test_transparent_drops_weights_before_the_softmax_in_training_only():
    torch.manual_seed(0)
    model = tiny_model("transparent", dropout=0.0, mixture_dropout=0.5)
    data = batch(6, 4)
    assert torch.equal(model(**data).loss, model(**data).loss)
    losses = {model.train()(**data).nll_loss.item() for _ in range(8)}
    assert len(losses) > 1
    with torch.no_grad():
        # dropped or not, weights of zero are the mean
        model.model.encoder.mixtures.weight.zero_()
    assert len({model(**data).nll_loss.item() for _ in range(3)}) == 1


def test_transparent_encoder_outputs_travel_to_beams_as_one_tensor():
    model = tiny_model("transparent").double()
    encoded = model.get_encoder()(**sentences(6, 4))
    assert encoded.mixtures.shape == (2, 2, 6, 16)
    options = {"num_beams": 3, "max_new_tokens": 8}
    direct = model.generate(**sentences(6, 4), **options)
    mask = sentences(6, 4)["attention_mask"]
    assert torch.equal(model.generate(encoder_outputs=encoded, attention_mask=mask, **options), direct)
    with pytest.raises(ValueError, match="lacks `mixtures`"):
        model(encoder_outputs=(encoded.last_hidden_state,), decoder_input_ids=torch.tensor([[0], [0]]))


def test_transparent_refuses_a_dropout_of_one():
    with pytest.raises(Exception, match="below 1"):
        tiny_config("transparent", mixture_dropout=1.0)
