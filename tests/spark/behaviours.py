"""What tables do for a Spark user, wherever that Spark runs: one suite for every place.

    local · Connect · a standalone cluster · an object store without S3A · one with it

A behaviour is a function of a session and a catalog, with tables of its own; it returns, or an assertion fails. `make
test` runs the core of them in each place, `make soak-all` all.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import deltars
from deltars.errors import SchemaMismatch, ValidationError
from deltars.spark import SparkPlane
from deltars.transaction import read_size
from tests.support.scans import without_first_rows
from tests.support.soak import is_soak

Behaviour = Callable[[SparkSession, deltars.Catalog], None]

DAY_1, DAY_2 = date(2026, 1, 1), date(2026, 1, 2)


def chosen() -> dict[str, Behaviour]:
    """Those that this run has time for, by name."""
    return {behaviour.__name__: behaviour for behaviour in (*CORE, *(REST if is_soak() else ()))}


def ids(frame: DataFrame) -> list[int]:
    return sorted(row.id for row in frame.collect())


def content(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


# -- the core ----------------------------------------------------------------------------------------------------------


def two_tables_become_visible_together(spark: SparkSession, catalog: deltars.Catalog) -> None:
    frame = spark.range(0, 60, 1, 3).selectExpr("id", "id % 3 AS p", "concat('name ', id) AS name")
    with catalog.begin(timeout=600) as tx:
        tx.write("together_flat", frame)
        tx.write("together_parted", frame, partition_by=["p"])
        assert ids(tx.read("together_flat", where="id < 3", spark=spark)) == [0, 1, 2]
        assert not catalog.table_exists("together_flat")
    for name in ("together_flat", "together_parted"):
        table = catalog.table(name)
        assert ids(table.read(spark=spark)) == list(range(60))
        found = table.read(spark=spark, where="p = 1 AND upper(name) <> 'NAME 4' AND id < 10", columns=["id"])
        assert (found.columns, ids(found)) == (["id"], [1, 7])
        assert sorted(table.to_arrow()["id"].to_pylist()) == list(range(60))


def queries_and_views_see_one_cut(spark: SparkSession, catalog: deltars.Catalog) -> None:
    with catalog.begin(timeout=600) as tx:
        tx.write("cut_features", spark.range(5))
        tx.write("cut_labels", spark.range(5).selectExpr("id", "id * 10 AS clicks"))
    catalog.write("cut_labels", spark.sql("SELECT 4L AS id, 99L AS clicks"))
    query = "SELECT f.id, clicks FROM {0}cut_features f JOIN {0}cut_labels USING (id) WHERE clicks > 25 ORDER BY 1, 2"
    assert content(catalog.sql(query.format(""), spark=spark)) == [(3, 30), (4, 40), (4, 99)]
    then = content(catalog.sql(query.format(""), spark=spark, as_of=tx.id))
    catalog.snapshot(as_of=tx.id).register_views(spark=spark, tables=["cut_features", "cut_labels"], prefix="then_")
    assert then == content(spark.sql(query.format("then_"))) == [(3, 30), (4, 40)]


def what_is_refused_changes_nothing(spark: SparkSession, catalog: deltars.Catalog) -> None:
    table = catalog.create_table("refused", "id BIGINT NOT NULL, name STRING")
    table.alter.add_constraint("few", "coalesce(id, 0) < 100")
    catalog.write("refused", spark.range(3))
    refused: dict[str, type[deltars.DeltarsError]] = {
        "SELECT id FROM range(98, 102)": ValidationError,
        "SELECT id, 1 AS other FROM range(3)": SchemaMismatch,
        "SELECT nullif(id, 1) AS id FROM range(3)": SchemaMismatch,
    }
    for query, error in refused.items():
        try:
            catalog.write("refused", spark.sql(query))
        except error:
            continue
        raise AssertionError(query)
    assert ids(catalog.table("refused").read(spark=spark)) == [0, 1, 2]


# -- the rest ----------------------------------------------------------------------------------------------------------


def overwriting_leaves_what_it_should(spark: SparkSession, catalog: deltars.Catalog) -> None:
    def rows(*found: tuple[int, date]) -> DataFrame:
        return spark.createDataFrame(list(found), "id BIGINT, day DATE")

    catalog.write("events", rows((1, DAY_1), (2, DAY_2), (3, DAY_2)), partition_by=["day"])
    catalog.write("events", rows((13, DAY_2)), "overwrite", replace_where="id % 10 = 3")
    catalog.write("events", rows((4, DAY_1)), "overwrite", partition_overwrite="dynamic")
    table = catalog.table("events")
    assert [ids(table.read(spark=spark, version=version)) for version in range(3)] == [
        [1, 2, 3],
        [1, 2, 13],
        [2, 4, 13],
    ]
    assert ids(table.read(spark=spark, where="day = DATE'2026-01-02'")) == [2, 13]


def every_type_and_awkward_partitions_come_back(spark: SparkSession, catalog: deltars.Catalog) -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    rows = [
        (1, "a b/ü", Decimal("1.50"), noon, DAY_1, [1, None], {"k": 1.5}, (1, "x"), b"\0"),
        (2, "a=b%20", None, None, None, [], {}, None, None),
        (3, None, Decimal("-99.99"), noon.replace(year=1899), DAY_2, None, None, (None, None), b""),
    ]
    columns = (
        "id BIGINT, part STRING, d DECIMAL(9, 2), at TIMESTAMP, day DATE, a ARRAY<INT>, m MAP<STRING, DOUBLE>,"
        " s STRUCT<x: INT, y: STRING>, b BINARY"
    )
    frame = spark.createDataFrame(rows, columns)
    catalog.write("types", frame, partition_by=["part"])
    assert content(catalog.table("types").read(spark=spark)) == content(frame)
    assert ids(catalog.table("types").read(spark=spark, where="part = 'a=b%20' OR d > 1")) == [1, 2]


def renamed_columns_are_found(spark: SparkSession, catalog: deltars.Catalog) -> None:
    for mode in ("name", "id"):
        frame = spark.range(9).selectExpr("id", "named_struct('a b', array(id)) AS `s.t`", "id % 2 AS `p q`")
        name = f"mapped_{mode}"
        catalog.write(name, frame, partition_by=["p q"], properties={"delta.columnMapping.mode": mode})
        found = catalog.table(name).read(spark=spark, where="`p q` = 1 AND `s.t`.`a b`[0] > 2", columns=["id", "s.t"])
        assert ids(found) == [3, 5, 7]
        assert ids(catalog.table(name).read(spark=spark)) == list(range(9))


def many_files_and_deleted_rows_are_read_once(spark: SparkSession, catalog: deltars.Catalog) -> None:
    catalog.write("many", pa.table({"id": list(range(80))}), max_records_per_file=2)
    table = catalog.table("many")
    assert ids(table.read(spark=spark)) == list(range(80))
    scan = without_first_rows(catalog, "many")
    assert scan.files.num_rows == 40
    # Each file has two rows, and has lost its first.
    assert ids(SparkPlane().read(spark, scan)) == list(range(1, 80, 2))


def rows_are_changed_by_tasks(spark: SparkSession, catalog: deltars.Catalog) -> None:
    """By Spark's jobs: what is small would not need them."""
    small = read_size.SMALL_BYTES
    read_size.SMALL_BYTES = -1
    try:
        for vectors in ("false", "true"):
            name = f"changed_{vectors}"
            frame = spark.range(0, 40, 1, 2).selectExpr("id", "id % 2 AS p", "id * 2 AS v")
            properties = {"delta.enableDeletionVectors": vectors}
            catalog.write(name, frame, partition_by=["p"], properties=properties)
            source = spark.range(30, 50, 1, 2).selectExpr("id", "id % 2 AS p", "-id AS v")
            with catalog.begin(isolation="serializable", timeout=600) as tx:
                tx.delete(name, "id % 10 = 0", spark=spark)
                tx.update(name, {"v": "v + length(concat('x', id))"}, "id < 5", spark=spark)
                merge = tx.merge(name, source, "t.id = s.id", spark=spark).when_matched_update({"v": "s.v + t.id"})
                merge.when_not_matched_insert_all("s.id < 45").when_not_matched_by_source_delete("t.id = 7").execute()
            expected = {i: i * 2 + (2 if i < 5 else 0) for i in range(30) if i % 10 and i != 7}
            expected |= dict.fromkeys(range(31, 40), 0) | {i: -i for i in (30, *range(40, 45))}
            table = catalog.table(name)
            assert {row.id: row.v for row in table.read(spark=spark).collect()} == expected
            assert dict(zip(*table.to_arrow().select(["id", "v"]).to_pydict().values(), strict=True)) == expected
            assert table.version == 1
    finally:
        read_size.SMALL_BYTES = small


CORE: tuple[Behaviour, ...] = (
    two_tables_become_visible_together,
    queries_and_views_see_one_cut,
    what_is_refused_changes_nothing,
)
REST: tuple[Behaviour, ...] = (
    rows_are_changed_by_tasks,
    overwriting_leaves_what_it_should,
    every_type_and_awkward_partitions_come_back,
    renamed_columns_are_found,
    many_files_and_deleted_rows_are_read_once,
)
