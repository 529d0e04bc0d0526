"""Catalog: the user's handle on tables, transactions and snapshots.

What a call needs is loaded by the call (`late_names`): to list tables, neither pyarrow nor the importer is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, TypeVar, Unpack
from uuid import uuid4

from deltars import catalog, log, mirror, store, transaction
from deltars.arguments import check_flags, check_keywords, checks_calls
from deltars.catalog.activity_calls import ActivityCalls
from deltars.catalog.cut_calls import CutCalls
from deltars.catalog.listings import TableList
from deltars.catalog.maintenance_calls import CatalogMaintenance
from deltars.catalog.retry import run
from deltars.catalog.table import Table
from deltars.config import CatalogConfig, Isolation
from deltars.errors import DeltarsError, TableNotFound
from deltars.log.new_table import NewTable
from deltars.session import CatalogSession, TableLike
from deltars.store.names import check_name, check_namespace, name_key, namespace_of, namespaces_in
from deltars.verbs_to_come import RefusesVerbs

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from deltars.catalog import CatalogSnapshot, LogComparison, TransactionDetail
    from deltars.importer import Progress
    from deltars.log import TxnId
    from deltars.log.moments import Moment
    from deltars.mirror import Reconciler
    from deltars.protocol import SchemaLike
    from deltars.store import AsOf
    from deltars.store.mirror.status import MirrorStatus
    from deltars.transaction import (
        BeginOptions,
        Frame,
        Transaction,
        TransactionResult,
        WriteMode,
        WriteOptions,
    )

Result = TypeVar("Result")


@checks_calls
class Catalog(RefusesVerbs, ActivityCalls, CutCalls, CatalogMaintenance):
    """An open catalog, made by `deltars.connect()`. It pickles: a forked or unpickled copy opens new connections."""

    def __init__(self, config: CatalogConfig) -> None:
        if not isinstance(config, CatalogConfig):
            raise TypeError("a Catalog is made by deltars.connect(uri)")
        self._session = CatalogSession(config.uri, config.settings)
        self._config = config

    @property
    def uri(self) -> str:
        """URI of the catalog, without its password."""
        return str(self._session.uri)

    @property
    def warehouse(self) -> str | None:
        """Directory of the tables that are created without a location; None if none is set."""
        return self._session.registry.warehouse()

    @property
    def default_isolation(self) -> Isolation:
        """Isolation level of transactions that set none: of `connect`, else the one stored here, else "strict"."""
        return self._session.isolation

    def set_default_isolation(self, level: Isolation) -> None:
        """Store the isolation level of transactions that set none, for everyone who uses this catalog.

        A process that has the catalog open keeps the level it read when it first began a transaction. `begin`,
        `connect`, the environment and `deltars.toml` override it.
        """
        self._session.set_default_isolation(level)

    @property
    def is_standby(self) -> bool:
        """Whether the database is a hot standby: reads see what its primary has sent so far, commits are refused."""
        return self._session.cuts.is_standby()

    # -- tables ------------------------------------------------------------------------------------------------

    def create_table(
        self,
        name: str,
        schema: SchemaLike,
        *,
        location: str | None = None,
        partition_by: str | Sequence[str] = (),
        cluster_by: str | Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        description: str | None = None,
        if_not_exists: bool = False,
        replace: bool = False,
        committer: str | None = None,
    ) -> Table:
        """Create a table by committing its version 0.

        `schema` is a Spark StructType, a DDL string (`"id BIGINT NOT NULL, day DATE"`), a pyarrow schema or a Delta
        schema. If the table exists, `if_not_exists` returns it unchanged, and `replace` gives it a new schema and no
        rows. The default location is a directory of the warehouse. `cluster_by` names up to four columns that
        writes and `optimize` sort the rows by, in place of partitions.
        """
        record = transaction.commit_new_table(
            self._session,
            name,
            schema,
            location=location,
            partition_by=partition_by,
            cluster_by=cluster_by,
            properties=properties,
            description=description,
            if_not_exists=if_not_exists,
            replace=replace,
            committer=committer,
        )
        return Table(self._session, record)

    def register_table(self, name: str, location: str) -> Table:
        """Register a table at version −1, for a program that commits version 0 itself.

        The directory may hold data files that it will name, and no other files.
        """
        check_name(name)
        table_id = uuid4()
        place = transaction.location_of(self._session, name, table_id, location)
        transaction.refuse_foreign_files(self._session, name, place)
        record = self._session.registry.register(NewTable(table_id, name, place))
        self._session.publish_registration(table_id)
        return Table(self._session, record)

    def import_table(
        self,
        location: str,
        name: str | None = None,
        *,
        read_only: bool = False,
        take_over: bool = False,
        report: Callable[[Progress], None] | None = None,
    ) -> Table:
        """Import an existing Delta table in place, with the history that its log still has.

        Other writers are fenced off; readers continue as before. Call it again to finish an interrupted import.
        `read_only` leaves the table to its writers: call it again to import what they have committed since.
        `take_over` imports a table that was fenced by another deltars catalog; use it only if that catalog is lost.
        """
        check_flags(read_only=read_only, take_over=take_over)
        table_id = catalog.import_table(
            self._session, location, name, read_only=read_only, take_over=take_over, report=report
        )
        return self.table(table_id)

    def convert_table(
        self,
        location: str,
        name: str | None = None,
        *,
        partition_schema: SchemaLike | None = None,
        committer: str | None = None,
    ) -> Table:
        """Make a table of a directory of Parquet files, in place. By default it is named after the directory.

        `partition_schema` has the columns that directories such as `day=2026-01-30` name, with their types. Only
        footers are read. Programs that write into the directory must stop first: the table does not see their files.
        """
        record = catalog.convert_directory(
            self._session, location, name, partition_schema=partition_schema, committer=committer
        )
        return Table(self._session, record)

    def release(self, table: TableLike) -> int:
        """Release a table to plain Delta writers, and return its last version.

        This catalog refuses commits to it until you call `adopt`.
        """
        return catalog.release(self._session, self._session.find(table).table_id)

    def adopt(self, table: TableLike, *, report: Callable[[Progress], None] | None = None) -> int:
        """Adopt a table that was released or imported read-only, with the commits of its other writers.

        Return its last version.
        """
        return catalog.adopt(self._session, self._session.find(table).table_id, report=report)

    def tables(self, *, namespace: str | None = None) -> list[Table]:
        """Return every table, by name. `namespace` leaves only its own: `sales.orders` is in `sales`."""
        records = self._session.registry.tables()
        if namespace is not None:
            key = check_namespace(namespace, (record.name for record in records))
            records = [record for record in records if name_key(namespace_of(record.name) or "") == key]
        return TableList(Table(self._session, record) for record in records)

    def namespaces(self) -> list[str]:
        """Return the namespaces of the tables, sorted. The first table `sales.orders` makes `sales`."""
        return namespaces_in(record.name for record in self._session.registry.tables())

    def table(self, table: TableLike) -> Table:
        """Return a table by its name (in any case), its id or its whole `deltasql://` URI."""
        return Table(self._session, self._session.find(table))

    def __getitem__(self, table: TableLike) -> Table:
        return self.table(table)

    def __contains__(self, table: TableLike) -> bool:
        return self.table_exists(table)

    def __iter__(self) -> Iterator[str]:
        return iter([table.name for table in self.tables()])

    def __len__(self) -> int:
        return len(self.tables())

    def __bool__(self) -> bool:
        return True  # A catalog without tables is still a catalog.

    def table_exists(self, table: TableLike) -> bool:
        return self._session.registry.find(self._session.name_or_id(table)) is not None

    def rename_table(self, table: TableLike, name: str) -> Table:
        """Rename a table, or change the case of its name. Its id, location and history stay."""
        record = self._session.registry.rename(self._session.name_or_id(table), name)
        self._session.publish_registration(record.table_id)
        return Table(self._session, record)

    def drop_table(self, table: TableLike, *, delete_data: bool = False, purge: bool = False) -> None:
        """Remove a table from the catalog. Its history and its files stay until `purge_dropped` deletes them.

        `delete_data` deletes the files that the table's log names and those that no log names, the `_delta_log` last.
        `purge` deletes the files and the whole history: snapshots of the past no longer have the table, and its
        directory can be used again. Both are refused, before anything is changed, for a table whose log others own
        (imported read-only, released), and for one that a tag needs.
        Call it again to finish an interrupted deletion: it also accepts a table that is already dropped. To purge a
        table that was dropped with its files kept, give its id, or call `purge_dropped`.
        """
        check_flags(delete_data=delete_data, purge=purge)
        key = self._session.name_or_id(table)
        if not delete_data and not purge:
            self._session.publish_registration(self._session.registry.drop(key).table_id)
            return
        deletion = mirror.Deletion(self._session.database, self._session.publisher, self._session.registry)
        living = self._session.registry.find(key)
        record = living or self._session.registry.find_dropped(key)
        if record is None:
            raise self._session.no_table(table)
        if purge and living is None and isinstance(key, str) and not deletion.is_claimed(record.table_id):
            # A purge leaves nothing behind. Repeated, it must not take an older table of the same name.
            raise TableNotFound(
                f"there is no table {key!r}, and the deletion of the one that was dropped last was never begun",
                table=key,
                hint=f"To remove that one for good: catalog.drop_table(UUID({str(record.table_id)!r}), purge=True).",
            )
        catalog.refuse_tagged(self._session, record)
        removal = mirror.Purge(self._session.database, self._session.publisher, self._session.registry)
        if purge:
            removal.check_right()
        if living is not None:
            deletion.check(record.table_id)
            record = self._session.registry.drop(record.table_id, store.condemn_dropped)
        self._session.publish_registration(record.table_id)
        if purge:
            removal.purge(record.table_id)
        else:
            deletion.delete(record.table_id)

    def set_properties(
        self,
        table: TableLike,
        properties: Mapping[str, str],
        *,
        unset: Collection[str] = (),
        committer: str | None = None,
    ) -> Table:
        """Set and unset properties of a table in one metadata commit, so that all readers see it."""
        found = self.table(table)
        with self.begin(isolation="serializable", committer=committer) as tx:
            altered = tx.alter(found.id)
            if properties:
                altered.set_properties(properties)
            if unset:
                altered.unset_properties(unset)
        return self.table(found.id)

    # -- transactions ------------------------------------------------------------------------------------------

    def begin(self, **options: Unpack[BeginOptions]) -> Transaction:
        """Begin a transaction over any tables of this catalog.

        `isolation` says what the commit checks: "strict" (no table that was read or is written has a newer version),
        "serializable", "write_serializable" or "snapshot". A `txn_id`, a UUID or any text ("daily-2026-01-30"), makes
        the transaction repeatable: after the commit, another transaction with the same id changes nothing and
        returns the first one's result. `mirror` ("inline", "async" or "off") says who publishes the commit, and
        overrides the tables' and the catalog's setting. `timeout` is in seconds. See `BeginOptions` for all options.
        """
        return transaction.Transaction(self._session, **options)

    def run(
        self,
        function: Callable[[Transaction], Result],
        *,
        retries: int = 5,
        retry_timeout: float | None = None,
        **options: Unpack[BeginOptions],
    ) -> Result:
        """Run a function in a transaction, commit it, and return the function's result.

        After a conflict, a serialization failure or a deadlock, the function runs again in a new transaction, at most
        `retries` times and for at most `retry_timeout` seconds. Any other error is raised at once. The options are
        those of `begin`.
        """
        check_keywords("run", options, transaction.BeginOptions)
        return run(lambda: self.begin(**options), function, retries=retries, timeout=retry_timeout)

    def snapshot(self, as_of: AsOf | None = None, *, timeout: float | None = None) -> CatalogSnapshot:
        """Return every table at one moment: now, or as of a tag, a transaction (its id, text or result) or a time.

        A snapshot of the past waits for commits that may still belong to it, at most `timeout` seconds. The snapshot
        as of a time never changes once it was returned. A role that can only read, and gives a time after the newest
        commit, gets the snapshot as of that commit: see its `as_of`. A standby refuses snapshots of the past.
        """
        return catalog.CatalogSnapshot(self._session, self._session.cut(as_of, timeout_s=timeout))

    def sql(
        self,
        query: str,
        *,
        as_of: AsOf | None = None,
        args: Mapping[str, Any] | Sequence[Any] | None = None,
        spark: SparkSession | None = None,
    ) -> DataFrame:
        """Run a query or another statement in Spark's SQL, and return its rows as a Spark DataFrame.

        A query reads all its tables at one moment: now, or `as_of`, as for `snapshot`. `VERSION AS OF` and
        `TIMESTAMP AS OF` read one table at another. A change (INSERT, UPDATE, DELETE, MERGE, CREATE TABLE, ALTER TABLE,
        …) is one transaction, and returns what it did. `BEGIN ATOMIC statement; statement; END` is one transaction over
        all tables in it. `args` has the values of parameters: a dict for `:name`, or a list for `?`. A name that is no
        table may be a temporary view of the Spark session, where rows are read.
        """
        plane = transaction.spark_plane("catalog.sql_to_arrow(statement)")
        session = plane.session(spark)
        moment = transaction.in_session_zone(self._session, as_of, session)
        engine = transaction.Engine(session, prefers_spark=True)
        return catalog.run_statement(self, query, args, engine, as_of=moment).to_spark(session)

    def sql_to_arrow(
        self,
        query: str,
        *,
        as_of: AsOf | None = None,
        args: Mapping[str, Any] | Sequence[Any] | None = None,
        spark: SparkSession | None = None,
    ) -> pa.Table:
        """Run a statement as `sql` does, and return its rows as a pyarrow table. Most statements need no Spark.

        DuckDB runs a query in this process where its rows are the same as Spark's. Other queries, and changes that only
        Spark can compute, need a Spark session.
        """
        return catalog.run_statement(self, query, args, transaction.Engine(spark), as_of=as_of).to_arrow()

    def sql_script(
        self,
        script: str,
        *,
        args: Mapping[str, Any] | Sequence[Any] | None = None,
        spark: SparkSession | None = None,
    ) -> list[pa.Table]:
        """Run statements that are separated by semicolons, and return the rows of each as a pyarrow table.

        Statements between `BEGIN` and `COMMIT` are one transaction; so are those of `BEGIN ATOMIC … END`. Each other
        statement is committed alone. The whole script is parsed first: a syntax error runs nothing. If a statement
        fails, its transaction is rolled back, and those after it do not run. As for `sql_to_arrow`, Spark is needed
        only for some statements.
        """
        return catalog.run_script(self, script, args, transaction.Engine(spark))

    def read(
        self,
        table: TableLike,
        *,
        version: int | None = None,
        timestamp: Moment | None = None,
        as_of: AsOf | None = None,
        where: str | None = None,
        columns: Sequence[str] | None = None,
        spark: SparkSession | None = None,
    ) -> DataFrame:
        """Read one table as a Spark DataFrame. See `Table.read`; `table(…).to_pandas()` and others need no Spark."""
        return self.table(table).read(
            version=version, timestamp=timestamp, as_of=as_of, where=where, columns=columns, spark=spark
        )

    def write(
        self, table: TableLike, df: Frame, mode: WriteMode = "append", **options: Unpack[WriteOptions]
    ) -> TransactionResult:
        """Write one table in one transaction with isolation "serializable": two concurrent appends both succeed.

        Mode and options are those of `Transaction.write`.
        """
        with self.begin(isolation="serializable") as tx:
            tx.write(table, df, mode, **options)
        return tx.result

    def transaction(self, txn_id: TxnId) -> TransactionDetail:
        """Return what a committed transaction did to each of its tables. Raise `TransactionNotFound` for another id."""
        return catalog.transaction_detail(self._session, txn_id)

    def resolve(self, txn_id: TxnId) -> TransactionResult | None:
        """Return the result of a transaction whose outcome was unknown. `None`: it did not commit, and never can.

        An id that has not committed is blocked by this call; `transaction` only looks. `txn_id` is the id, or the text
        given to `begin(txn_id=…)`.
        """
        key = log.as_txn_id(txn_id)
        committed = self._session.writer.resolve(key, timeout_s=self._session.settings.timeout)
        if committed is None:
            return None
        names = self._session.registry.names(committed.versions)
        versions = {names[key]: version for key, version in committed.versions.items()}
        return transaction.TransactionResult(key, committed.commit_ts, versions, dict(committed.versions))

    # -- the mirror --------------------------------------------------------------------------------------------

    def mirror_status(self) -> list[MirrorStatus]:
        """Return how far each table is published to its `_delta_log`, by name.

        A table whose log has a version that the catalog does not have is marked as DIVERGED at once.
        """
        return mirror.Divergence(self._session.publisher).look_at(self._session.publisher.status.overview())

    def compare_log(self, table: TableLike) -> LogComparison:
        """Return how far a table's `_delta_log` and the catalog agree, and which versions contradict each other."""
        return catalog.compare_log(self._session, self._session.find(table).table_id)

    def accept_log(
        self, table: TableLike, *, discard: bool = False, report: Callable[[Progress], None] | None = None
    ) -> LogComparison:
        """Make a diverged table follow its `_delta_log`, and return what was done.

        Versions that only the log has are imported. Versions of the catalog that contradict the log are discarded, but
        only with `discard=True`. The table keeps its id and name. Call it again to finish an interrupted run.
        """
        check_flags(discard=discard)
        return catalog.accept_log(self._session, self._session.find(table).table_id, discard=discard, report=report)

    def reconciler(
        self,
        *,
        concurrency: int | None = None,
        poll_s: float = 1.0,
        inspect_s: float = 300.0,
        lag_alert_s: float = 60.0,
        on_lag: Callable[[MirrorStatus, float], None] | None = None,
    ) -> Reconciler:
        """Return the reconciler, which publishes what committers left, and repairs: `.once()`, or `.run()`.

        `.stop()` ends `.run()`. `concurrency` is the number of tables published at once, by default the setting
        `mirror_concurrency`. It looks for unpublished commits every `poll_s` seconds, and for damage every `inspect_s`
        seconds. `on_lag` is called with a table's status and its lag in seconds once the lag exceeds `lag_alert_s`.
        """
        return mirror.Reconciler(
            self._session.database,
            self._session.publisher,
            concurrency=self._session.settings.mirror_concurrency if concurrency is None else concurrency,
            poll_s=poll_s,
            inspect_s=inspect_s,
            lag_alert_s=lag_alert_s,
            on_lag=on_lag,
        )

    def close(self) -> None:
        """Close the pooled connections. The catalog stays usable: the next call opens new ones."""
        self._session.close()

    def __enter__(self) -> Catalog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Catalog {self.uri}>"

    def _repr_html_(self) -> str:
        try:
            tables = TableList(self.tables())._repr_html_()
        except DeltarsError as error:
            # A notebook that shows a catalog must not fail because its database is away.
            tables = f"<p>{escape(str(error))}</p>"
        return f"<p>{escape(repr(self))}</p>{catalog.recent_lanes(self._session)}{tables}"

    def __reduce__(self) -> tuple[Callable[..., Catalog], tuple[CatalogConfig]]:
        return Catalog, (self._config,)
