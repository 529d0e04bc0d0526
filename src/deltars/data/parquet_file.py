"""Writer of one Parquet file, row group by row group."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from deltars.data.dictionaries import unique_columns, with_own_dictionaries
from deltars.data.file_layout import FileLayout
from deltars.data.footers import row_group
from deltars.data.statistics import ColumnStats
from deltars.data.write_target import WrittenFile
from deltars.protocol import AddFile, path_to_uri
from deltars.storage import Storage, Writer
from deltars.storage.arrow_stream import arrow_stream

ROW_GROUP_ROWS = 1024 * 1024
PAGE_ROWS, PAGE_BYTES = 20_000, 1024 * 1024
"""Rows and bytes at which Arrow ends a page. It checks them after each step of rows, and computes bounds at each."""
LEAST_STEP_ROWS = 1024
"""Rows of a step where rows are large."""
PARALLEL_ROWS = 128 * 1024
"""From this number of rows on, statistics are collected while the rows are encoded."""
SMALL_BYTES = 1024 * 1024
"""Rows up to this size in memory are encoded there, and put as a whole file."""


class _Stream(NamedTuple):
    """File that is written while rows still come."""

    sink: Writer
    buffered: pa.BufferedOutputStream
    parquet: pq.ParquetWriter


class DataFileWriter:
    """A data file that is being written.

    rows ──append──> buffer ──flush──> row group, streamed into the storage
                            └─close before any flush──> a small file, put as a whole
    """

    def __init__(
        self,
        storage: Storage,
        path: str,
        partition_values: Mapping[str, str | None],
        layout: FileLayout,
        compression: str,
    ) -> None:
        self._storage = storage
        self._path = path
        self._partition_values = dict(partition_values)
        self._layout = layout
        self._compression = compression
        self._buffer: list[pa.RecordBatch] = []
        self._row_group_stats: list[list[ColumnStats]] = []
        self._footer: list[pq.FileMetaData] = []
        self._stream: _Stream | None = None
        self.num_rows = 0
        self.buffered_rows = 0
        self.buffered_bytes = 0

    @property
    def size(self) -> int:
        """Number of bytes written so far."""
        return 0 if self._stream is None else int(self._stream.buffered.tell())

    def append(self, rows: pa.RecordBatch) -> None:
        if self.buffered_rows + rows.num_rows > ROW_GROUP_ROWS:
            self.flush()
        self._buffer.append(rows)
        self.num_rows += rows.num_rows
        self.buffered_rows += rows.num_rows
        self.buffered_bytes += rows.nbytes

    def flush(self) -> None:
        """Write the buffered rows as one row group."""
        if not self._buffer:
            return
        rows = self._take_buffer()
        if self._stream is None:
            sink = self._storage.open_writer(self._path)
            buffered = arrow_stream(sink)
            self._stream = _Stream(sink, buffered, self._open_parquet(buffered, rows))
        self._write_row_group(self._stream.parquet, rows)

    def close(self) -> WrittenFile:
        """Finish the file, and return its add action and row groups."""
        is_small = self._stream is None and self.buffered_bytes <= SMALL_BYTES
        size = self._put() if is_small else self._finish()
        (footer,) = self._footer
        path = path_to_uri(self._path)
        of_file, of_groups = self._layout.statistics.encode_file(self._row_group_stats, footer.num_rows)
        add = AddFile(
            path=path,
            partition_values=self._partition_values,
            size=size,
            modification_time=time.time_ns() // 1_000_000,
            data_change=True,
            stats=of_file,
        )
        row_groups = tuple(
            row_group(path, ordinal, footer.row_group(ordinal), stats) for ordinal, stats in enumerate(of_groups)
        )
        return WrittenFile(add, row_groups)

    def discard(self) -> None:
        """Abort, and leave no file."""
        if self._stream is None:
            return
        # The Parquet writer is closed first: left open, it would try to write when it is garbage-collected.
        with suppress(Exception):
            self._stream.parquet.close()
            self._stream.buffered.flush()
        self._stream.sink.discard()

    def _put(self) -> int:
        rows, buffer = self._take_buffer(), pa.BufferOutputStream()
        with self._open_parquet(buffer, rows) as parquet:
            self._write_row_group(parquet, rows)
        data = buffer.getvalue()
        self._storage.put(self._path, data.to_pybytes())
        return int(data.size)

    def _finish(self) -> int:
        self.flush()
        assert self._stream is not None
        self._stream.parquet.close()
        self._stream.buffered.flush()
        self._stream.sink.close()
        return self._stream.sink.tell()

    def _take_buffer(self) -> pa.Table:
        rows = with_own_dictionaries(pa.Table.from_batches(self._buffer, self._layout.file_schema))
        self._buffer.clear()
        self.buffered_rows = self.buffered_bytes = 0
        return rows

    def _open_parquet(self, sink: Any, rows: pa.Table) -> pq.ParquetWriter:
        """Return a writer with settings that suit the rows of the first row group."""
        plain = self._layout.columns_without_floats
        unique = unique_columns(rows, plain)
        return pq.ParquetWriter(
            sink,
            self._layout.file_schema,
            compression=self._compression,
            write_page_index=True,
            write_statistics=plain,
            use_dictionary=[name for name in plain if name not in unique],
            write_batch_size=_step_rows(rows),
            store_decimal_as_integer=True,
            # The log has the table's schema. A copy of Arrow's schema in every footer could contradict it.
            store_schema=False,
            metadata_collector=self._footer,
        )

    def _write_row_group(self, parquet: pq.ParquetWriter, rows: pa.Table) -> None:
        collect = self._layout.statistics.collect
        if rows.num_rows < PARALLEL_ROWS:
            parquet.write_table(rows, row_group_size=rows.num_rows)
            self._row_group_stats.append(collect(rows))
        else:
            with ThreadPoolExecutor(1, thread_name_prefix="deltars-statistics") as pool:
                statistics = pool.submit(collect, rows)
                parquet.write_table(rows, row_group_size=rows.num_rows)
            self._row_group_stats.append(statistics.result())


def _step_rows(rows: pa.Table) -> int:
    """Return how many rows the Parquet writer encodes at a time: those of one page, so that no page is too large."""
    row_bytes: int = max(1, rows.nbytes // rows.num_rows)
    return max(LEAST_STEP_ROWS, min(PAGE_ROWS, PAGE_BYTES // row_bytes))
