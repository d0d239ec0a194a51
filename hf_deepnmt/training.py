"""
From a recipe to a trained model: `train(["recipe.yaml", "training.max_steps=100"])`.

A recipe is a YAML file that holds only differences from the defaults, in the sections `data`, `tokenizer`, `model`,
`training` and `evaluation`. Every field can be overridden on the command line as `section.field=value`.
"""

from __future__ import annotations

import ctypes
import dataclasses
import difflib
import functools
import inspect
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import yaml
from datasets import Dataset, DatasetDict
from transformers import AutoTokenizer, PreTrainedTokenizerBase, set_seed
from transformers.utils import logging

from .aligners import ALIGNERS, check_aligner, write_links
from .alignment import LinkFormat
from .batching import Seq2SeqCollator
from .checkpoints import last_checkpoints
from .corpora import CORPORA, check_links_of_splits, load_corpus
from .data import (
    ALIGNMENT,
    DataReport,
    attach_links,
    check_link_column,
    clean_pairs,
    load_pairs,
    preprocess_pairs,
    read_links,
    tokenize_pairs,
)
from .evaluation import translate_lines
from .models import ARCHITECTURES
from .models.generation_deepnmt import FAIRSEQ, check_length_penalty_form
from .provenance import run_info, write_results
from .reordering_analysis import order_measures
from .target_order import NO_POSITION, TARGET_POSITIONS, TargetOrder
from .tasks import task_named
from .tokenization import target_size, train_tokenizer
from .trainer import AVERAGE_FOLDER, DeepNMTTrainer, DeepNMTTrainingArguments


logger = logging.get_logger(__name__)

TOKENIZER_FOLDER = "tokenizer"
MODEL_FOLDER = "model"
FIRST_PHASE_FOLDER = "first_phase"
SECOND_PHASE_FOLDER = "second_phase"
PROGRESS_FILE = "progress.json"
LINKS_FOLDER = "links"
GENERATED_CORPUS = "generated"
GENERATED_SUMMARIES = "generated-summaries"
GOLD_LINKS = "gold"


@dataclass
class DataSettings:
    """
    Args:
        corpus: a name of `corpora.CORPORA`, or of a bundled generator: `generated` for German-English pairs,
            `generated-summaries` for news stories with summaries.
        path: folder of the corpus on disk; without it the corpus comes from the Hub. Files below are looked up in it.
        train, validation, test: instead of a corpus, files (two line-aligned ones, or a table) or data set names.
        source_lang, target_lang: the two languages, or the names of the two columns, for instance `document` and `summary`.
        size: pairs to generate for training, or to keep of the training data.
        preprocess: prepare the text as the corpus's literature does (Moses tokens, lower case, length filters).
        clean: arguments of `clean_pairs`, for the training pairs; none of the held-out pairs stays among them.
        max_source_length, max_target_length: in tokens with the end token; longer training pairs are left out, counted.
        truncate_source: cut longer sources to their first `max_source_length` tokens instead, those of held-out data too
            and those of the saved model's pipeline with `truncation=True`; the report counts them.
        links: word links, from which each source token gets its supervised target position: files in Pharaoh format by
            split, whose line n belongs to line n of the split; or an aligner, `eflomal` or `fast_align`, which learns on
            the training pairs as they are after cleaning; or `gold`, the links that come with the data (the generated
            corpus, a data set with the column `alignment`). Splits without links are not supervised.
        link_format: fields of `alignment.LinkFormat`: `words`, the rule that gives the words (`spaces`; for an aligner
            `text`), and for links from elsewhere `one_based` and `reverse`.
        target_order: fields of `target_order.TargetOrder`: `multi` and `unaligned`.
    """

    corpus: str | None = None
    path: str | None = None
    train: Any = None
    validation: Any = None
    test: Any = None
    source_lang: str = "de"
    target_lang: str = "en"
    size: int | None = None
    preprocess: bool = False
    clean: dict[str, Any] | None = None
    max_source_length: int = 256
    max_target_length: int = 256
    truncate_source: bool = False
    links: Any = None
    link_format: dict[str, Any] | None = None
    target_order: dict[str, Any] | None = None

    def __post_init__(self):
        names = (*ALIGNERS, GOLD_LINKS)
        if not (self.links is None or isinstance(self.links, dict) or self.links in names):
            raise ValueError(
                f"`data.links` is {self.links!r}: give a file for each split, for instance {{train: train.links}}, or one "
                f"of {', '.join(names)}"
            )
        if self.links is None and (self.link_format or self.target_order):
            raise ValueError("`data.link_format` and `data.target_order` say nothing without `data.links`: set it")
        refuse_unknown(self.link_format or {}, field_names(LinkFormat), "`data.link_format`")
        refuse_unknown(self.target_order or {}, field_names(TargetOrder) - {"words"}, "`data.target_order`")
        # refuse values before the data is read
        self.format_of_links()
        self.order()

    @property
    def aligner(self) -> str | None:
        return self.links if isinstance(self.links, str) and self.links in ALIGNERS else None

    @property
    def files_of_links(self) -> dict[str, str]:
        return self.links if isinstance(self.links, dict) else {}

    def format_of_links(self) -> LinkFormat:
        given = self.link_format or {}
        if given.keys() - {"words"} and (self.aligner or self.corpus == GENERATED_CORPUS):
            raise ValueError(f"`data.link_format` has {', '.join(given)}, but links made here only need `words`")
        # the generator writes its links from German to English
        turned = {"reverse": self.source_lang == "en"} if self.corpus == GENERATED_CORPUS else {}
        return LinkFormat(**{"words": "text" if self.aligner else "spaces", **turned, **given})

    def order(self) -> TargetOrder | None:
        """How links become positions; None without links."""
        if self.links is None:
            return None
        return TargetOrder(words=self.format_of_links().words, **(self.target_order or {}))


