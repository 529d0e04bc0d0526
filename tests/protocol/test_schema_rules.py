"""Which schemas and partition columns a table may have."""

from __future__ import annotations

import re

import pytest

from deltars.protocol import StructField, StructType, check_schema, schema_from_ddl


def test_ordinary_table_is_allowed() -> None:
    assert check_schema(schema_from_ddl("id BIGINT, day DATE, s STRUCT<id: INT>"), ["day"]) is None
    assert check_schema(StructType()) is None


@pytest.mark.parametrize(
    ("ddl", "partition_columns", "problem"),
    [
        ("a INT, A STRING", [], "duplicate column a "),
        ("s ARRAY<STRUCT<x: INT, X: INT>>", [], r"duplicate column s\.element\.x "),
        ("`a b` INT", [], "needs column mapping"),
        ("m MAP<STRING, STRUCT<`a=b`: INT>>", [], "'a=b' has a character"),
        ("a INT, b INT", ["c"], "c is not a column"),
        ("a INT, b INT", ["A"], "A is not a column"),
        ("a INT, b INT", ["a", "a"], "duplicate partition column"),
        ("a INT, b INT", ["a", "b"], "not a partition column"),
        ("a ARRAY<INT>, b INT", ["a"], "cannot be partitioned by the column a"),
        ("a VARIANT, b INT", ["a"], "cannot be partitioned by the column a"),
    ],
)
def test_schema_that_no_table_can_have_is_refused(ddl: str, partition_columns: list[str], problem: str) -> None:
    found = check_schema(schema_from_ddl(ddl), partition_columns)
    assert found is not None
    assert re.search(problem, found)


def test_column_needs_a_name() -> None:
    type_ = schema_from_ddl("a INT")["a"].type
    assert "no name" in (check_schema(StructType((StructField("", type_),))) or "")


def test_column_mapping_allows_any_name() -> None:
    assert check_schema(schema_from_ddl("`a b,c` INT"), column_mapping=True) is None
