"""tx.write: what each mode and option leaves in the table."""

from __future__ import annotations

import math
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deltars
from deltars.errors import PredicateError, SchemaMismatch, TableExists, ValidationError, VersionConflict
from deltars.protocol import Metadata
from deltars.transaction.replaced_files import MANY_PARTITIONS

# The subject is not the database: DuckDB is left out.
pytestmark = pytest.mark.backends("sqlite")

DAY_1, DAY_2, DAY_3 = date(2026, 1, 1), date(2026, 1, 2), date(2026, 1, 3)


def rows(*pairs: tuple[int, date]) -> pa.Table:
    return pa.table({"id": pa.array([i for i, _ in pairs], pa.int64()), "day": [d for _, d in pairs]})


def content(table: deltars.Table) -> list[tuple[Any, ...]]:
    found = table.to_arrow().sort_by([("id", "ascending")])
    return list(zip(*found.to_pydict().values(), strict=True))


@pytest.fixture
def events(catalog: deltars.Catalog) -> deltars.Table:
    """Three days, partitioned by day, one file each."""
    catalog.write("events", rows((1, DAY_1), (2, DAY_2), (3, DAY_3)), partition_by=["day"])
    return catalog.table("events")


def test_overwrite_leaves_only_the_new_rows(catalog: deltars.Catalog, events: deltars.Table) -> None:
    catalog.write("events", rows((9, DAY_3)), "overwrite")
    assert content(events) == [(9, DAY_3)]
    assert events.version == 1
    assert events.snapshot(0).files.num_rows == 3
    [entry] = events.history(1)
    assert (entry.operation, entry.operation_params["mode"]) == ("WRITE", "Overwrite")
    assert entry.metrics["numRemovedFiles"] == "3"


def test_overwrite_with_an_empty_frame_empties_the_table(catalog: deltars.Catalog, events: deltars.Table) -> None:
    catalog.write("events", rows(), "overwrite")
    assert content(events) == []
    assert events.version == 1


def test_overwrite_of_a_table_that_is_not_there_creates_it(catalog: deltars.Catalog) -> None:
    catalog.write("new", rows((1, DAY_1)), "overwrite")
    assert content(catalog.table("new")) == [(1, DAY_1)]


def test_overwrite_in_a_transaction_replaces_what_the_transaction_wrote_too(
    catalog: deltars.Catalog, events: deltars.Table
) -> None:
    with catalog.begin() as tx:
        tx.write("events", rows((7, DAY_1)))
        tx.write("events", rows((8, DAY_2)), "overwrite")
        assert tx.files("events").num_rows == 1
    assert content(events) == [(8, DAY_2)]
    assert events.version == 1


@pytest.mark.parametrize("mode", ["error", "errorifexists"])
def test_mode_error_refuses_a_table_that_exists(
    catalog: deltars.Catalog, events: deltars.Table, mode: deltars.WriteMode, tmp_path: Path
) -> None:
    before = set(Path(events.location).rglob("*.parquet"))
    with pytest.raises(TableExists, match="events"):
        catalog.write("events", rows((1, DAY_1)), mode)
    assert events.version == 0
    assert set(Path(events.location).rglob("*.parquet")) == before
    catalog.write("other", rows((1, DAY_1)), mode)
    assert catalog.table("other").version == 0


def test_mode_ignore_writes_nothing_to_a_table_that_exists(catalog: deltars.Catalog, events: deltars.Table) -> None:
    catalog.write("events", rows((4, DAY_1)), "ignore")
    assert events.version == 0
    catalog.write("other", rows((4, DAY_1)), "ignore")
    assert content(catalog.table("other")) == [(4, DAY_1)]


def test_dynamic_overwrite_replaces_the_partitions_that_it_writes(
    catalog: deltars.Catalog, events: deltars.Table
) -> None:
    catalog.write("events", rows((20, DAY_2), (30, DAY_3)), "overwrite", partition_overwrite="dynamic")
    assert content(events) == [(1, DAY_1), (20, DAY_2), (30, DAY_3)]


def test_dynamic_overwrite_knows_the_null_partition(catalog: deltars.Catalog) -> None:
    data = pa.table({"id": pa.array([1, 2], pa.int64()), "kind": pa.array(["a", None])})
    catalog.write("kinds", data, partition_by=["kind"])
    new = pa.table({"id": pa.array([9], pa.int64()), "kind": pa.array([None], pa.string())})
    catalog.write("kinds", new, "overwrite", partition_overwrite="dynamic")
    assert content(catalog.table("kinds")) == [(1, "a"), (9, None)]


