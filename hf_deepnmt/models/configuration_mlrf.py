# Copyright 2026 The hf_deepnmt authors. Apache-2.0 licence.
"""Configuration of multi-layer representation fusion (Wang et al., 2018, arXiv:2002.06714)."""

from typing import Any, ClassVar

from huggingface_hub.dataclasses import strict

from .configuration_deepnmt import DeepNMTConfig


FUSIONS = ("none", "avg", "fnn", "sa")
ACTIVATIONS = ("tanh", "relu", "sigmoid")

# section 4.2; the embeddings are untied and the output projection has a bias, as the printed counts require
_GERMAN = {
    "d_model": 256,
    "encoder_layers": 3,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 1024,
    "decoder_ffn_dim": 1024,
    "tie": "none",
    "output_bias": True,
    "init_scheme": "fan_in",
    "label_smoothing": 0.0,
}
_CHINESE = {
    **_GERMAN,
    "d_model": 512,
    "encoder_layers": 6,
    "decoder_layers": 6,
    "encoder_attention_heads": 8,
    "decoder_attention_heads": 8,
    "encoder_ffn_dim": 2048,
    "decoder_ffn_dim": 2048,
}


def _fused(shape: dict, encoder: str = "none", decoder: str = "none", n_hop: int = 4, **fields) -> dict:
    return {**shape, "encoder_fusion": encoder, "decoder_fusion": decoder, "n_hop": n_hop, **fields}


@strict
class MLRFConfig(DeepNMTConfig):
    """
    A stack ends in a fusion of all its states z^0 (embedding), z^1, ..., z^L instead of in z^L alone.

    Presets: the rows of the paper's Table 2 (German-English, `base` to `both-fnn-sa`), and of its Table 3 with the prefix
    `zh-`. Table 2 prints 13.47M parameters for Dec-SA with 6 hops; 6 hops with a shared W_1 give 12.16M
    (`dec-sa-6`, as Enc-SA with 6 hops prints), and a W_1 for each hop gives 13.47M (`dec-sa-6-w1-per-hop`, a reading).

    Args:
        encoder_fusion, decoder_fusion (`"none"`, `"avg"`, `"fnn"` or `"sa"`):
            The fused encoder states are what every decoder layer attends to; the fused decoder states are what the output
            projection reads. `avg` is their mean, `fnn` a network with one hidden layer over their concatenation, `sa`
            attention over the layers with `n_hop` hops, then such a network (equations 4 to 7).
        n_hop (`int`):
            Hops of `sa`.
        d_a, d_f (`int`):
            Hidden sizes of the attention's energy (equation 5) and of the network.
        independent_w1 (`bool`):
            `sa` has one W_1 for each fused state (Table 3, "+ indep. W_1").
        w1_per_hop (`bool`):
            `sa` has one W_1 for each hop. A reading, see above.
        featurewise (`bool`):
            `sa` weighs every feature of a state by itself (end of section 3).
        sa_activation (`"tanh"`, `"relu"` or `"sigmoid"`):
            sigma of equation 5, which the paper does not name. A reading.
        fuse_word_embedding (`bool`):
            Whether z^0 takes part (Table 4).
        layer_embedding (`bool`):
            Whether `fnn` and `sa` read z^l + E^l (equation 4; Table 4).
        share_layer_embedding (`bool`):
            Encoder and decoder have one table E, as in the paper.
        fusion_layernorm (`bool`, *optional*):
            A layer norm after the fusion; where `final_norm` holds, that one is it. Unset, it follows `fnn` and `sa`, as the
            printed counts require.
        fusion_bias (`bool`):
            Biases in the matrices of the fusion. Off, since 11 of 12 printed counts are met without.

    Raises:
        ValueError: a field has a value that it cannot have, or fields contradict each other.
    """

    model_type = "mlrf"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "base": _fused(_GERMAN),
        "base-4": _fused({**_GERMAN, "encoder_layers": 4, "decoder_layers": 4}),
        "base-6": _fused({**_GERMAN, "encoder_layers": 6, "decoder_layers": 6}),
        "enc-avg": _fused(_GERMAN, "avg"),
        "enc-fnn": _fused(_GERMAN, "fnn"),
        "enc-sa": _fused(_GERMAN, "sa"),
        "enc-sa-6": _fused(_GERMAN, "sa", n_hop=6),
        "dec-avg": _fused(_GERMAN, decoder="avg"),
        "dec-fnn": _fused(_GERMAN, decoder="fnn"),
        "dec-sa": _fused(_GERMAN, decoder="sa"),
        "dec-sa-6": _fused(_GERMAN, decoder="sa", n_hop=6),
        "dec-sa-6-w1-per-hop": _fused(_GERMAN, decoder="sa", n_hop=6, w1_per_hop=True),
        "both-fnn": _fused(_GERMAN, "fnn", "fnn"),
        "both-sa": _fused(_GERMAN, "sa", "sa"),
        "both-fnn-sa": _fused(_GERMAN, "fnn", "sa"),
        "zh-base": _fused(_CHINESE),
        "zh-enc-avg": _fused(_CHINESE, "avg"),
        "zh-enc-fnn": _fused(_CHINESE, "fnn"),
        "zh-enc-sa": _fused(_CHINESE, "sa"),
        "zh-dec-avg": _fused(_CHINESE, decoder="avg"),
        "zh-dec-fnn": _fused(_CHINESE, decoder="fnn"),
        "zh-dec-sa": _fused(_CHINESE, decoder="sa"),
        "zh-dec-sa-indep-w1": _fused(_CHINESE, decoder="sa", independent_w1=True),
        "zh-both-avg-sa": _fused(_CHINESE, "avg", "sa"),
    }

    encoder_fusion: str = "fnn"
    decoder_fusion: str = "sa"
    n_hop: int = 4
    d_a: int = 1024
    d_f: int = 512
    independent_w1: bool = False
    w1_per_hop: bool = False
    featurewise: bool = False
    sa_activation: str = "tanh"
    fuse_word_embedding: bool = True
    layer_embedding: bool = True
    share_layer_embedding: bool = True
    fusion_layernorm: bool | None = None
    fusion_bias: bool = False

    def fused_states(self, side: str) -> int:
        """How many states the fusion of `side`, encoder or decoder, reads."""
        return getattr(self, f"{side}_layers") + self.fuse_word_embedding

    def has_layer_embedding(self, side: str) -> bool:
        return self.layer_embedding and getattr(self, f"{side}_fusion") in ("fnn", "sa")

    def validate_fusion(self):
        """Each choice holds one of its values, and sizes are positive."""
        choices = {"encoder_fusion": FUSIONS, "decoder_fusion": FUSIONS, "sa_activation": ACTIVATIONS}
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"`{name}` must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")
        for name in ("n_hop", "d_a", "d_f"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1, got {getattr(self, name)}")


__all__ = ["MLRFConfig"]
