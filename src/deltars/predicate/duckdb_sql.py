"""A query in Spark's SQL, in the SQL of DuckDB, and whether DuckDB gives the same rows.

    tree ──each table renamed──▶ transpiled by sqlglot ──▶ text for DuckDB
      └──types by sqlglot──▶ only operations on types where both agree? ──no──▶ doubt: what may differ

The list is of what agrees, so an operation that was never compared is a doubt. Among what differs: division by zero,
decimals in arithmetic, LIKE's escapes, regular expressions, letters' case, time zones, the order of dates in text, the
order of lists and structs with nulls inside, and the sign of a zero that represents a group.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from sqlglot import ErrorLevel, exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.qualify import qualify

from deltars.protocol import StructType


@dataclass(frozen=True, slots=True)
class DuckDBText:
    """A query in DuckDB's SQL, with the n-th table named `table_n`."""

    sql: str
    doubt: str | None
    """What DuckDB may compute otherwise than Spark; None if the rows are the same."""


class Untranslatable(Exception):
    """The query has no form in DuckDB's SQL."""


_BINARY = ("this", "expression")
_OF_QUERIES = ("with_", "order", "limit", "offset")
_PARTS: Mapping[type[exp.Expr], Sequence[str]] = {
    exp.Select: (*_OF_QUERIES, "distinct", "expressions", "from_", "joins", "where", "group", "having"),
    exp.Subquery: (*_OF_QUERIES, "this", "alias"),
    **dict.fromkeys((exp.Union, exp.Intersect, exp.Except), (*_OF_QUERIES, *_BINARY, "distinct")),
    exp.With: ("expressions",),
    exp.CTE: ("this", "alias"),
    exp.From: ("this",),
    exp.Join: ("this", "on", "side", "kind", "using"),
    exp.Table: ("this", "alias", "db", "catalog"),
    exp.TableAlias: ("this", "columns"),
    exp.Where: ("this",),
    exp.Group: ("expressions",),
    exp.Having: ("this",),
    exp.Order: ("expressions",),
    exp.Ordered: ("this", "desc", "nulls_first"),
    exp.Limit: ("expression",),
    exp.Offset: ("expression",),
    exp.Distinct: ("expressions",),
    exp.Alias: ("this", "alias"),
    exp.Identifier: ("this", "quoted"),
    exp.Column: ("this", "table", "db", "catalog"),
    exp.Star: (),
    exp.Literal: ("this", "is_string"),
    exp.Boolean: ("this",),
    exp.Null: (),
    exp.In: ("this", "expressions", "query"),
    exp.Between: ("this", "low", "high"),
    exp.Coalesce: ("this", "expressions", "is_nvl", "is_null"),
    exp.Case: ("ifs", "default"),
    exp.If: ("this", "true", "false"),
    exp.Div: (*_BINARY, "typed", "safe"),
    exp.Count: ("this", "big_int"),
    **dict.fromkeys((exp.Paren, exp.Exists, exp.Not, exp.Neg, exp.Sum, exp.Avg, exp.Min, exp.Max), ("this",)),
    **dict.fromkeys((exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ), _BINARY),
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul, exp.And, exp.Or, exp.Is, exp.Like), _BINARY),
}
"""The operations that are the same in both, on the types that are checked below, with the parts that were compared."""
_CLAUSES = (exp.Query, exp.Table, exp.Join, exp.Limit, exp.Order, exp.Ordered, exp.With, exp.CTE)
_TRANSLATED = ("laterals", "windows", "qualify", "sample", "pivots", "joins", "this", "recursive", "method", "hint")
"""Parts of clauses that have a form in DuckDB's SQL, though perhaps not the same rows. sqlglot drops some others."""
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.In, exp.Between)
_SAME_KIND = (*_COMPARISONS, exp.Coalesce, exp.Case, exp.If)
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Neg, exp.Div)
_CONDITIONAL = (exp.Where, exp.Having, exp.Join, exp.And, exp.Or, exp.Not, exp.If)
"""What takes a condition; DuckDB also takes a number, which Spark refuses."""
_ANY_TYPE = (exp.Select, exp.Ordered, exp.Group, exp.Count, exp.Min, exp.Max, exp.Is, exp.Subquery)
"""The operations that are the same for values of any type."""

