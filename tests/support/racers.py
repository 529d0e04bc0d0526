"""Many writers of one catalog at the same time: processes where the database takes them, threads where it does not.

    outcomes = run_racers(uri, 6, append_to_one, table_id, 20)       # job(catalog, number, table_id, 20) six times

Each process is a separate program and opens the catalog itself; threads (DuckDB, `in_threads`) share one. All start
together. `around` is a context for each program: for every process, or once for all threads.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar
from unittest import mock
from uuid import UUID, uuid4

import deltars
from deltars.log.commit import Commit, TableCommit
from deltars.protocol import AddFile
from deltars.uri import parse_catalog_uri
from tests.support.forkserver import forkserver

T = TypeVar("T")

WAIT_S = 7_000.0
"""The test's own time-out comes first."""

_start: Any = None


def run_racers(
    uri: str,
    count: int,
    job: Callable[..., T],
    *arguments: Any,
    around: Callable[[], AbstractContextManager[object]] = nullcontext,
    in_threads: bool = False,
) -> list[T]:
    """What each of them answered; the first exception of any."""
    if parse_catalog_uri(uri).backend == "duckdb" or in_threads:
        start = threading.Barrier(count)
        with around(), deltars.connect(uri, pool_size=count) as catalog, ThreadPoolExecutor(count) as threads:
            return _answers(threads.submit(_together, start, job, catalog, i, *arguments) for i in range(count))
    context = forkserver()
    barrier = context.Barrier(count)
    with ProcessPoolExecutor(count, mp_context=context, initializer=_meet_at, initargs=(barrier,)) as processes:
        return _answers(processes.submit(_connect_and_run, around, job, uri, i, *arguments) for i in range(count))


def _answers(futures: Any) -> list[Any]:
    started: list[Future[Any]] = list(futures)
    return [future.result(WAIT_S) for future in started]


def _meet_at(barrier: Any) -> None:
    global _start
    _start = barrier


def _connect_and_run(
    around: Callable[[], AbstractContextManager[object]],
    job: Callable[..., T],
    uri: str,
    number: int,
    *arguments: Any,
) -> T:
    with around(), deltars.connect(uri) as catalog:
        # A process takes one job only: it stays here until every other has taken one too.
        return _together(_start, job, catalog, number, *arguments)


def _together(start: Any, job: Callable[..., T], *arguments: Any) -> T:
    start.wait(WAIT_S)
    return job(*arguments)


@contextmanager
def unpublished() -> Iterator[None]:
    """Commits stay in the log alone: the mirror is not what is tried."""
    with mock.patch.dict(os.environ, {"DELTARS_MIRROR": "off"}):
        yield


# -- jobs --------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Tally:
    """What one writer knows of its own doings."""

    files: dict[UUID, list[str]] = field(default_factory=dict)
    """The files of confirmed commits, by table."""
    versions: list[int] = field(default_factory=list)
    conflicts: int = 0
    longest_s: float = 0.0

    @property
    def commits(self) -> int:
        return len(self.versions)


def race_for_versions(catalog: deltars.Catalog, number: int, table_id: UUID, rounds: int) -> Tally:
    """Everybody tries to write every version, as soon as the one before it is decided."""
    writer, tally = deltars.SqlTxnLogWriter(catalog), Tally()
    for version in range(1, rounds + 1):
        _try(writer, tally, table_id, version, f"{number}-{version}")
    return tally


def append_with_retries(catalog: deltars.Catalog, number: int, table_ids: Sequence[UUID], count: int) -> Tally:
    """So many files into tables drawn by lot, each as soon as its version can be had."""
    writer, tally, lot = deltars.SqlTxnLogWriter(catalog), Tally(), random.Random(number)
    for file in range(count):
        table_id = lot.choice(table_ids)
        # The first look is the reader's; after a lost race the conflict says where the table is.
        version = catalog._session.reader.current_version(table_id) + 1
        while (actual := _try(writer, tally, table_id, version, f"{number}-{file}")) is not None:
            version = actual + 1
    return tally


def append_for_a_while(catalog: deltars.Catalog, number: int, table_ids: Sequence[UUID], duration_s: float) -> Tally:
    """As many files as there is time for, into a table of its own."""
    writer, tally, table_id = deltars.SqlTxnLogWriter(catalog), Tally(), table_ids[number]
    end = time.monotonic() + duration_s
    while time.monotonic() < end:
        version = len(tally.versions) + 1
        _try(writer, tally, table_id, version, f"{number}-{version}")
    return tally


