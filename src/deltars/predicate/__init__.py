"""Spark SQL conditions on the columns of one table (`where`), and queries over several tables. No I/O."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from deltars.predicate.tree import (
    FALSE,
    NULL,
    TRUE,
    And,
    Column,
    Comparison,
    Constant,
    In,
    IsNull,
    Like,
    Operator,
    Or,
    Predicate,
    StartsWith,
    Unknown,
    Value,
    columns_of,
    conjunction,
    disjunction,
    grouped,
    known_part,
    leaves_of,
    negation,
    not_true,
    partition_part,
    to_sql,
)
from deltars.protocol import StructType

if TYPE_CHECKING:
    from deltars.predicate.expression import (
        Call,
        Case,
        Expression,
        Given,
        Truth,
        check_expression,
        columns_in,
        only_spark,
        parse_default,
        parse_expression,
        parse_truth,
    )
    from deltars.predicate.join import Equality, JoinCondition, parse_join
    from deltars.predicate.query import Query, TableReference
    from deltars.predicate.sides import Sides
    from deltars.predicate.source import named_in

# What parses SQL needs sqlglot, which is slow to load. Most commands, and most commits, parse nothing.
_LOADED_WHEN_USED = {
    "Call": "expression",
    "Case": "expression",
    "Equality": "join",
    "Expression": "expression",
    "Given": "expression",
    "JoinCondition": "join",
    "Query": "query",
    "Sides": "sides",
    "TableReference": "query",
    "Truth": "expression",
    "check_expression": "expression",
    "columns_in": "expression",
    "named_in": "source",
    "only_spark": "expression",
    "parse_default": "expression",
    "parse_expression": "expression",
    "parse_join": "join",
    "parse_truth": "expression",
}


def parse(where: str, schema: StructType | Sides, *, zone: str = "UTC", field: str = "where") -> Predicate:
    """Return the condition on columns of the schema. `zone` is the time zone of literals that have none.

    `field` is what errors call the condition.
    """
    from deltars.predicate import parser

    return parser.parse(where, schema, zone=zone, field=field)


def check_column_rules(schema: StructType) -> None:
    """Raise ValidationError for an invalid rule. Expressions that only Spark can compute are not checked further."""
    from deltars.predicate import column_rules

    column_rules.check_column_rules(schema)


if not TYPE_CHECKING:  # A module-level __getattr__ would make a type checker accept every name.

    def __getattr__(name):
        if name not in _LOADED_WHEN_USED:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"{__name__}.{_LOADED_WHEN_USED[name]}"), name)
        return value


__all__ = [
    "FALSE",
    "NULL",
    "TRUE",
    "And",
    "Call",
    "Case",
    "Column",
    "Comparison",
    "Constant",
    "Equality",
    "Expression",
    "Given",
    "In",
    "IsNull",
    "JoinCondition",
    "Like",
    "Operator",
    "Or",
    "Predicate",
    "Query",
    "Sides",
    "StartsWith",
    "TableReference",
    "Truth",
    "Unknown",
    "Value",
    "check_column_rules",
    "check_expression",
    "columns_in",
    "columns_of",
    "conjunction",
    "disjunction",
    "grouped",
    "known_part",
    "leaves_of",
    "named_in",
    "negation",
    "not_true",
    "only_spark",
    "parse",
    "parse_default",
    "parse_expression",
    "parse_join",
    "parse_truth",
    "partition_part",
    "to_sql",
]
