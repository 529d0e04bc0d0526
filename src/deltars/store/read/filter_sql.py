"""A filter of files in SQL: its conditions, and the index that finds the files.

FileFilter ──conditions_of──▶ FileConditions: columns of `dl_add_files`, parameters, and a search by index
    └ shape_of_filter ──▶ what filters with the same SQL have in common
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Literal, NamedTuple

from sqlalchemy import BigInteger, ColumnElement, Integer, Text, bindparam, select

from deltars.store.backends import Backend
from deltars.store.file_search import Search, by_partition, by_range, partitions_of
from deltars.store.read.file_conditions import EVERY, NONE, File, Parameter, as_sql, shape_of
from deltars.store.read.pruning import FileFilter
from deltars.store.schema import dl_tables


class FileConditions(NamedTuple):
    """A `FileFilter` in SQL."""

    is_current: ColumnElement[bool]
    """True if the files' bounds have the layout of the snapshot's metadata."""
    whole: ColumnElement[bool]
    partition: ColumnElement[bool]
    is_by_partition: bool
    certain: ColumnElement[bool]
    search: Search | None
    """Search by index for the live files that `whole` keeps."""
    equals_if: Callable[[ColumnElement[bool], ColumnElement[Any], ColumnElement[Any]], ColumnElement[bool]]
    """`Backend.equals_if` of the database."""


def conditions_of(
    asked: FileFilter, backend: Backend, parameters: Callable[[str], Parameter], most: int | None = None
) -> FileConditions:
    """Return a filter in SQL. `parameters` returns the parameters of one of its conditions.

    With `most`, files are looked up in the range index only if these are few: all are found before the first is read.
    """
    file = File(backend)
    return FileConditions(
        layout_is(table_id_of(backend), bindparam("layout", type_=BigInteger())),
        as_sql(asked.whole, file, parameters("whole")),
        as_sql(asked.partition, file, parameters("partition")),
        asked.is_by_partition,
        as_sql(asked.certain, file, parameters("certain")),
        _search(asked, backend, parameters, most),
        backend.equals_if,
    )


def _search(
    asked: FileFilter, backend: Backend, parameters: Callable[[str], Parameter], most: int | None
) -> Search | None:
    way = way_of(asked, backend)
    if way == "range":
        return by_range(backend, bindparam("probes", type_=Text()), most)
    if way == "partition":
        slot = bindparam("slot", type_=Integer())
        partitions = partitions_of(backend, slot)
        file = File(backend, backend.document(partitions.c.value))
        return by_partition(backend, partitions, as_sql(asked.partition, file, parameters("partition")), slot)
    return None


def way_of(asked: FileFilter, backend: Backend) -> Literal["range", "partition"] | None:
    """Return the index that finds the files; None if there is none."""
    if not backend.has_file_indexes:
        return None
    if asked.intervals is not None:
        return "range"
    return None if asked.partition in (EVERY, NONE) else "partition"


def shape_of_filter(asked: FileFilter) -> Hashable:
    """Return what filters with the same SQL have in common."""
    conditions = map(shape_of, (asked.whole, asked.partition, asked.certain))
    return asked.is_by_partition, asked.intervals is None, *conditions


def table_id_of(backend: Backend) -> ColumnElement[Any]:
    """Return the parameter for the table."""
    return backend.id_of(bindparam("table", type_=Text()))


def layout_is(table_id: Any, metadata_version: Any) -> ColumnElement[bool]:
    """Return the condition that the bounds of a table's files have the layout of this metadata version."""
    current = select(dl_tables.c.metadata_version).where(dl_tables.c.table_id == table_id).scalar_subquery()
    is_current: ColumnElement[bool] = current == metadata_version
    return is_current
