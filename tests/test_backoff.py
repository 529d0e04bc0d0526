from __future__ import annotations

import time

import pytest

from deltars.backoff import Backoff


def test_pauses_grow_up_to_the_longest_and_keep_to_their_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    backoff = Backoff(0.01, longest_s=0.05, least_s=0.005)
    limits = []
    for _ in range(10):
        limits.append(backoff.next_s)
        backoff.sleep()
    assert limits[:2] == [0.01, 0.015]
    assert limits[-1] == 0.05
    assert all(0.005 <= pause <= limit for pause, limit in zip(slept, limits, strict=True))


def test_pauses_of_two_processes_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    for backoff in (Backoff(1, longest_s=1), Backoff(1, longest_s=1)):
        backoff.sleep()
    assert slept[0] != slept[1]
