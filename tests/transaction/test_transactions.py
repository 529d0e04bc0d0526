"""Transactions over several tables: what they take, when they end, and what they answer."""

from __future__ import annotations

import logging
import pickle
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pyarrow as pa
import pytest

import deltars
from deltars import MultiTableTransaction
from deltars.errors import (
    ConfigError,
    DatabaseError,
    TableNotFound,
    TransactionClosed,
    ValidationError,
    VersionConflict,
)
from deltars.protocol import Action, AddFile
from deltars.store.read.version_header import VersionHeaders
from deltars.uri import parse_catalog_uri
from tests.support import witness
from tests.support.lake import Lake, OpenLake
from tests.support.log import SCHEMA, added, creation, metadata, removed
from tests.support.tap import Tap
from tests.support.together import Meanwhile

CONSISTENCY = Path(__file__).parents[2] / "docs" / "consistency.md"
WRITING = "dl_table_versions ("
"""In the text of the statement that writes the new versions: the locks are held by then."""


def _table_uri(catalog_uri: str, table: str) -> str:
    path, _, query = catalog_uri.partition("?")
    return f"{path}/{table}" + (f"?{query}" if query else "")


@pytest.mark.backends("postgres", "sqlite")
def test_version_that_this_process_committed_is_not_looked_up_again(
    open_lake: OpenLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, looked_up = open_lake("a"), []
    at = VersionHeaders.at

    def counted(headers: VersionHeaders, table_id: UUID, version: int) -> Any:
        looked_up.append(version)
        return at(headers, table_id, version)

    def stage(*actions: Action) -> list[str]:
        """Commit these actions; the columns that the transaction saw before."""
        with lake.begin() as tx:
            tx.stage("a", actions)
            seen = tx._view_for("a").seen("a").metadata
        assert seen is not None
        return list(seen.schema.names)

    monkeypatch.setattr(VersionHeaders, "at", counted)
    for number in range(3):
        stage(added(f"{number}"))
    assert looked_up == [0]
    # Neither a version of another process nor new metadata is followed.
    with deltars.connect(lake.uri, mirror="off") as other, other.begin() as tx:
        tx.stage("a", [metadata("id BIGINT, theirs STRING")])
    looked_up.clear()
    stage(added("3"))
    assert looked_up == [4]
    stage(metadata("id BIGINT, theirs STRING, mine STRING"))
    stage(added("4"))
    assert looked_up == [4, 6]
    assert stage(added("5")) == ["id", "theirs", "mine"]
    assert looked_up == [4, 6]


# -- all or nothing ----------------------------------------------------------------------------------------------------


@pytest.mark.every_case_on("sqlite")
@pytest.mark.requirement("M-01", "M-05")
@pytest.mark.parametrize("count", [2, 10])
def test_all_tables_advance_with_one_commit(open_lake: OpenLake, count: int) -> None:
    names = [f"t{number}" for number in range(count)]
    lake = open_lake(*names)
    with lake.begin() as tx:
        for name in names:
            tx.stage(name, [added(f"{name}.parquet")])
    assert lake.versions == dict.fromkeys(names, 1)
    assert lake.live() == {name: [f"{name}.parquet"] for name in names}
    assert tx.result.versions == lake.versions
    assert tx.result.versions_by_id == dict.fromkeys(lake.ids.values(), 1)
    # One transaction of the database: one row of it, one time stamp for all.
    written = "SELECT DISTINCT txn_id, commit_ts FROM dl_table_versions WHERE version = 1"
    assert [(UUID(str(row[0])), row[1]) for row in witness.rows(lake.uri, written)] == [(tx.id, tx.result.commit_ts)]
    [(participants,)] = witness.rows(
        lake.uri, "SELECT participants FROM dl_transactions WHERE txn_id = ?", [str(tx.id)]
    )
    as_json = participants if isinstance(participants, dict) else msgspec.json.decode(participants)
    assert as_json == {str(table_id): 1 for table_id in lake.ids.values()}


@pytest.mark.requirement("M-01", "M-14")
def test_one_table_that_moved_keeps_all_of_them_from_advancing(lake: Lake) -> None:
    for loser in "abc":
        tx = lake.begin()
        for name in ("c", "a", "b"):
            tx.stage(name, [added("mine")])
        lake[loser].append("theirs")
        before = lake.dump()
        with pytest.raises(VersionConflict) as caught:
            tx.commit()
        assert type(caught.value) is VersionConflict
        assert (caught.value.table, caught.value.table_id) == (loser, str(lake[loser].table_id))
        assert (caught.value.expected, caught.value.actual) == (0, 1)
        assert (caught.value.stage, caught.value.txn_id, caught.value.retryable) == ("check", tx.id, True)
        assert lake.dump() == before


@pytest.mark.requirement("M-02")
def test_several_stages_of_a_table_become_one_version(lake: Lake) -> None:
    tx = lake.begin()
    tx.stage("a", [added("1")])
    tx.stage("b", [added("2")], operation="DELETE", operation_params={"predicate": "x"})
    tx.stage("a", [added("3")])
    tx.stage_table("a", [metadata("id BIGINT, name STRING, more INT")], operation="ADD COLUMNS")
    assert lake.versions == {"a": 0, "b": 0, "c": 0}
    assert tx.commit().versions == {"a": 1, "b": 1}
    assert lake.versions == {"a": 1, "b": 1, "c": 0}
    assert lake.live() == {"a": ["1", "3"], "b": ["2"], "c": []}
    [entry, _] = lake.catalog.table("a").history()
    assert entry.operation == "TRANSACTION"
    assert [step["operation"] for step in entry.operation_params["operations"]] == ["WRITE", "WRITE", "ADD COLUMNS"]
    [entry, _] = lake.catalog.table("b").history()
    assert (entry.operation, entry.operation_params) == ("DELETE", {"predicate": "x"})


@pytest.mark.backends("sqlite")
@pytest.mark.requirement("M-02")
def test_multi_table_transaction_is_the_same_thing_by_another_name(lake: Lake) -> None:
    tx = MultiTableTransaction(lake.catalog, committer="ada")
    tx.stage_table(lake["a"].table_id, [added("1")])
    tx.stage_table("b", [added("2")])
    assert tx.commit().versions_by_id == {lake["a"].table_id: 1, lake["b"].table_id: 1}
    assert lake.catalog.table("b").history()[0].committer == "ada"


@pytest.mark.requirement("M-29")
def test_after_a_rollback_each_table_takes_a_commit_of_its_own(lake: Lake) -> None:
    before = lake.dump()
    tx = lake.begin()
    for name in "abc":
        tx.stage(name, [added("lost")])
    tx.rollback()
    assert lake.dump() == before
    for name in "abc":
        assert lake[name].append("kept").version == 1
    assert lake.live() == {name: ["kept"] for name in "abc"}


@pytest.mark.requirement("M-18")
def test_of_two_overlapping_transactions_the_second_waits_and_then_conflicts(open_lake: OpenLake, tap: Tap) -> None:
    lake = open_lake("a", "b", "c", tap=tap)
    other = deltars.connect(lake.uri)
    first, second = lake.begin(), other.begin()
    for tx, names in ((first, "ab"), (second, "bc")):
        for name in names:
            tx.stage(name, [added(f"{tx.id}")])
    with other, tap.holding(WRITING) as hold:
        committing = Meanwhile(first.commit)
        hold.wait_until_reached()
        waiting = Meanwhile(second.commit)
        waiting.stays_for(0.4)
        assert lake.versions == {"a": 0, "b": 0, "c": 0}
        hold.release()
        assert committing.result().versions == {"a": 1, "b": 1}
        error = waiting.error()
    assert isinstance(error, VersionConflict)
    assert (error.table, error.expected, error.actual) == ("b", 0, 1)
    assert lake.versions == {"a": 1, "b": 1, "c": 0}


@pytest.mark.requirement("M-18")
def test_of_two_overlapping_appends_the_second_waits_and_follows(open_lake: OpenLake, tap: Tap) -> None:
    lake = open_lake("a", "b", "c", tap=tap, isolation="serializable")
    other = deltars.connect(lake.uri, isolation="serializable")
    first, second = lake.begin(), other.begin()
    for tx, names in ((first, "ab"), (second, "bc")):
        for name in names:
            tx.stage(name, [added(f"{tx.id}")])
    with other, tap.holding(WRITING) as hold:
        committing = Meanwhile(first.commit)
        hold.wait_until_reached()
        waiting = Meanwhile(second.commit)
        waiting.stays_for(0.2)
        hold.release()
        assert committing.result().versions == {"a": 1, "b": 1}
        assert waiting.result().versions == {"b": 2, "c": 1}
    assert sorted(lake["b"].live()) == sorted([str(first.id), str(second.id)])


# -- the with block ----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("M-03")
def test_block_left_normally_commits(lake: Lake) -> None:
    with lake.begin() as tx:
        tx.stage("a", [added("1")])
        tx.stage("b", [added("2")])
        assert lake.versions == {"a": 0, "b": 0, "c": 0}
    assert lake.versions == {"a": 1, "b": 1, "c": 0}
    assert tx.result.versions == {"a": 1, "b": 1}


@pytest.mark.requirement("M-03", "M-33")
def test_block_left_by_an_exception_rolls_back(lake: Lake) -> None:
    before = lake.dump()
    for error in (ValueError, KeyboardInterrupt, SystemExit, GeneratorExit):
        tx = lake.begin()
        with pytest.raises(error), tx:  # noqa: PT012
            tx.stage("a", [added("1")])
            tx.stage("b", [added("2")])
            raise error
        with pytest.raises(TransactionClosed, match="did not commit"):
            _ = tx.result
    assert lake.dump() == before


@pytest.mark.requirement("M-03")
def test_block_may_end_its_transaction_itself(lake: Lake) -> None:
    with lake.begin() as tx:
        tx.stage("a", [added("1")])
        tx.commit()
    with lake.begin() as tx:
        tx.stage("a", [added("2")])
        tx.rollback()
    assert lake["a"].live() == ["1"]


@pytest.mark.backends("sqlite")
def test_write_that_fails_inside_the_block_undoes_the_writes_before_it(lake: Lake) -> None:
    before = lake.dump()
    with pytest.raises(deltars.SchemaMismatch) as caught, lake.begin() as tx:  # noqa: PT012
        tx.write("a", pa.table({"id": [1], "name": ["x"]}))
        tx.write("b", pa.table({"nobody": [1]}))
    assert (caught.value.table, caught.value.txn_id) == ("b", tx.id)
    assert lake.dump() == before


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("end", ["commit", "rollback", "conflict"])
def test_finished_transaction_refuses_everything(lake: Lake, end: str) -> None:
    tx = lake.begin()
    tx.stage("a", [added("1")])
    if end == "conflict":
        lake["a"].append()
        with pytest.raises(VersionConflict):
            tx.commit()
    else:
        getattr(tx, end)()
    before = lake.dump()
    uses: list[Any] = [
        tx.commit,
        tx.rollback,
        tx.__enter__,
        lambda: tx.files("a"),
        lambda: tx.read("a"),
        lambda: tx.stage("a", []),
        lambda: tx.write("a", pa.table({"id": [1]})),
    ]
    for use in uses:
        with pytest.raises(TransactionClosed, match="begin a new one") as caught:
            use()
        assert caught.value.txn_id == tx.id
    assert lake.dump() == before


@pytest.mark.backends("sqlite")
def test_transaction_with_nothing_staged_makes_no_version(lake: Lake) -> None:
    before = lake.dump()
    with lake.begin() as tx:
        tx.files("a")
    assert (tx.result.versions, tx.result.commit_ts) == ({}, None)
    with deltars.begin() as tx:
        pass
    assert tx.result.versions == {}
    assert lake.dump() == before


@pytest.mark.backends("sqlite")
def test_transaction_shows_what_it_is_at(lake: Lake) -> None:
    tx = lake.begin()
    assert repr(tx) == f"<Transaction {tx.id} open: nothing staged>"
    tx.stage("b", [added("1")])
    tx.stage("a", [added("1")])
    assert repr(tx) == f"<Transaction {tx.id} open: b, a>"
    tx.commit()
    assert repr(tx) == f"<Transaction {tx.id} committed: b, a>"


@pytest.mark.backends("sqlite")
def test_result_pickles(lake: Lake) -> None:
    with lake.begin() as tx:
        tx.stage("a", [added("1")])
        tx.stage("b", [added("1")])
    assert pickle.loads(pickle.dumps(tx.result)) == tx.result


# -- which tables ------------------------------------------------------------------------------------------------------


@pytest.mark.backends("sqlite")
def test_table_goes_by_its_name_its_id_and_its_uri(lake: Lake) -> None:
    a = lake["a"].table_id
    with lake.begin() as tx:
        for table, path in (("a", "1"), (a, "2"), (str(a), "3"), (str(a).upper(), "4")):
            tx.stage(table, [added(path)])
        tx.stage(_table_uri(lake.uri, "a"), [added("5")])
        assert tx.files(a)["path"].to_pylist() == ["1", "2", "3", "4", "5"]
    assert tx.result.versions == {"a": 1}
    assert lake["a"].live() == ["1", "2", "3", "4", "5"]


def test_transaction_by_uri_alone_binds_the_catalog_of_its_first_table(lake: Lake) -> None:
    with deltars.begin() as tx:
        tx.stage(_table_uri(lake.uri, "a"), [added("1")])
        tx.stage(_table_uri(lake.uri, "b"), [added("2")])
        tx.stage("b", [added("3")])
    assert tx.result.versions == {"a": 1, "b": 1}


def test_catalog_may_be_named_in_several_ways(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = parse_catalog_uri(lake.uri)
    if here.schema:
        for name in ("host", "port", "user"):
            monkeypatch.setenv(f"PG{name.upper()}", here.parameters[name])
        other = replace(here, parameters=MappingProxyType({"application_name": "etl"}))
    else:
        (tmp_path / "link").symlink_to(Path(here.database).parent)
        other = replace(here, database=str(tmp_path / "link" / Path(here.database).name))
    with lake.begin() as tx:
        tx.stage(_table_uri(lake.uri, "a"), [added("1")])
        tx.stage(_table_uri(other.with_secrets(), "b"), [added("1")])
    assert tx.result.versions == {"a": 1, "b": 1}


@pytest.mark.requirement("M-28")
def test_table_of_another_database_is_refused_with_the_reason(lake: Lake, tmp_path: Path) -> None:
    here = parse_catalog_uri(lake.uri)
    elsewhere = "another" if here.schema else str(tmp_path / f"another{Path(here.database).suffix}")
    other = replace(here, database=elsewhere).with_secrets()
    before = lake.dump()
    for tx in (lake.begin(), deltars.begin()):
        with pytest.raises(ValidationError, match="is in another catalog") as caught, tx:  # noqa: PT012
            tx.stage(_table_uri(lake.uri, "a"), [added("1")])
            tx.stage(_table_uri(other, "b"), [added("1")])
        assert "A transaction cannot span two catalogs" in str(caught.value)
    assert lake.dump() == before


@pytest.mark.backends("sqlite")
def test_table_that_is_not_there_is_named(lake: Lake) -> None:
    tx = lake.begin()
    for table in ("nobody", uuid4()):
        with pytest.raises(TableNotFound, match=str(table)):
            tx.stage(table, [added("1")])
        with pytest.raises(TableNotFound, match=str(table)):
            tx.files(table)
    with pytest.raises(TableNotFound):
        tx.write(uuid4(), pa.table({"id": [1]}))


@pytest.mark.backends("sqlite")
def test_table_that_came_after_the_beginning_is_refused_unless_its_version_is_given(lake: Lake) -> None:
    tx = lake.begin()
    late = lake.catalog.create_table("late", SCHEMA)
    for use in (tx.files, lambda name: tx.stage(name, [added("1")])):
        for table in ("late", late.id):
            with pytest.raises(TableNotFound, match="was not there when this transaction began"):
                use(table)
    tx.stage("late", [added("1")], expected_version=0)
    assert tx.commit().versions == {"late": 1}


def test_table_that_somebody_creates_first_is_a_conflict(lake: Lake) -> None:
    tx = lake.begin()
    tx.write("new", pa.table({"id": [1]}))
    tx.stage("a", [added("1")])
    lake.catalog.create_table("new", "id BIGINT")
    with pytest.raises(VersionConflict) as caught:
        tx.commit()
    assert (caught.value.table, caught.value.expected, caught.value.actual) == ("new", -1, 0)
    assert lake["a"].live() == []


def test_table_that_is_dropped_meanwhile_refuses_the_commit(lake: Lake) -> None:
    tx = lake.begin()
    tx.stage("a", [added("1")])
    tx.stage("b", [added("1")])
    lake.catalog.drop_table("b")
    with pytest.raises(TableNotFound, match="was dropped") as caught:
        tx.commit()
    assert (caught.value.table, caught.value.stage) == ("b", "check")
    assert lake["a"].live() == []


@pytest.mark.backends("sqlite")
def test_table_that_is_renamed_meanwhile_is_committed_to_all_the_same(lake: Lake) -> None:
    tx = lake.begin()
    tx.stage("a", [added("1")])
    lake.catalog.rename_table("a", "z")
    lake.catalog.rename_table("b", "a")
    tx.stage("a", [added("2")])
    assert tx.commit().versions_by_id == {lake["a"].table_id: 1}
    assert lake["a"].live() == ["1", "2"]


def test_new_and_old_tables_are_written_together(lake: Lake) -> None:
    with lake.begin() as tx:
        tx.write("new", pa.table({"id": [1, 2]}))
        tx.write("a", pa.table({"id": [3]}))
        tx.write("new", pa.table({"id": [4]}))
        assert len(tx.files("new")) == 2
    assert tx.result.versions == {"new": 0, "a": 1}
    assert len(lake.catalog.table("new").snapshot().files) == 2


@pytest.mark.backends("sqlite")
def test_expected_version_is_checked_instead_of_the_one_at_the_beginning(lake: Lake) -> None:
    tx = lake.begin()
    lake["a"].append("theirs")
    tx.stage("a", [added("mine")], expected_version=1)
    assert tx.commit().versions == {"a": 2}
    for wrong in (0, 1, 3):
        tx = lake.begin()
        tx.stage("a", [added("other")], expected_version=wrong)
        with pytest.raises(VersionConflict) as caught:
            tx.commit()
        assert (caught.value.expected, caught.value.actual) == (wrong, 2)


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("version", [-2, "0", 1.0, True])
def test_expected_version_that_is_none_is_refused(lake: Lake, version: Any) -> None:
    with pytest.raises(ValidationError, match="expected_version") as caught:
        lake.begin().stage("a", [added("1")], expected_version=version)
    assert caught.value.field == "expected_version"


@pytest.mark.backends("sqlite")
def test_first_version_of_a_registered_table_may_be_staged(lake: Lake, tmp_path: Path) -> None:
    lake.catalog.register_table("raw", str(tmp_path / "raw"))
    tx = lake.begin()
    with pytest.raises(ValidationError, match="nothing was committed to the table yet"):
        tx.files("raw")
    tx.stage("raw", creation(), operation="CREATE TABLE")
    tx.stage("raw", [added("1")])
    assert tx.files("raw")["path"].to_pylist() == ["1"]
    assert tx.commit().versions == {"raw": 0}


# -- what is refused, and what it says ---------------------------------------------------------------------------------


@pytest.mark.requirement("M-15", "M-17")
def test_invalid_action_names_its_table_and_what_is_wrong(lake: Lake) -> None:
    tx = lake.begin()
    tx.stage("a", [added("1")])
    with pytest.raises(ValidationError, match="size: must not be negative") as caught:
        tx.stage("b", [added("1"), added("2", size=-1)])
    error = caught.value
    assert (error.table, error.table_id, error.action, error.field) == ("b", str(lake["b"].table_id), 1, "size")
    assert (error.stage, error.txn_id) == ("validate", tx.id)


@pytest.mark.requirement("M-15", "M-17")
def test_action_that_does_not_fit_the_table_names_it_too(lake: Lake) -> None:
    tx = lake.begin()
    tx.stage("a", [added("1")])
    tx.stage("b", [added("1", partition_values={"day": "1"})])
    before = lake.dump()
    with pytest.raises(ValidationError, match="partition") as caught:
        tx.commit()
    assert (caught.value.table, caught.value.table_id) == ("b", str(lake["b"].table_id))
    assert (caught.value.stage, caught.value.txn_id) == ("validate", tx.id)
    assert lake.dump() == before


@pytest.mark.requirement("M-15", "M-17")
def test_remove_of_a_file_that_is_not_there_names_its_table(lake: Lake) -> None:
    tx = lake.begin()
    tx.stage("a", [added("1")])
    tx.stage("b", [removed("never")])
    before = lake.dump()
    with pytest.raises(ValidationError, match="never is not a live file") as caught:
        tx.commit()
    assert (caught.value.table, caught.value.stage) == ("b", "write")
    assert lake.dump() == before


@pytest.mark.requirement("M-17")
def test_failure_while_writing_names_the_stage_and_the_table_that_the_database_names(lake: Lake) -> None:
    for name in lake.by_id:
        tx = lake.begin()
        for each in "abc":
            tx.stage(each, [added("1")])
        # The version after the current one is there already: the primary key refuses it.
        with lake.catalog._session.database.write(10) as connection:
            schema = lake.catalog._session.uri.schema
            versions = f'"{schema}".dl_table_versions' if schema else "dl_table_versions"
            columns = "committed_at, operation, operation_params, txn_id, commit_ts, in_commit_timestamp"
            connection.exec_driver_sql(
                f"INSERT INTO {versions} (table_id, version, {columns}) SELECT table_id, 1, {columns} FROM {versions}"
                f" WHERE version = 0 AND table_id = '{lake[name].table_id}'"
            )
        with pytest.raises(DatabaseError) as caught:
            tx.commit()
        assert (caught.value.stage, caught.value.txn_id) == ("write", tx.id)
        if parse_catalog_uri(lake.uri).backend != "sqlite":  # SQLite names the constraint, and no values
            assert (caught.value.table, caught.value.table_id) == (name, str(lake[name].table_id))
        with lake.catalog._session.database.write(10) as connection:
            connection.exec_driver_sql(f"DELETE FROM {versions} WHERE version = 1")
    assert lake.versions == {"a": 0, "b": 0, "c": 0}


@pytest.mark.requirement("M-33")
def test_transaction_goes_on_after_a_refused_stage_and_holds_nothing_of_it(lake: Lake) -> None:
    """A stage is taken whole or not at all; the commit is then all of the rest."""
    tx = lake.begin()
    tx.stage("a", [added("1")])
    with pytest.raises(ValidationError):
        tx.stage("a", [added("2"), added("3", size=-1)], expected_version=7)
    with pytest.raises(ValidationError):
        tx.stage("b", [added("2", size=-1)])
    assert tx.commit().versions == {"a": 1}
    assert lake.live() == {"a": ["1"], "b": [], "c": []}


@pytest.mark.requirement("M-33")
def test_documentation_says_that_there_are_no_savepoints() -> None:
    text = " ".join(CONSISTENCY.read_text().split())
    assert "There are no savepoints." in text
    assert "undoes the whole transaction, never a part of it" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"isolation": "chaos"}, "there is no isolation level 'chaos'"),
        ({"timeout": 0}, "timeout must be more than 0"),
        ({"timeout": "soon"}, "timeout must be"),
        ({"max_tables": 0}, "max_tables must be a whole number of 1 or more"),
        ({"max_files_per_table": 2.5}, "max_files_per_table must be a whole number of 1 or more"),
        ({"txn_id": 1}, "txn_id"),
        ({"txn_id": ""}, "txn_id"),
        ({"txn_id": " "}, "txn_id"),
        ({"txn_id": "7d0f2c0e-3f0a-4c9e-9a53-6a3b1a0c9d1"}, "looks like a UUID and is not one"),
    ],
)
@pytest.mark.backends("sqlite")
def test_option_that_cannot_be_is_named(lake: Lake, options: dict[str, Any], message: str) -> None:
    for begin in (lake.begin, deltars.begin):
        with pytest.raises(ConfigError, match=message):
            begin(**options)


