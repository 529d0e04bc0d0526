"""How long each stage of a transaction took: told at once, stored with the commit, and shown later."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest

import deltars
from deltars.log.stages import STAGES, from_microseconds, to_microseconds
from deltars.store.schema import dl_transactions
from deltars.transaction.lifetime import Lifetime
from deltars.uri import parse_catalog_uri
from tests.support.together import Meanwhile
from tests.support.witness import postgres_connection

ROWS = pa.table({"id": [1, 2, 3]})


def test_stages_are_told_and_stored(catalog: deltars.Catalog) -> None:
    for name in "ab":
        catalog.write(name, ROWS)
    began = time.perf_counter()
    with catalog.begin() as tx:
        rows = tx.to_arrow("a", where="id > 1")
        time.sleep(0.05)
        tx.write("a", rows)
        tx.write("b", rows)
    took = time.perf_counter() - began
    told = tx.result.stages
    assert list(told) == [name for name in STAGES if name in told]
    assert {"open", "program", "read", "data", "validate", "lock", "check", "write", "commit", "publish"} == set(told)
    assert sum(told.values()) <= took
    assert told["program"] >= 0.05
    stored = catalog.transaction(tx.id).stages
    assert set(stored) == set(told) - {"commit"}
    # What comes before the commit is known exactly when it is stored.
    for name in ("open", "program", "read", "data", "validate"):
        assert stored[name] == pytest.approx(told[name], abs=2e-6)
    [summary] = catalog.activity(limit=1)
    assert summary.stages == stored
    # `publish` goes by the database's clock, from the time stamp on.
    assert summary.published_at is not None
    assert stored["publish"] == pytest.approx((summary.published_at - summary.committed_at).total_seconds())


def test_commit_of_one_table_stores_its_stages_too(catalog: deltars.Catalog) -> None:
    for _ in range(3):
        result = catalog.write("a", ROWS)
        assert {"open", "data", "validate", "lock"} <= catalog.transaction(result.txn_id).stages.keys()


@contextmanager
def locked(uri: str, table: deltars.Table) -> Iterator[None]:
    """Hold a table's row until another session has waited for it for 0.2 s."""
    with postgres_connection(parse_catalog_uri(uri)) as session, session.transaction():
        session.execute("SELECT 1 FROM dl_tables WHERE table_id = %s FOR UPDATE", [table.id])
        yield
        deadline = time.monotonic() + 60
        waiting = "SELECT 1 FROM pg_locks WHERE NOT granted AND pid <> pg_backend_pid()"
        while not session.execute(waiting).fetchall():
            assert time.monotonic() < deadline, "nobody waits"
            time.sleep(0.01)
        time.sleep(0.2)


@pytest.mark.backends("postgres")
@pytest.mark.parametrize("tables", ["a", "ab"])
def test_wait_for_a_lock_is_stored(catalog: deltars.Catalog, migrated_uri: str, tables: str) -> None:
    """In one round trip (one table), and by the usual way (two)."""
    for name in tables:
        catalog.write(name, ROWS)
        catalog.write(name, ROWS)
    tx = catalog.begin()
    for name in tables:
        tx.write(name, ROWS)
    with locked(migrated_uri, catalog.table("a")):
        commit = Meanwhile(tx.commit)
    commit.result()
    assert catalog.transaction(tx.id).stages["lock"] >= 0.2
    assert tx.result.stages["lock"] >= 0.2


@pytest.mark.backends("sqlite")
def test_maintenance_and_statements_have_stages(catalog: deltars.Catalog) -> None:
    for _ in range(3):
        catalog.write("a", ROWS)
    with catalog.begin() as tx:
        tx.sql_to_arrow("INSERT INTO a SELECT id + 1 FROM a")
    assert {"read", "data"} <= tx.result.stages.keys()
    catalog.table("a").optimize()
    [last] = catalog.activity(limit=1)
    assert (last.operations, "data" in last.stages) == (("OPTIMIZE",), True)


@pytest.mark.backends("sqlite")
def test_setting_turns_it_off_and_older_commits_have_none(migrated_uri: str, tmp_path: Path) -> None:
    with deltars.connect(migrated_uri, warehouse=tmp_path / "w", record_activity=False) as catalog:
        for _ in range(2):
            result = catalog.write("a", ROWS)
            with catalog._session.database.read() as connection:
                query = dl_transactions.select().where(dl_transactions.c.txn_id == result.txn_id)
                assert connection.execute(query).one().stages is None
        assert catalog.transaction(result.txn_id).stages.keys() == {"publish"}
        assert "data" in result.stages  # It is told all the same.


@pytest.mark.backends("sqlite")
def test_repeated_and_empty_transactions(catalog: deltars.Catalog) -> None:
    for _ in range(2):
        with catalog.begin(txn_id="daily") as tx:
            tx.write("a", ROWS)
        assert tx.result.versions == {"a": 0}
    with catalog.begin() as tx:
        tx.to_arrow("a")
    assert tx.result.stages == {}


def test_time_of_threads_is_counted_once() -> None:
    life = Lifetime(uuid4())
    began, both = time.perf_counter(), threading.Barrier(2)

    def write() -> None:
        with life.writing():
            both.wait(10)
            time.sleep(0.05)

    threads = [threading.Thread(target=write) for _ in range(2)]
    with life.spending("read"):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    stages = life.spent()
    assert sum(stages.values()) <= time.perf_counter() - began
    assert stages["data"] >= 0.05


def test_stages_survive_their_stored_form() -> None:
    assert from_microseconds(to_microseconds({"lock": 0.5, "open": 2e-6, "check": 1e-9})) == {"open": 2e-6, "lock": 0.5}
    assert from_microseconds(None) == {}
    # A later version of deltars may have other stages.
    assert list(from_microseconds({"later": 3, "lock": 4})) == ["lock", "later"]
