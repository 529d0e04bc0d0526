"""INSERT: rows by position, by name or by a list of columns, in the types of the table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltars.data.evaluation import AssignedValue
from deltars.data.read_schema import arrow_type
from deltars.data.store_assignment import assigned
from deltars.errors import PredicateError, SchemaMismatch
from deltars.predicate import cast_text, only_spark
from deltars.predicate.statements.binding import Bound
from deltars.predicate.statements.tree import Fragment, Insert, Values
from deltars.protocol import Metadata, StructField, StructType
from deltars.protocol.column_rules import default_of, is_computed
from deltars.transaction.plane import Frame, spark_plane
from deltars.transaction.statements.rows import ArrowRows, Rows, SparkRows, one_row

if TYPE_CHECKING:
    from deltars.transaction.statements.execution import Execution

_DYNAMIC = "spark.sql.sources.partitionOverwriteMode"
_ONE_ROW = pa.RecordBatch.from_struct_array(pa.array([{}], pa.struct([])))
"""A row without columns, for expressions that need none."""


def insert(execution: Execution, action: Insert) -> Rows:
    """Write the rows of a query or of VALUES."""
    table = execution.readable(action.table)
    metadata = table.metadata
    assert metadata is not None
    schema = metadata.schema
    constants = _constants(execution, action, metadata)
    names = _names(execution, action, schema, constants)
    rows = _rows(execution, action, schema, names)
    options: dict[str, Any] = {"merge_schema": action.evolves or execution.engine.evolves}
    if action.overwrites:
        condition = _of_partition(execution, action, schema) if constants else None
        options |= {"mode": "overwrite"} | ({"replace_where": condition} if condition else _dynamic(execution))
    where = execution.text(action.replace_where, action.table, None, schema)
    if where is not None:
        options |= {"mode": "overwrite", "replace_where": where.text}
    with rows.opened() as frame:
        fitted = _fitted(execution, frame, names, metadata, constants, action)
        with execution.located(where):
            written = execution.tx._write(str(action.table), fitted, skips_nothing=True, **options)
    return one_row(num_affected_rows=written, num_inserted_rows=written)


def _constants(execution: Execution, action: Insert, metadata: Metadata) -> dict[str, str]:
    """Return the values of PARTITION (column = value), by column as the schema spells it."""
    found: dict[str, str] = {}
    partitions = {name.lower(): name for name in metadata.partition_columns}
    for column, value in action.partition:
        if column.lower() not in partitions:
            raise execution.binder.source.error_at(
                f"{column} is no partition column",
                action.table.position,
                hint=f"Partition columns are: {', '.join(partitions.values()) or 'none'}.",
            )
        if value is not None:
            name = partitions[column.lower()]
            found[name] = cast_text(execution.binder.bound(value).text, metadata.schema[name].type, name)
    return found


def _missing_partitions(metadata: Metadata, names: Sequence[str], constants: dict[str, str]) -> dict[str, str]:
    """Return NULL for each partition column that the rows leave out. A write needs them all."""
    given = {name.lower() for name in (*names, *constants)}
    missing = [name for name in metadata.partition_columns if name.lower() not in given]
    return {name: "NULL" for name in missing if not is_computed(metadata.schema[name])}


def _of_partition(execution: Execution, action: Insert, schema: StructType) -> str:
    """Return the condition for the rows of PARTITION (column = value)."""
    parts = []
    for column, value in action.partition:
        if value is not None:
            text = execution.binder.bound(value).text
            name = f"`{column.replace('`', '``')}`"
            parts.append(f"{name} IS NULL" if text.strip("() ").upper() == "NULL" else f"{name} = {text}")
    return " AND ".join(parts)


def _dynamic(execution: Execution) -> dict[str, str]:
    session = execution.engine.session()
    mode = "static" if session is None else str(session.conf.get(_DYNAMIC, "static")).lower()
    return {"partition_overwrite": "dynamic"} if mode == "dynamic" else {}


def _names(
    execution: Execution, action: Insert, schema: StructType, constants: dict[str, str]
) -> tuple[str, ...] | None:
    """Return the table's columns that the rows have, in their order; None for rows that have the names themselves."""
    if action.is_by_name:
        return None
    if action.columns is None:
        return tuple(name for name in schema.names if name not in constants)
    spelt = {name.lower(): name for name in schema.names}
    found: list[str] = []
    for column in action.columns:
        name = spelt.get(column.strip("`").replace("``", "`").lower())
        if name is None and not action.evolves:
            raise execution.binder.source.error_at(
                f"there is no column {column}", action.table.position, hint=f"Columns are: {', '.join(schema.names)}."
            )
        name = name or column
        if name in found or name in constants:
            raise execution.binder.source.error_at(
                f"the column {name} is given twice", action.table.position, hint="Give it once."
            )
        found.append(name)
    return tuple(found)


def _rows(execution: Execution, action: Insert, schema: StructType, names: Sequence[str] | None) -> Rows:
    source = action.source
    if not isinstance(source, Values):
        return execution.engine.query(execution.tx, execution.binder, source)
    if names is None:
        raise execution.binder.source.error_at(
            "VALUES have no names, so they cannot be inserted BY NAME",
            source.whole.start,
            hint="List the columns: INSERT INTO table (a, b) VALUES (…).",
        )
    _check_width(execution, action, names, len(source.rows[0]), source.whole.start)
    cells = [
        [_cell(execution, fragment, schema, name) for fragment, name in zip(row, names, strict=True)]
        for row in source.rows
    ]
    if execution.engine.prefers_spark:
        return _spark_values(execution, "VALUES", cells)
    try:
        return ArrowRows(_arrow_values(execution, cells, [_field(schema, name) for name in names]))
    except PredicateError as error:
        if error.position is not None:
            raise
        return _spark_values(execution, error.message, cells)


