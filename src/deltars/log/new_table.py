"""A table before its first commit."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

NO_VERSION = -1
"""The current version of a table before its first commit."""


@dataclass(frozen=True, slots=True)
class NewTable:
    """A table that the commit of its version 0 creates."""

    table_id: UUID
    name: str
    location: str
