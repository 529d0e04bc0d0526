"""The levels of isolation, end to end: who may follow whom, and what the others are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

from deltars.errors import (
    ConcurrentAppend,
    ConcurrentDeleteDelete,
    ConcurrentDeleteRead,
    ConcurrentTransaction,
    MetadataChanged,
    ProtocolChanged,
    VersionConflict,
)
from deltars.protocol import DomainMetadata, Txn
from deltars.store.commit import concurrent_commits
from tests.support.lake import Lake, OpenLake
from tests.support.log import FEATURES, added, metadata, protocol, removed

LEVELS = ("strict", "serializable", "write_serializable", "snapshot")
REBASING = LEVELS[1:]


def _file(path: str, low: int, high: int, **fields: Any) -> Any:
    stats = f'{{"numRecords":10,"minValues":{{"id":{low}}},"maxValues":{{"id":{high}}},"nullCount":{{"id":0}}}}'
    return added(path, stats=stats, **fields)


def _refused(lake: Lake, tx: Any, rule: type[VersionConflict], table: str = "a", *, began: int, actual: int) -> None:
    before = lake.dump()
    with pytest.raises(VersionConflict) as caught:
        tx.commit()
    error = caught.value
    assert type(error) is rule, error
    assert (error.table, error.table_id) == (table, str(lake[table].table_id))
    assert (error.expected, error.actual, error.stage, error.txn_id) == (began, actual, "check", tx.id)
    assert error.winning_version == (began + 1 if rule is VersionConflict else actual)
    assert lake.dump() == before


def test_blind_appends_are_rebased_except_under_strict(open_lake: OpenLake) -> None:
    lake = open_lake("a", "b")
    for level in LEVELS:
        began = lake["a"].version
        tx = lake.begin(isolation=level)
        tx.stage("a", [added(f"mine-{level}")])
        tx.stage("b", [added(f"mine-{level}")])
        lake["a"].append(f"theirs-{level}")
        lake["a"].commit([removed(f"theirs-{level}")])
        if level == "strict":
            _refused(lake, tx, VersionConflict, began=began, actual=began + 2)
        else:
            assert tx.commit().versions["a"] == began + 3
            [entry, *_] = lake.catalog.table("a").history()
            assert (entry.read_version, entry.isolation, entry.is_blind_append) == (began, level, True)
    assert lake["a"].live() == sorted(f"mine-{level}" for level in REBASING)


def test_blind_append_through_an_arrow_frame_is_rebased_too(open_lake: OpenLake) -> None:
    lake = open_lake("a")
    lake.catalog.write("a", _frame(1))
    tx = lake.begin(isolation="serializable")
    tx.write("a", _frame(2))
    lake.catalog.write("a", _frame(3))
    assert tx.commit().versions == {"a": 3}


def _frame(value: int) -> Any:
    return pa.table({"id": [value]})


def test_who_read_the_whole_table_may_not_follow_an_append_to_it(open_lake: OpenLake) -> None:
    lake = open_lake("a", "b")
    for level, rule in zip(LEVELS, (VersionConflict, ConcurrentAppend, None, None), strict=True):
        began = lake["a"].version
        tx = lake.begin(isolation=level)
        tx.files("a")
        tx.stage("a", [added(f"mine-{level}")])
        lake["a"].append(f"theirs-{level}")
        if rule is None:
            # write_serializable passes over a winner's blind append; snapshot does not look at what was read.
            assert tx.commit().versions == {"a": began + 2}
        else:
            _refused(lake, tx, rule, began=began, actual=began + 1)


def test_table_that_was_only_read_counts_as_one_that_is_written(open_lake: OpenLake) -> None:
    lake = open_lake("a", "b")
    for level, rule in zip(LEVELS, (VersionConflict, ConcurrentAppend, None, None), strict=True):
        began = lake["a"].version
        tx = lake.begin(isolation=level)
        tx.files("a")
        tx.stage("b", [added(f"mine-{level}")])
        lake["a"].append(f"theirs-{level}")
        if rule is None:
            assert "b" in tx.commit().versions
        else:
            _refused(lake, tx, rule, began=began, actual=began + 1)


def test_winner_that_read_is_no_blind_append(open_lake: OpenLake) -> None:
    lake = open_lake("a", "b")
    tx = lake.begin(isolation="write_serializable")
    tx.files("a")
    tx.stage("b", [added("mine")])
    with lake.begin() as winner:
        winner.files("b")
        winner.stage("a", [added("theirs")])
    assert lake.catalog.table("a").history()[0].is_blind_append is False
    _refused(lake, tx, ConcurrentAppend, began=0, actual=1)


@pytest.mark.parametrize("many", [1, 100], ids=["judged by the database first", "judged here"])
@pytest.mark.parametrize("level", ["serializable", "write_serializable"])
def test_predicate_reads_conflict_only_with_files_that_may_match(
    open_lake: OpenLake, monkeypatch: pytest.MonkeyPatch, level: str, many: int
) -> None:
    monkeypatch.setattr(concurrent_commits, "MANY_COMMITS", many)
    lake = open_lake("a", "b", isolation=level)
    lake["a"].commit([_file("low", 0, 9), _file("high", 90, 99)])

    def theirs(low: int, high: int) -> None:
        with lake.begin() as winner:
            winner.files("b")  # so that it is no blind append
            winner.stage("a", [_file(f"{uuid4()}", low, high)])

    tx = lake.begin()
    assert tx.files("a", "id < 10")["path"].to_pylist() == ["low"]
    tx.stage("b", [added("mine")])
    theirs(50, 60)
    lake["a"].commit([removed("high")])
    assert tx.commit().versions == {"b": 1}

    began = lake["a"].version
    tx = lake.begin()
    tx.files("a", "id < 10")
    tx.stage("a", [_file("mine", 5, 6)])
    theirs(9, 60)
    _refused(lake, tx, ConcurrentAppend, began=began, actual=began + 1)

    began = lake["a"].version
    tx = lake.begin()
    tx.files("a", "id < 9")
    tx.stage("b", [added("other")])
    lake["a"].commit([removed("low")])
    _refused(lake, tx, ConcurrentDeleteRead, began=began, actual=began + 1)


@pytest.mark.parametrize("many", [1, 100], ids=["judged by the database first", "judged here"])
def test_bounds_laid_out_anew_hide_no_conflict(open_lake: OpenLake, monkeypatch: pytest.MonkeyPatch, many: int) -> None:
    monkeypatch.setattr(concurrent_commits, "MANY_COMMITS", many)
    lake = open_lake("a", isolation="serializable")
    tx = lake.begin()
    tx.files("a", "id = 5")
    tx.stage("a", [_file("mine", 1, 2)])
    lake["a"].commit([_file("theirs", 5, 5)])
    lake["a"].commit([metadata("name STRING, id BIGINT")])
    with pytest.raises(ConcurrentAppend) as caught:
        tx.commit()
    assert caught.value.winning_version == 1


@pytest.mark.parametrize("many", [1, 100], ids=["judged by the database first", "judged here"])
def test_condition_on_a_column_that_is_only_staged_is_held_against_every_file(
    open_lake: OpenLake, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    monkeypatch.setattr(concurrent_commits, "MANY_COMMITS", many)
    lake = open_lake("a", isolation="serializable")
    tx = lake.begin()
    tx.stage("a", [metadata("id BIGINT, name STRING, other BIGINT")])
    tx.files("a", "other = 5")
    lake["a"].commit([_file("theirs", 7, 7)])
    _refused(lake, tx, ConcurrentAppend, began=0, actual=1)


def test_file_that_two_remove_goes_once(open_lake: OpenLake) -> None:
    lake = open_lake("a")
    for level in LEVELS:
        lake["a"].append("file", f"other-{level}")
        began = lake["a"].version
        tx = lake.begin(isolation=level)
        tx.stage("a", [removed("file")])
        lake["a"].commit([removed("file")])
        rule = VersionConflict if level == "strict" else ConcurrentDeleteDelete
        _refused(lake, tx, rule, began=began, actual=began + 1)
        tx = lake.begin(isolation=level)
        tx.stage("a", [removed(f"other-{level}")])
        lake["a"].append(f"new-{level}")
        if level != "strict":
            assert tx.commit().versions == {"a": began + 3}


CHANGES: list[tuple[Callable[[], list[Any]], Callable[[], list[Any]], type[VersionConflict]]] = [
    (lambda: [metadata(description="other")], lambda: [added("mine")], MetadataChanged),
    (lambda: [protocol((*FEATURES, "checkConstraints"))], lambda: [added("mine")], ProtocolChanged),
    (
        lambda: [Txn(app_id="app", version=1, last_updated=0)],
        lambda: [Txn(app_id="app", version=1, last_updated=0), added("mine")],
        ConcurrentTransaction,
    ),
    (
        lambda: [DomainMetadata(domain="d", configuration="{}", removed=False)],
        lambda: [DomainMetadata(domain="d", configuration="{}", removed=False)],
        MetadataChanged,
    ),
]


@pytest.mark.parametrize("level", REBASING)
def test_even_a_blind_append_does_not_follow_these(open_lake: OpenLake, level: str) -> None:
    names = [f"t{number}" for number in range(len(CHANGES))]
    lake = open_lake(*names)
    for name, (theirs, mine, rule) in zip(names, CHANGES, strict=True):
        tx = lake.begin(isolation=level)
        tx.stage(name, mine())
        lake[name].commit(theirs())
        _refused(lake, tx, rule, name, began=0, actual=1)


def test_other_applications_progress_is_in_nobodys_way(open_lake: OpenLake) -> None:
    lake = open_lake("a")
    tx = lake.begin(isolation="serializable")
    tx.stage("a", [Txn(app_id="mine", version=1), added("mine")])
    lake["a"].commit([Txn(app_id="theirs", version=1), added("theirs")])
    assert tx.commit().versions == {"a": 2}


def test_write_skew_passes_under_snapshot_alone(open_lake: OpenLake) -> None:
    lake = open_lake("a", "b")
    for level in LEVELS:
        first, second = lake.begin(isolation=level), lake.begin(isolation=level)
        for tx, read, written in ((first, "a", "b"), (second, "b", "a")):
            tx.files(read)
            tx.stage(written, [added(f"{tx.id}")])
        first.commit()
        if level == "snapshot":
            second.commit()
        else:
            # The winner read rows: its append is not blind, and write_serializable looks at it too.
            with pytest.raises(VersionConflict) as caught:
                second.commit()
            assert (caught.value.table, caught.value.stage) == ("b", "check")


def test_lost_update_is_impossible_at_every_level(open_lake: OpenLake) -> None:
    """Both read the one file and put their own in its place."""
    lake = open_lake("a")
    for level in LEVELS:
        old = f"old-{level}"
        lake["a"].append(old)
        first, second = lake.begin(isolation=level), lake.begin(isolation=level)
        for tx in (first, second):
            assert old in tx.files("a")["path"].to_pylist()
            tx.stage("a", [removed(old), added(f"{tx.id}")])
        first.commit()
        with pytest.raises(VersionConflict):
            second.commit()
        assert str(first.id) in lake["a"].live()
        assert old not in lake["a"].live()


def test_read_version_counts_where_the_caller_expects_a_newer_one(open_lake: OpenLake) -> None:
    """What was read at the beginning was read then, whatever version the actions were made for."""
    lake = open_lake("a")
    for level, rule in (("strict", VersionConflict), ("serializable", ConcurrentAppend)):
        began = lake["a"].version
        tx = lake.begin(isolation=level)
        tx.files("a")
        lake["a"].append()
        tx.stage("a", [added(f"mine-{level}")], expected_version=began + 1)
        _refused(lake, tx, rule, began=began, actual=began + 1)


def test_level_of_the_catalog_is_the_one_of_its_transactions(open_lake: OpenLake) -> None:
    lake = open_lake("a", isolation="serializable")
    for tx, follows in ((lake.begin(), True), (lake.begin(isolation="strict"), False)):
        tx.stage("a", [added(f"{tx.id}")])
        lake["a"].append()
        if follows:
            tx.commit()
        else:
            with pytest.raises(VersionConflict):
                tx.commit()


def test_transaction_that_only_reads_is_never_refused(open_lake: OpenLake) -> None:
    lake = open_lake("a")
    for level in LEVELS:
        tx = lake.begin(isolation=level)
        tx.files("a")
        lake["a"].append()
        assert tx.commit().versions == {}
