"""Tables in an object store that the session has no file system for: Spark's tasks read and write through obstore."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

import deltars
from deltars.data.files import SCAN_COLUMNS
from deltars.predicate import known_part, parse
from deltars.spark.read_by_arrow import can_open, read_batches
from deltars.storage import open_storage
from tests.support.s3 import SECRET, new_bucket, options_for, s3_server

ROWS = [(number, f"2026-01-{1 + number % 3:02}", f"name {number}") for number in range(90)]


@pytest.fixture(scope="module")
def options() -> Iterator[dict[str, str]]:
    with s3_server() as endpoint:
        yield options_for(endpoint)


@pytest.fixture(scope="module")
def catalog(options: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[deltars.Catalog]:
    place = tmp_path_factory.mktemp("s3")
    warehouse = f"s3://{new_bucket(options['aws_endpoint'])}/lake"
    with deltars.connect(f"deltasql://sqlite/{place}/lake.db", warehouse=warehouse, storage_options=options) as opened:
        yield opened


@pytest.fixture(scope="module")
def written(catalog: deltars.Catalog, spark: SparkSession) -> deltars.Transaction:
    frame = spark.createDataFrame(ROWS, "id int, day string, name string").repartition(2)
    with catalog.begin() as tx:
        tx.write("by_day", frame, partition_by=["day"])
        tx.write("plain", frame)
    return tx


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().toString())


@pytest.mark.parametrize("table", ["by_day", "plain"])
def test_rows_written_to_an_object_store_are_read_back_by_spark_and_by_others(
    table: str, catalog: deltars.Catalog, written: deltars.Transaction, options: dict[str, str], spark: SparkSession
) -> None:
    location = catalog.table(table).location
    assert not can_open(spark, location)
    assert sorted(map(tuple, catalog.table(table).read(spark).select("id", "day", "name").collect())) == ROWS
    outside = DeltaTable(location, storage_options=options).to_pyarrow_table()
    assert sorted(zip(*(outside[name].to_pylist() for name in ("id", "day", "name")), strict=True)) == ROWS


@pytest.mark.parametrize("table", ["by_day", "plain"])
def test_conditions_and_columns_are_applied_where_the_files_are_read(
    table: str, catalog: deltars.Catalog, written: deltars.Transaction, spark: SparkSession
) -> None:
    where = "day = '2026-01-02' AND id < 40 AND upper(name) <> 'NAME 1'"
    found = catalog.table(table).read(spark, where=where, columns=["name"])
    expected = [name for number, day, name in ROWS if day == "2026-01-02" and number < 40 and name != "name 1"]
    assert sorted(row.name for row in found.collect()) == sorted(expected)
    few = catalog.table(table).read(spark, where="id < 40", columns=["name"])
    tasks = [line for line in plan_of(few).splitlines() if "MapInArrow" in line]
    assert tasks
    assert all("c1#" in line for line in tasks)
    assert not any("c2#" in line for line in tasks), "the day is asked for by nobody"


def test_tasks_leave_out_the_rows_that_cannot_match(
    catalog: deltars.Catalog, written: deltars.Transaction, options: dict[str, str]
) -> None:
    table = catalog.table("plain")
    snapshot = table.snapshot()
    told = (table.location, snapshot.schema.to_json(), (), "plain", snapshot.version)
    predicate = known_part(parse("id < 40 AND upper(name) <> 'NAME 1'", snapshot.schema))
    files = snapshot.select_files(columns=SCAN_COLUMNS).to_batches()
    rows = [
        row
        for batch in read_batches(told, options, "none", ["id"], predicate, iter(files))
        for row in batch.to_pylist()
    ]
    assert sorted(row["c0"] for row in rows) == list(range(40))


def test_a_query_joins_tables_in_an_object_store(
    catalog: deltars.Catalog, written: deltars.Transaction, spark: SparkSession
) -> None:
    text = "SELECT count(*) AS n FROM by_day JOIN plain USING (id, day) WHERE id BETWEEN 10 AND 19"
    assert catalog.sql(text, spark=spark).first()["n"] == 10


def test_credentials_are_in_no_plan_and_in_no_error(
    catalog: deltars.Catalog, written: deltars.Transaction, spark: SparkSession, tmp_path: Path
) -> None:
    frame = catalog.table("plain").read(spark, where="id > 5")
    assert SECRET not in plan_of(frame)
    file = catalog.table("plain").snapshot().files["path"][0].as_py()
    storage = open_storage(catalog.table("plain").location, catalog.engine.settings.storage_options)
    storage.delete([file])
    with pytest.raises(Exception, match="part-") as raised:
        frame.collect()
    assert SECRET not in str(raised.value)
