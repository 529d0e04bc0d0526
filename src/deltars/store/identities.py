"""Ranges of identity columns, reserved by writers before they commit, so that no value is given twice.

    writer A ── reserve 100 ──▶ 1 … 100      ┐ each in its own short transaction, which the commit is no part of
    writer B ── reserve 100 ──▶ 101 … 200    ┘
    writer A ── used 40, and no one reserved since ──▶ 41 is free again; else 41 … 100 stay a gap

The high-water mark in the schema says which values were committed. A reservation begins after it, whoever wrote it.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import ColumnElement, select, update

from deltars.protocol.identity import Identity, exhausted, is_in_range
from deltars.store.database import Database
from deltars.store.schema import dl_identities

_TIMEOUT_S = 30.0
_columns = dl_identities.c


@dataclass(frozen=True, slots=True)
class IdentityRange:
    """Values that one writer may give to a column: `first`, and in steps up to `last`."""

    table_id: UUID
    column: str
    first: int
    last: int
    before: int | None
    """Last value that was reserved before; None if there was none."""


class Identities:
    """Reserves values of identity columns in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def reserve(self, table_id: UUID, column: str, identity: Identity, count: int) -> IdentityRange:
        """Reserve so many values, or as many as BIGINT has left. Raise `ValidationError` if it has none."""
        mine = self._key(table_id, column)
        with self._database.write(_TIMEOUT_S) as connection:
            new = self._database.backend.insert_unless_present(dl_identities)
            connection.execute(new.values(table_id=table_id, column_name=column, last_value=None))
            # Locks the row, so that the value that is read next is the newest.
            connection.execute(update(dl_identities).where(mine).values(last_value=_columns.last_value))
            reserved: int | None = connection.execute(select(_columns.last_value).where(mine)).scalar_one()
            known = [value for value in (reserved, identity.high_water_mark) if value is not None]
            before = identity.last_of(known) if known else None
            first = identity.start if before is None else before + identity.step
            if not is_in_range(first):
                raise exhausted(column)
            last = first + identity.step * (count - 1)
            while not is_in_range(last):
                last = first + identity.step * ((last - first) // identity.step // 2)
            connection.execute(update(dl_identities).where(mine).values(last_value=last))
        return IdentityRange(table_id, column, first, last, before)

    def settle(self, reserved: IdentityRange, used: int | None) -> bool:
        """Make `used` the last value that is taken, None for none of the range. Return False if that is too late.

        It is if another writer has reserved values since: then the rest of the range stays a gap.
        """
        last = reserved.before if used is None else used
        if last == reserved.last:
            return True
        is_newest = self._key(reserved.table_id, reserved.column) & (_columns.last_value == reserved.last)
        with self._database.write(_TIMEOUT_S) as connection:
            return connection.execute(update(dl_identities).where(is_newest).values(last_value=last)).rowcount == 1

    def _key(self, table_id: UUID, column: str) -> ColumnElement[bool]:
        return (_columns.table_id == table_id) & (_columns.column_name == column)
