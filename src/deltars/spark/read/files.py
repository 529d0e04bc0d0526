"""Data files as a frame of Spark's own Parquet reader.

    a few files ──────────────────────> parquet(*files): Spark checks each file, and names a missing one
    more ──> a manifest ──all there?──> parquet(manifest): Spark lists nothing
                          └─else──────> parquet(*files), checked by the driver alone: slow, but correct

"All there" means that Spark found as many files as the log has. The manifest's format is internal to Spark and may
change, and no file may be skipped silently.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import repeat
from threading import Lock
from typing import NamedTuple, TypeAlias

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.types import StructType as SparkStructType

from deltars.data.scan import Scan, missing_file
from deltars.errors import DeltarsError, StorageError, located
from deltars.protocol.actions import decode_partition_values
from deltars.spark.read.frame_cache import Directories
from deltars.spark.read.manifest import file_uri, write_manifest
from deltars.storage import Storage, open_storage, parse_location
from deltars.storage.table_files import refuse_link_outside, relative_path

PartitionValues: TypeAlias = tuple[str | None, ...]

LISTED_FILES = 32
"""Largest number of files that are passed to Spark one by one. For more, Spark would start a job to list them."""

_GLOB_CHARACTERS = str.maketrans({character: f"\\{character}" for character in "{}[]*?\\"})
_DISCOVERY = "spark.sql.sources.parallelPartitionDiscovery.threshold"
_discovering = Lock()

# These override the session's settings: no file may be skipped, and Parquet's calendar is the proleptic Gregorian one.
_OPTIONS = {
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "mergeSchema": "false",
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
}

_log = logging.getLogger(__name__)


class DataFile(NamedTuple):
    path: str
    """Path below the table's root, as in the file system (not percent-encoded)."""
    location: str
    """Path that Spark opens."""
    size: int
    modification_time: int
    values: PartitionValues
    vector: str | None


def data_files(scan: Scan, root: str | None) -> tuple[list[DataFile], Directories | None]:
    """Return the files of a scan, and the state of their directories if this machine sees them.

    `root` is the table's root as Spark opens it, or None if Spark does not open it.
    """
    storage = open_storage(scan.root, scan.storage_options)
    root = root or scan.root
    names = scan.value_names()
    decoded: dict[str | None, PartitionValues] = {None: (None,) * len(names)}
    files = []
    # Most tables have no deletion vectors and many have no partitions: absent columns create no Python objects.
    skipped = {"partition_values"} if not names else set()
    skipped |= {"deletion_vector"} if scan.files["deletion_vector"].null_count == scan.files.num_rows else set()
    columns = (
        repeat(None, scan.files.num_rows) if name in skipped else scan.files[name].to_pylist()
        for name in ("path", "size", "modification_time", "partition_values", "deletion_vector")
    )
    for uri, size, time, text, vector in zip(*columns, strict=True):
        if text not in decoded:
            document = decode_partition_values(text)
            decoded[text] = tuple(document.get(name) or None for name in names)
        with located(table=scan.table, version=scan.version):
            path = relative_path(storage, uri)
        files.append(DataFile(path, f"{root}/{path}", size, time, decoded[text], vector))
    # Spark on other machines may see files that this machine does not.
    is_here = storage.location.is_local and os.path.isdir(storage.location.path)
    return files, _refuse_missing_file(scan, storage, files) if is_here else None


def open_files(
    spark: SparkSession,
    scan: Scan,
    schema: SparkStructType,
    files: Sequence[DataFile],
    *,
    by_paths: bool,
    by_names: bool = False,
) -> DataFrame:
    """Return the rows of these files.

    With `by_paths`, partition columns come from the names of the directories. With `by_names`, the caller joins rows by
    file name, so the names that Spark reports are checked.
    """
    reader = spark.read.schema(schema).options(**_OPTIONS)
    frame = None
    # Spark reads a root like `a=1` as a partition too, unless a base path is set. That would have to contain the
    # manifest, which is elsewhere.
    is_root_a_partition = by_paths and "=" in scan.root.rstrip("/").rpartition("/")[2]
    if len(files) > LISTED_FILES and not is_root_a_partition:
        frame = _by_manifest(reader, files, by_paths)
    if frame is None and len(files) <= LISTED_FILES:
        frame = _listed(scan, reader, files, by_paths)
    if frame is None:
        with _discovery_by_the_driver(spark, len(files)):
            frame = _listed(scan, reader, files, by_paths)
    if by_names:
        _refuse_other_names(scan, frame, files)
    return frame


