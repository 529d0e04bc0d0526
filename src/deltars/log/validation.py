"""Which commits are valid.

    check_actions    what the actions alone tell: before a connection is taken
    check_state      what depends on the table's metadata and protocol: before, and again under the lock if they moved

Both raise `ValidationError`, which says which action (its position), which field, and why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from deltars.errors import ValidationError
from deltars.log.commit import NO_VERSION, TableCommit, TableState
from deltars.protocol import (
    AddFile,
    CdcFile,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    StructType,
    Txn,
    can_partition_by,
    check_action,
    check_path,
    check_protocol,
    check_protocol_change,
    is_true,
    needed_features,
    supported_features,
)

REQUIRED_ADD_COLUMNS = ("path", "partition_values", "size", "modification_time", "data_change")
ROW_TRACKING = "delta.enableRowTracking"


class _StatsHead(msgspec.Struct):
    numRecords: int | None = None  # noqa: N815


_decode_stats_head = msgspec.json.Decoder(_StatsHead).decode


def check_actions(commit: TableCommit) -> None:
    """Every rule that the actions can break by themselves."""
    if not commit.operation:
        _refuse(commit, "a commit needs the name of its operation", field="operation")
    seen: dict[tuple[str, ...], int] = {}
    for position, action in enumerate(commit.actions):
        _check_action(commit, position, action)
        for key in _uniqueness_keys(action):
            if key in seen:
                _refuse(commit, f"{_describe(key)} stands twice, also as action {seen[key]}", position, "path")
            seen[key] = position
    if commit.adds is not None:
        _check_columns(commit, commit.adds)


def check_state(commit: TableCommit, state: TableState) -> None:
    """Every rule that needs the table's metadata and protocol, as they are before the commit."""
    metadata, protocol = state.metadata, state.protocol
    for position, action in enumerate(commit.actions):
        match action:
            case Metadata():
                metadata = action
            case Protocol():
                problem = check_protocol_change(protocol, action)
                if problem:
                    _refuse(commit, problem, position, "protocol")
                protocol = action
            case _:
                pass
    if metadata is None or protocol is None:
        missing = "metaData" if metadata is None else "protocol"
        _refuse(commit, f"version 0 of a table must carry {missing}", field=missing)
    if state.protocol is not None and (problem := check_protocol(state.protocol)):
        _refuse(commit, problem, field="protocol")
    _check_features(commit, metadata, protocol)
    _check_partitions(commit, metadata)
    if is_true(metadata.configuration.get("delta.appendOnly")):
        _check_append_only(commit)


def num_records(stats: str | None) -> int | None:
    return None if stats is None else _decode_stats_head(stats).numRecords


def tracks_rows(metadata: Metadata) -> bool:
    return is_true(metadata.configuration.get(ROW_TRACKING))


def _refuse(commit: TableCommit, message: str, action: int | None = None, field: str | None = None) -> NoReturn:
    where = "" if action is None else f"action {action} ({type(commit.actions[action]).__name__}): "
    raise ValidationError(where + message, table_id=commit.table_id, action=action, field=field)


def _check_action(commit: TableCommit, position: int, action: Any) -> None:
    check = _CHECKS.get(type(action))
    if check is None:
        _refuse(commit, f"{type(action).__name__} is not an action that can be committed", position)
    problem = check_action(action)
    if problem:
        _refuse(commit, problem, position, problem.rpartition("$.")[2].rstrip("`") if "$." in problem else None)
    found = check(action)
    if found is not None:
        field, problem = found
        _refuse(commit, f"{field}: {problem}", position, field)


def _check_add(add: AddFile) -> tuple[str, str] | None:
    return (
        _check_file(add.path, add.size)
        or _check_values(add.partition_values)
        or (("modification_time", "must not be negative") if add.modification_time < 0 else None)
        or _check_stats(add.stats, needs_count=add.deletion_vector is not None)
    )


def _check_remove(remove: RemoveFile) -> tuple[str, str] | None:
    if remove.extended_file_metadata and (remove.partition_values is None or remove.size is None):
        return "extended_file_metadata", "true needs partition_values and size"
    return _check_file(remove.path, remove.size) or _check_values(remove.partition_values or {})


