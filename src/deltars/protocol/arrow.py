"""Conversion between Delta's and Arrow's schemas.

Each Delta type has one Arrow type. From Arrow, every type that Delta can hold without loss is accepted: unsigned
integers become the next larger signed type, dictionaries become the type of their values. Extension types are refused
unless their storage has the same meaning: a period or a UUID is not the number or the bytes that hold it.
"""

from __future__ import annotations

import pyarrow as pa

from deltars.errors import ValidationError
from deltars.protocol.schema import (
    COLUMN_ID,
    MAX_DECIMAL_PRECISION,
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)

PARQUET_FIELD_ID = b"PARQUET:field_id"

_TO_ARROW: dict[str, pa.DataType] = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
    # As in Parquet: the encoded value, and the dictionary of its keys.
    "variant": pa.struct([pa.field("metadata", pa.binary(), False), pa.field("value", pa.binary(), False)]),
}

_FROM_ARROW: dict[pa.DataType, str] = {
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.uint8(): "short",
    pa.uint16(): "integer",
    pa.uint32(): "long",
    pa.uint64(): "decimal(20,0)",
    pa.float16(): "float",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.string_view(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.binary_view(): "binary",
    pa.date32(): "date",
    pa.date64(): "date",
    pa.null(): "void",
}

_SAME_AS_STORAGE = frozenset({"arrow.json", "arrow.fixed_shape_tensor", "arrow.parquet.variant", "parquet.variant"})
"""Extension types whose storage is the value: a text, a list, an encoded variant."""

_LISTS = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)


def schema_to_arrow(schema: StructType, *, physical: bool = False) -> pa.Schema:
    """Return the Arrow schema. `physical`: with the column names of data files, which column mapping changes."""
    return pa.schema([_field_to_arrow(column, physical) for column in schema.fields])


def type_to_arrow(type_: DataType, *, physical: bool = False) -> pa.DataType:
    match type_:
        case PrimitiveType():
            if type_.is_decimal:
                return pa.decimal128(type_.precision, type_.scale)
            if type_.name not in _TO_ARROW:
                raise ValidationError(f"Arrow has no type for {type_}")
            return _TO_ARROW[type_.name]
        case ArrayType():
            return pa.list_(_arrow_field("element", type_.element_type, type_.contains_null, physical))
        case MapType():
            return pa.map_(
                _arrow_field("key", type_.key_type, False, physical),
                _arrow_field("value", type_.value_type, type_.value_contains_null, physical),
            )
        case StructType():
            return pa.struct([_field_to_arrow(column, physical) for column in type_.fields])


def schema_from_arrow(schema: pa.Schema) -> StructType:
    return StructType(tuple(_field_from_arrow(column, ()) for column in schema))


def _field_to_arrow(column: StructField, physical: bool) -> pa.Field:
    column_id = column.metadata.get(COLUMN_ID)
    field = _arrow_field(column.physical_name if physical else column.name, column.type, column.nullable, physical)
    return field if column_id is None else field.with_metadata({PARQUET_FIELD_ID: str(column_id).encode()})


def _arrow_field(name: str, type_: DataType, nullable: bool, physical: bool) -> pa.Field:
    arrow_type = type_to_arrow(type_, physical=physical)
    if pa.types.is_null(arrow_type) and not nullable:
        raise ValidationError(f"{name} is of type void, which is always null: it cannot be NOT NULL")
    return pa.field(name, arrow_type, nullable)


def _field_from_arrow(column: pa.Field, parents: tuple[str, ...]) -> StructField:
    return StructField(column.name, _type_from_arrow(column.type, (*parents, column.name)), column.nullable)


def _type_from_arrow(type_: pa.DataType, path: tuple[str, ...]) -> DataType:
    types = pa.types
    if type_ in _FROM_ARROW:
        return PrimitiveType(_FROM_ARROW[type_])
    if types.is_timestamp(type_):
        return PrimitiveType("timestamp_ntz" if type_.tz is None else "timestamp")
    if types.is_decimal(type_):
        return _decimal_from_arrow(type_, path)
    if types.is_fixed_size_binary(type_):
        return PrimitiveType("binary")
    if types.is_map(type_):
        key = _type_from_arrow(type_.key_type, (*path, "key"))
        value = _type_from_arrow(type_.item_type, (*path, "value"))
        return MapType(key, value, type_.item_field.nullable)
    if any(is_list(type_) for is_list in _LISTS):
        element = type_.value_field
        return ArrayType(_type_from_arrow(element.type, (*path, "element")), element.nullable)
    if types.is_struct(type_):
        return StructType(tuple(_field_from_arrow(column, path) for column in type_))
    if types.is_dictionary(type_) or types.is_run_end_encoded(type_):
        return _type_from_arrow(type_.value_type, path)
    if isinstance(type_, pa.BaseExtensionType) and type_.extension_name in _SAME_AS_STORAGE:
        return _type_from_arrow(type_.storage_type, path)
    hint = "Cast the column to a number, a string or a timestamp first, or drop it."
    if isinstance(type_, pa.BaseExtensionType):
        hint = f"Cast the column to text, or to {type_.storage_type}, which holds its values, first; or drop it."
    raise ValidationError(
        f"Delta has no type for Arrow's {type_} (column {'.'.join(path)})",
        field=".".join(path),
        hint=hint,
    )


def _decimal_from_arrow(type_: pa.DataType, path: tuple[str, ...]) -> PrimitiveType:
    # A negative scale adds zeros before the decimal point, a scale above the precision adds zeros after it.
    scale = max(type_.scale, 0)
    precision = max(type_.precision - min(type_.scale, 0), scale)
    if precision > MAX_DECIMAL_PRECISION:
        raise ValidationError(
            f"Arrow's {type_} needs {precision} digits, Delta's decimal has at most {MAX_DECIMAL_PRECISION} "
            f"(column {'.'.join(path)})"
        )
    return PrimitiveType.decimal(precision, scale)
