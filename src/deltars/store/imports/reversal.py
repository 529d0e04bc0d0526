"""Removal of versions that a table's log does not have, so that the catalog can follow the log.

    versions_after ──▶ the versions to remove ──▶ take_back: one SQL transaction
                                                   ├─ delete their actions and rows; files they removed are live again
                                                   ├─ delete their transactions, or remove this table from them
                                                   └─ hold the table until its log is imported (`ImportWriter.finish`)

Besides it, only an expiry (`store/history`) deletes visible history. This needs the rights of the schema's owner.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection, delete, select, update

from deltars.errors import LogDiverged
from deltars.log.bounds import Bounds
from deltars.store import schema
from deltars.store.commit.bounds_rewrite import rewrite_bounds
from deltars.store.database import Database
from deltars.store.imports.appender import TIMEOUT_S
from deltars.store.imports.table_hold import HELD, lock_row
from deltars.store.mirror.records import MirrorRecords
from deltars.store.mirror.status import MirrorState
from deltars.store.read.version_header import newest_metadata
from deltars.store.schema import (
    dl_add_files,
    dl_mirror_log,
    dl_mirror_status,
    dl_table_versions,
    dl_tables,
    dl_transactions,
)

_versions, _transactions = dl_table_versions.c, dl_transactions.c


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Version in the catalog whose version number belongs to another commit in the log."""

    version: int
    txn_id: UUID
    commit_ts: int
    """Microseconds since 1970, by the database's clock."""
    operation: str
    committer: str | None
    other_tables: tuple[str, ...]
    """Other tables that the same transaction wrote; their versions stay."""


class Reversal:
    """Removal of versions from one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def digest(self, table_id: UUID, version: int) -> str | None:
        """Return the digest of a version's published or imported file; None if the catalog has none."""
        return MirrorRecords(self._database).digest(table_id, version)

    def versions_after(self, table_id: UUID, version: int) -> list[Contradiction]:
        """Return the versions that `take_back` would remove, oldest first."""
        query = (
            select(dl_table_versions, _transactions.participants)
            .outerjoin(dl_transactions, _transactions.txn_id == _versions.txn_id)
            .where(_versions.table_id == table_id, _versions.version > version)
            .order_by(_versions.version)
        )
        with self._database.read() as connection:
            names = {str(row.table_id): row.name for row in connection.execute(select(dl_tables))}
            return [
                Contradiction(
                    row.version,
                    row.txn_id,
                    row.commit_ts,
                    row.operation,
                    row.committer,
                    tuple(names.get(key, key) for key in row.participants or {} if key != str(table_id)),
                )
                for row in connection.execute(query)
            ]

    def take_back(
        self, table_id: UUID, *, after: int, current_version: int, digests: Mapping[int, str] | None = None
    ) -> None:
        """Remove the versions after this one, and hold the table.

        `digests` are the digests of existing log files that were not recorded as published.
        """
        with self._database.write(TIMEOUT_S) as connection:
            row = lock_row(connection, self._database, table_id)
            if row.current_version != current_version or row.protocol_version == HELD:
                raise LogDiverged(
                    f"the table was at version {current_version} and has changed since",
                    table=row.name,
                    table_id=table_id,
                    hint="Check again what would be discarded, then run the command again.",
                )
            self._forget_transactions(connection, table_id, after)
            for part in (*schema.ACTION_TABLES, dl_table_versions, dl_mirror_log, schema.dl_chain):
                connection.execute(delete(part).where(part.c.table_id == table_id, part.c.version > after))
            connection.execute(
                update(dl_add_files)
                .where(dl_add_files.c.table_id == table_id, dl_add_files.c.removed_version > after)
                .values(removed_version=None)
            )
            metadata_version, metadata = newest_metadata(connection, table_id)
            if row.metadata_version > after:
                assert metadata is not None
                bounds = Bounds(metadata.schema, metadata.partition_columns, metadata.configuration)
                rewrite_bounds(connection, self._database.backend, {table_id: bounds})
            last = connection.execute(
                select(_versions.commit_ts, _versions.in_commit_timestamp).where(
                    _versions.table_id == table_id, _versions.version == after
                )
            ).one()
            for version, digest in (digests or {}).items():
                noted = {"table_id": table_id, "version": version, "digest": digest}
                values = noted | {"published_at": last.in_commit_timestamp * 1000}
                connection.execute(self._database.backend.insert_unless_present(dl_mirror_log).values(values))
            connection.execute(
                update(dl_tables)
                .where(dl_tables.c.table_id == table_id)
                .values(
                    current_version=after,
                    metadata_version=min(row.metadata_version, metadata_version),
                    protocol_version=HELD,
                    last_commit_ts=last.commit_ts,
                    last_ict=last.in_commit_timestamp,
                )
            )
            connection.execute(
                update(dl_mirror_status)
                .where(dl_mirror_status.c.table_id == table_id)
                .values(
                    state=MirrorState.DIVERGED.value,
                    published_version=min(after, _published(connection, table_id)),
                    lease_owner=None,
                    lease_until=None,
                )
            )

    def _forget_transactions(self, connection: Connection, table_id: UUID, after: int) -> None:
        """Remove this table from the transactions of the versions, or delete them.

        So a job that uses its own transaction id can be run again.
        """
        query = (
            select(_transactions.txn_id, _transactions.participants)
            .join(dl_table_versions, _versions.txn_id == _transactions.txn_id)
            .where(_versions.table_id == table_id, _versions.version > after)
        )
        for txn_id, participants in connection.execute(query).all():
            this = _transactions.txn_id == txn_id
            rest = _without(participants or {}, table_id)
            if rest:
                connection.execute(update(dl_transactions).where(this).values(participants=rest))
            else:
                connection.execute(delete(dl_transactions).where(this))


def _without(participants: Mapping[str, int], table_id: UUID) -> dict[str, int]:
    return {key: version for key, version in participants.items() if key != str(table_id)}


def _published(connection: Connection, table_id: UUID) -> int:
    query = select(dl_mirror_status.c.published_version).where(dl_mirror_status.c.table_id == table_id)
    return int(connection.execute(query).scalar_one())
