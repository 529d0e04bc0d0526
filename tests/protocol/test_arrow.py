"""Delta's schema as Arrow's, and back."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given

from deltars.errors import ValidationError
from deltars.protocol import (
    PrimitiveType,
    StructField,
    StructType,
    schema_from_arrow,
    schema_from_ddl,
    schema_to_arrow,
)
from tests.protocol import strategies


@given(strategies.arrow_schemas)
def test_every_schema_survives_the_round_trip(schema: StructType) -> None:
    assert schema_from_arrow(schema_to_arrow(schema)) == schema


@pytest.mark.parametrize(
    ("ddl", "arrow"),
    [
        ("STRING", pa.string()),
        ("BIGINT", pa.int64()),
        ("INT", pa.int32()),
        ("SMALLINT", pa.int16()),
        ("TINYINT", pa.int8()),
        ("FLOAT", pa.float32()),
        ("DOUBLE", pa.float64()),
        ("DECIMAL(38,10)", pa.decimal128(38, 10)),
        ("BOOLEAN", pa.bool_()),
        ("BINARY", pa.binary()),
        ("DATE", pa.date32()),
        ("TIMESTAMP", pa.timestamp("us", tz="UTC")),
        ("TIMESTAMP_NTZ", pa.timestamp("us")),
        ("VOID", pa.null()),
        ("ARRAY<INT>", pa.list_(pa.field("element", pa.int32()))),
        ("MAP<STRING, INT>", pa.map_(pa.string(), pa.int32())),
        ("STRUCT<x: INT NOT NULL>", pa.struct([pa.field("x", pa.int32(), nullable=False)])),
    ],
)
def test_every_type_has_its_one_form_in_arrow(ddl: str, arrow: pa.DataType) -> None:
    assert schema_to_arrow(schema_from_ddl(f"a {ddl}")).field("a").type == arrow


@pytest.mark.parametrize(
    ("arrow", "delta"),
    [
        (pa.uint8(), "short"),
        (pa.uint16(), "integer"),
        (pa.uint32(), "long"),
        (pa.uint64(), "decimal(20,0)"),
        (pa.float16(), "float"),
        (pa.large_string(), "string"),
        (pa.string_view(), "string"),
        (pa.large_binary(), "binary"),
        (pa.binary_view(), "binary"),
        (pa.binary(16), "binary"),
        (pa.json_(), "string"),
        (pa.date64(), "date"),
        (pa.timestamp("ns"), "timestamp_ntz"),
        (pa.timestamp("s", tz="Europe/Berlin"), "timestamp"),
        (pa.decimal32(5, 2), "decimal(5,2)"),
        (pa.decimal64(12, 2), "decimal(12,2)"),
        (pa.decimal256(38, 2), "decimal(38,2)"),
        (pa.decimal128(3, -2), "decimal(5,0)"),
        (pa.decimal128(2, 4), "decimal(4,4)"),
        (pa.dictionary(pa.int8(), pa.string()), "string"),
        (pa.run_end_encoded(pa.int32(), pa.int64()), "long"),
        (pa.large_list(pa.int8()), "array<byte>"),
        (pa.list_(pa.int8(), 3), "array<byte>"),
        (pa.list_view(pa.int8()), "array<byte>"),
        (pa.large_list_view(pa.int8()), "array<byte>"),
        (pa.map_(pa.dictionary(pa.int8(), pa.string()), pa.uint8()), "map<string,short>"),
    ],
)
def test_arrow_types_that_delta_can_hold_are_taken(arrow: pa.DataType, delta: str) -> None:
    assert str(schema_from_arrow(pa.schema([("a", arrow)]))["a"].type) == delta


@pytest.mark.parametrize(
    "arrow",
    [
        pa.time64("us"),
        pa.duration("s"),
        pa.month_day_nano_interval(),
        pa.decimal256(39, 0),
        pa.decimal128(38, -1),
    ],
)
def test_arrow_types_that_delta_has_not_are_refused_by_column(arrow: pa.DataType) -> None:
    schema = pa.schema([("s", pa.struct([("inner", pa.list_(arrow))]))])
    with pytest.raises(ValidationError, match=r"column s\.inner\.element"):
        schema_from_arrow(schema)


@pytest.mark.parametrize("arrow", [pa.uuid(), pa.bool8()], ids=str)
def test_extension_types_whose_storage_means_something_else_are_refused(arrow: pa.DataType) -> None:
    with pytest.raises(ValidationError, match=r"column s\.c\)") as raised:
        schema_from_arrow(pa.schema([pa.field("s", pa.struct([pa.field("c", arrow)]))]))
    assert raised.value.field == "s.c"
    assert "Cast the column to text" in str(raised.value.hint)


def test_json_of_arrow_is_text() -> None:
    assert schema_from_arrow(pa.schema([pa.field("j", pa.json_())])) == schema_from_ddl("j STRING")


def test_nullability_is_kept_at_every_depth() -> None:
    schema = pa.schema(
        [
            pa.field("a", pa.list_(pa.field("item", pa.int32(), nullable=False)), nullable=False),
            pa.field("m", pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False))),
        ]
    )
    text = schema_from_arrow(schema).to_json()
    assert '"containsNull":false},"nullable":false' in text
    assert '"valueContainsNull":false},"nullable":true' in text


def test_column_ids_become_parquet_field_ids() -> None:
    column = StructField("a", PrimitiveType("long"), metadata={"delta.columnMapping.id": 7})
    schema = schema_to_arrow(StructType((column, StructField("s", StructType((column,))))))
    assert schema.field("a").metadata == {b"PARQUET:field_id": b"7"}
    assert schema.field("s").type.field("a").metadata == {b"PARQUET:field_id": b"7"}
    assert schema.field("s").metadata is None


@pytest.mark.parametrize("ddl", ["a VOID NOT NULL", "s STRUCT<a: VOID NOT NULL>", "m MAP<VOID, INT>"])
def test_void_that_refuses_nulls_is_refused(ddl: str) -> None:
    with pytest.raises(ValidationError, match="is of type void"):
        schema_to_arrow(schema_from_ddl(ddl))


def test_variant_is_the_struct_that_parquet_holds() -> None:
    assert [field.name for field in schema_to_arrow(schema_from_ddl("v VARIANT")).field("v").type] == [
        "metadata",
        "value",
    ]
