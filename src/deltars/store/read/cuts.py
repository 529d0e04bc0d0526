"""Cuts: a consistent set of versions, one per table, that contains each transaction wholly or not at all.

    now          every table's current version, in one statement
    as of c      every table's last version with commit_ts <= c; the result never changes afterwards, except that
                 versions may be expired (`past_versions`)

Two kinds of commit could still change the cut as of c. Both are handled before the cut is returned:

    stamped, not yet visible      wait for the transactions that may be in this state, and no others (`Backend.settle`)
    not yet stamped               seal c: insert a row into `dl_transactions`, after which every commit is stamped later
                                  than c, even if the clock is set back. A commit at c or later serves as the seal.

A standby can do neither: it does not see running transactions of its primary. So it refuses cuts of the past.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Connection, Select, Text, cast, func, insert, select

from deltars.errors import DatabaseError, TransactionNotFound, ValidationError
from deltars.log.new_table import NO_VERSION
from deltars.store.database import Database
from deltars.store.names import name_key
from deltars.store.read.past_versions import past_versions
from deltars.store.schema import dl_tables, dl_transactions

_log = logging.getLogger(__name__)

NEARLY_NOW_US = 1_000_000
"""A time this little ahead of the database's clock is waited for: clocks differ, and some tick in milliseconds."""

SEALED = "sealed"
"""Outcome of a row in `dl_transactions` that is a seal and not a transaction: commits are stamped after it."""


@dataclass(frozen=True, slots=True)
class CutTable:
    """Table in a cut."""

    table_id: UUID
    name: str
    version: int
    commit_ts: int | None = field(default=None, repr=False, compare=False)
    """Time stamp of the version's commit; None in a cut of the past."""


@dataclass(frozen=True)
class Cut:
    """Version of every table at one moment; −1 before its first commit."""

    rows: Mapping[str, tuple[str, str, int, int | None]]
    """Name, id as text, version and its time stamp, by id. Rows stay plain tuples: a cut may hold ten thousand tables,
    of which few are used."""
    commit_ts: int | None = None
    """Moment of a past cut; None for the present."""
    expired: Mapping[str, str] = field(default_factory=dict)
    """Names of the tables whose version in this cut is expired, by id."""

    def find_expired(self, table: str | UUID) -> UUID | None:
        """Find a table whose version in this cut is expired, by id or by name."""
        ids = [
            key for key, name in self.expired.items() if table == UUID(key) or name_key(name) == name_key(str(table))
        ]
        return UUID(ids[0]) if ids else None

    def find(self, table: str | UUID) -> CutTable | None:
        """Find a table by id, or by name without regard to case."""
        table_id = str(table) if isinstance(table, UUID) else self._ids.get(name_key(table))
        found = self.rows.get(table_id) if table_id is not None else None
        if table_id is None or found is None:
            return None
        return CutTable(UUID(table_id), found[0], found[2], found[3])

    @property
    def versions(self) -> dict[str, int]:
        """Return the version of every table with at least one commit, by name."""
        return {name: version for name, _, version, _ in self.rows.values() if version != NO_VERSION}

    @property
    def versions_by_id(self) -> dict[UUID, int]:
        return {UUID(table_id): version for _, table_id, version, _ in self.rows.values() if version != NO_VERSION}

    @property
    def tables(self) -> list[CutTable]:
        """Return the tables with at least one commit, sorted by name."""
        found = [CutTable(UUID(key), name, version, time) for name, key, version, time in self.rows.values()]
        return sorted((table for table in found if table.version != NO_VERSION), key=lambda table: table.name)

    @cached_property
    def _ids(self) -> dict[str, str]:
        return {name_key(name): table_id for name, table_id, *_ in self.rows.values()}


def _current_versions() -> Select[Any]:
    tables = dl_tables.c
    query = select(tables.name, cast(tables.table_id, Text), tables.current_version, tables.last_commit_ts)
    return query.where(tables.dropped_at.is_(None))


