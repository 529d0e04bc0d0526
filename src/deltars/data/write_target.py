"""Input and output of the writers of data files.

WriteTarget  ──a frame is written──>  WrittenFile, …      invisible until their add actions are committed
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from deltars.log.commit import RowGroup
from deltars.protocol import AddFile, StructType, column_mapping
from deltars.protocol.column_mapping import value_names
from deltars.protocol.column_path import ColumnPath

TARGET_FILE_SIZE = 128 * 1024 * 1024
COMPRESSIONS = ("zstd", "snappy", "gzip", "lz4", "none")


@dataclass(frozen=True, slots=True)
class WriteTarget:
    """A table as seen by the writer of its data files. It can be pickled, because Spark's tasks receive it."""

    root: str
    schema: StructType
    partition_columns: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    target_file_size: int = TARGET_FILE_SIZE
    compression: str = "zstd"
    max_records_per_file: int | None = None
    max_files: int | None = None
    """Largest number of files that one write may create. More raise `TransactionTooLarge`."""
    is_change_data: bool = False
    """Whether the files belong to the change data feed, which has its own directory."""
    cluster_by: tuple[ColumnPath, ...] = ()
    """Columns by whose Z-order each write sorts its rows."""

    @property
    def is_mapped(self) -> bool:
        """Whether data files use physical column names, which differ from the schema's names."""
        return column_mapping(self.properties) != "none"

    def value_names(self) -> tuple[str, ...]:
        """Return the names of the partition columns in `partition_values` and in directories."""
        return value_names(self.schema, self.partition_columns, self.is_mapped)

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
            self.is_change_data,
            self.cluster_by,
        )


def _rebuild_target(root: str, schema: str, *rest: Any) -> WriteTarget:
    return WriteTarget(root, StructType.from_json(schema), *rest)


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A finished data file, with the action that adds it to the table."""

    add: AddFile
    row_groups: tuple[RowGroup, ...]
