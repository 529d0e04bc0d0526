"""A model of deltars that is small enough to look at every state it can reach.

    three writers          begin ──▶ COMMIT sent ──▶ told, or lost ──▶ settled          each may die at any point
    two tables             SQL history, published version, lease, condemned version; files, _delta_log, checkpoint
    publishers             claim ──▶ put N.json ──▶ advance ──▶ …                       a lease may expire under them
    a vacuum               plan ──▶ condemn ──▶ delete

    steps(state, setting)       everything that can happen next                        model_steps
    explore(setting)            every reachable state, checked against the promises     exploration

The first writer appends to both tables. The second replaces all files of both, so that there is something to vacuum.
The third restores the first table to its first version, and so needs an old file again. All are strict. A step is what
the code does at once: one database transaction, or one call to the storage.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

FIRST = "first"
"""The file of version 0 of each table."""

APPEND, REPLACE, RESTORE = 0, 1, 2
TOUCHED = {APPEND: (0, 1), REPLACE: (0, 1), RESTORE: (0,)}

Files: TypeAlias = frozenset[str]


class Version(NamedTuple):
    """One version of a table: who wrote it, and the files that are live then."""

    txn: str
    live: Files


class Table(NamedTuple):
    """One table: in the database, and in the storage."""

    history: tuple[Version, ...] = (Version("create", frozenset([FIRST])),)
    published: int = 0
    lease: int | None = None
    """The publisher that has it."""
    is_expired: bool = False
    condemned: int = -1
    log: tuple[str | None, ...] = ("create",)
    """The transaction of each N.json; None: there is no such file, and there is one after it."""
    checkpoint: int = -1
    files: Files = frozenset([FIRST])

    @property
    def current(self) -> int:
        return len(self.history) - 1

    def removed_up_to(self, version: int) -> Files:
        """The files that some version up to this one removed, and that are not live at the head."""
        before = frozenset().union(*(one.live for one in self.history[: version + 1]))
        return before - self.history[version].live - self.history[-1].live


class Writer(NamedTuple):
    """One writer, and its transaction at the server."""

    at: str = "idle"
    """idle, staged, sent, lost, committed, refused, dead, or nothing (to do)."""
    base: tuple[int, ...] = ()
    """The versions of its tables when it began."""
    server: str = "none"
    """What the server does with its COMMIT: none, pending, done, failed; with bugs also checked, half."""
    attempt: int = 0


class Publisher(NamedTuple):
    at: str = "idle"
    """idle, claimed or put."""
    table: int = 0
    version: int = 0
    txn: str = ""
    """The commit that it read for this version."""


class Vacuum(NamedTuple):
    at: str = "idle"
    """idle, planned or condemned."""
    table: int = 0
    horizon: int = -1
    files: Files = frozenset()


class State(NamedTuple):
    tables: tuple[Table, ...]
    writers: tuple[Writer, ...]
    publishers: tuple[Publisher, ...]
    vacuum: Vacuum
    aborted: frozenset[str] = frozenset()
    """Transactions that were settled as not committed."""


class Step(NamedTuple):
    """What happens: to whom, and in which table where that is open."""

    what: str
    who: int = 0
    table: int = 0


@dataclass(frozen=True, slots=True)
class Setting:
    """Which parts of the world move, and what is wrong with them."""

    writers: tuple[int, ...] = (APPEND, REPLACE, RESTORE)
    publishers: int = 1
    has_vacuum: bool = True
    at_once: bool = False
    """Whether a writer commits in one step. Who looks at the mirror and the vacuum sees no difference."""
    breaks: bool = True
    """Whether connections break."""
    crashes: bool = True
    mirrored: tuple[int, ...] = (0, 1)
    """The tables that are published and vacuumed. They do not see each other, so one of them shows nearly all."""
    bug: str = ""


COMMITS = Setting(publishers=0, has_vacuum=False)
"""Writers, connections that break, and deaths."""
MIRROR = Setting(publishers=2, has_vacuum=False, at_once=True)
"""Two publishers that take each other's lease."""
VACUUM = Setting(at_once=True)
"""A publisher and a vacuum."""

BUGS = {
    "one transaction per table": ("N3", COMMITS),
    "no lock": ("N1", replace(COMMITS, breaks=False)),
    "retry under a new id": ("N2", COMMITS),
    "one look instead of settling": ("N7", COMMITS),
    "no answer is taken for a commit": ("N1", COMMITS),
    "publish before COMMIT": ("N6", Setting()),
    "put N without N-1": ("N6", MIRROR),
    "advance before put": ("N6", MIRROR),
    "checkpoint of the head": ("N6", MIRROR),
    "vacuum without condemning": ("N5", VACUUM),
    "vacuum from the commit on": ("N5", VACUUM),
}
"""Bugs that can be planted: the promise that each breaks first, and where it is looked for."""


def start(setting: Setting) -> State:
    return State(
        (Table(), Table()),
        tuple(Writer() for _ in setting.writers),
        tuple(Publisher() for _ in range(setting.publishers)),
        Vacuum(),
    )


# -- changes -----------------------------------------------------------------------------------------------------------


def with_table(state: State, number: int, **values: Any) -> State:
    tables = list(state.tables)
    tables[number] = tables[number]._replace(**values)
    return state._replace(tables=tuple(tables))


def with_writer(state: State, who: int, **values: Any) -> State:
    writers = list(state.writers)
    writers[who] = writers[who]._replace(**values)
    return state._replace(writers=tuple(writers))


def with_publisher(state: State, who: int, publisher: Publisher) -> State:
    publishers = list(state.publishers)
    publishers[who] = publisher
    return state._replace(publishers=tuple(publishers))
