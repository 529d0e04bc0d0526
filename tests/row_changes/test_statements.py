"""Delete, update and merge without Spark: rows, versions, history, and how several of them make one commit."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest

import deltars
from deltars.errors import ConcurrentAppend, SchemaMismatch, TableNotFound, ValidationError

pytestmark = pytest.mark.backends("sqlite")

VECTORS = {"delta.enableDeletionVectors": "true"}
STORAGES = pytest.mark.parametrize("properties", [{}, VECTORS], ids=["rewritten", "vectors"])


def _features(catalog: deltars.Catalog, properties: dict[str, str], *, partition_by: str | tuple[str, ...] = ()) -> Any:
    table = catalog.create_table(
        "features", "id BIGINT, day STRING, score DOUBLE", properties=properties, partition_by=partition_by
    )
    for day in ("a", "b", "c"):
        base = ord(day) * 10
        table.write(pa.table({"id": [base, base + 1, base + 2], "day": [day] * 3, "score": [0.1, 0.2, None]}))
    return table


def _rows(table: deltars.Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in table.to_arrow().to_pylist()), key=str)


@STORAGES
def test_delete_removes_the_rows_that_match(catalog: deltars.Catalog, properties: dict[str, str]) -> None:
    table = _features(catalog, properties)
    metrics = table.delete("score > 0.15")
    assert _rows(table) == sorted(
        [(i, d, s) for d in "abc" for i, s in ((ord(d) * 10, 0.1), (ord(d) * 10 + 2, None))], key=str
    )
    assert (metrics.rows_deleted, metrics.rows_updated, metrics.rows_inserted) == (3, 0, 0)
    assert metrics.files_with_vector == (3 if properties else 0)
    assert metrics.rows_copied == (0 if properties else 6)
    assert table.version == 4


@STORAGES
def test_a_statement_that_matches_nothing_makes_no_version(
    catalog: deltars.Catalog, properties: dict[str, str]
) -> None:
    table = _features(catalog, properties)
    assert table.delete("id = 5").rows_deleted == 0
    assert table.update({"score": 1.0}, "id = 5").rows_updated == 0
    source = pa.table({"id": [5], "day": ["z"], "score": [1.0]})
    assert table.merge(source, "t.id = s.id").when_matched_delete().execute().rows_deleted == 0
    assert table.version == 3


@STORAGES
def test_delete_without_a_condition_empties_the_table(catalog: deltars.Catalog, properties: dict[str, str]) -> None:
    table = _features(catalog, properties)
    assert table.delete().rows_deleted == 9
    assert _rows(table) == []
    assert table.detail().num_files == 0


@STORAGES
def test_update_changes_matching_rows_only(catalog: deltars.Catalog, properties: dict[str, str]) -> None:
    table = _features(catalog, properties)
    metrics = table.update({"SCORE": "score", "day": "'z'"}, "id IN (970, 981)")
    assert metrics.rows_updated == 2
    assert [row for row in _rows(table) if row[1] == "z"] == [(970, "z", 0.1), (981, "z", 0.2)]
    assert len(_rows(table)) == 9


@STORAGES
def test_update_of_a_partition_column_moves_rows(catalog: deltars.Catalog, properties: dict[str, str]) -> None:
    table = _features(catalog, properties, partition_by="day")
    table.update({"day": "'new'"}, "day = 'a' AND id = 971")
    assert [row for row in _rows(table) if row[1] == "new"] == [(971, "new", 0.2)]
    partitions = {p.values["day"]: p.num_records for p in table.detail(partitions=True).partitions or ()}
    assert partitions["new"] == 1


@STORAGES
def test_merge_updates_deletes_and_inserts(catalog: deltars.Catalog, properties: dict[str, str]) -> None:
    table = _features(catalog, properties)
    source = pa.table(
        {"id": [970, 971, 5, None], "day": ["u"] * 4, "score": [9.0, 9.5, 1.0, 2.0], "gone": [0, 1, 0, 0]}
    )
    metrics = (
        table.merge(source, "t.id = s.id")
        .when_matched_delete("s.gone = 1")
        .when_matched_update({"score": "s.score"})
        .when_not_matched_insert({"id": "s.id", "day": "s.day"})
        .execute()
    )
    rows = {row[0]: row for row in _rows(table)}
    assert rows[970] == (970, "a", 9.0)
    assert 971 not in rows
    assert rows[5] == (5, "u", None)
    assert rows[None] == (None, "u", None)
    assert (metrics.rows_updated, metrics.rows_deleted, metrics.rows_inserted) == (1, 1, 2)
    assert table.version == 4


@STORAGES
def test_upsert_by_all_columns(catalog: deltars.Catalog, properties: dict[str, str]) -> None:
    table = _features(catalog, properties)
    source = pa.table({"ID": [970, 5], "day": ["u", "u"], "score": [9.0, 1.0]})
    table.merge(source, "t.id = s.id").when_matched_update_all().when_not_matched_insert_all().execute()
    rows = {row[0]: row for row in _rows(table)}
    assert rows[970] == (970, "u", 9.0)
    assert rows[5] == (5, "u", 1.0)
    assert len(rows) == 10


@STORAGES
def test_rows_that_the_source_lacks_are_changed(catalog: deltars.Catalog, properties: dict[str, str]) -> None:
    table = _features(catalog, properties)
    source = pa.table({"id": [970], "day": ["u"], "score": [9.0]})
    (
        table.merge(source, "t.id = s.id")
        .when_matched_update_all()
        .when_not_matched_by_source_delete("t.day = 'b'")
        .when_not_matched_by_source_update({"score": -1.0}, "t.day = 'c'")
        .execute()
    )
    rows = {row[0]: row for row in _rows(table)}
    assert rows[970] == (970, "u", 9.0)
    assert {row[1] for row in rows.values()} == {"u", "a", "c"}
    assert {row[2] for row in rows.values() if row[1] == "c"} == {-1.0}


def test_several_source_rows_for_one_target_row_are_refused(catalog: deltars.Catalog) -> None:
    table = _features(catalog, {})
    source = pa.table({"id": [970, 970], "day": ["u", "v"], "score": [9.0, 8.0]})
    with pytest.raises(ValidationError, match="multiple source rows matched"):
        table.merge(source, "t.id = s.id").when_matched_update_all().execute()
    assert table.version == 3
    assert table.merge(source, "t.id = s.id").when_matched_delete().execute().rows_deleted == 1


@STORAGES
def test_statements_on_several_tables_are_one_commit_and_see_each_other(
    catalog: deltars.Catalog, properties: dict[str, str]
) -> None:
    features = _features(catalog, properties)
    labels = catalog.create_table("labels", "id BIGINT, label STRING", properties=properties)
    with catalog.begin() as tx:
        tx.write("labels", pa.table({"id": [1, 2, 3], "label": ["x", "y", "z"]}))
        assert tx.delete("labels", "id = 2").rows_deleted == 1
        assert tx.update("labels", {"label": "'w'"}, "id = 3").rows_updated == 1
        source = pa.table({"id": [1, 3, 4], "label": ["m", "m", "m"]})
        merged = (
            tx.merge("labels", source, "t.id = s.id")
            .when_matched_update_all("t.label = 'w'")
            .when_not_matched_insert_all()
            .execute()
        )
        assert (merged.rows_updated, merged.rows_inserted) == (1, 1)
        tx.delete("features", "day <> 'a'")
        tx.delete("features", "id = 970")
    assert tx.result.versions == {"labels": 1, "features": 4}
    assert _rows(labels) == [(1, "x"), (3, "m"), (4, "m")]
    assert [row[0] for row in _rows(features)] == [971, 972]


@STORAGES
def test_history_names_the_operation_its_condition_and_its_metrics(
    catalog: deltars.Catalog, properties: dict[str, str]
) -> None:
    table = _features(catalog, properties)
    table.delete("id = 970")
    table.update({"score": 0.5}, "id = 971")
    table.merge(
        pa.table({"id": [972], "day": ["q"], "score": [1.0]}), "t.id = s.id"
    ).when_matched_update_all().execute()
    merge, update, delete = table.history(3)
    assert [entry.operation for entry in (delete, update, merge)] == ["DELETE", "UPDATE", "MERGE"]
    assert msgspec.json.decode(delete.operation_params["predicate"]) == ["(id = 970)"]
    assert delete.metrics["numDeletedRows"] == "1"
    assert delete.metrics["numDeletionVectorsAdded"] == ("1" if properties else "0")
    assert update.metrics["numUpdatedRows"] == "1"
    assert merge.metrics["numTargetRowsUpdated"] == "1"
    assert merge.metrics["numSourceRows"] == "1"
    assert msgspec.json.decode(merge.operation_params["matchedPredicates"]) == [{"actionType": "update"}]


def test_a_merge_that_was_not_executed_fails_the_commit(catalog: deltars.Catalog) -> None:
    table = _features(catalog, {})
    source = pa.table({"id": [970], "day": ["u"], "score": [9.0]})
    tx = catalog.begin()
    tx.delete("features", "id = 971")
    tx.merge("features", source, "t.id = s.id").when_matched_update_all()
    with pytest.raises(ValidationError, match="never executed"):
        tx.commit()
    assert table.version == 3


def test_merge_adds_new_columns_when_asked(catalog: deltars.Catalog) -> None:
    table = _features(catalog, {})
    source = pa.table({"id": [970, 5], "day": ["u", "u"], "score": [9.0, 1.0], "extra": ["e", "f"]})
    merge = table.merge(source, "t.id = s.id", merge_schema=True)
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    assert table.schema.names == ("id", "day", "score", "extra")
    rows = {row[0]: row for row in _rows(table)}
    assert rows[970] == (970, "u", 9.0, "e")
    assert rows[971] == (971, "a", 0.2, None)


def test_a_merge_without_evolution_leaves_the_sources_other_columns_out(catalog: deltars.Catalog) -> None:
    table = _features(catalog, {})
    source = pa.table({"id": [5], "day": ["u"], "score": [1.0], "extra": ["e"]})
    table.merge(source, "t.id = s.id").when_not_matched_insert_all().execute()
    assert table.schema.names == ("id", "day", "score")
    assert (5, "u", 1.0) in _rows(table)


@STORAGES
def test_outside_readers_see_the_changes(catalog: deltars.Catalog, properties: dict[str, str]) -> None:
    from deltalake import DeltaTable, QueryBuilder

    table = _features(catalog, properties)
    table.delete("id = 970")
    table.update({"score": 7.0}, "id >= 990")
    found = QueryBuilder().register("t", DeltaTable(table.location)).execute("SELECT id, score FROM t ORDER BY id")
    read = pa.table(found.read_all()).to_pylist()
    assert [row["id"] for row in read] == [971, 972, 980, 981, 982, 990, 991, 992]
    assert [row["score"] for row in read[-3:]] == [7.0, 7.0, 7.0]


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda t: t.update({}, "id = 1"), ValidationError, "at least one column"),
        (
            lambda t: t.update("id = 1", {"score": 1}),
            ValidationError,
            r"set comes before .*Write update\(set={…}, where=…",
        ),
        (
            lambda t: t.merge(pa.table({"id": [1]}), "t.id = s.id").when_matched_update("t.id > 1", {"score": 1}),
            ValidationError,
            r"Write when_matched_update\(set={…}, condition=…",
        ),
        (
            lambda t: t.merge(pa.table({"id": [1]}), condition="t.id = s.id"),
            TypeError,
            "needs the argument 'on'. Write on=… in place of condition=…",
        ),
        (lambda t: t.alias("t").merge(pa.table({"id": [1]}), "t.id = s.id"), AttributeError, "target_alias="),
        (lambda t: t.update({"nope": 1}, "id = 1"), ValidationError, "no column 'nope'"),
        (lambda t: t.update({"scor": 1}, "id = 1"), ValidationError, "score"),
        (lambda t: t.update({"score": 1, "SCORE": 2}), ValidationError, "assigned twice"),
        (lambda t: t.update({"score": object()}), ValidationError, "cannot be used"),
        (lambda t: t.update({"id": "'text'"}), SchemaMismatch, "id"),
        (lambda t: t.delete("nope = 1"), ValidationError, "nope"),
        (lambda t: t.delete("id ="), ValidationError, "id ="),
        (lambda t: t.delete(7), ValidationError, "where must be a condition"),
        (lambda t: t.delete("id"), ValidationError, "id"),
        (lambda t: t.delete("id IN (SELECT 1)"), ValidationError, "(?i)subquer"),
        (lambda t: t.merge(pa.table({"id": [1]}), "t.id = s.id").execute(), ValidationError, "no clause"),
        (lambda t: t.merge(pa.table({"id": [1]}), None), ValidationError, "on must be"),
        (lambda t: t.merge(pa.table({"id": [1]}), "1 = 1").when_matched_delete().execute(), ValidationError, "target"),
        (
            lambda t: t.merge(pa.table({"id": ["x"]}), "t.id = s.id").when_matched_delete().execute(),
            ValidationError,
            "cannot be compared",
        ),
        (
            lambda t: t.merge(pa.table({"id": [1]}), "t.id = s.id").when_matched_update_all().execute(),
            ValidationError,
            "source lacks",
        ),
        (
            lambda t: (
                t.merge(pa.table({"id": [1]}), "t.id = s.id")
                .when_matched_delete()
                .when_matched_update({"score": 1})
                .execute()
            ),
            ValidationError,
            "never applies",
        ),
        (lambda t: t.delete("id = 1", appid="x"), TypeError, "appid"),
        (lambda t: t.delete("id = 1", app_id="x"), ValidationError, "together"),
    ],
)
def test_bad_input_is_refused_and_changes_nothing(
    catalog: deltars.Catalog, call: Any, error: type[Exception], said: str
) -> None:
    table = _features(catalog, {})
    with pytest.raises(error, match=said):
        call(table)
    assert table.version == 3


def test_a_table_that_does_not_exist_is_named(catalog: deltars.Catalog) -> None:
    with catalog.begin() as tx, pytest.raises(TableNotFound, match="nothere"):
        tx.delete("nothere", "id = 1")


def test_append_only_tables_refuse_changes_and_take_inserts(catalog: deltars.Catalog) -> None:
    table = _features(catalog, {"delta.appendOnly": "true"})
    with pytest.raises(ValidationError, match="append-only"):
        table.delete("id = 970")
    with pytest.raises(ValidationError, match="append-only"):
        table.delete()
    with pytest.raises(ValidationError, match="append-only"):
        table.update({"score": 1.0})
    source = pa.table({"id": [970, 5], "day": ["u", "u"], "score": [9.0, 1.0]})
    assert table.merge(source, "t.id = s.id").when_not_matched_insert_all().execute().rows_inserted == 1


def test_a_repeated_application_version_is_skipped(catalog: deltars.Catalog) -> None:
    table = _features(catalog, {})
    first = table.update({"score": "score"}, "id = 970", app_id="job", app_version=3)
    again = table.delete(app_id="job", app_version=3)
    assert (first.skipped, again.skipped) == (False, True)
    assert len(_rows(table)) == 9


def test_a_repeated_transaction_changes_nothing(catalog: deltars.Catalog) -> None:
    table = _features(catalog, {})
    for _ in range(2):
        with catalog.begin(txn_id="erase-ada") as tx:
            tx.delete("features", "id = 970")
            tx.delete("features", "id = 4711")
            tx.update("features", {"score": "score"}, "id = 971")
    assert table.version == 4


def test_two_merges_of_one_absent_key_never_both_insert(catalog: deltars.Catalog) -> None:
    table = _features(catalog, {})
    source = pa.table({"id": [5], "day": ["u"], "score": [1.0]})
    first, second = catalog.begin(isolation="serializable"), catalog.begin(isolation="serializable")
    for tx in (first, second):
        tx.merge("features", source, "t.id = s.id").when_not_matched_insert_all().execute()
    first.commit()
    with pytest.raises(ConcurrentAppend):
        second.commit()
    assert sum(row[0] == 5 for row in _rows(table)) == 1


@STORAGES
def test_a_condition_on_the_partition_opens_no_file(
    catalog: deltars.Catalog, properties: dict[str, str], tmp_path: Any
) -> None:
    table = _features(catalog, properties, partition_by="day")
    for file in table.files(where="day = 'a'")["path"].to_pylist():
        # A file that is opened would fail: it is no Parquet file any more.
        with open(f"{table.location}/{file}", "wb") as broken:
            broken.write(b"broken")
    assert table.delete("day = 'a'").rows_deleted == 3
    assert {row[1] for row in _rows(table)} == {"b", "c"}


def test_a_merge_opens_only_files_that_can_hold_its_keys(catalog: deltars.Catalog) -> None:
    table = _features(catalog, {})
    for file in table.files(where="day <> 'a'")["path"].to_pylist():
        with open(f"{table.location}/{file}", "wb") as broken:
            broken.write(b"broken")
    source = pa.table({"id": [970], "day": ["u"], "score": [9.0]})
    merge = table.merge(source, "t.id = s.id").when_matched_update_all().when_not_matched_insert_all().execute()
    assert merge.rows_updated == 1


def test_purge_writes_deleted_rows_away(catalog: deltars.Catalog) -> None:
    table = _features(catalog, VECTORS)
    table.delete("id IN (970, 981)")
    before = _rows(table)
    metrics = table.purge()
    assert metrics.files_removed == metrics.files_added == 2
    assert table.files()["deletion_vector"].null_count == 3
    assert _rows(table) == before


def test_a_merge_is_executed_once(catalog: deltars.Catalog) -> None:
    table = _features(catalog, {})
    merge = table.merge(
        pa.table({"id": [5], "day": ["u"], "score": [1.0]}), "t.id = s.id"
    ).when_not_matched_insert_all()
    merge.execute()
    with pytest.raises(ValidationError, match="executed already"):
        merge.execute()
    with pytest.raises(ValidationError, match="executed already"):
        merge.when_matched_delete()
    assert table.version == 4


def test_a_merge_of_a_table_that_was_not_executed_warns(
    catalog: deltars.Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    table = _features(catalog, {})
    source = pa.table({"id": [5], "day": ["u"], "score": [1.0]})
    with pytest.warns(ResourceWarning, match="never executed"):
        table.merge(source, "t.id = s.id").when_not_matched_insert_all()
    assert "never executed" in caplog.text


def test_rows_of_staged_files_are_counted_and_get_vectors(catalog: deltars.Catalog) -> None:
    catalog.create_table("staged", "id BIGINT, p STRING", partition_by="p", properties=VECTORS)
    with catalog.begin() as tx:
        tx.write("staged", pa.table({"id": [1, 2, 3], "p": ["a", "a", "b"]}))
        assert tx.delete("staged", "p = 'b'").rows_deleted == 1
        found = tx.delete("staged", "id = 2")
        assert (found.rows_deleted, found.files_with_vector) == (1, 1)
    assert _rows(catalog.table("staged")) == [(1, "a")]


def test_a_text_that_is_no_expression_gets_a_hint(catalog: deltars.Catalog) -> None:
    table = _features(catalog, {})
    for value in ("Bob", "Bob Smith"):
        with pytest.raises(ValidationError, match="for a string"):
            table.update({"day": value}, "id = 970")
    with pytest.raises(ValidationError, match="compared"):
        table.delete(False)


def test_a_field_of_a_column_with_a_dot_in_its_name_is_found_beside_a_struct_of_the_first_part(
    catalog: deltars.Catalog,
) -> None:
    ddl = "a STRUCT<x: BIGINT>, `a.b` STRUCT<c: BIGINT, d: BIGINT>"
    table = catalog.create_table("t", ddl, properties={"delta.columnMapping.mode": "name"})
    table.write(pa.table({"a": [{"x": 1}], "a.b": [{"c": 1, "d": 1}]}))
    table.update({"`a.b`.c": 5, "A.X": 6})
    assert table.to_arrow().to_pylist() == [{"a": {"x": 6}, "a.b": {"c": 5, "d": 1}}]
