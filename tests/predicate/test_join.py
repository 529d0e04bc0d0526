"""The `on` of a merge: which columns must be equal, what is known of each side, and what is refused."""

from __future__ import annotations

import pytest

from deltars.errors import PredicateError, ValidationError
from deltars.predicate import TRUE, Column, Equality, JoinCondition, not_true, parse, parse_join, to_sql
from deltars.protocol import PrimitiveType, StructType, schema_from_ddl

TARGET = schema_from_ddl(
    "id BIGINT, Name STRING, day DATE, at TIMESTAMP, price DECIMAL(10,2), s STRUCT<n: INT, t: INT>, ok BOOLEAN,"
    " tags ARRAY<INT>, amount DOUBLE"
)
SOURCE = schema_from_ddl("id INT, key BIGINT, name STRING, moment TIMESTAMP, amount DECIMAL(5,1), flag BOOLEAN")


def _join(on: str, target: StructType = TARGET, source: StructType = SOURCE) -> JoinCondition:
    return parse_join(on, target, source, "t", "s")


def _names(join: JoinCondition) -> list[tuple[str, str]]:
    return [(str(equality.target), str(equality.source)) for equality in join.equalities]


@pytest.mark.parametrize(
    ("on", "expected"),
    [
        ("t.id = s.id", [("id", "id")]),
        ("s.id = t.id", [("id", "id")]),
        ("T.ID == S.Id", [("id", "id")]),
        ("(t.id = s.id) AND ((t.name = s.name AND key = t.id))", [("id", "id"), ("Name", "name"), ("id", "key")]),
        ("day = moment", [("day", "moment")]),
        ("`t`.`Name` = `s`.`NAME`", [("Name", "name")]),
        ("t.s.n = s.key", [("s.n", "key")]),
        ("price = s.amount", [("price", "amount")]),
        ("t.id = s.id AND t.id = s.id", [("id", "id")]),
        ("t.id <=> s.id", []),
        ("t.id = s.id OR t.id = s.key", []),
        ("t.id = s.id + 1", []),
        ("t.id = t.s.n AND t.id < s.id", []),
    ],
)
def test_equalities_are_found_however_they_are_written(on: str, expected: list[tuple[str, str]]) -> None:
    join = _join(on)
    assert _names(join) == expected
    assert join.is_known is bool(expected)


def test_each_side_gets_the_conjuncts_that_name_only_its_columns() -> None:
    join = _join("t.id = s.id AND t.day > '2026-01-01' AND flag AND s.key IN (1, 2) AND ok")
    assert to_sql(join.target_only) == "`day` > DATE '2026-01-01' AND `ok` = TRUE"
    assert to_sql(join.source_only) == "`flag` = TRUE AND `key` IN (1, 2)"
    assert join.is_known


def test_condition_on_the_target_alone_leaves_no_rest() -> None:
    join = _join("t.id = s.id AND t.day > '2026-01-01'")
    assert (join.is_known, join.source_only) == (True, TRUE)


@pytest.mark.parametrize(
    ("on", "target_only"),
    [
        ("t.id = s.id AND length(t.name) > 3 AND day < '2026-01-01'", "`day` < DATE '2026-01-01'"),
        ("(t.id = s.id AND t.ok) OR (t.id = s.key AND t.price > 5)", "`ok` = TRUE OR `price` > 5BD"),
        ("t.id = s.id OR t.ok", "TRUE"),
        ("NOT (t.id <> s.id OR t.price > 5)", "`price` <= 5BD"),
    ],
)
def test_what_the_target_must_fulfil_is_known_even_if_more_is_demanded(on: str, target_only: str) -> None:
    join = _join(on)
    assert to_sql(join.target_only) == target_only
    assert not join.is_known


def test_alias_wins_over_a_column_of_its_name() -> None:
    target = schema_from_ddl("t STRUCT<id: INT, x: INT>, id BIGINT")
    join = _join("t.id = s.key AND t.x > 3", target)
    assert join.equalities == (
        Equality(Column(("id",), PrimitiveType("long")), Column(("key",), PrimitiveType("long"))),
    )
    assert to_sql(join.target_only) == "`t`.`x` > 3"


@pytest.mark.parametrize(
    ("on", "position", "problem"),
    [
        ("t.id = s.nope", 9, "no column nope in s"),
        ("t.id = nope", 7, "no column nope"),
        ("t.id = s.id AND amount > 3", 16, "amount is ambiguous"),
        ("x.id = s.id", 0, "no column x"),
        ("t.name = s.key", 0, "t.Name is of type string and s.key of type long"),
        ("t.ok = s.key", 0, "cannot be compared"),
        ("t.id = s.id AND t.day < s.name", 16, "cannot be compared"),
        ("t.tags = s.key", 0, "cannot be compared"),
        ("s.id = 5", 0, "no column of the target"),
        ("TRUE", 0, "no column of the target"),
        ("t.id + s.id", 0, "not a condition"),
        ("t.id", 0, "not a condition"),
        ("5", 0, "not a condition"),
        ("t.id = s.id AND CAST(t.id AS INT)", 21, "not a condition"),
        ("t.id = s.id AND", 15, "ends too early"),
        ("", 0, "empty"),
        ("t.id IN (SELECT 1)", 16, "subquery is not allowed in an on"),
        ("t.id = 'x'", 7, "not a valid long"),
    ],
)
def test_wrong_condition_is_refused_where_it_is_wrong(on: str, position: int, problem: str) -> None:
    with pytest.raises(PredicateError, match=problem) as caught:
        _join(on)
    assert caught.value.position == position, str(caught.value)


def test_case_twins_are_ambiguous() -> None:
    with pytest.raises(PredicateError, match="ambiguous"):
        _join("t.id = s.k", source=schema_from_ddl("K INT, k INT"))


def test_same_alias_twice_is_refused() -> None:
    with pytest.raises(ValidationError, match="same alias"):
        parse_join("a.id = A.id", TARGET, SOURCE, "a", "A")


def test_always_null_key_is_an_equality() -> None:
    join = _join("t.id = s.nothing", source=StructType.from_json(
        '{"type":"struct","fields":[{"name":"nothing","type":"void","nullable":true,"metadata":{}}]}'
    ))  # fmt: skip
    assert _names(join) == [("id", "nothing")]


@pytest.mark.parametrize("metadata", [{"__COLLATIONS": {"c": "UTF8_LCASE"}}, {"__CHAR_VARCHAR_TYPE_STRING": "char(5)"}])
def test_strings_that_are_not_compared_by_their_bytes_are_left_to_spark(metadata: dict[str, object]) -> None:
    field = {"name": "c", "type": "string", "nullable": True, "metadata": metadata}
    join = _join("t.c = s.name", StructType.from_dict({"type": "struct", "fields": [field]}))
    assert (join.equalities, join.is_known) == ((), False)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("id > 5", "`id` <= 5 OR `id` IS NULL"),
        ("id IN (1, 2)", "`id` NOT IN (1, 2) OR `id` IS NULL"),
        ("id > 5 AND ok", "`id` <= 5 OR `id` IS NULL OR `ok` <> TRUE OR `ok` IS NULL"),
        ("id IS NULL OR id = 3", "`id` IS NOT NULL AND (`id` <> 3 OR `id` IS NULL)"),
        ("id = NULL", "TRUE"),
        ("TRUE", "FALSE"),
        ("length(name) > 3", "(NOT coalesce(LENGTH(name) > 3, FALSE))"),
    ],
)
def test_not_true_is_true_for_false_and_for_null(where: str, expected: str) -> None:
    assert to_sql(not_true(parse(where, TARGET))) == expected
