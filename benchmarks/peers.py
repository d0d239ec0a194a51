"""
Other toolkits for translation, trained as `training.py speed` trains ours: real target tokens a second.

    python benchmarks/peers.py list                                  the peers and their versions
    python benchmarks/peers.py install NAME --venvs FOLDER           an environment FOLDER/NAME with pinned packages
    python benchmarks/peers.py segment --data FOLDER --text FOLDER   the text that all of them train on
    python benchmarks/peers.py run NAME --venvs FOLDER --text FOLDER --folder FOLDER     the figures of one peer

Each trains the small Transformer of the other comparisons (d 256, ffn 1024, 4 heads, 3+3 layers, shared embeddings) by
its own trainer, with batches of at most 4096 padded tokens on the longer side, and reads the vocabulary numbers of our
tokenizer as words. Two hooks measure: one around its loss counts the real target tokens, end tokens included, and one
at the end of each optimizer step takes the time.

Where this machine is fast in bf16, so is the peer's forward pass: fairseq and eole by their own option; OpenNMT-py,
whose option is for GPUs, under torch's autocast. fairseq and our baseline normalise after the residual; OpenNMT-py and
the decoder of eole know only normalisation before it, which costs one more layer norm a stack. These two also drop
inside the feed-forward part.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections import Counter
from pathlib import Path


# Standard library alone up here: this file also runs inside a peer's environment, which has none of ours.

# The settings of training.py, under names of our own; a test holds the two together.
WIDTH, FEED_FORWARD, HEADS, LAYERS, DROPOUT = 256, 1024, 4, 3, 0.1
TOKENS, SMOOTHING = 4096, 0.1
LEARNING_RATE, WARMUP, BETA, EPSILON = 1e-3, 200, 0.98, 1e-9
CLIPPING = 1.0
SOURCE, TARGET, VOCABULARY = "src", "tgt", "vocabulary.txt"
PRECISIONS = ("fp32", "bf16")
TORCH = "torch==2.13.0"
BUILD_TOOLS = ["numpy==2.4.6", "setuptools==80.9.0", "wheel==0.45.1"]
ERROR_CHARACTERS = 3000


# --- inside a peer's environment ---


class Record:
    """Real target tokens and loss of each batch, and when each optimizer step ended."""

    def __init__(self):
        self.tokens, self.losses, self.times, self.parameters = [], [], [], None

    def batch(self, tokens: int, loss: float):
        self.tokens.append(int(tokens))
        self.losses.append(float(loss) / max(int(tokens), 1))

    def step(self, optimizer, *_):
        if self.parameters is None:
            self.parameters = sum(weight.numel() for group in optimizer.param_groups for weight in group["params"])
        self.times.append(time.perf_counter())

    def figures(self, warmup: int, updates: int) -> dict:
        """
        Figures of the updates after `warmup`, up to `updates`.

        Raises:
            ValueError: the peer made fewer updates, or not one update of each batch.
        """
        if len(self.times) != len(self.tokens):
            raise ValueError(
                f"{len(self.times)} optimizer steps but {len(self.tokens)} batches: the peer must make one step a batch"
            )
        if len(self.times) < updates:
            raise ValueError(f"the peer stopped after {len(self.times)} of {updates} updates: look into its log")
        seconds = self.times[updates - 1] - self.times[warmup - 1]
        tokens = sum(self.tokens[warmup:updates])
        return {
            "tokens_per_second": tokens / seconds,
            "tokens": tokens,
            "tokens_per_update": sum(self.tokens[:updates]) / updates,
            "seconds": seconds,
            "parameters": self.parameters,
            "losses": [round(loss, 4) for loss in self.losses[:updates]],
        }


def with_hook(owner, name: str, around):
    """Put `around(original, *args, **kwargs)` in the place of a method."""
    original = getattr(owner, name)
    setattr(owner, name, lambda *args, **kwargs: around(original, *args, **kwargs))


# --- the peers ---


class Peer(ABC):
    """
    One toolkit in a virtual environment of its own.

    Attributes:
        name: of the row and of the environment's folder.
        package: installed without its own requirements, pinned.
        requirements: what its training needs of them.
        module: what must import for the environment to work.
    """

    name: str
    package: str
    requirements: list[str]
    module: str

    @abstractmethod
    def train(self, record: Record, text: Path, folder: Path, updates: int, precision: str):
        """Train inside the peer's environment with hooks that write to `record`."""

    def python(self, venvs: Path) -> Path:
        return venvs / self.name / "bin" / "python"

    def install(self, venvs: Path):
        """
        Make the peer's environment. What it asks for beyond training, and its older or larger torch, are left out.

        Raises:
            SystemExit: a package cannot be installed, or the peer does not import afterwards.
        """
        venvs.mkdir(parents=True, exist_ok=True)
        self.call([sys.executable, "-m", "venv", "--clear", str(venvs / self.name)], "make the environment")
        pip = [str(self.python(venvs)), "-m", "pip", "install", "--quiet"]
        self.call([*pip, TORCH, *BUILD_TOOLS], "install torch")
        self.call([*pip, *self.requirements], "install the requirements")
        self.call([*pip, "--no-deps", "--no-build-isolation", self.package], "build and install the package")
        self.call([str(self.python(venvs)), "-P", "-c", f"import {self.module}"], f"import {self.module}")

    def call(self, command: list[str], step: str):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(
                f"{self.name}: could not {step}; it needs Python 3.11, a C++ compiler and a package index. "
                f"Leave it out with `training.py speed --systems`, or mend this:\n{done.stderr[-ERROR_CHARACTERS:]}"
            )

    def run(
        self,
        venvs: Path,
        text: Path,
        peers_folder: Path,
        updates: int,
        warmup: int,
        threads: int,
        precision: str | None = None,
    ) -> dict:
        """
        Train in a process of its own and return its figures.

        Args:
            venvs: folder of the environments that `install` made.
            text: folder that `segment` wrote.
            peers_folder: for what the peer writes.
            updates, warmup: tokens and seconds are those between the end of update `warmup` and that of `updates`.
            threads: of torch.
            precision: `fp32` or `bf16`; unset, what this machine is faster in.

        Raises:
            SystemExit: the environment or the text is missing, or training failed.
        """
        venvs, text, folder = Path(venvs), Path(text), Path(peers_folder) / self.name
        if not 0 < warmup < updates:
            raise SystemExit(f"{self.name}: warm-up {warmup} must be at least 1 and less than the {updates} updates")
        if threads < 1:
            raise SystemExit(f"{self.name}: {threads} threads: give at least 1")
        if not self.python(venvs).is_file():
            raise SystemExit(
                f"{self.name}: no environment {venvs / self.name}; make it with "
                f"`python benchmarks/peers.py install {self.name} --venvs {venvs}`, or leave it out with `--systems`"
            )
        if not (text / VOCABULARY).is_file():
            raise SystemExit(
                f"{text}: no {VOCABULARY}; write it with "
                f"`python benchmarks/peers.py segment --data FOLDER --text {text}`"
            )
        folder.mkdir(parents=True, exist_ok=True)
        precision = precision or best_precision()
        # -P: the names of the scripts beside this one must not hide the peer's modules
        command = [str(self.python(venvs)), "-P", str(Path(__file__).resolve()), "train", self.name]
        command += ["--text", str(text.resolve()), "--folder", str(folder.resolve()), "--updates", str(updates)]
        command += ["--warmup", str(warmup), "--precision", precision]
        # without a GPU: some peers take the first they see
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        environment |= {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        figures = folder / "figures.json"
        figures.unlink(missing_ok=True)
        done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
        (folder / "log.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
        if done.returncode or not figures.is_file():
            raise SystemExit(f"{self.name} failed:\n{(done.stdout + done.stderr)[-ERROR_CHARACTERS:]}")
        return {**json.loads(figures.read_text(encoding="utf-8")), "precision": precision, "package": self.package}


class Fairseq(Peer):
    name = "fairseq"
    # the release that builds on Python 3.11; it asks for torchaudio, which training of text does not import
    package = "fairseq-fixed==0.12.3.1"
    requirements = [
        "cython==3.0.12",
        "cffi==2.1.1",
        "hydra-core==1.3.2",
        "omegaconf==2.3.0",
        "regex==2026.12.2",
        "sacrebleu==2.6.0",
        "tqdm==4.70.1",
        "bitarray==3.12.3",
        "scikit-learn==1.9.1",
        "packaging==26.4",
    ]
    module = "fairseq_cli.train"

    def preprocessing(self, text: Path, data: Path, vocabulary: Path) -> list[str]:
        return [
            *("--source-lang", SOURCE, "--target-lang", TARGET, "--trainpref", str(text / "train")),
            *("--validpref", str(text / "valid"), "--srcdict", str(vocabulary), "--joined-dictionary"),
            *("--destdir", str(data), "--workers", "1"),
        ]

    def arguments(self, data: Path, folder: Path, updates: int, precision: str) -> list[str]:
        sides = [
            part
            for side in ("encoder", "decoder")
            for part in (
                *(f"--{side}-embed-dim", str(WIDTH), f"--{side}-ffn-embed-dim", str(FEED_FORWARD)),
                *(f"--{side}-layers", str(LAYERS), f"--{side}-attention-heads", str(HEADS)),
            )
        ]
        return [
            *(str(data), "--source-lang", SOURCE, "--target-lang", TARGET, "--arch", "transformer", *sides),
            *("--share-all-embeddings", "--dropout", str(DROPOUT), "--optimizer", "adam"),
            *("--adam-betas", f"(0.9, {BETA})", "--adam-eps", str(EPSILON), "--clip-norm", str(CLIPPING)),
            *("--lr", str(LEARNING_RATE), "--lr-scheduler", "inverse_sqrt", "--warmup-updates", str(WARMUP)),
            *("--criterion", "label_smoothed_cross_entropy", "--label-smoothing", str(SMOOTHING)),
            *("--max-tokens", str(TOKENS), "--max-update", str(updates), "--num-workers", "0", "--seed", "1"),
            *("--disable-validation", "--no-save", "--no-progress-bar", "--log-interval", "10", "--cpu"),
            *("--save-dir", str(folder / "checkpoints"), *(["--bf16"] if precision == "bf16" else [])),
        ]

    def train(self, record, text, folder, updates, precision):
        from fairseq.tasks.fairseq_task import FairseqTask
        from fairseq_cli import preprocess, train

        def on_the_cpu(original, settings, *args, **kwargs):
            # its option for bf16 asks for a TPU as well
            settings.common.tpu = False
            return original(settings, *args, **kwargs)

        def counted(original, *args, **kwargs):
            loss, size, log = original(*args, **kwargs)
            record.batch(log["ntokens"], log["loss"])
            return loss, size, log

        data, vocabulary = folder / "data", folder / "vocabulary.txt"
        # it wants a space where the others want a tab
        vocabulary.write_text((text / VOCABULARY).read_text(encoding="utf-8").replace("\t", " "), encoding="utf-8")
        sys.argv = ["fairseq-preprocess", *self.preprocessing(text, data, vocabulary)]
        preprocess.cli_main()
        with_hook(FairseqTask, "train_step", counted)
        with_hook(train, "main", on_the_cpu)
        sys.argv = ["fairseq-train", *self.arguments(data, folder, updates, precision)]
        train.cli_main()


class Eole(Peer):
    name = "eole"
    package = "eole==0.6.4"
    # all that its commands import; not its datasets and torchcodec
    requirements = [
        "aiohttp==3.14.5",
        "configargparse==1.9.0",
        "ctranslate2==4.8.5",
        "fastapi==0.165.0",
        "huggingface_hub==2.4.0",
        "pandas==3.1.1",
        "protobuf==7.36.2",
        "pyahocorasick==2.3.1",
        "pydantic==2.14.4",
        "pyonmttok==1.38.1",
        "pyyaml==6.0.4",
        "rapidfuzz==3.14.6",
        "rich==15.0.0",
        "sacrebleu==2.6.0",
        "safetensors==0.8.0",
        "sentencepiece==0.2.2",
        "six==1.17.0",
        "spacy==3.8.18",
        "subword-nmt==0.3.8",
        "tensorboard==2.21.0",
        "tokenizers==0.23.3",
        "torch-optimi==0.3.2",
        "uvicorn==0.55.0",
        "waitress==3.0.2",
    ]
    module = "eole.bin.run.train"

    def settings(self, text: Path, folder: Path, updates: int, precision: str) -> dict:
        return {
            **corpus(text),
            "seed": 1,
            "report_every": 10,
            "model": {
                "architecture": "transformer",
                "hidden_size": WIDTH,
                "transformer_ff": FEED_FORWARD,
                "heads": HEADS,
                "layers": LAYERS,
                "encoder": {"encoder_type": "transformer", "encoder_layer_style": "postnorm"},
                "decoder": {"decoder_type": "transformer"},
                "embeddings": {"word_vec_size": WIDTH, "position_encoding_type": "SinusoidalInterleaved"},
                "share_embeddings": True,
                "share_decoder_embeddings": True,
                "mlp_activation_fn": "relu",
                "add_qkvbias": True,
                "add_final_linear_bias": True,
                "add_ffnbias": True,
            },
            "training": {
                **optimisation(updates),
                "compute_dtype": precision,
                "log_attention_entropy": False,
                "model_path": str(folder / "model"),
                "dropout": [DROPOUT],
                "attention_dropout": [0.0],
                "param_init_method": "xavier_uniform",
            },
        }

    def train(self, record, text, folder, updates, precision):
        from eole.bin.run.train import train
        from eole.config.run import TrainConfig
        from eole.utils.loss import LossCompute

        with_hook(LossCompute, "forward", counted_statistics(record, "n_tokens"))
        train(TrainConfig(**self.settings(text, folder, updates, precision)))


class OpenNMT(Peer):
    name = "opennmt"
    # it asks for torch before 2.3, and trains on the torch that the others have
    package = "OpenNMT-py==3.5.1"
    requirements = [
        "configargparse==1.9.0",
        "ctranslate2==4.8.5",
        "fasttext-wheel==0.9.2",
        "flask==3.1.3",
        "pyahocorasick==2.3.1",
        "pyonmttok==1.38.1",
        "pyyaml==6.0.4",
        "rapidfuzz==3.14.6",
        "sacrebleu==2.6.0",
        "six==1.17.0",
        "spacy==3.8.18",
        "tensorboard==2.21.0",
        "waitress==3.0.2",
    ]
    module = "onmt.bin.train"

    def settings(self, text: Path, folder: Path, updates: int) -> dict:
        return {
            **corpus(text),
            **optimisation(updates),
            "seed": 1,
            "report_every": 10,
            "save_model": str(folder / "model"),
            "encoder_type": "transformer",
            "decoder_type": "transformer",
            "hidden_size": WIDTH,
            "word_vec_size": WIDTH,
            "transformer_ff": FEED_FORWARD,
            "heads": HEADS,
            "layers": LAYERS,
            "position_encoding": True,
            "share_embeddings": True,
            "share_decoder_embeddings": True,
            "add_qkvbias": True,
            "add_ffnbias": True,
            "dropout": [DROPOUT],
            "attention_dropout": [0.0],
            "param_init": 0.0,
            "param_init_glorot": True,
        }

    def train(self, record, text, folder, updates, precision):
        import torch
        from onmt.bin.train import _get_parser, train
        from onmt.models import NMTModel
        from onmt.utils.loss import LossCompute

        def automatic(original, *args, **kwargs):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
                return original(*args, **kwargs)

        with_hook(NMTModel, "forward", automatic)
        with_hook(LossCompute, "forward", automatic)
        with_hook(LossCompute, "forward", counted_statistics(record, "n_words"))
        settings = folder / "settings.yaml"
        # JSON is YAML
        settings.write_text(json.dumps(self.settings(text, folder, updates)), encoding="utf-8")
        options, _ = _get_parser().parse_known_args(["--config", str(settings)])
        train(options)


def counted_statistics(record: Record, tokens: str):
    """For the losses of OpenNMT-py and its successor eole, which return the statistics of the batch beside the loss."""

    def around(original, *args, **kwargs):
        found = original(*args, **kwargs)
        record.batch(getattr(found[1], tokens), found[1].loss)
        return found

    return around


def corpus(text: Path) -> dict:
    """Where OpenNMT-py and eole read the text."""
    return {
        "data": {
            "corpus": {
                "path_src": str(text / f"train.{SOURCE}"),
                "path_tgt": str(text / f"train.{TARGET}"),
                "transforms": [],
            }
        },
        "src_vocab": str(text / VOCABULARY),
        "tgt_vocab": str(text / VOCABULARY),
        "share_vocab": True,
    }


def optimisation(updates: int) -> dict:
    """The optimizer and the batches of OpenNMT-py and eole."""
    return {
        "optim": "adam",
        "adam_beta2": BETA,
        # their schedule begins at this, times width^-0.5, and is at its highest after the warm-up
        "learning_rate": LEARNING_RATE * (WIDTH * WARMUP) ** 0.5,
        "decay_method": "noam",
        "warmup_steps": WARMUP,
        "max_grad_norm": CLIPPING,
        "label_smoothing": SMOOTHING,
        "batch_type": "tokens",
        "batch_size": TOKENS,
        "batch_size_multiple": 1,
        "normalization": "tokens",
        "accum_count": [1],
        "accum_steps": [0],
        # batches are made by the training process, as elsewhere here
        "num_workers": 0,
        "bucket_size": 30_000,
        "train_steps": updates,
        "valid_steps": 10 * updates,
        "save_checkpoint_steps": 10 * updates,
    }


PEERS = {peer.name: peer for peer in (Fairseq(), Eole(), OpenNMT())}


# --- outside of it ---


def best_precision() -> str:
    from measuring import fast_bf16

    return "bf16" if fast_bf16() else "fp32"


def segment(data: str | Path, text: str | Path):
    """
    Write what all peers train on, in our subword vocabulary: each token is its number there, written as a word.

    Args:
        data: folder of Multi30k.
        text: folder for `train` and `valid`, source and target, and the vocabulary with counts.
    """
    from datasets.utils.logging import disable_progress_bar
    from measuring import SMALL_RECIPE

    from hf_deepnmt.training import load_recipe, prepare

    disable_progress_bar()
    text = Path(text)
    text.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        recipe = load_recipe(SMALL_RECIPE, [f"data.path={data}"])
        _, encoded, tokenizer = prepare(recipe, Path(folder), seed=1)
    write_text({"train": encoded["train"], "valid": encoded["validation"]}, tokenizer, text)


def write_text(parts: dict, tokenizer, text: Path):
    """Write rows of `input_ids` and `labels` as lines of words, and all words by their frequency in `train`."""
    special = set(tokenizer.all_special_ids)
    counts = Counter()
    for name, rows in parts.items():
        for side, column in ((SOURCE, "input_ids"), (TARGET, "labels")):
            lines = [[str(token) for token in row if token not in special] for row in rows[column]]
            if name == "train":
                counts.update(token for line in lines for token in line)
            (text / f"{name}.{side}").write_text("".join(" ".join(line) + "\n" for line in lines), encoding="utf-8")
    words = [str(token) for token in range(len(tokenizer)) if token not in special]
    words.sort(key=lambda word: (-counts[word], int(word)))
    (text / VOCABULARY).write_text("".join(f"{word}\t{counts[word]}\n" for word in words), encoding="utf-8")


def train_worker(options: argparse.Namespace):
    """Inside a peer's environment: train, and leave the figures as JSON."""
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    record = Record()
    register_optimizer_step_post_hook(record.step)
    # a toolkit that ends its command with exit(0) has trained all the same
    with contextlib.suppress(SystemExit):
        PEERS[options.name].train(record, options.text, options.folder, options.updates, options.precision)
    about = {"threads": torch.get_num_threads(), "torch": torch.__version__}
    figures = {**record.figures(options.warmup, options.updates), **about}
    (options.folder / "figures.json").write_text(json.dumps(figures), encoding="utf-8")


def main(arguments: list[str] | None = None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0].strip())
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="the peers and their versions")
    install = commands.add_parser("install", help=Peer.install.__doc__.strip().split("\n")[0])
    text = commands.add_parser("segment", help="write what all peers train on")
    text.add_argument("--data", required=True, help="folder of Multi30k")
    run = commands.add_parser("run", help="train one peer and print its figures")
    worker = commands.add_parser("train", help="the same inside the peer's environment, which `run` does")
    for command in (install, run, worker):
        command.add_argument("name", choices=PEERS)
    for command in (install, run):
        command.add_argument("--venvs", type=Path, required=True, help="folder of the peers' virtual environments")
    for command in (text, run, worker):
        command.add_argument("--text", type=Path, required=True, help="folder of the segmented text")
    for command in (run, worker):
        command.add_argument("--folder", type=Path, required=True, help="for what the peer writes")
        command.add_argument("--updates", type=int, default=36)
        command.add_argument("--warmup", type=int, default=4)
        command.add_argument("--precision", choices=PRECISIONS, help="unset: what this machine is faster in")
    run.add_argument("--threads", type=int, default=2)
    options = parser.parse_args(arguments)
    if options.command == "list":
        for peer in PEERS.values():
            print(f"{peer.name:10} {peer.package}")
    elif options.command == "install":
        PEERS[options.name].install(options.venvs)
    elif options.command == "segment":
        segment(options.data, options.text)
    elif options.command == "run":
        sizes = options.updates, options.warmup, options.threads
        found = PEERS[options.name].run(options.venvs, options.text, options.folder, *sizes, options.precision)
        print(json.dumps(found))
    else:
        train_worker(options)


if __name__ == "__main__":
    main()
