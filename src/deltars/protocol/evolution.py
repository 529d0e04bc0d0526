"""Schema evolution: the changes that `merge_schema` allows.

a column, or a field of a struct, that the table lacks             is added, nullable
byte, short, integer                                               the wider type; Parquet stores them the same way
delta.enableTypeWidening: also long, float to double, decimals     the wider type, recorded in the column's metadata
with more digits, date to timestamp_ntz
any other difference                                               the table's type is kept
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from deltars.protocol.schema import (
    MAX_DECIMAL_PRECISION,
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)

TYPE_CHANGES = "delta.typeChanges"

_ALIKE = ("byte", "short", "integer")
_WIDENING = (("byte", "short", "integer", "long"), ("float", "double"), ("date", "timestamp_ntz"))

TypeChange: TypeAlias = dict[str, str]
"""An entry of `delta.typeChanges`."""


def merged(table: StructType, data: StructType, *, can_widen: bool = False) -> StructType:
    """Return the table's schema extended by the data's. Names keep the table's spelling.

    `can_widen`: whether the table lists the feature `typeWidening`, so that its readers support it.
    """
    new = {field.name.lower(): field for field in data.fields}
    fields = []
    for field in table.fields:
        other = new.pop(field.name.lower(), None)
        fields.append(field if other is None else _merged_field(field, other.type, can_widen))
    return StructType((*fields, *(replace(field, nullable=True) for field in new.values())))


def _merged_field(field: StructField, data: DataType, can_widen: bool) -> StructField:
    type_, changes = _merged(field.type, data, can_widen)
    if not changes:
        return replace(field, type=type_)
    noted = [*field.metadata.get(TYPE_CHANGES, ()), *changes]
    return replace(field, type=type_, metadata={**field.metadata, TYPE_CHANGES: noted})


def _merged(table: DataType, data: DataType, can_widen: bool) -> tuple[DataType, list[TypeChange]]:
    """Return the merged type and its type changes. The enclosing field records those inside arrays and maps."""
    match table, data:
        case StructType(), StructType():
            return merged(table, data, can_widen=can_widen), []
        case ArrayType(), ArrayType():
            element, changes = _merged(table.element_type, data.element_type, can_widen)
            return replace(table, element_type=element), inside("element", changes)
        case MapType(), MapType():
            key, key_changes = _merged(table.key_type, data.key_type, can_widen)
            value, value_changes = _merged(table.value_type, data.value_type, can_widen)
            return replace(table, key_type=key, value_type=value), inside("key", key_changes) + inside(
                "value", value_changes
            )
        case PrimitiveType(), PrimitiveType():
            wider = _wider(table, data, can_widen)
            is_noted = can_widen and wider != table
            return wider, [{"fromType": table.name, "toType": wider.name}] if is_noted else []
        case _:
            return table, []


def inside(part: str, changes: Sequence[TypeChange]) -> list[TypeChange]:
    """Return the changes of a type as changes of the array or the map that it is a part of."""
    paths = (".".join(filter(None, (part, change.get("fieldPath")))) for change in changes)
    return [{**change, "fieldPath": path} for change, path in zip(changes, paths, strict=True)]


def _wider(table: PrimitiveType, data: PrimitiveType, can_widen: bool) -> PrimitiveType:
    for order in _WIDENING if can_widen else (_ALIKE,):
        if table.name in order and data.name in order:
            return max(table, data, key=lambda type_: order.index(type_.name))
    if can_widen and table.is_decimal and data.is_decimal:
        scale = max(table.scale, data.scale)
        digits = max(table.precision - table.scale, data.precision - data.scale)
        return PrimitiveType.decimal(digits + scale, scale) if digits + scale <= MAX_DECIMAL_PRECISION else table
    return table


def unreadable_column(before: StructType, now: StructType) -> str | None:
    """Return a column of `now` that files of the schema `before` hold in another type, or None if there is none.

    Columns are compared by their physical names, so a renamed one is the same. One that is new or was dropped is not
    compared: old rows have null in its place, or are read without it.
    """
    known = {field.physical_name: field for field in before.fields}
    for field in now.fields:
        old = known.get(field.physical_name)
        if old is not None and not _reads_as(old.type, field.type):
            return field.name
    return None


def _reads_as(before: DataType, now: DataType) -> bool:
    match before, now:
        case StructType(), StructType():
            return unreadable_column(before, now) is None
        case ArrayType(), ArrayType():
            return _reads_as(before.element_type, now.element_type)
        case MapType(), MapType():
            return _reads_as(before.key_type, now.key_type) and _reads_as(before.value_type, now.value_type)
        case PrimitiveType(), PrimitiveType():
            return before == now or _wider(before, now, can_widen=True) == now
    return False
