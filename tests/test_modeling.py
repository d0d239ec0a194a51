"""Properties that every architecture keeps. A new row of `ARCHITECTURES` is picked up by itself."""

import copy
import logging

import pytest
import torch
from tiny import labels, sentences, spread, tiny_config, tiny_model
from transformers import AutoModel, AutoModelForSeq2SeqLM, Seq2SeqTrainer, Seq2SeqTrainingArguments

from hf_deepnmt.models import ARCHITECTURES, DeepNMTConfig, DeepNMTForConditionalGeneration
from hf_deepnmt.models.modeling_deepnmt import DeepNMTSinusoidalPositions


def batch(*lengths, **kwargs):
    return {**sentences(*lengths, **kwargs), "labels": labels(*(max(2, length - 1) for length in lengths))}


# --- loss ---


def test_loss_is_cross_entropy_of_each_label_in_fp32(model_type):
    model = tiny_model(model_type)
    data = batch(6, 4)
    out = model(**data)
    expected = torch.nn.functional.cross_entropy(out.logits.flatten(0, 1), data["labels"].flatten())
    torch.testing.assert_close(out.nll_loss, expected)
    assert model.bfloat16()(**data).loss.dtype == torch.float32


def test_labels_are_smoothed_in_training_only():
    model = tiny_model(dropout=0.0, label_smoothing=0.2)
    data = batch(6, 4)
    logits = model(**data).logits
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), data["labels"].flatten(), label_smoothing=0.2)
    torch.testing.assert_close(model.train()(**data).loss, expected)
    out = model.eval()(**data)
    assert torch.equal(out.loss, out.nll_loss) and out.loss != expected


def test_loss_divides_by_the_tokens_of_the_optimizer_step(model_type):
    model = tiny_model(model_type)
    data = batch(6, 4)
    tokens = int((data["labels"] != -100).sum())
    torch.testing.assert_close(model(**data, num_items_in_batch=3 * tokens).loss * 3, model(**data).loss)


def test_batch_without_labels_to_predict_gives_zero(model_type):
    model = tiny_model(model_type).train()
    data = batch(6, 4)
    data["labels"] = torch.full_like(data["labels"], -100)
    loss = model(**data).loss
    loss.backward()
    assert loss == 0 and all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def updated_weights(model_type, folder, size, accumulation):
    model = tiny_model(model_type, dropout=0.0).train()
    data = batch(5, 9, 4, 12)
    rows = [{key: value[row] for key, value in data.items()} for row in range(4)]
    arguments = Seq2SeqTrainingArguments(
        folder, per_device_train_batch_size=size, gradient_accumulation_steps=accumulation, max_steps=1, optim="sgd",
        learning_rate=0.1, max_grad_norm=0, lr_scheduler_type="constant", use_cpu=True, report_to=[], disable_tqdm=True,
        save_strategy="no",
    )  # fmt: skip
    Seq2SeqTrainer(model=model, args=arguments, train_dataset=rows).train()
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def test_update_does_not_depend_on_accumulation(model_type, tmp_path):
    whole = updated_weights(model_type, tmp_path, 4, 1)
    for size, accumulation in ((2, 2), (1, 4)):
        torch.testing.assert_close(updated_weights(model_type, tmp_path, size, accumulation), whole, atol=1e-6, rtol=0)


# --- padding and positions ---


@pytest.mark.parametrize("norm_style", ["post", "pre"])
def test_sentence_alone_equals_itself_padded_left_or_right(model_type, norm_style):
    model = tiny_model(model_type, norm_style=norm_style)
    target = labels(4, 9, 6)
    lengths = (5, 12, 7)
    together = {
        side: model(**sentences(*lengths, width=15, side=side), labels=target).logits for side in ("right", "left")
    }
    for row, (length, words) in enumerate(zip(lengths, (4, 9, 6), strict=True)):
        alone = {key: value[row : row + 1, :length] for key, value in sentences(*lengths).items()}
        logits = model(**alone, labels=target[row : row + 1, :words]).logits
        for padded in together.values():
            torch.testing.assert_close(padded[row : row + 1, :words], logits, atol=1e-4, rtol=1e-4)


