"""The calls of a catalog that say what happened in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from deltars import catalog
from deltars.arguments import checks_calls
from deltars.session import CatalogSession, TableLike

if TYPE_CHECKING:
    from deltars.catalog import ConflictDetail, LineageEdge, TransactionSummary
    from deltars.log.moments import Moment


@checks_calls
class ActivityCalls:
    """Part of `Catalog`: its transactions, conflicts and lineage."""

    _session: CatalogSession

    def activity(
        self,
        *,
        since: Moment | None = None,
        until: Moment | None = None,
        tables: Sequence[TableLike] | None = None,
        operation: str | None = None,
        committer: str | None = None,
        limit: int = 100,
    ) -> list[TransactionSummary]:
        """Return committed transactions, newest first, with the versions that they made and what they read.

        `since` and `until` are times; `until` is not included. With `tables`, `operation` or `committer`, only
        transactions that match in one of their tables are returned, whole.
        """
        return catalog.recent_transactions(
            self._session,
            since=since,
            until=until,
            tables=tables,
            operation=operation,
            committer=committer,
            limit=limit,
        )

    def conflicts(
        self, *, since: Moment | None = None, tables: Sequence[TableLike] | None = None, limit: int = 100
    ) -> list[ConflictDetail]:
        """Return transactions that lost a race, newest first: by which rule, and to which commit.

        They are recorded unless the setting `record_activity` is false, and kept as long as the table's history.
        """
        return catalog.lost_races(self._session, since=since, tables=tables, limit=limit)

    def lineage(self, table: TableLike, *, downstream: bool = False, depth: int = 3) -> list[LineageEdge]:
        """Return the tables that commits of this table read, and so on for `depth` steps, the nearest first.

        With `downstream`, return the tables whose commits read this one. Only reads inside a transaction count
        (`tx.read`, `tx.to_arrow` and others, `tx.merge`); they are recorded unless `record_activity` is false.
        """
        return catalog.lineage_of(self._session, table, downstream=downstream, depth=depth)
