"""Whatever fails, and wherever: the database is as it was, and the next commit goes through."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest

import deltars
from deltars.log.commit import Commit, Committed, TableCommit
from deltars.log.new_table import NO_VERSION, NewTable
from tests.store.conftest import OpenLog
from tests.support.log import Log, added, creation, every_kind, row_groups
from tests.support.tap import Tap

THRESHOLD = 20
"""Small enough for the bulk way to be tried in little time."""


def _commit_of_all_kinds(log: Log, version: int, *, files: int) -> Committed:
    gone = [f"{version}-gone-{i}.parquet" for i in range(files)]
    groups = [group for i in range(files) for group in row_groups(f"{version}-{i}.parquet")]
    return log.commit_data(every_kind(version, gone=gone, files=files), version, row_groups=groups)


@pytest.mark.requirement("W-02", "D-18")
@pytest.mark.parametrize("files", [2, THRESHOLD + 1], ids=["small", "bulk"])
@pytest.mark.promise("N3")
def test_each_statement_failing_in_turn_leaves_the_database_as_it_was(open_log: OpenLog, tap: Tap, files: int) -> None:
    log = open_log(tap=tap, copy_threshold=THRESHOLD).create()
    log.commit([added(f"{version}-gone-{i}.parquet") for version in (2, 3, 4) for i in range(files)])
    with tap.recording() as statements:
        _commit_of_all_kinds(log, 2, files=files)
    assert statements[-1] == "COMMIT"
    before = log.dump()
    for number, statement in enumerate(statements, start=1):
        with tap.failing(number), pytest.raises(deltars.DeltarsError):
            _commit_of_all_kinds(log, 3, files=files)
        assert log.dump() == before, f"left by the failure of {statement}"
    _commit_of_all_kinds(log, 3, files=files)
    assert log.version == 3


@pytest.mark.requirement("W-02", "D-18")
@pytest.mark.backends(
    "sqlite", "duckdb"
)  # on PostgreSQL there is no way in between: see the tests of a lost connection
@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt, RuntimeError])
def test_program_failing_between_any_two_statements_leaves_the_database_as_it_was(
    open_log: OpenLog, tap: Tap, error: type[BaseException]
) -> None:
    log = open_log(tap=tap).create()
    log.append("a")
    with tap.recording() as statements:
        log.append("b")
    before = log.dump()
    # Before the first statement there is nothing to undo; it is BEGIN.
    for number in range(2, len(statements) + 1):
        with tap.judging(_raising(tap, number, error)), pytest.raises(error):
            log.append("c", version=3)
        assert log.dump() == before
    assert log.append("c").version == 3


def _raising(tap: Tap, number: int, error: type[BaseException]) -> Callable[[str], Any]:
    start = len(tap.statements)

    def judge(statement: str) -> None:
        if len(tap.statements) - start == number:
            raise error

    return judge


@pytest.mark.requirement("W-02", "D-18")
def test_each_statement_failing_in_turn_leaves_no_trace_of_a_table_that_was_to_be_created(
    open_log: OpenLog, tap: Tap
) -> None:
    log = open_log(tap=tap).create()

    def create(name: str) -> UUID:
        table = NewTable(uuid4(), name, f"{log.catalog.warehouse}/{name}")
        parts = [
            TableCommit(table.table_id, NO_VERSION, creation(), "CREATE TABLE"),
            TableCommit(log.table_id, log.version, [added(f"{name}.parquet")], "WRITE"),
        ]
        log.catalog._session.commit(Commit(uuid4(), parts, new_tables=[table]))
        return table.table_id

    with tap.recording() as statements:
        create("first")
    before = log.dump()
    for number, statement in enumerate(statements, start=1):
        with tap.failing(number), pytest.raises(deltars.DeltarsError):
            create("second")
        assert log.dump() == before, f"left by the failure of {statement}"
    create("second")
    assert log.catalog.table_exists("second")
