"""Translating or summarising whole files, scoring them, and comparing systems; every result can be written as JSON."""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from .data import count_lines, iter_lines, pair_languages
from .metrics import References, check_pairs
from .models.generation_deepnmt import FAIRSEQ, LENGTH_PENALTY_FORMS
from .models.pipeline_seq2seq import CallReport, Seq2SeqPipeline, plural
from .provenance import run_info, write_results, write_text
from .significance import DEFAULT_SEED, paired_bootstrap
from .tasks import TASKS, evaluate_summaries, evaluate_translations, task_named


logger = logging.get_logger(__name__)

LINE_BREAKS = re.compile(r"[\r\n]+")
DEFAULT_BEAMS = 5
DEFAULT_MAX_TOKENS = 4096

Texts = str | Path | Sequence[str]
Translation = str | list[dict[str, Any]]


def load_model(
    model: str | Path | PreTrainedModel,
    tokenizer: str | Path | PreTrainedTokenizerBase | None = None,
    *,
    dtype: str | torch.dtype | None = None,
    attn_implementation: str | None = None,
    device: str | torch.device | None = None,
    trust_remote_code: bool = False,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A model and its tokenizer, from a folder unless they are objects; the device defaults to the first GPU."""
    if isinstance(model, PreTrainedModel):
        if tokenizer is None:
            raise ValueError("A model object comes without a tokenizer: pass `tokenizer=`")
        model = model if device is None else model.to(device)
    else:
        tokenizer = model if tokenizer is None else tokenizer
        settings = {"dtype": dtype, "attn_implementation": attn_implementation}
        settings = {key: value for key, value in settings.items() if value is not None}
        model = AutoModelForSeq2SeqLM.from_pretrained(model, trust_remote_code=trust_remote_code, **settings)
        model = model.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if isinstance(tokenizer, (str, os.PathLike)):
        tokenizer = AutoTokenizer.from_pretrained(tokenizer, trust_remote_code=trust_remote_code)
    return model, tokenizer


def translate_lines(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    lines: Iterable[str],
    *,
    task: str = "translation",
    num_beams: int = DEFAULT_BEAMS,
    length_penalty: float = 1.0,
    max_tokens: int = DEFAULT_MAX_TOKENS,
    num_return_sequences: int = 1,
    return_scores: bool = False,
    chunk_size: int = 10_000,
    progress: bool = True,
    report: CallReport | None = None,
    **options,
) -> Iterator[Translation]:
    """
    Translations of `lines`, one for each, in their order, exactly as `TranslationPipeline` gives them.

    Lines are read in chunks, and sorted by length inside a chunk, so that memory does not grow with the input. A
    blank line gives an empty translation. Line breaks inside a translation become spaces.

    ```python
    >>> for translation in translate_lines(model, tokenizer, open("test.de")):  # doctest: +SKIP
    ...     print(translation)
    ```

    Args:
        task: `translation`, or `summarization`, where lines are documents and results those of `SummarizationPipeline`.
        max_tokens: largest batch, in padded source tokens; a longer sentence is a batch of its own.
        num_return_sequences, return_scores: with several hypotheses or scores, the item for a line is a list of
            `{"translation_text": ..., "score": ...}`, best first; scores as in the pipeline.
        chunk_size: lines that are in memory at once.
        progress: shows a bar, unless progress bars are switched off in Transformers.
        report: counts sentences, translations that hit the length limit, and cut tokens; blank lines do not count.
            Without one, a warning gives the counts at the end.
        options: all others of the pipeline, and through it of `generate`: `src_lang`, `truncation`, `max_new_tokens`,
            `early_stopping`, `length_penalty_form`, ... Without a limit, n source tokens give at most 2n + 50 in a
            translation, n in a summary.

    Raises:
        TypeError: a line is no string; the message has its index.
        ValueError: a sentence is too long for the model, there is no such task, or options contradict each other.
    """
    kind = task_named(task)
    pipe = make_pipe(model, tokenizer, task)
    tally = pipe.new_report(streaming=False) if report is None else report
    options |= {"num_beams": num_beams, "length_penalty": length_penalty, "return_scores": return_scores}
    decoder = LineDecoder(pipe, max_tokens, tally, {**options, "num_return_sequences": num_return_sequences})
    is_plain = num_return_sequences == 1 and not return_scores
    total = len(lines) if hasattr(lines, "__len__") else None
    with evaluation_mode(model), logging.tqdm(total=total, unit="line", disable=not progress) as bar:
        source, start = iter(lines), 0
        while chunk := list(islice(source, chunk_size)):
            for records in decoder.translate(chunk, start, bar):
                yield records[0][kind.text_key] if is_plain else records
            start += len(chunk)
    if report is None:
        tally.warn()


def make_pipe(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, task: str) -> Seq2SeqPipeline:
    return task_named(task).pipeline(model=model, tokenizer=tokenizer, task=task, device=model.device)


@contextmanager
def evaluation_mode(model: PreTrainedModel) -> Iterator[None]:
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


class LineDecoder:
    """The chunks of `translate_lines`."""

    def __init__(self, pipe: Seq2SeqPipeline, max_tokens: int, report: CallReport, options: dict[str, Any]):
        for name, value in (("num_beams", options["num_beams"]), ("max_tokens", max_tokens)):
            if value < 1:
                raise ValueError(f"`{name}` must be at least 1, got {value}")
        if options["num_return_sequences"] > options["num_beams"] and not options.get("do_sample"):
            raise ValueError(
                f"`num_return_sequences={options['num_return_sequences']}` needs as many beams: raise `num_beams`"
            )
        self.pipe, self.report = pipe, report
        self.budget = max_tokens
        self.text_key = f"{pipe.result_name}_text"
        self.blank = {self.text_key: "", **({"score": 0.0} if options["return_scores"] else {})}
        self.returned = options["num_return_sequences"]
        self.preprocessing, self.forwarding, self.postprocessing = pipe._sanitize_parameters(**options)
        self.postprocessing["report"] = report

    def translate(self, lines: list[str], start: int, bar: Any) -> list[list[dict[str, Any]]]:
        """All hypotheses of each line; `start` is the index of the first one, for messages."""
        features = [self.pipe.preprocess((start + n, line), **self.preprocessing) for n, line in enumerate(lines)]
        filled = [index for index, line in enumerate(lines) if line.strip()]
        results = [[dict(self.blank) for _ in range(self.returned)] for _ in lines]
        bar.update(len(lines) - len(filled))
        lengths = [features[index]["input_ids"].shape[1] for index in filled]
        for batch in budget_batches(lengths, self.budget):
            indices = [filled[position] for position in batch]
            for index, records in zip(indices, self.translate_batch([features[i] for i in indices]), strict=True):
                results[index] = records
            bar.update(len(batch))
        return results

    def translate_batch(self, features: list[dict[str, torch.Tensor]]) -> list[list[dict[str, Any]]]:
        fills = {"input_ids": self.pipe.tokenizer.pad_token_id or 0}
        inputs = {
            key: pad_sequence([row[key][0] for row in features], True, fills.get(key, 0))
            if features[0][key].dim() > 1
            else torch.cat([row[key] for row in features])
            for key in features[0]
        }
        outputs = self.pipe.forward(inputs, **self.forwarding)
        rows = [{key: value[i : i + 1] for key, value in outputs.items()} for i in range(len(features))]
        return [self.single_line(self.pipe.postprocess(row, **self.postprocessing)) for row in rows]

    def single_line(self, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**record, self.text_key: LINE_BREAKS.sub(" ", record[self.text_key])} for record in records]


def budget_batches(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Positions in batches, longest first, where sentences times longest length stays within the budget if it can."""
    order = sorted(range(len(lengths)), key=lambda position: -lengths[position])
    start = 0
    while start < len(order):
        size = max(1, budget // max(1, lengths[order[start]]))
        yield order[start : start + size]
        start += size


def read_texts(texts: Texts) -> list[str]:
    """The lines of a file, or the texts themselves."""
    return list(iter_lines(texts)) if isinstance(texts, (str, Path)) else list(texts)


def read_references(references: Texts | Sequence[Path]) -> References:
    """Lines of one file; lists of lines of several `Path`s, one list a sentence; or the references themselves."""
    if isinstance(references, (str, Path)):
        return read_texts(references)
    references = list(references)
    if references and all(isinstance(item, Path) for item in references):
        sides = [read_texts(path) for path in references]
        return sides[0] if len(sides) == 1 else [list(texts) for texts in zip(*sides, strict=True)]
    return references


def files_of(texts: Any) -> list[Path]:
    if isinstance(texts, (str, Path)):
        return [Path(texts)]
    return [item for item in texts if isinstance(item, Path)] if isinstance(texts, (list, tuple)) else []


def check_line_counts(**texts: Any):
    """
    Raises:
        ValueError: files or sequences differ in length; the message has all names and counts.
    """
    counts = {}
    for role, item in texts.items():
        files = files_of(item)
        counts |= {f"{role} {path}": count_lines(path) for path in files}
        if item is not None and not files:
            counts[role] = len(item)
    if len(set(counts.values())) > 1:
        listing = ", ".join(f"{name} has {count}" for name, count in counts.items())
        raise ValueError(f"Line counts differ: {listing}. Line n of each must belong to the same sentence")


def language_of(texts: Any) -> str | None:
    """The language that the ending of a file name tells: `test.de`, `test.de.gz`."""
    files = files_of(texts)
    suffixes = [suffix for suffix in files[0].suffixes if suffix != ".gz"] if files else []
    match = re.fullmatch(r"\.([a-z]{2})", suffixes[-1]) if suffixes else None
    return match[1] if match else None


@dataclass(frozen=True)
class Scoring:
    """
    How a task's texts are scored and compared.

    Args:
        options: keywords of the task's `evaluate` and `compare`.

    Raises:
        ValueError: there is no such task, or it has no such option.
    """

    task: str = "translation"
    options: dict[str, Any] = field(default_factory=dict)
    n_bootstrap: int = 1000
    seed: int = DEFAULT_SEED

    def __post_init__(self):
        known = task_named(self.task).options
        for name, value in self.options.items():
            # an option that is left at its default says nothing
            if name not in known and value not in (None, False):
                raise ValueError(
                    f"`{name}` says nothing for {self.task}, which takes {', '.join(known)}: leave it out"
                )

    def chosen(self, names: Sequence[str]) -> dict[str, Any]:
        return {name: self.options[name] for name in names if name in self.options}

    def check(self, target_lang: str | None):
        """What would fail while scoring fails here."""
        task = task_named(self.task)
        task.check(target_lang, **self.chosen(task.options))

    def scores(
        self, hypotheses: list[str], references: References, sources: list[str] | None, target_lang: str | None
    ) -> dict[str, Any]:
        task = task_named(self.task)
        return task.evaluate(hypotheses, references, sources, target_lang=target_lang, **self.chosen(task.options))

    def comparison(
        self, hypotheses: list[str], baseline: list[str], references: References, target_lang: str | None
    ) -> dict[str, Any]:
        task = task_named(self.task)
        options = {"n": self.n_bootstrap, "seed": self.seed, "target_lang": target_lang}
        return task.compare(hypotheses, baseline, references, **options, **self.chosen(task.compare_options))


@dataclass(frozen=True)
class EvaluationSet:
    """Sentences with their references, and what they are called."""

    name: str
    sources: list[str] | None
    references: References
    languages: tuple[str | None, str | None]
    files: dict[str, list[str]]

    @classmethod
    def read(cls, source: Any, reference: Any, source_lang: str | None, target_lang: str | None, name: str | None):
        if isinstance(source, Dataset):
            if reference is not None:
                raise ValueError("A dataset of pairs has its own references: leave `reference` out")
            languages = pair_languages(source, source_lang, target_lang)
            source, reference = ([pair[language] for pair in source["translation"]] for language in languages)
        elif reference is None:
            raise ValueError("There is no reference: pass `reference=`, or a dataset with a `translation` column")
        else:
            languages = source_lang or language_of(source), target_lang or language_of(reference)
        check_line_counts(source=source, reference=reference)
        sources, references = None if source is None else read_texts(source), read_references(reference)
        check_pairs(sources or [""] * len(references), references)
        paths = {"source": files_of(source), "reference": files_of(reference)}
        files = {role: [path.name for path in items] for role, items in paths.items()}
        default = files["reference"][0].split(".")[0] if files["reference"] else None
        return cls(name or default or "test", sources, references, languages, files)

    def facts(self) -> dict[str, Any]:
        references = [text if isinstance(text, str) else "\t".join(text) for text in self.references]
        return {
            **self.files,
            "source_lang": self.languages[0],
            "target_lang": self.languages[1],
            "source_sha256": None if self.sources is None else digest(self.sources),
            "reference_sha256": digest(references),
        }

    def results(self, hypotheses: list[str], scoring: Scoring) -> dict[str, Any]:
        scores = scoring.scores(hypotheses, self.references, self.sources, self.languages[1])
        return {"data": {self.name: self.facts()}, "scores": {self.name: scores}, "run": run_info(scoring.seed)}

    def compare(self, hypotheses: list[str], baseline: list[str], label: str | None, scoring: Scoring):
        result = scoring.comparison(hypotheses, baseline, self.references, self.languages[1])
        return {self.name: {"baseline": label, **result}}


def digest(lines: list[str]) -> str:
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()


def evaluate_model(
    model: str | Path | PreTrainedModel,
    source: Texts | Dataset,
    reference: Texts | Sequence[Path] | None = None,
    *,
    task: str = "translation",
    tokenizer: str | Path | PreTrainedTokenizerBase | None = None,
    name: str | None = None,
    source_lang: str | None = None,
    target_lang: str | None = None,
    num_beams: int = DEFAULT_BEAMS,
    length_penalty: float = 1.0,
    max_tokens: int = DEFAULT_MAX_TOKENS,
    dtype: str | torch.dtype | None = None,
    attn_implementation: str | None = None,
    device: str | torch.device | None = None,
    trust_remote_code: bool = False,
    lowercase: bool = False,
    tokenize: str | None = None,
    tokenized: bool = False,
    compound_split: bool = False,
    stem: bool | None = None,
    baseline: Texts | None = None,
    n_bootstrap: int = 1000,
    seed: int = DEFAULT_SEED,
    hypotheses_path: str | Path | None = None,
    results_path: str | Path | None = None,
    progress: bool = True,
    **options,
) -> dict[str, Any]:
    """
    Translate or summarise a test set and score the result.

    ```python
    >>> results = evaluate_model("checkpoint-de-en", "test.de", "test.en", results_path="r.json")  # doctest: +SKIP
    >>> results["scores"]["test"]["bleu"]["score"]  # doctest: +SKIP
    ```

    Args:
        task: `translation` or `summarization`, a key of `tasks.TASKS`.
        source, reference: files, or sequences of strings. Several references: a list of `Path`s, or of lists, one for
            each sentence. Or the source is a dataset with a `translation` column, and no reference is given.
        name: what the test set is called in the results; by default as its reference file, or `test`.
        source_lang, target_lang: columns of a dataset; for scoring and the results otherwise. Unset, file names tell.
        lowercase, tokenize, tokenized, compound_split: for translations, as in `evaluate_translations`.
        tokenize, stem: for summaries, as in `evaluate_summaries`.
        baseline: another system for paired bootstrap resampling: a model folder, a file of hypotheses, or a list of them.
        seed: of the bootstrap, and of sampling if `options` ask for it.
        hypotheses_path, results_path: files to write, one hypothesis a line and JSON.
        options: go to `translate_lines`.

    Returns:
        What is written to `results_path`: `task`, `model`, `decoding`, `time`, `run` (see `provenance.run_info`), and,
        under the name of the test set, `data`, `scores` (see `evaluate_translations` and `evaluate_summaries`) and with a
        baseline `significance`.

    Raises:
        ValueError: counts of lines differ, or an option is not for the task; it is raised before any model is loaded.
    """
    data = EvaluationSet.read(source, reference, source_lang, target_lang, name)
    scores = {"lowercase": lowercase, "tokenize": tokenize, "tokenized": tokenized, "compound_split": compound_split}
    scoring = Scoring(task, {**scores, "stem": stem}, n_bootstrap, seed)
    other_is_model = isinstance(baseline, (str, Path)) and Path(baseline).is_dir()
    if baseline is not None and not other_is_model:
        check_line_counts(source=data.sources, baseline=baseline)
    # A missing segmenter or package must not be found out after hours of decoding.
    scoring.check(data.languages[1])
    loading = {"dtype": dtype, "attn_implementation": attn_implementation, "device": device}
    loading["trust_remote_code"] = trust_remote_code
    decoding = {
        "task": task,
        "num_beams": num_beams,
        "length_penalty": length_penalty,
        "max_tokens": max_tokens,
        **options,
    }
    system = load_model(model, tokenizer, **loading)
    hypotheses, run = timed_translation(*system, data.sources, decoding, seed, progress)
    if hypotheses_path is not None:
        write_text(Path(hypotheses_path), "".join(f"{line}\n" for line in hypotheses))
    results = {"task": task, "model": model_facts(system[0], model), **run, **data.results(hypotheses, scoring)}
    if baseline is not None:
        if other_is_model:
            other = timed_translation(*load_model(baseline, **loading), data.sources, decoding, seed, progress)[0]
        else:
            other = read_texts(baseline)
        results["significance"] = data.compare(hypotheses, other, file_name(baseline), scoring)
    if results_path is not None:
        write_results(results_path, results)
    return results


def file_name(texts: Any) -> str | None:
    files = files_of(texts)
    return files[0].resolve().name if files else None


def evaluate_hypotheses(
    hypotheses: Texts,
    reference: Texts | Sequence[Path],
    source: Texts | None = None,
    *,
    task: str = "translation",
    name: str | None = None,
    source_lang: str | None = None,
    target_lang: str | None = None,
    lowercase: bool = False,
    tokenize: str | None = None,
    tokenized: bool = False,
    compound_split: bool = False,
    stem: bool | None = None,
    baseline: Texts | None = None,
    n_bootstrap: int = 1000,
    seed: int = DEFAULT_SEED,
    results_path: str | Path | None = None,
) -> dict[str, Any]:
    """Score translations or summaries that exist already; arguments and results as in `evaluate_model`, without `time`."""
    check_line_counts(hypotheses=hypotheses, reference=reference, source=source, baseline=baseline)
    data = EvaluationSet.read(source, reference, source_lang, target_lang, name)
    scores = {"lowercase": lowercase, "tokenize": tokenize, "tokenized": tokenized, "compound_split": compound_split}
    scoring = Scoring(task, {**scores, "stem": stem}, n_bootstrap, seed)
    lines = read_texts(hypotheses)
    results = {"task": task, "model": None, "hypotheses": file_name(hypotheses), "decoding": None}
    results |= data.results(lines, scoring)
    if baseline is not None:
        results["significance"] = data.compare(lines, read_texts(baseline), file_name(baseline), scoring)
    if results_path is not None:
        write_results(results_path, results)
    return results


def timed_translation(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sources: list[str],
    decoding: dict[str, Any],
    seed: int,
    progress: bool,
) -> tuple[list[str], dict[str, Any]]:
    """Hypotheses, and `decoding` and `time` of the results."""
    if decoding.get("do_sample"):
        torch.manual_seed(seed)
    pipe = make_pipe(model, tokenizer, decoding["task"])
    report = pipe.new_report(streaming=False)
    start = time.perf_counter()
    hypotheses = list(translate_lines(model, tokenizer, sources, progress=progress, report=report, **decoding))
    seconds = time.perf_counter() - start
    report.warn()
    tokens = sum(len(ids) for ids in tokenizer(text_target=hypotheses, verbose=False)["input_ids"])
    return hypotheses, {
        "decoding": {
            **decoding_settings(pipe, decoding),
            f"unfinished_{plural(pipe.output)}": report.unfinished,
            f"cut_{plural(pipe.item)}": report.cut_inputs,
        },
        "time": {
            "seconds": round(seconds, 3),
            "sentences_per_second": round(len(sources) / seconds, 3),
            "target_tokens_per_second": round(tokens / seconds, 3),
        },
    }


def decoding_settings(pipe: Seq2SeqPipeline, decoding: Mapping[str, Any]) -> dict[str, Any]:
    decoding = {name: value for name, value in decoding.items() if name != "task"}
    limit = pipe.stated_limit(pipe._prepare_generate_kwargs(dict(decoding)))
    model = pipe.model
    form = getattr(model.generation_config, "length_penalty_form", FAIRSEQ)
    defaults = {"early_stopping": bool(model.generation_config.early_stopping), "length_penalty_form": form}
    plain = {key: value if isinstance(value, (bool, int, float)) else str(value) for key, value in decoding.items()}
    return {**defaults, **plain, "max_new_tokens": pipe.default_limit if limit is None else limit}


def model_facts(model: PreTrainedModel, origin: Any) -> dict[str, Any]:
    name = model.name_or_path if isinstance(origin, PreTrainedModel) else str(origin)
    return {
        "name": Path(name).name or None,
        "model_type": model.config.model_type,
        "architecture": type(model).__name__,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "dtype": str(model.dtype).removeprefix("torch."),
        "device": model.device.type,
        "attn_implementation": model.config._attn_implementation,
    }


def summary(results: Mapping[str, Any]) -> str:
    """The scores of a results dict, one a line, with signatures."""
    lines = []
    for name, scores in results["scores"].items():
        ratio = "" if scores["length_ratio"] is None else f", length ratio {scores['length_ratio']:.3f}"
        lines.append(f"{name}: {scores['sentences']} sentences{ratio}")
        metrics = {metric: value for metric, value in scores.items() if isinstance(value, dict)}
        lines += [f"{metric} {value['score']:.2f}  {value['signature']}" for metric, value in metrics.items()]
        tested = results.get("significance", {}).get(name, {}).get("metrics", {})
        lines += [
            f"{metric} {x['delta']:+.2f} against the baseline, p = {x['p_value']:.4f}" for metric, x in tested.items()
        ]
    return "\n".join(lines)


def argument_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Translate or summarise a test set with a model and score it, or score a file."
    )
    add = parser.add_argument
    add("model", nargs="?", metavar="MODEL_DIR", help="checkpoint folder; not needed with --hypotheses")
    add("--task", choices=list(TASKS), default="translation", help="which pipeline and scores")
    add("--source", type=Path, help="file with one sentence a line, plain or gzip")
    add("--reference", type=Path, action="append", required=True, help="give it again for further references")
    add("--hypotheses", type=Path, help="score this file instead of using a model")
    add("--output", type=Path, help="results, as JSON")
    add("--write-hypotheses", type=Path, dest="hypotheses_path", help="file for what the model makes")
    add("--name", help="what the test set is called in the results")
    add("--source-lang")
    add("--target-lang", help="by default the ending of the reference file")
    add("--beam", type=int, default=DEFAULT_BEAMS, dest="num_beams")
    add("--length-penalty", type=float, default=1.0)
    add("--length-penalty-form", choices=LENGTH_PENALTY_FORMS, help="by default the model's own, else fairseq")
    add("--max-tokens", type=int, default=DEFAULT_MAX_TOKENS, help="padded source tokens in a batch")
    add("--min-new-tokens", type=int)
    add("--max-new-tokens", type=int, help="by default for n source tokens 2n + 50 in a translation, n in a summary")
    add("--no-repeat-ngram-size", type=int, help="3 keeps trigrams of tokens from coming twice")
    add("--truncate", action="store_const", const=True, dest="truncation", help="cut longer sources, and count them")
    add("--dtype", help="float32, bfloat16 or float16; by default as stored")
    add("--attn-implementation", help="eager, sdpa, ...")
    add("--device")
    add("--trust-remote-code", action="store_true", help="run the code that lies in the checkpoint folder")
    add("--lowercase", action="store_true", help="lower-case for BLEU and chrF")
    add(
        "--tokenize",
        help="a tokeniser of sacreBLEU, or for ROUGE english, words or characters, instead of the language's",
    )
    add("--tokenized", action="store_true", help="the text is tokenised already, for the tokenised BLEU")
    add("--compound-split", action="store_true", help="split hyphens, for the tokenised BLEU")
    add("--stem", action=argparse.BooleanOptionalAction, help="Porter's stemmer for ROUGE; by default for English")
    add("--baseline", type=Path, help="model folder or file of hypotheses to compare with")
    add("--bootstrap", type=int, default=1000, dest="n_bootstrap", help="resamples for the comparison")
    add("--seed", type=int, default=DEFAULT_SEED)
    return parser


DECODING_ARGUMENTS = (
    "num_beams",
    "length_penalty",
    "length_penalty_form",
    "max_tokens",
    "min_new_tokens",
    "max_new_tokens",
    "no_repeat_ngram_size",
    "truncation",
    "dtype",
    "attn_implementation",
    "device",
    "trust_remote_code",
    "hypotheses_path",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command behind `training/evaluate.py`; ends with a message and status 2 where the input is at fault."""
    parser = argument_parser()
    settings = vars(parser.parse_args(arguments))
    model, hypotheses, output = settings.pop("model"), settings.pop("hypotheses"), settings.pop("output")
    if (model is None) == (hypotheses is None):
        parser.error("give either MODEL_DIR or --hypotheses")
    if model is not None and settings["source"] is None:
        parser.error("MODEL_DIR needs --source")
    if model is not None and not Path(model).is_dir():
        parser.error(f"{model}: no such folder")
    decoding = {name: settings.pop(name) for name in DECODING_ARGUMENTS}
    decoding = {name: value for name, value in decoding.items() if value is not None}
    try:
        if hypotheses is not None:
            results = evaluate_hypotheses(hypotheses, results_path=output, **settings)
        else:
            results = evaluate_model(model, results_path=output, **settings, **decoding)
    except (ImportError, OSError, TypeError, ValueError) as error:
        parser.error(str(error))
    print(summary(results))
    return 0


__all__ = [
    "evaluate_hypotheses",
    "evaluate_model",
    "evaluate_summaries",
    "evaluate_translations",
    "load_model",
    "main",
    "paired_bootstrap",
    "summary",
    "translate_lines",
]
