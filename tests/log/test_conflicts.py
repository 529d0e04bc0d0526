"""Which transactions get in each other's way: Delta's conflict matrix, pair by pair and level by level."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args
from uuid import UUID

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltars import errors
from deltars.log.commit import TableCommit
from deltars.log.conflicts import (
    NOTHING_READ,
    Added,
    Conflict,
    Level,
    Obstacle,
    Reads,
    Removed,
    RowRead,
    RowsChanged,
    Verdict,
    Winner,
    evidence,
    find_conflict,
    find_conflicts,
    is_blind_append,
    level_of,
)
from deltars.log.pruning import Pruner
from deltars.predicate import parse
from deltars.protocol import Action, CdcFile, DomainMetadata, Txn
from tests.support.log import added, metadata, protocol, removed, vector

LEVELS: tuple[Level, ...] = get_args(Level)
APPEND, READ, DELETE = errors.ConcurrentAppend, errors.ConcurrentDeleteRead, errors.ConcurrentDeleteDelete


@dataclass(frozen=True)
class Partition:
    """`day = …` over a table partitioned by day."""

    day: str

    def could_match(self, file: Added) -> bool:
        return json.loads(file.partition_values or "{}").get("day") in (self.day, None)


def in_partition(day: str | None) -> str:
    return json.dumps({"day": day})


def commit(*actions: Action, adds: pa.Table | None = None) -> TableCommit:
    return TableCommit(UUID(int=7), 4, actions, "WRITE", adds=adds)


def conflict(
    mine: TableCommit | None, reads: Reads, *winners: Winner, level: Level = "serializable"
) -> Conflict | None:
    return find_conflict(mine, reads, winners, level)


def rule(*arguments: Any, **options: Any) -> type[errors.VersionConflict] | None:
    found = conflict(*arguments, **options)
    return None if found is None else found.rule


# -- the matrix ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Operation:
    """One operation on some files of a day, as the loser and as the winner of a race."""

    name: str
    day: str
    files: Sequence[str] = ()

    @property
    def adds(self) -> list[Added]:
        new = [] if self.name == "DELETE" else [f"{self.name}-{self.day}-{'-'.join(self.files)}"]
        return [Added(path, "", in_partition(self.day), None, self.name != "COMPACTION") for path in new]

    @property
    def removes(self) -> list[Removed]:
        return [Removed(path, "", self.name != "COMPACTION") for path in self.files]

    @property
    def reads(self) -> Reads:
        if self.name == "INSERT":
            return NOTHING_READ
        return Reads(predicates=(Partition(self.day),), files=frozenset((path, "") for path in self.files))

    @property
    def commit(self) -> TableCommit:
        return commit(
            *(
                added(
                    file.path, partition_values=json.loads(file.partition_values or "{}"), data_change=file.data_change
                )
                for file in self.adds
            ),
            *(removed(file.path, data_change=file.data_change) for file in self.removes),
        )

    @property
    def winner(self) -> Winner:
        blind = is_blind_append(self.commit, [self.reads])
        return Winner(5, self.adds, self.removes, is_blind_append=blind)

    def follows(self, winner: Operation, level: Level) -> type[errors.VersionConflict] | None:
        return rule(self.commit, self.reads, winner.winner, level=level_of([self.commit], level))


ROW_CHANGES = ("UPDATE", "DELETE", "MERGE")
OPERATIONS = ("INSERT", *ROW_CHANGES, "COMPACTION")
EVERYTHING = {"serializable": APPEND, "write_serializable": APPEND, "snapshot": DELETE}

SAME_FILES: dict[tuple[str, str], dict[str, type[errors.VersionConflict]]] = {
    **{(mine, "INSERT"): {"serializable": APPEND} for mine in ROW_CHANGES},
    **{(mine, winner): EVERYTHING for mine in ROW_CHANGES for winner in ("UPDATE", "MERGE")},
    **{(mine, "DELETE"): EVERYTHING | dict.fromkeys(LEVELS[:2], READ) for mine in ROW_CHANGES},
    **{(mine, "COMPACTION"): EVERYTHING | dict.fromkeys(LEVELS[:2], READ) for mine in ROW_CHANGES},
    **{("COMPACTION", winner): dict.fromkeys(LEVELS, DELETE) for winner in (*ROW_CHANGES, "COMPACTION")},
}
"""Who cannot follow whom, at which level, and why. Whatever is not here gets along."""

OTHER_FILES_OF_THE_DAY: dict[tuple[str, str], dict[str, type[errors.VersionConflict]]] = {
    **{(mine, "INSERT"): {"serializable": APPEND} for mine in ROW_CHANGES},
    **{(mine, winner): dict.fromkeys(LEVELS[:2], APPEND) for mine in ROW_CHANGES for winner in ("UPDATE", "MERGE")},
}
"""New files of the day that was read are in the way; that other files went, or were compacted, is not."""


def _files(name: str, *paths: str) -> tuple[str, ...]:
    return () if name == "INSERT" else paths


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("winner", OPERATIONS)
@pytest.mark.parametrize("mine", OPERATIONS)
def test_conflict_matrix_pair_by_pair(mine: str, winner: str, level: Level) -> None:
    first = Operation(winner, "monday", _files(winner, "a", "b"))
    same = Operation(mine, "monday", _files(mine, "b", "c")).follows(first, level)
    other_files = Operation(mine, "monday", _files(mine, "c", "d")).follows(first, level)
    other_day = Operation(mine, "tuesday", _files(mine, "e", "f")).follows(first, level)
    assert same == SAME_FILES.get((mine, winner), {}).get(level)
    assert other_files == OTHER_FILES_OF_THE_DAY.get((mine, winner), {}).get(level)
    assert other_day is None


@pytest.mark.parametrize("winner", OPERATIONS)
def test_whole_table_read_conflicts_with_whatever_changes_it_under_serializable(winner: str) -> None:
    first = Operation(winner, "monday", _files(winner, "a")).winner
    found = rule(commit(added("x")), Reads(whole_table=True), first)
    assert found is (APPEND if winner in ("INSERT", "UPDATE", "MERGE") else READ)


@pytest.mark.parametrize("winner", OPERATIONS)
@pytest.mark.parametrize("level", LEVELS)
def test_table_that_is_only_read_is_checked_like_a_written_one_but_not_under_snapshot(
    winner: str, level: Level
) -> None:
    first = Operation(winner, "monday", _files(winner, "a")).winner
    reads = Reads(predicates=(Partition("monday"),), files=frozenset({("a", "")}))
    written = rule(commit(added("x")), reads, first, level=level)
    assert rule(None, reads, first, level=level) == (None if level == "snapshot" else written)


def test_table_that_was_not_touched_has_no_conflict() -> None:
    everything = Winner(5, [Added("x")], [Removed("a")], metadata_changed=True, protocol_changed=True)
    assert conflict(None, NOTHING_READ, everything) is None


def test_table_that_is_only_read_may_change_in_every_way_under_snapshot() -> None:
    everything = Winner(5, [Added("x")], [Removed("a")], metadata_changed=True, protocol_changed=True)
    reads = Reads(whole_table=True, metadata=True, app_ids=frozenset({"etl"}))
    assert conflict(None, reads, everything, level="snapshot") is None


# -- the rules one by one ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("reads", [NOTHING_READ, Reads(whole_table=True)], ids=["blind", "reading"])
def test_changed_metadata_and_protocol_refuse_every_writer(reads: Reads, level: Level) -> None:
    mine = commit(added("x"))
    assert rule(mine, reads, Winner(5, metadata_changed=True), level=level) is errors.MetadataChanged
    assert rule(mine, reads, Winner(5, protocol_changed=True), level=level) is errors.ProtocolChanged
    assert rule(commit(metadata()), reads, Winner(5, metadata_changed=True), level=level) is errors.MetadataChanged
    assert rule(commit(protocol()), reads, Winner(5, protocol_changed=True), level=level) is errors.ProtocolChanged


def test_changed_metadata_refuses_who_read_it_and_no_one_who_read_an_application_only() -> None:
    changed = Winner(5, metadata_changed=True)
    assert rule(None, Reads(metadata=True), changed) is errors.MetadataChanged
    assert rule(None, Reads(files=frozenset({("a", "")})), changed) is errors.MetadataChanged
    assert rule(None, Reads(app_ids=frozenset({"etl"})), changed) is None


@pytest.mark.parametrize("level", LEVELS)
def test_application_moved_on_refuses_who_read_or_writes_its_progress(level: Level) -> None:
    moved = Winner(5, app_ids=frozenset({"etl", "other"}))
    reading = Reads(app_ids=frozenset({"etl"}))
    found = conflict(commit(added("x")), reading, moved, level=level)
    assert found is not None
    assert (found.rule, found.version) == (errors.ConcurrentTransaction, 5)
    assert found.reason == "version 5 committed a txn action of the same application etl"
    assert rule(commit(Txn(app_id="etl", version=1)), NOTHING_READ, moved, level=level) is errors.ConcurrentTransaction
    assert rule(commit(Txn(app_id="mine", version=1)), NOTHING_READ, moved, level=level) is None


@pytest.mark.parametrize("level", LEVELS)
def test_same_domain_conflicts_but_row_tracking_never_does(level: Level) -> None:
    def domain(name: str) -> TableCommit:
        return commit(DomainMetadata(domain=name, configuration="{}", removed=False))

    changed = Winner(5, domains=frozenset({"delta.clustering", "delta.rowTracking"}))
    assert rule(domain("delta.clustering"), NOTHING_READ, changed, level=level) is errors.MetadataChanged
    assert rule(domain("delta.rowTracking"), NOTHING_READ, changed, level=level) is None
    assert rule(domain("app.other"), NOTHING_READ, changed, level=level) is None


def test_order_of_the_rules_is_that_of_delta() -> None:
    reads = Reads(whole_table=True, files=frozenset({("a", "")}))
    mine = commit(removed("a"), Txn(app_id="etl", version=2))
    everything: dict[str, Any] = {
        "protocol_changed": True,
        "metadata_changed": True,
        "app_ids": frozenset({"etl"}),
        "adds": [Added("new")],
        "removes": [Removed("a")],
    }
    order = []
    for taken in ({}, *({name: type(value)()} for name, value in everything.items())):
        everything |= taken
        order.append(rule(mine, reads, Winner(5, **everything)))
    assert order == [
        errors.ProtocolChanged,
        errors.MetadataChanged,
        errors.ConcurrentTransaction,
        errors.ConcurrentAppend,
        errors.ConcurrentDeleteRead,
        None,
    ]


def test_oldest_winner_in_the_way_is_named_with_its_file() -> None:
    far, near = Added("far", "", in_partition("tuesday")), Added("near", "", in_partition("monday"))
    winners = [Winner(5, [far]), Winner(6, [near])]
    reads = Reads(predicates=(Partition("monday"),))
    found = conflict(commit(added("x")), reads, *winners, Winner(7, metadata_changed=True))
    assert found == Conflict(APPEND, 6, "version 6 added near, which this transaction would have read")


@pytest.mark.parametrize(
    ("day", "least", "most", "is_in_the_way"),
    [("2026-01-01", 5, 20, True), ("2026-01-02", 5, 20, False), ("2026-01-01", 1, 9, False), (None, 5, 20, False)],
    ids=["matching", "another partition", "other values", "partition null"],
)
def test_file_added_is_judged_by_the_condition_that_files_were_read_by(
    day: str | None, least: int, most: int, is_in_the_way: bool
) -> None:
    table = metadata("id BIGINT, day DATE", partition_columns=["day"])
    condition = Pruner(parse("day = '2026-01-01' AND id >= 10", table.schema), table)
    stats = f'{{"numRecords":2,"minValues":{{"id":{least}}},"maxValues":{{"id":{most}}},"nullCount":{{"id":0}}}}'
    winner = Winner(5, [Added("new", "", in_partition(day), stats)])
    assert (rule(commit(added("x")), Reads(predicates=(condition,)), winner) is APPEND) == is_in_the_way


def test_metadata_change_sees_blind_appends_under_write_serializable() -> None:
    blind = Winner(5, [Added("new")], is_blind_append=True)
    reads = Reads(whole_table=True)
    assert rule(commit(added("x")), reads, blind, level="write_serializable") is None
    assert rule(commit(metadata()), reads, blind, level="write_serializable") is APPEND


def test_deletion_vector_is_part_of_a_file_s_identity() -> None:
    mine = commit(removed("a", deletion_vector=vector()), added("a", deletion_vector=vector(2)))
    assert rule(mine, NOTHING_READ, Winner(5, removes=[Removed("a", vector().unique_id)])) is DELETE
    assert rule(mine, NOTHING_READ, Winner(5, removes=[Removed("a")])) is None


def columns(*files: tuple[str, bool], **more: Any) -> pa.Table:
    return pa.table({"path": [path for path, _ in files], "data_change": [change for _, change in files], **more})


def test_file_described_anew_does_not_come_back_to_life() -> None:
    gone = Winner(5, removes=[Removed("a")])
    assert rule(commit(added("a", data_change=False)), NOTHING_READ, gone, level="snapshot") is DELETE
    as_columns = commit(adds=columns(("b", True), ("a", False)))
    assert rule(as_columns, NOTHING_READ, gone, level="snapshot") is DELETE
    assert rule(commit(adds=columns(("b", False), ("a", True))), NOTHING_READ, gone) is None
    with_vector = columns(("a", False), deletion_vector=[msgspec.json.encode(vector()).decode()])
    assert rule(commit(adds=with_vector), NOTHING_READ, gone) is None
    assert rule(commit(adds=with_vector), NOTHING_READ, Winner(5, removes=[Removed("a", vector().unique_id)])) is DELETE


# -- row-level reads -----------------------------------------------------------------------------------------------

FILTER = object()
"""Stands for a test of rows: the rules only ask whether there is one."""


def search(*files: str, day: str = "monday", **fields: Any) -> Reads:
    """Rows of a day that were looked for in some files without a vector."""
    keys = frozenset((path, "") for path in files)
    return Reads(metadata=True, rows=(RowRead((Partition(day),), keys, **fields),))


def verdict(mine: TableCommit | None, reads: Reads, *winners: Winner, level: Level = "serializable") -> Verdict:
    return find_conflicts(mine, reads, winners, level)


def of(obstacles: Sequence[Obstacle]) -> list[tuple[type[errors.VersionConflict], RowsChanged | None]]:
    return [(obstacle.conflict.rule, obstacle.unless) for obstacle in obstacles]


def by_vector(path: str, old: str, new: str, version: int = 5, **fields: Any) -> Winner:
    """A commit that deletes rows of a file by a new vector."""
    return Winner(version, [Added(path, new, in_partition("monday"))], [Removed(path, old)], **fields)


MY_VECTOR = vector(9)
DELETES_ROWS = commit(removed("a"), added("a", deletion_vector=MY_VECTOR, stats='{"numRecords":9}'))


@pytest.mark.parametrize("level", LEVELS)
def test_vector_change_of_a_file_that_both_change_can_be_settled_by_the_rows(level: Level) -> None:
    found = verdict(DELETES_ROWS, search("a", changes_matches=True), by_vector("a", "", "u1"), level=level)
    assert of(found.obstacles) == [(DELETE, RowsChanged("vector", "a", "", "u1", is_mine=True))]
    assert found.is_settleable
    assert found.conflict == Conflict(DELETE, 5, "version 5 changed rows of a, which this transaction changes too")


def test_vector_change_is_no_append_even_for_who_read_the_table() -> None:
    winner = by_vector("a", "", "u1")
    assert rule(commit(added("x")), Reads(whole_table=True), winner) is READ
    day = Reads(predicates=(Partition("monday"),), files=frozenset({("a", "")}))
    assert rule(commit(added("x")), day, winner) is READ
    # Of a file that was added meanwhile nothing is known: its rows count as new.
    assert rule(commit(added("x")), dataclasses.replace(day, files=frozenset()), winner) is APPEND


def test_vectors_of_raw_actions_are_not_united() -> None:
    found = verdict(DELETES_ROWS, NOTHING_READ, by_vector("a", "", "u1"), level="snapshot")
    assert of(found.obstacles) == [(DELETE, None)]
    assert not found.is_settleable


def test_file_level_read_of_a_file_that_is_changed_by_rows_stays_a_conflict() -> None:
    reads = dataclasses.replace(search("a", changes_matches=True), files=frozenset({("a", "")}))
    assert of(verdict(DELETES_ROWS, reads, by_vector("a", "", "u1")).obstacles) == [(READ, None)]


def test_merge_that_left_matched_rows_alone_tests_the_rows_that_were_deleted() -> None:
    winner = by_vector("a", "", "u1")
    tested = RowsChanged("vector", "a", "", "u1", tested_by=(0,), is_mine=True)
    assert of(verdict(DELETES_ROWS, search("a", row_filter=FILTER), winner).obstacles) == [(DELETE, tested)]
    assert of(verdict(DELETES_ROWS, search("a"), winner).obstacles) == [(DELETE, None)]
    # Snapshot checks nothing that was read: different rows are enough.
    untested = dataclasses.replace(tested, tested_by=())
    assert of(verdict(DELETES_ROWS, search("a"), winner, level="snapshot").obstacles) == [(DELETE, untested)]


@pytest.mark.parametrize("changes_matches", [True, False])
def test_vector_change_of_a_file_that_was_only_searched(changes_matches: bool) -> None:
    mine = commit(added("x"))
    found = verdict(mine, search("a", row_filter=FILTER, changes_matches=changes_matches), by_vector("a", "", "u1"))
    tested = () if changes_matches else (0,)
    # Even where every match is changed the vectors are looked at: it may have brought rows back.
    assert of(found.obstacles) == [(READ, RowsChanged("vector", "a", "", "u1", tested_by=tested))]
    elsewhere = dataclasses.replace(search("a", day="tuesday"), rows=(RowRead((Partition("tuesday"),)),))
    assert not verdict(mine, elsewhere, by_vector("a", "", "u1")).obstacles


def test_added_file_is_settled_by_its_rows_if_all_that_might_have_read_it_can_be_tested() -> None:
    winner = Winner(5, [Added("new", "", in_partition("monday"))])
    mine = commit(added("x"))
    rows = RowsChanged("added", "new", tested_by=(0,))
    assert of(verdict(mine, search(row_filter=FILTER), winner).obstacles) == [(APPEND, rows)]
    assert of(verdict(mine, search(), winner).obstacles) == [(APPEND, None)]
    assert of(verdict(mine, search(day="tuesday"), winner).obstacles) == []
    two = dataclasses.replace(search(), rows=(*search(row_filter=FILTER).rows, *search().rows))
    assert of(verdict(mine, two, winner).obstacles) == [(APPEND, None)]
    framed = dataclasses.replace(search(row_filter=FILTER), predicates=(Partition("monday"),))
    assert of(verdict(mine, framed, winner).obstacles) == [(APPEND, None)]
    everything = Reads(rows=(RowRead(row_filter=FILTER),))
    assert of(verdict(mine, everything, winner).obstacles) == [(APPEND, rows)]


def test_removed_file_that_was_only_searched() -> None:
    winner, mine = Winner(5, removes=[Removed("a")]), commit(added("x"))
    assert of(verdict(mine, search("a"), winner).obstacles) == [(READ, None)]
    tested = RowsChanged("removed", "a", tested_by=(0,))
    assert of(verdict(mine, search("a", row_filter=FILTER), winner).obstacles) == [(READ, tested)]
    # It held no matching row, or this transaction would change it.
    assert of(verdict(mine, search("a", changes_matches=True), winner).obstacles) == []
    assert of(verdict(commit(removed("a")), search("a", changes_matches=True), winner).obstacles) == [(DELETE, None)]


@pytest.mark.parametrize("level", LEVELS)
def test_compaction_refuses_only_changes_of_the_same_files(level: Level) -> None:
    compaction = Winner(5, [Added("ab", data_change=False)], [Removed("a", "", False), Removed("b", "", False)])
    searched = search("a", "b", "c")
    assert verdict(commit(removed("c"), added("d")), searched, compaction, level=level).conflict is None
    assert rule(commit(removed("a"), added("d")), searched, compaction, level=level) is DELETE
    assert rule(DELETES_ROWS, searched, compaction, level=level) is DELETE
    # A frame that was handed out keeps the rule of files.
    framed = Reads(files=frozenset({("a", "")}))
    assert rule(commit(added("x")), framed, compaction, level=level) == (None if level == "snapshot" else READ)


def test_rows_that_were_moved_are_followed() -> None:
    """An insert-only merge that found its key in `a`: the row moves to `ab`, and goes with it."""
    compaction = Winner(5, [Added("ab", data_change=False)], [Removed("a", "", False)])
    deletion = Winner(6, removes=[Removed("ab")])
    found = verdict(commit(added("x")), search("a", row_filter=FILTER), compaction, deletion)
    assert of(found.obstacles) == [(READ, RowsChanged("removed", "ab", tested_by=(0,)))]
    assert found.reads.rows[0].files == {("a", ""), ("ab", "")}
    assert not verdict(commit(added("x")), search("c", row_filter=FILTER), compaction, deletion).obstacles


def test_every_winner_is_judged_though_the_first_can_be_settled() -> None:
    """The winner appends, and removes a file that is changed here: looking at the new rows must not hide that."""
    both = Winner(5, [Added("new", "", in_partition("monday"))], [Removed("a")])
    searched = search("a", row_filter=FILTER)
    assert [one.is_hard for one in verdict(DELETES_ROWS, searched, both).obstacles] == [False, True]
    one_by_one = (Winner(5, both.adds), Winner(6, removes=both.removes))
    found = verdict(DELETES_ROWS, searched, *one_by_one)
    assert not found.is_settleable
    assert found.conflict == Conflict(DELETE, 6, "version 6 removed a, which this transaction changes too")


def test_vector_changed_twice_and_then_removed_is_a_conflict() -> None:
    searched = search("a", changes_matches=True)
    chain = [by_vector("a", "", "u1"), by_vector("a", "u1", "u2", 6)]
    found = verdict(DELETES_ROWS, searched, *chain)
    assert [one.unless and (one.unless.old_dv_id, one.unless.new_dv_id) for one in found.obstacles] == [
        ("", "u1"),
        ("u1", "u2"),
    ]
    assert ("a", "u2") in found.reads.rows[0].files
    gone = verdict(DELETES_ROWS, searched, *chain, Winner(7, removes=[Removed("a", "u2")]))
    assert gone.conflict is not None
    assert (gone.conflict.rule, gone.conflict.version, gone.is_settleable) == (DELETE, 7, False)


def test_who_searched_rows_is_no_blind_append_and_depends_on_the_metadata() -> None:
    assert not is_blind_append(commit(added("x")), [search()])
    assert rule(None, search(), Winner(5, metadata_changed=True)) is errors.MetadataChanged


def test_vectors_of_the_winners_are_asked_for_even_where_reads_are_not_checked() -> None:
    assert evidence(DELETES_ROWS, search("a"), "snapshot").vectors
    assert not evidence(DELETES_ROWS, NOTHING_READ, "snapshot").vectors
    assert not evidence(commit(removed("a")), search("a"), "snapshot").vectors


# -- what a transaction is -----------------------------------------------------------------------------------------


def test_transaction_that_only_moves_rows_is_judged_as_snapshot() -> None:
    compaction = commit(removed("a", data_change=False), added("b", data_change=False))
    assert level_of([compaction], "serializable") == "snapshot"
    assert level_of([compaction, commit(adds=columns(("x", False)))], "serializable") == "snapshot"


@pytest.mark.parametrize(
    "other",
    [
        commit(added("x")),
        commit(adds=columns(("x", False), ("y", True))),
        commit(added("x", data_change=False), metadata()),
        commit(added("x", data_change=False), Txn(app_id="etl", version=1)),
        commit(),
    ],
    ids=["adds rows", "adds rows in columns", "changes metadata", "moves an application on", "empty"],
)
def test_transaction_that_does_more_than_move_rows_keeps_its_level(other: TableCommit) -> None:
    compaction = commit(removed("a", data_change=False), added("b", data_change=False))
    assert level_of([compaction, other], "serializable") == "serializable"
    assert level_of([other], "write_serializable") == "write_serializable"


def test_blind_append_adds_only_and_its_transaction_read_no_rows() -> None:
    assert is_blind_append(commit(added("x")), [])
    assert is_blind_append(commit(adds=columns(("x", True))), [NOTHING_READ, Reads(metadata=True)])
    assert not is_blind_append(commit(added("x"), removed("a")), [])
    assert not is_blind_append(commit(added("x"), CdcFile(path="c", partition_values={}, size=1)), [])
    # Of another table, perhaps: what was added may come of it.
    assert not is_blind_append(commit(added("x")), [NOTHING_READ, Reads(files=frozenset({("a", "")}))])


def test_blind_append_asks_for_no_files_of_the_winners() -> None:
    needed = evidence(commit(added("x")), NOTHING_READ, "serializable")
    assert (needed.adds, needed.removes) == (False, False)


# -- properties ----------------------------------------------------------------------------------------------------

paths = st.sampled_from("abcd")
days = st.sampled_from(["monday", "tuesday"])
names = st.frozensets(st.sampled_from(["x", "y"]), max_size=1)
winning_adds = st.builds(
    Added,
    path=paths,
    dv_id=st.just(""),
    partition_values=days.map(in_partition),
    data_change=st.booleans(),
)
winners = st.lists(
    st.builds(
        Winner,
        version=st.just(5),
        adds=st.lists(winning_adds, max_size=2),
        removes=st.lists(st.builds(Removed, paths, st.just(""), st.booleans()), max_size=2),
        metadata_changed=st.sampled_from([False] * 9 + [True]),
        protocol_changed=st.sampled_from([False] * 9 + [True]),
        app_ids=names,
        domains=names,
        is_blind_append=st.booleans(),
    ),
    max_size=3,
)
reads = st.builds(
    Reads,
    whole_table=st.sampled_from([False, False, False, True]),
    predicates=st.lists(st.builds(Partition, days), max_size=1).map(tuple),
    files=st.frozensets(st.tuples(paths, st.just("")), max_size=2),
    app_ids=names,
    metadata=st.booleans(),
)
commits = st.lists(
    st.one_of(
        st.builds(added, paths, data_change=st.booleans()),
        st.builds(removed, paths, data_change=st.booleans()),
        st.just(metadata()),
        st.builds(Txn, app_id=st.sampled_from("xy"), version=st.just(1)),
    ),
    max_size=3,
).map(lambda actions: commit(*actions))
parts = st.one_of(st.none(), commits)
vectors = st.sampled_from(["", "u1", "u2"])
keys = st.tuples(paths, vectors)
row_reads = st.lists(
    st.builds(
        RowRead,
        st.lists(st.builds(Partition, days), max_size=1).map(tuple),
        st.frozensets(keys, max_size=3),
        st.booleans(),
        st.sampled_from([None, FILTER]),
    ),
    max_size=2,
).map(lambda rows: Reads(rows=tuple(rows)))
row_winners = st.lists(
    st.builds(
        Winner,
        version=st.integers(5, 9),
        adds=st.lists(
            st.builds(Added, paths, vectors, days.map(in_partition), data_change=st.booleans()),
            max_size=2,
            unique_by=lambda file: file.path,
        ),
        removes=st.lists(
            st.builds(Removed, paths, vectors, st.booleans()), max_size=2, unique_by=lambda file: file.path
        ),
        is_blind_append=st.just(False),
    ),
    max_size=4,
)
row_commits = st.one_of(commits, st.just(DELETES_ROWS))


@given(parts, reads, winners)
def test_a_higher_level_refuses_whatever_a_lower_one_does(
    mine: TableCommit | None, reads: Reads, winners: list[Winner]
) -> None:
    refused = {level: conflict(mine, reads, *winners, level=level) is not None for level in LEVELS}
    assert refused["serializable"] >= refused["write_serializable"] >= refused["snapshot"]


@given(parts, reads, winners, st.sampled_from(LEVELS))
def test_winners_are_judged_one_by_one(
    mine: TableCommit | None, reads: Reads, winners: list[Winner], level: Level
) -> None:
    together = conflict(mine, reads, *winners, level=level)
    alone = [found for winner in winners if (found := conflict(mine, reads, winner, level=level))]
    assert together == (alone[0] if alone else None)


@given(parts, reads, winners, st.sampled_from(LEVELS))
def test_files_that_the_rules_do_not_ask_for_make_no_difference(
    mine: TableCommit | None, reads: Reads, winners: list[Winner], level: Level
) -> None:
    needed = evidence(mine, reads, level)
    fewer = [
        dataclasses.replace(
            winner, adds=winner.adds if needed.adds else (), removes=winner.removes if needed.removes else ()
        )
        for winner in winners
    ]
    assert conflict(mine, reads, *fewer, level=level) == conflict(mine, reads, *winners, level=level)


@given(st.lists(paths, unique=True), winners, st.sampled_from(LEVELS))
def test_blind_append_never_conflicts_with_data(new: list[str], winners: list[Winner], level: Level) -> None:
    data = [dataclasses.replace(winner, metadata_changed=False, protocol_changed=False) for winner in winners]
    assert conflict(commit(*map(added, new)), NOTHING_READ, *data, level=level) is None


@given(parts, reads, reads, winners, st.sampled_from(LEVELS))
def test_reading_more_never_makes_a_conflict_go_away(
    mine: TableCommit | None, reads: Reads, more: Reads, winners: list[Winner], level: Level
) -> None:
    both = Reads(
        reads.whole_table or more.whole_table,
        reads.predicates + more.predicates,
        reads.files | more.files,
        reads.app_ids | more.app_ids,
        reads.metadata or more.metadata,
    )
    if conflict(mine, reads, *winners, level=level):
        assert conflict(mine, both, *winners, level=level)


@given(row_commits, row_reads, row_winners, st.sampled_from(LEVELS))
def test_rows_refuse_no_one_whom_files_would_not(
    mine: TableCommit, reads: Reads, winners: list[Winner], level: Level
) -> None:
    """Reading the same files as frames is never the weaker claim."""
    as_files = Reads(
        predicates=tuple(predicate for read in reads.rows for predicate in read.conditions),
        whole_table=any(not read.conditions for read in reads.rows),
        files=frozenset(key for read in reads.rows for key in read.files),
    )
    followed = any(not removed.data_change for winner in winners for removed in winner.removes)
    if conflict(mine, reads, *winners, level=level) and not followed:
        assert conflict(mine, as_files, *winners, level=level)


@given(row_commits, row_reads, row_winners, st.sampled_from(LEVELS), st.integers(0, 4))
def test_judging_in_two_rounds_finds_what_judging_at_once_does(
    mine: TableCommit, reads: Reads, winners: list[Winner], level: Level, cut: int
) -> None:
    """What was read advances with the winners that were judged; only what is changed stays the caller's to replace."""
    if mine is DELETES_ROWS:
        mine = commit(added("x"))
    first = verdict(mine, reads, *winners[:cut], level=level)
    at_once = verdict(mine, reads, *winners, level=level)
    if first.obstacles and first.obstacles[-1].is_hard:
        assert at_once == first
    else:
        second = verdict(mine, first.reads, *winners[cut:], level=level)
        assert at_once.obstacles == first.obstacles + second.obstacles


@given(row_commits, row_reads, row_winners, st.sampled_from(LEVELS))
def test_evidence_is_enough_for_rows_too(mine: TableCommit, reads: Reads, winners: list[Winner], level: Level) -> None:
    needed = evidence(mine, reads, level)

    def kept(adds: Sequence[Added]) -> list[Added]:
        return [file for file in adds if needed.adds or (needed.vectors and file.dv_id)]

    fewer = [
        dataclasses.replace(winner, adds=kept(winner.adds), removes=winner.removes if needed.removes else ())
        for winner in winners
    ]
    all_of_it, rest = (verdict(mine, reads, *some, level=level) for some in (winners, fewer))
    assert (rest.conflict is None) == (all_of_it.conflict is None)
    # A vector that went altogether is not fetched: the file then counts as removed.
    assert rest.is_settleable <= all_of_it.is_settleable
