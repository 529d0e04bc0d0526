"""Expressions of generated columns, of defaults and of row-level changes, for computing them without Spark.

    text ──sqlglot──▶ syntax tree ──bind names──▶ Expression = Column | Given | Call | Case | Truth

It covers the functions that are common for such expressions. Everything else raises `only_spark`, and Spark, which
supports the whole language, must do the work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any, Literal, TypeAlias

from sqlglot import exp

from deltars.errors import PredicateError, SchemaMismatch, brief
from deltars.predicate import literals
from deltars.predicate.literals import Misfit, cast
from deltars.predicate.parser import Binder, hint_for
from deltars.predicate.sides import Sides
from deltars.predicate.source import Source
from deltars.predicate.syntax import check_legal, delta_type, not_too_deep
from deltars.predicate.tree import Column, Predicate, Unknown, columns_of, leaves_of, negation
from deltars.protocol import DataType, PrimitiveType, StructType

Function: TypeAlias = Literal[
    "+", "-", "*", "%", "cast", "year", "quarter", "month", "day", "hour", "date_trunc", "concat", "coalesce",
    "substring", "current_date", "current_timestamp", "/", "negate", "not", "<=>", "=", "<>", "<", "<=", ">", ">=",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Given:
    """A literal."""

    kind: str
    """The name of its type; `decimal` for every decimal type, `void` for NULL."""
    value: Any


@dataclass(frozen=True, slots=True)
class Call:
    function: Function
    arguments: tuple[Expression, ...] = ()
    to: PrimitiveType | None = None
    """The target type of a cast."""


@dataclass(frozen=True, slots=True)
class Case:
    """The value of the first branch whose condition is true, or else `otherwise`."""

    branches: tuple[tuple[Truth, Expression], ...]
    otherwise: Expression


@dataclass(frozen=True, slots=True)
class Truth:
    """A condition: TRUE, FALSE or NULL."""

    predicate: Predicate
    computed: tuple[tuple[Unknown, Expression], ...] = ()
    """The value of each `Unknown` part of the predicate, such as a comparison of two columns."""


Expression: TypeAlias = Column | Given | Call | Case | Truth

_ARITHMETIC: dict[type[exp.Expr], Function] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Mod: "%", exp.Div: "/",
}  # fmt: skip
_COMPARISONS: dict[type[exp.Expr], Function] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.NullSafeEQ: "<=>",
}  # fmt: skip
_CONDITIONS = (
    *_COMPARISONS, exp.And, exp.Or, exp.Not, exp.Is, exp.In, exp.Between, exp.Like, exp.Escape, exp.StartsWith,
    exp.NullSafeNEQ,
)  # fmt: skip
_PARTS: dict[type[exp.Expr], Function] = {
    exp.Year: "year", exp.Quarter: "quarter", exp.Month: "month", exp.Day: "day", exp.DayOfMonth: "day",
    exp.Hour: "hour",
}  # fmt: skip
_DATE = PrimitiveType("date")
_NON_DETERMINISTIC = (exp.Rand, exp.Randn, exp.Uuid, exp.CurrentTimestamp, exp.CurrentDate, exp.CurrentUser)
_NON_DETERMINISTIC_NAMES = frozenset(
    {"now", "uuid", "rand", "randn", "random", "shuffle", "monotonically_increasing_id"}
)


def only_spark(what: str) -> PredicateError:
    """Return the error, without a position, for an expression that only Spark can compute."""
    return PredicateError(
        f"only Spark can compute {what}",
        field="expression",
        hint="Write the rows as a Spark DataFrame, or use only the documented functions in the expression.",
    )


def parse_expression(sql: str, schema: StructType | Sides) -> Expression:
    """Return the parsed expression on columns of the schema, or of the sides of a merge."""
    binder = _ExpressionBinder(sql, schema)
    with not_too_deep(binder.source):
        return binder.expression(binder.checked())


_NO_CAST = ("string", "variant", "void")


def cast_text(sql: str, type_: DataType, column: str) -> str:
    """Return a text in quotes as a CAST to the type of the column that it is assigned to, and other SQL as it is.

    As in delta-spark, '2026-01-31' is a date for a column of dates. A column of texts is no such value: whether it fits
    would depend on the rows. Raise `SchemaMismatch` for a text that is no value of the type.
    """
    if not isinstance(type_, PrimitiveType) or type_.name in _NO_CAST or sql.lstrip("( ")[:1] not in ("'", '"'):
        return sql
    try:
        value = parse_expression(sql, StructType())
    except PredicateError:
        return sql
    if not isinstance(value, Given) or value.kind != "string":
        return sql
    try:
        if cast(literals.Literal("string", value.value), type_, UTC) is None:
            return sql  # The session's settings decide what Spark makes of it.
    except Misfit:
        raise SchemaMismatch(
            f"the value {brief(value.value)} for column {column} cannot be cast to {str(type_).upper()} because it is"
            " malformed",
            field=column,
            hint=hint_for(type_),
        ) from None
    return f"CAST({sql} AS {type_})"


def parse_truth(sql: str, schema: StructType | Sides) -> Truth:
    """Return the parsed condition. Unlike `parse`, it can have computed parts; all of them can be computed here."""
    binder = _ExpressionBinder(sql, schema)
    with not_too_deep(binder.source):
        return binder.truth(binder.checked())


def columns_in(expression: Expression) -> Iterator[Column]:
    """Yield the columns that it reads."""
    match expression:
        case Column():
            yield expression
        case Call(_, arguments):
            for argument in arguments:
                yield from columns_in(argument)
        case Case(branches, otherwise):
            for truth, value in branches:
                yield from columns_in(truth)
                yield from columns_in(value)
            yield from columns_in(otherwise)
        case Truth(predicate):
            yield from columns_of(predicate)


def parse_default(sql: str, type_: DataType) -> Given | Call:
    """Return the default as a value of the column's type: a literal, or the time of the write."""
    binder = _ExpressionBinder(sql, StructType())
    with not_too_deep(binder.source):
        return binder.default(binder.checked(), type_)


