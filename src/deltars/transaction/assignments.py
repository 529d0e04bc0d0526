"""Assignments of a statement: column names as the schema spells them, values as expressions.

{"Score": "score + 1", "address.city": None} ──▶ {"score": "score + 1", "address.city": "NULL"}
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from datetime import date
from decimal import Decimal
from difflib import get_close_matches
from typing import Any, TypeAlias

from deltars.data.new_rows import resolved as type_of
from deltars.data.row_change import Expression
from deltars.errors import ValidationError, brief
from deltars.predicate import cast_text
from deltars.predicate.tree import literal_sql
from deltars.protocol import PrimitiveType, StructField, StructType
from deltars.protocol.column_rules import generation_of, is_computed

Assignments: TypeAlias = Mapping[str, Any]
"""Values by column name: SQL text, a Spark Column, or a number, date, time, bytes, bool or None as itself."""

_LITERALS = (bool, int, float, Decimal, date, bytes)
_WHOLE = tuple(map(PrimitiveType, ("byte", "short", "integer", "long")))


def resolved(given: object, schema: StructType, *, field: str, alias: str | None = None) -> dict[str, Expression]:
    """Return the assignments with the schema's names. `alias` may precede a name.

    Raise ValidationError for a name that is unknown or given twice, a generated column, or a value of a wrong kind.
    """
    if not isinstance(given, Mapping) or not given:
        raise ValidationError(
            f"{field} must map at least one column to a value, got {brief(given)}",
            field=field,
            hint=f'Write {field}={{"column": "expression"}}.',
        )
    found: dict[str, Expression] = {}
    for name, value in given.items():
        column = find_column(name, schema, field=field, alias=alias)
        if column in found:
            raise ValidationError(f"the column {column} is assigned twice in {field}", field=field)
        for other in found:
            if column.startswith(f"{other}.") or other.startswith(f"{column}."):
                raise ValidationError(f"{field} assigns both {other} and {column}", field=field)
        expression = as_expression(value, column, field=field)
        is_text = isinstance(value, str)
        found[column] = cast_text(expression, type_of(column, schema).type, column) if is_text else expression
        if column in schema:
            _refuse_fraction(_plain(value), schema[column], field)
    return found


def _refuse_fraction(value: object, column: StructField, field: str) -> None:
    """Raise ValidationError for a Python number that a column of whole numbers would cut, as Spark cuts SQL text."""
    if isinstance(value, float | Decimal) and column.type in _WHOLE and math.isfinite(value) and value != int(value):
        raise ValidationError(
            f"column {column.name} is {column.type}, and {value} is not a whole number",
            field=field,
            hint=f'Round it, or write SQL text, which is cut as by Spark: "{value}".',
        )


def refuse_condition_first(call: str, values: object, condition: object, *, field: str, other: str) -> None:
    """Raise ValidationError for the order of delta-spark, in which the condition comes first."""
    if isinstance(condition, Mapping) and not isinstance(values, Mapping):
        raise ValidationError(
            f"{field} comes before the condition in {call}, got the condition first",
            field=field,
            hint=f"Write {call}({field}={{…}}, {other}=…).",
        )


def find_column(name: object, schema: StructType, *, field: str, alias: str | None = None) -> str:
    """Return a column, or a field of a struct as `a.b`, as the schema spells it."""
    if not isinstance(name, str):
        raise ValidationError(f"a column of {field} is named by text, got {brief(name)}", field=field)
    parts = _parts(name)
    has_alias = alias is not None and len(parts) > 1 and parts[0].lower() == alias.lower()
    if has_alias and _spelt(parts[1:], schema) is not None:
        parts = parts[1:]
    inside = _spelt(parts, schema)
    spelt = _spelt([name], schema) or inside
    if inside is not None and len(inside) > 1 and ".".join(inside) in schema:
        column = ".".join(inside)
        raise ValidationError(
            f"{name!r} is ambiguous: the table has a column {column}, and a field {inside[-1]} of {inside[0]}",
            field=field,
            hint=f"Write {quoted(column)} for the column, or assign the whole of {inside[0]}.",
        )
    if spelt is None:
        close = get_close_matches(name.lower(), [column.lower() for column in schema.names], n=1)
        meant = next((column for column in schema.names if close and column.lower() == close[0]), None)
        raise ValidationError(
            f"the table has no column {name!r}; its columns are {', '.join(schema.names)}",
            field=field,
            hint=f"Did you mean {meant!r}?" if meant else "To add columns with a merge, use merge_schema=True.",
        )
    top = next(column for column in schema.fields if column.name == spelt[0])
    if generation_of(top) is not None:
        raise ValidationError(
            f"the column {top.name} is generated as {generation_of(top)}, so it cannot be assigned",
            field=field,
            hint=f"Leave {top.name} out of {field}: it is computed from the other columns.",
        )
    return ".".join(spelt)


def as_expression(value: object, column: str, *, field: str) -> Expression:
    """Return SQL text and Spark Columns as they are, and other values as literals."""
    if isinstance(value, str):
        return _checked_text(value, field)
    if is_spark_column(value):
        return value
    value = _plain(value)
    if value is None:
        return "NULL"
    if isinstance(value, _LITERALS):
        return literal_sql(value)
    raise ValidationError(
        f"the value of {column} cannot be used: {value!r}",
        field=field,
        hint="Give SQL text, a Spark Column, or a number, date, time, bytes, bool or None.",
    )


def _plain(value: Any) -> Any:
    """Return a single value of NumPy as Python's. An array of several stays as it is."""
    is_single = type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0
    return value.item() if is_single else value


