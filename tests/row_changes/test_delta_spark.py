"""The same statements on the same rows, by delta-spark and by deltars: equal rows, equal counts."""

from __future__ import annotations

import json
import math
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import deltars
from deltars.transaction import read_size
from tests.mirror.test_readers import READERS
from tests.row_changes.statements import Clause, Delete, Merge, Update
from tests.support.delta_spark import DeltaSpark
from tests.support.soak import is_soak

pytestmark = [pytest.mark.backends("sqlite"), pytest.mark.timeout(900)]

DDL = "id BIGINT, p STRING, x DOUBLE, d DECIMAL(10, 2), ts TIMESTAMP, s STRUCT<a: INT, b: STRING>"
ROWS: list[list[tuple[Any, ...]]] = [
    [(1, "a", 0.0, "1.50"), (2, "a", math.nan, "2.50"), (3, "b", None, None), (None, "b", -0.0, "0.00")],
    [(4, "b", 1e300, "-3.25"), (5, None, -1.0, "99999999.99"), (6, "a", 2.5, "6.00")],
    [(7, "c", 0.0, "7.00"), (8, "c", 8.0, "8.00"), (9, "c", 9.0, "9.00")],
]
SOURCE: dict[str, list[Any]] = {
    "id": [2, 4, 7, 10, None],
    "p": ["a", "z", "c", "n", "n"],
    "x": [20.0, None, math.nan, 1.0, 2.0],
    "d": ["20.00", "40.00", None, "1.00", "2.00"],
}
MATCHED_UPDATE = Clause("matched", "update", None, {"x": "s.x", "d": "s.d"})
INSERT = Clause("not_matched", "insert", None, {"id": "s.id", "p": "s.p", "x": "s.x", "d": "s.d"})

STATEMENTS: dict[str, Delete | Update | Merge] = {
    "delete by a number": Delete("id >= 3"),
    "delete NaN": Delete("x > 5"),
    "delete zeros": Delete("x = 0.0"),
    "delete nulls": Delete("p IS NULL OR x IS NULL"),
    "delete by a function": Delete("length(p) = 1 AND id % 2 = 0"),
    "delete a partition": Delete("p = 'c'"),
    "delete all": Delete(),
    "update by an expression": Update({"x": "x + 1", "p": "concat(p, '!')"}, "id < 5"),
    "update all": Update({"d": "d * 2"}, "d < 1000"),
    "update a struct's field": Update({"s.a": "s.a + 10"}, "id IN (1, 7)"),
    "update to null": Update({"x": "NULL", "ts": "NULL"}, "p = 'a'"),
    "merge update and insert": Merge([MATCHED_UPDATE, INSERT], source=SOURCE),
    "merge with conditions": Merge(
        [
            Clause("matched", "delete", "s.x IS NULL"),
            Clause("matched", "update", "t.x > 1", {"x": "t.x + s.x", "p": "s.p"}),
            Clause("not_matched", "insert", "s.id > 5", {"id": "s.id", "x": "s.x"}),
        ],
        source=SOURCE,
    ),
    "merge by source": Merge(
        [
            MATCHED_UPDATE,
            Clause("not_matched_by_source", "delete", "t.id > 7"),
            Clause("not_matched_by_source", "update", "t.id < 4", {"p": "'gone'"}),
        ],
        source=SOURCE,
    ),
    "merge only deletes, sources twice": Merge(
        [Clause("matched", "delete")], source={k: v * 2 for k, v in SOURCE.items()}
    ),
    "merge on two keys": Merge([MATCHED_UPDATE, INSERT], on="t.id = s.id AND t.p = s.p", source=SOURCE),
    "merge on a range": Merge(
        [Clause("matched", "update", None, {"x": "s.x"})], on="t.id > s.id AND t.id < s.id + 2", source=SOURCE
    ),
    "merge of an empty source": Merge([MATCHED_UPDATE, INSERT], source={k: [] for k in SOURCE}),
}
CORE = {"arrow": {"delete NaN", "merge with conditions"}, "spark": {"update by an expression", "merge by source"}}
"""Statements that `make test` runs on each plane."""