def _check_cdc(cdc: CdcFile) -> tuple[str, str] | None:
    if cdc.data_change:
        return "data_change", "is always false for a change data file"
    return _check_file(cdc.path, cdc.size) or _check_values(cdc.partition_values)


def _check_file(path: str, size: int | None) -> tuple[str, str] | None:
    problem = check_path(path)
    if problem:
        return "path", problem
    return ("size", "must not be negative") if size is not None and size < 0 else None


def _check_values(values: Mapping[str, str | None]) -> tuple[str, str] | None:
    for name, value in values.items():
        if "\0" in name or (value is not None and "\0" in value):
            return (
                "partition_values",
                f"the value of {name!r} has the character U+0000, which no database keeps",
            )
    return None


def _check_stats(stats: str | None, *, needs_count: bool) -> tuple[str, str] | None:
    try:
        count = num_records(stats)
    except msgspec.DecodeError as error:
        return "stats", f"is not a JSON object of statistics: {error}"
    if count is not None and count < 0:
        return "stats", "numRecords must not be negative"
    if needs_count and count is None:
        return "stats", "a file with a deletion vector needs numRecords"
    return None


def _check_metadata(metadata: Metadata) -> tuple[str, str] | None:
    if not metadata.id:
        return "id", "must not be empty"
    if not metadata.schema_string:
        return "schema_string", "must not be empty"
    if metadata.format.provider != "parquet":
        return "format", f"the provider must be parquet, not {metadata.format.provider!r}"
    try:
        schema = metadata.schema
    except ValidationError as error:
        return "schema_string", error.message
    return _check_columns_of(schema) or _check_partition_columns(schema, metadata.partition_columns)


def _check_columns_of(schema: StructType) -> tuple[str, str] | None:
    names = [field.name.lower() for field in schema.fields]
    for name in names:
        if names.count(name) > 1:
            return "schema_string", f"two columns are named {name!r} (case does not count)"
    return None


def _check_partition_columns(schema: StructType, columns: Sequence[str]) -> tuple[str, str] | None:
    types = {field.name: field.type for field in schema.fields}
    for name in columns:
        if name not in types:
            return "partition_columns", f"the schema has no column {name!r}; it has {', '.join(types)}"
        if not can_partition_by(types[name]):
            return (
                "partition_columns",
                f"a table cannot be partitioned by {name!r}, it is not of a simple type",
            )
    if len(set(columns)) != len(columns):
        return "partition_columns", "a column stands twice"
    if columns and len(columns) == len(types):
        return "partition_columns", "at least one column must stay in the data files"
    return None


def _check_protocol(protocol: Protocol) -> tuple[str, str] | None:
    problem = check_protocol(protocol)
    return ("protocol", problem) if problem else None


def _check_txn(txn: Txn) -> tuple[str, str] | None:
    return ("app_id", "must not be empty or hold U+0000") if not txn.app_id or "\0" in txn.app_id else None


def _check_domain(domain: DomainMetadata) -> tuple[str, str] | None:
    return ("domain", "must not be empty") if not domain.domain else None


def _check_commit_info(info: CommitInfo) -> tuple[str, str] | None:
    return "commitInfo", "is written by the commit itself: give operation and operation_params instead"


_CHECKS: dict[type, Callable[[Any], tuple[str, str] | None]] = {
    AddFile: _check_add,
    RemoveFile: _check_remove,
    CdcFile: _check_cdc,
    Metadata: _check_metadata,
    Protocol: _check_protocol,
    Txn: _check_txn,
    DomainMetadata: _check_domain,
    CommitInfo: _check_commit_info,
}


def _uniqueness_keys(action: Any) -> tuple[tuple[str, ...], ...]:
    """What no second action of the same commit may have too."""
    match action:
        case AddFile():
            return ("add of", action.path), ("file", *action.key)
        case RemoveFile():
            return ("remove of", action.path), ("file", *action.key)
        case Metadata():
            return (("metaData",),)
        case Protocol():
            return (("protocol",),)
        case Txn():
            return (("txn of application", action.app_id),)
        case DomainMetadata():
            return (("domain", action.domain),)
        case _:
            return ()


def _describe(key: tuple[str, ...]) -> str:
    return " ".join(part for part in key if part)


