# Copyright 2026 The hf_deepnmt authors. Apache-2.0 licence.
"""
Relative positions (Shaw et al., 2018, Self-Attention with Relative Position Representations): self-attention adds to each key
and value a vector of the distance between the two words.

Distances are those of the tokens' places, so padding in front changes nothing, and with a cache each new query counts from
its own place and not from the first of the step.
"""

import torch
from torch import nn
from transformers import initialization as init
from transformers.cache_utils import Cache
from transformers.generation import GenerationMixin

from .configuration_relative_positions import RelativePositionsConfig
from .functional_deepnmt import drop_out
from .modeling_deepnmt import (
    DeepNMTAttention,
    DeepNMTDecoder,
    DeepNMTDecoderLayer,
    DeepNMTEncoder,
    DeepNMTEncoderLayer,
    DeepNMTForConditionalGeneration,
    DeepNMTModel,
    DeepNMTPreTrainedModel,
    weigh_values,
)


class DistanceTable(nn.Module):
    """A vector for each clipped distance: (heads, 2k + 1, head_dim), with one head where all share it."""

    def __init__(self, heads: int, max_distance: int, head_dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(heads, 2 * max_distance + 1, head_dim))


class RelativeSelfAttention(DeepNMTAttention):
    """softmax(q_i (k_j + a^K_ij) / sqrt(head_dim)) (v_j + a^V_ij) (equations 3 to 5), with logits kept in memory."""

    def __init__(self, config: RelativePositionsConfig, num_heads: int, layer_idx: int, is_causal: bool = False):
        super().__init__(config, num_heads, layer_idx, is_causal)
        heads = 1 if config.relative_heads_shared else num_heads
        for name, wanted in (("relative_k", config.relative_keys), ("relative_v", config.relative_values)):
            self.add_module(
                name, DistanceTable(heads, config.max_relative_position, self.head_dim) if wanted else None
            )

    def attend(
        self, query, key, value, attention_mask, attn_implementation: str, distances: torch.Tensor, **kwargs
    ) -> tuple[torch.Tensor, torch.Tensor]:
        logits = torch.matmul(query, key.transpose(-1, -2))
        # a row of logits by distance is as long as the table, however many words share a distance
        places = distances.expand(*logits.shape[:2], -1, -1)
        if self.relative_k is not None:
            by_distance = torch.matmul(query, self.relative_k.weight.transpose(-1, -2))
            logits = logits + by_distance.gather(-1, places)
        output, weights = weigh_values(self, logits * self.scaling, value, attention_mask, self.dropout)
        if self.relative_v is not None:
            rows = self.relative_v.weight.shape[1]
            by_distance = weights.new_zeros(*weights.shape[:3], rows).scatter_add(-1, places, weights)
            output = output + torch.matmul(by_distance, self.relative_v.weight).transpose(1, 2)
        return output, weights


class RelativeEncoderLayer(DeepNMTEncoderLayer):
    def make_attention(self, num_heads: int, is_causal: bool = False) -> nn.Module:
        return RelativeSelfAttention(self.config, num_heads, self.layer_idx, is_causal)


class RelativeDecoderLayer(DeepNMTDecoderLayer):
    def make_attention(self, num_heads: int, is_causal: bool = False) -> nn.Module:
        attention = RelativeSelfAttention if is_causal else DeepNMTAttention
        return attention(self.config, num_heads, self.layer_idx, is_causal)


class RelativePositionsPreTrainedModel(DeepNMTPreTrainedModel):
    config: RelativePositionsConfig
    _no_split_modules = [*DeepNMTPreTrainedModel._no_split_modules, "RelativeEncoderLayer", "RelativeDecoderLayer"]
    # no kernel takes a vector for each pair of words; with sdpa, stacks that read distances keep logits all the same
    _supports_flash_attn = False
    _supports_flex_attn = False

    def _init_weights(self, module):
        if isinstance(module, DistanceTable):
            bound = (6 / sum(module.weight.shape[1:])) ** 0.5
            init.uniform_(module.weight, -bound, bound)
        else:
            super()._init_weights(module)


class RelativeStack(RelativePositionsPreTrainedModel):
    """What both stacks share: layers that read distances, and an input with or without sinusoids."""

    layer_class: type[nn.Module]
    switch: str

    @property
    def reads_distances(self) -> bool:
        return getattr(self.config, self.switch)

    def make_layer(self, layer_idx: int) -> nn.Module:
        return self.layer_class(self.config, layer_idx) if self.reads_distances else super().make_layer(layer_idx)

    def embed(self, inputs_embeds: torch.Tensor, positions: torch.Tensor, bound: int) -> torch.Tensor:
        if self.config.absolute_positions:
            return super().embed(inputs_embeds, positions, bound)
        return drop_out(inputs_embeds * self.embed_scale, self.config.dropout, self.training)

    def attention_config(self, inputs_embeds: torch.Tensor, output_attentions: bool | None) -> RelativePositionsConfig:
        return super().attention_config(inputs_embeds, True if self.reads_distances else output_attentions)

    def layer_inputs(
        self,
        inputs_embeds: torch.Tensor,
        attention_mask: torch.Tensor | None,
        past: int | torch.Tensor,
        bound: int,
        cache: Cache | None,
    ) -> dict[str, torch.Tensor]:
        """`distances`: rows of the tables for the pairs of a new token and a token so far, (length, bound)."""
        inputs = super().layer_inputs(inputs_embeds, attention_mask, past, bound, cache)
        if not self.reads_distances:
            return inputs
        keys = torch.arange(bound, device=inputs_embeds.device)
        queries = torch.arange(inputs_embeds.shape[1], device=inputs_embeds.device) + past
        limit = self.config.max_relative_position
        return {**inputs, "distances": (keys - queries[:, None]).clamp(-limit, limit) + limit}


class RelativePositionsEncoder(RelativeStack, DeepNMTEncoder):
    layer_class, switch = RelativeEncoderLayer, "relative_encoder"


class RelativePositionsDecoder(RelativeStack, DeepNMTDecoder):
    layer_class, switch = RelativeDecoderLayer, "relative_decoder"


class RelativePositionsModel(RelativePositionsPreTrainedModel, DeepNMTModel):
    """Encoder and decoder without the output projection."""

    encoder_class = RelativePositionsEncoder
    decoder_class = RelativePositionsDecoder


class RelativePositionsForConditionalGeneration(
    RelativePositionsPreTrainedModel, DeepNMTForConditionalGeneration, GenerationMixin
):
    """The translation model."""

    model_class = RelativePositionsModel


__all__ = ["RelativePositionsForConditionalGeneration", "RelativePositionsModel"]
