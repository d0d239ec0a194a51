"""
Training speed against what a user would pick instead, and of the architectures against the baseline.

    python benchmarks/training.py speed --data FOLDER [--venvs FOLDER]     tokens a second, systems in turn
    python benchmarks/training.py architectures --data FOLDER              one update of each architecture, in turn
    python benchmarks/training.py curves --data FOLDER                     validation loss after equal numbers of tokens
    python benchmarks/training.py processes --data FOLDER                  one and two processes, equal global batches

All train German to English on Multi30k (`--data`: its folder), joint vocabulary of 8000, d 256, ffn 1024, 4 heads, 3+3 layers.
`speed` runs the systems one after the other, each in a process of its own, and again for each round; ratios are to Hugging
Face Trainer defaults in the same round. Peers need a virtual environment each: `python benchmarks/peers.py install NAME`.
Nothing else should run on the machine: `--note` says what did.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import torch
from datasets import DatasetDict, load_from_disk
from measuring import RESULTS, SMALL_RECIPE, interleaved, seeded_model, token_batches, update, wall_clock
from transformers import (
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    MarianConfig,
    MarianMTModel,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    TrainerCallback,
)

from hf_deepnmt.batching import Seq2SeqCollator, TokenBudgetBatchSampler, column_lengths
from hf_deepnmt.models import ARCHITECTURES, DeepNMTConfig, DeepNMTForConditionalGeneration, MLRFConfig
from hf_deepnmt.models.modeling_deepnmt import IGNORED_LABEL, marian_fields, shift_right
from hf_deepnmt.provenance import run_info, write_results
from hf_deepnmt.trainer import DeepNMTTrainer, DeepNMTTrainingArguments
from hf_deepnmt.training import fast_bf16, keep_freed_memory, load_recipe, prepare


SHAPE = {
    "d_model": 256,
    "encoder_layers": 3,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 1024,
    "decoder_ffn_dim": 1024,
    "dropout": 0.1,
}
# Shapes of `architectures`: that of the other comparisons, and that of the paper of MLRF for Chinese-English.
SHAPES = {
    "small": {**SHAPE, "norm_style": "pre"},
    "mlrf-zh": {
        name: value
        for name, value in {**MLRFConfig.presets["zh-base"], "vocab_size": 30_000, "dropout": 0.1}.items()
        if name not in ("encoder_fusion", "decoder_fusion", "n_hop")
    },
}
REFERENCE = "hf-defaults"
# `hf-*` is MarianMTModel with Seq2SeqTrainer and 128 sentences a batch; fields of its training arguments.
REFERENCES = {
    REFERENCE: {},
    "hf-grouped": {"train_sampling_strategy": "group_by_length"},
    "hf-grouped-bf16": {"train_sampling_strategy": "group_by_length", "bf16": True},
}
# rows in bf16 are left out on a machine without fast bf16 arithmetic
OWN = {"deepnmt": {}, "deepnmt-bf16": {"bf16": True}}
SENTENCES, TOKENS, SMOOTHING = 128, 4096, 0.1
OPTIMISATION = {
    "learning_rate": 1e-3,
    "warmup_steps": 200,
    "lr_scheduler_type": "inverse_sqrt",
    "adam_beta2": 0.98,
    "adam_epsilon": 1e-9,
}
# Rows beside each architecture's own default: config fields that change what an update costs.
VARIANTS = {
    "attention_link": {"": {}, "cumulative": {"link_mode": "cumulative"}},
    "reordering": {"ExGRE": {"fusion": "none"}, "ReFSR": {"fusion": "gate"}},
    "mlrf": {
        "Enc-FNN": {"encoder_fusion": "fnn", "decoder_fusion": "none"},
        "Dec-SA4": {"encoder_fusion": "none", "decoder_fusion": "sa", "n_hop": 4},
        "Both-FNN-SA4": {"encoder_fusion": "fnn", "decoder_fusion": "sa", "n_hop": 4},
    },
    # depth is what MSC is for: benchmarks/depth.py
    "msc": {"3 blocks of 1 layer": {"blocks": [1, 1, 1]}},
}


# --- one system in a process of its own ---


class Clock(TrainerCallback):
    """When each update ended."""

    def __init__(self):
        self.times = []

    def on_step_end(self, *args, **kwargs):
        self.times.append(time.perf_counter())


class Validation(TrainerCallback):
    """Negative log-likelihood a token of held-out pairs, in nats, every so many updates."""

    def __init__(self, batches: list[dict], every: int, tokens: list[int]):
        self.batches, self.every, self.tokens, self.points = batches, every, tokens, []

    def on_step_end(self, args, state, control, model=None, **kwargs):
        if state.global_step % self.every:
            return
        model.eval()
        total = count = 0
        with torch.no_grad():
            for batch in self.batches:
                labels = batch["labels"]
                words = shift_right(labels, model.config.pad_token_id, model.config.decoder_start_token_id)
                sides = {name: batch[name] for name in ("input_ids", "attention_mask")}
                logits = model(**sides, decoder_input_ids=words).logits.float()
                total += torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
                count += labels.ne(IGNORED_LABEL).sum()
        model.train()
        trained = sum(self.tokens[: state.global_step])
        self.points.append({"update": state.global_step, "tokens": trained, "nll": float(total / count)})


def counted(collate, tokens: list[int]):
    """`collate`, which also notes the real target tokens of each batch."""

    def call(rows):
        batch = collate(rows)
        tokens.append(int(batch["labels"].ne(IGNORED_LABEL).sum()))
        return batch

    return call


class CountingCollator(Seq2SeqCollator):
    def __init__(self, pad_token_id: int, tokens: list[int]):
        super().__init__(pad_token_id)
        self.count = counted(super().__call__, tokens)

    def __call__(self, rows):
        return self.count(rows)


def marian_config(vocabulary: int, tokenizer) -> MarianConfig:
    tokens = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    return MarianConfig(
        vocab_size=vocabulary,
        decoder_vocab_size=vocabulary,
        decoder_start_token_id=tokenizer.bos_token_id,
        bos_token_id=tokenizer.bos_token_id,
        forced_eos_token_id=None,
        scale_embedding=True,
        activation_function="relu",
        **SHAPE,
        **tokens,
    )


def worker(options: argparse.Namespace):
    """Train one system for some updates and print its figures as JSON."""
    data, tokenizer = (
        load_from_disk(str(options.encoded)),
        AutoTokenizer.from_pretrained(options.encoded / "tokenizer"),
    )
    train = data["train"].select_columns(["input_ids", "labels"])
    torch.manual_seed(options.seed)
    marian, tokens, clock = marian_config(len(tokenizer), tokenizer), [], Clock()
    own = options.system in OWN
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    arguments = {
        "output_dir": str(options.encoded / "runs"),
        "max_steps": options.updates,
        "use_cpu": True,
        "report_to": [],
        "save_strategy": "no",
        "disable_tqdm": True,
        "seed": options.seed,
        **({"ddp_backend": "gloo"} if processes > 1 else {}),
        **OPTIMISATION,
        **(OWN if own else REFERENCES)[options.system],
    }
    if own:
        keep_freed_memory()
        budget = options.budget or TOKENS
        fields = {**marian_fields(marian, DeepNMTConfig), "output_bias": True, "label_smoothing": SMOOTHING}
        model = DeepNMTForConditionalGeneration._from_config(DeepNMTConfig(**fields), attn_implementation="eager")
        trainer = DeepNMTTrainer(
            model=model,
            args=DeepNMTTrainingArguments(**arguments, max_tokens=budget, predict_with_generate=False),
            train_dataset=train,
            data_collator=CountingCollator(tokenizer.pad_token_id, tokens),
            callbacks=[clock],
        )
    else:
        model = MarianMTModel(marian)
        collate = DataCollatorForSeq2Seq(tokenizer, model=model, label_pad_token_id=IGNORED_LABEL)
        trainer = Seq2SeqTrainer(
            model=model,
            args=Seq2SeqTrainingArguments(
                **arguments, per_device_train_batch_size=SENTENCES, label_smoothing_factor=SMOOTHING
            ),
            train_dataset=train,
            data_collator=counted(collate, tokens),
            callbacks=[clock],
        )
    validation = None
    if options.every:
        held_out = data["validation"].select(range(min(500, len(data["validation"]))))
        batches = token_batches(held_out, tokenizer.pad_token_id, TOKENS, len(held_out))
        validation = Validation(batches, options.every, tokens)
        trainer.add_callback(validation)
    trainer.train()
    first, last = options.warmup, options.updates
    seconds = clock.times[last - 1] - clock.times[first - 1]
    figures = {
        "tokens_per_second": sum(tokens[first:last]) / seconds,
        "tokens": sum(tokens[first:last]),
        "tokens_per_update": sum(tokens[:last]) / last,
        "seconds": seconds,
        "parameters": model.num_parameters(),
        "validation": validation and validation.points,
    }
    print(json.dumps(figures))


def run_worker(
    encoded: Path, system: str, updates: int, warmup: int, threads: int, processes: int = 1, **more
) -> dict:
    """The figures of one system; with several processes, tokens of all of them by the time of the slowest."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"] * (processes > 1)
    command = [sys.executable, *launcher, __file__, "worker", "--encoded", str(encoded), "--system", system]
    command += ["--updates", str(updates), "--warmup", str(warmup)]
    for name, value in more.items():
        command += [f"--{name}", str(value)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{system} failed:\n{done.stderr[-3000:]}")
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"')][-processes:]
    tokens, seconds = sum(part["tokens"] for part in found), max(part["seconds"] for part in found)
    return {**found[0], "tokens": tokens, "seconds": seconds, "tokens_per_second": tokens / seconds}


def encode(options: argparse.Namespace, folder: Path) -> DatasetDict:
    """The recipe's data and tokenizer, saved in `folder`."""
    recipe = load_recipe(SMALL_RECIPE, [f"data.path={options.data}"])
    _, encoded, tokenizer = prepare(recipe, folder, seed=1)
    encoded.save_to_disk(str(folder))
    tokenizer.save_pretrained(str(folder / "tokenizer"))
    return encoded


def padding_of(train, max_tokens: int) -> float:
    lengths = column_lengths(train, "input_ids"), column_lengths(train, "labels")
    return TokenBudgetBatchSampler(*lengths, max_tokens).padding_share()


# --- the three comparisons ---


def speed(options: argparse.Namespace, folder: Path) -> dict:
    train = encode(options, folder)["train"]
    # a slow system needs no more updates than a fast one to be known as well
    systems = {name: fields for name, fields in (REFERENCES | OWN).items() if fast_bf16() or not fields.get("bf16")}
    updates = {name: options.updates // 3 if name.startswith("hf") else options.updates for name in systems}
    runs = {
        name: partial(run_worker, folder, name, count, options.warmup, options.threads)
        for name, count in updates.items()
    }
    if options.venvs:
        from peers import PEERS, segment

        segment(options.data, folder / "text")
        for name, peer in PEERS.items():
            paths = Path(options.venvs), folder / "text", folder / "peers"
            runs[name] = partial(peer.run, *paths, options.updates, options.warmup, options.threads)
    if options.systems:
        runs = {name: run for name, run in runs.items() if name in {REFERENCE, *options.systems.split(",")}}
    rounds = {name: [] for name in runs}
    for turn in range(options.rounds):
        for name, run in runs.items():
            rounds[name].append(run())
            print(f"round {turn + 1}: {name} {rounds[name][-1]['tokens_per_second']:.0f} tokens/s", flush=True)
    speeds = {name: [found["tokens_per_second"] for found in values] for name, values in rounds.items()}
    return {
        "padding": {str(budget): padding_of(train, budget) for budget in (2048, 4096, 8192)},
        "systems": {
            name: {
                "tokens_per_second": statistics.median(values),
                "ratio": statistics.median(own / base for own, base in zip(values, speeds[REFERENCE], strict=True)),
                "rounds": values,
                "run": rounds[name][-1],
            }
            for name, values in speeds.items()
        },
    }


def with_positions(batch: dict) -> dict:
    """The batch with a random target order, as supervision of the source's."""
    mask = batch["attention_mask"]
    order = torch.rand(mask.shape, device=mask.device).masked_fill(mask == 0, 2.0).argsort(dim=-1).argsort(dim=-1)
    return {**batch, "target_positions": order.masked_fill(mask == 0, IGNORED_LABEL).float()}


def for_model(model, batches: list[dict]) -> list[dict]:
    """The batches with all that the model trains on."""
    supervised = "target_positions" in inspect.signature(model.forward).parameters
    return [with_positions(batch) for batch in batches] if supervised else batches


def rows() -> dict[str, tuple[str, dict]]:
    """Architecture and config fields of each row, the baseline first."""
    found = {"deepnmt": ("deepnmt", {})}
    for model_type in ARCHITECTURES:
        variants = VARIANTS.get(model_type, {"": {}})
        found |= {f"{model_type} {name}".strip(): (model_type, fields) for name, fields in variants.items()}
    return found


def architectures(options: argparse.Namespace, folder: Path) -> dict:
    """One update of the baseline and of each architecture on the same batches, in bf16 where that is fast."""
    torch.set_num_threads(options.threads)
    keep_freed_memory()
    batches = token_batches(encode(options, folder)["train"], 1, options.tokens, options.rounds + 2)
    vocabulary = len(AutoTokenizer.from_pretrained(folder / "tokenizer"))
    candidates, sizes = {}, {}
    wanted = {"deepnmt", *options.systems.split(",")} if options.systems else set(rows())
    for name, (model_type, fields) in rows().items():
        if name not in wanted:
            continue
        fields = {"vocab_size": vocabulary, **SHAPES[options.shape], **fields}
        model, optimizer = seeded_model(model_type, fields)
        turns = iter(for_model(model, batches))
        candidates[name] = lambda turns=turns, model=model, optimizer=optimizer: update(model, optimizer, next(turns))
        sizes[name] = model.num_parameters()
    found = interleaved(candidates, "deepnmt", options.rounds, clock=wall_clock, warmup=2)
    for name, ratio in found["ratio"].items():
        print(f"{name:32} {found['milliseconds'][name]:7.0f} ms {ratio:6.3f}", flush=True)
    return {"shape": SHAPES[options.shape], "max_tokens": options.tokens, "parameters": sizes, **found}


def curves(options: argparse.Namespace, folder: Path) -> dict:
    """Validation loss after equal numbers of target tokens and updates, Trainer defaults against ours."""
    train = encode(options, folder)["train"]
    lengths = column_lengths(train, "input_ids"), column_lengths(train, "labels")
    wanted = -(-len(train) // SENTENCES)
    budget = next(size for size in range(1024, 8192, 64) if len(TokenBudgetBatchSampler(*lengths, size)) <= wanted)
    updates = int(options.epochs * wanted)
    found = {}
    own = "deepnmt-bf16" if fast_bf16() else "deepnmt"
    for name, seeds in ((own, options.seeds), (REFERENCE, options.reference_seeds)):
        more = {"every": wanted // 2, "budget": budget}
        for seed in range(1, seeds + 1):
            figures = run_worker(folder, name, updates, 10, options.threads, seed=seed, **more)
            found.setdefault(name, []).append(figures)
            print(name, seed, [round(point["nll"], 3) for point in figures["validation"]], flush=True)
    return {"updates": updates, "max_tokens": budget, "curves": found}


def processes(options: argparse.Namespace, folder: Path) -> dict:
    """The same global batches in one process with all threads, and shared by processes of one thread each."""
    encode(options, folder)
    own = "deepnmt-bf16" if fast_bf16() else "deepnmt"
    found = {}
    for _ in range(options.rounds):
        for count in (1, options.threads):
            shared = {"processes": count, "budget": TOKENS // count}
            figures = run_worker(folder, own, 40, 8, options.threads // count, **shared)
            found.setdefault(count, []).append(figures["tokens_per_second"])
            print(f"{count} processes: {figures['tokens_per_second']:.0f} tokens/s", flush=True)
    pairs = zip(found[options.threads], found[1], strict=True)
    return {
        "tokens_per_second": {str(count): statistics.median(values) for count, values in found.items()},
        "rounds": {str(count): values for count, values in found.items()},
        "ratio": statistics.median(several / one for several, one in pairs),
    }


COMMANDS = {"speed": speed, "architectures": architectures, "curves": curves, "processes": processes}


def main(arguments: list[str] | None = None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0].strip())
    commands = parser.add_subparsers(dest="command", required=True)
    for name, function in COMMANDS.items():
        command = commands.add_parser(name, help=function.__doc__)
        command.add_argument("--data", required=True, help="folder of Multi30k")
        command.add_argument("--threads", type=int, default=2)
        command.add_argument("--note", help="what else ran on the machine")
        command.add_argument("--output", type=Path, default=RESULTS / f"training_{name}.json")
        if name in ("speed", "architectures"):
            command.add_argument("--systems", default="", help="only these, separated by commas")
        if name == "speed":
            command.add_argument("--venvs", help="folder of the peers' virtual environments")
        if name == "architectures":
            command.add_argument("--shape", choices=SHAPES, default="small")
            command.add_argument("--tokens", type=int, default=TOKENS, help="the largest batch, in padded tokens")
        if name != "curves":
            command.add_argument("--rounds", type=int, default=20 if name == "architectures" else 3)
        if name == "speed":
            command.add_argument("--updates", type=int, default=36)
            command.add_argument("--warmup", type=int, default=4)
        if name == "curves":
            command.add_argument("--epochs", type=float, default=3)
            command.add_argument("--seeds", type=int, default=3)
            command.add_argument("--reference-seeds", type=int, default=1)
    command = commands.add_parser("worker")
    command.add_argument("--encoded", type=Path, required=True)
    command.add_argument("--system", choices=[*REFERENCES, *OWN], required=True)
    for name, default in (("updates", 36), ("warmup", 4), ("seed", 1), ("every", 0), ("budget", 0)):
        command.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args(arguments)
    if options.command == "worker":
        worker(options)
        return
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        found = COMMANDS[options.command](options, Path(folder))
    load = {"before": round(before, 2), "after": round(os.getloadavg()[0], 2)}
    about = {"benchmark": f"training {options.command}", "run": run_info(seed=1), "threads": options.threads}
    about["precision"] = "bf16" if fast_bf16() else "fp32"
    write_results(options.output, {**about, "load_average": load, "note": options.note, **found})


if __name__ == "__main__":
    main()
