"""The where language: what is understood, as what, and what is left to a query engine."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given

from deltars.errors import PredicateError, ValidationError
from deltars.predicate import (
    FALSE,
    NULL,
    TRUE,
    And,
    Column,
    Comparison,
    In,
    IsNull,
    Like,
    Or,
    Predicate,
    StartsWith,
    Unknown,
    columns_of,
    grouped,
    negation,
    parse,
    parser,
    partition_part,
    to_sql,
)
from deltars.predicate.parser import bind
from deltars.predicate.source import Source
from deltars.protocol import PrimitiveType, StructField, StructType, schema_from_ddl
from tests.support.where import Case, cases

SCHEMA = schema_from_ddl(
    "id BIGINT, small SMALLINT, name STRING, price DECIMAL(10,2), f FLOAT, x DOUBLE, day DATE, at TIMESTAMP,"
    " wall TIMESTAMP_NTZ, ok BOOLEAN, raw BINARY, s STRUCT<n: INT, Deep: STRUCT<t: STRING>>,"
    " items ARRAY<STRUCT<q: INT>>, tags MAP<STRING, INT>, `a.b` INT"
)
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def _column(name: str) -> Column:
    path = tuple(name.split("."))
    return Column(path, dict(SCHEMA.leaves())[path])


def _comparison(where: str, **options: Any) -> tuple[str, str, Any]:
    found = parse(where, SCHEMA, **options)
    assert isinstance(found, Comparison), found
    return ".".join(found.column.path), found.operator, found.value


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("id = 1", ("id", "=", 1)),
        ("id == 1", ("id", "=", 1)),
        ("1 < id", ("id", ">", 1)),
        ("ID >= -5L", ("id", ">=", -5)),
        ("(id) != (7)", ("id", "<>", 7)),
        ("id < 1.5", ("id", "<", Decimal("1.5"))),
        ("id = 99999999999999999999", ("id", "=", Decimal(99999999999999999999))),
        ("id = 1e3", ("id", "=", 1000.0)),
        ("id = '12'", ("id", "=", 12)),
        ("small = CAST('12' AS TINYINT)", ("small", "=", 12)),
        ("price = 1.50BD", ("price", "=", Decimal("1.50"))),
        ("id = -1234567890123456789012345678901BD", ("id", "=", Decimal("-1234567890123456789012345678901"))),
        ("price = 2", ("price", "=", Decimal(2))),
        ("price > 1.5D", ("price", ">", 1.5)),
        ("f = 0.1", ("f", "=", 0.1)),
        ("f = 0.1F", ("f", "=", 0.10000000149011612)),
        ("x = 16777217", ("x", "=", 16777217.0)),
        ("x = 'Infinity'", ("x", "=", float("inf"))),
        ("name = 'ada'", ("name", "=", "ada")),
        ('name = "ada"', ("name", "=", "ada")),
        ("name = 'it''s'", ("name", "=", "it's")),
        ("name = 'a' 'b'", ("name", "=", "ab")),
        (r"name = 'a\'\n\u00e9\101\%\q'", ("name", "=", "a'\né" + "A\\%q")),
        (r"name = r'a\n'", ("name", "=", r"a\n")),
        ("name LIKE 'ada'", ("name", "=", "ada")),
        ("day = '2026-1-5'", ("day", "=", date(2026, 1, 5))),
        ("day = DATE '2026-01-05'", ("day", "=", date(2026, 1, 5))),
        ("day < TIMESTAMP '2026-01-05 00:00:00'", ("day", "<", date(2026, 1, 5))),
        ("day < TIMESTAMP '2026-01-05 12:00:00'", ("day", "<=", date(2026, 1, 5))),
        ("day >= TIMESTAMP '2026-01-05 12:00:00'", ("day", ">", date(2026, 1, 5))),
        ("at = '2026-01-31 12:00:00'", ("at", "=", NOON)),
        ("at = TIMESTAMP '2026-01-31T13:00+01:00'", ("at", "=", NOON)),
        ("at = CAST('2026-01-31 21:00:00 Asia/Tokyo' AS TIMESTAMP)", ("at", "=", NOON)),
        ("at = DATE '2026-01-31'", ("at", "=", datetime(2026, 1, 31, tzinfo=UTC))),
        ("wall = '2026-01-31 12:00:00'", ("wall", "=", datetime(2026, 1, 31, 12))),
        ("wall = TIMESTAMP_NTZ '2026-01-31 12:00:00.5'", ("wall", "=", datetime(2026, 1, 31, 12, 0, 0, 500_000))),
        ("ok", ("ok", "=", True)),
        ("NOT ok", ("ok", "<>", True)),
        ("ok = 'no'", ("ok", "=", False)),
        ("raw = X'CAFE'", ("raw", "=", b"\xca\xfe")),
        ("s.deep.T = 'k'", ("s.Deep.t", "=", "k")),
        ("`s`.`n` > 3", ("s.n", ">", 3)),
        ("`a.b` = 1", ("a.b", "=", 1)),
    ],
)
def test_comparison_of_a_column_with_a_literal(where: str, expected: tuple[str, str, Any]) -> None:
    assert _comparison(where) == expected


@pytest.mark.parametrize(
    ("zone", "expected"),
    [
        ("UTC", NOON),
        ("Europe/Berlin", datetime(2026, 1, 31, 11, tzinfo=UTC)),
        ("-08:00", datetime(2026, 1, 31, 20, tzinfo=UTC)),
    ],
)
def test_moment_without_a_zone_is_in_the_session_s(zone: str, expected: datetime) -> None:
    for where in ("at = '2026-01-31 12:00:00'", "at = TIMESTAMP '2026-01-31 12:00:00'"):
        assert _comparison(where, zone=zone) == ("at", "=", expected)
    assert _comparison("at = '2026-01-31 12:00:00Z'", zone=zone) == ("at", "=", NOON)
    assert _comparison("wall = '2026-01-31 12:00:00'", zone=zone) == ("wall", "=", datetime(2026, 1, 31, 12))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Skipped by the clock: as much later. There twice: the first time.
        ("2026-03-29 02:30:00", datetime(2026, 3, 29, 1, 30, tzinfo=UTC)),
        ("2026-10-25 02:30:00", datetime(2026, 10, 25, 0, 30, tzinfo=UTC)),
    ],
)
def test_moments_around_a_change_of_the_clock_are_those_that_spark_takes(text: str, expected: datetime) -> None:
    assert _comparison(f"at = '{text}'", zone="Europe/Berlin") == ("at", "=", expected)


@pytest.mark.parametrize(
    ("where", "zone"),
    [
        ("day < TIMESTAMP '9999-12-31 23:59:59Z'", "Asia/Tokyo"),
        ("day > TIMESTAMP '0001-01-01 00:00:00Z'", "America/New_York"),
        ("day = CAST(TIMESTAMP '9999-12-31 23:59:59Z' AS DATE)", "Asia/Tokyo"),
        ("wall = CAST(TIMESTAMP '9999-12-31 23:59:59Z' AS TIMESTAMP_NTZ)", "Asia/Tokyo"),
    ],
)
def test_moment_beyond_the_calendar_of_the_zone_is_left_to_spark(where: str, zone: str) -> None:
    assert isinstance(parse(where, SCHEMA, zone=zone), Unknown)


def test_zone_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValidationError, match="no time zone 'Mars/Olympus'"):
        parse("id = 1", SCHEMA, zone="Mars/Olympus")


ID, NAME = _column("id"), _column("name")
ONE, TWO = Comparison(ID, "=", 1), Comparison(ID, "=", 2)
DEEP = schema_from_ddl("d STRUCT<t: STRING>")["d"].type


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("id BETWEEN 1 AND 5", And((Comparison(ID, ">=", 1), Comparison(ID, "<=", 5)))),
        ("id NOT BETWEEN 1 AND 5", Or((Comparison(ID, "<", 1), Comparison(ID, ">", 5)))),
        ("id IN (1, 2, 1)", In(ID, (1, 2))),
        ("id IN (1)", ONE),
        ("id IN (1, NULL)", Or((ONE, NULL))),
        ("id NOT IN (1, NULL)", And((Comparison(ID, "<>", 1), NULL))),
        ("id IN (1, 2.5)", In(ID, (1, Decimal("2.5")))),
        ("id IN (1, 2e0)", In(ID, (1.0, 2.0))),
        ("id IS NULL", IsNull(ID)),
        ("isnotnull(id)", IsNull(ID, negated=True)),
        ("items IS NULL", IsNull(_column("items"))),
        ("s IS NULL", IsNull(Column(("s",), SCHEMA["s"].type))),
        ("s.deep IS NOT NULL", IsNull(Column(("s", "Deep"), DEEP), negated=True)),
        ("name LIKE '%a'", Like(NAME, "%a")),
        ("name LIKE '_'", Like(NAME, "_")),
        ("name NOT LIKE '%a!%!!' ESCAPE '!'", Like(NAME, r"%a\%!", negated=True)),
        (r"name LIKE '%\\\\_'", Like(NAME, r"%\\_")),
        (r"name LIKE '_\\' ESCAPE '!'", Like(NAME, r"_\\")),
        ("id <=> 1", And((ONE, IsNull(ID, negated=True)))),
        ("NOT id <=> 1", Or((Comparison(ID, "<>", 1), IsNull(ID)))),
        ("id IS DISTINCT FROM 1", Or((Comparison(ID, "<>", 1), IsNull(ID)))),
        ("id <=> NULL", IsNull(ID)),
        ("id = NULL", NULL),
        ("NOT (id = NULL)", NULL),
        ("ok IS NOT TRUE", Or((Comparison(_column("ok"), "<>", True), IsNull(_column("ok"))))),
        ("name LIKE 'ad%'", StartsWith(NAME, "ad")),
        ("name LIKE 'a!%d%' ESCAPE '!'", StartsWith(NAME, "a%d")),
        (r"name LIKE 'a\\_d%'", StartsWith(NAME, "a_d")),
        ("name NOT LIKE 'ad%'", StartsWith(NAME, "ad", negated=True)),
        ("startswith(name, 'ad')", StartsWith(NAME, "ad")),
        ("id = 1 AND (ok OR id = 2)", And((ONE, Or((Comparison(_column("ok"), "=", True), TWO))))),
        ("NOT (id = 1 OR NOT ok)", And((Comparison(ID, "<>", 1), Comparison(_column("ok"), "=", True)))),
        ("id = 1 AND (id = 2 AND ok)", And((ONE, TWO, Comparison(_column("ok"), "=", True)))),
        ("TRUE", TRUE),
        ("1 = 1 AND id = 1", ONE),
        ("2 < 1 OR id = 1", ONE),
        ("FALSE AND id = 1", FALSE),
        ("id = -9223372036854775808L", Comparison(ID, "=", -(2**63))),
        ("id > -128Y", Comparison(ID, ">", -128)),
    ],
)
def test_conditions(where: str, expected: Predicate) -> None:
    assert parse(where, SCHEMA) == expected


@pytest.mark.parametrize(
    ("where", "columns"),
    [
        ("lower(name) = 'ada'", ["name"]),
        ("id = try_cast('x' AS INT)", ["id"]),
        ("day = DATE 'today'", ["day"]),
        ("day < TIMESTAMP ' Epoch '", ["day"]),
        ("name NOT LIKE 'a%%' ESCAPE '%'", ["name"]),
        ("id = small", ["id", "small"]),
        ("CAST(name AS INT) = 5", ["name"]),
        ("id + 1 = 5", ["id"]),
        ("name RLIKE 'a'", ["name"]),
        ("name = 5", ["name"]),
        ("name = DATE '2026-01-01'", ["name"]),
        ("f = 16777217", ["f"]),
        ("id = 1.5F", ["id"]),
        ("price = '1.5'", ["price"]),
        ("items.q = 1", ["items"]),
        ("tags['k'] = 1 OR tags.k = 2", ["tags"]),
        ("exists(items, i -> i.q > id)", ["items", "id"]),
        ("day > current_date()", ["day"]),
        ("(id = 1) = ok", ["id", "ok"]),
        ("CASE WHEN ok THEN id > 1 END", ["ok", "id"]),
    ],
)
def test_what_only_an_engine_can_judge_is_unknown_and_names_its_columns(where: str, columns: list[str]) -> None:
    found = parse(where, SCHEMA)
    assert all(isinstance(leaf, Unknown) for leaf in (found.parts if isinstance(found, Or) else (found,)))
    assert [".".join(column.path) for column in columns_of(found)] == columns
    assert columns_of(negation(found)) == columns_of(found)


def test_pattern_with_a_prefix_is_judged_by_it_too() -> None:
    found = parse("name LIKE 'ad%a'", SCHEMA)
    assert isinstance(found, And)
    assert found.parts == (StartsWith(NAME, "ad"), Like(NAME, "ad%a"))
    assert parse("name NOT LIKE 'ad%a'", SCHEMA) == negation(found)


def test_days_in_a_list_of_strings_are_judged_but_their_opposite_is_not() -> None:
    """By Spark's settings such a list is compared as strings: '2026-1-1' is then no day at all."""
    inside, outside = parse("day IN ('2026-01-01')", SCHEMA), parse("day NOT IN ('2026-01-01')", SCHEMA)
    assert isinstance(inside, And)
    assert inside.parts[0] == Comparison(_column("day"), "=", date(2026, 1, 1))
    assert isinstance(outside, Or)
    assert isinstance(outside.parts[1], Unknown)


