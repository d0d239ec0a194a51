# Copyright 2026 The hf_deepnmt authors. Apache-2.0 licence.
"""Configuration of explicit reordering: ExGRE and ReFSR (arXiv:2004.03818)."""

from typing import Any, ClassVar

from huggingface_hub.dataclasses import strict

from .configuration_deepnmt import DeepNMTConfig


POSITION_NETS = ("luong", "scalar", "linear")
WINDOWS = ("hard", "full")
SITES = ("post_ffn", "post_attn")
LOSSES = ("cosine", "l2", "position")
REDUCTIONS = ("mean", "sum")
FUSIONS = ("none", "gate")
GATES = ("scalar", "vector", "mean")


@strict
class ReorderingConfig(DeepNMTConfig):
    """
    The fields of `DeepNMTConfig`, and those below. The text of the paper is there without its equations 1 to 12, so most
    fields choose between readings; defaults are what the remaining text states, the preset `exgre-paper`.

    **With the paper's window the reordering loss teaches the positions nothing.** A hard window of D = 0.5 holds one
    integer s, so pr_j is pe_s times a number, and a cosine does not depend on that number: the gradient of the loss to
    every position is exactly zero, and positions are moved by the translation loss alone, through the amplitude of pr_j.
    The preset `exgre-trainable` (full window, D = 2) gives the loss a gradient.

    Args:
        fusion (`"none"` or `"gate"`):
            `none` is ExGRE: one pass, reordered. `gate` is ReFSR: a plain and a reordered pass with the same weights, run
            as one batch of twice the size, and fused at the top by `g * H + (1 - g) * H_reordered` (which side g weighs
            is a reading; the two are symmetric).
        gate (`"scalar"`, `"vector"` or `"mean"`):
            g is `sigmoid(W_g H + U_g H_reordered)` with one value a token (the paper's d x 1 maps, without bias), with one
            a dimension, or 1/2.
        position_net (`str`):
            What predicts b_j = J * sigmoid(...) in a sentence of J tokens. The printed shapes fit no form for certain.
            `luong`: v^T tanh(W h_j), W d x d (Luong et al., 2015, which the paper cites).
            `scalar`: W^T h_j^{n-1} + U^T h_j^n, both d x 1, the shapes that are printed.
            `linear`: w^T h_j + c.
        window (`"hard"` or `"full"`):
            `hard` leaves the integers s in [b_j - D, b_j + D]; `full` all places of the sentence.
        window_size (`float`):
            D, in tokens. The Gaussian's standard deviation is D / 2.
        normalise_window (`bool`):
            Divide the Gaussian's weights by their sum.
        reorder_site (`"post_ffn"` or `"post_attn"`):
            `post_ffn` adds pr_j to the output of the layer, `post_attn` to that of its self-attention.
        reorder_norm (`bool`, *optional*):
            A layer norm of its own after adding. Unset, it is there exactly for `reorder_site="post_attn"`.
        reorder_layers (`list[int]`, *optional*):
            Encoder layers that reorder, counted from 0. Unset, all. The last of them is the supervised one. An empty list is
            the baseline.
        reorder_weight (`float`):
            lambda, the weight of the reordering loss; 0.6 in the paper, 0.4 its best for English-German.
        reorder_loss (`"cosine"`, `"l2"` or `"position"`):
            Distance of a token's position to the supervised one: `cosine` is 1 - cos(pr_j, re_j), `l2` the mean square of
            pr_j - re_j, `position` the smooth L1 distance of b_j / J to r_j / J.
        reorder_reduction (`"mean"` or `"sum"`):
            Both are divided by the target tokens of the optimizer step, as the translation loss is. `mean` takes the mean
            over a sentence's supervised tokens for each of its target tokens, so that lambda means the same for every
            language pair; `sum` adds up the supervised tokens.
    """

    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "exgre-paper": {"window": "hard", "window_size": 0.5},
        "exgre-trainable": {"window": "full", "window_size": 2.0},
    }

    model_type = "reordering"
    keys_to_ignore_at_inference = [*DeepNMTConfig.keys_to_ignore_at_inference, "reordered_positions"]

    fusion: str = "none"
    gate: str = "scalar"
    position_net: str = "luong"
    window: str = "hard"
    window_size: float | int = 0.5
    normalise_window: bool = False
    reorder_site: str = "post_ffn"
    reorder_norm: bool | None = None
    reorder_layers: list[int] | None = None
    reorder_weight: float | int = 0.6
    reorder_loss: str = "cosine"
    reorder_reduction: str = "mean"

    def __post_init__(self, **kwargs):
        if self.reorder_norm is None:
            self.reorder_norm = self.reorder_site == "post_attn"
        super().__post_init__(**kwargs)

    @property
    def reordering_layers(self) -> list[int]:
        """The encoder layers that reorder, in order."""
        return sorted(range(self.encoder_layers) if self.reorder_layers is None else self.reorder_layers)

    def validate_reordering_choices(self):
        """Every field with a closed list of values holds one of them."""
        choices = {
            "fusion": FUSIONS,
            "gate": GATES,
            "position_net": POSITION_NETS,
            "window": WINDOWS,
            "reorder_site": SITES,
            "reorder_loss": LOSSES,
            "reorder_reduction": REDUCTIONS,
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"`{name}` must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")

    def validate_reordering_sizes(self):
        """The window holds a place, the weight is no reward, and the layers exist."""
        least = 0.5 if self.window == "hard" else 0.0
        if self.window_size < least or self.window_size == 0:
            raise ValueError(
                f'`window_size` is {self.window_size}: it must be above 0, and at least 0.5 with `window="hard"`, or some '
                "windows hold no place at all"
            )
        if self.reorder_weight < 0:
            raise ValueError(f"`reorder_weight` must be at least 0, got {self.reorder_weight}")
        layers = self.reordering_layers
        wrong = [index for index in layers if not 0 <= index < self.encoder_layers]
        if wrong or len(set(layers)) < len(layers):
            raise ValueError(
                f"`reorder_layers` must name each of the encoder layers 0 to {self.encoder_layers - 1} at most once, "
                f"got {self.reorder_layers}"
            )
        if self.fusion == "gate" and not layers:
            raise ValueError(
                '`fusion="gate"` fuses a plain and a reordered pass, but `reorder_layers` is empty: name a layer, or set '
                '`fusion="none"`'
            )


__all__ = ["ReorderingConfig"]
