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
        if shape.key not in self._known:
            while len(self._known) >= MAX_SHAPES:
                self._known.pop(next(iter(self._known)), None)
            names = [parameter.key for parameter in shape.bindparams]
            self._known[shape.key] = self._compile(statement), names
        compiled, names = self._known[shape.key]
        # The parameters of two statements of one shape have other names, but the same order.
        values = {name: parameter.value for name, parameter in zip(names, shape.bindparams, strict=True)}
        return compiled.construct_expanded_state(values)

    def _compile(self, statement: Executable) -> SQLCompiler:
        compiled = statement.compile(dialect=self._dialect, **self._options)  # type: ignore[attr-defined]
        assert isinstance(compiled, SQLCompiler)
        return compiled
