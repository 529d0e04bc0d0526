"""Rights on single tables, by PostgreSQL's row-level security.

    migrate grants --reader analysts --table features
        ├─ row-level security on every database table that has rows of tables
        ├─ a policy for `analysts`: only rows of `features`
        └─ a policy for each other role that has rights: every row, as before

A policy lists the ids of tables, so a table of the same name that is created later needs a grant of its own. Of
transactions a limited role sees those that wrote no table but its own, and markers that name no table. Every commit
needs the newest time stamp: `dl_commit_times` has the time stamps of all commits and nothing else of them.

The owner is not limited. The dataset views run with the rights of who reads them (`security_invoker`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import LiteralString
from uuid import UUID

from psycopg import sql
from sqlalchemy import Connection, text

from deltars.store import schema
from deltars.store.views import VIEWS

LIMITED = (*(table for table in schema.metadata.sorted_tables if "table_id" in table.c), schema.dl_transactions)
"""Database tables whose rows belong to tables."""

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_LONGEST_NAME = 63

_SECURED = text(
    "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
    " WHERE n.nspname = :schema AND c.relrowsecurity"
)
_POLICIES = text("SELECT policyname, tablename, qual FROM pg_policies WHERE schemaname = :schema")
_THERE = text(
    "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
    " WHERE n.nspname = :schema AND c.relkind = 'v'"
)


class RowPolicies:
    """Row-level security of one catalog, as it is now."""

    def __init__(self, connection: Connection, within: str) -> None:
        self._within = sql.Identifier(within)
        place = {"schema": within}
        self._secured = set(connection.scalars(_SECURED, place))
        self._views = set(connection.scalars(_THERE, place)) & VIEWS.keys()
        self._policies = {(row.tablename, row.policyname): row.qual for row in connection.execute(_POLICIES, place)}

    @property
    def is_on(self) -> bool:
        return bool(self._secured)

    def tables_of(self, role: str) -> list[UUID] | None:
        """Return the ids of the tables that a role is limited to; None if it is not limited."""
        qual = self._policies.get((schema.dl_tables.name, _policy(role)))
        return None if qual is None or qual == "true" else sorted(map(UUID, _UUID.findall(qual)))

    def limit(self, role: str, table_ids: Iterable[UUID], others: Iterable[str], *, writes: bool) -> list[sql.Composed]:
        """Return the statements that let a role see and write only rows of these tables.

        `others` are roles that have rights now: they keep them.
        """
        statements = [self._secure(table.name) for table in LIMITED if table.name not in self._secured]
        statements += [
            sql.SQL("ALTER VIEW {}.{} SET (security_invoker = true)").format(self._within, sql.Identifier(view))
            for view in sorted(self._views)
        ]
        for other in sorted(others):
            statements += self._unlimited(other, replace=False)
        ids = sorted(map(str, table_ids))
        for table in LIMITED:
            shown, written = _conditions(table.name, ids)
            statements.append(self._drop(table.name, role))
            statements.append(self._create(table.name, role, shown, written if writes else None))
        return statements

    def unlimit(self, role: str) -> list[sql.Composed]:
        """Return the statements that let a role see every row, if row-level security is on."""
        return self._unlimited(role, replace=True) if self.is_on else []

    def _unlimited(self, role: str, *, replace: bool) -> list[sql.Composed]:
        statements = []
        for table in LIMITED:
            if (table.name, _policy(role)) in self._policies:
                if not replace:
                    continue
                statements.append(self._drop(table.name, role))
            statements.append(self._create(table.name, role, sql.SQL("true"), sql.SQL("true")))
        return statements

    def _secure(self, table: str) -> sql.Composed:
        return sql.SQL("ALTER TABLE {}.{} ENABLE ROW LEVEL SECURITY").format(self._within, sql.Identifier(table))

    def _drop(self, table: str, role: str) -> sql.Composed:
        policy = sql.Identifier(_policy(role))
        return sql.SQL("DROP POLICY IF EXISTS {} ON {}.{}").format(policy, self._within, sql.Identifier(table))

    def _create(self, table: str, role: str, shown: sql.Composable, written: sql.Composable | None) -> sql.Composed:
        start = sql.SQL("CREATE POLICY {} ON {}.{} FOR {} TO {} USING ({})").format(
            sql.Identifier(_policy(role)),
            self._within,
            sql.Identifier(table),
            sql.SQL("SELECT" if written is None else "ALL"),
            sql.Identifier(role),
            shown,
        )
        return start if written is None else start + sql.SQL(" WITH CHECK ({})").format(written)


def _conditions(table: str, ids: Sequence[str]) -> tuple[sql.Composed, sql.Composed]:
    """Return the conditions for rows that a role sees and writes."""
    granted = sql.SQL("ARRAY[{}]").format(sql.SQL(", ").join(map(sql.Literal, ids)))
    if table != schema.dl_transactions.name:
        here = sql.SQL("table_id = ANY ({}::uuid[])").format(granted)
        return here, here
    # A transaction that only drops tables names none; it is not shown.
    own: LiteralString = (
        "participants <> '{{}}'::jsonb AND NOT EXISTS"
        " (SELECT FROM jsonb_object_keys(participants) AS id WHERE id <> ALL ({}::text[]))"
    )
    committed = sql.SQL(own).format(granted)
    shown = sql.SQL("outcome <> 'committed' OR ({})").format(committed)
    # A seal would move the time stamps of every later commit.
    written = sql.SQL("outcome = 'aborted' OR (outcome = 'committed' AND {})").format(committed)
    return shown, written


def _policy(role: str) -> str:
    """Return the name of a role's policies."""
    name = f"dl {role}"
    if len(name.encode()) <= _LONGEST_NAME:
        return name
    return f"dl {sha256(role.encode()).hexdigest()[:32]}"
