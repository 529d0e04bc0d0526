"""Check how Spark reads an object store: with its own file system, or through obstore inside its tasks.

The check writes a small file, lets a session look for it, and deletes it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any
from uuid import uuid4

from deltars.doctor.finding import Finding
from deltars.errors import DeltarsError, StorageError
from deltars.storage import Storage, open_storage, parse_location
from deltars.transaction.plane import spark_plane

PATIENCE_S = 180

_FIX = (
    "Both ways return the same rows. For native reads, which are faster, configure credentials and endpoint of the"
    " Spark session (spark.hadoop.fs.s3a.…)."
)


def reading(warehouse: str | None, storage_options: Mapping[str, str], spark: Any) -> Iterator[Finding]:
    """Yield a finding, unless the warehouse is on a disk. `spark` is a session, or True to start one."""
    if warehouse is None or parse_location(warehouse).is_local:
        return
    try:
        with _file_in(open_storage(warehouse, storage_options)) as path:
            access = _started(warehouse, path) if spark is True else _of(spark, warehouse, path)
    except (DeltarsError, OSError, subprocess.SubprocessError, ValueError) as error:
        reason = error.what_and_where if isinstance(error, DeltarsError) else f"the session did not answer: {error}"
        yield Finding("reading", "skipped", f"it could not be checked how Spark reads {warehouse}: {reason}")
        return
    if access["scheme"] is not None:
        yield Finding("reading", "ok", f"Spark reads {warehouse} natively: {access['why']}")
    else:
        found = f"Spark reads {warehouse} through obstore inside its tasks: {access['why']}"
        # A session that has the file system's classes was meant to use them.
        yield Finding("reading", "warning", found, _FIX) if access["has_classes"] else Finding("reading", "ok", found)


@contextmanager
def _file_in(storage: Storage) -> Iterator[str]:
    path = f"_deltars/trial-{uuid4()}"
    storage.put_if_absent(path, b"a trial")
    try:
        yield path
    finally:
        with suppress(StorageError):
            storage.delete([path])


def _of(spark: Any, warehouse: str, path: str) -> dict[str, Any]:
    return dict(spark_plane().access(spark, warehouse, path)._asdict())


def _started(warehouse: str, path: str) -> dict[str, Any]:
    trial = subprocess.run(
        [sys.executable, "-m", "deltars.spark.probe", warehouse, path],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    if trial.returncode:
        raise ValueError(next(reversed(trial.stderr.strip().splitlines()), f"exit {trial.returncode}"))
    access: dict[str, Any] = json.loads(trial.stdout)
    return access
