"""Explicit reordering: positions, the window, both passes, the reordering loss, and what the model learns of an order."""

import math
from functools import partial

import pytest
import torch
from tiny import labels, sentences, tiny_config, tiny_model
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments

from hf_deepnmt.batching import Seq2SeqCollator
from hf_deepnmt.models import ReorderingConfig, ReorderingForConditionalGeneration
from hf_deepnmt.models.modeling_deepnmt import DeepNMTDecoder
from hf_deepnmt.models.modeling_reordering import reordered_embeddings
from hf_deepnmt.trainer import DeepNMTTrainer, DeepNMTTrainingArguments


LENGTHS = (6, 4, 9)
TRAINABLE = ReorderingConfig.presets["exgre-trainable"]


def exgre(**fields):
    return tiny_model("reordering", **{"fusion": "none", **TRAINABLE, **fields})


def batch(*lengths, side="right", width=None):
    """Sentences whose order is reversed in the target, with the end of the sentence where it is."""
    data = sentences(*lengths, side=side, width=width)
    positions = torch.full(data["input_ids"].shape, -100.0)
    for row, length in enumerate(lengths):
        first = 0 if side == "right" else positions.shape[1] - length
        order = torch.arange(length - 1.0).flip(0)
        positions[row, first : first + length] = torch.cat([order, torch.tensor([length - 1.0])])
    return {**data, "labels": labels(*(max(2, length - 1) for length in lengths)), "target_positions": positions}


# --- positions and window ---


@pytest.mark.parametrize(
    ("fields", "added"),
    [
        ({"position_net": "luong"}, 6 * (512 * 512 + 512)),
        ({"position_net": "scalar"}, 6 * 2 * 512),
        ({"position_net": "linear"}, 6 * 513),
        ({"position_net": "scalar", "reorder_layers": [0, 5], "reorder_norm": True}, 2 * (2 * 512 + 2 * 512)),
        ({"position_net": "scalar", "fusion": "gate"}, 6 * 2 * 512 + 2 * 512),
        ({"position_net": "scalar", "fusion": "gate", "gate": "vector"}, 6 * 2 * 512 + 2 * 512 * 512),
        ({"position_net": "scalar", "fusion": "gate", "gate": "mean"}, 6 * 2 * 512),
    ],
)
def test_reordering_adds_few_parameters(fields, added):
    with torch.device("meta"):
        count = ReorderingForConditionalGeneration(ReorderingConfig(**fields)).num_parameters()
        plain = ReorderingForConditionalGeneration(ReorderingConfig(reorder_layers=[])).num_parameters()
    assert count - plain == added


@pytest.mark.parametrize("net", ["luong", "scalar", "linear"])
@pytest.mark.parametrize("side", ["right", "left"])
def test_positions_lie_in_the_sentence_wherever_it_stands(net, side):
    model = exgre(position_net=net)
    together = model.get_encoder()(**sentences(*LENGTHS, width=12, side=side)).reordered_positions
    assert together.shape == (3, 3, 12)
    for row, length in enumerate(LENGTHS):
        alone = {key: value[row : row + 1, :length] for key, value in sentences(*LENGTHS).items()}
        expected = model.get_encoder()(**alone).reordered_positions[0]
        assert (expected >= 0).all() and (expected <= length - 1).all() and expected.std() > 0
        place = slice(0, length) if side == "right" else slice(12 - length, 12)
        torch.testing.assert_close(together[row, :, place], expected, atol=1e-4, rtol=1e-4)
        assert (together[row] == -100).sum() == 3 * (12 - length)


def test_a_last_place_beyond_the_sentence_is_its_last_place():
    model = exgre(position_net="linear", reorder_layers=[2])
    with torch.no_grad():
        model.model.encoder.layers[2].position_net.score.bias.fill_(1e4)
    out = model(**batch(*LENGTHS), output_positions=True)
    for row, length in enumerate(LENGTHS):
        assert (out.reordered_positions[row, 0, :length] == length - 1).all()
    assert out.auxiliary_loss.isfinite()


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize(("window", "size"), [("hard", 0.5), ("hard", 2.0), ("full", 2.0)])
def test_embedding_is_the_gaussian_sum_over_the_window(window, size, normalise):
    config = ReorderingConfig(window=window, window_size=size, normalise_window=normalise)
    table = torch.randn(8, 16, dtype=torch.float64)
    positions = torch.tensor([[0.0, 2.4, 3.7, 4.0, -100.0, -100.0], [1.3, 6.8, 7.0, 0.2, 3.3, 5.0]]).double()
    lengths = torch.tensor([[5], [8]])
    found = reordered_embeddings(positions, lengths, table, config)
    for row, token in ((r, t) for r in range(2) for t in range(6)):
        b = positions[row, token].item()
        weights = {
            s: math.exp(-((s - b) ** 2) / (2 * (size / 2) ** 2))
            for s in range(lengths[row, 0])
            if b >= 0 and (window == "full" or abs(s - b) <= size)
        }
        total = sum(weights.values()) if normalise and weights else 1
        expected = sum((weight / total * table[s] for s, weight in weights.items()), torch.zeros(16).double())
        torch.testing.assert_close(found[row, token], expected)


