"""How large a transaction may be, and what the one that is larger is told."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from deltars.errors import TransactionTooLarge
from tests.support.lake import Lake, OpenLake
from tests.support.log import added, removed
from tests.support.soak import record, scaled

# The subject is not the database.
pytestmark = pytest.mark.backends("sqlite")


def _columns(prefix: str, count: int) -> pa.Table:
    return pa.table(
        {
            "path": [f"{prefix}-{number}.parquet" for number in range(count)],
            "partition_values": pa.repeat("{}", count),
            "size": pa.repeat(1, count),
            "modification_time": pa.repeat(0, count),
            "data_change": pa.repeat(True, count),
        }
    )


@pytest.mark.backends("postgres", "sqlite", "duckdb")
@pytest.mark.requirement("M-20")
def test_eleventh_table_is_refused_with_advice_on_splitting(open_lake: OpenLake) -> None:
    names = [f"t{number}" for number in range(11)]
    lake = open_lake(*names)
    tx = lake.begin()
    for name in names[:10]:
        tx.stage(name, [added("1")])
    with pytest.raises(TransactionTooLarge, match=r"would write 11 tables, and max_tables is 10") as caught:
        tx.stage(names[10], [added("1")])
    assert (caught.value.limit, caught.value.asked, caught.value.stage) == (10, 11, "validate")
    assert caught.value.txn_id == tx.id
    assert "Split it into smaller transactions" in str(caught.value)
    with pytest.raises(TransactionTooLarge):
        tx.write("new", pa.table({"id": [1]}))
    # The ten that fit are as they were, and more may come for them.
    tx.stage(names[0], [added("2")])
    assert len(tx.commit().versions) == 10
    assert lake[names[10]].live() == []


@pytest.mark.backends("postgres", "sqlite", "duckdb")
@pytest.mark.requirement("M-20")
def test_number_of_tables_can_be_set_for_a_catalog_and_for_a_transaction(open_lake: OpenLake) -> None:
    lake = open_lake("a", "b", "c", max_tables=2)
    for options, limit in (({}, 2), ({"max_tables": 1}, 1), ({"max_tables": 3}, 3)):
        tx = lake.begin(**options)
        for name in "abc"[:limit]:
            tx.stage(name, [added(f"{limit}")])
        if limit < 3:
            with pytest.raises(TransactionTooLarge, match=f"max_tables is {limit}"):
                tx.stage("abc"[limit], [added(f"{limit}")])
        assert len(tx.commit().versions) == limit


@pytest.mark.backends("postgres", "sqlite", "duckdb")
@pytest.mark.requirement("M-21")
def test_more_files_than_the_limit_are_refused_in_a_transaction_over_several_tables(lake: Lake) -> None:
    tx = lake.begin()
    tx.stage("a", [added("1")])
    with pytest.raises(TransactionTooLarge, match=r"add 1001 files to b, and max_files_per_table is 1000") as caught:
        tx.stage("b", [added(f"{number}") for number in range(1_001)])
    assert (caught.value.limit, caught.value.asked, caught.value.table) == (1_000, 1_001, "b")
    assert "Commit this table by itself" in str(caught.value)
    with pytest.raises(TransactionTooLarge):
        tx.stage("b", _columns("b", 1_001))
    # Nothing of what was refused is staged.
    tx.stage("b", _columns("b", 999))
    tx.stage("b", [added("last")])
    with pytest.raises(TransactionTooLarge):
        tx.stage("b", [added("one too many")])
    assert tx.commit().versions == {"a": 1, "b": 1}
    assert (len(lake["a"].live()), len(lake["b"].live())) == (1, 1_000)


@pytest.mark.backends("postgres", "sqlite", "duckdb")
@pytest.mark.requirement("M-21")
def test_table_alone_may_add_any_number_and_then_takes_no_second(lake: Lake) -> None:
    tx = lake.begin()
    tx.stage("a", _columns("a", 1_500))
    with pytest.raises(TransactionTooLarge, match="add 1500 files to a"):
        tx.stage("b", [added("1")])
    assert tx.commit().versions == {"a": 1}
    assert len(lake["a"].live()) == 1_500


@pytest.mark.backends("postgres", "sqlite", "duckdb")
@pytest.mark.requirement("M-21")
def test_number_of_files_can_be_set_for_a_catalog_and_for_a_transaction(open_lake: OpenLake) -> None:
    lake = open_lake("a", "b", max_files_per_table=2)
    for options, limit in (({}, 2), ({"max_files_per_table": 1}, 1), ({"max_files_per_table": 3}, 3)):
        tx = lake.begin(**options)
        tx.stage("b", [added(f"{limit}")])
        tx.stage("a", [added(f"{limit}-{number}") for number in range(limit)])
        with pytest.raises(TransactionTooLarge, match=f"max_files_per_table is {limit}"):
            tx.stage("a", [added(f"{limit}-more")])
        assert tx.commit().versions.keys() == {"a", "b"}


@pytest.mark.backends("sqlite")
def test_removed_files_do_not_count(open_lake: OpenLake) -> None:
    lake = open_lake("a", "b", max_files_per_table=2)
    lake["a"].append(*"123")
    with lake.begin() as tx:
        tx.stage("b", [added("1")])
        tx.stage("a", [removed(path) for path in "123"])
        tx.stage("a", [added(path) for path in "45"])
        tx.stage("a", [removed("4")])
        tx.stage("a", [added("6")])
    assert lake["a"].live() == ["5", "6"]


@pytest.mark.soak
def test_raised_limits_take_a_hundred_tables_and_a_hundred_thousand_files(open_lake: OpenLake) -> None:
    tables, files = scaled(12, soak=100), scaled(1_200, soak=100_000)
    names = [f"t{number}" for number in range(tables)]
    lake = open_lake(*names)
    share = files // tables
    with lake.begin(max_tables=tables, max_files_per_table=share, timeout=600) as tx:
        for name in names:
            tx.stage(name, _columns(name, share))
    assert tx.result.versions == dict.fromkeys(names, 1)
    cut = lake.catalog.snapshot(as_of=tx.id)
    assert {cut.table(name).totals.num_files for name in names} == {share}
    record("wide transaction", tables=tables, files=files)


def _partitioned(count: int) -> pa.Table:
    return pa.table({"id": list(range(count)), "k": [f"{number}" for number in range(count)]})


def _parquet_files(lake: Lake, table: str) -> list[Path]:
    assert lake.catalog.warehouse is not None
    return sorted((Path(lake.catalog.warehouse) / table).rglob("*.parquet"))


@pytest.mark.backends("sqlite")
def test_write_of_too_many_partitions_is_refused_before_a_file_is_written(open_lake: OpenLake) -> None:
    lake = open_lake("a", max_files_per_table=3)
    with lake.begin() as tx:
        tx.stage("a", [added("1")])
        with pytest.raises(TransactionTooLarge, match=r"needs at least 5 files, .* max_files_per_table is 3") as caught:
            tx.write("facts", _partitioned(5), partition_by="k")
        assert (caught.value.limit, caught.value.asked, caught.value.table) == (3, 5, "facts")
        assert (caught.value.txn_id, caught.value.stage) == (tx.id, "write data")
        assert "for this transaction with begin(max_files_per_table=5)" in str(caught.value)
        assert "for the catalog with connect(…, max_files_per_table=5)" in str(caught.value)
        assert _parquet_files(lake, "facts") == []
        tx.write("facts", _partitioned(3), partition_by="k")
    assert tx.result.versions == {"a": 1, "facts": 0}


@pytest.mark.backends("sqlite")
def test_write_of_too_many_files_stops_at_the_limit(open_lake: OpenLake) -> None:
    lake = open_lake("a", max_files_per_table=3)
    rows = (pa.record_batch({"id": [number]}) for number in range(100))
    source = pa.RecordBatchReader.from_batches(pa.schema([("id", pa.int64())]), rows)
    with lake.begin() as tx:
        tx.stage("a", [added("1")])
        with pytest.raises(TransactionTooLarge, match="max_files_per_table is 3"):
            tx.write("facts", source, max_records_per_file=1)
    assert len(_parquet_files(lake, "facts")) <= 3
    assert next(rows).column(0)[0].as_py() < 10


@pytest.mark.backends("sqlite")
def test_files_staged_before_count_unless_they_are_overwritten(open_lake: OpenLake) -> None:
    lake = open_lake("a", max_files_per_table=3)
    with lake.begin() as tx:
        tx.stage("a", [added("1")])
        tx.write("facts", _partitioned(2), partition_by="k")
        with pytest.raises(TransactionTooLarge, match="needs at least 2 files, but at most 1 more are allowed"):
            tx.write("facts", _partitioned(2))
        assert len(_parquet_files(lake, "facts")) == 2
        tx.write("facts", _partitioned(3), "overwrite")
    assert len(lake.catalog.table("facts").snapshot().files) == 3


@pytest.mark.backends("sqlite")
def test_first_table_may_have_any_number_until_a_second_one_comes(open_lake: OpenLake) -> None:
    lake = open_lake("a", max_files_per_table=3)
    with lake.begin() as tx:
        tx.write("facts", _partitioned(5), partition_by="k")
        with pytest.raises(TransactionTooLarge, match="5 files to facts") as caught:
            tx.write("a", pa.table({"id": [1]}))
        assert "begin(max_files_per_table=5)" in str(caught.value)
        assert _parquet_files(lake, "a") == []
    with lake.begin(max_files_per_table=5) as tx:
        tx.write("facts", _partitioned(5))
        tx.write("a", pa.table({"id": [1]}))
    assert tx.result.versions == {"facts": 1, "a": 1}