@pytest.mark.parametrize("mark", [{"__COLLATIONS": {}}, {"__CHAR_VARCHAR_TYPE_STRING": "char(3)"}], ids=str)
def test_strings_that_do_not_compare_by_their_bytes_are_not_judged(mark: dict[str, object]) -> None:
    schema = StructType((StructField("name", PrimitiveType("string"), True, mark),))
    for where in ("name = 'ada'", "name LIKE 'a%'", "name IN ('a', 'b')"):
        assert isinstance(parse(where, schema), Unknown)
    assert isinstance(parse("name IS NULL", schema), IsNull)


def test_varchar_compares_by_its_bytes() -> None:
    mark = {"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}
    schema = StructType((StructField("name", PrimitiveType("string"), True, mark),))
    assert isinstance(parse("name = 'ada'", schema), Comparison)


def test_ten_thousand_values_are_no_trouble() -> None:
    values = ", ".join(f"'{i}'" for i in range(10_000))
    found = parse(f"name IN ({values})", SCHEMA)
    assert isinstance(found, In)
    assert len(found.values) == 10_000
    chain = parse(" OR ".join(f"id = {i}" for i in range(500)), SCHEMA)
    assert isinstance(chain, Or)
    assert len(chain.parts) == 500


def _both_ways(where: str) -> tuple[Predicate, Predicate]:
    """The condition, and what the parser makes of it when no list is taken out of the text."""
    source = Source(where, "where")
    return parse(where, SCHEMA), bind(source, source.condition(), SCHEMA, UTC)


NUMBERS = ", ".join(str(i * 7 - 300) for i in range(150))
NAMES = ", ".join(f"'n{i},'" for i in range(150))
DAYS = ", ".join(f"'2026-01-{i % 28 + 1:02}'" for i in range(150))


@pytest.mark.parametrize(
    "where",
    [
        f"id IN ({NUMBERS})",
        f"id NOT in({NUMBERS}) AND ok",
        f"-5 = id OR id IN ( {NUMBERS} ) OR name IN ({NAMES})",
        f"id IN (2147483648, -2147483648, 99999999999999999999, 1.5, 007, {NUMBERS})",
        f"id IN ({NUMBERS}, NULL)",
        f"id IN ({NUMBERS}, 5L)",
        f"name IN ({NAMES})",
        f"name IN ({NAMES}, 'it''s')",
        f"name IN ({NAMES}, 'a' 'b')",
        f"name IN ({NUMBERS})",
        f"day IN ({DAYS})",
        f"day NOT IN ({DAYS})",
        f"lower(name) IN ({NAMES}) OR id IN ({NUMBERS})",
        f"CASE WHEN id IN ({NUMBERS}) THEN ok END",
        f"name = 'x IN ({NUMBERS})'",
        f"name = r'\\' OR name = 'x IN ({NUMBERS})'",
        f"id = 1 -- id IN ({NUMBERS})",
        f"id = 1 /* id IN ({NUMBERS}) */ AND id IN ({NUMBERS})",
    ],
    ids=lambda where: where[:40],
)
def test_long_list_is_read_as_a_short_one_is(where: str) -> None:
    short, whole = _both_ways(where)
    assert short == whole


def test_smallest_long_is_a_long_and_not_a_decimal() -> None:
    found = parse("id = -9223372036854775808", SCHEMA)
    assert isinstance(found, Comparison)
    assert type(found.value) is int


def test_error_in_a_long_list_points_at_the_place() -> None:
    where = f"id IN ({NUMBERS}, 'one', {NUMBERS})"
    with pytest.raises(PredicateError) as refused:
        parse(where, SCHEMA)
    assert refused.value.position == where.index("'one'")
    with pytest.raises(PredicateError, match="there is no column nane") as refused:
        parse(f"id IN ({NUMBERS}) AND nane = 1", SCHEMA)
    assert max(map(len, str(refused.value).splitlines())) < 300


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("name = 'x", 8),
        ("name = 'it''s' AND name = \"q", 27),
        ("id = 1 /* why", 8),
        ("name = '" + "'' " * 50_000, 150_007),
    ],
    ids=["quote", "after a quote that is closed", "comment", "of many"],
)
def test_quote_or_comment_that_is_not_closed_is_pointed_at(text: str, position: int) -> None:
    with pytest.raises(PredicateError, match=f"syntax error, at position {position} of"):
        parse(text, SCHEMA)


