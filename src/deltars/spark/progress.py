"""Progress bar of a long Spark write, which counts tasks. It is not shown if Spark shows its own bar."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql import SparkSession

from deltars import progress_bar

if TYPE_CHECKING:
    from pyspark import SparkContext  # missing from the pure Spark Connect client
    from rich.console import Console

Tasks: TypeAlias = tuple[int, int]
"""Number of completed tasks and of all tasks."""


@contextmanager
def shown(spark: SparkSession, what: str, console: Console | None = None) -> Iterator[None]:
    """Show a progress bar while the block runs."""
    if not _is_enabled(spark, console):
        yield
        return
    with (
        _reported_tasks(spark) if _is_remote(spark) else _polled_tasks(spark.sparkContext) as tasks,
        progress_bar.shown(what, tasks, "tasks", console),
    ):
        yield


def _is_enabled(spark: SparkSession, console: Console | None) -> bool:
    if "DELTARS_PROGRESS" in os.environ or console is None:
        is_watched = progress_bar.is_watched()
    else:
        is_watched = console.is_interactive or console.is_jupyter
    return is_watched and ("DELTARS_PROGRESS" in os.environ or not _has_spark_bar(spark))


def _has_spark_bar(spark: SparkSession) -> bool:
    if _is_remote(spark):
        return os.environ.get("SPARK_CONNECT_PROGRESS_BAR_ENABLED") == "1"
    return spark.sparkContext.getConf().get("spark.ui.showConsoleProgress", "false") == "true"


def _is_remote(spark: SparkSession) -> bool:
    return not hasattr(spark, "_jsparkSession")


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