def spark_path(location: str) -> str:
    """Return the location with its scheme. Without one, Spark uses its default file system, which may not be local."""
    place = parse_location(location)
    return f"file:{place.path}" if place.is_local else str(place)


def count_input_files(frame: DataFrame) -> int:
    # Classic Spark transfers the names one by one (0.1 s for a thousand), but the length of the Java array at once.
    classic = getattr(frame, "_jdf", None)
    return len(frame.inputFiles()) if classic is None else len(classic.inputFiles())


def _by_manifest(reader: DataFrameReader, files: Sequence[DataFile], by_paths: bool) -> DataFrame | None:
    try:
        manifest = write_manifest(files)
        # Without this option Spark finds no file in a manifest of unpartitioned files.
        frame = (reader if by_paths else reader.option("recursiveFileLookup", "true")).parquet(manifest)
        found = count_input_files(frame)
    except (PySparkException, OSError) as error:
        _log.warning("Spark rejected the manifest of %d files; passing each file instead: %s", len(files), error)
        return None
    if found != len(files):
        _log.warning("Spark found %d of %d files in their manifest; passing each file instead", found, len(files))
        return None
    return frame


def _listed(scan: Scan, reader: DataFrameReader, files: Sequence[DataFile], by_paths: bool) -> DataFrame:
    reader = reader.option("recursiveFileLookup", "false")
    if by_paths:
        reader = reader.option("basePath", files[0].location.removesuffix(f"/{files[0].path}"))
    try:
        frame = reader.parquet(*(_literal_path(file.location) for file in files))
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        said = (error.getMessageParameters() or {}).get("path", "")
        missing = next((file for file in files if said in (file.location, _literal_path(file.location))), None)
        raise missing_file(scan, missing.path if missing else said) from error
    found = count_input_files(frame)
    if found != len(files):
        raise StorageError(
            f"Spark found only {found} of the {len(files)} data files of this version",
            table=scan.table,
            version=scan.version,
        )
    return frame


def _refuse_other_names(scan: Scan, frame: DataFrame, files: Sequence[DataFile]) -> None:
    """Raise if Spark names a file differently: a join on names would lose rows or bring deleted rows back."""
    theirs = {uri.replace("file:///", "file:/", 1) for uri in frame.inputFiles()}
    for file in files:
        if file_uri(file.location) not in theirs:
            raise StorageError(
                f"Spark reports another name for the data file {file.path}, so its rows cannot be matched with the log",
                path=file.path,
                table=scan.table,
                version=scan.version,
                hint="Read the table with to_arrow().",
            )


@contextmanager
def _discovery_by_the_driver(spark: SparkSession, count: int) -> Iterator[None]:
    # One thread at a time: a second thread would restore the first one's setting as if it were the session's own.
    with _discovering:
        before = spark.conf.get(_DISCOVERY)
        spark.conf.set(_DISCOVERY, str(count))
        try:
            yield
        finally:
            spark.conf.set(_DISCOVERY, str(before))


def _literal_path(location: str) -> str:
    """Escape a path: Spark reads it as a glob pattern."""
    return location.translate(_GLOB_CHARACTERS)


def _refuse_missing_file(scan: Scan, storage: Storage, files: Sequence[DataFile]) -> Directories:
    """Raise before a job runs if a file is missing or empty, or if a link leads out of the table.

    Files that this machine does not see are not checked: Spark reports a missing one when it reads it.
    """
    root = storage.location.path
    directories, last = Directories(), None
    for file in files:
        name = f"{root}/{file.path}"
        directory = file.path.rpartition("/")[0]
        try:
            if directory != last:
                if (place := f"{root}/{directory}") not in directories:
                    refuse_link_outside(storage, place)
                    directories.add(place)
                last = directory
            status = os.lstat(name)
            if stat.S_ISLNK(status.st_mode):
                refuse_link_outside(storage, name)
                status = os.stat(name)
                directories.has_links = True
        except (FileNotFoundError, NotADirectoryError):
            raise missing_file(scan, file.path) from None
        except DeltarsError as error:
            raise error.located(table=scan.table, version=scan.version) from error.__cause__
        if not status.st_size:
            # Spark reads an empty file as one without rows.
            raise StorageError(
                f"the data file {file.path} has 0 bytes, so it is not a Parquet file",
                path=file.path,
                table=scan.table,
                version=scan.version,
            )
    return directories
