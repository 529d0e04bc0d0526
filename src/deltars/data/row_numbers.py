"""Numbers for rows and values, which Python compares and sorts quickly: the same for equal ones, in their order.

Numbers are equal where Spark's values are: null and null, NaN and NaN, 0.0 and -0.0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from deltars.data.keys import normalised


def coded(tables: Sequence[Sequence[Any]]) -> list[list[int]]:
    """Return a number for each row of tables that have the same columns: the same one for equal rows."""
    sizes = [len(columns[0]) if columns else 0 for columns in tables]
    total = sum(sizes)
    rows: list[Any] = [0] * total
    for together in zip(*tables, strict=True):
        kind = together[0].type
        values = one_array(pa.chunked_array([chunk for one in together for chunk in cast_to(one, kind).chunks], kind))
        codes = _value_codes(values)
        seen: dict[tuple[int, int], int] = {}
        rows = [seen.setdefault(pair, len(seen)) for pair in zip(rows, codes, strict=True)]
    return _split(rows, sizes)


def _value_codes(values: pa.Array) -> list[int]:
    kind = values.type
    if types.is_nested(kind):
        seen: dict[Any, int] = {}
        return [seen.setdefault(_hashable(value), len(seen)) for value in values.to_pylist()]
    if types.is_floating(kind):
        values = normalised(values, kind).view(pa.int32() if kind == pa.float32() else pa.int64())
    codes: list[int] = pc.fill_null(values.dictionary_encode().indices, -1).to_pylist()
    return codes


def _hashable(value: Any) -> Any:
    match value:
        case float():
            return "NaN" if math.isnan(value) else value + 0.0
        case list():
            return tuple(map(_hashable, value))
        case tuple():
            return tuple(map(_hashable, value))
        case dict():
            return tuple((name, _hashable(part)) for name, part in value.items())
    return value


def ranked(columns: Sequence[Any]) -> list[list[Any]]:
    """Return the places of values in the order of all of them; None for null."""
    kind = columns[0].type
    values = one_array(pa.chunked_array([chunk for one in columns for chunk in cast_to(one, kind).chunks], kind))
    values = normalised(values, kind)
    distinct = values.unique().drop_null()
    distinct = distinct.take(pc.sort_indices(distinct))
    return _split(pc.index_in(values, value_set=distinct).to_pylist(), [len(one) for one in columns])


def _split(numbers: list[Any], sizes: Sequence[int]) -> list[list[Any]]:
    found, place = [], 0
    for size in sizes:
        found.append(numbers[place : place + size])
        place += size
    return found


def cast_to(values: Any, kind: pa.DataType) -> pa.ChunkedArray:
    """Return the values as this type."""
    whole = values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])
    return whole if whole.type == kind else whole.cast(kind)


def one_array(values: Any) -> pa.Array:
    """Return the chunks of a column as one array."""
    whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole
