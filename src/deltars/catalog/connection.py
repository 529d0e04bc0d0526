"""Opening catalogs, and the one-line ways in."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltars.catalog.catalog import Catalog
from deltars.config import CatalogConfig, Isolation, configure
from deltars.errors import ConfigError, DeltarsError, ValidationError, WarehouseTaken
from deltars.log.snapshot import Moment
from deltars.log.transaction_id import TxnId
from deltars.observe import opentelemetry, prometheus
from deltars.session import CatalogSession
from deltars.storage import parse_location
from deltars.store.migrations import runner as migrations
from deltars.transaction import Transaction, TransactionResult
from deltars.uri import CatalogUri, is_uri, parse_table_uri

_log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def connect(
    catalog: str | None = None,
    *,
    warehouse: str | None = None,
    migrate: bool | None = None,
    timeout: float | None = None,
    pool_size: int | None = None,
    pool_timeout: float | None = None,
    copy_threshold: int | None = None,
    isolation: Isolation | None = None,
    max_tables: int | None = None,
    max_files_per_table: int | None = None,
    mirror: str | None = None,
    mirror_wait: float | None = None,
    mirror_concurrency: int | None = None,
    mirror_checkpoint_interval: int | None = None,
    allow_diverged: bool | None = None,
    storage_options: Mapping[str, str] | None = None,
    metrics: bool | None = None,
    tracing: bool | None = None,
) -> Catalog:
    """Open a catalog: a `deltasql://` URI, a name of `deltars.toml`, `$DELTARS_CATALOG`, or `./.deltars/lake.db`.

    An embedded catalog (SQLite, DuckDB) is created and migrated on first use. PostgreSQL is migrated only with
    `migrate=True` or `deltars migrate up`. The warehouse, where tables lie by default, is set once: beside an
    embedded catalog's file if nothing is said. `metrics` and `tracing` turn on `observe.prometheus()` and
    `observe.opentelemetry()`, for the whole process.
    """
    config = configure(
        catalog,
        warehouse=warehouse,
        timeout=timeout,
        pool_size=pool_size,
        pool_timeout=pool_timeout,
        copy_threshold=copy_threshold,
        isolation=isolation,
        max_tables=max_tables,
        max_files_per_table=max_files_per_table,
        mirror=mirror,
        mirror_wait=mirror_wait,
        mirror_concurrency=mirror_concurrency,
        mirror_checkpoint_interval=mirror_checkpoint_interval,
        allow_diverged=allow_diverged,
        storage_options=storage_options,
        metrics=metrics,
        tracing=tracing,
    )
    return open_catalog(config, migrate=migrate)


def open_catalog(config: CatalogConfig, *, migrate: bool | None, claim: bool = True) -> Catalog:
    """Open a configured catalog. Without `claim` a warehouse that is another catalog's can be set."""
    if config.settings.metrics:
        prometheus()
    if config.settings.tracing:
        opentelemetry()
    place = None if config.warehouse is None else _warehouse(config.warehouse)
    opened = Catalog(config)
    try:
        _prepare(opened, place, migrate, claim)
    except DeltarsError:
        opened.close()
        raise
    return opened


def _prepare(opened: Catalog, place: str | None, migrate: bool | None, claim: bool) -> None:
    database = opened._session.database
    wants_migration = database.backend.migrates_on_connect if migrate is None else migrate
    if wants_migration and not migrations.status(database).is_current:
        migrations.up(database)
    migrations.check(database)
    if opened.is_standby:
        _log.warning("%s is a hot standby: commits and snapshots of the past (as_of) are refused", database.uri)
    known = opened.warehouse
    if place is None and known is None and database.backend.migrates_on_connect:
        place = _beside(opened._session, Path(database.uri.database))
    elif place is not None and known is None and claim:
        _claim(opened._session, place)
    if place is not None and place != known:
        opened._session.registry.set_warehouse(place)


def _beside(session: CatalogSession, file: Path) -> str:
    """Choose the warehouse of an embedded catalog: lake.db and lake.duckdb cannot both have lake.warehouse."""
    place, other = file.with_suffix(".warehouse"), file.with_name(f"{file.name}.warehouse")
    try:
        _claim(session, str(place))
    except WarehouseTaken:
        _log.warning("%s belongs to another catalog: the warehouse is %s", place, other)
        _claim(session, str(other))
        return str(other)
    return str(place)


