"""Programs that use a session's own verbs, SQL and `delta.tables` together, as most programs for delta-spark do.

They run on delta-spark and, with the import changed, in an enabled session. Each takes a session, the module with
`DeltaTable`, and an empty directory, and returns what it saw as JSON.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from tests.tables.programs import ABC, Program, Seen, attempt, frame, rows, schema

_CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"


def _save(spark: SparkSession, path: Path, data: list[tuple[Any, ...]], **options: Any) -> None:
    columns = options.pop("columns", ["key", "value"])
    spark.createDataFrame(data, columns).write.format("delta").save(str(path), **options)


def versions(spark: SparkSession, tables: Any, root: Path) -> Seen:
    """A first write is version 0, and holds its rows."""
    path = root / "t"
    _save(spark, path, ABC[:2])
    first = tables.DeltaTable.forPath(spark, str(path)).history().head()
    _save(spark, path, [("a", 3), ("b", 2)], columns=["new_key", "new_value"], mode="overwrite", overwriteSchema="true")
    made = tables.DeltaTable.forPath(spark, str(path))
    history = made.history().select("version", "operation", "operationParameters.mode", "readVersion", "isBlindAppend")
    seen = [[list(row) for row in history.collect()], rows(made.toDF())]
    made.restoreToVersion(0)
    seen += [rows(tables.DeltaTable.forPath(spark, str(path)).toDF())]
    _save(spark, path, [("z", 9)], mode="overwrite")
    tables.DeltaTable.forPath(spark, str(path)).restoreToTimestamp(first.timestamp.strftime("%Y-%m-%d %H:%M:%S.%f"))
    again = tables.DeltaTable.forPath(spark, str(path)).history().select("version", "operation")
    seen += [rows(spark.read.format("delta").load(str(path))), [list(row) for row in again.collect()]]
    spark.range(3).write.format("delta").saveAsTable("versions_of")
    spark.range(3).write.format("delta").mode("append").saveAsTable("versions_of")
    spark.sql("INSERT INTO versions_of VALUES (7)")
    spark.sql("CREATE TABLE versions_copy USING delta AS SELECT * FROM versions_of")
    spark.sql("CREATE OR REPLACE TABLE versions_copy (a INT) USING delta")
    for name in ("versions_of", "versions_copy"):
        named = tables.DeltaTable.forName(spark, name).history().select("version", "operation", "operationParameters")
        seen += [[[row[0], row[1], row[2].get("mode")] for row in named.collect()]]
    return seen


def files(spark: SparkSession, tables: Any, root: Path) -> Seen:
    """A frame of ten partitions becomes ten files, which manifests and compaction count."""
    path = root / "t"
    spark.range(100).repartition(10).write.format("delta").save(str(path))
    made = tables.DeltaTable.forPath(spark, str(path))
    made.generate("symlink_format_manifest")
    manifest = path / "_symlink_format_manifest" / "manifest"
    seen: list[Any] = [len(manifest.read_text().splitlines()), made.detail().head().numFiles]
    other = root / "u"
    spark.range(100).repartition(10).write.format("delta").save(str(other))
    spark.sql(f"GENERATE symlink_format_manifest FOR TABLE delta.`{other}`")
    seen += [len((other / "_symlink_format_manifest" / "manifest").read_text().splitlines())]
    numbers = spark.range(1000).select("id", (F.col("id") % 7).alias("a"), F.lit(1).alias("b"))
    numbers.repartition(4).write.format("delta").save(str(root / "z"))
    sorted_by = tables.DeltaTable.forPath(spark, str(root / "z")).optimize().executeZOrderBy(["a", "id"])
    metrics = sorted_by.collect()[0].metrics
    return [
        *seen,
        metrics.numFilesAdded,
        metrics.numFilesRemoved,
        metrics.totalFilesSkipped,
        metrics.totalConsideredFiles,
    ]


def compaction(spark: SparkSession, tables: Any, root: Path) -> Seen:
    path = str(root / "t")
    for data in ([("a", 1), ("a", 2)], [("a", 3), ("a", 4)], [("b", 1), ("b", 2)]):
        few = spark.createDataFrame(data, ["key", "value"]).repartition(1)
        few.write.format("delta").partitionBy("key").save(path, mode="append")
    made = tables.DeltaTable.forPath(spark, path)
    seen = []
    for result in (
        made.optimize().where("key = 'a'").executeCompaction(),
        made.optimize().where("key = 'b'").executeZOrderBy("value"),
        spark.sql(f"OPTIMIZE delta.`{path}`"),
        spark.sql(f"OPTIMIZE '{path}' WHERE key = 'a' ZORDER BY (value)"),
    ):
        metrics = result.collect()[0].metrics
        seen += [[result.columns, metrics.numFilesAdded, metrics.numFilesRemoved, metrics.partitionsOptimized]]
    last = made.history(1).head()
    wrong = attempt(lambda: made.optimize().where("value = 1").executeCompaction())
    # What is sorted already is not sorted again, unlike delta-spark's.
    return [*seen, wrong, last.operation, last.operationParameters.get("zOrderBy"), rows(made.toDF())]


def vacuum(spark: SparkSession, tables: Any, root: Path) -> Seen:
    path = root / "t"
    spark.conf.set("spark.sql.sources.parallelPartitionDiscovery.parallelism", "1")
    _save(spark, path, ABC)
    _save(spark, path, ABC, mode="overwrite")
    (path / "abc.txt").write_text("abcde")
    (path / "folder").mkdir()
    (path / "folder" / "cba.txt").write_text("abcdf")
    made = tables.DeltaTable.forPath(spark, str(path))
    made.vacuum()
    made.vacuum(1000)
    seen: list[Any] = [(path / "abc.txt").exists(), len(list(path.glob("*.parquet"))) > 2]
    before = len(list(path.glob("*.parquet")))
    spark.sql(f"SET {_CHECK} = false")
    try:
        dry = spark.sql(f"VACUUM '{path}' RETAIN 0 HOURS DRY RUN").collect()
        seen += [sorted(os.path.basename(row[0]) for row in dry if row[0].endswith("txt"))]
        seen += [(path / "abc.txt").exists()]
        seen += [[row[0].endswith(str(path)) for row in spark.sql(f"VACUUM '{path}' RETAIN 0 HOURS").collect()]]
        made.vacuum(0.0)
    finally:
        spark.sql(f"SET {_CHECK} = true")
    after = len(list(path.glob("*.parquet")))
    seen += [(path / "abc.txt").exists(), (path / "folder" / "cba.txt").exists(), 0 < after < before]
    return [*seen, rows(made.toDF()), attempt(lambda: spark.sql(f"VACUUM '{path}' RETAIN 0 HOURS")) == "no error"]


def sessions(spark: SparkSession, tables: Any, root: Path) -> Seen:
    """A merge in another thread sees the settings of its session."""
    source, target = str(root / "source"), str(root / "target")

    def job(session: SparkSession) -> int:
        wide = session.range(20).withColumn("x", F.col("id")).withColumn("y", F.col("id"))
        wide.write.mode("overwrite").format("delta").save(source)
        session.range(1).withColumn("x", F.col("id")).write.mode("overwrite").format("delta").save(target)
        merging = tables.DeltaTable.forPath(session, target).alias("t")
        rows_of = session.read.format("delta").load(source).alias("s")
        merging.merge(rows_of, "t.id = s.id").whenMatchedUpdate(
            set={"t.x": "t.x + 1"}
        ).whenNotMatchedInsertAll().execute()
        return session.read.format("delta").load(target).count()

    spark.conf.set("spark.databricks.delta.schema.autoMerge.enabled", "true")
    try:
        with ThreadPool(3) as pool:
            counts = pool.starmap(job, [(spark,)])
    finally:
        spark.conf.unset("spark.databricks.delta.schema.autoMerge.enabled")
    return [
        counts,
        sorted(map(str, rows(spark.read.format("delta").load(target)))),
        spark.read.format("delta").load(target).columns,
    ]


def _described(spark: SparkSession, name: str) -> Seen:
    properties = {row.key: row.value for row in spark.sql(f"SHOW TBLPROPERTIES {name}").collect()}
    detail = spark.sql(f"DESCRIBE DETAIL {name}").collect()[0]
    shown = {key: value for key, value in properties.items() if not key.startswith(("delta.", "clusteringColumns"))}
    return [shown, detail.format, detail.description, detail.partitionColumns, detail.clusteringColumns]


def builders(spark: SparkSession, tables: Any, root: Path) -> Seen:
    def build(builder: Any) -> Any:
        builder = builder.addColumn("col1", "int", comment="foo", nullable=False)
        builder = builder.addColumn("col2", T.IntegerType(), generatedAlwaysAs="col1 + 10")
        return builder.property("foo", "bar").comment("about it").partitionedBy("col1").execute()

    kind = tables.DeltaTable
    seen: list[Any] = []
    for place, begin in enumerate((kind.create, kind.createIfNotExists, kind.createOrReplace)):
        name, path = f"Built{place}", root / f"built{place}"
        named = build(begin(spark).tableName(name))
        seen += [schema(named.toDF()), schema(spark.read.format("delta").table(name)), _described(spark, name)]
        at = build(begin(spark).location(str(path)))
        seen += [schema(at.toDF()), schema(spark.read.format("delta").load(str(path)))]
        seen += [_described(spark, f"delta.`{path}`")]
        both = build(begin().tableName(f"Both{place}").location(str(root / f"both{place}")))
        seen += [schema(both.toDF()), _described(spark, f"Both{place}")]
        seen += [(root / f"both{place}" / "_delta_log").exists()]
    spark.sql("INSERT INTO Built0 (col1, col2) VALUES (1, 11)")
    spark.sql("INSERT INTO Built0 (col1) VALUES (2)")
    made = kind.forName(spark, "Built0")
    made.update(F.expr("col2 = 11"), {"col1": F.expr("10")})
    seen += [
        rows(made.toDF()),
        attempt(lambda: spark.sql("INSERT INTO Built0 (col1, col2) VALUES (1, 2)")) == "no error",
    ]
    missing = attempt(lambda: build(kind.replace(spark).tableName("Absent")))
    twice = attempt(lambda: build(kind.create(spark).tableName("Built0")))
    seen += [missing, twice, rows(build(kind.createIfNotExists(spark).tableName("Built0")).toDF())]
    replaced = build(kind.replace(spark).tableName("Built0"))
    seen += [rows(replaced.toDF()), _described(spark, "Built0")]
    fields = T.StructType([T.StructField("a", T.LongType(), False), T.StructField("b", T.StringType())])
    more = kind.create(spark).tableName("OfSchema").addColumns(fields).addColumn("c", "double").clusterBy("a", "b")
    seen += [schema(more.execute().toDF()), _described(spark, "OfSchema")]
    for place, columns in enumerate((("a", "b"), (["a", "b"],), (("a", "b"),))):
        parted = kind.create(spark).tableName(f"Parted{place}").addColumns(fields).addColumn("c", "double")
        parted.partitionedBy(*columns).execute()
        seen += [_described(spark, f"Parted{place}")]
    return seen


def identity(spark: SparkSession, tables: Any, root: Path) -> Seen:
    generator = tables.IdentityGenerator
    builder = tables.DeltaTable.create(spark).tableName("counted")
    builder = builder.addColumn("id1", T.LongType(), generatedAlwaysAs=generator())
    builder = builder.addColumn("id2", "BIGINT", generatedAlwaysAs=generator(start=10, step=20))
    builder = builder.addColumn("id3", "bigint", generatedByDefaultAs=generator(-1, -2)).addColumn("value", "INT")
    made = builder.execute()
    spark.sql("INSERT INTO counted (value) VALUES (0)")
    spark.sql("INSERT INTO counted (id3, value) VALUES (100, 1)")
    spark.sql("INSERT INTO counted (value) VALUES (2)")
    wrong: list[Callable[[], Any]] = [
        lambda: spark.sql("INSERT INTO counted (id1, value) VALUES (1, 1)"),
        lambda: made.update(set={"id1": "5"}),
        lambda: tables.DeltaTable.create(spark).tableName("x").addColumn("a", "int", generatedAlwaysAs=generator()),
    ]
    frame_of = spark.createDataFrame([(3,)], "value INT").coalesce(1)
    frame_of.write.format("delta").mode("append").saveAsTable("counted")
    seen = sorted(list(row) for row in made.toDF().select("value", "id1", "id2", "id3").collect())
    return [schema(made.toDF()), seen, [attempt(one) == "no error" for one in wrong]]


def change_feed(spark: SparkSession, tables: Any, root: Path) -> Seen:
    path = str(root / "t")
    spark.range(0, 5).write.format("delta").save(path)
    made = tables.DeltaTable.forPath(spark, path)
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES (delta.enableChangeDataFeed = true)")
    made.update("id = 1", {"id": "10"})
    made.delete("id = 2")
    spark.range(5, 10).write.format("delta").mode("append").save(path)
    seen = []
    for option in ("readChangeFeed", "readChangeData"):
        feed = spark.read.format("delta").option(option, "true").option("startingVersion", 1).load(path)
        seen += [feed.columns, rows(feed.drop("_commit_timestamp"))]
    upto = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 2)
    seen += [rows(upto.option("endingVersion", 2).load(path).select("id", "_change_type"))]
    by_sql = spark.sql(f"SELECT id, _change_type, _commit_version FROM table_changes_by_path('{path}', 1, 3)")
    seen += [rows(by_sql)]
    spark.sql("CREATE TABLE feed USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true) AS SELECT 1L AS id")
    spark.sql("DELETE FROM feed")
    return [*seen, rows(spark.sql("SELECT id, _change_type, _commit_version FROM table_changes('feed', 0)"))]


def definitions(spark: SparkSession, tables: Any, root: Path) -> Seen:
    def columns() -> Seen:
        return [[field.name, field.dataType.simpleString(), field.nullable] for field in spark.table("Defined").schema]

    seen: list[Any] = []
    for name in ("Defined", "Defined2"):
        spark.sql(f"DROP TABLE IF EXISTS {name}")
    made = spark.sql("CREATE TABLE Defined(a LONG, b String NOT NULL) USING delta")
    seen += [made.columns, made.collect(), spark.sql("SELECT * FROM Defined").count()]
    described = spark.sql("DESCRIBE TABLE Defined")
    seen += [described.columns, rows(described.select("col_name", "data_type"))]
    spark.sql("ALTER TABLE Defined CHANGE COLUMN a a LONG AFTER b")
    seen += [columns()]
    spark.sql("ALTER TABLE Defined ALTER COLUMN b DROP NOT NULL")
    spark.sql("ALTER TABLE Defined ADD COLUMNS (x LONG COMMENT 'about x')")
    seen += [columns()]
    spark.sql("ALTER TABLE Defined SET TBLPROPERTIES ('k' = 'v')")
    seen += [rows(spark.sql("SHOW TBLPROPERTIES Defined ('k')")), spark.sql("SHOW TBLPROPERTIES Defined").columns]
    spark.sql("ALTER TABLE Defined UNSET TBLPROPERTIES ('k')")
    seen += [rows(spark.sql("SHOW TBLPROPERTIES Defined ('k')"))[0][0]]
    spark.sql("ALTER TABLE Defined RENAME TO Defined2")
    seen += [spark.sql("SELECT * FROM Defined2").count(), attempt(lambda: spark.sql("SELECT * FROM Defined"))[:2]]
    seen += [rows(spark.sql("SHOW COLUMNS IN Defined2")), spark.catalog.tableExists("Defined2")]
    shown = spark.sql("SHOW TABLES LIKE 'defined*'")
    seen += [shown.columns, [row.tableName.lower() for row in shown.collect()]]
    spark.sql("DROP TABLE Defined2")
    return [*seen, spark.catalog.tableExists("Defined2"), attempt(lambda: spark.sql("DROP TABLE Defined2"))[:2]]


def conversion(spark: SparkSession, tables: Any, root: Path) -> Seen:
    data = frame(spark, ABC)
    data.write.parquet(str(root / "a"))
    spark.sql(f"CONVERT TO DELTA parquet.`{root}/a`")
    data.write.partitionBy("value").parquet(str(root / "b"))
    spark.sql(f"CONVERT TO DELTA parquet.`{root}/b` PARTITIONED BY (value INT)")
    data.write.partitionBy("value").parquet(str(root / "c"))
    typed = tables.DeltaTable.convertToDelta(spark, f"parquet.`{root}/c`", T.StructType().add("value", "integer", True))
    same = type(typed) is type(tables.DeltaTable.forPath(spark, str(root / "c")))
    wrong = attempt(lambda: spark.sql(f"CONVERT TO DELTA parquet.`{root}/none`")) == "no error"
    read = [rows(spark.read.format("delta").load(f"{root}/{name}")) for name in "abc"]
    return [*read, same, wrong, [tables.DeltaTable.isDeltaTable(spark, f"{root}/{name}") for name in ("a", "none")]]


def by_path(spark: SparkSession, tables: Any, root: Path) -> Seen:
    """Statements on a table that has no name: delta.`path`."""
    path = root / "t"
    at = f"delta.`{path}`"
    _save(spark, path, [*ABC, ("d", 4)])
    frame(spark, [("b", 20), ("x", 24)]).createOrReplaceTempView("news")
    seen: list[Any] = []
    for statement in (
        f"DELETE FROM {at} WHERE key = 'a'",
        f"UPDATE {at} SET value = value + 1 WHERE key = 'c'",
        f"INSERT INTO {at} VALUES ('i', 9)",
        f"INSERT INTO {at} SELECT * FROM news WHERE value = 20",
        f"MERGE INTO {at} t USING news s ON t.key = s.key"
        " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    ):
        done = spark.sql(statement)
        seen += [done.columns, rows(done), rows(spark.sql(f"SELECT * FROM {at}"))]
    for statement in (f"DESC HISTORY {at}", f"DESCRIBE HISTORY '{path}'", f"DESCRIBE HISTORY {at} LIMIT 1"):
        seen += [[row.operation for row in spark.sql(statement).collect()]]
    seen += [spark.sql(f"DESCRIBE DETAIL '{path}'").columns, rows(spark.sql(f"DESCRIBE {at}").select("col_name"))]
    restored = spark.sql(f"RESTORE TABLE {at} TO VERSION AS OF 0")
    seen += [restored.columns, rows(spark.sql(f"SELECT * FROM {at} VERSION AS OF 1")), rows(spark.read.table(at))]
    seen += [attempt(lambda: spark.sql(f"SELECT * FROM delta.`{root}/none`"))[:1]]
    spark.catalog.dropTempView("news")
    return seen


def merge_into(spark: SparkSession, tables: Any, root: Path) -> Seen:
    """`df.mergeInto`, Spark's own builder."""
    _save(spark, root / "t", ABC)
    frame(spark, ABC).write.format("delta").saveAsTable("merged")
    news = frame(spark, [("b", 20), ("x", 24)]).alias("s")
    on = F.expr("merged.key = s.key")
    news.mergeInto("merged", on).whenMatched().updateAll().whenNotMatched().insertAll().merge()
    seen = [rows(spark.table("merged"))]
    merging = news.mergeInto("merged", on).whenMatched(F.expr("s.value = 20")).delete()
    merging = merging.whenNotMatched(F.expr("s.value > 100")).insert({"key": F.col("s.key")})
    merging.whenNotMatchedBySource(F.expr("merged.key = 'a'")).update({"value": F.lit(0)}).merge()
    seen += [rows(spark.table("merged"))]
    wide = spark.createDataFrame([("x", 1, "new")], "key STRING, value LONG, more STRING").alias("s")
    wide.mergeInto("merged", on).whenMatched().updateAll().whenNotMatched().insertAll().withSchemaEvolution().merge()
    return [*seen, rows(spark.table("merged"))]


