"""`deltars.enable`: a session's own verbs work on tables of a catalog, and on nothing else."""

from __future__ import annotations

import contextvars
import logging
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, IllegalArgumentException, UnsupportedOperationException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.readwriter import DataFrameReader, DataFrameWriter, DataFrameWriterV2

import deltars
from deltars import Catalog
from deltars.enabled.enable import enabled_catalog
from deltars.errors import (
    ImportRefused,
    NotSupportedYet,
    SchemaMismatch,
    TableExists,
    TransactionClosed,
    ValidationError,
)
from deltars.tables import DeltaTable as OurDeltaTable
from tests.enabled.jobs import rows

pytestmark = pytest.mark.backends("sqlite")


@pytest.fixture
def enabled(spark: SparkSession, catalog: Catalog) -> Iterator[SparkSession]:
    deltars.enable(spark, catalog)
    yield spark
    deltars.disable(spark)


def listed(spark: SparkSession) -> list[str]:
    """Return the tables that the session lists. Other tests of the session may have left views."""
    return [table.name for table in spark.catalog.listTables() if not table.isTemporary]


def ids(frame: Any) -> list[int]:
    return sorted(row.id for row in frame.collect())


# -- the session -------------------------------------------------------------------------------------------------------


def test_disable_gives_spark_its_own_methods_back(spark: SparkSession, catalog: Catalog) -> None:
    before = [
        (kind, name, kind.__dict__[name])
        for kind, names in (
            (DataFrameWriter, ("save", "saveAsTable", "insertInto")),
            (DataFrameWriterV2, ("create", "append", "overwrite")),
            (DataFrameReader, ("load", "table")),
            (SparkSession, ("sql", "table")),
        )
        for name in names
    ]
    settings = spark.conf.getAll
    assert deltars.enable(spark, catalog) is catalog
    deltars.enable(spark, catalog)  # once more changes nothing
    assert enabled_catalog(spark) is catalog
    assert all(kind.__dict__[name] is not method for kind, name, method in before)
    assert DataFrameWriter.save.__doc__ == before[0][2].__doc__
    deltars.disable(spark)
    deltars.disable(spark)
    assert all(kind.__dict__[name] is method for kind, name, method in before)
    assert spark.conf.getAll == settings
    assert enabled_catalog(spark) is None
    with pytest.raises(Exception, match=r"(?i)data source"):
        spark.range(1).write.format("delta").save("/nowhere")


def test_two_sessions_know_their_own_catalogs(spark: SparkSession, catalog: Catalog, tmp_path: Path) -> None:
    other, third = spark.newSession(), spark.newSession()
    with deltars.connect(tmp_path / "other.db") as elsewhere:
        deltars.enable(spark, catalog)
        deltars.enable(other, elsewhere)
        try:
            spark.range(1).write.format("delta").saveAsTable("t")
            other.range(2).write.format("delta").saveAsTable("t")
            assert (spark.table("t").count(), other.table("t").count()) == (1, 2)
            assert not third.catalog.tableExists("t")
            deltars.disable(other)
            assert not other.catalog.tableExists("t")
            assert spark.table("t").count() == 1
            with elsewhere.begin(), pytest.raises(ValidationError, match="cannot span two catalogs"):
                spark.range(1).write.format("delta").mode("append").saveAsTable("t")
        finally:
            deltars.disable(spark)
            deltars.disable(other)


def test_writers_and_frames_made_before_count_too(spark: SparkSession, catalog: Catalog, tmp_path: Path) -> None:
    writer = spark.range(3).write.format("delta").mode("append").option("mergeSchema", True)
    reader, kept = spark.read.format("delta"), spark.range(2).cache()
    deltars.enable(spark, catalog)
    try:
        writer.save(str(tmp_path / "t"))
        kept.write.format("delta").mode("append").save(str(tmp_path / "t"))
        cached = reader.load(str(tmp_path / "t")).cache()
        assert ids(cached) == [0, 0, 1, 1, 2]
        cached.where("id > 1").write.format("delta").mode("overwrite").save(str(tmp_path / "t"))
        assert ids(reader.load(str(tmp_path / "t"))) == [2]
        cached.unpersist()
    finally:
        deltars.disable(spark)
        kept.unpersist()


