"""Changes of a table's columns: the part of `Alter` that changes the schema and the clustering.

Columns may be nested: `address.city`, `tags.element.name`, `prices.value.amount`. A change that needs a table feature
raises the protocol, and returns the `ProtocolUpgrade`, which explains what readers must know from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from deltars.arguments import check_flags, check_texts, checks_calls
from deltars.data.conditions import Condition
from deltars.errors import ValidationError
from deltars.protocol import SchemaLike, StructField, as_names
from deltars.protocol.clustering import CLUSTERING
from deltars.protocol.column_mapping import COLUMN_MAPPING, column_mapping
from deltars.protocol.column_path import ColumnPath, path_of, path_text, quoted
from deltars.protocol.column_rules import DEFAULT, is_computed
from deltars.protocol.features import is_true
from deltars.protocol.schema_change import (
    NewColumn,
    Place,
    field_at,
    find,
    find_type,
    inserted,
    is_in_collection,
    moved,
    removed,
    replaced,
)
from deltars.protocol.schema_like import TypeLike, as_new_columns
from deltars.protocol.upgrade import ProtocolUpgrade, explain_feature
from deltars.transaction import column_uses
from deltars.transaction.column_type import TYPE_WIDENING, retyped
from deltars.transaction.create_table import clustering_of
from deltars.transaction.definition import Change, Definition, RowCheck, StageChange


@checks_calls
class ColumnChanges:
    """Changes of a table's columns. A call returns how it raised the table's protocol, if it did."""

    def __init__(self, open_table: Callable[[], AbstractContextManager[StageChange]]) -> None:
        """Make the changes of one table. `open_table` opens the transaction that one change is made in."""
        self._open = open_table

    def add_columns(
        self, columns: SchemaLike, *, first: bool = False, after: str | None = None
    ) -> ProtocolUpgrade | None:
        """Add columns at the end, first, or after another one. They are null in existing rows.

        In DDL, names may be nested, and each column may have its own place: "address.zip STRING AFTER city".
        """
        place = _place(first, after)
        new = as_new_columns(columns)
        for index, column in enumerate(new):
            _check_new(column, place)
            if place is not None:
                new[index] = replace(column, place=place)
                place = Place(column.field.name)  # the next one follows this one

        def add(table: Definition) -> tuple[Definition, Mapping[str, Any]]:
            schema = table.schema
            for column in new:
                schema = inserted(schema, column)
            described = [
                {"column": _described((*column.parent, column.field.name), column.field)}
                | ({} if column.place is None else {"position": str(column.place)})
                for column in new
            ]
            return table.with_schema(schema), {"columns": described}

        return self._apply(add, "ADD COLUMNS")

    def rename_column(
        self, column: str, new_name: str, *, enable_column_mapping: bool = False
    ) -> ProtocolUpgrade | None:
        """Rename a column. Older versions keep the old name. The table needs column mapping.

        `enable_column_mapping` turns it on if it is off. Data files are not touched.
        """
        check_flags(enable_column_mapping=enable_column_mapping)
        names = path_of(new_name, field="new_name")
        if len(names) > 1:
            raise ValidationError(
                f"{new_name!r} has a dot: a column is renamed within its struct",
                field="new_name",
                hint=f"Write {names[-1]!r}, or {quoted(new_name)!r} for a name that has a dot.",
            )

        def rename(table: Definition) -> tuple[Definition, Mapping[str, Any]]:
            path = find(table.schema, column)
            table = _mapped(table, "rename a column", enable=enable_column_mapping)
            column_uses.refuse_used(table.metadata, path, "renamed")
            _refuse_limited(table, path)
            schema = replaced(table.schema, path, lambda field: replace(field, name=names[0]))
            metadata = column_uses.renamed(table.metadata, path, names[0])
            after = table.with_metadata(
                schema_string=schema.to_json(),
                configuration=metadata.configuration,
                partition_columns=metadata.partition_columns,
            )
            return after, {"oldColumnPath": path_text(path), "newColumnPath": path_text((*path[:-1], names[0]))}

        return self._apply(rename, "RENAME COLUMN")

    def drop_column(
        self, columns: str | Iterable[str], *, if_exists: bool = False, enable_column_mapping: bool = False
    ) -> ProtocolUpgrade | None:
        """Drop one or several columns. Older versions keep them. The table needs column mapping.

        `enable_column_mapping` turns it on if it is off. Data files are not touched, so the values stay in them.
        """
        check_flags(if_exists=if_exists, enable_column_mapping=enable_column_mapping)
        names = as_names(columns)

        def drop(table: Definition) -> tuple[Definition, Mapping[str, Any]]:
            gone = []
            for name in names:
                try:
                    gone.append(find(table.schema, name))
                except ValidationError:
                    path_of(name)
                    if not if_exists:
                        raise
            if not gone:
                return table, {"columns": []}
            table = _mapped(table, "drop a column", enable=enable_column_mapping)
            for path in gone:
                column_uses.refuse_dropping(table.metadata, table.domains, path)
                column_uses.refuse_used(table.metadata, path, "dropped")
                _refuse_limited(table, path)
                remaining = column_uses.dropped(table.metadata, path)
                schema = removed(table.schema, path)
                table = replace(table, metadata=remaining).with_schema(schema)
            return table, {"columns": [path_text(path) for path in gone]}

        return self._apply(drop, "DROP COLUMNS")

    def move_column(self, column: str, *, first: bool = False, after: str | None = None) -> ProtocolUpgrade | None:
        """Move a column to the first place, or after another one, of the table or of its struct."""
        place = _place(first, after)
        if place is None:
            raise ValidationError(
                "move_column needs a place", field="after", hint='Write first=True, or after="id" with another column.'
            )

        def move(table: Definition) -> tuple[Definition, Mapping[str, Any]]:
            path = find(table.schema, column)
            described = _described(path, field_at(table.schema, path))
            return table.with_schema(moved(table.schema, path, place)), {"column": described, "position": str(place)}

        return self._apply(move, "CHANGE COLUMN")

    def change_type(self, column: str, type: TypeLike, *, enable_type_widening: bool = False) -> ProtocolUpgrade | None:
        """Change a column's type to a wider one, such as INT to BIGINT. The table needs type widening.

        `enable_type_widening` turns it on if it is off. Data files are not touched. Elements of arrays and maps are
        `tags.element`, `prices.key` and `prices.value`. A VARCHAR may become longer, or a STRING, in every table.
        """
        check_flags(enable_type_widening=enable_type_widening)

        def change(table: Definition) -> tuple[Definition, Mapping[str, Any]]:
            path, inside = find_type(table.schema, column)
            field = retyped(field_at(table.schema, path), inside, type, path)
            if field.type != field_at(table.schema, path).type:
                if not is_true(table.metadata.configuration.get(TYPE_WIDENING)):
                    table = _enabled(
                        table, TYPE_WIDENING, "true", "typeWidening", "change a type", "enable_type_widening",
                        is_asked=enable_type_widening,
                    )  # fmt: skip
                column_uses.refuse_used(table.metadata, path, "changed")
            schema = replaced(table.schema, path, lambda _: field)
            return table.with_schema(schema), {"column": _described(path, field)}

        return self._apply(change, "CHANGE COLUMN")

    def set_nullable(self, column: str) -> ProtocolUpgrade | None:
        """Allow nulls in a NOT NULL column."""
        return self._change_column(column, lambda field: replace(field, nullable=True))

    def set_not_null(self, column: str) -> ProtocolUpgrade | None:
        """Forbid nulls in a column. Existing rows are checked first. A field of a null struct counts as absent."""

        def change(table: Definition) -> tuple[Definition, Mapping[str, Any]]:
            path = find(table.schema, column)
            if is_in_collection(table.schema, path):
                raise ValidationError(
                    f"{path_text(path)} cannot be NOT NULL: it is inside an array or a map, which Delta does not allow",
                    field=path_text(path),
                )
            schema = replaced(table.schema, path, lambda field: replace(field, nullable=False))
            return table.with_schema(schema), {"column": _described(path, field_at(schema, path))}

        def check(table: Definition) -> Condition:
            change(table)  # raises for a column that cannot be
            path = find(table.schema, column)
            around = [f"{_sql(path[:-1])} IS NULL"] if len(path) > 1 else []
            return Condition(f"NOT NULL of {path_text(path)}", " OR ".join([*around, f"{_sql(path)} IS NOT NULL"]))

        return self._apply(change, "CHANGE COLUMN", check)

    def set_default(self, column: str, default: str | None) -> ProtocolUpgrade | None:
        """Set the default, as SQL, for future rows that lack the column. `None` removes it: the value is null."""
        check_texts(default=default)
        return self._change_column(column, lambda field: _with_entry(field, DEFAULT, default))

    def comment(self, column: str, text: str | None) -> ProtocolUpgrade | None:
        """Set a column's comment. `None` removes it."""
        check_texts(text=text)
        return self._change_column(column, lambda field: _with_entry(field, "comment", text))

    def cluster_by(self, columns: str | Sequence[str] | None) -> ProtocolUpgrade | None:
        """Set the columns that writes and `optimize` sort the rows by, at most four. `None` ends the clustering.

        Existing files stay as they are until they are optimized. A partitioned table cannot be clustered.
        """
        names = () if columns is None else as_names(columns)

        def cluster(table: Definition) -> tuple[Definition, Mapping[str, Any]]:
            domains = dict(table.domains)
            if names or CLUSTERING in domains:
                domains[CLUSTERING] = clustering_of(table.metadata, names)
            after = replace(table, domains=domains)
            params = {
                "oldClusteringColumns": ",".join(map(path_text, table.cluster_by)),
                "newClusteringColumns": ",".join(map(path_text, after.cluster_by)),
            }
            return after, params

        return self._apply(cluster, "CLUSTER BY")

    def _apply(self, change: Change, operation: str, check: RowCheck | None = None) -> ProtocolUpgrade | None:
        with self._open() as stage_change:
            return stage_change(change, operation, check)

    def _change_column(self, column: str, change: Callable[[StructField], StructField]) -> ProtocolUpgrade | None:
        path_of(column)

        def alter(table: Definition) -> tuple[Definition, Mapping[str, Any]]:
            path = find(table.schema, column)
            schema = replaced(table.schema, path, change)
            return table.with_schema(schema), {"column": _described(path, field_at(schema, path))}

        return self._apply(alter, "CHANGE COLUMN")


