"""What a statement asks for. Expressions and queries are fragments of the text, as written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class Fragment:
    """Part of a text: an expression, a condition, a query, or columns of a table."""

    text: str
    start: int
    """Position of its first character in the whole text."""


@dataclass(frozen=True, slots=True)
class Name:
    """A table, named in a statement."""

    parts: tuple[str, ...]
    position: int

    def __str__(self) -> str:
        return ".".join(self.parts)


@dataclass(frozen=True, slots=True)
class Moment:
    """A version or a time, as written after AS OF: a literal, a parameter, or an expression for Spark."""

    kind: Literal["version", "timestamp"]
    value: Fragment


# -- rows --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Select:
    query: Fragment


@dataclass(frozen=True, slots=True)
class Values:
    """VALUES with one tuple of expressions for each row."""

    whole: Fragment
    rows: tuple[tuple[Fragment, ...], ...]


@dataclass(frozen=True, slots=True)
class Insert:
    table: Name
    source: Fragment | Values
    columns: tuple[str, ...] | None = None
    is_by_name: bool = False
    overwrites: bool = False
    replace_where: Fragment | None = None
    partition: tuple[tuple[str, Fragment | None], ...] = ()
    """Partition columns with their values; without one, the rows have it."""
    evolves: bool = False


@dataclass(frozen=True, slots=True)
class Assignment:
    column: str
    value: Fragment
    position: int


@dataclass(frozen=True, slots=True)
class Update:
    table: Name
    alias: str | None
    assignments: tuple[Assignment, ...]
    where: Fragment | None


@dataclass(frozen=True, slots=True)
class Delete:
    table: Name
    alias: str | None
    where: Fragment | None


@dataclass(frozen=True, slots=True)
class MergeClause:
    kind: Literal["matched", "not_matched", "not_matched_by_source"]
    action: Literal["update", "delete", "insert"]
    condition: Fragment | None
    assignments: tuple[Assignment, ...] | None
    """None: every column, from the source's column of the same name."""
    position: int


@dataclass(frozen=True, slots=True)
class Merge:
    table: Name
    alias: str | None
    source: Fragment
    """A query, as `SELECT * FROM name` if only a name was written."""
    source_alias: str
    on: Fragment
    clauses: tuple[MergeClause, ...]
    evolves: bool


@dataclass(frozen=True, slots=True)
class Truncate:
    table: Name


# -- tables ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreateTable:
    table: Name
    columns: Fragment | None = None
    query: Fragment | None = None
    partition_by: tuple[str, ...] = ()
    partition_columns: Fragment | None = None
    """Partition columns with types, which follow the other columns."""
    cluster_by: tuple[str, ...] = ()
    properties: dict[str, str] = field(default_factory=dict)
    comment: str | None = None
    location: str | None = None
    or_replace: bool = False
    must_exist: bool = False
    """REPLACE TABLE, which needs a table to replace."""
    if_not_exists: bool = False
    like: Name | None = None
    """The table whose columns, partitions and properties the new one gets."""


@dataclass(frozen=True, slots=True)
class CreateView:
    """CREATE TEMP VIEW: a query by a name, for the rest of the session."""

    view: Name
    query: Fragment
    columns: tuple[str, ...] = ()
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropView:
    view: Name
    if_exists: bool


@dataclass(frozen=True, slots=True)
class DropTable:
    table: Name
    if_exists: bool
    purge: bool


@dataclass(frozen=True, slots=True)
class Place:
    """FIRST, or AFTER a column."""

    after: str | None


@dataclass(frozen=True, slots=True)
class AddColumns:
    columns: Fragment
    """Columns as DDL; FIRST or AFTER may follow each."""


@dataclass(frozen=True, slots=True)
class RenameColumn:
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class DropColumns:
    names: tuple[str, ...]
    if_exists: bool


