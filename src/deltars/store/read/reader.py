"""Reading the log: what a table is at a version, and how it came to be. Nothing here can write.

    snapshot ──▶ one look-up: version, metadata, protocol ──▶ Snapshot ──▶ contents.py, for whoever asks for files
    history  ──▶ the commits, newest first
    changes, transaction ──▶ changes.py

Readers wait for nobody and nobody waits for them: what they ask for are committed rows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from datetime import datetime
from functools import cached_property
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import (
    JSON,
    BigInteger,
    ColumnElement,
    Connection,
    FromClause,
    Select,
    Table,
    Text,
    and_,
    bindparam,
    cast,
    func,
    select,
)

from deltars.errors import TableNotFound, TimestampTooEarly, ValidationError, VersionNotFound
from deltars.log.commit import NO_VERSION
from deltars.log.snapshot import (
    FILE_SCHEMA,
    HistoryEntry,
    Moment,
    Snapshot,
    as_whole,
    from_milliseconds,
    to_milliseconds,
)
from deltars.log.transaction_id import TxnId, as_txn_id
from deltars.protocol import Metadata, Protocol
from deltars.store.backends import Backend, Prepared
from deltars.store.database import Readable
from deltars.store.read.committed_versions import (
    CommittedTransaction,
    CommittedVersion,
    committed_transaction,
    stream_versions,
)
from deltars.store.read.live_files import TableContents, live_files
from deltars.store.rows import from_row
from deltars.store.schema import dl_metadata_updates, dl_protocol_updates, dl_table_versions, dl_tables

_versions = dl_table_versions.c
_tables = dl_tables.c

_METADATA = tuple(column for column in dl_metadata_updates.c if column.name not in ("table_id", "version", "ord"))
_PROTOCOL = tuple(column for column in dl_protocol_updates.c if column.name not in ("table_id", "version", "ord"))
_STANDING = (
    _tables.current_version,
    _tables.slot,
    _versions.version,
    _versions.in_commit_timestamp,
    cast(_versions.txn_id, Text),
    _versions.commit_ts,
    dl_metadata_updates.c.version.label("metadata_version"),
)

_WITHOUT_LIMIT = "Leave it out for all of them."


class LogReader:
    def __init__(self, database: Readable) -> None:
        self._database = database

    def current_version(self, table_id: UUID) -> int:
        """−1 before the first commit."""
        with self._database.read() as connection:
            return _current_version(connection, table_id)

    def history(
        self, table_id: UUID, *, limit: int | None = None, since: int | Moment | None = None
    ) -> list[HistoryEntry]:
        """The commits of a table, newest first: the newest `limit`, and none older than the version or time `since`."""
        count = None if limit is None else _as_limit(limit)
        first = start_ms = None
        if isinstance(since, datetime | str):
            start_ms = to_milliseconds(since, up=True)
        elif since is not None:
            first = _as_version(since, "since")
        with self._database.read() as connection:
            if start_ms is not None:
                first = _first_since(connection, table_id, start_ms)
            rows = connection.execute(newest_first(table_id, count, first)).all()
            if not rows:
                _current_version(connection, table_id)
        return [HistoryEntry(*row) for row in rows]

    def snapshot(
        self,
        table_id: UUID,
        version: int | None = None,
        *,
        timestamp: Moment | None = None,
        commit_ts: int | None = None,
    ) -> Snapshot:
        """The table at a version, at a time, or now. The files are fetched when they are asked for.

        At a time it is the last version whose in-commit timestamp is not later. With `commit_ts` it is the version that
        was committed then, or an error: a database that was restored may have another one of the same number.
        """
        if timestamp is not None:
            if version is not None:
                raise ValidationError("version and timestamp exclude each other", table_id=table_id)
            version = self._version_at(table_id, timestamp)
        elif version is not None:
            version = _as_version(version, "version", hint="A time goes to timestamp=.")
        statement = self._open_current if version is None else self._open_version
        rows = self._database.look_up(statement, {"table_id": str(table_id), "version": version})
        if not rows:
            raise _no_table(table_id)
        current, slot, found, milliseconds, txn_id, committed, metadata_version, *rest = rows[0]
        if found is None:
            raise self._no_version(table_id, version, current)
        if commit_ts is not None and committed != commit_ts:
            raise VersionNotFound(
                f"the table has another version {found} than the one that was asked for:"
                " the database was restored, or failed over, since",
                table_id=table_id,
                latest=current,
                field="version",
                hint="Begin anew: take a new snapshot, or begin a new transaction.",
            )
        metadata = _decoded(dl_metadata_updates, _METADATA, rest[: len(_METADATA)])
        protocol = _decoded(dl_protocol_updates, _PROTOCOL, rest[len(_METADATA) :])
        assert isinstance(metadata, Metadata)
        assert isinstance(protocol, Protocol)
        contents = TableContents(self._database, table_id, found, slot, metadata, metadata_version)
        commit = (txn_id, committed)
        return Snapshot(table_id, found, from_milliseconds(milliseconds), metadata, protocol, contents, commit)

    def changes(self, table_id: UUID, from_version: int, to_version: int | None = None) -> Iterator[CommittedVersion]:
        """What each version did, oldest first, from one version to another or to the current one, both included."""
        from_version = _as_version(from_version, "from_version")
        to_version = None if to_version is None else _as_version(to_version, "to_version")
        with self._database.read() as connection:
            current = _current_version(connection, table_id)
            earliest = _earliest_version(connection, table_id)
        last = current if to_version is None else to_version
        for version in (from_version, last):
            if earliest is None or not earliest <= version <= current:
                raise _version_not_found(table_id, version, earliest, current)
        return stream_versions(self._database, table_id, from_version, last)

    def transaction(self, txn_id: TxnId) -> CommittedTransaction | None:
        """What one transaction did, over all its tables; None where nothing was committed under this id."""
        key = as_txn_id(txn_id)
        with self._database.read() as connection:
            return committed_transaction(connection, key)

    @cached_property
    def _open_current(self) -> Prepared:
        return self._database.backend.prepare(open_current(self._database.backend))

    @cached_property
    def _open_version(self) -> Prepared:
        return self._database.backend.prepare(open_version(self._database.backend))

    def _version_at(self, table_id: UUID, timestamp: Moment) -> int:
        milliseconds = to_milliseconds(timestamp)
        with self._database.read() as connection:
            versions = _all_versions(connection, table_id)
            if not versions:
                raise _version_not_found(table_id, None, None, NO_VERSION)
            count = _count_until(connection, table_id, versions, milliseconds)
            if count == 0:
                first = from_milliseconds(_timestamp_of(connection, table_id, versions[0]))
                raise TimestampTooEarly(
                    f"the table has no version of {from_milliseconds(milliseconds).isoformat()} or before",
                    earliest=first,
                    table_id=table_id,
                    field="timestamp",
                    hint=f"Its first version, {versions[0]}, is of {first.isoformat()}.",
                )
        return versions[count - 1]

    def _no_version(self, table_id: UUID, version: int | None, current: int) -> VersionNotFound:
        with self._database.read() as connection:
            return _version_not_found(table_id, version, _earliest_version(connection, table_id), current)


def open_current(backend: Backend) -> Select[Any]:
    """A table's current version and slot, with that version's time, metadata and protocol."""
    current = _tables.current_version
    # Not `dl_tables.protocol_version`: that of a table that is held names none.
    return _opened(backend, current, _tables.metadata_version, _last(dl_protocol_updates, current))


def open_version(backend: Backend) -> Select[Any]:
    """The same of a version that is given: the last metadata and protocol up to there."""
    wanted: ColumnElement[int] = cast(bindparam("version", type_=BigInteger), BigInteger)
    return _opened(backend, wanted, *(_last(table, wanted) for table in (dl_metadata_updates, dl_protocol_updates)))


def _opened(
    backend: Backend, version: ColumnElement[int], metadata: ColumnElement[int], protocol: ColumnElement[int]
) -> Select[Any]:
    """Every join is a look-up in a primary key. Versions beyond the current one are of an import under way."""
    joined: FromClause = dl_tables
    at = ((dl_table_versions, version), (dl_metadata_updates, metadata), (dl_protocol_updates, protocol))
    for table, key in at:
        there = table.c.version <= _tables.current_version
        joined = joined.outerjoin(table, and_(table.c.table_id == _tables.table_id, table.c.version == key, there))
    table_id = backend.id_of(bindparam("table_id", type_=Text()))
    return select(*_STANDING, *_METADATA, *_PROTOCOL).select_from(joined).where(_tables.table_id == table_id)


def _last(table: Table, wanted: ColumnElement[int]) -> ColumnElement[int]:
    older = table.alias()
    last = select(func.max(older.c.version)).where(older.c.table_id == _tables.table_id, older.c.version <= wanted)
    return last.correlate(dl_tables).scalar_subquery()


def newest_first(table_id: UUID, limit: int | None = None, first: int | None = None) -> Select[Any]:
    """The commits of a table, in falling order; without those of an import under way, which nobody may see yet."""
    columns = [_versions[name] for name in HistoryEntry.__dataclass_fields__]
    falling = _versions.version.desc().nulls_last()
    current = select(_tables.current_version).where(_tables.table_id == table_id).scalar_subquery()
    there = and_(_versions.table_id == table_id, _versions.version <= current)
    query = select(*columns).where(there).order_by(falling).limit(limit)
    return query if first is None else query.where(_versions.version >= first)


def _decoded(table: Table, columns: tuple[Any, ...], values: list[Any]) -> Any:
    """The action of a row whose documents are text."""
    row = {
        column.name: msgspec.json.decode(value) if isinstance(column.type, JSON) and value is not None else value
        for column, value in zip(columns, values, strict=True)
    }
    return from_row(table.name, row)


def _as_version(value: Any, field: str, hint: str = "history() has those there are.") -> int:
    return as_whole(value, "a version", field=field, hint=hint)


def _as_limit(value: Any) -> int:
    limit = as_whole(value, "a limit", field="limit", hint=_WITHOUT_LIMIT)
    if limit < 0:
        raise ValidationError(f"a limit of {limit} commits cannot be", field="limit", hint=_WITHOUT_LIMIT)
    return limit


def _first_since(connection: Connection, table_id: UUID, milliseconds: int) -> int:
    versions = _all_versions(connection, table_id)
    return versions.start + _count_until(connection, table_id, versions, milliseconds - 1)


def _all_versions(connection: Connection, table_id: UUID) -> range:
    """The versions of a table: there is no gap between the earliest and the current one."""
    current = _current_version(connection, table_id)
    earliest = _earliest_version(connection, table_id)
    return range(0) if earliest is None else range(earliest, current + 1)


def _count_until(connection: Connection, table_id: UUID, versions: range, milliseconds: int) -> int:
    """How many versions are of that time or before: their in-commit timestamps rise, so a few look-ups tell."""
    return bisect_right(versions, milliseconds, key=lambda version: _timestamp_of(connection, table_id, version))


def _timestamp_of(connection: Connection, table_id: UUID, version: int) -> int:
    query = select(_versions.in_commit_timestamp).where(_versions.table_id == table_id, _versions.version == version)
    milliseconds: int = connection.execute(query).scalar_one()
    return milliseconds


def _earliest_version(connection: Connection, table_id: UUID) -> int | None:
    query = select(func.min(_versions.version)).where(_versions.table_id == table_id)
    earliest: int | None = connection.execute(query).scalar_one()
    return earliest


def _current_version(connection: Connection, table_id: UUID) -> int:
    query = select(_tables.current_version).where(_tables.table_id == table_id)
    version: int | None = connection.execute(query).scalar_one_or_none()
    if version is None:
        raise _no_table(table_id)
    return version


def _no_table(table_id: UUID) -> TableNotFound:
    return TableNotFound("no such table in this catalog", table_id=table_id)


def _version_not_found(table_id: UUID, version: int | None, earliest: int | None, current: int) -> VersionNotFound:
    if earliest is None or current == NO_VERSION:
        return VersionNotFound("nothing was committed to the table yet", table_id=table_id, field="version")
    return VersionNotFound(
        f"there is no version {version}",
        earliest=earliest,
        latest=current,
        table_id=table_id,
        field="version",
        hint=f"The table has the versions {earliest} to {current}.",
    )


__all__ = ["FILE_SCHEMA", "LogReader", "live_files", "newest_first", "open_current", "open_version"]
