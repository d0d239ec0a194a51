"""Whether one system is better than another: paired bootstrap resampling (Koehn, 2004) of BLEU, chrF and ROUGE."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import sacrebleu.significance
from sacrebleu.metrics import CHRF

from .metrics import References, RougeSettings, bleu_metric, check_pairs, reference_sets


DEFAULT_SEED = 12345


def check_resampling(n: int, seed: int):
    if n < 1 or seed < 1:
        raise ValueError(f"`n` and `seed` must be at least 1, got {n} and {seed}")


def paired_bootstrap(
    hypotheses: Sequence[str],
    baseline: Sequence[str],
    references: References,
    *,
    n: int = 1000,
    seed: int = DEFAULT_SEED,
    target_lang: str | None = None,
    lowercase: bool = False,
    tokenize: str | None = None,
) -> dict[str, Any]:
    """
    Paired bootstrap resampling (Koehn, 2004) of BLEU and chrF, by sacreBLEU.

    Returns:
        `test`, `n`, `seed`, and `metrics`: for `bleu` and `chrf` the `delta` (hypotheses minus baseline), its
        two-sided `p_value`, the `signature`, and for `system` and `baseline` the `score`, the `mean` of the resamples,
        and the bounds `low` and `high` of the 95 % confidence interval around it. Equal hypotheses have p-value 1.

    Raises:
        ValueError: counts differ, `n` or `seed` is not positive.
    """
    check_resampling(n, seed)
    hypotheses, lists = check_pairs(hypotheses, references)
    baseline, _ = check_pairs(baseline, references)
    metrics = {"bleu": bleu_metric(target_lang, lowercase, tokenize), "chrf": CHRF(lowercase=lowercase)}
    with sacrebleu_seed(seed):
        systems = [("baseline", baseline), ("system", hypotheses)]
        test = sacrebleu.significance.PairedTest(systems, metrics, reference_sets(lists), test_type="bs", n_samples=n)
        signatures, scores = test()
    names = dict(zip(metrics, signatures, strict=True))
    return {
        "test": "paired bootstrap resampling",
        "n": n,
        "seed": seed,
        "metrics": {
            name: comparison(*scores[key], str(signatures[key]), hypotheses == baseline) for name, key in names.items()
        },
    }


def paired_bootstrap_rouge(
    hypotheses: Sequence[str],
    baseline: Sequence[str],
    references: References,
    *,
    n: int = 1000,
    seed: int = DEFAULT_SEED,
    target_lang: str | None = None,
    tokenize: str | None = None,
    stem: bool | None = None,
) -> dict[str, Any]:
    """
    Paired bootstrap resampling of ROUGE F1, over the scores of single summaries.

    Returns:
        As `paired_bootstrap`, for `rouge1`, `rouge2` and `rougeL`; `low` and `high` are the 2.5th and 97.5th percentiles.

    Raises:
        ImportError: `rouge-score` is not installed.
        ValueError: counts differ, `n` or `seed` is not positive.
    """
    check_resampling(n, seed)
    settings = RougeSettings(target_lang, tokenize, stem)
    hypotheses, lists = check_pairs(hypotheses, references)
    baseline, _ = check_pairs(baseline, references)
    generator, size = np.random.default_rng(seed), len(hypotheses)
    draws = [generator.integers(size, size=size) for _ in range(n)]
    signature = f"{settings.signature(lists)}|bs:{n}|seed:{seed}"
    f1 = [settings.documents(texts, lists) for texts in (hypotheses, baseline)]
    return {
        "test": "paired bootstrap resampling",
        "n": n,
        "seed": seed,
        "metrics": {
            kind: {**compared_means(*(scores[kind][:, 2] for scores in f1), draws), "signature": signature}
            for kind in settings.kinds
        },
    }


def compared_means(system: np.ndarray, baseline: np.ndarray, draws: list[np.ndarray]) -> dict[str, Any]:
    """Two systems by their scores of single texts (texts,), over resamples of the texts."""
    results, resampled = {}, {}
    for name, scores in (("system", system), ("baseline", baseline)):
        resampled[name] = np.array([scores[draw].mean() for draw in draws])
        low, high = np.percentile(resampled[name], (2.5, 97.5)).tolist()
        mean = float(resampled[name].mean())
        results[name] = {"score": float(scores.mean()), "mean": mean, "low": low, "high": high}
    delta = results["system"]["score"] - results["baseline"]["score"]
    deltas = resampled["system"] - resampled["baseline"]
    # as sacreBLEU counts: how often chance alone, the resamples about their own mean, goes as far
    p_value = (int((abs(deltas - deltas.mean()) > abs(delta)).sum()) + 1) / (len(draws) + 1)
    return {**results, "delta": delta, "p_value": 1.0 if (system == baseline).all() else p_value}


@contextmanager
def sacrebleu_seed(seed: int) -> Iterator[None]:
    # The resampling reads its seed from there, at the start and again for the baseline.
    before = os.environ.get("SACREBLEU_SEED")
    os.environ["SACREBLEU_SEED"] = str(seed)
    try:
        yield
    finally:
        if before is None:
            del os.environ["SACREBLEU_SEED"]
        else:
            os.environ["SACREBLEU_SEED"] = before


def comparison(baseline: Any, system: Any, signature: str, are_equal: bool) -> dict[str, Any]:
    results = {
        name: {
            "score": float(result.score),
            "mean": float(result.mean),
            "low": float(result.mean - result.ci),
            "high": float(result.mean + result.ci),
        }
        for name, result in (("system", system), ("baseline", baseline))
    }
    # No resample of equal systems differs, which the formula takes for the rarest event.
    p_value = 1.0 if are_equal else float(system.p_value)
    return {**results, "delta": float(system.score - baseline.score), "p_value": p_value, "signature": signature}


__all__ = ["DEFAULT_SEED", "paired_bootstrap", "paired_bootstrap_rouge"]
