"""A standalone cluster of Spark on this machine: a master and two workers, each a JVM of its own, of one core.

To Spark the workers are hosts of their own (127.0.0.2, 127.0.0.3, …): it starts no task twice on one.

Its executors are machines without a database: none of our settings are in their environment, and what would open a
catalog, or belongs to the driver alone, cannot be imported by their Python. What a task needs of it fails the job.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.support.jvm import Jvm

NOT_ON_EXECUTORS = (
    "adbc_driver_manager", "adbc_driver_postgresql", "alembic", "click", "duckdb", "psycopg", "rich", "sqlalchemy",
    "sqlite3", "stamina",
)  # fmt: skip
OF_THE_DRIVER = ("DELTARS_", "PG")
"""How the names of environment variables begin that executors do not have."""

_SITE = f"""
import sys

class NotHere:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {NOT_ON_EXECUTORS!r}:
            raise ModuleNotFoundError(f"executors have no {{name}}", name=name)

sys.meta_path.insert(0, NotHere())
"""


class Cluster:
    def __init__(self, scratch: Path, stack: ExitStack) -> None:
        site = scratch / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text(_SITE)
        self._scratch, self._stack = scratch, stack
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(OF_THE_DRIVER)},
            "PYTHONPATH": os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")])),
            "SPARK_DAEMON_MEMORY": "256m",
        }
        master = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        self.url = self._start("master", master).wait_for(r"Starting Spark master at (spark://\S+)")
        self._workers: list[Jvm] = []
        self.add_workers(2)

    def add_workers(self, count: int) -> None:
        """They start at once."""
        command = ["org.apache.spark.deploy.worker.Worker", "--cores", "1", "--memory", "512m", "--webui-port", "0"]
        command += ["--work-dir", str(self._scratch / "work"), self.url]
        first = len(self._workers)
        self._workers += [
            self._start(f"worker-{number}", [*command, "--host", f"127.0.0.{number + 2}"])
            for number in range(first, first + count)
        ]
        for worker in self._workers[first:]:
            worker.wait_for(r"(Successfully registered with master)")

    def kill_worker(self, number: int) -> None:
        """-9, with its executors, as when its machine is lost."""
        self._workers[number].kill()

    def _start(self, name: str, command: list[str]) -> Jvm:
        return self._stack.enter_context(Jvm(self._scratch, name, command, self._environment))


@contextmanager
def standalone_cluster(scratch: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(scratch, stack)
