"""Processes that write and maintain until they are killed.

    with Crew(uri, directory, clients=3) as crew:
        crew.wait_for(20)          # until so many transactions were committed
        crew.kill(2)               # kill -9, and another takes its place
    ...                            # all of them are dead here: audit

One process a client, or one process with a thread for each where the database takes no second process. Client 0 does
maintenance. What no client may meet, an error that is not one of deltars', is kept beside the journals.
"""

from __future__ import annotations

import random
import signal
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import Any

import deltars
from deltars.uri import parse_catalog_uri
from tests.faults.clients import Client, maintain
from tests.support.forkserver import forkserver

WAIT_S = 120.0
PAUSE_S = 0.05
"""After an error, so that a database that is away is not asked in a tight loop."""


class Crew:
    def __init__(
        self,
        uri: str,
        directory: Path,
        *,
        clients: int,
        lot: random.Random,
        maintains: bool = True,
        **settings: Any,
    ) -> None:
        self._uri = uri
        self._directory = directory
        self._lot = lot
        self._settings = settings
        numbers = range(0 if maintains else 1, clients + 1)
        self._groups = [list(numbers)] if parse_catalog_uri(uri).backend == "duckdb" else [[one] for one in numbers]
        self._processes: dict[int, BaseProcess] = {}

    def __enter__(self) -> Crew:
        for place in range(len(self._groups)):
            self._start(place)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        for process in self._processes.values():
            _end(process)
        found = [path.read_text() for path in self._directory.glob("*.crash")]
        if error is None:
            assert not found, "\n".join(found)

    def wait_for(self, transactions: int) -> None:
        """Wait until so many more transactions were committed."""
        wanted, deadline = self.committed() + transactions, time.monotonic() + WAIT_S
        while self.committed() < wanted:
            assert time.monotonic() < deadline, "nothing is committed any more"
            assert not list(self._directory.glob("*.crash")), "a client met what it may not meet"
            time.sleep(0.005)

    def committed(self) -> int:
        return sum(path.read_bytes().count(b'"told": "committed"') for path in self._directory.glob("*.jsonl"))

    def kill(self, times: int) -> None:
        """Kill so many processes drawn by lot, one after the other, each at a moment drawn by lot."""
        for _ in range(times):
            time.sleep(self._lot.uniform(0, 0.1))
            place = self._lot.randrange(len(self._groups))
            _end(self._processes[place])
            self._start(place)

    def _start(self, place: int) -> None:
        arguments = (self._uri, str(self._directory), self._groups[place], self._lot.random(), self._settings)
        process = forkserver().Process(target=work, args=arguments, daemon=True)
        process.start()
        self._processes[place] = process


def _end(process: BaseProcess) -> None:
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL, f"a process ended by itself: {process.exitcode}"


def work(uri: str, directory: str, numbers: Sequence[int], seed: float, settings: dict[str, Any]) -> None:
    """Work until killed."""
    catalog = _connect(uri, settings)
    threads = [
        threading.Thread(target=_guarded, args=(catalog, Path(directory), number, seed), daemon=True)
        for number in numbers
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _connect(uri: str, settings: dict[str, Any]) -> deltars.Catalog:
    while True:
        with suppress(deltars.DeltarsError):
            return deltars.connect(uri, **settings)
        time.sleep(PAUSE_S)


def _guarded(catalog: deltars.Catalog, directory: Path, number: int, seed: float) -> None:
    try:
        _work(catalog, directory, number, random.Random(f"{seed} {number}"))
    except BaseException:
        (directory / f"{number}.crash").write_text(traceback.format_exc())
        raise


def _work(catalog: deltars.Catalog, directory: Path, number: int, lot: random.Random) -> None:
    client = Client(catalog, directory, number, lot) if number else None
    while True:
        if client is None:
            time.sleep(lot.uniform(0, 0.2))
            with suppress(deltars.DeltarsError):
                maintain(catalog, lot)
        elif not client.step():
            time.sleep(PAUSE_S)
