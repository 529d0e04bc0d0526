"""Drivers, workers and the database of a stream are killed at any moment: every row is in every table exactly once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import deltars
from tests.streams.feed import ROWS
from tests.streams.test_each_batch import check_whole
from tests.support.cluster import standalone_cluster
from tests.support.postgres import PostgresServer
from tests.support.soak import record, scaled, seed

pytestmark = [pytest.mark.spark, pytest.mark.timeout(7200)]

_DEADLINE_S = 240


class Feed:
    """The program of a stream, started again whenever it ended."""

    def __init__(self, catalog: deltars.Catalog, directory: Path, *more: str) -> None:
        self._catalog, self._directory, self._more = catalog, directory, more
        self._driver: subprocess.Popen[bytes] | None = None
        self.starts = 0
        catalog.create_table("events", "id BIGINT, key BIGINT")
        catalog.create_table("samples", "id BIGINT, key BIGINT")
        catalog.create_table("totals", "key BIGINT, n BIGINT")

    def advance(self) -> None:
        """Wait until a further batch is committed."""
        begun, deadline = self._version(), time.monotonic() + _DEADLINE_S
        while self._version() <= begun:
            if self._driver is None or self._driver.poll() is not None:
                self._driver = self.start(batches=1_000_000)
            assert time.monotonic() < deadline, f"nothing was committed: {self.said()}"
            time.sleep(0.05)

    def start(self, *, batches: int) -> subprocess.Popen[bytes]:
        self.starts += 1
        place = str(self._directory / "checkpoint")
        uri = self._catalog._session.uri.with_secrets()
        command = [sys.executable, "-m", "tests.streams.feed", uri, place, str(batches), *self._more]
        with (self._directory / "driver.log").open("ab") as log:
            # A session of its own, so that its JVM dies with it.
            return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def kill(self) -> None:
        if self._driver is not None:
            _kill(self._driver)
            self._driver = None

    def finish(self) -> None:
        """Let the stream commit one more batch and end, and check every row of every table at every cut."""
        self.kill()
        wanted = self._catalog.table("events").count() // ROWS + 1
        for _ in range(3):
            last = self.start(batches=wanted)
            if last.wait(_DEADLINE_S) == 0:
                break
        else:
            raise AssertionError(self.said())
        check_whole(self._catalog)
        assert self._catalog.table("events").count() >= wanted * ROWS

    def said(self) -> str:
        return (self._directory / "driver.log").read_text()[-2000:]

    def _version(self) -> int:
        for _ in range(200):
            try:
                return self._catalog.table("events").version
            except deltars.DatabaseError:
                time.sleep(0.1)  # the database starts
        raise AssertionError("the database does not come back")


def _kill(driver: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()


@contextmanager
def feeding(catalog: deltars.Catalog, directory: Path, *more: str) -> Iterator[Feed]:
    feed = Feed(catalog, directory, *more)
    try:
        yield feed
    finally:
        feed.kill()


def _disturb(feed: Feed, times: int, disturb: Callable[[int], object]) -> None:
    """Disturb the stream at random moments, each time after it came forward."""
    draw = random.Random(seed())
    for number in range(times):
        feed.advance()
        time.sleep(draw.uniform(0, 1))
        disturb(number)
    feed.advance()
    feed.finish()


@pytest.mark.soak
@pytest.mark.backends("sqlite")
@pytest.mark.promise("N1", "N2")
def test_killed_drivers_lose_no_row_and_write_none_twice(catalog: deltars.Catalog, tmp_path: Path) -> None:
    kills = scaled(1, soak=100)
    with feeding(catalog, tmp_path) as feed:
        _disturb(feed, kills, lambda _: feed.kill())
        assert feed.starts == kills + 2, f"a driver ended by itself: {feed.said()}"
    record("killed drivers of a stream", kills=kills, batches=catalog.table("events").version, rows_lost=0)


@pytest.mark.soak(only=True)
@pytest.mark.backends("postgres")
@pytest.mark.promise("N1", "N2")
def test_database_that_restarts_loses_no_row_and_writes_none_twice(
    catalog: deltars.Catalog, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    if postgres_server.data is None:
        pytest.skip("needs a server that can be restarted, and DELTARS_TEST_POSTGRES_URL names another")
    restarts = 10
    with feeding(catalog, tmp_path) as feed:
        _disturb(feed, restarts, lambda _: postgres_server.restart())
    record("restarts of a stream's database", restarts=restarts, batches=catalog.table("events").version, rows_lost=0)


@pytest.mark.soak(only=True)
@pytest.mark.backends("sqlite")
@pytest.mark.xdist_group("cluster")
@pytest.mark.promise("N1", "N2")
def test_lost_workers_lose_no_row_and_write_none_twice(catalog: deltars.Catalog, tmp_path: Path) -> None:
    losses = 5
    (tmp_path / "cluster").mkdir()
    with standalone_cluster(tmp_path / "cluster") as cluster, feeding(catalog, tmp_path, cluster.url) as feed:

        def lose(number: int) -> None:
            cluster.kill_worker(number)
            cluster.add_workers(1)

        _disturb(feed, losses, lose)
        assert feed.starts == 2, f"the driver ended by itself: {feed.said()}"
    record("workers lost under a stream", losses=losses, batches=catalog.table("events").version, rows_lost=0)


@pytest.mark.soak(only=True)
@pytest.mark.backends("sqlite")
@pytest.mark.promise("N1", "N2")
def test_copy_of_a_query_that_was_started_by_mistake_changes_nothing(catalog: deltars.Catalog, tmp_path: Path) -> None:
    """Spark stops one of the two, because both write its checkpoint. Until then each batch is committed once."""
    ended = 0
    with feeding(catalog, tmp_path) as feed:
        for _ in range(3):
            feed.advance()
            copy = feed.start(batches=1_000_000)
            try:
                begun, deadline = feed._version(), time.monotonic() + _DEADLINE_S
                while copy.poll() is None and feed._version() < begun + 30:
                    assert time.monotonic() < deadline, feed.said()
                    feed.advance()
                ended += copy.poll() is not None
            finally:
                _kill(copy)
        feed.finish()
    record("copies of a stream's query", copies=3, stopped=ended, batches=catalog.table("events").version, rows_twice=0)
