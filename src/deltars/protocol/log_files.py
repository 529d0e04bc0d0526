"""File names below a table's directory: files of the Delta log, and hidden files, which every reader ignores.

_delta_log/00000000000000000012.json                                  a commit
           00000000000000000012.crc                                   its checksum
           00000000000000000010.checkpoint.parquet                    a checkpoint
           00000000000000000010.checkpoint.0000000001.0000000003.parquet   a part of a checkpoint
           00000000000000000010.checkpoint.<uuid>.parquet, .json      a V2 checkpoint
           00000000000000000004.00000000000000000007.compacted.json   several commits in one
           _last_checkpoint                                           where to begin reading
           _sidecars/<name>.parquet                                   files of a V2 checkpoint
_anything, .anything, and temporary files of systems and editors      hidden

A V2 checkpoint may also have a classic name; only its content shows which one it is.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum

LOG = "_delta_log"

_VERSION = r"(?P<version>\d{20})"
_PATTERNS = {
    "COMMIT": rf"{_VERSION}\.json",
    "CHECKSUM": rf"{_VERSION}\.crc",
    "CLASSIC_CHECKPOINT": rf"{_VERSION}\.checkpoint\.parquet",
    "CHECKPOINT_PART": rf"{_VERSION}\.checkpoint\.(?P<part>\d{{10}})\.(?P<parts>\d{{10}})\.parquet",
    "UUID_CHECKPOINT": rf"{_VERSION}\.checkpoint\.[0-9A-Fa-f-]{{36}}\.(?:json|parquet)",
    "COMPACTED": rf"{_VERSION}\.\d{{20}}\.compacted\.json",
    "LAST_CHECKPOINT": r"_last_checkpoint",
    "SIDECAR": r"_sidecars/[^/]+\.parquet",
}
_COMPILED = {kind: re.compile(pattern) for kind, pattern in _PATTERNS.items()}

_OF_A_VERSION = re.compile(rf"{LOG}/\.?{_VERSION}\.(?:json|crc|checkpoint\.[^/]+)(?:\.crc)?")
"""Includes checkpoints of other programs, and the checksums that Hadoop writes beside its files."""

_NOT_HIDDEN = ("_delta_index", "_change_data")
"""Directories with files of the table, although their names begin with an underscore."""
_LEFT_BEHIND = re.compile(
    r".*_\$folder\$"  # Hadoop's directories on object stores
    r"|.*\.tmp|.*~|\#.*\#|.*\.sw[a-z]|4913"  # half-written files, editors
    r"|Thumbs\.db|desktop\.ini|Icon\r",  # desktops
    re.IGNORECASE,
)


class LogFileKind(Enum):
    COMMIT = "COMMIT"
    CHECKSUM = "CHECKSUM"
    CLASSIC_CHECKPOINT = "CLASSIC_CHECKPOINT"
    CHECKPOINT_PART = "CHECKPOINT_PART"
    UUID_CHECKPOINT = "UUID_CHECKPOINT"
    COMPACTED = "COMPACTED"
    LAST_CHECKPOINT = "LAST_CHECKPOINT"
    SIDECAR = "SIDECAR"


CHECKPOINTS = frozenset((LogFileKind.CLASSIC_CHECKPOINT, LogFileKind.CHECKPOINT_PART, LogFileKind.UUID_CHECKPOINT))

LAST_CHECKPOINT = f"{LOG}/_last_checkpoint"


def commit_path(version: int) -> str:
    return f"{LOG}/{version:020}.json"


def checksum_path(version: int) -> str:
    return f"{LOG}/{version:020}.crc"


def checkpoint_path(version: int) -> str:
    """Return the path of the classic checkpoint of a version."""
    return f"{LOG}/{version:020}.checkpoint.parquet"


def sidecar_path(name: str) -> str:
    return f"{LOG}/_sidecars/{name}"


def is_log_path(path: str) -> bool:
    """Return whether a path below the table is inside its `_delta_log`."""
    return path.startswith(f"{LOG}/")


def version_of(path: str) -> int | None:
    """Return the version that a file of the log belongs to, of whatever kind it is; None if it belongs to none."""
    found = _OF_A_VERSION.fullmatch(path)
    return None if found is None else int(found["version"])


def versions_of(kind: LogFileKind, paths: Iterable[str]) -> list[int]:
    """Return the versions that have a log file of this kind among `paths`, in ascending order."""
    names = (parse_log_path(path) for path in paths)
    return sorted(name.version for name in names if name is not None and name.kind is kind and name.version is not None)


@dataclass(frozen=True, slots=True)
class LogFileName:
    kind: LogFileKind
    version: int | None = None
    part: int | None = None
    parts: int | None = None


def parse_log_path(path: str) -> LogFileName | None:
    """Return the kind and numbers of a log file, by its path below the table; None for any other file."""
    directory, _, name = path.partition("/")
    if directory != LOG:
        return None
    for kind, pattern in _COMPILED.items():
        if found := pattern.fullmatch(name):
            numbers = {key: int(digits) for key, digits in found.groupdict().items()}
            return LogFileName(LogFileKind(kind), **numbers)
    return None


def is_hidden(path: str, partition_columns: Collection[str] = ()) -> bool:
    """Return whether readers ignore a path, which is relative to the table or to its log.

    Delta hides names that begin with `_` or `.`, except for its own directories and the directories of a partition
    column with such a name.
    """
    segments = path.split("/")
    for name in segments:
        if name.startswith(("_", ".")):
            is_partition = any(name.startswith(f"{column}=") for column in partition_columns)
            if not is_partition and not name.startswith(_NOT_HIDDEN):
                return True
    return any(_LEFT_BEHIND.fullmatch(name) for name in segments)
