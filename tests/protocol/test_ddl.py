"""Schemas written as DDL."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltars.errors import ValidationError
from deltars.protocol import (
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    schema_from_ddl,
)
from tests.protocol import strategies


@pytest.mark.parametrize(
    ("ddl", "delta"),
    [
        ("BOOLEAN", "boolean"),
        ("TINYINT", "byte"),
        ("byte", "byte"),
        ("SMALLINT", "short"),
        ("SHORT", "short"),
        ("INT", "integer"),
        ("integer", "integer"),
        ("BIGINT", "long"),
        ("long", "long"),
        ("FLOAT", "float"),
        ("REAL", "float"),
        ("Double", "double"),
        ("DECIMAL", "decimal(10,0)"),
        ("DEC(5)", "decimal(5,0)"),
        ("NUMERIC( 38 , 18 )", "decimal(38,18)"),
        ("DATE", "date"),
        ("TIMESTAMP", "timestamp"),
        ("TIMESTAMP_LTZ", "timestamp"),
        ("TIMESTAMP_NTZ", "timestamp_ntz"),
        ("STRING", "string"),
        ("BINARY", "binary"),
        ("VOID", "void"),
        ("VARIANT", "variant"),
        ("ARRAY<ARRAY<INT>>", "array<array<integer>>"),
        ("MAP<STRING,MAP<INT,DATE>>", "map<string,map<integer,date>>"),
        ("STRUCT<>", "struct<>"),
        ("STRUCT<a: INT, b STRING NOT NULL>", "struct<a: integer, b: string not null>"),
    ],
)
def test_every_type_has_its_word(ddl: str, delta: str) -> None:
    assert str(schema_from_ddl(f"c {ddl}")["c"].type) == delta


def test_columns_have_comments_and_may_refuse_nulls() -> None:
    schema = schema_from_ddl("a BIGINT NOT NULL COMMENT 'x', s STRUCT<x: INT COMMENT \"in\", y: ARRAY<STRING>>")
    assert schema == StructType(
        (
            StructField("a", PrimitiveType("long"), nullable=False, metadata={"comment": "x"}),
            StructField(
                "s",
                StructType(
                    (
                        StructField("x", PrimitiveType("integer"), metadata={"comment": "in"}),
                        StructField("y", ArrayType(PrimitiveType("string"))),
                    )
                ),
            ),
        )
    )


@pytest.mark.parametrize(
    ("literal", "comment"),
    [
        ("'it''s'", "it's"),
        (r"'it\'s'", "it's"),
        ('"say ""x"""', 'say "x"'),
        ("""'say ""x""'""", 'say ""x""'),
        (r"'a\nb\\c'", "a\nb\\c"),
        ("'a, b INT'", "a, b INT"),
        ("'😀'", "😀"),
        ("''", ""),
    ],
)
def test_comments_unescape_as_in_spark(literal: str, comment: str) -> None:
    assert schema_from_ddl(f"a INT COMMENT {literal}, b INT")["a"].metadata == {"comment": comment}


@pytest.mark.parametrize(
    ("ddl", "name"),
    [
        ("`a b` INT", "a b"),
        ("`a``b` INT", "a`b"),
        ("`NOT` INT", "NOT"),
        ("größe INT", "größe"),
        ("1st INT", "1st"),
        ("date DATE", "date"),
        ("comment STRING COMMENT 'c'", "comment"),
        (" \n a\tINT \n", "a"),
    ],
)
def test_names_may_be_quoted(ddl: str, name: str) -> None:
    assert schema_from_ddl(ddl).names == (name,)


@pytest.mark.parametrize(
    ("ddl", "problem", "position"),
    [
        ("", "expected a column name", 1),
        ("a", "expected a type", 2),
        ("a INT,", "expected a column name", 7),
        ("a INT b INT", "expected , or the end", 7),
        ("a INTERVAL", "Delta has no type INTERVAL", 3),
        ("a INT, b TIME", "Delta has no type TIME", 10),
        ("a VARCHAR(0)", "a length is 1 or more", 11),
        ("a ARRAY<INT", "expected >", 12),
        ("a ARRAY INT", "expected <", 9),
        ("a MAP<INT>", "expected ,", 10),
        ("a STRUCT<x: INT", "expected >", 16),
        ("a STRUCT<x: FOO>", "Delta has no type FOO", 13),
        ("a DECIMAL(39,0)", "out of bounds", 3),
        ("a DECIMAL(x)", "expected a number", 11),
        ("a DECIMAL(5,2", "expected )", 14),
        ("a INT NOT", "expected NULL", 10),
        ("a INT COMMENT x", "expected a string", 15),
        ("a INT COMMENT 'x", "this quote is never closed", 15),
        ("a-b INT", "expected a type", 2),
        ("a INT; b INT", "expected , or the end", 6),
        ("`` INT", "expected a column name", 1),
        ("a INT `NOT` NULL", "expected , or the end", 7),
    ],
)
def test_mistake_is_refused_and_pointed_at(ddl: str, problem: str, position: int) -> None:
    with pytest.raises(ValidationError) as caught:
        schema_from_ddl(ddl)
    message = caught.value.message
    assert problem in message
    assert f"at position {position} " in message
    *_, line, pointer = message.split("\n")
    assert line == f"  {ddl}"
    assert pointer.index("^") - 2 == position - 1
    assert caught.value.hint
    assert str(caught.value).endswith(f"^\n{caught.value.hint}")


