"""Add actions as Arrow columns: the rules of single actions, and refusals that name row and column."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from deltars.errors import ValidationError
from deltars.log.arrow_adds import canonical
from deltars.log.commit import TableCommit
from deltars.log.validation import check_actions
from deltars.protocol import Action
from tests.support.log import added, removed, stats, vector

TABLE_ID = UUID(int=7)
VECTOR = '{"storageType":"u","pathOrInlineDv":"x","offset":1,"sizeInBytes":1,"cardinality":1}'
MAP = pa.map_(pa.string(), pa.string())


def columns(**changed: Any) -> pa.Table:
    """Three files; a changed column takes the place of the good one, None leaves it out."""
    values: dict[str, Any] = {
        "path": ["a.parquet", "day=1/b.parquet", "c%20c.parquet"],
        "partition_values": ["{}", "{}", "{}"],
        "size": [1, 2, 3],
        "modification_time": [1, 2, 3],
        "data_change": [True, True, True],
    }
    return pa.table({name: value for name, value in (values | changed).items() if value is not None})


def check(adds: pa.Table, *actions: Action) -> None:
    check_actions(TableCommit(TABLE_ID, 3, actions, "WRITE", adds=canonical(adds)))


def refusal(adds: pa.Table, *actions: Action) -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        check(adds, *actions)
    return caught.value


@pytest.mark.parametrize("column", ["path", "partition_values", "size", "modification_time", "data_change"])
def test_required_column_that_is_missing_or_null_is_refused(column: str) -> None:
    error = refusal(columns(**{column: None}))
    assert (error.field, error.message) == (column, f"the table of add actions has no column {column}")
    some = columns()[column].to_pylist()
    error = refusal(columns(**{column: [some[0], some[1], None]}))
    assert (error.field, error.message) == (column, f"row 2: {column}: is null")
    assert error.table_id == str(TABLE_ID)


def test_unknown_column_is_refused() -> None:
    error = refusal(columns(partitionValues=["{}"] * 3))
    assert (error.field, error.message) == ("partitionValues", "an add action has no field partitionValues")


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("path", [1, 2, 3]),
        ("path", [b"a", b"b", b"c"]),
        ("size", ["1", "2", "3"]),
        ("size", [1.0, 2.0, 3.0]),
        ("modification_time", pa.array([1, 2, 3], pa.timestamp("ms"))),
        ("data_change", [1, 1, 1]),
        ("data_change", ["true"] * 3),
        ("stats", [{"numRecords": 1}] * 3),
        ("partition_values", [[], [], []]),
        ("partition_values", [{"a": "1"}] * 3),
        ("tags", [1, 2, 3]),
        ("deletion_vector", [1, 2, 3]),
        ("base_row_id", ["1", "2", "3"]),
        ("clustering_provider", [1, 2, 3]),
    ],
)
def test_column_of_the_wrong_type_is_refused_by_its_name(column: str, values: Any) -> None:
    error = refusal(columns(**{column: values}))
    assert error.field == column
    assert f"the column {column} is of type " in error.message


def test_number_past_64_bits_is_refused() -> None:
    assert refusal(columns(size=pa.array([1, 2, 2**64 - 1], pa.uint64()))).field == "size"


@pytest.mark.parametrize(
    ("column", "values", "row", "why"),
    [
        ("path", ["a", "b/../c", "d"], 1, ".."),
        ("path", ["a", "b", "/d"], 2, "absolute"),
        ("path", ["a", "b", ""], 2, "empty"),
        ("path", ["a", "_delta_log/b", "c"], 1, "inside _delta_log"),
        ("path", ["a", "./b", "c"], 1, "empty or a . segment"),
        ("path", ["a", "b/", "c"], 1, "empty or a . segment"),
        ("path", ["a", "b\n", "c"], 1, "control character"),
        ("path", ["a%00", "b", "c"], 0, "control character"),
        ("path", ["a", "b", "a"], 2, "duplicate add of a, also in row 0"),
        ("size", [1, -1, 3], 1, "negative"),
        ("modification_time", [1, 2, -3], 2, "negative"),
        ("base_row_id", [None, 2, -3], 2, "negative"),
        ("default_row_commit_version", [-1, 2, 3], 0, "negative"),
        ("partition_values", ["{}", "{", "{}"], 1, "not an object of strings"),
        ("partition_values", ["{}", "{}", '{"a":1}'], 2, "not an object of strings"),
        ("partition_values", ["{}", "[]", "{}"], 1, "not an object of strings"),
        ("partition_values", ["{}", r'{"a":"\u0000"}', "{}"], 1, "U+0000"),
        ("partition_values", pa.array([[], [("a", "\0")], []], MAP), 1, "U+0000"),
        ("partition_values", pa.array([[], [], [("a", 1)]], pa.map_(pa.string(), pa.int64())), 2, "not an object"),
        ("tags", [None, None, "{"], 2, "not an object of strings"),
        ("tags", [None, r'{"a":"\u0000"}', None], 1, "U+0000"),
        ("stats", [None, "{", None], 1, "not a JSON object"),
        ("stats", [None, None, '{"numRecords":-1}'], 2, "numRecords must not be negative"),
    ],
)
def test_bad_value_is_refused_by_row_and_column(column: str, values: Any, row: int, why: str) -> None:
    error = refusal(columns(**{column: values}))
    assert error.field == column
    assert error.message.startswith(f"row {row}: {column}: ")
    assert why in error.message


@pytest.mark.parametrize(
    ("vectors", "row", "why"),
    [
        ([VECTOR, "{", None], 1, "not a deletion vector"),
        ([VECTOR, None, '{"storageType":"u"}'], 2, "not a deletion vector"),
        ([VECTOR.replace('"u"', '"q"'), None, None], 0, "storage type is 'q'"),
        (pa.array([None, {"storage_type": "u"}, None]), 1, "not a deletion vector"),
    ],
)
def test_bad_deletion_vector_is_refused_by_its_row(vectors: Any, row: int, why: str) -> None:
    error = refusal(columns(deletion_vector=vectors, stats=[stats()] * 3))
    assert error.field == "deletion_vector"
    assert error.message.startswith(f"row {row}: deletion_vector: ")
    assert why in error.message


def test_file_with_a_deletion_vector_needs_its_count() -> None:
    vectors = [None, VECTOR, None]
    for given in (None, [stats(), None, None], [stats(), "{}", stats()]):
        error = refusal(columns(deletion_vector=vectors, stats=given))
        assert (error.field, error.message) == ("stats", "row 1: stats: a file with a deletion vector needs numRecords")
    check(columns(deletion_vector=vectors, stats=[None, stats(), None]))


def test_rows_are_counted_over_all_chunks() -> None:
    first, second = columns(), columns(path=["d", "e", "../f"])
    assert refusal(pa.concat_tables([first, second])).message.startswith("row 5: path: ")
    second = columns(path=["d", "e", "a.parquet"])
    assert (
        "row 5: path: duplicate add of a.parquet, also in row 0" in refusal(pa.concat_tables([first, second])).message
    )


def test_file_that_also_stands_among_the_actions_is_refused_unless_its_deletion_vector_differs() -> None:
    for action in (added("day=1/b.parquet"), removed("day=1/b.parquet")):
        error = refusal(columns(), added("other"), action)
        assert error.field == "path"
        assert "row 1: path: duplicate file day=1/b.parquet" in error.message
    check(columns(), removed("day=1/b.parquet", deletion_vector=vector()))
    with_vector = columns(deletion_vector=[None, VECTOR, None], stats=[stats()] * 3)
    check(with_vector, removed("day=1/b.parquet"))


@pytest.mark.parametrize("type_", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())])
def test_text_in_any_of_arrow_s_forms_is_accepted(type_: pa.DataType) -> None:
    adds = columns(stats=[stats()] * 3)
    for name in ("path", "partition_values", "stats"):
        adds = adds.set_column(adds.column_names.index(name), name, adds[name].cast(type_))
    check(adds)
    assert canonical(adds) == columns(stats=[stats()] * 3)


def test_optional_column_of_nothing_is_accepted() -> None:
    nothing = dict.fromkeys(("stats", "tags", "deletion_vector", "base_row_id", "clustering_provider"), pa.nulls(3))
    check(columns(**nothing))


def test_no_files_at_all_are_accepted() -> None:
    check(columns().slice(0, 0))
    check(columns().schema.empty_table())


def test_canonical_columns_are_not_copied() -> None:
    adds = columns()
    assert canonical(adds) is adds
