"""
A `Seq2SeqTrainer` for translation: token-budget batches, token-exact losses, BLEU on raw text while training.

What one run does depends on the batches of an optimizer step, not on how they are divided into processes and
accumulation steps, and an interrupted run continues bit by bit.
"""

from __future__ import annotations

import inspect
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import datasets
import numpy as np
import torch
from accelerate.utils import gather_object
from torch import nn
from torch.utils.data import DataLoader, IterableDataset
from transformers import (
    EarlyStoppingCallback,
    ProgressCallback,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    TrainerCallback,
)
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled
from transformers.integrations.fsdp import is_fsdp_managed_module
from transformers.trainer_callback import ExportableState, TrainerState
from transformers.trainer_utils import (
    EvalPrediction,
    PredictionOutput,
    SchedulerType,
    TrainOutput,
    get_last_checkpoint,
    speed_metrics,
)
from transformers.utils import logging

from .batching import Seq2SeqCollator, TokenBudgetBatchSampler, column_lengths
from .checkpoints import average_checkpoints, best_checkpoints, last_checkpoints
from .gradient_norms import GradientNormCallback
from .schedules import inverse_sqrt_schedule, noam_peak
from .tasks import TASKS, task_named


if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

logger = logging.get_logger(__name__)

IGNORED_LABEL = -100
BEST_SCORES = {"bleu": "BLEU", "rougeL": "ROUGE-L"}
# Scores that need text, of any task.
TEXT_SCORES = {score for task in TASKS.values() for score in task.scores}
AVERAGE_FOLDER = "averaged"
_HELPER_COLUMNS = {"source_length", "target_length"}
_DEFAULT_BATCH_SIZE = 8
_ADAM_NAMES = {"adamw_torch", "adamw_torch_fused"}