def test_dynamic_overwrite_knows_the_partition_of_what_is_no_number(catalog: deltars.Catalog) -> None:
    data = pa.table({"id": pa.array([1, 2], pa.int64()), "x": [math.nan, 0.5]})
    catalog.write("kinds", data, partition_by=["x"])
    new = pa.table({"id": pa.array([9], pa.int64()), "x": [math.nan]})
    catalog.write("kinds", new, "overwrite", partition_overwrite="dynamic")
    assert [id_ for id_, _ in content(catalog.table("kinds"))] == [2, 9]


def test_dynamic_overwrite_of_many_partitions_leaves_the_others(catalog: deltars.Catalog) -> None:
    def cells(first: int, pairs: list[tuple[int, int]]) -> pa.Table:
        x, y = zip(*pairs, strict=True)
        return pa.table({"id": list(range(first, first + len(pairs))), "x": x, "y": y})

    assert MANY_PARTITIONS < 110
    square = [(x, y) for x in range(11) for y in range(11)]
    catalog.write("cells", cells(0, square), partition_by=["x", "y"])
    lower = [(x, y) for x, y in square if (x, y) not in {(0, i) for i in range(1, 11)}]
    assert len(lower) == 111
    catalog.write("cells", cells(1_000, lower), "overwrite", partition_overwrite="dynamic")
    assert [row[0] for row in content(catalog.table("cells"))] == [*range(1, 11), *range(1_000, 1_111)]


def test_dynamic_overwrite_without_rows_changes_no_partition(catalog: deltars.Catalog, events: deltars.Table) -> None:
    catalog.write("events", rows(), "overwrite", partition_overwrite="dynamic")
    assert len(content(events)) == 3


def test_replace_where_tells_no_change_of_rows_that_it_leaves_alone(catalog: deltars.Catalog) -> None:
    feed = {"delta.enableChangeDataFeed": "true"}
    catalog.write("events", rows((1, DAY_1), (2, DAY_2)), partition_by=["day"], properties=feed)
    catalog.write("events", rows((3, DAY_1)))
    catalog.write("events", rows((1, DAY_2)), "overwrite", replace_where="id = 1")
    catalog.write("events", rows((4, DAY_1)), "overwrite", replace_where="day = '2026-01-01'")
    assert content(catalog.table("events")) == [(1, DAY_2), (2, DAY_2), (4, DAY_1)]
    changed = catalog.table("events").changes(2).to_arrow().select(["_commit_version", "_change_type", "id", "day"])
    assert sorted(map(tuple, (row.values() for row in changed.to_pylist()))) == [
        (2, "delete", 1, DAY_1),
        (2, "insert", 1, DAY_2),
        (3, "delete", 3, DAY_1),
        (3, "insert", 4, DAY_1),
    ]


def test_replace_where_on_a_partition_removes_whole_files(catalog: deltars.Catalog, events: deltars.Table) -> None:
    before = {path for path in events.snapshot().files["path"].to_pylist() if "2026-01-02" not in path}
    catalog.write("events", rows((20, DAY_2)), "overwrite", replace_where="day = '2026-01-02'")
    assert content(events) == [(1, DAY_1), (3, DAY_3), (20, DAY_2)]
    assert before < set(events.snapshot().files["path"].to_pylist())
    [entry] = events.history(1)
    assert entry.operation_params["predicate"] == "day = '2026-01-02'"


def test_replace_where_on_rows_keeps_the_others_of_a_file(catalog: deltars.Catalog) -> None:
    data = rows((1, DAY_1), (2, DAY_1), (3, DAY_1), (4, DAY_1))
    catalog.write("events", data)
    catalog.write("events", rows((30, DAY_2), (3, DAY_2)), "overwrite", replace_where="id >= 3")
    assert content(catalog.table("events")) == [(1, DAY_1), (2, DAY_1), (3, DAY_2), (30, DAY_2)]


def test_replace_where_keeps_rows_of_which_nobody_can_say(catalog: deltars.Catalog) -> None:
    data = pa.table({"id": pa.array([1, None, 3], pa.int64())})
    catalog.write("events", data)
    catalog.write("events", pa.table({"id": pa.array([5], pa.int64())}), "overwrite", replace_where="id > 2")
    found = catalog.table("events").to_arrow()["id"].to_pylist()
    assert sorted(found, key=str) == [1, 5, None]


def test_replace_where_refuses_rows_outside_the_predicate(catalog: deltars.Catalog, events: deltars.Table) -> None:
    with pytest.raises(ValidationError, match="replace_where"):
        catalog.write("events", rows((1, DAY_1)), "overwrite", replace_where="day = '2026-01-02'")
    assert events.version == 0


