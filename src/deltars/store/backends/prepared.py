"""Compiled statements, which bypass SQLAlchemy's own execution and its cache.

    Prepared(statement) ──▶ text, and the values of its parameters in their order
          │
          └ compiled once a process for all statements that differ only in values or in the schema of their catalog

A statement of ours has named parameters, whose values are given at each run. A query that is built with its values is
prepared anew at each use, which costs no compilation.

SQLAlchemy caches what goes through its cursors, for each engine; `compiled_statements` is one cache for all engines.
Statements sent directly to the driver, to COPY or to Arrow took longer to compile than the database took to run them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from sqlalchemy import Dialect, Executable
from sqlalchemy.sql.compiler import SQLCompiler

from deltars.remembered import Remembered

MAX_FORMS = 500
MAX_COMPILED = 1_000

Given: TypeAlias = Mapping[str, Any] | list[Any]
"""Values of a statement's parameters: by name, or all of them in their order."""


class Prepared:
    """Compiled statement: its text, and the order of its parameters. The dialect's parameters are positional."""

    def __init__(self, statement: Executable, dialect: Dialect, schema: str | None) -> None:
        self.statement = statement
        form, values = _form_of(statement, dialect, has_schema=schema is not None)
        # A list of values becomes as many parameters as it has elements.
        state = form.compiled.construct_expanded_state(values)
        self.text = state.statement
        if schema is not None:
            self.text = self.text.replace(_quoted(dialect, _SCHEMA), _quoted(dialect, schema))
        self.names: Sequence[str] = tuple(state.positiontup or ())
        self.constants: Mapping[str, Any] = {
            name: value for name, value in state.parameters.items() if value is not None
        }

    def values(self, given: Given) -> Sequence[Any]:
        """Return the values of the parameters in their order. One that is not given has its constant, or None."""
        if isinstance(given, list):
            return given
        constants = self.constants
        return [given[name] if name in given else constants.get(name) for name in self.names]


class _Form(NamedTuple):
    """A statement without its values and its schema: the same for every catalog of a process."""

    compiled: SQLCompiler
    names: list[str]
    """Names of its parameters, in the order of the statement's cache key."""


def _form_of(statement: Executable, dialect: Dialect, *, has_schema: bool) -> tuple[_Form, dict[str, Any]]:
    """Return the form of a statement, and its values by name. None stands for those that each run gives."""
    shape = statement._generate_cache_key()  # type: ignore[attr-defined]
    if shape is None:
        compiled = _compile(statement, dialect, has_schema=has_schema)
        names = [parameter.key for parameter in compiled.binds.values() if parameter.required]
        return _Form(compiled, names), dict.fromkeys(names)
    key = type(dialect), dialect.paramstyle, has_schema, shape.key
    form = _forms.get(key)
    if form is None:
        compiled = _compile(statement, dialect, has_schema=has_schema)
        form = _Form(compiled, [parameter.key for parameter in shape.bindparams])
        # Threads share the forms without a lock: at worst a statement is compiled twice.
        _forms[key] = form
    # Statements with the same cache key have the same parameters in the same order, under different names.
    return form, {name: one.value for name, one in zip(form.names, shape.bindparams, strict=True)}


def _compile(statement: Executable, dialect: Dialect, *, has_schema: bool) -> SQLCompiler:
    options = {"schema_translate_map": {None: _SCHEMA}, "render_schema_translate": True} if has_schema else {}
    compiled = statement.compile(dialect=dialect, **options)  # type: ignore[attr-defined]
    assert isinstance(compiled, SQLCompiler)
    return compiled


def _quoted(dialect: Dialect, schema: str) -> str:
    return dialect.identifier_preparer.quote_schema(schema)


class _Compiled(Remembered[tuple[Any, ...], Any]):
    """Cache of statements that SQLAlchemy compiles, as its execution option `compiled_cache`.

    Its keys begin with the dialect, of which each engine has its own; what a dialect compiles depends on its kind.
    """

    def get(self, key: tuple[Any, ...], default: Any = None) -> Any:
        return super().get(_of_kind(key), default)

    def __setitem__(self, key: tuple[Any, ...], compiled: Any) -> None:
        super().__setitem__(_of_kind(key), compiled)


def _of_kind(key: tuple[Any, ...]) -> tuple[Any, ...]:
    dialect, *rest = key
    return type(dialect), dialect.paramstyle, getattr(dialect, "server_version_info", None), *rest


compiled_statements = _Compiled(MAX_COMPILED)
"""Statements that SQLAlchemy compiled in this process, for the engines of all catalogs."""

_SCHEMA = "the schema of the catalog"
"""Stands for the schema in a form. No other name has a blank, and values are never part of the text."""
_forms = Remembered[Any, _Form](MAX_FORMS)
