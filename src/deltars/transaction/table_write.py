"""One write: turns a frame into staged actions.

write(df, options) ── already written by the same application? ──▶ nothing
                   ── schema: unchanged, merged, or replaced ────▶ metadata
                   ── the frame's rows, checked ─────────────────▶ data files, added
                   └─ overwrite: the files that they replace ────▶ removed
                        static           every file
                        dynamic          the files of the partitions that were written
                        replace_where    the rows that match: whole files, or files rewritten without them

Other threads may stage changes of the same table while rows are written. So each part records what it was made for, and
is repeated if that has changed: rows depend on the metadata, replaced files on everything that is staged.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from deltars.data.conditions import Condition, conditions_of
from deltars.data.plane import DataPlane
from deltars.data.row_change import Delete
from deltars.data.sources import consumed, is_single_use
from deltars.data.write_target import WriteTarget, WrittenFile
from deltars.errors import SchemaMismatch, ValidationError, located
from deltars.log.commit import RowGroup
from deltars.predicate import Predicate
from deltars.protocol import (
    Action,
    AddFile,
    Metadata,
    RemoveFile,
    StructField,
    StructType,
    Txn,
    as_names,
    column_mapping,
    merged,
    supported_features,
)
from deltars.protocol.change_feed import has_feed
from deltars.protocol.clustering import CLUSTERING_FEATURE, clustering_columns
from deltars.protocol.column_rules import invariant_of, is_computed
from deltars.protocol.identity import counted, refuse_given
from deltars.protocol.properties import boolean_property
from deltars.transaction.change_data import ChangedRows
from deltars.transaction.changed_files import changed_rows, uses_vectors, without_rows
from deltars.transaction.create_table import check_directory, is_same_place
from deltars.transaction.identity_marks import counting
from deltars.transaction.metadata import changed, metadata_actions, partition_column
from deltars.transaction.options import CheckedWriteOptions, skipped_by
from deltars.transaction.replaced_files import of_written_partitions, possibly_unmatched
from deltars.transaction.result import SkippedWrite
from deltars.transaction.staged_table import StagedTable, Step, removes_of
from deltars.transaction.view import View

_MAX_COLUMN_ID = "delta.columnMapping.maxColumnId"


@dataclass(frozen=True, slots=True)
class _Rows:
    """Data files of the frame's rows, and what they were written for."""

    before: Metadata | None
    """Table's metadata when they were written."""
    metadata: Metadata
    """Metadata after this write."""
    location: str
    files: Sequence[WrittenFile]


@dataclass(frozen=True, slots=True)
class _Replaced:
    """Files that the write replaces, and the table's state for which they were found."""

    table: StagedTable
    removed: Sequence[RemoveFile]
    rewritten: Sequence[WrittenFile]
    marked: Sequence[AddFile] = ()
    """Files that stay, with a larger vector."""
    changed: ChangedRows | None = None


