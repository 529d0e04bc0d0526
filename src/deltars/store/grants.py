"""Least privilege on PostgreSQL: the rights that a reader, a writer and the mirror need.

| role   | may                                                                                                       |
|--------|-----------------------------------------------------------------------------------------------------------|
| reader | read everything                                                                                           |
| writer | read; insert; update `dl_tables`, `dl_mirror_status` and, of `dl_add_files`, the column `removed_version` |
|        | and the two that repeat what `stats` says, `mins` and `maxs`; write `dl_maintenance`, `dl_writers` and    |
|        | `dl_identities`; delete tags and announcements of writers                                                 |
| mirror | read; write `dl_mirror_status` and `dl_mirror_log`; insert into `dl_chain`                                |

With `tables`, a reader or a writer is limited to these tables (`row_policies`). A limited writer commits to tables that
exist: it does not create, rename, drop or tag.

None of them may delete anything else. The owner of the schema runs migrations, and sets the warehouse and the
isolation level. A migration that creates a table gives no role any right to it: `missing` finds the roles to grant
again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Literal, LiteralString
from uuid import UUID

from psycopg import sql
from sqlalchemy import Connection, select, text

from deltars.errors import TableNotFound, ValidationError
from deltars.store import schema
from deltars.store.database import Database
from deltars.store.migrations.revisions import MIGRATION_TIMEOUT_S, check
from deltars.store.row_policies import RowPolicies

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
_CATALOG_WIDE = (schema.dl_tables, schema.dl_tags)
"""Tables into which a writer that is limited to some tables does not insert."""
_OF_A_COMMIT = (
    "current_version", "metadata_version", "protocol_version", "last_commit_ts", "last_ict", "next_row_id",
    "properties", "min_reader_version", "min_writer_version", "reader_features", "writer_features",
)  # fmt: skip
"""Columns of `dl_tables` that a commit updates."""


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
    limited_to: tuple[str, ...] | None = None
    """Names of the tables that it is limited to; None if it is not."""

    @property
    def command(self) -> str:
        """Return the command that grants them, without --catalog."""
        limits = "".join(f" --table {quote(name)}" for name in self.limited_to or ())
        return f"deltars migrate grants --{self.kind} {quote(self.role)}{limits}"


def missing(database: Database) -> list[MissingGrants]:
    """Return the roles that lack rights, by name: those of `grant`, before a migration created another table."""
    schema_name = database.backend.schema
    if schema_name is None:
        return []
    found = []
    with database.read() as connection:
        policies = RowPolicies(connection, schema_name)
        names = {row.table_id: row.name for row in connection.execute(_NAMES)}
        for role, rights in sorted(_rights(connection, schema_name).items()):
            limits = policies.tables_of(role)
            kind = _kind_of(rights)
            lacking = {table for _, table in _needed(kind, is_limited=limits is not None) - rights} if kind else set()
            if kind and lacking:
                limited = None if limits is None else tuple(names[one] for one in limits if one in names)
                found.append(MissingGrants(role, kind, tuple(sorted(lacking)), limited))
    return found


def _rights(connection: Connection, schema_name: str) -> dict[str, set[tuple[str, str]]]:
    """Return the rights of every role, as pairs of a right and a table."""
    has: dict[str, set[tuple[str, str]]] = {}
    for role, right, table in connection.execute(_GRANTED, {"schema": schema_name}):
        has.setdefault(role, set()).add((right, table))
    return has


_NAMES = select(schema.dl_tables.c.table_id, schema.dl_tables.c.name).where(schema.dl_tables.c.dropped_at.is_(None))

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


def _needed(kind: Literal["reader", "writer", "mirror"], *, is_limited: bool) -> set[tuple[str, str]]:
    """Return the rights on whole tables that a kind of role needs."""
    needed = {("SELECT", table.name) for table in schema.metadata.sorted_tables}
    if kind == "writer" and is_limited:
        needed |= {("INSERT", table.name) for table in _WRITTEN if table not in _CATALOG_WIDE}
        needed |= {("UPDATE", table.name) for table in _UPDATED if table not in _CATALOG_WIDE}
    elif kind == "writer":
        needed |= {("INSERT", table.name) for table in _WRITTEN} | {("UPDATE", table.name) for table in _UPDATED}
        needed.add(("DELETE", schema.dl_tags.name))
    elif kind == "mirror":
        needed |= {(right, table.name) for right in ("INSERT", "UPDATE") for table in _MIRROR}
        needed.add(("INSERT", _SEALED.name))
    return needed


def grant(database: Database, roles: Roles, tables: Sequence[str] | None = None) -> list[str]:
    """Grant each role its rights on some tables, or on all, in one transaction. Return the statements that were run."""
    check(database)
    place = database.backend.schema
    if place is None:
        raise ValidationError(
            f"{database.uri} has no roles: a {database.backend.name} catalog is a file",
            hint="Use the file's permissions.",
        )
    with database.write(MIGRATION_TIMEOUT_S) as connection:
        policies = RowPolicies(connection, place)
        if tables is None:
            composed = _on_all_tables(sql.Identifier(place), roles, policies)
        else:
            limits = _found(connection, tables)
            composed = _on_some_tables(connection, place, roles, policies, limits)
        statements = [statement.as_string() for statement in composed]
        for statement in statements:
            connection.exec_driver_sql(statement.replace("%", "%%"))
    return statements


def _found(connection: Connection, names: Sequence[str]) -> list[UUID]:
    if not names:
        raise ValidationError("tables is empty", field="tables", hint="Omit it to grant rights on every table.")
    known = {row.name.lower(): row.table_id for row in connection.execute(_NAMES)}
    for name in names:
        if name.lower() not in known:
            raise TableNotFound(table=name)
    return [known[name.lower()] for name in names]


def _on_all_tables(within: sql.Identifier, roles: Roles, policies: RowPolicies) -> list[sql.Composed]:
    composed: list[sql.Composed] = []
    for role in filter(None, (roles.reader, roles.writer, roles.mirror)):
        composed += [*_reading(within, sql.Identifier(role)), *policies.unlimit(role)]
    if roles.writer:
        composed += _writing(within, sql.Identifier(roles.writer))
    if roles.mirror:
        composed += _mirroring(within, sql.Identifier(roles.mirror))
    return composed


def _on_some_tables(
    connection: Connection, place: str, roles: Roles, policies: RowPolicies, limits: list[UUID]
) -> list[sql.Composed]:
    if roles.mirror:
        raise ValidationError(
            "a mirror publishes every table, and cannot be limited to some",
            field="mirror",
            hint="Grant it separately, without tables.",
        )
    within = sql.Identifier(place)
    limited = {role for role in (roles.reader, roles.writer) if role}
    composed: list[sql.Composed] = []
    for role in sorted(limited):
        # It may have had rights on every table.
        revoked = sql.SQL("REVOKE ALL ON ALL TABLES IN SCHEMA {} FROM {}").format(within, sql.Identifier(role))
        composed += [revoked, *_reading(within, sql.Identifier(role))]
    others = _rights(connection, place).keys() - limited
    if roles.writer:
        composed += _writing_some(within, sql.Identifier(roles.writer))
    for role in sorted(limited):
        composed += policies.limit(role, limits, others, writes=role == roles.writer)
        others = set()
    return composed


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


def _writing_some(within: sql.Identifier, role: sql.Identifier) -> list[sql.Composed]:
    """Return the rights of a writer that commits to tables that exist."""
    inserts = [_on("INSERT", within, table.name, role) for table in _WRITTEN if table not in _CATALOG_WIDE]
    updates = [_on("UPDATE", within, table.name, role) for table in _UPDATED if table not in _CATALOG_WIDE]
    files = _on("UPDATE (removed_version, mins, maxs)", within, schema.dl_add_files.name, role)
    columns = sql.SQL(", ").join(map(sql.Identifier, _OF_A_COMMIT))
    tables = sql.SQL("GRANT UPDATE ({}) ON {}.{} TO {}").format(
        columns, within, sql.Identifier(schema.dl_tables.name), role
    )
    return [*inserts, *updates, files, tables, _on("DELETE", within, schema.dl_writers.name, role)]


def _mirroring(within: sql.Identifier, role: sql.Identifier) -> list[sql.Composed]:
    written = [_on("INSERT, UPDATE", within, table.name, role) for table in _MIRROR]
    return [*written, _on("INSERT", within, _SEALED.name, role)]


def _on(right: LiteralString, within: sql.Identifier, table: str, role: sql.Identifier) -> sql.Composed:
    return sql.SQL("GRANT {} ON {}.{} TO {}").format(sql.SQL(right), within, sql.Identifier(table), role)