@dataclass
class TokenizerSettings:
    """
    Args:
        path: a tokenizer folder to use; without it one is trained on the training pairs.
        The others are those of `tokenization.train_tokenizer`.
    """

    path: str | None = None
    joint: bool = True
    vocab_size: int = 8000
    target_vocab_size: int | None = None
    algorithm: str = "bpe"
    normalizer: str = "identity"
    lowercase: bool = False
    byte_fallback: bool = True
    min_frequency: int = 2
    limit_alphabet: int = 1000


@dataclass
class EvaluationSettings:
    """
    How the trained model is tested.

    Args:
        num_beams: beam size.
        length_penalty, length_penalty_form: exponent of the length penalty, and its form as in `generate`: `fairseq`
            (length^exponent) or `gnmt` (((5 + length) / 6)^exponent).
        max_tokens: padded source tokens a batch.
        min_new_tokens, max_new_tokens: length limits of an output, in target tokens with its end; without them at most
            2n + 50 for n source tokens in a translation, n in a summary.
        no_repeat_ngram_size: 3 blocks trigrams of tokens from coming twice in an output (Paulus et al., 2018).
        scoring: options of the task's scores: `lowercase`, `tokenize`, `tokenized` and `compound_split` of
            `tasks.evaluate_translations`, or `tokenize` and `stem` of `tasks.evaluate_summaries`.
    """

    num_beams: int = 5
    length_penalty: float = 1.0
    length_penalty_form: str = FAIRSEQ
    max_tokens: int = 4096
    min_new_tokens: int | None = None
    max_new_tokens: int | None = None
    no_repeat_ngram_size: int | None = None
    scoring: dict[str, Any] | None = None

    def __post_init__(self):
        check_length_penalty_form(self.length_penalty_form)
        for name in ("min_new_tokens", "max_new_tokens", "no_repeat_ngram_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"`evaluation.{name}` must be at least 1 or unset, got {value}")
        if None not in (self.min_new_tokens, self.max_new_tokens) and self.min_new_tokens > self.max_new_tokens:
            raise ValueError(
                f"`evaluation.min_new_tokens` ({self.min_new_tokens}) is above `evaluation.max_new_tokens` "
                f"({self.max_new_tokens}): lower the one or raise the other"
            )

    def decoding(self) -> dict[str, Any]:
        """Keywords of `translate_lines`; those that are not set are left out."""
        values = {item.name: getattr(self, item.name) for item in dataclasses.fields(self) if item.name != "scoring"}
        return {name: value for name, value in values.items() if value is not None}


@dataclass
class Recipe:
    """
    Args:
        task: `translation` or `summarization`, a key of `tasks.TASKS`: which pipeline and which scores test the model.
        model: `model_type`, a row of `ARCHITECTURES`, and fields of its config; vocabulary sizes come from the tokenizer.
        training: fields of `DeepNMTTrainingArguments`.
        restart_adam: fields of `DeepNMTTrainingArguments` for a second phase, which goes on from the weights of the first
            with new moments and step count of Adam (Denkowski and Neubig, 2017; Wang et al., 2018, section 4.1:
            learning rate 5e-5, smaller batches). `learning_rate` is fixed unless a schedule is given, and `max_steps` or
            `num_train_epochs` is its own; all else is as in `training`. Its checkpoints lie in `second_phase`.
        init_from: a checkpoint of the same architecture to start from.
        card: what the model card says beside the results, as in `model_card.render_model_card`.
    """

    description: str = ""
    task: str = "translation"
    data: DataSettings = field(default_factory=DataSettings)
    tokenizer: TokenizerSettings = field(default_factory=TokenizerSettings)
    model: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    restart_adam: dict[str, Any] | None = None
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    init_from: str | None = None
    card: dict[str, Any] = field(default_factory=dict)


def field_names(settings: type) -> set[str]:
    return {item.name for item in dataclasses.fields(settings)}


def refuse_unknown(given, known, where: str):
    """One sentence for the first name that is not known, with the nearest one that is."""
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(str(name), known, n=1)
            hint = f"; did you mean `{close[0]}`?" if close else f"; it takes {', '.join(sorted(known))}"
            raise ValueError(f"{where} has no field `{name}`{hint}")


def recipe_from_dict(values: dict[str, Any], origin: str = "the recipe") -> Recipe:
    """
    Check names and build the recipe.

    Raises:
        ValueError: a section or field does not exist; names it, and the nearest one that does.
    """
    sections = {"data": DataSettings, "tokenizer": TokenizerSettings, "evaluation": EvaluationSettings}
    refuse_unknown(values, field_names(Recipe), origin)
    built = dict(values)
    for name, section in sections.items():
        given = values.get(name) or {}
        refuse_unknown(given, field_names(section), f"`{name}` of {origin}")
        built[name] = section(**given)
    task = task_named(values.get("task", "translation"))
    refuse_unknown(built["evaluation"].scoring or {}, task.options, f"`evaluation.scoring` of {origin}")
    model_type = (values.get("model") or {}).get("model_type", "deepnmt")
    refuse_unknown([model_type], ARCHITECTURES, f"the table of architectures, asked by {origin},")
    config_fields = {
        *ARCHITECTURES[model_type].config.__dataclass_fields__,
        "model_type",
        "tie",
        "attn_implementation",
    }
    refuse_unknown(values.get("model") or {}, config_fields, f"`model` of {origin}")
    for name in ("training", "restart_adam"):
        if name in values:
            given = values[name] or {}
            refuse_unknown(given, field_names(DeepNMTTrainingArguments), f"`{name}` of {origin}")
            if "task" in given:
                raise ValueError(f"`{name}` of {origin} has `task`, which is for the whole recipe: set it at the top")
            built[name] = {key: named_strategy(key, value) for key, value in given.items()}
    if values.get("restart_adam") is None:
        built["restart_adam"] = None
    else:
        check_restart(built["restart_adam"], origin)
    return Recipe(**built)


def named_strategy(name: str, value: Any) -> Any:
    # a bare `no` is false in YAML, but the name of a strategy here
    return "no" if value is False and name.endswith("_strategy") else value


def check_restart(given: dict[str, Any], origin: str):
    """
    Raises:
        ValueError: the second phase has no rate or no end of its own, or a field that belongs to the whole run.
    """
    where = f"`restart_adam` of {origin}"
    if given.get("learning_rate") is None:
        raise ValueError(f"{where} needs `learning_rate`, the fixed rate of the second phase: 5.0e-5 in the paper")
    if not {"max_steps", "num_train_epochs"} & given.keys():
        raise ValueError(f"{where} needs `max_steps` or `num_train_epochs`, the length of the second phase")
    for name in ("output_dir", "seed", "bf16", "use_cpu"):
        if name in given:
            raise ValueError(f"{where} has `{name}`, which is for both phases: set it in `training`")


def apply_override(values: dict[str, Any], override: str):
    """Set `section.field=value` in the nested `values`; the value is YAML."""
    path, separator, text = override.partition("=")
    if not separator:
        raise ValueError(
            f"{override!r} is no override: write section.field=value, for instance training.max_steps=100"
        )
    *parents, name = path.split(".")
    for parent in parents:
        values = values.setdefault(parent, {})
    values[name] = yaml.safe_load(text)


def load_recipe(path: str | Path, overrides: list[str] | tuple[str, ...] = ()) -> Recipe:
    """Read a recipe file and apply `section.field=value` overrides."""
    try:
        values = yaml.safe_load(Path(path).read_text(encoding="utf-8")) or {}
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is not valid YAML: {error}") from error
    for override in overrides:
        apply_override(values, override)
    return recipe_from_dict(values, str(path))


# --- data ---


def load_data(settings: DataSettings, seed: int, reports: dict[str, DataReport]) -> DatasetDict:
    """Train, validation and test pairs as text, with a report of what reading and cleaning left out."""
    languages = {"source_lang": settings.source_lang, "target_lang": settings.target_lang}
    given = {name: in_folder(settings.path, getattr(settings, name)) for name in ("train", "validation", "test")}
    links = {name: in_folder(settings.path, file) for name, file in settings.files_of_links.items()}
    link_format = settings.format_of_links()
    if settings.corpus == GENERATED_CORPUS:
        from .toy_corpus import toy_corpus

        if links:
            raise ValueError("the generated corpus brings its own word links: set `data.links` to `gold`")
        options = {"with_alignment": True} if settings.links == GOLD_LINKS else {}
        data = toy_corpus(train=settings.size or 20000, seed=seed, **options)
    elif settings.corpus == GENERATED_SUMMARIES:
        from .toy_summaries import DOCUMENT, SUMMARY, toy_summaries

        if (settings.source_lang, settings.target_lang) != (DOCUMENT, SUMMARY):
            raise ValueError(
                f"the corpus {GENERATED_SUMMARIES} has the columns {DOCUMENT} and {SUMMARY}: set `data.source_lang` to "
                f"{DOCUMENT} and `data.target_lang` to {SUMMARY}"
            )
        data = toy_summaries(train=settings.size or 6000, seed=seed)
    elif settings.corpus is not None:
        options = {"path": settings.path, "preprocess": settings.preprocess, "reports": reports}
        options |= {"links": links, "link_format": link_format}
        data = load_corpus(settings.corpus, settings.source_lang, settings.target_lang, **options)
    elif given["train"] is None:
        names = ", ".join([GENERATED_CORPUS, *CORPORA, GENERATED_SUMMARIES])
        raise ValueError(f"`data` needs `corpus` (one of {names}) or `train`, `validation` and `test`")
    else:
        data = DatasetDict()
        check_links_of_splits(links, [name for name, spec in given.items() if spec is not None])
        for name, spec in given.items():
            if spec is not None:
                aligned = {"alignment": links.get(name), "link_format": link_format}
                reports[name] = DataReport()
                split = {"split": name} if isinstance(spec, str) and not Path(spec).exists() else {}
                # a blank line of a test set is scored like any other
                blank = "drop" if name == "train" else "keep"
                data[name] = load_pairs(spec, **languages, **split, **aligned, on_blank=blank, report=reports[name])
    if "train" not in data:
        raise ValueError("the data has no training pairs")
    return cleaned(data, settings, reports)


def in_folder(folder: str | None, spec: Any) -> Any:
    """File names looked up in a folder; what is no file there stays as it is."""
    if isinstance(spec, list):
        return [in_folder(folder, part) for part in spec]
    place = Path(folder, spec) if folder is not None and isinstance(spec, str) else None
    return str(place) if place is not None and place.is_file() else spec


def cleaned(data: DatasetDict, settings: DataSettings, reports: dict[str, DataReport]) -> DatasetDict:
    if settings.preprocess and settings.corpus is None:
        languages = {"source_lang": settings.source_lang, "target_lang": settings.target_lang}
        data = DatasetDict({name: preprocess_pairs(part, **languages) for name, part in data.items()})
    if settings.clean is not None:
        held_out = [part for name, part in data.items() if name != "train"]
        report = reports.setdefault("train", DataReport())
        options = {"exclude": held_out or None, "link_words": settings.format_of_links().words, "report": report}
        data["train"] = clean_pairs(data["train"], **options, **settings.clean)
    if settings.size and settings.size < len(data["train"]):
        data["train"] = data["train"].select(range(settings.size))
    return data


def with_links(data: DatasetDict, settings: DataSettings, output: Path) -> DatasetDict:
    """
    The data with the column `alignment`, as `settings.links` asks for.

    An aligner writes its links to `output`, where the next call finds them: eflomal never gives the same ones twice.

    Raises:
        ValueError: the training pairs have no links.
    """
    languages, link_format = (settings.source_lang, settings.target_lang), settings.format_of_links()
    if settings.links == GOLD_LINKS:
        check_link_column(data["train"])
        linked = {name: part for name, part in data.items() if ALIGNMENT in part.column_names}
        return DatasetDict({**data, **{name: read_links(linked[name], link_format, *languages) for name in linked}})
    if settings.aligner:
        paths = {name: aligner_output(settings, output, name) for name in data}
        if not all(path.is_file() for path in paths.values()):
            texts = {name: zip(*(iter_side(data[name], lang) for lang in languages), strict=True) for name in data}
            # the first one is what the aligner learns from
            texts = {"train": texts.pop("train"), **texts}
            options = {"aligner": settings.aligner, "words": link_format.words, "progress": True}
            for name, counts in write_links(texts, paths, **options).items():
                logger.info(f"{name}, aligned by {settings.aligner}: {counts.summary()}")
        written = LinkFormat(words=link_format.words)
        return DatasetDict({name: attach_links(part, paths[name], written, *languages) for name, part in data.items()})
    if settings.links is not None:
        check_link_column(data["train"])
    return data


def aligner_output(settings: DataSettings, output: Path, split: str) -> Path:
    return output / LINKS_FOLDER / f"{split}.{settings.aligner}.{settings.format_of_links().words}.links"


def iter_side(part: Dataset, language: str) -> Iterator[str]:
    return (row["translation"][language] for row in part)


def side(part: Dataset, language: str) -> list[str]:
    return [row[language] for row in part["translation"]]


def make_tokenizer(
    settings: TokenizerSettings, data: DatasetDict, languages: tuple[str, str]
) -> PreTrainedTokenizerBase:
    """The tokenizer of the recipe: loaded, or trained on the training pairs."""
    if settings.path is not None:
        return AutoTokenizer.from_pretrained(settings.path)
    options = dataclasses.asdict(settings)
    del options["path"]
    texts = [functools.partial(iter_side, data["train"], language) for language in languages]
    return train_tokenizer(*texts, show_progress=False, **options)


def prepare(recipe: Recipe, output: Path, seed: int) -> tuple[DatasetDict, DatasetDict, PreTrainedTokenizerBase]:
    """
    Text, token ids and tokenizer of a recipe.

    Written to `output`: the tokenizer folder, the links of an aligner, and `data_report.json`, which says what was read,
    kept and left out. A tokenizer and links already there are used again, so that a resumed run sees the same ids and
    positions.
    """
    if recipe.data.aligner and not aligner_output(recipe.data, output, "train").is_file():
        # before the data is read
        check_aligner(recipe.data.aligner)
    reports: dict[str, DataReport] = {}
    data = with_links(load_data(recipe.data, seed, reports), recipe.data, output)
    languages = (recipe.data.source_lang, recipe.data.target_lang)
    folder = output / TOKENIZER_FOLDER
    if (folder / "tokenizer.json").is_file():
        tokenizer = AutoTokenizer.from_pretrained(folder)
    else:
        tokenizer = make_tokenizer(recipe.tokenizer, data, languages)
        tokenizer.save_pretrained(folder)
    encoded = DatasetDict()
    for name, part in data.items():
        limits: dict[str, Any] = {}
        if name == "train":
            limits = {
                "max_source_length": recipe.data.max_source_length,
                "max_target_length": recipe.data.max_target_length,
            }
        if recipe.data.truncate_source:
            limits |= {"max_source_length": recipe.data.max_source_length, "on_too_long": ("truncate", "skip")}
        step, order = DataReport(), recipe.data.order() if ALIGNMENT in part.column_names else None
        encoded[name] = tokenize_pairs(part, tokenizer, *languages, target_order=order, report=step, **limits)
        reports[name] = step if name not in reports or not reports[name].read else merged(reports[name], step)
        logger.info(f"{name}: {reports[name].summary()}")
    write_results(output / "data_report.json", {name: report.as_dict() for name, report in reports.items()})
    if recipe.data.truncate_source:
        # where the pipeline cuts, in this run and with the saved model; after encoding, which would warn of longer texts
        tokenizer.model_max_length = recipe.data.max_source_length
    return data, encoded, tokenizer


def merged(report: DataReport, step: DataReport) -> DataReport:
    """`step` follows `report`, unless pairs were selected in between, where the counts of the two do not join."""
    return report.then(step) if report.kept == step.read else step


# --- model ---


def attention_for(model_class: type, bf16: bool) -> str:
    """`eager` on a CPU in bf16, where masked scaled-dot-product attention takes a slow path; else the library's choice."""
    on_cpu = not torch.cuda.is_available()
    return "eager" if on_cpu and bf16 or not model_class._supports_sdpa else "sdpa"


def make_model(recipe: Recipe, tokenizer: PreTrainedTokenizerBase, bf16: bool = False):
    """The model of the recipe with the tokenizer's vocabulary sizes and special tokens."""
    fields = dict(recipe.model)
    architecture = ARCHITECTURES[fields.pop("model_type", "deepnmt")]
    implementation = fields.pop("attn_implementation", None) or attention_for(architecture.head, bf16)
    if recipe.init_from is not None:
        return architecture.head.from_pretrained(recipe.init_from, attn_implementation=implementation)
    separate = getattr(tokenizer, "target_vocab_size", None) is not None
    if separate and not {"tie", "share_encoder_decoder_embeddings"} & set(fields):
        fields["tie"] = "decoder"
    tokens = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "pad", "eos")}
    config = architecture.config(
        vocab_size=len(tokenizer),
        decoder_vocab_size=target_size(tokenizer),
        decoder_start_token_id=tokenizer.bos_token_id,
        **tokens,
        **fields,
    )
    if recipe.data.truncate_source and config.max_position_embeddings < recipe.data.max_source_length:
        raise ValueError(
            f"`data.truncate_source` keeps {recipe.data.max_source_length} tokens of a source, but the model states "
            f"{config.max_position_embeddings} positions, where its pipeline would cut: set "
            f"`model.max_position_embeddings` to {recipe.data.max_source_length} or more"
        )
    model = architecture.head(config)
    model.set_attn_implementation(implementation)
    return model


