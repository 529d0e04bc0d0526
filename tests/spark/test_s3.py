"""Tables in an object store that the session has no file system for: Spark's tasks read and write through obstore."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

import deltars
from deltars.data.scan import SCAN_COLUMNS
from deltars.doctor.object_store import reading
from deltars.predicate import known_part, parse
from deltars.spark.access import access_to
from deltars.spark.read.arrow import read_batches
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


def rows_out_of_tasks(frame: DataFrame) -> int:
    """Of a frame that was collected: what the Arrow readers handed to Spark."""

    def nodes(plan: Any) -> Iterator[Any]:
        while (name := plan.nodeName()).endswith("QueryStage") or name == "AdaptiveSparkPlan":
            plan = plan.executedPlan() if name == "AdaptiveSparkPlan" else plan.plan()
        yield plan
        for at in range(plan.children().size()):
            yield from nodes(plan.children().apply(at))

    found = [node for node in nodes(frame._jdf.queryExecution().executedPlan()) if node.nodeName() == "MapInArrow"]
    assert found
    return sum(int(node.metrics().apply("pythonNumRowsReceived").value()) for node in found)


@pytest.mark.parametrize("table", ["by_day", "plain"])
def test_rows_written_to_an_object_store_are_read_back_by_spark_and_by_others(
    table: str, catalog: deltars.Catalog, written: deltars.Transaction, options: dict[str, str], spark: SparkSession
) -> None:
    location = catalog.table(table).location
    assert access_to(spark, location, "any").scheme is None
    assert sorted(map(tuple, catalog.table(table).read(spark=spark).select("id", "day", "name").collect())) == ROWS
    outside = DeltaTable(location, storage_options=options).to_pyarrow_table()
    assert sorted(zip(*(outside[name].to_pylist() for name in ("id", "day", "name")), strict=True)) == ROWS


@pytest.mark.parametrize("table", ["by_day", "plain"])
def test_conditions_and_columns_are_applied_where_the_files_are_read(
    table: str, catalog: deltars.Catalog, written: deltars.Transaction, spark: SparkSession
) -> None:
    where = "day = '2026-01-02' AND id < 40 AND upper(name) <> 'NAME 1'"
    found = catalog.table(table).read(spark=spark, where=where, columns=["name"])
    expected = [name for number, day, name in ROWS if day == "2026-01-02" and number < 40 and name != "name 1"]
    assert sorted(row.name for row in found.collect()) == sorted(expected)
    few = catalog.table(table).read(spark=spark, where="id < 40", columns=["name"])
    tasks = [line for line in plan_of(few).splitlines() if "MapInArrow" in line]
    assert tasks
    assert all("c1#" in line for line in tasks)
    assert not any("c2#" in line for line in tasks), "the day is asked for by nobody"
    # What is true, or never true, of every row names its columns all the same.
    every = catalog.table(table).read(spark=spark, where="id < 0 OR 1 = 1", columns=["name"])
    assert every.count() == len(ROWS)
    assert catalog.table(table).read(spark=spark, where="id = NULL", columns=["name"]).count() == 0


def test_tasks_leave_out_the_rows_that_cannot_match(
    catalog: deltars.Catalog, written: deltars.Transaction, options: dict[str, str]
) -> None:
    table = catalog.table("plain")
    snapshot = table.snapshot()
    told = (table.location, snapshot.schema.to_json(), (), "plain", snapshot.version, options, "none")
    predicate = known_part(parse("id < 40 AND upper(name) <> 'NAME 1'", snapshot.schema))
    files = snapshot.select_files(columns=SCAN_COLUMNS).to_batches()
    rows = [row for batch in read_batches(told, ["id"], predicate, iter(files)) for row in batch.to_pylist()]
    assert sorted(row["c0"] for row in rows) == list(range(40))


def test_a_query_joins_tables_in_an_object_store(
    catalog: deltars.Catalog, written: deltars.Transaction, spark: SparkSession
) -> None:
    text = "SELECT count(*) AS n FROM by_day JOIN plain USING (id, day) WHERE id BETWEEN 10 AND 19"
    assert catalog.sql(text, spark=spark).collect()[0]["n"] == 10


@pytest.mark.parametrize("table", ["by_day", "plain"])
def test_tasks_of_a_query_read_the_rows_and_columns_that_it_can_need(
    table: str, catalog: deltars.Catalog, written: deltars.Transaction, spark: SparkSession
) -> None:
    some = catalog.sql(f"SELECT count(*) AS n, max(name) AS last FROM {table} WHERE id < 40", spark=spark)
    assert [tuple(row) for row in some.collect()] == [(40, "name 9")]
    assert rows_out_of_tasks(some) == 40
    assert [line for line in plan_of(some).splitlines() if "MapInArrow" in line]
    assert not [line for line in plan_of(some).splitlines() if "MapInArrow" in line and "c2#" in line]
    joined = catalog.sql(
        f"SELECT a.id FROM {table} a LEFT JOIN {table} b ON a.id = b.id AND b.id > 85 WHERE a.id >= 80", spark=spark
    )
    assert sorted(row.id for row in joined.collect()) == list(range(80, 90))
    assert rows_out_of_tasks(joined) == 10 + 4
    whole = catalog.sql(f"SELECT * FROM {table} WHERE id = 3", spark=spark)
    assert [row.asDict() for row in whole.collect()] == [{"id": 3, "day": "2026-01-01", "name": "name 3"}]


def test_doctor_says_which_way_a_session_reads_and_why(
    catalog: deltars.Catalog, written: deltars.Transaction, options: dict[str, str], spark: SparkSession, tmp_path: Path
) -> None:
    config = tmp_path / "deltars.toml"
    listed = "\n".join(f'{name} = "{value}"' for name, value in options.items())
    config.write_text(f'[catalogs.lake]\nuri = "{catalog.uri}"\n[catalogs.lake.storage_options]\n{listed}\n')
    before = objects_of(catalog)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DELTARS_CONFIG", str(config))
        of_session = deltars.diagnose("lake", spark=spark)
        without = deltars.diagnose("lake", spark=False)
    [finding] = [finding for finding in of_session if finding.check == "reading"]
    assert (finding.state, finding.fix) == ("ok", None)
    assert "through obstore inside its tasks: the session has no file system for s3://" in finding.found
    [session] = [finding for finding in of_session if finding.check == "spark"]
    assert (session.state, spark.version in session.found) == ("ok", True)
    assert not [finding for finding in without if finding.check == "reading"]
    # One that is started for it is asked in the same way, and a disk is never in question.
    assert list(reading(catalog.warehouse, options, True)) == [finding]
    assert list(reading(str(tmp_path), {}, spark)) == []
    assert objects_of(catalog) == before
    [unknown] = reading("s3://not-there/lake", options, spark)
    assert unknown.state == "skipped"
    assert SECRET not in unknown.found


def objects_of(catalog: deltars.Catalog) -> list[str]:
    storage = open_storage(str(catalog.warehouse), catalog._session.settings.storage_options)
    return sorted(entry.path for entry in storage.list(""))


def test_credentials_are_in_no_plan_and_in_no_error(
    catalog: deltars.Catalog, written: deltars.Transaction, spark: SparkSession, tmp_path: Path
) -> None:
    frame = catalog.table("plain").read(spark=spark, where="id > 5")
    assert SECRET not in plan_of(frame)
    file = catalog.table("plain").snapshot().files["path"][0].as_py()
    storage = open_storage(catalog.table("plain").location, catalog._session.settings.storage_options)
    storage.delete([file])
    with pytest.raises(Exception, match="part-") as raised:
        frame.collect()
    assert SECRET not in str(raised.value)
