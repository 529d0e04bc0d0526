"""What a committed transaction read and wrote, for exporters of lineage."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from deltars.log.moments import from_microseconds
from deltars.log.read_description import condition_of, kind_of
from deltars.observe import Lineage, ReadTable, WrittenTable
from deltars.protocol import AddFile
from deltars.transaction.staged_table import StagedTable
from deltars.transaction.view import View


def lineage_of(view: View, versions: Mapping[UUID, int], commit_ts: int, committer: str | None) -> Lineage:
    """Return the tables that a transaction read rows of, and the versions that it made."""
    read = []
    for table_id, found in view.reads.items():
        table = view.find(table_id)
        # A table that it creates has no version to read.
        if kind_of(found.reads) is not None and found.version >= 0 and table is not None:
            read.append(ReadTable(table.name, table.location, found.version, condition_of(found.reads)))
    written = [_written(table, versions[table.table_id]) for table in view.changed if table.table_id in versions]
    dropped = [WrittenTable(table.name, table.location, None, "DROP TABLE") for table in view.dropped]
    return Lineage(
        from_microseconds(commit_ts),
        committer,
        tuple(sorted(read, key=lambda table: table.name)),
        tuple(sorted([*written, *dropped], key=lambda table: table.name)),
    )


def _written(table: StagedTable, version: int) -> WrittenTable:
    commit = table.as_commit()
    sizes = [action.size for action in commit.actions if isinstance(action, AddFile)]
    if commit.adds is not None:
        sizes += commit.adds["size"].to_pylist()
    rows = commit.metrics.get("numOutputRows")
    return WrittenTable(
        table.name,
        table.location,
        version,
        commit.operation,
        is_new=table.new is not None,
        replaces=commit.operation_params.get("mode") == "Overwrite",
        columns=()
        if table.metadata is None
        else tuple((field.name, str(field.type)) for field in table.metadata.schema.fields),
        num_rows=None if rows is None else int(rows),
        num_files=len(sizes),
        size_bytes=sum(sizes),
    )
