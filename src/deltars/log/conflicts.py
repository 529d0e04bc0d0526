"""Delta's conflict rules between concurrent commits, as functions of what was read and written.

    begin ─────────── my transaction reads and stages ───────────▶ locked: may it still commit?
      └─ version 4      5      6      7                              │
                        └──────┴──────┴─ winners ── find_conflicts ──┴─▶ no obstacle: it becomes version 8
                                                                        obstacles: which rule, with which version

A winner is a commit that another transaction made to the table since mine began. Winners are checked one by one, each
in delta-spark's order: protocol, metadata, domains, `txn` of the same application, added files, removed files that I
read, removed files that I remove. The isolation level decides which added files are checked:

    serializable          all
    write_serializable    those of winners that are not blind appends; all, if my commit changes metadata
    snapshot              none; removed files that I read are not checked either

`strict` needs no rules: every winner is a conflict.

A winner that removes a file and adds it again with another deletion vector made a **vector change**: some rows of the
file were deleted, but it is neither an added nor a removed file. A transaction that read rows to change them
(`Reads.rows`) does not depend on other rows of the same files. The log does not show rows, so such a conflict is an
`Obstacle` that can be settled: `transaction.settle` looks at the rows after the lock is released.

    added file, by its ranges         unless none of its rows matches
    removed file that was searched    unless none of its rows matched
    vector change                     unless it deleted other rows than those that were read or are changed

Rows that a winner moved to other files (dataChange=false) are followed there: the new files count as searched.

A commit without a conflict is **rebased**: its actions are committed unchanged, after the last winner. No action holds
its version. Values that depend on it (version, timestamps, row ids) are set under the lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from deltars import errors
from deltars.log.arrow_adds import deletion_vectors
from deltars.log.commit import Conflict, Obstacle, RowsChanged, TableCommit
from deltars.log.read_set import NOTHING_READ, Added, FileKey, FilePredicate, Reads, RowRead
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

    def vector_changes(self) -> dict[str, tuple[Removed, Added]]:
        """Return the files that got another deletion vector, by path."""
        if not (self.adds and self.removes):
            return {}
        removed = {file.path: file for file in self.removes}
        return {
            file.path: (removed[file.path], file)
            for file in self.adds
            if file.path in removed and file.dv_id != removed[file.path].dv_id
        }


@dataclass(frozen=True, slots=True)
class Evidence:
    """Which files of the winners the rules need. A blind append needs none."""

    adds: bool
    removes: bool
    vectors: bool = False
    """Whether added files with a deletion vector are needed, even if other added files are not."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What prevents a commit after the winners."""

    obstacles: tuple[Obstacle, ...]
    """In the order of the winners and of the rules. None follows a hard one: it refuses the commit alone."""
    reads: Reads
    """What was read, as of the last winner, if the obstacles are settled."""

    @property
    def is_settleable(self) -> bool:
        return bool(self.obstacles) and not self.obstacles[-1].is_hard

    @property
    def conflict(self) -> Conflict | None:
        """The hard conflict, else the first one that was not settled."""
        if not self.obstacles:
            return None
        return self.obstacles[-1 if self.obstacles[-1].is_hard else 0].conflict


def find_conflicts(mine: TableCommit | None, reads: Reads, winners: Iterable[Winner], level: Level) -> Verdict:
    """Check a table's part of a transaction against the winners, which come oldest first.

    `mine` is None for a table that is only read. `level` is the result of `level_of`.
    """
    if mine is None and (level == "snapshot" or reads.is_empty):
        return Verdict((), reads)
    check = _ConflictCheck(mine, reads, level)
    found: list[Obstacle] = []
    for winner in winners:
        for obstacle in check.obstacles(winner):
            found.append(obstacle)
            if obstacle.is_hard:
                return Verdict(tuple(found), reads)
        check.follow(winner)
    return Verdict(tuple(found), check.reads)


def find_conflict(mine: TableCommit | None, reads: Reads, winners: Iterable[Winner], level: Level) -> Conflict | None:
    """Return the conflict that refuses the commit as long as nothing is settled, or None."""
    return find_conflicts(mine, reads, winners, level).conflict


