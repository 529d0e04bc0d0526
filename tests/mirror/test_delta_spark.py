"""What is published is read back by delta-spark, which cannot write it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

import deltars
from tests.mirror.history import History, build
from tests.mirror.test_readers import content, rows_of
from tests.support.delta_spark import DeltaSpark, DeltaSparkError
from tests.support.soak import is_soak, record

pytestmark = pytest.mark.timeout(900)

WRITES = {
    "insert": "INSERT INTO {table} SELECT * FROM {table}",
    "overwrite": "INSERT OVERWRITE {table} SELECT * FROM {table}",
    "replace where": "INSERT INTO {table} REPLACE WHERE i = 1 SELECT * FROM {table} WHERE i = 1",
    "delete": "DELETE FROM {table}",
    "delete some": "DELETE FROM {table} WHERE i = 1000",
    "update": "UPDATE {table} SET i = 1",
    "merge": "MERGE INTO {table} t USING {table} s ON t.id = s.id WHEN MATCHED THEN DELETE",
    "optimize": "OPTIMIZE {table}",
    "z-order": "OPTIMIZE {table} ZORDER BY (id)",
    "vacuum": "VACUUM {table} RETAIN 200 HOURS",
    "restore": "RESTORE TABLE {table} TO VERSION AS OF 1",
    "set properties": "ALTER TABLE {table} SET TBLPROPERTIES ('delta.appendOnly' = 'true')",
    "unset properties": "ALTER TABLE {table} UNSET TBLPROPERTIES ('delta.checkpointInterval')",
    "drop the fence": "ALTER TABLE {table} DROP FEATURE `deltars.sqlManaged`",
    "add column": "ALTER TABLE {table} ADD COLUMN extra INT",
    "comment": "ALTER TABLE {table} CHANGE COLUMN i COMMENT 'a number'",
    "constraint": "ALTER TABLE {table} ADD CONSTRAINT positive CHECK (id >= 0)",
    "replace": "CREATE OR REPLACE TABLE {table} USING delta PARTITIONED BY (p, q) AS SELECT * FROM {table}",
}


CORE = {"insert", "delete some", "merge", "drop the fence", "replace"}
"""Statements that `make test` tries."""


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    place = tmp_path_factory.mktemp("history")
    with deltars.connect(f"deltasql://sqlite/{place}/lake.db") as catalog:
        yield build(catalog)


@pytest.mark.soak
def test_delta_spark_reads_every_version_as_it_was_committed(history: History, delta_spark: DeltaSpark) -> None:
    # In the short form: before the new column, at the checkpoint, and the last.
    versions = [version for version in history.rows if is_soak() or version in {7, 10, history.last}]
    for version in versions:
        found = delta_spark.read(history.location, version=version)
        assert rows_of(found) == history.expected(version), version
    assert rows_of(delta_spark.read(history.location)) == history.expected(history.last)
    record("delta-spark reads the mirror", versions=len(versions))


@pytest.mark.soak
def test_delta_spark_travels_by_the_times_of_the_commits(history: History, delta_spark: DeltaSpark) -> None:
    told = delta_spark.sql(f"DESCRIBE HISTORY delta.`{history.location}`").select(["version", "timestamp"])
    times = {row["version"]: row["timestamp"].astimezone(UTC) for row in told.to_pylist()}
    assert {version: round(moment.timestamp() * 1000) for version, moment in times.items()} == history.times_ms
    for version in history.rows if is_soak() else (8,):
        moment = datetime.fromtimestamp(history.times_ms[version] / 1000, UTC)
        found = delta_spark.read(history.location, timestamp=f"{moment:%Y-%m-%d %H:%M:%S.%f}")
        assert rows_of(found) == history.expected(version), version


def test_delta_spark_can_commit_nothing(history: History, delta_spark: DeltaSpark) -> None:
    before = content(history.location)
    data = {path: path.stat().st_mtime_ns for path in history.location.rglob("part-*.parquet")}
    for name, statement in WRITES.items():
        if name not in CORE and not is_soak():
            continue
        with pytest.raises(DeltaSparkError) as refused:
            delta_spark.run(statement.format(table=f"delta.`{history.location}`"))
        assert "deltars.sqlManaged" in str(refused.value), f"{name}: {refused.value}"
    assert content(history.location) == before
    assert {path: path.stat().st_mtime_ns for path in data} == data
