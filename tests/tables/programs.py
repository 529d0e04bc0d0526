"""Programs written for `delta.tables`, which run on delta-spark and, with the import changed, on deltars.

Each takes a Spark session, the module (`delta.tables` or `deltars.tables`) and an empty directory, and returns what it
saw as JSON: rows, schemas, what history says, and errors.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from contextlib import redirect_stdout
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any

from pyspark.errors import AnalysisException, IllegalArgumentException, ParseException, UnsupportedOperationException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

Seen = Any
Program = Callable[[SparkSession, Any, Path], Seen]

NOTEBOOK = Path(__file__).parents[2] / "docs/notebooks/from-delta-spark.ipynb"

_KINDS = (ParseException, AnalysisException, IllegalArgumentException, UnsupportedOperationException)
_CONDITION = re.compile(r"\[([A-Z0-9_.]{8,})\] (.*)", re.DOTALL)


def attempt(call: Callable[[], Any]) -> Seen:
    """Return what a call raises: the kind of error, its condition and its first sentence."""
    try:
        call()
    except (TypeError, ValueError) as error:
        return [type(error).__name__, str(error.args[0])]
    except Exception as error:
        kind = next((kind.__name__ for kind in _KINDS if isinstance(error, kind)), "Exception")
        found = _CONDITION.search(str(error))
        if found is None:
            return [kind, str(error).strip().partition("\n")[0]]
        # What follows is a plan, a stack, or a hint.
        first = re.split(r"\.\s|\n|SQLSTATE|; line|, could be", found[2])[0]
        return [kind, found[1], first.strip().rstrip(".")]
    return "no error"


def rows(frame: DataFrame) -> Seen:
    return sorted([list(row) for row in frame.collect()], key=repr)


def current(made: Any) -> DataFrame:
    """Return the table's rows now: delta-spark's handle has one frame, which is not planned again once it ran."""
    rows_now: DataFrame = made.alias("now").toDF()
    return rows_now


def schema(frame: DataFrame) -> Seen:
    return frame.schema.jsonValue()


def table(tables: Any, spark: SparkSession, path: Path, data: list[tuple[Any, ...]], **options: Any) -> Any:
    """Create a table of key and value at a path, and fill it."""
    builder = tables.DeltaTable.create(spark).location(str(path))
    builder = builder.addColumn("key", "string").addColumn("value", "bigint")
    if options.get("partitioned"):
        builder = builder.addColumn("part", "string").partitionedBy("part")
    made = builder.execute()
    add(made, frame(spark, data, *(["part"] if options.get("partitioned") else [])))
    return made


def frame(spark: SparkSession, data: list[tuple[Any, ...]], *more: str) -> DataFrame:
    fields = [T.StructField("key", T.StringType()), T.StructField("value", T.LongType())]
    fields += [T.StructField(name, T.StringType()) for name in more]
    return spark.createDataFrame(data, T.StructType(fields)).coalesce(1)


def add(made: Any, data: DataFrame) -> None:
    """Append rows, by the only call that both sides have."""
    made.merge(data, "false").whenNotMatchedInsertAll().execute()


ABC = [("a", 1), ("b", 2), ("c", 3)]


def operations(made: Any) -> Seen:
    """Return the history without what differs: times, sizes, and texts of expressions."""
    return [
        # The clustering columns of a new table are not in the history of deltars.
        [row.version, row.operation, sorted({*row.operationParameters} - {"clusterBy"}), row.readVersion]
        for row in made.history().collect()
    ]


def metrics(made: Any) -> Seen:
    """Return the newest operation's counts of rows and files."""
    row = made.history(1).collect()[0]
    return {
        name: value
        for name, value in row.operationMetrics.items()
        if re.search(r"Rows|FilesRemoved|RemovedFiles|ConvertedFiles", name)
    }


# -- rows --------------------------------------------------------------------------------------------------------------


