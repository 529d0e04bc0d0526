"""Statistics: written so that bounds stay bounds, read without damage."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltars.errors import ValidationError
from deltars.protocol import (
    FileStats,
    PrimitiveType,
    StructField,
    StructType,
    decode_stats,
    encode_stats,
    has_bounds,
    indexed_leaves,
    schema_from_ddl,
    truncate_max,
    truncate_min,
)
from tests.protocol import strategies

BOUNDED = tuple(name for name in strategies.ORDINARY_TYPES if name not in ("boolean", "binary"))


def _bound(value: Any, type_: PrimitiveType) -> str:
    """The minimum of a single column, as it stands in the JSON."""
    schema = StructType((StructField("a", type_),))
    text = encode_stats(FileStats(1, {"a": value}), schema)
    return text.removeprefix('{"numRecords":1,"minValues":{"a":').removesuffix('},"maxValues":{},"nullCount":{}}')


def test_stats_are_nested_like_the_columns() -> None:
    schema = schema_from_ddl("id BIGINT, s STRUCT<x: INT, y: STRUCT<z: STRING>>, tags ARRAY<INT>, ok BOOLEAN")
    stats = FileStats(
        num_records=3,
        min_values={"id": 1, "s": {"x": None, "y": {"z": "a"}}, "ok": False, "gone": 1},
        max_values={"id": 3, "s": {"y": {"z": "b"}}},
        null_count={"id": 0, "s": {"x": 3, "y": {"z": 0}}, "tags": 1, "ok": 2},
        tight_bounds=False,
    )
    text = encode_stats(stats, schema)
    assert text == (
        '{"numRecords":3,"minValues":{"id":1,"s":{"y":{"z":"a"}}},"maxValues":{"id":3,"s":{"y":{"z":"b"}}},'
        '"nullCount":{"id":0,"s":{"x":3,"y":{"z":0}},"tags":1,"ok":2},"tightBounds":false}'
    )
    assert decode_stats(text, schema) == FileStats(
        3, {"id": 1, "s": {"y": {"z": "a"}}}, stats.max_values, stats.null_count, tight_bounds=False
    )


def test_stats_go_by_physical_names() -> None:
    column = StructField("a", PrimitiveType("long"), metadata={"delta.columnMapping.physicalName": "col-1"})
    schema = StructType((column,))
    text = encode_stats(FileStats(1, {"col-1": 5}, {"col-1": 5}, {"col-1": 0}), schema)
    assert '"minValues":{"col-1":5}' in text
    assert decode_stats(text, schema).max_values == {"col-1": 5}


@pytest.mark.parametrize(
    ("type_name", "value", "written"),
    [
        ("long", 2**63 - 1, "9223372036854775807"),
        ("byte", -128, "-128"),
        ("double", 0.1, "0.1"),
        ("double", 1.0, "1.0"),
        ("double", -0.0, "-0.0"),
        ("double", 1.7976931348623157e308, "1.7976931348623157e308"),
        ("double", math.nan, '"NaN"'),
        ("double", math.inf, '"Infinity"'),
        ("double", -math.inf, '"-Infinity"'),
        ("float", strategies.to_single(46.566), "46.566"),
        ("float", math.nan, '"NaN"'),
        ("decimal(10,2)", Decimal("123.52"), "123.52"),
        ("decimal(10,2)", Decimal("-1"), "-1.00"),
        ("decimal(38,10)", Decimal("1234567890123456789012345678.0123456789"),
         "1234567890123456789012345678.0123456789"),
        ("decimal(38,0)", Decimal(10**38 - 1), "9" * 38),
        ("decimal(38,38)", Decimal("1e-38"), "0." + "0" * 37 + "1"),
        ("date", date(1, 1, 1), '"0001-01-01"'),
        ("timestamp", datetime(2023, 6, 15, 12, 30, tzinfo=UTC), '"2023-06-15T12:30:00.000Z"'),
        ("timestamp", datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), '"1969-12-31T23:59:59.999Z"'),
        ("timestamp", datetime(1, 1, 1, tzinfo=UTC), '"0001-01-01T00:00:00.000Z"'),
        ("timestamp_ntz", datetime(2021, 11, 18, 2, 30, 0, 123456), '"2021-11-18T02:30:00.123"'),
        ("string", "😀\"\\", '"😀\\"\\\\"'),
        ("string", "", '""'),
        ("string", "\x00", '"\\u0000"'),
    ],
)  # fmt: skip
def test_bound_is_written_as_the_protocol_says(type_name: str, value: Any, written: str) -> None:
    assert _bound(value, PrimitiveType(type_name)) == written


@given(st.data())
def test_every_bound_survives_or_stays_a_bound(data: st.DataObject) -> None:
    type_ = data.draw(strategies.primitive_types(BOUNDED))
    value = data.draw(strategies.values_of(type_))
    schema = StructType((StructField("a", type_),))
    text = encode_stats(FileStats(1, {"a": value}, {"a": value}, {"a": 0}), schema)
    json.loads(text)
    stats = decode_stats(text, schema)
    assert (stats.num_records, stats.null_count) == (1, {"a": 0})
    if type_.name == "string":
        assert stats.min_values["a"].encode() <= value.encode()
        assert "a" not in stats.max_values or stats.max_values["a"].encode() >= value.encode()
    elif type_.name in ("timestamp", "timestamp_ntz"):
        assert stats.min_values["a"] == stats.max_values["a"]
        assert timedelta(0) <= value - stats.min_values["a"] < timedelta(milliseconds=1)
    else:
        assert strategies.same(stats.min_values["a"], value)
        assert strategies.same(stats.max_values["a"], value)


class TestStringTruncation:
    @given(strategies.values_of(PrimitiveType("string")), st.integers(1, 40))
    def test_bounds_hold_in_the_order_of_bytes(self, text: str, prefix_length: int) -> None:
        low, high = truncate_min(text, prefix_length), truncate_max(text, prefix_length)
        assert low.encode() <= text.encode()
        assert len(low) <= prefix_length
        if high is None:
            assert len(text) > 2 * prefix_length
            assert set(text[prefix_length : 2 * prefix_length]) == {"\U0010ffff"}
        else:
            assert high.encode() >= text.encode()
            assert len(high) <= 2 * prefix_length

    @given(st.lists(strategies.values_of(PrimitiveType("string")), min_size=1))
    def test_bounds_of_a_column_hold_for_each_of_its_values(self, texts: list[str]) -> None:
        low, high = truncate_min(min(texts)), truncate_max(max(texts))
        assert all(low.encode() <= text.encode() for text in texts)
        assert high is None or all(text.encode() <= high.encode() for text in texts)

    @pytest.mark.parametrize(
        ("text", "high"),
        [
            ("a" * 32, "a" * 32),
            ("a" * 33, "a" * 32 + "\x7f"),
            ("a" * 32 + "~", "a" * 32 + "\x7f"),
            ("a" * 32 + "\x7f", "a" * 32 + "\U0010ffff"),
            ("a" * 32 + "é", "a" * 32 + "\U0010ffff"),
            ("😀" * 32, "😀" * 32),
            ("😀" * 40, "😀" * 32 + "\U0010ffff"),
            ("a" * 32 + "\U0010ffff" * 2 + "b", "a" * 32 + "\U0010ffff" * 2 + "\x7f"),
            ("\U0010ffff" * 33, "\U0010ffff" * 33),
            ("\U0010ffff" * 64, "\U0010ffff" * 64),
            ("\U0010ffff" * 65, None),
        ],
    )
    def test_maximum_ends_with_a_character_greater_than_the_one_dropped(self, text: str, high: str | None) -> None:
        assert truncate_max(text) == high

    def test_maximum_that_has_no_short_bound_is_left_out(self) -> None:
        schema = schema_from_ddl("a STRING")
        value = "\U0010ffff" * 65
        stats = decode_stats(encode_stats(FileStats(1, {"a": value}, {"a": value}), schema), schema)
        assert stats.min_values == {"a": "\U0010ffff" * 32}
        assert stats.max_values == {}

    def test_prefix_length_may_be_chosen(self) -> None:
        text = encode_stats(
            FileStats(1, {"a": "abcdef"}, {"a": "abcdef"}), schema_from_ddl("a STRING"), prefix_length=3
        )
        assert json.loads(text)["minValues"] == {"a": "abc"}
        assert json.loads(text)["maxValues"] == {"a": "abc\x7f"}


class TestReading:
    SCHEMA = schema_from_ddl("a INT, d DECIMAL(38,10), t TIMESTAMP, n TIMESTAMP_NTZ, x DOUBLE, f FLOAT, day DATE")

    def _minimum(self, text: str) -> dict[str, Any]:
        return dict(decode_stats(f'{{"minValues":{text}}}', self.SCHEMA).min_values)

    def test_offset_of_a_timestamp_is_understood(self) -> None:
        assert self._minimum('{"t":"2000-01-01T00:00:00.000-08:00"}') == {"t": datetime(2000, 1, 1, 8, tzinfo=UTC)}

    def test_decimal_is_not_damaged_by_floats(self) -> None:
        text = '{"d":1234567890123456789012345678.0123456789}'
        assert self._minimum(text) == {"d": Decimal("1234567890123456789012345678.0123456789")}

    @pytest.mark.parametrize(("text", "value"), [("5", "5"), ("1.5E2", "150"), ("-0.1", "-0.1")])
    def test_decimal_is_read_in_any_form_of_a_number(self, text: str, value: str) -> None:
        assert self._minimum(f'{{"d":{text}}}') == {"d": Decimal(value)}

    def test_whole_number_is_a_float_where_the_column_says_so(self) -> None:
        (value,) = self._minimum('{"x":5}').values()
        assert strategies.same(value, 5.0)

    def test_single_is_read_as_the_number_the_file_holds(self) -> None:
        assert self._minimum('{"f":0.1}') == {"f": 0.10000000149011612}

    @pytest.mark.parametrize(
        "text",
        ['{"a":"1"}', '{"a":1.5}', '{"a":4294967296}', '{"a":true}', '{"a":{"b":1}}', '{"a":null}',
         '{"d":1e-11}', '{"d":"1"}', '{"t":5}', '{"t":"10000-01-01T00:00:00Z"}', '{"n":"2000-01-01T00:00:00Z"}',
         '{"x":"fast"}', '{"day":"soon"}', '{"f":1e39}', '{"z":1}'],
    )  # fmt: skip
    def test_bound_that_its_column_cannot_have_is_left_out(self, text: str) -> None:
        assert self._minimum(text) == {}

    def test_missing_parts_are_empty(self) -> None:
        assert decode_stats("{}", self.SCHEMA) == FileStats()
        assert decode_stats('{"numRecords":5,"minValues":null}', self.SCHEMA) == FileStats(5)

    def test_part_that_is_not_of_its_type_is_left_out(self) -> None:
        text = '{"numRecords":"5","minValues":[],"maxValues":{"a":7},"nullCount":{"a":-1},"tightBounds":"yes"}'
        assert decode_stats(text, self.SCHEMA) == FileStats(max_values={"a": 7})

    @pytest.mark.parametrize("text", ["", "[]", "null", '{"minValues":{"a":NaN}}', "{"])
    def test_what_is_no_statistics_is_refused(self, text: str) -> None:
        with pytest.raises(ValidationError, match="the statistics are not a JSON object"):
            decode_stats(text, self.SCHEMA)


@pytest.mark.parametrize(
    ("type_name", "value"),
    [
        ("long", "1"),
        ("date", datetime(2020, 1, 1)),
        ("decimal(5,2)", 1.5),
        ("timestamp", datetime(2020, 1, 1)),
        ("string", 1),
    ],
)
def test_value_that_is_no_bound_is_refused(type_name: str, value: Any) -> None:
    with pytest.raises(ValidationError, match=f"is not a bound of a {type_name.partition('(')[0]}"):
        _bound(value, PrimitiveType(type_name))


def test_text_that_is_no_unicode_is_refused() -> None:
    with pytest.raises(ValidationError, match="cannot be written as JSON"):
        _bound("\ud83d", PrimitiveType("string"))


def test_only_ordered_types_have_bounds() -> None:
    bounded = {name for name in (*strategies.ORDINARY_TYPES, "void", "variant") if has_bounds(PrimitiveType(name))}
    assert bounded == set(BOUNDED)
    assert has_bounds(PrimitiveType("decimal(5,2)"))
    assert not has_bounds(StructType())


class TestIndexedLeaves:
    SCHEMA = schema_from_ddl("p DATE, a INT, s STRUCT<x: INT, y: STRUCT<z: INT>>, `d.e` INT, m MAP<INT, INT>, Last INT")

    def _names(self, **properties: str) -> list[str]:
        prefixed = {f"delta.{name}": value for name, value in properties.items()}
        return ["/".join(path) for path, _ in indexed_leaves(self.SCHEMA, ["p"], prefixed)]

    def test_all_leaves_but_the_partition_columns(self) -> None:
        assert self._names() == ["a", "s/x", "s/y/z", "d.e", "m", "Last"]

    @pytest.mark.parametrize(("limit", "count"), [("0", 0), ("2", 2), ("-1", 6), ("99", 6)])
    def test_number_of_columns_may_be_limited(self, limit: str, count: int) -> None:
        assert len(self._names(dataSkippingNumIndexedCols=limit)) == count

    def test_number_of_columns_must_be_a_number(self) -> None:
        with pytest.raises(ValidationError, match="dataSkippingNumIndexedCols is a number of columns, not 'many'"):
            self._names(dataSkippingNumIndexedCols="many")

    def test_thirty_two_columns_by_default(self) -> None:
        wide = schema_from_ddl(", ".join(f"c{i} INT" for i in range(40)))
        assert len(indexed_leaves(wide)) == 32
        assert len(indexed_leaves(wide, properties={"delta.dataSkippingNumIndexedCols": "-1"})) == 40

    @pytest.mark.parametrize(
        ("columns", "leaves"),
        [
            ("a", ["a"]),
            ("s", ["s/x", "s/y/z"]),
            ("s.y, last", ["s/y/z", "Last"]),
            ("`d.e`,S.X", ["s/x", "d.e"]),
            ("d.e", []),
            ("", []),
        ],
    )
    def test_columns_may_be_named(self, columns: str, leaves: list[str]) -> None:
        assert self._names(dataSkippingStatsColumns=columns, dataSkippingNumIndexedCols="1") == leaves
