"""`Seq2SeqTrainer` for translation: token-budget batches, exact losses, validation by translating."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from datasets import Dataset
from torch.utils.data import DataLoader
from transformers import EarlyStoppingCallback, Seq2SeqTrainer, Seq2SeqTrainingArguments
from transformers.trainer_callback import PrinterCallback, ProgressCallback
from transformers.utils import logging

from .batching import Seq2SeqCollator, TokenBudgetBatchSampler
from .metrics import bleu, chrf
from .schedules import inverse_sqrt_schedule, noam_peak
from .tokenization import target_size


logger = logging.get_logger(__name__)


@dataclass
class DeepNMTTrainingArguments(Seq2SeqTrainingArguments):
    """
    Arguments of `Seq2SeqTrainer` and these.

    Args:
        max_tokens: padded tokens a batch on one device, over the longer side; None batches as the library does.
        max_sentences: sentences a batch, at most.
        noam_factor: with it, `learning_rate` becomes factor * (d_model * warmup_steps)^-0.5, the papers' peak.
        target_lang: language of the translations, which chooses BLEU's tokenizer.
        eval_max_tokens, eval_max_sentences, eval_num_beams: validation translates so many sentences in batches of so
            many padded tokens; the loss is always over all of them.
        sample_translations: so many are logged at each validation.
        average_last, average_best: the final model is the mean of so many last, or best by BLEU, checkpoints.
        early_stopping_patience: stop after so many validations without a better BLEU.
    """

    lr_scheduler_type: str = "inverse_sqrt"
    max_tokens: int | None = 4096
    max_sentences: int | None = None
    noam_factor: float | None = None
    target_lang: str | None = None
    eval_max_tokens: int = 8192
    eval_max_sentences: int = 500
    eval_num_beams: int = 1
    sample_translations: int = 3
    average_last: int = 0
    average_best: int = 0
    early_stopping_patience: int | None = None
    metric_for_best_model: str | None = "eval_bleu"
    greater_is_better: bool | None = True
    include_for_metrics: list[str] = field(default_factory=list)


class TokenLoader(DataLoader):
    """A loader whose batches change with the epoch."""

    def set_epoch(self, epoch: int):
        self.batch_sampler.set_epoch(epoch)


class TranslationProgress(ProgressCallback):
    """The library's progress bar with loss and real target tokens a second instead of a line per log."""

    def on_log(self, args, state, control, logs=None, **kwargs):
        if not state.is_world_process_zero or self.training_bar is None or not logs:
            return
        if "loss" in logs:
            self.training_bar.set_postfix(loss=f"{logs['loss']:.3f}", tok_s=f"{logs.get('tokens_per_second', 0):.0f}")
        elif "eval_loss" in logs:
            shown = {name: logs[name] for name in ("eval_loss", "eval_bleu", "eval_chrf") if name in logs}
            values = "  ".join(f"{name} {value:.3f}" for name, value in shown.items())
            self.training_bar.write(f"step {state.global_step}: {values}")


