"""What the mirror finds in the catalog beside how far it is: what was published, what belongs beside the tables.

- `dl_mirror_log`: each published version with its digest, to tell what is missing and what was cleaned up;
- `dl_tables` and `dl_transactions` as entries of the warehouse: a table's registration, a transaction's version map.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Select, and_, func, or_, select, true, update

from deltars.errors import TableNotFound
from deltars.store import schema
from deltars.store.database import Database

FOREIGN = "foreign "
"""Before the digest of a commit that was imported: it is not ours to put back or to clean up."""

CLEANED_UP = ""
"""The digest of a published version whose file the clean-up of old logs deleted."""

_TIMEOUT_S = 30.0

_status, _tables, _versions = schema.dl_mirror_status.c, schema.dl_tables.c, schema.dl_table_versions.c


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


class MirrorRecords:
    def __init__(self, database: Database) -> None:
        self._database = database

    def published(self, table_id: UUID) -> dict[int, str]:
        """The versions that were published and should be there, with the digests of their files."""
        log = schema.dl_mirror_log.c
        query = select(log.version, log.digest).where(
            log.table_id == table_id, log.digest != CLEANED_UP, log.digest.not_like(f"{FOREIGN}%")
        )
        with self._database.read() as connection:
            return {row.version: row.digest for row in connection.execute(query)}

    def digest(self, table_id: UUID, version: int) -> str | None:
        """The digest of a version's file as it was published or imported; None where the catalog knows none."""
        log = schema.dl_mirror_log.c
        query = select(log.digest).where(log.table_id == table_id, log.version == version)
        with self._database.read() as connection:
            found: str | None = connection.scalar(query)
        return None if found is None else found.removeprefix(FOREIGN)

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

    def catalog(self) -> tuple[UUID, str | None]:
        """The catalog's id, and its warehouse if it has one."""
        with self._database.read() as connection:
            row = connection.execute(select(schema.dl_catalog.c.catalog_id, schema.dl_catalog.c.warehouse)).one()
        return row.catalog_id, row.warehouse

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
