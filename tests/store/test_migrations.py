"""Migrations: up makes the whole catalog, down takes exactly that away, and there is one schema by every road."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest
from alembic import command
from click.testing import CliRunner

import deltars
from deltars.catalog import migrate as public
from deltars.cli import main
from deltars.store import schema
from deltars.store.database import Database
from deltars.store.migrations import revisions, runner
from deltars.store.views import VIEWS
from deltars.uri import CatalogUri, parse_catalog_uri
from tests.support import witness
from tests.support.objects import Objects, described, everything, run_script

TABLES = {
    "dl_add_files",
    "dl_catalog",
    "dl_cdc_files",
    "dl_chain",
    "dl_conflicts",
    "dl_domain_metadata",
    "dl_identities",
    "dl_maintenance",
    "dl_metadata_updates",
    "dl_mirror_log",
    "dl_mirror_status",
    "dl_protocol_updates",
    "dl_reads",
    "dl_remove_files",
    "dl_row_groups",
    "dl_schema_version",
    "dl_table_versions",
    "dl_tables",
    "dl_tags",
    "dl_transactions",
    "dl_txn_actions",
    "dl_writers",
}
INDEXES = {
    "ix_dl_add_files_path",
    "ix_dl_conflicts_recorded_at",
    "ix_dl_domain_metadata_version",
    "ix_dl_reads_table",
    "ix_dl_table_versions_commit_ts",
    "ix_dl_table_versions_latest",
    "ix_dl_transactions_commit_ts",
    "ix_dl_txn_actions_version",
}
# DuckDB has no partial index.
PARTIAL = {
    "ix_dl_add_files_live",
    "ix_dl_add_files_partition",
    "ix_dl_add_files_range",
    "ix_dl_add_files_removed",
    "ux_dl_tables_location",
    "ux_dl_tables_name",
}
POSTGRES_ONLY = {"ix_dl_add_files_stats"}

INDEXES_OF = {"postgres": INDEXES | PARTIAL | POSTGRES_ONLY, "sqlite": INDEXES | PARTIAL, "duckdb": INDEXES}

FOREIGN = {
    "postgres": """
        CREATE TABLE mine (id bigint PRIMARY KEY, dl_note text);
        CREATE INDEX ix_mine ON mine (dl_note);
        CREATE VIEW mine_seen AS SELECT dl_note FROM mine;
        CREATE FUNCTION dl_mine(text) RETURNS text LANGUAGE sql AS 'SELECT $1';
        INSERT INTO mine VALUES (1, 'kept')""",
    "sqlite": """
        CREATE TABLE mine (id bigint PRIMARY KEY, dl_note text);
        CREATE INDEX ix_mine ON mine (dl_note);
        CREATE VIEW mine_seen AS SELECT dl_note FROM mine;
        CREATE TRIGGER dl_mine AFTER INSERT ON mine BEGIN SELECT 1; END;
        INSERT INTO mine VALUES (1, 'kept')""",
    "duckdb": """
        CREATE TABLE mine (id bigint PRIMARY KEY, dl_note text);
        CREATE INDEX ix_mine ON mine (dl_note);
        CREATE VIEW mine_seen AS SELECT dl_note FROM mine;
        CREATE MACRO dl_mine(x) AS x;
        INSERT INTO mine VALUES (1, 'kept')""",
}


def database_at(uri: str) -> Database:
    return Database(parse_catalog_uri(uri), pool_size=1, pool_timeout_s=30)


def step(uri: str, revision: str) -> None:
    """One migration by itself, in a transaction of its own."""
    database = database_at(uri)
    with runner._migrating(database) as connection:
        runner._run(command.upgrade, database, connection, revision, views=VIEWS.keys())
    database.close()


@pytest.fixture
def second_uri(catalog_uri: str, backend: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """Another empty catalog of the same backend."""
    if backend == "postgres":
        server = request.getfixturevalue("postgres_server")
        made: str = server.create_catalog_uri(request.getfixturevalue("postgres_database"))
        return made
    return str(CatalogUri(parse_catalog_uri(catalog_uri).backend, str(tmp_path / "second.db")))


@pytest.mark.requirement("T-15")
def test_one_command_makes_every_table_index_and_view(catalog_uri: str, backend: str) -> None:
    ended = CliRunner().invoke(main, ["migrate", "up", "--catalog", catalog_uri])
    assert ended.exit_code == 0, ended.output
    made = described(catalog_uri)
    assert {table for table, *_ in made["columns"]} == TABLES
    indexes = {row[1] for row in made["indexes"]}
    assert {name for name in indexes if name.startswith(("ix_", "ux_"))} == INDEXES_OF[backend]
    assert {name for name, *_ in made["views"]} - {"dl_commit_times"} == VIEWS.keys()
    assert public.status(catalog_uri).state == "current"
    assert witness.rows(catalog_uri, "SELECT count(*), count(warehouse) FROM dl_catalog") == [(1, 0)]
    with deltars.connect(catalog_uri) as catalog:
        assert catalog.tables() == []


@pytest.mark.requirement("T-16")
def test_down_removes_exactly_what_up_made(catalog_uri: str, backend: str, tmp_path: Path) -> None:
    run_script(catalog_uri, FOREIGN[backend])
    before = everything(catalog_uri)
    public.up(catalog_uri)
    assert len(everything(catalog_uri)) > len(before) + len(TABLES)
    with deltars.connect(catalog_uri, warehouse=str(tmp_path / "w")) as catalog:
        catalog.create_table("features", "id BIGINT")
    ended = CliRunner().invoke(main, ["migrate", "down", "--yes", "--catalog", catalog_uri])
    assert ended.exit_code == 0, ended.output
    assert everything(catalog_uri) == before
    assert witness.rows(catalog_uri, "SELECT * FROM mine") == [(1, "kept")]
    assert public.status(catalog_uri).state == "missing"


@pytest.mark.requirement("T-16")
def test_up_down_up_is_the_same_as_up(catalog_uri: str, second_uri: str) -> None:
    public.up(catalog_uri)
    first = described(catalog_uri)
    public.down(catalog_uri)
    public.up(catalog_uri)
    assert described(catalog_uri) == first
    with deltars.connect(catalog_uri) as catalog:
        assert catalog.tables() == []
    public.up(second_uri)
    assert described(second_uri) == first


@pytest.mark.requirement("T-15", "T-16")
def test_step_by_step_is_the_same_as_at_once_in_both_directions(catalog_uri: str, second_uri: str) -> None:
    states: list[Objects] = []
    for revision in sorted(revisions.revisions()):
        step(catalog_uri, revision)
        states.append(described(catalog_uri))
    public.up(second_uri)
    assert states[-1] == described(second_uri)
    database = database_at(second_uri)
    for expected in reversed(states[:-1]):
        runner.down(database, "-1")
        assert described(second_uri) == expected
    runner.down(database)
    assert described(second_uri)["columns"] == []
    database.close()


def test_migrations_make_what_the_definition_says(catalog_uri: str, second_uri: str, backend: str) -> None:
    public.up(catalog_uri)
    migrated = described(catalog_uri)
    if backend == "postgres":
        [[_, function]] = migrated["functions"]
        run_script(second_uri, function)
    database = database_at(second_uri)
    with database.write(30) as connection:
        if backend == "postgres":
            # The index on statistics names its function without a schema.
            connection.exec_driver_sql(f'SET LOCAL search_path TO "{database.backend.schema}"')
        schema.metadata.create_all(connection)
    database.close()
    defined = described(second_uri)
    for kind in defined.keys() - {"views", "functions"}:
        assert _only_ours(migrated[kind]) == _only_ours(defined[kind]) != [], kind


def _only_ours(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Without the table that Alembic keeps for itself."""
    return [row for row in rows if row[0] != revisions.VERSION_TABLE]