class DeepNMTTrainer(Seq2SeqTrainer):
    """
    `Seq2SeqTrainer` whose batches hold tokens instead of sentences and whose validation translates.

    Data sets hold `input_ids` and `labels`, and for validation the raw text in `translation`, so that BLEU is over
    references as they are. Any encoder-decoder of Transformers can be trained.

    Raises:
        ValueError: an argument would silently change the result; the message says what to use instead.
    """

    def __init__(self, model=None, args: DeepNMTTrainingArguments | None = None, **kwargs):
        check_arguments(args, model, kwargs.get("processing_class"))
        if args.noam_factor is not None:
            args.learning_rate = noam_peak(model.config.d_model, int(args.warmup_steps), args.noam_factor)
        if kwargs.get("data_collator") is None:
            kwargs["data_collator"] = Seq2SeqCollator(model.config.pad_token_id, further_columns(model))
        callbacks = list(kwargs.pop("callbacks", None) or [])
        if args.early_stopping_patience is not None:
            callbacks.append(EarlyStoppingCallback(args.early_stopping_patience))
        super().__init__(model=model, args=args, callbacks=callbacks, **kwargs)
        if not args.disable_tqdm:
            self.remove_callback(ProgressCallback)
            self.add_callback(TranslationProgress)
        self.remove_callback(PrinterCallback)
        self.window = TrainingWindow()

    # --- batches ---

    def sampler(self, dataset: Dataset, max_tokens: int, **options) -> TokenBudgetBatchSampler:
        lengths = [column_lengths(dataset, name) for name in ("input_ids", "labels")]
        place = {"rank": self.args.process_index, "world_size": self.args.world_size}
        return TokenBudgetBatchSampler(*lengths, max_tokens, **place, **options)

    def loader(self, dataset: Dataset, sampler: TokenBudgetBatchSampler) -> TokenLoader:
        # an own generator, since a loader otherwise draws from the one that dropout uses, and resuming would differ
        return TokenLoader(
            self._remove_unused_columns(dataset, "training"),
            batch_sampler=sampler,
            collate_fn=self.data_collator,
            num_workers=self.args.dataloader_num_workers,
            pin_memory=self.args.dataloader_pin_memory and torch.cuda.is_available(),
            generator=torch.Generator().manual_seed(self.args.seed),
        )

    def get_train_dataloader(self) -> DataLoader:
        args = self.args
        if args.max_tokens is None:
            return super().get_train_dataloader()
        sampler = self.sampler(
            self.train_dataset,
            args.max_tokens,
            max_sentences=args.max_sentences,
            seed=args.data_seed if args.data_seed is not None else args.seed,
            group_size=args.world_size * args.gradient_accumulation_steps,
        )
        logger.info(f"{len(sampler.ends)} batches an epoch, {sampler.padding_share():.1%} of their tokens are padding")
        return self.loader(self.train_dataset, sampler)

    def create_scheduler(self, num_training_steps: int, optimizer=None):
        if self.lr_scheduler is None and self.args.lr_scheduler_type == "inverse_sqrt":
            warmup = self.args.get_warmup_steps(num_training_steps)
            self.lr_scheduler = inverse_sqrt_schedule(optimizer or self.optimizer, warmup)
            self._created_lr_scheduler = True
        return super().create_scheduler(num_training_steps, optimizer)

    # --- losses and logs ---

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        tokens = int(inputs["labels"].ne(-100).sum()) if "labels" in inputs else 0
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True, num_items_in_batch=num_items_in_batch)
        if model.training:
            self.window.add(outputs, tokens)
        return (loss, outputs) if return_outputs else loss

    def log(self, logs: dict[str, float], start_time: float | None = None):
        if "loss" in logs and "learning_rate" in logs:
            logs = {**logs, **self.window.close(self.state.global_step, self.accelerator)}
        super().log(logs, start_time)

    def _save_checkpoint(self, model, trial):
        with self.window.paused():
            super()._save_checkpoint(model, trial)

    # --- validation ---

    def evaluate(self, eval_dataset=None, ignore_keys=None, metric_key_prefix: str = "eval", **gen_kwargs):
        """
        Loss over every token and scores of translations, each sentence on one process only.

        Returns:
            `<prefix>_loss` (mean negative log-likelihood in nats a token, without smoothing), `_ppl`, `_tokens`, and
            with `predict_with_generate` or by default `_bleu`, `_chrf` of the first `eval_max_sentences` sentences.
        """
        dataset = self.eval_dataset if eval_dataset is None else eval_dataset
        if dataset is None:
            raise ValueError("there is no validation set: give `eval_dataset`, or set `eval_strategy` to `no`")
        if isinstance(dataset, dict):
            parts = {name: (part, f"{metric_key_prefix}_{name}") for name, part in dataset.items()}
            found = [self.evaluate(part, ignore_keys, prefix, **gen_kwargs) for part, prefix in parts.values()]
            return {name: value for metrics in found for name, value in metrics.items()}
        start = time.perf_counter()
        was_training = self.model.training
        self.model.eval()
        try:
            with self.window.paused(), torch.no_grad():
                metrics = self.token_loss(dataset)
                metrics |= self.translation_scores(dataset, gen_kwargs)
        finally:
            self.model.train(was_training)
        metrics["runtime"] = time.perf_counter() - start
        metrics = {f"{metric_key_prefix}_{name}": value for name, value in metrics.items()}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def batches(self, dataset: Dataset):
        """(rows, batch on the device) of this process, sorted by length."""
        sampler = self.sampler(dataset, self.args.eval_max_tokens, shuffle=False)
        rows = self._remove_unused_columns(dataset, "evaluation")
        for indices in sampler:
            yield indices, self._prepare_inputs(self.data_collator([rows[index] for index in indices]))

    def token_loss(self, dataset: Dataset) -> dict[str, float]:
        totals = torch.zeros(2, dtype=torch.float64, device=self.args.device)
        for _, batch in self.batches(dataset):
            outputs = self.model(**batch)
            nll = getattr(outputs, "nll_loss", None)
            tokens = batch["labels"].ne(-100).sum()
            totals += torch.stack([(outputs.loss if nll is None else nll).double() * tokens, tokens.double()])
        nll, tokens = self.accelerator.reduce(totals, "sum").tolist()
        loss = nll / max(tokens, 1)
        return {"loss": loss, "ppl": float(torch.tensor(loss).exp()), "tokens": int(tokens)}

    def translation_scores(self, dataset: Dataset, gen_kwargs: dict[str, Any]) -> dict[str, Any]:
        count = min(self.args.eval_max_sentences, len(dataset))
        if not count or self.processing_class is None:
            return {}
        part = dataset.select(range(count))
        hypotheses = self.translate(part, {"num_beams": self.args.eval_num_beams, "do_sample": False, **gen_kwargs})
        references, sources = self.raw_text(part)
        lang = self.args.target_lang
        scores = {"bleu": bleu(hypotheses, references, target_lang=lang), "chrf": chrf(hypotheses, references)}
        signatures = ", ".join(f"{name} {score['signature']}" for name, score in scores.items())
        logger.info(f"validation scores of {count} sentences: {signatures}")
        for index in range(min(self.args.sample_translations, count)):
            logger.info(f"{sources[index]}\n  reference:   {references[index]}\n  translation: {hypotheses[index]}")
        return {name: score["score"] for name, score in scores.items()}

    def translate(self, dataset: Dataset, options: dict[str, Any]) -> list[str]:
        """Translations in the order of the rows, decoded on all processes, each row on one."""
        found = []
        for indices, batch in self.batches(dataset):
            inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
            limit = {"max_length": 2 * inputs["input_ids"].shape[1] + 50}
            ids = self.model.generate(**inputs, **{**limit, **options})
            texts = self.processing_class.batch_decode(ids, skip_special_tokens=True)
            found.extend(zip(indices, texts, strict=True))
        gathered = gather_object(found) if self.args.world_size > 1 else found
        return [text for _, text in sorted(gathered)]

    def raw_text(self, dataset: Dataset) -> tuple[list[str], list[str]]:
        """References and sources as written; decoded from the ids where the data set has no text."""
        lang = self.args.target_lang
        if "translation" in dataset.column_names and lang is not None:
            rows = dataset["translation"]
            other = next(name for name in rows[0] if name != lang)
            return [row[lang] for row in rows], [row[other] for row in rows]
        logger.warning_once("references are decoded from labels, since there is no `translation` column or `target_lang`")
        decode = self.processing_class.batch_decode
        return tuple(decode(list(dataset[name]), skip_special_tokens=True) for name in ("labels", "input_ids"))