def test_missing_mask_is_inferred_from_padding(model_type):
    model = tiny_model(model_type)
    data = batch(5, 9, 3)
    ids = {"input_ids": data["input_ids"]}
    assert torch.equal(model(**data).logits, model(**ids, labels=data["labels"]).logits)
    assert torch.equal(model.generate(**sentences(5, 9, 3)), model.generate(**ids))


def test_inputs_may_be_longer_than_the_position_table(model_type):
    data = batch(80)
    short = tiny_model(model_type)
    long = tiny_model(model_type, max_position_embeddings=128)
    assert torch.equal(short(**data).logits, long(**data).logits)
    assert short.generate(**sentences(80), max_new_tokens=70, min_new_tokens=70).shape[1] == 71


def test_sinusoids_hold_sines_before_cosines_and_are_not_saved(model_type):
    table = DeepNMTSinusoidalPositions(50, 16).table
    position, dimension = 37, 3
    angle = torch.tensor(position / 10000 ** (2 * dimension / 16))
    torch.testing.assert_close(table[position, [dimension, 8 + dimension]], torch.stack([angle.sin(), angle.cos()]))
    assert not any("positions" in name for name in tiny_model(model_type).state_dict())


# --- decoding ---


@pytest.mark.parametrize("num_beams", [1, 3])
def test_cached_decoding_equals_uncached(model_type, num_beams):
    model = tiny_model(model_type).double()
    options = {**sentences(7, 4, 9), "num_beams": num_beams, "max_new_tokens": 12, "min_new_tokens": 12}
    plain = model.generate(**options, use_cache=False)
    assert torch.equal(model.generate(**options), plain)
    assert torch.equal(model.generate(**options, cache_implementation="static"), plain)


def test_cached_logits_equal_the_full_pass_in_pieces_of_any_size(model_type):
    model = tiny_model(model_type).double()
    source = sentences(7, 4)
    target = torch.randint(5, 60, (2, 8))
    whole = model(**source, decoder_input_ids=target).logits
    cache, pieces = None, []
    for piece in (slice(0, 3), slice(3, 4), slice(4, 7), slice(7, 8)):
        out = model(**source, decoder_input_ids=target[:, piece], cache=cache, use_cache=True)
        cache = out.cache
        pieces.append(out.logits)
    torch.testing.assert_close(torch.cat(pieces, 1), whole, atol=1e-9, rtol=1e-9)


def test_beams_of_a_sentence_do_not_depend_on_its_batch(model_type):
    model = tiny_model(model_type)
    lengths = (4, 9, 6, 12)
    data = sentences(*lengths)
    options = {"num_beams": 3, "max_new_tokens": 12}
    together = model.generate(**data, **options)
    for row, length in enumerate(lengths):
        alone = model.generate(**{key: value[row : row + 1, :length] for key, value in data.items()}, **options)[0]
        assert [i for i in together[row].tolist() if i != 1] == [i for i in alone.tolist() if i != 1]


def test_default_length_limit_follows_the_source():
    model = tiny_model()
    model.generation_config.eos_token_id = None
    assert model.generate(**sentences(5)).shape[1] == 61
    assert model.generate(**sentences(5), max_new_tokens=4).shape[1] == 5
    assert model.generate(**sentences(60)).shape[1] == 64


def test_stated_limits_raise_no_warning(caplog):
    model = tiny_model()
    logger = logging.getLogger("transformers")
    logger.addHandler(caplog.handler)
    try:
        for options in ({"max_new_tokens": 4}, {"max_length": 5}, {}):
            model.generate(**sentences(5), **options, num_beams=2)
    finally:
        logger.removeHandler(caplog.handler)
    assert caplog.text == ""


def test_encoder_runs_once_per_sentence(model_type):
    model = tiny_model(model_type)
    calls = []
    model.get_encoder().register_forward_hook(lambda *_: calls.append(1))
    model.generate(**sentences(6, 4), num_beams=3, max_new_tokens=10, min_new_tokens=10)
    assert len(calls) == 1


