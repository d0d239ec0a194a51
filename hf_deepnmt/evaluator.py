"""
`evaluate.evaluator("translation")` and `evaluate.evaluator("summarization")` under Transformers 5.

The evaluator of `evaluate` asks for `transformers.TFPreTrainedModel`, which is gone, cuts over-long sentences without
a word, and keeps the `generation_kwargs` of one call for all later ones. Those here replace it.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from numbers import Number
from typing import Any

import transformers
from datasets import Dataset
from evaluate import EvaluationModule, TranslationEvaluator
from evaluate.evaluator import SUPPORTED_EVALUATOR_TASKS
from transformers import PreTrainedModel
from transformers.utils import logging

from .metrics import METRICS, Rouge, SacreBLEU


logger = logging.get_logger(__name__)


class DeepNMTTranslationEvaluator(TranslationEvaluator):
    """
    Translates a dataset with a pipeline and scores the result.

    ```python
    >>> evaluator = evaluate.evaluator("translation")
    >>> evaluator.compute(pipe, dataset, metric=SacreBLEU(), input_column="de", label_column="en")  # doctest: +SKIP
    ```

    As in `evaluate`, except that: the default metric is `SacreBLEU`, and the names in `METRICS` need no Hub; columns
    may be languages of a `translation` column; any callable that returns `translation_text` is a pipeline; nothing is
    truncated unless `generation_kwargs={"truncation": True}`; SciPy is only needed for `strategy="bootstrap"`.
    """

    def __init__(self, task: str = "translation", default_metric_name: str | None = None):
        self.task = task
        self.default_metric_name = default_metric_name or SacreBLEU.name
        self.PIPELINE_KWARGS = {}

    def compute(self, *args, generation_kwargs: dict[str, Any] | None = None, **kwargs) -> dict[str, Any]:
        self.PIPELINE_KWARGS = dict(generation_kwargs or {})
        return super().compute(*args, **kwargs)

    def prepare_data(self, data: Dataset, input_column: str, label_column: str, *args, **kwargs):
        if not {input_column, label_column} <= set(data.column_names) and "translation" in data.column_names:
            data = data.flatten()
            nested = [f"translation.{column}" for column in (input_column, label_column)]
            columns = zip(nested, (input_column, label_column), strict=True)
            input_column, label_column = (name if name in data.column_names else plain for name, plain in columns)
        return super().prepare_data(data, input_column, label_column, *args, **kwargs)

    def prepare_pipeline(self, model_or_pipeline: Any, tokenizer=None, feature_extractor=None, device=None):
        if model_or_pipeline is None:
            raise ValueError(f"There is no default {self.task} model: pass `model_or_pipeline=`")
        if isinstance(model_or_pipeline, (str, os.PathLike, PreTrainedModel)):
            return transformers.pipeline(self.task, model=model_or_pipeline, tokenizer=tokenizer, device=device)
        if tokenizer is not None:
            logger.warning("`tokenizer` is ignored: the pipeline has its own")
        task = getattr(model_or_pipeline, "task", None) or self.task
        if not task.startswith(self.task):
            raise ValueError(f"The pipeline is for the task {task!r}, not for {self.task!r}")
        return model_or_pipeline

    def prepare_metric(self, metric: str | EvaluationModule | None) -> EvaluationModule:
        name = self.default_metric_name if metric is None else metric
        return METRICS[name]() if isinstance(name, str) and name in METRICS else super().prepare_metric(metric)

    def predictions_processor(self, predictions: list[Any], label_mapping: Any) -> dict[str, list[str]]:
        if any(isinstance(prediction, list) and len(prediction) != 1 for prediction in predictions):
            raise ValueError("Several hypotheses for an input cannot be scored: leave `num_return_sequences` at 1")
        flat = [prediction[0] if isinstance(prediction, list) else prediction for prediction in predictions]
        return super().predictions_processor(flat, label_mapping)

    def compute_metric(
        self,
        metric: EvaluationModule,
        metric_inputs: dict[str, Any],
        strategy: str = "simple",
        confidence_level: float = 0.95,
        n_resamples: int = 9999,
        random_state: int | None = None,
    ) -> dict[str, Any]:
        if strategy == "bootstrap" and find_spec("scipy") is None:
            raise ImportError("`strategy='bootstrap'` needs SciPy: install `scipy`, or use `paired_bootstrap`")
        result = metric.compute(**metric_inputs)
        if strategy != "bootstrap":
            return result
        # Signatures and lists of counts cannot be resampled.
        keys = [key for key, value in result.items() if isinstance(value, Number)]
        inputs = {name: list(values) for name, values in metric_inputs.items()}
        resampled = self._compute_confidence_interval(
            metric, inputs, keys, confidence_level, n_resamples, random_state
        )
        return {
            key: {**resampled[key], "score": value} if key in resampled else value for key, value in result.items()
        }


class DeepNMTSummarizationEvaluator(DeepNMTTranslationEvaluator):
    """The same for summaries: pipelines return `summary_text`, and the default metric is `Rouge`."""

    PREDICTION_PREFIX = "summary"

    def __init__(self, task: str = "summarization", default_metric_name: str | None = None):
        super().__init__(task, default_metric_name or Rouge.name)


def register_evaluator():
    """Make `evaluate.evaluator` return the evaluators of this module for `translation` and `summarization`."""
    for task, evaluator, metric in (
        ("translation", DeepNMTTranslationEvaluator, SacreBLEU),
        ("summarization", DeepNMTSummarizationEvaluator, Rouge),
    ):
        SUPPORTED_EVALUATOR_TASKS[task] = {"implementation": evaluator, "default_metric_name": metric.name}


__all__ = ["DeepNMTSummarizationEvaluator", "DeepNMTTranslationEvaluator", "register_evaluator"]
