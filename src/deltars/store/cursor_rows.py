"""Rows directly from the driver's cursor, selected so that every driver returns the same types.

    columns ──▶ select(…): documents and ids as text, booleans as numbers ──▶ a row ──▶ {name: value}

SQLAlchemy's own results cost several times as much, which matters for every commit that is published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import JSON, Boolean, Column, ColumnElement, Integer, Text, cast

from deltars.store.types import Id


class PlainRows:
    """Columns to select, and the conversion of their rows."""

    def __init__(self, columns: Iterable[Column[Any]]) -> None:
        chosen = list(columns)
        self.columns: list[ColumnElement[Any]] = [_selected(column) for column in chosen]
        """Expressions to select."""
        self._names = [column.name for column in chosen]
        self._readers = [_reader(column) for column in chosen]

    def read(self, row: Sequence[Any]) -> dict[str, Any]:
        return {
            name: value if value is None or reader is None else reader(value)
            for name, reader, value in zip(self._names, self._readers, row, strict=True)
        }


def _selected(column: Column[Any]) -> ColumnElement[Any]:
    match column.type:
        case JSON() | Id():
            return cast(column, Text).label(column.name)
        case Boolean():
            return cast(column, Integer).label(column.name)
        case _:
            return column


def _reader(column: Column[Any]) -> Callable[[Any], Any] | None:
    match column.type:
        case JSON():
            return _decode
        case Id():
            return UUID
        case Boolean():
            return bool
        case _:
            return None


_decode = msgspec.json.Decoder().decode
