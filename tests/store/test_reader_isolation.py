"""Readers and writers at the same time: nobody waits, nobody sees a part of anything, and no reader can write."""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from sqlalchemy import Text, cast, func, insert, literal_column, select, update

import deltars
from deltars.errors import DatabaseError
from deltars.store.backends.postgresql import adbc
from deltars.store.backends.postgresql import backend as postgresql
from deltars.store.schema import dl_catalog, dl_tables
from tests.store.conftest import OpenLog
from tests.support.forkserver import forkserver
from tests.support.log import Log, added, removed
from tests.support.racers import hold_the_lock, run_racers, write_or_watch_both
from tests.support.soak import scaled
from tests.support.together import Meanwhile

SOON_S = 20.0
"""Surely not a wait for anything that is held."""


@pytest.mark.backends("postgres", "sqlite")
def test_readers_do_not_wait_for_a_process_that_holds_the_lock(log: Log, tmp_path: Path) -> None:
    log.append("a")
    ready = tmp_path / "ready"
    holder = forkserver().Process(target=hold_the_lock, args=(log.uri, log.table_id, str(ready)), daemon=True)
    holder.start()
    try:
        _wait_for(ready)
        _reads_at_version_1(log)
        assert holder.is_alive()
    finally:
        holder.kill()
        holder.join()
    assert log.append("b").version == 2


def test_readers_do_not_wait_for_a_thread_that_holds_the_lock(log: Log) -> None:
    log.append("a")
    with log.catalog._session.database.write(60) as connection:
        connection.execute(update(dl_tables).values(current_version=99))
        Meanwhile(_reads_at_version_1, log).result()
        connection.execute(update(dl_tables).values(current_version=1))


def _reads_at_version_1(log: Log) -> None:
    started = time.monotonic()
    reader = deltars.SqlTxnLogReader(log.catalog)
    snapshot = reader.snapshot(log.table_id)
    assert (snapshot.version, snapshot.files["path"].to_pylist()) == (1, ["a"])
    assert (snapshot.txns, snapshot.totals.num_files) == ({}, 1)
    assert [entry.version for entry in reader.history(log.table_id)] == [1, 0]
    assert [change.version for change in reader.changes(log.table_id, 0)] == [0, 1]
    assert log.catalog.table(log.table_id).detail().num_files == 1
    assert time.monotonic() - started < SOON_S


def _wait_for(file: Path) -> None:
    deadline = time.monotonic() + 60
    while not file.exists():
        assert time.monotonic() < deadline, "the lock was never taken"
        time.sleep(0.01)


def test_writers_do_not_wait_for_a_reader_in_the_middle_of_its_stream(log: Log) -> None:
    log.append("a", "b", "c")
    with log.catalog._session.database.read() as connection:
        assert connection.execute(dl_tables.select()).first() is not None
        assert log.append("d").version == 2
    stream = log.catalog._session.reader.snapshot(log.table_id).file_batches()
    assert next(stream).num_rows == 4
    assert log.commit([removed("a")]).version == 3
    assert sum(batch.num_rows for batch in stream) == 0


@pytest.mark.soak
def test_readers_in_a_loop_never_see_a_part_of_what_two_writers_commit(open_log: OpenLog) -> None:
    log, other = open_log().create(), open_log(name="other").create()
    commits = scaled(15, soak=2_000)
    log.catalog.close()
    other.catalog.close()
    outcomes = run_racers(log.uri, 4, write_or_watch_both, [log.table_id, other.table_id], commits)
    assert sorted(outcomes[0] + outcomes[1]) == list(range(1, 2 * commits + 1))
    for seen in outcomes[2:]:
        assert seen[-1] == 2 * commits


# -- a reader cannot write --------------------------------------------------------------------------------------------


def test_database_refuses_what_a_reader_writes(log: Log) -> None:
    database = log.catalog._session.database
    before = log.dump()
    for statement in (update(dl_tables).values(current_version=99), insert(dl_catalog).values(**_catalog_row())):
        with pytest.raises(DatabaseError), database.read() as connection:
            connection.execute(statement)
    assert log.dump() == before
    # The same connections serve writers again.
    assert log.append("a").version == 1
    assert database.backend.name in ("postgres", "sqlite", "duckdb")


def _catalog_row() -> dict[str, Any]:
    return {"catalog_id": uuid4(), "created_at": datetime.now(UTC)}


@pytest.mark.backends("sqlite")
def test_reader_type_offers_nothing_that_writes(log: Log) -> None:
    reader = deltars.SqlTxnLogReader(log.catalog)
    offered = {name for name in dir(reader) if not name.startswith("_")}
    assert offered == {"changes", "current_version", "history", "snapshot", "transaction"}


# -- two ways to the rows of PostgreSQL -------------------------------------------------------------------------------


@pytest.mark.backends("postgres")
def test_both_drivers_fetch_the_same_files(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgresql, "LARGE_ROWS", 2)
    log.commit([added(f"{n}", size=n, tags={"a": "\n"}) for n in range(2)])
    log.commit([added("x", partition_values={}, clustering_provider="", stats='{"numRecords":1,"x":"\\"\\\\,\\n"}')])
    log.commit([added("y", base_row_id=2**62, default_row_commit_version=1, data_change=False)])
    snapshot = log.catalog._session.reader.snapshot(log.table_id)
    opened: list[str] = []
    original = adbc.Adbc.batches

    def batches(driver: adbc.Adbc, query: str, columns: pa.Schema) -> Any:
        opened.append(query)
        return original(driver, query, columns)

    monkeypatch.setattr(adbc.Adbc, "batches", batches)
    through_adbc = snapshot.select_files().sort_by("path")
    assert len(opened) == 1
    monkeypatch.setattr(postgresql, "LARGE_ROWS", 10_000)
    through_psycopg = snapshot.select_files().sort_by("path")
    assert len(opened) == 1
    assert through_adbc == through_psycopg
    assert through_adbc.num_rows == 4


@pytest.mark.backends("postgres")
def test_where_adbc_gets_no_session_psycopg_serves_and_nothing_leaks(
    log: Log, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(postgresql, "LARGE_ROWS", 0)
    log.append("a", "b")
    backend: Any = log.catalog._session.database.backend
    backend.__dict__["_adbc"] = adbc.Adbc("host=/nowhere user=u password=s3cret connect_timeout=1")
    with caplog.at_level(logging.DEBUG):
        assert log.catalog._session.reader.snapshot(log.table_id).files.num_rows == 2
    assert "reading through psycopg" in caplog.text
    assert "s3cret" not in caplog.text


@pytest.mark.backends("postgres")
def test_connection_of_a_failed_or_left_copy_serves_the_next_reader(open_log: OpenLog) -> None:
    log = open_log(pool_size=1, pool_timeout=10).create()
    database, column = log.catalog._session.database, pa.schema([("x", pa.string())])
    numbers = func.generate_series(1, 300_000)
    for query in (select(literal_column("nothing")), select(literal_column("1") / (299_999 - numbers))):
        with pytest.raises(DatabaseError) as failed:
            list(database.fetch(query, column))
        assert failed.value.sqlstate in ("42703", "22012")
        assert not failed.value.retryable
    rows = database.fetch(select(cast(numbers, Text)), column)
    assert next(rows).num_rows > 0
    rows.close()  # type: ignore[attr-defined]
    assert log.catalog._session.reader.current_version(log.table_id) == 0
