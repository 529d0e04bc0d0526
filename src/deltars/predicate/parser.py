"""Parser of a `where` into a predicate on the columns of one table.

    text ──sqlglot──▶ syntax tree ──bind names, fit literals, push NOT down──▶ Predicate

sqlglot knows Spark's grammar, but not the table. Conditions that only Spark can evaluate (functions, comparisons of two
columns, casts of columns) become `Unknown`; their columns must exist too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import tzinfo
from decimal import Decimal
from difflib import get_close_matches
from functools import lru_cache
from itertools import chain, repeat

from sqlglot import exp

from deltars.errors import PredicateError, ValidationError
from deltars.predicate.literals import MAX_DIGITS, Literal, Misfit, cast, fit, negated, number_literal, zone_of
from deltars.predicate.long_lists import ListNeededError, Lists, literal_of, shortened
from deltars.predicate.sides import Sides
from deltars.predicate.source import Source
from deltars.predicate.strings import like_prefix, with_backslashes
from deltars.predicate.syntax import check_legal, delta_type, names_of, not_too_deep, operands
from deltars.predicate.tree import (
    FALSE,
    MIRRORED,
    NULL,
    Column,
    Comparison,
    Constant,
    In,
    IsNull,
    Like,
    Operator,
    Predicate,
    StartsWith,
    Unknown,
    Value,
    conjunction,
    disjunction,
    negation,
)
from deltars.protocol import ArrayType, DataType, MapType, PrimitiveType, SchemaKey, StructField, StructType
from deltars.protocol.char_varchar import CHAR_VARCHAR

_OPERATORS: dict[type[exp.Expr], Operator] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
}  # fmt: skip
_SHOWN = 60
"""Most characters of a literal that an error quotes."""
COMPARE = "Compare it: id = 1, name IS NOT NULL."
_COLLATIONS = "__COLLATIONS"
_VARCHAR = re.compile(r"varchar\(\d+\)", re.IGNORECASE)


MAX_KEPT = 200
MAX_KEPT_TEXT = 1_000
"""A longer text is parsed at each use: it is a list of values that hardly comes twice."""


def parse(where: str, schema: StructType | Sides, *, zone: str = "UTC", field: str = "where") -> Predicate:
    """Return the condition on columns of the schema. `zone` is the time zone of literals that have none.

    `field` is what errors call the condition. On the sides of a merge, the path of a column begins with its alias.
    """
    if type(where) is str and len(where) <= MAX_KEPT_TEXT and isinstance(schema, StructType) and type(zone) is str:
        return _kept(where, SchemaKey(schema), zone, field)
    return _parsed(where, schema, zone, field)


@lru_cache(maxsize=MAX_KEPT)
def _kept(where: str, key: SchemaKey, zone: str, field: str) -> Predicate:
    # A condition follows from nothing else: words such as CURRENT_DATE are left to Spark. Errors are not kept.
    return _parsed(where, key.schema, zone, field)


def _parsed(where: str, schema: StructType | Sides, zone: str, field: str) -> Predicate:
    found = zone_of(zone)
    if found is None:
        raise ValidationError(
            f"there is no time zone {zone!r}", field="zone", hint="Use a name such as UTC or Europe/Berlin."
        )
    source = Source(where, field)
    short, lists = shortened(where)
    if lists:
        try:
            binder = Binder(Source(short, field), schema, found, lists)
            predicate = binder.bound(binder.source.condition())
            if binder.lists_taken == lists.keys():
                return predicate
        except (ListNeededError, PredicateError):
            # The whole text may be valid. If not, only its error has the right position.
            pass
    return bind(source, source.condition(), schema, found)


def bind(source: Source, tree: exp.Expr, schema: StructType | Sides, zone: tzinfo) -> Predicate:
    """Return the predicate of a condition within a larger text, on columns of the schema."""
    return Binder(source, schema, zone).bound(tree)


_TIMES = tuple(map(PrimitiveType, ("date", "timestamp", "timestamp_ntz")))


class Binder:
    """Converter of a syntax tree to a predicate, with names bound to the columns of a schema."""

    def __init__(self, source: Source, schema: StructType | Sides, zone: tzinfo, lists: Lists | None = None) -> None:
        """Create a binder. `lists` are the lists that `shortened` removed from the source's text."""
        self.source = self._source = source
        self._sides = schema if isinstance(schema, Sides) else None
        self._schema = schema.schema if isinstance(schema, Sides) else schema
        self._zone = zone
        self._lists = lists or {}
        self.lists_taken: set[int] = set()
        self._unordered: set[tuple[str, ...]] = set()

    def bound(self, tree: exp.Expr) -> Predicate:
        check_legal(self._source, tree)
        with not_too_deep(self._source):
            return self.condition(tree)

    # -- conditions --------------------------------------------------------------------------------------------------

    def condition(self, node: exp.Expr) -> Predicate:
        match node:
            case exp.Paren():
                return self.condition(node.this)
            case exp.And():
                return conjunction(map(self.condition, operands(node, exp.And)))
            case exp.Or():
                return disjunction(map(self.condition, operands(node, exp.Or)))
            case exp.Not():
                return negation(self.condition(node.this))
            case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
                return self._comparison(node, node.this, _OPERATORS[type(node)], node.expression)
            case exp.NullSafeEQ():
                return self._null_safe(node)
            case exp.NullSafeNEQ():
                return negation(self._null_safe(node))
            case exp.Between() if not node.args.get("symmetric"):
                low = self._comparison(node, node.this, ">=", node.args["low"])
                high = self._comparison(node, node.this, "<=", node.args["high"])
                return conjunction([low, high])
            case exp.In():
                return self._in(node)
            case exp.Is():
                return self._is(node)
            case exp.Like() | exp.Escape():
                return self._like(node)
            case exp.StartsWith():
                return self._starts_with(node)
            case exp.Anonymous() if str(node.this).lower() in ("isnull", "isnotnull") and len(node.expressions) == 1:
                null = self._null(node, node.expressions[0])
                return null if str(node.this).lower() == "isnull" else negation(null)
        return self._bare(node)

    def _bare(self, node: exp.Expr) -> Predicate:
        """Return the predicate of a value that is itself a condition."""
        literal = self._literal(node)
        if literal is not None:
            if literal.kind not in ("boolean", "void"):
                raise self._source.error("not a condition", node, hint=COMPARE)
            return Constant(literal.value)
        column = self._column(node)
        if column is None:
            return self._unknown(node)
        if column.type != PrimitiveType("boolean"):
            raise self._source.error(f"{column} is of type {column.type}, not a condition", node, hint=COMPARE)
        return Comparison(column, "=", True)

    def _comparison(self, node: exp.Expr, left: exp.Expr, operator: Operator, right: exp.Expr) -> Predicate:
        self._refuse_number(left, right)
        self._refuse_number(right, left)
        value = self._literal(right)
        if value is None:
            value, left, right, operator = self._literal(left), right, left, MIRRORED[operator]
        if value is None:
            return self._unknown(node)
        other = self._literal(left)
        if other is not None:
            return _between_literals(other, operator, value) or self._unknown(node)
        column = self._column(left)
        if column is None:
            return self._unknown(node)
        if value.kind == "void":
            return NULL
        fitted = self._fit(column, operator, value, right)
        return self._unknown(node) if fitted is None else Comparison(column, *fitted)

    def _null_safe(self, node: exp.Expr) -> Predicate:
        """Convert `a <=> 1` to `a = 1 AND a IS NOT NULL`, which is FALSE where `a = 1` would be NULL."""
        left, right = self._literal(node.this), self._literal(node.expression)
        if left is not None and right is not None:
            if "void" in (left.kind, right.kind):
                return Constant(left.kind == right.kind)
            return _between_literals(left, "=", right) or self._unknown(node)
        side, literal = (node.this, right) if left is None else (node.expression, left)
        column = self._column(side)
        if column is None or literal is None:
            return self._unknown(node)
        if literal.kind == "void":
            return IsNull(column)
        equal = self._comparison(node, node.this, "=", node.expression)
        return equal if isinstance(equal, Unknown) else conjunction([equal, IsNull(column, negated=True)])

    def _in(self, node: exp.In) -> Predicate:
        column = self._column(node.this)
        for item in node.expressions:
            self._refuse_number(node.this, item)
        literals = [self._literal(item) for item in node.expressions]
        if not node.expressions:
            raise self._source.error("IN needs a list of values", node, hint="Write at least one: id IN (1, 2, 3).")
        rest = self._rest_of_list(node)
        try:
            literals += map(literal_of, rest)
        except Misfit:
            raise ListNeededError from None
        if column is None or None in literals:
            return self._unknown(node)
        nulls: list[Predicate] = []
        values: list[Value] = []
        families: set[str] = set()
        for item, literal in zip(chain(node.expressions, repeat(node)), literals, strict=False):
            assert literal is not None
            if literal.kind == "void":
                nulls = [NULL]
                continue
            fitted = self._fit(column, "=", literal, item)
            if fitted is None:
                return self._unknown(node)
            families.add(_family(literal.kind))
            values.append(fitted[1])
        return self._one_of(node, column, values, families, nulls)

    def _rest_of_list(self, node: exp.In) -> Sequence[str]:
        """Return the texts of the values that `shortened` removed from the list."""
        if not self._lists:
            return ()
        first = node.expressions[0]
        place = (first.this if isinstance(first, exp.Neg) else first).meta.get("start", -1)
        if place in self._lists:
            self.lists_taken.add(place)
        return self._lists.get(place, ())

    def _one_of(
        self, node: exp.In, column: Column, values: Sequence[Value], families: set[str], nulls: list[Predicate]
    ) -> Predicate:
        """Return the predicate of an IN list. Spark converts the column and all values to one type first."""
        if any(isinstance(value, float) for value in values):
            values = [float(value) for value in values if isinstance(value, int | float | Decimal)]
        distinct = tuple(dict.fromkeys(values))
        found: Predicate = In(column, distinct) if len(distinct) > 1 else FALSE
        if len(distinct) == 1:
            found = Comparison(column, "=", distinct[0])
        if "string" in families and column.type != PrimitiveType("string"):
            if len(families) > 1:
                return self._unknown(node)
            # Depending on its settings, Spark may compare all as strings: matches are a subset of these rows.
            found = conjunction([found, self._unknown(node)])
        return disjunction([found, *nulls])

    def _is(self, node: exp.Is) -> Predicate:
        if isinstance(node.expression, exp.Literal):
            raise self._source.error(
                "IS takes only NULL, TRUE and FALSE", node.expression, hint="Compare with a value by = or <>."
            )
        what = self._literal(node.expression)
        if what is not None and what.kind == "void":
            return self._null(node, node.this)
        column = self._column(node.this)
        if what is None or what.kind != "boolean" or column is None or column.type != PrimitiveType("boolean"):
            return self._unknown(node)
        return conjunction([Comparison(column, "=", what.value), IsNull(column, negated=True)])

    def _null(self, node: exp.Expr, side: exp.Expr) -> Predicate:
        literal = self._literal(side)
        if literal is not None:
            return Constant(literal.kind == "void")
        column = self._column(side)
        return self._unknown(node) if column is None else IsNull(column)

    def _like(self, node: exp.Expr) -> Predicate:
        like, escape = _like_of(node), node.expression if isinstance(node, exp.Escape) else None
        if not isinstance(like, exp.Like):
            return self._unknown(node)
        is_negated = bool(like.args.get("negate"))
        column, pattern = self._text_column(like.this), self._literal(like.expression)
        mark = self._literal(escape) if escape is not None else Literal("string", "\\")
        if column is None or pattern is None or mark is None or {pattern.kind, mark.kind} != {"string"}:
            return self._unknown(node)
        if mark.value in ("%", "_"):
            return self._unknown(node)
        split = like_prefix(pattern.value, mark.value)
        whole = None if split is None else with_backslashes(pattern.value, mark.value)
        if split is None or whole is None:
            raise self._source.error(
                "the pattern has an invalid escape, or ends with one",
                like.expression,
                hint="Escape only %, _ and the escape character itself.",
            )
        prefix, rest = split
        if rest == "":
            matched: Predicate = Comparison(column, "=", prefix)
        elif rest == "%":
            matched = StartsWith(column, prefix)
        else:
            fits = Like(column, whole)
            matched = conjunction([StartsWith(column, prefix), fits]) if prefix else fits
        return negation(matched) if is_negated else matched

    def _starts_with(self, node: exp.StartsWith) -> Predicate:
        column, prefix = self._text_column(node.this), self._literal(node.expression)
        if column is None or prefix is None or prefix.kind != "string":
            return self._unknown(node)
        return StartsWith(column, prefix.value)

    def _text_column(self, node: exp.Expr) -> Column | None:
        column = self._column(node)
        is_text = column is not None and column.type == PrimitiveType("string") and column.path not in self._unordered
        return column if is_text else None

    def _fit(self, column: Column, operator: Operator, literal: Literal, at: exp.Expr) -> tuple[Operator, Value] | None:
        if column.path in self._unordered:
            return None
        try:
            return fit(literal, column.type, operator, self._zone)
        except Misfit:
            raise self._source.error(
                f"{_shown(at)} is not a valid {column.type}, the type of {column}", at, hint=hint_for(column.type)
            ) from None

    def _refuse_number(self, side: exp.Expr, value: exp.Expr) -> None:
        """Refuse a number where a date or a time is meant, as Spark does. Without quotes, 2026-01-31 is a number."""
        column = self._column(side) if _is_number(value) else None
        if column is not None and column.type in _TIMES:
            problem = f"{column} is of type {column.type} and is compared with a number"
            raise self._source.error(problem, value, hint=hint_for(column.type))

    def _unknown(self, node: exp.Expr) -> Unknown:
        found: dict[Column, None] = {}
        for reference in node.find_all(exp.Column, bfs=False):
            whole: exp.Expr = reference
            while isinstance(whole.parent, exp.Dot) and names_of(whole.parent):
                whole = whole.parent
            found[self._resolve(self._names(whole))] = None
        return Unknown(self._sql(node), tuple(found))

    def _sql(self, node: exp.Expr) -> str:
        if self._lists and isinstance(node, exp.In) and (rest := self._rest_of_list(node)):
            return f"{node.sql(dialect='spark', comments=False)[:-1]}, {', '.join(rest)})"
        if self._lists and node.find(exp.In):
            raise ListNeededError
        return node.sql(dialect="spark", comments=False)

    # -- columns -----------------------------------------------------------------------------------------------------

    def _column(self, node: exp.Expr) -> Column | None:
        if isinstance(node, exp.Paren):
            return self._column(node.this)
        names = self._names(node)
        if not names:
            return None
        column = self._resolve(names)
        return column if len(column.path) == len(names) else None

    def _names(self, node: exp.Expr) -> list[exp.Identifier]:
        """Return the names of a column from the top of the schema; empty if the node is not a column."""
        names = names_of(node)
        return self._sides.qualified(self._source, names) if names and self._sides else names

    def _resolve(self, names: Sequence[exp.Identifier]) -> Column:
        """Return the column with these names. A name inside an array or a map gives the array or map."""
        type_: DataType = self._schema
        path: list[str] = []
        for name in names:
            match type_:
                case StructType():
                    column = self._field(type_, name, path)
                    path.append(column.name)
                    type_ = column.type
                    if _is_unordered(column):
                        self._unordered.add(tuple(path))
                case ArrayType(StructType() as element):
                    self._field(element, name, path)
                    break
                case MapType() | PrimitiveType("variant"):
                    break
                case _:
                    raise self._source.error(
                        f"{'.'.join(path)} is of type {type_} and has no fields", name, hint=f"Write {'.'.join(path)}."
                    )
        return Column(tuple(path), type_)

    def _field(self, type_: StructType, name: exp.Identifier, path: Sequence[str]) -> StructField:
        wanted = name.name.lower()
        found = [column for column in type_.fields if column.name.lower() == wanted]
        if len(found) == 1:
            return found[0]
        within = f" in {'.'.join(path)}" if path else ""
        if found:
            raise self._source.error(
                f"{name.name} is ambiguous{within}: {', '.join(f.name for f in found)}",
                name,
                hint="Names ignore case: write the table again with other names for these columns.",
            )
        near = get_close_matches(wanted, [column.name.lower() for column in type_.fields], n=1)
        known = [column.name for column in type_.fields if column.name.lower() in near] or type_.names
        hint = f"Did you mean {known[0]}?" if near else f"Columns: {', '.join(known[:20]) or 'none'}."
        raise self._source.error(f"there is no column {name.name}{within}", name, hint=hint)

    # -- literals ----------------------------------------------------------------------------------------------------

    def _literal(self, node: exp.Expr) -> Literal | None:
        match node:
            case exp.Paren():
                return self._literal(node.this)
            case exp.Null():
                return Literal("void", None)
            case exp.Boolean():
                return Literal("boolean", bool(node.this))
            case exp.Literal() if node.is_string:
                return Literal("string", self._source.string(node))
            case exp.Literal():
                return self._number(node)
            case exp.Concat() if not node.args.get("safe"):
                # Adjacent strings, not a call of concat().
                return Literal("string", self._source.string(node.expressions[0]))
            case exp.RawString():
                return Literal("string", str(node.this))
            case exp.HexString() if self._source.text[node.meta.get("start", 0)] in "xX":
                digits = str(node.this)
                return Literal("binary", bytes.fromhex(digits.zfill(len(digits) + len(digits) % 2)))
            case exp.Neg() if isinstance(node.this, exp.Cast) and node.this.this.is_number:
                # In -128Y the minus belongs to the literal, because 128Y is out of range.
                return self._cast(node.this, negated(self._number(node.this.this)))
            case exp.Neg():
                inner = self._literal(node.this)
                return None if inner is None else negated(inner)
            case exp.Cast():
                return self._cast(node, self._literal(node.this))
        return None

    def _number(self, node: exp.Expr) -> Literal:
        try:
            return number_literal(str(node.this))
        except Misfit:
            raise self._source.error(
                f"a number must have at most {MAX_DIGITS} digits, or be within the range of a double",
                node,
                hint="Write fewer digits, or an exponent such as e10.",
            ) from None

    def _cast(self, node: exp.Cast, inner: Literal | None) -> Literal | None:
        type_ = delta_type(node.to)
        if inner is None or type_ is None:
            return None
        try:
            return cast(inner, type_, self._zone)
        except Misfit:
            if node.args.get("safe") or str(inner.value).strip().lower() in _MOMENTS:
                return None
            raise self._source.error(
                f"{_shown(node.this)} is not a valid {type_}", node.this, hint=hint_for(type_)
            ) from None


