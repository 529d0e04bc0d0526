"""Changes: the rows that versions of a table changed, and those of every table, transaction by transaction.

    table.changes(3, 7)         ──▶ Changes ──▶ read(), to_arrow(), …       rows, each with its change type and version
    catalog.changes(since)      ──▶ TransactionChanges, in commit order ──▶ one Changes for each table that it wrote

What a version changed comes from its change data feed if it has one, else from the files that it added and removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

import pyarrow as pa

from deltars.arguments import checks_calls
from deltars.data import frames
from deltars.data.changes import ChangedVersion, ChangeScans, change_scans
from deltars.data.scan import SCAN_COLUMNS
from deltars.errors import ValidationError, located
from deltars.log.moments import from_microseconds, parse_moment, to_milliseconds
from deltars.log.new_table import NO_VERSION
from deltars.log.snapshot import HistoryEntry, Snapshot, as_whole
from deltars.log.version_changes import ChangedFile, VersionChanges, version_changes
from deltars.protocol import Metadata, StructType
from deltars.protocol.actions import decode_deletion_vector, decode_partition_values
from deltars.session import CatalogSession, TableLike
from deltars.store.read.as_of import AsOf
from deltars.store.registry import TableRecord
from deltars.transaction.html import html_table
from deltars.transaction.plane import spark_plane

if TYPE_CHECKING:
    import pandas
    import polars
    from pyspark.sql import DataFrame, SparkSession

VersionOrMoment: TypeAlias = int | AsOf
"""A version of the table, a time, or a tag or a transaction of the catalog."""


@checks_calls
class Changes:
    """Rows that some versions of a table changed, made by `table.changes()`.

    Rows have the columns of the last of these versions, and three more, as Delta names them: `_change_type` (insert,
    delete, update_preimage, update_postimage), `_commit_version` and `_commit_timestamp`. Nothing is read before one of
    the methods below is called; each reads again.
    """

    def __init__(self, session: CatalogSession, table: TableRecord, start: int, end: int) -> None:
        self._session = session
        self._table = table
        self._start = start
        self._end = end

    @property
    def table(self) -> str:
        """Name of the table."""
        return self._table.name

    @property
    def start(self) -> int:
        """First version."""
        return self._start

    @property
    def end(self) -> int:
        """Last version. If it is before the first, there are no changes."""
        return self._end

    @property
    def schema(self) -> StructType:
        return self._scans.schema

    def read(self, *, spark: SparkSession | None = None) -> DataFrame:
        """Return the rows as a Spark DataFrame, in no particular order. `spark` is the active session by default."""
        plane = spark_plane()
        with located(table=self.table):
            return plane.read_changes(spark, self._scans)

    def to_arrow_batch_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream of record batches, in the order of the versions."""
        with located(table=self.table):
            return self._scans.read()

    def to_arrow(self) -> pa.Table:
        """Return the rows as a pyarrow table, in the order of the versions."""
        return self.to_arrow_batch_reader().read_all()

    def to_pandas(self) -> pandas.DataFrame:
        """Return the rows as a pandas DataFrame."""
        return frames.as_pandas(self.to_arrow_batch_reader())

    def to_polars(self) -> polars.DataFrame:
        """Return the rows as a Polars DataFrame."""
        return frames.as_polars(self.to_arrow_batch_reader())

    def to_duckdb(self, connection: Any = None) -> Any:
        """Return the rows as a relation of this DuckDB connection, by default of DuckDB's default connection."""
        return frames.as_duckdb(self.to_arrow_batch_reader(), connection)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the rows for any library that takes Arrow streams."""
        return self.to_arrow_batch_reader().__arrow_c_stream__(requested_schema)

    @cached_property
    def _scans(self) -> ChangeScans:
        reader, table = self._session.reader, self._table
        last = reader.snapshot(table.table_id, self._end if self._end >= self._start else None)
        return change_scans(
            self._versions(),
            last.metadata,
            root=table.location,
            table=table.name,
            version=last.version,
            storage_options=self._session.settings.storage_options,
        )

    def _versions(self) -> Iterator[ChangedVersion]:
        if self._end < self._start:
            return
        reader, table_id = self._session.reader, self._table.table_id
        metadata: Metadata | None = None
        for found in reader.changes(table_id, self._start, self._end):
            actions = list(found.actions)
            metadata = next((action for action in actions if isinstance(action, Metadata)), metadata)
            if metadata is None:
                metadata = reader.snapshot(table_id, found.version).metadata
            yield ChangedVersion(found.version, found.in_commit_timestamp, metadata, version_changes(actions))

    def __repr__(self) -> str:
        return f"<Changes of {self.table}, versions {self.start} to {self.end}>"

    def __reduce__(self) -> tuple[Callable[..., Changes], tuple[CatalogSession, TableRecord, int, int]]:
        return Changes, (self._session, self._table, self._start, self._end)


class _InitialChanges(Changes):
    """The rows of a table at one version, as rows that this version inserted."""

    def _versions(self) -> Iterator[ChangedVersion]:
        yield initial_version(self._session.reader.snapshot(self._table.table_id, self._end))

    def __reduce__(self) -> tuple[Callable[..., Changes], tuple[CatalogSession, TableRecord, int, int]]:
        return _InitialChanges, (self._session, self._table, self._start, self._end)


@dataclass(frozen=True, slots=True)
class TransactionChanges:
    """What one transaction changed, made by `catalog.changes()`."""

    txn_id: UUID
    commit_ts: int = field(repr=False)
    """Time of the commit in microseconds since 1970. Transactions are ordered by it."""
    committer: str | None
    user_metadata: str | None
    tables: Mapping[str, Changes]
    """Changed rows of each table that the transaction wrote, by the table's name."""

    @property
    def committed_at(self) -> datetime:
        return from_microseconds(self.commit_ts)

    def _repr_html_(self) -> str:
        rows = [(name, changes.start) for name, changes in self.tables.items()]
        return html_table(f"transaction {self.txn_id} of {self.committed_at.isoformat()}", ("table", "version"), rows)


