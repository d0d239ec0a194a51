"""Training: schedules, exact resumption, token-exact losses, evaluation, and arguments that are refused."""

import json
import math

import numpy as np
import pytest
import torch
from datasets import Dataset
from tiny import tiny_model
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import MarianConfig, MarianMTModel, PreTrainedTokenizerFast, TrainerCallback

from hf_deepnmt.batching import Seq2SeqCollator
from hf_deepnmt.metrics import bleu
from hf_deepnmt.schedules import inverse_sqrt_share, noam_peak
from hf_deepnmt.trainer import DeepNMTTrainer, DeepNMTTrainingArguments, check_vocabulary, plot_learning_curve


VOCAB, EOS = 61, 2


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def pairs(rows, seed=0, longest=9):
    generator = np.random.default_rng(seed)

    def sentence():
        return [*generator.integers(5, VOCAB, generator.integers(1, longest)).tolist(), EOS]

    return Dataset.from_list([{"input_ids": sentence(), "labels": sentence()} for _ in range(rows)])


def marian(dropout=0.0):
    torch.manual_seed(0)
    config = MarianConfig(
        vocab_size=VOCAB, d_model=16, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=16, decoder_ffn_dim=16,
        encoder_attention_heads=2, decoder_attention_heads=2, pad_token_id=1, eos_token_id=EOS,
        decoder_start_token_id=0, max_position_embeddings=64, dropout=dropout, scale_embedding=True, init_std=0.3,
    )  # fmt: skip
    return MarianMTModel(config)


def deepnmt(dropout=0.0, **overrides):
    return tiny_model(dropout=dropout, label_smoothing=0.1, **overrides)


def arguments(folder, **overrides):
    defaults = {
        "output_dir": str(folder),
        "max_tokens": 40,
        "learning_rate": 1e-3,
        "warmup_steps": 4,
        "use_cpu": True,
        "disable_tqdm": True,
        "save_strategy": "no",
        "logging_steps": 1,
        "report_to": [],
        "predict_with_generate": False,
    }
    return DeepNMTTrainingArguments(**{**defaults, **overrides})


def trainer_for(folder, model=None, data=None, callbacks=None, **overrides):
    names = ("data_collator", "processing_class", "eval_dataset", "compute_metrics")
    options = {name: overrides.pop(name) for name in names if name in overrides}
    model = deepnmt() if model is None else model
    data = pairs(40) if data is None else data
    return DeepNMTTrainer(model, arguments(folder, **overrides), train_dataset=data, callbacks=callbacks, **options)


def weights(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def losses(trainer):
    return [(row["step"], row["loss"]) for row in trainer.state.log_history if "loss" in row]


def tiny_tokenizer():
    words = ["<s>", "<pad>", "</s>", "<unk>", *(f"w{index}" for index in range(4, VOCAB))]
    model = Tokenizer(WordLevel({word: index for index, word in enumerate(words)}, unk_token="<unk>"))
    model.pre_tokenizer = WhitespaceSplit()
    tokens = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=model, **tokens)


@pytest.fixture(scope="module")
def tokenizer():
    return tiny_tokenizer()


# --- schedules ---


def test_schedule_is_the_formula_of_the_paper():
    d_model, warmup = 512, 4000
    for update in (1, 2, 3999, 4000, 4001, 100_000):
        paper = d_model**-0.5 * min(update**-0.5, update * warmup**-1.5)
        assert noam_peak(d_model, warmup) * inverse_sqrt_share(update - 1, warmup) == pytest.approx(paper, rel=1e-12)
    assert noam_peak(512, 4000, factor=2.0) == pytest.approx(2 * noam_peak(512, 4000))


@pytest.mark.parametrize("rate", [None, "noam", 0.25])
def test_first_update_already_has_a_rate(tmp_path, rate):
    trainer = trainer_for(tmp_path, learning_rate=rate, max_steps=6)
    trainer.train()
    peak = (16 * 4) ** -0.5 if rate != 0.25 else 0.25
    rates = [row["learning_rate"] for row in trainer.state.log_history if "learning_rate" in row]
    assert rates == pytest.approx([peak * share for share in (0.25, 0.5, 0.75, 1.0, (4 / 5) ** 0.5, (4 / 6) ** 0.5)])


