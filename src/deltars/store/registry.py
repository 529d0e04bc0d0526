"""Registry of tables: their ids, names and locations.

Creating, renaming and dropping take the catalog's registry lock. So concurrent creations cannot produce two tables with
the same name (ignoring case), the same location, or one location inside another. A commit takes the lock only if it
creates tables. Dropping leaves a tombstone: the history stays, and no other table gets the directory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import (
    ColumnElement,
    Connection,
    Insert,
    Select,
    Text,
    bindparam,
    func,
    insert,
    literal_column,
    select,
    update,
)

from deltars import store
from deltars.config import Isolation, check_isolation
from deltars.errors import ConfigError, TableExists, TableNotFound
from deltars.log.new_table import NO_VERSION, NewTable
from deltars.remembered import Remembered
from deltars.storage.places import Places, Relation
from deltars.store.backends import Opening, Prepared
from deltars.store.database import Database
from deltars.store.names import check_name, hint_for_missing, is_same_name, name_key, was_dropped
from deltars.store.schema import dl_catalog, dl_mirror_status, dl_tables

MAX_REMEMBERED = 10_000
"""How many locations are remembered."""

UNCOMMITTED_PROTOCOL = (1, 2)
"""Reader and writer versions that a table is registered with, until its version 0 sets its own."""


@dataclass(frozen=True, slots=True)
class TableRecord:
    """Row of the registry."""

    table_id: UUID
    name: str
    location: str
    current_version: int
    min_reader_version: int
    min_writer_version: int
    reader_features: Sequence[str] | None
    writer_features: Sequence[str] | None
    properties: Mapping[str, str]
    created_at: datetime


class Origin(Enum):
    """Origin of a table, which decides whether it may use the location of a dropped table."""

    NEW = "created here: its directory never belonged to another table"
    IMPORTED = "its log exists already: this catalog may have had the table before and dropped it"
    RESTORED = "belonged to a lost catalog and is registered again as it was"


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Table, live or dropped, whose location equals, contains or is inside another location."""

    table_id: UUID
    name: str
    location: str
    created_at: datetime
    is_dropped: bool
    relation: Relation
    """Relation of the other location to this table's location."""


_COLUMNS = tuple(dl_tables.c[name] for name in TableRecord.__dataclass_fields__)
_living = dl_tables.c.dropped_at.is_(None)


