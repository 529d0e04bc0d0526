"""Cache of table states between commits: metadata, protocol, and the layout of file bounds.

History never changes. So a cached state is valid while the locked row names the same metadata and protocol versions and
the same commit that wrote them: a restored database may have other commits under the same version numbers.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection, and_, select

from deltars.log.bounds import Bounds
from deltars.log.commit import TableState
from deltars.log.new_table import NO_VERSION
from deltars.protocol import Metadata, Protocol, StructType
from deltars.remembered import Remembered
from deltars.store.backends import Backend
from deltars.store.commit.statements import state_key
from deltars.store.imports.table_hold import HELD, refuse_held
from deltars.store.rows import from_row
from deltars.store.schema import dl_metadata_updates, dl_protocol_updates, dl_tables

MAX_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class KnownState:
    """Cached state of a table, and the versions that last changed its metadata and its protocol."""

    metadata_version: int
    protocol_version: int
    state: TableState
    bounds: Bounds
    key: str | None = None
    """Commit that last changed metadata or protocol (`statements.state_key`); None if it is not committed yet."""

    def is_of(self, metadata_version: int, protocol_version: int, key: str | None) -> bool:
        """Return whether this is the state that a table's row refers to."""
        same = (self.metadata_version, self.protocol_version) == (metadata_version, protocol_version)
        return same and key is not None and self.key == key


UNCOMMITTED = KnownState(NO_VERSION, NO_VERSION, TableState(), Bounds(StructType()))
"""State of a table before its version 0."""


class StateCache:
    def __init__(self) -> None:
        self._known = Remembered[UUID, KnownState](MAX_REMEMBERED)

    def get(self, table_id: UUID) -> KnownState | None:
        return self._known.get(table_id)

    def load(self, connection: Connection, backend: Backend, table_ids: Collection[UUID]) -> None:
        for table_id in table_ids:
            state = _load(connection, backend, table_id)
            if state is not None:
                self.remember(table_id, state)

    def remember(self, table_id: UUID, state: KnownState) -> None:
        self._known[table_id] = state


def known_state(
    metadata_version: int, metadata: Metadata, protocol_version: int, protocol: Protocol, key: str | None = None
) -> KnownState:
    bounds = Bounds(metadata.schema, metadata.partition_columns, metadata.configuration)
    return KnownState(metadata_version, protocol_version, TableState(metadata, protocol), bounds, key)


def _load(connection: Connection, backend: Backend, table_id: UUID) -> KnownState | None:
    columns = (dl_tables.c.metadata_version, dl_tables.c.protocol_version, state_key(backend))
    table_row = connection.execute(select(*columns).where(dl_tables.c.table_id == table_id)).one_or_none()
    if table_row is None:
        return None
    *versions, key = table_row
    if table_row.protocol_version == HELD:
        refuse_held(connection, table_id)
    found = []
    for table, version in zip((dl_metadata_updates, dl_protocol_updates), versions, strict=True):
        query = select(table).where(and_(table.c.table_id == table_id, table.c.version == version))
        row = connection.execute(query).mappings().one_or_none()
        found.append(None if row is None else from_row(table.name, row))
    metadata, protocol = found
    if not isinstance(metadata, Metadata) or not isinstance(protocol, Protocol):
        return UNCOMMITTED
    return known_state(versions[0], metadata, versions[1], protocol, key)
