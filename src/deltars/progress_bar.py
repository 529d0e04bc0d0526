"""Progress bar of a long write, in a terminal or a notebook.

DELTARS_PROGRESS=1 turns it on, DELTARS_PROGRESS=0 off. A process shows one bar at a time.

rich is imported only when a bar is shown: executors import this module and may not have rich.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, RLock, Thread
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from rich.console import Console

Amounts: TypeAlias = tuple[int, int | None]
"""How much is done, and how much there is; None if that is not known."""

PATIENCE_S = 3.0
"""Delay before the bar appears."""

THE_SCREEN = RLock()
"""Held by the bar that is shown. Two bars at once would overwrite each other."""

_EVERY_S = 0.5


def is_watched() -> bool:
    """Return whether a bar would be seen: the environment says so, else a terminal or a notebook is there."""
    setting = os.environ.get("DELTARS_PROGRESS")
    if setting is not None:
        return setting == "1"
    return "ipykernel" in sys.modules or (sys.stderr is not None and sys.stderr.isatty())


@contextmanager
def shown(what: str, amounts: Callable[[], Amounts], unit: str, console: Console | None = None) -> Iterator[None]:
    """Show a bar while the block runs, if it runs for long."""
    done = Event()
    bar = Thread(target=_show, args=(what, amounts, unit, console, done), daemon=True)
    try:
        bar.start()
    except RuntimeError:
        # No thread can be started: the write goes on without a bar.
        yield
        return
    try:
        yield
    finally:
        done.set()
        bar.join()


def _show(what: str, amounts: Callable[[], Amounts], unit: str, console: Console | None, done: Event) -> None:
    if done.wait(PATIENCE_S) or not THE_SCREEN.acquire(blocking=False):
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn(unit))
        # Without force_terminal, rich draws nothing in a console that is no terminal, such as an editor's.
        screen = console or Console(stderr=True, force_terminal=os.environ.get("DELTARS_PROGRESS") == "1" or None)
        with Progress(*columns, TimeElapsedColumn(), console=screen, transient=True) as progress:
            bar = progress.add_task(f"writing {what}", total=None)
            while not done.wait(_EVERY_S):
                completed, total = amounts()
                progress.update(bar, completed=completed, total=total or None)
    finally:
        THE_SCREEN.release()
