"""Conversion of Arrow data to a table's schema.

    the data's columns ──by name, ignoring case──> the table's columns
        missing          null, unless the column is NOT NULL
        another type     cast if no value changes: other sizes of integers, integers as decimals or floats,
                         float as double, decimals of another precision, other units of time, other encodings
        extra            refused

A cast that depends on the values (a long into an integer column) is checked value by value. Data that does not fit
raises a `SchemaMismatch` that shows both schemas.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from deltars.data.nested import with_values
from deltars.errors import SchemaMismatch, ValidationError
from deltars.protocol import schema_from_arrow

ColumnPath: TypeAlias = tuple[str, ...]

_INTEGER_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}

_CASTS = (
    (types.is_integer, types.is_integer),
    (types.is_integer, types.is_floating),
    (types.is_decimal, types.is_decimal),
    (types.is_date, types.is_date),
    (types.is_large_string, types.is_string),
    (types.is_string_view, types.is_string),
    (types.is_large_binary, types.is_binary),
    (types.is_binary_view, types.is_binary),
    (types.is_fixed_size_binary, types.is_binary),
)


def check_fits(data: pa.Schema, table: pa.Schema) -> None:
    """Raise SchemaMismatch if data of this schema cannot fit the table. Only types are checked, not values."""
    if not data.equals(table):
        fit(empty_batch(data), table)


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch without rows that fits as data of this schema does. Arrow cannot make some empty dictionaries."""
    return pa.RecordBatch.from_pylist([], schema=pa.schema([_decoded_field(field) for field in schema]))


def _decoded_field(field: pa.Field) -> pa.Field:
    kind = field.type
    if types.is_dictionary(kind):
        return field.with_type(kind.value_type)
    if types.is_struct(kind):
        return field.with_type(pa.struct([_decoded_field(child) for child in kind]))
    if types.is_list(kind):
        return field.with_type(pa.list_(_decoded_field(kind.value_field)))
    if types.is_large_list(kind):
        return field.with_type(pa.large_list(_decoded_field(kind.value_field)))
    if types.is_fixed_size_list(kind):
        return field.with_type(pa.list_(_decoded_field(kind.value_field), kind.list_size))
    return field


def fit(batch: pa.RecordBatch, table: pa.Schema) -> pa.RecordBatch:
    """Return the batch with the table's columns, in their order and types. Its schema is `file_schema(table)`."""
    wanted = file_schema(table)
    if batch.schema.equals(table) and table.equals(wanted):
        # The same types, and no NOT NULL to check. Only ids of columns may be missing.
        return pa.RecordBatch.from_arrays(batch.columns, schema=wanted)
    try:
        columns = _fit_fields(batch.schema, batch.columns, table, (), batch.num_rows)
    except _MisfitError as misfit:
        raise SchemaMismatch(
            f"the data does not fit the table: {misfit}\n  data:  {_shown(batch.schema)}\n  table: {_shown(table)}",
            field=misfit.column,
            hint=misfit.hint,
        ) from misfit.__cause__
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


def file_schema(table: pa.Schema) -> pa.Schema:
    """Return the schema of data files, in which every field is nullable.

    `fit` enforces NOT NULL instead. In Arrow, a required field inside a null struct is null, and the Parquet writer
    would report that as a violation.
    """
    return pa.schema([_optional_field(field) for field in table])


_TWICE = "Rename or drop one of them."
_NOT_NULL = "Fill it in the frame, or allow nulls in the table: table.alter.set_nullable(…)."
_EXTRA = "Rename or drop it in the frame, or add it to the table: merge_schema=True."
_TYPE = "Cast it in the frame, or replace the table's schema: mode='overwrite', overwrite_schema=True."


class _MisfitError(Exception):
    def __init__(self, path: ColumnPath, reason: str, hint: str) -> None:
        self.column = ".".join(path)
        self.hint = hint
        super().__init__(f"column {self.column} {reason}")


def _fit_fields(
    source: Sequence[pa.Field] | pa.Schema,
    arrays: Sequence[pa.Array],
    targets: Iterable[pa.Field],
    path: ColumnPath,
    length: int,
    is_valid: pa.Array | None = None,
) -> list[pa.Array]:
    """`is_valid` marks the rows in which the surrounding struct is not null. NOT NULL applies only to those."""
    by_name: dict[str, pa.Array] = {}
    for field, array in zip(source, arrays, strict=True):
        if field.name.lower() in by_name:
            raise _MisfitError((*path, field.name), "is in the data twice (column names ignore case)", _TWICE)
        by_name[field.name.lower()] = array
    fitted = []
    for target in targets:
        column = (*path, target.name)
        array = by_name.pop(target.name.lower(), None)
        if array is None and not target.nullable:
            raise _MisfitError(column, "is NOT NULL and missing from the data", _NOT_NULL)
        array = pa.nulls(length) if array is None else array
        fitted.append(_fit(array, target.type, column))
        if not target.nullable and _null_count(array, is_valid):
            raise _MisfitError(column, "is NOT NULL and has nulls in the data", _NOT_NULL)
    if by_name:
        extra = next(field.name for field in source if field.name.lower() in by_name)
        raise _MisfitError((*path, extra), "is not in the table", _EXTRA)
    return fitted


