"""Column types with the same meaning on every backend.

| here        | PostgreSQL  | SQLite                   | DuckDB      |
|-------------|-------------|--------------------------|-------------|
| `Id`        | uuid        | text, 36 characters      | UUID        |
| `json_type` | jsonb       | text                     | JSON        |
| `Instant`   | timestamptz | text, ISO 8601 in UTC    | TIMESTAMPTZ |
| `bounds_type` | float8[]    | text, a JSON array       | DOUBLE[]    |
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ARRAY, JSON, DateTime, Dialect, Double, Text, Uuid
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.types import TypeDecorator, TypeEngine


def json_type() -> JSON:
    # none_as_null: an absent document is SQL NULL, never the JSON value null.
    return JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


class Id(TypeDecorator[UUID]):
    """UUID; SQLite stores it as text."""

    impl = Uuid
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(Text() if dialect.name == "sqlite" else Uuid())

    def process_bind_param(self, value: UUID | str | None, dialect: Dialect) -> UUID | str | None:
        if value is None:
            return None
        return str(value) if dialect.name == "sqlite" else UUID(str(value))

    def process_result_value(self, value: Any, dialect: Dialect) -> UUID | None:
        return None if value is None else value if isinstance(value, UUID) else UUID(value)


class Instant(TypeDecorator[datetime]):
    """Point in time, with a precision of microseconds."""

    impl = DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(Text() if dialect.name == "sqlite" else DateTime(timezone=True))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | str | None:
        if value is None or dialect.name != "sqlite":
            return value
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        return moment.astimezone(UTC)


def bounds_type() -> TypeEngine[Any]:
    return ARRAY(Double()).with_variant(Text(), "sqlite")
