"""Delta's types and the schema JSON."""

from __future__ import annotations

import json
import pickle

import pytest
from hypothesis import given

from deltars.errors import ValidationError
from deltars.protocol import ArrayType, MapType, PrimitiveType, StructField, StructType
from tests.protocol import strategies

LONG = PrimitiveType("long")
STRING = PrimitiveType("string")

NESTED = StructType(
    (
        StructField("id", LONG, nullable=False, metadata={"comment": "the key"}),
        StructField(
            "at",
            StructType((StructField("x", PrimitiveType("decimal(10,2)")), StructField("y", ArrayType(LONG, False)))),
            metadata={"delta.columnMapping.physicalName": "col-1"},
        ),
        StructField("m", MapType(STRING, StructType((StructField("z", PrimitiveType("timestamp_ntz")),)), False)),
    )
)
NESTED_JSON = (
    '{"type":"struct","fields":['
    '{"name":"id","type":"long","nullable":false,"metadata":{"comment":"the key"}},'
    '{"name":"at","type":{"type":"struct","fields":['
    '{"name":"x","type":"decimal(10,2)","nullable":true,"metadata":{}},'
    '{"name":"y","type":{"type":"array","elementType":"long","containsNull":false},"nullable":true,"metadata":{}}]},'
    '"nullable":true,"metadata":{"delta.columnMapping.physicalName":"col-1"}},'
    '{"name":"m","type":{"type":"map","keyType":"string","valueType":{"type":"struct","fields":['
    '{"name":"z","type":"timestamp_ntz","nullable":true,"metadata":{}}]},"valueContainsNull":false},'
    '"nullable":true,"metadata":{}}]}'
)


def test_schema_is_written_exactly_as_spark_writes_it() -> None:
    assert NESTED.to_json() == NESTED_JSON
    assert StructType.from_json(NESTED_JSON) == NESTED


@given(strategies.schemas)
def test_every_schema_survives_the_round_trip(schema: StructType) -> None:
    text = schema.to_json()
    assert StructType.from_json(text) == schema
    assert StructType.from_json(text).to_json() == text
    assert StructType.from_dict(json.loads(text)) == schema


@given(strategies.schemas)
def test_schemas_pickle_and_hash(schema: StructType) -> None:
    again = pickle.loads(pickle.dumps(schema))
    assert again == schema
    assert hash(again) == hash(schema)


def test_leaves_come_in_order_and_arrays_and_maps_count_as_one() -> None:
    assert [(".".join(path), str(type_)) for path, type_ in NESTED.leaves()] == [
        ("id", "long"),
        ("at.x", "decimal(10,2)"),
        ("at.y", "array<long>"),
        ("m", "map<string,struct<z: timestamp_ntz>>"),
    ]


def test_leaves_go_by_physical_names_when_asked() -> None:
    assert [path for path, _ in NESTED.leaves(physical=True)][1] == ("col-1", "x")


def test_every_field_is_walked_with_its_path() -> None:
    assert [".".join(path) for path, _ in NESTED.walk()] == ["id", "at", "at.x", "at.y", "m", "m.value.z"]


def test_every_type_is_found_however_deep() -> None:
    assert PrimitiveType("timestamp_ntz") in list(NESTED.types())


def test_columns_are_found_by_name() -> None:
    assert NESTED["id"].nullable is False
    assert "at" in NESTED
    assert "AT" not in NESTED
    assert NESTED.names == ("id", "at", "m")
    with pytest.raises(KeyError):
        NESTED["x"]


@pytest.mark.parametrize(
    ("name", "precision", "scale"),
    [("decimal(38,10)", 38, 10), ("decimal", 10, 0), ("decimal( 5 , 5 )", 5, 5)],
)
def test_decimal_knows_its_precision_and_scale(name: str, precision: int, scale: int) -> None:
    type_ = PrimitiveType(name)
    assert type_.is_decimal
    assert (type_.precision, type_.scale) == (precision, scale)
    assert type_ == PrimitiveType.decimal(precision, scale)


@pytest.mark.parametrize("name", ["decimal(39,0)", "decimal(0,0)", "decimal(5,6)", "decimal(5,-1)"])
def test_decimal_out_of_bounds_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="out of bounds"):
        PrimitiveType(name)


def test_null_is_sparks_older_name_for_void() -> None:
    text = '{"type":"struct","fields":[{"name":"a","type":"null","nullable":true,"metadata":{}}]}'
    assert StructType.from_json(text)["a"].type == PrimitiveType("void")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ('"long"', "a struct, not long"),
        ("[]", "not a type"),
        ('{"type":"struct"}', "not a type"),
        ('{"type":"struct","fields":[{"name":"a"}]}', "not a field"),
        ('{"type":"struct","fields":[{"name":"a","type":"long","nullable":"yes"}]}', "not a field"),
        (
            '{"type":"struct","fields":[{"name":"a","type":"interval day"}]}',
            "column a .* no type 'interval day'",
        ),
        (
            '{"type":"struct","fields":[{"name":"a","type":{"type":"array","containsNull":true,"elementType":'
            '{"type":"struct","fields":[{"name":"b","type":"geometry"}]}}}]}',
            r"column a\.element\.b .* no type 'geometry'",
        ),
        ('{"type":"struct","fields":[{"name":"v","type":{"type":"udt","sqlType":"long"}}]}', "user-defined"),
    ],
)
def test_what_is_no_schema_is_refused_and_says_where(text: str, problem: str) -> None:
    with pytest.raises(ValidationError, match=problem) as caught:
        StructType.from_json(text)
    assert caught.value.field == "schemaString"
