"""A catalog and its log, with just enough around them to give a mirror something to publish."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from deltalake import DeltaTable
from sqlalchemy import delete, select, update

from deltars.log.commit import Commit, Committed, TableCommit
from deltars.log.new_table import NO_VERSION, NewTable
from deltars.protocol import Action, AddFile, Metadata, Protocol
from deltars.store.commit.writer import LogWriter
from deltars.store.database import Database
from deltars.store.mirror.status import MirrorState, MirrorStatusStore
from deltars.store.registry import Registry
from deltars.store.schema import dl_mirror_log, dl_mirror_status
from deltars.uri import parse_catalog_uri

TIMEOUT_S = 60.0

CREATE: tuple[Action, ...] = (
    Protocol(
        min_reader_version=1,
        min_writer_version=7,
        writer_features=["appendOnly", "invariants", "inCommitTimestamp", "deltars.sqlManaged"],
    ),
    Metadata(
        id="5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
        schema_string='{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}',
        configuration={"delta.enableInCommitTimestamps": "true"},
        created_time=0,
    ),
)


def added(path: str, **fields: Any) -> AddFile:
    required: dict[str, Any] = {
        "partition_values": {},
        "size": 1,
        "modification_time": 1,
        "data_change": True,
    }
    return AddFile(path=path, **(required | fields))


def version_names(count: int) -> list[str]:
    """The commits of a log with this many versions."""
    return [f"{version:020}.json" for version in range(count)]


class Ledger:
    def __init__(self, catalog_uri: str, warehouse: Path) -> None:
        self.database = Database(parse_catalog_uri(catalog_uri), pool_size=10, pool_timeout_s=TIMEOUT_S)
        self.registry = Registry(self.database, timeout_s=TIMEOUT_S)
        self.registry.set_warehouse(str(warehouse))
        self.warehouse = warehouse
        self._writer = LogWriter(self.database)

    def create_table(self, name: str, actions: Sequence[Action] = CREATE, *, location: str | None = None) -> UUID:
        """A table at its first version, 0."""
        table = NewTable(uuid4(), name, location or str(self.warehouse / name))
        part = TableCommit(table.table_id, NO_VERSION, actions, "CREATE TABLE")
        outcome = self._writer.commit(Commit(uuid4(), [part], new_tables=[table]), timeout_s=TIMEOUT_S)
        assert isinstance(outcome, Committed)
        return table.table_id

    def commit(self, tables: Mapping[UUID, Sequence[Action]]) -> Committed:
        """One transaction: the next version of each of these tables, however many others are committing."""
        while True:
            parts = []
            for table_id, actions in tables.items():
                record = self.registry.find(table_id)
                assert record is not None
                parts.append(TableCommit(table_id, record.current_version, actions, "WRITE", tolerate_missing=True))
            outcome = self._writer.commit(Commit(uuid4(), parts), timeout_s=TIMEOUT_S)
            if isinstance(outcome, Committed):
                return outcome

    def append(self, table_id: UUID, *paths: str) -> int:
        files = [added(path) for path in paths or (f"{uuid4()}.parquet",)]
        return self.commit({table_id: files}).versions[table_id]

    def set_status(self, table_id: UUID, **values: Any) -> None:
        with self.database.write(TIMEOUT_S) as connection:
            connection.execute(update(dl_mirror_status).where(dl_mirror_status.c.table_id == table_id).values(**values))

    @contextmanager
    def giving_lease_back(self, table_id: UUID) -> Iterator[None]:
        """Inside, the transaction that gives the lease back has not committed yet."""
        row = update(dl_mirror_status).where(dl_mirror_status.c.table_id == table_id)
        with self.database.write(TIMEOUT_S) as connection:
            connection.execute(row.values(lease_owner=None, lease_until=None))
            yield

    def forget_publication(self, table_id: UUID) -> None:
        """As if the process had died after putting the files and before telling the catalog."""
        self.set_status(table_id, published_version=NO_VERSION)
        with self.database.write(TIMEOUT_S) as connection:
            connection.execute(delete(dl_mirror_log).where(dl_mirror_log.c.table_id == table_id))

    def mirror_log(self, table_id: UUID) -> list[tuple[int, str]]:
        """Versions and digests, in the order in which they were published."""
        log = dl_mirror_log.c
        entries = select(log.version, log.digest).where(log.table_id == table_id)
        with self.database.read() as connection:
            rows = connection.execute(entries.order_by(log.published_at, log.version))
            return [(row.version, row.digest) for row in rows]

    def version_file(self, name: str, version: int) -> Path:
        return self.warehouse / name / "_delta_log" / f"{version:020}.json"

    def log_of(self, name: str) -> list[str]:
        """The commits in a table's `_delta_log`."""
        return self.files_of(name, "*.json")

    def files_of(self, name: str, pattern: str = "*") -> list[str]:
        return sorted(path.name for path in (self.warehouse / name / "_delta_log").glob(pattern))


def check_log(ledger: Ledger, table: UUID, name: str = "t") -> int:
    """Every version is there once, with its digest, and nothing diverged; how many there are."""
    status = MirrorStatusStore(ledger.database).read(table)
    count = status.current_version + 1
    assert (status.published_version, status.state) == (count - 1, MirrorState.ACTIVE)
    assert ledger.log_of(name) == version_names(count)
    digests = {v: sha256(ledger.version_file(name, v).read_bytes()).hexdigest() for v in range(count)}
    assert dict(ledger.mirror_log(table)) == digests
    assert len(ledger.mirror_log(table)) == count
    assert DeltaTable(ledger.warehouse / name).version() == count - 1
    return count