def test_printed_window_holds_one_place_and_gives_the_loss_no_gradient():
    """A cosine does not depend on the length of pr, and the length is all that the position changes."""

    def gradient(preset):
        config = ReorderingConfig.from_preset(preset)
        positions = (torch.rand(1, 20, dtype=torch.float64) * 19).requires_grad_()
        table = torch.randn(20, 64, dtype=torch.float64)
        pr = reordered_embeddings(positions, torch.tensor([[20]]), table, config)
        loss = 1 - torch.nn.functional.cosine_similarity(pr, table.flip(0)[None], dim=-1)
        return torch.autograd.grad(loss.mean(), positions)[0].abs()

    assert gradient("exgre-paper").max() < 1e-15
    assert gradient("exgre-trainable").median() > 1e-4


@pytest.mark.parametrize("preset", ["exgre-paper", "exgre-trainable"])
def test_reordering_loss_moves_the_supervised_layer_in_the_trainable_preset_only(preset):
    model = exgre(**ReorderingConfig.presets[preset]).double()
    out = model(**batch(*LENGTHS))
    net = list(model.model.encoder.layers[2].position_net.parameters())
    of_positions = torch.cat([g.flatten() for g in torch.autograd.grad(out.auxiliary_loss, net, retain_graph=True)])
    if preset == "exgre-paper":
        assert out.auxiliary_loss > 0.01 and of_positions.abs().max() < 1e-12
        translation = torch.autograd.grad(out.loss, net)
        assert max(g.abs().max() for g in translation) > 1e-4
    else:
        assert of_positions.abs().max() > 1e-4


# --- both passes ---


def encoded(model, data):
    return model.get_encoder()(**{name: data[name] for name in ("input_ids", "attention_mask")})


