"""DataFrames of PySpark in transactions."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import deltars
from deltars.errors import ValidationError

DAY_1, DAY_2 = date(2026, 1, 1), date(2026, 1, 2)


@pytest.fixture
def frame(spark: SparkSession) -> Any:
    def make(*rows: tuple[int | None, date], schema: str = "id BIGINT, day DATE") -> DataFrame:
        return spark.createDataFrame(list(rows), schema)

    return make


def content(table: deltars.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in table.read().collect())


@pytest.mark.requirement("M-04")
def test_frames_of_two_tables_become_visible_together(catalog: deltars.Catalog, spark: SparkSession) -> None:
    features = spark.createDataFrame([(1, 0.5), (2, 0.7)], "id BIGINT, score DOUBLE")
    labels = spark.createDataFrame([(1, "cat"), (2, "dog")], "id BIGINT, label STRING")
    with catalog.begin() as tx:
        tx.write(table="features", df=features, mode="append")
        tx.write(table="labels", df=labels, mode="append")
        assert not catalog.table_exists("features")
    assert tx.result.versions == {"features": 0, "labels": 0}
    cut = catalog.snapshot(as_of=tx.id)
    joined = cut.read("features", spark=spark).join(cut.read("labels", spark=spark), "id")
    assert sorted(map(tuple, joined.collect())) == [(1, 0.5, "cat"), (2, 0.7, "dog")]


@pytest.mark.requirement("M-04")
def test_frame_that_fails_half_way_leaves_nothing_of_the_other(catalog: deltars.Catalog, spark: SparkSession) -> None:
    good = spark.range(3)
    bad = spark.range(3).selectExpr("id", "raise_error('no') AS label")

    def write_both() -> None:
        with catalog.begin() as tx:
            tx.write("features", good)
            tx.write("labels", bad.selectExpr("id", "CAST(label AS STRING) AS label"))

    with pytest.raises(PySparkException, match="no"):
        write_both()
    assert catalog.tables() == []
    catalog.write("features", good)
    assert catalog.table("features").version == 0


@pytest.mark.backends("sqlite")
def test_ten_tables_are_created_together_or_not_at_all(catalog: deltars.Catalog, spark: SparkSession) -> None:
    names = [f"t{number}" for number in range(10)]
    good = spark.range(4).selectExpr("id", "id % 2 AS p")
    bad = good.selectExpr("id", "if(id = 3, raise_error('no'), p) AS p")

    def write_all(last: DataFrame) -> None:
        with catalog.begin() as tx:
            for name in names:
                frame = last if name == names[-1] else good
                tx.write(name, frame, partition_by=["p"], properties={"delta.appendOnly": "true"})
            assert catalog.tables() == []

    with pytest.raises(PySparkException, match="no"):
        write_all(bad)
    assert catalog.tables() == []
    write_all(good)
    cut = catalog.snapshot()
    assert cut.versions == dict.fromkeys(names, 0)
    for name in names:
        metadata = cut.table(name).metadata
        assert (metadata.partition_columns, metadata.configuration["delta.appendOnly"]) == (["p"], "true")
        assert content(catalog.table(name)) == [(n, n % 2) for n in range(4)]


@pytest.mark.backends("sqlite")
def test_transaction_reads_its_own_frames(catalog: deltars.Catalog, frame: Any) -> None:
    catalog.write("events", frame((1, DAY_1)))
    with catalog.begin() as tx:
        tx.write("events", frame((2, DAY_2)))
        assert tx.read("events", columns=["id"]).orderBy("id").collect() == [(1,), (2,)]
        assert tx.read("events", where="id > 1").collect() == [(2, DAY_2)]
        catalog.write("events", frame((3, DAY_2)))
        assert tx.read("events").count() == 2
        tx.rollback()
    assert content(catalog.table("events")) == [(1, DAY_1), (3, DAY_2)]


@pytest.mark.backends("sqlite")
def test_modes_of_overwriting_with_frames(catalog: deltars.Catalog, frame: Any) -> None:
    catalog.write("events", frame((1, DAY_1), (2, DAY_2)), partition_by=["day"])
    events = catalog.table("events")
    catalog.write("events", frame((3, DAY_2)), "overwrite", partition_overwrite="dynamic")
    assert content(events) == [(1, DAY_1), (3, DAY_2)]
    catalog.write("events", frame((4, DAY_1)), "overwrite", replace_where="day = DATE '2026-01-01'")
    assert content(events) == [(3, DAY_2), (4, DAY_1)]
    # What only Spark can judge is left to Spark.
    catalog.write("events", frame((13, DAY_2)), "overwrite", replace_where="id % 10 = 3")
    assert content(events) == [(4, DAY_1), (13, DAY_2)]
    catalog.write("events", frame((9, DAY_1)), "overwrite")
    assert content(events) == [(9, DAY_1)]


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo", "PST"])
def test_replace_where_is_in_the_time_zone_of_the_session(
    catalog: deltars.Catalog, spark: SparkSession, zone: str
) -> None:
    moments = [datetime(2026, 1, 1, hour, tzinfo=UTC) for hour in range(0, 24, 2)]
    moments += [moment + timedelta(days=1) for moment in moments]
    old = pa.table({"id": [0] * len(moments), "at": pa.array(moments, pa.timestamp("us", "UTC"))})
    catalog.write("events", old, partition_by=["at"])
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        where = "at >= '2026-01-02'"
        staying = catalog.table("events").read(spark=spark).where(f"NOT ({where})").count()
        assert 0 < staying < len(moments)
        new = spark.sql("SELECT 1L AS id, TIMESTAMP '2026-01-02 12:00:00' AS at")
        catalog.write("events", new, "overwrite", replace_where=where)
        found = catalog.table("events").read(spark=spark)
        assert found.where(f"NOT ({where})").count() == staying
        assert [row.id for row in found.where(where).collect()] == [1]
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.backends("sqlite")
def test_frame_with_a_row_outside_replace_where_is_refused(catalog: deltars.Catalog, frame: Any) -> None:
    catalog.write("events", frame((1, DAY_1)))
    with pytest.raises(ValidationError, match="replace_where"):
        catalog.write("events", frame((1, DAY_1), (2, DAY_2)), "overwrite", replace_where="id < 2")
    assert content(catalog.table("events")) == [(1, DAY_1)]


@pytest.mark.backends("sqlite")
def test_frame_that_breaks_a_constraint_is_refused(catalog: deltars.Catalog, frame: Any) -> None:
    properties = {"delta.constraints.even": "id % 2 = 0", "delta.constraints.dated": "day IS NOT NULL"}
    catalog.create_table("events", "id BIGINT, day DATE", properties=properties)
    catalog.write("events", frame((2, DAY_1)))
    with pytest.raises(ValidationError, match="even"):
        catalog.write("events", frame((2, DAY_1), (3, DAY_1)))
    with pytest.raises(ValidationError, match="dated"):
        catalog.write("events", frame((2, DAY_1)).select("id"))
    assert content(catalog.table("events")) == [(2, DAY_1)]


@pytest.mark.backends("sqlite")
def test_schema_of_frames_is_merged(catalog: deltars.Catalog, frame: Any) -> None:
    catalog.write("events", frame((1, DAY_1)))
    wider = frame((2, DAY_2)).selectExpr("id", "day", "named_struct('a', 1) AS more")
    catalog.write("events", wider, merge_schema=True)
    deeper = frame((3, DAY_2)).selectExpr("id", "day", "named_struct('a', 2, 'b', 'x') AS more")
    catalog.write("events", deeper, merge_schema=True)
    found = [(row.id, row.more) for row in catalog.table("events").read().orderBy("id").collect()]
    assert found == [(1, None), (2, (1, None)), (3, (2, "x"))]


@pytest.mark.backends("sqlite")
def test_views_of_a_cut_join_consistently(catalog: deltars.Catalog, frame: Any, spark: SparkSession) -> None:
    with catalog.begin() as tx:
        tx.write("a", frame((1, DAY_1)))
        tx.write("b", frame((1, DAY_1)))
    cut = catalog.snapshot()
    catalog.write("a", frame((2, DAY_1)))
    assert cut.register_views(spark=spark, prefix="cut_") == ["cut_a", "cut_b"]
    assert spark.sql("SELECT count(*) FROM cut_a JOIN cut_b USING (id)").collect() == [(1,)]
    assert spark.table("cut_a").count() == 1
