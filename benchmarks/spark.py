"""The data plane on Spark against delta-spark, in one session.

    python -m benchmarks.spark [--quick] [--only appends,scans,files,small]

Both write the same frames and read the same rows, in turns, and ratios are taken round by round. The catalog is on
PostgreSQL with default durability, its mirror inline; all tables are on local disk. delta-spark's JARs come from
Maven, or from the directory that DELTARS_TEST_DELTA_JARS names.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import deltars
from benchmarks.report import table, write_section
from benchmarks.rig import durable_server
from deltars.data import WriteTarget, write_table
from deltars.protocol import AddFile, schema_from_ddl
from deltars.spark.read import frame_cache
from deltars.spark.read.frame_cache import SETTLED_S
from tests.support.delta_spark import DELTA, delta_jars, delta_session
from tests.support.run_directory import RunDirectory

CORES = 2
MAX_LINKS = 20_000
SMALL_ROWS = 10


@dataclass(frozen=True)
class Sizes:
    rows: int = 5_000_000
    append_rounds: int = 4
    scan_rounds: int = 5
    selective_files: int = 1_000
    many_files: tuple[int, ...] = (10_000, 100_000)
    small_appends: int = 50
    pairs: int = 20
    arrow_rounds: int = 7


QUICK = Sizes(200_000, 2, 2, 100, (1_000,), 12, 4, 3)


@dataclass(frozen=True)
class Bench:
    spark: SparkSession
    catalog: deltars.Catalog
    directory: Path
    sizes: Sizes

    def source(self) -> DataFrame:
        """Eight columns, from files that both sides read alike."""
        place = self.directory / "source"
        if not place.exists():
            self.spark.range(0, self.sizes.rows, 1, CORES).selectExpr(
                "id",
                "id % 1000 AS k",
                "rand(1) AS r",
                "concat('name-', id % 100000) AS name",
                "CAST(id % 50 AS INT) AS p",
                "timestamp_micros(1700000000000000 + id * 1000) AS ts",
                "CAST(id / 100 AS DECIMAL(18, 2)) AS d",
                "date_add(DATE'2024-01-01', CAST(id % 365 AS INT)) AS day",
            ).write.parquet(str(place))
        return self.spark.read.parquet(str(place))

    def peer(self, name: str) -> str:
        return str(self.directory / "peer" / name)

    def append_peer(self, frame: DataFrame, name: str, *partition_by: str) -> None:
        frame.write.format("delta").mode("append").partitionBy(*partition_by).save(self.peer(name))

    def read_peer(self, location: str) -> DataFrame:
        return self.spark.read.format("delta").load(location)

    def forget(self) -> None:
        """What either side remembers of the tables it has read."""
        frame_cache.forget()
        for lists in self.directory.glob("deltars-manifests-*"):
            shutil.rmtree(lists)
        jvm: Any = self.spark.sparkContext._jvm
        jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


def run_parts(parts: Mapping[str, Callable[[Bench], tuple[str, str]]], description: str) -> None:
    """Run the parts that the command line names, and write their sections."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing is written to the docs")
    parser.add_argument("--only", default=",".join(parts))
    arguments = parser.parse_args()
    sizes = QUICK if arguments.quick else Sizes()
    run = RunDirectory()
    try:
        with tempfile.TemporaryDirectory() as place:
            directory = Path(place)
            tempfile.tempdir = place  # for the lists of files, which are forgotten between rounds
            server = durable_server()
            uri = server.create_catalog_uri(server.create_database("bench"))
            with (
                delta_session(delta_jars(), directory, cores=CORES, memory="2g") as spark,
                deltars.connect(uri, warehouse=str(directory / "lake"), migrate=True, timeout=600) as catalog,
            ):
                for setting in ("spark.sql.shuffle.partitions", "spark.databricks.delta.snapshotPartitions"):
                    spark.conf.set(setting, str(CORES))
                bench = Bench(spark, catalog, directory, sizes)
                for name in arguments.only.split(","):
                    title, body = parts[name](bench)
                    print(f"\n{title}\n\n{body}", flush=True)
                    if not arguments.quick:
                        write_section(title, "make bench-spark", body)
    finally:
        run.close()


# -- large appends -----------------------------------------------------------------------------------------------------


def appends(bench: Bench) -> tuple[str, str]:
    frame = bench.source()
    rows: list[list[object]] = []
    for name, partition_by, target in (("unpartitioned", (), "1.1"), ("over 50 partitions", ("p",), "1.3")):
        table_name = name.partition(" ")[0]

        def ours(name: str = table_name, columns: Sequence[str] = partition_by) -> None:
            bench.catalog.write(name, frame, partition_by=list(columns) or None)

        def theirs(name: str = table_name, columns: Sequence[str] = partition_by) -> None:
            bench.append_peer(frame, name, *columns)

        taken = in_turns(ours, theirs, bench.sizes.append_rounds)
        written = bench.catalog.table(table_name).read(spark=bench.spark).count()
        assert written == bench.read_peer(bench.peer(table_name)).count()
        rows.append(line(f"append, {name}", *taken, target))
    note = f"{bench.sizes.rows:,} rows of eight columns, from Parquet files, written as each does by default."
    return f"Appends with Spark, beside delta-spark {DELTA}", f"{note}\n\n{table(HEADER, rows)}"


