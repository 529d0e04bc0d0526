"""Writer of Arrow batches as Parquet files in Delta's layout.

    batch ──fit──> the table's columns ──clustered tables: sorted by Z-order, run by run
                                                │
                                       split by partition values──> one open file per partition
                                                │
      col=value/part-00000-<uuid>.c000.zstd.parquet     row group by row group, up to the target size
                                                │
                                          WrittenFile: the add action, with statistics, and the row groups

Every file name is unique, so a task that is retried or runs twice at once never overwrites the files of its other
attempt. An unfinished file never appears. A failed write leaves its finished files as orphans, which no version refers
to; a full vacuum deletes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TypeAlias
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from deltars.data.dictionaries import encoded_names
from deltars.data.file_layout import FileLayout, layout_of
from deltars.data.parquet_file import ROW_GROUP_ROWS, DataFileWriter
from deltars.data.write_schema import fit
from deltars.data.write_target import WriteTarget, WrittenFile
from deltars.data.z_order import sorted_runs
from deltars.errors import TransactionTooLarge, ValidationError
from deltars.protocol import StructField, partition_directory, serialize_partition_value
from deltars.protocol.change_feed import CHANGE_DATA
from deltars.storage import open_storage

ROW_GROUP_BYTES = 64 * 1024 * 1024
BATCH_BYTES = 8 * 1024 * 1024
BUFFER_BYTES = 128 * 1024 * 1024
MAX_OPEN_FILES = 64
MAX_NAME_BYTES = 255

PartitionValues: TypeAlias = tuple[str | None, ...]


def write_table(target: WriteTarget, batches: Iterable[pa.RecordBatch], *, task: int = 0) -> list[WrittenFile]:
    """Write the batches as data files of the table. `task` becomes part of their names."""
    return _written(target, layout_of(target), batches, task)


def write_encoded(target: WriteTarget, batches: Iterable[pa.RecordBatch], *, task: int = 0) -> list[WrittenFile]:
    """Write batches of the same schema as `write_table` does. Text that is dictionary-encoded in them stays so."""
    rest = iter(batches)
    first = next(rest, None)
    if first is None:
        return []
    # A rewrite has a schema of its own for each file, so its layout is not worth keeping.
    layout = FileLayout(target).with_encoded_text(encoded_names(first.schema))
    return _written(target, layout, chain([first], rest), task)


def _written(
    target: WriteTarget, layout: FileLayout, batches: Iterable[pa.RecordBatch], task: int
) -> list[WrittenFile]:
    writer = _TableWriter(target, layout, task)
    try:
        fitted = (fit(batch, layout.table_schema) for batch in batches)
        for batch in sorted_runs(fitted, target.cluster_by) if target.cluster_by else fitted:
            writer.write(batch)
        return writer.close()
    except BaseException:
        writer.discard()
        raise


def check_writable(target: WriteTarget) -> None:
    """Raise ValidationError if the table has a feature, column type or partitioning that cannot be written."""
    # To make the layout is the check.
    layout_of(target)


class _TableWriter:
    def __init__(self, target: WriteTarget, layout: FileLayout, task: int) -> None:
        self._target = target
        self._layout = layout
        self._task = task
        self._row_group_bytes = min(ROW_GROUP_BYTES, target.target_file_size)
        self._storage = open_storage(target.root, target.storage_options)
        self._open: dict[PartitionValues, DataFileWriter] = {}
        self._written: list[WrittenFile] = []
        self._seen: set[PartitionValues] = set()
        self._count = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows with the table's columns."""
        for piece in _pieces(batch, min(BATCH_BYTES, self._row_group_bytes)):
            parts = list(self._split(piece))
            self._refuse_too_many(sum(values not in self._seen for values, _ in parts))
            for values, rows in parts:
                self._append(values, rows)

    def close(self) -> list[WrittenFile]:
        for values in list(self._open):
            self._finish(values)
        return self._written

    def discard(self) -> None:
        for file in self._open.values():
            file.discard()
        self._open.clear()

    def _append(self, values: PartitionValues, rows: pa.RecordBatch) -> None:
        most = self._target.max_records_per_file
        while most is not None and self._num_rows(values) + rows.num_rows > most:
            room = most - self._num_rows(values)
            self._append_to_file(values, rows.slice(0, room))
            self._finish(values)
            rows = rows.slice(room)
        if rows.num_rows:
            self._append_to_file(values, rows)

    def _num_rows(self, values: PartitionValues) -> int:
        return self._open[values].num_rows if values in self._open else 0

    def _append_to_file(self, values: PartitionValues, rows: pa.RecordBatch) -> None:
        file = self._open.pop(values, None) or self._new_file(values)
        self._open[values] = file
        file.append(rows)
        if file.buffered_bytes >= self._row_group_bytes:
            file.flush()
        while sum(file.buffered_bytes for file in self._open.values()) > BUFFER_BYTES:
            max(self._open.values(), key=lambda file: file.buffered_bytes).flush()
        if file.size >= self._target.target_file_size:
            self._finish(values)
        while len(self._open) > MAX_OPEN_FILES:
            self._finish(next(iter(self._open)))

    def _finish(self, values: PartitionValues) -> None:
        if values not in self._open:
            return
        self._written.append(self._open[values].close())
        del self._open[values]

    def _refuse_too_many(self, more: int) -> None:
        """Raise before a file beyond the limit is created."""
        most, asked = self._target.max_files, self._count + more
        if most is not None and asked > most:
            raise too_many_files(asked, most)

    def _new_file(self, values: PartitionValues) -> DataFileWriter:
        target = self._target
        self._refuse_too_many(1)
        self._seen.add(values)
        columns = self._layout.value_names
        partition_values = dict(zip(columns, values, strict=True))
        codec = "" if target.compression == "none" else f".{target.compression}"
        kind, place = ("cdc", CHANGE_DATA) if target.is_change_data else ("part", "")
        name = f"{kind}-{self._task:05d}-{uuid4()}.c{self._count:03d}{codec}.parquet"
        self._count += 1
        path = "/".join(filter(None, (place, _directory(columns, partition_values), name)))
        return DataFileWriter(self._storage, path, partition_values, self._layout, target.compression)

    def _split(self, batch: pa.RecordBatch) -> Iterator[tuple[PartitionValues, pa.RecordBatch]]:
        """Yield the rows of each partition, without the partition columns."""
        partition_columns = self._target.partition_columns
        rows = self._named_as_in_files(batch.select(self._layout.data_columns))
        if not partition_columns:
            yield (), rows
            return
        keys = {str(index): batch.column(name) for index, name in enumerate(partition_columns)}
        row_numbers = pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int32()), batch.num_rows), start=-1)
        groups = (
            pa.table({**keys, "row": row_numbers}).group_by(list(keys), use_threads=False).aggregate([("row", "list")])
        )
        for index in range(groups.num_rows):
            values = tuple(
                _partition_value(groups.column(key)[index], self._target.schema[name])
                for key, name in zip(keys, partition_columns, strict=True)
            )
            yield values, rows if groups.num_rows == 1 else rows.take(groups.column("row_list")[index].values)

    def _named_as_in_files(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if not self._layout.is_mapped:
            return rows
        # A view shares the buffers: only the names differ, inside structs too.
        schema = self._layout.file_schema
        arrays = [
            array if array.type == field.type else array.view(field.type)
            for array, field in zip(rows.columns, schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def too_many_files(asked: int, most: int) -> TransactionTooLarge:
    """Return the error for a write of more files than `WriteTarget.max_files`. Callers may add details."""
    return TransactionTooLarge(
        f"the write needs at least {asked} files, but at most {most} more are allowed", limit=most, asked=asked
    )


def _pieces(batch: pa.RecordBatch, size_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield slices of about `size_bytes`, so that a buffer of slices ends close to its limit."""
    if not batch.num_rows:
        return
    row_bytes = max(1, batch.nbytes // batch.num_rows)
    step = max(1, min(ROW_GROUP_ROWS, size_bytes // row_bytes))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def _partition_value(value: pa.Scalar, column: StructField) -> str | None:
    try:
        return serialize_partition_value(value.as_py(), column.type)
    except (OverflowError, ValueError) as error:
        raise ValidationError(
            f"column {column.name}: {value} cannot be a partition value: {error}", field=column.name
        ) from error


def _directory(columns: Sequence[str], values: Mapping[str, str | None]) -> str:
    """Return `col=value`, or the table's root if a value is too long for a file name. The log has the value anyway."""
    directory = partition_directory(columns, values)
    is_name = all(len(name.encode()) <= MAX_NAME_BYTES for name in directory.split("/"))
    return directory if is_name else ""
