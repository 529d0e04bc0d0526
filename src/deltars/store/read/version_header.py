"""Header of a table version: its commit, metadata and protocol, read in one look-up.

    VersionHeaders.current(table) ──▶ the version that dl_tables names as current  ┐
    VersionHeaders.at(table, 7)   ──▶ version 7 with the last metadata and         ├─▶ VersionHeader
                                      protocol up to it                            ┘

Versions beyond the current one belong to an unfinished import and are not found. Versions below the first one kept are
expired (`store/expiry.py`). The row in `dl_table_versions` says whether a version can be read: it is the first row of a
version that goes, before any row that the version needs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    FromClause,
    Select,
    Table,
    Text,
    and_,
    bindparam,
    case,
    cast,
    func,
    select,
)

from deltars.errors import HistoryExpired, TableNotFound, VersionNotFound
from deltars.log.commit import Base
from deltars.log.moments import from_milliseconds
from deltars.log.new_table import NO_VERSION
from deltars.protocol import Action, Metadata, Protocol
from deltars.remembered import Remembered
from deltars.store.backends import Backend, Prepared
from deltars.store.cursor_rows import PlainRows
from deltars.store.database import Readable
from deltars.store.rows import from_row
from deltars.store.schema import (
    dl_maintenance,
    dl_metadata_updates,
    dl_protocol_updates,
    dl_table_versions,
    dl_tables,
)

_versions = dl_table_versions.c
_tables = dl_tables.c

_KEY = ("table_id", "version", "ord")
_METADATA = PlainRows(column for column in dl_metadata_updates.c if column.name not in _KEY)
_PROTOCOL = PlainRows(column for column in dl_protocol_updates.c if column.name not in _KEY)
_COMMIT: tuple[ColumnElement[Any], ...] = (
    _tables.current_version,
    _tables.slot,
    _versions.version,
    _versions.in_commit_timestamp,
    cast(_versions.txn_id, Text),
    _versions.commit_ts,
    dl_metadata_updates.c.version.label("metadata_version"),
    # A number, because databases return different things for true.
    case((_tables.dropped_at.is_(None), 0), else_=1).label("is_dropped"),
)


MAX_REMEMBERED = 10_000


class VersionHeader(NamedTuple):
    current_version: int
    """Current version of the table, which may be a later one."""
    slot: int
    version: int
    in_commit_timestamp: int
    txn_id: str
    commit_ts: int
    metadata_version: int
    is_dropped: int
    metadata: Metadata
    protocol: Protocol


class VersionHeaders:
    """Reader of version headers of one database."""

    def __init__(self, database: Readable) -> None:
        self._database = database
        self._known = Remembered[UUID, VersionHeader](MAX_REMEMBERED)
        """Last header of each table that was read or followed."""

    def known(self, table_id: UUID, version: int, commit_ts: int) -> VersionHeader | None:
        """Return the header of a version that was committed then, if it is remembered.

        It does not say whether the database still has the version: it may have been restored meanwhile.
        """
        known = self._known.get(table_id)
        return known if known is not None and (known.version, known.commit_ts) == (version, commit_ts) else None

    def follow(self, table_id: UUID, base: Base, txn_id: UUID, commit_ts: int) -> None:
        """Note the version after `base`, which changed neither metadata nor protocol."""
        known = self.known(table_id, base.version, base.commit_ts)
        if known is None:
            return
        following = known._replace(
            current_version=base.version + 1,
            version=base.version + 1,
            in_commit_timestamp=max(commit_ts // 1000, known.in_commit_timestamp + 1),
            txn_id=str(txn_id),
            commit_ts=commit_ts,
        )
        self.remember(table_id, following)

    def remember(self, table_id: UUID, header: VersionHeader) -> None:
        self._known[table_id] = header

    def current(self, table_id: UUID) -> VersionHeader:
        return self._read(self._statement(open_current), table_id, None)

    def at(self, table_id: UUID, version: int) -> VersionHeader:
        return self._read(self._statement(open_version), table_id, version)

    def _read(self, statement: Prepared, table_id: UUID, version: int | None) -> VersionHeader:
        rows = self._database.look_up(statement, {"table_id": str(table_id), "version": version})
        if not rows:
            raise no_table(table_id)
        row = rows[0]
        commit, actions = row[: len(_COMMIT)], row[len(_COMMIT) :]
        if commit[2] is None:
            with self._database.read() as connection:
                raise version_not_found(connection, table_id, version, commit[0])
        columns = len(_METADATA.columns)
        metadata = from_row(dl_metadata_updates.name, _METADATA.read(actions[:columns]))
        protocol = from_row(dl_protocol_updates.name, _PROTOCOL.read(actions[columns:]))
        assert isinstance(metadata, Metadata)
        assert isinstance(protocol, Protocol)
        return VersionHeader._make((*commit, metadata, protocol))

    def _statement(self, build: Callable[[Backend], Select[Any]]) -> Prepared:
        backend = self._database.backend
        return backend.prepared_once(build, lambda: build(backend))


def open_current(backend: Backend) -> Select[Any]:
    """Return the query for the header of a table's current version."""
    current = _tables.current_version
    # `dl_tables.protocol_version` cannot be used: for a held table it is a mark and not a version.
    return _header(backend, current, _tables.metadata_version, _last(dl_protocol_updates, current))


