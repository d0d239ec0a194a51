# Copyright 2026 The hf_deepnmt authors. Apache-2.0 licence.
"""
Attention Link (Min, 2023, arXiv:2302.00340): attention logits are summed with those of the layer before.

Layer n needs q_{n-1} k_{n-1}^T for its own queries and for every key so far. Both are at hand in the same pass, since the
keys that a cache returns are all keys so far. So nothing is stored beyond the usual cache, and decoding with a cache
computes what a pass over the whole sentence computes.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import nn
from transformers.generation import GenerationMixin

from .configuration_attention_link import AttentionLinkConfig
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


# The most queries with which keeping logits in memory is faster than a kernel on wider heads. For CPUs they follow
# benchmarks/attention_link.py, where half precision has fast matrix products but slow kernels: it was not overtaken up to
# 1024, and beyond that memory decides. For other devices it is a guess.
QUERIES_ON_A_CPU = {torch.float32: 256, torch.float64: 256}
QUERIES_IN_HALF_PRECISION = 1024
QUERIES_ELSEWHERE = 128


def logits_are_faster(device_type: str, dtype: torch.dtype, queries: int, dropout: float) -> bool:
    """
    Whether `link_implementation="auto"` keeps logits in memory.

    It does for few queries, hence in every step of cached decoding: a kernel would need the keys of two layers copied
    together. On a CPU it also does with attention dropout, which the kernel there does not have.
    """
    if device_type == "cpu":
        return dropout > 0 or queries <= QUERIES_ON_A_CPU.get(dtype, QUERIES_IN_HALF_PRECISION)
    return queries <= QUERIES_ELSEWHERE


def link_factor(config: AttentionLinkConfig, products: int) -> float:
    """What the sum of `products` query-key products is multiplied by, beside 1/sqrt(head_dim)."""
    factor = products**-0.5 if config.link_scale == "summed_dims" else 1.0
    return factor / products if config.link_combine == "mean" else factor


@dataclass
class Link:
    """
    What an attention gets from the layers before it, and what it leaves to the next.

    Args:
        previous, current: `(logits,)`, scaled by 1/sqrt(head_dim) and not masked, of shape (batch, heads, queries, keys);
            or `(queries, keys)`, (batch, heads, length, head_dim), side by side along head_dim if of several layers.
            Empty in the first layer.
        products: how many query-key products the logits of this layer are the sum of.
    """

    previous: tuple[torch.Tensor, ...]
    products: int
    current: tuple[torch.Tensor, ...] = ()


class LinkChain:
    """What goes from layer to layer in one pass. A dropped layer leaves no trace: the last executed one is linked."""

    def __init__(self, length: int):
        self.tensors: tuple[torch.Tensor | None, ...] = (None,) * length
        self.executed = 0


class AttentionLinkAttention(DeepNMTAttention):
    """Attention on [q_n; q_{n-1}] and [k_n; k_{n-1}], or on the sum of their logits."""

    # its name in the layer, by which it finds its link
    place: str | None = None
    # the same attention of the layer before, where its weights are linked; in a tuple, so as not to be a submodule
    before: tuple["AttentionLinkAttention", ...] = ()

    def project(self, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        key, value = super().project(states)
        linked = [attention.split_heads(attention.k_proj(states)) for attention in self.before]
        return torch.cat([key, *linked], dim=-1) if linked else key, value

    def forward(self, hidden_states: torch.Tensor, *args, links: dict[str, Link], **kwargs):
        linked = {"link": links.get(self.place), "linked_states": hidden_states}
        return super().forward(hidden_states, *args, **linked, **kwargs)

    def attend(
        self, query, key, value, attention_mask, attn_implementation: str, link: Link | None, linked_states, **kwargs
    ):
        if self.before:
            linked = [attention.split_heads(attention.q_proj(linked_states)) for attention in self.before]
            query = torch.cat([query, *linked], dim=-1)
            return self.attend_wide(query, key, value, attention_mask, attn_implementation, products=2, **kwargs)
        if link is None:
            return super().attend(query, key, value, attention_mask, attn_implementation, **kwargs)
        if attn_implementation == "eager":
            return self.attend_to_logits(query, key, value, attention_mask, link)
        own = (query, key)
        if link.previous:
            query, key = (torch.cat(pair, dim=-1) for pair in zip(own, link.previous, strict=True))
        link.current = (query, key) if self.config.link_mode == "cumulative" else own
        return self.attend_wide(query, key, value, attention_mask, attn_implementation, link.products, **kwargs)

    def attend_to_logits(self, query, key, value, attention_mask, link: Link):
        own = logits = torch.matmul(query, key.transpose(-1, -2)) * self.scaling
        if link.previous:
            logits = own + link.previous[0]
        link.current = (logits if self.config.link_mode == "cumulative" else own,)
        factor = link_factor(self.config, link.products)
        if factor != 1:
            logits = logits * factor
        return weigh_values(self, logits, value, attention_mask, self.dropout)

    def attend_wide(self, query, key, value, attention_mask, attn_implementation: str, products: int, **kwargs):
        """Attention with queries and keys wider than values. The scale is that of one head: kernels would guess another."""
        scaling = self.scaling * link_factor(self.config, products)
        padding = query.shape[-1] - self.head_dim
        if padding and self.needs_equal_widths(attn_implementation, query.device.type):
            value = nn.functional.pad(value, (0, padding))
        output, weights = super().attend(
            query, key, value, attention_mask, attn_implementation, scaling=scaling, **kwargs
        )
        return output[..., : self.head_dim], weights

    def needs_equal_widths(self, attn_implementation: str, device_type: str) -> bool:
        """Whether values are padded: Flash kernels want it, and on a CPU sdpa falls back to keeping logits without it."""
        if attn_implementation == "eager" or self.config.link_implementation == "concat":
            return False
        on_cpu = attn_implementation == "sdpa" and device_type == "cpu"
        return self.config.link_implementation == "padded" or on_cpu or "flash" in attn_implementation


class AttentionLinkLayer:
    """
    What linked encoder and decoder layers share.

    Links go into `forward` by position and come out of it as tensors, two for each linkable attention with None where there
    are fewer, so that gradient checkpointing of either kind recomputes and differentiates them.
    """

    # for each attention that can be linked, the config field that says whether it is
    linkable: dict[str, str]

    def __init__(self, config: AttentionLinkConfig, layer_idx: int):
        super().__init__(config, layer_idx)
        self.linked = tuple(place for place, field in self.linkable.items() if getattr(config, field))
        for place in self.linkable:
            getattr(self, place).place = place

    def make_attention(self, num_heads: int, is_causal: bool = False) -> nn.Module:
        return AttentionLinkAttention(self.config, num_heads, self.layer_idx, is_causal)

    def link_weights_of(self, earlier: "AttentionLinkLayer"):
        for place in self.linked:
            getattr(self, place).before = (getattr(earlier, place),)

    def __call__(self, *args, chain: LinkChain, **kwargs) -> torch.Tensor:
        output, *chain.tensors = super().__call__(*args, *chain.tensors, executed=chain.executed, **kwargs)
        chain.executed += 1
        return output

    def links(self, previous: tuple[torch.Tensor | None, ...], executed: int) -> dict[str, Link]:
        if self.config.link_mode == "weights_only":
            return {}
        products = 1 + (executed if self.config.link_mode == "cumulative" else min(executed, 1))
        pairs = zip(self.linked, zip(previous[::2], previous[1::2], strict=True), strict=True)
        return {place: Link(tuple(tensor for tensor in pair if tensor is not None), products) for place, pair in pairs}

    def left_behind(self, links: dict[str, Link]) -> list[torch.Tensor | None]:
        currents = [links[place].current if place in links else () for place in self.linked]
        return [tensor for current in currents for tensor in (*current, None, None)[:2]]


class AttentionLinkEncoderLayer(AttentionLinkLayer, DeepNMTEncoderLayer):
    linkable = {"self_attn": "link_encoder_self"}

    def forward(self, hidden_states, attention_mask, *previous, executed: int, **kwargs):
        links = self.links(previous, executed)
        output = super().forward(hidden_states, attention_mask, links=links, **kwargs)
        return output, *self.left_behind(links)


class AttentionLinkDecoderLayer(AttentionLinkLayer, DeepNMTDecoderLayer):
    linkable = {"self_attn": "link_decoder_self", "encoder_attn": "link_cross"}

    def forward(self, hidden_states, attention_mask, encoder_hidden_states, *previous, executed: int, **kwargs):
        links = self.links(previous, executed)
        output = super().forward(hidden_states, attention_mask, encoder_hidden_states, links=links, **kwargs)
        return output, *self.left_behind(links)


class AttentionLinkPreTrainedModel(DeepNMTPreTrainedModel):
    config: AttentionLinkConfig
    _no_split_modules = ["AttentionLinkEncoderLayer", "AttentionLinkDecoderLayer"]


class AttentionLinkStack(AttentionLinkPreTrainedModel):
    """What linked encoders and decoders share."""

    def __init__(self, config: AttentionLinkConfig):
        super().__init__(config)
        if config.link_mode == "weights_only":
            for earlier, layer in pairwise(self.layers):
                layer.link_weights_of(earlier)

    def run_layers(self, *args, **kwargs) -> list[torch.Tensor]:
        return super().run_layers(*args, chain=LinkChain(2 * len(self.layers[0].linked)), **kwargs)

    def attention_config(self, inputs_embeds: torch.Tensor, output_attentions: bool | None) -> AttentionLinkConfig:
        eager = output_attentions or (self.layers[0].linked and self.keeps_logits(inputs_embeds))
        return super().attention_config(inputs_embeds, True if eager else output_attentions)

    def keeps_logits(self, inputs_embeds: torch.Tensor) -> bool:
        if self.config.link_implementation != "auto":
            return self.config.link_implementation == "eager"
        if self.config.link_mode == "cumulative":
            # the heads of a kernel would be as wide as all layers together
            return True
        device_type, dtype = inputs_embeds.device.type, inputs_embeds.dtype
        if torch.is_autocast_enabled(device_type):
            dtype = torch.get_autocast_dtype(device_type)
        dropout = self.config.attention_dropout if self.training else 0.0
        return logits_are_faster(device_type, dtype, inputs_embeds.shape[1], dropout)


class AttentionLinkEncoder(AttentionLinkStack, DeepNMTEncoder):
    def make_layer(self, layer_idx: int) -> nn.Module:
        return AttentionLinkEncoderLayer(self.config, layer_idx)


class AttentionLinkDecoder(AttentionLinkStack, DeepNMTDecoder):
    def make_layer(self, layer_idx: int) -> nn.Module:
        return AttentionLinkDecoderLayer(self.config, layer_idx)


class AttentionLinkModel(AttentionLinkPreTrainedModel, DeepNMTModel):
    """Encoder and decoder with linked attention, without the output projection."""

    encoder_class = AttentionLinkEncoder
    decoder_class = AttentionLinkDecoder


class AttentionLinkForConditionalGeneration(
    AttentionLinkPreTrainedModel, DeepNMTForConditionalGeneration, GenerationMixin
):
    """The translation model with linked attention. Its parameters are those of the baseline, name by name."""

    model_class = AttentionLinkModel


__all__ = ["AttentionLinkForConditionalGeneration", "AttentionLinkModel", "AttentionLinkPreTrainedModel"]