def test_what_is_not_ours_goes_to_spark(enabled: SparkSession, catalog: Catalog, tmp_path: Path) -> None:
    enabled.range(3).write.parquet(str(tmp_path / "files"))
    enabled.range(3).write.saveAsTable("sparks_own")
    try:
        enabled.range(3, 5).write.insertInto("sparks_own")
        with pytest.raises(AnalysisException, match="v1 table"):  # which Spark says
            enabled.range(9, 10).writeTo("sparks_own").append()
        assert enabled.table("sparks_own").count() == 5
        assert enabled.sql("SELECT * FROM sparks_own WHERE id > 3").count() == 1
        assert enabled.read.parquet(str(tmp_path / "files")).count() == 3
        assert "sparks_own" in [table.name for table in enabled.catalog.listTables()]
    finally:
        enabled.sql("DROP TABLE sparks_own")
    assert len(catalog) == 0
    with pytest.raises(AnalysisException, match="nowhere"):
        enabled.table("nowhere")
    with pytest.raises(AnalysisException, match="nowhere"):
        enabled.sql("SELECT * FROM nowhere")
    enabled.range(1).write.format("delta").saveAsTable("taken")
    with pytest.raises(ValidationError, match="cannot be written in the format csv"):
        enabled.range(1).write.format("csv").saveAsTable("taken")
    enabled.range(1).write.mode("append").saveAsTable("taken")  # no format: the table has one
    assert enabled.table("taken").count() == 2


# -- paths -------------------------------------------------------------------------------------------------------------


