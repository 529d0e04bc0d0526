"""Restore a table to an older version: what a transaction stages for it.

    now ──────── files a b d    ──┐          remove d
                                  ├──▶ diff  add c again: same path, vector, statistics and row ids
    version 3 ── files a b c    ──┘          metadata of version 3

As in Delta, no feature leaves the protocol, and the progress of applications (`txn`) stays. What the whole log depends
on stays too: in-commit timestamps, row tracking, the ids of mapped columns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from deltars.errors import FilesMissing, ValidationError, VersionNotFound
from deltars.log.arrow_adds import deletion_vectors, file_keys
from deltars.log.commit import RowGroup
from deltars.log.moments import Moment
from deltars.log.new_table import NO_VERSION
from deltars.log.read_set import FileKey
from deltars.log.snapshot import Snapshot
from deltars.log.table_rules import ROW_TRACKING_DOMAIN
from deltars.log.table_state import APPEND_ONLY, ROW_TRACKING
from deltars.protocol import (
    Action,
    DomainMetadata,
    Metadata,
    Protocol,
    StructType,
    check_protocol,
    column_mapping,
    mapped,
    needed_features,
)
from deltars.protocol.column_mapping import COLUMN_MAPPING, MAX_COLUMN_ID, unmapped
from deltars.protocol.deletion_vectors import relative_path as vector_path
from deltars.protocol.identity import latest_marks
from deltars.protocol.properties import ENABLEMENT_TIMESTAMP, ENABLEMENT_VERSION, boolean_property
from deltars.session import CatalogSession
from deltars.storage import Storage, open_storage
from deltars.storage.table_files import relative_path
from deltars.store.read.as_of import AsOf
from deltars.transaction.metadata import IN_COMMIT_TIMESTAMPS, raised
from deltars.transaction.staged_table import StagedTable, Step, adds_of, removes_of
from deltars.transaction.view import View

RESTORE = "RESTORE"

CHECKS_AT_ONCE = 32
"""Files that are looked for at the same time."""
NAMED = 10
"""Most missing files that an error names."""

_TIMESTAMPS = (IN_COMMIT_TIMESTAMPS, ENABLEMENT_VERSION, ENABLEMENT_TIMESTAMP)
_ROW_TRACKING_COLUMNS = "delta.rowTracking."


@dataclass(frozen=True, slots=True)
class RestoredTable:
    """What a restore changes in one table."""

    table: str
    table_id: UUID
    version: int
    """Version whose rows, schema and properties the table has again."""
    num_restored_files: int = 0
    restored_bytes: int = 0
    num_restored_rows: int | None = 0
    """Rows in files that are added again; None if a file has no count. The same holds for removed rows."""
    num_removed_files: int = 0
    removed_bytes: int = 0
    num_removed_rows: int | None = 0
    metadata_changed: bool = False
    """Whether the schema, the partitioning, the properties or the description change."""

    @property
    def is_changed(self) -> bool:
        """Whether the table differs from its old version. If not, it gets no new version."""
        return bool(self.num_restored_files or self.num_removed_files or self.metadata_changed)


def version_to_restore(
    session: CatalogSession,
    table: StagedTable,
    version: int | None,
    timestamp: Moment | None,
    as_of: AsOf | None,
) -> Snapshot:
    """Return the table at the version that exactly one of the arguments selects."""
    choices = (("version", version), ("timestamp", timestamp), ("as_of", as_of))
    given = [name for name, value in choices if value is not None]
    if len(given) != 1:
        raise ValidationError(
            f"restore needs one of version, timestamp and as_of, got {' and '.join(given) or 'none'}",
            table=table.name,
            field=given[1] if given else "version",
        )
    if table.version == NO_VERSION:
        raise VersionNotFound("the table has no committed version to restore", table=table.name)
    if as_of is not None:
        version = session.version_as_of(table.table_id, as_of)
    return session.reader.snapshot(table.table_id, version, timestamp=timestamp)


@dataclass(frozen=True, slots=True)
class Restoration:
    """The step that restores one table, made for one staged state of it."""

    table: StagedTable
    actions: Sequence[Action]
    step: Step
    row_groups: Sequence[RowGroup]
    result: RestoredTable


def restoration(view: View, table: StagedTable, target: Snapshot, timestamp: Moment | None = None) -> Restoration:
    """Compare a table, with what is staged, to an older version. Raise if that cannot be had again.

    The table counts as read in whole.
    """
    assert table.metadata is not None
    assert table.protocol is not None
    if target.version == table.version and not table.is_changed:
        view.note_whole_read(table)
        return Restoration(table, (), Step(RESTORE), (), RestoredTable(table.name, table.table_id, target.version))
    now = view.files(table, None)
    then = target.files
    added, removed = _without(then, file_keys(now)), _without(now, file_keys(then))
    if removed.num_rows and boolean_property(table.metadata.configuration, APPEND_ONLY):
        raise ValidationError(
            "the table is append-only (delta.appendOnly): no data may be removed",
            table=table.name,
            hint="Set delta.appendOnly to false first: catalog.set_properties.",
        )
    _check_files(view.session, table, added, target.version)
    metadata = restored_metadata(table.metadata, target.metadata)
    needed = needed_features(metadata.schema, metadata.configuration)
    if added["deletion_vector"].null_count < added.num_rows:
        needed |= {"deletionVectors"}  # which the table may have dropped since
    actions = raised(table.protocol, needed)
    _check_protocol(table, actions, target.version)
    actions += [metadata] if metadata != table.metadata else []
    actions += _domains(view, table, target)
    result = RestoredTable(
        table.name,
        table.table_id,
        target.version,
        *_sums(added),
        *_sums(removed),
        metadata_changed=metadata != table.metadata,
    )
    params: dict[str, Any] = {
        "version": target.version if timestamp is None else None,
        "timestamp": None if timestamp is None else str(timestamp),
    }
    step = Step(RESTORE, params, _metrics(then, result), target.version)
    return Restoration(
        table, [*actions, *removes_of(removed), *adds_of(added)], step, row_groups_of(target, added), result
    )


def restored_metadata(now: Metadata, then: Metadata) -> Metadata:
    """Return the metadata of an older version, with what must not go back as it is now."""
    kept = {key: value for key, value in now.configuration.items() if key in _TIMESTAMPS}
    if boolean_property(now.configuration, ROW_TRACKING):
        # Rows have ids by now, which may not get lost. Files from before get theirs when they are added again.
        kept |= {
            key: value
            for key, value in now.configuration.items()
            if key == ROW_TRACKING or key.startswith(_ROW_TRACKING_COLUMNS)
        }
    configuration = {key: value for key, value in then.configuration.items() if key not in _TIMESTAMPS} | kept
    schema = latest_marks(then.schema, now.schema)
    then = then if schema is then.schema else msgspec.structs.replace(then, schema_string=schema.to_json())
    restored = msgspec.structs.replace(then, id=now.id, configuration=configuration)
    was, is_now = column_mapping(then.configuration), column_mapping(now.configuration)
    # A mapping that the table has dropped since comes back with the files.
    if is_now != "none" and was != is_now and (was, is_now) != ("none", "name"):
        raise ValidationError(
            f"the version has {COLUMN_MAPPING}={was}, which cannot be had again: the table has {is_now} by now",
            field=COLUMN_MAPPING,
            hint="Read the old version, and write its rows to a new table.",
        )
    if is_now == "none":
        return restored
    if was != is_now and _is_mapped_as(now.schema, then.schema):
        return msgspec.structs.replace(
            restored,
            schema_string=now.schema_string,
            configuration=configuration | {COLUMN_MAPPING: is_now, MAX_COLUMN_ID: now.configuration[MAX_COLUMN_ID]},
        )
    # Column ids are never used again. A version from before column mapping keeps its names as physical names.
    last = max(int(each.configuration.get(MAX_COLUMN_ID, "0")) for each in (now, then))
    configuration |= {COLUMN_MAPPING: is_now, MAX_COLUMN_ID: str(last)}
    return mapped(msgspec.structs.replace(restored, configuration=configuration), before=then)


def _is_mapped_as(schema: StructType, names: StructType) -> bool:
    """Return whether a mapped schema has these columns, each with its name as its physical name."""
    return unmapped(schema) == names and all(field.physical_name == field.name for _, field in schema.walk())


def _check_protocol(table: StagedTable, actions: Sequence[Action], version: int) -> None:
    for action in actions:
        problem = check_protocol(action) if isinstance(action, Protocol) else None
        if problem is not None:
            raise ValidationError(
                f"the metadata of version {version} cannot be had again: {problem}", table=table.name, field="protocol"
            )


def _check_files(session: CatalogSession, table: StagedTable, files: pa.Table, version: int) -> None:
    """Raise `FilesMissing` unless every data file and every file of deletion vectors exists."""
    storage = open_storage(table.location, session.settings.storage_options)
    missing = missing_files(storage, files_of(storage, files))
    if not missing:
        return
    some = tuple(missing[:NAMED])
    rest = f" and {len(missing) - len(some)} more" if len(missing) > len(some) else ""
    raise FilesMissing(
        f"version {version} cannot be restored: {len(missing)} of its files do not exist any more:"
        f" {', '.join(some)}{rest}",
        paths=some,
        count=len(missing),
        table=table.name,
        hint="They were probably vacuumed. Restore a later version.",
    )


def files_of(storage: Storage, files: pa.Table) -> list[str]:
    """Return the paths, below the table's root, of data files and of the files of their deletion vectors."""
    paths = {relative_path(storage, path) for path in files["path"].to_pylist()}
    for vector in deletion_vectors(files["deletion_vector"]):
        if vector is not None and vector.storage_type != "i":
            found = vector_path(vector)
            paths.add(relative_path(storage, vector.path_or_inline_dv) if found is None else found)
    return sorted(paths)


