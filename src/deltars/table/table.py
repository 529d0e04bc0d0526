"""A table, as a user holds it: what it is, how it came to be, and its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast
from uuid import UUID

from deltars.data.files import ColumnMapping, Scan
from deltars.log.snapshot import HistoryEntry, Snapshot
from deltars.protocol import StructType
from deltars.store.registry import TableRecord
from deltars.table.arrow_rows import ArrowRows, as_html
from deltars.transaction.engine import Engine
from deltars.transaction.plane import spark_plane

COLUMN_MAPPING = "delta.columnMapping.mode"


class Table(ArrowRows):
    """Identity is the table's id: the name may change, the version does."""

    def __init__(self, engine: Engine, record: TableRecord) -> None:
        self._engine = engine
        self._record = record

    @property
    def id(self) -> UUID:
        return self._record.table_id

    @property
    def name(self) -> str:
        return self._record.name

    @property
    def location(self) -> str:
        return self._record.location

    @property
    def record(self) -> TableRecord:
        """The table's row in the registry, as it was when this object was made."""
        return self._record

    @property
    def properties(self) -> Mapping[str, str]:
        """As they were when this object was made."""
        return dict(self._record.properties)

    @property
    def version(self) -> int:
        """The current version, asked anew each time; −1 before the first commit."""
        return self._engine.reader.current_version(self.id)

    @property
    def schema(self) -> StructType:
        return self.snapshot().schema

    def snapshot(self, version: int | None = None) -> Snapshot:
        return self._engine.reader.snapshot(self.id, version)

    def history(self, limit: int | None = None) -> list[HistoryEntry]:
        """The commits, newest first."""
        return self._engine.reader.history(self.id, limit=limit)

    def read(self, spark: Any = None, *, version: int | None = None) -> Any:
        """The rows at a version, by default the current one, as a Spark DataFrame (of the active session)."""
        return spark_plane().read(spark, self.scan(version))

    def scan(self, version: int | None = None) -> Scan:
        """The files of a version, by default the current one, and what is needed to read them."""
        snapshot = self.snapshot(version)
        mapping = snapshot.metadata.configuration.get(COLUMN_MAPPING, "none").lower()
        return Scan(
            root=self.location,
            schema=snapshot.schema,
            partition_columns=tuple(snapshot.metadata.partition_columns),
            files=snapshot.files,
            table=self.name,
            version=snapshot.version,
            storage_options=self._engine.settings.storage_options,
            column_mapping=cast(ColumnMapping, mapping),
        )

    def _repr_html_(self) -> str:
        return as_html(f"{self.name}, version {self.version}, at {self.location}", self.head())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and other.id == self.id and other._engine.uri == self._engine.uri

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<Table {self.name} of {self._engine.uri} at {self.location}>"

    def __reduce__(self) -> tuple[Callable[..., Table], tuple[Engine, TableRecord]]:
        return Table, (self._engine, self._record)
