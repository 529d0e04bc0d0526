"""Row-level changes as data: the statements, and what carrying one out gives.

    Delete | Update | Merge ──ChangePlane──▶ RowChanges ──transaction──▶ vectors, or files rewritten without the rows

A statement has the table's current schema: names are resolved, `*` is expanded, and new columns of a merge are added,
before a plane sees it. A plane finds the rows that go and makes the rows that come. It stores nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from deltars.data.scan import Scan
from deltars.data.write_target import WriteTarget, WrittenFile
from deltars.errors import ValidationError
from deltars.predicate import Column, Value
from deltars.protocol import StructType

if TYPE_CHECKING:
    from pyroaring import BitMap64

Expression: TypeAlias = Any
"""SQL text, or a Spark Column."""

Positions: TypeAlias = "Mapping[int, BitMap64]"
"""Numbers of rows in each file, counted from 0. The key is the file's place in `Scan.files`.

Rows that the file's deletion vector has deleted before are not in it.
"""


@dataclass(frozen=True, slots=True)
class Delete:
    """DELETE: rows for which `where` is true go. None deletes every row."""

    where: Expression | None
    alias: str | None = None
    """Name of the table in Spark Columns."""


@dataclass(frozen=True, slots=True)
class Update:
    """UPDATE: rows for which `where` is true get new values."""

    values: Mapping[str, Expression]
    """New value of each assigned column. A name is spelt as in the schema; `a.b` is the field b of the struct a."""
    where: Expression | None
    alias: str | None = None
    """Name of the table in Spark Columns."""


ClauseKind: TypeAlias = Literal["matched", "not_matched", "not_matched_by_source"]


@dataclass(frozen=True, slots=True)
class Clause:
    """One WHEN clause of a merge. The first clause of its kind whose condition is true for a row applies."""

    kind: ClauseKind
    action: Literal["update", "delete", "insert"]
    condition: Expression | None = None
    values: Mapping[str, Expression] = field(default_factory=dict)
    """Values of an update or an insert, as in `Update.values`. An insert gives other columns their default or null."""
    is_source: bool = False
    """Whether the values are the columns of the same name of the source, one for every column of the table."""


@dataclass(frozen=True, slots=True)
class Merge:
    """MERGE: `on` and the clauses refer to the two sides by their aliases, or without one if that is unambiguous."""

    source: object
    on: Expression
    clauses: Sequence[Clause]
    target_alias: str = "t"
    source_alias: str = "s"
    has_feed: bool = False
    """Whether inserted rows must come apart from updated ones, because the table has a change data feed."""

    def of_kind(self, kind: ClauseKind) -> list[Clause]:
        return [clause for clause in self.clauses if clause.kind == kind]

    @property
    def is_only_delete(self) -> bool:
        """Whether several source rows may match one target row: it is deleted whichever counts."""
        matched = self.of_kind("matched")
        return len(matched) == 1 and matched[0].action == "delete" and matched[0].condition is None


def several_matches() -> ValidationError:
    """Return the error for a target row that several source rows match, if a clause changes it."""
    return ValidationError(
        "multiple source rows matched one row of the table, so its new values are ambiguous",
        field="source",
        hint="Remove duplicate keys from the source, or make the clauses' conditions exclusive.",
    )


@dataclass(frozen=True, slots=True)
class KeyValues:
    """Values of one key column of a merge's source that can match: without null."""

    column: Column
    """Column of the target."""
    smallest: Value
    largest: Value
    values: Sequence[Value] | None = None
    """All distinct values in ascending order; None if they are too many."""


@dataclass(frozen=True, slots=True)
class MergeSource:
    """A merge's source, read once. Every use of `frame` gives the same rows."""

    frame: object
    schema: StructType
    num_rows: int
    keys: Sequence[KeyValues] | None = ()
    """Keys that `on` demands to be equal. None if no source row can match: it has none, or a key is always null."""
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class RowChanges:
    """What a statement changes: rows that go, by position, and rows that come."""

    positions: Positions
    """Rows that are deleted or replaced."""
    rows: Sequence[object] = ()
    """Frames of the plane's kind with the rows that come: updated and inserted ones. Each has columns of the table.
    A column that a frame lacks gets its default, its generated value, or null."""
    inserted_rows: Sequence[object] = ()
    """Frames with inserted rows, if they come apart from updated ones (`Merge.has_feed`)."""
    replaced: Positions = field(default_factory=dict)
    """Rows of `positions` that are replaced. The others are deleted."""
    updated: int = 0
    deleted: int = 0
    inserted: int = 0
    metrics: Mapping[str, int] = field(default_factory=dict)
    """More metrics under Delta's names, such as those of the clauses of a merge."""


@dataclass(frozen=True, slots=True)
class FeedRows:
    """Rows of one file of a scan that belong to the change data feed."""

    rows: BitMap64 | None
    """Their positions; None for all rows of the file."""
    change_type: str


class ChangePlane(Protocol):
    """What carries out row-level changes: Arrow in this process, or Spark."""

    @property
    def is_distributed(self) -> bool:
        """Whether other processes do the work if there is much of it."""

    def delete(self, scan: Scan, statement: Delete) -> RowChanges: ...

    def update(self, scan: Scan, statement: Update) -> RowChanges: ...

    def source(self, statement: Merge, target: StructType) -> MergeSource:
        """Read the source of a merge, once, and find the values of its keys."""

    def merge(self, scan: Scan, statement: Merge, source: MergeSource) -> RowChanges:
        """Raise ValidationError if several source rows match a row that a clause changes."""

    def purge(self, scan: Scan, positions: Positions, target: WriteTarget) -> Mapping[int, Sequence[WrittenFile]]:
        """Write each of these files again without the rows, and without those its vector deleted. Keep their order.

        The result has the new files of each file, none if no row is left.
        """

    def write_feed(self, scan: Scan, rows: Sequence[FeedRows], target: WriteTarget) -> list[WrittenFile]:
        """Write these rows as files of the change data feed: those of each file of the scan, in its order."""
