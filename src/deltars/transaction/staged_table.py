"""Staged changes of one table: the steps of a transaction, folded into one version.

an add that a later step removes                    is dropped
a removed file that a later step adds again         is only added: the add supersedes the remove
metadata, protocol, an application's progress,
a domain, a file described twice                    the last one wins
the operations                                      one by its name, several listed in the parameters
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from deltars.log.arrow_adds import canonical, deletion_vectors, file_keys
from deltars.log.commit import RowGroup, TableCommit
from deltars.log.file_rules import num_records
from deltars.log.new_table import NO_VERSION, NewTable
from deltars.log.read_set import FileKey
from deltars.log.snapshot import FILE_SCHEMA
from deltars.log.validation import check_actions
from deltars.protocol import Action, AddFile, CdcFile, DomainMetadata, Metadata, Protocol, RemoveFile, Txn
from deltars.protocol.actions import decode_deletion_vector, decode_partition_values
from deltars.protocol.change_feed import has_feed
from deltars.store.commit.bulk import columns_of
from deltars.transaction.change_data import ChangeData, ChangedRows

SEVERAL = "TRANSACTION"
"""Operation name of a version that is made of several kinds of steps."""


@dataclass(frozen=True, slots=True)
class Step:
    """One call that staged something, as the table's history will show it."""

    operation: str
    params: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, int] = field(default_factory=dict)
    restores: int | None = None
    """Older version whose files the step adds again."""
    changed: ChangedRows | None = None
    """Rows that the step changes, if the table has a change data feed and files alone do not show them."""
    drops_feature: str | None = None
    """Table feature that the step drops."""


