# Copyright 2026 The hf_deepnmt authors. Apache-2.0 licence.
"""Configuration of the multiscale collaborative Transformer (Wei et al., 2020, arXiv:2004.14021)."""

from typing import Any, ClassVar

from huggingface_hub.dataclasses import strict

from .configuration_deepnmt import DeepNMTConfig


BLOCK_FUSIONS = ("gate", "add")
CONTEXT_CELLS = ("gru", "ffn")
FFN_CELL_INPUTS = ("concat", "sum", "b_only")
CONTEXT_INITS = ("embedding", "tokens")
MEMORY_NORMS = ("per_block", "shared", "none")

_SHAPE = {
    "d_model": 256,
    "encoder_ffn_dim": 512,
    "decoder_ffn_dim": 512,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
}
_WIDE = {"d_model": 512, "encoder_ffn_dim": 1024, "decoder_ffn_dim": 1024}
_SMALL = {**_SHAPE, "decoder_layers": 6, "dropout": 0.1, "attention_dropout": 0.1}
_DEEP = {**_SHAPE, "decoder_layers": 6, "dropout": 0.3, "attention_dropout": 0.3}


@strict
class MSCConfig(DeepNMTConfig):
    """
    Block n of the encoder has `blocks[n]` layers; decoder layer n reads its output B^n and a context C^n.

    Presets: the rows of the paper's Table 2 (`small-6`, `small-36`, `small-54`, `small-72`) and of its ablation, Table 5
    (`small-72-add`, `small-72-ffn`, `small-72-no-encoder-context`, `small-72-no-context`, `wide-18`, `wide-36`). Table 2's
    L2 penalty is `encoder_l2` of the training arguments.

    Args:
        blocks (`list[int]`, *optional*):
            Layers of each encoder block. `encoder_layers` is their sum and `decoder_layers` their number. Unset, the
            encoder layers are spread over `decoder_layers` blocks, the first blocks taking one more where it does not
            come out even; without any of the three there are 6 blocks of one layer.
        block_fusion (`"gate"` or `"add"`):
            How the two attentions A_h (own states, or B^n in the decoder) and A_c (context) become one: with the gate of
            eqs. 12 and 13, or by addition (Table 5).
        context_cell (`"gru"` or `"ffn"`):
            What makes C^n from C^(n-1) and B^n, with one set of parameters for all blocks (eq. 9; Table 5).
        ffn_cell_input (`"concat"`, `"sum"` or `"b_only"`):
            What the `ffn` cell reads of C^(n-1) and B^n. The paper does not say; all three are readings.
        encoder_context (`bool`):
            Whether encoder layers of block n attend to C^(n-1) (eq. 12). Off: "remove Cxt-Enc Attention" of Table 5.
        contextual (`bool`):
            Whether there is a context at all. Off: block-scale collaboration alone (section 3.1).
        context_init (`"embedding"` or `"tokens"`):
            C^0: the scaled embedding with positions that the first layer reads too, or without positions. A reading.
        memory_norm (`"per_block"`, `"shared"` or `"none"`, *optional*):
            Norm of B^n before the decoder reads it: one for each block, the encoder's final norm for all, or none. The
            paper does not say; sums of 72 residual branches are unbounded without. Unset: `per_block` where
            `final_norm` holds, else `none`.
        gru_input_norm (`bool`, *optional*):
            A norm of its own on B^n before the cell of either kind. A reading. Unset, as `final_norm`.
        context_norm (`bool`):
            One norm on C^n before attentions read it. A reading; off, since a GRU keeps its state bounded.
        extra_context_norms (`bool`):
            In each encoder layer a norm of A_c's query, of C^(n-1) and of A_c's result. A reading that meets the
            printed parameter counts of the 54- and 72-layer models.

    Raises:
        ValueError: `blocks` contradicts the numbers of layers, or a field has a value that it cannot have.
    """

    model_type = "msc"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "small-6": {**_SMALL, "encoder_layers": 6},
        "small-36": {**_DEEP, "encoder_layers": 36},
        "small-54": {**_DEEP, "encoder_layers": 54},
        "small-72": {**_DEEP, "encoder_layers": 72},
        "small-72-add": {**_DEEP, "encoder_layers": 72, "block_fusion": "add"},
        "small-72-ffn": {**_DEEP, "encoder_layers": 72, "context_cell": "ffn"},
        "small-72-no-encoder-context": {**_DEEP, "encoder_layers": 72, "encoder_context": False},
        "small-72-no-context": {**_DEEP, "encoder_layers": 72, "contextual": False},
        "wide-18": {**_DEEP, **_WIDE, "encoder_layers": 18},
        "wide-36": {**_DEEP, **_WIDE, "encoder_layers": 36},
    }

    encoder_layers: int | None = None
    decoder_layers: int | None = None
    norm_style: str = "pre"
    blocks: list[int] | None = None
    block_fusion: str = "gate"
    context_cell: str = "gru"
    ffn_cell_input: str = "concat"
    encoder_context: bool = True
    contextual: bool = True
    context_init: str = "embedding"
    memory_norm: str | None = None
    gru_input_norm: bool | None = None
    context_norm: bool = False
    extra_context_norms: bool = False

    def __post_init__(self, **kwargs):
        if self.final_norm is None:
            self.final_norm = self.norm_style == "pre"
        if self.memory_norm is None:
            self.memory_norm = "per_block" if self.final_norm else "none"
        if self.gru_input_norm is None:
            self.gru_input_norm = self.final_norm
        if self.blocks is None:
            number = 6 if self.decoder_layers is None else self.decoder_layers
            layers = number if self.encoder_layers is None else self.encoder_layers
            if 0 < number <= layers:
                self.blocks = [layers // number + (index < layers % number) for index in range(number)]
            self.encoder_layers, self.decoder_layers = layers, number
        else:
            self.encoder_layers = sum(self.blocks) if self.encoder_layers is None else self.encoder_layers
            self.decoder_layers = len(self.blocks) if self.decoder_layers is None else self.decoder_layers
        super().__post_init__(**kwargs)

    def validate_blocks(self):
        """Blocks and numbers of layers fit each other."""
        if self.blocks is None and self.encoder_layers >= 1 and self.decoder_layers >= 1:
            raise ValueError(
                f"{self.encoder_layers} `encoder_layers` do not fill {self.decoder_layers} blocks, one for each decoder "
                "layer: raise `encoder_layers` or lower `decoder_layers`"
            )
        if self.blocks is None:
            return
        if not self.blocks or min(self.blocks) < 1:
            raise ValueError(f"`blocks` must name at least one block, each of at least 1 layer, got {self.blocks}")
        for name, expected, what in (
            ("encoder_layers", sum(self.blocks), "sum"),
            ("decoder_layers", len(self.blocks), "number"),
        ):
            given = getattr(self, name)
            if given != expected:
                raise ValueError(
                    f"`{name}` is {given} but the {what} of `blocks` {self.blocks} is {expected}: leave `{name}` or "
                    "`blocks` out"
                )

    def validate_collaboration(self):
        """Each choice holds one of its values, and norms that are asked for exist."""
        choices = {
            "block_fusion": BLOCK_FUSIONS,
            "context_cell": CONTEXT_CELLS,
            "ffn_cell_input": FFN_CELL_INPUTS,
            "context_init": CONTEXT_INITS,
            "memory_norm": MEMORY_NORMS,
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"`{name}` must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")
        if self.memory_norm != "none" and not self.final_norm:
            raise ValueError(
                f'`memory_norm="{self.memory_norm}"` uses the norm at the top of the encoder: set `final_norm=True`, or '
                '`memory_norm="none"`'
            )


__all__ = ["MSCConfig"]
