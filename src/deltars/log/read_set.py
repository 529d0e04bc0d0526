"""What a transaction read of a table: remembered, so that it can be held against what others committed meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

FileKey: TypeAlias = tuple[str, str]
"""Path and id of the deletion vector: what the protocol identifies a file by."""


@dataclass(frozen=True, slots=True)
class Added:
    """A file that a winner added."""

    path: str
    dv_id: str = ""
    partition_values: str | None = None
    """Their JSON."""
    stats: str | None = None
    data_change: bool = True


class FilePredicate(Protocol):
    """A predicate that files were read by."""

    def could_match(self, file: Added) -> bool:
        """Whether a row of the file may fulfil it. In doubt it may."""


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
        """Whether rows were read, or would have been, had there been any."""
        return self.whole_table or bool(self.predicates) or bool(self.files)

    @property
    def is_empty(self) -> bool:
        return not (self.has_rows or self.app_ids or self.metadata)


NOTHING_READ = Reads()
