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
    Reads,
    Removed,
    Winner,
    evidence,
    find_conflict,
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