def delete(spark: SparkSession, tables: Any, root: Path) -> Seen:
    made = table(tables, spark, root / "t", ABC)
    seen = [made.delete("key = 'a'"), rows(current(made)), metrics(made)]
    seen += [made.delete(F.col("value") == 2), rows(current(made))]
    made.alias("x").delete("x.key = 'none'")
    seen += [rows(current(made)), made.delete(), rows(current(made))]
    return [*seen, operations(made)]


def delete_errors(spark: SparkSession, tables: Any, root: Path) -> Seen:
    made = table(tables, spark, root / "t", ABC)
    wrong = [lambda: made.delete(1), lambda: made.delete("nope = 1"), lambda: made.delete("key = ")]
    wrong += [lambda: made.delete(F.col("nope") == 1), lambda: made.alias("x").delete("y.key = 1")]
    return [*map(attempt, wrong), rows(current(made))]


def update(spark: SparkSession, tables: Any, root: Path) -> Seen:
    made = table(tables, spark, root / "t", ABC)
    seen = [made.update("key = 'a'", {"value": "value + 10"}), rows(current(made)), metrics(made)]
    made.update(set={"value": F.col("value") * 2})
    seen += [rows(current(made))]
    made.update(F.expr("key = 'b'"), {"value": F.lit(0)})
    made.update(condition=F.col("key") == "c", set={"key": "'z'"})
    made.alias("x").update("x.key = 'z'", {"x.value": "x.value + 1"})
    made.update(set={})
    return [*seen, rows(current(made)), operations(made)]


def update_errors(spark: SparkSession, tables: Any, root: Path) -> Seen:
    made = table(tables, spark, root / "t", ABC)
    wrong = [
        lambda: made.update(),
        lambda: made.update("key = 'a'"),
        lambda: made.update(1, {"value": "1"}),
        lambda: made.update(set="value"),
        lambda: made.update(set={1: "value"}),
        lambda: made.update(set={"value": 1}),
        lambda: made.update(set={"nope": "1"}),
        lambda: made.update("nope = 1", {"value": "1"}),
        lambda: made.update(set={"value": "nope + 1"}),
    ]
    return [*map(attempt, wrong), rows(current(made))]


def merge(spark: SparkSession, tables: Any, root: Path) -> Seen:
    seen: list[Any] = []
    source = spark.createDataFrame([("a", -1), ("b", 0), ("e", -5), ("f", -6)], ["k", "v"])
    programs: list[Callable[[Any, DataFrame], Any]] = [
        lambda t, s: (
            t.merge(s, "key = k")
            .whenMatchedUpdate(set={"value": "v + 0"})
            .whenNotMatchedInsert(values={"key": "k", "value": "v + 0"})
        ),
        lambda t, s: t.merge(s, F.expr("key = k")).whenMatchedUpdate(set={"value": F.col("v") + 0}),
        lambda t, s: (
            t.alias("t")
            .merge(s.alias("s"), "t.key = s.k")
            .whenMatchedDelete("s.v < 0")
            .whenMatchedUpdate(set={"t.value": "s.v"})
        ),
        lambda t, s: (
            t.alias("t")
            .merge(s.alias("s"), F.expr("t.key = s.k"))
            .whenNotMatchedInsert(F.expr("s.v < -5"), {"t.key": "s.k", "value": F.col("s.v")})
        ),
        lambda t, s: (
            t.alias("t")
            .merge(s.alias("s"), "t.key = s.k")
            .whenNotMatchedBySourceUpdate("t.value < 3", {"value": "t.value + 100"})
            .whenNotMatchedBySourceDelete()
        ),
        lambda t, s: (
            t.alias("t")
            .merge(s.selectExpr("k as key", "v as value").alias("s"), "t.key = s.key")
            .whenMatchedUpdateAll("s.value > -1")
            .whenNotMatchedInsertAll(F.col("s.key") != "f")
        ),
        lambda t, s: t.alias("t").merge(s.where("v > 100").alias("s"), "t.key = s.k").whenMatchedDelete(),
    ]
    for place, program in enumerate(programs):
        made = table(tables, spark, root / f"t{place}", [*ABC, ("d", 4)])
        result = program(made, source).execute()
        seen += [schema(result), rows(result), rows(current(made)), made.history(1).collect()[0].operation]
        seen += [metrics(made)] if place != 6 else []  # Delta commits also what changes nothing
    return seen