def missing_files(storage: Storage, paths: Sequence[str]) -> list[str]:
    """Return the files that do not exist, in order. Many are looked for at once."""
    if not paths:
        return []
    with ThreadPoolExecutor(min(CHECKS_AT_ONCE, len(paths)), thread_name_prefix="deltars-look") as pool:
        exists = pool.map(storage.exists, paths)
        return [path for path, is_there in zip(paths, exists, strict=True) if not is_there]


def _without(files: pa.Table, keys: Iterable[FileKey]) -> pa.Table:
    known = set(keys)
    return files.filter(pa.array([key not in known for key in file_keys(files)], pa.bool_()))


def _sums(files: pa.Table) -> tuple[int, int, int | None]:
    """Return the number of files, their bytes, and their rows that are not deleted, if every file has a count."""
    rows: int | None = None
    if not files["num_records"].null_count:
        deleted = sum(vector.cardinality for vector in deletion_vectors(files["deletion_vector"]) if vector is not None)
        rows = (pc.sum(files["num_records"]).as_py() or 0) - deleted
    return files.num_rows, pc.sum(files["size"]).as_py() or 0, rows


def _metrics(then: pa.Table, result: RestoredTable) -> dict[str, int]:
    return {
        "tableSizeAfterRestore": pc.sum(then["size"]).as_py() or 0,
        "numOfFilesAfterRestore": then.num_rows,
        "numRemovedFiles": result.num_removed_files,
        "numRestoredFiles": result.num_restored_files,
        "removedFilesSize": result.removed_bytes,
        "restoredFilesSize": result.restored_bytes,
    }


def row_groups_of(snapshot: Snapshot, files: pa.Table) -> list[RowGroup]:
    """Return the recorded row groups of some files of a version."""
    paths: Collection[str] = set(files["path"].to_pylist())
    if not paths:
        return []
    columns = ("path", "row_group", "num_rows", "total_bytes", "file_offset", "stats")
    rows = snapshot.row_groups().select(columns).to_pylist()
    return [RowGroup(*row.values()) for row in rows if row["path"] in paths]


def _domains(view: View, table: StagedTable, target: Snapshot) -> list[DomainMetadata]:
    """Return Delta's own domains as they were. Those of applications stay, as does the mark of row ids."""
    now = view.domains(table)
    changed = [
        domain
        for name, domain in target.domains.items()
        if is_restored_domain(name) and (name not in now or now[name].configuration != domain.configuration)
    ]
    gone = [
        msgspec.structs.replace(domain, removed=True)
        for name, domain in now.items()
        if is_restored_domain(name) and name not in target.domains
    ]
    return [*changed, *gone]


def is_restored_domain(domain: str) -> bool:
    """Return whether a domain is part of what a version describes: one of Delta's own, but not the mark of row ids."""
    return domain.startswith("delta.") and domain != ROW_TRACKING_DOMAIN
