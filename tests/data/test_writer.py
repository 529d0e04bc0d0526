"""Arrow batches to Parquet files: the layout, the add actions, and every row back again."""

from __future__ import annotations

import errno
import json
import os
import pickle
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltars.data import WriteTarget, WrittenFile, check_writable, file_layout, parquet_file, write_table
from deltars.data.file_layout import layout_of
from deltars.errors import SchemaMismatch, StorageError, ValidationError
from deltars.protocol import PrimitiveType, StructField, StructType, check_path, schema_from_arrow, schema_from_ddl

AWKWARD = [
    "a b",
    "a/b",
    "100%",
    "%2F",
    "x=y",
    "é😀東京",
    "quote'\"",
    "a:b#c?d",
    "{[*]}",
    "back\\slash",
    " ",
    ".",
    "\x01\x7f\x85",
]


def target_of(root: Path, schema: str | pa.Schema, *partition_columns: str, **options: object) -> WriteTarget:
    ours = schema_from_arrow(schema) if isinstance(schema, pa.Schema) else schema_from_ddl(schema)
    return WriteTarget(str(root), ours, partition_columns, **options)  # type: ignore[arg-type]


def write(target: WriteTarget, table: pa.Table) -> list[WrittenFile]:
    return write_table(target, table.to_batches())


def read(target: WriteTarget, file: WrittenFile) -> pa.Table:
    return pq.ParquetFile(os.path.join(target.root, unquote(file.add.path))).read()


def data_files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_every_type_comes_back_as_it_was(tmp_path: Path) -> None:
    table = pa.table(
        {
            "byte": pa.array([1, -128, None], pa.int8()),
            "short": pa.array([1, 32767, None], pa.int16()),
            "integer": pa.array([1, -(2**31), None], pa.int32()),
            "long": pa.array([1, 2**63 - 1, None], pa.int64()),
            "float": pa.array([1.5, float("inf"), None], pa.float32()),
            "double": pa.array([1.5, -0.0, None], pa.float64()),
            "boolean": pa.array([True, False, None]),
            "string": pa.array(["", "\x00é😀", None]),
            "binary": pa.array([b"", b"\x00\xff", None]),
            "date": pa.array([date(1, 1, 1), date(9999, 12, 31), None]),
            "timestamp": pa.array(
                [datetime(1, 1, 1, tzinfo=UTC), datetime(2024, 2, 29, 1, 2, 3, 456789, UTC), None],
                pa.timestamp("us", "UTC"),
            ),
            "timestamp_ntz": pa.array([datetime(1, 1, 1), datetime(9999, 12, 31), None], pa.timestamp("us")),
            "small_decimal": pa.array([Decimal("1.23"), Decimal("-9.99"), None], pa.decimal128(5, 2)),
            "large_decimal": pa.array([Decimal(10**36), Decimal("-0.1"), None], pa.decimal128(38, 1)),
            "array": pa.array([[1, None], [], None], pa.list_(pa.field("element", pa.int32()))),
            "map": pa.array([[("a", 1)], [], None], pa.map_(pa.string(), pa.int32())),
            "struct": pa.array([{"x": 1, "y": {"z": "a"}}, {"x": None, "y": None}, None]),
            "structs": pa.array(
                [[{"x": 1}], [None], None], pa.list_(pa.field("element", pa.struct([("x", pa.int32())])))
            ),
        }
    )
    target = target_of(tmp_path, table.schema)
    (file,) = write(target, table)
    assert read(target, file).equals(table)


def test_the_file_is_named_and_described_as_delta_asks(tmp_path: Path) -> None:
    target = target_of(tmp_path, "id BIGINT")
    (file,) = write_table(target, pa.table({"id": [3, 1, 2]}).to_batches(), task=7)
    assert data_files(tmp_path) == [file.add.path]
    assert file.add.path.startswith("part-00007-")
    assert file.add.path.endswith(".c000.zstd.parquet")
    assert file.add.size == os.path.getsize(tmp_path / file.add.path)
    assert file.add.data_change
    assert file.add.partition_values == {}
    assert json.loads(file.add.stats or "") == {
        "numRecords": 3,
        "minValues": {"id": 1},
        "maxValues": {"id": 3},
        "nullCount": {"id": 0},
    }
    assert abs(file.add.modification_time - os.path.getmtime(tmp_path / file.add.path) * 1000) < 60_000


