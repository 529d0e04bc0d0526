"""What the mirror keeps in the catalog: how far each table is published, who is at it, and what comes next.

    claim ──▶ pending ──▶ (PUTs, no lock held) ──▶ advance ──▶ … until `advance` answers DONE
      │                                              │
      └ somebody else has the lease                  └ LOST: the lease had expired and is another's

A commit writes nothing here: pending are the versions above `published_version`. Every change locks the
status row in one statement and reads the table's current version in the next. So either a publisher that is
about to give the lease back sees a new commit, or that commit's own claim waits for the lock and then finds
the lease free: no commit is overlooked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Select, and_, bindparam, func, insert, or_, select, true, update

from deltars.errors import DeltarsError, TableNotFound
from deltars.store import schema
from deltars.store.backends import Opening
from deltars.store.changes import CommittedVersion, versions_to_publish
from deltars.store.database import Database

__all__ = [
    "LEASE_S",
    "Advance",
    "CommittedVersion",
    "MirrorMode",
    "MirrorState",
    "MirrorStatus",
    "MirrorStatusStore",
    "Registration",
    "TransactionTables",
]

LEASE_S = 30
FOREIGN = "foreign "
"""Before the digest of a commit that was imported: it is not ours to put back or to clean up."""

CLEANED_UP = ""
"""The digest of a published version whose file the clean-up of old logs deleted."""
FIRST_PAUSE_S = 1
LONGEST_PAUSE_S = 300

_TIMEOUT_S = 30.0
_log = logging.getLogger(__name__)
_SECOND_US = 1_000_000

_status, _tables, _versions = schema.dl_mirror_status.c, schema.dl_tables.c, schema.dl_table_versions.c


_TABLE = select(_tables.name, _tables.location, _tables.current_version, _tables.dropped_at, _tables.properties).where(
    _tables.table_id == bindparam("table")
)


class MirrorMode(StrEnum):
    """Who publishes."""

    INLINE = "inline"
    ASYNC = "async"
    OFF = "off"


MODE_PROPERTY = "deltars.mirror"
"""The table property that says so for one table."""


class MirrorState(StrEnum):
    ACTIVE = "active"
    FAILED = "failed"
    DIVERGED = "diverged"
    # The log is others', or not yet ours: nothing of these tables is published, mended or cleaned up.
    IMPORTING = "importing"
    READ_ONLY = "read_only"
    RELEASED = "released"


class Advance(Enum):
    """How publishing goes on after a version."""

    MORE = "a newer version waits"
    DONE = "everything is published, the lease is given back"
    LOST = "the lease was another's by now; nothing was changed"


@dataclass(frozen=True, slots=True)
class MirrorStatus:
    """How far one table is published; times in microseconds of the database's clock, which read `now`."""

    table_id: UUID
    name: str
    location: str
    current_version: int
    published_version: int
    state: MirrorState
    lease_owner: str | None
    lease_until: int | None
    attempts: int
    last_error: str | None
    next_attempt_at: int | None
    now: int
    mode: MirrorMode | None = None
    """What the table's own property says; None where it says nothing."""
    pending_since: int | None = None
    """When the oldest version that is not published was committed; only where it was asked for."""

    @property
    def is_ours(self) -> bool:
        """Whether the table's log is this catalog's to write."""
        return self.state not in (MirrorState.IMPORTING, MirrorState.READ_ONLY, MirrorState.RELEASED)

    @property
    def is_pending(self) -> bool:
        return self.published_version < self.current_version

    @property
    def is_leased(self) -> bool:
        return self.lease_until is not None and self.lease_until > self.now


@dataclass(frozen=True, slots=True)
class Registration:
    """A table as the catalog knows it, and where the catalog's warehouse is, if it has one."""

    catalog_id: UUID
    warehouse: str | None
    table_id: UUID
    name: str
    location: str
    created_at: datetime
    dropped_at: datetime | None


@dataclass(frozen=True, slots=True)
class TransactionTables:
    """A transaction, and the version that it gave to each of its tables, by table id."""

    txn_id: UUID
    commit_ts: int
    participants: Mapping[str, int]


