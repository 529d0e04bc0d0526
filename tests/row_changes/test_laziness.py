"""Expressions that fail for some rows: they are computed only for the rows that need them, as in Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest

import deltars
from deltars.errors import ValidationError

pytestmark = pytest.mark.backends("sqlite")


@pytest.fixture
def table(catalog: deltars.Catalog) -> deltars.Table:
    table = catalog.create_table("t", "a BIGINT, b BIGINT")
    table.write(pa.table({"a": [4, 4, 9, None], "b": [0, 2, None, 1]}))
    return table


def _rows(table: deltars.Table) -> list[tuple[int | None, int | None]]:
    return sorted(((row["a"], row["b"]) for row in table.to_arrow().to_pylist()), key=str)


@pytest.mark.parametrize(
    ("where", "count"),
    [
        ("b <> 0 AND a / b > 1", 1),
        ("NOT (b = 0 OR a / b <= 1)", 1),
        ("b = 0 OR a / b > 1", 2),
        ("b IS NOT NULL AND (b = 0 OR a / b > 1)", 2),
    ],
)
def test_a_part_of_a_condition_is_not_computed_where_the_part_before_decides(
    table: deltars.Table, where: str, count: int
) -> None:
    assert table.delete(where).rows_deleted == count


def test_a_part_is_computed_where_the_part_before_is_null(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "a BIGINT, b BIGINT")
    table.write(pa.table({"a": [9, None], "b": [1, 0]}))
    with pytest.raises(ValidationError, match="divide by zero"):
        table.delete("a > 5 AND 7 % b > 1")


def test_branches_and_their_conditions_are_computed_for_their_own_rows(table: deltars.Table) -> None:
    table.update({"a": "CASE WHEN b = 0 THEN -1 WHEN a / b > 1 THEN 1 ELSE a END"})
    assert _rows(table) == [(-1, 0), (1, 2), (9, None), (None, 1)]


def test_an_argument_of_coalesce_is_computed_where_those_before_are_null(table: deltars.Table) -> None:
    table.update({"b": "coalesce(a, 7 % b)"})
    assert _rows(table) == [(4, 4), (4, 4), (9, 9), (None, 0)]
    table.update({"b": "coalesce(NULL, b, 1)"}, "a = 9")
    assert (9, 9) in _rows(table)


def test_coalesce_takes_nested_values_too(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("n", "a ARRAY<BIGINT>, b ARRAY<BIGINT>")
    kind = pa.list_(pa.int64())
    table.write(pa.table({"a": pa.array([None, [1]], kind), "b": pa.array([[2], [3]], kind)}))
    table.update({"a": "coalesce(a, b)"})
    assert sorted(row["a"] for row in table.to_arrow().to_pylist()) == [[1], [2]]
