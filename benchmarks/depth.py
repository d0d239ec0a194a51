"""
What very deep encoders cost: memory and time of a training step, and decoding speed.

`training`: plain and MSC nets of equal depth, with and without gradient checkpointing, each in a process of its own. A
round runs every process once; times are medians over the rounds of each process's median step. `peak_mib` is what a
process needed beyond the libraries: weights, gradients, Adam's moments and activations.
`decoding`: beam search with random weights and translations of a fixed length, in one process, in bf16 where that is fast.
A round runs each model once, in turn; figures are medians over rounds of the ratio to the 6-layer baseline of the same round.
On a CPU the time is that of the process, since other work on the machine stretches the clock but hardly the work.
Run: python benchmarks/depth.py, and with --device cuda on a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch


ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from hf_deepnmt.models import ARCHITECTURES, MSCConfig  # noqa: E402
from hf_deepnmt.provenance import run_info, write_results  # noqa: E402
from hf_deepnmt.training import attention_for, fast_bf16  # noqa: E402


SEED = 0
VOCABULARY = 10152
MODELS = {"plain": "deepnmt", "msc": "msc"}
# tokens a second of the paper's Table 2, by encoder depth; None is the plain net of 6 layers
PAPER = {None: 1800, 6: 1736, 36: 1498, 54: 1412, 72: 1340}


def clock(device: str) -> float:
    if device == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def make_model(kind: str, layers: int, device: str, bf16: bool, small: bool):
    torch.manual_seed(SEED)
    fields = {**MSCConfig.presets["small-36"], "encoder_layers": layers, "norm_style": "pre"}
    fields |= {"d_model": 32, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32} if small else {}
    architecture = ARCHITECTURES[MODELS[kind]]
    model = architecture.head(architecture.config(vocab_size=VOCABULARY, **fields)).to(device)
    model.set_attn_implementation(attention_for(architecture.head, bf16 and device == "cpu"))
    return model


# --- training ---


def resident_mib(peak: bool) -> float:
    if peak:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def train_one(options: dict) -> dict:
    """Some updates of one model in this process: median milliseconds of a step and the peak of memory in MiB."""
    device = options["device"]
    before = resident_mib(peak=False)
    model = make_model(options["model"], options["layers"], device, fast_bf16(), options["small"]).train()
    if options["checkpointing"]:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    shape = (options["sentences"], options["length"])
    ids = torch.randint(3, VOCABULARY, shape, generator=torch.Generator().manual_seed(SEED)).to(device)
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}
    seconds, losses = [], []
    for _ in range(options["steps"] + 1):
        start = clock(device)
        with torch.autocast(device, torch.bfloat16, enabled=fast_bf16()):
            loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(clock(device) - start)
        losses.append(loss.item())
    # memory that the libraries hold, but no model, was there before
    peak = torch.cuda.max_memory_allocated() / 2**20 if device == "cuda" else resident_mib(peak=True) - before
    finite = all(torch.tensor(losses).isfinite().tolist())
    return {
        "milliseconds": 1000 * statistics.median(seconds[1:]),
        "peak_mib": peak,
        "finite_losses": finite,
        "parameters": model.num_parameters(),
    }


def measure_training(arguments: argparse.Namespace) -> list[dict]:
    settings = [
        {"model": model, "layers": layers, "checkpointing": checkpointing}
        for layers in arguments.layers
        for model in MODELS
        for checkpointing in (False, True)
    ]
    common = {name: getattr(arguments, name) for name in ("device", "sentences", "length", "steps", "small")}
    found: list[list[dict]] = [[] for _ in settings]
    for _ in range(arguments.training_rounds):
        for setting, results in zip(settings, found, strict=True):
            worker = [sys.executable, __file__, "--worker", json.dumps({**common, **setting})]
            done = subprocess.run(worker, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"{setting} failed: {done.stderr.strip().splitlines()[-1:]}")
            results.append(json.loads(done.stdout.splitlines()[-1]))
    rows = []
    for setting, results in zip(settings, found, strict=True):
        row = {
            **setting,
            "parameters": results[0]["parameters"],
            "finite_losses": all(result["finite_losses"] for result in results),
            "milliseconds": round(statistics.median(result["milliseconds"] for result in results), 1),
            "peak_mib": round(statistics.median(result["peak_mib"] for result in results), 1),
        }
        rows.append(row)
        print(*(f"{name} {value}" for name, value in row.items()), sep=", ", flush=True)
    return rows


# --- decoding ---


def measure_decoding(arguments: argparse.Namespace) -> dict:
    device, beams = arguments.device, arguments.beams
    sources = torch.randint(3, VOCABULARY, (arguments.decoding_sentences, arguments.source_length)).to(device)
    inputs = {"input_ids": sources, "attention_mask": torch.ones_like(sources)}
    length = arguments.target_length
    limits = {"num_beams": beams, "min_new_tokens": length, "max_new_tokens": length}
    bf16 = fast_bf16()
    dtype = torch.bfloat16 if bf16 else torch.float32
    settings = {"plain 6": ("plain", 6), **{f"msc {layers}": ("msc", layers) for layers in arguments.decoding_layers}}
    candidates = {
        name: make_model(*setting, device, bf16, arguments.small).to(dtype).eval()
        for name, setting in settings.items()
    }
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    encoder: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(arguments.decoding_rounds + 1):
        names = list(candidates)
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            start = clock(device)
            output = candidates[name].generate(**inputs, **limits)
            middle = clock(device)
            with torch.no_grad():
                candidates[name].get_encoder()(**inputs)
            # the first round warms up
            if turn:
                seconds[name].append(middle - start)
                encoder[name].append(clock(device) - middle)
            assert output.shape == (len(sources), length + 1), "translations are to have the fixed length"
    rows = {}
    for name, values in seconds.items():
        ratio = statistics.median(own / base for own, base in zip(values, seconds["plain 6"], strict=True))
        layers = None if name == "plain 6" else int(name.split()[1])
        paper = PAPER.get(layers)
        rows[name] = {
            "tokens_per_second": round(len(sources) * length / statistics.median(values), 1),
            "tokens_per_second_change": round(1 / ratio - 1, 4),
            "paper_change": None if paper is None else round(paper / PAPER[None] - 1, 4),
            "encoder_share": round(statistics.median(encoder[name]) / statistics.median(values), 4),
        }
        print(name, rows[name], flush=True)
    shape = {"sentences": len(sources), "source_length": arguments.source_length, "target_length": length}
    return {
        **shape,
        "beams": beams,
        "dtype": str(dtype).removeprefix("torch."),
        "rounds": arguments.decoding_rounds,
        "models": rows,
    }


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--layers", type=int, nargs="*", default=[6, 36, 72], help="depths for training; none skips it"
    )
    parser.add_argument("--sentences", type=int, default=64)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--training-rounds", type=int, default=3)
    parser.add_argument("--decoding-layers", type=int, nargs="*", default=[6, 36, 72], help="none skips decoding")
    parser.add_argument("--decoding-sentences", type=int, default=32)
    parser.add_argument("--source-length", type=int, default=25)
    parser.add_argument("--target-length", type=int, default=25)
    parser.add_argument("--beams", type=int, default=5)
    parser.add_argument("--decoding-rounds", type=int, default=7)
    parser.add_argument("--small", action="store_true", help="tiny widths, to try the script")
    parser.add_argument("--note", help="what else ran on the machine")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    if arguments.worker:
        print(json.dumps(train_one(json.loads(arguments.worker))))
        return
    output = arguments.output or ROOT / "benchmarks" / "results" / f"depth_{arguments.device}.json"
    torch.manual_seed(SEED)
    before = os.getloadavg()[0]
    training = measure_training(arguments) if arguments.layers else None
    decoding = measure_decoding(arguments) if arguments.decoding_layers else None
    payload = {
        "benchmark": "depth",
        "run": run_info(SEED),
        "device": arguments.device,
        "time": "process CPU time" if arguments.device == "cpu" else "wall time",
        "load_average": {"before": round(before, 2), "after": round(os.getloadavg()[0], 2)},
        "note": arguments.note,
        "small": arguments.small,
        "training": {
            "dtype": "bfloat16 (autocast)" if fast_bf16() else "float32",
            "sentences": arguments.sentences,
            "length": arguments.length,
            "steps": arguments.steps,
            "rounds": arguments.training_rounds,
            "models": training,
        },
        "decoding": decoding,
    }
    write_results(output, payload)


if __name__ == "__main__":
    main()
