"""Opening a catalog: which one, in what state, and what is said when it cannot be opened."""

from __future__ import annotations

import importlib
import logging
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

import deltars
from deltars.store.database import Database
from deltars.store.migrations import revisions, runner
from deltars.uri import BackendName, CatalogUri, parse_catalog_uri
from tests.support import witness
from tests.support.crowd import at_once, failures
from tests.support.jobs import connect_and_count, migrate_up
from tests.support.postgres import PostgresServer

# The package has a function of the module's name.
connecting = importlib.import_module("deltars.catalog.connection")

EMBEDDED = pytest.mark.backends("sqlite", "duckdb")
POSTGRES = pytest.mark.backends("postgres")
FRAME = pa.table({"id": [1, 2]})


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory; catalogs opened by URI are forgotten afterwards."""
    directory = tmp_path / "my project"
    directory.mkdir()
    monkeypatch.chdir(directory)
    opened: dict[CatalogUri, deltars.Catalog] = {}
    monkeypatch.setattr(connecting, "_opened", opened)
    yield directory
    for catalog in opened.values():
        catalog.close()


def with_parameters(uri: str, **parameters: str) -> str:
    catalog = parse_catalog_uri(uri)
    return replace(catalog, parameters=MappingProxyType({**catalog.parameters, **parameters})).with_secrets()


def step_down(uri: str) -> None:
    """Leave the catalog with the schema of the release before."""
    database = Database(parse_catalog_uri(uri), pool_size=1, pool_timeout_s=10)
    runner.down(database, "-1")
    database.close()


def set_schema_version(uri: str, revision: str) -> None:
    database = Database(parse_catalog_uri(uri), pool_size=1, pool_timeout_s=10)
    with database.write(10) as connection:
        table = (
            f'"{database.backend.schema}".{revisions.VERSION_TABLE}'
            if database.backend.schema
            else revisions.VERSION_TABLE
        )
        connection.exec_driver_sql(f"UPDATE {table} SET version_num = '{revision}'")
    database.close()


# -- which catalog ------------------------------------------------------------------------------------------------


def test_without_a_url_an_embedded_catalog_is_made_with_its_warehouse_beside_it(elsewhere: Path) -> None:
    with deltars.connect() as catalog:
        assert parse_catalog_uri(catalog.uri) == CatalogUri("sqlite", str(elsewhere / ".deltars/lake.db"))
        assert catalog.warehouse == str(elsewhere / ".deltars/lake.warehouse")
        catalog.create_table("features", "id BIGINT")
    with deltars.connect() as again:
        assert [table.location for table in again.tables()] == [str(elsewhere / ".deltars/lake.warehouse/features")]


def test_environment_names_the_catalog(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (elsewhere / "sub").mkdir()
    monkeypatch.setenv("DELTARS_CATALOG", "deltasql://sqlite/sub/other.db")
    with deltars.connect() as catalog:
        assert parse_catalog_uri(catalog.uri).database == str(elsewhere / "sub/other.db")
    assert not (elsewhere / ".deltars").exists()


def test_begin_and_write_find_the_catalog_by_the_tables_uri_or_take_the_default_one(elsewhere: Path) -> None:
    deltars.write("deltasql://sqlite/other.db/features", FRAME)
    deltars.write("labels", FRAME)
    with deltars.begin() as tx:
        tx.write("deltasql://sqlite/other.db/features", FRAME)
    assert tx.result.versions == {"features": 1}
    with deltars.connect("deltasql://sqlite/other.db") as other, deltars.connect() as default:
        assert [table.name for table in other.tables()] == ["features"]
        assert [table.name for table in default.tables()] == ["labels"]


def test_begin_without_a_uri_has_the_settings_of_the_named_catalog(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (elsewhere / "deltars.toml").write_text(
        f'[catalogs.lake]\nuri = "deltasql://sqlite/lake.db"\nwarehouse = "{elsewhere}/w"\npool_size = 3'
    )
    monkeypatch.setenv("DELTARS_CATALOG", "lake")
    deltars.write("features", FRAME)
    [catalog] = connecting._opened.values()
    assert catalog._session.settings.pool_size == 3
    assert catalog.table("features").location == f"{elsewhere}/w/features"


def test_everybody_who_names_a_catalog_by_uri_shares_its_connections(elsewhere: Path) -> None:
    for _ in range(3):
        deltars.write("deltasql://sqlite/lake.db/features", FRAME)
    deltars.write(f"deltasql://sqlite/{elsewhere}/lake.db/features", FRAME)
    assert len(connecting._opened) == 1


# -- migrated or not ----------------------------------------------------------------------------------------------


@EMBEDDED
def test_embedded_catalog_is_created_and_migrated_on_first_use(catalog_uri: str) -> None:
    assert not Path(parse_catalog_uri(catalog_uri).database).exists()
    with deltars.connect(catalog_uri) as catalog:
        assert catalog.tables() == []
        assert revisions.status(catalog._session.database).is_current


@EMBEDDED
def test_embedded_catalog_is_not_migrated_when_that_is_not_wanted(catalog_uri: str) -> None:
    with pytest.raises(deltars.SchemaVersionError, match="holds no deltars catalog yet"):
        deltars.connect(catalog_uri, migrate=False)


@POSTGRES
def test_postgres_is_migrated_only_when_asked(catalog_uri: str) -> None:
    with pytest.raises(deltars.SchemaVersionError) as raised:
        deltars.connect(catalog_uri)
    assert "holds no deltars catalog yet" in str(raised.value)
    assert f"Run: deltars init --catalog '{parse_catalog_uri(catalog_uri)}'" in str(raised.value)
    tables = "SELECT count(*) FROM information_schema.tables WHERE table_schema = current_schema()"
    assert witness.rows(catalog_uri, tables) == [(0,)]
    with deltars.connect(catalog_uri, migrate=True) as catalog:
        assert catalog.tables() == []
    with deltars.connect(catalog_uri) as catalog:
        assert catalog.tables() == []


@POSTGRES
def test_schema_that_is_not_there_is_made_with_the_catalog(catalog_uri: str) -> None:
    missing = replace(parse_catalog_uri(catalog_uri), schema='no "such" schema').with_secrets()
    with pytest.raises(deltars.SchemaVersionError, match="holds no deltars catalog yet"):
        deltars.connect(missing)
    with deltars.connect(missing, migrate=True) as catalog:
        assert catalog.tables() == []


def test_older_schema_says_which_command_to_run(catalog_uri: str) -> None:
    deltars.connect(catalog_uri, migrate=True).close()
    step_down(catalog_uri)
    with pytest.raises(deltars.SchemaVersionError) as raised:
        deltars.connect(catalog_uri, migrate=False)
    newest, older = revisions.revisions()[:2]
    assert f"has the older schema {older}; this release needs schema {newest}" in str(raised.value)
    assert f"Run: deltars migrate up --catalog '{parse_catalog_uri(catalog_uri)}'" in str(raised.value)
    with deltars.connect(catalog_uri, migrate=True) as catalog:
        assert revisions.status(catalog._session.database).is_current


@POSTGRES
def test_older_schema_on_postgres_is_not_migrated_unasked(catalog_uri: str) -> None:
    deltars.connect(catalog_uri, migrate=True).close()
    step_down(catalog_uri)
    with pytest.raises(deltars.SchemaVersionError, match="deltars migrate up"):
        deltars.connect(catalog_uri)
    found = witness.rows(catalog_uri, f"SELECT version_num FROM {revisions.VERSION_TABLE}")
    assert found == [(revisions.revisions()[1],)]


@EMBEDDED
def test_older_schema_of_an_embedded_catalog_is_migrated_with_everything_in_it(catalog_uri: str) -> None:
    with deltars.connect(catalog_uri) as catalog:
        before = catalog.create_table("features", "id BIGINT").id
    step_down(catalog_uri)
    with deltars.connect(catalog_uri) as catalog:
        assert catalog.table("features").id == before


def test_newer_schema_says_to_upgrade_the_package_and_changes_nothing(catalog_uri: str) -> None:
    deltars.connect(catalog_uri, migrate=True).close()
    set_schema_version(catalog_uri, "9999")
    for wanted in (None, True, False):
        with pytest.raises(deltars.SchemaVersionError) as raised:
            deltars.connect(catalog_uri, migrate=wanted)
        assert f"has the newer schema 9999; this release knows up to {revisions.head_revision()}" in str(raised.value)
        assert "pip install --upgrade deltars" in str(raised.value)
    assert witness.rows(catalog_uri, f"SELECT version_num FROM {revisions.VERSION_TABLE}") == [("9999",)]


# -- the warehouse ------------------------------------------------------------------------------------------------


def test_warehouse_is_set_once(catalog_uri: str, tmp_path: Path) -> None:
    warehouse = str(tmp_path / "warehouse")
    deltars.connect(catalog_uri, warehouse=warehouse, migrate=True).close()
    for same in (None, warehouse, f"{warehouse}/", f"file://{warehouse}", f"{tmp_path}/x/../warehouse"):
        with deltars.connect(catalog_uri, warehouse=same) as catalog:
            assert catalog.warehouse == warehouse
    with pytest.raises(deltars.ConfigError) as raised:
        deltars.connect(catalog_uri, warehouse=str(tmp_path / "other"))
    assert f"is {warehouse}, not {tmp_path / 'other'}" in str(raised.value)
    with deltars.connect(catalog_uri) as catalog:
        assert catalog.warehouse == warehouse


@POSTGRES
def test_catalog_of_a_server_has_no_warehouse_until_one_is_named(catalog_uri: str, tmp_path: Path) -> None:
    with deltars.connect(catalog_uri, migrate=True) as catalog:
        assert catalog.warehouse is None
        with pytest.raises(deltars.ConfigError, match="has no warehouse, so a table needs a location"):
            catalog.create_table("features", "id BIGINT")
        assert catalog.create_table("labels", "id BIGINT", location=str(tmp_path / "labels")).version == 0
    with deltars.connect(catalog_uri, warehouse=str(tmp_path / "w")) as catalog:
        assert catalog.create_table("features", "id BIGINT").location == str(tmp_path / "w/features")


@pytest.mark.parametrize("place", ["warehouse", "./warehouse", "~/warehouse", "ftp://host/x", "s3://"])
def test_warehouse_that_is_no_absolute_place_is_refused_before_anything_is_made(elsewhere: Path, place: str) -> None:
    with pytest.raises(deltars.ConfigError, match="the warehouse cannot be used"):
        deltars.connect(warehouse=place)
    assert list(elsewhere.iterdir()) == []


def test_credentials_in_a_warehouse_are_refused_and_not_shown(elsewhere: Path) -> None:
    with pytest.raises(deltars.ConfigError, match="pass credentials in storage_options") as raised:
        deltars.connect(warehouse="s3://key:hunter2@bucket/lake")
    assert "hunter2" not in str(raised.value)


# -- many at once -------------------------------------------------------------------------------------------------


@pytest.mark.backends("sqlite")
def test_ten_processes_at_first_use_of_an_embedded_catalog_all_succeed(catalog_uri: str) -> None:
    outcomes = at_once(10, connect_and_count, catalog_uri)
    assert failures(outcomes) == []
    warehouse = str(Path(parse_catalog_uri(catalog_uri).database).with_suffix(".warehouse"))
    assert outcomes == [(warehouse, 0)] * 10
    assert witness.rows(catalog_uri, "SELECT count(*) FROM dl_catalog") == [(1,)]


@pytest.mark.backends("postgres", "sqlite")
def test_ten_processes_migrating_at_once_make_one_catalog(catalog_uri: str) -> None:
    outcomes = at_once(10, migrate_up, catalog_uri)
    assert failures(outcomes) == []
    assert outcomes == [revisions.head_revision()] * 10
    assert witness.rows(catalog_uri, "SELECT count(*) FROM dl_catalog") == [(1,)]
    assert witness.rows(catalog_uri, f"SELECT count(*) FROM {revisions.VERSION_TABLE}") == [(1,)]


def together(*jobs: Callable[[], Any]) -> list[Any]:
    """Each in a thread of its own, all let go at one moment; the first failure is raised."""
    barrier = threading.Barrier(len(jobs))

    def run(job: Callable[[], Any]) -> Any:
        barrier.wait()
        return job()

    with ThreadPoolExecutor(len(jobs)) as pool:
        return [future.result() for future in [pool.submit(run, job) for job in jobs]]


def test_threads_at_first_use_of_a_catalog_all_succeed(catalog_uri: str) -> None:
    opened = together(*[lambda: deltars.connect(catalog_uri, migrate=True)] * 6)
    assert [catalog.tables() for catalog in opened] == [[]] * 6
    assert witness.rows(catalog_uri, "SELECT count(*) FROM dl_catalog") == [(1,)]
    for catalog in opened:
        catalog.close()


def test_threads_that_migrate_different_databases_do_not_meet(tmp_path: Path) -> None:
    uris = [f"deltasql://sqlite/{tmp_path}/{number}.db" for number in range(4)]
    uris += [f"deltasql://duckdb/{tmp_path}/{number}.duckdb" for number in range(2)]
    for catalog in together(*[lambda uri=uri: deltars.connect(uri) for uri in uris]):
        assert revisions.status(catalog._session.database).is_current
        catalog.close()


def test_threads_that_use_the_default_catalog_first_share_one(elsewhere: Path) -> None:
    together(*[lambda n=n: deltars.write(f"t{n}", FRAME) for n in range(4)])
    [catalog] = connecting._opened.values()
    assert [table.name for table in catalog.tables()] == ["t0", "t1", "t2", "t3"]


# -- what cannot be opened ----------------------------------------------------------------------------------------


def refused(uri: str) -> str:
    """What connecting says; it is ours, whole, and shows no password."""
    with pytest.raises(deltars.DatabaseError) as raised:
        deltars.connect(uri)
    assert type(raised.value).__module__ == "deltars.errors"
    assert "hunter2" not in str(raised.value) + repr(raised.value)
    return str(raised.value)


@POSTGRES
def test_server_that_is_down_is_named(catalog_uri: str, tmp_path: Path) -> None:
    said = refused(with_parameters(catalog_uri, host=str(tmp_path), password="hunter2"))
    assert "no connection to deltasql://postgres/" in said
    assert "No such file or directory" in said


@POSTGRES
def test_server_that_is_not_reached_over_tcp_is_named(catalog_uri: str) -> None:
    assert "refused" in refused(with_parameters(catalog_uri, host="127.0.0.1", port="1", password="hunter2"))


@POSTGRES
def test_database_that_is_not_there_is_named(catalog_uri: str) -> None:
    missing = replace(parse_catalog_uri(catalog_uri), database="nowhere")
    assert 'database "nowhere" does not exist' in refused(with_parameters(missing.with_secrets(), password="hunter2"))


@POSTGRES
def test_parameter_that_libpq_refuses_is_named(catalog_uri: str) -> None:
    assert "sslmode" in refused(with_parameters(catalog_uri, sslmode="bogus", password="hunter2"))
    assert "port" in refused(with_parameters(catalog_uri, port="many", password="hunter2"))


@pytest.fixture
def guarded(postgres_server: PostgresServer) -> Iterator[str]:
    """A role that has to give its password, `right`."""
    role = "needs_a_password"
    with postgres_server.connect() as connection:
        [[access]] = connection.execute("SHOW hba_file").fetchall()
        rules = Path(access)
        if not os.access(rules, os.W_OK):
            pytest.skip("the server is not ours: its access rules cannot be changed")
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN SUPERUSER PASSWORD 'right'").format(sql.Identifier(role)))
        before = rules.read_text()
        # Written in place: the file belongs to the server's user.
        rules.write_text(f"local all {role} scram-sha-256\n{before}")
        connection.execute("SELECT pg_reload_conf()")
        yield role
        rules.write_text(before)
        connection.execute("SELECT pg_reload_conf()")
        connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))


@POSTGRES
def test_wrong_password_is_said_and_not_shown(catalog_uri: str, guarded: str) -> None:
    deltars.connect(catalog_uri, migrate=True).close()
    said = refused(with_parameters(catalog_uri, user=guarded, password="hunter2"))
    assert f'password authentication failed for user "{guarded}"' in said
    assert "Check that the server runs, and check host, port, database, user and password" in said
    with deltars.connect(with_parameters(catalog_uri, user=guarded, password="right")) as catalog:
        assert catalog.tables() == []


@pytest.mark.parametrize("name", ["catalog.db", "catalog.duckdb"])
def test_file_that_is_no_database_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"this is no database at all, only text" * 200)
    said = refused(f"deltasql://{'duckdb' if 'duckdb' in name else 'sqlite'}/{tmp_path}/{name}")
    assert str(tmp_path) in said
    assert f"The file is not a {'DuckDB' if 'duckdb' in name else 'SQLite'} database" in said


@pytest.mark.parametrize("backend_name", ["sqlite", "duckdb"])
def test_directory_that_cannot_be_made_is_named(tmp_path: Path, backend_name: str) -> None:
    (tmp_path / "file").touch()
    uri = f"deltasql://{backend_name}/{tmp_path}/file/lake.db"
    with pytest.raises(deltars.ConfigError, match=f"no directory {tmp_path}/file to create it in"):
        deltars.connect(uri)
    with pytest.raises(deltars.DatabaseError, match="cannot be opened"):
        deltars.connect(uri, migrate=True)


@pytest.mark.parametrize("backend_name", ["sqlite", "duckdb"])
def test_directory_in_the_place_of_the_file_is_named(tmp_path: Path, backend_name: str) -> None:
    (tmp_path / "lake.db").mkdir()
    assert "lake.db" in refused(f"deltasql://{backend_name}/{tmp_path}/lake.db")


@pytest.mark.parametrize("backend_name", ["sqlite", "duckdb"])
def test_any_directory_can_hold_a_catalog(tmp_path: Path, backend_name: BackendName) -> None:
    path = tmp_path / "a b" / "ü" / "100%" / "#1" / "my.db" / "it's" / "lake.db"
    with deltars.connect(CatalogUri(backend_name, str(path)).with_secrets(), migrate=True) as catalog:
        assert path.exists()
        assert catalog.create_table("features", "id BIGINT").version == 0
    assert [file.name for file in tmp_path.iterdir()] == ["a b"]


def test_duckdb_refuses_the_one_character_that_it_cannot_open(tmp_path: Path) -> None:
    with pytest.raises(deltars.ConfigError, match=r"the path contains '\?'"):
        deltars.connect(CatalogUri("duckdb", str(tmp_path / "why?.db")).with_secrets())
    assert list(tmp_path.iterdir()) == []


def _register_many(catalog: deltars.Catalog) -> None:
    for number in range(200):
        catalog.register_table(f"t{number}" + "x" * 400, f"/x/{number}")


def test_full_disk_is_named(tmp_path: Path) -> None:
    uri = f"deltasql://sqlite/{tmp_path}/lake.db"
    with deltars.connect(uri) as catalog:
        with closing(sqlite3.connect(tmp_path / "lake.db")) as connection:
            [[pages]] = connection.execute("PRAGMA page_count").fetchall()
        with catalog._session.database.read() as connection_:
            connection_.exec_driver_sql(f"PRAGMA max_page_count={pages}")
        with pytest.raises(deltars.DatabaseError, match="The disk is full: make room") as raised:
            _register_many(catalog)
        assert raised.value.sqlstate == "SQLITE_FULL"


# -- secrets ------------------------------------------------------------------------------------------------------


@POSTGRES
def test_password_is_shown_by_nothing_that_a_catalog_says(
    catalog_uri: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    uri = with_parameters(catalog_uri, password="hunter2")
    said = [refused(uri)]
    with deltars.connect(uri, warehouse=str(tmp_path / "w"), migrate=True) as catalog:
        table = catalog.create_table("features", "id BIGINT")
        catalog.write("features", FRAME)
        assert parse_catalog_uri(uri).parameters["password"] == "hunter2"
        said += [catalog.uri, repr(catalog), repr(table), repr(catalog._config), repr(catalog._session.database.engine)]
        said += [str(value) for value in vars(catalog._session).values()]
        for job in (
            lambda: catalog.table("nowhere"),
            lambda: catalog.create_table("features", "id BIGINT"),
            lambda: catalog.drop_table("nowhere"),
            lambda: catalog.begin().write("deltasql://sqlite/other.db/x?password=hunter2", FRAME),
            lambda: catalog.begin().write("deltasql://postgres/other/public/x?password=hunter2", FRAME),
            lambda: deltars.connect(uri, warehouse="/other"),
        ):
            with pytest.raises(deltars.DeltarsError) as raised:
                job()
            said.append(str(raised.value))
        shutil.rmtree(tmp_path / "w")
        (tmp_path / "w").touch()
        catalog.set_properties("features", {"owner": "me"})  # the mirror cannot follow, and says so in the log
    said += [record.getMessage() + str(record.exc_text) for record in caplog.records]
    assert any("publish" in line for line in said)
    assert [line for line in said if "hunter2" in line] == []


@POSTGRES
def test_password_is_in_no_published_file(catalog_uri: str, tmp_path: Path) -> None:
    uri = with_parameters(catalog_uri, password="hunter2")
    with deltars.connect(uri, warehouse=str(tmp_path / "w"), migrate=True) as catalog:
        catalog.create_table("features", "id BIGINT")
        catalog.write("features", FRAME)
    files = [path for path in (tmp_path / "w").rglob("*") if path.is_file()]
    assert len(files) >= 4
    assert [path for path in files if b"hunter2" in path.read_bytes()] == []


def test_no_exception_of_a_driver_reaches_the_user(catalog: deltars.Catalog) -> None:
    with pytest.raises(deltars.DatabaseError) as raised, catalog._session.database.read() as connection:
        connection.exec_driver_sql("SELECT * FROM nowhere")
    assert not isinstance(raised.value, psycopg.Error | sqlite3.Error)


# -- mistyped -----------------------------------------------------------------------------------------------------


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A directory with the catalog lake.db in it."""
    deltars.connect(tmp_path / "lake.db").close()
    return tmp_path


