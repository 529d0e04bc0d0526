"""A commit as data: what is asked of the store, and what it answers.

    Commit(txn_id, tables=(TableCommit(…), …)) ──store──▶ Committed | VersionTaken

A lost race is an answer, not an exception: the exception is born at the edge, where a user called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias
from uuid import UUID

import pyarrow as pa

from deltars.protocol import Action, Metadata, Protocol, check_protocol

NO_VERSION = -1
"""The current version of a table that nothing was committed to yet."""


@dataclass(frozen=True, slots=True)
class RowGroup:
    """What the writer of a Parquet file knew about one of its row groups."""

    path: str
    ordinal: int
    num_rows: int
    total_bytes: int
    file_offset: int | None = None
    stats: str | None = None


@dataclass(frozen=True, slots=True)
class NewTable:
    """A table that comes into being with the commit of its version 0."""

    table_id: UUID
    name: str
    location: str


@dataclass(frozen=True)
class TableState:
    """What must be known of a table to judge a commit to it. `None` before version 0."""

    metadata: Metadata | None = None
    protocol: Protocol | None = None

    @cached_property
    def protocol_problem(self) -> str | None:
        """Why nobody here may write to the table."""
        return None if self.protocol is None else check_protocol(self.protocol)


@dataclass(frozen=True, slots=True)
class TableCommit:
    """One table's part of a commit: its actions become the version after `expected_version`."""

    table_id: UUID
    expected_version: int
    actions: Sequence[Action]
    operation: str
    operation_params: Mapping[str, Any] = field(default_factory=dict)
    adds: pa.Table | None = None
    """Add actions as columns, named as the fields of `AddFile`: a million files need no million objects."""
    row_groups: Sequence[RowGroup] = ()
    metrics: Mapping[str, str] = field(default_factory=dict)
    tolerate_missing: bool = False
    """Whether removing a file that is not live is passed over."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One transaction over one or more tables."""

    txn_id: UUID
    tables: Sequence[TableCommit]
    new_tables: Sequence[NewTable] = ()
    committer: str | None = None
    user_metadata: str | None = None
    isolation: str = "strict"
    is_repeatable: bool = False
    """Whether the caller chose the id, and so may be asking again for what is committed already."""

    @property
    def existing_tables(self) -> list[UUID]:
        new = {table.table_id for table in self.new_tables}
        return [table.table_id for table in self.tables if table.table_id not in new]


@dataclass(frozen=True, slots=True)
class Committed:
    """The commit stands: one `commit_ts` (µs) for the whole transaction."""

    txn_id: UUID
    commit_ts: int
    versions: Mapping[UUID, int]


@dataclass(frozen=True, slots=True)
class VersionTaken:
    """Somebody else was first; nothing was changed."""

    table_id: UUID
    table: str
    expected: int
    actual: int


CommitOutcome: TypeAlias = Committed | VersionTaken
