"""A `where` on Arrow rows, by Spark's rules."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from deltars.data.filter import PredicateFilter
from deltars.errors import PredicateError
from deltars.predicate import parse
from deltars.protocol import schema_from_arrow

NAN = float("nan")

ROWS = pa.RecordBatch.from_pylist(
    [
        {"n": 1, "i": 1, "x": 1.5, "f": 0.1, "d": "1.10", "t": "abc", "day": dt.date(2026, 1, 1), "s": {"a": 1}},
        {
            "n": 2,
            "i": 2**62,
            "x": NAN,
            "f": NAN,
            "d": "-2.25",
            "t": "abd",
            "day": dt.date(2026, 1, 2),
            "s": {"a": None},
        },
        {"n": 3, "i": None, "x": None, "f": None, "d": None, "t": None, "day": None, "s": None},
        {"n": 4, "i": -5, "x": -0.0, "f": 2.0, "d": "0.00", "t": "", "day": dt.date(1969, 7, 20), "s": {"a": 4}},
    ]
)
SCHEMA = pa.schema(
    [
        ("n", pa.int32()),
        ("i", pa.int64()),
        ("x", pa.float64()),
        ("f", pa.float32()),
        ("d", pa.decimal128(10, 2)),
        ("t", pa.string()),
        ("day", pa.date32()),
        ("s", pa.struct([("a", pa.int32())])),
    ]
)


def _kept(where: str) -> list[int]:
    rows = [row | {"d": None if row["d"] is None else Decimal(row["d"])} for row in ROWS.to_pylist()]
    batch = pa.RecordBatch.from_pylist(rows, SCHEMA)
    row_filter = PredicateFilter(parse(where, schema_from_arrow(SCHEMA)))
    kept: list[int] = batch.filter(row_filter.mask(batch))["n"].to_pylist()
    return kept


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        ("i = 1", [1]),
        ("i <> 1", [2, 4]),
        ("NOT (i > 0)", [4]),
        ("i > 0 OR i IS NULL", [1, 2, 3]),
        ("i < 99999999999999999999", [1, 2, 4]),
        ("i > 99999999999999999999", []),
        ("i IN (1, -5)", [1, 4]),
        ("i NOT IN (1, -5)", [2]),
        ("i NOT IN (1, NULL)", []),
        ("i > 0.5", [1, 2]),
        ("x > 1.0", [1, 2]),
        ("x <= 1.5", [1, 4]),
        ("x = CAST('NaN' AS DOUBLE)", [2]),
        ("x < CAST('NaN' AS DOUBLE)", [1, 4]),
        ("x <> CAST('NaN' AS DOUBLE)", [1, 4]),
        ("x >= CAST('NaN' AS DOUBLE)", [2]),
        ("x = 0", [4]),
        ("f >= 2", [2, 4]),
        ("f = CAST(0.1 AS FLOAT)", [1]),
        ("f = CAST(0.1 AS DOUBLE)", []),
        ("d = 1.1", [1]),
        ("d > -2.255", [1, 2, 4]),
        ("d < 1", [2, 4]),
        ("t LIKE 'ab%'", [1, 2]),
        ("t NOT LIKE 'abc%'", [2, 4]),
        ("t = ''", [4]),
        ("t >= 'abd'", [2]),
        ("day = '2026-01-02'", [2]),
        ("day < DATE '2026-01-01'", [4]),
        ("s.a IS NULL", [2, 3]),
        ("s.a > 1", [4]),
        ("TRUE", [1, 2, 3, 4]),
        ("NULL", []),
        ("i = 1 AND NULL", []),
        ("i = 1 OR NULL", [1]),
    ],
)
def test_rows_are_kept_as_spark_keeps_them(where: str, kept: list[int]) -> None:
    assert _kept(where) == kept


def test_what_only_spark_can_judge_is_named() -> None:
    with pytest.raises(PredicateError, match=r"only Spark can judge.*(?i:upper)"):
        _kept("n = 1 AND upper(t) = 'ABC'")