def check_expression(sql: str, schema: StructType, *, is_steady: bool = True) -> frozenset[str]:
    """Return the names of the columns in an expression. `is_steady`: its value may depend on them alone."""
    binder = _ExpressionBinder(sql, schema)
    tree = binder.checked()
    for node in tree.walk() if is_steady else ():
        name = str(node.this).lower() if isinstance(node, exp.Anonymous) else ""
        if isinstance(node, _NON_DETERMINISTIC) or name in _NON_DETERMINISTIC_NAMES:
            raise PredicateError(f"{sql}: the expression of a generated column must be deterministic", field=sql)
    return frozenset(binder.columns(tree))


def columns_used(sql: str, schema: StructType) -> frozenset[tuple[str, ...]]:
    """Return the paths of the columns in an expression or a condition."""
    binder = _ExpressionBinder(sql, schema)
    return frozenset(binder.paths(binder.checked()))


class _ExpressionBinder(Binder):
    def __init__(self, sql: str, schema: StructType | Sides) -> None:
        super().__init__(Source(sql, "expression"), schema, UTC)
        self._nodes: dict[Unknown, exp.Expr] = {}

    def checked(self) -> exp.Expr:
        tree = self._source.condition()
        check_legal(self._source, tree)
        return tree

    def columns(self, tree: exp.Expr) -> list[str]:
        return [path[0] for path in self.paths(tree)]

    def paths(self, tree: exp.Expr) -> list[tuple[str, ...]]:
        return [column.path for column in self._unknown(tree).columns]

    def default(self, node: exp.Expr, type_: DataType) -> Given | Call:
        if _is_call(node, "now") or isinstance(node, exp.CurrentTimestamp | exp.CurrentDate):
            return Call("current_date" if isinstance(node, exp.CurrentDate) else "current_timestamp")
        literal = self._literal(node)
        if literal is None or not isinstance(type_, PrimitiveType):
            raise only_spark(node.sql("spark"))
        try:
            fitted = cast(literal, type_, UTC)
        except Misfit:
            raise self._source.error(f"the default is not a valid {type_}", node, hint=hint_for(type_)) from None
        if fitted is None:
            raise only_spark(node.sql("spark"))
        return Given(fitted.kind, fitted.value)

    def expression(self, node: exp.Expr) -> Expression:
        if isinstance(node, exp.Paren):
            return self.expression(node.this)
        literal = self._literal(node)
        if literal is not None:
            return Given(literal.kind, literal.value)
        column = self._column(node)
        if column is not None:
            return column
        if type(node) in _ARITHMETIC:
            return self._call(_ARITHMETIC[type(node)], [node.this, node.expression])
        if isinstance(node, _CONDITIONS):
            return self.truth(node)
        if type(node) in _PARTS:
            # sqlglot converts the argument to a date first, which does not change the result.
            inner = node.this
            return self._call(_PARTS[type(node)], [inner.this if isinstance(inner, exp.TsOrDsToDate) else inner])
        return self._function(node)

    def truth(self, node: exp.Expr) -> Truth:
        predicate = self.condition(node)
        unknown = [leaf for leaf in leaves_of(predicate) if isinstance(leaf, Unknown)]
        return Truth(predicate, tuple((leaf, self._computed(leaf)) for leaf in unknown))

    def _unknown(self, node: exp.Expr) -> Unknown:
        found = super()._unknown(node)
        self._nodes[found] = node
        return found

    def _computed(self, leaf: Unknown) -> Expression:
        if leaf not in self._nodes:
            opposite = negation(leaf)
            assert isinstance(opposite, Unknown)
            return Call("not", (self._computed(opposite),))
        node = self._nodes[leaf]
        is_ordered = not any(column.path in self._unordered for column in leaf.columns)
        if type(node) in _COMPARISONS and is_ordered:
            return self._call(_COMPARISONS[type(node)], [node.this, node.expression])
        raise only_spark(leaf.sql)

    def _function(self, node: exp.Expr) -> Expression:
        match node:
            case exp.Neg():
                return self._call("negate", [node.this])
            case exp.Case() if node.this is None:
                return self._case(node.args["ifs"], node.args.get("default"))
            case exp.If():
                return self._case([node], node.args.get("false"))
            case exp.Cast() if not node.args.get("safe") and (type_ := delta_type(node.to)) is not None:
                return Call("cast", (self.expression(node.this),), type_)
            case exp.TsOrDsToDate() if node.args.get("format") is None:
                return Call("cast", (self.expression(node.this),), _DATE)
            case exp.TimestampTrunc():
                unit = str(node.args["unit"].this).lower()
                return Call("date_trunc", (Given("string", unit), self.expression(node.this)))
            case exp.Concat():
                return self._call("concat", node.expressions)
            case exp.DPipe():
                return self._call("concat", [node.this, node.expression])
            case exp.Coalesce():
                return self._call("coalesce", [node.this, *node.expressions])
            case exp.Substring() if node.args.get("start") is not None and node.args.get("length") is not None:
                return self._call("substring", [node.this, node.args["start"], node.args["length"]])
        raise only_spark(node.sql("spark"))

    def _case(self, branches: Sequence[exp.Expr], otherwise: exp.Expr | None) -> Case:
        return Case(
            tuple((self.truth(branch.this), self.expression(branch.args["true"])) for branch in branches),
            Given("void", None) if otherwise is None else self.expression(otherwise),
        )

    def _call(self, function: Function, arguments: Sequence[exp.Expr]) -> Call:
        return Call(function, tuple(map(self.expression, arguments)))


def _is_call(node: exp.Expr, name: str) -> bool:
    return isinstance(node, exp.Anonymous) and str(node.this).lower() == name
