"""`format("deltasql")`: batch reads and writes, the sink and the source of streams, found by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import deltars

pytestmark = [pytest.mark.backends("sqlite"), pytest.mark.spark]

_EVERYTHING = (
    "id", "CAST(id AS INT) i", "CAST(id AS STRING) s", "TIMESTAMP'2026-01-01 10:00:00' + make_interval(0, 0, 0, id) t",
    "TIMESTAMP_NTZ'2026-01-01 10:00:00' n", "DATE'2026-01-01' d", "CAST(1.5 AS DECIMAL(10, 2)) m", "id > 1 b",
    "CAST('NaN' AS DOUBLE) f", "CAST('ab' AS BINARY) y", "array(id, null) a", "map('k', id) p",
    "struct(id AS x, array(struct('z' AS q)) AS w) r", "CAST(NULL AS STRING) `odd.name`",
)  # fmt: skip


def uri(catalog: deltars.Catalog, table: str) -> str:
    return f"{catalog.uri}/{table}"


def load(spark: SparkSession, catalog: deltars.Catalog, table: str, **options: Any) -> DataFrame:
    return spark.read.format("deltasql").options(**options).load(uri(catalog, table))


def run(stream: DataFrame, place: str, checkpoint: Path, mode: str = "append", **options: Any) -> StreamingQuery:
    writer = stream.writeStream.format("deltasql").outputMode(mode).options(**options)
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    while True:
        query = writer.start(place)
        try:
            query.awaitTermination()
            return query
        except StreamingQueryException as error:
            # On a busy machine a Python worker needs longer to start than Spark waits. A query can always be repeated.
            if "failed to connect back" not in str(error):
                raise


def ids(catalog: deltars.Catalog, table: str) -> list[int]:
    return sorted(catalog.table(table).to_arrow()["id"].to_pylist())


def test_rows_of_every_type_come_back_as_they_were(spark: SparkSession, catalog: deltars.Catalog) -> None:
    df = spark.range(4).selectExpr(*_EVERYTHING)
    df.write.format("deltasql").mode("append").option("userMetadata", "first").save(uri(catalog, "features"))
    [entry] = catalog.table("features").history()
    assert (entry.operation, entry.user_metadata) == ("CREATE TABLE AS SELECT", "first")
    read = load(spark, catalog, "features")
    ours = catalog.read("features", spark=spark)
    assert sorted(map(str, read.collect())) == sorted(map(str, ours.collect())) == sorted(map(str, df.collect()))
    assert [field.dataType for field in read.schema] == [field.dataType for field in ours.schema]
    catalog.write("features", df.limit(1))
    assert read.count() == 4
    assert load(spark, catalog, "features", versionAsOf=0, where="id > 1").count() == 2


@pytest.mark.soak(only=True)
def test_frame_keeps_its_version_and_options_choose_another(spark: SparkSession, catalog: deltars.Catalog) -> None:
    first = catalog.write("t", spark.range(3))
    df = load(spark, catalog, "t")
    catalog.write("t", spark.range(3, 5))
    moment = catalog.table("t").history()[0].committed_at
    assert df.count() == 3
    assert load(spark, catalog, "t", where="id >= 3").count() == 2
    assert load(spark, catalog, "t", asOf=str(first.txn_id)).count() == 3
    assert load(spark, catalog, "t", versionAsOf=0).where("id > 1").count() == 1
    assert load(spark, catalog, "t", timestampAsOf=moment.isoformat()).count() == 5
    for options, text in (
        ({"versionAsOf": 9}, "there is no version 9"),
        ({"versionAsOf": 0, "asOf": str(first.txn_id)}, "exclude each other"),
        ({"timestampAsOf": "2026-01-01"}, "must be a time with its zone"),
        ({"verionAsOf": 0}, "Did you mean versionAsOf"),
    ):
        with pytest.raises(PySparkException, match=text):
            load(spark, catalog, "t", **options).count()
    with pytest.raises(PySparkException, match="has no such column"):
        spark.read.format("deltasql").schema("id BIGINT, x INT").load(uri(catalog, "t")).count()


@pytest.mark.soak(only=True)
def test_write_has_the_options_of_delta(spark: SparkSession, catalog: deltars.Catalog) -> None:
    def write(df: DataFrame, mode: str = "append", **options: Any) -> None:
        df.write.format("deltasql").mode(mode).options(**options).save(uri(catalog, "t"))

    write(spark.range(4).selectExpr("id", "id % 2 AS k"), partitionBy="k")
    assert catalog.table("t").snapshot().metadata.partition_columns == ["k"]
    write(spark.range(4, 6).selectExpr("id", "id % 2 AS k"), txnAppId="load", txnVersion=1)
    write(spark.range(6, 9).selectExpr("id", "id % 2 AS k"), txnAppId="load", txnVersion=1)
    assert ids(catalog, "t") == [0, 1, 2, 3, 4, 5]
    write(spark.range(10, 11).selectExpr("id", "0L AS k"), "overwrite", replaceWhere="k = 0")
    assert ids(catalog, "t") == [1, 3, 5, 10]
    write(spark.range(11, 12).selectExpr("id", "1L AS k", "'x' AS note"), mergeSchema="true")
    with pytest.raises(PySparkException, match=r"deltars\.errors\.\w+: "):
        write(spark.range(1).selectExpr("'a' AS id", "0L AS k"))
    catalog.table("t").alter.add_constraint("small", "id < 100")
    with pytest.raises(PySparkException, match="a row violates"):
        write(spark.range(100, 101).selectExpr("id", "1L AS k"))
    assert ids(catalog, "t") == [1, 3, 5, 10, 11]


def test_stream_of_a_table_into_a_table_is_exactly_once(
    spark: SparkSession, catalog: deltars.Catalog, tmp_path: Path
) -> None:
    catalog.write("source", spark.range(4))
    catalog.write("source", spark.range(4, 6))
    checkpoint = tmp_path / "checkpoint"

    def copy(**options: Any) -> StreamingQuery:
        stream = spark.readStream.format("deltasql").options(**options).load(uri(catalog, "source"))
        return run(stream, uri(catalog, "copy"), checkpoint)

    copy(maxFilesPerTrigger=1)
    assert ids(catalog, "copy") == list(range(6))
    # Spark died between our commit and its own: the last batch is repeated.
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    for path in (last, last.with_name(f".{last.name}.crc")):
        path.unlink(missing_ok=True)
    catalog.table("source").optimize()
    catalog.write("source", spark.range(6, 8))
    copy()
    assert ids(catalog, "copy") == list(range(8))
    catalog.table("source").delete("id = 0")
    with pytest.raises(StreamingQueryException, match="skipChangeCommits"):
        copy()
    copy(skipChangeCommits="true")
    assert ids(catalog, "copy") == list(range(8))


@pytest.mark.soak(only=True)
def test_complete_mode_replaces_the_table_and_a_new_checkpoint_is_noticed(
    spark: SparkSession, catalog: deltars.Catalog, tmp_path: Path
) -> None:
    catalog.write("source", spark.range(6))

    def totals(checkpoint: str) -> None:
        stream = spark.readStream.format("deltasql").load(uri(catalog, "source"))
        counted = stream.groupBy((stream.id % 2).alias("id")).count()
        run(counted, uri(catalog, "totals"), tmp_path / checkpoint, "complete", txnAppId="totals")

    totals("a")
    catalog.write("source", spark.range(6, 9))
    totals("a")
    found = {row["id"]: row["count"] for row in catalog.table("totals").to_arrow().to_pylist()}
    assert found == {0: 5, 1: 4}
    with pytest.raises(StreamingQueryException, match="was committed by another query"):
        totals("b")
    # Without its checkpoint among the options, the sink cannot know the stream.
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path / "c"))
    try:
        stream = spark.readStream.format("deltasql").load(uri(catalog, "source"))
        writer = stream.writeStream.format("deltasql").trigger(availableNow=True)
        with pytest.raises(StreamingQueryException, match="txnAppId"):
            writer.start(uri(catalog, "other")).awaitTermination()
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