def _place(first: bool, after: str | None) -> Place | None:
    check_flags(first=first)
    if after is None:
        return Place() if first else None
    if first:
        raise ValidationError("first and after exclude each other", field="after", hint="Leave one of them out.")
    return Place(path_of(after, field="after")[-1])


def _check_new(column: NewColumn, place: Place | None) -> None:
    field = column.field
    if place is not None and column.place is not None:
        raise ValidationError(
            f"the new column {field.name} has two places, {place} and {column.place}",
            field="after",
            hint="Leave first= and after= out, or FIRST and AFTER in the text.",
        )
    if not field.nullable:
        raise ValidationError(
            f"the new column {field.name} cannot be NOT NULL: existing rows have no value for it",
            field=field.name,
            hint="Add the column without, fill it by table.update, then call set_not_null(column).",
        )
    if is_computed(field):
        raise ValidationError(
            f"the new column {field.name} cannot be generated or have a default: existing rows would lack it",
            field=field.name,
            hint="Add the column without, then call set_default(column, …) for future rows.",
        )


def _mapped(table: Definition, what: str, *, enable: bool) -> Definition:
    """Return the table with column mapping, which is turned on if the caller asks for it."""
    if column_mapping(table.metadata.configuration) != "none":
        return table
    return _enabled(table, COLUMN_MAPPING, "name", "columnMapping", what, "enable_column_mapping", is_asked=enable)


