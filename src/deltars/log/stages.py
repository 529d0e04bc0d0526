"""Stages of a transaction, in the order in which people read them, and what each is.

    open ──▶ program, read, data, in any order ──▶ validate ──▶ lock ──▶ check ──▶ write ──▶ commit ──▶ publish
                                                      ▲                    │        │
                                                      └────── settle ◀─────┘        └ time stamp of the commit

A commit stores the stages before its time stamp. What follows is only known when it is over.
"""

from __future__ import annotations

from collections.abc import Mapping

OPEN, PROGRAM, READ, DATA, LOCK, PUBLISH = "open", "program", "read", "data", "lock", "publish"

STAGES = {
    OPEN: "take the snapshot",
    PROGRAM: "your program, between calls",
    READ: "read rows and lists of files",
    DATA: "write data files, with the reads that feed them",
    "validate": "check the actions",
    "settle": "compare rows with those of concurrent commits",
    LOCK: "wait for the tables' locks",
    "check": "look for conflicts",
    "write": "write the actions to the database",
    "commit": "make the commit durable",
    PUBLISH: "write the log for other readers",
}
"""What happens in each stage."""


def in_order(stages: Mapping[str, float]) -> dict[str, float]:
    """Return the stages that took time, in their order."""
    known = {name: stages[name] for name in STAGES if stages.get(name)}
    return known | {name: took for name, took in stages.items() if name not in STAGES}


def with_publication(stages: Mapping[str, float], commit_ts: int, published_at: int | None) -> dict[str, float]:
    """Return the stages of a committed transaction, and as the last one all that followed its time stamp.

    Both times are microseconds by the database's clock; `published_at` is None if a table is not published.
    """
    if published_at is None:
        return dict(stages)
    return {**stages, PUBLISH: max(0, published_at - commit_ts) / 1_000_000}


def before_publication(stages: Mapping[str, float]) -> float | None:
    """Return the seconds of all stages but `publish`; None if none was recorded."""
    known = [took for name, took in stages.items() if name != PUBLISH]
    return sum(known) if known else None


def to_microseconds(stages: Mapping[str, float]) -> dict[str, int]:
    """Return seconds as a commit stores them; without those that took none."""
    return {name: took for name, seconds in stages.items() if (took := int(seconds * 1_000_000))}


def from_microseconds(stages: Mapping[str, int] | None) -> dict[str, float]:
    """Return what a commit stored, in seconds. Nothing is stored without `record_activity`."""
    return in_order({name: took / 1_000_000 for name, took in (stages or {}).items()})