class StagedTable:
    """A table as of the transaction's beginning, with the changes staged for it.

    It is immutable: `with_step` returns a new one, so that a step is staged whole or not at all.
    """

    def __init__(
        self,
        table_id: UUID,
        name: str,
        location: str,
        version: int,
        metadata: Metadata | None,
        protocol: Protocol | None = None,
        *,
        new: NewTable | None = None,
        initial: Sequence[Action] = (),
        is_live: Callable[[FileKey], bool] = lambda _: False,
    ) -> None:
        """Begin with the `initial` actions of a new table. `is_live` says whether a file was live at the beginning."""
        self.table_id = table_id
        self.name = name
        self.location = location
        self.version = version
        self.new = new
        self.expected_version: int | None = None
        """Version given by the caller, in place of the version at the beginning."""
        self.is_exact = False
        """Whether the caller allows no newer version, at any isolation level."""
        self._metadata = metadata
        self._protocol = protocol
        self._is_live = is_live
        self._steps: list[Step] = []
        self._params: Mapping[str, Any] = {}
        self._files: dict[FileKey, AddFile | RemoveFile] = {}
        self._columns: list[pa.Table] = []
        self._others: dict[tuple[object, ...], Action] = {}
        self._row_groups: list[RowGroup] = []
        self.change_data = ChangeData()
        self._fold(initial)

    @property
    def metadata(self) -> Metadata | None:
        """Staged metadata, else the metadata as of the transaction's beginning; None before version 0."""
        staged = self._others.get((Metadata,))
        return staged if isinstance(staged, Metadata) else self._metadata

    @property
    def protocol(self) -> Protocol | None:
        staged = self._others.get((Protocol,))
        return staged if isinstance(staged, Protocol) else self._protocol

    def progress(self, app_id: str) -> int | None:
        """Return the staged version of an application; None if none is staged."""
        staged = self._others.get((Txn, app_id))
        return staged.version if isinstance(staged, Txn) else None

    @property
    def domains(self) -> dict[str, DomainMetadata]:
        """Staged domain metadata, by domain; removed ones are marked so."""
        return {action.domain: action for action in self._others.values() if isinstance(action, DomainMetadata)}

    @property
    def exists(self) -> bool:
        """Whether the table has a version, or staged changes."""
        return self.version != NO_VERSION or self.is_changed

    @property
    def is_changed(self) -> bool:
        return bool(self._steps)

    @property
    def num_added(self) -> int:
        return sum(isinstance(action, AddFile) for action in self._files.values()) + self._num_columnar

    @property
    def _num_columnar(self) -> int:
        return sum(len(columns) for columns in self._columns)

    def with_step(
        self,
        actions: Sequence[Action] | pa.Table,
        step: Step,
        row_groups: Sequence[RowGroup] = (),
        *,
        expected_version: int | None = None,
        is_exact: bool = False,
    ) -> StagedTable:
        """Return the table with one more step. Raise if its actions are not valid by themselves."""
        columns = canonical(actions) if isinstance(actions, pa.Table) else None
        single = () if isinstance(actions, pa.Table) else tuple(actions)
        check_actions(TableCommit(self.table_id, self.version, single, step.operation, step.params, adds=columns))
        after = copy(self)
        after._files, after._others, after._columns = dict(self._files), dict(self._others), list(self._columns)
        if columns is not None:
            keys = set(file_keys(columns))
            after._leave_out(keys)
            for key in keys & after._files.keys():
                del after._files[key]
            after._columns.append(columns)
        after._fold(single)
        after._row_groups = [*self._row_groups, *row_groups]
        after._steps = [*self._steps, step]
        after._follow_rows(single, columns, step)
        if expected_version is not None:
            after.expected_version = expected_version
        after.is_exact = self.is_exact or is_exact
        return after

    def _follow_rows(self, actions: Sequence[Action], columns: pa.Table | None, step: Step) -> None:
        restores = step.restores is not None
        if self.metadata is not None and has_feed(self.metadata.configuration):
            more = () if columns is None else columns["path"].to_pylist()
            self.change_data = self.change_data.after(actions, more, step.changed, restores=restores)
        elif columns is not None or any(isinstance(action, AddFile | RemoveFile) for action in actions):
            self.change_data = self.change_data.untracked(actions, restores=restores)

    def with_progress(self, app_id: str, version: int, params: Mapping[str, Any]) -> StagedTable:
        """Return the table with an application's progress, and with more parameters for its history."""
        after = copy(self)
        after._others = {
            **self._others,
            (Txn, app_id): Txn(app_id=app_id, version=version, last_updated=int(time.time() * 1000)),
        }
        after._params = {**self._params, **params}
        return after

    def as_commit(self, change_files: Sequence[CdcFile] = ()) -> TableCommit:
        operations = {step.operation for step in self._steps}
        [params, *more] = [dict(step.params) for step in self._steps]
        filled = _created_and_filled([step.operation for step in self._steps])
        if filled is not None:
            operations = {filled}
        elif more:
            params = {
                "operations": [{"operation": step.operation, "parameters": dict(step.params)} for step in self._steps]
            }
        metrics = Counter[str]()
        for step in self._steps:
            metrics.update(step.metrics)  # unlike a sum of counters, this keeps zeros
        paths = {action.path for action in self._files.values() if isinstance(action, AddFile)}
        return TableCommit(
            self.table_id,
            self.version if self.expected_version is None else self.expected_version,
            [*self._others.values(), *self._files.values(), *change_files],
            operations.pop() if len(operations) == 1 else SEVERAL,
            {**params, **self._params},
            adds=pa.concat_tables(self._columns, promote_options="default") if self._columns else None,
            row_groups=[group for group in self._row_groups if group.path in paths],
            metrics={name: str(count) for name, count in metrics.items()},
            is_exact=self.is_exact,
            restores=frozenset(step.restores for step in self._steps if step.restores is not None),
            drops_features=frozenset(step.drops_feature for step in self._steps if step.drops_feature is not None),
        )

    # -- as the transaction sees it ------------------------------------------------------------------------------

    def over(self, files: pa.Table) -> pa.Table:
        """Return these live files without those that staged actions remove or add again."""
        gone = self._files.keys() | {key for columns in self._columns for key in file_keys(columns)}
        if not gone:
            return files
        return files.filter(pa.array([key not in gone for key in file_keys(files)], pa.bool_()))

    def added(self) -> pa.Table:
        """Return the staged adds, with the columns of live files."""
        singles = [action for action in self._files.values() if isinstance(action, AddFile)]
        parts = ([columns_of(singles)] if singles else []) + [_as_text(columns) for columns in self._columns]
        return pa.concat_tables([FILE_SCHEMA.empty_table(), *(_as_files(part, self.version + 1) for part in parts)])

    # -- folding ---------------------------------------------------------------------------------------------------

    def _fold(self, actions: Sequence[Action]) -> None:
        """Fold the actions of one step. No file occurs twice in a step, so one pass over the columns is enough."""
        in_columns = self._leave_out({action.key for action in actions if isinstance(action, AddFile | RemoveFile)})
        for action in actions:
            match action:
                case AddFile():
                    self._files.pop(action.key, None)
                    self._files[action.key] = action
                case RemoveFile():
                    was_staged = isinstance(self._files.pop(action.key, None), AddFile) or action.key in in_columns
                    if not was_staged or self._is_live(action.key):
                        self._files[action.key] = action
                case Metadata() | Protocol():
                    self._others[(type(action),)] = action
                case Txn():
                    self._others[Txn, action.app_id] = action
                case DomainMetadata():
                    self._others[DomainMetadata, action.domain] = action
                case _:
                    self._others[type(action), action.path if hasattr(action, "path") else None] = action

    def _leave_out(self, keys: set[FileKey]) -> set[FileKey]:
        """Remove files from the staged columns, and return those that were there."""
        found: set[FileKey] = set()
        for position, columns in enumerate(self._columns):
            there = file_keys(columns)
            found_here = keys.intersection(there)
            if found_here:
                self._columns[position] = columns.filter(pa.array([key not in keys for key in there], pa.bool_()))
                found |= found_here
        return found


