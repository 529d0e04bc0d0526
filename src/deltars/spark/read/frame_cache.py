"""Frames over the files of a version, kept for whoever reads that version again.

    scan ──known here, its directories unchanged──> the frames of last time: no file is fetched, listed or looked at
         └─else──> files from the catalog ──looked at──> opened ──> kept

A version never changes, and which of its files a condition needs does not either. Files can be deleted, by hand or by
a vacuum: then a directory has changed, and they are looked at anew. Frames are kept for classic Spark, which has read
the list of files when a frame is there, and where this machine sees the files; the least used go first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import NamedTuple, TypeAlias

from pyspark.sql import Column, DataFrame, SparkSession

from deltars.data.scan import Scan
from deltars.spark.read.directories import Directories

MAX_FRAMES = 64
MAX_FILES = 200_000
"""In all frames together: Spark has a few hundred bytes for each."""


class Opened(NamedTuple):
    """Files as a frame, with the columns that they have."""

    frame: DataFrame
    found: dict[str, Column] | None
    """The table's columns that are not simply the frame's; None where the frame has just those of the table."""


class _Kept(NamedTuple):
    parts: list[Opened]
    num_files: int
    directories: Directories


_Key: TypeAlias = tuple[str, Hashable]

_kept: OrderedDict[_Key, _Kept] = OrderedDict()
_lock = Lock()


def recall(spark: SparkSession, scan: Scan) -> list[Opened] | None:
    """The frames over the files of this scan, if they are known and the files are still there."""
    key = _key(spark, scan)
    with _lock:
        kept = None if key is None else _kept.get(key)
        if key is None or kept is None:
            return None
        _kept.move_to_end(key)
    if kept.directories.are_unchanged():
        return kept.parts
    with _lock:
        _kept.pop(key, None)
    return None


def keep(spark: SparkSession, scan: Scan, parts: list[Opened], num_files: int, directories: Directories | None) -> None:
    """For the next read, if what could go wrong until then would be seen."""
    if directories is None or not directories.can_tell or num_files > MAX_FILES:
        return
    if (key := _key(spark, scan)) is None:
        return
    with _lock:
        _kept[key] = _Kept(parts, num_files, directories)
        while len(_kept) > MAX_FRAMES or sum(kept.num_files for kept in _kept.values()) > MAX_FILES:
            _kept.popitem(last=False)


def forget() -> None:
    """Everything that is kept."""
    with _lock:
        _kept.clear()


def _key(spark: SparkSession, scan: Scan) -> _Key | None:
    """None with Spark Connect. Python has many objects for one session, which has one id."""
    classic = getattr(spark, "_jsparkSession", None)
    return None if classic is None or scan.identity is None else (classic.sessionUUID(), scan.identity)
