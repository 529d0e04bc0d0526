"""A real cluster: executors that have no database, and a worker that is lost in the middle of a write."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import deltars
from tests.spark.behaviours import chosen
from tests.spark.driver import PATIENCE_S, ROWS, TABLES
from tests.support.cluster import standalone_cluster
from tests.support.soak import record, scaled


@pytest.mark.soak
@pytest.mark.backends("postgres")
@pytest.mark.spark
@pytest.mark.xdist_group("cluster")
def test_executors_without_a_database_write_and_read_and_a_lost_worker_loses_no_row(
    catalog: deltars.Catalog, catalog_uri: str, tmp_path: Path
) -> None:
    losses = scaled(2, soak=20)
    environment = {
        **os.environ,
        "DELTARS_CATALOG": catalog_uri,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    (tmp_path / "cluster").mkdir()
    with standalone_cluster(tmp_path / "cluster") as cluster, (tmp_path / "driver.log").open("w+") as log:
        command = [sys.executable, "-m", "tests.spark.driver", cluster.url, str(tmp_path), str(losses)]
        driver = subprocess.Popen(
            command, cwd=Path(__file__).parents[2], env=environment, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            for number in range(losses):
                _wait_for_two_tasks(driver, tmp_path / str(number))
                cluster.kill_worker(number)
                (tmp_path / str(number) / "go").touch()
                if number + 1 < losses:
                    cluster.add_workers(1)
            assert driver.wait(timeout=PATIENCE_S * 2) == 0, _tail(tmp_path)
        finally:
            driver.kill()
            driver.wait()
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


def _wait_for_two_tasks(driver: subprocess.Popen[bytes], signs: Path) -> None:
    """One on each worker: whichever is lost has something to lose."""
    deadline = time.monotonic() + PATIENCE_S
    while len(list(signs.glob("task-*-0"))) < 2:
        assert driver.poll() is None, _tail(signs.parent)
        assert time.monotonic() < deadline, _tail(signs.parent)
        time.sleep(0.05)


def _tail(directory: Path) -> str:
    return (directory / "driver.log").read_text(errors="replace")[-5000:]
