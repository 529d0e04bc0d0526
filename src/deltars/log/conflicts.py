"""Delta's conflict rules between concurrent commits, as functions of what was read and written.

    begin ─────────── my transaction reads and stages ───────────▶ locked: may it still commit?
      └─ version 4      5      6      7                              │
                        └──────┴──────┴─ winners ── find_conflict ───┴─▶ None: it becomes version 8
                                                                        Conflict: which rule, with which version

A winner is a commit that another transaction made to the table since mine began. Winners are checked one by one, each
in delta-spark's order: protocol, metadata, domains, `txn` of the same application, added files, removed files that I
read, removed files that I remove. The isolation level decides which added files are checked:

    serializable          all
    write_serializable    those of winners that are not blind appends; all, if my commit changes metadata
    snapshot              none; removed files that I read are not checked either

`strict` needs no rules: every winner is a conflict.

A commit without a conflict is **rebased**: its actions are committed unchanged, after the last winner. No action holds
its version. Values that depend on it (version, timestamps, row ids) are set under the lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from deltars import errors
from deltars.log.arrow_adds import deletion_vectors
from deltars.log.commit import Conflict, TableCommit
from deltars.log.read_set import NOTHING_READ, Added, FileKey, FilePredicate, Reads
from deltars.log.table_rules import ROW_TRACKING_DOMAIN
from deltars.protocol import AddFile, CdcFile, DomainMetadata, Metadata, RemoveFile, Txn

Level: TypeAlias = Literal["serializable", "write_serializable", "snapshot"]


@dataclass(frozen=True, slots=True)
class Removed:
    """A file that a winner removed."""

    path: str
    dv_id: str = ""
    data_change: bool = True

    @property
    def key(self) -> FileKey:
        return self.path, self.dv_id


@dataclass(frozen=True, slots=True)
class Winner:
    """A commit to the table by another transaction while this one was open."""

    version: int
    adds: Sequence[Added] = ()
    removes: Sequence[Removed] = ()
    metadata_changed: bool = False
    protocol_changed: bool = False
    app_ids: frozenset[str] = frozenset()
    domains: frozenset[str] = frozenset()
    is_blind_append: bool = False


@dataclass(frozen=True, slots=True)
class Evidence:
    """Which files of the winners the rules need. A blind append needs none."""

    adds: bool
    removes: bool


def find_conflict(mine: TableCommit | None, reads: Reads, winners: Iterable[Winner], level: Level) -> Conflict | None:
    """Return the first conflict with the winners, which come oldest first, or None.

    `mine` is None for a table that is only read. `level` is the result of `level_of`.
    """
    if mine is None and (level == "snapshot" or reads.is_empty):
        return None
    check = _ConflictCheck(mine, reads, level)
    for winner in winners:
        for found in check.conflicts(winner):
            return found
    return None


def level_of(commits: Iterable[TableCommit], level: Level) -> Level:
    """Return the level to check a transaction at: `snapshot` if it only moves rows, as compaction does.

    All tables of the transaction count, because rows read from one table may have been written to another.
    """
    return "snapshot" if all(map(_only_moves_rows, commits)) else level


def is_blind_append(mine: TableCommit, reads: Iterable[Reads]) -> bool:
    """Return whether a commit only adds files and its transaction read no rows of any table."""
    only_adds = not any(isinstance(action, RemoveFile | CdcFile) for action in mine.actions)
    return only_adds and not any(read.has_rows for read in reads)


def evidence(mine: TableCommit | None, reads: Reads, level: Level) -> Evidence:
    """Return which files of the winners must be fetched for `find_conflict`."""
    is_checked = level != "snapshot"
    return Evidence(
        adds=is_checked and (reads.whole_table or bool(reads.predicates)),
        removes=(is_checked and reads.has_rows) or bool(_changed_files(mine)),
    )


class _ConflictCheck:
    """Check of one table's part of a transaction against each winner."""

    def __init__(self, mine: TableCommit | None, reads: Reads, level: Level) -> None:
        actions = mine.actions if mine else ()
        self._reads = reads
        self._level = level
        self._changes_metadata = any(isinstance(action, Metadata) for action in actions)
        self._app_ids = reads.app_ids | {action.app_id for action in actions if isinstance(action, Txn)}
        self._domains = {action.domain for action in actions if isinstance(action, DomainMetadata)}
        self._files = _changed_files(mine)
        self._depends_on_state = mine is not None or reads.metadata or reads.has_rows
        self._needs = evidence(mine, reads, level)

    def conflicts(self, winner: Winner) -> Iterator[Conflict]:
        """Yield conflicts in delta-spark's order. The caller takes only the first, so the rest is never computed."""

        def conflict(rule: type[errors.VersionConflict], what: str) -> Conflict:
            return Conflict(rule, winner.version, f"version {winner.version} {what}")

        if winner.protocol_changed and self._depends_on_state:
            yield conflict(errors.ProtocolChanged, "changed the table's protocol")
        if winner.metadata_changed and self._depends_on_state:
            yield conflict(errors.MetadataChanged, "changed the table's metadata")
        # Row ids are assigned under the lock, so two changes of their high-water mark do not conflict.
        for domain in sorted(self._domains & winner.domains - {ROW_TRACKING_DOMAIN}):
            yield conflict(errors.MetadataChanged, f"changed the domain {domain}, as this transaction does")
        for app_id in sorted(self._app_ids & winner.app_ids):
            yield conflict(errors.ConcurrentTransaction, f"committed a txn action of the same application {app_id}")
        if self._needs.adds and not self._ignores_adds(winner):
            for added in winner.adds:
                # dataChange=false adds no rows; a reader already depends on the files they came from.
                if added.data_change and self._would_have_read(added):
                    yield conflict(
                        errors.ConcurrentAppend, f"added {added.path}, which this transaction would have read"
                    )
        if self._needs.removes and self._level != "snapshot":
            for removed in winner.removes:
                if self._reads.whole_table or removed.key in self._reads.files:
                    yield conflict(errors.ConcurrentDeleteRead, f"removed {removed.path}, which this transaction read")
        if self._files:
            for removed in winner.removes:
                if removed.key in self._files:
                    yield conflict(
                        errors.ConcurrentDeleteDelete, f"removed {removed.path}, which this transaction changes too"
                    )

    def _ignores_adds(self, winner: Winner) -> bool:
        return self._level == "write_serializable" and winner.is_blind_append and not self._changes_metadata

    def _would_have_read(self, added: Added) -> bool:
        return self._reads.whole_table or any(predicate.could_match(added) for predicate in self._reads.predicates)