# -- one id everywhere -------------------------------------------------------------------------------------------------


@pytest.mark.requirement("M-26")
def test_id_is_on_the_transaction_its_result_rows_log_lines_and_published_commits(
    open_lake: OpenLake, caplog: pytest.LogCaptureFixture
) -> None:
    lake = open_lake("a", "b", mirror="inline")
    with caplog.at_level(logging.DEBUG, "deltars"), lake.begin() as tx:
        tx.stage("a", [added("1")])
        tx.stage("b", [added("1")])
    assert isinstance(tx.id, UUID)
    assert tx.result.txn_id == tx.id
    for query in (
        "SELECT txn_id FROM dl_transactions WHERE outcome = 'committed' AND txn_id = ?",
        "SELECT DISTINCT txn_id FROM dl_table_versions WHERE version = 1 AND txn_id = ?",
    ):
        assert [UUID(str(found)) for (found,) in witness.rows(lake.uri, query, [str(tx.id)])] == [tx.id]
    assert [
        record for record in caplog.records if str(tx.id) in record.getMessage() and "committed" in record.getMessage()
    ]
    for name in "ab":
        location = Path(lake.catalog.table(name).location)
        first_line = (location / "_delta_log" / f"{1:020}.json").read_text().splitlines()[0]
        assert msgspec.json.decode(first_line)["commitInfo"]["txnId"] == str(tx.id)
    assert lake.catalog.warehouse is not None
    assert (Path(lake.catalog.warehouse) / "_deltars" / "txns" / f"{tx.id}.json").exists()