def test_new_catalog_named_like_another_is_created_with_a_warning(lake: Path, caplog: pytest.LogCaptureFixture) -> None:
    deltars.connect(lake / "lkae.db").close()
    [record] = [record for record in caplog.records if record.levelname == "WARNING"]
    assert f"did you mean deltasql://sqlite/{lake}/lake.db?" in record.getMessage()
    caplog.clear()
    for known in ("lkae.db", "lake.db"):
        deltars.connect(lake / known).close()
    deltars.connect(lake / "another.db").close()
    assert [record for record in caplog.records if record.levelname == "WARNING"] == []


def test_directory_that_does_not_exist_is_not_created_by_a_bare_connect(lake: Path) -> None:
    uri = f"deltasql://sqlite/{lake}/no/such/lake.db"
    with pytest.raises(deltars.ConfigError, match=r"no directory .*/no/such to create it in.*migrate=True"):
        deltars.connect(uri)
    assert not (lake / "no").exists()
    deltars.connect(uri, migrate=True).close()
    deltars.connect(uri).close()


@pytest.mark.parametrize(
    "read",
    [
        lambda uri: deltars.table(f"{uri}/features"),
        lambda uri: deltars.read(f"{uri}/features"),
        lambda uri: deltars.sql("SELECT 1", catalog=uri),
        lambda uri: deltars.connect(uri, migrate=False),
    ],
    ids=["table", "read", "sql", "connect"],
)
def test_reading_creates_no_catalog_and_says_which_may_be_meant(lake: Path, read: Callable[[str], object]) -> None:
    with pytest.raises(deltars.SchemaVersionError, match=r"holds no deltars catalog yet.*Did you mean .*/lake\.db\?"):
        read(f"deltasql://sqlite/{lake}/lkae.db")
    assert sorted(file.name for file in lake.iterdir() if file.suffix == ".db") == ["lake.db"]


def test_write_by_uri_creates_the_catalog(elsewhere: Path) -> None:
    deltars.write(f"deltasql://sqlite/{elsewhere}/new.db/features", FRAME)
    assert deltars.table(f"deltasql://sqlite/{elsewhere}/new.db/features").count() == FRAME.num_rows
