"""Golden tables that can be read, through Spark: as delta-spark read them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import deltars
from tests.support.golden import SAMPLE, GoldenTable, golden_tables, same_rows
from tests.support.soak import is_soak

# These differ in their logs, which Spark does not see: a sample of them is enough for `make test`.
OF_THE_LOG = (
    "basic-",
    "corrupted-",
    "data-skipping-",
    "deltalog-",
    "hive/",
    "log-replay-",
    "snapshot-",
    "time-travel-",
)


def is_chosen(golden: GoldenTable) -> bool:
    is_short = golden.name in SAMPLE or not golden.name.startswith(OF_THE_LOG)
    return golden.outcome == "read" and (is_soak() or is_short)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.backends("sqlite")
def test_every_golden_table_read_through_spark_has_the_expected_rows(
    catalog: deltars.Catalog, spark: SparkSession, tmp_path: Path
) -> None:
    wrong = []
    for number, golden in enumerate(filter(is_chosen, golden_tables())):
        place = tmp_path / f"golden-{number}"
        shutil.copytree(golden.root, place)
        table = catalog.import_table(str(place), place.name)
        rows = table.read(spark=spark).toArrow()
        if golden.num_rows not in (None, rows.num_rows):
            wrong.append(f"{golden.name}: {rows.num_rows} rows, not {golden.num_rows}")
        expected = golden.expected()
        if not same_rows(rows, table.to_arrow() if expected is None else expected):
            wrong.append(f"{golden.name}: other rows than expected")
        shutil.rmtree(place)
    assert not wrong
