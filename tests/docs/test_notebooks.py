"""The notebooks run from their first cell to their last, in a kernel of their own and an empty directory."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[2] / "docs/notebooks").glob("*.ipynb"))


@pytest.mark.xdist_group("spark")  # one JVM at a time is enough for two cores
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_a_notebook_runs(notebook: Path, tmp_path: Path) -> None:
    cells = nbformat.reads(notebook.read_text(), as_version=4)
    assert not any(cell.get("outputs") for cell in cells.cells), "kept without its answers, which would go stale"
    client = NotebookClient(cells, timeout=240, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}})
    client.execute(env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable})
