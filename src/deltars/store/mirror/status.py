"""Mirror status in the catalog: how far each table is published, who holds its lease, and what comes next.

    claim ──▶ pending ──▶ (PUTs, no lock held) ──▶ advance ──▶ … until `advance` returns DONE
      │                                              │
      └ another publisher holds the lease (`lease`)  └ LOST: another publisher took the lease; the files that were put
                                                       are recorded nevertheless

A commit writes nothing here: the versions above `published_version` are pending. Every change locks the status row in
one statement and reads the table's current version in the next. So no commit is overlooked: either a publisher that is
about to release the lease sees the new commit, or the commit's own claim waits for the lock and then finds the lease
free.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import (
    ColumnElement,
    RowMapping,
    and_,
    select,
    true,
)

from deltars.errors import TableNotFound
from deltars.redaction import redacted
from deltars.store import schema
from deltars.store.backends import AnyConnection, Opening, Rows
from deltars.store.chain.property import is_chained
from deltars.store.database import Database
from deltars.store.imports.table_hold import HELD
from deltars.store.mirror import lease
from deltars.store.mirror.statements import DUE, STATUS, TABLE, TARGETS, MirrorStatements
from deltars.store.read.committed_versions import CommittedVersion, CommittedVersions

FIRST_PAUSE_S = 1
LONGEST_PAUSE_S = 300

_TIMEOUT_S = 30.0
_log = logging.getLogger(__name__)
_SECOND_US = 1_000_000

_status, _tables, _versions = schema.dl_mirror_status.c, schema.dl_tables.c, schema.dl_table_versions.c

_encode = msgspec.json.Encoder().encode


class MirrorMode(StrEnum):
    """Publisher of a table's commits: the writer's process, a separate process, or none."""

    INLINE = "inline"
    ASYNC = "async"
    OFF = "off"


MODE_PROPERTY = "deltars.mirror"
"""Table property that sets the mode of one table."""


class MirrorState(StrEnum):
    ACTIVE = "active"
    FAILED = "failed"
    DIVERGED = "diverged"
    # The mirror neither publishes, repairs nor cleans up these: other writers own the log, or it is not imported yet.
    IMPORTING = "importing"
    READ_ONLY = "read_only"
    RELEASED = "released"


class Advance(Enum):
    """Next step after a version was recorded as published."""

    MORE = "a newer version is pending"
    DONE = "everything is published and the lease is released"
    LOST = "another publisher has the lease and keeps it"


@dataclass(frozen=True, slots=True)
class Advanced:
    """Status after a publisher recorded the versions it put."""

    step: Advance
    before: int
    """Last published version before, by any publisher."""
    published: int
    """Last published version now."""
    now: int


@dataclass(frozen=True, slots=True)
class Target:
    """Location of a table, and its mirror mode if the table's property sets one."""

    location: str
    mode: MirrorMode | None
    is_chained: bool = False
    """Whether the table has a hash chain (`store/chain`)."""


@dataclass(frozen=True, slots=True)
class MirrorStatus:
    """Mirror status of one table. Times are microseconds of the database's clock, which showed `now`."""

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
    """Mode set by the table's property; None if it sets none."""
    is_dropped: bool = False
    """A dropped table is not published, repaired or checkpointed: its directory may be gone."""
    is_chained: bool = False
    """Whether the table has a hash chain (`store/chain`)."""
    is_frozen: bool = False
    """Whether the table is held (`imports.table_hold`): its log may be ahead of the catalog."""
    pending_since: int | None = None
    """Commit time of the oldest unpublished version; only set by `overview` and `read_all`."""

    @property
    def is_ours(self) -> bool:
        """Return whether this catalog owns the table's log."""
        return self.state not in (MirrorState.IMPORTING, MirrorState.READ_ONLY, MirrorState.RELEASED)

    @property
    def is_published_to(self) -> bool:
        """Return whether publishers work on the table."""
        return self.is_ours and self.state is not MirrorState.DIVERGED and not self.is_dropped

    @property
    def is_pending(self) -> bool:
        return self.published_version < self.current_version

    @property
    def is_leased(self) -> bool:
        return lease.is_held(self.lease_owner, self.lease_until, self.now)