def merge_evolution(spark: SparkSession, tables: Any, root: Path) -> Seen:
    made = table(tables, spark, root / "t", ABC)
    source = frame(spark, [("a", 10, "x"), ("e", 5, "y")], "note")
    before = attempt(
        lambda: (
            made.alias("t")
            .merge(source.alias("s"), "t.key = s.key")
            .whenMatchedUpdate(set={"note": "s.note"})
            .execute()
        )
    )
    merging = made.alias("t").merge(source.alias("s"), "t.key = s.key")
    merging.whenMatchedUpdateAll().whenNotMatchedInsertAll().withSchemaEvolution().execute()
    again = tables.DeltaTable.forPath(spark, str(root / "t"))  # delta-spark's handle keeps its old columns
    return [before[:2], rows(again.toDF()), again.toDF().columns]


def merge_errors(spark: SparkSession, tables: Any, root: Path) -> Seen:
    made = table(tables, spark, root / "t", ABC)
    other = spark.createDataFrame([("b", 5), ("d", 6)], ["k", "v"])
    t, s = made.alias("t"), other.alias("s")
    twice = spark.createDataFrame([("b", 5), ("b", 6)], ["k", "v"]).alias("s")
    on = "t.key = s.k"
    wrong: list[Callable[[], Any]] = [
        lambda: made.merge(None, on),
        lambda: made.merge("source", on),
        lambda: made.merge(other, None),
        lambda: made.merge(other, 1),
        lambda: t.merge(s, on).whenMatchedUpdate(),
        lambda: t.merge(s, on).whenMatchedUpdate(set=1),
        lambda: t.merge(s, on).whenMatchedUpdate(set={1: ""}),
        lambda: t.merge(s, on).whenMatchedUpdate(set={"value": 1}),
        lambda: t.merge(s, on).whenMatchedUpdate(1, {"value": "1"}),
        lambda: t.merge(s, on).whenMatchedUpdateAll(1),
        lambda: t.merge(s, on).whenMatchedDelete(1),
        lambda: t.merge(s, on).whenNotMatchedInsert(),
        lambda: t.merge(s, on).whenNotMatchedInsert(values=1),
        lambda: t.merge(s, on).whenNotMatchedInsertAll(1),
        lambda: t.merge(s, on).whenNotMatchedBySourceUpdate(),
        lambda: t.merge(s, on).whenNotMatchedBySourceDelete(1),
        lambda: t.merge(s, on).execute(),
        lambda: t.merge(s, on).whenMatchedUpdateAll().execute(),
        lambda: t.merge(s, on).whenNotMatchedInsertAll().execute(),
        lambda: t.merge(s, on).whenMatchedDelete().whenMatchedUpdate(set={"value": "s.v"}).execute(),
        lambda: t.merge(twice, on).whenMatchedUpdate(set={"value": "s.v"}).execute(),
        lambda: made.merge(frame(spark, ABC), "key = key").whenMatchedDelete().execute(),
    ]
    return [*map(attempt, wrong), rows(current(made))]


# -- history -----------------------------------------------------------------------------------------------------------


def history(spark: SparkSession, tables: Any, root: Path) -> Seen:
    made = table(tables, spark, root / "t", ABC)
    made.delete("key = 'a'")
    whole = made.history()
    first = whole.collect()[0]
    shown = [first.userId, first.job, first.notebook, first.clusterId, first.readVersion, first.isBlindAppend]
    return [schema(whole), operations(made), len(made.history(1).collect()), made.history(0).collect(), shown]


