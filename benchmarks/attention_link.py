"""
What linking attention costs, and which of its implementations is fastest at which length.

Everything is interleaved: one round runs each candidate once, in turn, and the figures are medians over the rounds of the
ratio to the baseline of the same round. On a CPU the time is that of the process, since other work on the machine
stretches the clock but hardly the work. `attention`: a stack of three attentions, forward and backward. `step`: one update
of a whole model with Adam.
Run: python benchmarks/attention_link.py, and with --device cuda on a GPU.
"""

from __future__ import annotations

import argparse
import itertools
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import yaml
from measuring import RESULTS, ROOT, interleaved, seeded_model, update

from hf_deepnmt.models import AttentionLinkConfig, DeepNMTConfig
from hf_deepnmt.models.modeling_attention_link import AttentionLinkAttention, Link, logits_are_faster
from hf_deepnmt.models.modeling_deepnmt import DeepNMTAttention
from hf_deepnmt.provenance import run_info, write_results
from hf_deepnmt.training import fast_bf16


SEED = 0
RECIPE = ROOT / "training" / "recipes" / "attention_link_multi30k-de-en_small.yaml"
TOKENS, HEADS, HEAD_DIM, LAYERS = 2048, 4, 64, 3


def attention_stack(implementation: str, link: str | None, dropout: float, batch: dict) -> Callable:
    """A function that runs and differentiates a stack of attentions on given queries, keys and values."""
    sizes = {"d_model": HEADS * HEAD_DIM, "attention_dropout": dropout}
    config = DeepNMTConfig(**sizes) if link is None else AttentionLinkConfig(**sizes, link_implementation=link)
    kind = DeepNMTAttention if link is None else AttentionLinkAttention
    attentions = [kind(config, HEADS, index).train() for index in range(LAYERS)]
    mask = batch["additive" if implementation == "eager" else "boolean"]

    def run():
        previous, total = (), 0
        for index, attention in enumerate(attentions):
            linking = {} if link is None else {"link": Link(previous, 1 + bool(index)), "linked_states": None}
            output, _ = attention.attend(*batch["states"][index], mask, implementation, **linking)
            previous = linking["link"].current if linking else ()
            total = total + (output * batch["weights"]).sum()
        torch.autograd.grad(total, batch["leaves"])

    return run


def attention_batch(length: int, is_padded: bool, dtype: torch.dtype, device: str) -> dict:
    """Random queries, keys and values of about TOKENS tokens; padded sentences have at least half of `length`."""
    sentences = max(1, TOKENS // length)
    shape = (sentences, HEADS, length, HEAD_DIM)
    states = [
        [torch.randn(shape, dtype=dtype, device=device, requires_grad=True) for _ in range(3)] for _ in range(LAYERS)
    ]
    boolean = additive = None
    if is_padded:
        lengths = torch.randint(length // 2, length + 1, (sentences, 1), device=device)
        boolean = (torch.arange(length, device=device) < lengths)[:, None, None].expand(-1, 1, length, -1)
        zeros = torch.zeros(boolean.shape, dtype=dtype, device=device)
        additive = zeros.masked_fill(~boolean, torch.finfo(dtype).min)
    weights = torch.randn(sentences, length, HEADS, HEAD_DIM, dtype=dtype, device=device)
    leaves = [tensor for layer in states for tensor in layer]
    return {"states": states, "boolean": boolean, "additive": additive, "weights": weights, "leaves": leaves}


def measure_attention(lengths: list[int], rounds: int, device: str) -> list[dict]:
    rows = []
    dtypes = (torch.bfloat16, torch.float32) if fast_bf16() else (torch.float32,)
    settings = itertools.product(dtypes, ((0.0, True), (0.0, False), (0.1, True)), lengths)
    for dtype, (dropout, is_padded), length in settings:
        batch = attention_batch(length, is_padded, dtype, device)
        candidates = {
            "plain sdpa": attention_stack("sdpa", None, dropout, batch),
            "plain eager": attention_stack("eager", None, dropout, batch),
            "eager": attention_stack("eager", "eager", dropout, batch),
            "concat": attention_stack("sdpa", "concat", dropout, batch),
            "padded": attention_stack("sdpa", "padded", dropout, batch),
        }
        figures = interleaved(candidates, "plain eager", rounds, device)
        name = str(dtype).removeprefix("torch.")
        row = {"length": length, "dtype": name, "attention_dropout": dropout, "padded_sentences": is_padded}
        fastest = min(("eager", "concat", "padded"), key=figures["ratio"].get)
        kernel = "padded" if device == "cpu" else "concat"
        rule = "eager" if logits_are_faster(device, dtype, length, dropout) else kernel
        rows.append({**row, **figures, "fastest": fastest, "rule": rule})
        print(*row.values(), figures["ratio"], f"fastest {fastest}, rule {rule}", flush=True)
    return rows


def training_step(model_type: str, fields: dict, implementation: str, batch: dict, device: str) -> Callable:
    model, optimizer = seeded_model(model_type, fields, SEED, implementation, device)
    return partial(update, model, optimizer, batch)


def measure_step(lengths: list[int], rounds: int, device: str) -> list[dict]:
    fields = {**yaml.safe_load(RECIPE.read_text(encoding="utf-8"))["model"], "vocab_size": 8000}
    fields.pop("model_type")
    rows, dtype = [], "bfloat16 (autocast)" if fast_bf16() else "float32"
    for length in lengths:
        ids = torch.randint(3, fields["vocab_size"], (TOKENS // length, length), device=device)
        batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}
        modes = {
            "adjacent": {},
            "cumulative": {"link_mode": "cumulative"},
            "weights_only": {"link_mode": "weights_only"},
        }
        candidates = {
            **{
                f"baseline {kind}": training_step("deepnmt", fields, kind, batch, device) for kind in ("eager", "sdpa")
            },
            **{
                f"{mode} eager": training_step("attention_link", {**fields, **more}, "eager", batch, device)
                for mode, more in modes.items()
            },
            "adjacent auto": training_step("attention_link", fields, "sdpa", batch, device),
        }
        figures = interleaved(candidates, "baseline eager", rounds, device)
        rows.append({"length": length, "sentences": TOKENS // length, "dtype": dtype, **figures})
        print(f"step, length {length}:", figures["ratio"], flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--attention-lengths", type=int, nargs="*", default=[16, 32, 64, 128, 256, 512])
    parser.add_argument("--step-lengths", type=int, nargs="*", default=[16, 32, 64])
    parser.add_argument("--note", help="what else ran on the machine")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    output = options.output or RESULTS / f"attention_link_{options.device}.json"
    torch.manual_seed(SEED)
    before = os.getloadavg()[0]
    attention = measure_attention(options.attention_lengths, options.rounds, options.device)
    step = measure_step(options.step_lengths, options.rounds, options.device)
    payload = {
        "benchmark": "attention_link",
        "run": run_info(SEED),
        "device": options.device,
        "time": "process CPU time" if options.device == "cpu" else "wall time",
        "load_average": {"before": round(before, 2), "after": round(os.getloadavg()[0], 2)},
        "note": options.note,
        "attention": attention,
        "step": step,
    }
    write_results(output, payload)


if __name__ == "__main__":
    main()