def test_a_path_makes_a_table_named_after_its_directory(
    enabled: SparkSession, catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    enabled.range(1).write.format("delta").save(str(tmp_path / "a" / "events"))
    enabled.range(2).write.format("deltasql").save("b/events")
    enabled.range(3).write.format("delta").mode("append").save(f"file://{tmp_path}/a/events/")
    assert catalog.table("events").count() == 4
    [other] = [table for table in catalog.tables() if table.name != "events"]
    assert other.name.startswith("events_")
    assert other.location == str(tmp_path / "b" / "events")
    assert DeltaTable(tmp_path / "b" / "events").version() == 0  # any Delta reader opens it
    with catalog.begin():
        for parent in "cd":
            enabled.range(1).write.format("delta").save(str(tmp_path / parent / "twin"))
    assert sorted(table.name[:4] for table in catalog.tables()) == ["even", "even", "twin", "twin"]


def test_a_plain_delta_table_is_refused_or_imported(enabled: SparkSession, catalog: Catalog, tmp_path: Path) -> None:
    write_deltalake(tmp_path / "plain", pa.table({"id": [1, 2]}))
    path = str(tmp_path / "plain")
    for action in (
        lambda: enabled.read.format("delta").load(path),
        lambda: enabled.range(1).write.format("delta").mode("append").save(path),
    ):
        with pytest.raises(ImportRefused, match="Import it once"):
            action()
    assert len(catalog) == 0
    enabled.conf.set("spark.deltars.importPaths", "true")
    try:
        enabled.range(3, 4).write.format("delta").mode("append").save(path)
        assert ids(enabled.read.format("delta").load(path)) == [1, 2, 3]
    finally:
        enabled.conf.unset("spark.deltars.importPaths")
    assert catalog.table("plain").location == path


def test_errors_are_ours_and_sparks(enabled: SparkSession, catalog: Catalog, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    enabled.range(1).write.format("delta").save(path)
    with pytest.raises(AnalysisException, match="already") as caught:
        enabled.range(1).write.format("delta").save(path)
    assert isinstance(caught.value, TableExists)
    assert caught.value.getCondition() == "TABLE_OR_VIEW_ALREADY_EXISTS"
    assert "already" in caught.value.getMessage()
    again = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(again, TableExists)
    assert str(again) == str(caught.value)
    with pytest.raises(AnalysisException) as caught:
        enabled.createDataFrame([("x",)], "id STRING").write.format("delta").mode("append").save(path)
    assert isinstance(caught.value, SchemaMismatch)
    with pytest.raises(IllegalArgumentException, match=r"^\[DELTA_VACUUM_RETENTION_PERIOD_TOO_SHORT\]") as short:
        enabled.sql(f"VACUUM '{path}' RETAIN 0 HOURS")
    assert isinstance(short.value, ValidationError)
    with pytest.raises(AnalysisException, match=r"^\[UNRESOLVED_COLUMN\.WITH_SUGGESTION\]"):
        enabled.sql(f"UPDATE delta.`{path}` SET id = nope")
    enabled.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES (delta.appendOnly = true)")
    with pytest.raises(UnsupportedOperationException, match=r"^\[DELTA_CANNOT_MODIFY_APPEND_ONLY\]"):
        enabled.sql(f"DELETE FROM delta.`{path}`")
    with pytest.raises(Py4JJavaError, match=r"^\[DELTA_FEATURE_DROP_NONREMOVABLE_FEATURE\]") as kept:
        enabled.sql(f"ALTER TABLE delta.`{path}` DROP FEATURE appendOnly")
    assert isinstance(pickle.loads(pickle.dumps(kept.value)), deltars.FeatureNotDropped)
    version = catalog.table("t").version
    enabled.range(0).write.format("delta").mode("append").save(path)
    enabled.sql(f"INSERT INTO delta.`{path}` SELECT * FROM delta.`{path}` WHERE id > 99")
    assert catalog.table("t").version == version
    with pytest.raises(ValidationError, match="got 2 paths"):
        enabled.read.format("delta").load([path, path])
    with pytest.raises(NotSupportedYet, match="each_batch"):
        enabled.readStream.format("rate").load().writeStream.format("delta").start(path)


# -- transactions ------------------------------------------------------------------------------------------------------


def a_job(spark: SparkSession, place: Path, fail: bool) -> None:
    """Write three tables and read them, as a program for delta-spark does."""
    spark.range(10).write.format("delta").mode("overwrite").save(str(place / "orders"))
    orders = spark.read.format("delta").load(str(place / "orders"))
    orders.where("id % 2 = 0").write.format("delta").mode("append").saveAsTable("even_orders")
    totals = spark.sql("SELECT count(*) AS n FROM even_orders")
    totals.writeTo("totals").using("delta").createOrReplace()
    assert spark.catalog.tableExists("totals")
    if fail:
        raise RuntimeError("the cluster is gone")


def test_a_job_in_one_with_is_atomic_over_all_its_tables(
    enabled: SparkSession, catalog: Catalog, tmp_path: Path
) -> None:
    with pytest.raises(RuntimeError, match="gone"), deltars.begin():
        a_job(enabled, tmp_path, fail=True)
    assert len(catalog) == 0
    assert listed(enabled) == []
    with deltars.begin() as tx:
        a_job(enabled, tmp_path, fail=False)
    assert tx.result.versions == {"orders": 0, "even_orders": 0, "totals": 0}
    with pytest.raises(RuntimeError), catalog.begin():
        a_job(enabled, tmp_path, fail=True)
    assert enabled.table("even_orders").count() == 5
    assert [entry.version for entry in catalog.table("totals").history()] == [0]
    with catalog.begin() as tx:
        a_job(enabled, tmp_path, fail=False)
    assert set(tx.result.versions.values()) == {1}
    assert rows(enabled.table("totals")) == [["10"]]
    assert rows(enabled.read.option("versionAsOf", 0).table("totals")) == [["5"]]


def test_a_transaction_reads_what_it_wrote_and_no_one_else_does(
    enabled: SparkSession, catalog: Catalog, tmp_path: Path
) -> None:
    enabled.range(2).write.format("delta").saveAsTable("t")
    before = enabled.table("t")
    with catalog.begin():
        enabled.range(2, 5).write.format("delta").mode("append").saveAsTable("t")
        assert enabled.table("t").count() == 5
        assert enabled.sql("SELECT a.id FROM t a JOIN t b USING (id)").count() == 5
        assert enabled.read.option("versionAsOf", 0).table("t").count() == 2
        assert catalog.table("t").count() == 2
        enabled.range(1).writeTo("t").overwritePartitions()
        assert enabled.table("t").count() == 1
        assert listed(enabled) == ["t"]
    assert enabled.table("t").count() == 1
    assert before.count() == 2  # a frame keeps the version that it was made of
    with catalog.begin() as tx:
        tx.rollback()
        with pytest.raises(TransactionClosed):
            enabled.range(1).write.format("delta").mode("append").saveAsTable("t")


def test_statements_work_on_tables_of_the_catalog(enabled: SparkSession, catalog: Catalog, tmp_path: Path) -> None:
    enabled.sql("CREATE TABLE people (id BIGINT, name STRING) USING delta")
    enabled.sql("INSERT INTO default.people VALUES (1, 'a'), (2, 'b')")
    enabled.range(3).write.format("delta").save(str(tmp_path / "files"))
    enabled.sql(f"DELETE FROM delta.`{tmp_path}/files` WHERE id = 0")
    assert ids(enabled.table("files")) == [1, 2]
    tx = catalog.begin()
    with tx:
        enabled.sql("UPDATE people SET name = 'z' WHERE id = :id", {"id": 1})
        enabled.sql("CREATE TABLE copy USING delta AS SELECT * FROM people")
        tx.rollback()
    assert rows(enabled.table("people")) == [["1", "a"], ["2", "b"]]
    assert enabled.sql("SELECT * FROM people VERSION AS OF 0").count() == 0
    enabled.sql("DROP TABLE people")
    enabled.sql("DROP TABLE IF EXISTS people")
    assert not enabled.catalog.tableExists("people")
    enabled.sql("CREATE TABLE sparks_own USING parquet AS SELECT 1 AS x")
    enabled.sql("DROP TABLE sparks_own")
    assert [table.name for table in catalog.tables()] == ["files"]


def test_delta_tables_join_the_transaction_of_the_block(
    enabled: SparkSession, catalog: Catalog, tmp_path: Path
) -> None:
    enabled.range(3).write.format("delta").saveAsTable("t")
    before = OurDeltaTable.forName(enabled, "t")
    tx = catalog.begin()
    with tx:
        enabled.range(2).write.format("delta").save(str(tmp_path / "new"))
        OurDeltaTable.forPath(enabled, str(tmp_path / "new")).delete("id = 0")
        OurDeltaTable.create(enabled).tableName("made").addColumn("id", "BIGINT").execute()
        before.delete("id = 0")
        OurDeltaTable.forName(enabled, "t").update("id = 1", {"id": "10"})
        assert (ids(before.toDF()), catalog.table("t").version) == ([2, 10], 0)
        assert not catalog.table_exists("made")
    assert (ids(before.toDF()), catalog.table("t").version) == ([2, 10], 1)
    assert sorted(catalog) == ["made", "new", "t"]
    assert ids(enabled.table("new")) == [1]
    undone = catalog.begin()
    with undone:
        before.delete()
        undone.rollback()
    assert ids(before.toDF()) == [2, 10]


def test_threads_join_a_transaction_knowingly(
    enabled: SparkSession, catalog: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    def write(name: str) -> None:
        enabled.range(3).write.format("delta").saveAsTable(name)

    def in_thread(function: Any, *args: Any) -> None:
        thread = threading.Thread(target=function, args=args)
        thread.start()
        thread.join()

    tx = catalog.begin()
    with tx, caplog.at_level(logging.WARNING):
        in_thread(contextvars.copy_context().run, write, "with_context")
        in_thread(write, "without")
        tx.rollback()
    assert [table.name for table in catalog.tables()] == ["without"]
    assert "outside of transaction" in caplog.text
    assert "copy_context" in caplog.text


def test_views_of_sql_are_read_as_their_tables_are_then(enabled: SparkSession) -> None:
    enabled.sql("CREATE TABLE people (id BIGINT NOT NULL, name STRING) USING delta")
    enabled.sql("CREATE OR REPLACE TEMP VIEW first_people AS SELECT id, name FROM people WHERE id < 10")
    enabled.sql("INSERT INTO people VALUES (1, 'a'), (20, 'b')")
    assert rows(enabled.table("first_people")) == [["1", "a"]]
    assert rows(enabled.sql("SELECT v.id FROM first_people v JOIN people USING (id)")) == [["1"]]
    assert rows(enabled.sql("SELECT id FROM first_people WHERE name = :name", {"name": "a"})) == [["1"]]
    with deltars.begin():
        enabled.sql("INSERT INTO people SELECT id + 1, name FROM first_people")
        assert enabled.table("first_people").count() == 2
    assert "first_people" in [row.tableName for row in enabled.sql("SHOW TABLES").collect()]
    assert "people" in [row.tableName for row in enabled.sql("SHOW TABLES IN default LIKE 'peo*'").collect()]
    assert "Scan" in enabled.sql("EXPLAIN SELECT id FROM first_people").collect()[0].plan
    assert [field.nullable for field in enabled.table("people").schema] == [False, True]
    assert rows(enabled.table("people").where("id = 2")) == [["2", "a"]]
    enabled.range(3).createOrReplaceTempView("first_people")  # a view of Spark takes its place
    assert enabled.table("first_people").count() == enabled.sql("SELECT * FROM first_people").count() == 3
    enabled.sql("DROP VIEW first_people")
    with pytest.raises(AnalysisException):
        enabled.table("first_people")


def test_merge_of_a_frame_goes_to_the_table(enabled: SparkSession, catalog: Catalog) -> None:
    enabled.sql("CREATE TABLE people (id BIGINT, name STRING) USING delta")
    enabled.sql("INSERT INTO people VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    news = enabled.createDataFrame([(1, "x"), (9, "y")], "id BIGINT, name STRING").alias("s")
    on = F.expr("people.id = s.id")
    with deltars.begin():
        merge = news.mergeInto("default.people", on).whenMatched(F.expr("s.name = 'x'")).update({"name": F.lit("z")})
        merge = merge.whenNotMatched().insertAll().whenNotMatchedBySource(F.expr("people.id = 3")).delete()
        merge.merge()
        assert catalog.table("people").version == 1
    assert rows(enabled.table("people")) == [["1", "z"], ["2", "b"], ["9", "y"]]
    with pytest.raises(ValidationError, match="no clause"):
        news.mergeInto("people", on).merge()
    with pytest.raises(ValidationError, match="no source columns"):
        news.mergeInto("people", on).whenNotMatchedBySource().updateAll().merge()
