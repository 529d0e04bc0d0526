"""A table's files as a list that Spark takes for one of its own, so that it lists nothing itself.

    <temporary directory>/deltars-manifests-<user>/<digest>/
        _spark_metadata/0            v1, then one line of JSON a file: what Spark's streaming sink writes
        the-list-is-gone.parquet     not Parquet: without the list beside it the directory is an error, not empty

The name is the digest of the list: reading one version twice makes one directory. Whoever writes a list removes those
that nobody asked for in a day. Spark reads a list when it analyses a plan, which may be long after `read` returned.
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
    """A directory, as Spark names it, that Spark reads as these files."""
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
    """Remove the lists that are older than a day."""
    global _swept_at
    if not force and time.monotonic() - _swept_at < SWEEP_EVERY_S:
        return
    _swept_at = time.monotonic()
    for directory in place.iterdir():
        try:
            if time.time() - directory.stat().st_mtime < MAX_AGE_S:
                continue
            # At once under another name: a reader finds the whole list, or none.
            gone = directory.with_name(f".gone-{uuid4()}")
            directory.rename(gone)
        except OSError:
            continue  # another process was here first
        shutil.rmtree(gone, ignore_errors=True)


def file_uri(location: str) -> str:
    """A path of Spark's as the URI that Spark makes of it, in `_metadata.file_path` and in its lists."""
    scheme, _, path = location.partition(":")
    # A colon is as it is in a path that has a scheme in front.
    return f"{scheme}:{path_to_uri(path).replace('%3A', ':')}"


def _line(file: ListedFile) -> str:
    # Nothing in a URI needs an escape of JSON.
    return (
        f'{{"path":"{file_uri(file.location)}","size":{file.size},"isDir":false,'
        f'"modificationTime":{file.modification_time},"blockReplication":1,"blockSize":33554432,"action":"add"}}'
    )


def _own_directory() -> Path:
    """One that no other user can write to: who writes a list says what is read."""
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
        # Another process made the same list.
        shutil.rmtree(unfinished, ignore_errors=True)
