"""Announced writers: files of a transaction are safe however long it takes, and those of a dead one go."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID, uuid4

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from sqlalchemy import insert, update

import deltars
from deltars.data import parquet_file
from deltars.errors import FilesMissing
from deltars.mirror.vacuum_plan import KeptReason
from deltars.store import heartbeat as heartbeat_module
from deltars.store.schema import dl_writers
from deltars.store.writers import AnnouncedWriter
from tests.vacuum.lake import age, files, ids, live, overwritten, put, rows

pytestmark = pytest.mark.backends("sqlite")

DAY_US = 86_400_000_000


@pytest.fixture(autouse=True)
def quick_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat_module.Heartbeat.__init__, "__kwdefaults__", {"every_s": 0.05})


def announced(catalog: deltars.Catalog) -> list[AnnouncedWriter]:
    return catalog._session.heartbeat.writers.all()


def until(holds: Callable[[], object], timeout_s: float = 20) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def silent_since(catalog: deltars.Catalog, days: float) -> None:
    """As if no writer had been heard of for so long."""
    with catalog._session.database.write(30) as connection:
        earlier = int(days * DAY_US)
        connection.execute(
            update(dl_writers).values(
                heartbeat_at=dl_writers.c.heartbeat_at - earlier, started_at=dl_writers.c.started_at - earlier
            )
        )


def old_orphans(table: deltars.Table, days: float = 3) -> set[str]:
    """As if the running writers had begun so long ago, and written all files that no version names. Return them."""
    with table._session.database.write(30) as connection:
        connection.execute(update(dl_writers).values(started_at=dl_writers.c.started_at - int(days * DAY_US)))
    found = files(table) - live(table)
    for path in found:
        age(Path(table.location) / path, days)
    return found


@pytest.mark.backends("sqlite", "postgres", "duckdb")
def test_long_write_is_announced_until_its_commit(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT")
    with catalog.begin() as tx:
        tx.write("t", rows(1))
        until(lambda: announced(catalog))
        [first] = announced(catalog)
        assert (first.txn_id, first.table_id) == (tx.id, table.id)
        assert first.started_at < first.heartbeat_at
        until(lambda: announced(catalog)[0].heartbeat_at > first.heartbeat_at)
        assert announced(catalog)[0].started_at == first.started_at
    assert announced(catalog) == []
    assert ids(table) == [1]


def test_short_write_announces_nothing(catalog: deltars.Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog.create_table("t", "id BIGINT")
    beats, before = catalog._session.heartbeat, threading.active_count()
    beats.every_s = 30
    statements: list[str] = []
    monkeypatch.setattr(beats.writers, "announce", lambda *_: statements.append("announce"))
    monkeypatch.setattr(beats.writers, "beat", lambda *_: statements.append("beat"))
    monkeypatch.setattr(beats.writers, "withdraw", lambda *_: statements.append("withdraw"))
    for number in range(3):
        catalog.write("t", rows(number))
    with catalog.begin() as tx:
        tx.write("t", rows(4))
        tx.rollback()
    assert statements == []
    assert threading.active_count() <= before + 1


@pytest.mark.parametrize("how", ["rollback", "error", "conflict", "empty"])
def test_announcement_ends_with_the_transaction(catalog: deltars.Catalog, how: str) -> None:
    table = catalog.create_table("t", "id BIGINT")

    def write() -> None:
        with catalog.begin(isolation="strict") as tx:
            tx.write("t", rows(1))
            until(lambda: announced(catalog))
            if how == "rollback":
                tx.rollback()
            if how == "error":
                raise ZeroDivisionError
            if how == "conflict":
                table.write(rows(2))
            if how == "empty":
                assert tx._view is not None
                tx._view.forget()

    if how in ("error", "conflict"):
        with pytest.raises((ZeroDivisionError, deltars.VersionConflict)):
            write()
    else:
        write()
    until(lambda: announced(catalog) == [])


def test_orphans_of_a_living_writer_stay_and_it_commits_days_later(catalog: deltars.Catalog) -> None:
    table = overwritten(catalog, times=1)
    leftover = put(table, "part-left.parquet", days_old=30)
    with catalog.begin() as tx:
        tx.write("t", rows(2))
        until(lambda: announced(catalog))
        # It began three days ago, and wrote then; its last heartbeat was a moment ago.
        old_orphans(table, 3)
        age(leftover, 30)
        done = table.vacuum(full=True)
        assert [file.path for file in done.files] == [leftover.name]
        assert done.kept[KeptReason.WRITER].files == 1
        assert table.vacuum(full=True, dry_run=True).files == ()
    assert ids(table) == [1, 2]
    assert table.verify(deep=True).is_ok


@pytest.mark.backends("sqlite", "postgres", "duckdb")
def test_orphans_of_a_dead_writer_go_a_day_after_its_last_heartbeat(catalog: deltars.Catalog) -> None:
    table = overwritten(catalog, times=1)
    put(table, "part-dead.parquet", days_old=2)
    with catalog._session.database.write(30) as connection:
        now = catalog._session.cuts.clock_us()
        for table_id in (table.id, uuid4()):
            row = {"txn_id": uuid4(), "table_id": table_id, "started_at": now - 3 * DAY_US, "heartbeat_at": now}
            connection.execute(insert(dl_writers).values(**row))
    assert table.vacuum(full=True).kept[KeptReason.WRITER].files == 1
    silent_since(catalog, 1.1)
    assert [file.path for file in table.vacuum(full=True).files] == ["part-dead.parquet"]
    # The other one was to create a table.
    assert len(announced(catalog)) == 1
    catalog.vacuum(full=True)
    assert announced(catalog) == []


def test_writer_that_was_taken_for_dead_is_refused(catalog: deltars.Catalog) -> None:
    table = overwritten(catalog, times=1)
    catalog._session.heartbeat.every_s = 0.3

    def taken_for_dead() -> deltars.Transaction:
        tx = catalog.begin()
        tx.write("t", rows(2))
        until(lambda: announced(catalog))
        # A heartbeat before the vacuum would bring the writer back.
        with catalog._session.heartbeat._changed:
            silent_since(catalog, 2)
            assert old_orphans(table)
            assert table.vacuum(full=True).num_files == 1
        return tx

    with pytest.raises(FilesMissing, match="took this transaction for dead"):
        taken_for_dead().commit()
    assert ids(table) == [1]
    # The heartbeat notices it too, and announces it no more.
    tx = taken_for_dead()
    until(lambda: catalog._session.heartbeat._open[tx.id].is_lost)
    with pytest.raises(FilesMissing, match="took this transaction for dead"):
        tx.commit()
    assert announced(catalog) == []
    assert table.verify(deep=True).is_ok


def test_writer_that_could_not_announce_itself_for_half_a_day_is_refused(
    catalog: deltars.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = overwritten(catalog, times=1)
    catalog._session.heartbeat.every_s = 60
    clock = [heartbeat_module._now()]
    monkeypatch.setattr(heartbeat_module, "_now", lambda: clock[0])
    with catalog.begin() as tx:
        tx.write("t", rows(2))
        clock[0] += 11 * 3600
    tx = catalog.begin()
    tx.write("t", rows(3))
    clock[0] += 13 * 3600
    with pytest.raises(FilesMissing, match="could not announce itself for 13 hours"):
        tx.commit()
    assert ids(table) == [1, 2]


def test_heartbeat_survives_a_database_that_is_away(
    catalog: deltars.Catalog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    catalog.create_table("t", "id BIGINT")
    writers = catalog._session.heartbeat.writers
    real = writers.announce
    failures = iter([deltars.DatabaseError("away"), deltars.DatabaseError("away"), None])

    def announce(txn_id: UUID, ages_us: dict[UUID, int]) -> None:
        if (error := next(failures, None)) is not None:
            raise error
        real(txn_id, ages_us)

    monkeypatch.setattr(writers, "announce", announce)
    with catalog.begin() as tx:
        tx.write("t", rows(1))
        until(lambda: announced(catalog))
        assert "is tried again" in caplog.text
    assert announced(catalog) == []


def test_thread_ends_when_no_transaction_writes(catalog: deltars.Catalog) -> None:
    catalog.create_table("t", "id BIGINT")
    catalog.write("t", rows(1))
    beats = catalog._session.heartbeat
    until(lambda: beats._thread is None)
    catalog.write("t", rows(2))
    until(lambda: beats._thread is None)
    # A transaction that is forgotten is no writer any more.
    forgotten = [catalog.begin()]
    forgotten[0].write("t", rows(3))
    with pytest.warns(ResourceWarning):
        forgotten.clear()
    until(lambda: beats._thread is None)


def test_many_threads_announce_one_transaction_once(catalog: deltars.Catalog) -> None:
    for name in "abc":
        catalog.create_table(name, "id BIGINT")
    with catalog.begin() as tx:
        threads = [
            threading.Thread(target=tx.write, args=(name, rows(number))) for number in range(3) for name in "abc"
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        until(lambda: len(announced(catalog)) == 3)
    assert announced(catalog) == []


def test_killed_writer_leaves_an_announcement_and_files_that_a_vacuum_finds(
    catalog: deltars.Catalog, migrated_uri: str
) -> None:
    table = overwritten(catalog, times=1)
    catalog.close()
    child = os.fork()
    if child == 0:
        try:
            with deltars.connect(migrated_uri) as mine, mine.begin() as tx:
                tx.write("t", rows(2))
                until(lambda: announced(mine))
                os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert len(announced(catalog)) == 1
    assert len(old_orphans(table)) == 1
    assert table.vacuum(full=True).files == ()
    silent_since(catalog, 2)
    assert table.vacuum(full=True).num_files == 1
    assert announced(catalog) == []
    assert files(table) == live(table)


def test_changes_of_rows_are_writes_too(catalog: deltars.Catalog) -> None:
    catalog.create_table("t", "id BIGINT", properties={"delta.enableDeletionVectors": "true"})
    catalog.write("t", rows(1, 2, 3))
    with catalog.begin() as tx:
        tx.delete("t", "id = 2")
        until(lambda: announced(catalog))
    assert announced(catalog) == []


def test_spark_job_is_announced_by_the_driver(catalog: deltars.Catalog, spark: SparkSession) -> None:
    table = catalog.create_table("t", "id BIGINT")
    seen: list[AnnouncedWriter] = []
    with catalog.begin() as tx:
        tx.write("t", spark.range(10))
        until(lambda: announced(catalog))
        seen += announced(catalog)
        old_orphans(table)
        assert table.vacuum(full=True).files == ()
    assert [writer.txn_id for writer in seen] == [tx.id]
    assert announced(catalog) == []
    assert table.count() == 10


@pytest.fixture
def slow() -> Iterator[threading.Event]:
    go_on = threading.Event()
    yield go_on
    go_on.set()


def test_stream_of_rows_is_announced_while_it_is_written(
    catalog: deltars.Catalog, slow: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = catalog.create_table("t", "id BIGINT")
    # The second row begins a row group, and with it the file: until then the rows are in memory.
    monkeypatch.setattr(parquet_file, "ROW_GROUP_ROWS", 1)

    def batches() -> Iterator[pa.RecordBatch]:
        yield from rows(1).to_batches()
        yield from rows(2).to_batches()
        slow.wait(30)
        yield from rows(3).to_batches()

    reader = pa.RecordBatchReader.from_batches(rows(1).schema, batches())
    thread = threading.Thread(target=catalog.write, args=("t", reader))
    thread.start()
    until(lambda: announced(catalog))
    assert "#" in next(iter(old_orphans(table)))
    assert table.vacuum(full=True).kept[KeptReason.WRITER].files == 1
    slow.set()
    thread.join()
    assert ids(table) == [1, 2, 3]
    until(lambda: announced(catalog) == [])
