"""Random schemas and rows: written through Arrow or Spark, mapped or not, read by everybody, and the same."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType as SparkStructType

import deltars
from deltars.data import ArrowPlane, Scan, WriteTarget
from deltars.protocol import ArrayType, DataType, MapType, PrimitiveType, StructField, StructType, schema_to_arrow
from deltars.spark import SparkPlane
from tests.mirror.test_readers import by_deltalake
from tests.protocol.strategies import ORDINARY_TYPES, primitive_types, values_of
from tests.support.delta_spark import DeltaSpark
from tests.support.soak import is_soak, record, scaled

NAMES = st.sampled_from(["id", "größe", "a.b", "x`y", "_metadata", "select", "p%q"])
MAPPINGS = ("none", "name", "id")
PARTITIONS = ("string", "integer", "date", "timestamp", "timestamp_ntz", "boolean", "double", "decimal(9,2)")


def data_types() -> st.SearchStrategy[DataType]:
    def nested(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
        keys = st.sampled_from(["string", "long", "date"]).map(PrimitiveType)
        return st.one_of(st.builds(ArrayType, inner), st.builds(MapType, keys, inner), structs(inner))

    return st.recursive(primitive_types(ORDINARY_TYPES), nested, max_leaves=4)


def structs(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[StructType]:
    fields = st.builds(StructField, NAMES, inner)
    return st.lists(fields, min_size=1, max_size=5, unique_by=lambda field: field.name).map(
        lambda found: StructType(tuple(found))
    )


def values(type_: DataType) -> st.SearchStrategy[Any]:
    match type_:
        case StructType():
            some: st.SearchStrategy[Any] = rows(type_)
        case ArrayType():
            some = st.lists(values(type_.element_type), max_size=3)
        case MapType():
            assert isinstance(type_.key_type, PrimitiveType)
            some = st.dictionaries(values_of(type_.key_type), values(type_.value_type), max_size=3).map(
                lambda found: list(found.items())
            )
        case _:
            some = values_of(type_)
    return st.none() | some


def rows(schema: StructType) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({field.name: values(field.type) for field in schema.fields})


@st.composite
def tables(draw: st.DrawFn) -> tuple[StructType, list[dict[str, Any]], bool]:
    schema = draw(structs(data_types()))
    is_partitioned = draw(st.booleans())
    if is_partitioned:
        day = StructField("part", PrimitiveType(draw(st.sampled_from(PARTITIONS))))
        schema = StructType((*schema.fields, day))
    return schema, draw(st.lists(rows(schema), min_size=1, max_size=6)), is_partitioned


@dataclass(frozen=True)
class Drawn:
    schema: StructType
    rows: pa.Table
    is_partitioned: bool

    def wanted(self) -> list[str]:
        return shown(self.rows, self.is_partitioned)


def shown(rows: pa.Table, is_partitioned: bool) -> list[str]:
    """Comparable: NaN is equal to itself, and so is a moment that another reader gives another zone."""
    found = rows.to_pylist()
    for row in found:
        if is_partitioned and row["part"] == "":
            # Delta has no empty string as a partition value.
            row["part"] = None
    return sorted(repr(_plain(row)) for row in found)


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {name: _plain(item) for name, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case datetime() if value.tzinfo is not None:
            return value.astimezone(UTC)
        case _:
            return value


def drawn_of(found: tuple[StructType, list[dict[str, Any]], bool]) -> Drawn:
    schema, rows, is_partitioned = found
    return Drawn(schema, pa.Table.from_pylist(rows, schema_to_arrow(schema)), is_partitioned)


@pytest.mark.soak
def test_random_rows_come_back_through_spark(spark: SparkSession, tmp_path: Path) -> None:
    @settings(max_examples=scaled(6, soak=300))
    @given(tables().map(drawn_of))
    def check(drawn: Drawn) -> None:
        target = WriteTarget(str(tmp_path / uuid4().hex), drawn.schema, ("part",) if drawn.is_partitioned else ())
        files = [file.add for file in ArrowPlane().write(drawn.rows, target)]
        scan = Scan(
            target.root,
            drawn.schema,
            target.partition_columns,
            pa.table(
                {
                    "path": [file.path for file in files],
                    "size": [file.size for file in files],
                    "modification_time": [file.modification_time for file in files],
                    "partition_values": [json.dumps(file.partition_values) for file in files],
                    "deletion_vector": pa.nulls(len(files), pa.string()),
                }
            ),
            "t",
            0,
        )
        back = SparkPlane().read(spark, scan).toArrow()
        assert back.column_names == drawn.rows.column_names
        assert shown(back, drawn.is_partitioned) == drawn.wanted()

    check()


ZONES = ("UTC", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe")
"""Behind and ahead of UTC, by half hours too, and with summer times that begin by half an hour."""


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.backends("sqlite")
def test_random_tables_are_the_same_to_every_reader(
    catalog: deltars.Catalog, spark: SparkSession, request: pytest.FixtureRequest
) -> None:
    made: list[tuple[Drawn, deltars.Table]] = []

    @settings(max_examples=scaled(5, soak=200))
    @given(
        tables().map(drawn_of), st.sampled_from(["arrow", "spark"]), st.sampled_from(MAPPINGS), st.sampled_from(ZONES)
    )
    def check(drawn: Drawn, how: str, mapping: str, zone: str) -> None:
        name = f"t-{uuid4().hex}"
        properties = {"delta.columnMapping.mode": mapping}
        table = catalog.create_table(
            name, drawn.schema, partition_by="part" if drawn.is_partitioned else (), properties=properties
        )
        spark.conf.set("spark.sql.session.timeZone", zone)
        try:
            frame = drawn.rows
            if how == "spark":
                document = json.loads(drawn.schema.to_json())
                frame = spark.createDataFrame(drawn.rows, SparkStructType.fromJson(document))
            catalog.write(name, frame)
            answers = {
                "arrow": table.to_arrow(),
                "spark": table.read(spark=spark).toArrow(),
                "deltalake": by_deltalake(Path(table.location), None),
            }
        finally:
            spark.conf.set("spark.sql.session.timeZone", "UTC")
        for reader, found in answers.items():
            assert shown(found, drawn.is_partitioned) == drawn.wanted(), reader
        made.append((drawn, table))

    check()
    if is_soak():
        delta_spark: DeltaSpark = request.getfixturevalue("delta_spark")
        for drawn, table in made:
            found = delta_spark.read(table.location)
            assert shown(found, drawn.is_partitioned) == drawn.wanted(), (table.location, drawn)
    record("random tables are the same to every reader", tables=len(made))
