"""Migrations of a catalog's schema.

up      empty database ──0001──0002──…──▶ head        all in one transaction, one process at a time
down    head ──▶ remove all objects of deltars
status  the revision of the database, and the one that this release needs
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
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal

from alembic import command
from alembic.config import Config
from alembic.ddl.impl import DefaultImpl
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, MetaData, Table, column, inspect, select, table

from deltars.errors import SchemaVersionError, ValidationError
from deltars.store.database import Database
from deltars.store.names import same_names
from deltars.store.registry import initialise
from deltars.store.schema import dl_tables
from deltars.store.views import VIEWS

VERSION_TABLE = "dl_schema_version"
VIEWS_REVISION = "0003"
NAMES_REVISION = "0004"
MIGRATION_TIMEOUT_S = 600.0

# Alembic's `op` and `context` are process-wide globals, so one migration runs at a time, for any database.
_alembic = threading.Lock()


class _DuckDBImpl(DefaultImpl):
    """Alembic's implementation for DuckDB, which needs one per dialect; the defaults are right."""

    __dialect__ = "duckdb"
    transactional_ddl = True


@dataclass(frozen=True, slots=True)
class SchemaStatus:
    current: str | None
    head: str

    @property
    def is_current(self) -> bool:
        return self.current == self.head

    @property
    def state(self) -> Literal["missing", "older", "current", "newer"]:
        if self.current is None:
            return "missing"
        return "current" if self.is_current else "older" if self.current < self.head else "newer"


def head_revision() -> str:
    return _revisions()[0]


@cache
def _revisions() -> tuple[str, ...]:
    """Return all revisions, newest first."""
    return tuple(script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions())


def status(database: Database) -> SchemaStatus:
    if not database.backend.is_there:
        return SchemaStatus(None, head_revision())
    with database.read() as connection:
        return SchemaStatus(_current(connection, database.backend.schema), head_revision())


def up(database: Database, *, views: bool = True) -> SchemaStatus:
    """Create or upgrade the schema; do nothing if it is up to date. `views=False` leaves the views out."""
    with _migrating(database) as connection:
        before = _current(connection, database.backend.schema)
        _refuse_unknown(database, before)
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
        current = _current(connection, schema)
        _refuse_unknown(database, current)
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


def check(database: Database) -> None:
    """Raise SchemaVersionError if the schema is not this release's, with the command that migrates it."""
    now = status(database)
    if now.is_current:
        return
    _refuse_unknown(database, now.current)
    what = "holds no deltars catalog yet" if now.current is None else f"has the older schema {now.current}"
    raise SchemaVersionError(
        f"{database.uri} {what}; this release needs schema {now.head}",
        hint=f"Run: deltars migrate up --catalog '{database.uri}' (or connect with migrate=True)",
    )


def _refuse_unknown(database: Database, revision: str | None) -> None:
    if revision is not None and revision not in _revisions():
        raise SchemaVersionError(
            f"{database.uri} has the newer schema {revision}; this release knows up to {head_revision()}",
            hint="Upgrade the package: pip install --upgrade deltars",
        )


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


def _current(connection: Connection, schema: str | None) -> str | None:
    if not inspect(connection).has_table(VERSION_TABLE, schema=schema):
        return None
    versions = table(VERSION_TABLE, column("version_num"), schema=schema)
    revision: str | None = connection.execute(select(versions.c.version_num)).scalar_one_or_none()
    return revision


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
