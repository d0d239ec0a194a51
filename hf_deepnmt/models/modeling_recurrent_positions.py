# Copyright 2026 The hf_deepnmt authors. Apache-2.0 licence.
"""
Recurrent positional embeddings (Chen et al., 2019, Recurrent Positional Embedding for Neural Machine Translation): a small
recurrent network reads the words from left to right, and self-attention reads its states beside those of the layer.

A reading from the abstract: see `RecurrentPositionsConfig`.
"""

import torch
from torch import nn
from transformers import initialization as init
from transformers.cache_utils import Cache, DynamicLayer, StaticLayer
from transformers.generation import GenerationMixin
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs

from .configuration_recurrent_positions import RecurrentPositionsConfig
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


class RecurrentCacheLayer:
    """A cache layer that also keeps r of the tokens so far, (batch, length, recurrent_size), and moves it with the rest."""

    recurrent: torch.Tensor | None = None

    def reorder_cache(self, beam_idx: torch.LongTensor):
        super().reorder_cache(beam_idx)
        if self.recurrent is not None:
            self.recurrent = self.recurrent.index_select(0, beam_idx.to(self.recurrent.device))

    def batch_repeat_interleave(self, repeats: int):
        super().batch_repeat_interleave(repeats)
        if self.recurrent is not None:
            self.recurrent = self.recurrent.repeat_interleave(repeats, dim=0)

    def batch_select_indices(self, indices: torch.Tensor):
        super().batch_select_indices(indices)
        if self.recurrent is not None:
            self.recurrent = self.recurrent[indices]

    def crop(self, tokens_to_remove: int):
        super().crop(tokens_to_remove)
        if self.recurrent is not None and tokens_to_remove:
            self.recurrent = self.recurrent[:, :tokens_to_remove]

    def reset(self):
        super().reset()
        self.recurrent = None


class RecurrentDynamicLayer(RecurrentCacheLayer, DynamicLayer):
    pass


class RecurrentStaticLayer(RecurrentCacheLayer, StaticLayer):
    pass


CACHE_LAYERS = {DynamicLayer: RecurrentDynamicLayer, StaticLayer: RecurrentStaticLayer}


def recurrent_layer(cache: Cache) -> RecurrentCacheLayer:
    """
    The first layer of a self-attention cache, as one that keeps r.

    Raises:
        ValueError: the cache is of a kind that cannot keep it, or was filled by another model.
    """
    if not cache.layers:
        cache.layers.append(RecurrentDynamicLayer())
    layer = cache.layers[0]
    if isinstance(layer, RecurrentCacheLayer):
        return layer
    if type(layer) not in CACHE_LAYERS or layer.get_seq_length() > 0:
        raise ValueError(
            f"a cache whose first layer is a {type(layer).__name__} of {int(layer.get_seq_length())} tokens cannot keep the "
            "recurrent state: pass an empty cache with dynamic or static layers, or none"
        )
    extended = object.__new__(CACHE_LAYERS[type(layer)])
    extended.__dict__.update(vars(layer))
    cache.layers[0] = extended
    return extended


