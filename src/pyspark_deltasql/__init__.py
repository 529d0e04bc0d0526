"""Spark's Python data source `deltasql`. Spark finds it by this package's name, so nothing needs to be registered.

    spark.read.format("deltasql").load(table)           reader.py          files, planned by the driver, read by tasks
    spark.readStream.format("deltasql").load(table)     stream_reader.py   the same, version by version
    df.write, df.writeStream … .format("deltasql")      writer.py          files, written by tasks, then committed

Spark imports this package in every program that looks for a data source, so it loads nothing of deltars by itself.
Spark runs each step in a new Python process of the driver. Tasks get data only, and need no database.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )


class DefaultSource(DataSource):
    """The data source `deltasql`. It pickles with the version that its schema was read at."""

    pinned: int | None = None
    """Version of the table when the schema was read. A frame has its rows as of then, however often it is used."""

    @classmethod
    def name(cls) -> str:
        return "deltasql"

    def schema(self) -> StructType | str:
        """Return the schema of the rows, and keep the version that has it."""
        from pyspark_deltasql.reader import source_schema

        schema, self.pinned = source_schema(self.options)
        return schema

    def reader(self, schema: StructType) -> DataSourceReader:
        from pyspark_deltasql.reader import TableReader

        return TableReader(self.options, schema, self.pinned)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from pyspark_deltasql.stream_reader import stream_reader

        return stream_reader(self.options, schema, self.pinned)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from pyspark_deltasql.writer import TableWriter

        return TableWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from pyspark_deltasql.writer import StreamWriter

        return StreamWriter(self.options, schema, overwrite)


__all__ = ["DefaultSource"]