def _check_columns(commit: TableCommit, adds: pa.Table) -> None:
    """The rules of `check_actions` for add actions as Arrow columns, a column at a time."""
    for name in REQUIRED_ADD_COLUMNS:
        if name not in adds.column_names:
            _refuse(commit, f"the table of add actions has no column {name}", field=name)
        if adds[name].null_count:
            _refuse(commit, f"{name} is null in row {_first(pc.is_null(adds[name]))}", field=name)
    unknown = set(adds.column_names) - set(AddFile.__struct_fields__)
    if unknown:
        _refuse(commit, f"an add action has no field {', '.join(sorted(unknown))}", field=sorted(unknown)[0])
    paths = adds["path"]
    suspect = pc.match_substring_regex(paths, r"[^A-Za-z0-9_=.\-/]|\.\.|^/|//")
    for row in pc.indices_nonzero(suspect.combine_chunks() if suspect.num_chunks else suspect).to_pylist():
        problem = check_path(paths[row].as_py())
        if problem:
            _refuse(commit, f"row {row}: path: {problem}", field="path")
    if len(paths) != pc.count_distinct(paths).as_py():
        repeated = next(v["values"] for v in pc.value_counts(paths).to_pylist() if v["counts"] > 1)
        _refuse(commit, f"add of {repeated} stands twice", field="path")
    listed = {action.path for action in commit.actions if isinstance(action, AddFile | RemoveFile)}
    if listed:
        twice = pc.filter(paths, pc.is_in(paths, pa.array(sorted(listed))))
        if len(twice):
            _refuse(commit, f"add of {twice[0].as_py()} stands twice", field="path")
    for name in ("size", "modification_time"):
        lowest = pc.min(adds[name]).as_py()
        if lowest is not None and lowest < 0:
            _refuse(commit, f"{name} is negative in row {_first(pc.less(adds[name], 0))}", field=name)


def _first(mask: Any) -> int:
    position: int = pc.index(mask, True).as_py()
    return position


def _check_features(commit: TableCommit, metadata: Metadata, protocol: Protocol) -> None:
    """A property or a column that needs a feature, in a table that does not list it."""
    if not any(isinstance(action, Metadata | Protocol) for action in commit.actions):
        return
    missing = needed_features(metadata.schema, metadata.configuration) - supported_features(protocol)
    if missing:
        names = ", ".join(sorted(missing))
        _refuse(
            commit,
            f"the metadata needs the table feature {names}, which the protocol does not list",
            field="protocol",
        )


def _check_partitions(commit: TableCommit, metadata: Metadata) -> None:
    columns = frozenset(_physical_names(metadata))
    for position, action in enumerate(commit.actions):
        if isinstance(action, AddFile | CdcFile) and action.partition_values.keys() != columns:
            _refuse(commit, _partition_problem(action.partition_values, columns), position, "partition_values")
    if commit.adds is not None:
        for row, values in enumerate(_distinct_partitions(commit.adds)):
            if values.keys() != columns:
                _refuse(commit, f"row {row}: {_partition_problem(values, columns)}", field="partition_values")


def _partition_problem(values: Mapping[str, str | None], columns: frozenset[str]) -> str:
    wanted = ", ".join(sorted(columns)) or "no column"
    return f"partition values are for {', '.join(sorted(values)) or 'no column'}; the table is partitioned by {wanted}"


def _physical_names(metadata: Metadata) -> list[str]:
    if not metadata.partition_columns:
        return []
    fields = {field.name: field for field in metadata.schema.fields}
    return [fields[name].physical_name for name in metadata.partition_columns]


def _distinct_partitions(adds: pa.Table) -> list[dict[str, str | None]]:
    column = adds["partition_values"]
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return [msgspec.json.decode(text) for text in pc.unique(column).to_pylist()]
    return [dict(entries) for entries in column.to_pylist()]


def _check_append_only(commit: TableCommit) -> None:
    for position, action in enumerate(commit.actions):
        if isinstance(action, RemoveFile) and action.data_change:
            _refuse(
                commit,
                "the table is append-only (delta.appendOnly): no data may be removed",
                position,
                "data_change",
            )


__all__ = ["NO_VERSION", "check_actions", "check_state", "num_records", "tracks_rows"]
