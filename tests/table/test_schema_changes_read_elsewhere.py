"""After each change of a schema, other readers find the same rows as we do: delta-spark, deltalake, DuckDB."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import deltars
from tests.mirror.test_readers import by_deltalake, by_duckdb
from tests.support.delta_spark import DeltaSpark, DeltaSparkError
from tests.support.soak import is_soak

# The subject is not the database.
pytestmark = pytest.mark.backends("sqlite")

DDL = "id INT, name STRING, at STRUCT<x: INT, y: INT>, tags ARRAY<STRUCT<n: INT, m: STRING>>, price FLOAT, day DATE"
VALUES = "(2, 'b', named_struct('x', 2, 'y', -2), array(named_struct('n', 2, 'm', 'm')), 0.5, DATE '2020-01-02')"

Step = tuple[str, Callable[[deltars.Alter], object]]
STEPS: list[Step] = [
    ("ADD COLUMNS (note STRING AFTER id)", lambda alter: alter.add_columns("note STRING", after="id")),
    ("ADD COLUMNS (at.z INT FIRST)", lambda alter: alter.add_columns("at.z INT FIRST")),
    ("ADD COLUMNS (tags.element.w INT)", lambda alter: alter.add_columns("tags.element.w INT")),
    ("SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
     lambda alter: alter.set_properties({"delta.columnMapping.mode": "name"})),
    ("RENAME COLUMN name TO title", lambda alter: alter.rename_column("name", "title")),
    ("RENAME COLUMN at.x TO east", lambda alter: alter.rename_column("at.x", "east")),
    ("RENAME COLUMN tags.element.n TO number", lambda alter: alter.rename_column("tags.element.n", "number")),
    ("DROP COLUMNS (note, at.y)", lambda alter: alter.drop_column(["note", "at.y"])),
    ("ALTER COLUMN title FIRST", lambda alter: alter.move_column("title", first=True)),
    ("ALTER COLUMN at.z AFTER east", lambda alter: alter.move_column("at.z", after="east")),
    ("ALTER COLUMN title COMMENT 'of the book'", lambda alter: alter.comment("title", "of the book")),
    ("CLUSTER BY (id)", lambda alter: alter.cluster_by("id")),
    ("CLUSTER BY NONE", lambda alter: alter.cluster_by(None)),
]  # fmt: skip
WIDENING: list[Step] = [
    ("SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true', 'delta.feature.timestampNtz' = 'supported')",
     lambda alter: alter.set_properties({"delta.enableTypeWidening": "true"})),
    ("ALTER COLUMN id TYPE BIGINT", lambda alter: alter.change_type("id", "BIGINT")),
    ("ALTER COLUMN tags.element.number TYPE DOUBLE", lambda alter: alter.change_type("tags.element.number", "DOUBLE")),
    ("ALTER COLUMN at.east TYPE DECIMAL(12, 2)", lambda alter: alter.change_type("at.east", "DECIMAL(12, 2)")),
    ("ALTER COLUMN price TYPE DOUBLE", lambda alter: alter.change_type("price", "DOUBLE")),
    ("ALTER COLUMN day TYPE TIMESTAMP_NTZ", lambda alter: alter.change_type("day", "TIMESTAMP_NTZ")),
]  # fmt: skip


def row(number: int) -> pa.Table:
    at = pa.struct([("x", pa.int32()), ("y", pa.int32())])
    tags = pa.list_(pa.struct([("n", pa.int32()), ("m", pa.string())]))
    return pa.table(
        {
            "id": pa.array([number], pa.int32()),
            "name": ["b"],
            "at": pa.array([{"x": number, "y": -number}], at),
            "tags": pa.array([[{"n": number, "m": "m"}]], tags),
            "price": pa.array([0.5], pa.float32()),
            "day": pa.array([18263], pa.int32()).cast(pa.date32()),
        }
    )


def content(found: pa.Table) -> list[dict[str, Any]]:
    return sorted(found.to_pylist(), key=lambda row: int(row["id"]))


def described(table: str, read: Callable[[str], str]) -> list[dict[str, Any]]:
    """Return the columns of a schema without what is random in it: physical names."""

    def plain(value: Any) -> Any:
        match value:
            case dict():
                return {key: plain(entry) for key, entry in value.items() if key != "delta.columnMapping.physicalName"}
            case list():
                return [plain(entry) for entry in value]
        return value

    fields: list[dict[str, Any]] = plain(json.loads(read(table))["fields"])
    return fields


@pytest.mark.slow
@pytest.mark.soak
def test_every_change_reads_the_same_elsewhere(catalog: deltars.Catalog, delta_spark: DeltaSpark) -> None:
    table = catalog.create_table("t", DDL)
    catalog.write("t", row(2))
    place = Path(table.location)
    for statement, change in STEPS:
        change(table.alter)
        assert content(by_deltalake(place, None)) == content(table.to_arrow()), statement
        if is_soak():
            assert content(by_duckdb(place, None)) == content(table.to_arrow()), statement
    catalog.write("t", pa.table({"id": pa.array([9], pa.int32()), "title": ["new"]}))
    for read in (by_deltalake, by_duckdb, lambda place, _: delta_spark.read(place)):
        assert content(read(place, None)) == content(table.to_arrow())
    for statement, change in WIDENING:
        change(table.alter)
        if is_soak():
            assert content(by_duckdb(place, None)) == content(table.to_arrow()), statement
    catalog.write("t", pa.table({"id": [2**40], "title": ["newer"]}))
    for read in (by_duckdb, lambda place, _: delta_spark.read(place)):
        assert content(read(place, None)) == content(table.to_arrow())
    assert content(delta_spark.read(place, version=1)) == content(table.to_arrow(version=1))
    found = delta_spark.sql(f"SELECT title FROM delta.`{place}` WHERE id > 9 AND title > 'a'")
    assert found["title"].to_pylist() == ["newer"]


@pytest.mark.soak(only=True)
def test_every_change_is_the_change_that_delta_spark_makes(
    catalog: deltars.Catalog, delta_spark: DeltaSpark, tmp_path: Path
) -> None:
    table = catalog.create_table("t", DDL)
    catalog.write("t", row(2))
    theirs = str(tmp_path / "theirs")
    delta_spark.sql(f"CREATE TABLE delta.`{theirs}` ({DDL}) USING delta")
    delta_spark.sql(f"INSERT INTO delta.`{theirs}` VALUES {VALUES}")
    for statement, change in [*STEPS, *WIDENING]:
        change(table.alter)
        delta_spark.sql(f"ALTER TABLE delta.`{theirs}` {statement}")
        assert _columns(theirs) == _columns(table.location), statement
        log = sorted(Path(theirs, "_delta_log").glob("*.json"))
        assert _operation(log[-1]) == table.history(1)[0].operation, statement
    assert content(delta_spark.read(theirs)) == content(delta_spark.read(table.location))


def _columns(location: str) -> list[dict[str, Any]]:
    """Return the columns of the newest metadata in a log, without what differs between writers."""
    for path in sorted(Path(location, "_delta_log").glob("*.json"), reverse=True):
        for line in reversed(path.read_text().splitlines()):
            action = json.loads(line)
            if "metaData" in action:
                return described(action["metaData"]["schemaString"], str)
    raise AssertionError("no metadata")


def _operation(path: Path) -> str:
    [info] = [json.loads(line)["commitInfo"] for line in path.read_text().splitlines() if "commitInfo" in line]
    return str(info["operation"])


@pytest.mark.soak(only=True)
def test_what_delta_spark_refuses_is_refused(catalog: deltars.Catalog, delta_spark: DeltaSpark, tmp_path: Path) -> None:
    ddl = (
        "id INT, s STRUCT<a: INT, b: INT>, day DATE, year INT GENERATED ALWAYS AS (YEAR(day)), part INT,"
        " o STRUCT<a: INT>"
    )
    mapping = {"delta.columnMapping.mode": "name", "delta.enableTypeWidening": "true"}
    table = catalog.create_table("t", ddl, partition_by="part", properties=mapping)
    table.alter.add_constraint("positive", "s.a > 0")
    theirs = str(tmp_path / "theirs")
    delta_spark.sql(
        f"CREATE TABLE delta.`{theirs}` ({ddl}) USING delta PARTITIONED BY (part)"
        " TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.enableTypeWidening' = 'true')"
    )
    delta_spark.sql(f"ALTER TABLE delta.`{theirs}` ADD CONSTRAINT positive CHECK (s.a > 0)")
    refused: list[Step] = [
        ("RENAME COLUMN s.a TO x", lambda alter: alter.rename_column("s.a", "x")),
        ("RENAME COLUMN day TO x", lambda alter: alter.rename_column("day", "x")),
        ("RENAME COLUMN id TO s", lambda alter: alter.rename_column("id", "s")),
        ("DROP COLUMN s", lambda alter: alter.drop_column("s")),
        ("DROP COLUMN part", lambda alter: alter.drop_column("part")),
        ("DROP COLUMN o.a", lambda alter: alter.drop_column("o.a")),
        ("ALTER COLUMN id TYPE STRING", lambda alter: alter.change_type("id", "STRING")),
        ("ALTER COLUMN id TYPE SMALLINT", lambda alter: alter.change_type("id", "SMALLINT")),
        ("ALTER COLUMN s.a TYPE BIGINT", lambda alter: alter.change_type("s.a", "BIGINT")),
        ("ADD COLUMNS (s.a INT)", lambda alter: alter.add_columns("s.a INT")),
        ("ADD COLUMNS (id.a INT)", lambda alter: alter.add_columns("id.a INT")),
        ("CLUSTER BY (id)", lambda alter: alter.cluster_by("id")),
    ]
    for statement, change in refused:
        with pytest.raises(DeltaSparkError):
            delta_spark.sql(f"ALTER TABLE delta.`{theirs}` {statement}")
        with pytest.raises(deltars.ValidationError):
            change(table.alter)
    assert table.version == 1