@pytest.mark.parametrize(
    ("ddl", "hint"),
    [
        ("a TEXT", "Write STRING."),
        ("a int64", "Write BIGINT."),
        ("a DATETIME", "Write TIMESTAMP."),
        ("a STRNG", "Did you mean STRING?"),
        ("a FOO", "The types are BOOLEAN, TINYINT,"),
        ("a-b INT", "in backquotes"),
        ("a ARRAY INT", "Write ARRAY<INT>"),
        ("a INT b INT", "Separate columns by commas."),
        ("a INT GENERATED AS (1)", "Write GENERATED ALWAYS AS (expression), or"),
        ("a BIGINT GENERATED BY DEFAULT AS (1)", "GENERATED BY DEFAULT AS IDENTITY"),
        ("a BIGINT GENERATED ALWAYS AS IDENTITY (START 1)", "(START WITH 1 INCREMENT BY 1)"),
        ("a INT NOT", "Write NOT NULL."),
    ],
)
def test_hint_says_what_to_write(ddl: str, hint: str) -> None:
    with pytest.raises(ValidationError) as caught:
        schema_from_ddl(ddl)
    assert hint in str(caught.value.hint)


def test_mistake_on_a_later_line_is_pointed_at_there() -> None:
    with pytest.raises(ValidationError) as caught:
        schema_from_ddl("a INT,\n  b FOO,\n  c INT")
    assert caught.value.message.endswith("\n    b FOO,\n      ^")


_WORDS = {"long": "BIGINT", "integer": "INT", "short": "SMALLINT", "byte": "TINYINT"}


def _ddl(type_: DataType) -> str:
    match type_:
        case PrimitiveType():
            return _WORDS.get(type_.name, type_.name)
        case ArrayType():
            return f"ARRAY<{_ddl(type_.element_type)}>"
        case MapType():
            return f"MAP<{_ddl(type_.key_type)}, {_ddl(type_.value_type)}>"
        case StructType():
            return f"STRUCT<{_columns(type_, ': ')}>"


def _columns(struct: StructType, separator: str) -> str:
    return ", ".join(
        f"{_quoted(column.name)}{separator}{_ddl(column.type)}{'' if column.nullable else ' NOT NULL'}"
        for column in struct.fields
    )


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


names = strategies.texts.filter(bool)
types = st.recursive(
    strategies.primitive_types(),
    lambda inner: st.one_of(
        st.builds(ArrayType, inner),
        st.builds(MapType, inner, inner),
        st.lists(st.builds(StructField, names, inner, st.booleans()), max_size=3).map(
            lambda columns: StructType(tuple(columns))
        ),
    ),
    max_leaves=6,
)


@given(st.lists(st.builds(StructField, names, types, st.booleans()), min_size=1, max_size=4))
def test_every_schema_can_be_written_as_ddl(columns: list[StructField]) -> None:
    schema = StructType(tuple(columns))
    assert schema_from_ddl(_columns(schema, " ")) == schema


@given(st.text(st.sampled_from("ab<>(),:'\"`\\ \n1INTSTRUCT"), max_size=30))
def test_any_text_is_a_schema_or_a_clear_refusal(text: str) -> None:
    with contextlib.suppress(ValidationError):
        assert schema_from_ddl(text).names


@pytest.mark.parametrize(
    ("ddl", "metadata"),
    [
        ("a VARCHAR(3)", {"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}),
        ("a CHARACTER ( 3 ) NOT NULL", {"__CHAR_VARCHAR_TYPE_STRING": "char(3)"}),
        ("a ARRAY<VARCHAR(3)> COMMENT 'c'", {"__CHAR_VARCHAR_TYPE_STRING": "ARRAY<VARCHAR(3)>", "comment": "c"}),
        (
            "a INT GENERATED ALWAYS AS ((b + 1) * 2) COMMENT 'c'",
            {"delta.generationExpression": "(b + 1) * 2", "comment": "c"},
        ),
        ("a STRING DEFAULT 'x, NOT (y' NOT NULL", {"CURRENT_DEFAULT": "'x, NOT (y'"}),
        ("a STRING COMMENT 'c' DEFAULT concat('x', ',')", {"comment": "c", "CURRENT_DEFAULT": "concat('x', ',')"}),
        ("a DOUBLE DEFAULT -1.5e3", {"CURRENT_DEFAULT": "-1.5e3"}),
    ],
)
def test_what_a_column_asks_for_is_kept_in_its_metadata(ddl: str, metadata: dict[str, str]) -> None:
    first, second = schema_from_ddl(f"{ddl}, b INT")
    assert (dict(first.metadata), second) == (metadata, StructField("b", PrimitiveType("integer")))


def test_fields_of_structs_are_neither_generated_nor_have_defaults() -> None:
    for rest in ("DEFAULT 1", "GENERATED ALWAYS AS (1)"):
        with pytest.raises(ValidationError, match="expected >"):
            schema_from_ddl(f"s STRUCT<x: INT {rest}>")
