"""Whether a stream that was opened with one schema can deliver rows that were written with another one.

rows of an older version      each of their columns is one of the stream's, with the same or a narrower type
rows of a newer version       the same columns and types: the stream must be opened again to see new ones
"""

from __future__ import annotations

from deltars.errors import SchemaMismatch
from deltars.log.snapshot import Snapshot
from deltars.protocol import ArrayType, DataType, MapType, Metadata, StructField, StructType, column_mapping, merged


def refuse_unreadable(metadata: Metadata, opened: Snapshot, version: int) -> None:
    """Raise `SchemaMismatch` unless rows written with this metadata can be read in the stream's schema."""
    if metadata.schema_string == opened.metadata.schema_string and _layout(metadata) == _layout(opened.metadata):
        return
    difference = _difference(metadata, opened.metadata, is_newer=version > opened.version)
    if difference is None:
        return
    if version > opened.version:
        hint = "Start the query again, with the same checkpoint: it goes on with the new schema."
    else:
        hint = (
            "Start the query again with the same checkpoint and"
            f' .option("schemaVersion", "{version}"): it goes on with the schema of that version, and stops before the'
            " next change."
        )
    raise SchemaMismatch(
        f"the table's schema changed in version {version}, or before it: {difference}. The stream stopped before it,"
        " and everything up to it is delivered",
        version=version,
        field="schema",
        hint=hint,
    )


def _difference(written: Metadata, stream: Metadata, *, is_newer: bool) -> str | None:
    """Return in words why rows that were written with one metadata do not fit the stream's."""
    if list(written.partition_columns) != list(stream.partition_columns):
        return f"it is partitioned by {written.partition_columns}, and the stream by {stream.partition_columns}"
    return _unfit(written.schema, stream.schema, is_newer)


def _unfit(written: StructType, stream: StructType, is_newer: bool) -> str | None:
    # A mapped column has a name in files too: after a column is dropped, its name can be given to another.
    theirs = {(field.name, field.physical_name): field.type for field in written.fields}
    ours = {(field.name, field.physical_name): field.type for field in stream.fields}
    missing = [name for name, _ in theirs.keys() - ours.keys()]
    if missing:
        return f"it has the columns {sorted(missing)}, which the stream does not have"
    gone = [name for name, _ in ours.keys() - theirs.keys()] if is_newer else []
    if gone:
        return f"it has the columns {sorted(gone)} no more"
    for (name, at), type_ in theirs.items():
        if not _fits(type_, ours[name, at], is_newer):
            return f"the column {name} is {type_}, and {ours[name, at]} in the stream"
    return None


def _fits(written: DataType, stream: DataType, is_newer: bool) -> bool:
    match written, stream:
        case StructType(), StructType():
            return _unfit(written, stream, is_newer) is None
        case ArrayType(), ArrayType():
            return _fits(written.element_type, stream.element_type, is_newer)
        case MapType(), MapType():
            return _fits(written.key_type, stream.key_type, is_newer) and _fits(
                written.value_type, stream.value_type, is_newer
            )
        case _:
            return written == stream or (not is_newer and _widened(written, stream) == stream)


def _widened(narrow: DataType, wide: DataType) -> DataType:
    """Return the wider of two types, or the first if there is none."""
    one, other = (StructType((StructField("c", type_),)) for type_ in (narrow, wide))
    return merged(one, other, can_widen=True).fields[0].type


def _layout(metadata: Metadata) -> tuple[object, ...]:
    return list(metadata.partition_columns), column_mapping(metadata.configuration)