def changes_between(session: CatalogSession, table: TableRecord, after: int, until: int) -> Changes:
    """Return the rows that the versions after `after`, up to `until`, changed. `after` may be −1."""
    return Changes(session, table, after + 1, until)


def initial_changes(session: CatalogSession, table: TableRecord, version: int) -> Changes:
    """Return the rows of a table at a version, as rows that were inserted. Its history is not needed."""
    return _InitialChanges(session, table, version, version)


def initial_version(snapshot: Snapshot) -> ChangedVersion:
    """Return a version that inserts every row of a snapshot."""
    files = snapshot.select_files(columns=SCAN_COLUMNS)
    inserted = (
        ChangedFile(
            file["path"],
            file["size"],
            file["modification_time"],
            decode_partition_values(file["partition_values"]),
            None if file["deletion_vector"] is None else decode_deletion_vector(file["deletion_vector"]),
        )
        for file in files.to_pylist()
    )
    timestamp_ms = to_milliseconds(snapshot.timestamp)
    return ChangedVersion(snapshot.version, timestamp_ms, snapshot.metadata, VersionChanges(inserted=tuple(inserted)))


def changes_of_table(
    session: CatalogSession, table: TableRecord, start: VersionOrMoment, end: VersionOrMoment | None
) -> Changes:
    """Return the rows that the versions from `start` to `end`, by default the current one, changed."""
    reader, table_id = session.reader, table.table_id
    current = reader.snapshot(table_id, is_living=True).version
    last = current if end is None else _last_version(session, table_id, end, current)
    first = _first_version(session, table_id, start)
    if first > current + 1 or (first > last + 1 and isinstance(start, int) and isinstance(end, int)):
        raise ValidationError(
            f"start is version {first}, after version {last}, the last one that is read",
            field="start",
            hint=f"The table's current version is {current}.",
        )
    if first <= last:
        # Raises if the versions do not exist any more.
        reader.changes(table_id, first, last)
    return Changes(session, table, first, max(last, first - 1))