@dataclass(frozen=True, slots=True)
class ChangeColumn:
    """What ALTER COLUMN and CHANGE COLUMN say of one column; None where they say nothing."""

    name: str
    new_name: str | None = None
    type: Fragment | None = None
    comment: str | None = None
    nullable: bool | None = None
    default: Fragment | None = None
    drops_default: bool = False
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class SetProperties:
    properties: dict[str, str]


@dataclass(frozen=True, slots=True)
class UnsetProperties:
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AddConstraint:
    name: str
    condition: Fragment


@dataclass(frozen=True, slots=True)
class DropConstraint:
    name: str
    if_exists: bool


@dataclass(frozen=True, slots=True)
class ClusterBy:
    columns: tuple[str, ...]
    """Empty for NONE."""


@dataclass(frozen=True, slots=True)
class DropFeature:
    name: str
    truncates_history: bool


@dataclass(frozen=True, slots=True)
class RenameTable:
    new: Name


Alteration: TypeAlias = (
    AddColumns
    | RenameColumn
    | DropColumns
    | ChangeColumn
    | SetProperties
    | UnsetProperties
    | AddConstraint
    | DropConstraint
    | ClusterBy
    | DropFeature
    | RenameTable
)


@dataclass(frozen=True, slots=True)
class AlterTable:
    table: Name
    changes: tuple[Alteration, ...]


# -- descriptions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DescribeTable:
    table: Name
    is_extended: bool
    column: str | None = None


@dataclass(frozen=True, slots=True)
class DescribeHistory:
    table: Name
    limit: int | None


@dataclass(frozen=True, slots=True)
class DescribeDetail:
    table: Name


@dataclass(frozen=True, slots=True)
class ShowTables:
    pattern: str | None = None
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class ShowProperties:
    table: Name
    key: str | None


@dataclass(frozen=True, slots=True)
class ShowColumns:
    table: Name


@dataclass(frozen=True, slots=True)
class ShowPartitions:
    table: Name


@dataclass(frozen=True, slots=True)
class ShowCreate:
    table: Name


@dataclass(frozen=True, slots=True)
class Explain:
    query: Fragment
    mode: str
    """simple, extended, formatted, cost or codegen, as Spark names them."""


# -- maintenance -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Optimize:
    table: Name
    where: Fragment | None
    zorder_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Vacuum:
    table: Name
    retain_hours: float | None
    dry_run: bool
    is_full: bool


@dataclass(frozen=True, slots=True)
class Restore:
    table: Name
    moment: Moment


@dataclass(frozen=True, slots=True)
class Purge:
    """REORG TABLE … APPLY (PURGE)."""

    table: Name
    where: Fragment | None


@dataclass(frozen=True, slots=True)
class Generate:
    """GENERATE symlink_format_manifest FOR TABLE …."""

    table: Name
    mode: str


@dataclass(frozen=True, slots=True)
class Convert:
    """CONVERT TO DELTA parquet.`/lake/events`."""

    path: str
    position: int
    partition_columns: Fragment | None


# -- transactions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Begin:
    pass


@dataclass(frozen=True, slots=True)
class Commit:
    pass


@dataclass(frozen=True, slots=True)
class Rollback:
    pass


@dataclass(frozen=True, slots=True)
class Atomic:
    """BEGIN ATOMIC … END."""

    statements: tuple[Statement, ...]


Action: TypeAlias = (
    Select
    | Insert
    | Update
    | Delete
    | Merge
    | Truncate
    | CreateTable
    | CreateView
    | DropView
    | DropTable
    | AlterTable
    | DescribeTable
    | DescribeHistory
    | DescribeDetail
    | ShowTables
    | ShowProperties
    | ShowColumns
    | ShowPartitions
    | ShowCreate
    | Explain
    | Optimize
    | Vacuum
    | Restore
    | Purge
    | Generate
    | Convert
    | Begin
    | Commit
    | Rollback
    | Atomic
)


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of a text."""

    action: Action
    position: int
    text: str
    """The statement alone, as written."""