def detail(spark: SparkSession, tables: Any, root: Path) -> Seen:
    made = tables.DeltaTable.create(spark).location(str(root / "t")).addColumn("a", "int").addColumn("b", "string")
    made = made.comment("about it").property("mine", "1").partitionedBy("b").execute()
    found = made.detail()
    row = found.collect()[0]
    place = os.path.relpath(row.location.removeprefix("file:"), root)
    clustered = tables.DeltaTable.create(spark).location(str(root / "c")).addColumn("a", "int").clusterBy("a")
    other = clustered.execute().detail().collect()[0]
    seen = [row.format, row.description, place, row.partitionColumns, row.clusteringColumns, row.numFiles]
    return [schema(found), *seen, row.sizeInBytes, row.properties, row.minReaderVersion, other.clusteringColumns]


def restore(spark: SparkSession, tables: Any, root: Path) -> Seen:
    made = table(tables, spark, root / "t", ABC)
    made.delete("key = 'a'")
    made.update(set={"value": "0"})
    result = made.restoreToVersion(1)
    names = ["num_of_files_after_restore", "num_removed_files", "num_restored_files"]
    seen = [schema(result), [result.collect()[0][name] for name in names], rows(current(made))]
    moment = made.history().where("version = 2").collect()[0].timestamp
    made.restoreToTimestamp(str(moment))
    wrong = [
        lambda: made.restoreToVersion("1"),
        lambda: made.restoreToTimestamp(1),
        lambda: made.restoreToTimestamp("garbage"),
        lambda: made.restoreToVersion(99),
        lambda: made.restoreToTimestamp("2000-01-01"),
        lambda: made.restoreToTimestamp("2200-01-01"),
    ]
    errors = [attempt(one)[:2] for one in wrong]
    made = tables.DeltaTable.forPath(spark, str(root / "t"))
    return [*seen, rows(current(made)), [row[1] for row in operations(made)], errors]


# -- maintenance -------------------------------------------------------------------------------------------------------


def _counts(result: DataFrame) -> Seen:
    found = result.collect()[0].metrics
    names = ("numFilesAdded", "numFilesRemoved", "partitionsOptimized", "totalConsideredFiles", "numTableColumns")
    more = [found.filesAdded.totalFiles, found.filesRemoved.totalFiles, found.zOrderStats is None]
    return [*(found[name] for name in names), found.numTableColumnsWithStats, *more]


def optimize(spark: SparkSession, tables: Any, root: Path) -> Seen:
    made = table(tables, spark, root / "t", [("a", 1, "p"), ("b", 2, "q")], partitioned=True)
    for value in range(2):
        add(made, frame(spark, [("c", value, "p"), ("d", value, "q")], "part"))
    result = made.optimize().where("part = 'p'").executeCompaction()
    seen = [schema(result), _counts(result), result.collect()[0].path.removeprefix(f"file:{root}")]
    seen += [_counts(made.optimize().executeCompaction()), _counts(made.optimize().executeCompaction())]
    seen += [
        _counts(made.optimize().executeZOrderBy("key")),
        _counts(made.optimize().executeZOrderBy(["key", "value"])),
    ]
    wrong = [
        lambda: made.optimize().where("key = 'a'").executeCompaction(),
        lambda: made.optimize().where("nope = 'a'").executeCompaction(),
        lambda: made.optimize().executeZOrderBy(1),
        lambda: made.optimize().executeZOrderBy([1]),
        lambda: made.optimize().executeZOrderBy("nope"),
        lambda: made.optimize().executeZOrderBy("part"),
    ]
    return [*seen, rows(current(made)), operations(made)[0][1:3], *map(attempt, wrong)]


def vacuum(spark: SparkSession, tables: Any, root: Path) -> Seen:
    # By default delta-spark lists the directory in two hundred tasks.
    spark.conf.set("spark.sql.sources.parallelPartitionDiscovery.parallelism", "1")
    made = table(tables, spark, root / "t", ABC)
    made.delete("key = 'a'")
    result = made.vacuum()
    seen = [schema(result), rows(result), schema(made.vacuum(1000)), schema(made.vacuum(1000.5))]
    seen += [attempt(lambda: made.vacuum(0)), attempt(lambda: made.vacuum("x"))]
    before = len(list((root / "t").glob("*.parquet")))
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    try:
        made.vacuum(0.0)
    finally:
        spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    return [*seen, before - len(list((root / "t").glob("*.parquet"))), rows(current(made))]


