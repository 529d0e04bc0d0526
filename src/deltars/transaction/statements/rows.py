"""Rows that a statement returns: those of a query, read when they are asked for, or what a change did."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltars.transaction.duckdb_query import DuckDBQuery
from deltars.transaction.plane import Frame, spark_plane

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Rows(ABC):
    """The result of a statement."""

    @abstractmethod
    @contextmanager
    def opened(self) -> Iterator[Frame]:
        """Yield the rows as a frame that can be written. It may be read once."""

    @abstractmethod
    def to_arrow(self, limit: int | None = None) -> pa.Table:
        """Return the rows, at most `limit` of them."""

    @abstractmethod
    def to_spark(self, spark: SparkSession | None) -> DataFrame: ...

    @abstractmethod
    def read_once(self) -> Rows:
        """Compute the rows now, and return them."""

    @abstractmethod
    def plan(self, mode: str) -> str:
        """Return how the rows are computed, as the engine describes it."""


class ArrowRows(Rows):
    """Rows that are there: the metrics of a change, a description."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    @contextmanager
    def opened(self) -> Iterator[Frame]:
        yield self.table

    def to_arrow(self, limit: int | None = None) -> pa.Table:
        return self.table.slice(0, limit)

    def to_spark(self, spark: SparkSession | None) -> DataFrame:
        return spark_plane().local_frame(spark, self.table)

    def read_once(self) -> Rows:
        return self

    def plan(self, mode: str) -> str:
        return "rows that are in memory"


class SparkRows(Rows):
    """Rows of a query that Spark runs."""

    def __init__(self, frame: Any) -> None:
        self.frame = frame

    @contextmanager
    def opened(self) -> Iterator[Frame]:
        yield self.frame

    def to_arrow(self, limit: int | None = None) -> pa.Table:
        return spark_plane().to_arrow(self.frame if limit is None else self.frame.limit(limit))

    def to_spark(self, spark: SparkSession | None) -> DataFrame:
        found: DataFrame = self.frame
        return found

    def read_once(self) -> Rows:
        # The rows stay with Spark's executors: there may be more of them than fit here.
        return SparkRows(self.frame.localCheckpoint(eager=True))

    def plan(self, mode: str) -> str:
        # Spark prints a plan; only its JVM and its server have the text.
        printed = StringIO()
        with redirect_stdout(printed):
            self.frame.explain(mode=mode)
        return printed.getvalue().strip()


class DuckDBRows(Rows):
    """Rows of a query that DuckDB runs in this process, with the result that Spark would have."""

    def __init__(self, query: DuckDBQuery) -> None:
        self.query = query
        # Made now: after the end of a transaction it would be too late to remember what is read.
        _ = query.scans

    @contextmanager
    def opened(self) -> Iterator[Frame]:
        with self.query.rows() as reader:
            yield reader

    def to_arrow(self, limit: int | None = None) -> pa.Table:
        with self.query.rows(limit) as reader:
            return reader.read_all()

    def to_spark(self, spark: SparkSession | None) -> DataFrame:
        return spark_plane().local_frame(spark, self.to_arrow())

    def read_once(self) -> Rows:
        return ArrowRows(self.to_arrow())

    def plan(self, mode: str) -> str:
        return self.query.plan()


def one_row(**values: object) -> ArrowRows:
    """Return a result of one row. Whole numbers are 64 bits wide, as Delta's are."""
    return ArrowRows(pa.Table.from_pylist([values]))


NOTHING = ArrowRows(pa.table({}))
"""Result of a statement that returns no columns."""
