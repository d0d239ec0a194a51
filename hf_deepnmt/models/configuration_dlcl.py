# Copyright 2026 The hf_deepnmt authors. Apache-2.0 licence.
"""Configuration of DLCL (Wang et al., 2019, Learning Deep Transformer Models for Machine Translation)."""

from huggingface_hub.dataclasses import strict

from .configuration_deepnmt import DeepNMTConfig


@strict
class DLCLConfig(DeepNMTConfig):
    """
    Every layer reads a learned linear combination of all states below it, and so does what follows the last layer.

    With y_0 the embedding and y_k the output of layer k, pre-norm layers read x_{l+1} = sum_{k<=l} W_{l+1,k} LN_k(y_k)
    (y_0 as it is), post-norm layers x_{l+1} = LN_l(sum_{k<=l} W_{l+1,k} y_k) (no norm where l = 0). The weights of a stack
    with L layers are one lower-triangular (L+1, L+1) matrix, initially the mean of each row, without a softmax.

    Args:
        encoder_dlcl, decoder_dlcl (`bool`):
            Which stacks combine layers. With neither, the model is the baseline.
        history_norm (`bool`):
            The norms LN of the formulas, L in each stack, as in the paper. Without them, a matrix with ones on its
            diagonal alone is the baseline.
    """

    model_type = "dlcl"

    encoder_dlcl: bool = True
    decoder_dlcl: bool = True
    history_norm: bool = True


__all__ = ["DLCLConfig"]
