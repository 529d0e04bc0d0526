"""Generated columns, defaults, invariants, char and varchar: kept for frames of Spark and of Arrow alike."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as spark_types

import deltars
from deltars.errors import PredicateError, ValidationError
from deltars.protocol import PrimitiveType, StructField, StructType
from tests.support.delta_spark import DeltaSpark

pytestmark = pytest.mark.backends("sqlite")

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
Frame = Callable[[pa.Table], Any]


@pytest.fixture(params=["arrow", "spark"])
def frame(request: pytest.FixtureRequest, spark: SparkSession) -> Frame:
    """How the rows are handed over."""
    return spark.createDataFrame if request.param == "spark" else lambda rows: rows


def content(table: deltars.Table, *columns: str) -> list[tuple[Any, ...]]:
    found = table.to_arrow(columns=columns or None)
    return sorted(zip(*found.to_pydict().values(), strict=True), key=repr)


def features_of(table: deltars.Table) -> set[str]:
    return set(table.snapshot().protocol.writer_features or ())


def refused(table: deltars.Table, write: Callable[[], Any], match: str) -> None:
    """An error, and not a row more than before."""
    before = table.version
    with pytest.raises(ValidationError, match=match):
        write()
    assert table.version == before


GENERATED = """id BIGINT, ts TIMESTAMP, name STRING,
    day DATE GENERATED ALWAYS AS (CAST(ts AS DATE)),
    year INT GENERATED ALWAYS AS (year(ts)),
    month INT GENERATED ALWAYS AS (month(ts)),
    hour INT GENERATED ALWAYS AS (hour(ts)),
    start TIMESTAMP GENERATED ALWAYS AS (date_trunc('HOUR', ts)),
    bucket BIGINT GENERATED ALWAYS AS ((id + 1) * 2 % 7),
    label STRING GENERATED ALWAYS AS (concat(coalesce(name, 'none'), '-', CAST(id AS STRING))),
    initial STRING GENERATED ALWAYS AS (substring(name, 1, 2))"""


def test_generated_columns_that_are_missing_are_computed_as_spark_would(
    catalog: deltars.Catalog, spark: SparkSession, frame: Frame
) -> None:
    table = catalog.create_table("events", GENERATED, partition_by="day")
    assert "generatedColumns" in features_of(table)
    moments = [datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), NOON, None, datetime(2024, 2, 29, 0, 30, tzinfo=UTC)]
    rows = pa.table(
        {
            "id": pa.array([-9, 2, 3, None], pa.int64()),
            "ts": pa.array(moments, pa.timestamp("us", "UTC")),
            "name": ["größe", "", None, "😀😀😀"],
        }
    )
    catalog.write("events", frame(rows))
    expressions = {
        field.name: field.metadata["delta.generationExpression"]
        for field in table.schema
        if "delta.generationExpression" in field.metadata
    }
    wanted = spark.createDataFrame(rows).selectExpr("id", *(f"{sql} AS {name}" for name, sql in expressions.items()))
    assert content(table, "id", *expressions) == sorted(
        zip(*wanted.toArrow().to_pydict().values(), strict=True), key=repr
    )


def test_generated_column_that_is_there_must_be_what_would_be_computed(catalog: deltars.Catalog, frame: Frame) -> None:
    table = catalog.create_table("events", "ts TIMESTAMP, day DATE GENERATED ALWAYS AS (CAST(ts AS DATE))")

    def rows(*pairs: tuple[datetime | None, date | None]) -> Any:
        schema = pa.schema([("TS", pa.timestamp("us", "UTC")), ("Day", pa.date32())])
        return frame(pa.Table.from_pylist([{"TS": ts, "Day": day} for ts, day in pairs], schema))

    catalog.write("events", rows((NOON, date(2026, 1, 1)), (None, None)))
    for wrong in ((NOON, date(2026, 1, 2)), (NOON, None), (None, date(2026, 1, 1))):
        refused(table, partial(catalog.write, "events", rows(wrong)), "generated column day differs from CAST")
    assert table.to_arrow().num_rows == 2


def test_default_stands_in_for_a_missing_column_only(catalog: deltars.Catalog, frame: Frame) -> None:
    table = catalog.create_table(
        "events",
        "id BIGINT, kind STRING NOT NULL DEFAULT 'it''s none', n DECIMAL(5,2) DEFAULT 1.5, at TIMESTAMP DEFAULT "
        "current_timestamp(), copy STRING GENERATED ALWAYS AS (kind)",
    )
    assert "allowColumnDefaults" in features_of(table)
    before = datetime.now(UTC)
    catalog.write("events", frame(pa.table({"id": [1]})))
    catalog.write("events", frame(pa.table({"id": [2], "kind": ["given"], "n": pa.array([None], pa.decimal128(5, 2))})))
    first, second = content(table)
    assert (first[1], str(first[2]), first[4]) == ("it's none", "1.50", "it's none")
    assert before <= first[3] <= datetime.now(UTC)
    assert second[1:3] == ("given", None)


def test_default_can_be_set_and_taken_away(catalog: deltars.Catalog, frame: Frame) -> None:
    table = catalog.create_table("events", "id BIGINT, kind STRING")
    table.alter.set_default("kind", "'new'")
    assert "allowColumnDefaults" in features_of(table)
    catalog.write("events", frame(pa.table({"id": [1]})))
    table.alter.set_default("kind", None)
    catalog.write("events", frame(pa.table({"id": [2]})))
    assert content(table) == [(1, "new"), (2, None)]


def test_char_is_filled_up_and_nothing_longer_than_its_limit_is_written(
    catalog: deltars.Catalog, spark: SparkSession, frame: Frame
) -> None:
    ddl = (
        "id BIGINT, c CHAR(3), v VARCHAR(3), l ARRAY<VARCHAR(2)>, s STRUCT<c: CHAR(2), n: INT>, m MAP<STRING, CHAR(2)>"
    )
    table = catalog.create_table("names", ddl)
    kind = table_type(table, "m")
    assert kind == "MAP<STRING, CHAR(2)>"

    def row(id: int, **columns: Any) -> Any:
        types = {
            "c": pa.string(), "v": pa.string(), "l": pa.list_(pa.string()),
            "s": pa.struct([("c", pa.string()), ("n", pa.int32())]), "m": pa.map_(pa.string(), pa.string()),
        }  # fmt: skip
        return frame(pa.table({"id": [id], **{key: pa.array([value], types[key]) for key, value in columns.items()}}))

    catalog.write("names", row(1, c="é", v="abc   ", l=["xy", None, "z  "], s={"c": "a", "n": 1}, m=[("key", "b")]))
    catalog.write("names", row(2, c=None, v=None, l=None, s=None, m=None))
    catalog.write("names", row(3, c="abc  ", v="😀😀😀"))
    expected = [
        (1, "é  ", "abc", ["xy", None, "z "], {"c": "a ", "n": 1}, [("key", "b ")]),
        (2, None, None, None, None, None),
        (3, "abc", "😀😀😀", None, None, None),
    ]
    assert content(table) == expected
    assert [row.c for row in table.read(spark=spark).orderBy("id").collect()] == ["é  ", None, "abc"]
    for wrong in ({"c": "abcd"}, {"v": "ab  c"}, {"l": ["abc"]}, {"s": {"c": "abc", "n": 1}}, {"m": [("k", "abc")]}):
        [column] = wrong
        refused(table, partial(catalog.write, "names", row(4, **wrong)), f"column {column} .* longer than")


def test_generated_string_keeps_to_its_length_too(catalog: deltars.Catalog, frame: Frame) -> None:
    table = catalog.create_table("t", "name STRING, short CHAR(3) GENERATED ALWAYS AS (name)")
    catalog.write("t", frame(pa.table({"name": ["ab"]})))
    refused(table, lambda: catalog.write("t", frame(pa.table({"name": ["abcd"]}))), r"column short .* char\(3\)")
    assert content(table) == [("ab", "ab ")]


def table_type(table: deltars.Table, column: str) -> Any:
    return table.schema[column].metadata["__CHAR_VARCHAR_TYPE_STRING"]


def test_char_and_varchar_of_a_spark_schema_are_kept(catalog: deltars.Catalog) -> None:
    inner = spark_types.StructType().add("x y", spark_types.CharType(2))
    schema = (
        spark_types.StructType()
        .add("id", spark_types.IntegerType())
        .add("v", spark_types.VarcharType(10))
        .add("l", spark_types.ArrayType(inner))
    )
    table = catalog.create_table("names", schema, properties={"delta.columnMapping.mode": "name"})
    assert str(table.schema) == "struct<id: integer, v: string, l: array<struct<x y: string>>>"
    assert (table_type(table, "v"), table_type(table, "l")) == ("varchar(10)", "array<struct<`x y`:char(2)>>")
    refused(table, lambda: catalog.write("names", pa.table({"l": [[{"x y": "abc"}]]})), r"longer than char\(2\)")


def test_schema_of_spark_with_generation_in_its_metadata_is_taken(catalog: deltars.Catalog, frame: Frame) -> None:
    schema = (
        spark_types.StructType()
        .add("id", spark_types.LongType())
        .add("twice", spark_types.LongType(), metadata={"delta.generationExpression": "id * 2"})
    )
    table = catalog.create_table("numbers", schema)
    catalog.write("numbers", frame(pa.table({"id": [21]})))
    assert content(table) == [(21, 42)]


def test_column_invariant_is_kept(catalog: deltars.Catalog, frame: Frame) -> None:
    invariant = {"delta.invariants": '{"expression":{"expression":"id > 0"}}'}
    table = catalog.create_table("t", StructType((StructField("id", PrimitiveType("long"), metadata=invariant),)))
    catalog.write("t", frame(pa.table({"id": [1]})))
    refused(table, lambda: catalog.write("t", frame(pa.table({"id": [0]}))), "invariant of column id: id > 0")


def test_what_only_spark_computes_is_refused_of_other_frames_before_a_file_is_written(
    catalog: deltars.Catalog, spark: SparkSession
) -> None:
    table = catalog.create_table("t", "name STRING, hash STRING GENERATED ALWAYS AS (sha2(name, 256))")
    rows = pa.table({"name": ["ada"]})
    with pytest.raises(PredicateError, match="only Spark can compute SHA2") as caught:
        catalog.write("t", rows)
    assert "Spark DataFrame" in str(caught.value)
    catalog.write("t", spark.createDataFrame(rows))
    assert len(table.to_arrow()["hash"][0].as_py()) == 64


def test_default_that_only_spark_computes_is_taken_with_spark_frames(
    catalog: deltars.Catalog, spark: SparkSession
) -> None:
    table = catalog.create_table("t", "id BIGINT, key STRING DEFAULT uuid()")
    with pytest.raises(PredicateError, match="only Spark can compute UUID"):
        catalog.write("t", pa.table({"id": [1]}))
    catalog.write("t", spark.range(2))
    assert len({key for _, key in content(table)}) == 2


def test_overflow_in_an_expression_is_an_error_and_no_other_number(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id INT, next INT GENERATED ALWAYS AS (id + 1)")
    refused(table, lambda: catalog.write("t", pa.table({"id": pa.array([2**31 - 1], pa.int32())})), "overflow")


@pytest.mark.parametrize(
    ("ddl", "match"),
    [
        ("id INT, g INT GENERATED ALWAYS AS (nope + 1)", "no column nope"),
        (
            "id INT, g INT GENERATED ALWAYS AS (id + 1), h INT GENERATED ALWAYS AS (g + 1)",
            "uses g, which is",
        ),
        ("id INT, g DOUBLE GENERATED ALWAYS AS (rand())", "must be deterministic"),
        ("id INT, g INT GENERATED ALWAYS AS ((SELECT 1))", "subquery"),
        ("id INT, g INT GENERATED ALWAYS AS (id", "never closed"),
        ("id INT, g INT GENERATED ALWAYS AS ()", "expected an expression"),
        ("id INT DEFAULT 'many'", "default is not a valid integer"),
        ("id INT, g INT DEFAULT id", "no column id"),
    ],
)
def test_rule_that_cannot_be_kept_is_refused_with_the_table(catalog: deltars.Catalog, ddl: str, match: str) -> None:
    with pytest.raises(ValidationError, match=match):
        catalog.create_table("t", ddl)
    assert not catalog.table_exists("t")


@pytest.mark.parametrize("column", ["g INT GENERATED ALWAYS AS (id)", "d INT DEFAULT 5"])
def test_column_that_old_rows_would_lack_the_value_of_is_not_added(catalog: deltars.Catalog, column: str) -> None:
    table = catalog.create_table("t", "id INT")
    refused(table, lambda: table.alter.add_columns(column), "cannot be generated or have a default")


def test_table_made_from_a_spark_frame_takes_nulls_and_frames_that_lack_columns(
    catalog: deltars.Catalog, spark: SparkSession
) -> None:
    catalog.write("t", spark.sql("SELECT 1 AS id, array(named_struct('x', 1)) AS l"))
    assert all(field.nullable for _, field in catalog.table("t").schema.walk())
    catalog.write("t", spark.sql("SELECT CAST(NULL AS INT) AS id"))
    assert catalog.table("t").read(spark=spark).count() == 2


def test_name_that_needs_column_mapping_is_refused_with_the_way_out(catalog: deltars.Catalog) -> None:
    with pytest.raises(ValidationError, match=r"delta\.columnMapping\.mode = name"):
        catalog.write("t", pa.table({"a b": [1]}))
    catalog.write("t", pa.table({"a b": [1]}), properties={"delta.columnMapping.mode": "name"})
    assert catalog.table("t").to_arrow().to_pydict() == {"a b": [1]}


def test_delta_spark_understands_what_the_schema_says(catalog: deltars.Catalog, delta_spark: DeltaSpark) -> None:
    limited = "id BIGINT, c CHAR(3), v VARCHAR(3), l ARRAY<VARCHAR(2)>"
    table = catalog.create_table("t", f"{limited}, d INT DEFAULT 5, g BIGINT GENERATED ALWAYS AS (id * 2)")
    catalog.write("t", pa.table({"id": [1], "c": ["a"], "v": ["b"], "l": [["c"]]}))
    assert delta_spark.read(table.location).to_pylist() == table.to_arrow().to_pylist()
    theirs = f"{table.location}-of-delta-spark"
    log = Path(theirs, f"_delta_log/{0:020}.json")
    delta_spark.sql(f"CREATE TABLE delta.`{theirs}` ({limited}) USING delta")
    (actions,) = (json.loads(line) for line in log.read_text().splitlines() if '"metaData"' in line)
    said = {field["name"]: field["metadata"] for field in json.loads(actions["metaData"]["schemaString"])["fields"]}
    # The names of types have no case.
    assert str({name: dict(table.schema[name].metadata) for name in said}).lower() == str(said).lower()
