"""Connections: how many there are, what happens when none is left, and whose they are after a fork."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

import deltars
from deltars.store.backends import Opening
from deltars.store.backends.pool import pool_of
from deltars.store.database import Database
from deltars.uri import parse_catalog_uri
from tests.support import witness
from tests.support.crowd import at_once
from tests.support.jobs import names_of, version_of

POSTGRES = pytest.mark.backends("postgres")
SURVIVES_FORK = pytest.mark.backends("postgres", "sqlite")


@pytest.fixture
def small_pool(migrated_uri: str, tmp_path: Path) -> Iterator[deltars.Catalog]:
    """A catalog with two connections, and little patience."""
    with deltars.connect(migrated_uri, pool_size=2, pool_timeout=0.3) as catalog:
        yield catalog


def in_forked_child(job: Callable[[], Any]) -> Any:
    """What a job answers, or the exception it raises, in a child that shares everything with us but its process."""
    answers, questions = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            try:
                outcome = job()
            except Exception as error:
                outcome = error
            os.write(questions, pickle.dumps(outcome))
            code = 0
        finally:
            # However it ends, the child must not go on as a second test run.
            os._exit(code)
    os.close(questions)
    with os.fdopen(answers, "rb") as pipe:
        content = pipe.read()
    _, status = os.waitpid(child, 0)
    assert status == 0, "the child crashed"
    return pickle.loads(content)


# -- the pool -----------------------------------------------------------------------------------------------------


def test_exhausted_pool_is_a_time_out_and_not_a_hang(small_pool: deltars.Catalog) -> None:
    with ExitStack() as held:
        for _ in range(2):
            held.enter_context(small_pool._session.database.read())
        started = time.monotonic()
        with pytest.raises(deltars.TimeoutError, match="every pooled connection") as raised:
            small_pool.tables()
        assert 0.25 < time.monotonic() - started < 5
        assert raised.value.retryable
        assert "Raise pool_size" in str(raised.value)
        with pytest.raises(deltars.TimeoutError, match="every pooled connection"):
            small_pool.register_table("features", "/data/features")
    assert small_pool.tables() == []


def test_caller_that_waits_gets_the_connection_that_comes_back(migrated_uri: str) -> None:
    with deltars.connect(migrated_uri, pool_size=1, pool_timeout=30) as catalog, ThreadPoolExecutor(1) as pool:
        with catalog._session.database.read():
            waiting = pool.submit(catalog.tables)
            time.sleep(0.1)
            assert not waiting.done()
        assert waiting.result(30) == []


def test_connection_comes_back_whatever_happens_with_it(small_pool: deltars.Catalog) -> None:
    for _ in range(5):
        with pytest.raises(deltars.DatabaseError), small_pool._session.database.read() as connection:
            connection.execute(text("SELECT * FROM nowhere"))
        with pytest.raises(ZeroDivisionError), small_pool._session.database.write(5):
            1 / 0  # noqa: B018
    assert small_pool.tables() == []


@POSTGRES
def test_connection_that_comes_back_after_the_catalog_was_closed_is_closed(small_pool: deltars.Catalog) -> None:
    database = small_pool._session.database
    with pool_of(database.engine).lend() as lent:
        database.close()
        assert not lent.driver.closed
    assert lent.driver.closed
    assert small_pool.tables() == []


@POSTGRES
def test_connection_that_its_borrower_lost_makes_room(small_pool: deltars.Catalog) -> None:
    """As Ctrl-C does it, between the pool and the block that would return the connection."""
    pool = pool_of(small_pool._session.database.engine)
    for _ in range(5):
        lost = pool.lend()
        lost.driver.close()
        del lost
        assert small_pool.tables() == []
    assert pool.use().in_use == 0


@POSTGRES
def test_connection_that_was_lost_in_a_reference_cycle_makes_room(small_pool: deltars.Catalog) -> None:
    pool = pool_of(small_pool._session.database.engine)
    gc.disable()
    try:
        for _ in range(2):
            lost: list[object] = [pool.lend()]
            lost.append(lost)
        del lost
        assert small_pool.tables() == []
    finally:
        gc.enable()


@POSTGRES
def test_never_more_connections_than_the_pool_has_places(migrated_uri: str) -> None:
    uri = f"{migrated_uri}&application_name=eight_threads"
    with deltars.connect(uri, pool_size=3) as catalog, ThreadPoolExecutor(8) as pool:
        most = 0
        busy = [pool.submit(lambda: [catalog.tables() for _ in range(30)]) for _ in range(8)]
        while not all(future.done() for future in busy):
            query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'eight_threads'"
            [[now]] = witness.rows(migrated_uri, query)
            most = max(most, now)
        for future in busy:
            future.result()
    assert 1 <= most <= 3


def test_many_threads_that_come_first_open_one_pool(migrated_uri: str) -> None:
    database = Database(parse_catalog_uri(migrated_uri), pool_size=10, pool_timeout_s=30)
    barrier = threading.Barrier(8)

    def session() -> int:
        barrier.wait()
        return id(database.engine)

    with ThreadPoolExecutor(8) as pool:
        assert len({future.result() for future in [pool.submit(session) for _ in range(8)]}) == 1
    database.close()


def test_closed_catalog_opens_again_when_it_is_used(catalog: deltars.Catalog) -> None:
    catalog.close()
    catalog.close()
    assert catalog.tables() == []


@POSTGRES
def test_closed_catalog_leaves_no_connection(migrated_uri: str) -> None:
    uri = f"{migrated_uri}&application_name=soon_closed"
    query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'soon_closed'"
    with deltars.connect(uri) as catalog:
        catalog.tables()
        assert witness.rows(migrated_uri, query) == [(1,)]
    deadline = time.monotonic() + 10
    while witness.rows(migrated_uri, query) != [(0,)]:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@POSTGRES
def test_connection_that_could_not_be_used_is_not_kept_by_a_failed_connect(catalog_uri: str) -> None:
    with pytest.raises(deltars.SchemaVersionError):
        deltars.connect(f"{catalog_uri}&application_name=refused")
    gc.collect()
    query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'refused'"
    deadline = time.monotonic() + 10
    while witness.rows(catalog_uri, query) != [(0,)]:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@POSTGRES
def test_only_a_transaction_that_says_so_does_not_wait_for_the_disk(catalog: deltars.Catalog) -> None:
    found = []
    for opening in (Opening((), waits_for_disk=False), Opening(())):
        with catalog._session.database.write(5, opening) as connection:
            found.append(connection.scalar(text("SHOW synchronous_commit")))
    assert found == ["off", "on"]


@pytest.mark.backends("sqlite")
def test_every_sqlite_connection_checks_keys_and_survives_a_power_cut(catalog: deltars.Catalog) -> None:
    with catalog._session.database.read() as first, catalog._session.database.read() as second:
        for connection in (first, second):
            settings = [
                connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
                for name in ("foreign_keys", "journal_mode", "synchronous")
            ]
            assert settings == [1, "wal", 2]


# -- forks --------------------------------------------------------------------------------------------------------


def sessions(catalog: deltars.Catalog) -> set[int]:
    """The server's processes behind the catalog's connections."""
    with catalog._session.database.read() as connection:
        return {connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()}


@POSTGRES
def test_forked_child_has_a_session_of_its_own_and_leaves_its_parents_alone(catalog: deltars.Catalog) -> None:
    mine = sessions(catalog)

    def child() -> set[int]:
        own = sessions(catalog)
        catalog.create_table("by_the_child", "id BIGINT")
        catalog.close()
        gc.collect()
        return own

    assert in_forked_child(child).isdisjoint(mine)
    assert sessions(catalog) == mine
    assert [table.name for table in catalog.tables()] == ["by_the_child"]


@SURVIVES_FORK
def test_parent_and_forked_children_write_side_by_side(catalog: deltars.Catalog) -> None:
    catalog.create_table("mine", "id BIGINT")
    for number in range(3):
        name = in_forked_child(lambda number=number: catalog.create_table(f"child{number}", "id BIGINT").name)  # type: ignore[misc]
        assert name == f"child{number}"
        catalog.set_properties("mine", {"seen": name})
    assert [table.name for table in catalog.tables()] == ["child0", "child1", "child2", "mine"]
    assert catalog.table("mine").version == 3


@SURVIVES_FORK
def test_fork_in_the_middle_of_a_transaction_does_not_end_it(catalog: deltars.Catalog) -> None:
    database = catalog._session.database
    with database.write(10) as connection:
        connection.exec_driver_sql(_catalog_row(catalog, "UPDATE {} SET warehouse = '/moved'"))

        def child() -> str | None:
            catalog.close()
            gc.collect()
            return catalog.warehouse

        assert in_forked_child(child) != "/moved"
    assert catalog.warehouse == "/moved"


def _catalog_row(catalog: deltars.Catalog, statement: str) -> str:
    schema = catalog._session.database.backend.schema
    return statement.format(f'"{schema}".dl_catalog' if schema else "dl_catalog")


@pytest.mark.backends("sqlite")
def test_forked_child_does_not_close_its_parents_files(catalog: deltars.Catalog) -> None:
    # SQLite: "do not even call sqlite3_close() on a database connection from a child process".
    catalog.tables()
    database = parse_catalog_uri(catalog.uri).database
    [only] = [catalog]

    def child() -> tuple[int, int]:
        nonlocal only
        before = _descriptors(database)
        only.close()
        del only
        gc.collect()
        return before, _descriptors(database)

    before, after = in_forked_child(child)
    assert before == after > 0


def _descriptors(file: str) -> int:
    links = (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd"))
    return sum(os.path.exists(link) and os.readlink(link) == file for link in links)


@pytest.mark.backends("duckdb")
def test_forked_child_is_refused_a_duckdb_catalog_that_its_parent_has_open(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("features", "id BIGINT")
    for job in (
        catalog.tables,
        lambda: catalog.create_table("by_the_child", "id BIGINT"),
        lambda: table.version,
        lambda: deltars.connect(catalog.uri),
    ):
        refusal = in_forked_child(job)
        assert isinstance(refusal, deltars.DatabaseError), refusal
        assert "is open in the parent process" in str(refusal)
        assert "DuckDB catalogs are for one process" in str(refusal)
    assert [found.name for found in catalog.tables()] == ["features"]


@pytest.mark.backends("duckdb")
def test_forked_child_may_open_a_duckdb_catalog_that_its_parent_has_closed(catalog: deltars.Catalog) -> None:
    catalog.create_table("features", "id BIGINT")
    catalog.close()
    assert in_forked_child(lambda: [table.name for table in catalog.tables()]) == ["features"]


# -- other processes ----------------------------------------------------------------------------------------------


@pytest.mark.backends("duckdb")
def test_second_process_on_a_duckdb_catalog_gets_a_clear_error(catalog: deltars.Catalog) -> None:
    catalog.tables()
    program = "import deltars, sys; deltars.connect(sys.argv[1])"
    ended = subprocess.run([sys.executable, "-c", program, catalog.uri], capture_output=True, text=True)
    assert ended.returncode == 1
    said = ended.stderr.splitlines()[-1]
    assert said.startswith("deltars.errors.DatabaseError: ")
    assert "DuckDB catalogs are for one process: close the other one, or use SQLite or PostgreSQL." in said


@SURVIVES_FORK
def test_catalog_and_table_pickle_and_work_in_another_process(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("features", "id BIGINT")
    assert at_once(1, names_of, catalog) == [["features"]]
    assert at_once(1, version_of, table) == [0]


def test_pickled_catalog_and_table_are_the_same_with_connections_of_their_own(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("features", "id BIGINT", properties={"owner": "me"})
    copy = pickle.loads(pickle.dumps(table))
    assert copy == table
    assert (copy.name, copy.location, copy.properties["owner"], copy.version) == ("features", table.location, "me", 0)
    other = pickle.loads(pickle.dumps(catalog))
    assert other.uri == catalog.uri
    assert other.tables() == [table]
    assert other._session.database.engine is not catalog._session.database.engine
    other.close()
    copy._session.database.close()


def test_pickled_catalog_keeps_its_password_and_its_settings() -> None:
    uri = parse_catalog_uri("deltasql://postgres/lake/public?password=hunter2")
    database = pickle.loads(pickle.dumps(Database(uri, pool_size=3, pool_timeout_s=7.0)))
    assert database.uri.parameters == {"password": "hunter2"}
    assert (database._pool_size, database._pool_timeout_s) == (3, 7.0)
