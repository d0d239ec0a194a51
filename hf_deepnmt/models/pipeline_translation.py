# Copyright 2026 The hf_deepnmt authors. Apache-2.0 licence.
"""The `translation` task, which Transformers 5 no longer has, for every encoder-decoder model of the library."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
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

TASK_LANGUAGES = re.compile(r"translation_(.+)_to_(.+)")
# The languages of the original T5 (Raffel et al., 2020), whose prefixes spell them out.
T5_LANGUAGES = {"de": "German", "en": "English", "fr": "French", "ro": "Romanian"}
T5_FAMILY = {"longt5", "mt5", "switch_transformers", "t5", "umt5"}
UNTRUNCATED = {None, False, "do_not_truncate"}
TRUNCATED = {True, "longest_first", "only_first"}
# `model_max_length` of a tokenizer that states none is 1e30.
LARGEST_STATED_LENGTH = 10**9


class TranslationPipeline(Pipeline):
    """
    Translates text with a sequence-to-sequence model.

    ```python
    >>> translate = pipeline("translation", model="checkpoint-de-en")
    >>> translate("Guten Tag .")
    [{'translation_text': 'Hello .'}]
    >>> translate(["Guten Tag .", ""], num_beams=5, length_penalty=0.6, batch_size=32)
    [{'translation_text': 'Hello .'}, {'translation_text': ''}]
    ```

    Inputs are one `str`, or a list, tuple or `datasets` column of `str`: all of it is checked and encoded before the
    first sentence is translated, and the result is a list. An iterator, `KeyDataset`, other torch `Dataset` or
    `datasets.Dataset` is streamed instead: the result is an iterator of one list of hypotheses for each sentence.
    Rows of a `datasets.Dataset` are read at `row["translation"][src_lang]`, at `row["text"]`, or in their only column.

    Sentences without a visible character are not sent to the model; their translation is empty, its score 0.
    A sentence gets the same translation alone and in a batch, whatever the padding side of the tokenizer.

    **Source length.** Nothing is cut unless asked for. Where the model has a fixed table of positions, a longer
    sentence raises a `ValueError`; models with relative positions, or with `positions_extend = True`, take any length.
    `truncation=True` cuts to the table, to `tokenizer.model_max_length` or to `max_position_embeddings`, whichever is
    smallest, and warns with counts.

    **Target length.** If neither call, pipeline nor model states `max_new_tokens` or `max_length`, a sentence of n
    source tokens gets at most 2n + 50 target tokens, and never more than a fixed table of positions holds. (A
    `max_length` of the model that equals `max_position_embeddings` states nothing.) A warning counts the translations
    that ended at a limit instead of an end-of-sentence token.

    Everything below may be given to the pipeline or to a call; a call does not change later calls.

    Args:
        src_lang, tgt_lang (`str`, *optional*):
            Languages, in the codes of the tokenizer (M2M100, NLLB, mBART, Marian's `>>code<<`), or as codes or English
            names for the prefix of T5. The task name `translation_XX_to_YY` sets both.
        prefix (`str`, *optional*):
            Text put before each sentence. Unset, it comes from the languages (T5) or from the model's config.
        truncation (`bool`, *optional*, defaults to `False`):
            Whether sentences longer than the limit are cut instead of refused.
        return_scores (`bool`, *optional*, defaults to `False`):
            Adds `score`. Beam search: log-probability / (target tokens ** length_penalty), or the form that
            `length_penalty_form` says, as `generate` ranks.
            Otherwise: mean log-probability of the target tokens. Both count the end of the sentence.
        return_tensors (`bool`, *optional*, defaults to `False`):
            Gives `translation_token_ids`, without padding, instead of `translation_text`.
        return_text (`bool`, *optional*):
            `True` with `return_tensors=True` gives both.
        clean_up_tokenization_spaces (`bool`, *optional*):
            Handed to `tokenizer.decode`.
        batch_size (`int`, *optional*, defaults to 1):
            Sentences per call of the model.
        generate_kwargs:
            Anything else goes to `model.generate`: `num_beams`, `length_penalty`, `num_return_sequences`, ...

    Raises:
        TypeError: an input is no string; the message has its index.
        ValueError: a sentence is too long, a language is unknown or missing, or options contradict each other.
    """

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
                f"Translation needs an encoder-decoder model, but {type(self.model).__name__} is none: load the "
                "checkpoint with `AutoModelForSeq2SeqLM`"
            )
        if self.tokenizer is None:
            raise ValueError("Translation needs a tokenizer: pass `tokenizer=`")

    def __call__(
        self, inputs: str | Sequence[str] | Iterator[str] | Dataset, **kwargs
    ) -> list[dict[str, Any]] | list[list[dict[str, Any]]] | Iterable[list[dict[str, Any]]]:
        if isinstance(inputs, str):
            return self.translate_list([inputs], kwargs)[0]
        if isinstance(inputs, Sequence) and not isinstance(inputs, (bytes, bytearray, memoryview)):
            results = self.translate_list(list(inputs), kwargs)
            return [result[0] for result in results] if all(len(result) == 1 for result in results) else results
        report = CallReport(streaming=True)
        return super().__call__(self.numbered(inputs, kwargs.get("src_lang")), report=report, **kwargs)

    def translate_list(self, texts: list[str], kwargs: dict[str, Any]) -> list[list[dict[str, Any]]]:
        for index, text in enumerate(texts):
            check_text(index, text)
        if not texts:
            return []
        report = CallReport(streaming=False)
        results = super().__call__(list(enumerate(texts)), report=report, **kwargs)
        report.warn()
        return results

    def numbered(self, inputs: Iterable | Dataset, src_lang: str | None) -> Iterator[tuple[int, Any]] | Dataset:
        """The inputs as (index, text), for messages; sized ones stay sized."""
        has_rows = hasattr(inputs, "column_names")
        if not (has_rows or isinstance(inputs, (Iterator, Dataset))):
            raise TypeError(
                f"Cannot translate {type(inputs).__name__}: pass a string, a list of strings, an iterator or a dataset"
            )
        src_lang = src_lang or self._preprocess_params.get("src_lang") or self.task_languages[0]
        if hasattr(inputs, "__len__"):
            return NumberedDataset(inputs, src_lang if has_rows else None, has_rows)
        return ((index, row_text(index, item, src_lang) if has_rows else item) for index, item in enumerate(inputs))

    def get_iterator(
        self, inputs, num_workers: int, batch_size: int, preprocess_params, forward_params, postprocess_params
    ):
        # A bad sentence at the end of a list must not cost the translation of all others.
        if isinstance(inputs, list):
            inputs = [self.preprocess(item, **preprocess_params) for item in inputs]
        return super().get_iterator(
            inputs, num_workers, batch_size, preprocess_params, forward_params, postprocess_params
        )

    def _sanitize_parameters(
        self,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        prefix: str | None = None,
        truncation: bool | str | None = None,
        return_scores: bool | None = None,
        return_tensors: bool | None = None,
        return_text: bool | None = None,
        clean_up_tokenization_spaces: bool | None = None,
        report: "CallReport | None" = None,
        **generate_kwargs,
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        languages = given(src_lang=src_lang, tgt_lang=tgt_lang)
        preprocess = {**languages, **given(prefix=prefix, truncation=truncation)}
        forward = {**generate_kwargs, **languages, **given(return_scores=return_scores)}
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
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        prefix: str | None = None,
        truncation: bool | str | None = None,
    ) -> dict[str, torch.Tensor]:
        """One sentence as `input_ids` and `attention_mask` (1, src), and what was cut off it (1,)."""
        if isinstance(inputs, dict):
            return inputs
        index, text = inputs if isinstance(inputs, tuple) else (0, inputs)
        check_text(index, text)
        text = self.source_prefix(src_lang, tgt_lang, prefix, text) + text if text.strip() else ""
        encoded, cut = self.encode_within_limit(index, text, src_lang, tgt_lang, truncation)
        return self.as_tensors(encoded, cut, is_empty=not text)

    def as_tensors(self, encoded: dict[str, Any], cut: int, is_empty: bool) -> dict[str, torch.Tensor]:
        # A mask of zeros marks the empty sentence; collating needs the same keys and at least one column in all.
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
        self, index: int, text: str, src_lang: str | None, tgt_lang: str | None, truncation: bool | str | None
    ) -> tuple[dict[str, Any], int]:
        """The encoded sentence and the number of tokens cut off."""
        if truncation not in UNTRUNCATED | TRUNCATED:
            raise ValueError(f"`truncation` must be True or False, got {truncation!r}")
        encoded = self.encode(text, src_lang, tgt_lang)
        length = len(encoded["input_ids"])
        limit = self.position_limits["encoder"] if truncation in UNTRUNCATED else self.truncation_limit
        if limit is None or length <= limit:
            return encoded, 0
        if truncation in UNTRUNCATED:
            raise ValueError(
                f"Sentence {index} has {length} tokens, but the model has {limit} positions: split it, or pass "
                "`truncation=True` to cut it"
            )
        return self.encode(text, src_lang, tgt_lang, truncation=True, max_length=limit), length - limit

    def encode(self, text: str, src_lang: str | None, tgt_lang: str | None, **kwargs) -> dict[str, Any]:
        # The tokenizer's own warning of long inputs speaks of models that `position_limits` already tells apart.
        kwargs["verbose"] = False
        if not self.has_language_codes:
            return self.tokenizer(text, **kwargs)
        src_lang, tgt_lang = self.languages(src_lang, tgt_lang)
        with restored_languages(self.tokenizer):
            try:
                return self.encode_with_codes(
                    text, src_lang or self.tokenizer.src_lang, tgt_lang or self.tokenizer.tgt_lang, **kwargs
                )
            except KeyError as error:
                raise self.unknown_language(error.args[0]) from error

    def encode_with_codes(self, text: str, src_lang: str, tgt_lang: str | None, **kwargs) -> dict[str, Any]:
        tokenizer = self.tokenizer
        if tgt_lang is not None and hasattr(tokenizer, "_build_translation_inputs"):
            encoded = tokenizer._build_translation_inputs(
                text, return_tensors=None, src_lang=src_lang, tgt_lang=tgt_lang, **kwargs
            )
        else:
            tokenizer.src_lang = src_lang
            encoded = tokenizer(text, **kwargs)
            if tgt_lang is not None:
                encoded["forced_bos_token_id"] = tokenizer.lang_code_to_id[tgt_lang]
        unknown = tokenizer.unk_token_id
        if unknown is not None and encoded.get("forced_bos_token_id") == unknown:
            raise self.unknown_language(tgt_lang)
        if unknown in encoded["input_ids"] and unknown in tokenizer("")["input_ids"]:
            raise self.unknown_language(src_lang)
        return encoded

    def unknown_language(self, code: str) -> ValueError:
        codes = getattr(self.tokenizer, "lang_code_to_id", None) or self.tokenizer.all_special_tokens
        examples = ", ".join(list(codes)[-5:])
        return ValueError(f"{code!r} is no language of this tokenizer, which has for instance {examples}")

    @property
    def has_language_codes(self) -> bool:
        tokenizer = self.tokenizer
        return hasattr(tokenizer, "_build_translation_inputs") or (
            hasattr(tokenizer, "src_lang") and hasattr(tokenizer, "lang_code_to_id")
        )

    @property
    def task_languages(self) -> tuple[str | None, str | None]:
        match = TASK_LANGUAGES.fullmatch(self.task or "")
        return match.groups() if match else (None, None)

    def languages(self, src_lang: str | None, tgt_lang: str | None) -> tuple[str | None, str | None]:
        return src_lang or self.task_languages[0], tgt_lang or self.task_languages[1]

    def source_prefix(self, src_lang: str | None, tgt_lang: str | None, prefix: str | None, text: str) -> str:
        if prefix is not None:
            return prefix
        if self.has_language_codes:
            return ""
        specific = self.task_parameters(src_lang, tgt_lang)
        if "prefix" in specific:
            return specific["prefix"]
        source, target = self.languages(src_lang, tgt_lang)
        if self.model.config.model_type in T5_FAMILY and source and target:
            return f"translate {language_name(source)} to {language_name(target)}: "
        return self.language_token(tgt_lang, target, text) or self.prefix or ""

    def language_token(self, tgt_lang: str | None, target: str | None, text: str) -> str:
        """The `>>code<<` token of multilingual Marian models."""
        codes = getattr(self.tokenizer, "supported_language_codes", None) or []
        token = f">>{target}<<"
        if target is not None and token in codes:
            return "" if text.startswith(">>") else f"{token} "
        if tgt_lang is not None and codes:
            raise ValueError(f"{tgt_lang!r} is no target language of this tokenizer, which has {', '.join(codes)}")
        if tgt_lang is not None:
            logger.warning_once(f"`tgt_lang={tgt_lang!r}` is ignored: the model has no choice of target languages")
        return ""

    def task_parameters(self, src_lang: str | None, tgt_lang: str | None) -> dict[str, Any]:
        """What the model's config sets for this task alone, as T5 does: a prefix and generation parameters."""
        specific = getattr(self.model.config, "task_specific_params", None) or {}
        source, target = self.languages(src_lang, tgt_lang)
        names = ([f"translation_{source}_to_{target}"] if source and target else []) + ["translation"]
        return next((specific[name] for name in names if name in specific), {})

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
        self,
        model_inputs: dict[str, torch.Tensor],
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        return_scores: bool = False,
        **generate_kwargs,
    ) -> dict[str, torch.Tensor]:
        ids, mask = right_padded(model_inputs["input_ids"], model_inputs["attention_mask"])
        is_text = mask.any(dim=1)
        width = int(mask.sum(dim=1).max())
        added = {"return_dict_in_generate": True, "output_scores": return_scores}
        added.update(self.task_generation_parameters(src_lang, tgt_lang, generate_kwargs))
        if "forced_bos_token_id" in model_inputs and "forced_bos_token_id" not in generate_kwargs:
            added["forced_bos_token_id"] = int(model_inputs["forced_bos_token_id"][0])
        hypotheses = self.search(ids[is_text, :width], mask[is_text, :width], generate_kwargs, added)
        fills = {"output_ids": self.tokenizer.pad_token_id or 0, "lengths": 0, "is_finished": True, "scores": 0.0}
        outputs = {key: spread(value, is_text, fills[key]) for key, value in hypotheses.items()}
        return {**outputs, "cut_tokens": model_inputs["cut_tokens"]}

    def task_generation_parameters(
        self, src_lang: str | None, tgt_lang: str | None, generate_kwargs: dict[str, Any]
    ) -> dict[str, Any]:
        settings = self._prepare_generate_kwargs(generate_kwargs)
        known = vars(GenerationConfig())
        return {
            key: value
            for key, value in self.task_parameters(src_lang, tgt_lang).items()
            if key in known and stated(key, settings) is None
        }

    def search(
        self, ids: torch.Tensor, mask: torch.Tensor, generate_kwargs: dict[str, Any], added: dict[str, Any]
    ) -> dict[str, torch.Tensor]:
        """
        The hypotheses of the sentences (rows, src): `output_ids` (rows, n, tgt) with the decoder's start token,
        `lengths` and `is_finished` (rows, n), and `scores` (rows, n) if asked for.
        """
        settings = self._prepare_generate_kwargs(generate_kwargs, **added)
        if len(ids) == 0:
            returned = stated("num_return_sequences", settings, self.model) or 1
            return self.no_hypotheses(returned, added["output_scores"], ids.device)
        self.check_target_language(settings)
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

    def check_target_language(self, settings: dict[str, Any]):
        config = self.model.config
        plain = {getattr(config, f"{name}_token_id", None) for name in ("bos", "eos", "pad")}
        if (
            self.has_language_codes
            and stated("forced_bos_token_id", settings, self.model) is None
            and stated("decoder_start_token_id", settings, self.model) in plain
        ):
            raise ValueError("The model translates into several languages: pass `tgt_lang=` (and `src_lang=`)")

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
            # Many models only repeat the size of their position table there, which says nothing of translations.
            length = self.model.generation_config.max_length
            length = None if length == getattr(self.model.config, "max_position_embeddings", None) else length
        return None if length is None else length - 1

    def target_limits(self, source_lengths: torch.Tensor, settings: dict[str, Any]) -> tuple[torch.Tensor, int]:
        """New tokens allowed for each sentence (rows,), and the one number that `generate` is given."""
        limit, table = self.stated_limit(settings), self.position_limits["decoder"]
        if limit is None:
            least = stated("min_new_tokens", settings, self.model) or stated("min_length", settings, self.model) or 0
            limits = 2 * source_lengths + 50 + least
        else:
            limits = torch.full_like(source_lengths, limit)
        if table is not None:
            limits = limits.clamp(max=table)
        return limits, limit if self.has_stated_limit(settings) else int(limits.max())

    def row_limits(self, limits: torch.Tensor, enforced: int, settings: dict[str, Any]) -> dict[str, Any]:
        # One limit for the batch would let the neighbours of a sentence decide where it is cut.
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
        """Tokens up to and with the end of the sentence, and whether the model put it there: (rows * n,) each."""
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
            report.add(outputs["is_finished"], int(outputs["cut_tokens"]))
        records = []
        for number, length in enumerate(outputs["lengths"].tolist()):
            ids, record = outputs["output_ids"][number, :length], {}
            if return_tensors:
                record["translation_token_ids"] = ids
            if return_text:
                text = self.tokenizer.decode(ids.tolist(), skip_special_tokens=True, **decode_kwargs) if length else ""
                record["translation_text"] = text
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
    Ends each sentence at its own length.

    Args:
        limits (`torch.Tensor` of shape `(rows,)`): new tokens allowed, the decoder's start token not counted.
    """

    def __init__(self, limits: torch.Tensor):
        self.lengths = limits + 1

    def __call__(self, input_ids: torch.Tensor, scores, **kwargs) -> torch.Tensor:
        beams = input_ids.shape[0] // len(self.lengths)
        return self.lengths.repeat_interleave(beams) <= input_ids.shape[1]


class TargetEndProcessor(LogitsProcessor):
    """`forced_eos_token_id`, at the end of the length of each sentence: `limits` as in `TargetLengthCriteria`."""

    def __init__(self, limits: torch.Tensor, forced: int | list[int]):
        self.last_steps = limits
        self.forced = forced

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        is_last = self.last_steps.repeat_interleave(input_ids.shape[0] // len(self.last_steps)) == input_ids.shape[1]
        ended = torch.full_like(scores, float("-inf"))
        ended[:, self.forced] = 0.0
        return torch.where(is_last[:, None], ended, scores)


class NumberedDataset(Dataset):
    """Items of a sized dataset as (index, text)."""

    def __init__(self, items: Any, src_lang: str | None, has_rows: bool):
        self.items, self.src_lang, self.has_rows = items, src_lang, has_rows

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> tuple[int, Any]:
        item = self.items[index]
        return index, row_text(index, item, self.src_lang) if self.has_rows else item


class CallReport:
    """What a call warns of: with total counts at the end of a list, at the first occurrence in a stream."""

    def __init__(self, streaming: bool):
        self.streaming = streaming
        self.sentences = self.cut_sentences = self.cut_tokens = self.translations = self.unfinished = 0
        self.told = set()

    def add(self, is_finished: torch.Tensor, cut_tokens: int):
        self.sentences += 1
        self.cut_sentences += cut_tokens > 0
        self.cut_tokens += cut_tokens
        self.translations += len(is_finished)
        self.unfinished += int((~is_finished).sum())
        if self.streaming:
            self.warn()

    def warn(self):
        so_far = " so far; the following ones are not reported" if self.streaming else ""
        if self.cut_sentences and "cut" not in self.told:
            self.told.add("cut")
            logger.warning(
                f"Truncation cut {self.cut_tokens} tokens off {self.cut_sentences} of {self.sentences} "
                f"sentences{so_far}."
            )
        if self.unfinished and "unfinished" not in self.told:
            self.told.add("unfinished")
            logger.warning(
                f"{self.unfinished} of {self.translations} translations stopped at the length limit, without an "
                f"end-of-sentence token{so_far}. Raise `max_new_tokens`, or split the sentences."
            )


@contextmanager
def restored_languages(tokenizer: Any) -> Iterator[None]:
    """Languages set on the tokenizer inside the block are those of before after it."""
    before = tokenizer.src_lang, getattr(tokenizer, "tgt_lang", None)
    try:
        yield
    finally:
        if (tokenizer.src_lang, getattr(tokenizer, "tgt_lang", None)) != before:
            if before[1] != getattr(tokenizer, "tgt_lang", None):
                tokenizer.tgt_lang = before[1]
            # Last, as it also sets the special tokens of source sentences.
            tokenizer.src_lang = before[0]


def check_text(index: int, text: Any):
    if not isinstance(text, str):
        kind = type(text).__name__
        raise TypeError(f"Input {index} is no string but {kind} ({repr(text)[:60]}): pass one `str` a sentence")


def row_text(index: int, row: dict[str, Any], src_lang: str | None) -> Any:
    """The source sentence of a dataset row."""
    pair = row.get("translation")
    if isinstance(pair, dict):
        if src_lang in pair:
            return pair[src_lang]
        raise ValueError(f"Row {index} holds {', '.join(pair)}, and `src_lang` is {src_lang!r}: pass one of them")
    if "text" in row:
        return row["text"]
    if len(row) == 1:
        return next(iter(row.values()))
    raise ValueError(
        f"Row {index} has the columns {', '.join(row)}: name the source with "
        "`transformers.pipelines.pt_utils.KeyDataset(dataset, column)`"
    )


def language_name(language: str) -> str:
    name = T5_LANGUAGES.get(language, language)
    if not name.istitle():
        raise ValueError(
            f"No English name known for language {language!r}: pass the name, or the whole `prefix=` that the model "
            'was trained with ("" for none)'
        )
    return name


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
    # Absolute positions count from the left edge, so left padding would change the translation.
    order = mask.argsort(dim=1, descending=True, stable=True)
    return ids.gather(1, order), mask.gather(1, order)


def spread(values: torch.Tensor, is_text: torch.Tensor, fill: int | float | bool) -> torch.Tensor:
    """Rows of the sentences with text, put back among those without."""
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


__all__ = ["TranslationPipeline"]
