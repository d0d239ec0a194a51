# Copyright 2026 The hf_deepnmt authors. Apache-2.0 licence.
"""Configuration of transparent attention (Bapna et al., 2018, Training Deeper NMT Models with Transparent Attention)."""

from huggingface_hub.dataclasses import strict

from .configuration_deepnmt import DeepNMTConfig


@strict
class TransparentConfig(DeepNMTConfig):
    """
    Every decoder layer attends to its own mixture of all encoder layers.

    Decoder layer i reads sum_l softmax(w_i)_l h^l, where h^0 is the source embedding and h^l the output of encoder layer l.
    The weights w, one row for each decoder layer, are initially 0.

    Args:
        transparent (`bool`):
            Off, the model is the baseline.
        mixture_dropout (`float`):
            Dropout on w before the softmax, in training; one mask for a whole batch.
        mixture_norm (`bool`):
            Whether each mixture passes the norm at the top of the encoder, if that has one. The authors' code leaves it
            out, and then the encoder has none. A pre-norm encoder is the baseline only with it: there, the weights that
            take the last layer alone give what the decoder of the baseline reads.

    Raises:
        ValueError: a field has a value that it cannot have.
    """

    model_type = "transparent"

    transparent: bool = True
    mixture_dropout: float | int = 0.1
    mixture_norm: bool = False

    def validate_mixture(self):
        """Dropout is a probability."""
        if not 0 <= self.mixture_dropout < 1:
            raise ValueError(f"`mixture_dropout` must be at least 0 and below 1, got {self.mixture_dropout}")


__all__ = ["TransparentConfig"]
