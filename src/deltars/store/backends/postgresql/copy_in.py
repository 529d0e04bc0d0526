"""Rows for PostgreSQL's binary COPY, made of Arrow columns.

    column ──▶ lengths and big-endian values, as Arrow columns of bytes ──▶ joined row by row ──▶ one buffer

No value becomes a Python object, and the server parses no digits. A field is its length in four bytes and its value; a
null has the length -1.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import ARRAY, JSON, BigInteger, Boolean, Integer, Table
from sqlalchemy.types import TypeEngine

from deltars.store.types import Id, Instant

BEGIN = b"PGCOPY\n\xff\r\n\0" + bytes(8)
END = struct.pack("!h", -1)

_Part: TypeAlias = bytes | pa.Array
"""Bytes that are the same in every row, or a column of bytes."""

_NULL = struct.pack("!i", -1)
_FLOAT8 = 701
_EPOCH_US = 946_684_800_000_000
"""PostgreSQL counts microseconds from the year 2000."""


def encode(batch: pa.RecordBatch, table: Table) -> memoryview:
    """Return the rows of a batch. Its columns are those that `Backend.load` is given."""
    parts: list[_Part] = [struct.pack("!h", batch.num_columns)]
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        parts += _field(column, table.c[name].type)
    return _bytes_of(_join(parts, batch.num_rows))


def encode_arrays(columns: Sequence[pa.Array]) -> pa.Array:
    """Return arrays of float8; the n-th column holds the n-th number of each array."""
    # Dimensions, whether numbers may be null, their type, their count, and the index of the first one.
    parts: list[_Part] = [struct.pack("!5i", 1, 1, _FLOAT8, len(columns), 1)]
    for column in columns:
        parts += _fixed(column, "d")
    return _join(parts, len(columns[0]))


def _field(column: pa.Array, type_: TypeEngine[Any]) -> list[_Part]:
    if column.null_count == len(column):
        return [_NULL]
    match type_:
        case BigInteger():
            return _fixed(column.cast(pa.int64()), "q")
        case Integer():
            return _fixed(column.cast(pa.int32()), "i")
        case Boolean():
            truth = pc.if_else(column, pa.scalar(b"\0\0\0\1\1", pa.binary()), pa.scalar(b"\0\0\0\1\0", pa.binary()))
            return [truth.fill_null(_NULL)]
        case Instant():
            moments = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
            return _fixed(pc.subtract(moments, _EPOCH_US), "q")
        case Id():
            return _text(_ids(column))
        case JSON():
            # The version of the format of jsonb.
            return _text(column.cast(pa.binary()), before=b"\1")
        case ARRAY():
            return _text(column)
        case _:
            return _text(column.cast(pa.binary()))


def _fixed(column: pa.Array, code: str) -> list[_Part]:
    """Return fields of numbers with this code of `array`."""
    numbers = array(code)
    width = numbers.itemsize
    # A null still has a place among the values; any number there is skipped below.
    values = column.buffers()[1]
    numbers.frombytes(memoryview(values)[column.offset * width : (column.offset + len(column)) * width])
    data = _big_endian(numbers)
    length = struct.pack("!i", width)
    if not column.null_count:
        return [length, data]
    there = column.is_valid()
    lengths = pc.if_else(there, pa.scalar(length, pa.binary()), pa.scalar(_NULL, pa.binary()))
    return [lengths, pc.if_else(there, data, pa.scalar(b"", pa.binary()))]


def _text(column: pa.Array, before: bytes = b"") -> list[_Part]:
    """Return fields of bytes; `before` is prepended to each."""
    lengths = pc.add(pc.binary_length(column), pa.scalar(len(before), pa.int32())).fill_null(-1)
    numbers = array("i")
    numbers.frombytes(memoryview(lengths.buffers()[1])[lengths.offset * 4 : (lengths.offset + len(lengths)) * 4])
    mark: list[_Part] = [before] if before else []
    if column.null_count and before:
        there = column.is_valid()
        mark = [pc.if_else(there, pa.scalar(before, pa.binary()), pa.scalar(b"", pa.binary()))]
    return [_big_endian(numbers), *mark, column.fill_null(b"") if column.null_count else column]


def _ids(column: pa.Array) -> pa.Array:
    # The rows of a batch have few different ids, mostly one.
    distinct = column.dictionary_encode()
    return pa.array([UUID(text).bytes for text in distinct.dictionary.to_pylist()], pa.binary()).take(distinct.indices)


def _big_endian(numbers: array[Any]) -> pa.Array:
    if sys.byteorder == "little":
        numbers.byteswap()
    type_ = pa.binary(numbers.itemsize)
    return pa.Array.from_buffers(type_, len(numbers), [None, pa.py_buffer(numbers)]).cast(pa.binary())


def _join(parts: Sequence[_Part], count: int) -> pa.Array:
    """Concatenate the parts of each row."""
    columns = [pa.scalar(part, pa.binary()) if isinstance(part, bytes) else part for part in _merged(parts)]
    if all(isinstance(part, bytes) for part in parts):
        columns = [pa.repeat(columns[0], count)]
    return pc.binary_join_element_wise(*columns, pa.scalar(b"", pa.binary()))


def _merged(parts: Sequence[_Part]) -> Iterator[_Part]:
    """Concatenate neighbours that are the same in every row."""
    constant = b""
    for part in parts:
        if isinstance(part, bytes):
            constant += part
            continue
        if constant:
            yield constant
        constant = b""
        yield part
    if constant:
        yield constant


def _bytes_of(rows: pa.Array) -> memoryview:
    _, offsets, data = rows.buffers()
    ends = array("i")
    ends.frombytes(memoryview(offsets)[rows.offset * 4 : (rows.offset + len(rows) + 1) * 4])
    return memoryview(data)[ends[0] : ends[-1]]
