"""OPTIMIZE beside writers: it stops no append, no change of other files, and never loses or doubles a row.

A race is arranged exactly: `Between` runs a change after the new files are written, and before they are committed. The
last tests race processes against each other.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pyarrow as pa
import pytest

import deltars
from deltars.session import CatalogSession
from tests.support.crowd import at_once, failures
from tests.support.soak import record, scaled
from tests.support.together import Meanwhile

pytestmark = pytest.mark.backends("sqlite")

VECTORS = {"delta.enableDeletionVectors": "true"}


@pytest.fixture(params=[True, False], ids=["vectors", "copy-on-write"])
def table(catalog: deltars.Catalog, request: pytest.FixtureRequest) -> deltars.Table:
    """Two partitions of three files, ids 0 to 5 and 10 to 15."""
    options = VECTORS if request.param else {}
    table = catalog.create_table("t", "id BIGINT, v BIGINT, p STRING", partition_by="p", properties=options)
    for number in range(3):
        ids = [2 * number, 2 * number + 1]
        table.write(pa.concat_tables([rows(ids), rows([10 + i for i in ids], "b")]))
    return table


def rows(ids: list[int], part: str = "a", value: int = 0) -> pa.Table:
    return pa.table({"id": ids, "v": [value] * len(ids), "p": [part] * len(ids)})


def content(table: deltars.Table) -> dict[int, int]:
    found = table.to_arrow()
    ids = found["id"].to_pylist()
    assert len(ids) == len(set(ids)), "a row is there twice"
    return dict(zip(ids, found["v"].to_pylist(), strict=True))


START = dict.fromkeys([*range(6), *range(10, 16)], 0)


@contextmanager
def before_commit(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object], times: int = 1) -> Iterator[None]:
    """Run a change each time that a step of OPTIMIZE is about to commit, at most so often."""
    commit, left = CatalogSession.commit, [times]

    def racing(session: CatalogSession, what: Any, **options: Any) -> Any:
        if what.tables[0].operation == "OPTIMIZE" and left[0]:
            left[0] -= 1
            change()
        return commit(session, what, **options)

    with monkeypatch.context() as patch:
        patch.setattr(CatalogSession, "commit", racing)
        yield


def upsert(table: deltars.Table, ids: list[int], part: str) -> None:
    merge = table.merge(rows(ids, part, 7), on="t.id = s.id AND t.p = s.p")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()


CHANGES: dict[str, tuple[Callable[[deltars.Table], object], Callable[[dict[int, int]], dict[int, int]]]] = {
    "append": (lambda table: table.write(rows([100])), lambda old: {**old, 100: 0}),
    "delete": (lambda table: table.delete("id = 1"), lambda old: {k: v for k, v in old.items() if k != 1}),
    "update": (lambda table: table.update({"v": "5"}, "id = 11"), lambda old: {**old, 11: 5}),
    "merge": (lambda table: upsert(table, [3, 99], "a"), lambda old: {**old, 3: 7, 99: 7}),
    "overwrite": (
        lambda table: table.write(rows([50], "b"), "overwrite", replace_where="p = 'b'"),
        lambda old: {**{k: v for k, v in old.items() if k < 10}, 50: 0},
    ),
    "optimize": (lambda table: table.optimize("p = 'a'"), lambda old: old),
    "new column": (lambda table: table.alter.add_columns("extra INT"), lambda old: old),
}


@pytest.mark.parametrize("change", CHANGES)
def test_change_in_between_stays_and_the_rest_is_compacted(
    table: deltars.Table, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, after = CHANGES[change]
    with before_commit(monkeypatch, lambda: make(table)):
        done = table.optimize()
    assert content(table) == after(START)
    assert done.skipped == ()
    assert done.retried == (0 if change == "append" else 1)
    assert table.files().num_rows == 2, "each partition has one file in the end"
    assert not table.optimize().is_changed
    assert table.verify(deep=True).is_ok


@pytest.mark.parametrize(
    ("change", "level"),
    [("delete", "serializable"), ("update", "write_serializable"), ("merge", "serializable"), ("merge", "snapshot")],
)
def test_change_of_other_files_does_not_fail_because_of_a_compaction(
    catalog: deltars.Catalog, table: deltars.Table, change: str, level: Any
) -> None:
    """The change searched every file, and touches partition b only. Partition a is compacted before it commits."""
    with catalog.begin(isolation=level) as tx:
        match change:
            case "delete":
                tx.delete("t", "v = 0 AND id = 11")
            case "update":
                tx.update("t", {"v": "5"}, "v = 0 AND id = 11")
            case _:
                merge = tx.merge("t", rows([11], "b", 5), on="t.id = s.id")
                merge.when_matched_update_all().when_not_matched_insert_all().execute()
        assert table.optimize("p = 'a'").is_changed
    expected = {k: v for k, v in START.items() if k != 11} if change == "delete" else {**START, 11: 5}
    assert content(table) == expected


@pytest.mark.parametrize("level", ["serializable", "write_serializable"])
def test_append_of_a_transaction_that_searched_the_table_survives_a_compaction(
    catalog: deltars.Catalog, table: deltars.Table, level: Any
) -> None:
    """Compaction between another's read and its commit: what was searched is followed to the new file."""
    with catalog.begin(isolation=level) as tx:
        merge = tx.merge("t", rows([77], "a"), on="t.id = s.id")
        merge.when_not_matched_insert_all().execute()
        table.optimize()
    assert content(table) == {**START, 77: 0}


