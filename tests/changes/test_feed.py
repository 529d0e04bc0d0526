"""The change data feed that row-level changes write: its rows, its files, and what may come between."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deltars
from deltars.session import CatalogSession
from tests.changes.rows import events
from tests.support.interrupts import Clock
from tests.support.soak import is_soak, record, seed

FEED = {"delta.enableChangeDataFeed": "true"}
VECTORS = {"delta.enableDeletionVectors": "true"}
STORAGES = pytest.mark.parametrize("properties", [FEED, FEED | VECTORS], ids=["rewritten", "vectors"])

pytestmark = pytest.mark.backends("sqlite")


def _table(catalog: deltars.Catalog, properties: dict[str, str] = FEED) -> deltars.Table:
    table = catalog.create_table("t", "id BIGINT, v BIGINT", properties=properties)
    table.write(_rows(*range(5)))
    return table


def _rows(*ids: int, v: int = 0) -> pa.Table:
    return pa.table({"id": list(ids), "v": [v] * len(ids)})


def _last(table: deltars.Table) -> list[tuple[str, int, int]]:
    found = table.changes(table.version).to_arrow()
    return sorted((row["_change_type"], row["id"], row["v"]) for row in found.to_pylist())


def _upsert(tx: deltars.Transaction, rows: pa.Table) -> None:
    tx.merge("t", rows, "t.id = s.id").when_matched_update_all().when_not_matched_insert_all().execute()


PRE, POST = "update_preimage", "update_postimage"
SEVERAL: dict[str, tuple[list[Callable[[deltars.Transaction], object]], list[tuple[str, int, int]]]] = {
    "inserted, then deleted": (
        [lambda tx: tx.write("t", _rows(7, 8)), lambda tx: tx.delete("t", "id IN (0, 7)")],
        [("delete", 0, 0), ("insert", 8, 0)],
    ),
    "inserted, then updated": (
        [
            lambda tx: tx.write("t", _rows(7)),
            lambda tx: tx.update("t", {"v": "9"}, "id = 7"),
            lambda tx: tx.delete("t", "id = 0"),
        ],
        [("delete", 0, 0), ("insert", 7, 9)],
    ),
    "updated twice": (
        [lambda tx: tx.update("t", {"v": "1"}, "id < 2"), lambda tx: tx.update("t", {"v": "v + 1"}, "id = 0")],
        [(POST, 0, 2), (POST, 1, 1), (PRE, 0, 0), (PRE, 1, 0)],
    ),
    "other rows of one file": (
        [
            lambda tx: tx.update("t", {"v": "1"}, "id = 0"),
            lambda tx: tx.delete("t", "id = 1"),
            lambda tx: _upsert(tx, _rows(2, 9, v=5)),
        ],
        [("delete", 1, 0), ("insert", 9, 5), (POST, 0, 1), (POST, 2, 5), (PRE, 0, 0), (PRE, 2, 0)],
    ),
    "updated, then deleted": (
        [lambda tx: tx.update("t", {"v": "1"}, "id < 2"), lambda tx: tx.delete("t", "id = 0")],
        [("delete", 0, 0), ("delete", 1, 0), ("insert", 1, 1)],
    ),
    "inserted and others updated together": (
        [lambda tx: tx.write("t", _rows(7)), lambda tx: tx.update("t", {"v": "1"}, "id IN (0, 7)")],
        [("delete", 0, 0), ("insert", 0, 1), ("insert", 7, 1)],
    ),
    "updated, then overwritten": (
        [lambda tx: tx.update("t", {"v": "1"}, "id = 0"), lambda tx: tx.write("t", _rows(0), "overwrite")],
        [("delete", number, 0) for number in range(5)] + [("insert", 0, 0)],
    ),
    "updated, then purged": (
        [lambda tx: tx.update("t", {"v": "1"}, "id = 0"), lambda tx: tx.purge("t")],
        [(POST, 0, 1), (PRE, 0, 0)],
    ),
}


@STORAGES
@pytest.mark.parametrize("name", SEVERAL)
def test_several_statements_are_their_net_effect(
    catalog: deltars.Catalog, properties: dict[str, str], name: str
) -> None:
    table = _table(catalog, properties)
    statements, expected = SEVERAL[name]
    with catalog.begin() as tx:
        for statement in statements:
            statement(tx)
    assert _last(table) == sorted(expected)
    assert table.version == 2


def test_whole_files_and_appends_write_no_files_of_the_feed(catalog: deltars.Catalog) -> None:
    table = _table(catalog)
    with catalog.begin() as tx:
        tx.write("t", _rows(7, 8))
        tx.delete("t", "id = 7")
        tx.delete("t", "id < 5")
    assert not (Path(table.location) / "_change_data").exists()
    assert _last(table) == [*(("delete", number, 0) for number in range(5)), ("insert", 8, 0)]
    table.delete("id = 1000")
    assert table.version == 2


def test_files_of_the_feed_are_as_delta_has_them_and_go_with_a_vacuum(catalog: deltars.Catalog) -> None:
    table = catalog.create_table(
        "t", "id BIGINT, p STRING", partition_by="p", properties=FEED | {"delta.columnMapping.mode": "name"}
    )
    table.write(pa.table({"id": [1, 2, 3], "p": ["a", "a", None]}))
    table.update({"p": "'b c'"}, "id <> 2")
    root = Path(table.location)
    files = sorted((root / "_change_data").rglob("*.parquet"))
    assert len(files) == 3
    assert all(file.name.startswith("cdc-") for file in files)
    physical = table.schema["id"].physical_name
    assert pq.read_schema(files[0]).names == [physical, "_change_type"]
    assert sorted(events(table.changes(2).to_arrow())) == [(2, POST, 1), (2, POST, 3), (2, PRE, 1), (2, PRE, 3)]
    assert table.verify(deep=True, orphans=True, min_age=timedelta(0)).findings == ()
    table.vacuum(retention=timedelta(0), force=True)
    assert not list((root / "_change_data").rglob("*.parquet"))
    with pytest.raises(deltars.StorageError, match="missing"):
        table.changes(2).to_arrow()


def test_reserved_columns_are_refused_where_the_feed_is_on(catalog: deltars.Catalog) -> None:
    with pytest.raises(deltars.ValidationError, match="column _change_type has a name that the change data feed"):
        catalog.create_table("bad", "id BIGINT, _change_type STRING", properties=FEED)
    table = _table(catalog)
    with pytest.raises(deltars.ValidationError, match="_COMMIT_VERSION"):
        table.alter.add_columns("_COMMIT_VERSION BIGINT")
    with pytest.raises(deltars.ValidationError, match="_commit_timestamp"):
        table.write(pa.table({"id": [1], "_commit_timestamp": [1]}), merge_schema=True)
    catalog.create_table("fine", "id BIGINT, _change_type STRING")
    with pytest.raises(deltars.ValidationError, match="_change_type"):
        catalog.set_properties("fine", FEED)
    assert (table.version, catalog.table("fine").version) == (1, 0)


def test_feed_is_turned_on_before_rows_are_changed(catalog: deltars.Catalog) -> None:
    table = _table(catalog, {})
    tx = catalog.begin()
    tx.delete("t", "id = 0")
    tx.alter("t").set_properties(FEED)
    with pytest.raises(deltars.ValidationError, match="turned the change data feed on after") as refused:
        tx.commit()
    assert "first" in str(refused.value.hint)
    with catalog.begin() as tx:
        tx.alter("t").set_properties(FEED)
        tx.delete("t", "id = 1")
    assert _last(table) == [("delete", 1, 0)]
    with catalog.begin() as tx:
        tx.write("t", _rows(9))
        tx.alter("t").unset_properties(["delta.enableChangeDataFeed"])
        tx.update("t", {"v": "1"}, "id = 2")
    # Without the feed, an update is a delete and an insert.
    assert _last(table) == [("delete", 2, 0), ("insert", 2, 1), ("insert", 9, 0)]


def test_changes_of_other_rows_of_one_file_keep_their_feeds(catalog: deltars.Catalog) -> None:
    table = _table(catalog, FEED | VECTORS)
    first, second = (catalog.begin(isolation="serializable") for _ in range(2))
    first.delete("t", "id = 0")
    second.update("t", {"v": "1"}, "id = 1")
    first.commit()
    second.commit()
    assert _last(table) == [(POST, 1, 1), (PRE, 1, 0)]
    assert [row["id"] for row in table.changes(2, 2).to_arrow().to_pylist()] == [0]
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2, 3, 4]


def test_rows_keep_their_ids_where_the_feed_is_on(catalog: deltars.Catalog) -> None:
    table = _table(catalog, FEED | {"delta.enableRowTracking": "true"})
    table.update({"v": "1"}, "id = 0")
    assert _last(table) == [(POST, 0, 1), (PRE, 0, 0)]
    table.merge(_rows(0, 9, v=7), "t.id = s.id").when_matched_delete().when_not_matched_insert_all().execute()
    assert _last(table) == [("delete", 0, 1), ("insert", 9, 7)]
    assert table.changes(3).schema.names == ("id", "v", "_change_type", "_commit_version", "_commit_timestamp")


def test_merge_that_adds_a_column_has_null_in_old_images(catalog: deltars.Catalog) -> None:
    table = _table(catalog)
    source = pa.table({"id": [0], "v": [1], "more": ["x"]})
    table.merge(source, "t.id = s.id", merge_schema=True).when_matched_update_all().execute()
    found = table.changes(2).to_arrow().select(["_change_type", "more"]).to_pylist()
    assert sorted(row["_change_type"] + str(row["more"]) for row in found) == [POST + "x", PRE + "None"]


@STORAGES
def test_commit_that_fails_leaves_nothing_but_files_that_a_full_vacuum_deletes(
    catalog: deltars.Catalog, properties: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _table(catalog, properties)

    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(CatalogSession, "commit", die)
        with pytest.raises(KeyboardInterrupt):
            table.update({"v": "1"}, "id = 0")
    feed = Path(table.location) / "_change_data"
    assert len(list(feed.iterdir())) == 1
    assert table.version == 1
    assert _last(table) == [("insert", number, 0) for number in range(5)]
    table.update({"v": "2"}, "id = 0")
    assert _last(table) == [(POST, 0, 2), (PRE, 0, 0)]
    table.vacuum(retention=timedelta(0), full=True, force=True)
    assert len(list(feed.iterdir())) <= 1


@pytest.mark.soak
@STORAGES
def test_interrupt_at_any_moment_leaves_a_version_with_its_feed_or_none(
    catalog: deltars.Catalog, properties: dict[str, str]
) -> None:
    table = _table(catalog, properties)
    with Clock() as clock:
        table.update({"v": "v + 1"}, "id = 0")
    moments = clock.places
    drawn = moments if is_soak() else random.Random(seed()).sample(moments, 8)
    value = 1
    for moment in drawn:
        with Clock(moment), pytest.raises(KeyboardInterrupt):
            table.update({"v": "v + 1"}, "id = 0")
        now = table.to_arrow(where="id = 0")["v"].to_pylist()
        assert now in ([value], [value + 1])
        if now == [value + 1]:
            value += 1
        assert _last(table) == [(POST, 0, value), (PRE, 0, value - 1)], moment
    record("interrupts of a change with a feed", moments=len(drawn))
