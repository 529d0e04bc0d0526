"""The files of one version of a table, with everything that is needed to read their rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import msgspec
import pyarrow as pa

from deltars.errors import StorageError, ValidationError
from deltars.log.snapshot import Snapshot, file_schema
from deltars.predicate import Predicate
from deltars.protocol import AddFile, ColumnMapping, Metadata, StructField, StructType, as_names, column_mapping
from deltars.protocol.column_mapping import value_names
from deltars.storage import parse_location
from deltars.verbs_to_come import RefusesVerbs

SCAN_COLUMNS = ("path", "size", "modification_time", "partition_values", "deletion_vector")


@dataclass(frozen=True)
class Scan(RefusesVerbs):
    """The files of one version of a table, and how to read them."""

    root: str
    schema: StructType
    partition_columns: tuple[str, ...]
    source: pa.Table | Callable[[], pa.Table] = field(repr=False)
    """The files, or a function that fetches them. A cached frame needs no files, so they are fetched on first use."""
    table: str
    version: int
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    column_mapping: ColumnMapping = "none"
    identity: Hashable = None
    """Scans with equal identities have the same files. None equals no other scan."""
    condition: Predicate | None = field(default=None, repr=False)
    """The condition that selected the files, if known. A reader may leave out rows that do not match it."""
    hidden_columns: tuple[str, ...] = ()
    """The last columns of `schema`, if they are those of row tracking (`data.row_ids`)."""

    @cached_property
    def files(self) -> pa.Table:
        """The files, with the columns SCAN_COLUMNS.

        `path` has the log's form. `partition_values` and `deletion_vector` are the log's JSON, or null.
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
        condition: Predicate | None = None,
    ) -> Scan:
        """Return a scan of these files with the table's metadata at that version."""
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
            condition=condition,
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
        """Return a scan of the files of a snapshot that may hold a matching row. They are fetched on first use."""
        return cls.of(
            snapshot.metadata,
            lambda: snapshot.select_files(columns=SCAN_COLUMNS, where=where),
            root=root,
            table=table,
            version=snapshot.version,
            storage_options=storage_options,
            # A restored database can have another commit under the same version number, so the commit is included. The
            # condition is included as its repr, because Python considers some different literals equal (1 and True).
            identity=(catalog, snapshot.table_id, snapshot.version, snapshot.commit, root, repr(where)),
            condition=where,
        )

    @property
    def table_schema(self) -> StructType:
        """The table's schema, without hidden columns."""
        return StructType(tuple(field for field in self.schema.fields if field.name not in self.hidden_columns))

    def select(self, columns: Sequence[str] | None) -> list[StructField]:
        """Return the named columns in the given order, or all of them for None. Names ignore case.

        Raise ValidationError for an unknown or a duplicate name.
        """
        if columns is None:
            return list(self.schema.fields)
        known = {column.name.lower(): column for column in self.schema.fields}
        selected: dict[str, StructField] = {}
        for name in as_names(columns):
            column = known.get(name.lower())
            if column is None:
                names = ", ".join(self.schema.names)
                raise ValidationError(
                    f"there is no column {name!r}; the columns are {names}",
                    field="columns",
                    table=self.table,
                    hint="Give a list of names.",
                )
            if column.name in selected:
                raise ValidationError(f"duplicate column {column.name!r} in columns", field="columns", table=self.table)
            selected[column.name] = column
        return list(selected.values())

    def value_names(self) -> tuple[str, ...]:
        """Return the names of the partition columns in `partition_values` and in the directories of data files."""
        return value_names(self.schema, self.partition_columns, self.column_mapping != "none")


def files_of(adds: Sequence[AddFile]) -> pa.Table:
    """Return files that actions add, with the columns SCAN_COLUMNS."""

    def text(value: object) -> str | None:
        return None if value is None else msgspec.json.encode(value).decode()

    rows = [
        (add.path, add.size, add.modification_time, text(add.partition_values), text(add.deletion_vector))
        for add in adds
    ]
    return pa.Table.from_pylist([dict(zip(SCAN_COLUMNS, row, strict=True)) for row in rows], file_schema(SCAN_COLUMNS))


def refuse_no_columns(scan: Scan, columns: Sequence[str] | None) -> None:
    """Raise for an empty list of columns: a frame without columns has lost the number of its rows."""
    if columns is not None and not as_names(columns):
        raise ValidationError(
            "columns is empty",
            field="columns",
            table=scan.table,
            hint="Omit it for all columns. To count rows, use table.count().",
        )


def missing_file(scan: Scan, uri: str) -> StorageError:
    """Return the error for a missing data file, or for a missing table directory."""
    place = parse_location(scan.root)
    if place.is_local and not os.path.isdir(place.path):
        return StorageError(
            f"the table's directory {place} is gone",
            path=uri,
            table=scan.table,
            version=scan.version,
            hint="It was moved or deleted. Restore it, or remove the table from the catalog with drop_table().",
        )
    return StorageError(
        f"the data file {uri} is missing, and version {scan.version} needs it",
        path=uri,
        table=scan.table,
        version=scan.version,
        hint="It was deleted by hand, or by VACUUM after a newer version replaced it. Read a newer version.",
    )
