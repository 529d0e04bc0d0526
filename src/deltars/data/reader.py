"""Rows of a scan as Arrow batches, file after file, in bounded memory.

Scan ──for each file──> Parquet batches ──minus deleted rows──> aligned with the current schema
                                         + partition columns, from the log ──where──> the requested columns
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from deltars.data.deletion_vectors import read_vector
from deltars.data.read_schema import Alignment, arrow_schema
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
    result: pa.Schema
    row_filter: RowFilter | None
    alignment: Alignment


def read_scan(
    scan: Scan, *, columns: Sequence[str] | None = None, row_filter: RowFilter | None = None
) -> pa.RecordBatchReader:
    """Return a stream of the rows that the filter keeps. Files are read as the stream is consumed."""
    wanted = scan.select(columns)
    needed = row_filter.columns - {column.name for column in wanted} if row_filter is not None else ()
    extra = [column for column in scan.schema.fields if column.name in needed]
    plan = _Plan(
        scan=scan,
        storage=open_storage(scan.root, scan.storage_options),
        columns=(*wanted, *extra),
        result=arrow_schema(StructType(tuple(wanted))),
        row_filter=row_filter,
        alignment=Alignment(scan.column_mapping),
    )
    return pa.RecordBatchReader.from_batches(plan.result, _batches(plan))


def _batches(plan: _Plan) -> Iterator[pa.RecordBatch]:
    files = plan.scan.files
    columns = [files.column(name).to_pylist() for name in ("path", "partition_values", "deletion_vector")]
    for path, values, vector in zip(*columns, strict=True):
        try:
            yield from _file_batches(plan, path, values, vector)
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


def _file_batches(plan: _Plan, path: str, values: str | None, vector: str | None) -> Iterator[pa.RecordBatch]:
    partition_values = decode_partition_values(values) if values else {}
    in_file = [column for column in plan.columns if column.name not in plan.scan.partition_columns]
    with (
        open_file(plan.storage, path) as source,
        pq.ParquetFile(source, coerce_int96_timestamp_unit="us", pre_buffer=True) as file,
    ):
        deleted = _deleted_rows(plan, file, vector)
        found = (plan.alignment.find(column, file.schema_arrow) for column in in_file)
        names = [file.schema_arrow.field(at).name for at in found if at is not None]
        first = 0
        for batch in _raw_batches(file, names):
            start, end = bisect_left(deleted, first), bisect_left(deleted, first + batch.num_rows)
            kept = batch if start == end else batch.filter(_all_but(deleted[start:end], first, batch.num_rows))
            first += batch.num_rows
            if kept.num_rows:
                yield from _finished(plan, kept, partition_values)


def _deleted_rows(plan: _Plan, file: pq.ParquetFile, vector: str | None) -> Sequence[int]:
    """Return the numbers of the deleted rows, in ascending order."""
    if vector is None:
        return ()
    rows = read_vector(plan.storage, decode_deletion_vector(vector))
    if rows and rows.max() >= file.metadata.num_rows:
        raise ValidationError(
            f"its deletion vector deletes row {rows.max()}, but the file has {file.metadata.num_rows} rows",
            field="deletionVector",
        )
    deleted: Sequence[int] = rows.to_array()
    return deleted


def _all_but(deleted: Sequence[int], first: int, count: int) -> pa.Array:
    is_kept = bytearray(b"\x01") * count
    for row in deleted:
        is_kept[row - first] = 0
    return pa.Array.from_buffers(pa.uint8(), count, [None, pa.py_buffer(is_kept)]).cast(pa.bool_())


def _raw_batches(file: pq.ParquetFile, names: list[str]) -> Iterator[pa.RecordBatch]:
    if names:
        yield from file.iter_batches(BATCH_ROWS, columns=names)
        return
    left = file.metadata.num_rows
    while left > 0:
        count = min(left, BATCH_ROWS)
        # A batch without columns has no length, so it gets a placeholder column.
        yield pa.record_batch([pa.nulls(count)], names=[""])
        left -= count


def _finished(plan: _Plan, batch: pa.RecordBatch, partition_values: dict[str, str | None]) -> Iterator[pa.RecordBatch]:
    arrays = [_array(plan, column, batch, partition_values) for column in plan.columns]
    rows = pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(StructType(plan.columns)))
    if plan.row_filter is not None:
        rows = rows.filter(plan.row_filter.mask(rows))
    if rows.num_rows:
        yield rows.select(list(range(len(plan.result)))) if len(plan.result) < len(plan.columns) else rows


def _array(
    plan: _Plan, column: StructField, batch: pa.RecordBatch, partition_values: dict[str, str | None]
) -> pa.Array:
    target = type_to_arrow(column.type)
    if column.name in plan.scan.partition_columns:
        name = column.name if plan.scan.column_mapping == "none" else column.physical_name
        value = parse_partition_value(partition_values.get(name), column.type)
        return pa.repeat(pa.scalar(value, target), batch.num_rows)
    at = plan.alignment.find(column, batch.schema)
    wanted = arrow_schema(StructType((column,))).field(0).type
    if at is None:
        return pa.nulls(batch.num_rows, wanted)
    return plan.alignment.array(batch.column(at), column.type, wanted, column.name)
