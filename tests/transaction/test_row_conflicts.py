"""Row-level changes that meet: who may follow whom, by rows and not by files, on every backend."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import deltars
from deltars.errors import (
    ConcurrentAppend,
    ConcurrentDeleteDelete,
    ConcurrentDeleteRead,
    MetadataChanged,
    ValidationError,
    VersionConflict,
)
from deltars.protocol import AddFile, DeletionVector
from deltars.store.commit import concurrent_commits, writer
from deltars.transaction import settle
from tests.support.lake import Lake, OpenLake
from tests.support.log import metadata, removed
from tests.support.row_changes import data_file, delete, insert_absent, read_rows, rows_of, update, upsert

SETTLING = ("serializable", "write_serializable", "snapshot")
SERIALIZABLE = SETTLING[:2]

Change = Callable[[deltars.Transaction], Any]


def _write(lake: Lake, *files: dict[int, str | None], table: str = "t") -> list[AddFile]:
    adds = [data_file(lake.catalog.table(table).location, rows) for rows in files]
    lake[table].commit(adds)
    return adds


def _old(*ids: int) -> dict[int, str | None]:
    return dict.fromkeys(ids, "old")


def _race(lake: Lake, mine: Change, *theirs: Change, level: str) -> deltars.Transaction:
    """Begin, make my change, let the others commit theirs; the rest is the caller's."""
    tx = lake.begin(isolation=level)
    mine(tx)
    for change in theirs:
        with lake.begin(isolation=level) as other:
            change(other)
    return tx


def _delete(where: str, **options: Any) -> Change:
    return lambda tx: delete(tx, "t", where, **options)


def _update(where: str, name: str, **options: Any) -> Change:
    return lambda tx: update(tx, "t", where, name, **options)


def _upsert(*ids: int, name: str = "new", **options: Any) -> Change:
    return lambda tx: upsert(tx, "t", dict.fromkeys(ids, name), **options)


def _insert(*ids: int, **options: Any) -> Change:
    return lambda tx: insert_absent(tx, "t", dict.fromkeys(ids, "new"), **options)


def _refused(tx: deltars.Transaction, rule: type[VersionConflict], version: int) -> VersionConflict:
    with pytest.raises(VersionConflict) as caught:
        tx.commit()
    error = caught.value
    assert (type(error), error.winning_version, error.table) == (rule, version, "t"), error
    return error


# -- rows of one file ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", SETTLING)
def test_disjoint_rows_of_one_file_both_go(open_lake: OpenLake, level: str) -> None:
    lake = open_lake("t")
    _write(lake, _old(*range(10)))
    tx = _race(lake, _delete("id < 2"), _delete("id = 5"), _update("id = 7", "theirs"), level=level)
    assert tx.commit().versions == {"t": 4}
    left = [(number, "theirs" if number == 7 else "old") for number in (2, 3, 4, 6, 7, 8, 9)]
    assert rows_of(lake.catalog, "t") == left
    [entry, *_] = lake.catalog.table("t").history()
    assert (entry.read_version, entry.isolation) == (3, level)


@pytest.mark.parametrize("level", SETTLING)
def test_same_row_is_changed_once(open_lake: OpenLake, level: str) -> None:
    lake = open_lake("t")
    [file] = _write(lake, _old(*range(10)))
    tx = _race(lake, _update("id IN (1, 2)", "mine"), _delete("id = 9"), _update("id = 2", "theirs"), level=level)
    error = _refused(tx, ConcurrentDeleteDelete, 3)
    assert f"version 3 changed a row of {file.path} that this transaction changes too" in error.message
    assert (error.expected, error.actual, error.stage) == (1, 3, "check")
    assert (2, "theirs") in rows_of(lake.catalog, "t")
    assert (1, "old") in rows_of(lake.catalog, "t")


