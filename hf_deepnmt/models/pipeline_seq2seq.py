# Copyright 2026 The hf_deepnmt authors. Apache-2.0 licence.
"""What the tasks from text to text share, for every encoder-decoder model of the library."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    Pipeline,
    StoppingCriteria,
    StoppingCriteriaList,
)
from transformers.dynamic_module_utils import custom_object_save
from transformers.utils import logging


logger = logging.get_logger(__name__)

UNTRUNCATED = {None, False, "do_not_truncate"}
TRUNCATED = {True, "longest_first", "only_first"}
# `model_max_length` of a tokenizer that states none is 1e30.
LARGEST_STATED_LENGTH = 10**9


class Seq2SeqPipeline(Pipeline):
    """
    Turns text into text with a sequence-to-sequence model: the base of the tasks.

    A task is a subclass with the words of its messages and results. Options of its own are named in `task_options`; they
    reach `encode`, `source_prefix` and `task_parameters` as keywords.

    Raises:
        TypeError: an input is no string; the message has its index.
        ValueError: an input is too long, or options contradict each other.
    """

    # What the task does, and what one input and one output are called.
    task_name, verb, item, output = "Text generation", "generate from", "text", "output"
    # The key of the results, with `_text` or `_token_ids`.
    result_name = "generated"
    # What to do where outputs hit the length limit.
    unfinished_remedy = "Raise `max_new_tokens`"
    # `unstated_limits` for n source tokens, in words.
    default_limit = "2n+50"
    # Columns of a data set that hold the input, the first one that is there.
    text_columns: tuple[str, ...] = ("text",)
    task_options: tuple[str, ...] = ()

    _load_tokenizer = True
    _load_processor = False
    _load_image_processor = False
    _load_video_processor = False
    _load_feature_extractor = False
    _pipeline_calls_generate = True

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if not self.model.config.is_encoder_decoder:
            raise ValueError(
                f"{self.task_name} needs an encoder-decoder model, but {type(self.model).__name__} is none: load the "
                "checkpoint with `AutoModelForSeq2SeqLM`"
            )
        if self.tokenizer is None:
            raise ValueError(f"{self.task_name} needs a tokenizer: pass `tokenizer=`")

    def __call__(
        self, inputs: str | Sequence[str] | Iterator[str] | Dataset, **kwargs
    ) -> list[dict[str, Any]] | list[list[dict[str, Any]]] | Iterable[list[dict[str, Any]]]:
        if isinstance(inputs, str):
            return self.run_list([inputs], kwargs)[0]
        if isinstance(inputs, Sequence) and not isinstance(inputs, (bytes, bytearray, memoryview)):
            results = self.run_list(list(inputs), kwargs)
            return [result[0] for result in results] if all(len(result) == 1 for result in results) else results
        report = self.new_report(streaming=True)
        return super().__call__(self.numbered(inputs, kwargs), report=report, **kwargs)

    def run_list(self, texts: list[str], kwargs: dict[str, Any]) -> list[list[dict[str, Any]]]:
        for index, text in enumerate(texts):
            self.check_text(index, text)
        if not texts:
            return []
        report = self.new_report(streaming=False)
        results = super().__call__(list(enumerate(texts)), report=report, **kwargs)
        report.warn()
        return results

    @classmethod
    def new_report(cls, streaming: bool) -> "CallReport":
        return CallReport(streaming, cls.item, cls.output, cls.unfinished_remedy)

    def check_text(self, index: int, text: Any):
        if not isinstance(text, str):
            kind = type(text).__name__
            raise TypeError(f"Input {index} is no string but {kind} ({repr(text)[:60]}): pass one `str` a {self.item}")

    def numbered(self, inputs: Iterable | Dataset, kwargs: dict[str, Any]) -> Iterator[tuple[int, Any]] | Dataset:
        """The inputs as (index, text), for messages; sized ones stay sized."""
        has_rows = hasattr(inputs, "column_names")
        if not (has_rows or isinstance(inputs, (Iterator, Dataset))):
            raise TypeError(
                f"Cannot {self.verb} {type(inputs).__name__}: pass a string, a list of strings, an iterator or a dataset"
            )
        read = self.row_reader(kwargs) if has_rows else None
        if hasattr(inputs, "__len__"):
            return NumberedDataset(inputs, read)
        return ((index, item if read is None else read(index, item)) for index, item in enumerate(inputs))

    def row_reader(self, kwargs: dict[str, Any]) -> Callable[[int, dict[str, Any]], Any]:
        """The function of index and row that gives the input; it can be pickled."""
        return partial(row_text, columns=self.text_columns)

    def get_iterator(
        self, inputs, num_workers: int, batch_size: int, preprocess_params, forward_params, postprocess_params
    ):
        # A bad input at the end of a list must not cost the outputs of all others.
        if isinstance(inputs, list):
            inputs = [self.preprocess(item, **preprocess_params) for item in inputs]
        return super().get_iterator(
            inputs, num_workers, batch_size, preprocess_params, forward_params, postprocess_params
        )

    def _sanitize_parameters(
        self,
        prefix: str | None = None,
        truncation: bool | str | None = None,
        return_scores: bool | None = None,
        return_tensors: bool | None = None,
        return_text: bool | None = None,
        clean_up_tokenization_spaces: bool | None = None,
        report: "CallReport | None" = None,
        **generate_kwargs,
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        options = {name: generate_kwargs.pop(name, None) for name in self.task_options}
        options = given(**options)
        preprocess = {**options, **given(prefix=prefix, truncation=truncation)}
        forward = {**generate_kwargs, **options, **given(return_scores=return_scores)}
        postprocess = given(clean_up_tokenization_spaces=clean_up_tokenization_spaces, report=report)
        if return_tensors is not None or return_text is not None:
            postprocess["return_tensors"] = bool(return_tensors)
            postprocess["return_text"] = not return_tensors if return_text is None else return_text
            if not any((postprocess["return_tensors"], postprocess["return_text"])):
                raise ValueError("`return_text=False` leaves nothing to return: pass `return_tensors=True` with it")
        return preprocess, forward, postprocess

    def preprocess(
        self,
        inputs: str | tuple[int, str] | dict[str, torch.Tensor],
        prefix: str | None = None,
        truncation: bool | str | None = None,
        **options,
    ) -> dict[str, torch.Tensor]:
        """One input as `input_ids` and `attention_mask` (1, src), and what was cut off it (1,)."""
        if isinstance(inputs, dict):
            return inputs
        index, text = inputs if isinstance(inputs, tuple) else (0, inputs)
        self.check_text(index, text)
        is_empty = not text.strip()
        if not is_empty:
            text = (self.source_prefix(text, **options) if prefix is None else prefix) + text
        encoded, cut = self.encode_within_limit(index, "" if is_empty else text, truncation, **options)
        return self.as_tensors(encoded, cut, is_empty)

    def as_tensors(self, encoded: dict[str, Any], cut: int, is_empty: bool) -> dict[str, torch.Tensor]:
        # A mask of zeros marks the empty input; collating needs the same keys and at least one column in all.
        ids = [self.tokenizer.pad_token_id or 0] if is_empty else encoded["input_ids"]
        features = {
            "input_ids": torch.tensor([ids]),
            "attention_mask": torch.full((1, len(ids)), int(not is_empty)),
            "cut_tokens": torch.tensor([cut]),
        }
        if "forced_bos_token_id" in encoded:
            features["forced_bos_token_id"] = torch.tensor([encoded["forced_bos_token_id"]])
        return features

    def encode_within_limit(
        self, index: int, text: str, truncation: bool | str | None, **options
    ) -> tuple[dict[str, Any], int]:
        """The encoded input and the number of tokens cut off."""
        if truncation not in UNTRUNCATED | TRUNCATED:
            raise ValueError(f"`truncation` must be True or False, got {truncation!r}")
        encoded = self.encode(text, **options)
        length = len(encoded["input_ids"])
        limit = self.position_limits["encoder"] if truncation in UNTRUNCATED else self.truncation_limit
        if limit is None or length <= limit:
            return encoded, 0
        if truncation in UNTRUNCATED:
            raise ValueError(
                f"{self.item.capitalize()} {index} has {length} tokens, but the model has {limit} positions: split it, "
                "or pass `truncation=True` to cut it"
            )
        return self.encode(text, **options, truncation=True, max_length=limit), length - limit

    def encode(self, text: str, **kwargs) -> dict[str, Any]:
        # The tokenizer's own warning of long inputs speaks of models that `position_limits` already tells apart.
        return self.tokenizer(text, verbose=False, **kwargs)

    def source_prefix(self, text: str, **options) -> str:
        """What comes before `text` where the call does not say."""
        return self.task_parameters(**options).get("prefix", self.prefix or "")

    def task_parameters(self, **options) -> dict[str, Any]:
        """What the model's config sets for this task alone, as T5 does: a prefix and generation parameters."""
        specific = getattr(self.model.config, "task_specific_params", None) or {}
        return next((specific[name] for name in self.task_names(**options) if name in specific), {})

    def task_names(self, **options) -> list[str]:
        """The task in `task_specific_params`, the most specific name first."""
        return [self.task]

    @cached_property
    def position_limits(self) -> dict[str, int | None]:
        """Longest source and target that a fixed table of positions allows; None where positions have no end."""
        if getattr(self.model, "positions_extend", False):
            return {"encoder": None, "decoder": None}
        stacks = {"encoder": self.model.get_encoder(), "decoder": self.model.get_decoder()}
        return {side: min(position_tables(stack), default=None) for side, stack in stacks.items()}

    @cached_property
    def truncation_limit(self) -> int | None:
        config = self.model.config
        limits = [
            self.position_limits["encoder"],
            self.tokenizer.model_max_length,
            getattr(config, "max_encoder_position_embeddings", None),
            getattr(config, "max_position_embeddings", None),
        ]
        return min((limit for limit in limits if limit and limit < LARGEST_STATED_LENGTH), default=None)

    def _forward(
        self, model_inputs: dict[str, torch.Tensor], return_scores: bool = False, **generate_kwargs
    ) -> dict[str, torch.Tensor]:
        options = {name: generate_kwargs.pop(name) for name in self.task_options if name in generate_kwargs}
        ids, mask = right_padded(model_inputs["input_ids"], model_inputs["attention_mask"])
        is_text = mask.any(dim=1)
        width = int(mask.sum(dim=1).max())
        added = {"return_dict_in_generate": True, "output_scores": return_scores}
        added.update(self.task_generation_parameters(generate_kwargs, **options))
        if "forced_bos_token_id" in model_inputs and "forced_bos_token_id" not in generate_kwargs:
            added["forced_bos_token_id"] = int(model_inputs["forced_bos_token_id"][0])
        hypotheses = self.search(ids[is_text, :width], mask[is_text, :width], generate_kwargs, added)
        fills = {"output_ids": self.tokenizer.pad_token_id or 0, "lengths": 0, "is_finished": True, "scores": 0.0}
        outputs = {key: spread(value, is_text, fills.get(key, False)) for key, value in hypotheses.items()}
        return {**outputs, "cut_tokens": model_inputs["cut_tokens"]}

    def task_generation_parameters(self, generate_kwargs: dict[str, Any], **options) -> dict[str, Any]:
        settings = self._prepare_generate_kwargs(generate_kwargs)
        known = vars(GenerationConfig())
        return {
            key: value
            for key, value in self.task_parameters(**options).items()
            if key in known and stated(key, settings) is None
        }

    def search(
        self, ids: torch.Tensor, mask: torch.Tensor, generate_kwargs: dict[str, Any], added: dict[str, Any]
    ) -> dict[str, torch.Tensor]:
        """
        The hypotheses of the inputs (rows, src): `output_ids` (rows, n, tgt) with the decoder's start token,
        `lengths` and `is_finished` (rows, n), and `scores` (rows, n) if asked for.
        """
        settings = self._prepare_generate_kwargs(generate_kwargs, **added)
        if len(ids) == 0:
            returned = stated("num_return_sequences", settings, self.model) or 1
            return self.no_hypotheses(returned, added["output_scores"], ids.device)
        self.check_settings(settings)
        limits, enforced = self.target_limits(mask.sum(dim=1), settings)
        if not self.has_stated_limit(settings):
            added = {**added, "max_length": enforced + 1}
            settings = self._prepare_generate_kwargs(generate_kwargs, **added)
        settings.update(self.row_limits(limits, enforced, settings))
        generated = self.model.generate(input_ids=ids, attention_mask=mask, **settings)
        lengths, is_finished = self.hypothesis_ends(generated.sequences, limits, settings)
        hypotheses = {"output_ids": generated.sequences, "lengths": lengths, "is_finished": is_finished}
        if added["output_scores"]:
            hypotheses["scores"] = hypothesis_scores(generated, lengths)
        return {key: value.unflatten(0, (len(ids), -1)) for key, value in hypotheses.items()}

    def no_hypotheses(self, returned: int, with_scores: bool, device: torch.device) -> dict[str, torch.Tensor]:
        hypotheses = {
            "output_ids": torch.zeros((0, returned, 1), dtype=torch.long, device=device),
            "lengths": torch.zeros((0, returned), dtype=torch.long, device=device),
            "is_finished": torch.ones((0, returned), dtype=torch.bool, device=device),
        }
        if with_scores:
            hypotheses["scores"] = torch.zeros((0, returned), device=device)
        return hypotheses

    def check_settings(self, settings: dict[str, Any]):
        """Refuses generation settings that make no sense for the task."""

    def has_stated_limit(self, settings: dict[str, Any]) -> bool:
        """Whether `generate` itself finds the limit; a `max_length` of the model is handed to it explicitly."""
        return stated("max_length", settings) is not None or stated("max_new_tokens", settings, self.model) is not None

    def stated_limit(self, settings: dict[str, Any]) -> int | None:
        """New tokens that call, pipeline or model allow, the decoder's start token not counted."""
        new_tokens = stated("max_new_tokens", settings, self.model)
        if new_tokens is not None:
            return new_tokens
        length = stated("max_length", settings)
        if length is None:
            # Many models only repeat the size of their position table there, which says nothing of outputs.
            length = self.model.generation_config.max_length
            length = None if length == getattr(self.model.config, "max_position_embeddings", None) else length
        return None if length is None else length - 1

    def target_limits(self, source_lengths: torch.Tensor, settings: dict[str, Any]) -> tuple[torch.Tensor, int]:
        """New tokens allowed for each input (rows,), and the one number that `generate` is given."""
        limit, table = self.stated_limit(settings), self.position_limits["decoder"]
        if limit is None:
            least = stated("min_new_tokens", settings, self.model) or stated("min_length", settings, self.model) or 0
            limits = self.unstated_limits(source_lengths) + least
        else:
            limits = torch.full_like(source_lengths, limit)
        if table is not None:
            limits = limits.clamp(max=table)
        return limits, limit if self.has_stated_limit(settings) else int(limits.max())

    @staticmethod
    def unstated_limits(source_lengths: torch.Tensor | int) -> torch.Tensor | int:
        """New tokens for these inputs (rows,), or this one, where neither call, pipeline nor model states a limit."""
        return 2 * source_lengths + 50

    def row_limits(self, limits: torch.Tensor, enforced: int, settings: dict[str, Any]) -> dict[str, Any]:
        # One limit for the batch would let the neighbours of an input decide where it is cut.
        if not (limits != enforced).any():
            return {}
        criteria = StoppingCriteriaList([*settings.get("stopping_criteria", ()), TargetLengthCriteria(limits)])
        forced = stated("forced_eos_token_id", settings, self.model)
        if forced is None:
            return {"stopping_criteria": criteria}
        processors = [*settings.get("logits_processor", ()), TargetEndProcessor(limits, forced)]
        return {"stopping_criteria": criteria, "logits_processor": LogitsProcessorList(processors)}

    def hypothesis_ends(
        self, sequences: torch.Tensor, limits: torch.Tensor, settings: dict[str, Any]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens up to and with the end-of-sentence token, and whether the model put it there: (rows * n,) each."""
        ends = stated("eos_token_id", settings, self.model)
        pad = stated("pad_token_id", settings, self.model)
        ends = torch.as_tensor([] if ends is None else ends, device=sequences.device).flatten()
        # Position 0 is the decoder's start token, in some models the end-of-sentence token itself.
        is_end = torch.isin(sequences[:, 1:], ends)
        is_token = sequences != (-1 if pad is None else pad)
        is_token[:, 0] = True
        last_token = sequences.shape[1] - is_token.flip(1).int().argmax(dim=1)
        lengths = torch.where(is_end.any(dim=1), is_end.int().argmax(dim=1) + 2, last_token)
        is_finished = is_end.any(dim=1)
        if stated("forced_eos_token_id", settings, self.model) is not None:
            is_finished &= lengths <= limits.repeat_interleave(len(sequences) // len(limits))
        # Then missing end tokens are meant, or unknown.
        others = ("stop_strings", "max_time")
        own_criteria = any(
            not isinstance(item, TargetLengthCriteria) for item in settings.get("stopping_criteria", ())
        )
        if len(ends) == 0 or own_criteria or any(stated(name, settings, self.model) for name in others):
            is_finished = torch.ones_like(is_finished)
        return lengths, is_finished

    def postprocess(
        self,
        model_outputs: dict[str, torch.Tensor],
        return_text: bool = True,
        return_tensors: bool = False,
        report: "CallReport | None" = None,
        **decode_kwargs,
    ) -> list[dict[str, Any]]:
        outputs = {key: value[0] for key, value in model_outputs.items()}
        if report is not None:
            report.add(outputs)
        records = []
        for number, length in enumerate(outputs["lengths"].tolist()):
            ids, record = outputs["output_ids"][number, :length], {}
            if return_tensors:
                record[f"{self.result_name}_token_ids"] = ids
            if return_text:
                text = self.tokenizer.decode(ids.tolist(), skip_special_tokens=True, **decode_kwargs) if length else ""
                record[f"{self.result_name}_text"] = text
            if "scores" in outputs:
                record["score"] = outputs["scores"][number].item()
            records.append(record)
        return records

    def save_pretrained(self, save_directory: str | os.PathLike, **kwargs):
        """As in Transformers; a folder whose config names this file also gets it."""
        module = type(self).__module__.rpartition(".")[2]
        named = getattr(self.model.config, "custom_pipelines", None) or {}
        if any(info["impl"] == f"{module}.{type(self).__name__}" for info in named.values()):
            os.makedirs(save_directory, exist_ok=True)
            custom_object_save(self, save_directory)
        super().save_pretrained(save_directory, **kwargs)


class TargetLengthCriteria(StoppingCriteria):
    """
    Ends each output at its own length.

    Args:
        limits (`torch.Tensor` of shape `(rows,)`): new tokens allowed, the decoder's start token not counted.
    """

    def __init__(self, limits: torch.Tensor):
        self.lengths = limits + 1

    def __call__(self, input_ids: torch.Tensor, scores, **kwargs) -> torch.Tensor:
        beams = input_ids.shape[0] // len(self.lengths)
        return self.lengths.repeat_interleave(beams) <= input_ids.shape[1]


class TargetEndProcessor(LogitsProcessor):
    """`forced_eos_token_id`, at the end of the length of each output: `limits` as in `TargetLengthCriteria`."""

    def __init__(self, limits: torch.Tensor, forced: int | list[int]):
        self.last_steps = limits
        self.forced = forced

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        is_last = self.last_steps.repeat_interleave(input_ids.shape[0] // len(self.last_steps)) == input_ids.shape[1]
        ended = torch.full_like(scores, float("-inf"))
        ended[:, self.forced] = 0.0
        return torch.where(is_last[:, None], ended, scores)


class NumberedDataset(Dataset):
    """Items of a sized dataset as (index, text); `read` finds the text in a row."""

    def __init__(self, items: Any, read: Callable[[int, Any], Any] | None):
        self.items, self.read = items, read

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> tuple[int, Any]:
        item = self.items[index]
        return index, item if self.read is None else self.read(index, item)


class CallReport:
    """What a call warns of: with total counts at the end of a list, at the first occurrence in a stream."""

    def __init__(
        self,
        streaming: bool,
        item: str = "sentence",
        output: str = "translation",
        remedy: str = "Raise `max_new_tokens`, or split the sentences",
    ):
        self.streaming, self.item, self.output, self.remedy = streaming, item, output, remedy
        self.inputs = self.cut_inputs = self.cut_tokens = self.outputs = self.unfinished = 0
        self.told = set()

    def add(self, outputs: dict[str, torch.Tensor]):
        """The outputs of one input: `is_finished` (n,) and `cut_tokens` (a number)."""
        cut_tokens = int(outputs["cut_tokens"])
        self.inputs += 1
        self.cut_inputs += cut_tokens > 0
        self.cut_tokens += cut_tokens
        self.outputs += len(outputs["is_finished"])
        self.unfinished += int((~outputs["is_finished"]).sum())
        if self.streaming:
            self.warn()

    @property
    def so_far(self) -> str:
        return " so far; the following ones are not reported" if self.streaming else ""

    def warn(self):
        if self.cut_inputs:
            self.tell(
                "cut",
                f"Truncation cut {self.cut_tokens} tokens off {self.cut_inputs} of {self.inputs} {self.item}s{self.so_far}.",
            )
        if self.unfinished:
            self.tell(
                "unfinished",
                f"{self.unfinished} of {self.outputs} {plural(self.output)} stopped at the length limit, without an "
                f"end-of-sentence token{self.so_far}. {self.remedy}.",
            )

    def tell(self, subject: str, sentence: str):
        if subject not in self.told:
            self.told.add(subject)
            logger.warning(sentence)


def plural(noun: str) -> str:
    return f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"


def row_text(index: int, row: dict[str, Any], columns: Sequence[str]) -> Any:
    """The input in a dataset row."""
    for column in columns:
        if column in row:
            return row[column]
    if len(row) == 1:
        return next(iter(row.values()))
    raise ValueError(
        f"Row {index} has the columns {', '.join(row)}: name the source with "
        "`transformers.pipelines.pt_utils.KeyDataset(dataset, column)`"
    )


def given(**parameters: Any) -> dict[str, Any]:
    return {key: value for key, value in parameters.items() if value is not None}


def stated(name: str, settings: dict[str, Any], model: Any = None) -> Any:
    """A generation parameter, as the keywords, their `generation_config` or else the model's config state it."""
    configs = [settings.get("generation_config"), getattr(model, "generation_config", None)]
    values = [settings.get(name), *(getattr(config, name, None) for config in configs)]
    return next((value for value in values if value is not None), None)


def position_tables(stack: nn.Module) -> list[int]:
    """Sizes of the position tables of an encoder or decoder that cannot grow."""
    tables = [
        module
        for name, module in stack.named_modules()
        if isinstance(module, nn.Embedding) and "position" in name.rpartition(".")[2]
    ]
    # Rows before the first position: `offset` (BART), or the ids up to the padding id (RoBERTa, ProphetNet).
    return [
        table.num_embeddings
        - getattr(table, "offset", 0)
        - (0 if table.padding_idx is None else table.padding_idx + 1)
        for table in tables
        if not hasattr(table, "make_weight")
    ]


def right_padded(ids: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    # Absolute positions count from the left edge, so left padding would change the output.
    order = mask.argsort(dim=1, descending=True, stable=True)
    return ids.gather(1, order), mask.gather(1, order)


def spread(values: torch.Tensor, is_text: torch.Tensor, fill: int | float | bool) -> torch.Tensor:
    """Rows of the inputs with text, put back among those without."""
    full = values.new_full((len(is_text), *values.shape[1:]), fill)
    full[is_text] = values
    return full


def hypothesis_scores(generated: Any, lengths: torch.Tensor) -> torch.Tensor:
    beam_scores = getattr(generated, "sequences_scores", None)
    if beam_scores is not None:
        return beam_scores
    targets = generated.sequences[:, -len(generated.scores) :]
    steps = [scores.float().log_softmax(-1).gather(1, targets[:, [i]]) for i, scores in enumerate(generated.scores)]
    is_counted = torch.arange(len(steps), device=targets.device) < lengths[:, None] - 1
    log_probs = torch.cat(steps, dim=1).masked_fill(~is_counted, 0.0)
    return log_probs.sum(dim=1) / is_counted.sum(dim=1).clamp(min=1)


__all__ = ["CallReport", "Seq2SeqPipeline", "plural"]
