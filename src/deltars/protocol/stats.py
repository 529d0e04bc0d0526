"""Column statistics of a data file: the JSON text of `add.stats`.

    FileStats (Python values, nested like the columns)  ──encode_stats──>  {"numRecords":…,"minValues":{…},…}
                                                        <──decode_stats──

Long strings are shortened so that they remain bounds: a minimum is cut, a maximum is cut and raised. Timestamps are cut
to milliseconds, so a reader must add one millisecond to a maximum before it skips a file. Decimals are exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeAlias

import msgspec

from deltars.errors import ValidationError, brief
from deltars.protocol.column_path import begins_with, paths_in
from deltars.protocol.scalars import (
    INTEGER_BITS,
    as_date,
    as_decimal,
    as_float,
    as_integer,
    as_timestamp,
    as_timestamp_ntz,
    float_text,
    parse_date,
    parse_float,
    parse_timestamp,
    parse_timestamp_ntz,
    shortest_float,
)
from deltars.protocol.schema import DataType, LeafType, PrimitiveType, StructType

STRING_PREFIX_LENGTH = 32
INDEXED_COLUMNS = 32

_MAX_COUNT = 2**63 - 1
_ASCII_MAX = "\x7f"
_UNICODE_MAX = "\U0010ffff"
_BOUNDED = frozenset({*INTEGER_BITS, "float", "double", "date", "timestamp", "timestamp_ntz", "string"})


@dataclass(frozen=True, slots=True)
class FileStats:
    """Statistics of a file's rows by physical column name. A struct is a nested mapping."""

    num_records: int | None = None
    min_values: Mapping[str, Any] = field(default_factory=dict)
    max_values: Mapping[str, Any] = field(default_factory=dict)
    null_count: Mapping[str, Any] = field(default_factory=dict)
    tight_bounds: bool | None = None


def has_bounds(type_: DataType) -> bool:
    """Return whether columns of this type have a minimum and a maximum. Others have only a null count."""
    return isinstance(type_, PrimitiveType) and (type_.name in _BOUNDED or type_.is_decimal)


def encode_stats(stats: FileStats, schema: StructType, *, prefix_length: int = STRING_PREFIX_LENGTH) -> str:
    """Return the text of `add.stats`. Columns without a value, or of a type without bounds, are omitted."""
    return stats_text(
        stats.num_records,
        _map_leaves(stats.min_values, schema, lambda value, type_: encode_minimum(value, type_, prefix_length)),
        _map_leaves(stats.max_values, schema, lambda value, type_: encode_maximum(value, type_, prefix_length)),
        _map_leaves(stats.null_count, schema, lambda count, _: count),
        stats.tight_bounds,
    )


def encode_minimum(value: Any, type_: LeafType, prefix_length: int = STRING_PREFIX_LENGTH) -> Any:
    """Return a column's minimum as a value for JSON; None if there is none."""
    return _encode_bound(truncate_min(value, prefix_length) if isinstance(value, str) else value, type_)


def encode_maximum(value: Any, type_: LeafType, prefix_length: int = STRING_PREFIX_LENGTH) -> Any:
    """Return a column's maximum as a value for JSON; None if there is none."""
    return _encode_bound(truncate_max(value, prefix_length) if isinstance(value, str) else value, type_)


def stats_text(
    num_records: int | None,
    min_values: Mapping[str, Any],
    max_values: Mapping[str, Any],
    null_count: Mapping[str, Any],
    tight_bounds: bool | None = None,
) -> str:
    """Return the text of `add.stats`, given bounds that are encoded already."""
    document: dict[str, Any] = {} if num_records is None else {"numRecords": num_records}
    document |= {"minValues": min_values, "maxValues": max_values, "nullCount": null_count}
    if tight_bounds is not None:
        document["tightBounds"] = tight_bounds
    try:
        return msgspec.json.encode(document).decode()
    except UnicodeEncodeError as error:
        raise ValidationError(f"the statistics cannot be written as JSON: {error}", field="stats") from error


def decode_stats(text: str | bytes, schema: StructType) -> FileStats:
    """Return the statistics as Python values. A value of the wrong type is omitted, because it proves nothing."""
    try:
        document = _decoder.decode(text)
    except (ValueError, RecursionError) as error:
        raise ValidationError(f"the statistics are not a JSON object: {error}", field="stats") from error

    def leaves(part: Any, convert: Callable[[Any, LeafType], Any]) -> dict[str, Any]:
        return _map_leaves(part, schema, convert) if isinstance(part, Mapping) else {}

    return FileStats(
        num_records=_decode_count(document.numRecords),
        min_values=leaves(document.minValues, decode_bound),
        max_values=leaves(document.maxValues, decode_bound),
        null_count=leaves(document.nullCount, _decode_count),
        tight_bounds=document.tightBounds if isinstance(document.tightBounds, bool) else None,
    )


def truncate_min(text: str, prefix_length: int = STRING_PREFIX_LENGTH) -> str:
    """Return a lower bound in the order of code points, which is also the order of UTF-8 bytes."""
    return text[:prefix_length]


