"""What the mirror keeps in the catalog: how far each table is published, who is at it, and what comes next.

    claim ──▶ pending ──▶ (a PUT, no lock held) ──▶ advance ──▶ … until `advance` answers DONE
      │                                               │
      └ somebody else has the lease                   └ LOST: the lease had expired and is another's

A commit writes nothing here: pending are the versions above `published_version`. Every change locks the
status row in one statement and reads the table's current version in the next. So either a publisher that is
about to give the lease back sees a new commit, or that commit's own claim waits for the lock and then finds
the lease free: no commit is overlooked.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, insert, or_, select, true, update

from deltars.errors import TableNotFound
from deltars.store import schema
from deltars.store.changes import CommittedVersion, committed_versions
from deltars.store.database import Database

__all__ = [
    "LEASE_S",
    "Advance",
    "CommittedVersion",
    "MirrorState",
    "MirrorStatus",
    "MirrorStatusStore",
    "Registration",
]

LEASE_S = 30
FIRST_PAUSE_S = 1
LONGEST_PAUSE_S = 300

_TIMEOUT_S = 30.0
_SECOND_US = 1_000_000

_status, _tables = schema.dl_mirror_status.c, schema.dl_tables.c


class MirrorState(StrEnum):
    ACTIVE = "active"
    FAILED = "failed"
    DIVERGED = "diverged"
    # Of tables that are held: nothing of theirs waits to be published.
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


class MirrorStatusStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self, table_id: UUID) -> MirrorStatus:
        with self._database.read() as connection:
            return self._read(connection, table_id, lock=False)

    def read_all(self, table_ids: Iterable[UUID]) -> list[MirrorStatus]:
        """The status of each of these tables, all of one moment."""
        with self._database.read() as connection:
            return [self._read(connection, table_id, lock=False) for table_id in table_ids]

    def claim(self, table_id: UUID, owner: str) -> tuple[bool, MirrorStatus]:
        """Take the lease, if there is something to publish and nobody is at it; with what the row says."""
        with self._database.write(_TIMEOUT_S) as connection:
            status = self._read(connection, table_id, lock=True)
            if not status.is_pending or status.is_leased or status.state is MirrorState.DIVERGED:
                return False, status
            _set(connection, table_id, lease_owner=owner, lease_until=_later(status.now, LEASE_S))
            return True, status

    def advance(self, table_id: UUID, owner: str, version: int, digest: str) -> Advance:
        """`version` is there: note it, and keep the lease only if another version waits."""
        with self._database.write(_TIMEOUT_S) as connection:
            status = self._read(connection, table_id, lock=True)
            if status.lease_owner != owner:
                return Advance.LOST
            more = version < status.current_version
            _set(
                connection,
                table_id,
                published_version=version,
                state=MirrorState.ACTIVE,
                lease_owner=owner if more else None,
                lease_until=_later(status.now, LEASE_S) if more else None,
                attempts=0,
                last_error=None,
                next_attempt_at=None,
            )
            connection.execute(
                insert(schema.dl_mirror_log).values(
                    table_id=table_id, version=version, published_at=status.now, digest=digest
                )
            )
            return Advance.MORE if more else Advance.DONE

    def release(self, table_id: UUID, owner: str) -> None:
        """Give the lease back with versions still waiting: whoever comes next goes on."""
        with self._database.write(_TIMEOUT_S) as connection:
            if self._read(connection, table_id, lock=True).lease_owner == owner:
                _set(connection, table_id, lease_owner=None, lease_until=None)

    def fail(self, table_id: UUID, owner: str, state: MirrorState, error: str) -> None:
        """Note what went wrong, give the lease back, and wait twice as long as the last time."""
        with self._database.write(_TIMEOUT_S) as connection:
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
            select(_status.table_id)
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
            return list(connection.scalars(waiting))

    def pending(self, table_id: UUID, after: int, limit: int) -> list[CommittedVersion]:
        """The next versions to publish, oldest first, at most `limit`."""
        with self._database.read() as connection:
            return committed_versions(connection, table_id, after + 1, after + limit)

    def registration(self, table_id: UUID) -> Registration:
        catalog = schema.dl_catalog.c
        entry = (
            select(
                catalog.catalog_id,
                catalog.warehouse,
                _tables.table_id,
                _tables.name,
                _tables.location,
                _tables.created_at,
                _tables.dropped_at,
            )
            .join_from(schema.dl_tables, schema.dl_catalog, true())
            .where(_tables.table_id == table_id)
        )
        with self._database.read() as connection:
            row = connection.execute(entry).one_or_none()
        if row is None:
            raise TableNotFound(table_id=table_id)
        return Registration(*row)

    def _read(self, connection: Connection, table_id: UUID, *, lock: bool) -> MirrorStatus:
        backend = self._database.backend
        query = select(schema.dl_mirror_status, backend.clock_us().label("now")).where(_status.table_id == table_id)
        row = connection.execute(query.with_for_update() if lock and backend.locks_rows else query).one_or_none()
        # A statement of its own: its snapshot must be younger than the wait for the lock.
        table = connection.execute(
            select(_tables.name, _tables.location, _tables.current_version, _tables.dropped_at).where(
                _tables.table_id == table_id
            )
        ).one_or_none()
        if row is None or table is None:
            raise TableNotFound(table_id=table_id)
        return MirrorStatus(
            table_id=table_id,
            name=table.name,
            location=table.location,
            # Nothing is published for a table that was dropped: its directory may be gone.
            current_version=table.current_version if table.dropped_at is None else row.published_version,
            published_version=row.published_version,
            state=MirrorState(row.state),
            lease_owner=row.lease_owner,
            lease_until=row.lease_until,
            attempts=row.attempts,
            last_error=row.last_error,
            next_attempt_at=row.next_attempt_at,
            now=row.now,
        )


def _set(connection: Connection, table_id: UUID, **values: Any) -> None:
    connection.execute(update(schema.dl_mirror_status).where(_status.table_id == table_id).values(**values))


def _later(now: int, seconds: int) -> int:
    return now + seconds * _SECOND_US
