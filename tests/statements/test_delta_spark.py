"""The same statements by delta-spark and by deltars: equal rows, schemas, results and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import deltars
from tests.support.delta_spark import DeltaSpark, DeltaSparkError

pytestmark = [pytest.mark.backends("sqlite"), pytest.mark.timeout(900)]

START = (
    "CREATE TABLE {t} (id BIGINT, k STRING, x DOUBLE, n INT, ts TIMESTAMP, s STRUCT<a: INT, b: STRING>) USING delta"
    " PARTITIONED BY (k)",
    "INSERT INTO {t} VALUES (1, 'a', 0.5, 10, TIMESTAMP '2026-01-01 00:00:00', named_struct('a', 1, 'b', 'x')),"
    " (2, 'a', NULL, 20, NULL, NULL), (3, 'b', double('NaN'), 30, TIMESTAMP '2026-01-02 12:00:00', NULL),"
    " (NULL, NULL, -0.0, NULL, NULL, named_struct('a', NULL, 'b', 'y'))",
    "CREATE TABLE {u} (id BIGINT, k STRING, x DOUBLE) USING delta",
    "INSERT INTO {u} VALUES (1, 'a', 100), (3, 'b', 300), (9, 'z', 900)",
)


class Case(NamedTuple):
    statements: tuple[str, ...]
    core: bool = False
    compares_result: bool = False
    """Whether the last statement's own rows are compared too."""
    by_name: bool = False
    """Whether delta-spark's tables have names: it does not replace the table of a path by one of another schema."""


