"""While a commit is under way: who waits, for how long, and who sees what."""

from __future__ import annotations

import builtins
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

import deltars
from deltars.config import Settings
from deltars.errors import DatabaseError, TimeoutError, VersionConflict
from deltars.log.commit import Commit, TableCommit
from deltars.store.backends.pool import pool_of
from deltars.uri import parse_catalog_uri
from tests.store.conftest import OpenLog
from tests.support.log import Log, added, every_kind
from tests.support.postgres import PostgresServer
from tests.support.tap import Tap
from tests.support.templates import CatalogTemplates
from tests.support.together import Meanwhile
from tests.support.wire import Verdict
from tests.support.witness import postgres_connection

WRITING = "dl_table_versions ("
"""In the text of the statement that writes the new version: the lock is held by then."""

SOON_S = 20.0
"""Surely not a wait for anything that is held."""


def _second_writer(open_log: OpenLog, log: Log, **settings: Any) -> Log:
    """Another program's view of the same table."""
    other = open_log(name=f"other-{uuid4()}", **settings)
    other.table_id, other.name = log.table_id, log.name
    return other


@pytest.mark.requirement("W-05")
def test_second_writer_waits_while_the_first_is_between_check_and_commit(open_log: OpenLog, tap: Tap) -> None:
    log = open_log(tap=tap).create()
    second = _second_writer(open_log, log)
    with tap.holding(WRITING) as hold:
        # With an id of the caller the commit takes two round trips, so that it can be held between lock and write.
        first = Meanwhile(log.append, "first", version=1, txn_id=uuid4())
        hold.wait_until_reached()
        waiting = Meanwhile(second.append, "second", version=1)
        waiting.stays_for(0.5)
        assert log.version == 0
        hold.release()
        assert first.result().version == 1
        assert isinstance(waiting.error(), VersionConflict)
    assert log.live() == ["first"]


@pytest.mark.requirement("W-05")
@pytest.mark.backends("postgres")
def test_lock_is_a_row_lock_that_blocks_other_sessions(open_log: OpenLog, tap: Tap, migrated_uri: str) -> None:
    log = open_log(tap=tap).create()
    other = open_log(name="other").create()
    with tap.holding(WRITING) as hold, postgres_connection(parse_catalog_uri(migrated_uri)) as session:
        # A commit with an id of the caller takes two round trips, so that it can be held between lock and write.
        first = Meanwhile(log.append, "first", version=1, txn_id=uuid4())
        hold.wait_until_reached()
        held = session.execute(
            "SELECT mode FROM pg_locks WHERE relation = 'dl_tables'::regclass AND granted AND mode = 'RowShareLock'"
        )
        assert held.fetchall() == [("RowShareLock",)]
        row = "SELECT 1 FROM dl_tables WHERE table_id = %s FOR UPDATE NOWAIT"
        with pytest.raises(psycopg.errors.LockNotAvailable):
            session.execute(row, [log.table_id])
        # Of the rows only this one: other tables' commits go on.
        session.execute(row, [other.table_id])
        assert other.append("a").version == 1
        hold.release()
        assert first.result().version == 1


@pytest.mark.requirement("D-05", "W-20")
@pytest.mark.parametrize("threshold", [1_000, 2], ids=["small", "bulk"])
def test_readers_go_on_and_see_nothing_of_an_unfinished_commit(open_log: OpenLog, tap: Tap, threshold: int) -> None:
    log = open_log(tap=tap, copy_threshold=threshold).create()
    log.append("old", version=1)
    reader = open_log(name="other").catalog
    before = log.dump()
    with tap.holding("COMMIT") as hold:
        writing = Meanwhile(log.append, "a", "b", "c", version=2)
        hold.wait_until_reached()
        started = time.monotonic()
        assert reader._session.reader.snapshot(log.table_id).files["path"].to_pylist() == ["old"]
        assert reader.table(log.table_id).version == 1
        assert [entry.version for entry in reader.table(log.table_id).history()] == [1, 0]
        assert log.dump() == before
        assert time.monotonic() - started < SOON_S
        assert writing.is_running
        hold.release()
        assert writing.result().version == 2
    assert reader._session.reader.snapshot(log.table_id).version == 2


