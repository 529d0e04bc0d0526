"""The data plane on Spark beside delta-spark, in one session: appends, scans, tables of many files, small appends."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import deltars
from benchmarks.figures import Figure
from benchmarks.lane import Lane
from benchmarks.rig import Rig
from benchmarks.spark_bench import (
    FILE_SCHEMA,
    SparkBench,
    as_columns,
    beside,
    in_turns,
    linked_files,
    numbered_rows,
    written_files,
)
from deltars.spark.read.frame_cache import SETTLED_S

SMALL_ROWS = 10


# -- large appends -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RowSizes:
    rows: int = 5_000_000
    rounds: int = 4


def appends(rig: Rig, sizes: RowSizes) -> list[Figure]:
    bench = rig.spark
    frame = bench.source(sizes.rows)
    figures = []
    for name, partition_by, target in (("unpartitioned", (), 1.1), ("over 50 partitions", ("p",), 1.3)):
        table_name = name.partition(" ")[0]

        def ours(name: str = table_name, columns: Sequence[str] = partition_by) -> None:
            bench.catalog.write(name, frame, partition_by=list(columns) or None)

        def theirs(name: str = table_name, columns: Sequence[str] = partition_by) -> None:
            bench.append_peer(frame, name, *columns)

        taken = in_turns(ours, theirs, sizes.rounds)
        written = bench.catalog.table(table_name).read(spark=bench.session).count()
        assert written == bench.read_peer(bench.peer(table_name)).count()
        figures.append(beside(f"append, {name}", *taken, target))
    return figures


# -- scans -------------------------------------------------------------------------------------------------------------


def scans(rig: Rig, sizes: RowSizes) -> list[Figure]:
    bench = rig.spark
    frame = bench.source(sizes.rows)
    bench.catalog.write("scanned", frame, "overwrite")
    bench.append_peer(frame, "scanned")
    mine, peer = bench.catalog.table("scanned"), bench.peer("scanned")
    ways: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "every column": (
            lambda: read_through(mine.read(spark=bench.session)),
            lambda: read_through(bench.read_peer(peer)),
        ),
        "one column": (
            lambda: mine.read(spark=bench.session).agg(F.sum("r")).collect(),
            lambda: bench.read_peer(peer).agg(F.sum("r")).collect(),
        ),
    }
    return [beside(name, *in_turns(ours, theirs, sizes.rounds), 1.2) for name, (ours, theirs) in ways.items()]


def read_through(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


# -- many files --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FileSizes:
    selective: int = 1_000
    many: tuple[int, ...] = (10_000, 100_000)
    rounds: int = 5


def files(rig: Rig, sizes: FileSizes) -> list[Figure]:
    """Both sides read the very same files: delta-spark by what the mirror has published."""
    bench, figures = rig.spark, []
    if count := sizes.selective:
        some = _table_of(bench, "selective", count, rows_a_file=1_000)
        where = f"id BETWEEN {(count // 2) * 1_000} AND {(count // 2 + 10) * 1_000}"

        def select() -> None:
            found = some.read(spark=bench.session, where=where).count()
            assert found == 10_001, found

        def select_peer() -> None:
            assert bench.read_peer(some.location).where(where).count() == 10_001

        figures += _cold_and_warm(bench, f"11 of {count:,} files", select, select_peer, sizes.rounds)
    for count in sizes.many:
        many = _table_of(bench, f"many{count}", count, rows_a_file=1)
        figures += _cold_and_warm(
            bench,
            f"first row of {count:,} files",
            lambda many=many: _assert_one(many.read(spark=bench.session)),  # type: ignore[misc]
            lambda many=many: _assert_one(bench.read_peer(many.location)),  # type: ignore[misc]
            sizes.rounds,
        )
    return figures


def _cold_and_warm(
    bench: SparkBench, name: str, ours: Callable[[], object], theirs: Callable[[], object], rounds: int
) -> list[Figure]:
    cold = in_turns(ours, theirs, max(2, rounds - 2), before=bench.forget)
    return [beside(f"{name}, warm", *in_turns(ours, theirs, rounds), 2), beside(f"{name}, cold", *cold, 2)]


def _assert_one(frame: DataFrame) -> None:
    assert frame.first() is not None


def _table_of(bench: SparkBench, name: str, count: int, *, rows_a_file: int) -> deltars.Table:
    """A table of so many files in one commit, published and with a checkpoint."""
    made = bench.catalog.create_table(name, FILE_SCHEMA, properties={"delta.checkpointInterval": "1"})
    adds = linked_files(made, count) if rows_a_file == 1 else written_files(made, count, rows_a_file)
    deltars.SqlTxnLogWriter(bench.catalog).commit(made.id, 1, as_columns(adds), operation="WRITE")
    bench.catalog._session.publish({made.id: 1})
    checkpoint = Path(made.location, "_delta_log", f"{1:020}.checkpoint.parquet")
    while not checkpoint.exists():
        time.sleep(0.1)
    # As it is with a table that was written some time ago: what changed just now is looked at every time.
    time.sleep(SETTLED_S)
    return bench.catalog.table(name)


# -- small appends -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SmallSizes:
    appends: int = 50
    pairs: int = 20


def small(rig: Rig, sizes: SmallSizes) -> list[Figure]:
    bench, figures = rig.spark, []
    for name, make in (("of Arrow", _from_arrow), ("of a list", _from_list)):
        key = name.rpartition(" ")[2]
        numbers = iter(range(10**9))

        def ours(key: str = key, make: Callable[..., DataFrame] = make) -> None:
            bench.catalog.write(f"small_{key}", make(bench.session, next(numbers)))  # noqa: B023

        def theirs(key: str = key, make: Callable[..., DataFrame] = make) -> None:
            bench.append_peer(make(bench.session, next(numbers)), f"small_{key}")  # noqa: B023

        taken = in_turns(ours, theirs, sizes.appends)
        figures.append(
            beside(f"append of {SMALL_ROWS} rows, a frame {name}", _by_tens(taken[0]), _by_tens(taken[1]), 4)
        )
    numbers = iter(range(10**9))

    def both() -> None:
        with bench.catalog.begin() as tx:
            tx.write("left", _from_arrow(bench.session, next(numbers)))
            tx.write("right", _from_arrow(bench.session, next(numbers)))

    def one_by_one() -> None:
        bench.append_peer(_from_arrow(bench.session, next(numbers)), "left")
        bench.append_peer(_from_arrow(bench.session, next(numbers)), "right")

    mine, peers = in_turns(both, one_by_one, sizes.pairs)
    figures.append(beside("two tables: one transaction, beside two commits", _by_tens(mine), _by_tens(peers)))
    return figures


def _by_tens(seconds: Sequence[float]) -> list[float]:
    step = min(10, len(seconds))
    return [statistics.mean(seconds[at : at + step]) for at in range(0, len(seconds) - step + 1, step)]


def _from_arrow(spark: SparkSession, number: int) -> DataFrame:
    return spark.createDataFrame(pa.Table.from_batches([numbered_rows(number * SMALL_ROWS, SMALL_ROWS)]))


def _from_list(spark: SparkSession, number: int) -> DataFrame:
    rows = [(i, f"name-{i}", i / 2) for i in range(number * SMALL_ROWS, (number + 1) * SMALL_ROWS)]
    return spark.createDataFrame(rows, FILE_SCHEMA)


LANES = [
    Lane(
        "spark_small",
        "Small appends with Spark",
        "{sizes.appends} appends one after the other, seconds each, as means of ten in a row: the checkpoints that "
        "both write every ten versions are in them. A list is an RDD, whose size no plan tells: a job with Python "
        "workers has to run before it is known to be small.",
        small,
        {"quick": SmallSizes(12, 4), "full": SmallSizes()},
    ),
    Lane(
        "spark_files",
        "Tables of many files with Spark",
        "The same files and the same log, with a checkpoint: deltars reads it from the catalog, delta-spark from "
        "`_delta_log`. Both keep in memory what they have read of a version. With that they are measured as warm, "
        "without it, in a session that is warm otherwise, as cold.",
        files,
        {"quick": FileSizes(0, (10_000,), 3), "full": FileSizes()},
        missed="Spark parses our list of files line by line in one thread.",
    ),
    Lane(
        "spark_appends",
        "Appends with Spark",
        "{sizes.rows:,} rows of eight columns, from Parquet files, written as each does by default.",
        appends,
        {"quick": RowSizes(500_000, 2), "full": RowSizes()},
        is_main=False,
    ),
    Lane(
        "spark_scans",
        "Scans with Spark",
        "{sizes.rows:,} rows, each side from the files it wrote itself; opening the table included.",
        scans,
        {"quick": RowSizes(500_000, 3), "full": RowSizes(rounds=5)},
        is_main=False,
    ),
]
