"""What is kept between searches by a predicate serves every search as if nothing were kept."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import pytest
from sqlalchemy import func, select

import deltars
from deltars.log.snapshot import Snapshot
from deltars.remembered import Remembered
from deltars.store.backends import base
from deltars.store.backends.postgresql import pipeline
from deltars.uri import parse_catalog_uri
from tests.store.conftest import OpenLog
from tests.support.built_anew import built_anew
from tests.support.log import Log, added, metadata

DDL = "id BIGINT, part STRING, x INT"


def _ranges(**bounds: tuple[int, int]) -> str:
    low, high = ({name: ends[at] for name, ends in bounds.items()} for at in (0, 1))
    return json.dumps({"numRecords": 2, "minValues": low, "maxValues": high})


def _files(count: int, begin: int = 0) -> list[deltars.AddFile]:
    """Files `begin`, `begin` + 1, …: each holds one id, and x = 100 − id, in one of three partitions."""
    return [
        added(
            f"{number}",
            partition_values={"part": f"{number % 3}"},
            stats=_ranges(id=(number, number), x=(100 - number, 100 - number)),
        )
        for number in range(begin, begin + count)
    ]


@pytest.fixture
def log(open_log: OpenLog) -> Iterator[Log]:
    with built_anew():
        yield _filled(open_log)


def _filled(open_log: OpenLog) -> Log:
    log = open_log().create(DDL, partition_columns=["part"])
    log.commit(_files(30))
    return log


def _snapshot(log: Log) -> Snapshot:
    return log.catalog._session.reader.snapshot(log.table_id)


def _paths(snapshot: Snapshot, where: str) -> set[str]:
    return set(snapshot.select_files(where=where)["path"].to_pylist())


def _kept() -> int:
    return len(base._kept)


def test_one_statement_serves_all_values_of_a_shape(log: Log) -> None:
    snapshot = _snapshot(log)
    shapes: dict[str, Callable[[int], set[str]]] = {
        "id = {}": lambda n: {f"{i}" for i in range(30) if i == n},
        "id BETWEEN {} AND 7": lambda n: {f"{i}" for i in range(n, 8)},
        "x = {}": lambda n: {f"{i}" for i in range(30) if 100 - i == n},
        "part = '{}'": lambda n: {f"{i}" for i in range(30) if i % 3 == n},
        "part IN ('x', '{}') AND id < 20": lambda n: {f"{i}" for i in range(20) if i % 3 == n},
        "part LIKE '{}%' OR id = 5": lambda n: {"5"} | {f"{i}" for i in range(30) if i % 3 == n},
    }
    for where, expected in shapes.items():
        assert _paths(snapshot, where.format(1)) == expected(1), where
        known = _kept()
        for n in (2, 0, 7, 1, 9):
            assert _paths(snapshot, where.format(n)) == expected(n), (where, n)
        assert _kept() == known, where


def test_values_are_never_part_of_a_kept_statement(log: Log) -> None:
    snapshot = _snapshot(log)
    assert _paths(snapshot, "part = '\\'; DROP TABLE x'") == set()
    assert _paths(snapshot, "part = '1'") == {f"{i}" for i in range(1, 30, 3)}
    texts = [statement.text for statement in base._kept.values()]
    assert texts
    assert not any("DROP" in text for text in texts)


def test_statements_of_many_shapes_are_not_kept_for_ever(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "_kept", Remembered(5))
    snapshot = _snapshot(log)
    for count in range(1, 20):
        listed = ", ".join(f"'{number}'" for number in range(1, count + 1))
        expected = {f"{i}" for i in range(30) if 1 <= i % 3 <= count}
        assert _paths(snapshot, f"part IN ({listed})") == expected
        assert _kept() <= 5


def test_long_list_is_asked_for_and_not_kept(log: Log) -> None:
    snapshot = _snapshot(log)
    known = _kept()
    for count in (100, 101, 900):
        listed = ", ".join(f"'{number}'" for number in range(2, count))
        assert _paths(snapshot, f"part IN ({listed})") == {f"{i}" for i in range(2, 30, 3)}
    assert _kept() == known


@pytest.mark.parametrize("levels", [20, 40])
def test_conditions_that_are_nested_deeply_are_judged_here(log: Log, levels: int) -> None:
    """SQLite's parser gives up at about 33 levels."""
    where = "id = 7"
    for level in range(levels):
        where = f"x = {200 + level} OR ({where})" if level % 2 else f"x < {190 - level} AND ({where})"
    assert _paths(_snapshot(log), where) == {"7"}


def test_threads_that_ask_for_different_values_get_their_own(log: Log) -> None:
    snapshot = _snapshot(log)

    def ask(number: int) -> bool:
        n = number % 30
        return _paths(snapshot, f"id = {n}") == {f"{n}"} and _paths(snapshot, f"x = {100 - n} AND id >= 0") == {f"{n}"}

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(ask, range(120)))


