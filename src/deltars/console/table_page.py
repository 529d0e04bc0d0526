"""What the page of one table shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any
from uuid import UUID

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from deltars.catalog import Catalog
from deltars.catalog.charts import Bar, bars, size_text
from deltars.catalog.growth import table_growth
from deltars.console.column_statistics import column_statistics
from deltars.console.dry_runs import advised, dry_run
from deltars.console.graph import around
from deltars.errors import TableNotFound
from deltars.log.maintenance import TableStatistics
from deltars.log.snapshot import Snapshot, file_schema
from deltars.store.read.activity import Activity

HISTORY = 100
"""Commits of a table that its page lists."""
GROWTH = 300
"""Versions of a table that its charts show."""
PARTITIONS = 100
MOST_FILES = 5_000
"""Files of a table whose sizes and statistics its page shows."""
TAGS = 50


def table_page(catalog: Catalog, activity: Activity, name: str) -> dict[str, Any]:
    table = catalog.table(name)
    if table.version < 0:
        raise TableNotFound("the table has no version yet", table=table.name, hint="Write to it first.")
    detail = table.detail(partitions=True)
    history = table.history(HISTORY)
    advice = catalog.advise([table.id])
    [health] = catalog.statistics([table.id])
    snapshot = table.snapshot()
    files = _first_rows(snapshot, ("size", "stats", "deletion_vector"), MOST_FILES)
    sources, dependents = (catalog.lineage(table.id, downstream=way, depth=2) for way in (False, True))
    return {
        **asdict(replace(detail, partitions=(detail.partitions or ())[:PARTITIONS])),
        "num_partitions": len(detail.partitions or ()),
        "history": [
            {
                "version": entry.version,
                "committed_at": entry.committed_at,
                "operation": entry.operation,
                "committer": entry.committer,
                "user_metadata": entry.user_metadata,
                "txn_id": entry.txn_id,
            }
            for entry in history
        ],
        "charts": table_growth(catalog._session, table.id, max(0, table.version - GROWTH), table.version),
        "file_sizes": _file_sizes(files),
        "files_looked_at": files.num_rows,
        "statistics": column_statistics(snapshot.schema, files["stats"].to_pylist()),
        "vectors": _vectors(files, health),
        "health": asdict(health),
        "tags": _tags_of(catalog, activity, table.id),
        "graph": around(table.name, table.version, sources, dependents),
        "schema_changes": _schema_changes(activity.schemas(table.id, HISTORY)),
        "advice": [{**advised(one), "dry_run": dry_run(table, one)} for one in advice],
        "sources": [asdict(edge) for edge in sources],
        "dependents": [asdict(edge) for edge in dependents],
        "conflicts": [asdict(one) for one in catalog.conflicts(tables=[table.id], limit=20)],
    }


def _tags_of(catalog: Catalog, activity: Activity, table_id: UUID) -> list[dict[str, Any]]:
    """Return the tags that need a version of the table, and which."""
    tags = catalog.tags()[:TAGS]
    versions = {tag.name: activity.version_at(table_id, tag.commit_ts) for tag in tags}
    return [{**asdict(tag), "version": versions[tag.name]} for tag in tags if versions[tag.name] is not None]


def _first_rows(snapshot: Snapshot, columns: tuple[str, ...], most: int) -> pa.Table:
    """Return the first files of a snapshot, at most about so many."""
    batches: list[pa.RecordBatch] = []
    for batch in snapshot.file_batches(columns=columns):
        batches.append(batch)
        if sum(one.num_rows for one in batches) >= most:
            break
    return pa.Table.from_batches(batches, file_schema(columns)).slice(0, most)


def _vectors(files: pa.Table, health: TableStatistics) -> dict[str, int]:
    vectors = files["deletion_vector"]
    return {"num_files": files.num_rows - vectors.null_count, "deleted_rows": health.deleted_rows}


def _file_sizes(files: pa.Table) -> list[Bar]:
    """Return how many files there are of each size, by powers of two."""
    if not files.num_rows:
        return []
    powers = pc.floor(pc.log2(pc.max_element_wise(pc.cast(files["size"], "double"), 1.0)))
    counts = sorted((int(row["values"].as_py()), row["counts"].as_py()) for row in pc.value_counts(powers))
    return bars([(f"{size_text(2**power)} – {size_text(2 ** (power + 1))}", count) for power, count in counts])


def _schema_changes(schemas: Sequence[tuple[int, str]]) -> list[dict[str, Any]]:
    """Return which columns each change of the metadata added, removed and changed, newest first."""
    changes = []
    before: Mapping[str, Any] | None = None
    for version, text in schemas:
        fields = {field["name"]: field for field in msgspec.json.decode(text)["fields"]}
        if before is not None:
            kept = before.keys() & fields.keys()
            change = {
                "version": version,
                "added": [name for name in fields if name not in before],
                "removed": [name for name in before if name not in fields],
                "changed": [name for name in fields if name in kept and fields[name] != before[name]],
            }
            if change["added"] or change["removed"] or change["changed"]:
                changes.append(change)
        before = fields
    return changes[::-1]
