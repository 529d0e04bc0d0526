"""`table.changes` and `catalog.changes`: which versions they read, and what they deliver without a change data feed."""

from __future__ import annotations

import math
import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import deltars
from deltars.spark.read import changes
from tests.changes.rows import events, sorted_events

VECTORS = {"delta.enableDeletionVectors": "true"}
DDL = "id BIGINT, v STRING, x DOUBLE, m MAP<STRING, INT>, l ARRAY<STRUCT<a: DOUBLE>>, s STRUCT<a: DOUBLE>, p STRING"


def _rows(*ids: int) -> pa.Table:
    row: dict[str, Any] = {"v": "a", "m": [("k", 1)], "l": [{"a": math.nan}], "s": {"a": None}}
    rows = [
        row | {"id": number, "x": [0.0, math.nan, None][number % 3], "p": "xy"[number % 2] if number else None}
        for number in ids
    ]
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("v", pa.string()),
            ("x", pa.float64()),
            ("m", pa.map_(pa.string(), pa.int32())),
            ("l", pa.list_(pa.struct([("a", pa.float64())]))),
            ("s", pa.struct([("a", pa.float64())])),
            ("p", pa.string()),
        ]
    )
    return pa.Table.from_pylist(rows, schema=schema)


def _change_everything(catalog: deltars.Catalog, name: str, properties: dict[str, str]) -> deltars.Table:
    table = catalog.create_table(name, DDL, partition_by="p", properties=properties)
    table.write(_rows(0, 1, 2, 3, 3))
    table.delete("id = 1")
    table.update({"v": "'b'"}, "id >= 3")
    table.write(_rows(2, 7), "overwrite")
    table.write(_rows(8), "overwrite", replace_where="id >= 7")
    table.optimize()
    table.restore(1)
    return table


def _net(version: int, change: str, *rows: tuple[int, str]) -> list[tuple[int, str, int, str]]:
    return [(version, change, number, v) for number, v in rows]


