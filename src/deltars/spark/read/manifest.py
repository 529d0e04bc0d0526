"""Manifest of a table's files, in the format of Spark's streaming sink, so that Spark lists no directory.

    <temporary directory>/deltars-manifests-<user>/<digest>/
        _spark_metadata/0            v1, then one line of JSON per file, as Spark's streaming sink writes it
        the-list-is-gone.parquet     not Parquet: without the list beside it the directory is an error, not empty

The directory's name is the digest of the list, so reading one version twice makes one directory. Writing a manifest
also removes manifests that were not used for a day. They cannot be removed earlier: Spark reads a manifest when it
analyses a plan, which may be long after `read` returned.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from deltars.protocol import path_to_uri

MAX_AGE_S = 24 * 60 * 60
SWEEP_EVERY_S = 10 * 60

_SENTINEL = "the-list-is-gone.parquet"
_swept_at = 0.0


class ListedFile(Protocol):
    @property
    def location(self) -> str: ...

    @property
    def size(self) -> int: ...

    @property
    def modification_time(self) -> int: ...


def write_manifest(files: Iterable[ListedFile], parent: Path | None = None) -> str:
    """Write a manifest and return its directory, as a path that Spark reads as these files."""
    place = parent or _own_directory()
    content = "\n".join(["v1", *map(_line, files)]).encode()
    directory = place / hashlib.sha256(content).hexdigest()[:32]
    sweep(place)
    try:
        os.utime(directory)
    except FileNotFoundError:
        _make(directory, content)
    return f"file:{directory}"


def sweep(place: Path, *, force: bool = False) -> None:
    """Remove manifests that are older than `MAX_AGE_S`."""
    global _swept_at
    if not force and time.monotonic() - _swept_at < SWEEP_EVERY_S:
        return
    _swept_at = time.monotonic()
    for directory in place.iterdir():
        try:
            if time.time() - directory.stat().st_mtime < MAX_AGE_S:
                continue
            # Renamed first: a reader finds the whole manifest or none.
            gone = directory.with_name(f".gone-{uuid4()}")
            directory.rename(gone)
        except OSError:
            continue  # another process removed it first
        shutil.rmtree(gone, ignore_errors=True)


def file_uri(location: str) -> str:
    """Return a Spark path as the URI that Spark makes of it in `_metadata.file_path` and in manifests."""
    scheme, _, path = location.partition(":")
    # Spark does not escape a colon in a path with a scheme.
    return f"{scheme}:{path_to_uri(path).replace('%3A', ':')}"


def _line(file: ListedFile) -> str:
    # A URI has no character that JSON escapes.
    return (
        f'{{"path":"{file_uri(file.location)}","size":{file.size},"isDir":false,'
        f'"modificationTime":{file.modification_time},"blockReplication":1,"blockSize":33554432,"action":"add"}}'
    )


def _own_directory() -> Path:
    """Return a directory that no other user can write to: a manifest decides which files are read."""
    place = Path(tempfile.gettempdir()) / f"deltars-manifests-{os.getuid()}"
    place.mkdir(mode=0o700, exist_ok=True)
    status = place.lstat()
    if status.st_uid == os.getuid() and status.st_mode & 0o777 == 0o700:
        return place
    return Path(tempfile.mkdtemp(prefix="deltars-manifests-"))


def _make(directory: Path, content: bytes) -> None:
    unfinished = directory.with_name(f".new-{uuid4()}")
    (unfinished / "_spark_metadata").mkdir(parents=True)
    (unfinished / "_spark_metadata" / "0").write_bytes(content)
    (unfinished / _SENTINEL).write_text("The list of files beside this one is gone.")
    try:
        unfinished.rename(directory)
    except OSError:
        # Another process wrote the same manifest.
        shutil.rmtree(unfinished, ignore_errors=True)