def test_other_schedules_are_those_of_transformers(tmp_path):
    trainer = trainer_for(tmp_path, lr_scheduler_type="constant", max_steps=3)
    trainer.train()
    assert [row["learning_rate"] for row in trainer.state.log_history if "learning_rate" in row] == [1e-3] * 3


# --- batches and updates ---


def test_epochs_have_the_updates_they_promise_and_every_pair(tmp_path):
    data = pairs(40)
    trainer = trainer_for(tmp_path, data=data, num_train_epochs=2, gradient_accumulation_steps=3)
    trainer.train()
    assert trainer.state.max_steps == trainer.state.global_step == 2 * len(trainer.train_sampler()) // 3
    loader = trainer.get_train_dataloader()
    for epoch in range(2):
        loader.set_epoch(epoch)
        rows = [tuple(ids[ids != 1].tolist()) for batch in loader for ids in batch["input_ids"]]
        assert sorted(rows) == sorted(tuple(row) for row in data["input_ids"])


def test_epochs_are_in_different_order(tmp_path):
    seen = []

    class Model(type(deepnmt())):
        def forward(self, input_ids=None, labels=None, **kwargs):
            seen.append(tuple(input_ids.flatten().tolist()))
            return super().forward(input_ids=input_ids, labels=labels, **kwargs)

    model = deepnmt()
    model.__class__ = Model
    trainer_for(tmp_path, model, num_train_epochs=2).train()
    half = len(seen) // 2
    assert sorted(map(len, seen[:half])) == sorted(map(len, seen[half:]))
    assert seen[:half] != seen[half:]


SGD = {"optim": "sgd", "max_grad_norm": 0, "lr_scheduler_type": "constant", "learning_rate": 0.1, "max_steps": 1}


@pytest.mark.parametrize("make_model", [deepnmt, marian])
def test_update_does_not_depend_on_accumulation(tmp_path, make_model):
    data, results, logged = pairs(4, longest=12), [], []
    for place, (size, steps) in enumerate([(4, 1), (2, 2), (1, 4)]):
        model = make_model()
        options = {"max_tokens": None, "per_device_train_batch_size": size, "gradient_accumulation_steps": steps}
        trainer = trainer_for(
            tmp_path / str(place), model, data, train_sampling_strategy="sequential", **options, **SGD
        )
        trainer.train()
        results.append(weights(model))
        logged.append(losses(trainer)[0][1])
    for result, loss in zip(results[1:], logged[1:], strict=True):
        torch.testing.assert_close(result, results[0], atol=1e-6, rtol=1e-5)
        assert loss == pytest.approx(logged[0], rel=1e-5)
    assert (results[0] - weights(make_model())).abs().max() > 1e-4


def test_token_batches_make_the_update_of_one_batch(tmp_path):
    data, results = pairs(12), []
    for place, (budget, steps) in enumerate([(1000, 1), (1000, 3)]):
        model = deepnmt()
        trainer = trainer_for(
            tmp_path / str(place), model, data, max_tokens=budget, gradient_accumulation_steps=steps, **SGD
        )
        assert len(trainer.train_sampler()) == steps
        trainer.train()
        results.append(weights(model))
    torch.testing.assert_close(results[1], results[0], atol=1e-6, rtol=1e-5)


# --- resumption ---