def _is_unordered(column: StructField) -> bool:
    """Return whether strings do not compare by their bytes: with a collation, or with the padding of CHAR."""
    limit = column.metadata.get(CHAR_VARCHAR)
    return _COLLATIONS in column.metadata or (limit is not None and not _VARCHAR.fullmatch(str(limit)))


def _shown(node: exp.Expr) -> str:
    text = node.sql("spark")
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _like_of(node: exp.Expr) -> exp.Expr:
    return node.this if isinstance(node, exp.Escape) else node


def _family(kind: str) -> str:
    return "exact number" if kind in ("byte", "short", "integer", "long", "decimal") else kind


_ORDER: dict[Operator, Callable[[int], bool]] = {
    "=": lambda order: order == 0,
    "<>": lambda order: order != 0,
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
}


_MOMENTS = ("epoch", "now", "today", "tomorrow", "yesterday")
"""Words that Spark accepts as a date or a time."""


def _is_number(node: exp.Expr) -> bool:
    """Return whether a value is computed from numbers alone."""
    if isinstance(node, exp.Add | exp.Sub):
        return _is_number(node.this) and _is_number(node.expression)
    return isinstance(node, exp.Literal) and not node.is_string


def _between_literals(left: Literal, operator: Operator, right: Literal) -> Predicate | None:
    """Return the constant of a comparison such as `1 = 1`, or None if only Spark knows it."""
    if "void" in (left.kind, right.kind):
        return NULL
    families = {_family(left.kind), _family(right.kind)}
    if len(families) > 1 or not families <= {"exact number", "string", "boolean", "date"}:
        return None
    a, b = (Decimal(side.value) if families == {"exact number"} else side.value for side in (left, right))
    return Constant(_ORDER[operator]((a > b) - (a < b)))


def hint_for(type_: DataType) -> str:
    """Return how to write a literal of a type."""
    match type_:
        case PrimitiveType("date"):
            return "Write it as DATE '2026-01-31'."
        case PrimitiveType("timestamp"):
            return "Write it as TIMESTAMP '2026-01-31 12:30:00Z'."
        case PrimitiveType("timestamp_ntz"):
            return "Write it as TIMESTAMP_NTZ '2026-01-31 12:30:00'."
        case PrimitiveType("boolean"):
            return "Write TRUE or FALSE."
        case PrimitiveType("binary"):
            return "Write it as X'CAFE'."
    return "Write a number."