class TableWrite:
    """One write of one frame to one table."""

    def __init__(
        self, view: View, plane: DataPlane, options: CheckedWriteOptions, frame: Any, *, by_path: bool = False
    ) -> None:
        """Prepare a write. `by_path`: the program named a directory, so a new table is the result of a plain write."""
        self._by_path = by_path
        self._view = view
        self._plane = plane
        self._options = options
        self._source = frame
        self._opened: object | None = None
        self._schema: StructType | None = None
        self._rows: _Rows | None = None
        self._replaced: _Replaced | None = None

    @property
    def _frame(self) -> object:
        # Opened as late as possible: a stream that is opened but not read may be lost.
        if self._opened is None:
            self._opened = self._plane.opened(self._source)
        return self._opened

    @property
    def schema(self) -> StructType:
        """Schema of the frame, and of a table that is created from it."""
        if self._schema is not None:
            return self._schema
        schema = self._plane.schema(self._frame)
        if not schema.fields:
            raise ValidationError(
                "the frame has no columns",
                field="df",
                hint="Check how the frame was made: a frame without rows can be written, but it needs the columns.",
            )
        self._schema = schema
        return schema

    def new_table(self, name: str | UUID) -> StagedTable:
        """Return the table that the write creates."""
        options = self._options
        table = self._view.new_table(
            name,
            self.schema,
            options.partition_by or (),
            options.properties,
            location=options.location,
            cluster_by=options.cluster_by or (),
        )
        if options.location is not None:
            check_directory(self._view.session, table.name, table.location, is_given=True)
        return table

    def check_place(self, table: StagedTable) -> None:
        """Raise if the options of a new table contradict the table that exists."""
        options = self._options
        if options.location is not None and not is_same_place(options.location, table.location):
            raise ValidationError(
                f"the table is at {table.location}, not at {options.location}",
                table=table.name,
                field="location",
                hint="Leave location= out: a table keeps its directory.",
            )
        if options.cluster_by is None or table.metadata is None:
            return
        is_mapped = column_mapping(table.metadata.configuration) != "none"
        known = clustering_columns(self._view.domains(table), table.metadata.schema, is_mapped=is_mapped)
        columns = [".".join(path) for path in known]
        wanted = list(as_names(options.cluster_by))
        if [name.lower() for name in wanted] != [name.lower() for name in columns]:
            raise ValidationError(
                f"the table is clustered by {columns or 'nothing'}, not by {wanted}",
                table=table.name,
                field="cluster_by",
                hint="Leave out cluster_by.",
            )

    def skipped(self, table: StagedTable) -> SkippedWrite | None:
        """Return the skipped write if the application has already written this version or a later one, else None."""
        options = self._options
        return skipped_by(
            options.app_id, options.app_version, table.name, lambda app_id: self._view.progress(table, app_id)
        )

    def run(self, table: StagedTable, max_files: int | None) -> None:
        """Write the rows and find the files they replace, unless that is done for the table's current state."""
        if self._rows is None:
            self._rows = self._write_rows(table, self._metadata(table), max_files)
        elif not self._has_rows_for(table):
            if is_single_use(self._source):
                error = consumed(
                    self._source,
                    "another thread of this transaction changed the table while its rows were written, so they do not"
                    " fit the table",
                )
                raise error.located(table=table.name, txn_id=self._view.txn_id, stage="write data")
            self._opened = self._schema = None
            self._rows = self._write_rows(table, self._metadata(table), max_files)
        if self._options.overwrites and table.exists:
            self._replaced = self._replace(table, self._rows)

    def is_made_for(self, table: StagedTable) -> bool:
        """Return whether the written files can be staged for the table's current state."""
        is_replaced = not (self._options.overwrites and table.exists) or (
            self._replaced is not None and self._replaced.table is table
        )
        return is_replaced and self._has_rows_for(table)

    def steps(self, table: StagedTable) -> tuple[list[Action], Step, list[RowGroup]]:
        """Return the actions to stage, their step for the history, and the row groups of the files."""
        rows, options = self._rows, self._options
        assert rows is not None
        removed: Sequence[RemoveFile] = () if self._replaced is None else self._replaced.removed
        rewritten: Sequence[WrittenFile] = () if self._replaced is None else self._replaced.rewritten
        marked: Sequence[AddFile] = () if self._replaced is None else self._replaced.marked
        actions: list[Action] = []
        if options.app_id is not None and options.app_version is not None:
            now = int(time.time() * 1000)
            actions.append(Txn(app_id=options.app_id, version=options.app_version, last_updated=now))
        metadata = self._metadata(table)
        if metadata is not table.metadata:
            assert table.protocol is not None
            actions += metadata_actions(table.protocol, metadata)
        files = [*rows.files, *rewritten]
        actions += [*removed, *marked, *(file.add for file in files)]
        groups = [group for file in files for group in file.row_groups]
        return actions, self._step(table, metadata, rows.files, rewritten, removed), groups

    # -- schema ----------------------------------------------------------------------------------------------------

    def _has_rows_for(self, table: StagedTable) -> bool:
        rows = self._rows
        if rows is None or rows.location != table.location or not _suits(rows.metadata, self._metadata(table)):
            return False
        # Rows that were counted for an older state of the table may have numbers that others got meanwhile.
        return rows.before == table.metadata or not counted(rows.metadata.schema, self.schema.names)

    def _metadata(self, table: StagedTable) -> Metadata:
        """Return the table's metadata after this write: the same object if nothing changes."""
        options, metadata = self._options, table.metadata
        if metadata is None:
            raise ValidationError("nothing was committed to the table yet: stage its version 0 first", table=table.name)
        if self._rows is not None and self._rows.before == metadata:
            # Computed again, a new column would get another physical name than in the files.
            return metadata if self._rows.metadata == metadata else self._rows.metadata
        data = self.schema
        schema, columns = metadata.schema, list(metadata.partition_columns)
        wanted = None if options.partition_by is None else list(as_names(options.partition_by))
        if options.overwrite_schema:
            schema = data
            names = columns if wanted is None else wanted
            hint = "Give partition_by=[…] for the new schema."
            columns = [partition_column(schema, name, hint=hint) for name in names]
        elif wanted is not None and [name.lower() for name in wanted] != [name.lower() for name in columns]:
            raise ValidationError(
                f"the table is partitioned by {columns or 'nothing'}, not by {wanted}",
                table=table.name,
                field="partition_by",
                hint="Leave out partition_by, or use mode='overwrite' with overwrite_schema=True.",
            )
        elif options.merge_schema:
            can_widen = boolean_property(metadata.configuration, "delta.enableTypeWidening")
            schema = merged(schema, data, can_widen=can_widen)
        if schema == metadata.schema and columns == list(metadata.partition_columns):
            return metadata
        after = changed(metadata, schema_string=schema.to_json(), partition_columns=columns)
        if options.overwrite_schema:
            self._refuse_lost_clustering(table, metadata, after)
        return after

    def _refuse_lost_clustering(self, table: StagedTable, before: Metadata, after: Metadata) -> None:
        """Raise if a new schema does not fit the table's clustering columns."""
        if table.protocol is None or CLUSTERING_FEATURE not in supported_features(table.protocol):
            return
        is_mapped = column_mapping(before.configuration) != "none"
        columns = clustering_columns(self._view.domains(table), before.schema, is_mapped=is_mapped)
        left = {path for path, _ in after.schema.leaves()}
        lost = [path for path in columns if path not in left]
        if lost or (columns and after.partition_columns):
            what = f"the new schema lacks {'.'.join(lost[0])}" if lost else "a clustered table has no partitions"
            raise ValidationError(
                f"the table is clustered by {', '.join('.'.join(path) for path in columns)}: {what}",
                table=table.name,
                field="overwrite_schema",
                hint="Create it again for the new schema: create_table(…, replace=True, cluster_by=[…]).",
            )

    def _refuse_unpartitioned(self, table: StagedTable, data: StructType, metadata: Metadata) -> None:
        """Raise if the data lacks a partition column. Null, as for other missing columns, would be a mistake here."""
        present = {name.lower() for name in data.names}
        missing = [
            name
            for name in metadata.partition_columns
            if name.lower() not in present and not is_computed(metadata.schema[name])
        ]
        if missing:
            raise SchemaMismatch(
                f"the data lacks the column {missing[0]}, which the table is partitioned by;"
                f" its columns are {', '.join(data.names)}",
                table=table.name,
                field=missing[0],
                hint=f"Add {missing[0]} to the frame; if nulls are what you mean, as a column of nulls.",
            )

    def _predicate(self, metadata: Metadata) -> Predicate | None:
        where = self._options.replace_where
        return None if where is None else self._plane.condition(self._frame, where, metadata.schema)

    # -- files -----------------------------------------------------------------------------------------------------

    def _write_rows(self, table: StagedTable, metadata: Metadata, max_files: int | None) -> _Rows:
        options, data = self._options, self.schema
        self._refuse_unpartitioned(table, data, metadata)
        conditions = conditions_of(metadata, data.names)
        predicate = self._predicate(metadata)
        if predicate is not None and options.replace_where is not None:
            conditions.append(Condition("replace_where", options.replace_where))
        target = self._target(table, metadata, max_files)
        with self._located(table):
            refuse_given(metadata.schema, data.names)
            session = self._view.session
            with counting(session, table, metadata, data.names, self._frame) as rows:
                frame = self._plane.with_computed_columns(self._frame, rows.schema)
                files = self._plane.write(frame, target, conditions)
                return _Rows(table.metadata, rows.after(session, files), table.location, files)

    def _target(self, table: StagedTable, metadata: Metadata, max_files: int | None) -> WriteTarget:
        options = self._options
        target = self._view.write_target(
            table, metadata, target_file_size=options.target_file_size, compression=options.compression
        )
        return target.with_options(max_records_per_file=options.max_records_per_file, max_files=max_files)

    def _located(self, table: StagedTable) -> AbstractContextManager[None]:
        return located(table=table.name, txn_id=self._view.txn_id, stage="write data")

    def _replace(self, table: StagedTable, rows: _Rows) -> _Replaced:
        """Find the files that the new ones replace, and rewrite their rows that stay."""
        metadata = self._metadata(table)
        predicate = self._predicate(metadata)
        if self._options.is_dynamic:
            found = of_written_partitions(self._view, table, metadata, rows.files)
        else:
            found = self._view.files(table, predicate)
        if predicate is None:
            return _Replaced(table, removes_of(found), ())
        kept = possibly_unmatched(found, predicate, metadata)
        if kept.num_rows and has_feed(metadata.configuration):
            return self._delete(table, found, kept, metadata)
        return _Replaced(table, removes_of(found), self._rewrite(table, kept, metadata))

    def _delete(self, table: StagedTable, found: pa.Table, kept: pa.Table, metadata: Metadata) -> _Replaced:
        """Delete the replaced rows by their positions, which the change data feed needs."""
        whole = found.filter(pc.invert(pc.is_in(found["path"], value_set=kept["path"].combine_chunks())))
        scan = self._view.scan_of(table, metadata, kept)
        changes = self._plane.changes(self._frame)
        with self._located(table):
            rows = changes.delete(scan, Delete(self._options.replace_where))
            target = self._target(table, metadata, None)
            files = without_rows(kept, scan, rows.positions, changes, target, by_vectors=uses_vectors(metadata))
        removed = [*removes_of(whole), *files.removes]
        tracked = changed_rows(kept, rows, files, frozenset(), changes)
        return _Replaced(table, removed, files.written, files.adds, tracked)

    def _rewrite(self, table: StagedTable, files: pa.Table, metadata: Metadata) -> list[WrittenFile]:
        """Write again the rows that stay, of files that also hold replaced rows."""
        if not files.num_rows or self._options.replace_where is None:
            return []
        scan = self._view.scan_of(table, metadata, files)
        staying = self._plane.without(self._frame, scan, self._options.replace_where)
        with self._located(table):
            return self._plane.write(staying, self._target(table, metadata, None), ())

    def _step(
        self,
        table: StagedTable,
        metadata: Metadata,
        written: Sequence[WrittenFile],
        rewritten: Sequence[WrittenFile],
        removed: Sequence[RemoveFile],
    ) -> Step:
        options = self._options
        columns = ",".join(f'"{column}"' for column in metadata.partition_columns)
        params: dict[str, Any] = {"partitionBy": f"[{columns}]"}
        creates = table.new and not self._by_path
        if not creates:
            params["mode"] = "ErrorIfExists" if options.mode == "error" else options.mode.capitalize()
        if options.replace_where is not None:
            params["predicate"] = options.replace_where
        metrics = {
            "numFiles": len(written) + len(rewritten),
            "numOutputBytes": sum(file.add.size for file in (*written, *rewritten)),
            "numOutputRows": sum(group.num_rows for file in written for group in file.row_groups),
        }
        if removed:
            metrics["numRemovedFiles"] = len(removed)
        rows = None if self._replaced is None else self._replaced.changed
        return Step("CREATE TABLE AS SELECT" if creates else "WRITE", params, metrics, changed=rows)


def _suits(written: Metadata, now: Metadata) -> bool:
    """Return whether files written for one metadata suit another: only columns that may be missing were added."""
    if written is now:
        return True
    known = {field.name: field for field in now.schema.fields}
    there = {field.name for field in written.schema.fields}
    return (
        list(written.partition_columns) == list(now.partition_columns)
        and _settings(written) == _settings(now)
        and all(known.get(field.name) == field for field in written.schema.fields)
        and all(_may_be_missing(field) for field in now.schema.fields if field.name not in there)
    )


def _may_be_missing(field: StructField) -> bool:
    return field.nullable and not is_computed(field) and invariant_of(field) is None


def _settings(metadata: Metadata) -> dict[str, str]:
    return {key: value for key, value in metadata.configuration.items() if key != _MAX_COLUMN_ID}
