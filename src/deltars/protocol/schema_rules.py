"""Validation of schemas and partition columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from deltars.protocol.partition_values import can_partition_by
from deltars.protocol.schema import StructType

# Parquet tools cannot handle these characters. Column mapping gives the files other names.
_NEEDS_COLUMN_MAPPING = frozenset(" ,;{}()\n\t=")


def check_schema(
    schema: StructType, partition_columns: Sequence[str] = (), *, column_mapping: bool = False
) -> str | None:
    """Return why a table cannot have this schema and partitioning, or None if it can."""
    return _check_names(schema, column_mapping) or _check_partitioning(schema, partition_columns)


def _check_names(schema: StructType, column_mapping: bool) -> str | None:
    paths = [path for path, _ in schema.walk()]
    for path in paths:
        if not path[-1]:
            return f"a column has no name: {'.'.join(path)!r}"
        if not column_mapping and not _NEEDS_COLUMN_MAPPING.isdisjoint(path[-1]):
            return (
                f"the column name {path[-1]!r} has a character that needs column mapping "
                "(delta.columnMapping.mode = name): one of space , ; { } ( ) = tab newline"
            )
    count = Counter(tuple(name.lower() for name in path) for path in paths)
    for path in paths:
        if count[tuple(name.lower() for name in path)] > 1:
            return f"duplicate column {'.'.join(path)} (upper and lower case are the same): rename or drop one"
    return None


def _check_partitioning(schema: StructType, partition_columns: Sequence[str]) -> str | None:
    for name, times in Counter(partition_columns).items():
        if times > 1:
            return f"duplicate partition column {name}"
        if name not in schema:
            return f"the partition column {name} is not a column of the schema: {', '.join(schema.names)}"
        if not can_partition_by(schema[name].type):
            return f"a table cannot be partitioned by the column {name} of type {schema[name].type}"
    if partition_columns and len(partition_columns) == len(schema.fields):
        return "a table needs at least one column that is not a partition column"
    return None
