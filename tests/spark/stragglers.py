"""A program of its own: the driver of writes on a cluster whose slow task Spark starts a second time.

    python -m tests.spark.stragglers <master> <directory> <rounds>

Each round writes to the tables `flat` and `partitioned` of $DELTARS_CATALOG. One task waits half-way for its own copy
to have handed over every row; then both are at their end at once, and one of them is told that it was in vain.

    <directory>/<table>-<round>/attempt-<attempt>    of that task has handed over all its rows
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext

import deltars
from tests.spark.driver import PATIENCE_S, ROWS, TABLES, TASKS, session_on

SLOW = 2
"""The task that is started twice."""


def main(master: str, directory: Path, rounds: int) -> None:
    speculative = {
        "spark.speculation": "true",
        "spark.speculation.interval": "50ms",
        "spark.speculation.quantile": "0.5",
        # However slow the machine made the tasks that are done.
        "spark.speculation.multiplier": "0.1",
    }
    spark = session_on(master, directory, speculative)
    try:
        with deltars.connect() as catalog:
            for number in range(rounds):
                for name, partition_by in TABLES.items():
                    signs = directory / f"{name}-{number}"
                    signs.mkdir()
                    rows = spark.range(ROWS * number, ROWS * (number + 1), 1, TASKS).selectExpr("id", "id % 4 as p")
                    # Now the one is first at its end, now the other.
                    work = straggling(str(signs), lead_s=0.05 * (number % 4))
                    catalog.write(name, rows.mapInArrow(work, "id BIGINT, p BIGINT"), partition_by=partition_by)
    finally:
        spark.stop()


def straggling(signs: str, lead_s: float) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Rows as they are; half-way, the first attempt of one task waits for the second."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        attempt = context.attemptNumber()
        for batch in batches:
            half = batch.num_rows // 2
            yield batch.slice(0, half)
            if context.partitionId() == SLOW and attempt == 0:
                deadline = time.monotonic() + PATIENCE_S
                while not Path(signs, "attempt-1").exists() and time.monotonic() < deadline:
                    time.sleep(0.01)
            yield batch.slice(half)
        if context.partitionId() == SLOW:
            Path(signs, f"attempt-{attempt}").touch()
            time.sleep(lead_s if attempt else 0)

    return work


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
