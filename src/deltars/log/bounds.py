"""A file's minima and maxima as plain numbers, so that a database can compare ranges without parsing statistics.

    stats {"minValues": {"id": 7, "name": "ada"}, …}  ──▶  mins [7.0, 7.0, 1.07e14]     one number a leaf column,
                                                            maxs [9.0, 9.0, 1.33e14]     the range column first, again

Every number is rounded outward: a minimum never above the true one, a maximum never below. `None` means unknown, and
keeps the file. Survivors are checked exactly afterwards, so being a little too wide costs a look, never a row.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, NamedTuple, NoReturn, TypeAlias

import msgspec

from deltars.errors import ValidationError
from deltars.protocol import LeafType, PrimitiveType, StructType, has_bounds, indexed_leaves

RANGE_COLUMN = "deltars.rangeColumn"
"""The table property that names the column whose range is indexed; by default the first with statistics."""

STRING_BYTES = 6
"""As many bytes as a double holds exactly."""

TIMESTAMP_SLACK_US = 999
"""Statistics hold timestamps cut to the millisecond."""

Number: TypeAlias = float | None
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_decode = msgspec.json.Decoder(dict[str, Any]).decode
_FLOAT = struct.Struct("=f")


class FileBounds(NamedTuple):
    num_records: int | None
    mins: list[Number] | None
    maxs: list[Number] | None


UNKNOWN = FileBounds(None, None, None)


class Bounds:
    """How to turn the statistics of one table's files into numbers."""

    def __init__(
        self, schema: StructType, partition_columns: Sequence[str] = (), properties: Mapping[str, str] | None = None
    ) -> None:
        leaves = {
            path: type_ for path, type_ in indexed_leaves(schema, partition_columns, properties) if has_bounds(type_)
        }
        first = _range_column(leaves, properties or {})
        # Statistics name columns as the data files do.
        names = [path for path, _ in schema.leaves()]
        physical = dict(zip(names, (path for path, _ in schema.leaves(physical=True)), strict=True))
        self._leaves = [(physical[path], _converter(leaves[path])) for path in (*([first] if first else ()), *leaves)]

    def of(self, stats: str | None) -> FileBounds:
        """The numbers of one file, and how many records its statistics count."""
        if stats is None:
            return UNKNOWN
        document = read_stats(stats)
        count = document.get("numRecords")
        if not self._leaves:
            return FileBounds(count, None, None)
        minima, maxima = document.get("minValues"), document.get("maxValues")
        mins = [convert(_at(minima, path), down=True) for path, convert in self._leaves]
        maxs = [convert(_at(maxima, path), down=False) for path, convert in self._leaves]
        return FileBounds(count, mins, maxs)


def read_stats(text: str) -> dict[str, Any]:
    """The statistics of a file, as they stand there; `ValueError` where they are no JSON object."""
    try:
        return _decode(text)
    except msgspec.DecodeError:
        # What real logs hold and msgspec refuses: half of a surrogate pair, a number too large for a double.
        document = json.loads(text, parse_constant=_refuse_constant)
    if not isinstance(document, dict):
        raise ValueError("Expected `object`")
    return document


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
        f"{RANGE_COLUMN} names {named!r}, which is no column with minimum and maximum",
        field=RANGE_COLUMN,
        hint=f"Columns that have them: {', '.join('.'.join(path) for path in leaves) or 'none'}.",
    )


def _at(values: Any, path: tuple[str, ...]) -> Any:
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
        case "timestamp" | "timestamp_ntz":
            return timestamp_number
        case "string":
            return string_number
        case "float":
            return float_number
        case name if name.startswith("decimal"):
            return decimal_number
        case _:
            return plain_number


def plain_number(value: Any, *, down: bool) -> Number:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    if not math.isfinite(number):
        return None
    # Only an integer beyond 2**53 is not its float; comparing int with float is exact in Python.
    if (number > value) if down else (number < value):
        number = math.nextafter(number, -math.inf if down else math.inf)
    return number


def float_number(value: Any, *, down: bool) -> Number:
    """The shortest text of a single-precision number is not that number: 0.1 stands for 0.100000001490116…"""
    number = plain_number(value, down=down)
    if number is None:
        return None
    try:
        single: float = _FLOAT.unpack(_FLOAT.pack(number))[0]
    except OverflowError:
        return None
    return min(number, single) if down else max(number, single)


def decimal_number(value: Any, *, down: bool) -> Number:
    number = plain_number(value, down=down)
    # The JSON number was read as the nearest double: a step outward covers what that lost.
    return None if number is None else math.nextafter(number, -math.inf if down else math.inf)


def date_number(value: Any, *, down: bool) -> Number:
    try:
        return float(date.fromisoformat(value).toordinal())
    except (TypeError, ValueError):
        return None


def timestamp_number(value: Any, *, down: bool) -> Number:
    try:
        moment = datetime.fromisoformat(value)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
        since = moment - _EPOCH
    except (TypeError, ValueError, OverflowError):
        return None
    microseconds = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    return plain_number(microseconds if down else microseconds + TIMESTAMP_SLACK_US, down=down)


def string_number(value: Any, *, down: bool) -> Number:
    if not isinstance(value, str):
        return None
    try:
        prefix = value.encode()[:STRING_BYTES]
    except UnicodeEncodeError:
        return None
    return float(int.from_bytes(prefix.ljust(STRING_BYTES, b"\0"), "big") + (0 if down else 1))
