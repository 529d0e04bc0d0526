"""A file's minima and maxima as numbers, so that a database can compare ranges without parsing statistics.

    stats {"minValues": {"id": 7, "name": "ada"}, …}  ──▶  mins [7.0, 7.0, 1.07e14]     the range column,
                                                            maxs [9.0, 9.0, 1.33e14]     then every leaf column

Every number is rounded outward: a minimum is never above the true one, a maximum never below. `None` means unknown and
keeps the file. The range column is indexed, so there the ends of its scale mean unknown (`LOWEST`, `HIGHEST`). Files
that pass are then checked exactly, so bounds that are too wide cost time, never a row.

The position of each leaf is the table's layout. Adding a column at the end keeps the layout. Any other change of the
schema or of the range column moves numbers, and the table's rows are rewritten.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn, TypeAlias

import msgspec

from deltars.errors import ValidationError
from deltars.log.moments import to_microseconds
from deltars.log.slack import ANY_ZONE, high_text, low_text
from deltars.protocol import LeafType, PrimitiveType, SchemaKey, StructType, has_bounds, indexed_leaves, physical_paths

RANGE_COLUMN = "deltars.rangeColumn"
"""Table property that names the column whose range is indexed; by default the first column with statistics."""

STRING_BYTES = 6
"""The number of bytes that a double represents exactly."""

TIMESTAMP_SLACK_US = 999
"""Statistics cut timestamps to the millisecond, so a maximum may be this many microseconds too low."""

Number: TypeAlias = float | None
_Path: TypeAlias = tuple[str, ...]
_decode = msgspec.json.Decoder(dict[str, Any]).decode
_FLOAT = struct.Struct("=f")
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1


class FileBounds(NamedTuple):
    num_records: int | None
    mins: list[Number] | None
    maxs: list[Number] | None


LOWEST, HIGHEST = -1e30, 1e30
"""The ends of the range column's scale. An unknown range spans all of it; numbers beyond it are moved to its ends.
PostgreSQL multiplies widths in its range index, and a commit must not fail because that overflows."""


class Bounds:
    """Conversion of the statistics of one table's files to numbers."""

    def __init__(
        self, schema: StructType, partition_columns: Sequence[str] = (), properties: Mapping[str, str] | None = None
    ) -> None:
        leaves = {
            path: type_ for path, type_ in indexed_leaves(schema, partition_columns, properties) if has_bounds(type_)
        }
        first = _range_column(leaves, properties or {})
        # Statistics use the physical names of columns.
        physical = physical_paths(schema)
        order = (*([first] if first else ()), *leaves)
        widened = once_single(schema)
        self.leaves: Sequence[tuple[_Path, Callable[..., Number]]] = [
            (physical[path], float_number if path in widened else _converter(leaves[path])) for path in order
        ]
        """The columns of `mins` and `maxs`: the physical name, and the function that converts a value to a number."""
        self.places: Mapping[_Path, int] = {physical[path]: place for place, path in enumerate(leaves, start=2)}
        """The position in `mins` and `maxs` by physical name, counted from 1. The range column is also at 1."""
        self.range_column: _Path | None = physical[first] if first else None
        self._layout = [(physical[path], _scale(leaves[path])) for path in order]
        self.unknown = FileBounds(None, [LOWEST], [HIGHEST]) if first else FileBounds(None, None, None)
        """The numbers of a file without statistics."""

    def of(self, stats: str | None) -> FileBounds:
        """Return the numbers of one file and its `numRecords`."""
        if stats is None:
            return self.unknown
        document = known_stats(stats)
        count = document.get("numRecords")
        if not self.leaves:
            return FileBounds(count, None, None)
        minima, maxima = document.get("minValues"), document.get("maxValues")
        mins = [convert(value_at(minima, path), down=True) for path, convert in self.leaves]
        maxs = [convert(value_at(maxima, path), down=False) for path, convert in self.leaves]
        mins[0] = LOWEST if mins[0] is None else on_scale(mins[0])
        maxs[0] = HIGHEST if maxs[0] is None else on_scale(maxs[0])
        return FileBounds(count, mins, maxs)

    def continues(self, other: Bounds) -> bool:
        """Return whether numbers stored with the other layout are at the same positions in this one."""
        return self._layout[: len(other._layout)] == other._layout and self.range_column == other.range_column


def once_single(schema: StructType) -> frozenset[_Path]:
    """Return the double columns that were float before type widening: a bound may mean the float nearest to it."""
    return _once_single(SchemaKey(schema))


@lru_cache(maxsize=100)
def _once_single(key: SchemaKey) -> frozenset[_Path]:
    return frozenset(
        path
        for path, field in key.schema.walk()
        if field.type == PrimitiveType("double")
        for change in field.metadata.get("delta.typeChanges", ())
        if change.get("fromType") == "float"
    )


def read_stats(text: str) -> dict[str, Any]:
    """Return the statistics of a file as parsed JSON. Raise `ValueError` if they are not a JSON object."""
    try:
        return _decode(text)
    except msgspec.DecodeError:
        # Real logs contain halves of surrogate pairs and numbers too large for a double, which msgspec rejects.
        document = json.loads(text, parse_constant=_refuse_constant)
    if not isinstance(document, dict):
        raise ValueError("Expected `object`")
    return document


def known_stats(text: str) -> dict[str, Any]:
    """Return the usable part of a file's statistics, which are optional and often malformed.

    A text that is not a JSON object gives an empty result. A `numRecords` that is not a count is omitted.
    """
    try:
        document = read_stats(text)
    except (ValueError, RecursionError):
        return {}
    count = document.get("numRecords")
    if count is not None and (type(count) is not int or not 0 <= count <= _LARGEST):
        del document["numRecords"]
    return document


