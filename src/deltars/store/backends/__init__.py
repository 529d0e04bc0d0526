"""The three databases: see `base.Backend` for what a backend must say."""

from __future__ import annotations

import importlib

from deltars.errors import ConfigError
from deltars.store.backends.base import Backend, Opening, Prepared, Query, Rows
from deltars.uri import CatalogUri

__all__ = ["Backend", "Opening", "Prepared", "Query", "Rows", "backend_for"]

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
            hint=f"Run: pip install 'deltars[{uri.backend}]'",
        ) from error
    backend: Backend = getattr(module, class_name)(uri)
    return backend
