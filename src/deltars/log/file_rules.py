"""Rules on single file actions that hold for every table. Each check returns the field and the reason, or None.

`validation` applies them to actions given one by one, `arrow_adds` to add actions given as Arrow columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from deltars.log.bounds import read_stats
from deltars.protocol import AddFile, CdcFile, DeletionVector, RemoveFile, check_path

Problem: TypeAlias = tuple[str, str]
"""A field, and what is wrong with its value."""

MAX_COUNT = 2**63 - 1
VECTOR_STORAGE = ("u", "i", "p")


class _StatsHead(msgspec.Struct):
    numRecords: int | None = None  # noqa: N815


_decode_stats_head = msgspec.json.Decoder(_StatsHead).decode


def check_add(add: AddFile) -> Problem | None:
    return (
        _check_file(add.path, add.size)
        or check_values(add.partition_values)
        or check_count("modification_time", add.modification_time)
        or _check_row_ids(add)
        or check_vector(add.deletion_vector)
        or check_stats(add.stats, needs_count=add.deletion_vector is not None)
    )


def check_remove(remove: RemoveFile) -> Problem | None:
    if remove.extended_file_metadata and (remove.partition_values is None or remove.size is None):
        return "extended_file_metadata", "true needs partition_values and size"
    return (
        _check_file(remove.path, remove.size)
        or check_values(remove.partition_values or {})
        or check_count("deletion_timestamp", remove.deletion_timestamp)
        or _check_row_ids(remove)
        or check_vector(remove.deletion_vector)
    )


def check_cdc(cdc: CdcFile) -> Problem | None:
    if cdc.data_change:
        return "data_change", "is always false for a change data file"
    return _check_file(cdc.path, cdc.size) or check_values(cdc.partition_values)


def check_count(field: str, value: int | None) -> Problem | None:
    """Check a size, a time or a row id: 0 or more, within 64 bits."""
    if value is not None and not 0 <= value <= MAX_COUNT:
        return field, "must not be negative" if value < 0 else "is too large for 64 bits"
    return None


def check_values(values: Mapping[str, str | None]) -> Problem | None:
    for name, value in values.items():
        if "\0" in name or (value is not None and "\0" in value):
            problem = f"the value of {name!r} contains the character U+0000, which databases cannot store"
            return "partition_values", problem
    return None


def check_vector(vector: DeletionVector | None) -> Problem | None:
    if vector is None:
        return None
    if vector.storage_type not in VECTOR_STORAGE:
        expected = ", ".join(VECTOR_STORAGE)
        return "deletion_vector", f"its storage type is {vector.storage_type!r}, not one of {expected}"
    for name in ("offset", "size_in_bytes", "cardinality"):
        if problem := check_count(name, getattr(vector, name)):
            return "deletion_vector", f"its {name} {problem[1]}"
    return None


def check_stats(stats: str | None, *, needs_count: bool) -> Problem | None:
    if stats is None:
        return ("stats", "a file with a deletion vector needs numRecords") if needs_count else None
    try:
        count = num_records(stats)
    except ValueError as error:
        return "stats", f"is not a JSON object of statistics: {error}"
    if count is None:
        return ("stats", "a file with a deletion vector needs numRecords") if needs_count else None
    found = check_count("numRecords", count)
    return ("stats", f"numRecords {found[1]}") if found else None


def num_records(stats: str | None) -> int | None:
    """Return `numRecords` of a file's statistics, or None if they lack it. Raise `ValueError` if they are malformed."""
    if stats is None:
        return None
    try:
        return _decode_stats_head(stats).numRecords
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        count = read_stats(stats).get("numRecords")
    if count is not None and (isinstance(count, bool) or not isinstance(count, int)):
        raise ValueError("Expected `int | null` - at `$.numRecords`")
    return count


def _check_file(path: str, size: int | None) -> Problem | None:
    problem = check_path(path)
    return ("path", problem) if problem else check_count("size", size)


def _check_row_ids(file: AddFile | RemoveFile) -> Problem | None:
    if file.base_row_id is None and file.default_row_commit_version is None:
        return None
    return check_count("base_row_id", file.base_row_id) or check_count(
        "default_row_commit_version", file.default_row_commit_version
    )
