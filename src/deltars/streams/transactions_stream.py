"""A stream of transactions: each micro-batch is a range of whole transactions over many tables, in commit order.

    transactions_stream(spark, tables=[…])           one row for each transaction: id, time, versions of its tables
        .writeStream.foreachBatch(each_batch(fn))    fn(tx, transactions): tx.changes(table) has the range's rows

    offset {commit_ts: 1794985233549000, versions: {table: version}}      a cut: everything in it is delivered

The rows of the stream are few: they only say which versions a batch covers. What changed is read by `tx.changes`, by
Spark's own Parquet reader. The first batch is the cut at which the stream begins: `tx.changes` has every row then.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from uuid import UUID

from deltars.arguments import checks_call
from deltars.catalog.catalog import Catalog
from deltars.catalog.changes import Changes, TransactionChanges, catalog_changes, changes_between, initial_changes
from deltars.catalog.connection import shared_catalog
from deltars.errors import ValidationError, VersionNotFound
from deltars.log.moments import from_microseconds
from deltars.session import CatalogSession, TableLike, as_tables
from deltars.store.read.as_of import AsOf
from deltars.streams.options import Options
from deltars.transaction.plane import spark_plane

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TRANSACTION_SCHEMA = (
    "txn_id STRING, committed_at TIMESTAMP, commit_ts BIGINT, committer STRING, user_metadata STRING,"
    " is_initial BOOLEAN, versions MAP<STRING, STRUCT<first: BIGINT, last: BIGINT>>, catalog STRING"
)
"""Columns of the stream. `versions` has the first and the last version of each table, by the table's id."""

_opened: dict[str, Catalog] = {}
"""Catalogs that streams of this process read, by URI without its password."""


@checks_call
def transactions_stream(
    spark: SparkSession,
    tables: TableLike | Sequence[TableLike] | None = None,
    *,
    catalog: Catalog | str | None = None,
    since: AsOf | None = None,
    max_transactions: int | None = None,
) -> DataFrame:
    """Return a stream whose micro-batches are ranges of whole transactions, for `foreachBatch(each_batch(fn))`.

    `tables` are the tables to follow, by default every table. In `fn(tx, transactions)`, `tx.changes(table)` has the
    rows that the range changed in a table. The first batch has every row that is there; with `since`, a tag, a
    transaction or a time, the stream begins after it instead. `max_transactions` limits a batch. `catalog` is the one
    to read; `each_batch(fn, catalog=…)` can write to another.
    """
    if not isinstance(catalog, Catalog):
        catalog = shared_catalog(catalog, create=False)
    uri = catalog._session.uri.absolute().with_secrets()
    # Spark hides options with this name from its plans and pages.
    options = {"transactions": "true", "catalog" if uri == catalog.uri else "catalogSecret": uri}
    if tables is not None:
        found = catalog._session.find_all(as_tables(tables))
        if not found:
            raise ValidationError("tables is empty", field="tables", hint="Omit it to follow every table.")
        options["tables"] = json.dumps([str(record.table_id) for record in found])
    if since is not None:
        # As a time: the text of a transaction or of a tag could mean another one later.
        cut = catalog._session.cut(since)
        assert cut.commit_ts is not None
        options["since"] = str(cut.commit_ts)
    if max_transactions is not None:
        if type(max_transactions) is not int or max_transactions < 1:
            raise ValidationError(
                f"max_transactions must be a whole number of 1 or more, got {max_transactions!r}",
                field="max_transactions",
            )
        options["maxTransactionsPerTrigger"] = str(max_transactions)
    _opened[catalog.uri] = catalog
    return spark_plane().stream(spark, options)


