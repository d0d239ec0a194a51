"""Every notebook runs from top to bottom, and is stored without output."""

import json
from pathlib import Path

import pytest


NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_stored_without_output(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert cells and not any(cell.get("outputs") for cell in cells)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path):
    nbformat = pytest.importorskip("nbformat", reason="the extra `notebooks` brings it")
    nbclient = pytest.importorskip("nbclient", reason="the extra `notebooks` brings it")
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
    pictures = [
        out for cell in notebook.cells for out in cell.get("outputs", []) if "image/png" in out.get("data", {})
    ]
    assert pictures, "the notebook shows no picture"
