"""A lake as a newcomer has it: an embedded catalog in the working directory, with a table or two."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import deltars

ROWS = pa.table({"id": [1, 2], "day": ["a", "b"]})


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[deltars.Catalog]:
    """`plain` and `by_day`, of two rows each. One for all: a mistake changes nothing."""
    with pytest.MonkeyPatch.context() as here:
        here.chdir(tmp_path_factory.mktemp("lake"))
        with deltars.connect() as catalog:
            with catalog.begin() as tx:
                tx.write("plain", ROWS)
                tx.write("by_day", ROWS, partition_by=["day"])
            yield catalog


def program(text: str, directory: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A program of the newcomer's own, run as they would run it."""
    return subprocess.run(
        [sys.executable, "-c", text],
        cwd=directory,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 kB that can be filled or made read-only."""
    place = tmp_path / "small disk"
    place.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", place], capture_output=True, check=False
    )
    if mount.returncode != 0:
        pytest.skip("mounting a small file system takes root")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)
