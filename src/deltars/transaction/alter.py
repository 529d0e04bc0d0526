"""Changes of a table's schema and properties. Each is a metadata commit, so readers of `_delta_log` see it too.

table.alter.add_columns("note STRING")                       commits one transaction
tx.alter("features").add_constraint("positive", "id > 0")    is part of the transaction
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Protocol, TypeAlias

from deltars.arguments import check_flags, check_texts
from deltars.data.conditions import Condition
from deltars.errors import ValidationError
from deltars.predicate import parse
from deltars.protocol import DataType, Metadata, SchemaLike, StructField, StructType, as_names, as_schema
from deltars.protocol.column_rules import DEFAULT, default_of, generation_of
from deltars.protocol.properties import CONSTRAINT, check_known, is_kept_by_log, property_name
from deltars.transaction.metadata import changed, check_properties, refuse_to_turn_off
from deltars.verbs_to_come import RefusesVerbs

Change: TypeAlias = Callable[[Metadata], Metadata]


class StageChange(Protocol):
    """Function that stages one change of a table's metadata in an open transaction."""

    def __call__(
        self, change: Change, operation: str, params: Mapping[str, Any], condition: Condition | None = None
    ) -> None:
        """Stage a change. Raise if an existing row violates the condition."""


class Alter(RefusesVerbs):
    """Changes of a table's schema and properties."""

    def __init__(self, open_table: Callable[[], AbstractContextManager[StageChange]]) -> None:
        """Make the changes of one table. `open_table` opens the transaction that one change is made in."""
        self._open = open_table

    def add_columns(self, columns: SchemaLike) -> None:
        """Add columns at the end. They are null in existing rows."""
        new = as_schema(columns)
        for field in new.fields:
            if not field.nullable:
                raise ValidationError(
                    f"the new column {field.name} cannot be NOT NULL: existing rows have no value for it",
                    field=field.name,
                )
            if generation_of(field) is not None or default_of(field) is not None:
                raise ValidationError(
                    f"the new column {field.name} cannot be generated or have a default: existing rows would lack it",
                    field=field.name,
                    hint="Add the column without, then call set_default(column, …) for future rows.",
                )

        def add(metadata: Metadata) -> Metadata:
            taken = {name.lower() for name in metadata.schema.names}
            for field in new.fields:
                if field.name.lower() in taken:
                    raise ValidationError(f"the column {field.name} exists already", field=field.name)
            return _with_schema(metadata, StructType((*metadata.schema.fields, *new.fields)))

        described = [{"column": {"name": field.name, "type": str(field.type)}} for field in new.fields]
        self._apply(add, "ADD COLUMNS", {"columns": described})

    def set_nullable(self, column: str) -> None:
        """Allow nulls in a NOT NULL column. To forbid them, add the constraint `column IS NOT NULL`."""
        self._change_column(column, lambda field: replace(field, nullable=True), {"nullable": True})

    def set_default(self, column: str, default: str | None) -> None:
        """Set the default, as SQL, for future rows that lack the column. `None` removes it: the value is null."""
        check_texts(default=default)

        def set_it(field: StructField) -> StructField:
            rest = {key: value for key, value in field.metadata.items() if key != DEFAULT}
            return replace(field, metadata=rest if default is None else {**rest, DEFAULT: default})

        self._change_column(column, set_it, {"default": default})

    def comment(self, column: str, text: str | None) -> None:
        """Set a column's comment. `None` removes it."""
        check_texts(text=text)

        def describe(field: StructField) -> StructField:
            rest = {key: value for key, value in field.metadata.items() if key != "comment"}
            return replace(field, metadata=rest if text is None else {**rest, "comment": text})

        self._change_column(column, describe, {"comment": text})

    def add_constraint(self, name: str, condition: str) -> None:
        """Add a constraint that every row must fulfil. Existing rows are checked first."""
        if not name or "." in name:
            raise ValidationError(
                f"{name!r} is not a valid constraint name: it must not be empty or have a dot", field="name"
            )
        key = CONSTRAINT + name.lower()

        def add(metadata: Metadata) -> Metadata:
            parse(condition, metadata.schema, field="constraint")
            if any(known.lower() == key for known in metadata.configuration):
                raise ValidationError(
                    f"the constraint {name} exists already", field="name", hint="Drop it first, or choose another name."
                )
            return changed(metadata, configuration={**metadata.configuration, key: condition})

        self._apply(
            add,
            "ADD CONSTRAINT",
            {"name": name, "expr": condition},
            Condition(f"the constraint {name}", condition),
        )

    def drop_constraint(self, name: str, *, if_exists: bool = False) -> None:
        """Drop a constraint. Raise if it does not exist, unless `if_exists`."""
        check_flags(if_exists=if_exists)

        def drop(metadata: Metadata) -> Metadata:
            key = (CONSTRAINT + name).lower()
            rest = {known: value for known, value in metadata.configuration.items() if known.lower() != key}
            if len(rest) == len(metadata.configuration) and not if_exists:
                known = [one.removeprefix(CONSTRAINT) for one in rest if one.startswith(CONSTRAINT)]
                raise ValidationError(
                    f"there is no constraint {name}",
                    field="name",
                    hint=f"There are: {', '.join(known) or 'none'}.",
                )
            return changed(metadata, configuration=rest)

        self._apply(drop, "DROP CONSTRAINT", {"name": name})

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Set properties. Delta's own names may be given in any case."""
        checked = check_properties(properties)
        for name in checked:
            if name.startswith(CONSTRAINT):
                raise ValidationError(
                    f"{name} cannot be set as a property: existing rows would not be checked",
                    field=name,
                    hint=f"Use table.alter.add_constraint({name.removeprefix(CONSTRAINT)!r}, …).",
                )
        self._apply(
            lambda metadata: changed(metadata, configuration={**metadata.configuration, **checked}),
            "SET TBLPROPERTIES",
            {"properties": checked},
        )

    def unset_properties(self, names: str | Iterable[str]) -> None:
        """Remove properties. Names that are not set are ignored; unknown ones of `delta.` raise."""
        gone = {property_name(name) for name in as_names(names)}
        refuse_to_turn_off(gone)
        for name in sorted(filter(is_kept_by_log, gone)):
            raise ValidationError(f"{name} cannot be unset: it is kept by the log itself", field=name)

        def unset(metadata: Metadata) -> Metadata:
            # An imported table may have a property that is not known here.
            for name in sorted(gone - metadata.configuration.keys()):
                check_known(name)
            kept = {key: value for key, value in metadata.configuration.items() if key not in gone}
            return changed(metadata, configuration=kept)

        self._apply(unset, "UNSET TBLPROPERTIES", {"properties": sorted(gone)})

    def _apply(
        self, change: Change, operation: str, params: Mapping[str, Any], condition: Condition | None = None
    ) -> None:
        with self._open() as stage_change:
            stage_change(change, operation, params, condition)

    def _change_column(
        self, column: str, change: Callable[[StructField], StructField], params: Mapping[str, Any]
    ) -> None:
        if not isinstance(column, str):
            raise ValidationError(
                f"a column's name is a text, got {column!r:.100}", field="column", hint='Write "id", or "address.city".'
            )
        path = column.split(".")

        def alter(metadata: Metadata) -> Metadata:
            schema = _changed(metadata.schema, path, change, column)
            assert isinstance(schema, StructType)
            return _with_schema(metadata, schema)

        self._apply(alter, "CHANGE COLUMN", {"column": column, **params})


def _with_schema(metadata: Metadata, schema: StructType) -> Metadata:
    return changed(metadata, schema_string=schema.to_json())


def _changed(
    type_: DataType, path: Sequence[str], change: Callable[[StructField], StructField], column: str
) -> DataType:
    fields = list(type_.fields) if isinstance(type_, StructType) else []
    for index, field in enumerate(fields):
        if field.name.lower() == path[0].lower():
            rest = path[1:]
            fields[index] = replace(field, type=_changed(field.type, rest, change, column)) if rest else change(field)
            return StructType(tuple(fields))
    names = ", ".join(field.name for field in fields) or "none"
    raise ValidationError(f"there is no column {column!r}", field="column", hint=f"Columns are: {names}.")