def level_of(commits: Iterable[TableCommit], level: Level) -> Level:
    """Return the level to check a transaction at: `snapshot` if it only moves rows, as compaction does.

    All tables of the transaction count, because rows read from one table may have been written to another.
    """
    return "snapshot" if all(map(_only_moves_rows, commits)) else level


_NO_APPEND = (RemoveFile, CdcFile)


def is_blind_append(mine: TableCommit, reads: Iterable[Reads]) -> bool:
    """Return whether a commit only adds files and its transaction read no rows of any table."""
    for action in mine.actions:
        if isinstance(action, _NO_APPEND):
            return False
    return not any(read.has_rows for read in reads)


def evidence(mine: TableCommit | None, reads: Reads, level: Level) -> Evidence:
    """Return which files of the winners must be fetched for `find_conflicts`."""
    is_checked = level != "snapshot"
    return Evidence(
        adds=is_checked and (reads.whole_table or bool(reads.predicates) or bool(reads.rows)),
        removes=(is_checked and reads.has_rows) or bool(_changed_files(mine)),
        vectors=bool(_changed_by_vector(mine, reads)),
    )


class _Search:
    """A row-level read, and the files that hold the rows it searched, as of the last winner."""

    def __init__(self, place: int, read: RowRead) -> None:
        self.place = place
        self.read = read
        self.files = set(read.files)

    def would_have_searched(self, added: Added, before: Removed | None) -> bool:
        """Return whether an added file may hold rows that the read missed; `before` is the file's vector change."""
        return not (before is not None and before.key in self.files) and self.read.could_match(added)

    def needs_test(self, removed: Removed) -> bool:
        """Return whether rows of a file that went may have matched, though this transaction does not change them."""
        return removed.key in self.files and not self.read.changes_matches


