"""Bugs to be planted in a client, each as a context: what holds transactions apart is taken away, one part at a time.

The pauses make room between looking and writing; they alone break nothing.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock
from uuid import UUID

from sqlalchemy import Select

from deltars.log.snapshot import Snapshot
from deltars.store.backends import duckdb
from deltars.store.backends.duckdb import DuckDB
from deltars.store.commit.writer import LogWriter
from deltars.transaction.view import View
from tests.support.racers import unpublished

_with_for_update: Callable[..., Any] = Select.with_for_update
_plan: Callable[..., Any] = LogWriter._plan


@contextmanager
def pauses() -> Iterator[None]:
    """Between the check of a commit and its writing some time passes."""

    def plan(*arguments: Any) -> Any:
        time.sleep(random.uniform(0.005, 0.02))
        return _plan(*arguments)

    with unpublished(), mock.patch.object(LogWriter, "_plan", plan):
        yield


@contextmanager
def no_lock() -> Iterator[None]:
    """Tables are looked at, but not locked."""
    with pauses(), mock.patch.object(Select, "with_for_update", lambda statement, **_: statement):
        yield


@contextmanager
def no_turn() -> Iterator[None]:
    """Threads that write to DuckDB do not wait for each other."""

    class FreeTurn(DuckDB):
        _turn = property(lambda _: mock.MagicMock(), lambda *_: None)

    with pauses(), mock.patch.object(duckdb, "DuckDB", FreeTurn):
        yield


@contextmanager
def no_read_lock() -> Iterator[None]:
    """Tables that are only read are looked at, but not locked."""

    def lock(statement: Select[Any], *, read: bool = False, **options: Any) -> Any:
        return statement if read else _with_for_update(statement, **options)

    with pauses(), mock.patch.object(Select, "with_for_update", lock):
        yield


@contextmanager
def no_version_check() -> Iterator[None]:
    """A table that has moved on is nothing to worry about."""
    with unpublished(), mock.patch.object(LogWriter, "_find_conflict", return_value=None):
        yield


@contextmanager
def no_cut() -> Iterator[None]:
    """Every read is of now, not of when the transaction began."""

    def snapshot(view: View, table_id: UUID, version: int) -> Snapshot:
        return view.session.reader.snapshot(table_id)

    with unpublished(), mock.patch.object(View, "_snapshot", snapshot):
        yield
