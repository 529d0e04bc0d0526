"""OPTIMIZE on real tables: fewer files, the same rows, and what readers and the history see of it."""

from __future__ import annotations

import json
import math
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deltars
from deltars.log.compaction import CUBE_ID
from deltars.protocol import AddFile, CdcFile, RemoveFile, uri_to_path
from tests.mirror.test_readers import by_duckdb

pytestmark = pytest.mark.backends("sqlite")

VECTORS = {"delta.enableDeletionVectors": "true"}


def filled(catalog: deltars.Catalog, name: str = "t", count: int = 6, **options: Any) -> deltars.Table:
    """A table of `count` files with ten rows each."""
    table = catalog.create_table(name, "id BIGINT, x DOUBLE, day STRING", **options)
    for number in range(count):
        table.write(rows(range(10 * number, 10 * number + 10)))
    return table


def rows(ids: range, days: int = 2) -> pa.Table:
    return pa.table({"id": list(ids), "x": [i / 7 for i in ids], "day": [f"d{i % days}" for i in ids]})


def ids(table: deltars.Table) -> list[int]:
    return sorted(table.to_arrow()["id"].to_pylist())


def num_files(table: deltars.Table) -> int:
    return int(table.files().num_rows)


def test_small_files_become_one_with_the_same_rows_in_order(catalog: deltars.Catalog) -> None:
    table = filled(catalog)
    before = table.to_arrow()
    done = table.optimize()
    assert (done.num_files_removed, done.num_files_added, num_files(table)) == (6, 1, 1)
    assert table.to_arrow(columns=["id"]) == before.select(["id"]).sort_by("id")
    assert done.version == table.version == 7
    assert done.preserve_insertion_order
    again = table.optimize()
    assert (again.steps, again.version, again.total_files_skipped) == ((), 7, 1)
    assert table.verify(deep=True).is_ok


def test_metrics_and_history_have_the_names_of_delta(catalog: deltars.Catalog) -> None:
    table = filled(catalog, partition_by="day", properties=VECTORS)
    table.delete("id = 3")
    done = table.optimize("day = 'd1'")
    sizes = done.metrics["filesRemoved"]
    assert (done.metrics["numFilesAdded"], done.metrics["numFilesRemoved"]) == (1, 6)
    assert (sizes["totalFiles"], sizes["totalSize"]) == (6, done.files_removed.total_size)
    assert sizes["min"] <= sizes["avg"] <= sizes["max"]
    assert (done.partitions_optimized, done.num_batches, done.num_bins) == (1, 1, 1)
    assert (done.num_deletion_vectors_removed, done.num_deletion_vector_rows_removed) == (1, 1)
    [entry] = table.history(1)
    assert entry.operation == "OPTIMIZE"
    assert entry.operation_params == {
        "predicate": "[\"(day = 'd1')\"]", "zOrderBy": "[]", "clusterBy": "[]", "auto": False,
    }  # fmt: skip
    assert (entry.metrics["numRemovedFiles"], entry.metrics["numAddedFiles"]) == ("6", "1")
    assert entry.metrics["numDeletionVectorsRemoved"] == "1"
    assert num_files(table) == 7


def test_files_only_move_rows_for_readers_that_follow_the_log(catalog: deltars.Catalog) -> None:
    table = filled(catalog, properties={"delta.enableChangeDataFeed": "true"})
    done = table.optimize()
    [committed] = list(catalog._session.reader.changes(table.id, done.version, done.version))
    files = [action for action in committed.actions if isinstance(action, AddFile | RemoveFile)]
    assert len(files) == 7
    assert not any(action.data_change for action in files)
    assert not any(isinstance(action, CdcFile) for action in committed.actions)
    feed = pa.table(deltalake.DeltaTable(table.location).load_cdf().read_all())
    assert feed.num_rows == 60, "the compaction shows no change"


def test_dry_run_changes_nothing_and_counts_what_would_go(catalog: deltars.Catalog) -> None:
    table = filled(catalog, partition_by="day")
    planned = table.optimize(dry_run=True)
    assert (planned.num_files_removed, planned.num_bins, planned.is_dry_run) == (12, 2, True)
    assert (table.version, num_files(table)) == (6, 12)
    assert table.optimize().num_files_removed == 12


