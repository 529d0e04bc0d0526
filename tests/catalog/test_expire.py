"""Expire old history: what goes, what stays, and what is said about what is gone."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from sqlalchemy import Table, func, select, update

import deltars
from deltars.errors import HistoryExpired, LogDiverged, TransactionNotFound, ValidationError, VersionConflict
from deltars.store import schema
from deltars.store.history.deletion import HistoryDeletion
from deltars.store.read import committed_versions
from tests.support.backup import take_backup
from tests.support.clock import clock_of
from tests.support.vacuumed import vacuum

pytestmark = pytest.mark.backends("sqlite")

NOW = timedelta(0)
EVERY_BACKEND = pytest.mark.backends("sqlite", "postgres", "duckdb")


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def ids(found: pa.Table) -> list[int]:
    return sorted(found["id"].to_pylist())


@pytest.fixture
def table(catalog: deltars.Catalog) -> deltars.Table:
    """The table `t`: version n holds the row n alone, for n from 1 to 12."""
    made = catalog.create_table("t", "id BIGINT")
    for number in range(1, 13):
        made.write(rows(number), "overwrite")
    return made


def log_files(table: deltars.Table) -> list[str]:
    return sorted(path.name for path in (Path(table.location.removeprefix("file://")) / "_delta_log").iterdir())


def commits(table: deltars.Table) -> list[int]:
    return [int(name[:20]) for name in log_files(table) if name.endswith(".json") and name[:20].isdigit()]


def count(catalog: deltars.Catalog, of: Table) -> int:
    with catalog._session.database.read() as connection:
        return connection.execute(select(func.count()).select_from(of)).scalar_one()


@EVERY_BACKEND
def test_versions_before_the_retention_go_and_the_rest_reads_as_before(
    catalog: deltars.Catalog, table: deltars.Table
) -> None:
    vacuum(catalog, "t", 8)
    [plan] = table.expire(NOW, keep_versions=5, dry_run=True, force=True).tables
    assert [entry.version for entry in table.history()] == list(range(12, -1, -1))
    [done] = table.expire(NOW, keep_versions=5, force=True).tables
    assert plan == replace(done, num_log_files=0)
    assert (done.first_version, done.num_expired_versions, done.held_by) == (8, 8, None)
    assert done.since == table.snapshot(8).timestamp
    assert [entry.version for entry in table.history()] == [12, 11, 10, 9, 8]
    assert [ids(table.to_arrow(version=version)) for version in range(8, 13)] == [[n] for n in range(8, 13)]
    assert table.verify(deep=True).is_ok
    assert catalog.reconciler().once().repairs == []
    assert commits(table) == [8, 9, 10, 11, 12]
    table.write(rows(13))
    assert ids(table.to_arrow()) == seen_outside(table) == [12, 13]
    assert seen_outside(table, version=8) == [8]
    again = table.expire(NOW, keep_versions=6, force=True)
    assert (again.tables[0].num_expired_versions, again.num_transactions) == (0, 0)
    assert table.verify(deep=True).is_ok
    assert count(catalog, schema.dl_table_versions) == count(catalog, schema.dl_mirror_log) == 6
    assert count(catalog, schema.dl_add_files) == 6
    assert count(catalog, schema.dl_remove_files) == 5
    assert count(catalog, schema.dl_metadata_updates) == count(catalog, schema.dl_protocol_updates) == 1
    assert count(catalog, schema.dl_transactions) == 6


def test_older_versions_and_times_say_since_when_history_is_kept(
    catalog: deltars.Catalog, table: deltars.Table
) -> None:
    old = table.history(limit=1, since=0)[0]
    third, eighth = table.snapshot(3).timestamp, table.snapshot(8).timestamp
    transaction = next(entry.txn_id for entry in table.history() if entry.version == 3)
    vacuum(catalog, "t")
    table.expire(NOW, keep_versions=5, force=True)
    asked: dict[str, Callable[[], object]] = {
        "version": lambda: table.to_arrow(version=3),
        "timestamp": lambda: table.snapshot(timestamp=third),
        "as_of": lambda: table.snapshot(as_of=third),
        "restore": lambda: table.restore(3),
        "restore a cut": lambda: catalog.restore(third),
        "restore a table": lambda: catalog.restore(third, tables=["t"]),
        "cut": lambda: catalog.snapshot(third).to_arrow("t"),
        "copy": lambda: catalog.copy_table("t", "copy", as_of=third),
        "copy of a version": lambda: catalog.copy_table("t", "copy", version=3),
        "tag": lambda: catalog.tag("old", third),
        "diff": lambda: table.diff(3),
        "changes": lambda: deltars.SqlTxnLogReader(catalog).changes(table.id, 3),
    }
    for name, ask in asked.items():
        with pytest.raises(HistoryExpired, match=r"expired|any more") as caught:
            ask()
        assert (caught.value.earliest, caught.value.since) == (8, eighth), name
        assert "version 8, of 2" in str(caught.value), name
    with pytest.raises(TransactionNotFound):
        catalog.snapshot(transaction)
    assert catalog.snapshot(third).expired == ["t"]
    assert catalog.snapshot(eighth).expired == []
    # Times of commits are in microseconds, in-commit timestamps in milliseconds.
    assert table.snapshot(timestamp=eighth).version == 8
    assert old.version == 12
    for version in (-1, 99):
        with pytest.raises(deltars.VersionNotFound) as missing:
            table.snapshot(version)
        assert not isinstance(missing.value, HistoryExpired)


def test_default_retention_is_thirty_days_or_the_tables_property(
    catalog: deltars.Catalog, table: deltars.Table
) -> None:
    vacuum(catalog, "t")
    assert table.expire().tables[0].num_expired_versions == 0
    age(catalog, timedelta(days=20))
    assert catalog.expire().tables[0].num_expired_versions == 0
    assert catalog.expire("3 weeks", force=True).tables[0].num_expired_versions == 0
    catalog.set_properties("t", {"delta.logRetentionDuration": "interval 10 days"})
    [planned] = catalog.expire(dry_run=True).tables
    # The version before the property was current ten days ago.
    assert (planned.first_version, planned.num_expired_versions) == (12, 12)
    assert catalog.expire("19 days", dry_run=True, force=True).tables == (planned,)
    assert catalog.expire(datetime.now(UTC) - timedelta(days=19), dry_run=True, force=True).tables == (planned,)
    assert catalog.expire(tables=["t"]).tables[0].first_version == 12


@pytest.mark.parametrize(
    "arguments",
    [
        {"older_than": "soon"},
        {"older_than": 30},
        {"older_than": timedelta(days=-1)},
        {"keep_versions": 0},
        {"keep_versions": "all"},
        {"dry_run": "no"},
    ],
)
def test_wrong_arguments_are_refused(catalog: deltars.Catalog, arguments: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        catalog.expire(**arguments)  # type: ignore[arg-type]


def test_what_is_not_vacuumed_or_not_published_yet_stays_and_is_named(
    catalog: deltars.Catalog, table: deltars.Table
) -> None:
    [held] = table.expire(NOW, force=True).tables
    assert (held.first_version, held.held_by) == (1, "vacuum has not deleted its removed files yet")
    assert [entry.version for entry in table.history()][-1] == 1
    # Nothing was removed from the other: it needs no vacuum.
    other = catalog.create_table("other", "id BIGINT", properties={"deltars.mirror": "off"})
    for number in range(3):
        other.write(rows(number))
    [held] = other.expire(NOW, force=True).tables
    assert (held.num_expired_versions, held.held_by) == (0, "its mirror is off")
    catalog.set_properties("other", {}, unset=["deltars.mirror"])
    catalog.reconciler().once()
    assert other.expire(NOW, force=True).tables[0].first_version == 4
    assert ids(other.to_arrow()) == [0, 1, 2]
    assert other.verify(deep=True).is_ok
    catalog.release("other")
    [held] = other.expire(NOW, force=True).tables
    assert held.held_by == "other writers own its log"


def test_log_that_is_ahead_of_a_restored_catalog_keeps_its_history(
    catalog: deltars.Catalog, table: deltars.Table, tmp_path: Path
) -> None:
    vacuum(catalog, "t")
    backup = take_backup(catalog, tmp_path / "backup", None)
    # The restored catalog does not know this tag, which needs a version that is old enough to go.
    catalog.tag("two", as_of=table.history()[0].txn_id)
    table.write(rows(13))
    catalog.close()
    backup.restore()
    before = log_files(table)
    with pytest.raises(LogDiverged, match="nothing is expired"):
        table.expire(NOW, force=True)
    assert log_files(table) == before
    assert len(table.history()) == 13
    [held] = table.expire(NOW, force=True).tables
    assert held.held_by == "its log contradicts the catalog"


def test_clock_of_the_database_that_is_ahead_makes_no_version_older(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT")
    dropped = catalog.create_table("dropped", "id BIGINT")
    for number in range(3):
        table.write(rows(number))
    catalog.drop_table("dropped")
    with clock_of(catalog) as clock:
        clock.set(90 * 86_400.0)
        assert table.expire().tables[0].num_expired_versions == 0
        assert catalog.purge_dropped() == []
    assert len(table.history()) == 4
    assert Path(dropped.location).exists()


def test_log_that_lags_keeps_what_is_not_published(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT")
    for number in range(4):
        table.write(rows(number))
    with catalog.begin(mirror="off") as tx:
        tx.write("t", rows(4))
    [held] = table.expire(NOW, force=True).tables
    assert (held.first_version, held.held_by) == (4, "later versions are not published yet")
    catalog.reconciler().once()
    assert table.expire(NOW, force=True).tables[0].first_version == 5
    assert table.verify(deep=True).is_ok
    assert seen_outside(table) == [0, 1, 2, 3, 4]


@EVERY_BACKEND
def test_tagged_versions_stay_readable_and_the_others_around_them_go(
    catalog: deltars.Catalog, table: deltars.Table
) -> None:
    catalog.create_table("late", "id BIGINT").write(rows(1))
    moments = {entry.version: entry.txn_id for entry in table.history()}
    catalog.tag("four", moments[4])
    between = table.snapshot(6).timestamp
    vacuum(catalog, "t")
    [late, done] = catalog.expire(NOW, keep_versions=3, force=True).tables
    assert late.table == "late"
    assert (done.first_version, done.kept_versions, done.num_expired_versions) == (10, (4,), 9)
    assert [entry.version for entry in table.history()] == [12, 11, 10, 4]
    assert ids(catalog.snapshot("four").to_arrow("t")) == ids(table.to_arrow(version=4)) == [4]
    assert ids(catalog.snapshot(moments[4]).to_arrow("t")) == [4]
    assert seen_outside(table, version=4) == [4]
    assert seen_outside(table) == ids(table.to_arrow()) == [12]
    assert table.verify(deep=True).is_ok
    assert catalog.reconciler().once().repairs == []
    for moment in (between, table.snapshot(10).timestamp - timedelta(milliseconds=1)):
        # The tagged version was not the last one then.
        assert catalog.snapshot(moment).expired == ["t"]
        with pytest.raises(HistoryExpired):
            table.snapshot(timestamp=moment)
        with pytest.raises(HistoryExpired):
            catalog.tag("between", moment)
    assert catalog.tag("again", moments[4]).txn_id == moments[4]
    assert ids(table.to_arrow(as_of="again")) == [4]
    catalog.restore("four", tables=["t"])
    assert ids(table.to_arrow()) == [4]
    catalog.untag("four")
    catalog.untag("again")
    # Vacuum kept the files of the tag: the rows that name them stay until it deletes them.
    assert table.expire(NOW, keep_versions=4, force=True).tables[0].kept_versions == (4,)
    vacuum(catalog, "t")
    [done] = table.expire(NOW, keep_versions=4, force=True).tables
    assert (done.first_version, done.kept_versions) == (10, ())
    assert [entry.version for entry in table.history()] == [13, 12, 11, 10]
    assert commits(table) == [10, 11, 12, 13]
    assert table.verify(deep=True).is_ok
    assert ids(table.to_arrow()) == seen_outside(table) == [4]


def test_history_begins_later_also_if_tags_need_every_older_version(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT")
    catalog.tag("empty")
    table.write(rows(1))
    for keep in (1, 3):
        [done] = table.expire(NOW, keep_versions=keep, force=True).tables
        assert (done.first_version, done.kept_versions, done.num_expired_versions) == (1, (0,), 0)
    assert table.to_arrow(as_of="empty").num_rows == 0
    assert table.verify(deep=True).is_ok


def test_tag_of_a_moment_without_a_commit_keeps_the_cut_of_every_moment_up_to_it(
    catalog: deltars.Catalog, table: deltars.Table
) -> None:
    tag = catalog.tag("now")
    twelfth, middle = table.snapshot(12).timestamp, table.snapshot(6).timestamp
    for number in range(13, 16):
        table.write(rows(number), "overwrite")
    vacuum(catalog, "t")
    table.expire(NOW, force=True)
    assert ids(catalog.snapshot("now").to_arrow("t")) == [12]
    assert ids(catalog.snapshot(tag.as_of).to_arrow("t")) == [12]
    assert ids(catalog.snapshot(tag.as_of - timedelta(microseconds=1)).to_arrow("t")) == [12]
    assert catalog.snapshot(tag.as_of + timedelta(microseconds=1)).expired == ["t"]
    assert catalog.snapshot(middle).expired == ["t"]
    # Before it was created, the table was not expired but not there.
    assert catalog.snapshot(twelfth - timedelta(days=1)).expired == []


def test_other_tables_of_a_cut_can_be_read_although_one_is_expired(
    catalog: deltars.Catalog, table: deltars.Table
) -> None:
    other = catalog.create_table("other", "id BIGINT")
    other.write(rows(1))
    with catalog.begin(txn_id="both") as tx:
        tx.write("t", rows(20), "overwrite")
        tx.write("other", rows(2))
    table.write(rows(21), "overwrite")
    table.write(rows(22), "overwrite")
    vacuum(catalog, "t")
    table.expire(NOW, force=True)
    cut = catalog.snapshot("both")
    assert ids(cut.to_arrow("other")) == [1, 2]
    assert (cut.versions, cut.expired) == ({"other": 2}, ["t"])
    with pytest.raises(HistoryExpired):
        cut.to_arrow("T")
    detail = catalog.transaction("both")
    assert [(part.table, part.version) for part in detail.tables] == [("other", 2)]
    assert detail.expired == {"t": 13}
    with pytest.raises(HistoryExpired):
        catalog.restore("both")
    assert catalog.restore("both", tables=["other"]).tables[0].table == "other"


def test_snapshot_that_is_held_while_its_version_expires_never_shows_other_rows(
    catalog: deltars.Catalog, table: deltars.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = "id > 0"
    held, cut = [table.snapshot(5) for _ in range(6)], catalog.snapshot(table.snapshot(5).timestamp)
    reader = deltars.SqlTxnLogReader(catalog)
    changes, begun = reader.changes(table.id, 0), reader.changes(table.id, 0)
    monkeypatch.setattr(committed_versions, "VERSIONS_AT_ONCE", 2)
    assert next(begun).version == 0
    stream = table.scan(5)
    vacuum(catalog, "t")
    table.expire(NOW, keep_versions=2, force=True)
    reads: dict[str, Callable[[], object]] = {
        "files": lambda: held[0].files,
        "where": lambda: held[1].select_files(where=where),
        "row groups": lambda: held[2].row_groups(),
        "totals": lambda: held[3].totals,
        "txns": lambda: held[4].txns,
        "domains": lambda: held[5].domains,
        "cut": lambda: cut.to_arrow("t"),
        "scan": lambda: stream.files,
        "changes": lambda: list(changes),
        "changes that were begun": lambda: list(begun),
    }
    for name, read in reads.items():
        with pytest.raises(HistoryExpired, match="is expired"):
            read()
        assert name


@EVERY_BACKEND
def test_version_that_is_deleted_by_half_is_refused_and_the_next_run_deletes_the_rest(
    catalog: deltars.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = catalog.create_table("t", "id BIGINT")
    for number in range(1, 5):
        table.write(rows(number))
    table.write(rows(5), "overwrite")
    vacuum(catalog, "t")
    held, delete = table.snapshot(4), HistoryDeletion._delete
    assert table.snapshot(4).totals.num_files == 4

    def stop_after_one(self: HistoryDeletion, of: Table, *arguments: Any) -> int:
        if of is schema.dl_add_files:
            with catalog._session.database.write(30) as connection:
                connection.execute(of.delete().where(of.c.version == 2))
            raise KeyboardInterrupt
        return delete(self, of, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(HistoryDeletion, "_delete", stop_after_one)
        with pytest.raises(KeyboardInterrupt):
            table.expire(NOW, force=True)
    assert count(catalog, schema.dl_add_files) == 4
    for read in (lambda: held.files, lambda: held.totals, lambda: held.select_files(where="id > 0")):
        with pytest.raises(HistoryExpired, match="version 4 is expired"):
            read()
    assert ids(table.to_arrow()) == [5]
    assert table.verify(deep=True).is_ok
    table.expire(NOW, force=True)
    assert count(catalog, schema.dl_add_files) == 1
    assert ids(table.to_arrow()) == seen_outside(table) == [5]


def test_commit_of_a_transaction_that_expired_commits_cannot_be_checked_against_is_refused(
    catalog: deltars.Catalog, table: deltars.Table
) -> None:
    tx = catalog.begin(isolation="serializable")
    assert tx.to_arrow("t").num_rows == 1
    for number in range(3):
        catalog.write("t", rows(number), "overwrite")
    vacuum(catalog, "t")
    table.expire(NOW, force=True)
    tx.write("t", rows(99))
    with pytest.raises(VersionConflict, match="was expired"):
        tx.commit()
    assert ids(table.to_arrow()) == [2]
    # A blind append too: what it must be checked against, such as the schema, is gone.
    tx = catalog.begin(isolation="serializable")
    tx.write("t", rows(99))
    for number in range(3):
        catalog.write("t", rows(number))
    table.expire(NOW, force=True)
    with pytest.raises(VersionConflict, match="was expired"):
        tx.commit()
    with catalog.begin(isolation="serializable") as tx:
        tx.write("t", rows(7))
        catalog.write("t", rows(8))
        table.expire(NOW, keep_versions=2, force=True)
    assert ids(table.to_arrow()) == [0, 1, 2, 2, 7, 8]


def test_transactions_go_with_their_last_version_and_their_maps_with_them(catalog: deltars.Catalog) -> None:
    for name in "ab":
        catalog.create_table(name, "id BIGINT")
    for number in range(3):
        with catalog.begin(txn_id=f"load {number}") as tx:
            for name in "ab":
                tx.write(name, rows(number))
    assert catalog.warehouse is not None
    maps = Path(catalog.warehouse.removeprefix("file://")) / "_deltars" / "txns"
    assert len(list(maps.iterdir())) == 3
    catalog.table("a").expire(NOW, force=True)
    assert len(list(maps.iterdir())) == 3
    assert catalog.transaction("load 0").expired == {"a": 1}
    assert [part.table for part in catalog.transaction("load 2").tables] == ["a", "b"]
    assert catalog.expire(NOW, force=True).num_transactions > 0
    [left] = maps.iterdir()
    assert json.loads(left.read_text())["txnId"] == str(catalog.transaction("load 2").txn_id)
    with pytest.raises(TransactionNotFound):
        catalog.transaction("load 1")
    assert catalog.reconciler().once().repairs == []
    assert len(list(maps.iterdir())) == 1


def test_newest_metadata_application_transactions_and_domains_stay(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT", properties={"user.step": "0"})
    for number in range(1, 5):
        table.write(rows(number), app_id="loader", app_version=number)
        catalog.set_properties("t", {"user.step": str(number)})
    table.write(rows(9), app_id="other", app_version=1)
    table.write(rows(10))
    before = table.snapshot()
    assert {name: txn.version for name, txn in before.txns.items()} == {"loader": 4, "other": 1}
    assert table.expire(NOW, force=True).tables[0].first_version == 10
    after = table.snapshot()
    assert (after.txns, after.domains, after.metadata) == (before.txns, before.domains, before.metadata)
    assert count(catalog, schema.dl_txn_actions) == 2
    assert count(catalog, schema.dl_metadata_updates) == 1
    # The same batch is still skipped.
    table.write(rows(1), app_id="loader", app_version=4)
    assert ids(table.to_arrow()) == [1, 2, 3, 4, 9, 10]
    table.write(rows(11), app_id="loader", app_version=5)
    assert table.verify(deep=True).is_ok
    assert DeltaTable(table.location).transaction_version("other") == 1


def test_log_stays_if_its_clean_up_is_switched_off(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT", properties={"delta.enableExpiredLogCleanup": "false"})
    for number in range(5):
        table.write(rows(number))
    [done] = table.expire(NOW, force=True).tables
    assert (done.first_version, done.num_log_files) == (5, 0)
    assert commits(table) == list(range(6))
    assert seen_outside(table, version=2) == [0, 1]
    assert table.verify(deep=True).is_ok
    assert catalog.reconciler().once().repairs == []
    catalog.set_properties("t", {}, unset=["delta.enableExpiredLogCleanup"])
    assert table.expire(NOW, force=True).tables[0].num_log_files > 0
    assert commits(table) == [6]


def test_deletion_vectors_and_row_groups_of_expired_versions_go(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT", properties={"delta.enableDeletionVectors": "true"})
    table.write(rows(*range(100)))
    for number in range(5):
        table.delete(f"id = {number}")
    groups = count(catalog, schema.dl_row_groups)
    vacuum(catalog, "t")
    table.expire(NOW, force=True)
    assert ids(table.to_arrow()) == list(range(5, 100))
    assert count(catalog, schema.dl_add_files) == 1
    assert count(catalog, schema.dl_row_groups) <= max(groups, 1)
    assert table.verify(deep=True).is_ok


def test_table_whose_storage_fails_does_not_keep_the_history_of_the_others(catalog: deltars.Catalog) -> None:
    for name in "abc":
        table = catalog.create_table(name, "id BIGINT")
        for number in range(3):
            table.write(rows(number))
    log = Path(catalog.table("b").location.removeprefix("file://")) / "_delta_log"
    log.rename(log.with_name("elsewhere"))
    log.write_text("in the way")
    with pytest.raises(deltars.StorageError) as caught:
        catalog.expire(NOW, force=True)
    assert caught.value.table == "b"
    assert [len(catalog.table(name).history()) for name in "abc"] == [1, 4, 1]
    log.unlink()
    log.with_name("elsewhere").rename(log)
    catalog.expire(NOW, force=True)
    assert [len(catalog.table(name).history()) for name in "abc"] == [1, 1, 1]
    assert catalog.table("b").verify(deep=True).is_ok


def test_rebuilt_released_and_adopted_tables_have_the_history_that_is_left(
    catalog: deltars.Catalog, table: deltars.Table, tmp_path: Path
) -> None:
    entry = next(entry for entry in table.history() if entry.version == 5)
    catalog.tag("five", entry.txn_id)
    vacuum(catalog, "t")
    table.expire(NOW, keep_versions=3, force=True)
    assert catalog.release("t") == 13
    assert catalog.adopt("t") >= 13
    table.write(rows(30), "overwrite")
    assert table.verify(deep=True).is_ok
    assert catalog.warehouse is not None
    catalog.close()
    rebuilt = deltars.rebuild(catalog.warehouse, f"deltasql://sqlite/{tmp_path}/rebuilt.db")
    assert rebuilt.tags == ("five",)
    with deltars.connect(f"deltasql://sqlite/{tmp_path}/rebuilt.db") as again:
        assert ids(again.table("t").to_arrow()) == [30]
        assert ids(again.table("t").to_arrow(as_of="five")) == [5]
        assert again.table("t").verify(deep=True).is_ok


def seen_outside(table: deltars.Table, version: int | None = None) -> list[int]:
    return ids(DeltaTable(table.location, version=version).to_pyarrow_table())


def age(catalog: deltars.Catalog, by: timedelta) -> None:
    """Make every commit so far older."""
    microseconds = by // timedelta(microseconds=1)
    versions, transactions = schema.dl_table_versions, schema.dl_transactions
    with catalog._session.database.write(30) as connection:
        connection.execute(
            update(versions).values(
                commit_ts=versions.c.commit_ts - microseconds,
                in_commit_timestamp=versions.c.in_commit_timestamp - microseconds // 1000,
            )
        )
        tables = schema.dl_tables
        connection.execute(
            update(tables).values(
                last_commit_ts=tables.c.last_commit_ts - microseconds, last_ict=tables.c.last_ict - microseconds // 1000
            )
        )
        connection.execute(update(transactions).values(commit_ts=transactions.c.commit_ts - microseconds))


@EVERY_BACKEND
@pytest.mark.parametrize("span", ["interval 1000000 days", "999999999999999 weeks"])
def test_huge_retention_keeps_everything(catalog: deltars.Catalog, span: str) -> None:
    table = catalog.create_table("t", "id BIGINT")
    for number in range(2):
        table.write(rows(number), "overwrite")
    table.alter.set_properties({"delta.deletedFileRetentionDuration": span, "delta.logRetentionDuration": span})
    assert (catalog.maintain(), catalog.purge_dropped(span)) == ([], [])
    assert (table.vacuum().num_files, table.vacuum(retention=span).num_files) == (0, 0)
    for older_than in (None, span, timedelta.max):
        assert catalog.expire(older_than).tables[0].num_expired_versions == 0


@pytest.mark.parametrize("dry_run", [False, True])
def test_less_than_the_tables_own_retention_needs_force(
    catalog: deltars.Catalog, table: deltars.Table, dry_run: bool
) -> None:
    vacuum(catalog, "t")
    short = catalog.create_table("short", "id BIGINT", properties={"delta.logRetentionDuration": "interval 1 hour"})
    an_hour_ago = datetime.now(UTC) - timedelta(hours=1)
    for older_than in ("0 seconds", "29 days", an_hour_ago):
        for expire in (table.expire, catalog.expire):
            with pytest.raises(ValidationError, match=r"less than the table's retention of .*force=True"):
                expire(older_than, keep_versions=1, dry_run=dry_run)
    assert len(table.history()) == 13
    assert table.expire("30 days", dry_run=dry_run).tables[0].num_expired_versions == 0
    assert short.expire(an_hour_ago, dry_run=dry_run).tables[0].num_expired_versions == 0
    assert table.expire("0 seconds", dry_run=dry_run, force=True).tables[0].num_expired_versions == 12


def test_time_in_the_future_is_refused(catalog: deltars.Catalog, table: deltars.Table) -> None:
    vacuum(catalog, "t")
    catalog.create_table("gone", "id BIGINT")
    catalog.drop_table("gone")
    for later in ("2999-01-01", datetime.now(UTC) + timedelta(minutes=1)):
        with pytest.raises(ValidationError, match="older_than is in the future"):
            catalog.expire(later, force=True)
        with pytest.raises(ValidationError, match="older_than is in the future"):
            catalog.purge_dropped(later)
    assert len(table.history()) == 13
    assert len(catalog.purge_dropped(timedelta(0), dry_run=True)) == 1


def test_handle_of_a_dropped_table_is_refused(catalog: deltars.Catalog, table: deltars.Table) -> None:
    catalog.drop_table("t")
    with pytest.raises(deltars.TableNotFound, match="was dropped"):
        table.expire()
    catalog.drop_table(table.id, purge=True)
    with pytest.raises(deltars.TableNotFound, match="there is no table"):
        table.expire()