# --- attention implementations ---


@pytest.mark.parametrize("implementation", ["sdpa", pytest.param("flex_attention", marks=pytest.mark.slow)])
def test_implementations_agree_with_eager(model_type, implementation):
    # four times as wide, so half the spread; else recurrent architectures amplify fp32 rounding beyond the tolerance
    model = spread(tiny_model(model_type, d_model=64), std=0.15)
    supported = {"sdpa": model._supports_sdpa, "flex_attention": model._supports_flex_attn}[implementation]
    if not supported:
        pytest.skip(f"{model_type} declares no support for {implementation}")
    data = batch(6, 4)
    model.set_attn_implementation("eager")
    expected = model(**data).logits
    model.set_attn_implementation(implementation)
    with torch.no_grad():
        torch.testing.assert_close(model(**data).logits, expected, atol=1e-4, rtol=1e-4)


def test_attention_weights_come_under_every_implementation(model_type):
    model = tiny_model(model_type)
    data = batch(6, 4)
    model.set_attn_implementation("sdpa")
    plain = model(**data).logits
    out = model(**data, output_attentions=True)
    torch.testing.assert_close(out.logits, plain, atol=1e-4, rtol=1e-4)
    assert model.config._attn_implementation == "sdpa"
    sizes = {"encoder_attentions": (3, 6, 6), "decoder_attentions": (2, 5, 5), "cross_attentions": (2, 5, 6)}
    for name, (layers, queries, keys) in sizes.items():
        weights = getattr(out, name)
        assert len(weights) == layers and weights[0].shape == (2, 4, queries, keys)
        torch.testing.assert_close(weights[0].sum(-1), torch.ones(2, 4, queries))
    assert out.cross_attentions[0][1, :, :, 4:].abs().max() == 0


def test_generation_returns_attention_weights():
    out = tiny_model().generate(
        **sentences(6), max_new_tokens=3, min_new_tokens=3, output_attentions=True, return_dict_in_generate=True
    )
    assert out.cross_attentions[1][0].shape == (1, 4, 1, 6)


def test_attention_weights_leave_decoding_with_a_static_cache_as_it_is(model_type):
    model = tiny_model(model_type).double()
    model.set_attn_implementation("sdpa")
    options = {**sentences(7, 4, 9), "max_new_tokens": 6, "min_new_tokens": 6, "cache_implementation": "static"}
    returned = model.generate(**options, output_attentions=True, return_dict_in_generate=True)
    assert torch.equal(returned.sequences, model.generate(**options))


# --- training ---


def gradients(model, data):
    loss = model(**data).loss
    loss.backward()
    return [loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]


@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing_changes_nothing(model_type, reentrant):
    plain = gradients(tiny_model(model_type, dropout=0.0).train(), batch(6, 4))
    model = tiny_model(model_type, dropout=0.0).train()
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    if reentrant:
        model.enable_input_require_grads()
    for got, expected in zip(gradients(model, batch(6, 4)), plain, strict=True):
        torch.testing.assert_close(got, expected, atol=1e-6, rtol=1e-5)


def test_layer_drop_keeps_one_state_per_layer():
    model = tiny_model(encoder_layerdrop=0.6, decoder_layerdrop=0.6).train()
    assert all(model(**batch(6, 4)).loss.isfinite() for _ in range(10))
    out = model.eval()(**batch(6, 4), output_hidden_states=True)
    assert len(out.encoder_hidden_states) == 4 and len(out.decoder_hidden_states) == 3


def test_neutral_setting_equals_the_baseline(model_type):
    architecture = ARCHITECTURES[model_type]
    if architecture.neutral is None:
        pytest.skip(f"{model_type} has no setting that equals the baseline")
    baseline = tiny_model()
    model = architecture.head(tiny_config(model_type, **architecture.neutral)).eval()
    model.load_state_dict(baseline.state_dict(), strict=False)
    assert torch.equal(model(**batch(6, 4)).logits, baseline(**batch(6, 4)).logits)


# --- saving ---