EXPECTED = sorted(
    [
        *_net(1, "insert", (0, "a"), (1, "a"), (2, "a"), (3, "a"), (3, "a")),
        *_net(2, "delete", (1, "a")),
        *_net(3, "delete", (3, "a"), (3, "a")),
        *_net(3, "insert", (3, "b"), (3, "b")),
        *_net(4, "delete", (0, "a"), (3, "b"), (3, "b")),
        *_net(4, "insert", (7, "a")),
        *_net(5, "delete", (7, "a")),
        *_net(5, "insert", (8, "a")),
        # Version 6 is the compaction.
        *_net(7, "delete", (8, "a")),
        *_net(7, "insert", (0, "a"), (1, "a"), (3, "a"), (3, "a")),
    ]
)


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("properties", [{}, VECTORS], ids=["copies", "vectors"])
def test_without_a_feed_unchanged_rows_of_rewritten_files_cancel_out(
    catalog: deltars.Catalog, properties: dict[str, str], spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _change_everything(catalog, "t", properties)
    found = table.changes(0).to_arrow()
    seen = [
        (row["_commit_version"], row["_change_type"], row["id"], row["v"])
        for row in found.select(["_commit_version", "_change_type", "id", "v"]).to_pylist()
    ]
    assert sorted(seen) == EXPECTED
    assert [row[0] for row in seen] == sorted(row[0] for row in seen)
    times = {entry.version: entry.in_commit_timestamp for entry in table.history()}
    for row in found.to_pylist():
        assert row["_commit_timestamp"].timestamp() * 1000 == pytest.approx(times[row["_commit_version"]], abs=0.01)
    frame = table.changes(0).read()
    assert frame.columns == found.column_names == list(table.changes(0).schema.names)
    assert sorted_events(frame.toArrow()) == sorted_events(found)
    monkeypatch.setattr(changes, "HERE_BYTES", -1)
    assert sorted_events(table.changes(1, 3).read().toArrow()) == sorted_events(table.changes(1, 3).to_arrow())


@pytest.mark.backends("sqlite")
def test_range_is_given_by_versions_times_tags_and_transactions(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT")
    first = table.write(pa.table({"id": [1]}))
    tag = catalog.tag("one")
    second = table.write(pa.table({"id": [2]}))
    table.write(pa.table({"id": [3]}))
    catalog.create_table("other", "id BIGINT")
    times = {entry.version: entry.in_commit_timestamp for entry in table.history()}

    def at(version: int, more_ms: int = 0) -> datetime:
        return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=times[version] + more_ms)

    def ids(start: Any, end: Any = None) -> list[int]:
        return [row["id"] for row in table.changes(start, end).to_arrow().to_pylist()]

    assert ids(0) == [1, 2, 3]
    assert ids(1, 2) == [1, 2]
    assert ids(at(2)) == ids(at(2).isoformat()) == [2, 3]
    assert ids(at(1), at(2, -1 if times[2] - 1 >= times[1] else 0))[:1] == [1]
    # A tag or a transaction is a state: changes start after it, and end with it.
    assert ids("one") == ids(tag) == ids(first) == ids(first.txn_id) == [2, 3]
    assert ids("one", second) == ids(first, str(second.txn_id)) == [2]
    assert ids(0, "one") == [1]
    assert ids(4) == ids("one", "one") == ids(datetime.now(UTC)) == []
    assert table.changes(4).schema.names == table.changes(0).schema.names
    with pytest.raises(deltars.ValidationError, match="start is version 5"):
        table.changes(5)
    with pytest.raises(deltars.ValidationError, match="start is version 3, after version 1"):
        table.changes(3, 1)
    for start, end in ((-1, None), (0, 9)):
        with pytest.raises(deltars.VersionNotFound):
            table.changes(start, end)
    with pytest.raises(deltars.ValidationError):
        table.changes("no such tag")
    with pytest.raises(deltars.ValidationError):
        table.changes(True)
    copy = pickle.loads(pickle.dumps(table.changes(2)))
    assert copy.to_pandas()["id"].tolist() == copy.to_polars()["id"].to_list() == [2, 3]
    assert pa.table(copy).num_rows == copy.to_duckdb().fetchall().__len__() == 2


def test_catalog_delivers_every_transaction_once_in_commit_order(catalog: deltars.Catalog) -> None:
    a, b = (catalog.create_table(name, "id BIGINT") for name in "ab")
    began = a.write(pa.table({"id": [0]}))
    with catalog.begin(user_metadata="both") as both:
        both.write("a", pa.table({"id": [1]}))
        both.write("b", pa.table({"id": [1]}))
    b.delete("id = 1")
    c = catalog.create_table("c", "id BIGINT")
    c.write(pa.table({"id": [5]}))
    gone = catalog.create_table("gone", "id BIGINT")
    gone.write(pa.table({"id": [9]}))
    catalog.drop_table("gone")
    found = catalog.changes(began)
    assert [sorted(one.tables) for one in found] == [["a", "b"], ["b"], ["c"], ["c"]]
    assert [one.commit_ts for one in found] == sorted(one.commit_ts for one in found)
    assert (found[0].txn_id, found[0].user_metadata) == (both.result.txn_id, "both")
    assert [events(one.tables[name].to_arrow()) for one in found for name in sorted(one.tables)] == [
        [(2, "insert", 1)],
        [(1, "insert", 1)],
        [(2, "delete", 1)],
        [],
        [(1, "insert", 5)],
    ]
    assert [one.txn_id for one in catalog.changes(found[1].txn_id)] == [one.txn_id for one in found[2:]]
    assert catalog.changes(found[-1].txn_id) == []
    assert [sorted(one.tables) for one in catalog.changes(began, tables="a")] == [["a"]]
    assert "transaction" in found[0]._repr_html_()


@pytest.mark.backends("sqlite")
def test_schema_of_the_last_version_counts_and_types_that_changed_are_refused(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id INT")
    table.write(pa.table({"id": pa.array([1], pa.int32())}))
    table.write(pa.table({"id": pa.array([2], pa.int32()), "more": ["x"]}), merge_schema=True)
    assert table.changes(1).to_arrow().drop_columns(["_commit_timestamp"]).to_pylist() == [
        {"id": 1, "more": None, "_change_type": "insert", "_commit_version": 1},
        {"id": 2, "more": "x", "_change_type": "insert", "_commit_version": 2},
    ]
    assert table.changes(1, 1).schema.names == ("id", "_change_type", "_commit_version", "_commit_timestamp")
    table.write(pa.table({"id": ["three"]}), "overwrite", overwrite_schema=True)
    with pytest.raises(deltars.SchemaMismatch, match="column id had another type in version 2") as refused:
        table.changes(2).to_arrow()
    assert "two calls" in str(refused.value.hint)
    assert table.changes(1, 2).to_arrow().num_rows == 2
    catalog.create_table("taken", "id INT, _Change_Type STRING")
    with pytest.raises(deltars.ValidationError, match="has the column _Change_Type"):
        catalog.table("taken").changes(0).to_arrow()


@pytest.mark.backends("sqlite")
def test_history_and_files_that_are_gone_are_said(catalog: deltars.Catalog) -> None:
    table = catalog.create_table(
        "t", "id BIGINT", properties={"delta.deletedFileRetentionDuration": "interval 0 hours"}
    )
    for number in range(3):
        table.write(pa.table({"id": [number]}), "overwrite")
    table.vacuum(retention=timedelta(0), force=True)
    with pytest.raises(deltars.StorageError, match="missing"):
        table.changes(1).to_arrow()
    table.expire(timedelta(0), force=True)
    with pytest.raises(deltars.HistoryExpired, match="expired") as expired:
        table.changes(1)
    assert expired.value.earliest is not None
    with pytest.raises(deltars.HistoryExpired, match="expired"):
        table.changes(datetime(2020, 1, 1, tzinfo=UTC))
