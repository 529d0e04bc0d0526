"""Purge of data files: each is written again without some of its rows.

    data file ──minus rows, minus its deletion vector──> batch by batch ──> a new data file of the same partition

The rows that remain keep their order, so a file stays as clustered as it was. They are not checked again: they are in
the table already, by the rules of their time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import msgspec
from pyroaring import BitMap64

from deltars.data.row_change import Positions
from deltars.data.row_ids import FILE_COLUMNS, read_rows, reading_ids, with_hidden_columns
from deltars.data.scan import Scan
from deltars.data.write_target import WriteTarget, WrittenFile
from deltars.data.writer import write_encoded
from deltars.protocol import ArrayType, DataType, MapType, StructType
from deltars.protocol.row_tracking import materialized_names

THREADS = 4

_decode_values = msgspec.json.Decoder(dict[str, str | None]).decode


def purge_files(scan: Scan, positions: Positions, target: WriteTarget) -> Mapping[int, Sequence[WrittenFile]]:
    """Write these files again without the rows, several at a time. The result has the new files of each file."""
    with ThreadPoolExecutor(min(THREADS, len(positions)) or 1, thread_name_prefix="deltars-purge") as pool:
        found = {
            place: pool.submit(purge_file, one_file(scan, place), rows, target, task=place)
            for place, rows in positions.items()
        }
        try:
            return {place: future.result() for place, future in found.items()}
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def one_file(scan: Scan, place: int) -> Scan:
    """Return the scan of one of its files. It can be pickled, because Spark's tasks receive it."""
    return replace(scan, source=scan.files.slice(place, 1).combine_chunks(), identity=None, condition=None)


def purge_file(scan: Scan, rows: BitMap64 | bytes, target: WriteTarget, *, task: int = 0) -> list[WrittenFile]:
    """Write the one file of the scan again without the rows, and without those that its vector deletes.

    `rows` may be serialized. The result is empty if no row is left. Rows keep their ids if the table names the columns
    for them, and the scan's files have the columns `row_ids.FILE_COLUMNS`.
    """
    gone = BitMap64.deserialize(rows) if isinstance(rows, bytes) else rows
    scan, target = rewriting(scan, target)
    left = (placed.rows for placed in read_rows(scan, without={0: gone}, is_rewrite=True))
    written = write_encoded(target, left, task=task)
    return in_partition(scan, written)


def rewriting(scan: Scan, target: WriteTarget) -> tuple[Scan, WriteTarget]:
    """Return the scan and the target so that rows keep their ids and are not checked again."""
    # Older files may have nulls in a column that is NOT NULL today. A rewrite does not add rows, so it accepts them.
    # It keeps their order too.
    target = target.with_options(schema=nullable(target.schema), cluster_by=())
    names = materialized_names(target.properties)
    if names and not scan.hidden_columns and set(FILE_COLUMNS) <= set(scan.files.column_names):
        scan = reading_ids(scan, names)
    if scan.hidden_columns:
        target = target.with_options(schema=with_hidden_columns(target.schema, scan.hidden_columns))
    return scan, target


def in_partition(scan: Scan, written: Sequence[WrittenFile]) -> list[WrittenFile]:
    """Return the new files with the partition values of the scan's files, which are all of one partition."""
    text = scan.files["partition_values"][0].as_py()
    values = _decode_values(text) if text else {}
    # The text of a value is kept too: a timestamp without a zone must not get one.
    return [replace(file, add=msgspec.structs.replace(file.add, partition_values=values)) for file in written]


def nullable(schema: StructType) -> StructType:
    """Return the schema with every column and every part of it nullable."""
    return StructType(tuple(replace(field, type=_nullable_type(field.type), nullable=True) for field in schema.fields))


def _nullable_type(type_: DataType) -> DataType:
    match type_:
        case StructType():
            return nullable(type_)
        case ArrayType(element):
            return ArrayType(_nullable_type(element))
        case MapType(key, value):
            return MapType(_nullable_type(key), _nullable_type(value))
    return type_
