"""Manage the database schema of a catalog, as `deltars migrate …` does.

    deltars.migrate.up("deltasql://postgres/lake/public")        create or upgrade it
    deltars.migrate.status()                                     show its version
    deltars.migrate.sql()                                        what `up` would run on an empty database
    deltars.migrate.grants(reader="analysts", writer="etl")      least privilege for PostgreSQL roles
    deltars.migrate.missing_grants()                             roles that must be granted again
    deltars.migrate.down("deltasql://postgres/lake/public")      drop it, with everything in it

A catalog is named as for `connect()`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from deltars import store
from deltars.arguments import check_flags, check_texts
from deltars.config import configure
from deltars.errors import ValidationError, brief
from deltars.store import migrations
from deltars.store.database import Database
from deltars.store.migrations import revisions
from deltars.store.migrations.revisions import SchemaStatus

if TYPE_CHECKING:
    from deltars.store.grants import MissingGrants

__all__ = ["SchemaStatus", "down", "grants", "missing_grants", "sql", "status", "up"]


def up(catalog: str | None = None, *, views: bool = True) -> SchemaStatus:
    """Create or upgrade the schema. Do nothing if it is up to date. `views=False` leaves out the views."""
    check_flags(views=views)
    with _database(catalog) as database:
        return migrations.runner.up(database, views=views)


def down(catalog: str | None = None) -> None:
    """Drop what `up` created, and with it the log of every table. Data files and published logs stay."""
    with _database(catalog) as database:
        migrations.runner.down(database)


def status(catalog: str | None = None) -> SchemaStatus:
    """Return which schema the catalog has, and which one this release needs."""
    with _database(catalog) as database:
        return revisions.status(database)


def sql(catalog: str | None = None, *, views: bool = True) -> str:
    """Return the statements that create the schema in an empty database, to be run by hand."""
    check_flags(views=views)
    with _database(catalog) as database:
        return migrations.runner.sql(database, views=views)


def grants(
    catalog: str | None = None,
    *,
    reader: str | None = None,
    writer: str | None = None,
    mirror: str | None = None,
    tables: Sequence[str] | None = None,
) -> list[str]:
    """Grant PostgreSQL roles the rights they need, and no more. Return the statements that were run.

    With `tables`, the reader and the writer see and write these tables only. That turns row-level security on. Roles
    that had rights before keep them.
    """
    check_texts(reader=reader, writer=writer, mirror=mirror)
    if tables is not None and (isinstance(tables, str) or not all(isinstance(name, str) for name in tables)):
        raise ValidationError(f"tables must be a list of names, got {brief(tables)}", field="tables")
    with _database(catalog) as database:
        return store.grants.grant(database, store.grants.Roles(reader, writer, mirror), tables)


def missing_grants(catalog: str | None = None) -> list[MissingGrants]:
    """Return the PostgreSQL roles that were granted rights, but lack some: a migration may have added a table.

    Grant them again with `grants`.
    """
    with _database(catalog) as database:
        return [] if database.backend.schema is None else store.grants.missing(database)


@contextmanager
def _database(catalog: str | None) -> Iterator[Database]:
    config = configure(catalog)
    settings = config.settings
    database = Database(config.uri, pool_size=settings.pool_size, pool_timeout_s=settings.pool_timeout)
    try:
        yield database
    finally:
        database.close()
