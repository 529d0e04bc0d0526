"""Smallest and largest values of a table's columns, as its writers recorded them for each file. No file is opened."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from deltars.protocol import StructType, physical_paths

MOST_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    least: str | None
    most: str | None
    num_nulls: int | None
    """None if a file does not count them."""


def column_statistics(schema: StructType, documents: Iterable[str | None]) -> dict[str, ColumnStatistics]:
    """Return the statistics of each column over the `stats` of files. A column without any is left out.

    Texts may be cut by their writer, and rows that a vector deletes count, so they are bounds.
    """
    stats = [msgspec.json.decode(text) for text in documents if text]
    found = {}
    for name, physical in physical_paths(schema).items():
        least = _extreme([_at(one.get("minValues"), physical) for one in stats], min)
        most = _extreme([_at(one.get("maxValues"), physical) for one in stats], max)
        nulls = [_at(one.get("nullCount"), physical) for one in stats]
        if least is not None or most is not None or any(count is not None for count in nulls):
            counts = [count for count in nulls if isinstance(count, int)]
            found[".".join(name)] = ColumnStatistics(
                _shown(least), _shown(most), sum(counts) if len(counts) == len(nulls) else None
            )
    return found


def _at(value: Any, path: Iterable[str]) -> Any:
    for name in path:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def _extreme(values: list[Any], choose: Any) -> Any:
    """Return the smallest or the largest value. Numbers and texts are not compared with each other."""
    known = [value for value in values if isinstance(value, int | float | str)]
    if not known or len({isinstance(value, str) for value in known}) > 1:
        return None
    return choose(known)


def _shown(value: Any) -> str | None:
    if value is None:
        return None
    text = str(value)
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…"
