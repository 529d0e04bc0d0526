"""How a session gets at a table's files: by a file system of its own, or by obstore inside its tasks.

    on a disk ────────────────────────────────────────────────────────────> by itself
    in an object store ──> the session looks at a file that the log names
        seen, by the location's own scheme or the other one of that store ──> by itself
        no classes, no right, no such file ───────────────────────────────> by obstore, inside mapInArrow

Only a file that is there tells: a session whose S3A looks into another store, or lacks the credentials that deltars was
given, has the classes as well.
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
"""Hadoop's own S3 classes go by s3a, those of some platforms by s3."""

_NO_FILE_SYSTEM = ("No FileSystem for scheme", "UnsupportedFileSystem", "ClassNotFoundException")
_LONGEST_REASON = 300

_log = logging.getLogger(__name__)
_known: WeakKeyDictionary[SparkSession, dict[tuple[str, frozenset[tuple[str, str]]], Access]] = WeakKeyDictionary()
_NO_OPTIONS: Mapping[str, str] = {}


class Access(NamedTuple):
    """How one session reads one bucket."""

    scheme: str | None
    """The session opens it by this one itself; None: obstore does, inside its tasks."""
    why: str
    has_classes: bool = True


def native_root(spark: SparkSession, scan: Scan) -> str | None:
    """The table's root as the session opens it itself; None where it does not."""
    place = parse_location(scan.root)
    if place.is_local or not scan.files.num_rows:
        return spark_path(scan.root)
    try:
        path = relative_path(open_storage(scan.root, scan.storage_options), scan.files.column("path")[0].as_py())
    except DeltarsError:
        return None  # whoever reads the file says what is wrong with it
    scheme = access_to(spark, scan.root, path, scan.storage_options).scheme
    return None if scheme is None else str(place).replace(place.scheme, scheme, 1)


def access_to(spark: SparkSession, root: str, path: str, storage_options: Mapping[str, str] = _NO_OPTIONS) -> Access:
    """How the session reads this file of an object store, and whatever else is in its bucket; asked once for each.

    Two stores can have a bucket of one name: the options tell them apart.
    """
    place = parse_location(root)
    bucket = f"{place.scheme}://{place.authority}"
    key = bucket, frozenset(storage_options.items())
    known = _known.setdefault(spark, {})
    if key not in known:
        access, is_sure = _tried(spark, place.scheme, str(place).partition("://")[2] + f"/{path}")
        if access.has_classes and access.scheme is None:
            _log.warning("%s is read through obstore inside Spark's tasks: %s", bucket, access.why)
        if not is_sure:
            return access
        known[key] = access
    return known[key]


def _tried(spark: SparkSession, scheme: str, rest: str) -> tuple[Access, bool]:
    """And whether it will be so of any other file."""
    reasons = {}
    for name in filter(None, (scheme, _SAME_STORE.get(scheme))):
        try:
            # Spark Connect looks when it has to, and not before.
            spark.read.schema("nothing int").parquet(f"{name}://{rest}").inputFiles()
        except Exception as error:
            said = str(error)
            if any(sign in said for sign in _NO_FILE_SYSTEM):
                continue
            if isinstance(error, AnalysisException) and error.getCondition() == "PATH_NOT_FOUND":
                # It may be the file that is gone, and not the store that is another.
                return Access(None, f"the session does not find {name}://{rest}"), False
            reasons[name] = f"the session cannot look at {name}://{rest}: {_first_line(said)}"
        else:
            return Access(name, f"the session opens {name}:// itself"), True
    if reasons:
        return Access(None, "; ".join(reasons.values())), True
    return Access(None, f"the session has no file system for {scheme}://", has_classes=False), True


def _first_line(said: str) -> str:
    return next(iter(said.splitlines()), "")[:_LONGEST_REASON]
