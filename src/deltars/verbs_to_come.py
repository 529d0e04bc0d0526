"""Verbs that people know from Delta and that deltars does not have yet, or has under another name or on another object.

deltars vacuum features ──▶ cli/root.py ──────────────┐
                                                      ├──▶ VERBS ──▶ NotSupportedYet: what, and what to do today
catalog.table("features").vacuum() ──▶ RefusesVerbs ──┘
catalog.delete("features", "id = 1") ──▶ RefusesVerbs ──▶ CALLS ──▶ NotSupportedYet: the call that does it

When a verb is built, delete its line.
"""

from __future__ import annotations

from collections.abc import Mapping
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

_AGAIN = (
    'write the rows again: tx.write(table, rows, mode="overwrite", overwrite_schema=True)'
    " (docs/not-supported.md#columns)"
)
COLUMN_VERBS = {
    "rename_column": Verb("rename a column", _AGAIN),
    "drop_column": Verb("drop a column", _AGAIN),
    "change_column": Verb("change the type or the place of a column", f"merge_schema=True widens types; else {_AGAIN}"),
}
"""Changes of columns, which `table.alter` and `deltars alter` are asked for."""

_SPELLED_OTHERWISE = {
    "optimise": "optimize",
    "compact": "optimize",
    "zorder": "optimize",
    "convertToDelta": "convert",
    "readStream": "stream",
    "watch": "tail",
    "rename_columns": "rename_column",
    "drop_columns": "drop_column",
    "change_columns": "change_column",
    "alter_column": "change_column",
    "set_type": "change_column",
}

_UPSERT = 'merge(…, rows, on="t.id = s.id").when_matched_update_all().when_not_matched_insert_all().execute()'
_UPSERT_TABLE = _UPSERT.replace("…, ", "")
_CLAUSES = (
    "when_matched_update",
    "when_matched_update_all",
    "when_matched_delete",
    "when_not_matched_insert",
    "when_not_matched_insert_all",
    "when_not_matched_by_source_update",
    "when_not_matched_by_source_delete",
    "with_schema_evolution",
)

CALLS: Mapping[str, Mapping[str, str]] = {
    "Catalog": {
        "delete": "catalog.table(name).delete(where)",
        "update": "catalog.table(name).update(set, where)",
        "merge": "catalog.table(name).merge(rows, on)",
        "upsert": f"catalog.table(name).{_UPSERT_TABLE}",
        "alter": "catalog.table(name).alter",
        "forName": "catalog.table(name)",
        "forPath": "catalog.import_table(location)",
        "read_table": "catalog.table(name).read()",
    },
    "Table": {
        "upsert": f"table.{_UPSERT_TABLE}",
        "toDF": "table.read()",
        "toPandas": "table.to_pandas()",
        "toArrow": "table.to_arrow()",
        "restoreToVersion": "table.restore(version)",
        "restoreToTimestamp": "table.restore(timestamp=…)",
    },
    "Transaction": {
        "upsert": f"tx.{_UPSERT}".replace("…", "table"),
        "sql": 'spark.sql("SELECT … FROM {rows}", rows=tx.read(table))',
        "table": "tx.read(table)",
        "toPandas": "tx.to_pandas(table)",
    },
    "MergeBuilder": {
        "".join([first, *map(str.capitalize, rest)]): f"{'_'.join((first, *rest))}(…)"
        for first, *rest in (clause.split("_") for clause in _CLAUSES)
    },
    "deltars": {
        "DeltaTable": "deltars.connect(…).table(name), or deltars.table(uri)",
    },
}
"""The call that does it, by the class of the object and the name that people try on it."""


def verb_to_come(name: str) -> Verb | None:
    """Return the verb of this name, or None if it is no verb that people know from Delta."""
    name = _SPELLED_OTHERWISE.get(name, name)
    return VERBS.get(name) or COLUMN_VERBS.get(name)


def refuse_verb(kind: str, name: str) -> None:
    """Raise `NotSupportedYet` for a verb that is not there yet, or has another name than people try on this kind."""
    call = CALLS.get(kind, {}).get(name)
    if call is not None:
        raise NotSupportedYet(f"{kind} has no {name}", hint=f"Write {call}.")
    verb = verb_to_come(name)
    if verb is not None:
        raise NotSupportedYet(f"deltars cannot {verb.what} yet", hint=f"Today: {verb.today}.")


class RefusesVerbs:
    """Base of what a user holds: a verb that is not there yet raises `NotSupportedYet`, an AttributeError."""

    __slots__ = ()

    if not TYPE_CHECKING:  # With __getattr__, a type checker would accept every name.

        def __getattr__(self, name):
            refuse_verb(type(self).__name__, name)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
