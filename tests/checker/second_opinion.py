"""A second opinion on a history: what adya finds, a program of another author that works as Jepsen's Elle does.

    find_by_adya(history) ──▶ operations   what the clients did, in Jepsen's form: appends to lists, and reads of lists
                          └─▶ adya check   ──▶ Anomalies

adya reads nothing but the operations, in the order in which transactions began and ended. `MODELS` names what each
level is held to:

    strict, serializable    strict serializability: no G0, G1a, G1b, G1c, G-single, G2, lost update, nor a cycle of them
                            with the order of time. A table is a list. A read has its values in the order of versions,
                            as the writers were told them.
    write_serializable      the same, but a read is silent about a blind append that a writer did not see
    snapshot                strong snapshot isolation: the same without G2, so write skew is allowed

Under the last two levels an append that was not seen may come before the append of who did not see it. A table has no
order of appends then, so each value is a list of its own, empty or there. Under `write_serializable` the versions of a
table are one more list, which only the last transaction reads.

What a transaction read is a cut, whatever becomes of it. So the reads of one that was aborted, and under
`write_serializable` those of each writer, are also told as a transaction that only reads.
"""

from __future__ import annotations

import fcntl
import json
import math
import shutil
import subprocess
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from tests.checker.anomalies import Anomaly
from tests.checker.history import History, Read, Step, Txn
from tests.support.soak import is_soak

VERSION = "0.1.0"
BUILD = Path(__file__).parents[2] / "build" / f"adya-{VERSION}"
BUILD_TIMEOUT_S = 900.0
SEARCH_TIMEOUT_MS = 20_000

MODELS = {
    "strict": "strict-serializable",
    "serializable": "strict-serializable",
    "write_serializable": "strict-serializable",
    "snapshot": "strong-snapshot-isolation",
}

FINAL = "final"
"""A transaction after all others, which reads everything."""

NOTHING_TO_SAY = "empty-transaction-graph"
"""No one committed anything that another could have seen."""

Steps: TypeAlias = list[tuple[str, str, Any]]


class NoSecondOpinion(Exception):
    """adya cannot be built here."""


def confirm(histories: Iterable[History]) -> int:
    """In a soak run, require that adya finds nothing in these either. Return how many it has checked."""
    if not is_soak():
        return 0
    count = 0
    for history in histories:
        try:
            assert find_by_adya(history) == [], history.level
        except NoSecondOpinion as reason:
            warnings.warn(f"no second opinion: {reason}", stacklevel=2)
            return 0
        count += 1
    return count


def find_by_adya(history: History) -> list[Anomaly]:
    """Return what adya finds, one of each kind for each knot of transactions, under its own names."""
    told = list(operations(history))
    limit = f"--cycle-search-timeout={SEARCH_TIMEOUT_MS}"
    command = [str(adya()), "check", "--json", "-c", MODELS[history.level], limit, "/dev/stdin"]
    text = "".join(json.dumps(operation) + "\n" for operation in told)
    ended = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if ended.returncode not in (0, 1, 2):
        raise RuntimeError(f"adya ended with {ended.returncode}: {ended.stderr}")
    return [
        Anomaly(kind, tuple(told[number]["txn"] for number in one["ops"]), one["explanation"])
        for kind, found in json.loads(ended.stdout)["anomalies"].items()
        if kind != NOTHING_TO_SAY
        for one in found
    ]


# -- the program -----------------------------------------------------------------------------------------------------


def adya() -> Path:
    """Return the program, which the first call builds."""
    program, reason = _built()
    if reason:
        raise NoSecondOpinion(reason)
    return program


@cache
def _built() -> tuple[Path, str]:
    """Return the program, and why it cannot be built. A process tries once, because a failure may take minutes."""
    program = BUILD / "bin" / "adya"
    cargo = shutil.which("cargo")
    if cargo is None and not program.exists():
        return program, "there is no cargo to build adya with"
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return program, "" if program.exists() else _build(str(cargo))


def _build(cargo: str) -> str:
    # --locked takes the versions that adya's author built it with; without its drivers it knows no database.
    crate, place = f"adya@{VERSION}", str(BUILD)
    command = [cargo, "install", "--quiet", "--locked", "--no-default-features", "--root", place, crate]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=BUILD_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return f"adya was not built within {BUILD_TIMEOUT_S:.0f} s"
    return f"cargo could not build adya: {ended.stderr.strip()[-300:]}" if ended.returncode else ""


# -- the history in Jepsen's form --------------------------------------------------------------------------------------


