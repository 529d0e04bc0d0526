"""DELETE, UPDATE and MERGE by Arrow: as a model in plain Python says, and what is refused before a row is read."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltars.data import evaluation
from deltars.data.arrow_change import ArrowChanges
from deltars.data.evaluation import RowCondition
from deltars.data.row_change import Clause, Delete, Merge, RowChanges, Update
from deltars.data.row_ids import reading_ids
from deltars.data.scan import Scan
from deltars.errors import PredicateError, SchemaMismatch, SourceConsumed, ValidationError
from deltars.protocol import StructType, schema_from_ddl
from tests.support import change_model as model
from tests.support.scans import scan_of_files, write_file
from tests.support.soak import scaled

PLANE = ArrowChanges()


@settings(max_examples=scaled(40, soak=5_000), deadline=None)
@given(st.data())
@pytest.mark.soak
def test_delete_takes_the_rows_that_match(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as root:
        table = data.draw(model.tables(Path(root), "long"))
        where, holds = data.draw(st.sampled_from(model.WHERE))
        assert PLANE.refusal(Delete(where), table.scan.schema) is None
        changes = PLANE.delete(table.scan, Delete(where))
        left = [row for row in table.rows if holds(row, None) is not True]
        assert table.after(changes) == model.bag(left)
        assert (changes.deleted, changes.updated, changes.inserted) == (len(table.rows) - len(left), 0, 0)


@settings(max_examples=scaled(40, soak=5_000), deadline=None)
@given(st.data())
@pytest.mark.soak
def test_update_changes_the_rows_that_match(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as root:
        table = data.draw(model.tables(Path(root), data.draw(st.sampled_from(sorted(model.KEYS)))))
        where, holds = data.draw(st.sampled_from(model.WHERE))
        values, new = data.draw(st.sampled_from(model.SET))
        statement = Update(values, where)
        assert PLANE.refusal(statement, table.scan.schema) is None
        changes = PLANE.update(table.scan, statement)
        expected = [{**row, **new(row, None)} if holds(row, None) is True else row for row in table.rows]
        assert table.after(changes) == model.bag(expected)
        assert changes.updated == sum(holds(row, None) is True for row in table.rows)


@settings(max_examples=scaled(60, soak=10_000), deadline=None)
@given(st.data())
@pytest.mark.soak
def test_merge_does_what_the_model_does(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as root:
        key = data.draw(st.sampled_from(sorted(model.KEYS)))
        table = data.draw(model.tables(Path(root), key))
        source, rows = data.draw(st.composite(model.source_of)(key))
        on, matches = data.draw(st.sampled_from(model.ON))
        clauses = data.draw(model.clauses())
        statement = Merge(source, on or "", [each.clause for each in clauses])
        read = PLANE.source(statement, table.scan.schema)
        assert PLANE.refusal(statement, table.scan.schema, read.schema) is None
        try:
            expected = model.merged(table.rows, rows, matches, clauses)
        except model.DuplicateMatchError:
            with pytest.raises(ValidationError, match="multiple source rows matched"):
                PLANE.merge(table.scan, statement, read)
            return
        changes = PLANE.merge(table.scan, statement, read)
        assert table.after(changes) == expected
        assert sum(map(len, changes.positions.values())) == changes.updated + changes.deleted
        assert sum(expected.values()) == len(table.rows) - changes.deleted + changes.inserted


# -- by example -------------------------------------------------------------------------------------------------------

UPSERT = (Clause("matched", "update", is_source=True), Clause("not_matched", "insert", is_source=True))
DDL = "id BIGINT, name STRING"


@pytest.fixture
def scan(tmp_path: Path) -> Scan:
    files = [
        write_file(tmp_path, "a.parquet", {"id": [1, 2, 3], "name": ["a", "b", "c"]}, deleted=[1]),
        write_file(tmp_path, "b.parquet", {"id": pa.array([4, None], pa.int64()), "name": ["d", None]}),
    ]
    return scan_of_files(tmp_path, DDL, files)


def _merge(scan: Scan, source: object, *clauses: Clause, on: str = "t.id = s.id") -> RowChanges:
    statement = Merge(source, on, clauses)
    return PLANE.merge(scan, statement, PLANE.source(statement, scan.schema))


def _came(changes: RowChanges) -> list[dict[str, Any]]:
    return [row for frame in changes.rows for row in frame.to_pylist()]  # type: ignore[attr-defined]


def test_upsert_replaces_inserts_and_never_matches_null_or_a_deleted_row(scan: Scan) -> None:
    source = pa.table({"id": pa.array([1, 2, None], pa.int64()), "name": ["x", "y", "z"]})
    changes = _merge(scan, source, *UPSERT)
    assert {place: list(rows) for place, rows in changes.positions.items()} == {0: [0]}
    assert sorted(row["name"] for row in _came(changes)) == ["x", "y", "z"]
    assert (changes.updated, changes.deleted, changes.inserted) == (1, 0, 2)
    assert changes.metrics["numSourceRows"] == 3
    assert changes.metrics["numTargetRowsMatchedUpdated"] == 1


def test_upsert_reads_no_column_but_the_key(tmp_path: Path) -> None:
    """The file has an int where the table has a string: reading that column would fail."""
    file = write_file(tmp_path, "a.parquet", {"id": [1, 2], "name": [[1], [2]]})
    changes = _merge(scan_of_files(tmp_path, DDL, [file]), pa.table({"id": [2, 3], "name": ["x", "y"]}), *UPSERT)
    assert list(changes.positions[0]) == [1]
    assert changes.inserted == 1


def test_one_source_row_may_change_several_rows(tmp_path: Path) -> None:
    scan = scan_of_files(tmp_path, DDL, [write_file(tmp_path, "a.parquet", {"id": [1, 1, 2], "name": ["a", "b", "c"]})])
    changes = _merge(scan, pa.table({"id": [1], "name": ["x"]}), *UPSERT)
    assert _came(changes) == [{"id": 1, "name": "x"}] * 2
    assert (changes.updated, changes.inserted) == (2, 0)


def test_update_reads_other_columns_of_matching_files_only(tmp_path: Path) -> None:
    bad = write_file(tmp_path, "bad.parquet", {"id": [7], "name": [[1]]})
    good = write_file(tmp_path, "good.parquet", {"id": [1, 2], "name": ["a", "b"]})
    scan = scan_of_files(tmp_path, DDL, [bad, good])
    changes = PLANE.update(scan, Update({"name": "'x'"}, "id = 2"))
    assert _came(changes) == [{"id": 2, "name": "x"}]
    assert list(changes.positions) == [1]


@pytest.mark.parametrize("rows", [[], [{"id": None, "name": "x"}]])
def test_source_that_can_match_nothing_has_no_keys(scan: Scan, rows: list[Any]) -> None:
    source = pa.Table.from_pylist(rows, pa.schema({"id": pa.int64(), "name": pa.string()}))
    statement = Merge(source, "t.id = s.id", UPSERT)
    read = PLANE.source(statement, scan.schema)
    assert read.keys is None
    changes = PLANE.merge(scan, statement, read)
    assert (changes.positions, changes.inserted) == ({}, len(rows))


def test_keys_that_can_match_are_listed_in_order(scan: Scan) -> None:
    source = pa.table(
        {
            "id": pa.array([5, 3, None, 5, 9], pa.uint8()),
            "name": pa.array(["a", "b", "c", "d", "e"]).dictionary_encode(),
        }
    )
    read = PLANE.source(Merge(source, "t.id = s.id AND t.name = s.name AND s.name <> 'e'", UPSERT), scan.schema)
    ids, labels = read.keys or ()
    assert (str(ids.column), ids.values, ids.smallest, ids.largest) == ("id", [3, 5], 3, 5)
    assert labels.values == ["a", "b", "c", "d"]
    assert read.num_rows == 5
    assert read.schema == schema_from_ddl("id SMALLINT, name STRING")


def test_too_many_keys_are_a_range(scan: Scan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deltars.data.keys.MAX_VALUES", 3)
    source = pa.table({"id": [5, 4, 3, 2], "name": ["", "", "", ""]})
    [key] = PLANE.source(Merge(source, "t.id = s.id", UPSERT), scan.schema).keys or ()
    assert (key.smallest, key.largest, key.values) == (2, 5, None)


def test_key_beyond_python_s_calendar_still_matches(tmp_path: Path) -> None:
    late = pa.array([2**60, 0], pa.timestamp("us", "UTC"))
    scan = scan_of_files(
        tmp_path, "at TIMESTAMP, v INT", [write_file(tmp_path, "a.parquet", pa.table({"at": late, "v": [1, 2]}))]
    )
    statement = Merge(pa.table({"at": late[:1], "v": [7]}), "t.at = s.at", UPSERT)
    read = PLANE.source(statement, scan.schema)
    assert read.keys == []
    assert list(PLANE.merge(scan, statement, read).positions[0]) == [0]


@pytest.mark.parametrize("kind", ["pandas", "polars", "batch", "reader", "stream"])
def test_any_arrow_frame_is_a_source(scan: Scan, kind: str) -> None:
    table = pa.table({"id": [1, 9], "name": ["x", "y"]})
    sources: dict[str, Callable[[], object]] = {
        "pandas": lambda: pd.DataFrame({"id": [1, 9], "name": ["x", "y"]}),
        "polars": lambda: pl.DataFrame({"id": [1, 9], "name": ["x", "y"]}),
        "batch": lambda: table.to_batches()[0],
        "reader": lambda: table.to_reader(),
        "stream": lambda: _Stream(table),
    }
    source = sources[kind]()
    changes = _merge(scan, source, *UPSERT)
    assert (changes.updated, changes.inserted) == (1, 1)
    if kind == "reader":
        with pytest.raises(SourceConsumed):
            _merge(scan, source, *UPSERT)


class _Stream:
    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def test_names_that_collide_are_kept_apart(tmp_path: Path) -> None:
    names = ["t", "s", "_metadata", "__deltars_row", "a.b", "we`ird"]
    table = pa.table({name: [place] for place, name in enumerate(names)})
    schema = StructType.from_dict({"type": "struct", "fields": [
        {"name": name, "type": "long", "nullable": True, "metadata": {}} for name in names]})  # fmt: skip
    scan = scan_of_files(tmp_path, schema, [write_file(tmp_path, "x.parquet", table)])
    changes = _merge(
        scan, table,
        Clause("matched", "update", "t.t = s.t AND t.`a.b` = 4", {"s": "t.s + s.s", "a.b": "s.`we``ird` * 2"}),
        on="t.s = s.s",
    )  # fmt: skip
    assert _came(changes) == [dict(zip(names, [0, 2, 2, 3, 10, 5], strict=True))]


def test_matched_delete_alone_allows_duplicates_and_counts_rows_once(scan: Scan) -> None:
    source = pa.table({"id": [1, 1, 4]})
    changes = _merge(scan, source, Clause("matched", "delete"))
    assert (changes.deleted, changes.metrics["numTargetRowsMatchedDeleted"]) == (2, 2)
    with pytest.raises(ValidationError, match="multiple source rows matched"):
        _merge(scan, source, Clause("matched", "delete", "s.id > 0"))


def test_duplicates_that_no_clause_changes_are_allowed(scan: Scan) -> None:
    source = pa.table({"id": [1, 1], "name": ["x", "y"]})
    changes = _merge(scan, source, Clause("matched", "update", "s.name = 'y'", {"name": "s.name"}))
    assert _came(changes) == [{"id": 1, "name": "y"}]


def test_generated_column_is_left_to_the_table(tmp_path: Path) -> None:
    field = {"name": "double", "type": "long", "nullable": True, "metadata": {"delta.generationExpression": "id * 2"}}
    schema = StructType.from_dict({"type": "struct", "fields": [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}}, field]})  # fmt: skip
    scan = scan_of_files(tmp_path, schema, [write_file(tmp_path, "a.parquet", {"id": [1], "double": [2]})])
    assert _came(PLANE.update(scan, Update({"id": "5"}, None))) == [{"id": 5}]
    assert _came(PLANE.update(scan, Update({"id": "5", "double": "10"}, None))) == [{"id": 5, "double": 10}]


def _tracked(scan: Scan) -> Scan:
    files = scan.files.append_column("base_row_id", pa.array([100, 200], pa.int64()))
    files = files.append_column("default_row_commit_version", pa.array([1, 2], pa.int64()))
    return reading_ids(replace(scan, source=files), ["_id", "_version"])


def test_updated_rows_keep_their_ids_and_get_a_new_commit_version(scan: Scan) -> None:
    tracked = _tracked(scan)
    changes = PLANE.update(tracked, Update({"name": "'x'"}, "id >= 3"))
    assert _came(changes) == [{"id": 3, "name": "x", "_id": 102}, {"id": 4, "name": "x", "_id": 200}]
    source = pa.table({"id": [1, 4, 9], "name": ["x", "y", "z"]})
    upserted = _came(_merge(tracked, source, *UPSERT))
    assert upserted[:2] == [{"id": 1, "name": "x", "_id": 100}, {"id": 4, "name": "y", "_id": 200}]
    assert upserted[2] == {"id": 9, "name": "z"}
    others = _merge(tracked, source, Clause("not_matched_by_source", "update", None, {"name": "'o'"}))
    assert sorted(row["_id"] for row in _came(others)) == [102, 201]
    with pytest.raises(ValidationError, match="does not know the ids"):
        reading_ids(scan, ["_id", "_version"])


# -- refusals ---------------------------------------------------------------------------------------------------------

TABLE = schema_from_ddl(
    "id BIGINT, name STRING, x DOUBLE, f FLOAT, d DATE, at TIMESTAMP, n DECIMAL(38,30), s STRUCT<a: INT>"
)


class _Column:
    """As Spark's: not text."""


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        (Delete("upper(name) = 'X'"), "only Spark can compute UPPER"),
        (Delete("d = 01/02/2026"), "(a date is written in quotes: '2026-01-31')"),
        (Delete('"id" = 1'), "(a column is written without quotes, or in backquotes)"),
        (Delete(_Column()), "_Column is not SQL text"),
        (Delete("rand() < 0.5"), "only Spark"),
        (Update({"name": "upper(name)"}, None), "only Spark can compute UPPER"),
        (Update({"name": "x"}, None), "double to string"),
        (Update({"f": "f + id"}, None), "only Spark"),
        (Update({"at": "current_timestamp()"}, None), "only Spark"),
        (Update({"name": "substring(name, id, 2)"}, None), "only Spark"),
        (Update({"name": "'x'"}, "f > id"), "only Spark"),
        (Merge(None, "t.id < s.id", UPSERT), "a merge on t.id < s.id"),
        (Merge(None, "t.id = s.id AND length(t.name) = 1", UPSERT), "a merge on"),
        (Merge(None, "t.f = s.id", UPSERT), "f = id of float and long"),
        (Merge(None, "t.d = s.at", UPSERT), "d = at of date and timestamp"),
        (Merge(None, "t.n = s.id", UPSERT), "n = id of decimal"),
        (Merge(None, "t.s = s.s", UPSERT), "a merge on"),
        (Merge(None, _Column(), UPSERT), "not SQL text"),
        (Merge(None, "t.id = s.id", [Clause("matched", "delete", "rand() < s.x")]), "only Spark"),
    ],
)
def test_what_only_spark_can_do_is_refused_with_its_reason(statement: Any, reason: str) -> None:
    assert reason in (PLANE.refusal(statement, TABLE, TABLE) or "")


