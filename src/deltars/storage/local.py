"""Storage on a local disk.

It uses the operating system's calls and not obstore's LocalStore, for two reasons: LocalStore does not sync, so after a
power cut a published commit could be an empty file; and it hangs in a forked child of a process that has used it.

    write `name#<random>`  ->  fsync  ->  link (fails if the name is taken) or rename  ->  fsync the directory

The staging name has the form that object_store uses, so readers built on object_store do not list it.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from stat import S_ISDIR
from typing import BinaryIO, cast

from deltars.errors import ValidationError
from deltars.protocol.paths import path_to_uri
from deltars.storage.failures import storage_errors
from deltars.storage.location import Location
from deltars.storage.storage import ObjectInfo, Seam, Storage, Writer, check_path

ATTEMPTS = 5
"""How often a directory is created that vanishes before a file is in it."""

_STAGED = re.compile(r".*#\d+", re.DOTALL)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_NO_FILE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


class LocalStorage(Storage):
    def __init__(self, location: Location) -> None:
        super().__init__(location)
        self._staged: dict[str, tuple[str, bytes]] = {}
        """Name and content of each file that `staged` prepared, by its path."""

    def get_or_none(self, path: str) -> bytes | None:
        with self._errors(path), suppress(*_NO_FILE), open(self._file(path), "rb") as file:
            return file.read()
        return None

    def put_if_absent(self, path: str, data: bytes, *, sync_name: bool = True) -> bool:
        file = self._file(path)
        with self._errors(path):
            staged, content = self._staged.get(path, ("", None))
            if content == data:
                del self._staged[path]
            else:
                staged = _stage(file, data)
            return _create(staged, file, sync_name=sync_name)

    @contextmanager
    def staged(self, files: Mapping[str, bytes]) -> Iterator[None]:
        try:
            try:
                self._stage_together(files)
            except OSError:
                # `put_if_absent` stages each file again, and reports what is wrong with it.
                self._unstage()
            yield
        finally:
            self._unstage()

    def _unstage(self) -> None:
        for staged, _ in self._staged.values():
            with suppress(OSError):
                os.unlink(staged)
        self._staged.clear()

    def _stage_together(self, files: Mapping[str, bytes]) -> None:
        """Write all files, then sync each. The kernel begins to write all of them before the first sync."""
        descriptors: list[int] = []
        try:
            for path, data in files.items():
                staged, descriptor = _open_staged(self._file(path))
                descriptors.append(descriptor)
                self._staged[path] = staged, data
                _write(descriptor, data)
                _begin_writing(descriptor)
            for descriptor in descriptors:
                os.fsync(descriptor)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def sync_names(self, directory: str) -> None:
        with self._errors(directory):
            sync_path(self._file(directory))

    def put(self, path: str, data: bytes) -> None:
        file = self._file(path)
        with self._errors(path):
            _replace(_stage(file, data), file)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        prefix = prefix.rstrip("/")
        with self._errors(prefix):
            yield from _walk(self._file(prefix) if prefix else self.root, f"{prefix}/" if prefix else "")

    def list_unfinished(self) -> Iterator[ObjectInfo]:
        with self._errors(""):
            yield from _walk(self.root, "", unfinished=True)

    def head(self, path: str) -> ObjectInfo | None:
        with self._errors(path), suppress(*_NO_FILE):
            found = os.stat(self._file(path))
            return None if S_ISDIR(found.st_mode) else _info(path, found)
        return None

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            with self._errors(path), suppress(*_NO_FILE):
                # Not `self._file`, which refuses the names of unfinished files.
                os.unlink(os.path.join(self.root, check_path(path)))

    def remove_empty_directories(self) -> None:
        with self._errors(""):
            _remove_below(self.root)

    def remove_directories(self, directories: Iterable[str], *, with_empty_ones: bool = False) -> None:
        for directory in sorted(set(directories), key=len, reverse=True):
            parts = check_path(directory).split("/")
            if with_empty_ones:
                _remove_below(os.path.join(self.root, directory))
            for depth in range(len(parts), 0, -1):
                # Usually because it is not empty.
                with suppress(OSError):
                    os.rmdir(os.path.join(self.root, *parts[:depth]))

    def list_directories(self) -> Iterator[ObjectInfo]:
        with self._errors(""), suppress(FileNotFoundError), os.scandir(self.root) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield _info(entry.name, entry.stat())

    def leads_elsewhere(self, path: str) -> bool:
        steps = check_path(path).split("/")
        return any(os.path.islink(os.path.join(self.root, *steps[:depth])) for depth in range(1, len(steps) + 1))

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        with self._errors(path):
            os.utime(self._file(path), ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def open_reader(self, path: str) -> BinaryIO:
        with self._errors(path):
            # Unbuffered: Parquet readers request exact ranges.
            return cast(BinaryIO, open(self._file(path), "rb", buffering=0))

    def open_writer(self, path: str, *, if_absent: bool = False) -> Writer:
        return _LocalWriter(self._file(path), partial(self._errors, path), if_absent=if_absent)

    def try_writing(self) -> None:
        """Raise StorageError if the directory cannot be created or written to. Create no directory."""
        place = self.root
        while not os.path.lexists(place):
            place = os.path.dirname(place)
        # Permissions do not say everything: a file system may be read-only, full, or take no files at all.
        trial = os.path.join(place, f".deltars-trial#{secrets.randbits(63)}")
        with self._errors(""):
            try:
                open(trial, "xb").close()
            except OSError as error:
                error.filename = place  # The user does not know the file.
                raise
        with suppress(OSError):  # A directory that forbids deletion is acceptable.
            os.unlink(trial)

    def url_of(self, path: str) -> str:
        return "file://" + path_to_uri(os.path.join(self.root, path) if path else self.root)

    def _file(self, path: str) -> str:
        if "#" in check_path(path) and _STAGED.fullmatch(path):
            raise ValidationError(
                f"the path {path!r} ends like the name of an unfinished file (#<number>)", field="path"
            )
        return os.path.join(self.root, path)

    def _errors(self, path: str) -> AbstractContextManager[None]:
        return storage_errors(path, self.root)


class _LocalWriter(Writer):
    def __init__(self, file: str, errors: Seam, *, if_absent: bool) -> None:
        super().__init__(errors)
        self._file = file
        self._if_absent = if_absent
        with errors():
            self._staged, descriptor = _open_staged(file)
        self._sink = os.fdopen(descriptor, "wb")

    def _append(self, data: bytes | memoryview) -> None:
        self._sink.write(data)

    def _finish(self) -> bool:
        with self._sink:
            _sync(self._sink)
        if self._if_absent:
            return _create(self._staged, self._file)
        _replace(self._staged, self._file)
        return True

    def _abandon(self) -> None:
        # Closing flushes the buffer, which fails on a full disk. The data is discarded anyway.
        with suppress(OSError):
            self._sink.close()
        with suppress(FileNotFoundError):
            os.unlink(self._staged)


def _remove_below(directory: str) -> None:
    """Remove empty directories, deepest first. Links are not followed."""
    for below, _, _ in os.walk(directory, topdown=False):
        # Usually because it is not empty.
        with suppress(OSError):
            os.rmdir(below)


def _stage(file: str, data: bytes) -> str:
    """Write and sync `data` next to `file`. Return the name of the staged file."""
    staged, descriptor = _open_staged(file)
    try:
        try:
            _write(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError:
        os.unlink(staged)
        raise
    return staged


def _write(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _begin_writing(descriptor: int) -> None:
    """Let the kernel begin to write a file to the disk, without waiting. Only a sync makes sure that it did."""
    if hasattr(os, "posix_fadvise"):
        # Linux begins to write the pages that it is told to drop from memory.
        with suppress(OSError):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def _open_staged(file: str) -> tuple[str, int]:
    """Create a staged file, and its directory if it is missing. Return the file's name and descriptor."""
    staged = f"{file}#{secrets.randbits(63)}"
    for _ in range(ATTEMPTS):
        with suppress(FileNotFoundError):
            return staged, os.open(staged, _NEW, 0o666)
        # A vacuum may remove the directory while it is empty, before the file is in it.
        make_directory(os.path.dirname(file))
    return staged, os.open(staged, _NEW, 0o666)


