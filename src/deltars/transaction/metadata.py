"""Changes of a table's metadata, as checked actions. The protocol is raised where a change needs a new feature."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from typing import Any
from uuid import uuid4

import msgspec

from deltars.errors import ValidationError, brief
from deltars.log.table_state import tracks_rows
from deltars.predicate import check_column_rules
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
from deltars.protocol.column_mapping import COLUMN_MAPPING
from deltars.protocol.identity import check_identities
from deltars.protocol.properties import check_property
from deltars.protocol.row_tracking import MATERIALIZED, materialized_names

IN_COMMIT_TIMESTAMPS = "delta.enableInCommitTimestamps"


def metadata_actions(protocol: Protocol, metadata: Metadata) -> list[Action]:
    """Return new metadata as actions, preceded by a new protocol if the metadata needs one."""
    return [*raised(protocol, needed_features(metadata.schema, metadata.configuration)), metadata]


def raised(protocol: Protocol, needed: Set[str]) -> list[Action]:
    """Return the protocol with the needed features, as an action; nothing if it has them."""
    had = supported_features(protocol)
    return [] if needed <= had else [protocol_of(had | needed)]


def check_new_metadata(metadata: Metadata) -> Metadata:
    """Check the metadata of a new table, and return it with its columns mapped."""
    return _checked(with_row_id_columns(mapped(metadata)))


def with_row_id_columns(metadata: Metadata) -> Metadata:
    """Name the columns that keep the ids of rows which move to another file, if the table tracks rows."""
    if not tracks_rows(metadata) or materialized_names(metadata.configuration):
        return metadata
    names = {MATERIALIZED[0]: f"_row-id-col-{uuid4()}", MATERIALIZED[1]: f"_row-commit-version-col-{uuid4()}"}
    return msgspec.structs.replace(metadata, configuration={**metadata.configuration, **names})


def changed(metadata: Metadata, **fields: Any) -> Metadata:
    """Return the metadata with other fields. A new schema is checked."""
    after = with_row_id_columns(mapped(msgspec.structs.replace(metadata, **fields), before=metadata))
    return after if after.schema_string == metadata.schema_string else _checked(after)


def check_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties with their names as Delta spells them; raise `ValidationError` for one that is invalid."""
    if not isinstance(properties, Mapping):
        raise ValidationError(
            f"properties are a dict, got {brief(properties)}",
            field="properties",
            hint='Write {"delta.appendOnly": "true"}.',
        )
    checked: dict[str, str] = {}
    for key, value in properties.items():
        if not all(isinstance(text, str) for text in (key, value)):
            raise ValidationError(
                f"the property {key!r} has the value {value!r}: keys and values must be strings",
                field="properties",
                hint='Write {"delta.appendOnly": "true"}.',
            )
        if "\0" in key + value:
            raise ValidationError(f"the property {key!r} has the character U+0000", field="properties")
        name, text = check_property(key, value)
        if name in checked:
            raise ValidationError(f"duplicate property {name}", field=name)
        checked[name] = text
    if checked.get(IN_COMMIT_TIMESTAMPS, "true").lower() != "true":
        refuse_to_turn_off([IN_COMMIT_TIMESTAMPS])
    return checked


def refuse_to_turn_off(names: Collection[str]) -> None:
    """Raise if the properties that are unset or set to false include one that deltars needs."""
    if IN_COMMIT_TIMESTAMPS in names:
        raise ValidationError(
            f"{IN_COMMIT_TIMESTAMPS} cannot be turned off: readers of the mirror need it for time travel",
            field=IN_COMMIT_TIMESTAMPS,
        )


def partition_column(schema: StructType, name: str, *, hint: str | None = None) -> str:
    """Return a partition column's name as the schema spells it. Upper and lower case are the same."""
    for field in schema.fields:
        if field.name.lower() == name.lower():
            return field.name
    raise ValidationError(
        f"there is no column {name!r} to partition by; the columns are {', '.join(schema.names)}",
        field="partition_by",
        hint=hint,
    )


def _checked(metadata: Metadata) -> Metadata:
    is_mapped = column_mapping(metadata.configuration) != "none"
    problem = check_schema(metadata.schema, metadata.partition_columns, column_mapping=is_mapped)
    if problem is not None:
        hint = f"Rename the column, or create the table with properties={{'{COLUMN_MAPPING}': 'name'}}."
        raise ValidationError(problem, field="schema", hint=hint if COLUMN_MAPPING in problem else None)
    check_column_rules(metadata.schema)
    check_identities(metadata.schema, metadata.partition_columns, metadata.configuration)
    return metadata
