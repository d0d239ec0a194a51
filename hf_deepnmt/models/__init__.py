# Copyright 2026 The hf_deepnmt authors. Apache-2.0 licence.
"""
The architectures, one row each.

`ARCHITECTURES` drives registration with the Auto classes, the command line's `list`, the tests and the support table.
Everything else in this folder travels with exported checkpoints; this file does not.
"""

from dataclasses import dataclass, field
from typing import Any

from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer

from .configuration_attention_link import AttentionLinkConfig
from .configuration_deepnmt import DeepNMTConfig
from .configuration_dlcl import DLCLConfig
from .configuration_mlrf import MLRFConfig
from .configuration_msc import MSCConfig
from .configuration_recurrent_positions import RecurrentPositionsConfig
from .configuration_relative_positions import RelativePositionsConfig
from .configuration_reordering import ReorderingConfig
from .configuration_reordering_embedding import ReorderingEmbeddingConfig
from .configuration_transparent import TransparentConfig
from .modeling_attention_link import AttentionLinkForConditionalGeneration, AttentionLinkModel
from .modeling_deepnmt import DeepNMTForConditionalGeneration, DeepNMTModel, DeepNMTSeq2SeqLMOutput
from .modeling_dlcl import DLCLForConditionalGeneration, DLCLModel
from .modeling_mlrf import MLRFForConditionalGeneration, MLRFModel
from .modeling_msc import MSCForConditionalGeneration, MSCModel
from .modeling_recurrent_positions import RecurrentPositionsForConditionalGeneration, RecurrentPositionsModel
from .modeling_relative_positions import RelativePositionsForConditionalGeneration, RelativePositionsModel
from .modeling_reordering import ReorderingForConditionalGeneration, ReorderingModel
from .modeling_reordering_embedding import ReorderingEmbeddingForConditionalGeneration, ReorderingEmbeddingModel
from .modeling_transparent import TransparentForConditionalGeneration, TransparentModel
from .pipeline_summarization import SummarizationPipeline
from .pipeline_translation import TranslationPipeline
from .tokenization_deepnmt import DeepNMTTokenizer


@dataclass(frozen=True)
class Architecture:
    """
    Args:
        title: what the architecture is, in a few words.
        paper: where it comes from.
        config, model, head: its three classes.
        recipe: a recipe of `training/recipes/` that trains it.
        neutral: config fields with which it computes exactly what the baseline computes; None where there are none.
        tiny: further config fields for the small models of the tests.
    """

    title: str
    paper: str
    config: type
    model: type
    head: type
    recipe: str
    neutral: dict[str, Any] | None = None
    tiny: dict[str, Any] = field(default_factory=dict)


