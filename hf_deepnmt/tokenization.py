"""
Training subword vocabularies with the `tokenizers` library.

The result is a standard tokenizer folder. Text survives encoding and decoding exactly, any Unicode, unless a
normaliser is chosen: spaces stay literal inside tokens, unknown characters are spelled in bytes, and text that looks
like a special token is ordinary text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.utils import logging

from .models.tokenization_deepnmt import DeepNMTTokenizer


logger = logging.get_logger(__name__)

SPECIAL_TOKENS = ("<s>", "<pad>", "</s>", "<unk>")
BYTE_TOKENS = tuple(f"<0x{byte:02X}>" for byte in range(256))
ALGORITHMS = ("bpe", "unigram")
NORMALIZERS = ("identity", "nfkc")
# letters with their marks, numbers, other symbols, each with one space in front; what is left of runs of white space
WORD_PATTERN = r" ?\p{L}[\p{L}\p{M}]*| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

Texts = Iterable[str] | Callable[[], Iterable[str]]


def _open(texts: Texts) -> Iterable[str]:
    return texts() if callable(texts) else texts


def _checked(texts: Texts, side: str, counter: list[int]) -> Iterator[str]:
    for index, text in enumerate(_open(texts)):
        if not isinstance(text, str):
            raise TypeError(f"{side} text {index} is {type(text).__name__}, not str")
        counter[0] += bool(text.strip())
        yield text


def _pipeline_parts(tokenizer: Tokenizer, normalizer: str, lowercase: bool) -> Tokenizer:
    steps = [normalizers.NFKC()] if normalizer == "nfkc" else []
    steps += [normalizers.Lowercase()] if lowercase else []
    # a first word then has the same pieces as the same word further on; the decoder takes the space off again
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Prepend(" ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(WORD_PATTERN), behavior="isolated")
    tokenizer.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(content=" ", left=1, right=0)]
    )
    return tokenizer


def _bpe(texts, vocab_size, byte_tokens, min_frequency, limit_alphabet, show_progress, parts) -> Tokenizer:
    tokenizer = _pipeline_parts(Tokenizer(models.BPE(unk_token="<unk>")), *parts)
    reserved = [*SPECIAL_TOKENS, *byte_tokens]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        special_tokens=reserved,
        limit_alphabet=min(limit_alphabet, vocab_size - len(reserved)),
        show_progress=show_progress,
    )
    tokenizer.train_from_iterator(texts, trainer)
    trained = json.loads(tokenizer.to_str())["model"]
    merges = [tuple(merge) for merge in trained["merges"]]
    # built anew, since the trainer registers byte pieces as special tokens, which decoding would skip
    model = models.BPE(vocab=trained["vocab"], merges=merges, unk_token="<unk>", byte_fallback=bool(byte_tokens))
    return _pipeline_parts(Tokenizer(model), *parts)


def _unigram(texts, vocab_size, byte_tokens, min_frequency, limit_alphabet, show_progress, parts) -> Tokenizer:
    tokenizer = _pipeline_parts(Tokenizer(models.Unigram()), *parts)
    trainer = trainers.UnigramTrainer(
        vocab_size=vocab_size - len(byte_tokens),
        special_tokens=list(SPECIAL_TOKENS),
        unk_token="<unk>",
        show_progress=show_progress,
    )
    tokenizer.train_from_iterator(texts, trainer)
    pieces = [(piece, score) for piece, score in json.loads(tokenizer.to_str())["model"]["vocab"]]
    floor = min(score for _, score in pieces) - 100.0
    size = len(SPECIAL_TOKENS)
    pieces = [*pieces[:size], *((token, floor) for token in byte_tokens), *pieces[size:]]
    model = models.Unigram(pieces, unk_id=SPECIAL_TOKENS.index("<unk>"), byte_fallback=bool(byte_tokens))
    return _pipeline_parts(Tokenizer(model), *parts)


def _train_side(texts, vocab_size, algorithm, normalizer, lowercase, byte_fallback, *options) -> Tokenizer:
    byte_tokens = BYTE_TOKENS if byte_fallback else ()
    train = {"bpe": _bpe, "unigram": _unigram}[algorithm]
    tokenizer = train(texts, vocab_size, byte_tokens, *options, (normalizer, lowercase))
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    end = SPECIAL_TOKENS.index("</s>")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", end)]
    )
    if tokenizer.get_vocab_size() < vocab_size:
        logger.warning(f"The text gives a vocabulary of {tokenizer.get_vocab_size()}, not the {vocab_size} asked for")
    return tokenizer


def _check_options(algorithm: str, normalizer: str, byte_fallback: bool, sizes: list[int]):
    for name, value, allowed in (("algorithm", algorithm, ALGORITHMS), ("normalizer", normalizer, NORMALIZERS)):
        if value not in allowed:
            raise ValueError(f"`{name}` must be one of {', '.join(allowed)}, got {value!r}")
    least = len(SPECIAL_TOKENS) + (len(BYTE_TOKENS) if byte_fallback else 0) + 16
    if min(sizes) < least:
        raise ValueError(f"a vocabulary of {min(sizes)} is too small: {least} is the least with these options")


def train_tokenizer(
    source_texts: Texts,
    target_texts: Texts,
    *,
    joint: bool = True,
    vocab_size: int = 8000,
    target_vocab_size: int | None = None,
    algorithm: str = "bpe",
    normalizer: str = "identity",
    lowercase: bool = False,
    byte_fallback: bool = True,
    min_frequency: int = 2,
    limit_alphabet: int = 1000,
    show_progress: bool = True,
) -> PreTrainedTokenizerFast:
    """
    Train one joint vocabulary (a plain fast tokenizer) or two separate ones (a `DeepNMTTokenizer`).

    Both put `</s>` behind source and target. The ids of `<s>`, `<pad>`, `</s>`, `<unk>` are 0 to 3. Training BPE twice
    on the same text gives the same vocabulary byte for byte.

    Args:
        source_texts, target_texts: sentences, or functions that return an iterator over them; read as a stream.
        vocab_size, target_vocab_size: pieces in all, with special and byte pieces; the second for `joint=False`.
        normalizer: `identity` keeps text as it is; `nfkc` applies compatibility normalisation and cannot be undone.
        lowercase: lower-case all text, also at inference.
        byte_fallback: spell characters outside the alphabet in UTF-8 bytes instead of `<unk>`.
        limit_alphabet: at most this many single characters get a piece (BPE).

    Raises:
        ValueError: an option has no such value, a vocabulary is too small, or there is no text.
        TypeError: a text is not a string; names side and index.
    """
    sizes = [vocab_size] if joint else [vocab_size, target_vocab_size or vocab_size]
    _check_options(algorithm, normalizer, byte_fallback, sizes)
    counter = [0]
    sides = [_checked(source_texts, "source", counter), _checked(target_texts, "target", counter)]
    streams = [(text for side in sides for text in side)] if joint else sides
    options = (algorithm, normalizer, lowercase, byte_fallback, min_frequency, limit_alphabet, show_progress)
    trained = []
    for stream, size in zip(streams, sizes, strict=True):
        before = counter[0]
        trained.append(_train_side(stream, size, *options))
        if counter[0] == before:
            raise ValueError("there is no text to train a vocabulary on: every line is blank")
    names = ("bos_token", "pad_token", "eos_token", "unk_token")
    settings = {
        **dict(zip(names, SPECIAL_TOKENS, strict=True)),
        "padding_side": "right",
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": True,
        "model_input_names": ["input_ids", "attention_mask"],
    }
    if joint:
        return PreTrainedTokenizerFast(tokenizer_object=trained[0], **settings)
    return DeepNMTTokenizer.from_pair(*trained, **settings)


def target_size(tokenizer: PreTrainedTokenizerBase) -> int:
    """Size of the vocabulary that targets are encoded with."""
    return getattr(tokenizer, "target_vocab_size", None) or len(tokenizer)


def unknown_rate(tokenizer: PreTrainedTokenizerBase, texts: Iterable[str], target: bool = False) -> dict[str, float]:
    """Tokens, unknown tokens and their share over `texts`, end tokens not counted."""
    tokens = unknown = 0
    for text in texts:
        encoded = tokenizer(text_target=text) if target else tokenizer(text)
        ids = encoded["input_ids"][:-1]
        tokens += len(ids)
        unknown += ids.count(tokenizer.unk_token_id)
    return {"tokens": tokens, "unknown": unknown, "share": unknown / max(tokens, 1)}


def moses_tokenize(lines: Iterable[str], language: str, lowercase: bool = False, escape: bool = False) -> Iterator[str]:
    """Moses word tokenisation of each line, through sacremoses."""
    from sacremoses import MosesTokenizer

    moses = MosesTokenizer(lang=language)
    for line in lines:
        words = moses.tokenize(line, return_str=True, escape=escape)
        yield words.lower() if lowercase else words


def moses_detokenize(lines: Iterable[str], language: str) -> Iterator[str]:
    """Undo `moses_tokenize` as far as Moses rules can."""
    from sacremoses import MosesDetokenizer

    moses = MosesDetokenizer(lang=language)
    for line in lines:
        yield moses.detokenize(line.split())


__all__ = ["moses_detokenize", "moses_tokenize", "target_size", "train_tokenizer", "unknown_rate"]
