"""Row-level changes in this process, by Arrow.

    DELETE   condition columns ──mask──▶ positions
    UPDATE   condition columns ──mask──▶ positions ──all columns of these rows──▶ rows with new values
    MERGE    see `data.arrow_merge`

A few files are read at a time, in bounded memory; only the rows that come are held. What Arrow cannot compute with
exactly Spark's result is refused, before a row is read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyroaring import BitMap64

from deltars.data.arrow_merge import MergePlan, bitmap_of, candidates, join_of, one_batch
from deltars.data.evaluation import RowCondition
from deltars.data.feed_files import write_feed_rows
from deltars.data.keys import comparison_type, key_values, normalised, values_of
from deltars.data.new_rows import NewRows
from deltars.data.plane import read_table
from deltars.data.purge import purge_files
from deltars.data.read_schema import arrow_schema
from deltars.data.reader import PlacedRows, read_each_file
from deltars.data.row_change import Delete, FeedRows, KeyValues, Merge, MergeSource, Positions, RowChanges, Update
from deltars.data.row_ids import read_rows, with_row_ids
from deltars.data.scan import Scan
from deltars.data.write_schema import fit
from deltars.data.write_target import WriteTarget, WrittenFile
from deltars.errors import PredicateError
from deltars.protocol import StructField, StructType, schema_from_arrow, schema_to_arrow


class ArrowChanges:
    """`ChangePlane` of this process."""

    is_distributed = False

    @staticmethod
    def refusal(
        statement: Delete | Update | Merge, schema: StructType, source_schema: StructType | None = None
    ) -> str | None:
        """Return why only Spark can carry out the statement, or None. Raise the errors that Spark would raise too."""
        for sql in expressions_of(statement):
            if not isinstance(sql, str):
                return f"{type(sql).__name__} is not SQL text"
        try:
            match statement:
                case Delete(where):
                    _try_condition(where, schema)
                case Update():
                    _try_condition(statement.where, schema)
                    rows = pa.RecordBatch.from_pylist([], schema=arrow_schema(schema))
                    NewRows(statement.values, schema, schema).updated(rows, rows)
                case Merge():
                    assert source_schema is not None
                    MergePlan(statement, schema, source_schema)
        except PredicateError as error:
            # An error without a position says that the text is valid, but only Spark can compute it.
            if error.position is not None:
                raise
            return error.message
        return None

    def delete(self, scan: Scan, statement: Delete) -> RowChanges:
        positions = _matching(scan, statement.where)
        return RowChanges(positions, deleted=sum(map(len, positions.values())))

    def update(self, scan: Scan, statement: Update) -> RowChanges:
        new = NewRows(statement.values, scan.table_schema, scan.table_schema)
        positions: dict[int, BitMap64] = {}
        matching = None if statement.where is None else _matching(scan, statement.where)
        batches = []
        for placed in read_rows(scan, only=matching):
            _collect(positions, placed)
            batches.append(with_row_ids(new.updated(placed.rows, placed.rows), placed.rows, scan))
        rows = [pa.Table.from_batches(batches)] if batches else []
        return RowChanges(positions, rows, updated=sum(map(len, positions.values())), replaced=positions)

    def source(self, statement: Merge, target: StructType) -> MergeSource:
        table = read_table(statement.source)
        schema = schema_from_arrow(table.schema)
        # In its own Delta types: dictionaries, large strings and unsigned integers are decoded.
        wanted = schema_to_arrow(schema)
        batches = [fit(batch, wanted) for batch in table.to_batches()]
        table = pa.Table.from_batches(batches, arrow_schema(schema))
        return MergeSource(table, schema, table.num_rows, _keys(statement, target, schema, table), table.nbytes)

    def merge(self, scan: Scan, statement: Merge, source: MergeSource) -> RowChanges:
        return MergePlan(statement, scan.table_schema, source.schema).run(scan, source)

    def purge(self, scan: Scan, positions: Positions, target: WriteTarget) -> Mapping[int, Sequence[WrittenFile]]:
        return purge_files(scan, positions, target)

    def write_feed(self, scan: Scan, rows: Sequence[FeedRows], target: WriteTarget) -> list[WrittenFile]:
        return write_feed_rows(scan, rows, target)


def expressions_of(statement: Delete | Update | Merge) -> list[Any]:
    """Return the conditions and values of a statement, without columns that come from the source as they are."""
    match statement:
        case Delete(where):
            found = [where]
        case Update(values, where):
            found = [where, *values.values()]
        case Merge():
            found = [statement.on]
            for clause in statement.clauses:
                found += [clause.condition, *(() if clause.is_source else clause.values.values())]
    return [sql for sql in found if sql is not None]


def searched_columns(
    statement: Delete | Merge, schema: StructType, source_schema: StructType | None = None
) -> list[StructField] | None:
    """Return the columns that are read of all rows; None if other columns are read too, of the rows that change.

    The statement is one that `refusal` accepts.
    """
    if isinstance(statement, Delete):
        names: Collection[str] = RowCondition(statement.where, schema).columns if statement.where else ()
    else:
        assert source_schema is not None
        plan = MergePlan(statement, schema, source_schema)
        if not plan.reads_only_keys:
            return None
        names = plan.columns
    return [field for field in schema.fields if field.name in names]


def _try_condition(where: str | None, schema: StructType) -> None:
    if where is not None:
        RowCondition(where, schema).mask(pa.RecordBatch.from_pylist([], schema=arrow_schema(schema)))


def _matching(scan: Scan, where: str | None) -> dict[int, BitMap64]:
    """Return the rows for which the condition is true. Only its columns are read."""
    condition = None if where is None else RowCondition(where, scan.table_schema)
    columns = [name for name in scan.schema.names if condition is not None and name in condition.columns]
    found = read_each_file(scan, _rows_of, columns=columns or _any_column(scan), row_filter=condition)
    return {place: rows for place, rows in enumerate(found) if rows}


def _rows_of(file: Iterator[PlacedRows]) -> BitMap64:
    rows = BitMap64()
    for placed in file:
        rows.update(bitmap_of(placed.numbers))
    return rows


def _any_column(scan: Scan) -> list[str]:
    """Return a column that is cheap to read, to count rows: a partition column is in no file."""
    return [(*scan.partition_columns, *scan.schema.names)[0]]


def _collect(positions: dict[int, BitMap64], placed: PlacedRows) -> None:
    positions.setdefault(placed.file, BitMap64()).update(bitmap_of(placed.numbers))


def _keys(statement: Merge, target: StructType, schema: StructType, table: pa.Table) -> Sequence[KeyValues] | None:
    join = join_of(statement, target, schema)
    rows = one_batch(table)
    which = candidates(join, rows)
    rows = rows if which is None else rows.filter(which)
    found = []
    for equality in join.equalities:
        values = values_of(equality.source, rows)
        if values.null_count == len(values):
            return None
        kind = comparison_type(equality.target.type, equality.source.type)
        known = None if kind is None else key_values(equality.target, normalised(values, kind))
        if known is not None:
            found.append(known)
    return None if not rows.num_rows else found