# --- the job ---


def fast_bf16() -> bool:
    """Whether this machine multiplies in bf16 faster than in fp32; CPUs without such units are many times slower."""
    if torch.cuda.is_available():
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if torch.accelerator.is_available():
        return True
    # an older torch does not say what the CPU can do; then fp32 is the safe choice
    capabilities = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return any(capabilities.get(name, False) for name in ("amx_bf16", "avx512_bf16", "bf16"))


def training_arguments(recipe: Recipe, output: Path) -> DeepNMTTrainingArguments:
    """The recipe's `training` fields; `bf16: auto` becomes what this machine is fast in."""
    # bf16 on a machine without an accelerator is refused unless the CPU is asked for by name
    places = {"output_dir": str(output), "use_cpu": not torch.accelerator.is_available()}
    settings = {**places, "target_lang": recipe.data.target_lang, **recipe.training, "task": recipe.task}
    if settings.get("bf16") == "auto":
        settings["bf16"] = fast_bf16()
        logger.warning(f"bf16 is auto: training in {'bf16' if settings['bf16'] else 'fp32'} on this machine")
    elif settings.get("bf16") and not fast_bf16():
        logger.warning("this machine has no fast bf16 arithmetic: `training.bf16=auto` would train in fp32 here")
    return DeepNMTTrainingArguments(**settings)


