# Copyright 2026 The hf_deepnmt authors. Apache-2.0 licence.
"""
MLRF (Wang et al., 2018, Multi-layer Representation Fusion for Neural Machine Translation): memory and output read a learned
mixture of all layers.

States are fused position by position, at the top of a stack, so nothing beyond the ordinary cache is kept between steps.
"""

from dataclasses import dataclass

import torch
from torch import nn
from transformers import initialization as init
from transformers.generation import GenerationMixin
from transformers.modeling_outputs import (
    BaseModelOutput,
    BaseModelOutputWithPastAndCrossAttentions,
    Seq2SeqModelOutput,
)

from .configuration_mlrf import MLRFConfig
from .modeling_deepnmt import (
    DeepNMTDecoder,
    DeepNMTEncoder,
    DeepNMTForConditionalGeneration,
    DeepNMTModel,
    DeepNMTPreTrainedModel,
    DeepNMTSeq2SeqLMOutput,
)


ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu, "sigmoid": torch.sigmoid}


@dataclass
class MLRFModelOutput(Seq2SeqModelOutput):
    """
    Args:
        encoder_fusion_attentions (`tuple` of one `torch.FloatTensor`, *optional*):
            With `output_fusion_attentions=True`, a_p^l of equation 6, `(batch, source, fused, n_hop)`; with `featurewise`,
            `(batch, source, fused, n_hop, d_model)`. Empty where the encoder is not fused by `sa`.
        decoder_fusion_attentions (`tuple` of one `torch.FloatTensor`, *optional*):
            The same over target positions.
    """

    encoder_fusion_attentions: tuple[torch.FloatTensor, ...] | None = None
    decoder_fusion_attentions: tuple[torch.FloatTensor, ...] | None = None


@dataclass
class MLRFSeq2SeqLMOutput(DeepNMTSeq2SeqLMOutput):
    """
    Args:
        encoder_fusion_attentions, decoder_fusion_attentions (`tuple` of one `torch.FloatTensor`, *optional*):
            As in `MLRFModelOutput`.
    """

    encoder_fusion_attentions: tuple[torch.FloatTensor, ...] | None = None
    decoder_fusion_attentions: tuple[torch.FloatTensor, ...] | None = None


class LayerEmbedding(nn.Module):
    """E^l of equation 4, one row for each fused state."""

    def __init__(self, rows: int, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(rows, width))


class FeedForwardFusion(nn.Module):
    """W_b relu(W_a [x_1; ...; x_n]), (batch, length, n, d_model) to (batch, length, d_model)."""

    def __init__(self, config: MLRFConfig, inputs: int):
        super().__init__()
        self.fc1 = nn.Linear(inputs * config.d_model, config.d_f, bias=config.fusion_bias)
        self.fc2 = nn.Linear(config.d_f, config.d_model, bias=config.fusion_bias)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return self.fc2(torch.relu(self.fc1(states.flatten(2))))


