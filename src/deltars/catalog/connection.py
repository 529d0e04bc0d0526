"""Functions that open catalogs and tables: `connect`, `begin`, and one-line `table`, `read`, `write` and `sql`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from deltars import transaction
from deltars.arguments import check_flags, check_keywords, checks_call
from deltars.catalog.catalog import Catalog
from deltars.catalog.table import Table
from deltars.config import CatalogConfig, Isolation, configure
from deltars.errors import ConfigError, DeltarsError, ValidationError, WarehouseTaken
from deltars.observe import openlineage, opentelemetry, prometheus
from deltars.session import CatalogSession
from deltars.storage.location import parse_location
from deltars.store import migrations
from deltars.store.migrations import revisions
from deltars.uri import CatalogUri, is_uri, parse_table_uri

_log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from deltars.log.moments import Moment
    from deltars.store import AsOf
    from deltars.transaction import (
        BeginOptions,
        Frame,
        MirrorChoice,
        Transaction,
        TransactionResult,
        WriteMode,
        WriteOptions,
    )


class CatalogSettings(TypedDict, total=False):
    """Keyword settings of `connect`. Times are in seconds.

    A setting that is left out, or None, comes from the environment, then from `deltars.toml`, then from the default.
    """

    timeout: float | None
    """Most time that a commit may take, waiting included; by default 60."""
    pool_size: int | None
    """Most connections to the database; by default 10."""
    pool_timeout: float | None
    """Most time to wait for a connection if all are in use; by default 30."""
    copy_threshold: int | None
    """Number of rows from which a commit is loaded in bulk; by default 1,000."""
    isolation: Isolation | None
    """What a commit checks of the tables that it read and writes; by default the level that the catalog stores
    (`set_default_isolation`), else "strict"."""
    max_tables: int | None
    """Most tables that one transaction may write; by default 10."""
    max_files_per_table: int | None
    """Most files that a transaction over several tables may add to each; by default 1,000."""
    mirror: MirrorChoice | None
    """Who publishes to `_delta_log`: the committer ("inline", by default) or the reconciler ("async"). With "off" the
    committer does not; a reconciler still does, unless the table's property `deltars.mirror` is "off" too."""
    mirror_wait: float | None
    """Most time that a commit waits for its publication; by default 5."""
    mirror_concurrency: int | None
    """Number of tables of one commit that are published at once; by default 5."""
    mirror_checkpoint_interval: int | None
    """Number of versions between checkpoints, unless the table's properties set it; by default 10."""
    allow_diverged: bool | None
    """Whether to commit to a table whose `_delta_log` contradicts the catalog; by default not."""
    record_activity: bool | None
    """Whether to record what transactions read and which races they lose; by default yes."""
    storage_options: Mapping[str, str] | None
    """Options of the object store, such as keys and endpoints."""
    metrics: bool | None
    """Call `observe.prometheus()`, for the whole process; by default not."""
    tracing: bool | None
    """Call `observe.opentelemetry()`, for the whole process; by default not."""
    openlineage: bool | None
    """Call `observe.openlineage()`, for the whole process; by default not."""


@checks_call
def connect(
    catalog: str | PathLike[str] | None = None,
    *,
    warehouse: str | PathLike[str] | None = None,
    migrate: bool | None = None,
    **settings: Unpack[CatalogSettings],
) -> Catalog:
    """Open a catalog: a `deltasql://` URI, a name in `deltars.toml`, `$DELTARS_CATALOG`, or `./.deltars/lake.db`.

    A `Path` names the file of an embedded catalog: `connect(Path("lake.db"))`, or `lake.duckdb` for DuckDB.
    An embedded catalog (SQLite, DuckDB) is created on first use in a directory that exists, and its schema is upgraded
    when a newer release opens it. `migrate=False` opens only a catalog that exists. `migrate=True` also creates the
    directory. On PostgreSQL a catalog is created and upgraded only with `migrate=True`, `deltars init` or
    `deltars migrate up`.

    `warehouse` is the directory of tables that are created without a location. It is set once; for an embedded catalog
    the default is a directory beside its file. See `CatalogSettings` for the other settings.
    """
    check_keywords("connect", settings, CatalogSettings)
    if migrate is not None:
        check_flags(migrate=migrate)
    return open_catalog(configure(catalog, warehouse=warehouse, **settings), migrate=migrate)


