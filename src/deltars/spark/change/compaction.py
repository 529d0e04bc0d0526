"""Compaction in Spark's tasks: each task writes the files of some bins again by Arrow.

    bins ──dealt out by size──> one or two tasks per core ──> mapInArrow(compact_batches) ──> new files of each bin

No row passes through Java.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from deltars.data.compaction import Rewrite, files_of, write_bin
from deltars.data.scan import Scan
from deltars.data.write_target import WrittenFile
from deltars.data.writer import check_writable
from deltars.errors import located
from deltars.spark.change.purge import TASKS_PER_CORE, deal_out, num_cores
from deltars.spark.progress import shown
from deltars.spark.read.arrow import ScanFields, rebuild_scan, scan_fields
from deltars.spark.session import running_session
from deltars.spark.write.arrow import decode_file, refuse_unseen_files
from deltars.spark.write.checks import translate_task_errors

TASK_MEMORY_BYTES = 256 << 20
"""Rows that a sort holds in a task before it spills: an executor runs several tasks in little memory."""

_FILES = "bin bigint, file binary"


class SparkCompaction:
    """Writes bins of files again as Spark jobs."""

    def __init__(self, session: SparkSession | None = None) -> None:
        self._spark = running_session(session)

    @property
    def num_cores(self) -> int:
        return num_cores(self._spark)

    def write_bins(self, scan: Scan, bins: Sequence[Sequence[int]], rewrite: Rewrite) -> list[list[WrittenFile]]:
        """Write the files of each bin again. A bin has places of the scan's files."""
        with located(table=scan.table, version=scan.version), shown(self._spark, f"compaction of {scan.table}"):
            return _by_tasks(self._spark, scan, bins, rewrite)


def _by_tasks(
    spark: SparkSession, scan: Scan, bins: Sequence[Sequence[int]], rewrite: Rewrite
) -> list[list[WrittenFile]]:
    check_writable(rewrite.target)
    sizes = scan.files["size"].to_pylist()
    totals = {number: sum(sizes[place] for place in places) for number, places in enumerate(bins)}
    shares = deal_out(totals, TASKS_PER_CORE * num_cores(spark))
    listed = [
        (share, number, place) for share, numbers in enumerate(shares) for number in numbers for place in bins[number]
    ]
    files = scan.files.take(pa.array([place for _, _, place in listed], pa.int64()))
    files = files.append_column("bin", pa.array([number for _, number, _ in listed], pa.int64()))
    files = files.append_column("at", pa.array(range(len(listed)), pa.int64()))
    files = files.append_column("share", pa.array([share for share, _, _ in listed], pa.int32()))
    task = partial(compact_batches, scan_fields(scan), replace(rewrite, memory_bytes=TASK_MEMORY_BYTES))
    # A partition for each share: a hash would put several shares into one.
    shared = spark.createDataFrame(files).repartitionById(len(shares), "share")
    with translate_task_errors([]):
        answers = shared.mapInArrow(task, _FILES).collect()
    written: list[list[WrittenFile]] = [[] for _ in bins]
    for answer in answers:
        written[answer.bin].append(decode_file(answer.file))
    refuse_unseen_files([file for files in written for file in files], rewrite.target)
    return written


def compact_batches(
    fields: ScanFields, rewrite: Rewrite, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Compact the bins of one task. Runs on an executor."""
    # A shuffle keeps neither the order of the files nor a bin in one batch.
    parts = list(batches)
    if not parts:
        return
    files = pa.Table.from_batches(parts).sort_by("at")
    scan = rebuild_scan(fields, files)
    places: dict[int, list[int]] = {}
    for place, number in enumerate(files["bin"].to_pylist()):
        places.setdefault(number, []).append(place)
    for number, bin_places in places.items():
        written = write_bin(files_of(scan, bin_places), rewrite, task=number)
        found = pa.array([msgspec.msgpack.encode(file) for file in written], pa.binary())
        yield pa.record_batch({"bin": pa.array([number] * len(written), pa.int64()), "file": found})
