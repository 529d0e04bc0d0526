"""The verbs of an enabled session, each where it is carried out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deltars.catalog.catalog import Catalog
from deltars.enabled.queries import Queries
from deltars.enabled.reads import Reads
from deltars.enabled.tables import Tables, listed_tables
from deltars.enabled.writes import Writes
from deltars.errors import NotSupportedYet
from deltars.spark.verbs.merge_writer import MergeRequest
from deltars.spark.verbs.names import quoted
from deltars.spark.verbs.request import ReadRequest, TableWriteRequest, WriteRequest
from deltars.spark.verbs.wrapping import NOT_OURS


class CatalogVerbs:
    """What an enabled session does in place of Spark, for one catalog (`spark.verbs.wrapping.Verbs`)."""

    def __init__(self, catalog: Catalog, *, import_paths: bool) -> None:
        self.catalog = catalog
        self._tables = Tables(catalog, import_paths=import_paths)
        self._writes = Writes(self._tables)
        self._reads = Reads(self._tables)
        self._queries = Queries(self._tables, self._reads)

    def save(self, request: WriteRequest, path: str | None) -> Any:
        return self._writes.save(request, path)

    def save_as_table(self, request: WriteRequest, name: Sequence[str]) -> Any:
        return self._writes.save_as_table(request, name)

    def insert_into(self, request: WriteRequest, name: Sequence[str]) -> Any:
        return self._writes.insert_into(request, name)

    def create(self, request: TableWriteRequest) -> Any:
        return self._writes.create(request)

    def replace(self, request: TableWriteRequest) -> Any:
        return self._writes.replace(request)

    def create_or_replace(self, request: TableWriteRequest) -> Any:
        return self._writes.create_or_replace(request)

    def append(self, request: TableWriteRequest) -> Any:
        return self._writes.append(request)

    def overwrite(self, request: TableWriteRequest, condition: Any) -> Any:
        return self._writes.overwrite(request, condition)

    def overwrite_partitions(self, request: TableWriteRequest) -> Any:
        return self._writes.overwrite_partitions(request)

    def load(self, request: ReadRequest, path: Any) -> Any:
        return self._reads.load(request, path)

    def table(self, request: ReadRequest, name: Sequence[str]) -> Any:
        if len(name) == 1 and self._queries.views(request.session).has(name[0]):
            return self._queries.sql(request.session, f"SELECT * FROM {quoted(name)}", None, {})
        return self._reads.table(request, name)

    def sql(self, session: Any, query: str, args: Any, frames: dict[str, Any]) -> Any:
        return self._queries.sql(session, query, args, frames)

    def table_exists(self, session: Any, name: Sequence[str]) -> Any:
        return True if self._tables.has(name) else NOT_OURS

    def list_tables(self, session: Any, database: str | None, pattern: str | None) -> list[str]:
        """Return the names of the catalog's tables, which are beside those of the default database."""
        return listed_tables(session, self._tables, database, pattern)

    def has_table(self, session: Any, name: Sequence[str]) -> bool:
        return self._tables.has(name) and not self._reads.is_view(session, name)

    def merge(self, request: MergeRequest) -> None:
        self._writes.merge(request)

    def forget_view(self, session: Any, name: str) -> None:
        self._queries.views(session).forget(name)

    def stream(self, source: str, verb: str) -> Any:
        if source != "delta":
            return NOT_OURS
        raise NotSupportedYet(
            f'{verb}.format("delta") is not supported in a session that is enabled for a catalog',
            hint="Write each batch: df.writeStream.foreachBatch(deltars.each_batch(fn)).start()"
            " (docs/guides/spark-pipelines.md).",
        )
