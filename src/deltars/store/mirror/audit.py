"""Files of a table according to the catalog, to compare with the files in storage."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pyarrow as pa
from sqlalchemy import Text, cast, func, literal, or_, select, union

from deltars.store.database import Database
from deltars.store.mirror.checkpoint_state import FileSums
from deltars.store.read.version_header import earliest_version
from deltars.store.schema import dl_add_files, dl_cdc_files, dl_remove_files, dl_table_versions, dl_tables

_TRACKED = pa.schema([pa.field("path", pa.string()), pa.field("deletion_vector", pa.string())])


class AuditRows:
    """Reader of everything that the audit compares."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def tracked(self, table_id: UUID) -> Iterator[pa.RecordBatch]:
        """Yield every path and every deletion vector (JSON text) that the log ever contained."""
        files = [
            select(table.c.path, cast(table.c.deletion_vector, Text).label("deletion_vector")).where(
                table.c.table_id == table_id
            )
            for table in (dl_add_files, dl_remove_files)
        ]
        changes = select(dl_cdc_files.c.path, cast(literal(None), Text)).where(dl_cdc_files.c.table_id == table_id)
        every = union(*files, changes).subquery("tracked")
        return self._database.fetch(select(*every.c), _TRACKED)

    def absolute_paths(self, *, but: UUID) -> list[str]:
        """Return every absolute path in the logs of the other tables that are not dropped."""
        files = dl_add_files.c
        query = (
            select(files.path)
            .join(dl_tables, dl_tables.c.table_id == files.table_id)
            .where(files.table_id != but, dl_tables.c.dropped_at.is_(None))
            .where(or_(files.path.like("/%"), files.path.like("%:/%")))
        )
        with self._database.read() as connection:
            return list(connection.scalars(query))

    def sums(self, table_id: UUID) -> dict[int, tuple[str, FileSums]]:
        """Return the transaction id of each version, and the sums of its live files."""
        versions, add = dl_table_versions.c, dl_add_files.c
        commits = select(versions.version, versions.txn_id).where(versions.table_id == table_id)
        came, gone = (
            select(column, func.count(), func.sum(add.size)).where(add.table_id == table_id).group_by(column)
            for column in (add.version, add.removed_version)
        )
        with self._database.read() as connection:
            plus = {version: (count, size) for version, count, size in connection.execute(came)}
            minus = {version: (count, size) for version, count, size in connection.execute(gone)}
            there = {version: str(txn_id) for version, txn_id in connection.execute(commits)}
        minus.pop(None, None)
        found, files, size = {}, 0, 0
        # The files of expired versions count too, as long as they are live.
        for version in sorted(plus.keys() | minus.keys() | there.keys()):
            (more, bytes_more), (fewer, bytes_fewer) = plus.get(version, (0, 0)), minus.get(version, (0, 0))
            files, size = files + more - fewer, size + int(bytes_more) - int(bytes_fewer)
            if version in there:
                found[version] = (there[version], FileSums(files, size))
        return found

    def earliest(self, table_id: UUID) -> int:
        """Return the first version of the history that is kept; 0 if nothing was committed."""
        with self._database.read() as connection:
            return earliest_version(connection, table_id) or 0
