"""How far Spark is with a long write, for somebody who watches: in a terminal or a notebook.

DELTARS_PROGRESS=1 or 0 says yes or no. Where Spark shows its own bar there is none of ours.

rich is loaded where a bar may be shown: executors import this module and need not have it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from pyspark import SparkContext  # which the client of Spark Connect, installed by itself, does not have
    from rich.console import Console

Tasks: TypeAlias = tuple[int, int]
"""How many are done, and of how many."""

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
    with _heard(spark) if _is_remote(spark) else _asked(spark.sparkContext) as tasks:
        bar = Thread(target=_show, args=(tasks, what, console, done), daemon=True)
        bar.start()
        try:
            yield
        finally:
            done.set()
            bar.join()


def _is_watched(spark: SparkSession, console: Console) -> bool:
    asked = os.environ.get("DELTARS_PROGRESS")
    if asked is not None:
        return asked == "1"
    return (console.is_interactive or console.is_jupyter) and not _has_own(spark)


def _has_own(spark: SparkSession) -> bool:
    if _is_remote(spark):
        return os.environ.get("SPARK_CONNECT_PROGRESS_BAR_ENABLED") == "1"
    return spark.sparkContext.getConf().get("spark.ui.showConsoleProgress", "false") == "true"


def _is_remote(spark: SparkSession) -> bool:
    return not hasattr(spark, "_jsparkSession")


def _show(tasks: Callable[[], Tasks], what: str, console: Console, done: Event) -> None:
    if done.wait(PATIENCE_S):
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("tasks"))
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        bar = progress.add_task(f"writing {what}", total=None)
        while not done.wait(_EVERY_S):
            completed, total = tasks()
            progress.update(bar, completed=completed, total=total or None)


@contextmanager
def _asked(context: SparkContext) -> Iterator[Callable[[], Tasks]]:
    """The stages that run now."""

    def tasks() -> Tasks:
        tracker = context.statusTracker()
        stages = [found for number in tracker.getActiveStageIds() if (found := tracker.getStageInfo(number))]
        return sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)

    yield tasks


@contextmanager
def _heard(spark: SparkSession) -> Iterator[Callable[[], Tasks]]:
    """What a Spark Connect server said last, of all stages."""
    last: Tasks = (0, 0)

    def hear(stages: Iterable[Any] | None, **_: Any) -> None:
        nonlocal last
        known = list(stages or ())
        last = sum(stage.num_completed_tasks for stage in known), sum(stage.num_tasks for stage in known)

    handler: Any = hear  # pyspark's types ask for a class of its own, and any function will do
    spark.registerProgressHandler(handler)
    try:
        yield lambda: last
    finally:
        spark.removeProgressHandler(handler)