def test_same_new_key_is_found_behind_a_compaction(catalog: deltars.Catalog, table: deltars.Table) -> None:
    tx = catalog.begin(isolation="serializable")
    tx.merge("t", rows([78], "a"), on="t.id = s.id").when_not_matched_insert_all().execute()
    table.write(rows([78, 79]))
    table.optimize()
    with pytest.raises(deltars.VersionConflict):
        tx.commit()
    assert content(table) == {**START, 78: 0, 79: 0}, "78 is there once"


def test_frame_that_was_read_before_a_compaction_is_a_conflict_and_never_wrong(
    catalog: deltars.Catalog, table: deltars.Table
) -> None:
    tx = catalog.begin(isolation="serializable")
    read = tx.to_arrow("t")
    table.optimize()
    tx.write("t", read, "overwrite")
    with pytest.raises(deltars.ConcurrentDeleteRead):
        tx.commit()
    assert content(table) == START


def test_bins_that_no_one_changed_are_committed_without_being_written_again(
    table: deltars.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    with before_commit(monkeypatch, lambda: table.delete("id = 1")):
        done = table.optimize()
    first, second = done.steps
    assert (first.bins, first.attempts, first.files_removed) == (1, 2, 3)
    assert second.bins == 1
    assert done.retried == 1


def test_step_that_keeps_losing_is_skipped_and_said(table: deltars.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = iter(range(1000, 2000))

    def change() -> None:
        number = next(ids)
        for part in "ab":
            # Any of the files of the bin, and one more for the next plan.
            table.delete(f"id = {first(table, part)} AND p = '{part}'")
            table.write(rows([number, 1000 + number] if part == "a" else [2000 + number, 3000 + number], part))

    with before_commit(monkeypatch, change, times=1000):
        done = table.optimize()
    assert done.steps == ()
    assert done.retried > 0
    assert {skipped.partition["p"] for skipped in done.skipped} <= {"a", "b"}
    assert done.skipped
    assert "version" in done.skipped[0].reason
    assert len(content(table)) == len(START) + 2 * (next(ids) - 1000)
    table.optimize()
    assert table.files().num_rows == 2


def first(table: deltars.Table, part: str) -> int:
    return int(min(table.to_arrow(where=f"p = '{part}'")["id"].to_pylist()))


def test_table_that_is_dropped_in_between_is_reported(
    catalog: deltars.Catalog, table: deltars.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    with before_commit(monkeypatch, lambda: catalog.drop_table("t")), pytest.raises(deltars.DeltarsError):
        table.optimize()


# -- processes and threads ---------------------------------------------------------------------------------------------


def work(uri: str, seconds: float) -> tuple[set[int], dict[int, int], int]:
    """Append pairs for a while, delete one row of each and update the other.

    Return the ids that must be gone, the values of those that must be there, and the number of conflicts.
    """
    gone: set[int] = set()
    there: dict[int, int] = {}
    conflicts = 0
    ends = time.monotonic() + seconds
    with deltars.connect(uri) as catalog:
        table = catalog.table("t")
        number = os.getpid() * 1_000_000
        while time.monotonic() < ends:
            number += 2
            table.write(rows([number, number + 1], "a" if number % 8 else "b"))
            there |= {number: 0, number + 1: 0}
            try:
                table.delete(f"id = {number}")
                gone.add(number)
                del there[number]
                table.update({"v": "v + 1"}, f"id = {number + 1}")
                there[number + 1] = 1
            except deltars.VersionConflict:
                conflicts += 1
    return gone, there, conflicts


@pytest.mark.soak
@pytest.mark.timeout(scaled(120, soak=900))
def test_optimizers_beside_writers_lose_no_row_and_double_none(catalog: deltars.Catalog, migrated_uri: str) -> None:
    table = catalog.create_table("t", "id BIGINT, v BIGINT, p STRING", partition_by="p", properties=VECTORS)
    table.write(rows([-1]))
    seconds = scaled(3, soak=120)
    writers = Meanwhile(at_once, 2, work, migrated_uri, seconds)
    runs = moved = 0
    while writers.is_running:
        for done in (table.optimize(), table.optimize("p = 'a'", zorder_by="id")):
            moved += done.num_files_removed
        runs += 1
    outcomes = writers.result()
    assert failures(outcomes) == []
    table.optimize()
    found = content(table)
    expected, conflicts = {-1: 0}, 0
    for outcome in outcomes:
        gone, there, lost = cast("tuple[set[int], dict[int, int], int]", outcome)
        assert gone.isdisjoint(found)
        expected |= there
        conflicts += lost
    assert found == expected
    assert moved > 0
    assert table.verify(deep=True).is_ok
    record("optimize beside two writers", runs=runs, rows=len(found), conflicts=conflicts, lost=0)


@pytest.mark.soak
@pytest.mark.backends("postgres")
@pytest.mark.timeout(scaled(120, soak=900))
def test_two_optimizers_at_once_do_the_work_once(catalog: deltars.Catalog, migrated_uri: str) -> None:
    table = catalog.create_table("t", "id BIGINT, v BIGINT, p STRING", partition_by="p")
    for round_ in range(scaled(1, soak=30)):
        for number in range(6):
            table.write(rows([100 * round_ + number], "ab"[number % 2]))
        outcomes = at_once(2, optimize, migrated_uri)
        assert failures(outcomes) == []
        assert table.files().num_rows == 2
        assert len(content(table)) == 6 * (round_ + 1)


def optimize(uri: str) -> int:
    with deltars.connect(uri) as catalog:
        return catalog.table("t").optimize().num_files_removed
