"""`deltars sql`: the rows of a query, as a table, as lines and as JSON."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import deltars
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
    assert run("sql", JOIN).stdout == "1\t1\tn1\n2\t2\tn2\n"
    assert json.loads(run("sql", JOIN, "--json").stdout)[0] == {"id": 1, "id_2": 1, "name": "n1"}
    assert run("sql", JOIN, "--limit", "1").stdout == "1\t1\tn1\n"
    assert run("sql", JOIN, "--as-of", first).stdout == "1\t1\tn1\n"


def test_what_is_no_table_of_the_catalog_is_an_error_that_shows_where(first: str, run: Run) -> None:
    result = run("sql", "SELECT * FROM nothing")
    assert result.exit_code == 1
    assert "'nothing'" in result.stderr
    assert "features, labels" in result.stderr
