"""Migrations of a catalog's schema.

up      empty database ──0001──0002──…──▶ head        all in one transaction, one process at a time
down    head ──▶ remove all objects of deltars
sql     the DDL of up, to be run by hand
"""

from __future__ import annotations

import atexit
import io
import shutil
import tempfile
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.ddl.impl import DefaultImpl
from sqlalchemy import Connection, MetaData, Table, inspect, select

from deltars.errors import ValidationError
from deltars.store.database import Database
from deltars.store.migrations.revisions import (
    MIGRATION_TIMEOUT_S,
    VERSION_TABLE,
    SchemaStatus,
    current_revision,
    head_revision,
    refuse_unknown,
    status,
)
from deltars.store.names import same_names
from deltars.store.registry import initialise
from deltars.store.schema import dl_tables
from deltars.store.views import VIEWS

VIEWS_REVISION = "0003"
NAMES_REVISION = "0004"

# Alembic's `op` and `context` are process-wide globals, so one migration runs at a time, for any database.
_alembic = threading.Lock()


class _DuckDBImpl(DefaultImpl):
    """Alembic's implementation for DuckDB, which needs one per dialect; the defaults are right."""

    __dialect__ = "duckdb"
    transactional_ddl = True


def up(database: Database, *, views: bool = True) -> SchemaStatus:
    """Create or upgrade the schema; do nothing if it is up to date. `views=False` leaves the views out."""
    with _migrating(database) as connection:
        before = current_revision(connection, database.backend.schema)
        refuse_unknown(database, before)
        names = VIEWS.keys() if views else ()
        if before is None or before < VIEWS_REVISION:
            _refuse_taken_names(connection, database, names)
        if before is not None and before < NAMES_REVISION:
            _refuse_same_names(connection, database)
        if before != head_revision():
            _run(command.upgrade, database, connection, "head", views=names)
        initialise(connection)
    return status(database)


def down(database: Database, revision: str = "base") -> None:
    """Remove everything that `up` created, with all its data."""
    if status(database).current is None:
        return
    with _migrating(database) as connection:
        schema = database.backend.schema
        current = current_revision(connection, schema)
        refuse_unknown(database, current)
        if current is None:
            return
        _run(command.downgrade, database, connection, revision, views=_our_views(connection, schema))
        if revision == "base":
            Table(VERSION_TABLE, MetaData(), schema=schema).drop(connection)


def sql(database: Database, *, views: bool = True) -> str:
    """Return the statements of `up` for an empty database, as one transaction."""
    output = io.StringIO()
    output.write("BEGIN;\n\n")
    database.backend.name_schema(output)
    names = VIEWS.keys() if views else ()
    config = _config(dialect=database.backend.dialect, schema=None, views=names, output=output)
    with _alembic:
        command.upgrade(config, "head", sql=True)
    output.write("COMMIT;\n")
    return output.getvalue()


def _refuse_taken_names(connection: Connection, database: Database, names: Collection[str]) -> None:
    found, schema = inspect(connection), database.backend.schema
    taken = [name for name in names if found.has_table(name, schema=schema)]
    if taken:
        raise ValidationError(
            f"{database.uri} already has a table or view named {', '.join(sorted(taken))}; nothing was changed",
            hint="Choose another schema, or leave the dataset views out: deltars migrate up --no-views",
        )


def _refuse_same_names(connection: Connection, database: Database) -> None:
    """Raise ValidationError if names differ only in case: from `NAMES_REVISION` on, names ignore case."""
    query = select(dl_tables.c.table_id, dl_tables.c.name).where(dl_tables.c.dropped_at.is_(None))
    groups = same_names((row.table_id, row.name) for row in connection.execute(query))
    if not groups:
        return
    shown = "; ".join(", ".join(f"{name!r} (id {table_id})" for table_id, name in group) for group in groups)
    place = "" if database.backend.schema is None else f'"{database.backend.schema}".'
    renames = " ".join(
        f"UPDATE {place}dl_tables SET name = '{_quoted(name)}_{table_id.hex[:8]}' WHERE table_id = '{table_id}';"
        for group in groups
        for table_id, name in group[1:]
    )
    raise ValidationError(
        f"{database.uri} has tables whose names differ in case only, which SQL cannot distinguish:"
        f" {shown}; nothing was changed",
        field="name",
        hint=f"Rename all but one of them in the database, for example: {renames} Then migrate again, and choose the"
        " final name with deltars rename, which also publishes it.",
    )


def _quoted(name: str) -> str:
    return name.replace("'", "''")


def _our_views(connection: Connection, schema: str | None) -> set[str]:
    """Return the views that deltars created: with its names and columns, over the log's tables.

    Other views of the same name must not be dropped.
    """
    found = inspect(connection)
    return {
        name
        for name in VIEWS.keys() & set(found.get_view_names(schema=schema))
        if [column["name"] for column in found.get_columns(name, schema=schema)] == VIEWS[name].selected_columns.keys()
        and "dl_" in (found.get_view_definition(name, schema=schema) or "")
    }


@contextmanager
def _migrating(database: Database) -> Iterator[Connection]:
    with database.write(MIGRATION_TIMEOUT_S) as connection:
        database.backend.prepare_migration(connection)
        yield connection


def _run(what: Any, database: Database, connection: Connection, revision: str, *, views: Collection[str]) -> None:
    config = _config(
        connection=connection, dialect=database.backend.dialect, schema=database.backend.schema, views=views
    )
    with _alembic:
        what(config, revision)


def _config(**attributes: Any) -> Config:
    config = Config(attributes={"version_table": VERSION_TABLE, **attributes})
    config.set_main_option("script_location", str(_scripts()).replace("%", "%%"))
    return config


@cache
def _scripts() -> Path:
    """Return the directory of the migrations. Alembic needs files on disk, so a zipped package is unpacked."""
    scripts = files("deltars.store") / "migrations"
    if isinstance(scripts, Path):
        return scripts
    place = Path(tempfile.mkdtemp(prefix="deltars-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    _unpack(scripts, place)
    return place


def _unpack(source: Traversable, place: Path) -> None:
    place.mkdir(exist_ok=True)
    for entry in source.iterdir():
        if entry.is_dir():
            _unpack(entry, place / entry.name)
        else:
            (place / entry.name).write_bytes(entry.read_bytes())