class MirrorStatusStore:
    def __init__(self, database: Database) -> None:
        self._database = database
        self.source = database.source
        # Built once, as `_TABLE`: they run several times for every commit that is published.
        now = database.backend.clock_us().label("now")
        self._unlocked = select(schema.dl_mirror_status, now).where(_status.table_id == bindparam("table"))
        self._locked = self._unlocked.with_for_update() if database.backend.locks_rows else self._unlocked

    def read(self, table_id: UUID) -> MirrorStatus:
        with self._database.read() as connection:
            return self._read(connection, table_id, lock=False)

    def read_all(self, table_ids: Iterable[UUID]) -> list[MirrorStatus]:
        """The status of each of these tables, all of one moment."""
        with self._database.read() as connection:
            return [self._read(connection, table_id, lock=False) for table_id in table_ids]

    def modes(self, table_ids: Iterable[UUID]) -> dict[UUID, MirrorMode | None]:
        """Who publishes each of these tables, as far as its own property says."""
        query = select(_tables.table_id, _tables.properties).where(_tables.table_id.in_(list(table_ids)))
        with self._database.read() as connection:
            return {row.table_id: _mode(row.properties) for row in connection.execute(query)}

    def announce(self) -> None:
        """Wake whoever listens, where the database can. Those who poll find out a little later."""
        try:
            self._database.notify()
        except DeltarsError as error:
            _log.debug("nobody could be woken: %s", error)

    def listening(self) -> AbstractContextManager[Callable[[float], bool] | None]:
        """How to wait for an announcement, at most so many seconds; None where the database has none."""
        return self._database.listening()

    def claim(self, table_id: UUID, owner: str, *, even_if_idle: bool = False) -> tuple[bool, MirrorStatus]:
        """Take the lease, if there is something to publish and nobody is at it; with what the row says."""
        with self._noting() as connection:
            status = self._read(connection, table_id, lock=True)
            has_work = status.is_pending or even_if_idle
            if not has_work or status.is_leased or status.state is MirrorState.DIVERGED or not status.is_ours:
                return False, status
            _set(connection, table_id, lease_owner=owner, lease_until=_later(status.now, LEASE_S))
            return True, status

    def advance(self, table_id: UUID, owner: str, published: Sequence[tuple[int, str]]) -> tuple[Advance, int]:
        """These versions, the next in order, are there with these digests: note it; and when that was (µs).

        The lease is kept only if another version waits.
        """
        with self._noting() as connection:
            status = self._read(connection, table_id, lock=True)
            if status.lease_owner != owner:
                return Advance.LOST, status.now
            last, _ = published[-1]
            more = last < status.current_version
            _set(
                connection,
                table_id,
                published_version=last,
                state=MirrorState.ACTIVE,
                lease_owner=owner if more else None,
                lease_until=_later(status.now, LEASE_S) if more else None,
                attempts=0,
                last_error=None,
                next_attempt_at=None,
            )
            connection.execute(
                insert(schema.dl_mirror_log),
                [
                    {"table_id": table_id, "version": version, "published_at": status.now, "digest": digest}
                    for version, digest in published
                ],
            )
            return Advance.MORE if more else Advance.DONE, status.now

    def release(self, table_id: UUID, owner: str) -> bool:
        """Give the lease back; True if a version waits, for whoever comes next."""
        with self._noting() as connection:
            status = self._read(connection, table_id, lock=True)
            if status.lease_owner == owner:
                _set(connection, table_id, lease_owner=None, lease_until=None)
            return status.is_pending

    def fail(self, table_id: UUID, owner: str, state: MirrorState, error: str) -> None:
        """Note what went wrong, give the lease back, and wait twice as long as the last time."""
        with self._noting() as connection:
            status = self._read(connection, table_id, lock=True)
            if status.lease_owner != owner:
                return
            pause_s = min(FIRST_PAUSE_S * 2 ** min(status.attempts, 30), LONGEST_PAUSE_S)
            _set(
                connection,
                table_id,
                state=state,
                lease_owner=None,
                lease_until=None,
                attempts=status.attempts + 1,
                last_error=error,
                next_attempt_at=_later(status.now, pause_s),
            )

    def due(self) -> list[UUID]:
        """The tables that somebody should publish now: behind, not leased, not diverged, their pause over."""
        clock = self._database.backend.clock_us()
        waiting = (
            select(_status.table_id, _tables.properties)
            .join(schema.dl_tables, _tables.table_id == _status.table_id)
            .where(
                _tables.dropped_at.is_(None),
                _status.published_version < _tables.current_version,
                _status.state != MirrorState.DIVERGED,
                or_(_status.lease_until.is_(None), _status.lease_until <= clock),
                or_(_status.next_attempt_at.is_(None), _status.next_attempt_at <= clock),
            )
            .order_by(_status.table_id)
        )
        with self._database.read() as connection:
            rows = connection.execute(waiting).all()
        return [row.table_id for row in rows if _mode(row.properties) is not MirrorMode.OFF]

    def overview(self, *, with_dropped: bool = False) -> list[MirrorStatus]:
        """Every table, by name, with since when it waits for its oldest unpublished version."""
        columns = (_tables.name, _tables.location, _tables.current_version, _tables.properties)
        query = (
            select(
                schema.dl_mirror_status,
                *columns,
                _versions.commit_ts.label("pending_since"),
                self._database.backend.clock_us().label("now"),
            )
            .join(schema.dl_tables, _tables.table_id == _status.table_id)
            .outerjoin(
                schema.dl_table_versions,
                and_(_versions.table_id == _status.table_id, _versions.version == _status.published_version + 1),
            )
            .where(true() if with_dropped else _tables.dropped_at.is_(None))
            .order_by(_tables.name)
        )
        with self._database.read() as connection:
            return [_status_of(row, row, row.current_version, row.pending_since) for row in connection.execute(query)]

    def pending(self, table_id: UUID, after: int, limit: int) -> list[CommittedVersion]:
        """The next versions to publish, oldest first: at most `limit`, fewer where they hold many files, but one."""
        return versions_to_publish(self._database, table_id, after + 1, limit)

    def published(self, table_id: UUID) -> dict[int, str]:
        """The versions that were published and should be there, with the digests of their files."""
        log = schema.dl_mirror_log.c
        query = select(log.version, log.digest).where(
            log.table_id == table_id, log.digest != CLEANED_UP, log.digest.not_like(f"{FOREIGN}%")
        )
        with self._database.read() as connection:
            return {row.version: row.digest for row in connection.execute(query)}

    def last_version_before(self, table_id: UUID, moment_ms: int) -> int | None:
        """The newest published version that was committed before a moment, by in-commit timestamps."""
        query = select(func.max(_versions.version)).where(
            _versions.table_id == table_id,
            _versions.in_commit_timestamp < moment_ms,
            _versions.version
            <= select(_status.published_version).where(_status.table_id == table_id).scalar_subquery(),
        )
        with self._database.read() as connection:
            version: int | None = connection.scalar(query)
            return version

    def note_cleaned_up(self, table_id: UUID, before: int) -> None:
        """The files of the versions before this one were deleted on purpose."""
        log = schema.dl_mirror_log
        older = update(log).where(log.c.table_id == table_id, log.c.version < before, log.c.digest != CLEANED_UP)
        with self._database.write(_TIMEOUT_S) as connection:
            connection.execute(older.values(digest=CLEANED_UP))

    def transactions_over_several(self, since: int) -> list[TransactionTables]:
        """The transactions over several tables, committed at `since` (µs) or later, in their order."""
        transactions = schema.dl_transactions.c
        query = (
            select(transactions.txn_id, transactions.commit_ts, transactions.participants)
            .where(transactions.commit_ts >= since, transactions.participants.is_not(None))
            .order_by(transactions.commit_ts)
            .execution_options(yield_per=10_000)
        )
        with self._database.read() as connection:
            return [
                TransactionTables(row.txn_id, row.commit_ts, row.participants)
                for row in connection.execute(query)
                if len(row.participants) > 1
            ]

    def skew_us(self, participants: Mapping[str, int]) -> int:
        """How much later the last of these versions, by table id, was published than the first."""
        log = schema.dl_mirror_log.c
        each = [and_(log.table_id == UUID(key), log.version == version) for key, version in participants.items()]
        with self._database.read() as connection:
            times = connection.execute(select(log.published_at).where(or_(*each))).scalars().all()
        return max(times) - min(times) if times else 0

    def registration(self, table_id: UUID) -> Registration:
        with self._database.read() as connection:
            row = connection.execute(_registrations().where(_tables.table_id == table_id)).one_or_none()
        if row is None:
            raise TableNotFound(table_id=table_id)
        return Registration(*row)

    def registrations(self) -> list[Registration]:
        """Every table there is or was."""
        with self._database.read() as connection:
            return [Registration(*row) for row in connection.execute(_registrations())]

    def _noting(self) -> AbstractContextManager[Connection]:
        """For what a crash of the server may take back: whoever publishes next finds the files, and notes it again."""
        return self._database.write(_TIMEOUT_S, Opening((), waits_for_disk=False))

    def _read(self, connection: Connection, table_id: UUID, *, lock: bool) -> MirrorStatus:
        row = connection.execute(self._locked if lock else self._unlocked, {"table": table_id}).one_or_none()
        # A statement of its own: its snapshot must be younger than the wait for the lock.
        table = connection.execute(_TABLE, {"table": table_id}).one_or_none()
        if row is None or table is None:
            raise TableNotFound(table_id=table_id)
        # Nothing is published for a table that was dropped: its directory may be gone.
        return _status_of(row, table, table.current_version if table.dropped_at is None else row.published_version)


