# Copyright 2026 The hf_deepnmt authors. Apache-2.0 licence.
"""
MSC (Wei et al., 2020, Multiscale Collaborative Deep Models for Neural Machine Translation, arXiv:2004.14021).

The encoder is cut into as many blocks as the decoder has layers. Decoder layer n attends to the output B^n of block n, which
brings gradients to the bottom of very deep encoders, and to a context C^n that one recurrent cell carries from block to
block. Encoder layers of block n attend to C^(n-1). Nothing is detached.
"""

from dataclasses import dataclass
from itertools import islice

import torch
from torch import nn
from transformers import initialization as init
from transformers.cache_utils import Cache, DynamicLayer, EncoderDecoderCache, StaticLayer
from transformers.generation import GenerationMixin
from transformers.modeling_outputs import BaseModelOutput
from transformers.utils.output_capturing import OutputRecorder

from .configuration_msc import MSCConfig
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
)


@dataclass
class MSCEncoderOutput(BaseModelOutput):
    """
    Args:
        block_states (`torch.FloatTensor` of shape `(batch, blocks, source, d_model)`):
            B^1, ..., B^N as the decoder reads them. The last is `last_hidden_state`.
        context_states (`torch.FloatTensor` of the same shape, *optional*):
            C^1, ..., C^N as the decoder reads them; there are none with `contextual=False`.
    """

    block_states: torch.FloatTensor | None = None
    context_states: torch.FloatTensor | None = None


# --- the cache of two memories ---


class CacheLayerWithContext:
    """A cross-attention cache layer for B^n, with another one for C^n in `context`, which follows it in everything."""

    context: DynamicLayer | StaticLayer

    def offload(self):
        super().offload()
        self.context.offload()

    def prefetch(self):
        super().prefetch()
        self.context.prefetch()

    def reset(self):
        super().reset()
        self.context.reset()

    def reorder_cache(self, beam_idx: torch.LongTensor):
        super().reorder_cache(beam_idx)
        self.context.reorder_cache(beam_idx)


class DynamicLayerWithContext(CacheLayerWithContext, DynamicLayer):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.context = DynamicLayer()

    def batch_repeat_interleave(self, repeats: int):
        super().batch_repeat_interleave(repeats)
        self.context.batch_repeat_interleave(repeats)

    def batch_select_indices(self, indices: torch.Tensor):
        super().batch_select_indices(indices)
        self.context.batch_select_indices(indices)


class StaticLayerWithContext(CacheLayerWithContext, StaticLayer):
    def __init__(self, max_cache_len: int, **kwargs):
        super().__init__(max_cache_len, **kwargs)
        self.context = StaticLayer(max_cache_len)


def make_room_for_contexts(cache: Cache | None):
    """
    Let every layer of the cross-attention cache hold a second memory.

    `generate` makes caches itself, with one layer for each of the decoder, so room is made where a cache comes in. The
    length of the cache and the shapes in it stay those of any encoder-decoder.
    """
    if not isinstance(cache, EncoderDecoderCache):
        return
    cross = cache.cross_attention_cache
    if cross.layer_class_to_replicate is DynamicLayer:
        cross.layer_class_to_replicate = DynamicLayerWithContext
    for index, layer in enumerate(cross.layers):
        if type(layer) is DynamicLayer:
            cross.layers[index] = DynamicLayerWithContext()
        elif type(layer) is StaticLayer:
            cross.layers[index] = StaticLayerWithContext(layer.max_cache_len)


class MSCContextAttention(DeepNMTAttention):
    """Attention over a context. Under a cache its keys and values lie beside those of the block, with their own flag."""

    def memory_states(self, memory: torch.Tensor, cache: Cache | None) -> tuple[torch.Tensor, torch.Tensor]:
        if not isinstance(cache, EncoderDecoderCache):
            return self.project(memory)
        kept, flag = cache.cross_attention_cache.layers[self.layer_idx].context, f"context.{self.layer_idx}"
        if not cache.is_updated.get(flag):
            kept.update(*self.project(memory))
            cache.is_updated[flag] = True
        return kept.keys, kept.values


# --- layers ---


