"""
An estimate, not a measurement: training on data of WMT14's size with several GPUs.

What is computed: the token-budget batches of 4.5 million pairs of lengths like WMT14's, as the Trainer would shard them; the
padding, and how long the processes wait for the slowest in each update. What is assumed stands in `ASSUMPTIONS` and in the
results: lengths, arithmetic per token, the speed of a GPU and of the links between them.
Run: python benchmarks/scale.py
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from measuring import RESULTS

from hf_deepnmt.batching import TokenBudgetBatchSampler
from hf_deepnmt.models import DeepNMTConfig, DeepNMTForConditionalGeneration, MSCConfig, MSCForConditionalGeneration
from hf_deepnmt.provenance import run_info, write_results


ASSUMPTIONS = {
    "pairs": 4_500_000,
    "mean source subwords": 29.0,
    "shape of the gamma distribution of source lengths": 2.2,
    "standard deviation of target over source length": 0.2,
    "longest pair kept": 256,
    "peak of one GPU in bf16, FLOP/s": 989e12,
    "share of the peak that is reached": 0.25,
    "all-reduce bandwidth between GPUs, bytes/s": 300e9,
    "bytes per gradient": 4,
    "FLOP per parameter and padded token, forward and backward": 6,
}
WIDE = {"d_model": 512, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048, "vocab_size": 37_000}
MODELS = {
    "Transformer base": (DeepNMTForConditionalGeneration, DeepNMTConfig(**WIDE)),
    "MSC base, 36 layers": (MSCForConditionalGeneration, MSCConfig(**WIDE, blocks=[6] * 6, norm_style="pre")),
}


def lengths(pairs: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Random lengths of source and target with the assumed distribution, end token included."""
    generator = np.random.default_rng(seed)
    shape, mean = ASSUMPTIONS["shape of the gamma distribution of source lengths"], ASSUMPTIONS["mean source subwords"]
    longest = ASSUMPTIONS["longest pair kept"]
    source = generator.gamma(shape, mean / shape, pairs)
    ratio = generator.normal(1.0, ASSUMPTIONS["standard deviation of target over source length"], pairs)
    return tuple(np.clip(side.astype(int) + 1, 1, longest) for side in (source, source * ratio))


def matrix_parameters(model) -> tuple[int, int]:
    """Parameters that each source token and each target token is multiplied with."""
    source = sum(p.numel() for p in model.model.encoder.layers.parameters())
    target = sum(p.numel() for p in model.model.decoder.layers.parameters()) + model.lm_head.weight.numel()
    return source, target


def estimate(gpus: int, max_tokens: int, pairs: int) -> dict:
    sampler = TokenBudgetBatchSampler(*lengths(pairs), max_tokens, group_size=gpus)
    source, target = sampler.source_lengths, sampler.target_lengths
    sizes = np.array([(len(b) * source[b].max(), len(b) * target[b].max()) for b in sampler.batches()])
    found = {
        "updates per epoch": len(sizes) // gpus,
        "padding": sampler.padding_share(),
        "target tokens per update": float(target.sum() / (len(sizes) // gpus)),
        "models": {},
    }
    rate = ASSUMPTIONS["peak of one GPU in bf16, FLOP/s"] * ASSUMPTIONS["share of the peak that is reached"]
    for name, (head, config) in MODELS.items():
        with torch.device("meta"):
            model = head(config)
        flop = ASSUMPTIONS["FLOP per parameter and padded token, forward and backward"]
        work = (sizes @ np.array(matrix_parameters(model)) * flop).reshape(-1, gpus)
        count = model.num_parameters()
        ring = 2 * (gpus - 1) / gpus * count * ASSUMPTIONS["bytes per gradient"]
        exchange = ring / ASSUMPTIONS["all-reduce bandwidth between GPUs, bytes/s"]
        # the exchange overlaps with the backward pass; the worst case, counted here, is that it does not
        seconds = work.max(axis=1).sum() / rate + len(work) * exchange
        found["models"][name] = {
            "parameters": count,
            "share of time that all processes work": float(work.mean() / work.max(axis=1).mean()),
            "milliseconds of gradient exchange per update": 1000 * exchange,
            "target tokens per second": float(target.sum() / seconds),
            "minutes per epoch": float(seconds / 60),
            "speed-up over one GPU": float(work.sum() / rate / seconds),
        }
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0].strip())
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=8192)
    parser.add_argument("--pairs", type=int, default=ASSUMPTIONS["pairs"])
    parser.add_argument("--output", type=Path, default=RESULTS / "scale.json")
    options = parser.parse_args()
    found = estimate(options.gpus, options.max_tokens, options.pairs)
    payload = {"benchmark": "scale", "run": run_info(seed=1), "gpus": options.gpus, "max_tokens": options.max_tokens}
    write_results(options.output, {**payload, "assumptions": ASSUMPTIONS, "estimate": found})
    print(f"{found['updates per epoch']} updates per epoch, padding {found['padding']:.2%}")
    for name, row in found["models"].items():
        print(f"{name}: {row['target tokens per second']:.0f} tokens/s, {row['minutes per epoch']:.1f} min per epoch")


if __name__ == "__main__":
    main()
