"""The table that a `DeltaTable` works on: which catalog, which table, and which transaction, if any.

name, path or URI ──▶ catalog: of the URI, of the enabled session, of `spark.deltars.catalog`, or the default one
                  ──▶ table, in a transaction or by itself
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from pyspark.sql import DataFrame, SparkSession

from deltars.catalog import Table
from deltars.catalog.connection import shared_catalog
from deltars.catalog.table_path import find_at, location_at, table_at
from deltars.enabled.enable import enabled_catalog
from deltars.errors import ImportRefused, NotADeltaTable, TableNotFound
from deltars.log.new_table import NO_VERSION
from deltars.protocol import StructType
from deltars.session import CatalogSession
from deltars.spark.read.nullability import with_nullability
from deltars.tables.exceptions import refuse
from deltars.transaction import ChangeMetrics, MergeBuilder, Transaction
from deltars.transaction.current import current_transaction
from deltars.uri import is_uri, parse_table_uri

CATALOG_CONF = "spark.deltars.catalog"
"""Setting of the Spark session: the URI or the name of the catalog; by default that of `deltars.connect()`."""
IMPORT_CONF = "spark.deltars.importPaths"
"""Setting of the Spark session: whether `forPath` imports a Delta table that the catalog does not have."""

_BY_PATH = re.compile(r"\s*(?:delta|deltasql)\s*\.\s*`(?P<path>(?:[^`]|``)+)`\s*", re.IGNORECASE)
_PARTS = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")
_SPARKS_OWN = ("spark_catalog", "default")


@dataclass(frozen=True, slots=True)
class BoundTable:
    """One table of a catalog, and the transaction that its calls are part of, if any."""

    spark: SparkSession
    session: CatalogSession
    table_id: UUID
    name: str
    """Name that SQL text may qualify columns with."""
    given: Transaction | None = None
    """Transaction that the program bound the table to."""
    is_named: bool = field(default=True)
    """Whether the program gave a name, not a path."""

    @property
    def tx(self) -> Transaction | None:
        """Transaction that a call is part of: the given one, else that of the block in an enabled session."""
        return self.given or block_transaction(self.spark)

    @property
    def table(self) -> Table:
        """Handle on the committed table."""
        return Table(self.session, self.session.find(self.table_id))

    @property
    def schema(self) -> StructType:
        if self.tx is None:
            return self.table.schema
        metadata = self.tx._view_for(self.table_id).readable(self.table_id).metadata
        assert metadata is not None
        return metadata.schema

    def read(self) -> DataFrame:
        if self.tx is not None:
            return with_nullability(self.tx.read(self.table_id, spark=self.spark), self.schema)
        return with_nullability(self.table.read(spark=self.spark), self.schema)

    def delete(self, where: Any, alias: str | None) -> ChangeMetrics:
        if self.tx is None:
            return self.table.delete(where, alias=alias, spark=self.spark)
        return self.tx.delete(self.table_id, where, alias=alias, spark=self.spark)

    def update(self, values: Mapping[str, Any], where: Any, alias: str | None) -> ChangeMetrics:
        if self.tx is None:
            return self.table.update(values, where, alias=alias, spark=self.spark)
        return self.tx.update(self.table_id, values, where, alias=alias, spark=self.spark)

    def merge(self, source: DataFrame, on: Any, *, target_alias: str, source_alias: str) -> MergeBuilder:
        options: dict[str, Any] = {"target_alias": target_alias, "source_alias": source_alias, "spark": self.spark}
        if self.tx is None:
            return self.table.merge(source, on, **options)
        return self.tx.merge(self.table_id, source, on, **options)


def block_transaction(spark: SparkSession) -> Transaction | None:
    """Return the transaction of the `with` block that the program is in, if the session is enabled.

    All verbs of an enabled session join it. Raise if it is one of another catalog.
    """
    enabled, tx = enabled_catalog(spark), current_transaction()
    if enabled is None or tx is None:
        return None
    tx._join(enabled._session)
    return tx


def session_of(spark: SparkSession, tx: Transaction | None = None) -> CatalogSession:
    """Return the catalog of a transaction, else that of a Spark session."""
    if tx is not None and tx._view is not None:
        return tx._view.session
    enabled = enabled_catalog(spark)
    found = shared_catalog(spark.conf.get(CATALOG_CONF, None)) if enabled is None else enabled
    session = found._session
    return session if tx is None else tx._join(session).session


def imports_paths(spark: SparkSession) -> bool:
    """Return whether a Delta table that the catalog does not have is imported when its path is given."""
    default = "false" if enabled_catalog(spark) is None else "true"
    return str(spark.conf.get(IMPORT_CONF, default)).lower() == "true"


def bound_by_name(spark: SparkSession, identifier: str, tx: Transaction | None = None) -> BoundTable:
    """Return the table of a name, of a whole `deltasql://` URI, or of delta.`path`."""
    path = path_in(identifier)
    if path is not None:
        return bound_by_path(spark, path, tx)
    if is_uri(identifier):
        uri, name = parse_table_uri(identifier)
        session = shared_catalog(uri.absolute().with_secrets())._session
        if tx is not None:
            session = tx._join(session).session
    else:
        session, name = session_of(spark, tx), name_in(identifier)
    found = _find(session, name, tx or block_transaction(spark))
    if found is None:
        raise _no_table(name, session.no_table(name))
    return BoundTable(spark, session, found[0], found[1].rpartition(".")[2], tx)


def bound_by_path(spark: SparkSession, path: str, tx: Transaction | None = None) -> BoundTable:
    """Return the table at a path. One that the catalog does not have is imported, if the session says so."""
    session = session_of(spark, tx)
    joined = tx or block_transaction(spark)
    staged = None if joined is None else joined._join(session).find_at(location_at(path))
    if staged is not None and staged.exists:
        return BoundTable(spark, session, staged.table_id, staged.name.rpartition(".")[2], tx, is_named=False)
    try:
        record = table_at(session, path, imports=imports_paths(spark))
    except NotADeltaTable as error:
        raise _no_table(path, error) from error
    except ImportRefused as error:
        if error.hint is not None and "import_table" in error.hint:
            error.hint += f" Or set {IMPORT_CONF} to true: then forPath imports what it opens."
        raise
    if record.current_version == NO_VERSION:
        raise _no_table(path, session.no_table(record.name))
    return BoundTable(spark, session, record.table_id, record.name.rpartition(".")[2], tx, is_named=False)


def bound_by_id(spark: SparkSession, session: CatalogSession, table_id: UUID) -> BoundTable:
    return BoundTable(spark, session, table_id, session.find(table_id).name.rpartition(".")[2])


def is_table_at(spark: SparkSession, path: str) -> bool:
    """Return whether there is a Delta table at a path, in the catalog or not."""
    session = session_of(spark)
    try:
        found = find_at(session, path)
        if found is None:
            table_at(session, path)
    except NotADeltaTable:
        return False
    except ImportRefused:
        return True
    return found is not None and found.current_version != NO_VERSION


def path_in(identifier: str) -> str | None:
    """Return the path in delta.`path`; None for a name."""
    match = _BY_PATH.fullmatch(identifier)
    return None if match is None else match["path"].replace("``", "`")


def name_in(identifier: str) -> str:
    """Return a table's name without backquotes and without Spark's own catalog and schema."""
    parts = [quoted.replace("``", "`") or plain.strip() for quoted, plain in _PARTS.findall(identifier)]
    for own in _SPARKS_OWN:
        if len(parts) > 1 and parts[0].lower() == own:
            parts = parts[1:]
    return ".".join(parts) or identifier


def shown_path(path: str) -> str:
    """Return a path as Delta's errors show it."""
    return f"`delta`.`{location_at(path)}`"


def _find(session: CatalogSession, name: str, tx: Transaction | None) -> tuple[UUID, str] | None:
    if tx is not None:
        staged = tx._view_for(name).find(name)
        return None if staged is None else (staged.table_id, staged.name)
    record = session.registry.find(name)
    return None if record is None or record.current_version == NO_VERSION else (record.table_id, record.name)


def _no_table(given: str, error: TableNotFound | NotADeltaTable) -> Exception:
    return refuse("DELTA_MISSING_DELTA_TABLE", f"`{given}` is not a Delta table.", hint=error.hint)
