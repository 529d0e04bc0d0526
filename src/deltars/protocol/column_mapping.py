"""Column mapping: data files identify a column by id and physical name, so that it can be renamed.

delta.columnMapping.mode    none    files use the names of the schema
                            name    files use physical names
                            id      files use field ids (and have physical names too)

Every column of a mapped table has a physical name and an id that is never reused (`maxColumnId` is the last one
assigned). Statistics and partition values in the log use physical names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal, TypeAlias, cast
from uuid import uuid4

import msgspec

from deltars.errors import ValidationError, brief
from deltars.protocol.actions import Metadata
from deltars.protocol.schema import COLUMN_ID, PHYSICAL_NAME, ArrayType, DataType, MapType, StructField, StructType

COLUMN_MAPPING = "delta.columnMapping.mode"
MAX_COLUMN_ID = "delta.columnMapping.maxColumnId"

ColumnMapping: TypeAlias = Literal["none", "name", "id"]
"""How data files identify columns: by name, by physical name, or by field id."""


def column_mapping(properties: Mapping[str, str]) -> ColumnMapping:
    mode = properties.get(COLUMN_MAPPING, "none").lower()
    if mode not in ("none", "name", "id"):
        raise ValidationError(
            f"the property {COLUMN_MAPPING} must be none, name or id, got {brief(mode)}", field=COLUMN_MAPPING
        )
    return cast(ColumnMapping, mode)


def mapped(metadata: Metadata, before: Metadata | None = None) -> Metadata:
    """Return the metadata with an id and a physical name for each column, if the mode needs them.

    `before` is the metadata that it replaces; None for a new table, whose columns are all new.
    """
    mode = column_mapping(metadata.configuration)
    earlier: ColumnMapping = mode if before is None else column_mapping(before.configuration)
    if mode != earlier and (earlier, mode) != ("none", "name"):
        raise ValidationError(
            f"the property {COLUMN_MAPPING} cannot change from {earlier} to {mode}: only from none to name",
            field=COLUMN_MAPPING,
        )
    if mode == "none":
        return metadata if before is not None else _with_schema(metadata, unmapped(metadata.schema))
    # Existing files of a table without mapping use the column names, so these become the physical names.
    keeps_names = earlier == "none"
    known = metadata.schema if before is not None else unmapped(metadata.schema)
    numbers = [int(field.metadata[COLUMN_ID]) for _, field in known.walk() if COLUMN_ID in field.metadata]
    last = max([0, *numbers, *(_last_id(one) for one in (metadata, before) if one is not None)])

    def assign(field: StructField) -> StructField:
        nonlocal last
        if COLUMN_ID in field.metadata and PHYSICAL_NAME in field.metadata:
            return field
        last += COLUMN_ID not in field.metadata
        name = field.name if keeps_names else f"col-{uuid4()}"
        return replace(field, metadata={COLUMN_ID: last, PHYSICAL_NAME: name, **field.metadata})

    schema = each_field(known, assign)
    configuration = {**metadata.configuration, MAX_COLUMN_ID: str(last)}
    return msgspec.structs.replace(_with_schema(metadata, schema), configuration=configuration)


def unmapped(schema: StructType) -> StructType:
    """Return the schema without ids and physical names."""
    return each_field(schema, _unmapped)


def check_mapping(metadata: Metadata) -> str | None:
    """Return why data files do not identify each column, or None if they do.

    In a mapped table every column needs a unique id and a physical name that is unique among its siblings.
    """
    _last_id(metadata)
    if column_mapping(metadata.configuration) == "none":
        return None
    ids: set[int] = set()
    names: set[tuple[str, ...]] = set()
    for path, field in metadata.schema.walk():
        column = ".".join(path)
        number, name = field.metadata.get(COLUMN_ID), field.metadata.get(PHYSICAL_NAME)
        if not isinstance(number, int) or isinstance(number, bool) or not isinstance(name, str) or not name:
            return f"the column {column} has no id and physical name, although column mapping is enabled"
        if number in ids or (*path[:-1], name) in names:
            return f"the column {column} has the id {number} and physical name {name!r}; another column has one of them"
        ids.add(number)
        names.add((*path[:-1], name))
    return None


def _last_id(metadata: Metadata) -> int:
    text = metadata.configuration.get(MAX_COLUMN_ID, "0")
    if not text.isdecimal():
        raise ValidationError(f"the property {MAX_COLUMN_ID} must be a number, got {brief(text)}", field=MAX_COLUMN_ID)
    return int(text)


def _unmapped(field: StructField) -> StructField:
    kept = {key: value for key, value in field.metadata.items() if key not in (COLUMN_ID, PHYSICAL_NAME)}
    return replace(field, metadata=kept)


def _with_schema(metadata: Metadata, schema: StructType) -> Metadata:
    if schema == metadata.schema:
        return metadata
    return msgspec.structs.replace(metadata, schema_string=schema.to_json())


def each_field(schema: StructType, change: Callable[[StructField], StructField]) -> StructType:
    """Return the schema with `change` applied to every field, parents before children, also in arrays and maps."""
    return StructType(tuple(_changed(change(field), change) for field in schema.fields))


def _changed(field: StructField, change: Callable[[StructField], StructField]) -> StructField:
    return replace(field, type=_inside(field.type, change))


def _inside(type_: DataType, change: Callable[[StructField], StructField]) -> DataType:
    match type_:
        case StructType():
            return each_field(type_, change)
        case ArrayType():
            return replace(type_, element_type=_inside(type_.element_type, change))
        case MapType():
            return replace(
                type_, key_type=_inside(type_.key_type, change), value_type=_inside(type_.value_type, change)
            )
        case _:
            return type_


def value_names(schema: StructType, partition_columns: tuple[str, ...], is_mapped: bool) -> tuple[str, ...]:
    """Return the partition columns' names in `partitionValues` and in directories of data files."""
    return tuple(schema[name].physical_name for name in partition_columns) if is_mapped else partition_columns
