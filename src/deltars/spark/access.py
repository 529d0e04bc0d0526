"""Choice between Spark's own file system and obstore in Spark's tasks, for reading a table's files.

    on a disk ──────────────────────────────────────────────────────────> Spark's file system
    in an object store ──> the session tries a file that the log names
        found, by the location's scheme or by the store's other scheme ──> Spark's file system
        no classes, no permission, no such file ─────────────────────────> obstore, inside mapInArrow

Only an existing file proves access. A session may have the Hadoop classes and still point to another store, or lack
the credentials that deltars has.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple
from weakref import WeakKeyDictionary

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from deltars.data.scan import Scan
from deltars.errors import DeltarsError
from deltars.spark.read.files import spark_path
from deltars.storage import open_storage, parse_location
from deltars.storage.table_files import relative_path

_SAME_STORE = {"s3": "s3a", "s3a": "s3"}
"""Two schemes for one store: Hadoop's own S3 classes use s3a, those of some platforms use s3."""

_NO_FILE_SYSTEM = ("No FileSystem for scheme", "UnsupportedFileSystem", "ClassNotFoundException")
_LONGEST_REASON = 300

_log = logging.getLogger(__name__)
_known: WeakKeyDictionary[SparkSession, dict[tuple[str, frozenset[tuple[str, str]]], Access]] = WeakKeyDictionary()
_NO_OPTIONS: Mapping[str, str] = {}


class Access(NamedTuple):
    """How one session reads one bucket."""

    scheme: str | None
    """The scheme that the session opens the bucket by; None if obstore reads it in the session's tasks."""
    why: str
    has_classes: bool = True


def native_root(spark: SparkSession, scan: Scan) -> str | None:
    """Return the table's root as the session opens it, or None if the session cannot open it."""
    place = parse_location(scan.root)
    if place.is_local or not scan.files.num_rows:
        return spark_path(scan.root)
    try:
        path = relative_path(open_storage(scan.root, scan.storage_options), scan.files.column("path")[0].as_py())
    except DeltarsError:
        return None  # the Arrow reader raises the error when it opens the file
    scheme = access_to(spark, scan.root, path, scan.storage_options).scheme
    return None if scheme is None else str(place).replace(place.scheme, scheme, 1)


def access_to(spark: SparkSession, root: str, path: str, storage_options: Mapping[str, str] = _NO_OPTIONS) -> Access:
    """Return how the session reads this file's bucket. The result is cached for each session and bucket.

    The storage options are part of the cache key, because two stores can have buckets of the same name.
    """
    place = parse_location(root)
    bucket = f"{place.scheme}://{place.authority}"
    key = bucket, frozenset(storage_options.items())
    known = _known.setdefault(spark, {})
    if key not in known:
        access, is_final = _probe(spark, place.scheme, str(place).partition("://")[2] + f"/{path}")
        if access.has_classes and access.scheme is None:
            _log.warning("%s is read through obstore inside Spark's tasks: %s", bucket, access.why)
        if not is_final:
            return access
        known[key] = access
    return known[key]


def _probe(spark: SparkSession, scheme: str, rest: str) -> tuple[Access, bool]:
    """Try to open a file. Return the access, and whether it holds for the other files of the bucket too."""
    reasons = {}
    for name in filter(None, (scheme, _SAME_STORE.get(scheme))):
        try:
            # `inputFiles` forces Spark Connect, which is lazy, to look for the file.
            spark.read.schema("nothing int").parquet(f"{name}://{rest}").inputFiles()
        except Exception as error:
            said = str(error)
            if any(sign in said for sign in _NO_FILE_SYSTEM):
                continue
            if isinstance(error, AnalysisException) and error.getCondition() == "PATH_NOT_FOUND":
                # The file may have been deleted: that says nothing about the bucket.
                return Access(None, f"the session does not find {name}://{rest}"), False
            reasons[name] = f"the session cannot open {name}://{rest}: {_first_line(said)}"
        else:
            return Access(name, f"the session opens {name}:// itself"), True
    if reasons:
        return Access(None, "; ".join(reasons.values())), True
    return Access(None, f"the session has no file system for {scheme}://", has_classes=False), True


def _first_line(said: str) -> str:
    return next(iter(said.splitlines()), "")[:_LONGEST_REASON]