def test_a_hundred_thousand_values_take_a_moment() -> None:
    texts = [", ".join(str(i) for i in range(100_000)), ", ".join(f"'{i}'" for i in range(100_000))]
    before = time.process_time()
    found = [parse(f"{column} IN ({text})", SCHEMA) for column, text in zip(("id", "name"), texts, strict=True)]
    assert [len(one.values) for one in found if isinstance(one, In)] == [100_000] * 2
    assert time.process_time() - before < 3


def test_many_values_for_one_column_become_a_list() -> None:
    many = range(30)
    assert grouped(parse(" OR ".join(f"id = {i}" for i in many), SCHEMA)) == In(ID, tuple(many))
    assert grouped(parse(" AND ".join(f"id <> {i}" for i in many), SCHEMA)) == In(ID, tuple(many), negated=True)
    mixed = parse(" OR ".join([*(f"id = {i}" for i in many), "ok", "id = 1.5e0"]), SCHEMA)
    lists = {In(ID, tuple(many)), Comparison(ID, "=", 1.5), Comparison(_column("ok"), "=", True)}
    found = grouped(mixed)
    assert isinstance(found, Or)
    assert set(found.parts) == lists
    few = parse("id = 1 OR id = 2", SCHEMA)
    assert grouped(few) == few


@pytest.mark.parametrize(
    "where",
    [
        "id = {digits}",
        "id = -{digits}",
        "id = {digits}L",
        "id = -{digits}Y",
        "id = '{digits}'",
        "id IN (1, {digits})",
        "price = {digits}.5",
        "price = 0.{digits}",
        "x = {digits}D",
        "id = CAST({digits} AS DECIMAL(10,2))",
        "1 = {digits}",
        "x < 1e999999999",
        "day = '{digits}-01-01'",
        "id = CAST('{digits}' AS BIGINT)",
    ],
)
def test_number_of_thousands_of_digits_is_refused(where: str) -> None:
    with pytest.raises(PredicateError) as refused:
        parse(where.format(digits="9" * 5_000), SCHEMA)
    assert len(str(refused.value)) < 1_000


