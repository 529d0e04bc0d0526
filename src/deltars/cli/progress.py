"""What a person sees while something takes its time: on the terminal's error stream, and nothing where that is none."""

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

if TYPE_CHECKING:
    from deltars.importer import Progress as Step


@contextmanager
def bar() -> Iterator[Callable[[str, Step], None]]:
    """A bar for each table whose versions are counted."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("versions,"))
    # One version may have a million of them.
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
    """For what cannot be counted: that it goes on, and since when."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with _shown(*columns) as shown:
        shown.add_task(what, total=None)
        yield


def _shown(*columns: ProgressColumn) -> Progress:
    console = Console(stderr=True)
    # Disabled, or an empty line would remain where it is no terminal.
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
