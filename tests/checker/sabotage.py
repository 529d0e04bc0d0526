"""Bugs to be planted in a client, each as a context: what holds transactions apart is taken away, one part at a time.

The pauses make room between looking and writing; they alone break nothing.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock
from uuid import UUID

from sqlalchemy import Select

from deltars.log.commit import Base
from deltars.log.conflicts import find_conflicts
from deltars.log.snapshot import Snapshot
from deltars.store.backends import duckdb
from deltars.store.backends.duckdb import DuckDB
from deltars.store.commit import direct_commit, writer
from deltars.store.commit.writer import LogWriter
from deltars.transaction import settle
from deltars.transaction.read_log import ReadLog
from deltars.transaction.view import View
from tests.support.built_anew import built_anew
from tests.support.racers import unpublished

_with_for_update: Callable[..., Any] = Select.with_for_update
_plan: Callable[..., Any] = LogWriter._plan


def let_others_come() -> None:
    """Time for others to commit. Where transactions take turns, this is where the next one has its turn."""
    time.sleep(random.uniform(0, 0.2))


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
    with built_anew(), pauses(), mock.patch.object(Select, "with_for_update", lambda statement, **_: statement):
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

    with built_anew(), pauses(), mock.patch.object(Select, "with_for_update", lock):
        yield


@contextmanager
def no_version_check() -> Iterator[None]:
    """A table that has moved on is nothing to worry about."""
    with unpublished(), mock.patch.object(LogWriter, "_find_conflict", return_value=None):
        yield


@contextmanager
def everything_is_blind() -> Iterator[None]:
    """What read the table joins a group as if it had not."""
    with unpublished(), mock.patch.object(direct_commit, "_is_blind", return_value=True):
        yield


@contextmanager
def no_cut() -> Iterator[None]:
    """Every read is of now, not of when the transaction began."""

    def snapshot(view: View, table_id: UUID, version: int) -> Snapshot:
        return view.session.reader.snapshot(table_id)

    with unpublished(), mock.patch.object(View, "_snapshot", snapshot):
        yield


@contextmanager
def no_row_reads() -> Iterator[None]:
    """What a statement looked for is not recorded."""
    with unpublished(), mock.patch.object(ReadLog, "rows", return_value=None):
        yield


@contextmanager
def no_union() -> Iterator[None]:
    """A vector takes the place of the winner's, and what that deleted comes back."""
    united = settle._Round._united

    def forgotten(self: Any, obstacle: Any, path: str, theirs: Any, deleted: Any) -> Any:
        vector, rows = united(self, obstacle, path, theirs, deleted)
        return vector, rows - deleted

    with unpublished(), mock.patch.object(settle._Round, "_united", forgotten):
        yield


@contextmanager
def first_obstacle_only() -> Iterator[None]:
    """Once the first obstacle is settled, everything up to the version found counts as judged."""

    def first(*arguments: Any) -> Any:
        verdict = find_conflicts(*arguments)
        return replace(verdict, obstacles=verdict.obstacles[:1])

    with unpublished(), mock.patch.object(writer, "find_conflicts", first):
        yield


@contextmanager
def head_not_judged() -> Iterator[None]:
    """After settling, reads count as made now, and not at the version that was judged."""
    advanced = settle._Round._advanced

    def now(self: Any, mine: Any) -> Any:
        let_others_come()
        version = self._view.session.reader.current_version(self._taken.table_id)
        snapshot = self._view.session.reader.snapshot(self._taken.table_id, version)
        head = Base(version, snapshot.commit[1])
        self._taken = replace(self._taken, actual=version, head=head)
        return advanced(self, mine)

    with unpublished(), mock.patch.object(settle._Round, "_advanced", now):
        yield
