"""Validation of commits.

    check_commit                rules on the actions alone: before a connection is taken
    table_rules.check_state     rules that depend on the table: before, and again under the lock if the table changed

Both raise `ValidationError` with the action (its position), the field and the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from deltars.errors import ValidationError, brief
from deltars.log.arrow_adds import check_columns, deletion_vectors
from deltars.log.bounds import Bounds
from deltars.log.commit import Commit, TableCommit
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
    needed_features,
)
from deltars.protocol.change_feed import CHANGE_FEED, has_feed, reserved_column

_encode = msgspec.json.Encoder().encode


def as_actions(actions: Any) -> tuple[Any, ...]:
    """Return the actions that a caller gave. Raise `ValidationError` if they are none."""
    found = tuple(actions) if isinstance(actions, Iterable) else (actions,)
    if not all(isinstance(action, msgspec.Struct) for action in found):
        raise ValidationError(
            f"actions are a list of actions or a pyarrow table of add actions, got {brief(found)}",
            field="actions",
            hint="To write rows, use tx.write(table, df).",
        )
    return found


def check_commit(commit: Commit) -> None:
    """Check the texts of a transaction and all rules on its actions that need no knowledge of the tables."""
    for field in ("committer", "user_metadata"):
        text = getattr(commit, field)
        if text is not None and (problem := _check_text(text)):
            raise ValidationError(f"{field}: {problem}", field=field)
    for table in commit.tables:
        check_actions(table)
    if len({table.table_id for table in commit.tables}) != len(commit.tables):
        raise ValidationError("duplicate table in one commit")


def check_actions(commit: TableCommit) -> None:
    """Check all rules on the actions of one table that need no knowledge of the table."""
    if not commit.operation:
        refuse(commit, "a commit needs the name of its operation", field="operation")
    for field, problem in (
        ("operation", _check_text(commit.operation)),
        ("operation_params", _check_free(commit.operation_params)),
        ("metrics", _check_free(commit.metrics)),
    ):
        if problem:
            refuse(commit, f"{field}: {problem}", field=field)
    seen: dict[tuple[str, ...], int] = {}
    for position, action in enumerate(commit.actions):
        _check_action(commit, position, action)
        for field, key in _uniqueness_keys(action):
            if key in seen:
                refuse(commit, f"duplicate {_describe(key)}, also in action {seen[key]}", position, field)
            seen[key] = position
    if commit.adds is not None:
        check_columns(commit.adds, lambda problem, field: refuse(commit, problem, field=field))
        _check_listed_twice(commit, commit.adds)
    if commit.row_groups:
        _check_row_groups(commit)


def refuse(commit: TableCommit, message: str, action: int | None = None, field: str | None = None) -> NoReturn:
    where = "" if action is None else f"action {action} ({type(commit.actions[action]).__name__}): "
    raise ValidationError(where + message, table_id=commit.table_id, action=action, field=field)


def _check_action(commit: TableCommit, position: int, action: Any) -> None:
    check = _CHECKS.get(type(action))
    if check is None:
        refuse(commit, f"{type(action).__name__} is not an action that can be committed", position)
    found = _check_types(action) or check(action) or _check_characters(action)
    if found is not None:
        field, problem = found
        refuse(commit, f"{field}: {problem}" if field else problem, position, field or None)


def _check_types(action: Any) -> Problem | None:
    """Check that each field has the protocol's type.

    The field's name comes from msgspec's message: ``Expected `int`, got `str` - at `$.add.size` ``.
    """
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
    """Reject U+0000, which PostgreSQL cannot store in text."""
    if rb"\u0000" not in _encode(action):
        return None
    for field in action.__struct_fields__:
        if has_null_character(msgspec.to_builtins(getattr(action, field))):
            return field, "contains the character U+0000, which databases cannot store"
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


def check_metadata(metadata: Metadata) -> Problem | None:
    """Return why the metadata is not valid, or None if it is."""
    if not metadata.id:
        return "id", "must not be empty"
    if not metadata.schema_string:
        return "schema_string", "must not be empty"
    if metadata.format.provider != "parquet":
        return "format", f"the provider must be parquet, not {brief(metadata.format.provider)}"
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
    reserved = reserved_column(schema)
    if reserved is not None and has_feed(metadata.configuration):
        return "schema_string", f"the column {reserved} has a name that the change data feed ({CHANGE_FEED}) needs"
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
            return "schema_string", f"duplicate column {name!r} (upper and lower case are the same)"
    return None


def _check_partition_columns(schema: StructType, columns: Sequence[str]) -> Problem | None:
    types = {field.name: field.type for field in schema.fields}
    for name in columns:
        if name not in types:
            return "partition_columns", f"the schema has no column {name!r}; it has {', '.join(types)}"
        if not can_partition_by(types[name]):
            return (
                "partition_columns",
                f"a table cannot be partitioned by {name!r}: its type is not a primitive type",
            )
    if len(set(columns)) != len(columns):
        return "partition_columns", "duplicate column"
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
    return "commitInfo", "is written by the commit itself: set operation and operation_params instead"


_CHECKS: dict[type, Callable[[Any], Problem | None]] = {
    AddFile: check_add,
    RemoveFile: check_remove,
    CdcFile: check_cdc,
    Metadata: check_metadata,
    Protocol: _check_protocol,
    Txn: _check_txn,
    DomainMetadata: _check_domain,
    CommitInfo: _check_commit_info,
}


def _uniqueness_keys(action: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the keys that no other action of the commit may have, each with the field that it comes from."""
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
    """Reject files that are both in the Arrow table of add actions and among the other actions."""
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
            refuse(commit, f"row {row}: path: duplicate file {path}, also among the actions", field="path")


def _check_row_groups(commit: TableCommit) -> None:
    paths = {action.path for action in commit.actions if isinstance(action, AddFile)}
    if commit.adds is not None:
        paths.update(commit.adds["path"].to_pylist())
    for group in commit.row_groups:
        if group.path not in paths:
            refuse(commit, f"row group of {group.path}, a file that the commit does not add", field="row_groups")


def _check_text(text: Any) -> str | None:
    if not isinstance(text, str):
        return f"is a {type(text).__name__}, not a string"
    return _check_free(text)


def _check_free(value: Any) -> str | None:
    """Return why JSON or the databases cannot hold a value that the caller chose freely, or None if they can."""
    try:
        written = _encode(value)
    except (TypeError, ValueError) as error:
        return f"cannot be written as JSON: {error}"
    if rb"\u0000" in written and has_null_character(msgspec.json.decode(written)):
        return "contains the character U+0000, which databases cannot store"
    return None


__all__ = ["check_actions", "check_commit", "check_metadata", "refuse"]
