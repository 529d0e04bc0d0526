"""Committed versions of a table with their actions, and the versions of one transaction.

    stream(table, 3, 7) ──▶ CommittedVersion 3 ──▶ 4 ──▶ … ──▶ 7     for readers, a few versions at a time
    next(table, 7, 100) ──▶ the next versions                        for the mirror, to publish
    transaction(txn_id) ──▶ the CommittedVersion of every table that the transaction wrote

Each batch takes two round trips, for one version or a hundred: the commits and which kinds of actions they have, then
the actions of those kinds. A batch is held in memory. So `next` returns fewer versions than requested if they hold
many files, and returns a very large version without its actions, which are then read in parts (`ManyActions`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Table,
    Text,
    and_,
    bindparam,
    func,
    literal,
    or_,
    select,
    union_all,
)

from deltars.errors import VersionNotFound
from deltars.log.stages import from_microseconds
from deltars.protocol import Action
from deltars.store import schema
from deltars.store.backends import Backend, Prepared, Rows
from deltars.store.cursor_rows import PlainRows
from deltars.store.database import Readable
from deltars.store.read.pruning import MAX_PARTS
from deltars.store.read.version_header import version_not_found
from deltars.store.rows import TABLE_OF, from_row

VERSIONS_AT_ONCE = 20
"""Number of versions that `stream` reads in one batch."""
FILES_AT_ONCE = 20_000
"""Number of actions of one kind that are held in memory at once."""

_SEARCH_COLUMNS = ("num_records", "removed_version", "slot", "mins", "maxs")
"""Columns that are not part of an action; they serve searches."""

_versions, _transactions = schema.dl_table_versions, schema.dl_transactions
_ACTION_TABLES = tuple(schema.metadata.tables[name] for name in TABLE_OF.values())
_COMMITS = PlainRows([*(c for c in _versions.c if c.name != "committed_at"), _transactions.c.participants])


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
    """A tuple or, for the mirror if there are very many, `ManyActions`."""
    operation_params: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    committer: str | None = None
    read_version: int | None = None
    isolation: str | None = None
    is_blind_append: bool | None = None
    user_metadata: str | None = None
    participants: Mapping[str, int] = field(default_factory=dict)
    """Version of every table that the transaction wrote, by table id."""


@dataclass(frozen=True, slots=True)
class CommittedTransaction:
    """Versions that one transaction committed, by table."""

    txn_id: UUID
    commit_ts: int
    committer: str | None
    user_metadata: str | None
    tables: Mapping[UUID, CommittedVersion]
    participants: Mapping[str, int] = field(default_factory=dict)
    """Version of every table that it wrote, by table id; those that the catalog no longer has too."""
    stages: Mapping[str, float] = field(default_factory=dict)
    """Seconds of each stage until its time stamp, if they were recorded (`log.stages`)."""


class ManyActions:
    """Actions of a large commit, read again on each iteration."""

    def __init__(self, versions: CommittedVersions, table_id: UUID, version: int) -> None:
        self._versions = versions
        self._table_id = table_id
        self._version = version

    def __iter__(self) -> Iterator[Action]:
        return self._versions.actions(self._table_id, self._version)


class _ActionStatements(NamedTuple):
    """Statements that read the actions of one kind."""

    rows: PlainRows
    of_versions: Prepared
    of_a_part: Prepared
    """Reads the actions of one version between two positions."""


class _Statements:
    """Statements that read versions; each is compiled on first use."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @cached_property
    def count(self) -> Prepared:
        return self._prepare(select(func.count()).select_from(_versions).where(self._in_range(_versions)))

    @cached_property
    def commits(self) -> Prepared:
        query = select(*_COMMITS.columns).outerjoin_from(
            _versions, _transactions, _transactions.c.txn_id == _versions.c.txn_id
        )
        return self._prepare(query.where(self._in_range(_versions)).order_by(_versions.c.version))

    @cached_property
    def kinds(self) -> Prepared:
        # Most commits only add files: this query saves six that would return nothing.
        each = (
            select(literal(table.name, Text)).where(select(table.c.version).where(self._in_range(table)).exists())
            for table in _ACTION_TABLES
        )
        return self._prepare(union_all(*each))

    @cached_property
    def last_ord(self) -> Prepared:
        """Return the query for the last position in a version; -1 if the version has no action."""
        each = (select(func.max(table.c.ord).label("ord")).where(self._in_range(table)) for table in _ACTION_TABLES)
        last = union_all(*each).subquery()
        return self._prepare(select(func.coalesce(func.max(last.c.ord), -1)))

    @cached_property
    def actions(self) -> dict[str, _ActionStatements]:
        prepared = {}
        for table in _ACTION_TABLES:
            rows = PlainRows(column for column in table.c if column.name not in _SEARCH_COLUMNS)
            query = select(*rows.columns).where(self._in_range(table))
            # The type is given because an untyped parameter of LIMIT has an unknown type.
            ordered = query.order_by(table.c.version, table.c.ord).limit(bindparam("limit", type_=BigInteger()))
            begin, end = (bindparam(name, type_=BigInteger()) for name in ("from_ord", "to_ord"))
            part = query.where(table.c.ord.between(begin, end))
            prepared[table.name] = _ActionStatements(rows, self._prepare(ordered), self._prepare(part))
        return prepared

    def _in_range(self, table: Table) -> ColumnElement[bool]:
        first, last = (bindparam(name, type_=BigInteger()) for name in ("first", "last"))
        table_id = self._backend.id_of(bindparam("table", type_=Text()))
        return and_(table.c.table_id == table_id, table.c.version.between(first, last))

    def _prepare(self, query: Any) -> Prepared:
        return self._backend.prepare(query)


