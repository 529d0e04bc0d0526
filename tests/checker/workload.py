"""Random transactions over a few tables, run by many clients at once, and what each of them saw.

    run_workload(catalog, uri, ["strict", "snapshot"], clients=6, count=30, seed=1) ──▶ Histories ──▶ find_anomalies

A table has two partitions, and each is a list of values. A file's path carries the values in it, `a3-17-0+a5-2-1` holds
two, and their first letter is the partition. A client

    reads        the values of a table, or of one partition
    appends      a file with a new value
    rewrites     a file into one that has a new value besides: the old file is removed
    compacts     two files into one, in a transaction of its own, which changes no row

in transactions that also only read, only append, read the one table and append to the other, or give up on purpose.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field
from typing import NoReturn
from uuid import UUID

import pyarrow as pa

import deltars
from deltars.errors import CommitUnknown
from deltars.log.commit import Isolation
from deltars.protocol import AddFile, RemoveFile
from tests.checker.history import Append, History, Read, Step, Txn
from tests.support.racers import run_racers, unpublished

ANYTHING = {"mixed": 10, "read": 2, "append": 2, "crosswise": 2, "compact": 1, "give up": 1}
"""Kinds of transactions, and how often each is drawn."""

CROSSWISE = {"crosswise": 1}
"""As many chances of write skew as there can be."""

ONE_TABLE = {"append": 3, "mixed": 2}
"""Blind appends, and transactions that read what they change."""

PARTS = "ab"
LONGEST_PATH = 6
"""Values in a file that is still rewritten or compacted."""


@dataclass(frozen=True, slots=True)
class Round:
    """Some transactions of every client, all at one level, on tables of their own."""

    level: Isolation
    tables: tuple[str, ...]
    mix: Mapping[str, int]


@dataclass(slots=True)
class Tape:
    """What one client did in one round."""

    txns: list[Txn] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)


def run_workload(
    catalog: deltars.Catalog,
    uri: str,
    levels: Sequence[Isolation],
    *,
    clients: int,
    count: int,
    seed: int,
    tables: int = 3,
    mix: Mapping[str, int] = ANYTHING,
    sabotage: Callable[[], AbstractContextManager[object]] = unpublished,
    first: int = 0,
    in_threads: bool = False,
) -> list[tuple[History, Counter[str]]]:
    """A history for each of the levels, with the errors that clients met. `first` numbers the tables of the first."""
    rounds = [Round(level, tuple(f"list-{i}-{j}" for j in range(tables)), mix) for i, level in enumerate(levels, first)]
    for round_ in rounds:
        for name in round_.tables:
            catalog.create_table(name, "id BIGINT, part STRING", partition_by=["part"])
    catalog.close()
    tapes = run_racers(uri, clients, play, rounds, count, seed, around=sabotage, in_threads=in_threads)
    return [
        together(round_, of_round, {k: v for name in round_.tables for k, v in _final(catalog, name).items()})
        for round_, *of_round in zip(rounds, *tapes, strict=True)
    ]


def _final(catalog: deltars.Catalog, name: str) -> dict[str, list[str]]:
    return lists_of(name, catalog.table(name).snapshot().files)


def together(round_: Round, tapes: Sequence[Tape], final: Mapping[str, Sequence[str]]) -> tuple[History, Counter[str]]:
    txns = [txn for tape in tapes for txn in tape.txns]
    return History(round_.level, txns, final), sum((tape.errors for tape in tapes), Counter[str]())


def play(
    catalog: deltars.Catalog,
    number: int,
    rounds: Sequence[Round],
    count: int,
    seed: int,
    kind: type[Client] | None = None,
) -> list[Tape]:
    """One client: in each round so many transactions drawn by lot."""
    lot = random.Random(f"{seed}-{number}")
    return [_play_round(catalog, number, round_, count, lot, kind or Client) for round_ in rounds]


def _play_round(
    catalog: deltars.Catalog, number: int, round_: Round, count: int, lot: random.Random, kind: type[Client]
) -> Tape:
    tape = Tape()
    for i in range(count):
        client = kind(catalog, round_, f"{number}-{i}", lot)
        tape.txns.append(client.run())
        if client.error:
            tape.errors[type(client.error).__name__] += 1
    return tape


class GivenUp(Exception):
    """The client changed its mind."""


class Client:
    """One transaction: runs it and remembers it."""

    def __init__(self, catalog: deltars.Catalog, round_: Round, name: str, lot: random.Random) -> None:
        self.error: deltars.DeltarsError | None = None
        self._catalog = catalog
        self._round = round_
        self._name = name
        self._lot = lot
        self._steps: list[Step] = []
        self._values = 0
        self._tx: deltars.Transaction | None = None
        self._began_at: float | None = None

    def run(self) -> Txn:
        self.begin()
        return self.end()

    def begin(self) -> None:
        """Everything but the commit."""
        self._began_at = time.monotonic()
        try:
            tx = self._catalog.begin(isolation=self._round.level)
            with ExitStack() as stack:
                stack.callback(tx.rollback)
                self._act(tx)
                stack.pop_all()
            self._tx = tx
        except GivenUp:
            pass
        except deltars.DeltarsError as error:
            self.error = error

    def end(self) -> Txn:
        """Commit, if there is something to commit."""
        committing_at, versions, is_committed = None, {}, False
        if self._tx is not None:
            committing_at = time.monotonic()
            try:
                versions = dict(self._tx.commit().versions)
                is_committed = True
            except CommitUnknown as error:
                self.error = error
                resolved = _resolved(self._catalog, self._tx.id)
                versions = dict(resolved.versions) if resolved is not None else {}
                is_committed = resolved is not None
            except deltars.DeltarsError as error:
                self.error = error
        # Compaction writes a version, but no value: for the lists it was never there.
        lists = {step.table for step in self._steps if isinstance(step, Append)} if versions else set()
        written = {name: versions[name.partition("/")[0]] for name in lists}
        return Txn(self._name, self._steps, written, is_committed, self._began_at, committing_at, time.monotonic())

    def _act(self, tx: deltars.Transaction) -> None:
        kind = self._lot.choices(list(self._round.mix), list(self._round.mix.values()))[0]
        if kind == "compact":
            return self._compact(tx, self._table())
        if kind == "crosswise":
            one, other = self._lot.sample(self._round.tables, 2)
            self._read(tx, one, PARTS)
            return self._append(tx, other)
        steps = {"read": ["read"], "append": ["append"]}.get(kind, ["read", "append", "rewrite"])
        for _ in range(self._lot.randint(1, 4)):
            self._step(self._lot.choice(steps), tx, self._table())
            # A pause now and then, so that others come between.
            time.sleep(self._lot.choice([0, 0, 0.001, 0.004]))
        if kind == "give up":
            self._give_up()

    def _give_up(self) -> NoReturn:
        raise GivenUp

    def _step(self, step: str, tx: deltars.Transaction, table: str) -> None:
        match step:
            case "read":
                self._read(tx, table)
            case "append":
                self._append(tx, table)
            case _:
                self._rewrite(tx, table)

    def _table(self) -> str:
        return self._lot.choice(self._round.tables)

    def _read(self, tx: deltars.Transaction, table: str, parts: str | None = None) -> list[str]:
        """Remembers the values, and answers with the files that are still short."""
        parts = parts or self._lot.choice([*PARTS, PARTS])
        files = tx.files(table, None if parts == PARTS else f"part = '{parts}'")
        at = time.monotonic()
        lists = lists_of(table, files)
        self._steps += [Read(list_name(table, part), lists[list_name(table, part)], at) for part in parts]
        return [path for path in files["path"].to_pylist() if path.count("+") + 1 < LONGEST_PATH]

    def _append(self, tx: deltars.Transaction, table: str) -> None:
        tx.stage(table, [_file(self._new_value(table, self._lot.choice(PARTS)))])

    def _rewrite(self, tx: deltars.Transaction, table: str) -> None:
        paths = self._read(tx, table)
        if not paths:
            return self._append(tx, table)
        path = self._lot.choice(paths)
        tx.stage(table, [_removal(path), _file(f"{path}+{self._new_value(table, path[0])}")])

    def _compact(self, tx: deltars.Transaction, table: str) -> None:
        paths = self._read(tx, table, self._lot.choice(PARTS))
        if len(paths) >= 2:
            chosen = self._lot.sample(paths, 2)
            moved = [_removal(path, data_change=False) for path in chosen]
            tx.stage(table, [*moved, _file("+".join(chosen), data_change=False)])

    def _new_value(self, table: str, part: str) -> str:
        value = f"{part}{self._name}-{self._values}"
        self._values += 1
        self._steps.append(Append(list_name(table, part), value))
        return value


def _resolved(catalog: deltars.Catalog, txn_id: UUID) -> deltars.TransactionResult | None:
    """What became of a transaction, as soon as it can be known."""
    while True:
        with suppress(deltars.DatabaseError, deltars.TimeoutError):
            return catalog.resolve(txn_id)


def list_name(table: str, part: str) -> str:
    return f"{table}/{part}"


def lists_of(table: str, files: pa.Table) -> dict[str, list[str]]:
    """The lists of a table, as its files have them."""
    values = [value for path in files["path"].to_pylist() for value in path.split("+")]
    return {list_name(table, part): [value for value in values if value[0] == part] for part in PARTS}


def _file(path: str, *, data_change: bool = True) -> AddFile:
    values: dict[str, str | None] = {"part": path[0]}
    return AddFile(path=path, partition_values=values, size=1, modification_time=1, data_change=data_change)


def _removal(path: str, *, data_change: bool = True) -> RemoveFile:
    return RemoveFile(path=path, deletion_timestamp=1, data_change=data_change)
