"""In its Marian setting the backbone is `MarianMTModel`: same weights, same logits, same gradients, same translations."""

import pytest
import torch
from tiny import spread
from transformers import MarianConfig, MarianMTModel, T5Config

from hf_deepnmt.models import ARCHITECTURES, DeepNMTForConditionalGeneration


SETTINGS = {
    "shared": {},
    "swish": {"activation_function": "swish"},
    "unscaled": {"scale_embedding": False},
    "two vocabularies": {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 47},
}


@pytest.fixture(params=SETTINGS, scope="module")
def marian(request, tmp_path_factory):
    config = MarianConfig(
        vocab_size=41, d_model=16, encoder_layers=3, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=24, max_position_embeddings=64, pad_token_id=40,
        eos_token_id=0, decoder_start_token_id=40, forced_eos_token_id=0,
        **{"scale_embedding": True, **SETTINGS[request.param]},
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("marian")
    model = spread(MarianMTModel(config)).eval()
    model.final_logits_bias.normal_(generator=torch.Generator().manual_seed(0))
    model.save_pretrained(folder)
    return folder


def batch():
    source = torch.arange(1, 22).reshape(3, 7)
    source[:, -1] = 0
    source[1, 5:] = 40
    target = torch.arange(2, 20).reshape(3, 6)
    target[2, 4:] = -100
    return {"input_ids": source, "attention_mask": source.ne(40).long(), "labels": target}


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_logits_loss_and_gradients_are_marians(marian, implementation):
    theirs = MarianMTModel.from_pretrained(marian, attn_implementation=implementation).eval()
    ours = DeepNMTForConditionalGeneration.from_marian(marian)
    ours.set_attn_implementation(implementation)
    expected, got = theirs(**batch()), ours(**batch())
    torch.testing.assert_close(got.logits, expected.logits, rtol=0, atol=1e-6)
    torch.testing.assert_close(got.loss, expected.loss)
    expected.loss.backward()
    got.loss.backward()
    gradients = {name: parameter.grad for name, parameter in ours.named_parameters()}
    compared = 0
    for name, parameter in theirs.named_parameters():
        if "embed_positions" not in name and parameter.grad is not None:
            torch.testing.assert_close(gradients[name], parameter.grad, rtol=1e-5, atol=1e-6)
            compared += 1
    assert compared > 40


def test_translations_are_marians(marian):
    theirs = MarianMTModel.from_pretrained(marian).eval()
    ours = DeepNMTForConditionalGeneration.from_marian(marian)
    inputs = {key: value for key, value in batch().items() if key != "labels"}
    for num_beams in (1, 3):
        options = {"num_beams": num_beams, "max_new_tokens": 9}
        assert torch.equal(ours.generate(**inputs, **options), theirs.generate(**inputs, **options))


def test_warm_start_reaches_every_architecture(marian, model_type):
    architecture = ARCHITECTURES[model_type]
    model = architecture.head.from_marian(marian, **(architecture.neutral or {}))
    theirs = MarianMTModel.from_pretrained(marian).eval()
    assert torch.equal(model.model.encoder.embed_tokens.weight, theirs.model.encoder.embed_tokens.weight)
    if architecture.neutral is not None:
        torch.testing.assert_close(model(**batch()).logits, theirs(**batch()).logits, rtol=0, atol=1e-5)


def test_other_checkpoints_are_refused(tmp_path):
    T5Config().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="holds a 't5' model"):
        DeepNMTForConditionalGeneration.from_marian(tmp_path)


def test_weights_that_do_not_fit_are_named(marian):
    with pytest.raises(ValueError, match="do not fit.*encoder.layers.2"):
        DeepNMTForConditionalGeneration.from_marian(marian, encoder_layers=2)
