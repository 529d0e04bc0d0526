"""Who uses a column: constraints, generated columns, partitions, clustering, and properties that name columns.

A change of a column that an expression uses is refused, as in Delta. Names in properties follow the column.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from deltars.errors import ValidationError
from deltars.log.bounds import RANGE_COLUMN
from deltars.predicate import columns_used
from deltars.protocol import DomainMetadata, Metadata, column_mapping
from deltars.protocol.char_varchar import CHAR_VARCHAR
from deltars.protocol.clustering import clustering_columns
from deltars.protocol.column_path import ColumnPath, begins_with, path_text, paths_in
from deltars.protocol.column_rules import generation_of, row_rules

STATS_COLUMNS = "delta.dataSkippingStatsColumns"


def refuse_used(metadata: Metadata, path: ColumnPath, verb: str) -> None:
    """Raise `ValidationError` if an expression of the table uses a column, a part of it, or the struct around it."""
    for name, sql, hint in _expressions(metadata):
        for used in columns_used(sql, metadata.schema):
            if begins_with(used, path) or begins_with(path, used):
                column = path_text(path)
                raise ValidationError(
                    f"the column {column} cannot be {verb}: {name} uses it: {sql}", field=column, hint=hint
                )


def refuse_dropping(metadata: Metadata, domains: Mapping[str, DomainMetadata], path: ColumnPath) -> None:
    """Raise `ValidationError` if the table is laid out by a column."""
    column = path_text(path)
    if path[0] in metadata.partition_columns:
        raise ValidationError(
            f"the column {column} cannot be dropped: the table is partitioned by it",
            field=column,
            hint="Write the rows again: tx.write(table, rows, mode='overwrite', overwrite_schema=True).",
        )
    is_mapped = column_mapping(metadata.configuration) != "none"
    for clustered in clustering_columns(domains, metadata.schema, is_mapped=is_mapped):
        if begins_with(clustered, path):
            raise ValidationError(
                f"the column {column} cannot be dropped: the table is clustered by {path_text(clustered)}",
                field=column,
                hint="Choose other clustering columns first: table.alter.cluster_by(columns), or cluster_by(None).",
            )


def renamed(metadata: Metadata, path: ColumnPath, name: str) -> Metadata:
    """Return the metadata with another name of a column wherever it is named, except in the schema."""
    after = (*path[:-1], name)

    def follow(other: ColumnPath) -> ColumnPath:
        return (*after, *other[len(path) :]) if begins_with(other, path) else other

    configuration = dict(metadata.configuration)
    if STATS_COLUMNS in configuration:
        configuration[STATS_COLUMNS] = ",".join(
            path_text(follow(one)) for one in paths_in(configuration[STATS_COLUMNS])
        )
    if _range_column(metadata) is not None:
        configuration[RANGE_COLUMN] = ".".join(follow(_range_column(metadata) or ()))
    partition_columns = [follow((column,))[0] for column in metadata.partition_columns]
    return msgspec.structs.replace(metadata, configuration=configuration, partition_columns=partition_columns)


def dropped(metadata: Metadata, path: ColumnPath) -> Metadata:
    """Return the metadata without properties that name a column, except in the schema."""
    configuration = dict(metadata.configuration)
    if STATS_COLUMNS in configuration:
        kept = [one for one in paths_in(configuration.pop(STATS_COLUMNS)) if not begins_with(one, path)]
        if kept:
            configuration[STATS_COLUMNS] = ",".join(map(path_text, kept))
    if begins_with(_range_column(metadata) or (), path):
        del configuration[RANGE_COLUMN]
    return msgspec.structs.replace(metadata, configuration=configuration)


def limits_in(metadata: Metadata, column: str) -> str | None:
    """Return a top-level column's type with the length limits of its strings, if there are any."""
    return metadata.schema[column].metadata.get(CHAR_VARCHAR)


def _range_column(metadata: Metadata) -> ColumnPath | None:
    named = metadata.configuration.get(RANGE_COLUMN)
    return next((path for path, _ in metadata.schema.leaves() if ".".join(path) == named), None)


def _expressions(metadata: Metadata) -> Iterator[tuple[str, str, str | None]]:
    """Yield the table's expressions: a name for errors, the SQL, and what to do about it."""
    for name, sql in row_rules(metadata):
        constraint = name.removeprefix("the constraint ")
        hint = f"Drop it first: table.alter.drop_constraint({constraint!r})." if constraint != name else None
        yield name, sql, hint
    for field in metadata.schema.fields:
        expression = generation_of(field)
        if expression is not None:
            yield f"the generated column {field.name}", expression, f"Drop the column {field.name} first."
