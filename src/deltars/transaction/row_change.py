"""One row-level change of one table: turns DELETE, UPDATE or MERGE into staged actions.

    statement ── names and types resolved against the schema
              ── files that may match, by partition values and statistics; remembered as read
                   ├─ every row matches ──▶ removed without being opened (DELETE)
                   └─ in doubt ──plane──▶ rows that go, rows that come ──▶ `changed_files`

The plane is chosen by what must be read (`read_size`): little, and conditions that Arrow evaluates exactly as Spark
does, are handled in this process; otherwise Spark runs a job.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from deltars.data.arrow_change import ArrowChanges, searched_columns
from deltars.data.conditions import conditions_of
from deltars.data.evaluation import RowCondition
from deltars.data.filter import PredicateFilter
from deltars.data.plane import ArrowPlane, DataPlane
from deltars.data.reader import RowFilter
from deltars.data.row_change import ChangePlane, Delete, Expression, Merge, RowChanges, Update
from deltars.data.row_ids import FILE_COLUMNS, reading_ids, with_hidden_columns
from deltars.data.scan import SCAN_COLUMNS, Scan
from deltars.data.write_target import WriteTarget, WrittenFile
from deltars.errors import PredicateError, ValidationError, located
from deltars.log.arrow_adds import file_keys
from deltars.log.commit import RowGroup
from deltars.log.coverage import split_files
from deltars.log.snapshot import num_rows
from deltars.log.table_state import APPEND_ONLY, tracks_rows
from deltars.predicate import Predicate, Unknown, leaves_of, parse, unqualified
from deltars.protocol import Action, Metadata, StructField, StructType, Txn
from deltars.protocol.change_feed import has_feed
from deltars.protocol.identity import refuse_updated
from deltars.protocol.properties import boolean_property
from deltars.protocol.row_tracking import materialized_names
from deltars.transaction.assignments import is_spark_column, resolved
from deltars.transaction.change_data import ChangedRows
from deltars.transaction.change_metrics import ChangeMetrics, measured
from deltars.transaction.changed_files import ChangedFiles, changed_rows, uses_vectors, without_rows
from deltars.transaction.identity_marks import counting
from deltars.transaction.metadata import metadata_actions
from deltars.transaction.options import CheckedChangeOptions
from deltars.transaction.plane import running_spark, spark_plane
from deltars.transaction.read_size import is_small
from deltars.transaction.result import SkippedWrite
from deltars.transaction.spark_only import only_with_spark, spark_only
from deltars.transaction.staged_table import StagedTable, Step
from deltars.transaction.view import View

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Planes:
    """The planes that find the rows, that write the rows that come, and that rewrite files without rows that go."""

    changes: ChangePlane
    data: DataPlane
    purges: ChangePlane


class RowChange(ABC):
    """One statement on one table. `run` may be called again, for a newer state of the table."""

    operation: str

    def __init__(self, view: View, options: CheckedChangeOptions) -> None:
        self._view = view
        self._options = options
        self._made_for: StagedTable | None = None
        self._max_files: int | None = None
        self._files = ChangedFiles()
        self._new: list[WrittenFile] = []
        self._changed: ChangedRows | None = None
        self._metadata: Metadata | None = None
        self._params: dict[str, Any] = {}
        self.metrics = ChangeMetrics()

    def run(self, table: StagedTable, max_files: int | None) -> None:
        """Find the rows and write the files, at most so many, for this state of the table."""
        assert table.metadata is not None
        self._max_files = max_files
        self._files, self._new, self._metadata, self._changed = ChangedFiles(), [], table.metadata, None
        with located(table=table.name, txn_id=self._view.txn_id, stage="write data"):
            self.metrics = self._run(table, table.metadata)
        self._made_for = table

    def is_made_for(self, table: StagedTable) -> bool:
        return self._made_for is table

    @abstractmethod
    def _run(self, table: StagedTable, metadata: Metadata) -> ChangeMetrics: ...

    @property
    def has_effect(self) -> bool:
        """Whether the statement changes anything. One that matches no row makes no version."""
        files = self._files
        return bool(files.removes or files.adds or files.written or self._new) or self._options.app_id is not None

    def skipped(self, table: StagedTable) -> SkippedWrite | None:
        """Return the skipped change if the application has already committed this version or a later one."""
        return self._options.skipped(table.name, lambda app_id: self._view.progress(table, app_id))

    def steps(self, table: StagedTable) -> tuple[list[Action], Step, list[RowGroup]]:
        """Return the actions to stage, their step for the history, and the row groups of new files."""
        files, options = self._files, self._options
        actions: list[Action] = []
        if options.app_id is not None and options.app_version is not None:
            now = int(time.time() * 1000)
            actions.append(Txn(app_id=options.app_id, version=options.app_version, last_updated=now))
        if self._metadata is not None and self._metadata is not table.metadata:
            assert table.protocol is not None
            actions += metadata_actions(table.protocol, self._metadata)
        written = [*files.written, *self._new]
        actions += [*files.removes, *files.adds, *(file.add for file in written)]
        metrics = {name: int(count) for name, count in self.metrics.operation_metrics.items()}
        groups = [group for file in written for group in file.row_groups]
        return actions, Step(self.operation, self._params, metrics, changed=self._changed), groups

    # -- parts that all statements share ---------------------------------------------------------------------------

    def _without_alias(self, expression: Expression | None, schema: StructType) -> Expression | None:
        """Return SQL text without the table's alias. Spark resolves that of a Spark Column."""
        if self._options.alias is None or not isinstance(expression, str):
            return expression
        return unqualified(expression, self._options.alias, schema.names)

    def _predicate(self, where: Expression | None, schema: StructType) -> Predicate | None:
        """Return the parsed condition; None if there is none. Only Spark can evaluate a Spark Column."""
        if where is None:
            return None
        if is_spark_column(where):
            return Unknown("a Spark Column")
        session = self._spark()
        predicate = parse(where, schema) if session is None else spark_plane().predicate(session, where, schema)
        # Spark knows time zones that Python does not. Then only Spark evaluates the condition.
        return Unknown(where) if predicate is None else predicate

    def _row_filter(
        self, where: Expression | None, predicate: Predicate | None, schema: StructType
    ) -> RowFilter | None:
        """Return a filter that finds the matching rows of any file, in this process; None if only Spark can.

        Parts that have to be computed, such as `id % 5 = 1`, are computed if Arrow has Spark's result.
        """
        found = row_filter(predicate)
        if found is not None or not isinstance(where, str) or self._refusal(Delete(where), schema) is not None:
            return found
        return RowCondition(where, schema)

    def _zone(self) -> str:
        """Return the time zone of literals without one: the session's, which Python may not know, else UTC."""
        session = self._spark()
        return "UTC" if session is None else spark_plane().zone(session)

    def _spark(self) -> SparkSession | None:
        return running_spark(self._options.spark)

    def _refusal(
        self, statement: Delete | Update | Merge, schema: StructType, source: StructType | None = None
    ) -> str | None:
        """Return why only Spark can carry out the statement; None if Arrow can, with the same result."""
        assert self._metadata is not None
        reason = ArrowChanges.refusal(statement, schema, source)
        return reason or spark_only(statement, self._metadata, source, self._zone())

    def _planes(
        self, refusal: str | None, files: pa.Table, *, root: str = "", searched: Sequence[StructField] | None = None
    ) -> Planes:
        """Choose the planes. `refusal` says why Arrow cannot do it. `searched` as in `is_small`."""
        if refusal is None and (self._spark() is None or is_small(files, root=root, searched=searched)):
            return self._arrow_planes(files)
        return self._spark_planes(refusal)

    def _arrow_planes(self, files: pa.Table) -> Planes:
        """Return the planes of this process. Many files are rewritten by Spark all the same."""
        is_alone = self._spark() is None or is_small(files)
        changes = ArrowChanges()
        return Planes(changes, ArrowPlane(), changes if is_alone else self._spark_planes(None).purges)

    def _spark_planes(self, reason: str | None) -> Planes:
        """Return the planes of Spark. `reason` says why Arrow cannot do it."""
        session = self._spark()
        if session is None:
            raise only_with_spark(reason)
        from deltars.spark.change.plane import SparkChanges

        changes = SparkChanges(session)
        return Planes(changes, spark_plane(), changes)

    @property
    def _keeps_ids(self) -> bool:
        """Whether rows that move to another file must keep their ids."""
        metadata = self._metadata
        moves_rows = self.operation != "DELETE" or metadata is None or not uses_vectors(metadata)
        return moves_rows and metadata is not None and tracks_rows(metadata)

    def _refuse_for(self, table: StagedTable, metadata: Metadata, *, moves_rows: bool) -> None:
        """Raise if the table's properties forbid a change of rows that exist. `moves_rows`: some get another file."""
        if boolean_property(metadata.configuration, APPEND_ONLY):
            raise ValidationError(
                f"the table is append-only: {self.operation} is not allowed",
                table=table.name,
                field=APPEND_ONLY,
                hint=f"Set the property {APPEND_ONLY} to false if you mean to change rows.",
            )
        if moves_rows and tracks_rows(metadata) and not materialized_names(metadata.configuration):
            raise ValidationError(
                f"{self.operation} would move rows to other files, and the table names no columns for their row ids",
                table=table.name,
                field="delta.enableRowTracking",
                hint="Turn row tracking off and on again, which names them, or use delta.enableDeletionVectors.",
            )

    def _scan(self, table: StagedTable, metadata: Metadata, files: pa.Table) -> Scan:
        scan = self._view.scan_of(table, metadata, files)
        names = materialized_names(metadata.configuration) if self._keeps_ids else ()
        if not names:
            return scan
        return reading_ids(replace(scan, source=files.select([*SCAN_COLUMNS, *FILE_COLUMNS])), names)

    def _target(self, table: StagedTable, metadata: Metadata) -> WriteTarget:
        options = self._options
        target = self._view.write_target(
            table, metadata, target_file_size=options.target_file_size, compression=options.compression
        )
        return target.with_options(max_files=self._max_files)

    def _store(
        self, table: StagedTable, metadata: Metadata, files: pa.Table, scan: Scan, changes: RowChanges, planes: Planes
    ) -> None:
        """Write the rows that come, then delete those that go."""
        target = self._target(table, metadata)
        updated = self._write(table, changes.rows, scan, metadata, target, planes)
        metadata = self._metadata or metadata
        self._new += updated + self._write(table, changes.inserted_rows, scan, metadata, target, planes)
        self._files = without_rows(
            files, scan, changes.positions, planes.purges, target, by_vectors=uses_vectors(metadata)
        )
        if has_feed(metadata.configuration):
            paths = frozenset(file.add.path for file in updated) if changes.updated else frozenset[str]()
            self._changed = changed_rows(files, changes, self._files, paths, planes.purges)

    def _write(
        self,
        table: StagedTable,
        frames: Sequence[object],
        scan: Scan,
        metadata: Metadata,
        target: WriteTarget,
        planes: Planes,
    ) -> list[WrittenFile]:
        written: list[WrittenFile] = []
        for frame in frames:
            data, session = planes.data.schema(frame), self._view.session
            with counting(session, table, metadata, data.names, frame) as rows:
                whole = planes.data.with_computed_columns(frame, rows.schema)
                hidden = [name for name in scan.hidden_columns if name in data.names]
                place = target.with_options(schema=with_hidden_columns(metadata.schema, hidden)) if hidden else target
                some = planes.data.write(whole, place, conditions_of(metadata, data.names))
                written += some
                # The next frame's rows are counted after these.
                self._metadata = metadata = rows.after(session, some)
        return written

    def _move(self, table: StagedTable, files: pa.Table, scan: Scan, target: WriteTarget) -> None:
        """Write these files again, each by itself, without the rows that their vectors delete. No row changes."""
        planes = self._planes(None, files)
        nothing = {place: BitMap64() for place in range(files.num_rows)}
        written = planes.purges.purge(scan, nothing, target)
        # Rows that left a file in this transaction are a change of data, for readers that follow the log.
        staged = set(file_keys(table.added()))
        is_staged = [key in staged for key in file_keys(files)]
        for data_change in (False, True):
            places = [place for place in nothing if is_staged[place] is data_change]
            new = [file for place in places for file in written.get(place, ())]
            self._files.moved(files.take(pa.array(places, pa.int64())), new, data_change=data_change)
        if self._metadata is not None and has_feed(self._metadata.configuration):
            paths = files["path"].to_pylist()
            moved = {file.add.path: paths[place] for place, new in written.items() for file in new}
            self._changed = ChangedRows(rewritten=frozenset(file_keys(files)), moved=moved)

    def _measured(self, changes: RowChanges, deleted: int | None, scan_s: float, rewrite_s: float) -> ChangeMetrics:
        files = self._files
        written = [file.add for file in (*files.written, *self._new)]
        # A file with a larger vector is neither added nor removed: its rows stay where they are.
        stays = {add.path for add in files.adds}
        removed = [remove for remove in files.removes if remove.path not in stays]
        counts = {
            "files_added": len(written),
            "files_removed": len(removed),
            "bytes_added": sum(add.size for add in written),
            "bytes_removed": sum(remove.size or 0 for remove in removed),
            "vectors_added": files.vectors_added,
            "vectors_removed": files.vectors_removed,
            "vectors_updated": files.vectors_updated,
            "rows_inserted": changes.inserted,
            "rows_updated": changes.updated,
            "rows_deleted": deleted,
            "rows_copied": files.rows_copied,
            "rows_written": changes.inserted + changes.updated + files.rows_copied,
        }
        return measured(self.operation, counts, changes.metrics, scan_s, rewrite_s)


