# Copyright 2026 The hf_deepnmt authors. Apache-2.0 licence.
"""
The reordering embedding (Chen et al., 2019, Neural Machine Translation with Reordering Embeddings): every layer scales the
positional embedding of a token by what it has read so far, and adds it once more.

A reading: see `ReorderingEmbeddingConfig`.
"""

import torch
from torch import nn
from transformers.cache_utils import Cache
from transformers.generation import GenerationMixin
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs

from .configuration_reordering_embedding import ReorderingEmbeddingConfig
from .modeling_deepnmt import (
    DeepNMTDecoder,
    DeepNMTDecoderLayer,
    DeepNMTEncoder,
    DeepNMTEncoderLayer,
    DeepNMTForConditionalGeneration,
    DeepNMTModel,
    DeepNMTPreTrainedModel,
    positions_from_mask,
)


class ReorderingEmbedding(nn.Module):
    """LN(H + sigmoid(V tanh(W_1 H^{n-1} + W_2 H)) * PE), all maps d x d without bias."""

    def __init__(self, config: ReorderingEmbeddingConfig, norm: nn.Module | None):
        super().__init__()
        for name in ("below", "own", "out"):
            self.add_module(name, nn.Linear(config.d_model, config.d_model, bias=False))
        self.norm = norm

    def forward(self, below: torch.Tensor, states: torch.Tensor, position_states: torch.Tensor) -> torch.Tensor:
        """
        Args:
            below, states: input of the layer and output of its attention, (batch, length, d_model).
            position_states: (batch or 1, length, d_model), embeddings of the tokens' positions.
        """
        penalty = torch.sigmoid(self.out(torch.tanh(self.below(below) + self.own(states))))
        states = states + penalty * position_states
        return states if self.norm is None else self.norm(states)


class ReorderingEmbeddingLayer:
    """What both kinds of layers share: the embedding comes between attention and the feed-forward part."""

    def __init__(self, config: ReorderingEmbeddingConfig, layer_idx: int):
        super().__init__(config, layer_idx)
        self.reordering = ReorderingEmbedding(config, self.make_norm() if config.reorder_norm else None)

    def attended(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        *memories: torch.Tensor | None,
        position_states: torch.Tensor,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        states = super().attended(hidden_states, attention_mask, *memories, **kwargs)
        return self.reordering(hidden_states, states, position_states)


class ReorderingEmbeddingEncoderLayer(ReorderingEmbeddingLayer, DeepNMTEncoderLayer):
    pass


class ReorderingEmbeddingDecoderLayer(ReorderingEmbeddingLayer, DeepNMTDecoderLayer):
    pass


class ReorderingEmbeddingPreTrainedModel(DeepNMTPreTrainedModel):
    config: ReorderingEmbeddingConfig
    _no_split_modules = [
        *DeepNMTPreTrainedModel._no_split_modules,
        "ReorderingEmbeddingEncoderLayer",
        "ReorderingEmbeddingDecoderLayer",
    ]


class ReorderingEmbeddingStack(ReorderingEmbeddingPreTrainedModel):
    """What both stacks share: their layers and the embeddings of positions that those read."""

    layer_class: type[nn.Module]
    switch: str

    @property
    def reorders(self) -> bool:
        return getattr(self.config, self.switch)

    def make_layer(self, layer_idx: int) -> nn.Module:
        return self.layer_class(self.config, layer_idx) if self.reorders else super().make_layer(layer_idx)

    def layer_inputs(
        self,
        inputs_embeds: torch.Tensor,
        attention_mask: torch.Tensor | None,
        past: int | torch.Tensor,
        bound: int,
        cache: Cache | None,
    ) -> dict[str, torch.Tensor]:
        if not self.reorders:
            return super().layer_inputs(inputs_embeds, attention_mask, past, bound, cache)
        positions = positions_from_mask(attention_mask, inputs_embeds.shape[1], past, inputs_embeds.device)
        return {"position_states": self.embed_positions(positions, bound).to(inputs_embeds.dtype)}


class ReorderingEmbeddingEncoder(ReorderingEmbeddingStack, DeepNMTEncoder):
    layer_class, switch = ReorderingEmbeddingEncoderLayer, "reorder_encoder"


class ReorderingEmbeddingDecoder(ReorderingEmbeddingStack, DeepNMTDecoder):
    layer_class, switch = ReorderingEmbeddingDecoderLayer, "reorder_decoder"


class ReorderingEmbeddingModel(ReorderingEmbeddingPreTrainedModel, DeepNMTModel):
    """Encoder and decoder without the output projection."""

    encoder_class = ReorderingEmbeddingEncoder
    decoder_class = ReorderingEmbeddingDecoder


class ReorderingEmbeddingForConditionalGeneration(
    ReorderingEmbeddingPreTrainedModel, DeepNMTForConditionalGeneration, GenerationMixin
):
    """The translation model."""

    model_class = ReorderingEmbeddingModel


__all__ = ["ReorderingEmbeddingForConditionalGeneration", "ReorderingEmbeddingModel"]
