"""Partition values: conversion between Python values and the strings of `partitionValues`.

    None, ""         null, for every type
    timestamp        1970-01-01T00:00:00.123456Z
    timestamp_ntz    1970-01-01 00:00:00[.123456]
    binary           the bytes decoded as UTF-8, as other writers do; other bytes raise an error

Parsing accepts more than deltars writes: logs also have timestamps with an offset or in the writer's time zone.
"""

from __future__ import annotations

from datetime import UTC, tzinfo
from typing import Any

from deltars.errors import ValidationError
from deltars.protocol.scalars import (
    as_date,
    as_decimal,
    as_float,
    as_integer,
    as_timestamp,
    as_timestamp_ntz,
    float_text,
    parse_date,
    parse_decimal,
    parse_float,
    parse_integer,
    parse_timestamp,
    parse_timestamp_ntz,
    shortest_float,
)
from deltars.protocol.schema import DataType, PrimitiveType


def serialize_partition_value(value: Any, type_: DataType) -> str | None:
    """Return a Python value as a string of `partitionValues`."""
    try:
        text = None if value is None else _serialize(value, _partitionable(type_))
    except (TypeError, ValueError, ArithmeticError) as error:
        raise ValidationError(f"{value!r} is not a partition value of type {type_}: {error}") from error
    return text or None


def parse_partition_value(text: str | None, type_: DataType, *, zone: tzinfo = UTC) -> Any:
    """Return the Python value. `zone` is the time zone of a timestamp that has none."""
    try:
        return _parse(text, _partitionable(type_), zone) if text else None
    except (ValueError, ArithmeticError) as error:
        raise ValidationError(f"{text!r} is not a partition value of type {type_}: {error}") from error


def can_partition_by(type_: DataType) -> bool:
    return isinstance(type_, PrimitiveType) and type_.name not in ("variant", "void")


def _partitionable(type_: DataType) -> PrimitiveType:
    if not isinstance(type_, PrimitiveType) or not can_partition_by(type_):
        raise ValueError("a table cannot be partitioned by this type")
    return type_


def _serialize(value: Any, type_: PrimitiveType) -> str:
    match type_.name:
        case "string":
            if not isinstance(value, str):
                raise ValueError("expected a string")
            return value
        case "binary":
            return bytes(memoryview(value)).decode()
        case "boolean":
            if not isinstance(value, bool):
                raise ValueError("expected a boolean")
            return "true" if value else "false"
        case "byte" | "short" | "integer" | "long":
            return str(as_integer(value, type_))
        case "float" | "double":
            return float_text(shortest_float(as_float(value, type_), type_))
        case "date":
            return as_date(value).isoformat()
        case "timestamp":
            return f"{as_timestamp(value).isoformat(timespec='microseconds')}Z"
        case "timestamp_ntz":
            return as_timestamp_ntz(value).isoformat(sep=" ")
        case _:
            return f"{as_decimal(value, type_):f}"


def _parse(text: str, type_: PrimitiveType, zone: tzinfo) -> Any:
    match type_.name:
        case "string":
            return text
        case "binary":
            return text.encode()
        case "boolean":
            if text.lower() not in ("true", "false"):
                raise ValueError("expected true or false")
            return text.lower() == "true"
        case "byte" | "short" | "integer" | "long":
            return parse_integer(text, type_)
        case "float" | "double":
            return parse_float(text, type_)
        case "date":
            return parse_date(text)
        case "timestamp":
            return parse_timestamp(text, zone)
        case "timestamp_ntz":
            return parse_timestamp_ntz(text)
        case _:
            return parse_decimal(text, type_)
