"""Reader of the log: snapshots, history and changes of tables. It cannot write.

    snapshot             ──▶ version_header: version, metadata, protocol ──▶ Snapshot ──▶ live_files, fetched on demand
    history              ──▶ the commits, newest first
    changes, transaction ──▶ committed_versions

Readers read committed rows only: they wait for no writer, and no writer waits for them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Select, and_, select

from deltars.errors import TimestampTooEarly, ValidationError, VersionNotFound
from deltars.log.commit import Commit, Committed
from deltars.log.moments import Moment, from_milliseconds, to_milliseconds
from deltars.log.new_table import NO_VERSION
from deltars.log.snapshot import HistoryEntry, Snapshot, as_whole
from deltars.log.transaction_id import TxnId, as_txn_id
from deltars.protocol import Metadata, Protocol
from deltars.store.database import Readable
from deltars.store.names import was_dropped
from deltars.store.read.committed_versions import CommittedTransaction, CommittedVersion, CommittedVersions
from deltars.store.read.live_files import TableContents
from deltars.store.read.version_header import (
    VersionHeaders,
    earliest_version,
    first_version,
    history_expired,
    no_table,
    version_not_found,
)
from deltars.store.schema import dl_table_versions, dl_tables

_versions = dl_table_versions.c
_tables = dl_tables.c

_WITHOUT_LIMIT = "Leave limit out to get every commit."


class LogReader:
    """Reader of the tables of one database."""

    def __init__(self, database: Readable) -> None:
        self._database = database
        self._headers = VersionHeaders(database)
        self._committed = CommittedVersions(database)

    def current_version(self, table_id: UUID) -> int:
        """Return the current version of a table; −1 before the first commit."""
        with self._database.read() as connection:
            return _current_version(connection, table_id)

    def history(
        self, table_id: UUID, *, limit: int | None = None, since: int | Moment | None = None
    ) -> list[HistoryEntry]:
        """Return the commits of a table, newest first: at most `limit`, and none before the version or time `since`."""
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
        is_living: bool = False,
    ) -> Snapshot:
        """Return the table at a version, at a time, or now. Its files are fetched on demand.

        At a time, this is the last version whose in-commit timestamp is not later. With `commit_ts`, raise
        VersionNotFound unless the version was committed then: after a restore, the same number may belong to another
        commit. With `is_living`, raise TableNotFound for a table that was dropped.
        """
        if timestamp is not None:
            if version is not None:
                raise ValidationError("version and timestamp exclude each other", table_id=table_id)
            version = self._version_at(table_id, timestamp)
        elif version is not None:
            version = _as_version(version, "version", hint="A time goes to timestamp=, a tag to as_of=.")
        found = self._headers.current(table_id) if version is None else self._headers.at(table_id, version)
        if is_living and found.is_dropped:
            raise was_dropped(table_id)
        if commit_ts is not None and found.commit_ts != commit_ts:
            raise VersionNotFound(
                f"version {found.version} of the table was replaced since it was read:"
                " the database was restored or failed over",
                table_id=table_id,
                latest=found.current_version,
                field="version",
                hint="Take a new snapshot, or begin a new transaction.",
            )
        self._headers.remember(table_id, found)
        contents = TableContents(
            self._database, table_id, found.version, found.slot, found.metadata, found.metadata_version
        )
        return Snapshot(
            table_id,
            found.version,
            from_milliseconds(found.in_commit_timestamp),
            found.metadata,
            found.protocol,
            contents,
            (found.txn_id, found.commit_ts),
        )

    def known_state(self, table_id: UUID, version: int, commit_ts: int) -> tuple[Metadata, Protocol] | None:
        """Return metadata and protocol of a version that was committed then, if they are remembered.

        Its files must not be read without a look-up: the database may have been restored meanwhile.
        """
        known = self._headers.known(table_id, version, commit_ts)
        return None if known is None else (known.metadata, known.protocol)

    def follow(self, commit: Commit, committed: Committed) -> None:
        """Note the version that a commit made, so that the next transaction need not look it up."""
        if len(commit.tables) != 1 or commit.is_repeatable:
            return
        [table] = commit.tables
        base = commit.bases.get(table.table_id)
        is_next = base is not None and committed.versions.get(table.table_id) == base.version + 1
        if base is not None and is_next and not any(isinstance(one, (Metadata, Protocol)) for one in table.actions):
            self._headers.follow(table.table_id, base, committed.txn_id, committed.commit_ts)

    def changes(self, table_id: UUID, from_version: int, to_version: int | None = None) -> Iterator[CommittedVersion]:
        """Yield the versions from `from_version` to `to_version` or the current one, both included, oldest first."""
        from_version = _as_version(from_version, "from_version")
        to_version = None if to_version is None else _as_version(to_version, "to_version")
        with self._database.read() as connection:
            current = _current_version(connection, table_id)
            earliest = earliest_version(connection, table_id)
            for version in (from_version, current if to_version is None else to_version):
                if earliest is None or not earliest <= version <= current:
                    raise version_not_found(connection, table_id, version, current)
        last = current if to_version is None else to_version
        return self._committed.stream(table_id, from_version, last)

    def transaction(self, txn_id: TxnId) -> CommittedTransaction | None:
        """Return what one transaction committed to each of its tables; None if this id was not committed."""
        return self._committed.transaction(as_txn_id(txn_id))

    def is_expired(self, table_id: UUID, version: int) -> bool:
        """Return whether a version is before the history that is kept."""
        with self._database.read() as connection:
            return version < first_version(connection, table_id)

    def first_version_since(self, table_id: UUID, timestamp: Moment) -> int:
        """Return the first version at or after a time; the next version if there is none yet.

        Raise `HistoryExpired` for a time before the history that is kept.
        """
        milliseconds = to_milliseconds(timestamp, up=True)
        with self._database.read() as connection:
            first = _first_since(connection, table_id, milliseconds)
            kept_from = first_version(connection, table_id)
            if first == kept_from > 0 and milliseconds < _timestamp_of(connection, table_id, first):
                message = f"changes since {from_milliseconds(milliseconds).isoformat()} are expired"
                raise history_expired(connection, table_id, message, field="timestamp")
        return first

    def _version_at(self, table_id: UUID, timestamp: Moment) -> int:
        milliseconds = to_milliseconds(timestamp)
        with self._database.read() as connection:
            versions = _all_versions(connection, table_id)
            if not versions:
                raise version_not_found(connection, table_id, None, NO_VERSION)
            count = _count_until(connection, table_id, versions, milliseconds)
            if count == 0 and first_version(connection, table_id) > 0:
                moment = from_milliseconds(milliseconds).isoformat()
                message = f"the table's version at {moment} is expired"
                raise history_expired(connection, table_id, message, field="timestamp", current=versions[-1])
            if count == 0:
                first = from_milliseconds(_timestamp_of(connection, table_id, versions[0]))
                raise TimestampTooEarly(
                    f"the table has no version at or before {from_milliseconds(milliseconds).isoformat()}",
                    earliest=first,
                    table_id=table_id,
                    field="timestamp",
                    hint=f"Its first version, {versions[0]}, was committed at {first.isoformat()}.",
                )
        return versions[count - 1]


def newest_first(table_id: UUID, limit: int | None = None, first: int | None = None) -> Select[Any]:
    """Return the query for the commits of a table, newest first, without those of an unfinished import."""
    columns = [_versions[name] for name in HistoryEntry.__dataclass_fields__]
    falling = _versions.version.desc().nulls_last()
    current = select(_tables.current_version).where(_tables.table_id == table_id).scalar_subquery()
    is_visible = and_(_versions.table_id == table_id, _versions.version <= current)
    query = select(*columns).where(is_visible).order_by(falling).limit(limit)
    return query if first is None else query.where(_versions.version >= first)


def _as_version(value: Any, field: str, hint: str = "history() lists the versions of the table.") -> int:
    return as_whole(value, "a version", field=field, hint=hint)


def _as_limit(value: Any) -> int:
    limit = as_whole(value, "a limit", field="limit", hint=_WITHOUT_LIMIT)
    if limit < 0:
        raise ValidationError(f"limit must be 0 or more, got {limit}", field="limit", hint=_WITHOUT_LIMIT)
    return limit


def _first_since(connection: Connection, table_id: UUID, milliseconds: int) -> int:
    versions = _all_versions(connection, table_id)
    return versions.start + _count_until(connection, table_id, versions, milliseconds - 1)


def _all_versions(connection: Connection, table_id: UUID) -> range:
    """Return the versions of a table; there is no gap between the earliest and the current one."""
    current = _current_version(connection, table_id)
    earliest = earliest_version(connection, table_id)
    return range(0) if earliest is None else range(earliest, current + 1)


def _count_until(connection: Connection, table_id: UUID, versions: range, milliseconds: int) -> int:
    """Return the number of versions at or before a time, by binary search: in-commit timestamps only rise."""
    return bisect_right(versions, milliseconds, key=lambda version: _timestamp_of(connection, table_id, version))


def _timestamp_of(connection: Connection, table_id: UUID, version: int) -> int:
    query = select(_versions.in_commit_timestamp).where(_versions.table_id == table_id, _versions.version == version)
    milliseconds: int = connection.execute(query).scalar_one()
    return milliseconds


def _current_version(connection: Connection, table_id: UUID) -> int:
    query = select(_tables.current_version).where(_tables.table_id == table_id)
    version: int | None = connection.execute(query).scalar_one_or_none()
    if version is None:
        raise no_table(table_id)
    return version
