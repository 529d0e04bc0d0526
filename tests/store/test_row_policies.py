"""Rights on single tables: real roles of a real server that attack by SQL, past deltars, and by its own calls."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import psycopg
import pytest
from click.testing import CliRunner
from psycopg import sql

import deltars
from deltars import migrate
from deltars.cli import main
from deltars.errors import DatabaseError, TableNotFound, ValidationError
from deltars.store import schema
from deltars.store.row_policies import LIMITED
from deltars.store.views import VIEWS
from deltars.uri import parse_catalog_uri
from tests.console.history import lose_a_race, rows
from tests.store.test_grants import _as_role
from tests.support.clock import clock_of
from tests.support.postgres import PostgresServer
from tests.support.witness import postgres_connection

pytestmark = pytest.mark.backends("postgres")

SCHEMA = "id BIGINT, v BIGINT, day DATE"
SECRET = "secret_plans"


class Roles(NamedTuple):
    guest: str
    """A reader of `features`."""
    clerk: str
    """A writer of `features`."""
    analyst: str
    """A reader of everything, from before anyone was limited."""


@pytest.fixture
def roles(postgres_server: PostgresServer, catalog_uri: str, catalog: deltars.Catalog) -> Iterator[Roles]:
    """A catalog with one table that is granted and one that is not, with every kind of row, and shared transactions."""
    for name in ("features", SECRET):
        catalog.create_table(name, SCHEMA, properties={"deltars.hashChain": "true"})
    with catalog.begin(committer="ada", user_metadata="both") as tx:
        tx.write("features", rows(3))
        tx.write(SECRET, rows(3))
    with catalog.begin(committer="ada", isolation="serializable") as tx:
        tx.write("features", tx.to_arrow(SECRET))
    lose_a_race(catalog)
    with catalog.begin(committer="eve") as tx:
        tx.delete(SECRET, "id = 1")
    first, second = catalog.begin(), catalog.begin()
    for one in (first, second):
        one.delete(SECRET, "true")
    first.commit()
    with pytest.raises(deltars.VersionConflict):
        second.commit()
    catalog.write(SECRET, rows(1), app_id="stream", app_version=1)
    catalog.tag("q3")
    names = Roles(*(f"{kind}_{secrets.token_hex(4)}" for kind in Roles._fields))
    with postgres_server.connect() as connection:
        for name in names:
            connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(name)))
    migrate.grants(catalog_uri, reader=names.analyst)
    migrate.grants(catalog_uri, reader=names.guest, tables=["features"])
    migrate.grants(catalog_uri, writer=names.clerk, tables=["Features"])
    yield names
    with postgres_server.connect(parse_catalog_uri(catalog_uri).database) as connection:
        for name in names:
            connection.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(name)))
            connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


def session(catalog_uri: str, role: str) -> psycopg.Connection[tuple[Any, ...]]:
    return postgres_connection(parse_catalog_uri(_as_role(catalog_uri, role)))


def test_limited_role_sees_no_row_of_another_table(catalog_uri: str, catalog: deltars.Catalog, roles: Roles) -> None:
    granted, hidden = (str(catalog.table(name).id) for name in ("features", SECRET))
    with session(catalog_uri, roles.guest) as guest, session(catalog_uri, roles.clerk) as clerk:
        for table in (*schema.metadata.tables, *VIEWS, "dl_commit_times"):
            with postgres_connection(parse_catalog_uri(catalog_uri)) as owner:
                everything = str(owner.execute(f'SELECT t::text FROM "{table}" t').fetchall())
            for connection in (guest, clerk):
                seen = str(connection.execute(f'SELECT t::text FROM "{table}" t').fetchall())
                assert hidden not in seen, table
                assert SECRET not in seen, table
                assert "eve" not in seen, table
                if granted in everything and table != "dl_transactions":
                    assert granted in seen, table
            # The test can fail: there is something to hide in nearly every table.
            if table in {one.name for one in LIMITED} - {"dl_writers", "dl_identities", "dl_maintenance"}:
                kinds = {"dl_cdc_files", "dl_domain_metadata", "dl_txn_actions", "dl_remove_files"}
                assert hidden in everything or table in kinds, table


def test_limited_reader_reads_its_table_and_finds_no_other(
    catalog_uri: str, catalog: deltars.Catalog, roles: Roles
) -> None:
    shared = next(one.txn_id for one in catalog.table("features").history() if one.user_metadata == "both")
    with deltars.connect(_as_role(catalog_uri, roles.guest)) as guest:
        assert [table.name for table in guest.tables()] == ["features"]
        table = guest.table("features")
        assert table.to_arrow().num_rows == catalog.table("features").to_arrow().num_rows
        assert table.to_arrow(version=1).num_rows == 3
        assert [entry.version for entry in table.history()] == [3, 2, 1, 0]
        assert guest.snapshot().versions == {"features": 3}
        assert table.verify(chain=True, deep=True).is_ok
        assert {one.table for one in guest.conflicts()} == {"features"}
        assert all(edge.source != SECRET for edge in guest.lineage("features"))
        for hidden in (SECRET, catalog.table(SECRET).id):
            with pytest.raises(TableNotFound):
                guest.table(hidden)
        with pytest.raises(DatabaseError, match="permission denied"):
            guest.write("features", rows(1))
        with pytest.raises(DatabaseError, match="permission denied"):
            guest.resolve(shared)
    with deltars.connect(_as_role(catalog_uri, roles.analyst)) as analyst:
        assert {table.name for table in analyst.tables()} == {"features", SECRET}
        assert analyst.table(SECRET).to_arrow().num_rows == 1
        assert analyst.transaction(shared) is not None


def test_limited_writer_commits_publishes_and_seals_its_table_and_nothing_else(
    catalog_uri: str, catalog: deltars.Catalog, roles: Roles
) -> None:
    shared = next(one.txn_id for one in catalog.table("features").history() if one.user_metadata == "both")
    with deltars.connect(_as_role(catalog_uri, roles.clerk)) as clerk:
        clerk.write("features", rows(2)).raise_for_mirror()
        with clerk.begin(isolation="serializable") as tx:
            tx.update("features", {"v": "v + 1"}, where="id = 1")
        table = clerk.table("features")
        table.alter.add_columns("note STRING")
        clerk.set_properties("features", {"deltars.rangeColumn": "v"})
        table.optimize()
        assert clerk.resolve(tx.id) is not None
        assert table.verify(chain=True, deep=True).is_ok
        for call in (
            lambda: clerk.create_table("mine", SCHEMA),
            lambda: clerk.drop_table("features"),
            lambda: clerk.rename_table("features", SECRET),
            lambda: clerk.tag("mine"),
            lambda: clerk.untag("q3"),
            lambda: table.expire(timedelta(0), force=True),
            lambda: clerk.resolve(shared),
        ):
            with pytest.raises(DatabaseError) as caught:
                call()
            assert SECRET not in str(caught.value)
        # A cut of the past cannot be sealed, so it is as of the newest commit, as for a reader.
        assert clerk.snapshot(datetime.now(UTC)).versions == {"features": table.version}
    assert catalog.table("features").verify(chain=True, deep=True).is_ok
    assert [one.name for one in catalog.tags()] == ["q3"]


def test_limited_writer_that_attacks_by_sql_changes_nothing(
    catalog_uri: str, catalog: deltars.Catalog, roles: Roles
) -> None:
    granted, hidden = (str(catalog.table(name).id) for name in ("features", SECRET))
    columns = "txn_id, outcome, commit_ts, participants"
    insert = f"INSERT INTO dl_transactions ({columns}) VALUES (gen_random_uuid(), %s, 1, %s)"
    columns = "table_id, version, ord, path, size, partition_values, modification_time, data_change, slot"
    add = f"INSERT INTO dl_add_files ({columns}) VALUES (%s, 0, 9, 'a', 1, '{{}}', 1, true, 1)"
    refused: list[tuple[str, list[Any]]] = [
        (add, [hidden]),
        ("UPDATE dl_add_files SET table_id = %s", [hidden]),
        ("UPDATE dl_add_files SET path = 'x'", []),
        ("UPDATE dl_table_versions SET operation = 'x'", []),
        ("UPDATE dl_tables SET name = 'x'", []),
        ("UPDATE dl_tables SET dropped_at = now()", []),
        ("UPDATE dl_chain SET content = 'x'", []),
        ("DELETE FROM dl_table_versions", []),
        ("DELETE FROM dl_chain", []),
        ("DELETE FROM dl_tags", []),
        ("TRUNCATE dl_add_files", []),
        ("ALTER TABLE dl_add_files DISABLE ROW LEVEL SECURITY", []),
        (f'DROP POLICY "dl {roles.clerk}" ON dl_tables', []),
        (f'SET ROLE "{roles.analyst}"', []),
        (insert, ["sealed", None]),
        (insert, ["committed", f'{{"{hidden}": 7}}']),
        (insert, ["committed", f'{{"{granted}": 7, "{hidden}": 7}}']),
        (insert, ["committed", "{}"]),
        ("INSERT INTO dl_tables SELECT * FROM dl_tables", []),
        ("COPY dl_add_files TO PROGRAM 'cat'", []),
    ]
    untouched = ["UPDATE dl_tables SET current_version = 99", "UPDATE dl_add_files SET removed_version = 1"]
    untouched += ["UPDATE dl_mirror_status SET state = 'diverged'", "UPDATE dl_identities SET last_value = 1"]
    untouched += ["DELETE FROM dl_writers"]
    with session(catalog_uri, roles.clerk) as clerk:
        for statement, values in refused:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                clerk.execute(statement.encode(), values)
        for statement in untouched:
            # Of another table it finds no row.
            condition = f"{' WHERE' if 'WHERE' not in statement else ' AND'} table_id = '{hidden}'"
            assert clerk.execute(f"{statement}{condition}".encode()).rowcount == 0
    assert catalog.table(SECRET).verify(chain=True, deep=True).is_ok
    assert catalog.table("features").verify(chain=True, deep=True).is_ok


def test_commit_of_a_limited_writer_is_stamped_after_commits_that_it_does_not_see(
    catalog_uri: str, catalog: deltars.Catalog, roles: Roles
) -> None:
    with clock_of(catalog) as clock:
        clock.set(3_600.0)
        newest = catalog.write(SECRET, rows(1)).commit_ts
        clock.set(0.0)
        with deltars.connect(_as_role(catalog_uri, roles.clerk)) as clerk:
            clerk.write("features", rows(1))
    assert newest is not None
    assert catalog.table("features").history()[0].commit_ts > newest


def test_grant_replaces_the_one_before_and_follows_the_table(
    catalog_uri: str, catalog: deltars.Catalog, roles: Roles
) -> None:
    def tables(role: str) -> set[str]:
        with deltars.connect(_as_role(catalog_uri, role)) as opened:
            return {table.name for table in opened.tables()}

    run = CliRunner().invoke(
        main, ["migrate", "grants", "--reader", roles.guest, "--table", SECRET, "--catalog", catalog_uri]
    )
    assert run.exit_code == 0
    assert tables(roles.guest) == {SECRET}
    catalog.rename_table(SECRET, "plans")
    assert tables(roles.guest) == {"plans"}
    catalog.drop_table("plans")
    catalog.create_table("plans", SCHEMA)
    # A new table of that name is another one.
    with deltars.connect(_as_role(catalog_uri, roles.guest)) as guest, pytest.raises(TableNotFound):
        guest.table("plans").to_arrow()
    # A writer of everything that becomes one of a single table keeps no other right.
    migrate.grants(catalog_uri, writer=roles.analyst)
    assert tables(roles.analyst) == {"features", "plans"}
    migrate.grants(catalog_uri, writer=roles.analyst, tables=["plans"])
    assert tables(roles.analyst) == {"plans"}
    with deltars.connect(_as_role(catalog_uri, roles.analyst)) as opened, pytest.raises(DatabaseError):
        opened.create_table("more", SCHEMA)
    migrate.grants(catalog_uri, reader=roles.guest)
    assert tables(roles.guest) == {"features", "plans"}
    assert migrate.missing_grants(catalog_uri) == []
    with postgres_connection(parse_catalog_uri(catalog_uri)) as owner:
        owner.execute(f'REVOKE SELECT ON dl_tags FROM "{roles.clerk}"'.encode())
    [lacking] = migrate.missing_grants(catalog_uri)
    assert lacking.command == f"deltars migrate grants --writer {roles.clerk} --table features"


def test_wrong_limits_are_refused_before_anything_changes(catalog_uri: str, roles: Roles) -> None:
    for wrong, error in (
        ({"reader": roles.guest, "tables": ["nothing"]}, TableNotFound),
        ({"reader": roles.guest, "tables": []}, ValidationError),
        ({"reader": roles.guest, "tables": "features"}, ValidationError),
        ({"mirror": roles.guest, "tables": ["features"]}, ValidationError),
        ({"reader": "no_such_role", "tables": ["features"]}, DatabaseError),
    ):
        with pytest.raises(error):
            migrate.grants(catalog_uri, **wrong)
    with deltars.connect(_as_role(catalog_uri, roles.guest)) as opened:
        assert [table.name for table in opened.tables()] == ["features"]
