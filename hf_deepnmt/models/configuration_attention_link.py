# Copyright 2026 The hf_deepnmt authors. Apache-2.0 licence.
"""Configuration of Attention Link (Min, 2023, arXiv:2302.00340)."""

from huggingface_hub.dataclasses import strict

from .configuration_deepnmt import DeepNMTConfig


LINK_MODES = ("adjacent", "cumulative", "weights_only")
LINK_SCALES = ("head_dim", "summed_dims")
LINK_COMBINATIONS = ("sum", "mean")
LINK_IMPLEMENTATIONS = ("auto", "eager", "concat", "padded")


@strict
class AttentionLinkConfig(DeepNMTConfig):
    """
    The logits of an attention are summed with those of the layer before; no parameters are added.

    With h the head size and q_n, k_n the queries and keys of layer n, layer n > 1 attends by
    softmax((q_n k_n^T + q_{n-1} k_{n-1}^T) / sqrt(h)). The first layer of a stack has nothing before it and is plain.

    Args:
        link_encoder_self, link_decoder_self, link_cross (`bool`):
            Which attentions are linked. The paper links all three, each with its own kind only.
        link_mode (`str`):
            `adjacent`: with the queries and keys of the previous layer, themselves not linked (the paper's text).
            `cumulative`: with those of all earlier layers (RealFormer, He et al., 2021).
            `weights_only`: with the previous layer's query and key matrices applied to this layer's input. This is how
            the symbols of the paper can be read too, if X stands for the same input in both products.
        link_scale (`str`):
            `head_dim`: 1/sqrt(h), as without links, so that a sum of m products has m times the variance.
            `summed_dims`: 1/sqrt(m h). The paper's formulas leave the scale out; both are readings.
        link_combine (`str`):
            `sum` (the paper) or `mean` of the m products (RealFormer's option for deep stacks).
        link_implementation (`str`):
            How it is computed; the result is the same up to rounding.
            `eager`: logits are kept in memory and handed to the next layer.
            `concat`: one attention on [q_n; q_{n-1}] and [k_n; k_{n-1}], so that sdpa and other kernels serve.
            `padded`: as `concat`, with values padded to the same width, which Flash Attention kernels ask for.
            `auto`: one of these, by length, dropout and device; see `logits_are_faster` in the modeling file.
            With `attn_implementation="eager"`, or where attention weights are asked for, it is always `eager`.

    Raises:
        ValueError: a field has a value that it cannot have; the message names those it can.
    """

    model_type = "attention_link"

    link_encoder_self: bool = True
    link_decoder_self: bool = True
    link_cross: bool = True
    link_mode: str = "adjacent"
    link_scale: str = "head_dim"
    link_combine: str = "sum"
    link_implementation: str = "auto"

    def validate_links(self):
        """The link fields hold one of their values."""
        choices = {
            "link_mode": LINK_MODES,
            "link_scale": LINK_SCALES,
            "link_combine": LINK_COMBINATIONS,
            "link_implementation": LINK_IMPLEMENTATIONS,
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"`{name}` must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")


__all__ = ["AttentionLinkConfig"]
