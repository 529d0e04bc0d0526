"""A query over several tables: what it names, what it asks of each table alone, and that nothing needed is left out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltars.errors import PredicateError
from deltars.predicate import Query, parse, to_sql
from deltars.protocol import PrimitiveType, StructField, StructType, as_schema

FEATURES = as_schema("id bigint, day date, score double, s struct<x: int>")
LABELS = as_schema("id bigint, label string, clicks int")
SCHEMAS = {"features": FEATURES, "labels": LABELS}


def test_every_table_is_found_where_it_stands() -> None:
    text = "SELECT * FROM features f JOIN `labels` USING (id) WHERE EXISTS (SELECT 1 FROM db.`a b` WHERE x = 1)"
    assert [reference.name for reference in Query(text).tables] == ["features", "labels", "db.a b"]
    assert [text[reference.position :][:4] for reference in Query(text).tables] == ["feat", "`lab", "db.`"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("WITH c AS (SELECT * FROM features) SELECT * FROM c", ["features"]),
        ("WITH features AS (SELECT * FROM features) SELECT * FROM FEATURES", ["features"]),
        ("WITH a AS (SELECT 1), b AS (SELECT * FROM a, labels) SELECT * FROM b, a", ["labels"]),
        ("WITH b AS (SELECT * FROM a), a AS (SELECT 1) SELECT * FROM b", ["a"]),
        ("SELECT * FROM (WITH c AS (SELECT 1) SELECT * FROM c) JOIN c", ["c"]),
        ("WITH c AS (SELECT 1) SELECT * FROM db.c", ["db.c"]),
        ("WITH RECURSIVE r AS (SELECT 1 UNION ALL SELECT * FROM r) SELECT * FROM r", []),
        ("SELECT * FROM range(10), VALUES (1) AS v(a)", []),
        ("SELECT * FROM features UNION ALL SELECT * FROM labels", ["features", "labels"]),
        ("SELECT (SELECT max(id) FROM labels) FROM features WHERE id IN (SELECT id FROM labels)", None),
    ],
)
def test_names_of_a_with_are_no_tables(text: str, names: list[str] | None) -> None:
    expected = ["labels", "features", "labels"] if names is None else names
    assert [reference.name for reference in Query(text).tables] == expected


def test_only_the_names_of_tables_are_rewritten() -> None:
    text = "SELECT features.id, '{features}' -- features\nFROM features JOIN `labels` l ON features.id = l.id"
    assert Query(text).rewritten(lambda place: f"<{place}>", str.upper) == (
        "SELECT FEATURES.ID, '{FEATURES}' -- FEATURES\nFROM <0> AS `FEATURES` JOIN <1> L ON FEATURES.ID = L.ID"
    )


@pytest.mark.parametrize("sample", ["TABLESAMPLE (10 ROWS)", "TABLESAMPLE (10 PERCENT) REPEATABLE (7)"])
def test_name_of_a_table_stands_behind_its_sample(sample: str) -> None:
    text = f"SELECT features.id FROM features {sample} WHERE features.id = (1)"
    assert Query(text).rewritten(lambda place: f"<{place}>", str) == (
        f"SELECT features.id FROM <0> {sample} AS `features` WHERE features.id = (1)"
    )


@pytest.mark.parametrize(
    ("text", "predicates"),
    [
        ("SELECT * FROM features WHERE id = 1 AND (score > 2 AND s.x = 3)", ["id = 1 AND score > 2.0 AND s.x = 3"]),
        ("SELECT * FROM features f WHERE f.id = 1 AND f.s.x = 3", ["id = 1 AND s.x = 3"]),
        ("SELECT * FROM features f JOIN labels l USING (id) WHERE clicks = 1 AND id = 2", [None, "clicks = 1"]),
        ("SELECT * FROM features f JOIN labels l ON f.id < l.id AND clicks > 1 WHERE s.x = 2", ["s.x=2", "clicks > 1"]),
        ("SELECT * FROM features, labels WHERE score = 1.5 OR clicks = 1", [None, None]),
        ("SELECT * FROM features f LEFT JOIN labels l ON f.id = 1 AND clicks = 1 WHERE l.id = 2", [None, "clicks = 1"]),
        ("SELECT * FROM features f LEFT JOIN labels l ON f.id = l.id WHERE f.id = 1", ["id = 1", None]),
        ("SELECT * FROM features WHERE id = (SELECT max(id) FROM labels WHERE clicks = 2)", [None, "clicks = 2"]),
        ("SELECT * FROM features f WHERE EXISTS (SELECT 1 FROM labels l WHERE l.id = f.id AND f.id = 1)", [None, None]),
        ("SELECT * FROM features a JOIN features b ON a.id = b.id WHERE a.id < 5", ["id < 5", None]),
        ("SELECT * FROM features AS f(a, id, b, c) WHERE id = 1", [None]),
        ("SELECT * FROM features, (SELECT 1 AS x) d WHERE score = 1.0 AND features.id = 1", ["id = 1"]),
        ("SELECT * FROM features TABLESAMPLE (10 PERCENT) WHERE id = 1", [None]),
        ("SELECT s.x, count(*) AS id FROM features GROUP BY 1 |> WHERE id = 1", [None]),
        ("FROM features |> LIMIT 1 |> WHERE id = 1", [None]),
        ("FROM features |> LIMIT 5 |> JOIN labels ON features.id = 1", [None, None]),
        ("SELECT * FROM features LATERAL VIEW explode(array(1)) e AS day WHERE day = 1", [None]),
        ("SELECT * FROM features WHERE nothing = 1 AND id = 7", ["id = 7"]),
        ("SELECT * FROM features WHERE id = :p AND score = 1", ["score = 1.0"]),
    ],
)  # fmt: skip
def test_what_is_asked_of_one_table_alone_chooses_its_files(text: str, predicates: list[str | None]) -> None:
    query = Query(text)
    schemas = [SCHEMAS[reference.name] for reference in query.tables]
    assert query.predicates(schemas, UTC) == [
        None if where is None else parse(where, schema) for where, schema in zip(predicates, schemas, strict=True)
    ]


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("SELECT score FROM features WHERE DAY > '2026-01-01'", [["day", "score"]]),
        ("SELECT count(*) FROM features", [["id"]]),
        ("SELECT count(*), f.s.x FROM features f JOIN labels USING (id)", [["id", "s"], ["id"]]),
        ("SELECT clicks FROM (SELECT clicks, label FROM labels)", [["label", "clicks"]]),
        ("SELECT id FROM features WHERE EXISTS (SELECT * FROM labels)", [None, None]),
        ("SELECT l.* FROM features JOIN labels l USING (id)", [None, None]),
        ("FROM features", [None]),
        ("SELECT id FROM features NATURAL JOIN labels", [None, None]),
        ("SELECT id FROM features AS f(a, id, b, c)", [None]),
        ("SELECT id FROM labels PIVOT (sum(clicks) FOR label IN ('a'))", [None]),
        ("SELECT IDENTIFIER('sc' || 'ore') FROM features", [None]),
        ("SELECT count(DISTINCT *) FROM labels", [None]),
    ],
)
def test_columns_that_are_named_nowhere_are_not_needed(text: str, columns: list[list[str] | None]) -> None:
    query = Query(text)
    assert query.columns([SCHEMAS[reference.name] for reference in query.tables]) == columns


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("DELETE FROM features", "only one query"),
        ("SELECT 1; SELECT 2", "only one query"),
        ("SELEC * FROM features", "only one query|syntax error"),
        ("SELECT * FROM features WHERE", "syntax error|too early"),
        ("SELECT * FROM features AT (VERSION => 3)", "form of a moment is not supported"),
        ("SELECT @v3 FROM features", "only a table can be read at a moment"),
        ("", "empty"),
    ],
)
def test_what_is_no_query_is_an_error_that_says_where(text: str, problem: str) -> None:
    with pytest.raises(PredicateError, match=problem) as raised:
        Query(text)
    assert "of the query" in str(raised.value)


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("SELECT * FROM features VERSION AS OF 3", "version", "3"),
        ("SELECT * FROM features FOR SYSTEM_VERSION AS OF '3' f", "version", "'3'"),
        ("SELECT * FROM features@v3", "version", "3"),
        ("SELECT * FROM `features` @V3 AS f", "version", "3"),
        ("SELECT f.id FROM features@20260131120000000 f", "timestamp", "20260131120000000"),
        ("SELECT 1 FROM features TIMESTAMP AS OF :then WHERE id = 1", "timestamp", ":then"),
        ("SELECT 1 FROM features TIMESTAMP AS OF now() - INTERVAL 1 DAY JOIN x", "timestamp", "now() - INTERVAL 1 DAY"),
        ("SELECT 1 FROM features TIMESTAMP AS OF DATE '2026-01-01'", "timestamp", "DATE '2026-01-01'"),
    ],
)
def test_moment_belongs_to_its_table_and_leaves_the_query(text: str, kind: str, value: str) -> None:
    query = Query(text)
    moment = query.tables[0].moment
    assert moment is not None
    assert (moment.kind, moment.value.text) == (kind, value)
    assert text[moment.value.start :].startswith(value)
    assert value not in query.rewritten(lambda place: "t", str)


def test_alias_of_is_no_moment() -> None:
    assert Query("SELECT version AS of FROM features").tables[0].moment is None


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("OPTIMIZE features ZORDER BY (id)", "table.optimize()"),
        ("-- nightly\nvacuum features RETAIN 0 HOURS", "table.vacuum()"),
        ("RESTORE TABLE features TO VERSION AS OF 0", "table.restore(version)"),
        ("/* who? */ DESCRIBE HISTORY features", "table.history()"),
        ("DESC DETAIL features", "table.detail()"),
        ("DESCRIBE features", "table.detail()"),
        ("SHOW TABLES", "catalog.tables()"),
        ("SHOW TBLPROPERTIES features", "table.detail()"),
        ("EXPLAIN SELECT 1", "catalog.sql(query).explain()"),
        ("MERGE INTO features USING labels ON true WHEN MATCHED THEN DELETE", "tx.merge(table, rows, on)"),
    ],
)
def test_statement_that_a_call_does_names_the_call(text: str, call: str, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(PredicateError, match="only one query is allowed") as raised:
        Query(text)
    assert raised.value.hint == f"Begin with SELECT or WITH. {call} does this."
    assert caplog.text == ""


def test_at_sign_that_names_no_moment_is_left_alone() -> None:
    assert Query("SELECT '@v0', `a@v1` FROM features -- @v2").tables[0].name == "features"


# -- nothing that matters is left out ----------------------------------------------------------------------------------

JOINS = ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN"]
ATOMS = [
    *(f"{t}.{c} {test}" for t in "abc" for c in "xy" for test in ("= 1", "> 1", "IS NULL", "IS NOT NULL")),
    *(f"{t}.x = {u}.x" for t, u in itertools.combinations("abc", 2)),
    "u = 1", "v > 1", "w IS NULL",
]  # fmt: skip
SCHEMA_OF = {
    name: StructType(tuple(StructField(column, PrimitiveType("integer")) for column in ("x", "y", extra)))
    for name, extra in zip("abc", "uvw", strict=True)
}


@st.composite
def queries(draw: st.DrawFn) -> str:
    joins = draw(st.lists(st.sampled_from(JOINS), min_size=1, max_size=2))
    visible = {"a"}
    text = "SELECT count(*), {sums} FROM a"
    condition = st.lists(st.sampled_from(ATOMS), min_size=1, max_size=3)

    def drawn(names: set[str]) -> str:
        shown = names | {dict(zip("abc", "uvw", strict=True))[name] for name in names}
        atoms = [atom for atom in draw(condition) if set(atom) & set("abcuvw") <= shown] or ["a.x = 1"]
        return draw(st.sampled_from([" AND ", " OR "])).join(atoms)

    for name, join in zip("bc", joins, strict=False):
        text += f" {join} {name} ON {drawn(visible | {name})}"
        if join not in ("SEMI JOIN", "ANTI JOIN"):
            visible.add(name)
    sums = ", ".join(f"sum({name}.{column}), count({name}.{column})" for name in sorted(visible) for column in "xy")
    return text.replace("{sums}", sums) + f" WHERE {drawn(visible)}"


values = st.sampled_from([None, 0, 1, 2])
tables = st.lists(st.tuples(values, values, values), max_size=5)


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as connection:
        yield connection


@settings(max_examples=200, deadline=None)
@given(text=queries(), rows=st.tuples(tables, tables, tables))
def test_rows_that_a_predicate_leaves_out_change_no_answer(
    duck: duckdb.DuckDBPyConnection, text: str, rows: tuple[list[Any], ...]
) -> None:
    query = Query(text)
    names = [reference.name for reference in query.tables]
    predicates = dict(zip(names, query.predicates([SCHEMA_OF[name] for name in names], UTC), strict=True))
    for (name, schema), those in zip(SCHEMA_OF.items(), rows, strict=True):
        columns = ", ".join(f"{column} INTEGER" for column in schema.names)
        duck.execute(f"CREATE OR REPLACE TABLE {name} ({columns})")
        if those:
            duck.execute(f"INSERT INTO {name} VALUES {', '.join(map(str, those)).replace('None', 'NULL')}")
    whole = duck.execute(text).fetchall()
    for name, predicate in predicates.items():
        if predicate is not None:
            kept = to_sql(predicate).replace("`", '"')
            duck.execute(f"DELETE FROM {name} WHERE ({kept}) IS NOT TRUE")
    assert duck.execute(text).fetchall() == whole