class DeleteRows(RowChange):
    """DELETE of the rows that match a condition; of all rows without one."""

    operation = "DELETE"

    def __init__(self, view: View, options: CheckedChangeOptions, where: Expression | None) -> None:
        super().__init__(view, options)
        self._where = where

    def _run(self, table: StagedTable, metadata: Metadata) -> ChangeMetrics:
        began = time.perf_counter()
        self._params = {"predicate": _as_list(self._where)}
        where = self._without_alias(self._where, metadata.schema)
        statement = Delete(where, self._options.alias)
        predicate = self._predicate(where, metadata.schema)
        refusal = self._refusal(statement, metadata.schema)
        if refusal is not None and self._spark() is None:
            # An empty table refuses what a filled one would refuse.
            self._spark_planes(refusal)
        tested_by = self._row_filter(where, predicate, metadata.schema)
        found = self._view.change_files(table, predicate, row_filter=tested_by, changes_matches=True)
        if boolean_property(metadata.configuration, APPEND_ONLY):
            self._refuse_for(table, metadata, moves_rows=False)
        certain, doubt = split_files(predicate, metadata, found)
        changes = RowChanges({})
        scanned = time.perf_counter()
        if doubt.num_rows:
            self._refuse_for(table, metadata, moves_rows=not uses_vectors(metadata))
            scan = self._scan(table, metadata, doubt)
            searched = None if refusal else searched_columns(statement, metadata.schema)
            planes = self._planes(refusal, doubt, root=scan.root, searched=searched)
            changes = planes.changes.delete(scan, statement)
            scanned = time.perf_counter()
            self._store(table, metadata, doubt, scan, changes, planes)
        self._files.remove(certain)
        whole = num_rows(certain)
        deleted = None if whole is None else whole + changes.deleted
        return self._measured(changes, deleted, scanned - began, time.perf_counter() - scanned)


