"""Tasks that Transformers 5 removed, given back to `transformers.pipeline` while this package is imported."""

from __future__ import annotations

from typing import Any

import transformers
from transformers import AutoModelForSeq2SeqLM, Pipeline, PreTrainedConfig
from transformers import pipelines as library
from transformers.utils import logging

from .models.configuration_deepnmt import DeepNMTConfig
from .models.pipeline_summarization import SummarizationPipeline
from .models.pipeline_translation import TASK_LANGUAGES, TranslationPipeline


logger = logging.get_logger(__name__)

TASKS: dict[str, type[Pipeline]] = {"translation": TranslationPipeline, "summarization": SummarizationPipeline}
# Families of task names, each with the task it stands for.
TASK_FAMILIES = {TASK_LANGUAGES: "translation"}


class TaskAliases(dict):
    """The aliases of the library and all names of `TASK_FAMILIES`, which cannot be listed."""

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or task_of_family(name) is not None

    def __missing__(self, name: str) -> str:
        task = task_of_family(name)
        if task is None:
            raise KeyError(name)
        return task


class ForeignPipelines:
    """
    `config.custom_pipelines` without the tasks that this package serves.

    `pipeline()` runs the code of a checkpoint, and asks the user to trust it, for each task found there. The stored
    value is whole and is saved as it is.
    """

    name = "custom_pipelines"

    def __get__(self, config: PreTrainedConfig | None, owner: type | None = None) -> Any:
        if config is None:
            return self
        stored = vars(config).get(self.name)
        if stored is None:
            raise AttributeError(f"{type(config).__name__!r} object has no attribute {self.name!r}")
        return {task: info for task, info in stored.items() if not is_served(task)}

    def __set__(self, config: PreTrainedConfig, value: dict[str, Any]):
        vars(config)[self.name] = value

    def __delete__(self, config: PreTrainedConfig):
        del vars(config)[self.name]


def task_of_family(name: object) -> str | None:
    if not isinstance(name, str):
        return None
    return next((task for pattern, task in TASK_FAMILIES.items() if pattern.fullmatch(name)), None)


def register_pipelines() -> tuple[str, ...]:
    """
    Make the tasks `translation`, `translation_de_to_en` and the like, and `summarization` work in `pipeline`.

    They take every encoder-decoder model.

    Checkpoints of this package that carry their own pipeline code are then served by the installed one, without
    `trust_remote_code`. Calling it again changes nothing.

    Returns:
        The tasks that `pipeline` now accepts. A warning names the others, for a version of Transformers whose task
        registry works differently; their classes can still be called with `model=` and `tokenizer=`.
    """
    for task, pipeline_class in TASKS.items():
        getattr(library, "REMOVED_TASKS", {}).pop(task, None)
        if not is_served(task):
            library.PIPELINE_REGISTRY.register_pipeline(
                task, pipeline_class, pt_model=AutoModelForSeq2SeqLM, type="text"
            )
            # Left there, it makes every folder that the pipeline saves, of any model, demand `trust_remote_code`.
            if "_registered_impl" in vars(pipeline_class):
                del pipeline_class._registered_impl
    aliases = getattr(library.PIPELINE_REGISTRY, "task_aliases", {})
    if not isinstance(aliases, TaskAliases):
        library.PIPELINE_REGISTRY.task_aliases = TaskAliases(aliases)
    DeepNMTConfig.custom_pipelines = ForeignPipelines()
    served = tuple(task for task in TASKS if is_served(task))
    missing = ", ".join(TASKS[task].__name__ for task in TASKS if task not in served)
    if missing:
        logger.warning(
            f"Transformers {transformers.__version__} keeps removed pipelines out in a way that is not known here: "
            f"instead of `pipeline(...)` call {missing} from `hf_deepnmt.models` with `model=` and `tokenizer=`"
        )
    return served


def is_served(task: str) -> bool:
    """Whether `pipeline(task)` of the library ends in the class of this package."""
    try:
        return task in TASKS and library.check_task(task)[1].get("impl") is TASKS[task]
    except KeyError:
        return False


__all__ = ["TASKS", "register_pipelines"]
