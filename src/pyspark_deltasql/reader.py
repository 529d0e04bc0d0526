"""Batch reads, and the schema of every read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_deltasql.file_tasks import divided, read_files

if TYPE_CHECKING:
    from deltars.protocol import StructType as TableSchema
    from deltars.streams.options import Options


def source_schema(given: Mapping[str, str]) -> tuple[StructType | str, int | None]:
    """Return the schema of a read, and the version that has it."""
    from deltars.spark.schema import schema_to_spark, table_schema
    from deltars.streams.feed_source import FeedSource
    from deltars.streams.options import Options
    from deltars.streams.transactions_stream import TRANSACTION_SCHEMA

    options = Options.of(given)
    if options.flag("transactions"):
        return TRANSACTION_SCHEMA, None
    snapshot = options.table().snapshot(version_of(options))
    schema = FeedSource.schema_of(snapshot) if options.flag("readChangeFeed") else snapshot.schema
    # Nullable, because older files may lack a NOT NULL column.
    return schema_to_spark(table_schema(schema_to_spark(schema))), snapshot.version


def version_of(options: Options) -> int | None:
    """Return the version that the options ask for; None for the current one."""
    from deltars.errors import ValidationError

    version, moment, as_of = options.number("versionAsOf"), options.moment("timestampAsOf"), options.text("asOf")
    schema_at = options.number("schemaVersion")
    if sum(one is not None for one in (version, moment, as_of, schema_at)) > 1:
        raise ValidationError(
            "versionAsOf, timestampAsOf, asOf and schemaVersion exclude each other", field="versionAsOf"
        )
    if moment is None and as_of is None:
        return version if schema_at is None else schema_at
    return options.table().snapshot(timestamp=moment, as_of=as_of).version


class TableReader(DataSourceReader):
    """Reader of one version of a table. Spark pickles it to the tasks before it is planned, so it holds data only.

    It takes no filters of Spark. Spark 4.2 keeps the partitions that it planned for the filters of one query, and uses
    them for the next query on the same frame, which may have no filters: rows would be missing.
    """

    def __init__(self, given: Mapping[str, str], schema: StructType, pinned: int | None) -> None:
        self._given = dict(given)
        self._schema = schema
        self._pinned = pinned

    def partitions(self) -> Sequence[InputPartition]:
        """Return the files that may hold a matching row, divided among tasks."""
        from deltars.data.changes import ChangePart
        from deltars.errors import ValidationError
        from deltars.streams.options import Options

        options = Options.of(self._given)
        if options.flag("readChangeFeed"):
            raise ValidationError(
                "readChangeFeed is for streams", field="readChangeFeed", hint="Write table.changes(start, end).read()."
            )
        table = options.table()
        version = version_of(options) if self._pinned is None else self._pinned
        scan = table.scan(version, where=options.text("where"))
        check_columns(self._schema, scan.schema)
        return divided([ChangePart("files", scan)])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_files(partition, self._schema)


def check_columns(given: StructType, table: TableSchema) -> None:
    """Raise unless a schema that the user gave is made of columns of the table. Others would be read as null."""
    from deltars.errors import SchemaMismatch
    from deltars.spark.schema import schema_to_spark, table_schema

    known = {field.name: field.dataType for field in schema_to_spark(table_schema(schema_to_spark(table))).fields}
    for field in schema_to_spark(table_schema(given)).fields:
        if known.get(field.name) != field.dataType:
            found = known.get(field.name)
            raise SchemaMismatch(
                f"the schema has {field.name} {field.dataType.simpleString()}, and the table"
                + (" has no such column" if found is None else f" has {found.simpleString()}"),
                field=field.name,
                hint="Leave schema(…) out, or name columns of the table with their types.",
            )
