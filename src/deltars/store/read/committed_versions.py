"""What commits did: the versions of a table with their actions, and one transaction over its tables.

    changes(table, 3, 7) ──▶ CommittedVersion 3 ──▶ 4 ──▶ … ──▶ 7       streamed, a few versions at a time
    transaction(txn_id)  ──▶ the CommittedVersion of every table that it wrote

The mirror publishes the same records, and reads them its own way (`unpublished`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, RowMapping, and_, bindparam, literal, or_, select, union_all

from deltars.protocol import Action
from deltars.store import schema
from deltars.store.database import Readable
from deltars.store.read.pruning import MAX_PARTS
from deltars.store.rows import TABLE_OF, from_row

VERSIONS_AT_ONCE = 20
FILES_AT_ONCE = 20_000

_versions, _transactions = schema.dl_table_versions.c, schema.dl_transactions.c

NOT_OF_AN_ACTION = ("num_records", "removed_version", "slot", "mins", "maxs")
"""Columns that are for searching."""


def _of_range(table: Any) -> ColumnElement[bool]:
    return and_(table.c.table_id == bindparam("table"), table.c.version.between(bindparam("first"), bindparam("last")))


# Built once: the mirror runs them for every single commit.
_ACTIONS = {
    name: select(*(column for column in table.c if column.name not in NOT_OF_AN_ACTION)).where(_of_range(table))
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
    """A tuple; for the mirror, where there are very many, `unpublished.ManyActions`."""
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


def next_versions(connection: Connection, table_id: UUID, first: int, limit: int) -> list[CommittedVersion]:
    """At most so many versions, oldest first; fewer where they hold many files, but one."""
    few = _few_files(connection, table_id, first, limit) if limit > 1 else 1
    return committed_versions(connection, table_id, first, first + few - 1)


def committed_versions(connection: Connection, table_id: UUID, first: int, last: int) -> list[CommittedVersion]:
    """Those there are of a range of versions, oldest first."""
    versions = connection.execute(_VERSIONS, {"table": table_id, "first": first, "last": last}).all()
    actions = _actions(connection, table_id, first, last) if versions else {}
    return [committed_version(row._mapping, tuple(actions[row.version])) for row in versions]


def committed_transaction(connection: Connection, txn_id: UUID) -> CommittedTransaction | None:
    """None: nothing was committed under this id."""
    query = select(schema.dl_transactions).where(_transactions.txn_id == txn_id, _transactions.outcome == "committed")
    row = connection.execute(query).one_or_none()
    if row is None:
        return None
    tables = {
        table_id: committed_versions(connection, table_id, version, version)[0]
        for table_id, version in sorted(versions_of(connection, txn_id, row.participants).items())
    }
    return CommittedTransaction(txn_id, row.commit_ts, row.committer, row.user_metadata, tables)


def versions_of(connection: Connection, txn_id: UUID, participants: Mapping[str, int]) -> dict[UUID, int]:
    """Those of a transaction's versions that are there: a catalog that was rebuilt lacks what was never published, and
    may have a version of somebody else in its place."""
    keys = [and_(_versions.table_id == UUID(key), _versions.version == at) for key, at in participants.items()]
    found: dict[UUID, int] = {}
    for start in range(0, len(keys), MAX_PARTS):
        some = or_(*keys[start : start + MAX_PARTS])
        query = select(_versions.table_id, _versions.version).where(_versions.txn_id == txn_id, some)
        found.update({row.table_id: row.version for row in connection.execute(query)})
    return found


def committed_version(row: Mapping[str, Any] | RowMapping, actions: Iterable[Action]) -> CommittedVersion:
    """A row of `dl_table_versions` with its transaction's participants, and its actions."""
    return CommittedVersion(
        table_id=row["table_id"],
        version=row["version"],
        commit_ts=row["commit_ts"],
        in_commit_timestamp=row["in_commit_timestamp"],
        txn_id=row["txn_id"],
        operation=row["operation"],
        actions=actions,
        operation_params=row["operation_params"] or {},
        metrics=row["metrics"] or {},
        committer=row["committer"],
        read_version=row["read_version"],
        isolation=row["isolation"],
        is_blind_append=row["is_blind_append"],
        user_metadata=row["user_metadata"],
        participants=row["participants"] or {},
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
