"""Tables from what exists: copies of tables, and directories of Parquet files converted in place."""

from __future__ import annotations

import re
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from deltars import catalog
from deltars.catalog import Table
from deltars.catalog.table_path import find_at, free_name, location_at
from deltars.errors import NotADeltaTable, ValidationError
from deltars.tables.binding import BoundTable, bound_by_id, bound_by_path, is_table_at, name_in, path_in, session_of
from deltars.tables.exceptions import DeltaUnsupportedOperationException, refuse, spark_error
from deltars.tables.restoring import moment_of

_PARQUET = re.compile(r"\s*parquet\s*\.\s*`(?P<path>(?:[^`]|``)+)`\s*", re.IGNORECASE)
_QUOTED = re.compile(r"\s*`(?P<path>(?:[^`]|``)+)`\s*")


def cloned(
    bound: BoundTable,
    target: str,
    is_shallow: bool,
    replace: bool,
    properties: dict[str, str] | None,
    *,
    version: int | None = None,
    timestamp: str | None = None,
) -> BoundTable:
    """Copy a table, its files included, to a new one or in place of one: at a path, or of a name."""
    if is_shallow:
        raise spark_error(
            DeltaUnsupportedOperationException,
            "DELTA_UNSUPPORTED_SHALLOW_CLONE",
            "Shallow clone is not supported: two tables would share files, and a vacuum of one would delete those of"
            " the other.",
            hint="Use isShallow=False, which copies the files inside the object store.",
        )
    if timestamp is not None:
        version = bound.table.snapshot(timestamp=moment_of(bound, timestamp)).version
    path = _path_of(target)
    existing = bound.session.registry.find(name_in(target)) if path is None else find_at(bound.session, path)
    name = name_in(target) if path is None else free_name(bound.session, path) if existing is None else existing.name
    if existing is not None and existing.table_id == bound.table_id:
        raise refuse(
            "DELTA_UNSUPPORTED_CLONE_REPLACE_SAME_TABLE",
            f"\nYou tried to REPLACE an existing table ({existing.name}) with CLONE. This operation is\nunsupported."
            " Try a different target for CLONE or delete the table at the current target.",
        )
    copy = catalog.Copy(bound.table_id, name, version, None if path is None else location_at(path), replace)
    [record] = catalog.copy_tables(bound.session, [copy], as_of=None, committer=None)
    if properties:
        Table(bound.session, record).alter.set_properties(properties)
    return bound_by_id(bound.spark, bound.session, record.table_id)


def _path_of(target: str) -> str | None:
    """Return the path that a target is; None for the name of a table."""
    return path_in(target) or (target if "/" in target else None)


def converted(spark: SparkSession, identifier: str, partition_schema: str | StructType | None) -> BoundTable:
    """Convert the Parquet files of a directory in place. A directory that is a table already is left as it is."""
    at_delta = path_in(identifier)
    if at_delta is not None:
        return bound_by_path(spark, at_delta)
    match = _PARQUET.fullmatch(identifier)
    if match is None:
        raise _no_directory(identifier)
    path = match["path"].replace("``", "`")
    session = session_of(spark)
    if find_at(session, path) is not None or is_table_at(spark, path):
        return bound_by_path(spark, path)
    schema: Any = partition_schema
    if isinstance(schema, str):
        # Spark parses it, and refuses what is no schema.
        schema = spark.createDataFrame([], schema).schema
    try:
        record = catalog.convert_directory(session, location_at(path), None, partition_schema=schema, committer=None)
    except NotADeltaTable as error:
        raise ValidationError(f"{location_at(path)} doesn't exist", hint=error.hint) from error
    except ValidationError as error:
        if error.field != "partition_schema":
            raise
        kind = "NUM_PARTITION_COLUMNS" if "column(s)" in error.message else "PARTITION_COLUMN"
        raise refuse(f"DELTA_UNEXPECTED_{kind}_FROM_FILE_NAME", error.message, hint=error.hint) from error
    return BoundTable(spark, session, record.table_id, record.name, is_named=False)


def _no_directory(identifier: str) -> Exception:
    quoted = _QUOTED.fullmatch(identifier)
    if quoted is None:
        return refuse(
            "TABLE_OR_VIEW_NOT_FOUND",
            f"The table or view `{identifier}` cannot be found.",
            hint="Give a directory: parquet.`/lake/events`.",
        )
    return refuse(
        "DELTA_MISSING_PROVIDER_FOR_CONVERT",
        f"CONVERT TO DELTA only supports parquet tables. Please rewrite your target as parquet.`{quoted['path']}` if"
        " it's a parquet directory.",
    )
