"""What a transaction read of a table, as text that can be stored."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from deltars.log.read_set import FilePredicate, Reads
from deltars.predicate import And, In, Or, Predicate, to_sql

MOST_CHARACTERS = 500
"""Longest condition that is stored."""
MOST_VALUES = 10
"""Most values of a list that are stored: a thousand keys say no more than the first few."""


class ReadKind(StrEnum):
    """How much of a table a transaction read."""

    WHOLE = "whole"
    """Every row."""
    ROWS = "rows"
    """Rows that match a condition."""
    CHANGED_ROWS = "changed rows"
    """Rows that a statement looked for, to change them."""


def kind_of(reads: Reads) -> ReadKind | None:
    """Return how much was read; None if no rows were."""
    if reads.whole_table:
        return ReadKind.WHOLE
    if reads.predicates or reads.files:
        return ReadKind.ROWS
    return ReadKind.CHANGED_ROWS if reads.rows else None


def condition_of(reads: Reads) -> str | None:
    """Return the conditions of what was read, in SQL, cut if they are long; None if every row was read."""
    if reads.whole_table:
        return None
    texts = dict.fromkeys(to_sql(_shortened(predicate)) for predicate in _predicates(reads))
    text = " OR ".join(f"({text})" if len(texts) > 1 else text for text in texts)
    # No database stores a lone surrogate.
    text = text.encode(errors="replace").decode()
    return (text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…") or None


def _shortened(predicate: Predicate) -> Predicate:
    match predicate:
        case And(parts):
            return And(tuple(map(_shortened, parts)))
        case Or(parts):
            return Or(tuple(map(_shortened, parts)))
        case In(column, values, negated):
            return In(column, values[:MOST_VALUES], negated)
    return predicate


def _predicates(reads: Reads) -> Iterator[Predicate]:
    conditions: list[FilePredicate] = [*reads.predicates, *(one for read in reads.rows for one in read.conditions)]
    for condition in conditions:
        predicate: Predicate | None = getattr(condition, "predicate", None)
        if predicate is not None:
            yield predicate
