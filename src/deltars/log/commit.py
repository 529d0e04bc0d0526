"""A commit as data: what is asked of the store, and what it answers.

    Commit(txn_id, tables=(TableCommit(…), …)) ──store──▶ Committed | VersionTaken

A lost race is an answer, not an exception: the exception is born at the edge, where a user called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias, get_args
from uuid import UUID

import pyarrow as pa

from deltars.config import Isolation
from deltars.errors import VersionConflict
from deltars.log.read_set import NOTHING_READ, Reads
from deltars.protocol import Action, Metadata, Protocol, check_protocol

ISOLATION_LEVELS: tuple[Isolation, ...] = get_args(Isolation)

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
class TableRead:
    """What was read of a table, and at which version."""

    version: int
    reads: Reads


@dataclass(frozen=True, slots=True)
class Base:
    """The version of a table that a transaction began with, and when that was committed."""

    version: int
    commit_ts: int


@dataclass(frozen=True, slots=True)
class Commit:
    """One transaction over one or more tables."""

    txn_id: UUID
    tables: Sequence[TableCommit]
    new_tables: Sequence[NewTable] = ()
    committer: str | None = None
    user_metadata: str | None = None
    isolation: Isolation = "strict"
    read: Mapping[UUID, TableRead] = field(default_factory=dict)
    """What the transaction read, of tables that it writes and of others."""
    is_repeatable: bool = False
    """Whether the caller chose the id, and so may be asking again for what is committed already."""
    bases: Mapping[UUID, Base] = field(default_factory=dict)
    """What each table was at the beginning, where that is known: told apart from another version of the same number."""

    @property
    def existing_tables(self) -> list[UUID]:
        new = {table.table_id for table in self.new_tables}
        return [table.table_id for table in self.tables if table.table_id not in new]

    @property
    def checked_reads(self) -> dict[UUID, TableRead]:
        """The tables that were only read, and must not have changed in a way that matters."""
        if self.isolation == "snapshot":
            return {}
        written = {table.table_id for table in self.tables}
        return {table_id: read for table_id, read in self.read.items() if table_id not in written}

    def checked_from(self, table: TableCommit) -> int:
        """The version that a written table is checked against: the one its actions were made for, or an earlier one
        that was read."""
        read = self.read.get(table.table_id)
        if read is None or self.isolation == "snapshot":
            return table.expected_version
        return min(read.version, table.expected_version)

    def reads_of(self, table_id: UUID) -> Reads:
        read = self.read.get(table_id)
        return NOTHING_READ if read is None else read.reads


@dataclass(frozen=True, slots=True)
class Committed:
    """The commit stands: one `commit_ts` (µs) for the whole transaction."""

    txn_id: UUID
    commit_ts: int
    versions: Mapping[UUID, int]


@dataclass(frozen=True, slots=True)
class Conflict:
    """Why a commit cannot follow a winner. `rule` is the error that it becomes at the edge."""

    rule: type[VersionConflict]
    version: int
    reason: str


@dataclass(frozen=True, slots=True)
class VersionTaken:
    """Somebody else was first; nothing was changed."""

    table_id: UUID
    table: str
    expected: int
    actual: int
    conflict: Conflict | None = None
    """What of it was in the way, where the level of isolation asks."""


CommitOutcome: TypeAlias = Committed | VersionTaken

__all__ = [
    "ISOLATION_LEVELS",
    "NO_VERSION",
    "Base",
    "Commit",
    "CommitOutcome",
    "Committed",
    "Conflict",
    "Isolation",
    "NewTable",
    "RowGroup",
    "TableCommit",
    "TableRead",
    "TableState",
    "VersionTaken",
]