def _first_version(session: CatalogSession, table_id: UUID, start: VersionOrMoment) -> int:
    match _resolved(session, start, "start"):
        case int() as version:
            return version
        case datetime() as moment:
            return session.reader.first_version_since(table_id, moment)
        case _:
            return _version_in(session, table_id, start) + 1


def _last_version(session: CatalogSession, table_id: UUID, end: VersionOrMoment, current: int) -> int:
    match _resolved(session, end, "end"):
        case int() as version:
            # Raises if there is no such version.
            return version if version == current else session.reader.snapshot(table_id, version).version
        case datetime() as moment:
            return session.reader.snapshot(table_id, timestamp=moment).version
        case _:
            return _version_in(session, table_id, end)


def _resolved(session: CatalogSession, given: VersionOrMoment, name: str) -> object:
    """Return a version as an integer and a time as a `datetime`. Anything else is a tag or a transaction."""
    if not isinstance(given, str | UUID | date) and hasattr(given, "__index__"):
        return as_whole(given, "a version", field=name, hint="history() lists the versions of the table.")
    meant = session.cut_finder.resolve(given)
    return parse_moment(meant) or meant


def _version_in(session: CatalogSession, table_id: UUID, as_of: Any) -> int:
    """Return the table's version in a cut; −1 if it was not there yet."""
    cut = session.cut(as_of)
    session.refuse_expired(cut, table_id)
    found = cut.find(table_id)
    return NO_VERSION if found is None else found.version


def catalog_changes(
    session: CatalogSession, since: AsOf, tables: Sequence[TableLike] | None
) -> list[TransactionChanges]:
    """Return what the transactions after a tag, a transaction or a time changed, in the order of their commits."""
    began = session.cut(since)
    newest = session.cuts.newest_us()
    # As of the newest commit: one that is stamped earlier, and not yet visible, is waited for.
    ended = began if newest is None else session.cuts.at(newest, timeout_s=session.settings.timeout)
    chosen = session.find_ids(tables)
    found: dict[UUID, list[tuple[TableRecord, HistoryEntry]]] = {}
    for record in session.registry.tables():
        table_id = record.table_id
        now = ended.find(table_id)
        if now is None or (chosen is not None and table_id not in chosen):
            continue
        session.refuse_expired(began, table_id)
        before = began.find(table_id)
        after = NO_VERSION if before is None else before.version
        if now.version > after:
            # Raises if the versions do not exist any more.
            session.reader.changes(table_id, after + 1, now.version)
            for entry in session.reader.history(table_id, since=after + 1):
                if entry.version <= now.version:
                    found.setdefault(entry.txn_id, []).append((record, entry))
    return sorted((_of_transaction(session, each) for each in found.values()), key=lambda one: one.commit_ts)


def _of_transaction(session: CatalogSession, entries: Sequence[tuple[TableRecord, HistoryEntry]]) -> TransactionChanges:
    versions: dict[UUID, tuple[TableRecord, list[int]]] = {}
    for record, entry in entries:
        versions.setdefault(record.table_id, (record, []))[1].append(entry.version)
    one = entries[0][1]
    tables = {
        # Versions of one import may share a transaction.
        record.name: Changes(session, record, min(of_table), max(of_table))
        for record, of_table in versions.values()
    }
    commit_ts = max(entry.commit_ts for _, entry in entries)
    return TransactionChanges(one.txn_id, commit_ts, one.committer, one.user_metadata, dict(sorted(tables.items())))


__all__ = ["Changes", "TransactionChanges", "VersionOrMoment", "catalog_changes", "changes_between", "changes_of_table"]
