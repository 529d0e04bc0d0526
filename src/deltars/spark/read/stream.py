"""Rows of a frame as a stream of Arrow batches, in the frame's order, with one partition in memory at a time.

`toArrow` collects all rows at once. Here each task packs its batches into bytes, and `toLocalIterator` fetches them one
partition after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame


def batches_of(frame: DataFrame) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a frame. Its column names must be unique."""
    packed = frame.mapInArrow(_pack, "batch BINARY")
    for row in packed.toLocalIterator(prefetchPartitions=True):
        with pa.ipc.open_stream(bytes(row.batch)) as reader:
            yield from reader


def _pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        yield pa.record_batch({"batch": pa.array([sink.getvalue().to_pybytes()], pa.binary())})