ARCHITECTURES: dict[str, Architecture] = {
    "deepnmt": Architecture(
        title="Transformer, post-norm or pre-norm (baseline)",
        paper="Vaswani et al. 2017, Attention Is All You Need",
        config=DeepNMTConfig,
        model=DeepNMTModel,
        head=DeepNMTForConditionalGeneration,
        recipe="deepnmt_multi30k-de-en_small.yaml",
        neutral={},
    ),
    "reordering": Architecture(
        title="Explicit reordering of the source, ExGRE and ReFSR",
        paper="Chen et al. 2020, Explicit Reordering for Neural Machine Translation",
        config=ReorderingConfig,
        model=ReorderingModel,
        head=ReorderingForConditionalGeneration,
        recipe="reordering_multi30k-de-en_small.yaml",
        neutral={"fusion": "none", "reorder_layers": []},
        tiny={"fusion": "gate"},
    ),
    "reordering_embedding": Architecture(
        title="Positional embeddings scaled by context in every layer (a reading)",
        paper="Chen et al. 2019, Neural Machine Translation with Reordering Embeddings",
        config=ReorderingEmbeddingConfig,
        model=ReorderingEmbeddingModel,
        head=ReorderingEmbeddingForConditionalGeneration,
        recipe="reordering_embedding_multi30k-de-en_small.yaml",
        neutral={"reorder_encoder": False, "reorder_decoder": False},
    ),
    "recurrent_positions": Architecture(
        title="Positional embeddings from a recurrent network over the words (a reading)",
        paper="Chen et al. 2019, Recurrent Positional Embedding for Neural Machine Translation",
        config=RecurrentPositionsConfig,
        model=RecurrentPositionsModel,
        head=RecurrentPositionsForConditionalGeneration,
        recipe="recurrent_positions_multi30k-de-en_small.yaml",
        neutral={"recurrent_encoder": False, "recurrent_decoder": False},
    ),
    "relative_positions": Architecture(
        title="Relative positions: self-attention reads the distance of each pair of words",
        paper="Shaw et al. 2018, Self-Attention with Relative Position Representations",
        config=RelativePositionsConfig,
        model=RelativePositionsModel,
        head=RelativePositionsForConditionalGeneration,
        recipe="relative_positions_multi30k-de-en_small.yaml",
        neutral={"relative_encoder": False, "relative_decoder": False, "absolute_positions": True},
        tiny={"max_relative_position": 3},
    ),
    "mlrf": Architecture(
        title="MLRF: output and memory read a learned mixture of all layers",
        paper="Wang et al. 2018, Multi-layer Representation Fusion for Neural Machine Translation (arXiv:2002.06714)",
        config=MLRFConfig,
        model=MLRFModel,
        head=MLRFForConditionalGeneration,
        recipe="mlrf_multi30k-de-en_small.yaml",
        neutral={"encoder_fusion": "none", "decoder_fusion": "none"},
        tiny={"n_hop": 3, "d_a": 20, "d_f": 24},
    ),
    "attention_link": Architecture(
        title="Attention Link: attention logits summed with those of the layer before",
        paper="Min 2023, Attention Link (arXiv:2302.00340)",
        config=AttentionLinkConfig,
        model=AttentionLinkModel,
        head=AttentionLinkForConditionalGeneration,
        recipe="attention_link_multi30k-de-en_small.yaml",
        neutral={"link_encoder_self": False, "link_decoder_self": False, "link_cross": False},
    ),
    "dlcl": Architecture(
        title="DLCL: every layer reads a learned linear combination of all layers below",
        paper="Wang et al. 2019, Learning Deep Transformer Models for Machine Translation",
        config=DLCLConfig,
        model=DLCLModel,
        head=DLCLForConditionalGeneration,
        recipe="dlcl_multi30k-de-en_18-layers.yaml",
        neutral={"encoder_dlcl": False, "decoder_dlcl": False},
    ),
    "msc": Architecture(
        title="Very deep encoders in blocks, each read by one decoder layer, with a recurrent context",
        paper="Wei et al. 2020, Multiscale Collaborative Deep Models for Neural Machine Translation (arXiv:2004.14021)",
        config=MSCConfig,
        model=MSCModel,
        head=MSCForConditionalGeneration,
        recipe="msc_multi30k-de-en_36-layers.yaml",
    ),
    "transparent": Architecture(
        title="Transparent attention: each decoder layer reads a mixture of all encoder layers",
        paper="Bapna et al. 2018, Training Deeper Neural Machine Translation Models with Transparent Attention",
        config=TransparentConfig,
        model=TransparentModel,
        head=TransparentForConditionalGeneration,
        recipe="transparent_multi30k-de-en_18-layers.yaml",
        neutral={"transparent": False},
        tiny={"mixture_dropout": 0.0},
    ),
}


def register_architectures():
    """Make every architecture known to the Auto classes, and its code part of what `save_pretrained` writes."""
    for model_type, architecture in ARCHITECTURES.items():
        AutoConfig.register(model_type, architecture.config, exist_ok=True)
        AutoModel.register(architecture.config, architecture.model, exist_ok=True)
        AutoModelForSeq2SeqLM.register(architecture.config, architecture.head, exist_ok=True)
        architecture.config.register_for_auto_class()
        architecture.model.register_for_auto_class("AutoModel")
        architecture.head.register_for_auto_class("AutoModelForSeq2SeqLM")
        AutoTokenizer.register(architecture.config, fast_tokenizer_class=DeepNMTTokenizer, exist_ok=True)
    DeepNMTTokenizer.register_for_auto_class("AutoTokenizer")


__all__ = [
    "ARCHITECTURES",
    "Architecture",
    "AttentionLinkConfig",
    "AttentionLinkForConditionalGeneration",
    "AttentionLinkModel",
    "DLCLConfig",
    "DLCLForConditionalGeneration",
    "DLCLModel",
    "DeepNMTConfig",
    "DeepNMTForConditionalGeneration",
    "DeepNMTModel",
    "DeepNMTSeq2SeqLMOutput",
    "DeepNMTTokenizer",
    "MLRFConfig",
    "MLRFForConditionalGeneration",
    "MLRFModel",
    "MSCConfig",
    "MSCForConditionalGeneration",
    "MSCModel",
    "RecurrentPositionsConfig",
    "RecurrentPositionsForConditionalGeneration",
    "RecurrentPositionsModel",
    "RelativePositionsConfig",
    "RelativePositionsForConditionalGeneration",
    "RelativePositionsModel",
    "ReorderingConfig",
    "ReorderingEmbeddingConfig",
    "ReorderingEmbeddingForConditionalGeneration",
    "ReorderingEmbeddingModel",
    "ReorderingForConditionalGeneration",
    "ReorderingModel",
    "SummarizationPipeline",
    "TranslationPipeline",
    "TransparentConfig",
    "TransparentForConditionalGeneration",
    "TransparentModel",
    "register_architectures",
]
