"""What a vacuum may delete of a table, and what it must keep, by the catalog alone. Nothing is listed.

    versions ──── published longer ago than the retention ────┬──── kept: published later, or not published ────▶
                                                           horizon
A file goes if a version up to the horizon removed it, no later version added it again, and no tag needs it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec
import pyarrow as pa
from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    Text,
    and_,
    case,
    cast,
    exists,
    func,
    literal,
    null,
    or_,
    select,
    true,
)

from deltars.log.commit import NO_VERSION
from deltars.store.backends import Backend
from deltars.store.database import Database
from deltars.store.imports.table_hold import HELD, lock_row
from deltars.store.schema import (
    dl_add_files,
    dl_cdc_files,
    dl_mirror_log,
    dl_mirror_status,
    dl_remove_files,
    dl_table_versions,
)
from deltars.store.tags import pinned_versions
from deltars.store.vacuum_marks import VacuumMarks, condemn, finish, read_marks
from deltars.store.writers import AnnouncedWriter, announced_writers, withdraw_dead

TIMEOUT_S = 60.0
FOREVER = 2**62
"""Horizon after all versions."""

_FILES = pa.schema(
    [
        pa.field("path", pa.string()),
        pa.field("size", pa.int64()),
        pa.field("deletion_vector", pa.string()),
    ]
)

_add, _remove, _cdc = dl_add_files.c, dl_remove_files.c, dl_cdc_files.c
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Horizon:
    """Last version whose removals may be deleted, and what the table looked like when that was found."""

    version: int
    current_version: int
    published_version: int
    marks: VacuumMarks
    pins: dict[int, tuple[str, ...]]
    """Versions that tags need, with the names of the tags."""


@dataclass(frozen=True, slots=True)
class VacuumAmount:
    files: int = 0
    size_bytes: int = 0

    def __add__(self, other: VacuumAmount) -> VacuumAmount:
        return VacuumAmount(self.files + other.files, self.size_bytes + other.size_bytes)


@dataclass(frozen=True, slots=True)
class Removals:
    """What the catalog says about files that a vacuum may delete. Tables have `path`, `size` and `deletion_vector`."""

    horizon: Horizon
    removed: pa.Table
    """Data files removed up to the horizon, and not added again: since the last vacuum, or kept by it for a tag that
    is gone."""
    removed_vectors: pa.Table
    """Deletion vectors of which the same is true."""
    changes: pa.Table
    """Files of the change data feed up to the horizon since the last vacuum."""
    needed_vectors: pa.Table
    """Deletion vectors that versions after the horizon need. Empty if no vector was removed."""
    tagged: pa.Table
    """Data files that only tags need."""
    tagged_vectors: pa.Table
    """Deletion vectors that tags need."""
    odd_paths: Sequence[str]
    """Needed files whose path can be written in another way: absolute, percent-encoded, not normal."""
    after_horizon: VacuumAmount
    """What was removed after the horizon in published versions."""
    unpublished: VacuumAmount
    """What was removed in versions that are not published."""


class VacuumRows:
    """Reader and writer of what a vacuum needs of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._backend: Backend = database.backend

    # -- plan ------------------------------------------------------------------------------------------------------

    def plan(self, table_id: UUID, published_before_us: int) -> Removals:
        """Read what a vacuum may delete, all at one moment."""
        with self._database.read() as connection:
            horizon = self._horizon(connection, table_id, published_before_us)
            read = _PlanQueries(self._backend, connection, table_id, horizon)
            was_tagged, is_tagged = horizon.marks.kept_versions, horizon.pins
            vectors = pa.concat_tables([read.removed_vectors(), read.vectors_needed_by(was_tagged, but=is_tagged)])
            after, unpublished = read.kept()
            return Removals(
                horizon,
                removed=pa.concat_tables([read.removed(), read.needed_by(was_tagged, but=is_tagged)]),
                removed_vectors=vectors,
                changes=read.changes(),
                needed_vectors=read.needed_vectors() if vectors.num_rows else _FILES.empty_table(),
                tagged=read.needed_by(is_tagged),
                tagged_vectors=read.vectors_needed_by(is_tagged),
                odd_paths=read.odd_paths(),
                after_horizon=after,
                unpublished=unpublished,
            )

    def pinned_files(self, table_id: UUID) -> pa.Table:
        """Return the files that tags need of another table with the same directory."""
        with self._database.read() as connection:
            pins = pinned_versions(connection, table_id)
            horizon = Horizon(FOREVER, 0, 0, VacuumMarks(), pins)
            read = _PlanQueries(self._backend, connection, table_id, horizon)
            return read.live_in(pins)

    def living_writers(self, table_id: UUID, now_us: int) -> list[AnnouncedWriter]:
        """Return the announced writers of a table that are not dead."""
        with self._database.read() as connection:
            return [writer for writer in announced_writers(connection, table_id) if not writer.is_dead(now_us)]

    def _horizon(self, connection: Connection, table_id: UUID, published_before_us: int) -> Horizon:
        """Find the last version such that it and all versions before it were published before a moment."""
        versions, log, status = dl_table_versions.c, dl_mirror_log.c, dl_mirror_status.c
        published: int = connection.execute(
            select(status.published_version).where(status.table_id == table_id)
        ).scalar_one()
        current = connection.scalar(select(func.max(versions.version)).where(versions.table_id == table_id))
        marks = read_marks(connection, table_id)
        # The later of both times: a clock that was behind at the publication must not make a version look old. An
        # imported version without a commit file counts from its import.
        published_at = self._backend.greatest(func.coalesce(log.published_at, versions.commit_ts), versions.commit_ts)
        first_kept = connection.scalar(
            select(func.min(versions.version))
            .outerjoin(dl_mirror_log, and_(log.table_id == versions.table_id, log.version == versions.version))
            .where(versions.table_id == table_id, versions.version > marks.vacuumed_version)
            .where(versions.version <= published, published_at > published_before_us)
        )
        last = published if first_kept is None else first_kept - 1
        return Horizon(
            max(last, marks.vacuumed_version),
            NO_VERSION if current is None else current,
            published,
            marks,
            pinned_versions(connection, table_id),
        )

    # -- delete ----------------------------------------------------------------------------------------------------

    def condemn(
        self, table_id: UUID, horizon: Horizon, *, now_us: int, full: bool
    ) -> tuple[list[str], list[str], list[AnnouncedWriter]] | None:
        """Claim the planned files, in one short transaction. Return None if the plan is outdated.

        Return the paths, and the vectors, that versions committed since the plan added, and the living writers.
        """
        with self._database.write(TIMEOUT_S) as connection:
            # The row first, like every transaction that takes both.
            row = lock_row(connection, self._database, table_id)
            self._backend.lock_registry(connection)
            is_same = read_marks(connection, table_id) == horizon.marks
            if row.protocol_version == HELD or not is_same or row.current_version < horizon.current_version:
                return None
            if pinned_versions(connection, table_id) != horizon.pins:
                return None
            condemn(connection, table_id, horizon.version)
            since = select(_add.path, cast(_add.deletion_vector, Text)).where(
                _add.table_id == table_id, _add.version > horizon.current_version
            )
            added = connection.execute(since).all()
            writers = withdraw_dead(connection, table_id, now_us) if full else []
        return [path for path, _ in added], [vector for _, vector in added if vector is not None], writers

    def finish(self, table_id: UUID, horizon: Horizon, now_us: int) -> None:
        """Record that everything condemned is deleted."""
        before = horizon.marks
        with self._database.write(TIMEOUT_S) as connection:
            finish(connection, table_id, before, horizon.version, horizon.pins, now_us)


