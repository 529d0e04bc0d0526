"""A table's rows outside Spark: as Arrow, and as whatever reads Arrow."""

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
from deltars.log.snapshot import Moment
from deltars.predicate import parse

if TYPE_CHECKING:
    import pandas
    import polars

SHOWN_ROWS = 10


class ArrowRows(ABC):
    """Reading without Spark.

    `version` or `timestamp` says which state is read, by default the current one; `where`, in Spark's SQL, which rows;
    `columns` which columns, in which order. The rows come file by file: only `to_arrow_batch_reader` and
    `__arrow_c_stream__` never hold them all.
    """

    @abstractmethod
    def scan(self, version: int | None = None, *, timestamp: Moment | None = None, where: str | None = None) -> Scan:
        """The files of a version that can hold a matching row, and what is needed to read them."""

    def to_arrow_batch_reader(
        self,
        *,
        version: int | None = None,
        timestamp: Moment | None = None,
        where: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.RecordBatchReader:
        """The rows as a stream of record batches."""
        scan = self.scan(version, timestamp=timestamp, where=where)
        row_filter = None if where is None else PredicateFilter(parse(where, scan.schema))
        return read_scan(scan, columns=columns, row_filter=row_filter)

    def to_arrow(
        self,
        *,
        version: int | None = None,
        timestamp: Moment | None = None,
        where: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """The rows as a pyarrow table."""
        return self.to_arrow_batch_reader(version=version, timestamp=timestamp, where=where, columns=columns).read_all()

    def to_pandas(
        self,
        *,
        version: int | None = None,
        timestamp: Moment | None = None,
        where: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> pandas.DataFrame:
        """The rows as a pandas frame."""
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
        """The rows as a Polars frame."""
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
        """The rows as a relation of this DuckDB connection, or of DuckDB's default one."""
        place = connection or _module("duckdb").default_connection()
        return place.from_arrow(self.to_arrow(version=version, timestamp=timestamp, where=where, columns=columns))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The current rows, for any library that takes Arrow streams."""
        return self.to_arrow_batch_reader().__arrow_c_stream__(requested_schema)

    def head(self, count: int = SHOWN_ROWS) -> pa.Table:
        """A few rows, whichever come first."""
        reader = self.to_arrow_batch_reader()
        batches: list[pa.RecordBatch] = []
        for batch in reader:
            batches.append(batch.slice(0, count - sum(map(len, batches))))
            if sum(map(len, batches)) >= count:
                break
        return pa.Table.from_batches(batches, reader.schema)


def as_html(caption: str, rows: pa.Table) -> str:
    """A small table for a notebook."""
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
            f"{name} is not installed", hint=f"Install it, or take to_arrow(): pip install {name}"
        ) from error
