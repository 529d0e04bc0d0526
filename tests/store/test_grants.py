"""Least privilege, with real roles of a real server: what each may do, and that it may do nothing else."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from click.testing import CliRunner
from psycopg import sql

import deltars
from deltars import SqlTxnLogWriter, migrate
from deltars.cli import main
from deltars.protocol import AddFile, RemoveFile
from deltars.store import schema
from deltars.uri import CatalogUri, parse_catalog_uri
from tests.support.postgres import PostgresServer
from tests.support.witness import postgres_connection

pytestmark = pytest.mark.backends("postgres")


class Roles(NamedTuple):
    reader: str
    writer: str
    mirror: str


@pytest.fixture
def roles(postgres_server: PostgresServer, catalog_uri: str, catalog: deltars.Catalog) -> Iterator[Roles]:
    """Three new roles with their rights, on a catalog with one table and two versions."""
    catalog.create_table("features", "id BIGINT")
    catalog.write("features", pa.table({"id": [1, 2]}))
    names = Roles(*(f"{kind}_{secrets.token_hex(4)}" for kind in Roles._fields))
    with postgres_server.connect() as connection:
        for name in names:
            connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(name)))
    migrate.grants(catalog_uri, **names._asdict())
    yield names
    uri = parse_catalog_uri(catalog_uri)
    with postgres_server.connect(uri.database) as connection:
        for name in names:
            connection.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(name)))
            connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


def _as_role(catalog_uri: str, role: str) -> str:
    uri = parse_catalog_uri(catalog_uri)
    parameters = type(uri.parameters)({**uri.parameters, "user": role})
    return CatalogUri("postgres", uri.database, uri.schema, parameters).with_secrets()


def _add(path: str) -> AddFile:
    return AddFile(path=path, partition_values={}, size=1, modification_time=1, data_change=True)


def test_a_reader_reads_and_writes_nothing(catalog_uri: str, roles: Roles) -> None:
    with deltars.connect(_as_role(catalog_uri, roles.reader)) as opened:
        table = opened.table("features")
        assert table.version == 1
        assert table.snapshot().files.num_rows == 1
        with pytest.raises(deltars.DatabaseError, match="permission denied"):
            SqlTxnLogWriter(opened).commit(table.id, 2, [_add("a.parquet")], operation="WRITE")
        assert table.version == 1
    _refused_everywhere(catalog_uri, roles.reader, ["INSERT", "UPDATE", "DELETE"], allowed={})


def test_a_writer_cannot_expire_history_and_changes_nothing(catalog_uri: str, roles: Roles) -> None:
    with deltars.connect(_as_role(catalog_uri, roles.writer)) as opened:
        table = opened.table("features")
        with pytest.raises(deltars.DatabaseError, match="permission denied") as caught:
            table.expire(timedelta(0), force=True)
        assert "owner" in str(caught.value)
        assert [entry.version for entry in table.history()] == [1, 0]
    with deltars.connect(catalog_uri) as opened:
        assert (
            opened.table("features").expire(timedelta(0), dry_run=True, force=True).tables[0].num_expired_versions == 1
        )
        assert opened.table("features").snapshot(0).version == 0
        assert opened.table("features").expire(timedelta(0), force=True).tables[0].first_version == 1


def test_a_writer_cannot_purge_a_table_and_changes_nothing(catalog_uri: str, roles: Roles) -> None:
    with deltars.connect(_as_role(catalog_uri, roles.writer)) as opened:
        table = opened.table("features")
        with pytest.raises(deltars.DatabaseError, match="permission denied"):
            opened.drop_table("features", purge=True)
        rows, last = table.to_arrow(), table.history()[0].txn_id
        opened.drop_table("features")
        with pytest.raises(deltars.DatabaseError, match="permission denied"):
            opened.purge_dropped(timedelta(0))
        assert opened.snapshot(last).to_arrow("features") == rows


def test_a_writer_creates_commits_removes_publishes_and_tags_but_deletes_nothing_else(
    catalog_uri: str, roles: Roles, tmp_path: Path
) -> None:
    with deltars.connect(_as_role(catalog_uri, roles.writer)) as opened:
        opened.create_table("labels", "id BIGINT")
        with opened.begin() as tx:
            tx.write("features", pa.table({"id": [3]}))
            tx.write("labels", pa.table({"id": [3]}))
        assert tx.result.versions == {"features": 2, "labels": 1}
        tx.result.raise_for_mirror()
        table = opened.table("features")
        gone = table.snapshot().files["path"][0].as_py()
        removal = RemoveFile(path=gone, data_change=True, deletion_timestamp=1)
        SqlTxnLogWriter(opened).commit(table.id, 3, [removal], operation="DELETE")
        opened.rename_table("labels", "targets")
        opened.drop_table("targets")
        adds = pa.table(
            {
                "path": [f"f{i}.parquet" for i in range(1_500)],
                "partition_values": ["{}"] * 1_500,
                "size": [1] * 1_500,
                "modification_time": [1] * 1_500,
                "data_change": [True] * 1_500,
            }
        )
        SqlTxnLogWriter(opened).commit(table.id, 4, adds, operation="WRITE")
        opened.tag("mine")
        opened.tag("yours")
        opened.untag("yours")
        assert [tag.name for tag in opened.tags()] == ["mine"]
    writable = {"dl_tables", "dl_mirror_status", "dl_writers", "dl_maintenance", "dl_identities"}
    allowed = {"UPDATE": writable, "DELETE": {"dl_tags", "dl_writers"}}
    _refused_everywhere(catalog_uri, roles.writer, ["UPDATE", "DELETE"], allowed=allowed)


def test_a_writer_may_update_of_history_only_the_end_of_a_file_and_its_bounds(catalog_uri: str, roles: Roles) -> None:
    with postgres_connection(parse_catalog_uri(_as_role(catalog_uri, roles.writer))) as connection:
        rights = connection.execute(
            "SELECT column_name FROM information_schema.column_privileges"
            " WHERE table_schema = %s AND table_name = 'dl_add_files' AND grantee = %s AND privilege_type = 'UPDATE'",
            [parse_catalog_uri(catalog_uri).schema, roles.writer],
        ).fetchall()
    assert {name for (name,) in rights} == {"removed_version", "mins", "maxs"}


def test_a_writer_may_choose_another_range_column(catalog_uri: str, catalog: deltars.Catalog, roles: Roles) -> None:
    catalog.create_table("points", "x INT, y INT")
    catalog.write("points", pa.table({"x": pa.array([1, 2], pa.int32()), "y": pa.array([7, 8], pa.int32())}))
    with deltars.connect(_as_role(catalog_uri, roles.writer)) as opened:
        opened.set_properties("points", {"deltars.rangeColumn": "y"})
        assert opened.table("points").version == 2


def test_the_mirror_reads_all_and_writes_only_its_own_tables(
    catalog_uri: str, catalog: deltars.Catalog, roles: Roles
) -> None:
    SqlTxnLogWriter(catalog).commit(catalog.table("features").id, 2, [_add("b.parquet")], operation="WRITE")
    with deltars.connect(_as_role(catalog_uri, roles.mirror)) as opened:
        table = opened.table("features")
        assert table.snapshot().files.num_rows == 2
        with pytest.raises(deltars.DatabaseError, match="permission denied"):
            SqlTxnLogWriter(opened).commit(table.id, 3, [_add("a.parquet")], operation="WRITE")
        assert opened._session.publisher.publish_pending(table.id).published_version == 2
    own = {schema.dl_mirror_status.name, schema.dl_mirror_log.name}
    _refused_everywhere(
        catalog_uri,
        roles.mirror,
        ["INSERT", "UPDATE", "DELETE"],
        allowed={"INSERT": own | {"dl_chain"}, "UPDATE": own},
    )


def test_a_role_that_does_not_exist_is_an_error_and_grants_nothing(catalog_uri: str, roles: Roles) -> None:
    with pytest.raises(deltars.DatabaseError, match="nobody_at_all"):
        migrate.grants(catalog_uri, reader=roles.reader, writer="nobody_at_all")


def _refused_everywhere(catalog_uri: str, role: str, rights: list[str], *, allowed: dict[str, set[str]]) -> None:
    """Over every table of the catalog: the role has none of these rights but where they are allowed."""
    uri = parse_catalog_uri(catalog_uri)
    with postgres_connection(parse_catalog_uri(_as_role(catalog_uri, role))) as connection:
        for table in schema.metadata.tables:
            for right in rights:
                row = connection.execute(
                    "SELECT has_table_privilege(%s, %s, %s)", [role, f'"{uri.schema}"."{table}"', right]
                ).fetchone()
                assert row == (table in allowed.get(right, set()),), (table, right)


def test_reader_gets_a_cut_after_the_newest_commit_as_of_that_commit(
    catalog: deltars.Catalog, catalog_uri: str, roles: Roles
) -> None:
    time.sleep(0.01)
    now = datetime.now(UTC)
    with deltars.connect(_as_role(catalog_uri, roles.reader)) as reader:
        cut = reader.snapshot(now)
        assert cut.versions == {"features": 1}
        # Not `now`: a reader cannot seal it.
        assert cut.as_of is not None
        assert cut.as_of < now
        catalog.write("features", pa.table({"id": [3]}))
        assert reader.snapshot(cut.as_of).versions == cut.versions
    with deltars.connect(_as_role(catalog_uri, roles.writer)) as writer:
        assert writer.snapshot(now).as_of == now


def test_roles_that_lack_rights_on_a_new_table_are_named_until_they_are_granted_again(
    catalog_uri: str, catalog: deltars.Catalog, roles: Roles, postgres_server: PostgresServer
) -> None:
    assert migrate.missing_grants(catalog_uri) == []
    uri = parse_catalog_uri(catalog_uri)
    with postgres_server.connect(uri.database) as connection:
        # As after a migration that created it. A role that is none of ours may read one table, and needs no more.
        table = sql.Identifier(str(uri.schema), "dl_tags")
        connection.execute(
            sql.SQL("REVOKE ALL ON {} FROM {}").format(table, sql.SQL(", ").join(map(sql.Identifier, roles)))
        )
        connection.execute(sql.SQL("GRANT SELECT ON {} TO PUBLIC").format(table))
    found = {role.role: role for role in migrate.missing_grants(catalog_uri)}
    assert {role: (each.kind, each.tables) for role, each in found.items()} == {
        roles.reader: ("reader", ("dl_tags",)),
        roles.writer: ("writer", ("dl_tags",)),
        roles.mirror: ("mirror", ("dl_tags",)),
    }
    told = CliRunner().invoke(main, ["migrate", "up", "--catalog", catalog_uri])
    assert told.exit_code == 0
    for role in roles:
        assert f"The role {role} lacks rights on dl_tags. Run: deltars migrate grants --" in told.stderr
    [finding] = [each for each in deltars.diagnose(catalog_uri, spark=False) if each.check == "grants"]
    assert finding.state == "warning"
    assert roles.writer in finding.found
    assert "deltars migrate grants --" in str(finding.fix)
    command, *arguments = found[roles.writer].command.split()
    assert command == "deltars"
    assert CliRunner().invoke(main, [*arguments, "--catalog", catalog_uri]).exit_code == 0
    assert {role.role for role in migrate.missing_grants(catalog_uri)} == {roles.reader, roles.mirror}
    with deltars.connect(_as_role(catalog_uri, roles.writer)) as opened:
        opened.tag("now")
