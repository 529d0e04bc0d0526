"""One suite of behaviours, run by Spark here, by a Connect server, and on a simulated S3 without S3A's classes.

On a standalone cluster `test_cluster` runs it, and with S3A's classes `test_s3a`. In a short run only the object store
is left to it: of Spark here and of Connect, other modules show the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import deltars
from tests.spark.behaviours import CORE, REST, Behaviour
from tests.support.s3 import new_bucket, options_for, s3_server
from tests.support.spark import connected

BEHAVIOURS = [
    *(pytest.param(behaviour, id=behaviour.__name__, marks=pytest.mark.soak) for behaviour in CORE),
    *(pytest.param(behaviour, id=behaviour.__name__, marks=pytest.mark.soak(only=True)) for behaviour in REST),
]

pytestmark = pytest.mark.backends("sqlite")


@pytest.mark.soak(only=True)
@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_behaviour_of_a_local_session(behaviour: Behaviour, catalog: deltars.Catalog, spark: SparkSession) -> None:
    behaviour(spark, catalog)


@pytest.mark.soak(only=True)
@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_behaviour_of_spark_connect(behaviour: Behaviour, catalog: deltars.Catalog, connect_url: str) -> None:
    with connected(connect_url) as remote:
        behaviour(remote, catalog)


@pytest.fixture(scope="module")
def options() -> Iterator[dict[str, str]]:
    with s3_server() as endpoint:
        yield options_for(endpoint)


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_behaviour_on_an_object_store(
    behaviour: Behaviour, options: dict[str, str], spark: SparkSession, tmp_path: Path
) -> None:
    warehouse = f"s3://{new_bucket(options['aws_endpoint'])}/lake"
    uri = f"deltasql://sqlite/{tmp_path}/lake.db"
    with deltars.connect(uri, warehouse=warehouse, storage_options=options) as catalog:
        behaviour(spark, catalog)
