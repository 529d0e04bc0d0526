"""Faults before a chosen call to the storage or to the database, below everything that deltars does.

    counted = count(uri, work)                                 how many calls of each kind the work makes
    outcome = fail_at(Point("storage", 3, "kill"), uri, work)  the same work, and what becomes of its third call

    error   the call fails, as storage and databases do
    kill    the process dies before the call
    hang    the process stops before the call, and goes on when `meanwhile` has been called

Storage is the local disk, in every module that opens one. Statements are seen by `tests.support.tap`: on the wire on
PostgreSQL, at the driver elsewhere. Work that may be killed or stopped runs in a forked child.
"""

from __future__ import annotations

import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, NamedTuple, TypeAlias
from unittest import mock

import deltars
from deltars.errors import StorageError
from deltars.storage.local import LocalStorage
from tests.support.tap import Tap, tapped
from tests.support.wire import Verdict

Seam: TypeAlias = Literal["storage", "database"]
Fault: TypeAlias = Literal["error", "kill", "hang"]
SEAMS: tuple[Seam, ...] = ("storage", "database")
FAULTS: tuple[Fault, ...] = ("error", "kill", "hang")

CALLS = (
    "get_or_none",
    "put_if_absent",
    "sync_names",
    "put",
    "list",
    "head",
    "delete",
    "open_writer",
    "set_modified_ms",
)
"""The calls of a storage."""

Work: TypeAlias = Callable[[deltars.Catalog], object]


class Point(NamedTuple):
    seam: Seam
    number: int
    """Which call it is, the first being 1."""
    fault: Fault


class Outcome(NamedTuple):
    is_reached: bool
    """Whether there was such a call."""
    error: deltars.DeltarsError | None = None
    """What the work said to it, where it was there to say something."""


class _Counter:
    """Calls so far, of all threads, and what happens before the one that was chosen."""

    def __init__(self, number: int | None, strike: Callable[[], None]) -> None:
        self.calls = 0
        self._number = number
        self._strike = strike
        self._lock = threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            self.calls += 1
            is_it = self.calls == self._number
        if is_it:
            self._strike()


def count(uri: str, work: Work) -> dict[Seam, int]:
    """Do the work without a fault, and count its calls."""
    storage, statements = _Counter(None, _nothing), _Counter(None, _nothing)
    with _on_storage(storage), tapped(uri) as tap, tap.judging(_judge(statements)), deltars.connect(tap.uri) as catalog:
        work(catalog)
    return {"storage": storage.calls, "database": statements.calls}


def fail_at(point: Point, uri: str, work: Work, meanwhile: Callable[[], object]) -> Outcome:
    """Do the work with one fault in it. `meanwhile` is for others, while a process hangs."""
    if point.fault == "error":
        return _with_error(point, uri, work)
    return _in_child(point, uri, work, meanwhile)


def _with_error(point: Point, uri: str, work: Work) -> Outcome:
    failing = _Counter(point.number, _fail if point.seam == "storage" else _nothing)
    error = None
    with tapped(uri) as tap, _on_storage(failing if point.seam == "storage" else _Counter(None, _nothing)):
        judge = _judge(failing, Verdict.FAIL, point.number) if point.seam == "database" else _pass
        with tap.judging(judge):
            try:
                with deltars.connect(tap.uri) as catalog:
                    work(catalog)
            except deltars.DeltarsError as raised:
                error = raised
    return Outcome(failing.calls >= point.number, error)


def _in_child(point: Point, uri: str, work: Work, meanwhile: Callable[[], object]) -> Outcome:
    signal_ = signal.SIGKILL if point.fault == "kill" else signal.SIGSTOP
    child = 0
    with _tap_outside(uri) as outside:
        if outside is not None and point.seam == "database":
            striking = _Counter(point.number, lambda: os.kill(child, signal_))
            outside._judge = _judge(striking)
        child = os.fork()
        if child == 0:
            _be_child(point, uri if outside is None else outside.uri, work, signal_, is_outside=outside is not None)
        return _watch(child, meanwhile)


def _be_child(point: Point, uri: str, work: Work, signal_: int, *, is_outside: bool) -> None:
    """Never returns."""
    code = 3
    try:
        striking = _Counter(point.number, lambda: os.kill(os.getpid(), signal_))
        idle = _Counter(None, _nothing)
        with _on_storage(striking if point.seam == "storage" else idle):
            if is_outside or point.seam == "storage":
                _work_to_the_end(uri, work)
            else:
                with tapped(uri) as tap, tap.judging(_judge(striking)):
                    _work_to_the_end(tap.uri, work)
        code = 0
    except deltars.DeltarsError:
        code = 1
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _work_to_the_end(uri: str, work: Work) -> None:
    with deltars.connect(uri) as catalog:
        work(catalog)


def _watch(child: int, meanwhile: Callable[[], object]) -> Outcome:
    _, status = os.waitpid(child, os.WUNTRACED)
    is_stopped = os.WIFSTOPPED(status)
    if is_stopped:
        try:
            meanwhile()
        finally:
            os.kill(child, signal.SIGCONT)
        _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, 1, -signal.SIGKILL), f"the child ended with {code}"
    return Outcome(is_stopped or code == -signal.SIGKILL)


# -- seams -------------------------------------------------------------------------------------------------------------


@contextmanager
def _on_storage(counter: Callable[[], None]) -> Iterator[None]:
    def counted(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            counter()
            return original(*arguments, **options)

        return call

    with ExitStack() as stack:
        for name in CALLS:
            stack.enter_context(mock.patch.object(LocalStorage, name, counted(getattr(LocalStorage, name))))
        yield


@contextmanager
def _tap_outside(uri: str) -> Iterator[Tap | None]:
    """On PostgreSQL the statements of a child are seen from here, on the wire."""
    if not uri.startswith("deltasql://postgres"):
        yield None
        return
    with tapped(uri) as tap:
        yield tap


def _judge(counter: _Counter, verdict: Verdict = Verdict.PASS, number: int = 0) -> Callable[[str], Verdict]:
    def judge(_: str) -> Verdict:
        counter()
        return verdict if counter.calls == number else Verdict.PASS

    return judge


def _pass(_: str) -> Verdict:
    return Verdict.PASS


def _nothing() -> None:
    pass


def _fail() -> None:
    raise StorageError("503 Slow Down", retryable=True)


def points(counted: dict[Seam, int], faults: Iterable[Fault] = FAULTS) -> Iterator[Point]:
    """Every fault at every call, and at one call more: there the work gets through."""
    for seam, calls in counted.items():
        for number in range(1, calls + 2):
            for fault in faults:
                yield Point(seam, number, fault)
