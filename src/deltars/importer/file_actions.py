"""Checks of the actions in an imported log: which are accepted, and which make the import fail."""

from __future__ import annotations

from collections import Counter

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from deltars.errors import ValidationError
from deltars.log.arrow_adds import COUNTS, REQUIRED, deletion_vectors, unusual_paths
from deltars.log.file_rules import Problem, check_count, check_values, check_vector
from deltars.log.validation import has_null_character
from deltars.protocol import (
    Action,
    AddFile,
    CdcFile,
    DeletionVector,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    Txn,
    check_path,
)
from deltars.protocol.paths import local_path

MAX_INT = 2**31 - 1


def canonical(action: Action) -> Action:
    """Return the action with one spelling of its path: `/p`, `file:/p` and `file:///p` are the same file."""
    if isinstance(action, AddFile | RemoveFile | CdcFile) and action.path[:5].lower() == "file:":
        return msgspec.structs.replace(action, path=local_path(action.path))
    return action


def check_imported(action: Action, seen: set[tuple[str, ...]], *, has_null: bool) -> None:
    """Raise ValidationError if an action is invalid or repeated. `seen` has the keys of the commit's other actions."""
    problem = _problem(action)
    if problem is not None:
        raise ValidationError(f"{problem[0]}: {problem[1]}", field=problem[0])
    if has_null and has_null_character(msgspec.to_builtins(action)):
        raise ValidationError("it contains the character U+0000, which databases cannot store")
    for key in _keys(action):
        if key in seen:
            raise ValidationError(f"{' '.join(filter(None, key))} occurs twice in one commit")
        seen.add(key)


def check_add_columns(adds: pa.Table, seen: set[tuple[str, ...]]) -> None:
    """Raise ValidationError if a file of a checkpoint, given as columns, is invalid or repeated."""
    for name in REQUIRED:
        if name not in adds.column_names:
            raise ValidationError(f"the column {name} of the add actions is missing", field=name)
        if adds[name].null_count:
            raise ValidationError(f"{name}: must not be null", field=name)
    for name in COUNTS:
        if name != "modification_time" and name in adds.column_names and (pc.min(adds[name]).as_py() or 0) < 0:
            raise ValidationError(f"{name}: must not be negative", field=name)
    for row in unusual_paths(adds["path"]):
        path = adds["path"][row].as_py()
        if problem := _check_path(path):
            raise ValidationError(f"{path}: {problem[0]}: {problem[1]}", field=problem[0])
    paths = adds["path"].to_pylist()
    has_vectors = "deletion_vector" in adds.column_names
    vectors = deletion_vectors(adds["deletion_vector"]) if has_vectors else [None] * adds.num_rows
    for path, vector in zip(paths, vectors, strict=True):
        problem = _check_vector(vector)
        if problem is not None:
            raise ValidationError(f"{path}: {problem[0]}: {problem[1]}", field=problem[0])
    keys = [("file", path, vector.unique_id if vector else "") for path, vector in zip(paths, vectors, strict=True)]
    fresh = set(keys)
    if len(fresh) < len(keys) or not fresh.isdisjoint(seen):
        counts = Counter(keys)
        path = next(key[1] for key in keys if key in seen or counts[key] > 1)
        raise ValidationError(f"the file {path} occurs twice", field="path")
    seen |= fresh


def _problem(action: Action) -> Problem | None:
    match action:
        case AddFile():
            return (
                _check_path(action.path)
                or check_count("size", action.size)
                or _check_time("modificationTime", action.modification_time)
                or check_count("baseRowId", action.base_row_id)
                or check_count("defaultRowCommitVersion", action.default_row_commit_version)
                or check_values(action.partition_values)
                or _check_vector(action.deletion_vector)
            )
        case RemoveFile():
            return (
                _check_path(action.path)
                or check_count("size", action.size)
                or _check_time("deletionTimestamp", action.deletion_timestamp)
                or _check_vector(action.deletion_vector)
            )
        case CdcFile():
            return _check_path(action.path) or check_count("size", action.size)
        case Txn():
            limit = 2**63
            return None if -limit <= action.version < limit else ("version", "is too large for 64 bits")
        case _:
            return None


def _check_vector(vector: DeletionVector | None) -> Problem | None:
    problem = check_vector(vector)
    if problem is None and vector is not None and max(vector.offset or 0, vector.size_in_bytes) > MAX_INT:
        return "deletionVector", "its offset or size is too large for 32 bits, the limit of checkpoints"
    return problem


def _check_time(field: str, value: int | None) -> Problem | None:
    """Accept any 64-bit time, including times before 1970."""
    return None if value is None or -(2**63) <= value < 2**63 else (field, "is too large for 64 bits")


def _check_path(path: str) -> Problem | None:
    reason = check_path(path, allow_absolute=True)
    return ("path", reason) if reason else None


def _keys(action: Action) -> tuple[tuple[str, ...], ...]:
    match action:
        case AddFile() | RemoveFile():
            return (("file", *action.key),)
        case Metadata():
            return (("metaData",),)
        case Protocol():
            return (("protocol",),)
        case Txn():
            return (("txn of", action.app_id),)
        case DomainMetadata():
            return (("domain", action.domain),)
        case _:
            return ()
