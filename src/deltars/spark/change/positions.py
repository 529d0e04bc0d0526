"""Positions of rows, collected by Spark as bitmaps.

    rows ──group by file and by 32,768 row numbers──> one row of 4 KB each ──driver──> a bitmap per file

Tasks need no Python, and no row is shuffled.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from deltars.data.scan import Scan
from deltars.spark.change.target import TargetRows

BUCKET_ROWS = 32_768
"""Row numbers of one bitmap of Spark's `bitmap_construct_agg`."""

MAX_COLLECTED_BYTES = 16 * 1024**3
"""Size of the files up to which all bitmaps are fetched at once. Beyond, they are fetched task by task."""


class Found(NamedTuple):
    """Numbers of one group."""

    rows: BitMap64
    num_found: int
    """Number of rows that have them: more than there are numbers if some repeat."""


def positions_of(rows: DataFrame, target: TargetRows, scan: Scan) -> dict[int, BitMap64]:
    """Return the positions of these rows of the target. Runs one job."""
    part, path, row = (F.col(name) for name in target.place.position)
    found = collect_bitmaps(rows, [part, path], row, is_large=is_large(scan))
    return by_place({(part, path): group.rows for (part, path), group in found.items()}, target.places)


def by_place(found: Mapping[tuple[int, str], BitMap64], places: Mapping[tuple[int, str], int]) -> dict[int, BitMap64]:
    return {places[part, path]: rows for (part, path), rows in found.items()}


def is_large(scan: Scan) -> bool:
    size_bytes: int = sum(scan.files["size"].to_pylist())
    return size_bytes > MAX_COLLECTED_BYTES


def collect_bitmaps(
    frame: DataFrame, keys: Sequence[Column], number: Column, *, is_large: bool
) -> dict[tuple[int, str], Found]:
    """Return the numbers of each group, of which a frame may have some more than once. Runs one job."""
    # Spark counts the numbers of its bitmaps from 1.
    one_based = number + F.lit(1).cast("bigint")
    part, path = keys
    grouped = frame.groupBy(part.alias("part"), path.alias("path"), F.bitmap_bucket_number(one_based).alias("bucket"))
    buckets = grouped.agg(
        F.bitmap_construct_agg(F.bitmap_bit_position(one_based)).alias("bits"), F.count(F.lit(1)).alias("count")
    )
    found: dict[tuple[int, str], Found] = {}
    for part_, path_, bucket, bits, count in _streamed(buckets) if is_large else _fetched(buckets):
        before = found.get((part_, path_), Found(BitMap64(), 0))
        before.rows.update(_numbers(bucket, bits))
        found[part_, path_] = Found(before.rows, before.num_found + count)
    return found


def _fetched(buckets: DataFrame) -> Iterator[tuple[int, str, int, bytes, int]]:
    table: pa.Table = buckets.toArrow()
    return zip(*(column.to_pylist() for column in table.columns), strict=True)


def _streamed(buckets: DataFrame) -> Iterable[tuple[int, str, int, bytes, int]]:
    return map(tuple, buckets.toLocalIterator())


def _numbers(bucket: int, bits: bytes) -> array[int]:
    is_set = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")
    numbers = np.flatnonzero(is_set).astype(np.uint64) + np.uint64((bucket - 1) * BUCKET_ROWS)
    # pyroaring is several times as fast with an array of Python as with one of numpy.
    return array("Q", numbers.tobytes())
