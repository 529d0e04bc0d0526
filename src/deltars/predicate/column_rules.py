"""Validation of a schema's rules for column values: generated columns, defaults, invariants, length limits."""

from __future__ import annotations

from deltars.errors import PredicateError, ValidationError
from deltars.predicate.expression import check_expression, parse_default
from deltars.protocol import StructType
from deltars.protocol.column_rules import default_of, generation_of, invariant_of, limits_of
from deltars.protocol.identity import identity_of


def check_column_rules(schema: StructType) -> None:
    """Raise ValidationError for an invalid rule. Expressions that only Spark can compute are not checked further."""
    for path, field in schema.walk():
        if len(path) > 1 and (generation_of(field) is not None or default_of(field) is not None):
            raise ValidationError(
                f"{'.'.join(path)} cannot be generated or have a default: only top-level columns can",
                field=".".join(path),
            )
        invariant_of(field)
    generated = {field.name for field in schema.fields if generation_of(field) is not None}
    for field in schema.fields:
        expression, default = generation_of(field), default_of(field)
        limits_of(field)
        if expression is not None:
            others = check_expression(expression, schema) & generated
            if others:
                raise ValidationError(
                    f"the generated column {field.name} uses {', '.join(sorted(others))}, which is generated too: "
                    f"{expression}",
                    field=field.name,
                )
        if identity_of(field) is not None and (default is not None or expression is not None):
            raise ValidationError(
                f"the identity column {field.name} cannot have a default or an expression", field=field.name
            )
        if default is not None and expression is not None:
            raise ValidationError(f"the generated column {field.name} cannot have a default", field=field.name)
        if default is not None:
            try:
                parse_default(default, field.type)
            except PredicateError as error:
                # An error without a position means that only Spark can compute it. It still must not name a column.
                if error.position is not None:
                    raise
                check_expression(default, StructType(), is_steady=False)