def generate(spark: SparkSession, tables: Any, root: Path) -> Seen:
    def manifests(place: Path) -> Seen:
        found = sorted((place / "_symlink_format_manifest").rglob("manifest"))
        return [
            [str(path.relative_to(place)), [_is_there(line) for line in path.read_text().split()]] for path in found
        ]

    def _is_there(line: str) -> bool:
        return line.startswith("file:/") and Path(line.removeprefix("file:")).exists()

    made = table(tables, spark, root / "t", ABC)
    seen = [made.generate("symlink_format_manifest"), manifests(root / "t")]
    other = table(tables, spark, root / "p", [("a", 1, "x"), ("b", 2, "y z")], partitioned=True)
    other.generate("symlink_format_manifest")
    seen += [manifests(root / "p"), other.delete("part = 'x'"), other.generate("symlink_format_manifest")]
    return [*seen, manifests(root / "p"), attempt(lambda: made.generate("nope"))]


# -- creating ----------------------------------------------------------------------------------------------------------


def create(spark: SparkSession, tables: Any, root: Path) -> Seen:
    kind = tables.DeltaTable
    made = kind.create(spark).location(str(root / "t")).addColumn("key", "string", comment="about it")
    made = made.addColumn("value", dataType="int", nullable=False).addColumn("g", "int", generatedAlwaysAs="value + 1")
    made = made.addColumns(T.StructType([T.StructField("s", T.StructType([T.StructField("x", T.DoubleType())]))]))
    made = made.addColumns([T.StructField("d", T.DecimalType(12, 2))]).partitionedBy(["key"]).execute()
    source = spark.createDataFrame([("a", 1)], "key string, value int")
    made.merge(source, "false").whenNotMatchedInsert(values={"key": "key", "value": "value"}).execute()
    seen = [schema(made.toDF()), rows(current(made)), made.detail().collect()[0].partitionColumns]
    same = kind.createIfNotExists(spark).location(str(root / "t")).addColumn("other", "int").execute()
    seen += [
        same.toDF().columns,
        attempt(lambda: kind.create(spark).location(str(root / "t")).addColumn("a", "int").execute()),
    ]
    kind.create(spark).tableName("of_replacing").addColumn("a", "int").execute()
    replaced = kind.replace(spark).tableName("of_replacing").addColumn("z", "int").execute()
    seen += [replaced.toDF().columns, rows(replaced.toDF()), replaced.detail().collect()[0].partitionColumns]
    again = kind.createOrReplace(spark).tableName("of_replacing").addColumn("y", T.LongType()).clusterBy("y").execute()
    new = kind.createOrReplace(spark).location(str(root / "u")).addColumn("y", "array<map<string,int>>").execute()
    named = kind.createIfNotExists(spark).tableName("of_programs").location(str(root / "n")).addColumn("n", "int")
    seen += [again.toDF().columns, again.detail().collect()[0].clusteringColumns, schema(new.toDF())]
    seen += [named.execute().toDF().columns, kind.forName(spark, "of_programs").toDF().columns]
    return [*seen, [row[0] for row in operations(again)]]


