"""The same program on delta-spark and, with the import changed, on deltars: rows, schemas, history and errors agree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import deltars
import deltars.tables
from tests.support.delta_spark import DeltaSpark
from tests.tables import programs
from tests.tables.mixed_programs import MIXED
from tests.tables.programs import BROAD, CORE, Program


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("program", CORE, ids=lambda program: program.__name__)
def test_program_sees_the_same(
    program: Program, spark: SparkSession, migrated_uri: str, delta_spark: DeltaSpark, tmp_path: Path
) -> None:
    _compare(program, spark, migrated_uri, delta_spark, tmp_path)


@pytest.mark.soak(only=True)
@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("program", BROAD, ids=lambda program: program.__name__)
def test_every_program_sees_the_same(
    program: Program, spark: SparkSession, migrated_uri: str, delta_spark: DeltaSpark, tmp_path: Path
) -> None:
    _compare(program, spark, migrated_uri, delta_spark, tmp_path)


@pytest.mark.soak(only=True)
@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("program", MIXED, ids=lambda program: program.__name__)
def test_program_of_verbs_statements_and_tables_sees_the_same(
    program: Program, spark: SparkSession, migrated_uri: str, delta_spark: DeltaSpark, tmp_path: Path
) -> None:
    _compare(program, spark, migrated_uri, delta_spark, tmp_path, enables=True)


def _compare(
    program: Program,
    spark: SparkSession,
    uri: str,
    delta_spark: DeltaSpark,
    tmp_path: Path,
    *,
    enables: bool = False,
) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    for place in (theirs, ours):
        place.mkdir()
    # Tables by name alone are stored there.
    deltars.connect(uri, warehouse=tmp_path / "warehouse").close()
    expected = delta_spark.call(programs.run_on_delta, program.__module__, program.__name__, str(theirs))
    if enables:
        deltars.enable(spark, uri)
    else:
        spark.conf.set("spark.deltars.catalog", uri)
    try:
        seen = programs.run(spark, deltars.tables, program, str(ours))
    finally:
        if enables:
            deltars.disable(spark)
        else:
            spark.conf.unset("spark.deltars.catalog")
    assert _plain(seen, ours) == _plain(expected, theirs)


def _plain(seen: Any, root: Path) -> Any:
    return json.loads(json.dumps(seen).replace(str(root), ""))
