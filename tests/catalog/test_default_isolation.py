"""The isolation level that a catalog stores: who sets it, who overrides it, who keeps it."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

import deltars
from deltars.store.database import Database
from deltars.store.migrations import runner
from deltars.uri import parse_catalog_uri
from tests.support import witness


def level_of(catalog: deltars.Catalog, **options: str) -> str | None:
    """The level that a transaction is committed with, as the history has it."""
    with catalog.begin(**options) as tx:  # type: ignore[arg-type]
        tx.stage("a", [])
    return catalog.table("a").history(1)[0].isolation


def test_stored_level_holds_for_everyone_until_something_nearer_sets_one(
    migrated_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with deltars.connect(migrated_uri, warehouse=str(tmp_path / "w"), mirror="off") as catalog:
        catalog.create_table("a", "id BIGINT")
        assert (catalog.default_isolation, level_of(catalog)) == ("strict", "strict")
        catalog.set_default_isolation("serializable")
        assert (catalog.default_isolation, level_of(catalog)) == ("serializable", "serializable")
        assert level_of(catalog, isolation="snapshot") == "snapshot"
        assert level_of(pickle.loads(pickle.dumps(catalog))) == "serializable"
    with deltars.connect(migrated_uri, mirror="off") as other:
        assert level_of(other) == "serializable"
    with deltars.connect(migrated_uri, mirror="off", isolation="strict") as other:
        assert (other.default_isolation, level_of(other)) == ("strict", "strict")
    monkeypatch.setenv("DELTARS_ISOLATION", "write_serializable")
    with deltars.connect(migrated_uri, mirror="off") as other:
        assert level_of(other) == "write_serializable"


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("level", ["chaos", "", None, 3, True])
def test_level_that_does_not_exist_is_refused_and_not_stored(migrated_uri: str, level: object) -> None:
    with deltars.connect(migrated_uri) as catalog:
        with pytest.raises(deltars.ConfigError, match="Levels are strict, serializable"):
            catalog.set_default_isolation(level)  # type: ignore[arg-type]
        assert catalog.default_isolation == "strict"
    assert witness.rows(migrated_uri, "SELECT isolation FROM dl_catalog") == [(None,)]


def test_migration_keeps_the_catalog_row_up_and_down(catalog_uri: str, tmp_path: Path) -> None:
    with deltars.connect(catalog_uri, warehouse=str(tmp_path / "w"), migrate=True) as catalog:
        catalog.create_table("a", "id BIGINT")
        catalog.set_default_isolation("serializable")
    database = Database(parse_catalog_uri(catalog_uri), pool_size=1, pool_timeout_s=10)
    before = witness.rows(catalog_uri, "SELECT catalog_id, warehouse FROM dl_catalog")
    runner.down(database, "0004")
    with pytest.raises(deltars.SchemaVersionError, match=r"has the older schema 0004.*deltars migrate up"):
        deltars.connect(catalog_uri, migrate=False)
    runner.up(database)
    database.close()
    assert witness.rows(catalog_uri, "SELECT catalog_id, warehouse FROM dl_catalog") == before
    with deltars.connect(catalog_uri) as catalog:
        assert catalog.default_isolation == "strict"
        assert [table.name for table in catalog.tables()] == ["a"]


def _settings(warehouse: Path) -> Path:
    return warehouse / "_deltars" / "settings.json"


@pytest.mark.backends("sqlite")
def test_rebuilt_catalog_has_the_level_that_the_lost_one_stored(migrated_uri: str, tmp_path: Path) -> None:
    warehouse = tmp_path / "w"
    with deltars.connect(migrated_uri, warehouse=str(warehouse)) as catalog:
        catalog.create_table("a", "id BIGINT")
        assert not _settings(warehouse).exists()
        catalog.set_default_isolation("snapshot")
        catalog.set_default_isolation("serializable")
    rebuilt_uri = f"deltasql://sqlite/{tmp_path}/again.db"
    for _ in range(2):
        assert deltars.rebuild(str(warehouse), rebuilt_uri).isolation == "serializable"
        with deltars.connect(rebuilt_uri) as again:
            assert level_of(again) == "serializable"
    with deltars.connect(rebuilt_uri) as again:
        again.set_default_isolation("write_serializable")
    # What the catalog stores is newer than what was published.
    _settings(warehouse).write_text('{"isolation": "strict"}')
    assert deltars.rebuild(str(warehouse), rebuilt_uri).isolation == "write_serializable"


@pytest.mark.backends("sqlite")
def test_level_that_was_not_published_is_published_by_the_reconciler(migrated_uri: str, tmp_path: Path) -> None:
    warehouse = tmp_path / "w"
    with deltars.connect(migrated_uri, warehouse=str(warehouse)) as catalog:
        catalog.create_table("a", "id BIGINT")
        catalog.set_default_isolation("serializable")
        expected = _settings(warehouse).read_bytes()
        for lost in (None, b'{"isolation": "strict"}', b"?"):
            _settings(warehouse).unlink() if lost is None else _settings(warehouse).write_bytes(lost)
            repairs = catalog.reconciler().once().repairs
            assert [repair.file for repair in repairs] == [_settings(warehouse).as_uri()]
            assert _settings(warehouse).read_bytes() == expected
        assert catalog.reconciler().once().repairs == []


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("content", ["", '{"isolation": "chaos"}', '{"isolation": 3}'])
def test_settings_that_cannot_be_read_stop_a_rebuild_before_it_changes_anything(
    migrated_uri: str, tmp_path: Path, content: str
) -> None:
    warehouse = tmp_path / "w"
    with deltars.connect(migrated_uri, warehouse=str(warehouse)) as catalog:
        catalog.create_table("a", "id BIGINT")
    _settings(warehouse).write_text(content)
    with pytest.raises(deltars.StorageError, match=r"settings\.json does not hold the settings") as raised:
        deltars.rebuild(str(warehouse), f"deltasql://sqlite/{tmp_path}/again.db")
    assert "delete it" in str(raised.value.hint)
    assert not (tmp_path / "again.db").exists()


@pytest.mark.backends("sqlite")
def test_level_is_stored_though_the_warehouse_cannot_be_written(migrated_uri: str, tmp_path: Path) -> None:
    warehouse = tmp_path / "w"
    with deltars.connect(migrated_uri, warehouse=str(warehouse)) as catalog:
        catalog.create_table("a", "id BIGINT")
        (warehouse / "_deltars" / "settings.json").mkdir()
        catalog.set_default_isolation("serializable")
        assert level_of(catalog) == "serializable"