class CommittedVersions:
    """Reader of committed versions of one database."""

    def __init__(self, database: Readable) -> None:
        self._database = database
        self._statements = database.backend.shared(_Statements)

    def stream(self, table_id: UUID, first: int, last: int) -> Iterator[CommittedVersion]:
        """Yield the versions from `first` to `last`, oldest first.

        Nothing is held open between two batches: committed versions do not change. Raise `HistoryExpired` if they are
        expired meanwhile.
        """
        while first <= last:
            some = self.next(table_id, first, min(VERSIONS_AT_ONCE, last - first + 1))
            if not some:
                raise self._expired(table_id, first)
            yield from map(_with_all_actions, some)
            first = some[-1].version + 1

    def next(self, table_id: UUID, first: int, limit: int) -> list[CommittedVersion]:
        """Return up to `limit` versions from `first` on, oldest first.

        If they hold many files, return fewer, but at least one.
        """
        values = {"table": str(table_id), "first": first, "last": first + limit - 1}
        of = self._statements
        found, kinds = self._database.look_up_each([(of.commits, values), (of.kinds, values)])
        if not found:
            return []
        commits = [_COMMITS.read(row) for row in found]
        if [commit["version"] for commit in commits] != list(range(first, first + len(commits))):
            raise self._expired(table_id, first)
        # A version committed after the first round trip is left for the next call, with its actions.
        values |= {"last": commits[-1]["version"], "limit": FILES_AT_ONCE + 1}
        names = [name for (name,) in kinds]
        answers = self._look_up_while_there(
            table_id, [(self._statements.actions[name].of_versions, values) for name in names], values, len(commits)
        )
        actions: dict[int, list[tuple[int, Action]]] = defaultdict(list)
        complete = len(commits)
        for name, rows in zip(names, answers, strict=True):
            read = self._statements.actions[name].rows.read
            if len(rows) > FILES_AT_ONCE:
                complete = min(complete, read(rows[-1])["version"] - first)
            for row in map(read, rows):
                actions[row["version"]].append((row["ord"], from_row(name, row)))
        if complete == 0:
            return [_committed_version(commits[0], ManyActions(self, table_id, first))]
        return [_committed_version(row, _in_order(actions[row["version"]])) for row in commits[:complete]]

    def actions(self, table_id: UUID, version: int) -> Iterator[Action]:
        """Yield the actions of one version in their order, reading some thousands at a time."""
        # A version does not change, so it need not be read in one transaction.
        values: dict[str, Any] = {"table": str(table_id), "first": version, "last": version}
        [(last,)] = self._database.look_up(self._statements.last_ord, values)
        for first in range(0, last + 1, FILES_AT_ONCE):
            part = values | {"from_ord": first, "to_ord": first + FILES_AT_ONCE - 1}
            queries = [(kind.of_a_part, part) for kind in self._statements.actions.values()]
            answers = self._look_up_while_there(table_id, queries, values, 1)
            found = [
                (row["ord"], from_row(name, row))
                for (name, kind), rows in zip(self._statements.actions.items(), answers, strict=True)
                for row in map(kind.rows.read, rows)
            ]
            yield from _in_order(found)

    def transaction(self, txn_id: UUID) -> CommittedTransaction | None:
        """Return what one transaction committed; None if nothing was committed under this id."""
        query = select(_transactions).where(_transactions.c.txn_id == txn_id, _transactions.c.outcome == "committed")
        with self._database.read() as connection:
            row = connection.execute(query).one_or_none()
            if row is None:
                return None
            versions = versions_of(connection, txn_id, row.participants)
        tables = {
            table_id: found
            for table_id, version in sorted(versions.items())
            for found in map(_with_all_actions, self.next(table_id, version, 1))
        }
        participants = row.participants or {}
        return CommittedTransaction(
            txn_id,
            row.commit_ts,
            row.committer,
            row.user_metadata,
            tables,
            participants,
            from_microseconds(row.stages),
        )

    def _look_up_while_there(
        self,
        table_id: UUID,
        queries: Sequence[tuple[Prepared, Mapping[str, Any]]],
        values: Mapping[str, Any],
        num_versions: int,
    ) -> list[Rows]:
        """Run the queries. Raise `HistoryExpired` unless every version in the range is there in the state they read.

        The rows of the versions go before those of their actions.
        """
        if not queries:
            return []
        *answers, [(found,)] = self._database.look_up_each([*queries, (self._statements.count, values)])
        if found != num_versions:
            raise self._expired(table_id, values["first"])
        return answers

    def _expired(self, table_id: UUID, version: int) -> VersionNotFound:
        with self._database.read() as connection:
            return version_not_found(connection, table_id, version)


def versions_of(connection: Connection, txn_id: UUID, participants: Mapping[str, int]) -> dict[UUID, int]:
    """Return the versions of a transaction that exist in the catalog.

    A rebuilt catalog lacks versions that were never published. Another commit may have taken such a version number.
    """
    versions = _versions.c
    keys = [and_(versions.table_id == UUID(key), versions.version == at) for key, at in participants.items()]
    found: dict[UUID, int] = {}
    for start in range(0, len(keys), MAX_PARTS):
        some = or_(*keys[start : start + MAX_PARTS])
        query = select(versions.table_id, versions.version).where(versions.txn_id == txn_id, some)
        found.update({row.table_id: row.version for row in connection.execute(query)})
    return found


def _committed_version(row: Mapping[str, Any], actions: Iterable[Action]) -> CommittedVersion:
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


def _with_all_actions(version: CommittedVersion) -> CommittedVersion:
    return replace(version, actions=tuple(version.actions)) if isinstance(version.actions, ManyActions) else version


def _in_order(actions: list[tuple[int, Action]]) -> tuple[Action, ...]:
    return tuple(action for _, action in sorted(actions, key=lambda pair: pair[0]))
