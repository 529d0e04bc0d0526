"""A table's schema grown by the data's: what `merge_schema` allows.

a column, or a field of a struct, that the table does not have     is added, nullable
byte, short, integer                                               the wider of the two: their files read alike
anything else that differs                                         stays as the table has it
"""

from __future__ import annotations

from dataclasses import replace

from deltars.protocol.schema import ArrayType, DataType, MapType, PrimitiveType, StructField, StructType

_WIDENING = tuple(map(PrimitiveType, ("byte", "short", "integer")))


def merged(table: StructType, data: StructType) -> StructType:
    """The table's schema with what the data brings; the table's own spelling of names stays."""
    new = {field.name.lower(): field for field in data.fields}
    fields = []
    for field in table.fields:
        other = new.pop(field.name.lower(), None)
        fields.append(field if other is None else replace(field, type=_merged(field.type, other.type)))
    return StructType((*fields, *(_added(field) for field in new.values())))


def _merged(table: DataType, data: DataType) -> DataType:
    match table, data:
        case StructType(), StructType():
            return merged(table, data)
        case ArrayType(), ArrayType():
            return replace(table, element_type=_merged(table.element_type, data.element_type))
        case MapType(), MapType():
            return replace(
                table,
                key_type=_merged(table.key_type, data.key_type),
                value_type=_merged(table.value_type, data.value_type),
            )
        case PrimitiveType(), PrimitiveType() if table in _WIDENING and data in _WIDENING:
            return max(table, data, key=_WIDENING.index)
        case _:
            return table


def _added(field: StructField) -> StructField:
    return replace(field, nullable=True)
