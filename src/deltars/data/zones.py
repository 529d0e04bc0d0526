"""Time zones: Arrow computes in UTC, and Spark in the session's zone."""

from __future__ import annotations

import re

from deltars.predicate import named_in
from deltars.protocol import PrimitiveType, StructField, StructType

UTC = ("UTC", "Etc/UTC", "Z", "+00:00", "GMT")
"""Names of UTC. In a session with another zone, only Spark has the result of what depends on it."""

_TIMES = re.compile(r"timestamp|current_|now\s*\(|date|unix", re.IGNORECASE)


def depends_on_zone(text: str, *schemas: StructType) -> bool:
    """Return whether an expression on columns of these schemas may have another result in another time zone."""
    names = [field.name for schema in schemas for field in schema.fields if has_moments(field)]
    return _TIMES.search(text) is not None or bool(named_in(text, names))


def has_moments(field: StructField) -> bool:
    """Return whether a column has timestamps with a time zone, maybe inside."""
    types = StructType((field,)).types()
    return any(isinstance(type_, PrimitiveType) and type_.name == "timestamp" for type_ in types)
