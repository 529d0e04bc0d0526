"""Drivers of a stream are killed at any moment: every row is in every table exactly once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import deltars
from tests.streams.feed import ROWS
from tests.streams.test_each_batch import check_whole
from tests.support.soak import record, scaled, seed

pytestmark = [pytest.mark.backends("sqlite"), pytest.mark.spark]

_DEADLINE_S = 240


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.promise("N1", "N2")
def test_killed_drivers_lose_no_row_and_write_none_twice(catalog: deltars.Catalog, tmp_path: Path) -> None:
    catalog.create_table("events", "id BIGINT, key BIGINT")
    catalog.create_table("samples", "id BIGINT, key BIGINT")
    catalog.create_table("totals", "key BIGINT, n BIGINT")
    draw, kills = random.Random(seed()), scaled(5, soak=100)
    for _ in range(kills):
        begun = catalog.table("events").version
        driver = _start(catalog, tmp_path, batches=1_000_000)
        try:
            _wait_until(partial(_is_past, catalog, begun), driver)
            time.sleep(draw.uniform(0, 1))
            assert driver.poll() is None, "the driver ended by itself"
        finally:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
    wanted = catalog.table("events").count() // ROWS + 1
    last = _start(catalog, tmp_path, batches=wanted)
    assert last.wait(_DEADLINE_S) == 0, (tmp_path / "driver.log").read_text()[-2000:]
    check_whole(catalog)
    assert catalog.table("events").count() >= wanted * ROWS
    record("killed drivers of a stream", kills=kills, batches=catalog.table("events").version, rows_lost=0)


def _is_past(catalog: deltars.Catalog, version: int) -> bool:
    return catalog.table("events").version > version


def _start(catalog: deltars.Catalog, directory: Path, *, batches: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.streams.feed", catalog.uri, str(directory / "checkpoint"), str(batches)]
    with (directory / "driver.log").open("ab") as log:
        # A session of its own, so that its JVM dies with it.
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)


def _wait_until(is_done: Callable[[], bool], driver: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not is_done():
        assert driver.poll() is None, "the driver ended by itself"
        assert time.monotonic() < deadline, "the driver committed nothing"
        time.sleep(0.05)
