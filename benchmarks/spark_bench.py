"""One Spark with delta-spark in it, a catalog on the durable server, and both sides in turns.

Both write the same frames and read the same rows, and ratios are taken round by round. The mirror is inline, and all
tables are on local disk. delta-spark's JARs come from Maven, or from the directory that DELTARS_TEST_DELTA_JARS names.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import deltars
from benchmarks.figures import Figure, compared
from deltars.data import WriteTarget, write_table
from deltars.protocol import AddFile, schema_from_ddl
from deltars.spark.read import frame_cache
from tests.support.delta_spark import DELTA, delta_jars, delta_session
from tests.support.postgres import PostgresServer

CORES = 2
MAX_LINKS = 20_000
FILE_SCHEMA = "id BIGINT, name STRING, value DOUBLE"
PEER = f"delta-spark {DELTA}"


@dataclass(frozen=True)
class SparkBench:
    session: SparkSession
    catalog: deltars.Catalog
    uri: str
    directory: Path

    def source(self, rows: int) -> DataFrame:
        """Eight columns, from files that both sides read alike."""
        place = self.directory / f"source-{rows}"
        if not place.exists():
            self.session.range(0, rows, 1, CORES).selectExpr(
                "id",
                "id % 1000 AS k",
                "rand(1) AS r",
                "concat('name-', id % 100000) AS name",
                "CAST(id % 50 AS INT) AS p",
                "timestamp_micros(1700000000000000 + id * 1000) AS ts",
                "CAST(id / 100 AS DECIMAL(18, 2)) AS d",
                "date_add(DATE'2024-01-01', CAST(id % 365 AS INT)) AS day",
            ).write.parquet(str(place))
        return self.session.read.parquet(str(place))

    def peer(self, name: str) -> str:
        return str(self.directory / "peer" / name)

    def append_peer(self, frame: DataFrame, name: str, *partition_by: str) -> None:
        frame.write.format("delta").mode("append").partitionBy(*partition_by).save(self.peer(name))

    def read_peer(self, location: str) -> DataFrame:
        return self.session.read.format("delta").load(location)

    def forget(self) -> None:
        """Forget what either side remembers of the tables it has read."""
        frame_cache.forget()
        for lists in self.directory.glob("deltars-manifests-*"):
            shutil.rmtree(lists)
        jvm: Any = self.session.sparkContext._jvm
        jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


@contextmanager
def open_spark(server: PostgresServer, directory: Path) -> Iterator[SparkBench]:
    uri = server.create_catalog_uri(server.create_database("bench"))
    with (
        delta_session(delta_jars(), directory, cores=CORES, memory="2g") as session,
        deltars.connect(uri, warehouse=str(directory / "lake"), migrate=True, timeout=600) as catalog,
    ):
        for setting in ("spark.sql.shuffle.partitions", "spark.databricks.delta.snapshotPartitions"):
            session.conf.set(setting, str(CORES))
        yield SparkBench(session, catalog, uri, directory)


# -- both sides, in turns ----------------------------------------------------------------------------------------------


def in_turns(
    ours: Callable[[], object],
    theirs: Callable[[], object],
    rounds: int,
    before: Callable[[], object] = lambda: None,
) -> tuple[list[float], list[float]]:
    """Seconds of each side; the first round warms up, and who begins changes from round to round."""

    def prepare() -> tuple[Callable[[], object], Callable[[], object]]:
        return ours, theirs

    return prepared_in_turns(prepare, rounds, before)


def prepared_in_turns(
    prepare: Callable[[], tuple[Callable[[], object], Callable[[], object]]],
    rounds: int,
    before: Callable[[], object] = lambda: None,
) -> tuple[list[float], list[float]]:
    """As `in_turns`, with other rows each round; preparing them is not measured."""
    taken: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds + 1):
        sides = list(zip(prepare(), taken, strict=True))
        for work, seconds in sides if number % 2 else reversed(sides):
            before()
            begun = time.perf_counter()
            work()
            if number:
                seconds.append(time.perf_counter() - begun)
    return taken


def beside(what: str, ours: Sequence[float], theirs: Sequence[float], faster: float | None = None) -> Figure:
    """Seconds of both sides, beside delta-spark."""
    return compared(what, ours, theirs, peer=PEER, faster=faster)


# -- tables of many files ----------------------------------------------------------------------------------------------


def linked_files(made: deltars.Table, count: int) -> list[AddFile]:
    """Names of a few files, which cost the disk nothing; to every reader they are separate files."""
    adds: list[AddFile] = []
    while len(adds) < count:
        [first] = written_files(made, 1, 1)
        paths = [f"part-{number:05}-{uuid4()}.c000.zstd.parquet" for number in range(min(MAX_LINKS, count - len(adds)))]
        for path in paths:
            os.link(Path(made.location, first.path), Path(made.location, path))
        os.unlink(Path(made.location, first.path))
        adds += [msgspec.structs.replace(first, path=path) for path in paths]
    return adds


def written_files(made: deltars.Table, count: int, rows: int) -> list[AddFile]:
    target = WriteTarget(made.location, schema_from_ddl(FILE_SCHEMA))
    return [write_table(target, [numbered_rows(number * rows, rows)])[0].add for number in range(count)]


def numbered_rows(start: int, count: int) -> pa.RecordBatch:
    ids = range(start, start + count)
    return pa.record_batch({"id": ids, "name": [f"name-{i}" for i in ids], "value": [i / 2 for i in ids]})


def as_columns(adds: Sequence[AddFile]) -> pa.Table:
    return pa.table(
        {
            "path": [add.path for add in adds],
            "partition_values": pa.array(["{}"] * len(adds)),
            "size": pa.array([add.size for add in adds], pa.int64()),
            "modification_time": pa.array([add.modification_time for add in adds], pa.int64()),
            "data_change": [True] * len(adds),
            "stats": [add.stats for add in adds],
        }
    )
