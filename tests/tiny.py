"""Small models, batches and labels that the tests share."""

from pathlib import Path

import torch

from hf_deepnmt.models import ARCHITECTURES
from hf_deepnmt.tokenization import train_tokenizer


PAD, EOS = 1, 2
TINY = {
    "vocab_size": 61,
    "d_model": 16,
    "encoder_layers": 3,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "max_position_embeddings": 64,
}
RECIPE_FOLDER = Path(__file__).parents[1] / "training" / "recipes"
RECIPES = sorted(RECIPE_FOLDER.glob("*.yaml"))
# overrides that make any recipe of the folder run in seconds, on generated data
SMALL = [
    "data.corpus=generated", "data.path=null", "data.size=60", "data.preprocess=false", "tokenizer.vocab_size=400",
    "model.d_model=16", "model.encoder_layers=2", "model.decoder_layers=2", "model.encoder_ffn_dim=16",
    "model.decoder_ffn_dim=16", "training.max_steps=2", "training.max_tokens=600", "training.eval_steps=2",
    "training.save_steps=1", "training.logging_steps=1", "training.eval_max_sentences=4", "training.disable_tqdm=true",
    "training.bf16=false", "training.warmup_steps=1", "evaluation.num_beams=1",
]  # fmt: skip


def tiny_config(model_type: str = "deepnmt", **overrides):
    architecture = ARCHITECTURES[model_type]
    return architecture.config(**{**TINY, **architecture.tiny, **overrides})


def spread(model, std=0.3):
    """Weights large enough for differences to show."""
    unique = {id(p): p for p in model.parameters() if p.dim() > 1}.values()
    with torch.no_grad():
        for index, parameter in enumerate(unique):
            generator = torch.Generator().manual_seed(index)
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * std)
    return model


def tiny_model(model_type: str = "deepnmt", seed=0, **overrides):
    torch.manual_seed(seed)
    return spread(ARCHITECTURES[model_type].head(tiny_config(model_type, **overrides))).eval()


def sentences(*lengths, width=None, side="right", vocab=61):
    """Sentences that end in EOS, as (batch, width) ids and mask; a row's content depends on its index only."""
    width = width or max(lengths)
    ids = torch.full((len(lengths), width), PAD)
    for row, length in enumerate(lengths):
        place = slice(0, length) if side == "right" else slice(width - length, width)
        words = 5 + (torch.arange(length - 1) * 7 + 3 * row) % (vocab - 6)
        ids[row, place] = torch.cat([words, torch.tensor([EOS])])
    return {"input_ids": ids, "attention_mask": ids.ne(PAD).long()}


def labels(*lengths):
    batch = sentences(*lengths)
    return batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)


def save_translator(path, model_type, joint=True, **overrides):
    """A small model, untrained, with a tokenizer that knows a few words, in the folder `path`."""
    tokenizer = train_tokenizer(
        ["ein Hund und eine Katze"] * 9, ["a dog and a cat"] * 9, vocab_size=310, joint=joint,
        target_vocab_size=None if joint else 300, show_progress=False,
    )  # fmt: skip
    sizes = {"vocab_size": len(tokenizer), "max_position_embeddings": 24}
    if not joint:
        sizes |= {"decoder_vocab_size": tokenizer.target_vocab_size, "tie": "decoder"}
    tiny_model(model_type, **sizes, **overrides).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path
