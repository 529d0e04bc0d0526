"""The change data feed of the same statements by delta-spark and by deltars; and of one table, by every reader."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import deltars
from deltars.spark.change import feed
from deltars.spark.read import changes
from deltars.transaction import read_size
from tests.changes.rows import sorted_events
from tests.row_changes.statements import Merge
from tests.row_changes.test_delta_spark import CORE, DDL, ROWS, STATEMENTS, literals, source_of, table_of
from tests.support.delta_spark import DeltaSpark
from tests.support.soak import is_soak

pytestmark = [pytest.mark.backends("sqlite"), pytest.mark.timeout(1_800)]

ALL = [row for rows in ROWS for row in rows]
_CAST = (
    "SELECT CAST(id AS BIGINT), CAST(p AS STRING), CAST(x AS DOUBLE), CAST(d AS DECIMAL(10, 2)), timestamp_seconds(id),"
    " named_struct('a', CAST(id AS INT), 'b', CAST(p AS STRING)) FROM (VALUES {values}) AS v(id, p, x, d)"
)


def _combinations() -> Iterator[Any]:
    short = ("mixed", "rewritten", "partitioned")
    for plane, storage, layout in product(
        ("mixed", "arrow", "spark"), ("rewritten", "vectors", "mapped"), ("flat", "partitioned")
    ):
        is_short = (plane, storage, layout) == short
        yield pytest.param(
            plane, storage, layout, id=f"{plane}-{storage}-{layout}", marks=pytest.mark.soak(only=not is_short)
        )


@pytest.mark.parametrize(("plane", "storage", "layout"), list(_combinations()))
def test_feed_equals_that_of_delta_spark(
    catalog: deltars.Catalog,
    delta_spark: DeltaSpark,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    plane: str,
    storage: str,
    layout: str,
) -> None:
    properties = {
        "delta.enableChangeDataFeed": "true",
        "delta.enableDeletionVectors": str(storage != "rewritten").lower(),
    }
    if storage == "mapped":
        properties["delta.columnMapping.mode"] = "name"
    by = ["p"] if layout == "partitioned" else []
    ours = catalog.create_table("ours", DDL, partition_by=by, properties=properties)
    theirs = f"delta.`{tmp_path}/theirs`"
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
    delta_spark.run(
        f"CREATE TABLE {theirs} ({DDL}) USING delta{' PARTITIONED BY (p)' if by else ''} TBLPROPERTIES ({listed})"
    )
    for rows in ROWS:
        ours.write(table_of(rows))
        delta_spark.run(f"INSERT INTO {theirs} {_values(rows)}")
    small = read_size.SMALL_BYTES
    for number, name in enumerate(name for name in STATEMENTS if is_soak() or name in CORE["arrow"]):
        statement = STATEMENTS[name]
        by_spark = plane == "spark" or (plane == "mixed" and number % 2 == 1)
        monkeypatch.setattr(read_size, "SMALL_BYTES", -1 if by_spark else small)
        monkeypatch.setattr(feed, "HERE_BYTES", -1 if by_spark else 1 << 25)
        source = None
        if isinstance(statement, Merge):
            source = source_of(statement)
            _make_source(delta_spark, statement)
        delta_spark.run(statement.sql(theirs))
        statement.run(ours, source)
        # The same rows again, for the next statement.
        delta_spark.run(f"INSERT OVERWRITE {theirs} {_values(ALL)}")
        ours.write(table_of(ALL), "overwrite")
    few = ALL[1:3]
    ours.write(table_of(few), "overwrite", replace_where="id IN (2, 3)")
    delta_spark.run(f"INSERT INTO {theirs} REPLACE WHERE id IN (2, 3) {_values(few)}")
    delta_spark.run(f"OPTIMIZE {theirs}")
    ours.optimize()
    found = ours.changes(0)
    assert _dense(delta_spark.sql(f"SELECT * FROM table_changes_by_path('{tmp_path}/theirs', 0)")) == _dense(
        found.to_arrow()
    )
    # A restore gives rows of rewritten files as deleted and inserted, and the two wrote other files.
    ours.restore(3)
    found = ours.changes(0)
    by_arrow = sorted_events(found.to_arrow())
    assert sorted_events(delta_spark.sql(f"SELECT * FROM table_changes_by_path('{ours.location}', 0)")) == by_arrow
    assert sorted_events(found.read(spark=spark).toArrow()) == by_arrow
    if is_soak():
        monkeypatch.setattr(changes, "HERE_BYTES", -1)
        assert sorted_events(found.read(spark=spark).toArrow()) == by_arrow
    if storage == "rewritten":
        read = pa.table(DeltaTable(ours.location).load_cdf(starting_version=0).read_all())
        assert sorted_events(read.select(found.to_arrow().column_names)) == by_arrow


def _values(rows: list[tuple[Any, ...]]) -> str:
    return _CAST.format(values=", ".join(map(literals, rows)))


def _make_source(delta_spark: DeltaSpark, statement: Merge) -> None:
    values = ", ".join(literals(row) for row in zip(*statement.source.values(), strict=True))
    of = f"VALUES {values}" if values else "SELECT 1L, '', 1D, 1BD WHERE false"
    delta_spark.run(
        "CREATE OR REPLACE TEMP VIEW s AS SELECT CAST(id AS BIGINT) id, CAST(p AS STRING) p,"
        f" CAST(x AS DOUBLE) x, CAST(d AS DECIMAL(10, 2)) d FROM ({of}) AS v(id, p, x, d)"
    )


def _dense(rows: pa.Table) -> list[str]:
    """Return the events with versions counted from 0: a statement that changes nothing makes a version for one only."""
    versions = sorted(set(rows["_commit_version"].to_pylist()))
    numbers = pa.array([versions.index(version) for version in rows["_commit_version"].to_pylist()], pa.int64())
    at = rows.column_names.index("_commit_version")
    return sorted_events(rows.set_column(at, "_commit_version", numbers), without=("_commit_timestamp",))
