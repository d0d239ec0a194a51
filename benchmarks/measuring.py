"""What the benchmarks share: interleaved timing, one update of a model, and real batches."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch


ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
# behind what PYTHONPATH names, so that another checkout of the package can be measured
sys.path.append(str(ROOT))

from hf_deepnmt.batching import Seq2SeqCollator, TokenBudgetBatchSampler, column_lengths  # noqa: E402
from hf_deepnmt.models import ARCHITECTURES  # noqa: E402
from hf_deepnmt.training import fast_bf16  # noqa: E402


SMALL_RECIPE = ROOT / "training" / "recipes" / "deepnmt_multi30k-de-en_small.yaml"


def wall_clock(device: str = "cpu") -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def work_clock(device: str = "cpu") -> float:
    """The time of the process on a CPU, which other work on the machine stretches less than the clock on the wall."""
    return time.process_time() if device == "cpu" else wall_clock(device)


def interleaved(
    candidates: dict[str, Callable[[], object]],
    baseline: str,
    rounds: int,
    device: str = "cpu",
    clock: Callable[[str], float] = work_clock,
    warmup: int = 1,
) -> dict:
    """
    Run each candidate once a round, in turn, beginning with another one each time.

    Returns:
        `milliseconds`, median by candidate; `ratio`, the median over rounds of its time to `baseline`'s in the same round;
        `rounds` and `baseline`.
    """
    seconds = {name: [] for name in candidates}
    for _ in range(warmup):
        for function in candidates.values():
            function()
    for turn in range(rounds):
        names = list(candidates)
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            start = clock(device)
            candidates[name]()
            seconds[name].append(clock(device) - start)
    ratios = {
        name: statistics.median(own / base for own, base in zip(values, seconds[baseline], strict=True))
        for name, values in seconds.items()
    }
    return {
        "milliseconds": {name: round(1000 * statistics.median(values), 3) for name, values in seconds.items()},
        "ratio": {name: round(ratio, 3) for name, ratio in ratios.items()},
        "rounds": rounds,
        "baseline": baseline,
    }


def token_batches(dataset, pad_token_id: int, max_tokens: int, count: int, seed: int = 1) -> list[dict]:
    """The first `count` batches of an epoch under a token budget, as the Trainer makes them."""
    rows = dataset.select_columns(["input_ids", "labels"])
    lengths = column_lengths(rows, "input_ids"), column_lengths(rows, "labels")
    sampler = TokenBudgetBatchSampler(*lengths, max_tokens, seed=seed)
    collate = Seq2SeqCollator(pad_token_id)
    return [collate([rows[int(row)] for row in batch]) for batch in sampler.batches()[:count]]


def seeded_model(
    model_type: str, fields: dict, seed: int = 0, attn_implementation: str = "eager", device: str = "cpu"
):
    """A model of an architecture in training mode, and fused AdamW."""
    torch.manual_seed(seed)
    architecture = ARCHITECTURES[model_type]
    model = architecture.head(architecture.config(**fields)).to(device).train()
    model.set_attn_implementation(attn_implementation)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.98), fused=True)


def update(model, optimizer, batch: dict, bf16: bool | None = None) -> int:
    """One update: forward, backward, clipping, Adam; unset, in bf16 where that is fast. Returns the real target tokens."""
    bf16 = fast_bf16() if bf16 is None else bf16
    tokens = batch["labels"].ne(-100).sum()
    with torch.autocast(batch["labels"].device.type, dtype=torch.bfloat16, enabled=bf16):
        loss = model(**batch, num_items_in_batch=tokens).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return int(tokens)
