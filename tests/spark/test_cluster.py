"""A real cluster: executors without a database, a worker that is lost half-way, and tasks that run twice at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import deltars
from tests.spark.behaviours import chosen
from tests.spark.changes import expected
from tests.spark.driver import PATIENCE_S, ROWS, TABLES
from tests.support.cluster import Cluster, standalone_cluster
from tests.support.soak import record, scaled


@pytest.mark.soak(only=True)
@pytest.mark.backends("postgres")
@pytest.mark.spark
@pytest.mark.xdist_group("cluster")
def test_executors_without_a_database_write_and_read_and_a_lost_worker_loses_no_row(
    catalog: deltars.Catalog, catalog_uri: str, tmp_path: Path
) -> None:
    losses = scaled(1, soak=20)
    (tmp_path / "cluster").mkdir()
    with (
        standalone_cluster(tmp_path / "cluster") as cluster,
        _driver("tests.spark.driver", cluster, tmp_path, losses, catalog_uri) as driver,
    ):
        for number in range(losses):
            _wait_for_two_tasks(driver, tmp_path / str(number))
            cluster.kill_worker(number)
            (tmp_path / str(number) / "go").touch()
            if number + 1 < losses:
                cluster.add_workers(1)
        assert driver.wait(timeout=PATIENCE_S * 2) == 0, _tail(tmp_path)
    told = json.loads((tmp_path / "told.json").read_text())
    assert told["executors"] == [[], []]
    assert told["read"] == {name: list(range(1, ROWS, 4)) for name in TABLES}
    assert told["behaviours"] == list(chosen())
    # Nothing was visible before the commit, and each write was one.
    assert told["versions"] == [[number // 2, number // 2] for number in range(losses)]
    retried = 0
    for number in range(losses):
        retried += any(not path.name.endswith("-0") for path in (tmp_path / str(number)).glob("task-*"))
    assert retried == losses
    for at, name in enumerate(TABLES):
        rows = [range(ROWS), *(range(ROWS * (n + 1), ROWS * (n + 2)) for n in range(losses) if n % 2 == at)]
        assert sorted(catalog.table(name).to_arrow()["id"].to_pylist()) == [id_ for some in rows for id_ in some]
    record("workers lost in the middle of a write", losses=losses, rows_lost=0, rows_twice=0)


@pytest.mark.soak(only=True)
@pytest.mark.backends("postgres")
@pytest.mark.spark
@pytest.mark.xdist_group("cluster")
def test_slow_task_that_spark_starts_a_second_time_writes_no_row_twice_and_loses_none(
    catalog: deltars.Catalog, catalog_uri: str, tmp_path: Path
) -> None:
    rounds = 20
    (tmp_path / "cluster").mkdir()
    with (
        standalone_cluster(tmp_path / "cluster") as cluster,
        _driver("tests.spark.stragglers", cluster, tmp_path, rounds, catalog_uri) as driver,
    ):
        assert driver.wait(timeout=PATIENCE_S * (2 + rounds)) == 0, _tail(tmp_path)
    for name in TABLES:
        for number in range(rounds):
            assert (tmp_path / f"{name}-{number}" / "attempt-1").exists(), "no task was started twice"
        table = catalog.table(name)
        assert table.version == rounds - 1
        assert sorted(table.to_arrow()["id"].to_pylist()) == list(range(ROWS * rounds))
        # A task that Spark lets run on may make its directories once more, and no file in them.
        left = Path(table.location).glob("write-*/**/*")
        assert not [path for path in left if path.is_file()]
    record("tasks that ran twice at once", tasks=rounds * len(TABLES), rows_lost=0, rows_twice=0)


@pytest.mark.soak(only=True)
@pytest.mark.backends("postgres")
@pytest.mark.spark
@pytest.mark.xdist_group("cluster")
@pytest.mark.parametrize("last", ["staged", "committed"])
def test_row_changes_lose_no_row_and_make_none_twice_though_workers_and_the_driver_are_killed(
    catalog: deltars.Catalog, catalog_uri: str, tmp_path: Path, last: str
) -> None:
    rounds = 6
    (tmp_path / "cluster").mkdir()
    with (
        standalone_cluster(tmp_path / "cluster") as cluster,
        _driver("tests.spark.changes", cluster, tmp_path, rounds, catalog_uri, last) as driver,
    ):
        for number in range(rounds):
            _wait_for_two_tasks(driver, tmp_path / str(number))
            cluster.kill_worker(number)
            (tmp_path / str(number) / "go").touch()
            cluster.add_workers(1)
        deadline = time.monotonic() + PATIENCE_S
        while not (tmp_path / last).exists():
            assert driver.poll() is None, _tail(tmp_path)
            assert time.monotonic() < deadline, _tail(tmp_path)
            time.sleep(0.05)
        driver.kill()
    for number in range(rounds):
        assert any(not path.name.endswith("-0") for path in (tmp_path / str(number)).glob("task-*")), number
    catalog.reconciler().once()
    more = 1_000 if last == "committed" else 0
    for name, rows in expected(rounds).items():
        table = catalog.table(name)
        found = table.to_arrow()
        assert sorted(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True)) == [
            (key, v + more) for key, v in sorted(rows.items())
        ]
        assert not table.verify(deep=True).findings
        assert (Path(table.location) / "_delta_log" / f"{table.version:020}.json").exists()
    record(f"workers lost in the middle of a row change, driver killed when {last}", losses=rounds, rows_lost=0)


@contextmanager
def _driver(
    program: str, cluster: Cluster, directory: Path, rounds: int, catalog_uri: str, *more: str
) -> Iterator[subprocess.Popen[bytes]]:
    environment = {
        **os.environ,
        "DELTARS_CATALOG": catalog_uri,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    command = [sys.executable, "-m", program, cluster.url, str(directory), str(rounds), *more]
    with (directory / "driver.log").open("w+") as log:
        driver = subprocess.Popen(
            command, cwd=Path(__file__).parents[2], env=environment, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            yield driver
        finally:
            driver.kill()
            driver.wait()


def _wait_for_two_tasks(driver: subprocess.Popen[bytes], signs: Path) -> None:
    """One on each worker: whichever is lost has something to lose."""
    deadline = time.monotonic() + PATIENCE_S
    while len(list(signs.glob("task-*-0"))) < 2:
        assert driver.poll() is None, _tail(signs.parent)
        assert time.monotonic() < deadline, _tail(signs.parent)
        time.sleep(0.05)


def _tail(directory: Path) -> str:
    return (directory / "driver.log").read_text(errors="replace")[-5000:]
