"""A transaction's time-out, and clients that stop or die with their locks held."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import deltars
from deltars.config import Settings
from deltars.errors import TimeoutError
from deltars.store.backends.postgresql import deadlines
from deltars.uri import parse_catalog_uri
from tests.support.forkserver import forkserver
from tests.support.lake import Lake, OpenLake
from tests.support.log import added
from tests.support.postgres import PostgresServer
from tests.support.tap import Tap
from tests.support.templates import CatalogTemplates
from tests.support.together import Meanwhile
from tests.support.witness import postgres_connection
from tests.transaction import stuck
from tests.transaction.holding import held_at

SOON_S = 20.0
"""Surely not a wait for anything that is held."""

Job = Callable[[str, list[Any], float, str], None]


@contextmanager
def _client(job: Job, lake: Lake, tmp_path: Path, *, timeout_s: float) -> Iterator[BaseProcess]:
    """A program that holds the locks of all tables; it is gone when the block ends."""
    ready = tmp_path / "ready"
    arguments = (lake.uri, list(lake.ids.values()), timeout_s, str(ready))
    process = forkserver().Process(target=job, args=arguments, daemon=True)
    process.start()
    try:
        deadline = time.monotonic() + 60
        while not ready.exists():
            assert process.is_alive(), "the client ended"
            assert time.monotonic() < deadline, "the client did not get its locks"
            time.sleep(0.01)
        yield process
    finally:
        process.kill()
        process.join()


def _commit(lake: Lake, **options: Any) -> dict[str, int]:
    with lake.begin(**options) as tx:
        for name in lake.logs:
            tx.stage(name, [added(f"{tx.id}")])
    return dict(tx.result.versions)


@pytest.mark.requirement("M-22")
def test_time_out_is_sixty_seconds_and_can_be_set_for_a_transaction(open_lake: OpenLake, tap: Tap) -> None:
    assert Settings().timeout == 60
    lake = open_lake("a", "b", tap=tap)
    other = deltars.connect(lake.uri)
    first, second = lake.begin(), other.begin(timeout=0.5)
    first.stage("a", [added("1")])
    second.stage("a", [added("2")])
    second.stage("b", [added("2")])
    with other, tap.holding("dl_table_versions (") as hold:
        committing = Meanwhile(first.commit)
        hold.wait_until_reached()
        started = time.monotonic()
        with pytest.raises(TimeoutError, match="for longer than the timeout allows") as caught:
            second.commit()
        assert 0.4 < time.monotonic() - started < SOON_S
        assert (caught.value.stage, caught.value.txn_id, caught.value.retryable) == ("lock", second.id, True)
        hold.release()
        assert committing.result().versions == {"a": 1}
    assert lake.versions == {"a": 1, "b": 0}


@pytest.mark.requirement("M-22")
@pytest.mark.backends("postgres")
def test_transaction_that_takes_too_long_is_rolled_back_and_says_so(open_lake: OpenLake) -> None:
    lake = open_lake("a", "b")
    with postgres_connection(parse_catalog_uri(lake.uri)) as session:
        session.execute(
            "CREATE FUNCTION nap() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(5); RETURN NULL; END'"
        )
        session.execute(
            "CREATE TRIGGER slow AFTER INSERT ON dl_table_versions FOR EACH STATEMENT EXECUTE FUNCTION nap()"
        )
        before = lake.dump()
        started = time.monotonic()
        with pytest.raises(TimeoutError, match="longer than") as caught:
            _commit(lake, timeout=0.7)
        assert time.monotonic() - started < 4.5
        assert caught.value.stage in ("write", "commit")
        assert {**lake.dump(), "dl_transactions": []} == {**before, "dl_transactions": []}
        session.execute("DROP TRIGGER slow ON dl_table_versions")
    assert _commit(lake) == {"a": 1, "b": 1}


@pytest.fixture(params=[18, 16], ids=["18", "16, which has no transaction_timeout"])
def server_lake(request: pytest.FixtureRequest, tmp_path: Path, catalog_templates: CatalogTemplates) -> Iterator[Lake]:
    """Two tables on a server that knows transaction_timeout, and on one that does not."""
    server: PostgresServer = request.getfixturevalue("postgres_server" if request.param == 18 else "postgres16_server")
    database = server.create_database("deadlines")
    uri = server.create_catalog_uri(database)
    catalog_templates.lay_out(uri)
    with deltars.connect(uri, warehouse=str(tmp_path / "warehouse")) as catalog:
        yield Lake(catalog, uri, "a", "b")
    server.drop_database(database)


@pytest.mark.postgres
@pytest.mark.parametrize("job", [stuck.between_statements, stuck.in_the_middle_of_copy])
def test_stopped_client_loses_its_locks_when_its_time_is_over(
    server_lake: Lake, tmp_path: Path, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadlines, "PATIENCE_MS", 300)
    with _client(job, server_lake, tmp_path, timeout_s=1.5) as client:
        assert client.pid is not None
        os.kill(client.pid, signal.SIGSTOP)
        assert _commit(server_lake, timeout=30) == {"a": 1, "b": 1}
        os.kill(client.pid, signal.SIGCONT)
        assert _commit(server_lake, timeout=30) == {"a": 2, "b": 2}
    assert not any("stuck" in path for paths in server_lake.live().values() for path in paths)


@pytest.mark.requirement("M-22")
@pytest.mark.backends("postgres")
def test_client_frozen_in_copy_does_not_hold_its_locks_past_its_deadline(
    open_lake: OpenLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one way past every time-out of the server: it is those who wait that end it."""
    monkeypatch.setattr(deadlines, "PATIENCE_MS", 300)
    lake = open_lake("a", "b")
    with _client(stuck.in_the_middle_of_copy, lake, tmp_path, timeout_s=3) as client:
        assert client.pid is not None
        os.kill(client.pid, signal.SIGSTOP)
        # Not before it is overdue.
        with pytest.raises(TimeoutError):
            _commit(lake, timeout=0.7)
        assert _commit(lake, timeout=30) == {"a": 1, "b": 1}


