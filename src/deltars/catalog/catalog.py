"""A catalog, as a user holds it: its tables, and the transactions over them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID, uuid4

from deltars.catalog import handover
from deltars.catalog.log_acceptance import LogComparison, accept_log, compare_log
from deltars.catalog.retry import run
from deltars.catalog.snapshot import CatalogSnapshot, is_time, to_microseconds
from deltars.catalog.table import Table
from deltars.catalog.transactions import TransactionDetail, transaction_detail
from deltars.config import CatalogConfig, Isolation
from deltars.errors import TableNotFound, TransactionNotFound, ValidationError
from deltars.importer import Progress
from deltars.log.commit import NewTable
from deltars.log.transaction_id import TxnId, as_txn_id, is_uuid
from deltars.mirror import Reconciler
from deltars.mirror.deletion import Deletion
from deltars.mirror.divergence import Divergence
from deltars.protocol import SchemaLike
from deltars.session import CatalogSession
from deltars.store.mirror.status import MirrorStatus
from deltars.store.names import check_name
from deltars.store.read.cuts import Cut
from deltars.transaction import Transaction, TransactionResult
from deltars.transaction.create_table import create_table, location_of
from deltars.transaction.plane import spark_plane

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Result = TypeVar("Result")


class Catalog:
    """Made by `deltars.connect()`. Pickles; a forked or unpickled copy opens connections of its own."""

    def __init__(self, config: CatalogConfig) -> None:
        self._session = CatalogSession(config.uri, config.settings)
        self._config = config

    @property
    def uri(self) -> str:
        """Where the catalog is; shows no password."""
        return str(self._session.uri)

    @property
    def warehouse(self) -> str | None:
        return self._session.registry.warehouse()

    @property
    def is_standby(self) -> bool:
        """Whether the database is a hot standby: it can be read, with what its primary has sent so far."""
        return self._session.cuts.is_standby()

    # -- tables ------------------------------------------------------------------------------------------------

    def create_table(
        self,
        name: str,
        schema: SchemaLike,
        *,
        location: str | None = None,
        partition_by: str | Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        description: str | None = None,
        if_not_exists: bool = False,
        replace: bool = False,
        committer: str | None = None,
    ) -> Table:
        """Create a table with a commit of its version 0.

        `schema` is a Spark StructType, a DDL string (`"id BIGINT NOT NULL, day DATE"`), a pyarrow schema or a Delta
        schema. `if_not_exists` returns the table that is there; `replace` gives it a new schema and no rows.
        """
        record = create_table(
            self._session,
            name,
            schema,
            location=location,
            partition_by=partition_by,
            properties=properties,
            description=description,
            if_not_exists=if_not_exists,
            replace=replace,
            committer=committer,
        )
        return Table(self._session, record)

    def register_table(self, name: str, location: str) -> Table:
        """Register a table at version −1, for a program that writes version 0 itself."""
        check_name(name)
        table_id = uuid4()
        record = self._session.registry.register(
            NewTable(table_id, name, location_of(self._session, name, table_id, location))
        )
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
        """Take in a Delta table that others wrote, where it lies, with the history that its log still has.

        Other writers are fenced off, readers go on as before. An import that was interrupted is finished by calling it
        again. `read_only` leaves the table to its writers: call it again to see what they have committed since.
        `take_over` takes a table that another deltars catalog fenced, and which is gone for good.
        """
        table_id = handover.import_table(
            self._session, location, name, read_only=read_only, take_over=take_over, report=report
        )
        return self.table(table_id)

    def release(self, table: str | UUID) -> int:
        """Give a table back to plain Delta writers. Nothing can be committed to it here until it is adopted again."""
        return handover.release(self._session, self._session.find(table).table_id)

    def adopt(self, table: str | UUID, *, report: Callable[[Progress], None] | None = None) -> int:
        """Take a released table back, with everything that others have committed to it since."""
        return handover.adopt(self._session, self._session.find(table).table_id, report=report)

    def tables(self) -> list[Table]:
        """Every table, by name."""
        return [Table(self._session, record) for record in self._session.registry.tables()]

    def table(self, table: str | UUID) -> Table:
        """A table by its name, in whatever case, its id or its whole `deltasql://` URI."""
        return Table(self._session, self._session.find(table))

    def table_exists(self, table: str | UUID) -> bool:
        return self._session.registry.find(self._session.name_or_id(table)) is not None

    def rename_table(self, table: str | UUID, name: str) -> Table:
        """Give a table another name, or its name in another case. Its id, its location and its history stay."""
        record = self._session.registry.rename(self._session.name_or_id(table), name)
        self._session.publish_registration(record.table_id)
        return Table(self._session, record)

    def drop_table(self, table: str | UUID, *, delete_data: bool = False) -> None:
        """Take a table out of the catalog. Its log stays in the database, its files stay unless `delete_data`.

        `delete_data` deletes what the table's log names and what no log names, the `_delta_log` last. It is refused for
        a table whose log is others' (imported read-only, released), before anything is changed. Call it again to finish
        a deletion that was interrupted: it also takes a table that is dropped already.
        """
        key = self._session.name_or_id(table)
        if not delete_data:
            self._session.publish_registration(self._session.registry.drop(key).table_id)
            return
        deletion = Deletion(self._session.database, self._session.publisher, self._session.registry)
        record = self._session.registry.find(key)
        if record is not None:
            deletion.check(record.table_id)
            record = self._session.registry.drop(record.table_id)
        else:
            record = self._session.registry.find_dropped(key)
        if record is None:
            raise TableNotFound(f"there is no table {str(table)!r} in {self.uri}", table=str(table))
        self._session.publish_registration(record.table_id)
        deletion.delete(record.table_id)

    def set_properties(
        self,
        table: str | UUID,
        properties: Mapping[str, str],
        *,
        unset: Collection[str] = (),
        committer: str | None = None,
    ) -> Table:
        """Set properties of a table and take others away, with one metadata commit: all readers see it."""
        found = self.table(table)
        with self.begin(isolation="serializable", committer=committer) as tx:
            altered = tx.alter(found.id)
            if properties:
                altered.set_properties(properties)
            if unset:
                altered.unset_properties(unset)
        return self.table(found.id)

    # -- transactions ------------------------------------------------------------------------------------------

    def begin(
        self,
        *,
        isolation: Isolation | None = None,
        timeout: float | None = None,
        committer: str | None = None,
        txn_id: TxnId | None = None,
        user_metadata: str | None = None,
        max_tables: int | None = None,
        max_files_per_table: int | None = None,
        mirror: str | None = None,
    ) -> Transaction:
        """Begin a transaction over any tables of this catalog.

        `isolation` is "strict" (whatever it read or writes must not have changed), "serializable",
        "write_serializable" or "snapshot". A `txn_id` of your own, a UUID or any text ("daily-2026-01-30"), makes it
        repeatable: once committed, another transaction of the same id changes nothing and has the first one's result.
        `mirror` says who publishes it,
        whatever the tables and the catalog say: "inline", "async" or "off".
        """
        return Transaction(
            self._session,
            isolation=isolation,
            timeout=timeout,
            committer=committer,
            txn_id=txn_id,
            user_metadata=user_metadata,
            max_tables=max_tables,
            max_files_per_table=max_files_per_table,
            mirror=mirror,
        )

    def run(
        self,
        function: Callable[[Transaction], Result],
        *,
        retries: int = 5,
        retry_timeout: float | None = None,
        **options: Any,
    ) -> Result:
        """Run a function in a transaction, and again in a new one when it lost a race.

        That is a conflict, a serialization failure or a deadlock; anything else is raised at once. `options` are
        those of `begin`.
        """
        return run(lambda: self.begin(**options), function, retries=retries, timeout=retry_timeout)

    def snapshot(self, as_of: TxnId | datetime | None = None, *, timeout: float | None = None) -> CatalogSnapshot:
        """Every table at one moment: now, as of a transaction (its id, or the text it was given), or as of a time.

        A cut of the past waits for commits that may still belong to it, at most for `timeout`. Once answered, the cut
        as of a time is the same for ever. Who may only read, and asks for a time after the newest commit, gets the cut
        as of that commit: see its `as_of`. A standby refuses cuts of the past.
        """
        wait_s = self._session.settings.timeout if timeout is None else timeout
        moment = self._as_moment(as_of)
        match moment:
            case None:
                cut = self._session.cuts.now()
            case UUID():
                cut = self._cut_of(moment, as_of, wait_s)
            case _:
                cut = self._session.cuts.at(to_microseconds(moment), timeout_s=wait_s)
        return CatalogSnapshot(self._session, cut)

    def sql(
        self,
        query: str,
        *,
        as_of: TxnId | datetime | None = None,
        args: Mapping[str, Any] | Sequence[Any] | None = None,
        spark: SparkSession | None = None,
    ) -> DataFrame:
        """The answer to a query over tables of this catalog, all at one moment. See `CatalogSnapshot.sql`.

        A time without a zone is in that of the Spark session.
        """
        moment = self._as_moment(as_of)
        cut = as_of if isinstance(moment, UUID) else spark_plane().moment(spark, moment)
        return self.snapshot(cut).sql(query, args=args, spark=spark)

    def write(self, table: str | UUID, df: Any, mode: str = "append", **options: Any) -> TransactionResult:
        """Write one table: a transaction of its own, which what others append meanwhile does not disturb."""
        with self.begin(isolation="serializable") as tx:
            tx.write(table, df, mode, **options)
        return tx.result

    def transaction(self, txn_id: TxnId) -> TransactionDetail:
        """What one committed transaction did, over all its tables."""
        return transaction_detail(self._session, txn_id)

    def resolve(self, txn_id: TxnId) -> TransactionResult | None:
        """What became of a transaction whose outcome was unknown. `None`: it did not commit, and never can.

        `txn_id` is the id, or the text that `begin(txn_id=…)` was given.
        """
        key = as_txn_id(txn_id)
        committed = self._session.writer.resolve(key, timeout_s=self._session.settings.timeout)
        if committed is None:
            return None
        names = self._session.registry.names(committed.versions)
        versions = {names[key]: version for key, version in committed.versions.items()}
        return TransactionResult(key, committed.commit_ts, versions, dict(committed.versions))

    # -- the mirror --------------------------------------------------------------------------------------------

    def mirror_status(self) -> list[MirrorStatus]:
        """How far each table is published to its `_delta_log`, by name.

        Also looks whether each log has a version that the catalog does not have: such a table is DIVERGED at once.
        """
        return Divergence(self._session.publisher).look_at(self._session.publisher.status.overview())

    def compare_log(self, table: str | UUID) -> LogComparison:
        """How far a table's `_delta_log` and the catalog agree, and which versions contradict each other."""
        return compare_log(self._session, self._session.find(table).table_id)

    def accept_log(
        self, table: str | UUID, *, discard: bool = False, report: Callable[[Progress], None] | None = None
    ) -> LogComparison:
        """Make a table follow its `_delta_log` where the two have diverged; what was done comes back.

        Versions that only the log has are taken in. Versions of the catalog that contradict it are discarded, only
        with `discard=True`. The table keeps its id and name. If it is interrupted, call it again.
        """
        return accept_log(self._session, self._session.find(table).table_id, discard=discard, report=report)

    def reconciler(self, **options: Any) -> Reconciler:
        """What publishes, apart from the committers, and mends: `.once()`, or `.run()` until `.stop()`."""
        defaults = {"concurrency": self._session.settings.mirror_concurrency}
        return Reconciler(self._session.database, self._session.publisher, **(defaults | options))

    def close(self) -> None:
        """Close the pooled connections. The catalog stays usable: the next call opens new ones."""
        self._session.close()

    def __enter__(self) -> Catalog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Catalog {self.uri}>"

    def __reduce__(self) -> tuple[Callable[..., Catalog], tuple[CatalogConfig]]:
        return Catalog, (self._config,)

    def _cut_of(self, txn_id: UUID, as_of: TxnId | datetime | None, wait_s: float) -> Cut:
        try:
            return self._session.cuts.of(txn_id, timeout_s=wait_s)
        except TransactionNotFound:
            if not isinstance(as_of, str) or is_uuid(as_of):
                raise
            raise ValidationError(
                f"{as_of!r} is neither a transaction's id nor a time",
                field="as_of",
                hint="Write 2026-01-31T12:00:00Z, or the text that a committed transaction was begun with.",
            ) from None

    def _as_moment(self, as_of: TxnId | datetime | None) -> UUID | datetime | str | None:
        """A text that reads as a UUID is an id, one that reads as a time is a time, any other is a text for an id."""
        if not isinstance(as_of, str):
            return as_of
        key = as_txn_id(as_of)
        if not is_time(as_of):
            return key
        if self._session.writer.find_committed(key) is not None:
            raise ValidationError(
                f"{as_of!r} is a time, and a transaction was committed with this text as its id",
                field="as_of",
                hint=f"Give the time as a datetime, or the transaction's id: {key}.",
            )
        return as_of
