"""Settling of conflicts by rows: a commit that lost a race tries again if others changed other rows only.

    store ──VersionTaken, with obstacles──▶ settle, no lock held ──┬──▶ Commit, as of the version found ──▶ store again
                                                                  └──▶ VersionTaken: the conflict stands

    added file        read the columns of the condition; no row matches
    removed file      the same, of the rows that it held
    vector changed    the winner deleted other rows than this transaction changes; unite both vectors, and write one

The obstacles are everything that prevents a commit after the version found: the store checked every commit up to it by
every rule. So the reads may count as made at that version once all of them are settled, and never before. Commits that
come in between are checked in the next round, from there on.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple, cast
from uuid import UUID

import msgspec
import pyarrow as pa
from pyroaring import BitMap64

from deltars.data.deletion_vectors import read_vector
from deltars.data.reader import RowFilter, read_placed
from deltars.data.scan import Scan
from deltars.data.vector_writer import write_vectors
from deltars.errors import DeltarsError
from deltars.log.commit import Commit, Conflict, Obstacle, RowsChanged, TableCommit, TableRead, VersionTaken
from deltars.log.file_rules import num_records
from deltars.log.read_set import FileKey
from deltars.protocol import Action, AddFile, DeletionVector, RemoveFile
from deltars.storage import Storage, open_storage
from deltars.transaction.view import View

MAX_ROUNDS = 5
"""Tries for each table. Where others commit faster than rows can be read, the conflict is raised."""

MAX_FILES = 32
"""Most data files that are read in a round."""

MAX_BYTES = 64 * 2**20
"""Most bytes of the data files that are read in a round. Only the columns of conditions are read of them."""

MAX_VECTORS = 256
"""Most changes of vectors that are compared in a round."""

_log = logging.getLogger(__name__)


class Settler:
    """Settles the conflicts of one transaction. It is called after each try that the store refused."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._rounds: Counter[UUID] = Counter()

    def __call__(self, commit: Commit, taken: VersionTaken) -> Commit | VersionTaken:
        """Return the commit to try next, or the conflict that stands."""
        self._rounds[taken.table_id] += 1
        if self._rounds[taken.table_id] > MAX_ROUNDS:
            return taken
        try:
            return _Round(self._view, commit, taken).settled()
        except _Stands as stands:
            return replace(taken, conflict=stands.conflict)
        except DeltarsError as error:
            _log.warning("a conflict of transaction %s could not be settled: %s", commit.txn_id, error)
            return taken


class _Stands(Exception):
    """Raised where a conflict cannot be settled."""

    def __init__(self, conflict: Conflict) -> None:
        self.conflict = conflict


class _VectorChange(NamedTuple):
    before: RemoveFile
    after: AddFile


