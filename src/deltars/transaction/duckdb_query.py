"""A query over tables of a snapshot, run by DuckDB in this process: no Java, no Spark.

    Query ──▶ DuckDB's SQL, and a doubt if its rows may differ from Spark's
      └─ each table ──▶ Scan, files chosen by the catalog ──▶ Arrow batches of the named columns ──▶ DuckDB

DuckDB gets rows from our own reader, so deletion vectors, column mapping and partition values are applied, and it opens
no file itself. Its session is in UTC.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltars.data.changes import ChangeScans
from deltars.data.frames import duckdb_columns, library
from deltars.data.reader import read_scan
from deltars.data.scan import Scan
from deltars.errors import ConfigError, DeltarsError, ValidationError
from deltars.transaction.queries import QueryTables, ReadChanges, tables_of

if TYPE_CHECKING:
    from deltars.predicate import Query
    from deltars.predicate.duckdb_sql import DuckDBText
    from deltars.predicate.statements.binding import Binder

BATCH_ROWS = 10_000


class NotForDuckDB(ValidationError):
    """DuckDB cannot run the query; Spark may."""


class DuckDBQuery:
    """A query that DuckDB runs. `doubt` says what DuckDB may compute otherwise than Spark; None: nothing."""

    def __init__(
        self, tables: QueryTables, query: Query, binder: Binder | None = None, changes: ReadChanges | None = None
    ) -> None:
        """Translate a query. Raise ConfigError without DuckDB, ValidationError if DuckDB cannot run the query."""
        # Imported late: sqlglot is slow to load.
        from deltars.predicate.duckdb_sql import Untranslatable

        self._duckdb = library("duckdb")
        self._query = query
        self._tables = tables_of(tables, query, binder, changes=changes)
        self._schemas = [table.schema for table in self._tables]
        query.check_columns(self._schemas)
        try:
            self._text: DuckDBText = query.in_duckdb(self._schemas)
        except Untranslatable as error:
            raise NotForDuckDB(f"DuckDB cannot run the query: {error}", field="query") from None
        self.doubt = self._text.doubt

    @contextmanager
    def rows(self, limit: int | None = None) -> Iterator[pa.RecordBatchReader]:
        """Yield the rows as a stream of batches, at most `limit` of them. Files are read as the stream is consumed."""
        streams = [_Rows(scan, columns) for scan, columns in zip(self.scans, self._columns(), strict=True)]
        connection = self._duckdb.connect(":memory:")
        try:
            with self._located(streams):
                # Names that are no table of the catalog must not become files or variables of this program.
                connection.execute("SET TimeZone = 'UTC'")
                connection.execute("SET python_enable_replacements = false")
                connection.execute("SET enable_external_access = false")
                for place, stream in enumerate(streams):
                    connection.register(f"rows_{place}", stream)
                    connection.execute(f"CREATE TEMP VIEW table_{place} AS SELECT {stream.columns} FROM rows_{place}")
                relation = connection.sql(self._text.sql)
                if relation is None:
                    raise ValidationError("the query returns no rows", field="query")
                wanted = relation if limit is None else relation.limit(limit)
                reader = _reader(wanted)
                whole = [str(kind) == "HUGEINT" for kind in relation.types]
            fields = [
                pa.field(field.name, pa.int64()) if is_whole else field
                for field, is_whole in zip(reader.schema, whole, strict=True)
            ]
            schema = pa.schema(fields)
            yield pa.RecordBatchReader.from_batches(schema, self._batches(reader, schema, streams))
        finally:
            connection.close()

    def plan(self) -> str:
        """Return the files that are read of each table, and DuckDB's plan of the query."""
        lines = []
        for place, (scan, columns) in enumerate(zip(self.scans, self._columns(), strict=True)):
            of = "changes" if isinstance(scan, ChangeScans) else f"{scan.files.num_rows} files"
            lines.append(f"table_{place}: {self._query.tables[place].name}, {of}, columns {columns or 'all'}")
        streams = [_Rows(scan, columns) for scan, columns in zip(self.scans, self._columns(), strict=True)]
        connection = self._duckdb.connect(":memory:")
        try:
            with self._located(streams):
                for place, stream in enumerate(streams):
                    nothing = stream.schema.empty_table()
                    connection.register(f"table_{place}", nothing)
                return "\n".join([*lines, str(connection.sql(self._text.sql).explain())])
        finally:
            connection.close()

    def _batches(
        self, reader: pa.RecordBatchReader, schema: pa.Schema, streams: Sequence[_Rows]
    ) -> Iterator[pa.RecordBatch]:
        while True:
            with self._located(streams):
                batch = next(reader, None)
                if batch is None:
                    return
                # DuckDB sums whole numbers in 128 bits, Spark in 64: a sum beyond is an error in both.
                arrays = [
                    column if column.type == field.type else column.cast(field.type)
                    for column, field in zip(batch.columns, schema, strict=True)
                ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    @contextmanager
    def _located(self, streams: Sequence[_Rows]) -> Iterator[None]:
        """Turn errors of DuckDB into ours. An error of our reader reaches us as DuckDB's, so it is kept and raised."""
        try:
            yield
        except DeltarsError:
            raise
        except (self._duckdb.Error, pa.ArrowException, OSError, RuntimeError) as error:
            ours = next((stream.failure for stream in streams if stream.failure is not None), None)
            if ours is not None:
                raise ours from None
            said = str(error).partition("\n")[0]
            raise ValidationError(f"DuckDB cannot run the query: {said}", field="query") from error

    def _columns(self) -> list[list[str] | None]:
        return self._query.columns(self._schemas)

    @cached_property
    def scans(self) -> list[Scan | ChangeScans]:
        """Scan of each table. A transaction remembers what they read, when they are made."""
        # The conditions have Spark's meaning. Where DuckDB's may differ, they must not choose its files.
        none = [None] * len(self._tables)
        predicates = self._query.predicates(self._schemas, UTC) if self.doubt is None else none
        return [table.scan(predicate) for table, predicate in zip(self._tables, predicates, strict=True)]


class _Rows:
    """Rows of a scan, as often as DuckDB asks for them: it may read a table twice in one query."""

    def __init__(self, scan: Scan | ChangeScans, columns: Sequence[str] | None) -> None:
        self._scan = scan
        self._names = columns
        self.failure: DeltarsError | None = None

    @property
    def schema(self) -> pa.Schema:
        return self._opened().schema

    @property
    def columns(self) -> str:
        return duckdb_columns(self.schema)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        reader = self._opened()
        return pa.RecordBatchReader.from_batches(reader.schema, self._batches(reader)).__arrow_c_stream__()

    def _opened(self) -> pa.RecordBatchReader:
        scan = self._scan
        return scan.read() if isinstance(scan, ChangeScans) else read_scan(scan, columns=self._names)

    def _batches(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        try:
            yield from reader
        except DeltarsError as error:
            self.failure = error
            raise


def _reader(relation: Any) -> pa.RecordBatchReader:
    # Renamed in DuckDB 1.5; the old name warns there.
    fetch = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
    return fetch(BATCH_ROWS)


def has_duckdb() -> bool:
    try:
        library("duckdb")
    except ConfigError:
        return False
    return True
