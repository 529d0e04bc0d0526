"""Row-level changes leave the rows that delta-spark leaves, and count them alike."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from deltars.data.row_change import Clause, Delete, Merge, RowChanges, Update
from deltars.spark.change import SparkChanges
from tests.support.delta_spark import DeltaSpark
from tests.support.scans import scan_of_files, write_file
from tests.support.spark_changes import ordered, rows_after

COLUMNS = "id BIGINT, v STRING, d DOUBLE, r STRUCT<a: INT, b: STRING>"
ROWS = [
    (1, "'a'", "double('NaN')", "named_struct('a', 1, 'b', 'x')"),
    (2, "NULL", "-0.0D", "NULL"),
    (3, "'c'", "1.5D", "named_struct('a', cast(NULL AS INT), 'b', 'z')"),
    (4, "'d'", "NULL", "NULL"),
    ("NULL", "'e'", "0.0D", "NULL"),
]
TABLE = pa.table(
    {
        "id": [1, 2, 3, 4, None],
        "v": ["a", None, "c", "d", "e"],
        "d": [float("nan"), -0.0, 1.5, None, 0.0],
        "r": pa.array(
            [{"a": 1, "b": "x"}, None, {"a": None, "b": "z"}, None, None],
            pa.struct([("a", pa.int32()), ("b", pa.string())]),
        ),
    }
)
SOURCE = (
    "SELECT * FROM VALUES (1L, 'new', 0.0D), (4L, NULL, 2.0D), (9L, 'nine', -0.0D), (NULL, 'none', 1.0D) AS (id, v, d)"
)

MERGE: Sequence[Clause] = [
    Clause("matched", "delete", "s.v IS NULL"),
    Clause("matched", "update", "t.d > 1", {"v": "s.v", "r.a": "7", "d": "0.5"}),
    Clause("not_matched", "insert", "s.v <> 'none'", {"id": "s.id", "v": "upper(s.v)", "d": "s.d"}),
    Clause("not_matched_by_source", "update", "t.d = 0", {"v": "concat('by source ', coalesce(t.v, '-'))"}),
    Clause("not_matched_by_source", "delete", "t.d > 1"),
]
MERGE_SQL = """
    WHEN MATCHED AND s.v IS NULL THEN DELETE
    WHEN MATCHED AND t.d > 1 THEN UPDATE SET v = s.v, r.a = 7, d = 0.5
    WHEN NOT MATCHED AND s.v <> 'none' THEN INSERT (id, v, d) VALUES (s.id, upper(s.v), s.d)
    WHEN NOT MATCHED BY SOURCE AND t.d = 0 THEN UPDATE SET v = concat('by source ', coalesce(t.v, '-'))
    WHEN NOT MATCHED BY SOURCE AND t.d > 1 THEN DELETE
"""

STATEMENTS: list[tuple[str, Delete | Update | Merge]] = [
    ("DELETE FROM {} WHERE d > 1 OR v = 'e'", Delete("d > 1 OR v = 'e'")),
    ("DELETE FROM {} WHERE NOT (d = 0)", Delete("NOT (d = 0)")),
    ("UPDATE {} SET r.a = id + 0.7, v = id WHERE d <= 1.5", Update({"r.a": "id + 0.7", "v": "id"}, "d <= 1.5")),
    (f"MERGE INTO {{}} t USING ({SOURCE}) s ON t.id = s.id {MERGE_SQL}", Merge(None, "t.id = s.id", MERGE)),
]


@pytest.mark.soak(only=True)
def test_rows_and_counts_are_those_of_delta_spark(spark: SparkSession, delta_spark: DeltaSpark, tmp_path: Path) -> None:
    rows = "SELECT * FROM VALUES " + ", ".join(f"({', '.join(map(str, row))})" for row in ROWS)
    rows += " AS (id, v, d, r)"
    changes = SparkChanges(spark)
    scan = scan_of_files(tmp_path, COLUMNS, [write_file(tmp_path, "a.parquet", TABLE)])
    for number, (sql, statement) in enumerate(STATEMENTS):
        theirs = f"delta.`{tmp_path}/delta-{number}`"
        delta_spark.run(f"CREATE TABLE {theirs} ({COLUMNS}) USING delta")
        delta_spark.run(f"INSERT INTO {theirs} {rows}")
        delta_spark.run(sql.format(theirs))
        expected = delta_spark.sql(f"SELECT * FROM {theirs}").to_pylist()
        found = _changed(spark, changes, scan, statement)
        assert list(map(repr, rows_after(scan, found))) == list(map(repr, ordered(expected))), sql
        [history] = delta_spark.sql(f"DESCRIBE HISTORY {theirs} LIMIT 1")["operationMetrics"].to_pylist()
        _same_counts(dict(history), found)


def _changed(spark: SparkSession, changes: SparkChanges, scan: Any, statement: Delete | Update | Merge) -> RowChanges:
    match statement:
        case Delete():
            return changes.delete(scan, statement)
        case Update():
            return changes.update(scan, statement)
        case Merge():
            merge = Merge(spark.sql(SOURCE), statement.on, statement.clauses)
            return changes.merge(scan, merge, changes.source(merge, scan.schema))


def _same_counts(history: dict[str, str], found: RowChanges) -> None:
    ours = {
        "numDeletedRows": found.deleted,
        "numUpdatedRows": found.updated,
        "numTargetRowsInserted": found.inserted,
        "numTargetRowsUpdated": found.updated,
        "numTargetRowsDeleted": found.deleted,
        **found.metrics,
    }
    known = {name: int(value) for name, value in history.items() if name in ours}
    assert known
    assert known == {name: ours[name] for name in known}
