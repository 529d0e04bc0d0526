"""The numbers of `Bounds.of` for many files at once, column by column.

    statistics of n files ──▶ documents ──▶ the values of one leaf ──▶ n numbers, converted by Arrow
                                                                 └──▶ one by one, if a value is unusual

Arrow converts the values that nearly every file has: integers that a double represents exactly, strings, ISO dates. A
column with any other value goes through the converter of `Bounds.of`, so that both give the same numbers.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import repeat
from types import NoneType
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from deltars.log.bounds import (
    HIGHEST,
    LOWEST,
    STRING_BYTES,
    TIMESTAMP_SLACK_US,
    Bounds,
    Number,
    date_number,
    decimal_number,
    float_number,
    known_stats,
    moment_number,
    plain_number,
    string_number,
    timestamp_number,
    value_at,
)

_EXACT = 2**53
"""Every integer up to this one is exactly a double."""
_WORD_BYTES = 8
_EPOCH_DAY = date(1970, 1, 1).toordinal()

_Values: TypeAlias = list[Any]
_Quick: TypeAlias = Callable[[_Values, bool], pa.Array]


class _UnusualError(ValueError):
    """A value that Arrow may convert differently than the converter of single values."""


@dataclass(frozen=True, slots=True)
class BoundsColumns:
    """One entry per file: `numRecords`, and the minima and maxima of the range column, then of each leaf."""

    num_records: pa.Array
    mins: Sequence[pa.Array]
    """Null for a file without statistics, which has `Bounds.unknown` instead. Empty if no leaf has bounds."""
    maxs: Sequence[pa.Array]


def bounds_columns(bounds: Bounds, stats: Sequence[str | None]) -> BoundsColumns:
    documents: list[dict[str, Any]] = [{} if text is None else known_stats(text) for text in stats]
    minima, maxima = (_objects(documents, name) for name in ("minValues", "maxValues"))
    return BoundsColumns(
        pa.array([document.get("numRecords") for document in documents], pa.int64()),
        _columns(bounds, minima, down=True),
        _columns(bounds, maxima, down=False),
    )


def _columns(bounds: Bounds, values: _Values, *, down: bool) -> list[pa.Array]:
    # The range column occurs twice, but is converted once.
    known = {path: _numbers(values, path, convert, down=down) for path, convert in bounds.leaves}
    columns = [known[path] for path, _ in bounds.leaves]
    if columns:
        unknown = pa.scalar(LOWEST if down else HIGHEST)
        columns[0] = pc.max_element_wise(pc.min_element_wise(columns[0].fill_null(unknown), HIGHEST), LOWEST)
    return columns


def _numbers(values: _Values, path: tuple[str, ...], convert: Callable[..., Number], *, down: bool) -> pa.Array:
    [name, *deeper] = path
    found = [value_at(entry, path) for entry in values] if deeper else list(map(dict.get, values, repeat(name)))
    try:
        return _QUICK[convert](found, down)
    except (_UnusualError, pa.ArrowException, TypeError, ValueError, AttributeError, OverflowError):
        return pa.array([convert(value, down=down) for value in found], pa.float64())


def _objects(documents: Sequence[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Return one entry of each document; an empty object if it is missing, or something else."""
    return [entry if type(entry) is dict else {} for entry in map(dict.get, documents, repeat(name))]


def _plain(values: _Values, down: bool) -> pa.Array:
    # The types are checked first, because Arrow converts True to 1.0 and 1.5 to the integer 1.
    kinds = set(map(type, values))
    if kinds <= {int, NoneType}:
        return _exactly(pa.array(values, pa.int64()))
    if kinds <= {int, float, NoneType}:
        found = pa.array(values, pa.float64())
        if pc.all(pc.is_finite(found)).as_py() is not False:
            return found
    raise _UnusualError


def _exactly(whole: pa.Array) -> pa.Array:
    ends = pc.min_max(whole).as_py()
    if any(end is not None and abs(end) > _EXACT for end in ends.values()):
        raise _UnusualError
    return whole.cast(pa.float64())


def _single(values: _Values, down: bool) -> pa.Array:
    numbers = _plain(values, down)
    singles = numbers.cast(pa.float32(), safe=False).cast(pa.float64())
    if pc.all(pc.is_finite(singles)).as_py() is False:
        raise _UnusualError
    outer = pc.min_element_wise if down else pc.max_element_wise
    return outer(numbers, singles)


def _decimal(values: _Values, down: bool) -> pa.Array:
    numbers = _plain(values, down).to_pylist()
    if any(number is not None and abs(number) > _EXACT for number in numbers):
        raise _UnusualError
    beyond = -math.inf if down else math.inf
    return pa.array([None if number is None else math.nextafter(number, beyond) for number in numbers], pa.float64())


def _date(values: _Values, down: bool) -> pa.Array:
    days = pc.add(pa.array(values, pa.string()).cast(pa.date32()).cast(pa.int32()), _EPOCH_DAY)
    if (pc.min(days).as_py() or 1) < date.min.toordinal() or (pc.max(days).as_py() or 1) > date.max.toordinal():
        raise _UnusualError
    return days.cast(pa.float64())


def _moment(values: _Values, down: bool) -> pa.Array:
    return _microseconds(pa.array(values, pa.string()).cast(pa.timestamp("us", "UTC")), down)


def _timestamp(values: _Values, down: bool) -> pa.Array:
    texts = pa.array(values, pa.string())
    try:
        moments = texts.cast(pa.timestamp("us", "UTC"))
    except pa.ArrowInvalid:
        moments = texts.cast(pa.timestamp("us"))
    return _microseconds(moments, down)


def _microseconds(moments: pa.Array, down: bool) -> pa.Array:
    # Timestamps that are exact as doubles are far from the first and the last year that Python can hold.
    return _exactly(pc.add(moments.cast(pa.int64()), 0 if down else TIMESTAMP_SLACK_US))


def _string(values: _Values, down: bool) -> pa.Array:
    texts = pa.array(values, pa.string())
    if not down and pc.any(pc.match_substring_regex(texts, "[\ufffd\U0010ffff]")).as_py():
        # Writers append these characters to a string that they cut.
        raise _UnusualError
    heads = texts.fill_null("").cast(pa.binary())
    filled = pc.binary_slice(pc.binary_join_element_wise(heads, b"\0" * STRING_BYTES, b""), 0, STRING_BYTES)
    words = array("Q")
    # Eight bytes each and contiguous, so they can be read as an array of 64-bit integers.
    padded = pc.binary_join_element_wise(b"\0" * (_WORD_BYTES - STRING_BYTES), filled, b"")
    words.frombytes(memoryview(padded.buffers()[2])[: len(values) * _WORD_BYTES])
    if sys.byteorder == "little":
        words.byteswap()
    numbers = pa.Array.from_buffers(pa.uint64(), len(words), [None, pa.py_buffer(words)]).cast(pa.float64())
    return pc.if_else(texts.is_valid(), pc.add(numbers, 0.0 if down else 1.0), pa.scalar(None, pa.float64()))


_QUICK: Mapping[Callable[..., Number], _Quick] = {
    plain_number: _plain,
    float_number: _single,
    decimal_number: _decimal,
    date_number: _date,
    moment_number: _moment,
    timestamp_number: _timestamp,
    string_number: _string,
}