COUNTS = (
    "numDeletedRows",
    "numUpdatedRows",
    "numCopiedRows",
    "numSourceRows",
    "numTargetRowsInserted",
    "numTargetRowsUpdated",
    "numTargetRowsDeleted",
    "numTargetRowsMatchedUpdated",
    "numTargetRowsMatchedDeleted",
    "numTargetRowsNotMatchedBySourceUpdated",
    "numTargetRowsNotMatchedBySourceDeleted",
)


def _chosen(plane: str) -> list[str]:
    return [name for name in STATEMENTS if is_soak() or name in CORE[plane]]


def _combinations() -> list[Any]:
    """Return every plane, storage and layout. `make test` runs two that differ in all three."""
    short = {("arrow", "vectors", "partitioned"), ("spark", "rewritten", "flat")}
    every = product(("arrow", "spark"), ("rewritten", "vectors"), ("flat", "partitioned"))
    return [
        pytest.param(
            plane,
            storage == "vectors",
            layout == "partitioned",
            id=f"{plane}-{storage}-{layout}",
            marks=pytest.mark.soak(only=(plane, storage, layout) not in short),
        )
        for plane, storage, layout in every
    ]


@pytest.mark.parametrize(("plane", "has_vectors", "is_partitioned"), _combinations())
def test_statements_give_the_rows_of_delta_spark(
    catalog: deltars.Catalog,
    delta_spark: DeltaSpark,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    plane: str,
    has_vectors: bool,
    is_partitioned: bool,
) -> None:
    if plane == "spark":
        monkeypatch.setattr(read_size, "SMALL_BYTES", -1)
    for number, name in enumerate(_chosen(plane)):
        statement = STATEMENTS[name]
        theirs = f"delta.`{tmp_path}/theirs{number}`"
        _create_theirs(delta_spark, theirs, has_vectors, is_partitioned)
        ours = _create_ours(catalog, f"ours{number}", has_vectors, is_partitioned)
        source = None
        if isinstance(statement, Merge):
            source = source_of(statement)
            values = ", ".join(literals(row) for row in zip(*statement.source.values(), strict=True))
            names = "id, p, x, d"
            of = f"VALUES {values}" if values else "SELECT 1L, '', 1D, 1BD WHERE false"
            delta_spark.run(
                "CREATE OR REPLACE TEMP VIEW s AS SELECT CAST(id AS BIGINT) id, CAST(p AS STRING) p,"
                f" CAST(x AS DOUBLE) x, CAST(d AS DECIMAL(10, 2)) d FROM ({of}) AS v({names})"
            )
        delta_spark.run(statement.sql(theirs))
        metrics = statement.run(ours, source).operation_metrics
        assert readable(ours.to_arrow()) == readable(delta_spark.sql(f"SELECT * FROM {theirs}")), name
        assert readable(ours.read(spark=spark).toArrow()) == readable(ours.to_arrow()), name
        assert readable(delta_spark.read(ours.location)) == readable(ours.to_arrow()), name
        told = dict(delta_spark.sql(f"DESCRIBE HISTORY {theirs} LIMIT 1").to_pylist()[0]["operationMetrics"])
        for count in COUNTS:
            if count in told and count in metrics and not (count == "numCopiedRows" and has_vectors):
                assert metrics[count] == told[count], f"{name}: {count}"