def _changed_files(mine: TableCommit | None) -> set[FileKey]:
    """Return the files that must still be live: those the commit removes, and those it adds with dataChange=false.

    Adding such a file after another commit removed it would bring deleted rows back.
    """
    if mine is None:
        return set()
    files = {
        action.key
        for action in mine.actions
        if isinstance(action, RemoveFile) or (isinstance(action, AddFile) and not action.data_change)
    }
    if mine.adds is not None and not pc.all(mine.adds["data_change"]).as_py():
        moved = mine.adds.filter(pc.invert(mine.adds["data_change"]))
        vectors = moved["deletion_vector"] if "deletion_vector" in moved.column_names else pa.nulls(len(moved))
        ids = [vector.unique_id if vector else "" for vector in deletion_vectors(vectors)]
        files.update(zip(moved["path"].to_pylist(), ids, strict=True))
    return files


def _only_moves_rows(mine: TableCommit) -> bool:
    """Return whether the commit has only file actions with dataChange=false (and the row tracking domain)."""
    is_moved = all(
        (isinstance(action, AddFile | RemoveFile) and not action.data_change)
        or (isinstance(action, DomainMetadata) and action.domain == ROW_TRACKING_DOMAIN)
        for action in mine.actions
    )
    if mine.adds is None:
        return is_moved and bool(mine.actions)
    return is_moved and not pc.any(mine.adds["data_change"]).as_py()


__all__ = [
    "NOTHING_READ",
    "Added",
    "Conflict",
    "Evidence",
    "FileKey",
    "FilePredicate",
    "Level",
    "Reads",
    "Removed",
    "Winner",
    "evidence",
    "find_conflict",
    "is_blind_append",
    "level_of",
]
