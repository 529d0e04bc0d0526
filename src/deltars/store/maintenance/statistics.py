"""Statistics of every table for maintenance: a few queries for the whole catalog, none for a single table.

    reading: tables, mirror, marks, rules ──▶ live_files: by table and partition
                                          ──▶ versions ──▶ removals: horizons, removed files ──▶ versions that can go

All queries read one state. Rules that differ from the defaults are sent along as one document. Tables without removed
files or old versions take part in the first queries only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from uuid import UUID

from sqlalchemy import BigInteger, ColumnElement, FromClause, and_, case, func, literal, select, true

from deltars.log.compaction import automatic_target
from deltars.log.maintenance import MaintenanceRules, TableStatistics
from deltars.store.database import Readable
from deltars.store.imports.table_hold import HELD
from deltars.store.maintenance.live_files import LIVE, clustered_tables, live_files
from deltars.store.maintenance.reading import Reading
from deltars.store.maintenance.removals import REMOVED, find_vacuums, removed_files
from deltars.store.mirror.status import MirrorMode, MirrorState, mode_of
from deltars.store.schema import (
    NO_VERSION,
    dl_add_files,
    dl_table_versions,
    dl_tables,
    dl_tags,
    dl_writers,
)
from deltars.store.writers import DEAD_AFTER_US

_tables, _versions, _add = dl_tables.c, dl_table_versions.c, dl_add_files.c

_SECOND_US = 1_000_000
_OTHERS = (MirrorState.IMPORTING, MirrorState.READ_ONLY, MirrorState.RELEASED)


class StatisticsReader:
    """Reader of the statistics of one catalog."""

    def __init__(self, database: Readable, rules_of: Callable[[Mapping[str, str]], MaintenanceRules]) -> None:
        self._database = database
        self._rules_of = rules_of

    def read(self, table_ids: Collection[UUID] | None = None) -> list[TableStatistics]:
        """Return the statistics of these tables, by default of all, by name."""
        with self._database.read() as connection:
            return _statistics_of(Reading(self._database.backend, connection, self._rules_of, table_ids))


def _statistics_of(reading: Reading) -> list[TableStatistics]:
    if not reading.rows:
        return []
    clustered, live = clustered_tables(reading), live_files(reading)
    dead, versions = _dead_writers(reading), _table_versions(reading)
    vacuums = find_vacuums(reading)
    removed = removed_files(reading, vacuums)
    pins = _pins(reading)
    now = {key: one.first_removal for key, one in vacuums.items()}
    later = {key: one.first_removal_after for key, one in vacuums.items() if one.first_removal_after is not None}
    expirable, expirable_later = (_expirable(reading, versions, removals, pins) for removals in (now, later))
    found = []
    for table_id, row in reading.rows.items():
        files, of_versions = live.get(table_id, {}), versions.get(table_id, {})
        is_clustered = table_id in clustered
        found.append(
            TableStatistics(
                table=row["name"],
                table_id=table_id,
                current_version=row["current_version"],
                num_versions=of_versions.get("num_versions", 0),
                oldest_version=of_versions.get("oldest_version", NO_VERSION),
                oldest_age_s=reading.age_s(of_versions.get("oldest_ts")),
                last_commit_age_s=reading.age_s(row["last_commit_ts"]) if row["current_version"] >= 0 else None,
                **{name: files.get(name, 0) for name in LIVE if is_clustered or not name.startswith("unsorted")},
                target_bytes=files.get("target_bytes", reading.rules[table_id].target_bytes or automatic_target(0)),
                is_clustered=is_clustered,
                **{name: removed.get(table_id, {}).get(name, 0) for name in REMOVED},
                untagged_versions=len(set(row["kept_versions"] or ()) - pins.get(table_id, set())),
                expirable_versions=expirable.get(table_id, 0),
                expirable_after_vacuum=expirable_later.get(table_id, 0),
                dead_writers=dead.get(table_id, 0),
                published_version=row["published_version"],
                mirror_state=row["state"],
                is_ours=MirrorState(row["state"]) not in _OTHERS and row["protocol_version"] != HELD,
                is_published=mode_of(row["properties"]) is not MirrorMode.OFF,
                lag_s=max(0, reading.now - (row["pending_since"] or reading.now)) / _SECOND_US,
                vacuumed_age_s=reading.age_s(row["vacuumed_at"]),
                expired_age_s=reading.age_s(row["expired_at"]),
                rules=reading.rules[table_id],
            )
        )
    return found


def _dead_writers(reading: Reading) -> dict[UUID, int]:
    writers = dl_writers.c
    query = (
        select(writers.table_id, func.count(writers.txn_id.distinct()))
        .where(writers.heartbeat_at < reading.now - DEAD_AFTER_US, reading.is_chosen(writers.table_id))
        .group_by(writers.table_id)
    )
    return reading.pairs(query)


def _table_versions(reading: Reading) -> dict[UUID, dict[str, int]]:
    default = MaintenanceRules().log_retention_us
    others = {
        table_id: rules.log_retention_us
        for table_id, rules in reading.rules.items()
        if rules.log_retention_us != default
    }
    retention: ColumnElement[int] = literal(default, BigInteger)
    versions: FromClause = dl_table_versions
    if others:
        document = reading.document([{"table_id": key, "size": span} for key, span in others.items()], _add.size)
        versions = versions.join(document, document.c.table_id == _versions.table_id, isouter=True)
        retention = func.coalesce(document.c.size, retention)
    since_us = literal(reading.now, BigInteger) - retention
    # Cuts go by commit_ts, time travel of one table by in-commit timestamps. A version is old by both.
    is_old = and_(_versions.commit_ts <= since_us, _versions.in_commit_timestamp * 1000 <= since_us)
    query = (
        select(
            _versions.table_id,
            func.count().label("num_versions"),
            func.min(_versions.version).label("oldest_version"),
            func.min(_versions.commit_ts).label("oldest_ts"),
            func.max(case((is_old, _versions.version), else_=NO_VERSION)).label("last_old"),
        )
        .select_from(versions)
        .where(reading.is_chosen(_versions.table_id))
        .group_by(_versions.table_id)
    )
    return reading.numbers(query)


def _pins(reading: Reading) -> dict[UUID, set[int]]:
    """Return the versions of each table that tags need."""
    if reading.connection.execute(select(dl_tags.c.name).limit(1)).first() is None:
        return {}
    last = (
        select(_versions.version)
        .where(_versions.table_id == _tables.table_id, _versions.commit_ts <= dl_tags.c.commit_ts)
        .order_by(_versions.commit_ts.desc(), _versions.version.desc())
        .limit(1)
        .correlate(dl_tables, dl_tags)
        .scalar_subquery()
    )
    query = (
        select(_tables.table_id, last)
        .join(dl_tags, true())
        .where(_tables.dropped_at.is_(None), reading.is_chosen(_tables.table_id))
    )
    pins: dict[UUID, set[int]] = {}
    for table_id, version in reading.connection.execute(query):
        if version is not None:
            pins.setdefault(table_id, set()).add(version)
    return pins


def _expirable(
    reading: Reading,
    versions: Mapping[UUID, Mapping[str, int]],
    removals: Mapping[UUID, int],
    pins: Mapping[UUID, set[int]],
) -> dict[UUID, int]:
    """Return how many versions of each table an expiry would delete.

    `removals` has the first version of tables with removed files that no vacuum has deleted: they are needed to
    find the files.
    """
    first_kept: dict[UUID, int] = {}
    for table_id, row in reading.rows.items():
        of_table = versions.get(table_id, {})
        limits = [of_table.get("last_old", NO_VERSION), row["current_version"], row["published_version"]]
        limits += [removals[table_id] - 1] if table_id in removals else []
        if min(limits) > of_table.get("oldest_version", NO_VERSION):
            first_kept[table_id] = min(limits)
    if not first_kept:
        return {}
    given = reading.document([{"table_id": key, "version": first} for key, first in first_kept.items()], _add.version)
    query = (
        select(_versions.table_id, func.count().label("count"))
        .join(given, given.c.table_id == _versions.table_id)
        .where(_versions.version < given.c.version)
        .group_by(_versions.table_id)
    )
    counts = {}
    for table_id, numbers in reading.numbers(query).items():
        kept = pins.get(table_id, set()) | set(reading.rows[table_id]["kept_versions"] or ())
        counts[table_id] = max(0, numbers["count"] - sum(version < first_kept[table_id] for version in kept))
    return counts
