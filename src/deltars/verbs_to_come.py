"""Verbs that people know from Delta and that deltars does not have yet, each with the way that works today.

deltars vacuum features ──▶ cli/root.py ──────────────┐
                                                      ├──▶ VERBS ──▶ NotSupportedYet: what, and what to do today
catalog.table("features").vacuum() ──▶ RefusesVerbs ──┘

When a verb is built, delete its line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from deltars.errors import NotSupportedYet


class Verb(NamedTuple):
    """A verb that is not there yet."""

    what: str
    """What it would do, after "cannot"."""
    today: str
    """What works today, in Python."""
    command: str | None = None
    """What works today on the command line, if anything does."""


_REWRITE = 'catalog.write(table, rows, "overwrite", replace_where="day = \'2026-01-31\'")'

VERBS = {
    "optimize": Verb("compact small files", f"{_REWRITE}, with the same rows, writes larger files"),
    "vacuum": Verb(
        "delete data files that no version uses",
        "table.verify(orphans=True) lists them; delete them yourself",
        "deltars verify TABLE --orphans lists them; delete them yourself",
    ),
    "clone": Verb("clone a table without copying its files", "catalog.copy_table(source, copy) makes a deep copy"),
    "convert": Verb(
        "convert Parquet files in place",
        "catalog.import_table(location) imports a Delta table in place; catalog.write(table, rows) copies other rows",
        "deltars import LOCATION imports a Delta table in place; deltars load TABLE FILE… --create copies other files",
    ),
    "stream": Verb(
        "read a table as a stream",
        "table.history(since=version) lists new commits; SqlTxnLogReader.changes reads them",
        "deltars history TABLE lists the commits",
    ),
    "tail": Verb(
        "follow a table",
        "table.history(since=version) lists new commits",
        "deltars history TABLE lists the commits",
    ),
}
"""By the name that people try."""

_SPELLED_OTHERWISE = {
    "optimise": "optimize",
    "compact": "optimize",
    "zorder": "optimize",
    "convertToDelta": "convert",
    "readStream": "stream",
    "watch": "tail",
}


def verb_to_come(name: str) -> Verb | None:
    """Return the verb of this name, or None if it is no verb that people know from Delta."""
    return VERBS.get(_SPELLED_OTHERWISE.get(name, name))


class RefusesVerbs:
    """Base of what a user holds: a verb that is not there yet raises `NotSupportedYet`, an AttributeError."""

    __slots__ = ()

    if not TYPE_CHECKING:  # With __getattr__, a type checker would accept every name.

        def __getattr__(self, name):
            verb = verb_to_come(name)
            if verb is None:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
            raise NotSupportedYet(f"deltars cannot {verb.what} yet", hint=f"Today: {verb.today}.")
