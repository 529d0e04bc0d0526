"""Leases on the maintenance of a table: one service at a time, whatever becomes of the one before."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest
from sqlalchemy import select

import deltars
from deltars.store.maintenance.lease import LENGTH_MS, MaintenanceLeases
from deltars.store.mirror import lease
from deltars.store.schema import dl_maintenance
from tests.support.clock import clock_of

HOLDER = """
import sys, time
from uuid import UUID
import deltars
from deltars.store.maintenance.lease import MaintenanceLeases
from deltars.store.mirror import lease
if sys.argv[3] == "another":
    lease._machine = lambda: "elsewhere/1"
with deltars.connect(sys.argv[1], migrate=False) as catalog:
    print(MaintenanceLeases(catalog._session.database).claim(UUID(sys.argv[2])), flush=True)
    time.sleep(600)
"""


def _leases(catalog: deltars.Catalog) -> MaintenanceLeases:
    return MaintenanceLeases(catalog._session.database)


@contextmanager
def _holder(catalog_uri: str, table: deltars.Table, machine: str = "this") -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lease of a table, and renews it never."""
    arguments = [sys.executable, "-c", HOLDER, catalog_uri, str(table.id), machine]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "True\n"
            yield process
        finally:
            process.kill()


def _until(catalog: deltars.Catalog, table: deltars.Table) -> tuple[str | None, int | None]:
    columns = (dl_maintenance.c.lease_owner, dl_maintenance.c.lease_until)
    with catalog._session.database.read() as connection:
        row = connection.execute(select(*columns).where(dl_maintenance.c.table_id == table.id)).one()
        return row.lease_owner, row.lease_until


def test_one_owner_has_the_lease_until_it_releases_it(catalog: deltars.Catalog) -> None:
    table, one, other = catalog.create_table("t", "id BIGINT").id, _leases(catalog), _leases(catalog)
    assert one.claim(table)
    assert one.claim(table)
    assert not other.claim(table)
    assert not other.renew(table)
    other.release(table)
    assert one.renew(table)
    one.release(table)
    one.release(table)
    assert not one.renew(table)
    assert other.claim(table)
    # Another table has its own.
    assert one.claim(catalog.create_table("u", "id BIGINT").id)


def test_a_lease_keeps_what_vacuum_and_expiry_recorded(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT")
    catalog.write("t", pa.table({"id": [1]}), "overwrite")
    table.vacuum()
    with catalog._session.database.read() as connection:
        before = connection.execute(select(dl_maintenance)).mappings().one()
    leases = _leases(catalog)
    assert leases.claim(table.id)
    leases.release(table.id)
    with catalog._session.database.read() as connection:
        assert connection.execute(select(dl_maintenance)).mappings().one() == before


@pytest.mark.backends("sqlite")
def test_a_table_that_another_process_maintains_is_skipped(catalog: deltars.Catalog, catalog_uri: str) -> None:
    table = catalog.create_table("t", "id BIGINT", properties={"delta.targetFileSize": "1mb"})
    for number in range(12):
        catalog.write("t", pa.table({"id": [number]}))
    with _holder(catalog_uri, table):
        [result] = catalog.maintain()
        assert (result.outcome, result.detail) == ("skipped", "another service maintains the table")
        assert table.detail().num_files == 12
    [result] = catalog.maintain()
    assert (result.outcome, result.advice.verb) == ("done", "optimize")


@pytest.mark.backends("postgres")
def test_the_lease_of_a_killed_process_of_this_machine_is_free_at_once(
    catalog: deltars.Catalog, catalog_uri: str
) -> None:
    table = catalog.create_table("t", "id BIGINT")
    with _holder(catalog_uri, table) as process:
        assert not _leases(catalog).claim(table.id)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert _leases(catalog).claim(table.id)


@pytest.mark.backends("sqlite")
def test_the_lease_of_a_killed_process_of_another_machine_ends_by_itself(
    catalog: deltars.Catalog, catalog_uri: str
) -> None:
    table = catalog.create_table("t", "id BIGINT")
    with _holder(catalog_uri, table, "another") as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not _leases(catalog).claim(table.id)
        with clock_of(catalog) as clock:
            clock.set(LENGTH_MS / 1000 - 5)
            assert not _leases(catalog).claim(table.id)
            clock.set(LENGTH_MS / 1000 + 1)
            assert _leases(catalog).claim(table.id)


def test_a_clock_that_was_set_back_does_not_lock_a_table_for_hours(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT").id
    dead, living = _leases(catalog), _leases(catalog)
    with clock_of(catalog) as clock:
        clock.set(3 * 3600)
        assert dead.claim(table)
        assert not living.claim(table)
        clock.set(0)
        assert living.claim(table)
        # The owner that was overtaken notices it.
        assert not dead.renew(table)
        clock.set(-60)
        assert living.renew(table)
        assert not dead.claim(table)


@pytest.mark.backends("sqlite")
def test_a_lease_is_renewed_while_a_verb_runs_and_released_after_it(
    catalog: deltars.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = catalog.create_table("t", "id BIGINT")
    for number in range(12):
        catalog.write("t", pa.table({"id": [number]}))
    monkeypatch.setattr("deltars.catalog.maintenance.RENEWED_EVERY_S", 0.05)
    ends: list[int] = []
    optimize = deltars.Table.optimize

    def slowly(self: deltars.Table, **options: object) -> object:
        for _ in range(2):
            owner, until = _until(catalog, table)
            assert lease.is_held(owner, until, time.time_ns() // 1000)
            ends.append(until or 0)
            deadline = time.monotonic() + 10
            while _until(catalog, table)[1] == until and time.monotonic() < deadline:
                time.sleep(0.02)
        return optimize(self, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(deltars.Table, "optimize", slowly)
    [result] = catalog.maintain()
    assert result.outcome == "done"
    assert ends[0] < ends[1]
    assert _until(catalog, table) == (None, None)


@pytest.mark.backends("sqlite")
def test_a_service_that_lost_its_lease_starts_no_other_verb(
    catalog: deltars.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = catalog.create_table(
        "t", "id BIGINT", properties={"delta.deletedFileRetentionDuration": "interval 0 seconds"}
    )
    for number in range(12):
        catalog.write("t", pa.table({"id": [number]}))
    catalog.write("t", pa.table({"id": [1]}), "overwrite")
    for number in range(12):
        catalog.write("t", pa.table({"id": [number]}))
    assert [one.verb for one in catalog.advise()] == ["optimize", "vacuum"]
    monkeypatch.setattr("deltars.catalog.maintenance.RENEWED_EVERY_S", 0.05)
    optimize = deltars.Table.optimize

    def overtaken(self: deltars.Table, **options: object) -> object:
        with clock_of(catalog) as clock:
            # The service may renew its lease between a look at the clock and the claim: then a later hour is tried.
            for hours in range(2, 20):
                clock.set(-3600 * hours)
                if _leases(catalog).claim(table.id):
                    break
            else:
                raise AssertionError("the lease was renewed before each claim")
            clock.set(0)
        time.sleep(0.5)
        return optimize(self, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(deltars.Table, "optimize", overtaken)
    [result] = catalog.maintain()
    assert (result.advice.verb, result.outcome) == ("optimize", "done")
    # The other owner's lease is not released.
    assert _until(catalog, table)[0] is not None