@pytest.mark.requirement("M-26")
def test_id_is_on_every_error_and_its_log_line(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    lake["b"].append("theirs")
    stale = lake.begin()
    stale.stage("b", [added("1")], expected_version=0)
    missing = lake.begin()
    missing.stage("a", [removed("never")])
    unfit = lake.begin()
    unfit.stage("a", [added("1", partition_values={"x": "1"})])
    with caplog.at_level(logging.DEBUG, "deltars"):
        for tx in (stale, missing, unfit):
            with pytest.raises(deltars.DeltarsError) as caught:
                tx.commit()
            assert caught.value.txn_id == tx.id
            assert str(tx.id) in str(caught.value)
            assert pickle.loads(pickle.dumps(caught.value)).txn_id == tx.id
            assert str(tx.id) in caplog.text


@pytest.mark.requirement("M-26")
def test_id_is_on_a_failed_publication_too(open_lake: OpenLake, caplog: pytest.LogCaptureFixture) -> None:
    lake = open_lake("a", "b", mirror="inline")
    with lake.begin() as first:
        first.stage("a", [added("0")])
    log = Path(lake.catalog.table("a").location) / "_delta_log"
    (log / f"{2:020}.json").write_text('{"commitInfo":{"txnId":"somebody else"}}')
    with lake.begin() as tx:
        tx.stage("a", [added("1")])
        tx.stage("b", [added("1")])
    failure = tx.result.mirror["a"].failure
    assert failure is not None
    assert (failure.table, failure.version, failure.txn_id) == ("a", 2, tx.id)
    assert str(tx.id) in caplog.text
    assert pickle.loads(pickle.dumps(tx.result)).mirror["a"].failure.txn_id == tx.id
    assert lake.versions == {"a": 2, "b": 1}


@pytest.mark.backends("sqlite")
def test_actions_may_be_any_iterable_or_arrow(lake: Lake) -> None:
    columns = pa.table(
        {
            "path": ["3", "4"],
            "partition_values": ["{}", "{}"],
            "size": [1, 1],
            "modification_time": [0, 0],
            "data_change": [True, True],
        }
    )
    paths: Any = (AddFile(path=p, partition_values={}, size=1, modification_time=0, data_change=True) for p in "12")
    with lake.begin() as tx:
        tx.stage("a", paths)
        tx.stage("a", columns)
        assert sorted(tx.files("a")["path"].to_pylist()) == ["1", "2", "3", "4"]
    assert lake["a"].live() == ["1", "2", "3", "4"]
