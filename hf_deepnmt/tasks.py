"""What differs between tasks from text to text: the pipeline, and how texts are scored and systems compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .metrics import (
    ROUGE_KINDS,
    UNSPACED,
    References,
    RougeSettings,
    bleu,
    bleu_metric,
    check_pairs,
    chrf,
    language_subtag,
    rouge,
)
from .metrics import tokenized_bleu as score_tokenized_bleu
from .models.pipeline_seq2seq import Seq2SeqPipeline
from .models.pipeline_summarization import SummarizationPipeline
from .models.pipeline_translation import TranslationPipeline
from .significance import paired_bootstrap, paired_bootstrap_rouge


@dataclass(frozen=True)
class Task:
    """
    One task.

    Args:
        pipeline: the class that makes text of text.
        scores: names of the scores of `validate`, the one that checkpoints are chosen by first.
        validate: those scores of hypotheses and references while training, each with `score` and `signature`.
        evaluate: scores and sizes of a test set, from hypotheses, references, sources or None, and options.
        options: the options of `evaluate` beside `target_lang`.
        compare: the significance of a difference between two systems, with `n`, `seed` and `compare_options`.
        check: raises where the scores of options could not be had, so that it is found out before hours of work.
    """

    pipeline: type[Seq2SeqPipeline]
    scores: tuple[str, ...]
    validate: Callable[..., dict[str, dict[str, Any]]]
    evaluate: Callable[..., dict[str, Any]]
    options: tuple[str, ...]
    compare: Callable[..., dict[str, Any]]
    compare_options: tuple[str, ...]
    check: Callable[..., Any]

    @property
    def best(self) -> str:
        return self.scores[0]

    @property
    def text_key(self) -> str:
        """The key of the text in the pipeline's results."""
        return f"{self.pipeline.result_name}_text"


def validate_translations(
    hypotheses: Sequence[str], references: References, *, target_lang: str | None = None
) -> dict[str, dict[str, Any]]:
    return {"bleu": bleu(hypotheses, references, target_lang=target_lang), "chrf": chrf(hypotheses, references)}


def evaluate_translations(
    hypotheses: Sequence[str],
    references: References,
    sources: Sequence[str] | None = None,
    *,
    target_lang: str | None = None,
    lowercase: bool = False,
    tokenize: str | None = None,
    tokenized: bool = False,
    compound_split: bool = False,
) -> dict[str, Any]:
    """
    Scores and sizes of translated text.

    Args:
        lowercase, tokenize: for BLEU and chrF, as in `metrics.bleu`.
        tokenized, compound_split: for the tokenised, lower-cased BLEU, as in `metrics.tokenized_bleu`.

    Returns:
        `bleu`, `chrf` and, where the language has spaces between words, `tokenized_bleu`, each with `score` and
        `signature`; numbers of `sentences`, words, blank lines and `copied_lines` (the source itself); `length_ratio`,
        tokens of the hypotheses over those of the references, as BLEU counts them.

    Raises:
        ValueError, TypeError: as `metrics.check_pairs`, for the sources too.
    """
    hypotheses, lists = check_pairs(hypotheses, references)
    if sources is not None:
        sources, _ = check_sources(sources, hypotheses)
    scores = {
        "bleu": bleu(hypotheses, lists, target_lang=target_lang, lowercase=lowercase, tokenize=tokenize),
        "chrf": chrf(hypotheses, lists, lowercase=lowercase),
    }
    if tokenized or language_subtag(target_lang) not in UNSPACED:
        options = {"target_lang": target_lang, "tokenized": tokenized, "compound_split": compound_split}
        scores["tokenized_bleu"] = score_tokenized_bleu(hypotheses, lists, **options)
    reference_length = scores["bleu"]["ref_len"]
    return {
        **scores,
        **corpus_sizes(hypotheses, lists, sources),
        "length_ratio": scores["bleu"]["sys_len"] / reference_length if reference_length else None,
    }


def evaluate_summaries(
    hypotheses: Sequence[str],
    references: References,
    sources: Sequence[str] | None = None,
    *,
    target_lang: str | None = None,
    tokenize: str | None = None,
    stem: bool | None = None,
) -> dict[str, Any]:
    """
    Scores and sizes of summaries.

    Args:
        target_lang, tokenize, stem: as in `metrics.rouge`.

    Returns:
        `rouge1`, `rouge2` and `rougeL`, each with `score` (F1), `precision`, `recall` and `signature`; sizes as in
        `evaluate_translations`, where `sentences` is the number of summaries; `length_ratio`, words of the summaries over
        those of the first references.

    Raises:
        ImportError: `rouge-score` is not installed.
        ValueError, TypeError: as `metrics.check_pairs`, for the sources too.
    """
    hypotheses, lists = check_pairs(hypotheses, references)
    if sources is not None:
        sources, _ = check_sources(sources, hypotheses)
    sizes = corpus_sizes(hypotheses, lists, sources)
    reference_words = sizes["reference_words"]
    return {
        **rouge(hypotheses, lists, target_lang=target_lang, tokenize=tokenize, stem=stem),
        **sizes,
        "length_ratio": sizes["hypothesis_words"] / reference_words if reference_words else None,
    }


def check_sources(sources: Sequence[str], hypotheses: list[str]) -> tuple[list[str], list[list[str]]]:
    sources = list(sources)
    if len(sources) != len(hypotheses):
        raise ValueError(f"{len(sources)} source sentences but {len(hypotheses)} hypotheses: pass one for each")
    return check_pairs(sources, sources)


def corpus_sizes(hypotheses: list[str], references: list[list[str]], sources: list[str] | None) -> dict[str, int]:
    first = [texts[0] for texts in references]
    sizes = {"sentences": len(hypotheses)}
    for name, texts in (("hypothesis", hypotheses), ("reference", first), ("source", sources)):
        if texts is not None:
            sizes[f"{name}_words"] = sum(len(text.split()) for text in texts)
            sizes[f"blank_{name}_lines"] = sum(not text.strip() for text in texts)
    if sources is not None:
        pairs = zip(sources, hypotheses, strict=True)
        sizes["copied_lines"] = sum(bool(source.strip()) and source.strip() == text.strip() for source, text in pairs)
    return sizes


def check_bleu(target_lang: str | None = None, lowercase: bool = False, tokenize: str | None = None, **options: Any):
    """Raises as `metrics.bleu_tokenizer`."""
    bleu_metric(target_lang, lowercase, tokenize)


TASKS: dict[str, Task] = {
    "translation": Task(
        pipeline=TranslationPipeline,
        scores=("bleu", "chrf"),
        validate=validate_translations,
        evaluate=evaluate_translations,
        options=("lowercase", "tokenize", "tokenized", "compound_split"),
        compare=paired_bootstrap,
        compare_options=("lowercase", "tokenize"),
        check=check_bleu,
    ),
    "summarization": Task(
        pipeline=SummarizationPipeline,
        scores=("rougeL", *(kind for kind in ROUGE_KINDS if kind != "rougeL")),
        validate=rouge,
        evaluate=evaluate_summaries,
        options=("tokenize", "stem"),
        compare=paired_bootstrap_rouge,
        compare_options=("tokenize", "stem"),
        check=RougeSettings,
    ),
}


def task_named(name: str) -> Task:
    """
    Raises:
        ValueError: there is no such task.
    """
    if name not in TASKS:
        raise ValueError(f"`task` is {name!r}: choose one of {', '.join(TASKS)}")
    return TASKS[name]


__all__ = ["TASKS", "Task", "evaluate_summaries", "evaluate_translations", "task_named"]