def test_timestamps_are_int64_micros_and_the_codec_is_zstd(tmp_path: Path) -> None:
    target = target_of(tmp_path, "t TIMESTAMP, n TIMESTAMP_NTZ")
    rows = pa.table({"t": [datetime(2024, 1, 1, tzinfo=UTC)], "n": [datetime(2024, 1, 1)]})
    (file,) = write(target, rows)
    footer = pq.read_metadata(tmp_path / file.add.path)
    for index, adjusted in ((0, "true"), (1, "false")):
        column = footer.schema.column(index)
        assert column.physical_type == "INT64"
        assert f"isAdjustedToUTC={adjusted}, timeUnit=microseconds" in str(column.logical_type)
        assert footer.row_group(0).column(index).compression == "ZSTD"
    assert b"ARROW:schema" not in (footer.metadata or {})


def test_partition_columns_are_in_the_path_and_the_action_but_not_in_the_file(tmp_path: Path) -> None:
    target = target_of(tmp_path, "id BIGINT, day DATE, region STRING", "day", "region")
    table = pa.table({"id": [1, 2, 3], "day": [date(2024, 1, 1)] * 3, "region": ["eu", None, "eu"]})
    files = {file.add.partition_values["region"]: file for file in write(target, table)}
    assert files.keys() == {"eu", None}
    assert files["eu"].add.path.startswith("day=2024-01-01/region=eu/part-")
    assert files[None].add.path.startswith("day=2024-01-01/region=__HIVE_DEFAULT_PARTITION__/part-")
    assert files["eu"].add.partition_values == {"day": "2024-01-01", "region": "eu"}
    assert read(target, files["eu"]).to_pydict() == {"id": [1, 3]}
    assert set(json.loads(files["eu"].add.stats or "")["minValues"]) == {"id"}


@pytest.mark.parametrize("value", AWKWARD)
def test_awkward_partition_values_make_legal_paths_that_lead_to_the_file(tmp_path: Path, value: str) -> None:
    target = target_of(tmp_path, "id BIGINT, p STRING", "p")
    (file,) = write(target, pa.table({"id": [1], "p": [value]}))
    assert file.add.partition_values == {"p": value}
    assert check_path(file.add.path) is None
    assert data_files(tmp_path) == [unquote(file.add.path)]
    assert file.add.path.count("/") == 1
    assert read(target, file).to_pydict() == {"id": [1]}


def test_a_partition_value_too_long_for_a_directory_name_is_only_in_the_log(tmp_path: Path) -> None:
    value = "é" * 200
    target = target_of(tmp_path, "id BIGINT, p STRING", "p")
    (file,) = write(target, pa.table({"id": [1], "p": [value]}))
    assert file.add.partition_values == {"p": value}
    assert check_path(file.add.path) is None
    assert "/" not in file.add.path
    assert read(target, file).to_pydict() == {"id": [1]}


def test_an_empty_string_as_partition_value_is_null_as_delta_has_it(tmp_path: Path) -> None:
    target = target_of(tmp_path, "id BIGINT, p STRING", "p")
    (file,) = write(target, pa.table({"id": [1, 2], "p": ["", None]}))
    assert file.add.partition_values == {"p": None}
    assert read(target, file).to_pydict() == {"id": [1, 2]}


@pytest.mark.parametrize(
    ("ddl", "values", "serialised"),
    [
        ("INT", pa.array([-5], pa.int32()), "-5"),
        ("BOOLEAN", pa.array([True]), "true"),
        ("DOUBLE", pa.array([1.5]), "1.5"),
        ("DECIMAL(5,2)", pa.array([Decimal("1.20")], pa.decimal128(5, 2)), "1.20"),
        ("TIMESTAMP", pa.array([1], pa.timestamp("us", "UTC")), "1970-01-01T00:00:00.000001Z"),
        ("TIMESTAMP_NTZ", pa.array([0], pa.timestamp("us")), "1970-01-01 00:00:00"),
        ("BINARY", pa.array([b"ab"]), "ab"),
    ],
)
def test_partition_values_of_every_type_are_serialised(
    tmp_path: Path, ddl: str, values: pa.Array, serialised: str
) -> None:
    target = target_of(tmp_path, f"id BIGINT, p {ddl}", "p")
    (file,) = write(target, pa.table({"id": [1], "p": values}))
    assert file.add.partition_values == {"p": serialised}


def test_partitions_that_alternate_row_by_row_make_one_file_each(tmp_path: Path) -> None:
    target = target_of(tmp_path, "id BIGINT, p INT", "p")
    table = pa.table({"id": range(1000), "p": pa.array([i % 7 for i in range(1000)], pa.int32())})
    files = write_table(target, table.to_batches(max_chunksize=10))
    assert sorted(file.add.partition_values["p"] or "" for file in files) == [str(p) for p in range(7)]
    for file in files:
        p = int(file.add.partition_values["p"] or "")
        assert read(target, file)["id"].to_pylist() == list(range(p, 1000, 7))


