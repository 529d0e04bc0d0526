"""Data files as a frame of Spark's own Parquet reader.

    a few files ──────────────────────> parquet(*files): Spark looks at each, and says which one is missing
    more ──> a manifest ──all there?──> parquet(manifest): Spark lists nothing
                          └─else──────> parquet(*files), looked at by this process alone: slow, and right

"All there" is counted: the list's format is Spark's own affair, and no file may be passed over.
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

import msgspec
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.types import StructType as SparkStructType

from deltars.data.scan import Scan, missing_file
from deltars.errors import DeltarsError, StorageError
from deltars.spark.read.directories import Directories
from deltars.spark.read.manifest import file_uri, write_manifest
from deltars.storage import Storage, open_storage, parse_location
from deltars.storage.table_files import refuse_link_outside, relative_path

PartitionValues: TypeAlias = tuple[str | None, ...]

LISTED_FILES = 32
"""So many Spark looks at one by one; for more it would start a job."""

_GLOB_CHARACTERS = str.maketrans({character: f"\\{character}" for character in "{}[]*?\\"})
_DISCOVERY = "spark.sql.sources.parallelPartitionDiscovery.threshold"
_discovering = Lock()

# Whatever the session's settings: no file may be passed over, and Parquet's calendar is the proleptic one.
_OPTIONS = {
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "mergeSchema": "false",
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
}

_log = logging.getLogger(__name__)
_decode_values = msgspec.json.Decoder(dict[str, str | None]).decode


class DataFile(NamedTuple):
    path: str
    """Below the table's root, as the file system has it."""
    location: str
    """As Spark names it."""
    size: int
    modification_time: int
    values: PartitionValues
    vector: str | None


def data_files(scan: Scan, root: str | None) -> tuple[list[DataFile], Directories | None]:
    """The files, and the directories they were seen in, if they were.

    `root`: the table's own as Spark names it, where Spark opens it.
    """
    storage = open_storage(scan.root, scan.storage_options)
    root = root or scan.root
    names = scan.value_names()
    decoded: dict[str | None, PartitionValues] = {None: (None,) * len(names)}
    files = []
    # Most tables have no deletion vectors, and many no partitions: no Python object is made for what is not there.
    skipped = {"partition_values"} if not names else set()
    skipped |= {"deletion_vector"} if scan.files["deletion_vector"].null_count == scan.files.num_rows else set()
    columns = (
        repeat(None, scan.files.num_rows) if name in skipped else scan.files[name].to_pylist()
        for name in ("path", "size", "modification_time", "partition_values", "deletion_vector")
    )
    for uri, size, time, text, vector in zip(*columns, strict=True):
        if text not in decoded:
            document = _decode_values(text)
            decoded[text] = tuple(document.get(name) or None for name in names)
        try:
            path = relative_path(storage, uri)
        except DeltarsError as error:
            raise error.located(table=scan.table, version=scan.version) from error.__cause__
        files.append(DataFile(path, f"{root}/{path}", size, time, decoded[text], vector))
    # A Spark elsewhere may see files that this machine does not.
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
    """The rows of these files.

    `by_paths`: with partition columns from the names of their directories. `by_names`: rows will be told apart by the
    names of their files, so Spark must have the names that we have.
    """
    reader = spark.read.schema(schema).options(**_OPTIONS)
    frame = None
    # Without a base path, which must lie above the list, Spark takes such a root for a partition too.
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
    """With its scheme, or Spark would look in its default file system, which need not be the local one."""
    place = parse_location(location)
    return f"file:{place.path}" if place.is_local else str(place)


def count_input_files(frame: DataFrame) -> int:
    # Classic Spark hands the names over one by one, a tenth of a second for a thousand; their number it says at once.
    classic = getattr(frame, "_jdf", None)
    return len(frame.inputFiles()) if classic is None else len(classic.inputFiles())


def _by_manifest(reader: DataFrameReader, files: Sequence[DataFile], by_paths: bool) -> DataFrame | None:
    try:
        manifest = write_manifest(files)
        # Lists of unpartitioned files are taken for empty without this option.
        frame = (reader if by_paths else reader.option("recursiveFileLookup", "true")).parquet(manifest)
        found = count_input_files(frame)
    except (PySparkException, OSError) as error:
        _log.warning("Spark did not take the list of %d files, and looks at each: %s", len(files), error)
        return None
    if found != len(files):
        _log.warning("Spark took %d of %d files from their list, and looks at each", found, len(files))
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
            f"Spark would read {found} of the {len(files)} data files of this version",
            table=scan.table,
            version=scan.version,
        )
    return frame


def _refuse_other_names(scan: Scan, frame: DataFrame, files: Sequence[DataFile]) -> None:
    """Where Spark names a file otherwise, a join on names would lose rows, or bring deleted ones back."""
    theirs = {uri.replace("file:///", "file:/", 1) for uri in frame.inputFiles()}
    for file in files:
        if file_uri(file.location) not in theirs:
            raise StorageError(
                f"Spark has another name for the data file {file.path}, and its rows cannot be told apart",
                path=file.path,
                table=scan.table,
                version=scan.version,
                hint="to_arrow() reads it.",
            )


@contextmanager
def _discovery_by_the_driver(spark: SparkSession, count: int) -> Iterator[None]:
    # One thread at a time: two would take each other's setting for the session's own, and leave it there.
    with _discovering:
        before = spark.conf.get(_DISCOVERY)
        spark.conf.set(_DISCOVERY, str(count))
        try:
            yield
        finally:
            spark.conf.set(_DISCOVERY, str(before))


def _literal_path(location: str) -> str:
    """Spark takes a path for a pattern."""
    return location.translate(_GLOB_CHARACTERS)


def _refuse_missing_file(scan: Scan, storage: Storage, files: Sequence[DataFile]) -> Directories:
    """Before anything runs; elsewhere Spark says it when it comes to the file. No link may lead out of the table."""
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
            # Spark takes an empty file for one without rows.
            raise StorageError(
                f"the data file {file.path} is empty, and no Parquet file is",
                path=file.path,
                table=scan.table,
                version=scan.version,
            )
    return directories
