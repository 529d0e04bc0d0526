"""Limit on the number of files that a Spark job creates. A job beyond the limit is cancelled while it runs.

    the thread that runs the job ──tagged──> tasks ──each reports its number of files when it ends
    a second thread ──checks the sum──> beyond the limit: cancels the jobs of the tag

Spark Connect has no such sum. There each task stops at the limit by itself, and the sum is checked at the end.
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
def limit_files(spark: SparkSession, max_files: int | None, count: Callable[[], int]) -> Iterator[None]:
    """Cancel the jobs of the block if they create more than `max_files` files.

    `count` returns the number of files of finished tasks.
    """
    if max_files is None or not hasattr(spark, "_jsparkSession"):
        yield
        return
    context, tag, over = spark.sparkContext, f"deltars-{uuid4()}", Event()
    most = max(max_files, 1)  # Spark creates one file even if there are no rows, and even if there is no room for it
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
            raise too_many_files(seen[0], max_files) from error
        raise
    finally:
        over.set()
        watcher.join()
        context.removeJobTag(tag)
    # The last tasks may have ended after the last check.
    if (found := count()) > most:
        raise too_many_files(found, max_files)


def file_counter(spark: SparkSession, max_files: int | None) -> Any:
    """Return an accumulator for tasks to add to, or None without a limit or with Spark Connect."""
    return spark.sparkContext.accumulator(0) if max_files is not None and hasattr(spark, "_jsparkSession") else None


def finished_files(directory: str) -> int:
    """Count the files of finished tasks in the directory of Spark's committer, and in the directory itself."""
    places = [directory]
    attempt = os.path.join(directory, "_temporary", "0")
    try:
        places += [entry.path for entry in os.scandir(attempt) if entry.name.startswith("task_")]
        return sum(_num_files(place) for place in places)
    except FileNotFoundError:
        # The committer moved the files meanwhile: the next check counts them.
        return _num_files(directory)


def _num_files(directory: str) -> int:
    return sum(name.endswith(".parquet") and name[0] not in "._" for name in os.listdir(directory))
