"""One table's log in a catalog of the test's own: what a test of the writer starts from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID, uuid4

import pyarrow as pa

import deltars
from deltars.log.commit import Commit, Committed, RowGroup, TableCommit
from deltars.protocol import (
    Action,
    AddFile,
    CdcFile,
    DeletionVector,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    Txn,
    protocol_of,
    schema_from_ddl,
)
from tests.support import witness
from tests.support.dump import Dump, dump

FEATURES = (
    "appendOnly",
    "invariants",
    "inCommitTimestamp",
    "deltars.sqlManaged",
    "changeDataFeed",
    "deletionVectors",
    "domainMetadata",
    "rowTracking",
)
"""Whatever an action of these tests may need."""

SCHEMA = "id BIGINT, name STRING"


def added(path: str, **fields: Any) -> AddFile:
    values: dict[str, Any] = {"partition_values": {}, "size": 10, "modification_time": 1_000, "data_change": True}
    return AddFile(path=path, **(values | fields))


def removed(path: str, **fields: Any) -> RemoveFile:
    values: dict[str, Any] = {"data_change": True, "deletion_timestamp": 2_000}
    return RemoveFile(path=path, **(values | fields))


def vector(offset: int | None = 1, **fields: Any) -> DeletionVector:
    values: dict[str, Any] = {"storage_type": "u", "path_or_inline_dv": "ab^-aqEH.-t@S}K{vb[*k^"}
    return DeletionVector(offset=offset, **(values | {"size_in_bytes": 40, "cardinality": 6} | fields))


def stats(num_records: int = 1) -> str:
    return f'{{"numRecords":{num_records}}}'


def row_groups(path: str, count: int = 2) -> list[RowGroup]:
    return [RowGroup(path, ordinal, 5, 100, 4 + ordinal, stats(5)) for ordinal in range(count)]


def metadata(ddl: str = SCHEMA, **fields: Any) -> Metadata:
    values: dict[str, Any] = {"id": "0e3e7b8c", "schema_string": schema_from_ddl(ddl).to_json(), "created_time": 0}
    return Metadata(**(values | fields))


def protocol(features: Iterable[str] = FEATURES) -> Protocol:
    return protocol_of(features)


def creation(ddl: str = SCHEMA, *, features: Iterable[str] = FEATURES, **fields: Any) -> list[Action]:
    """The actions of a version 0."""
    return [protocol(features), metadata(ddl, **fields)]


def every_kind(number: int, *, gone: Sequence[str] = (), files: int = 2) -> list[Action]:
    """A commit with all there is: files added and removed, change data, metadata, protocol, progress, a domain."""
    return [
        metadata(description=f"commit {number}"),
        protocol((*FEATURES, "checkConstraints")),
        Txn(app_id="stream", version=number, last_updated=number),
        DomainMetadata(domain="test.domain", configuration=f'{{"n":{number}}}', removed=False),
        CdcFile(path=f"_change_data/{number}.parquet", partition_values={}, size=5),
        *(added(f"{number}-{i}.parquet", stats=stats()) for i in range(files)),
        *(removed(path) for path in gone),
    ]


class Log:
    """A registered table, and the writer that commits to it."""

    def __init__(self, catalog: deltars.Catalog, direct_uri: str, name: str = "events") -> None:
        self.catalog = catalog
        self.uri = direct_uri
        self.name = name
        assert catalog.warehouse is not None
        self.table_id: UUID = catalog.register_table(name, f"{catalog.warehouse}/{name}").id
        self.writer = deltars.SqlTxnLogWriter(catalog)

    def create(self, ddl: str = SCHEMA, **fields: Any) -> Log:
        """Commit version 0."""
        self.commit(creation(ddl, **fields), version=0)
        return self

    @property
    def version(self) -> int:
        version: int = self.one("SELECT current_version FROM dl_tables WHERE table_id = ?")
        return version

    def commit(
        self, actions: Sequence[Action] | pa.Table, version: int | None = None, **options: Any
    ) -> deltars.CommitResult:
        """Commit the next version, or the one named."""
        at = self.version + 1 if version is None else version
        return self.writer.commit(self.table_id, at, actions, **({"operation": "WRITE"} | options))

    def commit_data(self, actions: Sequence[Action] = (), version: int | None = None, **fields: Any) -> Committed:
        """A commit as data, with what the writer's own interface does not take: row groups, columns, tolerance."""
        before = self.version if version is None else version - 1
        table = TableCommit(self.table_id, before, actions, "WRITE", **fields)
        return self.catalog._session.commit(Commit(uuid4(), [table]))

    def append(self, *paths: str, **options: Any) -> deltars.CommitResult:
        return self.commit([added(path) for path in paths or (f"{uuid4()}.parquet",)], **options)

    def live(self) -> list[str]:
        """The paths of the live files, one for each row that says so."""
        query = "SELECT path FROM dl_add_files WHERE table_id = ? AND removed_version IS NULL ORDER BY path"
        return [path for (path,) in self.rows(query)]

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Raw SQL over a connection of its own; `?` is the table's id."""
        return witness.rows(self.uri, query, [str(self.table_id)] * query.count("?"))

    def one(self, query: str) -> Any:
        [[value]] = self.rows(query)
        return value

    def dump(self) -> Dump:
        """The whole database: every row of every table."""
        return dump(self.uri)