@dataclass
class DeepNMTTrainingArguments(Seq2SeqTrainingArguments):
    """
    `Seq2SeqTrainingArguments` with the defaults of the Transformer papers. Only what differs is listed.

    Args:
        max_tokens: padded tokens of one batch on one device, sentences x longest side. None gives batches of
            `per_device_train_batch_size` sentences in random order.
        max_sentences: most sentences in such a batch.
        learning_rate: the peak. Unset (or "noam"), it is `learning_rate_factor * (d_model * warmup_steps)^-0.5`.
        lr_scheduler_type: `inverse_sqrt` is the schedule of Vaswani et al. (2017, section 5.3), whose first update
            already has a rate above 0; the others are Transformers' own.
        task: `translation` or `summarization`, a key of `tasks.TASKS`; it decides the scores of evaluations.
        predict_with_generate: translate at each evaluation and log BLEU and chrF, or for summaries ROUGE. False leaves the
            loss.
        generation_num_beams: beams at evaluation, 1 is greedy.
        eval_max_tokens: budget of an evaluation batch, divided by the beams; unset, `max_tokens`.
        eval_max_sentences: translate at most so many sentences, evenly spaced over the set; None translates all. The
            loss is always that of the whole set.
        target_lang: code of the target language, for the words that scores count and to find the reference.
        encoder_l2: L2 penalty on the matrices of the encoder, not on its norms, biases and embeddings: `encoder_l2 * w` is
            added to their gradients before Adam sees them (Wei et al., 2020, Table 2: 1e-5 for 72 layers). It takes the
            place of `weight_decay`, which AdamW keeps out of the gradients, in these matrices only.
        gradient_norms: write the gradient norm of every layer into `output_dir/gradient_norms.jsonl` each so many updates,
            as they are before clipping; `deepnmt analyse gradients` draws them.
        sample_translations: translations shown at each evaluation (log level info).
        keep_last: checkpoints to keep; the same as `save_total_limit`.
        average_last, average_best: after training, average so many checkpoints into `output_dir/averaged`; `best` is
            by `metric_for_best_model`.
        early_stopping_patience: stop after so many evaluations without a better `metric_for_best_model`, which is BLEU,
            or for summaries ROUGE-L, unless set otherwise.

    Raises:
        ValueError: arguments contradict each other or would change the result without a word; says what to do.
    """

    max_tokens: int | None = field(default=4096, metadata={"help": "Padded tokens of a batch on one device."})
    max_sentences: int | None = field(default=None, metadata={"help": "Most sentences in a batch."})
    learning_rate: float | None = field(default=None, metadata={"help": "Peak rate; unset, the papers' formula."})
    learning_rate_factor: float = field(default=1.0, metadata={"help": "Factor of the papers' formula."})
    lr_scheduler_type: SchedulerType | str = field(default="inverse_sqrt", metadata={"help": "Schedule."})
    warmup_steps: float = field(default=4000, metadata={"help": "Updates of linear warm-up; below 1, a share."})
    adam_beta2: float = field(default=0.98, metadata={"help": "Beta2 of Adam."})
    adam_epsilon: float = field(default=1e-9, metadata={"help": "Epsilon of Adam."})
    use_cache: bool = field(default=True, metadata={"help": "What the saved config says; training needs no cache."})
    task: str = field(default="translation", metadata={"help": "translation or summarization."})
    predict_with_generate: bool = field(
        default=True, metadata={"help": "BLEU and chrF, or ROUGE, at each evaluation."}
    )
    generation_num_beams: int | None = field(default=1, metadata={"help": "Beams at evaluation."})
    eval_max_tokens: int | None = field(default=None, metadata={"help": "Padded tokens of an evaluation batch."})
    eval_max_sentences: int | None = field(default=500, metadata={"help": "Sentences translated at evaluation."})
    target_lang: str | None = field(default=None, metadata={"help": "Code of the target language."})
    encoder_l2: float = field(default=0.0, metadata={"help": "L2 penalty on the encoder's matrices."})
    gradient_norms: int | None = field(
        default=None, metadata={"help": "Updates between measurements of gradient norms."}
    )
    sample_translations: int = field(default=3, metadata={"help": "Translations shown at each evaluation."})
    keep_last: int | None = field(default=None, metadata={"help": "Checkpoints to keep."})
    average_last: int | None = field(default=None, metadata={"help": "Last checkpoints to average at the end."})
    average_best: int | None = field(default=None, metadata={"help": "Best checkpoints to average at the end."})
    early_stopping_patience: int | None = field(default=None, metadata={"help": "Evaluations without progress."})
    restore_callback_states_from_checkpoint: bool = field(
        default=True, metadata={"help": "Early stopping goes on counting after a restart."}
    )

    def __post_init__(self) -> None:
        if self.learning_rate == "noam":
            self.learning_rate = None
        if self.keep_last is not None:
            self._refuse(
                self.save_total_limit not in (None, self.keep_last), "`keep_last` is `save_total_limit`: set one"
            )
            self.save_total_limit = self.keep_last
        task = task_named(self.task)
        if self.metric_for_best_model is None and self.predict_with_generate and self._needs_metric():
            self.metric_for_best_model = f"eval_{task.best}"
        super().__post_init__()
        self._check_numbers()
        self._check_batching()
        self._check_rate()
        self._check_checkpoints()

    @staticmethod
    def _refuse(condition: bool, sentence: str) -> None:
        if condition:
            raise ValueError(sentence)

    def _needs_metric(self) -> bool:
        saves_best = str(self.save_strategy).endswith("best")
        return bool(self.early_stopping_patience or self.load_best_model_at_end or self.average_best or saves_best)

    def _check_numbers(self) -> None:
        names = ("max_tokens", "max_sentences", "eval_max_tokens", "eval_max_sentences", "keep_last")
        for name in (*names, "average_last", "average_best", "early_stopping_patience", "gradient_norms"):
            value = getattr(self, name)
            self._refuse(value is not None and value < 1, f"`{name}` must be at least 1 or unset, got {value}")
        self._refuse(self.encoder_l2 < 0, f"`encoder_l2` must not be negative, got {self.encoder_l2}")
        self._refuse(
            self.encoder_l2 > 0 and self.optim.value not in _ADAM_NAMES,
            f"`encoder_l2` is for Adam: set `optim` to one of {', '.join(sorted(_ADAM_NAMES))}",
        )

    def _check_batching(self) -> None:
        refuse, budget = self._refuse, self.max_tokens is not None
        refuse(
            self.label_smoothing_factor != 0,
            "`label_smoothing_factor` takes the labels from the model, and its further losses would vanish: set "
            "`label_smoothing` in the model's config instead",
        )
        refuse(self.dataloader_drop_last, "`dataloader_drop_last` loses sentences in every epoch: leave it False")
        refuse(
            budget and self.per_device_train_batch_size != _DEFAULT_BATCH_SIZE,
            "`per_device_train_batch_size` has no effect with `max_tokens`: leave it out, or set `max_tokens` to None",
        )
        refuse(
            budget and self.train_sampling_strategy != "random",
            "`train_sampling_strategy` has no effect with `max_tokens`, which sorts by length itself: leave it out, "
            "or set `max_tokens` to None",
        )
        refuse(
            budget and self.auto_find_batch_size,
            "`auto_find_batch_size` has no effect with `max_tokens`: lower `max_tokens` until a batch fits",
        )
        refuse(not budget and self.max_sentences is not None, "`max_sentences` has no effect without `max_tokens`")
        refuse(
            self.world_size > 1 and not self.average_tokens_across_devices,
            "`average_tokens_across_devices=False` would weigh tokens by process: leave it True",
        )

    def _check_rate(self) -> None:
        papers = self.lr_scheduler_type == SchedulerType.INVERSE_SQRT
        self._refuse(
            self.learning_rate is None and (not papers or self.warmup_steps < 1),
            "`learning_rate` unset means the papers' formula, which needs `lr_scheduler_type='inverse_sqrt'` and "
            "`warmup_steps` as a number of updates: set the rate or those",
        )
        self._refuse(
            self.learning_rate is not None and self.learning_rate_factor != 1.0,
            "`learning_rate_factor` belongs to an unset `learning_rate`: set one of the two",
        )
        self._refuse(
            papers and bool(self.lr_scheduler_kwargs),
            "`lr_scheduler_kwargs` has no effect on the schedule `inverse_sqrt`: leave it out",
        )

    def _check_checkpoints(self) -> None:
        refuse, saves = self._refuse, self.save_strategy != "no"
        for name in ("average_last", "average_best"):
            refuse(bool(getattr(self, name)) and not saves, f"`{name}` needs checkpoints: set `save_strategy`")
        limit = self.save_total_limit
        refuse(
            bool(self.average_last) and limit is not None and limit < self.average_last,
            f"`average_last={self.average_last}` needs that many checkpoints, but `save_total_limit` keeps {limit}",
        )
        refuse(
            bool(self.average_best) and limit is not None,
            "`average_best` needs all checkpoints until the end: leave `keep_last` and `save_total_limit` out",
        )
        metric = self.metric_for_best_model or ""
        evaluates = self.eval_strategy != "no"
        for name in ("average_best", "early_stopping_patience"):
            refuse(bool(getattr(self, name)) and not evaluates, f"`{name}` needs evaluations: set `eval_strategy`")
        refuse(
            metric.removeprefix("eval_") in TEXT_SCORES and not self.predict_with_generate,
            f"`metric_for_best_model='{metric}'` needs translations: set `predict_with_generate=True`",
        )

    @property
    def evaluation_budget(self) -> int:
        return self.eval_max_tokens or self.max_tokens or 4096


