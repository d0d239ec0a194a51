"""
What explicit reordering costs: the encoder of ExGRE and of ReFSR against the baseline's, and decoding after it.

Everything is interleaved: one round runs each system once, in turn, and the figures are medians over the rounds of the
ratio to the baseline of the same round. `inference`: the encoder forward without gradients. `training`: the encoder forward
and backward, with the reordering loss. `decoding`: greedy translation by given encoder outputs, all of one length.
Run: python benchmarks/reordering.py, and with --device cuda on a GPU.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path

import torch
import yaml
from measuring import RESULTS, ROOT, interleaved, seeded_model
from transformers.modeling_outputs import BaseModelOutput

from hf_deepnmt.provenance import run_info, write_results
from hf_deepnmt.training import fast_bf16, keep_freed_memory


SEED = 0
RECIPE = ROOT / "training" / "recipes" / "reordering_multi30k-de-en_small.yaml"
TOKENS, VOCABULARY = 2048, 8000
SYSTEMS = {
    "baseline": ("deepnmt", {}),
    "exgre-trainable": ("reordering", {"fusion": "none"}),
    "refsr": ("reordering", {"fusion": "gate"}),
}


def models(device: str) -> dict[str, torch.nn.Module]:
    fields = {**yaml.safe_load(RECIPE.read_text(encoding="utf-8"))["model"], "vocab_size": VOCABULARY}
    own = {name: fields.pop(name) for name in list(fields) if name in ("window", "window_size", "preset", "fusion")}
    fields.pop("model_type")
    return {
        name: seeded_model(kind, {**fields, **(own if kind == "reordering" else {}), **more}, SEED, device=device)[0]
        for name, (kind, more) in SYSTEMS.items()
    }


def sentences(length: int, device: str) -> dict[str, torch.Tensor]:
    ids = torch.randint(3, VOCABULARY, (TOKENS // length, length), device=device)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def inference(model: torch.nn.Module, batch: dict) -> Callable[[], object]:
    encoder = model.get_encoder()

    def run():
        encoder.eval()
        with torch.no_grad(), autocast(batch):
            encoder(**batch)

    return run


def training(model: torch.nn.Module, batch: dict) -> Callable[[], object]:
    encoder = model.get_encoder()
    parameters = [parameter for parameter in encoder.parameters() if parameter.requires_grad]

    def run():
        encoder.train()
        with autocast(batch):
            outputs = encoder(**batch)
        total = sum(value.float().square().mean() for value in outputs.values() if torch.is_tensor(value))
        torch.autograd.grad(total, parameters, allow_unused=True)

    return run


def decoding(model: torch.nn.Module, batch: dict, length: int) -> Callable[[], object]:
    def run():
        model.eval()
        with torch.no_grad(), autocast(batch):
            model.generate(
                encoder_outputs=outputs, attention_mask=batch["attention_mask"],
                max_new_tokens=length, min_new_tokens=length, num_beams=1, do_sample=False,
            )  # fmt: skip

    with torch.no_grad():
        model.eval()
        states = model.get_encoder()(**batch).last_hidden_state
    outputs = BaseModelOutput(last_hidden_state=states)
    return run


def autocast(batch: dict):
    return torch.autocast(batch["input_ids"].device.type, torch.bfloat16, enabled=fast_bf16())


def main():
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--lengths", type=int, nargs="*", default=[16, 32, 64])
    parser.add_argument("--note", help="what else ran on the machine")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    torch.manual_seed(SEED)
    keep_freed_memory()
    before, found, rows = os.getloadavg()[0], models(options.device), []
    for length in options.lengths:
        batch = sentences(length, options.device)
        few = {name: value[:8] for name, value in batch.items()}
        row = {"length": length, "sentences": len(batch["input_ids"])}
        for name, make in (("inference", inference), ("training", training)):
            candidates = {system: make(model, batch) for system, model in found.items()}
            row[name] = interleaved(candidates, "baseline", options.rounds, options.device)
        candidates = {system: decoding(model, few, length) for system, model in found.items()}
        row["decoding"] = interleaved(candidates, "baseline", max(3, options.rounds // 3), options.device)
        rows.append(row)
        print(length, {name: row[name]["ratio"] for name in ("inference", "training", "decoding")}, flush=True)
    payload = {
        "benchmark": "reordering",
        "run": run_info(SEED),
        "device": options.device,
        "dtype": "bfloat16 (autocast)" if fast_bf16() else "float32",
        "time": "process CPU time" if options.device == "cpu" else "wall time",
        "load_average": {"before": round(before, 2), "after": round(os.getloadavg()[0], 2)},
        "note": options.note,
        "encoder": rows,
    }
    write_results(options.output or RESULTS / f"reordering_{options.device}.json", payload)


if __name__ == "__main__":
    main()
