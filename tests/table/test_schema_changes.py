"""Columns renamed, dropped, moved and widened: what is read, written, pruned and changed after it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import deltars
from deltars.errors import SchemaMismatch, ValidationError, VersionConflict
from deltars.protocol.schema import COLUMN_ID, PHYSICAL_NAME

# The subject is not the database.
pytestmark = pytest.mark.backends("sqlite")

MAPPED = {"delta.columnMapping.mode": "name"}
DDL = "id INT, name STRING, at STRUCT<x: INT, y: INT>, tags ARRAY<STRUCT<n: INT, m: STRING>>, kind STRING"


def rows(*ids: int, kind: str = "a") -> pa.Table:
    return pa.table(
        {
            "id": pa.array(ids, pa.int32()),
            "name": [f"n{number}" for number in ids],
            "at": pa.array(
                [{"x": number, "y": -number} for number in ids], pa.struct([("x", pa.int32()), ("y", pa.int32())])
            ),
            "tags": pa.array(
                [[{"n": number, "m": "m"}] for number in ids],
                pa.list_(pa.struct([("n", pa.int32()), ("m", pa.string())])),
            ),
            "kind": [kind] * len(ids),
        }
    )


@pytest.fixture
def table(catalog: deltars.Catalog) -> deltars.Table:
    made = catalog.create_table("t", DDL, properties=MAPPED, partition_by="kind")
    catalog.write("t", rows(1, 2))
    catalog.write("t", rows(3, kind="b"))
    return made


def column(table: deltars.Table, name: str, where: str | None = None, **at: Any) -> list[Any]:
    key = "key" if "key" in table.snapshot(**at).schema.names else "id"
    values: list[Any] = table.to_arrow(where=where, **at).sort_by(key)[name].to_pylist()
    return values


def test_renamed_column_keeps_its_rows_and_old_versions_their_names(
    catalog: deltars.Catalog, table: deltars.Table
) -> None:
    table.alter.rename_column("ID", "key")
    table.alter.rename_column("at.x", "east")
    table.alter.rename_column("tags.element.n", "number")
    table.alter.rename_column("kind", "sort")
    assert column(table, "key") == [1, 2, 3]
    assert column(table, "at")[0] == {"east": 1, "y": -1}
    assert column(table, "tags")[2] == [{"number": 3, "m": "m"}]
    assert table.snapshot().metadata.partition_columns == ["sort"]
    for where, found in (("key > 2", [3]), ("at.east = 1", [1]), ("sort = 'b'", [3])):
        assert column(table, "key", where) == found
        assert table.files(where=where).num_rows == 1
    assert table.to_arrow(version=2).column_names == ["id", "name", "at", "tags", "kind"]
    assert column(table, "id", "at.x = 1", version=2) == [1]
    entry = table.history(1)[0]
    assert (entry.operation, entry.operation_params) == (
        "RENAME COLUMN",
        {"oldColumnPath": "kind", "newColumnPath": "sort"},
    )


def test_rows_are_written_merged_and_deleted_by_the_new_names(catalog: deltars.Catalog, table: deltars.Table) -> None:
    table.alter.set_properties({"delta.enableDeletionVectors": "true", "delta.enableRowTracking": "true"})
    table.alter.rename_column("id", "key")
    table.alter.drop_column(["tags", "at.y"])
    table.alter.add_columns("tags STRING")
    new = pa.table(
        {"key": pa.array([3, 4], pa.int32()), "name": ["new", "new"], "kind": ["b", "b"], "tags": ["x", "y"]}
    )
    merge = table.merge(new, on="t.key = s.key").when_matched_update({"name": "s.name", "tags": "s.tags"})
    merge.when_not_matched_insert_all(except_columns=["at"]).execute()
    table.delete("key = 1")
    table.update({"tags": "'two'"}, where="key = 2")
    assert column(table, "name") == ["n2", "new", "new"]
    assert column(table, "tags") == ["two", "x", "y"]
    assert column(table, "at") == [{"x": 2}, {"x": 3}, None]
    assert column(table, "tags", version=2)[0] == [{"n": 1, "m": "m"}]
    table.optimize()
    assert column(table, "tags") == ["two", "x", "y"]


def test_dropped_name_comes_back_as_another_column(catalog: deltars.Catalog, table: deltars.Table) -> None:
    before = table.schema["name"].metadata
    table.alter.drop_column("name")
    table.alter.add_columns("name STRING", first=True)
    after = table.schema["name"].metadata
    assert after[COLUMN_ID] > before[COLUMN_ID]
    assert after[PHYSICAL_NAME] != before[PHYSICAL_NAME]
    assert column(table, "name") == [None, None, None]
    assert table.files(where="name = 'n1'").num_rows == 0 or column(table, "name", "name = 'n1'") == []


def test_restored_version_has_its_old_names(catalog: deltars.Catalog, table: deltars.Table) -> None:
    table.alter.rename_column("id", "key")
    table.alter.drop_column("name")
    table.restore(2)
    assert table.schema.names[:2] == ("id", "name")
    assert column(table, "name", "id = 3") == ["n3"]


def test_column_moves_within_its_struct_and_pruning_follows(catalog: deltars.Catalog, table: deltars.Table) -> None:
    table.alter.move_column("at", first=True)
    table.alter.move_column("at.y", first=True)
    table.alter.move_column("id", after="name")
    assert table.schema.names == ("at", "name", "id", "tags", "kind")
    assert column(table, "at")[0] == {"y": -1, "x": 1}
    for where in ("id = 3", "at.y = -3", "at.x = 3"):
        assert column(table, "id", where) == [3]
        assert table.files(where=where).num_rows == 1
    catalog.write("t", rows(4))
    assert column(table, "at", "id = 4") == [{"y": -4, "x": 4}]
    calls: list[Callable[[], object]] = [
        lambda: table.alter.move_column("id"),
        lambda: table.alter.move_column("id", first=True, after="name"),
        lambda: table.alter.move_column("id", after="at.y"),
        lambda: table.alter.move_column("id", after="id"),
    ]
    for call in calls:
        with pytest.raises(ValidationError):
            call()


def test_columns_are_added_at_a_place(catalog: deltars.Catalog, table: deltars.Table) -> None:
    table.alter.add_columns("a INT, b INT", after="id")
    table.alter.add_columns("c INT, d INT", first=True)
    table.alter.add_columns("e INT AFTER name, at.z INT FIRST, tags.element.w STRUCT<v: INT>, `f g` INT")
    assert table.schema.names == ("c", "d", "id", "a", "b", "name", "e", "at", "tags", "kind", "f g")
    assert column(table, "at")[0] == {"z": None, "x": 1, "y": -1}
    assert column(table, "tags")[0] == [{"n": 1, "m": "m", "w": None}]
    assert column(table, "id", "id = 3") == [3]
    assert len({field.metadata[COLUMN_ID] for _, field in table.schema.walk()}) == len(list(table.schema.walk()))
    version = table.version
    for columns, place in (
        ("x INT AFTER id", {"first": True}),
        ("x INT", {"after": "nope"}),
        ("tags.x INT", {}),
        ("name.x INT", {}),
        ("at.X INT", {}),
    ):
        with pytest.raises(ValidationError):
            table.alter.add_columns(columns, **place)
    assert table.version == version


WIDER: list[tuple[str, str, list[Any], str, Any]] = [
    ("BYTE", "SHORT", [-7, 9], "c > 8", 9),
    ("SHORT", "BIGINT", [-7, 300], "c > 8", 300),
    ("INT", "BIGINT", [-7, 70_000], "c > 8", 70_000),
    ("INT", "DOUBLE", [2**31 - 1, -7], "c < -6.5", -7.0),
    ("INT", "DECIMAL(12, 2)", [-7, 9], "c = 9.00", Decimal("9.00")),
    ("BIGINT", "DECIMAL(20, 0)", [-7, 2**63 - 1], "c > 8", Decimal(2**63 - 1)),
    ("FLOAT", "DOUBLE", [0.5, -0.1], "c < 0", -0.10000000149011612),
    ("DECIMAL(5, 2)", "DECIMAL(9, 4)", [Decimal("-1.25"), Decimal("1.25")], "c > 1", Decimal("1.2500")),
    ("DATE", "TIMESTAMP_NTZ", [date(2020, 1, 1), date(2020, 1, 2)], "c > '2020-01-01 12:00:00'", None),
]


@pytest.mark.parametrize(("before", "after", "values", "where", "found"), WIDER)
def test_wider_type_is_read_pruned_and_written(
    catalog: deltars.Catalog, before: str, after: str, values: list[Any], where: str, found: Any
) -> None:
    table = catalog.create_table("t", f"id INT, c {before}")
    arrow = deltars.StructType((table.schema["c"],))
    kind = table.to_arrow().schema.field("c").type
    for number, value in enumerate(values):
        catalog.write("t", pa.table({"id": pa.array([number], pa.int32()), "c": pa.array([value], kind)}))
    with pytest.raises(ValidationError, match=r"delta\.enableTypeWidening = true"):
        table.alter.change_type("c", after)
    upgrade = table.alter.change_type("c", after, enable_type_widening=True)
    assert upgrade is not None
    assert "typeWidening" in upgrade.features
    [change] = table.schema["c"].metadata["delta.typeChanges"]
    assert change == {"fromType": str(arrow["c"].type), "toType": str(table.schema["c"].type)}
    [row] = table.to_arrow(where=where).to_pylist()
    assert row["id"] == 1
    assert found is None or row["c"] == found
    assert table.files(where=where).num_rows == 1
    catalog.write("t", table.to_arrow())
    assert table.to_arrow(where=where).num_rows == 2
    assert table.to_arrow(version=1)["c"].type == kind


def test_wider_types_inside_arrays_and_maps_are_noted_where_delta_notes_them(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "a ARRAY<INT>, m MAP<INT, FLOAT>, s ARRAY<STRUCT<n: SHORT>>")
    catalog.write("t", pa.table({"a": pa.array([[1]], pa.list_(pa.int32()))}))
    table.alter.change_type("a.element", "BIGINT", enable_type_widening=True)
    table.alter.change_type("m", "MAP<BIGINT, DOUBLE>")
    table.alter.change_type("s.element.n", "INT")
    table.alter.change_type("s.element.n", "BIGINT")
    changes = {path: field.metadata.get("delta.typeChanges") for path, field in table.schema.walk()}
    assert changes == {
        ("a",): [{"fromType": "integer", "toType": "long", "fieldPath": "element"}],
        ("m",): [
            {"fromType": "integer", "toType": "long", "fieldPath": "key"},
            {"fromType": "float", "toType": "double", "fieldPath": "value"},
        ],
        ("s",): None,
        ("s", "element", "n"): [
            {"fromType": "short", "toType": "integer"},
            {"fromType": "integer", "toType": "long"},
        ],
    }
    assert table.to_arrow()["a"].to_pylist() == [[1]]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("BIGINT", "INT"),
        ("STRING", "INT"),
        ("INT", "STRING"),
        ("DOUBLE", "FLOAT"),
        ("BIGINT", "DOUBLE"),
        ("DATE", "TIMESTAMP"),
        ("DECIMAL(9, 2)", "DECIMAL(9, 3)"),
        ("INT", "DECIMAL(9, 0)"),
        ("ARRAY<INT>", "INT"),
        ("STRUCT<a: INT>", "STRUCT<a: BIGINT>"),
        ("VARCHAR(5)", "VARCHAR(4)"),
        ("STRING", "VARCHAR(9)"),
        ("VARCHAR(5)", "CHAR(9)"),
        ("INT", "INT NOT NULL"),
        ("INT", "NUMBER"),
    ],
)
def test_other_type_is_refused(catalog: deltars.Catalog, before: str, after: str) -> None:
    table = catalog.create_table("t", f"id INT, c {before}")
    with pytest.raises(ValidationError):
        table.alter.change_type("c", after, enable_type_widening=True)
    assert table.version == 0


def test_length_of_strings_grows_without_a_feature(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "c VARCHAR(3)")
    assert table.alter.change_type("c", "VARCHAR(5)") is None
    catalog.write("t", pa.table({"c": ["12345"]}))
    with pytest.raises(ValidationError):
        catalog.write("t", pa.table({"c": ["123456"]}))
    assert table.alter.change_type("c", "STRING") is None
    catalog.write("t", pa.table({"c": ["123456"]}))
    assert table.to_arrow().num_rows == 2


def test_not_null_checks_the_rows_that_are_there_and_those_to_come(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id INT, s STRUCT<a: INT>, l ARRAY<STRUCT<a: INT>>")
    catalog.write("t", pa.table({"id": pa.array([1], pa.int32())}))
    table.alter.set_not_null("id")
    table.alter.set_not_null("s.a")  # a null struct has no field that could be null
    for bad in ({"id": [None], "s": [None]}, {"id": [1], "s": [{"a": None}]}):
        with pytest.raises(SchemaMismatch, match="NOT NULL"):
            catalog.write(
                "t",
                pa.table(
                    {"id": pa.array(bad["id"], pa.int32()), "s": pa.array(bad["s"], pa.struct([("a", pa.int32())]))}
                ),
            )
    with pytest.raises(ValidationError, match="NOT NULL of s"):
        table.alter.set_not_null("s")
    with pytest.raises(ValidationError, match="inside an array"):
        table.alter.set_not_null("l.element.a")
    table.alter.set_nullable("id")
    catalog.write("t", pa.table({"id": pa.array([None], pa.int32())}))


def test_row_written_while_nulls_are_forbidden_is_a_conflict(catalog: deltars.Catalog, table: deltars.Table) -> None:
    tx = catalog.begin(isolation="serializable")
    tx.alter("t").set_not_null("name")
    catalog.write("t", pa.table({"id": pa.array([9], pa.int32()), "kind": ["a"]}))
    with pytest.raises(VersionConflict):
        tx.commit()
    assert table.schema["name"].nullable


def test_table_without_mapping_is_told_what_to_write_or_upgraded_when_asked(catalog: deltars.Catalog) -> None:
    catalog.write("t", pa.table({"id": [1], "name": ["a"], "gone": [1]}))
    table = catalog.table("t")
    calls: list[Callable[[], object]] = [
        lambda: table.alter.rename_column("name", "title"),
        lambda: table.alter.drop_column("gone"),
    ]
    for call in calls:
        with pytest.raises(ValidationError, match=r"columnMapping\.mode = name.*enable_column_mapping=True.*deltalake"):
            call()
    assert table.version == 0
    upgrade = table.alter.rename_column("name", "title", enable_column_mapping=True)
    assert upgrade is not None
    assert upgrade.features == ("columnMapping",)
    assert "Polars refuse" in str(upgrade)
    assert table.alter.drop_column("gone", enable_column_mapping=True) is None
    catalog.write("t", pa.table({"id": [2], "title": ["b"]}))
    assert table.to_arrow().sort_by("id").to_pydict() == {"id": [1, 2], "title": ["a", "b"]}


def test_column_that_others_use_is_refused_as_in_delta(catalog: deltars.Catalog) -> None:
    table = catalog.create_table(
        "t",
        "id INT, s STRUCT<a: INT, b: INT>, day DATE, year INT GENERATED ALWAYS AS (YEAR(day)), part INT, c INT",
        properties=MAPPED | {"delta.constraints.positive": "s.a > 0", "delta.enableTypeWidening": "true"},
        partition_by="part",
    )
    used: list[tuple[str, Callable[[], object]]] = [
        ("constraint positive uses it", lambda: table.alter.rename_column("s.a", "x")),
        ("constraint positive uses it", lambda: table.alter.rename_column("s", "x")),
        ("constraint positive uses it", lambda: table.alter.drop_column("s")),
        ("constraint positive uses it", lambda: table.alter.change_type("s.a", "BIGINT")),
        ("generated column year uses it", lambda: table.alter.drop_column("day")),
        ("generated column year uses it", lambda: table.alter.rename_column("day", "x")),
        ("partitioned by it", lambda: table.alter.drop_column("part")),
        ("exists already|duplicate", lambda: table.alter.rename_column("c", "ID")),
        ("no column 'nope'", lambda: table.alter.rename_column("nope", "x")),
        ("has a dot", lambda: table.alter.rename_column("s.b", "s.x")),
        ("no name", lambda: table.alter.rename_column("c", "")),
        ("no column", lambda: table.alter.drop_column(["c", "nope"])),
        ("exclude each other", lambda: table.alter.cluster_by("id")),
    ]
    for message, call in used:
        with pytest.raises(ValidationError, match=message):
            call()
    assert table.version == 0
    table.alter.rename_column("s.b", "x")
    table.alter.drop_column(["year", "day"])  # what uses the column goes first
    table.alter.drop_column("nope", if_exists=True)
    assert table.schema.names == ("id", "s", "part", "c")


def test_last_column_stays(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id INT, s STRUCT<a: INT>, p INT", properties=MAPPED, partition_by="p")
    for name in ("s.a", ["id", "s"]):
        with pytest.raises(ValidationError, match=r"only one of|at least one column"):
            table.alter.drop_column(name)
    assert table.version == 0


def test_properties_that_name_a_column_follow_it(catalog: deltars.Catalog) -> None:
    properties = MAPPED | {"delta.dataSkippingStatsColumns": "a, s.x, `b c`", "deltars.rangeColumn": "s.x"}
    table = catalog.create_table("t", "a INT, s STRUCT<x: INT, y: INT>, `b c` INT", properties=properties)
    catalog.write(
        "t",
        pa.table(
            {
                "a": pa.array([1], pa.int32()),
                "s": pa.array([{"x": 5, "y": 6}], pa.struct([("x", pa.int32()), ("y", pa.int32())])),
            }
        ),
    )
    table.alter.rename_column("s", "point")
    table.alter.rename_column("point.x", "east west")
    configuration = table.snapshot().metadata.configuration
    assert configuration["delta.dataSkippingStatsColumns"] == "a,point.`east west`,`b c`"
    assert configuration["deltars.rangeColumn"] == "point.east west"
    assert table.files(where="point.`east west` = 4").num_rows == 0
    table.alter.drop_column("point")
    configuration = table.snapshot().metadata.configuration
    assert configuration["delta.dataSkippingStatsColumns"] == "a,`b c`"
    assert "deltars.rangeColumn" not in configuration


def test_clustering_columns_change_and_follow_a_rename(catalog: deltars.Catalog) -> None:
    catalog.write("t", pa.table({"id": [1, 2], "n": [3, 4], "s": [{"a": 1}, {"a": 2}]}))
    table = catalog.table("t")
    upgrade = table.alter.cluster_by(["n", "s.a"])
    assert upgrade is not None
    assert "clustering" in upgrade.features
    assert upgrade.after.min_reader_version == 1
    table.alter.rename_column("n", "m", enable_column_mapping=True)
    with pytest.raises(ValidationError, match=r"clustered by s\.a"):
        table.alter.drop_column("s")
    assert table.optimize().num_files_added >= 0
    table.alter.cluster_by("m")
    table.alter.drop_column("s")
    table.alter.cluster_by(None)
    table.alter.cluster_by(None)
    table.alter.drop_column("m")
    assert [entry.operation_params for entry in table.history() if entry.operation == "CLUSTER BY"][-1] == {
        "oldClusteringColumns": "",
        "newClusteringColumns": "n,s.a",
    }


def test_row_tracking_gives_ids_to_rows_that_exist(catalog: deltars.Catalog) -> None:
    catalog.write("t", pa.table({"id": [1, 2]}))
    catalog.write("t", pa.table({"id": [3]}))
    table = catalog.table("t")
    table.alter.set_properties({"delta.enableRowTracking": "true"})
    catalog.write("t", pa.table({"id": [4]}))
    files = table.files().select(["base_row_id", "num_records", "default_row_commit_version"]).to_pylist()
    ids = sorted(
        number for file in files for number in range(file["base_row_id"], file["base_row_id"] + file["num_records"])
    )
    assert ids == [0, 1, 2, 3]
    assert table.count() == 4
    with catalog.begin() as tx:
        tx.write("u", pa.table({"id": [1]}))
    with catalog.begin() as tx:
        tx.write("u", pa.table({"id": [2]}))
        tx.alter("u").set_properties({"delta.enableRowTracking": "true"})
    place = Path(catalog.table("u").location)
    lines = (place / "_delta_log" / f"{1:020}.json").read_text().splitlines()
    adds = [json.loads(line)["add"] for line in lines if '"add"' in line]
    assert sorted((add["dataChange"], add["baseRowId"]) for add in adds) in (
        [(False, 0), (True, 1)],
        [(False, 1), (True, 0)],
    )
    assert table.verify(deep=True).findings == ()


def test_changes_of_one_transaction_are_one_version_and_a_rollback_leaves_nothing(
    catalog: deltars.Catalog, table: deltars.Table
) -> None:
    with catalog.begin() as tx:
        alter = tx.alter("t")
        alter.rename_column("id", "key")
        alter.add_columns("note STRING AFTER key")
        alter.change_type("key", "BIGINT", enable_type_widening=True)
        tx.write("t", pa.table({"key": [2**40], "note": ["big"], "kind": ["a"]}))
        tx.delete("t", "key = 1")
        assert sorted(tx.to_arrow("t")["key"].to_pylist()) == [2, 3, 2**40]
    assert table.version == 3
    assert column(table, "note") == [None, None, "big"]
    undone = catalog.begin()
    undone.alter("t").drop_column("note")
    undone.rollback()
    assert "note" in table.schema


def test_same_transaction_id_changes_the_schema_once(catalog: deltars.Catalog, table: deltars.Table) -> None:
    for _ in range(2):
        with catalog.begin(txn_id="rename") as tx:
            tx.alter("t").rename_column("id", "key")
    assert table.version == 3


def test_write_that_began_before_a_rename_is_a_conflict(catalog: deltars.Catalog, table: deltars.Table) -> None:
    tx = catalog.begin(isolation="serializable")
    tx.write("t", rows(4))
    table.alter.rename_column("id", "key")
    with pytest.raises(deltars.MetadataChanged):
        tx.commit()


def test_spark_reads_and_changes_by_the_new_names_and_types(
    catalog: deltars.Catalog, table: deltars.Table, spark: SparkSession
) -> None:
    def read() -> list[dict[str, Any]]:
        return [row.asDict(recursive=True) for row in table.read(spark=spark).orderBy("name").collect()]

    assert read()[0]["id"] == 1
    table.alter.rename_column("id", "key")
    table.alter.rename_column("at.x", "east")
    table.alter.move_column("kind", first=True)
    table.alter.drop_column("at.y")
    table.alter.change_type("key", "BIGINT", enable_type_widening=True)
    table.alter.change_type("tags.element.n", "DOUBLE")
    assert read()[0] == {
        "kind": "a",
        "key": 1,
        "name": "n1",
        "at": {"east": 1},
        "tags": [{"n": 1.0, "m": "m"}],
    }
    assert table.read(spark=spark, version=2).columns == ["id", "name", "at", "tags", "kind"]
    source = spark.createDataFrame([(3, "new", "b"), (2**40, "big", "b")], "key BIGINT, name STRING, kind STRING")
    merge = table.merge(source, on="t.key = s.key", spark=spark).when_matched_update({"name": "upper(s.name)"})
    merge.when_not_matched_insert_all(except_columns=["at", "tags"]).execute()
    assert sorted((row["key"], row["name"]) for row in read()) == [(1, "n1"), (2, "n2"), (3, "NEW"), (2**40, "big")]
    assert table.read(spark=spark, where="key > 3").count() == 1
