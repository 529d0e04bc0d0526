"""Data planes: how rows of one kind of frame are written.

`ArrowPlane` writes frames that Arrow can carry (pyarrow, pandas, Polars, any `__arrow_c_stream__`) in this process.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from deltars import progress_bar
from deltars.data.conditions import Condition, checked
from deltars.data.file_layout import layout_of
from deltars.data.filter import Unmatched
from deltars.data.reader import read_scan
from deltars.data.row_change import ChangePlane
from deltars.data.scan import Scan
from deltars.data.sources import claim, open_stream, refuse_used_up
from deltars.data.write_schema import check_fits, empty_batch, file_schema, fit
from deltars.data.write_target import WriteTarget, WrittenFile
from deltars.data.writer import write_table
from deltars.errors import ValidationError
from deltars.predicate import Predicate, parse
from deltars.protocol import StructType, schema_from_arrow
from deltars.protocol.column_rules import has_rules

WATCHED_ROWS = 100_000
"""Rows after which the bar of a long write moves."""


class DataPlane(Protocol):
    """Writer of one kind of frame. The files it writes are invisible until the SQL commit."""

    def accepts(self, frame: object) -> bool: ...

    def opened(self, frame: object) -> object:
        """Return the frame as the methods below take it, for one write. Its rows are read once."""

    def schema(self, frame: object) -> StructType: ...

    def with_computed_columns(self, frame: object, table: StructType) -> object:
        """Add defaults and generated columns to the frame, and fit its strings to CHAR and VARCHAR lengths."""

    def write(self, frame: object, target: WriteTarget, conditions: Sequence[Condition] = ()) -> list[WrittenFile]:
        """Write the frame's rows as data files. Raise ValidationError if a row violates a condition."""

    def condition(self, frame: object, where: str, schema: StructType) -> Predicate:
        """Parse a condition on a table's rows as `write` and `without` evaluate it."""

    def without(self, frame: object, scan: Scan, where: str) -> object:
        """Return the rows of a scan that do not match, as a frame of the same kind."""

    def changes(self, frame: object) -> ChangePlane:
        """Return what deletes rows where this frame is written."""


