# Copyright 2026 The hf_deepnmt authors. Apache-2.0 licence.
"""
DLCL (Wang et al., 2019, Learning Deep Transformer Models for Machine Translation): layers read a linear combination of all
states below them.

The states of a pass are combined position by position, so nothing beyond the ordinary cache is kept between steps.
"""

import torch
from torch import nn
from transformers import initialization as init
from transformers.generation import GenerationMixin

from .configuration_dlcl import DLCLConfig
from .modeling_deepnmt import (
    DeepNMTDecoder,
    DeepNMTDecoderLayer,
    DeepNMTEncoder,
    DeepNMTEncoderLayer,
    DeepNMTForConditionalGeneration,
    DeepNMTModel,
    DeepNMTPreTrainedModel,
)


class LayerCombination(nn.Module):
    """Row l of a lower-triangular matrix weighs the states y_0, ..., y_l; a norm of its own may follow, except in row 0."""

    def __init__(self, num_layers: int, norms: list[nn.Module]):
        super().__init__()
        self.weight = nn.Parameter(self.row_means(num_layers + 1))
        self.norms = nn.ModuleList(norms)

    def row_means(self, size: int) -> torch.Tensor:
        lower = torch.ones(size, size).tril()
        return lower / lower.sum(dim=1, keepdim=True)

    def forward(self, states: list[torch.Tensor]) -> torch.Tensor:
        """`states`: y_0, ..., y_l, each (batch, length, d_model). Adds term by term, since stacking would copy them all."""
        row = len(states) - 1
        weights = self.weight[row].to(states[0].dtype).unbind()
        output = states[0] * weights[0]
        for state, weight in zip(states[1:], weights[1:], strict=False):
            output = torch.addcmul(output, state, weight)
        return self.norms[row - 1](output) if row and len(self.norms) else output


class DLCLLayer:
    """A pre-norm layer whose output is normalised for those that combine it. Norms of post-norm stacks follow the sum."""

    def __init__(self, config: DLCLConfig, layer_idx: int):
        super().__init__(config, layer_idx)
        self.history_norm = self.make_norm()

    def forward(self, *args, **kwargs) -> torch.Tensor:
        return self.history_norm(super().forward(*args, **kwargs))


class DLCLEncoderLayer(DLCLLayer, DeepNMTEncoderLayer):
    pass


class DLCLDecoderLayer(DLCLLayer, DeepNMTDecoderLayer):
    pass


class DLCLPreTrainedModel(DeepNMTPreTrainedModel):
    config: DLCLConfig
    _no_split_modules = [*DeepNMTPreTrainedModel._no_split_modules, "DLCLEncoderLayer", "DLCLDecoderLayer"]

    def _init_weights(self, module):
        super()._init_weights(module)
        if isinstance(module, LayerCombination):
            init.copy_(module.weight, module.row_means(len(module.weight)))


class DLCLStack(DLCLPreTrainedModel):
    """What both stacks share."""

    layer_class: type[nn.Module]
    switch: str

    def __init__(self, config: DLCLConfig):
        super().__init__(config)
        self.combination = None
        if self.fuses_layers:
            norms = config.history_norm and config.norm_style == "post"
            self.combination = LayerCombination(
                len(self.layers), [layer.make_norm() for layer in self.layers] if norms else []
            )

    @property
    def fuses_layers(self) -> bool:
        return getattr(self.config, self.switch)

    def make_layer(self, layer_idx: int) -> nn.Module:
        norm = self.fuses_layers and self.config.history_norm and self.config.norm_style == "pre"
        return self.layer_class(self.config, layer_idx) if norm else super().make_layer(layer_idx)

    def next_input(self, states: list[torch.Tensor]) -> torch.Tensor:
        return self.combination(states) if self.fuses_layers else super().next_input(states)

    def merge_layers(self, states: list[torch.Tensor]) -> torch.Tensor:
        return self.next_input(states)


class DLCLEncoder(DLCLStack, DeepNMTEncoder):
    layer_class, switch = DLCLEncoderLayer, "encoder_dlcl"


class DLCLDecoder(DLCLStack, DeepNMTDecoder):
    layer_class, switch = DLCLDecoderLayer, "decoder_dlcl"


class DLCLModel(DLCLPreTrainedModel, DeepNMTModel):
    """Encoder and decoder without the output projection."""

    encoder_class = DLCLEncoder
    decoder_class = DLCLDecoder


class DLCLForConditionalGeneration(DLCLPreTrainedModel, DeepNMTForConditionalGeneration, GenerationMixin):
    """The translation model."""

    model_class = DLCLModel


__all__ = ["DLCLForConditionalGeneration", "DLCLModel"]
