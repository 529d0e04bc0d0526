"""Purge of files in Spark's tasks: each is written again by Arrow, without some of its rows.

    few or small files ──> this process
    else ──dealt out by size──> one or two tasks per core ──> mapInArrow(purge_batches) ──> new files of each file

A task costs more than a small file, so there are no more tasks than the cores need. No row passes through Java.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import msgspec
import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import DataFrame, SparkSession

from deltars.data.purge import one_file, purge_file, purge_files
from deltars.data.row_change import Positions
from deltars.data.row_ids import FILE_COLUMNS, without_ids
from deltars.data.scan import SCAN_COLUMNS, Scan
from deltars.data.write_target import WriteTarget, WrittenFile
from deltars.data.writer import check_writable
from deltars.spark.read.arrow import ScanFields, rebuild_scan, scan_fields
from deltars.spark.write.arrow import decode_file, refuse_unseen_files
from deltars.spark.write.checks import translate_task_errors
from deltars.spark.write.file_limit import file_counter, limit_files

HERE_BYTES = 32 * 1024 * 1024
"""Size of files that this process purges itself, because starting tasks would take longer."""

TASKS_PER_CORE = 2
DEFAULT_CORES = 8
"""Number of cores that is assumed where the session does not say it."""

_FILES = "place bigint, file binary"


def purge_by_spark(
    spark: SparkSession, scan: Scan, positions: Positions, target: WriteTarget
) -> Mapping[int, Sequence[WrittenFile]]:
    sizes = scan.files["size"].to_pylist()
    if sum(sizes[place] for place in positions) <= HERE_BYTES:
        return purge_files(scan, positions, target)
    check_writable(target)
    shares = deal_out({place: sizes[place] for place in positions}, TASKS_PER_CORE * num_cores(spark))
    listed = [(number, place) for number, share in enumerate(shares) for place in share]
    places = pa.array([place for _, place in listed], pa.int64())
    # Tasks add the hidden columns themselves, if the files have what these need.
    scan = without_ids(scan)
    known = [name for name in FILE_COLUMNS if name in scan.files.column_names]
    files = scan.files.select([*SCAN_COLUMNS, *known]).take(places)
    files = files.append_column("place", places)
    files = files.append_column("rows", pa.array([positions[place].serialize() for _, place in listed], pa.binary()))
    files = files.append_column("share", pa.array([number for number, _ in listed], pa.int32()))
    made = file_counter(spark, target.max_files)
    task = partial(purge_batches, scan_fields(scan), target, made)
    # A partition for each share: a hash would put several shares into one.
    shared = spark.createDataFrame(files).repartitionById(len(shares), "share")
    with limit_files(spark, target.max_files, lambda: made.value), translate_task_errors([]):
        answers = shared.mapInArrow(task, _FILES).collect()
    found: dict[int, list[WrittenFile]] = {place: [] for place in positions}
    for answer in answers:
        found[answer.place].append(decode_file(answer.file))
    refuse_unseen_files([file for files in found.values() for file in files], target)
    return found


def shared_files(spark: SparkSession, scan: Scan, places: Sequence[int], more: Mapping[str, pa.Array]) -> DataFrame:
    """Return these files of a scan as rows, with their places and more columns: one partition for each task."""
    sizes = scan.files["size"].to_pylist()
    shares = deal_out({at: sizes[place] for at, place in enumerate(places)}, TASKS_PER_CORE * num_cores(spark))
    listed = pa.array([at for share in shares for at in share], pa.int64())
    numbers = pa.array([number for number, share in enumerate(shares) for _ in share], pa.int32())
    files = scan.files.select(SCAN_COLUMNS).take(pa.array(places, pa.int64()))
    files = files.append_column("place", pa.array(places, pa.int64()))
    for name, values in more.items():
        files = files.append_column(name, values)
    # A partition for each share: a hash would put several shares into one.
    dealt = files.take(listed).append_column("share", numbers)
    return spark.createDataFrame(dealt).repartitionById(len(shares), "share")


def deal_out(sizes: Mapping[int, int], count: int) -> list[list[int]]:
    """Return at most `count` shares of about the same size, the largest file first."""
    shares: list[list[int]] = [[] for _ in range(min(count, len(sizes)))]
    totals = [0] * len(shares)
    for place in sorted(sizes, key=lambda place: -sizes[place]):
        smallest = totals.index(min(totals))
        shares[smallest].append(place)
        totals[smallest] += sizes[place]
    return shares


def purge_batches(
    fields: ScanFields, target: WriteTarget, made: object, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Purge the files of one task. Runs on an executor. `made` is an accumulator for the number of files, or None."""
    for batch in batches:
        scan = rebuild_scan(fields, pa.Table.from_batches([batch]))
        places, positions = (scan.files[name].to_pylist() for name in ("place", "rows"))
        for at, (place, rows) in enumerate(zip(places, positions, strict=True)):
            written = purge_file(one_file(scan, at), BitMap64.deserialize(rows), target, task=place)
            if made is not None:
                made.add(len(written))  # type: ignore[attr-defined]
            files = pa.array([msgspec.msgpack.encode(file) for file in written], pa.binary())
            yield pa.record_batch({"place": pa.array([place] * len(written), pa.int64()), "file": files})


def num_cores(spark: SparkSession) -> int:
    if hasattr(spark, "_jsparkSession"):
        return int(spark.sparkContext.defaultParallelism)
    return int(str(spark.conf.get("spark.default.parallelism", str(DEFAULT_CORES))))
