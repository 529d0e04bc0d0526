"""`tx.create_table`: a new table, or one that is replaced, as a step of a transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from deltars.protocol import Action, Metadata, StructType
from deltars.transaction.create_table import (
    CREATE,
    REPLACE,
    check_directory,
    check_existing,
    create_params,
    initial_actions,
    replacement_actions,
)
from deltars.transaction.staged_table import StagedTable, Step
from deltars.transaction.view import View


@dataclass(frozen=True, slots=True)
class TableCreation:
    """What the new table is to be."""

    name: str | UUID
    schema: StructType
    location: str | None
    partition_by: str | Sequence[str]
    cluster_by: str | Sequence[str]
    properties: Mapping[str, str] | None
    description: str | None
    if_not_exists: bool
    replace: bool

    def step(self, view: View, base: StagedTable | None) -> tuple[StagedTable, Sequence[Action], Step] | None:
        """Return the table and the step that creates it; None if `base`, which has its name, is kept.

        Raise `TableExists` if `base` may be neither kept nor replaced.
        """
        if base is not None and self.if_not_exists:
            return None
        if base is None:
            made = view.new_table(
                self.name,
                self.schema,
                self.partition_by,
                self.properties,
                location=self.location,
                description=self.description,
                cluster_by=self.cluster_by,
            )
            assert made.metadata is not None
            check_directory(view.session, made.name, made.location, is_given=self.location is not None)
            return made, (), Step(CREATE, create_params(made.metadata))
        check_existing(base, self.location, replace=self.replace)
        initial = initial_actions(
            base.table_id,
            self.schema,
            partition_by=self.partition_by,
            cluster_by=self.cluster_by,
            properties=self.properties,
            description=self.description,
        )
        params = create_params(next(action for action in initial if isinstance(action, Metadata)))
        if base.metadata is None:
            return base, initial, Step(CREATE, params)
        assert base.protocol is not None
        actions = replacement_actions(
            base, base.metadata, base.protocol, view.files(base, None), initial, view.domains(base)
        )
        return base, actions, Step(REPLACE, params)
