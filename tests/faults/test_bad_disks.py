"""Disks that are full, read-only, slow or unsteady: the client is told the truth, and the log catches up."""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import deltars
from deltars.errors import StorageError
from deltars.storage.local import LocalStorage
from deltars.uri import CatalogUri
from tests.catalog.test_undo_crashes import repaired
from tests.faults.audit import Auditor
from tests.faults.clients import Client, create_tables
from tests.support.campaign import Rounds
from tests.support.soak import record, scaled
from tests.support.templates import CatalogTemplates

pytestmark = pytest.mark.promise("N1", "N3", "N5", "N6", "N7")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", place], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("mounting a small file system takes root")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


# A file system with an open database cannot be made read-only.
@pytest.mark.parametrize(("fault", "on_disk"), [("full", "catalog"), ("full", "tables"), ("read-only", "tables")])
def test_disk_that_takes_no_more_is_said_and_breaks_no_promise(
    on_disk: str, fault: str, disk: Path, tmp_path: Path, catalog_templates: CatalogTemplates
) -> None:
    uri = str(CatalogUri("sqlite", str((disk if on_disk == "catalog" else tmp_path) / "catalog.db")))
    catalog_templates.lay_out(uri)
    (tmp_path / "journals").mkdir()
    auditor = Auditor(tmp_path / "journals")
    warehouse = (disk if on_disk == "tables" else tmp_path) / "warehouse"
    with deltars.connect(uri, warehouse=str(warehouse), timeout=5) as catalog:
        create_tables(catalog)
        client = Client(catalog, auditor.directory, 1, random.Random(1))
        for kind in ("pay", "amend"):
            assert client.step(kind)
        _spoil(disk, fault)
        # A little may still fit.
        outcomes = [client.step("pay") for _ in range(6)]
        assert not outcomes[-1]
        assert set(client.errors) <= {"StorageError", "DatabaseError"}
        _repair(disk)
        assert auditor.audit(catalog) == []
        repaired(catalog)
        for kind in ("pay", "cancel"):
            assert client.step(kind)
        client.close()
        assert auditor.audit(catalog) == []
        assert all(table.verify().is_ok for table in catalog.tables())


def _spoil(disk: Path, fault: str) -> None:
    if fault == "read-only":
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        return
    ballast = os.open(disk / "ballast", os.O_WRONLY | os.O_CREAT)
    with suppress(OSError):
        while os.write(ballast, bytes(1024)):
            pass
    os.close(ballast)


def _repair(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
    (disk / "ballast").unlink(missing_ok=True)


@pytest.mark.backends("sqlite")
@pytest.mark.campaign(rounds=1)
def test_storage_that_is_slow_and_fails_now_and_then_breaks_no_promise(
    catalog: deltars.Catalog, tmp_path: Path, rounds: Rounds
) -> None:
    create_tables(catalog)
    (tmp_path / "journals").mkdir()
    auditor, faults, steps = Auditor(tmp_path / "journals"), 0, 0
    client = Client(catalog, auditor.directory, 1, rounds.lot)

    def unsteady(original: Any, *, is_done: bool) -> Any:
        """Slow or refused; or done, and the answer is lost."""

        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal faults
            drawn = rounds.lot.random()
            if drawn < 0.05:
                time.sleep(0.02)
            elif drawn < 0.15:
                faults += 1
                if is_done and drawn < 0.10:
                    original(*arguments, **options)
                raise StorageError("503 Slow Down", retryable=True)
            return original(*arguments, **options)

        return call

    for _ in rounds:
        with (
            mock.patch.object(LocalStorage, "put_if_absent", unsteady(LocalStorage.put_if_absent, is_done=True)),
            mock.patch.object(LocalStorage, "put", unsteady(LocalStorage.put, is_done=True)),
            mock.patch.object(LocalStorage, "get_or_none", unsteady(LocalStorage.get_or_none, is_done=False)),
        ):
            for _ in range(scaled(12, soak=60)):
                client.step()
                steps += 1
        assert auditor.audit(catalog) == []
        repaired(catalog)
        assert auditor.audit(catalog) == []
    client.close()
    record("unsteady storage", transactions=steps, failed_calls=faults, broken=0)