def test_replace_where_with_an_unknown_column_shows_where(catalog: deltars.Catalog, events: deltars.Table) -> None:
    with pytest.raises(PredicateError, match="dya"):
        catalog.write("events", rows((1, DAY_1)), "overwrite", replace_where="dya = '2026-01-02'")
    assert events.version == 0


def test_merge_schema_adds_columns_and_old_rows_have_nulls(catalog: deltars.Catalog, events: deltars.Table) -> None:
    wider = rows((4, DAY_1)).append_column("note", pa.array(["new"]))
    with pytest.raises(SchemaMismatch, match="note"):
        catalog.write("events", wider)
    catalog.write("events", wider, merge_schema=True)
    assert list(events.schema.names) == ["id", "day", "note"]
    assert content(events) == [(1, DAY_1, None), (2, DAY_2, None), (3, DAY_3, None), (4, DAY_1, "new")]


def test_merge_schema_widens_types_where_the_table_allows_it(catalog: deltars.Catalog) -> None:
    narrow = pa.table(
        {"n": pa.array([1], pa.int32()), "f": pa.array([0.1], pa.float32()), "l": pa.array([[1]], pa.list_(pa.int16()))}
    )
    wide = pa.table({"n": [2**40], "f": [0.1], "l": [[2**40]]})
    for name, properties in (("plain", {}), ("widening", {"delta.enableTypeWidening": "true"})):
        catalog.write(name, narrow, properties=properties)
    with pytest.raises(SchemaMismatch, match="float in the table"):
        catalog.write("plain", wide, merge_schema=True)
    catalog.write("widening", wide, merge_schema=True)
    table = catalog.table("widening")
    assert str(table.schema) == "struct<n: long, f: double, l: array<long>>"
    assert table.schema["l"].metadata["delta.typeChanges"] == [
        {"fromType": "short", "toType": "long", "fieldPath": "element"}
    ]
    rows = sorted(table.to_arrow().to_pylist(), key=lambda row: int(row["n"]))
    assert [(row["n"], row["l"]) for row in rows] == [(1, [1]), (2**40, [2**40])]
    assert table.to_arrow(where="n > 5")["n"].to_pylist() == [2**40]
    assert table.to_arrow(where="f < 0.11")["n"].to_pylist() == [1, 2**40]


def test_merge_schema_without_anything_new_leaves_the_metadata_alone(
    catalog: deltars.Catalog, events: deltars.Table
) -> None:
    catalog.write("events", rows((4, DAY_1)), merge_schema=True)
    [changes] = catalog._session.reader.changes(events.id, 1, 1)
    assert not any(isinstance(action, Metadata) for action in changes.actions)


def test_overwrite_schema_replaces_columns_and_partitions(catalog: deltars.Catalog, events: deltars.Table) -> None:
    other = pa.table({"id": pa.array([1], pa.int64()), "name": ["ada"]})
    with pytest.raises(SchemaMismatch):
        catalog.write("events", other, "overwrite")
    catalog.write("events", other, "overwrite", overwrite_schema=True, partition_by=["name"])
    assert content(events) == [(1, "ada")]
    assert events.snapshot().metadata.partition_columns == ["name"]
    assert list(events.snapshot(0).schema.names) == ["id", "day"]


def test_another_partitioning_is_refused(catalog: deltars.Catalog, events: deltars.Table) -> None:
    with pytest.raises(ValidationError, match="partitioned by"):
        catalog.write("events", rows((4, DAY_1)), partition_by=["id"])
    catalog.write("events", rows((4, DAY_1)), partition_by=["day"])


def test_replayed_write_of_an_application_adds_nothing(catalog: deltars.Catalog, events: deltars.Table) -> None:
    for version in (1, 1, 0, 2):
        catalog.write("events", rows((10 + version, DAY_1)), app_id="stream", app_version=version)
    assert [row[0] for row in content(events)] == [1, 2, 3, 11, 12]
    assert events.version == 2
    assert events.snapshot().txns["stream"].version == 2


def test_transaction_whose_every_write_was_skipped_makes_no_version(
    catalog: deltars.Catalog, events: deltars.Table
) -> None:
    catalog.write("events", rows((11, DAY_1)), app_id="stream", app_version=5)
    with catalog.begin() as tx:
        tx.write("events", rows((11, DAY_1)), app_id="stream", app_version=5)
    assert tx.result.versions == {}
    assert events.version == 1


def test_two_runs_of_one_application_at_once_conflict(catalog: deltars.Catalog, events: deltars.Table) -> None:
    first, second = (catalog.begin(isolation="serializable") for _ in range(2))
    for tx in (first, second):
        tx.write("events", rows((4, DAY_1)), app_id="stream", app_version=1)
    first.commit()
    with pytest.raises(deltars.ConcurrentTransaction, match="stream"):
        second.commit()
    assert len(content(events)) == 4


