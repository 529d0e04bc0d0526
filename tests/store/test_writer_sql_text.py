"""No value ever becomes SQL text: every statement in the source is a constant, or built by Core or psycopg.sql."""

from __future__ import annotations

from pathlib import Path

import pytest

import deltars
from tests.support.sql_text import find_built_text

SOURCE = Path(deltars.__file__).parent

JUSTIFIED = {
    "data/scan.py": {
        "files_of": "no SQL: values of an Arrow table",
    },
    "demo/readers.py": {
        "_by_duckdb": "the place of an installed package, in a database in memory",
    },
    "enabled/queries.py": {
        "Queries._query": "a query of the user's, for the user's Spark",
        "Queries._show_tables": "a statement of the user's, for the user's Spark",
    },
    "spark/plane.py": {
        "SparkPlane.query": "a query of the user's, for the user's Spark",
        "SparkPlane.microseconds": "a time of the user's, for the user's Spark",
    },
    "store/backends/base.py": {
        "Backend.scan": "a Prepared holds what Core compiled; values travel beside it",
    },
    "store/backends/postgresql/copy_out.py": {
        "copy_batches": "a query that Core compiled, its values quoted by libpq: COPY takes no parameters",
    },
    "store/backends/postgresql/deadlines.py": {
        "settle": "a constant of the same module in a statement that is one, too",
        "_settings": "names and values of settings, all of them constants of the same module",
        "module": "constants of the same module, as above",
    },
    "store/backends/duckdb.py": {
        "DuckDB.batches_of": "a Prepared, as above",
    },
    "store/backends/postgresql/pipeline.py": {
        "prepare": "a Prepared, as above",
        "run_pipeline": "the BEGIN and COMMIT of the same package",
    },
    "store/backends/postgresql/backend.py": {
        "PostgreSQL.scan": "a Prepared, as above",
    },
    "store/backends/sqlite.py": {
        "SQLite.load": "names of a table and columns of the schema, and a placeholder for each value",
    },
    "store/file_search.py": {
        "by_range": "expressions of the index, all of them constants of the schema",
    },
    "store/migrations/versions/0010_search_by_index.py": {
        "upgrade": "expressions of an index, all of them constants of the same module",
    },
    "store/schema.py": {
        "module": "expressions of an index, all of them constants of the same module",
    },
    "store/grants.py": {
        "grant": "composed by psycopg.sql, which quotes every name; only escaped for the driver here",
        "_on": "a right, all of them constants of the same module",
    },
    "transaction/duckdb_query.py": {
        "DuckDBQuery.rows": "a query of the user's over rows in memory; column names are quoted",
    },
    "transaction/statements/insertion.py": {
        "_spark_values": "expressions of the user's, for the user's Spark",
    },
}
"""Where text is not constant, and why no value of a caller's can be in it."""


@pytest.mark.requirement("D-14")
def test_no_statement_in_the_source_is_built_from_values() -> None:
    found: dict[str, set[str]] = {}
    shown = []
    for path in sorted(SOURCE.rglob("*.py")):
        module = path.relative_to(SOURCE).as_posix()
        for finding in find_built_text(path.read_text()):
            if finding.function in JUSTIFIED.get(module, {}):
                found.setdefault(module, set()).add(finding.function)
            else:
                shown.append(f"{module}:{finding.line} in {finding.function}: {finding.text}")
    assert not shown, "\n" + "\n".join(shown)
    # What is not needed any more goes.
    assert found == {module: set(functions) for module, functions in JUSTIFIED.items()}


@pytest.mark.requirement("D-14")
@pytest.mark.parametrize(
    "source",
    [
        "connection.exec_driver_sql(f'SELECT {x}')",
        "connection.exec_driver_sql('SELECT ' + x)",
        "connection.exec_driver_sql('SELECT %s' % x)",
        "connection.exec_driver_sql('SELECT {}'.format(x))",
        "connection.exec_driver_sql(query)",
        "def f(query):\n    connection.exec_driver_sql(query)",
        "query = f'SELECT {x}'\nconnection.exec_driver_sql(query)",
        "query = 'SELECT '\nquery += x\nconnection.exec_driver_sql(query)",
        "for query in queries:\n    connection.exec_driver_sql(query)",
        "connection.execute(text(f'SELECT {x}'))",
        "connection.execute(sa.text('SELECT ' + x))",
        "connection.execute(f'SELECT {x}')",
        "select(literal_column(x))",
        "cursor.execute(x)",
        "_driver(connection).execute(x, [1])",
        "sql.SQL(x).format(sql.Identifier(y))",
        "sql.SQL(f'SELECT {x}')",
        "libpq.send_query(x.encode())",
        "libpq.prepare(b'name', f'SELECT {x}'.encode())",
        "op.execute('DROP TABLE ' + x)",
        "op.execute(f'DROP TABLE {x}')",
        "connection.executescript(x)",
        "connection.exec_driver_sql(statement.replace('a', x))",
    ],
)
def test_text_built_from_a_value_is_found(source: str) -> None:
    assert find_built_text(source)


@pytest.mark.requirement("D-14")
@pytest.mark.parametrize(
    "source",
    [
        "connection.exec_driver_sql('BEGIN')",
        "QUERY = 'SELECT 1'\ndef f():\n    connection.exec_driver_sql(QUERY)",
        "def f():\n    order = 'a DESC' if x else 'a'\n    sa.text(order)",
        "a, b = sa.text('x IS NULL'), sa.text('x IS NOT NULL')",
        "connection.execute(select(t).where(t.c.x == value))",
        "connection.execute(query)",
        "driver.execute(sql.SQL('CREATE SCHEMA {}').format(sql.Identifier(name)))",
        "driver.execute('SELECT set_config(%s, %s, true)', [name, value])",
        "output.text(f'{x}')",
        "print(f'SELECT {x}')",
        "values.copy()",
    ],
)
def test_constants_and_statements_that_are_no_text_are_left_alone(source: str) -> None:
    assert find_built_text(source) == []
