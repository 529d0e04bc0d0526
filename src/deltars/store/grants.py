"""Least privilege on PostgreSQL: the rights that a reader, a writer and the mirror need.

| role   | may                                                                                                       |
|--------|-----------------------------------------------------------------------------------------------------------|
| reader | read everything                                                                                           |
| writer | read; insert; update `dl_tables`, `dl_mirror_status` and, of `dl_add_files`, the column `removed_version` |
|        | and the two that repeat what `stats` says, `mins` and `maxs`; delete tags                                 |
| mirror | read; write `dl_mirror_status` and `dl_mirror_log`                                                        |

None of them may delete anything but tags. The owner of the schema runs migrations, and sets the warehouse and the
isolation level. A migration that creates a table gives no role any right to it: grant again after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import LiteralString

from psycopg import sql

from deltars.errors import ValidationError
from deltars.store import schema
from deltars.store.database import Database
from deltars.store.migrations.revisions import MIGRATION_TIMEOUT_S, check

_MIRROR = (schema.dl_mirror_status, schema.dl_mirror_log)
_WRITTEN = (
    schema.dl_tables,
    schema.dl_transactions,
    schema.dl_table_versions,
    *schema.ACTION_TABLES,
    *_MIRROR,
    schema.dl_tags,
)
_UPDATED = (schema.dl_tables, schema.dl_mirror_status)


@dataclass(frozen=True, slots=True)
class Roles:
    """Names of existing roles; a role that is None gets no rights."""

    reader: str | None = None
    writer: str | None = None
    mirror: str | None = None


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
    return [*inserts, *updates, columns, _on("DELETE", within, schema.dl_tags.name, role)]


def _mirroring(within: sql.Identifier, role: sql.Identifier) -> list[sql.Composed]:
    return [_on("INSERT, UPDATE", within, table.name, role) for table in _MIRROR]


def _on(right: LiteralString, within: sql.Identifier, table: str, role: sql.Identifier) -> sql.Composed:
    return sql.SQL("GRANT {} ON {}.{} TO {}").format(sql.SQL(right), within, sql.Identifier(table), role)
