"""Views of the catalog in the terms of a versioned dataset catalog; they store nothing twice.

datasets       dl_tables that were not dropped
transactions   dl_table_versions
files          dl_add_files, with the versions between which each file is live
row_groups     dl_row_groups, with the file they belong to
partitions     the live files, aggregated by partition
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Select, func, select

from deltars.store.schema import dl_add_files, dl_row_groups, dl_table_versions, dl_tables

_tables, _versions, _files, _groups = dl_tables.c, dl_table_versions.c, dl_add_files.c, dl_row_groups.c

VIEWS: dict[str, Select[Any]] = {
    "datasets": select(
        _tables.table_id.label("dataset_id"),
        _tables.name,
        _tables.location,
        _tables.current_version,
        _tables.created_at,
    ).where(_tables.dropped_at.is_(None)),
    "transactions": select(
        _versions.table_id.label("dataset_id"),
        _versions.version,
        _versions.txn_id,
        _versions.committed_at,
        _versions.committer,
        _versions.operation,
        _versions.operation_params.label("parameters"),
    ),
    "files": select(
        _files.table_id.label("dataset_id"),
        _files.version,
        _files.removed_version,
        _files.path,
        _files.size.label("size_bytes"),
        _files.num_records.label("rows"),
        _files.partition_values,
        _files.stats,
    ),
    "row_groups": select(
        _groups.table_id.label("dataset_id"),
        _groups.version,
        _files.path,
        _groups.row_group,
        _groups.num_rows.label("rows"),
        _groups.total_bytes.label("size_bytes"),
        _groups.file_offset,
        _groups.stats,
    ).join_from(
        dl_row_groups,
        dl_add_files,
        (_files.table_id == _groups.table_id) & (_files.version == _groups.version) & (_files.ord == _groups.ord),
    ),
    "partitions": select(
        _files.table_id.label("dataset_id"),
        _files.partition_values,
        func.count().label("files"),
        func.sum(_files.num_records).label("rows"),
        func.sum(_files.size).label("size_bytes"),
        func.max(_files.version).label("last_version"),
    )
    .where(_files.removed_version.is_(None))
    .group_by(_files.table_id, _files.partition_values),
}
