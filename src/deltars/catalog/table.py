"""Table: the user's handle on one table's description, history and rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from html import escape
from typing import TYPE_CHECKING, Any, Self, Unpack
from uuid import UUID

from deltars import catalog, data, mirror, predicate, storage, transaction
from deltars.arguments import check_flags, check_reports, checks_calls
from deltars.catalog.arrow_rows import ArrowRows, as_html
from deltars.catalog.listings import HistoryList
from deltars.catalog.maintenance_calls import TableMaintenance
from deltars.catalog.table_changes import TableChanges
from deltars.errors import DeltarsError, ValidationError, brief, located
from deltars.session import CatalogSession
from deltars.store.registry import TableRecord
from deltars.verbs_to_come import RefusesVerbs

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from deltars.catalog import Changes, Restored, TableDetail, TableDiff, VersionOrMoment
    from deltars.data import Scan
    from deltars.log import HistoryEntry, Snapshot
    from deltars.log.moments import Moment
    from deltars.mirror import Verification
    from deltars.predicate import Predicate
    from deltars.protocol import StructType
    from deltars.store import AsOf
    from deltars.transaction import Alter, Frame, StageChange, TransactionResult, WriteMode, WriteOptions


@checks_calls
class Table(TableChanges, TableMaintenance, RefusesVerbs, ArrowRows):
    """One table, made by `catalog.table()` or `deltars.table()`. Its id is its identity; its name may change."""

    def __new__(cls, *given: Any) -> Self:
        if len(given) != 2 or not isinstance(given[0], CatalogSession):
            raise ValidationError(
                "a Table is not made by its class",
                field="table",
                hint='Write deltars.table("features"), or catalog.table("features").',
            )
        return super().__new__(cls)

    def __init__(self, session: CatalogSession, record: TableRecord) -> None:
        self._session = session
        self._record = record

    @property
    def id(self) -> UUID:
        return self._record.table_id

    @property
    def name(self) -> str:
        return self._record.name

    @property
    def location(self) -> str:
        return self._record.location

    @property
    def properties(self) -> Mapping[str, str]:
        """Properties as of the call that returned this object."""
        return dict(self._record.properties)

    @property
    def version(self) -> int:
        """Current version, read from the database each time; −1 before the first commit."""
        return self._session.reader.current_version(self.id)

    @property
    def schema(self) -> StructType:
        """Current schema, read from the database each time."""
        return self.snapshot().schema

    def snapshot(
        self, version: int | None = None, *, timestamp: Moment | None = None, as_of: AsOf | None = None
    ) -> Snapshot:
        """Return the table at a version, at a time (the last version that is not later), or now.

        A time in the future means now. A table that was dropped raises `TableNotFound`.

        `as_of` is that of `catalog.snapshot`: a tag, a transaction or a time of the whole catalog.
        """
        with located(table=self.name):
            if as_of is not None:
                if version is not None or timestamp is not None:
                    raise ValidationError("as_of excludes version and timestamp", field="as_of")
                version = self._session.version_as_of(self.id, as_of)
            return self._session.reader.snapshot(self.id, version, timestamp=timestamp, is_living=True)

    def history(self, limit: int | None = None, *, since: int | Moment | None = None) -> list[HistoryEntry]:
        """Return the commits, newest first: at most `limit`, none before `since` (a version or a time)."""
        with located(table=self.name):
            found = self._session.reader.history(self.id, limit=limit, since=since)
            return HistoryList(found, self._session, self.id)

    def count(self, where: str | None = None, *, version: int | None = None, timestamp: Moment | None = None) -> int:
        """Return the number of rows now, at a version or at a time. With `where`, count the rows that match.

        Without `where`, the number comes from the log, if every file's writer recorded its rows. Otherwise one column
        is read.
        """
        snapshot = self.snapshot(version, timestamp=timestamp)
        recorded = catalog.recorded_rows(snapshot) if where is None else None
        if recorded is not None:
            return recorded
        return catalog.count_rows(
            self._scan(snapshot, None if where is None else predicate.parse(where, snapshot.schema))
        )

    def __len__(self) -> int:
        return self.count()

    def __bool__(self) -> bool:
        return True  # A table without rows is still a table.

    def detail(self, *, partitions: bool = False) -> TableDetail:
        """Return the table's current columns, properties and size; with `partitions` also each partition's size."""
        check_flags(partitions=partitions)
        snapshot = self.snapshot()
        return catalog.detail_of(self._record, snapshot, partitions=partitions)

    def diff(self, from_version: int, to_version: int | None = None) -> TableDiff:
        """Compare two versions, by default with the current one: columns, properties, features and files."""
        return catalog.difference(self.name, self.snapshot(from_version), self.snapshot(to_version))

    def read(
        self,
        *,
        version: int | None = None,
        timestamp: Moment | None = None,
        as_of: AsOf | None = None,
        where: str | None = None,
        columns: Sequence[str] | None = None,
        spark: SparkSession | None = None,
    ) -> DataFrame:
        """Read the table at a version or a time, by default now, as a Spark DataFrame.

        `as_of` is that of `snapshot`. `where`, in Spark's SQL, selects rows; files without a matching row are not
        opened. `columns` selects columns and their order. `spark` is the active session by default. Times without a
        zone are in its zone.
        """
        plane = transaction.spark_plane()
        moment = transaction.in_session_zone(self._session, as_of, spark)
        snapshot = self.snapshot(version, timestamp=plane.moment(spark, timestamp), as_of=moment)
        condition = plane.predicate(spark, where, snapshot.schema)
        return plane.read(spark, self._scan(snapshot, condition), where=where, columns=columns)

    def changes(self, start: VersionOrMoment, end: VersionOrMoment | None = None) -> Changes:
        """Return the rows that versions changed, from `start` to `end`, both included; `end` is by default now.

        Both are a version, a time, a tag or a transaction. A time means the first version that is not earlier for
        `start`, and the last one that is not later for `end`. A tag or a transaction is a state of the catalog: changes
        start after it, and end with it. Times without a zone are in UTC.

        No property is needed. With `delta.enableChangeDataFeed`, the rows are those that every Delta reader finds.
        Without it, an updated row is a deleted and an inserted one. Raise `HistoryExpired` if the history that is kept
        begins later than `start`.
        """
        with located(table=self.name):
            return catalog.changes_of_table(self._session, self._record, start, end)

    def restore(
        self,
        version: int | None = None,
        *,
        timestamp: Moment | None = None,
        as_of: AsOf | None = None,
        dry_run: bool = False,
        committer: str | None = None,
    ) -> Restored:
        """Restore the table to an older version in one transaction; see `Transaction.restore`.

        `dry_run` changes nothing and returns what would change. `catalog.restore` restores many tables at once.
        """
        return catalog.restore_table(
            self._session,
            self.id,
            version,
            timestamp=timestamp,
            as_of=as_of,
            dry_run=dry_run,
            committer=committer,
        )

    @property
    def alter(self) -> Alter:
        """Changes of the schema and the properties. Each call is one commit; `tx.alter` commits several at once."""
        return transaction.Alter(self._altering)

    @contextmanager
    def _altering(self) -> Iterator[StageChange]:
        with transaction.Transaction(self._session, isolation="serializable") as tx:
            yield tx._change_stager(self.id)

    def write(self, df: Frame, mode: WriteMode = "append", **options: Unpack[WriteOptions]) -> TransactionResult:
        """Write the table in one transaction with isolation "serializable": two concurrent appends both succeed.

        Mode and options are those of `Transaction.write`.
        """
        if isinstance(df, str):
            raise ValidationError(
                f"the first argument is the frame, got {brief(df)}", field="df", hint="Write table.write(df, mode)."
            )
        with transaction.Transaction(self._session, isolation="serializable") as tx:
            tx.write(self.id, df, mode, **options)
        return tx.result

    def files(
        self,
        version: int | None = None,
        *,
        timestamp: Moment | None = None,
        as_of: AsOf | None = None,
        where: str | None = None,
    ) -> pa.Table:
        """Return the live files at a version or a time, by default now, without files that hold no matching row."""
        return self.snapshot(version, timestamp=timestamp, as_of=as_of).select_files(where=where)

    def scan(
        self,
        version: int | None = None,
        *,
        timestamp: Moment | None = None,
        as_of: AsOf | None = None,
        where: str | None = None,
    ) -> Scan:
        """Return the files of a version that may hold a matching row, with all that is needed to read them."""
        snapshot = self.snapshot(version, timestamp=timestamp, as_of=as_of)
        return self._scan(snapshot, None if where is None else predicate.parse(where, snapshot.schema))

    def _scan(self, snapshot: Snapshot, where: Predicate | None) -> Scan:
        return data.Scan.of_snapshot(
            snapshot,
            where,
            catalog=str(self._session.uri),
            root=self.location,
            table=self.name,
            storage_options=self._session.settings.storage_options,
        )

    def _repr_html_(self) -> str:
        try:
            grown = catalog.growth_html(self._session, self.id, self.history(catalog.DRAWN_VERSIONS))
            return grown + as_html(f"{self.name}, version {self.version}, at {self.location}", self.head())
        except DeltarsError as error:
            # A notebook that shows a table must not fail because one of its files is missing.
            return f"<p>{escape(repr(self))}: {escape(str(error))}</p>"

    def verify(
        self,
        *,
        deep: bool = False,
        orphans: bool = False,
        min_age: timedelta | None = None,
        chain: bool | str = False,
        report: Callable[[int], None] | None = None,
    ) -> Verification:
        """Compare the catalog with the published log and the data files, in both directions. Change nothing.

        `deep` also reads every commit, checksum, checkpoint and data file's footer. `orphans` also lists files that
        the log never named and files that killed writers left unfinished, if they are at least `min_age` (a day) old:
        younger ones may belong to a transaction that has not committed yet. The result counts those in `young_files`.
        `chain` also compares the catalog's rows with the hashes that sealed them, and finds rows that were changed past
        deltars. The table needs the property `deltars.hashChain`. The `chain_head` of an earlier result, given as
        `chain`, proves that the history up to it is the same. `report` is called with the number of files compared so
        far.
        """
        check_flags(deep=deep, orphans=orphans)
        check_reports(report=report)
        verifier = mirror.Verifier(self._session.database, self._session.publisher)
        least = mirror.MIN_AGE if min_age is None else min_age
        return verifier.verify(self.id, deep=deep, orphans=orphans, min_age=least, chain=chain, report=report)

    def generate(self, mode: str = "symlink_format_manifest") -> list[str]:
        """Write manifests, lists of the current data files for engines that do not read Delta, and return their paths.

        There is one manifest for the table, or one for each partition. Call it again after a change. Raise
        `ValidationError` for a table with deletion vectors or column mapping.
        """
        if mode != "symlink_format_manifest":
            raise ValidationError(
                f"there is no mode {brief(mode)}", field="mode", hint="Write generate('symlink_format_manifest')."
            )
        place = storage.open_storage(self.location, self._session.settings.storage_options)
        with located(table=self.name):
            return mirror.write_manifests(place, self.snapshot())

    def clean_up_log(self) -> list[str]:
        """Delete published log files older than `delta.logRetentionDuration`, and return their paths.

        The catalog keeps the whole history. Readers of `_delta_log` lose time travel before the oldest checkpoint kept.
        """
        return mirror.clean_up_log(self._session.database, self._session.publisher, self.id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and other.id == self.id and other._session.uri == self._session.uri

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<Table {self.name} of {self._session.uri} at {self.location}>"

    def __reduce__(self) -> tuple[Callable[..., Table], tuple[CatalogSession, TableRecord]]:
        return Table, (self._session, self._record)
