"""Storage in object stores, and in memory for tests, by obstore."""

from __future__ import annotations

import io
import mmap
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from datetime import timedelta
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

from deltars.errors import ConfigError, StorageError
from deltars.protocol.paths import path_to_uri
from deltars.storage.failures import first_line, redacted, secret_values, storage_errors
from deltars.storage.location import Location
from deltars.storage.storage import ObjectInfo, Seam, Storage, Writer, check_path

if TYPE_CHECKING:
    from obstore import ObjectMeta, WritableFile
    from obstore.store import ObjectStore

# Shorter than a mirror's lease: the caller retries, and reports the failure between its attempts.
_RETRY: Any = {"max_retries": 4, "retry_timeout": timedelta(seconds=15)}

STORE_COPIES_BYTES = 5 * 1024**3
"""Largest object that S3 copies in one request."""

_memory: dict[str, MemoryStore] = {}

_process_id: int | None = None


class ObjectStorage(Storage):
    def __init__(self, location: Location, options: Mapping[str, str]) -> None:
        super().__init__(location)
        self._store = _open_store(location.scheme, location.authority, tuple(sorted(options.items())))
        self._prefix = f"{location.path}/" if location.path else ""
        self.options = dict(options)
        self._secrets = secret_values(options)

    def __reduce__(self) -> tuple[type[ObjectStorage], tuple[Location, dict[str, str]]]:
        # obstore cannot pickle a store with some options.
        return ObjectStorage, (self.location, self.options)

    def get_or_none(self, path: str) -> bytes | None:
        key = self._key(path)
        with self._errors(path), suppress(FileNotFoundError):
            return obstore.get(self._store, key).bytes().to_bytes()
        return None

    def put_if_absent(self, path: str, data: bytes, *, sync_name: bool = True) -> bool:
        key = self._key(path)
        with self._errors(path), suppress(AlreadyExistsError):
            obstore.put(self._store, key, data, mode="create")
            return True
        return False

    def sync_names(self, directory: str) -> None:
        """Do nothing: a stored object and its name are durable."""

    def put(self, path: str, data: bytes) -> None:
        key = self._key(path)
        with self._errors(path):
            obstore.put(self._store, key, data)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        below = self._prefix + prefix
        with self._errors(prefix):
            for batch in obstore.list(self._store, below or None, chunk_size=1000):
                yield from map(self._info, batch)

    def head(self, path: str) -> ObjectInfo | None:
        key = self._key(path)
        with self._errors(path), suppress(FileNotFoundError):
            return self._info(obstore.head(self._store, key))
        return None

    def delete(self, paths: Iterable[str]) -> None:
        keys = [self._key(path) for path in paths]
        with self._errors(", ".join(keys[:3])):
            try:
                obstore.delete(self._store, keys)
            except FileNotFoundError:
                # Some stores stop at the first missing key.
                for key in keys:
                    with suppress(FileNotFoundError):
                        obstore.delete(self._store, key)

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Do nothing: an object store keeps the time of the upload."""

    def open_reader(self, path: str) -> BinaryIO:
        key = self._key(path)
        info = self.head(path)
        if info is None:
            raise StorageError(f"there is no file {self.url_of(path)}", path=path)
        return cast(BinaryIO, _RangeReader(self._store, key, info.size, partial(self._errors, path)))

    def open_writer(self, path: str, *, if_absent: bool = False) -> Writer:
        key = self._key(path)
        with self._errors(path):
            if if_absent:
                return _CreatingWriter(self._store, key, partial(self._errors, path))
            return _ObjectWriter(obstore.open_writer(self._store, key), partial(self._errors, path))

    def copy_from(self, source: Storage, path: str) -> int:
        """Let the store copy the file, if both are in one container and the file is not too large for that."""
        found = source.head(path)
        if (
            found is None
            or not isinstance(source, ObjectStorage)
            or source._store is not self._store
            or found.size > STORE_COPIES_BYTES
        ):
            return super().copy_from(source, path)
        key = self._key(path)
        with self._errors(path):
            obstore.copy(self._store, source._key(path), key)
        return found.size

    def url_of(self, path: str) -> str:
        start = f"{self.location.scheme}://{self.location.authority}"
        return f"{start}/{path_to_uri(self._prefix + path)}".rstrip("/")

    def _key(self, path: str) -> str:
        return self._prefix + check_path(path)

    def _info(self, meta: ObjectMeta) -> ObjectInfo:
        return ObjectInfo(meta["path"].removeprefix(self._prefix), meta["size"], meta["last_modified"])

    @contextmanager
    def _errors(self, path: str) -> Iterator[None]:
        _refuse_after_fork(path)
        with storage_errors(path, self.root, self._secrets):
            yield


class _RangeReader(io.RawIOBase):
    """A file that reads exactly the requested ranges, without read-ahead."""

    def __init__(self, store: ObjectStore, key: str, size: int, errors: Seam) -> None:
        self._store = store
        self._object_key = key
        self._size = size
        self._errors = errors
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, origin + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:
        end = min(self._position + len(buffer), self._size)
        length = end - self._position
        if length <= 0:
            return 0
        with self._errors():
            data = obstore.get_range(self._store, self._object_key, start=self._position, length=length)
        buffer[:length] = memoryview(data)
        self._position = end
        return length


class _ObjectWriter(Writer):
    def __init__(self, sink: WritableFile, errors: Seam) -> None:
        super().__init__(errors)
        self._sink = sink

    def _append(self, data: bytes | memoryview) -> None:
        self._sink.write(data)

    def _finish(self) -> bool:
        self._sink.close()
        return True

    def _abandon(self) -> None:
        # An upload that is not closed never becomes an object.
        del self._sink


class _CreatingWriter(Writer):
    """Writer that collects the data in a temporary file: only an upload in one piece can be conditional."""

    def __init__(self, store: ObjectStore, key: str, errors: Seam) -> None:
        super().__init__(errors)
        self._store = store
        self._object_key = key
        self._spool = tempfile.TemporaryFile()  # noqa: SIM115

    def _append(self, data: bytes | memoryview) -> None:
        self._spool.write(data)

    def _finish(self) -> bool:
        with self._spool as spool:
            spool.flush()
            with _mapped(spool) if self.tell() else nullcontext(b"") as content, suppress(AlreadyExistsError):
                obstore.put(self._store, self._object_key, content, mode="create")
                return True
            return False

    def _abandon(self) -> None:
        self._spool.close()


@contextmanager
def _mapped(spool: BinaryIO) -> Iterator[mmap.mmap]:
    """Map a file into memory during the block. The mapping must be closed, because it keeps the file open."""
    content = mmap.mmap(spool.fileno(), 0, access=mmap.ACCESS_READ)
    try:
        yield content
    finally:
        # A reference that still exists releases the mapping later.
        with suppress(BufferError):
            content.close()


@lru_cache(maxsize=64)
def _open_store(scheme: str, authority: str, options: tuple[tuple[str, str], ...]) -> ObjectStore:
    """Return the client of a container. It is cached for each set of options, because it holds the connections."""
    config: Any = dict(options)
    try:
        match scheme:
            case "memory":
                return _memory.setdefault(authority, MemoryStore())
            case "s3" | "s3a":
                return S3Store(authority, config=config, retry_config=_RETRY)
            case "gs":
                return GCSStore(authority, config=config, retry_config=_RETRY)
            case "az":
                return AzureStore(authority, config=config, retry_config=_RETRY)
            case _:
                return AzureStore.from_url(f"{scheme}://{authority}", config=config, retry_config=_RETRY)
    except (BaseError, ValueError) as error:
        reason = redacted(first_line(error), secret_values(config))
        raise ConfigError(f"the storage options for {scheme}://{authority} are invalid: {reason}") from None


def _refuse_after_fork(path: str) -> None:
    """Raise in a forked child: obstore's threads do not survive a fork, so a call would wait forever."""
    global _process_id
    if _process_id is None:
        _process_id = os.getpid()
    elif _process_id != os.getpid():
        raise StorageError(
            "object storage was used before this process was forked, so it cannot be used in the forked process",
            path=path,
            hint="Start the process with multiprocessing's 'spawn' or 'forkserver' method.",
        )
