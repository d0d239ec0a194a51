"""The benchmarks count real tokens, take turns, and train what they say they train."""

import argparse
import importlib.util
import json
import sys
from pathlib import Path

import pytest
import torch

from hf_deepnmt.models import ARCHITECTURES
from hf_deepnmt.training import load_recipe, prepare


FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def load(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))

    def load(name):
        sys.modules.pop(name, None)
        spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    yield load
    for path in FOLDER.glob("*.py"):
        sys.modules.pop(path.stem, None)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_every_benchmark_explains_itself(load, path, capsys, monkeypatch):
    module = load(path.stem)
    assert module.__doc__
    if hasattr(module, "main"):
        monkeypatch.setattr(sys, "argv", [path.name, "--help"])
        with pytest.raises(SystemExit) as ended:
            module.main()
        assert ended.value.code == 0 and "usage" in capsys.readouterr().out


def test_candidates_take_turns_and_ratios_are_within_rounds(load):
    measuring, order = load("measuring"), []
    now = iter(range(10_000))
    candidates = {name: (lambda name=name: order.append(name)) for name in "abc"}
    found = measuring.interleaved(candidates, "a", rounds=3, clock=lambda device: next(now))
    assert order == list("abc" + "abc" + "bca" + "cab")
    assert found["ratio"] == {"a": 1.0, "b": 1.0, "c": 1.0} and found["rounds"] == 3


@pytest.fixture
def encoded(tmp_path):
    recipe = load_recipe(
        Path(__file__).parents[1] / "training" / "recipes" / "deepnmt_generated-de-en_tiny.yaml", ["data.size=300"]
    )
    _, encoded, tokenizer = prepare(recipe, tmp_path, seed=1)
    encoded.save_to_disk(str(tmp_path))
    tokenizer.save_pretrained(str(tmp_path / "tokenizer"))
    return tmp_path, encoded, tokenizer


SMALL = {
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 16,
    "decoder_ffn_dim": 16,
    "dropout": 0.0,
}


@pytest.mark.parametrize("system", ["hf-grouped", "deepnmt"])
def test_a_system_trains_on_whole_epochs_of_real_tokens(load, encoded, monkeypatch, capsys, system):
    folder, data, _ = encoded
    training = load("training")
    monkeypatch.setattr(training, "SHAPE", SMALL)
    monkeypatch.setattr(training, "keep_freed_memory", lambda: None)
    options = {"encoded": folder, "system": system, "warmup": 1, "seed": 1, "budget": 1024}
    # the updates of one epoch of either system
    lengths = [len(labels) for labels in data["train"]["labels"]]
    sampler = training.TokenBudgetBatchSampler(
        [len(ids) for ids in data["train"]["input_ids"]], lengths, options["budget"]
    )
    updates = len(sampler) if system == "deepnmt" else -(-len(lengths) // training.SENTENCES)
    training.worker(argparse.Namespace(**options, updates=updates, every=updates))
    found = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert found["tokens_per_update"] * updates == pytest.approx(sum(lengths))
    assert found["validation"][0]["tokens"] == sum(lengths) and 0 < found["validation"][0]["nll"] < 12


def test_both_systems_are_one_network(load, encoded, monkeypatch):
    training = load("training")
    _, _, tokenizer = encoded
    monkeypatch.setattr(training, "SHAPE", SMALL)
    marian = training.marian_config(len(tokenizer), tokenizer)
    fields = {**training.marian_fields(marian, training.DeepNMTConfig), "output_bias": True}
    own = training.DeepNMTForConditionalGeneration(training.DeepNMTConfig(**fields))
    reference = training.MarianMTModel(marian)
    own.load_marian_state_dict(reference.state_dict())
    ids = torch.tensor([[5, 6, 7, 2]])
    sides = {"input_ids": ids, "decoder_input_ids": ids}
    torch.testing.assert_close(own.eval()(**sides).logits, reference.eval()(**sides).logits, atol=1e-5, rtol=1e-5)


def test_more_gpus_share_the_work_but_wait_for_each_other(load):
    scale = load("scale")
    one, four = (scale.estimate(gpus, 512, 4000) for gpus in (1, 4))
    assert four["updates per epoch"] < one["updates per epoch"] / 3
    for name, row in four["models"].items():
        assert 0.5 < row["share of time that all processes work"] <= 1
        assert one["models"][name]["speed-up over one GPU"] == pytest.approx(1.0)


def test_every_architecture_has_a_row_and_a_batch_it_learns_from(load):
    training = load("training")
    rows = training.rows()
    assert next(iter(rows)) == "deepnmt" and {model_type for model_type, _ in rows.values()} == set(ARCHITECTURES)
    ids = torch.tensor([[5, 6, 7, 2], [8, 9, 2, 1]])
    labels = ids.masked_fill(ids == 1, -100)
    batch = {"input_ids": ids, "attention_mask": ids.ne(1).long(), "labels": labels}
    for model_type, fields in rows.values():
        sizes = {**SMALL, "encoder_layers": 3, "decoder_layers": 3, "vocab_size": 20, "norm_style": "pre"}
        model, optimizer = training.seeded_model(model_type, {**sizes, **fields})
        before = model.lm_head.weight.detach().clone()
        assert training.update(model, optimizer, training.for_model(model, [batch])[0], bf16=False) == 7
        assert not torch.equal(model.lm_head.weight, before)
