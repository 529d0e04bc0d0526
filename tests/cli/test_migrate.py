"""`deltars init` and `deltars migrate`, on every database."""

from __future__ import annotations

import json
import shlex
import sqlite3
from pathlib import Path

import duckdb
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import deltars
from deltars.store.migrations import revisions
from deltars.uri import parse_catalog_uri
from tests.cli.conftest import Run

HEAD = revisions.head_revision()


def _state(run: Run, catalog_uri: str) -> str:
    result = run("migrate", "status", "--catalog", catalog_uri, "--json")
    assert result.exit_code == 0, result.stderr
    state: str = json.loads(result.stdout)["state"]
    return state


def _fields(stdout: str) -> dict[str, str]:
    return dict(line.split("\t") for line in stdout.splitlines())


def test_up_makes_the_schema_and_a_second_time_changes_nothing(run: Run, catalog_uri: str) -> None:
    assert _state(run, catalog_uri) == "missing"
    first = run("migrate", "up", "--catalog", catalog_uri)
    assert first.exit_code == 0, first.stderr
    assert _fields(first.stdout) | {"catalog": ""} == {"catalog": "", "from": "", "to": HEAD}
    assert _state(run, catalog_uri) == "current"
    second = run("migrate", "up", "--catalog", catalog_uri)
    assert (_fields(second.stdout)["from"], _fields(second.stdout)["to"]) == (HEAD, HEAD)


def test_down_removes_the_schema_and_says_what_is_lost(run: Run, catalog_uri: str, catalog: deltars.Catalog) -> None:
    catalog.create_table("features", "id BIGINT")
    catalog.create_table("labels", "id BIGINT")
    catalog.close()
    result = run("migrate", "down", "--catalog", catalog_uri, "--yes")
    assert result.exit_code == 0, result.stderr
    assert "the log of 2 tables (features, labels)" in result.stderr
    assert "Data files and the published _delta_log are kept" in result.stderr
    assert _state(run, catalog_uri) == "missing"
    again = run("migrate", "up", "--catalog", catalog_uri)
    assert again.exit_code == 0, again.stderr


@pytest.mark.parametrize("answer", ["n\n", "\n", ""], ids=["no", "enter", "nobody there"])
@pytest.mark.backends("sqlite")
def test_down_removes_nothing_without_a_yes(run: Run, catalog_uri: str, catalog: deltars.Catalog, answer: str) -> None:
    catalog.create_table("features", "id BIGINT")
    result = run("migrate", "down", "--catalog", catalog_uri, input=answer)
    assert result.exit_code == 1
    assert "Remove it?" in result.stderr
    assert result.stdout == ""
    assert catalog.table_exists("features")


@pytest.mark.backends("sqlite")
def test_down_goes_on_after_a_yes(run: Run, catalog_uri: str, catalog: deltars.Catalog) -> None:
    result = run("migrate", "down", "--catalog", catalog_uri, input="y\n")
    assert result.exit_code == 0, result.stderr
    assert _state(run, catalog_uri) == "missing"


@pytest.mark.backends("sqlite", "duckdb")
def test_status_and_down_make_no_file(run: Run, catalog_uri: str) -> None:
    assert _state(run, catalog_uri) == "missing"
    assert run("migrate", "down", "--catalog", catalog_uri).exit_code == 0
    assert run("migrate", "sql", "--catalog", catalog_uri).exit_code == 0
    assert not Path(parse_catalog_uri(catalog_uri).database).exists()


def test_a_newer_schema_is_told_from_an_older_one(run: Run, catalog_uri: str) -> None:
    run("migrate", "up", "--catalog", catalog_uri)
    _execute(catalog_uri, f"UPDATE {_qualified(catalog_uri, 'dl_schema_version')} SET version_num = '9999'")
    assert _state(run, catalog_uri) == "newer"
    result = run("migrate", "up", "--catalog", catalog_uri)
    assert result.exit_code == 1
    assert "pip install --upgrade deltars" in result.stderr


def test_the_command_that_an_error_names_mends_it(run: Run, catalog_uri: str) -> None:
    with pytest.raises(deltars.SchemaVersionError) as caught:
        deltars.connect(catalog_uri, migrate=False)
    command = shlex.split(str(caught.value.hint).partition("Run: ")[2].partition(" (")[0])
    assert command[:3] == ["deltars", "init", "--catalog"]
    assert run(*command[1:]).exit_code == 0
    deltars.connect(catalog_uri, migrate=False).close()


