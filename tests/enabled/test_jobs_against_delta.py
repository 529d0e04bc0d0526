"""The same jobs, unchanged, on delta-spark and in an enabled session: both see the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import deltars
from tests.enabled.jobs import BROAD, CORE, Job
from tests.support.delta_spark import DeltaSpark

pytestmark = pytest.mark.backends("sqlite")
ALL = [CORE[0], *(pytest.param(job, marks=pytest.mark.soak(only=True)) for job in (*CORE[1:], *BROAD))]


@pytest.fixture
def enabled(spark: SparkSession, catalog: deltars.Catalog) -> Iterator[SparkSession]:
    deltars.enable(spark, catalog)
    yield spark
    deltars.disable(spark)


@pytest.mark.parametrize("job", ALL, ids=lambda job: job.__name__)
def test_a_job_sees_what_it_sees_on_delta_spark(
    job: Job, enabled: SparkSession, delta_spark: DeltaSpark, tmp_path: Path
) -> None:
    for side in ("delta", "ours"):
        (tmp_path / side).mkdir()
    expected = delta_spark.call(job, str(tmp_path / "delta"))
    assert job(enabled, str(tmp_path / "ours")) == expected


@pytest.mark.soak(only=True)
@pytest.mark.parametrize("job", BROAD, ids=lambda job: job.__name__)
def test_a_job_sees_the_same_in_one_transaction(
    job: Job, enabled: SparkSession, catalog: deltars.Catalog, tmp_path: Path
) -> None:
    """The core jobs travel to versions that they have just written, and a transaction makes one version at its end."""
    with deltars.begin(max_tables=50):
        inside = job(enabled, str(tmp_path / "together"))
    for table in catalog.tables():
        catalog.drop_table(table)
    assert job(enabled, str(tmp_path / "alone")) == inside
