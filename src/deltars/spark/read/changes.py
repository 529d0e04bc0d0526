"""Changed rows of versions of a table as a DataFrame.

    small files ──▶ this process
    else  rows, files ───────────────────────────────────────────────────▶ union
          net ──grouped by version and row, inserted ones less deleted───▶   │

The last needs a shuffle of the rows of all files that such versions added and removed.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from deltars.data.changes import ChangeScans
from deltars.data.column_names import free_names
from deltars.protocol import PrimitiveType
from deltars.protocol.change_feed import CHANGE_TYPE, DELETE, INSERT
from deltars.spark.read.columns import ScanColumns, quoted
from deltars.spark.read.scan import read_scan

HERE_BYTES = 4 * 1024 * 1024
HERE_FILES = 64
"""Size and number of files that this process reads itself, because each version would be a scan for Spark."""


def read_changes(spark: SparkSession, scans: ChangeScans) -> DataFrame:
    """Return the changed rows. No job runs, except those that Spark needs to list files."""
    if _is_small(scans):
        return _read_here(spark, scans)
    parts = scans.merged()
    frames = [read_scan(spark, part.scan) for part in parts if part.kind != "net"]
    net = [read_scan(spark, part.scan) for part in parts if part.kind == "net"]
    if net:
        frames.append(_net(reduce(DataFrame.union, net)))
    return reduce(DataFrame.union, frames)


def _is_small(scans: ChangeScans) -> bool:
    sizes = [size for part in scans.parts for size in part.scan.files["size"].to_pylist()]
    has_variants = any(field.type == PrimitiveType("variant") for _, field in scans.schema.walk())
    return len(sizes) <= HERE_FILES and sum(sizes) <= HERE_BYTES and not has_variants


def _read_here(spark: SparkSession, scans: ChangeScans) -> DataFrame:
    table = ScanColumns(scans.nothing).table
    if not scans.parts:
        return spark.createDataFrame([], table)
    rows = scans.read().read_all()
    # Plain names: a name with a dot or a backquote would be an expression.
    plain = rows.rename_columns([f"c{place}" for place in range(rows.num_columns)])
    return spark.createDataFrame(plain).select(
        *(
            F.col(f"c{place}").cast(field.dataType).alias(field.name, metadata=field.metadata)
            for place, field in enumerate(table.fields)
        )
    )


def _net(rows: DataFrame) -> DataFrame:
    """Return the rows without those that their version deletes and inserts alike.

    Most values come back from the keys themselves. Others are carried along, one aggregate each: Spark then groups by
    hash where they are numbers, and sorts only for others.
    """
    fields = [field for field in rows.schema.fields if field.name != CHANGE_TYPE]
    count, *names = free_names(["count", *(f"{kind}{place}" for place in range(len(fields)) for kind in "kv")], set())
    keys, values = names[::2], names[1::2]
    sign = F.when(F.col(CHANGE_TYPE) == INSERT, F.lit(1)).otherwise(F.lit(-1))
    columns = [F.col(quoted(field.name)) for field in fields]
    found = {
        field.name: key if _is_kept_by_grouping(field.dataType) else value
        for field, key, value in zip(fields, keys, values, strict=True)
    }
    grouped = rows.groupBy(
        *(_key(column, field.dataType).alias(key) for column, field, key in zip(columns, fields, keys, strict=True))
    ).agg(
        F.sum(sign).alias(count),
        *(
            F.first(column).alias(value)
            for column, field, value in zip(columns, fields, values, strict=True)
            if found[field.name] == value
        ),
    )
    left = grouped.where(F.col(count) != 0).select(
        "*", F.explode(F.sequence(F.lit(1), F.abs(F.col(count)).cast("int")))
    )
    type_ = F.when(F.col(count) > 0, F.lit(INSERT)).otherwise(F.lit(DELETE))
    return left.select(
        *(
            (type_ if field.name == CHANGE_TYPE else F.col(found[field.name])).alias(
                field.name, metadata=field.metadata
            )
            for field in rows.schema.fields
        )
    )


def _is_kept_by_grouping(kind: T.DataType) -> bool:
    """Return whether equal values are the same: not so for zeros, collated texts, maps and variants."""
    match kind:
        case T.StructType():
            return all(_is_kept_by_grouping(field.dataType) for field in kind.fields)
        case T.ArrayType():
            return _is_kept_by_grouping(kind.elementType)
        case T.StringType():
            return kind == T.StringType()
    return not isinstance(kind, T.FloatType | T.DoubleType | T.MapType | T.VariantType)


def _key(column: Column, kind: T.DataType) -> Column:
    """Return an expression that Spark can group by: it refuses maps and variants."""
    if not _is_refused(kind):
        return column
    match kind:
        case T.MapType():
            entry = T.StructType().add("key", kind.keyType).add("value", kind.valueType)
            return _key(F.map_entries(column), T.ArrayType(entry))
        case T.ArrayType():
            return F.transform(column, lambda element: _key(element, kind.elementType))
        case T.StructType():
            inner = (_key(column.getField(field.name), field.dataType).alias(field.name) for field in kind.fields)
            return F.when(column.isNotNull(), F.struct(*inner))
    return column.cast("string")


def _is_refused(kind: T.DataType) -> bool:
    match kind:
        case T.StructType():
            return any(_is_refused(field.dataType) for field in kind.fields)
        case T.ArrayType():
            return _is_refused(kind.elementType)
    return isinstance(kind, T.MapType | T.VariantType)
