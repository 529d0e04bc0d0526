"""The golden tables: real logs, written by Delta's own tests. They are not part of the project."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_BESIDE_THE_REPOSITORY = Path(__file__).parents[3] / "shared" / "golden"


@pytest.fixture(scope="session")
def golden_commits() -> list[Path]:
    """Every JSON commit of every golden table."""
    root = Path(os.environ.get("DELTARS_GOLDEN", _BESIDE_THE_REPOSITORY))
    if not root.is_dir():
        pytest.skip(f"there are no golden tables at {root}: DELTARS_GOLDEN says where they are")
    commits = sorted(path for path in root.rglob("_delta_log/*.json") if path.stem.isdigit())
    assert len(commits) > 200
    return commits
