"""Position of each row: its file, and its row number there.

`_metadata` of Spark has both. The columns are added under names that are free in the table and in its files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from deltars.data.column_names import free_names
from deltars.data.scan import Scan
from deltars.spark.read.manifest import file_uri


class PositionColumns(NamedTuple):
    """Names of the columns that hold a row's position."""

    path: str
    name: str
    """The last part of the path, for which Spark needs less time than for the whole path."""
    row: str


def position_columns(scan: Scan) -> PositionColumns:
    """Return names that neither the table nor its files use for a column."""
    taken = {name.lower() for field in scan.schema.fields for name in (field.name, field.physical_name)}
    path, name, row = free_names(("path", "name", "row"), taken)
    return PositionColumns(path, name, row)


def with_position(frame: DataFrame, position: PositionColumns) -> DataFrame:
    """Add each row's position to a frame over files."""
    metadata = frame.metadataColumn("_metadata")
    return frame.select(
        "*",
        metadata.getField("file_path").alias(position.path),
        metadata.getField("file_name").alias(position.name),
        metadata.getField("row_index").alias(position.row),
    )


def spellings(location: str) -> list[str]:
    """Return the URIs that Spark may report for a file: it writes three slashes or one, by how it found the file."""
    uri = file_uri(location)
    return [uri, uri.replace("file:/", "file:///", 1)] if uri.startswith("file:/") else [uri]


def file_keys(position: PositionColumns, locations: Sequence[str]) -> tuple[Column, list[list[str]]]:
    """Return the column that says which file a row is from, and what it has for each of these files.

    It is the name of the file where names are unique, and else the whole path, in each spelling.
    """
    names = [spellings(location)[0].rpartition("/")[2] for location in locations]
    if len(set(names)) == len(names):
        return F.col(position.name), [[name] for name in names]
    return F.col(position.path), [spellings(location) for location in locations]


def is_same_file(file: Column, key: Column) -> Column:
    """Return the condition of a join on two columns of `file_keys`.

    The join is on the hash, because Spark finds a number faster than a string. The names are compared too, so equal
    hashes do no harm. They are compared by order: an equality would become a second key of the join.
    """
    return (F.xxhash64(file) == F.xxhash64(key)) & (file >= key) & (file <= key)
