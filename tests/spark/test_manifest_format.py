"""The list of files is in the format of Spark's own streaming sink: of the Spark that is installed, whichever it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from deltars.spark.read.files import DataFile, count_input_files
from deltars.spark.read.manifest import write_manifest


def list_of_the_sink(spark: SparkSession, place: Path) -> list[str]:
    """What Spark's sink says of the files it has written."""
    (place / "source").mkdir()
    for number in range(3):
        pq.write_table(pa.table({"id": [number]}), place / "source" / f"{number}.parquet")
    rows = spark.readStream.schema("id bigint").parquet(str(place / "source"))
    sink = rows.writeStream.option("checkpointLocation", str(place / "checkpoint")).trigger(availableNow=True)
    sink.start(str(place / "sink"), format="parquet").awaitTermination()
    return (place / "sink" / "_spark_metadata" / "0").read_text().splitlines()


def shape(line: str) -> dict[str, type]:
    document: dict[str, Any] = json.loads(line)
    return {name: type(value) for name, value in document.items()}


def test_manifest_is_line_by_line_what_the_sink_of_this_spark_writes(spark: SparkSession, tmp_path: Path) -> None:
    version, *theirs = list_of_the_sink(spark, tmp_path)
    files = []
    for at, line in enumerate(theirs):
        told = json.loads(line)
        location = told["path"].replace("file:///", "file:/")
        files.append(DataFile(f"{at}.parquet", location, told["size"], told["modificationTime"], (), None))
    (tmp_path / "lists").mkdir()
    directory = Path(write_manifest(files, tmp_path / "lists").removeprefix("file:"))
    ours = (directory / "_spark_metadata" / "0").read_text().splitlines()
    assert files
    assert ours[0] == version
    assert [list(shape(line).items()) for line in ours[1:]] == [list(shape(line).items()) for line in theirs]
    same = ("size", "modificationTime", "isDir", "action")
    for mine, their in zip(map(json.loads, ours[1:]), map(json.loads, theirs), strict=True):
        assert [mine[name] for name in same] == [their[name] for name in same]
    found = spark.read.schema("id bigint").option("recursiveFileLookup", "true").parquet(f"file:{directory}")
    assert sorted(row.id for row in found.collect()) == [0, 1, 2]


@pytest.mark.parametrize("count", [1, 33])
def test_manifest_of_any_length_is_read_whole_and_no_directory_is_listed(
    count: int, spark: SparkSession, tmp_path: Path
) -> None:
    files = []
    for number in range(count):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table({"id": [number]}), path)
        files.append(DataFile(path.name, f"file:{path}", path.stat().st_size, 1_700_000_000_000, (), None))
    pq.write_table(pa.table({"id": [-1]}), tmp_path / "of-nobody.parquet")
    (tmp_path / "lists").mkdir()
    directory = write_manifest(files, tmp_path / "lists")
    found = spark.read.schema("id bigint").option("recursiveFileLookup", "true").parquet(directory)
    assert count_input_files(found) == count
    assert sorted(row.id for row in found.collect()) == list(range(count))
