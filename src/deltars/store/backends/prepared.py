"""Compiled statements, which bypass SQLAlchemy's own execution and its cache.

    Prepared     a statement with named parameters, compiled once; its values are given at each run
    QueryCache   queries built with their values at each use; those that differ only in values are compiled once

SQLAlchemy caches what goes through its cursors. Statements sent directly to the driver, to COPY or to Arrow took longer
to compile than the database took to run them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Dialect, Executable
from sqlalchemy.sql.compiler import ExpandedState, SQLCompiler

MAX_QUERIES = 200


class Prepared:
    """Statement compiled once: its text, and the order of its parameters."""

    def __init__(self, statement: Executable, dialect: Dialect, schema: str | None) -> None:
        compiled = _compile(statement, dialect, schema, render_postcompile=True)
        self.text = str(compiled)
        self.names: tuple[str, ...] = tuple(compiled.positiontup or ())
        self._constants = {name: value for name, value in compiled.params.items() if value is not None}

    def values(self, given: Mapping[str, Any]) -> list[Any]:
        return [given[name] if name in given else self._constants.get(name) for name in self.names]


class QueryCache:
    """Compiled queries of one dialect and schema."""

    def __init__(self, dialect: Dialect, schema: str | None) -> None:
        self._dialect = dialect
        self._schema = schema
        self._known: dict[Any, tuple[SQLCompiler, list[str]]] = {}

    def compiled(self, statement: Executable) -> ExpandedState:
        """Return the text of a statement, and its values by name or position."""
        shape = statement._generate_cache_key()  # type: ignore[attr-defined]
        if shape is None:
            return self._compile(statement).construct_expanded_state()
        known = self._known.get(shape.key)
        if known is None:
            known = self._compile(statement), [parameter.key for parameter in shape.bindparams]
            self._remember(shape.key, known)
        compiled, names = known
        # Statements with the same cache key have the same parameters in the same order, under different names.
        values = {name: parameter.value for name, parameter in zip(names, shape.bindparams, strict=True)}
        return compiled.construct_expanded_state(values)

    def _remember(self, key: Any, known: tuple[SQLCompiler, list[str]]) -> None:
        # Threads share the cache without a lock: at worst a statement is compiled twice.
        for oldest in list(self._known)[: max(0, len(self._known) + 1 - MAX_QUERIES)]:
            self._known.pop(oldest, None)
        self._known[key] = known

    def _compile(self, statement: Executable) -> SQLCompiler:
        return _compile(statement, self._dialect, self._schema)


def _compile(statement: Executable, dialect: Dialect, schema: str | None, **rendering: bool) -> SQLCompiler:
    options = {"schema_translate_map": {None: schema}, "render_schema_translate": True} if schema else {}
    compiled = statement.compile(dialect=dialect, compile_kwargs=rendering, **options)  # type: ignore[attr-defined]
    assert isinstance(compiled, SQLCompiler)
    return compiled