def _claim(session: CatalogSession, place: str) -> None:
    """Refuse another catalog's warehouse before it is set for good."""
    try:
        session.publisher.warehouse.claim(place)
    except WarehouseTaken:
        raise
    except DeltarsError as error:
        # It may come within reach later: the first table that is made there asks again.
        _log.warning("the warehouse %s could not be marked as this catalog's: %s", place, error)


def _warehouse(text: str) -> str:
    """A relative one would be another place for each process that connects: it is refused."""
    try:
        return str(parse_location(text))
    except ValidationError as error:
        relative = not text.startswith("/") and ":" not in text
        hint = f"Give the whole path: {Path(text).absolute()}." if relative else error.hint
        raise ConfigError(f"the warehouse cannot be used: {error.message}", hint=hint) from error


def begin(
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
    """Begin a transaction. The first table's URI says which catalog it is; a plain name means the default one.

    Its beginning is when that catalog is known: at the first table.
    """
    return Transaction(
        _session_at,
        isolation=isolation,
        timeout=timeout,
        committer=committer,
        txn_id=txn_id,
        user_metadata=user_metadata,
        max_tables=max_tables,
        max_files_per_table=max_files_per_table,
        mirror=mirror,
    )


def write(table: str, df: Any, mode: str = "append", **options: Any) -> TransactionResult:
    """Write one table, given by its URI or, in the default catalog, by its name."""
    _refuse_other_order(table, "table", "deltars.write(table, df)")
    with begin(isolation="serializable") as tx:
        tx.write(table, df, mode, **options)
    return tx.result


def read(
    table: str,
    *,
    version: int | None = None,
    timestamp: Moment | None = None,
    where: str | None = None,
    columns: Sequence[str] | None = None,
    spark: SparkSession | None = None,
) -> DataFrame:
    """Read one table as a Spark DataFrame. `table` is its URI or, in the default catalog, its name.

    The options are those of `Table.read`. `spark` is the active session by default.
    """
    _refuse_other_order(table, "table", "deltars.read(table, spark=spark)")
    uri, name = parse_table_uri(table) if is_uri(table) else (None, table)
    found = _catalog_at(uri).table(name)
    return found.read(spark=spark, version=version, timestamp=timestamp, where=where, columns=columns)


def sql(
    query: str,
    *,
    catalog: Catalog | str | None = None,
    as_of: TxnId | datetime | None = None,
    args: Mapping[str, Any] | Sequence[Any] | None = None,
    spark: SparkSession | None = None,
) -> DataFrame:
    """Run a query over tables of one catalog, all at one moment. Return a Spark DataFrame (of the active session).

    The catalog is one that is open, a URI or a name as for `connect`, or else the default one. A table goes by its
    name, or in backquotes by its URI.
    """
    _refuse_other_order(query, "query", "deltars.sql(query, spark=spark)")
    if not isinstance(catalog, Catalog):
        catalog = _catalog_named(catalog)
    return catalog.sql(query, as_of=as_of, args=args, spark=spark)


def _refuse_other_order(given: object, field: str, call: str) -> None:
    if not isinstance(given, str):
        kind = f"{type(given).__module__}.{type(given).__qualname__}"
        raise ValidationError(f"{field} must be a text, got a {kind}", field=field, hint=f"Write {call}.")


_opened: dict[CatalogUri, Catalog] = {}


def _catalog_named(catalog: str | None) -> Catalog:
    """One catalog, and so one pool of connections, for everybody in this process who means it."""
    key = configure(catalog).uri
    if key not in _opened:
        found = connect(catalog)
        if _opened.setdefault(key, found) is not found:
            found.close()
    return _opened[key]


def _catalog_at(uri: CatalogUri | None) -> Catalog:
    return _catalog_named(None if uri is None else uri.absolute().with_secrets())


def _session_at(uri: CatalogUri | None) -> CatalogSession:
    return _catalog_at(uri)._session


__all__ = ["begin", "connect", "read", "sql", "write"]