def _enabled(
    table: Definition, name: str, value: str, feature: str, what: str, option: str, *, is_asked: bool
) -> Definition:
    if not is_asked:
        raise ValidationError(
            f"to {what}, the table needs {name} = {value}, which changes the table for its readers",
            field=name,
            hint=f"Give {option}=True, or set the property first. {explain_feature(feature)}",
        )
    return table.with_metadata(configuration={**table.metadata.configuration, name: value})


def _refuse_limited(table: Definition, path: ColumnPath) -> None:
    """Raise if the length limits of strings in a struct name the column: the limits could not follow it."""
    limits = column_uses.limits_in(table.metadata, path[0])
    if len(path) > 1 and limits:
        raise ValidationError(
            f"{path_text(path)} cannot be renamed or dropped: strings in {path[0]} have a limited length, {limits}",
            field=path_text(path),
            hint="Write the rows again: tx.write(table, rows, mode='overwrite', overwrite_schema=True).",
        )


def _with_entry(field: StructField, key: str, value: str | None) -> StructField:
    rest = {known: entry for known, entry in field.metadata.items() if known != key}
    return replace(field, metadata=rest if value is None else {**rest, key: value})


def _described(path: ColumnPath, field: StructField) -> dict[str, Any]:
    """Return a column as the history shows it."""
    return {
        "name": path_text(path),
        "type": str(field.type),
        "nullable": field.nullable,
        "metadata": dict(field.metadata),
    }


def _sql(path: ColumnPath) -> str:
    return ".".join(map(quoted, path))
