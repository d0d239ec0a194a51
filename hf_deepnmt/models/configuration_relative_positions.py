# Copyright 2026 The hf_deepnmt authors. Apache-2.0 licence.
"""Configuration of relative positions in self-attention (Shaw et al., 2018, arXiv:1803.02155)."""

from huggingface_hub.dataclasses import strict

from .configuration_deepnmt import DeepNMTConfig


@strict
class RelativePositionsConfig(DeepNMTConfig):
    """
    The fields of `DeepNMTConfig`, and those below.

    Args:
        relative_encoder, relative_decoder (`bool`):
            Whether self-attention in the encoder and in the decoder reads distances. With neither, and with
            `absolute_positions`, the model is the baseline.
        max_relative_position (`int`):
            k: distances are clipped to -k, ..., k, so that a table has 2k + 1 rows.
        relative_keys, relative_values (`bool`):
            Whether a vector of the distance is added to each key (equation 4) and to each value (equation 3). Table 3
            finds that keys alone do.
        relative_heads_shared (`bool`):
            The heads of a layer share its tables. Off, each head has tables of its own, as in the paper's base models. Layers
            never share.
        absolute_positions (`bool`):
            Sinusoids stay in the input. Off, as in the paper's results, which both together did not improve.
    """

    model_type = "relative_positions"

    relative_encoder: bool = True
    relative_decoder: bool = True
    max_relative_position: int = 16
    relative_keys: bool = True
    relative_values: bool = True
    relative_heads_shared: bool = True
    absolute_positions: bool = False

    def validate_relative_positions(self):
        """A distance is read somewhere, and some order is known to each stack."""
        if self.max_relative_position < 1:
            raise ValueError(f"`max_relative_position` must be at least 1, got {self.max_relative_position}")
        if not (self.relative_keys or self.relative_values) and (self.relative_encoder or self.relative_decoder):
            raise ValueError(
                "`relative_keys` and `relative_values` are both off: turn one on, or `relative_encoder` and "
                "`relative_decoder` off"
            )
        if not self.absolute_positions and not (self.relative_encoder and self.relative_decoder):
            raise ValueError(
                "a stack without relative positions has no word order without sinusoids: set `absolute_positions=True`"
            )


__all__ = ["RelativePositionsConfig"]