def test_script_for_a_dba_makes_the_same_catalog(catalog_uri: str, second_uri: str, backend: str) -> None:
    public.up(catalog_uri)
    ended = CliRunner().invoke(main, ["migrate", "sql", "--catalog", second_uri])
    assert ended.exit_code == 0, ended.output
    run_script(second_uri, ended.stdout)
    assert described(second_uri) == described(catalog_uri)
    with deltars.connect(second_uri, migrate=False) as catalog:
        catalog.register_table("features", "/data/features")
        assert [table.name for table in catalog.tables()] == ["features"]
    public.down(second_uri)
    assert described(second_uri)["columns"] == []


def test_script_that_fails_at_its_end_leaves_nothing(catalog_uri: str) -> None:
    run_script(catalog_uri, "CREATE TABLE mine (id int)")
    before = everything(catalog_uri)
    script = public.sql(catalog_uri)
    with pytest.raises((psycopg.Error, sqlite3.Error, duckdb.Error)):
        run_script(catalog_uri, script.replace("COMMIT;", "SELECT nothing FROM nowhere;\nCOMMIT;"))
    assert everything(catalog_uri) == before


def test_script_without_views_leaves_them_out(catalog_uri: str) -> None:
    run_script(catalog_uri, public.sql(catalog_uri, views=False))
    assert {name for name, *_ in described(catalog_uri)["views"]} <= {"dl_commit_times"}
    assert public.status(catalog_uri).state == "current"


