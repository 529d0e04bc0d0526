"""Work that goes on after the caller got its answer, and how to wait for its end.

start("t", work, 10) ──▶ a thread: work(10) ─────────▶ work(30) ──▶ ends
start("t", work, 20) ──▶     waits; start("t", work, 30) takes its place
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
"""How many pieces of work that were started here may run: they must leave something to those who publish."""


class Behind:
    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._turns = threading.Semaphore(AT_ONCE)
        self._jobs: set[Future[Any]] = set()
        self._waiting: dict[Hashable, list[Any]] = {}

    def spawn(self, work: Callable[[], object], name: str = "deltars-behind") -> bool:
        """Do this in a thread, which the program waits for at its end. Return False where no thread can be had.

        That is so in a container at its limit, and while the interpreter shuts down.
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
        """Do this in a thread, one thing of a key at a time. Return False where no thread can be had.

        What is started while another of the key is done waits for it, and only the last of those is done.
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
        """Until nothing is going on, what began meanwhile included."""
        self._forget_after_fork()
        while True:
            with self._lock:
                jobs = list(self._jobs)
            if not jobs:
                return
            wait(jobs)

    def _next(self, key: Hashable) -> Any:
        """What is to be done next of a key; None where that was all, and another `start` begins anew."""
        with self._lock:
            if self._waiting[key]:
                return self._waiting[key].pop()
            del self._waiting[key]
            return None

    def _forget(self, job: Future[Any]) -> None:
        with self._lock:
            self._jobs.discard(job)

    def _forget_after_fork(self) -> None:
        # The threads are the parent's: they will never end here.
        if self._process != os.getpid():
            self._begin()
