"""Records that the mirror reads from the catalog, besides its status.

- `dl_mirror_log`: each published version with its digest, to find missing files and files that were cleaned up;
- `dl_tables` and `dl_transactions` as entries of the warehouse: a table's registration, a transaction's version map.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Select, and_, func, or_, select, true, update

from deltars.config import Isolation, check_isolation
from deltars.errors import TableNotFound
from deltars.store import schema
from deltars.store.database import Database

FOREIGN = "foreign "
"""Prefix of the digest of an imported commit, whose file this catalog neither restores nor cleans up."""

CLEANED_UP = ""
"""Digest of a published version whose file was deleted by the clean-up of old logs."""

_TIMEOUT_S = 30.0

_status, _tables, _versions = schema.dl_mirror_status.c, schema.dl_tables.c, schema.dl_table_versions.c


@dataclass(frozen=True, slots=True)
class Registration:
    """Table as registered in the catalog, with the catalog's warehouse if it has one."""

    catalog_id: UUID
    warehouse: str | None
    table_id: UUID
    name: str
    location: str
    created_at: datetime
    dropped_at: datetime | None


@dataclass(frozen=True, slots=True)
class TransactionTables:
    """Transaction and the version of each of its tables, by table id."""

    txn_id: UUID
    commit_ts: int
    participants: Mapping[str, int]


class MirrorRecords:
    """Reader of the mirror's records of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def published(self, table_id: UUID) -> dict[int, str]:
        """Return the published versions whose files should exist, with their digests."""
        log = schema.dl_mirror_log.c
        query = select(log.version, log.digest).where(
            log.table_id == table_id, log.digest != CLEANED_UP, log.digest.not_like(f"{FOREIGN}%")
        )
        with self._database.read() as connection:
            return {row.version: row.digest for row in connection.execute(query)}

    def digest(self, table_id: UUID, version: int) -> str | None:
        """Return the digest of a version's published or imported file; None if the catalog has none."""
        log = schema.dl_mirror_log.c
        query = select(log.digest).where(log.table_id == table_id, log.version == version)
        with self._database.read() as connection:
            found: str | None = connection.scalar(query)
        return None if found is None else found.removeprefix(FOREIGN)

    def last_version_before(self, table_id: UUID, moment_ms: int) -> int | None:
        """Return the newest published version with an in-commit timestamp before a time."""
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
        """Record that the files of all versions before this one were deleted by the clean-up."""
        log = schema.dl_mirror_log
        older = update(log).where(log.c.table_id == table_id, log.c.version < before, log.c.digest != CLEANED_UP)
        with self._database.write(_TIMEOUT_S) as connection:
            connection.execute(older.values(digest=CLEANED_UP))

    def transactions_over_several(self, since: int) -> list[TransactionTables]:
        """Return the transactions over several tables committed at or after `since` (µs), oldest first."""
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

    def has_transaction(self, txn_id: UUID) -> bool:
        query = select(schema.dl_transactions.c.txn_id).where(schema.dl_transactions.c.txn_id == txn_id)
        with self._database.read() as connection:
            return connection.execute(query).first() is not None

    def skew_us(self, participants: Mapping[str, int]) -> int:
        """Return the time between the first and the last publication of these versions, given by table id."""
        log = schema.dl_mirror_log.c
        each = [and_(log.table_id == UUID(key), log.version == version) for key, version in participants.items()]
        with self._database.read() as connection:
            times = connection.execute(select(log.published_at).where(or_(*each))).scalars().all()
        return max(times) - min(times) if times else 0

    def catalog(self) -> tuple[UUID, str | None]:
        """Return the catalog's id, and its warehouse if it has one."""
        with self._database.read() as connection:
            row = connection.execute(select(schema.dl_catalog.c.catalog_id, schema.dl_catalog.c.warehouse)).one()
        return row.catalog_id, row.warehouse

    def isolation(self) -> Isolation | None:
        """Return the default isolation level that the catalog stores; None if it stores none."""
        with self._database.read() as connection:
            stored: str | None = connection.scalar(select(schema.dl_catalog.c.isolation))
        return None if stored is None else check_isolation(stored)

    def registration(self, table_id: UUID) -> Registration:
        with self._database.read() as connection:
            row = connection.execute(_registrations().where(_tables.table_id == table_id)).one_or_none()
        if row is None:
            raise TableNotFound(table_id=table_id)
        return Registration(*row)

    def registrations(self) -> list[Registration]:
        """Return the registration of every table, live or dropped."""
        with self._database.read() as connection:
            return [Registration(*row) for row in connection.execute(_registrations())]


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
