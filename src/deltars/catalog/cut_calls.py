"""The calls of a catalog that go back to a cut, name it, copy it, or list what was changed after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from deltars import catalog
from deltars.arguments import check_flags, checks_calls
from deltars.catalog.table import Table
from deltars.errors import ValidationError, brief
from deltars.session import CatalogSession, TableLike, as_tables

if TYPE_CHECKING:
    from deltars.catalog import Restored, TransactionChanges
    from deltars.store import AsOf
    from deltars.store.tags import Tag


@checks_calls
class CutCalls:
    """Part of `Catalog`: restore, tag, copy and compare cuts."""

    _session: CatalogSession

    def restore(
        self,
        as_of: AsOf,
        *,
        tables: TableLike | Sequence[TableLike] | None = None,
        dry_run: bool = False,
        committer: str | None = None,
    ) -> Restored:
        """Restore tables to one cut in one transaction: as of a tag, a transaction or a time. All or none change.

        By default, all tables of the cut are restored, and tables that were created later are left alone. Raise
        `TableNotFound` for a table that was dropped since, and `FilesMissing` if a file of the cut does not exist any
        more. Each changed table gets one new version, as by `Transaction.restore`. `dry_run` changes nothing and
        returns what would change.
        """
        return catalog.restore_tables(self._session, as_of, tables, dry_run=dry_run, committer=committer)

    def changes(
        self, since: AsOf, *, tables: TableLike | Sequence[TableLike] | None = None
    ) -> list[TransactionChanges]:
        """Return what each transaction changed after a tag, a transaction or a time, in the order of their commits.

        Pass the last transaction as `since` to get what was committed after it. Tables that were dropped are left out;
        `tables` leaves out others too. Raise `HistoryExpired` if the history of a table begins later.
        """
        return catalog.catalog_changes(self._session, since, None if tables is None else as_tables(tables))

    def tag(
        self,
        name: str,
        as_of: AsOf | None = None,
        *,
        description: str | None = None,
        committer: str | None = None,
    ) -> Tag:
        """Name a cut: every table at one moment, by default now. Use the name wherever `as_of` is taken.

        What a tag names is kept until `untag`: no maintenance deletes it. Raise `TagExists` if the name is taken (in
        any case), and `ValidationError` for a name that is a time, a UUID or the text of a committed transaction.
        """
        return catalog.create_tag(self._session, name, as_of, description=description, committer=committer)

    def tags(self) -> list[Tag]:
        """Return every tag, by name."""
        return self._session.tags.all()

    def untag(self, name: str) -> Tag:
        """Remove a tag, and return it. The tables stay as they are; their old versions may be deleted later."""
        return catalog.delete_tag(self._session, name)

    def copy_table(
        self,
        source: TableLike,
        name: str,
        *,
        as_of: AsOf | None = None,
        version: int | None = None,
        location: str | None = None,
        replace: bool = False,
        committer: str | None = None,
    ) -> Table:
        """Copy a table, by default as it is now, to a new table, and return it.

        Data files and deletion vectors are copied by the storage, not read. Schema, properties, statistics and row ids
        stay; the history begins with version 0. Raise `TableExists` if there is a table of this name.

        With `replace`, a table of this name gets the copy as its next version: its rows, schema and properties. It
        keeps its location and its history, and rows get new ids. Raise `VersionConflict` if it changes meanwhile.
        """
        check_flags(replace=replace)
        copy = catalog.Copy(source, name, version, location, replace)
        [record] = catalog.copy_tables(self._session, [copy], as_of=as_of, committer=committer)
        return Table(self._session, record)

    def copy_tables(
        self, names: Mapping[str, str], *, as_of: AsOf | None = None, committer: str | None = None
    ) -> list[Table]:
        """Copy tables of one cut to new tables in one transaction. `names` has the new name of each table.

        Return the new tables in this order. See `copy_table`.
        """
        if not isinstance(names, Mapping):
            raise ValidationError(
                f"names must map each table to the name of its copy, got {brief(names)}",
                field="names",
                hint='Write copy_tables({"features": "features_copy"}).',
            )
        copies = [catalog.Copy(source, name) for source, name in names.items()]
        return [
            Table(self._session, record)
            for record in catalog.copy_tables(self._session, copies, as_of=as_of, committer=committer)
        ]
