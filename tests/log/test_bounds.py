"""Bounds as numbers: whatever rounding they suffer goes outward, so that no file is ever passed over wrongly."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deltars.errors import ValidationError
from deltars.log.bounds import HIGHEST, LOWEST, STRING_BYTES, Bounds, FileBounds, read_stats
from deltars.protocol import FileStats, PrimitiveType, StructField, StructType, encode_stats, schema_from_ddl
from tests.protocol import strategies

BOUNDED = ("string", "long", "integer", "short", "byte", "float", "double", "date", "timestamp", "timestamp_ntz")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

types_with_bounds = strategies.primitive_types(BOUNDED)


def _column(type_: PrimitiveType) -> StructType:
    return StructType((StructField("a", type_),))


def _exact(value: Any) -> Fraction:
    """Where a value stands among all of its type, without any rounding."""
    match value:
        case str():
            # By its bytes in UTF-8: a number in base 256, with STRING_BYTES digits before the point.
            data = value.encode()
            return Fraction(int.from_bytes(data), 1) * Fraction(256) ** (STRING_BYTES - len(data))
        case datetime():
            since = (value if value.tzinfo else value.replace(tzinfo=UTC)) - EPOCH
            return Fraction((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds)
        case date():
            return Fraction(value.toordinal())
        case _:
            return Fraction(value)


def _one_bound(type_: str, minimum: str, maximum: str) -> tuple[float | None, float | None]:
    """The numbers of one column, from the JSON of its minimum and its maximum."""
    text = f'{{"numRecords":1,"minValues":{{"a":{minimum}}},"maxValues":{{"a":{maximum}}}}}'
    _, mins, maxs = Bounds(_column(PrimitiveType(type_))).of(text)
    assert mins is not None
    assert maxs is not None
    return mins[1], maxs[1]


@given(types_with_bounds.flatmap(lambda t: st.tuples(st.just(t), st.lists(strategies.values_of(t), min_size=1))))
@example((PrimitiveType("float"), [strategies.to_single(0.1)]))
@example((PrimitiveType("long"), [2**53 + 1]))
@example((PrimitiveType("long"), [-(2**53) - 1]))
@example((PrimitiveType("long"), [2**63 - 1, -(2**63)]))
@example((PrimitiveType("timestamp"), [datetime(2024, 1, 1, 0, 0, 0, 999_999, tzinfo=UTC)]))
@example((PrimitiveType("timestamp_ntz"), [datetime.max, datetime.min]))
@example((PrimitiveType("string"), ["x" * 40, "\U0010ffff" * 70, "zzzzzzé"]))
@example((PrimitiveType.decimal(38, 0), [Decimal(10**38 - 1)]))
def test_every_value_of_a_file_lies_between_the_numbers_of_its_bounds(case: tuple[PrimitiveType, list[Any]]) -> None:
    type_, values = case
    numbers = [value for value in values if not isinstance(value, float) or math.isfinite(value)]
    if not numbers:
        return
    schema = _column(type_)
    stats = FileStats(len(numbers), {"a": min(numbers, key=_exact)}, {"a": max(numbers, key=_exact)})
    found = Bounds(schema).of(encode_stats(stats, schema))
    assert found.mins is not None
    assert found.maxs is not None
    # The range column stands first, and again at its own place.
    (indexed_low, low), (indexed_high, high) = found.mins, found.maxs
    assert low is not None
    assert indexed_low == min(max(low, LOWEST), HIGHEST)
    assert indexed_high == (HIGHEST if high is None else min(max(high, LOWEST), HIGHEST))
    assert low is not None
    assert math.isfinite(low)
    assert low <= min(map(_exact, numbers))
    # A long string may have no maximum that is short enough to be kept.
    assert high is not None or isinstance(numbers[0], str)
    assert high is None or math.isfinite(high)
    assert high is None or high >= max(map(_exact, numbers))


@given(st.data())
def test_rounding_outward_is_narrow(data: st.DataObject) -> None:
    """Numbers that a double holds are bounds of themselves: rounding does not swallow the order."""
    value = data.draw(st.integers(-(2**53), 2**53))
    assert _one_bound("long", str(value), str(value)) == (value, value)


@pytest.mark.parametrize(
    ("type_", "bound"),
    [
        ("double", '"NaN"'),
        ("double", '"Infinity"'),
        ("double", '"-Infinity"'),
        ("double", "1e999"),
        ("double", "-1e999"),
        ("float", "1e39"),
        ("long", "1" + "0" * 400),
        ("long", '"7"'),
        ("long", "true"),
        ("long", "null"),
        ("long", "[1]"),
        ("long", '{"a":1}'),
        ("date", '"+10000-01-01"'),
        ("date", '"-0001-01-01"'),
        ("date", "7"),
        ("timestamp", '"yesterday"'),
        ("timestamp", "7"),
        ("timestamp", '"+294247-01-10T04:00:54.775Z"'),
        ("string", r'"\ud800"'),
        ("string", "7"),
        ("decimal(10,2)", '"1.5"'),
    ],
)
def test_bound_that_is_no_number_of_its_type_is_unknown(type_: str, bound: str) -> None:
    assert _one_bound(type_, bound, bound) == (None, None)


@pytest.mark.parametrize(
    ("type_", "bound", "low", "high"),
    [
        ("date", '"1970-01-01"', 719163, 719163),
        ("timestamp", '"1970-01-01T00:00:00.001Z"', 1_000, 1_999),
        ("timestamp", '"1969-12-31T16:00:00.001-08:00"', 1_000, 1_999),
        ("timestamp_ntz", '"1970-01-01T00:00:00.001"', 1_000, 1_999),
        ("timestamp", '"1969-12-31T23:59:59.999Z"', -1_000, -1),
        ("string", '""', 0, 1),
        ("string", '"a"', 0x61 << 40, (0x61 << 40) + 1),
        ("string", '"aaaaaaa"', 0x616161616161, 0x616161616162),
        ("double", "-0.0", 0, 0),
        ("double", "1.7976931348623157e308", 1.7976931348623157e308, 1.7976931348623157e308),
        ("long", "9223372036854775807", 2**63 - 1024, 2**63),
        ("float", "0.1", 0.1, strategies.to_single(0.1)),
    ],
)
def test_numbers_of_known_bounds(type_: str, bound: str, low: float, high: float) -> None:
    assert _one_bound(type_, bound, bound) == (low, high)


def test_file_without_statistics_has_no_bounds() -> None:
    assert Bounds(schema_from_ddl("flag BOOLEAN")).of(None) == FileBounds(None, None, None)


def test_range_column_without_statistics_reaches_from_end_to_end() -> None:
    assert Bounds(schema_from_ddl("id BIGINT, x INT")).of(None) == FileBounds(None, [LOWEST], [HIGHEST])


@pytest.mark.parametrize(
    ("before", "after", "continues"),
    [
        ("a INT, b STRING", "a INT, b STRING, c DATE", True),
        ("a INT, b STRING", "a BIGINT, b STRING", True),
        ("a INT, b STRING", "b STRING, a INT", False),
        ("s STRUCT<x: INT>, b STRING", "s STRUCT<x: INT, y: INT>, b STRING", False),
        ("b STRING, d DATE", "b STRING, d TIMESTAMP_NTZ", False),
        ("ok BOOLEAN", "ok BOOLEAN, a INT", False),
        ("a INT, b INT", "a INT", False),
    ],
)
def test_numbers_stay_where_they_are_only_when_columns_come_at_the_end(
    before: str, after: str, continues: bool
) -> None:
    assert Bounds(schema_from_ddl(after)).continues(Bounds(schema_from_ddl(before))) is continues


def test_another_range_column_moves_the_numbers() -> None:
    schema = schema_from_ddl("a INT, b INT")
    chosen = Bounds(schema, (), {"deltars.rangeColumn": "b"})
    assert (Bounds(schema).range_column, chosen.range_column) == (("a",), ("b",))
    assert chosen.places == {("a",): 2, ("b",): 3}
    assert not chosen.continues(Bounds(schema))


def test_statistics_that_lack_a_column_leave_its_bounds_unknown() -> None:
    bounds = Bounds(schema_from_ddl("id BIGINT, name STRING, s STRUCT<x: INT, y: INT>"))
    stats = '{"numRecords":3,"minValues":{"id":1,"s":{"x":5}},"maxValues":{"s":7}}'
    assert bounds.of(stats) == FileBounds(3, [1, 1, None, 5, None], [HIGHEST, *[None] * 4])


def test_table_whose_columns_have_no_bounds_still_counts_records() -> None:
    assert Bounds(schema_from_ddl("ok BOOLEAN, tags ARRAY<STRING>")).of('{"numRecords":3}') == FileBounds(3, None, None)


def test_partition_columns_have_no_bounds() -> None:
    bounds = Bounds(schema_from_ddl("day DATE, id BIGINT"), ["day"])
    assert bounds.of('{"minValues":{"day":"2024-01-01","id":1},"maxValues":{"id":2}}') == FileBounds(
        None, [1, 1], [2, 2]
    )


def test_chosen_range_column_stands_first() -> None:
    bounds = Bounds(schema_from_ddl("id BIGINT, s STRUCT<x: INT>"), properties={"deltars.rangeColumn": "s.x"})
    assert bounds.of('{"minValues":{"id":1,"s":{"x":5}}}').mins == [5, 1, 5]


def test_range_column_that_has_no_bounds_is_refused_with_those_that_have() -> None:
    with pytest.raises(ValidationError, match=r"'ok', which is not a column with minimum and maximum.*\bid\b"):
        Bounds(schema_from_ddl("id BIGINT, ok BOOLEAN"), properties={"deltars.rangeColumn": "ok"})


def test_bounds_go_by_the_physical_names_of_columns() -> None:
    mapped = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}
    bounds = Bounds(StructType((StructField("id", PrimitiveType("long"), True, mapped),)))
    assert bounds.of('{"minValues":{"col-1":4,"id":9}}').mins == [4, 4]


def test_columns_past_the_indexed_ones_have_no_bounds() -> None:
    schema = schema_from_ddl("a BIGINT, b BIGINT")
    bounds = Bounds(schema, properties={"delta.dataSkippingNumIndexedCols": "1"})
    assert bounds.of('{"minValues":{"a":1,"b":2}}').mins == [1, 1]


@pytest.mark.parametrize("text", ["", "{", "[1]", "7", "NaN", '{"a":NaN}', '{"a":Infinity}', '{"a":"\0"}'])
def test_statistics_that_are_no_json_object_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_stats(text)


def test_statistics_with_half_a_surrogate_pair_are_read() -> None:
    assert read_stats(r'{"numRecords":1,"minValues":{"a":"\udc00x"}}')["minValues"] == {"a": "\udc00x"}
