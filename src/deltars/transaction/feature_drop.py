"""Drop of a table feature: what its two commits stage.

    REORG           files that need the feature are written again without it, with metadata that does not mention it
    DROP FEATURE    the protocol without the feature: nothing that is live uses it any more

Both commits refuse every concurrent one (isolation "strict"): it may have used the feature.
"""

from __future__ import annotations

import time
from dataclasses import replace
from uuid import UUID

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from deltars.data.row_change import RowChanges
from deltars.data.write_target import WrittenFile
from deltars.errors import FeatureNotDropped
from deltars.log.commit import RowGroup
from deltars.log.table_state import tracks_rows
from deltars.protocol import Action, Metadata
from deltars.protocol.clustering import clustering_domain
from deltars.protocol.column_mapping import COLUMN_MAPPING
from deltars.protocol.feature_drop import (
    DELETION_VECTORS,
    feature_to_drop,
    needs_new_files,
    protocol_without,
    without_feature,
)
from deltars.protocol.features import TableFeature
from deltars.transaction.change_metrics import ChangeMetrics
from deltars.transaction.open_transaction import OpenTransaction
from deltars.transaction.options import CheckedChangeOptions
from deltars.transaction.row_change import RowChange
from deltars.transaction.staged_table import StagedTable, Step
from deltars.transaction.view import View

DROP_FEATURE = "DROP FEATURE"


class RewriteWithoutFeature(RowChange):
    """Files that need a feature are written again without it. No row changes."""

    operation = "REORG"

    def __init__(self, view: View, options: CheckedChangeOptions, feature: str) -> None:
        super().__init__(view, options)
        self._feature = feature
        self._domains: list[Action] = []

    def _run(self, table: StagedTable, metadata: Metadata) -> ChangeMetrics:
        began = time.perf_counter()
        feature = checked_feature(self._view, table, self._feature)
        after = without_feature(metadata, feature)
        files = files_that_need(self._view, table, feature)
        if not files.num_rows:
            return ChangeMetrics()
        self._params = {"predicate": "[]", "featureName": feature.name}
        if tracks_rows(metadata):
            self._refuse_for(table, metadata, moves_rows=True)
        target = self._target(table, metadata)
        target = target.with_options(schema=after.schema, properties=after.configuration)
        self._move(table, files, self._scan(table, metadata, files), target)
        self._metadata = after
        if COLUMN_MAPPING in metadata.configuration and COLUMN_MAPPING not in after.configuration:
            self._unmap(table, metadata)
        return self._measured(RowChanges({}), 0, 0.0, time.perf_counter() - began)

    def _unmap(self, table: StagedTable, metadata: Metadata) -> None:
        """Let partition values and clustering columns have the columns' names in place of physical ones."""
        names = {metadata.schema[name].physical_name: name for name in metadata.partition_columns}

        def unmapped(file: WrittenFile) -> WrittenFile:
            values = {names[name]: value for name, value in file.add.partition_values.items()}
            return replace(file, add=msgspec.structs.replace(file.add, partition_values=values))

        self._files.written = [unmapped(file) for file in self._files.written]
        columns = self._view.definition(table).cluster_by
        self._domains = [clustering_domain(metadata.schema, columns, is_mapped=False)] if columns else []

    def steps(self, table: StagedTable) -> tuple[list[Action], Step, list[RowGroup]]:
        actions, step, groups = super().steps(table)
        return [*self._domains, *actions], step, groups


def checked_feature(view: View, table: StagedTable, name: str) -> TableFeature:
    """Return the feature of this name. Raise `FeatureNotDropped` if the table cannot lose it."""
    assert table.protocol is not None
    assert table.metadata is not None
    return feature_to_drop(name, table.protocol, table.metadata, view.domains(table))


def files_that_need(view: View, table: StagedTable, feature: TableFeature) -> pa.Table:
    """Return the live files that cannot be read without the feature."""
    assert table.metadata is not None
    files = view.files_to_move(table, None)
    if feature.name == DELETION_VECTORS:
        return files.filter(pc.is_valid(files["deletion_vector"]))
    return files if needs_new_files(table.metadata, feature) else files.slice(0, 0)


def stage_drop(tx: OpenTransaction, table_id: UUID, name: str, *, truncates: bool) -> None:
    """Stage the protocol without a feature that no live file needs."""
    view = tx._view_for(table_id)
    table = view.readable(table_id)
    assert table.protocol is not None
    assert table.metadata is not None
    feature = checked_feature(view, table, name)
    if files_that_need(view, table, feature).num_rows:
        raise FeatureNotDropped(
            "Cannot drop feature because a concurrent transaction modified the table.\nPlease try the operation again.",
            condition="DELTA_FEATURE_DROP_CONFLICT_REVALIDATION_FAIL",
        )
    after = without_feature(table.metadata, feature)
    actions: list[Action] = [protocol_without(table.protocol, feature)]
    actions += [after] if after != table.metadata else []
    params = {"featureName": feature.name, "truncateHistory": truncates}
    tx._stage(view, table, actions, Step(DROP_FEATURE, params, drops_feature=feature.name))


__all__ = ["DROP_FEATURE", "RewriteWithoutFeature", "stage_drop"]
