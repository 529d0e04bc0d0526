"""A program of its own: the driver of row-level changes on a cluster, in client mode.

    python -m tests.spark.changes <master> <directory> <rounds>

It makes the table `rows` of $DELTARS_CATALOG, and changes it in <rounds> transactions whose tasks wait, half-way, for
somebody to have lost a worker. At the end it stages one change more and waits to be killed, if `last` says so.

    <directory>/<number>/task-<partition>-<attempt>    is at work
    <directory>/<number>/go                            and may go on
    <directory>/staged                                 the last change is staged, and will not be committed
    <directory>/committed                              the last change is committed, and not published
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import deltars
from deltars.spark.change import source
from deltars.transaction import read_size
from tests.spark.driver import PATIENCE_S, ROWS, TASKS, session_on, waiting

KINDS = ("merge", "update", "delete")


def main(master: str, directory: Path, rounds: int, last: str) -> None:
    # However small a change is, tasks carry it out, and its source stays with them.
    read_size.SMALL_BYTES = -1
    source.MAX_HELD_ROWS = 0
    spark = session_on(master, directory, {"spark.cores.max": "2", "spark.sql.shuffle.partitions": "2"})
    with deltars.connect() as catalog:
        for vectors in ("true", "false"):
            rows = spark.range(0, ROWS, 1, TASKS).selectExpr("id", "0L AS v").distinct().repartition(TASKS)
            catalog.write(f"rows_{vectors}", rows, properties={"delta.enableDeletionVectors": vectors})
        for number in range(rounds):
            signs = directory / str(number)
            signs.mkdir()
            with catalog.begin(isolation="serializable", timeout=600) as tx:
                change(tx, spark, number, str(signs))
        if last:
            end(catalog, spark, directory, last)
    spark.stop()


def table_of(number: int) -> str:
    return f"rows_{('true', 'false')[number // len(KINDS) % 2]}"


def change(tx: deltars.Transaction, spark: SparkSession, number: int, signs: str) -> None:
    """Change the rows of one residue: each round its own, as `expected` says."""
    table, kind = table_of(number), KINDS[number % len(KINDS)]
    if kind == "merge":
        new = _of_round(spark, number).mapInArrow(waiting(signs), "id BIGINT, v BIGINT")
        merge = tx.merge(table, new, "t.id = s.id", spark=spark).when_matched_update({"v": "t.v + s.v"})
        merge.when_not_matched_insert_all().execute()
        return
    held = F.udf(_held(signs), "bigint")(F.col("id"))
    if kind == "update":
        tx.update(table, {"v": F.col("v") + held - F.col("id") + 1}, f"id % 2 = {number % 2}", spark=spark)
    else:
        tx.delete(table, held % 10 == number % 10, spark=spark)


def _of_round(spark: SparkSession, number: int) -> DataFrame:
    first = ROWS // 2 + number
    return spark.range(first, first + ROWS, 1, TASKS).selectExpr("id", "1L AS v")


def expected(rounds: int) -> dict[str, dict[int, int]]:
    """The rows of each table after so many rounds, by a model."""
    tables = {f"rows_{vectors}": dict.fromkeys(range(ROWS), 0) for vectors in ("true", "false")}
    for number in range(rounds):
        rows, kind = tables[table_of(number)], KINDS[number % len(KINDS)]
        if kind == "merge":
            first = ROWS // 2 + number
            rows |= {key: rows.get(key, 0) + 1 for key in range(first, first + ROWS)}
        elif kind == "update":
            rows |= {key: v + 1 for key, v in rows.items() if key % 2 == number % 2}
        else:
            for key in [key for key in rows if key % 10 == number % 10]:
                del rows[key]
    return tables


def _held(signs: str) -> Callable[[int], int]:
    """A value as it is; each task says that it is at work, and waits until it may go on."""

    def work(value: int) -> int:
        context = TaskContext.get()
        assert context is not None
        sign, go = Path(signs, f"task-{context.partitionId()}-{context.attemptNumber()}"), Path(signs, "go")
        if not sign.exists():
            sign.touch()
        deadline = time.monotonic() + PATIENCE_S
        while not go.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        return value

    return work


def end(catalog: deltars.Catalog, spark: SparkSession, directory: Path, last: str) -> None:
    """Stage a change of both tables, and be killed before or after its commit."""

    def wait_to_be_killed(*_: Any, **__: Any) -> None:
        (directory / last).touch()
        time.sleep(PATIENCE_S)
        os._exit(3)

    publisher: Any = catalog._session.publisher
    publisher.publish_all = wait_to_be_killed
    with catalog.begin(isolation="serializable", timeout=600) as tx:
        for vectors in ("true", "false"):
            tx.update(f"rows_{vectors}", {"v": "v + 1000 * length('x')"}, spark=spark)
        if last == "staged":
            wait_to_be_killed()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), "".join(sys.argv[4:]))
