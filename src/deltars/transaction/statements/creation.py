"""CREATE TABLE, with columns or AS SELECT, OR REPLACE and IF NOT EXISTS."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deltars.errors import TableExists
from deltars.predicate.statements.tree import CreateTable, Fragment
from deltars.protocol import StructType, as_schema
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
