"""R-Drop and cutoff: two copies of each sentence that must agree, for every architecture."""

import pytest
import torch
from tiny import EOS, PAD, labels, sentences, tiny_config, tiny_model

from hf_deepnmt.models import DeepNMTForConditionalGeneration, functional_deepnmt
from hf_deepnmt.models import modeling_deepnmt as modeling
from hf_deepnmt.models.consistency_deepnmt import (
    DIVERGENCES,
    cut_features,
    cut_tokens,
    linear_pair_loss,
    pair_loss,
    symmetric_divergence,
)


QUIET = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
WORD = 3


def distributions(rows=5, vocabulary=11):
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(2, rows, vocabulary, generator=generator, dtype=torch.float64)
    return logits, logits.log_softmax(dim=-1)


def kl(log_p, log_q):
    return torch.nn.functional.kl_div(log_q, log_p, log_target=True, reduction="none").sum(dim=-1)


def batch(*lengths):
    return {**sentences(*(length + 1 for length in lengths)), "labels": labels(*lengths)}


def gradients(model, loss):
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return [
        torch.zeros_like(parameter) if slope is None else slope
        for parameter, slope in zip(parameters, torch.autograd.grad(loss, parameters, allow_unused=True), strict=True)
    ]


def test_divergences_follow_their_formulas():
    logits, (log_p, log_q) = distributions()
    torch.testing.assert_close(symmetric_divergence(log_p, log_q), (kl(log_p, log_q) + kl(log_q, log_p)) / 2)
    mean = ((log_p.exp() + log_q.exp()) / 2).log()
    torch.testing.assert_close(DIVERGENCES["paper"](log_p, log_q), (kl(log_p, mean) + kl(log_q, mean)) / 2)
    mean = logits.mean(dim=0).log_softmax(dim=-1)
    torch.testing.assert_close(DIVERGENCES["official"](log_p, log_q), (kl(mean, log_p) + kl(mean, log_q)) / 2)


@pytest.mark.parametrize("function", [symmetric_divergence, *DIVERGENCES.values()])
def test_divergence_of_equal_copies_is_zero(function):
    log_p = distributions()[1][0]
    torch.testing.assert_close(function(log_p, log_p), torch.zeros(5, dtype=torch.float64), atol=1e-14, rtol=0)


def test_chunked_pairs_equal_plain_path(monkeypatch):
    monkeypatch.setitem(functional_deepnmt.CHUNK_ELEMENTS, "cpu", 2 * 3 * 31)
    generator = torch.Generator().manual_seed(3)
    states, weight, bias = (
        torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
        for shape in ((7, 2, 6), (31, 6), (31,))
    )
    targets = torch.randint(31, (7,), generator=generator)
    options = targets, 0.1, [(5.0, symmetric_divergence), (2.0, DIVERGENCES["paper"])]
    chunked = linear_pair_loss(states, weight, bias, *options)
    plain = pair_loss(torch.nn.functional.linear(states, weight, bias), *options)
    torch.testing.assert_close(chunked, plain, atol=1e-9, rtol=1e-9)
    found, expected = (torch.autograd.grad(terms[0], (states, weight, bias)) for terms in (chunked, plain))
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-9)


