"""Deletion of expired rows, in small transactions that block no writer.

    mark      first_version is set, and the versions that tags need are read, under the lock that tags take too
    log       the rows of `dl_mirror_log`: from then on the mirror leaves the files alone   ┐
    versions  the rows of `dl_table_versions`: from then on the versions cannot be read     │ some hundred rows each,
    the rest  the rows that no version needs any more                                       ┘ again and again

A version that is there can be read wholly, at every moment: its row goes first, and the rows that it needs after it.
Any step can be repeated, and any two runs can overlap. No row of `dl_tables` is locked. Where a database has one writer
at a time, other writers get their turn after each transaction.

This needs the rights of the schema's owner.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Table,
    Text,
    and_,
    bindparam,
    delete,
    exists,
    false,
    func,
    select,
    true,
    tuple_,
    update,
)

from deltars.backoff import Backoff
from deltars.errors import DatabaseError
from deltars.log.commit import NO_VERSION
from deltars.store import schema
from deltars.store.database import Database
from deltars.store.history.plan import kept_versions
from deltars.store.read.cuts import SEALED
from deltars.store.read.version_header import first_version
from deltars.store.schema import (
    dl_add_files,
    dl_cdc_files,
    dl_conflicts,
    dl_domain_metadata,
    dl_maintenance,
    dl_metadata_updates,
    dl_mirror_log,
    dl_mirror_status,
    dl_protocol_updates,
    dl_reads,
    dl_remove_files,
    dl_row_groups,
    dl_table_versions,
    dl_tables,
    dl_transactions,
    dl_txn_actions,
    dl_writers,
)

TIMEOUT_S = 30.0
LEAST_ROWS = 50
MOST_ROWS = 5_000
LONGEST_S = 0.05
"""How long one transaction should take. The next one has fewer rows if it took longer."""
ATTEMPTS = 5
PAUSE_S = 0.01
"""Least pause between two transactions where there is one writer at a time."""

_encode = msgspec.json.Encoder().encode
_transactions = dl_transactions.c
_DELETE_NOTHING = delete(dl_table_versions).where(false())


@dataclass(frozen=True, slots=True)
class ExpiredTransaction:
    """A transaction none of whose versions is left."""

    txn_id: UUID
    is_over_several: bool
    """Whether it may have a published version map."""


class HistoryDeletion:
    """Deletion of expired rows of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._rows = LEAST_ROWS * 4

    def is_marked(self, table_id: UUID) -> bool:
        """Return whether versions of the table were expired before, perhaps by a run that was interrupted."""
        with self._database.read() as connection:
            return first_version(connection, table_id) > 0

    def mark(self, table_id: UUID, first: int) -> tuple[int, ...]:
        """Record that versions below this one are expired. Return the versions to keep, this one last."""
        with self._writing() as connection:
            # A role that cannot delete must not mark either.
            connection.execute(_DELETE_NOTHING)
            self._database.backend.lock_registry(connection)
            new = self._database.backend.insert_unless_present(dl_maintenance).values(table_id=table_id)
            connection.execute(new)
            this = dl_maintenance.c.table_id == table_id
            before: int = connection.execute(select(dl_maintenance.c.first_version).where(this)).scalar_one()
            values = {"first_version": max(before, first), "expired_at": self._database.backend.clock_us()}
            connection.execute(update(dl_maintenance).where(this).values(values))
            first = max(before, first)
            return (*kept_versions(connection, table_id, below=first), first)

    def delete(self, table_id: UUID, kept: Sequence[int]) -> int:
        """Delete the versions below the last of `kept` that are not among them, and what only they need.

        Return how many versions were deleted.
        """
        spans = list(pairwise((NO_VERSION, *kept)))
        # Without its row here, the file of a version is neither compared with the catalog nor written again.
        for low, high in spans:
            self._delete(dl_mirror_log, table_id, _between(dl_mirror_log, low, high))
        versions = sum(
            self._delete(dl_table_versions, table_id, _between(dl_table_versions, low, high)) for low, high in spans
        )
        for low, high in spans:
            for table in (dl_remove_files, dl_cdc_files):
                self._delete(table, table_id, _between(table, low, high))
            self._delete(dl_add_files, table_id, _ended(low, high), dl_row_groups)
            for table in (dl_metadata_updates, dl_protocol_updates):
                self._delete(table, table_id, _replaced(table, low, high))
            for table, key in (
                (dl_txn_actions, dl_txn_actions.c.app_id),
                (dl_domain_metadata, dl_domain_metadata.c.domain),
            ):
                self._delete(table, table_id, _replaced(table, low, high, key))
        return versions

    def check_right(self) -> None:
        """Raise `DatabaseError` if the role cannot delete history."""
        with self._writing() as connection:
            connection.execute(_DELETE_NOTHING)

    def delete_rows(self, table_id: UUID) -> None:
        """Delete the history of a dropped table."""
        for table in (dl_table_versions, *schema.ACTION_TABLES, dl_mirror_log, dl_writers, dl_reads, dl_conflicts):
            self._delete(table, table_id, true())
        self._delete(schema.dl_chain, table_id, true())
        self._delete(schema.dl_identities, table_id, true())

    def delete_activity(self, table_id: UUID, before_us: int) -> None:
        """Delete what was recorded of a table before a time: its reads, and the races for it."""
        for table in (dl_reads, dl_conflicts):
            is_going = table.c.recorded_at < before_us
            with self._database.read() as connection:
                some = connection.execute(select(true()).where(table.c.table_id == table_id, is_going).limit(1)).first()
            if some is not None:
                self._delete(table, table_id, is_going)

    def delete_table(self, table_id: UUID) -> None:
        """Delete a table that has no history any more."""
        with self._writing() as connection:
            if self._database.backend.locks_rows:
                # In the order of all others: the table, then its status.
                connection.execute(
                    select(dl_tables.c.table_id).where(dl_tables.c.table_id == table_id).with_for_update()
                )
            connection.execute(delete(dl_mirror_status).where(dl_mirror_status.c.table_id == table_id))
            # Without its status, a purge that was interrupted is not found again.
            if self._database.backend.deletes_referenced_rows:
                self._delete_names(connection, table_id)
                return
        with self._writing() as connection:
            self._delete_names(connection, table_id)

    def _delete_names(self, connection: Connection, table_id: UUID) -> None:
        # `dl_maintenance` says that the purge has begun. It stays as long as the table can be found.
        for owner in (dl_maintenance, dl_tables):
            connection.execute(delete(owner).where(owner.c.table_id == table_id))

    def expired_transactions(self, before_us: int) -> Iterator[list[ExpiredTransaction]]:
        """Yield the transactions before a time none of whose versions is left, some hundred at a time."""
        cursor = -1
        # The newest time stamp stays: later commits are stamped after it.
        newest = select(func.max(_transactions.commit_ts)).scalar_subquery()
        query = (
            select(_transactions.txn_id, _transactions.commit_ts, _transactions.outcome, _transactions.participants)
            .where(_transactions.commit_ts > bindparam("cursor"), _transactions.commit_ts < before_us)
            .where(_transactions.commit_ts < newest)
            .order_by(_transactions.commit_ts)
            .limit(MOST_ROWS)
        )
        while True:
            with self._database.read() as connection:
                rows = connection.execute(query, {"cursor": cursor}).all()
                keys = [
                    {"table_id": table_id, "version": version, "txn_id": str(row.txn_id)}
                    for row in rows
                    for table_id, version in (row.participants or {}).items()
                ]
                there = self._there(connection, keys)
            if not rows:
                return
            yield [
                ExpiredTransaction(row.txn_id, len(row.participants or {}) > 1)
                for row in rows
                if row.txn_id not in there and row.outcome in ("committed", SEALED)
            ]
            cursor = rows[-1].commit_ts

    def delete_transactions(self, expired: Sequence[ExpiredTransaction]) -> None:
        for start in range(0, len(expired), MOST_ROWS // 4):
            ids = [one.txn_id for one in expired[start : start + MOST_ROWS // 4]]
            self._in_turn(
                lambda connection, ids=ids: connection.execute(  # type: ignore[misc]
                    delete(dl_transactions).where(_transactions.txn_id.in_(ids))
                )
            )

    def _there(self, connection: Connection, keys: Sequence[dict[str, Any]]) -> set[UUID]:
        """Return the transactions that have a version among these."""
        columns = [dl_table_versions.c[name] for name in ("table_id", "version", "txn_id")]
        given = self._database.backend.rows(bindparam("keys", type_=Text()), columns)
        is_same = and_(*(column == given.c[column.name] for column in columns))
        query = select(dl_table_versions.c.txn_id).join_from(given, dl_table_versions, is_same)
        return set(connection.scalars(query, {"keys": _encode(keys).decode()})) if keys else set()

    def _delete(self, table: Table, table_id: UUID, is_going: ColumnElement[bool], parts: Table | None = None) -> int:
        """Delete rows of a table, and before each its rows in `parts`, which has the same key and more."""
        key: list[Column[Any]] = [column for column in table.primary_key if column.name != "table_id"]
        is_of_table = table.c.table_id == table_id
        if not key:
            with self._writing() as connection:
                connection.execute(delete(table).where(is_of_table, is_going))
            return 0
        deleted = 0

        def some(connection: Connection) -> int:
            going = connection.execute(select(*key).where(is_of_table, is_going).limit(self._rows)).mappings().all()
            if going:
                document = {"keys": _encode([dict(row) for row in going]).decode()}
                for each in (table,) if parts is None else (parts, table):
                    given = self._database.backend.rows(bindparam("keys", type_=Text()), key)
                    is_given = tuple_(*(each.c[column.name] for column in key)).in_(select(*given.c))
                    connection.execute(delete(each).where(each.c.table_id == table_id, is_given), document)
            return len(going)

        while (count := self._in_turn(some)) > 0:
            deleted += count
        return deleted

    def _in_turn(self, act: Callable[[Connection], Any]) -> Any:
        """Run one small transaction, and let other writers have their turn after it."""
        retries = Backoff(PAUSE_S, longest_s=1.0)
        for attempt in range(ATTEMPTS):
            began = time.monotonic()
            try:
                with self._writing() as connection:
                    result = act(connection)
                break
            except DatabaseError as error:
                # Two runs at once may have deadlocked.
                if not error.retryable or attempt == ATTEMPTS - 1:
                    raise
                retries.sleep()
        took = time.monotonic() - began
        if took > LONGEST_S:
            self._rows = max(self._rows // 2, LEAST_ROWS)
        elif took < LONGEST_S / 3:
            self._rows = min(self._rows * 2, MOST_ROWS)
        if not self._database.backend.locks_rows:
            time.sleep(max(took, PAUSE_S))
        return result

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        try:
            with self._database.write(TIMEOUT_S) as connection:
                yield connection
        except DatabaseError as error:
            if self._database.backend.is_refused_write(error):
                error.hint = "Run it as the owner of the catalog's schema: no other role can delete history."
            raise


def _between(table: Table, low: int, high: int) -> ColumnElement[bool]:
    """Rows that belong to a version between two that stay."""
    return and_(table.c.version > low, table.c.version < high)


def _ended(low: int, high: int) -> ColumnElement[bool]:
    """Files that were added after one version that stays, and removed before or in the next."""
    files = dl_add_files.c
    return and_(
        files.removed_version.is_not(None), files.removed_version <= high, files.version > low, files.version <= high
    )


def _replaced(table: Table, low: int, high: int, *key: Column[Any]) -> ColumnElement[bool]:
    """Actions after one version that stays which are replaced, for their key, up to the next."""
    newer = table.alias("newer")
    is_same = (newer.c[column.name] == column for column in key)
    is_replaced = exists().where(
        newer.c.table_id == table.c.table_id, *is_same, newer.c.version > table.c.version, newer.c.version <= high
    )
    return and_(table.c.version > low, table.c.version < high, is_replaced)
