"""What the benchmarks stand on: a durable server, new catalogs, and processes whose memory is their own."""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Callable
from typing import TypeVar

from psycopg import sql

import deltars
from tests.support.postgres import PostgresServer, server_of_this_run

Result = TypeVar("Result")


def durable_server() -> PostgresServer:
    """The tests' server, but with PostgreSQL's own defaults for what must survive a crash."""
    server = server_of_this_run()
    with server.connect() as connection:
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            connection.execute(sql.SQL("ALTER SYSTEM SET {} = on").format(sql.Identifier(setting)))
        connection.execute("SELECT pg_reload_conf()")
    return server


def new_catalog(server: PostgresServer) -> str:
    uri = server.create_catalog_uri(server.create_database("bench"))
    deltars.connect(uri, warehouse=tempfile.mkdtemp(), migrate=True).close()
    return uri


def in_own_process(work: Callable[..., Result], *arguments: object) -> Result:
    """In a process of its own, so that its memory is its own too."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, arguments)
