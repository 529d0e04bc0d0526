"""Canaries: unique secrets, and what was seen of a program that was given them.

A secret has a core of letters and digits, which stays as it is in URLs, JSON, reprs and SQL, and an end that does not.
"""

from __future__ import annotations

import io
import logging
import pickle
import re
import secrets
import sys
import traceback
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from deltars.observe.logs import JsonFormatter

AROUND = 60
"""Characters that are shown on both sides of a secret that was seen."""


class Canaries:
    """One secret for each place, and all texts in which none of them may be."""

    def __init__(self) -> None:
        self._cores: dict[str, str] = {}
        self._seen: dict[str, list[str]] = {}

    def __getitem__(self, place: str) -> str:
        """The secret of a place."""
        core = self._cores.setdefault(place, f"k4n4ry{secrets.token_hex(6)}")
        return f"{core}/+ @%'\"=&x"

    def saw(self, where: str, *things: object) -> None:
        for thing in things:
            self._seen.setdefault(where, []).append(
                thing.decode("latin-1")
                if isinstance(thing, bytes)
                else thing
                if isinstance(thing, str)
                else repr(thing)
            )

    def saw_object(self, where: str, thing: Any, *, pickled: bool = True) -> None:
        """All that an object says of itself: by name, in a notebook, field by field, and in a pickle."""
        fields = {name: getattr(thing, name, None) for name in _fields(thing)}
        html = getattr(thing, "_repr_html_", None)
        self.saw(where, repr(thing), str(thing), f"{thing}", fields, "" if html is None else html())
        if pickled:
            self.saw(f"pickle of {where}", pickle.dumps(thing))

    def saw_error(self, where: str, error: BaseException) -> None:
        lines = [line for line in traceback.format_exception(error) if "canaries[" not in line]
        self.saw(where, str(error), repr(error), vars(error), *lines)
        self.saw(f"pickle of {where}", pickle.dumps(error))

    def saw_files(self, where: str, directory: Path) -> None:
        for path in sorted(directory.rglob("*")):
            if path.is_file():
                self.saw(where, str(path), path.read_bytes())
                if path.suffix == ".parquet":
                    self.saw(where, pq.read_table(path).to_pylist())

    def saw_processes(self) -> None:
        """The command lines of all processes of this machine."""
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                self.saw("process list", process.read_bytes())
            except OSError:
                continue

    @property
    def places(self) -> set[str]:
        return set(self._seen)

    def found(self) -> list[str]:
        """Where a secret was seen, with the text around it."""
        places = {form: place for place, core in self._cores.items() for form in _forms(core)}
        # One search for all: the logs are long.
        forms = re.compile("|".join(map(re.escape, places)))
        return [
            f"{places[hit[0]]} in {where}: {text[max(0, hit.start() - AROUND) : hit.end() + AROUND]!r}"
            for where, texts in self._seen.items()
            for text in texts
            for hit in forms.finditer(text)
        ]


def _fields(thing: object) -> list[str]:
    slots = [name for cls in type(thing).__mro__ for name in getattr(cls, "__slots__", ())]
    return [*getattr(thing, "__dict__", {}), *slots]


def _forms(core: str) -> Iterator[str]:
    yield core
    # In base64 at any of three offsets, without the characters that its neighbours share.
    for offset in range(3):
        yield b64encode(b"\0" * offset + core.encode()).decode().rstrip("=")[4 if offset else 0 : -4]


@contextmanager
def every_log(canaries: Canaries) -> Iterator[None]:
    """Every record of every logger, at DEBUG, as text, as JSON, and with all its fields."""
    lines = io.StringIO()

    class Both(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.write(f"{record.name} {logging.Formatter().format(record)}\n{JsonFormatter().format(record)}\n")
            lines.write(f"{record.__dict__!r}\n")

    root, handler = logging.getLogger(), Both(logging.DEBUG)
    # A logger that was given a level, or none of its parents' handlers, is opened too.
    names = [root, *(logging.getLogger(name) for name in list(logging.root.manager.loggerDict)), _SQL]
    before = [(logger, logger.level, logger.propagate) for logger in names]
    for logger in names:
        logger.setLevel(logging.DEBUG)
        logger.propagate = True
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        for logger, level, propagate in before:
            logger.setLevel(level)
            logger.propagate = propagate
        canaries.saw("logs", *lines.getvalue().splitlines())


_SQL = logging.getLogger("sqlalchemy.engine")

_started: list[str] | None = None
_is_hooked = False


@contextmanager
def every_start(canaries: Canaries) -> Iterator[None]:
    """The command line of every process that Python starts, however short it lives."""
    global _started, _is_hooked
    if not _is_hooked:
        # A hook cannot be removed: it does nothing while no one looks.
        sys.addaudithook(_hear)
        _is_hooked = True
    _started = []
    try:
        yield
    finally:
        canaries.saw("started processes", *_started)
        _started = None


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if _started is not None and event in ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.system"):
        _started.append(repr(arguments[:2]))
