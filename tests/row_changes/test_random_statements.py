"""Random statements on random tables, by delta-spark and by deltars: equal rows and equal counts after each."""

from __future__ import annotations

import math
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import deltars
from deltars.protocol import schema_from_ddl, schema_to_arrow
from deltars.transaction import read_size
from tests.row_changes.statements import Clause, Delete, Merge, Update
from tests.row_changes.test_delta_spark import COUNTS, readable
from tests.support.delta_spark import DeltaSpark, DeltaSparkError
from tests.support.soak import record, scaled, seed

pytestmark = [pytest.mark.backends("sqlite"), pytest.mark.soak(only=True), pytest.mark.timeout(3_600)]

DDL = (
    "id BIGINT, p STRING, x DOUBLE, f FLOAT, d DECIMAL(10, 2), n INT, day DATE, ts TIMESTAMP, b BINARY,"
    " s STRUCT<a: INT, b: STRING>, tags ARRAY<INT>"
)
POOLS: dict[str, list[Any]] = {
    "id": [*range(8), None],
    "p": ["a", "b", "c d", "é/%", "A", None],
    "x": [0.0, -0.0, math.nan, 1.5, -math.inf, None],
    "f": [0.0, -0.0, math.nan, 0.5, None],
    "d": [Decimal("0.00"), Decimal("1.25"), Decimal("-99999999.99"), None],
    "n": [0, 1, -1, 2**31 - 1, None],
    "day": [date(1, 1, 1), date(1582, 10, 14), date(2026, 1, 31), None],
    "ts": [datetime(1900, 1, 1, 0, 0, 0, 1, UTC), datetime(2026, 1, 31, tzinfo=UTC), None],
    "b": [b"", b"a", b"\xff", None],
    "s": [{"a": 1, "b": None}, {"a": None, "b": "x"}, None],
    "tags": [[], [1, None], None],
}
CONDITIONS = (
    "{0}id < 4", "{0}id IN (1, 2, 7)", "{0}id % 2 = 1", "{0}p = 'a'", "{0}p <> 'a'", "{0}p IS NULL", "{0}x > 1",
    "{0}x = 0", "{0}f <= 0", "{0}d < 1", "{0}d + 1 > 1", "{0}n >= 0", "{0}day < DATE'2000-01-01'",
    "{0}ts > '2000-01-01'",
    "{0}b = X'61'", "{0}s.a = 1", "{0}s IS NULL", "{0}tags IS NOT NULL", "upper({0}p) = 'A'", "{0}p LIKE '%/%'",
    "NOT ({0}x < 1)", "{0}x <=> NULL", "coalesce({0}n, 7) = 7", "size({0}tags) = 2",
)  # fmt: skip
VALUES = {
    "id": ("{0}id + 10", "NULL", "3"),
    "p": ("'b'", "NULL", "concat({0}p, '!')", "lower({0}p)"),
    "x": ("-{0}x", "1.5", "{0}x + {0}n", "NULL"),
    "f": ("{0}f * 2", "0.1"),
    "d": ("{0}d / 3", "{0}d + 0.005", "7"),
    "n": ("{0}n % 3", "{0}id"),
    "day": ("date_add({0}day, 1)", "DATE'2026-02-28'"),
    "ts": ("NULL", "TIMESTAMP'2026-02-28 12:00:00Z'"),
    "s.a": ("{0}s.a + 1", "{0}n % 5"),
    "b": ("X'FF'",),
    "tags": ("array(1, 2)", "NULL"),
}


_OWN_FAULT = "did not match any merge clause"
"""delta-spark fails so for some merges whose conditions are null. The table's other statements are then left out."""


