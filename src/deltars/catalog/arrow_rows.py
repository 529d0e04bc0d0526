"""Read a table's rows without Spark: as Arrow, pandas, Polars or DuckDB."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from deltars import data, late_arrow, log, transaction
from deltars.arguments import checks_calls
from deltars.errors import ValidationError

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow as pa

    from deltars.data import Scan
    from deltars.log.moments import Moment
    from deltars.store import AsOf

SHOWN_ROWS = 10


@checks_calls
class ArrowRows(ABC):
    """Reads without Spark.

    `version`, `timestamp` or `as_of` selects the state, by default the current one; `where`, in Spark's SQL, the rows;
    `columns` the columns and their order. Rows are read file by file; `to_arrow_batch_reader` and `__arrow_c_stream__`
    never hold all of them in memory.
    """

    @abstractmethod
    def scan(
        self,
        version: int | None = None,
        *,
        timestamp: Moment | None = None,
        as_of: AsOf | None = None,
        where: str | None = None,
    ) -> Scan:
        """Return the files of a version that may hold a matching row, with all that is needed to read them."""

    def to_arrow_batch_reader(
        self,
        *,
        version: int | None = None,
        timestamp: Moment | None = None,
        as_of: AsOf | None = None,
        where: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.RecordBatchReader:
        """Return the rows as a stream of record batches."""
        return data.stream(self.scan(version, timestamp=timestamp, as_of=as_of, where=where), columns)

    def to_arrow(
        self,
        *,
        version: int | None = None,
        timestamp: Moment | None = None,
        as_of: AsOf | None = None,
        where: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """Return the rows as a pyarrow table."""
        return self.to_arrow_batch_reader(
            version=version, timestamp=timestamp, as_of=as_of, where=where, columns=columns
        ).read_all()

    def to_pandas(
        self,
        *,
        version: int | None = None,
        timestamp: Moment | None = None,
        as_of: AsOf | None = None,
        where: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> pandas.DataFrame:
        """Return the rows as a pandas DataFrame."""
        return data.as_pandas(
            self.to_arrow_batch_reader(version=version, timestamp=timestamp, as_of=as_of, where=where, columns=columns)
        )

    def to_polars(
        self,
        *,
        version: int | None = None,
        timestamp: Moment | None = None,
        as_of: AsOf | None = None,
        where: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> polars.DataFrame:
        """Return the rows as a Polars DataFrame."""
        return data.as_polars(
            self.to_arrow_batch_reader(version=version, timestamp=timestamp, as_of=as_of, where=where, columns=columns)
        )

    def to_duckdb(
        self,
        connection: Any = None,
        *,
        version: int | None = None,
        timestamp: Moment | None = None,
        as_of: AsOf | None = None,
        where: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> Any:
        """Return the rows as a relation of this DuckDB connection, by default of DuckDB's default connection."""
        rows = self.to_arrow_batch_reader(
            version=version, timestamp=timestamp, as_of=as_of, where=where, columns=columns
        )
        return data.as_duckdb(rows, connection)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the current rows for any library that takes Arrow streams."""
        return self.to_arrow_batch_reader().__arrow_c_stream__(requested_schema)

    def head(self, count: int = SHOWN_ROWS) -> pa.Table:
        """Return a few rows, in no particular order."""
        count = log.as_whole(count, "a number of rows", field="count", hint="Write table.head(10).")
        if count < 0:
            raise ValidationError(
                f"count must be 0 or more, got {count}", field="count", hint="to_arrow() returns all rows."
            )
        reader = self.to_arrow_batch_reader()
        batches: list[pa.RecordBatch] = []
        for batch in reader:
            batches.append(batch.slice(0, count - sum(map(len, batches))))
            if sum(map(len, batches)) >= count:
                break
        return late_arrow.pa.Table.from_batches(batches, reader.schema)


def as_html(caption: str, rows: pa.Table) -> str:
    """Return rows as an HTML table for a notebook."""
    heads = [f"{field.name}: {field.type}" for field in rows.schema]
    return transaction.html_table(caption, heads, [row.values() for row in rows.to_pylist()])
