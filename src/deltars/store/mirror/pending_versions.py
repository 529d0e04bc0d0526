"""The versions of a table that the mirror publishes next, with their actions.

    next(table, 7, 100) ──▶ the commits, and which kinds of actions they have ──▶ the actions of those kinds

Two round trips, whether there is one version or a hundred. What comes is held in memory: so a call answers with fewer
versions than were asked for where they hold many files, and one that is very large comes without its actions, which
are then gone through bit by bit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import BigInteger, ColumnElement, Table, Text, and_, bindparam, func, literal, select, union_all

from deltars.protocol import Action
from deltars.store import schema
from deltars.store.backends import Prepared
from deltars.store.cursor_rows import PlainRows
from deltars.store.database import Readable
from deltars.store.read.committed_versions import NOT_OF_AN_ACTION, CommittedVersion, committed_version
from deltars.store.rows import TABLE_OF, from_row

FILES_AT_ONCE = 20_000

_versions, _transactions = schema.dl_table_versions, schema.dl_transactions


class _Actions(NamedTuple):
    """How the actions of one kind are read."""

    rows: PlainRows
    of_versions: Prepared
    of_a_part: Prepared
    """Those of one version, from one place in its order to another."""


class Unpublished:
    def __init__(self, database: Readable) -> None:
        self._database = database

    def next(self, table_id: UUID, first: int, limit: int) -> list[CommittedVersion]:
        """At most so many versions, oldest first, from `first` on; fewer where they hold many files, but one."""
        values = {"table": str(table_id), "first": first, "last": first + limit - 1}
        found, kinds = self._database.look_up_each([(self._commits, values), (self._kinds, values)])
        if not found:
            return []
        commits = [self._commit_rows.read(row) for row in found]
        # What is committed meanwhile is left for the next time, its actions too.
        values |= {"last": commits[-1]["version"], "limit": FILES_AT_ONCE + 1}
        names = [name for (name,) in kinds]
        answers = self._database.look_up_each([(self._actions[name].of_versions, values) for name in names])
        actions: dict[int, list[tuple[int, Action]]] = defaultdict(list)
        complete = len(commits)
        for name, rows in zip(names, answers, strict=True):
            read = self._actions[name].rows.read
            if len(rows) > FILES_AT_ONCE:
                complete = min(complete, read(rows[-1])["version"] - first)
            for row in map(read, rows):
                actions[row["version"]].append((row["ord"], from_row(name, row)))
        if complete == 0:
            return [committed_version(commits[0], ManyActions(self, table_id, first))]
        return [committed_version(row, _in_order(actions[row["version"]])) for row in commits[:complete]]

    def actions(self, table_id: UUID, version: int) -> Iterator[Action]:
        """Those of one version, however many, some thousands at once."""
        # A version does not change, so that it need not be read in one transaction.
        values: dict[str, Any] = {"table": str(table_id), "first": version, "last": version}
        [(last,)] = self._database.look_up(self._last_ord, values)
        for first in range(0, last + 1, FILES_AT_ONCE):
            part = values | {"from_ord": first, "to_ord": first + FILES_AT_ONCE - 1}
            answers = self._database.look_up_each([(kind.of_a_part, part) for kind in self._actions.values()])
            found = [
                (row["ord"], from_row(name, row))
                for (name, kind), rows in zip(self._actions.items(), answers, strict=True)
                for row in map(kind.rows.read, rows)
            ]
            yield from _in_order(found)

    @cached_property
    def _commit_rows(self) -> PlainRows:
        return PlainRows([*(c for c in _versions.c if c.name != "committed_at"), _transactions.c.participants])

    @cached_property
    def _commits(self) -> Prepared:
        query = select(*self._commit_rows.columns).outerjoin_from(
            _versions, _transactions, _transactions.c.txn_id == _versions.c.txn_id
        )
        return self._prepare(query.where(self._in_range(_versions)).order_by(_versions.c.version))

    @cached_property
    def _kinds(self) -> Prepared:
        # Most commits only add files: one question spares the six that would be answered with nothing.
        each = (
            select(literal(table.name, Text)).where(select(table.c.version).where(self._in_range(table)).exists())
            for table in _action_tables()
        )
        return self._prepare(union_all(*each))

    @cached_property
    def _last_ord(self) -> Prepared:
        """The last place in a version's order; -1 where it has no action."""
        each = (select(func.max(table.c.ord).label("ord")).where(self._in_range(table)) for table in _action_tables())
        last = union_all(*each).subquery()
        return self._prepare(select(func.coalesce(func.max(last.c.ord), -1)))

    @cached_property
    def _actions(self) -> dict[str, _Actions]:
        prepared = {}
        for table in _action_tables():
            rows = PlainRows(column for column in table.c if column.name not in NOT_OF_AN_ACTION)
            query = select(*rows.columns).where(self._in_range(table))
            # Its type said: a plain parameter of LIMIT would be one of unknown type.
            ordered = query.order_by(table.c.version, table.c.ord).limit(bindparam("limit", type_=BigInteger()))
            begin, end = (bindparam(name, type_=BigInteger()) for name in ("from_ord", "to_ord"))
            part = query.where(table.c.ord.between(begin, end))
            prepared[table.name] = _Actions(rows, self._prepare(ordered), self._prepare(part))
        return prepared

    def _in_range(self, table: Table) -> ColumnElement[bool]:
        first, last = (bindparam(name, type_=BigInteger()) for name in ("first", "last"))
        table_id = self._database.backend.id_of(bindparam("table", type_=Text()))
        return and_(table.c.table_id == table_id, table.c.version.between(first, last))

    def _prepare(self, query: Any) -> Prepared:
        return self._database.backend.prepare(query)


class ManyActions:
    """The actions of a large commit, read again each time they are gone through."""

    def __init__(self, unpublished: Unpublished, table_id: UUID, version: int) -> None:
        self._unpublished = unpublished
        self._table_id = table_id
        self._version = version

    def __iter__(self) -> Iterator[Action]:
        return self._unpublished.actions(self._table_id, self._version)


def _action_tables() -> list[Table]:
    return [schema.metadata.tables[name] for name in TABLE_OF.values()]


def _in_order(actions: list[tuple[int, Action]]) -> tuple[Action, ...]:
    return tuple(action for _, action in sorted(actions, key=lambda pair: pair[0]))
