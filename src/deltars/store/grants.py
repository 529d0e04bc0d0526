"""Least privilege on PostgreSQL: the rights that a reader, a writer and the mirror need.

| role   | may                                                                                                       |
|--------|-----------------------------------------------------------------------------------------------------------|
| reader | read everything                                                                                           |
| writer | read; insert; update `dl_tables`, `dl_mirror_status` and, of `dl_add_files`, the column `removed_version` |
|        | and the two that repeat what `stats` says, `mins` and `maxs`; write `dl_maintenance`, `dl_writers` and    |
|        | `dl_identities`; delete tags and announcements of writers                                                 |
| mirror | read; write `dl_mirror_status` and `dl_mirror_log`; insert into `dl_chain`                                |

None of them may delete anything else. The owner of the schema runs migrations, and sets the warehouse and the
isolation level. A migration that creates a table gives no role any right to it: `missing` finds the roles to grant
again.
"""

from __future__ import annotations

from dataclasses import dataclass
from shlex import quote
from typing import Literal, LiteralString

from psycopg import sql
from sqlalchemy import text

from deltars.errors import ValidationError
from deltars.store import schema
from deltars.store.database import Database
from deltars.store.migrations.revisions import MIGRATION_TIMEOUT_S, check

_MIRROR = (schema.dl_mirror_status, schema.dl_mirror_log)
_SEALED = schema.dl_chain
"""Only inserted into: nobody but the owner can change a seal."""
_WRITTEN = (
    schema.dl_tables,
    schema.dl_transactions,
    schema.dl_table_versions,
    *schema.ACTION_TABLES,
    *_MIRROR,
    schema.dl_tags,
    schema.dl_writers,
    schema.dl_maintenance,
    schema.dl_reads,
    schema.dl_conflicts,
    schema.dl_identities,
    _SEALED,
)
_UPDATED = (schema.dl_tables, schema.dl_mirror_status, schema.dl_writers, schema.dl_maintenance, schema.dl_identities)
_DELETED = (schema.dl_tags, schema.dl_writers)


@dataclass(frozen=True, slots=True)
class Roles:
    """Names of existing roles; a role that is None gets no rights."""

    reader: str | None = None
    writer: str | None = None
    mirror: str | None = None


@dataclass(frozen=True, slots=True)
class MissingGrants:
    """Role that has rights on the catalog, but not all that its kind needs."""

    role: str
    kind: Literal["reader", "writer", "mirror"]
    """What the rights that it has make it."""
    tables: tuple[str, ...]
    """Tables on which it lacks a right."""

    @property
    def command(self) -> str:
        """Return the command that grants them, without --catalog."""
        return f"deltars migrate grants --{self.kind} {quote(self.role)}"


def missing(database: Database) -> list[MissingGrants]:
    """Return the roles that lack rights, by name: those of `grant`, before a migration created another table."""
    schema_name = database.backend.schema
    if schema_name is None:
        return []
    has: dict[str, set[tuple[str, str]]] = {}
    with database.read() as connection:
        for role, right, table in connection.execute(_GRANTED, {"schema": schema_name}):
            has.setdefault(role, set()).add((right, table))
    found = []
    for role, rights in sorted(has.items()):
        kind = _kind_of(rights)
        lacking = {table for right, table in _needed(kind) - rights} if kind else set()
        if kind and lacking:
            found.append(MissingGrants(role, kind, tuple(sorted(lacking))))
    return found


# Rights of the owner are not listed, and PUBLIC is no role.
_GRANTED = text(
    "SELECT pg_get_userbyid(a.grantee), a.privilege_type, c.relname"
    " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace, aclexplode(c.relacl) a"
    " WHERE n.nspname = :schema AND a.grantee NOT IN (0, c.relowner)"
)


def _kind_of(rights: set[tuple[str, str]]) -> Literal["reader", "writer", "mirror"] | None:
    if ("INSERT", schema.dl_table_versions.name) in rights:
        return "writer"
    if ("INSERT", schema.dl_mirror_log.name) in rights:
        return "mirror"
    return "reader" if ("SELECT", schema.dl_table_versions.name) in rights else None


def _needed(kind: Literal["reader", "writer", "mirror"]) -> set[tuple[str, str]]:
    """Return the rights on whole tables that a kind of role needs."""
    needed = {("SELECT", table.name) for table in schema.metadata.sorted_tables}
    if kind == "writer":
        needed |= {("INSERT", table.name) for table in _WRITTEN} | {("UPDATE", table.name) for table in _UPDATED}
        needed.add(("DELETE", schema.dl_tags.name))
    elif kind == "mirror":
        needed |= {(right, table.name) for right in ("INSERT", "UPDATE") for table in _MIRROR}
        needed.add(("INSERT", _SEALED.name))
    return needed


def grant(database: Database, roles: Roles) -> list[str]:
    """Grant each role its rights, in one transaction. Return the statements that were run."""
    check(database)
    statements = statements_for(database, roles)
    with database.write(MIGRATION_TIMEOUT_S) as connection:
        for statement in statements:
            connection.exec_driver_sql(statement.replace("%", "%%"))
    return statements


def statements_for(database: Database, roles: Roles) -> list[str]:
    place = database.backend.schema
    if place is None:
        raise ValidationError(
            f"{database.uri} has no roles: a {database.backend.name} catalog is a file",
            hint="Use the file's permissions.",
        )
    within = sql.Identifier(place)
    composed: list[sql.Composed] = []
    for role in filter(None, (roles.reader, roles.writer, roles.mirror)):
        composed += _reading(within, sql.Identifier(role))
    if roles.writer:
        composed += _writing(within, sql.Identifier(roles.writer))
    if roles.mirror:
        composed += _mirroring(within, sql.Identifier(roles.mirror))
    return [statement.as_string() for statement in composed]


def _reading(within: sql.Identifier, role: sql.Identifier) -> list[sql.Composed]:
    return [
        sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(within, role),
        sql.SQL("GRANT SELECT ON ALL TABLES IN SCHEMA {} TO {}").format(within, role),
    ]


def _writing(within: sql.Identifier, role: sql.Identifier) -> list[sql.Composed]:
    inserts = [_on("INSERT", within, table.name, role) for table in _WRITTEN]
    updates = [_on("UPDATE", within, table.name, role) for table in _UPDATED]
    columns = _on("UPDATE (removed_version, mins, maxs)", within, schema.dl_add_files.name, role)
    deletes = [_on("DELETE", within, table.name, role) for table in _DELETED]
    return [*inserts, *updates, columns, *deletes]


def _mirroring(within: sql.Identifier, role: sql.Identifier) -> list[sql.Composed]:
    written = [_on("INSERT, UPDATE", within, table.name, role) for table in _MIRROR]
    return [*written, _on("INSERT", within, _SEALED.name, role)]


def _on(right: LiteralString, within: sql.Identifier, table: str, role: sql.Identifier) -> sql.Composed:
    return sql.SQL("GRANT {} ON {}.{} TO {}").format(sql.SQL(right), within, sql.Identifier(table), role)