def test_equal_copies_train_as_plain_training(model_type):
    """Without dropout both copies agree: twice the plain loss and gradient, and nothing else."""
    plain = tiny_model(model_type, **QUIET).double().train()
    copies = tiny_model(model_type, **QUIET, rdrop_alpha=5.0).double().train()
    one, two = plain(**batch(6, 4)), copies(**batch(6, 4))
    assert one.consistency_loss is None
    torch.testing.assert_close(two.consistency_loss, torch.zeros((), dtype=torch.float64), atol=1e-12, rtol=0)
    torch.testing.assert_close(two.nll_loss, one.nll_loss, atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(two.loss, 2 * one.loss, atol=1e-9, rtol=1e-9)
    for found, expected in zip(gradients(copies, two.loss), gradients(plain, one.loss), strict=True):
        torch.testing.assert_close(found, 2 * expected, atol=1e-9, rtol=1e-9)


def test_weight_zero_is_plain_training():
    models = [tiny_model(dropout=0.3, **fields).train() for fields in ({}, {"rdrop_alpha": 0.0, "cutoff": "none"})]
    losses = []
    for model in models:
        torch.manual_seed(1)
        losses.append(model(**batch(6, 4)).loss)
    assert torch.equal(*losses)


def test_dropout_makes_copies_differ(model_type):
    model = tiny_model(model_type, dropout=0.3, rdrop_alpha=5.0).train()
    output = model(**batch(6, 4))
    assert output.consistency_loss > 0
    assert output.logits is None
    expected = 2 * output.nll_loss + output.consistency_loss
    smoothed = model.config.label_smoothing
    assert smoothed == 0.1
    assert output.loss != expected
    model.config.label_smoothing = 0.0
    output = model(**batch(6, 4))
    auxiliary = 0.0 if output.auxiliary_loss is None else output.auxiliary_loss
    torch.testing.assert_close(output.loss, 2 * output.nll_loss + output.consistency_loss + auxiliary)


def test_evaluation_makes_no_copies(model_type):
    model = tiny_model(model_type, rdrop_alpha=5.0, cutoff="token")
    output = model(**batch(6, 4))
    assert output.consistency_loss is None
    assert output.logits.shape[0] == 2


@pytest.mark.parametrize("cutoff", ["token", "span", "feature"])
@pytest.mark.parametrize("form", ["official", "paper"])
def test_cutoff_alone_and_with_rdrop(model_type, cutoff, form):
    fields = {"cutoff": cutoff, "cutoff_share": 0.3, "cutoff_divergence": form, **QUIET}
    torch.manual_seed(7)
    alone = tiny_model(model_type, **fields).train()(**batch(8, 6))
    both = tiny_model(model_type, **fields, rdrop_alpha=1.0).train()
    together = both(**batch(8, 6))
    assert alone.consistency_loss > 0
    assert together.consistency_loss > 0
    together.loss.backward()
    assert all(p.grad.isfinite().all() for p in both.parameters() if p.grad is not None)


def fixed_cut(monkeypatch):
    """Damage that depends on the words alone, so that batches can be compared."""

    def cut(ids, special, share, token, span):
        return ids.masked_fill((ids % 3 == 1) & ~torch.isin(ids, torch.tensor(special)), token)

    monkeypatch.setattr(modeling, "cut_tokens", cut)


def test_gradients_do_not_depend_on_accumulation(model_type, monkeypatch):
    fixed_cut(monkeypatch)
    model = tiny_model(model_type, **QUIET, rdrop_alpha=2.0, cutoff="token").double().train()
    whole = batch(8, 5, 3)
    parts = [{name: value[row : row + 1] for name, value in whole.items()} for row in range(3)]
    tokens = whole["labels"].ne(-100).sum()
    expected = model(**whole)
    outputs = [model(**part, num_items_in_batch=tokens) for part in parts]
    torch.testing.assert_close(sum(output.loss for output in outputs), expected.loss, atol=1e-9, rtol=1e-9)
    consistency = sum(output.consistency_loss for output in outputs)
    torch.testing.assert_close(consistency, expected.consistency_loss, atol=1e-9, rtol=1e-9)
    assert consistency > 0.01
    found = gradients(model, sum(output.loss for output in outputs))
    torch.testing.assert_close(found, gradients(model, expected.loss), atol=1e-8, rtol=1e-8)


def test_padding_changes_nothing(monkeypatch):
    fixed_cut(monkeypatch)
    model = tiny_model(**QUIET, rdrop_alpha=2.0, cutoff="span").double().train()
    wide = {**sentences(7, width=12), "labels": torch.nn.functional.pad(labels(6), (0, 5), value=-100)}
    torch.testing.assert_close(model(**wide).loss, model(**batch(6)).loss, atol=1e-9, rtol=1e-9)


def test_missing_mask_is_that_of_the_undamaged_words():
    model = tiny_model(**QUIET, cutoff="feature", cutoff_share=0.5).train()
    data = batch(8, 4)
    losses = []
    for inputs in (data, {name: data[name] for name in ("input_ids", "labels")}):
        torch.manual_seed(3)
        losses.append(model(**inputs).loss)
    assert torch.equal(*losses)


def test_auxiliary_loss_counts_like_the_translation_loss():
    class Extra(DeepNMTForConditionalGeneration):
        def auxiliary_loss(self, outputs, num_items_in_batch=None, labels=None):
            return labels.ne(-100).sum() / num_items_in_batch

    plain = Extra(tiny_config(**QUIET)).train()
    copies = Extra(tiny_config(**QUIET, rdrop_alpha=3.0)).train()
    count = {"num_items_in_batch": torch.tensor(20)}
    assert plain(**batch(6, 4), **count).auxiliary_loss == 0.5
    assert copies(**batch(6, 4), **count).auxiliary_loss == 1.0
    assert copies(**batch(6, 4)).auxiliary_loss == 2.0


def test_encoder_outputs_are_refused():
    model = tiny_model(rdrop_alpha=1.0)
    data = batch(6)
    encoded = model.model.encoder(data["input_ids"], data["attention_mask"])
    with pytest.raises(ValueError, match="encoder_outputs"):
        model.train()(encoder_outputs=encoded, attention_mask=data["attention_mask"], labels=data["labels"])


def test_token_cutoff_without_words_is_refused():
    model = tiny_model(cutoff="token").train()
    data = batch(6)
    with pytest.raises(ValueError, match="give `input_ids`"):
        model(inputs_embeds=torch.randn(1, 7, 16), attention_mask=data["attention_mask"], labels=data["labels"])


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"cutoff": "words"}, "cutoff"),
        ({"cutoff_share": 1.0}, "cutoff_share"),
        ({"rdrop_alpha": -1.0}, "rdrop_alpha"),
        ({"cutoff_divergence": "js"}, "cutoff_divergence"),
    ],
)
def test_config_names_the_bad_field(fields, named):
    with pytest.raises(Exception, match=f"`{named}` must"):
        tiny_config(**fields)


