"""Convert a directory of Parquet files to a table, in place: version 0 names the files that are there.

    listed files ──footers, at once──▶ schema of all files, rows of each ──┐
    p=1/part-0.parquet ──path──▶ partition values ─────────────────────────┴──▶ version 0 (CONVERT)

No row is read. The statistics of each file are its number of rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from uuid import uuid4

import msgspec

from deltars.catalog.table_path import free_name
from deltars.data.foreign_files import ForeignFile, describe_file
from deltars.errors import NotADeltaTable, ValidationError, VersionConflict, located
from deltars.log.commit import Commit, TableCommit
from deltars.log.new_table import NO_VERSION, NewTable
from deltars.protocol import AddFile, Metadata, SchemaLike, StructType, as_schema, merged, path_to_uri
from deltars.protocol.log_files import is_hidden
from deltars.protocol.partition_values import parse_partition_value, serialize_partition_value
from deltars.protocol.paths import unescape_partition_segment
from deltars.session import CatalogSession, after_commit
from deltars.storage import ObjectInfo, Storage, open_storage
from deltars.store.names import check_name
from deltars.store.registry import TableRecord
from deltars.transaction.create_table import initial_actions, location_of

CONVERT = "CONVERT"
FOOTERS_AT_ONCE = 16
_NULL = "__HIVE_DEFAULT_PARTITION__"


def convert_directory(
    session: CatalogSession,
    location: str,
    name: str | None,
    *,
    partition_schema: SchemaLike | None,
    committer: str | None,
) -> TableRecord:
    """Commit version 0 of a table over the Parquet files in a directory."""
    name = free_name(session, location) if name is None else name
    check_name(name)
    partitions = StructType(()) if partition_schema is None else as_schema(partition_schema)
    table_id = uuid4()
    place = location_of(session, name, table_id, location)
    storage = open_storage(place, session.settings.storage_options)
    with located(table=name):
        files = _listed(storage, partitions)
        values = [_partition_values(storage, info, partitions) for info in files]
        with ThreadPoolExecutor(FOOTERS_AT_ONCE, thread_name_prefix="deltars-convert") as pool:
            described = list(pool.map(lambda info: describe_file(storage, info), files))
        schema = _schema(described, partitions)
        initial = initial_actions(table_id, schema, partition_by=partitions.names)
        metadata = next(action for action in initial if isinstance(action, Metadata))
        adds = [_add(info, file, of) for info, file, of in zip(files, described, values, strict=True)]
        params = {
            "numFiles": len(adds),
            "partitionedBy": msgspec.json.encode(list(metadata.partition_columns)).decode(),
            "collectStats": False,
            "sourceFormat": "parquet",
        }
        commit = TableCommit(
            table_id, NO_VERSION, [*initial, *adds], CONVERT, params, metrics={"numConvertedFiles": str(len(adds))}
        )
        _commit(session, Commit(uuid4(), (commit,), (NewTable(table_id, name, place),), committer=committer))
    session.publish_registration(table_id)
    return session.find(table_id)


def _commit(session: CatalogSession, commit: Commit) -> None:
    try:
        committed = session.commit(commit)
    except VersionConflict as conflict:
        raise ValidationError(
            f"another transaction created a table at {commit.new_tables[0].location}",
            hint="Open that table: catalog.tables() lists the tables.",
        ) from conflict
    with after_commit(committed.txn_id):
        session.publish(committed.versions)


def _listed(storage: Storage, partitions: StructType) -> list[ObjectInfo]:
    files = [info for info in storage.list() if not is_hidden(info.path, partitions.names) and info.size]
    if not files:
        raise NotADeltaTable(
            f"there are no Parquet files in {storage.root}", hint="Give the directory that holds the files."
        )
    return sorted(files, key=lambda info: info.path)


def _partition_values(storage: Storage, info: ObjectInfo, partitions: StructType) -> dict[str, str | None]:
    """Return the partition values that the directories of a path name, in the form of the log."""
    named = [segment.partition("=") for segment in info.path.split("/")[:-1] if "=" in segment]
    found = [(unescape_partition_segment(name), unescape_partition_segment(text)) for name, _, text in named]
    wanted = partitions.names
    where = f"from parsing the file name: {storage.url_of(info.path)}"
    if len(found) != len(wanted):
        listed, present = (", ".join(f"`{name}`" for name in names) for names in (wanted, [one for one, _ in found]))
        raise ValidationError(
            f"Expecting {len(wanted)} partition column(s): [{listed}], but found {len(found)} partition column(s):"
            f" [{present}] {where}",
            field="partition_schema",
            hint="Give the partition columns and their types, such as 'day DATE'.",
        )
    values: dict[str, str | None] = {}
    for field, (name, text) in zip(partitions.fields, found, strict=True):
        if field.name.lower() != name.lower():
            raise ValidationError(
                f"Expecting partition column `{field.name}`, but found partition column `{name}` {where}",
                field="partition_schema",
            )
        # Parsed and written again: directories may have other spellings of a value than the log.
        value = None if text == _NULL else parse_partition_value(text, field.type)
        values[field.name] = serialize_partition_value(value, field.type)
    return values


def _schema(files: Sequence[ForeignFile], partitions: StructType) -> StructType:
    whole = reduce(lambda table, file: merged(table, file.schema), files[1:], files[0].schema)
    names = {name.lower() for name in partitions.names}
    own = tuple(field for field in whole.fields if field.name.lower() not in names)
    return StructType((*own, *partitions.fields))


def _add(info: ObjectInfo, file: ForeignFile, values: Mapping[str, str | None]) -> AddFile:
    return AddFile(
        path=path_to_uri(info.path),
        partition_values=dict(values),
        size=info.size,
        modification_time=int(info.modified.timestamp() * 1000),
        data_change=True,
        stats=msgspec.json.encode({"numRecords": file.num_rows}).decode(),
    )


__all__ = ["convert_directory"]
