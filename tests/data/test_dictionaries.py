"""Dictionaries of data files: a rewrite keeps them, and changes neither rows nor statistics."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyroaring import BitMap64

from deltars.data import WriteTarget, WrittenFile, write_table
from deltars.data.dictionaries import ENCODED_TEXT, encoded_columns, unique_columns
from deltars.data.purge import purge_file
from deltars.data.row_ids import read_rows
from deltars.protocol import ColumnMapping, StructType, schema_from_arrow
from tests.support.scans import TestFile, scan_of_files, write_file

NAMES = ["", "a", "ab", "é😀", "z" * 40, "zz\U0010ffff", None]
SPECIAL = [float("nan"), -0.0, 0.0, 1.5, None]


def _table(names: list[str | None]) -> pa.Table:
    """Rows whose text repeats, beside columns that no dictionary may change."""
    count = len(names)
    return pa.table(
        {
            "name": pa.array(names, pa.string()),
            "id": pa.array(range(count), pa.int64()),
            "number": pa.array([SPECIAL[row % 5] for row in range(count)], pa.float64()),
            "at": pa.array([row * 1_000_000 + row % 7 for row in range(count)], pa.timestamp("us", "UTC")),
            "tags": pa.array([None if row % 4 == 0 else names[: row % 3] for row in range(count)]).cast(
                pa.list_(pa.string())
            ),
            "inner": pa.array([None if row % 6 == 0 else {"text": names[row]} for row in range(count)]).cast(
                pa.struct([("text", pa.string())])
            ),
            "nothing": pa.nulls(count, pa.string()),
        }
    )


def _file(root: str, table: pa.Table, row_group_size: int) -> TestFile:
    path = os.path.join(root, "a.parquet")
    pq.write_table(table, path, row_group_size=row_group_size, store_schema=False)
    return TestFile("a.parquet", os.path.getsize(path), {}, None)


def _parquet(root: str | Path, file: WrittenFile) -> pq.ParquetFile:
    return pq.ParquetFile(os.path.join(root, unquote(file.add.path)))


def _footer(file: pq.ParquetFile) -> list[Any]:
    groups = [file.metadata.row_group(ordinal) for ordinal in range(file.metadata.num_row_groups)]
    return [
        (column.path_in_schema, column.statistics and column.statistics.to_dict(), column.has_column_index)
        for group in groups
        for column in (group.column(at) for at in range(group.num_columns))
    ]


@given(
    st.lists(st.sampled_from(NAMES) | st.text(max_size=3), min_size=1, max_size=60),
    st.sampled_from([7, 150, 1_000, 5_000]),
    st.integers(1, 30),
    st.sets(st.integers(0, 4_000)),
)
@example(["a", "b", None], 1, 30, set())
@example([None], 30, 50, {0})
@example(["a", "b", "c"] * 50 + ["d"] * 100, 150, 3, {3})
@example(
    ["a"] * 9 + ["z"], 1_000, 100, set(range(9, 1_000, 10))
)  # the greatest value is in the dictionary, but in no row
def test_rewritten_rows_and_statistics_are_those_of_decoded_text(
    some: list[str | None], row_group_size: int, repeats: int, gone: set[int]
) -> None:
    table = _table(some * repeats)
    left = table.filter(pa.array([row not in gone for row in range(table.num_rows)]))
    with tempfile.TemporaryDirectory() as root:
        schema = schema_from_arrow(table.schema)
        scan = scan_of_files(Path(root), schema, [_file(root, table, row_group_size)])
        target = WriteTarget(root, schema)
        ours = purge_file(scan, BitMap64(row for row in gone if row < table.num_rows), target)
        plain = write_table(target, left.to_batches())
        assert len(ours) == len(plain)
        for one, other in zip(ours, plain, strict=True):
            found, wanted = _parquet(root, one), _parquet(root, other)
            # As text: NaN equals itself, and -0.0 is not 0.0.
            assert str(found.read().to_pylist()) == str(left.to_pylist())
            assert found.schema.equals(wanted.schema)
            assert one.add.stats == other.add.stats
            assert [group.stats for group in one.row_groups] == [group.stats for group in other.row_groups]
            assert _footer(found) == _footer(wanted)


@pytest.mark.parametrize("row_group_size", [5_000, 1_300])
def test_text_stays_encoded_from_file_to_file(tmp_path: Path, row_group_size: int) -> None:
    """Also over row groups whose dictionaries differ."""
    names = [f"name-{row % 50}" for row in range(2_500)] + [f"other-{row % 70}" for row in range(2_500)]
    table = pa.table({"id": range(5_000), "name": names})
    scan = scan_of_files(tmp_path, "id BIGINT, name STRING", [_file(str(tmp_path), table, row_group_size)])
    batches = [placed.rows for placed in read_rows(scan, without={0: BitMap64([3])}, is_rewrite=True)]
    assert {batch.schema.field("name").type for batch in batches} == {ENCODED_TEXT}
    [file] = purge_file(scan, BitMap64([3]), WriteTarget(str(tmp_path), scan.schema))
    chunk = _parquet(tmp_path, file).metadata.row_group(0).column(1)
    # A code takes seven bits. What falls back to plain text takes eleven bytes and more.
    assert chunk.has_dictionary_page
    assert chunk.total_uncompressed_size < 7_500
    assert _parquet(tmp_path, file).read(["name"])["name"].to_pylist() == names[:3] + names[4:]


@pytest.mark.parametrize("row_group_size", [5_000, 1_300])
def test_deleted_text_is_not_in_the_new_file(tmp_path: Path, row_group_size: int) -> None:
    """Neither in the dictionary, which the Parquet writer writes whole, nor in the bounds that it takes from it."""
    names = [None if row % 7 == 0 else f"name-{row % 9}" for row in range(5_000)]
    gone = BitMap64(row for row, name in enumerate(names) if name in ("name-0", "name-8"))
    table = pa.table({"id": range(5_000), "name": names})
    scan = scan_of_files(tmp_path, "id BIGINT, name STRING", [_file(str(tmp_path), table, row_group_size)])
    [file] = purge_file(scan, gone, WriteTarget(str(tmp_path), scan.schema))
    encoded = pq.ParquetFile(tmp_path / file.add.path, read_dictionary=["name"])
    left = {name for row, name in enumerate(names) if row not in gone and name is not None}
    for ordinal in range(encoded.num_row_groups):
        for chunk in encoded.read_row_group(ordinal)["name"].chunks:
            assert set(chunk.dictionary.to_pylist()) == left
        bounds = encoded.metadata.row_group(ordinal).column(1).statistics
        assert (bounds.min, bounds.max) == ("name-1", "name-7")
    rows = encoded.read()["name"].to_pylist()
    assert rows == [name for row, name in enumerate(names) if row not in gone]


def test_dictionary_with_a_value_twice_is_decoded_if_another_writer_made_it(tmp_path: Path) -> None:
    """The format allows it, but pyarrow would take the codes for those of a dictionary with the value once."""
    path = tmp_path / "a.parquet"
    pq.write_table(
        pa.table({"name": ["aa", "ab", "zz"] * 20}),
        path,
        compression="none",
        write_statistics=False,
        store_schema=False,
    )
    data = path.read_bytes().replace(b"\2\0\0\0ab", b"\2\0\0\0aa").replace(b"parquet-cpp-arrow", b"parquet-abc-other")
    path.write_bytes(data)
    scan = scan_of_files(tmp_path, "name STRING", [TestFile("a.parquet", len(data), {}, None)])
    [file] = purge_file(scan, BitMap64([0]), WriteTarget(str(tmp_path), scan.schema))
    assert _parquet(tmp_path, file).read()["name"].to_pylist() == (["aa", "aa", "zz"] * 20)[1:]


@pytest.mark.parametrize("mapping", ["name", "id"])
def test_mapped_text_stays_encoded_under_its_name_and_id(tmp_path: Path, mapping: ColumnMapping) -> None:
    metadata = {"delta.columnMapping.physicalName": "c-1", "delta.columnMapping.id": 7}
    schema = StructType.from_dict(
        {"type": "struct", "fields": [{"name": "name", "type": "string", "nullable": False, "metadata": metadata}]}
    )
    physical = pa.schema([pa.field("c-1", pa.string(), metadata={"PARQUET:field_id": "7"})])
    rows = pa.table({"c-1": ["a", "b", "c", "d"] * 30}, schema=physical)
    scan = scan_of_files(tmp_path, schema, [write_file(tmp_path, "a.parquet", rows)], mapping=mapping)
    [placed] = read_rows(scan, is_rewrite=True)
    assert placed.rows.schema.field("name").type == ENCODED_TEXT
    [file] = purge_file(
        scan, BitMap64([1]), WriteTarget(str(tmp_path), schema, (), {"delta.columnMapping.mode": mapping})
    )
    written = _parquet(tmp_path, file)
    assert written.schema_arrow.field("c-1").metadata[b"PARQUET:field_id"] == b"7"
    assert written.read()["c-1"].to_pylist() == ["a", *(["c", "d", "a", "b"] * 30)[:-2]]


def test_text_of_a_file_in_a_binary_column_is_decoded(tmp_path: Path) -> None:
    scan = scan_of_files(tmp_path, "b BINARY", [_file(str(tmp_path), pa.table({"b": ["x", "y", None] * 40}), 1_000)])
    [file] = purge_file(scan, BitMap64([0]), WriteTarget(str(tmp_path), scan.schema))
    assert _parquet(tmp_path, file).read()["b"].to_pylist() == [b"y", None, *([b"x", b"y", None] * 39)]


def test_only_text_with_a_small_dictionary_is_read_encoded(tmp_path: Path) -> None:
    table = pa.table(
        {
            "few": [f"name-{row % 100}" for row in range(5_000)],
            "many": [f"{row * 2_654_435_761 % 2**32:x}" for row in range(5_000)],
            "number": range(5_000),
            "list": [["a", "b"]] * 5_000,
        }
    )
    file = _file(str(tmp_path), table, 10_000)
    assert encoded_columns(pq.ParquetFile(tmp_path / file.path)) == ["few"]


def test_columns_whose_values_hardly_repeat_get_no_dictionary(tmp_path: Path) -> None:
    count = 140_000
    table = pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "kind": pa.array([row % 1_000 for row in range(count)], pa.int64()),
            "runs": pa.array([row // 10 for row in range(count)], pa.int64()),
            "key": pa.array([f"{row:08}" for row in range(count)]),
            "mostly_null": pa.array([row if row % 3 == 0 else None for row in range(count)], pa.int64()),
        }
    )
    assert unique_columns(table, table.column_names) == {"id", "key"}
    assert unique_columns(table, ["kind"]) == frozenset()
    assert unique_columns(table.slice(0, 10_000), table.column_names) == frozenset()
    [file] = write_table(WriteTarget(str(tmp_path), schema_from_arrow(table.schema)), table.to_batches())
    written = _parquet(tmp_path, file)
    group = written.metadata.row_group(0)
    has_dictionary = [group.column(at).has_dictionary_page for at in range(group.num_columns)]
    assert has_dictionary == [False, True, True, False, True]
    assert all(group.column(at).statistics.has_min_max for at in range(group.num_columns))
    assert written.read().equals(table)
