"""The scratch directory of one test run, and the process that clears it away.

    pytest ──pipe──▶ keeper        the pipe closes when pytest ends: done, Ctrl-C, killed or crashed
                       │
                       ├─ stops every PostgreSQL server whose data lies in the directory, and every JVM noted there
                       └─ removes the directory

Workers of a parallel run inherit the directory through the environment, so they share what is in it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

VARIABLE = "DELTARS_TEST_RUN"

MEMORY = Path("/dev/shm")
MEMORY_NEEDED_BYTES = 6 << 30


def use_memory() -> None:
    """Put every temporary file of this run into memory, unless TMPDIR names a place or memory is scarce.

    A test waits for the disk some thirty times. No test needs that: processes are killed here, machines are not.
    """
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK):
        return
    if shutil.disk_usage(MEMORY).free >= MEMORY_NEEDED_BYTES:
        os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)


class RunDirectory:
    """Owned by the process that the user started; its workers only look it up."""

    def __init__(self) -> None:
        # Sockets live in here, and a socket's path may have only 107 bytes.
        parent = tempfile.gettempdir() if len(tempfile.gettempdir()) <= 60 else "/tmp"
        self.path = Path(tempfile.mkdtemp(prefix="deltars-test-", dir=parent))
        # A PostgreSQL server that root starts runs as another user, who has to get in.
        self.path.chmod(0o755)
        os.environ[VARIABLE] = str(self.path)
        self._keeper = subprocess.Popen(
            [sys.executable, "-I", __file__, str(self.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for pytest; the keeper still has work to do then
        )

    def close(self) -> None:
        assert self._keeper.stdin is not None
        self._keeper.stdin.close()
        self._keeper.wait(timeout=60)


def run_directory() -> Path:
    return Path(os.environ[VARIABLE])


def _keep(directory: Path) -> None:
    sys.stdin.read()
    for pid_file in directory.glob("*/postmaster.pid"):
        _stop_server(int(pid_file.read_text().splitlines()[0]))
    for pid_file in directory.glob("jvm/*.pid"):
        with suppress(ProcessLookupError):
            os.killpg(int(pid_file.stem), signal.SIGKILL)
    shutil.rmtree(directory, ignore_errors=True)


def _stop_server(pid: int) -> None:
    deadline = time.monotonic() + 20
    try:
        os.kill(pid, signal.SIGQUIT)  # PostgreSQL's immediate shutdown: the data is thrown away anyhow
        while time.monotonic() < deadline:
            os.kill(pid, 0)
            time.sleep(0.02)
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


if __name__ == "__main__":
    _keep(Path(sys.argv[1]))
