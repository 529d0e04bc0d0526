"""Tables that a transaction creates and drops: visible to itself, and to everyone else with the commit or never."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest

import deltars
from deltars.errors import TableExists, TableNotFound, ValidationError, VersionConflict

ROWS = pa.table({"id": [1, 2]})


def names(catalog: deltars.Catalog) -> list[str]:
    return [table.name for table in catalog.tables()]


# -- create ------------------------------------------------------------------------------------------------------------


def test_table_is_created_with_the_rest_of_the_transaction(catalog: deltars.Catalog) -> None:
    with catalog.begin(committer="ada") as tx:
        tx.create_table(
            "a",
            "id BIGINT NOT NULL, day DATE",
            partition_by="day",
            properties={"team": "ml"},
            description="numbers",
        )
        tx.create_table("b", "id BIGINT")
        tx.write("b", ROWS)
        assert tx.to_arrow("a").num_rows == 0
        assert sorted(tx.to_arrow("b")["id"].to_pylist()) == [1, 2]
        assert names(catalog) == []
    assert tx.result.versions == {"a": 0, "b": 0}
    detail = catalog.table("a").detail()
    assert (detail.description, detail.partition_columns, detail.properties["team"]) == ("numbers", ("day",), "ml")
    assert [entry.operation for entry in catalog.table("a").history()] == ["CREATE TABLE"]
    [entry] = catalog.table("b").history()
    assert (entry.operation, entry.committer, entry.txn_id) == ("CREATE TABLE AS SELECT", "ada", tx.id)
    assert catalog.table("b").to_arrow().num_rows == 2


@pytest.mark.backends("sqlite")
def test_rollback_creates_nothing(catalog: deltars.Catalog) -> None:
    tx = catalog.begin()
    tx.create_table("a", "id BIGINT")
    tx.rollback()
    assert names(catalog) == []


@pytest.mark.backends("sqlite")
def test_creation_takes_a_location_and_refuses_what_create_table_refuses(
    catalog: deltars.Catalog, tmp_path: Path
) -> None:
    catalog.create_table("old", "id BIGINT")
    place = str(tmp_path / "elsewhere")
    tx = catalog.begin()
    with pytest.raises(TableExists, match="already a table named 'old'"):
        tx.create_table("OLD", "id BIGINT")
    with pytest.raises(ValidationError, match="exclude each other"):
        tx.create_table("new", "id BIGINT", if_not_exists=True, replace=True)
    with pytest.raises(ValidationError, match="at least one column"):
        tx.create_table("new", pa.schema([]))
    with pytest.raises(ValidationError, match="keeps its location"):
        tx.create_table("old", "id BIGINT", replace=True, location=place)
    with pytest.raises(ValidationError, match="contains a slash"):
        tx.create_table("a/b", "id BIGINT")
    tx.create_table("old", "other STRING", if_not_exists=True)
    tx.create_table("new", "id BIGINT", location=place)
    with pytest.raises(TableExists):
        tx.create_table("new", "id BIGINT")
    assert tx.commit().versions == {"new": 0}
    assert catalog.table("new").location == place
    assert catalog.table("old").schema.names == ("id",)


@pytest.mark.backends("sqlite")
def test_replacing_gives_new_columns_and_no_rows_also_to_staged_ones(catalog: deltars.Catalog) -> None:
    catalog.write("a", ROWS)
    with catalog.begin() as tx:
        tx.write("a", ROWS)
        tx.create_table("a", "name STRING", replace=True)
        assert tx.to_arrow("a").column_names == ["name"]
        tx.write("a", pa.table({"name": ["x"]}))
        tx.write("b", ROWS)
        tx.create_table("b", "name STRING", replace=True)
    assert catalog.table("a").to_arrow().to_pylist() == [{"name": "x"}]
    assert catalog.table("a").to_arrow(version=0).num_rows == 2
    assert catalog.table("b").to_arrow().to_pylist() == []


def test_second_creator_of_a_name_gets_a_conflict_and_changes_nothing(catalog: deltars.Catalog) -> None:
    tx = catalog.begin()
    tx.create_table("a", "id BIGINT")
    tx.write("other", ROWS)
    catalog.create_table("A", "id BIGINT")
    with pytest.raises(VersionConflict):
        tx.commit()
    assert names(catalog) == ["A"]


@pytest.mark.backends("sqlite")
def test_repeated_transaction_creates_and_drops_once(catalog: deltars.Catalog) -> None:
    catalog.write("old", ROWS)
    results = []
    for _ in range(2):
        with catalog.begin(txn_id="set-up") as tx:
            tx.create_table("a", "id BIGINT")
            tx.create_table("b", "id BIGINT", if_not_exists=True)
            tx.drop_table("old")
        results.append(tx.result)
    assert results[0].versions == results[1].versions == {"a": 0, "b": 0}
    assert results[0].commit_ts == results[1].commit_ts
    assert names(catalog) == ["a", "b"]


@pytest.mark.backends("sqlite")
def test_threads_that_create_one_table_create_it_once(catalog: deltars.Catalog) -> None:
    with catalog.begin() as tx, ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: tx.create_table("a", "id BIGINT", if_not_exists=True), range(8)))
    assert tx.result.versions == {"a": 0}


# -- drop --------------------------------------------------------------------------------------------------------------


def test_table_is_dropped_at_the_moment_of_the_commit(catalog: deltars.Catalog) -> None:
    before = catalog.write("a", ROWS)
    with catalog.begin() as tx:
        tx.drop_table("a")
        tx.write("b", ROWS)
        assert names(catalog) == ["a"]
    assert names(catalog) == ["b"]
    assert tx.result.versions == {"b": 0}
    assert catalog.snapshot(before.txn_id).versions == {"a": 0}
    assert catalog.snapshot(tx.id).versions == {"b": 0}
    assert catalog.snapshot().versions == {"b": 0}


def test_transaction_that_only_drops_is_a_transaction(catalog: deltars.Catalog) -> None:
    before = catalog.write("a", ROWS)
    catalog.write("b", ROWS)
    with catalog.begin(committer="ada", txn_id="clean-up") as tx:
        tx.drop_table("a")
        tx.drop_table("b")
    assert tx.result.commit_ts is not None
    assert tx.result.versions == {}
    assert names(catalog) == []
    assert catalog.snapshot(before.txn_id).versions == {"a": 0}
    assert catalog.snapshot(tx.id).versions == {}
    assert catalog.transaction("clean-up").committer == "ada"
    with catalog.begin(txn_id="clean-up") as again:
        again.drop_table("a")
        again.drop_table("b")
    assert again.result.commit_ts == tx.result.commit_ts


def test_table_is_dropped_and_created_anew_under_its_name(catalog: deltars.Catalog) -> None:
    catalog.write("a", ROWS)
    old = catalog.table("a")
    with catalog.begin(txn_id="anew") as tx:
        tx.write("a", ROWS)
        tx.drop_table("A")
        with pytest.raises(TableNotFound, match="this transaction drops the table"):
            tx.to_arrow("a")
        with pytest.raises(TableNotFound, match="this transaction drops the table"):
            tx.stage(old.id, [])
        tx.create_table("a", "name STRING")
        tx.write("a", pa.table({"name": ["x"]}))
        assert tx.to_arrow("a").to_pylist() == [{"name": "x"}]
    new = catalog.table("a")
    assert new.id != old.id
    assert new.location != old.location
    assert (tx.result.versions, new.to_arrow().num_rows) == ({"a": 0}, 1)
    with catalog.begin(txn_id="anew") as again:
        again.drop_table("a")
        again.create_table("a", "name STRING")
    assert again.result.commit_ts == tx.result.commit_ts
    assert catalog.table("a") == new


@pytest.mark.backends("sqlite")
def test_table_created_and_dropped_in_one_transaction_never_was(catalog: deltars.Catalog) -> None:
    with catalog.begin() as tx:
        tx.create_table("a", "id BIGINT")
        tx.write("a", ROWS)
        tx.drop_table("a")
        with pytest.raises(TableNotFound):
            tx.to_arrow("a")
    assert tx.result.commit_ts is None
    assert names(catalog) == []


@pytest.mark.backends("sqlite")
def test_rollback_drops_nothing(catalog: deltars.Catalog) -> None:
    catalog.write("a", ROWS)
    tx = catalog.begin()
    tx.drop_table("a")
    assert "drop a" in repr(tx)
    tx.rollback()
    assert names(catalog) == ["a"]


def test_strict_drop_of_a_table_that_moved_is_a_conflict(catalog: deltars.Catalog) -> None:
    catalog.write("a", ROWS)
    tx = catalog.begin()
    tx.drop_table("a")
    tx.write("b", ROWS)
    theirs = catalog.write("a", ROWS)
    with pytest.raises(VersionConflict) as caught:
        tx.commit()
    assert (caught.value.table, caught.value.expected, caught.value.actual) == ("a", 0, 1)
    assert caught.value.winner_txn_id == theirs.txn_id
    assert names(catalog) == ["a"]
    with catalog.begin(isolation="serializable") as again:
        again.drop_table("a")
        catalog.write("a", ROWS)
    assert names(catalog) == []


def test_serializable_drop_of_a_table_that_was_read_is_a_conflict(catalog: deltars.Catalog) -> None:
    catalog.write("a", ROWS)
    tx = catalog.begin(isolation="serializable")
    tx.write("copy", tx.to_arrow("a"))
    tx.drop_table("a")
    catalog.write("a", ROWS)
    with pytest.raises(deltars.ConcurrentAppend):
        tx.commit()
    assert names(catalog) == ["a"]


def test_second_dropper_and_writer_of_a_dropped_table_are_refused(catalog: deltars.Catalog) -> None:
    catalog.write("a", ROWS)
    first, second, writer = catalog.begin(), catalog.begin(), catalog.begin(isolation="snapshot")
    second.drop_table("a")
    second.write("b", ROWS)
    writer.write("a", ROWS)
    first.drop_table("a")
    first.commit()
    for late in (second, writer):
        with pytest.raises(TableNotFound, match="the table was dropped"):
            late.commit()
    assert names(catalog) == []


def test_droppers_and_writers_at_once_leave_one_outcome(catalog: deltars.Catalog) -> None:
    def drop(table_id: UUID, level: deltars.Isolation) -> str:
        try:
            with catalog.begin(isolation=level) as tx:
                tx.drop_table(table_id)
        except (TableNotFound, VersionConflict) as error:
            return type(error).__name__
        return "dropped"

    def write(table_id: UUID) -> str:
        try:
            catalog.table(table_id).write(ROWS)
        except TableNotFound as error:
            return type(error).__name__
        return "written"

    for _ in range(3):
        catalog.write("a", ROWS)
        table_id = catalog.table("a").id
        with ThreadPoolExecutor(4) as pool:
            drops = [pool.submit(drop, table_id, "serializable"), pool.submit(drop, table_id, "strict")]
            writes = [pool.submit(write, table_id) for _ in range(2)]
            outcomes = [future.result() for future in drops]
            assert {future.result() for future in writes} <= {"written", "TableNotFound"}
        assert outcomes.count("dropped") == 1
        assert names(catalog) == []


@pytest.mark.backends("sqlite")
def test_drop_with_its_files_is_refused_with_what_to_do(catalog: deltars.Catalog) -> None:
    catalog.write("a", ROWS)
    table = catalog.table("a")
    with catalog.begin() as tx:
        with pytest.raises(ValidationError, match=r"a rollback could not bring them back.*After the commit"):
            tx.drop_table("a", delete_data=True)
        with pytest.raises(TableNotFound):
            tx.drop_table("nothing")
        tx.drop_table("a")
    assert list(Path(table.location).glob("*.parquet"))
    catalog.drop_table(table.id, delete_data=True)
    assert not list(Path(table.location).glob("**/*.parquet"))


@pytest.mark.backends("sqlite")
def test_dropped_table_is_registered_as_dropped_for_a_rebuild(tmp_path: Path) -> None:
    with deltars.connect(f"deltasql://sqlite/{tmp_path}/lake.db", warehouse=str(tmp_path / "w")) as catalog:
        catalog.write("a", ROWS)
        with catalog.begin() as tx:
            tx.drop_table("a")
            tx.write("b", ROWS)
    deltars.rebuild(str(tmp_path / "w"), f"deltasql://sqlite/{tmp_path}/again.db")
    with deltars.connect(f"deltasql://sqlite/{tmp_path}/again.db") as rebuilt:
        assert names(rebuilt) == ["b"]