class _PlanQueries:
    """Queries of one plan, in one transaction."""

    def __init__(self, backend: Backend, connection: Connection, table_id: UUID, horizon: Horizon) -> None:
        self._backend = backend
        self._connection = connection
        self._table_id = table_id
        self._horizon = horizon

    def removed(self) -> pa.Table:
        return self._fetch(
            _selected(_remove.path, func.max(_remove.size), null())
            .where(self._is_mine(_remove), self._is_new(_remove), self._is_gone(_remove.path))
            .group_by(_remove.path)
        )

    def removed_vectors(self) -> pa.Table:
        return self._fetch(
            _selected(_remove.path, _remove.size, _remove.deletion_vector).where(
                self._is_mine(_remove), self._is_new(_remove), _remove.dv_id != ""
            )
        )

    def needed_vectors(self) -> pa.Table:
        return self._fetch(
            _selected(_add.path, _add.size, _add.deletion_vector).where(
                self._is_mine(_add), _add.dv_id != "", self._is_needed()
            )
        )

    def changes(self) -> pa.Table:
        is_data = exists(select(_add.ord).where(self._is_mine(_add), _add.path == _cdc.path))
        return self._fetch(
            _selected(_cdc.path, _cdc.size, null()).where(self._is_mine(_cdc), self._is_new(_cdc), ~is_data)
        )

    def needed_by(self, versions: Collection[int], *, but: Collection[int] = ()) -> pa.Table:
        """Return the files that one of these versions needs, with their vectors, if both were removed by now."""
        gone = and_(self._is_gone(_add.path), _add.removed_version <= self._horizon.version)
        return self._of_versions(set(versions) - set(but), gone)

    def vectors_needed_by(self, versions: Collection[int], *, but: Collection[int] = ()) -> pa.Table:
        """Return the files with vectors that one of these versions needs; the files may have other vectors by now."""
        gone = and_(_add.dv_id != "", _add.removed_version <= self._horizon.version)
        return self._of_versions(set(versions) - set(but), gone)

    def live_in(self, versions: Collection[int]) -> pa.Table:
        return self._of_versions(versions, true())

    def _of_versions(self, versions: Collection[int], condition: ColumnElement[bool]) -> pa.Table:
        if not versions:
            return _FILES.empty_table()
        document = _encode([{"version": version} for version in sorted(versions)]).decode()
        some = self._backend.rows(literal(document, Text), [dl_add_files.c.version])
        is_live = or_(_add.removed_version.is_(None), _add.removed_version > some.c.version)
        return self._fetch(
            _selected(_add.path, _add.size, _add.deletion_vector)
            .join(some, and_(_add.version <= some.c.version, is_live))
            .where(self._is_mine(_add), condition)
            .distinct()
        )

    def odd_paths(self) -> list[str]:
        is_odd = or_(*(_add.path.contains(mark, autoescape=True) for mark in ("%", ":/", "./", "//")))
        is_odd = or_(is_odd, _add.path.like("/%"))
        query = select(_add.path).where(self._is_mine(_add), self._is_needed(), is_odd)
        return list(self._connection.scalars(query))

    def kept(self) -> tuple[VacuumAmount, VacuumAmount]:
        is_published = case((_remove.version <= self._horizon.published_version, 1), else_=0)
        query = (
            select(is_published, func.count(), func.sum(_remove.size))
            .where(self._is_mine(_remove), _remove.version > self._horizon.version)
            .group_by(is_published)
        )
        found = {row[0]: VacuumAmount(row[1], int(row[2] or 0)) for row in self._connection.execute(query)}
        return found.get(1, VacuumAmount()), found.get(0, VacuumAmount())

    def _is_mine(self, columns: Any) -> ColumnElement[bool]:
        mine: ColumnElement[bool] = columns.table_id == self._table_id
        return mine

    def _is_new(self, columns: Any) -> ColumnElement[bool]:
        """Return the condition that a version came after the last vacuum, up to the horizon."""
        return and_(columns.version > self._horizon.marks.vacuumed_version, columns.version <= self._horizon.version)

    def _is_gone(self, path: ColumnElement[str]) -> ColumnElement[bool]:
        """Return the condition that no version after the horizon needs a data file."""
        other = dl_add_files.alias("other")
        is_needed = or_(other.c.removed_version.is_(None), other.c.removed_version > self._horizon.version)
        return ~exists(select(other.c.ord).where(self._is_mine(other.c), other.c.path == path, is_needed))

    def _is_needed(self) -> ColumnElement[bool]:
        return or_(_add.removed_version.is_(None), _add.removed_version > self._horizon.version)

    def _fetch(self, query: Select[Any]) -> pa.Table:
        return pa.Table.from_batches(self._backend.batches(self._connection, query, _FILES), _FILES)


def _selected(path: ColumnElement[str], size: ColumnElement[int], vector: ColumnElement[Any]) -> Select[Any]:
    columns: list[ColumnElement[Any]] = [
        path.label("path"),
        size.label("size"),
        cast(vector, Text).label("deletion_vector"),
    ]
    return select(*columns)