@pytest.mark.parametrize("tie", ["none", "decoder", "all", "embeddings"])
def test_tying_survives_saving(model_type, tie, tmp_path):
    sharing = (
        {"share_encoder_decoder_embeddings": True, "tie_word_embeddings": False}
        if tie == "embeddings"
        else {"tie": tie}
    )
    model = tiny_model(model_type, **sharing)
    assert model.config.tie == tie
    model.save_pretrained(tmp_path)
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    source, target = loaded.model.encoder.embed_tokens.weight, loaded.model.decoder.embed_tokens.weight
    assert (source is target) == (tie in ("all", "embeddings"))
    assert (loaded.lm_head.weight is target) == (tie in ("all", "decoder"))
    assert loaded.config.tie == tie and loaded.num_parameters() == model.num_parameters()
    assert torch.equal(loaded(**batch(6, 4)).logits, model(**batch(6, 4)).logits)


def test_auto_classes_load_both_heads(model_type, tmp_path):
    model = tiny_model(model_type)
    model.save_pretrained(tmp_path)
    assert type(AutoModelForSeq2SeqLM.from_pretrained(tmp_path)) is ARCHITECTURES[model_type].head
    base = AutoModel.from_pretrained(tmp_path)
    assert type(base) is ARCHITECTURES[model_type].model
    source = sentences(6)
    expected = model.model(**source, decoder_input_ids=source["input_ids"]).last_hidden_state
    assert torch.equal(base(**source, decoder_input_ids=source["input_ids"]).last_hidden_state, expected)


def test_saving_leaves_the_config_as_it_was(model_type, tmp_path):
    model = tiny_model(model_type)
    model.save_pretrained(tmp_path)
    before = copy.deepcopy(model.config.to_dict())
    model.save_pretrained(tmp_path)
    assert model.config.to_dict() == before and not hasattr(model.config, "custom_pipelines")


def test_vocabularies_can_grow_on_either_side(model_type):
    shared = tiny_model(model_type, output_bias=True)
    shared.resize_token_embeddings(70)
    assert shared(**batch(6, 4)).logits.shape[-1] == 70 and shared.lm_head.weight is shared.model.shared.weight
    separate = tiny_model(model_type, tie="decoder", decoder_vocab_size=50, output_bias=True)
    separate.resize_token_embeddings(70)
    separate.resize_decoder_token_embeddings(55)
    assert (separate.config.vocab_size, separate.config.decoder_vocab_size) == (70, 55)
    data = batch(6, 4)
    data["labels"] = data["labels"].clamp(max=54)
    assert separate(**data).logits.shape[-1] == 55 and separate.lm_head.bias.shape == (55,)
    with pytest.raises(ValueError, match="resize_token_embeddings"):
        shared.resize_decoder_token_embeddings(71)


# --- configuration ---


def test_parameter_counts_are_those_of_the_papers():
    sizes = {
        "vocab_size": 8389,
        "decoder_vocab_size": 6428,
        "d_model": 256,
        "encoder_ffn_dim": 1024,
        "decoder_ffn_dim": 1024,
    }
    for layers, count in ((3, 10_974_748), (4, 12_817_948), (6, 16_504_348)):
        config = DeepNMTConfig(**sizes, encoder_layers=layers, decoder_layers=layers, tie="none", output_bias=True)
        with torch.device("meta"):
            assert DeepNMTForConditionalGeneration(config).num_parameters() == count
    small = DeepNMTConfig(
        vocab_size=10152, d_model=256, encoder_ffn_dim=512, decoder_ffn_dim=512, encoder_attention_heads=4,
        decoder_attention_heads=4, norm_style="pre", final_norm=True,
    )  # fmt: skip
    with torch.device("meta"):
        assert DeepNMTForConditionalGeneration(small).num_parameters() == 10_507_264


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"d_model": 18}, "multiple of `encoder_attention_heads`"),
        ({"norm_style": "both"}, "post, pre"),
        ({"decoder_vocab_size": 9}, 'set `tie="decoder"`'),
        ({"tie": "some"}, "none, decoder, all"),
        ({"dropout": 1.0}, "below 1"),
        ({"init_scheme": "zeros"}, "xavier, normal, fan_in, depth_scaled"),
        ({"decoder_layers": 0}, "at least 1"),
        ({"pad_token_id": None}, "must be set"),
        ({"pad_token_id": 99}, "below `vocab_size`"),
    ],
)
def test_contradictions_are_refused_with_a_remedy(fields, message):
    with pytest.raises(Exception, match=message):
        tiny_config(**fields)


