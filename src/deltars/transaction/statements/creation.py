"""CREATE TABLE, with columns or AS SELECT, OR REPLACE and IF NOT EXISTS."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deltars.errors import TableExists
from deltars.predicate.statements.tokens import path_of
from deltars.predicate.statements.tree import CreateTable, Fragment
from deltars.protocol import StructType, as_schema, column_mapping
from deltars.protocol.clustering import clustering_columns
from deltars.protocol.column_mapping import unmapped
from deltars.protocol.identity import without_marks
from deltars.protocol.properties import ENABLEMENT_TIMESTAMP, ENABLEMENT_VERSION
from deltars.session import path_in_name
from deltars.transaction.create_table import free_name
from deltars.transaction.metadata import IN_COMMIT_TIMESTAMPS
from deltars.transaction.plane import plane_for
from deltars.transaction.statements.rows import NOTHING, Rows, one_row

if TYPE_CHECKING:
    from deltars.transaction.statements.execution import Execution


def create(execution: Execution, action: CreateTable) -> Rows:
    """Create a table; for AS SELECT, also write the rows."""
    tx, name = execution.tx, str(action.table)
    if action.must_exist:
        execution.readable(action.table)
    exists = tx._has(name)
    if exists and action.if_not_exists:
        return NOTHING
    if exists and not (action.or_replace or action.must_exist):
        pointed = execution.binder.source.error_at(
            f"there is already a table named {name!r}",
            action.table.position,
            hint="Write CREATE OR REPLACE TABLE, or CREATE TABLE IF NOT EXISTS.",
        )
        raise TableExists(pointed.message, table=name, hint=pointed.hint)
    options: dict[str, Any] = {
        "location": action.location,
        "partition_by": action.partition_by,
        "cluster_by": action.cluster_by,
        "properties": action.properties or None,
        "description": action.comment,
        "replace": exists,
    }
    path = None if exists else path_in_name(name)
    if path is not None:
        if action.location is not None:
            raise execution.binder.source.error_at(
                "the table's name is its location", action.table.position, hint="Leave out LOCATION, or give a name."
            )
        options["location"], name = path, free_name(tx._view_for(name).session, path)
    if action.like is not None:
        _create_like(execution, action, name, options)
        return NOTHING
    if action.query is None:
        tx.create_table(name, _schema(execution, action), **options)
        return NOTHING
    # The query may read the table that is replaced, so it is run first.
    rows = execution.engine.query(tx, execution.binder, action.query)
    with rows.opened() as frame:
        plane = plane_for(frame)
        schema = plane.schema(plane.opened(frame))
        tx.create_table(name, schema, **options)
        written = tx._write(name, frame)
    return one_row(num_affected_rows=written, num_inserted_rows=written)


def _create_like(execution: Execution, action: CreateTable, name: str, options: dict[str, Any]) -> None:
    """Create a table with the columns, partitions, clustering, comment and properties of another, and no rows."""
    assert action.like is not None
    other = execution.readable(action.like)
    view = execution.tx._view_for(str(action.like))
    metadata = other.metadata
    assert metadata is not None
    is_mapped = column_mapping(metadata.configuration) != "none"
    clustered = clustering_columns(view.domains(other), metadata.schema, is_mapped=is_mapped)
    options |= {
        "partition_by": metadata.partition_columns,
        "cluster_by": [path_of(path) for path in clustered],
        "properties": {name: value for name, value in metadata.configuration.items() if not _is_own(name)}
        | action.properties,
        "description": metadata.description,
    }
    execution.tx.create_table(name, without_marks(unmapped(metadata.schema)), **options)


def _is_own(name: str) -> bool:
    """Return whether a property describes the table that has it, so that no other table can take it over."""
    own = (IN_COMMIT_TIMESTAMPS, ENABLEMENT_VERSION, ENABLEMENT_TIMESTAMP, "delta.columnMapping.maxColumnId")
    return name in own or name.startswith("delta.rowTracking.")


def _schema(execution: Execution, action: CreateTable) -> StructType:
    """Return the columns, with those of PARTITIONED BY that have a type."""
    fields = [
        field
        for fragment in (action.columns, action.partition_columns)
        if fragment is not None
        for field in columns_of(execution, fragment).fields
    ]
    return StructType(tuple(fields))


def columns_of(execution: Execution, fragment: Fragment) -> StructType:
    """Return the columns that a DDL text describes."""
    return as_schema(fragment.text)


__all__ = ["columns_of", "create"]
