"""Statements that differ in nothing but their values are one shape, and compiled once.

SQLAlchemy does so for what goes through its cursors. What goes past them, to COPY or to Arrow, took longer to compile
than the database took to answer it.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Dialect, Executable
from sqlalchemy.sql.compiler import ExpandedState, SQLCompiler

MAX_SHAPES = 200


class Shapes:
    """The statements of one dialect and schema."""

    def __init__(self, dialect: Dialect, schema: str | None) -> None:
        self._dialect = dialect
        self._options = {"schema_translate_map": {None: schema}, "render_schema_translate": True} if schema else {}
        self._known: dict[Any, tuple[SQLCompiler, list[str]]] = {}

    def state(self, statement: Executable) -> ExpandedState:
        """The statement's text, and its values by name or position."""
        shape = statement._generate_cache_key()  # type: ignore[attr-defined]
        if shape is None:
            return self._compile(statement).construct_expanded_state()
        known = self._known.get(shape.key)
        if known is None:
            known = self._compile(statement), [parameter.key for parameter in shape.bindparams]
            self._remember(shape.key, known)
        compiled, names = known
        # The parameters of two statements of one shape have other names, but the same order.
        values = {name: parameter.value for name, parameter in zip(names, shape.bindparams, strict=True)}
        return compiled.construct_expanded_state(values)

    def _remember(self, key: Any, known: tuple[SQLCompiler, list[str]]) -> None:
        # Threads share this. Whoever comes second has compiled for nothing, and that is all.
        for oldest in list(self._known)[: max(0, len(self._known) + 1 - MAX_SHAPES)]:
            self._known.pop(oldest, None)
        self._known[key] = known

    def _compile(self, statement: Executable) -> SQLCompiler:
        compiled = statement.compile(dialect=self._dialect, **self._options)  # type: ignore[attr-defined]
        assert isinstance(compiled, SQLCompiler)
        return compiled
