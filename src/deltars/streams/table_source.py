"""A table as a stream: its rows as of a version, then those of each later version, file by file.

    offset {version: 7, index: 2, snapshot}       two files of the snapshot at version 7 are delivered
    offset {version: 9, index: 0, complete}       everything up to version 9 is delivered

    next_offset(start, limit) ──▶ as far as the limit, the target, or a version that the stream cannot read
    files(start, end) ──▶ the same files every time: versions do not change, so a batch can be repeated

Every row is read in the schema that the table had when the stream was opened. A version with a schema that does not fit
ends the stream, after everything before it is delivered. Compaction moves rows and changes none: it adds nothing here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import pyarrow as pa

from deltars.catalog.table import Table
from deltars.data.changes import ChangePart
from deltars.data.scan import SCAN_COLUMNS, Scan, files_of
from deltars.errors import DeltarsError, HistoryExpired, ValidationError, VersionNotFound, located
from deltars.log.new_table import NO_VERSION
from deltars.log.snapshot import Snapshot
from deltars.protocol import AddFile, Metadata, RemoveFile
from deltars.store.read.committed_versions import CommittedVersion
from deltars.streams.options import Options
from deltars.streams.schema_change import refuse_unreadable

MAX_FILES = 1000
"""Default of maxFilesPerTrigger, as Delta has it."""

_NEW_CHECKPOINT = "Start it again with a new checkpoint"


@dataclass(frozen=True, slots=True)
class Offset:
    """Everything before it is delivered."""

    table_id: str
    version: int
    commit_ts: int | None
    """Time stamp of the version. After the database was restored, another commit may have the same number."""
    index: int = 0
    """How many files of the version, or of the snapshot at the version, are delivered."""
    complete: bool = False
    """Whether the version is delivered as a whole."""
    snapshot: bool = False

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Offset:
        try:
            return cls(**document)
        except TypeError:
            raise ValidationError(
                f"the checkpoint has an offset of another source: {dict(document)!r:.200}",
                field="checkpointLocation",
                hint="Give the query a new checkpoint.",
            ) from None


@dataclass(frozen=True, slots=True)
class ReadSize:
    """How much one batch may read. At least one file is read."""

    files: int | None = None
    size_bytes: int | None = None

    @classmethod
    def of(cls, options: Options) -> ReadSize:
        files, size_bytes = options.number("maxFilesPerTrigger", 1), options.size("maxBytesPerTrigger")
        return cls(MAX_FILES if files is None and size_bytes is None else files, size_bytes)

    def take(self, files: pa.Table, begin: int, taken: ReadSize) -> int:
        """Return up to which file of a version this and `taken` leave room."""
        count, size_bytes = taken.files or 0, taken.size_bytes or 0
        at = begin
        for size in files["size"].slice(begin).to_pylist():
            is_first = count == 0
            count, size_bytes = count + 1, size_bytes + size
            over = (self.files is not None and count > self.files) or (
                self.size_bytes is not None and size_bytes > self.size_bytes
            )
            if over and not is_first:
                break
            at += 1
        return at


@dataclass(frozen=True, slots=True)
class _Part:
    """Files of one version, or of the snapshot."""

    end: Offset
    """Offset when all are delivered."""
    files: pa.Table


class TableSource:
    """Source of the rows of one table. `schema_at` is the version whose schema the rows have."""

    is_divisible: ClassVar[bool] = True
    """Whether a batch can end in the middle of a version."""

    def __init__(self, table: Table, options: Options, schema_at: int) -> None:
        self._table = table
        self._session = table._session
        self._options = options
        self._opened: Snapshot = table.snapshot(schema_at)
        self._target: int | None = None
        for one, other in (("startingVersion", "startingTimestamp"), ("ignoreChanges", "skipChangeCommits")):
            if options.text(one) is not None and options.text(other) is not None:
                raise ValidationError(f"{one} and {other} exclude each other", field=one)
        self._skips_changes, self._ignores_changes = options.flag("skipChangeCommits"), options.flag("ignoreChanges")
        self._ignores_deletes = options.flag("ignoreDeletes")

    # -- offsets ---------------------------------------------------------------------------------------------------

    def initial(self) -> Offset:
        """Return the offset where a new stream begins."""
        with located(table=self._table.name):
            version, moment = self._options.text("startingVersion"), self._options.moment("startingTimestamp")
            if version is None and moment is None:
                return self._offset(self._opened.version, complete=False, snapshot=True)
            if version == "latest":
                return self._offset(self._table.version)
            if version is not None:
                first = self._options.number("startingVersion")
                assert first is not None
            else:
                assert moment is not None
                # Raises for a time before the history that is kept: rows would be missing.
                first = self._session.reader.first_version_since(self._table.id, moment)
            if first > self._table.version + 1:
                raise VersionNotFound(
                    f"there is no version {first} to begin with",
                    latest=self._table.version,
                    field="startingVersion",
                    hint=f"The newest version is {self._table.version}.",
                )
            return self._offset(first - 1)

    def stop_at_current(self) -> None:
        """Deliver nothing that is committed after this call."""
        self._target = self._table.version

    def newest(self) -> Offset:
        return self._offset(self._table.version)

    def next_offset(self, start: Offset, limit: ReadSize) -> Offset:
        """Return the end of the next batch: `start` itself if there is nothing to deliver.

        Raise if the first version after `start` cannot be delivered.
        """
        end, taken = start, ReadSize(0, 0)
        try:
            for part in self._parts(start, None):
                begin = start.index if _is_same(part.end, start) else 0
                at = limit.take(part.files, begin, taken)
                if at < part.files.num_rows and (self.is_divisible or end != start):
                    return _partial(part.end, at) if self.is_divisible and at > begin else end
                sizes = part.files["size"].slice(begin).to_pylist()
                taken = ReadSize((taken.files or 0) + len(sizes), (taken.size_bytes or 0) + sum(sizes))
                end = part.end
        except DeltarsError:
            if end == start:
                raise
            # The next batch raises it.
        return end

    # -- files -----------------------------------------------------------------------------------------------------

    def scans(self, start: Offset, end: Offset) -> list[ChangePart]:
        """Return the files between two offsets, in the stream's schema."""
        files = [files_of(())]
        for part in self._parts(start, end):
            begin = start.index if _is_same(part.end, start) else 0
            stop = end.index if _is_same(part.end, end) else part.files.num_rows
            files.append(part.files.slice(begin, max(0, stop - begin)))
        scan = Scan.of(
            self._opened.metadata,
            pa.concat_tables(files),
            root=self._table.location,
            table=self._table.name,
            version=end.version,
            storage_options=self._session.settings.storage_options,
        )
        return [ChangePart("files", scan)]

    def _parts(self, start: Offset, end: Offset | None) -> Iterator[_Part]:
        """Yield what comes after `start`, version by version, up to `end`, the target or the current version."""
        with located(table=self._table.name):
            self._check_same_table(start)
            first = start.version + (1 if start.complete or start.snapshot else 0)
            try:
                if start.snapshot and not start.complete:
                    yield self._snapshot_part(start)
                last = self._last() if end is None else end.version
                if first > last:
                    return
                metadata = self._metadata_before(first)
                for version in self._session.reader.changes(self._table.id, first, last):
                    metadata = _metadata_in(version) or metadata
                    files = self._files_of(version, metadata)
                    yield _Part(Offset(start.table_id, version.version, version.commit_ts, complete=True), files)
            except HistoryExpired as error:
                raise _history_gone(error, first) from error

    def _last(self) -> int:
        current = self._table.version
        return current if self._target is None else min(current, self._target)

    def _snapshot_part(self, start: Offset) -> _Part:
        snapshot = self._session.reader.snapshot(self._table.id, start.version)
        refuse_unreadable(snapshot.metadata, self._opened, snapshot.version)
        columns = ("version", *SCAN_COLUMNS)
        files = snapshot.select_files(columns=columns)
        # The database may return them in any order, and the index counts them.
        order = [("version", "ascending"), ("path", "ascending"), ("deletion_vector", "ascending")]
        end = Offset(start.table_id, start.version, start.commit_ts, complete=True, snapshot=True)
        return _Part(end, files.sort_by(order).select(SCAN_COLUMNS))

    def _files_of(self, version: CommittedVersion, metadata: Metadata) -> pa.Table:
        """Return the files that a version adds to the stream. Raise if the version does more than that."""
        adds = [action for action in version.actions if isinstance(action, AddFile) and action.data_change]
        removes = {
            action.path: action for action in version.actions if isinstance(action, RemoveFile) and action.data_change
        }
        if removes and version.operation != "RESTORE":
            adds = [add for add in adds if not _deletes_only(add, removes.get(add.path))]
        if removes and (self._skips_changes or (adds and not self._ignores_changes) or not self._may_delete):
            if not self._skips_changes:
                raise self._refused_change(version, bool(adds))
            adds = []
        if adds or version.version > self._opened.version:
            refuse_unreadable(metadata, self._opened, version.version)
        return files_of(adds)

    @property
    def _may_delete(self) -> bool:
        return self._ignores_deletes or self._ignores_changes

    def _refused_change(self, version: CommittedVersion, adds: bool) -> ValidationError:
        what = "changes rows" if adds else "deletes rows"
        also = "" if adds else ' .option("ignoreDeletes", "true") ignores deletions only.'
        return ValidationError(
            f"version {version.version} ({version.operation}) {what}, and a stream of a table delivers new rows only",
            version=version.version,
            field="skipChangeCommits",
            hint='To leave such versions out, start the query again with .option("skipChangeCommits", "true"); to get'
            f' their changes, with .option("readChangeFeed", "true") and a new checkpoint.{also}',
        )

    # -- the table -------------------------------------------------------------------------------------------------

    def _offset(self, version: int, *, complete: bool = True, snapshot: bool = False) -> Offset:
        return Offset(str(self._table.id), version, self._commit_ts(version), 0, complete, snapshot)

    def _commit_ts(self, version: int) -> int | None:
        if version == NO_VERSION:
            return None
        try:
            commit = self._session.reader.snapshot(self._table.id, version).commit
        except HistoryExpired:
            # The first version that is kept can be the next one.
            return None
        return None if commit is None else commit[1]

    def _check_same_table(self, start: Offset) -> None:
        if start.table_id != str(self._table.id):
            raise ValidationError(
                "the checkpoint belongs to another table, with another id; this one has its name",
                field="checkpointLocation",
                hint="Give the query a new checkpoint.",
            )
        if start.version > self._table.version:
            raise VersionNotFound(
                f"the stream has delivered version {start.version}, and the table is at version {self._table.version}:"
                " the database was restored or failed over",
                latest=self._table.version,
                field="checkpointLocation",
                hint=f"{_NEW_CHECKPOINT} and startingVersion.",
            )
        found = self._commit_ts(start.version)
        if start.commit_ts is not None and found is not None and found != start.commit_ts:
            raise VersionNotFound(
                f"version {start.version}, which the stream has delivered, was replaced by another commit: the database"
                " was restored or failed over",
                latest=self._table.version,
                field="checkpointLocation",
                hint=f"{_NEW_CHECKPOINT} and startingVersion.",
            )

    def _metadata_before(self, first: int) -> Metadata:
        """Return the metadata before a version or, if that is expired, at the version."""
        try:
            return self._session.reader.snapshot(self._table.id, max(first - 1, 0)).metadata
        except HistoryExpired:
            return self._session.reader.snapshot(self._table.id, first).metadata


