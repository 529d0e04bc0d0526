"""Announced writers: transactions that have been writing files for a while, each with its last heartbeat.

    writes for 30 s ──▶ announced ──▶ a heartbeat every 30 s ──▶ the commit withdraws the announcement
                                      none for a day ──▶ dead ──▶ a full vacuum withdraws it, and deletes the files
                                                                   that no version names; a commit then is refused

A file that no version names is kept while a writer is alive that may have written it. A commit and a vacuum both remove
the row, so exactly one of them has the files. A short write announces nothing: no vacuum deletes a file of less than a
day that no version names, and a transaction that could not announce itself for half a day is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Select, delete, insert, select, update

from deltars.errors import FilesMissing
from deltars.store.database import Database
from deltars.store.schema import dl_tables, dl_writers

DEAD_AFTER_US = 24 * 3_600_000_000
"""Time since the last heartbeat after which a writer counts as dead."""

_TIMEOUT_S = 20.0
_writers = dl_writers.c


@dataclass(frozen=True, slots=True)
class AnnouncedWriter:
    """A transaction that writes files of a table. Times are microseconds of the database's clock."""

    txn_id: UUID
    table_id: UUID
    started_at: int
    heartbeat_at: int

    def is_dead(self, now_us: int) -> bool:
        # A clock that was set back makes the difference negative: the writer counts as living.
        return now_us - self.heartbeat_at > DEAD_AFTER_US


class Writers:
    """Announcements in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def announce(self, txn_id: UUID, ages_us: Mapping[UUID, int]) -> None:
        """Announce that a transaction has been writing to these tables for so long."""
        clock = self._database.backend.clock_us()
        with self._database.write(_TIMEOUT_S) as connection:
            # Two rows with the key of an interrupted attempt would clash.
            connection.execute(
                delete(dl_writers).where(_writers.txn_id == txn_id, _writers.table_id.in_(list(ages_us)))
            )
            for table_id, age_us in ages_us.items():
                connection.execute(
                    insert(dl_writers).values(
                        txn_id=txn_id, table_id=table_id, started_at=clock - age_us, heartbeat_at=clock
                    )
                )

    def beat(self, txn_ids: Collection[UUID]) -> dict[UUID, set[UUID]]:
        """Note that these transactions are alive. Return the tables for which each is still announced."""
        mine = _writers.txn_id.in_(list(txn_ids))
        found: dict[UUID, set[UUID]] = {txn_id: set() for txn_id in txn_ids}
        with self._database.write(_TIMEOUT_S) as connection:
            connection.execute(update(dl_writers).where(mine).values(heartbeat_at=self._database.backend.clock_us()))
            for row in connection.execute(select(_writers.txn_id, _writers.table_id).where(mine)):
                found[row.txn_id].add(row.table_id)
        return found

    def withdraw(self, txn_id: UUID) -> None:
        """Withdraw what a transaction announced. Its files are orphans from now on."""
        with self._database.write(_TIMEOUT_S) as connection:
            connection.execute(delete(dl_writers).where(_writers.txn_id == txn_id))

    def all(self) -> list[AnnouncedWriter]:
        with self._database.read() as connection:
            return [AnnouncedWriter(*row) for row in connection.execute(_select().order_by(_writers.started_at))]

    def withdraw_strays(self) -> None:
        """Withdraw dead writers of tables that do not exist: the transaction that was to create them died."""
        with self._database.write(_TIMEOUT_S) as connection:
            [now] = connection.execute(select(self._database.backend.clock_us())).one()
            connection.execute(
                delete(dl_writers).where(
                    _writers.heartbeat_at < now - DEAD_AFTER_US,
                    _writers.table_id.not_in(select(dl_tables.c.table_id)),
                )
            )


def withdraw_for_commit(connection: Connection, txn_id: UUID, announced: Collection[UUID]) -> None:
    """Withdraw the announcements of a transaction that commits. Raise if a vacuum has taken it for dead."""
    there = set(connection.scalars(select(_writers.table_id).where(_writers.txn_id == txn_id)))
    if not there.issuperset(announced):
        raise lost_touch("a vacuum took this transaction for dead")
    connection.execute(delete(dl_writers).where(_writers.txn_id == txn_id))


def lost_touch(why: str) -> FilesMissing:
    return FilesMissing(
        f"{why}, because it could not reach the catalog for too long: its files may have been deleted",
        paths=(),
        count=0,
        hint="Nothing was committed. Begin a new transaction, and write again.",
    )


def announced_writers(connection: Connection, table_id: UUID) -> list[AnnouncedWriter]:
    return [AnnouncedWriter(*row) for row in connection.execute(_select().where(_writers.table_id == table_id))]


def withdraw_dead(connection: Connection, table_id: UUID, now_us: int) -> list[AnnouncedWriter]:
    """Withdraw the dead writers of a table, and return the living ones. Call it with the table's row locked."""
    found = announced_writers(connection, table_id)
    dead = [writer.txn_id for writer in found if writer.is_dead(now_us)]
    if dead:
        connection.execute(delete(dl_writers).where(_writers.table_id == table_id, _writers.txn_id.in_(dead)))
    return [writer for writer in found if not writer.is_dead(now_us)]


def _select() -> Select[Any]:
    return select(_writers.txn_id, _writers.table_id, _writers.started_at, _writers.heartbeat_at)
