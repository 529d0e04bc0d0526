"""Work that goes on after the caller got its answer, and how to wait for its end."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any


class Behind:
    def __init__(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._jobs: set[Future[Any]] = set()

    def add(self, job: Future[Any]) -> None:
        self._forget_after_fork()
        with self._lock:
            self._jobs.add(job)
        job.add_done_callback(self._forget)

    def start(self, work: Callable[..., object], *arguments: object) -> None:
        """Do this in a thread of its own, which the program waits for at its end."""
        job: Future[Any] = Future()

        def run() -> None:
            try:
                work(*arguments)
            finally:
                job.set_result(None)

        self.add(job)
        threading.Thread(target=run, name="deltars-behind").start()

    def wait(self) -> None:
        """Until nothing is going on, what began meanwhile included."""
        self._forget_after_fork()
        while True:
            with self._lock:
                jobs = list(self._jobs)
            if not jobs:
                return
            wait(jobs)
            for job in jobs:
                self._forget(job)

    def _forget(self, job: Future[Any]) -> None:
        with self._lock:
            self._jobs.discard(job)

    def _forget_after_fork(self) -> None:
        # The threads are the parent's: they will never end here.
        if self._process != os.getpid():
            self._process, self._lock, self._jobs = os.getpid(), threading.Lock(), set()
