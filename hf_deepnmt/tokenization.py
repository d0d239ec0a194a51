"""
Training subword vocabularies with the `tokenizers` library.

The result is a standard tokenizer folder. Text survives encoding and decoding exactly, any Unicode, unless a
normaliser is chosen: spaces stay literal inside tokens, unknown characters are spelled in bytes, and text that looks
like a special token is ordinary text.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.utils import logging

from .models.tokenization_deepnmt import DeepNMTTokenizer


logger = logging.get_logger(__name__)

SPECIAL_TOKENS = ("<s>", "<pad>", "</s>", "<unk>")
BYTE_TOKENS = tuple(f"<0x{byte:02X}>" for byte in range(256))
ALGORITHMS = ("bpe", "unigram")
NORMALIZERS = ("identity", "nfkc")
# letters with their marks, numbers, other symbols, each with one space in front; what is left of runs of white space.
# Letters never share a word with "<", so that no learned piece can spell a special token or a byte token.
WORD_PATTERN = r" ?\p{L}[\p{L}\p{M}]*| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LEAST_PIECES = 16

Texts = Iterable[str] | Callable[[], Iterable[str]]
Reader = Callable[[], Iterable[str]]


@dataclass(frozen=True)
class _Options:
    algorithm: str
    normalizer: str
    lowercase: bool
    byte_fallback: bool
    min_frequency: int
    limit_alphabet: int
    show_progress: bool

    def __post_init__(self) -> None:
        for name, allowed in (("algorithm", ALGORITHMS), ("normalizer", NORMALIZERS)):
            if getattr(self, name) not in allowed:
                raise ValueError(f"`{name}` must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")
        if self.limit_alphabet < 1:
            raise ValueError(f"`limit_alphabet` must be at least 1, got {self.limit_alphabet}")

    @property
    def reserved(self) -> tuple[str, ...]:
        return (*SPECIAL_TOKENS, *(BYTE_TOKENS if self.byte_fallback else ()))

    def alphabet_size(self, vocab_size: int) -> int:
        # filled with characters to the last place, the unigram trainer would overshoot
        return min(self.limit_alphabet, vocab_size - len(self.reserved) - 1)


def _check_size(name: str, size: int, options: _Options) -> None:
    least = len(options.reserved) + LEAST_PIECES
    if size < least:
        parts = f"{len(options.reserved)} special and byte pieces and {LEAST_PIECES} learned ones"
        raise ValueError(f"`{name}` {size} is too small: the least is {least}, {parts}")


def _checked(texts: Texts, side: str) -> Iterator[str]:
    filled = False
    for index, text in enumerate(texts() if callable(texts) else texts):
        if not isinstance(text, str):
            raise TypeError(f"{side} text {index} is {type(text).__name__}, not str: {text!r}")
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError(f"{side} text {index} is not valid Unicode, remove the lone surrogate: {error}") from None
        filled = filled or not (text == "" or text.isspace())
        yield text
    if not filled:
        raise ValueError(
            f"the {side} texts hold no text to train a vocabulary on: none came, or all are blank. "
            "An iterator can be read only once: pass a list, or a function that opens the texts"
        )


def _reader(sides: dict[str, Texts]) -> Reader:
    return lambda: (text for side, texts in sides.items() for text in _checked(texts, side))


def _repeatable(texts: Texts) -> Texts:
    return list(texts) if isinstance(texts, Iterator) else texts


def _normalizer(options: _Options) -> normalizers.Normalizer:
    steps = [normalizers.NFKC()] if options.normalizer == "nfkc" else []
    steps += [normalizers.Lowercase()] if options.lowercase else []
    # a first word then has the same pieces as the same word further on; the decoder takes the space off again
    return normalizers.Sequence([*steps, normalizers.Prepend(" ")])


def _pre_tokenizer() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Split(Regex(WORD_PATTERN), behavior="isolated")


def _train_bpe(read: Reader, vocab_size: int, options: _Options) -> models.Model:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = _normalizer(options), _pre_tokenizer()
    size = options.alphabet_size(vocab_size)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=options.min_frequency,
        special_tokens=list(options.reserved),
        # left to itself, the trainer chooses at random among characters equally frequent
        initial_alphabet=_frequent_characters(_character_counts(read, options), size),
        limit_alphabet=size,
        show_progress=options.show_progress,
    )
    tokenizer.train_from_iterator(read(), trainer)
    trained = json.loads(tokenizer.to_str())["model"]
    merges = [tuple(merge) for merge in trained["merges"]]
    # built anew, since the trainer registers byte pieces as special tokens, which decoding would skip
    return models.BPE(vocab=trained["vocab"], merges=merges, unk_token="<unk>", byte_fallback=options.byte_fallback)


def _character_counts(read: Reader, options: _Options) -> Counter[str]:
    normalizer = _normalizer(options)
    counts = Counter()
    for text in read():
        counts.update(normalizer.normalize_str(text))
    return counts


def _frequent_characters(counts: Counter[str], size: int) -> list[str]:
    return sorted(counts, key=lambda character: (-counts[character], character))[:size]


def _without_rare_characters(read: Reader, size: int, options: _Options) -> Iterator[str]:
    normalizer, counts = _normalizer(options), _character_counts(read, options)
    del counts[" "]
    kept = set(_frequent_characters(counts, size - 1))
    # the words around a rare character are learned apart, as they will be encoded
    spaces = dict.fromkeys(map(ord, counts.keys() - kept), " ")
    for text in read():
        yield normalizer.normalize_str(text).translate(spaces)


def _train_unigram(read: Reader, vocab_size: int, options: _Options) -> models.Model:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = _pre_tokenizer()
    special = len(SPECIAL_TOKENS)
    byte_tokens = options.reserved[special:]
    trainer = trainers.UnigramTrainer(
        vocab_size=vocab_size - len(byte_tokens),
        special_tokens=list(SPECIAL_TOKENS),
        unk_token="<unk>",
        show_progress=options.show_progress,
    )
    # the trainer makes every character a piece, and fails if they are too many
    texts = _without_rare_characters(read, options.alphabet_size(vocab_size), options)
    tokenizer.train_from_iterator(texts, trainer)
    pieces = [tuple(piece) for piece in json.loads(tokenizer.to_str())["model"]["vocab"]]
    # far below every learned piece, so that bytes are only the last resort
    floor = min(score for _, score in pieces) - 100.0
    pieces[special:special] = [(token, floor) for token in byte_tokens]
    return models.Unigram(pieces, unk_id=SPECIAL_TOKENS.index("<unk>"), byte_fallback=options.byte_fallback)


def _train_side(sides: dict[str, Texts], vocab_size: int, options: _Options) -> Tokenizer:
    sides = {side: _repeatable(texts) for side, texts in sides.items()}
    train = {"bpe": _train_bpe, "unigram": _train_unigram}[options.algorithm]
    tokenizer = Tokenizer(train(_reader(sides), vocab_size, options))
    tokenizer.normalizer, tokenizer.pre_tokenizer = _normalizer(options), _pre_tokenizer()
    space = decoders.Strip(content=" ", left=1, right=0)
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse(), space])
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", SPECIAL_TOKENS.index("</s>"))]
    )
    size = tokenizer.get_vocab_size()
    if size < vocab_size:
        name = " and ".join(sides)
        logger.warning(f"The {name} text gives a vocabulary of {size} pieces, not of the {vocab_size} asked for")
    return tokenizer


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
    on the same text gives the same vocabulary byte for byte; unigram training is not repeatable in the `tokenizers`
    library. The vocabulary has the size asked for, or a warning says how many pieces the text gave.

    Args:
        source_texts, target_texts: sentences, or functions that return an iterable of them; read as a stream,
            twice, for which an iterator is held in memory.
        vocab_size, target_vocab_size: pieces in all, with special and byte pieces; the second for `joint=False`.
        normalizer: `identity` keeps text as it is; `nfkc` applies compatibility normalisation and cannot be undone.
        lowercase: lower-case all text, also at inference.
        byte_fallback: spell characters outside the alphabet in UTF-8 bytes instead of `<unk>`.
        min_frequency: how often a pair must occur to be merged (BPE only).
        limit_alphabet: at most this many single characters get a piece, the most frequent ones.

    Raises:
        ValueError: an option has no such value, a vocabulary is too small, a side has no text, or a text holds a lone
            surrogate.
        TypeError: a text is not a string; names side and index.
    """
    options = _Options(algorithm, normalizer, lowercase, byte_fallback, min_frequency, limit_alphabet, show_progress)
    if joint and target_vocab_size is not None:
        raise ValueError("`target_vocab_size` is for separate vocabularies: set `joint=False` or leave it out")
    sizes = {"vocab_size": vocab_size, "target_vocab_size": vocab_size}
    if target_vocab_size is not None:
        sizes["target_vocab_size"] = target_vocab_size
    for name, size in sizes.items():
        _check_size(name, size, options)
    sides = {"source": source_texts, "target": target_texts}
    for side, texts in sides.items():
        if isinstance(texts, (str, bytes)):
            raise TypeError(f"the {side} texts are one {type(texts).__name__}: pass a list of sentences")
    settings = {
        "bos_token": "<s>",
        "pad_token": "<pad>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "padding_side": "right",
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": True,
        "model_input_names": ["input_ids", "attention_mask"],
    }
    if joint:
        return PreTrainedTokenizerFast(tokenizer_object=_train_side(sides, vocab_size, options), **settings)
    source = _train_side({"source": source_texts}, vocab_size, options)
    target = _train_side({"target": target_texts}, sizes["target_vocab_size"], options)
    return DeepNMTTokenizer.from_pair(source, target, **settings)


