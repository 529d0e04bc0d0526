"""Backends for PostgreSQL, SQLite and DuckDB; `base.Backend` defines what a backend provides."""

from __future__ import annotations

import importlib

from deltars.errors import ConfigError
from deltars.store.backends.base import Backend, Opening, Query, Rows
from deltars.store.backends.pool import AnyConnection
from deltars.store.backends.prepared import Prepared
from deltars.uri import CatalogUri

__all__ = ["AnyConnection", "Backend", "Opening", "Prepared", "Query", "Rows", "backend_for"]

_BACKENDS = {
    "postgres": ("postgresql.backend", "PostgreSQL"),
    "sqlite": ("sqlite", "SQLite"),
    "duckdb": ("duckdb", "DuckDB"),
}


def backend_for(uri: CatalogUri) -> Backend:
    module_name, class_name = _BACKENDS[uri.backend]
    try:
        module = importlib.import_module(f"{__name__}.{module_name}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("deltars"):
            raise
        raise ConfigError(
            f"the {uri.backend} backend needs the package {error.name}",
            # Only DuckDB's driver is an extra; the others are dependencies of the package itself.
            hint=f"Run: pip install 'deltars{'[duckdb]' if uri.backend == 'duckdb' else ''}'",
        ) from error
    backend: Backend = getattr(module, class_name)(uri)
    return backend
