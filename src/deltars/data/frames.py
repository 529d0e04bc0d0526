"""Rows of a scan as frames of other libraries, without Spark: Arrow, pandas, Polars, DuckDB."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltars.data.filter import PredicateFilter
from deltars.data.reader import read_scan
from deltars.data.scan import Scan, refuse_no_columns
from deltars.errors import ConfigError, ValidationError, brief

if TYPE_CHECKING:
    import pandas
    import polars


def stream(scan: Scan, columns: Sequence[str] | None = None) -> pa.RecordBatchReader:
    """Return the rows that match the scan's condition, one batch in memory at a time."""
    refuse_no_columns(scan, columns)
    row_filter = None if scan.condition is None else PredicateFilter(scan.condition)
    return read_scan(scan, columns=columns, row_filter=row_filter)


def as_pandas(rows: pa.RecordBatchReader) -> pandas.DataFrame:
    library("pandas")
    frame: pandas.DataFrame = rows.read_all().to_pandas()
    return frame


def as_polars(rows: pa.RecordBatchReader) -> polars.DataFrame:
    frame: polars.DataFrame = library("polars").from_arrow(rows.read_all())
    return frame


def as_duckdb(rows: pa.RecordBatchReader, connection: Any = None) -> Any:
    """Return a relation of this DuckDB connection, by default of DuckDB's default connection."""
    place = library("duckdb").default_connection() if connection is None else connection
    if not hasattr(place, "from_arrow"):
        raise ValidationError(
            f"connection must be a DuckDB connection, got {brief(connection)}",
            field="connection",
            hint="Write to_duckdb(connection=duckdb.connect()), or leave it out.",
        )
    return place.from_arrow(rows.read_all()).project(duckdb_columns(rows.schema))


def duckdb_columns(schema: pa.Schema) -> str:
    """Return the columns as DuckDB must select them from Arrow rows.

    DuckDB lets pyarrow filter the rows by a query's conditions and joins. pyarrow has other rules for NaN and −0.0, so
    a column with floats is hidden behind an expression, which only DuckDB evaluates.
    """
    selected = []
    for field in schema:
        name = '"' + field.name.replace('"', '""') + '"'
        hidden = f"CASE WHEN {name} IS NOT NULL THEN {name} END AS {name}"
        selected.append(hidden if _has_floats(field.type) else name)
    return ", ".join(selected)


def _has_floats(kind: pa.DataType) -> bool:
    inner = (kind.field(place).type for place in range(kind.num_fields)) if pa.types.is_nested(kind) else ()
    return bool(pa.types.is_floating(kind)) or any(map(_has_floats, inner))


def library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ConfigError(
            f"{name} is not installed", hint=f"Install it (pip install {name}), or use to_arrow()."
        ) from error
