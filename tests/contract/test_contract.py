"""Transformers' common model tests on every architecture, as a model outside the library."""

import unittest

import pytest
from transformers.models.auto import modeling_auto
from transformers.testing_utils import torch_device

from hf_deepnmt.models import ARCHITECTURES


pytest.importorskip("parameterized", reason="the extra `dev` brings parameterized")
import upstream


if not upstream.folders():
    pytest.skip("no source archive: `python tests/contract/upstream.py` fetches it", allow_module_level=True)

LIBRARY = upstream.load()
TINY = {
    "vocab_size": 99,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 8,
    "decoder_ffn_dim": 8,
    "max_position_embeddings": 100,
}
FIRST_WORD = 4


def model_tester(architecture):
    class Tester:
        """The interface that the common tests ask of a model's own test file."""

        is_training = True
        batch_size, seq_length = 5, 7
        encoder_seq_length = decoder_seq_length = key_length = seq_length

        def __init__(self, parent):
            self.parent = parent
            config = self.get_config()
            self.vocab_size = config.vocab_size
            self.decoder_vocab_size = config.decoder_vocab_size
            self.hidden_size = config.d_model
            self.num_hidden_layers = config.decoder_layers
            self.num_attention_heads = config.decoder_attention_heads
            for name in ("pad", "eos", "bos", "decoder_start"):
                setattr(self, f"{name}_token_id", getattr(config, f"{name}_token_id"))

        def get_config(self):
            return architecture.config(**{**TINY, **architecture.tiny})

        def words(self):
            return (LIBRARY.ids_tensor([self.batch_size, self.seq_length], 90) + FIRST_WORD).to(torch_device)

        def prepare_config_and_inputs(self):
            config = self.get_config()
            source, target = self.words(), self.words()
            source[:, -1] = config.eos_token_id
            return config, {
                "input_ids": source,
                "attention_mask": source.ne(config.pad_token_id),
                "decoder_input_ids": target,
                "decoder_attention_mask": target.ne(config.pad_token_id),
            }

        prepare_config_and_inputs_for_common = prepare_config_and_inputs

    return Tester


def contract(model_type, architecture):
    # several tests look class names up in tables that only the library's own models are in
    modeling_auto.MODEL_MAPPING_NAMES[model_type] = architecture.model.__name__
    modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES[model_type] = architecture.head.__name__

    def setup(self):
        self.model_tester = model_tester(architecture)(self)
        self.config_tester = LIBRARY.ConfigTester(self, config_class=architecture.config, d_model=16)

    def test_config(self):
        self.config_tester.run_common_tests()

    attributes = {
        "all_model_classes": (architecture.model, architecture.head),
        "is_encoder_decoder": True,
        "test_can_init_all_missing_weights_before_2023": True,
        "setUp": setup,
        "test_config": test_config,
        "__module__": __name__,
    }
    bases = (LIBRARY.ModelTesterMixin, LIBRARY.GenerationTesterMixin, unittest.TestCase)
    return type(f"{architecture.head.__name__}ContractTest", bases, attributes)


for _model_type, _architecture in ARCHITECTURES.items():
    _test = contract(_model_type, _architecture)
    globals()[_test.__name__] = _test
del _test
