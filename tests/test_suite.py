"""How the suite itself is run: which cases on which backend, and what is said of the time they took."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import psycopg
import pytest

import deltars
from tests.support.dump import dump
from tests.support.durations import NO_BACKEND, Durations, backend_of, folder_of, table
from tests.support.postgres import PostgresServer
from tests.support.templates import CatalogTemplates

ROOT = Path(__file__).parents[1]
MANY_CASES = "tests/store/test_writer_validation.py::test_illegal_path_is_refused"


@pytest.mark.slow
@pytest.mark.parametrize("is_soak", [False, True], ids=["test", "soak"])
def test_other_backends_take_the_first_case_and_in_a_soak_run_the_rest(is_soak: bool) -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", MANY_CASES]
    environment = {name: value for name, value in os.environ.items() if name not in ("DELTARS_SOAK", "PYTEST_ADDOPTS")}
    command += ["-m", "soak"] if is_soak else []
    environment |= {"DELTARS_SOAK": "1"} if is_soak else {}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    found = Counter(backend_of(line) for line in done.stdout.splitlines() if "::" in line)
    assert found == ({"postgres": 7, "duckdb": 7} if is_soak else {"sqlite": 8, "postgres": 1, "duckdb": 1})


@pytest.mark.parametrize(
    ("test", "folder", "column"),
    [
        ("tests/store/test_a.py::test_a[duckdb]", "tests/store", "duckdb"),
        ("tests/store/test_a.py::test_a[sqlite-a case-[2]]", "tests/store", "sqlite"),
        ("tests/store/test_a.py::test_a[3-postgres]", "tests/store", "postgres"),
        ("tests/store/deep/test_a.py::test_sqlite", "tests/store", NO_BACKEND),
        ("tests/test_a.py::test_a[of sqlite]", "tests", NO_BACKEND),
    ],
)
def test_test_is_counted_for_its_folder_and_its_backend(test: str, folder: str, column: str) -> None:
    assert (folder_of(test), backend_of(test)) == (folder, column)


def test_folder_that_took_longest_comes_first_and_all_add_up() -> None:
    seconds = {
        "tests/short": {"postgres": 0.0, "sqlite": 1.0, "duckdb": 0.0, NO_BACKEND: 1.0},
        "tests/long": {"postgres": 1_000.0, "sqlite": 20.0, "duckdb": 3.0, NO_BACKEND: 0.0},
    }
    lines = [line.split() for line in table(seconds, {"tests/short": 2, "tests/long": 5})]
    assert lines == [
        ["tests", "seconds", "postgres", "sqlite", "duckdb", NO_BACKEND],
        ["tests/long", "5", "1,023", "1,000", "20", "3", "0"],
        ["tests/short", "2", "2", "0", "1", "0", "1"],
        ["together", "7", "1,025", "1,000", "21", "3", "1"],
    ]


def test_test_is_counted_once_with_the_seconds_of_its_fixtures() -> None:
    durations = Durations()
    for when in ("setup", "call", "teardown"):
        for folder in ("a", "b"):
            nodeid = f"tests/{folder}/test_x.py::test_x[sqlite]"
            report = pytest.TestReport(nodeid, ("", 0, ""), {}, "passed", None, when, duration=2.0)
            durations.pytest_runtest_logreport(report)
    assert durations.lines()[-1].split() == ["together", "2", "12", "0", "12", "0", "0"]


def test_database_is_reused_as_it_was_under_another_name(
    postgres_server: PostgresServer, catalog_templates: CatalogTemplates, tmp_path: Path
) -> None:
    templates, server = catalog_templates, postgres_server
    used = templates.take_database(server)
    uri = server.catalog_uri(used, templates.SCHEMA)
    new = dump(uri)
    with deltars.connect(uri, warehouse=str(tmp_path)) as catalog:
        catalog.register_table("t", str(tmp_path / "t"))
        left_open = server.connect(used)
        templates.give_back(used)
        again = templates.take_database(server)
    assert again != used
    restored = dump(server.catalog_uri(again, templates.SCHEMA))
    assert restored.pop("dl_catalog") != new.pop("dl_catalog"), "it is another catalog"
    assert restored == new
    with pytest.raises(psycopg.OperationalError):
        left_open.execute("SELECT 1")
    templates.give_back(again)


@pytest.mark.parametrize(
    "change",
    [
        "CREATE INDEX more ON dl_tables (name)",
        "ALTER TABLE dl_tables ADD COLUMN more integer",
        "CREATE OR REPLACE FUNCTION more() RETURNS integer LANGUAGE sql AS 'SELECT 1'",
        "GRANT SELECT ON dl_tables TO public",
        "ALTER TABLE dl_tables ENABLE ROW LEVEL SECURITY",
        "ANALYZE dl_catalog",
    ],
)
def test_database_is_not_used_again_if_more_than_rows_changed(
    change: str, postgres_server: PostgresServer, catalog_templates: CatalogTemplates
) -> None:
    used = catalog_templates.take_database(postgres_server)
    with postgres_server.connect(used) as connection:
        connection.execute(f"SET search_path TO {catalog_templates.SCHEMA}")
        [[before]] = connection.execute("SELECT oid FROM pg_database WHERE datname = current_database()")
        connection.execute(change)
    catalog_templates.give_back(used)
    again = catalog_templates.take_database(postgres_server)
    with postgres_server.connect(again) as connection:
        [[after]] = connection.execute("SELECT oid FROM pg_database WHERE datname = current_database()")
    assert after != before
    catalog_templates.give_back(again)
