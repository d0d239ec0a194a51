# Copyright 2026 The hf_deepnmt authors. Apache-2.0 licence.
"""Configuration of the reordering embedding (Chen et al., 2019, Neural Machine Translation with Reordering Embeddings)."""

from huggingface_hub.dataclasses import strict

from .configuration_deepnmt import DeepNMTConfig


@strict
class ReorderingEmbeddingConfig(DeepNMTConfig):
    """
    The fields of `DeepNMTConfig`, and those below. The paper's equations were not at hand: this is a reading, made from how
    later papers and a public implementation describe it.

    Args:
        reorder_encoder, reorder_decoder (`bool`):
            Whether the layers of the encoder add the embedding to the output of their self-attention, and those of the
            decoder to that of their attention to the source. With neither, the model is the baseline.
        reorder_norm (`bool`, *optional*):
            A layer norm of its own after adding. Unset, it is there exactly for `norm_style="post"`, the paper's; a
            pre-norm stack has no norm on its residual path.
    """

    model_type = "reordering_embedding"

    reorder_encoder: bool = True
    reorder_decoder: bool = True
    reorder_norm: bool | None = None

    def __post_init__(self, **kwargs):
        if self.reorder_norm is None:
            self.reorder_norm = self.norm_style == "post"
        super().__post_init__(**kwargs)


__all__ = ["ReorderingEmbeddingConfig"]
