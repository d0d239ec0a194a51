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
        readings: config fields that decide what the paper leaves open, and what it leaves open; model cards say both.
        neutral: config fields with which it computes exactly what the baseline computes; None where there are none.
        tiny: further config fields for the small models of the tests.
    """

    title: str
    paper: str
    config: type
    model: type
    head: type
    recipe: str
    readings: dict[str, str] = field(default_factory=dict)
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
        readings={
            "position_net": "equations 1 to 12 were not at hand; the printed shapes fit no form for certain",
            "window": "the printed hard window gives the reordering loss no gradient to the positions",
            "window_size": "D of the Gaussian, 0.5 in the text",
            "normalise_window": "whether the Gaussian's weights sum to 1",
            "reorder_site": "where the reordered positions are added",
            "reorder_norm": "whether a norm follows them",
            "reorder_layers": "which encoder layers reorder; the last of them is supervised",
            "reorder_loss": "the distance of a position to its target",
            "reorder_reduction": "what the sum over tokens is divided by",
            "gate": "which pass the gate weighs, and its width",
        },
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
        readings={
            "reorder_encoder": "the whole layer: the equations were not at hand",
            "reorder_decoder": "the whole layer: the equations were not at hand",
            "reorder_norm": "whether a norm follows the embedding",
        },
        neutral={"reorder_encoder": False, "reorder_decoder": False},
    ),
    "recurrent_positions": Architecture(
        title="Positional embeddings from a recurrent network over the words (a reading)",
        paper="Chen et al. 2019, Recurrent Positional Embedding for Neural Machine Translation",
        config=RecurrentPositionsConfig,
        model=RecurrentPositionsModel,
        head=RecurrentPositionsForConditionalGeneration,
        recipe="recurrent_positions_multi30k-de-en_small.yaml",
        readings={
            "recurrent_mode": "how heads read the recurrent states: only the abstract was at hand",
            "recurrent_heads": "how many heads read them",
            "recurrent_size": "their width",
            "recurrent_cell": "what makes them",
        },
        neutral={"recurrent_encoder": False, "recurrent_decoder": False},
    ),
    "relative_positions": Architecture(
        title="Relative positions: self-attention reads the distance of each pair of words",
        paper="Shaw et al. 2018, Self-Attention with Relative Position Representations",
        config=RelativePositionsConfig,
        model=RelativePositionsModel,
        head=RelativePositionsForConditionalGeneration,
        recipe="relative_positions_multi30k-de-en_small.yaml",
        readings={
            "relative_heads_shared": "shared as in the section on efficiency; the base models have tables for each head"
        },
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
        readings={
            "sa_activation": "sigma of equation 5 has no name",
            "w1_per_hop": "Dec-SA with 6 hops prints 13.47M parameters; one W_1 gives 12.16M, one for each hop 13.47M",
            "fuse_word_embedding": "whether z^0 is fused; 11 of 12 printed counts need it",
            "fusion_bias": "biases of the fusion; 11 of 12 printed counts are met without",
            "fusion_layernorm": "the norm after an average; the printed counts have none with parameters",
        },
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
        readings={
            "link_scale": "the formulas leave the scale of a sum of products out",
            "link_mode": "the symbols can mean the previous layer's products or only its matrices",
        },
        neutral={"link_encoder_self": False, "link_decoder_self": False, "link_cross": False},
    ),
    "dlcl": Architecture(
        title="DLCL: every layer reads a learned linear combination of all layers below",
        paper="Wang et al. 2019, Learning Deep Transformer Models for Machine Translation",
        config=DLCLConfig,
        model=DLCLModel,
        head=DLCLForConditionalGeneration,
        recipe="dlcl_multi30k-de-en_18-layers.yaml",
        readings={"history_norm": "norms of the combined states; off only for the identity with the baseline"},
        neutral={"encoder_dlcl": False, "decoder_dlcl": False},
    ),
    "msc": Architecture(
        title="Very deep encoders in blocks, each read by one decoder layer, with a recurrent context",
        paper="Wei et al. 2020, Multiscale Collaborative Deep Models for Neural Machine Translation (arXiv:2004.14021)",
        config=MSCConfig,
        model=MSCModel,
        head=MSCForConditionalGeneration,
        recipe="msc_multi30k-de-en_36-layers.yaml",
        readings={
            "ffn_cell_input": "what the FFN cell of Table 5 reads",
            "context_init": "C^0",
            "memory_norm": "the norm of a block's output before the decoder reads it",
            "gru_input_norm": "the norm of a block's output before the cell",
            "context_norm": "the norm of a context before attention reads it",
            "extra_context_norms": "norms that meet the printed parameter counts of 54 and 72 layers",
        },
    ),
    "transparent": Architecture(
        title="Transparent attention: each decoder layer reads a mixture of all encoder layers",
        paper="Bapna et al. 2018, Training Deeper Neural Machine Translation Models with Transparent Attention",
        config=TransparentConfig,
        model=TransparentModel,
        head=TransparentForConditionalGeneration,
        recipe="transparent_multi30k-de-en_18-layers.yaml",
        readings={
            "mixture_norm": "whether a mixture passes the norm of a pre-norm encoder",
            "mixture_dropout": "dropout of the mixture's weights",
        },
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
