"""Cache of the frames over a version's files, for later reads of the same version.

    scan ──cached, its directories unchanged──> the cached frames: no file is fetched, listed or checked
         └─else──> files from the catalog ──checked──> opened ──> cached

A version never changes, and neither does the set of its files that a condition needs. Files can be deleted, by hand or
by VACUUM. That changes the directory, and then the files are checked again. Frames are cached only for classic Spark,
which reads the list of files when it creates the frame, and only if this machine sees the files. A cached frame keeps
the bitmaps of its deleted rows in memory. The least recently used frames are dropped first.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Collection, Hashable
from threading import Lock
from typing import NamedTuple, TypeAlias

from pyspark.sql import Column, DataFrame, SparkSession

from deltars.data.scan import Scan

MAX_FRAMES = 64
MAX_FILES = 200_000
"""Limit for all frames together: Spark holds a few hundred bytes per file."""
MAX_BYTES = 64 * 1024 * 1024
"""Limit for the bitmaps of deleted rows of all frames together."""

SETTLED_S = 2.0
"""Age from which a modification time is trusted: file system clocks are coarse, so two changes can share a time."""

_State: TypeAlias = tuple[int, int, int, int]


class Directories:
    """State of directories when their files were checked.

    Creating, renaming or deleting a file changes the modification time of its directory, so files of an unchanged
    directory need no second check.
    """

    def __init__(self) -> None:
        self._states: dict[str, _State] = {}
        self._is_settled = True
        self.has_links = False
        """Whether a file in them is a symbolic link: changes of its target do not change the directory."""

    def add(self, path: str) -> None:
        """Record the state of a directory. Call it before checking the files."""
        state = _state(path)
        self._states[path] = state
        if time.time_ns() - state[2] < SETTLED_S * 1e9:
            self._is_settled = False

    @property
    def can_detect_changes(self) -> bool:
        """Whether `are_unchanged` will notice a later change."""
        return self._is_settled and not self.has_links

    def are_unchanged(self) -> bool:
        try:
            return all(_state(path) == state for path, state in self._states.items())
        except OSError:
            return False

    def __contains__(self, path: str) -> bool:
        return path in self._states


def _state(path: str) -> _State:
    status = os.stat(path)
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns


class FilesFrame(NamedTuple):
    """A frame over data files, with the columns of the files."""

    frame: DataFrame
    path_columns: dict[str, Column] | None
    """Expressions for columns that Spark read from paths as text; None if the frame has exactly the table's columns."""


class _Kept(NamedTuple):
    parts: list[FilesFrame]
    num_files: int
    directories: Directories
    size_bytes: int


_Key: TypeAlias = tuple[str, Hashable]

_kept: OrderedDict[_Key, _Kept] = OrderedDict()
_lock = Lock()


def recall(spark: SparkSession, scan: Scan) -> list[FilesFrame] | None:
    """Return the cached frames of this scan, or None if there are none or their directories have changed."""
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


def keep(
    spark: SparkSession,
    scan: Scan,
    parts: list[FilesFrame],
    num_files: int,
    directories: Directories | None,
    size_bytes: int = 0,
) -> None:
    """Cache the frames of a scan, if a later change of its files can be detected.

    `size_bytes` is the size of the bitmaps of deleted rows that the frames hold.
    """
    if directories is None or not directories.can_detect_changes or num_files > MAX_FILES or size_bytes > MAX_BYTES:
        return
    if (key := _key(spark, scan)) is None:
        return
    with _lock:
        _kept[key] = _Kept(parts, num_files, directories, size_bytes)
        while len(_kept) > MAX_FRAMES or _is_too_much(_kept.values()):
            _kept.popitem(last=False)


def _is_too_much(kept: Collection[_Kept]) -> bool:
    return sum(one.num_files for one in kept) > MAX_FILES or sum(one.size_bytes for one in kept) > MAX_BYTES


def forget() -> None:
    """Empty the cache."""
    with _lock:
        _kept.clear()


def _key(spark: SparkSession, scan: Scan) -> _Key | None:
    """Return the key, or None with Spark Connect. It uses the session's id, as a session has several Python objects."""
    classic = getattr(spark, "_jsparkSession", None)
    return None if classic is None or scan.identity is None else (classic.sessionUUID(), scan.identity)
