"""Orphans: files in a table's directory that no version names and that are too old to be committed yet.

listed ──▶ in the log, or named by it ──▶ no orphan
       └─▶ younger than `min_age`     ──▶ counted only: a running transaction may still commit the file
       └─▶ the rest                   ──▶ an orphan
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from deltars.errors import ValidationError
from deltars.log.moments import from_microseconds
from deltars.mirror.other_tables import others_files, path_below
from deltars.protocol import DeletionVector
from deltars.protocol.actions import decode_deletion_vector
from deltars.protocol.deletion_vectors import relative_path
from deltars.protocol.log_files import is_hidden, is_log_path
from deltars.storage import ObjectInfo, Places, Storage
from deltars.store.mirror.audit import AuditRows
from deltars.store.mirror.status import MirrorStatus
from deltars.store.registry import Registry

MIN_AGE = timedelta(days=1)
"""Default minimum age of an orphan."""


_UNFINISHED = "_temporary"
"""Directory that Spark's tasks write to before their job ends."""
_DATA = (".parquet", ".bin")
_HADOOP_CHECKSUM = re.compile(r"(?P<directory>(?:.*/)?)\.(?P<name>[^/]+)\.crc")
"""Checksum that Hadoop writes beside each file on a local disk."""


@dataclass(frozen=True, slots=True)
class Orphan:
    path: str
    size_bytes: int
    age: timedelta
    is_unfinished: bool
    """Whether a writer was killed before it finished the file."""

    @property
    def detail(self) -> str:
        what = "that a writer left unfinished" if self.is_unfinished else "that the log never named"
        return f"{self.size_bytes} bytes {what}, {_in_words(self.age)}"


@dataclass(frozen=True, slots=True)
class Orphans:
    old: tuple[Orphan, ...] = ()
    young_files: int = 0
    young_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Unnamed:
    """Files in a table's directory that no log names, of any age."""

    files: Sequence[ObjectInfo]
    unfinished: Sequence[ObjectInfo]


def unnamed_files(
    status: MirrorStatus,
    storage: Storage,
    listed: Sequence[ObjectInfo],
    *,
    partition_columns: Sequence[str],
    audit: AuditRows,
    registry: Registry,
) -> Unnamed:
    """Return the files that neither this table's log nor another table's names. `listed` was listed before."""
    tracked, places = set[str](), Places()
    for batch in audit.tracked(status.table_id):
        names = (path_below(storage, path, places) for path in batch["path"].to_pylist())
        tracked.update(name for name in names if name is not None)
        files = (vector_file(storage, vector, places) for vector in vectors_in(batch) if vector is not None)
        tracked.update(file for file in files if file is not None)
    others = others_files(status, storage, [info.path for info in listed], registry=registry, audit=audit)
    unnamed = [
        info
        for info in listed
        if not is_log_path(info.path)
        and not _is_ignored(info.path, partition_columns)
        and _checked_by(info.path) not in tracked
        and not others.has(_checked_by(info.path))
    ]
    return Unnamed(unnamed, [info for info in storage.list_unfinished() if not others.has(info.path)])


def vectors_in(batch: pa.RecordBatch) -> Iterator[DeletionVector | None]:
    """Yield the deletion vector of each row."""
    for text in batch["deletion_vector"].to_pylist():
        yield None if text is None else decode_deletion_vector(text)


def vector_file(storage: Storage, vector: DeletionVector, places: Places) -> str | None:
    """Return the path of a vector's file below the table, also if the vector has a full URI. Return None if inline."""
    found = relative_path(vector)
    if found is None and vector.storage_type == "p":
        return path_below(storage, vector.path_or_inline_dv, places)
    return found


def _is_ignored(path: str, partition_columns: Sequence[str]) -> bool:
    """Return whether a file is hidden and neither one that a killed Spark write left, nor the checksum of one."""
    if _UNFINISHED in path.split("/"):
        return False
    checked = _checked_by(path)
    return is_hidden(checked if checked.endswith(_DATA) else path, partition_columns)


def _checked_by(path: str) -> str:
    """Return the file that a Hadoop checksum belongs to; any other path unchanged."""
    match = _HADOOP_CHECKSUM.fullmatch(path)
    return f"{match['directory']}{match['name']}" if match else path


def find_orphans(
    unnamed: Iterable[ObjectInfo],
    unfinished: Iterable[ObjectInfo],
    *,
    now_us: int,
    min_age: timedelta,
    foreign_age: timedelta | None = None,
) -> Orphans:
    """Split files that no version names into old and young ones. `now_us` is the time of the database.

    `foreign_age` is the minimum age of files that no writer of Delta makes; by default `min_age`.
    """
    # Use the earlier of both clocks: a file may then seem younger than it is, but never older.
    now = min(datetime.now(UTC), from_microseconds(now_us))
    found = [Orphan(info.path, info.size, now - info.modified, is_unfinished=False) for info in unnamed]
    found += [Orphan(info.path, info.size, now - info.modified, is_unfinished=True) for info in unfinished]
    # A file modified in the future has a negative age, so it counts as young.
    young: list[Orphan] = []
    old: list[Orphan] = []
    for orphan in found:
        least = min_age if foreign_age is None or _may_be_written(orphan) else foreign_age
        (young if least and orphan.age < least else old).append(orphan)
    return Orphans(
        tuple(sorted(old, key=lambda orphan: orphan.path)), len(young), sum(orphan.size_bytes for orphan in young)
    )


def check_min_age(min_age: Any) -> None:
    if not isinstance(min_age, timedelta) or min_age < timedelta(0):
        raise ValidationError(
            f"min_age must be a timedelta of 0 or more, got {min_age!r}",
            field="min_age",
            hint="Example: min_age=timedelta(hours=6)",
        )


def _may_be_written(orphan: Orphan) -> bool:
    """Return whether the file may belong to a running write: a data file, or one on the way to it."""
    return orphan.is_unfinished or _UNFINISHED in orphan.path.split("/") or orphan.path.endswith((*_DATA, ".crc"))


def _in_words(age: timedelta) -> str:
    seconds = int(age.total_seconds())
    if seconds < 0:
        return "modified in the future"
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= length:
            count = seconds // length
            return f"{count} {unit}{'' if count == 1 else 's'} old"
    return f"{seconds} s old"
