"""A job that makes more files than it may is cancelled as soon as that is seen, not when all of them are there.

    the thread that runs the job ──tagged──> tasks ──each says, when it ends, how many files it has made
    a thread beside it ──looks at the sum──> one too many: the jobs of the tag are cancelled

Spark Connect has no such sum: there every task stops at the limit by itself, and the rest is counted at the end.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any
from uuid import uuid4

from pyspark.sql import SparkSession

from deltars.data.writer import too_many_files
from deltars.errors import DeltarsError

_EVERY_S = 0.1


@contextmanager
def limited(spark: SparkSession, max_files: int | None, count: Callable[[], int]) -> Iterator[None]:
    """Run a job of at most so many files; `count` says how many its tasks have finished."""
    if max_files is None or not hasattr(spark, "_jsparkSession"):
        yield
        return
    context, tag, over, most = spark.sparkContext, f"deltars-{uuid4()}", Event(), max_files
    seen: list[int] = []

    def watch() -> None:
        while not over.wait(_EVERY_S):
            if (found := count()) > most:
                seen.append(found)
                context.cancelJobsWithTag(tag)
                return

    watcher = Thread(target=watch, name="deltars-files", daemon=True)
    context.addJobTag(tag)
    watcher.start()
    try:
        yield
    except DeltarsError:
        raise
    except Exception as error:
        if seen:
            raise too_many_files(seen[0], most) from error
        raise
    finally:
        over.set()
        watcher.join()
        context.removeJobTag(tag)
    # The last tasks may have ended between two looks. Spark makes one file even if there is no row.
    if (found := count()) > max(most, 1):
        raise too_many_files(found, most)


def counter(spark: SparkSession, max_files: int | None) -> Any:
    """A number that tasks can add to, where there is a limit and a way to know the sum; else None."""
    return spark.sparkContext.accumulator(0) if max_files is not None and hasattr(spark, "_jsparkSession") else None


def finished_files(directory: str) -> int:
    """How many files Spark's committer has of tasks that have ended, and in the directory itself."""
    places = [directory]
    attempt = os.path.join(directory, "_temporary", "0")
    try:
        places += [entry.path for entry in os.scandir(attempt) if entry.name.startswith("task_")]
        return sum(_num_files(place) for place in places)
    except FileNotFoundError:
        # Moved meanwhile: the next look tells.
        return _num_files(directory)


def _num_files(directory: str) -> int:
    return sum(name.endswith(".parquet") and name[0] not in "._" for name in os.listdir(directory))
