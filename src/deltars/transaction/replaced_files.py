"""Find the live files that a write replaces: by a condition, or by the partitions that were written."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from deltars.data.write_target import WrittenFile
from deltars.log.pruning import Pruner
from deltars.predicate import (
    Column,
    In,
    IsNull,
    Predicate,
    Unknown,
    columns_of,
    conjunction,
    disjunction,
    leaves_of,
    negation,
)
from deltars.protocol import Metadata, parse_partition_value
from deltars.transaction.staged_table import StagedTable
from deltars.transaction.view import View

MANY_PARTITIONS = 100


def of_written_partitions(
    view: View, table: StagedTable, metadata: Metadata, written: Sequence[WrittenFile]
) -> pa.Table:
    """Return the live files of the partitions that were written."""
    if not metadata.partition_columns:
        return view.files(table, None)
    partitions = {_partition(file.add.partition_values, metadata) for file in written}
    found = view.files(table, _of_partitions(partitions, metadata))
    # The condition keeps files in doubt. Only files of a written partition may be replaced.
    texts = found["partition_values"].to_pylist()
    return found.filter(
        pa.array([_partition(msgspec.json.decode(text), metadata) in partitions for text in texts], pa.bool_())
    )


def possibly_unmatched(files: pa.Table, predicate: Predicate, metadata: Metadata) -> pa.Table:
    """Return the files that may hold rows that do not match: all, unless partition values decide the condition.

    Their other rows must be written again.
    """
    partition = set(metadata.partition_columns)
    is_decided = all(column.path[0] in partition for column in columns_of(predicate)) and not any(
        isinstance(leaf, Unknown) for leaf in leaves_of(predicate)
    )
    return files.filter(Pruner(negation(predicate), metadata).keep(files)) if is_decided else files


def _partition(values: Mapping[str, str | None], metadata: Metadata) -> tuple[Any, ...]:
    """Return a partition's values parsed, because one moment can be written in two ways."""
    fields = {field.name: field for field in metadata.schema.fields}
    columns = [fields[name] for name in metadata.partition_columns]
    parsed = (parse_partition_value(values.get(field.physical_name), field.type) for field in columns)
    # Use one object for every NaN: NaN equals nothing, but tuples compare by identity first.
    return tuple(math.nan if isinstance(value, float) and math.isnan(value) else value for value in parsed)


def _of_partitions(partitions: Collection[tuple[Any, ...]], metadata: Metadata) -> Predicate:
    """Return a condition for rows of these partitions.

    For many partitions of several columns it also matches combinations of their values.
    """
    fields = {field.name: field for field in metadata.schema.fields}
    columns = [Column((name,), fields[name].type) for name in metadata.partition_columns]
    is_one = len(columns) == 1 or len(partitions) > MANY_PARTITIONS
    each = [partitions] if partitions and is_one else [[one] for one in partitions]
    return disjunction(
        conjunction(_one_of(column, values) for column, values in zip(columns, zip(*some, strict=True), strict=True))
        for some in each
    )


def _one_of(column: Column, values: Collection[Any]) -> Predicate:
    found = sorted({value for value in values if value is not None}, key=str)
    parts: list[Predicate] = [In(column, tuple(found))] if found else []
    return disjunction([*parts, *([IsNull(column)] if None in values else [])])
