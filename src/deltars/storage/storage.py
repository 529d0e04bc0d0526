"""The interface to files, whatever holds them.

A path is relative to the storage's root and is the file's own name (decoded, not the URI of a Delta log). A
file appears whole or not at all, under each of the three ways to write:

    put_if_absent    the log: never overwrites, one of several writers wins
    put              hints that may be replaced (`_last_checkpoint`)
    open_writer      data files, streamed; their names are unique. With `if_absent` like put_if_absent: checkpoints
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import BinaryIO, Self, TypeAlias

from deltars.errors import StorageError, ValidationError
from deltars.storage.location import Location, key_problem

# Opens a block in which what the store raises becomes StorageError.
Seam: TypeAlias = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    path: str
    size: int
    modified: datetime


class Writer(ABC):
    """A binary file being written: it appears when closed, and never if its block is left by an exception."""

    def __init__(self, errors: Seam) -> None:
        self.closed = False
        self.created = False
        """After closing: whether what was written is the file now. Only `if_absent` can find another there."""
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
        """How many bytes were written."""
        return self._position

    def flush(self) -> None:  # noqa: B027
        """Does nothing: no part of the file can be seen before it is closed."""

    def writable(self) -> bool:
        return True

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            try:
                with self._errors():
                    self.created = self._finish()
            except BaseException:
                with suppress(OSError):
                    self._abandon()
                raise

    def discard(self) -> None:
        """Close without leaving a file."""
        if not self.closed:
            self.closed = True
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
    """The files below one location. What fails raises StorageError, which says whether to try again."""

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
        """Write the file and answer True, or False if there is one already. Durable when it returns.

        Without `sync_name` a power cut may still take the file back, whole, until `sync_names` is called: for several
        files of one directory, one after the other.
        """

    @abstractmethod
    def sync_names(self, directory: str) -> None:
        """Make durable what was put into a directory without `sync_name`."""

    @abstractmethod
    def put(self, path: str, data: bytes) -> None:
        """Write the file, replacing one that is there."""

    @abstractmethod
    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Every file below the directory `prefix`, however deep, in no promised order."""

    def list_unfinished(self) -> Iterator[ObjectInfo]:
        """Every file that a writer is still writing, or left behind when it was killed; `list` leaves them out.

        An object store shows none: an upload that was begun is no object. Its own rules for incomplete uploads apply.
        """
        return iter(())

    @abstractmethod
    def head(self, path: str) -> ObjectInfo | None: ...

    @abstractmethod
    def delete(self, paths: Iterable[str]) -> None:
        """Delete these files, unfinished ones too; one that is not there is no error."""

    def remove_empty_directories(self) -> None:  # noqa: B027
        """Remove the directories that hold no file, the root included, where the store has directories."""

    @abstractmethod
    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the time of last modification, where the store can (local disk); elsewhere nothing happens."""

    @abstractmethod
    def open_reader(self, path: str) -> BinaryIO:
        """The file, for reading anywhere in it."""

    @abstractmethod
    def open_writer(self, path: str, *, if_absent: bool = False) -> Writer:
        """A new file, streamed. With `if_absent` one that is there stays, and the writer's `created` says so."""

    @abstractmethod
    def url_of(self, path: str) -> str:
        """The file's absolute URI, percent-encoded as in a Delta log."""


def check_path(path: str) -> str:
    """`path`, if it names something below a storage's root."""
    if reason := key_problem(path):
        raise ValidationError(f"the path {path!r} {reason}", field="path")
    return path
