"""One micro-batch of a stream, committed as one transaction, exactly once.

    is the transaction "app/7" committed? ── yes ──▶ nothing
        └─ no ──▶ body(tx) ──▶ commit, with (app, 7) in every changed table
                     ▲─────────── conflict: again

The id of the transaction is made from the application and the batch. So a repeated batch is known before anything runs,
whatever the body does, and two copies of a query cannot both commit it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Self
from uuid import UUID

import msgspec

from deltars.catalog.catalog import Catalog
from deltars.errors import ValidationError, VersionNotFound
from deltars.log.transaction_id import as_txn_id
from deltars.observe import BatchEnded, Outcome, emit
from deltars.transaction import BeginOptions, Transaction, TransactionResult
from deltars.transaction.stream_progress import AlreadyCommittedError, note_batch

_QUERY, _BATCH, _APPLICATION = "queryId", "epochId", "appId"
"""Parameters of the tables' history. The first two have the names that Delta's streams use."""


class MicroBatch:
    """One batch of one stream. `query_id` is the id in the stream's checkpoint, if it is known."""

    def __init__(self, app_id: str, batch_id: int, query_id: str | None) -> None:
        self.app_id = app_id
        self.batch_id = batch_id
        self._query_id = query_id
        self.txn_id: UUID = as_txn_id(f"{app_id}/{batch_id}")

    def commit(
        self,
        catalog: Catalog,
        options: BeginOptions,
        prepare: Callable[[], Callable[[Transaction], object]],
    ) -> TransactionResult | None:
        """Commit the batch, unless it was committed before. `prepare` returns the body; it is called at most once.

        Return what was committed; None if the batch was committed before.
        """
        began = time.perf_counter()
        source = catalog._session.database.source

        def ended(outcome: Outcome, versions: Mapping[str, int] | None = None, error: Exception | None = None) -> None:
            took_s = time.perf_counter() - began
            emit(BatchEnded(source, self.txn_id, self.app_id, self.batch_id, outcome, took_s, versions or {}, error))

        try:
            if self._is_committed(catalog):
                ended(Outcome.REPEATED)
                return None
            tx = self._try(catalog, options, prepare())
        except Exception as error:
            ended(Outcome.of(error), error=error)
            raise
        if tx is None:
            ended(Outcome.REPEATED)
            return None
        versions = tx.result.versions
        ended(Outcome.COMMITTED if versions else Outcome.EMPTY, versions)
        return tx.result

    def _try(
        self, catalog: Catalog, options: BeginOptions, body: Callable[[Transaction], object]
    ) -> Transaction | None:
        """Return the transaction; None if a copy of the query committed the batch meanwhile.

        Raise if another query did, between the first look and the commit. The store then takes the commit as repeated.
        """
        try:
            tx = self._run(catalog, options, body)
        except AlreadyCommittedError:
            self._is_committed(catalog)
            return None
        if self._query_id is not None:
            self._is_committed(catalog)
        return tx

    def _run(self, catalog: Catalog, options: BeginOptions, body: Callable[[Transaction], object]) -> Transaction:
        def attempt(tx: Transaction) -> Transaction:
            if tx.is_repeated:
                # A copy of the query committed the batch since.
                raise AlreadyCommittedError
            body(tx)
            note_batch(tx, self.app_id, self.batch_id, self._params)
            return tx

        given: BeginOptions = {**options, "txn_id": self.txn_id}
        return catalog.run(attempt, **given)

    @property
    def _params(self) -> dict[str, str | int]:
        """Parameters for the tables' history."""
        found: dict[str, str | int] = {_APPLICATION: self.app_id, _BATCH: self.batch_id}
        return found if self._query_id is None else {**found, _QUERY: self._query_id}

    def _is_committed(self, catalog: Catalog) -> bool:
        """Return whether the batch was committed. Raise if another query committed it: its rows are others.

        A query whose checkpoint was deleted begins again with batch 0. Skipped silently, its rows would be lost.
        """
        earlier = catalog._session.reader.transaction(self.txn_id)
        if earlier is None:
            return False
        queries = {version.operation_params.get(_QUERY) for version in earlier.tables.values()} - {None}
        if self._query_id is not None and queries and self._query_id not in queries:
            raise ValidationError(
                f"batch {self.batch_id} of {self.app_id!r} was committed by another query, {queries.pop()}",
                txn_id=self.txn_id,
                field="app_id",
                hint="If the stream's checkpoint was deleted or replaced, give it a new app_id.",
            )
        return True


class CommittedBatch(msgspec.Struct, frozen=True):
    """A batch that a query committed. It is gone if the database is restored to an earlier state.

    Spark's checkpoint has the batch, so Spark does not repeat it: its rows would be missing without a word.
    """

    app_id: str
    batch_id: int
    versions: dict[UUID, int]

    @classmethod
    def of(cls, batch: MicroBatch, result: TransactionResult | None) -> Self | None:
        """Return the batch, if it changed a table."""
        if result is None or not result.versions:
            return None
        return cls(batch.app_id, batch.batch_id, dict(result.versions_by_id))

    def refuse_lost(self, catalog: Catalog) -> None:
        """Raise `VersionNotFound` if the catalog does not have the batch any more."""
        session = catalog._session
        batch = MicroBatch(self.app_id, self.batch_id, None)
        if session.reader.transaction(batch.txn_id) is not None:
            return
        now = session.cuts.now()
        for table_id, version in self.versions.items():
            table = now.find(table_id)
            # Its history may be expired, and a table may be dropped.
            if table is not None and not session.reader.is_expired(table_id, version):
                raise VersionNotFound(
                    f"batch {batch.batch_id} of {batch.app_id!r}, which this query committed, is not in the catalog any"
                    " more: the database was restored or failed over",
                    latest=table.version,
                    table=table.name,
                    txn_id=batch.txn_id,
                    field="checkpointLocation",
                    hint="The rows of lost batches must be delivered again: start the query again with a new checkpoint"
                    " and a new app_id, from where the tables are.",
                )