class Stop(TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_save(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    "options",
    [
        {"gradient_accumulation_steps": 2},
        {"gradient_accumulation_steps": 2, "max_tokens": None, "per_device_train_batch_size": 3},
        {"eval_strategy": "steps", "eval_steps": 2, "predict_with_generate": True},
        {"dataloader_num_workers": 1},
    ],
    ids=["accumulation", "fixed batches", "evaluation", "workers"],
)
@pytest.mark.parametrize("place", ["middle of an epoch", "end of an epoch"])
def test_a_stopped_run_continues_bit_by_bit(tmp_path, tokenizer, options, place):
    data = pairs(24)

    def run(name, callbacks=None, **saving):
        fixed = {"eval_dataset": pairs(4, 1), "processing_class": tokenizer, "seed": 3, "max_steps": 11}
        return trainer_for(tmp_path / name, deepnmt(dropout=0.3), data, callbacks, **fixed, **saving, **options)

    whole = run("whole")
    whole.train()
    epoch = next(row["step"] for row in whole.state.log_history if row["epoch"] == 1.0)
    step = epoch if place == "end of an epoch" else epoch - 1
    with pytest.raises(KeyboardInterrupt):
        run("stopped", [Stop(step)], save_strategy="steps", save_steps=step).train()
    resumed = run("stopped")
    resumed.train(resume_from_checkpoint=str(tmp_path / "stopped" / f"checkpoint-{step}"))
    assert losses(resumed) == losses(whole)
    assert len({loss for _, loss in losses(whole)}) == 11 > epoch > 2
    assert torch.equal(weights(resumed.model), weights(whole.model))


def test_evaluating_more_often_does_not_change_training(tmp_path, tokenizer):
    results = []
    for name, options in (("never", {}), ("often", {"eval_strategy": "steps", "eval_steps": 1})):
        model = deepnmt(dropout=0.3)
        fixed = {
            "eval_dataset": pairs(5, 1),
            "processing_class": tokenizer,
            "predict_with_generate": True,
            "max_steps": 4,
        }
        trainer = trainer_for(tmp_path / name, model, **fixed, **options)
        trainer.train()
        results.append((losses(trainer), weights(model)))
    assert results[0][0] == results[1][0]
    assert torch.equal(results[0][1], results[1][1])


def test_early_stopping_goes_on_counting_and_may_be_added_later(tmp_path):
    class Flat(type(deepnmt())):
        def translation_loss(self, states, *args):
            return states.sum() * 0, states.detach().sum() * 0 + 1, None

    def run(steps, **options):
        model = deepnmt()
        model.__class__ = Flat
        saving = {"save_strategy": "steps", "save_steps": 1, "eval_strategy": "steps", "eval_steps": 1}
        fixed = {"eval_dataset": pairs(4, 1), "metric_for_best_model": "eval_loss", "lr_scheduler_type": "constant"}
        return trainer_for(tmp_path, model, max_steps=steps, **saving, **fixed, **options)

    run(1).train()
    for stop, end in ((3, 3), (9, 5)):
        trainer = run(stop, early_stopping_patience=4)
        trainer.train(resume_from_checkpoint=True)
        assert trainer.state.global_step == end


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_tokens": 50}, "max_tokens=40"),
        ({"seed": 9}, "seed=42"),
        ({"gradient_accumulation_steps": 2}, "batches_per_update=1"),
    ],
)
def test_resuming_with_other_batches_is_refused(tmp_path, changes, message):
    trainer_for(tmp_path, max_steps=2, save_strategy="steps", save_steps=2).train()
    with pytest.raises(ValueError, match=message):
        trainer_for(tmp_path, max_steps=4, **changes).train(resume_from_checkpoint=True)


def test_resuming_with_other_data_is_refused(tmp_path):
    trainer_for(tmp_path, max_steps=2, save_strategy="steps", save_steps=2).train()
    with pytest.raises(ValueError, match="pairs=40, now it is 39"):
        trainer_for(tmp_path, data=pairs(39), max_steps=4).train(resume_from_checkpoint=True)


def test_resuming_without_a_checkpoint_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no checkpoint to resume from"):
        trainer_for(tmp_path, max_steps=4).train(resume_from_checkpoint=True)


def test_special_tokens_survive_training(tmp_path, tokenizer):
    model = deepnmt()
    trainer = trainer_for(tmp_path, model, max_steps=1, processing_class=tokenizer)
    trainer.train()
    trainer.save_model(tmp_path / "saved")
    loaded = type(model).from_pretrained(tmp_path / "saved")
    for name, value in {"decoder_start_token_id": 0, "eos_token_id": 2, "pad_token_id": 1, "bos_token_id": 0}.items():
        assert getattr(loaded.generation_config, name) == getattr(loaded.config, name) == value
    assert loaded.config.use_cache is True


