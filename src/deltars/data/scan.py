"""What passes between a transaction and the planes that move its rows.

WriteTarget  ──a frame is written──>  WrittenFile, …      invisible until their add actions are committed
Scan         ──files are read──────>  a frame
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from deltars.log.commit import RowGroup
from deltars.log.snapshot import Snapshot
from deltars.predicate import Predicate
from deltars.protocol import AddFile, ColumnMapping, Metadata, StructType, column_mapping

SCAN_COLUMNS = ("path", "size", "modification_time", "partition_values", "deletion_vector")
TARGET_FILE_SIZE = 128 * 1024 * 1024
COMPRESSIONS = ("zstd", "snappy", "gzip", "lz4", "none")


@dataclass(frozen=True, slots=True)
class WriteTarget:
    """A table as the writer of its data files sees it. Pickles: Spark's tasks get one."""

    root: str
    schema: StructType
    partition_columns: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    target_file_size: int = TARGET_FILE_SIZE
    compression: str = "zstd"
    max_records_per_file: int | None = None
    max_files: int | None = None
    """How many files one write may make; one more is `TransactionTooLarge`."""

    @property
    def is_mapped(self) -> bool:
        """Whether data files have other names for the columns than the schema: physical ones."""
        return column_mapping(self.properties) != "none"

    def value_names(self) -> tuple[str, ...]:
        """The partition columns as `partition_values` and directories name them."""
        return _value_names(self.schema, self.partition_columns, self.is_mapped)

    def with_options(self, **options: Any) -> WriteTarget:
        return replace(self, **options)

    def __reduce__(self) -> tuple[Callable[..., WriteTarget], tuple[Any, ...]]:
        return _rebuild_target, (
            self.root,
            self.schema.to_json(),
            self.partition_columns,
            dict(self.properties),
            dict(self.storage_options),
            self.target_file_size,
            self.compression,
            self.max_records_per_file,
            self.max_files,
        )


def _rebuild_target(root: str, schema: str, *rest: Any) -> WriteTarget:
    return WriteTarget(root, StructType.from_json(schema), *rest)


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A data file that is complete, and the action that would make it part of the table."""

    add: AddFile
    row_groups: tuple[RowGroup, ...]


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
        return _value_names(self.schema, self.partition_columns, self.column_mapping != "none")


def _value_names(schema: StructType, columns: tuple[str, ...], is_mapped: bool) -> tuple[str, ...]:
    return tuple(schema[name].physical_name for name in columns) if is_mapped else columns