# --- the damage itself ---


def test_token_cutoff_spares_special_tokens_and_keeps_its_share():
    torch.manual_seed(1)
    ids = torch.randint(5, 60, (400, 50))
    ids[:, 0], ids[:, 40], ids[:, 41:] = 0, EOS, PAD
    cut = cut_tokens(ids, [0, PAD, EOS], 0.2, WORD, span=False)
    changed = cut != ids
    assert (cut[changed] == WORD).all()
    assert not changed[:, 0].any() and not changed[:, 40:].any()
    words = 400 * 39
    assert abs(changed.sum().item() / words - 0.2) < 5 * (0.2 * 0.8 / words) ** 0.5


def test_span_cutoff_is_one_run_of_its_length_anywhere():
    torch.manual_seed(1)
    ids = torch.randint(5, 60, (2000, 14))
    ids[:, 0], ids[:, 11], ids[:, 12:] = 0, EOS, PAD
    changed = cut_tokens(ids, [0, PAD, EOS], 0.25, WORD, span=True) != ids
    assert (changed.sum(dim=1) == 3).all()
    first = changed.int().argmax(dim=1)
    last = 13 - changed.flip(1).int().argmax(dim=1)
    assert (last - first == 2).all()
    assert sorted(first.unique().tolist()) == list(range(1, 9))
    assert ids[0].ne(WORD).all()


def test_feature_cutoff_clears_columns_of_whole_sentences():
    torch.manual_seed(1)
    cut = cut_features(torch.ones(300, 5, 40), 0.1)
    assert torch.equal(cut, cut[:, :1].expand_as(cut))
    assert abs((cut == 0).double().mean().item() - 0.1) < 5 * (0.1 * 0.9 / (300 * 40)) ** 0.5
