"""PostgreSQL's wire, tapped: a proxy that reads every statement on its way and can hold it, spoil it or cut the line.

    deltars ──unix socket──▶ Wire ──unix socket──▶ PostgreSQL
                              │
                              └ verdict(statement): PASS, FAIL, CUT_BEFORE, CUT_DURING, CUT_AFTER

Messages are counted too, those of the server as well: `cuts_at` breaks the line before any of them.

Statements are seen as the server gets them, whatever the client's libraries do above: by simple query, by the extended
protocol, in a pipeline, prepared or not. A verdict may take its time: the statement waits meanwhile.
"""

from __future__ import annotations

import socket
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum, auto
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, TypeAlias

from deltars.uri import CatalogUri, parse_catalog_uri
from tests.support.postgres import SETTINGS

MISSING_STATEMENT = b"tapped_no_such_statement"
FAILING_QUERY = b"SELECT 1/0"
END_OF_COPY = "END OF COPY"


class Verdict(Enum):
    PASS = auto()
    FAIL = auto()
    """The server refuses the statement, with an error of its own."""
    CUT_BEFORE = auto()
    """The connection breaks; the server never gets the statement."""
    CUT_DURING = auto()
    """The client's end breaks while the server is at work."""
    CUT_AFTER = auto()
    """The server has answered; the answer is lost."""


TIME_TO_BEGIN_S = 0.5
"""For a server on a busy machine, before it counts as being at work."""

Judge: TypeAlias = Callable[[str], Verdict]


def _pass(statement: str) -> Verdict:
    return Verdict.PASS


class Wire:
    """Listens in a directory of its own, for as long as it is open."""

    def __init__(self, upstream: str) -> None:
        self.statements: list[str] = []
        self.judge: Judge = _pass
        self.messages = 0
        """Of all connections, in both directions."""
        self.cuts_at: Callable[[int], bool] = lambda number: False
        """Whether the line breaks before this message, counted from 1, is passed on."""
        self.translates = False
        """Whether errors come in a language that no one here knows, as with another `lc_messages`."""
        self._upstream = upstream
        # A socket's path has to be short.
        self._directory = tempfile.TemporaryDirectory(prefix="wire-")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"{self._directory.name}/.s.PGSQL.{SETTINGS['port']}")
        self._listener.listen(64)
        self._lines: list[_Line] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def host(self) -> str:
        return self._directory.name

    def see(self, statement: str) -> Verdict:
        with self._lock:
            self.statements.append(statement)
        return self.judge(statement)

    def pass_on(self) -> None:
        """Count a message. Raise where the line breaks before it."""
        with self._lock:
            self.messages += 1
            number = self.messages
        if self.cuts_at(number):
            raise _LineEnds

    def close(self) -> None:
        self.judge = _pass
        self._listener.close()
        for line in self._lines:
            line.cut()
        self._directory.cleanup()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(self._upstream)
            except OSError:
                client.close()
                continue
            self._lines.append(_Line(self, client, server))


@contextmanager
def tapped_wire(catalog_uri: str) -> Iterator[tuple[str, Wire]]:
    """The same catalog by a URI that leads through a tap."""
    direct = parse_catalog_uri(catalog_uri)
    host, port = direct.parameters["host"], direct.parameters.get("port", SETTINGS["port"])
    assert Path(host).is_absolute(), "the wire is tapped at the server's unix socket"
    wire = Wire(f"{host}/.s.PGSQL.{port}")
    parameters = MappingProxyType({**direct.parameters, "host": wire.host, "port": SETTINGS["port"]})
    try:
        yield CatalogUri("postgres", direct.database, direct.schema, parameters).with_secrets(), wire
    finally:
        wire.close()


class _Line:
    """One connection: a thread for each direction."""

    def __init__(self, wire: Wire, client: socket.socket, server: socket.socket) -> None:
        self._wire = wire
        self._client = client
        self._server = server
        self._texts: dict[bytes, str] = {}
        self._at_end_of_batch: Verdict = Verdict.PASS
        self._is_swallowing = False
        threading.Thread(target=self._guarded, args=[self._forward], daemon=True).start()
        threading.Thread(target=self._guarded, args=[self._answer], daemon=True).start()

    def cut(self) -> None:
        for end in (self._client, self._server):
            # shutdown: a thread that is reading from the socket is woken by nothing else.
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _guarded(self, pump: Callable[[], None]) -> None:
        with suppress(OSError, _LineEnds):
            pump()
        if not self._is_swallowing or pump == self._answer:
            self.cut()

    def _forward(self) -> None:
        source = self._client.makefile("rb")
        length = _exactly(source, 4)
        self._server.sendall(length + _exactly(source, struct.unpack("!i", length)[0] - 4))
        while True:
            kind, body = _message(source)
            self._wire.pass_on()
            self._message(kind, body)

    def _message(self, kind: bytes, body: bytes) -> None:
        verdict = Verdict.PASS
        match kind:
            case b"P":
                name, text, _ = body.split(b"\0", 2)
                self._texts[name] = text.decode()
            case b"B":
                _, name, _ = body.split(b"\0", 2)
                verdict = self._wire.see(self._texts.get(name, "?"))
                if verdict is Verdict.FAIL:
                    portal, _, rest = body.split(b"\0", 2)
                    body = b"\0".join((portal, MISSING_STATEMENT, rest))
            case b"Q":
                verdict = self._wire.see(body.rstrip(b"\0").decode())
                if verdict is Verdict.FAIL:
                    body = FAILING_QUERY + b"\0"
            case b"c":
                verdict = self._wire.see(END_OF_COPY)
                if verdict is Verdict.FAIL:
                    kind, body = b"f", b"spoilt\0"
            case _:
                pass
        if verdict is Verdict.CUT_BEFORE:
            raise _LineEnds
        if verdict in (Verdict.CUT_DURING, Verdict.CUT_AFTER):
            self._at_end_of_batch = verdict
            self._is_swallowing = verdict is Verdict.CUT_AFTER
        is_end = kind in (b"S", b"Q", b"c") and self._at_end_of_batch is Verdict.CUT_DURING
        # Before the server has the end of the batch: it may answer at once.
        self._is_swallowing |= is_end
        self._server.sendall(_framed(kind, body))
        if is_end:
            time.sleep(TIME_TO_BEGIN_S)
            self._end_client()

    def _answer(self) -> None:
        source = self._server.makefile("rb")
        while True:
            kind, body = _message(source)
            self._wire.pass_on()
            if kind in (b"E", b"N") and self._wire.translates:
                body = _translated(body)
            if not self._is_swallowing:
                self._client.sendall(_framed(kind, body))
            elif kind in (b"Z", b"G"):  # done, or waiting for the rows of a COPY
                return

    def _end_client(self) -> None:
        with suppress(OSError):
            self._client.shutdown(socket.SHUT_RDWR)
        raise _LineEnds


class _LineEnds(Exception):
    """Nothing more goes over this line."""


def _translated(body: bytes) -> bytes:
    """Replace what a server writes in its own language: severity, message, detail, hint and context."""
    fields = [field for field in body.split(b"\0") if field]
    return b"".join((b"%c%s" % (f[0], "ошибка".encode()) if f[:1] in b"SMDHW" else f) + b"\0" for f in fields) + b"\0"


def _message(source: BinaryIO) -> tuple[bytes, bytes]:
    head = _exactly(source, 5)
    return head[:1], _exactly(source, struct.unpack("!i", head[1:])[0] - 4)


def _framed(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


def _exactly(source: BinaryIO, count: int) -> bytes:
    data = source.read(count)
    if len(data) < count:
        raise _LineEnds
    return data
