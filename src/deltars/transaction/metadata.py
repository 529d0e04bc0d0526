"""Changes of a table's metadata, as actions: with the protocol raised where they need a feature it does not list."""

from __future__ import annotations

from typing import Any

import msgspec

from deltars.errors import ValidationError
from deltars.predicate import check_column_rules
from deltars.protocol import (
    Action,
    Metadata,
    Protocol,
    check_schema,
    column_mapping,
    mapped,
    needed_features,
    protocol_of,
    supported_features,
)


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
    check_column_rules(metadata.schema)
    return metadata
