"""Changed rows with values, names and zones that are easily taken wrong, by Arrow and by Spark."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import deltars
from deltars.spark.read import changes
from tests.changes.rows import sorted_events

pytestmark = pytest.mark.backends("sqlite")

HARD = (
    "id BIGINT, at TIMESTAMP, x DOUBLE, l ARRAY<DOUBLE>, s STRUCT<a: DOUBLE, b: ARRAY<STRUCT<c: FLOAT>>>,"
    " m MAP<STRING, DOUBLE>, ntz TIMESTAMP_NTZ"
)


def _hard(*ids: int, zero: float = 0.0) -> pa.Table:
    at = datetime(2026, 3, 29, 1, 30, tzinfo=UTC)  # within the hour that Berlin leaves out
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "at": pa.array([at] * len(ids), pa.timestamp("us", "UTC")),
            "x": pa.array([zero] * len(ids), pa.float64()),
            "l": pa.array([[zero, math.nan, None]] * len(ids), pa.list_(pa.float64())),
            "s": pa.array(
                [{"a": math.nan, "b": [{"c": zero}, None]}] * len(ids),
                pa.struct([("a", pa.float64()), ("b", pa.list_(pa.struct([("c", pa.float32())])))]),
            ),
            "m": pa.array([[("k", zero), ("n", None)]] * len(ids), pa.map_(pa.string(), pa.float64())),
            "ntz": pa.array([at.replace(tzinfo=None)] * len(ids), pa.timestamp("us")),
        }
    )


@pytest.fixture
def elsewhere(spark: SparkSession) -> Iterator[SparkSession]:
    """A session in another time zone."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", str(before))


def _change(catalog: deltars.Catalog, name: str, properties: dict[str, str]) -> deltars.Table:
    table = catalog.create_table(name, HARD, partition_by=["at"], properties=properties)
    table.write(_hard(1, 2, 3))
    # Row 1 gets the other zero everywhere, which is the same value. Row 2 goes.
    with catalog.begin() as tx:
        tx.delete(name, "id IN (1, 2)")
        tx.write(name, _hard(1, zero=-0.0))
    table.update({"x": "NULL"}, "id = 3")
    return table


def test_zeros_and_nan_are_equal_in_nested_values_too(catalog: deltars.Catalog) -> None:
    table = _change(catalog, "t", {})
    found = table.changes(2).to_arrow().select(["_commit_version", "_change_type", "id"]).to_pylist()
    assert [tuple(row.values()) for row in found] == [(2, "delete", 2), (3, "delete", 3), (3, "insert", 3)]


@pytest.mark.parametrize("feed", ["false", pytest.param("true", marks=pytest.mark.soak(only=True))])
def test_spark_reads_the_same_changes_in_another_time_zone(
    catalog: deltars.Catalog, elsewhere: SparkSession, monkeypatch: pytest.MonkeyPatch, feed: str
) -> None:
    table = _change(catalog, "t", {"delta.enableChangeDataFeed": feed})
    monkeypatch.setattr(changes, "HERE_BYTES", -1)
    frame = table.changes(0).read(spark=elsewhere)
    assert sorted_events(frame.toArrow()) == sorted_events(table.changes(0).to_arrow())


@pytest.mark.parametrize("feed", ["true", "false"])
def test_renamed_columns_are_read_by_their_new_names(catalog: deltars.Catalog, feed: str) -> None:
    properties = {"delta.columnMapping.mode": "name", "delta.enableChangeDataFeed": feed}
    table = catalog.create_table("t", "id BIGINT, p STRING, v BIGINT", partition_by=["p"], properties=properties)
    table.write(pa.table({"id": [1, 2], "p": ["a", "b"], "v": [10, 20]}))
    table.update({"v": "v + 1"}, "id = 1")
    table.alter.rename_column("v", "w")
    table.alter.rename_column("p", "part")
    table.alter.drop_column("w")
    table.alter.add_columns("v BIGINT")
    table.write(pa.table({"id": [3], "part": ["a"], "v": [30]}))

    def seen(end: int | None = None) -> list[dict[str, Any]]:
        found = table.changes(1, end).to_arrow().drop_columns(["_commit_version", "_commit_timestamp"])
        return sorted(found.to_pylist(), key=lambda row: (row["id"], row["_change_type"], str(row)))

    # The column v of the newest version is another one than that of the first.
    assert {row["v"] for row in seen() if row["id"] != 3} <= {None}
    assert [(row["id"], row["part"]) for row in seen()][-2:] == [(2, "b"), (3, "a")]
    assert {(row["id"], row["w"]) for row in seen(4)} == {(1, 10), (1, 11), (2, 20)}


def test_replaced_and_restored_rows_of_two_tables_are_one_transaction(catalog: deltars.Catalog) -> None:
    for name, properties in (("plain", {}), ("fed", {"delta.enableChangeDataFeed": "true"})):
        table = catalog.create_table(name, "id BIGINT, v BIGINT", properties=properties)
        table.write(pa.table({"id": [1, 2, 3], "v": [0, 0, 0]}))
    tag = catalog.tag("before")
    with catalog.begin() as tx:
        for name in ("plain", "fed"):
            tx.write(name, pa.table({"id": [2, 2], "v": [0, 9]}), "overwrite", replace_where="id >= 2")
    catalog.restore(as_of=tag.name)
    replaced, restored = catalog.changes("before")
    assert sorted(replaced.tables) == sorted(restored.tables) == ["fed", "plain"]

    def events(found: deltars.Changes) -> list[tuple[str, int, int]]:
        return sorted((row["_change_type"], row["id"], row["v"]) for row in found.to_arrow().to_pylist())

    assert events(replaced.tables["plain"]) == [("delete", 3, 0), ("insert", 2, 9)]
    # With a feed nothing cancels out, as in Delta.
    assert events(replaced.tables["fed"]) == [
        ("delete", 2, 0), ("delete", 3, 0), ("insert", 2, 0), ("insert", 2, 9),
    ]  # fmt: skip
    assert events(restored.tables["plain"]) == [("delete", 2, 9), ("insert", 3, 0)]