class TranslationProgressCallback(ProgressCallback):
    """Progress bars that show loss and speed, with one bar for each pass of an evaluation."""

    def __init__(self, max_str_len: int = 100) -> None:
        super().__init__(max_str_len)
        self.shown: Any = None

    def on_prediction_step(self, args, state, control, eval_dataloader=None, **kwargs) -> None:
        if self.shown is not eval_dataloader and self.prediction_bar is not None:
            self.prediction_bar.close()
            self.prediction_bar = None
        self.shown = eval_dataloader
        super().on_prediction_step(args, state, control, eval_dataloader=eval_dataloader, **kwargs)

    def on_log(self, args, state, control, logs=None, **kwargs) -> None:
        if self.training_bar is None or logs is None or "loss" not in logs:
            super().on_log(args, state, control, logs=logs, **kwargs)
            return
        shown = {"loss": f"{logs['loss']:.3f}"}
        if "tokens_per_second" in logs:
            shown["tok/s"] = f"{logs['tokens_per_second']:.0f}"
        self.training_bar.set_postfix(shown)


class DataOrderCallback(TrainerCallback, ExportableState):
    """Keeps in each checkpoint what the order of the training data depends on."""

    def __init__(self, order: dict[str, Any] | None = None) -> None:
        self.order = order

    def state(self) -> dict:
        return {"args": {"order": self.order}, "attributes": {}}


class EpochDataLoader(DataLoader):
    """A loader whose batch sampler is told the epoch by the Trainer."""

    def set_epoch(self, epoch: int) -> None:
        self.batch_sampler.set_epoch(epoch)


class _Window:
    """Sums since the last log, kept on the device so that no step waits for them."""

    NAMES = ("loss", "nll_loss", "auxiliary_loss", "consistency_loss")

    def __init__(self, device: torch.device) -> None:
        self.sums = torch.zeros(len(self.NAMES) + 1, device=device)
        self.seen: set[str] = set()
        self.tokens = 0
        self.since = time.perf_counter()

    def add(
        self, values: Mapping[str, torch.Tensor | None], share: torch.Tensor | float, tokens: torch.Tensor
    ) -> None:
        """`values` are sums divided by the update's `share` tokens, of which `tokens` are in this batch."""
        for index, name in enumerate(self.NAMES):
            if values.get(name) is not None:
                self.sums[index] += values[name].detach() * share
                self.seen.add(name)
        self.sums[-1] += tokens


@dataclass
class _Scores:
    """What an evaluation found, over all processes."""

    metrics: dict[str, float]
    rows: list[int]
    ids: list[list[int]]
    signatures: dict[str, str] = field(default_factory=dict)


