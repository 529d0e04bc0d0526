"""What transactions did, as their clients saw it: lists that grow, one a table.

    Txn("t1", [Read("x", ["a", "b"]), Append("x", "c")], versions={"x": 3})

Every value is appended once in a history, so whoever reads it read that append. A table's version order is known from
the log, not guessed from reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Read:
    table: str
    values: Sequence[str]
    at: float | None = None
    """When the answer was there, in seconds of one clock for all processes."""


@dataclass(frozen=True, slots=True)
class Append:
    table: str
    value: str


Step: TypeAlias = Read | Append


@dataclass(frozen=True, slots=True)
class Txn:
    id: str
    steps: Sequence[Step]
    versions: Mapping[str, int] = field(default_factory=dict)
    """What it committed, by table; nothing if it only read."""
    is_committed: bool = True
    began_at: float | None = None
    committing_at: float | None = None
    ended_at: float | None = None

    @property
    def appends(self) -> Iterator[Append]:
        return (step for step in self.steps if isinstance(step, Append))

    @property
    def reads(self) -> Iterator[Read]:
        return (step for step in self.steps if isinstance(step, Read))

    @property
    def is_blind(self) -> bool:
        """Whether it read nothing."""
        return not any(self.reads)


@dataclass(frozen=True)
class History:
    level: str
    txns: Sequence[Txn]
    final: Mapping[str, Sequence[str]] | None = None
    """The values of each table when all was over."""

    @property
    def committed(self) -> list[Txn]:
        return [txn for txn in self.txns if txn.is_committed]

    @cached_property
    def writers(self) -> dict[str, list[Txn]]:
        """Who wrote each table, in the order of its versions."""
        found: dict[str, list[Txn]] = {}
        for txn in self.committed:
            for table in txn.versions:
                found.setdefault(table, []).append(txn)
        return {table: sorted(txns, key=lambda txn: txn.versions[table]) for table, txns in found.items()}

    @cached_property
    def writer_of(self) -> dict[tuple[str, str], Txn]:
        """Who appended a value to a table."""
        return {(step.table, step.value): txn for txn in self.txns for step in txn.appends}

    def seen(self, txn: Txn, read: Read) -> dict[str, Txn]:
        """The transactions, other than itself, whose values it read, by id."""
        writers = (self.writer_of.get((read.table, value)) for value in read.values)
        return {writer.id: writer for writer in writers if writer is not None and writer is not txn}

    def unseen(self, txn: Txn, read: Read) -> Iterator[Txn]:
        """The others that wrote the table and were not read, in the order of versions."""
        seen = self.seen(txn, read)
        return (other for other in self.writers.get(read.table, ()) if other.id not in seen and other is not txn)
