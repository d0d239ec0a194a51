"""
How well a model orders its source: predicted positions against those of word links, over a text and for a sentence.

Chen et al. (2020) look at it in "Explicit Reordering for Neural Machine Translation": Figure 5 averages the cosine
similarity of reordered and supervised positional embeddings over a test set, Figure 8 shows the two orders of a sentence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset, Features, Translation, Value
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from .alignment import LinkFormat, format_links, iter_links, word_spans
from .attention_statistics import lines_to_analyse
from .batching import Seq2SeqCollator
from .data import ALIGNMENT, DataReport, tokenize_pairs
from .evaluation import check_line_counts, evaluation_mode, load_model, read_texts
from .provenance import run_info, write_results
from .target_order import NO_POSITION, TARGET_POSITIONS, TargetOrder, word_units


logger = logging.get_logger(__name__)

LANGUAGES = ("source", "target")
MEASURES = ("cosine_similarity", "position_error", "relative_position_error")


@dataclass
class SentenceOrder:
    """
    The order of one sentence, word by word; words that a token ties together are one.

    Args:
        words: in source order, without special tokens.
        own: where they stand, (words,), in tokens from 0; a word has the mean of its tokens.
        predicted: the same of b, of each reordering layer, (layers, words).
        reference: the same of the links, (words,); None without links.
    """

    words: list[str]
    own: torch.Tensor
    predicted: torch.Tensor
    reference: torch.Tensor | None

    def sorted_words(self, positions: torch.Tensor) -> list[int]:
        """The words, by their place in `words`, sorted by `positions`; equal positions stay in source order."""
        return positions.argsort(stable=True).tolist()


def reordering_layers(config: PreTrainedConfig) -> list[int]:
    """
    The encoder layers that reorder, counted from 0.

    Raises:
        ValueError: none does.
    """
    layers = getattr(config, "reordering_layers", None)
    if not layers:
        raise ValueError(
            f"The model of type {config.model_type!r} predicts no order: give one of type 'reordering' with at least one "
            "layer in `reorder_layers`"
        )
    return layers


def encode_with_order(
    sources: Sequence[str],
    targets: Sequence[str],
    links: Iterable[str],
    tokenizer: PreTrainedTokenizerBase,
    link_format: LinkFormat | None = None,
    order: TargetOrder | None = None,
    name: str = "the links",
) -> Dataset:
    """
    Token ids of sentence pairs with the column `target_positions`, all -100 where a pair has no links.

    Args:
        links: one line of links for each pair.
        order: how links become an order; words are counted by the rule of `link_format` in any case.
        name: what errors call the links, such as the file's name.

    Raises:
        ValueError: a line of links does not fit its pair, or their numbers differ.
    """
    link_format = link_format or LinkFormat()
    rule = {"words": link_format.words}
    order = TargetOrder(**({"multi": order.multi, "unaligned": order.unaligned} if order else {}), **rule)
    pairs = list(zip(sources, targets, strict=True))
    checked = [format_links(found) for found in iter_links(links, pairs, link_format, name)]
    columns = {"translation": [dict(zip(LANGUAGES, pair, strict=True)) for pair in pairs], ALIGNMENT: checked}
    features = Features({"translation": Translation(languages=list(LANGUAGES)), ALIGNMENT: Value("string")})
    # a report of our own keeps the counts, which the caller has from the column, off the log
    return tokenize_pairs(
        Dataset.from_dict(columns, features=features), tokenizer, *LANGUAGES, target_order=order, report=DataReport()
    )


def order_measures(
    model: PreTrainedModel, rows: Iterable[Mapping[str, Any]], batch_size: int = 64
) -> dict[str, Any] | None:
    """
    How close predicted positions are to supervised ones, averaged over the tokens of a sentence, then over sentences.

    Sentences without supervision are left out, and counted. The end of sentence counts as in the reordering loss.

    Args:
        rows: with `input_ids` and `target_positions`, as `tokenize_pairs` makes them.

    Returns:
        None where no sentence is supervised, else `sentences`, `tokens`, `sentences_without_order`; and for each of
        `layers`, and for `source_order`, the positions that the words have without any reordering:
        `cosine_similarity`, of pr_j and re_j (Figure 5; its layer is the last one);
        `position_error`, the mean of |b_j - r_j| in tokens, and `relative_position_error`, by the sentence's length.

    Raises:
        ValueError: the model does not reorder.
    """
    layers = reordering_layers(model.config)
    collate = Seq2SeqCollator(model.config.pad_token_id, extra_columns={TARGET_POSITIONS: NO_POSITION})
    sums = torch.zeros(len(layers) + 1, len(MEASURES), dtype=torch.float64)
    sentences = tokens = without = 0
    batch: list[dict[str, Any]] = []

    def measure():
        nonlocal sums
        if batch:
            sums = sums + batch_measures(model, collate(batch)).sum(dim=1)
            batch.clear()

    for row in rows:
        supervised = sum(place != NO_POSITION for place in row[TARGET_POSITIONS])
        if not supervised:
            without += 1
            continue
        sentences, tokens = sentences + 1, tokens + supervised
        batch.append({name: row[name] for name in ("input_ids", TARGET_POSITIONS)})
        if len(batch) == batch_size:
            measure()
    measure()
    if not sentences:
        return None
    *of_layers, source_order = [dict(zip(MEASURES, mean, strict=True)) for mean in (sums / sentences).tolist()]
    return {
        "sentences": sentences,
        "tokens": tokens,
        "sentences_without_order": without,
        "layers": [{"layer": layer + 1, **row} for layer, row in zip(layers, of_layers, strict=True)],
        "source_order": source_order,
    }


def batch_measures(model: PreTrainedModel, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """`MEASURES` of each sentence: (layers + 1, batch, 3) in fp64, last the order of the source itself."""
    batch = {name: values.to(model.device) for name, values in batch.items()}
    targets, mask = batch.pop(TARGET_POSITIONS).float(), batch["attention_mask"]
    with torch.no_grad(), evaluation_mode(model):
        encoder = model.get_encoder()
        predicted = encoder(**batch).reordered_positions.float()
        similarities = [
            1 - model.position_distances(positions, targets, "cosine") for positions in predicted.unbind(dim=1)
        ]
        places = torch.arange(mask.shape[1], device=mask.device)
        table = encoder.embed_positions(places[None], bound=len(places))[0].float()
    supervised = targets != NO_POSITION
    reference = table[targets.clamp(min=0).round().long()]
    similarities.append(nn.functional.cosine_similarity(table.expand_as(reference), reference, dim=-1))
    positions = torch.cat([predicted, places.expand_as(targets)[:, None].float()], dim=1)
    errors = (positions - targets[:, None]).abs()
    relative = errors / mask.sum(dim=-1)[:, None, None]
    found = torch.stack([torch.stack(similarities), errors.transpose(0, 1), relative.transpose(0, 1)], dim=-1)
    share = supervised.double() / supervised.sum(dim=-1, keepdim=True)
    return (found.double() * share[..., None]).sum(dim=2).cpu()


def sentence_order(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    source: str,
    target_positions: Sequence[float] | None = None,
    words: str = "spaces",
) -> SentenceOrder:
    """
    Where the words of a sentence go.

    Args:
        target_positions: the supervised places of its tokens, as `encode_with_order` gives them.
        words: the rule by which the links count words, of `alignment.WORD_RULES`.

    Raises:
        ValueError: the sentence is blank, or the model does not reorder.
    """
    reordering_layers(model.config)
    if not source.strip():
        raise ValueError("The sentence is blank: the model has nothing to read")
    encoded = tokenizer(source, return_offsets_mapping=True, return_special_tokens_mask=True)
    inputs = torch.tensor([encoded["input_ids"]], device=model.device)
    with torch.no_grad(), evaluation_mode(model):
        positions = model.get_encoder()(input_ids=inputs).reordered_positions[0].double().cpu()
    spans = word_spans(source, words)
    unit_of_word, unit_of_token = word_units(spans, encoded["offset_mapping"], encoded["special_tokens_mask"])
    pieces: dict[int, list[int]] = {}
    for token, unit in enumerate(unit_of_token):
        if unit is not None:
            pieces.setdefault(unit, []).append(token)
    texts = []
    for unit in pieces:
        members = [span for span, number in zip(spans, unit_of_word, strict=True) if number == unit]
        texts.append(source[members[0][0] : members[-1][1]])

    def of_words(places: torch.Tensor) -> torch.Tensor:
        return torch.stack([places[..., tokens].mean(dim=-1) for tokens in pieces.values()], dim=-1)

    reference = None
    if target_positions is not None and NO_POSITION not in target_positions:
        reference = of_words(torch.tensor(target_positions, dtype=torch.float64))
    own = torch.arange(len(unit_of_token), dtype=torch.float64)
    return SentenceOrder(texts, of_words(own), of_words(positions), reference)


def fonts_for(text: str) -> list[str]:
    """
    The font families of matplotlib's settings, and behind them installed ones with the characters that those lack.

    Characters that no font has are named in a warning.
    """
    from matplotlib import font_manager, rcParams
    from matplotlib.ft2font import FT2Font

    families = list(rcParams["font.family"])
    usual = font_manager.findfont(font_manager.FontProperties(family=families))
    left = {ord(character) for character in text if not character.isspace()} - set(FT2Font(usual).get_charmap())
    for font in font_manager.fontManager.ttflist if left else ():
        # that font has a box for every character there is
        if font.name.startswith("Last Resort"):
            continue
        found = left & set(FT2Font(font.fname).get_charmap())
        if found:
            families, left = [*families, font.name], left - found
        if not left:
            break
    if left:
        shown = "".join(map(chr, sorted(left)[:10]))
        logger.warning(
            f"No installed font has {len(left)} of the characters, such as {shown}: they are boxes in the picture, and whole "
            "in the JSON beside it; a font of the script, such as Noto Sans CJK, mends that"
        )
    return families


def plot_order(sentence: SentenceOrder, layers: Sequence[int], path: str | Path) -> Path:
    """
    Draw the order of a sentence: left the positions of its words by layer, right the words sorted by them.

    The right part has the words in source order, as the last layer orders them, and as the links do; a line follows each
    word, coloured by its place in the source.

    Args:
        layers: the numbers of the layers in `sentence.predicted`, counted from 0.
    """
    # not through pyplot, whose backend belongs to the caller
    from matplotlib import colormaps, rc_context
    from matplotlib.figure import Figure

    words, count = sentence.words, len(sentence.words)
    orders = {"source": list(range(count)), "predicted": sentence.sorted_words(sentence.predicted[-1])}
    if sentence.reference is not None:
        orders["reference"] = sentence.sorted_words(sentence.reference)
    width = 0.09 * max(map(len, words)) + 1.2
    with rc_context({"font.family": fonts_for("".join(words))}):
        figure = Figure(figsize=(width + 4 + width * len(orders), max(3.0, 0.26 * count + 1.2)), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True, width_ratios=[width + 4, width * len(orders)])
        rows = list(range(count))
        left.plot(sentence.own.tolist(), rows, color="0.7", linestyle=":", label="source order")
        for number, layer in enumerate(layers):
            shade = colormaps["Blues"](0.3 + 0.7 * (number + 1) / len(layers))
            left.plot(sentence.predicted[number].tolist(), rows, color=shade, marker="o", label=f"layer {layer + 1}")
        if sentence.reference is not None:
            left.plot(sentence.reference.tolist(), rows, color="C1", linestyle="", marker="x", label="reference")
        left.set_yticks(rows, words)
        left.set_ylim(count - 0.5, -0.5)
        left.set(xlabel="position, in tokens", title="position of each word")
        left.legend(fontsize=7)
        for column, (name, order) in enumerate(orders.items()):
            right.text(column, -0.9, name, ha="center", va="bottom", fontsize="large")
            for place, word in enumerate(order):
                colour = colormaps["plasma"](0.85 * word / max(1, count - 1))
                right.text(column, place, words[word], ha="center", va="center", color=colour)
        names = list(orders)
        # lines keep clear of the words, which are centred on whole numbers
        clear = min(0.45, 0.5 * (width - 1) / width)
        for column in range(len(names) - 1):
            before, after = (orders[name] for name in names[column : column + 2])
            for word in range(count):
                colour = colormaps["plasma"](0.85 * word / max(1, count - 1))
                ends = [before.index(word), after.index(word)]
                right.plot([column + clear, column + 1 - clear], ends, color=colour, linewidth=1)
        right.set_xlim(-0.5, len(names) - 0.5)
        right.set_axis_off()
        figure.savefig(path, dpi=150)
    return Path(path)


def report_reordering(
    model: Any,
    lines: Sequence[str] | str | Path,
    picture: str | Path,
    *,
    targets: Sequence[str] | str | Path | None = None,
    links: Sequence[str] | str | Path | None = None,
    link_format: LinkFormat | None = None,
    order: TargetOrder | None = None,
    tokenizer: Any = None,
    sentence: int = 1,
    batch_size: int = 64,
) -> dict[str, Any]:
    """
    Draw the order that a model gives to one line; with `targets` and `links`, compare the order of all lines with theirs.

    The figures are written as JSON beside the picture.

    Args:
        model: a folder, or a model together with `tokenizer`.
        lines, targets, links: sentences, their translations, and their word links; or files of them.
        picture: an image file; the figures go beside it, with the ending .json.
        link_format, order: how links are read and become an order; those of the training data, as a rule.
        sentence: which line is drawn, counted from 1.

    Raises:
        ValueError: the model does not reorder, that line is blank or not there, the files differ in their lines, links do
            not fit their pair, or there are links without `targets` or the other way round.
        ImportError: matplotlib is missing.
    """
    if (targets is None) != (links is None):
        raise ValueError("A reference order needs both `targets` and `links`: give the two, or neither")
    sources, _ = lines_to_analyse(lines, targets, sentence)
    model, tokenizer = load_model(model, tokenizer)
    layers, rule = reordering_layers(model.config), (link_format or LinkFormat()).words
    results: dict[str, Any] = {
        "run": run_info(),
        "lines": len(sources),
        "blank_lines": sum(not line.strip() for line in sources),
        "words": rule,
    }
    positions = None
    if links is not None:
        check_line_counts(source=lines, target=targets, links=links)
        name = Path(links).name if isinstance(links, (str, Path)) else "the links"
        texts = (sources, read_texts(targets), read_texts(links))
        rows = encode_with_order(*texts, tokenizer, link_format, order, name)
        positions = rows[sentence - 1][TARGET_POSITIONS]
        results["all_lines"] = order_measures(model, rows, batch_size)
        if results["all_lines"] is None:
            raise ValueError(f"{name}: no line has links, so there is no reference order; give the links of this text")
    drawn = sentence_order(model, tokenizer, sources[sentence - 1], positions, rule)
    results["drawn_line"] = {
        "number": sentence,
        "words": drawn.words,
        "predicted_positions": {
            str(layer + 1): row for layer, row in zip(layers, drawn.predicted.tolist(), strict=True)
        },
        "predicted_order": drawn.sorted_words(drawn.predicted[-1]),
        "reference_positions": None if drawn.reference is None else drawn.reference.tolist(),
        "reference_order": None if drawn.reference is None else drawn.sorted_words(drawn.reference),
    }
    plot_order(drawn, layers, picture)
    write_results(Path(picture).with_suffix(".json"), results)
    return results


__all__ = [
    "SentenceOrder",
    "encode_with_order",
    "fonts_for",
    "order_measures",
    "plot_order",
    "reordering_layers",
    "report_reordering",
    "sentence_order",
]
