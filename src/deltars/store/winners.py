"""What others committed to a table since it was read: the winners that `log.conflicts` judges.

Only what the rules will ask for is looked up: a blind append is held against a thousand commits without their files.
All of it comes by the driver's own cursor, because the table is locked meanwhile.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import TypeVar
from uuid import UUID

from sqlalchemy import BigInteger, ColumnElement, Connection, Table, Text, bindparam, cast, literal, select, union_all

from deltars.log.conflicts import Added, Evidence, Removed, Winner
from deltars.store.backends import Backend, Prepared, Rows
from deltars.store.schema import (
    dl_add_files,
    dl_domain_metadata,
    dl_metadata_updates,
    dl_protocol_updates,
    dl_remove_files,
    dl_table_versions,
    dl_txn_actions,
)

T = TypeVar("T")

_METADATA, _PROTOCOL, _APP_ID, _DOMAIN = "metadata", "protocol", "app id", "domain"


class Winners:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def since(self, connection: Connection, table_id: UUID, after: int, needed: Evidence) -> Iterator[Winner]:
        """The commits of a table after a version, oldest first."""

        def rows(statement: Prepared) -> Rows:
            return self._backend.scan(connection, statement, {"table_id": str(table_id), "after": after})

        added = _by_version(rows(self._adds), Added) if needed.adds else {}
        removed = _by_version(rows(self._removes), Removed) if needed.removes else {}
        changed = _by_version(rows(self._changes), lambda kind, name: (kind, name))
        for version, is_blind in rows(self._versions):
            changes = changed.get(version, ())
            yield Winner(
                version,
                added.get(version, ()),
                removed.get(version, ()),
                metadata_changed=(_METADATA, None) in changes,
                protocol_changed=(_PROTOCOL, None) in changes,
                app_ids=frozenset(name for kind, name in changes if kind == _APP_ID),
                domains=frozenset(name for kind, name in changes if kind == _DOMAIN),
                is_blind_append=bool(is_blind),
            )

    @cached_property
    def _versions(self) -> Prepared:
        versions = dl_table_versions.c
        query = select(versions.version, versions.is_blind_append).where(self._is_later(dl_table_versions))
        return self._backend.prepare(query.order_by(versions.version))

    @cached_property
    def _changes(self) -> Prepared:
        """What changed besides files: most commits have nothing of it."""
        kinds = (
            (dl_metadata_updates, _METADATA, None),
            (dl_protocol_updates, _PROTOCOL, None),
            (dl_txn_actions, _APP_ID, dl_txn_actions.c.app_id),
            (dl_domain_metadata, _DOMAIN, dl_domain_metadata.c.domain),
        )
        found = (
            select(table.c.version, literal(kind, Text), cast(name, Text)).where(self._is_later(table))
            for table, kind, name in kinds
        )
        return self._backend.prepare(union_all(*found))

    @cached_property
    def _adds(self) -> Prepared:
        files = dl_add_files.c
        columns = (files.version, files.path, files.dv_id, cast(files.partition_values, Text), files.stats)
        return self._backend.prepare(select(*columns, files.data_change).where(self._is_later(dl_add_files)))

    @cached_property
    def _removes(self) -> Prepared:
        files = dl_remove_files.c
        columns = (files.version, files.path, files.dv_id, files.data_change)
        return self._backend.prepare(select(*columns).where(self._is_later(dl_remove_files)))

    def _is_later(self, table: Table) -> ColumnElement[bool]:
        table_id = self._backend.id_of(bindparam("table_id", type_=Text()))
        return (table.c.table_id == table_id) & (table.c.version > bindparam("after", type_=BigInteger()))


def _by_version(rows: Rows, make: Callable[..., T]) -> Mapping[int, list[T]]:
    found: dict[int, list[T]] = defaultdict(list)
    for version, *rest in rows:
        found[version].append(make(*rest))
    return found