def truncate_max(text: str, prefix_length: int = STRING_PREFIX_LENGTH) -> str | None:
    """Return an upper bound, a prefix plus a character greater than the first one cut, or None if there is none."""
    if len(text) <= prefix_length:
        return text
    for end in range(prefix_length, min(len(text), 2 * prefix_length)):
        if text[end] < _ASCII_MAX:
            return text[:end] + _ASCII_MAX
        if text[end] < _UNICODE_MAX:
            return text[:end] + _UNICODE_MAX
    return text if len(text) <= 2 * prefix_length else None


def indexed_leaves(
    schema: StructType, partition_columns: Sequence[str] = (), properties: Mapping[str, str] | None = None
) -> list[tuple[tuple[str, ...], LeafType]]:
    """Return the columns whose statistics are collected, by logical name, according to the table's properties."""
    properties = properties or {}
    leaves = [leaf for leaf in schema.leaves() if leaf[0][0] not in partition_columns]
    chosen = properties.get("delta.dataSkippingStatsColumns")
    if chosen is not None:
        prefixes = paths_in(chosen)
        return [leaf for leaf in leaves if any(begins_with(leaf[0], prefix) for prefix in prefixes)]
    limit = _indexed_columns(properties)
    return leaves if limit < 0 else leaves[:limit]


def _indexed_columns(properties: Mapping[str, str]) -> int:
    name = "delta.dataSkippingNumIndexedCols"
    text = properties.get(name, str(INDEXED_COLUMNS))
    try:
        return int(text)
    except ValueError:
        raise ValidationError(f"the property {name} is a number of columns, not {brief(text)}", field=name) from None


class _Document(msgspec.Struct):
    numRecords: Any = None  # noqa: N815
    minValues: Any = None  # noqa: N815
    maxValues: Any = None  # noqa: N815
    nullCount: Any = None  # noqa: N815
    tightBounds: Any = None  # noqa: N815


# Numbers with a decimal point are decoded as Decimal, because only some column types may be read as float.
_decoder = msgspec.json.Decoder(_Document, float_hook=Decimal)


def _map_leaves(
    values: Mapping[str, Any], schema: StructType, convert: Callable[[Any, LeafType], Any]
) -> dict[str, Any]:
    converted: dict[str, Any] = {}
    for column in schema.fields:
        value = values.get(column.physical_name)
        if isinstance(column.type, StructType):
            result = _map_leaves(value, column.type, convert) if isinstance(value, Mapping) else None
        else:
            result = None if value is None else convert(value, column.type)
        if result is not None and result != {}:
            converted[column.physical_name] = result
    return converted


def _encode_bound(value: Any, type_: LeafType) -> Any:
    if value is None or not isinstance(type_, PrimitiveType) or not has_bounds(type_):
        return None
    try:
        return _to_json(value, type_)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise ValidationError(f"{value!r} is not a bound of a {type_} column: {error}", field="stats") from error


def _to_json(value: Any, type_: PrimitiveType) -> Any:
    match type_.name:
        case "string":
            if not isinstance(value, str):
                raise ValueError("expected a string")
            return value
        case "byte" | "short" | "integer" | "long":
            return as_integer(value, type_)
        case "float" | "double":
            number = shortest_float(as_float(value, type_), type_)
            return number if math.isfinite(number) else float_text(number)
        case "date":
            return as_date(value).isoformat()
        case "timestamp":
            return f"{as_timestamp(value).isoformat(timespec='milliseconds')}Z"
        case "timestamp_ntz":
            return as_timestamp_ntz(value).isoformat(timespec="milliseconds")
        case _:
            return msgspec.Raw(f"{as_decimal(value, type_):f}".encode())


def decode_bound(value: Any, type_: LeafType) -> Any:
    """Return the Python value of a bound decoded from JSON (decimal points as Decimal), or None if it is not valid.

    Nothing is added to a timestamp that was cut to the millisecond.
    """
    return bound_decoder(type_)(value)


def bound_decoder(type_: LeafType) -> Callable[[Any], Any]:
    """Return `decode_bound` for one type, to decode many bounds of a column."""
    if not isinstance(type_, PrimitiveType):
        return lambda value: None
    forms = _FORMS.get("decimal" if type_.is_decimal else type_.name, {})

    def decode(value: Any) -> Any:
        form = forms.get(type(value))
        try:
            return None if form is None else form(value, type_)
        except (TypeError, ValueError, ArithmeticError):
            return None

    return decode


_Form: TypeAlias = Callable[[Any, PrimitiveType], Any]
_WHOLE: dict[type, _Form] = {int: as_integer}
_FLOAT: dict[type, _Form] = {str: parse_float, int: as_float, Decimal: as_float}
_FORMS: dict[str, dict[type, _Form]] = {
    **dict.fromkeys(INTEGER_BITS, _WHOLE),
    **dict.fromkeys(("float", "double"), _FLOAT),
    "string": {str: lambda value, _: value},
    "date": {str: lambda value, _: parse_date(value)},
    "timestamp": {str: lambda value, _: parse_timestamp(value)},
    "timestamp_ntz": {str: lambda value, _: parse_timestamp_ntz(value)},
    "decimal": {int: as_decimal, Decimal: as_decimal},
}
"""JSON types accepted for a bound of each column type, with their decoder."""


def _decode_count(value: Any, _: LeafType | None = None) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_COUNT
    return value if is_count else None
