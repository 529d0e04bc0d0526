"""One hostile call, and the rule that it has to keep.

a call with one hostile argument ──▶ an error of ours, and nothing is changed
                                 └─▶ success: outside the warehouse nothing is changed
                                 └─▶ anything else is a Finding
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import deltars
from tests.hostile import surface
from tests.hostile.surface import Target
from tests.hostile.world import World, difference

SLOW_S = 20.0
"""A call that takes longer is a way to stop a service."""


@dataclass(frozen=True)
class Finding:
    """A call that broke the rule."""

    target: str
    payload: str
    problem: str
    where: str = ""

    def __str__(self) -> str:
        return f"{self.target} with {self.payload}: {self.problem} {self.where}"


def attack(
    world: World, target: Target, payload: Any, call: Callable[[World, Target, Any], Any] = surface.call
) -> Finding | None:
    """Make one hostile call. Return what is wrong with its outcome, or None."""
    before = world.state()
    shown = _shown(payload)
    begun = time.perf_counter()
    problem, where = None, ""
    is_refused = False
    try:
        call(world, target, payload)
    except deltars.DeltarsError as error:
        is_refused = True
        problem = _bad_text(error)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | SystemExit) or not _is_documented(error):
            problem = f"{type(error).__name__}: {error!s:.300}"
            where = _where(error)
        is_refused = True
    took = time.perf_counter() - begun
    after = world.state()
    if problem is None and took > SLOW_S:
        problem = f"took {took:.1f} s"
    if problem is None and is_refused and after != before:
        problem = f"refused, but changed {difference(before, after)}"
    if problem is None and _outside(after) != _outside(before):
        problem = f"changed files outside: {difference(before, after)}"
    if after != before:
        world.reset()
    return None if problem is None else Finding(str(target), shown, problem, where)


def _shown(payload: Any) -> str:
    try:
        return f"{payload!a:.120}"
    except (ValueError, RecursionError) as error:
        return f"a {type(payload).__name__} without a text ({error!s:.40})"


def _outside(state: tuple[Any, dict[str, Any]]) -> dict[str, Any]:
    return {name: status for name, status in state[1].items() if name.startswith("outside")}


def _bad_text(error: deltars.DeltarsError) -> str | None:
    """Return what is wrong with the text of an error: nobody reads a megabyte, and a log must be able to store it."""
    text = str(error)
    if len(text) > 20_000:
        return f"an error of {len(text):,} characters"
    try:
        text.encode()
    except UnicodeEncodeError:
        return f"an error that cannot be printed: {text!a:.300}"
    if "\0" in text or "\x1b" in text:
        return f"an error with control characters: {text!a:.300}"
    return None


def _is_documented(error: BaseException) -> bool:
    """Return whether Python's own error is the documented one: a TypeError for wrong arguments, as any function has."""
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1].filename if frames else ""
    return isinstance(error, TypeError) and last.endswith("deltars/arguments.py")


def _where(error: BaseException) -> str:
    frames = [
        one
        for one in traceback.extract_tb(error.__traceback__)
        if "/deltars/" in one.filename and "/tests/" not in one.filename
    ]
    return " < ".join(f"{one.filename.partition('src/deltars/')[2]}:{one.lineno}" for one in reversed(frames[-3:]))
