"""Read a table's rows without Spark: as Arrow, pandas, Polars or DuckDB."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltars.data.filter import PredicateFilter
from deltars.data.reader import read_scan
from deltars.data.scan import Scan
from deltars.errors import ConfigError
from deltars.log.moments import Moment

if TYPE_CHECKING:
    import pandas
    import polars

SHOWN_ROWS = 10


class ArrowRows(ABC):
    """Reads without Spark.

    `version` or `timestamp` selects the state, by default the current one; `where`, in Spark's SQL, the rows; `columns`
    the columns and their order. Rows are read file by file; `to_arrow_batch_reader` and `__arrow_c_stream__` never hold
    all of them in memory.
    """

    @abstractmethod
    def scan(self, version: int | None = None, *, timestamp: Moment | None = None, where: str | None = None) -> Scan:
        """Return the files of a version that may hold a matching row, with all that is needed to read them."""

    def to_arrow_batch_reader(
        self,
        *,
        version: int | None = None,
        timestamp: Moment | None = None,
        where: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.RecordBatchReader:
        """Return the rows as a stream of record batches."""
        scan = self.scan(version, timestamp=timestamp, where=where)
        row_filter = None if scan.condition is None else PredicateFilter(scan.condition)
        return read_scan(scan, columns=columns, row_filter=row_filter)

    def to_arrow(
        self,
        *,
        version: int | None = None,
        timestamp: Moment | None = None,
        where: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """Return the rows as a pyarrow table."""
        return self.to_arrow_batch_reader(version=version, timestamp=timestamp, where=where, columns=columns).read_all()

    def to_pandas(
        self,
        *,
        version: int | None = None,
        timestamp: Moment | None = None,
        where: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> pandas.DataFrame:
        """Return the rows as a pandas DataFrame."""
        _module("pandas")
        frame: pandas.DataFrame = self.to_arrow(
            version=version, timestamp=timestamp, where=where, columns=columns
        ).to_pandas()
        return frame

    def to_polars(
        self,
        *,
        version: int | None = None,
        timestamp: Moment | None = None,
        where: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> polars.DataFrame:
        """Return the rows as a Polars DataFrame."""
        frame: polars.DataFrame = _module("polars").from_arrow(
            self.to_arrow(version=version, timestamp=timestamp, where=where, columns=columns)
        )
        return frame

    def to_duckdb(
        self,
        connection: Any = None,
        *,
        version: int | None = None,
        timestamp: Moment | None = None,
        where: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> Any:
        """Return the rows as a relation of this DuckDB connection, by default of DuckDB's default connection."""
        place = connection or _module("duckdb").default_connection()
        return place.from_arrow(self.to_arrow(version=version, timestamp=timestamp, where=where, columns=columns))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the current rows for any library that takes Arrow streams."""
        return self.to_arrow_batch_reader().__arrow_c_stream__(requested_schema)

    def head(self, count: int = SHOWN_ROWS) -> pa.Table:
        """Return a few rows, in no particular order."""
        reader = self.to_arrow_batch_reader()
        batches: list[pa.RecordBatch] = []
        for batch in reader:
            batches.append(batch.slice(0, count - sum(map(len, batches))))
            if sum(map(len, batches)) >= count:
                break
        return pa.Table.from_batches(batches, reader.schema)


def as_html(caption: str, rows: pa.Table) -> str:
    """Return rows as an HTML table for a notebook."""
    heads = "".join(
        f"<th>{escape(field.name)}<br><small>{escape(str(field.type))}</small></th>" for field in rows.schema
    )
    lines = "".join(
        "<tr>" + "".join(f"<td>{escape(_shown(value))}</td>" for value in row.values()) + "</tr>"
        for row in rows.to_pylist()
    )
    return f"<table><caption>{escape(caption)}</caption><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table>"


def _shown(value: Any) -> str:
    text = "NULL" if value is None else str(value)
    return text if len(text) <= 100 else f"{text[:99]}…"


def _module(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ConfigError(
            f"{name} is not installed", hint=f"Install it (pip install {name}), or use to_arrow()."
        ) from error
