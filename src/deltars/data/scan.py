"""The files of one version of a table, as whoever reads their rows needs them."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa

from deltars.errors import StorageError
from deltars.log.snapshot import Snapshot
from deltars.predicate import Predicate
from deltars.protocol import ColumnMapping, Metadata, StructType, column_mapping
from deltars.protocol.column_mapping import value_names
from deltars.storage import parse_location

SCAN_COLUMNS = ("path", "size", "modification_time", "partition_values", "deletion_vector")


@dataclass(frozen=True)
class Scan:
    """The files of one version of a table."""

    root: str
    schema: StructType
    partition_columns: tuple[str, ...]
    source: pa.Table | Callable[[], pa.Table] = field(repr=False)
    """The files, or how to get them: who knows them already need not fetch them."""
    table: str
    version: int
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    column_mapping: ColumnMapping = "none"
    identity: Hashable = None
    """Scans with the same one have the same files; None says nothing."""

    @cached_property
    def files(self) -> pa.Table:
        """The columns SCAN_COLUMNS: `path` (the log's form), `size`, `modification_time` and, as the log's JSON or
        null, `partition_values` and `deletion_vector`.
        """
        return self.source() if callable(self.source) else self.source

    @classmethod
    def of(
        cls,
        metadata: Metadata,
        source: pa.Table | Callable[[], pa.Table],
        *,
        root: str,
        table: str,
        version: int,
        storage_options: Mapping[str, str],
        identity: Hashable = None,
    ) -> Scan:
        """These files, as the table's metadata at that version says to read them."""
        return cls(
            root=root,
            schema=metadata.schema,
            partition_columns=tuple(metadata.partition_columns),
            source=source if callable(source) else source.select(SCAN_COLUMNS),
            table=table,
            version=version,
            storage_options=storage_options,
            column_mapping=column_mapping(metadata.configuration),
            identity=identity,
        )

    @classmethod
    def of_snapshot(
        cls,
        snapshot: Snapshot,
        where: Predicate | None,
        *,
        catalog: str,
        root: str,
        table: str,
        storage_options: Mapping[str, str],
    ) -> Scan:
        """The files of a snapshot that can hold a matching row, fetched when they are asked for."""
        return cls.of(
            snapshot.metadata,
            lambda: snapshot.select_files(columns=SCAN_COLUMNS, where=where),
            root=root,
            table=table,
            version=snapshot.version,
            storage_options=storage_options,
            # The commit tells versions apart that have one number because the database was set back in between; the
            # condition's text tells literals apart that are equal to Python, as 1 and True are.
            identity=(catalog, snapshot.table_id, snapshot.version, snapshot.commit, root, repr(where)),
        )

    def value_names(self) -> tuple[str, ...]:
        """The partition columns as `partition_values` and the directories of data files name them."""
        return value_names(self.schema, self.partition_columns, self.column_mapping != "none")


def missing_file(scan: Scan, uri: str) -> StorageError:
    """What to say of a data file that is not there; and where the whole table is not, what to say of that."""
    place = parse_location(scan.root)
    if place.is_local and not os.path.isdir(place.path):
        return StorageError(
            f"the table's directory {place} is gone",
            path=uri,
            table=scan.table,
            version=scan.version,
            hint="It was moved or deleted: put it back, or take the table out of the catalog with drop_table().",
        )
    return StorageError(
        f"the data file {uri} is missing, and version {scan.version} needs it",
        path=uri,
        table=scan.table,
        version=scan.version,
        hint="It was deleted by hand, or by a vacuum after the version was replaced: read a newer one.",
    )
