"""What the README says can be run and is measured."""

import re
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from hf_deepnmt.cli import app
from hf_deepnmt.models import ARCHITECTURES


ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_results_table_is_what_the_results_files_give():
    done = subprocess.run([sys.executable, str(ROOT / "training" / "results_table.py"), "--check"])
    assert done.returncode == 0, "run `python training/results_table.py`"


def test_commands_exist():
    named = set(re.findall(r"^\| `deepnmt (\w+)", README, re.M))
    offered = {command.name or command.callback.__name__ for command in app.registered_commands}
    offered |= {group.name for group in app.registered_groups}
    assert named == offered
    assert CliRunner().invoke(app, ["--help"]).exit_code == 0
    targets = set(re.findall(r"^(\S+):", (ROOT / "Makefile").read_text(), re.M))
    assert set(re.findall(r"make ([a-z-]+)", README)) - {"it"} <= targets


def test_architectures_are_listed():
    assert set(re.findall(r"^\| `(\w+)` \|", README, re.M)) == set(ARCHITECTURES)


def test_links_lead_to_files():
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), target
