"""Row-level changes by Arrow compare and compute as Spark does."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from deltars.data.evaluation import AssignedValue, RowCondition
from deltars.data.keys import KeyIndex, comparison_type
from deltars.protocol import PrimitiveType, StructType, schema_from_ddl, type_to_arrow

NUMBERS: dict[str, list[Any]] = {
    "byte": [0, 1, -128],
    "integer": [0, 1, 2**31 - 1],
    "long": [0, 1, 2**53, 2**53 + 1, 2**63 - 1],
    "float": [0.0, -0.0, math.nan, 1.0, 0.1, math.inf],
    "double": [0.0, -0.0, math.nan, 1.0, 0.1, float(2**53), math.inf],
    "decimal(10,2)": [Decimal("0.00"), Decimal("1.00"), Decimal("1.10")],
    "decimal(18,4)": [Decimal("0.0000"), Decimal("1.1000"), Decimal("1.1001")],
}
OTHERS: dict[str, list[Any]] = {
    "string": ["", "a", "A", "a ", "é", "e\u0301", "\0"],
    "binary": [b"", b"a", b"\0", b"\xff"],
    "boolean": [True, False],
    "date": [date(1, 1, 1), date(1582, 10, 15), date(9999, 12, 31)],
    "timestamp": [datetime(1, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 0, 0, 1, UTC)],
    "timestamp_ntz": [datetime(1, 1, 1), datetime(2026, 1, 1, 0, 0, 0, 1)],
}
PAIRS = [(one, other) for one in NUMBERS for other in NUMBERS] + [(name, name) for name in OTHERS]


ALL = NUMBERS | OTHERS
LENGTH = max(map(len, ALL.values())) + 1


def _array(name: str) -> pa.Array:
    values = ALL[name]
    return pa.array(values + [None] * (LENGTH - len(values)), type_to_arrow(PrimitiveType(name)))


def test_keys_match_as_in_spark_for_every_pair_of_types(spark: SparkSession) -> None:
    kinds = {pair: comparison_type(PrimitiveType(pair[0]), PrimitiveType(pair[1])) for pair in PAIRS}
    decided = {pair: kind for pair, kind in kinds.items() if kind is not None}
    assert len(decided) >= 30
    keys = {f"k{place}": _array(name) for place, name in enumerate(ALL)}
    frame = spark.createDataFrame(pa.table({"n": range(LENGTH), **keys}))
    names = list(ALL)
    tests = [f"t.k{names.index(one)} = s.k{names.index(other)} AS p{i}" for i, (one, other) in enumerate(decided)]
    pairs = frame.alias("t").crossJoin(frame.alias("s")).selectExpr("t.n AS t", "s.n AS s", *tests).collect()
    for place, ((one, other), kind) in enumerate(decided.items()):
        index = KeyIndex([_array(other)], [kind], None)
        targets, sources = index.source_rows(index.find([_array(one)]))
        found = set(zip(targets.to_pylist(), sources.to_pylist(), strict=True))
        assert found == {(row.t, row.s) for row in pairs if row[f"p{place}"]}, (one, other)


SCHEMA = schema_from_ddl(
    "a INT, b BIGINT, x DOUBLE, y DOUBLE, f FLOAT, d DECIMAL(10,2), e DECIMAL(5,1), s STRING, r STRING, ok BOOLEAN,"
    " day DATE, at TIMESTAMP"
)
ROWS: list[dict[str, Any]] = [
    {"a": 1, "b": 2, "x": 1.5, "y": math.nan, "f": 0.1, "d": Decimal("1.25"), "e": Decimal("-0.5"), "s": "q", "r": "é",
     "ok": True, "day": date(2026, 1, 31), "at": datetime(2026, 1, 31, 23, 59, 59, 999_999, UTC)},
    {"a": -7, "b": 2**53 + 1, "x": -0.0, "y": 0.0, "f": -1.5, "d": Decimal("-9999999.99"), "e": Decimal("9.9"), "s": "",
     "r": "q", "ok": False, "day": date(1969, 12, 31), "at": datetime(1969, 12, 31, 23, 59, 59, 500_000, UTC)},
    {"a": 5, "b": 5, "x": 0.1, "y": 1e300, "f": 16777216.0, "d": Decimal("0.05"), "e": Decimal("0.1"), "s": "é"},
    {},
]  # fmt: skip
VALUES = [
    ("a + 1", "integer"), ("a * b", "long"), ("a % 3", "integer"), ("-a", "integer"), ("a / b", "double"),
    ("x * 1.1", "double"), ("x + y", "double"), ("x - a", "double"), ("x / 3", "double"), ("f + f", "float"),
    ("f * f", "double"), ("d + e", "decimal(12,2)"), ("d * e", "decimal(20,1)"), ("d - 0.005", "decimal(10,2)"),
    ("d * 2", "decimal(12,1)"), ("d", "double"), ("d", "integer"), ("d", "decimal(9,0)"), ("e", "decimal(10,4)"),
    ("x", "integer"), ("x", "float"), ("y", "float"), ("b", "double"), ("b", "float"), ("a", "string"),
    ("ok", "string"), ("day", "string"), ("day", "timestamp"), ("at", "date"), ("0.1", "float"), ("0.1", "double"),
    ("-0.0", "double"), ("-0.0D", "double"), ("CAST(b AS DOUBLE)", "double"), ("CAST(b AS DOUBLE) - 1", "double"),
    ("coalesce(s, r, 'z')", "string"), ("coalesce(x, 0)", "double"), ("coalesce(a, b)", "long"),
    ("coalesce(d, 0)", "decimal(10,2)"), ("concat(s, '!', r)", "string"), ("s || r", "string"),
    ("CASE WHEN b > 2 THEN a / (b - 2) WHEN ok THEN 1 ELSE x END", "double"), ("if(s < r, s, r)", "string"),
    ("CASE WHEN a > 1 THEN 'x' END", "string"), ("a > 1 AND b < 10", "boolean"), ("x < y", "boolean"),
    ("substring(s, 1, 1)", "string"), ("year(day)", "integer"), ("date_trunc('hour', at)", "timestamp"),
    ("nvl(a, -1)", "integer"), ("CAST(a AS BIGINT) * 1000000", "long"), ("NULL", "double"),
]  # fmt: skip
CONDITIONS = [
    "x < y", "x <= y", "x > y", "x >= y", "x = y", "x <> y", "x <=> y", "NOT (x < y)", "a < b", "a = b", "s < r",
    "s <=> r", "d > e", "d = e OR a > b", "a + 1 > b", "a * 2 = 10", "ok = (a < b)", "x = x", "y = y AND s = s",
    "a BETWEEN 1 AND 5", "coalesce(a, 0) = 0", "x + 1 > 0.5", "CAST(at AS DATE) = day", "f = f",
]  # fmt: skip


def _shown(value: Any) -> str:
    match value:
        case datetime():
            return str(value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC))
        case Decimal():
            return f"{value:f}"
    return repr(value)


def _shown_all(values: list[Any]) -> list[str]:
    return [_shown(value) for value in values]


def test_values_and_conditions_are_computed_as_in_spark(spark: SparkSession) -> None:
    batch = _batch(SCHEMA)
    columns = [f"CAST({sql} AS {type_.replace('long', 'bigint')}) AS c{i}" for i, (sql, type_) in enumerate(VALUES)]
    columns += [f"({sql}) AS w{i}" for i, sql in enumerate(CONDITIONS)]
    found = spark.createDataFrame(pa.Table.from_batches([batch])).selectExpr("a", *columns).toArrow()
    for i, (sql, type_) in enumerate(VALUES):
        ours = AssignedValue(sql, SCHEMA, PrimitiveType(type_), "c").evaluate(batch)
        assert _shown_all(ours.to_pylist()) == _shown_all(found[f"c{i}"].to_pylist()), (sql, type_)
    for i, sql in enumerate(CONDITIONS):
        mask = RowCondition(sql, SCHEMA).mask(batch)
        assert mask.to_pylist() == found[f"w{i}"].to_pylist(), sql


def _batch(schema: StructType) -> pa.RecordBatch:
    kinds = pa.schema([(field.name, type_to_arrow(field.type)) for field in schema.fields])
    return pa.RecordBatch.from_pylist(ROWS, kinds)


@pytest.mark.parametrize("sql", ["a + 2147483647", "a / (a - 1)", "b * 9223372036854775807"])
def test_what_spark_refuses_to_compute_is_an_error_here_too(spark: SparkSession, sql: str) -> None:
    batch = _batch(SCHEMA)
    with pytest.raises(Exception, match="cannot be computed"):
        AssignedValue(sql, SCHEMA, PrimitiveType("double"), "c").evaluate(batch)
    with pytest.raises(Exception, match=r"OVERFLOW|DIVIDE_BY_ZERO"):
        spark.createDataFrame(pa.Table.from_batches([batch])).selectExpr(sql).toArrow()