def _fit(array: pa.Array, target: pa.DataType, path: ColumnPath) -> pa.Array:
    if types.is_dictionary(target) and array.type == target:
        return array
    array = _plain(array)
    if types.is_null(array.type):
        return pa.nulls(len(array), _optional(target))
    if types.is_struct(target) and types.is_struct(array.type):
        return _fit_struct(array, target, path)
    if types.is_map(target) and types.is_map(array.type):
        return _fit_map(array, target, path)
    if types.is_list(target) and types.is_list(array.type):
        return _fit_list(array, target, path)
    if array.type == target:
        return array
    if not _can_cast(array.type, target):
        found, wanted = _type_name(array.type), _type_name(target)
        raise _MisfitError(path, f"is {found} in the data, {wanted} in the table", _TYPE)
    try:
        return array.cast(target)
    except pa.ArrowInvalid as error:
        raise _MisfitError(path, f"holds a value that does not fit {_type_name(target)}: {error}", _TYPE) from error


def _plain(array: pa.Array) -> pa.Array:
    """Return the same values in Arrow's plain layout."""
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if types.is_dictionary(array.type):
        if types.is_string_view(array.type.value_type):
            # Polars' Categorical and Enum. Arrow decodes no dictionary of views.
            return array.dictionary.cast(pa.large_string()).take(array.indices)
        return array.dictionary_decode()
    if types.is_run_end_encoded(array.type):
        return pc.run_end_decode(array)
    if (
        types.is_large_list(array.type)
        or types.is_fixed_size_list(array.type)
        or types.is_list_view(array.type)
        or types.is_large_list_view(array.type)
    ):
        return array.cast(pa.list_(array.type.value_field))
    return array


def _fit_struct(array: pa.StructArray, target: pa.StructType, path: ColumnPath) -> pa.Array:
    arrays = [array.field(index) for index in range(array.type.num_fields)]
    children = _fit_fields(list(array.type), arrays, list(target), path, len(array), array.is_valid())
    return pa.StructArray.from_arrays(children, fields=list(_optional(target)), mask=array.is_null())


def _fit_list(array: pa.ListArray, target: pa.ListType, path: ColumnPath) -> pa.Array:
    fitted = with_values(array, _optional(target), lambda child, part: _fit(child, target.value_type, (*path, part)))
    if not target.value_field.nullable and fitted.flatten().null_count:
        raise _MisfitError((*path, "element"), "is NOT NULL and has nulls in the data", _NOT_NULL)
    return fitted


def _fit_map(array: pa.MapArray, target: pa.MapType, path: ColumnPath) -> pa.Array:
    wanted = {"key": target.key_type, "value": target.item_type}
    fitted = with_values(array, _optional(target), lambda child, part: _fit(child, wanted[part], (*path, part)))
    if not target.item_field.nullable and fitted.items.null_count:
        raise _MisfitError((*path, "value"), "is NOT NULL and has nulls in the data", _NOT_NULL)
    return fitted


def _null_count(array: pa.Array, is_valid: pa.Array | None) -> int:
    if not array.null_count or is_valid is None:
        return int(array.null_count)
    return int(array.filter(is_valid).null_count)


def _can_cast(source: pa.DataType, target: pa.DataType) -> bool:
    if types.is_integer(source) and types.is_decimal(target):
        return bool(target.precision - target.scale >= _INTEGER_DIGITS[source.bit_width])
    if types.is_floating(source) and types.is_floating(target):
        return bool(source.bit_width <= target.bit_width)
    if types.is_timestamp(source) and types.is_timestamp(target):
        return (source.tz is None) == (target.tz is None)
    return any(is_source(source) and is_target(target) for is_source, is_target in _CASTS)


def _optional_field(field: pa.Field) -> pa.Field:
    return field.with_type(_optional(field.type)).with_nullable(True)


def _optional(kind: pa.DataType) -> pa.DataType:
    if types.is_struct(kind):
        return pa.struct([_optional_field(field) for field in kind])
    if types.is_list(kind):
        return pa.list_(_optional_field(kind.value_field))
    if types.is_map(kind):
        # Arrow's map type does not allow nullable keys.
        return pa.map_(_optional_field(kind.key_field).with_nullable(False), _optional_field(kind.item_field))
    return kind


def _type_name(kind: pa.DataType) -> str:
    return _shown(pa.schema([pa.field("", kind)])).removeprefix("struct<: ").removesuffix(">")


def _shown(schema: pa.Schema) -> str:
    try:
        return str(schema_from_arrow(schema))
    except ValidationError:
        return f"struct<{', '.join(f'{field.name}: {field.type}' for field in schema)}>"