def append_by_threads(
    catalog: deltars.Catalog, number: int, table_id: UUID, threads: int, count: int
) -> dict[str, int]:
    """Append `count` files to a table from each of several threads. Return the version of each file."""
    writer, versions = deltars.SqlTxnLogWriter(catalog), {}

    def append(thread: int) -> None:
        for i in range(count):
            path = f"{number}-{thread}-{i}"
            file = AddFile(path=path, partition_values={}, size=1, modification_time=1, data_change=True)
            versions[path] = writer.append(table_id, [file]).version

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(append, range(threads)))
    return versions


def come_and_go(catalog: deltars.Catalog, number: int, table_ids: Sequence[UUID], duration_s: float) -> Tally:
    """Even numbers open the catalog, read and close it again and again; odd ones write meanwhile."""
    if number % 2:
        return append_for_a_while(catalog, number, table_ids, duration_s)
    tally = Tally()
    end = time.monotonic() + duration_s
    uri = catalog._session.uri.with_secrets()
    while time.monotonic() < end:
        with deltars.connect(uri) as other:
            tally.versions.append(other._session.reader.snapshot(table_ids[1]).version)
    return tally


def write_or_watch_both(catalog: deltars.Catalog, number: int, table_ids: Sequence[UUID], count: int) -> list[int]:
    """The first two commit one file to each of two tables, in one transaction and so many times; others look on.

    Whoever looks on sees both tables at one version, and at version N exactly N files; back come the versions seen.
    """
    if number < 2:
        return [_append_to_both(catalog, table_ids, f"{number}-{file}") for file in range(count)]
    reader, seen = catalog._session.reader, [0]
    while seen[-1] < 2 * count:
        cut = catalog._session.cuts.now().versions_by_id
        versions = {cut[table_id] for table_id in table_ids}
        assert len(versions) == 1, f"half a transaction: {versions}"
        for table_id in table_ids:
            snapshot = reader.snapshot(table_id)
            assert snapshot.version >= cut[table_id], "a version went away"
            assert snapshot.files.num_rows == snapshot.version, "half a commit"
        seen.append(versions.pop())
        assert seen[-1] >= seen[-2], "a version went away"
    return seen


def _append_to_both(catalog: deltars.Catalog, table_ids: Sequence[UUID], path: str) -> int:
    file = AddFile(path=path, partition_values={}, size=1, modification_time=1, data_change=True)
    while True:
        cut = catalog._session.cuts.now().versions_by_id
        parts = [TableCommit(table_id, cut[table_id], [file], "WRITE") for table_id in table_ids]
        try:
            return catalog._session.commit(Commit(uuid4(), parts)).versions[table_ids[0]]
        except deltars.VersionConflict:
            time.sleep(random.uniform(0, 0.01))


def _try(writer: deltars.SqlTxnLogWriter, tally: Tally, table_id: UUID, version: int, path: str) -> int | None:
    """One attempt; where the table is instead, if it was lost."""
    file = AddFile(path=path, partition_values={}, size=1, modification_time=1, data_change=True)
    started = time.monotonic()
    try:
        writer.commit(table_id, version, [file], operation="WRITE")
    except deltars.VersionConflict as conflict:
        if conflict.actual < version:
            raise AssertionError(f"a conflict over version {version}, which nobody has taken: {conflict}") from conflict
        tally.conflicts += 1
        return conflict.actual
    finally:
        tally.longest_s = max(tally.longest_s, time.monotonic() - started)
    tally.versions.append(version)
    tally.files.setdefault(table_id, []).append(path)
    return None


def hold_the_lock(uri: str, table_id: UUID, ready: str) -> None:
    """Begin to write, say so by making a file, and never end."""
    with deltars.connect(uri) as catalog, catalog._session.database.write(60) as connection:
        schema = catalog._session.uri.schema
        name = f'"{schema}".dl_tables' if schema else "dl_tables"
        connection.exec_driver_sql(f"UPDATE {name} SET current_version = 99")
        with open(ready, "w"):
            pass
        time.sleep(600)
