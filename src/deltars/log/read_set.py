"""What a transaction read of a table, recorded to be checked against concurrent commits.

tx.read, tx.files                  file-level    rows were handed out: every change of a file that held them counts
tx.delete, tx.update, tx.merge     row-level     rows were looked for, to change them: changes of other rows do not
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

FileKey: TypeAlias = tuple[str, str]
"""Path and deletion vector id, which identify a file in the Delta protocol."""


@dataclass(frozen=True, slots=True)
class Added:
    """A file that a concurrent commit added."""

    path: str
    dv_id: str = ""
    partition_values: str | None = None
    """JSON text."""
    stats: str | None = None
    data_change: bool = True


class FilePredicate(Protocol):
    """A predicate that a transaction read files with."""

    def could_match(self, file: Added) -> bool:
        """Return whether a row of the file may match; True if that is not known."""


@dataclass(frozen=True, slots=True)
class RowRead:
    """Rows that a statement looked for to change them. Rows that do not match are no part of it."""

    conditions: tuple[FilePredicate, ...] = ()
    """A file may hold a matching row if all of them could match. Without any, every file may."""
    files: frozenset[FileKey] = frozenset()
    """Files that were searched."""
    changes_matches: bool = False
    """Whether the statement changes every matching row, as DELETE and UPDATE do.

    Then a file that it searched and does not change held no matching row.
    """
    row_filter: object | None = None
    """Exact test of rows (`data.reader.RowFilter`). The rules only ask whether there is one."""

    def could_match(self, file: Added) -> bool:
        return all(condition.could_match(file) for condition in self.conditions)


@dataclass(frozen=True, slots=True)
class Reads:
    """What a transaction read of one table."""

    whole_table: bool = False
    predicates: tuple[FilePredicate, ...] = ()
    files: frozenset[FileKey] = frozenset()
    app_ids: frozenset[str] = frozenset()
    metadata: bool = False
    rows: tuple[RowRead, ...] = ()
    """Row-level reads. The other fields record file-level reads."""

    @property
    def has_rows(self) -> bool:
        """Return whether the transaction read rows, even if the read found none."""
        return self.whole_table or bool(self.predicates) or bool(self.files) or bool(self.rows)

    @property
    def is_empty(self) -> bool:
        return not (self.has_rows or self.app_ids or self.metadata)


NOTHING_READ = Reads()
