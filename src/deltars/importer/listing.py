"""Listing of a `_delta_log`: its commits and checkpoints, and where reading can begin.

    _delta_log/ ──list_log──> commits by version, checkpoints by version
                               ──starts──> the checkpoints after which no commit is missing, oldest first

`_last_checkpoint` is a hint for readers that do not list the log. It is ignored here, so it cannot mislead.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum

from deltars.errors import DamagedLog, NotADeltaTable
from deltars.protocol.log_files import LOG, LogFileKind, LogFileName, parse_log_path
from deltars.storage import ObjectInfo, Storage

MAX_VERSION = 2**63 - 1


class CheckpointKind(Enum):
    CLASSIC = "one Parquet file"
    PARTS = "several Parquet files"
    V2 = "a manifest with sidecars"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Whole state of the table at a version, in one file or several."""

    version: int
    kind: CheckpointKind
    files: tuple[ObjectInfo, ...]


@dataclass(frozen=True, slots=True)
class LogListing:
    commits: dict[int, ObjectInfo]
    checkpoints: dict[int, list[Checkpoint]] = field(default_factory=dict)

    @property
    def latest(self) -> int:
        return max([*self.commits, *self.checkpoints], default=-1)

    def first_missing(self, first: int) -> int | None:
        """Return the first version from `first` on that has no commit although a later version exists. None if none."""
        return next((v for v in range(first, self.latest + 1) if v not in self.commits), None)

    def newest_first(self) -> list[Checkpoint]:
        return [found for version in sorted(self.checkpoints, reverse=True) for found in self.checkpoints[version]]

    def starts(self) -> list[Checkpoint]:
        """Return the checkpoints after which no commit is missing. The oldest, with the most history, comes first."""
        run = self.latest
        while run in self.commits:
            run -= 1
        return [found for version in sorted(self.checkpoints) if version >= run for found in self.checkpoints[version]]


def list_log(storage: Storage) -> LogListing:
    commits: dict[int, ObjectInfo] = {}
    checkpoints: dict[int, list[Checkpoint]] = defaultdict(list)
    parts: dict[tuple[int, int], dict[int, ObjectInfo]] = defaultdict(dict)
    for info in storage.list(LOG):
        match parse_log_path(info.path):
            case LogFileName(LogFileKind.COMMIT, int(version)):
                commits[_checked(version, info)] = info
            case LogFileName(LogFileKind.CLASSIC_CHECKPOINT, int(version)):
                checkpoints[_checked(version, info)].append(Checkpoint(version, CheckpointKind.CLASSIC, (info,)))
            case LogFileName(LogFileKind.CHECKPOINT_PART, int(version), int(part), int(count)):
                parts[_checked(version, info), count][part] = info
            case LogFileName(LogFileKind.UUID_CHECKPOINT, int(version)):
                checkpoints[_checked(version, info)].append(Checkpoint(version, CheckpointKind.V2, (info,)))
    for (version, count), files in parts.items():
        # Ignore incomplete checkpoints: their writer died before it wrote all parts.
        if files.keys() == set(range(1, count + 1)):
            ordered = tuple(files[number] for number in sorted(files))
            checkpoints[version].append(Checkpoint(version, CheckpointKind.PARTS, ordered))
    if not commits and not checkpoints:
        raise NotADeltaTable(
            f"there is no Delta table at {storage.root}: {LOG} is missing or empty", hint="Check the location."
        )
    return LogListing(commits, dict(checkpoints))


def refuse_holes(listing: LogListing, first: int) -> None:
    missing = listing.first_missing(first)
    if missing is not None:
        raise DamagedLog(
            f"version {missing} is missing from the log, and no later checkpoint replaces it",
            version=missing,
        )


def _checked(version: int, info: ObjectInfo) -> int:
    if version > MAX_VERSION:
        raise DamagedLog(f"{info.path}: the version is larger than the maximum, {MAX_VERSION}", path=info.path)
    return version
