# Copyright 2026 The hf_deepnmt authors. Apache-2.0 licence.
"""Configuration of the shared Transformer backbone (Vaswani et al., 2017), itself the baseline of the zoo."""

from typing import Any, ClassVar

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig


TYINGS = {
    "none": {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False},
    "decoder": {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": True},
    "all": {"share_encoder_decoder_embeddings": True, "tie_word_embeddings": True},
}
NORM_STYLES = ("post", "pre")
INIT_SCHEMES = ("xavier", "normal", "fan_in", "depth_scaled")
CUTOFFS = ("none", "token", "span", "feature")
CUTOFF_DIVERGENCES = ("official", "paper")


@strict
class DeepNMTConfig(PreTrainedConfig):
    """
    Fields carry the names of `MarianConfig`, so that its checkpoints and scripts fit. Only the others are listed.

    Args:
        norm_style (`"post"` or `"pre"`):
            `post` is `LN(x + f(x))` (Vaswani et al., 2017), `pre` is `x + f(LN(x))`.
        final_norm (`bool`, *optional*):
            One more layer norm at the top of encoder and decoder. Unset, it is there exactly for `norm_style="pre"`.
        share_encoder_decoder_embeddings, tie_word_embeddings (`bool`):
            Source and target embedding are one matrix; the output projection is the target embedding. The init
            keyword `tie="none" | "decoder" | "all"` sets both at once, and the property `tie` reads them.
        decoder_vocab_size (`int`, *optional*):
            Size of the target vocabulary. Unset, it is `vocab_size`.
        attention_bias, output_bias (`bool`):
            Biases of the query, key, value and output maps of every attention, and of the output projection.
        layer_norm_eps (`float`):
            Epsilon of every layer norm.
        init_scheme (`str`):
            `xavier`: embeddings N(0, d^-1/2), matrices Xavier uniform, biases 0.
            `fan_in`: embeddings N(0, d^-1/2), everything else U(-1/sqrt(fan_in), 1/sqrt(fan_in)) (MLRF, section 4.2).
            `depth_scaled`: as `xavier`, with the bound of layer l multiplied by `init_alpha * l ** -ds_exponent`
            (Zhang et al., 2019); `ds_exponent` is 0.5 in the paper and 0.25 in its released code.
            `normal`: N(0, `init_std`) for all matrices and embeddings (Marian and BART in Transformers).
        label_smoothing (`float`):
            Share of probability mass spread evenly over the target vocabulary in the training loss.
        rdrop_alpha (`float`):
            Weight of R-Drop's divergence between two passes of each sentence with different dropout (Liang et al., 2021;
            5 there). 0 trains plainly. Like label smoothing it acts in training mode only.
        cutoff (`"none"`, `"token"`, `"span"` or `"feature"`):
            In a second copy of each sentence, `cutoff_share` of the words (each by itself, or one run of them) becomes
            `cutoff_token_id` on both sides, or that share of the embeddings' columns becomes 0 (Shen et al., 2020). The
            divergence between the copies has weight `cutoff_alpha`. With `rdrop_alpha` too, the one pair of copies
            gets both divergences.
        cutoff_divergence (`"official"` or `"paper"`):
            `paper` is Jensen-Shannon as printed; the released code measures from the softmax of the mean logits.
        max_position_embeddings (`int`):
            Rows of the sinusoid table that are kept ready. Longer inputs are computed on the fly, never refused.

    Raises:
        ValueError: fields contradict each other; the message says which one to change.
    """

    model_type = "deepnmt"
    keys_to_ignore_at_inference = ["cache", "nll_loss", "auxiliary_loss", "consistency_loss"]
    # Settings of an architecture's paper by name, as config fields (`from_preset`, `model.preset` of a recipe).
    presets: ClassVar[dict[str, dict[str, Any]]] = {}
    attribute_map = {
        "hidden_size": "d_model",
        "num_attention_heads": "encoder_attention_heads",
        "num_hidden_layers": "encoder_layers",
    }

    vocab_size: int = 32000
    decoder_vocab_size: int | None = None
    max_position_embeddings: int = 1024
    d_model: int = 512
    encoder_layers: int = 6
    decoder_layers: int = 6
    encoder_attention_heads: int = 8
    decoder_attention_heads: int = 8
    encoder_ffn_dim: int = 2048
    decoder_ffn_dim: int = 2048
    encoder_layerdrop: float | int = 0.0
    decoder_layerdrop: float | int = 0.0
    activation_function: str = "relu"
    dropout: float | int = 0.1
    attention_dropout: float | int = 0.0
    activation_dropout: float | int = 0.0
    norm_style: str = "post"
    final_norm: bool | None = None
    layer_norm_eps: float = 1e-5
    attention_bias: bool = True
    output_bias: bool = False
    scale_embedding: bool = True
    share_encoder_decoder_embeddings: bool = True
    tie_word_embeddings: bool = True
    init_scheme: str = "xavier"
    init_std: float = 0.02
    init_alpha: float | int = 1.0
    ds_exponent: float | int = 0.5
    label_smoothing: float | int = 0.1
    rdrop_alpha: float | int = 0.0
    cutoff: str = "none"
    cutoff_share: float = 0.05
    cutoff_alpha: float | int = 5.0
    cutoff_divergence: str = "official"
    cutoff_token_id: int = 3
    use_cache: bool = True
    is_encoder_decoder: bool = True
    bos_token_id: int | None = 0
    pad_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    decoder_start_token_id: int | None = 0

    def __post_init__(self, **kwargs):
        tie = kwargs.pop("tie", None)
        if tie is not None:
            if tie not in TYINGS:
                raise ValueError(f"`tie` must be one of {', '.join(TYINGS)}, got {tie!r}")
            for name, value in TYINGS[tie].items():
                setattr(self, name, value)
        if self.decoder_vocab_size is None:
            self.decoder_vocab_size = self.vocab_size
        if self.final_norm is None:
            self.final_norm = self.norm_style == "pre"
        super().__post_init__(**kwargs)

    @classmethod
    def from_preset(cls, name: str, **overrides) -> "DeepNMTConfig":
        """
        The config of a named setting of the architecture's paper; `overrides` are fields that differ from it.

        Raises:
            ValueError: there is no such preset; the message lists them.
        """
        if name not in cls.presets:
            known = ", ".join(cls.presets) or "none"
            raise ValueError(f"{cls.__name__} has no preset {name!r}; its presets: {known}")
        return cls(**{**cls.presets[name], **overrides})

    @property
    def tie(self) -> str:
        """`none`, `decoder` or `all`; `embeddings` for one embedding matrix and a separate output projection."""
        sharing = {"share_encoder_decoder_embeddings", "tie_word_embeddings"}
        return next(
            (name for name, fields in TYINGS.items() if all(getattr(self, key) == fields[key] for key in sharing)),
            "embeddings",
        )

    def validate_choices(self):
        """Every field with a closed list of values holds one of them."""
        choices = {
            "norm_style": NORM_STYLES,
            "init_scheme": INIT_SCHEMES,
            "cutoff": CUTOFFS,
            "cutoff_divergence": CUTOFF_DIVERGENCES,
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"`{name}` must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")

    def validate_sizes(self):
        """Sizes fit each other."""
        for side in ("encoder", "decoder"):
            heads = getattr(self, f"{side}_attention_heads")
            if heads < 1 or self.d_model % heads:
                raise ValueError(
                    f"`d_model` ({self.d_model}) must be a multiple of `{side}_attention_heads` ({heads}): change one"
                )
            if getattr(self, f"{side}_layers") < 1:
                raise ValueError(f"`{side}_layers` must be at least 1")
        if self.share_encoder_decoder_embeddings and self.decoder_vocab_size not in (None, self.vocab_size):
            raise ValueError(
                f"`share_encoder_decoder_embeddings=True` needs one vocabulary, but `vocab_size` is {self.vocab_size} and "
                f'`decoder_vocab_size` is {self.decoder_vocab_size}: make them equal, or set `tie="decoder"` or "none"'
            )

    def validate_rates(self):
        """Probabilities lie in [0, 1)."""
        rates = ("dropout", "attention_dropout", "activation_dropout", "encoder_layerdrop", "decoder_layerdrop")
        for name in (*rates, "label_smoothing", "cutoff_share"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 0 and below 1, got {getattr(self, name)}")
        for name in ("rdrop_alpha", "cutoff_alpha"):
            if getattr(self, name) < 0:
                raise ValueError(f"`{name}` must not be negative, got {getattr(self, name)}")

    def validate_special_tokens(self):
        """Padding must be told apart from the end of a sentence: attention masks are inferred from it."""
        if self.pad_token_id is None:
            raise ValueError("`pad_token_id` must be set: padding and labels need it")
        if self.pad_token_id >= self.vocab_size:
            raise ValueError(f"`pad_token_id` ({self.pad_token_id}) must be below `vocab_size` ({self.vocab_size})")


__all__ = ["DeepNMTConfig"]
