"""What happened in the catalog, for people: commits by time, what they read, and who lost to whom.

    span()                     the first and the last commit
    commits(window)            commits of some tables between two moments, with the time of their publication
    density(window, buckets)   how many, per table and slice of time: for windows with too many to list
    reads(txn_ids)             what transactions read
    conflicts(…)               races that were lost
    lost(window)               the same, of some tables between two moments
    conflict_counts(since)     how many, by table, rule and hour
    totals(table, versions)    what versions added and removed: the growth of a table

Every query goes by an index, over the tables that are asked for. Times are microseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy import BigInteger, ColumnElement, FromClause, Select, and_, cast, func, literal, or_, select

from deltars.log.read_description import ReadKind
from deltars.log.stages import from_microseconds
from deltars.store.database import Readable
from deltars.store.schema import (
    dl_add_files,
    dl_conflicts,
    dl_maintenance,
    dl_metadata_updates,
    dl_mirror_log,
    dl_reads,
    dl_table_versions,
    dl_tables,
    dl_transactions,
    dl_txn_actions,
)

Value = TypeVar("Value")

AT_ONCE = 500
"""Most values in one list of a statement."""
HOUR_US = 3_600_000_000

_versions, _log, _reads, _conflicts = dl_table_versions.c, dl_mirror_log.c, dl_reads.c, dl_conflicts.c


@dataclass(frozen=True, slots=True)
class Window:
    """A span of time, its end not included, and which commits of it are wanted."""

    from_us: int
    to_us: int
    tables: tuple[UUID, ...]
    operation: str | None = None
    committer: str | None = None

    @property
    def length_us(self) -> int:
        return self.to_us - self.from_us


@dataclass(frozen=True, slots=True)
class CommitRow:
    """One version of one table."""

    txn_id: UUID
    commit_ts: int
    table_id: UUID
    version: int
    operation: str
    committer: str | None
    isolation: str | None
    published_at: int | None
    """None if it is not published yet, or is not known to be."""
    operation_params: Mapping[str, Any] | None = None
    """Only of `commits_of`, as are the next three."""
    metrics: Mapping[str, Any] | None = None
    user_metadata: str | None = None
    stages: Mapping[str, float] = field(default_factory=dict)
    """Seconds of each stage of the transaction until its time stamp, if they were recorded (`log.stages`)."""


@dataclass(frozen=True, slots=True)
class DensityRow:
    table_id: UUID
    bucket: int
    num_commits: int


@dataclass(frozen=True, slots=True)
class ReadRow:
    """What a committed transaction read of one table."""

    txn_id: UUID
    table_id: UUID
    version: int
    kind: ReadKind
    condition: str | None


@dataclass(frozen=True, slots=True)
class ConflictRow:
    """A race that was lost."""

    conflict_id: UUID
    recorded_at: int
    txn_id: UUID
    committer: str | None
    isolation: str
    operation: str | None
    table_id: UUID
    rule: str
    reason: str | None
    expected_version: int
    actual_version: int
    winning_version: int | None
    winning_txn_id: UUID | None


@dataclass(frozen=True, slots=True)
class ConflictCount:
    """Races for one table that were lost by one rule in one hour."""

    table_id: UUID
    rule: str
    hour: int
    """Hours since 1970."""
    num_conflicts: int


@dataclass(frozen=True, slots=True)
class StreamRow:
    """Progress of one application in one table."""

    app_id: str
    table_id: UUID
    app_version: int
    version: int
    commit_ts: int


@dataclass(frozen=True, slots=True)
class LineageRow:
    """Commits of one table that read another."""

    source_id: UUID
    target_id: UUID
    num_commits: int
    source_version: int
    """Newest version of the source that was read."""
    target_version: int
    """Newest version of the target that was made so."""


@dataclass(frozen=True, slots=True)
class VersionTotals:
    """Files that one version added and removed."""

    table_id: UUID
    version: int
    files_added: int = 0
    bytes_added: int = 0
    rows_added: int = 0
    files_removed: int = 0
    bytes_removed: int = 0
    rows_removed: int = 0


@dataclass(frozen=True, slots=True)
class MaintenanceRow:
    """What maintenance last did to a table; times are None if it never did."""

    table_id: UUID
    first_version: int
    optimized_at: int | None
    vacuumed_at: int | None
    expired_at: int | None


class Activity:
    """Reader of what happened in one database."""

    def __init__(self, database: Readable) -> None:
        self._database = database

    def span(self) -> tuple[int, int] | None:
        """Return the times of the first and the last commit; None if there is none."""
        query = select(func.min(_versions.commit_ts), func.max(_versions.commit_ts))
        with self._database.read() as connection:
            first, last = connection.execute(query).one()
        return None if first is None else (first, last)

    def count(self, window: Window) -> int:
        """Return how many commits there are in a window."""
        with self._database.read() as connection:
            return connection.execute(select(func.count()).where(_within(window))).scalar_one()

    def commits(self, window: Window, limit: int, *, newest_first: bool = True) -> list[CommitRow]:
        order = _versions.commit_ts.desc() if newest_first else _versions.commit_ts
        query = _commits().where(_within(window)).order_by(order, _versions.table_id).limit(limit)
        with self._database.read() as connection:
            return [CommitRow(*row) for row in connection.execute(query)]

    def commits_of(self, txn_ids: Collection[UUID]) -> list[CommitRow]:
        """Return every version that these transactions made and that the catalog still has."""
        found: list[CommitRow] = []
        details = (_versions.operation_params, _versions.metrics, _versions.user_metadata)
        with self._database.read() as connection:
            for some in _parts(txn_ids):
                about = dl_transactions.c
                chosen = select(about.txn_id, about.participants, about.stages).where(about.txn_id.in_(some))
                rows = connection.execute(chosen).all()
                keys = {(UUID(table), version) for row in rows for table, version in (row.participants or {}).items()}
                stages = {row.txn_id: from_microseconds(row.stages) for row in rows}
                for part in _parts(keys):
                    versions = (and_(_versions.table_id == table, _versions.version == at) for table, at in part)
                    query = _commits(*details).where(or_(*versions), _versions.txn_id.in_(some))
                    found += [
                        replace(CommitRow(*row), stages=stages.get(row.txn_id, {})) for row in connection.execute(query)
                    ]
        return found

    def published_at(self, txn_id: UUID) -> int | None:
        """Return when the last version of a transaction was published; None if one is not, or is not known to be."""
        times = [commit.published_at for commit in self.commits_of([txn_id])]
        known = [at for at in times if at is not None]
        return max(known) if known and len(known) == len(times) else None

    def density(self, window: Window, buckets: int) -> list[DensityRow]:
        """Return how many commits there are per table in each of so many equal slices of the window."""
        width = max(1, -(-window.length_us // buckets))
        bucket = cast(
            func.floor((_versions.commit_ts - literal(window.from_us, BigInteger)) / literal(float(width))), BigInteger
        )
        query = select(_versions.table_id, bucket.label("bucket"), func.count()).where(_within(window))
        with self._database.read() as connection:
            return [DensityRow(*row) for row in connection.execute(query.group_by(_versions.table_id, "bucket"))]

    def versions_at(self, moment_us: int) -> dict[UUID, int]:
        """Return the last version of each table up to a moment. Commits under way may still be missing."""
        query = select(_versions.table_id, func.max(_versions.version)).where(_versions.commit_ts <= moment_us)
        with self._database.read() as connection:
            rows = connection.execute(query.group_by(_versions.table_id))
            return {row[0]: row[1] for row in rows}

    def version_at(self, table_id: UUID, moment_us: int) -> int | None:
        """Return the last version of one table up to a moment; None if it has none that old."""
        query = select(_versions.version).where(_versions.table_id == table_id, _versions.commit_ts <= moment_us)
        with self._database.read() as connection:
            newest = query.order_by(_versions.commit_ts.desc()).limit(1)
            return connection.execute(newest).scalar_one_or_none()

    def totals(self, table_id: UUID, first: int, last: int) -> list[VersionTotals]:
        """Return what each of these versions added and removed, in their order."""
        files = dl_add_files.c
        deleted = func.coalesce(files.deletion_vector["cardinality"].as_integer(), 0)
        sums = (func.count(), func.sum(files.size), func.sum(func.coalesce(files.num_records - deleted, 0)))
        found: dict[int, VersionTotals] = {}
        with self._database.read() as connection:
            query = select(files.version, *sums).where(files.table_id == table_id, files.version.between(first, last))
            for version, count, size, rows in connection.execute(query.group_by(files.version)):
                found[version] = VersionTotals(table_id, version, count, int(size), int(rows))
            ended = files.removed_version
            query = select(ended, *sums).where(files.table_id == table_id, ended.between(first, last))
            for version, count, size, rows in connection.execute(query.group_by(ended)):
                found[version] = replace(
                    found.get(version, VersionTotals(table_id, version)),
                    files_removed=count,
                    bytes_removed=int(size),
                    rows_removed=int(rows),
                )
        return [found[version] for version in sorted(found)]

    def schemas(self, table_id: UUID, limit: int) -> list[tuple[int, str]]:
        """Return the newest versions that changed the metadata, oldest first, each with its schema as JSON."""
        updates = dl_metadata_updates.c
        query = select(updates.version, updates.schema_json).where(updates.table_id == table_id)
        with self._database.read() as connection:
            rows = connection.execute(query.order_by(updates.version.desc()).limit(limit)).all()
        return [(row.version, row.schema_json) for row in reversed(rows)]

    def maintenance(self) -> list[MaintenanceRow]:
        columns = [dl_maintenance.c[name] for name in MaintenanceRow.__dataclass_fields__]
        with self._database.read() as connection:
            return [MaintenanceRow(*row) for row in connection.execute(select(*columns))]

    def operations(self, tables: Sequence[UUID]) -> list[str]:
        """Return the names of all operations."""
        query = select(_versions.operation).where(_versions.table_id.in_(tables)).distinct()
        with self._database.read() as connection:
            return sorted(connection.scalars(query))

    def reads(self, txn_ids: Collection[UUID]) -> list[ReadRow]:
        columns = (_reads.txn_id, _reads.table_id, _reads.version, _reads.kind, _reads.condition)
        with self._database.read() as connection:
            return [
                ReadRow(txn_id, table_id, version, ReadKind(kind), condition)
                for some in _parts(txn_ids)
                for txn_id, table_id, version, kind, condition in connection.execute(
                    select(*columns).where(_reads.txn_id.in_(some))
                )
            ]

    def sources(self, table_id: UUID) -> list[LineageRow]:
        """Return the other tables that commits of this table read."""
        query = (
            select(_reads.table_id, func.count(), func.max(_reads.version), func.max(_versions.version))
            .join_from(dl_table_versions, dl_reads, _reads.txn_id == _versions.txn_id)
            .where(_versions.table_id == table_id, _reads.table_id != table_id)
            .group_by(_reads.table_id)
        )
        with self._database.read() as connection:
            return [LineageRow(source, table_id, *rest) for source, *rest in connection.execute(query)]

    def dependents(self, table_id: UUID, limit: int) -> list[LineageRow]:
        """Return the other tables whose commits read this one, by its newest reads, at most `limit`."""
        query = select(_reads.txn_id, _reads.version).where(_reads.table_id == table_id)
        with self._database.read() as connection:
            newest = connection.execute(query.order_by(_reads.recorded_at.desc()).limit(limit))
            read: dict[UUID, int] = {row.txn_id: row.version for row in newest}
        found: dict[UUID, LineageRow] = {}
        for commit in self.commits_of(read):
            if commit.table_id != table_id:
                old = found.get(commit.table_id, LineageRow(table_id, commit.table_id, 0, -1, -1))
                found[commit.table_id] = replace(
                    old,
                    num_commits=old.num_commits + 1,
                    source_version=max(old.source_version, read[commit.txn_id]),
                    target_version=max(old.target_version, commit.version),
                )
        return list(found.values())

    def conflicts(
        self,
        *,
        since_us: int = 0,
        tables: Collection[UUID] | None = None,
        txn_id: UUID | None = None,
        limit: int,
        offset: int = 0,
    ) -> list[ConflictRow]:
        """Return the races that were lost since a time, the newest first; those that a transaction lost or won."""
        wanted = [_conflicts.recorded_at >= since_us]
        if tables is not None:
            wanted.append(_conflicts.table_id.in_(list(tables)))
        if txn_id is not None:
            wanted.append(or_(_conflicts.txn_id == txn_id, _conflicts.winning_txn_id == txn_id))
        return self._lost_races(wanted, limit, offset)

    def lost(self, window: Window, limit: int) -> list[ConflictRow]:
        """Return the races that were lost in a window, the newest first."""
        wanted = [
            _conflicts.table_id.in_(window.tables),
            _conflicts.recorded_at >= window.from_us,
            _conflicts.recorded_at < window.to_us,
        ]
        if window.operation is not None:
            wanted.append(_conflicts.operation == window.operation)
        if window.committer is not None:
            wanted.append(_conflicts.committer == window.committer)
        return self._lost_races(wanted, limit)

    def _lost_races(self, wanted: Sequence[ColumnElement[bool]], limit: int, offset: int = 0) -> list[ConflictRow]:
        columns = [_conflicts[name] for name in ConflictRow.__dataclass_fields__]
        query = select(*columns).where(*wanted).order_by(_conflicts.recorded_at.desc(), _conflicts.conflict_id)
        with self._database.read() as connection:
            return [ConflictRow(*row) for row in connection.execute(query.limit(limit).offset(offset))]

    def conflict_counts(self, since_us: int = 0) -> list[ConflictCount]:
        """Return how many races were lost since a time, by table, rule and hour."""
        hour = cast(func.floor(_conflicts.recorded_at / literal(float(HOUR_US))), BigInteger)
        query = (
            select(_conflicts.table_id, _conflicts.rule, hour.label("hour"), func.count())
            .where(_conflicts.recorded_at >= since_us)
            .group_by(_conflicts.table_id, _conflicts.rule, "hour")
        )
        with self._database.read() as connection:
            return [ConflictCount(*row) for row in connection.execute(query)]

    def streams(self, batches: int = 1) -> list[StreamRow]:
        """Return the newest versions that each application recorded in each table, at most so many of each.

        They are in the order of the applications and tables, the newest first.
        """
        actions = dl_txn_actions.c
        place = func.row_number().over(partition_by=(actions.app_id, actions.table_id), order_by=actions.version.desc())
        newest = select(actions.app_id, actions.table_id, actions.version, place.label("place")).subquery()
        query = (
            select(actions.app_id, actions.table_id, actions.txn_version, actions.version, _versions.commit_ts)
            .join_from(newest, dl_txn_actions, _same(newest, dl_txn_actions, "app_id", "table_id", "version"))
            .join(dl_table_versions, _same(dl_txn_actions, dl_table_versions, "table_id", "version"))
            .join(dl_tables, dl_tables.c.table_id == actions.table_id)
            .where(newest.c.place <= batches, dl_tables.c.dropped_at.is_(None))
            .order_by(actions.app_id, dl_tables.c.name, actions.version.desc())
        )
        with self._database.read() as connection:
            return [StreamRow(*row) for row in connection.execute(query)]


def _commits(*details: ColumnElement[Any]) -> Select[Any]:
    return select(
        _versions.txn_id,
        _versions.commit_ts,
        _versions.table_id,
        _versions.version,
        _versions.operation,
        _versions.committer,
        _versions.isolation,
        _log.published_at,
        *details,
    ).outerjoin_from(dl_table_versions, dl_mirror_log, _same(dl_table_versions, dl_mirror_log, "table_id", "version"))


def _within(window: Window) -> ColumnElement[bool]:
    wanted = [
        _versions.table_id.in_(window.tables),
        _versions.commit_ts >= window.from_us,
        _versions.commit_ts < window.to_us,
    ]
    if window.operation is not None:
        wanted.append(_versions.operation == window.operation)
    if window.committer is not None:
        wanted.append(_versions.committer == window.committer)
    return and_(*wanted)


def _same(left: FromClause, right: FromClause, *names: str) -> ColumnElement[bool]:
    return and_(*(left.c[name] == right.c[name] for name in names))


def _parts(values: Collection[Value]) -> Iterator[list[Value]]:
    found = list(values)
    for start in range(0, len(found), AT_ONCE):
        yield found[start : start + AT_ONCE]