def open_version(backend: Backend) -> Select[Any]:
    """Return the query for the header of a given version: the last metadata and protocol up to it."""
    wanted: ColumnElement[int] = cast(bindparam("version", type_=BigInteger), BigInteger)
    return _header(backend, wanted, *(_last(table, wanted) for table in (dl_metadata_updates, dl_protocol_updates)))


def newest_metadata(connection: Connection, table_id: UUID, up_to: int | None = None) -> tuple[int, Metadata | None]:
    """Return the newest metadata up to a version, and the version that set it; (−1, None) if there is none.

    Unlike a header, this includes the versions of an unfinished import.
    """
    version, metadata = _newest(connection, dl_metadata_updates, table_id, up_to)
    assert metadata is None or isinstance(metadata, Metadata)
    return version, metadata


def newest_protocol(connection: Connection, table_id: UUID, up_to: int | None = None) -> tuple[int, Protocol | None]:
    """Return the newest protocol up to a version, and the version that set it; see `newest_metadata`."""
    version, protocol = _newest(connection, dl_protocol_updates, table_id, up_to)
    assert protocol is None or isinstance(protocol, Protocol)
    return version, protocol


def earliest_version(connection: Connection, table_id: UUID) -> int | None:
    """Return the first version of the history; none is missing after it. Tags may keep single versions before it."""
    kept_from = first_version(connection, table_id)
    if kept_from > 0:
        return kept_from
    query = select(func.min(_versions.version)).where(_versions.table_id == table_id)
    earliest: int | None = connection.execute(query).scalar_one()
    return earliest


def first_version(connection: Connection, table_id: UUID) -> int:
    """Return the version below which the history was expired; 0 if it was not."""
    query = select(dl_maintenance.c.first_version).where(dl_maintenance.c.table_id == table_id)
    return connection.execute(query).scalar_one_or_none() or 0


def no_table(table_id: UUID) -> TableNotFound:
    return TableNotFound("no such table in this catalog", table_id=table_id)


def version_not_found(
    connection: Connection, table_id: UUID, version: int | None, current: int | None = None
) -> VersionNotFound:
    """Return the error for a version that the catalog does not have."""
    if current is None:
        current = connection.scalar(select(_tables.current_version).where(_tables.table_id == table_id))
    earliest = earliest_version(connection, table_id)
    if earliest is None or current is None or current == NO_VERSION:
        return VersionNotFound("nothing was committed to the table yet", table_id=table_id, field="version")
    if version is not None and 0 <= version < first_version(connection, table_id):
        return history_expired(connection, table_id, f"version {version} is expired", current=current)
    return VersionNotFound(
        f"there is no version {version}",
        earliest=earliest,
        latest=current,
        table_id=table_id,
        field="version",
        hint=f"The table has the versions {earliest} to {current}.",
    )


def history_expired(
    connection: Connection, table_id: UUID, message: str, *, field: str = "version", current: int | None = None
) -> HistoryExpired:
    """Return the error for a version or a time before the history that is kept."""
    earliest = earliest_version(connection, table_id)
    query = select(_versions.in_commit_timestamp).where(_versions.table_id == table_id, _versions.version == earliest)
    milliseconds = connection.scalar(query)
    since = None if milliseconds is None else from_milliseconds(milliseconds)
    begin = f"version {earliest}" + (f", of {since.isoformat()}" if since is not None else "")
    return HistoryExpired(
        message,
        since=since,
        earliest=earliest,
        latest=current,
        table_id=table_id,
        field=field,
        hint=f"The history begins with {begin}. Read that version or a later one. A tag keeps a version for longer.",
    )


def _header(
    backend: Backend, version: ColumnElement[int], metadata: ColumnElement[int], protocol: ColumnElement[int]
) -> Select[Any]:
    """Return the query for a header. Every join is a look-up in a primary key."""
    joined: FromClause = dl_tables
    at = ((dl_table_versions, version), (dl_metadata_updates, metadata), (dl_protocol_updates, protocol))
    for table, key in at:
        is_visible = table.c.version <= _tables.current_version
        joined = joined.outerjoin(table, and_(table.c.table_id == _tables.table_id, table.c.version == key, is_visible))
    table_id = backend.id_of(bindparam("table_id", type_=Text()))
    columns = (*_COMMIT, *_METADATA.columns, *_PROTOCOL.columns)
    return select(*columns).select_from(joined).where(_tables.table_id == table_id)


def _newest(connection: Connection, table: Table, table_id: UUID, up_to: int | None) -> tuple[int, Action | None]:
    query = select(table).where(table.c.table_id == table_id).order_by(table.c.version.desc()).limit(1)
    rows = query if up_to is None else query.where(table.c.version <= up_to)
    row = connection.execute(rows).mappings().one_or_none()
    return (NO_VERSION, None) if row is None else (row["version"], from_row(table.name, row))


def _last(table: Table, wanted: ColumnElement[int]) -> ColumnElement[int]:
    older = table.alias()
    last = select(func.max(older.c.version)).where(older.c.table_id == _tables.table_id, older.c.version <= wanted)
    return last.correlate(dl_tables).scalar_subquery()
