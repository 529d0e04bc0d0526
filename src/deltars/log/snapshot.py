"""A table at one version, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import pyarrow as pa

from deltars.protocol import Metadata, Protocol, StructType


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a table is at one version. `files` are the live files: path, size, partition values and so on."""

    table_id: UUID
    version: int
    metadata: Metadata
    protocol: Protocol
    files: pa.Table

    @property
    def schema(self) -> StructType:
        return self.metadata.schema


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One commit of a table."""

    version: int
    committed_at: datetime
    txn_id: UUID
    operation: str
    committer: str | None = None
    operation_params: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    read_version: int | None = None
    isolation: str | None = None
    is_blind_append: bool | None = None
    user_metadata: str | None = None
    commit_ts: int = 0
    in_commit_timestamp: int = 0
