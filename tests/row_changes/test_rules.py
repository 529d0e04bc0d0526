"""Rules of tables that row-level changes keep: constraints, computed columns, lengths, column mapping, wider types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import deltars
from deltars.errors import SchemaMismatch, TransactionTooLarge, ValidationError
from deltars.spark.change import purge as spark_purge
from deltars.transaction import read_size
from tests.support.delta_spark import DeltaSpark

pytestmark = pytest.mark.backends("sqlite")

VECTORS = {"delta.enableDeletionVectors": "true"}
STORAGES = pytest.mark.parametrize("properties", [{}, VECTORS], ids=["rewritten", "vectors"])


def _rows(table: deltars.Table) -> list[dict[str, Any]]:
    return sorted(table.to_arrow().to_pylist(), key=str)


@STORAGES
def test_not_null_and_check_constraints_hold_for_changed_rows(
    catalog: deltars.Catalog, properties: dict[str, str]
) -> None:
    table = catalog.create_table("t", "id BIGINT NOT NULL, v BIGINT", properties=properties)
    table.write(pa.table({"id": [1, 2, 3], "v": [10, 20, 30]}))
    table.alter.add_constraint("small", "v < 100")
    before = table.version
    with pytest.raises(ValidationError, match="small"):
        table.update({"v": 100}, "id = 2")
    with pytest.raises(ValidationError, match="NOT NULL"):
        table.update({"id": None}, "id = 2")
    source = pa.table({"id": [2, 9], "v": [5, 500]})
    with pytest.raises(ValidationError, match="small"):
        table.merge(source, "t.id = s.id").when_matched_update_all().when_not_matched_insert_all().execute()
    assert table.version == before
    assert _rows(table) == [{"id": 1, "v": 10}, {"id": 2, "v": 20}, {"id": 3, "v": 30}]


@STORAGES
def test_generated_columns_and_defaults_are_computed_anew(catalog: deltars.Catalog, properties: dict[str, str]) -> None:
    table = catalog.create_table(
        "t",
        "id BIGINT, twice BIGINT GENERATED ALWAYS AS (id * 2), kind STRING DEFAULT 'plain'",
        properties=properties,
    )
    table.write(pa.table({"id": [1, 2]}))
    table.update({"id": "id + 10"}, "id = 2")
    table.merge(pa.table({"id": [1, 7]}), "t.id = s.id").when_not_matched_insert({"id": "s.id"}).execute()
    assert {(row["id"], row["twice"], row["kind"]) for row in _rows(table)} == {
        (1, 2, "plain"),
        (12, 24, "plain"),
        (7, 14, "plain"),
    }
    with pytest.raises(ValidationError, match="generated"):
        table.update({"twice": 5})


@STORAGES
def test_char_and_varchar_lengths_hold(catalog: deltars.Catalog, properties: dict[str, str]) -> None:
    table = catalog.create_table("t", "id BIGINT, c CHAR(3), v VARCHAR(3)", properties=properties)
    table.write(pa.table({"id": [1], "c": ["a"], "v": ["b"]}))
    table.update({"c": "'x'", "v": "'y  '"})
    assert _rows(table) == [{"id": 1, "c": "x  ", "v": "y  "}]
    with pytest.raises(ValidationError, match="longer"):
        table.update({"v": "'long'"})


@pytest.mark.parametrize("mode", ["name", "id"])
@STORAGES
def test_column_mapping_is_kept(catalog: deltars.Catalog, properties: dict[str, str], mode: str) -> None:
    mapped = {**properties, "delta.columnMapping.mode": mode}
    table = catalog.create_table("t", "`the id` BIGINT, p STRING, v DOUBLE", properties=mapped, partition_by="p")
    table.write(pa.table({"the id": [1, 2, 3], "p": ["a", "a", "b"], "v": [0.5, 1.5, 2.5]}))
    table.delete("`the id` = 1")
    table.update({"v": 9.0}, "p = 'b'")
    source = pa.table({"the id": [2, 8], "p": ["a", "c"], "v": [7.0, 8.0]})
    merge = table.merge(source, "t.`the id` = s.`the id`")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    assert {(row["the id"], row["p"], row["v"]) for row in _rows(table)} == {
        (2, "a", 7.0),
        (3, "b", 9.0),
        (8, "c", 8.0),
    }


@STORAGES
def test_wider_types_keep_old_values(catalog: deltars.Catalog, properties: dict[str, str]) -> None:
    table = catalog.create_table("t", "id INT, v INT", properties={**properties, "delta.enableTypeWidening": "true"})
    table.write(pa.table({"id": pa.array([1, 2], pa.int32()), "v": pa.array([1, 2], pa.int32())}))
    source = pa.table({"id": pa.array([2, 3], pa.int32()), "v": pa.array([2**40, 2**41], pa.int64())})
    merge = table.merge(source, "t.id = s.id", merge_schema=True)
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    table.delete("v = 1")
    assert {(row["id"], row["v"]) for row in _rows(table)} == {(2, 2**40), (3, 2**41)}


def test_an_overflow_is_an_error_and_nothing_changes(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id INT, v SMALLINT")
    table.write(pa.table({"id": pa.array([1], pa.int32()), "v": pa.array([1], pa.int16())}))
    with pytest.raises(ValidationError):
        table.update({"v": 70_000})
    with pytest.raises(SchemaMismatch):
        table.update({"v": "'text'"})
    assert _rows(table) == [{"id": 1, "v": 1}]


def test_vectors_are_switched_on_later_with_the_protocol(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT")
    table.write(pa.table({"id": list(range(100))}))
    table.alter.set_properties(VECTORS)
    assert "deletionVectors" in table.detail().table_features
    metrics = table.delete("id % 7 = 3")
    assert (metrics.files_with_vector, metrics.rows_copied) == (1, 0)
    assert table.count() == 100 - metrics.rows_deleted  # type: ignore[operator]


def test_a_file_without_a_row_count_is_rewritten(catalog: deltars.Catalog) -> None:
    """The protocol demands the count beside a vector. Tables of other writers may lack it."""
    table = catalog.create_table("t", "id BIGINT", properties=VECTORS)
    table.write(pa.table({"id": [1, 2, 3]}))
    [file] = table.files().to_pylist()
    with catalog.begin() as tx:
        tx.stage(
            "t",
            [
                deltars.AddFile(
                    path=file["path"],
                    partition_values={},
                    size=file["size"],
                    modification_time=file["modification_time"],
                    data_change=True,
                )
            ],
        )
    metrics = table.delete("id = 2")
    assert (metrics.files_with_vector, metrics.rows_copied, metrics.rows_deleted) == (0, 2, 1)
    assert _rows(table) == [{"id": 1}, {"id": 3}]


@STORAGES
def test_struct_fields_are_assigned_one_by_one(catalog: deltars.Catalog, properties: dict[str, str]) -> None:
    table = catalog.create_table("t", "id BIGINT, s STRUCT<a: BIGINT, b: STRING>", properties=properties)
    table.write(pa.table({"id": [1, 2], "s": [{"a": 1, "b": "x"}, None]}))
    source = pa.table({"id": [1, 3], "s": [{"a": 5, "b": "m"}, {"a": 6, "b": "n"}]})
    table.merge(
        source, "t.id = s.id", source_alias="s"
    ).when_matched_update_all().when_not_matched_insert_all().execute()
    assert {row["id"]: row["s"] for row in _rows(table)} == {1: {"a": 5, "b": "m"}, 2: None, 3: {"a": 6, "b": "n"}}


@STORAGES
def test_names_that_need_quotes_and_look_like_aliases_work(
    catalog: deltars.Catalog, properties: dict[str, str]
) -> None:
    table = catalog.create_table("t", "`t` BIGINT, `s` BIGINT, `__deltars_row` STRING", properties=properties)
    table.write(pa.table({"t": [1, 2], "s": [10, 20], "__deltars_row": ["a", "b"]}))
    source = pa.table({"t": [2, 3], "s": [200, 300], "__deltars_row": ["c", "d"]})
    table.merge(source, "t.t = s.t").when_matched_update({"s": "s.s"}).when_not_matched_insert_all().execute()
    assert {(row["t"], row["s"]) for row in _rows(table)} == {(1, 10), (2, 200), (3, 300)}
    table.delete("`__deltars_row` = 'd'")
    assert len(_rows(table)) == 2


@pytest.mark.parametrize(
    ("by_spark", "properties"),
    [
        pytest.param(False, {}, id="arrow-rewritten", marks=pytest.mark.soak(only=True)),
        pytest.param(False, VECTORS, id="arrow-vectors"),
        pytest.param(True, {"delta.columnMapping.mode": "id"}, id="spark-rewritten", marks=pytest.mark.soak(only=True)),
        pytest.param(True, VECTORS, id="spark-vectors", marks=pytest.mark.soak(only=True)),
    ],
)
def test_rows_keep_their_ids(
    catalog: deltars.Catalog,
    by_spark: bool,
    properties: dict[str, str],
    delta_spark: DeltaSpark,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if by_spark:
        request.getfixturevalue("spark")
        monkeypatch.setattr(read_size, "SMALL_BYTES", -1)
        monkeypatch.setattr(spark_purge, "HERE_BYTES", 0)
    table = catalog.create_table(
        "t", "id BIGINT, v BIGINT", properties={**properties, "delta.enableRowTracking": "true"}
    )
    table.write(pa.table({"id": [1, 2, 3, 4], "v": [1, 2, 3, 4]}))
    table.write(pa.table({"id": [5, 6, 7, 8], "v": [5, 6, 7, 8]}))
    query = f"SELECT id, v, _metadata.row_id AS row_id FROM delta.`{table.location}`"
    before = {row["id"]: row["row_id"] for row in delta_spark.sql(query).to_pylist()}
    assert sorted(before.values()) == list(range(8))
    table.update({"v": 20}, "id IN (2, 5)")
    table.delete("id = 1")
    source = pa.table({"id": [2, 3, 9], "v": [25, 30, 90]})
    merge = table.merge(source, "t.id = s.id").when_matched_update_all().when_not_matched_insert_all()
    merge.when_not_matched_by_source_update({"v": "t.v * 10"}, "t.id = 6").execute()
    table.purge()
    merge = table.merge(pa.table({"id": [2, 4], "v": [1, 1]}), "t.id = s.id").when_matched_delete("s.id = 2")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    upsert = table.merge(pa.table({"id": [3, 10], "v": [3, 3]}), "t.id = s.id")
    upsert.when_matched_update_all().when_not_matched_insert_all().execute()
    after = delta_spark.sql(query).to_pylist()
    assert {row["id"]: row["v"] for row in after} == {3: 3, 4: 1, 5: 20, 6: 60, 7: 7, 8: 8, 9: 90, 10: 3}
    ids = {row["id"]: row["row_id"] for row in after}
    assert {key: ids[key] for key in range(3, 9)} == {key: before[key] for key in range(3, 9)}
    assert len({*before.values(), ids[9], ids[10]}) == 10


def test_a_column_with_a_dot_is_not_taken_for_the_field_of_a_struct(catalog: deltars.Catalog) -> None:
    properties = {"delta.columnMapping.mode": "name"}
    table = catalog.create_table("t", "`a.b` BIGINT, a STRUCT<b: BIGINT>, `c.d` BIGINT", properties=properties)
    table.write(pa.table({"a.b": [1], "a": [{"b": 10}], "c.d": [5]}))
    for name in ("a.b", "A.B", "a.`b`"):
        with pytest.raises(ValidationError, match="ambiguous"):
            table.update({name: 7})
    table.update({"`a.b`": "`a.b` + a.b", "c.d": 6})
    assert _rows(table) == [{"a.b": 11, "a": {"b": 10}, "c.d": 6}]


def test_a_lone_surrogate_is_refused_by_name(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT, v STRING")
    table.write(pa.table({"id": [1], "v": ["a"]}))
    with pytest.raises(ValidationError, match="surrogate"):
        table.update({"v": "'\ud800'"})
    with pytest.raises(ValidationError, match="surrogate"):
        table.delete("v = '\ud800'")


def test_error_names_the_condition_that_it_is_about(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT, v BIGINT")
    source = pa.table({"id": [1], "v": [2]})
    merge = table.merge(source, "t.id = s.id")
    with pytest.raises(deltars.PredicateError, match="at position 3 of the condition:"):
        merge.when_matched_update_all("s.vv > 1").execute()
    with pytest.raises(deltars.PredicateError, match="at position 1 of the constraint:"):
        table.alter.add_constraint("c", "vv > 1")
    with pytest.raises(deltars.PredicateError, match="at position 1 of the constraint:"):
        catalog.create_table("u", "id INT", properties={"delta.constraints.c": "vv > 1"})
    with pytest.raises(deltars.PredicateError, match="at position 1 of the replace_where:"):
        table.write(source, "overwrite", replace_where="vv = 1")
    with pytest.raises(deltars.PredicateError, match="at position 1 of the where:"):
        table.delete("vv = 1")


@STORAGES
def test_a_change_stops_at_the_limit_of_files_while_it_writes(
    catalog: deltars.Catalog, properties: dict[str, str]
) -> None:
    table = catalog.create_table("t", "id BIGINT, p BIGINT", partition_by="p", properties=properties)
    catalog.create_table("other", "id BIGINT")
    table.write(pa.table({"id": [1, 2, 3], "p": [0, 0, 0]}))
    many = pa.table({"id": list(range(10, 60)), "p": list(range(50))})
    with catalog.begin(max_files_per_table=4) as tx:
        tx.write("other", pa.table({"id": [1]}))
        before = len(list(Path(table.location).rglob("*.parquet")))
        with pytest.raises(TransactionTooLarge, match="max_files_per_table is 4") as caught:
            tx.merge("t", many, "t.id = s.id").when_not_matched_insert_all().execute()
        assert (caught.value.limit, caught.value.table, caught.value.txn_id) == (4, "t", tx.id)
        assert "begin(max_files_per_table=" in str(caught.value)
        assert len(list(Path(table.location).rglob("*.parquet"))) <= before + 4
        # Files that this transaction has staged, and that a change replaces, do not count twice.
        tx.write("t", many.slice(0, 4))
        with pytest.raises(TransactionTooLarge):
            tx.update("t", {"p": "p + 100"}, "id = 1")
        tx.delete("t", "id = 10")
        tx.update("t", {"p": "p + 100"}, "id IN (11, 12, 13)")
    assert tx.result.versions == {"other": 1, "t": 2}
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2, 3, 11, 12, 13]
