"""How Spark gets at the files of an object store: by a file system of its own, or by obstore inside its tasks.

A small file is put there, a session looks for it, and it is deleted.
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
    "Rows are right either way. For native reads, which are faster, give the session what it lacks: its own credentials"
    " and endpoint (spark.hadoop.fs.s3a.…)."
)


def reading(warehouse: str | None, storage_options: Mapping[str, str], spark: Any) -> Iterator[Finding]:
    """Nothing for a disk. `spark` is the session that is asked; True asks one that is started for it."""
    if warehouse is None or parse_location(warehouse).is_local:
        return
    try:
        with _file_in(open_storage(warehouse, storage_options)) as path:
            access = _started(warehouse, path) if spark is True else _of(spark, warehouse, path)
    except (DeltarsError, OSError, subprocess.SubprocessError, ValueError) as error:
        reason = error.what_and_where if isinstance(error, DeltarsError) else f"no session told: {error}"
        yield Finding("reading", "skipped", f"how Spark reads {warehouse} is not known: {reason}")
        return
    if access["scheme"] is not None:
        yield Finding("reading", "ok", f"Spark reads {warehouse} natively: {access['why']}")
    else:
        found = f"Spark reads {warehouse} through obstore inside its tasks: {access['why']}"
        # Whoever has the classes meant them to be used.
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
