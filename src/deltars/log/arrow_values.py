"""Arrow arrays of Python values, without pandas.

`pa.array` and `pa.scalar` import pandas where it is installed, to recognise its objects. That takes half a second, and
a process that only commits and publishes does not need pandas. So this module makes arrays from buffers, unless pandas
is loaded already.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, chain
from typing import Any

import pyarrow as pa
from pyarrow import types


def array_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return `pa.array(values, kind)`, for the types of the log's actions."""
    return pa.array(values, kind) if "pandas" in sys.modules else _made(values, kind)


def batch_of(rows: Sequence[Sequence[Any]], columns: pa.Schema) -> pa.RecordBatch:
    """Return rows as a record batch."""
    values = zip(*rows, strict=True) if rows else ([] for _ in columns)
    arrays = [array_of(column, field.type) for column, field in zip(values, columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def falses(count: int) -> pa.Array:
    """Return an array that is false everywhere."""
    return pa.Array.from_buffers(pa.bool_(), count, [None, pa.py_buffer(bytes((count + 7) // 8))])


def _made(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    count, validity = len(values), _validity(values)
    if types.is_int64(kind) or types.is_int32(kind):
        numbers = array("q" if types.is_int64(kind) else "i", (value or 0 for value in values))
        return pa.Array.from_buffers(kind, count, [validity, pa.py_buffer(numbers)])
    if types.is_boolean(kind):
        return pa.Array.from_buffers(kind, count, [validity, _bits(values)])
    if types.is_string(kind):
        texts = [b"" if value is None else value.encode() for value in values]
        return pa.Array.from_buffers(kind, count, [validity, _offsets(texts), pa.py_buffer(b"".join(texts))])
    if types.is_struct(kind):
        fields = [[None if value is None else value.get(field.name) for value in values] for field in kind]
        children = [_made(column, field.type) for column, field in zip(fields, kind, strict=True)]
        return pa.Array.from_buffers(kind, count, [validity], children=children)
    if types.is_map(kind):
        maps = [_pairs(value) for value in values]
        pairs = list(chain.from_iterable(maps))
        parts = [_made([key for key, _ in pairs], kind.key_type), _made([item for _, item in pairs], kind.item_type)]
        entries = pa.StructArray.from_arrays(parts, fields=[kind.key_field, kind.item_field])
        return pa.Array.from_buffers(kind, count, [validity, _offsets(maps)], children=[entries])
    if types.is_list(kind):
        lists = [value or () for value in values]
        elements = _made(list(chain.from_iterable(lists)), kind.value_type)
        return pa.Array.from_buffers(kind, count, [validity, _offsets(lists)], children=[elements])
    return pa.array(values, kind)


def _pairs(value: Mapping[str, Any] | Sequence[tuple[str, Any]] | None) -> Sequence[tuple[str, Any]]:
    if value is None:
        return ()
    return list(value.items()) if isinstance(value, Mapping) else value


def _validity(values: Sequence[Any]) -> pa.Buffer | None:
    return _bits([value is not None for value in values]) if None in values else None


def _bits(values: Sequence[Any]) -> pa.Buffer:
    digits = "".join("1" if value else "0" for value in reversed(values))
    return pa.py_buffer(int(digits or "0", 2).to_bytes((len(values) + 7) // 8, "little"))


def _offsets(values: Iterable[Sequence[Any]]) -> pa.Buffer:
    return pa.py_buffer(array("i", accumulate(map(len, values), initial=0)))
