"""Access to a table's files by the paths in its log. Nothing outside the table's root is ever opened.

add.path (the log's form) ──relative_path──> below the table's root ──open_file──> an Arrow file
                           └ outside: refused in any form: `..`, another root, a symbolic link
"""

from __future__ import annotations

import os
from typing import Any

import pyarrow as pa

from deltars.errors import StorageError, ValidationError
from deltars.protocol import check_path, is_absolute, is_plain, uri_to_path
from deltars.storage.location import parse_location
from deltars.storage.storage import Storage
from deltars.storage.storage import check_path as check_key


def relative_path(storage: Storage, uri: str) -> str:
    """Return the path below the table's root. Raise ValidationError for a path that is outside."""
    if is_plain(uri):
        return uri
    problem = check_path(uri, allow_absolute=True)
    if problem is not None:
        raise ValidationError(f"{uri!r}: {problem}", field="path")
    path = uri_to_path(uri)
    if not is_absolute(uri):
        return path
    place, root = str(parse_location(path)), storage.root.rstrip("/")
    for known, alias in (("s3a://", "s3://"), ("abfss://", "abfs://")):
        place, root = place.replace(known, alias, 1), root.replace(known, alias, 1)
    if not place.startswith(f"{root}/"):
        raise ValidationError(f"{uri!r} is outside the table at {storage.root}, so it is not opened", field="path")
    return place[len(root) + 1 :]


def open_file(storage: Storage, uri: str) -> Any:
    """Open a file of the table for random access by Arrow. Raise StorageError if it is missing."""
    return open_path(storage, relative_path(storage, uri))


def open_path(storage: Storage, path: str) -> Any:
    """Open a file by its path below the table's root."""
    check_key(path)
    if not storage.location.is_local:
        return storage.open_reader(path)
    name = os.path.join(storage.location.path, path)
    refuse_link_outside(storage, name)
    try:
        # Arrow's threads read a memory map in parallel; a Python file would serialize them.
        return pa.memory_map(name) if os.path.getsize(name) else pa.BufferReader(b"")
    except OSError as error:
        raise StorageError(f"{storage.url_of(path)}: {error.strerror or error}", path=path) from error


def copy_file(source: Storage, path: str, target: Storage) -> int:
    """Copy a file to the same path below another table's root. Return its size in bytes."""
    check_key(path)
    if source.location.is_local:
        refuse_link_outside(source, os.path.join(source.location.path, path))
    return target.copy_from(source, path)


def is_missing(storage: Storage, uri: str) -> bool:
    return not storage.exists(relative_path(storage, uri))


def refuse_link_outside(storage: Storage, name: str) -> None:
    """Raise if a symbolic link leads out of the table: the author of a log must not choose which files are opened."""
    root, target = os.path.realpath(storage.location.path), os.path.realpath(name)
    if target != root and not target.startswith(root.rstrip("/") + "/"):
        raise ValidationError(f"{name} leads out of the table to {target}, so it is not opened", field="path")