def create_errors(spark: SparkSession, tables: Any, root: Path) -> Seen:
    def begin() -> Any:
        return tables.DeltaTable.create(spark)

    generator = tables.IdentityGenerator
    wrong: list[Callable[[], Any]] = [
        lambda: begin().tableName(1),
        lambda: begin().location(1),
        lambda: begin().comment(1),
        lambda: begin().addColumn(1, "int"),
        lambda: begin().addColumn("a", 1),
        lambda: begin().addColumn("a", "int", nullable=1),
        lambda: begin().addColumn("a", "int", generatedAlwaysAs=1),
        lambda: begin().addColumn("a", "int", generatedByDefaultAs="b"),
        lambda: begin().addColumn("a", "bigint", generatedAlwaysAs="b", generatedByDefaultAs=generator()),
        lambda: begin().addColumn("a", "bigint", generatedAlwaysAs=generator(1, 0)),
        lambda: begin().addColumn("a", "bigint", generatedByDefaultAs=generator(step=0)),
        lambda: begin().addColumn("a", "int", comment=1),
        lambda: begin().addColumns(1),
        lambda: begin().addColumns([1]),
        lambda: begin().partitionedBy(1),
        lambda: begin().partitionedBy([1]),
        lambda: begin().clusterBy(1),
        lambda: begin().clusterBy([1]),
        lambda: begin().property(1, "x"),
        lambda: begin().property("x", 1),
        lambda: begin().execute(),
        lambda: begin().addColumn("a", "no_such_type"),
        lambda: begin().location(str(root / "a")).addColumn("a", "int").addColumn("A", "int").execute(),
        lambda: begin().location(str(root / "b")).addColumn("a", "int").partitionedBy("nope").execute(),
        lambda: begin().location(str(root / "c")).addColumn("a", "int").partitionedBy("a").execute(),
        lambda: tables.DeltaTable.replace(spark).location(str(root / "d")).addColumn("a", "int").execute(),
    ]
    return list(map(attempt, wrong))


def open_tables(spark: SparkSession, tables: Any, root: Path) -> Seen:
    kind = tables.DeltaTable
    table(tables, spark, root / "t", ABC)
    frame(spark, ABC).write.parquet(str(root / "plain"))
    found = [kind.isDeltaTable(spark, str(root / name)) for name in ("t", "plain", "none")]
    by_path = [rows(kind.forPath(spark, str(root / "t")).toDF()), rows(kind.forName(spark, f"delta.`{root}/t`").toDF())]
    wrong = [
        lambda: kind.forPath(spark, str(root / "none")),
        lambda: kind.forPath(spark, str(root / "plain")),
        lambda: kind.forName(spark, "no_such_table"),
        lambda: kind.forPath(spark, str(root / "t"), {"a": "b"}),
    ]
    return [found, by_path, [[str(part).replace(str(root), "") for part in attempt(one)] for one in wrong]]


def convert(spark: SparkSession, tables: Any, root: Path) -> Seen:
    kind = tables.DeltaTable
    frame(spark, ABC).write.parquet(str(root / "a"))
    made = kind.convertToDelta(spark, f"parquet.`{root}/a`")
    seen = [rows(current(made)), schema(made.toDF()), made.history().collect()[0].operation, metrics(made)]
    made.delete("key = 'a'")
    seen += [rows(kind.convertToDelta(spark, f"parquet.`{root}/a`").toDF())]
    data = frame(spark, [("a", 1, "1"), ("b", 2, None), ("c", 3, "2")], "p")
    data.selectExpr("key", "cast(1.5 as decimal(10,2)) d", "timestamp'2024-01-01 00:00:00' t", "p").write.partitionBy(
        "p"
    ).parquet(str(root / "b"))
    seen += [attempt(lambda: kind.convertToDelta(spark, f"parquet.`{root}/b`"))[:2]]
    seen += [attempt(lambda: kind.convertToDelta(spark, f"parquet.`{root}/b`", "q int"))[:2]]
    parted = kind.convertToDelta(spark, f"parquet.`{root}/b`", "p int")
    seen += [sorted(map(repr, rows(parted.toDF()))), schema(parted.toDF())]
    data.write.partitionBy("p").parquet(str(root / "c"))
    typed = kind.convertToDelta(spark, f"parquet.`{root}/c`", T.StructType([T.StructField("p", T.StringType())]))
    seen += [rows(typed.toDF()), typed.detail().collect()[0].partitionColumns]
    return [*seen, attempt(lambda: kind.convertToDelta(spark, f"`{root}/none`"))[:2]]