class MirrorStatusStore:
    """Reader and writer of the mirror status of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._backend = database.backend
        self._statements = database.backend.shared(MirrorStatements)
        self._committed = CommittedVersions(database)
        self.source = database.source

    def read(self, table_id: UUID) -> MirrorStatus:
        values = {"table": str(table_id)}
        queries = [(self._statements.status, values), (self._statements.table, values)]
        return _status_in([row for rows in self._database.look_up_each(queries) for row in rows], table_id)

    def read_all(self, table_ids: Iterable[UUID]) -> list[MirrorStatus]:
        """Return the status of each of these tables, all at the same moment."""
        return self._overview(_status.table_id.in_(list(table_ids)))

    def targets(self, table_ids: Iterable[UUID]) -> dict[UUID, Target]:
        """Return the location and mirror mode of each of these tables."""
        document = _encode([{"table_id": str(table_id)} for table_id in table_ids]).decode()
        rows = map(TARGETS.read, self._database.look_up(self._statements.targets, {"tables": document}))
        return {row["table_id"]: target_of(row) for row in rows}

    def announce(self) -> None:
        """Notify listening publishers if the database can; polling publishers notice the commit a little later."""
        try:
            self._database.notify()
        except Exception as error:
            # This runs after COMMIT, so no error here may look like a failed commit.
            _log.debug("could not notify listening publishers: %s", error)

    def listening(self) -> AbstractContextManager[Callable[[float], bool] | None]:
        """Open a listener: a function that waits up to so many seconds for `announce`. None if unsupported."""
        return self._database.listening()

    def claim(self, table_id: UUID, owner: str, *, even_if_idle: bool = False) -> tuple[bool, MirrorStatus]:
        """Take the lease if a version is pending and no lease is held. Return whether it was taken, and the status."""
        with self._locked(table_id) as (connection, status):
            has_work = status.is_pending or even_if_idle
            if not has_work or status.is_leased or not status.is_published_to:
                return False, status
            stored = lease.taken(owner, status.lease_owner)
            self._set(connection, status, lease_owner=stored, lease_until=lease.until(stored, status.now))
            return True, status

    def advance(self, table_id: UUID, owner: str, published: Sequence[tuple[int, str]]) -> Advanced:
        """Record that these consecutive versions are published, with the digests of their files.

        They are recorded even if another publisher has taken the lease, because the files exist. The last published
        version never decreases. The lease is kept only if another version is pending.
        """
        (first, _), (last, _) = published[0], published[-1]
        with self._locked(table_id) as (connection, status):
            before, is_owner = status.published_version, lease.is_of(status.lease_owner, owner)
            is_next = first <= before + 1 and before < last <= status.current_version
            if not status.is_published_to or not (is_owner or is_next):
                return Advanced(Advance.LOST, before, before, status.now)
            reached = max(before, last)
            values: dict[str, Any] = {
                "published_version": reached,
                "state": MirrorState.ACTIVE.value,
                "attempts": 0,
                "last_error": None,
                "next_attempt_at": None,
            }
            step = Advance.LOST
            if is_owner:
                step = Advance.MORE if reached < status.current_version else Advance.DONE
                stored = lease.renewed(owner) if step is Advance.MORE else None
                values["lease_owner"] = stored
                values["lease_until"] = None if stored is None else lease.until(stored, status.now)
            rows = [
                {"table_id": str(table_id), "version": version, "published_at": status.now, "digest": digest}
                for version, digest in published
                if version > before
            ]
            self._set(connection, status, log_rows=rows, **values)
            return Advanced(step, before, reached, status.now)

    def note_next(self, table_id: UUID, version: int, digest: str) -> int | None:
        """Record that the version after the last published one is published, without a lease. Return the time.

        Return None, and record nothing, if another version is the next one or publication has failed.
        """
        values = {"table": str(table_id), "version": version, "digest": digest}
        statement = self._statements.note_next
        if self._backend.chains_writes:
            [rows] = self._database.run_at_once(_TIMEOUT_S, Opening([(statement, values)], waits_for_disk=False))
            return int(rows[0][1]) if rows else None
        with self._database.brief_write(_TIMEOUT_S, Opening(())) as connection:
            rows = self._backend.run(connection, statement, values)
            if not rows:
                return None
            row = {"table_id": str(table_id), "version": version, "published_at": rows[0][1], "digest": digest}
            self._backend.run(connection, self._statements.log, {"rows": _encode([row]).decode()})
            return int(rows[0][1])

    def release(self, table_id: UUID, owner: str) -> bool:
        """Release the lease. Return whether a version is still pending."""
        with self._locked(table_id) as (connection, status):
            if lease.is_of(status.lease_owner, owner):
                self._set(connection, status, lease_owner=None, lease_until=None)
            return status.is_pending

    def fail(self, table_id: UUID, owner: str, state: MirrorState, error: str) -> None:
        """Record the failure, release the lease, and set a pause twice as long as the previous one."""
        with self._locked(table_id) as (connection, status):
            if not lease.is_of(status.lease_owner, owner) or status.state is MirrorState.DIVERGED:
                return
            pause_s = min(FIRST_PAUSE_S * 2 ** min(status.attempts, 30), LONGEST_PAUSE_S)
            self._set(
                connection,
                status,
                state=state.value,
                lease_owner=None,
                lease_until=None,
                attempts=status.attempts + 1,
                last_error=redacted(error),
                next_attempt_at=_later(status.now, pause_s),
            )

    def note_divergence(self, table_id: UUID, error: str) -> None:
        """Record that the log contradicts the catalog: nothing more is published or committed."""
        with self._locked(table_id) as (connection, status):
            if status.is_ours and not status.is_frozen:
                state = MirrorState.DIVERGED.value
                self._set(connection, status, state=state, last_error=error, lease_owner=None, lease_until=None)

    def recover(self, table_id: UUID) -> None:
        """Record that the log no longer contradicts the catalog."""
        with self._locked(table_id) as (connection, status):
            if status.state is MirrorState.DIVERGED and not status.is_frozen:
                active = MirrorState.ACTIVE.value
                self._set(connection, status, state=active, last_error=None, attempts=0, next_attempt_at=None)

    def due(self) -> list[UUID]:
        """Return the tables to publish now: with pending versions, not leased, not diverged, not pausing."""
        due = []
        for *plain, now in self._database.look_up(self._statements.due, {}):
            row = DUE.read(plain)
            is_leased = lease.is_held(row["lease_owner"], row["lease_until"], now)
            if (
                not is_leased
                and not _is_pausing(row["next_attempt_at"], now)
                and (mode_of(row["properties"]) is not MirrorMode.OFF)
            ):
                due.append(row["table_id"])
        return due

    def overview(self, *, with_dropped: bool = False) -> list[MirrorStatus]:
        """Return the status of every table, sorted by name, with `pending_since`."""
        return self._overview(true() if with_dropped else _tables.dropped_at.is_(None))

    def pending(self, table_id: UUID, after: int, limit: int) -> list[CommittedVersion]:
        """Return the next versions to publish, oldest first: at most `limit`, and fewer if they hold many files."""
        return self._committed.next(table_id, after + 1, limit)

    def _overview(self, which: ColumnElement[bool]) -> list[MirrorStatus]:
        query = (
            select(
                schema.dl_mirror_status,
                *(
                    _tables.name,
                    _tables.location,
                    _tables.current_version,
                    _tables.protocol_version,
                    _tables.properties,
                    _tables.dropped_at,
                ),
                _versions.commit_ts.label("pending_since"),
                self._backend.clock_us().label("now"),
            )
            .join(schema.dl_tables, _tables.table_id == _status.table_id)
            .outerjoin(
                schema.dl_table_versions,
                and_(_versions.table_id == _status.table_id, _versions.version == _status.published_version + 1),
            )
            .where(which)
            .order_by(_tables.name)
        )
        with self._database.read() as connection:
            return [_status_of(row) for row in connection.execute(query).mappings()]

    @contextmanager
    def _locked(self, table_id: UUID) -> Iterator[tuple[AnyConnection, MirrorStatus]]:
        """Lock the status row until the block ends.

        COMMIT does not wait for the disk, so a crash of the server may lose what is recorded here. The next publisher
        then finds the files and records them again.
        """
        values = {"table": str(table_id)}
        # The table is read by a separate statement: its snapshot must be taken after the wait for the lock.
        opening = Opening([(self._statements.locked, values), (self._statements.table, values)], waits_for_disk=False)
        with self._database.brief_write(_TIMEOUT_S, opening) as connection:
            yield connection, _status_in(opening.rows, table_id)

    def _set(
        self,
        connection: AnyConnection,
        status: MirrorStatus,
        log_rows: Sequence[Mapping[str, Any]] = (),
        **values: Any,
    ) -> None:
        """Update the status as the last statement of its transaction.

        Rows for `dl_mirror_log` are inserted by the same statement if the backend can chain writes.
        """
        given = {"table": str(status.table_id), **{f"new_{name}": value for name, value in values.items()}}
        if log_rows:
            given["rows"] = _encode(log_rows).decode()
            if not self._backend.chains_writes:
                self._backend.run(connection, self._statements.log, given)
        statement = self._statements.update(tuple(values), bool(log_rows) and self._backend.chains_writes)
        self._backend.run_and_commit(connection, statement, given)


def _status_in(rows: Rows, table_id: UUID) -> MirrorStatus:
    """Return the status from the row of `dl_mirror_status` and the row of `dl_tables`."""
    if len(rows) != 2:
        raise TableNotFound(table_id=table_id)
    (*of_status, now), of_table = rows
    status, table = STATUS.read(of_status), TABLE.read(of_table)
    if table["dropped_at"] is not None:
        # A dropped table has nothing pending: its directory may be gone.
        table["current_version"] = status["published_version"]
    return _status_of(status | table | {"now": now})


def _status_of(row: Mapping[str, Any] | RowMapping) -> MirrorStatus:
    return MirrorStatus(
        table_id=row["table_id"],
        name=row["name"],
        location=row["location"],
        current_version=row["current_version"],
        published_version=row["published_version"],
        state=MirrorState(row["state"]),
        lease_owner=row["lease_owner"],
        lease_until=row["lease_until"],
        attempts=row["attempts"],
        last_error=row["last_error"],
        next_attempt_at=row["next_attempt_at"],
        now=row["now"],
        mode=mode_of(row["properties"]),
        is_dropped=row["dropped_at"] is not None,
        is_chained=is_chained(row["properties"]),
        is_frozen=row["protocol_version"] == HELD,
        pending_since=row.get("pending_since"),
    )


def target_of(row: Mapping[str, Any]) -> Target:
    return Target(row["location"], mode_of(row["properties"]), is_chained(row["properties"]))


def mode_of(properties: Mapping[str, str] | None) -> MirrorMode | None:
    """Return the mode set by the property. Ignore unknown values, so that a typo cannot stop publication."""
    said = (properties or {}).get(MODE_PROPERTY, "").strip().lower()
    return MirrorMode(said) if said in set(MirrorMode) else None


def _is_pausing(until: int | None, now: int) -> bool:
    # A pause that ends later than the longest one allows was set before the clock was set back.
    return until is not None and now < until <= _later(now, LONGEST_PAUSE_S)


def _later(now: int, seconds: int) -> int:
    return now + seconds * _SECOND_US
