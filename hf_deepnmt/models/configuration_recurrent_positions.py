# Copyright 2026 The hf_deepnmt authors. Apache-2.0 licence.
"""Configuration of recurrent positional embeddings (Chen et al., 2019, Recurrent Positional Embedding for NMT)."""

from huggingface_hub.dataclasses import strict

from .configuration_deepnmt import DeepNMTConfig


CELLS = ("gru", "rnn")
MODES = ("parts", "heads")


@strict
class RecurrentPositionsConfig(DeepNMTConfig):
    """
    The fields of `DeepNMTConfig`, and those below. Only the paper's abstract was at hand: all of this is a reading. Sinusoids
    stay in the input.

    Args:
        recurrent_encoder, recurrent_decoder (`bool`):
            Whether self-attention in the encoder and in the decoder reads r_j = RNN(x_j, r_{j-1}), from left to right over
            the scaled embeddings x. With neither, the model is the baseline.
        recurrent_mode (`"parts"` or `"heads"`):
            `parts`: every head's query, key and value are made of the state and r_j together. `heads`: the last
            `recurrent_heads` heads are made of r_j alone, the others of the state alone.
        recurrent_heads (`int`):
            With `recurrent_mode="heads"`.
        recurrent_size (`int`, *optional*):
            The width of r. Unset, that of one head of the encoder.
        recurrent_cell (`"gru"` or `"rnn"`):
            A gated unit, or tanh(W x + U r).
    """

    model_type = "recurrent_positions"

    recurrent_encoder: bool = True
    recurrent_decoder: bool = True
    recurrent_mode: str = "parts"
    recurrent_heads: int = 1
    recurrent_size: int | None = None
    recurrent_cell: str = "gru"

    def __post_init__(self, **kwargs):
        if self.recurrent_size is None:
            self.recurrent_size = self.d_model // max(1, self.encoder_attention_heads)
        super().__post_init__(**kwargs)

    def validate_recurrence(self):
        """Cell, mode and sizes fit."""
        for name, allowed in (("recurrent_cell", CELLS), ("recurrent_mode", MODES)):
            if getattr(self, name) not in allowed:
                raise ValueError(f"`{name}` must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")
        if self.recurrent_size < 1:
            raise ValueError(f"`recurrent_size` must be at least 1, got {self.recurrent_size}")
        for side in ("encoder", "decoder"):
            heads = getattr(self, f"{side}_attention_heads")
            uses = self.recurrent_mode == "heads" and getattr(self, f"recurrent_{side}")
            if uses and not 1 <= self.recurrent_heads < heads:
                raise ValueError(
                    f"`recurrent_heads` is {self.recurrent_heads}, but the {side} has {heads} heads, of which one must stay: "
                    f"make it 1 to {heads - 1}"
                )


__all__ = ["RecurrentPositionsConfig"]
