"""What others committed to a table since it was read: the winners that `log.conflicts` judges.

Only what the rules will ask for is looked up: a blind append is held against a thousand commits without their files.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Table, select

from deltars.log.conflicts import Added, Evidence, Removed, Winner
from deltars.store.schema import (
    dl_add_files,
    dl_domain_metadata,
    dl_metadata_updates,
    dl_protocol_updates,
    dl_remove_files,
    dl_table_versions,
    dl_txn_actions,
)


def winners(connection: Connection, table_id: UUID, after: int, needed: Evidence) -> Iterator[Winner]:
    """The commits of a table after a version, oldest first."""
    adds, removes = dl_add_files.c, dl_remove_files.c
    found = _Commits(connection, table_id, after)
    metadata = found.by_version(dl_metadata_updates)
    protocol = found.by_version(dl_protocol_updates)
    app_ids = found.by_version(dl_txn_actions, dl_txn_actions.c.app_id)
    domains = found.by_version(dl_domain_metadata, dl_domain_metadata.c.domain)
    added = (
        found.by_version(dl_add_files, adds.path, adds.dv_id, adds.partition_values, adds.stats, adds.data_change)
        if needed.adds
        else {}
    )
    removed = (
        found.by_version(dl_remove_files, removes.path, removes.dv_id, removes.data_change) if needed.removes else {}
    )
    for version, is_blind in found.versions():
        yield Winner(
            version,
            [Added(*row[1:]) for row in added.get(version, ())],
            [Removed(*row[1:]) for row in removed.get(version, ())],
            metadata_changed=version in metadata,
            protocol_changed=version in protocol,
            app_ids=frozenset(row[1] for row in app_ids.get(version, ())),
            domains=frozenset(row[1] for row in domains.get(version, ())),
            is_blind_append=bool(is_blind),
        )


class _Commits:
    def __init__(self, connection: Connection, table_id: UUID, after: int) -> None:
        self._connection = connection
        self._table_id = table_id
        self._after = after

    def versions(self) -> Iterator[tuple[int, bool | None]]:
        versions = dl_table_versions.c
        query = select(versions.version, versions.is_blind_append).where(self._since(dl_table_versions))
        for row in self._connection.execute(query.order_by(versions.version)):
            yield row[0], row[1]

    def by_version(self, table: Table, *columns: ColumnElement[Any]) -> dict[int, list[tuple[Any, ...]]]:
        query = select(table.c.version, *columns).where(self._since(table))
        found: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
        for row in self._connection.execute(query):
            found[row[0]].append(tuple(row))
        return found

    def _since(self, table: Table) -> ColumnElement[bool]:
        return (table.c.table_id == self._table_id) & (table.c.version > self._after)
