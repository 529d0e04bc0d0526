"""A commit as data: the request to the store, and its result.

    Commit(txn_id, tables=(TableCommit(…), …)) ──store──▶ Committed | VersionTaken

A lost race is a result, not an exception. `Transaction.commit` turns it into the exception that users see.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias
from uuid import UUID

import pyarrow as pa

from deltars.config import Isolation
from deltars.errors import VersionConflict
from deltars.log.new_table import NO_VERSION, NewTable
from deltars.log.read_set import NOTHING_READ, Reads
from deltars.log.table_state import TableState
from deltars.protocol import Action


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group of a Parquet file, as its writer recorded it."""

    path: str
    ordinal: int
    num_rows: int
    total_bytes: int
    file_offset: int | None = None
    stats: str | None = None


@dataclass(frozen=True, slots=True)
class TableCommit:
    """One table's part of a commit. Its actions were made for `expected_version`.

    They become the next version, or a later one if the isolation level allows commits in between (a rebase).
    """

    table_id: UUID
    expected_version: int
    actions: Sequence[Action]
    operation: str
    operation_params: Mapping[str, Any] = field(default_factory=dict)
    adds: pa.Table | None = None
    """Add actions as columns named like the fields of `AddFile`, so that a million files need no million objects."""
    row_groups: Sequence[RowGroup] = ()
    metrics: Mapping[str, str] = field(default_factory=dict)
    tolerate_missing: bool = False
    """Whether to ignore the removal of a file that is not live."""
    is_exact: bool = False
    """Whether to refuse every newer version, at any isolation level."""
    restores: frozenset[int] = frozenset()
    """Older versions whose files are added again: a vacuum may be deleting them."""
    drops_features: frozenset[str] = frozenset()
    """Table features that the commit may drop: no live file and no metadata uses them any more."""


@dataclass(frozen=True, slots=True)
class TableRead:
    """What a transaction read of a table, and at which version."""

    version: int
    reads: Reads


@dataclass(frozen=True, slots=True)
class Base:
    """The version of a table when a transaction began, and its `commit_ts`."""

    version: int
    commit_ts: int


@dataclass(frozen=True, slots=True)
class Drop:
    """A table that the commit drops, and its version when the transaction began."""

    table_id: UUID
    expected_version: int


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
    """What the transaction read, by table; tables that it writes are included."""
    is_repeatable: bool = False
    """Whether the caller chose the id, so that this commit may repeat one that already succeeded."""
    bases: Mapping[UUID, Base] = field(default_factory=dict)
    """The version of each table at the beginning, where known. Its `commit_ts` distinguishes it from another version
    with the same number, which a restored database may have."""
    drops: Sequence[Drop] = ()
    """Tables that it drops. They get no version, and are none of `tables`."""
    announced: frozenset[UUID] = frozenset()
    """Tables for which the transaction announced itself as a writer."""
    spent: Mapping[str, float] = field(default_factory=dict, compare=False)
    """Seconds of each stage until the commit began (`log.stages`)."""

    @property
    def existing_tables(self) -> list[UUID]:
        """Return the tables that are locked before anything is checked."""
        new = {table.table_id for table in self.new_tables}
        written = [table.table_id for table in self.tables if table.table_id not in new]
        return [*written, *(drop.table_id for drop in self.drops)]

    @property
    def checked_reads(self) -> dict[UUID, TableRead]:
        """Return the reads of tables that are not written: they are checked for conflicts too."""
        if self.isolation == "snapshot":
            return {}
        written = {table.table_id for table in self.tables}
        return {table_id: read for table_id, read in self.read.items() if table_id not in written}

    def checked_from(self, table: TableCommit) -> int:
        """Return the version after which other commits to a written table are checked for conflicts.

        It is the version that the actions were made for, or an earlier one that the transaction read.
        """
        read = self.read.get(table.table_id)
        if read is None or self.isolation == "snapshot":
            return table.expected_version
        return min(read.version, table.expected_version)

    def reads_of(self, table_id: UUID) -> Reads:
        read = self.read.get(table_id)
        return NOTHING_READ if read is None else read.reads


@dataclass(frozen=True, slots=True)
class Committed:
    """The commit succeeded. The whole transaction has one `commit_ts` (µs)."""

    txn_id: UUID
    commit_ts: int
    versions: Mapping[UUID, int]
    next_version: Callable[[], Any] | None = field(default=None, repr=False, compare=False)
    """Makes the version for the mirror (`store.commit.next_version`), if it was committed just now and is the next one
    to publish."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """Why a commit conflicts with a concurrent one. `rule` is the error class that users see."""

    rule: type[VersionConflict]
    version: int
    reason: str


@dataclass(frozen=True, slots=True)
class RowsChanged:
    """Rows of a file that a concurrent commit added, removed, or deleted by a new deletion vector."""

    kind: Literal["added", "removed", "vector"]
    path: str
    old_dv_id: str = ""
    """Vector of the file that was removed."""
    new_dv_id: str = ""
    """Vector of the file that was added."""
    tested_by: tuple[int, ...] = ()
    """Row-level reads, by their place in `Reads.rows`, that must not match a changed row."""
    is_mine: bool = False
    """Whether this transaction changes rows of the file too, by its own vector."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A conflict found by the log alone."""

    conflict: Conflict
    unless: RowsChanged | None = None
    """Rows to look at: the conflict is settled if no row was changed that this transaction read or changes. None if
    the conflict is certain."""

    @property
    def is_hard(self) -> bool:
        return self.unless is None


@dataclass(frozen=True, slots=True)
class VersionTaken:
    """Another transaction committed first; nothing was changed."""

    table_id: UUID
    table: str
    expected: int
    actual: int
    conflict: Conflict | None = None
    """The rule that was broken; None if no rule was evaluated, as at isolation `strict`."""
    obstacles: Sequence[Obstacle] = ()
    """Everything that prevents a commit after `actual`, if all of it can be settled."""
    reads: Reads = NOTHING_READ
    """What was read, as of `actual`, if the obstacles are settled."""
    head: Base | None = None
    """The version `actual`, if there are obstacles to settle."""


CommitOutcome: TypeAlias = Committed | VersionTaken

__all__ = [
    "NO_VERSION",
    "Base",
    "Commit",
    "CommitOutcome",
    "Committed",
    "Conflict",
    "Drop",
    "Isolation",
    "NewTable",
    "Obstacle",
    "RowGroup",
    "RowsChanged",
    "TableCommit",
    "TableRead",
    "TableState",
    "VersionTaken",
]
