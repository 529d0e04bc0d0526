"""Storage, or a database, that goes wrong at a chosen step: the process dies, the call fails, the answer is lost."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Self, TypeAlias

import pytest

from deltars.catalog import copies as copies_module
from deltars.catalog import unfinished_copies as unfinished_module
from deltars.errors import StorageError
from deltars.mirror import publisher as publisher_module
from deltars.storage import ObjectInfo, Storage, Writer
from deltars.storage.local import LocalStorage
from deltars.storage.location import parse_location
from deltars.transaction import create_table as creation_module
from deltars.transaction import restoration as restoration_module

Step: TypeAlias = Callable[[str, str], None]
"""Takes what is about to be done, and to which file."""


class SteppingStorage(LocalStorage):
    """Local disk, with a step before every call."""

    step: Step
    after: Step

    def get_or_none(self, path: str) -> bytes | None:
        self.step("get", path)
        return super().get_or_none(path)

    def put_if_absent(self, path: str, data: bytes, *, sync_name: bool = True) -> bool:
        self.step("create", path)
        created = super().put_if_absent(path, data, sync_name=sync_name)
        self.after("create", path)
        return created

    def sync_names(self, directory: str) -> None:
        self.step("sync", directory)
        super().sync_names(directory)

    def put(self, path: str, data: bytes) -> None:
        self.step("put", path)
        super().put(path, data)
        self.after("put", path)

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self.step("touch", path)
        super().set_modified_ms(path, modified_ms)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        self.step("list", prefix)
        return super().list(prefix)

    def head(self, path: str) -> ObjectInfo | None:
        self.step("head", path)
        return super().head(path)

    def delete(self, paths: Iterable[str]) -> None:
        named = list(paths)
        self.step("delete", ", ".join(named))
        super().delete(named)

    def open_writer(self, path: str, *, if_absent: bool = False) -> Writer:
        self.step("open", path)
        writer = super().open_writer(path, if_absent=if_absent)
        finish = writer._finish

        def finish_stepping() -> bool:
            self.step("close", path)
            return finish()

        writer._finish = finish_stepping  # type: ignore[method-assign]
        return writer


@contextmanager
def stepping(monkeypatch: pytest.MonkeyPatch, step: Step, after: Step = lambda what, path: None) -> Iterator[None]:
    def open_storage(location: str, options: object = None) -> Storage:
        storage = SteppingStorage(parse_location(location))
        storage.step, storage.after = step, after
        return storage

    with monkeypatch.context() as patch:
        for module in (publisher_module, restoration_module, creation_module, copies_module, unfinished_module):
            patch.setattr(module, "open_storage", open_storage)
        yield


@contextmanager
def stepping_statements(monkeypatch: pytest.MonkeyPatch, step: Step) -> Iterator[None]:
    """SQLite connections that are opened in the block take a step before every statement and every COMMIT."""

    class Cursor(sqlite3.Cursor):
        def execute(self, sql: str, *args: Any) -> Self:
            step("execute", sql)
            return super().execute(sql, *args)

    class Connection(sqlite3.Connection):
        def cursor(self, factory: Any = Cursor) -> Any:
            return super().cursor(factory)

        def commit(self) -> None:
            step("commit", "")
            super().commit()

    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Connection))
        yield


class DyingAt:
    """kill -9 of this very process, before its nth step."""

    def __init__(self, number: int) -> None:
        self._left = number

    def __call__(self, what: str, path: str) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


class FailingAt:
    """The nth step fails, in a store or in a database."""

    def __init__(self, number: int) -> None:
        self._left = number

    @property
    def has_failed(self) -> bool:
        return self._left <= 0

    def __call__(self, what: str, path: str) -> None:
        self._left -= 1
        if self._left == 0:
            raise (
                sqlite3.OperationalError("disk I/O error")
                if what in ("execute", "commit")
                else StorageError("503 Slow Down", path=path, retryable=True)
            )


class FailingOneIn:
    """One step in n fails, as in an overloaded store; in no rhythm, which could hit the same step of every try."""

    def __init__(self, number: int, error: str = "503 Slow Down") -> None:
        self._number = number
        self._error = error
        self._random = random.Random(number)
        self.failures = 0

    def __call__(self, what: str, path: str) -> None:
        if self._random.randrange(self._number) == 0:
            self.failures += 1
            raise StorageError(self._error, path=path, retryable=True)


class Unsteady:
    """Now and then a step is slow, refused, or overtaken by another's."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.failures = 0

    def __call__(self, what: str, path: str) -> None:
        drawn = self._random.random()
        if drawn < 0.05:
            time.sleep(0.02)
        elif drawn < 0.15:
            self.failures += 1
            error = "503 Slow Down" if drawn < 0.1 else "412 Precondition Failed"
            raise StorageError(error, path=path, retryable=True)
