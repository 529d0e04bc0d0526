"""Writer of one Parquet file, row group by row group."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq

from deltars.data.dictionaries import unique_columns, with_one_dictionary
from deltars.data.footers import row_group
from deltars.data.parquet_leaves import names_without_floats
from deltars.data.statistics import ColumnStats, Statistics
from deltars.data.write_target import WrittenFile
from deltars.protocol import AddFile
from deltars.storage import Writer
from deltars.storage.arrow_stream import arrow_stream

ROW_GROUP_ROWS = 1024 * 1024
PAGE_ROWS, PAGE_BYTES = 20_000, 1024 * 1024
"""Where Arrow ends a page. It looks only after each step of rows, and computes bounds in each."""
LEAST_STEP_ROWS = 1024
PARALLEL_ROWS = 128 * 1024
"""From this number of rows on, statistics are collected while the rows are encoded."""


class DataFileWriter:
    """A data file that is being written."""

    def __init__(
        self,
        sink: Writer,
        path: str,
        partition_values: Mapping[str, str | None],
        schema: pa.Schema,
        compression: str,
        statistics: Statistics,
    ) -> None:
        """`path` has the log's form (percent-encoded)."""
        self._sink = sink
        self._path = path
        self._partition_values = dict(partition_values)
        self._schema = schema
        self._statistics = statistics
        self._buffer: list[pa.RecordBatch] = []
        self._row_group_stats: list[list[ColumnStats]] = []
        self._footer: list[pq.FileMetaData] = []
        self._buffered = arrow_stream(sink)
        self._compression = compression
        self._parquet: pq.ParquetWriter | None = None
        self.num_rows = 0
        self.buffered_rows = 0
        self.buffered_bytes = 0

    @property
    def size(self) -> int:
        """Number of bytes written so far."""
        return int(self._buffered.tell())

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
        rows = with_one_dictionary(pa.Table.from_batches(self._buffer, self._schema))
        self._buffer.clear()
        self._parquet = self._parquet or self._open(rows)
        if rows.num_rows < PARALLEL_ROWS:
            self._parquet.write_table(rows, row_group_size=rows.num_rows)
            self._row_group_stats.append(self._statistics.collect(rows))
        else:
            with ThreadPoolExecutor(1, thread_name_prefix="deltars-statistics") as pool:
                statistics = pool.submit(self._statistics.collect, rows)
                self._parquet.write_table(rows, row_group_size=rows.num_rows)
            self._row_group_stats.append(statistics.result())
        self.buffered_rows = self.buffered_bytes = 0

    def close(self) -> WrittenFile:
        """Finish the file, and return its add action and row groups."""
        self.flush()
        assert self._parquet is not None, "a file without rows"
        self._parquet.close()
        self._buffered.flush()
        self._sink.close()
        (footer,) = self._footer
        add = AddFile(
            path=self._path,
            partition_values=self._partition_values,
            size=self._sink.tell(),
            modification_time=time.time_ns() // 1_000_000,
            data_change=True,
            stats=self._statistics.encode(self._statistics.merge(self._row_group_stats), footer.num_rows),
        )
        row_groups = tuple(
            row_group(self._path, ordinal, footer.row_group(ordinal), self._statistics.encode(stats))
            for ordinal, stats in enumerate(self._row_group_stats)
        )
        return WrittenFile(add, row_groups)

    def discard(self) -> None:
        """Abort, and leave no file."""
        # The Parquet writer is closed first: left open, it would try to write when it is garbage-collected.
        with suppress(Exception):
            if self._parquet is not None:
                self._parquet.close()
            self._buffered.flush()
        self._sink.discard()

    def _open(self, rows: pa.Table) -> pq.ParquetWriter:
        """Return a writer with settings that suit the first row group."""
        plain = names_without_floats(self._schema)
        unique = unique_columns(rows, plain)
        return pq.ParquetWriter(
            self._buffered,
            self._schema,
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


def _step_rows(rows: pa.Table) -> int:
    """Return how many rows the Parquet writer encodes at a time: a page's, so that no page becomes too large."""
    row_bytes: int = max(1, rows.nbytes // rows.num_rows)
    return max(LEAST_STEP_ROWS, min(PAGE_ROWS, PAGE_BYTES // row_bytes))
