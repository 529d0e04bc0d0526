"""The statements of a commit as PostgreSQL gets them, in their order."""

from __future__ import annotations

import re
from uuid import uuid4

import pytest

from deltars.errors import VersionConflict
from deltars.log.commit import Commit, TableCommit
from tests.store.conftest import OpenLog
from tests.support.log import Log, added, creation, every_kind
from tests.support.tap import Tap
from tests.support.wire import END_OF_COPY

pytestmark = pytest.mark.backends("postgres")

STEPS = {
    "begin": r"^BEGIN ISOLATION LEVEL READ COMMITTED$",
    "limits": r"set_config\('lock_timeout'",
    "lock": r"^SELECT .*\bdl_tables\b.* ORDER BY .*table_id FOR UPDATE",
    "copy": r"^COPY .*dl_add_files",
    "end of copy": f"^{END_OF_COPY}$",
    "insert actions": r"INSERT INTO \S*dl_add_files\b",
    "insert version": r"INSERT INTO \S*dl_table_versions\b",
    "update current version": r"UPDATE \S*dl_tables SET .*current_version",
    "commit": r"^COMMIT$",
}


def _steps(statements: list[str]) -> list[str]:
    """What the statements do, in the order in which they do it; those of one statement by their place in its text."""
    found = []
    for number, statement in enumerate(statements):
        text = " ".join(statement.split())
        for step, pattern in STEPS.items():
            if place := re.search(pattern, text):
                found.append((number, place.start(), step))
    return [step for _, _, step in sorted(found)]


@pytest.mark.requirement("D-04")
def test_large_commit_begins_locks_copies_and_only_then_moves_the_version(open_log: OpenLog, tap: Tap) -> None:
    log = open_log(tap=tap, copy_threshold=10).create()
    log.append("old", version=1)
    with tap.recording() as statements:
        log.commit(every_kind(2, gone=["old"], files=10), version=2)
    assert _steps(statements) == [
        "begin",
        "limits",
        "lock",
        "copy",
        "end of copy",
        "insert version",
        "update current version",
        "commit",
    ]


@pytest.mark.requirement("D-04")
@pytest.mark.parametrize("count", [1, 9])
def test_small_commit_locks_in_one_statement_and_writes_in_the_next(open_log: OpenLog, tap: Tap, count: int) -> None:
    log = open_log(tap=tap, copy_threshold=10).create()
    log.append("old", version=1)
    with tap.recording() as statements:
        log.commit(every_kind(2, gone=["old"], files=count), version=2)
    begin, limits, lock, write, commit = statements
    assert _steps([begin, limits, lock, commit]) == ["begin", "limits", "lock", "commit"]
    assert _steps([write]) == ["insert actions", "insert version", "update current version"]
    # The lock stands alone: nothing is written by the statement that waits.
    assert not re.search(r"\b(INSERT|UPDATE \w|DELETE)\b", lock.replace("FOR UPDATE", ""))


@pytest.mark.requirement("D-04")
def test_version_is_checked_before_anything_is_written(open_log: OpenLog, tap: Tap) -> None:
    log = open_log(tap=tap, copy_threshold=10).create()
    before = {**log.dump(), "dl_conflicts": []}
    for count in (1, 10):
        with tap.recording() as statements, pytest.raises(VersionConflict):
            log.commit([added(f"{i}") for i in range(count)], version=5)
        assert _steps(statements[:3]) == ["begin", "limits", "lock"]
        if count == 1:
            # Sent with the lock: it writes only if the locked row is as expected.
            write, commit = statements[3:5]
            assert "expected AS" in write
            assert _steps([commit]) == ["commit"]
        else:
            assert statements[3] == "ROLLBACK"
        assert {**log.dump(), "dl_conflicts": []} == before


@pytest.mark.requirement("D-11", "D-04")
def test_tables_are_locked_before_their_actions_and_in_the_order_of_their_ids(open_log: OpenLog, tap: Tap) -> None:
    first = open_log(tap=tap).create()
    logs = [first, *(Log(first.catalog, first.uri, f"table-{number}").create() for number in range(2))]
    for version, order in enumerate((logs, logs[::-1]), start=1):
        parts = [TableCommit(log.table_id, version - 1, [added(f"{version}")], "WRITE") for log in order]
        with tap.recording() as statements:
            first.catalog._session.commit(Commit(uuid4(), parts))
        steps = ["begin", "limits", "lock", "insert actions", "insert version", "update current version", "commit"]
        assert _steps(statements) == steps


@pytest.mark.requirement("D-04")
def test_first_commit_of_a_session_takes_the_same_steps(open_log: OpenLog, tap: Tap) -> None:
    """Statements are prepared once a connection; what runs is the same."""
    log = open_log(tap=tap)
    with tap.recording() as statements:
        log.commit(creation(), version=0)
    assert _steps(statements) == ["begin", "limits", "lock", "insert version", "update current version", "commit"]
