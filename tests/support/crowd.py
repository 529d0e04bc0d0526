"""The same job in many processes, all let go at one moment.

    outcomes = at_once(10, connect_to, uri)      # what each returned or raised

A job is a function of a module that the processes can import, and what it takes and answers pickles. Ten processes cost
little more than one (`tests/support/forkserver.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeVar

from tests.support.forkserver import forkserver

T = TypeVar("T")

WAIT_S = 120.0

_barrier: Any = None


def at_once(count: int, job: Callable[..., T], *arguments: Any) -> list[T | BaseException]:
    outcomes: list[T | BaseException] = []
    context = forkserver()
    barrier = context.Barrier(count)
    with ProcessPoolExecutor(count, mp_context=context, initializer=_meet_at, initargs=(barrier,)) as pool:
        futures = [pool.submit(_when_all_are_there, job, arguments) for _ in range(count)]
        for future in futures:
            try:
                outcomes.append(future.result(WAIT_S))
            except Exception as error:
                outcomes.append(error)
    return outcomes


def failures(outcomes: Sequence[object]) -> list[str]:
    return [f"{type(outcome).__name__}: {outcome}" for outcome in outcomes if isinstance(outcome, BaseException)]


def _meet_at(barrier: Any) -> None:
    global _barrier
    _barrier = barrier


def _when_all_are_there(job: Callable[..., T], arguments: tuple[Any, ...]) -> T:
    # A process takes one job only: it stays here until every other has taken one too.
    _barrier.wait(WAIT_S)
    return job(*arguments)
