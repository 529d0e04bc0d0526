"""Statements as data: what a text asks for, and errors that name what is not understood and point at it."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltars.errors import DeltarsError, PredicateError
from deltars.predicate.expression import Given, parse_expression
from deltars.predicate.source import Source
from deltars.predicate.statements.binding import Binder
from deltars.predicate.statements.parser import is_complete, parse_script, parse_statement
from deltars.predicate.statements.tree import (
    AlterTable,
    Atomic,
    ChangeColumn,
    CreateTable,
    DescribeHistory,
    Fragment,
    Insert,
    Merge,
    Optimize,
    RenameTable,
    Update,
    Vacuum,
    Values,
)
from deltars.protocol import StructType
from tests.statements.grammar import statements


def test_expressions_are_kept_as_written_and_know_their_place() -> None:
    text = (
        "UPDATE t AS x SET x.a = CASE WHEN b = ',' THEN 1 /* no */ ELSE f(1, 2) END, `c d` = 'WHERE'"
        " WHERE x.id IN (1, 2)"
    )
    action = parse_statement(text).action
    assert isinstance(action, Update)
    assert (str(action.table), action.alias) == ("t", "x")
    assert [(one.column, one.value.text) for one in action.assignments] == [
        ("x.a", "CASE WHEN b = ',' THEN 1 /* no */ ELSE f(1, 2) END"),
        ("c d", "'WHERE'"),
    ]
    assert action.where == Fragment("x.id IN (1, 2)", text.index("x.id"))
    for one in action.assignments:
        assert text[one.value.start :].startswith(one.value.text)


def test_merge_has_all_its_clauses_in_order() -> None:
    action = parse_statement(
        "MERGE WITH SCHEMA EVOLUTION INTO a.b t USING (SELECT 1 AS id WHERE (true)) s ON t.id = s.id"
        " WHEN MATCHED AND CASE WHEN t.x THEN s.y END THEN DELETE WHEN MATCHED THEN UPDATE SET *"
        " WHEN NOT MATCHED BY TARGET AND s.id > 1 THEN INSERT (id, t.x) VALUES (s.id, f(1, 2))"
        " WHEN NOT MATCHED THEN INSERT * WHEN NOT MATCHED BY SOURCE AND t.x THEN UPDATE SET x = 1, y = 2"
        " WHEN NOT MATCHED BY SOURCE THEN DELETE;"
    ).action
    assert isinstance(action, Merge)
    assert (str(action.table), action.alias, action.source_alias, action.evolves) == ("a.b", "t", "s", True)
    assert action.source.text == "SELECT 1 AS id WHERE (true)"
    kinds = [
        (clause.kind, clause.action, clause.condition and clause.condition.text, clause.assignments is None)
        for clause in action.clauses
    ]
    assert kinds == [
        ("matched", "delete", "CASE WHEN t.x THEN s.y END", False),
        ("matched", "update", None, True),
        ("not_matched", "insert", "s.id > 1", False),
        ("not_matched", "insert", None, True),
        ("not_matched_by_source", "update", "t.x", False),
        ("not_matched_by_source", "delete", None, False),
    ]


def test_values_inside_a_script_end_with_their_statement() -> None:
    script = parse_script("INSERT INTO t VALUES (1, 'a;b'), (2, NULL); DELETE FROM t")
    action = script[0].action
    assert isinstance(action, Insert)
    assert isinstance(action.source, Values)
    assert action.source.whole.text == "VALUES (1, 'a;b'), (2, NULL)"
    assert [[cell.text for cell in row] for row in action.source.rows] == [["1", "'a;b'"], ["2", "NULL"]]
    assert [statement.text for statement in script] == [
        "INSERT INTO t VALUES (1, 'a;b'), (2, NULL)",
        "DELETE FROM t",
    ]


def test_tables_are_described_as_written() -> None:
    action = parse_statement(
        "CREATE OR REPLACE TABLE s.t (id INT NOT NULL, d DATE GENERATED ALWAYS AS (CAST(x AS DATE))) USING delta"
        " PARTITIONED BY (d) TBLPROPERTIES ('a' = 'b', c.d = 1, e true) COMMENT 'it''s' LOCATION '/a'"
    ).action
    assert isinstance(action, CreateTable)
    assert action.properties == {"a": "b", "c.d": "1", "e": "true"}
    assert (action.comment, action.location, action.partition_by, action.or_replace) == ("it's", "/a", ("d",), True)
    renamed = parse_statement("ALTER TABLE t CHANGE COLUMN a b INT COMMENT 'x' AFTER c").action
    assert isinstance(renamed, AlterTable)
    [change] = renamed.changes
    assert isinstance(change, ChangeColumn)
    assert (change.name, change.new_name, change.comment, change.place and change.place.after) == ("a", "b", "x", "c")
    assert change.type is not None
    assert change.type.text == "INT"
    assert isinstance(parse_statement("alter table t rename to a.b").action.changes[0], RenameTable)  # type: ignore[union-attr]


def test_commands_are_read_without_case_and_with_comments() -> None:
    assert isinstance(parse_statement("/* a */ describe -- b\n history t limit 3").action, DescribeHistory)
    optimize = parse_statement("OPTIMIZE t WHERE day = '2026' ZORDER BY (a, `b c`)").action
    assert isinstance(optimize, Optimize)
    assert optimize.where is not None
    assert (optimize.where.text, optimize.zorder_by) == ("day = '2026'", ("a", "b c"))
    vacuum = parse_statement("VACUUM t FULL RETAIN 0.5 HOURS DRY RUN").action
    assert vacuum == Vacuum(vacuum.table, 0.5, True, True)  # type: ignore[union-attr]
    atomic = parse_statement("BEGIN ATOMIC DELETE FROM a; SELECT CASE WHEN 1 = 1 THEN 2 END; END").action
    assert isinstance(atomic, Atomic)
    assert len(atomic.statements) == 2


@pytest.mark.parametrize(
    ("text", "problem", "place"),
    [
        ("EXPLAIN DELETE FROM t", "only a query can be explained", 8),
        ("DELET FROM t", "DELET is not supported", 0),
        ("CREATE VIEW v AS SELECT 1", "a catalog keeps tables, and no views", 7),
        ("DROP SCHEMA s", "DROP SCHEMA is not supported", 5),
        ("SHOW FUNCTIONS", "SHOW FUNCTIONS is not supported", 5),
        ("ALTER TABLE t SET LOCATION '/x'", "ALTER TABLE … SET LOCATION is not supported", 14),
        ("ALTER TABLE t ADD CONSTRAINT k PRIMARY KEY (id)", "PRIMARY constraints are not supported", 31),
        ("CREATE TABLE t (id INT) USING parquet", "USING parquet is not supported", 30),
        ("CREATE TABLE t SHALLOW CLONE u", "SHALLOW is not supported", 15),
        ("CREATE TABLE t (id INT) AS SELECT 1", "takes its columns from the query", 16),
        ("INSERT INTO t REPLACE USING (id) SELECT 1", "REPLACE USING is not supported", 14),
        ("INSERT OVERWRITE DIRECTORY '/x' SELECT 1", "DIRECTORY is not supported", 17),
        ("INSERT INTO t VALUES (1), (1, 2)", "different numbers of values", 27),
        ("INSERT INTO t VALUES (1 +)", "ends too early", 25),
        ("INSERT INTO t SELECT * FORM u", "syntax error", None),
        ("DELETE FROM t WHERE", "expected a condition, found the end", 19),
        ("DELETE FROM t WHERE (id = 1", "too early|syntax error", None),
        ("UPDATE t SET a = 1, WHERE b = 2", "expected = or ==, found 'b'", 26),
        ("MERGE INTO t USING t ON 1 = 1 WHEN MATCHED THEN DELETE", "both called t", 21),
        ("MERGE INTO t USING s ON t.a = s.a", "expected WHEN", 33),
        ("MERGE INTO t USING s ON t.a = s.a WHEN NOT MATCHED THEN DELETE", "expected INSERT", 56),
        ("BEGIN ATOMIC OPTIMIZE t; END", "OPTIMIZE commits by itself", 13),
        ("BEGIN ATOMIC DELETE FROM t; BEGIN ATOMIC DELETE FROM t; END; END", "inside a transaction", 28),
        ("BEGIN ATOMIC DELETE FROM t;", "has no END", 0),
        ("BEGIN DELETE FROM t; END", "without ATOMIC is not supported", 6),
        ("BEGIN; DELETE FROM t", "BEGIN without COMMIT", 0),
        ("DELETE FROM t; COMMIT", "COMMIT without BEGIN", 15),
        ("VACUUM t RETAIN soon", "expected a number of hours", 16),
        ("RESTORE TABLE t", "expected VERSION AS OF", 15),
        ("REORG TABLE t APPLY (UPGRADE UNIFORM)", "APPLY (UPGRADE) is not supported", 21),
        ("DELETE FROM t WHERE a = 'x", "syntax error", None),
        ("DELETE\nFROM t\nWHERE a = ", "ends too early|expected a condition", None),
        ("", "is empty", 0),
        (";;", "is empty", 0),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_named_with_its_place(text: str, problem: str, place: int | None) -> None:
    with pytest.raises(PredicateError) as raised:
        parse_script(text)
    assert any(re.search(re.escape(part), str(raised.value)) for part in problem.split("|")), str(raised.value)
    if place is not None:
        assert raised.value.position == place
    assert "of the statement" in str(raised.value)
    assert raised.value.hint


def test_error_in_a_later_line_says_line_and_column() -> None:
    with pytest.raises(PredicateError, match=r"at line 3, column 6 of the statement:\n  WHERE \n"):
        parse_statement("DELETE\nFROM t\nWHERE ")


def test_one_statement_is_one() -> None:
    with pytest.raises(PredicateError, match="more than one statement"):
        parse_statement("SELECT 1; SELECT 2")
    with pytest.raises(PredicateError, match="goes with several statements"):
        parse_statement("BEGIN")


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("SELECT 1", False),
        ("SELECT 1;", True),
        ("SELECT ';", False),
        ("SELECT 1 -- ;", False),
        ("BEGIN ATOMIC DELETE FROM t;", False),
        ("BEGIN ATOMIC DELETE FROM t; SELECT CASE WHEN a THEN b END;", False),
        ("BEGIN ATOMIC DELETE FROM t; END;", True),
        ("BEGIN;", True),
        ("", False),
    ],
)
def test_prompt_knows_when_a_statement_is_complete(text: str, complete: bool) -> None:
    assert is_complete(text) is complete


# -- parameters ------------------------------------------------------------------------------------------------------

VALUES = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.integers(-(2**63), 2**63 - 1),
    st.booleans(),
    st.binary(),
    st.dates(),
    st.datetimes(timezones=st.just(UTC), min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30)),
    st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**20), max_value=10**20),
)


@given(VALUES)
def test_value_of_a_parameter_is_exactly_one_literal(value: object) -> None:
    text = "DELETE FROM t WHERE x = :v"
    bound = Binder(Source(text, "statement"), {"v": value}).bound(Fragment(":v", 24))
    if isinstance(value, int) and not isinstance(value, bool) and value < 0:
        return  # a minus and a number
    found = parse_expression(bound.text, StructType())
    assert isinstance(found, Given)
    if isinstance(value, Decimal) or not isinstance(value, date):
        assert found.value == value


def test_qualifier_goes_only_where_it_qualifies() -> None:
    text = "DELETE FROM t WHERE t.id = 1 AND t.t.x = 2 AND a.t.id = 3 AND t.x = 4 AND `T`.id = 5 AND 't.id' = :t"
    binder = Binder(Source(text, "statement"), {"t": "t.id"})
    start = text.index("t.id")
    bound = binder.bound(Fragment(text[start:], start), ["t"], ["id", "t"])
    assert bound.text == "id = 1 AND t.x = 2 AND a.t.id = 3 AND t.x = 4 AND id = 5 AND 't.id' = ('t.id')"
    assert text[bound.position(bound.text.index("a.t")) :].startswith("a.t.id")


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (None, "no value for the parameter :v"),
        ({"w": 1}, "no value for the parameter :v"),
        ({"v": object()}, "cannot be used here"),
        ("v", "args must be a dict or a list"),
    ],
)
def test_parameter_without_a_usable_value_is_refused(args: object, problem: str) -> None:
    with pytest.raises(DeltarsError, match=problem):
        Binder(Source("DELETE FROM t WHERE x = :v", "statement"), args).bound(Fragment(":v", 24))  # type: ignore[arg-type]


# -- any text --------------------------------------------------------------------------------------------------------


@given(statements())
def test_any_statement_is_parsed_or_refused_by_an_error_of_ours(text: str) -> None:
    position: int | None = None
    try:
        assert parse_script(text)
    except PredicateError as error:
        position = error.position
    assert position is None or 0 <= position <= len(text)


@given(st.text(max_size=60))
def test_any_text_is_parsed_or_refused_by_an_error_of_ours(text: str) -> None:
    with suppress(PredicateError):
        parse_script(text)
