"""Commits made to a table since a transaction read it: the winners that `log.conflicts` checks it against.

The table is locked while they are read, so only what the conflict rules need is fetched. A blind append is checked
against a thousand commits without reading their files. A transaction that read with a condition is checked only against
files that the database cannot rule out.

`find_replaced` checks that the version a transaction began with still exists. After a restore, or a failover to a
standby that lacked the last commits, other commits may have taken the same version numbers. The transaction then read
data that is no longer in the table.

`find_expired` checks that no commit since was expired, or the transaction would not be checked against it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import TypeVar
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Table,
    Text,
    bindparam,
    cast,
    literal,
    or_,
    select,
    union_all,
)

from deltars.errors import VersionConflict
from deltars.log.commit import Commit, Conflict, VersionTaken
from deltars.log.conflicts import Added, Evidence, Reads, Removed, Winner
from deltars.log.key_set import KeySet
from deltars.log.pruning import Pruner
from deltars.predicate import conjunction
from deltars.store.backends import Backend, Prepared, Rows
from deltars.store.commit.plan import LockedTable
from deltars.store.commit.state_cache import KnownState
from deltars.store.read.file_conditions import File, as_sql, some_of
from deltars.store.read.pruning import translation_of
from deltars.store.read.version_header import first_version
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

MANY_COMMITS = 100
"""Below this number of commits, checking all their files here is faster than building a filter for the database."""

MANY_CONDITIONS = 16
"""Above this number of conditions no filter is sent: each costs one more comparison per file."""

_files = dl_add_files.c
_ADDED = (
    _files.version, _files.path, _files.dv_id, cast(_files.partition_values, Text), _files.stats, _files.data_change,
)  # fmt: skip

_METADATA, _PROTOCOL, _APP_ID, _DOMAIN = "metadata", "protocol", "app id", "domain"


class Winners:
    """Reader of the commits that other transactions made since this one began."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def since(
        self,
        connection: Connection,
        table_id: UUID,
        after: int,
        needed: Evidence,
        matching: ColumnElement[bool] | None = None,
    ) -> Iterator[Winner]:
        """Yield the commits of a table after a version, oldest first. Skip those the rules need nothing from.

        `matching` is a condition that is true for every added file that can conflict, but for files with a vector.
        """

        def rows(statement: Prepared) -> Rows:
            return self._backend.scan(connection, statement, {"table_id": str(table_id), "after": after})

        found: Rows = []
        if needed.adds and matching is None:
            found = rows(self._adds)
        elif needed.adds and matching is not None:
            # A file with another vector was changed. Without the added one it would count as removed.
            later = select(*_ADDED).where(
                _files.table_id == table_id, _files.version > after, or_(matching, _files.dv_id != "")
            )
            found = [tuple(row) for row in connection.execute(later)]
        elif needed.vectors:
            found = rows(self._vectors)
        added = _by_version(found, Added)
        removed = _by_version(rows(self._removes), Removed) if needed.removes else {}
        changed = _by_version(rows(self._changes), lambda kind, name: (kind, name))
        relevant = added.keys() | removed.keys() | changed.keys()
        for version, is_blind in rows(self._versions) if relevant else ():
            if version not in relevant:
                continue
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
        """Return the query for changes other than files, which most commits do not have."""
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
        return self._backend.prepare(select(*_ADDED).where(self._is_later(dl_add_files)))

    @cached_property
    def _vectors(self) -> Prepared:
        return self._backend.prepare(select(*_ADDED).where(self._is_later(dl_add_files), _files.dv_id != ""))

    @cached_property
    def _removes(self) -> Prepared:
        files = dl_remove_files.c
        columns = (files.version, files.path, files.dv_id, files.data_change)
        return self._backend.prepare(select(*columns).where(self._is_later(dl_remove_files)))

    def _is_later(self, table: Table) -> ColumnElement[bool]:
        table_id = self._backend.id_of(bindparam("table_id", type_=Text()))
        return (table.c.table_id == table_id) & (table.c.version > bindparam("after", type_=BigInteger()))


def files_read(
    reads: Reads, after: int, table: LockedTable, known: KnownState | None, backend: Backend
) -> ColumnElement[bool] | None:
    """Return a condition that is true for every file the transaction's reads match.

    Return None if the filter is not worth sending, or cannot be built.
    """
    metadata = known.state.metadata if known is not None else None
    if (
        table.current_version - after < MANY_COMMITS
        or reads.whole_table
        or not 0 < len(reads.predicates) + len(reads.rows) <= MANY_CONDITIONS
        or known is None
        or metadata is None
        # Bounds have the layout of the table's current metadata; older metadata would look in the wrong places.
        or not table.metadata_version <= after
        or not known.is_of(table.metadata_version, table.protocol_version, table.state_key)
    ):
        return None
    translation, conditions = translation_of(metadata), []
    for predicates in (*((predicate,) for predicate in reads.predicates), *(read.conditions for read in reads.rows)):
        ranges = [
            predicate.predicate
            for predicate in predicates
            if isinstance(predicate, Pruner | KeySet) and predicate.metadata == metadata
        ]
        if not ranges or len(ranges) < len(predicates):
            return None
        conditions.append(translation.condition(conjunction(ranges)))
    return as_sql(some_of(conditions), File(backend))


def find_replaced(connection: Connection, commit: Commit, row: LockedTable, version: int) -> VersionTaken | None:
    """Return the conflict with a replaced version; None if it was not replaced or the commit does not know its base."""
    base = commit.bases.get(row.table_id)
    if base is None or base.version != version or row.current_version < version:
        return None
    commit_ts: int | None = row.last_commit_ts
    if row.current_version != version:
        versions = dl_table_versions.c
        query = select(versions.commit_ts).where(versions.table_id == row.table_id, versions.version == version)
        commit_ts = connection.execute(query).scalar_one_or_none()
    if commit_ts == base.commit_ts:
        return None
    if commit_ts is None and (expired := find_expired(connection, row, version)) is not None:
        return expired
    reason = (
        f"version {version} of the table was replaced since this transaction began:"
        " the database was restored or failed over; nothing was changed"
    )
    conflict = Conflict(VersionConflict, version, reason)
    return VersionTaken(row.table_id, row.name, version, row.current_version, conflict)


def find_expired(connection: Connection, row: LockedTable, after: int) -> VersionTaken | None:
    """Return the conflict of a transaction whose version is expired by now, and perhaps commits after it.

    Call it after the commits were read: their rows are deleted only after the table's `first_version` is set.
    """
    kept_from = first_version(connection, row.table_id)
    if kept_from <= after:
        return None
    reason = (
        f"version {after} of the table was expired since this transaction began, so it cannot be checked against all"
        " commits since; nothing was changed"
    )
    conflict = Conflict(VersionConflict, kept_from, reason)
    return VersionTaken(row.table_id, row.name, after, row.current_version, conflict)


def _by_version(rows: Rows, make: Callable[..., T]) -> Mapping[int, list[T]]:
    found: dict[int, list[T]] = defaultdict(list)
    for version, *rest in rows:
        found[version].append(make(*rest))
    return found
