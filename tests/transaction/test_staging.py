"""Several steps on one table fold into one version: what is left is what doing them one after the other would leave."""

from __future__ import annotations

from typing import Any

import hypothesis
import pyarrow as pa
import pytest
from hypothesis import strategies as st

from deltars.protocol import AddFile, DomainMetadata, Txn
from tests.support.lake import Lake, OpenLake
from tests.support.log import added, metadata, removed, vector

PATHS = tuple("abcdefg")


def _columns(*adds: AddFile) -> pa.Table:
    return pa.table(
        {
            "path": [add.path for add in adds],
            "partition_values": ["{}" for _ in adds],
            "size": [add.size for add in adds],
            "modification_time": [0 for _ in adds],
            "data_change": [True for _ in adds],
        },
        schema=pa.schema(
            [
                ("path", pa.string()),
                ("partition_values", pa.string()),
                ("size", pa.int64()),
                ("modification_time", pa.int64()),
                ("data_change", pa.bool_()),
            ]
        ),
    )


@pytest.fixture
def table(open_lake: OpenLake) -> Lake:
    return open_lake("a")


def _commit(lake: Lake, *steps: Any) -> list[str]:
    with lake.begin() as tx:
        for step in steps:
            tx.stage("a", step)
    return lake["a"].live()


def test_staged_add_that_is_removed_later_vanishes(table: Lake) -> None:
    assert _commit(table, [added("1"), added("2")], [removed("1")]) == ["2"]
    assert table["a"].rows("SELECT path FROM dl_add_files WHERE table_id = ?") == [("2",)]
    assert table["a"].rows("SELECT path FROM dl_remove_files WHERE table_id = ?") == []


def test_live_file_that_is_added_anew_and_removed_is_removed(table: Lake) -> None:
    table["a"].append("1")
    assert _commit(table, [added("1", size=5)], [removed("1")]) == []
    assert table["a"].rows("SELECT version, path FROM dl_remove_files WHERE table_id = ?") == [(2, "1")]


def test_removed_file_that_is_added_again_is_added_only(table: Lake) -> None:
    table["a"].append("1")
    assert _commit(table, [removed("1")], [added("1", size=5)]) == ["1"]
    assert table["a"].rows("SELECT path FROM dl_remove_files WHERE table_id = ?") == []
    live = "SELECT size FROM dl_add_files WHERE table_id = ? AND removed_version IS NULL"
    assert table["a"].one(live) == 5


@pytest.mark.backends("sqlite")
def test_columns_and_single_actions_fold_into_each_other(table: Lake) -> None:
    table["a"].append("live")
    columns = _columns(added("1"), added("2", size=22), added("live"))
    assert _commit(
        table,
        [added("1", size=1), removed("live")],
        columns,
        [removed("1"), added("3")],
        _columns(added("3", size=33)),
        [added("2", size=222)],
    ) == ["2", "3", "live"]
    live = "SELECT path, size FROM dl_add_files WHERE table_id = ? AND removed_version IS NULL ORDER BY path"
    assert table["a"].rows(live) == [("2", 222), ("3", 33), ("live", 10)]


@pytest.mark.backends("sqlite")
def test_deletion_vector_is_part_of_a_files_identity(table: Lake) -> None:
    stats = '{"numRecords":10}'
    table["a"].commit([added("1", stats=stats)])
    first, second = vector(1), vector(2)
    with table.begin() as tx:
        tx.stage("a", [removed("1"), added("1", stats=stats, deletion_vector=first)])
        tx.stage("a", [removed("1", deletion_vector=first), added("1", stats=stats, deletion_vector=second)])
        assert [file["path"] for file in tx.files("a").to_pylist()] == ["1"]
    assert table["a"].rows("SELECT dv_id FROM dl_remove_files WHERE table_id = ?") == [("",)]
    live = "SELECT dv_id FROM dl_add_files WHERE table_id = ? AND removed_version IS NULL"
    assert table["a"].one(live) == second.unique_id


@pytest.mark.backends("sqlite")
def test_last_metadata_and_progress_win(table: Lake) -> None:
    _commit(
        table,
        [metadata(description="first"), Txn(app_id="x", version=1), Txn(app_id="y", version=1)],
        [metadata(description="second"), Txn(app_id="x", version=2)],
        [DomainMetadata(domain="d", configuration="1", removed=False)],
        [DomainMetadata(domain="d", configuration="2", removed=False)],
    )
    snapshot = table.catalog.table("a").snapshot()
    assert snapshot.metadata.description == "second"
    assert {app_id: txn.version for app_id, txn in snapshot.txns.items()} == {"x": 2, "y": 1}
    assert snapshot.domains["d"].configuration == "2"


@pytest.mark.backends("sqlite")
def test_operations_are_listed_with_their_parameters(table: Lake) -> None:
    tx = table.begin()
    tx.stage("a", [added("1")], operation="WRITE", operation_params={"mode": "Append"})
    tx.stage("a", [removed("1")], operation="DELETE", operation_params={"predicate": ["x = 1"]})
    tx.commit()
    [entry, _] = table.catalog.table("a").history()
    assert entry.operation == "TRANSACTION"
    assert entry.operation_params == {
        "operations": [
            {"operation": "WRITE", "parameters": {"mode": "Append"}},
            {"operation": "DELETE", "parameters": {"predicate": ["x = 1"]}},
        ]
    }
    _commit(table, [added("1")], [added("2")])
    [entry, *_] = table.catalog.table("a").history()
    assert (entry.operation, len(entry.operation_params["operations"])) == ("WRITE", 2)


@pytest.mark.backends("sqlite")
def test_column_added_to_many_staged_ones_does_not_look_at_each_of_them_again(table: Lake) -> None:
    """A thousand steps over ten thousand staged files would take minutes."""
    tx = table.begin()
    tx.stage("a", _columns(*(added(f"column-{number}") for number in range(10_000))))
    tx.stage("a", [added(f"single-{number}") for number in range(1_000)])
    tx.stage("a", [removed(f"column-{number}") for number in range(1_000)])
    assert len(tx.files("a")) == 10_000


@hypothesis.given(st.data())
@hypothesis.settings(
    max_examples=40, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture], deadline=None
)
@pytest.mark.backends("sqlite")
def test_folded_steps_leave_what_a_plain_replay_leaves(table: Lake, data: st.DataObject) -> None:
    live = "SELECT path, size FROM dl_add_files WHERE table_id = ? AND removed_version IS NULL"
    sizes = st.dictionaries(st.sampled_from(PATHS), st.integers(0, 1_000), max_size=4)
    model = data.draw(sizes)
    others = sorted(set(table["a"].live()) - model.keys())
    table["a"].commit([*map(removed, others), *(added(path, size=size) for path, size in model.items())])
    version = table["a"].version
    tx = table.begin()
    for _ in range(data.draw(st.integers(1, 5))):
        adds = data.draw(sizes)
        files = [added(path, size=size) for path, size in adds.items()]
        if data.draw(st.booleans()):
            tx.stage("a", _columns(*files))
        else:
            there = sorted(model.keys() - adds.keys())
            gone = data.draw(st.lists(st.sampled_from(there), unique=True)) if there else []
            tx.stage("a", data.draw(st.permutations([*files, *map(removed, gone)])))
            for path in gone:
                del model[path]
        model |= adds
        seen = tx.files("a")
        assert dict(zip(seen["path"].to_pylist(), seen["size"].to_pylist(), strict=True)) == model
        assert len(seen) == len(model)
    tx.commit()
    assert dict(table["a"].rows(live)) == model
    assert len(table["a"].live()) == len(model)
    assert table["a"].version == version + 1