def test_target_size_comes_from_the_call_or_the_table(catalog: deltars.Catalog) -> None:
    size = filled(catalog, "sizes", 1).files()["size"][0].as_py()
    table = filled(catalog, properties={"delta.targetFileSize": str(2 * size + size // 2)})
    assert table.optimize(dry_run=True).target_size == 2 * size + size // 2
    assert table.optimize(target_size="1kb", dry_run=True).target_size == 1024
    assert table.optimize(target_size=1, dry_run=True).num_bins == 0
    assert table.optimize(dry_run=True).num_bins == 3
    done = table.optimize()
    assert num_files(table) < 6
    assert not table.optimize().is_changed, "not even though the new files are smaller than the sum of their parts"
    assert done.total_considered_files == 6


def test_deleted_rows_leave_the_files_once_they_are_many(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT", properties=VECTORS)
    table.write(pa.table({"id": range(1000)}))
    table.delete("id < 50")
    assert not table.optimize().is_changed
    table.delete("id < 51")
    done = table.optimize()
    assert (done.num_deletion_vectors_removed, done.num_deletion_vector_rows_removed) == (1, 51)
    assert ids(table) == list(range(51, 1000))
    assert table.files()["deletion_vector"].null_count == 1


def test_file_of_which_every_row_is_deleted_goes(catalog: deltars.Catalog) -> None:
    table = filled(catalog, count=1, properties=VECTORS)
    table.delete("id < 9")
    with catalog.begin(isolation="serializable") as tx:
        tx.delete("t", "id = 9")
        tx.write("t", rows(range(90, 100)))
    assert ids(table) == list(range(90, 100))
    table.optimize()
    assert ids(table) == list(range(90, 100))


def test_row_ids_stay_with_their_rows(catalog: deltars.Catalog) -> None:
    table = filled(catalog, properties={"delta.enableRowTracking": "true", **VECTORS})
    before = row_ids(table)
    table.optimize()
    assert row_ids(table) == before
    table.delete("id < 30")
    table.optimize(zorder_by="x")
    assert row_ids(table) == {key: value for key, value in before.items() if key >= 30}
    assert table.verify(deep=True).is_ok


def row_ids(table: deltars.Table) -> dict[int, tuple[int, int]]:
    from deltars.data.row_ids import FILE_COLUMNS, read_rows, reading_ids
    from deltars.data.scan import SCAN_COLUMNS, Scan
    from deltars.protocol.row_tracking import materialized_names

    snapshot = table.snapshot()
    scan = Scan.of(
        snapshot.metadata,
        lambda: snapshot.select_files(columns=[*SCAN_COLUMNS, *FILE_COLUMNS]),
        root=table.location, table=table.name, version=snapshot.version, storage_options={},
    )  # fmt: skip
    found = reading_ids(scan, materialized_names(snapshot.metadata.configuration))
    return {
        row: (row_id, version)
        for placed in read_rows(found)
        for row, row_id, version in zip(*(placed.rows.column(at).to_pylist() for at in (0, -2, -1)), strict=True)
    }


def test_row_ids_without_a_place_are_refused_before_anything_is_written(catalog: deltars.Catalog) -> None:
    table = filled(catalog, properties={"delta.enableRowTracking": "true"})
    names = [name for name in table.snapshot().metadata.configuration if "materialized" in name]
    with catalog.begin() as tx:
        import msgspec

        metadata = table.snapshot().metadata
        kept = {key: value for key, value in metadata.configuration.items() if key not in names}
        tx.stage("t", [msgspec.structs.replace(metadata, configuration=kept)])
    before = set(Path(table.location).iterdir())
    with pytest.raises(deltars.ValidationError, match="names no columns for their row ids"):
        table.optimize()
    assert set(Path(table.location).iterdir()) == before


EVERY_TYPE = pa.schema(
    [
        ("id", pa.int64()), ("b", pa.bool_()), ("i8", pa.int8()), ("i16", pa.int16()), ("i32", pa.int32()),
        ("f", pa.float32()), ("d", pa.float64()), ("dec", pa.decimal128(38, 10)), ("s", pa.string()),
        ("bin", pa.binary()), ("day", pa.date32()), ("ts", pa.timestamp("us", "UTC")), ("ntz", pa.timestamp("us")),
        ("st", pa.struct([("a", pa.float64()), ("b", pa.list_(pa.string()))])), ("m", pa.map_(pa.string(), pa.int32())),
        ("l", pa.list_(pa.struct([("x", pa.int64())]))),
    ]
)  # fmt: skip
NAN = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0]


@pytest.mark.parametrize("mapping", ["none", "name"])
@pytest.mark.parametrize("order", [(), ("d", "s"), ("st.a",), ("dec", "ts", "f", "day")], ids=str)
def test_every_type_survives_exactly(catalog: deltars.Catalog, mapping: str, order: tuple[str, ...]) -> None:
    values: list[dict[str, Any]] = [
        {"id": 0},
        {
            "id": 1, "b": True, "i8": -128, "i16": 1, "i32": 2**31 - 1, "f": math.inf, "d": -0.0,
            "dec": Decimal("-9999999999999999999999999999.0000000001"), "s": "", "bin": b"", "day": date(1, 1, 1),
            "ts": datetime(9999, 12, 31, 23, 59, 59, 999999, UTC), "ntz": datetime(1900, 1, 1),
            "st": {"a": math.nan, "b": []}, "m": [("", None)], "l": [],
        },
        {"id": 2, "d": NAN, "s": "ü\n'\"", "st": {"a": -0.0, "b": [None, "x"]}, "m": [], "l": [None, {"x": None}]},
        {"id": 3, "d": 0.0, "f": -0.0, "st": None, "dec": Decimal("0E-10"), "bin": b"\0\xff"},
    ]  # fmt: skip
    table = catalog.create_table("t", EVERY_TYPE, properties={"delta.columnMapping.mode": mapping})
    for value in values:
        table.write(pa.Table.from_pylist([value], EVERY_TYPE))
    before = table.to_arrow().sort_by("id").combine_chunks()
    done = table.optimize(zorder_by=order)
    assert (done.num_files_removed, done.num_files_added) == (4, 1)
    after = table.to_arrow().sort_by("id").combine_chunks()
    assert after.schema == before.schema
    for one, other in zip(after.columns, before.columns, strict=True):
        assert bits(one) == bits(other)
    assert table.verify(deep=True).is_ok


def bits(column: pa.ChunkedArray) -> list[object]:
    """Values that compare -0.0 and NaN by their bits."""

    def exact(value: object) -> object:
        match value:
            case float():
                return struct.pack("<d", value)
            case dict():
                return {key: exact(part) for key, part in value.items()}
            case list() | tuple():
                return [exact(part) for part in value]
        return value

    return [exact(value) for value in column.to_pylist()]


def test_partition_values_are_kept_letter_by_letter(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id INT, p STRING, ts TIMESTAMP", partition_by=["p", "ts"])
    moment = datetime(2026, 1, 31, 12, 0, 0, 5, UTC)
    for number in range(3):
        for value in (None, "a=b/c%20 ü", "x" * 300):
            table.write(pa.table({"id": pa.array([number], pa.int32()), "p": [value], "ts": [moment]}))
    before = sorted(set(table.files()["partition_values"].to_pylist()))
    written = table.to_arrow().sort_by([("id", "ascending"), ("p", "ascending")])
    assert table.optimize().num_files_added == 3
    assert sorted(table.files()["partition_values"].to_pylist()) == before
    assert table.to_arrow().sort_by([("id", "ascending"), ("p", "ascending")]) == written


def test_rows_from_before_the_rules_of_today_are_moved_unchecked(catalog: deltars.Catalog) -> None:
    """A widened column, a generated one, CHAR, CHECK and NOT NULL: what is in the table stays as it is."""
    table = catalog.create_table(
        "t", "id INT, c CHAR(3), n INT, twice INT GENERATED ALWAYS AS (n * 2)",
        properties={"delta.enableTypeWidening": "true"},
    )  # fmt: skip
    for number in range(3):
        table.write(pa.table({"id": pa.array([number], pa.int32()), "c": ["a"], "n": pa.array([number], pa.int32())}))
    table.write(pa.table({"id": [2**40], "c": ["b"], "n": pa.array([9], pa.int32())}), merge_schema=True)
    table.alter.add_constraint("small", "n < 100")
    before = table.to_arrow().sort_by("id")
    assert before.schema.field("id").type == pa.int64()
    assert table.optimize().num_files_added == 1
    assert table.to_arrow().sort_by("id") == before
    [path] = table.files()["path"].to_pylist()
    assert pq.read_schema(Path(table.location) / uri_to_path(path)).field("id").type == pa.int64()


def test_other_readers_agree_after_it(catalog: deltars.Catalog) -> None:
    table = filled(catalog, partition_by="day")
    table.optimize()
    table.optimize(zorder_by=["id", "x"])
    expected = list(range(60))
    assert sorted(deltalake.DeltaTable(table.location).to_pyarrow_table()["id"].to_pylist()) == expected
    assert sorted(by_duckdb(Path(table.location), None)["id"].to_pylist()) == expected
    assert table.to_arrow(version=3).num_rows == 30, "older versions read their own files"


def test_z_order_lets_readers_of_any_column_skip_files(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "a INT, b INT")
    side = 64
    for number in range(4):
        pairs = [(i // side, i % side) for i in range(side * side) if i % 4 == number]
        table.write(pa.table([pa.array(column, pa.int32()) for column in zip(*pairs, strict=True)], ["a", "b"]))
    assert table.files(where="a = 7").num_rows == 4
    done = table.optimize(zorder_by=["a", "b"], target_size=700)
    assert not done.preserve_insertion_order
    count = num_files(table)
    assert count >= 4
    for where in ("a = 7", "b = 40"):
        assert table.files(where=where).num_rows <= count * 0.75
        assert table.count(where) == side
    tags = [json.loads(text) for text in table.files()["tags"].to_pylist()]
    assert len({tag[CUBE_ID] for tag in tags}) == 1
    assert tags[0]["ZCUBE_ZORDER_BY"] == '["a","b"]'
    assert not table.optimize(zorder_by=["A", "b"], target_size=700).is_changed, "it is sorted already"
    assert table.history(1)[0].operation_params["zOrderBy"] == '["a","b"]'


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"zorder_by": "nothing"}, "there is no column 'nothing'"),
        ({"zorder_by": "day"}, "is a partition column"),
        ({"zorder_by": ["x", "X"]}, "given twice"),
        ({"zorder_by": "m"}, "no minimum and maximum"),
        ({"zorder_by": "unseen"}, "no statistics of unseen"),
        ({"target_size": 0}, "target_size is a number of bytes"),
        ({"target_size": "much"}, "target_size is a number of bytes"),
        ({"target_size": True}, "target_size is a number of bytes"),
        ({"dry_run": 1}, "dry_run must be True or False"),
        ({"where": "nothing = 1"}, "nothing"),
    ],
)
def test_wrong_arguments_are_refused_by_name(catalog: deltars.Catalog, options: dict[str, Any], message: str) -> None:
    table = catalog.create_table(
        "t", "x INT, m MAP<STRING, INT>, day STRING, unseen INT", partition_by="day",
        properties={"delta.dataSkippingNumIndexedCols": "2"},
    )  # fmt: skip
    with pytest.raises(deltars.ValidationError, match=message):
        table.optimize(**options)
    assert table.version == 0


def test_clustered_table_is_sorted_by_its_columns(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT, n STRUCT<a: INT>, x DOUBLE", cluster_by=["id", "n.a"])
    assert {"clustering", "domainMetadata"} <= set(table.detail().table_features)
    for number in range(3):
        table.write(pa.table({"id": [2, 1, number], "n": [{"a": number}] * 3, "x": [0.5] * 3}))
    with pytest.raises(deltars.ValidationError, match=r"clustered by id, n\.a, which excludes zorder_by"):
        table.optimize(zorder_by="x")
    done = table.optimize()
    assert (done.cluster_by, done.num_files_added) == (("id", "n.a"), 1)
    found = table.to_arrow()["id"].to_pylist()
    assert sorted(found) == [0, 1, 1, 1, 1, 2, 2, 2, 2]
    assert table.files()["clustering_provider"].to_pylist() == ["deltars"]
    assert not table.optimize().is_changed
    table.write(pa.table({"id": [1], "n": [{"a": 1}], "x": [0.5]}))
    assert table.optimize().num_files_removed == 2
    domains = deltalake.DeltaTable(table.location)
    assert domains.to_pyarrow_table().num_rows == 10
    assert table.verify(deep=True).is_ok


def test_clustering_columns_are_checked_and_go_with_a_replacement(catalog: deltars.Catalog) -> None:
    for columns, message in (
        (["nothing"], "no column"), (["id", "id"], "twice"), (["l"], "no minimum"), (list("abcde"), "at most 4"),
    ):  # fmt: skip
        with pytest.raises(deltars.ValidationError, match=message):
            catalog.create_table("t", "id INT, l ARRAY<INT>, a INT, b INT, c INT, d INT, e INT", cluster_by=columns)
    with pytest.raises(deltars.ValidationError, match="exclude each other"):
        catalog.create_table("t", "id INT, p INT", partition_by="p", cluster_by="id")
    table = catalog.create_table("t", "id INT, x INT", cluster_by="ID")
    assert json.loads(table.snapshot().domains["delta.clustering"].configuration)["clusteringColumns"] == [["id"]]
    catalog.create_table("t", "other INT", replace=True)
    assert "delta.clustering" not in table.snapshot().domains
    with catalog.begin() as tx:
        tx.create_table("t", "y INT", cluster_by="y", replace=True)
    assert table.optimize().cluster_by == ("y",)
    plain = catalog.create_table("plain", "id INT")
    catalog.create_table("plain", "id INT", cluster_by="id", replace=True)
    assert "clustering" in plain.detail().table_features
    assert plain.verify(deep=True).is_ok


def test_new_schema_keeps_the_clustering_columns(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id INT, x INT", cluster_by="x")
    narrow = pa.table({"id": [1]})
    with pytest.raises(deltars.ValidationError, match="clustered by x: the new schema lacks x"):
        table.write(narrow, "overwrite", overwrite_schema=True)
    with pytest.raises(deltars.ValidationError, match="a clustered table has no partitions"):
        table.write(pa.table({"x": [1], "p": [1]}), "overwrite", overwrite_schema=True, partition_by="p")
    table.write(pa.table({"y": ["a", "b"], "x": [2, 1]}), "overwrite", overwrite_schema=True)
    assert table.optimize().cluster_by == ("x",)
    assert table.to_arrow()["x"].to_pylist() == [1, 2]


def test_all_tables_are_optimized_and_one_that_fails_is_reported(catalog: deltars.Catalog) -> None:
    filled(catalog, "a")
    broken = filled(catalog, "b")
    filled(catalog, "c")
    catalog.register_table("empty", str(Path(broken.location).parent / "empty"))
    gone = broken.files()["path"][0].as_py()
    (Path(broken.location) / gone).unlink()
    done = {one.table: one for one in catalog.optimize()}
    assert [done[name].num_files_removed for name in "abc"] == [6, 0, 6]
    assert isinstance(done["b"].failure, deltars.StorageError)
    assert gone in str(done["b"].failure)
    assert done["empty"].failure is None
    assert [one.num_files_removed for one in catalog.optimize(["a", "c"], dry_run=True)] == [0, 0]


def test_steps_are_committed_one_by_one(catalog: deltars.Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deltars.transaction.optimize.STEP_BYTES", 1)
    table = catalog.create_table("t", "id BIGINT, x DOUBLE, day STRING", partition_by="day")
    for number in range(3):
        table.write(rows(range(10 * number, 10 * number + 10), days=5))
    done = table.optimize()
    assert [step.bins for step in done.steps] == [1] * 5
    assert [step.version for step in done.steps] == [4, 5, 6, 7, 8]
    assert (num_files(table), ids(table)) == (5, list(range(30)))


def test_table_restored_to_before_it_has_its_small_files_again(catalog: deltars.Catalog) -> None:
    table = filled(catalog)
    table.optimize()
    table.restore(6)
    assert (num_files(table), ids(table)) == (6, list(range(60)))
    table.optimize()
    assert (num_files(table), ids(table)) == (1, list(range(60)))


@pytest.mark.parametrize("dry_run", [False, True])
def test_table_that_takes_no_commit_is_refused_before_a_file_is_written(
    catalog: deltars.Catalog, dry_run: bool
) -> None:
    released, dropped, purged = (filled(catalog, name, 2) for name in ("released", "dropped", "purged"))
    catalog.release("released")
    catalog.drop_table("dropped")
    catalog.drop_table("purged", purge=True)
    roots = [Path(table.location.removeprefix("file://")) for table in (released, dropped)]
    before = [sorted(root.rglob("*")) for root in roots]
    with pytest.raises(deltars.TableHeld, match=r"released to other writers.*catalog\.adopt"):
        released.optimize(dry_run=dry_run)
    with pytest.raises(deltars.TableNotFound, match="was dropped"):
        dropped.optimize(dry_run=dry_run)
    with pytest.raises(deltars.TableNotFound, match="there is no table"):
        purged.optimize(dry_run=dry_run)
    assert [sorted(root.rglob("*")) for root in roots] == before
