"""A backup of a whole catalog, put back under processes that go on living."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Protocol

from psycopg import sql

import deltars
from deltars.uri import parse_catalog_uri
from tests.support.postgres import PostgresServer
from tests.support.witness import postgres_connection


class Backup(Protocol):
    def restore(self) -> None:
        """Everything as it was when the backup was made."""


def take_backup(catalog: deltars.Catalog, path: Path, server: PostgresServer | None) -> Backup:
    """`server`: that of a PostgreSQL catalog."""
    match catalog._session.uri.backend:
        case "sqlite":
            return _SqliteBackup(Path(catalog._session.uri.database), path)
        case "duckdb":
            return _DuckDBBackup(catalog, path)
        case "postgres":
            assert server is not None
            return _PostgresBackup(server, catalog._session.uri.with_secrets(), path)


class _SqliteBackup:
    def __init__(self, database: Path, path: Path) -> None:
        self._database, self._path = database, path
        _copy(database, path)

    def restore(self) -> None:
        _copy(self._path, self._database)


def _copy(source: Path, target: Path) -> None:
    """As SQLite's own `.backup` and `.restore` do: through its locks."""
    with closing(sqlite3.connect(source)) as from_, closing(sqlite3.connect(target)) as to:
        from_.backup(to)


class _DuckDBBackup:
    """The file can be copied when the process has closed it; the catalog's object stays, and opens it again."""

    def __init__(self, catalog: deltars.Catalog, path: Path) -> None:
        self._catalog, self._path = catalog, path
        catalog.close()
        shutil.copyfile(catalog._session.uri.database, path)

    def restore(self) -> None:
        self._catalog.close()
        Path(self._catalog._session.uri.database + ".wal").unlink(missing_ok=True)
        shutil.copyfile(self._path, self._catalog._session.uri.database)


class _PostgresBackup:
    def __init__(self, server: PostgresServer, uri: str, path: Path) -> None:
        self._server, self._catalog, self._path = server, parse_catalog_uri(uri), path
        schema = f"--schema={self._catalog.schema}"
        self._run("pg_dump", "--format=custom", schema, f"--file={path}", f"--dbname={self._database}")

    def restore(self) -> None:
        with postgres_connection(self._catalog) as connection:
            place = sql.Identifier(self._catalog.schema or "")
            connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(place))
        self._run("pg_restore", "--exit-on-error", f"--dbname={self._database}", str(self._path))

    @property
    def _database(self) -> str:
        return self._server.conninfo_of(self._catalog.database)

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run([self._server.bin / program, *arguments], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
