"""Longest time of reads, where the database runs in this process: its driver is told to end what runs too long.

A server has a setting for it instead, such as PostgreSQL's `statement_timeout`. Writes have no such limit: the outcome
of an interrupted COMMIT would not be known.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

AGAIN_S = 0.1


class TimeLimit:
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    @contextmanager
    def on(self, driver: Any) -> Iterator[None]:
        """Interrupt a connection of the driver when it reads for too long."""
        reading = _Reading(driver, self._seconds)
        try:
            yield
        finally:
            reading.end()


class _Reading:
    def __init__(self, driver: Any, seconds: float) -> None:
        self._driver = driver
        self._lock = threading.Lock()
        self._is_over = False
        self._wait(seconds)

    def end(self) -> None:
        # After this, the connection may belong to another caller.
        with self._lock:
            self._is_over = True
        self._timer.cancel()

    def _wait(self, seconds: float) -> None:
        self._timer = threading.Timer(seconds, self._interrupt)
        self._timer.daemon = True
        self._timer.start()

    def _interrupt(self) -> None:
        with self._lock:
            if not self._is_over:
                self._driver.interrupt()
                # The caller may be between two statements: an interrupt ends only what runs.
                self._wait(AGAIN_S)
