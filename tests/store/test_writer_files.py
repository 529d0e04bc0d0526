"""Which files are live: removing what is not there, adding what is, deletion vectors as part of a file's identity."""

from __future__ import annotations

from uuid import uuid4

import pytest

from deltars.errors import ValidationError
from deltars.log.commit import Commit, TableCommit
from deltars.protocol import Action
from tests.store.conftest import OpenLog
from tests.support.log import Log, added, removed, stats, vector
from tests.support.tap import Tap
from tests.support.together import Meanwhile

SIZES = pytest.mark.parametrize("threshold", [1_000, 1], ids=["small", "bulk"])
"""The same by both ways into the database: actions go in bulk from this many on."""


def _ends(log: Log) -> list[tuple[str, str, int, int | None]]:
    """Every file there ever was: path, deletion vector, the version that added it and the one that ended it."""
    query = "SELECT path, dv_id, version, removed_version FROM dl_add_files WHERE table_id = ?"
    return sorted(log.rows(query), key=repr)


@SIZES
def test_removing_a_file_that_was_never_there_is_refused(open_log: OpenLog, threshold: int) -> None:
    log = open_log(copy_threshold=threshold).create()
    log.append("a", "b")
    before = log.dump()
    with pytest.raises(ValidationError) as caught:
        log.commit([added("c"), removed("a"), removed("never"), removed("b")])
    assert (caught.value.action, caught.value.field) == (2, "path")
    assert caught.value.table_id == str(log.table_id)
    assert "never is not a live file" in str(caught.value)
    assert log.dump() == before


@SIZES
def test_removing_a_file_twice_is_refused(open_log: OpenLog, threshold: int) -> None:
    log = open_log(copy_threshold=threshold).create()
    log.append("a", "b")
    log.commit([removed("a")])
    with pytest.raises(ValidationError, match="a is not a live file"):
        log.commit([removed("b"), removed("a")])
    assert log.live() == ["b"]
    log.commit([removed("b")])
    assert log.live() == []


@SIZES
def test_removing_a_file_of_another_deletion_vector_is_refused(open_log: OpenLog, threshold: int) -> None:
    log = open_log(copy_threshold=threshold).create()
    log.commit([added("a", deletion_vector=vector(1), stats=stats())])
    for other in (removed("a"), removed("a", deletion_vector=vector(2))):
        with pytest.raises(ValidationError, match="a is not a live file"):
            log.commit([other])
    log.commit([removed("a", deletion_vector=vector(1))])
    assert log.live() == []


@SIZES
def test_removing_a_file_of_another_table_is_refused(open_log: OpenLog, threshold: int) -> None:
    log, other = open_log(copy_threshold=threshold).create(), open_log(name="other").create()
    other.append("theirs")
    with pytest.raises(ValidationError, match="theirs is not a live file"):
        log.commit([removed("theirs")])
    assert other.live() == ["theirs"]


@SIZES
def test_missing_files_are_passed_over_where_the_caller_asks_for_it(open_log: OpenLog, threshold: int) -> None:
    log = open_log(copy_threshold=threshold).create()
    log.append("a", "b")
    log.commit([removed("a"), removed("never"), added("c")], tolerate_missing=True)
    assert log.live() == ["b", "c"]
    # The action is history all the same.
    paths = log.rows("SELECT path FROM dl_remove_files WHERE table_id = ? ORDER BY ord")
    assert sorted(paths) == [("a",), ("never",)]


def test_tolerance_of_one_table_does_not_hide_a_missing_file_of_another(open_log: OpenLog) -> None:
    tolerant, strict = open_log().create(), open_log(name="other").create()
    tolerant.append("a", "b")
    strict.append("x")
    before = strict.dump()
    parts = [
        TableCommit(tolerant.table_id, 1, [removed("a"), removed("b")], "WRITE", tolerate_missing=True),
        TableCommit(strict.table_id, 1, [removed("never")], "WRITE"),
    ]
    with pytest.raises(ValidationError, match="never is not a live file"):
        strict.catalog._session.commit(Commit(uuid4(), parts))
    assert strict.dump() == before