def test_search_follows_a_change_of_the_schema(log: Log) -> None:
    """Of the range column, whose numbers move, and of a column's type and place."""
    before = _snapshot(log)
    assert _paths(before, "x = 95") == {"5"}
    log.commit([metadata(DDL, partition_columns=["part"], configuration={"deltars.rangeColumn": "x"})])
    after = _snapshot(log)
    for snapshot in (after, before, after):
        assert _paths(snapshot, "x = 95") == {"5"}
        assert _paths(snapshot, "id = 6") == {"6"}
    log.commit([metadata("x INT, more STRING, id BIGINT, part STRING", partition_columns=["part"])])
    last = _snapshot(log)
    for snapshot in (last, after, before):
        assert _paths(snapshot, "x = 95") == {"5"}
        assert _paths(snapshot, "id = 6 AND part = '0'") == {"6"}
    with pytest.raises(deltars.PredicateError, match="no column more"):
        before.select_files(where="more = 'a'")
    assert len(_paths(last, "more = 'a'")) == 30


def test_another_table_of_the_same_name_is_searched_by_its_own_columns(open_log: OpenLog) -> None:
    first = open_log().create("id BIGINT, x INT")
    first.commit([added("old", stats=_ranges(id=(1, 1), x=(2, 2)))])
    old = _snapshot(first)
    assert _paths(old, "id = 1") == {"old"}
    first.catalog.drop_table(first.name)
    second = open_log(name="other").create("x INT, id STRING")
    second.catalog.rename_table("other", first.name)
    bounds = {"x": 1, "id": "b"}
    second.commit([added("new", stats=json.dumps({"minValues": bounds, "maxValues": bounds}))])
    new = _snapshot(second)
    assert (_paths(new, "id = 'b'"), _paths(new, "id = 'a'"), _paths(new, "x = 1")) == ({"new"}, set(), {"new"})
    assert (_paths(old, "id = 1"), _paths(old, "x = 1")) == ({"old"}, set())


@pytest.mark.backends("sqlite")
def test_search_after_a_restore_finds_the_files_of_the_restored_database(log: Log, tmp_path: Path) -> None:
    file, copy = Path(parse_catalog_uri(log.uri).database), tmp_path / "backup.db"
    with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    log.commit(_files(5, 30))
    assert _paths(_snapshot(log), "id >= 28") == {f"{n}" for n in range(28, 35)}
    for rest in file.parent.glob(f"{file.name}-*"):
        rest.unlink()
    shutil.move(copy, file)
    assert _paths(_snapshot(log), "id >= 28") == {"28", "29"}
    log.commit([added("other", partition_values={"part": "1"}, stats=_ranges(id=(28, 28)))])
    assert _paths(_snapshot(log), "id >= 28") == {"28", "29", "other"}


@pytest.mark.backends("postgres")
@pytest.mark.parametrize("most", [0, 6, 7, 8])
def test_look_up_with_few_rows_finds_what_copy_finds(log: Log, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(type(log.catalog._session.database.backend), "few_rows", most)
    snapshot = _snapshot(log)
    whole = snapshot.select_files().sort_by("path")
    for where, first in (("id BETWEEN 10 AND 16", 10), ("id = 3", 3)):
        found = snapshot.select_files(where=where).sort_by("path")
        numbers = [f"{n}" for n in range(first, 17 if first == 10 else 4)]
        assert found.equals(whole.filter([path in numbers for path in whole["path"].to_pylist()]))


@pytest.mark.backends("postgres")
def test_connection_closes_the_oldest_of_too_many_statements(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deltars.store.backends.postgresql.pipeline.MAX_PREPARED", 4)
    log = open_log(pool_size=1).create(DDL, partition_columns=["part"])
    log.commit(_files(9))
    for _ in range(2):
        for where in ("id = 1", "id < 2 AND id > 0", "id IN (1)", "id >= 1 AND id < 2 AND x > 3", "id <= 1 AND id > 0"):
            assert _paths(_snapshot(log), where) == {"1"}, where
    with log.catalog._session.database.read() as connection:
        count = connection.exec_driver_sql("SELECT count(*) FROM pg_prepared_statements").scalar_one()
    assert count <= 5
    log.commit(_files(1, 9))
    assert _paths(_snapshot(log), "id = 9") == {"9"}


@pytest.mark.backends("postgres")
def test_connection_is_given_up_where_closing_a_statement_is_interrupted(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a transaction, a statement that the server still has and we have forgotten could not be prepared again."""
    monkeypatch.setattr(pipeline, "MAX_PREPARED", 0)
    monkeypatch.setattr(pipeline, "_close_oldest", Mock(side_effect=KeyboardInterrupt))
    database = log.catalog._session.database
    with database.engine.connect() as connection:
        with pytest.raises(KeyboardInterrupt):
            pipeline.prepare(connection, [database.backend.prepare(select(func.now()))])
        assert connection.invalidated


@pytest.mark.backends("postgres")
def test_look_up_starts_no_workers(log: Log) -> None:
    database = log.catalog._session.database
    setting = database.backend.prepare(select(func.current_setting("max_parallel_workers_per_gather")))
    assert database.look_up(setting, {}) == [("0",)]
