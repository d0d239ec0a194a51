"""Small models with random weights large enough that outputs differ, and a tokenizer of words, for the pipelines."""

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import nn
from transformers import MarianConfig, MarianMTModel, PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

from hf_deepnmt.models.configuration_deepnmt import DeepNMTConfig
from hf_deepnmt.models.modeling_deepnmt import DeepNMTForConditionalGeneration


SIZES = {
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
}
SPECIALS = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 0}
WORDS = [f"w{number}" for number in range(44)]


def make_tokenizer(extra=(), **kwargs):
    vocabulary = {token: index for index, token in enumerate(["<s>", "<pad>", "</s>", "<unk>", *WORDS, *extra])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    names = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names, **kwargs)


def make_loud(model, seed=0, std=1.5):
    torch.manual_seed(seed)
    for parameter in model.parameters():
        if parameter.requires_grad and parameter.dim() > 1:
            nn.init.normal_(parameter, std=std)
    return model.eval()


def make_marian(seed=1, **kwargs):
    settings = {"vocab_size": 48, "max_position_embeddings": 64, "forced_eos_token_id": None, **SIZES, **SPECIALS}
    return make_loud(MarianMTModel(MarianConfig(**{**settings, **kwargs})), seed)


def make_forcing_marian():
    return make_marian(forced_eos_token_id=2)


def make_deepnmt(**kwargs):
    settings = {"vocab_size": 48, "max_position_embeddings": 16, **SIZES, **kwargs}
    return make_loud(DeepNMTForConditionalGeneration(DeepNMTConfig(**settings)))


def end_after(tokens):
    """Make every hypothesis end after this many tokens."""

    def processor(ids, scores):
        allowed = torch.full_like(scores, float("-inf"))
        column = 2 if ids.shape[1] >= tokens else slice(4, None)
        allowed[:, column] = scores[:, column]
        return allowed

    return transformers.LogitsProcessorList([processor])


def make_t5(**kwargs):
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
    return make_loud(
        T5ForConditionalGeneration(
            T5Config(vocab_size=100, eos_token_id=2, pad_token_id=1, decoder_start_token_id=1, **sizes, **kwargs)
        )
    )