@pytest.mark.parametrize("norm_style", ["post", "pre"])
@pytest.mark.parametrize("gate", ["scalar", "vector", "mean"])
def test_doubled_batch_equals_two_passes_with_the_same_weights(gate, norm_style):
    data = batch(*LENGTHS)
    both = exgre(fusion="gate", gate=gate, norm_style=norm_style)
    one, plain = exgre(norm_style=norm_style), tiny_model("deepnmt", norm_style=norm_style)
    for model in (one, plain):
        model.load_state_dict(both.state_dict(), strict=False)
    reordered = encoded(one, data)
    states = encoded(plain, data).last_hidden_state, reordered.last_hidden_state
    weight = both.model.encoder.gate.weight(*states)
    assert torch.as_tensor(weight).shape == {"scalar": (3, 9, 1), "vector": (3, 9, 16), "mean": ()}[gate]
    out = encoded(both, data)
    real = data["attention_mask"].bool()
    expected = weight * states[0] + (1 - weight) * states[1]
    torch.testing.assert_close(out.last_hidden_state[real], expected[real], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(out.reordered_positions, reordered.reordered_positions, atol=1e-4, rtol=1e-4)


def test_gate_at_one_is_the_baseline(monkeypatch):
    data = batch(*LENGTHS)
    model, plain = exgre(fusion="gate"), tiny_model("deepnmt")
    plain.load_state_dict(model.state_dict(), strict=False)
    monkeypatch.setattr(model.model.encoder.gate, "weight", lambda *states: 1.0)
    torch.testing.assert_close(model(**data).logits, plain(**{**data, "target_positions": None}).logits)


def test_decoder_is_the_baselines_and_reads_one_memory():
    model = exgre(fusion="gate")
    assert type(model.get_decoder()) is DeepNMTDecoder
    assert encoded(model, batch(*LENGTHS)).last_hidden_state.shape == (3, 9, 16)


def test_states_and_weights_are_those_of_the_reordered_pass():
    data = batch(*LENGTHS)
    both, one = exgre(fusion="gate"), exgre()
    one.load_state_dict(both.state_dict(), strict=False)
    options = {**sentences(*LENGTHS), "output_hidden_states": True, "output_attentions": True}
    found, expected = both.get_encoder()(**options), one.get_encoder()(**options)
    assert len(found.hidden_states) == 4 and len(found.attentions) == 3
    assert found.hidden_states[-1] is found.last_hidden_state
    doubled = encoded(both, data)
    torch.testing.assert_close(found.last_hidden_state, doubled.last_hidden_state, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found.reordered_positions, doubled.reordered_positions, atol=1e-4, rtol=1e-4)
    real = data["attention_mask"].bool()
    for got, state in zip(found.hidden_states[:-1], expected.hidden_states[:-1], strict=True):
        torch.testing.assert_close(got[real], state[real], atol=1e-5, rtol=1e-5)
    for got, weights in zip(found.attentions, expected.attentions, strict=True):
        torch.testing.assert_close(got[:, :, :4], weights[:, :, :4], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("site", ["post_ffn", "post_attn"])
@pytest.mark.parametrize("norm_style", ["post", "pre"])
def test_sites_differ_and_keep_padding_out(site, norm_style):
    model = exgre(reorder_site=site, norm_style=norm_style)
    assert (model.model.encoder.layers[0].reorder_norm is not None) == (site == "post_attn")
    alone = encoded(model, batch(6)).last_hidden_state
    padded = encoded(model, batch(6, 9, side="left")).last_hidden_state
    torch.testing.assert_close(padded[0, 3:], alone[0], atol=1e-4, rtol=1e-4)
    other = exgre(reorder_site={"post_ffn": "post_attn", "post_attn": "post_ffn"}[site], norm_style=norm_style)
    assert not torch.allclose(encoded(other, batch(6)).last_hidden_state, alone, atol=1e-2)


def test_positions_are_returned_where_asked_for():
    model, data = exgre(fusion="gate"), batch(*LENGTHS)
    targets = data.pop("target_positions")
    assert model(**data).reordered_positions is None
    expected = encoded(model, data).reordered_positions
    assert torch.equal(model(**data, output_positions=True).reordered_positions, expected)
    assert model(**data, target_positions=targets).reordered_positions is None
    inner = {**sentences(*LENGTHS), "decoder_input_ids": torch.tensor([[0]] * 3)}
    for asked in ({"output_positions": True}, {"target_positions": targets}):
        assert torch.equal(model.model(**inner, **asked).reordered_positions, expected)
    assert model.model(**inner).reordered_positions is None


def test_only_named_layers_reorder_and_the_last_of_them_is_supervised():
    model = exgre(reorder_layers=[1, 0])
    out = model(**batch(*LENGTHS), output_positions=True)
    assert out.reordered_positions.shape == (3, 2, 9)
    out.auxiliary_loss.backward()
    first, last = (model.model.encoder.layers[index].position_net.score.weight.grad for index in (0, 1))
    assert last.abs().max() > 1e-6 and first.abs().max() > 0
    assert not hasattr(model.model.encoder.layers[2], "position_net")


# --- the reordering loss ---


def mean_distance(model, data, positions):
    """1 - cos(pr, re) of each supervised token, sentence by sentence."""
    table = model.model.encoder.embed_positions.table
    rows = []
    for row in range(len(positions)):
        real = data["attention_mask"][row].bool()
        own = positions[row, -1, real]
        length = torch.tensor([[len(own)]])
        pr = reordered_embeddings(own[None], length, table[: len(own)], model.config)[0]
        target = data["target_positions"][row, real]
        known = target != -100
        re = table[target[known].long()]
        rows.append(1 - torch.nn.functional.cosine_similarity(pr[known], re, dim=-1))
    return rows


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("fusion", ["none", "gate"])
def test_loss_is_lambda_times_the_mean_distance_of_each_sentence(fusion, side):
    model = exgre(fusion=fusion, reorder_weight=0.3)
    data = batch(*LENGTHS, side=side)
    data["target_positions"][1] = -100
    data["target_positions"][0, data["attention_mask"][0].argmax()] = -100
    out = model(**data, output_positions=True)
    words = data["labels"].ne(-100).sum(1)
    means = [
        row.mean() if len(row) else torch.zeros([]) for row in mean_distance(model, data, out.reordered_positions)
    ]
    expected = 0.3 * sum(count * mean for count, mean in zip(words, means, strict=True)) / words.sum()
    torch.testing.assert_close(out.auxiliary_loss, expected, atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(out.loss, out.nll_loss + out.auxiliary_loss)
    tokens = int(words.sum())
    torch.testing.assert_close(model(**data, num_items_in_batch=4 * tokens).auxiliary_loss * 4, out.auxiliary_loss)


def test_sum_adds_up_the_supervised_tokens():
    model = exgre(reorder_reduction="sum")
    data = batch(*LENGTHS)
    out = model(**data, output_positions=True)
    total = sum(row.sum() for row in mean_distance(model, data, out.reordered_positions))
    torch.testing.assert_close(out.auxiliary_loss, 0.6 * total / data["labels"].ne(-100).sum(), atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("loss", ["l2", "position"])
def test_other_losses_vanish_at_the_target_and_have_a_gradient_elsewhere(loss):
    model = exgre(reorder_loss=loss, window="hard", window_size=0.5)
    data = batch(*LENGTHS)
    at_target = model(**data, oracle_positions=data["target_positions"]).auxiliary_loss
    assert at_target.item() == pytest.approx(0, abs=1e-9)
    out = model(**data)
    net = model.model.encoder.layers[2].position_net.score.weight
    assert out.auxiliary_loss > 1e-3 and torch.autograd.grad(out.auxiliary_loss, net)[0].abs().max() > 1e-5


@pytest.mark.parametrize("fusion", ["none", "gate"])
@pytest.mark.parametrize("preset", list(ReorderingConfig.presets))
def test_without_any_supervision_the_loss_is_zero_and_all_parameters_get_gradients(preset, fusion):
    model = exgre(fusion=fusion, **ReorderingConfig.presets[preset]).train()
    data = batch(*LENGTHS)
    data["target_positions"].fill_(-100)
    out = model(**data)
    out.loss.backward()
    assert out.auxiliary_loss == 0
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    model.zero_grad()
    without = model(**{**data, "target_positions": None})
    assert without.auxiliary_loss is None
    without.loss.backward()
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("fields", [{"rdrop_alpha": 1.0}, {"cutoff": "token", "cutoff_alpha": 1.0}])
def test_both_copies_of_consistency_training_are_supervised(fields):
    data = batch(*LENGTHS)
    plain = exgre(dropout=0.0, label_smoothing=0.0).train()(**data)
    out = exgre(dropout=0.0, label_smoothing=0.0, **fields).train()(**data)
    assert out.consistency_loss.isfinite() and out.auxiliary_loss > plain.auxiliary_loss
    if "rdrop_alpha" in fields:
        torch.testing.assert_close(out.auxiliary_loss, 2 * plain.auxiliary_loss)
        torch.testing.assert_close(out.loss, 2 * plain.loss)


def test_rows_without_supervision_leave_the_gradient_of_the_others_alone():
    model = exgre(dropout=0.0)
    data = batch(*LENGTHS)
    data["target_positions"][1:] = -100
    tokens = data["labels"].ne(-100).sum()
    net = model.model.encoder.layers[2].position_net.score.weight
    together = torch.autograd.grad(model(**data).auxiliary_loss, net)[0]
    alone = {key: value[:1] for key, value in data.items()}
    expected = torch.autograd.grad(model(**alone, num_items_in_batch=tokens).auxiliary_loss, net)[0]
    torch.testing.assert_close(together, expected, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("fusion", ["none", "gate"])
def test_checkpointing_keeps_the_gradient_of_the_reordering_loss(fusion, reentrant):
    def gradients(checkpointing):
        model = exgre(fusion=fusion, dropout=0.0).train()
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": reentrant})
            model.enable_input_require_grads()
        model(**batch(*LENGTHS)).auxiliary_loss.backward()
        return [p.grad for p in model.model.encoder.layers.parameters() if p.grad is not None]

    for got, expected in zip(gradients(True), gradients(False), strict=True):
        torch.testing.assert_close(got, expected, atol=1e-6, rtol=1e-5)


def updated_weights(folder, size, accumulation):
    model = exgre(fusion="gate", dropout=0.0).train()
    data = batch(5, 9, 4, 12)
    data["target_positions"][2] = -100
    rows = [{key: value[row] for key, value in data.items()} for row in range(4)]
    arguments = Seq2SeqTrainingArguments(
        folder, per_device_train_batch_size=size, gradient_accumulation_steps=accumulation, max_steps=1, optim="sgd",
        learning_rate=0.1, max_grad_norm=0, lr_scheduler_type="constant", use_cpu=True, report_to=[], disable_tqdm=True,
        save_strategy="no",
    )  # fmt: skip
    before = torch.cat([p.detach().flatten() for p in model.parameters()])
    Seq2SeqTrainer(model=model, args=arguments, train_dataset=rows).train()
    return torch.cat([p.detach().flatten() for p in model.parameters()]) - before


def test_update_with_positions_does_not_depend_on_accumulation(tmp_path):
    whole = updated_weights(tmp_path, 4, 1)
    assert whole.abs().max() > 1e-3
    for size, accumulation in ((2, 2), (1, 4)):
        torch.testing.assert_close(updated_weights(tmp_path, size, accumulation), whole, atol=1e-6, rtol=0)


def test_trainer_keeps_the_column_and_logs_the_loss_apart(tmp_path):
    from datasets import Dataset

    rows = []
    for length in (5, 9, 4, 12):
        data = batch(length)
        rows.append({name: data[name][0].tolist() for name in ("input_ids", "labels", "target_positions")})
    arguments = DeepNMTTrainingArguments(
        str(tmp_path), max_tokens=30, max_steps=2, learning_rate=0.01, warmup_steps=0, logging_steps=1, use_cpu=True,
        report_to=[], disable_tqdm=True, save_strategy="no",
    )  # fmt: skip
    trainer = DeepNMTTrainer(
        model=exgre(label_smoothing=0.0),
        args=arguments,
        train_dataset=Dataset.from_list(rows),
        eval_dataset=Dataset.from_list(rows),
        data_collator=Seq2SeqCollator(1, extra_columns={"target_positions": -100.0}),
    )
    trainer.train()
    logged = [row for row in trainer.state.log_history if "auxiliary_loss" in row]
    assert len(logged) == 2
    for row in logged:
        assert row["auxiliary_loss"] > 0.01
        assert row["loss"] == pytest.approx(row["nll_loss"] + row["auxiliary_loss"], rel=1e-4)
    assert trainer.evaluate()["eval_auxiliary_loss"] > 0.01


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: p[:, :-1], r"`target_positions` has shape \(3, 8\), but the source is \(3, 9\)"),
        (lambda p: p.where(p != 3, 20.0), "row 0 of the batch is 20 at token 1, but the sentence has 6 tokens"),
        (lambda p: p.where(p != 3, -1.0), "positions run from 0 to 5"),
        (lambda p: p.where(p != 3, math.nan), "is nan at token 1"),
    ],
)
def test_wrong_positions_are_refused(change, message):
    data = batch(*LENGTHS)
    data["target_positions"] = change(data["target_positions"])
    with pytest.raises(ValueError, match=message):
        exgre()(**data)
    data["oracle_positions"] = data.pop("target_positions")
    with pytest.raises(ValueError, match=message.replace("target_positions", "oracle_positions")):
        exgre()(**data)


def test_dropped_layers_repeat_positions_and_leave_the_loss_finite():
    model = exgre(encoder_layerdrop=0.6).train()
    for _ in range(8):
        out = model(**batch(*LENGTHS), output_positions=True)
        assert out.loss.isfinite() and out.reordered_positions.shape == (3, 3, 9)
        assert (out.reordered_positions[:, -1].ne(-100) == batch(*LENGTHS)["attention_mask"].bool()).all()


@pytest.mark.parametrize("fusion", ["none", "gate"])
def test_low_precision_keeps_positions_in_fp32(fusion):
    data = batch(*LENGTHS)
    model = exgre(fusion=fusion)
    expected = model(**data)
    with torch.autocast("cpu", torch.bfloat16):
        cast = model(**data, output_positions=True)
    half = model.bfloat16()(**data, output_positions=True)
    for out in (cast, half):
        assert out.reordered_positions.dtype == torch.float32 == out.auxiliary_loss.dtype
        torch.testing.assert_close(out.auxiliary_loss, expected.auxiliary_loss, atol=0.03, rtol=0.2)


def test_compiles_in_one_graph():
    model = exgre(fusion="gate")
    data = batch(*LENGTHS)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    expected = model(**data, output_positions=True)
    out = compiled(**data, output_positions=True)
    torch.testing.assert_close(out.loss, expected.loss)
    torch.testing.assert_close(out.reordered_positions, expected.reordered_positions)


# --- configuration ---


def test_presets_are_named_settings():
    assert ReorderingConfig.from_preset("exgre-paper").to_dict() == ReorderingConfig().to_dict()
    config = ReorderingConfig.from_preset("exgre-trainable", fusion="gate", d_model=64)
    assert (config.window, config.window_size, config.fusion, config.d_model) == ("full", 2.0, "gate", 64)
    with pytest.raises(ValueError, match="exgre-paper, exgre-trainable"):
        ReorderingConfig.from_preset("exgre")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"fusion": "sum"}, "none, gate"),
        ({"position_net": "mlp"}, "luong, scalar, linear"),
        ({"window_size": 0.4}, "at least 0.5"),
        ({"window": "full", "window_size": 0}, "above 0"),
        ({"reorder_layers": [0, 3]}, "encoder layers 0 to 2"),
        ({"reorder_layers": [1, 1]}, "at most once"),
        ({"reorder_layers": [], "fusion": "gate"}, 'set `fusion="none"`'),
        ({"reorder_weight": -1}, "at least 0"),
        ({"reorder_loss": "l1"}, "cosine, l2, position"),
    ],
)
def test_contradictions_are_refused(fields, message):
    with pytest.raises(Exception, match=message):
        tiny_config("reordering", **{"fusion": "none", **fields})