def is_default(text: str) -> bool:
    return text.strip().upper() == "DEFAULT"


def default_text(column: str, schema: StructType) -> str:
    """Return what DEFAULT means for a column: its default, or NULL."""
    found = next((field for field in schema.fields if field.name.lower() == column.lower()), None)
    return (None if found is None else default_of(found)) or "NULL"


def _cell(execution: Execution, fragment: Fragment, schema: StructType, name: str) -> Bound:
    bound = execution.binder.bound(fragment)
    if is_default(bound.text):
        return replace(bound, text=default_text(name, schema))
    if name not in schema:
        return bound  # Of a column that evolution adds, the value says the type.
    with _pointing(execution, bound):
        return replace(bound, text=cast_text(bound.text, schema[name].type, name))


def _field(schema: StructType, name: str) -> StructField:
    if name not in schema:
        raise SchemaMismatch(f"the table has no column {name}", field=name)
    return schema[name]


def _spark_values(execution: Execution, reason: str, cells: Sequence[Sequence[Bound]]) -> Rows:
    session = execution.engine.required_session(reason)
    rows = ", ".join(f"({', '.join(cell.text for cell in row)})" for row in cells)
    return SparkRows(session.sql(f"SELECT * FROM VALUES {rows}"))


def _arrow_values(execution: Execution, cells: Sequence[Sequence[Bound]], fields: Sequence[StructField]) -> pa.Table:
    """Evaluate VALUES without Spark. Raise PredicateError where only Spark has the exact result."""
    columns = []
    for place, field in enumerate(fields):
        column = [row[place] for row in cells]
        if len(column) > 1 and str(field.type) == "string" and not all(map(_is_text, column)):
            # Spark first converts all values of a column to one type: 1 becomes '1.0' beside 2.5.
            raise only_spark("values of several types in a column of strings")
        parts = []
        for cell in column:
            with execution.binder.located(cell), _pointing(execution, cell):
                value = AssignedValue(cell.text, StructType(), field.type, field.name)
                parts.append(value.evaluate(_ONE_ROW))
        columns.append(pa.concat_arrays(parts))
    return pa.table(columns, names=[field.name for field in fields])


@contextmanager
def _pointing(execution: Execution, cell: Bound) -> Iterator[None]:
    """Let the error for a value that does not fit its column point at the value."""
    try:
        yield
    except SchemaMismatch as error:
        pointed = execution.binder.source.error_at(error.message, cell.position(0), hint=error.hint or "")
        raise SchemaMismatch(pointed.message, field=error.field, hint=error.hint) from None


def _is_text(cell: Bound) -> bool:
    text = cell.text.strip("() ")
    return text[:1] in ("'", '"') or text.upper() == "NULL"


def _fitted(
    execution: Execution,
    frame: Frame,
    names: Sequence[str] | None,
    metadata: Metadata,
    constants: dict[str, str],
    action: Insert,
) -> Frame:
    """Return the rows with the table's names and types, as Spark's store assignment has them."""
    if isinstance(frame, pa.Table | pa.RecordBatchReader):
        reader: Frame = _fitted_arrow(execution, frame, names, metadata, constants, action)
        return reader
    given: Any = frame
    if names is not None:
        _check_width(execution, action, names, len(given.columns), action.table.position)
    constants = constants | _missing_partitions(metadata, given.columns if names is None else names, constants)
    fitted: Frame = spark_plane().assigned(given, names, metadata.schema, constants)
    return fitted


def _fitted_arrow(
    execution: Execution,
    rows: pa.Table | pa.RecordBatchReader,
    names: Sequence[str] | None,
    metadata: Metadata,
    constants: dict[str, str],
    action: Insert,
) -> pa.RecordBatchReader:
    reader = rows.to_reader() if isinstance(rows, pa.Table) else rows
    schema = metadata.schema
    given = list(reader.schema.names) if names is None else list(names)
    _check_width(execution, action, given, len(reader.schema), action.table.position)
    constants = constants | _missing_partitions(metadata, given, constants)
    known = {field.name.lower(): field for field in schema.fields}
    targets = [known.get(name.lower()) for name in given]
    fixed = {
        name: AssignedValue(text, StructType(), schema[name].type, name).evaluate(_ONE_ROW)
        for name, text in constants.items()
    }

    def fit(batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [
            column if target is None else assigned(column, arrow_type(target.type), target.name)
            for column, target in zip(batch.columns, targets, strict=True)
        ]
        columns += [pa.repeat(value[0], batch.num_rows) for value in fixed.values()]
        return pa.RecordBatch.from_arrays(columns, names=[*given, *fixed])

    empty = pa.RecordBatch.from_pylist([], schema=reader.schema)
    return pa.RecordBatchReader.from_batches(fit(empty).schema, (fit(batch) for batch in reader))


def _check_width(execution: Execution, action: Insert, names: Sequence[str], width: int, at: int) -> None:
    if width == len(names):
        return
    wanted = f"the list has {len(names)}" if action.columns is not None else f"the table has {len(names)}"
    raise execution.binder.source.error_at(
        f"the rows have {width} columns, and {wanted}: {', '.join(names)}",
        at,
        hint="Give a value for every column, list the columns that the rows have, or write BY NAME.",
    )


__all__ = ["insert"]