def test_more_partitions_than_files_may_be_open_lose_no_row(tmp_path: Path) -> None:
    target = target_of(tmp_path, "id BIGINT, p INT", "p")
    table = pa.table({"id": range(2000), "p": pa.array([i % 100 for i in range(2000)], pa.int32())})
    files = write_table(target, table.to_batches(max_chunksize=500))
    assert sorted(id for file in files for id in read(target, file)["id"].to_pylist()) == list(range(2000))


def test_no_rows_make_no_file(tmp_path: Path) -> None:
    target = target_of(tmp_path, "id BIGINT")
    assert write(target, pa.table({"id": pa.array([], pa.int64())})) == []
    assert data_files(tmp_path) == []


def test_files_come_out_near_the_target_size_with_their_row_groups_told(tmp_path: Path) -> None:
    target = target_of(tmp_path, "id BIGINT, s STRING", target_file_size=200_000)
    table = pa.table({"id": range(100_000), "s": [os.urandom(4).hex() for _ in range(100_000)]})
    files = write(target, table)
    assert len(files) > 3
    assert all(200_000 <= file.add.size < 400_000 for file in files[:-1])
    seen = []
    for file in files:
        footer = pq.read_metadata(tmp_path / file.add.path)
        assert [group.ordinal for group in file.row_groups] == list(range(footer.num_row_groups))
        assert sum(group.num_rows for group in file.row_groups) == footer.num_rows
        end = 4
        for group in file.row_groups:
            ids = pq.ParquetFile(tmp_path / file.add.path).read_row_group(group.ordinal)["id"].to_pylist()
            stats = json.loads(group.stats or "")
            assert (stats["minValues"]["id"], stats["maxValues"]["id"]) == (min(ids), max(ids))
            assert group.path == file.add.path
            assert group.file_offset is not None
            assert group.file_offset >= end
            end = group.file_offset + group.total_bytes
        assert end <= file.add.size
        seen += read(target, file)["id"].to_pylist()
    assert seen == list(range(100_000))


@pytest.mark.parametrize("rows", [1, 10, 3_000])
def test_small_file_put_at_once_is_the_file_that_would_be_streamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    table = pa.table(
        {
            "n": pa.array([None if i % 3 else i for i in range(rows)], pa.int64()),
            "x": pa.array([[-0.0, float("nan"), 1.5][i % 3] for i in range(rows)]),
            "t": pa.array([datetime(2024, 1, 1, 0, 0, 0, i, UTC) for i in range(rows)], pa.timestamp("us", "UTC")),
            "s": pa.array(["\U0010ffff" * 40 if i % 2 else "é" * 33 for i in range(rows)]),
            "deep": pa.array([{"d": Decimal("1.50")} for _ in range(rows)], pa.struct([("d", pa.decimal128(5, 2))])),
        }
    )
    target = target_of(tmp_path, table.schema)
    (put,) = write(target, table)
    monkeypatch.setattr(parquet_file, "SMALL_BYTES", -1)
    (streamed,) = write(target, table)
    assert put.add.stats == streamed.add.stats
    assert [replace(group, path="") for group in put.row_groups] == [
        replace(group, path="") for group in streamed.row_groups
    ]
    assert (tmp_path / put.add.path).read_bytes() == (tmp_path / streamed.add.path).read_bytes()
    assert put.add.size == os.path.getsize(tmp_path / put.add.path)


def test_small_file_that_cannot_be_put_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    target = target_of(tmp_path, "id BIGINT")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StorageError, match="No space left"):
            write(target, pa.table({"id": [1]}))
    assert data_files(tmp_path) == []


def test_layout_is_kept_for_a_definition_and_follows_its_changes(tmp_path: Path) -> None:
    target = target_of(tmp_path, "id BIGINT, name STRING", properties={"delta.dataSkippingNumIndexedCols": "1"})
    layout = layout_of(target)
    assert layout_of(target.with_options(compression="snappy", root="/other")) is layout
    properties: dict[str, str] = dict(target.properties)
    of_copy = layout_of(target.with_options(properties=properties))
    properties["delta.dataSkippingNumIndexedCols"] = "2"
    changed = layout_of(target.with_options(properties=properties))
    assert (of_copy is layout, changed is layout) == (True, False)
    assert (len(layout.statistics.leaves), len(changed.statistics.leaves)) == (1, 2)
    assert layout_of(target.with_options(partition_columns=("name",))).data_columns == ["id"]
    assert layout_of(target).data_columns == ["id", "name"]
    # Equal, but another object: as good as another definition.
    assert layout_of(target_of(tmp_path, "id INT, name STRING")).file_schema.field("id").type == pa.int32()