def _create(staged: str, file: str, *, sync_name: bool = True) -> bool:
    """Give the staged file its final name. Return False if a file of that name exists."""
    try:
        _forget_checksum(file)
        os.link(staged, file)
    except FileExistsError:
        return False
    finally:
        os.unlink(staged)
    if sync_name:
        sync_path(os.path.dirname(file))
    return True


def _replace(staged: str, file: str) -> None:
    try:
        _forget_checksum(file)
        os.replace(staged, file)
    except OSError:
        os.unlink(staged)
        raise
    sync_path(os.path.dirname(file))


def _forget_checksum(file: str) -> None:
    """Delete Hadoop's checksum of an earlier file: Hadoop refuses a file that does not match its `.crc`."""
    directory, name = os.path.split(file)
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(directory, f".{name}.crc"))


def _sync(sink: BinaryIO) -> None:
    sink.flush()
    os.fsync(sink.fileno())


def make_directory(directory: str) -> None:
    """Create a directory and its parents, durably."""
    if os.path.isdir(directory):
        return
    parent = os.path.dirname(directory)
    make_directory(parent)
    with suppress(FileExistsError):
        os.mkdir(directory)
    sync_path(parent)


def sync_path(path: str) -> None:
    """Make a file, or the names in a directory, durable. A synced file whose name is not synced can still be lost."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _walk(directory: str, prefix: str, *, unfinished: bool = False) -> Iterator[ObjectInfo]:
    # Files may be deleted during the walk. A deleted file is not listed.
    with suppress(FileNotFoundError), os.scandir(directory) as entries:
        for entry in entries:
            path = prefix + entry.name
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(entry.path, f"{path}/", unfinished=unfinished)
            elif (_STAGED.fullmatch(entry.name) is not None) is unfinished:
                with suppress(FileNotFoundError):
                    yield _info(path, entry.stat())


def _info(path: str, stat: os.stat_result) -> ObjectInfo:
    return ObjectInfo(path, stat.st_size, datetime.fromtimestamp(stat.st_mtime_ns / 1e9, UTC))
