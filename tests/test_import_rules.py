"""What is in `hf_deepnmt/models` travels with every checkpoint, so its imports obey rules that exporting relies on."""

import ast
import re
import sys
from pathlib import Path

import pytest

import hf_deepnmt.models


FOLDER = Path(hf_deepnmt.models.__file__).parent
FILES = sorted(FOLDER.glob("*.py"))
ALLOWED = {"torch", "transformers", "huggingface_hub", "tokenizers"}


def broken_rules(source: str, siblings: set[str]) -> list[str]:
    """Sentences naming each import that would not survive export."""
    problems = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.level:
            if node.level > 1 or node.module not in siblings:
                problems.append(f"line {node.lineno}: only `from .sibling import name`")
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            for name in names:
                top = name.split(".")[0]
                if top not in ALLOWED and top not in sys.stdlib_module_names:
                    problems.append(f"line {node.lineno}: {name} may be missing where the checkpoint is loaded")
                if top == "transformers" and any(part.startswith("_") for part in name.split(".")):
                    problems.append(f"line {node.lineno}: {name} is private")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):  # noqa: SIM102
            # the exporter finds relative imports by a regular expression over the whole text
            if re.search(r"^\s*from\s+\.\S*\s+import", node.value, re.M):
                problems.append(f"line {node.lineno}: a string has a line that looks like a relative import")
    return problems


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_imports_survive_export(path):
    assert broken_rules(path.read_text(encoding="utf-8"), {file.stem for file in FILES}) == []


def test_folder_is_flat():
    assert [path for path in FOLDER.iterdir() if path.is_dir() and path.name != "__pycache__"] == []


@pytest.mark.parametrize(
    "line",
    [
        "from ..data import x",
        "from . import modeling_x",
        "from .nowhere import x",
        "import numpy",
        "from hf_deepnmt.models import x",
        '"""\nfrom .sibling import x\n"""',
        "from transformers._x import y",
    ],
)
def test_rules_catch(line):
    assert broken_rules(line, {"sibling"})


def test_rules_accept_siblings():
    assert broken_rules("from .sibling import x\nimport math\nfrom torch import nn", {"sibling"}) == []