class Registry:
    def __init__(self, database: Database, *, timeout_s: float) -> None:
        self._database = database
        self._timeout_s = timeout_s
        self._locations = Remembered[UUID, str](MAX_REMEMBERED)

    def tables(self) -> list[TableRecord]:
        with self._database.read() as connection:
            rows = connection.execute(select(*_COLUMNS).where(_living).order_by(dl_tables.c.name))
            return [TableRecord(*row) for row in rows]

    def find(self, table: str | UUID) -> TableRecord | None:
        """Find a table that is not dropped, by its name (ignoring case) or by its id."""
        with self._database.read() as connection:
            return _find_table(connection, table)

    def find_at(self, location: str) -> TableRecord | None:
        """Find the table that is not dropped at a location, in any spelling of it."""
        with self._database.read() as connection:
            found = _find(connection, dl_tables.c.location == location)
            if found is not None:
                return found
            same = (one for one in _neighbours(connection, location) if one.relation is Relation.SAME)
            living = next((one.table_id for one in same if not one.is_dropped), None)
            return None if living is None else _find(connection, dl_tables.c.table_id == living)

    def find_dropped(self, table: str | UUID) -> TableRecord | None:
        """Find a dropped table by its id, or the last one dropped under a name."""
        query = select(*_COLUMNS).where(~_living).order_by(dl_tables.c.dropped_at.desc())
        if isinstance(table, UUID):
            query = query.where(dl_tables.c.table_id == table)
        with self._database.read() as connection:
            found = (TableRecord(*row) for row in connection.execute(query))
            return next((one for one in found if isinstance(table, UUID) or is_same_name(one.name, table)), None)

    @property
    def database_file(self) -> str | None:
        """Return the file of an embedded catalog, as an absolute path without links; None for a server."""
        backend = self._database.backend
        return os.path.realpath(backend.uri.database) if backend.schema is None else None

    def missing(self, table: str | UUID) -> TableNotFound:
        """Return the error for a table that does not exist: it was dropped, or another name may have been meant."""
        dropped = self.find_dropped(table) if isinstance(table, UUID) else None
        if dropped is not None:
            return was_dropped(dropped.table_id, dropped.name)
        return TableNotFound(
            f"there is no table {str(table)!r} in {self._database.uri}",
            table=str(table),
            hint=hint_for_missing(table, (record.name for record in self.tables())),
        )

    def neighbours(self, location: str, *, but: UUID | None = None) -> list[Neighbour]:
        """Return every other table, live or dropped, whose location equals, contains or is inside this one."""
        with self._database.read() as connection:
            return [found for found in _neighbours(connection, location) if found.table_id != but]

    def location(self, table_id: UUID) -> str:
        """Return the location of a table, live or dropped. It is remembered: the location of an id never changes."""
        known = self._locations.get(table_id)
        if known is None:
            rows = self._database.look_up(self._location(), {"table_id": str(table_id)})
            if not rows:
                raise TableNotFound("no such table in this catalog", table_id=table_id)
            [(known,)] = rows
            self._locations[table_id] = known
        return known

    def _location(self) -> Prepared:
        backend = self._database.backend

        def build() -> Select[Any]:
            wanted = backend.id_of(bindparam("table_id", type_=Text()))
            return select(dl_tables.c.location).where(dl_tables.c.table_id == wanted)

        return backend.prepared_once("location", build)

    def names(self, table_ids: Collection[UUID]) -> dict[UUID, str]:
        """Return the names of tables, live or dropped, by id."""
        query = select(dl_tables.c.table_id, dl_tables.c.name).where(dl_tables.c.table_id.in_(table_ids))
        with self._database.read() as connection:
            return {row.table_id: row.name for row in connection.execute(query)}

    def register(self, table: NewTable) -> TableRecord:
        """Register a table without any commit."""
        with self._database.write(self._timeout_s) as connection:
            taken = create(connection, [table], self._database)
            if taken is not None:
                raise _exists(taken, table)
            record = _find(connection, dl_tables.c.table_id == table.table_id)
            assert record is not None
            return record

    def rename(self, table: str | UUID, name: str) -> TableRecord:
        check_name(name)
        with self._changing(table) as (connection, record):
            other = find_named(connection, name)
            if other is not None and other.table_id != record.table_id:
                raise TableExists(
                    f"there is already a table named {other.name!r}",
                    table=name,
                    table_id=other.table_id,
                    hint="Use another name. Table names ignore case.",
                )
            connection.execute(update(dl_tables).where(dl_tables.c.table_id == record.table_id).values(name=name))
            found = _find(connection, dl_tables.c.table_id == record.table_id)
            assert found is not None
            return found

    def drop(self, table: str | UUID, also: Callable[[Connection, UUID], None] | None = None) -> TableRecord:
        """Drop a table but keep its tombstone: the name becomes free, the history and the location stay taken.

        `also` is called in the same transaction. If it raises, the table is not dropped.
        """
        with self._changing(table) as (connection, record):
            statement = update(dl_tables).where(dl_tables.c.table_id == record.table_id)
            # Stamped like a commit: past cuts use it to decide whether the table existed.
            backend = self._database.backend
            moment = store.next_commit_ts(backend, dl_tables.c.last_commit_ts + literal_column("1"))
            connection.execute(statement.values(dropped_at=backend.instant(moment)))
            if also is not None:
                also(connection, record.table_id)
            return record

    @contextmanager
    def _changing(self, table: str | UUID) -> Iterator[tuple[Connection, TableRecord]]:
        """Lock a table's row and then the registry.

        A commit that also creates tables locks in the same order; the other order could deadlock.
        """
        known = self.find(table)
        if known is None:
            raise self.missing(table)
        lock = (self._lock(), {"table_0": str(known.table_id)})
        with self._database.write(self._timeout_s, Opening([lock])) as connection:
            self._database.backend.lock_registry(connection)
            record = _find_table(connection, table)
            if record is None or record.table_id != known.table_id:
                raise TableNotFound(f"another process dropped or renamed {str(table)!r} just now", table=str(table))
            yield connection, record

    def _lock(self) -> Prepared:
        backend = self._database.backend
        return backend.prepared_once("lock", lambda: store.lock_tables(backend, 1))

    def warehouse(self) -> str | None:
        with self._database.read() as connection:
            found: str | None = connection.execute(select(dl_catalog.c.warehouse)).scalar_one_or_none()
            return found

    def default_isolation(self) -> Isolation | None:
        """Return the level that the catalog stores; None if it stores none."""
        with self._database.read() as connection:
            stored: str | None = connection.execute(select(dl_catalog.c.isolation)).scalar_one_or_none()
            return None if stored is None else check_isolation(stored)

    def set_default_isolation(self, level: Isolation) -> None:
        with self._database.write(self._timeout_s) as connection:
            connection.execute(update(dl_catalog).values(isolation=level))

    def set_warehouse(self, warehouse: str) -> None:
        """Set the catalog's warehouse; raise ConfigError if it already has a different one."""
        with self._database.write(self._timeout_s) as connection:
            self._database.backend.lock_registry(connection)
            known = connection.execute(select(dl_catalog.c.warehouse)).scalar_one()
            if known is None:
                connection.execute(update(dl_catalog).values(warehouse=warehouse))
            elif known != warehouse:
                raise ConfigError(
                    f"the warehouse of {self._database.uri} is {known}, not {warehouse}",
                    hint="Leave warehouse= out, or connect to another catalog.",
                )


