"""Source of a merge, read once, with a number for each row.

    Arrow, pandas, Polars ──────────────────────> held by this process, and handed to Spark
    a frame whose plan says that it is small ───> fetched: the same
    a frame of small files, without UDFs ───────> fetched: the same
    any other frame ──number, checkpoint──┬─ few rows ──> fetched: the same
                                          └─ else ─────> stays in Spark

Rows that this process holds cannot change between two uses, and Spark broadcasts them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from deltars.data.column_names import free_names
from deltars.data.plane import ArrowPlane, read_table
from deltars.data.row_change import KeyValues, Merge, MergeSource
from deltars.data.write_schema import file_schema, fit
from deltars.errors import ValidationError
from deltars.predicate import Equality, Value, parse_join
from deltars.predicate.literals import zone_of
from deltars.protocol import PrimitiveType, StructType, schema_from_arrow, schema_to_arrow
from deltars.spark.change.materialize import materialized
from deltars.spark.read.columns import quoted
from deltars.spark.schema import schema_to_spark, table_schema
from deltars.spark.write.checks import translate_task_errors
from deltars.spark.write.small_frames import estimated_rows, small_rows

MAX_HELD_BYTES = 32 * 1024 * 1024
"""Size of a source that this process holds."""
MAX_HELD_ROWS = 1_000_000
MAX_NESTED_ROWS = 10_000
"""Most rows of a source with nested columns that this process holds, because their size is not known before."""
_COMPRESSION = 4
"""How much smaller the rows are in a Parquet file, about."""
MAX_KEY_VALUES = 10_000
"""Most distinct values of a key that are listed."""

_INTEGERS = frozenset(map(PrimitiveType, ("byte", "short", "integer", "long")))
_KEYS = frozenset(map(PrimitiveType, ("string", "date", "timestamp", "timestamp_ntz", "boolean", "binary")))
_FETCHED = (
    T.NumericType,
    T.StringType,
    T.BinaryType,
    T.BooleanType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
    T.NullType,
)


@dataclass(frozen=True, slots=True)
class SparkSource(MergeSource):
    """A source as Spark reads it. `frame` has its rows: a Spark frame with `number`, or an Arrow table without it."""

    number: str = ""
    """Column with the number of each row."""
    rows: pa.Table | None = None
    """The rows with their numbers, if this process holds them."""

    def numbered(self, spark: SparkSession) -> DataFrame:
        """Return the rows with their numbers."""
        if self.rows is not None:
            return _frame_of(spark, self.rows)
        assert isinstance(self.frame, DataFrame)
        return self.frame

    @property
    def whole(self) -> DataFrame | pa.Table:
        """The rows without their numbers, as an Arrow table if this process holds them."""
        return self.frame.drop(self.number) if isinstance(self.frame, DataFrame) else self.frame


def read_source(spark: SparkSession, statement: Merge, target: StructType) -> SparkSource:
    """Read the source once. Names, types and `on` are checked before."""
    opened = _opened(statement.source)
    frame, rows = (opened, None) if isinstance(opened, DataFrame) else (None, opened)
    schema = table_schema(opened.schema) if isinstance(opened, DataFrame) else schema_from_arrow(opened.schema)
    refuse_repeated(schema)
    equalities = _equalities(spark, statement, target, schema)
    number = _number_for([*target.names, *schema.names])
    return _read(spark, frame, rows, number, schema, equalities)


def _read(
    spark: SparkSession,
    frame: DataFrame | None,
    rows: pa.Table | None,
    number: str,
    schema: StructType,
    equalities: Sequence[Equality],
) -> SparkSource:
    with translate_task_errors([]):
        if frame is not None:
            rows = small_rows(frame)
            rows = _of_files(frame) if rows is None else rows
        if rows is not None:
            return _held(rows, number, schema, equalities)
        assert frame is not None
        whole = materialized(frame.withColumn(number, F.monotonically_increasing_id()))
        count, size_bytes, keys = _described(whole, schema, number, equalities)
        if _can_be_held(whole.schema, count, size_bytes):
            return _held(whole.toArrow().drop_columns([number]), number, schema, equalities)
    return SparkSource(whole, schema, count, keys, size_bytes, number)


def _of_files(frame: DataFrame) -> pa.Table | None:
    """Return the rows of a frame of small files: one job, without a checkpoint."""
    if not all(isinstance(field.dataType, _FETCHED) for field in frame.schema.fields):
        return None
    return estimated_rows(frame, max_bytes=MAX_HELD_BYTES // _COMPRESSION, max_rows=MAX_HELD_ROWS)


def hold(spark: SparkSession, frame: DataFrame) -> DataFrame | pa.Table:
    """Evaluate a frame once. Return its rows: as an Arrow table if they are few."""
    number = _number_for(frame.columns)
    source = _read(spark, frame, None, number, table_schema(frame.schema), ())
    return source.whole


def as_frame(spark: SparkSession, source: object) -> DataFrame:
    """Return a frame of any kind as a Spark frame."""
    opened = _opened(source)
    return opened if isinstance(opened, DataFrame) else _frame_of(spark, opened)


def _frame_of(spark: SparkSession, rows: pa.Table) -> DataFrame:
    if rows.num_rows:
        return spark.createDataFrame(rows)
    # Spark Connect infers no schema from a table without rows.
    return spark.createDataFrame([], schema_to_spark(schema_from_arrow(rows.schema)))


def _opened(source: object) -> DataFrame | pa.Table:
    if isinstance(source, DataFrame):
        if source.isStreaming:
            raise ValidationError(
                "the source of the merge is a stream", field="source", hint="Merge each batch, in foreachBatch."
            )
        return source
    if not ArrowPlane().accepts(source):
        raise ValidationError(
            f"the source of a merge must be a Spark, pandas, Polars or Arrow frame, got {type(source).__name__}",
            field="source",
        )
    table = read_table(source)
    # Spark reads fewer Arrow types than a table is written from.
    wanted = schema_to_arrow(schema_from_arrow(table.schema))
    return pa.Table.from_batches([fit(batch, wanted) for batch in table.to_batches()], file_schema(wanted))


def _number_for(names: Sequence[str]) -> str:
    """Return a name for the column of row numbers."""
    [number] = free_names(("source_row",), {name.lower() for name in names})
    return number


def refuse_repeated(schema: StructType) -> None:
    seen: set[str] = set()
    for name in schema.names:
        if name.lower() in seen:
            raise ValidationError(f"the source has more than one column {name!r}", field=name)
        seen.add(name.lower())


def _equalities(spark: SparkSession, statement: Merge, target: StructType, source: StructType) -> Sequence[Equality]:
    if isinstance(statement.on, SparkColumn):
        return ()
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    zone = zone if zone_of(zone) is not None else "UTC"  # literals do not matter here
    return parse_join(statement.on, target, source, statement.target_alias, statement.source_alias, zone).equalities


def _held(rows: pa.Table, number: str, schema: StructType, equalities: Sequence[Equality]) -> SparkSource:
    keys: list[KeyValues] | None = []
    for equality in equalities:
        column = reduce(pc.struct_field, equality.source.path[1:], rows[equality.source.path[0]])
        values = column.drop_null()
        if not len(values):
            keys = None
            break
        if not _is_comparable(equality):
            continue
        distinct = values.unique()
        ordered = distinct.take(pc.sort_indices(distinct)).to_pylist() if len(distinct) <= MAX_KEY_VALUES else None
        edges = pc.min_max(distinct).as_py() if ordered is None else {"min": ordered[0], "max": ordered[-1]}
        listed = None if ordered is None else [_value(value) for value in ordered]
        assert keys is not None
        keys.append(KeyValues(equality.target, _value(edges["min"]), _value(edges["max"]), listed))
    numbered = rows.append_column(number, pa.array(range(rows.num_rows), pa.int64()))
    return SparkSource(rows, schema, rows.num_rows, keys if rows.num_rows else None, rows.nbytes, number, numbered)


def _described(
    whole: DataFrame, schema: StructType, number: str, equalities: Sequence[Equality]
) -> tuple[int, int, list[KeyValues] | None]:
    """Return the number of rows, their size if nothing is nested, and the keys. One job, and one per listed key."""
    lengths = [
        F.sum(F.coalesce(F.octet_length(quoted(field.name)), F.lit(0)))
        for field in whole.schema.fields
        if isinstance(field.dataType, T.StringType | T.BinaryType)
    ]
    columns = [_column(equality.source.path) for equality in equalities]
    found: list[Any] = [F.count(F.lit(1)), F.coalesce(reduce(lambda a, b: a + b, lengths, F.lit(0)), F.lit(0))]
    for column, equality in zip(columns, equalities, strict=True):
        edge = column if _is_comparable(equality) else F.lit(None)
        found += [F.min(edge), F.max(edge), F.approx_count_distinct(column)]
    row = whole.agg(*(column.alias(f"c{at}") for at, column in enumerate(found))).toArrow().to_pylist()[0]
    count, text_bytes, *facts = row.values()
    size_bytes = text_bytes + 8 * count * len(whole.schema.fields)
    keys = []
    for at, (column, equality) in enumerate(zip(columns, equalities, strict=True)):
        smallest, largest, distinct = facts[3 * at : 3 * at + 3]
        if not distinct:
            return count, size_bytes, None
        if smallest is None:
            continue
        listed = _distinct(whole, column) if distinct <= MAX_KEY_VALUES else None
        keys.append(KeyValues(equality.target, _value(smallest), _value(largest), listed))
    return count, size_bytes, keys if count else None


def _distinct(whole: DataFrame, column: SparkColumn) -> list[Value] | None:
    one = whole.select(column.alias("key")).where("key IS NOT NULL").distinct().limit(MAX_KEY_VALUES + 1).toArrow()
    values = one["key"].take(pc.sort_indices(one["key"]))
    return [_value(value) for value in values.to_pylist()] if len(values) <= MAX_KEY_VALUES else None


def _column(path: Sequence[str]) -> SparkColumn:
    return reduce(lambda column, name: column.getField(name), path[1:], F.col(quoted(path[0])))


def _is_comparable(equality: Equality) -> bool:
    """Return whether the source's values can be compared with the statistics of the target's column."""
    source, target = equality.source.type, equality.target.type
    if source == target and source in _KEYS:
        return True
    return all(
        isinstance(type_, PrimitiveType) and (type_ in _INTEGERS or type_.is_decimal) for type_ in (source, target)
    )


def _value(value: Any) -> Value:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    found: Value = value
    return found


def _can_be_held(schema: T.StructType, count: int, size_bytes: int) -> bool:
    if count > MAX_HELD_ROWS or size_bytes > MAX_HELD_BYTES:
        return False
    kinds = [field.dataType for field in schema.fields]
    if all(isinstance(kind, _FETCHED) for kind in kinds):
        return True
    return count <= MAX_NESTED_ROWS and all(map(_can_be_fetched, kinds))


def _can_be_fetched(kind: T.DataType) -> bool:
    """Return whether `toArrow` works: it fails for a null struct with NOT NULL fields."""
    match kind:
        case T.StructType():
            return all(field.nullable and _can_be_fetched(field.dataType) for field in kind.fields)
        case T.ArrayType():
            return _can_be_fetched(kind.elementType)
        case T.MapType():
            return _can_be_fetched(kind.keyType) and _can_be_fetched(kind.valueType)
    return isinstance(kind, _FETCHED)
