"""Files of a change data feed, written in Spark's tasks: each task copies the rows of some data files.

few or small files ──> this process
else ──dealt out by size──> mapInArrow(write_batches) ──> a few files of the feed for each task
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import msgspec
import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import SparkSession

from deltars.data.feed_files import write_feed_rows
from deltars.data.row_change import FeedRows
from deltars.data.scan import Scan
from deltars.data.write_target import WriteTarget, WrittenFile
from deltars.data.writer import check_writable
from deltars.spark.change.purge import HERE_BYTES, shared_files
from deltars.spark.read.arrow import ScanFields, rebuild_scan, scan_fields
from deltars.spark.write.arrow import decode_file, refuse_unseen_files
from deltars.spark.write.checks import translate_task_errors


def write_feed_by_spark(
    spark: SparkSession, scan: Scan, rows: Sequence[FeedRows], target: WriteTarget
) -> list[WrittenFile]:
    if sum(scan.files["size"].to_pylist()) <= HERE_BYTES:
        return write_feed_rows(scan, rows, target)
    check_writable(target)
    more = {
        "rows": pa.array([None if each.rows is None else each.rows.serialize() for each in rows], pa.binary()),
        "change_type": pa.array([each.change_type for each in rows], pa.string()),
    }
    shared = shared_files(spark, scan, range(len(rows)), more)
    task = partial(write_batches, scan_fields(scan), target)
    with translate_task_errors([]):
        answers = shared.mapInArrow(task, "file binary").collect()
    written = [decode_file(answer.file) for answer in answers]
    refuse_unseen_files(written, target)
    return written


def write_batches(
    fields: ScanFields, target: WriteTarget, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write the rows of the files of one task. Runs on an executor."""
    for batch in batches:
        scan = rebuild_scan(fields, pa.Table.from_batches([batch]))
        positions, types = (scan.files[name].to_pylist() for name in ("rows", "change_type"))
        rows = [
            FeedRows(None if found is None else BitMap64.deserialize(found), type_)
            for found, type_ in zip(positions, types, strict=True)
        ]
        written = write_feed_rows(scan, rows, target, task=scan.files["share"][0].as_py())
        yield pa.record_batch({"file": pa.array([msgspec.msgpack.encode(file) for file in written], pa.binary())})
