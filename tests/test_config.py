"""Where settings come from, and who wins: keyword, environment, deltars.toml, defaults."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

import deltars
from deltars.config import MAX_TIMEOUT_S, Settings, configure
from deltars.uri import parse_catalog_uri

URI = "deltasql://sqlite//data/lake.db"


@pytest.fixture(autouse=True)
def in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write_config(text: str, path: Path = Path("deltars.toml")) -> None:
    path.write_text(text)


def test_without_anything_the_embedded_catalog_and_the_defaults_are_used(tmp_path: Path) -> None:
    config = configure(environment={})
    assert config.uri == parse_catalog_uri(f"deltasql://sqlite/{tmp_path}/.deltars/lake.db")
    assert config.warehouse is None
    assert config.settings == Settings(
        timeout=60.0, pool_size=10, pool_timeout=30.0, copy_threshold=1_000, mirror_wait=5.0, mirror_concurrency=5
    )


def test_keyword_beats_environment_beats_file_beats_default() -> None:
    write_config(
        f"""
        [catalogs.lake]
        uri = "{URI}"
        warehouse = "/file"
        pool_size = 2
        pool_timeout = 2.5
        timeout = 20
        """
    )
    environment = {"DELTARS_POOL_SIZE": "3", "DELTARS_POOL_TIMEOUT": "3.5", "DELTARS_WAREHOUSE": "/environment"}
    config = configure("lake", environment=environment, pool_size=4)
    assert config.settings.pool_size == 4
    assert config.settings.pool_timeout == 3.5
    assert config.settings.timeout == 20.0
    assert config.settings.mirror_wait == 5.0
    assert config.warehouse == "/environment"
    assert configure("lake", environment={}).warehouse == "/file"
    assert configure("lake", environment=environment, warehouse="/keyword").warehouse == "/keyword"


def test_catalog_is_the_argument_else_the_environments_else_the_embedded_one() -> None:
    environment = {"DELTARS_CATALOG": "deltasql://sqlite//environment.db"}
    assert configure(URI, environment=environment).uri.database == "/data/lake.db"
    assert configure(environment=environment).uri.database == "/environment.db"
    assert configure(environment={"DELTARS_CATALOG": ""}).uri.database.endswith(".deltars/lake.db")


def test_environment_may_name_a_catalog_of_the_file() -> None:
    write_config(f'[catalogs.lake]\nuri = "{URI}"\npool_size = 2')
    config = configure(environment={"DELTARS_CATALOG": "lake"})
    assert (config.uri, config.settings.pool_size) == (parse_catalog_uri(URI), 2)


def test_file_may_lie_elsewhere(tmp_path: Path) -> None:
    write_config(f'[catalogs.lake]\nuri = "{URI}"', tmp_path / "other.toml")
    config = configure("lake", environment={"DELTARS_CONFIG": str(tmp_path / "other.toml")})
    assert config.uri == parse_catalog_uri(URI)


def test_storage_options_come_from_every_source() -> None:
    write_config(f'[catalogs.lake]\nuri = "{URI}"\nstorage_options = {{aws_region = "file"}}')
    assert configure("lake", environment={}).settings.storage_options == {"aws_region": "file"}
    environment = {"DELTARS_STORAGE_OPTIONS": '{"aws_region": "environment"}'}
    assert configure("lake", environment=environment).settings.storage_options == {"aws_region": "environment"}
    given = configure("lake", environment=environment, storage_options={"aws_region": "keyword"})
    assert given.settings.storage_options == {"aws_region": "keyword"}
    of_one_table = configure("lake", environment={}, storage_options={"s3://b/t": {"aws_region": "own"}})
    assert of_one_table.settings.storage_options == {"s3://b/t": '{"aws_region": "own"}'}


def test_transactions_have_their_settings_from_every_source(tmp_path: Path) -> None:
    write_config(
        f"""
        [catalogs.lake]
        uri = "{URI}"
        isolation = "write_serializable"
        max_tables = 20
        max_files_per_table = 50
        """
    )

    def found(**given: Any) -> tuple[str | None, int, int]:
        settings = configure("lake", environment=environment, **given).settings
        return settings.isolation, settings.max_tables, settings.max_files_per_table

    environment: dict[str, str] = {}
    assert found() == ("write_serializable", 20, 50)
    environment = {"DELTARS_ISOLATION": "serializable", "DELTARS_MAX_TABLES": "30"}
    assert found() == ("serializable", 30, 50)
    assert found(isolation="snapshot", max_files_per_table=7) == ("snapshot", 30, 7)
    assert Settings().isolation is None
    assert (Settings().max_tables, Settings().max_files_per_table) == (10, 1_000)


def test_setting_of_the_environment_reaches_the_transactions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELTARS_MAX_TABLES", "1")
    with deltars.connect(f"deltasql://sqlite/{tmp_path}/lake.db") as catalog:
        for name in ("a", "b"):
            catalog.create_table(name, "id BIGINT")
        tx = catalog.begin()
        tx.stage("a", [])
        with pytest.raises(deltars.TransactionTooLarge, match="max_tables is 1"):
            tx.stage("b", [])


def test_none_is_as_if_nothing_was_given() -> None:
    assert configure(URI, environment={"DELTARS_POOL_SIZE": "3"}, pool_size=None).settings.pool_size == 3


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("pool_size", "many", "pool_size must be a whole number, not 'many'"),
        ("pool_size", 2.5, "pool_size must be a whole number, not 2.5"),
        ("pool_size", True, "pool_size must be a whole number, not True"),
        ("pool_size", 0, "pool_size must be at least 1, not 0"),
        ("copy_threshold", -1, "copy_threshold must be at least 1"),
        ("mirror_concurrency", 0, "mirror_concurrency must be at least 1"),
        ("timeout", 0, "timeout must be more than 0"),
        ("timeout", -1.0, "timeout must be more than 0"),
        ("timeout", "soon", "timeout must be a number of seconds, not 'soon'"),
        ("timeout", float("nan"), "timeout must be more than 0"),
        ("timeout", float("inf"), f"at most {MAX_TIMEOUT_S} seconds"),
        ("pool_timeout", 0, "pool_timeout must be more than 0"),
        ("mirror_wait", -5, "mirror_wait must be more than 0"),
        ("poolsize", 3, "unknown setting poolsize"),
        (
            "isolation",
            "chaos",
            "there is no isolation level 'chaos'. Levels are strict, serializable",
        ),
        ("isolation", "Strict", "there is no isolation level 'Strict'"),
        ("max_tables", 0, "max_tables must be at least 1, not 0"),
        ("max_tables", "ten", "max_tables must be a whole number, not 'ten'"),
        ("max_files_per_table", 0, "max_files_per_table must be at least 1"),
        ("max_files_per_table", 0.5, "max_files_per_table must be a whole number, not 0.5"),
    ],
)
def test_setting_that_cannot_be_is_named(name: str, value: Any, message: str) -> None:
    with pytest.raises(deltars.ConfigError) as raised:
        configure(URI, environment={}, **{name: value})
    assert message in str(raised.value)


def test_wrong_value_in_the_environment_is_named() -> None:
    with pytest.raises(deltars.ConfigError, match="there is no isolation level 'none'"):
        configure(URI, environment={"DELTARS_ISOLATION": "none"})
    with pytest.raises(deltars.ConfigError, match="timeout must be a number of seconds, not '1 minute'"):
        configure(URI, environment={"DELTARS_TIMEOUT": "1 minute"})


@pytest.mark.parametrize("value", ["hunter2", '["hunter2"]', '{"aws_secret_access_key": "hunter2"'])
def test_storage_options_are_not_shown_even_when_they_are_wrong(value: str) -> None:
    with pytest.raises(deltars.ConfigError, match="storage_options must be an object of strings") as raised:
        configure(URI, environment={"DELTARS_STORAGE_OPTIONS": value})
    assert "hunter2" not in str(raised.value)
    assert "hunter2" not in repr(configure(URI, environment={}, storage_options={"key": "hunter2"}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[catalogs.lake", "is not valid TOML"),
        ("[catalogs.other]\nuri = 'x'", "defines no catalog 'lake'. It defines: other."),
        ("", "defines no catalog 'lake'. It defines: none."),
        ("catalogs = 3", "catalogs in deltars.toml is not a table"),
        ("[catalogs]\nlake = 'deltasql://sqlite/x.db'", "defines no catalog 'lake'"),
        ("[catalogs.lake]\npool_size = 3", "the catalog 'lake' of deltars.toml has no uri"),
        ("[catalogs.lake]\nuri = 3", "the uri of the catalog 'lake' of deltars.toml is not a string"),
        ("[catalogs.lake]\nuri = 'deltasql://sqlite/x.db'\npoolsize = 3", "has the unknown setting poolsize"),
        ("[catalogs.lake]\nuri = 'deltasql://sqlite/x.db'\nwarehouse = 3", "the warehouse of the catalog 'lake'"),
        ("[catalogs.lake]\nuri = 'deltasql://sqlite/x.db'\npool_size = 'x'", "pool_size must be a whole number"),
        ("[catalogs.lake]\nuri = 'deltasql://sqlite/x.db/t'", "names the table 't' where a catalog is expected"),
    ],
)
def test_mistake_in_the_file_is_named(text: str, message: str) -> None:
    write_config(text)
    with pytest.raises(deltars.ConfigError) as raised:
        configure("lake", environment={})
    assert message in str(raised.value)


def test_name_without_a_file_is_refused_with_an_example() -> None:
    with pytest.raises(
        deltars.ConfigError, match=r"'lake' is not a deltasql:// URI, and there is no deltars.toml"
    ) as raised:
        configure("lake", environment={})
    assert "deltasql://sqlite/.deltars/lake.db" in str(raised.value)


def test_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(deltars.ConfigError, match="cannot be read: Is a directory"):
        configure("lake", environment={"DELTARS_CONFIG": str(tmp_path)})


@pytest.mark.parametrize("empty", ["", "  "])
def test_empty_name_is_not_taken_for_the_default_catalog(empty: str) -> None:
    with pytest.raises(deltars.ConfigError, match="the catalog's name is empty"):
        configure(empty, environment={})


def test_settings_and_the_configuration_pickle() -> None:
    config = configure(
        "deltasql://postgres/lake/public?password=hunter2",
        environment={},
        warehouse="/w",
        pool_size=3,
        storage_options={"key": "value"},
    )
    copy = pickle.loads(pickle.dumps(config))
    assert copy == config
    assert copy.uri.parameters == {"password": "hunter2"}
    assert copy.settings.storage_options == {"key": "value"}
    assert "hunter2" not in repr(copy)