class TrainingWindow:
    """Sums of what was trained on since the last log; time spent validating and saving does not count."""

    def __init__(self):
        self.first_step = None
        self.reset(None)

    def reset(self, step: int | None):
        self.first_step, self.tokens, self.sums = step, 0, {}
        self.start = time.perf_counter()

    def add(self, outputs: Any, tokens: int):
        self.tokens += tokens
        for name in ("nll_loss", "auxiliary_loss"):
            value = outputs.get(name) if hasattr(outputs, "get") else None
            if value is not None:
                self.sums[name] = self.sums.get(name, 0.0) + value.detach().double()

    def paused(self):
        return Pause(self)

    def close(self, step: int, accelerator) -> dict[str, float]:
        """Means over the optimizer steps and processes, and real target tokens a second of all processes."""
        seconds = time.perf_counter() - self.start
        steps = step - (self.first_step if self.first_step is not None else 0)
        names = sorted(self.sums)
        values = torch.stack([*(torch.as_tensor(self.sums[name]).cpu() for name in names), torch.tensor(float(self.tokens)).double()])
        values = accelerator.reduce(values.to(accelerator.device), "sum").tolist()
        self.reset(step)
        means = {name: value / max(steps, 1) for name, value in zip(names, values, strict=False)}
        return {**means, "tokens_per_second": values[-1] / max(seconds, 1e-9)}


