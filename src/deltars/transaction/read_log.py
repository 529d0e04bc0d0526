"""What a transaction has read so far of each table, and at which version."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from deltars.log.commit import TableRead
from deltars.log.pruning import Pruner
from deltars.log.read_set import FileKey, FilePredicate, Reads, RowRead


@dataclass(slots=True)
class _TableLog:
    version: int
    whole_table: bool = False
    predicates: list[FilePredicate] = field(default_factory=list)
    files: set[FileKey] = field(default_factory=set)
    app_ids: set[str] = field(default_factory=set)
    rows: list[RowRead] = field(default_factory=list)


class ReadLog:
    """Record of a transaction's reads, for the conflict rules."""

    def __init__(self) -> None:
        self._tables: dict[UUID, _TableLog] = {}

    def whole_table(self, table_id: UUID, version: int) -> None:
        self._table(table_id, version).whole_table = True

    def matching(self, table_id: UUID, version: int, pruner: Pruner, files: Iterable[FileKey]) -> None:
        table = self._table(table_id, version)
        table.predicates.append(pruner)
        table.files.update(files)

    def rows(self, table_id: UUID, version: int, read: RowRead) -> None:
        """Record rows that a statement looked for to change them."""
        self._table(table_id, version).rows.append(read)

    def application(self, table_id: UUID, version: int, app_id: str) -> None:
        self._table(table_id, version).app_ids.add(app_id)

    @property
    def tables(self) -> Collection[UUID]:
        """Tables that were read, in whole or in part."""
        return self._tables.keys()

    def by_table(self) -> Mapping[UUID, TableRead]:
        return {
            table_id: TableRead(
                table.version,
                Reads(
                    table.whole_table,
                    tuple(table.predicates),
                    # A whole table needs no list: every file that is removed from it was read.
                    frozenset() if table.whole_table else frozenset(table.files),
                    frozenset(table.app_ids),
                    metadata=True,
                    rows=tuple(table.rows),
                ),
            )
            for table_id, table in self._tables.items()
        }

    def _table(self, table_id: UUID, version: int) -> _TableLog:
        return self._tables.setdefault(table_id, _TableLog(version))