# --- what is learned ---


def toy_model(**fields):
    torch.manual_seed(0)
    sizes = {
        "vocab_size": 24, "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
        "decoder_attention_heads": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_position_embeddings": 64,
        "dropout": 0.0, "label_smoothing": 0.0,
    }  # fmt: skip
    return ReorderingForConditionalGeneration(ReorderingConfig.from_preset(**{**sizes, **fields})).train()


def toy_batch(order):
    """Random words, and the same words with word j at place order[j]; (batch, length) with the end of the sentence."""
    rows, length = order.shape
    words, end = torch.randint(4, 24, (rows, length)), torch.full((rows, 1), 2)
    moved = torch.empty_like(words).scatter_(1, order, words)
    positions = torch.cat([order, torch.full((rows, 1), length)], dim=1).float()
    return {"input_ids": torch.cat([words, end], 1), "labels": torch.cat([moved, end], 1)}, positions


def trained(model, make_batch, updates, learning_rate):
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    torch.manual_seed(1)
    for _ in range(updates):
        out = model(**make_batch())
        optimizer.zero_grad()
        out.loss.backward()
        optimizer.step()
    return model.eval()


def reversal():
    data, positions = toy_batch(torch.arange(20).flip(0).expand(16, -1))
    return {**data, "target_positions": positions}


