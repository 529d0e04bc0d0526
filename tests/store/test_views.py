"""The versioned catalog, in its own words: datasets, transactions, files, row groups and partitions, as views."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pyarrow as pa
import pytest

import deltars
from deltars.store.views import VIEWS
from deltars.uri import parse_catalog_uri
from tests.store.conftest import OpenLog
from tests.support import witness
from tests.support.log import Log, added, removed, stats
from tests.support.objects import run_script
from tests.support.tap import Tap
from tests.support.wire import Verdict

ROWS = pa.table({"id": [1, 2, 3, 4], "day": ["mon", "mon", "tue", None]})


def view(uri: str, name: str, columns: str = "*") -> list[tuple[Any, ...]]:
    return sorted(witness.rows(uri, f"SELECT {columns} FROM {name}"), key=repr)


def views(uri: str) -> dict[str, list[tuple[Any, ...]]]:
    return {name: view(uri, name) for name in VIEWS}


def document(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


@pytest.fixture
def dataset(open_log: OpenLog) -> Log:
    """A table with two partitions' worth of real files at its version 1."""
    log = open_log().create("id BIGINT, day STRING", partition_columns=["day"])
    log.catalog.write(log.name, ROWS)
    return log


# -- what the views show ------------------------------------------------------------------------------------------


@pytest.mark.requirement("V-01")
def test_commit_raises_the_version_in_transactions_and_datasets(dataset: Log) -> None:
    for expected in (2, 3, 4):
        before = [version for (version,) in view(dataset.uri, "transactions", "version")]
        committed = dataset.commit([added(f"{expected}", partition_values={"day": "x"})], committer="etl")
        after = view(dataset.uri, "transactions", "version")
        assert committed.version == expected > max(before)
        assert [version for (version,) in after] == [*before, expected]
        assert view(dataset.uri, "datasets", "current_version") == [(expected,)]
    [row] = witness.rows(
        dataset.uri,
        "SELECT dataset_id, txn_id, committer, operation, parameters, committed_at FROM transactions WHERE version = 4",
    )
    assert (UUID(str(row[0])), UUID(str(row[1])), *row[2:4]) == (dataset.table_id, committed.txn_id, "etl", "WRITE")
    assert row[5] is not None


@pytest.mark.requirement("V-01")
def test_versions_of_one_dataset_are_not_those_of_another(dataset: Log, open_log: OpenLog) -> None:
    other = open_log(name="other").create()
    other.append("a")
    found: dict[UUID, list[int]] = {}
    for dataset_id, version in view(dataset.uri, "transactions", "dataset_id, version"):
        found.setdefault(UUID(str(dataset_id)), []).append(version)
    assert found == {dataset.table_id: [0, 1], other.table_id: [0, 1]}
    dataset.commit([added("b", partition_values={"day": "mon"})])
    assert view(dataset.uri, "datasets", "name, current_version") == [("events", 2), ("other", 1)]


def test_datasets_are_the_tables_that_were_not_dropped(dataset: Log) -> None:
    catalog = dataset.catalog
    [row] = view(dataset.uri, "datasets", "dataset_id, name, location, current_version")
    assert (UUID(str(row[0])), *row[1:]) == (dataset.table_id, "events", f"{catalog.warehouse}/events", 1)
    catalog.rename_table("events", "happenings")
    assert view(dataset.uri, "datasets", "name") == [("happenings",)]
    catalog.drop_table("happenings")
    assert view(dataset.uri, "datasets") == []
    assert len(view(dataset.uri, "transactions")) == 2


