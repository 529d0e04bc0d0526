"""Writer of imported logs: it copies a log from elsewhere into the catalog, batch by batch.

    register ──▶ hold ──▶ Appender: actions of version after version ──flush──▶ one SQL transaction per batch,
                             │                                                  not visible to readers yet
                             └─ a version is complete once its row in dl_table_versions exists: after an interruption,
                                everything beyond the last complete version is deleted, and the import continues there
    finish ──▶ one SQL transaction: every version gets its time stamp and becomes visible

A commit makes history; an import copies it. Versions keep their numbers, times and ids, and the rules for new commits
are not applied to them.
"""

from __future__ import annotations

from collections.abc import Generator
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import msgspec
from sqlalchemy import Connection, Text, cast, delete, insert, select, update

from deltars.errors import DamagedLog, TableExists, brief
from deltars.log.new_table import NO_VERSION, NewTable
from deltars.log.table_rules import ROW_TRACKING_DOMAIN
from deltars.protocol.actions import decode_partition_values
from deltars.store import schema
from deltars.store.commit.bounds_rewrite import rewrite_bounds_since
from deltars.store.commit.statements import CommitStatements
from deltars.store.database import Database
from deltars.store.imports.appender import LATER, TIMEOUT_S, Appender, HeldTable
from deltars.store.imports.table_hold import HELD, lock_row
from deltars.store.mirror.records import FOREIGN
from deltars.store.mirror.status import MirrorState
from deltars.store.names import is_same_name
from deltars.store.read.version_header import newest_metadata, newest_protocol
from deltars.store.registry import Origin, TableRecord, create
from deltars.store.schema import dl_add_files, dl_mirror_log, dl_mirror_status, dl_table_versions, dl_tables
from deltars.store.schema import dl_transactions as transactions

RELEASE = "RELEASE TABLE"
"""Operation of the commit that releases a table to other writers."""