def restart_arguments(args: DeepNMTTrainingArguments, changes: dict[str, Any]) -> DeepNMTTrainingArguments:
    """
    The arguments of a second phase: a trainer with these starts Adam anew, at a fixed rate unless `changes` say else.

    Its checkpoints go to `second_phase` in the output folder. It draws its own batches and dropout: its seed is one higher.
    """
    fresh = {
        "output_dir": str(Path(args.output_dir) / SECOND_PHASE_FOLDER),
        "seed": args.seed + 1,
        "lr_scheduler_type": "constant",
        "lr_scheduler_kwargs": None,
        "learning_rate_factor": 1.0,
        "warmup_steps": 0,
        # one of the two gives the length
        "max_steps": -1,
        "num_train_epochs": 3.0,
    }
    if args.data_seed is not None:
        fresh["data_seed"] = args.data_seed + 1
    return dataclasses.replace(args, **{**fresh, **changes})


def check_supervision(recipe: Recipe):
    """
    Raises:
        ValueError: the data is to have target positions that the model does not take.
    """
    model_type = recipe.model.get("model_type", "deepnmt")
    takes = [
        name
        for name, architecture in ARCHITECTURES.items()
        if TARGET_POSITIONS in inspect.signature(architecture.head.forward).parameters
    ]
    if recipe.data.links is not None and model_type not in takes:
        others = f" or use the model_type {' or '.join(takes)}" if takes else ""
        raise ValueError(f"the model {model_type} does not learn from word links: leave out `data.links`{others}")
    if recipe.data.links is None and model_type in takes:
        logger.warning(f"the model {model_type} learns from word links, but the recipe gives none in `data.links`")


