"""Names of tables: kept as they are written, and the same in upper and lower case, everywhere a name is taken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import gettempdir
from uuid import UUID, uuid4

import pyarrow as pa
import pytest
from alembic import command

import deltars
from deltars.catalog import migrate as public
from deltars.config import default_catalog
from deltars.errors import TableExists, TableNotFound, ValidationError, VersionConflict
from deltars.store.database import Database
from deltars.store.migrations import runner
from deltars.store.names import MAX_NAME_LENGTH, name_key
from deltars.store.views import VIEWS
from deltars.uri import parse_catalog_uri
from tests.support import witness
from tests.support.handmade_log import HandmadeLog
from tests.support.log import added
from tests.support.objects import run_script
from tests.support.racers import run_racers, unpublished

ROWS = pa.table({"id": [1]})

SAME = [("t", "T"), ("Sales", "sALES"), ("straße", "STRASSE"), ("ÄRGER", "ärger"), ("caf\u00e9", "CAFE\u0301")]


@pytest.mark.parametrize(("name", "other"), SAME, ids=[name for name, _ in SAME])
def test_table_is_found_in_any_case_and_there_is_no_second_one(catalog: deltars.Catalog, name: str, other: str) -> None:
    table = catalog.create_table(name, "id BIGINT")
    assert catalog.table(other).name == name
    assert catalog.table_exists(other)
    creations: list[Callable[[], object]] = [
        lambda: catalog.create_table(other, "id BIGINT"),
        lambda: catalog.register_table(other, "/elsewhere"),
    ]
    for create in creations:
        with pytest.raises(TableExists, match="already a table named") as caught:
            create()
        assert repr(name) in str(caught.value)
    assert catalog.create_table(other, "id BIGINT", if_not_exists=True).id == table.id
    assert catalog.create_table(other, "id BIGINT, b INT", replace=True).id == table.id
    assert [found.name for found in catalog.tables()] == [name]
    catalog.write(other, pa.table({"id": [1], "b": pa.array([2], pa.int32())}))
    assert catalog.snapshot().versions == {name: 2}
    assert catalog.snapshot().table(other).version == 2


def test_name_in_another_case_is_the_table_that_the_transaction_stages(catalog: deltars.Catalog) -> None:
    with catalog.begin() as tx:
        tx.write("New", ROWS)
        tx.write("nEW", ROWS)
        assert len(tx.files("NEW")) == 2
    assert tx.result.versions == {"New": 0}
    with catalog.begin() as tx:
        tx.stage("new", [added("1")])
        tx.stage("NEW", [added("2")])
    assert tx.result.versions == {"New": 1}
    assert catalog.snapshot(tx.id).table("NEW").version == 1
    with pytest.raises(TableExists, match="'New'"), catalog.begin() as tx:
        tx.write("NEW", ROWS, "error")


def test_table_that_got_anothers_name_meanwhile_is_staged_by_its_id(catalog: deltars.Catalog) -> None:
    before = catalog.create_table("t", "id BIGINT")
    tx = catalog.begin(isolation="snapshot")
    catalog.rename_table("t", "elsewhere")
    after = catalog.create_table("t", "id BIGINT")
    tx.stage(after.id, [added("after")], expected_version=0)
    tx.stage("t", [added("before")])
    assert tx.commit().versions_by_id == {before.id: 1, after.id: 1}
    found = {key: catalog.snapshot().files(key)["path"].to_pylist() for key in (before.id, after.id)}
    assert found == {before.id: ["before"], after.id: ["after"]}


def test_rename_may_change_the_case_alone(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("sales", "id BIGINT")
    catalog.create_table("other", "id BIGINT")
    assert catalog.rename_table("SALES", "Sales").name == "Sales"
    assert catalog.table("sales").id == table.id
    with pytest.raises(TableExists, match="'Sales'") as caught:
        catalog.rename_table("other", "SALES")
    assert "Table names ignore case" in str(caught.value)
    catalog.drop_table("sALES")
    with pytest.raises(TableNotFound):
        catalog.table("Sales")
    # The name is free again, in every case.
    assert catalog.create_table("SALES", "id BIGINT").id != table.id


def test_dropped_table_of_the_same_name_gives_way_in_a_cut_of_the_past(catalog: deltars.Catalog) -> None:
    dropped = catalog.create_table("T", "id BIGINT")
    living = catalog.create_table("other", "id BIGINT")
    with catalog.begin() as tx:
        tx.stage(dropped.id, [added("1")])
        tx.stage(living.id, [added("1")])
    catalog.drop_table("t")
    catalog.rename_table("other", "t")
    cut = catalog.snapshot(tx.id)
    assert cut.table("T").table_id == living.id
    assert cut.table(dropped.id).version == 1


def _create(catalog: deltars.Catalog, racer: int) -> str | None:
    name = "race"[:racer].upper() + "race"[racer:]
    try:
        return catalog.create_table(name, "id BIGINT", location=f"{gettempdir()}/nowhere/{racer}").name
    except TableExists:
        return None


@pytest.mark.xdist_group("races")
def test_of_many_who_create_a_name_in_another_case_at_once_one_wins(catalog: deltars.Catalog, catalog_uri: str) -> None:
    catalog.close()
    made = run_racers(catalog_uri, 3, _create, around=unpublished)
    assert len([name for name in made if name is not None]) == 1
    assert [table.name for table in catalog.tables()] == [name for name in made if name is not None]


def test_second_transaction_that_creates_a_name_in_another_case_is_in_conflict(catalog: deltars.Catalog) -> None:
    first, second = catalog.begin(), catalog.begin()
    first.write("Race", ROWS)
    second.write("rACE", ROWS)
    first.commit()
    with pytest.raises(VersionConflict):
        second.commit()
    assert [table.name for table in catalog.tables()] == ["Race"]


def test_imported_table_takes_no_name_that_is_there_in_another_case(catalog: deltars.Catalog, tmp_path: Path) -> None:
    catalog.create_table("Imported", "id BIGINT")
    HandmadeLog(tmp_path / "imported")
    with pytest.raises(TableExists, match="'Imported'"):
        catalog.import_table(str(tmp_path / "imported"))


def test_key_of_the_longest_name_fits_the_index(catalog: deltars.Catalog) -> None:
    # U+1FB7: no other letter's key is so much longer than itself.
    name = "\u1fb7" * MAX_NAME_LENGTH
    assert len(name_key(name).encode()) < 2_704
    assert catalog.create_table(name, "id BIGINT").name == name


# -- catalogs of before ------------------------------------------------------------------------------------------------


def _database(uri: str) -> Database:
    return Database(parse_catalog_uri(uri), pool_size=1, pool_timeout_s=30)


def _older_catalog(uri: str, *names: str) -> dict[str, UUID]:
    """As the release before left it, with these tables."""
    database = _database(uri)
    runner.up(database)
    with runner._migrating(database) as connection:
        runner._run(command.downgrade, database, connection, "0003", views=VIEWS.keys())
    database.close()
    ids = {name: uuid4() for name in names}
    for slot, (name, table_id) in enumerate(ids.items(), 1):
        quoted = name.replace("'", "''")
        run_script(
            uri,
            "INSERT INTO dl_tables (table_id, name, location, min_reader_version, min_writer_version, properties, slot,"
            f" created_at) VALUES ('{table_id}', '{quoted}', '/data/{slot}', 1, 2, '{{}}', {slot},"
            " '2026-01-01T00:00:00.000000Z')",
        )
    return ids


def test_migration_refuses_names_that_differ_in_case_alone_and_says_how_to_rename_them(catalog_uri: str) -> None:
    ids = _older_catalog(catalog_uri, "T", "t", "it's", "IT'S", "other")
    before = witness.rows(catalog_uri, "SELECT name FROM dl_tables ORDER BY name")
    with pytest.raises(ValidationError, match="nothing was changed") as caught:
        public.up(catalog_uri)
    said = str(caught.value)
    assert all(repr(name) in said and str(ids[name]) in said for name in ids if name != "other")
    assert "'other'" not in said
    assert public.status(catalog_uri).current == "0003"
    assert witness.rows(catalog_uri, "SELECT name FROM dl_tables ORDER BY name") == before
    with pytest.raises(ValidationError, match="SQL cannot distinguish"):
        deltars.connect(catalog_uri, migrate=True)
    # What the message says is run as it stands.
    script = said[said.index("UPDATE") : said.rindex("; Then")]
    run_script(catalog_uri, script)
    assert public.up(catalog_uri).state == "current"
    with deltars.connect(catalog_uri) as catalog:
        assert {table.id for table in catalog.tables()} == set(ids.values())
        assert catalog.table("T").id == ids["T"] == catalog.table("t").id
        assert len(catalog.tables()) == 5


def test_migration_passes_over_dropped_tables_and_names_that_differ(catalog_uri: str) -> None:
    ids = _older_catalog(catalog_uri, "T", "t", "u", "v")
    dropped = f"UPDATE dl_tables SET dropped_at = '2026-02-01T00:00:00.000000Z' WHERE table_id = '{ids['T']}'"
    run_script(catalog_uri, dropped)
    assert public.up(catalog_uri).state == "current"
    with deltars.connect(catalog_uri) as catalog:
        assert catalog.table("T").id == ids["t"]


@pytest.mark.backends("postgres", "sqlite")
def test_database_itself_refuses_a_second_name(catalog: deltars.Catalog, catalog_uri: str) -> None:
    catalog.create_table("t", "id BIGINT")
    catalog.create_table("u", "id BIGINT")
    catalog.close()
    with pytest.raises(Exception, match=r"(?i)unique"):
        run_script(catalog_uri, "UPDATE dl_tables SET name = 'T' WHERE name = 'u'")


# -- short names after a URI -------------------------------------------------------------------------------------------


@pytest.fixture
def two_catalogs(tmp_path: Path) -> list[str]:
    uris = [f"deltasql://sqlite/{tmp_path}/{name}.db" for name in ("one", "two")]
    for uri in uris:
        with deltars.connect(uri, mirror="off") as catalog:
            for table in ("a", "b"):
                catalog.create_table(table, "id BIGINT")
    return uris


def test_short_name_after_a_uri_of_another_catalog_than_the_default_is_refused(
    two_catalogs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = two_catalogs
    monkeypatch.setenv("DELTARS_CATALOG", two)
    refused = deltars.begin(mirror="off")
    refused.write(f"{one}/a", ROWS)
    acts: list[Callable[[], object]] = [
        lambda: refused.write("b", ROWS),
        lambda: refused.files("b"),
        lambda: refused.stage("b", [added("1")]),
        lambda: refused.alter("b"),
    ]
    for act in acts:
        with pytest.raises(ValidationError, match="the name 'b' is ambiguous") as caught:
            act()
        assert "two.db" in str(caught.value)
        assert "full URI" in str(caught.value)
    refused.rollback()
    with deltars.begin(mirror="off") as tx:
        tx.write(f"{one}/a", ROWS)
        tx.write(f"{one}/b", ROWS)
    assert tx.result.versions == {"a": 1, "b": 1}


def test_short_name_after_a_uri_of_the_default_catalog_or_without_one_is_its_table(
    two_catalogs: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    one, _ = two_catalogs
    for default in (one, None):
        monkeypatch.delenv("DELTARS_CATALOG", raising=False)
        if default is not None:
            monkeypatch.setenv("DELTARS_CATALOG", default)
        with deltars.begin(mirror="off") as tx:
            tx.write(f"{one}/a", ROWS)
            tx.write("b", ROWS)
        assert set(tx.result.versions) == {"a", "b"}
    monkeypatch.setenv("DELTARS_CATALOG", "lake")
    monkeypatch.setenv("DELTARS_CONFIG", str(tmp_path / "deltars.toml"))
    (tmp_path / "deltars.toml").write_text(f'[catalogs.lake]\nuri = "{one}"\n')
    assert str(default_catalog()) == str(parse_catalog_uri(one).absolute())


def test_catalogs_own_transaction_takes_short_names_whatever_the_default_is(
    two_catalogs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = two_catalogs
    monkeypatch.setenv("DELTARS_CATALOG", two)
    with deltars.connect(one, mirror="off") as catalog, catalog.begin() as tx:
        tx.write(f"{one}/a", ROWS)
        tx.write("b", ROWS)
    assert tx.result.versions == {"a": 1, "b": 1}
