"""Whether a storage keeps its promise to overwrite nothing: everything that is published depends on it."""

from __future__ import annotations

from contextlib import suppress
from uuid import uuid4

from deltars.errors import StorageError
from deltars.storage.objects import ObjectStorage
from deltars.storage.storage import Storage

_HINT = (
    "Two writers could publish one version there. Use a store with conditional puts (If-None-Match: S3, GCS, Azure,"
    ' MinIO and most others have them), another location, or mirror="off".'
)


def try_storage(storage: Storage) -> None:
    """Write a small file, try to overwrite it, and delete it; StorageError where that is not as it must be."""
    path = f"_deltars/trial-{uuid4()}"
    try:
        created = storage.put_if_absent(path, b"first")
        overwrote = storage.put_if_absent(path, b"second") or storage.get(path) != b"first"
    finally:
        with suppress(StorageError):  # it may be that nothing can be deleted there: that is no reason to refuse it
            storage.delete([path])
    if overwrote or not created:
        raise StorageError(f"{storage.root} overwrites files that it was asked not to overwrite", path=path, hint=_HINT)


_tried: set[tuple[str, str, tuple[tuple[str, str], ...]]] = set()


def refuse_overwriting(storage: Storage) -> None:
    """Before anything is published to an object store, once for each bucket. A local disk is known to do it right."""
    if not isinstance(storage, ObjectStorage) or storage.location.scheme == "memory":
        return
    bucket = (storage.location.scheme, storage.location.authority, tuple(sorted(storage.options.items())))
    if bucket not in _tried:
        try_storage(storage)
        _tried.add(bucket)
