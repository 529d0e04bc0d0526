"""Micro-batches of a stream, each written to any number of tables exactly once.

query.writeStream.foreachBatch(each_batch(fn))

batch 7 ──▶ MicroBatch ──▶ rows, evaluated once ──▶ fn(tx, rows) ──▶ commit
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

from deltars.arguments import check_keywords, check_texts, checks_call
from deltars.catalog.catalog import Catalog
from deltars.catalog.connection import shared_catalog
from deltars.errors import ConfigError, ValidationError, brief
from deltars.log.snapshot import as_whole
from deltars.streams.batch import CommittedBatch, MicroBatch
from deltars.streams.transactions_stream import BatchChanges
from deltars.transaction import BeginOptions, Transaction
from deltars.transaction.plane import spark_plane

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BatchFunction: TypeAlias = (
    "Callable[[Transaction, DataFrame], object] | Callable[[Transaction, DataFrame, int], object]"
)
"""What a micro-batch does: `fn(tx, rows)` or `fn(tx, rows, batch_id)`."""


@checks_call
def each_batch(
    fn: BatchFunction,
    app_id: str | None = None,
    catalog: Catalog | str | None = None,
    **options: Unpack[BeginOptions],
) -> EachBatch:
    """Return a function for `foreachBatch`, which runs `fn` in one transaction for each micro-batch, exactly once.

    `fn(tx, rows)`, or `fn(tx, rows, batch_id)`, writes and changes any tables by calls of the transaction. A batch that
    Spark repeats after a failure changes nothing. After a conflict, `fn` runs again in a new transaction, with the same
    rows. `app_id` names the stream; by default it is the id of the query, which is kept in its checkpoint. `catalog` is
    an open catalog, a URI or a name as for `connect`. The options are those of `begin`, without `txn_id`.

    With Spark Connect, the function runs at the server: deltars must be installed there, the catalog must be reachable
    from there, and `app_id` is needed.
    """
    check_keywords("each_batch", options, BeginOptions)
    if "txn_id" in options:
        raise ValidationError(
            "each_batch() makes the transaction's id itself, from app_id and the batch",
            field="txn_id",
            hint='Name the stream with app_id="…", and omit txn_id.',
        )
    check_texts(app_id=app_id)
    if app_id is not None and not app_id.strip():
        raise ValidationError("app_id must not be empty", field="app_id", hint="Give the stream a name, or omit it.")
    if catalog is not None and not isinstance(catalog, Catalog | str):
        raise ValidationError(
            f"catalog must be a catalog, a URI or a name, got {brief(catalog)}",
            field="catalog",
            hint="Write catalog=deltars.connect(…).",
        )
    return EachBatch(fn, app_id, catalog, options)


class EachBatch:
    """Function for `foreachBatch`, made by `each_batch`."""

    def __init__(
        self, fn: BatchFunction, app_id: str | None, catalog: Catalog | str | None, options: BeginOptions
    ) -> None:
        self._fn = fn
        self._takes_batch_id = _takes_batch_id(fn)
        self._app_id = app_id
        self._given = catalog
        self._options = options
        self._last: CommittedBatch | None = None

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Commit one micro-batch, unless it was committed before."""
        if not type(batch).__module__.startswith("pyspark.sql"):
            raise ValidationError(
                f"a batch is a Spark DataFrame, got a {type(batch).__module__}.{type(batch).__qualname__}",
                field="batch",
                hint="Spark calls this function: stream.writeStream.foreachBatch(each_batch(fn)).",
            )
        batch_id = as_whole(batch_id, "a batch's id", field="batch_id", hint="Spark counts batches from 0.")
        query_id = spark_plane().query_id(batch)
        app_id = self._app_id or query_id
        if app_id is None:
            raise ConfigError(
                "this Spark session does not tell the id of its query",
                hint='Name the stream: each_batch(fn, app_id="orders-to-lake").',
            )
        catalog = self._given if isinstance(self._given, Catalog) else shared_catalog(self._given)

        def body() -> Callable[[Transaction], object]:
            fn: Callable[..., object] = self._fn
            rows = spark_plane().batch_rows(batch)
            covered = BatchChanges.of(rows)

            def run(tx: Transaction) -> None:
                tx._changes = None if covered is None else covered.changes
                fn(tx, rows, batch_id) if self._takes_batch_id else fn(tx, rows)

            return run

        if self._last is not None:
            self._last.refuse_lost(catalog)
        micro_batch = MicroBatch(app_id, batch_id, query_id)
        result = micro_batch.commit(catalog, self._options, body)
        self._last = CommittedBatch.of(micro_batch, result) or self._last

    def __reduce__(self) -> tuple[Any, ...]:
        from deltars.spark.server import sent_to_server  # pyspark is an extra

        return sent_to_server(EachBatch, (self._fn, self._app_id, self._given, self._options))

    def __repr__(self) -> str:
        name = getattr(self._fn, "__qualname__", repr(self._fn))
        return f"each_batch({name}{'' if self._app_id is None else f', app_id={self._app_id!r}'})"


def _takes_batch_id(fn: object) -> bool:
    """Return whether a function takes the batch's id too. Raise unless it takes a transaction and rows."""
    if not callable(fn) or isinstance(fn, type):
        raise ValidationError(
            f"fn must be a function of a transaction and a batch, got {brief(fn)}",
            field="fn",
            hint='Write each_batch(lambda tx, rows: tx.write("features", rows)).',
        )
    if inspect.iscoroutinefunction(fn) or inspect.isgeneratorfunction(fn):
        raise ValidationError(
            f"fn must be a plain function, and {brief(fn)} is a generator or a coroutine function",
            field="fn",
            hint="Write def without yield and async.",
        )
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):
        return False  # Functions of C have no signature.
    for count in (2, 3):
        try:
            signature.bind(*range(count))
        except TypeError:
            continue
        return count == 3
    raise ValidationError(
        f"fn must take a transaction and a batch, or also the batch's id; it is {brief(fn, 60)}{signature}",
        field="fn",
        hint="Write def fn(tx, rows) or def fn(tx, rows, batch_id).",
    )
