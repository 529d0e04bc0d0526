"""Metrics: what happened is in them, with few labels, on every backend."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from sqlalchemy import select, update

import deltars
from deltars import observe
from deltars.observe.metrics import MAX_TABLES
from deltars.protocol import RemoveFile
from deltars.store.schema import dl_mirror_status, dl_table_versions, dl_tables
from tests.mirror.ledger import added
from tests.observe.scrape import Scrape, rules, slow_alert
from tests.support.together import Meanwhile

# The subject is not the database.
pytestmark = pytest.mark.backends("sqlite")

ROWS = pa.table({"id": [1]})
MINUTE_US = 60_000_000


@pytest.fixture
def tables(catalog: deltars.Catalog) -> deltars.Catalog:
    """A catalog with the tables `a` and `b`."""
    for name in "ab":
        catalog.create_table(name, "id BIGINT")
    return catalog


@contextmanager
def locked(catalog: deltars.Catalog) -> Iterator[None]:
    """Inside, nobody else can commit to any table."""
    database = catalog._session.database
    rows = select(dl_tables.c.table_id)
    with database.write(30) as connection:
        connection.execute(rows.with_for_update() if database.backend.locks_rows else rows).all()
        yield


# -- commits -----------------------------------------------------------------------------------------------------------


@pytest.mark.backends("postgres", "sqlite", "duckdb")
@pytest.mark.requirement("D-15")
def test_commits_are_counted_and_timed_by_outcome(tables: deltars.Catalog, scrape: Scrape) -> None:
    writer, table_id = deltars.SqlTxnLogWriter(tables), tables.table("a").id
    for version in (1, 2, 3):
        writer.commit(table_id, version, [added(f"{version}-{n}") for n in range(version)], operation="WRITE")
    writer.commit(table_id, 4, [RemoveFile(path="1-0", data_change=True)], operation="DELETE")
    with pytest.raises(deltars.VersionConflict):
        writer.commit(table_id, 4, [added("late")], operation="WRITE")
    with pytest.raises(deltars.ValidationError):
        writer.commit(table_id, 5, [added("../outside")], operation="WRITE")
    for outcome, count in (("committed", 4), ("conflict", 1), ("failed", 1)):
        assert scrape.value("deltars_commits_total", tables, outcome=outcome) == count
        assert scrape.value("deltars_commit_seconds_count", tables, tables="one", outcome=outcome) == count
    assert scrape.value("deltars_conflicts_total", tables, conflict="VersionConflict") == 1
    assert scrape.value("deltars_commit_failures_total", tables, error="ValidationError", stage="validate") == 1
    assert scrape.value("deltars_commit_files_sum", tables, action="add") == 6
    assert scrape.value("deltars_commit_files_count", tables, action="add") == 4
    assert scrape.value("deltars_commit_files_sum", tables, action="remove") == 1
    # What was refused before the lock waited for none.
    assert scrape.value("deltars_lock_wait_seconds_count", tables) == 5
    assert slow_alert("DeltarsCommitSlow") == ("deltars_commit_seconds", 0.95, 10)


@pytest.mark.backends("postgres", "sqlite", "duckdb")
@pytest.mark.requirement("D-15")
def test_time_of_a_commit_counts_the_wait_for_its_lock(tables: deltars.Catalog, scrape: Scrape) -> None:
    table_id = tables.table("a").id
    with locked(tables):
        waiting = Meanwhile(deltars.SqlTxnLogWriter(tables).commit, table_id, 1, [added("x")], operation="WRITE")
        waiting.stays_for(0.3)
    waiting.result()
    labels = {"tables": "one", "outcome": "committed"}
    for name, asked in (("deltars_commit_seconds", labels), ("deltars_lock_wait_seconds", {})):
        took = scrape.value(f"{name}_sum", tables, **asked)
        assert took is not None
        assert took >= 0.2, name
    held = scrape.value("deltars_transaction_locked_seconds_sum", tables, tables="one")
    waited = scrape.value("deltars_lock_wait_seconds_sum", tables)
    whole = scrape.value("deltars_commit_seconds_sum", tables, **labels)
    assert held is not None
    assert waited is not None
    assert whole is not None
    assert held + waited <= whole


@pytest.mark.backends("sqlite")
def test_conflict_is_counted_by_the_rule_it_broke(tables: deltars.Catalog, scrape: Scrape) -> None:
    reading = tables.begin(isolation="serializable")
    reading.files("a")
    reading.stage("a", [added("mine")])
    tables.write("a", ROWS)
    with pytest.raises(deltars.ConcurrentAppend):
        reading.commit()
    assert scrape.value("deltars_conflicts_total", tables, conflict="ConcurrentAppend") == 1


@pytest.mark.backends("sqlite")
def test_commit_that_is_repeated_is_not_counted_as_another(tables: deltars.Catalog, scrape: Scrape) -> None:
    writer, table_id = deltars.SqlTxnLogWriter(tables), tables.table("a").id
    txn_id = tables.begin().id
    for _ in range(2):
        writer.commit(table_id, 1, [added("x")], operation="WRITE", txn_id=txn_id)
    assert scrape.value("deltars_commits_total", tables, outcome="committed") == 1
    assert scrape.value("deltars_commits_total", tables, outcome="repeated") == 1


# -- transactions ------------------------------------------------------------------------------------------------------


@pytest.mark.backends("postgres", "sqlite", "duckdb")
@pytest.mark.requirement("M-23")
def test_transactions_are_timed_from_begin_to_their_end(tables: deltars.Catalog, scrape: Scrape) -> None:
    with tables.begin() as tx:
        tx.stage("a", [added("1")])
        tx.stage("b", [added("1")])
        time.sleep(0.2)
    with tables.begin() as tx:
        tx.stage("a", [added("2")])
    stale = tables.begin()
    stale.stage("a", [added("3")], expected_version=0)
    with pytest.raises(deltars.VersionConflict):
        stale.commit()
    tables.begin().rollback()
    for tables_, outcome in (
        ("several", "committed"),
        ("one", "committed"),
        ("one", "conflict"),
        ("one", "rolled_back"),
    ):
        assert scrape.value("deltars_transaction_seconds_count", tables, tables=tables_, outcome=outcome) == 1
    took = scrape.value("deltars_transaction_seconds_sum", tables, tables="several", outcome="committed")
    held = scrape.value("deltars_transaction_locked_seconds_sum", tables, tables="several")
    assert took is not None
    assert held is not None
    # The caller's own work belongs to the transaction; no lock is held meanwhile.
    assert took >= 0.2 + held
    assert slow_alert("DeltarsTransactionLocksLong") == ("deltars_transaction_locked_seconds", 0.95, 30)


# -- connections -------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("D-13")
@pytest.mark.backends("postgres")
def test_connections_in_use_and_callers_who_wait_can_be_seen(
    catalog: deltars.Catalog, catalog_uri: str, scrape: Scrape
) -> None:
    catalog.close()

    def seen(small: deltars.Catalog) -> tuple[float | None, ...]:
        use = [scrape.value("deltars_pool_connections", small, state=state) for state in ("in_use", "idle")]
        return *use, scrape.value("deltars_pool_waiting", small)

    with deltars.connect(catalog_uri, pool_size=2, pool_timeout=60) as small:
        assert scrape.value("deltars_pool_size", small) == 2
        asked = scrape.value("deltars_pool_requests_total", small)
        assert asked is not None
        database = small._session.database
        with database.read():
            assert seen(small) == (1, 0, 0)
            with database.read():
                assert seen(small) == (2, 0, 0)
                waiting = Meanwhile(small.tables)
                deadline = time.monotonic() + 30
                while seen(small) != (2, 0, 1):
                    assert time.monotonic() < deadline, seen(small)
                    time.sleep(0.01)
                waiting.stays_for(0.2)
        waiting.result()
        assert seen(small) == (0, 2, 0)
        assert scrape.value("deltars_pool_requests_total", small) == asked + 3
        waited = scrape.value("deltars_pool_wait_seconds_total", small)
        assert waited is not None
        assert waited >= 0.2


@pytest.mark.backends("sqlite")
def test_pools_of_one_catalog_are_added_up(catalog: deltars.Catalog, catalog_uri: str, scrape: Scrape) -> None:
    catalog.tables()
    before = scrape.value("deltars_pool_size", catalog)
    assert before is not None
    with deltars.connect(catalog_uri, pool_size=7) as other:
        other.tables()
        assert scrape.value("deltars_pool_size", catalog) == before + 7


# -- the mirror --------------------------------------------------------------------------------------------------------


@pytest.mark.backends("postgres", "sqlite", "duckdb")
@pytest.mark.requirement("M-12")
def test_95_of_100_versions_are_published_within_five_seconds(tables: deltars.Catalog, scrape: Scrape) -> None:
    for number in range(10):
        with tables.begin() as tx:
            tx.stage("a", [added(str(number))])
            tx.stage("b", [added(str(number))])
    tables.close()
    assert scrape.value("deltars_mirror_publication_seconds_count", tables) == 20
    assert scrape.share_within(5, "deltars_mirror_publication_seconds", tables) >= 0.95


@pytest.mark.backends("postgres", "sqlite", "duckdb")
@pytest.mark.requirement("M-12")
def test_table_more_than_a_minute_behind_raises_the_alert(tables: deltars.Catalog, scrape: Scrape) -> None:
    with tables.begin(mirror="async") as tx:
        tx.stage("a", [added("1")])
    committed_at = tx.result.commit_ts
    assert committed_at is not None
    table_id, database = tables.table("a").id, tables._session.database
    late, status = dl_table_versions.c, dl_mirror_status.c
    with database.write(30) as connection:
        connection.execute(
            update(dl_table_versions)
            .where(late.table_id == table_id, late.version == 1)
            .values(commit_ts=committed_at - 2 * MINUTE_US)
        )
        connection.execute(
            update(dl_mirror_status)
            .where(status.table_id == table_id)
            .values(next_attempt_at=committed_at + 4 * MINUTE_US)
        )
    tables.reconciler().once()
    rule = re.fullmatch(r"max by \(catalog, table\) \((\w+)\) > (\d+)", rules()["DeltarsMirrorLag"])
    assert rule
    lag = {name: scrape.value(rule[1], tables, table=name) for name in "ab"}
    assert lag["b"] == 0
    assert lag["a"] is not None
    assert lag["a"] > float(rule[2]) == 60

    with database.write(30) as connection:
        connection.execute(update(dl_mirror_status).values(next_attempt_at=None))
    tables.reconciler().once()
    assert scrape.value(rule[1], tables, table="a") == 0


@pytest.mark.backends("postgres", "sqlite", "duckdb")
@pytest.mark.requirement("M-31")
def test_lag_of_each_table_and_skew_of_a_transaction_are_exported(tables: deltars.Catalog, scrape: Scrape) -> None:
    with tables.begin(mirror="async") as tx:
        tx.stage("a", [added("1")])
        tx.stage("b", [added("1")])
    publisher = tables._session.publisher
    publisher.publish_pending(tables.table("a").id)
    assert scrape.value("deltars_mirror_skew_seconds_count", tables) is None
    time.sleep(0.3)
    publisher.publish_pending(tables.table("b").id)
    assert scrape.value("deltars_mirror_skew_seconds_count", tables) == 1
    skew = scrape.value("deltars_mirror_skew_seconds_sum", tables)
    lag = scrape.value("deltars_mirror_publication_seconds_sum", tables)
    assert skew is not None
    assert lag is not None
    assert 0.3 <= skew <= lag
    # A transaction over one table has none.
    tables.write("a", ROWS)
    tables.close()
    assert scrape.value("deltars_mirror_skew_seconds_count", tables) == 1

    tables.reconciler().once()
    assert [scrape.value("deltars_mirror_lag_seconds", tables, table=name) for name in "ab"] == [0, 0]


def test_failed_and_diverged_publications_are_counted_and_seen(
    tables: deltars.Catalog, scrape: Scrape, tmp_path: Path
) -> None:
    foreign = tmp_path / "warehouse" / "a" / "_delta_log" / f"{1:020}.json"
    foreign.write_text('{"commitInfo":{"txnId":"somebody else"}}')
    log = tmp_path / "warehouse" / "b" / "_delta_log"
    log.rename(log.with_name("kept"))
    log.write_bytes(b"in the way")
    with tables.begin() as tx:
        tx.stage("a", [added("1")])
        tx.stage("b", [added("1")])
    for state in ("diverged", "failed"):
        assert scrape.value("deltars_mirror_failures_total", tables, state=state) == 1
    for outcome in tx.result.mirror.values():
        assert outcome.failure is not None
        assert outcome.failure.txn_id == tx.id
    log.unlink()
    log.with_name("kept").rename(log)
    tables.reconciler().once()
    seen = {state: scrape.value("deltars_mirror_tables", tables, state=state) for state in ("active", "diverged")}
    assert seen["diverged"] == 1
    looked = scrape.value("deltars_mirror_seen_timestamp_seconds", tables)
    assert looked is not None
    assert looked <= time.time()


# -- labels ------------------------------------------------------------------------------------------------------------


def test_tables_furthest_behind_are_named_and_not_more_than_a_thousand(scrape: Scrape) -> None:
    source = observe.Source("deltasql://postgres/lake/public", "postgresql", "lake|public")
    lags = [observe.TableLag(f"t{number:05}", "active", float(number)) for number in range(MAX_TABLES + 500)]
    observe.emit(observe.MirrorSeen(source, lags))
    named = {labels["table"] for labels in scrape.labels("deltars_mirror_lag_seconds")}
    assert named == {f"t{number:05}" for number in range(500, MAX_TABLES + 500)}
    # A table that is gone is no longer named.
    observe.emit(observe.MirrorSeen(source, lags[:1]))
    assert [labels["table"] for labels in scrape.labels("deltars_mirror_lag_seconds")] == ["t00000"]


@pytest.mark.backends("postgres")
def test_catalog_is_named_without_parameters(catalog: deltars.Catalog, catalog_uri: str, scrape: Scrape) -> None:
    catalog.create_table("t", "id BIGINT")
    assert "?" in catalog_uri
    [named] = {labels["catalog"] for labels in scrape.labels("deltars_commits_total")}
    assert named == catalog_uri.partition("?")[0]
