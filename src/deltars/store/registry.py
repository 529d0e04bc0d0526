"""The registry of tables: who is there, under which name, at which location.

Creating, renaming and dropping take one lock of the catalog first. So two tables can neither share a name, be it in
another case, nor a location, nor lie one inside the other, whoever creates them at the same time. Commits never take
it. Dropping leaves a tombstone: history stays.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import NoReturn
from uuid import UUID, uuid4

from sqlalchemy import ColumnElement, Connection, Insert, func, insert, literal_column, select, update

from deltars.errors import ConfigError, TableExists, TableNotFound
from deltars.log.commit import NO_VERSION, NewTable
from deltars.store.backends import Opening, Prepared
from deltars.store.database import Database
from deltars.store.names import check_name, name_key
from deltars.store.schema import dl_catalog, dl_mirror_status, dl_tables
from deltars.store.statements import lock_tables, next_commit_ts

UNCOMMITTED_PROTOCOL = (1, 2)
"""The protocol versions a table is registered with before its version 0 says what it needs."""


@dataclass(frozen=True, slots=True)
class TableRecord:
    """One row of the registry."""

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


_COLUMNS = tuple(dl_tables.c[name] for name in TableRecord.__dataclass_fields__)
_living = dl_tables.c.dropped_at.is_(None)


class Registry:
    def __init__(self, database: Database, *, timeout_s: float) -> None:
        self._database = database
        self._timeout_s = timeout_s

    def tables(self) -> list[TableRecord]:
        with self._database.read() as connection:
            rows = connection.execute(select(*_COLUMNS).where(_living).order_by(dl_tables.c.name))
            return [TableRecord(*row) for row in rows]

    def find(self, table: str | UUID) -> TableRecord | None:
        """A living table by its name, in whatever case, or by its id."""
        with self._database.read() as connection:
            return _find_table(connection, table)

    def location(self, table_id: UUID) -> str:
        """Where a table lies or, if it was dropped, lay."""
        with self._database.read() as connection:
            query = select(dl_tables.c.location).where(dl_tables.c.table_id == table_id)
            found: str = connection.execute(query).scalar_one()
            return found

    def names(self, table_ids: Collection[UUID]) -> dict[UUID, str]:
        """The names that tables have or, if they were dropped, had."""
        query = select(dl_tables.c.table_id, dl_tables.c.name).where(dl_tables.c.table_id.in_(table_ids))
        with self._database.read() as connection:
            return {row.table_id: row.name for row in connection.execute(query)}

    def register(self, table: NewTable) -> TableRecord:
        """A table that nothing is committed to yet."""
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
            other = _find_named(connection, name)
            if other is not None and other.table_id != record.table_id:
                raise TableExists(
                    f"there is already a table named {other.name!r}",
                    table=name,
                    table_id=other.table_id,
                    hint="Use another name: upper and lower case are the same in names.",
                )
            connection.execute(update(dl_tables).where(dl_tables.c.table_id == record.table_id).values(name=name))
            found = _find(connection, dl_tables.c.table_id == record.table_id)
            assert found is not None
            return found

    def drop(self, table: str | UUID) -> TableRecord:
        """Leave a tombstone; name and location are free again, the history stays."""
        with self._changing(table) as (connection, record):
            statement = update(dl_tables).where(dl_tables.c.table_id == record.table_id)
            # As commits are stamped: past cuts tell by it whether the table was there.
            backend = self._database.backend
            moment = next_commit_ts(backend, dl_tables.c.last_commit_ts + literal_column("1"))
            connection.execute(statement.values(dropped_at=backend.instant(moment)))
            return record

    @contextmanager
    def _changing(self, table: str | UUID) -> Iterator[tuple[Connection, TableRecord]]:
        """A table's row locked, and then the registry: in the order of a commit that creates tables beside others, or
        the two would wait for each other."""
        known = self.find(table) or _refuse_unknown(table)
        lock = (self._lock, {"table_0": str(known.table_id)})
        with self._database.write(self._timeout_s, Opening([lock])) as connection:
            self._database.backend.lock_registry(connection)
            record = _find_table(connection, table)
            if record is None or record.table_id != known.table_id:
                _refuse_unknown(table)
            yield connection, record

    @cached_property
    def _lock(self) -> Prepared:
        return self._database.backend.prepare(lock_tables(self._database.backend, 1))

    def warehouse(self) -> str | None:
        with self._database.read() as connection:
            found: str | None = connection.execute(select(dl_catalog.c.warehouse)).scalar_one_or_none()
            return found

    def set_warehouse(self, warehouse: str) -> None:
        """Once and for all: another value later is an error."""
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
    """The catalog's one row, made with its tables."""
    if connection.execute(select(dl_catalog.c.catalog_id)).first() is None:
        connection.execute(first_row())


def first_row() -> Insert:
    return insert(dl_catalog).values(catalog_id=uuid4(), created_at=datetime.now(UTC))


def create(connection: Connection, tables: Sequence[NewTable], database: Database) -> TableRecord | None:
    """Insert tables in name order; where a name is taken, nothing is done and its owner returned."""
    database.backend.lock_registry(connection)
    for table in sorted(tables, key=lambda new: new.name):
        check_name(table.name)
        owner = _find_named(connection, table.name)
        if owner is not None:
            return owner
        _refuse_shared_location(connection, table)
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


def _refuse_shared_location(connection: Connection, table: NewTable) -> None:
    mine = _directory(table.location)
    for name, location in connection.execute(select(dl_tables.c.name, dl_tables.c.location).where(_living)):
        theirs = _directory(location)
        if overlap(table.location, location):
            relation = "is" if mine == theirs else "lies inside" if mine.startswith(theirs) else "contains"
            raise TableExists(
                f"the location {table.location} {relation} that of the table {name!r}, {location}",
                table=table.name,
                field="location",
                hint="Give the table a location of its own.",
            )


def overlap(location: str, other: str) -> bool:
    """Whether two locations are one, or one lies inside the other."""
    mine, theirs = _directory(location), _directory(other)
    return mine.startswith(theirs) or theirs.startswith(mine)


def _directory(location: str) -> str:
    # Two names of one store.
    return location.replace("s3a://", "s3://", 1).rstrip("/") + "/"


def _find_table(connection: Connection, table: str | UUID) -> TableRecord | None:
    return (
        _find(connection, dl_tables.c.table_id == table) if isinstance(table, UUID) else _find_named(connection, table)
    )


def _find_named(connection: Connection, name: str) -> TableRecord | None:
    key = name_key(name)
    lowered = func.lower(dl_tables.c.name) == func.lower(name)
    for row in connection.execute(select(*_COLUMNS).where(_living, lowered)):
        if name_key(row.name) == key:
            return TableRecord(*row)
    # Which letters the database can lower depends on the database.
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


def _refuse_unknown(table: str | UUID) -> NoReturn:
    raise TableNotFound(f"there is no table {str(table)!r} in this catalog", table=str(table))
