"""Java, Spark and its sessions. What needs a Java of its own, or none, runs in a process of its own."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import deltars
from deltars.doctor import find_java, require_java
from tests.first_mistakes.conftest import ROWS, program

WITHOUT_PYSPARK = "import sys; sys.modules['pyspark'] = None\n"

STOPPED = """
import deltars
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
frame = spark.createDataFrame([(1,)], "id int")
spark.stop()
for job in (lambda: deltars.write("features", frame), lambda: deltars.read("mine", spark=spark)):
    try:
        job()
    except deltars.ConfigError as error:
        print(error)
"""


def _java(directory: Path, version: str) -> Path:
    """A Java home whose `java` is a program that names its version, as any does."""
    program = directory / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-01' >&2\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return directory


@pytest.mark.parametrize(
    ("version", "state"), [("1.8.0_402", "failed"), ("11.0.22", "failed"), ("17.0.15", "ok"), ("25", "ok")]
)
def test_the_java_that_spark_would_start_is_judged_by_its_version(tmp_path: Path, version: str, state: str) -> None:
    home = _java(tmp_path / "jdk", version)
    for environment in ({"JAVA_HOME": str(home), "PATH": "/usr/bin"}, {"PATH": f"{home}/bin"}):
        found = find_java(environment)
        assert found.state == state
        assert str(home) in found.found
        assert (found.fix is None) == (state == "ok")


def test_no_java_and_a_wrong_one_are_named_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        deltars.ConfigError, match=r"Spark needs Java, and no working Java was found \(the PATH\).*apt install"
    ):
        require_java()
    monkeypatch.setenv("JAVA_HOME", str(_java(tmp_path / "old", "1.8.0_402")))
    with pytest.raises(deltars.ConfigError, match=r"Java 17 or newer, but JAVA_HOME=.*old is Java 8.*JAVA_HOME"):
        require_java()


def test_without_pyspark_the_extra_is_named_and_everything_else_works(tmp_path: Path) -> None:
    text = (
        WITHOUT_PYSPARK + "import deltars, pyarrow\n"
        "deltars.write('features', pyarrow.table({'id': [1]}))\n"
        "print(deltars.connect().table('features').to_arrow().num_rows)\n"
        "deltars.connect().table('features').read()\n"
    )
    result = program(text, tmp_path)
    assert result.stdout == "1\n"
    assert "which is not installed. pip install 'deltars[spark]'" in result.stderr
    query = "import deltars; deltars.connect().sql('SELECT id FROM features')"
    assert "or catalog.sql_to_arrow(statement)" in program(WITHOUT_PYSPARK + query, tmp_path).stderr
    for command, code in (("['tables']", 0), ("['show', 'features']", 0), ("['demo']", 2)):
        result = program(f"{WITHOUT_PYSPARK}from deltars.cli import main; main({command})", tmp_path)
        assert result.returncode == code, result.stderr
    assert "pip install 'deltars[spark]'" in result.stderr


@pytest.mark.xdist_group("spark")  # one JVM at a time
def test_a_stopped_session_is_called_that(tmp_path: Path) -> None:
    with deltars.connect(f"deltasql://sqlite/{tmp_path}/.deltars/lake.db") as catalog:
        catalog.write("mine", ROWS)
        result = program(STOPPED, tmp_path)
        assert result.stdout.count("the Spark session was stopped") == 2
        assert result.stdout.count("Create a new one with SparkSession.builder.getOrCreate()") == 2
        assert [table.name for table in catalog.tables()] == ["mine"]


def test_a_frame_of_another_session_is_as_good(spark: SparkSession, lake: deltars.Catalog) -> None:
    other = spark.newSession()
    lake.write("sessions", spark.createDataFrame([(1,)], "id int"))
    lake.write("sessions", other.createDataFrame([(2,)], "id int"))
    assert sorted(row.id for row in lake.table("sessions").read(spark=other).collect()) == [1, 2]
    assert [
        row.id for row in lake.read("sessions", version=1, where="id > 1", columns=["id"], spark=other).collect()
    ] == [2]
    assert lake.read(lake["sessions"], version=0).count() == 1


def test_what_is_no_session_and_columns_that_are_there_twice_are_named(
    spark: SparkSession, lake: deltars.Catalog
) -> None:
    with pytest.raises(deltars.ValidationError, match="spark must be a SparkSession, got 'plain'"):
        lake.table("plain").read(spark="plain")  # type: ignore[arg-type]
    twice = spark.createDataFrame([(1, 2)], "id int, other int").toDF("id", "id")
    with pytest.raises(deltars.ValidationError, match="duplicate column id "):
        lake.write("new", twice)
    with pytest.raises(deltars.ValidationError, match="the frame has no columns"):
        lake.write("plain", spark.range(3).select(), "overwrite")
    assert lake.table("plain").count() == 2
    assert not lake.table_exists("new")
    assert os.listdir(Path(str(lake.warehouse))).count("new") == 0


def test_streaming_frame_is_refused_with_the_recipe_for_its_batches(lake: deltars.Catalog, spark: SparkSession) -> None:
    stream = spark.readStream.format("rate").load()
    with pytest.raises(deltars.ValidationError, match=r"foreachBatch.*each_batch"):
        lake.write("rates", stream)
    assert not lake.table_exists("rates")
