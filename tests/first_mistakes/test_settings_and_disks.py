"""What a newcomer gets wrong before the first table: the catalog, the database, the disk."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest

import deltars
from deltars.store.backends import file_system
from tests.first_mistakes.conftest import ROWS, program

SECRET = "hunter2"
DOWN = f"deltasql://postgres/lake/public?host=127.0.0.1&port=1&user=me&password={SECRET}"


class Mistake(NamedTuple):
    made: Callable[[], object]
    error: type[Exception]
    wrong: str
    mended_by: str


MISTAKES = {
    "the database is down": Mistake(
        lambda: deltars.connect(DOWN), deltars.DatabaseError, "Connection refused", "Check that the server runs"
    ),
    "the host is not known": Mistake(
        lambda: deltars.connect(DOWN.replace("127.0.0.1", "nowhere.invalid")),
        deltars.DatabaseError,
        "nowhere.invalid",
        "host, port, database, user and password",
    ),
    "another library's URL": Mistake(
        lambda: deltars.connect(f"postgresql://me:{SECRET}@db/lake"),
        deltars.UriError,
        "expected a deltasql:// URI",
        "Write deltasql://postgres/lake/public?host=db&user=me, and give the password as &password=…",
    ),
    "a path in place of a URI": Mistake(
        lambda: deltars.connect("lake.db"), deltars.ConfigError, "is not a deltasql:// URI", "deltasql://sqlite/lake.db"
    ),
    "a relative warehouse": Mistake(
        lambda: deltars.connect(warehouse="lake"),
        deltars.ConfigError,
        "the warehouse cannot be used: the location 'lake' is neither an absolute path",
        "Give the whole path: /",
    ),
    "a misspelt setting": Mistake(
        lambda: deltars.connect(isolation="stricct"),  # type: ignore[arg-type]
        deltars.ConfigError,
        "there is no isolation level 'stricct'",
        "Levels are strict",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_the_message_says_what_is_wrong_and_how_to_mend_it_and_shows_no_secret(
    mistake: Mistake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(mistake.error) as raised:
        mistake.made()
    said = str(raised.value)
    assert mistake.wrong in said
    assert mistake.mended_by in said
    assert SECRET not in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.backends("postgres")
def test_a_server_without_a_catalog_and_one_without_a_warehouse_say_what_to_run(
    catalog_uri: str, tmp_path: Path
) -> None:
    with pytest.raises(deltars.SchemaVersionError, match=r"holds no deltars catalog yet.*Run: deltars init"):
        deltars.connect(catalog_uri)
    with deltars.connect(catalog_uri, migrate=True) as catalog:
        with pytest.raises(deltars.ConfigError, match=r"has no warehouse.*connect\(…, warehouse=…\)"):
            catalog.write("features", ROWS)
        assert catalog.tables() == []


def test_a_second_process_on_duckdb_is_told_which_databases_take_two(tmp_path: Path) -> None:
    uri = f"deltasql://duckdb/{tmp_path}/lake.duckdb"
    with deltars.connect(uri):
        second = program(f"import deltars; deltars.connect({uri!r})", tmp_path)
    assert second.returncode == 1
    assert "DuckDB catalogs are for one process: close the other one, or use SQLite or PostgreSQL." in second.stderr


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ("server:/home {here} nfs4 rw,relatime 0 0", True),
        ("//server/share {here} cifs rw 0 0", True),
        ("server:/home {here} nfs4 rw 0 0\n/dev/sda1 {here} ext4 rw 0 0", False),
        ("server:/home {here}/other nfs4 rw 0 0", False),
        ("/dev/sda1 {here} ext4 rw 0 0", False),
    ],
    ids=["nfs", "cifs", "a local disk mounted over it", "another directory", "a local disk"],
)
def test_sqlite_on_a_network_file_system_is_refused_before_a_file_is_made(
    line: str, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "my files"
    here.mkdir()
    table = tmp_path / "mounts"
    table.write_text(f"/dev/root / ext4 rw 0 0\n{line}\n".replace("{here}", str(here).replace(" ", r"\040")))
    monkeypatch.setattr(file_system, "MOUNTS", table)
    uri = f"deltasql://sqlite/{here}/lake.db"
    if not refused:
        deltars.connect(uri).close()
        return
    with pytest.raises(deltars.DatabaseError, match="is on a network file system") as raised:
        deltars.connect(uri)
    assert "Keep the catalog's file on a local disk" in str(raised.value)
    assert list(here.iterdir()) == []


def test_a_read_only_directory_is_named_for_the_catalog_and_for_the_tables(mounted: Path, tmp_path: Path) -> None:
    uri = f"deltasql://sqlite/{tmp_path}/lake.db"
    with deltars.connect(uri, warehouse=str(mounted / "warehouse")) as catalog:
        catalog.write("features", ROWS)
        _remount(mounted, "ro")
        with pytest.raises(deltars.StorageError, match=r"Read-only file system.*mount it for writing") as raised:
            catalog.write("features", ROWS)
        assert str(mounted) in str(raised.value)
        assert catalog.table("features").version == 0
        with pytest.raises(deltars.StorageError, match=r"Read-only file system.*mount it for writing"):
            catalog.create_table("labels", "id BIGINT")
        assert not catalog.table_exists("labels")
        with pytest.raises(deltars.DatabaseError, match=r"cannot be opened|unable to open|read-only"):
            deltars.connect(f"deltasql://sqlite/{mounted}/lake.db")
        _remount(mounted, "rw")
        assert catalog.write("features", ROWS).versions == {"features": 1}


def test_a_full_disk_is_named_and_what_did_not_fit_changed_nothing(mounted: Path, tmp_path: Path) -> None:
    large = pa.table({"id": range(200_000), "day": [str(number * 7919) for number in range(200_000)]})
    with deltars.connect(f"deltasql://sqlite/{tmp_path}/lake.db", warehouse=str(mounted / "warehouse")) as catalog:
        catalog.write("features", ROWS)
        with pytest.raises(
            deltars.StorageError, match="The disk is full: make room and try again; nothing was changed"
        ):
            catalog.write("features", large)
        assert catalog.table("features").version == 0
        assert catalog.write("features", ROWS).versions == {"features": 1}


def _remount(place: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", place], check=True)