class ArrowPlane:
    """Data plane of frames that Arrow can carry. This process writes them."""

    def accepts(self, frame: object) -> bool:
        # A Spark frame has an Arrow stream too, but it would pull all rows through this process.
        return (
            isinstance(frame, pa.RecordBatch | _OpenedFrame)
            or hasattr(frame, "__arrow_c_stream__")
            or _is_pandas(frame)
        ) and not type(frame).__module__.startswith("pyspark.")

    def opened(self, frame: object) -> object:
        """Return the frame, or its opened stream if only that has the schema: some streams can be opened only once.

        An opened frame is returned as it is.
        """
        _refuse_objects(frame)
        known = pa.Table | pa.RecordBatch | pa.RecordBatchReader | _OpenedFrame
        is_known = isinstance(frame, known) or _is_pandas(frame)
        return frame if is_known or hasattr(frame, "__arrow_c_schema__") else _OpenedFrame(frame, open_stream(frame))

    def schema(self, frame: object) -> StructType:
        """Return the schema of a table that is created from this frame. No row is read."""
        return schema_from_arrow(_arrow_schema(frame))

    def from_batches(self, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> object:
        """Return a frame of batches that are read once. Errors of their source are raised as they are."""
        return _BatchFrame(schema, batches)

    def with_computed_columns(self, frame: object, table: StructType) -> object:
        if not has_rules(table):
            return frame
        # Imported late: few tables have rules, and sqlglot is slow to load.
        from deltars.data.computed_columns import ComputedColumns

        data = _arrow_schema(frame)
        computed = ComputedColumns(data.names, table)
        # An empty batch raises now, before a row is written, if a column cannot be computed.
        computed.add_to(empty_batch(data))
        return _BatchFrame(computed.schema, map(computed.add_to, _batches(frame)))

    def write(self, frame: object, target: WriteTarget, conditions: Sequence[Condition] = ()) -> list[WrittenFile]:
        table = layout_of(target).table_schema
        check_fits(_arrow_schema(frame), table)
        batches = _batches(frame)
        if conditions:
            # An empty batch raises now, before a row is written, if a condition cannot be evaluated.
            empty = pa.RecordBatch.from_pylist([], schema=file_schema(table))
            list(checked([empty], conditions, target.schema))
            batches = checked((fit(batch, table) for batch in batches), conditions, target.schema)
        return _write_watched(target, batches, frame) if progress_bar.is_watched() else write_table(target, batches)

    def condition(self, frame: object, where: str, schema: StructType) -> Predicate:
        return parse(where, schema, field="replace_where")

    def without(self, frame: object, scan: Scan, where: str) -> pa.RecordBatchReader:
        return read_scan(scan, row_filter=Unmatched(parse(where, scan.schema)))

    def changes(self, frame: object) -> ChangePlane:
        # Imported late: it imports this module, and few writes need it.
        from deltars.data.arrow_change import ArrowChanges

        return ArrowChanges()


def read_table(frame: object) -> pa.Table:
    """Read all rows of a frame that `ArrowPlane` accepts, once."""
    opened = ArrowPlane().opened(frame)
    return pa.Table.from_batches(_batches(opened), _arrow_schema(opened))


@dataclass(frozen=True, slots=True)
class _BatchFrame:
    """Batches and their schema. An Arrow stream would turn our errors into Arrow's."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class _OpenedFrame:
    """A source and the stream that was opened for this write."""

    source: object
    stream: pa.RecordBatchReader

    @property
    def schema(self) -> pa.Schema:
        return self.stream.schema


def _arrow_schema(frame: Any) -> pa.Schema:
    if isinstance(frame, pa.Table | pa.RecordBatch | pa.RecordBatchReader | _BatchFrame | _OpenedFrame):
        return frame.schema
    if _is_pandas(frame):
        return _from_pandas(frame).schema
    if hasattr(frame, "__arrow_c_schema__"):
        return pa.schema(frame)
    with open_stream(frame) as stream:
        return stream.schema


def _batches(frame: Any) -> Iterator[pa.RecordBatch]:
    if isinstance(frame, pa.RecordBatch):
        yield frame
    elif isinstance(frame, _BatchFrame):
        yield from frame.batches
    elif isinstance(frame, _OpenedFrame):
        claim(frame.source)
        yield from refuse_used_up(frame.source, frame.stream)
    elif isinstance(frame, pa.Table) or _is_pandas(frame):
        yield from pa.RecordBatchReader.from_stream(_from_pandas(frame) if _is_pandas(frame) else frame)
    else:
        claim(frame)
        yield from refuse_used_up(frame, open_stream(frame))


def _write_watched(target: WriteTarget, batches: Iterable[pa.RecordBatch], frame: Any) -> list[WrittenFile]:
    """Write the batches, and show a bar that counts their rows."""
    written = 0

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal written
        for batch in batches:
            for start in range(0, batch.num_rows, WATCHED_ROWS):
                piece = batch.slice(start, WATCHED_ROWS)
                yield piece
                written += piece.num_rows

    num_rows = len(frame) if isinstance(frame, pa.Table) or _is_pandas(frame) else None
    # The last part of the location: the bar has one line.
    with progress_bar.shown(target.root.rstrip("/").rpartition("/")[2], lambda: (written, num_rows), "rows"):
        return write_table(target, counted())


def _is_pandas(frame: object) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(frame, pandas.DataFrame)


def _refuse_objects(frame: Any) -> None:
    """Raise for a Polars frame with Python objects, which Polars would export as their addresses in memory."""
    polars = sys.modules.get("polars")
    if polars is None or not isinstance(frame, polars.DataFrame):
        return
    for name, kind in frame.schema.items():
        if kind == polars.Object:
            raise ValidationError(
                f"the column {name!r} of the Polars frame holds Python objects, which a table cannot store",
                field=name,
                hint="Convert it to a type of Polars first, or drop it.",
            )


def _from_pandas(frame: Any) -> pa.Table:
    """Return the columns as an Arrow table, with NaN as null as in pandas. An index of row numbers is dropped."""
    index = frame.index
    if any(name is not None for name in index.names) or index.inferred_type not in ("integer", "empty"):
        raise ValidationError(
            "the pandas frame has an index that holds data, but a table has only columns",
            hint="Call reset_index() to write it as a column, or reset_index(drop=True) to leave it out.",
        )
    unnamed = next((name for name in frame.columns if not isinstance(name, str)), None)
    if unnamed is not None:
        raise ValidationError(
            f"the pandas frame has a column named {unnamed!r}, and a column's name is a text",
            field="df",
            hint="Name the columns: frame.columns = ['id', 'day'], or frame.rename(columns=str).",
        )
    repeated = frame.columns[frame.columns.duplicated()]
    if len(repeated):
        raise ValidationError(
            f"the pandas frame has more than one column named {repeated[0]!r}",
            field=str(repeated[0]),
            hint="Rename or drop one of them.",
        )
    try:
        rows = pa.Table.from_pandas(frame, preserve_index=False)
    except (OverflowError, UnicodeEncodeError) as error:
        raise _unfit(frame, error) from error
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, TypeError) as error:
        is_sparse = any(str(kind).startswith("Sparse[") for kind in frame.dtypes)
        raise ValidationError(
            f"cannot convert the pandas frame to Arrow: {error}",
            field="df",
            hint="Make sparse columns dense, for example frame.astype({'column': 'float64'})."
            if is_sparse
            else "Give each column one type, for example frame.astype({'column': 'string'}).",
        ) from error
    for field in rows.schema:
        # pyarrow makes arrays of sets, in an order that no one chose.
        is_list = pa.types.is_list(field.type)
        if is_list and any(isinstance(value, set | frozenset) for value in frame[field.name]):
            raise ValidationError(
                f"the column {field.name!r} of the pandas frame holds sets, and a table has no sets",
                field=field.name,
                hint=f"Make arrays of them, in an order: frame[{field.name!r}] = frame[{field.name!r}].map(sorted).",
            )
    return rows


def _unfit(frame: Any, error: Exception) -> ValidationError:
    """Return the error for a value that Arrow cannot hold, with the name of its column."""
    for name in frame.columns:
        try:
            pa.Table.from_pandas(frame[[name]], preserve_index=False)
        except (OverflowError, UnicodeEncodeError):
            break
    what, hint = (
        ("a number of more than 64 bits", "Convert it first, for example to Decimal or to a string.")
        if isinstance(error, OverflowError)
        else ("half a surrogate pair, which is no text", "Clean the texts: value.encode('utf-8', 'replace').decode().")
    )
    return ValidationError(f"the column {str(name)!r} of the pandas frame has {what}", field=str(name), hint=hint)
