"""Expire beside readers and writers: a read is whole or says that its version is expired, and no writer is blocked."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from datetime import timedelta
from itertools import count
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from sqlalchemy import Connection, insert, update

import deltars
from deltars.errors import HistoryExpired
from deltars.store import schema
from deltars.store.history.deletion import LONGEST_S, HistoryDeletion
from tests.support.forkserver import forkserver
from tests.support.memory import peak_mib
from tests.support.soak import record, scaled, seed
from tests.support.together import Meanwhile

NOW = timedelta(0)


def rows(number: int) -> pa.Table:
    return pa.table({"id": pa.array([number], pa.int64())})


def write_next(table: deltars.Table) -> None:
    """Append one file, but in every tenth version overwrite with one."""
    table.write(rows(table.version + 1), "append" if (table.version + 1) % 10 else "overwrite")


def expected_files(version: int) -> int:
    return version if version < 10 else version % 10 + 1


def vacuum_up_to(catalog: deltars.Catalog, table: deltars.Table, version: int) -> None:
    """Record a vacuum: only the catalog is looked at here."""
    database = catalog._session.database
    with database.write(30) as connection:
        connection.execute(database.backend.insert_unless_present(schema.dl_maintenance).values(table_id=table.id))
        values = {"vacuumed_version": version, "condemned_version": version}
        connection.execute(update(schema.dl_maintenance).values(values))


def read_until(uri: str, chosen: int, ready: Any, stop: Any, found: Any) -> None:
    """Read random versions, slowly: the snapshot is taken before the files are."""
    drawn = random.Random(chosen)
    with deltars.connect(uri) as catalog:
        table, whole, refused = catalog.table("t"), 0, 0
        ready.release()
        while not stop.is_set():
            version = drawn.randint(max(0, table.version - 15), table.version)
            try:
                snapshot = table.snapshot(version)
                time.sleep(drawn.random() / 50)
                files = [snapshot.files.num_rows, snapshot.totals.num_files]
                read = list(deltars.SqlTxnLogReader(catalog).changes(table.id, version, version))
                assert len(read) == 1
                assert sum(isinstance(action, deltars.AddFile) for action in read[0].actions) == min(version, 1)
            except HistoryExpired:
                refused += 1
                continue
            except BaseException as error:
                found.put(repr(error))
                return
            if files != [expected_files(version)] * 2:
                found.put(f"version {version} has {files} files instead of {expected_files(version)}")
                return
            whole += 1
    found.put((whole, refused))


@pytest.mark.soak
@pytest.mark.backends("sqlite", "postgres")
@pytest.mark.timeout(scaled(120, soak=1_200))
def test_readers_of_versions_that_expire_see_all_of_a_version_or_the_error(
    migrated_uri: str, catalog: deltars.Catalog
) -> None:
    table = catalog.create_table("t", "id BIGINT", properties={"delta.enableExpiredLogCleanup": "false"})
    context = forkserver()
    ready, stop, found = context.Semaphore(0), context.Event(), context.Queue()
    readers = [
        context.Process(target=read_until, args=(migrated_uri, seed() + n, ready, stop, found)) for n in range(2)
    ]
    for reader in readers:
        reader.start()
    for _ in readers:
        assert ready.acquire(timeout=60)
    drawn, until = random.Random(seed()), time.monotonic() + scaled(4, soak=300)
    while time.monotonic() < until:
        for _ in range(5):
            write_next(table)
        vacuum_up_to(catalog, table, table.version)
        table.expire(NOW, keep_versions=drawn.choice((1, 5, 10)), force=True)
    stop.set()
    outcomes = [found.get(timeout=60) for _ in readers]
    for reader in readers:
        reader.join()
    assert all(isinstance(outcome, tuple) for outcome in outcomes), outcomes
    whole, refused = (sum(figures) for figures in zip(*outcomes, strict=True))
    assert whole > 0
    assert refused > 0
    record("readers beside expire", whole=whole, refused=refused, wrong=0)


@pytest.mark.backends("postgres")
def test_writers_do_not_wait_for_an_expiry_that_is_not_committed_yet(
    catalog: deltars.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = catalog.create_table("t", "id BIGINT")
    for _ in range(15):
        write_next(table)
    vacuum_up_to(catalog, table, table.version)
    in_turn, numbers = HistoryDeletion._in_turn, count()

    def slowly(self: HistoryDeletion, act: Callable[[Connection], Any]) -> Any:
        def act_and_write(connection: Connection) -> Any:
            result = act(connection)
            # The transaction holds whatever it locks; the write is another's.
            if next(numbers) < 12:
                Meanwhile(catalog.write, "t", rows(0)).result()
            return result

        return in_turn(self, act_and_write)

    monkeypatch.setattr(HistoryDeletion, "_in_turn", slowly)
    assert table.expire(NOW, force=True).tables[0].first_version == 15
    assert next(numbers) > 12
    assert table.version == 27
    assert table.verify(deep=True).is_ok


@pytest.mark.soak
@pytest.mark.backends("sqlite", "postgres")
@pytest.mark.timeout(scaled(120, soak=3_600))
def test_many_versions_expire_in_small_steps_with_little_memory(
    catalog: deltars.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = scaled(600, soak=100_000)
    table = catalog.create_table("t", "id BIGINT", properties={"delta.enableExpiredLogCleanup": "false"})
    table.write(rows(1))
    grow(catalog, table, number)
    steps: list[float] = []
    writing = HistoryDeletion._writing

    def timed(self: HistoryDeletion) -> Any:
        return Timed(writing(self), steps)

    monkeypatch.setattr(HistoryDeletion, "_writing", timed)
    began, waits, memory = time.monotonic(), [], peak_mib()
    expiring = Meanwhile(lambda: table.expire(NOW, force=True))
    while expiring.is_running:
        before = time.monotonic()
        table.write(rows(0))
        waits.append(time.monotonic() - before)
    done = expiring.result()
    took = time.monotonic() - began
    assert isinstance(done, deltars.Expired)
    assert (done.tables[0].first_version, done.tables[0].num_expired_versions) == (number + 1, number + 1)
    assert done.num_transactions >= number
    assert table.count() == 1 + len(waits)
    # Timings are noisy where other processes run, so only a gross mistake fails.
    assert max(steps) < 40 * LONGEST_S
    assert len(waits) > 2
    record(
        f"expire, {catalog.uri.split('/')[2]}",
        versions=number,
        seconds=round(took, 1),
        steps=len(steps),
        longest_step_ms=round(max(steps) * 1000),
        commits_meanwhile=len(waits),
        longest_commit_ms=round(max(waits) * 1000),
        more_memory_mib=round(peak_mib() - memory),
    )


class Timed:
    """A transaction whose time, without the wait for its turn, is added to a list."""

    def __init__(self, transaction: Any, times: list[float]) -> None:
        self._transaction = transaction
        self._times = times

    def __enter__(self) -> Connection:
        connection: Connection = self._transaction.__enter__()
        self._began = time.monotonic()
        return connection

    def __exit__(self, *error: object) -> Any:
        result = self._transaction.__exit__(*error)
        self._times.append(time.monotonic() - self._began)
        return result


def grow(catalog: deltars.Catalog, table: deltars.Table, versions: int) -> None:
    """Give the table versions, each of which replaced its only file, as if committed and published long ago."""
    database = catalog._session.database
    first, last = table.version + 1, table.version + versions
    base = next(entry for entry in table.history(limit=1))
    with database.read() as connection:
        added = schema.dl_add_files.select().where(schema.dl_add_files.c.table_id == table.id)
        [add] = connection.execute(added).mappings()
        [commit] = connection.execute(
            schema.dl_table_versions.select().where(schema.dl_table_versions.c.version == base.version)
        ).mappings()
    for start in range(first, last + 1, 5_000):
        some = range(start, min(start + 5_000, last + 1))
        ids = {version: UUID(int=version) for version in some}
        stamps = {version: {"commit_ts": commit["commit_ts"] + version} for version in some}
        ict = commit["in_commit_timestamp"]
        ends = {last: None}
        with database.write(600) as connection:
            put = connection.execute
            put(
                insert(schema.dl_table_versions),
                [
                    {**commit, **stamps[v], "version": v, "txn_id": ids[v], "in_commit_timestamp": ict + v // 1000}
                    for v in some
                ],
            )
            put(
                insert(schema.dl_transactions),
                [
                    {"txn_id": ids[v], "outcome": "committed", "participants": {str(table.id): v}, **stamps[v]}
                    for v in some
                ],
            )
            put(
                insert(schema.dl_add_files),
                [
                    {**add, "version": v, "path": add["path"] if v == last else f"{v}.parquet", "ord": 0}
                    | {"removed_version": ends.get(v, v + 1)}
                    for v in some
                ],
            )
            put(
                insert(schema.dl_remove_files),
                [
                    {"table_id": table.id, "version": v, "ord": 1, "path": f"{v - 1}.parquet", "data_change": True}
                    for v in some
                ],
            )
            put(
                insert(schema.dl_mirror_log),
                [{"table_id": table.id, "version": v, "published_at": 1, "digest": ""} for v in some],
            )
    with database.write(600) as connection:
        files = schema.dl_add_files
        connection.execute(
            update(files).where(files.c.table_id == table.id, files.c.version < first).values(removed_version=first)
        )
        newest = {"current_version": last, "last_commit_ts": commit["commit_ts"] + last}
        connection.execute(update(schema.dl_tables).values(last_ict=commit["in_commit_timestamp"] + last, **newest))
        connection.execute(update(schema.dl_mirror_status).values(published_version=last))
    vacuum_up_to(catalog, table, last)
