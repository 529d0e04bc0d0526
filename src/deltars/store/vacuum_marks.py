"""How far a table was vacuumed, and which of its versions have lost files.

    files removed at ──── deleted ────┬──── being deleted ────┬──── kept ────▶ versions
                              vacuumed_version        condemned_version
A vacuum condemns files before it deletes them, in a transaction that locks the table's row and the registry. A restore
and a tag look here in theirs: so a file is either kept for them, or they are refused. What a tag needs is never
condemned, so a version that a tag names is whole.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, and_, exists, insert, or_, select, update

from deltars.errors import FilesMissing
from deltars.store.read.version_header import version_not_found
from deltars.store.schema import dl_add_files, dl_maintenance, dl_table_versions, dl_tables
from deltars.store.tags import needed_by_tags, pinned_versions

NAMED = 10
"""Most files that an error names."""

EVERY_VERSION = 2**62
"""`condemned_version` of a dropped table whose files are all deleted, or are being deleted."""

_INLINE = "i"
"""First letter of the id of a deletion vector that is in the log itself, and in no file."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_files, _marks, _versions = dl_add_files.c, dl_maintenance.c, dl_table_versions.c


@dataclass(frozen=True, slots=True)
class VacuumMarks:
    """Row of a table in `dl_maintenance`, as far as vacuum is concerned."""

    vacuumed_version: int = -1
    condemned_version: int = -1
    kept_versions: tuple[int, ...] = ()


def read_marks(connection: Connection, table_id: UUID) -> VacuumMarks:
    query = select(_marks.vacuumed_version, _marks.condemned_version, _marks.kept_versions)
    row = connection.execute(query.where(_marks.table_id == table_id)).one_or_none()
    if row is None:
        return VacuumMarks()
    return VacuumMarks(row.vacuumed_version, row.condemned_version, tuple(row.kept_versions or ()))


def condemn(connection: Connection, table_id: UUID, version: int) -> None:
    """Record that files removed at or below a version may be deleted from now on. It never decreases."""
    marks = read_marks(connection, table_id)
    _write(connection, table_id, condemned_version=max(version, marks.condemned_version))


def condemn_dropped(connection: Connection, table_id: UUID) -> None:
    """Record that all files of a dropped table are going to be deleted, so that no tag can need them from now on.

    Raise `ValidationError` if a tag needs them already. Call it with the registry locked.
    """
    names = sorted({name for tags in pinned_versions(connection, table_id).values() for name in tags})
    if names:
        raise needed_by_tags(names, table_id)
    condemn(connection, table_id, EVERY_VERSION)


def finish(
    connection: Connection, table_id: UUID, before: VacuumMarks, version: int, kept: Collection[int], now_us: int
) -> None:
    """Record that all files removed at or below a version are deleted, except those that `kept` versions need.

    Do nothing but note the time if another vacuum finished since `before` was read: what this one knows is outdated.
    """
    marks = read_marks(connection, table_id)
    is_latest = (marks.vacuumed_version, marks.kept_versions) == (before.vacuumed_version, before.kept_versions)
    done = {"vacuumed_version": max(version, before.vacuumed_version), "kept_versions": sorted(kept) or None}
    _write(connection, table_id, vacuumed_at=now_us, **(done if is_latest else {}))


def find_condemned(connection: Connection, table_id: UUID, version: int) -> tuple[int, list[str]]:
    """Return how many files of a version a vacuum has deleted or is deleting, and some of them."""
    condemned = read_marks(connection, table_id).condemned_version
    if condemned <= version or version in pinned_versions(connection, table_id):
        return 0, []
    if condemned == EVERY_VERSION:
        return _files_of(connection, table_id, version)
    other = dl_add_files.alias("other")

    def is_kept(*same: ColumnElement[bool]) -> ColumnElement[bool]:
        is_later = or_(other.c.removed_version.is_(None), other.c.removed_version > condemned)
        return exists(select(other.c.ord).where(other.c.table_id == table_id, *same, is_later))

    same_path = other.c.path == _files.path
    is_stored = and_(_files.dv_id != "", ~_files.dv_id.startswith(_INLINE))
    paths = connection.scalars(
        select(_files.path)
        .where(_files.table_id == table_id, _files.version <= version)
        .where(_files.removed_version > version, _files.removed_version <= condemned)
        # A file lives on with another deletion vector, but the old vector may be gone, unless the log itself has it.
        .where(or_(~is_kept(same_path), and_(is_stored, ~is_kept(same_path, other.c.dv_id == _files.dv_id))))
        .order_by(_files.path)
    ).all()
    return len(paths), list(paths[:NAMED])


def _files_of(connection: Connection, table_id: UUID, version: int) -> tuple[int, list[str]]:
    is_live = or_(_files.removed_version.is_(None), _files.removed_version > version)
    query = select(_files.path).where(_files.table_id == table_id, _files.version <= version, is_live)
    paths = connection.scalars(query.order_by(_files.path)).all()
    return len(paths), list(paths[:NAMED])


def refuse_condemned(connection: Connection, table_id: UUID, version: int) -> None:
    """Raise `FilesMissing` if a vacuum has deleted, or is deleting, a file of a version.

    Raise `HistoryExpired` if the version is expired: nothing says any more which files it had.
    """
    count, some = find_condemned(connection, table_id, version)
    if count:
        is_dropped = read_marks(connection, table_id).condemned_version == EVERY_VERSION
        who = "drop_table" if is_dropped else "a vacuum"
        raise FilesMissing(
            f"{who} has deleted, or is deleting, {count} files of version {version}: {_named(some, count)}",
            paths=tuple(some),
            count=count,
            table_id=table_id,
            hint="Choose a later version.",
        )
    # After the files were read: an expiry deletes the row of a version before those of its files.
    known = select(_versions.version).where(_versions.table_id == table_id, _versions.version == version)
    if connection.execute(known).one_or_none() is None:
        raise version_not_found(connection, table_id, version)


def refuse_condemned_cut(connection: Connection, commit_ts: int) -> None:
    """Raise `FilesMissing` if a vacuum has deleted, or is deleting, files of a cut."""
    marked = (
        select(_marks.table_id, dl_tables.c.dropped_at)
        .join(dl_tables, dl_tables.c.table_id == _marks.table_id)
        .where(_marks.condemned_version >= 0)
    )
    for table_id, dropped_at in connection.execute(marked).all():
        if dropped_at is not None and dropped_at <= _EPOCH + timedelta(microseconds=commit_ts):
            continue
        last = (
            select(_versions.version)
            .where(_versions.table_id == table_id, _versions.commit_ts <= commit_ts)
            .order_by(_versions.commit_ts.desc(), _versions.version.desc())
            .limit(1)
        )
        version = connection.scalar(last)
        if version is not None:
            refuse_condemned(connection, table_id, version)


def _named(some: Iterable[str], count: int) -> str:
    listed = list(some)
    rest = f" and {count - len(listed)} more" if count > len(listed) else ""
    return ", ".join(listed) + rest


def _write(connection: Connection, table_id: UUID, **values: Any) -> None:
    known = select(_marks.table_id).where(_marks.table_id == table_id)
    if connection.execute(known).one_or_none() is None:
        connection.execute(insert(dl_maintenance).values(table_id=table_id, **values))
    else:
        connection.execute(update(dl_maintenance).where(_marks.table_id == table_id).values(**values))
