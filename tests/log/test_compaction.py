"""Plans of OPTIMIZE: every file in one bin at most, one partition a bin, and nothing left to do in the end."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltars.log.compaction import (
    CUBE_COLUMNS,
    CUBE_CURVE,
    CUBE_FILES,
    CUBE_ID,
    PLAN_COLUMNS,
    Bin,
    Sizing,
    automatic_target,
    cube_columns,
    in_steps,
    plan_compaction,
    plan_sorting,
)
from deltars.log.snapshot import FILE_SCHEMA, file_schema

MIB, GIB, TIB = 1 << 20, 1 << 30, 1 << 40
SIZING = Sizing(100)


@dataclass(frozen=True)
class File:
    size: int
    partition: str | None = "a"
    records: int | None = 100
    deleted: int = 0
    modified: int = 0
    cube: str | None = None
    name: str = ""


def listed(*files: File) -> pa.Table:
    def vector(deleted: int) -> str | None:
        document = {"storageType": "u", "pathOrInlineDv": "x" * 20, "offset": 1, "sizeInBytes": 9}
        return json.dumps({**document, "cardinality": deleted}) if deleted else None

    def tags(cube: str | None) -> str | None:
        return json.dumps({CUBE_ID: cube, CUBE_COLUMNS: cube_columns(["x"]), CUBE_CURVE: "z"}) if cube else None

    rows = [
        {
            "path": file.name or f"{number:04d}",
            "size": file.size,
            "modification_time": file.modified,
            "partition_values": json.dumps({"p": file.partition}),
            "deletion_vector": vector(file.deleted),
            "tags": tags(file.cube),
            "num_records": file.records,
        }
        for number, file in enumerate(files)
    ]
    return pa.Table.from_pylist(rows, schema=file_schema(PLAN_COLUMNS))


def places(bins: list[Bin]) -> list[tuple[int, ...]]:
    return [one.places for one in bins]


def test_small_files_of_a_partition_fill_bins_in_the_order_of_their_age() -> None:
    files = [File(40, modified=3), File(40, modified=1), File(40, "b"), File(30, modified=2), File(10, "b"), File(99)]
    bins = plan_compaction(listed(*files), SIZING)
    assert [one.partition for one in bins] == [(("p", "a"),), (("p", "b"),)]
    assert places(bins) == [(1, 3), (2, 4)]


def test_lone_file_and_files_of_about_the_target_are_left() -> None:
    assert plan_compaction(listed(File(10), File(75), File(200), File(10, "b"), File(10, None)), SIZING) == []
    assert plan_compaction(listed(), SIZING) == []
    assert places(plan_compaction(listed(File(10), File(75), File(74)), SIZING)) == [(0, 2)]


@pytest.mark.parametrize(("deleted", "is_written_again"), [(0, False), (5, False), (6, True), (100, True)])
def test_file_with_more_than_a_share_of_deleted_rows_is_written_again(deleted: int, is_written_again: bool) -> None:
    assert bool(plan_compaction(listed(File(500, deleted=deleted)), SIZING)) is is_written_again


def test_vector_of_a_file_that_does_not_count_its_rows_goes() -> None:
    assert plan_compaction(listed(File(500, records=None, deleted=1)), SIZING)


def test_null_and_the_empty_text_are_different_partitions() -> None:
    found = plan_compaction(listed(*[File(1, partition) for partition in (None, "", None, "")]), SIZING)
    assert places(found) == [(0, 2), (1, 3)]


def test_automatic_run_waits_for_enough_small_files() -> None:
    files = listed(*[File(1)] * 5, *[File(1, "b")] * 4)
    assert places(plan_compaction(files, replace(SIZING, min_files=5))) == [(0, 1, 2, 3, 4)]


def test_target_grows_with_the_table() -> None:
    assert automatic_target(0) == automatic_target(2 * TIB) == 256 * MIB
    assert 256 * MIB < automatic_target(5 * TIB) < automatic_target(8 * TIB) < GIB
    assert automatic_target(10 * TIB) == automatic_target(900 * TIB) == GIB


def test_sorted_cube_is_left_until_new_files_come() -> None:
    cube = [File(50, cube="c"), File(60, cube="c")]
    assert plan_sorting(listed(*cube), SIZING, ["x"], "z") == []
    assert places(plan_sorting(listed(*cube, File(1)), SIZING, ["x"], "z")) == [(0, 1, 2)]
    assert places(plan_sorting(listed(*cube), SIZING, ["y"], "z")) == [(0, 1)], "sorted by another column"
    assert places(plan_sorting(listed(*cube), SIZING, ["x"], "hilbert")) == [(0, 1)], "sorted along another curve"
    assert places(plan_sorting(listed(cube[0], File(60, cube="d")), SIZING, ["x"], "z")) == [(0, 1)]
    assert places(plan_sorting(listed(cube[0], File(60, cube="c", deleted=9)), SIZING, ["x"], "z")) == [(0, 1)]


def test_large_cube_is_never_sorted_again() -> None:
    cube = [File(60, cube="c")] * CUBE_FILES
    assert places(plan_sorting(listed(*cube, File(1), File(2)), SIZING, ["x"], "z")) == [(CUBE_FILES, CUBE_FILES + 1)]


def test_steps_have_about_so_many_bytes() -> None:
    bins = [Bin((), (place,), size) for place, size in enumerate([5, 5, 20, 1, 1])]
    assert [len(step) for step in in_steps(bins, 10)] == [2, 1, 2]
    assert list(in_steps([], 10)) == []


files = st.lists(
    st.builds(
        File,
        size=st.integers(1, 150),
        partition=st.sampled_from(["a", "b", "", None]),
        records=st.sampled_from([None, 10, 100]),
        deleted=st.sampled_from([0, 0, 0, 1, 9]),
        modified=st.integers(0, 5),
        cube=st.sampled_from([None, None, "c", "d"]),
    ),
    max_size=30,
)


@given(files, st.booleans(), st.integers(1, 30))
def test_no_file_is_in_two_bins_and_no_bin_in_two_partitions(given: list[File], sorts: bool, min_files: int) -> None:
    sizing = replace(SIZING, min_files=min_files)
    table = listed(*given)
    bins = plan_sorting(table, sizing, ["x"], "z") if sorts else plan_compaction(table, sizing)
    used = [place for one in bins for place in one.places]
    assert len(used) == len(set(used))
    assert all({given[place].partition for place in one.places} == {dict(one.partition)["p"]} for one in bins)
    limit = SIZING.target_bytes * (CUBE_FILES if sorts else 1)
    assert all(one.size_bytes <= limit or len(one.places) == 1 for one in bins)
    shuffled = table.take(pa.array(list(reversed(range(len(given)))), pa.int64()))
    again = plan_sorting(shuffled, sizing, ["x"], "z") if sorts else plan_compaction(shuffled, sizing)
    names = [[table["path"][place].as_py() for place in one.places] for one in bins]
    assert [[shuffled["path"][place].as_py() for place in one.places] for one in again] == names


@given(files, st.booleans(), st.floats(0.1, 1.5))
def test_runs_end_and_the_last_one_does_nothing(given: list[File], sorts: bool, ratio: float) -> None:
    """New files may be smaller or larger than their parts. No row is lost on the way."""
    live = [replace(file, name=f"f{number}") for number, file in enumerate(given)]
    rows = sum((file.records or 0) - file.deleted for file in live if file.records)
    for run in range(len(given) + 2):
        table = listed(*live)
        bins = plan_sorting(table, SIZING, ["x"], "z") if sorts else plan_compaction(table, SIZING)
        if not bins:
            break
        gone = {place for one in bins for place in one.places}
        new = []
        for number, one in enumerate(bins):
            parts = [live[place] for place in one.places]
            known = [part for part in parts if part.records is not None]
            size = max(1, int(ratio * one.size_bytes))
            records = sum((part.records or 0) - part.deleted for part in known) if len(known) == len(parts) else None
            cube = f"new {run} {number}" if sorts else None
            new.append(File(size, parts[0].partition, records, 0, 10 + run, cube, f"r{run}-{number}"))
        live = [file for place, file in enumerate(live) if place not in gone] + new
    assert not bins
    if all(file.records is not None for file in given):
        assert sum(file.records or 0 for file in live) - sum(file.deleted for file in live) == rows


def test_plan_needs_columns_that_live_files_have() -> None:
    assert set(PLAN_COLUMNS) <= set(FILE_SCHEMA.names)