def collator_for(encoded: DatasetDict, pad_token_id: int) -> Seq2SeqCollator:
    """A collator that carries the further training columns of the data."""
    supervised = any(TARGET_POSITIONS in part.column_names for part in encoded.values())
    return Seq2SeqCollator(pad_token_id, extra_columns={TARGET_POSITIONS: NO_POSITION} if supervised else None)


def resume_point(output: Path) -> str | None:
    found = last_checkpoints(output, 1)
    return str(found[-1]) if found else None


def passed_phase(output: Path) -> dict[str, Any] | None:
    """What the first phase reached, where an earlier call has finished it."""
    path = output / FIRST_PHASE_FOLDER / PROGRESS_FILE
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def load_first_phase(output: Path, model):
    implementation = model.config._attn_implementation
    return type(model).from_pretrained(output / FIRST_PHASE_FOLDER, attn_implementation=implementation)


def joined_phases(reached: list[dict[str, Any]]) -> dict[str, Any]:
    """One training of one or two phases: the steps and the time of both, and a history that counts the steps on."""
    first, *later = reached
    joined = {**first, "history": list(first["history"])}
    for phase in later:
        before = joined["steps"]
        joined["history"] += [{**entry, "step": entry["step"] + before} for entry in phase["history"]]
        joined = {**joined, **{name: value for name, value in phase.items() if name != "history"}}
        joined["steps"] = before + phase["steps"]
        joined["first_phase_steps"] = before
        if "train_runtime" in first and "train_runtime" in phase:
            joined["train_runtime"] = first["train_runtime"] + phase["train_runtime"]
    return joined