def test_files_say_between_which_versions_they_are_live(dataset: Log) -> None:
    paths = [path for (path,) in witness.rows(dataset.uri, "SELECT path FROM files ORDER BY path")]
    assert len(paths) == 3
    dataset.commit([removed(paths[0])])
    columns = "path, version, removed_version, rows, partition_values, size_bytes"
    rows = {path: (*rest[:3], document(rest[3])) for path, *rest in view(dataset.uri, "files", columns)}
    days = {document(value)["day"]: rows_ for _, _, _, rows_, value, _ in view(dataset.uri, "files", columns)}
    assert days == {"mon": 2, "tue": 1, None: 1}
    assert {path: row[:2] for path, row in rows.items()} == {
        paths[0]: (1, 2),
        paths[1]: (1, None),
        paths[2]: (1, None),
    }
    for path, *_, size in view(dataset.uri, "files", columns):
        assert size == (Path(str(dataset.catalog.warehouse)) / "events" / path).stat().st_size


def test_row_groups_name_their_file(dataset: Log) -> None:
    groups = view(dataset.uri, "row_groups", "path, row_group, rows, size_bytes, version, stats")
    assert sorted(path for path, *_ in groups) == [p for (p,) in view(dataset.uri, "files", "path")]
    assert sorted(rows for _, _, rows, *_ in groups) == [1, 1, 2]
    assert {(number, version) for _, number, _, _, version, _ in groups} == {(0, 1)}
    assert all(size > 0 for _, _, _, size, _, _ in groups)
    assert {json.loads(text)["minValues"]["id"] for *_, text in groups} == {1, 3, 4}


def test_partitions_sum_up_the_live_files(dataset: Log) -> None:
    dataset.commit([added(f"{n}", size=100, stats=stats(5), partition_values={"day": "mon"}) for n in range(2)])
    query = "SELECT partition_values, files, rows, size_bytes, last_version FROM partitions"

    def partitions() -> dict[str | None, tuple[int, ...]]:
        return {document(values)["day"]: (*map(int, rest),) for values, *rest in witness.rows(dataset.uri, query)}

    found = partitions()
    assert {day: (files, rows, last) for day, (files, rows, _, last) in found.items()} == {
        "mon": (3, 12, 2),
        "tue": (1, 1, 1),
        None: (1, 1, 1),
    }
    assert found["mon"][2] > 200
    gone = {document(values)["day"]: path for path, values in view(dataset.uri, "files", "path, partition_values")}
    dataset.commit([removed(gone["tue"]), removed("0"), removed("1")])
    assert {day: row[:2] for day, row in partitions().items()} == {"mon": (1, 2), None: (1, 1)}


def test_partition_is_one_however_its_values_were_written(open_log: OpenLog) -> None:
    log = open_log().create("id INT, a STRING, b STRING", partition_columns=["a", "b"])
    log.commit([added("p", partition_values={"a": "1", "b": None}), added("q", partition_values={"b": None, "a": "1"})])
    bulk = {
        "path": ["r", "s"],
        "partition_values": ['{"b": null, "a": "1"}', '{"a":"\\u0031","b":null}'],
        "size": [1, 1],
        "modification_time": [0, 0],
        "data_change": [True, True],
    }
    log.commit(pa.table(bulk))
    [[values, files]] = witness.rows(log.uri, "SELECT partition_values, files FROM partitions")
    assert (document(values), files) == ({"a": "1", "b": None}, 4)


# -- two writers --------------------------------------------------------------------------------------------------


@pytest.mark.requirement("V-02")
def test_stale_writer_is_told_reloads_and_succeeds(dataset: Log, open_log: OpenLog) -> None:
    uri = dataset.catalog._session.uri.with_secrets()
    with deltars.connect(uri) as other:
        first, second = dataset.catalog.begin(), other.begin()
        first.write("events", ROWS)
        second.write("events", ROWS)
        assert first.commit().versions == {"events": 2}
        with pytest.raises(deltars.VersionConflict) as raised:
            second.commit()
        assert (raised.value.expected, raised.value.actual, raised.value.table) == (1, 2, "events")
        assert raised.value.retryable
        assert [version for (version,) in view(dataset.uri, "transactions", "version")] == [0, 1, 2]
        assert len(view(dataset.uri, "files")) == 6

        with other.begin() as again:
            again.write("events", ROWS)
        assert again.result.versions == {"events": 3}
    assert [version for (version,) in view(dataset.uri, "transactions", "version")] == [0, 1, 2, 3]
    assert view(dataset.uri, "datasets", "current_version") == [(3,)]
    assert len(view(dataset.uri, "files")) == 9