def test_strict_is_strict(open_lake: OpenLake) -> None:
    lake = open_lake("t")
    _write(lake, _old(*range(10)))
    tx = _race(lake, _delete("id < 2"), _delete("id = 5"), level="strict")
    with pytest.raises(VersionConflict) as caught:
        tx.commit()
    assert type(caught.value) is VersionConflict


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("level", SETTLING)
def test_vector_that_became_another_before_is_extended(open_lake: OpenLake, level: str) -> None:
    """Rows deleted before the transaction began, by each winner, and by itself, in vectors too large for the log."""
    lake = open_lake("t")
    _write(lake, _old(*range(0, 3_000)))
    with lake.begin() as tx:
        delete(tx, "t", "id BETWEEN 10 AND 19")
    tx = _race(
        lake, _delete("name = 'old' AND id < 5"), _delete("id BETWEEN 100 AND 2000"), _delete("id > 2500"), level=level
    )
    tx.commit()
    assert [number for number, _ in rows_of(lake.catalog, "t")] == [*range(5, 10), *range(20, 100), *range(2001, 2501)]


@pytest.mark.backends("sqlite")
def test_file_of_which_the_union_deletes_every_row_is_removed(open_lake: OpenLake) -> None:
    lake = open_lake("t")
    [_, other] = _write(lake, _old(1, 2, 3), _old(7))
    _race(lake, _delete("id < 3"), _delete("id = 3"), level="serializable").commit()
    assert lake["t"].live() == [other.path]


@pytest.mark.backends("sqlite")
def test_file_rewritten_by_the_one_cannot_get_a_vector_of_the_other(open_lake: OpenLake) -> None:
    lake = open_lake("t")
    for mine, theirs in ((True, False), (False, True), (False, False)):
        _write(lake, _old(*range(10)))
        began = lake["t"].version
        tx = _race(
            lake, _delete("id = 1", vectors=mine), _delete("id = 5", vectors=theirs, tests_rows=True), level="snapshot"
        )
        _refused(tx, ConcurrentDeleteDelete, began + 1)
        with lake.begin() as tx:
            delete(tx, "t", "TRUE")


@pytest.mark.backends("sqlite")
def test_rows_that_came_back_are_a_conflict(open_lake: OpenLake) -> None:
    lake = open_lake("t")
    [file] = _write(lake, _old(*range(10)))
    with lake.begin() as tx:
        delete(tx, "t", "id = 1")
    [old] = lake.catalog.table("t").files()["deletion_vector"].to_pylist()
    tx = lake.begin(isolation="serializable")
    delete(tx, "t", "id < 3")
    lake["t"].commit([removed(file.path, deletion_vector=msgspec.json.decode(old, type=DeletionVector)), file])
    _refused(tx, ConcurrentDeleteDelete, 3)


# -- rows that others add --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", SERIALIZABLE)
def test_interleaved_absent_keys_are_both_inserted(open_lake: OpenLake, level: str) -> None:
    """The winner's file spans the loser's keys, but holds none of them."""
    lake = open_lake("t")
    _write(lake, _old(*range(10)))
    tx = _race(lake, _upsert(2005, 2015), _upsert(2000, 2010, 2020), level=level)
    assert tx.commit().versions == {"t": 3}
    assert len(rows_of(lake.catalog, "t")) == 15


@pytest.mark.parametrize("level", SERIALIZABLE)
@pytest.mark.parametrize("tests_rows", [True, False])
@pytest.mark.parametrize("change", [_upsert, _insert])
def test_two_merges_of_one_absent_key_never_both_insert(
    open_lake: OpenLake, level: str, tests_rows: bool, change: Callable[..., Change]
) -> None:
    lake = open_lake("t")
    _write(lake, _old(*range(10)))
    tx = _race(lake, change(50, 60, tests_rows=tests_rows), change(40, 60, 70), level=level)
    error = _refused(tx, ConcurrentAppend, 2)
    assert "which this transaction would have read" in error.message
    assert [number for number, _ in rows_of(lake.catalog, "t")].count(60) == 1


