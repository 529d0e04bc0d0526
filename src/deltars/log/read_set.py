"""What a transaction read of a table, recorded to be checked against concurrent commits."""

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
class Reads:
    """What a transaction read of one table."""

    whole_table: bool = False
    predicates: tuple[FilePredicate, ...] = ()
    files: frozenset[FileKey] = frozenset()
    app_ids: frozenset[str] = frozenset()
    metadata: bool = False

    @property
    def has_rows(self) -> bool:
        """Return whether the transaction read rows, even if the read found none."""
        return self.whole_table or bool(self.predicates) or bool(self.files)

    @property
    def is_empty(self) -> bool:
        return not (self.has_rows or self.app_ids or self.metadata)


NOTHING_READ = Reads()