def test_printing_the_script_touches_no_database(catalog_uri: str, tmp_path: Path) -> None:
    uri = parse_catalog_uri(catalog_uri)
    nowhere = (
        "deltasql://postgres/nowhere/public?host=/nowhere"
        if uri.backend == "postgres"
        else str(CatalogUri(uri.backend, str(tmp_path / "not made" / "lake.db")))
    )
    assert "CREATE TABLE dl_tables" in public.sql(nowhere)
    assert not (tmp_path / "not made").exists()


def test_view_name_that_somebody_else_has_is_refused_before_anything_changes(catalog_uri: str, backend: str) -> None:
    kinds = {"TABLE": "(dl_x int)", "VIEW": "AS SELECT 1 AS dl_x"}
    if backend == "postgres":
        kinds["MATERIALIZED VIEW"] = "AS SELECT 1 AS dl_x"
    for kind, body in kinds.items():
        run_script(catalog_uri, f"CREATE {kind} files {body}; CREATE {kind} datasets {body}")
        before = everything(catalog_uri)
        with pytest.raises(deltars.ValidationError) as raised:
            public.up(catalog_uri)
        assert "already has a table or view named datasets, files; nothing was changed" in str(raised.value)
        assert "deltars migrate up --no-views" in str(raised.value)
        assert everything(catalog_uri) == before

        public.up(catalog_uri, views=False)
        assert public.status(catalog_uri).state == "current"
        with deltars.connect(catalog_uri) as catalog:
            assert catalog.tables() == []
        public.down(catalog_uri)
        assert everything(catalog_uri) == before
        run_script(catalog_uri, f"DROP {kind} files; DROP {kind} datasets")


def test_view_that_replaced_ours_is_left_alone(catalog_uri: str) -> None:
    run_script(catalog_uri, "CREATE TABLE mine (dl_x int)")
    public.up(catalog_uri)
    run_script(catalog_uri, "DROP VIEW files; CREATE VIEW files AS SELECT dl_x FROM mine")
    public.down(catalog_uri)
    assert [name for name, *_ in described(catalog_uri)["views"]] == ["files"]
    assert {table for table, *_ in described(catalog_uri)["columns"]} == {"mine"}


@pytest.mark.backends("postgres")
def test_view_of_somebody_else_over_our_tables_stops_down_and_nothing_is_lost(catalog_uri: str) -> None:
    public.up(catalog_uri)
    run_script(catalog_uri, "CREATE VIEW mine AS SELECT name FROM dl_tables")
    before = everything(catalog_uri)
    with pytest.raises(deltars.DatabaseError, match="other objects depend on it") as raised:
        public.down(catalog_uri)
    assert raised.value.sqlstate == "2BP01"
    assert everything(catalog_uri) == before