@dataclass(frozen=True, slots=True)
class CutOffset:
    """Every transaction up to `commit_ts` is delivered."""

    commit_ts: int
    versions: Mapping[str, int]
    """Version of each table in this cut, by its id. A table that is not there has no version."""
    begun: bool = True
    """Whether the cut itself is delivered, as the first batch."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class TransactionSource:
    """Source of the transactions of a catalog, for Spark's driver."""

    def __init__(self, options: Options) -> None:
        self._session: CatalogSession = options.catalog()._session
        self._options = options
        given = options.text("tables")
        self._tables = None if given is None else [UUID(table) for table in json.loads(given)]
        self._target: int | None = None

    def initial(self) -> CutOffset:
        since = self._options.number("since")
        if since is None:
            return CutOffset(0, {}, begun=False)
        return self._cut(since)

    def stop_at_current(self) -> None:
        self._target = self._session.cuts.newest_us() or 0

    def next_offset(self, start: CutOffset) -> CutOffset:
        """Return the cut at which the next batch ends: `start` itself if nothing was committed to the tables since."""
        newest = self._session.cuts.newest_us() if self._target is None else self._target
        if start.begun and (newest is None or newest < start.commit_ts):
            # Tables that were purged took their commits along. Otherwise the database is not the one it was.
            self._refuse_other_past(start, CutOffset(0, {}) if newest is None else self._cut(newest))
            return start
        if newest is None or (start.begun and newest == start.commit_ts):
            return start
        end = self._cut(newest)
        if not start.begun:
            return end
        if end.versions == start.versions:
            return start
        self._refuse_other_past(start, self._cut(start.commit_ts))
        limit = self._options.number("maxTransactionsPerTrigger", 1)
        if limit is not None:
            found = self._transactions(start, end)
            if len(found) > limit:
                return self._cut(found[limit - 1].commit_ts)
        return end

    def rows(self, start: CutOffset, end: CutOffset) -> list[tuple[Any, ...]]:
        """Return a row for each transaction between two cuts, in commit order. The first batch has one."""
        uri = str(self._session.uri)
        if not start.begun:
            moment = from_microseconds(end.commit_ts)
            versions = {table: (version, version) for table, version in end.versions.items()}
            return [(None, moment, end.commit_ts, None, None, True, versions, uri)] if end.begun else []
        return [
            (
                str(one.txn_id), one.committed_at, one.commit_ts, one.committer, one.user_metadata, False,
                {str(changes._table.table_id): (changes.start, changes.end) for changes in one.tables.values()}, uri,
            )
            for one in self._transactions(start, end)
        ]  # fmt: skip

    def _transactions(self, start: CutOffset, end: CutOffset) -> list[TransactionChanges]:
        found = catalog_changes(self._session, from_microseconds(start.commit_ts), self._tables)
        return [one for one in found if one.commit_ts <= end.commit_ts]

    def _refuse_other_past(self, start: CutOffset, found: CutOffset) -> None:
        """Raise if the catalog has other versions at the offset than were delivered. Tables may be gone, or expired."""
        current = self._session.cuts.now().versions_by_id
        for table, version in start.versions.items():
            now = current.get(UUID(table))
            if now is not None and (now < version or found.versions.get(table, version) != version):
                raise VersionNotFound(
                    f"the stream has delivered version {version}, and the catalog has another past now: the database"
                    " was restored or failed over",
                    table_id=UUID(table),
                    latest=now,
                    field="checkpointLocation",
                    hint="Start the query again with a new checkpoint: its first batch has every row that is there.",
                )

    def _cut(self, commit_ts: int) -> CutOffset:
        cut = self._session.cut(from_microseconds(commit_ts))
        followed = None if self._tables is None else set(self._tables)
        versions = {
            str(table): version
            for table, version in cut.versions_by_id.items()
            if followed is None or table in followed
        }
        return CutOffset(commit_ts, dict(sorted(versions.items())))


class BatchChanges:
    """What a micro-batch of a transaction stream covers: `tx.changes(table)`."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._rows = rows

    @classmethod
    def of(cls, batch: DataFrame) -> BatchChanges | None:
        """Return what a batch covers; None if it is not one of a transaction stream."""
        rows = spark_plane().rows_with(batch, cls.columns())
        return None if rows is None else cls(rows)

    @classmethod
    def columns(cls) -> list[str]:
        """Return the names of the columns by which a batch of the stream is known."""
        return [
            "txn_id",
            "committed_at",
            "commit_ts",
            "committer",
            "user_metadata",
            "is_initial",
            "versions",
            "catalog",
        ]

    def changes(self, table: TableLike) -> Changes:
        """Return the rows that the batch's transactions changed in a table."""
        if not self._rows:
            raise ValidationError("the batch has no transactions", field="table")
        session = _catalog_of(str(self._rows[0]["catalog"]))._session
        record = session.find(table)
        key = str(record.table_id)
        ranges = sorted(tuple(row["versions"][key]) for row in self._rows if key in row["versions"])
        if not ranges:
            current = session.reader.current_version(record.table_id)
            return changes_between(session, record, current, current)
        first, last = ranges[0][0], ranges[-1][1]
        if self._rows[0]["is_initial"]:
            return initial_changes(session, record, last)
        if any(after != before + 1 for (_, before), (after, _) in pairwise(ranges)):
            raise ValidationError(
                "transactions were filtered out of the batch, so it is not a range of them",
                table=record.name,
                field="table",
                hint="Write foreachBatch on the stream itself, and filter the rows of tx.changes(table).",
            )
        return changes_between(session, record, first - 1, last)


def _catalog_of(uri: str) -> Catalog:
    return _opened.get(uri) or shared_catalog(uri, create=False)
