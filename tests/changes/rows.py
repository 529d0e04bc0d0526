"""Changed rows in a form that can be compared."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa


def events(rows: pa.Table) -> list[tuple[int, str, int]]:
    """Version, change type and id of each row."""
    columns = (rows[name].to_pylist() for name in ("_commit_version", "_change_type", "id"))
    return list(zip(*columns, strict=True))


def sorted_events(rows: pa.Table, *, without: tuple[str, ...] = ()) -> list[str]:
    """Every column of the rows as text, in the order of the text."""
    kept = [name for name in rows.column_names if name not in without]
    return sorted(repr([_plain(row[name]) for name in kept]) for row in rows.select(kept).to_pylist())


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        # deltalake gives times of commits without a zone.
        return (value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)).isoformat()
    if isinstance(value, dict):
        return [(name, _plain(inner)) for name, inner in value.items()]
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value
