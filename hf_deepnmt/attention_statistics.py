"""
How widely a model attends: entropy and sparsity of its attention, per layer and kind of attention, and a picture.

Attention Link (Min, 2023) starts from such a picture (its Figure 1): with little training data, attention rests on a few
word pairs. The paper names no measure of sparsity; Hoyer's is used here, which does not depend on the length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import ModelOutput

from .evaluation import check_line_counts, evaluation_mode, load_model, read_texts
from .provenance import run_info, write_results


KINDS = {
    "encoder_self": "encoder_attentions",
    "decoder_self": "decoder_attentions",
    "cross": "cross_attentions",
}
TITLES = {"encoder_self": "encoder self", "decoder_self": "decoder self", "cross": "cross"}
MEASURES = ("entropy", "relative_entropy", "sparsity")


@dataclass
class SentenceAttention:
    """
    Attention weights of one sentence pair.

    Args:
        source, target: the tokens that the encoder and the decoder read.
        weights: for each of `encoder_self`, `decoder_self` and `cross`, (layers, heads, queries, keys).
    """

    source: list[str]
    target: list[str]
    weights: dict[str, torch.Tensor]


def sentence_attention(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    source: str,
    target: str | None = None,
    num_beams: int = 5,
) -> SentenceAttention:
    """
    The attention of `model` on a sentence and its translation; without `target`, on its own translation.

    Raises:
        ValueError: the sentence is blank, or the model returns no attention weights.
    """
    words, outputs = run_sentence(model, tokenizer, source, target, num_beams, output_attentions=True)
    missing = [field for field in KINDS.values() if not outputs.get(field)]
    if missing:
        raise ValueError(f"The model returns no {missing[0]}: load it with attn_implementation='eager'")
    weights = {kind: torch.cat(outputs[field]).double().cpu() for kind, field in KINDS.items()}
    return SentenceAttention(*words, weights)


def run_sentence(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    source: str,
    target: str | None = None,
    num_beams: int = 5,
    **options: bool,
) -> tuple[tuple[list[str], list[str]], ModelOutput]:
    """
    The tokens that encoder and decoder read of a sentence and its translation, and what the model returns with `options`.

    Without `target`, the decoder reads the model's own translation.

    Raises:
        ValueError: the sentence is blank.
    """
    if not source.strip():
        raise ValueError("The sentence is blank: the model has nothing to read")
    inputs = tokenizer(source, return_tensors="pt")
    inputs = {key: value.to(model.device) for key, value in inputs.items() if key != "token_type_ids"}
    with torch.no_grad(), evaluation_mode(model):
        if target is None:
            read = model.generate(**inputs, num_beams=num_beams)[:, :-1]
        else:
            labels = tokenizer(text_target=target, return_tensors="pt")["input_ids"].to(model.device)
            read = model.prepare_decoder_input_ids_from_labels(labels=labels)
        outputs = model(**inputs, decoder_input_ids=read, use_cache=False, **options)
    source_words = [tokenizer.decode([i], use_source_tokenizer=True) for i in inputs["input_ids"][0].tolist()]
    return (source_words, [tokenizer.decode([i]) for i in read[0].tolist()]), outputs


def spread_of(weights: torch.Tensor, visible: torch.Tensor) -> dict[str, torch.Tensor]:
    """
    Measures of attention distributions.

    Args:
        weights: (..., queries, keys), each row summing to 1.
        visible: (queries,), how many keys a query may attend to. Queries with one key have no choice and are left out.

    Returns:
        Each of shape (..., queries with a choice):
        `entropy`, in nats;
        `relative_entropy`, its share of the greatest possible, log(visible);
        `sparsity` (Hoyer, 2004), (sqrt(n) - 1 / |w|_2) / (sqrt(n) - 1) for n visible keys: 0 for even weights, 1 for a
        single one.
    """
    chosen = visible > 1
    weights, visible = weights[..., chosen, :], visible[chosen]
    entropy = torch.special.entr(weights).sum(-1)
    root = visible.sqrt()
    sparsity = (root - 1 / weights.norm(dim=-1)) / (root - 1)
    return {"entropy": entropy, "relative_entropy": entropy / visible.log(), "sparsity": sparsity}


def visible_keys(kind: str, weights: torch.Tensor) -> torch.Tensor:
    queries, keys = weights.shape[-2:]
    counts = torch.arange(1, queries + 1) if kind == "decoder_self" else torch.full((queries,), keys)
    return counts.to(weights.dtype)


def sentence_measures(sentence: SentenceAttention) -> dict[str, dict[str, torch.Tensor]]:
    """For each kind of attention, the measures averaged over heads, (layers, queries with a choice)."""
    return {
        kind: {name: values.mean(1) for name, values in spread_of(weights, visible_keys(kind, weights)).items()}
        for kind, weights in sentence.weights.items()
    }


def layer_statistics(
    measures: Sequence[dict[str, dict[str, torch.Tensor]]],
) -> dict[str, list[dict[str, float | int]]]:
    """For each kind of attention and each layer, the mean measures over the queries of all sentences."""
    statistics = {}
    for kind in KINDS:
        of_queries = {name: torch.cat([found[kind][name] for found in measures], dim=-1) for name in MEASURES}
        layers, queries = of_queries["entropy"].shape
        statistics[kind] = [
            {"layer": layer + 1, **{name: values[layer].mean().item() for name, values in of_queries.items()}}
            for layer in range(layers if queries else 0)
        ]
    return statistics


def plot_attention(sentence: SentenceAttention, path: str | Path) -> Path:
    """
    Draw the attention of a sentence, averaged over heads, one panel for each layer and kind, and the measures by layer.

    Dark is no attention. Every panel has its own colour scale, from 0 to its largest weight.
    """
    # not through pyplot, whose backend belongs to the caller
    from matplotlib.figure import Figure

    statistics = layer_statistics([sentence_measures(sentence)])
    columns = max(len(weights) for weights in sentence.weights.values())
    size = 0.9 + 0.13 * max(len(sentence.source), len(sentence.target))
    figure = Figure(figsize=(max(8, columns * size + 1), 3 * size + 3.5), layout="constrained")
    panels, curves = figure.subfigures(2, 1, height_ratios=[3 * size + 0.5, 3])
    axes = panels.subplots(3, columns, squeeze=False)
    for row, (kind, weights) in zip(axes, sentence.weights.items(), strict=True):
        queries = sentence.source if kind == "encoder_self" else sentence.target
        keys = sentence.target if kind == "decoder_self" else sentence.source
        for layer, axis in enumerate(row):
            if layer >= len(weights):
                axis.set_axis_off()
                continue
            axis.imshow(weights[layer].mean(0).numpy(), vmin=0, aspect="auto")
            axis.set_title(f"{TITLES[kind]}, layer {layer + 1}", fontsize=8)
            axis.set_xticks(range(len(keys)), keys, rotation=90, fontsize=6)
            axis.set_yticks(range(len(queries)), queries if layer == 0 else [], fontsize=6)
    for axis, (name, label) in zip(
        curves.subplots(1, 2),
        (("entropy", "entropy (nats)"), ("sparsity", "sparsity (0 even, 1 one key)")),
        strict=True,
    ):
        for kind, rows in statistics.items():
            axis.plot([row["layer"] for row in rows], [row[name] for row in rows], marker="o", label=TITLES[kind])
        axis.set(xlabel="layer", ylabel=label, xticks=range(1, columns + 1), ylim=(0, None))
    curves.legend(*axis.get_legend_handles_labels(), loc="outside upper center", ncols=3)
    figure.savefig(path, dpi=150)
    return Path(path)


def lines_to_analyse(
    lines: Sequence[str] | str | Path, targets: Sequence[str] | str | Path | None, sentence: int
) -> tuple[list[str], list[str | None]]:
    """
    Source lines and their translations, each None without `targets`; checks what a picture of line `sentence` needs.

    Raises:
        ValueError: that line, counted from 1, is blank or not there, or `targets` has another number of lines.
        ImportError: matplotlib is missing.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError("pictures need matplotlib: pip install 'hf-deepnmt[demo]'") from error
    check_line_counts(source=lines, target=targets)
    sources = read_texts(lines)
    if not 1 <= sentence <= len(sources) or not sources[sentence - 1].strip():
        raise ValueError(f"Line {sentence} of {len(sources)} is blank or not there: choose another with `sentence`")
    return sources, [None] * len(sources) if targets is None else read_texts(targets)