def _status_of(row: Any, table: Any, current_version: int, pending_since: int | None = None) -> MirrorStatus:
    return MirrorStatus(
        table_id=row.table_id,
        name=table.name,
        location=table.location,
        current_version=current_version,
        published_version=row.published_version,
        state=MirrorState(row.state),
        lease_owner=row.lease_owner,
        lease_until=row.lease_until,
        attempts=row.attempts,
        last_error=row.last_error,
        next_attempt_at=row.next_attempt_at,
        now=row.now,
        mode=_mode(table.properties),
        pending_since=pending_since,
    )


def _mode(properties: Mapping[str, str] | None) -> MirrorMode | None:
    """What is none of them counts as not said: a wrong word must not keep commits from being published."""
    said = (properties or {}).get(MODE_PROPERTY, "").strip().lower()
    return MirrorMode(said) if said in set(MirrorMode) else None


def _registrations() -> Select[Any]:
    catalog = schema.dl_catalog.c
    return select(
        catalog.catalog_id,
        catalog.warehouse,
        _tables.table_id,
        _tables.name,
        _tables.location,
        _tables.created_at,
        _tables.dropped_at,
    ).join_from(schema.dl_tables, schema.dl_catalog, true())


def _set(connection: Connection, table_id: UUID, **values: Any) -> None:
    connection.execute(update(schema.dl_mirror_status).where(_status.table_id == table_id).values(**values))


def _later(now: int, seconds: int) -> int:
    return now + seconds * _SECOND_US
