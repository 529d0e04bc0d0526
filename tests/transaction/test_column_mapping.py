"""Tables that map columns: files, statistics and partition values go by physical names, and readers find everything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deltars
from deltars.errors import ValidationError
from deltars.protocol import StructType
from deltars.protocol.schema import COLUMN_ID, PHYSICAL_NAME
from tests.mirror.test_readers import by_deltalake, by_duckdb
from tests.support.delta_spark import DeltaSpark

# The subject is not the database.
pytestmark = pytest.mark.backends("sqlite")

DDL = "id BIGINT, `my col` STRUCT<x: INT, `y z`: ARRAY<STRUCT<q: STRING>>>, kind STRING"
by_mode = pytest.mark.parametrize("mode", ["name", "id"])


def rows(*ids: int, kind: str | None = "a") -> pa.Table:
    nested = [{"x": i, "y z": [{"q": str(i)}, None]} if i % 2 else None for i in ids]
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "my col": pa.array(
                nested,
                pa.struct([("x", pa.int32()), ("y z", pa.list_(pa.struct([("q", pa.string())])))]),
            ),
            "kind": pa.array([kind] * len(ids), pa.string()),
        }
    )


def create(catalog: deltars.Catalog, mode: str, **options: Any) -> deltars.Table:
    return catalog.create_table("t", DDL, properties={"delta.columnMapping.mode": mode}, **options)


def content(found: pa.Table) -> list[dict[str, Any]]:
    return sorted(found.to_pylist(), key=lambda row: int(row["id"]))


def ids_of(table: deltars.Table, where: str) -> list[int]:
    return sorted(table.to_arrow(where=where)["id"].to_pylist())


@by_mode
def test_rows_come_back_and_deltalake_finds_them(catalog: deltars.Catalog, mode: str) -> None:
    table = create(catalog, mode, partition_by="kind")
    catalog.write("t", rows(1, 2))
    catalog.write("t", rows(3, kind=None))
    expected = content(pa.concat_tables([rows(1, 2), rows(3, kind=None)]))
    assert content(table.to_arrow()) == expected
    assert content(by_deltalake(Path(table.location), None)) == expected


@by_mode
@pytest.mark.backends("sqlite")
def test_duckdb_finds_the_columns_of_a_mapped_table(catalog: deltars.Catalog, mode: str) -> None:
    # Without partitions: DuckDB 1.5 reads mapped partition columns as null, of tables that delta-spark wrote too.
    table = create(catalog, mode)
    catalog.write("t", rows(1, 2))
    assert content(by_duckdb(Path(table.location), None)) == content(rows(1, 2))


@by_mode
@pytest.mark.backends("sqlite")
def test_delta_spark_finds_and_skips_by_the_columns_of_a_mapped_table(
    catalog: deltars.Catalog, delta_spark: DeltaSpark, mode: str
) -> None:
    table = create(catalog, mode, partition_by="kind")
    catalog.write("t", rows(1, 2))
    catalog.write("t", rows(3, kind=None).append_column("brand new", pa.array([1.5])), merge_schema=True)
    assert content(delta_spark.read(table.location)) == content(table.to_arrow())
    for where, found in (("`my col`.x > 1", [3]), ("kind = 'a'", [1, 2]), ("`brand new` > 1 AND id > 2", [3])):
        answer = delta_spark.sql(f"SELECT id FROM delta.`{table.location}` WHERE {where}")
        assert sorted(answer["id"].to_pylist()) == found, where


@by_mode
@pytest.mark.backends("sqlite")
def test_files_and_log_name_columns_physically(catalog: deltars.Catalog, mode: str) -> None:
    table = create(catalog, mode, partition_by="kind")
    catalog.write("t", rows(1))
    physical = {".".join(path): field.metadata[PHYSICAL_NAME] for path, field in table.schema.walk()}
    numbers = {".".join(path): field.metadata[COLUMN_ID] for path, field in table.schema.walk()}
    assert len(set(physical.values())) == len(physical) == 6
    assert sorted(numbers.values()) == [1, 2, 3, 4, 5, 6]
    [file] = table.snapshot().files.select(["path", "partition_values", "stats"]).to_pylist()
    assert json.loads(file["partition_values"]) == {physical["kind"]: "a"}
    stats = json.loads(file["stats"])
    assert stats["minValues"] == {physical["id"]: 1, physical["my col"]: {physical["my col.x"]: 1}}
    schema = pq.read_schema(Path(table.location) / file["path"])
    assert schema.names == [physical["id"], physical["my col"]]
    assert schema.field(0).metadata[b"PARQUET:field_id"] == str(numbers["id"]).encode()
    inner = schema.field(1).type
    assert [field.name for field in inner] == [physical["my col.x"], physical["my col.y z"]]
    assert inner.field(0).metadata[b"PARQUET:field_id"] == str(numbers["my col.x"]).encode()
    assert table.snapshot().protocol.reader_features == ["columnMapping"]


@by_mode
def test_files_are_left_out_by_physical_statistics_and_partitions(catalog: deltars.Catalog, mode: str) -> None:
    table = create(catalog, mode, partition_by="kind")
    for number, kind in ((1, "a"), (3, "b"), (5, None)):
        catalog.write("t", rows(number, kind=kind))
    for where, found in (
        ("id > 2", [3, 5]),
        ("`my col`.x = 1", [1]),
        ("kind = 'b'", [3]),
        ("kind IS NULL", [5]),
        ("id = 4", []),
    ):
        assert ids_of(table, where) == found, where
        assert table.snapshot().select_files(where=where).num_rows == len(found), where


@by_mode
def test_new_columns_get_ids_that_were_never_anothers(catalog: deltars.Catalog, mode: str) -> None:
    table = create(catalog, mode)
    catalog.write("t", rows(1))
    catalog.write("t", rows(2).append_column("more", pa.array([{"a": 1}])), merge_schema=True)
    table.alter.add_columns("later STRING")
    numbers = {".".join(path): field.metadata[COLUMN_ID] for path, field in table.schema.walk()}
    assert (numbers["more"], numbers["more.a"], numbers["later"]) == (7, 8, 9)
    assert table.snapshot().metadata.configuration["delta.columnMapping.maxColumnId"] == "9"
    catalog.write("t", pa.table({"id": pa.array([7], pa.int64())}), "overwrite", overwrite_schema=True)
    assert table.schema["id"].metadata[COLUMN_ID] == 10
    assert table.to_arrow().to_pydict() == {"id": [7]}
    assert content(table.to_arrow(version=3))[1]["more"] == {"a": 1}


def test_replaced_rows_and_dynamic_partitions_of_a_mapped_table(catalog: deltars.Catalog) -> None:
    table = create(catalog, "name", partition_by="kind")
    catalog.write("t", pa.concat_tables([rows(1, 2), rows(3, 4, kind="b")]))
    catalog.write("t", rows(30, kind="b"), "overwrite", partition_overwrite="dynamic")
    assert ids_of(table, "id > 0") == [1, 2, 30]
    catalog.write("t", rows(1, kind="c"), "overwrite", replace_where="id = 1")
    assert content(table.to_arrow()) == content(pa.concat_tables([rows(1, kind="c"), rows(2), rows(30, kind="b")]))


@pytest.mark.backends("sqlite")
def test_table_that_begins_to_map_keeps_the_names_in_its_files(catalog: deltars.Catalog) -> None:
    catalog.write("t", pa.table({"id": [1], "s": [{"a": 1}]}))
    table = catalog.table("t")
    table.alter.set_properties({"delta.columnMapping.mode": "name"})
    assert table.schema["s"].physical_name == "s"
    catalog.write("t", pa.table({"id": [2], "s": [{"a": 2}], "b c": ["new"]}), merge_schema=True)
    expected = [{"id": 1, "s": {"a": 1}, "b c": None}, {"id": 2, "s": {"a": 2}, "b c": "new"}]
    assert content(table.to_arrow()) == expected
    assert content(by_deltalake(Path(table.location), None)) == expected


@pytest.mark.parametrize(
    ("first", "then"), [("none", "id"), ("name", "id"), ("id", "name"), ("name", "none"), ("none", "names")]
)
@pytest.mark.backends("sqlite")
def test_change_of_mode_that_would_lose_columns_is_refused(catalog: deltars.Catalog, first: str, then: str) -> None:
    table = catalog.create_table("t", "id BIGINT", properties={"delta.columnMapping.mode": first})
    with pytest.raises(ValidationError, match=r"delta\.columnMapping\.mode"):
        table.alter.set_properties({"delta.columnMapping.mode": then})
    assert table.version == 0


@pytest.mark.backends("sqlite")
def test_schema_of_a_mapped_table_makes_a_plain_one(catalog: deltars.Catalog) -> None:
    mapped = create(catalog, "name")
    plain = catalog.create_table("plain", "id BIGINT")
    copied = catalog.create_table("copy", StructType((mapped.schema["id"],)))
    assert copied.schema == plain.schema
    catalog.write("copy", pa.table({"id": [1, 2]}))
    assert ids_of(copied, "id = 2") == [2]


@by_mode
@pytest.mark.backends("sqlite")
def test_statistics_of_chosen_columns_are_chosen_by_the_names_people_use(catalog: deltars.Catalog, mode: str) -> None:
    properties = {"delta.columnMapping.mode": mode, "delta.dataSkippingStatsColumns": "kind"}
    table = catalog.create_table("t", DDL, properties=properties)
    catalog.write("t", rows(1))
    [text] = table.snapshot().files["stats"].to_pylist()
    assert json.loads(text)["minValues"] == {table.schema["kind"].physical_name: "a"}
