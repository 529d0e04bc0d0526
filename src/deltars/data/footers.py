"""Description of data files that Spark's Parquet writer wrote, from their footers.

    a finished file ──footer──> rows, row groups, bounds, null counts ──> WrittenFile, as from `writer`

Spark's Parquet writer includes NaN in the maximum, as `statistics` does. It drops the statistics of a column chunk with
very long strings; then the file has no bounds for that column. The Parquet columns of an array or a map do not say how
many of the arrays or maps are null.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from decimal import Context, Decimal
from typing import Any

import pyarrow.parquet as pq

from deltars.data.statistics import ColumnStats, Statistics
from deltars.data.write_target import WriteTarget, WrittenFile
from deltars.log.commit import RowGroup
from deltars.protocol import (
    AddFile,
    ArrayType,
    DataType,
    LeafType,
    MapType,
    PrimitiveType,
    StructType,
    has_bounds,
    path_to_uri,
)

_EXACT = Context(prec=76)


class Footers:
    """Reader of footers, for unpartitioned data files with the table's columns in the table's order."""

    def __init__(self, target: WriteTarget) -> None:
        self._statistics = Statistics(target)
        positions = dict(_positions(target.schema))
        self._columns = [(positions.get(path), type_) for path, type_ in self._statistics.leaves]

    def describe(self, file: str, path: str) -> WrittenFile | None:
        """Describe a file that will be at `path` below the table's root. Return None if it has no rows."""
        uri = path_to_uri(path)
        footer = pq.read_metadata(file)
        if not footer.num_rows:
            return None
        status = os.stat(file)
        groups = [footer.row_group(ordinal) for ordinal in range(footer.num_row_groups)]
        stats = [[self._column_stats(group, at, type_) for at, type_ in self._columns] for group in groups]
        add = AddFile(
            path=uri,
            partition_values={},
            size=status.st_size,
            modification_time=status.st_mtime_ns // 1_000_000,
            data_change=True,
            stats=self._statistics.encode(self._statistics.merge(stats), footer.num_rows),
        )
        return WrittenFile(
            add,
            tuple(
                row_group(uri, ordinal, group, self._statistics.encode(columns))
                for ordinal, (group, columns) in enumerate(zip(groups, stats, strict=True))
            ),
        )

    def _column_stats(self, group: pq.RowGroupMetaData, at: int | None, type_: LeafType) -> ColumnStats:
        found = None if at is None else group.column(at).statistics
        if found is None:
            return ColumnStats(None, is_known=False)
        nulls = found.null_count if found.has_null_count else None
        if not has_bounds(type_) or nulls == group.num_rows:
            return ColumnStats(nulls)
        assert isinstance(type_, PrimitiveType)
        minimum, maximum = _bounds(found, type_)
        return ColumnStats(nulls, minimum, maximum, is_known=minimum is not None)


def row_group(path: str, ordinal: int, metadata: pq.RowGroupMetaData, stats: str) -> RowGroup:
    columns = [metadata.column(index) for index in range(metadata.num_columns)]
    first = columns[0]
    return RowGroup(
        path=path,
        ordinal=ordinal,
        num_rows=metadata.num_rows,
        total_bytes=sum(column.total_compressed_size for column in columns),
        file_offset=first.dictionary_page_offset if first.has_dictionary_page else first.data_page_offset,
        stats=stats,
    )


def _positions(schema: StructType) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield the table's leaf columns with their index in the file. Names would be ambiguous: they may contain dots."""
    at = 0
    for path, type_ in schema.leaves():
        if isinstance(type_, PrimitiveType):
            yield path, at
        at += _width(type_)


def _width(type_: DataType) -> int:
    match type_:
        case StructType():
            return sum(_width(field.type) for field in type_.fields)
        case ArrayType():
            return _width(type_.element_type)
        case MapType():
            return _width(type_.key_type) + _width(type_.value_type)
        case _:
            return 1


def _bounds(found: pq.Statistics, type_: PrimitiveType) -> tuple[Any, Any]:
    if not found.has_min_max:
        return None, None
    minimum, maximum = found.min_raw, found.max_raw
    if type_.name == "string":
        try:
            return minimum.decode(), maximum.decode()
        except UnicodeDecodeError:
            # Spark's strings are bytes, and may not be valid UTF-8.
            return None, None
    if type_.is_decimal:
        return _decimal(minimum, type_), _decimal(maximum, type_)
    if type_.name in ("float", "double"):
        # -0.0 and 0.0 are equal here, but not for every reader: the bounds include both.
        return minimum or -0.0, maximum or 0.0
    return minimum, maximum


def _decimal(raw: int | bytes, type_: PrimitiveType) -> Decimal:
    unscaled = raw if isinstance(raw, int) else int.from_bytes(raw, "big", signed=True)
    return Decimal(unscaled).scaleb(-type_.scale, _EXACT)
