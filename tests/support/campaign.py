"""Rounds of a fault campaign: few in `make test`, and in `make soak` as many as fit into the time.

    @pytest.mark.campaign(rounds=2, weight=3)
    def test_nothing_is_lost(rounds: Rounds) -> None:
        for number in rounds:
            rounds.lot.choice(…)            # drawn from DELTARS_SEED

DELTARS_MINUTES is the time of the whole campaign. The tests of a run share it by their weights, so a part of them runs
longer. `soak=` ends a test earlier: after so many rounds it has nothing new to try.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator, Sequence

import pytest

from tests.support import soak

MINUTES = 30.0

_WEIGHTS = pytest.StashKey[float]()


class Rounds:
    """Count rounds until there are enough of them, or time is up; there is always a first one."""

    def __init__(self, name: str, limit: int | None, seconds: float | None) -> None:
        self.lot = random.Random(f"{soak.seed()} {name}")
        self.done = 0
        self._limit = limit
        self._seconds = seconds
        self._until: float | None = None

    def __iter__(self) -> Iterator[int]:
        # From here on: what a fixture took is not the campaign's.
        if self._seconds is not None and self._until is None:
            self._until = time.monotonic() + self._seconds
        while not self.done or self._is_going_on():
            yield self.done
            self.done += 1

    def _is_going_on(self) -> bool:
        if self._limit is not None and self.done >= self._limit:
            return False
        return self._until is None or time.monotonic() < self._until


def minutes() -> float:
    return float(os.environ.get("DELTARS_MINUTES") or MINUTES)


def weigh(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Note how much the tests of this run weigh together."""
    config.stash[_WEIGHTS] = sum(_weight(item) for item in items)


def rounds_of(item: pytest.Item) -> Rounds:
    marker = item.get_closest_marker("campaign")
    if marker is None:
        raise pytest.UsageError(f"{item.nodeid} takes `rounds`, and is not marked as part of the campaign")
    if not soak.is_soak():
        return Rounds(item.nodeid, marker.kwargs["rounds"], None)
    share = _weight(item) / item.config.stash[_WEIGHTS]
    return Rounds(item.nodeid, marker.kwargs.get("soak"), share * minutes() * 60)


def _weight(item: pytest.Item) -> float:
    marker = item.get_closest_marker("campaign")
    return 0.0 if marker is None else float(marker.kwargs.get("weight", 1))
