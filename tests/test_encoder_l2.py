"""The L2 penalty on the encoder: which parameters have it, what an update does, resuming."""

import pytest
import torch
from datasets import Dataset
from tiny import sentences, tiny_model

from hf_deepnmt.trainer import DeepNMTTrainer, DeepNMTTrainingArguments, encoder_matrices


L2, DECAY, RATE = 0.3, 0.2, 0.01


def trainer_for(folder, model, **overrides):
    rows = [{"input_ids": sentences(6)["input_ids"][0].tolist(), "labels": sentences(4)["input_ids"][0].tolist()}] * 4
    defaults = {
        "output_dir": str(folder), "max_tokens": 100, "learning_rate": RATE, "lr_scheduler_type": "constant",
        "warmup_steps": 0, "use_cpu": True, "disable_tqdm": True, "save_strategy": "no", "report_to": [],
        "predict_with_generate": False, "max_steps": 3, "encoder_l2": L2, "weight_decay": DECAY, "max_grad_norm": 0,
    }  # fmt: skip
    arguments = DeepNMTTrainingArguments(**{**defaults, **overrides})
    return DeepNMTTrainer(model, arguments, train_dataset=Dataset.from_list(rows))


def small(**fields):
    return tiny_model("msc", dropout=0.0, label_smoothing=0.0, **fields)


def test_matrices_of_the_encoder_are_penalised():
    model = small()
    names = {name for name, p in model.named_parameters() if any(p is matrix for matrix in encoder_matrices(model))}
    assert {"model.encoder.layers.0.fc1.weight", "model.encoder.layers.2.gate.weight"} <= names
    assert "model.encoder.cell.weight_ih" in names
    assert not [name for name in names if "norm" in name or "bias" in name or "embed" in name or "decoder" in name]


@pytest.mark.parametrize("optim", ["adamw_torch", "adamw_torch_fused"])
def test_updates_are_those_of_adam_with_the_penalty_in_the_gradient(optim, tmp_path):
    trainer = trainer_for(tmp_path, small(), optim=optim)
    trainer.train()
    expected = small().train()
    penalised = {id(matrix) for matrix in encoder_matrices(expected)}
    decayed = {name for name, p in expected.named_parameters() if p.dim() > 1 and id(p) not in penalised}
    batch = trainer.data_collator([trainer.train_dataset[row] for row in range(4)])
    moments = {name: [torch.zeros_like(p), torch.zeros_like(p)] for name, p in expected.named_parameters()}
    for step in range(1, 4):
        expected.zero_grad()
        expected(**batch).loss.backward()
        with torch.no_grad():
            for name, p in expected.named_parameters():
                gradient = p.grad + L2 * p if id(p) in penalised else p.grad
                if name in decayed:
                    p.mul_(1 - RATE * DECAY)
                first, second = moments[name]
                first.lerp_(gradient, 0.1)
                second.mul_(0.98).addcmul_(gradient, gradient, value=0.02)
                p.sub_(RATE * (first / (1 - 0.9**step)) / ((second / (1 - 0.98**step)).sqrt() + 1e-9))
    for (name, got), wanted in zip(trainer.model.named_parameters(), expected.parameters(), strict=True):
        # where a gradient is rounding noise, Adam makes full steps of it
        if not name.endswith("k_proj.bias"):
            torch.testing.assert_close(
                got, wanted, atol=2e-5, rtol=1e-4, msg=lambda text, name=name: f"{name}: {text}"
            )


def test_a_resumed_run_keeps_the_penalty_in_the_gradient(tmp_path):
    saving = {"save_strategy": "steps", "save_steps": 2, "max_steps": 4}
    whole = trainer_for(tmp_path / "whole", small(), **saving)
    whole.train()
    resumed = trainer_for(tmp_path / "again", small(), **saving)
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-2"))
    for got, expected in zip(resumed.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(got, expected)


def test_without_the_penalty_the_optimizer_is_that_of_transformers(tmp_path):
    trainer = trainer_for(tmp_path, small(), encoder_l2=0.0)
    assert type(trainer.create_optimizer()) is torch.optim.AdamW


@pytest.mark.parametrize(
    ("fields", "message"),
    [({"encoder_l2": -1.0}, "must not be negative"), ({"optim": "adafactor"}, "adamw_torch, adamw_torch_fused")],
)
def test_penalties_without_a_meaning_are_refused(fields, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        trainer_for(tmp_path, small(), **fields)