def open_catalog(config: CatalogConfig, *, migrate: bool | None, claim: bool = True, create: bool = True) -> Catalog:
    """Open a configured catalog. Without `claim`, its warehouse may belong to another catalog.

    Without `create`, an embedded catalog must exist; its schema is upgraded all the same.
    """
    if config.settings.metrics:
        prometheus()
    if config.settings.tracing:
        opentelemetry()
    if config.settings.openlineage:
        openlineage()
    place = None if config.warehouse is None else warehouse_location(config.warehouse)
    opened = Catalog(config)
    try:
        is_new = not opened._session.database.backend.is_there
        if is_new and not create:
            revisions.check(opened._session.database)
        if is_new and migrate is None:
            _check_directory(opened._session)
        _prepare(opened, place, migrate, claim)
        if is_new and migrate is None:
            _report_creation(opened._session)
    except DeltarsError:
        opened.close()
        raise
    return opened


def _prepare(opened: Catalog, place: str | None, migrate: bool | None, claim: bool) -> None:
    database = opened._session.database
    wants_migration = database.backend.migrates_on_connect if migrate is None else migrate
    if wants_migration and not revisions.status(database).is_current:
        migrations.runner.up(database)
    revisions.check(database)
    if opened.is_standby:
        _log.warning("%s is a hot standby: commits and snapshots of the past (as_of) are refused", database.uri)
    known = opened.warehouse
    if place is None and known is None and database.backend.migrates_on_connect:
        place = _beside(opened._session, Path(database.uri.database))
    elif place is not None and known is None and claim:
        _claim(opened._session, place)
    if place is not None and place != known:
        opened._session.registry.set_warehouse(place)


def _check_directory(session: CatalogSession) -> None:
    """Raise `ConfigError` if the file's directory does not exist: then the path is more likely wrong than new."""
    directory = Path(session.uri.database).parent
    if not directory.is_dir() and not (directory.name == ".deltars" and directory.parent.is_dir()):
        raise ConfigError(
            f"there is no catalog {session.uri}, and no directory {directory} to create it in",
            hint="Correct the path, or connect with migrate=True, which creates both.",
        )


def _report_creation(session: CatalogSession) -> None:
    """Log that a catalog was created: as a warning if its name is so like another's that it may be mistyped."""
    similar = session.database.backend.similar
    if similar:
        _log.warning(
            "created the catalog %s, because there was none; did you mean %s? connect(…, migrate=False) creates none",
            session.uri,
            " or ".join(map(str, similar)),
        )
    else:
        _log.info("created the catalog %s", session.uri)


def _beside(session: CatalogSession, file: Path) -> str:
    """Return the warehouse of an embedded catalog. lake.db and lake.duckdb must not share lake.warehouse."""
    place, other = file.with_suffix(".warehouse"), file.with_name(f"{file.name}.warehouse")
    try:
        _claim(session, str(place))
    except WarehouseTaken:
        _log.warning("%s belongs to another catalog: the warehouse is %s", place, other)
        _claim(session, str(other))
        return str(other)
    return str(place)


def _claim(session: CatalogSession, place: str) -> None:
    """Mark the warehouse as this catalog's. Raise `WarehouseTaken` if it belongs to another catalog."""
    try:
        session.publisher.warehouse.claim(place)
    except WarehouseTaken:
        raise
    except DeltarsError as error:
        # The warehouse may be unreachable for now. The first table that is created there claims it again.
        _log.warning("the warehouse %s could not be marked as this catalog's: %s", place, error)


def warehouse_location(given: str | PathLike[str]) -> str:
    """Return the warehouse as an absolute location. A relative path would differ from process to process."""
    text = str(given)
    try:
        return str(parse_location(given))
    except ValidationError as error:
        relative = not text.startswith("/") and ":" not in text
        hint = f"Give the whole path: {Path(text).absolute()}." if relative else error.hint
        raise ConfigError(f"the warehouse cannot be used: {error.message}", hint=hint) from error


