"""
Training on one GPU: tokens a second and model-FLOPs utilisation of the baseline and each architecture, in bf16, against
Hugging Face Trainer defaults (MarianMTModel, 128 sentences in random order, fp32).

Sentences are random words with lengths like IWSLT14's, so that no data is needed. Systems take turns.
Run: python benchmarks/gpu.py            (a dry run anywhere: --device cpu --small)
"""

from __future__ import annotations

import argparse
import statistics
from functools import partial
from pathlib import Path

import numpy as np
import torch
from measuring import RESULTS, seeded_model, update, wall_clock
from transformers import MarianConfig, MarianMTModel

from hf_deepnmt.batching import Seq2SeqCollator, TokenBudgetBatchSampler
from hf_deepnmt.provenance import run_info, write_results
from training import IGNORED_LABEL, for_model, rows


SHAPE = {
    "d_model": 512,
    "encoder_layers": 6,
    "decoder_layers": 6,
    "encoder_attention_heads": 8,
    "decoder_attention_heads": 8,
    "encoder_ffn_dim": 2048,
    "decoder_ffn_dim": 2048,
    "dropout": 0.1,
    "vocab_size": 10_000,
}
SMALL = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}
PAD, REFERENCE = 1, "hf-defaults"
# dense bf16 peak by the name of the device, FLOP/s
PEAKS = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "L4": 121e12, "A10": 125e12}


def corpus(pairs: int) -> list[dict]:
    generator = np.random.default_rng(1)
    source = np.clip(generator.gamma(2.2, 11.0, pairs).astype(int) + 2, 2, 175)
    target = np.clip((source * generator.normal(1.0, 0.2, pairs)).astype(int), 2, 175)
    return [
        {"input_ids": generator.integers(4, 9000, s), "labels": generator.integers(4, 9000, t)}
        for s, t in zip(source, target, strict=True)
    ]


def grouped_batches(data: list[dict], max_tokens: int, count: int) -> list[dict]:
    sides = ([len(row[name]) for row in data] for name in ("input_ids", "labels"))
    sampler = TokenBudgetBatchSampler(*sides, max_tokens, seed=1)
    return [Seq2SeqCollator(PAD)([data[row] for row in batch]) for batch in sampler.batches()[:count]]


def random_batches(data: list[dict], count: int) -> list[dict]:
    return [Seq2SeqCollator(PAD)(data[128 * index : 128 * (index + 1)]) for index in range(count)]


def reference(device: str, fields: dict) -> partial:
    """An update of MarianMTModel as the Trainer makes it by default: fp32, the model's own loss."""
    torch.manual_seed(0)
    tokens = {"pad_token_id": PAD, "eos_token_id": 2, "bos_token_id": 0, "decoder_start_token_id": 0}
    config = MarianConfig(**fields, decoder_vocab_size=fields["vocab_size"], forced_eos_token_id=None, **tokens)
    model = MarianMTModel(config).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def run(batch):
        model(**batch).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return run


def flop_of(batch: dict, model) -> float:
    """6 FLOP per weight of a layer and padded token that it is multiplied with; attention's own products are left out."""
    source, target = batch["input_ids"].numel(), batch["labels"].numel()
    encoder, decoder = (
        sum(p.numel() for p in stack.layers.parameters()) for stack in (model.model.encoder, model.model.decoder)
    )
    real = int(batch["labels"].ne(IGNORED_LABEL).sum())
    return 6.0 * (source * encoder + target * decoder + real * model.lm_head.weight.numel())


def measure(options: argparse.Namespace) -> dict:
    device, fields = options.device, {**SHAPE, **(SMALL if options.small else {})}
    data = corpus(3000 if options.small else 60_000)
    count = options.updates + 2
    on_device = partial(map, lambda batch: {name: value.to(device) for name, value in batch.items()})
    grouped = list(on_device(grouped_batches(data, 512 if options.small else options.max_tokens, count)))
    systems = {REFERENCE: (reference(device, fields), list(on_device(random_batches(data, count))), None)}
    for name, (model_type, more) in rows().items():
        if "blocks" in more:
            more = {"blocks": [1] * fields["decoder_layers"]}
        model, optimizer = seeded_model(
            model_type, {**fields, "norm_style": "pre", **more}, attn_implementation=options.attention, device=device
        )
        systems[name] = (partial(update, model, optimizer), for_model(model, grouped), model)
    seconds = {name: [] for name in systems}
    for turn in range(count):
        for name, (run, batches, _) in systems.items():
            start = wall_clock(device)
            run(batches[turn])
            if turn >= 2:
                seconds[name].append(wall_clock(device) - start)
    peak = next((value for key, value in PEAKS.items() if device == "cuda" and key in device_name()), None)
    found = {}
    for name, (_, batches, model) in systems.items():
        tokens = sum(int(batch["labels"].ne(IGNORED_LABEL).sum()) for batch in batches[2:])
        flop = None if model is None else sum(flop_of(batch, model) for batch in batches[2:])
        total = sum(seconds[name])
        found[name] = {
            "tokens_per_second": tokens / total,
            "milliseconds": 1000 * statistics.median(seconds[name]),
            "utilisation": flop / total / peak if flop and peak else None,
        }
    for row in found.values():
        row["ratio"] = row["tokens_per_second"] / found[REFERENCE]["tokens_per_second"]
    return found


def device_name() -> str:
    return torch.cuda.get_device_name(0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0].strip())
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--attention", default="sdpa", help="sdpa, flash_attention_2 or eager")
    parser.add_argument("--max-tokens", type=int, default=16_384)
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--small", action="store_true", help="a tiny model, to try the script")
    parser.add_argument("--output", type=Path, default=RESULTS / "training_gpu.json")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("no GPU here: run it on a machine with one, or try it with --device cpu --small")
    found = measure(options)
    settings = {name: getattr(options, name) for name in ("device", "attention", "max_tokens", "updates", "small")}
    write_results(options.output, {"benchmark": "gpu", "run": run_info(seed=1), **settings, "systems": found})
    print(f"{'system':32} {'tokens/s':>10} {'ratio':>6} {'ms':>8} {'MFU':>6}")
    for name, row in found.items():
        share = "" if row["utilisation"] is None else f"{row['utilisation']:.1%}"
        print(f"{name:32} {row['tokens_per_second']:10.0f} {row['ratio']:6.2f} {row['milliseconds']:8.1f} {share:>6}")


if __name__ == "__main__":
    main()
