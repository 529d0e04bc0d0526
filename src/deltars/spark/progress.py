"""Progress bar of a long Spark write, in a terminal or a notebook.

DELTARS_PROGRESS=1 turns it on, DELTARS_PROGRESS=0 off. It is not shown if Spark shows its own bar.

rich is imported only when a bar may be shown: executors import this module and may not have rich.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from pyspark import SparkContext  # missing from the pure Spark Connect client
    from rich.console import Console

Tasks: TypeAlias = tuple[int, int]
"""Number of completed tasks and of all tasks."""

PATIENCE_S = 3.0
"""Delay before the bar appears."""

_EVERY_S = 0.5


@contextmanager
def shown(spark: SparkSession, what: str, console: Console | None = None) -> Iterator[None]:
    """Show a progress bar while the block runs."""
    from rich.console import Console

    console = console or Console(stderr=True)
    if not _is_enabled(spark, console):
        yield
        return
    done = Event()
    with _reported_tasks(spark) if _is_remote(spark) else _polled_tasks(spark.sparkContext) as tasks:
        bar = Thread(target=_show, args=(tasks, what, console, done), daemon=True)
        bar.start()
        try:
            yield
        finally:
            done.set()
            bar.join()


def _is_enabled(spark: SparkSession, console: Console) -> bool:
    setting = os.environ.get("DELTARS_PROGRESS")
    if setting is not None:
        return setting == "1"
    return (console.is_interactive or console.is_jupyter) and not _has_spark_bar(spark)


def _has_spark_bar(spark: SparkSession) -> bool:
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
def _polled_tasks(context: SparkContext) -> Iterator[Callable[[], Tasks]]:
    """Yield a function that counts the tasks of the active stages."""

    def tasks() -> Tasks:
        tracker = context.statusTracker()
        stages = [found for number in tracker.getActiveStageIds() if (found := tracker.getStageInfo(number))]
        return sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)

    yield tasks


@contextmanager
def _reported_tasks(spark: SparkSession) -> Iterator[Callable[[], Tasks]]:
    """Yield a function that returns the last counts that the Spark Connect server reported, over all stages."""
    last: Tasks = (0, 0)

    def hear(stages: Iterable[Any] | None, **_: Any) -> None:
        nonlocal last
        known = list(stages or ())
        last = sum(stage.num_completed_tasks for stage in known), sum(stage.num_tasks for stage in known)

    handler: Any = hear  # pyspark's type is a class, but any function works
    spark.registerProgressHandler(handler)
    try:
        yield lambda: last
    finally:
        spark.removeProgressHandler(handler)
