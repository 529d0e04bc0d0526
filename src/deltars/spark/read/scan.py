"""Reading the files of a snapshot as a DataFrame, with Spark's own Parquet reader.

    Scan ──no files────────────────────────────────────> an empty frame
         ──read before─┬─ the frames of then ───────┐
         ──else, files─┼─ without deletion vectors ─┼──> the table's columns ──> their union ──> where ──> columns
                       ├─ with: minus deleted rows ─┤
                       └─ not for Spark: by Arrow ──┘

    partition columns
      every path says what the log says ──> from the paths
      else, few values ───────────────────> a scan for each, with the log's values as literals
      else, many ─────────────────────────> one scan, joined with the log's values by file

The log alone decides what a partition value is. Spark takes `''` and `__HIVE_DEFAULT_PARTITION__` in a path for
null, and a timestamp for one in the session's zone: the first are not taken from paths, the other is, as text.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import compress
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from deltars.data.scan import Scan
from deltars.errors import ValidationError
from deltars.predicate import Predicate, named_in
from deltars.protocol import (
    NULL_PARTITION,
    DataType,
    PrimitiveType,
    StructType,
    as_names,
    parse_partition_value,
    partition_directory,
    type_to_arrow,
)
from deltars.spark.access import native_root
from deltars.spark.read.arrow import is_hidden, is_widened_beyond_spark, read_by_arrow
from deltars.spark.read.columns import ScanColumns, quoted
from deltars.spark.read.deleted_rows import place_of, with_place, without_deleted
from deltars.spark.read.files import DataFile, PartitionValues, data_files, open_files
from deltars.spark.read.frame_cache import Opened, keep, recall
from deltars.spark.read.manifest import file_uri

MAX_SCANS = 16

_TOLD_BY_PATHS = frozenset(map(PrimitiveType, ("string", "byte", "short", "integer", "long", "boolean", "date")))
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?(E-?[0-9]+)?|NaN|-?Infinity")


def read_scan(
    spark: SparkSession,
    scan: Scan,
    *,
    where: str | None = None,
    predicate: Predicate | None = None,
    columns: Sequence[str] | None = None,
) -> DataFrame:
    """The rows that match, with these columns. No job runs, but for what Spark does to find the files.

    `predicate` is the condition once more, for files that Spark does not read itself.
    """
    wanted = None if columns is None else _wanted(scan.schema, as_names(columns))
    sides = ScanColumns(scan)
    if scan.column_mapping == "id":
        _read_by_field_ids(spark)
    opened, foreign = recall(spark, scan), None
    if opened is None:
        opened, foreign = _opened(spark, scan, sides)
    parts = [sides.of_table(part.frame, part.found) for part in opened]
    if foreign is not None:
        # Where native parts are read with them, all have all columns.
        needed = scan.schema.names if parts or wanted is None else _needed(scan.schema, wanted, where)
        parts.append(read_by_arrow(spark, scan, sides, foreign, needed, predicate))
    frame = _unlike_others(reduce(DataFrame.union, parts)) if parts else spark.createDataFrame([], sides.table)
    frame = frame if where is None else frame.where(where)
    return frame if wanted is None else frame.select(*map(quoted, wanted))


def _unlike_others(frame: DataFrame) -> DataFrame:
    """The same rows, by a plan that is like no other: a frame of the same files that somebody caches is not it.

    Spark answers every plan that is like a cached one from its cache. Such a plan has no files to count, and Spark's
    cache leaves NaN out of its statistics: `d > 1` finds none there. The condition is always true, and Spark drops it.
    """
    return frame.where(F.lit(uuid4().hex).isNotNull())


def _opened(spark: SparkSession, scan: Scan, sides: ScanColumns) -> tuple[list[Opened], pa.Table | None]:
    """The files that Spark reads itself, and those for Arrow, if there are any."""
    root = None if is_widened_beyond_spark(scan.schema) else native_root(spark, scan)
    files, directories = data_files(scan, root)
    foreign = [root is None or is_hidden(file.path) for file in files]
    parts = _parts(compress(files, (not is_for for is_for in foreign)))
    opened = [_part(spark, scan, sides, part) for part in parts]
    if any(foreign):
        return opened, scan.files.filter(pa.array(foreign))
    # Rows that are deleted would be kept with the frame, however many they are.
    if not any(part[0].vector for part in parts):
        keep(spark, scan, opened, len(files), directories)
    return opened, None


def _wanted(schema: StructType, columns: Sequence[str]) -> list[str]:
    """The columns as the schema spells them."""
    known = {name.lower(): name for name in schema.names}
    for name in columns:
        if name.lower() not in known:
            raise ValidationError(
                f"there is no column {name!r}; the columns are {', '.join(schema.names)}", field="columns"
            )
    wanted = [known[name.lower()] for name in columns]
    if len(set(wanted)) < len(wanted):
        raise ValidationError("a column is asked for twice", field="columns")
    return wanted


def _needed(schema: StructType, wanted: Sequence[str], where: str | None) -> Sequence[str]:
    """The columns of the result, and those that Spark meets in its condition."""
    return list(dict.fromkeys([*wanted, *named_in(where or "", schema.names)]))


def _read_by_field_ids(spark: SparkSession) -> None:
    """It concerns schemas with field ids alone, and a file without them is an error, not a file of nulls."""
    spark.conf.set("spark.sql.parquet.fieldId.read.enabled", "true")
    spark.conf.set("spark.sql.parquet.fieldId.read.ignoreMissing", "false")


def _parts(files: Iterable[DataFile]) -> list[list[DataFile]]:
    """Those without deletion vectors, and those with. Spark reads a path once: one that is live twice is in two."""
    files = list(files)
    if len({file.location for file in files if file.vector is None}) == len(files):
        return [files] if files else []
    parts: dict[tuple[bool, int], list[DataFile]] = defaultdict(list)
    times: Counter[tuple[bool, str]] = Counter()
    for file in files:
        has_vector = file.vector is not None
        parts[has_vector, times[has_vector, file.location]].append(file)
        times[has_vector, file.location] += 1
    return list(parts.values())


def _part(spark: SparkSession, scan: Scan, sides: ScanColumns, files: Sequence[DataFile]) -> Opened:
    has_vectors = files[0].vector is not None
    names = scan.value_names()
    found = _found_in_paths(scan, files)
    if found is not None:
        schema = sides.in_files(as_text=found)
        frame = open_files(spark, scan, schema, files, by_paths=bool(names), by_names=has_vectors)
        if has_vectors:
            frame = with_place(frame, place_of(scan), row=True)
    elif len({file.values for file in files}) <= MAX_SCANS:
        frame, found = _by_literals(spark, scan, sides, files, has_vectors), {}
    else:
        frame, found = _by_join(spark, scan, sides, files, has_vectors), {}
    if has_vectors:
        frame = without_deleted(spark, scan, frame, files)
    is_the_tables = not names and not has_vectors and scan.column_mapping == "none"
    return Opened(frame, None if is_the_tables else found)


# -- partition columns -------------------------------------------------------------------------------------------------


def _found_in_paths(scan: Scan, files: Sequence[DataFile]) -> dict[str, Column] | None:
    """Whether the paths say what the log says; and how to get at the columns that Spark would misread, as text."""
    names = scan.value_names()
    directories: dict[PartitionValues, str] = {}
    for file in files:
        directory = directories.get(file.values)
        if directory is None:
            directory = partition_directory(names, dict(zip(names, file.values, strict=True)))
            directories[file.values] = directory
        if names and file.path.rpartition("/")[0] != directory:
            return None
    found = {}
    for at, (column, name) in enumerate(zip(scan.partition_columns, names, strict=True)):
        type_ = scan.schema[column].type
        texts = {values[at] for values in directories} - {None}
        if NULL_PARTITION in texts:
            return None
        if type_ not in _TOLD_BY_PATHS:
            typed = _typed(F.col(quoted(name)), type_, {text for text in texts if text is not None})
            if typed is None:
                return None
            found[name] = typed
    return found


def _typed(text: Column, type_: DataType, values: set[str]) -> Column | None:
    """A column of text as the partition column; None where Spark may read some of these texts otherwise than we."""
    if type_ in (PrimitiveType("timestamp"), PrimitiveType("timestamp_ntz")):
        zone = "Z" if type_ == PrimitiveType("timestamp") else ""
        if zone and all(_MOMENT.fullmatch(value[:-1]) and value[-1] == zone for value in values):
            return text.cast(str(type_))
        if all(map(_MOMENT.fullmatch, values)):
            # A moment without a zone is in UTC, not in the session's.
            return F.concat(text, F.lit(zone)).cast(str(type_))
        return None
    if type_ == PrimitiveType("binary") or not all(map(_NUMBER.fullmatch, values)):
        return None
    return text.cast(str(type_))


def _by_literals(
    spark: SparkSession, scan: Scan, sides: ScanColumns, files: Sequence[DataFile], has_vectors: bool
) -> DataFrame:
    names = scan.value_names()
    schema = sides.in_files(without=names)
    by_values: dict[PartitionValues, list[DataFile]] = defaultdict(list)
    for file in files:
        by_values[file.values].append(file)
    frames = []
    for values, those in by_values.items():
        frame = open_files(spark, scan, schema, those, by_paths=False, by_names=has_vectors)
        if has_vectors:
            frame = with_place(frame, place_of(scan), row=True)
        literals = [
            _literal(text, scan.schema[column].type).alias(name)
            for column, name, text in zip(scan.partition_columns, names, values, strict=True)
        ]
        frames.append(frame.select("*", *literals))
    return reduce(DataFrame.union, frames)


def _by_join(
    spark: SparkSession, scan: Scan, sides: ScanColumns, files: Sequence[DataFile], has_vectors: bool
) -> DataFrame:
    names = scan.value_names()
    frame = open_files(spark, scan, sides.in_files(without=names), files, by_paths=False, by_names=True)
    place = place_of(scan)
    columns: dict[str, pa.Array] = {place.path: pa.array([file_uri(file.location) for file in files])}
    for at, (column, name) in enumerate(zip(scan.partition_columns, names, strict=True)):
        type_ = scan.schema[column].type
        parsed = {text: parse_partition_value(text, type_) for text in {file.values[at] for file in files}}
        columns[name] = pa.array([parsed[file.values[at]] for file in files], type_to_arrow(type_))
    values = F.broadcast(spark.createDataFrame(pa.table(columns)))
    return with_place(frame, place, row=has_vectors).join(values, place.path)


def _literal(text: str | None, type_: DataType) -> Column:
    """The log's text, cast by Spark; where Spark would read it otherwise than Delta, the value itself."""
    value = parse_partition_value(text, type_)
    if type_ == PrimitiveType("timestamp") and value is not None:
        text = value.isoformat()
    literal = F.lit(value if type_ == PrimitiveType("binary") else text)
    return literal.cast(str(type_))
