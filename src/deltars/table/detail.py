"""A table at a glance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID


@dataclass(frozen=True, slots=True)
class TableDetail:
    """What there is to know of a table without reading its rows, all of one version."""

    id: UUID
    name: str
    location: str
    description: str | None
    created_at: datetime
    version: int
    last_modified: datetime
    partition_columns: tuple[str, ...]
    properties: Mapping[str, str]
    min_reader_version: int
    min_writer_version: int
    table_features: tuple[str, ...]
    num_files: int
    size_bytes: int
    num_records: int | None
    """None where some file has no statistics that count them."""
