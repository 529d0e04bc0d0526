"""Clustering columns: the columns that a table's rows are kept sorted by, as `CLUSTER BY` sets them.

    domainMetadata "delta.clustering"  {"clusteringColumns": [["day"], ["address", "city"]]}

The log has physical names, so that a renamed column stays a clustering column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from deltars.errors import ValidationError
from deltars.protocol.actions import DomainMetadata
from deltars.protocol.column_path import ColumnPath, key_of, path_of
from deltars.protocol.schema import StructType
from deltars.protocol.stats import has_bounds, indexed_leaves

CLUSTERING = "delta.clustering"
"""Domain that holds the clustering columns."""

CLUSTERING_FEATURE = "clustering"
MAX_COLUMNS = 4
"""Most clustering columns, as in Delta."""


class _Domain(msgspec.Struct):
    clusteringColumns: list[list[str]] = []  # noqa: N815
    domainName: str = CLUSTERING  # noqa: N815


def clustering_domain(schema: StructType, columns: Sequence[ColumnPath], *, is_mapped: bool) -> DomainMetadata:
    """Return the action that sets the clustering columns, which are given by logical names."""
    physical = _physical_names(schema, is_mapped)
    document = _Domain([list(physical[path]) for path in columns])
    return DomainMetadata(domain=CLUSTERING, configuration=msgspec.json.encode(document).decode(), removed=False)


def clustering_columns(
    domains: Mapping[str, DomainMetadata], schema: StructType, *, is_mapped: bool
) -> tuple[ColumnPath, ...]:
    """Return the logical names of the clustering columns; none if the table is not clustered."""
    if CLUSTERING not in domains:
        return ()
    logical = {tuple(path): name for name, path in _physical_names(schema, is_mapped).items()}
    try:
        found = msgspec.json.decode(domains[CLUSTERING].configuration, type=_Domain).clusteringColumns
        return tuple(logical[tuple(path)] for path in found)
    except (msgspec.MsgspecError, KeyError) as error:
        raise ValidationError(
            f"the clustering columns cannot be read: {domains[CLUSTERING].configuration:.200}", field=CLUSTERING
        ) from error


def column_paths(
    names: Sequence[str],
    schema: StructType,
    partition_columns: Sequence[str],
    properties: Mapping[str, str],
    *,
    field: str,
) -> tuple[ColumnPath, ...]:
    """Return columns to sort files by, as the schema spells them. `a.b` is the field b of the struct a.

    Raise `ValidationError` for a column that does not exist, is given twice, is a partition column, or has no minimum
    and maximum in the statistics: sorting by it would not help a reader to skip files.
    """
    leaves = {key_of(path): (path, type_) for path, type_ in schema.leaves()}
    indexed = {path for path, _ in indexed_leaves(schema, partition_columns, properties)}
    chosen: list[ColumnPath] = []
    for name in names:
        found = leaves.get((name.lower(),)) or leaves.get(key_of(path_of(name, field=field)))
        if found is None:
            known = ", ".join(".".join(path) for path, _ in leaves.values())
            raise ValidationError(
                f"there is no column {name!r}; the columns are {known}",
                field=field,
                hint="Write a.b for the field b of the struct a.",
            )
        path, type_ = found
        if path[0] in partition_columns:
            raise ValidationError(
                f"{name} is a partition column: each of its values has separate files already", field=field
            )
        if not has_bounds(type_):
            raise ValidationError(f"{name} is of type {type_}, which has no minimum and maximum", field=field)
        if path not in indexed:
            raise ValidationError(
                f"the table has no statistics of {name}, so no reader could skip files by it",
                field=field,
                hint="Raise delta.dataSkippingNumIndexedCols, or name it in delta.dataSkippingStatsColumns.",
            )
        if path in chosen:
            raise ValidationError(f"{name} is given twice", field=field)
        chosen.append(path)
    return tuple(chosen)


def _physical_names(schema: StructType, is_mapped: bool) -> dict[ColumnPath, ColumnPath]:
    names = (path for path, _ in schema.leaves())
    return dict(zip(names, (path for path, _ in schema.leaves(physical=is_mapped)), strict=True))
