"""Tables through Spark: the rows of the log's files, under the log's schema, by Spark's own Parquet reader."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import deltars
from deltars.data.scan import Scan
from deltars.errors import StorageError, ValidationError
from deltars.predicate import parse
from deltars.protocol import StructType
from deltars.spark import SparkPlane
from deltars.spark.access import Access, access_to
from deltars.spark.read import files as read_files
from deltars.spark.read import manifest
from tests.support.scans import TestFile, scan_of_files, write_file

PLANE = SparkPlane()
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


def plan_of(frame: DataFrame) -> str:
    text: str = frame._jdf.queryExecution().toString()
    return text


def rows_of(frame: DataFrame) -> list[Any]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


# -- every path, and no row missed -------------------------------------------------------------------------------------

LAYOUTS = ("unpartitioned", "partitioned", "times", "elsewhere")


def layout(root: Path, kind: str, count: int) -> Scan:
    """`count` files of two rows, laid out so that partition columns are found in different ways."""
    files: list[TestFile] = []
    for number in range(count):
        rows = {"id": [2 * number, 2 * number + 1]}
        moment = f"2026-01-01 00:{number // 60:02}:{number % 60:02}"
        match kind:
            case "unpartitioned":
                files.append(write_file(root, f"part {number}.parquet", rows))
            case "partitioned":
                files.append(write_file(root, f"p=a%2F{number}/part.parquet", rows, {"p": f"a/{number}"}))
            case "times":
                directory = f"p={moment.replace(':', '%3A')}"
                files.append(write_file(root, f"{directory}/part.parquet", rows, {"p": moment}))
            case "elsewhere":
                files.append(write_file(root, f"{number:02}/part.parquet", rows, {"p": moment}))
    type_ = {"partitioned": "STRING", "times": "TIMESTAMP", "elsewhere": "TIMESTAMP"}.get(kind)
    return scan_of_files(root, f"id BIGINT, p {type_}" if type_ else "id BIGINT", files, ("p",) if type_ else ())


@pytest.mark.parametrize("kind", LAYOUTS)
def test_no_row_is_missed_by_list_by_manifest_or_when_the_manifest_fails(
    spark: SparkSession, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan = layout(tmp_path / "my tablé", kind, 20)
    monkeypatch.setattr(read_files, "LISTED_FILES", 4)
    plans, found = {}, {}
    for way in ("manifest", "broken manifest", "short manifest", "list"):
        with monkeypatch.context() as patch:
            if way == "list":
                patch.setattr(read_files, "LISTED_FILES", 1000)
            if way == "broken manifest":
                patch.setattr(read_files, "write_manifest", lambda files: f"file:{tmp_path}/nothing")
            if way == "short manifest":
                patch.setattr(
                    read_files, "write_manifest", lambda files: manifest.write_manifest(list(files)[1:], tmp_path)
                )
            frame = PLANE.read(spark, scan)
        plans[way] = plan_of(frame)
        columns = ["id"] if kind == "unpartitioned" else ["id", F.col("p").cast("string")]
        found[way] = rows_of(frame.select(*columns))
    value = "a/{}" if kind == "partitioned" else "2026-01-01 00:00:{:02}"
    wanted = [(row,) if kind == "unpartitioned" else (row, value.format(row // 2)) for row in range(40)]
    assert found == dict.fromkeys(found, sorted(wanted, key=repr))
    assert {way: "MetadataLogFileIndex" in plan for way, plan in plans.items()} == {
        "manifest": True, "broken manifest": False, "short manifest": False, "list": False,
    }  # fmt: skip
    assert spark.conf.get("spark.sql.sources.parallelPartitionDiscovery.threshold") == "32"


def test_a_table_whose_directory_looks_like_a_partition_keeps_its_own_column_of_that_name(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "region=eu"
    files = [write_file(root, f"p={n}/part.parquet", {"region": [f"of {n}"]}, {"p": f"{n}"}) for n in range(6)]
    monkeypatch.setattr(read_files, "LISTED_FILES", 2)
    scan = scan_of_files(root, "region STRING, p INT", files, ("p",))
    assert rows_of(PLANE.read(spark, scan)) == [(f"of {n}", n) for n in range(6)]


def test_a_manifest_read_keeps_sizes_filters_columns_and_partition_pruning(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "t"
    files = [
        write_file(root, f"p={n}/part.parquet", {"id": [n], "name": [str(n)], "x": [1.0]}, {"p": str(n)})
        for n in range(6)
    ]
    monkeypatch.setattr(read_files, "LISTED_FILES", 2)
    scan = scan_of_files(root, "id BIGINT, name STRING, x DOUBLE, p INT", files, ("p",))
    frame = PLANE.read(spark, scan, where="p = 3 and id > 1", columns=["NAME"])
    plan = plan_of(frame)
    assert frame.columns == ["name"]
    assert rows_of(frame) == [("3",)]
    assert "Location: MetadataLogFileIndex" in plan
    assert "PushedFilters: [IsNotNull(id), GreaterThan(id,1)]" in plan
    assert "ReadSchema: struct<id:bigint,name:string>" in plan
    assert "PartitionFilters: [isnotnull(p" in plan
    size = PLANE.read(spark, scan)._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()
    assert size == sum(file.size for file in files)


def test_a_list_of_files_is_made_once_and_removed_by_age(tmp_path: Path) -> None:
    files = [read_files.DataFile("a", "file:/t/ä b%:c", 7, 1, (), None)]
    first = manifest.write_manifest(files, tmp_path)
    assert first == manifest.write_manifest(files, tmp_path)
    assert first != manifest.write_manifest([files[0]._replace(size=8)], tmp_path)
    place = Path(first.removeprefix("file:"))
    text = (place / "_spark_metadata" / "0").read_text()
    assert text.splitlines()[0] == "v1"
    assert '"path":"file:/t/ä%20b%25:c","size":7,' in text
    manifest.sweep(tmp_path, force=True)
    assert len(list(tmp_path.iterdir())) == 2
    old = time.time() - manifest.MAX_AGE_S - 1
    os.utime(place, (old, old))
    manifest.sweep(tmp_path, force=True)
    assert not place.exists()
    assert len(list(tmp_path.iterdir())) == 1


def test_a_directory_that_lost_its_list_is_an_error_and_not_an_empty_table(spark: SparkSession, tmp_path: Path) -> None:
    files = [read_files.DataFile("a", f"file:{tmp_path}/a.parquet", 7, 1, (), None)]
    place = manifest.write_manifest(files, tmp_path)
    shutil.rmtree(Path(place.removeprefix("file:")) / "_spark_metadata")
    with pytest.raises(Exception, match="the-list-is-gone"):
        spark.read.schema("id bigint").option("recursiveFileLookup", "true").parquet(place).collect()


# -- missing and foreign files -----------------------------------------------------------------------------------------


def test_missing_empty_and_linked_files_are_named_before_anything_runs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "t"
    files = [write_file(root, f"a {n}.parquet", {"id": [n]}) for n in range(3)]
    scan = scan_of_files(root, "id BIGINT", files)
    monkeypatch.setattr(read_files, "LISTED_FILES", 2)
    (root / "a 1.parquet").write_bytes(b"")
    with pytest.raises(StorageError, match=r"a 1\.parquet has 0 bytes"):
        PLANE.read(spark, scan)
    (root / "a 1.parquet").unlink()
    with pytest.raises(StorageError, match=r"a 1\.parquet is missing, and version 3 needs it") as caught:
        PLANE.read(spark, scan)
    assert (caught.value.table, caught.value.version, caught.value.path) == ("features", 3, "a 1.parquet")
    (tmp_path / "secret.parquet").write_bytes((root / "a 0.parquet").read_bytes())
    (root / "a 1.parquet").symlink_to(tmp_path / "secret.parquet")
    with pytest.raises(ValidationError, match="leads out of the table"):
        PLANE.read(spark, scan)


def test_a_file_that_vanishes_after_the_read_is_named_by_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [write_file(tmp_path, f"{n}.parquet", {"id": [n]}) for n in range(3)]
    monkeypatch.setattr(read_files, "LISTED_FILES", 2)
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        frame = PLANE.read(spark, scan_of_files(tmp_path, "id BIGINT", files))
        (tmp_path / "1.parquet").unlink()
        with pytest.raises(Exception, match=r"1\.parquet"):
            frame.collect()
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")


def test_files_that_spark_would_hide_are_read_all_the_same(spark: SparkSession, tmp_path: Path) -> None:
    rows = {"a.b": ["x", "y", "z"], "n": [{"i": 1}] * 3}
    files = [
        write_file(tmp_path, "_hidden.parquet", rows, {"p": "1"}, deleted=[1]),
        write_file(tmp_path, ".hidden.parquet", rows, {"p": None}),
    ]
    seen = write_file(tmp_path, "p=3/seen.parquet", rows, {"p": "3"})
    schema = "`a.b` STRING, n STRUCT<i: BIGINT, new: TIMESTAMP>, p INT"
    frame = PLANE.read(spark, scan_of_files(tmp_path, schema, [*files, seen], ("p",)))
    wanted = [(text, (1, None), p) for p, texts in ((1, "xz"), (None, "xyz"), (3, "xyz")) for text in texts]
    assert rows_of(frame) == sorted(wanted, key=repr)
    only = PLANE.read(spark, scan_of_files(tmp_path, schema, files, ("p",)), columns=["P"])
    assert rows_of(only) == [(1,), (1,), (None,), (None,), (None,)]


def test_rows_that_stay_are_read_although_the_condition_selected_the_files(spark: SparkSession, tmp_path: Path) -> None:
    scan = scan_of_files(tmp_path, "id BIGINT", [write_file(tmp_path, "_hidden.parquet", {"id": [1, 2, 3]})])
    selected = replace(scan, condition=parse("id < 3", scan.schema))
    assert rows_of(PLANE.read(spark, selected)) == [(1,), (2,)]
    assert rows_of(PLANE.without(spark.range(1), selected, "id < 3")) == [(3,)]


def test_a_place_that_the_session_has_no_file_system_for_is_known(spark: SparkSession) -> None:
    access = access_to(spark, "s3://bucket", "a.parquet")
    assert access == Access(None, "the session has no file system for s3://", has_classes=False)


# -- today's schema over old files -------------------------------------------------------------------------------------


def test_old_files_are_read_under_the_schema_of_today(spark: SparkSession, tmp_path: Path) -> None:
    inner = pa.struct([("a", pa.int32()), ("gone", pa.int32())])
    old = write_file(
        tmp_path,
        "old.parquet",
        {
            "s": pa.array([{"a": 1, "gone": 2}], inner),
            "xs": pa.array([[{"a": 1, "gone": 2}]], pa.list_(inner)),
            "m": pa.array([[("k", {"a": 1, "gone": 2})]], pa.map_(pa.string(), inner)),
            "dropped": [7],
            "i": pa.array([7], pa.int8()),
            "f": pa.array([0.5], pa.float32()),
            "n": pa.array([7], pa.int32()),
            "c": pa.array([Decimal("1.25")], pa.decimal128(5, 2)),
            "d": pa.array([3], pa.date32()),
        },
    )
    new = write_file(tmp_path, "new.parquet", {"added": ["x"], "UPPER": [1]})
    schema = (
        "s STRUCT<b: STRING, a: BIGINT>, xs ARRAY<STRUCT<a: INT, b: INT>>, m MAP<STRING, STRUCT<a: INT, b: INT>>, "
        "i BIGINT, f DOUBLE, n DOUBLE, c DECIMAL(12,4), d TIMESTAMP_NTZ, added STRING, upper BIGINT NOT NULL"
    )
    frame = PLANE.read(spark, scan_of_files(tmp_path, schema, [old, new]))
    assert [row.asDict(recursive=True) for row in sorted(frame.collect(), key=lambda row: row.i or 0)] == [
        dict.fromkeys(frame.columns) | {"added": "x", "upper": 1},
        {
            "s": {"b": None, "a": 1}, "xs": [{"a": 1, "b": None}], "m": {"k": {"a": 1, "b": None}},
            "i": 7, "f": 0.5, "n": 7.0, "c": Decimal("1.2500"), "d": datetime(1970, 1, 4), "added": None, "upper": None,
        },
    ]  # fmt: skip


def test_bytes_and_shorts_are_read_as_the_small_decimals_they_were_widened_to(
    spark: SparkSession, tmp_path: Path
) -> None:
    def field(name: str, kind: Any, before: str, after: str, **more: str) -> dict[str, Any]:
        changes = [{"fromType": before, "toType": after, **more}]
        return {"name": name, "type": kind, "nullable": True, "metadata": {"delta.typeChanges": changes}}

    within = {"type": "array", "elementType": "decimal(5,0)", "containsNull": True}
    inner = {"type": "struct", "fields": [field("x", "decimal(7,2)", "byte", "decimal(7,2)")]}
    schema = StructType.from_dict(
        {
            "type": "struct",
            "fields": [
                field("b", "decimal(3,0)", "byte", "decimal(3,0)"),
                field("h", "decimal(6,1)", "short", "decimal(6,1)"),
                field("xs", within, "short", "decimal(5,0)", fieldPath="element"),
                {"name": "s", "type": inner, "nullable": True, "metadata": {}},
            ],
        }
    )
    old = {
        "b": pa.array([-128, 127, None], pa.int8()),
        "h": pa.array([-(2**15), 1, 2], pa.int16()),
        "xs": pa.array([[1, None], [], None], pa.list_(pa.int16())),
        "s": pa.array([{"x": 1}, {"x": -128}, None], pa.struct([("x", pa.int8())])),
    }
    new = {"b": [Decimal(5)], "h": [Decimal("0.5")]}
    files = [write_file(tmp_path, "old.parquet", old), write_file(tmp_path, "new.parquet", new)]
    frame = PLANE.read(spark, scan_of_files(tmp_path, schema, files), where="h < 3")
    found = {row.h: row.asDict(recursive=True) for row in frame.collect()}
    assert found == {
        Decimal("-32768.0"): {"b": -128, "h": -32768, "xs": [1, None], "s": {"x": 1}},
        Decimal("1.0"): {"b": 127, "h": 1, "xs": [], "s": {"x": -128}},
        Decimal("2.0"): {"b": None, "h": 2, "xs": None, "s": None},
        Decimal("0.5"): {"b": 5, "h": Decimal("0.5"), "xs": None, "s": None},
    }


def mapped_schema() -> StructType:
    def field(name: str, number: int, kind: Any = "long") -> dict[str, Any]:
        mapping = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
        return {"name": name, "type": kind, "nullable": True, "metadata": mapping}

    nested = {"type": "struct", "fields": [field("deep name", 4)]}
    elements = {"type": "array", "elementType": nested, "containsNull": False}
    return StructType.from_dict(
        {
            "type": "struct",
            "fields": [field("renamed", 1), field("day", 2), field("list of it", 3, elements), field("new", 5)],
        }
    )


@pytest.mark.parametrize("mapping", ["name", "id"])
def test_renamed_columns_are_found_by_column_mapping(spark: SparkSession, tmp_path: Path, mapping: Any) -> None:
    def field(name: str, number: int, kind: pa.DataType) -> pa.Field:
        return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})

    # By id the names say nothing, not even where they are those of other columns.
    names = ("col-1", "col-3", "col-4") if mapping == "name" else ("x", "y", "z")
    kind = pa.list_(pa.struct([field(names[2], 4, pa.int64())]))
    rows = pa.table(
        {names[0]: [1, 2], names[1]: [[{names[2]: 3}], None]},
        schema=pa.schema([field(names[0], 1, pa.int64()), field(names[1], 3, kind)]),
    )
    told = write_file(tmp_path, "col-2=7/a.parquet", rows, {"col-2": "7"})
    untold = write_file(tmp_path, "aB/a.parquet", rows, {"col-2": None})
    for files, day in (([told], 7), ([untold], None)):
        frame = PLANE.read(spark, scan_of_files(tmp_path, mapped_schema(), files, ("day",), mapping))
        assert frame.columns == ["renamed", "day", "list of it", "new"]
        assert frame.schema["list of it"].dataType.simpleString() == "array<struct<deep name:bigint>>"
        assert all(not field.metadata for field in frame.schema.fields)
        assert [row.asDict(True) for row in frame.where("renamed = 1").collect()] == [
            {"renamed": 1, "day": day, "list of it": [{"deep name": 3}], "new": None}
        ]
        assert "EqualTo(`col-1`,1)" in plan_of(frame.where("renamed = 1"))


def test_a_file_without_field_ids_is_not_read_as_nulls(spark: SparkSession, tmp_path: Path) -> None:
    file = write_file(tmp_path, "a.parquet", {"x": [1]})
    with pytest.raises(Exception, match="field Ids"):
        PLANE.read(spark, scan_of_files(tmp_path, mapped_schema(), [file], (), "id")).collect()


@pytest.mark.parametrize("mapping", ["none", "name"])
def test_nan_and_negative_zero_are_found_in_files_whose_footers_and_dictionaries_hide_them(
    spark: SparkSession, tmp_path: Path, mapping: Any
) -> None:
    nan = float("nan")
    rows = pa.table(
        {
            "id": [1, 2, 3],
            "d": [1.0, nan, -0.0],
            "f": pa.array([1.0, nan, -0.0], pa.float32()),
            "s": pa.array(
                [{"in": {"x": 1.0}}, {"in": {"x": nan}}, {"in": {"x": -0.0}}],
                pa.struct([("in", pa.struct([("x", pa.float64())])), ("id", pa.int64())]),
            ),
        }
    )
    # As pyarrow, deltalake and Polars write them.
    file = write_file(tmp_path, "a.parquet", rows)
    footer = pq.read_metadata(tmp_path / "a.parquet").row_group(0)
    assert [footer.column(at).statistics.max for at in (1, 2, 3)] == [1.0] * 3
    schema = "id BIGINT, d DOUBLE, f FLOAT, s STRUCT<in: STRUCT<x: DOUBLE>, id: BIGINT>, p DOUBLE"
    scan = scan_of_files(tmp_path, schema, [replace(file, values={"p": "NaN"})], ("p",), mapping)
    frame = PLANE.read(spark, scan)
    assert spark.conf.get("spark.sql.parquet.filterPushdown") == "true"
    for column in ("d", "f", "s.in.x"):
        for condition, ids in {
            "{} > 1": [2],
            "NOT ({} <= 1)": [2],
            "{} <> 1": [2, 3],
            "{} = double('NaN')": [2],
            "{} = double('0')": [3],
            "{} = double('-0.0')": [3],
        }.items():
            found = frame.where(condition.format(column)).collect()
            assert [row.id for row in found] == ids, (column, condition)
    assert frame.where("p > 5").count() == 3
    # Other columns are skipped by as before, those beside a float in one struct too.
    plan = plan_of(frame.where("id > 1 AND d > 1 AND s.id > 1 AND s.in.x > 1").select("id"))
    [pushed] = set(re.findall(r"PushedFilters: \[([^]]*)\]", plan))
    assert "GreaterThan(id,1)" in pushed
    assert "(d," not in pushed
    assert ".x," not in pushed
    if mapping == "none":
        assert "GreaterThan(s.id,1)" in pushed


# -- deletion vectors --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["unpartitioned", "by paths", "by literals", "by join"])
def test_deleted_rows_are_left_out_however_the_files_are_read(
    spark: SparkSession, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "odd é%+&'~:@ name"
    monkeypatch.setattr(read_files, "LISTED_FILES", 6)
    count = 20 if kind == "by join" else 8
    files = []
    for n in range(count):
        directory = {"by paths": f"p={n}/", "by join": f"{n}+/", "by literals": f"{n} é/"}.get(kind, "")
        values = {} if kind == "unpartitioned" else {"p": str(n)}
        deleted = [[], [1], [0, 2]][n % 3]
        rows = {"id": [10 * n, 10 * n + 1, 10 * n + 2], "_metadata": ["a", "b", "c"]}
        files.append(write_file(root, f"{directory}part {n}.parquet", rows, values, deleted))
    # The same path may be live twice, with two vectors.
    files.append(replace(files[1], vector=files[2].vector))
    columns, partitioned = ("", ()) if kind == "unpartitioned" else (", p INT", ("p",))
    scan = scan_of_files(root, f"id BIGINT, `_metadata` STRING{columns}", files, partitioned)
    kept = [10 * n + i for n in range(count) for i in range(3) if i not in [[], [1], [0, 2]][n % 3]] + [11]
    assert sorted(row.id for row in PLANE.read(spark, scan).collect()) == sorted(kept)
    some = PLANE.read(spark, scan, where="id >= 12 and _metadata <> 'c'", columns=["id"])
    assert "PushedFilters: [IsNotNull(id), IsNotNull(_metadata), GreaterThanOrEqual(id,12)" in plan_of(some)
    assert sorted(row.id for row in some.collect()) == sorted(i for i in kept if i >= 12 and i % 10 != 2)


@pytest.mark.parametrize("kind", ["unpartitioned", "by literals", "by join"])
def test_a_table_may_have_columns_with_the_names_that_a_read_uses_inside(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    count = 20 if kind == "by join" else 2
    values = [{} if kind == "unpartitioned" else {"P": str(n)} for n in range(count)]
    # Those of before, those of now, and in other cases than ours.
    names = ["__deltars_path", "__deltars_row", "__DELTARS_PATH_0", "__deltars_row_1"]
    rows = {name: [f"{name} {at}" for at in range(2)] for name in names}
    files = [
        write_file(tmp_path, f"{n} é/part.parquet", {"id": [2 * n, 2 * n + 1], **rows}, values[n], [0])
        for n in range(count)
    ]
    columns = ", ".join(f"`{name}` STRING" for name in names)
    partition = ("", ()) if kind == "unpartitioned" else (", P INT", ("P",))
    scan = scan_of_files(tmp_path, f"id BIGINT, {columns}{partition[0]}", files, partition[1])
    found = PLANE.read(spark, scan)
    assert found.columns == list(scan.schema.names)
    last = [f"{name} 1" for name in names]
    assert rows_of(found.select("id", *names)) == sorted(((2 * n + 1, *last) for n in range(count)), key=repr)


def test_a_broken_vector_is_an_error_that_names_the_file(spark: SparkSession, tmp_path: Path) -> None:
    file = write_file(tmp_path, "a.parquet", {"id": [1, 2]}, deleted=[0])
    assert file.vector is not None
    broken = replace(file, vector=file.vector.replace('"cardinality": 1', '"cardinality": 2'))
    with pytest.raises(ValidationError, match=r"a\.parquet: the deletion vector .* but the log says 2") as caught:
        PLANE.read(spark, scan_of_files(tmp_path, "id BIGINT", [broken]))
    assert (caught.value.table, caught.value.version) == ("features", 3)


# -- the ways in -------------------------------------------------------------------------------------------------------


@pytest.fixture
def in_new_york(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    yield
    spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.backends("sqlite")
def test_a_table_is_read_by_version_time_condition_and_columns(
    catalog: deltars.Catalog, spark: SparkSession, in_new_york: None
) -> None:
    hours = pa.array([EPOCH.replace(hour=hour) for hour in (3, 6)], pa.timestamp("us", "UTC"))
    for n in range(2):
        catalog.write("events", pa.table({"id": [2 * n, 2 * n + 1], "at": hours, "a.b": [str(n)] * 2}))
    table = catalog.table("events")
    assert sorted(row.id for row in table.read(spark=spark).collect()) == [0, 1, 2, 3]
    assert sorted(row.id for row in table.read(version=0).collect()) == [0, 1]
    assert table.read(spark=spark, where="id = 3", columns=["A.B", "id"]).collect() == [("1", 3)]
    # Files are left out in the database.
    assert len(table.read(spark=spark, where="id = 3").inputFiles()) == 1
    # Midnight is the session's, 05:00 in UTC: in Spark, and where files are left out.
    assert sorted(row.id for row in table.read(spark=spark, where="at >= '2026-01-01'").collect()) == [1, 3]
    assert len(table.read(spark=spark, where="at >= '2026-01-01 02:00:00'").inputFiles()) == 0
    moment = table.snapshot(0).timestamp.astimezone()
    local = moment.astimezone(ZoneInfo("America/New_York")).replace(tzinfo=None)
    assert table.read(spark=spark, timestamp=local).count() == 2
    assert table.read(spark=spark, timestamp=moment.isoformat()).count() == 2
    uri = f"{catalog.uri}/events"
    assert deltars.read(uri, version=1, where="id > 0", columns=["id"], spark=spark).count() == 3
    for bad in ({"where": "nope = 1"}, {"columns": ["nope"]}, {"columns": ["id", "ID"]}):
        with pytest.raises(ValidationError, match=r"nope|duplicate"):
            table.read(spark=spark, **bad)


@pytest.mark.backends("sqlite")
def test_table_is_read_as_of_a_tag_a_transaction_or_a_time_in_the_zone_of_the_session(
    catalog: deltars.Catalog, spark: SparkSession
) -> None:
    first = catalog.write("t", pa.table({"id": [1, 2]}))
    catalog.tag("q3")
    between = datetime.now(UTC)
    catalog.write("t", pa.table({"id": [3]}))
    table = catalog.table("t")
    zone = ZoneInfo(str(spark.conf.get("spark.sql.session.timeZone")))
    local = between.astimezone(zone).replace(tzinfo=None)
    for as_of in ("q3", first, first.txn_id, between, local, local.isoformat()):
        assert table.read(as_of=as_of, spark=spark).count() == 2
        assert catalog.sql("SELECT * FROM t", as_of=as_of, spark=spark).count() == 2
    assert deltars.read(f"{catalog.uri}/t", as_of="q3", spark=spark).count() == 2
    assert table.read(spark=spark).count() == 3


@pytest.mark.backends("sqlite")
def test_a_transaction_reads_its_own_rows_and_the_cut_of_its_beginning(
    catalog: deltars.Catalog, spark: SparkSession
) -> None:
    catalog.write("t", pa.table({"id": [1, 2]}))
    with catalog.begin(isolation="snapshot") as tx:
        catalog.write("t", pa.table({"id": [3]}))
        tx.write("t", pa.table({"id": [4]}))
        assert sorted(row.id for row in tx.read("t", spark=spark).collect()) == [1, 2, 4]
        assert [row.id for row in tx.read("t", where="id > 2", columns=["ID"]).collect()] == [4]
        tx.rollback()


@pytest.mark.backends("sqlite")
def test_views_join_two_tables_at_one_cut_whatever_they_are_called(
    catalog: deltars.Catalog, spark: SparkSession
) -> None:
    odd = "my labels: ä`b.c"
    with catalog.begin() as tx:
        tx.write("features", pa.table({"id": [1], "x": [0.5]}))
        tx.write(odd, pa.table({"id": [1], "label": ["cat"]}))
    cut = catalog.snapshot()
    with catalog.begin() as tx:
        tx.write("features", pa.table({"id": [2], "x": [0.7]}))
        tx.write(odd, pa.table({"id": [2], "label": ["dog"]}))
    assert cut.register_views(spark=spark, prefix="v_") == ["v_features", f"v_{odd}"]
    join = "select x, label from v_features join `v_my labels: ä``b.c` using (id)"
    assert spark.sql(join).collect() == [(0.5, "cat")]
    assert catalog.snapshot().register_views(spark=spark, tables=["features"]) == ["features"]
    assert spark.table("features").count() == 2
    # Two tables of one name are only in cuts of the past, where one of them was dropped since.
    with catalog.begin() as tx:
        tx.write("Dropped", pa.table({"id": [1]}))
        tx.write("renamed", pa.table({"id": [1]}))
    catalog.drop_table("dropped")
    catalog.rename_table("renamed", "dropped")
    with pytest.raises(ValidationError, match="would be one view"):
        catalog.snapshot(tx.id).register_views(spark=spark)
