"""Compiled statements, which bypass SQLAlchemy's own execution and its cache.

    Prepared     a statement with named parameters, compiled once a process; its values are given at each run
    QueryCache   queries built with their values at each use; those that differ only in values are compiled once

SQLAlchemy caches what goes through its cursors. Statements sent directly to the driver, to COPY or to Arrow took longer
to compile than the database took to run them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from sqlalchemy import Dialect, Executable
from sqlalchemy.sql.compiler import ExpandedState, SQLCompiler

MAX_QUERIES = 200

Given: TypeAlias = Mapping[str, Any] | list[Any]
"""Values of a statement's parameters: by name, or all of them in their order."""


class Prepared:
    """Statement compiled once: its text, and the order of its parameters."""

    def __init__(self, statement: Executable, dialect: Dialect, schema: str | None) -> None:
        form, constants = _form_of(statement, dialect, has_schema=schema is not None)
        self.text = form.text
        if schema is not None:
            self.text = form.text.replace(_quoted(dialect, _SCHEMA), _quoted(dialect, schema))
        self.names = form.names
        self.constants: Mapping[str, Any] = constants

    def values(self, given: Given) -> Sequence[Any]:
        """Return the values of the parameters in their order. One that is not given has its constant, or None."""
        if isinstance(given, list):
            return given
        constants = self.constants
        return [given[name] if name in given else constants.get(name) for name in self.names]


@dataclass(frozen=True, slots=True)
class _Form:
    """A statement without its constants and the schema: the same for every catalog of a process."""

    text: str
    names: tuple[str, ...]
    parameters: tuple[str, ...]
    """Name of each parameter, in the order of the statement's cache key."""
    own_constants: Mapping[str, Any]
    """What the compiler added, such as an OFFSET of 0."""


def _form_of(statement: Executable, dialect: Dialect, *, has_schema: bool) -> tuple[_Form, dict[str, Any]]:
    """Return the form of a statement, and its constants by name."""
    shape = statement._generate_cache_key()  # type: ignore[attr-defined]
    key = None if shape is None else (type(dialect), dialect.paramstyle, has_schema, shape.key)
    if key is not None and (known := _forms.get(key)) is not None:
        values = zip(known.parameters, (parameter.value for parameter in shape.bindparams), strict=True)
        return known, {**known.own_constants, **{name: value for name, value in values if value is not None}}
    compiled = _compile(statement, dialect, _SCHEMA if has_schema else None, render_postcompile=True)
    constants = {name: value for name, value in compiled.params.items() if value is not None}
    parameters = () if shape is None else tuple(compiled.bind_names.get(one, "") for one in shape.bindparams)
    own = {name: value for name, value in constants.items() if name not in parameters}
    form = _Form(str(compiled), tuple(compiled.positiontup or ()), parameters, own)
    # The text of a list of values depends on its length, which is not in the key.
    if key is not None and all(parameters) and not (compiled.post_compile_params or compiled.literal_execute_params):
        # Threads share the forms without a lock: at worst a statement is compiled twice.
        _forms[key] = form
    return form, constants


def _quoted(dialect: Dialect, schema: str) -> str:
    return dialect.identifier_preparer.quote_schema(schema)


_SCHEMA = "the schema of the catalog"
"""Stands for the schema in a form. No other name has a blank, and values are never part of the text."""
_forms: dict[Any, _Form] = {}


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