class UpdateRows(RowChange):
    """UPDATE of the rows that match a condition; of all rows without one."""

    operation = "UPDATE"

    def __init__(
        self, view: View, options: CheckedChangeOptions, values: Mapping[str, Expression], where: Expression | None
    ) -> None:
        super().__init__(view, options)
        self._values = values
        self._where = where

    def _run(self, table: StagedTable, metadata: Metadata) -> ChangeMetrics:
        began = time.perf_counter()
        self._params = {"predicate": _as_list(self._where)}
        self._refuse_for(table, metadata, moves_rows=True)
        where = self._without_alias(self._where, metadata.schema)
        given = resolved(self._values, metadata.schema, field="set", alias=self._options.alias)
        values = {name: self._without_alias(value, metadata.schema) for name, value in given.items()}
        refuse_updated(metadata.schema, values)
        statement = Update(values, where, self._options.alias)
        predicate = self._predicate(where, metadata.schema)
        tested_by = self._row_filter(where, predicate, metadata.schema)
        found = self._view.change_files(table, predicate, row_filter=tested_by, changes_matches=True)
        try:
            scan = self._scan(table, metadata, found)
            planes = self._planes(self._refusal(statement, metadata.schema), found)
            changes = planes.changes.update(scan, statement)
        except PredicateError as error:
            if error.field == "expression" and error.position is not None:
                error.hint = "A text in set is an expression of columns: write \"'text'\" for a string."
            raise
        scanned = time.perf_counter()
        self._store(table, metadata, found, scan, changes, planes)
        return self._measured(changes, 0, scanned - began, time.perf_counter() - scanned)


