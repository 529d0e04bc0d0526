"""What commits did: the versions of a table with their actions, and one transaction over its tables.

    changes(table, 3, 7) ──▶ CommittedVersion 3 ──▶ 4 ──▶ … ──▶ 7       streamed, a few versions at a time
    transaction(txn_id)  ──▶ the CommittedVersion of every table that it wrote

The mirror publishes the same records; the actions of a very large one it goes through bit by bit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Row, and_, bindparam, func, literal, select, union_all

from deltars.protocol import Action
from deltars.store import schema
from deltars.store.database import Readable
from deltars.store.rows import TABLE_OF, from_row

VERSIONS_AT_ONCE = 20
FILES_AT_ONCE = 20_000

_versions, _transactions = schema.dl_table_versions.c, schema.dl_transactions.c

_NOT_OF_AN_ACTION = ("num_records", "removed_version", "slot", "mins", "maxs")
"""Columns that are for searching."""


def _of_range(table: Any) -> ColumnElement[bool]:
    return and_(table.c.table_id == bindparam("table"), table.c.version.between(bindparam("first"), bindparam("last")))


# Built once: the mirror runs them for every single commit.
_ACTIONS = {
    name: select(*(column for column in table.c if column.name not in _NOT_OF_AN_ACTION)).where(_of_range(table))
    for name in TABLE_OF.values()
    for table in (schema.metadata.tables[name],)
}
# Most commits only add files: one question spares the seven that would be answered with nothing.
_KINDS = union_all(
    *(
        select(literal(name)).where(select(table.c.version).where(_of_range(table)).exists())
        for name in _ACTIONS
        for table in (schema.metadata.tables[name],)
    )
)
_FIRST_ACTIONS = {name: query.limit(bindparam("limit")) for name, query in _ACTIONS.items()}
_VERSIONS = (
    select(schema.dl_table_versions, _transactions.participants)
    .outerjoin(schema.dl_transactions, _transactions.txn_id == _versions.txn_id)
    .where(_of_range(schema.dl_table_versions))
    .order_by(_versions.version)
)


@dataclass(frozen=True, slots=True)
class CommittedVersion:
    """One version of a table with its actions, in their order."""

    table_id: UUID
    version: int
    commit_ts: int
    in_commit_timestamp: int
    txn_id: UUID
    operation: str
    actions: Iterable[Action]
    """A tuple; for the mirror, where there are very many, `ManyActions`."""
    operation_params: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    committer: str | None = None
    read_version: int | None = None
    isolation: str | None = None
    is_blind_append: bool | None = None
    user_metadata: str | None = None
    participants: Mapping[str, int] = field(default_factory=dict)
    """The version of every table that the transaction wrote to, by table id."""


@dataclass(frozen=True, slots=True)
class CommittedTransaction:
    """What one transaction did, over all its tables."""

    txn_id: UUID
    commit_ts: int
    committer: str | None
    user_metadata: str | None
    tables: Mapping[UUID, CommittedVersion]


def stream_versions(database: Readable, table_id: UUID, first: int, last: int) -> Iterator[CommittedVersion]:
    """These versions, oldest first. Between two readings nothing is held: what is committed stays as it is."""
    while first <= last:
        with database.read() as connection:
            some = next_versions(connection, table_id, first, min(VERSIONS_AT_ONCE, last - first + 1))
        yield from some
        first = some[-1].version + 1


class ManyActions:
    """The actions of a large commit, read again each time they are gone through, some thousands at once."""

    def __init__(self, database: Readable, table_id: UUID, version: int) -> None:
        self._database = database
        self._table_id = table_id
        self._version = version

    def __iter__(self) -> Iterator[Action]:
        # A version does not change, so that it need not be read in one transaction.
        for first in range(0, self._count(), FILES_AT_ONCE):
            with self._database.read() as connection:
                some = self._some(connection, first)
            yield from some

    def _count(self) -> int:
        lasts = []
        with self._database.read() as connection:
            for name in _ACTIONS:
                column = schema.metadata.tables[name].c
                last = select(func.max(column.ord)).where(
                    column.table_id == self._table_id, column.version == self._version
                )
                lasts.append(connection.scalar(last))
        return max((last + 1 for last in lasts if last is not None), default=0)

    def _some(self, connection: Connection, first: int) -> list[Action]:
        found: list[tuple[int, Action]] = []
        values = {"table": self._table_id, "first": self._version, "last": self._version}
        for name, query in _ACTIONS.items():
            ord_ = schema.metadata.tables[name].c.ord
            rows = connection.execute(query.where(ord_.between(first, first + FILES_AT_ONCE - 1)), values).mappings()
            found += [(row["ord"], from_row(name, cast(Mapping[str, Any], row))) for row in rows]
        return [action for _, action in sorted(found, key=lambda pair: pair[0])]


def next_versions(connection: Connection, table_id: UUID, first: int, limit: int) -> list[CommittedVersion]:
    """At most so many versions, oldest first; fewer where they hold many files, but one."""
    few = _few_files(connection, table_id, first, limit) if limit > 1 else 1
    return committed_versions(connection, table_id, first, first + few - 1)


def versions_to_publish(database: Readable, table_id: UUID, first: int, limit: int) -> list[CommittedVersion]:
    """The same; one that holds very many files comes without them, to be gone through bit by bit."""
    with database.read() as connection:
        if limit > 1 and (few := _few_files(connection, table_id, first, limit)) > 1:
            return committed_versions(connection, table_id, first, first + few - 1)
        return [
            _committed_version(row, _actions_of_one(database, connection, table_id, first))
            for row in connection.execute(_VERSIONS, {"table": table_id, "first": first, "last": first}).all()
        ]


def _actions_of_one(database: Readable, connection: Connection, table_id: UUID, version: int) -> Iterable[Action]:
    found: list[tuple[int, Action]] = []
    values = {"table": table_id, "first": version, "last": version}
    for name in connection.scalars(_KINDS, values).all():
        rows = connection.execute(_FIRST_ACTIONS[name], values | {"limit": FILES_AT_ONCE + 1}).mappings().all()
        if len(rows) > FILES_AT_ONCE:
            return ManyActions(database, table_id, version)
        found += [(row["ord"], from_row(name, cast(Mapping[str, Any], row))) for row in rows]
    return tuple(action for _, action in sorted(found, key=lambda pair: pair[0]))


def committed_versions(connection: Connection, table_id: UUID, first: int, last: int) -> list[CommittedVersion]:
    """Those there are of a range of versions, oldest first."""
    versions = connection.execute(_VERSIONS, {"table": table_id, "first": first, "last": last}).all()
    actions = _actions(connection, table_id, first, last) if versions else {}
    return [_committed_version(row, tuple(actions[row.version])) for row in versions]


def committed_transaction(connection: Connection, txn_id: UUID) -> CommittedTransaction | None:
    """None: nothing was committed under this id."""
    query = select(schema.dl_transactions).where(_transactions.txn_id == txn_id, _transactions.outcome == "committed")
    row = connection.execute(query).one_or_none()
    if row is None:
        return None
    wrote = {UUID(table_id): version for table_id, version in (row.participants or {}).items()}
    tables = {
        table_id: committed_versions(connection, table_id, version, version)[0]
        for table_id, version in sorted(wrote.items())
    }
    return CommittedTransaction(txn_id, row.commit_ts, row.committer, row.user_metadata, tables)


def _committed_version(row: Row[Any], actions: Iterable[Action]) -> CommittedVersion:
    return CommittedVersion(
        table_id=row.table_id,
        version=row.version,
        commit_ts=row.commit_ts,
        in_commit_timestamp=row.in_commit_timestamp,
        txn_id=row.txn_id,
        operation=row.operation,
        actions=actions,
        operation_params=row.operation_params or {},
        metrics=row.metrics or {},
        committer=row.committer,
        read_version=row.read_version,
        isolation=row.isolation,
        is_blind_append=row.is_blind_append,
        user_metadata=row.user_metadata,
        participants=row.participants or {},
    )


def _actions(connection: Connection, table_id: UUID, first: int, last: int) -> Mapping[int, list[Action]]:
    """The actions of a range of versions, each version's in their order."""
    found: dict[int, list[tuple[int, Action]]] = defaultdict(list)
    values = {"table": table_id, "first": first, "last": last}
    for name in connection.scalars(_KINDS, values).all():
        for row in connection.execute(_ACTIONS[name], values).mappings():
            found[row["version"]].append((row["ord"], from_row(name, cast(Mapping[str, Any], row))))
    ordered: dict[int, list[Action]] = defaultdict(list)
    for version, actions in found.items():
        ordered[version] = [action for _, action in sorted(actions, key=lambda pair: pair[0])]
    return ordered


def _few_files(connection: Connection, table_id: UUID, first: int, count: int) -> int:
    """How many of these versions can be held in memory together: one at least."""
    full = (
        select(column.version)
        .where(column.table_id == table_id, column.version.between(first, first + count - 1))
        .order_by(column.version)
        .offset(FILES_AT_ONCE)
        .limit(1)
        for column in (schema.dl_add_files.c, schema.dl_remove_files.c)
    )
    ends = [end for query in full if (end := connection.scalar(query)) is not None]
    return int(max(1, min([count, *(end - first for end in ends)])))