class DeepNMTTrainer(Seq2SeqTrainer):
    """
    `Seq2SeqTrainer` whose data sets hold `input_ids` and `labels`, and for BLEU the raw `translation`.

    Works with any encoder-decoder model that returns a loss. A model with `accepts_loss_kwargs = True` divides its
    loss by `num_items_in_batch` itself; the loss of any other is taken for the mean over its batch's tokens.

    Args:
        data_collator: unset, a `Seq2SeqCollator`. One with `extra_columns` declares the further training columns.

    Raises:
        ValueError: data, tokenizer or arguments do not fit the model; says what to do.
    """

    def __init__(
        self,
        model: Any = None,
        args: DeepNMTTrainingArguments | None = None,
        data_collator: Any = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        processing_class: PreTrainedTokenizerBase | None = None,
        **kwargs: Any,
    ) -> None:
        args = DeepNMTTrainingArguments() if args is None else args
        if not isinstance(args, DeepNMTTrainingArguments):
            raise TypeError(f"args must be DeepNMTTrainingArguments, got {type(args).__name__}")
        datasets_given = {"train_dataset": train_dataset, "eval_dataset": eval_dataset}
        super().__init__(
            model=model,
            args=args,
            data_collator=data_collator,
            processing_class=processing_class,
            **datasets_given,
            **kwargs,
        )
        if args.n_gpu > 1:
            raise ValueError(f"{args.n_gpu} GPUs in one process: start one process per GPU with `accelerate launch`")
        check_vocabulary(self.model, processing_class)
        if data_collator is None:
            self.data_collator = Seq2SeqCollator(self.model.config.pad_token_id)
        self.model_divides_loss = bool(getattr(self.model, "accepts_loss_kwargs", False))
        inputs = inspect.signature(self.model.forward).parameters
        self._lean = {"output_logits": False} if "output_logits" in inputs else {}
        # The count of tokens over the whole step is needed with every model, and every loss is divided by it.
        self.model_accepts_loss_kwargs = self.loss_is_scaled_for_ga = True
        if args.learning_rate is None:
            args.learning_rate = noam_peak(
                self.model.config.d_model, int(args.warmup_steps), args.learning_rate_factor
            )
        self._window: _Window | None = None
        self._train_sampler: TokenBudgetBatchSampler | None = None
        self._ignored: set[tuple[str, ...]] = set()
        self._add_callbacks()
        if train_dataset is not None and not (args.max_tokens is None and _is_stream(train_dataset)):
            self.training_columns(train_dataset)
        metric = (args.metric_for_best_model or "").removeprefix("eval_")
        if metric in TEXT_SCORES and processing_class is None:
            raise ValueError(f"`metric_for_best_model` is {metric}, which needs a tokenizer: pass `processing_class`")

    def _add_callbacks(self) -> None:
        if self.pop_callback(ProgressCallback) is not None:
            self.add_callback(TranslationProgressCallback)
        patience = self.args.early_stopping_patience
        if patience is not None:
            self.add_callback(EarlyStoppingCallback(early_stopping_patience=patience))
        if self.args.gradient_norms is not None:
            self.add_callback(GradientNormCallback(self.args.gradient_norms))
        self.add_callback(DataOrderCallback)

    # --- data ---

    def training_columns(self, dataset: Any) -> list[str]:
        """
        The columns that go into the model. Text and helper columns are left out, which is logged once.

        Raises:
            ValueError: a column of numbers would be lost on its way to the model.
        """
        if _is_stream(dataset):
            raise ValueError("the training data must have a length: collect the stream with `Dataset.from_generator`")
        names, text = _columns(dataset)
        self._set_signature_columns_if_needed()
        accepted = {"input_ids", "attention_mask", "labels", *self._signature_columns}
        collator = self.data_collator
        known = set(collator.columns) if isinstance(collator, Seq2SeqCollator) else accepted
        ignored = text | _HELPER_COLUMNS | set(getattr(collator, "ignored_columns", ()))
        for name in names:
            if name in ignored and name not in known:
                continue
            if name not in accepted:
                raise ValueError(
                    f"column {name!r} is no input of {type(self.model).__name__}.forward and would never reach it: "
                    "remove it from the data set, or use a model that takes it"
                )
            if name not in known:
                raise ValueError(
                    f"column {name!r} needs a pad value: pass data_collator=Seq2SeqCollator(pad_token_id, "
                    f"extra_columns={{{name!r}: ...}})"
                )
        used = [name for name in names if name in known]
        self._report_ignored(tuple(name for name in names if name not in used))
        return used

    def _report_ignored(self, names: tuple[str, ...]) -> None:
        if names and names not in self._ignored:
            self._ignored.add(names)
            logger.info(f"Columns that are not for the model: {', '.join(names)}")

    def _loader(self, dataset: Any, batches: Any, loader_class: type[DataLoader] = DataLoader) -> DataLoader:
        """A loader with its own random generator, so that making it leaves the state of dropout alone."""
        args, columns = self.args, self.training_columns(dataset)
        collate = self.data_collator
        if isinstance(dataset, datasets.Dataset):
            dataset = dataset.select_columns(columns)
        else:
            collate = partial(_collate_columns, collate, tuple(columns))
        return loader_class(
            dataset,
            batch_sampler=batches,
            collate_fn=collate,
            num_workers=args.dataloader_num_workers,
            pin_memory=args.dataloader_pin_memory and torch.cuda.is_available(),
            persistent_workers=args.dataloader_persistent_workers and loader_class is EpochDataLoader,
            prefetch_factor=args.dataloader_prefetch_factor,
            generator=torch.Generator().manual_seed(args.seed),
        )

    def train_sampler(self) -> TokenBudgetBatchSampler:
        """The batches of this process; made once, from the lengths of the training data."""
        if self._train_sampler is None:
            args = self.args
            self.training_columns(self.train_dataset)
            self._train_sampler = TokenBudgetBatchSampler(
                column_lengths(self.train_dataset, "input_ids"),
                column_lengths(self.train_dataset, "labels"),
                args.max_tokens,
                max_sentences=args.max_sentences,
                seed=args.seed if args.data_seed is None else args.data_seed,
                group_size=args.world_size * args.gradient_accumulation_steps,
                rank=args.process_index,
                world_size=args.world_size,
                pad_to_multiple_of=getattr(self.data_collator, "pad_to_multiple_of", None),
            )
            share = self._train_sampler.padding_share()
            logger.info(f"{len(self._train_sampler)} batches per process and epoch, {share:.2%} of it padding")
        return self._train_sampler

    def get_train_dataloader(self) -> DataLoader:
        if self.train_dataset is None:
            raise ValueError("training needs a `train_dataset`")
        if self.args.max_tokens is None:
            return super().get_train_dataloader()
        return self._loader(self.train_dataset, self.train_sampler(), EpochDataLoader)

    def set_initial_training_values(self, args: Any, dataloader: DataLoader) -> tuple:
        epochs, updates, examples, samples, batch, steps, max_steps = super().set_initial_training_values(
            args, dataloader
        )
        if args.max_tokens is not None:
            samples = max_steps * examples / updates
            batch = round(examples / updates)
        return epochs, updates, examples, samples, batch, steps, max_steps

    # --- training ---

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """
        As in Transformers; a checkpoint continues exactly where it was written.

        Raises:
            ValueError: the checkpoint's run had other data, batches or seed, or `output_dir` holds another run's
                checkpoints that would be averaged with this one's.
        """
        if resume_from_checkpoint is True:
            resume_from_checkpoint = get_last_checkpoint(self.args.output_dir)
            if resume_from_checkpoint is None:
                raise ValueError(f"{self.args.output_dir} holds no checkpoint to resume from: start without it")
        self._check_start(resume_from_checkpoint or None)
        result = self._finished(resume_from_checkpoint or None) or super().train(
            resume_from_checkpoint or None, *args, **kwargs
        )
        self.accelerator.wait_for_everyone()
        if self.is_world_process_zero():
            self.average()
        self.accelerator.wait_for_everyone()
        return result

    def _finished(self, checkpoint: str | None) -> TrainOutput | None:
        """The outcome of a checkpoint that has all its updates, loaded; Transformers would make one more."""
        file = Path(checkpoint or "", "trainer_state.json")
        if checkpoint is None or not file.is_file():
            return None
        state, args = TrainerState.load_from_json(str(file)), self.args
        planned = args.max_steps
        if planned <= 0 and state.num_train_epochs == math.ceil(args.num_train_epochs):
            planned = state.max_steps
        if planned <= 0 or state.global_step < planned:
            return None
        logger.warning(f"{checkpoint} has all {planned} updates: nothing is left to train")
        self._load_from_checkpoint(checkpoint)
        self.state = state
        return TrainOutput(state.global_step, math.nan, {})

    def _check_start(self, checkpoint: str | None) -> None:
        averages = self.args.average_last or self.args.average_best
        if checkpoint is None and averages and last_checkpoints(self.args.output_dir, 1):
            raise ValueError(
                f"{self.args.output_dir} holds checkpoints of an earlier run, which would be averaged with new ones: "
                "resume with resume_from_checkpoint=True, or choose another output_dir"
            )
        if self.args.max_tokens is None or self.train_dataset is None:
            return
        sampler = self.train_sampler()
        order = {
            "max_tokens": sampler.max_tokens,
            "max_sentences": sampler.max_sentences,
            "seed": sampler.seed,
            "batches_per_update": sampler.group_size,
            "pairs": len(sampler.source_lengths),
            "tokens": int(sampler.source_lengths.sum() + sampler.target_lengths.sum()),
        }
        next(c for c in self.callback_handler.callbacks if isinstance(c, DataOrderCallback)).order = order
        state = Path(checkpoint or "", "trainer_state.json")
        if checkpoint is not None and state.is_file() and not self.args.ignore_data_skip:
            saved = TrainerState.load_from_json(str(state)).stateful_callbacks.get(DataOrderCallback.__name__, {})
            _check_same_order((saved.get("args") or {}).get("order") or order, order, checkpoint)

    def _load_callback_state(self) -> None:
        super()._load_callback_state()
        for callback in self.callback_handler.callbacks:
            # Transformers cannot save a callback that the resumed checkpoint did not have
            if isinstance(callback, ExportableState):
                self.state.stateful_callbacks.setdefault(type(callback).__name__, callback.state())

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """As in Transformers; with `encoder_l2`, the encoder's matrices are a group whose decay goes through Adam."""
        if self.optimizer is None and self.args.encoder_l2 > 0:
            self.optimizer = self._optimizer_with_encoder_l2(self.model if model is None else model)
        return super().create_optimizer(model)

    def _optimizer_with_encoder_l2(self, model: nn.Module) -> torch.optim.Optimizer:
        args = self.args
        penalised = {id(matrix) for matrix in encoder_matrices(model)}
        decayed = set(self.get_decay_parameter_names(model))
        groups: dict[str, list[nn.Parameter]] = {"penalised": [], "decayed": [], "free": []}
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                kind = "penalised" if id(parameter) in penalised else "decayed" if name in decayed else "free"
                groups[kind].append(parameter)
        _, options = self.get_optimizer_cls_and_kwargs(args, model)
        # AdamW is Adam with this one switch on, but sets it in all groups whenever a checkpoint is loaded
        decay = {
            "penalised": {"weight_decay": args.encoder_l2, "decoupled_weight_decay": False},
            "decayed": {"weight_decay": args.weight_decay, "decoupled_weight_decay": True},
            "free": {"weight_decay": 0.0, "decoupled_weight_decay": True},
        }
        return torch.optim.Adam([{"params": groups[kind], **decay[kind]} for kind in groups], **options)

    def create_scheduler(self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None) -> Any:
        if self.lr_scheduler is None and self.args.lr_scheduler_type == SchedulerType.INVERSE_SQRT:
            warmup = self.args.get_warmup_steps(num_training_steps)
            self.lr_scheduler = inverse_sqrt_schedule(self.optimizer if optimizer is None else optimizer, warmup)
            self._created_lr_scheduler = True
        return super().create_scheduler(num_training_steps, optimizer)

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, torch.Tensor],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> Any:
        """Sum over real target tokens divided by `num_items_in_batch`, those of the whole optimizer step."""
        if self.compute_loss_func is not None or num_items_in_batch is None or "labels" not in inputs:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        tokens = inputs["labels"].ne(IGNORED_LABEL).sum()
        total = torch.as_tensor(num_items_in_batch, device=tokens.device)
        counts = {"num_items_in_batch": total} if self.model_divides_loss else {}
        outputs = model(**inputs, **counts)
        values = {name: _output(outputs, name) for name in _Window.NAMES}
        if not self.model_divides_loss:
            values = {name: None if value is None else value * (tokens / total) for name, value in values.items()}
        if self.is_in_train and model.training:
            if self._window is None:
                self._window = _Window(tokens.device)
            self._window.add(values, total, tokens)
        # DistributedDataParallel averages the gradients of the processes, each of which holds its part of the sum.
        loss = values["loss"] * self.accelerator.num_processes
        return (loss, outputs) if return_outputs else loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Training logs get the losses as means over the tokens since the last log, and the speed in target tokens."""
        if "loss" in logs and self._window is not None:
            window, self._window = self._window, _Window(self.args.device)
            *sums, tokens = self.accelerator.reduce(window.sums, reduction="sum").tolist()
            for name, total in zip(_Window.NAMES, sums, strict=True):
                if name in window.seen:
                    logs[name] = total / max(1.0, tokens)
            logs["tokens_per_second"] = tokens / max(1e-9, time.perf_counter() - window.since)
        super().log(logs, start_time)

    def _get_grad_norm(self, model: nn.Module, grad_norm: Any = None) -> Any:
        norm = super()._get_grad_norm(model, grad_norm)
        for callback in self.callback_handler.callbacks:
            if isinstance(callback, GradientNormCallback):
                callback.norm_before_clipping = grad_norm
        return norm

    def average(self) -> Path | None:
        """Average the checkpoints that `average_best` or `average_last` asks for into `output_dir/averaged`."""
        args = self.args
        wanted = args.average_best or args.average_last
        if not wanted:
            return None
        if args.average_best:
            metric = f"eval_{args.metric_for_best_model.removeprefix('eval_')}"
            chosen = best_checkpoints(args.output_dir, wanted, metric, args.greater_is_better)
        else:
            chosen = last_checkpoints(args.output_dir, wanted)
        if len(chosen) < wanted:
            logger.warning(f"{wanted} checkpoints were to be averaged, the run has {len(chosen)}")
        return average_checkpoints(chosen, Path(args.output_dir) / AVERAGE_FOLDER) if chosen else None

    # --- evaluation ---

    def evaluate(
        self,
        eval_dataset: Any = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
        **gen_kwargs: Any,
    ) -> dict[str, float]:
        """
        Loss and perplexity per target token without smoothing, over the whole set, and the scores of the task's outputs.

        Each sentence is read and translated once, on one of the processes. Scores are against the raw text in
        `translation`. The random state, train or eval mode and `generation_config` are as before afterwards, so
        evaluating more often does not change the training.

        Args:
            gen_kwargs: for `generate`; they go before the arguments, which go before the model's `generation_config`.
        """
        override = eval_dataset is not None
        dataset = eval_dataset if override else self.eval_dataset
        if isinstance(dataset, dict):
            metrics: dict[str, float] = {}
            for name, part in dataset.items():
                prefix = f"{metric_key_prefix}_{name}"
                metrics.update(self.evaluate(part if override else name, ignore_keys, prefix, **gen_kwargs))
            return metrics
        if isinstance(dataset, str):
            dataset = self.eval_dataset[dataset]
        if dataset is None:
            raise ValueError("evaluation needs an `eval_dataset`")
        self._memory_tracker.start()
        started = time.perf_counter()
        scored = self.processing_class is not None or self.compute_metrics is not None
        most = self.args.eval_max_sentences if scored else 0
        scores = self._score(dataset, metric_key_prefix, gen_kwargs, most)
        self.log(scores.metrics)
        self.state.log_history[-1].update(scores.signatures)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, scores.metrics)
        self._memory_tracker.stop_and_update_metrics(scores.metrics)
        if self._window is not None:
            self._window.since += time.perf_counter() - started
        return {**scores.metrics, **scores.signatures}

    def predict(
        self,
        test_dataset: Any,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "test",
        **gen_kwargs: Any,
    ) -> PredictionOutput:
        """
        Translations of all rows, with the metrics of `evaluate` where there are labels.

        Returns:
            `predictions` and `label_ids` as id arrays (rows, longest), in the order of the data set.
        """
        self._memory_tracker.start()
        scores = self._score(test_dataset, metric_key_prefix, gen_kwargs, None)
        self.control = self.callback_handler.on_predict(self.args, self.state, self.control, scores.metrics)
        self._memory_tracker.stop_and_update_metrics(scores.metrics)
        predictions = _id_array(scores.ids, self.model.config.pad_token_id) if scores.ids else None
        labels = _id_array(_values(test_dataset, "labels"), IGNORED_LABEL) if _has(test_dataset, "labels") else None
        return PredictionOutput(predictions, labels, {**scores.metrics, **scores.signatures})

    def _score(self, dataset: Any, prefix: str, gen_kwargs: dict[str, Any], most: int | None) -> _Scores:
        start, rows, ids = time.time(), [], []
        metrics: dict[str, float] = {}
        signatures: dict[str, str] = {}
        with self._evaluation_mode():
            if _has(dataset, "labels"):
                metrics.update(self._losses(dataset))
            if self.args.predict_with_generate and not self.args.prediction_loss_only and most != 0:
                rows = _spread_rows(len(dataset), most)
                ids = self._translate(dataset, rows, gen_kwargs)
                metrics["sentences_translated"] = len(rows)
                signatures = self._translation_scores(dataset, rows, ids, metrics)
        metrics = {f"{prefix}_{name.removeprefix(f'{prefix}_')}": value for name, value in metrics.items()}
        metrics.update(speed_metrics(prefix, start, num_samples=len(dataset)))
        return _Scores(metrics, rows, ids, {f"{prefix}_{name}": value for name, value in signatures.items()})

    @contextmanager
    def _evaluation_mode(self) -> Iterator[None]:
        """Evaluation mode of model and optimizer, autocast and a copy of the random state, all undone at the end."""
        model, args = self.model, self.args
        training = model.training
        if not self.is_in_train and (args.fp16_full_eval or args.bf16_full_eval):
            model.to(dtype=torch.float16 if args.fp16_full_eval else torch.bfloat16, device=args.device)
        averages = [
            mode for mode in (getattr(self.optimizer, name, None) for name in ("eval", "train")) if callable(mode)
        ]
        devices = [args.device] if args.device.type == "cuda" else []
        loader = self.callback_handler.eval_dataloader
        model.eval()
        if len(averages) == 2:
            averages[0]()
        try:
            with torch.no_grad(), torch.random.fork_rng(devices), self.accelerator.autocast():
                yield
        finally:
            model.train(training)
            if len(averages) == 2 and training:
                averages[1]()
            self.callback_handler.eval_dataloader = loader

    def _shard(self, lengths: tuple[np.ndarray, np.ndarray], budget: int) -> list[list[int]]:
        """This process's batches of positions, longest first so that a lack of memory shows at once."""
        world = self.args.world_size
        longest = int(max(side.max() for side in lengths))
        group = world if len(lengths[0]) >= world else 1
        sampler = TokenBudgetBatchSampler(*lengths, max(budget, longest), shuffle=False, group_size=group)
        return [rows.tolist() for rows in sampler.batches()[::-1][self.args.process_index :: world]]

    def _batches(self, dataset: Any, batches: list[list[int]]) -> Iterator[tuple[list[int], dict[str, torch.Tensor]]]:
        loader = self._loader(dataset, batches)
        self.callback_handler.eval_dataloader = loader
        for rows, batch in zip(batches, loader, strict=True):
            yield rows, self._prepare_inputs(batch)
            self.control = self.callback_handler.on_prediction_step(self.args, self.state, self.control)

    def _losses(self, dataset: Any) -> dict[str, float]:
        lengths = column_lengths(dataset, "input_ids"), column_lengths(dataset, "labels")
        sums, seen = torch.zeros(3, dtype=torch.float64), False
        for _, batch in self._batches(dataset, self._shard(lengths, self.args.evaluation_budget)):
            outputs = self.model(**batch, **self._lean)
            tokens = batch["labels"].ne(IGNORED_LABEL).sum()
            nll, auxiliary = _output(outputs, "nll_loss"), _output(outputs, "auxiliary_loss")
            loss = _output(outputs, "loss") if nll is None else nll
            seen = seen or auxiliary is not None
            means = torch.stack([loss.float(), torch.zeros_like(loss) if auxiliary is None else auxiliary.float()])
            sums += torch.cat([means * tokens, tokens[None].float()]).double().cpu()
        # Sums of all processes in double precision, which not every device has.
        loss_sum, auxiliary_sum, tokens, seen = np.sum(gather_object([[*sums.tolist(), seen]]), axis=0).tolist()
        mean = loss_sum / max(1.0, tokens)
        metrics = {"loss": mean, "ppl": math.exp(min(mean, 700.0)), "tokens": int(tokens)}
        return {**metrics, "auxiliary_loss": auxiliary_sum / max(1.0, tokens)} if seen else metrics

    def _translate(self, dataset: Any, rows: list[int], gen_kwargs: dict[str, Any]) -> list[list[int]]:
        """Target ids of `rows`, without padding, the same on every process."""
        options = self._generation_options(gen_kwargs)
        limit = self._length_limit(options)
        lengths = column_lengths(dataset, "input_ids")
        sources = lengths[rows]
        budget = self.args.evaluation_budget // max(1, options.get("num_beams") or 1)
        batches = [[rows[place] for place in batch] for batch in self._shard((sources, sources), budget)]
        translated: list[tuple[int, list[int]]] = []
        for batch_rows, batch in self._batches(dataset, batches):
            source = {name: batch[name] for name in ("input_ids", "attention_mask") if name in batch}
            widest = limit and {"max_length": limit(source["input_ids"].shape[1])}
            output = self.model.generate(**source, **(widest or {}), **options)
            for row, ids in zip(batch_rows, output.tolist(), strict=True):
                # cut to what the sentence may have alone, so that its neighbours in the batch do not matter
                kept = ids[: limit(lengths[row])] if limit else ids
                translated.append((row, _without_padding(kept, self.model.config.pad_token_id)))
        by_row = dict(gather_object(translated))
        return [by_row[row] for row in rows]

    def _generation_options(self, gen_kwargs: dict[str, Any]) -> dict[str, Any]:
        options = {name: value for name, value in gen_kwargs.items() if value is not None}
        if self.args.generation_max_length is not None and not {"max_length", "max_new_tokens"} & set(options):
            options["max_length"] = self.args.generation_max_length
        if self.args.generation_num_beams is not None:
            options.setdefault("num_beams", self.args.generation_num_beams)
        options.setdefault("synced_gpus", is_deepspeed_zero3_enabled() or is_fsdp_managed_module(self.model))
        return options

    def _length_limit(self, options: Mapping[str, Any]) -> Callable[[int], int] | None:
        """Most ids for a source of n tokens, those of the pipeline and the start; None where caller or model states some."""
        config, table = self.model.generation_config, getattr(self.model.config, "max_position_embeddings", None)
        stated = config.max_new_tokens is not None or config.max_length not in (None, table)
        if stated or {"max_length", "max_new_tokens"} & set(options):
            return None
        new_tokens = task_named(self.args.task).pipeline.unstated_limits
        return lambda tokens: min(new_tokens(int(tokens)) + 1, table or sys.maxsize)

    def _translation_scores(
        self, dataset: Any, rows: list[int], ids: list[list[int]], metrics: dict[str, float]
    ) -> dict[str, str]:
        """Adds the scores to `metrics` and returns the signatures."""
        labels = _values(dataset, "labels", rows) if _has(dataset, "labels") else None
        if self.compute_metrics is not None:
            arrays = _id_array(ids, self.model.config.pad_token_id), labels and _id_array(labels, IGNORED_LABEL)
            metrics.update(self.compute_metrics(EvalPrediction(*arrays)))
        metrics["gen_len"] = float(np.mean([len(row) for row in ids]))
        references = self._references(dataset, rows, labels)
        if references is None:
            return {}
        hypotheses = self.processing_class.batch_decode(ids, skip_special_tokens=True)
        scores = task_named(self.args.task).validate(hypotheses, references, target_lang=self.args.target_lang)
        metrics.update({name: score["score"] for name, score in scores.items()})
        self._show_samples(dataset, rows, hypotheses, references)
        return {f"{name}_signature": score["signature"] for name, score in scores.items()}

    def _references(self, dataset: Any, rows: list[int], labels: list[list[int]] | None) -> list[str] | None:
        if self.processing_class is None:
            return None
        if _has(dataset, "translation"):
            return [_reference(pair, self.args.target_lang) for pair in _values(dataset, "translation", rows)]
        if labels is None:
            return None
        logger.warning_once(
            "Scores are against decoded labels, not raw text: keep the `translation` column in the evaluation data"
        )
        return self.processing_class.batch_decode(
            [_without_padding(row, IGNORED_LABEL) for row in labels], skip_special_tokens=True
        )

    def _show_samples(self, dataset: Any, rows: list[int], hypotheses: list[str], references: list[str]) -> None:
        for place in (
            _spread_rows(len(rows), self.args.sample_translations or None) if self.args.sample_translations else []
        ):
            logger.info(f"Row {rows[place]}\n  reference:   {references[place]}\n  translation: {hypotheses[place]}")


