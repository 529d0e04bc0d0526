"""Which commits are valid.

    check_commit     what the actions alone tell: before a connection is taken
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
from deltars.log.add_columns import check_columns, deletion_vectors, partition_values
from deltars.log.bounds import Bounds
from deltars.log.commit import NO_VERSION, Commit, TableCommit, TableState
from deltars.log.file_rules import MAX_COUNT, Problem, check_add, check_cdc, check_count, check_remove
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
    check_protocol,
    check_protocol_change,
    is_true,
    needed_features,
    supported_features,
)

ROW_TRACKING = "delta.enableRowTracking"

_encode = msgspec.json.Encoder().encode


def check_commit(commit: Commit) -> None:
    """What is said of a whole transaction, and every rule that the actions can break by themselves."""
    for field in ("committer", "user_metadata"):
        text = getattr(commit, field)
        if text is not None and (problem := _check_text(text)):
            raise ValidationError(f"{field}: {problem}", field=field)
    for table in commit.tables:
        check_actions(table)
    if len({table.table_id for table in commit.tables}) != len(commit.tables):
        raise ValidationError("a table stands twice in one commit")


def check_actions(commit: TableCommit) -> None:
    """Every rule that the actions can break by themselves."""
    if not commit.operation:
        _refuse(commit, "a commit needs the name of its operation", field="operation")
    for field, problem in (
        ("operation", _check_text(commit.operation)),
        ("operation_params", _check_free(commit.operation_params)),
        ("metrics", _check_free(commit.metrics)),
    ):
        if problem:
            _refuse(commit, f"{field}: {problem}", field=field)
    seen: dict[tuple[str, ...], int] = {}
    for position, action in enumerate(commit.actions):
        _check_action(commit, position, action)
        for field, key in _uniqueness_keys(action):
            if key in seen:
                _refuse(commit, f"{_describe(key)} stands twice, also as action {seen[key]}", position, field)
            seen[key] = position
    if commit.adds is not None:
        check_columns(commit.adds, lambda problem, field: _refuse(commit, problem, field=field))
        _check_listed_twice(commit, commit.adds)


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
    _check_used_features(commit, protocol)
    _check_partitions(commit, metadata)
    if is_true(metadata.configuration.get("delta.appendOnly")):
        _check_append_only(commit)


def tracks_rows(metadata: Metadata) -> bool:
    return is_true(metadata.configuration.get(ROW_TRACKING))


def _refuse(commit: TableCommit, message: str, action: int | None = None, field: str | None = None) -> NoReturn:
    where = "" if action is None else f"action {action} ({type(commit.actions[action]).__name__}): "
    raise ValidationError(where + message, table_id=commit.table_id, action=action, field=field)


def _check_action(commit: TableCommit, position: int, action: Any) -> None:
    check = _CHECKS.get(type(action))
    if check is None:
        _refuse(commit, f"{type(action).__name__} is not an action that can be committed", position)
    found = _check_types(action) or check(action) or _check_characters(action)
    if found is not None:
        field, problem = found
        _refuse(commit, f"{field}: {problem}" if field else problem, position, field or None)


def _check_types(action: Any) -> Problem | None:
    """Each field as the protocol has it. The codec tells where: ``Expected `int`, got `str` - at `$.add.size` ``."""
    problem = check_action(action)
    if problem is None:
        return None
    reason, _, place = problem.partition(" - at `$.")
    written = place.rstrip("`").split(".")[1:2]
    for field, name in zip(action.__struct_fields__, action.__struct_encode_fields__, strict=True):
        if (written and written[0].partition("[")[0] == name) or (not written and not _can_be_written(action, field)):
            return field, reason
    return "", problem


def _can_be_written(action: Any, field: str) -> bool:
    try:
        _encode(getattr(action, field))
    except (TypeError, ValueError):
        return False
    return True


def _check_characters(action: Any) -> Problem | None:
    """U+0000 stands in no text that PostgreSQL keeps."""
    if rb"\u0000" not in _encode(action):
        return None
    for field in action.__struct_fields__:
        if has_null_character(msgspec.to_builtins(getattr(action, field))):
            return field, "has the character U+0000, which no database keeps"
    return None


def has_null_character(value: Any) -> bool:
    match value:
        case str():
            return "\0" in value
        case list():
            return any(map(has_null_character, value))
        case dict():
            return any(has_null_character(key) or has_null_character(item) for key, item in value.items())
        case _:
            return False


def _check_metadata(metadata: Metadata) -> Problem | None:
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
    return (
        _check_columns_of(schema)
        or _check_partition_columns(schema, metadata.partition_columns)
        or check_count("created_time", metadata.created_time)
        or _check_properties(schema, metadata)
    )


def _check_properties(schema: StructType, metadata: Metadata) -> Problem | None:
    try:
        Bounds(schema, metadata.partition_columns, metadata.configuration)
        needed_features(schema, metadata.configuration)
    except ValidationError as error:
        return "configuration", error.message
    return None


def _check_columns_of(schema: StructType) -> Problem | None:
    names = [field.name.lower() for field in schema.fields]
    for name in names:
        if names.count(name) > 1:
            return "schema_string", f"two columns are named {name!r} (case does not count)"
    return None


def _check_partition_columns(schema: StructType, columns: Sequence[str]) -> Problem | None:
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


def _check_protocol(protocol: Protocol) -> Problem | None:
    problem = check_protocol(protocol)
    return ("protocol", problem) if problem else None


def _check_txn(txn: Txn) -> Problem | None:
    if not txn.app_id:
        return "app_id", "must not be empty"
    if not -MAX_COUNT - 1 <= txn.version <= MAX_COUNT:
        return "version", "is too large for 64 bits"
    return check_count("last_updated", txn.last_updated)


def _check_domain(domain: DomainMetadata) -> Problem | None:
    return ("domain", "must not be empty") if not domain.domain else None


def _check_commit_info(info: CommitInfo) -> Problem | None:
    return "commitInfo", "is written by the commit itself: give operation and operation_params instead"


_CHECKS: dict[type, Callable[[Any], Problem | None]] = {
    AddFile: check_add,
    RemoveFile: check_remove,
    CdcFile: check_cdc,
    Metadata: _check_metadata,
    Protocol: _check_protocol,
    Txn: _check_txn,
    DomainMetadata: _check_domain,
    CommitInfo: _check_commit_info,
}


def _uniqueness_keys(action: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """What no second action of the same commit may have too, and the field it is in."""
    match action:
        case AddFile():
            return ("path", ("add of", action.path)), ("path", ("file", *action.key))
        case RemoveFile():
            return ("path", ("remove of", action.path)), ("path", ("file", *action.key))
        case CdcFile():
            return (("path", ("change data file", action.path)),)
        case Metadata():
            return (("metaData", ("metaData",)),)
        case Protocol():
            return (("protocol", ("protocol",)),)
        case Txn():
            return (("app_id", ("txn of application", action.app_id)),)
        case DomainMetadata():
            return (("domain", ("domain", action.domain)),)
        case _:
            return ()


def _describe(key: tuple[str, ...]) -> str:
    return " ".join(part for part in key if part)


def _check_listed_twice(commit: TableCommit, adds: pa.Table) -> None:
    """Files that stand both in the columns and among the other actions."""
    listed = {action.path: action for action in commit.actions if isinstance(action, AddFile | RemoveFile)}
    if not listed:
        return
    found = pc.is_in(adds["path"], value_set=pa.array(sorted(listed), pa.string()))
    for row in pc.indices_nonzero(found.combine_chunks()).to_pylist():
        file = adds.slice(row, 1)
        path = file["path"][0].as_py()
        [vector] = deletion_vectors(file["deletion_vector"]) if "deletion_vector" in file.column_names else [None]
        dv_id = vector.unique_id if vector else ""
        if any(
            action.path == path and (isinstance(action, AddFile) or action.dv_id == dv_id)
            for action in commit.actions
            if isinstance(action, AddFile | RemoveFile)
        ):
            _refuse(commit, f"row {row}: path: {path} stands twice, also among the actions", field="path")


def _check_text(text: Any) -> str | None:
    if not isinstance(text, str):
        return f"is a {type(text).__name__}, not a string"
    return _check_free(text)


def _check_free(value: Any) -> str | None:
    """Whatever the caller likes to say, as long as JSON and the databases can hold it."""
    try:
        written = _encode(value)
    except (TypeError, ValueError) as error:
        return f"cannot be written as JSON: {error}"
    if rb"\u0000" in written and has_null_character(msgspec.json.decode(written)):
        return "has the character U+0000, which no database keeps"
    return None


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


def _check_used_features(commit: TableCommit, protocol: Protocol) -> None:
    """An action that readers who do not know its feature would pass over: deleted rows would be back."""
    supported = supported_features(protocol)
    for position, action in enumerate(commit.actions):
        needed, field = _feature_of(action)
        if needed is not None and needed not in supported:
            _refuse(commit, _unlisted(field, needed), position, field)
    if commit.adds is not None and "deletionVectors" not in supported and "deletion_vector" in commit.adds.column_names:
        column = commit.adds["deletion_vector"]
        if column.null_count < len(column):
            row = pc.index(pc.is_valid(column), True).as_py()
            _refuse(commit, f"row {row}: {_unlisted('deletion_vector', 'deletionVectors')}", field="deletion_vector")


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


def _check_partitions(commit: TableCommit, metadata: Metadata) -> None:
    columns = frozenset(_physical_names(metadata))
    for position, action in enumerate(commit.actions):
        if isinstance(action, AddFile | CdcFile) and action.partition_values.keys() != columns:
            _refuse(commit, _partition_problem(action.partition_values, columns), position, "partition_values")
    if commit.adds is not None:
        for row, values in partition_values(commit.adds):
            if values.keys() != columns:
                _refuse(commit, f"row {row()}: {_partition_problem(values, columns)}", field="partition_values")


def _partition_problem(values: Mapping[str, str | None], columns: frozenset[str]) -> str:
    wanted = ", ".join(sorted(columns)) or "no column"
    return f"partition values are for {', '.join(sorted(values)) or 'no column'}; the table is partitioned by {wanted}"


def _physical_names(metadata: Metadata) -> list[str]:
    if not metadata.partition_columns:
        return []
    fields = {field.name: field for field in metadata.schema.fields}
    return [fields[name].physical_name for name in metadata.partition_columns]


def _check_append_only(commit: TableCommit) -> None:
    for position, action in enumerate(commit.actions):
        if isinstance(action, RemoveFile) and action.data_change:
            _refuse(
                commit,
                "the table is append-only (delta.appendOnly): no data may be removed",
                position,
                "data_change",
            )


__all__ = ["NO_VERSION", "check_actions", "check_commit", "check_state", "tracks_rows"]
