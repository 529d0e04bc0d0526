"""Changes that Arrow could compute, but not with Spark's result: by the session's time zone, or the table's rules."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import deltars
from deltars.data.row_change import Clause, Delete, Merge, Update
from deltars.protocol import Metadata, StructType
from deltars.protocol.ddl import schema_from_ddl
from deltars.transaction.spark_only import spark_only

pytestmark = pytest.mark.backends("sqlite")

SCHEMA = "id BIGINT, d DATE, ts TIMESTAMP, n TIMESTAMP_NTZ, at STRUCT<ts: TIMESTAMP>"


def _metadata(schema: str = SCHEMA, **properties: str) -> Metadata:
    return Metadata(id="x", schema_string=schema_from_ddl(schema).to_json(), configuration=properties)


def _needs_spark(statement: Delete | Update | Merge, metadata: Metadata, source: StructType | None = None) -> bool:
    assert spark_only(statement, metadata, source, "UTC") is None
    reason = spark_only(statement, metadata, source, "America/New_York")
    assert reason is None or "America/New_York" in reason
    return reason is not None


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"ts": "d"}, True),
        ({"ts": "n"}, True),
        ({"at.ts": "n"}, True),
        ({"d": "ts"}, True),
        ({"ts": "NULL"}, False),
        ({"d": "d"}, False),
        ({"n": "d"}, False),
        ({"id": "id + 1"}, False),
    ],
)
def test_a_value_that_becomes_a_timestamp_depends_on_the_zone(values: dict[str, str], expected: bool) -> None:
    assert _needs_spark(Update(values, None), _metadata()) is expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("id BIGINT, ts TIMESTAMP, d DATE", False),
        ("id BIGINT, ts DATE, d DATE", True),
        ("id BIGINT, ts TIMESTAMP_NTZ, d DATE", True),
        ("id BIGINT, TS TIMESTAMP, d TIMESTAMP", True),
        ("id INT, ts TIMESTAMP, d DATE", False),
    ],
)
def test_a_source_column_of_another_type_depends_on_the_zone(source: str, expected: bool) -> None:
    clause = Clause("not_matched", "insert", None, {"id": "s.id", "ts": "s.ts", "d": "s.d"}, is_source=True)
    merge = Merge(None, "t.id = s.id", (clause,), "t", "s")
    assert _needs_spark(merge, _metadata("id BIGINT, ts TIMESTAMP, d DATE"), schema_from_ddl(source)) is expected


def test_rules_of_the_table_depend_on_the_zone_if_rows_are_written() -> None:
    generated = _metadata("id BIGINT, ts TIMESTAMP, day DATE GENERATED ALWAYS AS (CAST(ts AS DATE))")
    checked = _metadata("id BIGINT, ts TIMESTAMP", **{"delta.constraints.new": "ts > '2020-01-01'"})
    for metadata in (generated, checked):
        assert _needs_spark(Update({"id": "id + 1"}, None), metadata)
        assert not _needs_spark(Delete("id = 1"), metadata)


def test_a_default_depends_on_the_zone_if_it_is_used() -> None:
    metadata = _metadata("id BIGINT, ts TIMESTAMP DEFAULT TIMESTAMP '2026-01-01 00:00:00'")
    insert = Clause("not_matched", "insert", None, {"id": "s.id"})
    source = schema_from_ddl("id BIGINT")
    assert _needs_spark(Merge(None, "t.id = s.id", (insert,), "t", "s"), metadata, source)
    assert not _needs_spark(Update({"id": "id + 1"}, None), metadata)


def test_a_rule_that_only_spark_computes_is_named() -> None:
    metadata = _metadata("id BIGINT, name STRING", **{"delta.constraints.upper": "upper(name) = name"})
    assert "upper" in (spark_only(Update({"id": "1"}, None), metadata, None, "UTC") or "").lower()
    assert spark_only(Delete("id = 1"), metadata, None, "UTC") is None
    default = _metadata("id BIGINT, name STRING DEFAULT upper('x')")
    assert spark_only(Update({"id": "1"}, None), default, None, "UTC") is None


def test_small_changes_use_the_session_zone_and_rules_of_spark(catalog: deltars.Catalog, spark: SparkSession) -> None:
    moment = datetime(2026, 1, 1, 3, tzinfo=UTC)
    table = catalog.create_table("t", "id BIGINT, ts TIMESTAMP, name STRING")
    table.write(pa.table({"id": [1], "ts": pa.array([moment], pa.timestamp("us", "UTC")), "name": ["A"]}))
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        source = pa.table({"id": [1], "ts": [date(2026, 2, 1)], "name": ["B"]})
        table.merge(source, "t.id = s.id").when_matched_update_all().execute()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before or "UTC")
    assert table.to_arrow()["ts"].to_pylist() == [datetime(2026, 2, 1, 5, tzinfo=UTC)]
    ruled = catalog.create_table(
        "u", "id BIGINT, name STRING", properties={"delta.constraints.u": "upper(name) = name"}
    )
    ruled.write(spark.createDataFrame([(1, "A")], "id long, name string"))
    assert ruled.update({"id": "id + 1"}).rows_updated == 1


def test_a_zone_that_python_does_not_know_is_not_utc(catalog: deltars.Catalog, spark: SparkSession) -> None:
    moment = datetime(2026, 1, 1, 3, tzinfo=UTC)
    table = catalog.create_table("t", "id BIGINT, ts TIMESTAMP")
    table.write(pa.table({"id": [1, 2], "ts": pa.array([moment] * 2, pa.timestamp("us", "UTC"))}))
    spark.conf.set("spark.sql.session.timeZone", "PST")
    try:
        merge = table.merge(pa.table({"id": [1]}), "t.id = s.id AND t.ts < '2026-01-01'")
        assert merge.when_matched_delete().execute().rows_deleted == 1
        assert table.delete("ts < '2026-01-01'").rows_deleted == 1
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
