"""Snapshot of a catalog: every table at one moment, for consistent reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa

from deltars import catalog
from deltars.arguments import check_texts, checks_calls
from deltars.data.scan import Scan
from deltars.errors import TableNotFound, ValidationError
from deltars.log.moments import from_microseconds
from deltars.log.new_table import NO_VERSION
from deltars.log.snapshot import Snapshot
from deltars.predicate import Predicate, parse
from deltars.session import CatalogSession, TableLike, as_tables
from deltars.store.names import meant
from deltars.store.read.cuts import Cut, CutTable
from deltars.transaction.html import html_table
from deltars.transaction.plane import spark_plane
from deltars.transaction.queries import QueryTable, TableMoment, run_on_spark, table_at
from deltars.transaction.rows_by_table import RowsByTable
from deltars.verbs_to_come import RefusesVerbs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from deltars.predicate import Query, TableReference

SHOWN_NAMES = 20


@checks_calls
class CatalogSnapshot(RefusesVerbs, RowsByTable):
    """Every table at one moment, made by `catalog.snapshot()`. It holds no transaction partly, and never changes."""

    def __init__(self, session: CatalogSession, cut: Cut) -> None:
        self._session = session
        self._cut = cut

    @property
    def versions(self) -> dict[str, int]:
        """Version of each table, by name."""
        return self._cut.versions

    @property
    def versions_by_id(self) -> dict[UUID, int]:
        """Version of each table, by id."""
        return self._cut.versions_by_id

    def tables(self) -> list[CutTable]:
        """Return every table of the snapshot, by name."""
        return self._cut.tables

    @property
    def expired(self) -> list[str]:
        """Tables of this moment whose version is expired: reading one raises `HistoryExpired`."""
        return sorted(self._cut.expired.values())

    @property
    def as_of(self) -> datetime | None:
        """Moment of a snapshot of the past; None for one of the present."""
        return None if self._cut.commit_ts is None else from_microseconds(self._cut.commit_ts)

    def table(self, table: TableLike) -> Snapshot:
        """Return one table at its version: schema, properties, files."""
        return self._snapshot(self._find(table))

    def files(self, table: TableLike, where: str | None = None) -> pa.Table:
        """Return the live files of a table at its version, without files that hold no row matching `where`."""
        return self.table(table).select_files(where=where)

    def read(
        self,
        table: TableLike,
        *,
        where: str | None = None,
        columns: Sequence[str] | None = None,
        spark: SparkSession | None = None,
    ) -> DataFrame:
        """Read a table at its version as a Spark DataFrame. `where` and `columns` are those of `Table.read`."""
        found = self._find(table)
        snapshot = self._snapshot(found)
        plane = spark_plane()
        scan = self._scan(found, snapshot, plane.predicate(spark, where, snapshot.schema))
        return plane.read(spark, scan, where=where, columns=columns)

    def sql(
        self, query: str, *, args: Mapping[str, Any] | Sequence[Any] | None = None, spark: SparkSession | None = None
    ) -> DataFrame:
        """Run a query in Spark's SQL over tables of this snapshot. Return a Spark DataFrame.

        The catalog's database chooses each table's files by the query's conditions; Spark then runs the query, with
        `args` for its parameters. A name that is no table of this snapshot may be a temporary view of the Spark
        session. A name that is both means the table.
        """
        # Imported late, like Spark: sqlglot is slow to load.
        from deltars.predicate import Query
        from deltars.predicate.statements.binding import Binder

        parsed = Query(query)
        return run_on_spark(self, parsed, Binder(parsed.source, args), spark)

    def register_views(
        self,
        *,
        tables: TableLike | Sequence[TableLike] | None = None,
        prefix: str = "",
        spark: SparkSession | None = None,
    ) -> list[str]:
        """Register tables, by default all, as temporary views, and return the views' names.

        Plain Spark SQL then joins them consistently. A view's name is the prefix and the table's name. A name that is
        not a plain word needs backquotes in SQL.
        """
        names = sorted(self.versions) if tables is None else [self._find(table).name for table in as_tables(tables)]
        check_texts(prefix=prefix)
        seen: dict[str, str] = {}
        for name in names:
            # Spark would replace the first view by the second.
            if seen.setdefault(name.lower(), name) != name:
                raise ValidationError(
                    f"the tables {seen[name.lower()]!r} and {name!r} would be one view: Spark ignores case in names",
                    field="tables",
                    hint="Register them in two calls, one with a prefix.",
                )
        views = [(prefix or "") + name for name in names]
        for name, view in zip(names, views, strict=True):
            self.read(name, spark=spark).createOrReplaceTempView("`" + view.replace("`", "``") + "`")
        return views

    def _scan_of(self, table: TableLike, where: str | None) -> Scan:
        found = self._find(table)
        snapshot = self._snapshot(found)
        return self._scan(found, snapshot, None if where is None else parse(where, snapshot.schema))

    def _find(self, table: TableLike) -> CutTable:
        name = self._session.name_or_id(table)
        self._session.refuse_expired(self._cut, name)
        found = self._cut.find(name)
        if found is None or found.version == NO_VERSION:
            raise TableNotFound(
                f"there is no table {str(table)!r} in this snapshot",
                table=str(table),
                hint=f"{meant(str(table), self.versions)}It has: {_listed(sorted(self.versions))}.",
            )
        return found

    def _query_table(self, query: Query, reference: TableReference, moment: TableMoment | None) -> QueryTable:
        table = self._named(query, reference)
        if moment is not None:
            return table_at(self._session, table.table_id, table.name, moment)
        snapshot = self._snapshot(table)
        return QueryTable(snapshot.schema, lambda where: self._scan(table, snapshot, where))

    def _has(self, name: str) -> bool:
        key = self._session.name_or_id(name)
        found = self._cut.find(key)
        return (found is not None and found.version != NO_VERSION) or self._cut.find_expired(key) is not None

    def _named(self, query: Query, reference: TableReference) -> CutTable:
        try:
            return self._find(reference.name)
        except TableNotFound as error:
            hint = f"{error.hint} A temporary view of the Spark session works too."
            missing = query.error(f"there is no table {reference.name!r} in this snapshot", reference, hint=hint)
            raise TableNotFound(missing.message, table=reference.name, hint=missing.hint) from None

    def _snapshot(self, table: CutTable) -> Snapshot:
        return self._session.reader.snapshot(table.table_id, table.version, commit_ts=table.commit_ts)

    def _scan(self, table: CutTable, snapshot: Snapshot, where: Predicate | None) -> Scan:
        return Scan.of_snapshot(
            snapshot,
            where,
            catalog=str(self._session.uri),
            root=self._session.registry.location(table.table_id),
            table=table.name,
            storage_options=self._session.settings.storage_options,
        )

    def _repr_html_(self) -> str:
        moment = "now" if self.as_of is None else f"as of {self.as_of.isoformat()}"
        rows: list[tuple[object, ...]] = [(table.name, table.version, table.table_id) for table in self.tables()]
        rows += [(name, "expired", "") for name in self.expired]
        lanes = catalog.recent_lanes(self._session, self._cut.commit_ts)
        return lanes + html_table(f"{self._session.uri} {moment}", ("name", "version", "id"), rows)

    def __repr__(self) -> str:
        moment = self.as_of.isoformat() if self.as_of else "now"
        expired = f", expired: {_listed(self.expired)}" if self.expired else ""
        return f"<CatalogSnapshot of {self._session.uri} as of {moment}: {len(self._cut.versions)} tables{expired}>"

    def __reduce__(self) -> tuple[Callable[..., CatalogSnapshot], tuple[CatalogSession, Cut]]:
        return CatalogSnapshot, (self._session, self._cut)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN_NAMES:,} more" if len(names) > SHOWN_NAMES else ""
    return ", ".join(names[:SHOWN_NAMES]) + more or "none"