@pytest.mark.postgres
@pytest.mark.parametrize("job", [stuck.between_statements, stuck.in_the_middle_of_copy])
def test_killed_client_frees_its_locks_at_once(server_lake: Lake, tmp_path: Path, job: Job) -> None:
    with _client(job, server_lake, tmp_path, timeout_s=120) as client:
        client.kill()
        started = time.monotonic()
        assert _commit(server_lake) == {"a": 1, "b": 1}
        assert time.monotonic() - started < SOON_S


@pytest.mark.requirement("M-22")
@pytest.mark.backends("sqlite")
def test_stopped_process_keeps_sqlite_locked_until_it_is_killed(open_lake: OpenLake, tmp_path: Path) -> None:
    lake = open_lake("a", "b")
    with _client(stuck.between_statements, lake, tmp_path, timeout_s=1) as client:
        assert client.pid is not None
        os.kill(client.pid, signal.SIGSTOP)
        with pytest.raises(TimeoutError, match="kept the catalog locked") as caught:
            _commit(lake, timeout=1.5)
        assert caught.value.stage == "lock"
        # Readers are not in anybody's way.
        assert lake.catalog.snapshot().versions == {"a": 0, "b": 0}
        client.kill()
        assert _commit(lake) == {"a": 1, "b": 1}


@pytest.mark.requirement("M-22")
@pytest.mark.backends("duckdb")
def test_thread_that_keeps_duckdb_locked_is_waited_for_so_long(open_lake: OpenLake) -> None:
    lake = open_lake("a", "b")
    with lake.catalog._session.database.write(60):
        with pytest.raises(TimeoutError, match="kept the catalog locked") as caught:
            _commit(lake, timeout=0.5)
        assert caught.value.stage == "lock"
        assert lake.catalog.snapshot().versions == {"a": 0, "b": 0}
    assert _commit(lake) == {"a": 1, "b": 1}


@pytest.mark.backends("duckdb")
def test_killed_process_leaves_duckdb_to_the_next(open_lake: OpenLake, tmp_path: Path) -> None:
    lake = open_lake("a", "b")
    lake.catalog.close()
    with _client(stuck.in_the_middle_of_copy, lake, tmp_path, timeout_s=60) as client:
        client.kill()
        client.join()
        assert _commit(lake) == {"a": 1, "b": 1}