# -- scans -------------------------------------------------------------------------------------------------------------


def scans(bench: Bench) -> tuple[str, str]:
    frame = bench.source()
    bench.catalog.write("scanned", frame, "overwrite")
    bench.append_peer(frame, "scanned")
    mine, peer = bench.catalog.table("scanned"), bench.peer("scanned")
    ways: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "every column": (
            lambda: read_through(mine.read(spark=bench.spark)),
            lambda: read_through(bench.read_peer(peer)),
        ),
        "one column": (
            lambda: mine.read(spark=bench.spark).agg(F.sum("r")).collect(),
            lambda: bench.read_peer(peer).agg(F.sum("r")).collect(),
        ),
    }
    rows = [
        line(name, *in_turns(ours, theirs, bench.sizes.scan_rounds), "1.2") for name, (ours, theirs) in ways.items()
    ]
    note = f"{bench.sizes.rows:,} rows, each side from the files it wrote itself; opening the table included."
    return f"Scans with Spark, beside delta-spark {DELTA}", f"{note}\n\n{table(HEADER, rows)}"


def read_through(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


# -- many files --------------------------------------------------------------------------------------------------------


def files(bench: Bench) -> tuple[str, str]:
    """Both sides read the very same files: delta-spark by what the mirror has published."""
    rows: list[list[object]] = []
    count = bench.sizes.selective_files
    some = _table_of(bench, "selective", count, rows_a_file=1_000)
    where = f"id BETWEEN {(count // 2) * 1_000} AND {(count // 2 + 10) * 1_000}"

    def select() -> None:
        found = some.read(spark=bench.spark, where=where).count()
        assert found == 10_001, found

    def select_peer() -> None:
        assert bench.read_peer(some.location).where(where).count() == 10_001

    rows += _cold_and_warm(bench, f"11 of {count:,} files", select, select_peer)
    for count in bench.sizes.many_files:
        many = _table_of(bench, f"many{count}", count, rows_a_file=1)
        rows += _cold_and_warm(
            bench,
            f"first row of {count:,} files",
            lambda many=many: _assert_one(many.read(spark=bench.spark)),  # type: ignore[misc]
            lambda many=many: _assert_one(bench.read_peer(many.location)),  # type: ignore[misc]
        )
    note = (
        "The same files and the same log, with a checkpoint: deltars reads it from the catalog, delta-spark from "
        "`_delta_log`. Both keep in memory what they have read of a version. With that they are measured as warm, "
        "without it, in a session that is warm otherwise, as cold. "
        f"{bench.sizes.scan_rounds} rounds warm, {_cold_rounds(bench.sizes)} cold. Of a cold read of 100,000 files "
        "most, by estimate two thirds, is Spark's, which parses our list of files line by line in one thread: that is "
        "what stands between it and a higher figure."
    )
    return f"Tables of many files with Spark, beside delta-spark {DELTA}", f"{note}\n\n{table(HEADER, rows)}"


def _cold_and_warm(
    bench: Bench, name: str, ours: Callable[[], object], theirs: Callable[[], object]
) -> list[list[object]]:
    cold = in_turns(ours, theirs, _cold_rounds(bench.sizes), before=bench.forget)
    return [
        line(f"{name}, warm", *in_turns(ours, theirs, bench.sizes.scan_rounds), "2"),
        line(f"{name}, cold", *cold, "2"),
    ]


def _cold_rounds(sizes: Sizes) -> int:
    return max(2, sizes.scan_rounds - 2)


def _assert_one(frame: DataFrame) -> None:
    assert frame.first() is not None


def _table_of(bench: Bench, name: str, count: int, *, rows_a_file: int) -> deltars.Table:
    """A table of so many files in one commit, published and with a checkpoint."""
    made = bench.catalog.create_table(
        name, "id BIGINT, name STRING, value DOUBLE", properties={"delta.checkpointInterval": "1"}
    )
    adds = _linked(made, count) if rows_a_file == 1 else _written(made, count, rows_a_file)
    columns = pa.table(
        {
            "path": [add.path for add in adds],
            "partition_values": pa.array(["{}"] * count),
            "size": pa.array([add.size for add in adds], pa.int64()),
            "modification_time": pa.array([add.modification_time for add in adds], pa.int64()),
            "data_change": [True] * count,
            "stats": [add.stats for add in adds],
        }
    )
    deltars.SqlTxnLogWriter(bench.catalog).commit(made.id, 1, columns, operation="WRITE")
    bench.catalog._session.publish({made.id: 1})
    checkpoint = Path(made.location, "_delta_log", f"{1:020}.checkpoint.parquet")
    while not checkpoint.exists():
        time.sleep(0.1)
    # As it is with a table that was written some time ago: what changed just now is looked at every time.
    time.sleep(SETTLED_S)
    return bench.catalog.table(name)


def _written(made: deltars.Table, count: int, rows: int) -> list[AddFile]:
    target = WriteTarget(made.location, schema_from_ddl("id BIGINT, name STRING, value DOUBLE"))
    return [write_table(target, [_rows(number * rows, rows)])[0].add for number in range(count)]


def _linked(made: deltars.Table, count: int) -> list[AddFile]:
    """Names of a few files, which cost the disk nothing; to everybody who reads they are files of their own."""
    adds: list[AddFile] = []
    while len(adds) < count:
        [first] = _written(made, 1, 1)
        paths = [f"part-{number:05}-{uuid4()}.c000.zstd.parquet" for number in range(min(MAX_LINKS, count - len(adds)))]
        for path in paths:
            os.link(Path(made.location, first.path), Path(made.location, path))
        os.unlink(Path(made.location, first.path))
        adds += [msgspec.structs.replace(first, path=path) for path in paths]
    return adds


def _rows(start: int, count: int) -> pa.RecordBatch:
    ids = range(start, start + count)
    return pa.record_batch({"id": ids, "name": [f"name-{i}" for i in ids], "value": [i / 2 for i in ids]})


# -- small appends -----------------------------------------------------------------------------------------------------


def small(bench: Bench) -> tuple[str, str]:
    rows: list[list[object]] = []
    for name, make in (("of Arrow", _from_arrow), ("of a list", _from_list)):
        key = name.rpartition(" ")[2]
        numbers = iter(range(10**9))

        def ours(key: str = key, make: Callable[..., DataFrame] = make) -> None:
            bench.catalog.write(f"small_{key}", make(bench.spark, next(numbers)))  # noqa: B023

        def theirs(key: str = key, make: Callable[..., DataFrame] = make) -> None:
            bench.append_peer(make(bench.spark, next(numbers)), f"small_{key}")  # noqa: B023

        taken = in_turns(ours, theirs, bench.sizes.small_appends)
        rows.append(line(f"append of {SMALL_ROWS} rows, a frame {name}", _by_tens(taken[0]), _by_tens(taken[1]), "3"))
    numbers = iter(range(10**9))

    def both() -> None:
        with bench.catalog.begin() as tx:
            tx.write("left", _from_arrow(bench.spark, next(numbers)))
            tx.write("right", _from_arrow(bench.spark, next(numbers)))

    def one_by_one() -> None:
        bench.append_peer(_from_arrow(bench.spark, next(numbers)), "left")
        bench.append_peer(_from_arrow(bench.spark, next(numbers)), "right")

    taken = in_turns(both, one_by_one, bench.sizes.pairs)
    rows.append(line("two tables: one transaction, beside two commits", _by_tens(taken[0]), _by_tens(taken[1]), ""))
    note = (
        f"{bench.sizes.small_appends} appends one after the other, seconds each, as means of ten in a row: the "
        "checkpoints that both write every ten versions are in them."
        " A list is an RDD, whose size no plan tells: a job with Python workers has to run before it is known to be "
        "small, and that job stands between its figure and that of Arrow."
    )
    return f"Small appends with Spark, beside delta-spark {DELTA}", f"{note}\n\n{table(HEADER, rows)}"


def _by_tens(seconds: Sequence[float]) -> list[float]:
    step = min(10, len(seconds))
    return [statistics.mean(seconds[at : at + step]) for at in range(0, len(seconds) - step + 1, step)]


def _from_arrow(spark: SparkSession, number: int) -> DataFrame:
    return spark.createDataFrame(pa.Table.from_batches([_rows(number * SMALL_ROWS, SMALL_ROWS)]))


def _from_list(spark: SparkSession, number: int) -> DataFrame:
    rows = [(i, f"name-{i}", i / 2) for i in range(number * SMALL_ROWS, (number + 1) * SMALL_ROWS)]
    return spark.createDataFrame(rows, "id BIGINT, name STRING, value DOUBLE")


# -- what the parts share ----------------------------------------------------------------------------------------------

HEADER = ["what", "deltars, s", "delta-spark, s", "times as fast: median (spread)", "target"]


def in_turns(
    ours: Callable[[], object],
    theirs: Callable[[], object],
    rounds: int,
    before: Callable[[], object] = lambda: None,
) -> tuple[list[float], list[float]]:
    """Seconds of each side; the first round warms up, and who begins changes from round to round."""
    taken: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds + 1):
        sides = list(zip((ours, theirs), taken, strict=True))
        for work, seconds in sides if number % 2 else reversed(sides):
            before()
            begun = time.perf_counter()
            work()
            if number:
                seconds.append(time.perf_counter() - begun)
    return taken


def line(name: str, ours: Sequence[float], theirs: Sequence[float], target: str) -> list[object]:
    times = [peer / mine for mine, peer in zip(ours, theirs, strict=True)]
    return [
        name,
        f"{statistics.median(ours):.2f}",
        f"{statistics.median(theirs):.2f}",
        f"{statistics.median(times):.1f} ({min(times):.1f} to {max(times):.1f})",
        target,
    ]


PARTS: dict[str, Callable[[Bench], tuple[str, str]]] = {
    "appends": appends,
    "scans": scans,
    "files": files,
    "small": small,
}

if __name__ == "__main__":
    run_parts(PARTS, __doc__ or "")