@pytest.mark.backends("sqlite")
def test_new_file_is_a_conflict_if_its_rows_cannot_be_tested(open_lake: OpenLake) -> None:
    lake = open_lake("t")
    tx = _race(lake, _upsert(2005, tests_rows=False), _upsert(2000, 2010), level="serializable")
    _refused(tx, ConcurrentAppend, 1)


@pytest.mark.backends("sqlite")
def test_blind_append_of_a_matching_row_counts_under_serializable_only(open_lake: OpenLake) -> None:
    lake = open_lake("t")
    for level in SETTLING:
        began = lake["t"].version
        tx = lake.begin(isolation=level)
        upsert(tx, "t", {5: "mine"})
        _write(lake, {1: "theirs", 5: "theirs", 9: "theirs"})
        if level == "serializable":
            _refused(tx, ConcurrentAppend, began + 1)
        else:
            tx.commit()


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("level", SERIALIZABLE)
@pytest.mark.parametrize("vectors", [True, False], ids=["vectors", "rewritten"])
def test_other_partition_or_range_is_nobodys_business(open_lake: OpenLake, level: str, vectors: bool) -> None:
    lake = open_lake("t")
    _write(lake, _old(*range(10)), _old(*range(10, 20)))
    tx = _race(
        lake, _update("id = 3", "mine", vectors=vectors), _update("id = 13", "theirs", vectors=vectors), level=level
    )
    tx.commit()
    assert {(3, "mine"), (13, "theirs")} <= set(rows_of(lake.catalog, "t"))


@pytest.mark.parametrize("level", SERIALIZABLE)
def test_disjoint_partitions_both_change(open_lake: OpenLake, level: str) -> None:
    """The ids are the same in both, and of the one's new files there is no reading of a row."""
    lake = open_lake("t")
    lake["t"].commit([metadata("id BIGINT, name STRING, part STRING", partition_columns=["part"])])
    location = lake.catalog.table("t").location

    def part(name: str) -> AddFile:
        return data_file(location, _old(*range(10)), partition_values={"part": name})

    lake["t"].commit([part("a"), part("b")])

    def theirs(tx: deltars.Transaction) -> None:
        delete(tx, "t", "part = 'b' AND id < 5")
        tx.stage("t", [part("b")])

    tx = _race(lake, _delete("part = 'a' AND id < 5", tests_rows=False), theirs, level=level)
    tx.commit()
    assert len(rows_of(lake.catalog, "t")) == 20


@pytest.mark.backends("sqlite")
def test_every_row_matches_a_condition_without_columns(open_lake: OpenLake, caplog: pytest.LogCaptureFixture) -> None:
    lake = open_lake("t")
    _write(lake, _old(1, 2))
    tx = _race(lake, _delete("TRUE"), _upsert(7), level="serializable")
    _refused(tx, ConcurrentAppend, 2)
    assert "could not be settled" not in caplog.text


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("level", SERIALIZABLE)
def test_rewritten_file_that_was_searched_in_vain_does_not_matter(open_lake: OpenLake, level: str) -> None:
    """Both files may hold the key by their ranges. The winner rewrites the one that does not."""
    lake = open_lake("t")
    _write(lake, _old(0, 5, 10), _old(1, 11))
    tx = _race(lake, _update("id = 5", "mine", vectors=False), _update("id = 11", "theirs", vectors=False), level=level)
    tx.commit()
    assert rows_of(lake.catalog, "t") == [(0, "old"), (1, "old"), (5, "mine"), (10, "old"), (11, "theirs")]


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("vectors", [True, False], ids=["vectors", "rewritten"])
def test_merge_that_found_its_key_depends_on_the_row(open_lake: OpenLake, vectors: bool) -> None:
    """It inserts nothing because the key is there. If the winner deletes that row, it would have inserted."""
    lake = open_lake("t", "other")
    _write(lake, _old(1, 2, 3))

    def keep(tx: deltars.Transaction) -> None:
        assert insert_absent(tx, "t", {2: "mine"}) == {}
        tx.stage("other", [data_file(lake.catalog.table("other").location, {1: "x"})])

    tx = _race(lake, keep, _delete("id = 3", vectors=vectors), level="serializable")
    if vectors:
        tx.commit()
    else:
        # The file that was written again holds the key too: nobody can tell it from a new one.
        _refused(tx, ConcurrentAppend, 2)
    began = lake["t"].version
    tx = _race(lake, keep, _delete("id = 2", vectors=vectors), level="serializable")
    _refused(tx, ConcurrentDeleteRead, began + 1)


