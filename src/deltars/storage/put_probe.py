"""Test that a storage can be written to, and that it honours conditional puts. The published log depends on both."""

from __future__ import annotations

from contextlib import suppress
from uuid import uuid4

from deltars.errors import StorageError
from deltars.storage.local import LocalStorage
from deltars.storage.objects import ObjectStorage
from deltars.storage.storage import Storage

_HINT = (
    "Two writers could publish the same version there. Use a store with conditional puts (If-None-Match: S3, GCS,"
    ' Azure, MinIO and most others have them), another location, or mirror="off".'
)


def try_storage(storage: Storage) -> None:
    """Write a small file, try to overwrite it conditionally, and delete it. Raise StorageError if it is overwritten."""
    path = f"_deltars/trial-{uuid4()}"
    try:
        created = storage.put_if_absent(path, b"first")
        overwrote = storage.put_if_absent(path, b"second") or storage.get(path) != b"first"
    finally:
        with suppress(StorageError):  # a storage that forbids deletion is acceptable
            storage.delete([path])
    if overwrote or not created:
        raise StorageError(
            f"{storage.root} overwrites existing files in spite of a conditional put", path=path, hint=_HINT
        )


def refuse_unwritable(storage: Storage) -> None:
    """Raise StorageError for a local directory that cannot be written to. `refuse_overwriting` tests object stores."""
    if isinstance(storage, LocalStorage):
        storage.try_writing()


_tried: set[tuple[str, str, tuple[tuple[str, str], ...]]] = set()


def refuse_overwriting(storage: Storage) -> None:
    """Test an object store before anything is published to it, once for each bucket. A local disk needs no test."""
    if not isinstance(storage, ObjectStorage) or storage.location.scheme == "memory":
        return
    bucket = (storage.location.scheme, storage.location.authority, tuple(sorted(storage.options.items())))
    if bucket not in _tried:
        try_storage(storage)
        _tried.add(bucket)