class HeadwiseProjection(nn.Module):
    """The last heads made of r alone, the others of the states alone: (..., d_model + recurrent_size) to (..., d_model)."""

    def __init__(self, config: RecurrentPositionsConfig, num_heads: int):
        super().__init__()
        taken = config.recurrent_heads * (config.d_model // num_heads)
        self.sizes = (config.d_model, config.recurrent_size)
        self.states = nn.Linear(config.d_model, config.d_model - taken, bias=config.attention_bias)
        self.recurrent = nn.Linear(config.recurrent_size, taken, bias=config.attention_bias)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        states, recurrent = states.split(self.sizes, dim=-1)
        return torch.cat([self.states(states), self.recurrent(recurrent)], dim=-1)


class RecurrentSelfAttention(DeepNMTAttention):
    """Self-attention whose queries, keys and values are made of the states and of r."""

    def __init__(self, config: RecurrentPositionsConfig, num_heads: int, layer_idx: int, is_causal: bool = False):
        super().__init__(config, num_heads, layer_idx, is_causal)
        width = config.d_model + config.recurrent_size
        for name in ("k_proj", "v_proj", "q_proj"):
            if config.recurrent_mode == "heads":
                projection = HeadwiseProjection(config, num_heads)
            else:
                projection = nn.Linear(width, config.d_model, bias=config.attention_bias)
            setattr(self, name, projection)

    def forward(self, hidden_states: torch.Tensor, *args, recurrent: torch.Tensor, **kwargs):
        return super().forward(torch.cat([hidden_states, recurrent], dim=-1), *args, **kwargs)


class RecurrentEncoderLayer(DeepNMTEncoderLayer):
    def make_attention(self, num_heads: int, is_causal: bool = False) -> nn.Module:
        return RecurrentSelfAttention(self.config, num_heads, self.layer_idx, is_causal)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        recurrent: torch.Tensor,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        return super().forward(hidden_states, attention_mask, recurrent=recurrent, **kwargs)


class AttentionBesideRecurrence(DeepNMTAttention):
    """Attention to the source, which does not read r."""

    def forward(self, hidden_states: torch.Tensor, *args, recurrent: torch.Tensor, **kwargs):
        return super().forward(hidden_states, *args, **kwargs)


class RecurrentDecoderLayer(DeepNMTDecoderLayer):
    def make_attention(self, num_heads: int, is_causal: bool = False) -> nn.Module:
        attention = RecurrentSelfAttention if is_causal else AttentionBesideRecurrence
        return attention(self.config, num_heads, self.layer_idx, is_causal)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        encoder_hidden_states: torch.Tensor | None,
        recurrent: torch.Tensor,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        return super().forward(hidden_states, attention_mask, encoder_hidden_states, recurrent=recurrent, **kwargs)


class RecurrentPositionsPreTrainedModel(DeepNMTPreTrainedModel):
    config: RecurrentPositionsConfig
    _no_split_modules = [
        *DeepNMTPreTrainedModel._no_split_modules,
        "RecurrentEncoderLayer",
        "RecurrentDecoderLayer",
    ]
    # recurrent networks break a graph
    _can_compile_fullgraph = False

    def _init_weights(self, module):
        if isinstance(module, nn.RNNBase):
            for parameter in module.parameters(recurse=False):
                init.uniform_(parameter, -(module.hidden_size**-0.5), module.hidden_size**-0.5)
        else:
            super()._init_weights(module)


class RecurrentStack(RecurrentPositionsPreTrainedModel):
    """What both stacks share: the recurrent network over their embeddings, and layers that read it."""

    layer_class: type[nn.Module]
    switch: str

    def __init__(self, config: RecurrentPositionsConfig):
        super().__init__(config)
        self.recurrence = None
        if self.recurs:
            network = {"gru": nn.GRU, "rnn": nn.RNN}[config.recurrent_cell]
            self.recurrence = network(config.d_model, config.recurrent_size, batch_first=True)
        self.post_init()

    @property
    def recurs(self) -> bool:
        return getattr(self.config, self.switch)

    def make_layer(self, layer_idx: int) -> nn.Module:
        return self.layer_class(self.config, layer_idx) if self.recurs else super().make_layer(layer_idx)

    def layer_inputs(
        self,
        inputs_embeds: torch.Tensor,
        attention_mask: torch.Tensor | None,
        past: int | torch.Tensor,
        bound: int,
        cache: Cache | None,
    ) -> dict[str, torch.Tensor]:
        if not self.recurs:
            return super().layer_inputs(inputs_embeds, attention_mask, past, bound, cache)
        layer = None if cache is None else recurrent_layer(cache)
        before = None if layer is None else layer.recurrent
        # a crop may leave nothing
        state = None if before is None or before.shape[1] == 0 else before[:, -1]
        recurrent = self.recur(inputs_embeds * self.embed_scale, attention_mask, past, state)
        if layer is not None:
            layer.recurrent = recurrent if before is None else torch.cat([before, recurrent], dim=1)
        return {"recurrent": recurrent}

    def recur(
        self,
        words: torch.Tensor,
        attention_mask: torch.Tensor | None,
        past: int | torch.Tensor,
        state: torch.Tensor | None,
    ) -> torch.Tensor:
        """r of the new tokens, (batch, length, recurrent_size), from r of the token before; 0 at padding in front."""
        batch, length = words.shape[:2]
        if state is None:
            state = words.new_zeros(batch, self.config.recurrent_size)
        if attention_mask is None or attention_mask.dim() != 2:
            return self.recurrence(words, state[None])[0]
        # a sentence starts at its first token wherever that stands, so rows are moved there and back
        padding = (attention_mask.ne(0).int().argmax(dim=-1, keepdim=True) - past).clamp(0, length)
        place = torch.arange(length, device=words.device)
        source = (place + padding).clamp(max=length - 1)[..., None]
        recurrent = self.recurrence(words.gather(1, source.expand_as(words)), state[None].contiguous())[0]
        back = (place - padding)[..., None]
        moved = recurrent.gather(1, back.clamp(min=0).expand_as(recurrent))
        return torch.where(back < 0, state[:, None].to(moved.dtype), moved)


class RecurrentPositionsEncoder(RecurrentStack, DeepNMTEncoder):
    layer_class, switch = RecurrentEncoderLayer, "recurrent_encoder"

    def run_layers(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        recurrent: torch.Tensor | None = None,
        **kwargs,
    ) -> list[torch.Tensor]:
        if recurrent is None:
            return super().run_layers(hidden_states, attention_mask, **kwargs)
        for layer in self.layers:
            if not self.skips_layer():
                # by position, since reentrant checkpointing follows no other gradients
                hidden_states = layer(hidden_states, attention_mask, recurrent, **kwargs)
        return [hidden_states]


class RecurrentPositionsDecoder(RecurrentStack, DeepNMTDecoder):
    layer_class, switch = RecurrentDecoderLayer, "recurrent_decoder"

    def memory_for(
        self, layer_idx: int, encoder_hidden_states: torch.Tensor | None, memories: tuple[torch.Tensor, ...]
    ) -> tuple[torch.Tensor | None, ...]:
        """The source and, as the last of `memories`, r of the target."""
        return (encoder_hidden_states, *memories)

    def run_layers(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        encoder_hidden_states: torch.Tensor | None,
        memories: tuple[torch.Tensor, ...],
        recurrent: torch.Tensor | None = None,
        **kwargs,
    ) -> list[torch.Tensor]:
        read = memories if recurrent is None else (*memories, recurrent)
        return super().run_layers(hidden_states, attention_mask, encoder_hidden_states, read, **kwargs)


class RecurrentPositionsModel(RecurrentPositionsPreTrainedModel, DeepNMTModel):
    """Encoder and decoder without the output projection."""

    encoder_class = RecurrentPositionsEncoder
    decoder_class = RecurrentPositionsDecoder


class RecurrentPositionsForConditionalGeneration(
    RecurrentPositionsPreTrainedModel, DeepNMTForConditionalGeneration, GenerationMixin
):
    """The translation model."""

    model_class = RecurrentPositionsModel


__all__ = ["RecurrentPositionsForConditionalGeneration", "RecurrentPositionsModel"]
