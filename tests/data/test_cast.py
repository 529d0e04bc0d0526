"""What fits a table's schema, and what the refusal says."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from deltars.data.write_schema import check_fits, fit
from deltars.errors import SchemaMismatch
from deltars.protocol import schema_from_ddl, schema_to_arrow


def fitted(ddl: str, data: pa.RecordBatch) -> list[dict[str, Any]]:
    table = schema_to_arrow(schema_from_ddl(ddl))
    batch = fit(data, table)
    assert batch.schema.names == table.names
    rows: list[dict[str, Any]] = batch.to_pylist()
    return rows


def test_columns_are_matched_by_name_in_any_case_and_any_order() -> None:
    assert fitted("id BIGINT, Name STRING", pa.record_batch({"NAME": ["a"], "Id": [1]})) == [{"id": 1, "Name": "a"}]


def test_missing_columns_become_null() -> None:
    assert fitted("id BIGINT, s STRUCT<x: INT>", pa.record_batch({"id": [1]})) == [{"id": 1, "s": None}]


def test_fields_of_structs_are_matched_like_columns() -> None:
    data = pa.record_batch({"s": [{"B": 1, "a": "x"}, None]})
    assert fitted("s STRUCT<a: STRING, b: BIGINT, c: DATE>", data) == [
        {"s": {"a": "x", "b": 1, "c": None}},
        {"s": None},
    ]


def test_structs_inside_lists_and_maps_are_matched_too_in_slices() -> None:
    structs = pa.array([[{"B": 1}], [], None, [{"B": 2}, None]])
    maps = pa.array([[("k", {"B": 1})], [], None, [("l", None)]], pa.map_(pa.string(), pa.struct([("B", pa.int64())])))
    data = pa.record_batch({"l": structs, "m": maps}).slice(1)
    assert fitted("l ARRAY<STRUCT<a: INT, b: INT>>, m MAP<STRING, STRUCT<b: BIGINT>>", data) == [
        {"l": [], "m": []},
        {"l": None, "m": None},
        {"l": [{"a": None, "b": 2}, None], "m": [("l", None)]},
    ]


@pytest.mark.parametrize("offsets", [None, pa.py_buffer(b"")])
def test_empty_lists_and_maps_may_come_without_offsets(offsets: pa.Buffer | None) -> None:
    entries = pa.StructArray.from_arrays([pa.array([], pa.string()), pa.array([], pa.int32())], ["key", "value"])
    lists = pa.Array.from_buffers(pa.list_(pa.int32()), 0, [None, offsets], children=[pa.array([], pa.int32())])
    maps = pa.Array.from_buffers(pa.map_(pa.string(), pa.int32()), 0, [None, offsets], children=[entries])
    outer = [pa.ListArray.from_arrays([0, 0], inner) for inner in (lists, maps)]
    batch = pa.RecordBatch.from_arrays(outer, ["lists", "maps"])
    schema = schema_to_arrow(schema_from_ddl("lists ARRAY<ARRAY<BIGINT>>, maps ARRAY<MAP<STRING, BIGINT>>"))
    fitted = fit(batch, schema)
    fitted.validate(full=True)
    assert fitted.to_pylist() == [{"lists": [], "maps": []}]


@pytest.mark.parametrize(
    ("values", "ddl", "expected"),
    [
        (pa.array([127], pa.int64()), "TINYINT", 127),
        (pa.array([7], pa.uint64()), "BIGINT", 7),
        (pa.array([7], pa.int32()), "DECIMAL(12,2)", Decimal("7.00")),
        (pa.array([2**53], pa.int64()), "DOUBLE", 2.0**53),
        (pa.array([1.5], pa.float32()), "DOUBLE", 1.5),
        (pa.array([Decimal("1.2")], pa.decimal128(5, 1)), "DECIMAL(10,3)", Decimal("1.200")),
        (pa.array([Decimal("1.200")], pa.decimal128(10, 3)), "DECIMAL(5,1)", Decimal("1.2")),
        (pa.array(["x"], pa.large_string()), "STRING", "x"),
        (pa.array(["x"], pa.string_view()), "STRING", "x"),
        (pa.array(["x"]).dictionary_encode(), "STRING", "x"),
        (pa.array([b"xy"], pa.binary(2)), "BINARY", b"xy"),
        (pa.array([1_000], pa.timestamp("ns")), "TIMESTAMP_NTZ", datetime(1970, 1, 1, 0, 0, 0, 1)),
        (pa.array([0], pa.timestamp("s", "Asia/Tokyo")), "TIMESTAMP", datetime(1970, 1, 1, tzinfo=UTC)),
        (pa.array([[1]], pa.large_list(pa.int64())), "ARRAY<INT>", [1]),
        (pa.array([[1, 2]], pa.list_(pa.int64(), 2)), "ARRAY<INT>", [1, 2]),
        (pa.nulls(1), "ARRAY<STRUCT<a: INT NOT NULL>>", None),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else None,
)
def test_a_cast_that_changes_no_value_is_made(values: pa.Array, ddl: str, expected: object) -> None:
    data = pa.record_batch({"c": values})
    check_fits(data.schema, schema_to_arrow(schema_from_ddl(f"c {ddl}")))
    assert fitted(f"c {ddl}", data) == [{"c": expected}]


@pytest.mark.parametrize(
    ("values", "ddl"),
    [
        (pa.array([128], pa.int64()), "TINYINT"),
        (pa.array([-1, 2**63], pa.decimal128(20, 0)), "DECIMAL(18,0)"),
        (pa.array([2**53 + 1], pa.int64()), "DOUBLE"),
        (pa.array([Decimal("1.25")], pa.decimal128(5, 2)), "DECIMAL(5,1)"),
        (pa.array([1], pa.timestamp("ns")), "TIMESTAMP_NTZ"),
        (pa.array([[128]], pa.list_(pa.int64())), "ARRAY<TINYINT>"),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else None,
)
def test_a_value_that_would_change_is_refused(values: pa.Array, ddl: str) -> None:
    table = schema_to_arrow(schema_from_ddl(f"c {ddl}"))
    data = pa.record_batch({"c": values})
    check_fits(data.schema, table)
    with pytest.raises(SchemaMismatch, match="holds a value that does not fit"):
        fit(data, table)


@pytest.mark.parametrize(
    ("source", "ddl"),
    [
        (pa.string(), "BIGINT"),
        (pa.int64(), "STRING"),
        (pa.float64(), "BIGINT"),
        (pa.float64(), "FLOAT"),
        (pa.int64(), "DECIMAL(18,0)"),
        (pa.int64(), "BOOLEAN"),
        (pa.timestamp("us"), "TIMESTAMP"),
        (pa.timestamp("us", "UTC"), "TIMESTAMP_NTZ"),
        (pa.date32(), "TIMESTAMP"),
        (pa.string(), "BINARY"),
        (pa.duration("us"), "BIGINT"),
        (pa.int64(), "STRUCT<a: BIGINT>"),
        (pa.struct([("a", pa.int64())]), "BIGINT"),
        (pa.list_(pa.string()), "ARRAY<INT>"),
        (pa.list_(pa.int64()), "MAP<STRING, INT>"),
    ],
    ids=str,
)
def test_types_that_may_lose_something_are_refused_before_any_row(source: pa.DataType, ddl: str) -> None:
    with pytest.raises(SchemaMismatch, match="in the data"):
        check_fits(pa.schema([("c", source)]), schema_to_arrow(schema_from_ddl(f"c {ddl}")))


def test_the_refusal_names_the_column_and_shows_both_schemas() -> None:
    table = schema_to_arrow(schema_from_ddl("id BIGINT NOT NULL, s STRUCT<x: INT>"))
    with pytest.raises(SchemaMismatch) as caught:
        check_fits(pa.schema([("id", pa.int64()), ("s", pa.struct([("x", pa.string())]))]), table)
    assert caught.value.field == "s.x"
    assert str(caught.value).splitlines() == [
        "the data does not fit the table: column s.x is string in the data, integer in the table",
        "  data:  struct<id: long, s: struct<x: string>>",
        "  table: struct<id: long not null, s: struct<x: integer>>",
        "Cast it in the frame, or replace the table's schema: mode='overwrite', overwrite_schema=True.",
    ]


def test_data_of_a_type_that_delta_does_not_have_is_shown_as_arrow_names_it() -> None:
    with pytest.raises(SchemaMismatch, match=r"column t is time64\[us\] in the data, string in the table"):
        check_fits(pa.schema([("t", pa.time64("us"))]), schema_to_arrow(schema_from_ddl("t STRING")))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (pa.record_batch({"id": [1], "extra": [2]}), "column extra is not in the table"),
        (pa.record_batch({"id": [1], "s": [{"x": 1, "y": 2}]}), r"column s\.y is not in the table"),
        (pa.record_batch({"id": [1], "ID": [2]}), "column ID is in the data twice"),
        (pa.record_batch({"s": [{"x": 1}]}), "column id is NOT NULL and missing"),
        (
            pa.record_batch({"id": [None]}, schema=pa.schema([("id", pa.int64())])),
            "column id is NOT NULL and has nulls",
        ),
        (pa.record_batch({"id": [1], "s": [{"x": None}]}), r"column s\.x is NOT NULL and has nulls"),
        (pa.record_batch({"id": [1], "l": [[None]]}), r"column l\.element is NOT NULL and has nulls"),
        (
            pa.record_batch({"id": [1], "m": pa.array([[("k", None)]], pa.map_(pa.string(), pa.int64()))}),
            r"column m\.value is NOT NULL and has nulls",
        ),
    ],
    ids=lambda value: None if isinstance(value, pa.RecordBatch) else value,
)
def test_what_does_not_fit_is_refused_with_its_reason(data: pa.RecordBatch, reason: str) -> None:
    table = (
        schema_to_arrow(schema_from_ddl("id BIGINT NOT NULL, s STRUCT<x: INT NOT NULL>"))
        .append(pa.field("l", pa.list_(pa.field("element", pa.int64(), nullable=False))))
        .append(pa.field("m", pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False))))
    )
    with pytest.raises(SchemaMismatch, match=reason):
        fit(data, table)


def test_a_required_field_of_a_null_struct_misses_nothing() -> None:
    structs = pa.StructArray.from_arrays([pa.array([1, None])], names=["x"], mask=pa.array([False, True]))
    assert structs.field("x").null_count == 1
    data = pa.record_batch({"s": structs})
    assert fitted("s STRUCT<x: BIGINT NOT NULL>", data) == [{"s": {"x": 1}}, {"s": None}]
