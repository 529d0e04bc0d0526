"""Equal keys of a merge, where Arrow's own comparison would differ from Spark's."""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from deltars.data.keys import KeyIndex, comparison_type, key_values, normalised
from deltars.predicate import Column
from deltars.protocol import PrimitiveType, type_to_arrow

OTHER_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000001))[0]


def _pairs(targets: list[pa.Array], sources: list[pa.Array], kinds: list[pa.DataType]) -> list[tuple[int, int]]:
    index = KeyIndex(sources, kinds, None)
    found = index.source_rows(index.find(targets))
    return sorted(zip(*(part.to_pylist() for part in found), strict=True))


@pytest.mark.parametrize(
    ("target", "source", "expected"),
    [
        (("double", [-0.0, math.nan, None]), ("double", [0.0, OTHER_NAN, None]), [(0, 0), (1, 1)]),
        (("float", [-0.0, math.nan]), ("float", [0.0, OTHER_NAN]), [(0, 0), (1, 1)]),
        (("double", [float(2**53)]), ("long", [2**53, 2**53 + 1]), [(0, 0), (0, 1)]),
        (("double", [0.1]), ("float", [0.1]), []),
        (("byte", [1, 2]), ("long", [2**40, 2, 2]), [(1, 1), (1, 2)]),
        (("decimal(10,2)", [Decimal("1.10")]), ("decimal(18,4)", [Decimal("1.1000"), Decimal("1.1001")]), [(0, 0)]),
        (("integer", [1, 0]), ("decimal(10,2)", [Decimal("1.00"), Decimal("0.50")]), [(0, 0)]),
        (("string", ["a", "", None]), ("string", ["A", "", "a "]), [(1, 1)]),
        (("long", [1, None]), ("void", [None, None]), []),
        (("long", []), ("long", []), []),
    ],
)
def test_keys_are_equal_as_in_spark(
    target: tuple[str, list[Any]], source: tuple[str, list[Any]], expected: list[tuple[int, int]]
) -> None:
    types = [PrimitiveType(name) for name, _ in (target, source)]
    kind = comparison_type(types[0], types[1])
    assert kind is not None
    arrays = [
        pa.array(values, type_to_arrow(type_)) for (_, values), type_ in zip((target, source), types, strict=True)
    ]
    assert _pairs([arrays[0]], [arrays[1]], [kind]) == expected


def test_several_keys_must_all_be_equal() -> None:
    source = [pa.array([1, 1, 2, None]), pa.array(["a", "b", "a", "a"]), pa.array([True, True, False, True])]
    target = [
        pa.array([1, 2, 2, 1, None]),
        pa.array(["b", "a", "a", None, "a"]),
        pa.array([True, True, False, True, True]),
    ]
    assert _pairs(target, source, [pa.int64(), pa.string(), pa.bool_()]) == [(0, 1), (2, 2)]


def test_rows_that_are_no_candidates_match_nothing() -> None:
    index = KeyIndex([pa.array([1, 1, 2])], [pa.int64()], pa.array([True, None, False]))
    assert index.codes.null_count == 2
    places, rows = index.source_rows(index.find([pa.array([2, 1])]))
    assert (places.to_pylist(), rows.to_pylist()) == ([1], [0])


@pytest.mark.parametrize(
    ("target", "source"),
    [("float", "long"), ("float", "integer"), ("double", "decimal(10,2)"), ("date", "timestamp"), ("void", "void"),
     ("timestamp", "timestamp_ntz"), ("decimal(38,30)", "long"), ("string", "binary"), ("variant", "variant")],
)  # fmt: skip
def test_types_that_only_spark_can_compare_have_no_comparison_type(target: str, source: str) -> None:
    assert comparison_type(PrimitiveType(target), PrimitiveType(source)) is None


def test_values_of_a_key_are_normalised_distinct_and_sorted() -> None:
    column = Column(("x",), PrimitiveType("double"))
    found = key_values(column, normalised(pa.array([2.0, -0.0, None, 0.0, math.nan, OTHER_NAN]), pa.float64()))
    assert found is not None
    assert list(map(repr, found.values or ())) == ["0.0", "2.0", "nan"]
    assert (found.smallest, math.isnan(float(str(found.largest)))) == (0.0, True)
