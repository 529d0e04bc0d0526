"""Rows of a scan as Arrow batches, file after file, in bounded memory.

Scan ──for each file──> Parquet batches ──minus deleted rows──> aligned with the current schema
                                         + partition columns, from the log ──where──> the requested columns
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types
from pyroaring import BitMap64

from deltars.data.deletion_vectors import read_vector
from deltars.data.dictionaries import ENCODED_TEXT, encoded_columns, with_encoded
from deltars.data.read_schema import Alignment, arrow_schema
from deltars.data.row_change import Positions
from deltars.data.scan import Scan, missing_file
from deltars.errors import DeltarsError, StorageError, ValidationError
from deltars.protocol import (
    StructField,
    StructType,
    parse_partition_value,
    type_to_arrow,
)
from deltars.protocol.actions import decode_deletion_vector, decode_partition_values
from deltars.storage import Storage, open_storage
from deltars.storage.table_files import is_missing, open_file

BATCH_ROWS = 65_536
SMALL_BATCH_ROWS = 16_384
"""Rows of a batch that is searched or written again. They are so few that the allocator reuses earlier batches."""
THREADS = 4
"""Files that `read_each_file` reads at a time."""

T = TypeVar("T")


class RowFilter(Protocol):
    """Selection of rows."""

    @property
    def columns(self) -> frozenset[str]:
        """Columns that the filter reads, as the schema spells them."""

    def mask(self, batch: pa.RecordBatch) -> pa.Array:
        """Return true for each selected row, and null or false for the others."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """What to read from every file."""

    scan: Scan
    storage: Storage
    columns: tuple[StructField, ...]
    """Columns of the result, followed by those that only the filter needs."""
    schema: pa.Schema
    """Schema of `columns`."""
    result: pa.Schema
    row_filter: RowFilter | None
    alignment: Alignment
    only: Positions | None
    without: Positions
    has_small_batches: bool
    """Whether batches are small and decoded by one thread, because several files are read at a time."""
    keeps_encoded: bool
    """Whether text that is dictionary-encoded in a file stays so."""


class PlacedRows(NamedTuple):
    """Rows of one data file, with their positions in it."""

    file: int
    """Place of the file in `Scan.files`."""
    numbers: pa.Array
    """Number of each row in its file, counted from 0, ascending. Rows that a vector deletes are counted too."""
    rows: pa.RecordBatch


def read_scan(
    scan: Scan, *, columns: Sequence[str] | None = None, row_filter: RowFilter | None = None
) -> pa.RecordBatchReader:
    """Return a stream of the rows that the filter keeps. Files are read as the stream is consumed."""
    plan = _plan(scan, columns, row_filter)
    return pa.RecordBatchReader.from_batches(plan.result, (placed.rows for placed in _placed(plan)))


def read_placed(
    scan: Scan,
    *,
    columns: Sequence[str] | None = None,
    row_filter: RowFilter | None = None,
    only: Positions | None = None,
    without: Positions | None = None,
    is_rewrite: bool = False,
) -> Iterator[PlacedRows]:
    """Yield the rows that the filter keeps, with their positions. Rows that a vector deletes are left out.

    `only` reads these rows alone, of the files that it has. `without` leaves rows out, as a vector does. `is_rewrite`
    is for rows that are written again: batches are small, and text that is dictionary-encoded in a file stays so. All
    batches of one file have the same schema.
    """
    plan = _plan(scan, columns, row_filter, only, without or {}, has_small_batches=is_rewrite, keeps_encoded=is_rewrite)
    return _placed(plan)


def read_each_file(
    scan: Scan,
    use: Callable[[Iterator[PlacedRows]], T],
    *,
    columns: Sequence[str] | None = None,
    row_filter: RowFilter | None = None,
) -> list[T]:
    """Return what `use` makes of the rows of each file, in the order of the files. Several are read at a time."""
    plan = _plan(scan, columns, row_filter, has_small_batches=True)
    files = list(_files(plan))
    with ThreadPoolExecutor(min(THREADS, len(files)) or 1, thread_name_prefix="deltars-read") as pool:
        found = [pool.submit(lambda file: use(_file_rows(plan, *file)), file) for file in files]
        try:
            return [future.result() for future in found]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _plan(
    scan: Scan,
    columns: Sequence[str] | None,
    row_filter: RowFilter | None,
    only: Positions | None = None,
    without: Positions = MappingProxyType({}),
    *,
    has_small_batches: bool = False,
    keeps_encoded: bool = False,
) -> _Plan:
    wanted = scan.select(columns)
    needed = row_filter.columns - {column.name for column in wanted} if row_filter is not None else ()
    all_columns = (*wanted, *(column for column in scan.schema.fields if column.name in needed))
    return _Plan(
        scan=scan,
        storage=open_storage(scan.root, scan.storage_options),
        columns=all_columns,
        schema=arrow_schema(StructType(all_columns)),
        result=arrow_schema(StructType(tuple(wanted))),
        row_filter=row_filter,
        alignment=Alignment(scan.column_mapping),
        only=only,
        without=without,
        has_small_batches=has_small_batches,
        keeps_encoded=keeps_encoded,
    )


def _placed(plan: _Plan) -> Iterator[PlacedRows]:
    for file in _files(plan):
        yield from _file_rows(plan, *file)


def _files(plan: _Plan) -> Iterator[tuple[int, str, str | None, str | None]]:
    """Yield place, path, partition values and deletion vector of the files to read."""
    files = plan.scan.files
    columns = [files.column(name).to_pylist() for name in ("path", "partition_values", "deletion_vector")]
    for place, (path, values, vector) in enumerate(zip(*columns, strict=True)):
        if plan.only is None or plan.only.get(place):
            yield place, path, values, vector


def _file_rows(plan: _Plan, place: int, path: str, values: str | None, vector: str | None) -> Iterator[PlacedRows]:
    try:
        for numbers, rows in _file_batches(plan, place, path, values, vector):
            yield PlacedRows(place, numbers, rows)
    except DeltarsError as error:
        raise _located(plan, path, error) from error.__cause__
    except pa.ArrowException as error:
        raise StorageError(
            f"the data file {path} cannot be read: {error}",
            path=path,
            table=plan.scan.table,
            version=plan.scan.version,
        ) from error


def _located(plan: _Plan, path: str, error: DeltarsError) -> DeltarsError:
    where: dict[str, Any] = {"table": plan.scan.table, "version": plan.scan.version}
    if isinstance(error, StorageError) and is_missing(plan.storage, path):
        return missing_file(plan.scan, path)
    if path not in error.message:
        error.message = f"{path}: {error.message}"
    return error.located(**where)


def _file_batches(
    plan: _Plan, place: int, path: str, values: str | None, vector: str | None
) -> Iterator[tuple[pa.Array, pa.RecordBatch]]:
    partition_values = decode_partition_values(values) if values else {}
    in_file = [column for column in plan.columns if column.name not in plan.scan.partition_columns]
    with (
        open_file(plan.storage, path) as source,
        _parquet_file(source, keeps_encoded=plan.keeps_encoded) as file,
    ):
        deleted = _deleted_rows(plan, file, vector) | _known_rows(file, plan.without.get(place))
        only = None if plan.only is None else _known_rows(file, plan.only[place]) - deleted
        found = (plan.alignment.find(column, file.schema_arrow) for column in in_file)
        names = [file.schema_arrow.field(at).name for at in found if at is not None]
        for first, batch in _raw_batches(file, names, only, has_small_batches=plan.has_small_batches):
            numbers, kept = _selected(batch, first, deleted, only)
            if kept.num_rows:
                yield from _finished(plan, numbers, kept, partition_values)


def _parquet_file(source: pa.NativeFile, *, keeps_encoded: bool) -> pq.ParquetFile:
    opened = partial(pq.ParquetFile, source, coerce_int96_timestamp_unit="us", pre_buffer=True)
    file = opened()
    names = encoded_columns(file) if keeps_encoded else []
    return opened(metadata=file.metadata, read_dictionary=names) if names else file


def _deleted_rows(plan: _Plan, file: pq.ParquetFile, vector: str | None) -> BitMap64:
    if vector is None:
        return BitMap64()
    rows = read_vector(plan.storage, decode_deletion_vector(vector))
    if rows and rows.max() >= file.metadata.num_rows:
        raise ValidationError(
            f"its deletion vector deletes row {rows.max()}, but the file has {file.metadata.num_rows} rows",
            field="deletionVector",
        )
    return rows


def _known_rows(file: pq.ParquetFile, rows: BitMap64 | None) -> BitMap64:
    if rows and rows.max() >= file.metadata.num_rows:
        raise ValidationError(f"it has no row {rows.max()}, but {file.metadata.num_rows} rows", field="positions")
    return rows or BitMap64()


def _selected(
    batch: pa.RecordBatch, first: int, deleted: BitMap64, only: BitMap64 | None
) -> tuple[pa.Array, pa.RecordBatch]:
    """Return the rows to read of a batch that begins at row `first`, and their numbers."""
    end = first + batch.num_rows
    if only is not None:
        numbers = _numbers(only, first, end)
        return numbers, batch.take(pc.subtract(numbers, pa.scalar(first, pa.uint64())))
    if not deleted.range_cardinality(first, end):
        return _as_array(BitMap64(range(first, end))), batch
    kept = _as_array(BitMap64(range(first, end)) - deleted)
    # A filter copies long runs of rows, `take` row by row.
    return kept, batch.filter(_all_but(_numbers(deleted, first, end), first, batch.num_rows))


def _numbers(rows: BitMap64, first: int, end: int) -> pa.Array:
    """Return the rows from `first` on and before `end`, in ascending order."""
    return _as_array(rows & BitMap64(range(first, end)))


def _as_array(rows: BitMap64) -> pa.Array:
    data = rows.to_array()
    return pa.Array.from_buffers(pa.uint64(), len(data), [None, pa.py_buffer(data)])


def _all_but(deleted: pa.Array, first: int, count: int) -> pa.Array:
    is_kept = bytearray(b"\x01") * count
    for row in memoryview(deleted.buffers()[1]).cast("Q"):
        is_kept[row - first] = 0
    return pa.Array.from_buffers(pa.uint8(), count, [None, pa.py_buffer(is_kept)]).cast(pa.bool_())


def _raw_batches(
    file: pq.ParquetFile, names: list[str], only: BitMap64 | None, *, has_small_batches: bool
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield batches with the number of their first row. Row groups without a row of `only` are not read."""
    batch_rows = SMALL_BATCH_ROWS if has_small_batches else BATCH_ROWS
    if not names:
        # A batch without columns has no length, so it gets a placeholder column.
        for first in range(0, file.metadata.num_rows, batch_rows):
            yield first, pa.record_batch([pa.nulls(min(batch_rows, file.metadata.num_rows - first))], names=[""])
        return
    if only is None:
        first = 0
        for batch in file.iter_batches(batch_rows, columns=names, use_threads=not has_small_batches):
            yield first, batch
            first += batch.num_rows
        return
    start = 0
    for group in range(file.metadata.num_row_groups):
        first, start = start, start + file.metadata.row_group(group).num_rows
        if not only.range_cardinality(first, start):
            continue
        for batch in file.iter_batches(batch_rows, row_groups=[group], columns=names):
            yield first, batch
            first += batch.num_rows