class Pause:
    """Takes the time inside `with` off a window."""

    def __init__(self, window: TrainingWindow):
        self.window = window

    def __enter__(self):
        self.start = time.perf_counter()

    def __exit__(self, *_):
        self.window.start += time.perf_counter() - self.start


def check_arguments(args: DeepNMTTrainingArguments, model, tokenizer):
    """Refuse what would silently change the result."""
    if args is None or model is None:
        raise ValueError("DeepNMTTrainer needs `model` and `args`, a DeepNMTTrainingArguments")
    if args.label_smoothing_factor:
        raise ValueError(
            "`label_smoothing_factor` takes the labels from the model and with them its auxiliary losses: set the model's "
            "`label_smoothing` instead"
        )
    if args.max_tokens is not None:
        if args.train_sampling_strategy != "random":
            raise ValueError("`train_sampling_strategy` has no effect on token-budget batches: unset it, or `max_tokens`")
        if args.dataloader_drop_last:
            raise ValueError("`dataloader_drop_last` would leave sentences out: token-budget batches need no such thing")
    size = model.get_input_embeddings().weight.shape[0]
    if tokenizer is not None and len(tokenizer) > size:
        raise ValueError(f"the tokenizer has {len(tokenizer)} pieces, the source embedding {size} rows: resize the model")
    target = getattr(model.config, "decoder_vocab_size", None) or size
    if tokenizer is not None and target_size(tokenizer) > target:
        raise ValueError(f"the tokenizer has {target_size(tokenizer)} target pieces, the model {target}: resize the model")


def further_columns(model) -> dict[str, int]:
    """Padding of the columns that an architecture trains on beside source and target."""
    return dict(getattr(model, "training_columns", {}))


def column_lengths(dataset: Dataset, name: str) -> Sequence[int]:
    stored = {"input_ids": "source_length", "labels": "target_length"}[name]
    if stored in getattr(dataset, "column_names", ()):
        return dataset.with_format("numpy")[stored][:]
    return [len(row[name]) for row in dataset]


def plot_learning_curve(history: list[dict[str, float]], path: str | Path):
    """Training loss, validation loss and validation BLEU over the updates, as a picture."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(7, 4))
    curves = {"nll_loss": "training loss", "eval_loss": "validation loss"}
    for name, label in curves.items():
        points = [(entry["step"], entry[name]) for entry in history if name in entry]
        if points:
            axis.plot(*zip(*points, strict=True), label=label)
    axis.set_xlabel("updates")
    axis.set_ylabel("negative log-likelihood (nats a token)")
    scores = [(entry["step"], entry["eval_bleu"]) for entry in history if "eval_bleu" in entry]
    if scores:
        right = axis.twinx()
        right.plot(*zip(*scores, strict=True), color="tab:green", marker="o", label="validation BLEU")
        right.set_ylabel("BLEU")
        right.set_ylim(0, None)
        right.legend(loc="center right")
    axis.legend(loc="upper right")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


__all__ = ["DeepNMTTrainer", "DeepNMTTrainingArguments", "plot_learning_curve"]