def _is_same(one: Offset, other: Offset) -> bool:
    """Return whether two offsets are in the same version, or in the same snapshot."""
    return (one.version, one.snapshot) == (other.version, other.snapshot) and not other.complete


def _partial(end: Offset, at: int) -> Offset:
    return Offset(end.table_id, end.version, end.commit_ts, at, False, end.snapshot)


def _metadata_in(version: CommittedVersion) -> Metadata | None:
    return next((action for action in version.actions if isinstance(action, Metadata)), None)


def _deletes_only(add: AddFile, removed: RemoveFile | None) -> bool:
    """Return whether an add action only gives a file a larger deletion vector: it adds no row."""
    if removed is None or add.deletion_vector is None:
        return False
    before = removed.deletion_vector
    return before is None or before.cardinality <= add.deletion_vector.cardinality


def _history_gone(error: HistoryExpired, first: int) -> DeltarsError:
    return HistoryExpired(
        f"the stream must go on with version {first}, and that version is expired: rows would be missing",
        since=error.since,
        earliest=error.earliest,
        latest=error.latest,
        field="checkpointLocation",
        hint=f"{_NEW_CHECKPOINT}: it begins with the rows of the table as they are, or with startingVersion"
        f" {error.earliest} or later. Keep history for longer than streams stand still.",
    )