def encoder_matrices(model: nn.Module) -> list[nn.Parameter]:
    """All trained parameters of more than one dimension in the encoder that are not embeddings."""
    return [
        parameter
        for module in model.get_encoder().modules()
        if not isinstance(module, nn.Embedding)
        for parameter in module.parameters(recurse=False)
        if parameter.dim() > 1 and parameter.requires_grad
    ]


def check_vocabulary(model: nn.Module, tokenizer: Any) -> None:
    """
    Raises:
        ValueError: the tokenizer has ids that an embedding has no row for, or other padding or end ids than the model.
    """
    if tokenizer is None or not hasattr(tokenizer, "__len__"):
        return
    target = getattr(tokenizer, "target_vocab_size", None)
    sizes = {"source": len(tokenizer), "target": len(tokenizer) if target is None else target}
    outputs = model.get_output_embeddings()
    rows = {"source": model.get_input_embeddings().weight.shape[0]}
    rows["target"] = rows["source"] if outputs is None else outputs.weight.shape[0]
    for side, size in sizes.items():
        if size > rows[side]:
            raise ValueError(
                f"the tokenizer has {size} {side} tokens but the model {rows[side]} {side} embeddings: make the model "
                "with the tokenizer's size, or call `model.resize_token_embeddings`"
            )
    for name in ("pad_token_id", "eos_token_id"):
        own, other = getattr(model.config, name), getattr(tokenizer, name)
        if other != own and other not in (own if isinstance(own, list) else [own]):
            raise ValueError(f"{name} is {other} in the tokenizer but {own} in the model's config: make them equal")


