"""Peak memory and time of reading, cleaning and tokenising generated gzip files of sentence pairs.

Each size runs in a process of its own. Two figures are given, both in MB: `peak_rss_mb` is the highest resident set
the kernel saw, pages of mapped files included; `peak_anonymous_mb` is the highest sampled memory that is not backed by
a file. Run: python benchmarks/data_memory.py --pairs 100000 --pairs 1000000
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import random
import resource
import subprocess
import sys
import tempfile
import threading
import time
from importlib.metadata import version
from pathlib import Path


SEED = 0


def write_corpus(folder: Path, pairs: int) -> list[Path]:
    """Two line-aligned files with words drawn from a skewed vocabulary of 30,000, about 20 words a line."""
    draw = random.Random(SEED)
    letters = "etaoinshrdlcumwfgypbvk"
    words = ["".join(draw.choices(letters, k=draw.randint(2, 9))) for _ in range(30_000)]
    paths = [folder / "train.de.gz", folder / "train.en.gz"]
    with gzip.open(paths[0], "wt", compresslevel=1) as source, gzip.open(paths[1], "wt", compresslevel=1) as target:
        for _ in range(pairs):
            line = [words[int(30_000 * draw.random() ** 4)] for _ in range(draw.randint(5, 35))]
            source.write(" ".join(line) + "\n")
            target.write(" ".join(reversed(line)) + "\n")
    return paths


def resident(name: str) -> float:
    """A field of /proc/self/status in MB."""
    text = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith(name)) / 1024


class Sampler(threading.Thread):
    """Samples anonymous memory every 50 ms."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak = 0.0

    def run(self) -> None:
        while True:
            self.peak = max(self.peak, resident("RssAnon"))
            time.sleep(0.05)


def peak_rss() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(folder: Path, pairs: int) -> dict:
    from itertools import islice

    from hf_deepnmt.data import DataReport, clean_pairs, iter_pairs, read_parallel, tokenize_pairs
    from hf_deepnmt.tokenization import train_tokenizer

    paths = [folder / "train.de.gz", folder / "train.en.gz"]
    sample = list(islice(iter_pairs(*paths), 5_000))
    sides = ([source for source, _ in sample], [target for _, target in sample])
    tokenizer = train_tokenizer(*sides, vocab_size=4_000, show_progress=False)
    sampler, report, stages = Sampler(), DataReport(), []
    result = {"pairs": pairs, "start_rss_mb": round(resident("VmRSS")), "stages": stages}
    sampler.start()
    steps = {
        "read": lambda _: read_parallel(*paths, cache_dir=folder, report=report),
        "clean": lambda data: clean_pairs(data, cache_dir=folder, report=report),
        "tokenize": lambda data: tokenize_pairs(data, tokenizer, cache_dir=folder, report=report),
    }
    data, begin = None, time.perf_counter()
    for name, step in steps.items():
        start = time.perf_counter()
        data = step(data)
        seconds = round(time.perf_counter() - start, 1)
        memory = {"peak_rss_mb": round(peak_rss()), "peak_anonymous_mb": round(sampler.peak)}
        stages.append({"stage": name, "seconds": seconds, **memory})
    result |= {"kept": report.kept, "seconds": round(time.perf_counter() - begin, 1), **memory}
    result["growth_rss_mb"] = result["peak_rss_mb"] - result["start_rss_mb"]
    return result


def hardware() -> dict:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    ram = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {"cpu": cpu, "cores": os.cpu_count(), "ram_gb": round(ram, 1), "gpu": None}


def environment() -> dict:
    here = Path(__file__).parent
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, check=False)
    names = ("torch", "transformers", "datasets", "sacrebleu", "pyarrow")
    versions = {"python": platform.python_version(), **{name: version(name) for name in names}}
    from hf_deepnmt import __version__

    return {
        "commit": commit.stdout.strip(),
        "versions": {**versions, "hf_deepnmt": __version__},
        "hardware": hardware(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, action="append", help="size of the corpus; may be repeated")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "data_memory.json")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    sizes = options.pairs or [100_000, 1_000_000]
    if options.measure:
        print(json.dumps(measure(options.measure, sizes[0])))
        return
    runs = []
    for pairs in sizes:
        with tempfile.TemporaryDirectory() as folder:
            write_corpus(Path(folder), pairs)
            command = [sys.executable, __file__, "--pairs", str(pairs), "--measure", folder]
            output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        runs.append(json.loads(output.splitlines()[-1]))
    record = {"benchmark": "data_memory", "seed": SEED, "decoding": None, "signature": None, **environment()}
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps({**record, "runs": runs}, indent=2) + "\n")


if __name__ == "__main__":
    main()