# --- logs ---


class Auxiliary(type(tiny_model())):
    def auxiliary_loss(self, outputs, num_items_in_batch=None, labels=None, **kwargs):
        count = labels.ne(-100).sum()
        return 0.5 * count / (count if num_items_in_batch is None else num_items_in_batch)


def test_losses_are_logged_apart_and_per_token(tmp_path):
    model = tiny_model(dropout=0.0, label_smoothing=0.0)
    model.__class__ = Auxiliary
    trainer = trainer_for(tmp_path, model, logging_steps=4, max_steps=4, gradient_accumulation_steps=2)
    trainer.train()
    row = next(row for row in trainer.state.log_history if "loss" in row)
    assert row["auxiliary_loss"] == pytest.approx(0.5, rel=1e-5)
    assert row["loss"] == pytest.approx(row["nll_loss"] + 0.5, rel=1e-5)
    assert row["tokens_per_second"] > 0
    assert row["grad_norm"] > 0


def test_logged_loss_is_the_mean_over_tokens_of_the_window(tmp_path):
    data = pairs(40)
    options = {"learning_rate": 1e-12, "num_train_epochs": 1}
    model = tiny_model(dropout=0.0, label_smoothing=0.0)
    trainer = trainer_for(tmp_path / "a", model, data, logging_steps=1000, logging_first_step=False, **options)
    steps = len(trainer.train_sampler())
    trainer = trainer_for(tmp_path / "b", model, data, logging_steps=steps, **options)
    trainer.train()
    assert losses(trainer)[0][1] == pytest.approx(trainer.evaluate(data)["eval_loss"], rel=1e-5)


# --- evaluation ---


def reference_loss(model, data):
    model.eval()
    total = tokens = 0
    with torch.no_grad():
        for row in data:
            labels = torch.tensor([row["labels"]])
            loss = model(input_ids=torch.tensor([row["input_ids"]]), labels=labels).loss
            total, tokens = total + float(loss) * labels.numel(), tokens + labels.numel()
    return total / tokens, tokens


@pytest.mark.parametrize("make_model", [deepnmt, marian])
def test_evaluation_loss_is_exact_per_token(tmp_path, make_model):
    model, data = make_model(dropout=0.3), pairs(33, 5)
    loss, tokens = reference_loss(model, data)
    for budget in (20, 4096):
        metrics = trainer_for(tmp_path, model, eval_dataset=data, eval_max_tokens=budget).evaluate()
        assert metrics["eval_loss"] == pytest.approx(loss, rel=1e-5)
        assert metrics["eval_ppl"] == pytest.approx(math.exp(loss), rel=1e-4)
        assert metrics["eval_tokens"] == tokens


def greedy(model, data, **options):
    model.eval()
    rows = []
    for row in data:
        ids = model.generate(torch.tensor([row["input_ids"]]), max_new_tokens=12, **options)[0].tolist()
        rows.append(ids)
    return rows


def with_text(data, texts):
    return data.add_column("translation", [{"de": "-", "en": text} for text in texts])


def test_bleu_is_against_raw_text_with_every_sentence_once_and_in_order(tmp_path, tokenizer):
    model, data = deepnmt(dropout=0.3), pairs(23, 5)
    hypotheses = tokenizer.batch_decode(greedy(model, data), skip_special_tokens=True)
    references = [f"{text} x{place}" for place, text in enumerate(hypotheses)]
    options = {
        "predict_with_generate": True,
        "eval_max_tokens": 30,
        "processing_class": tokenizer,
        "target_lang": "en",
    }
    trainer = trainer_for(tmp_path, model, eval_dataset=with_text(data, references), **options)
    expected = bleu(hypotheses, references, target_lang="en")
    for _ in range(2):
        metrics = trainer.evaluate(max_new_tokens=12)
        assert metrics["eval_bleu"] == pytest.approx(expected["score"])
        assert metrics["eval_bleu_signature"] == expected["signature"]
        assert metrics["eval_sentences_translated"] == 23
        assert 0 < metrics["eval_chrf"] < 100
    assert trainer.state.log_history[-1]["eval_bleu_signature"] == expected["signature"]


