# Copyright 2026 The hf_deepnmt authors. Apache-2.0 licence.
"""
Transparent attention (Bapna et al., 2018, Training Deeper NMT Models with Transparent Attention): every decoder layer attends
to its own mixture of all encoder layers, so that gradients reach each of those directly.
"""

from dataclasses import dataclass

import torch
from torch import nn
from transformers import initialization as init
from transformers.generation import GenerationMixin
from transformers.modeling_outputs import BaseModelOutput

from .configuration_transparent import TransparentConfig
from .modeling_deepnmt import (
    DeepNMTDecoder,
    DeepNMTEncoder,
    DeepNMTForConditionalGeneration,
    DeepNMTModel,
    DeepNMTPreTrainedModel,
)


@dataclass
class TransparentEncoderOutput(BaseModelOutput):
    """
    Args:
        mixtures (`torch.FloatTensor` of shape `(batch, decoder_layers, source, d_model)`, *optional*):
            What each decoder layer attends to.
    """

    mixtures: torch.FloatTensor | None = None


class LayerMixtures(nn.Module):
    """sum_l softmax(w_i)_l h^l for each row i of w."""

    def __init__(self, rows: int, states: int, dropout: float):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(rows, states))
        self.dropout = dropout

    def forward(self, states: list[torch.Tensor]) -> torch.Tensor:
        """(batch, rows, length, d_model) from h^0, ..., h^L, each (batch, length, d_model)."""
        exact = self.weight.to(torch.promote_types(self.weight.dtype, torch.float32))
        weight = nn.functional.dropout(exact, self.dropout, self.training).softmax(dim=-1)
        stacked = torch.stack(states, dim=1)
        return (weight.to(stacked.dtype) @ stacked.flatten(2)).unflatten(2, states[0].shape[1:])


class TransparentPreTrainedModel(DeepNMTPreTrainedModel):
    config: TransparentConfig

    def _init_weights(self, module):
        super()._init_weights(module)
        if isinstance(module, LayerMixtures):
            init.zeros_(module.weight)


class TransparentEncoder(TransparentPreTrainedModel, DeepNMTEncoder):
    """Gives what each decoder layer reads beside its last state."""

    def __init__(self, config: TransparentConfig):
        super().__init__(config)
        self.mixtures = None
        if config.transparent:
            self.mixtures = LayerMixtures(config.decoder_layers, config.encoder_layers + 1, config.mixture_dropout)
            if not config.mixture_norm:
                self.layer_norm = None

    @property
    def fuses_layers(self) -> bool:
        return self.config.transparent

    def make_output(self, states: list[torch.Tensor]) -> TransparentEncoderOutput:
        mixtures = None if self.mixtures is None else self.mixtures(states)
        if mixtures is not None and self.layer_norm is not None:
            mixtures = self.layer_norm(mixtures)
        return TransparentEncoderOutput(last_hidden_state=self.finish(states), mixtures=mixtures)


class TransparentDecoder(TransparentPreTrainedModel, DeepNMTDecoder):
    def memory_for(
        self, layer_idx: int, encoder_hidden_states: torch.Tensor | None, memories: tuple[torch.Tensor, ...]
    ) -> tuple[torch.Tensor | None, ...]:
        return (memories[0][:, layer_idx],) if memories else (encoder_hidden_states,)


class TransparentModel(TransparentPreTrainedModel, DeepNMTModel):
    """Encoder and decoder without the output projection."""

    encoder_class = TransparentEncoder
    decoder_class = TransparentDecoder

    def decoder_memories(self, encoder_outputs: BaseModelOutput) -> tuple[torch.Tensor, ...]:
        if not self.config.transparent:
            return ()
        mixtures = getattr(encoder_outputs, "mixtures", None)
        if mixtures is None:
            raise ValueError(
                "`encoder_outputs` lacks `mixtures`: give the output of this model's own encoder, as it is"
            )
        return (mixtures,)


class TransparentForConditionalGeneration(
    TransparentPreTrainedModel, DeepNMTForConditionalGeneration, GenerationMixin
):
    """The translation model."""

    model_class = TransparentModel


__all__ = ["TransparentForConditionalGeneration", "TransparentModel"]