def final_model(args: DeepNMTTrainingArguments, output: Path, model):
    """The average of checkpoints where the arguments ask for one, else the model as the trainer left it."""
    folder = output / AVERAGE_FOLDER
    if not (args.average_last or args.average_best) or not folder.is_dir():
        return model
    return type(model).from_pretrained(folder, attn_implementation=model.config._attn_implementation)


def test_model(model, tokenizer, data: DatasetDict, recipe: Recipe, output: Path) -> dict[str, Any]:
    """Scores of every test split, decoded as `evaluation` says; writes the outputs next to the results."""
    decoding, task = recipe.evaluation.decoding(), task_named(recipe.task)
    if recipe.data.truncate_source:
        decoding["truncation"] = True
    scoring = {"target_lang": recipe.data.target_lang, **(recipe.evaluation.scoring or {})}
    scores = {}
    for name in [name for name in data if name.startswith("test")]:
        sources, references = (side(data[name], lang) for lang in (recipe.data.source_lang, recipe.data.target_lang))
        hypotheses = list(translate_lines(model, tokenizer, sources, task=recipe.task, progress=True, **decoding))
        (output / f"{name}.hyp").write_text("".join(f"{line}\n" for line in hypotheses), encoding="utf-8")
        scores[name] = task.evaluate(hypotheses, references, **scoring)
    return {"decoding": decoding, "scores": scores}