@pytest.mark.parametrize("table", ["dl_catalog", "dl_txn_actions", "dl_schema_version"])
def test_migration_that_fails_half_way_leaves_nothing(catalog_uri: str, table: str) -> None:
    run_script(catalog_uri, f"CREATE TABLE {table} (version_num text)")
    before = everything(catalog_uri)
    if table == revisions.VERSION_TABLE:
        run_script(catalog_uri, f"INSERT INTO {table} VALUES ('somebody else''s')")
    with pytest.raises(deltars.DatabaseError):
        public.up(catalog_uri)
    assert everything(catalog_uri) == before


def test_up_of_what_is_up_to_date_changes_nothing(catalog_uri: str) -> None:
    first = public.up(catalog_uri)
    before = everything(catalog_uri)
    [[catalog_id]] = witness.rows(catalog_uri, "SELECT catalog_id FROM dl_catalog")
    assert public.up(catalog_uri) == first
    assert everything(catalog_uri) == before
    assert witness.rows(catalog_uri, "SELECT catalog_id FROM dl_catalog") == [(catalog_id,)]


def test_down_of_nothing_does_nothing(catalog_uri: str, backend: str) -> None:
    uri = parse_catalog_uri(catalog_uri)
    if backend == "postgres":
        before = everything(catalog_uri)
        public.down(catalog_uri.replace(str(uri.schema), "not_there"))
        public.down(catalog_uri)
        assert everything(catalog_uri) == before
    else:
        public.down(catalog_uri)
        assert public.status(catalog_uri).state == "missing"
        assert not Path(uri.database).exists()


def test_two_catalogs_in_one_database_do_not_touch_each_other(
    catalog_uri: str, second_uri: str, backend: str, tmp_path: Path
) -> None:
    for number, uri in enumerate((catalog_uri, second_uri)):
        deltars.connect(uri, warehouse=str(tmp_path / f"w{number}"), migrate=True).close()
    with deltars.connect(catalog_uri) as first, deltars.connect(second_uri) as second:
        first.create_table("features", "id BIGINT")
        assert second.tables() == []
        second.create_table("features", "id BIGINT")
    public.down(catalog_uri)
    with deltars.connect(second_uri) as second:
        assert [table.name for table in second.tables()] == ["features"]


@pytest.mark.backends("postgres")
def test_older_server_is_migrated_up_and_down(postgres16_catalog_uri: str, tmp_path: Path) -> None:
    before = everything(postgres16_catalog_uri)
    with deltars.connect(postgres16_catalog_uri, warehouse=str(tmp_path / "w"), migrate=True) as catalog:
        assert catalog.create_table("features", "id BIGINT").version == 0
    public.down(postgres16_catalog_uri)
    assert everything(postgres16_catalog_uri) == before


@pytest.mark.backends("postgres")
def test_schema_may_have_any_name(catalog_uri: str, tmp_path: Path) -> None:
    uri = parse_catalog_uri(catalog_uri)
    odd = CatalogUri("postgres", uri.database, 'a "b"; c\'s %s ü', uri.parameters).with_secrets()
    run_script(catalog_uri, 'CREATE SCHEMA "a ""b""; c\'s %s ü"')
    with deltars.connect(odd, warehouse=str(tmp_path / "w"), migrate=True) as catalog:
        catalog.create_table("features", "id BIGINT")
        assert catalog.set_properties("features", {"owner": "me"}).version == 1
    run_script(odd, public.sql(odd, views=False).partition("CREATE TABLE")[0])
    public.down(odd)
    assert described(odd)["columns"] == []


@pytest.mark.slow
def test_package_that_is_a_zip_brings_its_migrations(tmp_path: Path) -> None:
    """As `spark-submit --py-files` hands it to the driver."""
    source = Path(deltars.__file__).parent
    package = shutil.make_archive(str(tmp_path / "deltars"), "zip", source.parent, source.name)
    program = "import deltars, sys; deltars.connect(sys.argv[1], migrate=True).close(); print(deltars.__file__)"
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", program, f"deltasql://sqlite/{tmp_path}/lake.db"],
        env={**os.environ, "PYTHONPATH": package, "TMPDIR": str(scratch)},
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(package)
    with deltars.connect(f"deltasql://sqlite/{tmp_path}/lake.db") as catalog:
        assert catalog.tables() == []
    assert not list(scratch.iterdir())
