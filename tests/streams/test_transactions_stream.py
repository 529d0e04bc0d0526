"""A stream of transactions: ranges of whole transactions, from many tables to many tables, exactly once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import deltars
from deltars.errors import ValidationError, VersionNotFound
from deltars.streams.options import Options
from deltars.streams.transactions_stream import CutOffset, TransactionSource
from tests.support.backup import take_backup
from tests.support.soak import record, scaled, seed

pytestmark = [pytest.mark.backends("sqlite")]


def source(catalog: deltars.Catalog, **options: Any) -> TransactionSource:
    given = {"catalog": catalog.uri, "transactions": "true", **{name: str(value) for name, value in options.items()}}
    return TransactionSource(Options.of(given))


def ids(*numbers: int) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64())})


def commit(catalog: deltars.Catalog, number: int) -> deltars.TransactionResult:
    """Write the same number to two tables, in one transaction."""
    with catalog.begin() as tx:
        tx.write("a", ids(number))
        tx.write("b", ids(number))
    return tx.result


def test_batches_are_whole_transactions_in_commit_order(catalog: deltars.Catalog) -> None:
    catalog.write("a", ids())
    catalog.write("b", ids())
    catalog.write("other", ids())
    tables = f'["{catalog.table("a").id}", "{catalog.table("b").id}"]'
    stream = source(catalog, tables=tables, maxTransactionsPerTrigger=2)
    begun = stream.next_offset(stream.initial())
    [(txn_id, *_, is_initial, versions, uri)] = stream.rows(stream.initial(), begun)
    assert (txn_id, is_initial, set(versions.values()), uri) == (None, True, {(0, 0)}, catalog.uri)
    assert stream.next_offset(begun) == begun
    done = [commit(catalog, number) for number in range(5)]
    catalog.write("other", ids(9))
    offset, batches = begun, []
    while (end := stream.next_offset(CutOffset(**offset.to_json()))) != offset:
        batches.append([row[0] for row in stream.rows(offset, end)])
        # The tables are at the same version: no transaction is in the cut by halves.
        assert len(set(end.versions.values())) == 1
        offset = end
    assert batches == [[str(one.txn_id) for one in done[at : at + 2]] for at in (0, 2, 4)]
    later = source(catalog, tables=tables, since=done[2].commit_ts)
    assert [row[0] for row in later.rows(later.initial(), offset)] == [str(one.txn_id) for one in done[3:]]


def test_restored_database_stops_the_stream(migrated_uri: str, tmp_path: Path) -> None:
    catalog = deltars.connect(migrated_uri, mirror="off")  # a published version would contradict the new one
    commit(catalog, 0)
    backup = take_backup(catalog, tmp_path / "backup", None)
    commit(catalog, 1)
    catalog.write("other", ids(1))
    stream = source(catalog)
    offset = stream.next_offset(stream.initial())
    backup.restore()
    with pytest.raises(VersionNotFound, match=r"delivered version 1.*restored.*new checkpoint"):
        source(catalog).next_offset(offset)
    for number in (2, 3):  # the numbers of versions are taken again
        commit(catalog, number)
        with pytest.raises(VersionNotFound, match="restored"):
            source(catalog).next_offset(offset)


def test_purged_tables_take_their_commits_along_and_do_not_stop_the_stream(catalog: deltars.Catalog) -> None:
    commit(catalog, 0)
    catalog.write("other", ids(1))
    stream = source(catalog)
    offset = stream.next_offset(stream.initial())
    catalog.drop_table("other", purge=True)
    assert stream.next_offset(offset).versions.keys() <= offset.versions.keys()
    done = commit(catalog, 1)
    end = stream.next_offset(offset)
    assert [row[0] for row in stream.rows(offset, end)] == [str(done.txn_id)]


def test_changes_need_a_batch_of_the_stream(catalog: deltars.Catalog) -> None:
    with catalog.begin() as tx, pytest.raises(ValidationError, match="no batch of a transaction stream"):
        tx.changes("a")


@pytest.mark.spark
def test_wrong_arguments_are_refused(catalog: deltars.Catalog, spark: SparkSession) -> None:
    catalog.write("a", ids(1))
    for arguments, text in (
        ({"tables": []}, "tables is empty"),
        ({"tables": ["none"]}, "none"),
        ({"max_transactions": 0}, "max_transactions must be a whole number"),
    ):
        with pytest.raises(deltars.DeltarsError, match=text):
            deltars.transactions_stream(spark, catalog=catalog, **arguments)


@pytest.mark.spark
def test_derived_tables_follow_their_sources_exactly_once_into_another_catalog(
    catalog: deltars.Catalog, spark: SparkSession, tmp_path: Path
) -> None:
    """Orders and payments in one catalog become totals in another, which are never torn."""
    with catalog.begin() as tx:
        tx.write("orders", pa.table({"id": [1, 2], "amount": [10, 20]}))
        tx.write("payments", pa.table({"id": [1], "paid": [10]}))
    derived = deltars.connect(tmp_path / "derived.db")
    derived.create_table("totals", "id BIGINT, amount BIGINT, paid BIGINT")
    seen: list[int] = []

    def derive(tx: deltars.Transaction, transactions: DataFrame) -> None:
        seen.append(transactions.count())

        def net(table: str, column: str) -> DataFrame:
            rows = tx.changes(table).read(spark=spark)
            sign = F.when(F.col("_change_type").isin("insert", "update_postimage"), 1).otherwise(-1)
            return rows.groupBy("id").agg(F.sum(F.col(column) * sign).alias(column))

        moved = net("orders", "amount").join(net("payments", "paid"), "id", "full").na.fill(0)
        merge = tx.merge("totals", moved, "t.id = s.id")
        merge = merge.when_matched_update({"amount": "t.amount + s.amount", "paid": "t.paid + s.paid"})
        merge.when_not_matched_insert_all().execute()

    def run() -> None:
        stream = deltars.transactions_stream(spark, ["orders", "payments"], catalog=catalog, max_transactions=2)
        writer = stream.writeStream.foreachBatch(deltars.each_batch(derive, catalog=derived))
        while True:
            query = writer.option("checkpointLocation", str(tmp_path / "cp")).trigger(availableNow=True).start()
            try:
                query.awaitTermination()
                return
            except StreamingQueryException as error:
                if "failed to connect back" not in str(error):
                    raise

    run()
    assert seen == [1]
    with catalog.begin() as tx:
        tx.update("orders", {"amount": "15"}, "id = 1")
        tx.write("payments", pa.table({"id": [1, 2], "paid": [5, 20]}))
    catalog.write("orders", pa.table({"id": [3], "amount": [30]}))
    catalog.table("orders").delete("id = 2")
    run()
    assert seen == [1, 2, 1]
    found = {row["id"]: (row["amount"], row["paid"]) for row in derived.table("totals").to_arrow().to_pylist()}
    assert found == {1: (15, 15), 2: (0, 20), 3: (30, 0)}
    derived.close()


@pytest.mark.soak
@pytest.mark.timeout(7_200)
def test_random_transactions_are_delivered_whole_and_once(catalog: deltars.Catalog) -> None:
    """Follow three tables at random moments: what is delivered equals the tables at every cut."""
    import random

    draw = random.Random(seed())
    names = ("x", "y", "z")
    for name in names:
        catalog.write(name, ids())
    stream = source(catalog, maxTransactionsPerTrigger=draw.randint(1, 4))
    offset = stream.next_offset(stream.initial())
    state: dict[str, set[int]] = {name: set() for name in names}
    written = 0
    by_id = {str(catalog.table(name).id): name for name in names}
    for _ in range(scaled(25, soak=500)):
        if draw.random() < 0.6:
            with catalog.begin() as tx:
                for name in draw.sample(names, draw.randint(1, 3)):
                    tx.write(name, ids(written))
            written += 1
            continue
        end = stream.next_offset(offset)
        for row in stream.rows(offset, end):
            for key, (first, last) in row[6].items():
                state[by_id[key]] |= set(catalog.table(by_id[key]).changes(first, last).to_arrow()["id"].to_pylist())
        if end != offset:
            cut = catalog.snapshot(as_of=stream.rows(offset, end)[-1][0])
            for name in names:
                assert state[name] == set(cut.to_arrow(name)["id"].to_pylist())
        offset = end
    record("transaction stream against cuts", transactions=written)
