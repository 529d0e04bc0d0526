"""Fixtures for change feeds."""

from __future__ import annotations

import pytest


@pytest.fixture
def all_by_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave frames of Spark to Spark, also those that are small enough for this process."""
    monkeypatch.setattr("deltars.spark.plane.SparkPlane.hold_events", lambda _, frame, __: frame)
