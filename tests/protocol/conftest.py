"""The commits of the golden tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.golden import golden_root


@pytest.fixture(scope="session")
def golden_commits() -> list[Path]:
    """Every JSON commit of every golden table."""
    commits = sorted(path for path in golden_root().rglob("_delta_log/*.json") if path.stem.isdigit())
    assert len(commits) > 200
    return commits
