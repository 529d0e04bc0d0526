"""What only Spark can do with the right result, though Arrow can evaluate the statement itself.

rules of the table     the expressions of generated columns, defaults and CHECK constraints are evaluated too
the time zone          Arrow computes in UTC, Spark in the session's zone
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from deltars.data.arrow_change import expressions_of
from deltars.data.computed_columns import ComputedColumns
from deltars.data.conditions import conditions_of
from deltars.data.new_rows import resolved
from deltars.data.read_schema import arrow_schema
from deltars.data.row_change import Delete, Expression, Merge, Update
from deltars.data.zones import UTC, depends_on_zone, has_moments
from deltars.errors import PredicateError, ValidationError
from deltars.protocol import Metadata, StructType
from deltars.protocol.column_rules import default_of, generation_of, has_rules, row_rules


def is_spark_only(error: ValidationError) -> bool:
    """Return whether an error says that a Spark session is needed, and there is none."""
    return error.message.startswith("only Spark can ")


def only_with_spark(reason: str | None) -> ValidationError:
    """Return the error for what needs a Spark session, if there is none."""
    return ValidationError(
        f"only Spark can do this: {reason}", hint="Start a Spark session first, or pass one as spark=…."
    )


def spark_only(
    statement: Delete | Update | Merge, metadata: Metadata, source: StructType | None, zone: str
) -> str | None:
    """Return why only Spark has the right result; None if Arrow has it too. `zone` is that of the session."""
    frames = list(_written(statement, metadata.schema))
    if has_rules(metadata.schema) or any(row_rules(metadata)):
        for names in frames:
            try:
                _try_rules(metadata, names)
            except PredicateError as error:
                return error.message
    if zone not in UTC and _depends_on_zone(statement, metadata, source, frames):
        return f"it depends on the session's time zone {zone}"
    return None


def _written(statement: Delete | Update | Merge, schema: StructType) -> Iterator[list[str]]:
    """Yield the columns of each frame that the statement writes. The table computes those that are missing."""
    match statement:
        case Update(values):
            yield _of_updated(values, schema)
        case Merge():
            for clause in statement.clauses:
                if clause.action == "update":
                    yield list(schema.names) if clause.is_source else _of_updated(clause.values, schema)
                elif clause.action == "insert":
                    yield [resolved(name, schema).path[0] for name in clause.values]


def _of_updated(values: Mapping[str, Expression], schema: StructType) -> list[str]:
    return [field.name for field in schema.fields if generation_of(field) is None or field.name in values]


def _try_rules(metadata: Metadata, names: list[str]) -> None:
    """Evaluate the rules without rows. What only Spark can compute fails."""
    schema = metadata.schema
    present = StructType(tuple(field for field in schema.fields if field.name in names))
    rows = pa.RecordBatch.from_pylist([], schema=arrow_schema(present))
    if has_rules(schema):
        rows = ComputedColumns(names, schema).add_to(rows)
    else:
        rows = pa.RecordBatch.from_pylist([], schema=arrow_schema(schema))
    for condition in conditions_of(metadata, names):
        condition.mask_for(schema)(rows)


def _depends_on_zone(
    statement: Delete | Update | Merge, metadata: Metadata, source: StructType | None, frames: list[list[str]]
) -> bool:
    """Return whether a condition or a value may have another result in another time zone."""
    schema = metadata.schema
    sides = (schema, source or StructType())
    texts = [str(sql) for sql in expressions_of(statement)]
    if frames:
        texts += [sql for _, sql in row_rules(metadata)]
        texts += [sql for field in schema.fields if (sql := generation_of(field)) is not None]
    for written in frames:
        texts += [
            sql for field in schema.fields if field.name not in written and (sql := default_of(field)) is not None
        ]
    if any(depends_on_zone(text, *sides) for text in texts):
        return True
    return any(_converts_moments(*assigned, schema, source) for assigned in _assigned(statement))


def _assigned(statement: Delete | Update | Merge) -> Iterator[tuple[Mapping[str, Expression], bool]]:
    """Yield the assignments, each with whether they are the source's columns as they are."""
    if isinstance(statement, Update):
        yield statement.values, False
    elif isinstance(statement, Merge):
        yield from ((clause.values, clause.is_source) for clause in statement.clauses)


def _converts_moments(
    values: Mapping[str, Expression], is_source: bool, schema: StructType, source: StructType | None
) -> bool:
    """Return whether a value may change its type from or to a timestamp. A date is a midnight, but where?"""
    if not is_source or source is None:
        columns = {resolved(name, schema).path[0] for name, sql in values.items() if sql != "NULL"}
        return any(has_moments(schema[column]) for column in columns)
    given = {field.name.lower(): field for field in source.fields}
    pairs = ((field, given[field.name.lower()]) for field in schema.fields)
    return any(one.type != other.type and (has_moments(one) or has_moments(other)) for one, other in pairs)