def test_pre_norm_has_a_norm_at_the_top_unless_told_otherwise():
    for style, final, expected in (
        ("pre", None, True),
        ("post", None, False),
        ("pre", False, False),
        ("post", True, True),
    ):
        assert (tiny_model(norm_style=style, final_norm=final).model.decoder.layer_norm is not None) == expected


def test_initialisations_have_the_stated_spread():
    def model(scheme, **kwargs):
        torch.manual_seed(0)
        sizes = {"vocab_size": 1000, "d_model": 128, "encoder_ffn_dim": 512, "encoder_layers": 4}
        return DeepNMTForConditionalGeneration(tiny_config(init_scheme=scheme, **{**sizes, **kwargs}))

    def bound(module):
        return module.weight.abs().max().item()

    xavier = (6 / (128 + 512)) ** 0.5
    first, last = model("xavier").model.encoder.layers[0].fc1, model("xavier").model.encoder.layers[3].fc1
    assert bound(first) == pytest.approx(xavier, rel=0.01) and bound(last) == pytest.approx(xavier, rel=0.01)
    for exponent in (0.5, 0.25):
        scaled = model("depth_scaled", ds_exponent=exponent).model.encoder.layers[3].fc1
        assert bound(scaled) == pytest.approx(xavier * 4**-exponent, rel=0.01)
    fan_in = model("fan_in", tie="none").model.encoder
    assert bound(fan_in.layers[1].fc2) == pytest.approx(512**-0.5, rel=0.01)
    assert fan_in.layers[1].fc2.bias.abs().max() > 0
    assert fan_in.embed_tokens.weight.std().item() == pytest.approx(128**-0.5, rel=0.02)
    assert fan_in.embed_tokens.weight[1].abs().max() == 0
    assert model("normal").model.encoder.layers[1].fc2.weight.std().item() == pytest.approx(0.02, rel=0.02)


def test_every_architecture_says_that_its_attention_can_be_chosen(model_type, monkeypatch):
    # whether Transformers thinks so is kept from a parent class that was asked before
    head = ARCHITECTURES[model_type].head
    for parent in head.__mro__:
        if "_can_set_attn_implementation_cached_value" in vars(parent):
            monkeypatch.delattr(parent, "_can_set_attn_implementation_cached_value")
    assert head._can_set_attn_implementation()
    model = tiny_model(model_type)
    model.set_attn_implementation("eager")
    assert model.config._attn_implementation == "eager"


def test_old_cache_name_still_works(model_type):
    model = tiny_model(model_type)
    source = sentences(5)
    pieces = []
    for name in ("cache", "past_key_values"):
        cache = model(**source, decoder_input_ids=torch.tensor([[0, 9]]), use_cache=True).cache
        pieces.append(model(**source, decoder_input_ids=torch.tensor([[10]]), **{name: cache}).logits)
    assert torch.equal(*pieces)


def test_adapters_wrap_and_merge(model_type):
    peft = pytest.importorskip("peft", reason="the extra `dev` brings peft")
    config = peft.LoraConfig(task_type="SEQ_2_SEQ_LM", target_modules=["q_proj", "v_proj"], r=2)
    wrapped = peft.get_peft_model(tiny_model(model_type), config).eval()
    options = {**sentences(6, 4), "num_beams": 2, "max_new_tokens": 5}
    before = wrapped.generate(**options)
    assert torch.equal(wrapped.merge_and_unload().generate(**options), before)


def test_spread_changes_weights():
    assert not torch.equal(
        spread(tiny_model()).lm_head.weight, DeepNMTForConditionalGeneration(tiny_config()).lm_head.weight
    )