@pytest.mark.backends("postgres")
def test_registrys_lock_is_waited_for_as_long_as_the_time_out_says(
    open_lake: OpenLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadlines, "PATIENCE_MS", 100)
    lake = open_lake("a", "b")
    other = deltars.connect(lake.uri)
    with other, other._session.database.write(60) as connection:
        other._session.database.backend.lock_registry(connection)
        creating = Meanwhile(lake.catalog.create_table, "new", "id BIGINT")
        creating.stays_for(1)
        connection.rollback()
        assert creating.result().version == 0
    with other, other._session.database.write(60, other._session.writer._locks([lake["a"].table_id])) as connection:
        dropping = Meanwhile(lake.catalog.drop_table, "a")
        dropping.stays_for(1)
        connection.rollback()
        dropping.result()


@pytest.mark.backends("postgres")
def test_lock_of_a_table_that_is_released_is_waited_for_as_long_as_the_time_out_says(
    open_lake: OpenLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadlines, "PATIENCE_MS", 100)
    lake = open_lake("a")
    other = deltars.connect(lake.uri)
    with other, other._session.database.write(60, other._session.writer._locks([lake["a"].table_id])) as connection:
        releasing = Meanwhile(lake.catalog.release, "a")
        releasing.stays_for(1)
        connection.rollback()
        assert releasing.result() == 1


@pytest.mark.backends("postgres")
def test_commit_under_way_is_waited_for_by_whoever_resolves_it(
    open_lake: OpenLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = open_lake("a")
    tx = lake.begin()
    tx.stage("a", [added("1")])
    with held_at(lake.uri, lake.catalog.table("a"), deferred=True) as hold:
        committing = Meanwhile(tx.commit)
        hold.wait_until_reached()
        monkeypatch.setattr(deadlines, "PATIENCE_MS", 100)
        resolving = Meanwhile(lake.catalog.resolve, tx.id)
        resolving.stays_for(1)
    committing.result()
    resolved = resolving.result()
    assert resolved is not None
    assert resolved.versions == {"a": 1}


@pytest.mark.backends("postgres")
@pytest.mark.parametrize("change", ["drop", "rename"])
def test_change_of_a_table_and_a_commit_that_creates_another_do_not_wait_for_each_other(
    open_lake: OpenLake, tap: Tap, change: str
) -> None:
    lake = open_lake("a", tap=tap)
    other = deltars.connect(lake.uri)
    tx = lake.begin()
    tx.stage("a", [added("1")])
    tx.write("new", pa.table({"id": [1]}))
    # The row of `a` is locked, the registry not yet.
    with other, tap.holding("pg_advisory_xact_lock") as hold:
        committing = Meanwhile(tx.commit)
        hold.wait_until_reached()
        changing = Meanwhile(other.drop_table, "a") if change == "drop" else Meanwhile(other.rename_table, "a", "z")
        changing.stays_for(0.3)
        hold.release()
        assert committing.result().versions == {"a": 1, "new": 0}
        changing.result()
    assert lake.versions == ({"new": 0} if change == "drop" else {"z": 1, "new": 0})


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C is Python's own again: Spark and notebooks put theirs in its place, and leave it there."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.backends("postgres", "sqlite")
@pytest.mark.usefixtures("interruptible")
def test_interrupt_while_waiting_for_a_lock_rolls_back_and_leaves_the_catalog_usable(open_lake: OpenLake) -> None:
    lake = open_lake("a", "b")
    other = deltars.connect(lake.uri)
    with other, other._session.database.write(60, other._session.writer._locks(list(lake.ids.values()))):
        # Ctrl-C comes to the main thread, which is this one.
        interrupting = Meanwhile(_interrupt_soon)
        with pytest.raises(KeyboardInterrupt):
            _commit(lake)
        interrupting.result()
    assert lake.versions == {"a": 0, "b": 0}
    assert _commit(lake) == {"a": 1, "b": 1}


def _interrupt_soon() -> None:
    time.sleep(0.5)
    signal.raise_signal(signal.SIGINT)