def test_only_some_sentences_are_translated_but_all_count_in_the_loss(tmp_path, tokenizer):
    data = with_text(pairs(23, 5), ["w5"] * 23)
    options = {"predict_with_generate": True, "eval_max_sentences": 4, "processing_class": tokenizer}
    metrics = trainer_for(tmp_path, eval_dataset=data, **options).evaluate()
    assert metrics["eval_sentences_translated"] == 4
    assert metrics["eval_tokens"] == sum(map(len, data["labels"]))


def test_evaluation_leaves_model_and_random_state_as_they_were(tmp_path, tokenizer):
    model, data = deepnmt(dropout=0.3), pairs(9, 5)
    trainer = trainer_for(tmp_path, model, eval_dataset=data, predict_with_generate=True, processing_class=tokenizer)
    for training in (True, False):
        model.train(training)
        before = model.generation_config.to_dict(), torch.random.get_rng_state()
        trainer.evaluate(num_beams=2, do_sample=True)
        assert model.training is training
        assert model.generation_config.to_dict() == before[0]
        assert torch.equal(torch.random.get_rng_state(), before[1])


def test_predict_gives_the_same_ids_twice_in_the_order_of_the_rows(tmp_path):
    model, data = deepnmt(dropout=0.4).train(), pairs(11, 5)
    trainer = trainer_for(tmp_path, model, predict_with_generate=True, eval_max_tokens=30)
    first, second = (trainer.predict(data, max_new_tokens=12) for _ in range(2))
    assert first.predictions.tolist() == second.predictions.tolist()
    for row, ids in zip(first.predictions.tolist(), greedy(model, data), strict=True):
        assert row == ids + [1] * (len(row) - len(ids))
    assert [row[row != -100].tolist() for row in first.label_ids] == data["labels"][:]
    assert math.isfinite(first.metrics["test_loss"])


def test_translations_do_not_depend_on_their_neighbours_nor_end_at_twenty_tokens(tmp_path):
    model = marian()
    model.generation_config.eos_token_id = model.generation_config.forced_eos_token_id = None
    rows = [{"input_ids": [7] * length + [EOS], "labels": [EOS]} for length in (1, 3, 5)]
    trainer = trainer_for(tmp_path, model, predict_with_generate=True)
    together = trainer.predict(Dataset.from_list(rows)).predictions
    for row, ids in zip(rows, together, strict=True):
        alone = trainer.predict(Dataset.from_list([row])).predictions[0].tolist()
        assert alone == ids[: len(alone)].tolist()
        assert len(alone) == 2 * len(row["input_ids"]) + 51


def test_users_metrics_get_two_dimensional_ids(tmp_path):
    def metrics(prediction):
        return {"rows": len(prediction.predictions), "axes": prediction.predictions.ndim + prediction.label_ids.ndim}

    options = {"predict_with_generate": True, "compute_metrics": metrics}
    result = trainer_for(tmp_path, eval_dataset=pairs(6, 5), **options).evaluate()
    assert (result["eval_rows"], result["eval_axes"]) == (6, 4)


def test_sets_by_name_are_evaluated_apart(tmp_path):
    trainer = trainer_for(tmp_path, eval_dataset={"a": pairs(5, 1), "b": pairs(6, 2)})
    assert {"eval_a_loss", "eval_b_loss"} <= set(trainer.evaluate())
    assert "eval_loss" in trainer.evaluate("b")
    assert "eval_loss" in trainer.evaluate(pairs(3))


