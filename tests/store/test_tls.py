"""Connections that leave this machine are verified, unless the user says otherwise."""

from __future__ import annotations

import socket
import threading

import pytest

import deltars
from deltars.store.backends.postgresql.tls import with_verified_tls


@pytest.mark.parametrize("host", ["db", "10.0.0.5", "2001:db8::1", "db.example,localhost", "127.0.0.1.example"])
def test_a_server_elsewhere_is_verified_by_the_system(host: str) -> None:
    assert with_verified_tls({"host": host}, {}) == {"host": host, "sslmode": "verify-full", "sslrootcert": "system"}
    assert with_verified_tls({}, {"PGHOST": host})["sslmode"] == "verify-full"


@pytest.mark.parametrize("host", ["", "/run/postgresql", "@abstract", "localhost", "127.0.0.1", "127.8.8.8", "::1"])
def test_a_server_on_this_machine_keeps_the_default(host: str) -> None:
    assert with_verified_tls({"host": host}, {}) == {"host": host}


@pytest.mark.parametrize(
    ("parameters", "environment"),
    [
        ({"host": "db", "sslmode": "require"}, {}),
        ({"host": "db"}, {"PGSSLMODE": "prefer"}),
        ({"host": "db", "service": "lake"}, {}),
        ({"host": "db"}, {"PGSERVICE": "lake"}),
    ],
)
def test_the_user_has_the_last_word(parameters: dict[str, str], environment: dict[str, str]) -> None:
    assert with_verified_tls(parameters, environment) == parameters


def test_an_authority_of_the_user_is_kept() -> None:
    assert with_verified_tls({"host": "db", "sslrootcert": "/ca.crt"}, {})["sslrootcert"] == "/ca.crt"
    assert "sslrootcert" not in with_verified_tls({"host": "db"}, {"PGSSLROOTCERT": "/ca.crt"})


def test_hostaddr_decides_where_the_connection_goes() -> None:
    assert with_verified_tls({"host": "localhost", "hostaddr": "10.0.0.5"}, {})["sslmode"] == "verify-full"


def test_a_refusal_says_how_to_say_otherwise() -> None:
    """A server that answers «no TLS here», as PostgreSQL does without a certificate."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def refuse() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(8)
                connection.sendall(b"N")

        thread = threading.Thread(target=refuse)
        thread.start()
        port = server.getsockname()[1]
        with pytest.raises(deltars.DatabaseError, match="sslmode=require") as refused:
            deltars.connect(
                f"deltasql://postgres/lake/public?host=127.0.0.1&port={port}&sslmode=verify-full&sslrootcert=system"
            )
        thread.join()
    assert "SSL" in str(refused.value)
