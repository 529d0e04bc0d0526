"""Check of a table's hash chain: which versions differ from what was sealed, and columns that no seal covers.

    seals      every link follows from the one before it, and no version is missing
    rows       every version has the rows that were sealed, and so has the rest of the expired versions
    columns    `removed_version`, `mins` and `maxs` change after a commit: they must follow from the sealed rows
    registry   the table's row names the newest version, metadata and protocol

All of it is read in one snapshot of the database. Nothing is changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from math import nan
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Connection, and_, func, or_, select, union_all

from deltars.log.bounds import Bounds
from deltars.store.chain.content import ROWS_AT_ONCE, contents_of, remainder_of
from deltars.store.chain.seal import BASE, OPEN, VERSIONS_AT_ONCE, Head, head_of, next_link
from deltars.store.database import Database
from deltars.store.imports.table_hold import HELD
from deltars.store.read.version_header import first_version, newest_metadata
from deltars.store.schema import (
    dl_add_files,
    dl_chain,
    dl_metadata_updates,
    dl_protocol_updates,
    dl_remove_files,
    dl_table_versions,
    dl_tables,
)

MOST_FILES = 1_000
"""Files that are reported at most."""

_chain, _files, _tables = dl_chain.c, dl_add_files.c, dl_tables.c


class ChainProblem(NamedTuple):
    place: str
    detail: str
    is_unfinished_expiry: bool = False


@dataclass(frozen=True, slots=True)
class ChainCheck:
    head: Head
    num_unsealed: int
    """Committed versions that are not sealed yet."""
    problems: tuple[ChainProblem, ...]


def check_chain(database: Database, table_id: UUID, known: Head | None = None) -> ChainCheck | None:
    """Check the chain of a table, and that it continues a head that was known before. Return None without a chain."""
    with database.read() as connection:
        return check_rows(connection, table_id, known)


def check_rows(connection: Connection, table_id: UUID, known: Head | None = None) -> ChainCheck | None:
    """Check the chain of a table as this connection sees it."""
    head = head_of(connection, table_id)
    if head is None:
        return None
    table = connection.execute(select(dl_tables).where(_tables.table_id == table_id)).one()
    check = _Check(connection, table_id, first_version(connection, table_id), head, table)
    found = [*check.seals(), *check.rows(), *check.base(), *check.ends(), *check.bounds(), *check.registry()]
    if known is not None:
        found += check.continues(known)
    return ChainCheck(head, max(0, table.current_version - head.version), tuple(found))


class _Check:
    def __init__(self, connection: Connection, table_id: UUID, first: int, head: Head, table: Any) -> None:
        self._connection = connection
        self._table_id = table_id
        self._first = first
        self._head = head
        self._table = table
        query = select(_chain.version, _chain.content, _chain.link).where(_chain.table_id == table_id)
        self._seals: dict[int, tuple[str, str]] = {
            row.version: (row.content, row.link) for row in connection.execute(query.order_by(_chain.version))
        }

    def seals(self) -> Iterator[ChainProblem]:
        # The first seal may be of a later version than the first: the chain was turned on then.
        before: str | None = None
        begin = max(self._first, min(version for version in self._seals if version > BASE))
        for version, (content, link) in self._seals.items():
            if version >= begin and link != next_link(self._table_id, before, version, content):
                yield _at(version, "its seal, or the seal before it, was changed")
            before = link if version > BASE else None
        for version in range(begin, self._head.version + 1):
            if version not in self._seals:
                yield _at(version, "its seal is missing")

    def rows(self) -> Iterator[ChainProblem]:
        begin = max(self._first, 0)
        for start in range(begin, self._head.version + 1, VERSIONS_AT_ONCE):
            last = min(start + VERSIONS_AT_ONCE - 1, self._head.version)
            found = contents_of(self._connection, self._table_id, start, last)
            for version in range(start, last + 1):
                sealed = self._seals.get(version)
                if version not in found:
                    yield _at(version, "its rows are missing in the catalog")
                elif sealed is not None and sealed[0] != found[version]:
                    yield _at(version, "its rows in the catalog were changed after they were sealed")

    def base(self) -> Iterator[ChainProblem]:
        if self._first <= 0:
            return
        place = f"versions before {self._first}"
        content, _ = self._seals.get(BASE, (None, ""))
        if content is None:
            yield ChainProblem(place, "the seal of what an expiry left of them is missing")
        elif content == OPEN:
            detail = "an expiry is running or was interrupted, so they cannot be checked; run it again"
            yield ChainProblem(place, detail, is_unfinished_expiry=True)
        elif content != remainder_of(self._connection, self._table_id, self._first):
            yield ChainProblem(place, "their rows in the catalog were changed after they were sealed")

    def ends(self) -> Iterator[ChainProblem]:
        """Find files whose `removed_version` is not that of the action that ended them."""
        ends = union_all(
            *(
                select(table.c.path, table.c.dv_id, table.c.version).where(table.c.table_id == self._table_id)
                for table in (dl_remove_files, dl_add_files)
            )
        ).subquery("ends")
        expected = func.min(ends.c.version)
        key = (_files.version, _files.ord, _files.path, _files.removed_version)
        is_same = and_(ends.c.path == _files.path, ends.c.dv_id == _files.dv_id, ends.c.version > _files.version)
        query = (
            select(*key, expected.label("expected"))
            .outerjoin(ends, is_same)
            # The actions that ended other files may be expired; the base covers them.
            .where(_files.table_id == self._table_id)
            .where(or_(_files.removed_version.is_(None), _files.removed_version >= self._first))
            .group_by(*key)
            .having(_files.removed_version.is_distinct_from(expected))
            .order_by(_files.version, _files.ord)
            .limit(MOST_FILES)
        )
        for row in self._connection.execute(query):
            said, meant = (_version(version) for version in (row.removed_version, row.expected))
            yield ChainProblem(row.path, f"removed_version is {said}, and {meant} by the actions")

    def bounds(self) -> Iterator[ChainProblem]:
        """Find files whose bounds do not follow from their statistics: queries would skip rows."""
        _, metadata = newest_metadata(self._connection, self._table_id)
        if metadata is None:
            return
        bounds = Bounds(metadata.schema, metadata.partition_columns, metadata.configuration)
        columns = (_files.path, _files.stats, _files.mins, _files.maxs)
        query = select(*columns).where(_files.table_id == self._table_id).order_by(_files.version, _files.ord)
        count = 0
        for row in self._connection.execute(query.execution_options(yield_per=ROWS_AT_ONCE)):
            mins, maxs, meant = _numbers(row.mins), _numbers(row.maxs), bounds.of(row.stats)
            is_unknown = (mins, maxs) == (bounds.unknown.mins, bounds.unknown.maxs)
            if not is_unknown and not (_begins(meant.mins, mins) and _begins(meant.maxs, maxs)):
                yield ChainProblem(row.path, "mins and maxs do not follow from its statistics")
                count += 1
            if count == MOST_FILES:
                return

    def registry(self) -> Iterator[ChainProblem]:
        newest = {
            name: self._connection.scalar(
                select(func.max(table.c.version)).where(
                    table.c.table_id == self._table_id, table.c.version <= self._table.current_version
                )
            )
            for name, table in (
                ("current_version", dl_table_versions),
                ("metadata_version", dl_metadata_updates),
                ("protocol_version", dl_protocol_updates),
            )
        }
        if self._table.current_version < self._head.version:
            newest["current_version"] = self._head.version
        for name, version in newest.items():
            said = self._table._mapping[name]
            if said not in (version, HELD):
                yield ChainProblem("dl_tables", f"{name} is {said}, and {version} by the history")

    def continues(self, known: Head) -> Iterator[ChainProblem]:
        sealed = self._seals.get(known.version)
        if sealed is not None and sealed[1] != known.link:
            yield _at(known.version, "the history up to it is another one than when the given head was printed")
        elif sealed is None and known.version > self._head.version:
            yield _at(known.version, f"the given head is newer than the chain, which ends with {self._head.version}")
        elif sealed is None:
            yield _at(known.version, "the given head is expired, so it cannot be compared; give a newer one")


def _at(version: int, detail: str) -> ChainProblem:
    return ChainProblem(f"version {version}", detail)


def _version(version: int | None) -> str:
    return "none" if version is None else str(version)


def _numbers(stored: str | list[float | None] | None) -> list[float | None] | None:
    """Return bounds as they are stored: SQLite has them as JSON."""
    if not isinstance(stored, str):
        return stored
    try:
        return list(json.loads(stored))
    except (TypeError, ValueError):
        return [nan]


def _begins(whole: list[float | None] | None, stored: list[float | None] | None) -> bool:
    """Return whether the stored numbers are the first ones: files may be older than the table's last columns."""
    if whole is None or stored is None:
        return not whole and not stored
    return list(whole[: len(stored)]) == list(stored)