# -- failures -----------------------------------------------------------------------------------------------------

TARGETS = ("dl_table_versions", "dl_add_files", "dl_row_groups", "dl_tables", "dl_transactions")


@contextmanager
def failing_at(table: str, backend: str, uri: str, tap: Tap) -> Iterator[None]:
    """Whatever a commit writes into this table fails."""
    if backend == "postgres":
        # One statement writes all: a trigger tells its parts from each other.
        run_script(
            uri,
            f"""
            CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'spoilt'; END $$;
            CREATE TRIGGER spoil AFTER INSERT OR UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION spoil();""",
        )
        yield
        run_script(uri, f"DROP TRIGGER spoil ON {table}; DROP FUNCTION spoil()")
        return

    def judge(statement: str) -> Verdict:
        words = statement.split(None, 3)
        target = words[2] if words[:2] == ["INSERT", "INTO"] else words[1] if words[0] == "UPDATE" else ""
        return Verdict.FAIL if target.strip('"') == table else Verdict.PASS

    with tap.judging(judge):
        yield


@pytest.mark.every_case_on("postgres", "sqlite")
@pytest.mark.requirement("V-03")
@pytest.mark.parametrize("table", TARGETS)
def test_failed_commit_shows_nowhere(open_log: OpenLog, tap: Tap, backend: str, table: str) -> None:
    log = open_log(tap=tap).create("id BIGINT, day STRING", partition_columns=["day"])
    log.catalog.write(log.name, ROWS)
    before = views(log.uri)
    assert all(before.values())
    with failing_at(table, backend, log.uri, tap), pytest.raises(deltars.DatabaseError, match=r"spoilt|malformed JSON"):
        log.catalog.write(log.name, ROWS)
    assert views(log.uri) == before
    assert log.catalog.write(log.name, ROWS).versions == {log.name: 2}
    after = views(log.uri)
    assert all(after[name] != before[name] for name in VIEWS)


@pytest.mark.requirement("V-03")
def test_commit_whose_process_dies_before_the_end_shows_nowhere(dataset: Log) -> None:
    before = views(dataset.uri)
    with pytest.raises(SystemExit), dataset.catalog._session.database.write(10) as connection:  # noqa: PT012
        schema = dataset.catalog._session.database.backend.schema
        table = f'"{schema}".dl_tables' if schema else "dl_tables"
        connection.exec_driver_sql(f"UPDATE {table} SET current_version = 99")
        raise SystemExit
    assert views(dataset.uri) == before


# -- locks --------------------------------------------------------------------------------------------------------


def is_locked(log: Log, backend: str) -> bool:
    """Whether another program that asks the database for the same lock would have to wait."""
    if backend == "postgres":
        with witness.postgres_connection(parse_catalog_uri(log.uri)) as connection:
            try:
                connection.execute("SELECT FROM dl_tables WHERE table_id = %s FOR UPDATE NOWAIT", [log.table_id])
            except psycopg.errors.LockNotAvailable:
                return True
        return False
    if backend == "sqlite":
        with closing(sqlite3.connect(parse_catalog_uri(log.uri).database, timeout=0)) as connection_:
            try:
                connection_.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                return error.sqlite_errorname == "SQLITE_BUSY"
        return False
    try:
        with log.catalog._session.database.write(0.05):
            return False
    except deltars.TimeoutError:
        return True


