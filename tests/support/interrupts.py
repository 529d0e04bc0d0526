"""Ctrl-C at a chosen moment of deltars' own code.

A signal comes at any bytecode, also inside the locks of the standard library, which it can leave broken. Here moments
are counted instead: each entry of a function of deltars in the calling thread, each of its lines, and each of its
returns. The same number is the same moment, and other threads are left alone.

    with Clock() as clock:
        statement()
    for moment in clock.places:
        with Clock(moment), pytest.raises(KeyboardInterrupt):
            statement()
"""

from __future__ import annotations

import ast
import inspect
import sys
from functools import cache
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any

import deltars

_OURS = str(Path(deltars.__file__).parent)


class Clock:
    """Count the moments of a block, and raise KeyboardInterrupt at the one that is given, the first being 1."""

    def __init__(self, moment: int | None = None) -> None:
        self.moments = 0
        self._moment = moment
        self._before: Any = None
        self._places: dict[tuple[CodeType, int, str], int] = {}

    @property
    def places(self) -> list[int]:
        """The first moment of each place in the code that was reached."""
        return list(self._places.values())

    def __enter__(self) -> Clock:
        self._before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        # Coverage's tracer, perhaps.
        sys.settrace(self._before)

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        if not frame.f_code.co_filename.startswith(_OURS):
            return None
        if _is_moment(frame, event):
            self.moments += 1
            self._places.setdefault((frame.f_code, frame.f_lineno, event), self.moments)
            if self.moments == self._moment:
                raise KeyboardInterrupt
        return self._trace


def _is_moment(frame: FrameType, event: str) -> bool:
    """Return whether Python could deliver a signal here.

    It delivers none between a block and the `__exit__` or `finally` that ends it, nor while a generator yields.
    """
    code = frame.f_code
    if event == "line":
        return frame.f_lineno not in _undisturbed(code.co_filename)
    if event == "return":
        return not code.co_flags & inspect.CO_GENERATOR
    return event == "call" and not _is_resumed(frame, code)


def _is_resumed(frame: FrameType, code: CodeType) -> bool:
    """Return whether a generator goes on, perhaps because it is closed or an exception is thrown into it."""
    return bool(code.co_flags & inspect.CO_GENERATOR) and frame.f_lineno != code.co_firstlineno


@cache
def _undisturbed(path: str) -> frozenset[int]:
    """Return the lines that end a block: a `with` statement, whose line comes again at its end, and a `finally`."""
    lines: set[int] = set()
    for node in ast.walk(ast.parse(Path(path).read_text())):
        if isinstance(node, ast.With):
            lines.update(range(node.lineno, node.body[0].lineno))
        elif isinstance(node, ast.Try) and node.finalbody:
            lines.add(node.finalbody[0].lineno)
    return frozenset(lines)
