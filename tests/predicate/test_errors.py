"""A where that is not understood: the error shows the text, and points at the place."""

from __future__ import annotations

import pickle

import pytest

from deltars.errors import PredicateError, ValidationError
from deltars.predicate import parse
from deltars.protocol import StructField, StructType, schema_from_ddl

SCHEMA = schema_from_ddl("id BIGINT, name STRING, day DATE, at TIMESTAMP, ok BOOLEAN, s STRUCT<n: INT>")


def _refused(where: str, schema: StructType = SCHEMA) -> PredicateError:
    with pytest.raises(PredicateError) as refused:
        parse(where, schema)
    return refused.value


@pytest.mark.parametrize(
    ("where", "pointed_at"),
    [
        ("nme = 'x'", "nme"),
        ("id = 1 AND s.m = 2", "m = 2"),
        ("s.n.k = 1", "k"),
        ("lower(nme) = 'x'", "nme"),
        ("id = 'one'", "'one'"),
        ("id = DATE '2026-01-01'", "'2026-01-01'"),
        ("id = TRUE", ""),
        ("day = 5", "5"),
        ("id IS 1", "1"),
        ("name IS NOT 'x'", "'x'"),
        ("day = '31.1.2026'", "'31.1.2026'"),
        ("day IN ('2026-01-01', '2026-02-30')", "'2026-02-30'"),
        ("at > 'yesterday'", "'yesterday'"),
        ("ok = 1", "1"),
        ("day = CAST('x' AS DATE)", "'x'"),
        ("id", "id"),
        ("'yes'", "'yes'"),
        ("id = 1 name", "name"),
        ("id = = 1", "= 1"),
        ("id = 1)", ")"),
        ("id = 1; DROP TABLE x", "DROP"),
        ("name = 'open", "'open"),
        ("id IN (SELECT 1)", "1)"),
        ("count(id) > 1", "count"),
        ("id = ?", "?"),
        ("name LIKE 'a!b' ESCAPE '!'", "'a!b'"),
    ],
)
def test_error_points_at_the_place(where: str, pointed_at: str) -> None:
    error = _refused(where)
    assert error.position is not None
    assert where[error.position :].startswith(pointed_at)
    assert error.field == "where"
    shown = str(error).splitlines()
    line = next(i for i, text in enumerate(shown) if text.strip("^ ") == "" and "^" in text)
    assert shown[line].index("^") - 2 == error.position
    assert shown[line - 1] == f"  {where}"
    assert shown[line + 1 :] == [error.hint]


@pytest.mark.parametrize("where", ["id = ", "(id = 1", "id = 1 AND", "NOT", "id BETWEEN 1 AND"])
def test_text_that_ends_too_early_is_pointed_at_behind_its_end(where: str) -> None:
    error = _refused(where)
    assert "ends too early" in str(error)
    assert error.position == len(where.rstrip())


def test_place_is_found_in_a_text_of_several_lines() -> None:
    shown = str(_refused("id = 1\n  AND nme = 2\n  AND ok")).splitlines()
    assert shown[1:3] == ["    AND nme = 2", "        ^"]


@pytest.mark.parametrize("where", ["", "   "])
def test_nothing_is_no_condition(where: str) -> None:
    assert "empty" in str(_refused(where))


def test_hint_says_what_would_have_been_right() -> None:
    assert "Did you mean name?" in str(_refused("nane = 'x'"))
    assert "Columns: n." in str(_refused("s.zzz = 1"))
    assert "DATE '2026-01-31'" in str(_refused("day = 5"))


@pytest.mark.parametrize(
    ("where", "hint"),
    [
        ("id = 1 && ok", "Write AND in place of &&."),
        ("id = 1; DROP TABLE x", "Remove what follows the semicolon."),
        ("id =", "Add what is missing"),
        ("name = 'open", "Close the quote"),
        ("", "Write it as Spark SQL, such as"),
        ("id = 1 name", "Write it as Spark SQL, such as"),
        ("id", "Compare it: id = 1"),
        ("id IN (SELECT 1)", "write its result as literals"),
        ("count(id) > 1", "in a query"),
        ("id = :id", "Write the literal"),
        ("s.n.k = 1", "Write s.n."),
        (f"id = 1{'0' * 40}", "Write fewer digits"),
        ("(" * 5_000 + "id = 1" + ")" * 5_000, "Write fewer parentheses"),
    ],
    ids=lambda text: text[:20],
)
def test_every_mistake_gets_its_advice(where: str, hint: str) -> None:
    assert hint in str(_refused(where).hint)


def test_names_that_differ_by_case_alone_are_ambiguous() -> None:
    [field] = schema_from_ddl("id BIGINT").fields
    schema = StructType((field, StructField("ID", field.type)))
    assert "ambiguous: id, ID" in str(_refused("id = 1", schema))


def test_condition_nested_beyond_reason_is_refused() -> None:
    _refused("(" * 5_000 + "id = 1" + ")" * 5_000)


def test_error_is_a_validation_error_and_travels() -> None:
    error = _refused("nme = 1")
    assert isinstance(error, ValidationError)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
