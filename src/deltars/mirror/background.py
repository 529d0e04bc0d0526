"""Background work: continues after the caller got its answer, and can be waited for.

start("t", work, 10) ──▶ a thread: work(10) ─────────▶ work(30) ──▶ ends
start("t", work, 20) ──▶     waits, and is replaced by start("t", work, 30)
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future, wait
from typing import Any, TypeVar

T = TypeVar("T")

_log = logging.getLogger(__name__)

AT_ONCE = 2
"""How many jobs of `start` may run at once; more would take CPU and connections from the publishers."""


class Background:
    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._turns = threading.Semaphore(AT_ONCE)
        self._jobs: set[Future[Any]] = set()
        self._waiting: dict[Hashable, list[Any]] = {}

    def spawn(self, work: Callable[[], object], name: str = "deltars-behind") -> bool:
        """Run `work` in a thread, which the interpreter waits for when it exits. Return False if none can be started.

        No thread can be started in a container at its limit, and while the interpreter shuts down.
        """
        self._forget_after_fork()
        job: Future[None] = Future()

        def run() -> None:
            try:
                work()
            finally:
                self._forget(job)
                job.set_result(None)

        with self._lock:
            self._jobs.add(job)
        try:
            threading.Thread(target=run, name=name).start()
        except Exception as error:
            self._forget(job)
            job.set_result(None)
            _log.debug("no thread could be started: %s", error)
            return False
        return True

    def start(self, key: Hashable, work: Callable[[T], object], what: T) -> bool:
        """Run `work(what)` in a thread, one job per key at a time. Return False if no thread can be started.

        A job waits while another job of its key runs, and replaces the one that waited before it.
        """
        self._forget_after_fork()
        with self._lock:
            is_busy = key in self._waiting
            self._waiting[key] = [what]
        if is_busy:
            return True

        def run() -> None:
            try:
                while (last := self._next(key)) is not None:
                    with self._turns:
                        work(last)
            except BaseException:
                with self._lock:
                    del self._waiting[key]
                raise

        if self.spawn(run):
            return True
        with self._lock:
            del self._waiting[key]
        return False

    def wait(self) -> None:
        """Wait until no job is running, including jobs that start meanwhile."""
        self._forget_after_fork()
        while True:
            with self._lock:
                jobs = list(self._jobs)
            if not jobs:
                return
            wait(jobs)

    def _next(self, key: Hashable) -> Any:
        """Return the waiting argument of a key. Return None and forget the key if there is none."""
        with self._lock:
            if self._waiting[key]:
                return self._waiting[key].pop()
            del self._waiting[key]
            return None

    def _forget(self, job: Future[Any]) -> None:
        with self._lock:
            self._jobs.discard(job)

    def _forget_after_fork(self) -> None:
        # The recorded threads run in the parent process: they never end in this one.
        if self._process != os.getpid():
            self._begin()
