"""Statistics of live files, by table: small ones, ones with many deleted rows, ones that are not sorted."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from uuid import UUID

import msgspec
from sqlalchemy import BigInteger, ColumnElement, FromClause, Text, and_, case, cast, exists, func, literal, or_, select

from deltars.log.compaction import MIN_SHARE, automatic_target
from deltars.log.maintenance import TINY_SHARE, WORN_SHARE
from deltars.protocol.clustering import CLUSTERING
from deltars.store.maintenance.reading import Reading
from deltars.store.schema import dl_add_files, dl_domain_metadata

_add = dl_add_files.c

LIVE = (
    "num_files",
    "size_bytes",
    "num_records",
    "small_files",
    "small_bytes",
    "mergeable_files",
    "deleted_rows",
    "worn_files",
    "worn_bytes",
    "unsorted_files",
    "unsorted_bytes",
)
"""Names of the numbers."""


def live_files(reading: Reading) -> dict[UUID, dict[str, int]]:
    """Return the numbers of `LIVE` and the target size, for each table with files."""
    given = {table_id: rules.target_bytes for table_id, rules in reading.rules.items() if rules.target_bytes}
    found = _live_by(reading, given, None)
    # The target of a very large table depends on its size.
    large = {
        table_id: target
        for table_id, row in found.items()
        if table_id not in given and (target := automatic_target(row["size_bytes"])) != automatic_target(0)
    }
    if large:
        found |= _live_by(reading, large, large)
    return found


def _live_by(
    reading: Reading, targets: Mapping[UUID, int], only: Collection[UUID] | None
) -> dict[UUID, dict[str, int]]:
    """Return what the live files of each table are, by the target sizes of some tables and the default one."""
    default = literal(automatic_target(0), BigInteger)
    files: FromClause = dl_add_files
    target: ColumnElement[int] = default
    if targets:
        document = reading.document([{"table_id": key, "size": size} for key, size in targets.items()], _add.size)
        files = files.join(document, document.c.table_id == _add.table_id, isouter=only is None)
        target = func.coalesce(document.c.size, default)
    deleted = func.coalesce(_add.deletion_vector["cardinality"].as_integer(), 0)
    is_worn = and_(
        _add.deletion_vector.is_not(None),
        or_(_add.num_records.is_(None), deleted > WORN_SHARE * _add.num_records),
    )
    is_small, is_tiny = _add.size < target * MIN_SHARE, _add.size < target * TINY_SHARE
    is_unsorted = _add.clustering_provider.is_(None)
    # As text: not every database compares documents.
    partition = cast(_add.partition_values, Text)
    partitions = (
        select(
            _add.table_id,
            func.max(target).label("target_bytes"),
            func.count().label("num_files"),
            func.sum(_add.size).label("size_bytes"),
            func.coalesce(func.sum(_add.num_records), 0).label("num_records"),
            func.sum(deleted).label("deleted_rows"),
            _count_if(is_small).label("small_files"),
            _sum_if(is_small, _add.size).label("small_bytes"),
            _count_if(is_tiny).label("tiny_files"),
            _count_if(is_worn).label("worn_files"),
            _sum_if(is_worn, _add.size).label("worn_bytes"),
            _count_if(is_unsorted).label("unsorted_files"),
            _sum_if(is_unsorted, _add.size).label("unsorted_bytes"),
        )
        .select_from(files)
        .where(_add.removed_version.is_(None), reading.is_chosen(_add.table_id))
        .group_by(_add.table_id, partition)
        .subquery()
    )
    sums = (func.sum(partitions.c[name]).label(name) for name in LIVE if name != "mergeable_files")
    mergeable = _sum_if(partitions.c.small_files >= 2, partitions.c.tiny_files).label("mergeable_files")
    query = select(
        partitions.c.table_id, func.max(partitions.c.target_bytes).label("target_bytes"), mergeable, *sums
    ).group_by(partitions.c.table_id)
    return reading.numbers(query)


def clustered_tables(reading: Reading) -> set[UUID]:
    """Return the tables whose last clustering domain has columns."""
    domains, newer = dl_domain_metadata.c, dl_domain_metadata.alias("newer")
    is_old = exists().where(
        newer.c.table_id == domains.table_id, newer.c.domain == domains.domain, newer.c.version > domains.version
    )
    query = select(domains.table_id, domains.configuration).where(
        domains.domain == CLUSTERING, domains.removed.is_(False), ~is_old, reading.is_chosen(domains.table_id)
    )
    return {table_id for table_id, text in reading.connection.execute(query) if _has_columns(text)}


def _count_if(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return func.sum(case((condition, 1), else_=0))


def _sum_if(condition: ColumnElement[bool], number: ColumnElement[int]) -> ColumnElement[int]:
    return func.sum(case((condition, number), else_=0))


def _has_columns(text: str) -> bool:
    try:
        return bool(msgspec.json.decode(text).get("clusteringColumns"))
    except (msgspec.MsgspecError, AttributeError):
        return False
