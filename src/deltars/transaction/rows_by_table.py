"""Read rows of any table of a cut or a transaction without Spark: as Arrow, pandas, Polars or DuckDB."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltars.arguments import checks_calls
from deltars.data.frames import as_duckdb, as_pandas, as_polars, stream
from deltars.data.scan import Scan
from deltars.session import TableLike

if TYPE_CHECKING:
    import pandas
    import polars


@checks_calls
class RowsByTable(ABC):
    """Reads without Spark, by table.

    `where`, in Spark's SQL, selects rows; `columns` selects the columns and their order.
    """

    @abstractmethod
    def _scan_of(self, table: TableLike, where: str | None) -> Scan:
        """Return the files of a table that may hold a matching row, with all that is needed to read them."""

    def _reading(self) -> AbstractContextManager[None]:
        """Count the time of a read, if it is part of something that is timed."""
        return nullcontext()

    def to_arrow_batch_reader(
        self, table: TableLike, *, where: str | None = None, columns: Sequence[str] | None = None
    ) -> pa.RecordBatchReader:
        """Return the rows of a table as a stream of record batches."""
        with self._reading():
            return stream(self._scan_of(table, where), columns)

    def to_arrow(self, table: TableLike, *, where: str | None = None, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows of a table as a pyarrow table."""
        with self._reading():
            return self.to_arrow_batch_reader(table, where=where, columns=columns).read_all()

    def to_pandas(
        self, table: TableLike, *, where: str | None = None, columns: Sequence[str] | None = None
    ) -> pandas.DataFrame:
        """Return the rows of a table as a pandas DataFrame."""
        with self._reading():
            return as_pandas(self.to_arrow_batch_reader(table, where=where, columns=columns))

    def to_polars(
        self, table: TableLike, *, where: str | None = None, columns: Sequence[str] | None = None
    ) -> polars.DataFrame:
        """Return the rows of a table as a Polars DataFrame."""
        with self._reading():
            return as_polars(self.to_arrow_batch_reader(table, where=where, columns=columns))

    def to_duckdb(
        self,
        table: TableLike,
        connection: Any = None,
        *,
        where: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> Any:
        """Return the rows of a table as a relation of this DuckDB connection, by default of the default connection."""
        return as_duckdb(self.to_arrow_batch_reader(table, where=where, columns=columns), connection)
