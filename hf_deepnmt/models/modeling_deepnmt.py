# Copyright 2026 The hf_deepnmt authors. Apache-2.0 licence.
"""
The encoder-decoder Transformer (Vaswani et al., 2017) that every architecture of the zoo stands on, and the baseline.

Module names are those of `MarianMTModel`, so its state dict loads. An architecture overrides the methods between layers
(`embed_source`, `make_layer`, `run_layers`, `merge_layers`, `memory_for`, `decoder_memories`, `auxiliary_loss`) and the
`*_class` attributes; it never branches on the model type.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from transformers import AutoConfig, GenerationConfig, MarianMTModel
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.generation import GenerationMixin
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import (
    BaseModelOutput,
    BaseModelOutputWithPastAndCrossAttentions,
    Seq2SeqLMOutput,
    Seq2SeqModelOutput,
)
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, PreTrainedModel
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, can_return_tuple, logging
from transformers.utils.deprecation import deprecate_kwarg
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .configuration_deepnmt import DeepNMTConfig
from .consistency_deepnmt import (
    DIVERGENCES,
    cut_features,
    cut_tokens,
    linear_pair_loss,
    pair_loss,
    symmetric_divergence,
)
from .functional_deepnmt import cross_entropy, drop_out, linear_cross_entropy
from .generation_deepnmt import FAIRSEQ, length_penalty_in_form
from .pipeline_summarization import SummarizationPipeline
from .pipeline_translation import TranslationPipeline


logger = logging.get_logger(__name__)

# The tasks whose code travels with every checkpoint.
PIPELINES = {"translation": TranslationPipeline, "summarization": SummarizationPipeline}
IGNORED_LABEL = -100


@dataclass
class DeepNMTSeq2SeqLMOutput(Seq2SeqLMOutput):
    """
    Args:
        nll_loss (`torch.FloatTensor` of shape `()`, *optional*):
            Negative log-likelihood without smoothing, in nats, with the denominator of `loss`.
        auxiliary_loss (`torch.FloatTensor` of shape `()`, *optional*):
            Weighted further loss terms that are part of `loss`.
        consistency_loss (`torch.FloatTensor` of shape `()`, *optional*):
            Weighted divergence between two copies of the sentences (R-Drop, cutoff), part of `loss`.
    """

    nll_loss: torch.FloatTensor | None = None
    auxiliary_loss: torch.FloatTensor | None = None
    consistency_loss: torch.FloatTensor | None = None


def shift_right(labels: torch.Tensor, pad_token_id: int, start_token_id: int) -> torch.Tensor:
    """Decoder input of shape (batch, target) for `labels`: the start token, then all but the last label."""
    shifted = labels.roll(1, dims=-1)
    shifted[:, 0] = start_token_id
    return shifted.masked_fill(shifted == IGNORED_LABEL, pad_token_id)


def positions_from_mask(
    attention_mask: torch.Tensor | None, length: int, past: int | torch.Tensor, device: torch.device
) -> torch.Tensor:
    """
    Positions of the last `length` tokens, (batch or 1, length), counted from each sentence's first real token.

    Only padding in front moves them, so that a sentence has the same positions padded left, right or not at all; tokens
    masked in the middle keep their place.
    """
    positions = torch.arange(length, device=device)[None] + past
    if attention_mask is None or attention_mask.dim() != 2:
        return positions
    first = attention_mask.ne(0).int().argmax(dim=-1, keepdim=True)
    return (positions - first).clamp(min=0)


def eager_attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    position_bias: torch.Tensor | None = None,
    **kwargs,
) -> tuple[torch.Tensor, torch.Tensor]:
    """softmax(q k^T * scaling + bias + mask) v, with the weights of shape (batch, heads, queries, keys)."""
    logits = torch.matmul(query, key.transpose(-1, -2)) * scaling
    if position_bias is not None:
        logits = logits + position_bias
    return weigh_values(module, logits, value, attention_mask, dropout)


def weigh_values(
    module: nn.Module,
    logits: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """softmax(logits + mask) v, (batch, queries, heads, head_dim), and the weights, (batch, heads, queries, keys)."""
    if attention_mask is not None and attention_mask.dtype == torch.bool:
        # with a static cache `generate` prepares the mask ahead, for the kernel that the config names
        logits = logits.masked_fill(~attention_mask, torch.finfo(logits.dtype).min)
    elif attention_mask is not None:
        logits = logits + attention_mask
    weights = drop_out(logits.softmax(dim=-1), dropout, module.training)
    return torch.matmul(weights, value).transpose(1, 2).contiguous(), weights


def attention_config(config: DeepNMTConfig, output_attentions: bool | None) -> DeepNMTConfig:
    """The config that masks and attention follow: eager where weights are asked for, since no kernel returns them."""
    wanted = config.output_attentions if output_attentions is None else output_attentions
    if not wanted or config._attn_implementation == "eager":
        return config
    config = copy.copy(config)
    config._attn_implementation = "eager"
    return config


class DeepNMTSinusoidalPositions(nn.Module):
    """Sinusoids with all sines before all cosines; not in the checkpoint, never trained, without an upper limit."""

    def __init__(self, length: int, width: int):
        super().__init__()
        self.length, self.width = length, width
        self.register_buffer("table", self.compute(length), persistent=False)

    def compute(self, length: int, device: torch.device | None = None) -> torch.Tensor:
        index = torch.arange(self.width, dtype=torch.float64, device=device)
        rates = torch.pow(10000.0, 2 * (index // 2) / self.width)
        angles = torch.arange(length, dtype=torch.float64, device=device)[:, None] / rates
        return torch.cat([angles[:, 0::2].sin(), angles[:, 1::2].cos()], dim=-1).float()

    def forward(self, positions: torch.Tensor, bound: int) -> torch.Tensor:
        """Rows for `positions` (batch or 1, length), all below the Python integer `bound`: (batch or 1, length, width)."""
        table = self.table
        if bound > self.length:
            table = self.compute(bound, device=table.device).to(table.dtype)
        return table[positions]


class DeepNMTAttention(nn.Module):
    """Multi-head attention over its own input, or over a memory whose keys and values are computed once per sentence."""

    def __init__(self, config: DeepNMTConfig, num_heads: int, layer_idx: int, is_causal: bool = False):
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.head_dim = config.d_model // num_heads
        self.scaling = self.head_dim**-0.5
        self.dropout = config.attention_dropout
        self.is_causal = is_causal
        for name in ("k_proj", "v_proj", "q_proj", "out_proj"):
            self.add_module(name, nn.Linear(config.d_model, config.d_model, bias=config.attention_bias))

    def split_heads(self, states: torch.Tensor) -> torch.Tensor:
        return states.view(*states.shape[:-1], -1, self.head_dim).transpose(1, 2)

    def project(self, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of `states`, each (batch, heads, length, head_dim)."""
        return self.split_heads(self.k_proj(states)), self.split_heads(self.v_proj(states))

    def memory_states(self, memory: torch.Tensor, cache: Cache | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of a memory: projected at the first step, then read from the cross-attention cache."""
        if not isinstance(cache, EncoderDecoderCache):
            return self.project(memory)
        cross = cache.cross_attention_cache
        if cache.is_updated.get(self.layer_idx):
            return cross.layers[self.layer_idx].keys, cross.layers[self.layer_idx].values
        states = cross.update(*self.project(memory), self.layer_idx)
        cache.is_updated[self.layer_idx] = True
        return states

    def own_states(self, hidden_states: torch.Tensor, cache: Cache | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of the input, after those of earlier steps."""
        states = self.project(hidden_states)
        if cache is None:
            return states
        own = cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
        return own.update(*states, self.layer_idx)

    def attend(
        self, query, key, value, attention_mask, attn_implementation: str, scaling: float | None = None, **kwargs
    ):
        """The attention function proper: (batch, length, heads, head_dim) and the weights where there are any."""
        function: Callable = ALL_ATTENTION_FUNCTIONS.get_interface(attn_implementation, eager_attention)
        dropout = self.dropout if self.training else 0.0
        scaling = self.scaling if scaling is None else scaling
        return function(self, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        memory: torch.Tensor | None = None,
        cache: Cache | None = None,
        attn_implementation: str | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        query = self.split_heads(self.q_proj(hidden_states))
        if memory is None:
            key, value = self.own_states(hidden_states, cache)
        else:
            key, value = self.memory_states(memory, cache)
        implementation = attn_implementation or self.config._attn_implementation
        output, weights = self.attend(query, key, value, attention_mask, implementation, **kwargs)
        return self.out_proj(output.reshape(*hidden_states.shape[:-1], -1)), weights


class DeepNMTLayer(GradientCheckpointingLayer):
    """What encoder and decoder layers share: self-attention, the feed-forward part, and where norms stand."""

    def __init__(self, config: DeepNMTConfig, layer_idx: int, num_heads: int, ffn_dim: int, is_causal: bool):
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.self_attn = self.make_attention(num_heads, is_causal=is_causal)
        self.self_attn_layer_norm = self.make_norm()
        self.fc1 = nn.Linear(config.d_model, ffn_dim)
        self.fc2 = nn.Linear(ffn_dim, config.d_model)
        self.final_layer_norm = self.make_norm()
        self.activation = ACT2FN[config.activation_function]

    def make_norm(self) -> nn.LayerNorm:
        return nn.LayerNorm(self.config.d_model, eps=self.config.layer_norm_eps)

    def make_attention(self, num_heads: int, is_causal: bool = False) -> nn.Module:
        return DeepNMTAttention(self.config, num_heads, self.layer_idx, is_causal)

    def drop(self, states: torch.Tensor) -> torch.Tensor:
        return drop_out(states, self.config.dropout, self.training)

    def residual(self, states: torch.Tensor, norm: nn.Module, function: Callable) -> torch.Tensor:
        """post: LN(x + Drop(f(x))); pre: x + Drop(f(LN(x)))."""
        if self.config.norm_style == "pre":
            return states + self.drop(function(norm(states)))
        return norm(states + self.drop(function(states)))

    def feed_forward(self, states: torch.Tensor) -> torch.Tensor:
        states = self.activation(self.fc1(states))
        states = drop_out(states, self.config.activation_dropout, self.training)
        return self.fc2(states)


class DeepNMTEncoderLayer(DeepNMTLayer):
    def __init__(self, config: DeepNMTConfig, layer_idx: int):
        super().__init__(config, layer_idx, config.encoder_attention_heads, config.encoder_ffn_dim, is_causal=False)

    def attended(
        self, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None, **kwargs: Unpack[TransformersKwargs]
    ) -> torch.Tensor:
        """The state between attention and the feed-forward part."""
        return self.residual(
            hidden_states,
            self.self_attn_layer_norm,
            lambda states: self.self_attn(states, attention_mask, **kwargs)[0],
        )

    def forward(
        self, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None, **kwargs: Unpack[TransformersKwargs]
    ) -> torch.Tensor:
        hidden_states = self.attended(hidden_states, attention_mask, **kwargs)
        return self.residual(hidden_states, self.final_layer_norm, self.feed_forward)


class DeepNMTDecoderLayer(DeepNMTLayer):
    def __init__(self, config: DeepNMTConfig, layer_idx: int):
        super().__init__(config, layer_idx, config.decoder_attention_heads, config.decoder_ffn_dim, is_causal=True)
        self.encoder_attn = self.make_attention(config.decoder_attention_heads)
        self.encoder_attn_layer_norm = self.make_norm()

    def attended(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        encoder_hidden_states: torch.Tensor | None,
        encoder_attention_mask: torch.Tensor | None = None,
        cache: Cache | None = None,
        use_cache: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        """The state between attention and the feed-forward part."""
        hidden_states = self.residual(
            hidden_states,
            self.self_attn_layer_norm,
            lambda states: self.self_attn(states, attention_mask, cache=cache, **kwargs)[0],
        )
        if encoder_hidden_states is not None:
            hidden_states = self.residual(
                hidden_states,
                self.encoder_attn_layer_norm,
                lambda states: self.read_source(
                    states, encoder_attention_mask, memory=encoder_hidden_states, cache=cache, **kwargs
                ),
            )
        return hidden_states

    def read_source(self, states: torch.Tensor, mask: torch.Tensor | None, **kwargs) -> torch.Tensor:
        """What `states` (batch, target, d_model) attend to in the keyword `memory`, under the `mask` of the source."""
        return self.encoder_attn(states, mask, **kwargs)[0]

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        encoder_hidden_states: torch.Tensor | None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        hidden_states = self.attended(hidden_states, attention_mask, encoder_hidden_states, **kwargs)
        return self.residual(hidden_states, self.final_layer_norm, self.feed_forward)


class DeepNMTPreTrainedModel(PreTrainedModel):
    config: DeepNMTConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["DeepNMTEncoderLayer", "DeepNMTDecoderLayer"]
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _can_compile_fullgraph = True
    # Sinusoids are computed for any length; the pipelines ask.
    positions_extend = True

    def _init_weights(self, module):
        scheme = self.config.init_scheme
        if isinstance(module, DeepNMTSinusoidalPositions):
            init.copy_(module.table, module.compute(module.length))
        elif scheme == "normal" or not isinstance(module, (nn.Linear, nn.Embedding)):
            super()._init_weights(module)
        elif isinstance(module, nn.Embedding) or getattr(module, "is_output_projection", False):
            self.init_embedding(module)
        elif scheme == "fan_in":
            bound = module.in_features**-0.5
            for parameter in module.parameters(recurse=False):
                init.uniform_(parameter, -bound, bound)
        else:
            bound = math.sqrt(6 / (module.in_features + module.out_features)) * self.depth_gain(module)
            init.uniform_(module.weight, -bound, bound)
            if module.bias is not None:
                init.zeros_(module.bias)

    def init_embedding(self, module: nn.Embedding | nn.Linear):
        init.normal_(module.weight, mean=0.0, std=self.config.d_model**-0.5)
        padding_idx = getattr(module, "padding_idx", None)
        if padding_idx is not None and not getattr(module.weight, "_is_hf_initialized", False):
            init.zeros_(module.weight[padding_idx])
        if getattr(module, "bias", None) is not None:
            init.zeros_(module.bias)

    def depth_gain(self, module: nn.Module) -> float:
        """alpha * l^-exponent for a matrix of layer l = 1, 2, ... of its stack; 1 outside the stacks."""
        if self.config.init_scheme != "depth_scaled":
            return 1.0
        return self.config.init_alpha * getattr(module, "init_depth", 1) ** -float(self.config.ds_exponent)

    def get_expanded_tied_weights_keys(self, all_submodels: bool = False) -> dict:
        # Transformers ties nothing at all when `tie_word_embeddings` is off, but one embedding for both sides with a
        # separate output projection is a setting of its own.
        if all_submodels:
            return super().get_expanded_tied_weights_keys(all_submodels=True)
        return dict(self._tied_weights_keys or {})

    def save_pretrained(self, save_directory, *args, **kwargs):
        """As in Transformers; the folder also names the pipelines that it carries."""
        if getattr(self, "generation_config", None) is not None:
            # or entries that Transformers does not know, such as `length_penalty_form`, would not be loaded again
            self.generation_config._from_model_config = False
        fields = vars(self.config)
        stored = fields.get("custom_pipelines")
        own = {
            task: {
                "impl": f"{pipeline.__module__.rpartition('.')[2]}.{pipeline.__name__}",
                "pt": ["AutoModelForSeq2SeqLM"],
            }
            for task, pipeline in PIPELINES.items()
        }
        fields["custom_pipelines"] = {**(stored or {}), **own}
        try:
            return super().save_pretrained(save_directory, *args, **kwargs)
        finally:
            fields.pop("custom_pipelines")
            if stored is not None:
                fields["custom_pipelines"] = stored


class DeepNMTStack(DeepNMTPreTrainedModel):
    """What encoder and decoder share: embedding with positions, making layers, layer drop, the norm at the top."""

    # Set by architectures that read every layer: `merge_layers` then gets all states instead of the last one only.
    fuses_layers = False

    def __init__(self, config: DeepNMTConfig, vocab_size: int, num_layers: int, layerdrop: float):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(vocab_size, config.d_model, config.pad_token_id)
        self.embed_positions = DeepNMTSinusoidalPositions(config.max_position_embeddings, config.d_model)
        self.embed_scale = math.sqrt(config.d_model) if config.scale_embedding else 1.0
        self.layerdrop = layerdrop
        self.layers = nn.ModuleList(self.make_layer(index) for index in range(num_layers))
        for index, layer in enumerate(self.layers):
            for module in layer.modules():
                module.init_depth = index + 1
        self.layer_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps) if config.final_norm else None
        self.gradient_checkpointing = False

    def make_layer(self, layer_idx: int) -> nn.Module:
        raise NotImplementedError

    def embed(self, inputs_embeds: torch.Tensor, positions: torch.Tensor, bound: int) -> torch.Tensor:
        """Scaled embeddings (batch, length, d_model) plus positions, after dropout."""
        states = inputs_embeds * self.embed_scale + self.embed_positions(positions, bound).to(inputs_embeds.dtype)
        return drop_out(states, self.config.dropout, self.training)

    def layer_inputs(
        self,
        inputs_embeds: torch.Tensor,
        attention_mask: torch.Tensor | None,
        past: int | torch.Tensor,
        bound: int,
        cache: Cache | None,
    ) -> dict[str, torch.Tensor]:
        """
        Further keyword inputs of `run_layers`, which hands them to every layer.

        Args:
            inputs_embeds: (batch, length, d_model), the new tokens, not yet scaled.
            attention_mask: (batch, past + length) where there is one.
            past, bound, cache: tokens before the new ones, a number above every position, and the self-attention cache.
        """
        return {}

    def attention_config(self, inputs_embeds: torch.Tensor, output_attentions: bool | None) -> DeepNMTConfig:
        """The config that masks and attention of this pass follow; it names the attention implementation."""
        return attention_config(self.config, output_attentions)

    def skips_layer(self) -> bool:
        return self.training and self.layerdrop > 0 and torch.rand([]).item() < self.layerdrop

    def next_input(self, states: list[torch.Tensor]) -> torch.Tensor:
        """What the next layer reads, from the states z^0, ..., z^l below it (with `fuses_layers`, else z^l alone)."""
        return states[-1]

    def merge_layers(self, states: list[torch.Tensor]) -> torch.Tensor:
        """The output of the stack from the states z^0 (embedding), z^1, ..., z^L, each (batch, length, d_model)."""
        return states[-1]

    def finish(self, states: list[torch.Tensor]) -> torch.Tensor:
        output = self.merge_layers(states)
        return output if self.layer_norm is None else self.layer_norm(output)


class DeepNMTEncoder(DeepNMTStack):
    _can_record_outputs = {"hidden_states": DeepNMTEncoderLayer, "attentions": DeepNMTAttention}

    def __init__(self, config: DeepNMTConfig):
        super().__init__(config, config.vocab_size, config.encoder_layers, config.encoder_layerdrop)
        self.post_init()

    def make_layer(self, layer_idx: int) -> nn.Module:
        return DeepNMTEncoderLayer(self.config, layer_idx)

    def embed_source(self, inputs_embeds: torch.Tensor, attention_mask: torch.Tensor | None) -> torch.Tensor:
        length = inputs_embeds.shape[1]
        positions = positions_from_mask(attention_mask, length, 0, inputs_embeds.device)
        return self.embed(inputs_embeds, positions, bound=length)

    def run_layers(
        self, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None, **kwargs
    ) -> list[torch.Tensor]:
        """z^0, z^1, ..., z^L; only the last of them unless `fuses_layers`. A dropped layer repeats its input."""
        states = [hidden_states]
        for layer in self.layers:
            inputs = self.next_input(states)
            output = inputs if self.skips_layer() else layer(inputs, attention_mask, **kwargs)
            states = [*states, output] if self.fuses_layers else [output]
        return states

    def make_output(self, states: list[torch.Tensor]) -> BaseModelOutput:
        """The encoder's output from what `run_layers` returns; further memories are further fields, batch first."""
        return BaseModelOutput(last_hidden_state=self.finish(states))

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutput:
        """
        Args:
            input_ids: (batch, source).
            attention_mask: (batch, source), 1 at real tokens. Missing, it is inferred from the padding id.
            inputs_embeds: (batch, source, d_model) instead of `input_ids`, not yet scaled by sqrt(d_model).
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("Give the encoder exactly one of `input_ids` and `inputs_embeds`")
        if inputs_embeds is None:
            if attention_mask is None:
                attention_mask = input_ids.ne(self.config.pad_token_id)
            inputs_embeds = self.embed_tokens(input_ids)
        config = self.attention_config(inputs_embeds, kwargs.get("output_attentions"))
        hidden_states = self.embed_source(inputs_embeds, attention_mask)
        mask = create_bidirectional_mask(config=config, inputs_embeds=hidden_states, attention_mask=attention_mask)
        inputs = self.layer_inputs(inputs_embeds, attention_mask, 0, inputs_embeds.shape[1], None)
        inputs["attn_implementation"] = config._attn_implementation
        return self.make_output(self.run_layers(hidden_states, mask, **inputs, **kwargs))


class DeepNMTDecoder(DeepNMTStack):
    _can_record_outputs = {
        "hidden_states": DeepNMTDecoderLayer,
        "attentions": OutputRecorder(DeepNMTAttention, index=1, layer_name="self_attn"),
        "cross_attentions": OutputRecorder(DeepNMTAttention, index=1, layer_name="encoder_attn"),
    }

    def __init__(self, config: DeepNMTConfig):
        super().__init__(config, config.decoder_vocab_size, config.decoder_layers, config.decoder_layerdrop)
        self.post_init()

    def make_layer(self, layer_idx: int) -> nn.Module:
        return DeepNMTDecoderLayer(self.config, layer_idx)

    def memory_for(
        self, layer_idx: int, encoder_hidden_states: torch.Tensor | None, memories: tuple[torch.Tensor, ...]
    ) -> tuple[torch.Tensor | None, ...]:
        """What decoder layer `layer_idx` reads of the source, each (batch, source, d_model), as positional arguments."""
        return (encoder_hidden_states,)

    def run_layers(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        encoder_hidden_states: torch.Tensor | None,
        memories: tuple[torch.Tensor, ...],
        **kwargs,
    ) -> list[torch.Tensor]:
        """As the encoder's. Memories go in by position, since reentrant checkpointing follows no other gradients."""
        states = [hidden_states]
        for index, layer in enumerate(self.layers):
            read = self.memory_for(index, encoder_hidden_states, memories)
            inputs = self.next_input(states)
            output = inputs if self.skips_layer() else layer(inputs, attention_mask, *read, **kwargs)
            states = [*states, output] if self.fuses_layers else [output]
        return states

    def new_cache(self, encoder_hidden_states: torch.Tensor | None) -> Cache:
        own = DynamicCache(config=self.config)
        return own if encoder_hidden_states is None else EncoderDecoderCache(own, DynamicCache(config=self.config))

    @merge_with_config_defaults
    @capture_outputs
    @deprecate_kwarg("past_key_values", "5.40.0", new_name="cache")
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        encoder_hidden_states: torch.Tensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        cache: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        use_cache: bool | None = None,
        memories: tuple[torch.Tensor, ...] = (),
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """
        Args:
            input_ids: (batch, target), only the new tokens where a `cache` holds earlier ones.
            attention_mask: (batch, cached + target). Padding behind needs none; padding in front does.
            encoder_hidden_states: (batch, source, d_model).
            memories: further source-side tensors of the architecture, read through `memory_for`.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("Give the decoder exactly one of `decoder_input_ids` and `decoder_inputs_embeds`")
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)
        if use_cache and cache is None:
            cache = self.new_cache(encoder_hidden_states)
        own_cache = cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
        past = 0 if own_cache is None else own_cache.get_seq_length()
        length = inputs_embeds.shape[1]
        # a static cache counts in a tensor, but it also says how far it can go
        bound = past + length if isinstance(past, int) else own_cache.layers[0].max_cache_len
        config = self.attention_config(inputs_embeds, kwargs.get("output_attentions"))
        hidden_states = self.embed(
            inputs_embeds, positions_from_mask(attention_mask, length, past, inputs_embeds.device), bound
        )
        causal_mask = create_causal_mask(
            config=config, inputs_embeds=hidden_states, attention_mask=attention_mask, cache=own_cache
        )
        cross_mask = create_bidirectional_mask(
            config=config,
            inputs_embeds=hidden_states,
            attention_mask=encoder_attention_mask,
            encoder_hidden_states=encoder_hidden_states,
        )
        states = self.run_layers(
            hidden_states,
            causal_mask,
            encoder_hidden_states,
            memories,
            encoder_attention_mask=cross_mask,
            cache=cache,
            use_cache=use_cache,
            attn_implementation=config._attn_implementation,
            **self.layer_inputs(inputs_embeds, attention_mask, past, bound, own_cache),
            **kwargs,
        )
        return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=self.finish(states), cache=cache)


class DeepNMTModel(DeepNMTPreTrainedModel):
    """Encoder and decoder without the output projection."""

    encoder_class = DeepNMTEncoder
    decoder_class = DeepNMTDecoder

    def __init__(self, config: DeepNMTConfig):
        super().__init__(config)
        self._tied_weights_keys = self.tied_weights()
        if config.share_encoder_decoder_embeddings:
            self.shared = nn.Embedding(config.vocab_size, config.d_model, config.pad_token_id)
        self.encoder = self.encoder_class(config)
        self.decoder = self.decoder_class(config)
        self.post_init()

    def tied_weights(self) -> dict[str, str]:
        """Parameters that are one with another, by name, and that other's name."""
        if not self.config.share_encoder_decoder_embeddings:
            return {}
        return {f"{side}.embed_tokens.weight": "shared.weight" for side in ("encoder", "decoder")}

    def get_input_embeddings(self) -> nn.Embedding:
        return self.encoder.embed_tokens

    def set_input_embeddings(self, value: nn.Embedding):
        self.encoder.embed_tokens = value
        if self.config.share_encoder_decoder_embeddings:
            self.shared = self.decoder.embed_tokens = value

    def decoder_memories(self, encoder_outputs: BaseModelOutput) -> tuple[torch.Tensor, ...]:
        """Further tensor fields of the encoder output that the decoder reads; `generate` repeats such fields for beams."""
        return ()

    def encode(self, encoder_outputs, input_ids, attention_mask, inputs_embeds, **kwargs):
        """The encoder's output, run or as given, and the mask of its positions."""
        if attention_mask is None and input_ids is not None:
            attention_mask = input_ids.ne(self.config.pad_token_id)
        if encoder_outputs is None:
            encoder_outputs = self.encoder(
                input_ids=input_ids, attention_mask=attention_mask, inputs_embeds=inputs_embeds, **kwargs
            )
        elif not isinstance(encoder_outputs, BaseModelOutput):
            encoder_outputs = BaseModelOutput(*encoder_outputs)
        return encoder_outputs, attention_mask

    @can_return_tuple
    @deprecate_kwarg("past_key_values", "5.40.0", new_name="cache")
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.LongTensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: tuple | BaseModelOutput | None = None,
        cache: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> Seq2SeqModelOutput:
        """Shapes as in the encoder's and the decoder's forward; `encoder_outputs` skips the encoder."""
        encoder_outputs, attention_mask = self.encode(
            encoder_outputs, input_ids, attention_mask, inputs_embeds, **kwargs
        )
        decoder_outputs = self.decoder(
            input_ids=decoder_input_ids,
            attention_mask=decoder_attention_mask,
            encoder_hidden_states=encoder_outputs.last_hidden_state,
            encoder_attention_mask=attention_mask,
            cache=cache,
            inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            memories=self.decoder_memories(encoder_outputs),
            **kwargs,
        )
        return self.make_output(encoder_outputs, decoder_outputs)

    def make_output(
        self, encoder_outputs: BaseModelOutput, decoder_outputs: BaseModelOutputWithPastAndCrossAttentions
    ) -> Seq2SeqModelOutput:
        return Seq2SeqModelOutput(
            last_hidden_state=decoder_outputs.last_hidden_state,
            cache=decoder_outputs.cache,
            decoder_hidden_states=decoder_outputs.hidden_states,
            decoder_attentions=decoder_outputs.attentions,
            cross_attentions=decoder_outputs.cross_attentions,
            encoder_last_hidden_state=encoder_outputs.last_hidden_state,
            encoder_hidden_states=encoder_outputs.hidden_states,
            encoder_attentions=encoder_outputs.attentions,
        )


class DeepNMTForConditionalGeneration(DeepNMTPreTrainedModel, GenerationMixin):
    """The translation model: `forward(..., labels=)` for training, `generate` for decoding."""

    model_class = DeepNMTModel
    # `forward` divides by `num_items_in_batch` itself, so the Trainer must not divide by the accumulation steps.
    accepts_loss_kwargs = True

    def __init__(self, config: DeepNMTConfig):
        super().__init__(config)
        self.model = self.model_class(config)
        self.lm_head = nn.Linear(config.d_model, config.decoder_vocab_size, bias=config.output_bias)
        self.lm_head.is_output_projection = True
        self._tied_weights_keys = {
            f"model.{target}": f"model.{source}" for target, source in self.model_tying().items()
        }
        if config.tie_word_embeddings:
            shared = config.share_encoder_decoder_embeddings
            self._tied_weights_keys["lm_head.weight"] = (
                f"model.{'shared' if shared else 'decoder.embed_tokens'}.weight"
            )
        # stated here, or the library's default of 20 tokens would cut translations
        self.generation_config.max_length = config.max_position_embeddings
        self.post_init()

    def model_tying(self) -> dict[str, str]:
        return self.model._tied_weights_keys

    def prepare_decoder_input_ids_from_labels(self, labels: torch.Tensor) -> torch.Tensor:
        return shift_right(labels, self.config.pad_token_id, self.config.decoder_start_token_id)

    @torch.no_grad()
    def generate(
        self,
        inputs: torch.Tensor | None = None,
        generation_config: GenerationConfig | None = None,
        *args,
        **kwargs,
    ):
        """
        As in Transformers, with two defaults that translation needs.

        A missing attention mask is inferred from the padding id. Where the caller states no length limit, a
        translation has at most `2 * source + 50` tokens, and never more than `generation_config.max_length`.

        `length_penalty_form`, an argument or an entry of the generation config, says what beam search divides the
        log-probability of a hypothesis by: `"fairseq"`, the default and Transformers' own, length^length_penalty, or
        `"gnmt"`, ((5 + length) / 6)^length_penalty (Wu et al., 2016, equation 14). Lengths are in new tokens, the end
        included.

        Raises:
            ValueError: there is no such `length_penalty_form`.
        """
        source = kwargs.get("input_ids") if inputs is None else inputs
        given = kwargs.get("attention_mask") is not None or kwargs.get("encoder_outputs") is not None
        is_ids = isinstance(source, torch.Tensor) and source.dim() == 2
        if is_ids and not given:
            kwargs["attention_mask"] = source.ne(self.config.pad_token_id).long()
        limits = ("max_length", "max_new_tokens", "stopping_criteria", "decoder_input_ids")
        own_limit = self.generation_config.max_new_tokens is None and self.generation_config.max_length
        stated = generation_config is not None or any(kwargs.get(name) is not None for name in limits)
        if is_ids and own_limit and not stated:
            kwargs["max_length"] = min(own_limit, 2 * source.shape[1] + 51)
        only_new = not any(kwargs.get(name) is not None for name in ("max_length", "decoder_input_ids"))
        if own_limit and only_new and generation_config is None and kwargs.get("max_new_tokens"):
            # in terms of the field that the model's own config sets, or each call warns that both are set
            kwargs["max_length"] = kwargs.pop("max_new_tokens") + 1
        return super().generate(inputs, generation_config, *args, **kwargs)

    def _prepare_generation_config(
        self, generation_config: GenerationConfig | None, length_penalty_form: str | None = None, **kwargs
    ) -> tuple[GenerationConfig, dict]:
        # the one place where call, given config and the model's own have been put together, in a copy for this call
        prepared, model_kwargs = super()._prepare_generation_config(generation_config, **kwargs)
        form = length_penalty_form or getattr(prepared, "length_penalty_form", None) or FAIRSEQ
        prepared.length_penalty = length_penalty_in_form(prepared.length_penalty, form)
        return prepared, model_kwargs

    def translation_loss(
        self,
        states: torch.Tensor,
        labels: torch.Tensor,
        num_items_in_batch: torch.Tensor | int | None = None,
        logits: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """
        Loss, unsmoothed negative log-likelihood, and the divergence between copies where there are two, in fp32.

        All are sums over real tokens divided by `num_items_in_batch` (all real tokens of the optimizer step), or by the
        tokens of this batch where it is not given. Labels are smoothed in training mode only, so that evaluation and
        perplexity are comparable between runs. A batch without real tokens gives 0.

        Args:
            states: (batch, target, d_model), the decoder's output. With two copies of each sentence (2 * batch, ...),
                all first copies before all second ones.
            labels: (batch, target), -100 where padded.
            logits: (batch, target, vocabulary), where they were computed anyway. Without them they are made for a few
                real tokens at a time, so memory does not grow with the vocabulary.
        """
        real = labels.ne(IGNORED_LABEL)
        smoothing = self.config.label_smoothing if self.training else 0.0
        head, targets = self.lm_head, labels[real]
        count = real.sum().clamp(min=1) if num_items_in_batch is None else num_items_in_batch
        # what hangs on the projection's own forward (adapters, offloading) must not be passed by
        chunked = type(head) is nn.Linear and not head._forward_pre_hooks and not hasattr(head, "_hf_hook")
        chunked = chunked and logits is None
        if len(states) == len(labels):
            if chunked:
                loss, nll = linear_cross_entropy(states[real], head.weight, head.bias, targets, smoothing)
            else:
                loss, nll = cross_entropy(head(states[real]) if logits is None else logits[real], targets, smoothing)
            return loss / count, nll.sum() / count, None
        pairs = torch.stack([copy[real] for copy in states.chunk(2)], dim=1)
        if chunked:
            terms = linear_pair_loss(pairs, head.weight, head.bias, targets, smoothing, self.divergences())
        else:
            terms = pair_loss(head(pairs).float(), targets, smoothing, self.divergences())
        loss, consistency, nll = (term / count for term in terms)
        return loss, nll, consistency

    def divergences(self) -> list[tuple[float, Callable]]:
        """Weights and forms of the divergence between two copies of each sentence; none trains plainly."""
        config = self.config
        rdrop = [(config.rdrop_alpha, symmetric_divergence)] if config.rdrop_alpha else []
        cutoff = [(config.cutoff_alpha, DIVERGENCES[config.cutoff_divergence])] if config.cutoff != "none" else []
        return rdrop + cutoff

    def make_copies(self, inputs: dict[str, torch.Tensor | None]) -> dict[str, torch.Tensor | None]:
        """Every tensor of a batch twice; cutoff damages the second copy of the words or embeddings on both sides."""
        config = self.config
        batch = {
            name: torch.cat([value, value]) if isinstance(value, torch.Tensor) and value.dim() else value
            for name, value in inputs.items()
        }
        for prefix, stack in (("", self.model.encoder), ("decoder_", self.model.decoder)):
            ids, embeddings = batch[f"{prefix}input_ids"], batch[f"{prefix}inputs_embeds"]
            if config.cutoff in ("token", "span"):
                if ids is None:
                    raise ValueError(f'`cutoff="{config.cutoff}"` replaces words: give `{prefix}input_ids`')
                special = [config.bos_token_id, config.pad_token_id, config.decoder_start_token_id]
                ends = config.eos_token_id if isinstance(config.eos_token_id, list) else [config.eos_token_id]
                special = [token for token in (*special, *ends) if token is not None]
                first, second = ids.chunk(2)
                second = cut_tokens(
                    second, special, config.cutoff_share, config.cutoff_token_id, span=config.cutoff == "span"
                )
                batch[f"{prefix}input_ids"] = torch.cat([first, second])
            elif config.cutoff == "feature":
                if embeddings is None:
                    embeddings = stack.embed_tokens(batch.pop(f"{prefix}input_ids"))
                first, second = embeddings.chunk(2)
                batch[f"{prefix}inputs_embeds"] = torch.cat([first, cut_features(second, config.cutoff_share)])
        return batch

    def auxiliary_loss(
        self, outputs: Seq2SeqModelOutput, num_items_in_batch: torch.Tensor | int | None = None, **kwargs
    ) -> torch.Tensor | None:
        """Weighted further loss terms of the architecture, normalised like the translation loss; None without any."""
        return None

    @can_return_tuple
    @deprecate_kwarg("past_key_values", "5.40.0", new_name="cache")
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.LongTensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: tuple | BaseModelOutput | None = None,
        cache: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        labels: torch.LongTensor | None = None,
        use_cache: bool | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        output_logits: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> DeepNMTSeq2SeqLMOutput:
        """
        Args:
            labels: (batch, target), the reference with its end token, -100 where padded. The decoder input is made from
                it unless `decoder_input_ids` is given.
            num_items_in_batch: real target tokens of the whole optimizer step, over accumulation and processes.
            output_logits: whether to return logits. Unset, they are left out of training steps (labels in training
                mode), whose loss then needs only a fraction of the memory and time.

        Returns:
            `logits` of shape (batch, target, vocabulary) and, with labels, `loss`, `nll_loss`, `auxiliary_loss` and
            `consistency_loss`. With R-Drop or cutoff in training, logits and states are those of both copies of the
            batch, one behind the other, and the losses are divided by the tokens of one copy.
        """
        if labels is not None:
            use_cache = False
            if decoder_input_ids is None and decoder_inputs_embeds is None:
                decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        inputs = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "decoder_input_ids": decoder_input_ids,
            "decoder_attention_mask": decoder_attention_mask,
            "inputs_embeds": inputs_embeds,
            "decoder_inputs_embeds": decoder_inputs_embeds,
            **kwargs,
        }
        pairs = labels is not None and self.training and bool(self.divergences())
        if pairs:
            if encoder_outputs is not None:
                raise ValueError("R-Drop and cutoff run the encoder twice: leave `encoder_outputs` out in training")
            if attention_mask is None and input_ids is not None:
                inputs["attention_mask"] = input_ids.ne(self.config.pad_token_id)
            inputs = self.make_copies(inputs)
        outputs = self.model(**inputs, encoder_outputs=encoder_outputs, cache=cache, use_cache=use_cache)
        states = outputs.last_hidden_state
        if output_logits is None:
            output_logits = labels is None or not self.training
        logits = self.lm_head(states) if output_logits else None
        loss = nll_loss = auxiliary = consistency = None
        if labels is not None:
            loss, nll_loss, consistency = self.translation_loss(
                states, labels, num_items_in_batch, None if pairs else logits
            )
            if pairs:
                num_items_in_batch = (
                    labels.ne(IGNORED_LABEL).sum() if num_items_in_batch is None else num_items_in_batch
                )
                labels = torch.cat([labels, labels])
            auxiliary = self.auxiliary_loss(outputs, num_items_in_batch=num_items_in_batch, labels=labels)
            loss = loss if auxiliary is None else loss + auxiliary
        return self.make_output(
            outputs,
            loss=loss,
            logits=logits,
            nll_loss=nll_loss,
            auxiliary_loss=auxiliary,
            consistency_loss=consistency,
        )

    def make_output(self, outputs: Seq2SeqModelOutput, **fields: torch.Tensor | None) -> DeepNMTSeq2SeqLMOutput:
        """The output of `forward` from that of the model without projection, and what the projection adds."""
        return DeepNMTSeq2SeqLMOutput(
            **fields,
            cache=outputs.cache,
            decoder_hidden_states=outputs.decoder_hidden_states,
            decoder_attentions=outputs.decoder_attentions,
            cross_attentions=outputs.cross_attentions,
            encoder_last_hidden_state=outputs.encoder_last_hidden_state,
            encoder_hidden_states=outputs.encoder_hidden_states,
            encoder_attentions=outputs.encoder_attentions,
        )

    # --- vocabulary sizes ---

    def _resize_token_embeddings(self, new_num_tokens: int, *args, **kwargs) -> nn.Embedding:
        """`resize_token_embeddings` changes the source side, and the target side where both are one matrix."""
        shared = self.config.share_encoder_decoder_embeddings
        embeddings = self._get_resized_embeddings(self.get_input_embeddings(), new_num_tokens, *args, **kwargs)
        self.set_input_embeddings(embeddings)
        if shared:
            self._resize_output(embeddings.num_embeddings)
        return self.get_input_embeddings()

    def resize_decoder_token_embeddings(self, new_num_tokens: int) -> nn.Embedding:
        """Resize the target vocabulary of a model with separate embeddings.

        Raises:
            ValueError: source and target embedding are one matrix; use `resize_token_embeddings`.
        """
        if self.config.share_encoder_decoder_embeddings:
            raise ValueError("Source and target share one embedding here: call `resize_token_embeddings` instead")
        decoder = self.model.decoder
        decoder.embed_tokens = self._get_resized_embeddings(decoder.embed_tokens, new_num_tokens)
        self._resize_output(new_num_tokens)
        self.tie_weights()
        return decoder.embed_tokens

    def _resize_output(self, size: int):
        head = self._get_resized_lm_head(self.lm_head, size)
        head.is_output_projection = True
        self.lm_head = head
        self.config.decoder_vocab_size = size

    # --- warm start ---

    @classmethod
    def from_marian(cls, path: str, **overrides):
        """
        A model of this architecture with the weights of a local Marian checkpoint (`MarianMTModel.save_pretrained`).

        Parameters that the architecture adds keep their initial values and are logged by name. `overrides` are config
        fields, for instance the architecture's own.

        Raises:
            ValueError: the folder holds no Marian model, or its weights do not fit the overridden shape.
        """
        source_config = AutoConfig.from_pretrained(path)
        if source_config.model_type != "marian":
            raise ValueError(
                f"{path} holds a {source_config.model_type!r} model; `from_marian` reads model_type 'marian'"
            )
        marian = MarianMTModel.from_pretrained(path)
        model = cls(cls.config_class(**{**marian_fields(source_config, cls.config_class), **overrides}))
        model.load_marian_state_dict(marian.state_dict(), origin=str(path))
        model.generation_config = copy.deepcopy(marian.generation_config)
        return model.eval()

    def load_marian_state_dict(self, state_dict: dict[str, torch.Tensor], origin: str = "the state dict"):
        """Load the weights of a `MarianMTModel` in place; see `from_marian` for what is checked."""
        weights = {key: value for key, value in state_dict.items() if ".embed_positions." not in key}
        bias = weights.pop("final_logits_bias", None)
        if bias is not None and self.lm_head.bias is not None:
            weights["lm_head.bias"] = bias.reshape(-1)
        elif bias is not None and bias.abs().max() > 0:
            raise ValueError(f"{origin} has an output bias: set `output_bias=True`")
        own = self.state_dict()
        unfit = [key for key, value in weights.items() if key not in own or own[key].shape != value.shape]
        if unfit:
            raise ValueError(
                f"{len(unfit)} weights of {origin} do not fit {type(self).__name__} (first: {unfit[0]}): give it the layers, "
                "sizes and sharing of the Marian model, as `from_marian` does by default"
            )
        missing = self.load_state_dict(weights, strict=False).missing_keys
        if missing:
            logger.warning(f"{len(missing)} parameters are not in {origin} and keep their initial values: {missing}")


def marian_fields(source_config, config_class) -> dict:
    """Config fields for a Marian model: those with the same name, and the ones that describe what Marian fixes."""
    names = set(config_class.__dataclass_fields__) & set(source_config.to_dict())
    skipped = {"architectures", "dtype", "transformers_version", "model_type", "is_decoder"}
    fields = {name: getattr(source_config, name) for name in names - skipped}
    return {**fields, "norm_style": "post", "output_bias": True, "init_scheme": "normal", "label_smoothing": 0.0}


__all__ = ["DeepNMTForConditionalGeneration", "DeepNMTModel", "DeepNMTPreTrainedModel", "DeepNMTSeq2SeqLMOutput"]
