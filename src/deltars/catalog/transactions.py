"""Description of one committed transaction: which tables it wrote, and what it did to each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from deltars.errors import TransactionNotFound
from deltars.log.bounds import known_num_records
from deltars.log.moments import from_microseconds
from deltars.log.stages import with_publication
from deltars.log.transaction_id import TxnId, as_txn_id
from deltars.protocol import AddFile, Metadata, Protocol, RemoveFile
from deltars.session import CatalogSession
from deltars.store.read.activity import Activity
from deltars.store.read.committed_versions import CommittedTransaction, CommittedVersion


@dataclass(frozen=True, slots=True)
class TableCommitDetail:
    """What a transaction did to one of its tables."""

    table: str
    table_id: UUID
    version: int
    operation: str
    files_added: int
    files_removed: int
    bytes_added: int
    records_added: int | None
    """None if a file has no statistics that count its rows."""
    changes_metadata: bool
    """Whether the schema, the properties or the protocol changed."""


@dataclass(frozen=True, slots=True)
class TransactionDetail:
    """A committed transaction."""

    txn_id: UUID
    committed_at: datetime
    """Time that snapshots of the past go by (`commit_ts`)."""
    committer: str | None
    user_metadata: str | None
    isolation: str | None
    tables: tuple[TableCommitDetail, ...]
    """Tables whose version of this transaction the catalog still has."""
    expired: Mapping[str, int] = field(default_factory=dict)
    """Versions that it also made and that are expired, by the table's name, or by its id if the table was purged."""
    stages: Mapping[str, float] = field(default_factory=dict)
    """Seconds of each stage, where that was recorded: those until `committed_at`, and `publish` from then on."""


def transaction_detail(session: CatalogSession, txn_id: TxnId) -> TransactionDetail:
    found = session.reader.transaction(txn_id)
    if found is None:
        raise TransactionNotFound(
            txn_id=as_txn_id(txn_id),
            hint="`deltars history TABLE` and table.history() list the ids of committed transactions.",
        )
    names = session.registry.names(found.tables)
    tables = sorted((_of_table(names[key], version) for key, version in found.tables.items()), key=lambda d: d.table)
    isolation = next((version.isolation for version in found.tables.values()), None)
    committed_at = from_microseconds(found.commit_ts)
    return TransactionDetail(
        found.txn_id,
        committed_at,
        found.committer,
        found.user_metadata,
        isolation,
        tuple(tables),
        _expired(session, found),
        with_publication(found.stages, found.commit_ts, Activity(session.database).published_at(found.txn_id)),
    )


def _expired(session: CatalogSession, transaction: CommittedTransaction) -> dict[str, int]:
    missing = {UUID(key): at for key, at in transaction.participants.items() if UUID(key) not in transaction.tables}
    names = session.registry.names(missing)
    return {
        names.get(table_id, str(table_id)): version
        for table_id, version in missing.items()
        if table_id not in names or session.reader.is_expired(table_id, version)
    }


def _of_table(name: str, version: CommittedVersion) -> TableCommitDetail:
    adds = [action for action in version.actions if isinstance(action, AddFile)]
    counts = [known_num_records(add.stats) for add in adds]
    known = [count for count in counts if count is not None]
    return TableCommitDetail(
        table=name,
        table_id=version.table_id,
        version=version.version,
        operation=version.operation,
        files_added=len(adds),
        files_removed=sum(isinstance(action, RemoveFile) for action in version.actions),
        bytes_added=sum(add.size for add in adds),
        records_added=sum(known) if len(known) == len(counts) else None,
        changes_metadata=any(isinstance(action, Metadata | Protocol) for action in version.actions),
    )
