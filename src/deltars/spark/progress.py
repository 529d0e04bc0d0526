"""How far Spark is with a long write, for somebody who watches: in a terminal or a notebook.

DELTARS_PROGRESS=1 or 0 says yes or no. Where Spark shows its own bar, and with Spark Connect, there is none of ours.

rich is loaded where a bar may be shown: executors import this module and need not have it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from pyspark import SparkContext  # which the client of Spark Connect, installed by itself, does not have
    from rich.console import Console

PATIENCE_S = 3.0
"""What is done sooner needs no bar."""

_EVERY_S = 0.5


@contextmanager
def shown(spark: SparkSession, what: str, console: Console | None = None) -> Iterator[None]:
    from rich.console import Console

    console = console or Console(stderr=True)
    if not _is_watched(spark, console):
        yield
        return
    done = Event()
    bar = Thread(target=_show, args=(spark.sparkContext, what, console, done), daemon=True)
    bar.start()
    try:
        yield
    finally:
        done.set()
        bar.join()


def _is_watched(spark: SparkSession, console: Console) -> bool:
    if not hasattr(spark, "_jsparkSession"):
        return False
    asked = os.environ.get("DELTARS_PROGRESS")
    if asked is not None:
        return asked == "1"
    has_own = spark.sparkContext.getConf().get("spark.ui.showConsoleProgress", "false") == "true"
    return (console.is_interactive or console.is_jupyter) and not has_own


def _show(context: SparkContext, what: str, console: Console, done: Event) -> None:
    if done.wait(PATIENCE_S):
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("tasks"))
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        bar = progress.add_task(f"writing {what}", total=None)
        while not done.wait(_EVERY_S):
            completed, total = _tasks(context)
            progress.update(bar, completed=completed, total=total or None)


def _tasks(context: SparkContext) -> tuple[int, int]:
    """Of the stages that run now."""
    tracker = context.statusTracker()
    stages = [found for number in tracker.getActiveStageIds() if (found := tracker.getStageInfo(number))]
    return sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)
