"""A program that uses every public call. It is never run: `test_types.py` checks it with a type checker.

Each `type: ignore` is a mistake that the checker has to find: under `--strict` one that finds nothing is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, timedelta
from typing import assert_type
from uuid import UUID

import pandas
import polars
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import deltars
from deltars import observe


def open_catalogs(spark: SparkSession) -> deltars.Catalog:
    observe.json_logs()
    observe.prometheus(port=9000)
    observe.opentelemetry()
    observe.openlineage().flush(5)
    assert_type(deltars.migrate.status("lake"), deltars.SchemaStatus)
    deltars.migrate.up("lake", views=False)
    deltars.migrate.grants("lake", reader="analysts", writer="etl")
    deltars.migrate.grants("lake", reader="guests", tables=["features"])
    assert_type(deltars.migrate.sql("lake"), str)
    deltars.migrate.down("lake")
    assert_type(deltars.diagnose("lake", spark=spark), list[deltars.Finding])
    rebuilt = deltars.rebuild("s3://lake", "lake", report=lambda table, progress: print(table, progress.version))
    assert_type(rebuilt, deltars.Rebuilt)
    deltars.connect(pool=3)  # type: ignore[call-arg]
    deltars.connect(isolation="chaos")  # type: ignore[arg-type]
    return deltars.connect(
        "deltasql://postgres/lake/public",
        warehouse="s3://lake",
        migrate=True,
        timeout=30,
        pool_size=20,
        isolation="serializable",
        mirror="async",
        storage_options={"region": "eu-central-1"},
        metrics=True,
    )


def write_frames(catalog: deltars.Catalog, frame: DataFrame, arrow: pa.Table, other: pandas.DataFrame) -> None:
    result = deltars.write("features", frame, "overwrite", partition_overwrite="dynamic", compression="zstd")
    assert_type(result, deltars.TransactionResult)
    catalog.write("features", arrow, merge_schema=True, app_id="job", app_version=7)
    catalog.table("features").write(other, mode="append", target_file_size=1 << 20)
    features: deltars.TableLike = catalog.table("features")
    for table in (features, catalog.table("features"), catalog.table("features").id, "features"):
        catalog.write(table, other)
        assert_type(catalog.table(table), deltars.Table)
    deltars.write("labels", polars.DataFrame({"id": [1]}), properties={"owner": "ada"}, partition_by=["day"])
    catalog.write("copy", catalog.table("features"))
    catalog.write("features", arrow, "upsert")  # type: ignore[arg-type]
    catalog.write("features", arrow, partitionBy="day")  # type: ignore[call-arg]
    catalog.write("features", {"id": [1]})  # type: ignore[arg-type]
    result.raise_for_mirror()
    outcome: deltars.MirrorOutcome = result.mirror["features"]
    assert_type(outcome.publication, deltars.Publication)
    for skipped in result.skipped:
        assert_type(skipped, deltars.SkippedWrite)


def use_transactions(catalog: deltars.Catalog, frame: DataFrame, spark: SparkSession) -> deltars.TransactionResult:
    with deltars.begin(isolation="snapshot", txn_id="daily-2026-01-30", committer="etl") as tx:
        assert_type(tx.read("features", where="day > '2026-01-01'", columns=["id"], spark=spark), DataFrame)
        tx.files("features", where="id = 1")
        tx.write("features", frame, "overwrite", replace_where="day = '2026-01-30'", user_metadata="again")
        tx.stage("labels", [deltars.Txn(app_id="job", version=1)], expected_version=3, operation="WRITE")
        tx.stage_table("labels", [])
        assert_type(tx.delete("features", "id = 1", app_id="job", app_version=1), deltars.ChangeMetrics)
        assert_type(tx.update("features", {"score": 0.5}, where="id = 1").rows_updated, int)
        merge = tx.merge("features", frame, on="t.id = s.id", merge_schema=True)
        assert_type(merge.when_matched_update_all().when_not_matched_insert_all(), deltars.MergeBuilder)
        assert_type(tx.purge("features"), deltars.ChangeMetrics)
        tx.apply_changes("features", frame, keys=["id"], sequence_by="day")
        change(tx.alter("features"))
        tx.write("features", frame, replaceWhere="day = 1")  # type: ignore[call-arg]
    deltars.begin(isolation_level="strict")  # type: ignore[call-arg]
    with catalog.begin(max_tables=3, mirror="off", timeout=5) as other:
        other.rollback()
    assert_type(catalog.run(lambda tx: len(tx.files("features")), retries=3, isolation="strict"), int)
    assert_type(deltars.MultiTableTransaction(catalog, user_metadata="x").commit(), deltars.TransactionResult)
    assert_type(catalog.resolve(tx.id), deltars.TransactionResult | None)
    detail = catalog.transaction("daily-2026-01-30")
    assert_type(detail, deltars.TransactionDetail)
    assert_type(detail.tables, tuple[deltars.TableCommitDetail, ...])
    return tx.result


def use_streams(catalog: deltars.Catalog, frame: DataFrame) -> None:
    def load(tx: deltars.Transaction, rows: DataFrame, batch_id: int) -> None:
        assert_type(tx.is_repeated, bool)
        tx.write("features", rows, user_metadata=f"batch {batch_id}")

    each = deltars.each_batch(load, app_id="features", catalog=catalog, isolation="serializable")
    frame.writeStream.foreachBatch(each)
    each(frame, 0)
    deltars.each_batch(lambda tx, rows: tx.write("features", rows))
    deltars.each_batch(load, app="features")  # type: ignore[call-arg]
    followed = deltars.transactions_stream(frame.sparkSession, ["features"], catalog=catalog, max_transactions=10)
    assert_type(followed, DataFrame)

    def derive(tx: deltars.Transaction, transactions: DataFrame) -> None:
        assert_type(tx.changes("features"), deltars.Changes)

    followed.writeStream.foreachBatch(deltars.each_batch(derive))


def use_existing_programs(catalog: deltars.Catalog, spark: SparkSession) -> None:
    assert_type(deltars.enable(spark, catalog), deltars.Catalog)
    deltars.enable(spark, "lake.db", import_paths=True)
    deltars.enable()
    deltars.enable(catalog)  # type: ignore[arg-type]
    deltars.disable(spark)


def change(alter: deltars.Alter) -> None:
    alter.add_columns("note STRING", after="id")
    upgrade: deltars.ProtocolUpgrade | None = alter.rename_column("note", "text", enable_column_mapping=True)
    print(upgrade and upgrade.explanation, upgrade and upgrade.features)
    alter.drop_column(["text", "score"], if_exists=True)
    alter.move_column("id", first=True)
    alter.change_type("id", pa.int64(), enable_type_widening=True)
    alter.set_not_null("id")
    alter.cluster_by(["id"])
    alter.cluster_by(None)
    alter.set_nullable("id")
    alter.set_default("note", "'none'")
    alter.comment("note", "what was seen")
    alter.add_constraint("positive", "id > 0")
    alter.drop_constraint("positive", if_exists=True)
    alter.set_properties({"owner": "ada"})
    alter.unset_properties(["owner"])


def use_catalog(catalog: deltars.Catalog, schema: deltars.SchemaLike) -> None:
    created = catalog.create_table("features", schema, partition_by="day", if_not_exists=True)
    assert_type(created, deltars.Table)
    catalog.register_table("raw", "/data/raw")
    catalog.convert_table("/data/parquet", partition_schema="day DATE")
    catalog.import_table("/data/old", "old", report=lambda progress: print(progress.version))
    assert_type(catalog.release("old"), int)
    assert_type(catalog.adopt("old"), int)
    assert_type(catalog.tables(), list[deltars.Table])
    assert_type(catalog.tables(namespace="sales"), list[deltars.Table])
    assert_type(catalog.namespaces(), list[str])
    assert_type(catalog.table_exists("old"), bool)
    catalog.rename_table("old", "older")
    catalog.set_properties("older", {"owner": "ada"}, unset=["note"])
    catalog.drop_table("older", delete_data=True)
    assert_type(catalog.tag("q3", catalog.table("features").write(pa.table({"id": [1]})), description="d"), deltars.Tag)
    assert_type(catalog.tags(), list[deltars.Tag])
    assert_type(catalog.activity(since="2026-01-31", tables=["features"], limit=5), list[deltars.TransactionSummary])
    assert_type(catalog.activity()[0].read, tuple[deltars.RecordedRead, ...])
    assert_type(catalog.conflicts(tables=["features"]), list[deltars.ConflictDetail])
    assert_type(catalog.lineage("features", downstream=True, depth=1), list[deltars.LineageEdge])
    assert_type(catalog.statistics(["features"]), list[deltars.TableStatistics])
    assert_type(catalog.advise(), list[deltars.Advice])
    for result in catalog.maintain(["features"], dry_run=True):
        assert_type(result, deltars.MaintenanceResult)
        assert_type(result.advice.verb, deltars.MaintenanceVerb)
        assert_type(result.outcome, deltars.MaintenanceOutcome)
    assert_type(catalog.maintainer(interval_s=60), deltars.Maintainer)
    expired = catalog.expire("30 days", keep_versions=10, tables=["features"], dry_run=True)
    assert_type(expired, deltars.Expired)
    assert_type(expired.tables, tuple[deltars.ExpiredTable, ...])
    assert_type(expired.tables[0].held_by, str | None)
    assert_type(catalog.purge_dropped(timedelta(days=30), dry_run=True), list[deltars.PurgedTable])
    catalog.drop_table("old", purge=True)
    swept = catalog.vacuum(["features"], retention=timedelta(days=14), force=True)
    assert_type(swept.tables, tuple[deltars.Vacuumed, ...])
    assert_type(swept.skipped, tuple[deltars.SkippedVacuum, ...])
    restored = catalog.restore("q3", tables=["features"], dry_run=True)
    assert_type(restored, deltars.Restored)
    [*_, last] = catalog.changes("q3", tables=["features"])
    assert_type(last, deltars.TransactionChanges)
    assert_type(last.tables, Mapping[str, deltars.Changes])
    assert_type(restored.tables, tuple[deltars.RestoredTable, ...])
    assert_type(catalog.copy_table("features", "copy", as_of=catalog.untag("q3"), replace=True), deltars.Table)
    assert_type(catalog.copy_tables({"features": "other"}, as_of=date(2026, 1, 31)), list[deltars.Table])
    assert_type(catalog.optimize(["features"], target_size="128mb"), list[deltars.Optimized])
    catalog.create_table("sorted", "id BIGINT", cluster_by=["id"])
    assert_type(catalog.mirror_status(), list[deltars.MirrorStatus])
    assert_type(catalog.compare_log("features"), deltars.LogComparison)
    assert_type(catalog.accept_log("features", discard=True), deltars.LogComparison)
    reconciler = catalog.reconciler(poll_s=0.5, on_lag=lambda status, lag_s: print(status.name, lag_s))
    assert_type(reconciler, deltars.Reconciler)
    assert_type(reconciler.once(), deltars.Reconciliation)
    reconciler.stop()
    reconciler.run()
    print(catalog.uri, catalog.warehouse, catalog.is_standby)
    assert_type(catalog.default_isolation, deltars.Isolation)
    catalog.set_default_isolation("serializable")
    catalog.close()


def use_table(spark: SparkSession) -> None:
    table = deltars.table("deltasql://sqlite/lake.db/features")
    assert_type(table, deltars.Table)
    assert_type(table.id, UUID)
    print(table.name, table.location, table.version, table.properties)
    assert_type(table.schema, deltars.StructType)
    assert_type(table.schema.fields, tuple[deltars.StructField, ...])
    assert_type(table.snapshot(3), deltars.Snapshot)
    assert_type(table.snapshot(as_of="q3"), deltars.Snapshot)
    assert_type(table.restore(3), deltars.Restored)
    changes = table.changes(3, "q3")
    assert_type(changes, deltars.Changes)
    assert_type(changes.read(spark=spark), DataFrame)
    assert_type(changes.to_arrow(), pa.Table)
    assert_type(changes.end, int)
    assert_type(table.expire(timedelta(days=30)), deltars.Expired)
    table.drop_feature("deletionVectors", truncate_history=True)
    optimized = table.optimize("id > 1", target_size=1 << 20, zorder_by=["id"], dry_run=True, spark=spark)
    assert_type(optimized, deltars.Optimized)
    assert_type(optimized.steps, tuple[deltars.OptimizeStep, ...])
    assert_type(optimized.skipped, tuple[deltars.SkippedFiles, ...])
    assert_type(optimized.files_added, deltars.FileSizes)
    vacuumed = table.vacuum(retention="14 days", dry_run=True, full=True, report=lambda done, total: None)
    assert_type(vacuumed, deltars.Vacuumed)
    assert_type(vacuumed.files, tuple[deltars.VacuumFile, ...])
    assert_type(vacuumed.kept, Mapping[deltars.KeptReason, deltars.VacuumAmount])
    assert_type(table.snapshot().totals, deltars.Totals)
    assert_type(table.history(10, since="2026-01-01"), list[deltars.HistoryEntry])
    assert_type(table.detail(partitions=True), deltars.TableDetail)
    assert_type(table.count("id > 1", version=0), int)
    assert_type(table.detail().columns, tuple[deltars.ColumnDetail, ...])
    assert_type(table.diff(1, 2), deltars.TableDiff)
    assert_type(table.diff(1).changes, tuple[deltars.TableChange, ...])
    assert_type(table.diff(1).files, tuple[deltars.FileChange, ...])
    assert_type(table.read(version=1, where="id > 1", columns=["id"], spark=spark), DataFrame)
    assert_type(deltars.read("features", timestamp=datetime(2026, 1, 1)), DataFrame)
    table.files(version=1, where="id > 1")
    assert_type(table.scan(where="id > 1"), deltars.Scan)
    assert_type(table.verify(deep=True, orphans=True, min_age=timedelta(days=2)), deltars.Verification)
    assert_type(table.verify(chain=True).chain_head, str | None)
    assert_type(table.clean_up_log(), list[str])
    assert_type(table.generate(), list[str])
    change(table.alter)
    table.head(3)
    table.to_arrow(where="id > 1")
    table.to_arrow_batch_reader(version=1)
    table.to_duckdb()
    assert_type(table.to_pandas(columns=["id"]), pandas.DataFrame)
    assert_type(table.to_polars(timestamp="2026-01-01T00:00:00Z"), polars.DataFrame)


def use_snapshots(catalog: deltars.Catalog, spark: SparkSession) -> None:
    snapshot = catalog.snapshot("2026-01-31T12:00:00Z", timeout=5)
    assert_type(snapshot, deltars.CatalogSnapshot)
    assert_type(snapshot.expired, list[str])
    assert_type(snapshot.versions, dict[str, int])
    assert_type(snapshot.versions_by_id, dict[UUID, int])
    assert_type(snapshot.as_of, datetime | None)
    assert_type(snapshot.tables(), list[deltars.CutTable])
    assert_type(snapshot.table("features"), deltars.Snapshot)
    snapshot.files("features", where="id > 1")
    assert_type(snapshot.read("features", spark=spark), DataFrame)
    assert_type(catalog.read("features", as_of="monday", where="id > 1", columns=["id"], spark=spark), DataFrame)
    assert_type([catalog[name] for name in catalog], list[deltars.Table])
    assert_type(snapshot.sql("SELECT 1", args={"a": 1}), DataFrame)
    assert_type(snapshot.register_views(prefix="then_"), list[str])
    assert_type(catalog.sql("SELECT * FROM features", as_of=datetime(2026, 1, 1)), DataFrame)
    assert_type(deltars.sql("SELECT * FROM features", catalog=catalog, spark=spark), DataFrame)
    assert_type(catalog.sql("DELETE FROM features WHERE id = :id", args={"id": 1}), DataFrame)
    catalog.sql_to_arrow("SELECT * FROM features", as_of="2026-01-01", args=[1])
    catalog.sql_script("DELETE FROM features; DELETE FROM labels", spark=spark)
    with catalog.begin() as changing:
        assert_type(changing.sql("DELETE FROM features", args={"id": 1}, spark=spark), DataFrame)
        changing.sql_to_arrow("SELECT 1", args=None)


def use_raw_log(catalog: deltars.Catalog, table_id: UUID) -> None:
    writer: deltars.TxnLogWriter = deltars.SqlTxnLogWriter(catalog)
    reader: deltars.TxnLogReader = deltars.SqlTxnLogReader(catalog)
    added = deltars.AddFile(path="a.parquet", partition_values={}, size=1, modification_time=0, data_change=True)
    assert_type(writer.commit(table_id, 1, [added], operation="WRITE"), deltars.CommitResult)
    log = deltars.SqlTxnLogWriter(catalog)
    assert_type(log.append(table_id, [added]), deltars.CommitResult)
    assert_type(log.append_all(table_id, [[added], [added]]), list[deltars.CommitResult])
    assert_type(reader.current_version(table_id), int)
    assert_type(reader.history(table_id, limit=1), list[deltars.HistoryEntry])
    assert_type(reader.snapshot(table_id, 1), deltars.Snapshot)
    assert_type(reader.transaction("daily-2026-01-30"), deltars.CommittedTransaction | None)
    for version in reader.changes(table_id, 0):
        assert_type(version, deltars.CommittedVersion)


def catch_errors(catalog: deltars.Catalog) -> str:
    try:
        catalog.table("features")
    except deltars.TableNotFound as error:
        return error.hint or error.message
    except (deltars.VersionConflict, deltars.CommitUnknown, deltars.TableExists, deltars.DatabaseError) as error:
        assert_type(error.retryable, bool)
    return ""
