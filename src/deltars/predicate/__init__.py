"""Spark SQL conditions on the columns of one table (`where`), and queries over several tables. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltars.late_names import late_names

if TYPE_CHECKING:
    from deltars.predicate.expression import (
        Call,
        Case,
        Expression,
        Given,
        Truth,
        cast_text,
        check_expression,
        columns_in,
        columns_used,
        only_spark,
        parse_default,
        parse_expression,
        parse_truth,
    )
    from deltars.predicate.join import Equality, JoinCondition, parse_join
    from deltars.predicate.query import Query, TableReference
    from deltars.predicate.sides import Sides
    from deltars.predicate.source import named_in, unqualified
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
else:
    # What parses SQL needs sqlglot, which is slow to load. Most commands, and most commits, parse nothing.
    __getattr__ = late_names(
        __name__,
        {
            "expression": (
                "Call Case Expression Given Truth cast_text check_expression columns_in columns_used only_spark "
                "parse_default parse_expression parse_truth"
            ),
            "join": "Equality JoinCondition parse_join",
            "query": "Query TableReference",
            "sides": "Sides",
            "source": "named_in unqualified",
            "tree": (
                "FALSE NULL TRUE And Column Comparison Constant In IsNull Like Operator Or Predicate StartsWith "
                "Unknown Value columns_of conjunction disjunction grouped known_part leaves_of negation not_true "
                "partition_part to_sql"
            ),
        },
    )


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
