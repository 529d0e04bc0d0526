"""Z-order: ranges of equal size, interleaved bits, and what becomes of nulls, NaN and one value only."""

from __future__ import annotations

import bisect
import random
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltars.data.z_order import MAX_BITS, SAMPLE_ROWS, ZOrder, sample_of


def keys(rows: pa.Table, *columns: str) -> list[int]:
    paths = [tuple(column.split(".")) for column in columns]
    found: list[int] = ZOrder.of_sample(sample_of(rows, paths, 1), paths).keys(rows).to_pylist()
    return found


def interleaved(*numbers: int) -> int:
    key = 0
    for bit in reversed(range(MAX_BITS)):
        for number in numbers:
            key = key << 1 | (number >> bit & 1)
    return key


def test_bits_of_the_columns_alternate_and_the_first_column_leads() -> None:
    side = 1 << MAX_BITS
    values = list(range(side))
    rows = pa.table({"a": values, "b": list(reversed(values))})
    assert keys(rows, "a", "b") == [interleaved(a, side - 1 - a) for a in values]
    assert keys(rows, "a") == values


@given(st.lists(st.one_of(st.none(), st.integers(-50, 50)), min_size=1, max_size=300))
def test_range_of_a_value_is_the_number_of_boundaries_up_to_it(values: list[int | None]) -> None:
    rows = pa.table({"a": pa.array(values, pa.int64())})
    order = ZOrder.of_sample(sample_of(rows, [("a",)], 1), [("a",)])
    boundaries = order.boundaries[0].to_pylist()
    expected = [0 if value is None else bisect.bisect_right(boundaries, value) for value in values]
    assert order.keys(rows).to_pylist() == expected


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([3.5, None, float("nan"), float("-inf"), -0.0, 0.0, float("inf")], pa.float64()),
        (["b", "", None, "ü", "a" * 100], pa.string()),
        ([Decimal("1.10"), Decimal("-2.00"), None], pa.decimal128(10, 2)),
        ([date(2026, 1, 1), date(1, 1, 1), None], pa.date32()),
        ([None, None], pa.int32()),
        ([7, 7, 7], pa.int8()),
    ],
)
def test_order_of_every_type_is_its_own_with_nulls_first_and_nan_last(values: list[Any], kind: pa.DataType) -> None:
    rows = pa.table({"a": pa.array(values, kind)})
    found = keys(rows, "a")
    ordered = [values[place] for place in sorted(range(len(values)), key=lambda place: (found[place], place))]
    nulls = values.count(None)
    assert ordered[:nulls] == [None] * nulls
    known = pa.array([value for value in ordered[nulls:] if value == value], kind)
    assert known == known.take(pc.sort_indices(known)) or len(set(found)) < len(values)
    if any(value != value for value in values):
        assert ordered[-1] != ordered[-1] or ordered[-1] == float("inf")


def test_field_of_a_struct_and_many_columns_have_keys() -> None:
    rows = pa.table({"s": [{"a": 2}, {"a": 1}, None], **{f"c{n}": [n, 1, 2] for n in range(10)}})
    assert keys(rows, "s.a")[2] == 0
    found = keys(rows, "s.a", *(f"c{n}" for n in range(10)))
    assert len(set(found)) == 3
    assert min(found) >= 0


def test_neighbours_on_the_curve_are_near_in_both_columns() -> None:
    rng = random.Random(7)
    rows = pa.table({name: [rng.random() ** 9 for _ in range(20_000)] for name in "ab"})
    order = pc.sort_indices(pa.array(keys(rows, "a", "b")))
    part = rows.take(order.slice(0, len(order) // 16))
    for name in "ab":
        ranks = sorted(rows[name].to_pylist())
        share = bisect.bisect_right(ranks, max(part[name].to_pylist())) / len(ranks)
        assert share < 0.35, "a sixteenth of the rows spans about a quarter of each column, however skewed"


def test_sample_has_rows_from_everywhere() -> None:
    rows = pa.table({"a": range(10), "b": range(10)})
    assert sample_of(rows, [("a",)], 4).to_pydict() == {"a": [0, 4, 8]}
    assert sample_of(rows.slice(0, 0), [("a",)], 0).num_rows == 0
    assert SAMPLE_ROWS >= 1 << MAX_BITS
