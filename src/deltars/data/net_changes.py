"""The net changes of one version: rows that it deletes and inserts alike cancel out.

    deleted rows, inserted rows ──equal values──▶ as many of one kind as there are of the other are left out

Rows are equal as Spark's `<=>` says: null equals null, NaN equals NaN, and -0.0 equals 0.0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from deltars.protocol.change_feed import CHANGE_TYPE, INSERT


def net_rows(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    """Return the rows that are left, deleted ones first. All rows are of one version."""
    is_insert = pc.equal(rows[CHANGE_TYPE], INSERT)
    deleted, inserted = rows.filter(pc.invert(is_insert)), rows.filter(is_insert)
    both = pa.concat_tables([deleted, inserted]).combine_chunks()
    names = [name for name in both.column_names if name != CHANGE_TYPE]
    keys = [key for name in names for key in _keys(_whole(both[name]))]
    grouped = pa.table(
        {
            **{f"k{place}": key for place, key in enumerate(keys)},
            "row": pa.array(range(both.num_rows), pa.int64()),
            "sign": pa.concat_arrays(
                [pa.repeat(pa.scalar(-1, pa.int64()), len(deleted)), pa.repeat(pa.scalar(1, pa.int64()), len(inserted))]
            ),
        }
    )
    groups = grouped.group_by([f"k{place}" for place in range(len(keys))], use_threads=False)
    found = groups.aggregate([("sign", "sum"), ("row", "list")])
    left = found.filter(pc.not_equal(found["sign_sum"], 0))
    places: list[int] = []
    for count, numbers in zip(left["sign_sum"].to_pylist(), left["row_list"].to_pylist(), strict=True):
        # Deleted rows come first.
        places += numbers[-count:] if count > 0 else numbers[:-count]
    return iter(both.take(pa.array(sorted(places), pa.int64())).to_batches())


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _keys(values: pa.Array) -> list[pa.Array]:
    """Return arrays that Arrow can group by, and that are equal for equal values."""
    kind = values.type
    if pa.types.is_struct(kind):
        fields = [values.field(place) for place in range(kind.num_fields)]
        masked = (pc.if_else(values.is_valid(), field, pa.scalar(None, field.type)) for field in fields)
        return [values.is_valid(), *(key for field in masked for key in _keys(field))]
    if pa.types.is_nested(kind):
        return [pa.array([None if value is None else repr(_plain(value)) for value in values.to_pylist()], pa.string())]
    if pa.types.is_floating(kind):
        zero = pa.scalar(0.0, kind)
        number = pc.if_else(pc.equal(values, zero), zero, values)
        return [pc.if_else(pc.is_nan(number), pa.scalar(float("nan"), kind), number)]
    return [values]


def _plain(value: Any) -> Any:
    """Return a nested value with one zero only: -0.0 equals 0.0, and its text differs."""
    match value:
        case float():
            return value + 0.0
        case dict():
            return {name: _plain(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_plain(inner) for inner in value]
    return value


__all__ = ["net_rows"]
