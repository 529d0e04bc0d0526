"""Plan of a vacuum: which files of a table go, and why; which stay, and why.

the catalog ──▶ removed up to the horizon, not added again ──┐
a listing (`full`) ──▶ named by no log, old enough ──────────┴──▶ minus what a tag, a writer or another table needs
                                                             └──▶ minus what is outside the table's directory
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from posixpath import normpath

import pyarrow as pa

from deltars.errors import ValidationError
from deltars.log.moments import from_microseconds
from deltars.mirror.orphans import Orphan, vector_file, vectors_in
from deltars.mirror.other_tables import path_below
from deltars.protocol import DeletionVector
from deltars.protocol.actions import decode_deletion_vector
from deltars.protocol.log_files import is_log_path
from deltars.storage import Places, Storage
from deltars.storage.storage import check_path
from deltars.store.vacuum_rows import Removals, VacuumAmount
from deltars.store.writers import AnnouncedWriter

SKEW = timedelta(days=1)
"""Most by which a storage's clock is assumed to be behind the database's."""


class VacuumReason(StrEnum):
    """Why a vacuum deletes a file."""

    REMOVED = "removed"
    """A version removed it, and that was published longer ago than the retention."""
    VECTOR = "deletion vectors"
    """Its deletion vectors were all replaced or removed, longer ago than the retention."""
    CHANGES = "change data"
    """It holds the changes of a version that was published longer ago than the retention."""
    ORPHAN = "orphan"
    """No log names it, and it is older than a day."""
    UNFINISHED = "unfinished"
    """A writer that was killed left it."""
    MANIFEST = "stale manifest"
    """It lists files for other engines that are not the table's any more."""


class KeptReason(StrEnum):
    """Why a vacuum keeps a file that a version removed, or that no log names."""

    RETENTION = "retention"
    """Its removal was published more recently."""
    UNPUBLISHED = "unpublished"
    """Its removal is not published yet."""
    TAG = "tag"
    WRITER = "writer"
    """A transaction that is still open may have written it."""
    YOUNG = "young"
    """No log names it, and it is younger than a day."""
    OTHER_TABLE = "other table"
    OUTSIDE = "outside"
    """It is not in the table's directory, or a symbolic link leads to it."""


@dataclass(frozen=True, slots=True)
class VacuumFile:
    path: str
    """Path below the table's directory."""
    size_bytes: int
    """Size by the log; 0 if the log does not say."""
    reason: VacuumReason


@dataclass(slots=True)
class VacuumPlan:
    """Files that go, by path, and how much stays."""

    files: dict[str, VacuumFile] = field(default_factory=dict)
    kept: dict[KeptReason, VacuumAmount] = field(default_factory=dict)
    modified: dict[str, datetime] = field(default_factory=dict)
    """Modification times of orphans."""

    def keep(self, reason: KeptReason, amount: VacuumAmount) -> None:
        if amount.files:
            self.kept[reason] = self.kept.get(reason, VacuumAmount()) + amount

    def keep_file(self, path: str, reason: KeptReason) -> None:
        found = self.files.pop(path, None)
        if found is not None:
            self.keep(reason, VacuumAmount(1, found.size_bytes))


def plan_removals(removals: Removals, storage: Storage) -> VacuumPlan:
    """Plan the files that versions removed."""
    plan, places = VacuumPlan(), Places()
    plan.keep(KeptReason.RETENTION, removals.after_horizon)
    plan.keep(KeptReason.UNPUBLISHED, removals.unpublished)

    def path_of(uri: str) -> str | None:
        path = path_below(storage, uri, places)
        return path if path is not None and _is_deletable(path) else None

    for files, reason in ((removals.removed, VacuumReason.REMOVED), (removals.changes, VacuumReason.CHANGES)):
        for uri, size in zip(files["path"].to_pylist(), files["size"].to_pylist(), strict=True):
            path = path_of(uri)
            if path is None:
                plan.keep(KeptReason.OUTSIDE, VacuumAmount(1, size or 0))
            else:
                plan.files[path] = VacuumFile(path, size or 0, reason)
    for path, size in vector_files(removals.removed_vectors, storage, places).items():
        plan.files[path] = VacuumFile(path, size, VacuumReason.VECTOR)
    for uri in removals.tagged["path"].to_pylist():
        if (path := path_of(uri)) is not None:
            plan.keep_file(path, KeptReason.TAG)
    for path in vector_files(removals.tagged_vectors, storage, places):
        plan.keep_file(path, KeptReason.TAG)
    # A vector's file holds the vectors of many data files: it goes when none of them is needed.
    for path in vector_files(removals.needed_vectors, storage, places):
        plan.files.pop(path, None)
    for uri in removals.odd_paths:
        if (path := path_below(storage, uri, places)) is not None:
            plan.files.pop(normpath(path), None)
    return plan


