"""The public face is typed: an editor completes it, and a type checker finds mistakes in programs that use it."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import deltars

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("program.py")
USED = (
    "Alter",
    "Catalog",
    "CatalogSnapshot",
    "Reconciler",
    "SqlTxnLogReader",
    "SqlTxnLogWriter",
    "Table",
    "Transaction",
)


def test_program_passes_mypy_strict() -> None:
    # The cache is the one of `make lint`: without it all of deltars is analysed, which takes half a minute.
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(PROGRAM)], cwd=ROOT, capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.skipif(find_spec("pyright") is None, reason="pyright is not installed (pip install 'pyright[nodejs]')")
def test_program_passes_pyright() -> None:
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, str(PROGRAM)]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_program_uses_every_public_call() -> None:
    nodes = list(ast.walk(ast.parse(PROGRAM.read_text())))
    used = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    functions = {name for name in deltars.__all__ if inspect.isfunction(getattr(deltars, name))}
    members = {
        name for cls in USED for name, _ in inspect.getmembers(getattr(deltars, cls)) if not name.startswith("_")
    }
    assert (functions | members) - used == set()