@pytest.mark.backends("postgres")
def test_taken_names_of_views_are_refused_and_no_views_leaves_them_out(run: Run, catalog_uri: str) -> None:
    _execute(catalog_uri, f"CREATE TABLE {_qualified(catalog_uri, 'files')} (theirs integer)")
    refused = run("migrate", "up", "--catalog", catalog_uri)
    assert refused.exit_code == 1
    assert "deltars migrate up --no-views" in refused.stderr
    assert _state(run, catalog_uri) == "missing"
    assert run("migrate", "up", "--no-views", "--catalog", catalog_uri).exit_code == 0
    assert _state(run, catalog_uri) == "current"


def test_sql_run_by_hand_makes_a_catalog_that_works(run: Run, catalog_uri: str, tmp_path: Path) -> None:
    result = run("migrate", "sql", "--catalog", catalog_uri)
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    _execute(catalog_uri, result.stdout)
    assert _state(run, catalog_uri) == "current"
    with deltars.connect(catalog_uri, migrate=False, warehouse=str(tmp_path / "warehouse")) as catalog:
        assert catalog.create_table("features", "id BIGINT").version == 0
        assert catalog.warehouse == str(tmp_path / "warehouse")


@pytest.mark.backends("postgres")
def test_sql_connects_to_nothing(run: Run) -> None:
    uri = "deltasql://postgres/lake/public?host=127.0.0.1&port=1"
    script = run("migrate", "sql", "--catalog", uri).stdout
    assert 'SET search_path TO "public"' in script
    without_views = run("migrate", "sql", "--no-views", "--catalog", uri, "--json").stdout
    assert "CREATE VIEW" in script
    assert "CREATE VIEW datasets" not in json.loads(without_views)["sql"]


def test_init_makes_the_catalog_and_sets_its_warehouse_once(run: Run, catalog_uri: str, tmp_path: Path) -> None:
    warehouse = str(tmp_path / "warehouse")
    for _ in range(2):
        result = run("init", "--catalog", catalog_uri, "--warehouse", warehouse)
        assert result.exit_code == 0, result.stderr
        assert _fields(result.stdout)["warehouse"] == warehouse
    other = run("init", "--catalog", catalog_uri, "--warehouse", str(tmp_path / "elsewhere"))
    assert other.exit_code == 2
    assert f"is {warehouse}, not" in other.stderr


def test_init_stores_the_isolation_level_and_changes_it_later(run: Run, catalog_uri: str) -> None:
    assert _fields(run("init", "--catalog", catalog_uri).stdout)["isolation"] == "strict"
    for level in ("serializable", "snapshot"):
        result = run("init", "--catalog", catalog_uri, "--isolation", level)
        assert result.exit_code == 0, result.stderr
        assert _fields(run("init", "--catalog", catalog_uri).stdout)["isolation"] == level
    refused = run("init", "--catalog", catalog_uri, "--isolation", "chaos")
    assert refused.exit_code == 2
    assert "write_serializable" in refused.stderr


def test_init_without_a_word_makes_the_embedded_catalog_here(run: Run) -> None:
    fields = _fields(run("init").stdout)
    assert fields["catalog"].endswith("/here/.deltars/lake.db")
    assert Path(".deltars/lake.db").exists()
    assert fields["warehouse"] == str(Path(".deltars/lake.warehouse").absolute())


def _qualified(catalog_uri: str, name: str) -> str:
    schema = parse_catalog_uri(catalog_uri).schema
    return f'"{schema}".{name}' if schema else name


def _execute(catalog_uri: str, script: str) -> None:
    """A script, as somebody runs it by hand in the database's own tool."""
    uri = parse_catalog_uri(catalog_uri)
    match uri.backend:
        case "postgres":
            with psycopg.connect(make_conninfo(dbname=uri.database, **uri.parameters)) as connection:
                connection.execute(script.encode())
        case "sqlite":
            connection_ = sqlite3.connect(uri.database)
            connection_.executescript(script)
            connection_.close()
        case "duckdb":
            with duckdb.connect(uri.database) as database:
                database.execute(script)


@pytest.mark.backends("sqlite")
def test_grants_are_for_a_server_with_roles(run: Run, catalog_uri: str, catalog: deltars.Catalog) -> None:
    catalog.close()
    refused = run("migrate", "grants", "--catalog", catalog_uri, "--reader", "analysts")
    assert refused.exit_code == 1
    assert "has no roles" in refused.stderr
    nobody = run("migrate", "grants", "--catalog", catalog_uri)
    assert nobody.exit_code == 2
    assert "at least one role" in nobody.stderr


@pytest.mark.backends("postgres")
def test_grants_prints_what_it_ran(run: Run, catalog_uri: str, catalog: deltars.Catalog) -> None:
    user = parse_catalog_uri(catalog_uri).parameters["user"]
    result = run("migrate", "grants", "--catalog", catalog_uri, "--reader", user)
    assert result.exit_code == 0, result.stderr
    assert "GRANT SELECT ON ALL TABLES IN SCHEMA" in result.stdout
