"""What the mirror keeps in the catalog: how far each table is published, who is at it, and what comes next.

    claim ──▶ pending ──▶ (PUTs, no lock held) ──▶ advance ──▶ … until `advance` answers DONE
      │                                              │
      └ somebody else has the lease (`store.lease`)  └ LOST: the lease is another's; what was put is noted all the same

A commit writes nothing here: pending are the versions above `published_version`. Every change locks the
status row in one statement and reads the table's current version in the next. So either a publisher that is
about to give the lease back sees a new commit, or that commit's own claim waits for the lock and then finds
the lease free: no commit is overlooked.
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
    Connection,
    RowMapping,
    and_,
    select,
    true,
)

from deltars.errors import TableNotFound
from deltars.redaction import redacted
from deltars.store import schema
from deltars.store.backends import Opening, Rows
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
    LOST = "the lease is another's by now, and stays so"


@dataclass(frozen=True, slots=True)
class Advanced:
    """What the catalog knows after a publisher told it what it put."""

    step: Advance
    before: int
    """The last published version before, of whichever publisher."""
    published: int
    """The last published version now."""
    now: int


@dataclass(frozen=True, slots=True)
class Target:
    """Where a table is published, and by whom, as far as its own property says."""

    location: str
    mode: MirrorMode | None


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
    is_dropped: bool = False
    """Nothing is published, mended or checkpointed for a dropped table: its directory may be gone."""
    is_frozen: bool = False
    """Whether the table is changing hands (`store.held`): its log may be ahead of the catalog."""
    pending_since: int | None = None
    """When the oldest version that is not published was committed; only where it was asked for."""

    @property
    def is_ours(self) -> bool:
        """Whether the table's log is this catalog's to write."""
        return self.state not in (MirrorState.IMPORTING, MirrorState.READ_ONLY, MirrorState.RELEASED)

    @property
    def is_published_to(self) -> bool:
        """Whether publishers work on the table."""
        return self.is_ours and self.state is not MirrorState.DIVERGED and not self.is_dropped

    @property
    def is_pending(self) -> bool:
        return self.published_version < self.current_version

    @property
    def is_leased(self) -> bool:
        return lease.is_held(self.lease_owner, self.lease_until, self.now)


class MirrorStatusStore:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._backend = database.backend
        self._statements = MirrorStatements(database.backend)
        self._committed = CommittedVersions(database)
        self.source = database.source

    def read(self, table_id: UUID) -> MirrorStatus:
        values = {"table": str(table_id)}
        asked = [(self._statements.status, values), (self._statements.table, values)]
        return _status_in([row for rows in self._database.look_up_each(asked) for row in rows], table_id)

    def read_all(self, table_ids: Iterable[UUID]) -> list[MirrorStatus]:
        """The status of each of these tables, all of one moment."""
        return self._overview(_status.table_id.in_(list(table_ids)))

    def targets(self, table_ids: Iterable[UUID]) -> dict[UUID, Target]:
        """Where each of these tables is published, and by whom."""
        document = _encode([{"table_id": str(table_id)} for table_id in table_ids]).decode()
        rows = map(TARGETS.read, self._database.look_up(self._statements.targets, {"tables": document}))
        return {row["table_id"]: Target(row["location"], _mode(row["properties"])) for row in rows}

    def announce(self) -> None:
        """Wake whoever listens, where the database can. Those who poll find out a little later."""
        try:
            self._database.notify()
        except Exception as error:
            # Asked for after COMMIT: whatever it is, it must not look like a failed commit.
            _log.debug("nobody could be woken: %s", error)

    def listening(self) -> AbstractContextManager[Callable[[float], bool] | None]:
        """How to wait for an announcement, at most so many seconds; None where the database has none."""
        return self._database.listening()

    def claim(self, table_id: UUID, owner: str, *, even_if_idle: bool = False) -> tuple[bool, MirrorStatus]:
        """Take the lease, if there is something to publish and nobody is at it; with what the row says."""
        with self._locked(table_id) as (connection, status):
            has_work = status.is_pending or even_if_idle
            if not has_work or status.is_leased or not status.is_published_to:
                return False, status
            stored = lease.taken(owner, status.lease_owner)
            self._set(connection, status, lease_owner=stored, lease_until=lease.until(stored, status.now))
            return True, status

    def advance(self, table_id: UUID, owner: str, published: Sequence[tuple[int, str]]) -> Advanced:
        """Note that these versions, which follow upon each other, are there with these digests.

        What a publisher put is noted even if its lease is another's by now: the files are there. The last published
        version never goes back. The lease is kept only if another version waits.
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

    def release(self, table_id: UUID, owner: str) -> bool:
        """Give the lease back; True if a version waits, for whoever comes next."""
        with self._locked(table_id) as (connection, status):
            if lease.is_of(status.lease_owner, owner):
                self._set(connection, status, lease_owner=None, lease_until=None)
            return status.is_pending

    def fail(self, table_id: UUID, owner: str, state: MirrorState, error: str) -> None:
        """Note what went wrong, give the lease back, and wait twice as long as the last time."""
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
        """Note that the log and the catalog contradict each other: nothing more is published or committed."""
        with self._locked(table_id) as (connection, status):
            if status.is_ours and not status.is_frozen:
                state = MirrorState.DIVERGED.value
                self._set(connection, status, state=state, last_error=error, lease_owner=None, lease_until=None)

    def recover(self, table_id: UUID) -> None:
        """Note that the log no longer contradicts the catalog."""
        with self._locked(table_id) as (connection, status):
            if status.state is MirrorState.DIVERGED and not status.is_frozen:
                active = MirrorState.ACTIVE.value
                self._set(connection, status, state=active, last_error=None, attempts=0, next_attempt_at=None)

    def due(self) -> list[UUID]:
        """The tables that somebody should publish now: behind, not leased, not diverged, their pause over."""
        due = []
        for *plain, now in self._database.look_up(self._statements.due, {}):
            row = DUE.read(plain)
            is_leased = lease.is_held(row["lease_owner"], row["lease_until"], now)
            if (
                not is_leased
                and not _is_pausing(row["next_attempt_at"], now)
                and (_mode(row["properties"]) is not MirrorMode.OFF)
            ):
                due.append(row["table_id"])
        return due

    def overview(self, *, with_dropped: bool = False) -> list[MirrorStatus]:
        """Every table, by name, with since when it waits for its oldest unpublished version."""
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
    def _locked(self, table_id: UUID) -> Iterator[tuple[Connection, MirrorStatus]]:
        """The status, locked until the block ends.

        COMMIT does not wait for the disk: a crash of the server may take back what is noted here. Whoever publishes
        next finds the files, and notes it again.
        """
        values = {"table": str(table_id)}
        # The table in a statement of its own: its snapshot must be younger than the wait for the lock.
        opening = Opening([(self._statements.locked, values), (self._statements.table, values)], waits_for_disk=False)
        with self._database.write(_TIMEOUT_S, opening) as connection:
            yield connection, _status_in(opening.rows, table_id)

    def _set(
        self,
        connection: Connection,
        status: MirrorStatus,
        log_rows: Sequence[Mapping[str, Any]] = (),
        **values: Any,
    ) -> None:
        """The last statement of its transaction; with rows for the log, in the same statement where that can be."""
        given = {"table": str(status.table_id), **{f"new_{name}": value for name, value in values.items()}}
        if log_rows:
            given["rows"] = _encode(log_rows).decode()
            if not self._backend.chains_writes:
                self._backend.run(connection, self._statements.log, given)
        statement = self._statements.update(tuple(values), bool(log_rows) and self._backend.chains_writes)
        self._backend.run_and_commit(connection, statement, given)


def _status_in(rows: Rows, table_id: UUID) -> MirrorStatus:
    """Of the row of `dl_mirror_status` and that of `dl_tables`."""
    if len(rows) != 2:
        raise TableNotFound(table_id=table_id)
    (*of_status, now), of_table = rows
    status, table = STATUS.read(of_status), TABLE.read(of_table)
    if table["dropped_at"] is not None:
        # Nothing is published for a table that was dropped: its directory may be gone.
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
        mode=_mode(row["properties"]),
        is_dropped=row["dropped_at"] is not None,
        is_frozen=row["protocol_version"] == HELD,
        pending_since=row.get("pending_since"),
    )


def _mode(properties: Mapping[str, str] | None) -> MirrorMode | None:
    """What is none of them counts as not said: a wrong word must not keep commits from being published."""
    said = (properties or {}).get(MODE_PROPERTY, "").strip().lower()
    return MirrorMode(said) if said in set(MirrorMode) else None


def _is_pausing(until: int | None, now: int) -> bool:
    # A pause that ends later than any can was begun before the clock went back.
    return until is not None and now < until <= _later(now, LONGEST_PAUSE_S)


def _later(now: int, seconds: int) -> int:
    return now + seconds * _SECOND_US
