"""Row-level changes of one table, each in its own transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack
from uuid import UUID

from deltars import transaction
from deltars.arguments import checks_calls
from deltars.session import CatalogSession

if TYPE_CHECKING:
    from deltars.data.row_change import Expression
    from deltars.transaction import AliasedChangeOptions, ChangeMetrics, ChangeOptions, Frame, GivenMerge, MergeBuilder
    from deltars.transaction.assignments import Assignments


@checks_calls
class TableChanges:
    """The row-level changes of `Table`. Each call is one transaction with isolation "serializable"."""

    _session: CatalogSession

    @property
    def id(self) -> UUID:
        raise NotImplementedError

    def delete(self, where: Expression | None = None, **options: Unpack[AliasedChangeOptions]) -> ChangeMetrics:
        """Delete the rows for which `where` is true, in one transaction; without it, every row.

        Condition and options are those of `Transaction.delete`.
        """
        with transaction.Transaction(self._session, isolation="serializable") as tx:
            return tx.delete(self.id, where, **options)

    def update(
        self,
        set: Assignments,
        where: Expression | None = None,
        **options: Unpack[AliasedChangeOptions],
    ) -> ChangeMetrics:
        """Give columns new values in the rows for which `where` is true, in one transaction.

        Values, condition and options are those of `Transaction.update`.
        """
        with transaction.Transaction(self._session, isolation="serializable") as tx:
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
        return transaction.begin_merge(
            lambda merge: self._execute(merge, options),
            source,
            on,
            target_alias=target_alias,
            source_alias=source_alias,
            evolves=merge_schema,
            options=options,
        )

    def _execute(self, merge: GivenMerge, options: Any) -> ChangeMetrics:
        with transaction.Transaction(self._session, isolation="serializable") as tx:
            return tx._merge(self.id, merge, options)

    def apply_changes(
        self,
        df: Frame,
        *,
        keys: str | Sequence[str],
        sequence_by: Expression,
        apply_as_deletes: Expression | None = None,
        column_list: str | Sequence[str] | None = None,
        except_column_list: str | Sequence[str] | None = None,
        stored_as_scd_type: Literal[1, 2, "1", "2"] = 1,
        ignore_null_updates: bool = False,
        track_history_column_list: str | Sequence[str] | None = None,
        track_history_except_column_list: str | Sequence[str] | None = None,
        **options: Unpack[ChangeOptions],
    ) -> ChangeMetrics:
        """Apply a batch of change events to the table, as SCD 1 or 2, in one transaction.

        The arguments are those of `Transaction.apply_changes`.
        """
        with transaction.Transaction(self._session, isolation="serializable") as tx:
            return tx.apply_changes(
                self.id,
                df,
                keys=keys,
                sequence_by=sequence_by,
                apply_as_deletes=apply_as_deletes,
                column_list=column_list,
                except_column_list=except_column_list,
                stored_as_scd_type=stored_as_scd_type,
                ignore_null_updates=ignore_null_updates,
                track_history_column_list=track_history_column_list,
                track_history_except_column_list=track_history_except_column_list,
                **options,
            )

    def purge(self, where: Expression | None = None, **options: Unpack[ChangeOptions]) -> ChangeMetrics:
        """Write files with deletion vectors again without their deleted rows, in one transaction. No row changes."""
        with transaction.Transaction(self._session, isolation="serializable") as tx:
            return tx.purge(self.id, where, **options)
