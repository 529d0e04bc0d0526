"""`deltars sql` without Spark: which engine runs a query, what is printed, and mistakes that are pointed at."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import deltars
from deltars.cli import sql as command
from deltars.predicate import Query
from deltars.transaction.duckdb_query import DuckDBQuery
from tests.cli.conftest import Run

ROWS = pa.table(
    {
        "id": pa.array([1, 2, None], pa.int64()),
        "day": [date(2026, 1, 1), date(2026, 1, 2), None],
        "name": ["a,b", "", None],
        "score": [0.5, math.nan, None],
        "price": pa.array([Decimal("1.10"), Decimal("2.20"), None], pa.decimal128(10, 2)),
        "at": pa.array([datetime(2026, 1, 1, tzinfo=UTC), None, None], pa.timestamp("us", "UTC")),
    }
)


@pytest.fixture
def lake(run: Run, monkeypatch: pytest.MonkeyPatch) -> deltars.Catalog:
    """A catalog with two tables; starting Spark fails the test."""

    def no_spark(*_: object) -> None:
        pytest.fail("Spark was started")

    monkeypatch.setattr(command, "_spark_result", no_spark)
    catalog = deltars.connect()
    catalog.write("features", ROWS, partition_by="day")
    catalog.write("labels", pa.table({"id": [1, 2], "label": ["x", "y"]}))
    return catalog


SAME = [
    ("SELECT count(*) FROM features", "count(*)\n3\n"),
    ("SELECT id FROM features ORDER BY id", "id\n\n1\n2\n"),  # Spark: nulls first
    ("SELECT id FROM features ORDER BY id DESC", "id\n2\n1\n\n"),
    ("SELECT sum(id) AS s, sum(price) AS p, max(at) AS t FROM features", "s,p,t\n3,3.30,2026-01-01T00:00:00+00:00\n"),
    ("SELECT name FROM features WHERE day <= '2026-01-02' ORDER BY id", 'name\n"a,b"\n""\n'),
    ("SELECT max(score) AS m FROM features", "m\nNaN\n"),  # NaN is the greatest
    ("SELECT label FROM features JOIN labels USING (id) WHERE name LIKE 'a%'", "label\nx\n"),
    ("SELECT a.id FROM features a JOIN features b ON a.id = b.id ORDER BY 1", "id\n1\n2\n"),
    ("WITH x AS (SELECT * FROM labels) SELECT count(*) AS n FROM x, x AS y", "n\n4\n"),
    ("SELECT id FROM features WHERE id > 5", "id\n"),
    ("SELECT id / 2 AS half FROM labels ORDER BY id", "half\n0.5\n1.0\n"),
    ("SELECT count(*) AS n FROM features WHERE score > 0.4 AND NOT (id = 2 OR name IS NULL)", "n\n1\n"),
    ("SELECT label FROM labels WHERE id = 1 UNION SELECT 'z' ORDER BY 1", "label\nx\nz\n"),
]


@pytest.mark.parametrize(("query", "printed"), SAME, ids=[query for query, _ in SAME])
def test_query_that_means_the_same_in_duckdb_runs_there(
    query: str, printed: str, lake: deltars.Catalog, run: Run
) -> None:
    result = run("sql", query, "-v")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == printed
    assert "DuckDB runs the query" in result.stderr
    assert run("sql", query).stderr == ""


@pytest.mark.parametrize(
    ("query", "doubt"),
    [
        ("SELECT upper(name) FROM features", "UPPER(name)"),
        ("SELECT id / score FROM features", "a division, which may be by zero"),
        ("SELECT avg(price) FROM features", "AVG("),
        ("SELECT id FROM features WHERE name = 5", "a comparison of two types"),
        ("SELECT price * 2 FROM features", "arithmetic on other types"),
        ("SELECT score * 1.5 FROM features", "arithmetic with 1.5"),
        ("SELECT id FROM features WHERE name LIKE 'a\\\\_%'", "a backslash"),
        ("SELECT name AS id FROM features GROUP BY id", "the alias id"),
        ("SELECT id FROM features UNION SELECT label FROM labels", "columns of two types"),
        ("SELECT row_number() OVER (ORDER BY id) FROM features", "ROW_NUMBER()"),
        ("WITH x AS (SELECT at AS t FROM features) SELECT * FROM x WHERE t > 'now'", "a comparison of two types"),
        ("SELECT explode(sequence(1, 3)) AS n", "EXPLODE"),
        ("SELECT * FROM features TABLESAMPLE (10 PERCENT)", "TABLESAMPLE"),
        ("SELECT CAST(name AS INT) FROM features", "CAST(name AS INT)"),
        ("SELECT id FROM features WHERE id", "a condition that is not a boolean"),
        ("SELECT id FROM features WHERE id > 1 AND name", "a condition that is not a boolean"),
        ("SELECT CASE name WHEN 5 THEN 1 END FROM features", "CASE with a value"),
        ("SELECT * FROM features JOIN labels USING (id)", "in another order"),
        ("SELECT id FROM features RIGHT JOIN labels USING (id)", "a RIGHT join"),
        ("SELECT id FROM features WHERE at > 5", "a comparison of two types"),
        ("SELECT user FROM features", "user, which is no column"),
        ("SELECT count(features.*) FROM features", "count of several columns"),
        ("SELECT id FROM features WHERE id IS TRUE", "a condition that is not a boolean"),
        ("SELECT id FROM features WHERE id BETWEEN SYMMETRIC 5 AND 1", "BETWEEN"),
        ("SELECT DISTINCT score FROM features", "groups of floating-point"),
        ("SELECT score AS s FROM features GROUP BY s", "groups of floating-point"),
        ("SELECT score AS s FROM features GROUP BY 1", "groups of floating-point"),
        ("SELECT score FROM features UNION SELECT score FROM features", "groups of floating-point"),
    ],
)
def test_query_that_may_mean_something_else_in_duckdb_is_in_doubt(
    query: str, doubt: str, lake: deltars.Catalog
) -> None:
    found = DuckDBQuery(lake.snapshot(), Query(query)).doubt
    assert found is not None
    assert doubt in found


@pytest.mark.parametrize(
    ("query", "clause"),
    [
        ("SELECT id FROM labels SORT BY id DESC LIMIT 1", "SORT BY id DESC"),
        ("SELECT id FROM labels DISTRIBUTE BY id", "DISTRIBUTE BY id"),
        ("SELECT id FROM labels CLUSTER BY id", "CLUSTER BY id"),
        ("SELECT id FROM labels WITH (NOLOCK)", "WITH (NOLOCK)"),
        ("SELECT id FROM labels FETCH FIRST 1 ROWS WITH TIES", "FETCH"),
        ("SELECT id FROM labels FOR UPDATE", "LOCK"),
    ],
)
def test_clause_that_the_translation_would_drop_is_refused_for_duckdb(
    query: str, clause: str, lake: deltars.Catalog
) -> None:
    with pytest.raises(deltars.ValidationError, match="DuckDB cannot run the query") as caught:
        DuckDBQuery(lake.snapshot(), Query(query))
    assert clause in str(caught.value)


def test_query_may_define_a_name_that_the_translation_uses(lake: deltars.Catalog) -> None:
    with pytest.raises(deltars.ValidationError, match="the name of a table of DuckDB"):
        DuckDBQuery(lake.snapshot(), Query("WITH table_0 AS (SELECT 7 AS k) SELECT k FROM labels, table_0"))


def test_engine_that_was_asked_for_runs_a_query_in_doubt_and_says_so(lake: deltars.Catalog, run: Run) -> None:
    result = run("sql", "SELECT upper(label) AS u FROM labels ORDER BY u", "--engine", "duckdb")
    assert result.stdout == "u\nX\nY\n"
    assert result.stderr == ("Note: DuckDB runs the query. Spark may give other rows, because of UPPER(label).\n")


def test_all_tables_are_read_at_one_moment_and_as_of_an_earlier_one(lake: deltars.Catalog, run: Run) -> None:
    with lake.begin(txn_id="both") as tx:
        tx.write("features", ROWS)
        tx.write("labels", pa.table({"id": [3], "label": ["z"]}))
    lake.write("labels", pa.table({"id": [4], "label": ["w"]}))
    query = "SELECT (SELECT count(*) FROM features) AS f, (SELECT count(*) FROM labels) AS l"
    assert run("sql", query).stdout == "f,l\n6,4\n"
    assert run("sql", query, "--as-of", "both").stdout == "f,l\n6,3\n"


def test_only_files_that_may_match_are_opened(lake: deltars.Catalog, run: Run) -> None:
    for path in Path(lake.table("features").location).rglob("*.parquet"):
        if "day=2026-01-01" not in str(path):
            path.unlink()
    assert run("sql", "SELECT id FROM features WHERE day = '2026-01-01'").stdout == "id\n1\n"
    missing = run("sql", "SELECT sum(id) AS s FROM features")
    assert missing.exit_code == 1
    assert "no longer exists" in missing.stderr or "is missing" in missing.stderr or "gone" in missing.stderr
    assert "[table features, version 0]" in missing.stderr


def test_forms_of_rows(lake: deltars.Catalog, run: Run) -> None:
    query = "SELECT id, name, score FROM features ORDER BY id"
    assert run("sql", query).stdout == 'id,name,score\n,,\n1,"a,b",0.5\n2,"",NaN\n'
    as_json = run("sql", query, "--format", "json").stdout
    assert as_json == run("sql", query, "--json").stdout
    assert json.loads(as_json)[2] == {"id": 2, "name": "", "score": "NaN"}
    table = run("sql", query, "--format", "table").stdout.splitlines()
    assert table[0].split() == ["id", "name", "score"]
    assert len(table) == 4


def test_table_of_rows_shows_the_names_of_the_columns_unchanged(lake: deltars.Catalog, run: Run) -> None:
    lake.write("named", pa.table({"customer_id": [1], "my__x": [2], "[red]": [3]}))
    for words in (("sql", "SELECT * FROM named"), ("head", "named")):
        header = run(*words, "--format", "table").stdout.splitlines()[0]
        assert header.split() == ["customer_id", "my__x", "[red]"]


def test_query_comes_from_standard_input_or_a_file(lake: deltars.Catalog, run: Run) -> None:
    assert run("sql", "-", input="SELECT count(*) AS n\nFROM labels;\n").stdout == "n\n2\n"
    Path("q.sql").write_text("SELECT 'ä' AS a -- a comment\n")
    assert run("sql", "-f", "q.sql").stdout == "a\nä\n"
    for arguments in ([], ["SELECT 1", "-f", "q.sql"], ["-f", "missing.sql"]):
        assert run("sql", *arguments).exit_code == 2


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT idd FROM features", ["there is no column idd, at position 8", "Did you mean id?"]),
        ("SELECT f.labl FROM labels AS f", ["there is no column labl", "Did you mean label?"]),
        ("SELECT * FROM featurs", ["there is no table 'featurs'", "Did you mean 'features'?"]),
        ("SELECT id FORM features WHERE", ["syntax error"]),
        ("SELEC 1", ["SELEC is not supported, at position 1", "Did you mean SELECT?"]),
        ("DELETE FROM features WHERE idd = 1", ["there is no column idd, at position 28", "Did you mean id?"]),
        ("update features SET nam = 1", ["the table has no column 'nam'", "at position 21", "Did you mean 'name'?"]),
        ("INSERT INTO features VALUES (1)", ["the rows have 1 columns, and the table has 6"]),
        ("MERGE INTO a USING b ON a.id = b.id WHEN MATCHED THEN DELETE", ["there is no table 'a'", "at position 12"]),
        ("SELECT count(*) FROM features@v9", ["there is no version 9"]),
        ("EXPLAIN DELETE FROM features", ["only a query can be explained"]),
        ("", ["the statement is empty"]),
        ("SELECT * FROM read_csv('/etc/passwd')", ["DuckDB cannot run the query"]),
    ],
)
def test_mistake_in_a_query_is_one_sentence_that_points_at_it(
    query: str, said: list[str], lake: deltars.Catalog, run: Run
) -> None:
    result = run("sql", query, "--engine", "duckdb")
    assert result.exit_code == 1
    for part in said:
        assert part in result.stderr
    assert "Traceback" not in result.stderr


def test_columns_that_a_query_defines_are_no_mistakes(lake: deltars.Catalog) -> None:
    for query in (
        "SELECT n FROM (SELECT count(*) AS n FROM labels)",
        "SELECT t.a FROM labels AS t(a, b)",
        "WITH x(a) AS (SELECT id FROM labels) SELECT a FROM x",
        "SELECT current_date, v FROM labels LATERAL VIEW explode(array(1)) e AS v",
        "SELECT transform(array(1), z -> z + 1) FROM labels",
        "SELECT labels.id, LABELS.Label FROM labels",
    ):
        parsed = Query(query)
        parsed.check_columns([lake.snapshot().table(reference.name).schema for reference in parsed.tables])


def test_sum_beyond_64_bits_is_an_error_as_in_spark(lake: deltars.Catalog, run: Run) -> None:
    lake.write("big", pa.table({"n": [2**62, 2**62]}))
    result = run("sql", "SELECT sum(n) AS s FROM big")
    assert result.exit_code == 1
    assert "DuckDB cannot run the query" in result.stderr


def test_terminal_says_how_many_rows_it_leaves_out(
    lake: deltars.Catalog, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.write("many", pa.table({"n": range(2_500)}))
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes the stream for a terminal
    result = run("sql", "SELECT n FROM many ORDER BY n")
    assert len(result.stdout.splitlines()) == 1 + 1_000
    assert "1,500 more rows are left out: --limit 2500 shows them all." in result.stderr


def test_zeros_and_nans_are_grouped_and_compared_as_in_spark(lake: deltars.Catalog, run: Run) -> None:
    lake.write("zeros", pa.table({"x": [0.0, -0.0, math.nan, math.nan, math.inf]}))
    assert run("sql", "SELECT count(DISTINCT x) AS n FROM zeros").stdout == "n\n3\n"
    assert run("sql", "SELECT count(*) AS n FROM zeros a JOIN zeros b ON a.x = b.x").stdout == "n\n9\n"
    assert run("sql", "SELECT count(*) AS n FROM zeros WHERE x > 5").stdout == "n\n3\n"


@pytest.mark.parametrize("operator", ["=", "<>", "<", "<=", ">", ">="])
def test_conditions_on_floats_are_evaluated_by_duckdb_not_by_pyarrow(operator: str, lake: deltars.Catalog) -> None:
    """DuckDB hands conditions to pyarrow where it can, and pyarrow has other rules for NaN and −0.0."""
    values = [0.0, -0.0, 1.5, math.nan, math.inf, -math.inf, None]
    lake.write("floats", pa.table({"x": pa.array(values, pa.float64()), "s": [{"x": value} for value in values]}))
    duckdb = pytest.importorskip("duckdb")
    native = duckdb.connect()
    native.execute("CREATE TABLE plain (x DOUBLE)")
    native.executemany("INSERT INTO plain VALUES (?)", [(value,) for value in values])
    native.execute("CREATE TABLE floats AS SELECT x, {'x': x} AS s FROM plain")
    for query in (
        f"SELECT count(*) AS n FROM floats WHERE x {operator} 0",
        f"SELECT count(*) AS n FROM floats WHERE x {operator} 1.5",
        f"SELECT count(*) AS n FROM floats a JOIN floats b ON a.x {operator} b.x",
        f"SELECT count(*) AS n FROM floats WHERE s.x {operator} 1.5",
        f"SELECT count(*) AS n FROM floats WHERE x {operator} (SELECT max(x) FROM floats)",
    ):
        with DuckDBQuery(lake.snapshot(), Query(query)).rows() as rows:
            assert rows.read_all().column("n").to_pylist() == [native.execute(query).fetchone()[0]], query


@pytest.mark.parametrize("engine", ["auto", "duckdb", "spark"])
def test_moment_that_does_not_exist_is_refused_before_an_engine_starts(
    engine: str, lake: deltars.Catalog, run: Run
) -> None:
    result = run("sql", "SELECT * FROM labels", "--as-of", "nope", "--engine", engine)
    assert result.exit_code == 1
    assert "'nope'" in result.stderr
