"""Row-level changes by Spark: classic and Spark Connect, through the public API of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import SparkSession

from deltars.data.row_change import Delete, FeedRows, Merge, MergeSource, Positions, RowChanges, Update
from deltars.data.scan import Scan
from deltars.data.write_target import WriteTarget, WrittenFile
from deltars.errors import located
from deltars.protocol import StructType
from deltars.spark.change.feed import write_feed_by_spark
from deltars.spark.change.merge import merge_rows
from deltars.spark.change.purge import purge_by_spark
from deltars.spark.change.rows import delete_rows, update_rows
from deltars.spark.change.source import SparkSource, read_source
from deltars.spark.progress import shown
from deltars.spark.session import running_session


class SparkChanges:
    """Carries out row-level changes as Spark jobs. See `ChangePlane`."""

    is_distributed = True

    def __init__(self, session: SparkSession | None = None) -> None:
        self._spark = running_session(session)

    def delete(self, scan: Scan, statement: Delete) -> RowChanges:
        with located(table=scan.table, version=scan.version), shown(self._spark, f"deletions from {scan.table}"):
            return delete_rows(self._spark, scan, statement)

    def update(self, scan: Scan, statement: Update) -> RowChanges:
        with located(table=scan.table, version=scan.version), shown(self._spark, f"updates of {scan.table}"):
            return update_rows(self._spark, scan, statement)

    def source(self, statement: Merge, target: StructType) -> SparkSource:
        with shown(self._spark, "the source of a merge"):
            return read_source(self._spark, statement, target)

    def merge(self, scan: Scan, statement: Merge, source: MergeSource) -> RowChanges:
        assert isinstance(source, SparkSource)
        with located(table=scan.table, version=scan.version), shown(self._spark, f"changes of {scan.table}"):
            return merge_rows(self._spark, scan, statement, source)

    def purge(self, scan: Scan, positions: Positions, target: WriteTarget) -> Mapping[int, Sequence[WrittenFile]]:
        with located(table=scan.table, version=scan.version), shown(self._spark, scan.table):
            return purge_by_spark(self._spark, scan, positions, target)

    def write_feed(self, scan: Scan, rows: Sequence[FeedRows], target: WriteTarget) -> list[WrittenFile]:
        with located(table=scan.table, version=scan.version), shown(self._spark, f"changes of {scan.table}"):
            return write_feed_by_spark(self._spark, scan, rows, target)