def protocol(spark: SparkSession, tables: Any, root: Path) -> Seen:
    defaults = "spark.databricks.delta.properties.defaults."
    spark.conf.set(f"{defaults}minWriterVersion", "2")
    spark.conf.set(f"{defaults}minReaderVersion", "1")
    try:
        _save(spark, root / "t", ABC)
        made = tables.DeltaTable.forPath(spark, str(root / "t"))
        made.upgradeTableProtocol(1, 3)
    finally:
        spark.conf.unset(f"{defaults}minWriterVersion")
        spark.conf.unset(f"{defaults}minReaderVersion")
    made.upgradeTableProtocol(1, 2)
    made.addFeatureSupport("appendOnly")
    made.addFeatureSupport("deletionVectors")
    detail = made.detail().head()
    features = sorted(detail.tableFeatures)
    wrong: list[Callable[[], Any]] = [
        lambda: made.addFeatureSupport("abc"),
        lambda: made.addFeatureSupport([12345]),
        lambda: made.dropFeatureSupport({}),
        lambda: made.dropFeatureSupport("deletionVectors", 12345),
        lambda: made.upgradeTableProtocol([1], 3),
        lambda: made.upgradeTableProtocol(1, {}),
    ]
    return [
        features,
        detail.minReaderVersion,
        detail.minWriterVersion,
        detail.properties,
        [attempt(one)[:2] for one in wrong],
    ]


def named_rows(spark: SparkSession, tables: Any, root: Path) -> Seen:
    """Names, aliases and rows as Spark's objects."""
    path = str(root / "t")
    _save(spark, root / "t", ABC)
    frame(spark, ABC).write.format("delta").saveAsTable("named")
    made = tables.DeltaTable.forName(spark, "named")
    aliased = made.toDF().alias("mine").select("mine.key", "mine.value")
    seen = [rows(aliased), rows(made.toDF().select("named.key")), type(made.toDF().head()) is Row]
    seen += [rows(tables.DeltaTable.forName(spark, "default.named").toDF())]
    seen += [rows(tables.DeltaTable.forPath(spark, path, {"fs.fake.impl": "x"}).toDF())]
    spark.table("named").createOrReplaceTempView("over_named")
    seen += [attempt(lambda: tables.DeltaTable.forName(spark, "over_named"))[:1]]
    spark.catalog.dropTempView("over_named")
    return seen


MIXED: tuple[Program, ...] = (
    versions,
    files,
    compaction,
    vacuum,
    sessions,
    builders,
    identity,
    change_feed,
    definitions,
    conversion,
    by_path,
    merge_into,
    protocol,
    named_rows,
)