class PurgeFiles(RowChange):
    """REORG … APPLY (PURGE): files with deletion vectors are written again without the deleted rows."""

    operation = "REORG"

    def __init__(self, view: View, options: CheckedChangeOptions, where: Expression | None) -> None:
        super().__init__(view, options)
        self._where = where

    def _run(self, table: StagedTable, metadata: Metadata) -> ChangeMetrics:
        began = time.perf_counter()
        self._params = {"predicate": _as_list(self._where), "applyPurge": "true"}
        found = self._view.files_to_move(table, self._predicate(self._where, metadata.schema))
        files = found.filter(pc.is_valid(found["deletion_vector"]))
        if tracks_rows(metadata) and files.num_rows:
            self._refuse_for(table, metadata, moves_rows=True)
        self._move(table, files, self._scan(table, metadata, files), self._target(table, metadata))
        return self._measured(RowChanges({}), 0, 0.0, time.perf_counter() - began)


def row_filter(predicate: Predicate | None) -> PredicateFilter | None:
    """Return a filter that finds the matching rows of any file; None if a part has to be computed."""
    if predicate is None or any(isinstance(leaf, Unknown) for leaf in leaves_of(predicate)):
        return None
    return PredicateFilter(predicate)


def _as_list(where: Expression | None) -> str:
    """Return a condition as the history shows it: a JSON list of texts."""
    return msgspec.json.encode([] if where is None else [f"({where})"]).decode()