class MSCLayer:
    """What encoder and decoder layers share: an attention over the context, and its fusion with another attention."""

    def add_context_attention(self, num_heads: int):
        self.context_attn = MSCContextAttention(self.config, num_heads, self.layer_idx)
        self.gate = None
        if self.config.block_fusion == "gate":
            # W_1 and W_2 side by side
            self.gate = nn.Linear(2 * self.config.d_model, self.config.d_model)

    def fuse(self, own: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        """g * A_h + (1 - g) * A_c with g = sigmoid(W_1 A_h + W_2 A_c + b), or the sum (eqs. 12, 13)."""
        if self.gate is None:
            return own + context
        gate = self.gate(torch.cat([own, context], dim=-1)).sigmoid()
        return context + gate * (own - context)


class MSCEncoderLayer(MSCLayer, DeepNMTEncoderLayer):
    def __init__(self, config: MSCConfig, layer_idx: int):
        super().__init__(config, layer_idx)
        self.reads_context = config.contextual and config.encoder_context
        self.context_norms = None
        if self.reads_context:
            self.add_context_attention(config.encoder_attention_heads)
            if config.extra_context_norms:
                names = ("query", "memory", "output")
                self.context_norms = nn.ModuleDict({name: self.make_norm() for name in names})

    def attended(self, hidden_states, attention_mask, context: torch.Tensor | None = None, **kwargs) -> torch.Tensor:
        if not self.reads_context:
            return super().attended(hidden_states, attention_mask, **kwargs)

        def attend(states):
            own = self.self_attn(states, attention_mask, **kwargs)[0]
            norms, query, memory = self.context_norms, states, context
            if norms is not None:
                query, memory = norms["query"](hidden_states), norms["memory"](context)
            read = self.context_attn(query, attention_mask, memory=memory, **kwargs)[0]
            return self.fuse(own, read if norms is None else norms["output"](read))

        return self.residual(hidden_states, self.self_attn_layer_norm, attend)

    def forward(self, hidden_states, attention_mask, context: torch.Tensor | None = None, **kwargs) -> torch.Tensor:
        return super().forward(hidden_states, attention_mask, context=context, **kwargs)


class MSCDecoderLayer(MSCLayer, DeepNMTDecoderLayer):
    def __init__(self, config: MSCConfig, layer_idx: int):
        super().__init__(config, layer_idx)
        if config.contextual:
            self.add_context_attention(config.decoder_attention_heads)

    def read_source(self, states, mask, memory: tuple[torch.Tensor, torch.Tensor | None], **kwargs) -> torch.Tensor:
        block, context = memory
        own = super().read_source(states, mask, memory=block, **kwargs)
        if context is None:
            return own
        return self.fuse(own, self.context_attn(states, mask, memory=context, **kwargs)[0])

    def forward(
        self, hidden_states, attention_mask, block: torch.Tensor | None, context: torch.Tensor | None = None, **kwargs
    ) -> torch.Tensor:
        memory = None if block is None else (block, context)
        return super().forward(hidden_states, attention_mask, memory, **kwargs)


# --- the cell that makes contexts ---


class MSCRecurrentCell(nn.GRUCell):
    """C^n = GRU(C^(n-1), B^n) at each position (eq. 9), in the precision of its weights, under autocast too."""

    def forward(self, block: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        """Both (batch, source, d_model), and so is the result."""
        dtype = self.weight_hh.dtype
        output = super().forward(block.flatten(0, 1).to(dtype), context.flatten(0, 1).to(dtype))
        return output.view_as(block)


class MSCFeedForwardCell(nn.Module):
    """C^n = W_b relu(W_a x + a) + b, where x is [C^(n-1); B^n], their sum, or B^n alone."""

    def __init__(self, config: MSCConfig):
        super().__init__()
        self.config = config
        width = config.d_model * (2 if config.ffn_cell_input == "concat" else 1)
        self.fc1 = nn.Linear(width, config.encoder_ffn_dim)
        self.fc2 = nn.Linear(config.encoder_ffn_dim, config.d_model)

    def forward(self, block: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        states = block
        if self.config.ffn_cell_input == "concat":
            states = torch.cat([context, block], dim=-1)
        elif self.config.ffn_cell_input == "sum":
            states = context + block
        return self.fc2(self.fc1(states).relu())


# --- the model ---


class MSCPreTrainedModel(DeepNMTPreTrainedModel):
    config: MSCConfig
    _no_split_modules = ["MSCEncoderLayer", "MSCDecoderLayer"]

    def _init_weights(self, module):
        if not isinstance(module, nn.GRUCell):
            super()._init_weights(module)
            return
        bounds = {"xavier": (3 / module.hidden_size) ** 0.5, "fan_in": module.hidden_size**-0.5}
        scheme = self.config.init_scheme
        for parameter in module.parameters(recurse=False):
            if parameter.dim() == 1 and scheme != "fan_in":
                init.zeros_(parameter)
            elif scheme == "normal":
                init.normal_(parameter, mean=0.0, std=self.config.init_std)
            else:
                # each gate has a square matrix of its own
                bound = bounds["fan_in" if scheme == "fan_in" else "xavier"]
                init.uniform_(parameter, -bound, bound)


class MSCEncoder(MSCPreTrainedModel, DeepNMTEncoder):
    _can_record_outputs = {
        "hidden_states": DeepNMTEncoderLayer,
        "attentions": OutputRecorder(DeepNMTAttention, index=1, layer_name="self_attn"),
    }

    def __init__(self, config: MSCConfig):
        super().__init__(config)

        def norm(wanted: bool) -> nn.LayerNorm | None:
            return nn.LayerNorm(config.d_model, eps=config.layer_norm_eps) if wanted else None

        if config.memory_norm == "none":
            self.layer_norm = None
        self.block_norms = None
        if config.memory_norm == "per_block":
            # the last block has the norm at the top
            self.block_norms = nn.ModuleList(norm(True) for _ in config.blocks[:-1])
        self.cell = None
        if config.contextual:
            gru = config.context_cell == "gru"
            self.cell = MSCRecurrentCell(config.d_model, config.d_model) if gru else MSCFeedForwardCell(config)
        self.cell_norm = norm(config.contextual and config.gru_input_norm)
        self.context_norm = norm(config.contextual and config.context_norm)
        self.post_init()

    def make_layer(self, layer_idx: int) -> nn.Module:
        return MSCEncoderLayer(self.config, layer_idx)

    def layer_inputs(self, inputs_embeds, *args) -> dict[str, torch.Tensor]:
        inputs = super().layer_inputs(inputs_embeds, *args)
        if self.cell is not None and self.config.context_init == "tokens":
            inputs["start"] = drop_out(inputs_embeds * self.embed_scale, self.config.dropout, self.training)
        return inputs

    def memory(self, states: torch.Tensor, block: int) -> torch.Tensor:
        """B^n as the decoder reads it."""
        if self.block_norms is not None and block < len(self.block_norms):
            return self.block_norms[block](states)
        return states if self.layer_norm is None else self.layer_norm(states)

    def run_layers(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        start: torch.Tensor | None = None,
        **kwargs,
    ) -> list[torch.Tensor]:
        """B^1, ..., B^N and, where there are contexts, C^1, ..., C^N behind them, all as the decoder reads them."""
        states, context = hidden_states, hidden_states if start is None else start
        layers, blocks, contexts = iter(self.layers), [], []
        for index, size in enumerate(self.config.blocks):
            read = (context if self.context_norm is None else self.context_norm(context),) if self.cell else ()
            for layer in islice(layers, size):
                states = states if self.skips_layer() else layer(states, attention_mask, *read, **kwargs)
            blocks.append(self.memory(states, index))
            if self.cell is not None:
                context = self.cell(states if self.cell_norm is None else self.cell_norm(states), context)
                contexts.append(context if self.context_norm is None else self.context_norm(context))
        return [*blocks, *contexts]

    def make_output(self, states: list[torch.Tensor]) -> MSCEncoderOutput:
        blocks, contexts = states[: len(self.config.blocks)], states[len(self.config.blocks) :]
        return MSCEncoderOutput(
            last_hidden_state=blocks[-1],
            block_states=torch.stack(blocks, dim=1),
            context_states=torch.stack(contexts, dim=1) if contexts else None,
        )


class MSCDecoder(MSCPreTrainedModel, DeepNMTDecoder):
    def make_layer(self, layer_idx: int) -> nn.Module:
        return MSCDecoderLayer(self.config, layer_idx)

    def memory_for(self, layer_idx, encoder_hidden_states, memories) -> tuple[torch.Tensor | None, ...]:
        """B^n and, where there are contexts, C^n."""
        if encoder_hidden_states is None:
            return (None,)
        if not memories:
            raise ValueError("An MSC decoder reads each block: give it `memories=(block_states, context_states)`")
        return tuple(memory[:, layer_idx] for memory in memories)

    def run_layers(self, *args, cache: Cache | None = None, **kwargs) -> list[torch.Tensor]:
        if self.config.contextual:
            make_room_for_contexts(cache)
        return super().run_layers(*args, cache=cache, **kwargs)


class MSCModel(MSCPreTrainedModel, DeepNMTModel):
    """Encoder of blocks and the decoder that reads each of them, without the output projection."""

    encoder_class = MSCEncoder
    decoder_class = MSCDecoder

    def decoder_memories(self, encoder_outputs: BaseModelOutput) -> tuple[torch.Tensor, ...]:
        names = ("block_states", "context_states") if self.config.contextual else ("block_states",)
        memories = tuple(getattr(encoder_outputs, name, None) for name in names)
        if any(memory is None for memory in memories):
            raise ValueError(
                f"`encoder_outputs` lacks {' or '.join(names)}: hand on the whole output of this model's encoder"
            )
        return memories


class MSCForConditionalGeneration(MSCPreTrainedModel, DeepNMTForConditionalGeneration, GenerationMixin):
    """The translation model with a multiscale collaborative encoder."""

    model_class = MSCModel


__all__ = ["MSCEncoderOutput", "MSCForConditionalGeneration", "MSCModel", "MSCPreTrainedModel"]
