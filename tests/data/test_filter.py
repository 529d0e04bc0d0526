"""A `where` on Arrow rows, by Spark's rules."""

from __future__ import annotations

import datetime as dt
import pickle
import re
import time
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deltars.data.filter import PredicateFilter
from deltars.errors import PredicateError
from deltars.predicate import Column, In, parse, to_sql
from deltars.protocol import schema_from_arrow, schema_from_ddl

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
        ("s IS NULL", [3]),
        ("s IS NOT NULL AND s.a IS NULL", [2]),
        ("t LIKE '_b_'", [1, 2]),
        ("t LIKE '%c'", [1]),
        ("t LIKE 'a_c' OR t LIKE '_'", [1]),
        ("t NOT LIKE '%c%'", [2, 4]),
        ("t LIKE '%'", [1, 2, 4]),
        ("x IN (0D, 7D)", [4]),
        ("x IN (0D, CAST('NaN' AS DOUBLE))", [2, 4]),
        ("x NOT IN (0D, CAST('NaN' AS DOUBLE))", [1]),
        ("f IN (CAST(0.1 AS FLOAT), 2F)", [1, 4]),
        ("i IN (1, 99999999999999999999)", [1]),
        ("i IN (1.0, 1.5, -5.00)", [1, 4]),
        ("i IN (1e0, -5e0)", [1, 4]),
        ("d IN (1.1, -2.250, 7.123)", [1, 2]),
        ("d IN (1, 0)", [4]),
        ("t IN ('abc', '')", [1, 4]),
        ("day IN (DATE '2026-01-02', DATE '1969-07-20')", [2, 4]),
        ("s.a > 1", [4]),
        ("TRUE", [1, 2, 3, 4]),
        ("NULL", []),
        ("i = 1 AND NULL", []),
        ("i = 1 OR NULL", [1]),
    ],
)
def test_rows_are_kept_as_spark_keeps_them(where: str, kept: list[int]) -> None:
    assert _kept(where) == kept


@given(
    st.decimals(-(10**9), 10**9, allow_nan=False, allow_infinity=False, places=3),
    st.sampled_from(["=", "<>", "<", "<=", ">", ">="]),
)
@example(Decimal("0.350"), "=")
@example(Decimal("0.07"), "<=")
def test_a_decimal_is_compared_with_a_double_as_the_nearest_double(number: Decimal, operator: str) -> None:
    """Arrow converts 0.35 to another double than the one that is written so."""
    kind = pa.decimal128(20, 3)
    batch = pa.RecordBatch.from_pydict({"d": pa.array([number], kind)})
    where = f"d {operator} {float(number)!r}D"
    same = operator in ("=", "<=", ">=")
    for text, expected in ((where, same), (f"d IN ({float(number)!r}D, 1e300D)", True)):
        mask = PredicateFilter(parse(text, schema_from_arrow(batch.schema))).mask(batch)
        assert mask.to_pylist() == [expected], text


def test_what_only_spark_can_judge_is_named() -> None:
    with pytest.raises(PredicateError, match=r"only Spark can evaluate.*(?i:upper)"):
        _kept("n = 1 AND upper(t) = 'ABC'")


texts = st.text("ab%_\\\\.*\n😀é^$[(", max_size=8)


@example(["\\", "a\\", "x"], "%\\")
@given(st.lists(st.none() | texts, max_size=6), texts)
def test_patterns_fit_as_in_spark(values: list[str | None], pattern: str) -> None:
    schema = schema_from_ddl("t STRING")
    sql = pattern.replace("!", "!!").replace("\\", "\\\\").replace("\n", "\\n")
    predicate = parse(f"t LIKE '{sql}' ESCAPE '!'", schema)
    assert parse(to_sql(predicate), schema) == predicate
    row_filter = PredicateFilter(predicate)
    wanted = re.compile("".join({"%": ".*", "_": "."}.get(one, re.escape(one)) for one in pattern), re.DOTALL)
    expected = [None if value is None else wanted.fullmatch(value) is not None for value in values]
    batch = pa.record_batch({"t": pa.array(values, pa.string())})
    assert row_filter.mask(batch).to_pylist() == expected


def test_a_list_that_was_pickled_with_its_filter_is_its_own() -> None:
    """A filter goes to Spark's workers, where its parts have other places in memory."""
    schema = schema_from_ddl("i BIGINT, j BIGINT")
    batch = pa.record_batch({"i": [1, 2, 3], "j": [1, 2, 3]})
    row_filter = PredicateFilter(parse("i IN (1, 2) AND j IN (2, 3)", schema))
    for _ in range(3):
        assert row_filter.mask(batch).to_pylist() == [False, True, False]
        row_filter = pickle.loads(pickle.dumps(row_filter))


def test_long_lists_and_long_chains_are_judged_at_once() -> None:
    schema = schema_from_ddl("i BIGINT, t STRING, d DECIMAL(10,2)")
    many = range(20_000)
    batch = pa.record_batch(
        {
            "i": pa.array([5, -1, None], pa.int64()),
            "t": ["5", "x", None],
            "d": pa.array([Decimal("5.00"), Decimal("0.50"), None], pa.decimal128(10, 2)),
        }
    )
    before = time.process_time()
    for where in (
        f"i IN ({', '.join(map(str, many))})",
        "t IN ({})".format(", ".join(f"'{i}'" for i in many)),
        f"d IN ({', '.join(map(str, many))})",
        " OR ".join(f"i = {i}" for i in many[:2_000]),
    ):
        row_filter = PredicateFilter(parse(where, schema))
        for _ in range(100):
            assert row_filter.mask(batch).to_pylist() == [True, False, None]
    assert time.process_time() - before < 10


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_every_nan_and_zero_is_one_of_a_list(kind: str) -> None:
    """A computation may make a NaN with another sign, which has other bits."""
    values = np.array([NAN, 1.0, -0.0, 0.0], kind)
    batch = pa.record_batch({"x": pa.array(np.concatenate([np.copysign(values[:1], -1), values]))})
    schema = schema_from_arrow(batch.schema)
    found = PredicateFilter(In(Column(("x",), schema.fields[0].type), (NAN, -0.0))).mask(batch)
    assert found.to_pylist() == [True, True, False, True, True]
