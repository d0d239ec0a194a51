"""
Where systems differ: BLEU on parts of a test set that are easy or hard for a reference model.

Wei et al. (2020) look at it in section 4.3 of "Multiscale Collaborative Deep Models for Neural Machine Translation": the last
checkpoints of a shallow model say how hard each sentence is, and deep models are compared with it part by part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from .checkpoints import last_checkpoints
from .evaluation import (
    DEFAULT_MAX_TOKENS,
    budget_batches,
    check_line_counts,
    evaluation_mode,
    language_of,
    load_model,
    read_texts,
    translate_lines,
)
from .metrics import bleu
from .provenance import run_info, write_results


DEFAULT_LAST = 20
PAPER_NAMES = ("simple", "ordinary", "difficult", "challenging")


def sentence_losses(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    per_token: bool = False,
    max_tokens: int = DEFAULT_MAX_TOKENS,
) -> torch.Tensor:
    """
    -log P(y|x) of each pair in nats, without label smoothing, as (pairs,) of float64.

    Args:
        per_token: divide by the tokens of y, end of sentence included.
        max_tokens: the largest batch in padded tokens of the longer side; a longer pair is a batch of its own.
    """
    rows = [tokenizer(x, text_target=y) for x, y in zip(sources, targets, strict=True)]
    lengths = [max(len(row["input_ids"]), len(row["labels"])) for row in rows]
    losses = torch.zeros(len(rows), dtype=torch.float64)
    with torch.no_grad(), evaluation_mode(model):
        for batch in budget_batches(lengths, max_tokens):
            source, labels = (
                pad_sequence([torch.tensor(rows[index][name]) for index in batch], True, fill).to(model.device)
                for name, fill in (("input_ids", tokenizer.pad_token_id), ("labels", -100))
            )
            # lengths, since the padding id may be a word of the source
            own = torch.tensor([len(rows[index]["input_ids"]) for index in batch], device=model.device)
            mask = torch.arange(source.shape[1], device=model.device) < own[:, None]
            read = model.prepare_decoder_input_ids_from_labels(labels=labels)
            logits = model(
                input_ids=source, attention_mask=mask.long(), decoder_input_ids=read, use_cache=False
            ).logits
            found = torch.nn.functional.cross_entropy(
                logits.float().transpose(1, 2), labels, ignore_index=-100, reduction="none"
            )
            total = found.double().sum(-1)
            losses[batch] = (total / labels.ne(-100).sum(-1) if per_token else total).cpu()
    return losses


def difficulty_scores(losses: torch.Tensor) -> torch.Tensor:
    """Mean plus standard deviation over checkpoints, (pairs,), of losses (checkpoints, pairs): equation 14."""
    deviation, mean = torch.std_mean(losses, dim=0, correction=0)
    return mean + deviation


def equal_parts(scores: Sequence[float], parts: int) -> list[list[int]]:
    """
    The sentences in `parts` parts, easiest first, whose sizes differ by one at most; equal scores keep their order.

    Raises:
        ValueError: there are fewer sentences than parts.
    """
    if not 2 <= parts <= len(scores):
        raise ValueError(f"{len(scores)} sentences cannot be split into {parts} parts: give 2 to {len(scores)} parts")
    order = torch.as_tensor(scores).argsort(stable=True)
    return [part.tolist() for part in order.tensor_split(parts)]


def part_names(parts: int) -> list[str]:
    return list(PAPER_NAMES) if parts == len(PAPER_NAMES) else [f"part {number + 1}" for number in range(parts)]


def plot_difficulty(results: list[dict[str, Any]], path: str | Path) -> Path:
    """Draw the BLEU of each further system minus that of the first, part by part; the first one's is under the part's name."""
    # not through pyplot, whose backend belongs to the caller
    from matplotlib.figure import Figure

    first, *others = results[0]["bleu"]
    figure = Figure(figsize=(max(6.0, 1.6 * len(results) + 1.5), 4), layout="constrained")
    axis = figure.subplots()
    width = 0.8 / max(1, len(others))
    for number, name in enumerate(others):
        gains = [row["bleu"][name]["score"] - row["bleu"][first]["score"] for row in results]
        places = [index + (number - (len(others) - 1) / 2) * width for index in range(len(results))]
        axis.bar_label(axis.bar(places, gains, width, label=name), fmt="%+.1f", fontsize=7, padding=1)
    axis.axhline(0, color="black", linewidth=0.8)
    axis.margins(y=0.15)
    axis.set_xticks(
        range(len(results)), [f"{row['part']}\n({first} {row['bleu'][first]['score']:.1f})" for row in results]
    )
    axis.set_ylabel(f"BLEU minus that of {first}")
    axis.legend()
    figure.savefig(path, dpi=150)
    return Path(path)


def report_difficulty(
    run: str | Path,
    source: Sequence[str] | str | Path,
    reference: Sequence[str] | str | Path,
    systems: Mapping[str, Any],
    picture: str | Path,
    *,
    last: int = DEFAULT_LAST,
    parts: int = 4,
    per_token: bool = False,
    target_lang: str | None = None,
    num_beams: int = 5,
) -> dict[str, Any]:
    """
    Split a test set by how hard it is for the checkpoints of `run`, score systems on each part, draw and write the figures.

    Args:
        run: the output folder of a training run, with its checkpoints.
        source, reference: sentences or files of them. Pairs with a blank side are left out, and counted.
        systems: at least two, by name; each a folder of a model, a file of translations, or the translations. The
            others are compared with the first.
        picture: an image file; the figures go beside it, with the ending .json.
        last: how many checkpoints, K of equation 15; fewer where the run kept fewer, which the results state.
        parts: how many parts of equal size.
        per_token: losses per target token. Off, as equation 14 prints it, long sentences are hard ones.
        target_lang: chooses the tokeniser of BLEU; without it, the ending of the reference's file name does.
        num_beams: for systems that are models.

    Raises:
        ValueError: the run has no checkpoint, there are fewer than two systems or fewer pairs than parts, or line counts
            differ.
        ImportError: matplotlib is missing.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError("pictures need matplotlib: pip install 'hf-deepnmt[demo]'") from error
    if len(systems) < 2:
        raise ValueError("a comparison needs at least two systems: give each as NAME=MODEL or NAME=TRANSLATIONS")
    folders = {name: Path(item) for name, item in systems.items() if isinstance(item, (str, Path))}
    models = {name: item for name, item in folders.items() if item.is_dir()}
    given = {name: item for name, item in systems.items() if name not in models}
    check_line_counts(source=source, reference=reference, **given)
    checkpoints = last_checkpoints(run, last)
    if not checkpoints:
        raise ValueError(f"{run} holds no checkpoint: train with `training.keep_last` of {last} or without it")
    if len(checkpoints) < last:
        logging.get_logger(__name__).warning(f"{run} holds {len(checkpoints)} of the {last} checkpoints asked for")
    language = target_lang or language_of(reference)
    sources, references = read_texts(source), read_texts(reference)
    kept = [number for number, pair in enumerate(zip(sources, references, strict=True)) if all(map(str.strip, pair))]
    pairs = [[side[number] for number in kept] for side in (sources, references)]
    losses = torch.stack([sentence_losses(*load_model(folder), *pairs, per_token=per_token) for folder in checkpoints])
    scores = difficulty_scores(losses)
    groups = equal_parts(scores, parts)
    texts = {name: read_texts(item) for name, item in given.items()}
    for name, folder in models.items():
        texts[name] = list(translate_lines(*load_model(folder), sources, num_beams=num_beams))
    rows = []
    for name, group in zip(part_names(parts), groups, strict=True):
        lines = [kept[number] for number in group]
        row = {"part": name, "sentences": len(group), "mean_difficulty": scores[group].mean().item()}
        row["mean_reference_words"] = sum(len(references[line].split()) for line in lines) / len(lines)
        row["bleu"] = {
            system: bleu(
                [texts[system][line] for line in lines], [references[line] for line in lines], target_lang=language
            )
            for system in systems
        }
        rows.append(row)
    results = {
        "run": run_info(),
        "checkpoints": [folder.name for folder in checkpoints],
        "loss": "nats per target token" if per_token else "nats per sentence",
        "num_beams": num_beams if models else None,
        "lines": len(sources),
        "lines_left_out": len(sources) - len(kept),
        "parts": rows,
    }
    plot_difficulty(rows, picture)
    write_results(Path(picture).with_suffix(".json"), results)
    return results


__all__ = [
    "difficulty_scores",
    "equal_parts",
    "part_names",
    "plot_difficulty",
    "report_difficulty",
    "sentence_losses",
]
