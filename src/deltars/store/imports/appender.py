"""Collector of imported rows: version by version, written in large batches.

    actions of a version ──▶ rows of their tables ┐
    … of the next                                 ├─ when there are many ──▶ one SQL transaction,
    a version's own row, when it is complete      ┘                          while the next batch is collected

A file that is added and removed within one batch is inserted with both versions at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec
import pyarrow as pa
from sqlalchemy import JSON, BigInteger, Boolean, Connection, Integer, Table, Text, bindparam, func, select
from sqlalchemy import Column as SaColumn

from deltars.errors import DamagedLog, LogDiverged, VersionConflict
from deltars.log.bounds import Bounds
from deltars.log.foreign_version import ForeignVersion
from deltars.log.new_table import NO_VERSION
from deltars.log.read_set import FileKey
from deltars.protocol import Action, AddFile, Metadata, Protocol, RemoveFile, StructType
from deltars.store import schema
from deltars.store.commit.bulk import AddBatches, PastPlacement, Placement, columns_of
from deltars.store.commit.statements import end_live_rows
from deltars.store.database import Database
from deltars.store.imports.table_hold import HELD, lock_row
from deltars.store.mirror.records import FOREIGN
from deltars.store.mirror.status import MirrorState
from deltars.store.rows import TABLE_OF, Row, to_row
from deltars.store.schema import dl_add_files, dl_mirror_log, dl_table_versions, dl_transactions

FLUSH_ROWS = 20_000
TIMEOUT_S = 600.0

LATER = 2**62
"""`commit_ts` of a copied version that is not visible yet; it is later than every cut."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FILE_KEY = tuple(SaColumn(name, dl_add_files.c[name].type) for name in ("table_id", "version", "path", "dv_id"))


@dataclass(frozen=True, slots=True)
class HeldTable:
    """State of a table whose log is being copied."""

    table_id: UUID
    name: str
    location: str
    slot: int
    state: MirrorState
    is_held: bool
    current_version: int
    """Last visible version."""
    last_version: int
    last_timestamp_ms: int
    last_digest: str | None
    last_txn_id: UUID | None
    metadata: Metadata | None
    protocol: Protocol | None


@dataclass(slots=True)
class _Files:
    """Added files with the same layout of bounds, and the position of each."""

    bounds: Bounds
    adds: list[AddFile] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    ords: list[int] = field(default_factory=list)
    removed_versions: list[int | None] = field(default_factory=list)

    def put(self, version: int, place: int, add: AddFile) -> int:
        """Add a file, and return its index."""
        self.adds.append(add)
        self.versions.append(version)
        self.ords.append(place)
        self.removed_versions.append(None)
        return len(self.adds) - 1


@dataclass(slots=True)
class _Batch:
    """Rows to write in one transaction."""

    rows: dict[str, list[Row]] = field(default_factory=dict)
    files: list[_Files] = field(default_factory=list)
    live: dict[FileKey, tuple[_Files, int]] = field(default_factory=dict)
    """Files that this batch adds."""
    ended: dict[FileKey, int] = field(default_factory=dict)
    """Files of earlier batches that this batch ends, and the version that ends each."""
    columns: list[tuple[AddBatches, Placement]] = field(default_factory=list)
    count: int = 0

    def files_with(self, bounds: Bounds) -> _Files:
        if not self.files or self.files[-1].bounds is not bounds:
            self.files.append(_Files(bounds))
        return self.files[-1]

    def put(self, table: str, row: Row) -> None:
        self.rows.setdefault(table, []).append(row)
        self.count += 1


