"""Statistics of what vacuums could delete: files, deletion vectors and change files that versions removed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, FromClause, Select, and_, exists, func, or_, select, true, union_all

from deltars.store.maintenance.reading import Reading
from deltars.store.schema import (
    NO_VERSION,
    dl_add_files,
    dl_cdc_files,
    dl_mirror_log,
    dl_remove_files,
    dl_table_versions,
)

_versions, _add, _remove, _cdc = dl_table_versions.c, dl_add_files.c, dl_remove_files.c, dl_cdc_files.c

REMOVED = ("removed_files", "removed_bytes", "removed_vectors", "change_files", "change_bytes")
"""Names of the numbers."""


@dataclass(frozen=True, slots=True)
class PossibleVacuum:
    """What a vacuum of a table would do now."""

    horizon: int
    """Last version whose removals are past the retention."""
    first_removal: int
    """First version after the last vacuum that removed files."""
    first_removal_after: int | None
    """First version after the horizon that removed files."""


def find_vacuums(reading: Reading) -> dict[UUID, PossibleVacuum]:
    """Return what vacuums could delete, for tables with removed files or change files since the last one."""
    first = _first_removals(reading, {key: reading.vacuumed(key) for key in reading.rows})
    if not first:
        return {}
    bounds = [
        {
            "table_id": table_id,
            "version": reading.vacuumed(table_id),
            "removed_version": reading.rows[table_id]["published_version"],
            "size": reading.now - reading.rules[table_id].deleted_retention_us,
        }
        for table_id in first
    ]
    given = reading.document(bounds, _add.version, _add.removed_version, _add.size)
    log = dl_mirror_log.c
    # As in a vacuum: the later of both times, and the commit of an imported version without a file.
    published_at = reading.backend.greatest(func.coalesce(log.published_at, _versions.commit_ts), _versions.commit_ts)
    first_kept = (
        select(_versions.table_id, func.min(_versions.version))
        .join(given, given.c.table_id == _versions.table_id)
        .outerjoin(dl_mirror_log, and_(log.table_id == _versions.table_id, log.version == _versions.version))
        .where(_versions.version > given.c.version, _versions.version <= given.c.removed_version)
        .where(published_at >= given.c.size)
        .group_by(_versions.table_id)
    )
    kept = reading.pairs(first_kept)
    horizons = {
        table_id: max(
            reading.vacuumed(table_id), kept.get(table_id, reading.rows[table_id]["published_version"] + 1) - 1
        )
        for table_id in first
    }
    after = _first_removals(reading, horizons)
    return {key: PossibleVacuum(horizons[key], first[key], after.get(key)) for key in first}


def removed_files(reading: Reading, vacuums: Mapping[UUID, PossibleVacuum]) -> dict[UUID, dict[str, int]]:
    """Return the files, vectors and change files that a vacuum would find."""
    bounds = [
        {"table_id": table_id, "version": reading.vacuumed(table_id), "removed_version": one.horizon}
        for table_id, one in vacuums.items()
        if one.horizon > reading.vacuumed(table_id)
    ]
    if not bounds:
        return {}
    found: dict[UUID, dict[str, int]] = {}
    for query in (_removed_files(reading, bounds), _removed_vectors(reading, bounds), _change_files(reading, bounds)):
        for table_id, numbers in reading.numbers(query).items():
            found.setdefault(table_id, {}).update(numbers)
    return found


def _first_removals(reading: Reading, after: Mapping[UUID, int]) -> dict[UUID, int]:
    """Return the first version of each table after a given one that removed files or wrote change files."""
    default = all(version == NO_VERSION for version in after.values()) and reading.chosen is None
    document = reading.document(
        [{"table_id": key, "version": version} for key, version in after.items() if not default], _add.version
    )
    parts = [
        select(columns.table_id, func.min(columns.version).label("version"))
        .where(true() if default else columns.version > document.c.version)
        .select_from(table if default else table.join(document, document.c.table_id == columns.table_id))
        .group_by(columns.table_id)
        for table, columns in ((dl_remove_files, _remove), (dl_cdc_files, _cdc))
    ]
    both = union_all(*parts).subquery()
    query = select(both.c.table_id, func.min(both.c.version)).group_by(both.c.table_id)
    return {table_id: version for table_id, version in reading.pairs(query).items() if table_id in after}


def _removed_files(reading: Reading, bounds: Sequence[Mapping[str, Any]]) -> Select[Any]:
    given = reading.document(bounds, _add.version, _add.removed_version)
    later = dl_add_files.alias("later")
    # A file with a new deletion vector was removed and added again.
    is_there = exists().where(
        later.c.table_id == _remove.table_id,
        later.c.path == _remove.path,
        or_(later.c.removed_version.is_(None), later.c.removed_version > given.c.removed_version),
    )
    paths = (
        select(_remove.table_id, _remove.path, func.max(_remove.size).label("size"))
        .join(given, given.c.table_id == _remove.table_id)
        .where(_within(_remove.version, given), ~is_there)
        .group_by(_remove.table_id, _remove.path)
        .subquery()
    )
    return select(
        paths.c.table_id,
        func.count().label("removed_files"),
        func.coalesce(func.sum(paths.c.size), 0).label("removed_bytes"),
    ).group_by(paths.c.table_id)


def _removed_vectors(reading: Reading, bounds: Sequence[Mapping[str, Any]]) -> Select[Any]:
    given = reading.document(bounds, _add.version, _add.removed_version)
    return (
        select(_remove.table_id, func.count().label("removed_vectors"))
        .join(given, given.c.table_id == _remove.table_id)
        .where(_within(_remove.version, given), _remove.dv_id != "")
        .group_by(_remove.table_id)
    )


def _change_files(reading: Reading, bounds: Sequence[Mapping[str, Any]]) -> Select[Any]:
    given = reading.document(bounds, _add.version, _add.removed_version)
    return (
        select(_cdc.table_id, func.count().label("change_files"), func.sum(_cdc.size).label("change_bytes"))
        .join(given, given.c.table_id == _cdc.table_id)
        .where(_within(_cdc.version, given))
        .group_by(_cdc.table_id)
    )


def _within(version: ColumnElement[int], given: FromClause) -> ColumnElement[bool]:
    return and_(version > given.c.version, version <= given.c.removed_version)
