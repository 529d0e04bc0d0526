"""Threads whose commits become one batch, however fast the machine is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock
from uuid import UUID

from deltars.log.commit import Commit, Committed
from deltars.store.commit.group_commit import GroupCommits
from tests.support.log import Log
from tests.support.together import WAIT_S, Meanwhile


def until(is_so: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline, f"not so after {WAIT_S} s"
        time.sleep(0.001)


def queued(log: Log) -> int:
    """Return how many callers wait for a leader."""
    queue = log.catalog._session.writer._groups._queues.get(log.table_id)
    return 0 if queue is None else len(queue.waiting)


def is_led(log: Log) -> bool:
    """Return whether a caller leads, so that the next one waits."""
    queue = log.catalog._session.writer._groups._queues.get(log.table_id)
    return queue is not None and queue.leader is not None


@contextmanager
def gathering(size: int, then: Callable[[], object] = lambda: None) -> Iterator[list[int]]:
    """Let the first leader wait until its batch can have this size, or the block ends. Yield the sizes of all batches.

    `then` is called when all callers of the first batch wait, before the leader takes their commits.
    """
    sizes: list[int] = []
    is_over = threading.Event()
    gather: Callable[..., bool] = GroupCommits._gather

    def patient(self: GroupCommits, leader: Any, table_id: UUID) -> bool:
        place = len(sizes)
        sizes.append(0)
        if place == 0:
            until(lambda: len(self._queues[table_id].waiting) >= size - 1 or is_over.is_set())
            then()
        is_batch = gather(self, leader, table_id)
        sizes[place] = len(leader.batch) if is_batch else 1
        return is_batch

    with mock.patch.object(GroupCommits, "_gather", patient):
        try:
            yield sizes
        finally:
            is_over.set()


def commit_together(
    log: Log, commits: Sequence[Commit], then: Callable[[], object] = lambda: None
) -> list[Committed | BaseException]:
    """Commit in as many threads, as one batch, and return the outcome of each."""
    with gathering(len(commits), then) as sizes:
        running = [Meanwhile(log.catalog._session.commit, commit) for commit in commits]
        outcomes = [one.outcome() for one in running]
    assert sizes[0] == len(commits)
    return outcomes
