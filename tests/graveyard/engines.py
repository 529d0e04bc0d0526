"""The few verbs that the cases of the graveyard use, for deltars and for its peers.

case(engine) ──▶ Deltars | DeltaRs | DuckLake ──▶ rows, compared with what the case expects

An engine without a verb raises `NotOffered`: the case says nothing about it.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

import deltars

Rows = list[tuple[Any, ...]]


class NotOffered(Exception):
    """This engine has no such verb."""


class Conflict(Exception):
    """This engine refused the second of two transactions."""


class Session(Protocol):
    """An open transaction."""

    def delete(self, where: str) -> None: ...
    def update(self, set: Mapping[str, str], where: str) -> None: ...
    def append(self, rows: pa.Table) -> None: ...
    def rows(self, where: str | None = None) -> Rows: ...
    def commit(self) -> None: ...


class Engine(Protocol):
    """One table of an engine."""

    name: str

    def create(self, schema: pa.Schema, *, partition_by: Sequence[str] = (), vectors: bool = False) -> None: ...
    def append(self, rows: pa.Table) -> None: ...
    def overwrite(self, rows: pa.Table, where: str) -> None: ...
    def delete(self, where: str) -> None: ...
    def update(self, set: Mapping[str, str], where: str) -> None: ...
    def upsert(
        self,
        rows: pa.Table,
        on: str,
        *,
        insert: bool = True,
        delete: bool = False,
        set: Mapping[str, str] | None = None,
    ) -> None: ...
    def rows(self, where: str | None = None, version: int | None = None) -> Rows: ...
    def add_column(self, name: str, type: str) -> None: ...
    def rename_column(self, name: str, new_name: str) -> None: ...
    def compact(self) -> None: ...
    def vacuum(self) -> list[str]: ...
    def checkpoint(self) -> None: ...
    def begin(self) -> Session: ...
    def files(self) -> int: ...


def as_rows(table: pa.Table) -> Rows:
    rows = [tuple(row.values()) for row in table.to_pylist()]
    return sorted(rows, key=lambda row: [(value is None, repr(value)) for value in row])


class Deltars:
    """A table of a deltars catalog."""

    name = "deltars"

    def __init__(self, catalog: deltars.Catalog, table: str) -> None:
        self.catalog = catalog
        self.table_name = table

    @property
    def table(self) -> deltars.Table:
        return self.catalog.table(self.table_name)

    def create(self, schema: pa.Schema, *, partition_by: Sequence[str] = (), vectors: bool = False) -> None:
        properties = {"delta.enableDeletionVectors": "true"} if vectors else None
        self.catalog.create_table(self.table_name, schema, partition_by=partition_by, properties=properties)

    def append(self, rows: pa.Table) -> None:
        self.catalog.write(self.table_name, rows)

    def overwrite(self, rows: pa.Table, where: str) -> None:
        self.catalog.write(self.table_name, rows, "overwrite", replace_where=where)

    def delete(self, where: str) -> None:
        self.table.delete(where)

    def update(self, set: Mapping[str, str], where: str) -> None:
        self.table.update(set, where)

    def upsert(
        self,
        rows: pa.Table,
        on: str,
        *,
        insert: bool = True,
        delete: bool = False,
        set: Mapping[str, str] | None = None,
    ) -> None:
        merge = self.table.merge(rows, on)
        merge = (
            merge.when_matched_delete()
            if delete
            else merge.when_matched_update(set)
            if set
            else merge.when_matched_update_all()
        )
        (merge.when_not_matched_insert_all() if insert else merge).execute()

    def rows(self, where: str | None = None, version: int | None = None) -> Rows:
        return as_rows(self.table.to_arrow(where=where, version=version))

    def add_column(self, name: str, type: str) -> None:
        self.table.alter.add_columns(f"`{name}` {type}")

    def rename_column(self, name: str, new_name: str) -> None:
        self.table.alter.rename_column(name, new_name, enable_column_mapping=True)

    def compact(self) -> None:
        self.table.optimize()

    def vacuum(self) -> list[str]:
        return [file.path for file in self.table.vacuum(retention=timedelta(0), force=True).files]

    def checkpoint(self) -> None:
        self.table.alter.set_properties({"delta.checkpointInterval": "1"})

    def begin(self) -> Session:
        return _DeltarsSession(self)

    def files(self) -> int:
        return int(self.table.detail().num_files)


class _DeltarsSession:
    def __init__(self, engine: Deltars) -> None:
        self._engine = engine
        self._tx = engine.catalog.begin(isolation="serializable")
        self._tx.to_arrow(engine.table_name)

    def delete(self, where: str) -> None:
        self._tx.delete(self._engine.table_name, where)

    def update(self, set: Mapping[str, str], where: str) -> None:
        self._tx.update(self._engine.table_name, set, where)

    def append(self, rows: pa.Table) -> None:
        self._tx.write(self._engine.table_name, rows)

    def rows(self, where: str | None = None) -> Rows:
        return as_rows(self._tx.to_arrow(self._engine.table_name, where=where))

    def commit(self) -> None:
        try:
            self._tx.commit()
        except deltars.VersionConflict as error:
            raise Conflict(str(error)) from error


class DeltaRs:
    """A table of the package deltalake."""

    name = "deltalake"

    def __init__(self, directory: Path, table: str) -> None:
        self._path = directory / table

    @property
    def _table(self) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(self._path)

    def create(self, schema: pa.Schema, *, partition_by: Sequence[str] = (), vectors: bool = False) -> None:
        from deltalake import DeltaTable

        if vectors:
            raise NotOffered
        DeltaTable.create(str(self._path), schema=schema, partition_by=list(partition_by) or None)

    def append(self, rows: pa.Table) -> None:
        from deltalake import write_deltalake

        write_deltalake(self._path, rows, mode="append")

    def overwrite(self, rows: pa.Table, where: str) -> None:
        from deltalake import write_deltalake

        write_deltalake(self._path, rows, mode="overwrite", predicate=where)

    def delete(self, where: str) -> None:
        self._table.delete(where)

    def update(self, set: Mapping[str, str], where: str) -> None:
        self._table.update(updates=dict(set), predicate=where)

    def upsert(
        self,
        rows: pa.Table,
        on: str,
        *,
        insert: bool = True,
        delete: bool = False,
        set: Mapping[str, str] | None = None,
    ) -> None:
        merge = self._table.merge(rows, predicate=on, source_alias="s", target_alias="t")
        merge = (
            merge.when_matched_delete()
            if delete
            else merge.when_matched_update(dict(set))
            if set
            else merge.when_matched_update_all()
        )
        (merge.when_not_matched_insert_all() if insert else merge).execute()

    def rows(self, where: str | None = None, version: int | None = None) -> Rows:
        from deltalake import DeltaTable, QueryBuilder

        table = DeltaTable(self._path, version=version)
        condition = f" WHERE {where}" if where else ""
        return as_rows(pa.table(QueryBuilder().register("t", table).execute(f"SELECT * FROM t{condition}").read_all()))

    def add_column(self, name: str, type: str) -> None:
        from deltalake.schema import Field, PrimitiveType

        self._table.alter.add_columns(Field(name, PrimitiveType(type.lower().replace("bigint", "long"))))

    def rename_column(self, name: str, new_name: str) -> None:
        raise NotOffered

    def compact(self) -> None:
        self._table.optimize.compact()

    def vacuum(self) -> list[str]:
        return list(self._table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False))

    def checkpoint(self) -> None:
        self._table.create_checkpoint()

    def begin(self) -> Session:
        raise NotOffered

    def files(self) -> int:
        return len(self._table.file_uris())


class DuckLake:
    """A table of DuckDB's extension ducklake, with its catalog in a DuckDB file."""

    name = "DuckLake"

    def __init__(self, directory: Path, table: str, extension: Path) -> None:
        import duckdb

        place = directory / f"ducklake_{table}"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        self._connection = duckdb.connect()
        self._connection.execute(f"LOAD '{extension}'")
        self._connection.execute(f"ATTACH 'ducklake:{place}/meta.ducklake' AS lake (DATA_PATH '{place}/data')")
        self._connection.execute("USE lake")

    def _run(self, statement: str, connection: Any = None, **frames: pa.Table) -> Any:
        connection = connection or self._connection
        for name, frame in frames.items():
            connection.register(name, frame)
        return connection.execute(statement)

    def create(self, schema: pa.Schema, *, partition_by: Sequence[str] = (), vectors: bool = False) -> None:
        self._run("CREATE TABLE t AS SELECT * FROM s", s=schema.empty_table())
        if partition_by:
            columns = ", ".join(f'"{column}"' for column in partition_by)
            self._run(f"ALTER TABLE t SET PARTITIONED BY ({columns})")

    def append(self, rows: pa.Table) -> None:
        self._run("INSERT INTO t BY NAME SELECT * FROM s", s=rows)

    def overwrite(self, rows: pa.Table, where: str) -> None:
        self._run(f"BEGIN; DELETE FROM t WHERE {where}; INSERT INTO t BY NAME SELECT * FROM s; COMMIT", s=rows)

    def delete(self, where: str) -> None:
        self._run(f"DELETE FROM t WHERE {where}")

    def update(self, set: Mapping[str, str], where: str) -> None:
        assignments = ", ".join(f"{column} = {value}" for column, value in set.items())
        self._run(f"UPDATE t SET {assignments} WHERE {where}")

    def upsert(
        self,
        rows: pa.Table,
        on: str,
        *,
        insert: bool = True,
        delete: bool = False,
        set: Mapping[str, str] | None = None,
    ) -> None:
        change = (
            "DELETE"
            if delete
            else "UPDATE SET " + ", ".join(f"{name} = {value}" for name, value in set.items())
            if set
            else "UPDATE"
        )
        self._run(
            f"MERGE INTO t USING s ON {on} WHEN MATCHED THEN {'DELETE' if delete else change}"
            + (" WHEN NOT MATCHED THEN INSERT BY NAME" if insert else ""),
            s=rows,
        )

    def rows(self, where: str | None = None, version: int | None = None) -> Rows:
        if version is not None:
            raise NotOffered
        return as_rows(self._run("SELECT * FROM t" + (f" WHERE {where}" if where else "")).to_arrow_table())

    def add_column(self, name: str, type: str) -> None:
        self._run(f'ALTER TABLE t ADD COLUMN "{name}" {type.replace("STRING", "VARCHAR")}')

    def rename_column(self, name: str, new_name: str) -> None:
        self._run(f'ALTER TABLE t RENAME COLUMN "{name}" TO "{new_name}"')

    def compact(self) -> None:
        self._run("CALL ducklake_merge_adjacent_files('lake')")

    def vacuum(self) -> list[str]:
        raise NotOffered

    def checkpoint(self) -> None:
        raise NotOffered

    def begin(self) -> Session:
        return _DuckLakeSession(self)

    def files(self) -> int:
        raise NotOffered


class _DuckLakeSession:
    def __init__(self, engine: DuckLake) -> None:
        self._engine = engine
        self._connection = engine._connection.cursor()
        self._connection.execute("USE lake")
        self._connection.execute("BEGIN")
        self.rows()

    def delete(self, where: str) -> None:
        self._connection.execute(f"DELETE FROM t WHERE {where}")

    def update(self, set: Mapping[str, str], where: str) -> None:
        assignments = ", ".join(f"{column} = {value}" for column, value in set.items())
        self._connection.execute(f"UPDATE t SET {assignments} WHERE {where}")

    def append(self, rows: pa.Table) -> None:
        self._engine._run("INSERT INTO t BY NAME SELECT * FROM s", self._connection, s=rows)

    def rows(self, where: str | None = None) -> Rows:
        return as_rows(
            self._connection.execute("SELECT * FROM t" + (f" WHERE {where}" if where else "")).to_arrow_table()
        )

    def commit(self) -> None:
        import duckdb

        try:
            self._connection.execute("COMMIT")
        except duckdb.Error as error:
            raise Conflict(str(error)) from error
