"""Add actions as an Arrow table with columns named like the fields of `AddFile`: their types and their validation.

    canonical      casts text to `string` and counts to `int64`; other types raise an error that names the column
    check_columns  applies the rules of single add actions; an error names the row and the column

Documents (partition values, tags, deletion vectors) are JSON text, or Arrow maps and structs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NoReturn, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from deltars.errors import ValidationError
from deltars.log.file_rules import Problem, check_stats, check_values, check_vector
from deltars.log.read_set import FileKey
from deltars.protocol import AddFile, DeletionVector, check_path
from deltars.protocol.actions import decode_deletion_vector, decode_partition_values
from deltars.protocol.log_files import LOG

REQUIRED = ("path", "partition_values", "size", "modification_time", "data_change")
COUNTS = ("size", "modification_time", "base_row_id", "default_row_commit_version")
DOCUMENTS = ("partition_values", "tags", "deletion_vector")
TYPES = {
    **dict.fromkeys(("path", "stats", "clustering_provider"), pa.string()),
    **dict.fromkeys(COUNTS, pa.int64()),
    "data_change": pa.bool_(),
}

PartitionValues: TypeAlias = Mapping[str, str | None]
Refuse: TypeAlias = Callable[[str, str], NoReturn]
"""Raises an error. Takes the problem and the column."""

# Nearly all paths match and need no further check.
_PLAIN_PATH = r"^(?:[A-Za-z0-9_=-][A-Za-z0-9_=.-]*/)*[A-Za-z0-9_=-][A-Za-z0-9_=.-]*$"
_VECTOR_FIELDS = dict(zip(DeletionVector.__struct_fields__, DeletionVector.__struct_encode_fields__, strict=True))


def canonical(adds: pa.Table) -> pa.Table:
    """Return the table with its columns cast to the log's types. Columns that have them already are not copied."""
    for position, field in enumerate(adds.schema):
        wanted = _type_for(field)
        if wanted != field.type:
            try:
                adds = adds.set_column(position, field.name, adds[position].cast(wanted))
            except pa.ArrowInvalid as error:
                raise ValidationError(f"the column {field.name}: {error}", field=field.name) from error
    return adds


def check_columns(adds: pa.Table, refuse: Refuse) -> None:
    """Check the rules of single add actions, and that no path occurs twice."""
    names = adds.column_names
    for name in REQUIRED:
        if name not in names:
            refuse(f"the table of add actions has no column {name}", name)
    for field in adds.schema:
        if names.count(field.name) > 1:
            refuse(f"duplicate column {field.name}", field.name)
        wanted = _type_for(field)
        if wanted != field.type:
            refuse(f"the column {field.name} is of type {field.type}, not {wanted}", field.name)
        if field.name in REQUIRED and adds[field.name].null_count:
            refuse(f"row {_first(pc.is_null(adds[field.name]))}: {field.name}: is null", field.name)
        if field.name in COUNTS and (pc.min(adds[field.name]).as_py() or 0) < 0:
            refuse(f"row {_first(pc.less(adds[field.name], 0))}: {field.name}: must not be negative", field.name)
    _check_paths(adds["path"], refuse)
    for row, (name, problem) in _problems(adds):
        refuse(f"row {row}: {name}: {problem}", name)


def partition_values(adds: pa.Table) -> Iterator[tuple[Callable[[], int], PartitionValues]]:
    """Yield each distinct set of partition values, with a function that finds a row that has it."""
    for row, values in _distinct(adds["partition_values"]):
        yield row, decode_partition_values(values) if isinstance(values, str) else dict(values)


def deletion_vectors(column: pa.ChunkedArray | pa.Array) -> list[DeletionVector | None]:
    """Return the vector of each row. Struct fields are named as in the log or as in `DeletionVector`."""
    return [None if value is None else _vector(value) for value in column.to_pylist()]