# -- compaction ------------------------------------------------------------------------------------------------------


def _compact(lake: Lake, *files: AddFile, into: dict[int, str | None]) -> AddFile:
    new = data_file(lake.catalog.table("t").location, into, data_change=False)
    lake["t"].commit([*(removed(file.path, data_change=False) for file in files), new])
    return new


@pytest.mark.parametrize("level", SETTLING)
def test_compaction_does_not_stop_a_change_of_other_files(open_lake: OpenLake, level: str) -> None:
    lake = open_lake("t")
    [first, second, _] = _write(lake, _old(0, 9), _old(1, 8), _old(4, 5))
    tx = lake.begin(isolation=level)
    update(tx, "t", "id = 5", "mine")
    _compact(lake, first, second, into=_old(0, 9, 1, 8))
    tx.commit()
    assert rows_of(lake.catalog, "t") == [*((n, "old") for n in (0, 1, 4)), (5, "mine"), (8, "old"), (9, "old")]


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("level", SETTLING)
def test_compaction_of_a_changed_file_is_a_conflict_whoever_comes_first(open_lake: OpenLake, level: str) -> None:
    lake = open_lake("t")
    [first, second] = _write(lake, _old(0, 9), _old(1, 8))
    tx = lake.begin(isolation=level)
    delete(tx, "t", "id = 9")
    compaction = lake.begin(isolation=level)
    new = data_file(lake.catalog.table("t").location, _old(0, 9, 1, 8), data_change=False)
    compaction.stage("t", [*(removed(one.path, data_change=False) for one in (first, second)), new])
    with lake.begin() as other:
        delete(other, "t", "id = 1")
    _refused(compaction, ConcurrentDeleteDelete, 2)
    _compact(lake, first, into=_old(0, 9))
    _refused(tx, ConcurrentDeleteDelete, 3)


@pytest.mark.backends("sqlite")
def test_row_that_was_moved_and_then_deleted_is_a_conflict(open_lake: OpenLake) -> None:
    lake = open_lake("t", "other")
    [first, second] = _write(lake, _old(1, 2), _old(8, 9))
    tx = lake.begin(isolation="serializable")
    assert insert_absent(tx, "t", {2: "mine"}) == {}
    tx.stage("other", [data_file(lake.catalog.table("other").location, {1: "x"})])
    _compact(lake, first, second, into=_old(1, 2, 8, 9))
    with lake.begin() as other:
        delete(other, "t", "id = 2")
    _refused(tx, ConcurrentDeleteRead, 3)


# -- rounds, tables, limits ------------------------------------------------------------------------------------------