def removes_of(files: pa.Table, *, data_change: bool = True) -> list[RemoveFile]:
    """Return the actions that remove these files; `files` has the columns of live files."""
    now = int(time.time() * 1000)
    return [
        RemoveFile(
            path=file["path"],
            data_change=data_change,
            deletion_timestamp=now,
            extended_file_metadata=True,
            partition_values=msgspec.json.decode(file["partition_values"]),
            size=file["size"],
            deletion_vector=None
            if file["deletion_vector"] is None
            else decode_deletion_vector(file["deletion_vector"]),
        )
        for file in files.select(["path", "partition_values", "size", "deletion_vector"]).to_pylist()
    ]


def files_without_row_ids(files: pa.Table, version: int) -> list[AddFile]:
    """Return actions that add files of a version again, so that the commit gives ids to rows that have none.

    Staged files, which are newer, get theirs anyway.
    """
    is_older = pc.less_equal(files["version"], version)
    return adds_of(files.filter(pc.and_(is_older, files["base_row_id"].is_null())), data_change=False)


def adds_of(files: pa.Table, *, data_change: bool = True) -> list[AddFile]:
    """Return the actions that add these files, with the columns of live files, as new data."""
    return [
        AddFile(
            path=file["path"],
            partition_values=decode_partition_values(file["partition_values"]),
            size=file["size"],
            modification_time=file["modification_time"],
            data_change=data_change,
            stats=file["stats"],
            tags=None if file["tags"] is None else decode_partition_values(file["tags"]),
            deletion_vector=None
            if file["deletion_vector"] is None
            else decode_deletion_vector(file["deletion_vector"]),
            base_row_id=file["base_row_id"],
            default_row_commit_version=file["default_row_commit_version"],
            clustering_provider=file["clustering_provider"],
        )
        for file in files.to_pylist()
    ]


def _as_text(columns: pa.Table) -> pa.Table:
    """Return add actions with their documents as JSON text, as live files have them."""
    for name in ("partition_values", "tags", "deletion_vector"):
        if name not in columns.column_names or pa.types.is_string(columns[name].type):
            continue
        values: list[Any] = (
            list(deletion_vectors(columns[name]))
            if name == "deletion_vector"
            else [None if entries is None else dict(entries) for entries in columns[name].to_pylist()]
        )
        texts = [None if value is None else msgspec.json.encode(value).decode() for value in values]
        columns = columns.set_column(columns.column_names.index(name), name, pa.array(texts, pa.string()))
    return columns


def _as_files(columns: pa.Table, version: int) -> pa.Table:
    count = columns.num_rows
    known = {
        field.name: columns[field.name].cast(field.type)
        if field.name in columns.column_names
        else pa.nulls(count, field.type)
        for field in FILE_SCHEMA
    }
    if "num_records" not in columns.column_names:
        known["num_records"] = pa.array(map(num_records, known["stats"].to_pylist()), pa.int64())
    known["version"] = pa.repeat(pa.scalar(version, pa.int64()), count)
    return pa.table(known, schema=FILE_SCHEMA)


def _created_and_filled(operations: Sequence[str]) -> str | None:
    """Return Delta's one name for the two steps that create a table and write its first rows; None for others."""
    match operations:
        case ["CREATE TABLE" | "CREATE OR REPLACE TABLE" as created, "WRITE" | "CREATE TABLE AS SELECT"]:
            return f"{created} AS SELECT"
    return None


__all__ = ["SEVERAL", "StagedTable", "Step", "adds_of", "files_without_row_ids", "removes_of"]