class Cuts:
    def __init__(self, database: Database) -> None:
        self._database = database

    def now(self) -> Cut:
        statement = self._database.backend.prepared_once("current versions", _current_versions)
        return Cut({row[1]: row for row in self._database.read_all(statement)})

    def at(self, commit_ts: int, *, timeout_s: float) -> Cut:
        """Return the cut as of a moment, in microseconds since 1970.

        A user without write access cannot seal a moment after the newest commit. The cut is then as of that commit,
        which its `commit_ts` shows.
        """
        self._refuse_standby()
        newest = self.newest_us()
        # If a commit at this moment or later exists, skip the clock: it may have been set back since that commit.
        if newest is None or newest < commit_ts:
            self._await_clock(commit_ts)
            try:
                self.seal(commit_ts, timeout_s)
            except DatabaseError as error:
                if not self._database.backend.is_refused_write(error):
                    raise
                return self._as_of_newest(commit_ts, timeout_s)
        return self._past(commit_ts, timeout_s)

    def of(self, txn_id: UUID, *, timeout_s: float) -> Cut:
        """Return the cut as of a committed transaction: with all its changes, and nothing later."""
        query = select(dl_transactions.c.commit_ts).where(
            dl_transactions.c.txn_id == txn_id, dl_transactions.c.outcome == "committed"
        )
        self._refuse_standby()
        with self._database.read() as connection:
            commit_ts = connection.execute(query).scalar_one_or_none()
        if commit_ts is None:
            raise TransactionNotFound(txn_id=txn_id)
        return self._past(commit_ts, timeout_s)

    def sealed(self, commit_ts: int) -> Cut:
        """Return the cut as of a moment that is known to be sealed and settled, as that of a tag. It needs no wait.

        A standby has it too: what was committed before the tag was sent to it before the tag.
        """
        return self._as_of(commit_ts)

    def is_committed(self, txn_id: UUID) -> bool:
        query = select(dl_transactions.c.txn_id).where(
            dl_transactions.c.txn_id == txn_id, dl_transactions.c.outcome == "committed"
        )
        with self._database.read() as connection:
            return connection.execute(query).first() is not None

    def clock_us(self) -> int:
        """Return the time of the database's clock, in microseconds since 1970."""
        with self._database.read() as connection:
            now: int = connection.execute(select(self._database.backend.clock_us())).scalar_one()
            return now

    def newest_us(self) -> int | None:
        """Return the time stamp of the newest commit or seal."""
        with self._database.read() as connection:
            return _newest(connection)

    def is_standby(self) -> bool:
        """Return whether the database is a hot standby, which replays the commits of its primary."""
        with self._database.read() as connection:
            return bool(connection.execute(select(self._database.backend.is_standby())).scalar_one())

    def _refuse_standby(self) -> None:
        if self.is_standby():
            raise DatabaseError(
                f"{self._database.uri} is a hot standby: it cannot tell which past commits are still in progress",
                hint="Connect to the primary, or leave as_of out: the present cut is consistent on a standby too.",
            )

    def _await_clock(self, commit_ts: int) -> None:
        """Wait until the clock has passed this time: sealing a future time would stamp commits in the future."""
        while (ahead_us := commit_ts - self.clock_us()) >= 0:
            if ahead_us > NEARLY_NOW_US:
                raise ValidationError(
                    "as_of is in the future", field="as_of", hint="Leave as_of out to get the present cut."
                )
            time.sleep((ahead_us + 1) / 1_000_000)

    def seal(self, commit_ts: int, timeout_s: float) -> None:
        """Make every later commit get a time stamp after this one, even if the clock is set back."""
        with self._database.write(timeout_s) as connection:
            newest = _newest(connection)
            if newest is None or newest < commit_ts:
                seal = {"txn_id": uuid4(), "outcome": SEALED, "commit_ts": commit_ts}
                connection.execute(insert(dl_transactions).values(seal))

    def _as_of_newest(self, commit_ts: int, timeout_s: float) -> Cut:
        self._settle(commit_ts, timeout_s)
        moment = func.max(dl_transactions.c.commit_ts)
        with self._database.read() as connection:
            found = connection.execute(select(moment).where(dl_transactions.c.commit_ts <= commit_ts)).scalar_one()
        _log.info("no write access to %s: the cut is as of its newest commit", self._database.uri)
        # 0 is before every commit.
        return self._past(found or 0, timeout_s)

    def _settle(self, commit_ts: int, timeout_s: float) -> None:
        database = self._database
        with database.backend.translating():
            database.backend.settle(database.engine, commit_ts, timeout_s)

    def _past(self, commit_ts: int, timeout_s: float) -> Cut:
        self._settle(commit_ts, timeout_s)
        return self._as_of(commit_ts)

    def _as_of(self, commit_ts: int) -> Cut:
        with self._database.read() as connection:
            rows, expired = past_versions(connection, self._database.backend, commit_ts)
        return Cut(rows, commit_ts, expired)


def _newest(connection: Connection) -> int | None:
    newest: int | None = connection.execute(select(func.max(dl_transactions.c.commit_ts))).scalar_one()
    return newest
