"""Where a number comes from: code, versions, hardware and command of a run, and results files that carry them."""

from __future__ import annotations

import json
import math
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import torch

from .version import __version__


PACKAGES = ("torch", "transformers", "tokenizers", "datasets", "sacrebleu", "accelerate")
RESULTS = "benchmarks/results"


def run_info(seed: int | None = None) -> dict[str, Any]:
    """
    What is needed to repeat a run.

    Returns:
        `commit` and `dirty` of the source tree that runs (None for an installed package), `versions`, `hardware` (RAM
        in GiB), `seed`, `date` (UTC, ISO 8601), and `command` without folders of this machine.
    """
    return {
        **source_state(),
        "versions": package_versions(),
        "hardware": hardware(),
        "seed": seed,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": command_line(sys.argv),
    }


def source_state() -> dict[str, Any]:
    here = Path(__file__).resolve()
    root = git("rev-parse", "--show-toplevel")
    # An installed package may lie inside the repository of somebody else.
    if root is None or Path(root).resolve() / here.parent.name / here.name != here:
        return {"commit": None, "dirty": None}
    # results that earlier runs of an experiment have just written change nothing that runs
    unchanged = ("--", ":/", f":(exclude,top){RESULTS}")
    commit, changes = git("rev-parse", "--verify", "--quiet", "HEAD"), git("status", "--porcelain", *unchanged)
    return {"commit": commit, "dirty": None if changes is None else bool(changes)}


def git(*arguments: str) -> str | None:
    command = ["git", "-C", str(Path(__file__).resolve().parent), *arguments]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() if result.returncode == 0 else None


def package_versions() -> dict[str, str | None]:
    versions = {"python": platform.python_version(), "hf_deepnmt": __version__}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = None
    return versions


def hardware() -> dict[str, Any]:
    has_gpu = torch.cuda.is_available()
    return {
        "cpu": cpu_model(),
        "cores": available_cores(),
        "threads": torch.get_num_threads(),
        "ram_gib": memory_gib(),
        "gpu": torch.cuda.get_device_name(0) if has_gpu else None,
        "gpus": torch.cuda.device_count() if has_gpu else 0,
    }


def cpu_model(path: str | Path = "/proc/cpuinfo") -> str:
    try:
        with open(path, encoding="utf-8") as lines:
            names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    except (OSError, UnicodeDecodeError):
        names = []
    return next(filter(None, names), "") or platform.processor() or platform.machine() or "unknown"


def available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_gib() -> float | None:
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None
    return round(size / 2**30, 1)


def command_line(arguments: Sequence[str]) -> str:
    """The command, where absolute paths are relative to the working folder, or only a name outside of it."""
    return " ".join(portable_argument(argument) for argument in arguments)


def portable_argument(argument: str) -> str:
    option, equals, value = argument.partition("=")
    if equals:
        return f"{option}={portable_argument(value)}"
    if '"' in argument:
        # a value in JSON, as recipes take them
        return re.sub(r'"([^"]*)"', lambda quoted: f'"{portable_argument(quoted[1])}"', argument)
    is_windows_path = PureWindowsPath(argument).is_absolute()
    if not (is_windows_path or PurePosixPath(argument).is_absolute() or argument.startswith("~")):
        return argument
    path = Path(argument).expanduser()
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        return path.relative_to(Path.cwd()).as_posix()
    return PureWindowsPath(argument).name if is_windows_path else path.name


def write_results(path: str | Path, payload: Mapping[str, Any]):
    """
    Write JSON with sorted keys, indented, whole or not at all; NumPy and torch scalars become numbers.

    Raises:
        ValueError: a number is NaN or infinite; the message has its place.
        TypeError: a value has no JSON form.
    """
    path = Path(path)
    bad = list(unreal_numbers(payload, ""))
    if bad:
        raise ValueError(f"Cannot write {path.name}: not a finite number at {', '.join(bad)}")
    text = json.dumps(payload, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False, default=plain_number)
    write_text(path, text + "\n")


def write_text(path: Path, text: str):
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(descriptor, "w", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
        os.chmod(temporary, 0o666 & ~current_umask())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def current_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def plain_number(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no JSON form")


def unreal_numbers(value: Any, place: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from unreal_numbers(item, f"{place}.{key}".lstrip("."))
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from unreal_numbers(item, f"{place}[{index}]")
    elif hasattr(value, "tolist"):
        yield from unreal_numbers(value.tolist(), place)
    elif isinstance(value, float) and not math.isfinite(value):
        yield place


__all__ = ["run_info", "write_results"]
