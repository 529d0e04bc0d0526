"""Validation of a commit against the table's metadata and protocol before the commit.

It runs before the lock, with the state known then, and again under the lock if another commit changed that state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow.compute as pc

from deltars.log.arrow_adds import partition_values
from deltars.log.commit import TableCommit
from deltars.log.file_rules import num_records
from deltars.log.table_state import TableState
from deltars.log.validation import refuse
from deltars.protocol import (
    AddFile,
    CdcFile,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    check_protocol_change,
    needed_features,
    supported_features,
)

ROW_TRACKING_DOMAIN = "delta.rowTracking"


def check_state(commit: TableCommit, before: TableState) -> None:
    """Check all rules that need the table's metadata and protocol before the commit."""
    after = _state_after(commit, before)
    if after.metadata is None or after.protocol is None:
        missing = "metaData" if after.metadata is None else "protocol"
        refuse(commit, f"version 0 of a table must carry {missing}", field=missing)
    if before.protocol_problem:
        refuse(commit, before.protocol_problem, field="protocol")
    if after is not before:
        _check_features(commit, after.metadata, after.protocol)
    _check_used_features(commit, after.protocol)
    _check_partitions(commit, after.partition_names)
    # A commit that makes the table append-only may still remove.
    if after.is_append_only and (before.metadata is None or before.is_append_only):
        _check_append_only(commit)
    if after.tracks_rows:
        _check_row_tracking(commit)


def _state_after(commit: TableCommit, before: TableState) -> TableState:
    metadata, protocol = before.metadata, before.protocol
    for position, action in enumerate(commit.actions):
        if isinstance(action, Metadata):
            metadata = action
        elif isinstance(action, Protocol):
            problem = check_protocol_change(protocol, action, commit.drops_features)
            if problem:
                refuse(commit, problem, position, "protocol")
            protocol = action
    is_same = metadata is before.metadata and protocol is before.protocol
    return before if is_same else TableState(metadata, protocol)


def _check_features(commit: TableCommit, metadata: Metadata, protocol: Protocol) -> None:
    """Reject metadata with a property or a column that needs a table feature which the protocol does not list."""
    missing = needed_features(metadata.schema, metadata.configuration) - supported_features(protocol)
    if missing:
        names = ", ".join(sorted(missing))
        refuse(
            commit,
            f"the metadata needs the table feature {names}, which the protocol does not list",
            field="protocol",
        )


def _check_used_features(commit: TableCommit, protocol: Protocol) -> None:
    """Reject actions whose feature is not listed: readers would ignore them, and deleted rows would come back."""
    for position, action in enumerate(commit.actions):
        needed, field = _feature_of(action)
        if needed is not None and needed not in supported_features(protocol):
            refuse(commit, _unlisted(field, needed), position, field)
    has_vectors = commit.adds is not None and "deletion_vector" in commit.adds.column_names
    if commit.adds is not None and has_vectors and "deletionVectors" not in supported_features(protocol):
        column = commit.adds["deletion_vector"]
        if column.null_count < len(column):
            row = pc.index(pc.is_valid(column), True).as_py()
            refuse(commit, f"row {row}: {_unlisted('deletion_vector', 'deletionVectors')}", field="deletion_vector")


def _unlisted(field: str, feature: str) -> str:
    return f"{field} needs the table feature {feature}, which the protocol does not list"


def _feature_of(action: Any) -> tuple[str | None, str]:
    match action:
        case AddFile() | RemoveFile() if action.deletion_vector is not None:
            return "deletionVectors", "deletion_vector"
        case CdcFile():
            return "changeDataFeed", "cdc"
        case DomainMetadata():
            return "domainMetadata", "domainMetadata"
        case _:
            return None, ""


def _check_partitions(commit: TableCommit, columns: frozenset[str]) -> None:
    for position, action in enumerate(commit.actions):
        if isinstance(action, AddFile | CdcFile) and action.partition_values.keys() != columns:
            refuse(commit, _partition_problem(action.partition_values, columns), position, "partition_values")
    if commit.adds is not None:
        for row, values in partition_values(commit.adds):
            if values.keys() != columns:
                refuse(commit, f"row {row()}: {_partition_problem(values, columns)}", field="partition_values")


def _partition_problem(values: Mapping[str, str | None], columns: frozenset[str]) -> str:
    wanted = ", ".join(sorted(columns)) or "no column"
    return f"partition values are for {', '.join(sorted(values)) or 'no column'}; the table is partitioned by {wanted}"


def _check_append_only(commit: TableCommit) -> None:
    """Reject the removal of data from an append-only table."""
    for position, action in enumerate(commit.actions):
        if isinstance(action, RemoveFile) and action.data_change:
            refuse(
                commit,
                "the table is append-only (delta.appendOnly): no data may be removed",
                position,
                "data_change",
            )


def _check_row_tracking(commit: TableCommit) -> None:
    """Check what row ids need: `numRecords` of each file, and a high-water mark that only the commit itself writes."""
    problem = "stats: a table with row tracking needs numRecords for every file"
    for position, action in enumerate(commit.actions):
        if isinstance(action, AddFile) and num_records(action.stats) is None:
            refuse(commit, problem, position, "stats")
        if isinstance(action, DomainMetadata) and action.domain == ROW_TRACKING_DOMAIN:
            refuse(commit, f"domain: {ROW_TRACKING_DOMAIN} is written by the commit itself", position, "domain")
    if commit.adds is not None:
        texts = commit.adds["stats"].to_pylist() if "stats" in commit.adds.column_names else [None]
        for row, text in enumerate(texts):
            if num_records(text) is None:
                refuse(commit, f"row {row}: {problem}", field="stats")