def test_best_and_last_checkpoints_are_averaged_at_the_end(tmp_path, tokenizer):
    data = with_text(pairs(6, 1), ["w5 w6 w7 w8"] * 6)
    options = {"eval_strategy": "steps", "eval_steps": 2, "save_strategy": "steps", "save_steps": 2, "max_steps": 6}
    for name, wanted in (("average_best", 2), ("average_last", 3)):
        folder = tmp_path / name
        trainer = trainer_for(
            folder,
            predict_with_generate=True,
            eval_dataset=data,
            processing_class=tokenizer,
            **options,
            **{name: wanted},
        )
        trainer.train()
        note = json.loads((folder / "averaged" / "averaged_from.json").read_text())
        assert len(note["folders"]) == wanted
        assert (folder / "averaged" / "tokenizer.json").is_file()
    assert note["folders"] == ["checkpoint-2", "checkpoint-4", "checkpoint-6"]
    with pytest.raises(ValueError, match="checkpoints of an earlier run"):
        trainer_for(folder, max_steps=2, save_strategy="steps", average_last=2).train()


def test_training_stops_when_bleu_no_longer_rises(tmp_path, tokenizer):
    data = with_text(pairs(4, 1), ["nothing like it"] * 4)
    options = {"eval_strategy": "steps", "eval_steps": 1, "max_steps": 30, "early_stopping_patience": 2}
    trainer = trainer_for(
        tmp_path, predict_with_generate=True, eval_dataset=data, processing_class=tokenizer, **options
    )
    trainer.train()
    assert trainer.args.metric_for_best_model == "eval_bleu"
    assert trainer.state.global_step == 3


def test_learning_curve_is_drawn(tmp_path):
    trainer = trainer_for(tmp_path, max_steps=3, eval_strategy="steps", eval_steps=1, eval_dataset=pairs(4))
    trainer.train()
    trainer.save_state()
    for place, history in enumerate((trainer.state.log_history, tmp_path, tmp_path / "trainer_state.json")):
        image = plot_learning_curve(history, tmp_path / f"{place}.png")
        assert image.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="neither losses nor BLEU"):
        plot_learning_curve([{"step": 1}], tmp_path / "none.png")


