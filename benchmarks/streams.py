"""Streams beside delta-spark, in one session: micro-batches into three tables, and a table as a source.

Every stream reads what is there and ends (`availableNow`). Each side begins with its own checkpoint and empty tables.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from pyspark.sql import DataFrame

import deltars
from benchmarks.figures import OURS, Figure, Side, Target
from benchmarks.lane import Lane
from benchmarks.rig import Rig
from benchmarks.spark_bench import CORES, PEER, SparkBench

TABLES = ("events", "samples", "copies")
NATIVE, FORMAT = OURS, f'{OURS}, format("deltasql")'


@dataclass(frozen=True)
class BatchSizes:
    batches: int = 100
    rows: int = 1_000
    rounds: int = 1


def each_batch(rig: Rig, sizes: BatchSizes) -> list[Figure]:
    bench, numbers = rig.spark, count()
    source = str(bench.directory / "batches")
    bench.session.range(sizes.batches * sizes.rows).selectExpr(
        "id", "concat('name-', id) AS name", "id / 2 AS value"
    ).repartitionByRange(sizes.batches, "id").write.mode("overwrite").parquet(source)

    def run(batches: int, into: Callable[[str], Callable[[DataFrame, int], None]]) -> float:
        name = f"stream_{next(numbers)}"
        stream = bench.session.readStream.schema("id BIGINT, name STRING, value DOUBLE")
        # Files are one a batch; where fewer batches are wanted, each has more of them.
        rows = stream.option("maxFilesPerTrigger", max(1, sizes.batches // batches)).parquet(source)
        return _seconds(bench, rows, name, into(name))

    def ours(name: str) -> Callable[[DataFrame, int], None]:
        def write(tx: deltars.Transaction, rows: DataFrame) -> None:
            for table in TABLES:
                tx.write(f"{name}_{table}", rows)

        return deltars.each_batch(write, app_id=name, catalog=bench.catalog)

    def theirs(name: str) -> Callable[[DataFrame, int], None]:
        def write(rows: DataFrame, batch_id: int) -> None:
            # As its documentation advises: else every write would read the source again.
            rows.persist()
            for table in TABLES:
                options = {"txnAppId": name, "txnVersion": str(batch_id)}
                rows.write.format("delta").mode("append").options(**options).save(bench.peer(f"{name}_{table}"))
            rows.unpersist()

        return write

    for side in (ours, theirs):
        run(2, side)
    taken: dict[str, list[float]] = {OURS: [], PEER: []}
    for number in range(sizes.rounds):
        turns = [(OURS, ours), (PEER, theirs)]
        for name, side in turns if number % 2 else reversed(turns):
            taken[name].append(run(sizes.batches, side))
    what = f"{sizes.batches} micro-batches of {sizes.rows:,} rows into three tables"
    sides = {name: Side(seconds) for name, seconds in taken.items()}
    return [Figure(what, "s", sides, targets=[Target("faster", 3, PEER)])]


@dataclass(frozen=True)
class SourceSizes:
    rows: int = 5_000_000
    rounds: int = 2


def source(rig: Rig, sizes: SourceSizes) -> list[Figure]:
    bench, numbers = rig.spark, count()
    frame = bench.source(sizes.rows).repartition(20)
    bench.catalog.write("streamed", frame, "overwrite")
    bench.append_peer(frame, "streamed")
    read = bench.session.readStream
    found: list[int] = []

    def add_up(rows: DataFrame, _: int) -> None:
        found.append(rows.selectExpr("count(*)", "sum(r)", "max(name)").first()[0])  # type: ignore[index]

    def changed(tx: deltars.Transaction, _: DataFrame) -> None:
        add_up(tx.changes("streamed").read(), 0)

    ways: dict[str, Callable[[], tuple[DataFrame, Callable[[DataFrame, int], None]]]] = {
        NATIVE: lambda: (
            deltars.transactions_stream(bench.session, ["streamed"], catalog=bench.catalog),
            deltars.each_batch(changed, app_id=f"native-{next(numbers)}", catalog=bench.catalog),
        ),
        FORMAT: lambda: (read.format("deltasql").option("catalog", bench.uri).load("streamed"), add_up),
        PEER: lambda: (read.format("delta").load(bench.peer("streamed")), add_up),
    }
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(sizes.rounds + 1):
        for name, open_stream in ways.items():
            found.clear()
            seconds = _seconds(bench, *_named(open_stream(), f"source_{next(numbers)}"))
            assert sum(found) == sizes.rows, (name, found)
            if number:
                taken[name].append(seconds)
    what = f"{sizes.rows:,} rows of a table as a stream"
    return [Figure(what, "s", {name: Side(seconds) for name, seconds in taken.items()})]


def _named(
    stream: tuple[DataFrame, Callable[[DataFrame, int], None]], name: str
) -> tuple[DataFrame, str, Callable[[DataFrame, int], None]]:
    return stream[0], name, stream[1]


def _seconds(bench: SparkBench, stream: DataFrame, name: str, write: Callable[[DataFrame, int], None]) -> float:
    begun = time.perf_counter()
    query = (
        stream.writeStream.foreachBatch(write)
        .option("checkpointLocation", str(bench.directory / "checkpoints" / name))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return time.perf_counter() - begun


LANES = [
    Lane(
        "streams_each_batch",
        "Micro-batches into three tables",
        "`deltars.each_batch`, one transaction a batch, beside three idempotent writes of delta-spark in "
        f"`foreachBatch`. Spark has {CORES} cores.",
        each_batch,
        {"quick": BatchSizes(10, 1_000), "full": BatchSizes()},
    ),
    Lane(
        "streams_source",
        "A table as the source of a stream",
        "deltars is `transactions_stream` with `tx.changes`, which reads by Spark's own Parquet reader. In "
        '`format("deltasql")` Python processes read the rows. Three columns of eight are added up.',
        source,
        {"quick": SourceSizes(500_000, 1), "full": SourceSizes()},
        is_main=False,
    ),
]
