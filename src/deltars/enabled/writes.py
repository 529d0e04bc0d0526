"""Writes of an enabled session: the request of Spark's writer, as calls of a transaction.

save(path) ─────────┐                                              ┌─ tx.write: creates, appends, overwrites
saveAsTable(name) ──┼──▶ table by name or path ──▶ transaction ────┼─ tx.create_table(replace=True), tx.write
insertInto(name) ───┤                                              └─ tx.delete(condition), tx.write
writeTo(name).… ────┘
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from deltars.catalog.table_path import free_name
from deltars.enabled.options import new_table_properties, plain_properties, write_options
from deltars.enabled.tables import SOURCES, Tables, is_partitioned, name_in, path_in
from deltars.errors import TableExists, TableNotFound, ValidationError
from deltars.spark.change.expressions import alias_of
from deltars.spark.schema import table_schema
from deltars.spark.session import auto_merges
from deltars.spark.verbs.conditions import as_condition, has_unmatched
from deltars.spark.verbs.merge_writer import MergeRequest
from deltars.spark.verbs.request import TableWriteRequest, WriteRequest
from deltars.spark.verbs.wrapping import NOT_OURS
from deltars.transaction.merge_builder import with_clause
from deltars.transaction.options import WriteMode, WriteOptions
from deltars.transaction.staged_table import StagedTable
from deltars.transaction.transaction import Transaction
from deltars.transaction.view import View

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SOURCE = "__deltars_source"
Request = WriteRequest | TableWriteRequest


class Writes:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    # -- DataFrameWriter -------------------------------------------------------------------------------------------

    def save(self, request: WriteRequest, path: str | None) -> Any:
        if request.source not in SOURCES:
            return NOT_OURS
        path = request.options.get("path") if path is None else path
        if not isinstance(path, str) or not path:
            raise ValidationError(
                "the write has no path", field="path", hint="Write save(path), or saveAsTable(name) for a name."
            )
        return self._write_at(request, path)

    def save_as_table(self, request: WriteRequest, name: Sequence[str]) -> Any:
        path = path_in(name)
        if request.source not in SOURCES:
            if path is None and not self._tables.has(name):
                return NOT_OURS
            if not request.is_default_source:
                raise ValidationError(
                    f"{name_in(name)} is a table of {self._tables.catalog.uri}, and cannot be written in the format"
                    f" {request.source}",
                    table=name_in(name),
                    field="format",
                    hint='Write format("delta"), or use another name.',
                )
        if path is not None:
            return self._write_at(request, path)
        settings = _settings(request)
        location = request.options.get("path")
        if location is not None:
            location = self._tables.settle_path(location, settings)
        with self._tables.writing() as (tx, view):
            self._write(tx, view, request, name_in(name), settings, location=location)

    def insert_into(self, request: WriteRequest, name: Sequence[str]) -> Any:
        if not self._tables.has(name):
            return NOT_OURS
        _refuse_buckets(request)
        if request.partition_by:
            raise ValidationError(
                "insertInto() writes the table's own partitions", field="partitionBy", hint="Leave out partitionBy."
            )
        settings = _settings(request)
        overwrites = request.mode == "overwrite"
        with self._tables.writing() as (tx, view):
            table = self._existing(view, name)
            frame = _by_position(request.frame, table)
            options = self._options(request, table, settings, overwrites=overwrites)
            mode: WriteMode = "overwrite" if overwrites else "append"
            tx._write(table.table_id, frame, mode, skips_nothing=True, **options)

    def _write_at(self, request: WriteRequest, path: str) -> None:
        settings = _settings(request)
        location = self._tables.settle_path(path, settings)
        with self._tables.writing() as (tx, view):
            found = view.find_at(location)
            name = free_name(view.session, location) if found is None else found.name
            if found is None and view.find(name) is not None:
                # The transaction has created a table of this name, elsewhere.
                name = f"{name}_{tx.id.hex[:8]}_{len(view.changed)}"
            self._write(tx, view, request, name, settings, location=location if found is None else None, by_path=True)

    def _write(
        self,
        tx: Transaction,
        view: View,
        request: WriteRequest,
        name: str,
        settings: Mapping[str, str],
        *,
        location: str | None,
        by_path: bool = False,
    ) -> None:
        _refuse_buckets(request)
        table = view.find(view.session.name_or_id(name))
        overwrites = request.mode == "overwrite"
        options = self._options(request, table, settings, overwrites=overwrites)
        if request.partition_by is not None:
            options["partition_by"] = request.partition_by
        elif options.get("overwrite_schema"):
            options["partition_by"] = ()
        if table is None:
            options["properties"] = new_table_properties(request.options.given, settings)
            options["cluster_by"] = request.cluster_by
        elif request.cluster_by is not None:
            options["cluster_by"] = request.cluster_by
        if location is not None:
            options["location"] = location
        target = name if table is None else table.table_id
        tx._write(target, request.frame, request.mode, by_path, True, **options)  # type: ignore[arg-type]

    # -- DataFrameWriterV2 -----------------------------------------------------------------------------------------

    def create(self, request: TableWriteRequest) -> Any:
        if not self._is_ours(request):
            return NOT_OURS
        return self._create(request, replace=False)

    def create_or_replace(self, request: TableWriteRequest) -> Any:
        if not self._is_ours(request):
            return NOT_OURS
        return self._create(request, replace=True)

    def replace(self, request: TableWriteRequest) -> Any:
        if not self._is_ours(request):
            return NOT_OURS
        if not self._tables.has(request.name):
            raise TableNotFound(
                f"there is no table {name_in(request.name)!r} to replace",
                table=name_in(request.name),
                hint="Write createOrReplace(), or create().",
            )
        return self._create(request, replace=True)

    def append(self, request: TableWriteRequest) -> Any:
        return self._write_rows(request, "append")

    def overwrite_partitions(self, request: TableWriteRequest) -> Any:
        return self._write_rows(request, "overwrite", partition_overwrite="dynamic")

    def overwrite(self, request: TableWriteRequest, condition: Any) -> Any:
        """Replace the rows that match a condition, which the new rows must match too."""
        if not self._tables.has(request.name):
            return NOT_OURS
        column = as_condition(condition)
        if has_unmatched(request.frame, column):
            raise ValidationError(
                "rows of the frame do not match the condition of overwrite()",
                table=name_in(request.name),
                field="condition",
                hint="Leave those rows out, or overwrite by a condition that they match.",
            )
        with self._tables.writing() as (tx, view):
            table = self._existing(view, request.name)
            options = self._options(request, table, _settings(request), overwrites=False)
            tx.delete(table.table_id, column, spark=request.frame.sparkSession)
            tx._write(table.table_id, request.frame, "append", skips_nothing=True, **options)

    def _write_rows(self, request: TableWriteRequest, mode: Any, **more: Any) -> Any:
        if not self._tables.has(request.name):
            return NOT_OURS
        with self._tables.writing() as (tx, view):
            table = self._existing(view, request.name)
            options = self._options(request, table, _settings(request), overwrites=False)
            if is_partitioned(table):
                options.update(more)  # type: ignore[typeddict-item]
            tx.write(table.table_id, request.frame, mode, **options)

    def _is_ours(self, request: TableWriteRequest) -> bool:
        """Return whether a table that is created or replaced is the catalog's."""
        if request.source is not None:
            return request.source.lower() in SOURCES
        default = str(request.frame.sparkSession.conf.get("spark.sql.sources.default"))
        return default.lower() in SOURCES or path_in(request.name) is not None or self._tables.has(request.name)

    def _create(self, request: TableWriteRequest, *, replace: bool) -> None:
        settings = _settings(request)
        path = path_in(request.name) or request.properties.get("location") or request.options.get("path")
        location = None if path is None else self._tables.settle_path(path, settings)
        for column in request.partition_by or ():
            if "(" in column:
                raise ValidationError(
                    f"a table cannot be partitioned by {column}",
                    field="partitionedBy",
                    hint="Partition by columns; add a column for the expression.",
                )
        properties = {**request.options.given, **request.properties}
        with self._tables.writing() as (tx, view):
            by_path = view.find_at(location) if location is not None and path_in(request.name) else None
            if location is not None and path_in(request.name):
                name = by_path.name if by_path else free_name(view.session, location)
            else:
                name = name_in(request.name)
            table = view.find(view.session.name_or_id(name))
            if table is not None and not replace:
                raise TableExists(f"there is already a table named {name!r}", table=name)
            tx.create_table(
                name,
                table_schema(request.frame.schema),
                location=location if table is None else None,
                partition_by=request.partition_by or (),
                cluster_by=request.cluster_by or (),
                properties=new_table_properties(properties, settings) | plain_properties(request.properties),
                description=request.properties.get("comment"),
                replace=replace,
            )
            tx.write(name, request.frame, "append", **self._options(request, None, settings, overwrites=False))

    def merge(self, request: MergeRequest) -> None:
        """Merge a frame into a table, as `df.mergeInto(name, condition)` describes it."""
        if not request.clauses:
            raise ValidationError(
                "the merge has no clause", field="mergeInto", hint="Add one: whenMatched().updateAll()."
            )
        with self._tables.writing() as (tx, view):
            table = self._existing(view, request.name)
            merge = tx.merge(
                table.table_id,
                request.frame,
                request.condition,
                target_alias=request.name[-1],
                source_alias=alias_of(request.frame) or _SOURCE,
                merge_schema=request.evolves or auto_merges(request.frame.sparkSession),
                spark=request.frame.sparkSession,
            )
            for clause in request.clauses:
                merge = with_clause(merge, clause.kind, clause.action, clause.condition, clause.assignments)
            merge.execute()

    # -- both ------------------------------------------------------------------------------------------------------

    def _existing(self, view: View, name: Sequence[str]) -> StagedTable:
        path = path_in(name)
        if path is not None:
            found = view.find_at(self._tables.settle_path(path, {}))
            assert found is not None
            return found
        return view.readable(name_in(name))

    def _options(
        self, request: Request, table: StagedTable | None, settings: Mapping[str, str], *, overwrites: bool
    ) -> WriteOptions:
        options = write_options(request.options, settings, overwrites=overwrites)
        if request.evolves_schema and not options.get("overwrite_schema"):
            options["merge_schema"] = True
        if not is_partitioned(table):
            # As in Delta: without partitions, all rows are replaced.
            options.pop("partition_overwrite", None)
        return options


def _settings(request: Request) -> Mapping[str, str]:
    found: Mapping[str, str] = request.frame.sparkSession.conf.getAll
    return found


def _refuse_buckets(request: WriteRequest) -> None:
    if request.is_bucketed or request.is_sorted:
        raise ValidationError(
            "Delta tables have no buckets: bucketBy and sortBy are not supported",
            field="bucketBy",
            hint='Cluster the rows by columns: clusterBy("id").',
        )


def _by_position(frame: DataFrame, table: StagedTable) -> DataFrame:
    """Return the frame with the table's column names: insertInto() goes by position, not by name."""
    assert table.metadata is not None
    names = table.metadata.schema.names
    if len(frame.columns) != len(names):
        raise ValidationError(
            f"insertInto() needs the table's {len(names)} columns in their order, got {len(frame.columns)}:"
            f" {', '.join(frame.columns)}",
            table=table.name,
            field="df",
            hint=f"The table has {', '.join(names)}. saveAsTable() goes by name, and may leave columns out.",
        )
    return frame.toDF(*names)
