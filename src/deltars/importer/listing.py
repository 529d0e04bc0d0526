"""What lies in a `_delta_log`, and where reading it can begin.

    _delta_log/ ──list_log──> commits by version, checkpoints by version
                               ──start_of──> version 0, or the oldest checkpoint from which on nothing is missing

`_last_checkpoint` is a hint for readers that do not list: it is not read, so it cannot mislead.
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
    """A whole state of the table, in one file or several."""

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
        """The first version from `first` on that has no commit, though a later one has."""
        return next((v for v in range(first, self.latest + 1) if v not in self.commits), None)

    def newest_first(self) -> list[Checkpoint]:
        return [found for version in sorted(self.checkpoints, reverse=True) for found in self.checkpoints[version]]

    def starts(self) -> list[Checkpoint]:
        """The checkpoints after which no commit is missing, oldest first: those with most history."""
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
        # A writer that died left the others unwritten.
        if files.keys() == set(range(1, count + 1)):
            ordered = tuple(files[number] for number in sorted(files))
            checkpoints[version].append(Checkpoint(version, CheckpointKind.PARTS, ordered))
    if not commits and not checkpoints:
        raise NotADeltaTable(
            f"there is no Delta table at {storage.root}: it has no {LOG}", hint="Check the location's spelling."
        )
    return LogListing(commits, dict(checkpoints))


def refuse_holes(listing: LogListing, first: int) -> None:
    missing = listing.first_missing(first)
    if missing is not None:
        raise DamagedLog(
            f"version {missing} is missing from the log, and there is no checkpoint to begin with after it",
            version=missing,
        )


def _checked(version: int, info: ObjectInfo) -> int:
    if version > MAX_VERSION:
        raise DamagedLog(f"{info.path} is beyond the last version there can be", path=info.path)
    return version
