"""
Where the time of a training step goes: `python benchmarks/profile_step.py RECIPE [data.path=... ...] --output JSON`.

Runs updates of the recipe's model on its own batches outside the Trainer, first timed, then under the profiler. Runs on
any commit of the package (`PYTHONPATH=CHECKOUT`), so that a change can be compared with what was before.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import torch
from measuring import token_batches, update

from hf_deepnmt.provenance import run_info, write_results
from hf_deepnmt.training import keep_freed_memory, load_recipe, make_model, prepare, training_arguments


def measure(recipe, updates: int, warmup: int) -> dict:
    """Target tokens a second (median over updates), and the share of each operation in the CPU time of the profile."""
    keep_freed_memory()
    with tempfile.TemporaryDirectory() as folder:
        _, encoded, tokenizer = prepare(recipe, Path(folder), seed=1)
    budget = recipe.training.get("max_tokens", 4096)
    batches = token_batches(encoded["train"], tokenizer.pad_token_id, budget, warmup + updates)
    torch.manual_seed(1)
    bf16 = training_arguments(recipe, Path("unused")).bf16
    model = make_model(recipe, tokenizer, bf16=bf16).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    for batch in batches[:warmup]:
        update(model, optimizer, batch, bf16)
    speeds, seconds = [], []
    for batch in batches[warmup:]:
        start = time.perf_counter()
        tokens = update(model, optimizer, batch, bf16)
        seconds.append(time.perf_counter() - start)
        speeds.append(tokens / seconds[-1])
    with torch.profiler.profile() as profile:
        for batch in batches[warmup:]:
            update(model, optimizer, batch, bf16)
    rows = profile.key_averages()
    total = sum(row.self_cpu_time_total for row in rows)
    top = sorted(rows, key=lambda row: -row.self_cpu_time_total)[:25]
    return {
        "tokens_per_second": statistics.median(speeds),
        "seconds_per_update": statistics.mean(seconds),
        "operations": [
            {
                "name": row.key,
                "share": row.self_cpu_time_total / total,
                "ms_per_update": row.self_cpu_time_total / 1e3 / updates,
                "calls_per_update": row.count / updates,
            }
            for row in top
        ],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0].strip())
    parser.add_argument("recipe")
    parser.add_argument("overrides", nargs="*", help="recipe fields, such as data.path=FOLDER")
    parser.add_argument("--updates", type=int, default=10)
    parser.add_argument("--warmup", type=int, default=6)
    parser.add_argument("--output", required=True)
    options = parser.parse_intermixed_args()
    found = measure(load_recipe(options.recipe, options.overrides), options.updates, options.warmup)
    write_results(options.output, {**found, "recipe": Path(options.recipe).name, "run": run_info(seed=1)})
    print(f"{found['tokens_per_second']:.0f} target tokens a second")
    for row in found["operations"]:
        print(
            f"{row['share']:6.1%} {row['ms_per_update']:8.1f} ms {row['calls_per_update']:7.0f} calls  {row['name']}"
        )


if __name__ == "__main__":
    main()
