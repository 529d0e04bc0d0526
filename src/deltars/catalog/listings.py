"""Lists that a notebook shows as tables. In programs they are lists, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from deltars import catalog, transaction
from deltars.errors import DeltarsError

if TYPE_CHECKING:
    from uuid import UUID

    from deltars.catalog.table import Table
    from deltars.log import HistoryEntry
    from deltars.session import CatalogSession

DRAWN_VERSIONS = 300
"""Newest versions of a history that its drawings show."""


class TableList(list["Table"]):
    """Tables of a catalog."""

    def _repr_html_(self) -> str:
        rows = [(table.name, table._record.current_version, table.location, table.id) for table in self]
        return transaction.html_table(_counted(len(self), "table"), ("name", "version", "location", "id"), rows)


class HistoryList(list["HistoryEntry"]):
    """Commits of a table, newest first. A notebook also draws its rows, files and bytes over these versions."""

    def __init__(self, entries: Iterable[HistoryEntry], session: CatalogSession, table_id: UUID) -> None:
        super().__init__(entries)
        self._session = session
        self._table_id = table_id

    def _repr_html_(self) -> str:
        heads = ("version", "committed_at", "operation", "committer", "user_metadata", "txn_id")
        rows = [[getattr(entry, name) for name in heads] for entry in self]
        drawings = growth_html(self._session, self._table_id, self)
        return drawings + transaction.html_table(_counted(len(self), "commit"), heads, rows)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a plain list, without the catalog."""
        return list, (list(self),)


def growth_html(session: CatalogSession, table_id: UUID, history: Sequence[HistoryEntry]) -> str:
    """Return rows, files and bytes of a table over these versions as drawings; empty if they cannot be drawn."""
    if len(history) < 2:
        return ""
    first, *_, last = sorted(entry.version for entry in history)
    try:
        lines = catalog.table_growth(session, table_id, max(first, last - DRAWN_VERSIONS), last)
    except DeltarsError:
        # The catalog is closed, or these versions are expired: the rest is shown without drawings.
        return ""
    return f"<div>{''.join(map(catalog.line_html, lines))}</div>"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