class ImportWriter:
    """Writer of imported tables of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._statements = database.backend.shared(CommitStatements)

    def register(
        self, table: NewTable, *, created_at: datetime | None = None, origin: Origin = Origin.IMPORTED
    ) -> None:
        """Register a table at version −1, held."""
        with self._database.write(TIMEOUT_S) as connection:
            owner = create(connection, [table], self._database, origin=origin)
            if owner is not None:
                raise _taken(owner, table)
            values: dict[str, Any] = {"protocol_version": HELD}
            if created_at is not None:
                values["created_at"] = created_at
            connection.execute(update(dl_tables).where(dl_tables.c.table_id == table.table_id).values(**values))
            self._set_state(connection, table.table_id, state=MirrorState.IMPORTING)

    def unregister(self, table_id: UUID) -> None:
        """Delete a table that never became visible, with everything that was copied of it."""
        with self._database.write(TIMEOUT_S) as connection:
            row = lock_row(connection, self._database, table_id)
            if row.current_version != NO_VERSION:
                raise TableExists("the table is already visible", table=row.name, table_id=table_id)
            for part in (*schema.ACTION_TABLES, dl_table_versions, dl_mirror_log, dl_mirror_status):
                connection.execute(delete(part).where(part.c.table_id == table_id))
        # A separate transaction: DuckDB checks foreign keys against the state before the transaction.
        with self._database.write(TIMEOUT_S) as connection:
            connection.execute(delete(dl_tables).where(dl_tables.c.table_id == table_id))

    def find_importing(self, location: str) -> UUID | None:
        """Return the table whose import from this location has not finished."""
        query = (
            select(dl_tables.c.table_id)
            .join(dl_mirror_status, dl_mirror_status.c.table_id == dl_tables.c.table_id)
            .where(
                dl_tables.c.location == location,
                dl_tables.c.dropped_at.is_(None),
                dl_mirror_status.c.state.in_((MirrorState.IMPORTING, MirrorState.READ_ONLY)),
            )
        )
        with self._database.read() as connection:
            found: UUID | None = connection.execute(query).scalar_one_or_none()
            return found

    def find_imported(self, location: str, name: str) -> UUID | None:
        """Return the table of this name that was imported from this location and is now owned by this catalog."""
        is_imported = (
            select(dl_mirror_log.c.version)
            .where(dl_mirror_log.c.table_id == dl_tables.c.table_id, dl_mirror_log.c.digest.like(f"{FOREIGN}%"))
            .exists()
        )
        query = (
            select(dl_tables.c.table_id, dl_tables.c.name)
            .join(dl_mirror_status, dl_mirror_status.c.table_id == dl_tables.c.table_id)
            .where(dl_tables.c.location == location, dl_tables.c.dropped_at.is_(None))
            .where(dl_tables.c.protocol_version != HELD, is_imported)
        )
        with self._database.read() as connection:
            # A location has at most one table that is not dropped.
            row = connection.execute(query).one_or_none()
            return None if row is None or not is_same_name(row.name, name) else row.table_id

    def find_half_gone(self, location: str) -> list[UUID]:
        """Return tables left by an interrupted `unregister`: only their rows in dl_tables remain."""
        query = (
            select(dl_tables.c.table_id)
            .outerjoin(dl_mirror_status, dl_mirror_status.c.table_id == dl_tables.c.table_id)
            .where(dl_tables.c.location == location, dl_tables.c.dropped_at.is_(None))
            .where(dl_tables.c.protocol_version == HELD, dl_mirror_status.c.table_id.is_(None))
        )
        with self._database.read() as connection:
            return list(connection.scalars(query))

    def read(self, table_id: UUID) -> HeldTable:
        with self._database.read() as connection:
            versions, log = dl_table_versions.c, dl_mirror_log.c
            row = connection.execute(
                select(dl_tables, dl_mirror_status.c.state)
                .join(dl_mirror_status, dl_mirror_status.c.table_id == dl_tables.c.table_id)
                .where(dl_tables.c.table_id == table_id)
            ).one()
            last = connection.execute(
                select(versions.version, versions.in_commit_timestamp, versions.txn_id)
                .where(versions.table_id == table_id)
                .order_by(versions.version.desc())
                .limit(1)
            ).one_or_none()
            at = NO_VERSION if last is None else last.version
            digest = connection.execute(
                select(log.digest).where(log.table_id == table_id, log.version == at)
            ).scalar_one_or_none()
            return HeldTable(
                table_id=table_id,
                name=row.name,
                location=row.location,
                slot=row.slot,
                state=MirrorState(row.state),
                is_held=row.protocol_version == HELD,
                current_version=row.current_version,
                last_version=at,
                last_timestamp_ms=0 if last is None else last.in_commit_timestamp,
                last_digest=None if digest is None else digest.removeprefix(FOREIGN),
                last_txn_id=None if last is None else last.txn_id,
                metadata=newest_metadata(connection, table_id, at)[1],
                protocol=newest_protocol(connection, table_id, at)[1],
            )

    def appender(self, table: HeldTable) -> Appender:
        """Return an appender that continues after the last complete version.

        Anything that an interrupted import left beyond that version is deleted first.
        """
        self._clean(table)
        return Appender(self._database, table)

    def finish(self, table_id: UUID, state: MirrorState) -> int:
        """Make all copied versions visible. End the hold if `state` is ACTIVE."""
        with self._database.write(TIMEOUT_S) as connection:
            row = lock_row(connection, self._database, table_id)
            versions = dl_table_versions.c
            of_table = versions.table_id == table_id
            last = connection.execute(
                select(versions.version, versions.in_commit_timestamp)
                .where(of_table)
                .order_by(versions.version.desc())
                .limit(1)
            ).one()
            stamp = self._stamp(connection, table_id, row.last_commit_ts, last.version)
            protocol_version, protocol = newest_protocol(connection, table_id)
            metadata_version, metadata = newest_metadata(connection, table_id)
            assert protocol is not None
            assert metadata is not None
            rewrite_bounds_since(connection, self._database.backend, table_id, row.metadata_version)
            connection.execute(
                update(dl_tables)
                .where(dl_tables.c.table_id == table_id)
                .values(
                    current_version=last.version,
                    last_ict=last.in_commit_timestamp,
                    last_commit_ts=stamp,
                    next_row_id=max(row.next_row_id, _next_row_id(connection, table_id)),
                    metadata_version=metadata_version,
                    protocol_version=protocol_version if state is MirrorState.ACTIVE else HELD,
                    min_reader_version=protocol.min_reader_version,
                    min_writer_version=protocol.min_writer_version,
                    reader_features=protocol.reader_features,
                    writer_features=protocol.writer_features,
                    properties=metadata.configuration,
                )
            )
            self._set_state(
                connection, table_id, state=state, published_version=last.version, attempts=0, last_error=None
            )
            version: int = last.version
            return version

    def drop(self, table_id: UUID, dropped_at: datetime, name: str) -> None:
        """Mark a restored table as dropped at a time, under this name: its history stays, its name is free."""
        with self._database.write(TIMEOUT_S) as connection:
            one = update(dl_tables).where(dl_tables.c.table_id == table_id)
            connection.execute(one.values(dropped_at=dropped_at, name=name))

    def is_there(self, table_id: UUID) -> bool:
        """Return whether the catalog knows the table, live or dropped."""
        with self._database.read() as connection:
            query = select(dl_tables.c.table_id).where(dl_tables.c.table_id == table_id)
            return connection.execute(query).first() is not None

    def partition_values(self, table_id: UUID) -> Generator[dict[str, str | None]]:
        """Yield each distinct set of partition values of the live files copied so far."""
        files = dl_add_files.c
        query = (
            select(cast(files.partition_values, Text))
            .where(files.table_id == table_id, files.removed_version.is_(None))
            .distinct()
            .execution_options(yield_per=10_000)
        )
        with self._database.read() as connection:
            for text in connection.execute(query).scalars():
                yield decode_partition_values(text)

    def next_row_id(self, table_id: UUID) -> int:
        """Return the first free row id; raise DamagedLog if the table's row-tracking domain is unreadable."""
        with self._database.read() as connection:
            return _next_row_id(connection, table_id)

    def let_go(self, table_id: UUID) -> None:
        """End the hold on a table without commits, so that its version 0 can be committed."""
        with self._database.write(TIMEOUT_S) as connection:
            lock_row(connection, self._database, table_id)
            connection.execute(
                update(dl_tables).where(dl_tables.c.table_id == table_id).values(protocol_version=NO_VERSION)
            )
            self._set_state(connection, table_id, state=MirrorState.ACTIVE)

    def unhold(self, table_id: UUID) -> None:
        """End the hold on a table whose log was not changed; this catalog owns it again."""
        with self._database.write(TIMEOUT_S) as connection:
            lock_row(connection, self._database, table_id)
            version, _ = newest_protocol(connection, table_id)
            connection.execute(
                update(dl_tables).where(dl_tables.c.table_id == table_id).values(protocol_version=version)
            )

    def clock(self) -> int:
        """Return the time stamp that a commit would get now."""
        with self._database.read() as connection:
            [(now,)] = self._database.backend.run(connection, self._statements.clock(), {"floor": 0})
            return int(now)

    def ends_elsewhere(self, table_id: UUID) -> bool:
        """Return whether the newest version released the table, or came from other writers and is not stamped here."""
        versions = dl_table_versions.c
        query = (
            select(versions.commit_ts, versions.operation)
            .where(versions.table_id == table_id)
            .order_by(versions.version.desc())
            .limit(1)
        )
        with self._database.read() as connection:
            row = connection.execute(query).one()
            return bool(row.commit_ts == LATER or row.operation == RELEASE)

    def torn_transactions(self) -> list[UUID]:
        """Return the transactions that are incomplete: some registered table lacks its version."""
        with self._database.read() as connection:
            current = {
                str(row.table_id): row.current_version
                for row in connection.execute(select(dl_tables.c.table_id, dl_tables.c.current_version))
            }
            query = select(transactions.c.txn_id, transactions.c.participants).where(
                transactions.c.outcome == "committed"
            )
            return [
                row.txn_id
                for row in connection.execute(query)
                if any(current.get(table, version) < version for table, version in (row.participants or {}).items())
            ]

    def _stamp(self, connection: Connection, table_id: UUID, floor: int, last: int) -> int:
        """Stamp the versions without a time stamp: with that of the next stamped version, otherwise with now.

        Return the newest time stamp of the table.
        """
        versions = dl_table_versions.c
        of_table = versions.table_id == table_id
        untimed = set(connection.scalars(select(versions.version).where(of_table, versions.commit_ts == LATER)))
        timed = select(versions.version, versions.commit_ts).where(of_table, versions.commit_ts != LATER)
        first, newest = 0, floor
        for version, commit_ts in connection.execute(timed.order_by(versions.version)).all():
            if version - 1 in untimed:
                self._set_times(connection, table_id, first, version, commit_ts)
            first, newest = version + 1, max(newest, commit_ts)
        if last not in untimed:
            return newest
        [(stamp,)] = self._database.backend.run(connection, self._statements.clock(), {"floor": newest + 1})
        self._set_times(connection, table_id, first, last + 1, stamp)
        connection.execute(
            insert(transactions).values(
                txn_id=uuid4(), outcome="committed", commit_ts=stamp, participants={str(table_id): last}
            )
        )
        return int(stamp)

    def _set_times(self, connection: Connection, table_id: UUID, first: int, end: int, commit_ts: int) -> None:
        versions = dl_table_versions.c
        connection.execute(
            update(dl_table_versions)
            .where(versions.table_id == table_id, versions.version >= first, versions.version < end)
            .where(versions.commit_ts == LATER)
            .values(commit_ts=commit_ts)
        )

    def _clean(self, table: HeldTable) -> None:
        with self._database.write(TIMEOUT_S) as connection:
            lock_row(connection, self._database, table.table_id)
            for part in schema.ACTION_TABLES:
                connection.execute(
                    delete(part).where(part.c.table_id == table.table_id, part.c.version > table.last_version)
                )
            connection.execute(
                update(dl_add_files)
                .where(dl_add_files.c.table_id == table.table_id, dl_add_files.c.removed_version > table.last_version)
                .values(removed_version=None)
            )

    def _set_state(self, connection: Connection, table_id: UUID, **values: Any) -> None:
        connection.execute(update(dl_mirror_status).where(dl_mirror_status.c.table_id == table_id).values(**values))


def _next_row_id(connection: Connection, table_id: UUID) -> int:
    domains = schema.dl_domain_metadata.c
    query = (
        select(domains.configuration)
        .where(domains.table_id == table_id, domains.domain == ROW_TRACKING_DOMAIN)
        .order_by(domains.version.desc())
        .limit(1)
    )
    text = connection.execute(query).scalar_one_or_none()
    try:
        found = int(msgspec.json.decode(text)["rowIdHighWaterMark"]) + 1 if text else 0
        if not 0 <= found < 2**63:
            raise ValueError("out of range")
        return found
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedLog(f"the domain {ROW_TRACKING_DOMAIN} cannot be read: {brief(text, 200)}") from error


def _taken(owner: TableRecord, table: NewTable) -> TableExists:
    if owner.location == table.location:
        return TableExists(
            f"the table at {table.location} is in this catalog already, as {owner.name!r}",
            table=owner.name,
            table_id=owner.table_id,
        )
    return TableExists(
        f"there is already a table named {owner.name!r}, at {owner.location}",
        table=table.name,
        table_id=owner.table_id,
        hint="Give the imported table another name.",
    )
