"""Check of the queries and expressions inside statements, before any statement runs. Names are checked later."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from deltars.errors import PredicateError
from deltars.predicate.query import Query
from deltars.predicate.source import Source
from deltars.predicate.statements.tree import (
    Action,
    AddConstraint,
    AlterTable,
    Atomic,
    CreateTable,
    CreateView,
    Delete,
    Explain,
    Fragment,
    Insert,
    Merge,
    Optimize,
    Purge,
    Select,
    Statement,
    Update,
    Values,
)

_CHECKED_ROWS = 100
"""Most rows of VALUES that are checked before the statement runs. All are checked when it does."""
_NAMES = ("SELECT", "WITH", "FROM", "(")


def check_syntax(text: str, statements: Iterable[Statement]) -> None:
    """Raise PredicateError for a query or an expression that cannot be parsed. It points at the place in the text."""
    source = Source(text, "statement")
    for statement in statements:
        if isinstance(statement.action, Atomic):
            check_syntax(text, statement.action.statements)
        for query in _queries(statement.action):
            if query.text.lstrip().upper().startswith(_NAMES):
                Query.inside(text, query)
        for expression in _expressions(statement.action):
            if expression is not None:
                _check(source, expression)


def _check(source: Source, fragment: Fragment) -> None:
    try:
        Source(fragment.text, "expression").condition()
    except PredicateError as error:
        if error.problem is None or error.position is None:
            raise
        raise source.error_at(error.problem, fragment.start + error.position, hint=error.hint or "") from None


def _queries(action: Action) -> Iterator[Fragment]:
    match action:
        case Select(query) | Explain(query) | CreateView(_, query):
            yield query
        case Insert(source=Fragment() as query) | CreateTable(query=Fragment() as query):
            yield query
        case Merge(source=query):
            yield query


def _expressions(action: Action) -> Iterator[Fragment | None]:
    match action:
        case Insert(source=Values(rows=rows)):
            for row in rows[:_CHECKED_ROWS]:
                yield from row
            yield action.replace_where
        case Insert(replace_where=where) | Optimize(where=where) | Purge(where=where) | Delete(where=where):
            yield where
        case Update():
            yield from (one.value for one in action.assignments)
            yield action.where
        case Merge():
            yield action.on
            for clause in action.clauses:
                yield clause.condition
                yield from (one.value for one in clause.assignments or ())
        case AlterTable(_, changes):
            yield from (change.condition for change in changes if isinstance(change, AddConstraint))