def _finished(
    plan: _Plan, numbers: pa.Array, batch: pa.RecordBatch, partition_values: dict[str, str | None]
) -> Iterator[tuple[pa.Array, pa.RecordBatch]]:
    wanted = zip(plan.columns, plan.schema, strict=True)
    arrays = [_array(plan, column, field.type, batch, partition_values) for column, field in wanted]
    encoded = [name for name, array in zip(plan.schema.names, arrays, strict=True) if array.type == ENCODED_TEXT]
    rows = pa.RecordBatch.from_arrays(arrays, schema=with_encoded(plan.schema, encoded))
    if plan.row_filter is not None:
        mask = plan.row_filter.mask(rows)
        numbers, rows = numbers.filter(mask), rows.filter(mask)
    if rows.num_rows:
        yield numbers, rows.select(list(range(len(plan.result)))) if len(plan.result) < len(plan.columns) else rows


def _array(
    plan: _Plan,
    column: StructField,
    wanted: pa.DataType,
    batch: pa.RecordBatch,
    partition_values: dict[str, str | None],
) -> pa.Array:
    target = type_to_arrow(column.type)
    if column.name in plan.scan.partition_columns:
        name = column.name if plan.scan.column_mapping == "none" else column.physical_name
        value = parse_partition_value(partition_values.get(name), column.type)
        return pa.repeat(pa.scalar(value, target), batch.num_rows)
    at = plan.alignment.find(column, batch.schema)
    if at is None:
        return pa.nulls(batch.num_rows, wanted)
    found = batch.column(at)
    if plan.keeps_encoded and found.type == ENCODED_TEXT:
        if types.is_string(wanted):
            return found
        found = found.dictionary_decode()
    return plan.alignment.array(found, column.type, wanted, column.name)