@pytest.mark.requirement("V-04")
def test_lock_is_held_until_the_commit_has_ended(open_log: OpenLog, tap: Tap, backend: str) -> None:
    log = open_log(tap=tap).create()
    with ThreadPoolExecutor(2) as pool, ExitStack() as stack:
        impatient = stack.enter_context(deltars.connect(tap.uri, timeout=0.3))
        patient = stack.enter_context(deltars.connect(tap.uri))
        assert not is_locked(log, backend)
        with tap.holding("COMMIT") as hold:
            first = pool.submit(log.append, "first", version=1)
            hold.wait_until_reached()
            assert is_locked(log, backend)
            with pytest.raises(deltars.TimeoutError) as raised:
                deltars.SqlTxnLogWriter(impatient).commit(log.table_id, 1, [added("second")], operation="WRITE")
            assert raised.value.stage == "lock"
            third = pool.submit(
                deltars.SqlTxnLogWriter(patient).commit, log.table_id, 1, [added("third")], operation="WRITE"
            )
            time.sleep(0.2)
            assert not third.done()
            assert is_locked(log, backend)
            hold.release()
            assert first.result(60).version == 1
            with pytest.raises(deltars.VersionConflict) as conflict:
                third.result(60)
        assert (conflict.value.expected, conflict.value.actual) == (0, 1)
        assert not is_locked(log, backend)
    assert view(log.uri, "files", "path") == [("first",)]


@contextmanager
def locked_by_somebody_else(log: Log, backend: str) -> Iterator[None]:
    if backend == "postgres":
        with witness.postgres_connection(parse_catalog_uri(log.uri)) as connection, connection.transaction():
            connection.execute("SELECT FROM dl_tables WHERE table_id = %s FOR UPDATE", [log.table_id])
            yield
    elif backend == "sqlite":
        # With a URI, so that the tap does not take it for one of ours.
        path = Path(parse_catalog_uri(log.uri).database).as_uri()
        with closing(sqlite3.connect(path, uri=True, isolation_level=None)) as connection_:
            connection_.execute("BEGIN IMMEDIATE")
            yield
            connection_.execute("ROLLBACK")
    else:
        with log.catalog._session.database.write(10):
            yield


@pytest.mark.requirement("V-04")
def test_lock_is_taken_before_anything_is_written(open_log: OpenLog, tap: Tap, backend: str) -> None:
    log = open_log(tap=tap).create()
    log.append("zero")
    with ThreadPoolExecutor(1) as pool:
        with locked_by_somebody_else(log, backend):
            start = len(tap.statements)
            waiting = pool.submit(log.append, "first", version=2)
            wait_for(lambda: is_waiting(log, backend) or waiting.done())
            time.sleep(0.1)
            assert not waiting.done()
            if backend == "postgres":
                assert locks_of_waiters(log) == {"dl_tables"}
            else:
                # A connection that is opened just now says how it wants to be treated.
                sent = {statement.split()[0] for statement in tap.statements[start:]} - {"PRAGMA"}
                assert sent <= {"BEGIN"}, sent
        assert waiting.result(60).version == 2
    assert view(log.uri, "datasets", "current_version") == [(2,)]


def is_waiting(log: Log, backend: str) -> bool:
    if backend != "postgres":
        # There is nothing to see from outside: `time.sleep` above has to do.
        return True
    return bool(witness.rows(log.uri, "SELECT 1 FROM pg_locks WHERE NOT granted"))


def locks_of_waiters(log: Log) -> set[str]:
    """The tables, not indexes, that sessions hold for writing or locking while they wait for a row."""
    query = """
        SELECT DISTINCT relname FROM pg_locks JOIN pg_class ON relation = pg_class.oid
        WHERE relkind = 'r' AND mode IN ('RowShareLock', 'RowExclusiveLock')
          AND pid IN (SELECT pid FROM pg_locks WHERE NOT granted)
          AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema())"""
    return {name for (name,) in witness.rows(log.uri, query)}


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


@pytest.mark.backends("postgres")
@pytest.mark.requirement("V-04")
def test_writers_of_different_datasets_do_not_wait_for_each_other(open_log: OpenLog, tap: Tap, backend: str) -> None:
    log, other = open_log(tap=tap).create(), open_log(name="other").create()
    with ThreadPoolExecutor(1) as pool, tap.holding("COMMIT") as hold:
        first = pool.submit(log.append, "first", version=1)
        hold.wait_until_reached()
        assert other.append("second", version=1).version == 1
        hold.release()
        assert first.result(60).version == 1