CASES = {
    "one after the other": Case(
        (
            "INSERT INTO {t} (x, id) VALUES (1, 77), (2.5, 78)",
            "INSERT OVERWRITE {t} PARTITION (k = 'a') SELECT id, x, 1, NULL, NULL FROM {u}",
            "UPDATE {t} AS z SET z.n = z.n + 1, s.b = 'new' WHERE id < 9",
            "DELETE FROM {t} WHERE x > 500 OR id IS NULL",
            "INSERT INTO {u} REPLACE WHERE k = 'a' SELECT 70, 'a', 7.0D",
            "MERGE INTO {t} AS t USING (SELECT * FROM {u} VERSION AS OF 1) AS s ON t.id = s.id"
            " WHEN MATCHED AND s.k = 'a' THEN DELETE"
            " WHEN MATCHED THEN UPDATE SET x = s.x WHEN NOT MATCHED THEN INSERT (id, k, x) VALUES (s.id, s.k, s.x)",
        ),
        core=True,
        compares_result=True,
    ),
    "insert by position": Case(("INSERT INTO {t} SELECT id + 10, k, x, 1, NULL, NULL FROM {u}",)),
    "insert a list": Case(("INSERT INTO {t} (x, id) VALUES (1, 77), (2.5, 78)",)),
    "insert by name": Case(("INSERT INTO {t} BY NAME SELECT 'q' AS k, 5 AS n, 50 AS id",)),
    "insert casts": Case(("INSERT INTO {t} (id, n, x, k) VALUES (1.7, 2.9, 3, 4)",)),
    "insert table": Case(("INSERT INTO {u} TABLE {u}",)),
    "insert with a CTE": Case(("INSERT INTO {u} WITH c AS (SELECT max(id) AS m FROM {t}) SELECT m, 'c', 1 FROM c",)),
    "insert overwrite": Case(("INSERT OVERWRITE {u} VALUES (5, 'five', 5)",)),
    "insert overwrite a partition": Case(
        ("INSERT OVERWRITE {t} PARTITION (k = 'a') SELECT id, x, 1, NULL, NULL FROM {u}",)
    ),
    "insert into a partition": Case(("INSERT INTO {t} PARTITION (k = 'new') (id, n) VALUES (8, 9)",)),
    "replace where": Case(
        ("INSERT INTO {t} REPLACE WHERE k = 'a' SELECT 70, 'a', 7.0D, 7, CAST(NULL AS TIMESTAMP), NULL",)
    ),
    "delete": Case(("DELETE FROM {t} WHERE x > 1 OR id IS NULL",), compares_result=True),
    "delete by an alias": Case(("DELETE FROM {t} AS z WHERE z.s.a = 1",), compares_result=True),
    "delete all": Case(("DELETE FROM {t}",), compares_result=True),
    "truncate": Case(("DELETE FROM {u} WHERE true",)),
    "update": Case(
        ("UPDATE {t} SET n = n + 1, k = concat(k, '!'), s.b = 'new' WHERE id < 3",), compares_result=True
    ),
    "update by an alias": Case(("UPDATE {t} AS z SET z.x = z.n * 2, z.ts = NULL",), compares_result=True),
    "update with CASE": Case(("UPDATE {t} SET x = CASE WHEN x IS NULL THEN -1 WHEN id = 1 THEN n END",)),
    "merge": Case(
        (
            "MERGE INTO {t} AS t USING {u} AS s ON t.id = s.id WHEN MATCHED AND s.k = 'a' THEN UPDATE SET x = s.x"
            " WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id, k, x) VALUES (s.id, s.k, s.x)",
        ),
        compares_result=True,
    ),
    "merge a query, by source": Case(
        (
            "MERGE INTO {t} t USING (SELECT id, max(x) AS x FROM {u} GROUP BY id) s ON t.id = s.id"
            " WHEN NOT MATCHED BY SOURCE AND t.id = 2 THEN UPDATE SET t.k = 'gone'"
            " WHEN NOT MATCHED BY SOURCE THEN DELETE",
        ),
        compares_result=True,
    ),
    "merge stars": Case(
        ("MERGE INTO {u} t USING (SELECT 1L AS id, 'm' AS k, 1D AS x) s ON t.id = s.id"
         " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",),
        compares_result=True,
    ),
    "merge with evolution": Case(
        ("MERGE WITH SCHEMA EVOLUTION INTO {u} t USING (SELECT 1L AS id, 'e' AS extra) s ON t.id = s.id"
         " WHEN MATCHED THEN UPDATE SET *",),
    ),
    "create as select": Case(
        ("CREATE OR REPLACE TABLE {u} USING delta AS SELECT k, count(*) AS n FROM {t} GROUP BY k",)
    ),
    "create or replace": Case(
        ("CREATE OR REPLACE TABLE {u} (z INT NOT NULL COMMENT 'c') USING delta",), by_name=True
    ),
    "defaults": Case(
        (
            "CREATE OR REPLACE TABLE {u} (id INT, v STRING DEFAULT 'none', g INT GENERATED ALWAYS AS (id + 1))"
            " USING delta TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')",
            "INSERT INTO {u} (id) VALUES (1)",
            "INSERT INTO {u} (id, v) VALUES (2, DEFAULT), (3, 'x')",
            "UPDATE {u} SET v = DEFAULT WHERE id = 3",
        ),
        by_name=True,
    ),
    "alter columns": Case(
        (
            "ALTER TABLE {u} ADD COLUMNS (more INT COMMENT 'm' AFTER id, last STRING)",
            "ALTER TABLE {u} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
            "ALTER TABLE {u} RENAME COLUMN k TO key",
            "ALTER TABLE {u} DROP COLUMN last",
            "ALTER TABLE {u} ALTER COLUMN x FIRST",
            "INSERT INTO {u} VALUES (1.5, 4, 5, 'six')",
        )
    ),
    "alter a struct": Case(("ALTER TABLE {t} ADD COLUMNS (s.c BIGINT)", "UPDATE {t} SET s.c = id WHERE id = 1")),
    "constraints": Case(
        ("ALTER TABLE {u} ADD CONSTRAINT pos CHECK (id > 0)", "INSERT INTO {u} VALUES (5, 'ok', 1)")
    ),
    "describe": Case(("DESCRIBE {t}",), compares_result=True),
    "show columns": Case(("SHOW COLUMNS IN {t}",), compares_result=True),
    "time travel": Case(
        ("DELETE FROM {u}", "SELECT id, k, x FROM {u} VERSION AS OF 1 ORDER BY id"), compares_result=True
    ),
    "restore": Case(("DELETE FROM {u}", "RESTORE TABLE {u} TO VERSION AS OF 1")),
}  # fmt: skip
REFUSED = (
    "INSERT INTO {t} VALUES (1)",
    "INSERT INTO {t} (id, nope) VALUES (1, 2)",
    "INSERT INTO {u} VALUES (1, 'a', 'text')",
    "UPDATE {t} SET nope = 1",
    "UPDATE {t} SET n = 'text'",
    "DELETE FROM {t} WHERE nope = 1",
    "DELETE FROM {t} WHERE id IN (SELECT id FROM {u})",
    "MERGE INTO {t} t USING {u} s ON true WHEN MATCHED THEN UPDATE SET x = s.x",
    "MERGE INTO {t} t USING {u} s ON t.id = s.id WHEN MATCHED THEN UPDATE SET nope = s.x",
    "CREATE TABLE {t} (id INT) USING delta",
    "ALTER TABLE {t} ADD COLUMNS (id INT)",
    "ALTER TABLE {t} ADD CONSTRAINT big CHECK (n > 1000)",
    "ALTER TABLE {t} RENAME COLUMN n TO m",
    "RESTORE TABLE {t} TO VERSION AS OF 99",
    "SELECT * FROM {t} VERSION AS OF 99",
    "VACUUM {t} RETAIN 0 HOURS",
)


