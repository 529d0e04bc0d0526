"""Compaction of data files: the rows of a bin of files are written again, as one file or sorted as several.

    files of a bin ──one after the other, minus deleted rows──▶ one file            rows keep their order
                   ──sorted by Z-order──▶ files of the target size                  rows move

A compaction holds a row group in memory. A sort holds all rows of its bin up to `memory_bytes`. Beyond that it spills
them to the temporary directory, in ranges of the sort key, and sorts one range after the other.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from tempfile import TemporaryDirectory
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from deltars.data.purge import in_partition, rewriting
from deltars.data.reader import read_placed
from deltars.data.row_ids import read_rows
from deltars.data.scan import Scan
from deltars.data.write_target import WriteTarget, WrittenFile
from deltars.data.writer import write_table
from deltars.data.z_order import CURVE, SAMPLE_ROWS, ZOrder, in_order, in_z_order, sample_of
from deltars.log.compaction import CUBE_COLUMNS, CUBE_CURVE, CUBE_ID, cube_columns
from deltars.protocol.column_path import ColumnPath

THREADS = 4
SORT_MEMORY_BYTES = 1 << 30
"""Most bytes of rows that a sort holds before it spills. Sorted rows are a second copy."""

_ONE_FILE = 1 << 62
_KEY = "\0z-order"


@dataclass(frozen=True, slots=True)
class Rewrite:
    """How the rows of bins are written again."""

    target: WriteTarget
    sort_by: tuple[ColumnPath, ...] = ()
    """Columns of the Z-order; none keeps the order of the rows."""
    clustering_provider: str | None = None
    memory_bytes: int = SORT_MEMORY_BYTES


def write_bins(scan: Scan, bins: Sequence[Sequence[int]], rewrite: Rewrite) -> list[list[WrittenFile]]:
    """Write the files of each bin again, several bins at a time. A bin has places of the scan's files."""
    # A sort needs its memory for itself.
    threads = 1 if rewrite.sort_by else min(THREADS, os.cpu_count() or 1, len(bins))
    if threads < 2:
        return [write_bin(files_of(scan, places), rewrite, task=n) for n, places in enumerate(bins)]
    with ThreadPoolExecutor(threads, thread_name_prefix="deltars-compact") as pool:
        found = [pool.submit(write_bin, files_of(scan, places), rewrite, task=n) for n, places in enumerate(bins)]
        try:
            return [future.result() for future in found]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def files_of(scan: Scan, places: Sequence[int]) -> Scan:
    """Return the scan of some of its files, in this order."""
    files = scan.files.take(pa.array(places, pa.int64())).combine_chunks()
    return replace(scan, source=files, identity=None, condition=None)


def write_bin(scan: Scan, rewrite: Rewrite, *, task: int = 0) -> list[WrittenFile]:
    """Write the rows of the scan's files, which are all of one partition, to new files of the table."""
    scan, target = rewriting(scan, rewrite.target)
    if not rewrite.sort_by:
        rows = (placed.rows for placed in read_rows(scan))
        # One file, even if it becomes larger than its parts: so a run makes fewer files for certain.
        return in_partition(scan, write_table(target.with_options(target_file_size=_ONE_FILE), rows, task=task))
    with TemporaryDirectory(prefix="deltars-sort-") as spill:
        written = write_table(target, _sorted(scan, rewrite, spill), task=task)
    tags = {
        CUBE_ID: str(uuid4()),
        CUBE_COLUMNS: cube_columns([".".join(path) for path in rewrite.sort_by]),
        CUBE_CURVE: CURVE,
    }
    provider = rewrite.clustering_provider
    return [
        replace(file, add=msgspec.structs.replace(file.add, tags=tags, clustering_provider=provider))
        for file in in_partition(scan, written)
    ]


def _sorted(scan: Scan, rewrite: Rewrite, spill: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows in Z-order. Rows with equal keys keep their order."""
    held: list[pa.RecordBatch] = []
    size = 0
    for placed in read_rows(scan):
        held.append(placed.rows)
        size += placed.rows.nbytes
        if size > rewrite.memory_bytes:
            row_bytes = size / sum(batch.num_rows for batch in held)
            held.clear()
            yield from _sorted_by_ranges(scan, rewrite, spill, row_bytes)
            return
    if held:
        rows = pa.Table.from_batches(held)
        held.clear()
        yield from in_z_order(rows, rewrite.sort_by)


def _sorted_by_ranges(scan: Scan, rewrite: Rewrite, spill: str, row_bytes: float) -> Iterator[pa.RecordBatch]:
    """Yield the rows in Z-order, from ranges of the key that are spilled first."""
    sample, num_rows = _sample(scan, rewrite.sort_by)
    order = ZOrder.of_sample(sample, rewrite.sort_by)
    keys = order.keys(sample).combine_chunks()
    keys = keys.take(pc.sort_indices(keys))
    # Half of what fits, because a sample divides the rows only roughly.
    count = max(2, int(2 * num_rows * row_bytes) // rewrite.memory_bytes + 1)
    cuts = sorted({keys[number * len(keys) // count].as_py() for number in range(1, count)})
    ranges = _Ranges(spill, cuts)
    try:
        for placed in read_rows(scan):
            ranges.add(placed.rows, order.keys(placed.rows))
        for rows in ranges.read():
            yield from in_order(rows.drop_columns([_KEY]), rows[_KEY])
    finally:
        ranges.close()


def _sample(scan: Scan, columns: Sequence[ColumnPath]) -> tuple[pa.Table, int]:
    """Return a sample of the columns, from all files, and the number of all rows."""
    every = sum(count or 0 for count in scan.files["num_records"].to_pylist()) // SAMPLE_ROWS
    parts, num_rows = [], 0
    for placed in read_placed(scan, columns=list(dict.fromkeys(path[0] for path in columns))):
        parts.append(sample_of(placed.rows, columns, every))
        num_rows += placed.rows.num_rows
    return pa.concat_tables(parts), num_rows


class _Ranges:
    """Rows in files of a directory, by ranges of their key."""

    def __init__(self, directory: str, cuts: Sequence[int]) -> None:
        self._directory = directory
        self._cuts = cuts
        self._writers: dict[int, pa.ipc.RecordBatchFileWriter] = {}

    def add(self, rows: pa.RecordBatch, keys: pa.ChunkedArray) -> None:
        keyed = rows.append_column(_KEY, keys.combine_chunks())
        number = pa.repeat(pa.scalar(0, pa.int64()), rows.num_rows)
        for cut in self._cuts:
            number = pc.add(number, pc.greater_equal(keyed.column(_KEY), cut).cast(pa.int64()))
        order = pc.sort_indices(number)
        keyed, number = keyed.take(order), number.take(order)
        starts = [0, *(pc.sum(pc.less(number, place)).as_py() for place in range(1, len(self._cuts) + 1)), len(number)]
        for place, (start, end) in enumerate(pairwise(starts)):
            if end > start:
                self._writer(place, keyed.schema).write_batch(keyed.slice(start, end - start))

    def read(self) -> Iterator[pa.Table]:
        """Yield the rows of each range, the lowest first."""
        places = sorted(self._writers)
        self.close()
        for place in places:
            with pa.ipc.open_file(self._path(place)) as file:
                yield file.read_all().combine_chunks()
            os.remove(self._path(place))

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    def _writer(self, place: int, schema: pa.Schema) -> pa.ipc.RecordBatchFileWriter:
        if place not in self._writers:
            self._writers[place] = pa.ipc.new_file(self._path(place), schema)
        return self._writers[place]

    def _path(self, place: int) -> str:
        return os.path.join(self._directory, f"{place}.arrow")