def _type_for(field: pa.Field) -> pa.DataType:
    """Return the type that a column must have. Raise `ValidationError` if it cannot be cast to it."""
    is_, type_, name = pa.types, field.type, field.name
    if name not in AddFile.__struct_fields__:
        raise ValidationError(f"an add action has no field {name}", field=name)
    plain = type_.value_type if is_.is_dictionary(type_) else type_
    is_text = is_.is_string(plain) or is_.is_large_string(plain) or is_.is_string_view(plain)
    if name in DOCUMENTS:
        if is_text:
            return pa.string()
        if is_.is_null(type_) or is_.is_map(type_) or (is_.is_struct(type_) and name == "deletion_vector"):
            return type_
        kind = "a struct" if name == "deletion_vector" else "a map of strings"
        raise ValidationError(f"the column {name} is of type {type_}, neither JSON text nor {kind}", field=name)
    wanted = TYPES[name]
    fits = is_text if is_.is_string(wanted) else is_.is_integer(type_) if name in COUNTS else is_.is_boolean(type_)
    if not fits and not is_.is_null(type_):
        raise ValidationError(f"the column {name} is of type {type_}, not {wanted}", field=name)
    return wanted


def unusual_paths(paths: pa.ChunkedArray) -> list[int]:
    """Return the rows whose path `check_path` must check."""
    is_plain = pc.match_substring_regex(paths, _PLAIN_PATH)
    unusual = pc.or_(pc.invert(is_plain), pc.starts_with(paths, LOG))
    rows: list[int] = pc.indices_nonzero(unusual.combine_chunks()).to_pylist()
    return rows


def _check_paths(paths: pa.ChunkedArray, refuse: Refuse) -> None:
    for row in unusual_paths(paths):
        problem = check_path(paths[row].as_py())
        if problem:
            refuse(f"row {row}: path: {problem}", "path")
    if len(paths) != pc.count_distinct(paths).as_py():
        repeated = next(found["values"] for found in pc.value_counts(paths).to_pylist() if found["counts"] > 1)
        first, second, *_ = pc.indices_nonzero(pc.equal(paths, repeated).combine_chunks()).to_pylist()
        refuse(f"row {second}: path: duplicate add of {repeated}, also in row {first}", "path")


def _problems(adds: pa.Table) -> Iterator[tuple[int, Problem]]:
    """Yield the problems inside documents and statistics: the row, the column and the reason."""
    for name in ("partition_values", "tags"):
        if name in adds.column_names:
            for row, values in _distinct(adds[name]):
                if problem := _check_document(values):
                    yield row(), (name, problem)
    nothing = [None] * adds.num_rows
    vectors = adds["deletion_vector"].to_pylist() if "deletion_vector" in adds.column_names else nothing
    texts = adds["stats"].to_pylist() if "stats" in adds.column_names else nothing
    for number, (text, value) in enumerate(zip(texts, vectors, strict=True)):
        found = check_stats(text, needs_count=value is not None)
        if value is not None and (problem := _check_vector_document(value)):
            found = "deletion_vector", problem
        if found:
            yield number, found


def _distinct(column: pa.ChunkedArray) -> Iterator[tuple[Callable[[], int], Any]]:
    """Yield the non-null values, and repeated texts once, each with a function that finds its row.

    The search for the row is slow and only needed for an error.
    """
    if pa.types.is_string(column.type):
        for text in pc.unique(column).drop_null().to_pylist():
            yield partial(_row_of, column, text), text
        return
    for number, entries in enumerate(column.to_pylist()):
        if entries is not None:
            yield partial(int, number), entries


def _check_document(values: Any) -> str | None:
    try:
        document = (
            decode_partition_values(values)
            if isinstance(values, str)
            else msgspec.convert(dict(values), PartitionValues)
        )
    except ValueError as error:
        return f"is not an object of strings: {error}"
    problem = check_values(document)
    return problem[1] if problem else None


def _check_vector_document(value: Any) -> str | None:
    try:
        problem = check_vector(_vector(value))
    except ValueError as error:
        return f"is not a deletion vector: {error}"
    return problem[1] if problem else None


def _vector(value: Any) -> DeletionVector:
    if isinstance(value, str):
        return decode_deletion_vector(value)
    return msgspec.convert({_VECTOR_FIELDS.get(name, name): item for name, item in value.items()}, DeletionVector)


def _first(mask: Any) -> int:
    return _row_of(mask, True)


def _row_of(column: Any, value: Any) -> int:
    row: int = pc.index(column, value).as_py()
    return row


def file_keys(files: pa.Table) -> list[FileKey]:
    """Return the path and deletion vector id of each file."""
    paths = files["path"].to_pylist()
    if "deletion_vector" not in files.column_names or files["deletion_vector"].null_count == len(paths):
        return [(path, "") for path in paths]
    vectors = deletion_vectors(files["deletion_vector"])
    return [(path, vector.unique_id if vector else "") for path, vector in zip(paths, vectors, strict=True)]