class _ConflictCheck:
    """Check of one table's part of a transaction against each winner, oldest first."""

    def __init__(self, mine: TableCommit | None, reads: Reads, level: Level) -> None:
        actions = mine.actions if mine else ()
        self._reads = reads
        self._level = level
        self._changes_metadata = any(isinstance(action, Metadata) for action in actions)
        self._app_ids = reads.app_ids | {action.app_id for action in actions if isinstance(action, Txn)}
        self._domains = {action.domain for action in actions if isinstance(action, DomainMetadata)}
        self._files = _changed_files(mine)
        self._by_vector = _changed_by_vector(mine, reads)
        self._searches = [_Search(place, read) for place, read in enumerate(reads.rows)]
        self._depends_on_state = mine is not None or reads.metadata or reads.has_rows
        self._needs = evidence(mine, reads, level)

    @property
    def reads(self) -> Reads:
        """What was read, with the files that hold those rows now."""
        rows = tuple(replace(search.read, files=frozenset(search.files)) for search in self._searches)
        return replace(self._reads, rows=rows)

    def obstacles(self, winner: Winner) -> Iterator[Obstacle]:
        """Yield what prevents a commit after the winner, in delta-spark's order."""

        def conflict(rule: type[errors.VersionConflict], what: str, unless: RowsChanged | None = None) -> Obstacle:
            return Obstacle(Conflict(rule, winner.version, f"version {winner.version} {what}"), unless)

        if winner.protocol_changed and self._depends_on_state:
            yield conflict(errors.ProtocolChanged, "changed the table's protocol")
        if winner.metadata_changed and self._depends_on_state:
            yield conflict(errors.MetadataChanged, "changed the table's metadata")
        # Row ids are assigned under the lock, so two changes of their high-water mark do not conflict.
        for domain in sorted(self._domains & winner.domains - {ROW_TRACKING_DOMAIN}):
            yield conflict(errors.MetadataChanged, f"changed the domain {domain}, as this transaction does")
        for app_id in sorted(self._app_ids & winner.app_ids):
            yield conflict(errors.ConcurrentTransaction, f"committed a txn action of the same application {app_id}")
        vectors = winner.vector_changes()
        if self._needs.adds and not self._ignores_adds(winner):
            for added in winner.adds:
                # dataChange=false adds no rows; a reader already depends on the files they came from.
                if not added.data_change:
                    continue
                before = vectors[added.path][0] if added.path in vectors else None
                what = f"added {added.path}, which this transaction would have read"
                if self._would_have_read(added, before):
                    yield conflict(errors.ConcurrentAppend, what)
                elif missed := [search for search in self._searches if search.would_have_searched(added, before)]:
                    rows = _testable(RowsChanged("added", added.path, new_dv_id=added.dv_id), missed)
                    yield conflict(errors.ConcurrentAppend, what, rows)
        if self._needs.removes and self._level != "snapshot":
            for removed in winner.removes:
                what = f"removed {removed.path}, which this transaction read"
                if self._reads.whole_table or removed.key in self._reads.files:
                    yield conflict(errors.ConcurrentDeleteRead, what)
                elif removed.key in self._files:
                    continue  # the next rule decides
                elif removed.path in vectors and any(removed.key in search.files for search in self._searches):
                    what = f"changed rows of {removed.path}, which this transaction read"
                    yield conflict(errors.ConcurrentDeleteRead, what, self._vector_change(*vectors[removed.path]))
                elif removed.data_change and (lost := [one for one in self._searches if one.needs_test(removed)]):
                    rows = _testable(RowsChanged("removed", removed.path, removed.dv_id), lost)
                    yield conflict(errors.ConcurrentDeleteRead, what, rows)
        for removed in winner.removes if self._files else ():
            if removed.key not in self._files:
                continue
            if removed.path in vectors and removed.path in self._by_vector:
                what = f"changed rows of {removed.path}, which this transaction changes too"
                yield conflict(errors.ConcurrentDeleteDelete, what, self._vector_change(*vectors[removed.path]))
            else:
                what = f"removed {removed.path}, which this transaction changes too"
                yield conflict(errors.ConcurrentDeleteDelete, what)

    def follow(self, winner: Winner) -> None:
        """Find the rows that were searched, and the files that are changed, where the winner left them."""
        for before, after in winner.vector_changes().values():
            for files in (self._files, *(search.files for search in self._searches)):
                if before.key in files:
                    files.add((after.path, after.dv_id))
        moved = [removed.key for removed in winner.removes if not removed.data_change]
        for search in self._searches if moved else ():
            if not search.files.isdisjoint(moved):
                search.files.update((added.path, added.dv_id) for added in winner.adds if not added.data_change)

    def _ignores_adds(self, winner: Winner) -> bool:
        return self._level == "write_serializable" and winner.is_blind_append and not self._changes_metadata

    def _would_have_read(self, added: Added, before: Removed | None) -> bool:
        if before is not None and (self._reads.whole_table or before.key in self._reads.files):
            return False  # a read file that changed, not a new one
        return self._reads.whole_table or any(predicate.could_match(added) for predicate in self._reads.predicates)

    def _vector_change(self, before: Removed, after: Added) -> RowsChanged | None:
        is_checked = self._level != "snapshot"
        rows = RowsChanged("vector", before.path, before.dv_id, after.dv_id, is_mine=before.key in self._files)
        return _testable(rows, [search for search in self._searches if is_checked and search.needs_test(before)])


def _testable(rows: RowsChanged, searches: Sequence[_Search]) -> RowsChanged | None:
    """Return the rows with the reads that must not match them; None if one of the reads cannot be evaluated on rows."""
    if any(search.read.row_filter is None for search in searches):
        return None
    return replace(rows, tested_by=tuple(search.place for search in searches))


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


def _changed_by_vector(mine: TableCommit | None, reads: Reads) -> set[str]:
    """Return the paths of files that get another vector, by a statement that searched them for rows.

    Other vectors were staged as raw actions: what they delete is not known to be rows of their own.
    """
    if mine is None or not reads.rows:
        return set()
    removed = {action.path: action.key for action in mine.actions if isinstance(action, RemoveFile)}
    return {
        action.path
        for action in mine.actions
        if isinstance(action, AddFile)
        and (key := removed.get(action.path)) is not None
        and any(key in read.files for read in reads.rows)
    }


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
    "Obstacle",
    "Reads",
    "Removed",
    "RowRead",
    "RowsChanged",
    "Verdict",
    "Winner",
    "evidence",
    "find_conflict",
    "find_conflicts",
    "is_blind_append",
    "level_of",
]
