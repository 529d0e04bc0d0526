"""Conversion of actions to rows of the catalog's tables, and back.

    to_row(action)    ──▶ the row of its table, as a dict ready for JSON (absent keys are NULL)
    from_row(table, row) ──▶ the action

`ord` is the position of an action in its commit, across all action tables, so that a version keeps its order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_never

import msgspec
from msgspec.structs import asdict
from sqlalchemy import RowMapping

from deltars.log.bounds import Bounds
from deltars.log.commit import RowGroup
from deltars.protocol import (
    Action,
    AddFile,
    CdcFile,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    Format,
    Metadata,
    Protocol,
    RemoveFile,
    Txn,
)
from deltars.store import schema

Row = dict[str, Any]

TABLE_OF: dict[type, str] = {
    AddFile: schema.dl_add_files.name,
    RemoveFile: schema.dl_remove_files.name,
    CdcFile: schema.dl_cdc_files.name,
    Metadata: schema.dl_metadata_updates.name,
    Protocol: schema.dl_protocol_updates.name,
    Txn: schema.dl_txn_actions.name,
    DomainMetadata: schema.dl_domain_metadata.name,
}


def to_row(action: Action, bounds: Bounds) -> Row:
    match action:
        case AddFile():
            row = asdict(action)
            row["num_records"], row["mins"], row["maxs"] = bounds.of(action.stats)
            row["dv_id"] = action.dv_id
            if len(action.partition_values) > 1:
                # Sorted, because databases without a JSON type group partitions by the text.
                row["partition_values"] = dict(sorted(action.partition_values.items()))
            return row
        case RemoveFile():
            return asdict(action) | {"dv_id": action.dv_id}
        case CdcFile() | Protocol() | DomainMetadata():
            return asdict(action)
        case Metadata():
            return {
                "metadata_id": action.id,
                "name": action.name,
                "description": action.description,
                "format": action.format,
                "schema_json": action.schema_string,
                "partition_columns": action.partition_columns,
                "properties": action.configuration,
                "created_time": action.created_time,
            }
        case Txn():
            return {
                "app_id": action.app_id,
                "txn_version": action.version,
                "last_update": action.last_updated,
            }
        case CommitInfo():
            raise AssertionError("commitInfo is made from dl_table_versions, never stored")
        case _:
            assert_never(action)


def row_group_to_row(group: RowGroup) -> Row:
    return {
        "row_group": group.ordinal,
        "num_rows": group.num_rows,
        "total_bytes": group.total_bytes,
        "file_offset": group.file_offset,
        "stats": group.stats,
    }


def from_row(table: str, row: Mapping[str, Any] | RowMapping) -> Action:
    match table:
        case schema.dl_add_files.name:
            return AddFile(
                path=row["path"],
                partition_values=row["partition_values"],
                size=row["size"],
                modification_time=row["modification_time"],
                data_change=row["data_change"],
                stats=row["stats"],
                tags=row["tags"],
                deletion_vector=_deletion_vector(row["deletion_vector"]),
                base_row_id=row["base_row_id"],
                default_row_commit_version=row["default_row_commit_version"],
                clustering_provider=row["clustering_provider"],
            )
        case schema.dl_remove_files.name:
            return RemoveFile(
                path=row["path"],
                deletion_timestamp=row["deletion_timestamp"],
                data_change=row["data_change"],
                extended_file_metadata=row["extended_file_metadata"],
                partition_values=row["partition_values"],
                size=row["size"],
                stats=row["stats"],
                tags=row["tags"],
                deletion_vector=_deletion_vector(row["deletion_vector"]),
                base_row_id=row["base_row_id"],
                default_row_commit_version=row["default_row_commit_version"],
            )
        case schema.dl_cdc_files.name:
            return CdcFile(
                path=row["path"],
                partition_values=row["partition_values"],
                size=row["size"],
                data_change=row["data_change"],
                tags=row["tags"],
            )
        case schema.dl_metadata_updates.name:
            return Metadata(
                id=row["metadata_id"],
                name=row["name"],
                description=row["description"],
                format=msgspec.convert(row["format"], Format),
                schema_string=row["schema_json"],
                partition_columns=row["partition_columns"],
                configuration=row["properties"],
                created_time=row["created_time"],
            )
        case schema.dl_protocol_updates.name:
            return Protocol(
                min_reader_version=row["min_reader_version"],
                min_writer_version=row["min_writer_version"],
                reader_features=row["reader_features"],
                writer_features=row["writer_features"],
            )
        case schema.dl_txn_actions.name:
            return Txn(app_id=row["app_id"], version=row["txn_version"], last_updated=row["last_update"])
        case schema.dl_domain_metadata.name:
            return DomainMetadata(domain=row["domain"], configuration=row["configuration"], removed=row["removed"])
        case _:
            raise AssertionError(f"{table} holds no actions")


def _deletion_vector(document: Any) -> DeletionVector | None:
    return None if document is None else msgspec.convert(document, DeletionVector)
