"""Statements that meet on one file: changes of other rows both commit, by conditions that have to be computed too."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import permutations
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import col

import deltars
from deltars.errors import ConcurrentAppend, ConcurrentDeleteDelete, VersionConflict
from deltars.transaction import merge, read_size
from tests.support.soak import record, scaled, seed

pytestmark = pytest.mark.backends("sqlite")

VECTORS = {"delta.enableDeletionVectors": "true"}
SERIALIZABLE = ("serializable", "write_serializable")
LEVELS = (*SERIALIZABLE, "snapshot")

Change = Callable[[deltars.Transaction], Any]


def _table(catalog: deltars.Catalog, name: str = "t", properties: dict[str, str] = VECTORS) -> deltars.Table:
    """Rows 0 to 19 in one file: v is ten times the id."""
    table = catalog.create_table(name, "id BIGINT, v BIGINT, name STRING", properties=properties)
    numbers = range(20)
    names = [None if number == 7 else f"n{number}" for number in numbers]
    table.write(pa.table({"id": list(numbers), "v": [10 * number for number in numbers], "name": names}))
    return table


def _rows(table: deltars.Table) -> dict[int, int | None]:
    found = table.to_arrow()
    ids = found["id"].to_pylist()
    assert len(ids) == len(set(ids))
    return dict(zip(ids, found["v"].to_pylist(), strict=True))


def _update(where: Any, v: str = "-id") -> Change:
    return lambda tx: tx.update("t", {"v": v}, where)


def _delete(where: Any) -> Change:
    return lambda tx: tx.delete("t", where)


def _upsert(ids: Iterable[int]) -> Change:
    numbers = list(ids)
    source = pa.table({"id": numbers, "v": [-number for number in numbers], "name": ["s"] * len(numbers)})
    return lambda tx: (
        tx.merge("t", source, "t.id = s.id").when_matched_update_all().when_not_matched_insert_all().execute()
    )


def _race(catalog: deltars.Catalog, mine: Change, theirs: Change, level: Any) -> deltars.Transaction:
    """Begin, make my change, and let the other commit theirs."""
    tx = catalog.begin(isolation=level)
    mine(tx)
    with catalog.begin(isolation=level) as other:
        theirs(other)
    return tx


OF_OTHER_ROWS: dict[str, tuple[Change, set[int]]] = {
    "update, computed": (_update("id % 5 = 1"), {1, 6, 11, 16}),
    "update, a function": (_update("substring(name, 1, 2) = 'n2'"), {2}),
    "update, computed in part": (_update("id > 4 AND (id % 5 = 3 OR id + 1 = 20)"), {8, 13, 18, 19}),
    "update, a null": (_update("coalesce(name, 'none') = 'none'"), {7}),
    "update, plain": (_update("id = 5"), {5}),
    "merge": (_upsert([0, 10, 30]), {0, 10, 30}),
}


@pytest.mark.soak
@pytest.mark.parametrize("level", LEVELS)
def test_changes_of_other_rows_of_one_file_both_commit(catalog: deltars.Catalog, level: str) -> None:
    """Each pair in both orders: the loser's condition is computed on the rows that the winner wrote."""
    pairs = list(permutations(OF_OTHER_ROWS, 2))
    for one, other in pairs[:: scaled(len(pairs) // 6, soak=1)]:
        table = _table(catalog)
        (mine, ids), (theirs, their_ids) = OF_OTHER_ROWS[one], OF_OTHER_ROWS[other]
        _race(catalog, mine, theirs, level).commit()
        changed = ids | their_ids
        assert _rows(table) == {
            number: -number if number in changed else 10 * number for number in {*range(20), *changed}
        }, (one, other)
        catalog.drop_table("t")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("mine", [_delete("id % 5 = 1"), _update("id % 5 = 1")], ids=["delete", "update"])
def test_a_row_of_both_is_changed_once(catalog: deltars.Catalog, level: str, mine: Change) -> None:
    table = _table(catalog)
    for theirs in (_update("id % 4 = 2"), _delete("id * 2 = 12"), _upsert([6])):
        before = table.version
        with pytest.raises(ConcurrentDeleteDelete) as caught:
            _race(catalog, mine, theirs, level).commit()
        assert "changed a row of" in caught.value.message
        assert table.version == before + 1
        table.restore(1)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("mine", [_delete("v % 7 = 1"), _update("v % 7 = 1", "0")], ids=["delete", "update"])
def test_a_row_that_the_winner_made_match_is_a_conflict(catalog: deltars.Catalog, level: str, mine: Change) -> None:
    """Row 3 did not match when it was searched, and does now. Only `snapshot` ignores that."""
    table = _table(catalog)
    tx = _race(catalog, mine, _update("id = 3", "8"), level)
    if level == "snapshot":
        tx.commit()
    else:
        with pytest.raises(ConcurrentAppend):
            tx.commit()
    assert _rows(table)[3] == 8


def test_a_condition_that_fails_on_the_winners_rows_leaves_the_conflict(
    catalog: deltars.Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    _table(catalog)
    tx = _race(catalog, _update("id = 4 AND 100 / (v + 1) > 1"), _update("id = 5", "7"), "serializable")
    tx.commit()
    tx = _race(catalog, _delete("100 / (v + 1) > 90"), _update("id = 6", "-1"), "serializable")
    with pytest.raises(ConcurrentAppend):
        tx.commit()
    assert "could not be settled" in caplog.text


@pytest.mark.parametrize("level", SERIALIZABLE)
def test_many_keys_are_compared_one_by_one(
    catalog: deltars.Catalog, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    """Both merges have more keys than a list in the condition takes, and the one's lie between the other's."""
    monkeypatch.setattr(merge, "MANY_KEYS", 3)
    table = _table(catalog)
    _race(catalog, _upsert(range(100, 120, 2)), _upsert(range(101, 120, 2)), level).commit()
    _race(catalog, _upsert(range(0, 20, 2)), _upsert(range(1, 20, 2)), level).commit()
    assert _rows(table) == {number: -number for number in (*range(20), *range(100, 120))}
    with pytest.raises(ConcurrentAppend):
        _race(catalog, _upsert(range(200, 220, 2)), _upsert([*range(201, 220, 2), 204]), level).commit()
    with pytest.raises(ConcurrentDeleteDelete):
        _race(catalog, _upsert(range(0, 20, 2)), _upsert([*range(1, 20, 2), 4]), level).commit()


def test_a_condition_that_only_spark_computes_conflicts_with_new_files(
    catalog: deltars.Catalog, spark: SparkSession
) -> None:
    table = _table(catalog)
    for where in ("levenshtein(name, 'n1') = 0", col("id") == 1):
        with pytest.raises(ConcurrentAppend):
            _race(catalog, _update(where), _update("id = 5"), "serializable").commit()
        # A winner that adds no row leaves nothing to compute: the rows that both delete are known.
        _race(catalog, _delete(where), _delete("id = 8"), "serializable").commit()
        assert set(_rows(table)) == set(range(20)) - {1, 8}
        table.restore(1)


def test_spark_changes_other_rows_of_one_file_too(
    catalog: deltars.Catalog, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_size, "SMALL_BYTES", -1)
    table = _table(catalog)
    _race(catalog, _update("id % 5 = 1"), _update("id % 5 = 2"), "serializable").commit()
    assert {number for number, v in _rows(table).items() if v == -number} == {0, 1, 6, 11, 16, 2, 7, 12, 17}


def test_rewritten_files_conflict_whatever_the_rows(catalog: deltars.Catalog) -> None:
    _table(catalog, properties={})
    with pytest.raises(VersionConflict):
        _race(catalog, _update("id % 5 = 1"), _update("id % 5 = 2"), "serializable").commit()


@pytest.mark.parametrize("level", LEVELS)
def test_a_purge_beside_a_write_to_another_table_minds_only_its_own_files(catalog: deltars.Catalog, level: str) -> None:
    """It moves rows, whatever they are. New rows do not matter; rows that left the files that it moves do."""
    table, other = _table(catalog), catalog.create_table("other", "id BIGINT")
    row = pa.table({"id": [100], "v": [100], "name": ["new"]})

    def purge(tx: deltars.Transaction) -> None:
        tx.write("other", pa.table({"id": [1]}))
        tx.purge("t")

    table.delete("id = 3")
    _race(catalog, purge, lambda tx: tx.write("t", row), level).commit()
    table.delete("id = 4")
    _race(catalog, purge, lambda tx: tx.update("t", {"v": 0}, "id = 100"), level).commit()
    assert set(_rows(table)) == {*range(20), 100} - {3, 4}
    table.delete("id = 5")
    with pytest.raises(ConcurrentDeleteDelete):
        _race(catalog, purge, _delete("id = 6"), level).commit()
    assert set(_rows(table)) == {*range(20), 100} - {3, 4, 5, 6}
    assert other.to_arrow().num_rows == 2


# -- many at once ------------------------------------------------------------------------------------------------------

Table = dict[int, int]


def _chosen_statement(draw: random.Random) -> tuple[Change, Callable[[Table], int]]:
    """A statement, and the same on a dictionary: both return how many rows they change."""
    number, rest = draw.randrange(40), draw.randrange(5)
    match draw.choice(["computed", "by value", "delete", "merge", "merge"]):
        case "computed":
            return _update(f"id % 5 = {rest} AND id < {number}", "v + 1"), lambda rows: _add_one(
                rows, [key for key in rows if key % 5 == rest and key < number]
            )
        case "by value":
            return _update(f"v % 7 = {rest} AND id > {number}", "v + 1"), lambda rows: _add_one(
                rows, [key for key, v in rows.items() if v % 7 == rest and key > number]
            )
        case "delete":
            return _delete(f"(id + v) % 9 = {rest} AND id >= {number}"), lambda rows: sum(
                rows.pop(key) >= 0 for key in [k for k, v in rows.items() if (k + v) % 9 == rest and k >= number]
            )
    ids = draw.sample(range(60), 3)
    source = pa.table({"id": ids, "v": [1] * 3, "name": ["s"] * 3})

    def merge(tx: deltars.Transaction) -> Any:
        builder = tx.merge("t", source, "t.id = s.id").when_matched_update({"v": "t.v + s.v"})
        return builder.when_not_matched_insert_all().execute()

    return merge, lambda rows: _add_one(rows, ids)


def _changed(statement: Change, tx: deltars.Transaction) -> tuple[deltars.Transaction, Any]:
    return tx, statement(tx)


def _add_one(rows: Table, ids: Iterable[int]) -> int:
    changed = {key: rows.get(key, 0) + 1 for key in ids}
    rows |= changed
    return len(changed)


@pytest.mark.soak
@pytest.mark.backends("sqlite", "postgres")
@pytest.mark.parametrize("properties", [{}, VECTORS], ids=["rewritten", "vectors"])
def test_statements_of_many_threads_are_as_if_made_in_the_order_of_their_versions(
    catalog: deltars.Catalog, properties: dict[str, str]
) -> None:
    """Rows, and how many of them each statement found, are those of the same statements one after the other."""
    table = _table(catalog, properties=properties)
    done: dict[int, tuple[Callable[[Table], int], int]] = {}

    def work(number: int) -> None:
        draw = random.Random(f"{seed()}-{number}")
        for _ in range(scaled(4, soak=150)):
            statement, model = _chosen_statement(draw)
            tx, metrics = catalog.run(partial(_changed, statement), retries=1_000, isolation="serializable")
            if (version := tx.result.versions.get("t")) is not None:
                done[version] = model, metrics.rows_updated + metrics.rows_inserted + metrics.rows_deleted

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert sorted(done) == list(range(2, table.version + 1))
    rows = {number: 10 * number for number in range(20)}
    for version, (model, count) in sorted(done.items()):
        assert model(rows) == count, version
    assert _rows(table) == rows
    record("statements of threads, in the order of their versions", versions=len(done))
