"""Data files that are written again without some rows: what is left is as it was, in its order."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from deltars.data.purge import one_file, purge_file, purge_files
from deltars.data.reader import read_placed, read_scan
from deltars.data.scan import Scan
from deltars.data.write_target import WriteTarget, WrittenFile
from deltars.errors import StorageError, ValidationError
from deltars.protocol import ColumnMapping, StructType
from tests.support.scans import TestFile, scan_of_files, write_file

DDL = "id BIGINT, name STRING, region STRING"
MAPPED = StructType.from_dict(
    {
        "type": "struct",
        "fields": [
            {"name": name, "type": type_, "nullable": False,
             "metadata": {"delta.columnMapping.physicalName": f"c-{name}", "delta.columnMapping.id": place}}
            for place, (name, type_) in enumerate([("id", "long"), ("region", "string")])
        ],
    }
)  # fmt: skip


def _target(scan: Scan) -> WriteTarget:
    properties = {} if scan.column_mapping == "none" else {"delta.columnMapping.mode": scan.column_mapping}
    return WriteTarget(scan.root, scan.schema, scan.partition_columns, properties)


def _rows(scan: Scan, files: Sequence[WrittenFile]) -> list[dict[str, object]]:
    written = [TestFile(file.add.path, file.add.size, file.add.partition_values, None) for file in files]
    rows: list[dict[str, object]] = (
        read_scan(scan_of_files(Path(scan.root), scan.schema, written, scan.partition_columns, scan.column_mapping))
        .read_all()
        .to_pylist()
    )
    return rows


def _scan(root: Path) -> Scan:
    files = [
        write_file(
            root,
            f"{region}.parquet",
            {"id": range(1_000), "name": [None if row % 5 == 0 else f"n{row}" for row in range(1_000)]},
            {"region": region},
            deleted,
        )
        for region, deleted in (("north", [0, 999]), ("south", ()))
    ]
    return scan_of_files(root, DDL, files, ["region"])


def test_rows_that_are_left_keep_their_values_order_and_partition(tmp_path: Path) -> None:
    scan = _scan(tmp_path)
    gone = {0: BitMap64(range(0, 1_000, 3)), 1: BitMap64([5])}
    purged = purge_files(scan, gone, _target(scan))
    assert [len(files) for files in purged.values()] == [1, 1]
    north, south = (_rows(scan, purged[place]) for place in (0, 1))
    assert [row["id"] for row in north] == [row for row in range(1, 999) if row % 3]
    assert {row["region"] for row in north} == {"north"}
    assert [row["id"] for row in south] == [row for row in range(1_000) if row != 5]
    assert south[6] == {"id": 7, "name": "n7", "region": "south"}
    assert '"numRecords":999' in (purged[1][0].add.stats or "")
    assert purged[0][0].add.deletion_vector is None


def test_file_without_rows_left_leaves_no_file(tmp_path: Path) -> None:
    scan = _scan(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    assert purge_files(scan, {0: BitMap64(range(1, 999))}, _target(scan)) == {0: []}
    assert purge_file(one_file(scan, 1), BitMap64(range(1_000)), _target(scan)) == []
    assert sorted(tmp_path.rglob("*")) == before


def test_no_rows_purge_only_what_the_vector_deletes(tmp_path: Path) -> None:
    scan = _scan(tmp_path)
    [file] = purge_file(one_file(scan, 0), BitMap64(), _target(scan))
    assert [row["id"] for row in _rows(scan, [file])] == list(range(1, 999))


def test_everything_a_task_needs_can_be_pickled(tmp_path: Path) -> None:
    scan = _scan(tmp_path)
    task = pickle.loads(pickle.dumps((one_file(scan, 1), BitMap64([0, 1]).serialize(), _target(scan))))
    assert [row["id"] for row in _rows(scan, purge_file(*task))] == list(range(2, 1_000))


def test_text_of_a_partition_value_is_kept(tmp_path: Path) -> None:
    """Another reader may read this timestamp in its own zone: it must not get one."""
    values = {"at": "2026-01-01 12:00:00"}
    scan = scan_of_files(
        tmp_path, "id BIGINT, at TIMESTAMP", [write_file(tmp_path, "a.parquet", {"id": [1, 2]}, values)], ["at"]
    )
    [file] = purge_file(scan, BitMap64([0]), _target(scan))
    assert file.add.partition_values == values


def test_mapped_columns_keep_their_names_in_the_file(tmp_path: Path) -> None:
    file = write_file(tmp_path, "a.parquet", {"c-id": [1, 2, 3]}, {"c-region": "north"})
    scan = scan_of_files(tmp_path, MAPPED, [file], ["region"], "name")
    [written] = purge_file(scan, BitMap64([1]), _target(scan))
    assert written.add.partition_values == {"c-region": "north"}
    assert pq.read_schema(tmp_path / written.add.path).names == ["c-id"]
    assert _rows(scan, [written]) == [{"id": 1, "region": "north"}, {"id": 3, "region": "north"}]


def test_null_from_before_a_column_was_not_null_stays(tmp_path: Path) -> None:
    scan = scan_of_files(
        tmp_path, "id BIGINT NOT NULL, s STRUCT<n: INT NOT NULL> NOT NULL",
        [write_file(tmp_path, "a.parquet", {"id": pa.array([1, None, 3], pa.int64())})],
    )  # fmt: skip
    [written] = purge_file(scan, BitMap64([0]), _target(scan))
    assert _rows(scan, [written]) == [{"id": None, "s": None}, {"id": 3, "s": None}]


def test_row_that_the_file_does_not_have_is_refused(tmp_path: Path) -> None:
    scan = _scan(tmp_path)
    with pytest.raises(ValidationError, match=r"north.parquet: it has no row 1000, but 1000 rows"):
        purge_files(scan, {0: BitMap64([1_000])}, _target(scan))


def test_missing_file_is_named_and_nothing_is_left_open(tmp_path: Path) -> None:
    scan = _scan(tmp_path)
    (tmp_path / "south.parquet").unlink()
    with pytest.raises(StorageError, match=r"south.parquet is missing"):
        purge_files(scan, {0: BitMap64([0]), 1: BitMap64([0])}, _target(scan))


@pytest.mark.parametrize("row_group_size", [7, 1_000_000])
def test_only_the_rows_asked_for_are_read_with_their_numbers(tmp_path: Path, row_group_size: int) -> None:
    file = write_file(tmp_path, "a.parquet", {"id": [0]}, deleted=[3, 20])
    pq.write_table(pa.table({"id": range(100)}), tmp_path / "a.parquet", row_group_size=row_group_size)
    scan = scan_of_files(tmp_path, "id BIGINT", [file, file])
    [found] = _merged(scan, {1: BitMap64([3, 4, 13, 14, 99]), 0: BitMap64()})
    assert found == (1, [4, 13, 14, 99], [4, 13, 14, 99])


def _merged(scan: Scan, only: dict[int, BitMap64]) -> list[tuple[int, list[int], list[int]]]:
    found: dict[int, tuple[list[int], list[int]]] = {}
    for file, numbers, rows in read_placed(scan, only=only):
        found.setdefault(file, ([], []))[0].extend(numbers.to_pylist())
        found[file][1].extend(rows.column("id").to_pylist())
    return [(file, *lists) for file, lists in found.items()]


def test_numbers_count_deleted_rows_across_batches(tmp_path: Path) -> None:
    deleted = [0, 1, 65_535, 65_536, 70_000]
    file = write_file(tmp_path, "a.parquet", {"id": range(100_000)}, deleted=deleted)
    scan = scan_of_files(tmp_path, "id BIGINT, p INT", [file], ["p"])
    expected = [row for row in range(100_000) if row not in deleted]
    for columns in (["id"], ["p"]):
        numbers = [number for placed in read_placed(scan, columns=columns) for number in placed.numbers.to_pylist()]
        assert numbers == expected


@pytest.mark.parametrize("mapping", ["none", "name", "id"])
def test_rows_keep_their_ids_when_they_move(tmp_path: Path, mapping: ColumnMapping) -> None:
    names = {"delta.rowTracking.materializedRowIdColumnName": "_row-id-1",
             "delta.rowTracking.materializedRowCommitVersionColumnName": "_row-commit-version-1"}  # fmt: skip
    ids = [pa.field("c-id" if mapping != "none" else "id", pa.int64(), metadata={"PARQUET:field_id": "0"})]
    write_file(tmp_path, "a.parquet", pa.table([[10, 11, 12, 13]], schema=pa.schema(ids)))
    schema = StructType(MAPPED.fields[:1])
    scan = scan_of_files(tmp_path, schema, [TestFile("a.parquet", 1, {}, None)], mapping=mapping)
    target = WriteTarget(str(tmp_path), schema, properties=names | {"delta.columnMapping.mode": mapping})

    def purge(path: str, first: int | None, version: int, row: int) -> tuple[WrittenFile, dict[str, list[int]]]:
        files = scan_of_files(tmp_path, schema, [TestFile(path, 1, {}, None)], mapping=mapping).files
        files = files.append_column("base_row_id", pa.array([first], pa.int64()))
        files = files.append_column("default_row_commit_version", pa.array([version], pa.int64()))
        [written] = purge_file(replace(scan, source=files), BitMap64([row]), target)
        stored = pq.ParquetFile(tmp_path / written.add.path).read()
        return written, {name.removeprefix("c-"): values for name, values in stored.to_pydict().items()}

    once, stored = purge("a.parquet", 100, 3, 1)
    assert stored == {"id": [10, 12, 13], "_row-id-1": [100, 102, 103], "_row-commit-version-1": [3, 3, 3]}
    assert "_row-id-1" not in (once.add.stats or "")
    _, again = purge(once.add.path, 500, 9, 0)
    assert again == {"id": [12, 13], "_row-id-1": [102, 103], "_row-commit-version-1": [3, 3]}
    _, unknown = purge("a.parquet", None, 9, 0)
    assert unknown["_row-id-1"] == [None] * 3
