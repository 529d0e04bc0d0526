"""Syntax trees of sqlglot: which nodes are allowed, and the names and types in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlglot import exp

from deltars.errors import ValidationError
from deltars.predicate.source import FLATTEN, Source
from deltars.protocol import PrimitiveType

_TYPES = {
    exp.DType.BOOLEAN: "boolean",
    exp.DType.TINYINT: "byte",
    exp.DType.SMALLINT: "short",
    exp.DType.INT: "integer",
    exp.DType.BIGINT: "long",
    exp.DType.FLOAT: "float",
    exp.DType.DOUBLE: "double",
    exp.DType.DATE: "date",
    exp.DType.TIMESTAMP: "timestamp",
    exp.DType.TIMESTAMPTZ: "timestamp",
    exp.DType.TIMESTAMPLTZ: "timestamp",
    exp.DType.TIMESTAMPNTZ: "timestamp_ntz",
    exp.DType.TEXT: "string",
    exp.DType.BINARY: "binary",
}
_FIRST = "Run the query first, and write its result as literals: id IN (1, 2, 3)."
_LITERAL = "Write the literal in its place."
_ILLEGAL: tuple[tuple[type[exp.Expr], str, str], ...] = (
    (exp.Query, "a subquery is not allowed in a where", _FIRST),
    (exp.Subquery, "a subquery is not allowed in a where", _FIRST),
    (exp.Window, "a window function is not allowed in a where", "Compute it in a query: catalog.sql(…)."),
    (exp.AggFunc, "an aggregate is not allowed in a where", "Compute it in a query: catalog.sql(…)."),
    (exp.Placeholder, "a parameter is not allowed in a where", _LITERAL),
    (exp.Parameter, "a parameter is not allowed in a where", _LITERAL),
    (exp.Star, "* is not a column", "Write the name of a column."),
)


def check_legal(source: Source, tree: exp.Expr) -> None:
    """Raise `PredicateError` for SQL that is not allowed in a condition or an expression."""
    for kind, problem, hint in _ILLEGAL:
        illegal = tree.find(kind)
        if illegal is not None:
            raise source.error(problem.replace("a where", source.what), illegal, hint=hint)


@contextmanager
def not_too_deep(source: Source) -> Iterator[None]:
    """Raise `PredicateError` if the text is nested so deeply that the block exceeds Python's recursion limit."""
    try:
        yield
    except RecursionError:
        raise source.error_at("nested too deeply", 0, hint=FLATTEN) from None


def operands(node: exp.Expr, kind: type[exp.Expr]) -> list[exp.Expr]:
    """Return the operands of a chain of one operator, left to right. It does not recurse, so a chain may be long."""
    found: list[exp.Expr] = []
    while isinstance(node, kind):
        found.append(node.args["expression"])
        node = node.this
    return [node, *reversed(found)]


def names_of(node: exp.Expr) -> list[exp.Identifier]:
    """Return the names in a.b.c, left to right; empty if the node is not such a chain."""
    after: list[exp.Identifier] = []
    while isinstance(node, exp.Dot):
        if not isinstance(node.expression, exp.Identifier):
            return []
        after.append(node.expression)
        node = node.this
    if not isinstance(node, exp.Column):
        return []
    parts = [node.args.get(part) for part in ("catalog", "db", "table", "this")]
    return [*(part for part in parts if isinstance(part, exp.Identifier)), *reversed(after)]


def delta_type(node: exp.DataType) -> PrimitiveType | None:
    if node.this == exp.DType.DECIMAL:
        try:
            sizes = [int(size.name) for size in node.expressions]
            return PrimitiveType.decimal(*(sizes + [10, 0][len(sizes) :]))
        except (ValidationError, ValueError):
            return None
    name = _TYPES.get(node.this)
    return PrimitiveType(name) if name else None
