"""The notebooks run from their first cell to their last, in an empty directory, and return what was saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest

from scripts.notebooks import NOTEBOOKS, run

CHOSEN = [
    pytest.param(path, id=path.stem, marks=pytest.mark.soak(only="SparkSession" in path.read_text()))
    for path in sorted(NOTEBOOKS.glob("*.ipynb"))
]
"""Each with a Spark of its own takes half a minute: those run in `make soak-all` and in `make notebooks`."""


@pytest.mark.parametrize("path", CHOSEN)
def test_a_notebook_returns_the_outputs_it_was_saved_with(path: Path, tmp_path: Path) -> None:
    saved = outputs(nbformat.read(path, as_version=4))
    assert saved, "run `make notebooks`"
    assert outputs(run(path, tmp_path.resolve())) == saved, "run `make notebooks`, and look at what changed"


def outputs(notebook: Any) -> dict[str, list[str]]:
    return {
        cell.id: [output["text"] if "text" in output else output["data"]["text/plain"] for output in cell.outputs]
        for cell in notebook.cells
        if cell.get("outputs")
    }
