"""Stream reads: the reader that Spark's driver asks for offsets and partitions, in one process for the whole query."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_deltasql.file_tasks import divided, read_files

if TYPE_CHECKING:
    from deltars.streams.table_source import Offset, ReadSize, TableSource
    from deltars.streams.transactions_stream import CutOffset, TransactionSource

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadMaxBytes,
        ReadMaxFiles,
        SupportsTriggerAvailableNow,
    )
except ModuleNotFoundError:  # Spark 4.1 has no limits, and ends Trigger.AvailableNow by itself.
    SupportsTriggerAvailableNow = object  # type: ignore[assignment, misc]


def stream_reader(given: Mapping[str, str], schema: StructType, pinned: int | None) -> DataSourceStreamReader:
    from deltars.streams.options import Options

    if Options.of(given).flag("transactions"):
        return TransactionStreamReader(given)
    return TableStreamReader(given, schema, pinned)


class TableStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of a table as a stream. Tasks get a copy that holds data only."""

    def __init__(self, given: Mapping[str, str], schema: StructType, pinned: int | None) -> None:
        self._given = dict(given)
        self._schema = schema
        self._pinned = pinned
        self._opened: TableSource | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return self._source.initial().to_json()

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next batch. Spark 4.1 says neither where it begins nor how much it may read."""
        source = self._source
        if start is None:
            return source.newest().to_json()
        return source.next_offset(_offset(start), _limit(limit, self._size)).to_json()

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        size = self._size
        if size.files is not None and size.size_bytes is None:
            return ReadMaxFiles(size.files)
        # Spark has no limit by files and bytes. Ours are known here.
        return ReadMaxBytes(size.size_bytes) if size.size_bytes is not None else ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return self._source.newest().to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._source.stop_at_current()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return divided(self._source.scans(_offset(start), _offset(end)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_files(partition, self._schema)

    @property
    def _source(self) -> TableSource:
        if self._opened is None:
            from deltars.streams.feed_source import FeedSource
            from deltars.streams.options import Options
            from deltars.streams.table_source import TableSource
            from pyspark_deltasql.reader import check_columns

            options = Options.of(self._given)
            table, is_feed = options.table(), options.flag("readChangeFeed")
            snapshot = table.snapshot(table.version if self._pinned is None else self._pinned)
            check_columns(self._schema, FeedSource.schema_of(snapshot) if is_feed else snapshot.schema)
            self._opened = (FeedSource if is_feed else TableSource)(table, options, snapshot.version)
        return self._opened

    @property
    def _size(self) -> ReadSize:
        from deltars.streams.options import Options
        from deltars.streams.table_source import ReadSize

        return ReadSize.of(Options.of(self._given))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}


class RowsPartition(InputPartition):
    """Rows that the driver made."""

    def __init__(self, rows: Sequence[tuple[Any, ...]]) -> None:
        super().__init__(None)
        self.rows = rows


class TransactionStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of the transactions of a catalog as a stream."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = dict(given)
        self._opened: TransactionSource | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return self._source.initial().to_json()

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next batch. Spark 4.1 does not say where it begins: then it has no limit."""
        source = self._source
        return source.next_offset(source.initial() if start is None else _cut(start)).to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._source.stop_at_current()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        rows = self._source.rows(_cut(start), _cut(end))
        return [RowsPartition(rows)] if rows else []

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        assert isinstance(partition, RowsPartition)
        return iter(partition.rows)

    @property
    def _source(self) -> TransactionSource:
        if self._opened is None:
            from deltars.streams.options import Options
            from deltars.streams.transactions_stream import TransactionSource

            self._opened = TransactionSource(Options.of(self._given))
        return self._opened

    def __getstate__(self) -> dict[str, Any]:
        # Tasks need no address of a database.
        return {"_given": {}, "_opened": None}


def _cut(document: dict[str, Any]) -> CutOffset:
    from deltars.streams.transactions_stream import CutOffset

    return CutOffset(**document)


def _offset(document: dict[str, Any]) -> Offset:
    from deltars.streams.table_source import Offset

    return Offset.from_json(document)


def _limit(limit: Any, given: ReadSize) -> ReadSize:
    """Return how much a batch may read: everything if the trigger wants all at once, else what the options say."""
    from deltars.streams.table_source import ReadSize

    return ReadSize() if isinstance(limit, ReadAllAvailable) else given