def test_every_reader_sees_our_vectors_also_after_a_checkpoint(
    catalog: deltars.Catalog, delta_spark: DeltaSpark, tmp_path: Path
) -> None:
    properties = {"delta.enableDeletionVectors": "true", "delta.checkpointInterval": "4"}
    table = catalog.create_table("t", "id BIGINT, p STRING", partition_by=["p"], properties=properties)
    ids = range(4_000)
    table.write(pa.table({"id": ids, "p": [str(i % 2) for i in ids]}))
    table.delete("id = 7")  # a vector in the log
    table.delete("id % 3 = 0 AND p = '0'")  # a file of vectors
    table.update({"id": "-id"}, "id IN (8, 9)")  # both are extended
    table.delete("id > 3990 OR id % 5 = 0")
    expected = {i for i in ids if i != 7 and not (i % 3 == 0 and i % 2 == 0) and i <= 3990 and i % 5}
    expected = (expected - {8, 9}) | {-8, -9}
    log = Path(table.location) / "_delta_log"
    stored = {json.loads(vector)["storageType"] for vector in table.files()["deletion_vector"].to_pylist() if vector}
    assert stored == {"u"}
    assert (log / f"{4:020}.checkpoint.parquet").exists()
    for version in range(4):
        (log / f"{version:020}.json").unlink()
    read = {name: reader(Path(table.location), None) for name, reader in READERS.items()}
    read |= {"deltars": table.to_arrow(), "delta-spark": delta_spark.read(table.location)}
    for name, rows in read.items():
        assert sorted(rows["id"].to_pylist()) == sorted(expected), name


def _create_theirs(delta_spark: DeltaSpark, table: str, has_vectors: bool, is_partitioned: bool) -> None:
    delta_spark.run(
        f"CREATE TABLE {table} ({DDL}) USING delta{' PARTITIONED BY (p)' if is_partitioned else ''}"
        f" TBLPROPERTIES ('delta.enableDeletionVectors' = '{str(has_vectors).lower()}')"
    )
    for rows in ROWS:
        values = ", ".join(literals(row) for row in rows)
        delta_spark.run(
            f"INSERT INTO {table} SELECT CAST(id AS BIGINT), CAST(p AS STRING), CAST(x AS DOUBLE),"
            " CAST(d AS DECIMAL(10, 2)), timestamp_seconds(id),"
            " named_struct('a', CAST(id AS INT), 'b', CAST(p AS STRING))"
            f" FROM (VALUES {values}) AS v(id, p, x, d)"
        )


def _create_ours(catalog: deltars.Catalog, name: str, has_vectors: bool, is_partitioned: bool) -> deltars.Table:
    properties = {"delta.enableDeletionVectors": str(has_vectors).lower()}
    table = catalog.create_table(name, DDL, properties=properties, partition_by=["p"] if is_partitioned else [])
    for rows in ROWS:
        table.write(table_of(rows))
    return table


def table_of(rows: list[tuple[Any, ...]]) -> pa.Table:
    ids, ps, xs, ds = zip(*rows, strict=True)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "p": pa.array(ps, pa.string()),
            "x": pa.array(xs, pa.float64(), from_pandas=False),
            "d": pa.array(ds, pa.string()).cast(pa.decimal128(10, 2)),
            "ts": pa.array([None if i is None else i * 1_000_000 for i in ids], pa.timestamp("us", "UTC")),
            "s": pa.array(
                [{"a": i, "b": p} for i, p in zip(ids, ps, strict=True)],
                pa.struct([("a", pa.int32()), ("b", pa.string())]),
            ),
        }
    )


def source_of(statement: Merge) -> pa.Table:
    source = statement.source
    return pa.table(
        {
            "id": pa.array(source["id"], pa.int64()),
            "p": pa.array(source["p"], pa.string()),
            "x": pa.array(source["x"], pa.float64(), from_pandas=False),
            "d": pa.array(source["d"], pa.string()).cast(pa.decimal128(10, 2)),
        }
    )


def literals(row: tuple[Any, ...]) -> str:
    def literal(value: Any) -> str:
        if value is None:
            return "NULL"
        if isinstance(value, float):
            return f"CAST('{value!r}' AS DOUBLE)"
        return repr(value)

    return "(" + ", ".join(map(literal, row)) + ")"


def readable(table: pa.Table) -> list[str]:
    """Rows as texts, which tell NaN from null and −0.0 from 0.0."""
    return sorted(repr([_plain(value) for value in row.values()]) for row in table.to_pylist())


def _plain(value: Any) -> Any:
    return value.timestamp() if hasattr(value, "timestamp") else value