def test_order(model, encoded: DatasetDict) -> dict[str, Any]:
    """`order` with the measures of `reordering_analysis.order_measures` for every test split that has word links."""
    if not getattr(model.config, "reordering_layers", None):
        return {}
    linked = [name for name in encoded if name.startswith("test") and TARGET_POSITIONS in encoded[name].column_names]
    columns = ["input_ids", TARGET_POSITIONS]
    measured = {name: order_measures(model, encoded[name].select_columns(columns)) for name in linked}
    found = {name: measures for name, measures in measured.items() if measures is not None}
    return {"order": found} if found else {}


def keep_freed_memory():
    """
    Have glibc keep freed memory instead of returning it to the system.

    On a CPU every step otherwise faults in anew what the last one gave back, hundreds of megabytes of logits alone.
    """
    parameters = {
        "M_TRIM_THRESHOLD": (-1, 2**31 - 1),
        "M_TOP_PAD": (-2, 2**28),
        "M_MMAP_MAX": (-4, 0),
        "M_ARENA_MAX": (-8, 1),
    }
    try:
        libc = ctypes.CDLL("libc.so.6")
        for parameter, value in parameters.values():
            libc.mallopt(parameter, value)
    except (OSError, AttributeError):
        logger.debug("no glibc here, so its memory settings stay")


