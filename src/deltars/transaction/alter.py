"""Changes of a table's schema and properties. Each is a metadata commit, so readers of `_delta_log` see it too.

table.alter.add_columns("note STRING")                       commits one transaction
tx.alter("features").add_constraint("positive", "id > 0")    is part of the transaction

`column_changes` has those of columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from deltars.arguments import check_flags, checks_calls
from deltars.data.conditions import Condition
from deltars.errors import NotSupportedYet, ValidationError
from deltars.predicate import parse
from deltars.protocol import as_names
from deltars.protocol.properties import CONSTRAINT, check_known, is_kept_by_log, property_name
from deltars.protocol.upgrade import ProtocolUpgrade
from deltars.transaction.column_changes import ColumnChanges
from deltars.transaction.definition import Definition
from deltars.transaction.metadata import check_properties, refuse_to_turn_off
from deltars.verbs_to_come import RefusesVerbs


@checks_calls
class Alter(ColumnChanges, RefusesVerbs):
    """Changes of a table's schema and properties. A call returns how it raised the table's protocol, if it did."""

    def __call__(self, *given: object, **options: object) -> NoReturn:
        """Raise `NotSupportedYet`: each change has its own method."""
        raise NotSupportedYet(
            "alter is no call: each change is a method of it",
            hint="Write table.alter.add_columns(…), .rename_column(…), .drop_columns(…) or .set_properties(…).",
        )

    def add_constraint(self, name: str, condition: str) -> ProtocolUpgrade | None:
        """Add a constraint that every row must fulfil. Existing rows are checked first."""
        if not name or "." in name:
            raise ValidationError(
                f"{name!r} is not a valid constraint name: it must not be empty or have a dot", field="name"
            )
        key = CONSTRAINT + name.lower()

        def add(table: Definition) -> tuple[Definition, Mapping[str, Any]]:
            parse(condition, table.schema, field="constraint")
            configuration = table.metadata.configuration
            if any(known.lower() == key for known in configuration):
                raise ValidationError(
                    f"the constraint {name} exists already", field="name", hint="Drop it first, or choose another name."
                )
            return table.with_metadata(configuration={**configuration, key: condition}), {
                "name": name,
                "expr": condition,
            }

        return self._apply(add, "ADD CONSTRAINT", lambda _: Condition(f"the constraint {name}", condition))

    def drop_constraint(self, name: str, *, if_exists: bool = False) -> ProtocolUpgrade | None:
        """Drop a constraint. Raise if it does not exist, unless `if_exists`."""
        check_flags(if_exists=if_exists)

        def drop(table: Definition) -> tuple[Definition, Mapping[str, Any]]:
            key = (CONSTRAINT + name).lower()
            configuration = table.metadata.configuration
            rest = {known: value for known, value in configuration.items() if known.lower() != key}
            if len(rest) == len(configuration) and not if_exists:
                known = [one.removeprefix(CONSTRAINT) for one in rest if one.startswith(CONSTRAINT)]
                raise ValidationError(
                    f"there is no constraint {name}",
                    field="name",
                    hint=f"There are: {', '.join(known) or 'none'}.",
                )
            return table.with_metadata(configuration=rest), {"name": name}

        return self._apply(drop, "DROP CONSTRAINT")

    def set_properties(self, properties: Mapping[str, str]) -> ProtocolUpgrade | None:
        """Set properties. Delta's own names may be given in any case."""
        checked = check_properties(properties)
        for name in checked:
            if name.startswith(CONSTRAINT):
                raise ValidationError(
                    f"{name} cannot be set as a property: existing rows would not be checked",
                    field=name,
                    hint=f"Use table.alter.add_constraint({name.removeprefix(CONSTRAINT)!r}, …).",
                )

        def set_them(table: Definition) -> tuple[Definition, Mapping[str, Any]]:
            configuration = {**table.metadata.configuration, **checked}
            return table.with_metadata(configuration=configuration), {"properties": checked}

        return self._apply(set_them, "SET TBLPROPERTIES")

    def unset_properties(self, names: str | Iterable[str]) -> ProtocolUpgrade | None:
        """Remove properties. Names that are not set are ignored; unknown ones of `delta.` raise."""
        gone = {property_name(name) for name in as_names(names)}
        refuse_to_turn_off(gone)
        for name in sorted(filter(is_kept_by_log, gone)):
            raise ValidationError(f"{name} cannot be unset: it is kept by the log itself", field=name)

        def unset(table: Definition) -> tuple[Definition, Mapping[str, Any]]:
            configuration = table.metadata.configuration
            # An imported table may have a property that is not known here.
            for name in sorted(gone - configuration.keys()):
                check_known(name)
            kept = {key: value for key, value in configuration.items() if key not in gone}
            return table.with_metadata(configuration=kept), {"properties": sorted(gone)}

        return self._apply(unset, "UNSET TBLPROPERTIES")