def initialise(connection: Connection) -> None:
    """Insert the catalog's only row if it is missing."""
    if connection.execute(select(dl_catalog.c.catalog_id)).first() is None:
        connection.execute(first_row())


def first_row() -> Insert:
    return insert(dl_catalog).values(catalog_id=uuid4(), created_at=datetime.now(UTC))


def create(
    connection: Connection, tables: Sequence[NewTable], database: Database, *, origin: Origin = Origin.NEW
) -> TableRecord | None:
    """Insert tables in name order. If a name is taken, stop and return the table that has it."""
    database.backend.lock_registry(connection)
    for table in sorted(tables, key=lambda new: new.name):
        check_name(table.name)
        owner = find_named(connection, table.name)
        if owner is not None:
            return owner
        _refuse_shared_location(connection, table, database, origin)
        slot = connection.execute(select(func.coalesce(func.max(dl_tables.c.slot), 0) + 1)).scalar_one()
        reader, writer = UNCOMMITTED_PROTOCOL
        connection.execute(
            insert(dl_tables).values(
                table_id=table.table_id,
                name=table.name,
                location=table.location,
                min_reader_version=reader,
                min_writer_version=writer,
                properties={},
                current_version=NO_VERSION,
                slot=slot,
                created_at=datetime.now(UTC),
            )
        )
        connection.execute(
            insert(dl_mirror_status).values(table_id=table.table_id, published_version=NO_VERSION, state="active")
        )
    return None


def _refuse_shared_location(connection: Connection, table: NewTable, database: Database, origin: Origin) -> None:
    for found in _neighbours(connection, table.location):
        # An outdated entry must not prevent the restore of a table of the lost catalog.
        if origin is Origin.RESTORED and (found.is_dropped or found.relation is not Relation.SAME):
            continue
        if found.is_dropped and origin is Origin.IMPORTED and _may_be_imported_again(connection, database, found):
            continue
        which = "the dropped table" if found.is_dropped else "the table"
        raise TableExists(
            f"the location {table.location} {found.relation} that of {which} {found.name!r}, {found.location}",
            table=table.name,
            field="location",
            hint="Use another location: a dropped table keeps its directory."
            if found.is_dropped
            else "Use another location.",
        )


def _may_be_imported_again(connection: Connection, database: Database, dropped: Neighbour) -> bool:
    """Return whether a dropped table can no longer write or delete files at its location."""
    status = dl_mirror_status.c
    query = select(status.state, status.lease_until, database.backend.clock_us()).where(
        status.table_id == dropped.table_id
    )
    row = connection.execute(query).one_or_none()
    if row is None or row.state in _FOREIGN_STATES:
        return True
    # Its last publication may still be running while the lease is valid.
    is_publishing = row.lease_until is not None and row.lease_until > row[2]
    return dropped.relation is Relation.SAME and not is_publishing


_FOREIGN_STATES = ("importing", "read_only", "released")
"""Mirror states of a table whose log this catalog does not write."""


def _neighbours(connection: Connection, location: str) -> Iterator[Neighbour]:
    places = Places()
    columns = [dl_tables.c[name] for name in ("table_id", "name", "location", "created_at", "dropped_at")]
    for row in connection.execute(select(*columns)).all():
        relation = places.relation(location, row.location)
        if relation is not None:
            yield Neighbour(row.table_id, row.name, row.location, row.created_at, row.dropped_at is not None, relation)


def _find_table(connection: Connection, table: str | UUID) -> TableRecord | None:
    return (
        _find(connection, dl_tables.c.table_id == table) if isinstance(table, UUID) else find_named(connection, table)
    )


def find_named(connection: Connection, name: str) -> TableRecord | None:
    key = name_key(name)
    lowered = func.lower(dl_tables.c.name) == func.lower(name)
    for row in connection.execute(select(*_COLUMNS).where(_living, lowered)):
        if name_key(row.name) == key:
            return TableRecord(*row)
    # Databases differ in which letters lower() converts, so compare the rest here.
    for table_id, other in connection.execute(select(dl_tables.c.table_id, dl_tables.c.name).where(_living)):
        if name_key(other) == key:
            return _find(connection, dl_tables.c.table_id == table_id)
    return None


def _find(connection: Connection, condition: ColumnElement[bool]) -> TableRecord | None:
    row = connection.execute(select(*_COLUMNS).where(_living, condition)).one_or_none()
    return None if row is None else TableRecord(*row)


def _exists(taken: TableRecord, table: NewTable) -> TableExists:
    return TableExists(
        f"there is already a table named {taken.name!r}, at {taken.location}",
        table=table.name,
        table_id=taken.table_id,
        hint="Use if_not_exists=True, or another name.",
    )
