"""Writes: batches, and the sink of streams. Both are planned when Spark makes the writer, and pickled to the tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from deltars.data.task_rows import TaskWrite
    from deltars.data.write_target import WrittenFile
    from deltars.streams.table_sink import TableSink


class WrittenFiles(WriterCommitMessage):
    """Files that one task wrote, and what it wrote them for."""

    def __init__(self, files: Sequence[WrittenFile], digest: str) -> None:
        from deltars.spark.write.arrow import encode_files

        self.files = encode_files(files).to_pylist()
        self.digest = digest


class TableWriter(DataSourceArrowWriter):
    """Writer of one batch write."""

    def __init__(self, given: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        self._parts = (dict(given), schema, overwrite)
        self._plan = _sink(*self._parts).plan(is_stream=False)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _written(self._plan, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if self._plan is not None:
            _sink(*self._parts).commit(*_collected(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Leave the files, which no version refers to. A full vacuum deletes them."""


class StreamWriter(DataSourceStreamArrowWriter):
    """Writer of the micro-batches of a stream."""

    def __init__(self, given: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        self._parts = (dict(given), schema, overwrite)
        self._plan = _sink(*self._parts).plan(is_stream=True)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _written(self._plan, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        _sink(*self._parts).commit_batch(*_collected(messages), batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Leave the files, which no version refers to. A full vacuum deletes them."""


def _sink(given: Mapping[str, str], schema: StructType, overwrite: bool) -> TableSink:
    from deltars.spark.schema import table_schema
    from deltars.streams.options import Options
    from deltars.streams.table_sink import TableSink

    columns = to_arrow_schema(schema, timezone="UTC")
    return TableSink(Options.of(given), table_schema(schema), columns, overwrite=overwrite)


def _written(plan: TaskWrite | None, batches: Iterator[pa.RecordBatch]) -> WrittenFiles:
    if plan is None:
        return WrittenFiles((), "")
    return WrittenFiles(plan.write(batches), plan.digest)


def _collected(messages: Sequence[Any]) -> tuple[list[WrittenFile], str | None]:
    """Return the files of all tasks, and what they were written for."""
    from deltars.errors import StorageError
    from deltars.spark.write.arrow import decode_file

    found = [message for message in messages if message is not None]
    if len(found) < len(messages):
        raise StorageError("a Spark task reported no result", hint="Run the query again.")
    digests = {message.digest for message in found if message.files}
    return [decode_file(file) for message in found for file in message.files], next(iter(digests), None)