# --- refusals ---


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label_smoothing_factor": 0.1}, "`label_smoothing` in the model's config"),
        ({"per_device_train_batch_size": 16}, "per_device_train_batch_size"),
        ({"train_sampling_strategy": "group_by_length"}, "train_sampling_strategy"),
        ({"dataloader_drop_last": True}, "dataloader_drop_last"),
        ({"auto_find_batch_size": True}, "auto_find_batch_size"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": None, "max_sentences": 3}, "max_sentences"),
        ({"learning_rate": None, "lr_scheduler_type": "cosine"}, "`learning_rate` unset"),
        ({"learning_rate": None, "warmup_steps": 0.1}, "`learning_rate` unset"),
        ({"learning_rate": 1e-3, "learning_rate_factor": 2.0}, "learning_rate_factor"),
        ({"lr_scheduler_kwargs": {"timescale": 3}}, "lr_scheduler_kwargs"),
        ({"average_last": 3}, "`average_last` needs checkpoints"),
        ({"average_last": 3, "save_strategy": "steps", "keep_last": 2}, "keeps 2"),
        ({"average_best": 3, "save_strategy": "steps", "keep_last": 5}, "needs all checkpoints"),
        ({"keep_last": 2, "save_total_limit": 3}, "`keep_last` is `save_total_limit`"),
        ({"early_stopping_patience": 3}, "needs evaluations"),
        ({"metric_for_best_model": "bleu"}, "needs translations"),
    ],
)
def test_arguments_that_would_change_the_result_are_refused(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        arguments(tmp_path, **options)


def test_arguments_can_be_copied(tmp_path):
    from dataclasses import replace

    first = arguments(tmp_path, learning_rate=None, keep_last=3)
    assert replace(first, seed=7).save_total_limit == 3


def extended(name, values):
    return pairs(4).add_column(name, values)


@pytest.mark.parametrize(
    ("data", "collator", "message"),
    [
        (extended("links", [[1]] * 4), None, "column 'links' is no input"),
        (extended("links", [[1]] * 4), Seq2SeqCollator(1, extra_columns={"links": 0}), "column 'links' is no input"),
        (extended("decoder_input_ids", [[1]] * 4), None, "column 'decoder_input_ids' needs a pad value"),
    ],
)
def test_a_training_column_is_never_lost(tmp_path, data, collator, message):
    for options in ({}, {"max_tokens": None}):
        with pytest.raises(ValueError, match=message):
            trainer_for(tmp_path, data=data, data_collator=collator, **options)


def test_declared_columns_reach_the_model_but_not_generate(tmp_path):
    seen = []

    class Supervised(type(deepnmt())):
        def forward(self, input_ids=None, links=None, **kwargs):
            seen.append(None if links is None else links.tolist())
            return super().forward(input_ids=input_ids, **kwargs)

    model = deepnmt()
    model.__class__ = Supervised
    data = extended("links", [[4], [4, 4], [], [4]])
    collator = Seq2SeqCollator(1, extra_columns={"links": -1})
    trainer = trainer_for(tmp_path, model, data, data_collator=collator, predict_with_generate=True, max_steps=1)
    trainer.train()
    assert sorted(row.count(4) for row in seen[0]) == [0, 1, 1, 2]
    with_links = trainer.predict(data)
    without = trainer.predict(data.remove_columns("links"))
    assert with_links.predictions.tolist() == without.predictions.tolist()


def test_text_and_length_columns_are_left_out(tmp_path):
    data = with_text(extended("source_length", [3] * 4), ["a"] * 4).add_column("note", ["x"] * 4)
    trainer = trainer_for(tmp_path, data=data, max_steps=1)
    assert trainer.training_columns(data) == ["input_ids", "labels"]
    trainer.train()


def test_lists_of_rows_train_as_data_sets_do(tmp_path):
    results = []
    for place, data in enumerate((pairs(20), pairs(20).to_list())):
        model = deepnmt()
        trainer_for(tmp_path / str(place), model, data, max_steps=3).train()
        results.append(weights(model))
    assert torch.equal(*results)


def test_a_tokenizer_larger_than_the_embedding_is_refused(tmp_path, tokenizer):
    with pytest.raises(ValueError, match="61 source tokens but the model 60"):
        check_vocabulary(tiny_model(vocab_size=60), tokenizer)
    with pytest.raises(ValueError, match="61 target tokens but the model 50"):
        check_vocabulary(tiny_model(tie="none", decoder_vocab_size=50), tokenizer)
    with pytest.raises(ValueError, match="eos_token_id is 2 in the tokenizer but 9"):
        check_vocabulary(tiny_model(eos_token_id=9), tokenizer)
    check_vocabulary(tiny_model(vocab_size=64, eos_token_id=[9, 2]), tokenizer)


def test_bleu_without_a_tokenizer_is_refused(tmp_path):
    options = {"eval_strategy": "steps", "predict_with_generate": True, "early_stopping_patience": 2}
    with pytest.raises(ValueError, match="pass `processing_class`"):
        trainer_for(tmp_path, eval_dataset=pairs(4), **options)


def test_a_long_pair_is_refused_before_training(tmp_path):
    data = Dataset.from_list([*pairs(5).to_list(), {"input_ids": [5] * 41, "labels": [EOS]}])
    with pytest.raises(ValueError, match="row 5 .* 41 source tokens"):
        trainer_for(tmp_path, data=data, max_steps=1).train()


def test_plain_arguments_are_refused(tmp_path):
    from transformers import Seq2SeqTrainingArguments

    with pytest.raises(TypeError, match="DeepNMTTrainingArguments"):
        DeepNMTTrainer(deepnmt(), Seq2SeqTrainingArguments(output_dir=str(tmp_path)))


def test_bf16_and_gradient_checkpointing_pass_through(tmp_path):
    model = deepnmt(dropout=0.1)
    options = {"bf16": True, "activation_checkpointing": True, "max_steps": 3, "predict_with_generate": True}
    trainer = trainer_for(tmp_path, model, eval_dataset=pairs(5), **options)
    before = weights(model)
    trainer.train()
    assert math.isfinite(trainer.evaluate()["eval_loss"])
    assert not torch.equal(weights(model), before)
    assert model.dtype == torch.float32