def check_condition(condition: object, *, field: str) -> Expression | None:
    """Return a condition: SQL text, a Spark Column, or None."""
    if condition is None or is_spark_column(condition):
        return condition
    if isinstance(condition, str) and condition.strip():
        return _checked_text(condition, field)
    example = '"t.id = s.id"' if field == "on" else '"id = 7"'
    is_compared = isinstance(condition, bool)
    raise ValidationError(
        f"{field} must be a condition, got {brief(condition)}",
        field=field,
        hint=f"Python has compared two values itself. Write the condition as SQL text, {example}."
        if is_compared
        else f"Give SQL text such as {example}, or a Spark Column.",
    )


def _checked_text(text: str, field: str) -> str:
    """Raise ValidationError for text that no file and no database can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValidationError(f"{field} has a lone surrogate, which is no character: {text!r}", field=field) from None
    return text


def is_spark_column(value: object) -> bool:
    return type(value).__module__.startswith("pyspark.") and type(value).__name__ == "Column"


def of_source(
    table: StructType,
    source: StructType,
    source_alias: str,
    *,
    without: Collection[str] = (),
    may_lack: bool = False,
    clause: str,
) -> tuple[dict[str, Expression], bool]:
    """Return the source's columns as values of the table's columns of the same name, and whether that is every column.

    `may_lack` says whether the source may lack columns of the table. It may always lack computed ones.
    """
    left_out = {_known(name, table, source, clause) for name in without}
    there = {field.name.lower(): field for field in source.fields}
    values: dict[str, Expression] = {}
    for field in table.fields:
        other = there.get(field.name.lower())
        if field.name.lower() in left_out:
            continue
        if other is not None:
            values[field.name] = f"{quoted(source_alias)}.{quoted(other.name)}"
        elif not may_lack and not is_computed(field):
            raise ValidationError(
                f"{clause} needs the column {field.name}, which the source lacks;"
                f" its columns are {', '.join(source.names)}",
                field=clause,
                hint=f"Add it to the source, or leave it out with except_columns=[{field.name!r}].",
            )
    if not values:
        raise ValidationError(f"{clause} has no column to set: the source and the table share none", field=clause)
    return values, len(values) == len(table.fields)


def new_columns(source: StructType, names: Collection[str] | None) -> StructType:
    """Return the source's columns that a merge may add or widen: all, or those named."""
    if names is None:
        return source
    wanted = {name.lower() for name in names}
    return StructType(tuple(field for field in source.fields if field.name.lower() in wanted))


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _known(name: object, table: StructType, source: StructType, clause: str) -> str:
    known: set[str] = {field.name.lower() for field in (*table.fields, *source.fields)}
    if not isinstance(name, str) or name.lower() not in known:
        raise ValidationError(f"except_columns of {clause} names {name!r}, which is no column", field="except_columns")
    return name.lower()


def _parts(name: str) -> list[str]:
    """Split a name at its dots, except inside backquotes."""
    parts, quoting, current = [], False, ""
    place = 0
    while place < len(name):
        character = name[place]
        if character == "`" and quoting and name[place + 1 : place + 2] == "`":
            current += "`"
            place += 1
        elif character == "`":
            quoting = not quoting
        elif character == "." and not quoting:
            parts.append(current)
            current = ""
        else:
            current += character
        place += 1
    return [*parts, current]


def _spelt(parts: Sequence[str], schema: StructType) -> list[str] | None:
    """Return the names as the schema spells them; None if there is no such column."""
    found: StructField | None = None
    inside: StructType | None = schema
    spelt = []
    for part in parts:
        if inside is None:
            return None
        found = next((field for field in inside.fields if field.name.lower() == part.lower()), None)
        if found is None:
            return None
        spelt.append(found.name)
        inside = found.type if isinstance(found.type, StructType) else None
    return spelt