def target_size(tokenizer: PreTrainedTokenizerBase) -> int:
    """Size of the vocabulary that targets are encoded with."""
    return getattr(tokenizer, "target_vocab_size", None) or len(tokenizer)


def unknown_rate(tokenizer: PreTrainedTokenizerBase, texts: Iterable[str], target: bool = False) -> dict[str, float]:
    """`tokens`, `unknown` tokens and their `share` over `texts`, end tokens not counted."""
    if isinstance(texts, str):
        raise TypeError("the texts are one str: pass a list of sentences")
    tokens = unknown = 0
    texts = iter(texts)
    while batch := list(islice(texts, 1000)):
        sentences = {"text_target" if target else "text": batch}
        for ids in tokenizer(**sentences, add_special_tokens=False)["input_ids"]:
            tokens += len(ids)
            unknown += ids.count(tokenizer.unk_token_id)
    return {"tokens": tokens, "unknown": unknown, "share": unknown / max(tokens, 1)}


def moses_tokenize(
    lines: Iterable[str], language: str, lowercase: bool = False, escape: bool = False
) -> Iterator[str]:
    """
    Moses word tokenisation of each line, words joined by spaces; hyphenated words stay whole.

    Args:
        language: its two-letter code, for the list of abbreviations.
        escape: write `&`, `|`, `<`, `>`, quotes and brackets as entities, as Moses does for its own decoder.
    """
    from sacremoses import MosesTokenizer
    from sacremoses.corpus import NonbreakingPrefixes

    if language not in NonbreakingPrefixes().available_langs:
        logger.warning(f"Moses has no list of abbreviations for {language!r}: it falls back on the English one")
    moses = MosesTokenizer(lang=language)
    for line in lines:
        words = moses.tokenize(line, aggressive_dash_splits=False, return_str=True, escape=escape)
        yield words.lower() if lowercase else words


def moses_detokenize(lines: Iterable[str], language: str, unescape: bool = False) -> Iterator[str]:
    """Undo `moses_tokenize` as far as Moses rules can; `unescape` for lines that were tokenised with `escape`."""
    from sacremoses import MosesDetokenizer

    moses = MosesDetokenizer(lang=language)
    for line in lines:
        yield moses.detokenize(line.split(), unescape=unescape)


__all__ = ["moses_detokenize", "moses_tokenize", "target_size", "train_tokenizer", "unknown_rate"]