_KINDS = {
    exp.DType.TINYINT: "number",
    exp.DType.SMALLINT: "number",
    exp.DType.INT: "number",
    exp.DType.BIGINT: "number",
    exp.DType.DOUBLE: "number",
    exp.DType.DECIMAL: "decimal",
    exp.DType.TEXT: "string",
    exp.DType.VARCHAR: "string",
    exp.DType.DATE: "date",
    exp.DType.BOOLEAN: "boolean",
    exp.DType.NULL: "null",
    exp.DType.TIMESTAMP: "timestamp",
    exp.DType.TIMESTAMPTZ: "timestamp",
    exp.DType.TIMESTAMPLTZ: "timestamp",
}
_NESTED = (exp.DType.ARRAY, exp.DType.LIST, exp.DType.STRUCT, exp.DType.MAP, exp.DType.VARIANT)
_FLOATING = (exp.DType.FLOAT, exp.DType.DOUBLE)
_NARROW = (exp.DType.TINYINT, exp.DType.SMALLINT)
_PLAIN_KINDS = ("number", "string", "date", "boolean", "null")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_INSTANT = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}:\d{2}(\.\d{1,6})?(Z|[+-]\d{2}:\d{2})?)?")
_LONGEST_NUMBER = 18


def in_duckdb(statement: exp.Expr, schemas: Mapping[str, StructType], text: str) -> DuckDBText:
    """Return a query whose tables have the names of `schemas`, in DuckDB's SQL. Raise Untranslatable if it has none."""
    lost = next(_lost(statement), None)
    if lost is not None:
        raise Untranslatable(f"it has no {lost}")
    try:
        sql = statement.sql(dialect="duckdb", unsupported_level=ErrorLevel.RAISE)
    except (SqlglotError, RecursionError, ValueError) as error:
        raise Untranslatable(str(error)) from None
    return DuckDBText(sql, next(_doubts(statement, schemas, text), None))


def _lost(statement: exp.Expr) -> Iterator[str]:
    """Yield each clause that the text for DuckDB would not have."""
    for node in statement.walk():
        if isinstance(node, _CLAUSES):
            known = (*_PARTS.get(type(node), ()), *_TRANSLATED)
            yield from (_shown_part(node, name) for name, value in node.args.items() if value and name not in known)
        elif isinstance(node, exp.Fetch):
            yield "FETCH; write LIMIT"


def _doubts(statement: exp.Expr, schemas: Mapping[str, StructType], text: str) -> Iterator[str]:
    if "\\" in text:
        yield "a backslash"
    names = {column.lower() for schema in schemas.values() for column in schema.names}
    defined = {alias.alias.lower() for alias in statement.find_all(exp.Alias)}
    defined |= {part.name.lower() for alias in statement.find_all(exp.TableAlias) for part in (alias, *alias.columns)}
    for node in statement.walk():
        parts = _PARTS.get(type(node))
        if parts is None:
            yield _shown(node)
        elif isinstance(node, exp.Alias) and node.alias.lower() in names and not _names_itself(node):
            yield f"the alias {node.alias}, which is also a column's name"
        elif isinstance(node, exp.Column) and not _is_known(node, names | defined):
            yield f"{node.name}, which is no column"
        else:
            yield from filter(None, [_doubt_of_shape(node)])
            yield from (_shown_part(node, name) for name, value in node.args.items() if value and name not in parts)
    types: dict[str, object] = {
        name: {column.name: str(column.type) for column in schema.fields} for name, schema in schemas.items()
    }
    try:
        typed = qualify(
            statement.copy(), schema=types, dialect="spark", validate_qualify_columns=False, quote_identifiers=False
        )
        typed = annotate_types(typed, schema=types, dialect="spark")
    except (SqlglotError, RecursionError, KeyError, ValueError, AttributeError) as error:
        yield f"types that are not known: {error}"
        return
    for node in typed.walk():
        yield from filter(None, [_doubt_of_types(node)])


def _names_itself(alias: exp.Alias) -> bool:
    return isinstance(alias.this, exp.Column) and alias.this.name.lower() == alias.alias.lower()


def _is_known(column: exp.Column, names: Set[str]) -> bool:
    """Return whether a column is one, and not a function without parentheses, such as `user`."""
    return isinstance(column.this, exp.Star) or bool(column.table) or column.name.lower() in names


