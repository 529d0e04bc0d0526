"""The two ways in docs/deploy.md to bring the package to a cluster whose executors do not have it."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path

import pyspark
import pytest

import deltars
from tests.support.cluster import standalone_cluster
from tests.support.soak import record

ROOT = Path(__file__).parents[2]
SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"

JOB = """
import sys

from pyspark.sql import SparkSession

import deltars

def as_they_are(batches):
    # Of the executor's own Python: where it has the package from.
    import deltars
    for batch in batches:
        print("package:", deltars.__file__, file=sys.stderr)
        yield batch

spark = SparkSession.builder.getOrCreate()
with deltars.connect() as catalog, catalog.begin() as tx:
    for name in ("features", "labels"):
        tx.write(name, spark.range(0, 100, 1, 4).mapInArrow(as_they_are, "id BIGINT"))
assert catalog.table("labels").read(spark).count() == 100
"""


@pytest.mark.soak(only=True)
@pytest.mark.backends("sqlite")
@pytest.mark.spark
@pytest.mark.xdist_group("cluster")
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("way", ["the wheel", "a packed environment"])
def test_job_brings_the_package_to_executors_without_it(
    catalog: deltars.Catalog, catalog_uri: str, tmp_path: Path, way: str
) -> None:
    wheel = _wheel(tmp_path)
    if way == "the wheel":
        python = _environment(tmp_path / "nodes", "pyarrow", "pandas", "msgspec", "obstore", "sqlglot")
        # Spark takes no .whl, but a wheel is a zip.
        sent = ["--py-files", str(wheel.rename(wheel.with_suffix(".zip")))]
        interpreters = {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": sys.executable}
        comes_from = wheel.with_suffix(".zip").name
    else:
        _environment(tmp_path / "env", str(wheel), "pandas", "venv-pack")
        pack = ["env/bin/python", "-m", "venv_pack", "-p", "env", "-o", "env.tar.gz"]
        subprocess.run(pack, cwd=tmp_path, check=True, capture_output=True)
        sent = ["--archives", "env.tar.gz#env"]
        interpreters = {"PYSPARK_PYTHON": "./env/bin/python"}
        comes_from = "env/lib/"
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "cluster").mkdir()
    with standalone_cluster(tmp_path / "cluster") as cluster:
        _submit([*sent, "job.py"], cluster.url, tmp_path, {**interpreters, "DELTARS_CATALOG": catalog_uri})
    assert catalog.snapshot().versions == {"features": 0, "labels": 0}
    logs = [log.read_text() for log in (tmp_path / "cluster" / "work").rglob("stderr")]
    places = {line for log in logs for line in log.splitlines() if line.startswith("package: ")}
    assert places
    assert all(comes_from in place and str(ROOT) not in place for place in places), places
    record(f"a job that brings {way}", tables=2, rows=200)


def _wheel(directory: Path) -> Path:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", "."]
    subprocess.run([*command, str(ROOT)], cwd=directory, check=True)
    [wheel] = directory.glob("deltars-*.whl")
    return wheel


def _environment(place: Path, *packages: str) -> Path:
    venv.create(place, with_pip=True)
    python = place / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, "-c", str(ROOT / "constraints.txt"), *packages], check=True)
    return python


def _submit(arguments: list[str], master: str, directory: Path, environment: Mapping[str, str]) -> None:
    settings = ("spark.driver.host=127.0.0.1", "spark.driver.memory=512m", "spark.executor.memory=512m")
    options = ["--master", master, *(part for setting in settings for part in ("--conf", setting))]
    done = subprocess.run(
        [str(SUBMIT), *options, *arguments],
        cwd=directory,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-5_000:]}"
