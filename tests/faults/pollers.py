"""Outside readers that open `_delta_log` again and again, while others commit to it.

with Pollers(tables) as pollers:
    …
pollers.problems      what no reader may see: an unreadable moment, a version that went away
pollers.seen          the rows that were read of each version, to be compared with what was committed
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

import duckdb
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from tests.mirror.test_readers import load_extension

Rows = tuple[int, ...]

PAUSE_S = 0.01
"""Between two looks, so that those who commit have a processor too."""


class Pollers:
    """One thread a reader, each with all tables in turn."""

    def __init__(self, tables: Mapping[str, Path]) -> None:
        self.problems: list[str] = []
        self.seen: dict[tuple[str, int], set[Rows]] = {}
        self.looks = 0
        self._tables = tables
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._poll, args=[read]) for read in (by_deltalake, by_duckdb)]

    def __enter__(self) -> Pollers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _poll(self, read: Callable[[Path], tuple[int, Rows]]) -> None:
        newest = dict.fromkeys(self._tables, -1)
        while not self._stop.wait(PAUSE_S):
            for name, path in self._tables.items():
                try:
                    version, rows = read(path)
                except Exception as error:
                    self.problems.append(f"{read.__name__}: {name} cannot be read: {error}")
                    continue
                if version < newest[name]:
                    self.problems.append(f"{read.__name__}: {name} went from version {newest[name]} to {version}")
                newest[name] = version
                with self._lock:
                    self.looks += 1
                    self.seen.setdefault((name, version), set()).add(rows)


def by_deltalake(path: Path) -> tuple[int, Rows]:
    table = DeltaTable(path)
    found = QueryBuilder().register("t", table).execute("SELECT id FROM t").read_all()
    return table.version(), _rows(pa.table(found)["id"].to_pylist())


def by_duckdb(path: Path) -> tuple[int, Rows]:
    """DuckDB does not say which version it reads, so deltalake says which one to read."""
    version = DeltaTable(path).version()
    with duckdb.connect() as connection:
        load_extension(connection)
        found = connection.execute(f"SELECT id FROM delta_scan('{path}', version={version})").fetchall()
    return version, _rows([row[0] for row in found])


def _rows(ids: list[int]) -> Rows:
    return tuple(sorted(ids))