@pytest.mark.parametrize(
    ("statement", "error", "text"),
    [
        (Delete("nope = 1"), PredicateError, "no column nope"),
        (Delete("id ="), PredicateError, "ends too early"),
        (Update({"id": "name"}, None), SchemaMismatch, "column id is int64, and a value of type string"),
        (Update({"id": "TRUE"}, None), SchemaMismatch, "column id"),
        (Update({"d": "'2026-01-01'"}, None), SchemaMismatch, "column d"),
        (Update({"d": "2026-01-01"}, None), SchemaMismatch, "Write \"DATE '2026-01-31'\", or give a datetime.date"),
        (Update({"at": "2026-01-01"}, None), SchemaMismatch, "Write \"TIMESTAMP '2026-01-31 12:00:00'\""),
        (Update({"nope": "1"}, None), ValidationError, "no column 'nope'"),
        (Update({"s.b": "1"}, None), ValidationError, "no column 's.b'"),
        (Merge(None, "t.id = s.name", UPSERT), PredicateError, "cannot be compared"),
        (Merge(None, "t.id = s.id", [Clause("not_matched", "insert", "t.id = 1", {})]), PredicateError, "no column t"),
        (Merge(None, "t.id = s.id", [Clause("matched", "update", None, {"x": "id"})]), PredicateError, "ambiguous"),
    ],
)
def test_mistake_is_raised_before_a_row_is_read(statement: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        PLANE.refusal(statement, TABLE, TABLE)


def test_value_out_of_range_is_an_error_and_names_the_column(tmp_path: Path) -> None:
    scan = scan_of_files(tmp_path, "a TINYINT", [write_file(tmp_path, "a.parquet", {"a": pa.array([100], pa.int8())})])
    with pytest.raises(ValidationError, match="a value for column a is out of the range of int8"):
        PLANE.update(scan, Update({"a": "a + 100"}, None))


@pytest.mark.parametrize(
    ("type_", "sql", "expected"),
    [
        ("DECIMAL(3,1)", "CAST('1.25' AS DECIMAL(5,2))", Decimal("1.3")),
        ("DECIMAL(3,1)", "-1.25", Decimal("-1.3")),
        ("INT", "-1.99", -1),
        ("INT", "CAST('1.99' AS DOUBLE)", 1),
        ("FLOAT", "0.1", 0.10000000149011612),
        ("DOUBLE", "0.1", 0.1),
        ("STRING", "12", "12"),
        ("STRING", "FALSE", "false"),
        ("DATE", "TIMESTAMP '1969-12-31 23:59:59Z'", date(1969, 12, 31)),
        ("STRING", "substring('abc', 2, 5)", "bc"),
        ("DOUBLE", "1 / 4", 0.25),
        ("DOUBLE", "CASE WHEN 1 = 2 THEN 1 END", None),
        ("BIGINT", "9223372036854775807", 2**63 - 1),
    ],
)
def test_values_are_assigned_by_the_ansi_rules(tmp_path: Path, type_: str, sql: str, expected: Any) -> None:
    schema = schema_from_ddl(f"c {type_}, o INT")
    scan = scan_of_files(tmp_path, schema, [write_file(tmp_path, "a.parquet", {"o": pa.array([1], pa.int32())})])
    assert PLANE.refusal(Update({"c": sql}, None), schema) is None
    [row] = _came(PLANE.update(scan, Update({"c": sql}, None)))
    assert row == {"c": expected, "o": 1}


def test_operands_of_nested_expressions_are_evaluated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated = 0
    real = evaluation._evaluate

    def count(*given: Any) -> pa.Array:
        nonlocal evaluated
        evaluated += 1
        return real(*given)

    monkeypatch.setattr(evaluation, "_evaluate", count)
    depth = 12
    condition = RowCondition("(" * depth + "id" + " + 1)" * depth + " = 13", schema_from_ddl("id BIGINT"))
    assert condition.mask(pa.record_batch({"id": [0, 1, None]})).to_pylist() == [False, True, None]
    assert evaluated <= 3 * depth