def _cases() -> list[Any]:
    return [
        pytest.param(case, id=name, marks=() if case.core else pytest.mark.soak(only=True))
        for name, case in CASES.items()
    ]


@pytest.mark.parametrize("case", _cases())
def test_statements_do_what_those_of_delta_spark_do(
    catalog: deltars.Catalog, delta_spark: DeltaSpark, spark: SparkSession, tmp_path: Path, case: Case
) -> None:
    prefix = f"case_{uuid4().hex}"
    theirs = {part: f"{prefix}_{part}" if case.by_name else f"delta.`{tmp_path}/{part}`" for part in "tu"}
    ours = {"t": "t", "u": "u"}
    for text in START:
        delta_spark.run(text.format_map(theirs))
        catalog.sql(text.format_map(ours), spark=spark)
    told = said = pa.table({})
    for text in case.statements:
        told = delta_spark.sql(text.format_map(theirs))
        said = catalog.sql(text.format_map(ours), spark=spark).toArrow()
    for part in "tu":
        read = delta_spark.sql(f"SELECT * FROM {theirs[part]}")
        table = catalog.table(ours[part])
        assert table.schema.names == tuple(read.column_names)
        assert _rows(table.to_arrow()) == _rows(read)
        assert _rows(delta_spark.read(table.location)) == _rows(read)
    if case.compares_result:
        assert said.column_names == told.column_names
        assert _rows(said) == _rows(told)


@pytest.mark.soak(only=True)
def test_statements_that_delta_spark_refuses_are_refused(
    catalog: deltars.Catalog, delta_spark: DeltaSpark, spark: SparkSession, tmp_path: Path
) -> None:
    theirs = {part: f"delta.`{tmp_path}/{part}`" for part in "tu"}
    ours = {"t": "t", "u": "u"}
    for text in START:
        delta_spark.run(text.format_map(theirs))
        catalog.sql(text.format_map(ours), spark=spark)
    before = catalog.snapshot().versions
    for text in REFUSED:
        with pytest.raises(DeltaSparkError):
            delta_spark.run(text.format_map(theirs))
        with pytest.raises((deltars.DeltarsError, PySparkException)):
            catalog.sql(text.format_map(ours), spark=spark).collect()
    assert catalog.snapshot().versions == before


def _rows(rows: pa.Table) -> list[str]:
    """Return the rows in one order, with NaN and −0.0 as text."""
    return sorted(repr([_plain(value) for value in row.values()]) for row in rows.to_pylist())


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return str(value) if hasattr(value, "tzinfo") else value