@pytest.mark.requirement("W-20")
@pytest.mark.parametrize("threshold", [1_000, 2], ids=["small", "bulk"])
def test_nothing_of_a_commit_is_seen_before_its_last_statement(open_log: OpenLog, tap: Tap, threshold: int) -> None:
    log = open_log(tap=tap, copy_threshold=threshold).create()
    log.append("old", version=1)
    before = log.dump()
    seen: list[tuple[str, bool]] = []

    def look(statement: str) -> Verdict:
        seen.append((statement, log.dump() == before))
        return Verdict.PASS

    with tap.judging(look):
        log.commit(every_kind(2, gone=["old"], files=3), version=2)
    assert seen[-1][0] == "COMMIT"
    assert [statement for statement, is_unchanged in seen if not is_unchanged] == []
    assert log.dump() != before


@pytest.mark.requirement("W-20")
def test_reader_that_began_before_a_commit_keeps_its_view(open_log: OpenLog) -> None:
    log = open_log().create()
    log.append("old")
    reader = open_log(name="other").catalog
    count = "SELECT count(*) FROM dl_add_files"
    if reader._session.uri.schema:
        count = f'SELECT count(*) FROM "{reader._session.uri.schema}".dl_add_files'
    with reader._session.database.read() as connection:
        assert connection.exec_driver_sql(count).scalar_one() == 1
        log.append("new")
        assert connection.exec_driver_sql(count).scalar_one() == 1
    with reader._session.database.read() as connection:
        assert connection.exec_driver_sql(count).scalar_one() == 2


# -- time-outs ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("D-08")
def test_writer_that_must_wait_too_long_gets_a_time_out(open_log: OpenLog, tap: Tap) -> None:
    log = open_log(tap=tap).create()
    second = _second_writer(open_log, log, timeout=0.6)
    with tap.holding(WRITING) as hold:
        first = Meanwhile(log.append, "first", version=1, txn_id=uuid4())
        hold.wait_until_reached()
        for _ in range(2):
            started = time.monotonic()
            with pytest.raises(TimeoutError) as caught:
                second.append("second", version=1)
            assert 0.5 < time.monotonic() - started < SOON_S
            assert isinstance(caught.value, builtins.TimeoutError)
            assert caught.value.retryable
            assert caught.value.stage == "lock"
            assert "locked for longer than the timeout" in str(caught.value) or "lock for longer" in str(caught.value)
        hold.release()
        assert first.result().version == 1
    # Whoever timed out is as good as new.
    assert second.append("second", version=2).version == 2


@pytest.mark.requirement("D-08")
def test_wait_that_ends_within_the_time_out_succeeds(open_log: OpenLog, tap: Tap) -> None:
    log = open_log(tap=tap).create()
    second = _second_writer(open_log, log, timeout=30)
    with tap.holding(WRITING) as hold:
        first = Meanwhile(log.append, "first", version=1, txn_id=uuid4())
        hold.wait_until_reached()
        waiting = Meanwhile(second.append, "second", version=2)
        waiting.stays_for(1)
        hold.release()
        assert first.result().version == 1
        assert waiting.result().version == 2


@pytest.mark.requirement("D-08", "D-12")
def test_exhausted_pool_is_a_time_out(open_log: OpenLog) -> None:
    log = open_log(pool_size=2, pool_timeout=0.4).create()
    before = log.dump()
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(log.catalog._session.database.read())
        started = time.monotonic()
        with pytest.raises(TimeoutError, match=r"every pooled connection .* pool_timeout") as caught:
            log.append("a", version=1)
        assert 0.3 < time.monotonic() - started < SOON_S
        assert "pool_size" in str(caught.value)
    assert log.dump() == before
    assert log.append("a").version == 1


@pytest.mark.requirement("D-12")
@pytest.mark.backends("postgres")
def test_pool_has_ten_connections_and_thirty_seconds_unless_told_otherwise(open_log: OpenLog) -> None:
    assert (Settings().pool_size, Settings().pool_timeout) == (10, 30)
    database = open_log().catalog._session.database
    assert pool_of(database.engine).timeout_s == 30
    with ExitStack() as stack:
        for _ in range(10):
            stack.enter_context(database.read())
        use = database.pool_use()
        assert use is not None
        assert (use.size, use.in_use, use.idle, use.waiting) == (10, 10, 0, 0)