def _doubt_of_shape(node: exp.Expr) -> str | None:
    match node:
        case exp.Join() if node.method or node.kind in ("SEMI", "ANTI") or node.args.get("match_condition"):
            return f"a {node.method or node.kind} join"
        case exp.Join() if node.args.get("using") and node.side in ("RIGHT", "FULL"):
            return f"a {node.side} join with USING"
        case exp.Star() if any(node.args.values()):
            return "* with a list of columns"
        case exp.Star() if not isinstance(node.parent, exp.Count) and _has_using(node):
            return "* of a join with USING, whose columns are in another order"
        case exp.Case() if node.this is not None:
            return "CASE with a value"
        case exp.Distinct() if isinstance(node.parent, exp.Count) and len(node.expressions) > 1:
            return "DISTINCT over several columns"
        case exp.Count() if any(star is not node.this for star in node.find_all(exp.Star)):
            return "count of several columns"
        case exp.Literal() if not node.is_string and len(node.name) > _LONGEST_NUMBER:
            return f"the number {node.name}"
        case exp.Literal() if not node.is_string and not node.name.isdigit() and not _is_compared(node):
            return f"arithmetic with {node.name}"
        case exp.Limit() | exp.Offset() if not isinstance(node.expression, exp.Literal):
            return "a LIMIT that is computed"
        case exp.Div() if not (isinstance(node.expression, exp.Literal) and node.expression.name.strip("0")):
            return "a division, which may be by zero"
    return None


def _has_using(star: exp.Star) -> bool:
    select = star.find_ancestor(exp.Select)
    return select is not None and any(join.args.get("using") for join in select.args.get("joins") or ())


def _is_compared(node: exp.Expr) -> bool:
    parent = node.parent
    while isinstance(parent, exp.Paren | exp.Neg):
        parent = parent.parent
    return isinstance(parent, _COMPARISONS)


def _doubt_of_types(node: exp.Expr) -> str | None:
    if isinstance(node, _ARITHMETIC) and any(_kind(part) != "number" for part in _operands(node)):
        return f"arithmetic on other types: {_shown(node)}"
    if isinstance(node, _ARITHMETIC) and any(_has_type(part, _NARROW) for part in _operands(node)):
        return f"arithmetic on bytes or shorts, which overflows: {_shown(node)}"
    if any(_has_type(value, (*_NESTED, *_FLOATING)) for value in _grouped(node)):
        return "groups of floating-point or nested values"
    if any(_has_type(value, _NESTED) for value in _ordered(node)):
        return "the order of nested values"
    if isinstance(node, exp.Sum | exp.Avg):
        allowed = ("number", "decimal") if isinstance(node, exp.Sum) else ("number",)
        if _kind(node.this.expressions[0] if isinstance(node.this, exp.Distinct) else node.this) not in allowed:
            return _shown(node)
    if isinstance(node, _CONDITIONAL) and any(_kind(part) not in ("boolean", "null") for part in _conditions(node)):
        return "a condition that is not a boolean"
    if isinstance(node, exp.Like) and not (_kind(node.this) == "string" and isinstance(node.expression, exp.Literal)):
        return _shown(node)
    if isinstance(node, exp.Is) and isinstance(node.expression, exp.Boolean) and _kind(node.this) != "boolean":
        return "a condition that is not a boolean"
    if isinstance(node, _SAME_KIND):
        return None if _agree(_operands(node)) else f"a comparison of two types: {_shown(node)}"
    if isinstance(node, exp.SetOperation):
        pairs = zip(node.left.selects, node.right.selects, strict=False)
        if any(not _agree(pair) or not _is_plain(pair) for pair in pairs):
            return "columns of two types in one"
    if isinstance(node, exp.Column) and _kind(node) not in _PLAIN_KINDS and not _is_for_any_type(node):
        return f"{node.sql('spark')} of type {node.type}"
    return None


def _conditions(node: exp.Expr) -> list[exp.Expr]:
    if isinstance(node, exp.Join):
        on = node.args.get("on")
        return [] if on is None else [on]
    return [node.this, node.expression] if isinstance(node, exp.And | exp.Or) else [node.this]


