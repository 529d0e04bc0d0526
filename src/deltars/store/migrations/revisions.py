"""Revisions of a catalog's schema: the one that a database has, and the one that this release needs.

Every command and every `connect` asks for them, so this module does not load Alembic; `runner`, which migrates, does.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

from sqlalchemy import Connection, column, inspect, select, table

from deltars.errors import SchemaVersionError
from deltars.store.database import Database

VERSION_TABLE = "dl_schema_version"
MIGRATION_TIMEOUT_S = 600.0


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


@cache
def revisions() -> tuple[str, ...]:
    """Return all revisions, newest first. The name of a migration's file begins with its revision."""
    names = (entry.name for entry in (files("deltars.store") / "migrations" / "versions").iterdir())
    return tuple(sorted((name.partition("_")[0] for name in names if name[:4].isdigit()), reverse=True))


def head_revision() -> str:
    return revisions()[0]


def status(database: Database) -> SchemaStatus:
    if not database.backend.is_there:
        return SchemaStatus(None, head_revision())
    with database.read() as connection:
        return SchemaStatus(current_revision(connection, database.backend.schema), head_revision())


def check(database: Database) -> None:
    """Raise SchemaVersionError if the schema is not this release's, with the command that creates or upgrades it."""
    now = status(database)
    if now.is_current:
        return
    refuse_unknown(database, now.current)
    if now.current is None:
        similar = database.backend.similar
        meant = f"Did you mean {' or '.join(map(str, similar))}? " if similar else ""
        raise SchemaVersionError(
            f"{database.uri} holds no deltars catalog yet",
            hint=f"{meant}Run: deltars init --catalog '{database.uri}' (or connect with migrate=True)",
        )
    raise SchemaVersionError(
        f"{database.uri} has the older schema {now.current}; this release needs schema {now.head}",
        hint=f"Run: deltars migrate up --catalog '{database.uri}' (or connect with migrate=True)",
    )


def refuse_unknown(database: Database, revision: str | None) -> None:
    """Raise SchemaVersionError if a newer release made the schema."""
    if revision is not None and revision not in revisions():
        raise SchemaVersionError(
            f"{database.uri} has the newer schema {revision}; this release knows up to {head_revision()}",
            hint="Upgrade the package: pip install --upgrade deltars",
        )


def current_revision(connection: Connection, schema: str | None) -> str | None:
    if not inspect(connection).has_table(VERSION_TABLE, schema=schema):
        return None
    versions = table(VERSION_TABLE, column("version_num"), schema=schema)
    revision: str | None = connection.execute(select(versions.c.version_num)).scalar_one_or_none()
    return revision