@pytest.fixture(params=[18, 16])
def server_uri(request: pytest.FixtureRequest, catalog_templates: CatalogTemplates) -> Iterator[str]:
    """A migrated catalog on a server that knows transaction_timeout, and on one that does not."""
    server: PostgresServer = request.getfixturevalue("postgres_server" if request.param == 18 else "postgres16_server")
    database = server.create_database("time_outs")
    uri = server.create_catalog_uri(database)
    catalog_templates.lay_out(uri)
    yield uri
    server.drop_database(database)


def _slow_trigger(uri: str, *, deferred: bool) -> None:
    """Each new version row costs five seconds: while it is written, or at COMMIT."""
    when = sql.SQL("DEFERRABLE INITIALLY DEFERRED" if deferred else "")
    kind = sql.SQL("CONSTRAINT TRIGGER" if deferred else "TRIGGER")
    with postgres_connection(parse_catalog_uri(uri)) as session:
        session.execute(
            "CREATE FUNCTION nap() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(5); RETURN NULL; END'"
        )
        session.execute(
            sql.SQL("CREATE {} slow AFTER INSERT ON dl_table_versions {} FOR EACH ROW EXECUTE FUNCTION nap()").format(
                kind, when
            )
        )


@pytest.mark.requirement("D-08")
@pytest.mark.backends("postgres")
@pytest.mark.parametrize(
    ("server_uri", "deferred"),
    # What deferred triggers do at COMMIT is under no time-out before PostgreSQL 17.
    [(18, False), (18, True), (16, False)],
    ids=["18, while writing", "18, at commit", "16, while writing"],
    indirect=["server_uri"],
)
def test_statement_that_takes_too_long_is_a_time_out(server_uri: str, tmp_path: Path, deferred: bool) -> None:
    with deltars.connect(server_uri, warehouse=str(tmp_path), timeout=1.0) as catalog:
        log = Log(catalog, server_uri).create()
        _slow_trigger(server_uri, deferred=deferred)
        before = log.dump()
        started = time.monotonic()
        with pytest.raises(TimeoutError) as caught:
            log.append("a", version=1)
        assert 0.9 < time.monotonic() - started < 4
        assert caught.value.stage in ("write", "commit")
        with postgres_connection(parse_catalog_uri(server_uri)) as session:
            session.execute("DROP TRIGGER slow ON dl_table_versions")
        # At COMMIT the outcome had to be settled: then the id is marked.
        assert {**log.dump(), "dl_transactions": []} == {**before, "dl_transactions": []}
        assert log.append("a", version=1).version == 1


@pytest.mark.requirement("D-08")
@pytest.mark.backends("postgres")
def test_wait_for_a_lock_is_a_time_out_on_every_server(server_uri: str, tmp_path: Path) -> None:
    with (
        deltars.connect(server_uri, warehouse=str(tmp_path), timeout=0.7) as catalog,
        postgres_connection(parse_catalog_uri(server_uri)) as session,
    ):
        log = Log(catalog, server_uri).create()
        with session.transaction():
            session.execute("SELECT 1 FROM dl_tables FOR UPDATE")
            with pytest.raises(TimeoutError, match="held the table's lock") as caught:
                log.append("a", version=1)
            assert caught.value.stage == "lock"
        assert log.append("a", version=1).version == 1


@pytest.mark.backends("postgres")
def test_stuck_writer_loses_its_lock_when_its_time_is_over(open_log: OpenLog, tap: Tap) -> None:
    log = open_log(tap=tap, timeout=1.5).create()
    second = _second_writer(open_log, log, timeout=30)
    with tap.holding(WRITING) as hold:
        stuck = Meanwhile(log.append, "stuck", version=1, txn_id=uuid4())
        hold.wait_until_reached()
        assert second.append("second", version=1).version == 1
        hold.release()
        error = stuck.error()
    assert isinstance(error, TimeoutError | DatabaseError)
    assert log.live() == ["second"]
    assert log.append("again").version == 2


# -- deadlocks and isolation -------------------------------------------------------------------------------------------


