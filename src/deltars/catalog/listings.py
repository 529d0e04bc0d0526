"""Lists that a notebook shows as tables: they are lists, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltars import transaction

if TYPE_CHECKING:
    from deltars.catalog.table import Table
    from deltars.log import HistoryEntry


class TableList(list["Table"]):
    """Tables of a catalog."""

    def _repr_html_(self) -> str:
        rows = [(table.name, table._record.current_version, table.location, table.id) for table in self]
        return transaction.html_table(_counted(len(self), "table"), ("name", "version", "location", "id"), rows)


class HistoryList(list["HistoryEntry"]):
    """Commits of a table, newest first."""

    def _repr_html_(self) -> str:
        heads = ("version", "committed_at", "operation", "committer", "user_metadata", "txn_id")
        rows = [[getattr(entry, name) for name in heads] for entry in self]
        return transaction.html_table(_counted(len(self), "commit"), heads, rows)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
