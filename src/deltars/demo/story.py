"""The steps of the demo. Each one acts on real tables, checks the result, and stops the demo if it is wrong.

1  two Spark DataFrames, two tables, one transaction            version 0 of both
2  a process is killed in the middle of the next one            nothing new
3  two writers race; the loser tries again                      versions 1 and 2
4  a job runs, and runs again by mistake                        version 3, once
5  time travel                                                  version 0, version 3
6  both tables as of the transaction that won the race          version 1 of both
7  deltalake, Polars and DuckDB read what was published         version 3
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from pyspark.sql import DataFrame, SparkSession

import deltars
from deltars.demo.batches import features_of, labels_of
from deltars.demo.narrator import Narrator
from deltars.demo.readers import HOW_TO_GET_ONE, installed_readers
from deltars.demo.setting import OURS, TABLES, open_catalog
from deltars.demo.victim import WRITTEN
from deltars.errors import DeltarsError

FIRST, RACED, NIGHTLY = range(200), range(100), range(100)


@dataclass(frozen=True, slots=True)
class DemoResult:
    """What the demo leaves behind for further exploration."""

    catalog: str
    warehouse: str
    version: int
    rows: int
    first: UUID
    winner: UUID
    readers: tuple[str, ...]


def play(catalog_uri: str, spark: SparkSession, tell: Narrator) -> DemoResult:
    catalog = open_catalog(catalog_uri)
    try:
        story = Story(catalog, spark, tell)
        tell.say(f"The catalog is {catalog.uri}; the tables are in {catalog.warehouse}.")
        first = story.two_tables_one_transaction()
        story.a_process_is_killed()
        winner = story.two_writers_race()
        story.a_job_runs_twice()
        story.time_travel()
        story.a_cut(winner)
        readers = story.others_read()
        return DemoResult(catalog.uri, str(catalog.warehouse), 3, story.rows, first, winner, readers)
    finally:
        catalog.close()


class Story:
    def __init__(self, catalog: deltars.Catalog, spark: SparkSession, tell: Narrator) -> None:
        self._catalog = catalog
        self._spark = spark
        self._tell = tell
        self.rows = 0

    def two_tables_one_transaction(self) -> UUID:
        self._tell.chapter("1. Two Spark DataFrames, two tables, one transaction")
        features_df, labels_df = self._frame(features_of(FIRST, 0)), self._frame(labels_of(FIRST, 0))
        self._tell.code(
            'with catalog.begin() as tx:\n    tx.write("features", features_df)\n    tx.write("labels", labels_df)'
        )
        with self._catalog.begin(committer="demo") as tx:
            tx.write("features", features_df, properties=OURS)
            tx.write("labels", labels_df, properties=OURS)
        self.rows = len(FIRST)
        self._tell.say(f"Transaction {tx.id} created both tables at once. A failure would have created neither:")
        self._look(version=0)
        return tx.id

    def a_process_is_killed(self) -> None:
        self._tell.chapter("2. A process is killed in the middle")
        # Only one process at a time can open a DuckDB catalog.
        self._catalog.close()
        environment = {**os.environ, "DELTARS_CATALOG": self._catalog._session.uri.with_secrets()}
        with subprocess.Popen(
            [sys.executable, "-m", "deltars.demo.victim"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        ) as victim:
            assert victim.stdout is not None
            said = victim.stdout.readline().strip()
            victim.send_signal(signal.SIGKILL)
            _, errors = victim.communicate()
        _check(said == WRITTEN, f"the process ended before it could be killed: {errors.strip()[-500:]}")
        _check(victim.returncode == -signal.SIGKILL, f"the process ended with {victim.returncode}, not by the signal")
        left = self._catalog.table("features").verify(orphans=True, min_age=timedelta(0)).findings
        self._tell.say(
            f"Process {victim.pid} had written 500 features and no labels when it was killed (kill -9). Its"
            f" {len(left)} data {'file is' if len(left) == 1 else 'files are'} in storage, but in no version:"
        )
        _check(bool(left), "the files of the killed process are missing")
        self._look(version=0)

    def two_writers_race(self) -> UUID:
        self._tell.chapter("3. Two writers race for the same tables")
        together = threading.Barrier(2)

        def race(writer: str) -> deltars.Transaction | deltars.VersionConflict:
            tx = self._catalog.begin(committer=writer)
            self._write_both(tx, 1)
            together.wait(timeout=60)
            try:
                tx.commit()
            except deltars.VersionConflict as lost:
                return lost
            return tx

        with ThreadPoolExecutor(2) as pool:
            ends = list(pool.map(race, ("ann", "ben")))
        winners = [end for end in ends if isinstance(end, deltars.Transaction)]
        losers = [end for end in ends if isinstance(end, deltars.VersionConflict)]
        _check(len(winners) == len(losers) == 1, f"exactly one writer should have won: {ends}")
        self._tell.say(f"Both began at version 0. One committed; the other got VersionConflict: {losers[0].message}.")
        self._tell.code("catalog.run(write_both)  # retries on VersionConflict")
        self._catalog.run(lambda tx: self._write_both(tx, 2))
        self.rows += 2 * len(RACED)
        self._look(version=2)
        return winners[0].id

    def a_job_runs_twice(self) -> None:
        self._tell.chapter("4. A job runs, and runs again by mistake")
        self._tell.code('tx.write("features", features_df, app_id="nightly", app_version=1)')
        made = []
        for _ in range(2):
            with self._catalog.begin(committer="nightly") as tx:
                self._write_both(tx, 3, app_id="nightly", app_version=1)
            made.append(dict(tx.result.versions))
        self.rows += len(NIGHTLY)
        self._tell.say(f"The first run committed {made[0]}. The second one committed {made[1] or 'nothing'}:")
        _check(made == [dict.fromkeys(TABLES, 3), {}], f"the second run changed something: {made}")
        self._look(version=3)

    def time_travel(self) -> None:
        self._tell.chapter("5. Time travel")
        self._tell.code('catalog.table("features").read(version=0)')
        table = self._catalog.table("features")
        rows = []
        for version in (0, 3):
            found = table.read(spark=self._spark, version=version)
            [(count, spend)] = found.selectExpr("count(*)", "round(avg(spend_30d), 2)").collect()
            rows.append((version, table.snapshot(version).timestamp.isoformat(), count, spend))
        self._tell.table(("version", "committed at", "rows", "average spend"), rows)
        _check([row[2] for row in rows] == [len(FIRST), self.rows], f"wrong number of rows: {rows}")

    def a_cut(self, winner: UUID) -> None:
        self._tell.chapter("6. Both tables as of one transaction")
        self._tell.code(f'cut = catalog.snapshot(as_of="{winner}")')
        cut = self._catalog.snapshot(winner)
        features, labels = (cut.read(name, spark=self._spark) for name in TABLES)
        joined = features.join(labels, ["customer", "batch"]).where("churned").groupBy("batch")
        counts = sorted(tuple(row) for row in joined.count().collect())
        self._tell.say(f"The tables right after the winner of the race: {cut.versions}. Churned customers by batch:")
        self._tell.table(("batch", "churned customers"), counts)
        _check(cut.versions == dict.fromkeys(TABLES, 1), f"wrong versions: {cut.versions}")
        _check([batch for batch, _ in counts] == [0, 1], f"wrong batches: {counts}")

    def others_read(self) -> tuple[str, ...]:
        self._tell.chapter("7. Other programs read what was published")
        options = self._catalog._session.settings.storage_options
        rows: list[tuple[object, ...]] = []
        for name in TABLES:
            location = self._catalog.table(name).location
            for reader in installed_readers(location):
                version, count = reader.read(location, options)
                is_right = count == self.rows and version in (None, 3)
                _check(is_right, f"{reader.name} sees version {version} and {count} rows of {name}")
                rows.append((reader.name, name, "" if version is None else version, count))
        if not rows:
            self._tell.say(HOW_TO_GET_ONE)
            return ()
        self._tell.say("They do not know deltars: they read the _delta_log in the table's directory.")
        self._tell.table(("reader", "table", "version", "rows"), rows)
        return tuple(dict.fromkeys(str(row[0]) for row in rows))

    def _write_both(self, tx: deltars.Transaction, batch: int, **options: Any) -> None:
        tx.write("features", features_of(RACED, batch), **options)
        tx.write("labels", labels_of(RACED, batch), **options)

    def _frame(self, rows: Any) -> DataFrame:
        return self._spark.createDataFrame(rows)

    def _look(self, *, version: int) -> None:
        """Print the state of both tables, and check it."""
        details = [self._catalog.table(name).detail() for name in TABLES]
        rows = [(detail.name, detail.version, detail.num_records, detail.num_files) for detail in details]
        self._tell.table(("table", "version", "rows", "files"), rows)
        for detail in details:
            _check((detail.version, detail.num_records) == (version, self.rows), f"{detail.name}: {detail}")


def _check(is_right: bool, problem: str) -> None:
    if not is_right:
        raise DeltarsError(f"the demo found a wrong result: {problem}")
