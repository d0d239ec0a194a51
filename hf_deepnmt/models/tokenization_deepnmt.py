# Copyright 2026 The hf_deepnmt authors. Apache-2.0 licence.
"""
One tokenizer object for a language pair with two vocabularies.

The class has no `__init__` of its own: Transformers would then rebuild the source side from its vocabulary instead of
reading `tokenizer.json`, and lose normaliser, pre-tokenizer and decoder.
"""

import copy
import os
from typing import Any

from tokenizers import Tokenizer
from transformers import BatchEncoding, PreTrainedTokenizerFast


class DeepNMTTokenizer(PreTrainedTokenizerFast):
    """
    Encodes with the source vocabulary, and with the target vocabulary under `text_target=`; decodes target ids.

    `len(tokenizer)`, `vocab_size`, `get_vocab()`, the conversions between tokens and ids, and `add_tokens` mean the
    source; `target_vocab_size` and `target_backend` are the target's. Source ids are decoded by
    `decode(ids, use_source_tokenizer=True)`. Special tokens have the same ids on both sides.
    """

    vocab_files_names = {"tokenizer_file": "tokenizer.json", "target_tokenizer_file": "target_tokenizer.json"}
    model_input_names = ["input_ids", "attention_mask"]

    _source = None
    _target = None

    @classmethod
    def from_pair(cls, source: Tokenizer, target: Tokenizer, **kwargs: Any) -> "DeepNMTTokenizer":
        """From two `tokenizers.Tokenizer`.

        Raises:
            ValueError: a special token has different ids on the two sides, or one side lacks it.
        """
        for name in ("bos_token", "eos_token", "pad_token", "unk_token"):
            token = kwargs.get(name)
            ids = source.token_to_id(str(token)), target.token_to_id(str(token))
            if token is not None and (None in ids or ids[0] != ids[1]):
                raise ValueError(
                    f"{name} {token!r} has id {ids[0]} in the source vocabulary and {ids[1]} in the target one: "
                    "give it the same id in both"
                )
        tokenizer = cls(tokenizer_object=source, **kwargs)
        tokenizer._target = target
        return tokenizer

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> "DeepNMTTokenizer":
        tokenizer = super().from_pretrained(*args, **kwargs)
        # read now: an incomplete folder fails here, and the folder may be gone at the first target text
        tokenizer.target_backend  # noqa: B018
        return tokenizer

    @property
    def target_backend(self) -> Tokenizer:
        if self._target is None:
            path = self.init_kwargs.get("target_tokenizer_file")
            if path is None:
                name = self.vocab_files_names["target_tokenizer_file"]
                raise OSError(f"no {name} beside the tokenizer.json of {self.name_or_path!r}: copy the whole folder")
            self._target = Tokenizer.from_file(path)
        # neither files nor pickles keep it; set only on a change, since a setter fails while another thread encodes
        if self._target.encode_special_tokens != self.split_special_tokens:
            self._target.encode_special_tokens = self.split_special_tokens
        return self._target

    @property
    def target_vocab_size(self) -> int:
        return self.target_backend.get_vocab_size()

    def _switch_to_target_mode(self) -> None:
        if self._source is None:
            self._source, self._tokenizer = self._tokenizer, self.target_backend

    def _switch_to_input_mode(self) -> None:
        if self._source is not None:
            self._tokenizer, self._source = self._source, None

    def __call__(self, *args: Any, **kwargs: Any) -> BatchEncoding:
        # a copy changes sides, so that neither an error nor a second thread finds this object on the wrong one
        return super(DeepNMTTokenizer, copy.copy(self)).__call__(*args, **kwargs)

    def _decode(self, token_ids: Any, use_source_tokenizer: bool = False, **kwargs: Any) -> str:
        side = copy.copy(self)
        if use_source_tokenizer:
            side._switch_to_input_mode()
        else:
            side._switch_to_target_mode()
        return super(DeepNMTTokenizer, side)._decode(token_ids, **kwargs)

    def _save_pretrained(self, save_directory: Any, file_names: tuple[str, ...], **kwargs: Any) -> tuple[str, ...]:
        # in target mode the target vocabulary would be written over the source's
        self._switch_to_input_mode()
        for backend in (self._tokenizer, self.target_backend):
            # the last call's settings, which are no part of the vocabulary
            backend.no_truncation()
            backend.no_padding()
        file_names = super()._save_pretrained(save_directory, file_names, **kwargs)
        prefix = f"{kwargs['filename_prefix']}-" if kwargs.get("filename_prefix") else ""
        path = os.path.join(str(save_directory), prefix + self.vocab_files_names["target_tokenizer_file"])
        self.target_backend.save(path)
        return (*file_names, path)


__all__ = ["DeepNMTTokenizer"]