def test_files_hold_no_more_rows_than_asked(catalog: deltars.Catalog) -> None:
    data = pa.table({"id": pa.array(range(1_000), pa.int64())})
    catalog.write("events", data, max_records_per_file=300)
    table = catalog.table("events")
    assert sorted(table.snapshot().files["num_records"].to_pylist()) == [100, 300, 300, 300]
    assert table.to_arrow().num_rows == 1_000


def test_compression_is_chosen(catalog: deltars.Catalog) -> None:
    catalog.write("events", rows((1, DAY_1)), compression="snappy")
    table = catalog.table("events")
    [path] = table.snapshot().files["path"].to_pylist()
    assert pq.read_metadata(Path(table.location) / path).row_group(0).column(0).compression == "SNAPPY"


def test_user_metadata_of_a_write_is_in_history(catalog: deltars.Catalog, events: deltars.Table) -> None:
    catalog.write("events", rows((4, DAY_1)), user_metadata="backfill")
    assert events.history(1)[0].user_metadata == "backfill"


def test_check_constraint_refuses_rows_that_break_it(catalog: deltars.Catalog) -> None:
    catalog.create_table("events", "id BIGINT, day DATE", properties={"delta.constraints.positive": "id > 0"})
    catalog.write("events", rows((1, DAY_1)))
    for wrong in (rows((0, DAY_1)), pa.table({"id": pa.array([None], pa.int64()), "day": [DAY_1]})):
        with pytest.raises(ValidationError, match="positive: id > 0"):
            catalog.write("events", wrong)
    assert content(catalog.table("events")) == [(1, DAY_1)]


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"mode": "upsert"}, "mode"),
        ({"mode": "append", "replace_where": "id = 1"}, "replace_where"),
        ({"mode": "overwrite", "replace_where": 3}, "replace_where"),
        ({"mode": "append", "overwrite_schema": True}, "overwrite_schema"),
        ({"mode": "append", "partition_overwrite": "dynamic"}, "partition_overwrite"),
        ({"mode": "overwrite", "partition_overwrite": "some"}, "partition_overwrite"),
        ({"mode": "overwrite", "replace_where": "id = 1", "overwrite_schema": True}, "replace_where"),
        ({"mode": "overwrite", "merge_schema": True, "overwrite_schema": True}, "merge_schema"),
        ({"app_id": "a"}, "app_id"),
        ({"app_id": "a", "app_version": "1"}, "app_version"),
        ({"compression": "zip"}, "compression"),
        ({"max_records_per_file": 0}, "max_records_per_file"),
    ],
)
def test_wrong_option_is_refused_before_anything_is_written(
    catalog: deltars.Catalog, events: deltars.Table, options: dict[str, Any], field: str
) -> None:
    before = set(Path(events.location).rglob("*.parquet"))
    with pytest.raises(ValidationError) as caught:
        catalog.write("events", rows((1, DAY_1)), **options)
    assert caught.value.field == field
    assert events.version == 0
    assert set(Path(events.location).rglob("*.parquet")) == before


def test_overwrite_conflicts_with_an_append_that_it_did_not_see(
    catalog: deltars.Catalog, events: deltars.Table
) -> None:
    overwrite = catalog.begin(isolation="serializable")
    overwrite.write("events", rows((9, DAY_1)), "overwrite")
    catalog.write("events", rows((4, DAY_1)))
    with pytest.raises(VersionConflict):
        overwrite.commit()
    assert len(content(events)) == 4


def test_overwrite_of_one_partition_lets_an_append_to_another_pass(
    catalog: deltars.Catalog, events: deltars.Table
) -> None:
    overwrite = catalog.begin(isolation="serializable")
    overwrite.write("events", rows((20, DAY_2)), "overwrite", replace_where="day = '2026-01-02'")
    catalog.write("events", rows((4, DAY_1)))
    assert overwrite.commit().versions == {"events": 2}
    assert content(events) == [(1, DAY_1), (3, DAY_3), (4, DAY_1), (20, DAY_2)]


def test_name_of_one_column_need_not_be_in_a_list(catalog: deltars.Catalog) -> None:
    catalog.write("by_day", rows((1, DAY_1)), partition_by="day")
    catalog.write("by_day", rows((2, DAY_2)), partition_by="day")
    table = catalog.table("by_day")
    assert table.snapshot().metadata.partition_columns == ["day"]
    assert table.to_arrow(columns="id").column_names == ["id"]


def test_where_that_is_no_text_is_refused(catalog: deltars.Catalog, events: deltars.Table) -> None:
    with pytest.raises(PredicateError, match="must be a string of SQL, got 5"):
        events.to_arrow(where=5)  # type: ignore[arg-type]
