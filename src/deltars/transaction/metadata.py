"""Changes of a table's metadata, as actions: with the protocol raised where they need a feature it does not list."""

from __future__ import annotations

from typing import Any

import msgspec

from deltars.errors import PredicateError, ValidationError
from deltars.predicate import check_expression, parse_default
from deltars.protocol import (
    Action,
    Metadata,
    Protocol,
    StructType,
    check_schema,
    column_mapping,
    mapped,
    needed_features,
    protocol_of,
    supported_features,
)
from deltars.protocol.column_rules import default_of, generation_of, invariant_of, limits_of


def metadata_actions(protocol: Protocol, metadata: Metadata) -> list[Action]:
    """New metadata, after the protocol that it needs."""
    had = supported_features(protocol)
    needed = needed_features(metadata.schema, metadata.configuration)
    return [metadata] if needed <= had else [protocol_of(had | needed), metadata]


def begun(metadata: Metadata) -> Metadata:
    """The metadata of a new table, checked."""
    return _checked(mapped(metadata))


def changed(metadata: Metadata, **fields: Any) -> Metadata:
    """The metadata with other fields, checked where they are its schema."""
    after = mapped(msgspec.structs.replace(metadata, **fields), before=metadata)
    return after if after.schema_string == metadata.schema_string else _checked(after)


def _checked(metadata: Metadata) -> Metadata:
    is_mapped = column_mapping(metadata.configuration) != "none"
    problem = check_schema(metadata.schema, metadata.partition_columns, column_mapping=is_mapped)
    if problem is not None:
        raise ValidationError(problem, field="schema")
    _check_rules(metadata.schema)
    return metadata


def _check_rules(schema: StructType) -> None:
    """What is said of columns beyond their types can be understood; what only Spark can compute is left to Spark."""
    for path, field in schema.walk():
        if len(path) > 1 and (generation_of(field) is not None or default_of(field) is not None):
            raise ValidationError(
                f"{'.'.join(path)} cannot be generated or have a default: only whole columns can", field=".".join(path)
            )
    generated = {field.name for field in schema.fields if generation_of(field) is not None}
    for field in schema.fields:
        expression, default = generation_of(field), default_of(field)
        invariant_of(field)
        limits_of(field)
        if expression is not None:
            others = check_expression(expression, schema) & generated
            if others:
                raise ValidationError(
                    f"the generated column {field.name} is made of {', '.join(sorted(others))}, generated too: "
                    f"{expression}",
                    field=field.name,
                )
        if default is not None and expression is not None:
            raise ValidationError(f"the generated column {field.name} cannot have a default", field=field.name)
        if default is not None:
            try:
                parse_default(default, field.type)
            except PredicateError as error:
                # Without a position it is right, and only Spark can compute it; then it may at least name no column.
                if error.position is not None:
                    raise
                check_expression(default, StructType(), is_steady=False)