def _check_same_order(saved: Mapping[str, Any], order: Mapping[str, Any], checkpoint: str) -> None:
    for name, value in order.items():
        if saved.get(name) != value:
            raise ValueError(
                f"{checkpoint} was trained with {name}={saved.get(name)}, now it is {value}: some pairs would be seen "
                "twice and others never. Restore it, or pass ignore_data_skip=True to start the epoch anew"
            )


def _collate_columns(collator: Any, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Any:
    return collator([{name: row[name] for name in columns if name in row} for row in rows])


def _is_stream(dataset: Any) -> bool:
    return isinstance(dataset, (IterableDataset, datasets.IterableDataset))


def _columns(dataset: Any) -> tuple[list[str], set[str]]:
    """All columns, and those that hold text."""
    if isinstance(dataset, datasets.Dataset):
        return dataset.column_names, {name for name, kind in dataset.features.items() if _is_text_feature(kind)}
    row = dataset[0] if len(dataset) else {}
    return list(row), {name for name, value in row.items() if isinstance(value, (str, Mapping))}


def _is_text_feature(feature: Any) -> bool:
    if isinstance(feature, datasets.Value):
        return feature.dtype in ("string", "large_string")
    if isinstance(feature, (datasets.Translation, datasets.TranslationVariableLanguages)):
        return True
    if isinstance(feature, datasets.List):
        return _is_text_feature(feature.feature)
    return isinstance(feature, dict) and all(map(_is_text_feature, feature.values()))


def _has(dataset: Any, column: str) -> bool:
    return column in _columns(dataset)[0]


def _values(dataset: Any, column: str, rows: Sequence[int] | None = None) -> list[Any]:
    rows = range(len(dataset)) if rows is None else rows
    if isinstance(dataset, datasets.Dataset):
        return list(dataset.select_columns([column]).select(rows)[column])
    return [dataset[row][column] for row in rows]


def _reference(pair: Mapping[str, str], target_lang: str | None) -> str:
    """The target side of `{source language: ..., target language: ...}`: the one named, else the second."""
    if target_lang is not None and target_lang not in pair:
        raise ValueError(f"`translation` has the languages {', '.join(pair)}, not target_lang={target_lang!r}: set it")
    return pair[target_lang] if target_lang is not None else list(pair.values())[-1]


def _spread_rows(rows: int, most: int | None) -> list[int]:
    if most is None or most >= rows:
        return list(range(rows))
    return np.linspace(0, rows - 1, most).round().astype(int).tolist()


def _without_padding(ids: Sequence[int], pad: int | None) -> list[int]:
    ids = list(ids)
    while len(ids) > 1 and ids[-1] == pad:
        ids.pop()
    return ids


def _id_array(rows: Sequence[Sequence[int]], fill: int) -> np.ndarray:
    array = np.full((len(rows), max((len(row) for row in rows), default=0)), fill, dtype=np.int64)
    for place, row in enumerate(rows):
        array[place, : len(row)] = row
    return array


def _output(outputs: Any, name: str) -> torch.Tensor | None:
    if isinstance(outputs, Mapping):
        return outputs.get(name)
    return outputs[0] if name == "loss" else None


def plot_learning_curve(history: Sequence[Mapping[str, Any]] | str | Path, path: str | Path) -> Path:
    """
    Draw training loss, validation loss and BLEU, or ROUGE-L, over the updates into an image file.

    Args:
        history: `trainer.state.log_history`, a `trainer_state.json`, or a folder that holds one.

    Raises:
        ValueError: there is nothing to draw.
    """
    # not through pyplot, whose backend belongs to the caller
    from matplotlib.figure import Figure

    if isinstance(history, (str, Path)):
        file = Path(history) / "trainer_state.json" if Path(history).is_dir() else Path(history)
        history = json.loads(file.read_text(encoding="utf-8"))["log_history"]
    best = next((name for name in BEST_SCORES if any(f"eval_{name}" in row for row in history)), "bleu")
    label = BEST_SCORES[best]
    names = {"loss": "training loss", "eval_loss": "validation loss", f"eval_{best}": f"validation {label}"}
    series = {name: [(row["step"], row[name]) for row in history if name in row] for name in names}
    if not any(series.values()):
        raise ValueError("the history has neither losses nor BLEU or ROUGE-L: set `logging_steps` or `eval_strategy`")
    figure = Figure(figsize=(7, 4), layout="constrained")
    losses = figure.subplots()
    scores = losses.twinx()
    for (name, label), color in zip(names.items(), ("tab:blue", "tab:orange", "tab:green"), strict=True):
        axis = scores if name == f"eval_{best}" else losses
        axis.plot(*zip(*series[name], strict=True) if series[name] else ([], []), label=label, color=color)
    losses.set(xlabel="updates", ylabel="loss per target token (nats)")
    scores.set_ylabel(label)
    figure.legend(loc="outside upper center", ncols=len(names))
    figure.savefig(path, dpi=150)
    return Path(path)


__all__ = [
    "DeepNMTTrainer",
    "DeepNMTTrainingArguments",
    "TranslationProgressCallback",
    "check_vocabulary",
    "encoder_matrices",
    "plot_learning_curve",
]
