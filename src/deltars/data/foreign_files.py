"""Parquet files that other programs wrote: their schema and number of rows, from their footers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from deltars.errors import ValidationError
from deltars.protocol import ArrayType, DataType, MapType, StructType, schema_from_arrow
from deltars.storage import ObjectInfo, Storage

_SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
_NANOS = pa.timestamp("ns")


@dataclass(frozen=True, slots=True)
class ForeignFile:
    schema: StructType
    """Columns of the file; all are nullable."""
    num_rows: int


def describe_file(storage: Storage, info: ObjectInfo) -> ForeignFile:
    """Read a file's footer. Raise `ValidationError` if it is no Parquet file."""
    try:
        with storage.open_reader(info.path) as reader, pq.ParquetFile(reader) as file:
            return ForeignFile(_nullable(_schema_of(file)), file.metadata.num_rows)
    except (pa.ArrowException, msgspec.DecodeError, UnicodeDecodeError, RecursionError, OSError) as error:
        raise ValidationError(
            f"{storage.url_of(info.path)} is no Parquet file: {error}",
            field="location",
            hint="Remove the file, or put _ before its name: then it is no data.",
        ) from error


def _schema_of(file: pq.ParquetFile) -> StructType:
    """Return the schema that Spark noted in the file, if it did: Parquet has fewer types than Spark."""
    noted = (file.metadata.metadata or {}).get(_SPARK_SCHEMA)
    if noted is not None:
        return StructType.from_dict(_without_metadata(msgspec.json.decode(noted)))
    return schema_from_arrow(pa.schema([_with_zone(field) for field in file.schema_arrow]))


def _with_zone(field: pa.Field) -> pa.Field:
    # INT96, the old timestamp of Parquet, is an instant. Arrow reads it as a local time.
    return field.with_type(pa.timestamp("us", "UTC")) if field.type == _NANOS else field


def _without_metadata(document: Any) -> Any:
    match document:
        case Mapping():
            return {key: {} if key == "metadata" else _without_metadata(value) for key, value in document.items()}
        case list():
            return [_without_metadata(value) for value in document]
    return document


def _nullable(type_: StructType) -> StructType:
    return StructType(tuple(_fields(type_)))


def _fields(type_: StructType) -> Iterator[Any]:
    for field in type_.fields:
        yield replace(field, nullable=True, type=_nullable_type(field.type))


def _nullable_type(type_: DataType) -> DataType:
    match type_:
        case StructType():
            return _nullable(type_)
        case ArrayType():
            return replace(type_, element_type=_nullable_type(type_.element_type), contains_null=True)
        case MapType():
            return replace(type_, value_type=_nullable_type(type_.value_type), value_contains_null=True)
    return type_
