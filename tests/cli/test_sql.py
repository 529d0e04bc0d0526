"""`deltars sql`: the rows of a query, as a table, as lines and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import deltars
from deltars.cli.output import Record, rows_of
from tests.cli.conftest import Run


@pytest.fixture
def first(run: Run, spark: SparkSession) -> str:
    """Two tables, written together twice; the id of the first transaction."""
    with deltars.connect() as catalog:
        ids = []
        for key in (1, 2):
            with catalog.begin() as tx:
                tx.write("features", pa.table({"id": [key], "score": [key / 2]}))
                tx.write("labels", pa.table({"id": [key], "name": [f"n{key}"]}))
            ids.append(str(tx.id))
    return ids[0]


JOIN = "SELECT f.id, l.id, name FROM features f JOIN labels l ON f.id = l.id ORDER BY 1"


def test_rows_of_a_query_over_two_tables(first: str, run: Run) -> None:
    assert run("sql", JOIN).stdout == "id,id_2,name\n1,1,n1\n2,2,n2\n"
    assert json.loads(run("sql", JOIN, "--json").stdout)[0] == {"id": 1, "id_2": 1, "name": "n1"}
    assert run("sql", JOIN, "--limit", "1").stdout == "id,id_2,name\n1,1,n1\n"
    assert run("sql", JOIN, "--as-of", first).stdout == "id,id_2,name\n1,1,n1\n"
    assert run("sql", "SELECT 1 AS a, 2 AS a, 3 AS a_2, 4 AS a").stdout == "a,a_3,a_2,a_4\n1,2,3,4\n"


def test_both_engines_give_the_same_text(first: str, run: Run) -> None:
    for query in (JOIN, "SELECT count(*) AS n, sum(id) AS s, max(score) AS m FROM features", "SELECT * FROM features"):
        duckdb, spark = (run("sql", query, "--engine", engine) for engine in ("duckdb", "spark"))
        assert (duckdb.exit_code, spark.exit_code) == (0, 0)
        assert sorted(duckdb.stdout.splitlines()) == sorted(spark.stdout.splitlines())


EDGES = pa.table(
    {
        "n": [1, 2, 3, None],
        "x": [-0.0, float("nan"), 0.5, None],
        "tiny": pa.array([127, -128, 5, None], pa.int8()),
        "list": pa.array([[1, None], [1, 2], [], None], pa.list_(pa.int64())),
        "text": ["é😀", "a,b", "", None],
    }
)
ON_EDGES = (
    "SELECT n FROM edges ORDER BY list",
    "SELECT x FROM edges GROUP BY x ORDER BY x",
    "SELECT tiny + 1 AS more FROM edges ORDER BY n",
    "SELECT n FROM edges SORT BY n DESC LIMIT 2",
    "SELECT n FROM edges WHERE text LIKE '__' OR x > 0.5 ORDER BY n DESC NULLS FIRST",
    'SELECT n / 2 AS half, n + 1 AS next, text FROM edges WHERE text = "a,b" ORDER BY 1',
    "SELECT n FROM edges UNION SELECT id FROM labels INTERSECT SELECT 2 ORDER BY 1",
)


def test_engine_that_is_chosen_gives_the_rows_of_spark_for_values_at_the_edges(first: str, run: Run) -> None:
    with deltars.connect() as catalog:
        catalog.write("edges", EDGES)
    for query in ON_EDGES:
        chosen, spark = (run("sql", query, "--engine", engine) for engine in ("auto", "spark"))
        assert (chosen.exit_code, spark.exit_code) == (0, 0), query
        assert chosen.stdout == spark.stdout, query


@pytest.mark.parametrize("query", ["SELECT id FROM features FOR UPDATE", "SELECT * EXCLUDE (id) FROM features"])
def test_what_spark_cannot_parse_is_named(query: str, first: str, run: Run) -> None:
    result = run("sql", query)
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: Spark cannot run the query: [PARSE_SYNTAX_ERROR] Syntax error at or near")
    assert "_pyspark" not in result.stderr
    assert "pos" not in result.stderr


def test_what_spark_refuses_is_one_sentence(first: str, run: Run) -> None:
    result = run("sql", "SELECT no_such_function(id) FROM features", "--engine", "spark")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: Spark cannot run the query: [UNRESOLVED_ROUTINE]")
    assert len(result.stderr.splitlines()) == 1


MANY = "SELECT id AS n, CAST(id AS STRING) AS text FROM (SELECT explode(sequence(1, 2500)) AS id) ORDER BY n"


def test_pipe_and_json_get_every_row_in_order(first: str, run: Run) -> None:
    numbers = [str(number) for number in range(1, 2_501)]
    result = run("sql", MANY)
    assert [line.split(",")[0] for line in result.stdout.splitlines()] == ["n", *numbers]
    assert result.stderr == ""
    assert [row["text"] for row in json.loads(run("sql", MANY, "--json").stdout)] == numbers
    assert len(run("sql", MANY, "--limit", "2000").stdout.splitlines()) == 1 + 2_000


def test_terminal_says_how_many_rows_it_leaves_out(first: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes the stream for a terminal
    result = run("sql", MANY)
    assert len(result.stdout.splitlines()) == 1 + 1_000
    assert "1,500 more rows are left out: --limit 2500 shows them all." in result.stderr
    everything = run("sql", MANY, "--limit", "2500")
    assert len(everything.stdout.splitlines()) == 1 + 2_500
    assert "left out" not in everything.stderr
    assert "left out" not in run("sql", JOIN).stderr
    assert "No rows." in run("sql", f"SELECT * FROM ({JOIN}) WHERE name = 'x'").stdout


@pytest.mark.parametrize("form", [(), ("--json",)], ids=["lines", "json"])
def test_rows_are_written_as_they_come(
    first: str, run: Run, spark: SparkSession, form: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never more of them at once than a batch of a task has."""
    monkeypatch.setattr("deltars.cli.sql.rows_of", _counting := _Counting())
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    try:
        run("sql", MANY, *form)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert _counting.batches >= 25
    assert _counting.most == 100


class _Counting:
    """`rows_of`, which notes how many rows of Python there are at most."""

    def __init__(self) -> None:
        self.batches = self.most = 0

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Record]:
        for batch in batches:
            self.batches += 1
            self.most = max(self.most, batch.num_rows)
            yield from rows_of([batch])
