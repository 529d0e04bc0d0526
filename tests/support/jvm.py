"""Spark's own programs (a Connect server, a master, a worker), each a JVM of its own, from the pyspark package.

The pid of each is in the run's directory for as long as it runs, so the run's keeper ends what a killed test left.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

import pyspark

from tests.support.run_directory import run_directory

PATIENCE_S = 120

CLASS_ARCHIVE = Path(__file__).parents[2] / "build" / "spark-classes.jsa"
"""Archive of Spark's classes, made by `tests/support/class_archive.py`. Without it, a run takes longer."""

SHORT_LIVED = " ".join(
    [
        # A JVM of a few dozen jobs is done before its best compiler pays.
        "-XX:TieredStopAtLevel=1",
        # Without that compiler only 48 MB are reserved for compiled code. A session of many tests fills them, and code
        # is then thrown away and compiled again.
        "-XX:ReservedCodeCacheSize=240m",
        "-XX:+UseSerialGC",
    ]
)
"""Options of every Java program that a test starts."""


def with_class_archive(options: str) -> str:
    """Return options with the archive, if there is one. It fits the class path of Spark's own programs."""
    # The JVM ignores an archive that does not fit. Without -Xlog it would say so on standard output.
    return f"{options} -XX:SharedArchiveFile='{CLASS_ARCHIVE}' -Xlog:disable" if CLASS_ARCHIVE.exists() else options


class Jvm:
    """A program of Spark's that runs; what it says goes to a file."""

    def __init__(self, scratch: Path, name: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        home = Path(pyspark.__file__).parent
        self.said = scratch / f"{name}.log"
        with self.said.open("wb") as log:
            self._process = subprocess.Popen(
                [str(home / "bin" / "spark-class"), *command],
                cwd=scratch,
                env={
                    **environment,
                    "SPARK_HOME": str(home),
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    "SPARK_DAEMON_JAVA_OPTS": SHORT_LIVED,
                    # Or Spark looks for a python3 on the PATH, which is not the one with our packages.
                    "PYSPARK_PYTHON": sys.executable,
                },
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        pids = run_directory() / "jvm"
        pids.mkdir(exist_ok=True)
        self._pid_file = pids / f"{self._process.pid}.pid"
        self._pid_file.touch()

    def __enter__(self) -> Jvm:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def wait_for(self, said: str) -> str:
        """The first group of the pattern, as soon as the program has said it."""
        deadline = time.monotonic() + PATIENCE_S
        while not (found := re.search(said, text := self.said.read_text(errors="replace"))):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self.said.name} never said {said!r}: {text[-3000:]}")
            time.sleep(0.1)
        return found[1]

    def kill(self) -> None:
        """-9, with all that it started."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._pid_file.unlink(missing_ok=True)