class Appender:
    """Collector that takes the actions of version after version and writes them in batches."""

    def __init__(self, database: Database, table: HeldTable) -> None:
        self._database = database
        self._backend = database.backend
        self._table = table
        self._batch = _Batch()
        self._after = table.last_version
        self._next = table.last_version
        self._timestamp_ms = table.last_timestamp_ms
        # One thread, so transactions run one after the other; each is written while the next batch is read.
        self._thread = ThreadPoolExecutor(1, "deltars-import")
        self._writing: Future[None] | None = None
        self._bounds = Bounds(StructType()) if table.metadata is None else _bounds(table.metadata)
        self._end = database.backend.prepare(
            end_live_rows(self._backend, self._backend.rows(bindparam("ended", type_=Text()), _FILE_KEY))
        )

    def add(self, version: int, actions: Iterable[tuple[int, Action]]) -> None:
        """Add actions of one version, with their positions in it."""
        placed = list(actions)
        for _, action in placed:
            if isinstance(action, Metadata):
                self._bounds = _bounds(action)
        key = {"table_id": str(self._table.table_id), "version": version}
        for place, action in placed:
            if isinstance(action, AddFile):
                self._add_file(version, place, action)
                continue
            if isinstance(action, RemoveFile):
                self._end_file(action.key, version)
            self._batch.put(TABLE_OF[type(action)], key | {"ord": place} | to_row(action, self._bounds))
        self._flush_if_full()

    def add_files(self, version: int, first_place: int, files: pa.Table) -> None:
        """Add the files of a checkpoint, as columns. They are the first files of the table, so they end no other."""
        place = Placement(self._table.table_id, version, first_place, self._table.slot, None)
        self._batch.columns.append((AddBatches(files, self._bounds, self._backend), place))
        self._batch.count += files.num_rows
        self._flush_if_full()

    def complete(self, about: ForeignVersion) -> None:
        """Complete a version, after all its actions were added."""
        # Timestamps rise in the catalog even if a writer's clock was set back.
        self._timestamp_ms = max(about.timestamp_ms, self._timestamp_ms + 1)
        self._next = about.version
        key = {"table_id": str(self._table.table_id), "version": about.version}
        self._batch.put(
            dl_table_versions.name,
            key
            | {
                "committed_at": _instant(self._timestamp_ms),
                "commit_ts": LATER if about.commit_ts is None else about.commit_ts,
                "in_commit_timestamp": self._timestamp_ms,
                "txn_id": str(about.txn_id),
                "committer": about.committer,
                "operation": about.operation,
                "operation_params": about.operation_params,
                "read_version": about.read_version,
                "isolation": about.isolation,
                "is_blind_append": about.is_blind_append,
                "metrics": about.metrics,
                "user_metadata": about.user_metadata,
            },
        )
        if about.digest is not None:
            self._batch.put(
                dl_mirror_log.name,
                key
                | {
                    "published_at": self._timestamp_ms * 1000,
                    "digest": f"{FOREIGN}{about.digest}" if about.commit_ts is None else about.digest,
                },
            )
        if about.commit_ts is not None:
            self._batch.put(
                dl_transactions.name,
                {
                    "txn_id": str(about.txn_id),
                    "outcome": "committed",
                    "commit_ts": about.commit_ts,
                    "committer": about.committer,
                    "user_metadata": about.user_metadata,
                    "participants": dict(about.participants),
                },
            )
        self._flush_if_full()

    def flush(self) -> None:
        """Write everything that was added so far."""
        self._send()
        self._await()

    def __enter__(self) -> Appender:
        return self

    def __exit__(self, *_: object) -> None:
        # Wait for the running write, so that nothing runs after the import has ended or failed.
        self._thread.shutdown()

    def _send(self) -> None:
        """Start writing the batch; the next one is collected meanwhile."""
        batch, self._batch = self._batch, _Batch()
        self._await()
        if batch.count:
            self._writing = self._thread.submit(copy_context().run, self._write, batch, self._next)

    def _await(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def _write(self, batch: _Batch, last: int) -> None:
        with self._database.write(TIMEOUT_S) as connection:
            row = lock_row(connection, self._database, self._table.table_id)
            if row.protocol_version != HELD:
                raise LogDiverged(
                    "another process ended the hold on the table during the import",
                    table=self._table.name,
                    table_id=self._table.table_id,
                )
            self._refuse_others(connection)
            # The files of a checkpoint are loaded first, because a later version may end them. Those of commits are
            # loaded last: otherwise a file that is added again would be ended itself.
            for columns, place in batch.columns:
                self._backend.load(connection, dl_add_files, columns.rows(place))
            if batch.ended:
                self._backend.run(connection, self._end, {"ended": self._ended(batch)})
            for files in batch.files:
                self._backend.load(connection, dl_add_files, self._rows(files))
            for name in sorted(batch.rows):
                self._insert(connection, schema.metadata.tables[name], batch.rows[name])
        self._after = last

    def _flush_if_full(self) -> None:
        if self._batch.count >= FLUSH_ROWS:
            self._send()

    def _add_file(self, version: int, place: int, add: AddFile) -> None:
        key = add.key
        self._end_file(key, version)
        files = self._batch.files_with(self._bounds)
        self._batch.live[key] = files, files.put(version, place, add)
        self._batch.count += 1

    def _end_file(self, key: FileKey, version: int) -> None:
        """End a live file at this version, which removes it or adds it again."""
        files, number = self._batch.live.pop(key, (None, 0))
        if files is None:
            # Before the first version is complete, no file is live.
            if self._next != NO_VERSION:
                self._batch.ended.setdefault(key, version)
        elif files.versions[number] == version:
            raise DamagedLog(f"the file {key[0]} occurs twice in one commit", version=version)
        else:
            files.removed_versions[number] = version

    def _ended(self, batch: _Batch) -> str:
        table_id = str(self._table.table_id)
        return msgspec.json.encode(
            [
                {"table_id": table_id, "version": version, "path": path, "dv_id": dv_id}
                for (path, dv_id), version in batch.ended.items()
            ]
        ).decode()

    def _rows(self, files: _Files) -> Iterator[pa.RecordBatch]:
        where = PastPlacement(
            self._table.table_id, self._table.slot, files.versions, files.ords, files.removed_versions
        )
        return AddBatches(columns_of(files.adds), files.bounds, self._backend).rows(where)

    def _insert(self, connection: Connection, table: Table, rows: Sequence[Row]) -> None:
        if table is dl_transactions:
            # Several tables of one transaction have the same transaction row.
            statement = self._backend.insert_unless_present(table)
            connection.execute(statement, [{c.name: row.get(c.name) for c in table.c} for row in rows])
        else:
            self._backend.load(connection, table, [_record_batch(table, rows)])

    def _refuse_others(self, connection: Connection) -> None:
        """Raise VersionConflict if another process imports the same table."""
        versions = dl_table_versions.c
        there = connection.execute(
            select(func.max(versions.version)).where(versions.table_id == self._table.table_id)
        ).scalar_one()
        there = NO_VERSION if there is None else there
        if there != self._after:
            raise VersionConflict(
                "another process is importing the table",
                table=self._table.name,
                table_id=self._table.table_id,
                expected=self._after,
                actual=there,
            )


def _record_batch(table: Table, rows: Sequence[Row]) -> pa.RecordBatch:
    """Return rows as columns, with documents as text, as `Backend.load` needs them. Files are loaded as columns."""
    arrays, names = [], []
    for column in table.c:
        values = [row.get(column.name) for row in rows]
        match column.type:
            case BigInteger() | Integer():
                array = pa.array(values, pa.int64())
            case Boolean():
                array = pa.array(values, pa.bool_())
            case JSON():
                array = pa.array([None if v is None else msgspec.json.encode(v).decode() for v in values], pa.string())
            case _:
                array = pa.array(values, pa.string())
        arrays.append(array)
        names.append(column.name)
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _bounds(metadata: Metadata) -> Bounds:
    return Bounds(metadata.schema, metadata.partition_columns, metadata.configuration)


def _instant(milliseconds: int) -> str:
    return (_EPOCH + timedelta(milliseconds=milliseconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
