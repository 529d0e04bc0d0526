"""Declarative pipelines of Spark: flows out of tables and into them, by `format("deltasql")`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import deltars

pytestmark = [pytest.mark.backends("sqlite"), pytest.mark.spark]

_SPEC = """
name: orders
storage: file://{place}/storage
configuration:
  spark.sql.shuffle.partitions: "1"
libraries:
  - glob:
      include: flows.py
"""
_FLOWS = """
from pyspark import pipelines as dp

dp.create_sink("copy", "deltasql", {{"table": "{uri}/copy"}})
dp.create_sink("large", "deltasql", {{"catalog": "{uri}", "table": "large", "txnAppId": "pipeline"}})


@dp.temporary_view
def orders():
    return spark.readStream.format("deltasql").load("{uri}/orders")


@dp.append_flow(target="copy")
def all_orders():
    return spark.readStream.table("orders")


@dp.append_flow(target="large")
def large_orders():
    return spark.readStream.table("orders").where("amount > 10")
"""


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "amount": pa.array([one * 10 for one in ids], pa.int64())})


@pytest.mark.soak(only=True)
@pytest.mark.timeout(900)
def test_pipeline_reads_a_table_and_fills_two_exactly_once(
    catalog: deltars.Catalog, connect_url: str, tmp_path: Path
) -> None:
    (tmp_path / "spark-pipeline.yml").write_text(_SPEC.format(place=tmp_path))
    (tmp_path / "flows.py").write_text(_FLOWS.format(uri=catalog.uri))
    catalog.write("orders", rows(1, 2))

    def run() -> None:
        command = [sys.executable, "-m", "pyspark.pipelines.cli", "run", "--spec", str(tmp_path / "spark-pipeline.yml")]
        environment = {**os.environ, "SPARK_REMOTE": connect_url}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def ids(table: str) -> list[int]:
        return sorted(catalog.table(table).to_arrow()["id"].to_pylist())

    run()
    assert (ids("copy"), ids("large")) == ([1, 2], [2])
    catalog.write("orders", rows(3))
    run()
    assert (ids("copy"), ids("large")) == ([1, 2, 3], [2, 3])
