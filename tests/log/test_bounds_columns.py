"""Bounds of many files at once are those of each file by itself."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deltars.log.bounds import Bounds, FileBounds
from deltars.log.bounds_columns import bounds_columns
from deltars.protocol import FileStats, PrimitiveType, StructField, StructType, encode_stats, schema_from_ddl
from tests.log.test_bounds import types_with_bounds
from tests.protocol import strategies

ODD = (
    *("null", "true", "false", "7", "-0.0", "1.5", "0.1", "1e999", "1e39", "1" + "0" * 400, "[1]", '{"b":1}'),
    *("9007199254740993", "-9223372036854775808", "9223372036854775807", "18446744073709551616"),
    *('""', '"7"', '"NaN"', '"Infinity"', r'"\ud800"', r'"\u0000"', '"é\U0010ffff"', '"a\ufffd"', '"\ufffdé"'),
    *('"' + "x" * 31 + '?\ufffd"', '"a' + "\U0010ffff" * 40 + '"', '"' + "é" * 40 + '"', r'"x\ud83d"'),
    *('"2024-02-29T00:00:00-00:53"', '"1582-10-04"', '"0001-01-01T00:00:00Z"'),
    *('"2024-02-29"', '"2023-02-29"', '"20240229"', '"2024-W09-4"'),
    *('"0000-01-01"', '"0001-01-01"', '"9999-12-31"', '"+10000-01-01"'),
    *('"2024-02-29T00:00:00"', '"2024-02-29 01:02"', '"2024-02-29T00:00:00.001Z"', '"2024-02-29T00:00:00+01:30"'),
    *('"2024-02-29T00:00:00.1234567Z"', '"2024-02-29T00:00:60Z"', '"2024-02-29T24:00:00Z"'),
    *('"0001-01-01T00:00:00+02:00"', '"9999-12-31T23:59:59.999Z"', '"9999-12-31T23:59:59-02:00"'),
)
"""What a bound may be, in JSON, whatever its column's type."""


def _columns(bounds: Bounds, texts: list[str | None]) -> list[FileBounds]:
    found = bounds_columns(bounds, texts)
    mins, maxs = ([column.to_pylist() for column in columns] for columns in (found.mins, found.maxs))
    return [
        bounds.unknown
        if text is None
        else FileBounds(count, [c[n] for c in mins] if mins else None, [c[n] for c in maxs] if maxs else None)
        for n, (text, count) in enumerate(zip(texts, found.num_records.to_pylist(), strict=True))
    ]


def _check(bounds: Bounds, texts: list[str | None]) -> None:
    # As text: -0.0 is not 0.0, and 1 is not 1.0.
    assert repr(_columns(bounds, texts)) == repr([bounds.of(text) for text in texts])


def _text(low: str, high: str) -> str:
    return f'{{"numRecords":3,"minValues":{{"a":{low}}},"maxValues":{{"a":{high}}}}}'


@st.composite
def _files(draw: st.DrawFn) -> tuple[PrimitiveType, list[str | None]]:
    type_ = draw(types_with_bounds)
    schema = StructType((StructField("a", type_),))

    def stats(pair: tuple[Any, Any]) -> str:
        return encode_stats(FileStats(1, {"a": pair[0]}, {"a": pair[1]}), schema)

    values = strategies.values_of(type_)
    ordinary = st.lists(st.tuples(values, values).map(stats), max_size=5)
    odd = st.lists(
        st.none() | st.tuples(st.sampled_from(ODD), st.sampled_from(ODD)).map(lambda pair: _text(*pair)), max_size=2
    )
    return type_, draw(st.permutations([*draw(ordinary), *draw(odd)]))


@given(_files())
@example((PrimitiveType("long"), []))
@example((PrimitiveType("long"), [None]))
def test_many_files_have_the_bounds_of_each(case: tuple[PrimitiveType, list[str | None]]) -> None:
    type_, texts = case
    _check(Bounds(StructType((StructField("a", type_),))), texts)


@pytest.mark.parametrize(
    "type_", ["string", "long", "byte", "float", "double", "date", "timestamp", "timestamp_ntz", "decimal(10,2)"]
)
@pytest.mark.parametrize("value", ODD)
def test_one_odd_bound_is_what_it_is_by_itself(type_: str, value: str) -> None:
    _check(Bounds(StructType((StructField("a", PrimitiveType(type_)),))), [_text(value, value)])


def test_nested_missing_and_misplaced_statistics() -> None:
    schema = schema_from_ddl("s STRUCT<x: INT, y: STRUCT<z: STRING>>, b BIGINT, m MAP<STRING, STRING>")
    documents: list[Any] = [
        {"numRecords": 1, "minValues": {"s": {"x": 1, "y": {"z": "a"}}, "b": 2}, "maxValues": {"s": {"x": 2}}},
        {"minValues": {"s": 7}, "maxValues": []},
        {"numRecords": None, "minValues": None, "maxValues": {"s": {"y": None}}},
        {},
    ]
    texts = [None, *map(json.dumps, documents)]
    for properties in ({}, {"deltars.rangeColumn": "b"}):
        _check(Bounds(schema, properties=properties), texts)


def test_table_without_bounds_counts_its_records() -> None:
    _check(Bounds(schema_from_ddl("m MAP<STRING, STRING>")), ['{"numRecords":5}', None])


def test_column_that_was_float_before_is_rounded_as_one() -> None:
    change = {"delta.typeChanges": [{"fromType": "float", "toType": "double"}]}
    schema = StructType((StructField("a", PrimitiveType("double"), metadata=change),))
    _check(Bounds(schema), [_text("0.1", "0.1"), _text("1e39", "2"), _text("null", "-0.5")])
