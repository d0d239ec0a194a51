# Copyright 2026 The hf_deepnmt authors. Apache-2.0 licence.
"""
One tokenizer object for a language pair with two vocabularies.

The class has no `__init__` of its own: Transformers would then rebuild the source side from its vocabulary instead of
reading `tokenizer.json`, and lose normaliser, pre-tokenizer and decoder.
"""

import os

from tokenizers import Tokenizer

from transformers import PreTrainedTokenizerFast


class DeepNMTTokenizer(PreTrainedTokenizerFast):
    """
    Encodes with the source vocabulary, and with the target vocabulary under `text_target=`; decodes target ids.

    `len(tokenizer)` and `vocab_size` are the source's, `target_vocab_size` is the target's. Source ids are decoded by
    `decode(ids, use_source_tokenizer=True)`. Special tokens have the same ids on both sides.
    """

    vocab_files_names = {"tokenizer_file": "tokenizer.json", "target_tokenizer_file": "target_tokenizer.json"}
    model_input_names = ["input_ids", "attention_mask"]

    _source = None
    _target = None

    @classmethod
    def from_pair(cls, source: Tokenizer, target: Tokenizer, **kwargs) -> "DeepNMTTokenizer":
        """From two `tokenizers.Tokenizer`.

        Raises:
            ValueError: a special token has different ids on the two sides.
        """
        for name in ("bos_token", "eos_token", "pad_token", "unk_token"):
            token = kwargs.get(name)
            if token is not None and source.token_to_id(token) != target.token_to_id(token):
                raise ValueError(f"{name} {token!r} must have the same id in both vocabularies")
        tokenizer = cls(tokenizer_object=source, **kwargs)
        tokenizer._target = target
        tokenizer.target_backend.encode_special_tokens = tokenizer._tokenizer.encode_special_tokens
        return tokenizer

    @property
    def target_backend(self) -> Tokenizer:
        if self._target is None:
            self._target = Tokenizer.from_file(self.init_kwargs["target_tokenizer_file"])
            self._target.encode_special_tokens = (self._source or self._tokenizer).encode_special_tokens
        return self._target

    @property
    def target_vocab_size(self) -> int:
        return self.target_backend.get_vocab_size()

    def _switch_to_target_mode(self):
        if self._source is None:
            self._source, self._tokenizer = self._tokenizer, self.target_backend

    def _switch_to_input_mode(self):
        if self._source is not None:
            self._tokenizer, self._source = self._source, None

    def __call__(self, *args, **kwargs):
        try:
            return super().__call__(*args, **kwargs)
        finally:
            self._switch_to_input_mode()

    def _decode(self, token_ids, use_source_tokenizer: bool = False, **kwargs):
        if use_source_tokenizer:
            return super()._decode(token_ids, **kwargs)
        self._switch_to_target_mode()
        try:
            return super()._decode(token_ids, **kwargs)
        finally:
            self._switch_to_input_mode()

    def __getstate__(self):
        self.target_backend  # noqa: B018  (read the file now: a copy may outlive the folder)
        return self.__dict__.copy()

    def _save_pretrained(self, save_directory, file_names, **kwargs):
        file_names = super()._save_pretrained(save_directory, file_names, **kwargs)
        path = os.path.join(str(save_directory), self.vocab_files_names["target_tokenizer_file"])
        self.target_backend.save(path)
        return (*file_names, path)


__all__ = ["DeepNMTTokenizer"]
