"""Interface to files on a disk or in an object store.

A path is relative to the storage's root and is not percent-encoded, unlike a path in a Delta log. Each of the three
ways to write makes a file appear whole or not at all:

    put_if_absent    for the log: never overwrites, and exactly one of several writers succeeds
    put              for hints that may be replaced (`_last_checkpoint`)
    open_writer      for data files: streamed, with unique names. With `if_absent`, for checkpoints: never overwrites
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import BinaryIO, Self, TypeAlias

from deltars.errors import StorageError, ValidationError
from deltars.storage.location import Location, key_problem

COPIED_BYTES = 8 * 1024 * 1024
"""Bytes of a file that are in memory at once while it is copied."""

# Opens a block in which the store's errors become StorageError.
Seam: TypeAlias = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    path: str
    size: int
    modified: datetime


class Writer(ABC):
    """A binary file that is being written. It appears when it is closed, and never if its block raises."""

    def __init__(self, errors: Seam) -> None:
        self.closed = False
        self.created = False
        """After closing: whether this writer created the file. False only with `if_absent`, if a file existed."""
        self.is_discarded = False
        self._errors = errors
        self._position = 0

    def write(self, data: bytes | memoryview) -> int:
        if self.closed:
            raise ValueError("the file is closed")
        with self._errors():
            self._append(data)
        size = memoryview(data).nbytes
        self._position += size
        return size

    def tell(self) -> int:
        """Return the number of bytes written."""
        return self._position

    def flush(self) -> None:  # noqa: B027
        """Do nothing: no part of the file is visible before it is closed."""

    def writable(self) -> bool:
        return True

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            try:
                with self._errors():
                    self.created = self._finish()
            except BaseException:
                self.is_discarded = True
                with suppress(OSError):
                    self._abandon()
                raise

    def discard(self) -> None:
        """Close without leaving a file."""
        if not self.closed:
            self.closed = self.is_discarded = True
            with self._errors():
                self._abandon()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()

    @abstractmethod
    def _append(self, data: bytes | memoryview) -> None: ...

    @abstractmethod
    def _finish(self) -> bool: ...

    @abstractmethod
    def _abandon(self) -> None: ...


class Storage(ABC):
    """The files below one location. Errors are StorageError, which says whether a retry may succeed."""

    def __init__(self, location: Location) -> None:
        self.location = location
        self.root = str(location)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.root!r})"

    def get(self, path: str) -> bytes:
        data = self.get_or_none(path)
        if data is None:
            raise StorageError(f"there is no file {self.url_of(path)}", path=path)
        return data

    def exists(self, path: str) -> bool:
        return self.head(path) is not None

    @abstractmethod
    def get_or_none(self, path: str) -> bytes | None: ...

    @abstractmethod
    def put_if_absent(self, path: str, data: bytes, *, sync_name: bool = True) -> bool:
        """Write the file and return True, or return False if it exists. The file is durable on return.

        Without `sync_name`, a power cut may still remove the whole file until `sync_names` is called. Use that to write
        several files of one directory.
        """

    @contextmanager
    def staged(self, files: Mapping[str, bytes]) -> Iterator[None]:
        """Prepare files that `put_if_absent` puts inside the block, one after the other.

        A local disk syncs the contents of several files together, which is faster. No file appears before it is put.
        """
        yield

    @abstractmethod
    def sync_names(self, directory: str) -> None:
        """Make files durable that were put into a directory without `sync_name`."""

    @abstractmethod
    def put(self, path: str, data: bytes) -> None:
        """Write the file, and replace an existing one."""

    @abstractmethod
    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield every file below the directory `prefix`, at any depth, in no particular order."""

    def list_unfinished(self) -> Iterator[ObjectInfo]:
        """Yield files that a writer has not finished, or left when it was killed. `list` omits them.

        An object store has none: an incomplete upload is not an object. The store's own rules for incomplete uploads
        apply.
        """
        return iter(())

    @abstractmethod
    def head(self, path: str) -> ObjectInfo | None: ...

    @abstractmethod
    def delete(self, paths: Iterable[str]) -> None:
        """Delete files, also unfinished ones. Missing files are ignored."""

    def remove_empty_directories(self) -> None:  # noqa: B027
        """Remove directories without files, including the root. Object stores have no directories."""

    def remove_directories(self, directories: Iterable[str], *, with_empty_ones: bool = False) -> None:  # noqa: B027
        """Remove these directories, and then those above them, as far as they are empty; never the root.

        A directory also counts as empty `with_empty_ones` in it. Object stores have no directories.
        """

    def list_directories(self) -> Iterator[ObjectInfo]:
        """Yield the directories directly below the root. Object stores have none."""
        return iter(())

    def leads_elsewhere(self, path: str) -> bool:
        """Return whether a symbolic link is on the way to a file, or is the file. Object stores have none."""
        return False

    @abstractmethod
    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the modification time on a local disk. Object stores do nothing."""

    @abstractmethod
    def open_reader(self, path: str) -> BinaryIO:
        """Open a file for random access."""

    @abstractmethod
    def open_writer(self, path: str, *, if_absent: bool = False) -> Writer:
        """Open a new file for streaming. With `if_absent`, an existing file stays, and `Writer.created` is False."""

    def copy_from(self, source: Storage, path: str) -> int:
        """Copy a file of another storage to the same path in this one. Return its size in bytes."""
        with source.open_reader(path) as reader, self.open_writer(path) as writer:
            while piece := reader.read(COPIED_BYTES):
                writer.write(piece)
        return writer.tell()

    @abstractmethod
    def url_of(self, path: str) -> str:
        """Return the file's absolute URI, percent-encoded as in a Delta log."""


def check_path(path: str) -> str:
    """Return `path`. Raise ValidationError unless it names something below a storage's root."""
    if reason := key_problem(path):
        raise ValidationError(f"the path {path!r} {reason}", field="path")
    return path
