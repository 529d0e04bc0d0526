"""Every state of the model that can be reached, checked against the promises; or one way through it.

explore(COMMITS)                         no promise is broken
explore(replace(COMMITS, bug="…"))       the shortest way to a broken promise
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from tests.faults.model import TOUCHED, Setting, State, Step, Table, start
from tests.faults.model_steps import steps


@dataclass(slots=True)
class Explored:
    states: int = 0
    steps: int = 0
    broken: str | None = None
    """The first promise that was found broken."""
    trace: list[Step] = field(default_factory=list)
    """The shortest way there."""


def explore(setting: Setting, most: int | None = None) -> Explored:
    """Look at every state that can be reached, nearest first, until one breaks a promise."""
    first = start(setting)
    came: dict[State, tuple[State, Step] | None] = {first: None}
    waiting, found = deque([first]), Explored()
    while waiting:
        state = waiting.popleft()
        found.states += 1
        for step, after in steps(state, setting):
            found.steps += 1
            broken = broken_promise(state, after)
            if after not in came:
                came[after] = state, step
                waiting.append(after)
            if broken:
                found.broken, found.trace = broken, _trace(came, state, step)
                return found
        if most is not None and found.states >= most:
            break
    return found


def _trace(came: dict[State, tuple[State, Step] | None], state: State, last: Step) -> list[Step]:
    trace = [last]
    while (before := came[state]) is not None:
        state, step = before
        trace.append(step)
    return trace[::-1]


# -- promises ----------------------------------------------------------------------------------------------------------


def broken_promise(before: State, state: State) -> str | None:
    """Return the first promise that this state breaks, or the step to it."""
    for number, writer in enumerate(state.writers):
        txns = [f"{number}.{attempt}" for attempt in range(writer.attempt + 1)]
        found = [sum(version.txn in txns for version in state.tables[table].history) for table in TOUCHED[number]]
        if writer.at == "committed" and not all(found):
            return "N1" if not any(found) else "N3"
        if max(found) > 1:
            return "N2"
        # Half a transaction is broken only where no server is at it any more.
        if writer.server != "half" and any(found) != all(found):
            return "N3"
        if writer.server == "half" and writer.at == "dead":
            return "N3"
        if writer.at == "refused" and any(found):
            return "N7"
    for old, new in zip(before.tables, state.tables, strict=True):
        if new.history[: len(old.history)] != old.history and len(new.history) <= len(old.history):
            return "N1"
        if broken := _broken_table(new):
            return broken
    return None


def _broken_table(table: Table) -> str | None:
    history = [version.txn for version in table.history]
    if None in table.log or list(table.log) != history[: len(table.log)]:
        return "N6"
    if table.checkpoint >= len(table.log) or table.published >= len(table.log):
        return "N6"
    # What the head needs, and what readers of the log need.
    if not table.history[-1].live <= table.files or not table.history[len(table.log) - 1].live <= table.files:
        return "N5"
    return None


Chooser: TypeAlias = Callable[[list[tuple[Step, State]]], tuple[Step, State]]


def walk(setting: Setting, choose: Chooser, most: int = 40) -> list[tuple[Step, State]]:
    """Return one way through the model: steps with the states that they lead to."""
    state, way = start(setting), list[tuple[Step, State]]()
    while len(way) < most and (open_ := list(steps(state, setting))):
        step, state = choose(open_)
        way.append((step, state))
    return way
