"""Create a table: choose its location, and make the actions of its version 0.

catalog.create_table(name, schema) ──▶ create_table ──────┐
tx.create_table(name, schema) ───────┬▶ View.new_table ───┼──▶ location_of, initial_actions ──▶ version 0
tx.write(name, df) of a new table ───┘                    │
create_table(replace=True) ───────────────────────────────┴──▶ replacement_actions ───────────▶ the next version
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from uuid import UUID, uuid4

import msgspec
import pyarrow as pa

from deltars.arguments import check_flags, check_texts
from deltars.errors import ConfigError, StorageError, TableExists, ValidationError, VersionConflict, located
from deltars.log.bounds import Bounds
from deltars.log.commit import Commit, TableCommit
from deltars.log.new_table import NO_VERSION, NewTable
from deltars.log.table_state import APPEND_ONLY
from deltars.predicate import parse
from deltars.protocol import (
    Action,
    DomainMetadata,
    Metadata,
    PrimitiveType,
    SchemaLike,
    StructType,
    as_names,
    as_schema,
    column_mapping,
    protocol_for_new_table,
    protocol_of,
    supported_features,
)
from deltars.protocol import Protocol as TableProtocol
from deltars.protocol.clustering import (
    CLUSTERING,
    CLUSTERING_FEATURE,
    MAX_COLUMNS,
    clustering_domain,
    column_paths,
)
from deltars.protocol.log_files import LOG
from deltars.protocol.properties import CONSTRAINT, ENABLEMENT_TIMESTAMP, ENABLEMENT_VERSION, boolean_property
from deltars.session import CatalogSession, after_commit, location_at
from deltars.storage import Places, Relation, open_storage, parse_location, refuse_overwriting, refuse_unwritable
from deltars.store.mirror.status import MirrorMode
from deltars.store.names import MAX_NAME_LENGTH, check_name, is_id
from deltars.store.registry import TableRecord
from deltars.transaction.metadata import (
    IN_COMMIT_TIMESTAMPS,
    check_new_metadata,
    check_properties,
    metadata_actions,
    partition_column,
)
from deltars.transaction.staged_table import removes_of

_log = logging.getLogger(__name__)

CREATE, REPLACE = "CREATE TABLE", "CREATE OR REPLACE TABLE"

# Names that begin with _ are reserved: the warehouse's `_deltars` directory is the catalog's. At most 100 characters,
# because file systems allow 255 bytes.
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_NOT_IN_NAMES = re.compile(r"[/\x00-\x1f\x7f]+")
_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_LEFTOVER = re.compile(rf"(?:.*/)?(?:part-\d{{5}}-{_UUID}\.c\d{{3}}\..*parquet|deletion_vector_{_UUID}\.bin)")
"""Data files as writers of Delta name them. Without a log, a transaction that was rolled back left them behind."""


def commit_new_table(
    session: CatalogSession,
    name: str,
    schema: SchemaLike,
    *,
    location: str | None,
    partition_by: str | Sequence[str],
    cluster_by: str | Sequence[str],
    properties: Mapping[str, str] | None,
    description: str | None,
    if_not_exists: bool,
    replace: bool,
    committer: str | None,
) -> TableRecord:
    """Commit version 0 of a new table, or with `replace` a new schema and no rows for an existing one."""
    check_request(name, if_not_exists=if_not_exists, replace=replace)
    check_texts(committer=committer)
    existing = session.registry.find(name)
    if existing is not None and if_not_exists:
        return existing
    if existing is not None:
        check_existing(existing, location, replace=replace)
    table_id = uuid4() if existing is None else existing.table_id
    initial = initial_actions(
        table_id,
        as_schema(schema),
        partition_by=partition_by,
        cluster_by=cluster_by,
        properties=properties,
        description=description,
    )
    if existing is not None:
        _commit(session, _replacement(session, existing, initial), committer=committer)
        return session.find(name)
    new = NewTable(table_id, name, location_of(session, name, table_id, location))
    check_directory(session, name, new.location, is_given=location is not None)
    commit = TableCommit(table_id, NO_VERSION, initial, CREATE, create_params(_metadata_in(initial)))
    try:
        _commit(session, commit, new_tables=(new,), committer=committer)
    except VersionConflict as conflict:
        if if_not_exists:
            return session.find(name)
        raise TableExists(f"there is already a table named {name!r}", table=name) from conflict
    session.publish_registration(table_id)
    return session.find(name)


def check_request(name: str, *, if_not_exists: bool, replace: bool) -> None:
    """Check the arguments of a creation that do not depend on the catalog."""
    check_flags(if_not_exists=if_not_exists, replace=replace)
    check_name(name)
    if if_not_exists and replace:
        raise ValidationError(
            "if_not_exists and replace exclude each other",
            table=name,
            field="replace",
            hint="Leave one of them out: one keeps an existing table, the other replaces it.",
        )


class ExistingTable(Protocol):
    """A table that has the name of one to be created."""

    @property
    def table_id(self) -> UUID: ...
    @property
    def name(self) -> str: ...
    @property
    def location(self) -> str: ...


def check_existing(existing: ExistingTable, location: str | None, *, replace: bool) -> None:
    """Raise unless the creation may replace a table that has its name."""
    if not replace:
        raise TableExists(
            f"there is already a table named {existing.name!r}, at {existing.location}",
            table=existing.name,
            table_id=existing.table_id,
            hint="Use if_not_exists=True or replace=True, or another name.",
        )
    if location is not None and str(parse_location(location)) != existing.location:
        raise ValidationError(
            f"a table that is replaced keeps its location, {existing.location}",
            table=existing.name,
            field="location",
            hint="Leave location= out, or drop the table first.",
        )


def _replacement(session: CatalogSession, table: TableRecord, initial: Sequence[Action]) -> TableCommit:
    params = create_params(_metadata_in(initial))
    if table.current_version == NO_VERSION:
        return TableCommit(table.table_id, NO_VERSION, initial, CREATE, params)
    snapshot = session.reader.snapshot(table.table_id)
    actions = replacement_actions(
        table, snapshot.metadata, snapshot.protocol, snapshot.files, initial, snapshot.domains
    )
    return TableCommit(table.table_id, snapshot.version, actions, REPLACE, params)


def replacement_actions(
    table: ExistingTable,
    current: Metadata,
    protocol: TableProtocol,
    files: pa.Table,
    initial: Sequence[Action],
    domains: Mapping[str, DomainMetadata],
) -> list[Action]:
    """Return the actions that give a table its `initial` metadata, and remove its files."""
    before = current.configuration
    if boolean_property(before, APPEND_ONLY) and files.num_rows:
        raise ValidationError(
            "the table is append-only (delta.appendOnly): no data may be removed",
            table=table.name,
            table_id=table.table_id,
            field="replace",
            hint="Set delta.appendOnly to false first: catalog.set_properties.",
        )
    metadata = _metadata_in(initial)
    # These properties say since which version commits have in-commit timestamps: true of the whole log, so kept.
    kept = {key: value for key, value in before.items() if key in (ENABLEMENT_VERSION, ENABLEMENT_TIMESTAMP)}
    metadata = msgspec.structs.replace(metadata, configuration={**metadata.configuration, **kept})
    clustering: list[Action] = [action for action in initial if isinstance(action, DomainMetadata)]
    raised: list[Action] = []
    if clustering:
        features = supported_features(protocol)
        if not {CLUSTERING_FEATURE, "domainMetadata"} <= features:
            protocol = protocol_of({*features, CLUSTERING_FEATURE, "domainMetadata"})
            raised = [protocol]
    elif CLUSTERING in domains:
        clustering = [msgspec.structs.replace(domains[CLUSTERING], removed=True)]
    changed = metadata_actions(protocol, metadata)
    # New metadata may raise the protocol once more. One action has both.
    raised = [] if isinstance(changed[0], TableProtocol) else raised
    return [*raised, *changed, *clustering, *removes_of(files)]


def _commit(
    session: CatalogSession, table: TableCommit, *, new_tables: Sequence[NewTable] = (), committer: str | None
) -> None:
    committed = session.commit(Commit(uuid4(), (table,), new_tables, committer=committer))
    with after_commit(committed.txn_id):
        session.publish(committed.versions, next_version=committed.next_version)


def _metadata_in(actions: Sequence[Action]) -> Metadata:
    return next(action for action in actions if isinstance(action, Metadata))


def create_params(metadata: Metadata) -> dict[str, Any]:
    """Return what the history says of a creation."""
    columns = ",".join(f'"{name}"' for name in metadata.partition_columns)
    return {
        "isManaged": "false",
        "description": metadata.description,
        "partitionBy": f"[{columns}]",
        "properties": dict(metadata.configuration),
    }


def initial_actions(
    table_id: UUID,
    schema: StructType,
    *,
    partition_by: str | Sequence[str] = (),
    cluster_by: str | Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    description: str | None = None,
) -> list[Action]:
    """Return the protocol and the metadata of version 0, and the clustering columns if there are any."""
    if not schema.fields:
        raise ValidationError("a table needs at least one column", field="schema")
    check_texts(description=description)
    for path, column in schema.walk():
        if column.type == PrimitiveType("void"):
            raise ValidationError(
                f"column {'.'.join(path)} has no type (void)",
                field=".".join(path),
                hint="Give it a type: STRING, BIGINT.",
            )
    configuration = {IN_COMMIT_TIMESTAMPS: "true", **check_properties(properties or {})}
    metadata = check_new_metadata(
        Metadata(
            id=str(table_id),
            description=description,
            schema_string=schema.to_json(),
            partition_columns=[partition_column(schema, name) for name in as_names(partition_by)],
            configuration=configuration,
            created_time=int(time.time() * 1000),
        )
    )
    # Raises if `deltars.rangeColumn` names a column that cannot be one.
    Bounds(metadata.schema, metadata.partition_columns, metadata.configuration)
    for key, condition in configuration.items():
        if key.startswith(CONSTRAINT):
            # Raises for a condition that no row can be checked against.
            parse(condition, metadata.schema, field="constraint")
    names = as_names(cluster_by)
    clustering = [clustering_of(metadata, names)] if names else []
    features = [CLUSTERING_FEATURE] if clustering else []
    return [protocol_for_new_table(metadata.schema, metadata.configuration, features), metadata, *clustering]


def clustering_of(metadata: Metadata, names: Sequence[str]) -> DomainMetadata:
    """Return the action that names the clustering columns."""
    if names and metadata.partition_columns:
        raise ValidationError(
            "cluster_by and partition_by exclude each other",
            field="cluster_by",
            hint="Leave one of them out: a clustered table needs no partitions.",
        )
    if len(names) > MAX_COLUMNS:
        raise ValidationError(f"cluster_by takes at most {MAX_COLUMNS} columns, got {len(names)}", field="cluster_by")
    columns = column_paths(names, metadata.schema, (), metadata.configuration, field="cluster_by")
    is_mapped = column_mapping(metadata.configuration) != "none"
    return clustering_domain(metadata.schema, columns, is_mapped=is_mapped)


# -- locations ---------------------------------------------------------------------------------------------------------


def location_of(session: CatalogSession, name: str, table_id: UUID, location: str | None) -> str:
    """Return the given location, checked, or an unused directory of the warehouse."""
    warehouse = session.registry.warehouse()
    place = _chosen(session, name, table_id, location, warehouse)
    claim_place(session, place, warehouse)
    if session.settings.mirror != MirrorMode.OFF:
        refuse_overwriting(open_storage(place, session.settings.storage_options))
    return place


def free_name(session: CatalogSession, path: str | os.PathLike[str]) -> str:
    """Return a name for a table at a path: that of its directory, with a suffix if another table has it."""
    wanted = _NOT_IN_NAMES.sub("_", location_at(path).rstrip("/").rpartition("/")[2]).strip() or "table"
    # A name that looks like a table's id would be taken for one.
    wanted = wanted[: MAX_NAME_LENGTH - 9] if not is_id(wanted) else f"table_{wanted}"
    return wanted if session.registry.find(wanted) is None else f"{wanted}_{uuid4().hex[:8]}"


def claim_place(session: CatalogSession, place: str, warehouse: str | None) -> None:
    """Raise if no table may be stored at a place, or if it is inside the warehouse of another catalog."""
    if warehouse is None:
        return
    places = Places()
    own = f"{warehouse.rstrip('/')}/_deltars"
    relation = places.relation(place, warehouse)
    if relation in (Relation.SAME, Relation.AROUND) or places.relation(place, own) is not None:
        raise ValidationError(
            f"the location {place} {places.relation(place, own)} the directory {own}, which is the catalog's own",
            field="location",
            hint="Give the table a separate directory, in the warehouse or elsewhere.",
        )
    if relation is Relation.INSIDE:
        try:
            session.publisher.warehouse.claim()
        except StorageError as error:
            if session.settings.mirror != MirrorMode.OFF:
                raise
            # Without publishing, a store that lacks conditional puts is good enough.
            _log.warning("the warehouse %s could not be marked as this catalog's: %s", warehouse, error)


def _chosen(session: CatalogSession, name: str, table_id: UUID, location: str | None, warehouse: str | None) -> str:
    check_name(name)
    if location is not None:
        place = str(parse_location(location))
        if has_log(session, place):
            raise TableExists(
                f"there is a Delta table at {place} already",
                table=name,
                field="location",
                hint="Import it with catalog.import_table(location), or give another location.",
            )
        return place
    if warehouse is None:
        raise ConfigError(
            f"{session.uri} has no warehouse, so a table needs a location",
            hint="Set the warehouse once, connect(…, warehouse=…), or pass location=….",
        )
    if _PLAIN_NAME.fullmatch(name):
        place = f"{warehouse.rstrip('/')}/{name}"
        if not session.registry.neighbours(place) and not has_log(session, place):
            return place
    # The name cannot be a directory's, or its directory is in use or holds an old log.
    readable = re.sub(r"[^A-Za-z0-9_-]+", "_", name)[:100].strip("_") or "table"
    return f"{warehouse.rstrip('/')}/{readable}-{table_id.hex[:8]}"


def check_directory(session: CatalogSession, name: str, place: str, *, is_given: bool) -> None:
    """Raise if a new table's directory cannot be written to, or if one that the caller gives holds files.

    Every write of the table would fail, and `drop_table(delete_data=True)` would delete the files.
    """
    storage = open_storage(place, session.settings.storage_options)
    with located(table=name):
        refuse_unwritable(storage)
    for found in storage.list("") if is_given else ():
        # Hidden files belong to tools. Directories with _ are no data of Delta's.
        if not found.path.startswith((".", "_")) and not _LEFTOVER.fullmatch(found.path):
            raise ValidationError(
                f"the directory {place} of the new table is not empty: it holds {found.path}",
                table=name,
                field="location",
                hint="Give an empty directory. To use existing Parquet files, read them and write their rows.",
            )


def refuse_foreign_files(session: CatalogSession, name: str, place: str) -> None:
    """Raise if a directory holds files that are no data files: it is not the directory of a table."""
    for found in open_storage(place, session.settings.storage_options).list(""):
        if not found.path.startswith((".", "_")) and not found.path.endswith((".parquet", ".bin")):
            raise ValidationError(
                f"{place} is not the directory of a Delta table: it holds {found.path}",
                table=name,
                field="location",
                hint="Give an empty directory, or that of the table; catalog.import_table(location) imports one.",
            )


def is_same_place(location: str, other: str) -> bool:
    """Return whether two locations are one directory, in any spelling."""
    return Places().relation(str(parse_location(location)), other) is Relation.SAME


def has_log(session: CatalogSession, location: str) -> bool:
    """Return whether a directory has files of a Delta log."""
    storage = open_storage(location, session.settings.storage_options)
    return next(iter(storage.list(LOG)), None) is not None
