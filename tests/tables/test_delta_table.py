"""`deltars.tables` where delta-spark has no counterpart: transactions, catalogs, copies, imports; and Spark Connect."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.errors import AnalysisException, PySparkException, UnsupportedOperationException
from pyspark.sql import SparkSession

import deltars
from deltars.tables import ConcurrentAppendException, DeltaAnalysisException, DeltaTable
from deltars.tables.exceptions import DeltaTableFeatureException, deltas_errors
from tests.support.spark import connected

pytestmark = pytest.mark.backends("sqlite")


@pytest.fixture
def session(spark: SparkSession, catalog: deltars.Catalog, migrated_uri: str) -> Iterator[SparkSession]:
    spark.conf.set("spark.deltars.catalog", migrated_uri)
    yield spark
    for name in ("catalog", "importPaths"):
        spark.conf.unset(f"spark.deltars.{name}")


@pytest.fixture
def features(catalog: deltars.Catalog) -> deltars.Table:
    catalog.write("features", pa.table({"id": [1, 2, 3], "score": [1.0, 2.0, 3.0]}))
    return catalog.table("features")


def _ids(table: DeltaTable) -> list[int]:
    return sorted(row.id for row in table.toDF().collect())


def test_changes_of_two_tables_commit_together_or_not_at_all(
    session: SparkSession, catalog: deltars.Catalog, features: deltars.Table
) -> None:
    catalog.write("audit", pa.table({"id": [0]}))
    tx = catalog.begin()
    DeltaTable.forName(session, "features", tx=tx).delete("id = 1")
    bound = DeltaTable.forName(session, "audit", tx=tx)
    bound.update(set={"id": "id + 1"})
    assert _ids(bound) == [1]
    tx.rollback()
    assert _ids(DeltaTable.forName(session, "features")) == [1, 2, 3]
    with catalog.begin() as tx:
        DeltaTable.forName(session, "features", tx=tx).delete("id = 1")
        DeltaTable.forPath(session, catalog.table("audit").location, tx=tx).delete()
        made = DeltaTable.create(session, tx=tx).tableName("made").addColumn("id", "bigint").execute()
        source = session.createDataFrame([(7,)], "id bigint")
        made.alias("t").merge(source.alias("s"), "t.id = s.id").whenNotMatchedInsertAll().execute()
    assert [_ids(DeltaTable.forName(session, name)) for name in ("features", "audit", "made")] == [[2, 3], [], [7]]
    assert catalog.transaction(tx.id).txn_id == tx.id


def test_transaction_restores_and_reports_it(
    session: SparkSession, catalog: deltars.Catalog, features: deltars.Table
) -> None:
    features.delete("id = 1")
    with catalog.begin() as tx:
        row = DeltaTable.forName(session, "features", tx=tx).restoreToVersion(0).collect()[0]
    assert row.num_of_files_after_restore == 1
    assert features.count() == 3


def test_table_is_opened_by_uri_and_by_spark_style_names(
    session: SparkSession, migrated_uri: str, features: deltars.Table
) -> None:
    names = ("features", "`features`", "default.features", "spark_catalog.default.features", "FEATURES")
    for name in (*names, f"delta.`{features.location}`", f"delta.`file:{features.location}`"):
        assert _ids(DeltaTable.forName(session, name)) == [1, 2, 3], name
    session.conf.unset("spark.deltars.catalog")
    assert _ids(DeltaTable.forName(session, f"{migrated_uri}/features")) == [1, 2, 3]


def test_delta_table_that_no_catalog_has_is_imported_only_if_the_session_says_so(
    session: SparkSession, catalog: deltars.Catalog, tmp_path: Path
) -> None:
    place = str(tmp_path / "clicks")
    write_deltalake(place, pa.table({"id": [1, 2]}))
    assert DeltaTable.isDeltaTable(session, place)
    with pytest.raises(AnalysisException, match=r"import_table.*spark\.deltars\.importPaths"):
        DeltaTable.forPath(session, place)
    assert not catalog.table_exists("clicks")
    session.conf.set("spark.deltars.importPaths", "true")
    DeltaTable.forPath(session, place).delete("id = 1")
    assert _ids(DeltaTable.forName(session, "clicks")) == [2]


def test_clone_copies_files_and_a_shallow_one_is_refused_by_name(
    session: SparkSession, catalog: deltars.Catalog, features: deltars.Table, tmp_path: Path
) -> None:
    table = DeltaTable.forName(session, "features")
    table.delete("id = 1")
    copy = table.cloneAtVersion(0, str(tmp_path / "copy"), properties={"mine": "1"})
    assert _ids(copy) == [1, 2, 3]
    assert copy.detail().collect()[0].properties == {"mine": "1"}
    assert copy.history().collect()[-1].operation == "CLONE"
    assert _ids(table.clone("second")) == [2, 3]
    with pytest.raises(UnsupportedOperationException, match="DELTA_UNSUPPORTED_SHALLOW_CLONE"):
        table.clone("third", isShallow=True)
    with pytest.raises(AnalysisException, match="DELTA_UNSUPPORTED_CLONE_REPLACE_SAME_TABLE"):
        table.clone("features", replace=True)
    with pytest.raises(AnalysisException, match="already a table"):
        table.clone("second")
    second = catalog.table("second")
    again = table.cloneAtVersion(0, "second", replace=True, properties={"mine": "2"})
    assert (_ids(again), catalog.table("second").id) == ([1, 2, 3], second.id)
    assert [row.operation for row in again.history().collect()] == ["SET TBLPROPERTIES", "CLONE", "CLONE"]
    assert _ids(table.clone(str(tmp_path / "copy"), replace=True)) == [2, 3]
    assert not catalog.table_exists("third")


def test_feature_is_dropped_with_the_files_that_need_it(
    session: SparkSession, catalog: deltars.Catalog, features: deltars.Table
) -> None:
    features.alter.set_properties({"delta.enableDeletionVectors": "true"})
    table = DeltaTable.forName(session, "features")
    assert table.detail().collect()[0][-3:-1] == (3, 7)
    table.delete("id = 1")
    table.dropFeatureSupport("deletionVectors")
    detail = table.detail().collect()[0]
    assert (detail.tableFeatures, detail.properties, _ids(table)) == (["appendOnly", "invariants"], {}, [2, 3])
    assert (detail.minReaderVersion, detail.minWriterVersion) == (1, 2)
    assert features.detail().min_writer_version == 7
    table.upgradeTableProtocol(1, 3)
    assert table.detail().collect()[0][-3:] == (1, 3, ["appendOnly", "checkConstraints", "invariants"])
    for feature, condition in (("deletionVectors", "FEATURE_NOT_PRESENT"), ("nope", "UNSUPPORTED_CLIENT_FEATURE")):
        with pytest.raises(
            DeltaTableFeatureException, match=rf"^\[DELTA_FEATURE_DROP_{condition}\] Cannot drop"
        ) as caught:
            table.dropFeatureSupport(feature)
        assert isinstance(caught.value, deltars.FeatureNotDropped)
        assert caught.value.getCondition() == f"DELTA_FEATURE_DROP_{condition}"


def test_errors_are_those_of_spark_and_of_deltars(session: SparkSession, features: deltars.Table) -> None:
    with pytest.raises(DeltaAnalysisException) as caught:
        DeltaTable.forName(session, "featurs")
    error = caught.value
    assert {AnalysisException, deltars.ValidationError} <= set(type(error).__mro__)
    assert error.getCondition() == "DELTA_MISSING_DELTA_TABLE"
    assert "Did you mean 'features'?" in str(error)
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy)) == (type(error), str(error))


def test_lost_race_raises_deltas_exception(catalog: deltars.Catalog, features: deltars.Table) -> None:
    tx = catalog.begin(isolation="serializable")
    tx.delete("features", "id > 0")
    catalog.write("features", pa.table({"id": [9], "score": [9.0]}))
    with pytest.raises(ConcurrentAppendException) as caught, deltas_errors():
        tx.commit()
    assert isinstance(caught.value, deltars.ConcurrentAppend)
    assert isinstance(caught.value, PySparkException)
    assert caught.value.actual == 1


def test_location_alone_names_the_table_after_its_directory(
    session: SparkSession, catalog: deltars.Catalog, tmp_path: Path
) -> None:
    DeltaTable.create(session).location(str(tmp_path / "events")).addColumn("id", "int").execute()
    assert catalog.table("events").location == str(tmp_path / "events")


def test_converted_directory_has_its_rows_and_no_file_is_written_again(
    session: SparkSession, catalog: deltars.Catalog, tmp_path: Path
) -> None:
    place = tmp_path / "plain"
    session.range(5).selectExpr("id", "id % 2 as p").write.partitionBy("p").parquet(str(place))
    before = {path: path.stat().st_mtime_ns for path in place.rglob("*.parquet")}
    table = catalog.convert_table(str(place), "converted", partition_schema="p INT")
    assert {path: path.stat().st_mtime_ns for path in place.rglob("*.parquet")} == before
    assert table.count() == 5
    assert table.count("p = 1") == 2
    with pytest.raises(deltars.TableExists):
        catalog.convert_table(str(place), "again", partition_schema="p INT")
    with pytest.raises(deltars.NotADeltaTable):
        catalog.convert_table(str(tmp_path / "nothing"))
    other = tmp_path / "texts"
    other.mkdir()
    (other / "notes.txt").write_text("no Parquet")
    with pytest.raises(deltars.ValidationError, match="is no Parquet file"):
        catalog.convert_table(str(other))
    assert {table.name for table in catalog.tables()} == {"converted"}


def test_same_calls_work_on_spark_connect(connect_url: str, catalog: deltars.Catalog, migrated_uri: str) -> None:
    with connected(connect_url) as remote:
        remote.conf.set("spark.deltars.catalog", migrated_uri)
        builder = DeltaTable.create(remote).tableName("t").addColumn("id", "bigint").addColumn("v", "string")
        table = builder.execute()
        source = remote.createDataFrame([(1, "a"), (2, "b")], "id bigint, v string")
        merging = table.alias("t").merge(source.alias("s"), "t.id = s.id")
        result = merging.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute().collect()[0]
        assert result.num_inserted_rows == 2
        table.alias("x").update("x.id = 1", {"v": "upper(x.v)"})
        table.delete("id = 2")
        assert [tuple(row) for row in table.toDF().collect()] == [(1, "A")]
        assert [row.operation for row in table.history().collect()] == ["DELETE", "UPDATE", "MERGE", "CREATE TABLE"]
        assert table.detail().collect()[0].numFiles == 1
        with pytest.raises(AnalysisException, match="nope"):
            table.delete("nope = 1")