class _Round:
    """One round for one table."""

    def __init__(self, view: View, commit: Commit, taken: VersionTaken) -> None:
        table = view.find(taken.table_id)
        assert table is not None
        assert table.metadata is not None
        self._view = view
        self._table = table
        self._metadata = table.metadata
        self._commit = commit
        self._taken = taken
        self._mine = next((one for one in commit.tables if one.table_id == taken.table_id), None)
        self._actions: dict[int, Sequence[AddFile | RemoveFile]] = {}
        self._num_files = self._num_bytes = self._num_vectors = 0

    def settled(self) -> Commit:
        """Return the commit as of the version found. Raise `_Stands` if an obstacle cannot be settled."""
        united: dict[str, tuple[DeletionVector | None, BitMap64]] = {}
        # Rows that both change come first: that takes no data file to find, and says more than that a new row matches.
        for obstacle in sorted(self._taken.obstacles, key=lambda one: not (one.unless and one.unless.is_mine)):
            match obstacle.unless:
                case RowsChanged(kind="vector") as rows:
                    change, deleted = self._vector_change(obstacle, rows)
                    self._test(obstacle, rows, change.before, deleted)
                    if rows.is_mine:
                        united[rows.path] = self._united(obstacle, rows.path, change.after, deleted)
                case RowsChanged(kind="added", path=path, new_dv_id=dv_id) as rows:
                    self._test(obstacle, rows, self._file(obstacle, AddFile, (path, dv_id)))
                case RowsChanged(path=path, old_dv_id=dv_id) as rows:
                    self._test(obstacle, rows, self._file(obstacle, RemoveFile, (path, dv_id)))
                case None:
                    raise _Stands(obstacle.conflict)
        return self._advanced(self._replaced(united))

    # -- rows ------------------------------------------------------------------------------------------------------

    def _test(
        self, obstacle: Obstacle, rows: RowsChanged, file: AddFile | RemoveFile, only: BitMap64 | None = None
    ) -> None:
        """Raise `_Stands` if a read that the rows must be tested by matches a row of the file."""
        if not rows.tested_by:
            return
        self._num_files += 1
        self._num_bytes += file.size or 0
        if self._num_files > MAX_FILES or self._num_bytes > MAX_BYTES:
            raise _Stands(obstacle.conflict)
        scan = self._scan(file)
        for place in rows.tested_by:
            row_filter = cast(RowFilter, self._taken.reads.rows[place].row_filter)
            # Rows without a column cannot be counted, so a condition without one reads the first.
            columns = sorted(row_filter.columns) or [scan.schema.fields[0].name]
            part = None if only is None else {0: only}
            found = read_placed(scan, columns=columns, row_filter=row_filter, only=part)
            if any(placed.rows.num_rows for placed in found):
                raise _Stands(obstacle.conflict)

    def _scan(self, file: AddFile | RemoveFile) -> Scan:
        vector = file.deletion_vector
        columns = {
            "path": [file.path],
            "size": [file.size],
            "modification_time": [0],
            "partition_values": [msgspec.json.encode(file.partition_values).decode()],
            "deletion_vector": pa.array([msgspec.json.encode(vector).decode() if vector else None], pa.string()),
        }
        return Scan.of(
            self._metadata,
            pa.table(columns),
            root=self._table.location,
            table=self._table.name,
            version=self._taken.actual,
            storage_options=self._view.session.settings.storage_options,
        )

    # -- vectors ---------------------------------------------------------------------------------------------------

    def _vector_change(self, obstacle: Obstacle, rows: RowsChanged) -> tuple[_VectorChange, BitMap64]:
        """Return a winner's change of a vector, and the rows that it deleted."""
        self._num_vectors += 1
        if self._num_vectors > MAX_VECTORS:
            raise _Stands(obstacle.conflict)
        before = self._file(obstacle, RemoveFile, (rows.path, rows.old_dv_id), needs_size=bool(rows.tested_by))
        after = self._file(obstacle, AddFile, (rows.path, rows.new_dv_id))
        assert isinstance(before, RemoveFile)
        assert isinstance(after, AddFile)
        old, new = self._rows(before.deletion_vector), self._rows(after.deletion_vector)
        if old - new:
            raise _Stands(obstacle.conflict)  # rows came back, and they may match
        return _VectorChange(before, after), new - old

    def _united(
        self, obstacle: Obstacle, path: str, theirs: AddFile, deleted: BitMap64
    ) -> tuple[DeletionVector | None, BitMap64]:
        """Return the vector that a winner left, and its rows with those that this transaction deletes."""
        remove, add = self._my_vector_change(path)
        mine = self._rows(add.deletion_vector) - self._rows(remove.deletion_vector)
        if both := mine & deleted:
            version = obstacle.conflict.version
            many = "a row" if len(both) == 1 else f"{len(both)} rows"
            reason = f"version {version} changed {many} of {path} that this transaction changes too"
            raise _Stands(replace(obstacle.conflict, reason=reason))
        return theirs.deletion_vector, self._rows(theirs.deletion_vector) | mine

    def _my_vector_change(self, path: str) -> tuple[RemoveFile, AddFile]:
        assert self._mine is not None
        [remove] = [one for one in self._mine.actions if isinstance(one, RemoveFile) and one.path == path]
        [add] = [one for one in self._mine.actions if isinstance(one, AddFile) and one.path == path]
        return remove, add

    def _replaced(self, united: dict[str, tuple[DeletionVector | None, BitMap64]]) -> TableCommit | None:
        """Return this table's part of the commit with the united vectors."""
        if self._mine is None or not united:
            return self._mine
        left = {path: rows for path, (_, rows) in united.items() if len(rows) < self._num_rows(path)}
        vectors = write_vectors(self._storage, left)

        def replaced(action: Action) -> Iterator[Action]:
            match action:
                case RemoveFile(path=path) if path in united:
                    yield msgspec.structs.replace(action, deletion_vector=united[path][0])
                case AddFile(path=path) if path in united:
                    # Without a row that is left the file is removed only.
                    if path in vectors:
                        yield msgspec.structs.replace(action, deletion_vector=vectors[path])
                case _:
                    yield action

        return replace(
            self._mine,
            actions=[one for action in self._mine.actions for one in replaced(action)],
            row_groups=[group for group in self._mine.row_groups if group.path not in united or group.path in vectors],
        )

    def _num_rows(self, path: str) -> int:
        count = num_records(self._my_vector_change(path)[1].stats)
        assert count is not None, "a file with a deletion vector has numRecords"
        return count

    def _rows(self, vector: DeletionVector | None) -> BitMap64:
        return BitMap64() if vector is None else read_vector(self._storage, vector)

    @cached_property
    def _storage(self) -> Storage:
        return open_storage(self._table.location, self._view.session.settings.storage_options)

    # -- the log ---------------------------------------------------------------------------------------------------

    def _file(
        self, obstacle: Obstacle, kind: type[AddFile] | type[RemoveFile], key: FileKey, *, needs_size: bool = True
    ) -> AddFile | RemoveFile:
        """Return a winner's action on a file. Raise `_Stands` if it does not say how to read the file."""
        found = [one for one in self._actions_of(obstacle.conflict.version) if isinstance(one, kind) and one.key == key]
        # A remove action of another writer need not have the file's size and partition values.
        if not found or (needs_size and (found[0].size is None or found[0].partition_values is None)):
            raise _Stands(obstacle.conflict)
        return found[0]

    def _actions_of(self, version: int) -> Sequence[AddFile | RemoveFile]:
        if version not in self._actions:
            [committed] = self._view.session.reader.changes(self._taken.table_id, version, version)
            self._actions[version] = _files_of(committed.actions)
        return self._actions[version]

    def _advanced(self, mine: TableCommit | None) -> Commit:
        """Return the commit with everything of this table as of the version found."""
        taken, commit = self._taken, self._commit
        assert taken.head is not None
        tables = [one if mine is None or one.table_id != mine.table_id else mine for one in commit.tables]
        return replace(
            commit,
            tables=[
                replace(one, expected_version=taken.actual) if one.table_id == taken.table_id else one for one in tables
            ],
            read={**commit.read, taken.table_id: TableRead(taken.actual, taken.reads)},
            bases={**commit.bases, taken.table_id: taken.head},
        )


def _files_of(actions: Iterable[Action]) -> Sequence[AddFile | RemoveFile]:
    return [action for action in actions if isinstance(action, AddFile | RemoveFile)]
