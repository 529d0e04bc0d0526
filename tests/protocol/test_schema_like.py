"""Everything a user may pass where a schema is wanted."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as spark_types

from deltars.errors import ValidationError
from deltars.protocol import as_schema, schema_from_ddl

SCHEMA = schema_from_ddl("id BIGINT NOT NULL, tags ARRAY<STRING>")


@pytest.mark.parametrize(
    "schema",
    [
        SCHEMA,
        SCHEMA.to_json(),
        f"\n {SCHEMA.to_json()}",
        "id BIGINT NOT NULL, tags ARRAY<STRING>",
        pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("tags", pa.list_(pa.string()))]),
        spark_types.StructType(
            [
                spark_types.StructField("id", spark_types.LongType(), nullable=False),
                spark_types.StructField("tags", spark_types.ArrayType(spark_types.StringType())),
            ]
        ),
    ],
    ids=["ours", "json", "json after blanks", "ddl", "arrow", "spark"],
)
def test_every_form_of_a_schema_is_taken(schema: Any) -> None:
    assert as_schema(schema) == SCHEMA


@pytest.mark.parametrize("schema", [None, 5, {"id": "long"}, spark_types.LongType()])
def test_what_is_no_schema_is_refused(schema: Any) -> None:
    with pytest.raises(ValidationError, match="is not a schema"):
        as_schema(schema)


def test_schema_agrees_with_sparks_own_json() -> None:
    every = spark_types.StructType(
        [
            spark_types.StructField("b", spark_types.ByteType()),
            spark_types.StructField("d", spark_types.DecimalType(38, 10), metadata={"comment": "x", "n": 1}),
            spark_types.StructField("n", spark_types.TimestampNTZType(), nullable=False),
            spark_types.StructField(
                "m",
                spark_types.MapType(spark_types.StringType(), spark_types.BinaryType(), valueContainsNull=False),
            ),
            spark_types.StructField("v", spark_types.VariantType()),
            spark_types.StructField("z", spark_types.NullType()),
        ]
    )
    assert spark_types.StructType.fromJson(json.loads(as_schema(every).to_json())) == every
