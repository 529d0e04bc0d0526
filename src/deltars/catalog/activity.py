"""What happened in a catalog: its transactions by time, the races that were lost, and which tables made which."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from deltars.arguments import check_flags, check_texts
from deltars.errors import ValidationError
from deltars.log.moments import Moment, from_microseconds, to_microseconds
from deltars.log.read_description import ReadKind
from deltars.log.snapshot import as_whole
from deltars.log.stages import with_publication
from deltars.session import CatalogSession, TableLike
from deltars.store.read.activity import Activity, CommitRow, ConflictRow, LineageRow, Window
from deltars.transaction.html import html_table

EVER_US = 1 << 62
"""After every commit."""
MOST_READS = 1_000
"""Newest reads of a table that are searched for the tables made from it."""


@dataclass(frozen=True, slots=True)
class RecordedRead:
    """What a transaction read of one table."""

    table: str
    version: int
    kind: ReadKind
    condition: str | None
    """Condition in SQL, cut if it is long; None if every row was read."""


@dataclass(frozen=True, slots=True)
class TransactionSummary:
    """A committed transaction, in short."""

    txn_id: UUID
    committed_at: datetime
    committer: str | None
    isolation: str | None
    operations: tuple[str, ...]
    versions: Mapping[str, int]
    """Version that it made of each table, by name."""
    published_at: datetime | None
    """Time at which the last of them was published; None if one is not."""
    read: tuple[RecordedRead, ...] = field(default=())
    """What it read, where that was recorded."""
    stages: Mapping[str, float] = field(default_factory=dict)
    """Seconds of each stage, where that was recorded: those until `committed_at`, and `publish` from then on."""


@dataclass(frozen=True, slots=True)
class ConflictDetail:
    """A race that a transaction lost."""

    recorded_at: datetime
    table: str
    rule: str
    """Name of the error that it got."""
    reason: str | None
    txn_id: UUID
    committer: str | None
    operation: str | None
    isolation: str
    expected_version: int
    actual_version: int
    winning_version: int | None
    winning_txn_id: UUID | None


@dataclass(frozen=True, slots=True)
class LineageEdge:
    """Commits of one table that read another."""

    source: str
    target: str
    depth: int
    """Distance from the table that was asked for; 1 is next to it."""
    num_commits: int
    source_version: int
    """Newest version of the source that was read."""
    target_version: int
    """Newest version of the target that was made so."""


class ActivityList(list[TransactionSummary]):
    """Transactions, newest first. A notebook shows them as a table."""

    def _repr_html_(self) -> str:
        heads = ("committed_at", "committer", "operations", "versions", "txn_id")
        rows = [
            (one.committed_at, one.committer, ", ".join(one.operations), _counted(one.versions), one.txn_id)
            for one in self
        ]
        return html_table(f"{len(self)} transactions", heads, rows)


def recent_transactions(
    session: CatalogSession,
    *,
    since: Moment | None,
    until: Moment | None,
    tables: Sequence[TableLike] | None,
    operation: str | None,
    committer: str | None,
    limit: int,
) -> ActivityList:
    """Return committed transactions, newest first."""
    limit = _limit(limit)
    check_texts(operation=operation, committer=committer)
    records = session.find_all(tables)
    window = Window(
        0 if since is None else to_microseconds(since),
        EVER_US if until is None else to_microseconds(until),
        tuple(record.table_id for record in records),
        operation,
        committer,
    )
    if not records or limit == 0:
        return ActivityList()
    activity = Activity(session.database)
    found: dict[UUID, None] = {}
    # A transaction has a row for each of its tables, so as many rows as transactions may be too few.
    while len(found) < limit:
        rows = activity.commits(window, limit)
        found.update(dict.fromkeys(row.txn_id for row in rows))
        if len(rows) < limit:
            break
        # Transactions over other tables may have the same time stamp.
        last = rows[-1].commit_ts
        window = _before(window, last + 1 if last + 1 < window.to_us else last)
    return ActivityList(summaries(session, activity.commits_of(list(found)[:limit])))


def summaries(session: CatalogSession, commits: Iterable[CommitRow]) -> list[TransactionSummary]:
    """Return the transactions of these commits, newest first."""
    by_transaction: dict[UUID, list[CommitRow]] = {}
    for commit in commits:
        by_transaction.setdefault(commit.txn_id, []).append(commit)
    reads = Activity(session.database).reads(by_transaction)
    names = session.registry.names(
        {commit.table_id for made in by_transaction.values() for commit in made} | {read.table_id for read in reads}
    )
    read_by: dict[UUID, list[RecordedRead]] = {}
    for read in reads:
        name = names.get(read.table_id, str(read.table_id))
        read_by.setdefault(read.txn_id, []).append(RecordedRead(name, read.version, read.kind, read.condition))
    found = [
        _summary(made, names, sorted(read_by.get(txn_id, ()), key=lambda read: read.table))
        for txn_id, made in by_transaction.items()
    ]
    return sorted(found, key=lambda one: (one.committed_at, str(one.txn_id)), reverse=True)


def lost_races(
    session: CatalogSession, *, since: Moment | None, tables: Sequence[TableLike] | None, limit: int
) -> list[ConflictDetail]:
    """Return races that transactions lost, newest first."""
    rows = Activity(session.database).conflicts(
        since_us=0 if since is None else to_microseconds(since), tables=session.find_ids(tables), limit=_limit(limit)
    )
    return conflict_details(session, rows)


def conflict_details(session: CatalogSession, rows: Sequence[ConflictRow]) -> list[ConflictDetail]:
    """Return lost races with the names of their tables."""
    names = session.registry.names({row.table_id for row in rows})
    return [_conflict(row, names) for row in rows]


def lineage_of(session: CatalogSession, table: TableLike, *, downstream: bool, depth: int) -> list[LineageEdge]:
    """Return which tables a table was made from, or which were made from it, the nearest first."""
    check_flags(downstream=downstream)
    depth = as_whole(depth, "a number of steps", field="depth", hint="Write depth=1 for the nearest tables alone.")
    if depth < 1:
        raise ValidationError(f"depth must be 1 or more, got {depth}", field="depth", hint="Write depth=1.")
    activity = Activity(session.database)
    start = session.find(table).table_id
    seen, nearest, edges = {start}, [start], list[tuple[int, LineageRow]]()
    for step in range(1, depth + 1):
        rows = [
            row
            for one in nearest
            for row in (activity.dependents(one, MOST_READS) if downstream else activity.sources(one))
        ]
        edges += [(step, row) for row in rows]
        nearest = list(dict.fromkeys(row.target_id if downstream else row.source_id for row in rows))
        nearest = [one for one in nearest if one not in seen]
        seen.update(nearest)
        if not nearest:
            break
    names = session.registry.names({end for _, row in edges for end in (row.source_id, row.target_id)})
    return sorted(
        (_edge(step, row, names) for step, row in edges), key=lambda edge: (edge.depth, edge.source, edge.target)
    )


def _summary(made: list[CommitRow], names: Mapping[UUID, str], reads: Sequence[RecordedRead]) -> TransactionSummary:
    first = made[0]
    published = [commit.published_at for commit in made]
    times = [at for at in published if at is not None]
    published_us = max(times) if len(times) == len(published) else None
    return TransactionSummary(
        first.txn_id,
        from_microseconds(first.commit_ts),
        first.committer,
        first.isolation,
        tuple(sorted({commit.operation for commit in made})),
        dict(sorted((names.get(commit.table_id, str(commit.table_id)), commit.version) for commit in made)),
        from_microseconds(published_us) if published_us is not None else None,
        tuple(reads),
        with_publication(first.stages, first.commit_ts, published_us),
    )


def _conflict(row: ConflictRow, names: Mapping[UUID, str]) -> ConflictDetail:
    return ConflictDetail(
        from_microseconds(row.recorded_at),
        names.get(row.table_id, str(row.table_id)),
        row.rule,
        row.reason,
        row.txn_id,
        row.committer,
        row.operation,
        row.isolation,
        row.expected_version,
        row.actual_version,
        row.winning_version,
        row.winning_txn_id,
    )


def _edge(depth: int, row: LineageRow, names: Mapping[UUID, str]) -> LineageEdge:
    source, target = (names.get(end, str(end)) for end in (row.source_id, row.target_id))
    return LineageEdge(source, target, depth, row.num_commits, row.source_version, row.target_version)


def _before(window: Window, moment_us: int) -> Window:
    return Window(window.from_us, moment_us, window.tables, window.operation, window.committer)


def _limit(limit: int) -> int:
    found = as_whole(limit, "a number", field="limit", hint="Write limit=100.")
    if found < 0:
        raise ValidationError(f"limit must be 0 or more, got {found}", field="limit", hint="Write limit=100.")
    return found


def _counted(versions: Mapping[str, int]) -> str:
    return ", ".join(f"{name} v{version}" for name, version in versions.items())
