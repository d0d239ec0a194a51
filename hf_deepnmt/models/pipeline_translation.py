# Copyright 2026 The hf_deepnmt authors. Apache-2.0 licence.
"""The `translation` task, which Transformers 5 no longer has, for every encoder-decoder model of the library."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from transformers.utils import logging

from .pipeline_seq2seq import Seq2SeqPipeline, row_text, stated


logger = logging.get_logger(__name__)

TASK_LANGUAGES = re.compile(r"translation_(.+)_to_(.+)")
# The languages of the original T5 (Raffel et al., 2020), whose prefixes spell them out.
T5_LANGUAGES = {"de": "German", "en": "English", "fr": "French", "ro": "Romanian"}
T5_FAMILY = {"longt5", "mt5", "switch_transformers", "t5", "umt5"}


class TranslationPipeline(Seq2SeqPipeline):
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

    task_name, verb, item, output = "Translation", "translate", "sentence", "translation"
    result_name = "translation"
    unfinished_remedy = "Raise `max_new_tokens`, or split the sentences"
    task_options = ("src_lang", "tgt_lang")

    def row_reader(self, kwargs: dict[str, Any]) -> Callable[[int, dict[str, Any]], Any]:
        src_lang = kwargs.get("src_lang") or self._preprocess_params.get("src_lang") or self.task_languages[0]
        return partial(row_source, src_lang=src_lang, columns=self.text_columns)

    def encode(self, text: str, src_lang: str | None = None, tgt_lang: str | None = None, **kwargs) -> dict[str, Any]:
        if not self.has_language_codes:
            return super().encode(text, **kwargs)
        src_lang, tgt_lang = self.languages(src_lang, tgt_lang)
        src_lang, tgt_lang = src_lang or self.tokenizer.src_lang, tgt_lang or self.tokenizer.tgt_lang
        with restored_languages(self.tokenizer):
            try:
                return self.encode_with_codes(text, src_lang, tgt_lang, verbose=False, **kwargs)
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

    def source_prefix(self, text: str, src_lang: str | None = None, tgt_lang: str | None = None) -> str:
        if self.has_language_codes:
            return ""
        specific = self.task_parameters(src_lang=src_lang, tgt_lang=tgt_lang)
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

    def task_names(self, src_lang: str | None = None, tgt_lang: str | None = None) -> list[str]:
        source, target = self.languages(src_lang, tgt_lang)
        return ([f"translation_{source}_to_{target}"] if source and target else []) + ["translation"]

    def check_settings(self, settings: dict[str, Any]):
        config = self.model.config
        plain = {getattr(config, f"{name}_token_id", None) for name in ("bos", "eos", "pad")}
        if (
            self.has_language_codes
            and stated("forced_bos_token_id", settings, self.model) is None
            and stated("decoder_start_token_id", settings, self.model) in plain
        ):
            raise ValueError("The model translates into several languages: pass `tgt_lang=` (and `src_lang=`)")


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


def row_source(index: int, row: dict[str, Any], src_lang: str | None, columns: tuple[str, ...]) -> Any:
    """The source sentence of a dataset row."""
    pair = row.get("translation")
    if not isinstance(pair, dict):
        return row_text(index, row, columns)
    if src_lang in pair:
        return pair[src_lang]
    raise ValueError(f"Row {index} holds {', '.join(pair)}, and `src_lang` is {src_lang!r}: pass one of them")


def language_name(language: str) -> str:
    name = T5_LANGUAGES.get(language, language)
    if not name.istitle():
        raise ValueError(
            f"No English name known for language {language!r}: pass the name, or the whole `prefix=` that the model "
            'was trained with ("" for none)'
        )
    return name


__all__ = ["TranslationPipeline"]