def _grouped(node: exp.Expr) -> Sequence[exp.Expr]:
    """Return the values that are compared as groups: one represents all equal ones. For −0.0, Spark takes 0.0."""
    match node:
        case exp.Group():
            return [_selected(value) for value in node.expressions]
        case exp.Select() | exp.SetOperation() if node.args.get("distinct"):
            return node.selects
    return ()


def _ordered(node: exp.Expr) -> Sequence[exp.Expr]:
    """Return the values whose order decides the rows. Inside a list or a struct, DuckDB orders nulls otherwise."""
    return [_selected(node.this)] if isinstance(node, exp.Ordered | exp.Min | exp.Max) else ()


def _selected(value: exp.Expr) -> exp.Expr:
    """Return the expression that an alias or a position of the SELECT list means; else the value itself."""
    select = value.find_ancestor(exp.Select)
    if isinstance(value, exp.Literal) and select is not None and value.name.isdigit():
        return next(iter(select.selects[int(value.name) - 1 : int(value.name)]), value)
    if isinstance(value, exp.Column) and not value.table and select is not None:
        return next((one for one in select.selects if one.alias_or_name.lower() == value.name.lower()), value)
    return value


def _has_type(value: exp.Expr, types: Sequence[exp.DType]) -> bool:
    value = value.unalias().unnest()
    return value.type is not None and value.type.this in types


def _is_for_any_type(column: exp.Column) -> bool:
    parent = column.parent
    while isinstance(parent, exp.Paren | exp.Alias | exp.Distinct):
        parent = parent.parent
    if isinstance(parent, _COMPARISONS):
        return True  # checked there
    return isinstance(parent, _ANY_TYPE) or (isinstance(parent, exp.Sum) and _kind(column) == "decimal")


def _operands(node: exp.Expr) -> list[exp.Expr]:
    match node:
        case exp.In():
            query = node.args.get("query")
            return [node.this, *(node.expressions or query.unnest().selects if query is not None else node.expressions)]
        case exp.Between():
            return [node.this, node.args["low"], node.args["high"]]
        case exp.Case():
            values = [branch.args["true"] for branch in node.args["ifs"]]
            default = node.args.get("default")
            return [*values, *([] if default is None else [default])]
        case exp.If():
            default = node.args.get("false")
            return [node.args["true"], *([] if default is None else [default])]
        case exp.Coalesce():
            return [node.this, *node.expressions]
        case exp.Neg():
            return [node.this]
    return [node.this, node.expression]


def _agree(values: Sequence[exp.Expr]) -> bool:
    """Return whether values are compared in one type, which both engines choose."""
    kinds = {_kind(value) for value in values} - {"null"}
    if kinds <= {"number", "decimal"} or (len(kinds) == 1 and kinds <= {*_PLAIN_KINDS, "timestamp"}):
        return True
    texts = [value.unnest() for value in values if _kind(value) == "string"]
    form = {frozenset({"date", "string"}): _DATE, frozenset({"timestamp", "string"}): _INSTANT}.get(frozenset(kinds))
    return form is not None and all(isinstance(text, exp.Literal) and form.fullmatch(text.name) for text in texts)


def _is_plain(values: Sequence[exp.Expr]) -> bool:
    return all(_kind(value) in _PLAIN_KINDS for value in values)


def _kind(value: exp.Expr) -> str:
    if isinstance(value, exp.Alias | exp.Paren):
        return _kind(value.this)
    if isinstance(value, exp.Boolean | exp.Predicate | exp.And | exp.Or | exp.Not):
        return "boolean"
    kind = value.type
    if kind is None:
        return "unknown"
    return _KINDS.get(kind.this, "other") if not kind.expressions or kind.this == exp.DType.DECIMAL else "other"


def _shown_part(node: exp.Expr, name: str) -> str:
    """Return a part of a node as text; the node, if the part is a mere flag."""
    value = node.args[name]
    first = value[0] if isinstance(value, list) else value
    return _shown(first if isinstance(first, exp.Expr) else node).strip()


def _shown(node: exp.Expr) -> str:
    # Spark has no words for a clause of another dialect.
    text = node.sql(dialect="spark", unsupported_level=ErrorLevel.IGNORE) or node.key.upper()
    return text if len(text) <= 60 else f"{text[:59]}…"
