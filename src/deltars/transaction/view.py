"""View of a transaction: every table as of its beginning, with its staged changes.

snapshot ── table at its version ──┐
                                   ├──▶ StagedTable ──▶ files, rows, progress of applications; remembered as read
staged so far ─────────────────────┘

Threads share a view. It is changed under the transaction's lock; the database is queried outside the lock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property, partial
from uuid import UUID, uuid4

import pyarrow as pa

from deltars.data.reader import RowFilter
from deltars.data.scan import Scan
from deltars.data.write_target import WriteTarget
from deltars.errors import TableNotFound, ValidationError
from deltars.log.arrow_adds import file_keys
from deltars.log.commit import Base, TableRead
from deltars.log.key_set import KeySet
from deltars.log.new_table import NO_VERSION, NewTable
from deltars.log.pruning import Pruner
from deltars.log.read_set import FileKey, RowRead
from deltars.log.snapshot import Snapshot, Totals
from deltars.predicate import Predicate, conjunction
from deltars.protocol import DomainMetadata, Metadata, StructType
from deltars.protocol.clustering import CLUSTERING_FEATURE
from deltars.session import CatalogSession, TableLike, path_in_name
from deltars.store.names import name_key
from deltars.store.read.cuts import CutTable
from deltars.transaction.create_table import initial_actions, is_same_place, location_of
from deltars.transaction.definition import Definition
from deltars.transaction.lifetime import Lifetime
from deltars.transaction.read_log import ReadLog
from deltars.transaction.staged_table import StagedTable


class View:
    """Tables as one transaction sees them. Its snapshot is taken when the view is made."""

    def __init__(self, session: CatalogSession, lifetime: Lifetime) -> None:
        self.session = session
        self.txn_id = lifetime.txn_id
        self._lifetime = lifetime
        self._cut = session.cuts.now()
        self._begun: dict[UUID, StagedTable] = {}
        self._new: dict[str, NewTable] = {}
        self._tables: dict[UUID, StagedTable] = {}
        self._dropped: dict[UUID, StagedTable] = {}
        self._snapshots: dict[UUID, Snapshot] = {}
        self._reads = ReadLog()

    # -- tables ----------------------------------------------------------------------------------------------------

    @property
    def changed(self) -> list[StagedTable]:
        with self._lifetime.lock:
            return [table for table in self._tables.values() if table.is_changed]

    @property
    def reads(self) -> Mapping[UUID, TableRead]:
        with self._lifetime.lock:
            return self._reads.by_table()

    @property
    def dropped(self) -> list[StagedTable]:
        with self._lifetime.lock:
            return list(self._dropped.values())

    @property
    def bases(self) -> Mapping[UUID, Base]:
        """Versions, at the beginning, of the tables that were read or are written."""
        used = {*self._reads.tables, *(table.table_id for table in [*self.changed, *self.dropped])}
        found = (self._cut.find(key) for key in used)
        return {
            base.table_id: Base(base.version, base.commit_ts)
            for base in found
            if base is not None and base.commit_ts is not None and base.version != NO_VERSION
        }

    def keep(self, table: StagedTable) -> None:
        """Replace a table by its new staged state."""
        with self._lifetime.open():
            self._refuse_dropped(table.table_id, table.name)
            self._tables[table.table_id] = table

    def drop(self, table: StagedTable) -> None:
        """Discard what is staged for a table; if it was there at the beginning, the commit drops it."""
        with self._lifetime.open():
            self._tables.pop(table.table_id, None)
            if table.new is None:
                self._dropped[table.table_id] = table
            else:
                self._new.pop(name_key(table.name), None)

    def _refuse_dropped(self, table_id: UUID, name: str) -> None:
        if table_id in self._dropped:
            raise TableNotFound(
                f"this transaction drops the table {name!r}",
                table=name,
                table_id=table_id,
                txn_id=self.txn_id,
                hint="Create a table of this name first, or use the table before it is dropped.",
            )

    def forget(self) -> None:
        with self._lifetime.lock:
            self._tables.clear()
            self._dropped.clear()

    def name_of(self, table: str | UUID) -> str:
        """Return the name of a table as of the beginning; what was given if there was none."""
        with self._lifetime.lock:
            found = self._cut.find(table)
        return str(table) if found is None else found.name

    def latest(self, table: StagedTable) -> StagedTable:
        """Return the current staged state of a table."""
        with self._lifetime.lock:
            return self._tables.get(table.table_id, table)

    def find(self, table: str | UUID) -> StagedTable | None:
        """Return a table by name (in any case) or id: as staged, else as of the beginning; None if there is none.

        While nothing is staged for a table, every call returns the same object.
        """
        key = name_key(table) if isinstance(table, str) else None
        with self._lifetime.lock:
            found = self._cut.find(table)
            if found is None or found.table_id in self._dropped:
                # A table that this transaction creates, by its id, or by a name that no table had at the cut.
                staged = [*self._tables.values()]
                place = path_in_name(table) if isinstance(table, str) else None
                if place is not None:
                    return next((one for one in staged if is_same_place(place, one.location)), None)
                return next((one for one in staged if table == one.table_id or key == name_key(one.name)), None)
            known = self._tables.get(found.table_id) or self._begun.get(found.table_id)
        if known is not None:
            return known
        begun = self._at_cut(found)
        with self._lifetime.lock:
            return self._begun.setdefault(found.table_id, begun)

    def find_at(self, location: str) -> StagedTable | None:
        """Return the table at a location: one that the transaction creates, else one of the catalog; None if none.

        A table that was created after the transaction began raises `TableNotFound`.
        """
        with self._lifetime.lock:
            new = [table for table in self._tables.values() if table.new is not None]
        staged = next((table for table in new if is_same_place(location, table.location)), None)
        if staged is not None:
            return staged
        record = self.session.registry.find_at(location)
        with self._lifetime.lock:
            is_gone = record is None or record.table_id in self._dropped
        return None if record is None or is_gone else self.seen(record.table_id)

    @property
    def names(self) -> list[str]:
        """Names of all tables, with those that the transaction creates and without those that it drops."""
        with self._lifetime.lock:
            there = {one.table_id: one.name for one in self._cut.tables if one.version != NO_VERSION}
            there |= {table.table_id: table.name for table in self._tables.values() if table.exists}
            return sorted(name for table_id, name in there.items() if table_id not in self._dropped)

    def _at_cut(self, found: CutTable) -> StagedTable:
        location = self.session.registry.location(found.table_id)
        if found.version == NO_VERSION:
            return StagedTable(found.table_id, found.name, location, found.version, None)
        table_id, version, commit_ts = found.table_id, found.version, found.commit_ts
        known = None if commit_ts is None else self.session.reader.known_state(table_id, version, commit_ts)
        if known is None:
            snapshot = self._snapshot(table_id, version)
            known = snapshot.metadata, snapshot.protocol
        is_live = _Live(partial(self._snapshot, table_id, version))
        return StagedTable(table_id, found.name, location, version, *known, is_live=is_live)

    def seen(self, table: TableLike, expected_version: int | None = None) -> StagedTable:
        """Return a table by name, id or URI. Raise `TableNotFound` if the transaction does not see it.

        A table that was created after the transaction began is returned only if the caller gives its expected version.
        """
        found = self.find(self.session.name_or_id(table))
        if found is not None:
            return found
        record = self.session.find(table)
        self._refuse_dropped(record.table_id, record.name)
        if expected_version is None:
            raise TableNotFound(
                f"the table {record.name!r} was not there when this transaction began",
                table=record.name,
                txn_id=self.txn_id,
                hint="Begin the transaction after creating the table.",
            )
        return StagedTable(record.table_id, record.name, record.location, expected_version, None)

    def readable(self, table: TableLike) -> StagedTable:
        """Return a table that has a schema. Raise if nothing was committed to it yet."""
        staged = self.seen(table)
        if staged.metadata is None:
            raise ValidationError("nothing was committed to the table yet", table=staged.name)
        return staged

    def new_table(
        self,
        name: str | UUID,
        schema: StructType,
        partition_by: str | Sequence[str],
        properties: Mapping[str, str] | None,
        *,
        location: str | None = None,
        description: str | None = None,
        cluster_by: str | Sequence[str] = (),
    ) -> StagedTable:
        """Return a new table, which the commit creates."""
        if isinstance(name, UUID):
            self.seen(name)
        new = self._new.get(name_key(str(name)))
        if new is None or location is not None:
            table_id = uuid4()
            made = NewTable(table_id, str(name), location_of(self.session, str(name), table_id, location))
            # Threads that create the same table at once must write to one location.
            new = made if location is not None else self._new.setdefault(name_key(made.name), made)
        actions = initial_actions(
            new.table_id,
            schema,
            partition_by=partition_by,
            cluster_by=cluster_by,
            properties=properties,
            description=description,
        )
        return StagedTable(new.table_id, new.name, new.location, NO_VERSION, None, new=new, initial=actions)

    # -- reading ---------------------------------------------------------------------------------------------------

    def files(self, table: StagedTable, predicate: Predicate | None) -> pa.Table:
        """Return the live and staged files that may hold matching rows, and remember them as read."""
        assert table.metadata is not None
        pruner = None if predicate is None else Pruner(predicate, table.metadata)
        added = table.added() if pruner is None else _kept(table.added(), pruner)
        if table.version == NO_VERSION:
            return added
        live = self._snapshot(table.table_id, table.version).select_files(where=predicate)
        with self._lifetime.open():
            if pruner is None:
                self._reads.whole_table(table.table_id, table.version)
            else:
                self._reads.matching(table.table_id, table.version, pruner, file_keys(live))
        return pa.concat_tables([table.over(live), added])

    def change_files(
        self,
        table: StagedTable,
        predicate: Predicate | None,
        keys: KeySet | None = None,
        row_filter: RowFilter | None = None,
        *,
        changes_matches: bool = False,
    ) -> pa.Table:
        """Return the files that may hold rows to change, as `files` does, and remember only those rows as read.

        A row is one to change if it matches the predicate and has one of the keys. Concurrent changes of other rows do
        not conflict, even in the same files, as far as that can be found out (`transaction.settle`).

        `row_filter` selects the rows to change, or more. Without it, a new file that may hold such a row is a conflict.
        `changes_matches` says that every row that matches is changed, as by DELETE and UPDATE. A merge that only
        inserts, or has conditions on its clauses, does not change every match and yet depends on it.
        """
        assert table.metadata is not None
        conditions: list[Pruner | KeySet] = [] if predicate is None else [Pruner(predicate, table.metadata)]
        conditions += [] if keys is None else [keys]
        added = _kept(table.added(), *conditions)
        if table.version == NO_VERSION:
            return added
        where = conjunction(condition.predicate for condition in conditions) if conditions else None
        live = self._snapshot(table.table_id, table.version).select_files(where=where)
        live = live if keys is None else _kept(live, keys)
        searched = RowRead(tuple(conditions), frozenset(file_keys(live)), changes_matches, row_filter)
        with self._lifetime.open():
            self._reads.rows(table.table_id, table.version, searched)
        return pa.concat_tables([table.over(live), added])

    def files_to_move(self, table: StagedTable, predicate: Predicate | None) -> pa.Table:
        """Return the files that may hold matching rows, as `files` does, and remember nothing.

        Who only moves rows to other files does not depend on what the rows are. That the files are still live is
        checked, because they are removed.
        """
        assert table.metadata is not None
        added = table.added() if predicate is None else _kept(table.added(), Pruner(predicate, table.metadata))
        if table.version == NO_VERSION:
            return added
        live = self._snapshot(table.table_id, table.version).select_files(where=predicate)
        return pa.concat_tables([table.over(live), added])

    def note_whole_read(self, table: StagedTable) -> None:
        """Remember a table as read in whole, without fetching its list of files."""
        with self._lifetime.open():
            self._reads.whole_table(table.table_id, table.version)

    def totals(self, table: StagedTable) -> Totals:
        """Return the sums over the files that the table had at the beginning."""
        return self._snapshot(table.table_id, table.version).totals

    def committed_at(self, table: StagedTable) -> datetime | None:
        """Return the time of the version at the beginning; None if there was none."""
        return None if table.version == NO_VERSION else self._snapshot(table.table_id, table.version).timestamp

    def domains(self, table: StagedTable) -> dict[str, DomainMetadata]:
        """Return the domain metadata in force, with what is staged."""
        found = dict(self._snapshot(table.table_id, table.version).domains) if table.version != NO_VERSION else {}
        found |= table.domains
        return {name: domain for name, domain in found.items() if not domain.removed}

    def definition(self, table: StagedTable) -> Definition:
        """Return the table's definition, with what is staged."""
        assert table.metadata is not None
        return Definition(table.metadata, self.domains(table))

    def scan(self, table: StagedTable, predicate: Predicate | None = None) -> Scan:
        """Return a scan of the files that `files` returns, to read their rows."""
        assert table.metadata is not None
        return replace(self.scan_of(table, table.metadata, self.files(table, predicate)), condition=predicate)

    def scan_of(self, table: StagedTable, metadata: Metadata, files: pa.Table) -> Scan:
        """Return a scan of these files of the table, to read their rows."""
        return Scan.of(
            metadata,
            files,
            root=table.location,
            table=table.name,
            version=table.version,
            storage_options=self.session.settings.storage_options,
        )

    def write_target(
        self, table: StagedTable, metadata: Metadata, *, target_file_size: int | None, compression: str | None
    ) -> WriteTarget:
        """Return where and how new files of the table are written. None keeps the default.

        From now on the transaction counts as a writer of the table, whose files no vacuum deletes.
        """
        self.announce(table.table_id)
        # Only a table with the feature is looked up.
        is_clustered = table.protocol is not None and CLUSTERING_FEATURE in (table.protocol.writer_features or ())
        target = WriteTarget(
            root=table.location,
            schema=metadata.schema,
            partition_columns=tuple(metadata.partition_columns),
            properties=metadata.configuration,
            storage_options=self.session.settings.storage_options,
            cluster_by=Definition(metadata, self.domains(table)).cluster_by if is_clustered else (),
        )
        chosen = {"target_file_size": target_file_size, "compression": compression}
        return target.with_options(**{name: value for name, value in chosen.items() if value is not None})

    def announce(self, table_id: UUID) -> None:
        """Note that the transaction writes files of a table from now on. No vacuum deletes them while it lives."""
        self.session.heartbeat.begin(self._lifetime, table_id)

    def progress(self, table: StagedTable, app_id: str) -> int | None:
        """Return an application's last version for a table: the staged one, else the committed one."""
        staged = table.progress(app_id)
        if staged is not None or table.version == NO_VERSION:
            return staged
        with self._lifetime.open():
            self._reads.application(table.table_id, table.version, app_id)
        committed = self._snapshot(table.table_id, table.version).txns.get(app_id)
        return None if committed is None else committed.version

    def _snapshot(self, table_id: UUID, version: int) -> Snapshot:
        found = self._snapshots.get(table_id)
        if found is not None:
            return found
        base = self._cut.find(table_id)
        commit_ts = base.commit_ts if base is not None and base.version == version else None
        return self._snapshots.setdefault(
            table_id, self.session.reader.snapshot(table_id, version, commit_ts=commit_ts)
        )


def _kept(files: pa.Table, *conditions: Pruner | KeySet) -> pa.Table:
    for condition in conditions:
        files = files.filter(condition.keep(files))
    return files


class _Live:
    """Test whether a file belongs to the snapshot. The files are fetched on the first call."""

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot

    def __call__(self, key: FileKey) -> bool:
        return key in self._keys

    @cached_property
    def _keys(self) -> frozenset[FileKey]:
        return frozenset(file_keys(self._snapshot().files))