@SIZES
def test_file_that_is_added_again_replaces_its_own_row(open_log: OpenLog, threshold: int) -> None:
    log = open_log(copy_threshold=threshold).create()
    log.commit([added("a", size=1), added("b")])
    log.commit([added("a", size=2, data_change=False), added("c")])
    assert log.live() == ["a", "b", "c"]
    assert _ends(log) == [("a", "", 1, 2), ("a", "", 2, None), ("b", "", 1, None), ("c", "", 2, None)]
    reader = log.catalog._session.reader
    for version, size in ((1, 1), (2, 2)):
        files = reader.snapshot(log.table_id, version).files.to_pylist()
        assert [file["size"] for file in files if file["path"] == "a"] == [size]


@SIZES
def test_file_that_was_removed_can_be_added_again(open_log: OpenLog, threshold: int) -> None:
    log = open_log(copy_threshold=threshold).create()
    log.append("a")
    log.commit([removed("a")])
    log.append("a")
    log.commit([removed("a")])
    assert _ends(log) == [("a", "", 1, 2), ("a", "", 3, 4)]


@SIZES
def test_deletion_vector_replaces_the_file_without_it_in_one_commit(open_log: OpenLog, threshold: int) -> None:
    log = open_log(copy_threshold=threshold).create()
    log.append("a")
    first = added("a", deletion_vector=vector(1), stats=stats())
    log.commit([removed("a"), first])
    log.commit([added("a", deletion_vector=vector(2), stats=stats()), removed("a", deletion_vector=vector(1))])
    assert log.live() == ["a"]
    assert _ends(log) == [
        ("a", "", 1, 2),
        ("a", vector(1).unique_id, 2, 3),
        ("a", vector(2).unique_id, 3, None),
    ]


@SIZES
def test_same_path_in_two_tables_is_two_files(open_log: OpenLog, threshold: int) -> None:
    log, other = open_log(copy_threshold=threshold).create(), open_log(name="other").create()
    for each in (log, other):
        each.append("a")
    log.append("a")
    log.commit([removed("a")])
    assert (log.live(), other.live()) == ([], ["a"])


@SIZES
@pytest.mark.parametrize("second", [[added("same")], [removed("old"), added("same")]], ids=["add", "remove and add"])
def test_writer_that_waited_for_the_lock_supersedes_what_the_first_added(
    open_log: OpenLog, tap: Tap, threshold: int, second: list[Action]
) -> None:
    """Its statement began before the first had committed: it must look again once it has the lock."""
    log = open_log(tap=tap, copy_threshold=threshold).create()
    log.append("old", version=1)
    other = open_log(name="other", copy_threshold=threshold)
    with tap.holding("dl_table_versions (") as hold:
        first = Meanwhile(log.append, "same", version=2, txn_id=uuid4())
        hold.wait_until_reached()
        waiting = Meanwhile(other.writer.commit, log.table_id, 3, second, operation="WRITE")
        waiting.stays_for(0.4)
        hold.release()
        first.result()
        assert waiting.result().version == 3
    assert log.live().count("same") == 1
    assert ("same", "", 2, 3) in _ends(log)


@SIZES
def test_writer_that_waited_cannot_remove_what_the_first_has_removed(
    open_log: OpenLog, tap: Tap, threshold: int
) -> None:
    log = open_log(tap=tap, copy_threshold=threshold).create()
    log.append("a", "b", version=1)
    other = open_log(name="other", copy_threshold=threshold)
    with tap.holding("dl_table_versions (") as hold:
        first = Meanwhile(log.commit, [removed("a")], version=2)
        hold.wait_until_reached()
        waiting = Meanwhile(other.writer.commit, log.table_id, 3, [removed("b"), removed("a")], operation="WRITE")
        waiting.stays_for(0.4)
        hold.release()
        first.result()
        error = waiting.error()
    assert isinstance(error, ValidationError)
    assert "a is not a live file" in str(error)
    assert log.live() == ["b"]


def test_thousands_of_files_can_be_removed_and_replaced_at_once(open_log: OpenLog) -> None:
    log = open_log().create()
    count = 2_500
    log.commit([added(f"{i}") for i in range(count)])
    log.commit([*(removed(f"{i}") for i in range(count)), *(added(f"new-{i}") for i in range(count))])
    assert log.live() == sorted(f"new-{i}" for i in range(count))
    log.commit([added(f"new-{i}", size=7) for i in range(count)])
    assert len(log.live()) == count
    log.commit([removed(f"new-{i}") for i in range(count)], tolerate_missing=True)
    assert log.live() == []
