"""Row tracking: rows that move to another file keep their ids.

    a row's id               the file's hidden column, if it has one and it is not null; else baseRowId + row number
    a row's commit version   the other hidden column; else defaultRowCommitVersion

The two columns are in data files only: the schema does not have them, and two table properties name them. A file whose
rows were never in another file has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from deltars.data.reader import PlacedRows, read_placed
from deltars.data.row_change import Positions
from deltars.data.scan import Scan
from deltars.errors import ValidationError
from deltars.protocol import PrimitiveType, StructField, StructType
from deltars.protocol.schema import PHYSICAL_NAME

FILE_COLUMNS = ("base_row_id", "default_row_commit_version")
"""Columns that `Scan.files` needs besides SCAN_COLUMNS."""


def with_hidden_columns(schema: StructType, names: Sequence[str]) -> StructType:
    """Return the schema of data files: with the columns of row ids and of row commit versions at the end."""
    hidden = (StructField(name, PrimitiveType("long"), True, {PHYSICAL_NAME: name}) for name in names)
    return StructType((*schema.fields, *hidden))


def reading_ids(scan: Scan, names: Sequence[str]) -> Scan:
    """Return the scan with hidden columns of these names. Its files must have the columns FILE_COLUMNS."""
    if not set(FILE_COLUMNS) <= set(scan.files.column_names):
        raise ValidationError("the scan does not know the ids of its rows", field="rowTracking", table=scan.table)
    return replace(scan, schema=with_hidden_columns(scan.schema, names), hidden_columns=tuple(names))


def without_ids(scan: Scan) -> Scan:
    """Return the scan without hidden columns."""
    return replace(scan, schema=scan.table_schema, hidden_columns=()) if scan.hidden_columns else scan


def read_rows(
    scan: Scan, *, only: Positions | None = None, without: Positions | None = None, is_rewrite: bool = False
) -> Iterator[PlacedRows]:
    """Yield rows as `read_placed` does, with all columns. Hidden columns have each row's id and commit version."""
    placed = read_placed(scan, only=only, without=without, is_rewrite=is_rewrite)
    return (_with_ids(scan, rows) for rows in placed) if scan.hidden_columns else placed


def with_row_ids(new: pa.RecordBatch, old: pa.RecordBatch, scan: Scan) -> pa.RecordBatch:
    """Return updated rows with the ids of the old ones. Their commit version is that of the commit, so it is null."""
    for name in scan.hidden_columns[:1]:
        new = new.append_column(name, old.column(name))
    return new


def _with_ids(scan: Scan, placed: PlacedRows) -> PlacedRows:
    first, version = (scan.files[name][placed.file].as_py() for name in FILE_COLUMNS)
    rows = placed.rows
    numbered = pc.add(placed.numbers.cast(pa.int64()), pa.scalar(first, pa.int64()))
    for place, value in ((-2, numbered), (-1, pa.repeat(pa.scalar(version, pa.int64()), rows.num_rows))):
        at = rows.num_columns + place
        rows = rows.set_column(at, rows.schema.field(at), pc.coalesce(rows.column(at), value))
    return placed._replace(rows=rows)
