"""Column statistics, computed from the Arrow data while it is written.

    row group ──collect──> ColumnStats, …  ──merge──> of the whole file  ──encode──> JSON as in `add.stats`

Parquet footers are not used: Arrow's omit NaN, and those of all writers drop long strings. Computing minimum and
maximum here costs a few percent of the write. For files that Spark wrote, `footers` uses what their footers have.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from deltars.data.dictionaries import used_values
from deltars.data.write_target import WriteTarget
from deltars.protocol import LeafType, has_bounds, indexed_leaves
from deltars.protocol.properties import number_property
from deltars.protocol.row_tracking import materialized_names
from deltars.protocol.schema import PrimitiveType
from deltars.protocol.stats import STRING_PREFIX_LENGTH, encode_maximum, encode_minimum, stats_text

PREFIX_LENGTH = "delta.dataSkippingStringPrefixLength"
_EPOCH = datetime(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class ColumnStats:
    """Statistics of one column. Bounds are comparable values, or None: times as microseconds, dates as days."""

    null_count: int | None
    minimum: Any = None
    maximum: Any = None
    is_known: bool = True
    """Whether a bound of None means that the column has no values. If False, the bounds are unknown."""


class Statistics:
    """Collector of the statistics of a table's indexed columns."""

    def __init__(self, target: WriteTarget) -> None:
        indexed = indexed_leaves(target.schema, target.partition_columns, target.properties)
        leaves = [leaf for leaf in indexed if leaf[0][0] not in materialized_names(target.properties)]
        # The names that data files and the log use.
        names = (path for path, _ in target.schema.leaves())
        in_files = dict(zip(names, (path for path, _ in target.schema.leaves(physical=target.is_mapped)), strict=True))
        self.leaves = [(in_files[path], type_) for path, type_ in leaves]
        self._prefix_length = number_property(target.properties, PREFIX_LENGTH, STRING_PREFIX_LENGTH)

    def collect(self, rows: pa.Table) -> list[ColumnStats]:
        """Return one entry per indexed column, for rows in the schema of the data files."""
        return [_column_stats(_leaf(rows, path), type_) for path, type_ in self.leaves]

    def merge(self, parts: Sequence[Sequence[ColumnStats]]) -> list[ColumnStats]:
        return [_merged(column) for column in zip(*parts, strict=True)]

    def encode(self, columns: Sequence[ColumnStats], num_records: int | None = None) -> str:
        minima: dict[str, Any] = {}
        maxima: dict[str, Any] = {}
        null_counts: dict[str, Any] = {}
        for (path, type_), column in zip(self.leaves, columns, strict=True):
            _put(null_counts, path, column.null_count)
            minimum, maximum = _python_value(column.minimum, type_), _python_value(column.maximum, type_)
            _put(minima, path, encode_minimum(minimum, type_, self._prefix_length))
            _put(maxima, path, encode_maximum(maximum, type_, self._prefix_length))
        return stats_text(num_records, minima, maxima, null_counts)

    def encode_file(self, groups: Sequence[Sequence[ColumnStats]], num_records: int) -> tuple[str, list[str]]:
        """Return the statistics of a file, and those of each row group, which have no number of records."""
        of_groups = [self.encode(columns) for columns in groups]
        if len(groups) == 1:
            # The bounds are the same. The number of records is put before them.
            return f'{{"numRecords":{num_records},{of_groups[0][1:]}', of_groups
        return self.encode(self.merge(groups), num_records), of_groups


def _leaf(rows: pa.Table, path: Sequence[str]) -> pa.ChunkedArray:
    column = rows.column(path[0])
    return pc.struct_field(column, list(path[1:])) if len(path) > 1 else column


def _column_stats(column: pa.ChunkedArray, type_: LeafType) -> ColumnStats:
    nulls = column.null_count
    if not has_bounds(type_) or nulls == len(column):
        return ColumnStats(nulls)
    if types.is_floating(column.type):
        return _float_stats(column)
    if types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    elif types.is_date(column.type):
        column = column.cast(pa.int32())
    elif types.is_dictionary(column.type):
        column = used_values(column)
    bounds = pc.min_max(column)
    return ColumnStats(nulls, bounds["min"].as_py(), bounds["max"].as_py())


def _float_stats(column: pa.ChunkedArray) -> ColumnStats:
    """Return bounds in which NaN is the greatest number, and zero is -0.0 as minimum and 0.0 as maximum.

    The two zeros are equal here, but not for every reader.
    """
    nulls = column.null_count
    bounds = pc.min_max(column)
    minimum, maximum = bounds["min"].as_py(), bounds["max"].as_py()
    if pc.any(pc.is_nan(column)).as_py():
        maximum = float("nan")
    return ColumnStats(nulls, minimum or -0.0, maximum or 0.0)


def _merged(parts: Iterable[ColumnStats]) -> ColumnStats:
    parts = list(parts)
    counts = [part.null_count for part in parts if part.null_count is not None]
    null_count = sum(counts) if len(counts) == len(parts) else None
    if not all(part.is_known for part in parts):
        return ColumnStats(null_count, is_known=False)
    known = [part for part in parts if part.minimum is not None]
    return ColumnStats(
        null_count,
        min((part.minimum for part in known), key=_nan_last, default=None),
        max((part.maximum for part in known), key=_nan_last, default=None),
    )


def _nan_last(value: Any) -> tuple[bool, Any]:
    return value != value, value


def _python_value(bound: Any, type_: LeafType) -> Any:
    """Return the bound as a Python value, or None beyond Python's calendar: a missing bound excludes no file."""
    if bound is None or not isinstance(type_, PrimitiveType):
        return None
    try:
        match type_.name:
            case "timestamp":
                return (_EPOCH + timedelta(microseconds=bound)).replace(tzinfo=UTC)
            case "timestamp_ntz":
                return _EPOCH + timedelta(microseconds=bound)
            case "date":
                return date.fromordinal(_EPOCH.toordinal() + bound)
    except (OverflowError, ValueError):
        return None
    return bound


def _put(document: dict[str, Any], path: Sequence[str], value: Any) -> None:
    if value is None:
        return
    for name in path[:-1]:
        document = document.setdefault(name, {})
    document[path[-1]] = value