class Draw:
    """Random tables and statements, from one seed."""

    def __init__(self, number: int) -> None:
        self.random = random.Random(number)

    def rows(self, count: int, *, unique: bool = False) -> pa.Table:
        ids = self.random.sample(POOLS["id"], count) if unique else self.random.choices(POOLS["id"], k=count)
        rows = [
            {name: self.random.choice(pool) for name, pool in POOLS.items()} | {"id": key, "tags": [key]} for key in ids
        ]
        return pa.Table.from_pylist(rows, schema_to_arrow(schema_from_ddl(DDL)))

    def condition(self, prefix: str = "") -> str:
        chosen = self.random.choices(CONDITIONS, k=self.random.choice((1, 1, 2)))
        return f" {self.random.choice(('AND', 'OR'))} ".join(f"({one.format(prefix)})" for one in chosen)

    def maybe(self, prefix: str) -> str | None:
        return self.condition(prefix) if self.random.random() < 0.5 else None

    def values(self, prefix: str = "") -> dict[str, str]:
        names = self.random.sample(sorted(VALUES), self.random.randint(1, 3))
        return {name: self.random.choice(VALUES[name]).format(prefix) for name in names}

    def statement(self) -> Delete | Update | Merge:
        match self.random.choice(("delete", "update", "merge", "merge")):
            case "delete":
                return Delete(self.condition())
            case "update":
                return Update(self.values(), self.condition())
        clauses = []
        for _ in range(self.random.randint(0, 2)):
            kind = self.random.choice(("update", "delete", "all"))
            values = {"update": self.values("t."), "delete": {}, "all": None}[kind]
            action = "delete" if kind == "delete" else "update"
            condition = self.condition(self.random.choice(("t.", "s.")))
            clauses.append(Clause("matched", action, condition, None if kind == "delete" else values))
        clauses.append(Clause("matched", "update", None, {"x": "s.x", "p": "s.p", "n": "t.n"}))
        if self.random.random() < 0.7:
            clauses.append(Clause("not_matched", "insert", self.maybe("s."), None))
        if self.random.random() < 0.4:
            clauses.append(Clause("not_matched_by_source", "delete", self.condition("t.")))
        on = self.random.choice(
            ("t.id = s.id", "t.id = s.id AND t.p = s.p", "t.id = s.id AND t.x > 0", "t.id <=> s.id")
        )
        return Merge(clauses, on=on)


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_random_statements_leave_the_rows_that_delta_spark_leaves(
    catalog: deltars.Catalog,
    delta_spark: DeltaSpark,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: str,
    vectors: str,
) -> None:
    tables, statements, small = scaled(2, soak=15), 0, read_size.SMALL_BYTES
    for number in range(tables):
        draw = Draw(seed() + number)
        mapping = draw.random.choice(("none", "name", "id"))
        properties = {"delta.enableDeletionVectors": vectors, "delta.columnMapping.mode": mapping}
        layout = draw.random.choice(([], ["p"], ["day", "p"]))
        ours = catalog.create_table(f"ours_{number}", DDL, partition_by=layout, properties=properties)
        for _ in range(3):
            ours.write(draw.rows(6))
        theirs = f"delta.`{tmp_path}/theirs-{number}`"
        given = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
        by = f"PARTITIONED BY ({', '.join(layout)})" if layout else ""
        delta_spark.run(f"CREATE TABLE {theirs} ({DDL}) USING delta {by} TBLPROPERTIES ({given})")
        delta_spark.run(f"INSERT INTO {theirs} SELECT * FROM delta.`{ours.location}`")
        last, _ = _last_operation(delta_spark, theirs)
        for step in range(8):
            statement, source = draw.statement(), None
            monkeypatch.setattr(read_size, "SMALL_BYTES", draw.random.choice((-1, small)))
            if isinstance(statement, Merge):
                source = draw.rows(draw.random.randint(0, 6), unique=draw.random.random() < 0.8)
                catalog.write("source", source, "overwrite")
                place = catalog.table("source").location
                delta_spark.run(f"CREATE OR REPLACE TEMP VIEW s AS SELECT * FROM delta.`{place}`")
            sql = statement.sql(theirs)
            try:
                delta_spark.run(sql)
            except DeltaSparkError as refused:
                if _OWN_FAULT in str(refused):
                    break
                try:
                    statement.run(ours, source)
                except deltars.DeltarsError:
                    continue
                pytest.fail(f"delta-spark refuses it: {sql}: {refused}")
            counts = statement.run(ours, source).operation_metrics
            statements += 1
            assert readable(ours.to_arrow()) == readable(delta_spark.sql(f"SELECT * FROM {theirs}")), (
                number,
                step,
                sql,
            )
            before, (last, told) = last, _last_operation(delta_spark, theirs)
            if last == before:
                # delta-spark committed nothing, so what it tells is of an earlier statement.
                told = dict.fromkeys(COUNTS, "0")
            # delta-spark counts a source row once more if its join evaluates it once more.
            if source is not None:
                assert counts["numSourceRows"] == str(source.num_rows), (number, step, sql)
            for count in set(COUNTS) & set(told) & set(counts) - {"numCopiedRows", "numSourceRows"}:
                assert counts[count] == told[count], (number, step, count, sql)
        assert readable(delta_spark.read(ours.location)) == readable(ours.to_arrow())
    record(f"random statements beside delta-spark, vectors {vectors}", tables=tables, statements=statements)


def _last_operation(delta_spark: DeltaSpark, table: str) -> tuple[int, dict[str, str]]:
    """Return version and metrics of the last commit."""
    [row] = delta_spark.sql(f"DESCRIBE HISTORY {table} LIMIT 1").to_pylist()
    return row["version"], dict(row["operationMetrics"])