@checks_call
def begin(**options: Unpack[BeginOptions]) -> Transaction:
    """Begin a transaction. Use it as a context manager: it commits at the end of the block, or rolls back on an error.

    If you give its first table by URI, that URI names the catalog. Otherwise the default catalog is used. All reads
    are as of the first call that names a table. See `BeginOptions` for all options.
    """
    return transaction.Transaction(_session_at, **options)


@checks_call
def table(table: str) -> Table:
    """Open one table, given by its URI or, in the default catalog, by its name."""
    _refuse_other_order(table, "table", "deltars.table(table)")
    return _open_table(table)


@checks_call
def write(table: str, df: Frame, mode: WriteMode = "append", **options: Unpack[WriteOptions]) -> TransactionResult:
    """Write one table, given by its URI or, in the default catalog, by its name.

    The write is one transaction with isolation "serializable", so two concurrent appends both succeed. Mode and
    options are those of `Transaction.write`.
    """
    _refuse_other_order(table, "table", "deltars.write(table, df)")
    with begin(isolation="serializable") as tx:
        tx.write(table, df, mode, **options)
    return tx.result


@checks_call
def read(
    table: str,
    *,
    version: int | None = None,
    timestamp: Moment | None = None,
    as_of: AsOf | None = None,
    where: str | None = None,
    columns: Sequence[str] | None = None,
    spark: SparkSession | None = None,
) -> DataFrame:
    """Read one table as a Spark DataFrame. `table` is its URI or, in the default catalog, its name.

    The options are those of `Table.read`. `spark` is the active session by default.
    """
    _refuse_other_order(table, "table", "deltars.read(table, spark=spark)")
    found = _open_table(table)
    return found.read(spark=spark, version=version, timestamp=timestamp, as_of=as_of, where=where, columns=columns)


@checks_call
def sql(
    query: str,
    *,
    catalog: Catalog | str | None = None,
    as_of: AsOf | None = None,
    args: Mapping[str, Any] | Sequence[Any] | None = None,
    spark: SparkSession | None = None,
) -> DataFrame:
    """Run a query over tables of one catalog, all at one moment. Return a Spark DataFrame.

    `catalog` is an open catalog, a URI or a name as for `connect`; by default the default catalog. The query names
    tables by name, or by URI in backquotes. `as_of` and `args` are those of `Catalog.sql`. `spark` is the active
    session by default.
    """
    _refuse_other_order(query, "query", "deltars.sql(query, spark=spark)")
    if not isinstance(catalog, Catalog):
        catalog = _catalog_named(catalog, create=False)
    return catalog.sql(query, as_of=as_of, args=args, spark=spark)


def _refuse_other_order(given: object, field: str, call: str) -> None:
    if not isinstance(given, str):
        kind = f"{type(given).__module__}.{type(given).__qualname__}"
        raise ValidationError(f"{field} must be a text, got a {kind}", field=field, hint=f"Write {call}.")


_opened: dict[CatalogUri, Catalog] = {}


def _catalog_named(catalog: str | None, *, create: bool) -> Catalog:
    """Return the process's shared catalog of this name, so that all callers share one pool of connections."""
    config = configure(catalog)
    key = config.uri
    if key not in _opened:
        found = open_catalog(config, migrate=None, create=create)
        if _opened.setdefault(key, found) is not found:
            found.close()
    return _opened[key]


def shared_catalog(catalog: str | None, *, create: bool = True) -> Catalog:
    """Return the process's shared catalog of a URI or a name as for `connect`, or the default one.

    Without `create`, an embedded catalog must exist.
    """
    return _catalog_named(catalog, create=create)


def _catalog_at(uri: CatalogUri | None, *, create: bool) -> Catalog:
    return _catalog_named(None if uri is None else uri.absolute().with_secrets(), create=create)


def _open_table(table: str) -> Table:
    uri, name = parse_table_uri(table) if is_uri(table) else (None, table)
    # It can hold no table if it does not exist.
    return _catalog_at(uri, create=False).table(name)


def _session_at(uri: CatalogUri | None) -> CatalogSession:
    return _catalog_at(uri, create=True)._session


__all__ = ["CatalogSettings", "begin", "connect", "read", "sql", "table", "write"]