def test_winner_that_comes_while_rows_are_read_is_judged_too(
    open_lake: OpenLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = open_lake("t")
    _write(lake, _old(*range(20)))
    rounds: list[int] = []
    settled = settle._Round.settled

    def late(self: Any) -> Any:
        rounds.append(self._taken.actual)
        found = settled(self)
        if len(rounds) < 4:
            with lake.begin(isolation="serializable") as other:
                delete(other, "t", f"id = {10 + len(rounds)}")
        return found

    monkeypatch.setattr(settle._Round, "settled", late)
    tx = _race(lake, _delete("id < 2"), _delete("id = 10"), level="serializable")
    assert tx.commit().versions == {"t": 6}
    assert rounds == [2, 3, 4, 5]
    assert [number for number, _ in rows_of(lake.catalog, "t")] == [*range(2, 10), *range(14, 20)]


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("bad", ["same row", "metadata", "file removed", "absent key"])
def test_winner_that_comes_while_rows_are_read_may_refuse(
    open_lake: OpenLake, monkeypatch: pytest.MonkeyPatch, bad: str
) -> None:
    lake = open_lake("t")
    _write(lake, _old(*range(20)), _old(90))
    rounds: list[int] = []
    settled = settle._Round.settled

    def late(self: Any) -> Any:
        found = settled(self)
        if not rounds:
            rounds.append(1)
            with lake.begin(isolation="serializable") as other:
                if bad == "same row":
                    delete(other, "t", "id = 1")
                elif bad == "metadata":
                    other.stage("t", [metadata(description="changed")])
                elif bad == "file removed":
                    delete(other, "t", "id < 20 AND id > 1", vectors=False)
                else:
                    upsert(other, "t", {50: "theirs"})
        return found

    monkeypatch.setattr(settle._Round, "settled", late)

    def mine(tx: deltars.Transaction) -> None:
        delete(tx, "t", "id < 2")
        upsert(tx, "t", {50: "mine"})

    tx = _race(lake, mine, _delete("id = 10"), level="serializable")
    rule = {"metadata": MetadataChanged, "absent key": ConcurrentAppend}.get(bad, ConcurrentDeleteDelete)
    error = _refused(tx, rule, 3)
    assert (error.expected, error.actual) == (1, 3)
    assert (50, "mine") not in rows_of(lake.catalog, "t")


@pytest.mark.backends("sqlite")
def test_conflict_stands_after_some_rounds(open_lake: OpenLake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = open_lake("t")
    _write(lake, _old(*range(20)))
    settled, others = settle._Round.settled, iter(range(10, 20))

    def late(self: Any) -> Any:
        found = settled(self)
        with lake.begin(isolation="serializable") as other:
            delete(other, "t", f"id = {next(others)}")
        return found

    tx = _race(lake, _delete("id < 2"), _delete("id = 9"), level="serializable")
    monkeypatch.setattr(settle._Round, "settled", late)
    error = _refused(tx, ConcurrentDeleteDelete, 2 + settle.MAX_ROUNDS)
    assert error.actual == 2 + settle.MAX_ROUNDS


def test_every_table_is_judged_from_its_own_head(open_lake: OpenLake) -> None:
    lake = open_lake("t", "u", "read")
    for name in ("t", "u", "read"):
        _write(lake, _old(*range(10)), table=name)

    def race(bad: str | None) -> deltars.Transaction:
        tx = lake.begin(isolation="serializable")
        delete(tx, "t", "id = 1")
        delete(tx, "u", "id = 1")
        insert_absent(tx, "read", {20: "mine"})
        for name in ("t", "u"):
            with lake.begin(isolation="serializable") as other:
                delete(other, name, "id = 5")
        if bad:
            with lake.begin(isolation="serializable") as other:
                delete(other, bad, "id = 1")
        return tx

    tx = race("u")
    with pytest.raises(ConcurrentDeleteDelete) as caught:
        tx.commit()
    assert caught.value.table == "u"
    assert [len(rows_of(lake.catalog, name)) for name in ("t", "u", "read")] == [9, 8, 10]
    with lake.begin(isolation="serializable") as tx:
        upsert(tx, "u", {1: "again", 5: "again"})
        upsert(tx, "t", {5: "again"})
    tx = race(None)
    tx.commit()
    assert [len(rows_of(lake.catalog, name)) for name in ("t", "u", "read")] == [8, 8, 11]


@pytest.mark.backends("sqlite")
def test_table_that_was_only_searched_is_settled_too(open_lake: OpenLake) -> None:
    lake = open_lake("t", "other")
    _write(lake, _old(*range(10)))

    def look(tx: deltars.Transaction) -> None:
        assert insert_absent(tx, "t", {5: "mine"}) == {}
        tx.stage("other", [data_file(lake.catalog.table("other").location, {1: "x"})])
        # Nothing is staged for t, so it is only read.

    tx = _race(lake, look, _upsert(4, 6), level="serializable")
    assert "other" in tx.commit().versions


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("limit", ["MAX_FILES", "MAX_BYTES", "MAX_VECTORS"])
def test_too_much_to_look_at_leaves_the_conflict(
    open_lake: OpenLake, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(settle, limit, 0)
    lake = open_lake("t")
    _write(lake, _old(*range(10)))
    change, other, rule = (
        (_delete("id = 1"), _delete("id = 5"), ConcurrentDeleteDelete)
        if limit == "MAX_VECTORS"
        else (_upsert(50), _upsert(40, 60), ConcurrentAppend)
    )
    _refused(_race(lake, change, other, level="serializable"), rule, 2)


@pytest.mark.backends("sqlite")
def test_rows_that_cannot_be_read_leave_the_conflict(open_lake: OpenLake, caplog: pytest.LogCaptureFixture) -> None:
    lake = open_lake("t")
    tx = lake.begin(isolation="serializable")
    upsert(tx, "t", {50: "mine"})
    [file] = _write(lake, _old(40, 60))
    Path(lake.catalog.table("t").location, file.path).unlink()
    _refused(tx, ConcurrentAppend, 1)
    assert "could not be settled" in caplog.text


@pytest.mark.backends("sqlite")
def test_frame_handed_to_the_user_keeps_the_rule_of_files(open_lake: OpenLake) -> None:
    lake = open_lake("t")
    _write(lake, _old(*range(10)))

    def mine(tx: deltars.Transaction) -> None:
        assert read_rows(tx, "t", "id = 1")
        delete(tx, "t", "id = 1")

    _refused(_race(lake, mine, _delete("id = 5"), level="serializable"), ConcurrentDeleteRead, 2)
    assert _race(lake, mine, _delete("id = 6"), level="snapshot").commit().versions == {"t": 4}


@pytest.mark.parametrize("many", [1, 100], ids=["judged by the database first", "judged here"])
def test_keys_are_sent_to_the_database_as_their_range(
    open_lake: OpenLake, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    monkeypatch.setattr(concurrent_commits, "MANY_COMMITS", many)
    lake = open_lake("t")
    _write(lake, _old(*range(10)), _old(*range(100, 110)))
    theirs = (_upsert(20, 30), _delete("id = 101"), _upsert(60), _delete("id = 7"))
    _race(lake, _upsert(5, 50), *theirs, level="serializable").commit()
    assert {number for number, name in rows_of(lake.catalog, "t") if name == "new"} == {5, 20, 30, 50, 60}
    tx = _race(lake, _upsert(40, 70), _upsert(1, 40, 99), level="serializable")
    _refused(tx, ConcurrentAppend, lake["t"].version)


def test_write_finds_what_the_check_missed(open_lake: OpenLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second line: a file that another commit took away is a conflict, one that never was is a mistake."""
    lake = open_lake("t")
    [file] = _write(lake, _old(*range(10)))
    tx = _race(lake, _delete("id = 1"), _delete("id = 5"), level="serializable")
    monkeypatch.setattr(writer.LogWriter, "_find_conflict", lambda *_: None)
    before = lake.dump()
    error = _refused(tx, ConcurrentDeleteDelete, 2)
    assert f"removed {file.path}" in error.message
    assert lake.dump() == before
    with pytest.raises(ValidationError), lake.begin(isolation="serializable") as tx:
        tx.stage("t", [removed("never")])
