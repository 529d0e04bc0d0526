"""Conversion of a data file's columns to the table's current schema.

the file's field ──by name, physical name or field id──> the table's column
    not in the file      null, inside structs, lists and maps too
    a narrower type      widened
    an older encoding    INT96, milliseconds, text without its annotation: converted to the schema's type
    anything else        an error that names the column and both types
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import types

from deltars.data.nested import with_values
from deltars.data.write_schema import file_schema
from deltars.errors import SchemaMismatch
from deltars.protocol import (
    ArrayType,
    ColumnMapping,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    schema_to_arrow,
)
from deltars.protocol.arrow import PARQUET_FIELD_ID
from deltars.protocol.schema import COLUMN_ID


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the schema of rows that are read. Every field is nullable: older files may lack a NOT NULL column."""
    return file_schema(schema_to_arrow(schema))


def arrow_type(type_: DataType) -> pa.DataType:
    """Return the type of a column of rows that are read."""
    return arrow_schema(StructType((StructField("", type_),))).field(0).type


@dataclass(frozen=True, slots=True)
class Alignment:
    """Finds the table's columns in files, and converts them to the table's types."""

    mapping: ColumnMapping = "none"

    def find(self, column: StructField, fields: Iterable[pa.Field]) -> int | None:
        """Return the index of the file's field for this column, or None."""
        fields = list(fields)
        if self.mapping == "id" and COLUMN_ID in column.metadata:
            return self._find_by_id(column, fields)
        name = column.name if self.mapping == "none" else column.physical_name
        same = [i for i, field in enumerate(fields) if field.name == name]
        if not same and self.mapping == "none":
            same = [i for i, field in enumerate(fields) if field.name.lower() == name.lower()]
        return same[0] if same else None

    def array(self, source: pa.Array, type_: DataType, target: pa.DataType, path: str) -> pa.Array:
        """Return the values of a column, or of a nested part of it, as `target`."""
        if types.is_null(source.type) or types.is_null(target):
            return pa.nulls(len(source), target)
        match type_:
            case StructType() if types.is_struct(source.type):
                return self._struct(source, type_, target, path)
            case ArrayType() if types.is_list(source.type) or types.is_large_list(source.type):
                return self._list(source, type_, target, path)
            case MapType() if types.is_map(source.type):
                return self._map(source, type_, target, path)
            case PrimitiveType(name="variant"):
                return _variant(source, target, path)
            case PrimitiveType():
                return _cast(source, target, path)
        raise _misfit(path, source.type, type_)

    def _find_by_id(self, column: StructField, fields: list[pa.Field]) -> int | None:
        wanted = str(column.metadata.get(COLUMN_ID, "")).encode()
        ids = [(field.metadata or {}).get(PARQUET_FIELD_ID) for field in fields]
        if wanted in ids:
            return ids.index(wanted)
        if fields and not any(ids):
            # Otherwise all columns would silently read as null.
            raise SchemaMismatch("the table maps columns by id, but the file has no field ids", field=column.name)
        return None

    def _struct(self, source: pa.StructArray, type_: StructType, target: pa.DataType, path: str) -> pa.Array:
        children = []
        for column, wanted in zip(type_.fields, target, strict=True):
            at = self.find(column, source.type)
            inside = f"{path}.{column.name}"
            children.append(
                pa.nulls(len(source), wanted.type)
                if at is None
                else self.array(source.field(at), column.type, wanted.type, inside)
            )
        if not children:
            return pa.array([None if gone else {} for gone in source.is_null().to_pylist()], target)
        return pa.StructArray.from_arrays(children, fields=list(target), mask=source.is_null())

    def _list(self, source: pa.ListArray, type_: ArrayType, target: pa.DataType, path: str) -> pa.Array:
        def inside(elements: pa.Array, part: str) -> pa.Array:
            return self.array(elements, type_.element_type, target.value_type, f"{path}.{part}")

        return with_values(source, target, inside)

    def _map(self, source: pa.MapArray, type_: MapType, target: pa.DataType, path: str) -> pa.Array:
        wanted = {"key": (type_.key_type, target.key_type), "value": (type_.value_type, target.item_type)}
        return with_values(source, target, lambda child, part: self.array(child, *wanted[part], f"{path}.{part}"))


def _variant(source: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    """Return the encoded metadata and value. A shredded variant is refused: its values are in other columns."""
    storage = source.storage if isinstance(source.type, pa.BaseExtensionType) else source
    names = [field.name for field in storage.type] if types.is_struct(storage.type) else []
    if sorted(names) != ["metadata", "value"]:
        raise _misfit(path, source.type, PrimitiveType("variant"))
    parts = [storage.field(names.index(field.name)).cast(pa.binary()) for field in target]
    return pa.StructArray.from_arrays(parts, fields=list(target), mask=storage.is_null())


def _cast(array: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    source = array.type
    if source == target:
        return array
    if not _can_read(source, target):
        raise _misfit(path, source, target)
    try:
        # INT96 holds nanoseconds, and Delta's timestamps are microseconds: the cast truncates.
        return array.cast(target, safe=not types.is_timestamp(target))
    except pa.ArrowInvalid as error:
        raise SchemaMismatch(f"column {path} holds a value that does not fit {target}: {error}", field=path) from error


def _can_read(source: pa.DataType, target: pa.DataType) -> bool:
    if types.is_dictionary(source):
        return _can_read(source.value_type, target) or source.value_type == target
    return any(is_source(source) and is_target(target) for is_source, is_target in _READABLE)


def _is_text(kind: pa.DataType) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
        or types.is_binary_view(kind)
    )


_READABLE = (
    (types.is_integer, types.is_integer),
    (types.is_integer, types.is_floating),
    (types.is_integer, types.is_decimal),
    (types.is_floating, types.is_floating),
    (types.is_decimal, types.is_decimal),
    (types.is_date, types.is_date),
    (types.is_date, types.is_timestamp),
    (types.is_timestamp, types.is_timestamp),
    (_is_text, _is_text),
    (_is_text, _is_bytes),
    (_is_bytes, _is_bytes),
    (_is_bytes, _is_text),
)


def _misfit(path: str, source: pa.DataType, wanted: object) -> SchemaMismatch:
    return SchemaMismatch(f"column {path} is {source} in the file and {wanted} in the table", field=path)
