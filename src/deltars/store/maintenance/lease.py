"""Lease on the maintenance of a table: which service works on it, so that two do not do the same work.

    claim ──▶ "host/ns:pid:id/30000" (30 s) ──▶ renewed every 10 s ──▶ release
                 │
                 └ the process is gone, or is not heard of for 30 s ──▶ the next service takes the lease over

Like the lease of the mirror (`mirror.lease`) it only saves work: every verb is safe beside itself. The database's clock
decides. A lease that ends later than its length allows was taken before the clock was set back, and is ignored.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, select, update

from deltars.store.database import Database
from deltars.store.mirror import lease
from deltars.store.schema import dl_maintenance

LENGTH_MS = lease.LONGEST_MS
RENEWED_EVERY_S = LENGTH_MS / 3_000

_TIMEOUT_S = 20.0
_columns = dl_maintenance.c


class MaintenanceLeases:
    """Leases of one owner: a service, or one call of `maintain`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._owner = lease.new_owner()

    def claim(self, table_id: UUID) -> bool:
        """Take the lease of a table, or renew it. Return False if another owner holds it."""
        with self._locked(table_id) as (connection, row, now):
            is_mine = lease.is_of(row.lease_owner, self._owner)
            if not is_mine and lease.is_held(row.lease_owner, row.lease_until, now):
                return False
            stored = f"{self._owner}/{LENGTH_MS}"
            self._set(connection, table_id, stored, lease.until(stored, now))
            return True

    def renew(self, table_id: UUID) -> bool:
        """Renew a lease that was claimed. Return False if another owner has taken it over."""
        with self._locked(table_id) as (connection, row, now):
            if not lease.is_of(row.lease_owner, self._owner):
                return False
            self._set(connection, table_id, row.lease_owner, lease.until(row.lease_owner, now))
            return True

    def release(self, table_id: UUID) -> None:
        with self._locked(table_id) as (connection, row, _):
            if lease.is_of(row.lease_owner, self._owner):
                self._set(connection, table_id, None, None)

    @contextmanager
    def _locked(self, table_id: UUID) -> Iterator[tuple[Connection, Any, int]]:
        backend = self._database.backend
        query = select(_columns.lease_owner, _columns.lease_until).where(_columns.table_id == table_id)
        with self._database.write(_TIMEOUT_S) as connection:
            connection.execute(backend.insert_unless_present(dl_maintenance).values(table_id=table_id))
            row = connection.execute(query.with_for_update() if backend.locks_rows else query).one()
            # The clock is read after the wait for the lock.
            now: int = connection.execute(select(backend.clock_us())).scalar_one()
            yield connection, row, now

    def _set(self, connection: Connection, table_id: UUID, owner: str | None, until: int | None) -> None:
        values = {"lease_owner": owner, "lease_until": until}
        connection.execute(update(dl_maintenance).where(_columns.table_id == table_id).values(values))