def operations(history: History) -> Iterator[dict[str, Any]]:
    """Yield when each transaction began and how it ended, in the order of time; each is a process of its own."""
    form = _Lists(history) if history.level in ("strict", "serializable") else _Values(history)
    events: list[tuple[float, int, int, str, str, Steps]] = []
    for txn in history.txns:
        began_at = -math.inf if txn.began_at is None else txn.began_at
        ended_at = math.inf if txn.ended_at is None else txn.ended_at
        told = [("ok" if txn.is_committed else "fail", form.steps(txn))]
        if reads := _untold_reads(history, txn):
            told.append(("ok", form.steps(Txn(txn.id, reads))))
        for end, steps in told:
            process = len(events)
            # What began and what ended in the same instant overlapped.
            events.append((began_at, 0, process, txn.id, "invoke", steps))
            events.append((ended_at, 1, process, txn.id, end, steps))
    process, steps = len(events), form.final()
    events += [(math.inf, 2, process, FINAL, "invoke", steps), (math.inf, 3, process, FINAL, "ok", steps)]
    for index, (*_, process, name, kind, steps) in enumerate(sorted(events, key=lambda event: event[:3])):
        # What it will read is not known when it begins.
        value = [step for step in steps if kind != "invoke" or step[0] == "append"]
        yield {"index": index, "type": kind, "process": process, "txn": name, "value": value}


def _untold_reads(history: History, txn: Txn) -> list[Step]:
    """Return what it read of others, if its commit does not say all of it."""
    if txn.is_committed and not (history.level == "write_serializable" and txn.versions):
        return []
    own = {(step.table, step.value) for step in txn.appends}
    return [Read(read.table, [value for value in read.values if (read.table, value) not in own]) for read in txn.reads]


def _final(history: History) -> dict[str, list[str]]:
    """The values when all was over; where nobody has looked, those of every commit."""
    if history.final is not None:
        return {table: list(history.final.get(table, ())) for table in {**history.final, **history.writers}}
    return {
        table: [step.value for txn in writers for step in txn.appends if step.table == table]
        for table, writers in history.writers.items()
    }


class _Lists:
    """A table is one list, in the order of its versions."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._places: dict[tuple[str, str], tuple[float, int]] = {}
        for (table, value), txn in history.writer_of.items():
            values = [step.value for step in txn.appends if step.table == table]
            self._places[table, value] = (txn.versions.get(table, math.inf), values.index(value))

    def steps(self, txn: Txn) -> Steps:
        steps: Steps = []
        own: list[tuple[str, str]] = []
        for step in txn.steps:
            if isinstance(step, Read):
                others = [value for value in step.values if (step.table, value) not in own]
                mine = [value for value in step.values if (step.table, value) in own]
                steps.append(("r", step.table, self._sorted(step.table, others) + self._sorted(step.table, mine)))
            else:
                own.append((step.table, step.value))
                steps.append(("append", step.table, step.value))
        return steps

    def final(self) -> Steps:
        return [("r", table, self._sorted(table, values)) for table, values in _final(self._history).items()]

    def _sorted(self, table: str, values: Iterable[str]) -> list[str]:
        return sorted(values, key=lambda value: self._places.get((table, value), (math.inf, 0)))


class _Values:
    """Each value of a table is a list, which is empty until the value is there."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._has_order = history.level == "write_serializable"
        self._values: dict[str, list[tuple[str, Txn]]] = {}
        for (table, value), txn in history.writer_of.items():
            if txn.is_committed:
                self._values.setdefault(table, []).append((value, txn))

    def steps(self, txn: Txn) -> Steps:
        steps: Steps = []
        own: set[tuple[str, str]] = set()
        for step in txn.steps:
            if isinstance(step, Read):
                steps += self._read(txn, step, own)
            else:
                own.add((step.table, step.value))
                steps.append(("append", _key(step.table, step.value), step.value))
        if self._has_order and txn.is_committed:
            steps += [("append", _versions_key(table), txn.id) for table in txn.versions]
        return steps

    def _read(self, txn: Txn, read: Read, own: set[tuple[str, str]]) -> Iterator[tuple[str, str, Any]]:
        yield from _there(read.table, read.values)
        values = set(read.values)
        for value, writer in self._values.get(read.table, ()):
            is_later = writer is txn and (read.table, value) not in own
            is_forgiven = self._has_order and bool(txn.versions) and writer.is_blind and writer is not txn
            if value not in values and not is_later and not is_forgiven:
                yield ("r", _key(read.table, value), [])

    def final(self) -> Steps:
        final = _final(self._history)
        steps = [step for table, values in final.items() for step in _there(table, values)]
        for table, values in self._values.items():
            there = set(final.get(table, ()))
            steps += [("r", _key(table, value), []) for value, _ in values if value not in there]
        if self._has_order:
            for table, writers in self._history.writers.items():
                steps.append(("r", _versions_key(table), [txn.id for txn in writers]))
        return steps


def _there(table: str, values: Iterable[str]) -> Steps:
    return [("r", _key(table, value), [value] * count) for value, count in Counter(values).items()]


def _key(table: str, value: str) -> str:
    return f"{table} {value}"


def _versions_key(table: str) -> str:
    return f"{table} in order of versions"