@pytest.mark.parametrize("preset", list(ReorderingConfig.presets))
def test_trainable_preset_learns_to_reverse_twenty_positions(preset):
    """The printed setting, whose loss has no gradient to the positions, does not."""
    model = trained(toy_model(name=preset), reversal, updates=150, learning_rate=3e-3)
    data = reversal()
    error = (model(**data, output_positions=True).reordered_positions[:, -1] - data["target_positions"]).abs().mean()
    if preset == "exgre-trainable":
        assert error < 1
    else:
        assert error > 5


def test_true_target_order_as_positions_lowers_the_loss():
    """Section 3: what the order of the target is worth. Here no model can guess it, for it is drawn at random."""

    def batch_of(oracle):
        order = torch.stack([torch.randperm(8) for _ in range(32)])
        data, positions = toy_batch(order)
        return {**data, "oracle_positions": positions} if oracle else data

    losses = {}
    for oracle in (False, True):
        model = toy_model(name="exgre-trainable")
        model = trained(model, partial(batch_of, oracle), updates=120, learning_rate=5e-3)
        losses[oracle] = model(**batch_of(oracle)).nll_loss
    assert losses[True] < 0.5 * losses[False]


def test_given_positions_reach_decoding():
    model = exgre()
    data = batch(*LENGTHS)
    source = {name: data[name] for name in ("input_ids", "attention_mask")}
    given = data["target_positions"].clone()
    given[0, 2] = -100
    out = model.get_encoder()(**source, oracle_positions=given)
    known = given != -100
    assert (out.reordered_positions[:, 0][known] == given[known]).all()
    assert 0 <= out.reordered_positions[0, 0, 2] <= 5
    options = {**source, "num_beams": 2, "max_new_tokens": 8, "output_scores": True, "return_dict_in_generate": True}
    plain, changed = (model.generate(**options, **more).sequences_scores for more in ({}, {"oracle_positions": given}))
    assert (plain - changed).abs().min() > 1e-4
    uncached = model.generate(**options, oracle_positions=given, use_cache=False).sequences_scores
    torch.testing.assert_close(uncached, changed, atol=1e-5, rtol=1e-5)
