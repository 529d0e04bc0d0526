"""Which Python runs Spark's tasks, if nothing says so and the `python3` of the PATH is another one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys

from pyspark.sql import SparkSession

import deltars

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.memory", "512m").getOrCreate()
deltars.write("t", spark.range(9))


def which(batches):
    import pyarrow as pa

    for _ in batches:
        yield pa.record_batch({"python": [sys.executable]})


print(deltars.read("t").coalesce(1).mapInArrow(which, "python string").first().python)
"""


@pytest.mark.soak(only=True)  # each case starts a Java of its own
@pytest.mark.parametrize("chosen", [False, True], ids=["nothing chosen", "chosen by the user"])
def test_tasks_of_a_local_session_use_the_python_of_the_program(tmp_path: Path, chosen: bool) -> None:
    other = tmp_path / "bin" / "python3"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\necho 'the wrong python3' >&2\nexit 7\n")
    other.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")}
    environment |= {"PATH": f"{other.parent}{os.pathsep}{os.environ['PATH']}", "SPARK_LOCAL_IP": "127.0.0.1"}
    environment |= {"PYSPARK_PYTHON": str(other)} if chosen else {}
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    if chosen:
        assert "the wrong python3" in ended.stderr
    else:
        assert ended.stdout.splitlines() == [sys.executable], ended.stderr[-2000:]
