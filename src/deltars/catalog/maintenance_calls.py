"""The calls of a catalog and of a table that maintain files and history."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, NoReturn, Unpack
from uuid import UUID

from deltars import catalog, transaction
from deltars.arguments import checks_calls
from deltars.errors import NotSupportedYet
from deltars.session import CatalogSession, TableLike

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltars.catalog import (
        CatalogVacuumed,
        Expired,
        Maintainer,
        MaintenanceReport,
        MaintenanceResult,
        VacuumOptions,
    )
    from deltars.log.maintenance import Advice, TableStatistics
    from deltars.log.moments import Moment
    from deltars.mirror.purge import PurgedTable
    from deltars.mirror.vacuum import Vacuumed
    from deltars.transaction import Optimized


@checks_calls
class CatalogMaintenance:
    """Part of `Catalog`: maintain many tables, each by itself."""

    _session: CatalogSession

    def optimize(
        self,
        tables: Sequence[TableLike] | None = None,
        *,
        target_size: int | str | None = None,
        dry_run: bool = False,
        committer: str | None = None,
        spark: SparkSession | None = None,
    ) -> list[Optimized]:
        """Write small files of these tables again as larger ones, by default of every table. See `Table.optimize`.

        A table that cannot be optimized does not keep the others from it: its result has the `failure`.
        """
        request = transaction.optimize_request(
            None, target_size=target_size, zorder_by=(), dry_run=dry_run, committer=committer, spark=spark
        )
        records = self._session.find_all(tables)
        return [transaction.optimize_or_report(self._session, record, request) for record in records]

    def vacuum(
        self,
        tables: Sequence[TableLike] | None = None,
        *,
        report: Callable[[str, int, int], None] | None = None,
        **options: Unpack[VacuumOptions],
    ) -> CatalogVacuumed:
        """Vacuum these tables, by default every table; see `Table.vacuum`.

        Of all tables, those that refuse it are skipped, and listed in the result. `report` is called with a table's
        name, and the numbers of its files deleted so far and in all.
        """
        return catalog.vacuum_tables(self._session, tables, report, **options)

    def expire(
        self,
        older_than: timedelta | Moment | None = None,
        *,
        keep_versions: int | None = None,
        tables: Sequence[TableLike] | None = None,
        dry_run: bool = False,
        force: bool = False,
    ) -> Expired:
        """Delete history that is older than every retention, of these tables, by default of all.

        `older_than` is a timedelta, a text such as "30 days", or a time. By default each table's
        `delta.logRetentionDuration` applies, which is 30 days unless it is set. Less than that needs `force`, and a
        time in the future is refused. `keep_versions` also keeps that many of the newest versions. What a tag needs is
        kept, and so is what is not published yet, or not vacuumed yet: see `held_by` of each table. Older versions
        then raise `HistoryExpired`, and leave `history()`. The published log is shortened with them, unless
        `delta.enableExpiredLogCleanup` is false. Writers are not blocked.

        If a table fails, the others are expired before its error is raised. Run it again if it was interrupted. On
        PostgreSQL it needs the rights of the schema's owner.
        """
        chosen = self._session.find_ids(tables)
        return catalog.expire_history(
            self._session, chosen, older_than, keep_versions=keep_versions, dry_run=dry_run, force=force
        )

    def purge_dropped(
        self, older_than: timedelta | Moment | None = None, *, dry_run: bool = False
    ) -> list[PurgedTable]:
        """Remove tables for good that were dropped longer ago than `older_than`, by default 30 days.

        `older_than` is a timedelta, a text such as "30 days", or a time that is not in the future.
        Their files, their history and their registry entries are deleted, as by `drop_table(purge=True)`. A table that
        a tag needs, or whose log another program changed, stays. The files of a table that was released, or imported
        read-only, or whose directory has another table by now, stay too. Each result says so in `held_by`.
        """
        return catalog.purge_dropped(self._session, older_than, dry_run=dry_run)

    def statistics(self, tables: Sequence[TableLike] | None = None) -> list[TableStatistics]:
        """Return the state of these tables as far as maintenance is concerned, by default of all, by name.

        It comes from the catalog alone: no file is listed or opened, and the number of queries does not depend on the
        number of tables.
        """
        return catalog.read_statistics(self._session, tables)

    def advise(self, tables: Sequence[TableLike] | None = None) -> list[Advice]:
        """Return what these tables need, by default all: what to do, why, and how many files and bytes it concerns."""
        return catalog.advise_tables(self._session, tables)

    def maintain(
        self,
        tables: Sequence[TableLike] | None = None,
        *,
        dry_run: bool = False,
        report: MaintenanceReport | None = None,
    ) -> list[MaintenanceResult]:
        """Do what `advise` says to these tables, by default to all, and return what became of it.

        Publish what waits, `optimize`, `vacuum` and `expire`, table by table. A failure is reported in the results and
        does not keep other tables from their turn. A table that another service works on is skipped. With `dry_run`
        nothing is changed. `report` is called before each piece of advice is carried out, with None, and after it,
        with its result.
        """
        return catalog.Maintainer(self._session, tables=tables, report=report).once(dry_run=dry_run)

    def maintainer(
        self,
        tables: Sequence[TableLike] | None = None,
        *,
        interval_s: float = 600.0,
        report: MaintenanceReport | None = None,
    ) -> Maintainer:
        """Return the service that maintains tables every `interval_s` seconds: `.run()`, and `.stop()` to end it."""
        return catalog.Maintainer(self._session, tables=tables, interval_s=interval_s, report=report)


@checks_calls
class TableMaintenance:
    """Part of `Table`: maintain this table."""

    _session: CatalogSession

    @property
    def id(self) -> UUID:
        raise NotImplementedError

    @property
    def name(self) -> str:
        raise NotImplementedError

    def optimize(
        self,
        where: str | None = None,
        *,
        target_size: int | str | None = None,
        zorder_by: str | Sequence[str] = (),
        dry_run: bool = False,
        committer: str | None = None,
        spark: SparkSession | None = None,
    ) -> Optimized:
        """Write small files again as larger ones, and files with many deleted rows without those. No row changes.

        `where` limits it to files that may hold a matching row. `target_size` is the size of new files, in bytes or as
        text ("128mb"); by default the property `delta.targetFileSize`, else by the table's size. `zorder_by` sorts the
        rows by these columns along a Z-order curve, so that readers of any of them skip files. A clustered table is
        sorted by its clustering columns.

        It commits several times, each time a part. Appends and changes of other files go on meanwhile. A part that
        loses against a concurrent change is tried again, and skipped after that: see the result. Run it again after a
        crash. With `dry_run` nothing is changed. Large tables use the Spark session, if there is one.
        """
        request = transaction.optimize_request(
            where, target_size=target_size, zorder_by=zorder_by, dry_run=dry_run, committer=committer, spark=spark
        )
        return transaction.optimize_table(self._session, self.id, self.name, request)

    def expire(
        self,
        older_than: timedelta | Moment | None = None,
        *,
        keep_versions: int | None = None,
        dry_run: bool = False,
        force: bool = False,
    ) -> Expired:
        """Delete the table's history that is older than its retention; see `Catalog.expire`."""
        return catalog.expire_history(
            self._session,
            [self._session.find(self.id).table_id],
            older_than,
            keep_versions=keep_versions,
            dry_run=dry_run,
            force=force,
        )

    def vacuum(self, *, report: Callable[[int, int], None] | None = None, **options: Unpack[VacuumOptions]) -> Vacuumed:
        """Delete files that no version within the retention, no tag and no open transaction needs.

        `retention` (a timedelta, or a text like "7 days") counts from the publication of the version that removed a
        file; by default it is `delta.deletedFileRetentionDuration`, else 7 days. Less than that needs `force`. Versions
        that were replaced before the retention can no longer be read. `full` also lists the directory, and deletes
        files that no log names if they are older than a day and no running transaction may have written them.
        `dry_run` deletes nothing. Call it again to finish an interrupted run.

        Raise `LogDiverged` if `_delta_log` contradicts the catalog, and `TableHeld` if other writers own the table.
        `report` is called with the number of files deleted so far, and of all.
        """
        return catalog.vacuum_table(self._session, self.id, report, **options)

    def drop_feature(self, feature: str, *, truncate_history: bool = False, spark: SparkSession | None = None) -> None:
        """Drop a table feature, so that programs that do not know it can read the table again.

        Files that need it are written again first, in a separate commit: those with deletion vectors, those with
        physical column names, those with narrower types. Older versions keep the feature, and can be restored.
        `truncate_history` deletes versions older than a day, as `expire` does, if no later one uses the feature. Raise
        `FeatureNotDropped` if the table cannot lose the feature, or not yet, and `VersionConflict` if another
        transaction commits meanwhile. Many files are written again by the Spark session, if there is one.
        """
        catalog.drop_feature(self._session, self.id, feature, truncate_history=truncate_history, spark=spark)


def _refuses(said: str, instead: str) -> Callable[..., NoReturn]:
    def refuse(*given: object, **options: object) -> NoReturn:
        raise NotSupportedYet(f"table.optimize.{said} is not a call of deltars", hint=f"Write {instead}.")

    return refuse


# Programs for deltalake write table.optimize.compact(): a method has the attributes of its function.
for _name, _call in {"compact": "table.optimize()", "z_order": "table.optimize(zorder_by=[…])"}.items():
    setattr(TableMaintenance.optimize, _name, _refuses(_name, _call))
