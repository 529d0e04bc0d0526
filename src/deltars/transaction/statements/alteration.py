"""ALTER TABLE, by the calls of `tx.alter`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltars.predicate.statements.tree import (
    AddColumns,
    AddConstraint,
    Alteration,
    ChangeColumn,
    ClusterBy,
    DropColumns,
    DropConstraint,
    RenameColumn,
    SetProperties,
    UnsetProperties,
)

if TYPE_CHECKING:
    from deltars.transaction.alter import Alter
    from deltars.transaction.statements.execution import Execution


def alter(execution: Execution, table: Alter, change: Alteration) -> None:
    """Make one change of a table's schema or properties."""
    match change:
        case AddColumns(columns):
            table.add_columns(columns.text)
        case RenameColumn(old, new):
            table.rename_column(old, new)
        case DropColumns(names, if_exists):
            table.drop_column(names, if_exists=if_exists)
        case ChangeColumn():
            _change(execution, table, change)
        case SetProperties(properties):
            table.set_properties(properties)
        case UnsetProperties(names):
            table.unset_properties(names)
        case AddConstraint(name, condition):
            bound = execution.binder.bound(condition)
            with execution.located(bound):
                table.add_constraint(name, bound.text)
        case DropConstraint(name, if_exists):
            table.drop_constraint(name, if_exists=if_exists)
        case ClusterBy(columns):
            table.cluster_by(columns or None)


def _change(execution: Execution, table: Alter, change: ChangeColumn) -> None:
    name = change.name
    if change.type is not None:
        table.change_type(name, change.type.text)
    if change.comment is not None:
        table.comment(name, change.comment)
    if change.nullable is not None:
        if change.nullable:
            table.set_nullable(name)
        else:
            table.set_not_null(name)
    if change.default is not None:
        table.set_default(name, execution.binder.bound(change.default).text)
    if change.drops_default:
        table.set_default(name, None)
    if change.place is not None:
        table.move_column(name, first=change.place.after is None, after=change.place.after)
    if change.new_name is not None:
        table.rename_column(name, change.new_name)