# A module named `...Attention` would have to offer the attention functions of Transformers for any to be chosen.
class LayerWeighting(nn.Module):
    """Equations 5 to 7: attention of `n_hop` hops over the states of one position."""

    def __init__(self, config: MLRFConfig, inputs: int):
        super().__init__()
        self.n_hop = config.n_hop
        self.w1_per_hop, self.featurewise = config.w1_per_hop, config.featurewise
        self.activation = ACTIVATIONS[config.sa_activation]
        hidden = config.d_a * (config.n_hop if config.w1_per_hop else 1)
        self.w1 = nn.ModuleList(
            nn.Linear(config.d_model, hidden, bias=config.fusion_bias)
            for _ in range(inputs if config.independent_w1 else 1)
        )
        energies = config.n_hop * (config.d_model if config.featurewise else 1)
        self.w2 = nn.Linear(config.d_a, energies, bias=config.fusion_bias)

    def energies(self, states: torch.Tensor) -> torch.Tensor:
        """e of equation 5, (batch, length, n, n_hop), with `featurewise` (batch, length, n, n_hop, d_model)."""
        if len(self.w1) > 1:
            parts = zip(self.w1, states.unbind(2), strict=True)
            hidden = torch.stack([w1(state) for w1, state in parts], dim=2)
        else:
            hidden = self.w1[0](states)
        hidden = self.activation(hidden)
        if not self.w1_per_hop:
            energies = self.w2(hidden).unflatten(-1, (self.n_hop, -1))
        else:
            # W_1 of hop p feeds the rows of W_2 that belong to hop p
            rows = self.w2.weight.unflatten(0, (self.n_hop, -1))
            energies = torch.einsum("...pa,pka->...pk", hidden.unflatten(-1, (self.n_hop, -1)), rows.to(hidden.dtype))
            if self.w2.bias is not None:
                energies = energies + self.w2.bias.view(self.n_hop, -1)
        return energies if self.featurewise else energies.squeeze(-1)

    def forward(self, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """s~ of equation 7, (batch, length, n_hop, d_model), and the weights, from (batch, length, n, d_model)."""
        weights = self.energies(states).softmax(dim=2)
        if self.featurewise:
            return (weights * states.unsqueeze(3)).sum(dim=2), weights
        return weights.to(states.dtype).transpose(2, 3) @ states, weights


class LayerFusion(nn.Module):
    """The fusion of one stack: phi of the paper's Table 1 on its states, each (batch, length, d_model)."""

    def __init__(self, config: MLRFConfig, side: str):
        super().__init__()
        inputs = config.fused_states(side)
        self.first = 0 if config.fuse_word_embedding else 1
        self.kind = getattr(config, f"{side}_fusion")
        self.layer_embedding = self.attention = self.network = None
        if config.has_layer_embedding(side):
            rows = max(inputs, config.fused_states("encoder"), config.fused_states("decoder"))
            self.layer_embedding = LayerEmbedding(rows if shares_embedding(config) else inputs, config.d_model)
        if self.kind == "sa":
            self.attention = LayerWeighting(config, inputs)
        if self.kind != "avg":
            self.network = FeedForwardFusion(config, config.n_hop if self.kind == "sa" else inputs)

    def forward(self, states: list[torch.Tensor]) -> torch.Tensor:
        stacked = torch.stack(states[self.first :], dim=2)
        if self.kind == "avg":
            return stacked.mean(dim=2)
        if self.layer_embedding is not None:
            stacked = stacked + self.layer_embedding.weight[: stacked.shape[2]].to(stacked.dtype)
        if self.attention is not None:
            stacked, _ = self.attention(stacked)
        return self.network(stacked)


def shares_embedding(config: MLRFConfig) -> bool:
    return config.share_layer_embedding and all(map(config.has_layer_embedding, ("encoder", "decoder")))


class MLRFPreTrainedModel(DeepNMTPreTrainedModel):
    config: MLRFConfig

    def _init_weights(self, module):
        super()._init_weights(module)
        if isinstance(module, LayerEmbedding):
            init.uniform_(module.weight, -0.1, 0.1)


class MLRFStack(MLRFPreTrainedModel):
    """What both stacks share."""

    side: str

    def __init__(self, config: MLRFConfig):
        super().__init__(config)
        self.fusion = None
        if self.fuses_layers:
            self.fusion = LayerFusion(config, self.side)
            norm = self.fusion.kind != "avg" if config.fusion_layernorm is None else config.fusion_layernorm
            if norm and self.layer_norm is None:
                self.layer_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)

    @property
    def fuses_layers(self) -> bool:
        return getattr(self.config, f"{self.side}_fusion") != "none"

    def merge_layers(self, states: list[torch.Tensor]) -> torch.Tensor:
        return self.fusion(states) if self.fuses_layers else super().merge_layers(states)


class MLRFEncoder(MLRFStack, DeepNMTEncoder):
    side = "encoder"
    _can_record_outputs = {**DeepNMTEncoder._can_record_outputs, "fusion_attentions": LayerWeighting}


class MLRFDecoder(MLRFStack, DeepNMTDecoder):
    side = "decoder"
    _can_record_outputs = {**DeepNMTDecoder._can_record_outputs, "fusion_attentions": LayerWeighting}


class MLRFModel(MLRFPreTrainedModel, DeepNMTModel):
    """Encoder and decoder without the output projection."""

    encoder_class = MLRFEncoder
    decoder_class = MLRFDecoder

    def tied_weights(self) -> dict[str, str]:
        tied = super().tied_weights()
        if shares_embedding(self.config):
            tied["decoder.fusion.layer_embedding.weight"] = "encoder.fusion.layer_embedding.weight"
        return tied

    def make_output(
        self, encoder_outputs: BaseModelOutput, decoder_outputs: BaseModelOutputWithPastAndCrossAttentions
    ) -> MLRFModelOutput:
        return MLRFModelOutput(
            **super().make_output(encoder_outputs, decoder_outputs),
            encoder_fusion_attentions=getattr(encoder_outputs, "fusion_attentions", None),
            decoder_fusion_attentions=getattr(decoder_outputs, "fusion_attentions", None),
        )


class MLRFForConditionalGeneration(MLRFPreTrainedModel, DeepNMTForConditionalGeneration, GenerationMixin):
    """The translation model. `output_fusion_attentions=True` returns which layers each hop reads, where a stack has hops."""

    model_class = MLRFModel

    def make_output(self, outputs: MLRFModelOutput, **fields) -> MLRFSeq2SeqLMOutput:
        return MLRFSeq2SeqLMOutput(
            **super().make_output(outputs, **fields),
            encoder_fusion_attentions=outputs.encoder_fusion_attentions,
            decoder_fusion_attentions=outputs.decoder_fusion_attentions,
        )


__all__ = ["MLRFForConditionalGeneration", "MLRFModel"]
