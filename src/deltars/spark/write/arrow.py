"""Writing by the Arrow writer of `data` in Spark's tasks. Files get their final paths at once; nothing is renamed.

    frame ──sorted within tasks by partition──> mapInArrow(write_batches) ──> one row per file: its WrittenFile
                                                  on the executors       └──> or the rows themselves, if they are few:
                                                                              the driver writes those

The driver receives the results of successful attempts only. Files of attempts that failed, or that lost against a
speculative copy, are orphans: no version refers to them, and a full vacuum deletes them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from deltars.data.write_target import WriteTarget, WrittenFile
from deltars.data.writer import write_table
from deltars.errors import StorageError
from deltars.protocol import uri_to_path
from deltars.spark.write.file_limit import file_counter, limit_files
from deltars.storage import parse_location

SHARED_DISK = "The table must be on a disk that the driver and the executors share, or in an object store."


def write_by_arrow(
    rows: DataFrame, target: WriteTarget, columns: Sequence[str], bytes_to_hand_over: int = 0
) -> list[WrittenFile]:
    """Write rows from `sorted_by_partition`. `columns` are the original column names.

    A task with at most `bytes_to_hand_over` bytes sends its rows to the driver, which writes them.
    """
    made = file_counter(rows.sparkSession, target.max_files)
    task = partial(write_batches, target, columns, bytes_to_hand_over, made)
    with limit_files(rows.sparkSession, target.max_files, lambda: made.value):
        answers = rows.mapInArrow(task, "file binary, rows binary").collect()
    files = [decode_file(answer.file) for answer in answers if answer.file is not None]
    refuse_unseen_files(files, target)
    few = [answer.rows for answer in answers if answer.rows is not None]
    return files + write_table(target, chain.from_iterable(map(pa.ipc.open_stream, few)))


def write_batches(
    target: WriteTarget, names: Sequence[str], bytes_to_hand_over: int, made: Any, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write the rows of one task. Runs on an executor. `made` is an accumulator for the number of files, or None."""
    context = TaskContext.get()
    named = (batch.rename_columns(names) for batch in batches)
    few, rest = _take_if_few(named, bytes_to_hand_over)
    if few is None:
        files = encode_files(write_table(target, rest, task=context.partitionId() if context else 0))
        if made is not None:
            made.add(len(files))
        yield pa.record_batch({"file": files, "rows": pa.nulls(len(files), pa.binary())})
    elif few:
        yield pa.record_batch({"file": pa.nulls(1, pa.binary()), "rows": pa.array([_as_stream(few)], pa.binary())})


def _take_if_few(
    batches: Iterator[pa.RecordBatch], size_bytes: int
) -> tuple[list[pa.RecordBatch] | None, Iterator[pa.RecordBatch]]:
    """Return all batches if they have at most `size_bytes`; otherwise None and an iterator over all batches."""
    taken: list[pa.RecordBatch] = []
    held_bytes = 0
    while size_bytes:
        batch = next(batches, None)
        if batch is None:
            return taken, iter(())
        taken.append(batch)
        held_bytes += batch.nbytes
        if held_bytes > size_bytes:
            break
    return None, chain(taken, batches)


def refuse_unseen_files(files: Sequence[WrittenFile], target: WriteTarget) -> None:
    place = parse_location(target.root)
    for path in (uri_to_path(file.add.path) for file in files) if place.is_local else ():
        if not os.path.exists(os.path.join(place.path, path)):
            raise StorageError(
                f"a Spark task wrote {path} to {target.root}, but the driver does not see it",
                path=path,
                hint=SHARED_DISK,
            )


def _as_stream(batches: Sequence[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as stream:
        for batch in batches:
            stream.write_batch(batch)
    return bytes(sink.getvalue())


def encode_files(files: Sequence[WrittenFile]) -> pa.Array:
    return pa.array([msgspec.msgpack.encode(file) for file in files], pa.binary())


def decode_file(file: bytes) -> WrittenFile:
    return msgspec.msgpack.decode(file, type=WrittenFile)


def sorted_by_partition(frame: DataFrame, target: WriteTarget) -> DataFrame:
    """Sort the rows within each task by partition, so that a task has fewer and larger files open.

    The columns also get plain names, because mapInArrow does not accept a name with a dot or a backquote.
    """
    plain = {name.lower(): f"c{index}" for index, name in enumerate(frame.columns)}
    renamed = frame.toDF(*plain.values())
    order = [plain[name.lower()] for name in target.partition_columns if name.lower() in plain]
    return renamed.sortWithinPartitions(*order) if order else renamed
