"""
Which layers a fused model reads: the layer attention of MLRF, each hop by itself, over a text and for a sentence.

Wang et al. (2018) look at it in section 4.8 of "Multi-layer Representation Fusion for Neural Machine Translation".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from .attention_statistics import lines_to_analyse, run_sentence
from .evaluation import load_model
from .provenance import run_info, write_results


SIDES = ("encoder", "decoder")


@dataclass
class SentenceFusion:
    """
    Layer attention of one sentence pair.

    Args:
        words: for each fused side, the tokens that it reads.
        weights: for each fused side, a_p^l of equation 6, (tokens, layers, hops); features are averaged.
    """

    words: dict[str, list[str]]
    weights: dict[str, torch.Tensor]


def fused_sides(config: PreTrainedConfig) -> list[str]:
    """
    Raises:
        ValueError: no stack of the model has layer attention.
    """
    sides = [side for side in SIDES if getattr(config, f"{side}_fusion", None) == "sa"]
    if not sides:
        raise ValueError(
            f"The model of type {config.model_type!r} has no layer attention: give one of type 'mlrf' whose "
            "`encoder_fusion` or `decoder_fusion` is 'sa'"
        )
    return sides


def layer_names(config: PreTrainedConfig, side: str) -> list[str]:
    """What the fused states of `side` are: `embedding`, where it takes part, and the numbers of the layers."""
    layers = [str(layer) for layer in range(1, getattr(config, f"{side}_layers") + 1)]
    return ["embedding", *layers] if config.fuse_word_embedding else layers


def sentence_fusion(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    source: str,
    target: str | None = None,
    num_beams: int = 5,
) -> SentenceFusion:
    """
    Layer attention of `model` on a sentence and its translation; without `target`, on its own translation.

    Raises:
        ValueError: the sentence is blank, or the model has no layer attention.
    """
    sides = fused_sides(model.config)
    words, outputs = run_sentence(model, tokenizer, source, target, num_beams, output_fusion_attentions=True)
    weights = {}
    for side in sides:
        found = outputs[f"{side}_fusion_attentions"][0][0].double().cpu()
        weights[side] = found.mean(-1) if model.config.featurewise else found
    return SentenceFusion({side: list(words[SIDES.index(side)]) for side in sides}, weights)


def hop_statistics(weights: Sequence[torch.Tensor], layers: list[str]) -> list[dict[str, Any]]:
    """For each hop, mean and standard deviation over all tokens of the weight of each layer, by its name."""
    tokens = torch.cat(list(weights))
    deviation, mean = torch.std_mean(tokens, dim=0, correction=0)
    return [
        {
            "hop": hop + 1,
            "mean": dict(zip(layers, mean[:, hop].tolist(), strict=True)),
            "deviation": dict(zip(layers, deviation[:, hop].tolist(), strict=True)),
        }
        for hop in range(tokens.shape[2])
    ]


def plot_fusion(
    statistics: dict[str, list[dict[str, Any]]],
    sentence: SentenceFusion,
    layers: dict[str, list[str]],
    path: str | Path,
) -> Path:
    """
    Draw which layer each hop reads: left the mean over a text, right token by token of one sentence, hop above hop.

    All panels have one colour scale from 0, dark, to 1.
    """
    # not through pyplot, whose backend belongs to the caller
    from matplotlib.figure import Figure

    hops = len(next(iter(statistics.values())))
    longest = max(map(len, sentence.words.values()))
    deepest = max(map(len, layers.values()))
    height = max(3.0, hops * 0.22 * (deepest + 2)) + 1
    figure = Figure(figsize=(4.5 + 0.3 * longest, height * len(statistics)), layout="constrained")
    shown = {"vmin": 0, "vmax": 1, "aspect": "auto"}
    rows = figure.subfigures(len(statistics), 1, squeeze=False)[:, 0]
    for row, (side, of_hops) in zip(rows, statistics.items(), strict=True):
        names = layers[side]
        left, right = row.subfigures(1, 2, width_ratios=[4, 1.5 + 0.3 * longest])
        axis = left.subplots()
        means = torch.tensor([[hop["mean"][name] for hop in of_hops] for name in names])
        picture = axis.imshow(means.numpy(), **shown)
        for layer, hop in torch.cartesian_prod(torch.arange(len(names)), torch.arange(hops)).tolist():
            value = means[layer, hop].item()
            axis.text(hop, layer, f"{value:.2f}", ha="center", va="center", fontsize=7, color="wk"[value > 0.5])
        axis.set_xticks(range(hops), range(1, hops + 1))
        axis.set_yticks(range(len(names)), names)
        axis.set(xlabel="hop", ylabel="layer", title=f"{side}, mean over the text")
        left.colorbar(picture, ax=axis, location="left", label="weight")
        panels = right.subplots(hops, 1, squeeze=False)[:, 0]
        for hop, panel in enumerate(panels):
            panel.imshow(sentence.weights[side][:, :, hop].T.numpy(), **shown)
            panel.set_yticks(range(len(names)), names, fontsize=6)
            panel.set_ylabel(f"hop {hop + 1}", fontsize=8)
            last = hop == hops - 1
            panel.set_xticks(range(len(sentence.words[side])), sentence.words[side] if last else [], rotation=90)
        panels[0].set_title(f"{side}, one sentence")
    figure.savefig(path, dpi=150)
    return Path(path)


def report_fusion(
    model: Any,
    lines: Sequence[str] | str | Path,
    picture: str | Path,
    *,
    targets: Sequence[str] | str | Path | None = None,
    tokenizer: Any = None,
    sentence: int = 1,
    num_beams: int = 5,
) -> dict[str, Any]:
    """
    Measure layer attention over all lines, draw it with one of them, and write the figures as JSON beside the picture.

    Args:
        model: a folder, or a model together with `tokenizer`.
        lines, targets: sentences or files of them; without `targets`, the model's own translations are read.
        picture: an image file; the figures go beside it, with the ending .json.
        sentence: which line is drawn, counted from 1.

    Raises:
        ValueError: the model has no layer attention, that line is blank or not there, or `targets` has another number of
            lines.
        ImportError: matplotlib is missing.
    """
    sources, references = lines_to_analyse(lines, targets, sentence)
    model, tokenizer = load_model(model, tokenizer)
    layers = {side: layer_names(model.config, side) for side in fused_sides(model.config)}
    found = {
        number: sentence_fusion(model, tokenizer, source, reference, num_beams)
        for number, (source, reference) in enumerate(zip(sources, references, strict=True), start=1)
        if source.strip()
    }
    statistics = {
        side: hop_statistics([fusion.weights[side] for fusion in found.values()], names)
        for side, names in layers.items()
    }
    results = {
        "run": run_info(),
        "lines": len(sources),
        "blank_lines": len(sources) - len(found),
        "target": "the model's translation" if targets is None else "given",
        "num_beams": num_beams if targets is None else None,
        "tokens": {side: sum(len(fusion.weights[side]) for fusion in found.values()) for side in layers},
        "all_lines": statistics,
        "drawn_line": {
            "number": sentence,
            **{side: hop_statistics([found[sentence].weights[side]], names) for side, names in layers.items()},
        },
    }
    plot_fusion(statistics, found[sentence], layers, picture)
    write_results(Path(picture).with_suffix(".json"), results)
    return results


__all__ = [
    "SentenceFusion",
    "fused_sides",
    "hop_statistics",
    "layer_names",
    "plot_fusion",
    "report_fusion",
    "sentence_fusion",
]
