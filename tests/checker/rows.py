"""Random changes of single rows by many clients at once, and what each of them saw.

    run_row_workload(catalog, uri, ["serializable"], clients=6, count=30, seed=1) ──▶ Histories ──▶ find_anomalies

Each row is a list of values: its id is the list, its name holds the values, `v3-17-0+v5-2-1`. Half of the first rows
are there from the beginning, in one file; the others come between them. A client

    amends       a row, by a vector or by writing the file again: it reads the list and adds a value
    inserts      a row if there is none with this id: it reads the list, and adds a value if it was absent
    begins       four rows in the same way, whose ids lie near those that others begin at the time
    looks        at a row, as a user does
    compacts     two files into one, in a transaction of its own
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from unittest import mock

import deltars
from deltars.log.commit import Isolation
from tests.checker.history import Append, History, Read, Txn
from tests.checker.workload import Client, Round, Tape, play, together
from tests.support.racers import run_racers, unpublished
from tests.support.row_changes import DDL, amend, compact, data_file, insert_absent, read_rows, rows_of

ROWS = {"amend": 8, "insert": 2, "begin": 4, "look": 2, "compact": 1, "several": 6, "give up": 1}
"""Kinds of transactions, and how often each is drawn."""

INSERTS = {"begin": 1}
"""As many chances as there can be that two insert the same row."""

AMENDS = {"amend": 1}
"""As many chances as there can be that two change one file."""

SLOTS = 30
"""Ids of the first rows."""

FRESH = 1_000
"""Ids from here on are begun in the order of time."""


def run_row_workload(
    catalog: deltars.Catalog,
    uri: str,
    levels: Sequence[Isolation],
    *,
    clients: int,
    count: int,
    seed: int,
    tables: int = 2,
    mix: Mapping[str, int] = ROWS,
    sabotage: Callable[[], AbstractContextManager[object]] = unpublished,
    first: int = 0,
) -> list[tuple[History, Counter[str]]]:
    """A history for each of the levels, with the errors that clients met. `first` numbers the tables of the first."""
    rounds = [Round(level, tuple(f"rows-{i}-{j}" for j in range(tables)), mix) for i, level in enumerate(levels, first)]
    seeds = [_seed(catalog, round_) for round_ in rounds]
    tapes = run_racers(uri, clients, play, rounds, count, seed, RowClient, around=sabotage)
    return [
        together(round_, [Tape([first]), *of_round], _lists(catalog, round_))
        for round_, first, *of_round in zip(rounds, seeds, *tapes, strict=True)
    ]


def run_rows_in_turn(
    catalog: deltars.Catalog,
    level: Isolation,
    *,
    clients: int,
    count: int,
    seed: int,
    mix: Mapping[str, int],
    sabotage: Callable[[], AbstractContextManager[object]] = unpublished,
) -> History:
    """A history without chance: so many rounds, in each of which all begin and act before the first one commits.

    The next one has its turn while rows are compared, too, if somebody lets it.
    """
    round_ = Round(level, ("rows",), mix)
    tape = Tape([_seed(catalog, round_)])
    lot = random.Random(seed)
    for number in range(count):
        waiting = [RowClient(catalog, round_, f"{client}-{number}", lot) for client in range(clients)]

        def take_turn(waiting: list[RowClient] = waiting) -> None:
            if waiting:
                tape.txns.append(waiting.pop(0).end())

        with sabotage(), mock.patch("tests.checker.sabotage.let_others_come", take_turn):
            for client in waiting:
                client.begin()
            while waiting:
                take_turn()
    return together(round_, [tape], _lists(catalog, round_))[0]


def _seed(catalog: deltars.Catalog, round_: Round) -> Txn:
    """Write the first rows, in a transaction of the history."""
    for name in round_.tables:
        catalog.create_table(name, DDL, properties={"delta.enableDeletionVectors": "true"})
    with catalog.begin(mirror="off") as tx:
        for name in round_.tables:
            rows = {number: f"first-{number}" for number in range(0, SLOTS, 2)}
            tx.stage(name, [data_file(catalog.table(name).location, rows)])
    lists = [(row_name(name, number), f"first-{number}") for name in round_.tables for number in range(0, SLOTS, 2)]
    return Txn("first", [Append(*one) for one in lists], {name: 1 for name, _ in lists})


class RowClient(Client):
    """One transaction that changes rows."""

    def _act(self, tx: deltars.Transaction) -> None:
        kind = self._lot.choices(list(self._round.mix), list(self._round.mix.values()))[0]
        if kind == "compact":
            return compact(tx, self._table())
        steps = {"several": ["amend", "insert", "look"], "give up": ["amend"]}.get(kind, [kind])
        for _ in range(self._lot.randint(1, 3) if kind == "several" else 1):
            self._step(self._lot.choice(steps), tx, self._table())
            # Pauses, so that several others come between.
            time.sleep(self._lot.choice([0, 0.005, 0.02]))
        if kind == "give up":
            self._give_up()

    def _step(self, step: str, tx: deltars.Transaction, table: str) -> None:
        number = self._lot.randrange(SLOTS)
        name = row_name(table, number)
        match step:
            case "amend":
                amend(tx, table, number, lambda old: self._amended(name, old), vectors=self._lot.random() < 0.8)
            case "insert":
                self._insert(tx, table, [number])
            case "begin":
                first = FRESH + 6 * int(self._name.partition("-")[2])
                self._insert(tx, table, self._lot.sample(range(first, first + 40), 4))
            case _:
                found = read_rows(tx, table, f"id = {number}")
                self._steps.append(Read(name, [value for _, text in found for value in _values(text)]))

    def _insert(self, tx: deltars.Transaction, table: str, numbers: Sequence[int]) -> None:
        for number, value in insert_absent(tx, table, {number: self._value() for number in numbers}).items():
            self._steps += [Read(row_name(table, number), []), Append(row_name(table, number), str(value))]

    def _amended(self, name: str, old: list[str]) -> str:
        values, new = [value for text in old for value in _values(text)], self._value()
        self._steps += [Read(name, values), Append(name, new)]
        return "+".join([*values, new])

    def _value(self) -> str:
        self._values += 1
        return f"v{self._name}-{self._values}"


def row_name(table: str, number: int) -> str:
    return f"{table}/{number}"


def _values(text: str | None) -> list[str]:
    return text.split("+") if text else []


def _lists(catalog: deltars.Catalog, round_: Round) -> dict[str, list[str]]:
    lists: dict[str, list[str]] = {}
    for table in round_.tables:
        for number, text in rows_of(catalog, table):
            lists.setdefault(row_name(table, number), []).extend(_values(text))
    return lists
