"""Jobs as people write them for delta-spark: they know nothing of deltars.

Each takes a session and a directory, and returns what it saw, as JSON can hold it: rows, schemas, and what was refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

Job = Callable[[SparkSession, str], Any]


def rows(frame: DataFrame) -> list[list[Any]]:
    return sorted(([*map(str, row)] for row in frame.collect()), key=str)


def refused(action: Callable[[], object]) -> str:
    """Whether a call was refused by an error that programs for Spark catch."""
    try:
        action()
    except (PySparkException, ValueError):
        return "refused"
    return "done"


def save_modes(spark: SparkSession, place: str) -> Any:
    path = f"{place}/modes"
    seen: list[Any] = []
    spark.range(3).write.format("delta").save(path)
    seen.append(refused(lambda: spark.range(1).write.format("delta").save(path)))
    seen.append(refused(lambda: spark.range(1).write.format("delta").mode("errorifexists").save(path)))
    spark.range(9).write.format("delta").mode("ignore").save(path)
    spark.range(3, 5).write.format("delta").mode("append").save(path)
    seen.append(rows(spark.read.format("delta").load(path)))
    spark.range(7, 8).write.save(path, format="delta", mode="overwrite")
    seen.append(rows(spark.read.load(path, format="delta")))
    seen.append(rows(spark.read.format("delta").option("versionAsOf", 0).load(path)))
    seen.append(rows(spark.read.format("delta").load(f"{path}@v1")))
    seen.append(refused(lambda: spark.read.format("delta").option("versionAsOf", 9).load(path).collect()))
    for moment in ("1999-01-01", "2999-01-01"):
        read = spark.read.format("delta").option("timestampAsOf", moment)
        seen.append(refused(lambda read=read: read.load(path).collect()))  # type: ignore[misc]
    return seen


def schemas(spark: SparkSession, place: str) -> Any:
    path = f"{place}/schemas"
    seen: list[Any] = []
    spark.createDataFrame([(1, "a")], "id INT, name STRING").write.format("delta").save(path)
    wider = spark.createDataFrame([(2, "b", 0.5)], "id INT, name STRING, score DOUBLE")
    seen.append(refused(lambda: wider.write.format("delta").mode("append").save(path)))
    seen.append(refused(lambda: wider.write.format("delta").mode("overwrite").save(path)))
    wider.write.format("delta").mode("append").option("mergeSchema", "true").save(path)
    table = spark.read.format("delta").load(path)
    seen += [rows(table), table.schema.simpleString()]
    other = spark.createDataFrame([("x", 1)], "id STRING, n INT")
    seen.append(refused(lambda: other.write.format("delta").mode("append").option("mergeSchema", True).save(path)))
    other.write.format("delta").mode("overwrite").option("overwriteSchema", True).partitionBy("n").save(path)
    table = spark.read.format("delta").load(path)
    seen += [rows(table), table.schema.simpleString()]
    seen.append(refused(lambda: other.write.format("delta").mode("append").partitionBy("id").save(path)))
    return seen


def partitions(spark: SparkSession, place: str) -> Any:
    path = f"{place}/partitions"
    seen: list[Any] = []
    first = spark.createDataFrame([(1, "a"), (2, "b"), (3, "c")], "id INT, p STRING")
    first.write.format("delta").partitionBy("p").save(path)
    new = spark.createDataFrame([(9, "b")], "id INT, p STRING")
    new.write.format("delta").mode("overwrite").option("partitionOverwriteMode", "dynamic").save(path)
    seen.append(rows(spark.read.format("delta").load(path)))
    where = new.write.format("delta").mode("overwrite").option("replaceWhere", "p = 'a'")
    seen.append(refused(lambda: where.save(path)))
    other = spark.createDataFrame([(8, "a"), (7, "a")], "id INT, p STRING")
    other.write.format("delta").mode("overwrite").option("replaceWhere", "p = 'a'").save(path)
    seen.append(rows(spark.read.format("delta").load(path)))
    other.write.format("delta").mode("overwrite").option("replaceWhere", "p >= 'b' OR id < 100").saveAsTable(
        f"delta.`{path}`"
    )
    seen.append(rows(spark.read.format("delta").load(path)))
    both = other.write.format("delta").mode("overwrite").option("replaceWhere", "p = 'a'")
    seen.append(refused(lambda: both.option("partitionOverwriteMode", "dynamic").save(path)))
    return seen


def tables(spark: SparkSession, place: str) -> Any:
    seen: list[Any] = []
    frame = spark.createDataFrame([(1, "a"), (2, "b")], "id INT, name STRING")
    frame.write.format("delta").saveAsTable("people")
    seen.append(refused(lambda: frame.write.format("delta").saveAsTable("people")))
    swapped = spark.createDataFrame([("c", 3)], "name STRING, id INT")
    swapped.write.format("delta").mode("append").saveAsTable("people")
    by_position = spark.createDataFrame([(4, "d")], "anything INT, else STRING")
    by_position.write.insertInto("people")
    seen.append(rows(spark.table("people")))
    seen.append(refused(lambda: frame.select("id").write.insertInto("people")))
    by_position.write.insertInto("people", overwrite=True)
    seen.append(rows(spark.read.table("default.people")))
    seen.append(rows(spark.read.format("delta").option("versionAsOf", 1).table("people")))
    seen.append([spark.catalog.tableExists(name) for name in ("people", "default.people", "nobody")])
    seen.append([table.name for table in spark.catalog.listTables(pattern="peop*")])
    frame.write.format("delta").option("path", f"{place}/outside").saveAsTable("outside")
    frame.write.format("delta").mode("append").save(f"{place}/outside")
    seen.append(rows(spark.table("outside")))
    seen.append(refused(lambda: spark.table("nobody").collect()))
    return seen


def write_to(spark: SparkSession, place: str) -> Any:
    seen: list[Any] = []
    frame = spark.createDataFrame([(1, "a"), (2, "b")], "id INT, p STRING")
    frame.writeTo("targets").using("delta").tableProperty("owner.team", "ml").partitionedBy(F.col("p")).create()
    seen.append(refused(lambda: frame.writeTo("targets").using("delta").create()))
    spark.createDataFrame([("c", 3)], "p STRING, id INT").writeTo("targets").append()
    seen.append(rows(spark.table("targets")))
    new = spark.createDataFrame([(9, "b")], "id INT, p STRING")
    new.writeTo("targets").overwrite(F.col("p") == "b")
    seen.append(rows(spark.table("targets")))
    spark.createDataFrame([(8, "a")], "id INT, p STRING").writeTo("targets").overwritePartitions()
    seen.append(rows(spark.table("targets")))
    seen.append(refused(lambda: frame.writeTo("absent").using("delta").replace()))
    seen.append(refused(lambda: frame.writeTo("absent").append()))
    spark.range(2).writeTo("targets").using("delta").replace()
    seen.append(rows(spark.table("targets")))
    spark.createDataFrame([(5,)], "n INT").writeTo("targets").using("delta").createOrReplace()
    seen += [rows(spark.table("targets")), spark.table("targets").schema.simpleString()]
    return seen


def queries(spark: SparkSession, place: str) -> Any:
    seen: list[Any] = []
    spark.range(6).withColumn("k", F.col("id") % 3).write.format("delta").saveAsTable("facts")
    spark.createDataFrame([(0, "zero"), (1, "one")], "k LONG, name STRING").write.format("delta").save(f"{place}/dims")
    spark.range(2).createOrReplaceTempView("few")
    dims = f"delta.`{place}/dims`"
    seen.append(rows(spark.sql(f"SELECT name, sum(id) FROM facts JOIN {dims} USING (k) GROUP BY name")))
    # Without parameters: delta-spark's parser leaves them unbound.
    seen.append(rows(spark.sql("SELECT * FROM facts WHERE id > 2")))
    seen.append(rows(spark.sql("WITH f AS (SELECT * FROM facts WHERE id > 2) SELECT * FROM f")))
    seen.append(rows(spark.sql("SELECT facts.id FROM facts JOIN few ON facts.id = few.id")))
    seen.append(rows(spark.sql("SELECT f.id FROM {df} d JOIN facts f USING (id)", df=spark.range(4, 9))))
    spark.sql("CREATE OR REPLACE TEMP VIEW summary AS SELECT k, count(*) n FROM facts GROUP BY k")
    seen.append(rows(spark.table("summary").where("k > 0")))
    spark.range(40, 41).createOrReplaceTempView("facts")  # hides the table
    seen.append(rows(spark.table("facts")))
    seen.append(rows(spark.sql("SELECT id FROM facts")))
    spark.catalog.dropTempView("facts")
    seen.append(spark.table("facts").count())
    seen.append(rows(spark.sql("SELECT 1 AS one, '{}' AS braces")))
    for view in ("few", "summary"):
        spark.catalog.dropTempView(view)
    return seen


def settings(spark: SparkSession, place: str) -> Any:
    path = f"{place}/settings"
    seen: list[Any] = []
    write = spark.range(3).write.format("delta").option("txnAppId", "job").option("txnVersion", 1)
    write.save(path)
    for version in (1, 2, 2, 1):
        again = spark.range(3).write.format("delta").mode("append").option("txnAppId", "job")
        again.option("txnVersion", version).option("unknownOption", "x").save(path)
    seen.append(spark.read.format("delta").load(path).count())
    only = spark.range(1).write.format("delta").mode("append").option("txnAppId", "job")
    seen.append(refused(lambda: only.save(path)))
    seen.append(refused(lambda: spark.range(1).write.format("delta").bucketBy(2, "id").saveAsTable("buckets")))
    seen.append(refused(lambda: spark.read.format("delta").schema("id INT").load(path).collect()))
    seen.append(refused(lambda: spark.read.format("delta").load(f"{place}/absent").collect()))
    wrong = spark.range(1).write.format("delta").mode("append").option("mergeSchema", "perhaps")
    seen.append(refused(lambda: wrong.save(path)))
    seen.append(refused(lambda: spark.range(1).write.format("delta").mode("append").save()))
    spark.range(2).write.format("delta").mode("overwrite").option("dataChange", "true").save(path)
    seen.append(spark.read.format("delta").load(path).count())
    return seen


CORE: tuple[Job, ...] = (save_modes, tables)
BROAD: tuple[Job, ...] = (schemas, partitions, write_to, queries, settings)