@pytest.mark.requirement("D-11")
@pytest.mark.backends("postgres")
def test_deadlock_with_another_program_is_retryable(open_log: OpenLog, migrated_uri: str) -> None:
    first, second = sorted([open_log().create(), open_log(name="other").create()], key=lambda log: log.table_id)
    parts = [TableCommit(log.table_id, 0, [added("a")], "WRITE") for log in (first, second)]
    commit = Commit(uuid4(), parts)
    before = first.dump()
    lock = "SELECT 1 FROM dl_tables WHERE table_id = %s FOR UPDATE"
    with postgres_connection(parse_catalog_uri(migrated_uri)) as session:
        # Whoever looks first is ended; the other program does not look.
        session.execute("SET deadlock_timeout = '5min'")
        with session.transaction():
            session.execute(lock, [second.table_id])
            ours = Meanwhile(first.catalog._session.commit, commit)
            _wait_until_blocked(session)
            session.execute(lock, [first.table_id])
            error = ours.error()
    assert isinstance(error, DatabaseError)
    assert (error.retryable, error.sqlstate) == (True, "40P01")
    assert "deadlock" in str(error)
    assert error.stage == "lock"
    assert first.dump() == before
    assert first.catalog._session.commit(commit).versions == {first.table_id: 1, second.table_id: 1}


def _wait_until_blocked(session: psycopg.Connection[tuple[object, ...]]) -> None:
    deadline = time.monotonic() + SOON_S
    waits = "SELECT 1 FROM pg_stat_activity WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid))"
    while session.execute(waits).fetchone() is None:
        assert time.monotonic() < deadline, "nobody waits"
        time.sleep(0.01)


@pytest.mark.requirement("W-21")
@pytest.mark.backends("postgres")
@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_isolation_level_that_the_server_prefers_changes_nothing(
    postgres_server: PostgresServer, tmp_path: Path, level: str
) -> None:
    database = postgres_server.create_database("isolation")
    uri = postgres_server.create_catalog_uri(database)
    with postgres_server.connect(database) as session:
        session.execute(
            sql.SQL("ALTER DATABASE {} SET default_transaction_isolation = {}").format(
                sql.Identifier(database), sql.Literal(level)
            )
        )
    try:
        with deltars.connect(uri, warehouse=str(tmp_path), migrate=True) as catalog:
            log = Log(catalog, uri).create()
            writers = [Meanwhile(_append_with_retries, log, f"{number}-", 15) for number in range(4)]
            for writer in writers:
                writer.result()
            assert log.version == 60
            assert len(log.live()) == len(set(log.live())) == 60
            # Waiting for the lock, the second sees what the first has committed meanwhile.
            assert isinstance(Meanwhile(log.append, "late", version=60).error(), VersionConflict)
    finally:
        postgres_server.drop_database(database)


def _append_with_retries(log: Log, prefix: str, count: int) -> None:
    for number in range(count):
        while True:
            try:
                log.append(f"{prefix}{number}")
                break
            except VersionConflict:
                continue


@pytest.mark.requirement("W-21")
def test_writer_that_waited_checks_the_version_that_the_first_left(open_log: OpenLog, tap: Tap) -> None:
    """Both saw version 0 when they began; only under the lock does the second learn of version 1."""
    log = open_log(tap=tap).create()
    second = _second_writer(open_log, log)
    assert second.catalog.table(log.table_id).version == 0
    with tap.holding(WRITING) as hold:
        first = Meanwhile(log.append, "same", version=1, txn_id=uuid4())
        hold.wait_until_reached()
        conflicting = Meanwhile(second.append, "same", version=1)
        conflicting.stays_for(0.3)
        hold.release()
        first.result()
        error = conflicting.error()
    assert isinstance(error, VersionConflict)
    assert (error.expected, error.actual) == (0, 1)


@pytest.mark.backends("duckdb")
def test_two_catalogs_on_one_file_take_turns(open_log: OpenLog) -> None:
    log = open_log().create()
    second = _second_writer(open_log, log)
    writers = [Meanwhile(_append_with_retries, each, f"{number}-", 10) for number, each in enumerate((log, second))]
    for writer in writers:
        writer.result()
    assert log.version == 20
