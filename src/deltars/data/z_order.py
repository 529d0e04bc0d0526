"""Z-order: a sort key that keeps rows close together which are close in each of several columns.

    column ──boundaries of a sample──▶ number of its range, 10 bits or so
    ranges ──bits interleaved: a₀ b₀ a₁ b₁ …──▶ one whole number per row ──▶ sort by it

Ranges hold about the same number of rows each, however the values are distributed. Nulls are in the first range. NaN
is in the last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from deltars.protocol.column_path import ColumnPath

CURVE = "zorder"
"""Name of the curve in the tags of files."""

MAX_BITS = 10
"""Bits of a range's number: 1,024 ranges a column, as many as Delta has."""

SAMPLE_ROWS = 1 << 16
"""Rows that the boundaries are taken from: 64 for each range."""

RUN_BYTES = 128 << 20
"""Bytes of rows that a write holds to sort them. Sorted rows are a second copy."""

_BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class ZOrder:
    """Sort key of rows by some columns."""

    columns: tuple[ColumnPath, ...]
    boundaries: tuple[pa.Array, ...]
    """For each column the least value of each range but the first, in order."""
    bits: int

    @classmethod
    def of_sample(cls, sample: pa.Table, columns: Sequence[ColumnPath]) -> ZOrder:
        """Return the order by these columns. The sample has rows from everywhere in what will be sorted."""
        bits = min(MAX_BITS, 63 // len(columns))
        return cls(tuple(columns), tuple(_boundaries(_leaf(sample, path), bits) for path in columns), bits)

    def keys(self, rows: pa.RecordBatch | pa.Table) -> pa.ChunkedArray:
        """Return the sort key of each row."""
        ranges = [
            _range_numbers(_leaf(rows, path), boundaries, self.bits)
            for path, boundaries in zip(self.columns, self.boundaries, strict=True)
        ]
        if len(ranges) == 1:
            return ranges[0]
        key = pc.multiply(ranges[0], 0)
        for bit in range(self.bits):
            for place, numbers in enumerate(ranges):
                # The first column has the highest bit of each group.
                to = bit * len(ranges) + len(ranges) - 1 - place
                one = pc.bit_wise_and(pc.shift_right(numbers, bit), 1)
                key = pc.bit_wise_or(key, pc.shift_left(one, to))
        return key


def sorted_runs(
    batches: Iterable[pa.RecordBatch], columns: Sequence[ColumnPath], run_bytes: int = RUN_BYTES
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a write, each run of about `run_bytes` in Z-order."""
    held: list[pa.RecordBatch] = []
    size_bytes = 0
    # A batch may be all rows of a large table.
    for piece in (batch.slice(at, _BATCH_ROWS) for batch in batches for at in range(0, batch.num_rows, _BATCH_ROWS)):
        held.append(piece)
        size_bytes += piece.nbytes
        if size_bytes >= run_bytes:
            yield from in_z_order(pa.Table.from_batches(held), columns)
            held.clear()
            size_bytes = 0
    if held:
        yield from in_z_order(pa.Table.from_batches(held), columns)


def in_z_order(rows: pa.Table, columns: Sequence[ColumnPath]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in Z-order. Rows with equal keys keep their order."""
    # One chunk: rows are taken from everywhere.
    rows = rows.combine_chunks()
    sample = sample_of(rows, columns, rows.num_rows // SAMPLE_ROWS)
    return in_order(rows, ZOrder.of_sample(sample, columns).keys(rows))


def in_order(rows: pa.Table, keys: pa.ChunkedArray) -> Iterator[pa.RecordBatch]:
    """Yield the rows by ascending key."""
    numbers = pc.sort_indices(keys)
    for start in range(0, rows.num_rows, _BATCH_ROWS):
        yield from rows.take(numbers.slice(start, _BATCH_ROWS)).combine_chunks().to_batches()


def sample_of(rows: pa.RecordBatch | pa.Table, columns: Sequence[ColumnPath], every: int) -> pa.Table:
    """Return every n-th row, with only the top-level columns that hold these columns."""
    names = list(dict.fromkeys(path[0] for path in columns))
    table = pa.table(rows) if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
    places = pa.array(range(0, table.num_rows, max(1, every)), pa.int64())
    return table.select(names).take(places)


def _leaf(rows: pa.RecordBatch | pa.Table, path: ColumnPath) -> pa.ChunkedArray:
    column = rows.column(path[0])
    column = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
    column = pc.struct_field(column, list(path[1:])) if len(path) > 1 else column
    if pa.types.is_floating(column.type):
        last = pa.scalar(float("inf"), column.type)
        return pc.if_else(pc.fill_null(pc.is_nan(column), False), last, column)
    return column


def _boundaries(column: pa.ChunkedArray, bits: int) -> pa.Array:
    values = column.drop_null()
    ordered = values.take(pc.sort_indices(values)).combine_chunks() if len(values) else values.combine_chunks()
    if isinstance(ordered, pa.ChunkedArray):
        ordered = pa.concat_arrays(ordered.chunks) if ordered.num_chunks else pa.array([], ordered.type)
    count = 1 << bits
    if not len(ordered):
        return ordered
    return ordered.take(pa.array([number * len(ordered) // count for number in range(1, count)], pa.int64()))


def _range_numbers(column: pa.ChunkedArray, boundaries: pa.Array, bits: int) -> pa.ChunkedArray:
    """Return for each value how many boundaries are not above it, by a binary search of all values at once."""
    number = pa.chunked_array([pa.repeat(pa.scalar(0, pa.int64()), len(chunk)) for chunk in column.chunks], pa.int64())
    if not len(boundaries):
        return number
    for bit in reversed(range(bits)):
        step = 1 << bit
        # All boundaries below place `number` are at most the value. The next one to compare is at number + step - 1.
        boundary = boundaries.take(pc.add(number, step - 1).combine_chunks())
        is_above = pc.fill_null(pc.greater_equal(column, pa.chunked_array([boundary])), False)
        number = pc.add(number, pc.multiply(is_above.cast(pa.int64()), step))
    return number