@pytest.mark.parametrize(
    "where", ["id = CAST(1 AS DECIMAL({digits},2))", "price = 1e999999999BD", "x = '{digits}'", "raw = X'{digits}'"]
)
def test_what_only_looks_like_a_long_number_is_left_to_the_engine(where: str) -> None:
    parse(where.format(digits="9" * 5_000), SCHEMA)


@pytest.mark.parametrize(
    "where",
    ["(" * 5_000 + "ok" + ")" * 5_000, "NOT " * 5_000 + "ok", ".".join(["id"] * 5_000), "id = " + "- " * 5_000 + "1"],
    ids=["parentheses", "not", "names", "minus"],
)
def test_what_is_nested_too_deeply_is_refused(where: str) -> None:
    with pytest.raises(PredicateError) as refused:
        parse(where, SCHEMA)
    assert len(str(refused.value)) < 1_000


def test_partition_part_is_what_partition_values_decide() -> None:
    def part(where: str) -> str:
        return to_sql(partition_part(parse(where, SCHEMA), ["day", "name"]))

    assert part("day = '2026-01-01' AND id = 5") == "`day` = DATE '2026-01-01'"
    assert part("day = '2026-01-01' OR id = 5") == "TRUE"
    assert part("NOT (name = 'a' OR id = 5)") == "`name` <> 'a'"
    assert (
        part("(day < '2026-01-01' OR name = 'a') AND (name = 'b' OR id = 1)")
        == "`day` < DATE '2026-01-01' OR `name` = 'a'"
    )
    assert part("id = 5") == "TRUE"
    assert part("year(day) = 2026 AND id = 1") == "(YEAR(day) = 2026)"
    assert part("id = 5 AND FALSE") == "FALSE"