def report_attention(
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
    Measure attention over all lines, draw one of them, and write the figures as JSON beside the picture.

    Args:
        model: a folder, or a model together with `tokenizer`.
        lines, targets: sentences or files of them; without `targets`, the model's own translations are read.
        picture: an image file; the figures go beside it, with the ending .json.
        sentence: which line is drawn, counted from 1.

    Raises:
        ValueError: that line is blank or not there, or `targets` has another number of lines.
        ImportError: matplotlib is missing.
    """
    sources, references = lines_to_analyse(lines, targets, sentence)
    model, tokenizer = load_model(model, tokenizer)
    measures, drawn = {}, None
    for number, (source, reference) in enumerate(zip(sources, references, strict=True), start=1):
        if source.strip():
            found = sentence_attention(model, tokenizer, source, reference, num_beams)
            measures[number] = sentence_measures(found)
            drawn = found if number == sentence else drawn
    results = {
        "run": run_info(),
        "lines": len(sources),
        "blank_lines": len(sources) - len(measures),
        "target": "the model's translation" if targets is None else "given",
        "num_beams": num_beams if targets is None else None,
        "all_lines": layer_statistics(list(measures.values())),
        "drawn_line": {"number": sentence, **layer_statistics([measures[sentence]])},
    }
    plot_attention(drawn, picture)
    write_results(Path(picture).with_suffix(".json"), results)
    return results


__all__ = [
    "SentenceAttention",
    "layer_statistics",
    "lines_to_analyse",
    "plot_attention",
    "report_attention",
    "run_sentence",
    "sentence_attention",
    "sentence_measures",
    "spread_of",
]
