"""Row-level changes of one table, each in its own transaction."""

from __future__ import annotations

from typing import Any, Unpack
from uuid import UUID

from deltars.data.row_change import Expression
from deltars.session import CatalogSession
from deltars.transaction import Transaction
from deltars.transaction.assignments import Assignments
from deltars.transaction.change_metrics import ChangeMetrics
from deltars.transaction.merge_builder import GivenMerge, MergeBuilder, merge_builder
from deltars.transaction.options import ChangeOptions
from deltars.transaction.plane import Frame


class TableChanges:
    """The row-level changes of `Table`. Each call is one transaction with isolation "serializable"."""

    _session: CatalogSession

    @property
    def id(self) -> UUID:
        raise NotImplementedError

    def delete(self, where: Expression | None = None, **options: Unpack[ChangeOptions]) -> ChangeMetrics:
        """Delete the rows for which `where` is true, in one transaction; without it, every row.

        Condition and options are those of `Transaction.delete`.
        """
        with Transaction(self._session, isolation="serializable") as tx:
            return tx.delete(self.id, where, **options)

    def update(
        self,
        set: Assignments,
        where: Expression | None = None,
        **options: Unpack[ChangeOptions],
    ) -> ChangeMetrics:
        """Give columns new values in the rows for which `where` is true, in one transaction.

        Values, condition and options are those of `Transaction.update`.
        """
        with Transaction(self._session, isolation="serializable") as tx:
            return tx.update(self.id, set, where, **options)

    def merge(
        self,
        source: Frame,
        on: Expression,
        *,
        target_alias: str = "t",
        source_alias: str = "s",
        merge_schema: bool = False,
        **options: Unpack[ChangeOptions],
    ) -> MergeBuilder:
        """Begin a merge of a frame into the table. Its `execute()` is one transaction.

        The arguments are those of `Transaction.merge`.
        """
        return merge_builder(
            lambda merge: self._execute(merge, options),
            source,
            on,
            target_alias=target_alias,
            source_alias=source_alias,
            evolves=merge_schema,
            options=options,
        )

    def _execute(self, merge: GivenMerge, options: Any) -> ChangeMetrics:
        with Transaction(self._session, isolation="serializable") as tx:
            return tx._merge(self.id, merge, options)

    def purge(self, where: Expression | None = None, **options: Unpack[ChangeOptions]) -> ChangeMetrics:
        """Write files with deletion vectors again without their deleted rows, in one transaction. No row changes."""
        with Transaction(self._session, isolation="serializable") as tx:
            return tx.purge(self.id, where, **options)
