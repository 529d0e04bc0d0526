"""The server of the pages: on this machine, with a token, until it is interrupted."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable

import uvicorn

from deltars.catalog import Catalog
from deltars.console.app import create_app
from deltars.errors import ConfigError
from deltars.store.backends.time_limit import TimeLimit

LOOPBACK = "127.0.0.1"
STATEMENT_S = 15
"""Longest statement of a page."""


def make_sessions_read_only() -> None:
    """Let every PostgreSQL session of this process only read, and end statements that take too long."""
    options = f"-c default_transaction_read_only=on -c statement_timeout={STATEMENT_S}s"
    os.environ["PGOPTIONS"] = f"{os.environ.get('PGOPTIONS', '')} {options}".strip()


class ConsoleServer:
    """Pages of one catalog at an address of this machine. The address is taken when the server is made."""

    def __init__(self, catalog: Catalog, port: int = 0, *, token: str | None = None) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((LOOPBACK, port))
        except OSError as error:
            self._socket.close()
            raise ConfigError(
                f"port {port} cannot be used: {error.strerror}", hint="Choose another with --port, or 0 for any."
            ) from None
        catalog._session.database.backend.read_limit = TimeLimit(STATEMENT_S)
        self.port: int = self._socket.getsockname()[1]
        self._token = token or secrets.token_urlsafe(24)
        hosts = [f"{name}:{self.port}" for name in (LOOPBACK, "localhost")]
        app = create_app(catalog, token=self._token, hosts=hosts)
        # The address with the token must not be in an access log.
        self._server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off"))

    @property
    def address(self) -> str:
        """Address with the token."""
        return f"http://{LOOPBACK}:{self.port}/?token={self._token}"

    def run(self, ready: Callable[[], None] | None = None) -> None:
        """Serve until SIGINT, SIGTERM or `stop`. `ready` is called when the address can be opened."""
        self._socket.listen(128)
        if ready is not None:
            ready()
        self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        self._server.should_exit = True
