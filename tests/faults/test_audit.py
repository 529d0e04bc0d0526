"""The auditor of the campaign can fail: each promise is broken on purpose, behind deltars' back, and it finds that."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pytest
from sqlalchemy import delete, select, update

import deltars
from deltars.store.schema import dl_add_files, dl_table_versions, dl_tables
from tests.faults.audit import Auditor, promises
from tests.faults.clients import Client, create_tables, maintain
from tests.support.templates import CatalogTemplates

Fault: TypeAlias = Callable[[deltars.Catalog, Path], object]


def _lose_last_commit(catalog: deltars.Catalog, _: Path, names: tuple[str, ...] = ("left", "right")) -> None:
    """As a database that forgot its last transaction."""
    tables, versions, adds = dl_tables.c, dl_table_versions.c, dl_add_files.c
    with catalog._session.database.write(10) as connection:
        for name in names:
            [(table_id, last)] = connection.execute(
                select(tables.table_id, tables.current_version).where(tables.name == name)
            )
            connection.execute(delete(dl_add_files).where(adds.table_id == table_id, adds.version == last))
            connection.execute(delete(dl_table_versions).where(versions.table_id == table_id, versions.version == last))
            connection.execute(update(dl_tables).where(tables.table_id == table_id).values(current_version=last - 1))


def _lose_half_of_last_commit(catalog: deltars.Catalog, directory: Path) -> None:
    _lose_last_commit(catalog, directory, ("right",))


def _write_twice(catalog: deltars.Catalog, _: Path) -> None:
    rows = catalog.table("left").to_arrow()
    catalog.write("left", rows.slice(0, 1))


def _skip_a_version(catalog: deltars.Catalog, _: Path) -> None:
    with catalog._session.database.write(10) as connection:
        connection.execute(update(dl_tables).where(dl_tables.c.name == "left").values(current_version=99))


def _file(catalog: deltars.Catalog) -> Path:
    table = catalog.table("left")
    return Path(table.location) / str(table.files()["path"][0])


def _lose_a_file(catalog: deltars.Catalog, _: Path) -> None:
    _file(catalog).unlink()


def _cut_a_file_short(catalog: deltars.Catalog, _: Path) -> None:
    file = _file(catalog)
    file.write_bytes(file.read_bytes()[:-1])


def _replace_a_file(catalog: deltars.Catalog, _: Path) -> None:
    file = _file(catalog)
    content = bytearray(file.read_bytes())
    content[8] ^= 1
    file.write_bytes(content)


def _log(catalog: deltars.Catalog, version: int) -> Path:
    return Path(catalog.table("left").location) / "_delta_log" / f"{version:020}.json"


def _tear_the_log(catalog: deltars.Catalog, _: Path) -> None:
    _log(catalog, 2).unlink()


def _publish_what_is_not_there(catalog: deltars.Catalog, _: Path) -> None:
    last = catalog.table("left").version
    _log(catalog, last + 1).write_bytes(_log(catalog, last).read_bytes())


def _publish_another(catalog: deltars.Catalog, _: Path) -> None:
    _log(catalog, 2).write_bytes(_log(catalog, 3).read_bytes())


def _refuse_what_was_committed(_: deltars.Catalog, directory: Path) -> None:
    path = directory / "1.jsonl"
    lines = path.read_text().splitlines()
    told = json.loads(lines[-1]) | {"told": "refused", "versions": {}}
    path.write_text("\n".join([*lines[:-1], json.dumps(told)]) + "\n")


FAULTS: list[tuple[Fault, str]] = [
    (_lose_last_commit, "N1"),
    (_write_twice, "N2"),
    (_lose_half_of_last_commit, "N3"),
    (_skip_a_version, "N4"),
    (_lose_a_file, "N5"),
    (_cut_a_file_short, "N5"),
    (_replace_a_file, "N5"),
    (_tear_the_log, "N6"),
    (_publish_what_is_not_there, "N6"),
    (_publish_another, "N6"),
    (_refuse_what_was_committed, "N7"),
]


class Lake(NamedTuple):
    catalog: deltars.Catalog
    auditor: Auditor


@pytest.fixture(scope="module")
def saved(catalog_templates: CatalogTemplates, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A lake that a client has written to, the last time by a payment to both tables; and a copy of it."""
    root = tmp_path_factory.mktemp("lake")
    (root / "journals").mkdir()
    uri = f"deltasql://sqlite/{root}/catalog.db"
    catalog_templates.lay_out(uri)
    with deltars.connect(uri, warehouse=str(root / "warehouse")) as catalog:
        create_tables(catalog)
        client = Client(catalog, root / "journals", 1, random.Random(1))
        for kind in ("pay", "pay", "amend", "note", "cancel", "pay"):
            assert client.step(kind)
        client.close()
    shutil.copytree(root, root.with_name("copy"))
    return root, root.with_name("copy")


@pytest.fixture
def lake(saved: tuple[Path, Path]) -> Iterator[Lake]:
    root, copy = saved
    shutil.rmtree(root)
    shutil.copytree(copy, root)
    with deltars.connect(f"deltasql://sqlite/{root}/catalog.db") as catalog:
        auditor = Auditor(root / "journals")
        assert auditor.audit(catalog) == []
        yield Lake(catalog, auditor)


@pytest.mark.control("N1", "N2", "N3", "N4", "N5", "N6", "N7")
@pytest.mark.parametrize(("fault", "promise"), FAULTS, ids=[fault.__name__.strip("_") for fault, _ in FAULTS])
def test_auditor_finds_a_broken_promise(lake: Lake, fault: Fault, promise: str) -> None:
    fault(lake.catalog, lake.auditor.directory)
    with deltars.connect(lake.catalog.uri) as opened:
        assert promise in promises(lake.auditor.audit(opened))


def test_maintenance_breaks_no_promise(lake: Lake) -> None:
    lot = random.Random(1)
    for _ in range(6):
        maintain(lake.catalog, lot)
        assert lake.auditor.audit(lake.catalog) == []
