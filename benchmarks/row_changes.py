"""Row-level changes beside delta-spark, in one session, and beside deltalake, without Spark.

Both sides run the same statements on tables of the same rows, in turns. After each part the tables are compared.
"""

from __future__ import annotations

import random
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

import deltars
from benchmarks.figures import OURS, Figure, Side, Target
from benchmarks.lane import Lane
from benchmarks.rig import Rig, in_own_process
from benchmarks.spark_bench import SparkBench, beside, in_turns, prepared_in_turns

FILES = 100
TARGETS: dict[str, dict[str, float]] = {
    "rewritten": {"merge": 2, "delete": 1.5, "update": 1.4, "upsert": 20, "partition": 20},
    "vectors": {"merge": 4, "delete": 3, "update": 2, "upsert": 20, "partition": 20},
}
PEER = "delta-rs"


@dataclass(frozen=True)
class Sizes:
    rows: int = 5_000_000
    rounds: int = 3


def rewritten(rig: Rig, sizes: Sizes) -> list[Figure]:
    return _changes(rig.spark, sizes, "rewritten")


def vectors(rig: Rig, sizes: Sizes) -> list[Figure]:
    return _changes(rig.spark, sizes, "vectors")


def _changes(bench: SparkBench, sizes: Sizes, storage: str) -> list[Figure]:
    mine, peer = _pair(bench, sizes.rows, storage)
    peer_name = f"delta.`{peer}`"
    size, spark = sizes.rows, bench.session
    keys: Iterator[int] = count(1)

    def merge() -> tuple[Callable[[], object], Callable[[], object]]:
        """50 of 5,000 rows, nine of ten of them there already, in a fifth of the key's range."""
        seed = next(keys)
        few, start = size // 100, (seed * size // 7) % (size - size // 5)
        ids = spark.range(few).select((F.lit(start) + F.floor(F.rand(seed) * (size // 5))).cast("long").alias("id"))
        found = ids.distinct().where(f"id % 10 <> {seed % 10}")
        new = spark.range(size * (seed + 1), size * (seed + 1) + few // 10).select("id")
        place = str(bench.directory / f"merge-{storage}-{seed}")
        _filled(found.union(new)).write.parquet(place)
        source = spark.read.parquet(place)

        def ours() -> None:
            mine.merge(source, "t.id = s.id").when_matched_update_all().when_not_matched_insert_all().execute()

        def theirs() -> None:
            source.createOrReplaceTempView("source")
            spark.sql(
                f"MERGE INTO {peer_name} t USING source s ON t.id = s.id"
                " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            ).collect()

        return ours, theirs

    def delete() -> tuple[Callable[[], object], Callable[[], object]]:
        where = f"k % 25 = {next(keys) % 25} AND id < {size}"
        return lambda: mine.delete(where), lambda: spark.sql(f"DELETE FROM {peer_name} WHERE {where}").collect()

    def update() -> tuple[Callable[[], object], Callable[[], object]]:
        where = f"id % 100 = {next(keys) % 100}"
        return (
            lambda: mine.update({"name": "concat(name, '+')"}, where),
            lambda: spark.sql(f"UPDATE {peer_name} SET name = concat(name, '+') WHERE {where}").collect(),
        )

    def upsert() -> tuple[Callable[[], object], Callable[[], object]]:
        start = random.Random(next(keys)).randrange(size - 20)
        rows = _filled(spark.range(start, start + 9).union(spark.range(size * 50 + start, size * 50 + start + 1)))
        source = rows.toArrow()

        def ours() -> None:
            mine.merge(source, "t.id = s.id").when_matched_update_all().when_not_matched_insert_all().execute()

        def theirs() -> None:
            spark.createDataFrame(source).createOrReplaceTempView("source")
            spark.sql(
                f"MERGE INTO {peer_name} t USING source s ON t.id = s.id"
                " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            ).collect()

        return ours, theirs

    lanes = {
        "merge": (f"MERGE of {size // 100:,} rows into {size:,} in {FILES} files", merge),
        "delete": (f"DELETE of {size // 25:,} scattered rows", delete),
        "update": ("UPDATE of 1 % of the rows", update),
        "upsert": ("upsert of 10 rows, from Arrow", upsert),
    }
    figures = []
    for key, (name, prepare) in lanes.items():
        taken = prepared_in_turns(prepare, sizes.rounds)
        _compare(bench, mine, peer)
        figures.append(beside(name, *taken, TARGETS[storage][key]))
    return [*figures, _partition(bench, sizes, storage)]


def _partition(bench: SparkBench, sizes: Sizes, storage: str) -> Figure:
    name = f"partitions_{storage}"
    frame = bench.source(sizes.rows).repartition(2)
    properties = _properties(storage)
    bench.catalog.write(name, frame, partition_by=["p"], properties=properties)
    _peer_table(bench, frame, name, properties, "p")
    mine, peer = bench.catalog.table(name), f"delta.`{bench.peer(name)}`"
    numbers = count()

    def prepare() -> tuple[Callable[[], object], Callable[[], object]]:
        where = f"p = {next(numbers)}"
        return lambda: mine.delete(where), lambda: bench.session.sql(f"DELETE FROM {peer} WHERE {where}").collect()

    taken = prepared_in_turns(prepare, sizes.rounds)
    _compare(bench, mine, bench.peer(name))
    return beside("DELETE of one partition of 50", *taken, TARGETS[storage]["partition"])


def scan(rig: Rig, sizes: Sizes) -> list[Figure]:
    bench = rig.spark
    mine, peer = _pair(bench, sizes.rows, "vectors", name="scanned_vectors")
    where = "id % 5 < 2"
    mine.delete(where)
    bench.session.sql(f"DELETE FROM delta.`{peer}` WHERE {where}").collect()
    _compare(bench, mine, peer)
    ways: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "one column": (
            lambda: mine.read(spark=bench.session).agg(F.sum("r")).collect(),
            lambda: bench.read_peer(peer).agg(F.sum("r")).collect(),
        ),
        "every column": (
            lambda: _hashed(mine.read(spark=bench.session)).collect(),
            lambda: _hashed(bench.read_peer(peer)).collect(),
        ),
    }
    return [beside(f"scan, {name}", *in_turns(*way, sizes.rounds), 1) for name, way in ways.items()]


def _hashed(frame: DataFrame) -> DataFrame:
    return frame.agg(F.sum(F.hash(*frame.columns)))


def arrow(rig: Rig, sizes: Sizes) -> list[Figure]:
    """Both sides in their own processes, in turns, so that each one's memory is its own."""
    figures = []
    for what in ("delete", "merge"):
        found: dict[str, list[Taken]] = {OURS: [], PEER: []}
        for number in range(sizes.rounds):
            sides = [(OURS, _arrow_ours), (PEER, _arrow_theirs)]
            for side, work in sides if number % 2 else reversed(sides):
                found[side].append(in_own_process(work, str(rig.new_directory(what)), what, sizes.rows))
        figures.append(
            Figure(
                f"{what} of 1,000 rows in {sizes.rows:,}",
                "s",
                {
                    side: Side(
                        [run.seconds for run in runs],
                        client_cpu_ms=statistics.median(run.cpu_ms for run in runs),
                        memory_mib=max(run.mib for run in runs),
                    )
                    for side, runs in found.items()
                },
                targets=[Target("faster", 1, PEER), Target("memory", 1, PEER)],
            )
        )
    return figures


def _arrow_rows(size: int) -> pa.Table:
    ids = range(size)
    return pa.table({"id": ids, "name": [f"name-{i % 1000}" for i in ids], "value": [i / 2 for i in ids]})


def _arrow_source(size: int) -> pa.Table:
    step = size // 1_000
    ids = [i * step + (size if i % 10 == 0 else 0) for i in range(1_000)]
    return pa.table({"id": ids, "name": ["new"] * 1_000, "value": [0.5] * 1_000})


class Taken(NamedTuple):
    """What one statement took."""

    seconds: float
    cpu_ms: float
    mib: float
    """The most that the process had meanwhile, beyond what it had before."""


def _taken(run: Callable[[], object]) -> Taken:
    from tests.support.memory import forget_peak, peak_mib

    before, begun, cpu = forget_peak(), time.perf_counter(), time.process_time()
    run()
    seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
    return Taken(seconds, round(cpu * 1000), round(peak_mib() - before))


def _arrow_ours(place: str, what: str, size: int) -> Taken:
    with deltars.connect(f"deltasql://sqlite/{place}/lake.db", warehouse=f"{place}/lake", migrate=True) as catalog:
        for name, rows in (("small", 10), ("t", size)):
            catalog.write(name, _arrow_rows(rows))
            made, source = catalog.table(name), _arrow_source(size)
            if what == "delete":
                taken = _taken(partial(made.delete, f"id % {size // 1_000} = 3"))
            else:
                merge = made.merge(source, "t.id = s.id").when_matched_update_all().when_not_matched_insert_all()
                taken = _taken(merge.execute)
    shutil.rmtree(place)
    return taken


def _arrow_theirs(place: str, what: str, size: int) -> Taken:
    from deltalake import DeltaTable, write_deltalake

    for name, rows in (("small", 10), ("t", size)):
        write_deltalake(f"{place}/{name}", _arrow_rows(rows))
        made, source = DeltaTable(f"{place}/{name}"), _arrow_source(size)
        if what == "delete":
            taken = _taken(partial(made.delete, f"id % {size // 1_000} = 3"))
        else:
            merge = made.merge(source, predicate="t.id = s.id", source_alias="s", target_alias="t")
            taken = _taken(merge.when_matched_update_all().when_not_matched_insert_all().execute)
    shutil.rmtree(place)
    return taken


# -- what the parts share ----------------------------------------------------------------------------------------------


def _properties(storage: str) -> dict[str, str]:
    return {"delta.enableDeletionVectors": str(storage == "vectors").lower()}


def _pair(bench: SparkBench, rows: int, storage: str, name: str | None = None) -> tuple[deltars.Table, str]:
    """The same rows in as many files on both sides, clustered by id."""
    name = name or f"changed_{storage}"
    frame = bench.source(rows).repartitionByRange(FILES, "id")
    properties = _properties(storage)
    bench.catalog.write(name, frame, properties=properties)
    _peer_table(bench, frame, name, properties)
    return bench.catalog.table(name), bench.peer(name)


def _peer_table(bench: SparkBench, frame: DataFrame, name: str, properties: dict[str, str], *partition_by: str) -> None:
    writer = frame.write.format("delta").partitionBy(*partition_by)
    writer.options(**properties).save(bench.peer(name))


def _filled(ids: DataFrame) -> DataFrame:
    """The columns of `SparkBench.source` for these ids, with other values."""
    return ids.selectExpr(
        "id",
        "id % 1000 AS k",
        "0.5D AS r",
        "concat('merged-', id % 100000) AS name",
        "CAST(id % 50 AS INT) AS p",
        "timestamp_micros(1700000000000000 + id * 1000) AS ts",
        "CAST(id / 100 AS DECIMAL(18, 2)) AS d",
        "date_add(DATE'2024-01-01', CAST(id % 365 AS INT)) AS day",
    )


def _compare(bench: SparkBench, mine: deltars.Table, peer: str) -> None:
    sums = [F.count("*"), F.sum("id"), F.sum(F.hash("id", "name", "k"))]
    ours = mine.read(spark=bench.session).agg(*sums).first()
    theirs = bench.read_peer(peer).agg(*sums).first()
    assert ours == theirs, (ours, theirs)


_ROWS = "{sizes.rows:,} rows of eight columns in 100 files, clustered by `id`"
_SAME = "After each line both tables had equal counts and sums."

LANES = [
    Lane(
        "row_changes_arrow",
        "Row-level changes without Spark",
        "From Arrow, on SQLite, published. Each round is a separate process, in which the same statement has changed a "
        "table of ten rows before. Memory is the most that the "
        "process had during the statement, beyond what it had before.",
        arrow,
        {"tiny": Sizes(2_000, 2), "quick": Sizes(200_000, 2), "full": Sizes(1_000_000, 7)},
        missed=(
            "one thread. pyarrow encodes the columns of a row group in turn, where delta-rs uses both cores; "
            "and our files are compressed by zstd, its own by snappy."
        ),
    ),
    Lane(
        "row_changes_rewritten",
        "Row-level changes by rewriting files",
        f"{_ROWS}; files are rewritten. {_SAME}",
        rewritten,
        {"quick": Sizes(500_000, 2), "full": Sizes()},
        is_main=False,
    ),
    Lane(
        "row_changes_vectors",
        "Row-level changes with deletion vectors",
        f"{_ROWS}; `delta.enableDeletionVectors` on both sides. {_SAME}",
        vectors,
        {"quick": Sizes(500_000, 2), "full": Sizes()},
        is_main=False,
    ),
    Lane(
        "row_changes_scan",
        "Scans of deleted rows",
        f"{_ROWS}, of which two fifths were deleted by vectors.",
        scan,
        {"quick": Sizes(500_000, 2), "full": Sizes(rounds=5)},
        is_main=False,
    ),
]