def known_num_records(stats: str | None) -> int | None:
    """Return the number of rows of a file, if its statistics say it. Malformed ones do not."""
    return known_stats(stats).get("numRecords") if stats else None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _range_column(leaves: Mapping[tuple[str, ...], LeafType], properties: Mapping[str, str]) -> tuple[str, ...] | None:
    named = properties.get(RANGE_COLUMN)
    if named is None:
        return next(iter(leaves), None)
    for path in leaves:
        if ".".join(path) == named:
            return path
    raise ValidationError(
        f"{RANGE_COLUMN} is {named!r}, which is not a column with minimum and maximum statistics",
        field=RANGE_COLUMN,
        hint=f"Columns that have them: {', '.join('.'.join(path) for path in leaves) or 'none'}.",
    )


def value_at(values: Any, path: tuple[str, ...]) -> Any:
    """Return the value of one leaf in nested statistics, or None if they lack it."""
    for name in path:
        if not isinstance(values, dict):
            return None
        values = values.get(name)
    return values


_Converter: TypeAlias = Callable[..., Number]


def _converter(type_: LeafType) -> _Converter:
    assert isinstance(type_, PrimitiveType)
    match type_.name:
        case "date":
            return date_number
        case "timestamp":
            return moment_number
        case "timestamp_ntz":
            return timestamp_number
        case "string":
            return string_number
        case "float":
            return float_number
        case name if name.startswith("decimal"):
            return decimal_number
        case _:
            return plain_number


def _scale(type_: LeafType) -> str:
    """Return the scale of a type's numbers. Numbers of the same scale are comparable, also across types."""
    assert isinstance(type_, PrimitiveType)
    match type_.name:
        case "date" | "string" as name:
            return name
        case "timestamp" | "timestamp_ntz":
            return "timestamp"
    return "number"


def on_scale(number: float) -> float:
    """Clamp a number of the range column to the scale."""
    return min(max(number, LOWEST), HIGHEST)


def number_range(value: Any) -> tuple[float, float] | None:
    """Return two numbers, usually equal, that the value lies between; None if it has no numbers."""
    match value:
        case str():
            low, high = string_number(value, down=True), string_number(value, down=False)
        case datetime():
            microseconds = to_microseconds(value)
            low, high = plain_number(microseconds, down=True), plain_number(microseconds, down=False)
        case date():
            low = high = float(value.toordinal())
        case int() | float() | Decimal():
            low, high = plain_number(value, down=True), plain_number(value, down=False)
        case _:
            return None
    return None if low is None or high is None else (low, high)


def prefix_range(prefix: str) -> tuple[float, float] | None:
    """Return two numbers that every string with the prefix lies between."""
    low = string_number(prefix, down=True)
    if low is None:
        return None
    head = prefix.encode()[:STRING_BYTES]
    return low, float(int.from_bytes(head.ljust(STRING_BYTES, b"\xff"), "big") + 1)


def plain_number(value: Any, *, down: bool) -> Number:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    if not math.isfinite(number):
        return None
    # An integer beyond 2**53 may differ from its float, as do most decimals. Python compares the two exactly.
    if (number > value) if down else (number < value):
        number = math.nextafter(number, -math.inf if down else math.inf)
    return number


def float_number(value: Any, *, down: bool) -> Number:
    """Round outward to single precision too: the text 0.1 of a float column means 0.100000001490116…"""
    number = plain_number(value, down=down)
    if number is None:
        return None
    try:
        single: float = _FLOAT.unpack(_FLOAT.pack(number))[0]
    except OverflowError:
        return None
    return min(number, single) if down else max(number, single)


def decimal_number(value: Any, *, down: bool) -> Number:
    number = None if is_clamped(value, down=down) else plain_number(value, down=down)
    # The JSON number was read, or written, as the nearest double. One step outward covers that rounding.
    return None if number is None else math.nextafter(number, -math.inf if down else math.inf)


def is_clamped(value: Any, *, down: bool) -> bool:
    """Return whether a decimal is at the end of the 64-bit range, to which delta-rs clamps values beyond it."""
    return bool(value == (_SMALLEST if down else _LARGEST))


def date_number(value: Any, *, down: bool) -> Number:
    try:
        return float(date.fromisoformat(value).toordinal())
    except (TypeError, ValueError):
        return None


def moment_number(value: Any, *, down: bool) -> Number:
    """Convert a bound of a timestamp column. Without a zone, it may be in any zone."""
    try:
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is None:
            value = (moment + (-ANY_ZONE if down else ANY_ZONE)).isoformat()
    except (TypeError, ValueError, OverflowError):
        return None
    return timestamp_number(value, down=down)


def timestamp_number(value: Any, *, down: bool) -> Number:
    try:
        microseconds = to_microseconds(datetime.fromisoformat(value))
    except (TypeError, ValueError, OverflowError):
        return None
    return plain_number(microseconds if down else microseconds + TIMESTAMP_SLACK_US, down=down)


def string_number(value: Any, *, down: bool) -> Number:
    if not isinstance(value, str):
        return None
    if not value.isascii():
        value = (low_text(value) if down else high_text(value)) or None
    if value is None:
        return None
    prefix = value.encode()[:STRING_BYTES]
    return float(int.from_bytes(prefix.ljust(STRING_BYTES, b"\0"), "big") + (0 if down else 1))
