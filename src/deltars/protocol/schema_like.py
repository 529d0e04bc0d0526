"""Conversion of everything that users may pass as a schema or as column names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeAlias, runtime_checkable

import pyarrow as pa

from deltars.errors import ValidationError, brief
from deltars.protocol.arrow import schema_from_arrow
from deltars.protocol.char_varchar import without_limits
from deltars.protocol.ddl import new_columns_from_ddl, schema_from_ddl, type_from_ddl
from deltars.protocol.schema import ArrayType, DataType, MapType, PrimitiveType, StructField, StructType
from deltars.protocol.schema_change import NewColumn


@runtime_checkable
class HasJsonValue(Protocol):
    """A Spark type, recognised by its method, because this layer never imports pyspark."""

    def jsonValue(self) -> Any: ...  # noqa: N802


SchemaLike: TypeAlias = StructType | pa.Schema | str | HasJsonValue
TypeLike: TypeAlias = DataType | pa.DataType | str | HasJsonValue


def as_schema(schema: SchemaLike) -> StructType:
    """Return the schema of a `StructType`, an Arrow or Spark schema, DDL or Delta's schema JSON."""
    match schema:
        case StructType():
            return schema
        case pa.Schema():
            return schema_from_arrow(schema)
        case str():
            return StructType.from_json(schema) if schema.lstrip().startswith("{") else schema_from_ddl(schema)
        case HasJsonValue():
            document = schema.jsonValue()
            if isinstance(document, Mapping):
                return StructType.from_dict(without_limits(document))
    raise ValidationError(
        f"{type(schema).__name__} is not a schema",
        hint="Pass a Spark or Arrow schema, DDL such as 'id BIGINT, name STRING', or Delta's schema JSON.",
    )


def as_new_columns(columns: SchemaLike) -> list[NewColumn]:
    """Return columns to add, of anything that is a schema. Only DDL can have nested names and places."""
    if isinstance(columns, str) and not columns.lstrip().startswith("{"):
        return new_columns_from_ddl(columns)
    return [NewColumn((), field) for field in as_schema(columns).fields]


def as_type_of_column(type_: TypeLike) -> StructField:
    """Return a column of a type, which is given as DDL, or as a type of Delta, Arrow or Spark. Its name is empty."""
    match type_:
        case str():
            return type_from_ddl(type_)
        case PrimitiveType() | ArrayType() | MapType() | StructType():
            return StructField("", type_)
        case pa.DataType():
            return schema_from_arrow(pa.schema([pa.field("", type_)])).fields[0]
        case HasJsonValue():
            field = {"name": "", "type": type_.jsonValue(), "nullable": True, "metadata": {}}
            return StructType.from_dict(without_limits({"type": "struct", "fields": [field]})).fields[0]
    raise ValidationError(
        f"{type(type_).__name__} is not a type",
        field="type",
        hint="Pass DDL such as 'BIGINT', or a Spark or Arrow type.",
    )


def as_names(names: Any) -> tuple[str, ...]:
    """Return column names as a tuple. A single name may be a string."""
    given: Any = names
    found = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
    for name in found:
        if not isinstance(name, str):
            raise ValidationError(
                f"a column's name is a text, got {brief(name)}", field="columns", hint='Write ["id", "day"].'
            )
    return found