@given(cases())
def test_what_is_written_back_is_read_the_same(case: Case) -> None:
    schema = case.metadata.schema
    found = parse(case.condition.sql, schema, zone=case.zone)
    again = parse(to_sql(found), schema)
    # As text: NaN is not equal to itself.
    assert repr(again) == repr(found)


def test_condition_is_kept_for_its_text_its_schema_and_its_zone() -> None:
    schema = schema_from_ddl("id BIGINT, at TIMESTAMP")
    where = "at = '2026-01-01 00:00:00'"
    assert parse(where, schema) is parse(where, schema)
    assert parse(where, schema, zone="Europe/Berlin") == parse("at = '2025-12-31 23:00:00Z'", schema)
    assert parse(where, schema, zone="UTC") == parse("at = '2026-01-01 00:00:00Z'", schema)
    changed = schema_from_ddl("at STRING, id BIGINT")
    assert columns_of(parse(where, changed)) == (Column(("at",), PrimitiveType("string")),)
    assert columns_of(parse(where, schema)) == (Column(("at",), PrimitiveType("timestamp")),)


def test_error_of_a_condition_is_raised_each_time_and_names_its_argument() -> None:
    for field in ("where", "replace_where", "where"):
        for _ in range(2):
            with pytest.raises(PredicateError) as failed:
                parse("nothing = 1", SCHEMA, field=field)
            assert failed.value.field == field


def test_conditions_are_not_kept_for_ever_and_long_ones_not_at_all() -> None:
    for number in range(2 * parser.MAX_KEPT):
        assert parse(f"id = {number}", SCHEMA) == Comparison(_column("id"), "=", number)
    assert parser._kept.cache_info().currsize <= parser.MAX_KEPT
    long = " OR ".join(f"id = {number}" for number in range(parser.MAX_KEPT_TEXT))
    before = parser._kept.cache_info()
    assert parse(long, SCHEMA) == parse(long, SCHEMA)
    assert parser._kept.cache_info() == before
