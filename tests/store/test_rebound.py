"""Another range column, or columns in other places: the bounds of the files follow, in the same transaction."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import deltars
from deltars.log.bounds import HIGHEST, LOWEST, RANGE_COLUMN
from deltars.protocol import Action, Metadata, Protocol, encode_commit
from deltars.store.commit import bounds_rewrite
from tests.store.conftest import OpenLog
from tests.support.log import Log, added, metadata, removed

DDL = "a BIGINT, b BIGINT, s STRUCT<x: BIGINT>, name STRING"


def _stats(a: int, b: int, x: int = 0) -> str:
    values = {"a": a, "b": b, "s": {"x": x}}
    return json.dumps({"numRecords": 1, "minValues": values, "maxValues": values})


def _bounds(log: Log, path: str) -> tuple[Any, Any]:
    [row] = log.rows(f"SELECT mins, maxs FROM dl_add_files WHERE table_id = ? AND path = '{path}'")
    mins, maxs = (json.loads(cell) if isinstance(cell, str) else cell for cell in row)
    return mins, maxs


def _range(log: Log, path: str) -> tuple[float, float]:
    mins, maxs = _bounds(log, path)
    return mins[0], maxs[0]


def _paths(snapshot: Any, where: str) -> list[str]:
    return sorted(snapshot.select_files(where=where, columns=["path"])["path"].to_pylist())


@pytest.fixture
def log(open_log: OpenLog) -> Log:
    """Two live files, one without statistics, and one that was removed."""
    log = open_log().create(DDL)
    log.commit([added("one", stats=_stats(1, 100)), added("two", stats=_stats(2, 50)), added("none")])
    log.commit([added("gone", stats=_stats(3, 70))])
    log.commit([removed("gone")])
    return log


def _choose(log: Log, column: str) -> None:
    log.catalog.set_properties(log.table_id, {RANGE_COLUMN: column})


def test_another_range_column_rewrites_the_bounds_of_live_files(log: Log) -> None:
    assert [_range(log, path) for path in ("one", "two")] == [(1, 1), (2, 2)]
    _choose(log, "b")
    assert log.version == 4
    assert [_range(log, path) for path in ("one", "two")] == [(100, 100), (50, 50)]
    assert _bounds(log, "one")[0][:4] == [100, 1, 100, 0]
    assert _bounds(log, "none") == ([LOWEST], [HIGHEST])
    # A removed file keeps none: nobody would know any more what they are bounds of.
    assert _bounds(log, "gone") == ([LOWEST], [HIGHEST])
    snapshot = log.catalog._session.reader.snapshot(log.table_id)
    assert _paths(snapshot, "b = 50") == ["none", "two"]
    assert _paths(snapshot, "a = 1") == ["none", "one"]


def test_files_are_found_whichever_version_is_asked_for(log: Log) -> None:
    reader = log.catalog._session.reader
    before = reader.snapshot(log.table_id, 2)
    assert _paths(before, "a = 3") == ["gone", "none"]
    _choose(log, "b")
    log.commit([added("three", stats=_stats(5, 5))])
    # One was opened before, the other is opened now: for both the bounds have moved since.
    for snapshot in (before, reader.snapshot(log.table_id, 2)):
        assert _paths(snapshot, "a = 3") == ["gone", "none"]
        assert _paths(snapshot, "b = 50") == ["none", "two"]
    now = reader.snapshot(log.table_id)
    assert _paths(now, "b = 5") == ["none", "three"]
    assert _paths(now, "a >= 2") == ["none", "three", "two"]


def test_many_files_are_rewritten_a_batch_at_a_time(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds_rewrite, "BATCH_ROWS", 3)
    for start in (0, 4):
        log.commit([added(f"f{i}", stats=_stats(i, 1000 + i)) for i in range(start, start + 4)])
    _choose(log, "b")
    assert [_range(log, f"f{i}") for i in range(8)] == [(1000 + i, 1000 + i) for i in range(8)]


def test_column_that_is_added_at_the_end_leaves_the_bounds_as_they_are(log: Log) -> None:
    before = _bounds(log, "one"), _bounds(log, "gone")
    log.commit([metadata(f"{DDL}, more BIGINT")])
    assert (_bounds(log, "one"), _bounds(log, "gone")) == before
    log.commit([added("new", stats='{"numRecords":1,"minValues":{"more":7},"maxValues":{"more":7}}')])
    snapshot = log.catalog._session.reader.snapshot(log.table_id)
    assert _paths(snapshot, "more = 8") == ["none", "one", "two"]
    assert _paths(snapshot, "a = 2") == ["new", "none", "two"]


def test_column_that_is_added_in_the_middle_moves_those_behind_it(log: Log) -> None:
    ddl = "a BIGINT, b BIGINT, s STRUCT<w: BIGINT, x: BIGINT>, name STRING"
    log.commit([metadata(ddl), added("new", stats=_stats(9, 9, 9))])
    assert _bounds(log, "one")[0] == [1, 1, 100, None, 0, None]
    snapshot = log.catalog._session.reader.snapshot(log.table_id)
    assert _paths(snapshot, "s.x = 9") == ["new", "none"]
    assert _paths(snapshot, "s.w = 9") == ["new", "none", "one", "two"]


def test_column_that_cannot_be_chosen_is_refused_and_changes_nothing(log: Log) -> None:
    before = log.dump()
    for column in ("nobody", "s"):
        with pytest.raises(deltars.ValidationError, match="not a column with minimum and maximum"):
            _choose(log, column)
    assert log.dump() == before


def test_commit_that_fails_after_the_bounds_were_rewritten_leaves_them(log: Log) -> None:
    before = log.dump()
    chosen: Metadata = metadata(DDL, configuration={RANGE_COLUMN: "b"})
    with pytest.raises(deltars.ValidationError, match="not a live file"):
        log.commit([chosen, removed("nobody")])
    assert log.dump() == before


@pytest.mark.backends("postgres")
def test_the_index_answers_for_the_new_range_column(log: Log) -> None:
    _choose(log, "b")
    query = (
        "SELECT path FROM dl_add_files WHERE removed_version IS NULL AND table_id = ? AND path <> 'none' AND"
        " box(point(mins[1], slot), point(maxs[1], slot)) && box(point(50, slot), point(60, slot))"
    )
    assert log.rows(query) == [("two",)]


def test_imported_files_carry_the_bounds_of_the_last_metadata(catalog: deltars.Catalog, tmp_path: Path) -> None:
    log = tmp_path / "elsewhere" / "_delta_log"
    log.mkdir(parents=True)
    first = "a BIGINT, s STRUCT<x: BIGINT>, z BIGINT"
    second = "a BIGINT, s STRUCT<w: BIGINT, x: BIGINT>, z BIGINT"
    for version, ddl in enumerate((first, second)):
        values = {"a": version, "s": {"w": 50, "x": 50}, "z": 7 + version}
        stats = json.dumps({"numRecords": 1, "minValues": values, "maxValues": values})
        plain = Protocol(min_reader_version=1, min_writer_version=2)
        actions: list[Action] = [
            *([plain] if version == 0 else []),
            metadata(ddl),
            added(f"{version}.parquet", stats=stats),
        ]
        (log / f"{version:020}.json").write_bytes(encode_commit(actions))
    table = catalog.import_table(str(log.parent), name="imported")
    snapshot = catalog._session.reader.snapshot(table.id)
    # Where the first file had its z the second has its x.
    assert _paths(snapshot, "s.x = 50") == ["0.parquet", "1.parquet"]
    assert _paths(snapshot, "z = 7") == ["0.parquet"]
