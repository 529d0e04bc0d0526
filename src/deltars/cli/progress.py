"""Progress display of long commands, on stderr, and only if stderr is a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from deltars import progress_bar

if TYPE_CHECKING:
    from deltars.importer import Progress as Step


@contextmanager
def bar() -> Iterator[Callable[[str, Step], None]]:
    """Show a progress bar for each table, counting versions."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("versions,"))
    # One version may have a million actions.
    actions = TextColumn("{task.fields[actions]:,} actions")
    with _shown(*columns, actions, TimeElapsedColumn()) as shown:
        tasks = {}

        def report(name: str, step: Step) -> None:
            if name not in tasks:
                tasks[name] = shown.add_task(name, actions=0)
            shown.update(tasks[name], completed=step.version + 1, total=step.latest + 1, actions=step.actions)

        yield report


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show a spinner and the elapsed time, for work that cannot be counted."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with _shown(*columns) as shown:
        shown.add_task(what, total=None)
        yield


@contextmanager
def counting(what: str, unit: str) -> Iterator[Callable[[int], None]]:
    """Show a spinner, the number of things done so far, and the elapsed time."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TextColumn(f"{{task.completed:,.0f}} {unit},"))
    with _shown(*columns, TimeElapsedColumn()) as shown:
        task = shown.add_task(what, total=None)
        yield lambda done: shown.update(task, completed=done)


@contextmanager
def stepping(total: int) -> Iterator[Callable[[str, bool], None]]:
    """Show a bar of so many steps. Call it with what a step does when it begins, and again when it is done."""
    columns = (SpinnerColumn(), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with _shown(*columns, TimeElapsedColumn()) as shown:
        task = shown.add_task("", total=total)
        yield lambda what, is_done: shown.update(task, description=what, advance=1 if is_done else 0)


@contextmanager
def _shown(*columns: ProgressColumn) -> Iterator[Progress]:
    console = Console(stderr=True)
    # Disabled without a terminal, because an empty line would remain.
    with (
        progress_bar.THE_SCREEN,
        Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress,
    ):
        yield progress
