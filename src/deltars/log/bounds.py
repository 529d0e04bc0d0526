"""A file's minima and maxima as plain numbers, so that a database can compare ranges without parsing statistics.

    stats {"minValues": {"id": 7, "name": "ada"}, …}  ──▶  mins [7.0, 7.0, 1.07e14]     one number a leaf column,
                                                            maxs [9.0, 9.0, 1.33e14]     the range column first, again

Every number is rounded outward: a minimum never above the true one, a maximum never below. `None` means unknown, and
keeps the file; in the range column's place, which is indexed, the ends of its scale say so (`LOWEST`, `HIGHEST`).
Survivors are checked exactly afterwards, so being a little too wide costs a look, never a row.

Which leaf stands where is the table's layout. A column that is added at the end leaves it as it is; any other change,
of the schema or of the range column, moves numbers to another place, and the rows of the table are written anew.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, NamedTuple, NoReturn, TypeAlias

import msgspec

from deltars.errors import ValidationError
from deltars.log.slack import ANY_ZONE, high_text, low_text
from deltars.protocol import LeafType, PrimitiveType, StructType, has_bounds, indexed_leaves

RANGE_COLUMN = "deltars.rangeColumn"
"""The table property that names the column whose range is indexed; by default the first with statistics."""

STRING_BYTES = 6
"""As many bytes as a double holds exactly."""

TIMESTAMP_SLACK_US = 999
"""Statistics hold timestamps cut to the millisecond."""

Number: TypeAlias = float | None
_Path: TypeAlias = tuple[str, ...]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_decode = msgspec.json.Decoder(dict[str, Any]).decode
_FLOAT = struct.Struct("=f")
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1


class FileBounds(NamedTuple):
    num_records: int | None
    mins: list[Number] | None
    maxs: list[Number] | None


LOWEST, HIGHEST = -1e30, 1e30
"""The ends of the scale of the range column: what is not known reaches from one to the other, and what lies beyond
them is there. PostgreSQL multiplies widths in its range index, and a commit must not fail because that overflows."""


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
        order = (*([first] if first else ()), *leaves)
        widened = once_single(schema)
        self.leaves: Sequence[tuple[_Path, Callable[..., Number]]] = [
            (physical[path], float_number if path in widened else _converter(leaves[path])) for path in order
        ]
        """The columns of `mins` and `maxs`, by their physical names, each with what makes a number of its values."""
        self.places: Mapping[_Path, int] = {physical[path]: place for place, path in enumerate(leaves, start=2)}
        """Where in `mins` and `maxs` a leaf stands, by its physical name, counted from 1; the range column also 1."""
        self.range_column: _Path | None = physical[first] if first else None
        self._layout = [(physical[path], _scale(leaves[path])) for path in order]
        self.unknown = FileBounds(None, [LOWEST], [HIGHEST]) if first else FileBounds(None, None, None)
        """The numbers of a file without statistics."""

    def of(self, stats: str | None) -> FileBounds:
        """The numbers of one file, and how many records its statistics count."""
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
        """Whether the numbers that another layout gave stand where this one has them."""
        return self._layout[: len(other._layout)] == other._layout and self.range_column == other.range_column


def once_single(schema: StructType) -> set[_Path]:
    """The double columns that were float before (type widening): a bound may stand for the float nearest to it."""
    return {
        path
        for path, field in schema.walk()
        if field.type == PrimitiveType("double")
        for change in field.metadata.get("delta.typeChanges", ())
        if change.get("fromType") == "float"
    }


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


def known_stats(text: str) -> dict[str, Any]:
    """Return what can be used of a file's statistics: they are optional, and writers put all kinds of things there.

    A text that is not a JSON object says nothing. A `numRecords` that is not a count is left out.
    """
    try:
        document = read_stats(text)
    except (ValueError, RecursionError):
        return {}
    count = document.get("numRecords")
    if count is not None and (type(count) is not int or not 0 <= count <= _LARGEST):
        del document["numRecords"]
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


def value_at(values: Any, path: tuple[str, ...]) -> Any:
    """What statistics say of one leaf; None where they say nothing."""
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
    """What its numbers mean: those of one scale compare, whichever of its types they came from."""
    assert isinstance(type_, PrimitiveType)
    match type_.name:
        case "date" | "string" as name:
            return name
        case "timestamp" | "timestamp_ntz":
            return "timestamp"
    return "number"


def on_scale(number: float) -> float:
    """A number of the range column, or the end of the scale that is nearest to it."""
    return min(max(number, LOWEST), HIGHEST)


def number_range(value: Any) -> tuple[float, float] | None:
    """A value as bounds hold it: two numbers that it lies between, most often twice the same."""
    match value:
        case str():
            low, high = string_number(value, down=True), string_number(value, down=False)
        case datetime():
            moment = value.replace(tzinfo=UTC) if value.tzinfo is None else value
            since = moment - _EPOCH
            microseconds = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
            low, high = plain_number(microseconds, down=True), plain_number(microseconds, down=False)
        case date():
            low = high = float(value.toordinal())
        case int() | float() | Decimal():
            low, high = plain_number(value, down=True), plain_number(value, down=False)
        case _:
            return None
    return None if low is None or high is None else (low, high)


def prefix_range(prefix: str) -> tuple[float, float] | None:
    """Two numbers that every string with this beginning lies between."""
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
    # An integer beyond 2**53 is not its float, nor are most decimals; comparing them with one is exact in Python.
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
    number = None if is_clamped(value, down=down) else plain_number(value, down=down)
    # The JSON number was read as the nearest double, or written as one: a step outward covers what that lost.
    return None if number is None else math.nextafter(number, -math.inf if down else math.inf)


def is_clamped(value: Any, *, down: bool) -> bool:
    """Whether a decimal stands at the end of 64 bits, where delta-rs leaves whatever lies beyond."""
    return bool(value == (_SMALLEST if down else _LARGEST))


def date_number(value: Any, *, down: bool) -> Number:
    try:
        return float(date.fromisoformat(value).toordinal())
    except (TypeError, ValueError):
        return None


def moment_number(value: Any, *, down: bool) -> Number:
    """A timestamp without a zone, in a column of moments, may be in any zone."""
    try:
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is None:
            value = (moment + (-ANY_ZONE if down else ANY_ZONE)).isoformat()
    except (TypeError, ValueError, OverflowError):
        return None
    return timestamp_number(value, down=down)


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
    if not value.isascii():
        value = (low_text(value) if down else high_text(value)) or None
    if value is None:
        return None
    prefix = value.encode()[:STRING_BYTES]
    return float(int.from_bytes(prefix.ljust(STRING_BYTES, b"\0"), "big") + (0 if down else 1))
