"""Frames that Arrow can carry, written by this process: pyarrow, pandas, polars, any `__arrow_c_stream__`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from deltars.data.computed_columns import Completion
from deltars.data.conditions import Condition, checked
from deltars.data.filter import Unmatched
from deltars.data.reader import read_scan
from deltars.data.scan import Scan
from deltars.data.sources import claim, opened, watched
from deltars.data.write_schema import check_fits, file_schema, fit
from deltars.data.write_target import WriteTarget, WrittenFile
from deltars.data.writer import write_table
from deltars.errors import ValidationError
from deltars.predicate import Predicate, parse
from deltars.protocol import StructType, schema_from_arrow, schema_to_arrow
from deltars.protocol.column_rules import has_rules


class DataPlane(Protocol):
    """Writes frames of the kind it accepts. Nothing it writes is visible before the SQL commit."""

    def accepts(self, frame: object) -> bool: ...

    def opened(self, frame: object) -> object:
        """The frame for one write: what the methods below take. Its rows are read once."""

    def schema(self, frame: object) -> StructType: ...

    def completed(self, frame: object, table: StructType) -> object:
        """The frame with what the table's columns ask: defaults, generated columns, strings of limited length."""

    def write(self, frame: object, target: WriteTarget, conditions: Sequence[Condition] = ()) -> list[WrittenFile]:
        """The frame's rows as data files; a row that breaks a condition is an error."""

    def condition(self, frame: object, where: str, schema: StructType) -> Predicate:
        """A condition on a table's rows, as `write` and `without` understand it."""

    def without(self, frame: object, scan: Scan, where: str) -> object:
        """The rows of a scan that do not match, as a frame of the same kind."""


class ArrowPlane:
    def accepts(self, frame: object) -> bool:
        # A Spark frame offers an Arrow stream too, of all its rows through this process.
        return (
            isinstance(frame, pa.RecordBatch) or hasattr(frame, "__arrow_c_stream__") or _is_pandas(frame)
        ) and not type(frame).__module__.startswith("pyspark.")

    def opened(self, frame: object) -> object:
        """The frame, or its stream where the schema alone cannot be asked for: a stream may be there only once."""
        is_known = isinstance(frame, pa.Table | pa.RecordBatch | pa.RecordBatchReader) or _is_pandas(frame)
        return frame if is_known or hasattr(frame, "__arrow_c_schema__") else _OpenedFrame(frame, opened(frame))

    def schema(self, frame: object) -> StructType:
        """The schema a table would have that is made from this frame; no row is read."""
        return schema_from_arrow(_arrow_schema(frame))

    def completed(self, frame: object, table: StructType) -> object:
        """The frame with the columns that the table fills in by itself."""
        if not has_rules(table):
            return frame
        data = _arrow_schema(frame)
        completion = Completion(data.names, table)
        # What cannot be done is refused now, before a row is written.
        completion.complete(pa.RecordBatch.from_pylist([], schema=data))
        return _CompletedFrame(completion.schema, completion.of(_batches(frame)))

    def write(self, frame: object, target: WriteTarget, conditions: Sequence[Condition] = ()) -> list[WrittenFile]:
        check_fits(_arrow_schema(frame), schema_to_arrow(target.schema))
        batches = _batches(frame)
        if conditions:
            table = schema_to_arrow(target.schema)
            none = pa.RecordBatch.from_pylist([], schema=file_schema(table))
            list(checked([none], conditions, target.schema))  # what cannot be judged is refused before a row is written
            batches = checked((fit(batch, table) for batch in batches), conditions, target.schema)
        return write_table(target, batches)

    def condition(self, frame: object, where: str, schema: StructType) -> Predicate:
        return parse(where, schema)

    def without(self, frame: object, scan: Scan, where: str) -> pa.RecordBatchReader:
        """The rows of a scan that do not match."""
        return read_scan(scan, row_filter=Unmatched(parse(where, scan.schema)))


@dataclass(frozen=True, slots=True)
class _CompletedFrame:
    """Not an Arrow stream: there an error of ours would come out as one of Arrow's."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class _OpenedFrame:
    """A source, and the stream that was opened for this write."""

    source: object
    stream: pa.RecordBatchReader

    @property
    def schema(self) -> pa.Schema:
        return self.stream.schema


def _arrow_schema(frame: Any) -> pa.Schema:
    if isinstance(frame, pa.Table | pa.RecordBatch | pa.RecordBatchReader | _CompletedFrame | _OpenedFrame):
        return frame.schema
    if _is_pandas(frame):
        return _from_pandas(frame).schema
    if hasattr(frame, "__arrow_c_schema__"):
        return pa.schema(frame)
    with opened(frame) as stream:
        return stream.schema


def _batches(frame: Any) -> Iterator[pa.RecordBatch]:
    if isinstance(frame, pa.RecordBatch):
        yield frame
    elif isinstance(frame, _CompletedFrame):
        yield from frame.batches
    elif isinstance(frame, _OpenedFrame):
        claim(frame.source)
        yield from watched(frame.source, frame.stream)
    elif isinstance(frame, pa.Table) or _is_pandas(frame):
        yield from pa.RecordBatchReader.from_stream(_from_pandas(frame) if _is_pandas(frame) else frame)
    else:
        claim(frame)
        yield from watched(frame, opened(frame))


def _is_pandas(frame: object) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(frame, pandas.DataFrame)


def _from_pandas(frame: Any) -> pa.Table:
    """The columns, NaN as null as pandas means it. An index of plain row numbers is no column."""
    index = frame.index
    if any(name is not None for name in index.names) or index.inferred_type not in ("integer", "empty"):
        raise ValidationError(
            "the pandas frame has an index that holds data, and a table has columns only",
            hint="Call reset_index() to write it as a column, or reset_index(drop=True) to leave it out.",
        )
    repeated = frame.columns[frame.columns.duplicated()]
    if len(repeated):
        raise ValidationError(
            f"the pandas frame has more than one column named {repeated[0]!r}",
            field=str(repeated[0]),
            hint="Rename or drop one of them.",
        )
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise ValidationError(f"the pandas frame has no form in Arrow: {error}") from error