def finished_results(recipe: Recipe, output: Path) -> dict[str, Any] | None:
    """What an earlier run of the same recipe wrote when it had finished."""
    path = output / "results.json"
    if not path.is_file() or not (output / MODEL_FOLDER).is_dir():
        return None
    results = json.loads(path.read_text(encoding="utf-8"))
    same = json.loads(json.dumps(without_folders(dataclasses.asdict(recipe))))
    return results if results.get("recipe") == same else None


def without_folders(value: Any) -> Any:
    """Absolute paths cut to their last part: results are published, and say nothing of the machine's folders."""
    if isinstance(value, dict):
        return {name: without_folders(item) for name, item in value.items()}
    if isinstance(value, list):
        return [without_folders(item) for item in value]
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value


def train(arguments: list[str]) -> dict[str, Any]:
    """
    Run a recipe: `[RECIPE.yaml, "section.field=value", ...]`.

    Continues from the last checkpoint of `training.output_dir` where there is one. Leaves there the trained model with
    its tokenizer and code in `model/`, the learning curve, the outputs for the test sets and `results.json`.

    Returns:
        What `results.json` holds.
    """
    path, *overrides = arguments
    recipe = load_recipe(path, overrides)
    output = Path(recipe.training.get("output_dir", f"runs/{Path(path).stem}"))
    stored = finished_results(recipe, output)
    if stored is not None:
        logger.warning(f"{output} holds this run's results already: remove the folder to train again")
        return stored
    check_supervision(recipe)
    # a package that scores need must not be missed after hours of training
    task_named(recipe.task).check(recipe.data.target_lang, **(recipe.evaluation.scoring or {}))
    args = training_arguments(recipe, output)
    phases = [args]
    if recipe.restart_adam is not None:
        # only what the last phase leaves is averaged
        phases = [
            dataclasses.replace(args, average_last=None, average_best=None),
            restart_arguments(args, recipe.restart_adam),
        ]
    if args.device.type == "cpu":
        keep_freed_memory()
    set_seed(args.seed)
    output.mkdir(parents=True, exist_ok=True)
    with args.main_process_first(desc="preparing data"):
        data, encoded, tokenizer = prepare(recipe, output, args.seed)
    set_seed(args.seed)
    model = make_model(recipe, tokenizer, bf16=args.bf16)
    reached = []
    for phase in phases:
        first_of_two = phase is not phases[-1]
        if first_of_two and (passed := passed_phase(output)) is not None:
            reached.append(passed)
            continue
        if reached:
            # from the folder in any case, so that a call that starts here goes on with the same weights
            model = load_first_phase(output, model)
        trainer = DeepNMTTrainer(
            model=model,
            args=phase,
            data_collator=collator_for(encoded, model.config.pad_token_id),
            train_dataset=encoded["train"],
            eval_dataset=encoded.get("validation"),
            processing_class=tokenizer,
        )
        outcome = trainer.train(resume_from_checkpoint=resume_point(Path(phase.output_dir)))
        reached.append({**outcome.metrics, "steps": trainer.state.global_step, "history": trainer.state.log_history})
        if first_of_two:
            trainer.save_model(str(output / FIRST_PHASE_FOLDER))
        if trainer.is_world_process_zero():
            trainer.save_state()
            if first_of_two:
                # after the weights: this file says that they are whole
                write_results(output / FIRST_PHASE_FOLDER / PROGRESS_FILE, reached[-1])
        trainer.accelerator.wait_for_everyone()
    if not trainer.is_world_process_zero():
        return {}
    final = final_model(phases[-1], Path(phases[-1].output_dir), model).eval()
    final.save_pretrained(output / MODEL_FOLDER)
    tokenizer.save_pretrained(output / MODEL_FOLDER)
    results = {
        "recipe": without_folders(dataclasses.asdict(recipe)),
        "config": without_folders(final.config.to_dict()),
        "card": recipe.card,
        "data": json.loads((output / "data_report.json").read_text(encoding="utf-8")),
        "training": joined_phases(reached),
        **test_model(final, tokenizer, data, recipe, output),
        **test_order(final, encoded),
        "run": run_info(seed=args.seed),
    }
    write_results(output / "results.json", results)
    return results


__all__ = [
    "DataSettings",
    "EvaluationSettings",
    "Recipe",
    "TokenizerSettings",
    "fast_bf16",
    "load_recipe",
    "make_model",
    "prepare",
    "recipe_from_dict",
    "restart_arguments",
    "train",
    "without_folders",
]