def add_orphans(plan: VacuumPlan, orphans: Iterable[Orphan], now: datetime) -> None:
    """Plan files that no log names."""
    for orphan in orphans:
        if _is_deletable(orphan.path) or orphan.is_unfinished:
            reason = VacuumReason.UNFINISHED if orphan.is_unfinished else VacuumReason.ORPHAN
            plan.files.setdefault(orphan.path, VacuumFile(orphan.path, orphan.size_bytes, reason))
            plan.modified[orphan.path] = now - orphan.age


def keep_of_writers(plan: VacuumPlan, writers: Sequence[AnnouncedWriter]) -> None:
    """Keep orphans that a living writer may have written: those modified since it began."""
    if not writers:
        return
    began = min(from_microseconds(writer.started_at) for writer in writers) - SKEW
    for path, modified in plan.modified.items():
        if modified >= began:
            plan.keep_file(path, KeptReason.WRITER)


def keep_added(plan: VacuumPlan, storage: Storage, uris: Iterable[str], vectors: Iterable[str]) -> None:
    """Keep what versions have added since the plan was made."""
    places = Places()
    for uri in uris:
        if (path := path_below(storage, uri, places)) is not None:
            plan.files.pop(path, None)
    for text in vectors:
        if (path := vector_file(storage, decode_deletion_vector(text), places)) is not None:
            plan.files.pop(path, None)


def keep_matching(plan: VacuumPlan, reason: KeptReason, matches: Callable[[str], bool]) -> None:
    for path in [path for path in plan.files if matches(path)]:
        plan.keep_file(path, reason)


def keep_links(plan: VacuumPlan, storage: Storage) -> None:
    """Keep files that a symbolic link leads to, and links that no log names: they may be directories of other disks."""
    if not storage.location.is_local:
        return
    known = {"": False}
    for path, file in list(plan.files.items()):
        directory = path.rpartition("/")[0]
        if directory not in known:
            known[directory] = storage.leads_elsewhere(directory)
        is_unnamed = file.reason in (VacuumReason.ORPHAN, VacuumReason.UNFINISHED, VacuumReason.MANIFEST)
        if known[directory] or (is_unnamed and storage.leads_elsewhere(path)):
            plan.keep_file(path, KeptReason.OUTSIDE)


def amounts(files: Iterable[VacuumFile]) -> Mapping[VacuumReason, VacuumAmount]:
    found: dict[VacuumReason, VacuumAmount] = {}
    for file in files:
        found[file.reason] = found.get(file.reason, VacuumAmount()) + VacuumAmount(1, file.size_bytes)
    return found


def vector_files(rows: pa.Table, storage: Storage, places: Places) -> dict[str, int]:
    """Return the files of deletion vectors, with the bytes that the vectors need."""
    found: dict[str, int] = {}
    for batch in rows.to_batches():
        for vector in vectors_in(batch):
            path = None if vector is None else vector_file(storage, vector, places)
            if vector is not None and path is not None and _is_deletable(path):
                found[path] = max(found.get(path, 0), _end(vector))
    return found


def _end(vector: DeletionVector) -> int:
    return (vector.offset or 1) + 4 + vector.size_in_bytes + 4


def _is_deletable(path: str) -> bool:
    """Return whether a path is below the table's root, and not a file of the log."""
    try:
        check_path(path)
    except ValidationError:
        return False
    return not is_log_path(path)


__all__ = ["KeptReason", "VacuumFile", "VacuumPlan", "VacuumReason"]