def test_layouts_of_many_definitions_are_not_kept_for_ever(tmp_path: Path) -> None:
    for number in range(2 * file_layout.MAX_KEPT):
        layout_of(target_of(tmp_path, f"c{number} BIGINT"))
    assert len(file_layout._kept) <= file_layout.MAX_KEPT


def test_a_batch_larger_than_a_row_group_is_cut(tmp_path: Path) -> None:
    target = target_of(tmp_path, "b BOOLEAN")
    rows = 1024 * 1024 + 1
    (file,) = write(target, pa.table({"b": pa.repeat(True, rows)}))
    assert sum(group.num_rows for group in file.row_groups) == rows
    assert max(group.num_rows for group in file.row_groups) <= 1024 * 1024


def test_a_failing_source_leaves_no_unfinished_file(tmp_path: Path) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"id": [1], "p": ["a"]})
        raise RuntimeError("the source is gone")

    with pytest.raises(RuntimeError, match="the source is gone"):
        write_table(target_of(tmp_path, "id BIGINT, p STRING", "p"), batches())
    assert data_files(tmp_path) == []


def test_a_null_struct_with_required_fields_is_written(tmp_path: Path) -> None:
    target = target_of(tmp_path, "s STRUCT<x: INT NOT NULL>")
    structs = pa.StructArray.from_arrays([pa.array([1, None])], names=["x"], mask=pa.array([False, True]))
    (file,) = write(target, pa.table({"s": structs}))
    assert read(target, file).to_pydict() == {"s": [{"x": 1}, None]}


def test_a_null_in_a_not_null_column_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SchemaMismatch, match="column id is NOT NULL and has nulls"):
        write(target_of(tmp_path, "id BIGINT NOT NULL"), pa.table({"id": [1, None]}))
    assert data_files(tmp_path) == []


def test_a_table_whose_rules_are_not_kept_is_refused_by_name(tmp_path: Path) -> None:
    schema = StructType((StructField("id", PrimitiveType("variant")),))
    with pytest.raises(ValidationError, match="variant columns"):
        check_writable(WriteTarget(str(tmp_path), schema))


def test_a_column_without_a_type_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match=r"column s\.nothing has no type"):
        check_writable(target_of(tmp_path, pa.schema([("s", pa.struct([("nothing", pa.null())]))])))


def test_a_table_with_partition_columns_only_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="that is not a partition column"):
        check_writable(target_of(tmp_path, "p STRING", "p"))


def test_targets_pickle_and_written_files_pass_through_msgpack(tmp_path: Path) -> None:
    target = target_of(tmp_path, "id BIGINT NOT NULL COMMENT 'key', p STRING", "p", properties={"a": "b"})
    assert pickle.loads(pickle.dumps(target)) == target
    (file,) = write(
        target, pa.table({"id": [1], "p": [None]}, schema=pa.schema([("id", pa.int64()), ("p", pa.string())]))
    )
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(file), type=WrittenFile) == file


def test_storage_options_are_not_shown(tmp_path: Path) -> None:
    assert "hunter2" not in repr(target_of(tmp_path, "id BIGINT", storage_options={"secret": "hunter2"}))


def test_floats_have_no_statistics_and_no_dictionary_in_the_footer_however_deep(tmp_path: Path) -> None:
    floats = pa.struct([("x", pa.float64()), ("y", pa.int64())])
    table = pa.table(
        {
            "id": [1, 2],
            "d": [1.0, float("nan")],
            "f": pa.array([1.0, -0.0], pa.float32()),
            "s": pa.array([{"x": 1.0, "y": 1}] * 2, floats),
            # The same path as that of the field, to whoever takes the dot for a step.
            "s.y": [1.0, float("nan")],
            "l": pa.array([[{"x": 1.0, "y": 1}]] * 2, pa.list_(floats)),
            "m": pa.array([[("k", 1.0)]] * 2, pa.map_(pa.string(), pa.float64())),
            "text": ["a", "b"],
        }
    )
    [file] = write(target_of(tmp_path, table.schema), table)
    footer = pq.read_metadata(tmp_path / file.add.path).row_group(0)
    columns = [footer.column(at) for at in range(footer.num_columns)]
    for column in columns:
        is_float = column.physical_type in ("FLOAT", "DOUBLE")
        is_same_path = column.path_in_schema == "s.y"
        assert column.is_stats_set == (not is_float and not is_same_path), column.path_in_schema
        assert column.has_column_index == column.is_stats_set
        assert column.has_dictionary_page == (not is_float and not is_same_path), column.path_in_schema
    assert sum(column.is_stats_set for column in columns) == 4
    assert json.loads(file.add.stats or "")["maxValues"]["d"] == "NaN"