def protocol(spark: SparkSession, tables: Any, root: Path) -> Seen:
    made = table(tables, spark, root / "t", ABC)
    versions = [list(made.detail().collect()[0][-3:])]
    made.upgradeTableProtocol(1, 3)
    versions += [list(made.detail().collect()[0][-3:])]
    made.upgradeTableProtocol(1, 2)
    made.addFeatureSupport("deletionVectors")
    versions += [list(made.detail().collect()[0][-3:])]
    features = set(made.detail().collect()[0].tableFeatures)
    wrong = [
        lambda: made.upgradeTableProtocol("1", 3),
        lambda: made.upgradeTableProtocol(1, [3]),
        lambda: made.upgradeTableProtocol(1, 99),
        lambda: made.addFeatureSupport(1),
        lambda: made.addFeatureSupport("nope"),
        lambda: made.dropFeatureSupport(1),
        lambda: made.dropFeatureSupport("deletionVectors", 1),
        lambda: made.dropFeatureSupport("nope"),
        lambda: made.dropFeatureSupport("v2Checkpoint"),
        lambda: made.dropFeatureSupport("invariants"),
        lambda: made.dropFeatureSupport("clustering"),
        lambda: made.dropFeatureSupport("appendOnly", True),
        lambda: made.dropFeatureSupport("checkConstraints", True),
    ]
    shown = sorted(features & {"checkConstraints", "deletionVectors", "changeDataFeed"})
    seen = [shown, made.detail().collect()[0].properties, *map(attempt, wrong), rows(current(made))]
    made.dropFeatureSupport("checkConstraints")
    left = set(made.detail().collect()[0].tableFeatures)
    dropped = made.history(1).collect()[0]
    return [*seen, versions, "checkConstraints" in left, dropped.operation, dropped.operationParameters]


def clone_arguments(spark: SparkSession, tables: Any, root: Path) -> Seen:
    made = table(tables, spark, root / "t", ABC)
    target = str(root / "u")
    wrong = [
        lambda: made.clone(1),
        lambda: made.clone(target, isShallow=1),
        lambda: made.clone(target, replace="x"),
        lambda: made.clone(target, properties=1),
        lambda: made.clone(target, properties={1: "x"}),
        lambda: made.clone(target, properties={"x": 1}),
        lambda: made.cloneAtVersion("1", target),
        lambda: made.cloneAtTimestamp(1, target),
    ]
    return list(map(attempt, wrong))


def notebook(spark: SparkSession, tables: Any, root: Path) -> Seen:
    """Return what the notebook of the documentation prints. Its session and its import are given."""
    names: dict[str, Any] = {"spark": spark, "DeltaTable": tables.DeltaTable, "lake": root}
    printed = StringIO()
    with redirect_stdout(printed):
        for cell in json.loads(NOTEBOOK.read_text())["cells"]:
            if cell["cell_type"] == "code" and cell["id"] not in ("session", "import"):
                exec("".join(cell["source"]), names)
    return printed.getvalue()


def run(spark: SparkSession, tables: Any, program: Program, root: str) -> Seen:
    """Run a program, and return what it saw as JSON has it."""
    return json.loads(json.dumps(program(spark, tables, Path(root)), default=str))


def run_on_delta(spark: SparkSession, module: str, name: str, root: str) -> Seen:
    """Run a program of a module on delta-spark, in its process: its JAR has `delta.tables`."""
    return run(spark, import_module("delta.tables"), getattr(import_module(module), name), root)


CORE: tuple[Program, ...] = (merge_errors, create_errors)
"""Programs that `make test` runs."""
BROAD: tuple[Program, ...] = (
    delete,
    update,
    history,
    delete_errors,
    update_errors,
    merge,
    merge_evolution,
    detail,
    restore,
    optimize,
    vacuum,
    generate,
    create,
    open_tables,
    convert,
    protocol,
    clone_arguments,
    notebook,
)
